//! Work for the disk. The type of a job is the lane that does it, so that none comes to the wrong
//! thread.

use crate::scan::HashScan;
use bytes::Bytes;
use consensus::{Doubt, Entry, HardState, Position};
use disk::records::Place;
use disk::scrub::{Scrub, Step};
use std::fmt;
use store::record::Record;
use store::{Handle, Rev, SegmentUse};

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
    /// What may be lost is remembered over a restart, with the term and vote of now: a doubt that
    /// says less than the one before may rest on a vote that is not saved yet. None: it is
    /// forgotten.
    KeepDoubt { doubt: Option<Doubt>, hard: HardState },
    /// When nothing was saved for a while and at a clean stop: the end of the log is proven.
    Prove { commit: u64 },
    /// The file at `path` is damaged: the log goes on in another one.
    LeaveFile { path: String },
    /// Forget entries below.
    CutLog { below: u64 },
    /// The log restarts behind an installed snapshot.
    RestartLog { hard: HardState, at: Position },
    /// Old entries for a follower far behind.
    ReadLog { ticket: u64, from: u64, max_bytes: u64 },
    /// Gives the spare files of the log back, for other files on a full disk. `reserve`: and what
    /// is kept back for those.
    ReleaseSpares { reserve: bool },
    /// Makes what is missing of the reserve.
    KeepReserve,
}

/// What is known of the log, beside it.
#[derive(Clone, Debug)]
pub enum Remembered {
    /// There are two histories; what was seen of it.
    Contradicted(String),
    /// Which founding the log is of.
    Founding(u64),
    /// Who votes: ids, ascending.
    Voters(Vec<u64>),
}

/// A small read that somebody waits for.
#[derive(Debug)]
pub enum ReadJob {
    /// The records of values that apply waits for.
    ReadRecords { handles: Vec<Handle> },
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
        /// The segments that the state has.
        segments: Vec<SegmentUse>,
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
        head: Box<store::ImageHead>,
        held: Vec<u64>,
    },
    /// The next records of a backup.
    ReadBackup {
        segments: Vec<SegmentUse>,
        place: Place,
        until: i64,
        max_bytes: u64,
    },
    /// The next slice of a HashKV scan.
    HashKv {
        scan: Box<HashScan>,
    },
    /// A step of rewriting segments.
    Reclaim(ReclaimJob),
    /// The next step of a look at files that lie still.
    Scrub {
        scan: Box<Scrub>,
        bytes: u64,
    },
    /// Records for another member, whose copy is damaged.
    ReadRecords {
        segments: Vec<SegmentUse>,
        after: Rev,
        before: Rev,
        max_bytes: u64,
    },
    /// Write whole records over damaged ones.
    Mend {
        segment: u32,
        at: u32,
        parts: Vec<Bytes>,
    },
    /// The records of a segment are whole again. A closed one, with records up to `sealed`, gets
    /// its seek table; where fillers stand in for records the checkpoints name another checksum.
    Mended {
        segment: u32,
        sealed: Option<u32>,
        fillers: bool,
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
    /// A piece of a file of the leader's checkpoint. `kept`: bytes before `offset` came with an
    /// earlier transfer, and a power loss may have spoilt them.
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
    /// Remember over a restart what is known of the log.
    Remember(Remembered),
    /// Verify all, rename the manifest, load the state.
    /// `differed`: the entry at which the state differed that is replaced, if it is for that.
    InstallFinish {
        differed: Option<u64>,
    },
}

/// Steps of rewriting a run of segments (`disk::reclaim`).
#[derive(Debug)]
pub enum ReclaimJob {
    /// `run`: id of each segment, and the offset behind its last record. At most so many records,
    /// and about so many bytes of them.
    Read { run: Vec<(u32, u32)>, place: disk::reclaim::Place, most: usize, max_bytes: u64 },
    /// Appends records to the new file.
    Write { output: u32, offset: u32, parts: Vec<Bytes> },
    /// The new file ends there, and gets its name.
    Finish { output: u32, end: u32 },
    /// What was written of the new file goes.
    GiveUp { output: u32 },
}

