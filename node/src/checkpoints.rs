//! Checkpoints: records to files, the image of the index in slices, the manifest, the log cut.
//!
//! One checkpoint at a time, beside traffic: begin → rows, slice by slice, a bounded number on
//! their way → finish. Demands (a wanted snapshot, physical compaction, a clean stop) coalesce.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use bytes::Bytes;
use consensus::{ConfState, Entry, Snapshot};
use std::collections::BTreeSet;
use store::{ImageCursor, ImageHead};

/// Row jobs on their way to the background thread at one time.
const ROWS_IN_FLIGHT: usize = 2;
/// Bytes of rows in one job, about.
const ROWS_BYTES: usize = 256 << 10;

/// One that failed is begun again after this, so often: another member has had time to send what is
/// damaged, and the disk to read again. Ticks.
const AGAIN: u64 = 2_000 / TICK_MS;
const TRIES: u32 = 10;
/// An entry for the next checkpoint is asked for so seldom. Ticks.
const NUDGE_EVERY: u64 = 5_000 / TICK_MS;

pub(crate) struct Checkpoints {
    running: Option<Running>,
    /// A checkpoint at or above this applied index was asked for.
    wanted: BTreeSet<u64>,
    /// Index of the newest durable one.
    newest: u64,
    log_bytes: u64,
    /// Bytes that went to the log since start.
    logged: u64,
    /// The log was cut since start: entries up to this one may be gone from the disk.
    cut: u64,
    rows_bytes: u64,
    /// Physical compactions: (asker, header revision, compacted revision).
    physical: Vec<(Waiter, i64, i64)>,
    /// Compacted revision that the newest durable checkpoint holds.
    durable_compacted: i64,
    /// The newest durable one, as it is offered to followers.
    offered: Option<Snapshot>,
    /// Id of the segment that was open at the newest durable one.
    open_segment: u32,
    /// Bytes of segments that the next checkpoints name no more, not told yet.
    dropped: u64,
    /// Bytes of the files of the state, about: measured with each checkpoint, and what was written
    /// since.
    disk_bytes: u64,
    /// So often in a row one failed, and none begins before this tick.
    failed: u32,
    rests_until: u64,
    /// Index of one of which a file is damaged, and the tick from which on an entry may be asked
    /// for.
    replaced: Option<u64>,
    nudged: u64,
    /// Steps of one that was given up, on their way still.
    leftover: usize,
    /// The tick in which another member last wanted one that is not there yet.
    asked_at: Option<u64>,
}

struct Running {
    head: ImageHead,
    index: u64,
    term: u64,
    /// None: no row is missing, and nothing is held for it any more.
    cursor: Option<ImageCursor>,
    rows_done: bool,
    in_flight: usize,
    finishing: bool,
    bytes: u64,
    log_bytes_before: u64,
}

impl Checkpoints {
    /// `newest`: index of the newest durable checkpoint, with so many bytes of rows; so many bytes
    /// of the log are beyond it. `open_segment`: which was open then.
    pub(crate) fn new(newest: u64, rows_bytes: u64, log_bytes: u64, open_segment: u32) -> Checkpoints {
        Checkpoints {
            running: None,
            wanted: BTreeSet::new(),
            newest,
            log_bytes,
            logged: 0,
            cut: 0,
            rows_bytes,
            physical: Vec::new(),
            durable_compacted: -1,
            offered: None,
            open_segment,
            dropped: 0,
            disk_bytes: 0,
            failed: 0,
            rests_until: 0,
            replaced: None,
            nudged: 0,
            leftover: 0,
            asked_at: None,
        }
    }

    pub(crate) fn idle(&self) -> bool {
        match &self.running {
            Some(running) => running.rows_done || running.in_flight >= ROWS_IN_FLIGHT,
            None => true,
        }
    }

    /// One is being written, or is wanted.
    pub(crate) fn busy(&self) -> bool {
        self.running.is_some() || !self.wanted.is_empty()
    }

    /// One is being written.
    pub(crate) fn running(&self) -> bool {
        self.running.is_some()
    }

    /// Index of the newest durable one.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Id of the segment that was open at the newest durable one.
    pub(crate) fn open_segment(&self) -> u32 {
        self.open_segment
    }

    /// Bytes of the rows of the newest one, about.
    pub(crate) fn rows_bytes(&self) -> u64 {
        self.rows_bytes
    }

