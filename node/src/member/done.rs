//! What becomes of a job that is done, or that failed.

use super::Node;
use crate::frame::Frame;
use crate::io::*;
use crate::jobs::Task;
use crate::transfer::{Installed, Step, received, send_nothing};
use disk::scrub::Finding;

impl Node {
    pub(super) fn done(&mut self, job: JobId, result: JobResult) {
        let g = &mut self.ground;
        if g.task(job).is_none() {
            panic!("job {job} was never started or is done twice");
        }
        self.health.unstalled(job);
        match result {
            JobResult::Failed { fault } => {
                if let Some(fault) = g.job_fails(job, fault) {
                    self.job_failed(job, fault);
                }
            }
            result => self.job_done(job, result),
        }
    }

    /// Reads that the disk refused are tried again.
    pub(super) fn read_again(&mut self) {
        for (job, fault) in self.ground.read_again() {
            self.job_failed(job, fault);
        }
    }

    fn job_done(&mut self, job: JobId, result: JobResult) {
        let g = &mut self.ground;
        let task = g.job_done(job).expect("it runs");
        match (task, result) {
            (Task::Save { number }, JobResult::Saved { short }) => {
                if short {
                    self.health.used_reserve(g);
                }
                if self.saves.saved(g, number) {
                    self.health.all_saved();
                }
                self.doubts.saved(g, number);
            }
            (Task::MarkCorrupt, JobResult::CorruptMarked) => self.health.corrupt_marked(),
            (Task::KeepDoubt, JobResult::DoubtKept)
            | (Task::Remember, JobResult::Remembered)
            | (Task::LeaveFile, JobResult::FileLeft)
            | (Task::Prove, JobResult::Proven)
            | (Task::CutLog, JobResult::LogCut)
            | (Task::DropStaged, JobResult::InstallDropped)
            | (Task::ReleaseSpares, JobResult::SparesReleased) => {}
            (Task::KeepReserve, JobResult::Reserved { stands }) => self.health.reserved(g, stands),
            (Task::RestartLog, JobResult::LogRestarted) => self.installed(),
            (Task::ReadLog { .. }, JobResult::Log { ticket, entries }) => g.consensus.fetched(ticket, entries),
            (Task::Write { epoch, bytes }, JobResult::Written { segment, upto, sealed, damage }) => {
                self.checkpoints.files_grew(bytes);
                g.written(epoch, bytes, segment, upto, sealed);
                if let Some(fault) = damage {
                    self.unreadable(&fault);
                }
            }
            (Task::ApplyRead, JobResult::Values(records)) => self.applier.fetched(job, records),
            (Task::History, JobResult::History { records, next }) => {
                self.watches.history_read(g, records, next, self.health.willing());
            }
            (Task::Backup { backup }, JobResult::Backup { records, place, end }) => {
                self.backups.read(g, backup, records, place, end);
            }
            (Task::Checkpoint { index }, result) => {
                let before = self.checkpoints.newest();
                self.checkpoints.step_done(g, index, result, &self.transfer.pulled());
                if self.checkpoints.newest() != before {
                    self.reclaim.checkpoint_done();
                }
            }
            (Task::Reclaim { epoch }, JobResult::Reclaim(result)) => {
                let written = self.reclaim.done(g, epoch, result);
                self.checkpoints.files_grew(written);
            }
            (Task::HashKv { epoch }, JobResult::HashKv { scan, done }) => self.hashes.scanned(g, epoch, *scan, done),
            (Task::HashKv { epoch }, JobResult::HashKvUnread { scan, fault }) => {
                self.hashes.unread(g, epoch, *scan, &fault);
            }
            (Task::Scrub { epoch }, JobResult::Scrubbed { scan, step }) => {
                let found = self.scrubs.done(g, epoch, scan, step);
                self.found(found);
            }
            (Task::Look { epoch }, JobResult::Scrubbed { scan, step }) => self.mends.looked(g, epoch, scan, step),
            (Task::Mend { epoch }, JobResult::RecordsMended) => self.mends.mended(g, epoch, None),
            (Task::MendFrom { epoch, peer }, JobResult::RecordsMended) => self.mends.mended(g, epoch, Some(peer)),
            (Task::GiveRecords { to, epoch }, JobResult::Records { records, end }) => {
                let right = !self.health.willing().corrupt;
                self.mends.give(g, to, epoch, right.then_some((records, end)));
            }
            (Task::Mended { epoch }, JobResult::SegmentMended { manifest }) => {
                if let Some(manifest) = manifest.filter(|_| epoch == g.epoch()) {
                    self.checkpoints.named_anew(g, manifest);
                }
            }
            (Task::SendChunk { to }, JobResult::Chunk { .. }) if self.health.willing().corrupt => send_nothing(g, to),
            (Task::SendChunk { to }, JobResult::Chunk { bytes, end }) => {
                g.send(to.member, Frame::Chunk { boot: to.boot, token: to.token, ok: true, end, bytes });
            }
            (Task::Install { run }, result) => self.install_step_done(run, result),
            (task, result) => panic!("{result:?} does not answer {task:?}"),
        }
    }

