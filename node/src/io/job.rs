//! Work for the disk. The type of a job is the lane that does it, so that none comes to the wrong thread.

use crate::scan::HashScan;
use bytes::Bytes;
use consensus::{Doubt, Entry, HardState, Position};
use disk::records::Place;
use std::fmt;
use store::Handle;
use store::record::Record;

/// Names one piece of disk work; chosen by the node, ascending.
pub type JobId = u64;

/// One piece of disk work, on its way to the lane that does it. `crate::work` carries it out.
pub enum Job {
    /// On the disk thread: one at a time, in order.
    Log(LogJob),
    /// On the reader's thread: one at a time, in order.
    Read(ReadJob),
    /// On the background thread: one at a time, in the order of [`crate::queue`].
    Background(BackgroundJob),
}

/// Work of the log.
#[derive(Debug)]
pub enum LogJob {
    /// One batch, one flush.
    Save { number: u64, hard: HardState, entries: Vec<Entry> },
    /// What may be lost is remembered over a restart, or (None) forgotten.
    KeepDoubt { doubt: Option<Doubt> },
    /// When nothing was saved for a while and at a clean stop: the end of the log is proven.
    Prove { commit: u64 },
    /// Forget entries below.
    CutLog { below: u64 },
    /// The log restarts behind an installed snapshot.
    RestartLog { hard: HardState, at: Position },
    /// Old entries for a follower far behind.
    ReadLog { ticket: u64, from: u64, max_bytes: u64 },
    /// Gives the spare files of the log back, for other files on a full disk.
    ReleaseSpares,
}

/// A small read that somebody waits for.
#[derive(Debug)]
pub enum ReadJob {
    /// A value that apply waits for.
    ReadRecord { handle: Handle },
}

/// Everything else.
#[derive(Debug)]
pub enum BackgroundJob {
    /// Append records to a segment file (not flushed).
    WriteRecords {
        segment: u32,
        offset: u32,
        parts: Vec<Bytes>,
        seals: bool,
    },
    /// History for watches, in its turn: it reads what the writes before it wrote.
    ReadHistory {
        from: i64,
        until: i64,
        max_bytes: u64,
    },
    /// Checkpoint in three kinds of steps.
    CheckpointBegin {
        index: u64,
    },
    CheckpointRows {
        index: u64,
        rows: Bytes,
    },
    /// `held`: checkpoints that a follower is still pulling.
    CheckpointFinish {
        index: u64,
        head: store::ImageHead,
        held: Vec<u64>,
    },
    /// The next records of a backup.
    ReadBackup {
        place: Place,
        until: i64,
        max_bytes: u64,
    },
    /// The next slice of a HashKV scan.
    HashKv {
        scan: Box<HashScan>,
    },
    /// A piece of a file for a follower that installs our checkpoint.
    ReadChunk {
        file: String,
        offset: u64,
        len: u32,
    },
    /// The leader's checkpoint is about to come: its place is made ready.
    InstallBegin {
        manifest: Bytes,
    },
    /// A piece of a file of the leader's checkpoint. `kept`: bytes before `offset` came with an earlier
    /// transfer, and a power loss may have spoilt them.
    InstallChunk {
        file: String,
        offset: u64,
        bytes: Bytes,
        kept: bool,
    },
    /// The state has overtaken what was received of a checkpoint: remove it.
    InstallDrop {
        applied: u64,
    },
    /// Remember over a restart that the state is not to be served.
    MarkCorrupt,
    /// Verify all, rename the manifest, load the state.
    InstallFinish,
}

impl From<LogJob> for Job {
    fn from(job: LogJob) -> Job {
        Job::Log(job)
    }
}

impl From<ReadJob> for Job {
    fn from(job: ReadJob) -> Job {
        Job::Read(job)
    }
}

impl From<BackgroundJob> for Job {
    fn from(job: BackgroundJob) -> Job {
        Job::Background(job)
    }
}

/// Shown as the work itself: its name says the lane.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Log(job) => job.fmt(f),
            Job::Read(job) => job.fmt(f),
            Job::Background(job) => job.fmt(f),
        }
    }
}

pub enum JobResult {
    Saved,
    DoubtKept,
    Proven,
    LogCut,
    LogRestarted,
    SparesReleased,
    Log {
        ticket: u64,
        entries: Vec<Entry>,
    },
    Written {
        segment: u32,
        upto: u32,
        sealed: bool,
    },
    Record(Bytes),
    /// Raw records (whole, ascending) below `next`.
    History {
        records: Vec<Bytes>,
        next: i64,
    },
    CheckpointBegun,
    RowsWritten,
    /// Durable. `manifest` is the encoded manifest (for snapshots), `cut`: the log may be cut below.
    CheckpointDone {
        manifest: Bytes,
        cut: u64,
    },
    /// Goes on at `place`; `end`: there is nothing more.
    Backup {
        records: Vec<Record>,
        place: Place,
        end: bool,
    },
    /// The scan goes on, or is `done`.
    HashKv {
        scan: Box<HashScan>,
        done: bool,
    },
    Chunk {
        bytes: Bytes,
        end: bool,
    },
    /// Names and lengths of the files, and how much of each has come before. Bytes.
    InstallBegun {
        files: Vec<(String, u64)>,
        received: Vec<u64>,
    },
    InstallDropped,
    ChunkWritten,
    /// What an earlier transfer left of this file was damaged: the file is empty again.
    KeptSpoiled {
        fault: disk::Fault,
    },
    CorruptMarked,
    Installed {
        store: Box<store::Store>,
    },
    /// The disk said no. `damage`: bytes were read but are wrong.
    Failed {
        fault: disk::Fault,
    },
}

impl fmt::Debug for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobResult::Failed { fault } => write!(f, "Failed({fault})"),
            other => write!(f, "{:?}", std::mem::discriminant(other)),
        }
    }
}