    /// Bytes of segments that were dropped since the last question because nothing lives in them.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// So many bytes more are in files of the state.
    pub(crate) fn files_grew(&mut self, bytes: u64) {
        self.disk_bytes += bytes;
    }

    /// Bytes that went to the log since start.
    pub(crate) fn logged(&self) -> u64 {
        self.logged
    }

    /// Bytes of the newest one, about: what a follower pulls.
    pub(crate) fn bytes(&self, g: &Ground) -> u64 {
        let segments: u64 = g.store.segments().map(|segment| u64::from(segment.end)).sum();
        segments + self.rows_bytes
    }

    /// Entries up to this one may be gone from the log on the disk; 0: it was not cut since start.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    /// These went to the log.
    pub(crate) fn log_grew(&mut self, entries: &[Entry]) {
        let bytes = log_bytes(entries);
        self.log_bytes += bytes;
        self.logged += bytes;
    }

    /// The state was replaced: whatever was being written is of the old one.
    pub(crate) fn restart(&mut self, g: &Ground, newest: u64) {
        let physical = std::mem::take(&mut self.physical);
        let open = g.store.segments().last().expect("one is open").id;
        let new = Checkpoints::new(newest, self.rows_bytes, 0, open);
        *self =
            Checkpoints { physical, logged: self.logged, disk_bytes: self.bytes(g), leftover: self.leftover, ..new };
    }

