//! Checkpoints: records to files, the image of the index in slices, the manifest, the log cut.
//!
//! One checkpoint at a time, beside traffic: begin → rows, slice by slice, a bounded number on
//! their way → finish. Demands (a wanted snapshot, physical compaction, a clean stop) coalesce.

use crate::io::*;
use crate::member::{Node, Task};
use bytes::Bytes;
use consensus::{ConfState, Snapshot};
use std::collections::BTreeMap;
use store::{ImageCursor, ImageHead};

/// Row jobs on their way to the background thread at one time.
const ROWS_IN_FLIGHT: usize = 2;
/// Bytes of rows in one job, about.
const ROWS_BYTES: usize = 256 << 10;

pub(crate) struct Checkpoints {
    running: Option<Running>,
    /// A checkpoint at or above this applied index was asked for.
    wanted: Option<u64>,
    /// Index of the newest durable one.
    pub(crate) newest: u64,
    log_bytes: u64,
    rows_bytes: u64,
    /// Physical compactions: (asker, header revision, compacted revision).
    physical: Vec<(Waiter, i64, i64)>,
    /// Compacted revision that the newest durable checkpoint holds.
    durable_compacted: i64,
    pub(crate) offered: Option<Snapshot>,
    writing: Writing,
}

/// What of the unwritten records is on its way to the background thread.
#[derive(Default)]
struct Writing {
    bytes: u64,
    /// Segment → offset behind the last record handed over, and whether its seal was.
    upto: BTreeMap<u32, (u32, bool)>,
}

struct Running {
    head: ImageHead,
    index: u64,
    term: u64,
    cursor: ImageCursor,
    rows_done: bool,
    in_flight: usize,
    finishing: bool,
    bytes: u64,
    log_bytes_before: u64,
}

impl Checkpoints {
    pub(crate) fn new(newest: u64, rows_bytes: u64) -> Checkpoints {
        Checkpoints {
            running: None,
            wanted: None,
            newest,
            log_bytes: 0,
            rows_bytes,
            physical: Vec::new(),
            durable_compacted: -1,
            offered: None,
            writing: Writing::default(),
        }
    }

    pub(crate) fn idle(&self) -> bool {
        match &self.running {
            Some(running) => running.rows_done || running.in_flight >= ROWS_IN_FLIGHT,
            None => true,
        }
    }

    pub(crate) fn busy(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn pending(&self) -> bool {
        self.wanted.is_some()
    }

    pub(crate) fn log_grew(&mut self, bytes: u64) {
        self.log_bytes += bytes;
    }

    /// The state was replaced: whatever was being written is of the old one.
    pub(crate) fn restart(&mut self, newest: u64) {
        let physical = std::mem::take(&mut self.physical);
        *self = Checkpoints { physical, ..Checkpoints::new(newest, self.rows_bytes) };
    }

    pub(crate) fn forget_physical(&mut self, waiter: Waiter) -> bool {
        let before = self.physical.len();
        self.physical.retain(|(waiting, _, _)| *waiting != waiter);
        self.physical.len() != before
    }
}

impl Node {
    /// Upkeep of a turn: everything that happens beside traffic.
    pub(crate) fn upkeep(&mut self, out: &mut Vec<Output>) {
        self.store.sweep(1_000);
        self.settle_expiring(out);
        if self.store.unwritten_bytes() - self.checkpoints.writing.bytes >= self.config.budgets.unwritten as u64 {
            self.write_all_records(out);
        }
        self.begin_checkpoint(out);
        self.checkpoint_rows(out);
        self.answer_physical(out);
    }

    /// Hands every record that is in no file yet to the background thread, each once.
    pub(crate) fn write_all_records(&mut self, out: &mut Vec<Output>) {
        if self.transfer.swapping() || self.store.unwritten_bytes() == self.checkpoints.writing.bytes {
            return;
        }
        for extent in self.store.unwritten(usize::MAX) {
            self.write_extent(extent, out);
        }
    }