    /// The slow look found damage. Of a segment it comes again from another member; a newer
    /// checkpoint takes the place of what is damaged of the newest one, and of log.
    fn found(&mut self, found: Vec<Finding>) {
        for finding in found {
            let g = &mut self.ground;
            match &finding {
                Finding::Stretch(_) | Finding::Seal { .. } | Finding::Beyond { .. } | Finding::Checksum { .. } => {
                    self.mends.found(g, &finding)
                }
                Finding::Checkpoint(fault) | Finding::Log(fault) => {
                    self.checkpoints.replace_newest();
                    if self.scrubs.is_news(fault) {
                        if matches!(finding, Finding::Log(_)) {
                            let path = fault.file().to_string();
                            g.start(Task::LeaveFile, LogJob::LeaveFile { path });
                        }
                        g.note(Level::Error, format!("{fault}; the next checkpoint does without it"));
                    }
                }
                Finding::Unreadable(fault) => {
                    if self.scrubs.is_news(fault) {
                        g.note(Level::Error, format!("the disk refuses to read what lies still: {fault}"));
                    }
                    if !self.mends.unreadable(g, fault.file()) {
                        self.checkpoints.replace_newest();
                    }
                }
            }
        }
    }

    /// A read that failed concerns its asker. What was to become durable and did not ends this
    /// member: nobody may be told of it.
    fn job_failed(&mut self, job: JobId, fault: disk::Fault) {
        let g = &mut self.ground;
        let task = g.job_done(job).expect("it runs");
        self.unreadable(&fault);
        let g = &mut self.ground;
        match task {
            Task::GiveRecords { to, epoch } => self.mends.give(g, to, epoch, None),
            Task::Mended { .. } if fault.is_damage() => {}
            // The bad place stays as it was; the next look tries again.
            Task::Mend { epoch } | Task::MendFrom { epoch, .. } if fault.is_refused() => {
                self.mends.refused(g, epoch, &fault);
            }
            Task::Mended { epoch } if fault.is_refused() => self.mends.refused_after(g, epoch, &fault),
            Task::Checkpoint { .. } if self.checkpoints.is_leftover() && (fault.is_damage() || fault.is_refused()) => {}
            // A restart writes again what no checkpoint names yet; a lone member has no other way.
            Task::Checkpoint { .. } if fault.is_damage() && !g.peers().is_empty() && self.checkpoints.retries() => {
                self.checkpoints.repeat(g, &fault);
            }
            // A call failed, and it was no flush.
            Task::Checkpoint { .. } if fault.is_refused() && self.checkpoints.retries() => {
                self.checkpoints.repeat(g, &fault);
            }
            // Its file may be gone with the state that is being replaced.
            Task::ApplyRead if g.swapping() || !self.applier.waits_for(job) => self.applier.unread(job),
            Task::ApplyRead => self.applier.waits(g, job, &fault),
            Task::SendChunk { to } => {
                let text = format!("a checkpoint file could not be read for member {:x}: {fault}", to.member);
                g.note(Level::Warn, text);
                send_nothing(g, to);
                // What was tried several times is damaged.
                if fault.is_refused() {
                    self.found(vec![Finding::Unreadable(fault)]);
                }
            }
            Task::Backup { backup } => self.backups.unread(g, backup, fault),
            Task::HashKv { epoch } => self.hashes.failed(g, epoch, &fault),
            Task::History => self.watches.history_failed(g, &fault),
            Task::Install { run } => self.transfer.failed(g, run, &fault),
            Task::Reclaim { epoch } if self.reclaim.failed(g, epoch, &fault) => self.unreadable(&fault),
            // It stands in memory; a start that does not find it learns it again.
            Task::Remember if fault.is_refused() => {
                g.note(Level::Warn, format!("what this member has to remember could not be written: {fault}"));
            }
            Task::ReadLog { ticket } => {
                // The follower gets a snapshot instead.
                g.note(Level::Error, format!("old log entries could not be read: {fault}"));
                g.consensus.fetched(ticket, Vec::new());
            }
            Task::Save { .. }
            | Task::RestartLog
            | Task::CutLog
            | Task::Prove
            | Task::LeaveFile
            | Task::KeepDoubt
            | Task::KeepReserve
            | Task::ReleaseSpares
            | Task::MarkCorrupt
            | Task::Remember
            | Task::Write { .. }
            | Task::Checkpoint { .. }
            | Task::Reclaim { .. }
            | Task::Scrub { .. }
            | Task::Look { .. }
            | Task::Mend { .. }
            | Task::MendFrom { .. }
            | Task::Mended { .. }
            | Task::DropStaged => g.fatal(fault.to_string()),
        }
    }

    fn install_step_done(&mut self, run: u64, result: JobResult) {
        let g = &mut self.ground;
        match self.transfer.step_done(g, run, result, self.health.differed()) {
            Step::Pulling => {}
            Step::Swapping => {
                self.checkpoints.abort(g);
                self.walks.end_all_with(g, Refusal::Timeout);
                self.answers.end_all_with(g, Refusal::Timeout);
            }
            // The log stays as it is, and is read again behind the new state.
            Step::Swapped if self.transfer.beside_log() => {
                g.restart("the leader's state is in place: the log goes on behind it".to_string());
            }
            Step::Swapped => {}
        }
    }

    /// State and log of a snapshot are in place: every part goes over to them.
    fn installed(&mut self) {
        let g = &mut self.ground;
        let Installed { from, snapshot, store } = self.transfer.log_restarted();
        let index = snapshot.index;
        self.walks.end_all(g);
        self.answers.end_all_with(g, Refusal::Timeout);
        self.backups.end_all(g);
        self.hashes.end_all(g);
        g.replace_state(*store);
        self.applier.restart(index);
        self.checkpoints.restart(g, index);
        self.reclaim.restart();
        g.consensus.installed(&snapshot);
        self.saves.release(g, index);
        self.watches.reset(g);
        self.tokens.forget();
        self.scrubs.restart();
        self.mends.restart();
        self.health.healed(g);
        self.watches.release_held(g);
        self.gate.replaced(g);
        self.membership.replaced(g);
        received(g, from, true);
        g.note(Level::Info, format!("installed the snapshot at {index}"));
        g.send(from, Frame::TransferEnded { index, ok: true });
    }
}