    /// The asker of a physical compaction went away or ran out of time. True: it was one.
    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let before = self.physical.len();
        self.physical.retain(|(waiting, _, _)| *waiting != waiter);
        let found = self.physical.len() != before;
        if found && timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        found
    }

    /// A turn's share. `held`: another state is on its way, or segments are being replaced, so none
    /// begins. `pulled`: indexes of the checkpoints that followers are still pulling, which are
    /// kept.
    pub(crate) fn run(&mut self, g: &mut Ground, held: bool, pulled: &[u64]) {
        self.begin(g, held);
        self.rows(g, pulled);
        self.answer_physical(g);
    }

    /// The old state is about to be replaced: what was written of it stays without a name.
    pub(crate) fn abort(&mut self, g: &mut Ground) {
        if let Some(running) = self.running.take() {
            self.leftover += running.in_flight + usize::from(running.finishing);
            end_image(g, running.cursor);
        }
    }

    /// The state is wrong: no other member gets any of it, no checkpoint is made of it, and the log
    /// is not cut behind one.
    pub(crate) fn withdraw(&mut self, g: &mut Ground) {
        self.abort(g);
        (self.offered, self.asked_at) = (None, None);
        self.wanted.clear();
        g.consensus.withdraw_snapshot();
    }

    /// The disk is full. What is dead must be seen to be dead, or no room ever comes back: nothing
    /// is held for an image that may wait for long. It is taken anew when there is room.
    pub(crate) fn no_room(&mut self, g: &mut Ground) {
        match &mut self.running {
            Some(running) if running.finishing => end_image(g, running.cursor.take()),
            Some(running) => {
                let index = running.index;
                self.abort(g);
                self.want(index);
            }
            None => {}
        }
    }

    /// A step of one that was given up has ended, one way or the other. False: there is none on its
    /// way.
    pub(crate) fn is_leftover(&mut self) -> bool {
        let old = self.leftover > 0;
        self.leftover -= usize::from(old);
        old
    }

    /// False: several in a row failed. The next start has to write anew what is damaged.
    pub(crate) fn retries(&self) -> bool {
        self.failed < TRIES
    }

    /// A step found damage, or a call failed: it is begun anew a little later.
    pub(crate) fn repeat(&mut self, g: &mut Ground, fault: &disk::Fault) {
        let Some(running) = &mut self.running else { return };
        let index = running.index;
        // The step that failed is not on its way any more.
        match running.finishing {
            true => running.finishing = false,
            false => running.in_flight -= 1,
        }
        self.abort(g);
        self.want(index);
        if self.failed == 0 {
            g.note(Level::Warn, format!("a checkpoint waits until this is right again: {fault}"));
        }
        self.failed += 1;
        self.rests_until = g.now + AGAIN;
    }

    /// The newest manifest names another checksum than before: followers get it as it is now.
    pub(crate) fn named_anew(&mut self, g: &mut Ground, manifest: Bytes) {
        if let Some(offered) = &mut self.offered
            && disk::checkpoint::Manifest::decode("the newest manifest", &manifest)
                .is_ok_and(|named| named.index == offered.index)
        {
            offered.manifest = manifest;
            g.consensus.offer_snapshot(offered.clone());
        }
    }

    /// A file of the newest checkpoint is damaged, or log that it stands for: a newer one takes its
    /// place.
    pub(crate) fn replace_newest(&mut self) {
        self.want(self.newest + 1);
        self.replaced = Some(self.newest);
    }

    /// The newest checkpoint is to be replaced, and nothing was written since: an entry without
    /// effect is wanted, for the checkpoint behind it.
    pub(crate) fn wants_entry(&mut self, g: &Ground) -> bool {
        if self.replaced != Some(self.newest) || g.store.applied().index > self.newest {
            return false;
        }
        let due = g.leader != 0 && g.now >= self.nudged;
        if due {
            self.nudged = g.now + NUDGE_EVERY;
        }
        due
    }

    /// Bytes of the files of the state, about.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// There is none at index 0: a member without a state has nothing to keep.
    pub(crate) fn want(&mut self, index: u64) {
        if index > 0 {
            self.wanted.insert(index);
        }
    }

    /// Consensus wants a snapshot for a follower far behind.
    pub(crate) fn want_snapshot(&mut self, g: &mut Ground, index: u64, held: bool) {
        match &self.offered {
            Some(snapshot) if snapshot.index >= index => g.consensus.offer_snapshot(snapshot.clone()),
            _ => {
                self.asked_at = Some(g.now);
                self.want(index);
                self.begin(g, held);
            }
        }
    }

    /// How long a step has been on its way of a checkpoint that another member waits for. Ticks.
    pub(crate) fn age(&self, g: &Ground) -> u64 {
        // Whoever waits says so with every heartbeat.
        let asked_at = self.asked_at.is_some_and(|asked_at| g.now - asked_at < g.config.election_ticks());
        if asked_at { g.checkpoint_age() } else { 0 }
    }

    /// The manifest of the newest one, for a member that wants one at `least` or above. None: it is
    /// taken first.
    pub(crate) fn offer(&mut self, g: &Ground, least: u64) -> Option<Bytes> {
        if let Some(snapshot) = self.offered.as_ref().filter(|snapshot| snapshot.index >= least) {
            return Some(snapshot.manifest.clone());
        }
        if self.running.is_none() {
            self.want(g.store.applied().index.max(least));
        }
        None
    }

    pub(crate) fn tick(&mut self, g: &Ground) {
        let threshold = g.config.checkpoint_bytes.max(self.rows_bytes.saturating_mul(4));
        if self.log_bytes >= threshold {
            self.want(self.newest + 1);
        }
    }

    fn begin(&mut self, g: &mut Ground, held: bool) {
        let Some(wanted) = self.wanted.first().copied() else { return };
        let store::Position { index, term } = g.store.applied();
        if self.running.is_some() || self.leftover > 0 || held || index < wanted || g.now < self.rests_until {
            return;
        }
        // A demand beyond it stays: what applies nothing now must not hold up the others.
        self.wanted.retain(|wanted| *wanted > index);
        if index == self.newest && self.offered.is_some() {
            return;
        }
        // Segments without a living record are named by no later checkpoint; their files go with
        // the last that does.
        self.dropped += g.drop_dead_segments();
        let (head, cursor) = g.store.image();
        g.write_records();
        self.running = Some(Running {
            cursor: Some(cursor),
            head,
            index,
            term,
            rows_done: false,
            in_flight: 0,
            finishing: false,
            bytes: 0,
            log_bytes_before: self.log_bytes,
        });
        g.start(Task::Checkpoint { index }, BackgroundJob::CheckpointBegin { index });
        self.running.as_mut().expect("just begun").in_flight = 1;
    }

    fn rows(&mut self, g: &mut Ground, pulled: &[u64]) {
        let Some(running) = &mut self.running else { return };
        if running.rows_done || running.in_flight >= ROWS_IN_FLIGHT {
            return;
        }
        let mut rows = Vec::with_capacity(ROWS_BYTES);
        let cursor = running.cursor.as_mut().expect("rows are missing");
        running.rows_done = g.store.image_rows(cursor, g.config.budgets.slice_keys, &mut rows);
        if !rows.is_empty() {
            running.bytes += rows.len() as u64;
            self.disk_bytes += rows.len() as u64;
            running.in_flight += 1;
            let index = running.index;
            let work = BackgroundJob::CheckpointRows { index, rows: Bytes::from(rows) };
            g.start(Task::Checkpoint { index }, work);
        }
        self.finish(g, pulled);
    }

    fn finish(&mut self, g: &mut Ground, pulled: &[u64]) {
        let Some(running) = &mut self.running else { return };
        if !running.rows_done || running.in_flight > 0 || running.finishing {
            return;
        }
        running.finishing = true;
        let index = running.index;
        let work =
            BackgroundJob::CheckpointFinish { index, head: Box::new(running.head.clone()), held: pulled.to_vec() };
        g.start(Task::Checkpoint { index }, work);
    }

    pub(crate) fn step_done(&mut self, g: &mut Ground, index: u64, result: JobResult, pulled: &[u64]) {
        if self.is_leftover() || self.running.as_ref().is_none_or(|running| running.index != index) {
            return; // of a checkpoint that an installed snapshot overtook
        }
        match result {
            JobResult::CheckpointBegun | JobResult::RowsWritten => {
                if let Some(running) = &mut self.running {
                    running.in_flight -= 1;
                }
                self.finish(g, pulled);
            }
            JobResult::CheckpointDone { fresh, manifest, cut, disk_bytes } => {
                self.disk_bytes = disk_bytes;
                if let Some(running) = self.running.as_ref().filter(|_| fresh) {
                    self.open_segment = running.head.segments.last().expect("one is open").id;
                }
                self.done(g, manifest, cut, pulled);
            }
            other => panic!("{other:?} does not answer a checkpoint step"),
        }
    }

    fn done(&mut self, g: &mut Ground, manifest: Bytes, cut: u64, pulled: &[u64]) {
        let running = self.running.take().expect("the running one is done");
        end_image(g, running.cursor);
        self.failed = 0;
        self.newest = running.index;
        self.rows_bytes = running.bytes;
        self.log_bytes -= running.log_bytes_before.min(self.log_bytes);
        self.durable_compacted = running.head.compacted;
        let store::Conf { voters, learners } = running.head.conf;
        let conf = ConfState { voters, learners };
        let snapshot = Snapshot { index: running.index, term: running.term, conf, manifest };
        self.offered = Some(snapshot.clone());
        g.consensus.offer_snapshot(snapshot);
        let below = cut.min(pulled.iter().min().map_or(u64::MAX, |index| index + 1));
        self.cut = self.cut.max(below.saturating_sub(1));
        g.start(Task::CutLog, LogJob::CutLog { below });
        self.answer_physical(g);
    }

    pub(crate) fn wait_for_physical(&mut self, g: &Ground, waiter: Waiter, revision: i64) {
        self.physical.push((waiter, revision, g.store.compacted()));
        self.want(g.store.applied().index);
    }

    /// Nothing of the state is told any more.
    pub(crate) fn end_physical_with(&mut self, g: &mut Ground, refusal: Refusal) {
        for (waiter, ..) in std::mem::take(&mut self.physical) {
            g.refuse(waiter, refusal);
        }
    }

    fn answer_physical(&mut self, g: &mut Ground) {
        if self.physical.is_empty() || g.store.swept() < g.store.compacted() {
            return;
        }
        let durable = self.durable_compacted;
        let waiting = std::mem::take(&mut self.physical);
        let (done, still): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, _, compacted)| *compacted <= durable);
        self.physical = still;
        for (waiter, revision, _) in done {
            g.answer(waiter, Answer::Applied { revision, result: Ok(store::Reply::Compact) });
        }
        if !self.physical.is_empty() && self.running.is_none() {
            self.want(g.store.applied().index);
        }
    }
}

/// What entries take in the log, about. Bytes.
pub(crate) fn log_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.data.len() as u64 + 64).sum()
}

fn end_image(g: &mut Ground, cursor: Option<ImageCursor>) {
    if let Some(cursor) = cursor {
        g.store.end_image(cursor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_beyond_what_is_applied_holds_up_no_other() {
        let mut g = Ground::alone(5);
        let mut checkpoints = Checkpoints::new(3, 0, 0, 1);
        checkpoints.want(9);
        checkpoints.run(&mut g, false, &[]);
        assert!(checkpoints.running.is_none() && checkpoints.busy(), "entry 9 is not applied");
        checkpoints.want(4);
        checkpoints.run(&mut g, false, &[]);
        assert_eq!(checkpoints.running.as_ref().map(|running| running.index), Some(5));
        assert_eq!(checkpoints.wanted, BTreeSet::from([9]), "that one stands still");
    }
}
