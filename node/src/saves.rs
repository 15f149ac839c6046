//! Saves of the log: one flush at a time; what becomes ready meanwhile is one batch behind it.
//!
//! Without this every turn would cost a flush of its own: a disk slower than the turns would
//! fall behind without end, and look as if it hung.

use crate::io::*;
use crate::member::{Node, Task};
use consensus::Save;
use std::collections::VecDeque;

/// Data of one batch, about; one save alone may be larger. Bytes.
const BATCH_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(crate) struct Saves {
    /// Submitted and not reported yet.
    in_flight: usize,
    /// Ready, in order, merged as far as `BATCH_BYTES` allows.
    waiting: VecDeque<Save>,
    /// The log is being restarted behind an installed snapshot: nothing may be saved in between.
    held: bool,
}

impl Saves {
    fn push(&mut self, save: Save) {
        match self.waiting.back_mut() {
            Some(last) if bytes_of(last) < BATCH_BYTES => merge(last, save),
            _ => self.waiting.push_back(save),
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

impl Node {
    pub(crate) fn submit_save(&mut self, save: Save, out: &mut Vec<Output>) {
        self.saves.push(save);
        self.start_save(out);
    }

    fn start_save(&mut self, out: &mut Vec<Output>) {
        if self.saves.in_flight == 0 && !self.saves.held {
            self.start_next(out);
        }
    }

    fn start_next(&mut self, out: &mut Vec<Output>) {
        let Some(Save { number, hard, entries }) = self.saves.waiting.pop_front() else { return };
        self.saves.in_flight += 1;
        self.health.save_submitted(number, self.ticks);
        self.jobs.start(Task::Save { number }, Job::Save { number, hard, entries }, out);
    }

    pub(crate) fn saved(&mut self, number: u64, out: &mut Vec<Output>) {
        self.saves.in_flight -= 1;
        self.health.saved(number);
        self.consensus.saved(number);
        self.start_save(out);
    }

    /// Before the log restarts: everything that is ready goes ahead of it, what comes later waits.
    pub(crate) fn hold_saves(&mut self, out: &mut Vec<Output>) {
        while !self.saves.waiting.is_empty() {
            self.start_next(out);
        }
        self.saves.held = true;
    }

    /// The log begins behind `index` now. A vote that was cast meanwhile names an older commit.
    pub(crate) fn release_saves(&mut self, index: u64, out: &mut Vec<Output>) {
        for save in &mut self.saves.waiting {
            save.hard.commit = save.hard.commit.max(index);
        }
        self.saves.held = false;
        self.start_save(out);
    }
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

    fn told(save: &Save) -> Vec<(u64, u64)> {
        save.entries.iter().map(|entry| (entry.index, entry.term)).collect()
    }

    #[test]
    fn a_later_save_replaces_the_tail_that_it_overlaps() {
        let mut saves = Saves::default();
        saves.push(save(1, 1, 5..=8));
        saves.push(save(2, 2, 7..=7));
        saves.push(save(3, 3, 8..=9));
        let merged = saves.waiting.pop_front().expect("one");
        assert!(saves.waiting.is_empty());
        assert_eq!(told(&merged), [(5, 1), (6, 1), (7, 2), (8, 3), (9, 3)]);
        assert_eq!((merged.number, merged.hard.term, merged.hard.commit), (3, 3, 3));
    }

    #[test]
    fn a_vote_alone_keeps_the_entries_before_it() {
        let mut saves = Saves::default();
        saves.push(save(1, 1, 5..=6));
        saves.push(Save { entries: Vec::new(), ..save(2, 4, 1..=1) });
        assert_eq!(told(&saves.waiting[0]), [(5, 1), (6, 1)]);
        assert_eq!((saves.waiting[0].number, saves.waiting[0].hard.term), (2, 4));
    }
}
