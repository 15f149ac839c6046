//! The order of a lane's jobs: what somebody waits for goes ahead of what takes long.
//!
//! The background thread has two kinds of work. Records that are written, and the history that
//! watches read back from them, are short and go *ahead*, in their order. Checkpoints, hashes,
//! rewritten segments and the files of snapshots are *long*: they come in bounded steps, in their
//! order, and step aside between two of them. A long job never passes a write that was submitted
//! before it (it may read what was written), and after `PATIENCE` jobs went ahead of it, it has its
//! turn. The other lanes have one kind of work, so it is done in its order.

use crate::io::{BackgroundJob, Job, JobId, LogJob, ReadJob};
use std::collections::VecDeque;

/// Later jobs that may go ahead of a long one before its next step.
const PATIENCE: u32 = 16;

/// What a queue asks of the jobs in it.
pub trait Queued {
    /// It is a step of something long: others may go ahead of it.
    fn is_long(&self) -> bool;
}

impl Queued for LogJob {
    fn is_long(&self) -> bool {
        false
    }
}

impl Queued for ReadJob {
    fn is_long(&self) -> bool {
        false
    }
}

impl Queued for BackgroundJob {
    fn is_long(&self) -> bool {
        match self {
            BackgroundJob::WriteRecords { .. }
            | BackgroundJob::ReadHistory { .. }
            | BackgroundJob::MarkCorrupt
            | BackgroundJob::Remember(_) => false,
            BackgroundJob::CheckpointBegin { .. }
            | BackgroundJob::CheckpointRows { .. }
            | BackgroundJob::CheckpointFinish { .. }
            | BackgroundJob::HashKv { .. }
            | BackgroundJob::ReadBackup { .. }
            | BackgroundJob::Reclaim(_)
            | BackgroundJob::ReadChunk { .. }
            | BackgroundJob::InstallBegin { .. }
            | BackgroundJob::InstallChunk { .. }
            | BackgroundJob::InstallDrop { .. }
            | BackgroundJob::Scrub { .. }
            | BackgroundJob::ReadRecords { .. }
            | BackgroundJob::Mend { .. }
            | BackgroundJob::Mended { .. }
            | BackgroundJob::InstallFinish { .. } => true,
        }
    }
}

impl Queued for Job {
    fn is_long(&self) -> bool {
        match self {
            Job::Log(job) => job.is_long(),
            Job::Read(job) => job.is_long(),
            Job::Background(job) => job.is_long(),
        }
    }
}

/// Jobs of one lane that wait for it. Both drivers, the server's and the simulator's, use it.
#[derive(Debug)]
pub struct JobQueue<J = Job> {
    ahead: VecDeque<(JobId, J)>,
    long: VecDeque<(JobId, J)>,
    /// Jobs that went ahead of the first long one although they came later.
    passed: u32,
}

impl<J> Default for JobQueue<J> {
    fn default() -> JobQueue<J> {
        JobQueue { ahead: VecDeque::new(), long: VecDeque::new(), passed: 0 }
    }
}

impl<J: Queued> JobQueue<J> {
    pub fn push(&mut self, job: JobId, work: J) {
        if work.is_long() { self.long.push_back((job, work)) } else { self.ahead.push_back((job, work)) }
    }

    /// The job to do next.
    pub fn pop(&mut self) -> Option<(JobId, J)> {
        let Some((long, _)) = self.long.front() else { return self.ahead.pop_front() };
        match self.ahead.front() {
            Some((next, _)) if next < long => self.ahead.pop_front(),
            Some(_) if self.passed < PATIENCE => {
                self.passed += 1;
                self.ahead.pop_front()
            }
            _ => {
                self.passed = 0;
                self.long.pop_front()
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.long.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write() -> BackgroundJob {
        BackgroundJob::WriteRecords { segment: 1, offset: 0, parts: Vec::new(), seals: false }
    }

    fn history() -> BackgroundJob {
        BackgroundJob::ReadHistory { segments: Vec::new(), from: 1, until: 2, max_bytes: 1 }
    }

    fn long() -> BackgroundJob {
        BackgroundJob::CheckpointBegin { index: 1 }
    }

    fn order(queue: &mut JobQueue<BackgroundJob>) -> Vec<JobId> {
        std::iter::from_fn(|| queue.pop()).map(|(job, _)| job).collect()
    }

    #[test]
    fn history_goes_ahead_of_long_work_but_not_of_the_writes_before_it() {
        let mut queue = JobQueue::default();
        for (job, work) in [(1, long()), (2, write()), (3, long()), (4, history())] {
            queue.push(job, work);
        }
        assert_eq!(order(&mut queue), [2, 4, 1, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn long_work_has_its_turn_but_passes_no_earlier_write() {
        let mut queue = JobQueue::default();
        queue.push(1, long());
        (2..=20).for_each(|job| queue.push(job, history()));
        assert_eq!(order(&mut queue)[..18], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 1, 18]);

        queue.passed = PATIENCE;
        (1..=3).for_each(|job| queue.push(job, write()));
        queue.push(4, long());
        queue.push(5, history());
        assert_eq!(order(&mut queue), [1, 2, 3, 4, 5]);
    }
}