    fn write_extent(&mut self, mut extent: store::Extent, out: &mut Vec<Output>) {
        let writing = &mut self.checkpoints.writing;
        let (upto, sealing) = writing.upto.get(&extent.segment).copied().unwrap_or((extent.offset, false));
        while extent.offset < upto && !extent.parts.is_empty() {
            extent.offset += extent.parts.remove(0).len() as u32;
        }
        if extent.parts.is_empty() && (sealing || !extent.seals) {
            return;
        }
        let end = extent.end();
        let bytes = u64::from(end - extent.offset);
        writing.upto.insert(extent.segment, (end, extent.seals));
        writing.bytes += bytes;
        let task = Task::Write { epoch: self.epoch, bytes };
        let store::Extent { segment, offset, parts, seals, .. } = extent;
        self.jobs.start(task, Job::WriteRecords { segment, offset, parts, seals }, out);
    }

    pub(crate) fn written(&mut self, epoch: u64, bytes: u64, segment: u32, upto: u32, sealed: bool) {
        if epoch != self.epoch {
            return; // of a state that a snapshot has replaced since
        }
        self.store.written(segment, upto, sealed);
        self.checkpoints.writing.bytes -= bytes;
        if sealed {
            self.checkpoints.writing.upto.remove(&segment);
        }
    }

    /// The old state is about to be replaced: what was written of it stays without a name.
    pub(crate) fn abort_checkpoint(&mut self) {
        if let Some(running) = self.checkpoints.running.take() {
            self.store.end_image(running.cursor);
        }
    }

    /// Bytes of segments, index files and log that this member holds, about.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let segments: u64 = self.store.segments().map(|segment| u64::from(segment.end)).sum();
        segments + self.checkpoints.rows_bytes + self.checkpoints.log_bytes
    }

    pub(crate) fn want_checkpoint(&mut self, index: u64) {
        self.checkpoints.wanted = Some(self.checkpoints.wanted.unwrap_or(0).max(index));
    }

    /// Consensus wants a snapshot for a follower far behind.
    pub(crate) fn want_snapshot(&mut self, index: u64, out: &mut Vec<Output>) {
        match &self.checkpoints.offered {
            Some(snapshot) if snapshot.index >= index => self.consensus.offer_snapshot(snapshot.clone()),
            _ => {
                self.want_checkpoint(index);
                self.begin_checkpoint(out);
            }
        }
    }

    pub(crate) fn tick_checkpoints(&mut self) {
        let threshold = self.config.checkpoint_bytes.max(self.checkpoints.rows_bytes.saturating_mul(4));
        if self.checkpoints.log_bytes >= threshold {
            self.want_checkpoint(self.checkpoints.newest + 1);
        }
    }

    fn begin_checkpoint(&mut self, out: &mut Vec<Output>) {
        let Some(wanted) = self.checkpoints.wanted else { return };
        let store::Position { index, term } = self.store.applied();
        if self.checkpoints.running.is_some() || self.transfer.installing() || index < wanted {
            return;
        }
        self.checkpoints.wanted = None;
        if index == self.checkpoints.newest && self.checkpoints.offered.is_some() {
            return;
        }
        // Segments without a live record are named by no later checkpoint; their files go with the last that does.
        self.store.drop_dead_segments();
        let (head, cursor) = self.store.image();
        self.write_all_records(out);
        self.checkpoints.running = Some(Running {
            cursor,
            head,
            index,
            term,
            rows_done: false,
            in_flight: 0,
            finishing: false,
            bytes: 0,
            log_bytes_before: self.checkpoints.log_bytes,
        });
        self.jobs.start(Task::Checkpoint { index }, Job::CheckpointBegin { index }, out);
        self.checkpoints.running.as_mut().expect("just begun").in_flight = 1;
    }

