//! Segments are rewritten in the middle of everything else, a few records at a time.

use crate::Bench;
use crate::dumb::Model;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use store::{Handle, Moves, Rev};
use testkit::Dice;

/// Where records begin in a segment.
const FIRST_OFFSET: u32 = 4096;

pub struct Rewriting {
    moves: Moves,
    /// Records of the run that were not looked at.
    left: VecDeque<(Handle, Bytes)>,
    /// The handles are being turned.
    moving: bool,
}

impl Bench {
    /// The next piece of a rewrite, or another one begins.
    pub fn rewrite(&mut self, dice: &mut Dice) {
        let Some(mut rewriting) = self.rewriting.take().or_else(|| self.begin_rewriting()) else { return };
        if !rewriting.moving {
            for _ in 0..dice.below(30) {
                let Some((handle, whole)) = rewriting.left.pop_front() else { break };
                let offset = rewriting.moves.end();
                if self.store.mark(&mut rewriting.moves, handle, &whole).unwrap() {
                    let to = Handle { segment: rewriting.moves.run().output, offset, len: handle.len };
                    assert!(self.files.insert(to, whole).is_none(), "a place is used once");
                }
            }
            if rewriting.left.is_empty() && !rewriting.moves.is_empty() {
                self.store.begin_moves(&rewriting.moves);
                rewriting.moving = true;
            }
            // A run in which nothing lives any more is not rewritten.
            self.rewriting = Some(rewriting).filter(|it| !it.left.is_empty() || !it.moves.is_empty());
            if self.rewriting.is_none() {
                self.store.leave_run();
            }
            // As a checkpoint does it, at any time.
            self.store.drop_dead_segments();
            return;
        }
        if !self.store.move_records(&mut rewriting.moves, dice.below(4) as usize) {
            self.rewriting = Some(rewriting);
            return;
        }
        self.end_moves(rewriting);
    }

    fn begin_rewriting(&mut self) -> Option<Rewriting> {
        if !self.store.close_dead_open() {
            self.store.drop_dead_segments();
        }
        let run = self.store.choose_run(&BTreeSet::new(), u32::MAX)?;
        let ids: Vec<u32> = run.segments.iter().map(|(id, _)| *id).collect();
        let mut left = VecDeque::new();
        for (id, end) in &run.segments {
            let first = Handle { segment: *id, offset: 0, len: 0 };
            let records = self.files.range(first..).take_while(|(handle, _)| handle.segment == *id);
            left.extend(records.map(|(handle, whole)| (*handle, whole.clone())));
            assert_eq!(left.back().map(|(last, _)| last.offset + last.len), Some(*end));
        }
        assert!(!ids.contains(&run.output) && self.store.segments().all(|segment| segment.id != run.output));
        Some(Rewriting { moves: self.store.begin_run(run), left, moving: false })
    }

    fn end_moves(&mut self, rewriting: Rewriting) {
        let gone: BTreeSet<u32> = rewriting.moves.run().segments.iter().map(|(id, _)| *id).collect();
        self.store.end_moves(rewriting.moves);
        // Whoever goes on with an old handle is found out.
        self.files.retain(|handle, _| !gone.contains(&handle.segment));
        self.runs += 1;
    }

    /// Before an image: half turned, the state has two files for the same records.
    pub fn end_rewriting(&mut self) {
        let Some(mut rewriting) = self.rewriting.take() else { return };
        if rewriting.moving {
            while !self.store.move_records(&mut rewriting.moves, 3) {}
            self.end_moves(rewriting);
        } else {
            self.store.leave_run();
            let output = rewriting.moves.run().output;
            self.files.retain(|handle, _| handle.segment != output);
        }
    }

    /// The segments hold every record that a watch from the compacted revision on, a hash or a
    /// backup may ask for, in the order of revisions; and little else once nothing holds anything
    /// back.
    pub fn check_files(&mut self, model: &Model) {
        self.end_rewriting();
        self.write_out(usize::MAX);
        let mut dice = Dice::new(7);
        while let Some(rewriting) = self.begin_rewriting() {
            self.rewriting = Some(rewriting);
            while self.rewriting.is_some() {
                self.rewrite(&mut dice);
            }
            self.write_out(usize::MAX);
        }
        let ids: BTreeSet<u32> = self.store.segments().map(|segment| segment.id).collect();
        let records = self.files.iter().filter(|(handle, _)| ids.contains(&handle.segment));
        let revs: Vec<Rev> = records.map(|(_, whole)| store::record::check(whole).unwrap().0).collect();
        assert!(revs.is_sorted_by(|a, b| a < b));
        for version in &model.versions {
            let told = version.main > model.compacted || (version.main == model.compacted && version.value.is_none());
            let there = revs.iter().any(|rev| rev.main == version.main);
            assert!(there || !told, "revision {} is missing", version.main);
        }
        let (live, all) = self
            .store
            .segments()
            .fold((0, 0), |(live, all), segment| (live + segment.live, all + u64::from(segment.end - FIRST_OFFSET)));
        let most = live / 4 + 2 * u64::from(self.store.config().segment_bytes - FIRST_OFFSET);
        assert!(all - live <= most, "{} of {all} bytes are dead", all - live);
    }
}
