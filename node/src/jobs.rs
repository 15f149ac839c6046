//! The disk work under way, and what each piece of it was begun for.

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
    MarkCorrupt,
    KeepDoubt,
    Prove,
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
    SendChunk {
        to: Caller,
    },
    /// Of the transfer with this number.
    Install {
        run: u64,
    },
    DropStaged,
}

/// Numbers jobs, ascending, and keeps what they were begun for until they are done.
#[derive(Default)]
pub(crate) struct Jobs {
    last: JobId,
    running: BTreeMap<JobId, Task>,
}

impl Jobs {
    pub(crate) fn start(&mut self, task: Task, work: impl Into<Job>, out: &mut Vec<Output>) -> JobId {
        self.last += 1;
        self.running.insert(self.last, task);
        out.push(Output::Job { job: self.last, work: work.into() });
        self.last
    }

    /// None: it was never started, or it was done before.
    pub(crate) fn done(&mut self, job: JobId) -> Option<Task> {
        self.running.remove(&job)
    }

    pub(crate) fn task(&self, job: JobId) -> Option<&Task> {
        self.running.get(&job)
    }
}
