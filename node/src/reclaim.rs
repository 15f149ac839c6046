//! Space that compaction freed comes back: runs of neighbouring segments are rewritten, beside
//! traffic.
//!
//! One run at a time, in bounded steps of the background lane: a piece of its records is read, the
//! index says which of them are kept, those are written to the new file, and so on. When all are
//! there, and while no checkpoint is being written, the new file gets its name and the handles are
//! turned in slices between turns. No checkpoint begins meanwhile: it would name both.
//!
//! The old files stay until two checkpoints were written since, so two are wanted when nothing more
//! is worth rewriting. In a quiet cluster a command without effect moves the log, for each
//! checkpoint needs an entry of its own.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use disk::reclaim::Place;
use std::collections::{BTreeMap, BTreeSet};
use store::Moves;

/// Ticks between two looks for something that is worth it.
const LOOK_EVERY: u64 = 500 / TICK_MS;
/// Most records in one step: as many look-ups in the index stand between two turns.
const RECORDS: usize = 1_000;
/// Most bytes that one step reads, unless a record is longer.
const BYTES: u64 = 1 << 20;
/// Ticks that an idle member is told together, at most.
const TOGETHER: u64 = 5;
/// Ticks until the next try when there was no room for the new file.
const FULL_AGAIN: u64 = 30_000 / TICK_MS;
/// Ticks for which a segment is left alone after damage was met in it.
const SPARED: u64 = 600_000 / TICK_MS;
/// Ticks that files wait at most before checkpoints are wanted for them.
const PATIENCE: u64 = 20_000 / TICK_MS;
/// Ticks until the log is moved again, if the first command for it did not come to anything.
const NUDGE_EVERY: u64 = 30_000 / TICK_MS;
/// Checkpoints that are kept: when so many were written, no older one names a file.
const KEPT: u8 = 2;

#[derive(Default)]
pub(crate) struct Reclaim {
    stage: Stage,
    /// Tick before which no step is begun.
    next: u64,
    /// Segments in which damage was met, and until when they are left alone: it may be mended.
    spared: BTreeMap<u32, u64>,
    /// Those that were told of.
    told: BTreeSet<u32>,
    /// Bytes of files that the state does not need any more, on the disk still.
    waiting: u64,
    /// Since that tick.
    since: u64,
    /// Checkpoints to be written until those files go.
    owed: u8,
    /// Something is worth rewriting once a checkpoint knows its segments.
    unnamed: bool,
    nudged: u64,
    told_full: bool,
    figures: Reclaimed,
}

#[derive(Default)]
enum Stage {
    /// Nothing was worth it at the last look.
    #[default]
    Idle,
    /// The next piece is to be read.
    Pause(Moves, Place),
    Reading(Moves),
    /// So many bytes of kept records are on their way to the new file; then it goes on there, if
    /// there is more.
    Writing(Moves, u64, Option<Place>),
    /// The new file has all of them.
    Copied(Moves),
    Finishing(Moves),
    /// Handles are being turned.
    Moving(Moves),
    /// It was given up, and what was written of it goes.
    GivingUp,
}

/// What the other parts are at.
#[derive(Clone, Copy)]
pub(crate) struct Beside {
    /// A checkpoint is being written.
    pub(crate) checkpointing: bool,
    /// One is, or is wanted.
    pub(crate) checkpoint_wanted: bool,
    /// Another state is on its way.
    pub(crate) installing: bool,
    /// The log's disk lets saves wait, damage is mended, or the member stops or must not be
    /// trusted.
    pub(crate) hold: bool,
    /// Index of the newest durable checkpoint, the segment that was open then, and the bytes of its
    /// rows.
    pub(crate) newest: u64,
    pub(crate) open_segment: u32,
    pub(crate) rows_bytes: u64,
}

/// What is wanted so that files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Checkpoint,
    /// An entry of the log, for the checkpoint after it.
    Entry,
}

impl Reclaim {
    /// False: another turn would go on with what is begun.
    pub(crate) fn idle(&self) -> bool {
        !matches!(self.stage, Stage::Moving(_))
    }

    /// No checkpoint may begin: the segments are between old and new.
    pub(crate) fn holds_checkpoints(&self) -> bool {
        matches!(self.stage, Stage::Finishing(_) | Stage::Moving(_))
    }

    pub(crate) fn figures(&self) -> Reclaimed {
        self.figures
    }