/// Answers of [`ReclaimJob`]s.
#[derive(Debug)]
pub enum ReclaimResult {
    Read(disk::reclaim::Piece),
    Written,
    Finished,
    GivenUp,
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

impl Job {
    /// It changes files of the state, as the state in memory knows them. None of these may come
    /// behind the files of another state that are put in place.
    pub(crate) fn writes_state(&self) -> bool {
        let Job::Background(job) = self else { return false };
        match job {
            BackgroundJob::WriteRecords { .. }
            | BackgroundJob::CheckpointBegin { .. }
            | BackgroundJob::CheckpointRows { .. }
            | BackgroundJob::CheckpointFinish { .. }
            | BackgroundJob::Reclaim(_)
            | BackgroundJob::Mend { .. }
            | BackgroundJob::Mended { .. } => true,
            BackgroundJob::ReadHistory { .. }
            | BackgroundJob::MarkCorrupt
            | BackgroundJob::Remember(_)
            | BackgroundJob::HashKv { .. }
            | BackgroundJob::ReadBackup { .. }
            | BackgroundJob::ReadChunk { .. }
            | BackgroundJob::ReadRecords { .. }
            | BackgroundJob::Scrub { .. }
            | BackgroundJob::InstallBegin { .. }
            | BackgroundJob::InstallChunk { .. }
            | BackgroundJob::InstallDrop { .. }
            | BackgroundJob::InstallFinish { .. } => false,
        }
    }

    /// The same read once more; None if it is no read.
    pub(crate) fn read_again(&self) -> Option<Job> {
        use BackgroundJob::{ReadBackup, ReadChunk, ReadHistory};
        Some(match self {
            Job::Log(LogJob::ReadLog { ticket, from, max_bytes }) => {
                Job::Log(LogJob::ReadLog { ticket: *ticket, from: *from, max_bytes: *max_bytes })
            }
            Job::Read(ReadJob::ReadRecords { handles }) => Job::Read(ReadJob::ReadRecords { handles: handles.clone() }),
            Job::Background(ReadHistory { segments, from, until, max_bytes }) => {
                let (segments, from, until, max_bytes) = (segments.clone(), *from, *until, *max_bytes);
                Job::Background(ReadHistory { segments, from, until, max_bytes })
            }
            Job::Background(ReadBackup { segments, place, until, max_bytes }) => {
                let (segments, place, until, max_bytes) = (segments.clone(), *place, *until, *max_bytes);
                Job::Background(ReadBackup { segments, place, until, max_bytes })
            }
            Job::Background(ReadChunk { file, offset, len }) => {
                Job::Background(ReadChunk { file: file.clone(), offset: *offset, len: *len })
            }
            _ => return None,
        })
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
    /// `short`: what was kept back for a full disk was needed.
    Saved {
        /// It was.
        short: bool,
    },
    /// The doubt is remembered, or forgotten.
    DoubtKept,
    /// The end of the log is proven.
    Proven,
    /// Older entries are gone.
    LogCut,
    LogRestarted,
    SparesReleased,
    /// False: there is no room for the reserve.
    Reserved {
        /// It is there now.
        stands: bool,
    },
    Log {
        ticket: u64,
        entries: Vec<Entry>,
    },
    /// `damage`: records that were written earlier are not whole, so the segment has no seek table.
    Written {
        segment: u32,
        upto: u32,
        sealed: bool,
        damage: Option<disk::Fault>,
    },
    /// An error: a call failed, and the scan stands where it stood.
    Scrubbed {
        scan: Box<Scrub>,
        step: Result<Step, disk::Fault>,
    },
    /// Whole records, ascending. `end`: there are no more.
    Records {
        records: Vec<Bytes>,
        end: bool,
    },
    RecordsMended,
    /// The newest manifest as it stands now, if it may be another one than before.
    SegmentMended {
        manifest: Option<Bytes>,
    },
    /// Of [`ReadJob::ReadRecords`], in its order.
    Values(Vec<Bytes>),
    /// Raw records (whole, ascending) below `next`.
    History {
        records: Vec<Bytes>,
        next: i64,
    },
    CheckpointBegun,
    RowsWritten,
    /// Durable. `manifest` is the encoded manifest (for snapshots), `cut`: the log may be cut
    /// below. `fresh`: it was written now. `disk_bytes`: of all files of the state.
    CheckpointDone {
        fresh: bool,
        manifest: Bytes,
        cut: u64,
        disk_bytes: u64,
    },
    Reclaim(ReclaimResult),
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
    /// The disk refused to read: the scan may go on where it stands.
    HashKvUnread {
        scan: Box<HashScan>,
        fault: disk::Fault,
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
    FileLeft,
    Remembered,
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
