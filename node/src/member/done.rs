//! What becomes of a job that is done, or that failed.

use super::Node;
use crate::frame::Frame;
use crate::io::*;
use crate::jobs::Task;
use crate::transfer::{Installed, Step, send_nothing};

impl Node {
    pub(super) fn done(&mut self, job: JobId, result: JobResult) {
        let g = &mut self.ground;
        let Some(task) = g.job_done(job) else {
            panic!("job {job} was never started or is done twice");
        };
        self.health.unstalled(g, job);
        match result {
            JobResult::Failed { fault } => self.job_failed(job, task, fault),
            result => self.job_done(job, task, result),
        }
    }

    fn job_done(&mut self, job: JobId, task: Task, result: JobResult) {
        let g = &mut self.ground;
        match (task, result) {
            (Task::Save { number }, JobResult::Saved) => {
                if self.saves.saved(g, number) {
                    self.health.all_saved();
                }
            }
            (Task::MarkCorrupt, JobResult::CorruptMarked) => self.health.corrupt_marked(),
            (Task::KeepDoubt, JobResult::DoubtKept)
            | (Task::Prove, JobResult::Proven)
            | (Task::CutLog, JobResult::LogCut)
            | (Task::DropStaged, JobResult::InstallDropped)
            | (Task::ReleaseSpares, JobResult::SparesReleased) => {}
            (Task::RestartLog, JobResult::LogRestarted) => self.installed(),
            (Task::ReadLog { .. }, JobResult::Log { ticket, entries }) => g.consensus.fetched(ticket, entries),
            (Task::Write { epoch, bytes }, JobResult::Written { segment, upto, sealed }) => {
                g.written(epoch, bytes, segment, upto, sealed);
            }
            (Task::ApplyRead, JobResult::Record(bytes)) => self.applier.fetched(job, bytes),
            (Task::History, JobResult::History { records, next }) => {
                self.watches.history_read(g, records, next, self.health.willing());
            }
            (Task::Backup { backup }, JobResult::Backup { records, place, end }) => {
                self.backups.read(g, backup, records, place, end);
            }
            (Task::Checkpoint { index }, result) => {
                self.checkpoints.step_done(g, index, result, &self.transfer.pulled());
            }
            (Task::HashKv { epoch }, JobResult::HashKv { scan, done }) => self.hashes.scanned(g, epoch, *scan, done),
            (Task::SendChunk { to }, JobResult::Chunk { bytes, end }) => {
                g.send(to.member, Frame::Chunk { boot: to.boot, token: to.token, ok: true, end, bytes });
            }
            (Task::Install { run }, result) => self.install_step_done(run, result),
            (task, result) => panic!("{result:?} does not answer {task:?}"),
        }
    }

    /// A read that failed concerns its asker; anything else means that this member must stop.
    fn job_failed(&mut self, job: JobId, task: Task, fault: disk::Fault) {
        let g = &mut self.ground;
        match task {
            // Its file may be gone with the state that is being replaced.
            Task::ApplyRead if g.swapping() || !self.applier.waits_for(job) => self.applier.unread(job),
            Task::SendChunk { to } => {
                let text = format!("a checkpoint file could not be read for member {:x}: {fault}", to.member);
                g.note(Level::Warn, text);
                send_nothing(g, to);
            }
            Task::Backup { backup } => self.backups.unread(g, backup, fault),
            Task::HashKv { epoch } => self.hashes.failed(g, epoch, &fault),
            Task::History => self.watches.history_failed(g, &fault.to_string()),
            Task::Install { run } => self.transfer.failed(g, run, &fault),
            Task::ReadLog { ticket } => {
                // The follower gets a snapshot instead.
                g.note(Level::Error, format!("old log entries could not be read: {fault}"));
                g.consensus.fetched(ticket, Vec::new());
            }
            _ => g.fatal(fault.to_string()),
        }
    }

    fn install_step_done(&mut self, run: u64, result: JobResult) {
        let g = &mut self.ground;
        match self.transfer.step_done(g, run, result) {
            Step::Pulling => {}
            Step::Swapping => self.checkpoints.abort(g),
            Step::Swapped => {
                self.saves.hold(g);
                self.transfer.restart_log(g);
            }
        }
    }

    /// State and log of a snapshot are in place: every part goes over to them.
    fn installed(&mut self) {
        let g = &mut self.ground;
        let Installed { from, snapshot, store } = self.transfer.log_restarted();
        let index = snapshot.index;
        self.walks.end_all(g);
        self.backups.end_all(g);
        self.hashes.end_all(g);
        g.replace_state(*store);
        self.applier.restart(index);
        self.checkpoints.restart(index);
        g.consensus.installed(&snapshot);
        self.saves.release(g, index);
        self.watches.reset(g);
        self.health.healed(g);
        self.watches.release_held(g);
        self.gate.replaced(g);
        g.note(Level::Info, format!("installed the snapshot at {index}"));
        g.send(from, Frame::TransferEnded { index, ok: true });
    }
}
