//! Terms and indexes that no cluster can have reached.
//!
//! A term grows by one with each election, and an index by one with each entry. A message that is
//! far ahead of both was forged, or its sender's disk is damaged. Taken, one term close to the end
//! of its range would end elections for ever.
//!
//! The bound moves with time, and a member that was away for years is far below it. So whatever a
//! member holds, the others take it sooner or later: no cluster is stranded.

use crate::{Consensus, Message};
use raft::eraftpb::MessageType;

/// A member may be so many elections behind when it starts: one in each second for 136 years.
const TERMS: u64 = 1 << 32;
/// What the bound of terms gains in a tick. At this pace a forger needs 20,000 years to the end.
const TERMS_A_TICK: u64 = 1 << 16;
/// A log may be so many entries behind when its member starts: 30,000 in each second of a year.
const ENTRIES: u64 = 1 << 40;
/// What the bound of indexes gains in a tick.
const ENTRIES_A_TICK: u64 = 1 << 20;

/// A number that no member can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implausible {
    /// The message is of this term.
    Term(u64),
    /// It speaks of this entry.
    Index(u64),
}

impl std::fmt::Display for Implausible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Implausible::Term(term) => write!(f, "term {term} is too far ahead"),
            Implausible::Index(index) => write!(f, "index {index} is too far ahead"),
        }
    }
}

/// How far ahead of this member the others may be, and whether it takes what they append.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Highest term and index.
    term: u64,
    index: u64,
    /// Too much waits to be applied: it takes no entries.
    pub(crate) full: bool,
}

impl Bounds {
    /// `term` and `last`: of a member that starts.
    pub(crate) fn new(term: u64, last: u64) -> Bounds {
        Bounds { term: term.saturating_add(TERMS), index: last.saturating_add(ENTRIES), full: false }
    }

    pub(crate) fn tick(&mut self) {
        self.term = self.term.saturating_add(TERMS_A_TICK);
        self.index = self.index.saturating_add(ENTRIES_A_TICK);
    }

    /// # Errors
    /// One of the numbers is beyond them.
    pub(crate) fn check(&self, term: u64, indexes: &[u64]) -> Result<(), Implausible> {
        if term > self.term {
            return Err(Implausible::Term(term));
        }
        match indexes.iter().find(|index| **index > self.index) {
            Some(index) => Err(Implausible::Index(*index)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// As [`Bounds::check`].
    pub(crate) fn message(&self, message: &Message) -> Result<(), Implausible> {
        let m = &message.0;
        let last = m.index.saturating_add(m.entries.len() as u64);
        let snapshot = match m.get_msg_type() {
            MessageType::MsgSnapshot => m.get_snapshot().get_metadata().index,
            _ => 0,
        };
        // Terms of entries and anchors are not above the message's.
        self.check(m.term.max(m.log_term).max(m.commit_term), &[last, m.commit, m.reject_hint, snapshot])
    }
}

impl Consensus {
    /// Whether a member can mean these numbers.
    ///
    /// # Errors
    /// They are too far ahead of this member's.
    pub fn plausible(&self, term: u64, indexes: &[u64]) -> Result<(), Implausible> {
        self.bounds.check(term, indexes)
    }

    /// As [`Consensus::plausible`], of a message.
    ///
    /// # Errors
    /// As [`Consensus::plausible`].
    pub fn plausible_message(&self, message: &Message) -> Result<(), Implausible> {
        self.bounds.message(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_away_for_years_is_heard_and_the_end_of_the_range_is_not() {
        let mut bounds = Bounds::new(7, 100);
        let ten_years_of_elections = 7 + 10 * 365 * 86_400;
        assert_eq!(bounds.check(ten_years_of_elections, &[100 + (1 << 39)]), Ok(()));
        assert_eq!(bounds.check(1 << 61, &[100]), Err(Implausible::Term(1 << 61)));
        assert_eq!(bounds.check(8, &[100, u64::MAX]), Err(Implausible::Index(u64::MAX)));
        assert_eq!(bounds.check(7 + TERMS + 1, &[0]), Err(Implausible::Term(7 + TERMS + 1)));
        // What another member holds is taken in the end.
        (0..TERMS / TERMS_A_TICK).for_each(|_| bounds.tick());
        assert_eq!(bounds.check(7 + 2 * TERMS, &[0]), Ok(()));
    }

    #[test]
    fn the_bounds_stop_at_the_end_of_the_range() {
        let mut bounds = Bounds::new(u64::MAX - 1, u64::MAX);
        bounds.tick();
        assert_eq!(bounds.check(u64::MAX, &[u64::MAX]), Ok(()));
    }
}