    /// A turn's share.
    pub(crate) fn run(&mut self, g: &mut Ground, beside: Beside) {
        if g.swapping() || beside.installing {
            return;
        }
        let due = g.now >= self.next && !beside.hold;
        match std::mem::take(&mut self.stage) {
            Stage::Idle if due && !beside.checkpointing => self.look(g, beside),
            Stage::Pause(moves, place) if due => self.read(g, moves, place),
            Stage::Copied(moves) if !beside.checkpointing && !beside.hold => self.finish(g, moves),
            Stage::Moving(moves) => self.turn_handles(g, moves),
            other => self.stage = other,
        }
    }

    /// Files wait for checkpoints: what is to be done now so that they come.
    pub(crate) fn wanted(&mut self, g: &Ground, beside: Beside) -> Option<Wanted> {
        if (self.owed == 0 && !self.unnamed)
            || beside.checkpoint_wanted
            || beside.installing
            || beside.hold
            || self.holds_checkpoints()
        {
            return None;
        }
        // What a checkpoint writes must not be more than what comes back, unless that waits for
        // long.
        let worth = matches!(self.stage, Stage::Idle) && 4 * self.waiting >= beside.rows_bytes;
        if !worth && !self.unnamed && g.now - self.since < PATIENCE {
            return None;
        }
        if g.store.applied().index > beside.newest {
            self.since = g.now;
            self.unnamed = false;
            return Some(Wanted::Checkpoint);
        }
        if g.now < self.nudged || g.leader == 0 {
            return None;
        }
        self.nudged = g.now + NUDGE_EVERY;
        Some(Wanted::Entry)
    }

    /// A checkpoint that began behind the last change of segments is durable.
    pub(crate) fn checkpoint_done(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        self.nudged = 0;
        if self.owed == 0 {
            self.waiting = 0;
        }
    }

    /// Another state took the place of the old one, and other files.
    pub(crate) fn restart(&mut self) {
        *self = Reclaim { figures: self.figures, ..Reclaim::default() };
    }

    fn look(&mut self, g: &mut Ground, beside: Beside) {
        self.next = g.now + LOOK_EVERY;
        if g.store.sweep_pending() {
            return;
        }
        let bytes = g.drop_dead_segments();
        self.dropped(g, bytes);
        if g.store.close_dead_open() {
            // Its seal is written like any record; then it is a segment like others.
            g.write_seals();
        }
        self.spared.retain(|_, until| *until > g.now);
        let spared = self.spared.keys().copied().collect();
        match g.store.choose_run(&spared, beside.open_segment) {
            Some(run) => {
                let moves = g.store.begin_run(run);
                self.read(g, moves, Place::default());
            }
            None => self.unnamed = g.store.choose_run(&spared, u32::MAX).is_some(),
        }
    }

    /// Segments of so many bytes needed no rewriting: nothing in them lived any more.
    pub(crate) fn dropped(&mut self, g: &Ground, bytes: u64) {
        if bytes > 0 {
            self.figures.bytes += bytes;
            self.files_wait(g, bytes);
        }
    }

    /// So many bytes of files are needed by nothing but the kept checkpoints.
    fn files_wait(&mut self, g: &Ground, bytes: u64) {
        if self.owed == 0 {
            self.since = g.now;
        }
        self.owed = KEPT;
        self.waiting += bytes;
    }

    fn read(&mut self, g: &mut Ground, moves: Moves, place: Place) {
        let piece = u64::from(g.config.segment_bytes / 4).min(BYTES);
        let run = moves.run().segments.clone();
        let job = ReclaimJob::Read { run, place, most: RECORDS, max_bytes: piece };
        start(g, job);
        self.stage = Stage::Reading(moves);
    }

    /// A job of this part is done. Bytes that it wrote.
    pub(crate) fn done(&mut self, g: &mut Ground, epoch: u64, result: ReclaimResult) -> u64 {
        if epoch != g.epoch() {
            return 0; // of a state that a snapshot has replaced since
        }
        match (std::mem::take(&mut self.stage), result) {
            (Stage::Reading(moves), ReclaimResult::Read(piece)) => self.copy(g, moves, piece),
            (Stage::Writing(moves, bytes, next), ReclaimResult::Written) => {
                self.go_on(moves, next);
                return bytes;
            }
            (Stage::Finishing(moves), ReclaimResult::Finished) => {
                g.store.begin_moves(&moves);
                self.stage = Stage::Moving(moves);
            }
            (Stage::GivingUp, ReclaimResult::GivenUp) => {}
            (_, result) => panic!("{result:?} does not answer what was begun"),
        }
        0
    }

