//! Space comes back: a run of neighbouring segments is rewritten into one file that holds only the
//! records that the index still keeps.
//!
//! 1. [`Store::choose_run`] picks neighbours that are sealed and written.
//! 2. [`Store::begin_run`] holds them. Their records are read in order. [`Store::mark`] says of
//!    each whether it is kept; whoever reads copies those, unchanged, one behind the other, into
//!    the new file.
//! 3. [`Store::begin_moves`] makes the new segment known, [`Store::move_records`] turns the handles
//!    in slices, [`Store::end_moves`] forgets the old segments. No image may begin in between: it
//!    would name both.
//!
//! What is kept is what the index keeps, so a pin holds records here as it does in the sweep. A
//! handle is turned only if it still is the old one. The old files stay as long as a kept
//! checkpoint names them.

use crate::index::Found;
use crate::record::{self, Damage};
use crate::state::Store;
use crate::tail::{FIRST_OFFSET, SegmentUse};
use crate::{Handle, Rev};
use bytes::Bytes;
use std::collections::BTreeSet;

/// Most segments of a run.
const LONGEST: usize = 32;
/// So many small neighbours become one file even if nothing in them is dead.
const SMALL_ONES: usize = 8;

/// Neighbouring segments, and the file that takes their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// (id, offset behind the last record), ascending.
    pub segments: Vec<(u32, u32)>,
    /// Id of the new segment, between those of the neighbours of the run.
    pub output: u32,
}

impl Run {
    fn ids(&self) -> Vec<u32> {
        self.segments.iter().map(|(id, _)| *id).collect()
    }

    /// Bytes of records in the segments of the run.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, end)| u64::from(end - FIRST_OFFSET)).sum()
    }
}

/// The records of a run that are kept, in their order. About 32 bytes for each.
#[derive(Clone, Debug)]
pub struct Moves {
    run: Run,
    moves: Vec<Move>,
    /// Of those: how many handles were looked at by [`Store::move_records`].
    done: usize,
    /// Offset behind the last kept record in the new file.
    end: u32,
    /// Where the next one to be turned lies there.
    turned: u32,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    found: Found,
    rev: Rev,
    from: Handle,
}

impl Moves {
    /// The segments that are rewritten.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Offset behind the last kept record in the new file.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Nothing of the run is kept.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }
}

impl Store {
    /// The run whose rewriting brings most for what it costs, if any is worth it: at least half of
    /// it is dead, or it is many small files, or a fifth of it is dead while all that is dead comes
    /// to more than a quarter of what lives and one segment. None of `spared` is in it.
    ///
    /// `below`: the new file gets a lower id. With the id of the segment that was open at the
    /// newest checkpoint, files begun since are told apart from files rewritten since.
    pub fn choose_run(&self, spared: &BTreeSet<u32>, below: u32) -> Option<Run> {
        let room = u64::from(self.config.segment_bytes.max(FIRST_OFFSET) - FIRST_OFFSET);
        let segments: Vec<SegmentUse> = self.segments().copied().collect();
        let (live, dead) = segments.iter().fold((0, 0), |(live, dead), s| (live + s.live, dead + dead_bytes(s)));
        let policy = Policy { room, crowded: dead > live / 4 + room };
        let usable = |segment: &SegmentUse| self.tail.is_settled(segment) && !spared.contains(&segment.id);
        let mut best: Option<(Worth, Run)> = None;
        for first in 0..segments.len() {
            let mut worth = Worth::default();
            for last in first..segments.len().min(first + LONGEST) {
                worth.add(&segments[last]);
                // One that a single monstrous revision made larger than others is rewritten alone.
                if !usable(&segments[last]) || (worth.live > room && last > first) {
                    break;
                }
                let better = best.as_ref().is_none_or(|(before, _)| worth.beats(before));
                if policy.accepts(&worth)
                    && better
                    && let Some(run) = self.run_of(&segments, first, last, below)
                {
                    best = Some((worth, run));
                }
            }
        }
        best.map(|(_, run)| run)
    }

    /// At a start, of each segment file that is there: an older checkpoint may name what this state
    /// does not know, so no rewrite may take that name.
    pub fn file_is_there(&mut self, segment: u32) {
        self.tail.spend(segment);
    }

    fn run_of(&self, segments: &[SegmentUse], first: usize, last: usize, below: u32) -> Option<Run> {
        let before = first.checked_sub(1).map_or(0, |before| segments[before].id);
        // The open one follows at least.
        let behind = segments.get(last + 1)?.id.min(below);
        let output = self.tail.free_between(before, behind)?;
        Some(Run { segments: segments[first..=last].iter().map(|s| (s.id, s.end)).collect(), output })
    }

    /// Closes the open segment if so much of it is dead that it is worth rewriting. True: it did.
    pub fn close_dead_open(&mut self) -> bool {
        let open = self.tail.open();
        let (size, dead) = (u64::from(open.end - FIRST_OFFSET), dead_bytes(open));
        let worth = 2 * dead >= size && 8 * dead >= u64::from(self.config.segment_bytes);
        if worth {
            self.tail.close_open();
        }
        worth
    }

