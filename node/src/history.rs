//! History that several watches want: each piece is read once, and kept for a moment.
//!
//! Watches that were cut off together come back together and go the same way. A piece apiece would
//! hold a hundred times the same records, and a hundred reads would stand in the queue of the disk.
//! So one piece is read at a time, for whoever it covers; the others are next.

use crate::io::Waiter;
use std::collections::VecDeque;
use std::sync::Arc;
use store::RevisionEvents;

/// Pieces kept for those that come a little later; each is one read.
const PIECES: usize = 4;
/// A piece that nobody asked for in so many ticks is dropped.
const KEPT_TICKS: u64 = 20;

pub(crate) type Revisions = Vec<Arc<RevisionEvents>>;

/// Whoever waits for history: every event from revision `from` on.
struct Wanted {
    waiter: Waiter,
    from: i64,
    prev: bool,
}

/// On its way from the files.
struct Reading {
    from: i64,
    prev: bool,
    /// The state was replaced since: what comes says nothing.
    stale: bool,
}

/// Every event from `from` on and below `next`.
struct Piece {
    from: i64,
    next: i64,
    /// With the versions before them.
    prev: bool,
    revisions: Revisions,
    used: u64,
}

impl Piece {
    /// What of it is from revision `from` on.
    fn rest(&self, from: i64) -> Revisions {
        let at = self.revisions.partition_point(|events| events.revision < from);
        self.revisions[at..].to_vec()
    }

    fn serves(&self, from: i64, prev: bool) -> bool {
        (self.from..self.next).contains(&from) && (self.prev || !prev)
    }
}

#[derive(Default)]
pub(crate) struct Histories {
    wanted: VecDeque<Wanted>,
    reading: Option<Reading>,
    kept: VecDeque<Piece>,
}

/// An answer: the waiter, what it gets, and where it goes on.
pub(crate) type Served = (Waiter, Revisions, i64);

impl Histories {
    /// From a piece that is kept.
    pub fn find(&mut self, from: i64, prev: bool, tick: u64) -> Option<(Revisions, i64)> {
        let piece = self.kept.iter_mut().find(|piece| piece.serves(from, prev))?;
        piece.used = tick;
        Some((piece.rest(from), piece.next))
    }

    pub fn want(&mut self, waiter: Waiter, from: i64, prev: bool) {
        self.wanted.push_back(Wanted { waiter, from, prev });
    }

    /// Where a piece is to be read now, and whether with the versions before.
    pub fn begin(&mut self) -> Option<i64> {
        let from = self.wanted.front()?.from;
        if self.reading.is_some() {
            return None;
        }
        let prev = self.wanted.iter().any(|wanted| wanted.prev);
        self.reading = Some(Reading { from, prev, stale: false });
        Some(from)
    }