    fn checkpoint_rows(&mut self, out: &mut Vec<Output>) {
        let Some(running) = &mut self.checkpoints.running else { return };
        if running.rows_done || running.in_flight >= ROWS_IN_FLIGHT {
            return;
        }
        let mut rows = Vec::with_capacity(ROWS_BYTES);
        running.rows_done = self.store.image_rows(&mut running.cursor, self.config.budgets.slice_keys, &mut rows);
        if !rows.is_empty() {
            running.bytes += rows.len() as u64;
            running.in_flight += 1;
            let index = running.index;
            let work = Job::CheckpointRows { index, rows: Bytes::from(rows) };
            self.jobs.start(Task::Checkpoint { index }, work, out);
        }
        self.finish_checkpoint(out);
    }

    fn finish_checkpoint(&mut self, out: &mut Vec<Output>) {
        let Some(running) = &mut self.checkpoints.running else { return };
        if !running.rows_done || running.in_flight > 0 || running.finishing {
            return;
        }
        running.finishing = true;
        let index = running.index;
        let work = Job::CheckpointFinish { index, head: running.head.clone(), held: self.transfer.held() };
        self.jobs.start(Task::Checkpoint { index }, work, out);
    }

    pub(crate) fn checkpoint_step_done(&mut self, index: u64, result: JobResult, out: &mut Vec<Output>) {
        if self.checkpoints.running.as_ref().is_none_or(|running| running.index != index) {
            return; // of a checkpoint that an installed snapshot overtook
        }
        match result {
            JobResult::CheckpointBegun | JobResult::RowsWritten => {
                if let Some(running) = &mut self.checkpoints.running {
                    running.in_flight -= 1;
                }
                self.finish_checkpoint(out);
            }
            JobResult::CheckpointDone { manifest, cut } => self.checkpoint_done(manifest, cut, out),
            other => panic!("{other:?} does not answer a checkpoint step"),
        }
    }

    fn checkpoint_done(&mut self, manifest: Bytes, cut: u64, out: &mut Vec<Output>) {
        let running = self.checkpoints.running.take().expect("the running one is done");
        self.store.end_image(running.cursor);
        self.checkpoints.newest = running.index;
        self.checkpoints.rows_bytes = running.bytes;
        self.checkpoints.log_bytes -= running.log_bytes_before.min(self.checkpoints.log_bytes);
        self.checkpoints.durable_compacted = running.head.compacted;
        let store::Conf { voters, learners } = running.head.conf;
        let conf = ConfState { voters, learners };
        let snapshot = Snapshot { index: running.index, term: running.term, conf, manifest };
        self.checkpoints.offered = Some(snapshot.clone());
        self.consensus.offer_snapshot(snapshot);
        let below = cut.min(self.transfer.held().into_iter().min().map_or(u64::MAX, |index| index + 1));
        self.jobs.start(Task::CutLog, Job::CutLog { below }, out);
        self.answer_physical(out);
    }

    pub(crate) fn wait_for_physical(&mut self, waiter: Waiter, revision: i64) {
        self.checkpoints.physical.push((waiter, revision, self.store.compacted()));
        self.want_checkpoint(self.store.applied().index);
    }

    fn answer_physical(&mut self, out: &mut Vec<Output>) {
        if self.checkpoints.physical.is_empty() || self.store.swept() < self.store.compacted() {
            return;
        }
        let durable = self.checkpoints.durable_compacted;
        let waiting = std::mem::take(&mut self.checkpoints.physical);
        let (done, still): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, _, compacted)| *compacted <= durable);
        self.checkpoints.physical = still;
        for (waiter, revision, _) in done {
            self.answer(waiter, Answer::Applied { revision, result: Ok(store::Reply::Compact) }, out);
        }
        if !self.checkpoints.physical.is_empty()
            && self.checkpoints.running.is_none()
            && self.checkpoints.wanted.is_none()
        {
            self.want_checkpoint(self.store.applied().index);
        }
    }
}
