//! The body of an entry that was decoded whole. Whatever is proposed is one.

use super::{Command, Malformed};
use bytes::Bytes;
use std::ops::Deref;

/// A command that every member can apply: it was decoded, or it was written here.
///
/// Nothing else can be sealed, and so nothing else comes into a log. What a client says becomes one
/// in [`super::put`] and its like, and what another member says in [`Checked::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked(Bytes);

impl Checked {
    /// `body`: of a request that was read, or of a command that this version writes.
    pub(crate) fn made(body: Vec<u8>) -> Checked {
        Checked(Bytes::from(body))
    }

    /// Reads the body of a command that another member forwards.
    ///
    /// # Errors
    /// The bytes are not one whole command. Who asked and the lease clock are not a body's: the
    /// proposer adds them.
    pub fn read(body: Bytes) -> Result<Checked, Malformed> {
        let envelope = super::decode(&body)?;
        if envelope.command == Command::Empty {
            return Err(Malformed::new("a body without a command"));
        }
        if envelope.origin.is_some() || envelope.lease_clock.is_some() {
            return Err(Malformed::new("a body that is an entry already"));
        }
        Ok(Checked(body))
    }
}

impl Deref for Checked {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.0
    }
}