    /// Bytes of records that the index points to no more, in all segments.
    pub fn dead_bytes(&self) -> u64 {
        self.tail.segments().map(dead_bytes).sum()
    }

    /// The run is about to be read: its segments stay until [`Store::end_moves`] or
    /// [`Store::leave_run`].
    pub fn begin_run(&mut self, run: Run) -> Moves {
        // The new one too: before its first handle is turned nothing in it lives.
        self.tail.hold([run.ids(), vec![run.output]].concat());
        Moves { run, moves: Vec::new(), done: 0, end: FIRST_OFFSET, turned: FIRST_OFFSET }
    }

    /// The run is given up.
    pub fn leave_run(&mut self) {
        self.tail.hold(Vec::new());
    }

    /// Whether the record `whole` at `handle` is kept. If it is, it is the next one in the new
    /// file.
    ///
    /// # Errors
    /// It is not a whole record, or not what its handle says.
    pub fn mark(&self, moves: &mut Moves, handle: Handle, whole: &Bytes) -> Result<bool, Damage> {
        let opened = record::open(whole)?;
        if whole.len() != handle.len as usize {
            return Err(Damage::new(0, format!("a record of {} bytes where {} are", whole.len(), handle.len)));
        }
        let key = record::key_value(&opened.body)?.key;
        let Some(found) = self.keys.keeps(key, opened.rev, handle) else { return Ok(false) };
        moves.moves.push(Move { found, rev: opened.rev, from: handle });
        moves.end = moves.end.checked_add(handle.len).expect("a run fits in one segment");
        Ok(true)
    }

    /// Every record of the run was marked: bytes of those that the index keeps and the files did
    /// not show. Not 0: the index or the files are damaged, and the run stays as it is.
    pub fn unseen(&self, moves: &Moves) -> u64 {
        let ids = moves.run.ids();
        let live: u64 = self.segments().filter(|segment| ids.contains(&segment.id)).map(|segment| segment.live).sum();
        live.saturating_sub(u64::from(moves.end - FIRST_OFFSET))
    }

    /// The new file holds what was marked: its segment is known from here on.
    ///
    /// # Panics
    /// If something is [`Store::unseen`].
    pub fn begin_moves(&mut self, moves: &Moves) {
        assert!(self.unseen(moves) == 0, "every record of a run was seen");
        let end_of = |at: Option<&Move>| at.map_or(0, |at| at.rev.main);
        let (first, last) = (end_of(moves.moves.first()), end_of(moves.moves.last()));
        self.tail.add(SegmentUse { id: moves.run.output, first, last, end: moves.end, live: 0, sealed: true });
    }

    /// Turns up to `most` handles more. True: that was all.
    pub fn move_records(&mut self, moves: &mut Moves, most: usize) -> bool {
        let until = moves.moves.len().min(moves.done + most);
        for Move { found, rev, from } in &moves.moves[moves.done..until] {
            let to = Handle { segment: moves.run.output, offset: moves.turned, len: from.len };
            moves.turned += from.len;
            if self.keys.relocate(*found, *rev, *from, to) {
                self.tail.freed(*from);
                assert!(self.tail.counted(to), "the new segment holds it");
            }
        }
        moves.done = until;
        until == moves.moves.len()
    }

    /// Forgets the segments of the run. Bytes of their files.
    ///
    /// # Panics
    /// If a record in one of them is still needed.
    pub fn end_moves(&mut self, moves: Moves) -> u64 {
        self.leave_run();
        self.tail.retire(&moves.run.ids())
    }
}

fn dead_bytes(segment: &SegmentUse) -> u64 {
    u64::from(segment.end - FIRST_OFFSET) - segment.live
}

struct Policy {
    /// Bytes of records that a segment has room for.
    room: u64,
    /// More is dead than may be.
    crowded: bool,
}

impl Policy {
    fn accepts(&self, worth: &Worth) -> bool {
        let half = 2 * worth.dead >= worth.size() && 16 * worth.dead >= self.room;
        let small = worth.count >= SMALL_ONES;
        let fifth = 5 * worth.dead >= worth.size() && worth.dead > 0;
        half || small || (self.crowded && fifth)
    }
}

/// What rewriting a run brings and costs. Bytes of records.
#[derive(Clone, Copy, Default)]
struct Worth {
    live: u64,
    dead: u64,
    count: usize,
}

impl Worth {
    fn add(&mut self, segment: &SegmentUse) {
        self.live += segment.live;
        self.dead += dead_bytes(segment);
        self.count += 1;
    }

    fn size(&self) -> u64 {
        self.live + self.dead
    }

    /// What comes back, beside what is read and written for it. Of equals the longer one: fewer
    /// files.
    fn beats(&self, other: &Worth) -> bool {
        let gain = |worth: &Worth| u128::from(worth.dead) + u128::from(FIRST_OFFSET) * (worth.count as u128 - 1);
        let cost = |worth: &Worth| u128::from(worth.size() + worth.live) + 1;
        let (mine, others) = (gain(self) * cost(other), gain(other) * cost(self));
        mine > others || (mine == others && self.count > other.count)
    }
}
