//! Planted differences: the proof that the comparison sees.

use std::sync::{Arc, Mutex};

/// What is altered in one answer of the right side, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A range's count.
    Count,
    /// The version of a key that a range returns.
    Version,
    /// The revision in a put's header.
    Revision,
    /// The last letter of an error's text.
    Text,
    /// An event is lost.
    EventLost,
    /// The version in an event.
    EventVersion,
    /// One byte of a gateway answer.
    Page,
}

pub const ALL: [Plant; 7] =
    [Plant::Count, Plant::Version, Plant::Revision, Plant::Text, Plant::EventLost, Plant::EventVersion, Plant::Page];

/// What is still to be planted; shared by all that answers come through.
#[derive(Clone, Debug, Default)]
pub struct Planted(Arc<Mutex<Option<Plant>>>);

impl Planted {
    pub fn set(&self, plant: Plant) {
        *self.lock() = Some(plant);
    }

    /// Whether this is the moment; then it is over.
    pub fn take(&self, plant: Plant) -> bool {
        let mut planted = self.lock();
        let now = *planted == Some(plant);
        if now {
            *planted = None;
        }
        now
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Plant>> {
        self.0.lock().expect("nothing panics under this lock")
    }
}
