//! The disk work under way, and what each piece of it was begun for.

use crate::config::TICK_MS;
use crate::frame::Caller;
use crate::io::{Job, JobId, Output};
use std::collections::BTreeMap;

/// What is to be done when a job is done. `member` gives the result to the part that it concerns.
#[derive(Debug)]
pub(crate) enum Task {
    Save {
        number: u64,
    },
    CutLog,
    ReleaseSpares,
    KeepReserve,
    MarkCorrupt,
    Remember,
    KeepDoubt,
    Prove,
    LeaveFile,
    RestartLog,
    ReadLog {
        ticket: u64,
    },
    Write {
        epoch: u64,
        bytes: u64,
    },
    ApplyRead,
    History,
    Checkpoint {
        index: u64,
    },
    Backup {
        backup: u64,
    },
    HashKv {
        epoch: u64,
    },
    Reclaim {
        epoch: u64,
    },
    SendChunk {
        to: Caller,
    },
    /// A step of the slow look at all files.
    Scrub {
        epoch: u64,
    },
    /// A step of the look at one segment.
    Look {
        epoch: u64,
    },
    /// A header page is written; records are, from this member.
    Mend {
        epoch: u64,
    },
    MendFrom {
        epoch: u64,
        peer: u64,
    },
    Mended {
        epoch: u64,
    },
    GiveRecords {
        to: Caller,
        epoch: u64,
    },
    /// Of the transfer with this number.
    Install {
        run: u64,
    },
    DropStaged,
}

/// A read that the disk refused is tried again after this. Ticks.
const AGAIN: u64 = 1_000 / TICK_MS;
/// So often in all; then whoever asked for it hears that it failed.
const TRIES: u32 = 5;

/// Numbers jobs, ascending, and keeps what they were begun for until they are done. A read that the
/// disk refused is not done: a moment later the disk may read it.
#[derive(Default)]
pub(crate) struct Jobs {
    last: JobId,
    running: BTreeMap<JobId, Running>,
    /// Reads that the disk refused.
    refused: Vec<Refused>,
}

struct Running {
    task: Task,
    /// What is to be read, if it is a read.
    read: Option<Job>,
    /// How often it was begun.
    tries: u32,
    /// The tick at which it was begun first.
    since: u64,
}

struct Refused {
    job: JobId,
    fault: disk::Fault,
    /// The tick at which it is tried again.
    due: u64,
}

impl Jobs {
    pub(crate) fn start(&mut self, task: Task, work: impl Into<Job>, now: u64, out: &mut Vec<Output>) -> JobId {
        self.last += 1;
        let work = work.into();
        self.running.insert(self.last, Running { task, read: work.read_again(), tries: 1, since: now });
        out.push(Output::Job { job: self.last, work });
        self.last
    }

    /// None: it was never started, or it was done before.
    pub(crate) fn done(&mut self, job: JobId) -> Option<Task> {
        self.running.remove(&job).map(|running| running.task)
    }

    pub(crate) fn task(&self, job: JobId) -> Option<&Task> {
        self.running.get(&job).map(|running| &running.task)
    }

    /// How long the oldest piece for a follower has been read. Ticks.
    pub(crate) fn piece_age(&self, now: u64) -> u64 {
        let piece = |running: &&Running| matches!(running.task, Task::SendChunk { .. });
        self.running.values().find(piece).map_or(0, |running| now - running.since)
    }

    /// A piece is being read for this request.
    pub(crate) fn reads_piece(&self, to: Caller) -> bool {
        self.running.values().any(|running| matches!(running.task, Task::SendChunk { to: asked } if asked == to))
    }

    /// How long the oldest step of a checkpoint has been on its way. Ticks.
    pub(crate) fn checkpoint_age(&self, now: u64) -> u64 {
        let step = |running: &&Running| matches!(running.task, Task::Checkpoint { .. });
        self.running.values().find(step).map_or(0, |running| now - running.since)
    }

    /// True while nothing but the log works.
    pub(crate) fn background_rests(&self) -> bool {
        let of_log = |running: &Running| {
            matches!(
                running.task,
                Task::Save { .. }
                    | Task::CutLog
                    | Task::ReleaseSpares
                    | Task::KeepReserve
                    | Task::KeepDoubt
                    | Task::Prove
                    | Task::LeaveFile
                    | Task::RestartLog
                    | Task::ReadLog { .. }
            )
        };
        self.running.values().all(of_log)
    }

    /// A job failed. None: it is a read that the disk refused, and it will be tried again.
    pub(crate) fn fails(&mut self, job: JobId, fault: disk::Fault, now: u64) -> Option<disk::Fault> {
        let again = self.running.get(&job).is_some_and(|running| running.read.is_some() && running.tries < TRIES);
        if !again || !fault.is_refused() {
            return Some(fault);
        }
        self.refused.push(Refused { job, fault, due: now + AGAIN });
        None
    }

    /// Begins the reads again whose time has come.
    pub(crate) fn begin_again(&mut self, now: u64, out: &mut Vec<Output>) {
        for refused in self.refused.extract_if(.., |refused| refused.due <= now) {
            let running = self.running.get_mut(&refused.job).expect("it is not done");
            running.tries += 1;
            let work = running.read.as_ref().and_then(Job::read_again).expect("it is a read");
            out.push(Output::Job { job: refused.job, work });
        }
    }

    /// Gives up what was to be tried again.
    pub(crate) fn give_up(&mut self) -> Vec<(JobId, disk::Fault)> {
        self.refused.drain(..).map(|refused| (refused.job, refused.fault)).collect()
    }
}
