//! Compaction: one number set in apply. Which versions are dead follows from that number alone;
//! the sweep only frees memory, later and in slices, and pins only delay it. So reads, watches
//! and hashes never ask whether a version "is still there".

use crate::index::Entry;
use crate::state::Store;
use std::collections::BTreeSet;

/// How many of the entry's oldest versions are dead once `compacted` is compacted: those superseded
/// at or below it, and a tombstone strictly below it. (A tombstone exactly at it is kept: a watch
/// from there on must still see the delete.)
pub(crate) fn dead_versions(entry: &Entry, compacted: i64) -> usize {
    let superseded = entry.upto(compacted).saturating_sub(1);
    let next = entry.nth(superseded);
    superseded + usize::from(next.is_tombstone() && next.main() < compacted)
}

/// A revision that must stay readable. Given back by [`Store::unpin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinId {
    revision: i64,
    number: u64,
}

impl PinId {
    /// The revision that it keeps readable.
    pub fn revision(&self) -> i64 {
        self.revision
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    held: BTreeSet<PinId>,
    next: u64,
}

impl Store {
    /// Holds the sweep back so that `revision` stays readable. It must not be compacted yet.
    pub fn pin(&mut self, revision: i64) -> PinId {
        assert!(revision >= self.compacted, "a compacted revision cannot be pinned");
        let pin = PinId { revision, number: self.pins.next };
        self.pins.next += 1;
        self.pins.held.insert(pin);
        pin
    }

    /// Holds the sweep at `before`, the compacted revision until the entry that was just applied:
    /// no sweep can have run since. For the hash of that compaction.
    pub fn pin_unswept(&mut self, before: i64) -> PinId {
        let pin = PinId { revision: before, number: self.pins.next };
        self.pins.next += 1;
        self.pins.held.insert(pin);
        pin
    }

    /// # Panics
    /// If the pin was given back already.
    pub fn unpin(&mut self, pin: PinId) {
        assert!(self.pins.held.remove(&pin), "a pin is given back once");
    }

    /// The revision that the sweep may go up to now: the compacted one, or the oldest pin below it.
    pub fn sweep_level(&self) -> i64 {
        let oldest = self.pins.held.first().map_or(i64::MAX, |pin| pin.revision);
        self.compacted.min(oldest)
    }

    /// Drops dead versions, visiting at most `most` entries. True: nothing is left to do now
    /// (pins may still hold something back: see [`Store::swept`]).
    pub fn sweep(&mut self, most: usize) -> bool {
        let level = self.sweep_level();
        let tail = &mut self.tail;
        for _ in 0..most {
            if !self.keys.sweep_one(level, &mut |handle| tail.freed(handle)) {
                return true;
            }
        }
        !self.sweep_pending()
    }

    /// True when [`Store::sweep`] would find something to drop.
    pub fn sweep_pending(&self) -> bool {
        self.keys.sweep_due(self.sweep_level())
    }

    /// Every version dead at this revision is gone from the index.
    pub fn swept(&self) -> i64 {
        self.sweep_level().min(self.keys.swept_upto())
    }
}