    fn copy(&mut self, g: &mut Ground, mut moves: Moves, piece: disk::reclaim::Piece) {
        let (offset, mut parts, mut bytes) = (moves.end(), Vec::new(), 0);
        for (handle, whole) in piece.records {
            bytes += u64::from(handle.len);
            match g.store.mark(&mut moves, handle, &whole) {
                Ok(true) => parts.push(whole),
                Ok(false) => {}
                Err(damage) => {
                    let path = disk::records::path(handle.segment);
                    let text = format!("{path} at byte {}: {}", u64::from(handle.offset) + damage.offset, damage.what);
                    return self.damaged(g, &moves, &path, &text);
                }
            }
        }
        // So many bytes a second, and one step a tick; ticks that came together are made up for.
        let ticks = (bytes * (1_000 / TICK_MS)).div_ceil(g.config.reclaim_bytes.max(1)).max(1);
        self.next = self.next.max(g.now.saturating_sub(TOGETHER)) + ticks;
        if parts.is_empty() {
            return self.go_on(moves, piece.next);
        }
        let kept = u64::from(moves.end() - offset);
        start(g, ReclaimJob::Write { output: moves.run().output, offset, parts });
        self.stage = Stage::Writing(moves, kept, piece.next);
    }

    fn go_on(&mut self, moves: Moves, next: Option<Place>) {
        self.stage = match next {
            Some(place) => Stage::Pause(moves, place),
            None => Stage::Copied(moves),
        };
    }

    fn finish(&mut self, g: &mut Ground, moves: Moves) {
        let unseen = g.store.unseen(&moves);
        if unseen > 0 {
            let text = format!("{unseen} bytes of records that the index names are not in the files");
            let whole = format!("{:?}", moves.run().segments);
            return self.damaged(g, &moves, &whole, &text);
        }
        if moves.is_empty() {
            // All of it died meanwhile: its segments are dropped at the next look.
            return self.give_up(g, &moves);
        }
        start(g, ReclaimJob::Finish { output: moves.run().output, end: moves.end() });
        self.stage = Stage::Finishing(moves);
    }

    fn turn_handles(&mut self, g: &mut Ground, mut moves: Moves) {
        if !g.store.move_records(&mut moves, g.config.budgets.slice_keys) {
            self.stage = Stage::Moving(moves);
            return;
        }
        let kept = u64::from(moves.end());
        let bytes = g.store.end_moves(moves);
        self.figures.runs += 1;
        self.figures.bytes += bytes.saturating_sub(kept);
        self.files_wait(g, bytes);
        self.next = g.now;
    }

    /// A step failed. True: the member goes on without it.
    pub(crate) fn failed(&mut self, g: &mut Ground, epoch: u64, fault: &disk::Fault) -> bool {
        if epoch != g.epoch() {
            return true;
        }
        let moves = match std::mem::take(&mut self.stage) {
            Stage::Reading(moves) | Stage::Writing(moves, ..) | Stage::Finishing(moves) => moves,
            _ => return false,
        };
        if fault.is_damage() {
            self.damaged(g, &moves, fault.file(), &fault.to_string());
        } else if fault.is_full() {
            if !std::mem::replace(&mut self.told_full, true) {
                let text = format!("segments are not rewritten while there is no room for it: {fault}");
                g.note(Level::Warn, text);
            }
            self.give_up(g, &moves);
            self.next = g.now + FULL_AGAIN;
        } else if matches!(fault, disk::Fault::Refused { .. }) {
            // A file of that name is there.
            g.store.file_is_there(moves.run().output);
            self.give_up(g, &moves);
        } else {
            return false;
        }
        true
    }

    /// What is damaged is copied nowhere. It is told once; the segment stays as it is for a while.
    fn damaged(&mut self, g: &mut Ground, moves: &Moves, file: &str, why: &str) {
        let segments = moves.run().segments.iter().map(|(segment, _)| *segment);
        let named: Vec<u32> = segments.clone().filter(|segment| disk::records::path(*segment) == file).collect();
        let spared = if named.is_empty() { segments.collect() } else { named };
        let news = spared.iter().filter(|segment| self.told.insert(**segment)).count();
        self.spared.extend(spared.into_iter().map(|segment| (segment, g.now + SPARED)));
        if news > 0 {
            g.note(Level::Error, format!("the space of dead records does not come back: {why}"));
        }
        self.give_up(g, moves);
    }

    fn give_up(&mut self, g: &mut Ground, moves: &Moves) {
        g.store.leave_run();
        if g.swapping() {
            // Another state's files are being put in place: what was begun is no part of them, and
            // a start removes it.
            g.store.file_is_there(moves.run().output);
            self.stage = Stage::default();
            return;
        }
        start(g, ReclaimJob::GiveUp { output: moves.run().output });
        self.stage = Stage::GivingUp;
    }
}

fn start(g: &mut Ground, job: ReclaimJob) {
    let epoch = g.epoch();
    g.start(Task::Reclaim { epoch }, BackgroundJob::Reclaim(job));
}