    /// Whether the piece that is read shall have the versions before.
    pub fn wants_prev(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.prev)
    }

    /// The piece was read: those it covers. None: the state was replaced meanwhile.
    pub fn read(&mut self, revisions: Revisions, next: i64, tick: u64) -> Option<Vec<Served>> {
        let reading = self.reading.take().expect("history: a piece came that was not asked for");
        if reading.stale {
            return None;
        }
        let piece = Piece { from: reading.from, next, prev: reading.prev, revisions, used: tick };
        let mut served = Vec::new();
        self.wanted.retain(|wanted| {
            // Nothing may be there at all.
            let exact = wanted.from == piece.from && (piece.prev || !wanted.prev);
            let serves = exact || piece.serves(wanted.from, wanted.prev);
            if serves {
                served.push((wanted.waiter, piece.rest(wanted.from), piece.next));
            }
            !serves
        });
        if !piece.revisions.is_empty() {
            if self.kept.len() == PIECES {
                let oldest = (0..PIECES).min_by_key(|&at| self.kept[at].used).expect("there are some");
                self.kept.remove(oldest);
            }
            self.kept.push_back(piece);
        }
        Some(served)
    }

    /// The piece could not be read: those that need just this one.
    pub fn failed(&mut self) -> Vec<Waiter> {
        let reading = self.reading.take().expect("history: a piece failed that was not asked for");
        let mut failed = Vec::new();
        self.wanted.retain(|wanted| {
            let same = wanted.from == reading.from && !reading.stale;
            if same {
                failed.push(wanted.waiter);
            }
            !same
        });
        failed
    }

    pub fn cancel(&mut self, waiter: Waiter) -> bool {
        let before = self.wanted.len();
        self.wanted.retain(|wanted| wanted.waiter != waiter);
        self.wanted.len() != before
    }

    /// Another state took the place of the one that was read.
    pub fn reset(&mut self) {
        self.kept.clear();
        if let Some(reading) = &mut self.reading {
            reading.stale = true;
        }
    }

    /// All that wait, to be looked at anew.
    pub fn take_wanted(&mut self) -> Vec<(Waiter, i64, bool)> {
        self.wanted.drain(..).map(|wanted| (wanted.waiter, wanted.from, wanted.prev)).collect()
    }

    pub fn tick(&mut self, tick: u64) {
        self.kept.retain(|piece| tick - piece.used < KEPT_TICKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revisions(range: std::ops::Range<i64>) -> Revisions {
        range.map(|revision| Arc::new(RevisionEvents { revision, events: Vec::new() })).collect()
    }

    fn told(served: &[Served]) -> Vec<(Waiter, Option<i64>, usize, i64)> {
        served.iter().map(|(waiter, r, next)| (*waiter, r.first().map(|r| r.revision), r.len(), *next)).collect()
    }

    #[test]
    fn one_piece_serves_all_that_it_covers() {
        let mut histories = Histories::default();
        for (waiter, from) in [(1, 10), (2, 10), (3, 15), (4, 20), (5, 9)] {
            histories.want(waiter, from, false);
        }
        assert_eq!(histories.begin(), Some(10));
        assert_eq!(histories.begin(), None, "one at a time");
        histories.want(6, 19, false);
        let served = histories.read(revisions(10..20), 20, 0).expect("it holds");
        assert_eq!(
            told(&served),
            [(1, Some(10), 10, 20), (2, Some(10), 10, 20), (3, Some(15), 5, 20), (6, Some(19), 1, 20)]
        );
        let (rest, next) = histories.find(12, false, 5).expect("kept");
        assert_eq!((rest.len(), next), (8, 20));
        assert!(histories.find(20, false, 5).is_none() && histories.find(9, false, 5).is_none());
        assert_eq!(histories.begin(), Some(20), "the oldest of the others is next");
        histories.tick(5 + KEPT_TICKS - 1);
        assert!(histories.find(12, false, 5).is_some());
        histories.tick(5 + KEPT_TICKS);
        assert!(histories.find(12, false, 5).is_none(), "nobody asked for it");
    }

    #[test]
    fn whoever_asks_where_nothing_is_hears_that() {
        let mut histories = Histories::default();
        histories.want(1, 30, true);
        assert_eq!(histories.begin(), Some(30));
        assert_eq!(told(&histories.read(Vec::new(), 30, 0).expect("it holds")), [(1, None, 0, 30)]);
        assert_eq!(histories.begin(), None);
    }

    #[test]
    fn versions_before_are_there_for_those_that_want_them() {
        let mut histories = Histories::default();
        histories.want(1, 10, false);
        histories.begin();
        histories.want(2, 10, true);
        assert!(!histories.wants_prev());
        assert_eq!(histories.read(revisions(10..12), 12, 0).expect("it holds").len(), 1);
        assert!(histories.find(10, true, 0).is_none());
        assert_eq!(histories.begin(), Some(10));
        assert!(histories.wants_prev());
        assert_eq!(histories.read(revisions(10..12), 12, 0).expect("it holds").len(), 1);
        assert!(histories.find(10, true, 0).is_some());
    }

    #[test]
    fn what_was_read_of_an_earlier_state_serves_nobody() {
        let mut histories = Histories::default();
        histories.want(1, 10, false);
        histories.begin();
        histories.read(revisions(10..12), 12, 0);
        histories.want(2, 12, false);
        histories.begin();
        histories.reset();
        assert!(histories.find(10, false, 0).is_none());
        assert!(histories.read(revisions(12..14), 14, 0).is_none());
        assert!(histories.find(12, false, 0).is_none());
        assert_eq!(histories.take_wanted(), [(2, 12, false)]);
    }

    #[test]
    fn a_piece_that_fails_concerns_those_that_begin_with_it() {
        let mut histories = Histories::default();
        for (waiter, from) in [(1, 10), (2, 11), (3, 10), (4, 10)] {
            histories.want(waiter, from, false);
        }
        assert!(histories.cancel(4) && !histories.cancel(4));
        histories.begin();
        assert_eq!(histories.failed(), [1, 3]);
        assert_eq!(histories.begin(), Some(11));
    }

    #[test]
    fn few_pieces_are_kept_and_the_one_not_asked_for_longest_goes_first() {
        let mut histories = Histories::default();
        for (tick, from) in (0..).zip([10, 20, 30, 40]) {
            histories.want(from as u64, from, false);
            histories.begin();
            histories.read(revisions(from..from + 10), from + 10, tick);
        }
        histories.find(10, false, 4);
        histories.want(50, 50, false);
        histories.begin();
        histories.read(revisions(50..60), 60, 5);
        let kept = [10, 20, 30, 40, 50].map(|from| histories.find(from, false, 6).is_some());
        assert_eq!(kept, [true, false, true, true, true]);
    }
}
