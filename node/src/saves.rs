//! Saves of the log: one flush at a time; what becomes ready meanwhile is one batch behind it.
//!
//! Without this every turn would cost a flush of its own: a disk slower than the turns would
//! fall behind without end, and look as if it hung.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use consensus::Save;
use std::collections::VecDeque;

/// A member without a new entry for so long is quiet: 30 s, in ticks.
const QUIET: u64 = 30_000 / TICK_MS;
/// What the entry cache of a quiet member shrinks to, and by how much at a tick. Bytes.
const QUIET_CACHE: u64 = 1 << 20;
const QUIET_STEP: u64 = 1 << 20;
/// Nothing was saved for so long: the end of the log is proven, so that damage of it cannot be
/// taken for a write that a crash cut short. Longer than a heartbeat, which brings the commit
/// index. Ticks.
const IDLE: u64 = 200 / TICK_MS;
/// Data of one batch, about; one save alone may be larger. Bytes.
const BATCH_BYTES: usize = 4 << 20;

struct InFlight {
    number: u64,
    /// The tick of the submission.
    since: u64,
}

#[derive(Default)]
pub(crate) struct Saves {
    /// Submitted and not durable yet.
    in_flight: VecDeque<InFlight>,
    /// Ready, in order, merged as far as `BATCH_BYTES` allows.
    waiting: VecDeque<Save>,
    /// The log is being restarted behind an installed snapshot: nothing may be saved in between.
    held: bool,
    /// The tick of the last entry for the log.
    appended: u64,
    /// The tick in which the last save became durable, unless the log was proven since.
    unproven: Option<u64>,
}

impl Saves {
    pub(crate) fn submit(&mut self, g: &mut Ground, save: Save) {
        if !save.entries.is_empty() {
            self.appended = g.now;
        }
        self.push(save);
        self.start(g);
    }

    fn push(&mut self, save: Save) {
        match self.waiting.back_mut() {
            Some(last) if bytes_of(last) < BATCH_BYTES => merge(last, save),
            _ => self.waiting.push_back(save),
        }
    }

    fn start(&mut self, g: &mut Ground) {
        if self.in_flight.is_empty() && !self.held {
            self.start_next(g);
        }
    }

    fn start_next(&mut self, g: &mut Ground) {
        let Some(Save { number, hard, entries }) = self.waiting.pop_front() else { return };
        self.in_flight.push_back(InFlight { number, since: g.now });
        g.start(Task::Save { number }, LogJob::Save { number, hard, entries });
    }

    /// True: it was the last one that the disk had.
    pub(crate) fn saved(&mut self, g: &mut Ground, number: u64) -> bool {
        let oldest = self.in_flight.pop_front().expect("a save is in flight");
        assert_eq!(oldest.number, number, "saves are done in order");
        self.unproven = Some(g.now);
        let last = self.in_flight.is_empty();
        g.consensus.saved(number);
        self.start(g);
        last
    }

    /// How long the oldest save has been on its way to the disk. Ticks.
    pub(crate) fn age(&self, now: u64) -> u64 {
        self.in_flight.front().map_or(0, |oldest| now - oldest.since)
    }

    /// Before the log restarts: everything that is ready goes ahead of it, what comes later waits.
    pub(crate) fn hold(&mut self, g: &mut Ground) {
        while !self.waiting.is_empty() {
            self.start_next(g);
        }
        self.held = true;
    }

    /// The log begins behind `index` now. A vote that was cast meanwhile names an older commit.
    pub(crate) fn release(&mut self, g: &mut Ground, index: u64) {
        for save in &mut self.waiting {
            save.hard.commit = save.hard.commit.max(index);
        }
        self.held = false;
        self.start(g);
    }

    /// A quiet member gives back the memory of old entries, a little at each tick.
    pub(crate) fn tick(&mut self, g: &mut Ground) {
        self.prove_idle(g);
        let cached = g.consensus.cached_bytes();
        if cached > QUIET_CACHE && g.now - self.appended >= QUIET {
            g.consensus.shrink_cache(QUIET_CACHE.max(cached - QUIET_STEP.min(cached)));
        }
    }
}

impl Saves {
    fn prove_idle(&mut self, g: &mut Ground) {
        // A save may be ready that is handed out at the end of this turn: it names the commit index
        // of its own moment, and the log goes by the newest.
        let idle =
            self.in_flight.is_empty() && self.waiting.is_empty() && !self.held && g.consensus.unsaved().is_none();
        if idle && self.unproven.is_some_and(|since| g.now - since >= IDLE) {
            self.unproven = None;
            // What arrived in this turn is not in the log on disk yet: it may replace entries
            // there.
            let commit = g.consensus.commit().min(g.consensus.durable_position().index);
            g.start(Task::Prove, LogJob::Prove { commit });
        }
    }
}

fn bytes_of(save: &Save) -> usize {
    save.entries.iter().map(|entry| entry.data.len()).sum()
}

/// Both as one: an entry of the later save replaces everything at and above its index.
fn merge(save: &mut Save, later: Save) {
    assert!(later.number > save.number, "saves come in order");
    if let Some(first) = later.entries.first() {
        let kept = save.entries.partition_point(|entry| entry.index < first.index);
        save.entries.truncate(kept);
        let follows = save.entries.last().is_none_or(|last| last.index + 1 == first.index);
        assert!(follows, "saves leave no gap before entry {}", first.index);
    }
    save.entries.extend(later.entries);
    (save.number, save.hard) = (later.number, later.hard);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use consensus::{Entry, EntryKind, HardState};

    fn save(number: u64, term: u64, indexes: std::ops::RangeInclusive<u64>) -> Save {
        let entry = |index| Entry { index, term, kind: EntryKind::Normal, data: Bytes::from_static(b"data") };
        let hard = HardState { term, vote: 1, commit: number };
        Save { number, hard, entries: indexes.map(entry).collect() }
    }

    fn told(save: &Save) -> String {
        let place = |entry: &Entry| format!("{}/{}", entry.index, entry.term);
        save.entries.iter().map(place).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_later_save_replaces_the_tail_that_it_overlaps() {
        let mut saves = Saves::default();
        saves.push(save(1, 1, 5..=8));
        saves.push(save(2, 2, 7..=7));
        saves.push(save(3, 3, 8..=9));
        let merged = saves.waiting.pop_front().expect("one");
        assert!(saves.waiting.is_empty());
        assert_eq!(told(&merged), "5/1 6/1 7/2 8/3 9/3");
        assert_eq!((merged.number, merged.hard.term, merged.hard.commit), (3, 3, 3));
    }

    #[test]
    fn a_vote_alone_keeps_the_entries_before_it() {
        let mut saves = Saves::default();
        saves.push(save(1, 1, 5..=6));
        saves.push(Save { entries: Vec::new(), ..save(2, 4, 1..=1) });
        assert_eq!(told(&saves.waiting[0]), "5/1 6/1");
        assert_eq!((saves.waiting[0].number, saves.waiting[0].hard.term), (2, 4));
    }
}
