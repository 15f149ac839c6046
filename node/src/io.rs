//! What goes into a member and what comes out of it. The server's loop and the
//! simulator's loop are two drivers of the same [`crate::Node`].
//!
//! ```text
//! loop {
//!     for input in queue { node.step(input, &mut out); }   // many inputs …
//!     node.flush(&mut out);                                 // … one turn: one save, one read round
//!     for output in out.drain(..) { carry it out }
//! }
//! ```
//!
//! Outputs must be carried out in order. The order that matters: `Send` of appends
//! stands before the `Job::Save` of the same turn.

use crate::frame::Frame;
use bytes::Bytes;
use consensus::{Doubt, Entry, HardState, Role};
use disk::records::Place;
use std::sync::Arc;
use store::record::Record;
use store::{AlarmMember, Handle, Item, Key, KeyRange, Located, Member, Query, Reply, Rev, RevisionEvents};

/// Names one asker of this process; chosen by the driver, never reused in a process.
pub type Waiter = u64;
/// Names one piece of disk work; chosen by the node, ascending.
pub type JobId = u64;
/// One watch stream of one connection; chosen by the driver.
pub type StreamId = u64;

#[derive(Debug)]
pub enum Input {
    /// 10 ms of the driver's monotonic clock went by.
    Tick,
    /// So many ticks went by in which this member could do nothing, and which it will not live
    /// through: leases count them, patience with others does not. Said after the ticks of the same
    /// turn: leases that were due meanwhile are kept a little longer, counted from here.
    Away {
        ticks: u64,
    },
    /// From a peer, over the connection that said hello as `from`.
    Frame {
        from: u64,
        frame: Frame,
    },
    /// The connection to a peer broke: everything queued on it is gone.
    Lost {
        peer: u64,
    },
    Request {
        waiter: Waiter,
        request: Request,
    },
    /// The asker went away, or its deadline passed (`timed_out`: it still wants
    /// the text of the timeout, and gets `Refusal::Timeout…`).
    Cancel {
        waiter: Waiter,
        timed_out: bool,
    },
    Watch {
        stream: StreamId,
        op: WatchOp,
    },
    Done {
        job: JobId,
        result: JobResult,
    },
    /// The disk is full: this job is tried again until there is room. Said once for a job.
    Stalled {
        job: JobId,
        fault: disk::Fault,
    },
    /// A reader of records found damage in this file, or cannot read it.
    Unreadable {
        fault: disk::Fault,
    },
    /// Clean stop: hand leadership over, write a checkpoint, then `Output::Stopped`.
    Stop,
}

#[derive(Debug)]
pub enum Request {
    /// A validated command: `InternalRaftRequest` bytes without header
    /// (see `store::command`'s builders). Answer: `Applied`.
    Propose { body: Bytes, cost: u64 },
    /// Compaction; `physical` answers after the sweep passed and a checkpoint holds it. Answer: `Applied`.
    Compact { revision: i64, physical: bool },
    /// Answer: `Range`, or with `stream` directly `Walk`. `keep`: bytes that the items of a sorted
    /// answer may take (see [`sort_cost`]); more is refused with `SortNeeds`.
    Range { query: Query, linearizable: bool, stream: bool, keep: u64 },
    /// A transaction of ranges alone (all compares, both branches read only). `body` as for Propose.
    /// Answer: `Applied` with `Reply::Txn`.
    ReadTxn { body: Bytes, linearizable: bool },
    /// The next slice of an accepted walk. Answer: `Slice`.
    WalkNext { walk: u64 },
    /// The asker of a walk is done with it or went away. No answer.
    WalkEnd { walk: u64 },
    /// Answer: `KeepAlive` (ttl 0 = unknown or expired).
    KeepAlive { lease: i64 },
    /// Answer: `TimeToLive`.
    TimeToLive { lease: i64, keys: bool },
    /// Answer: `Leases`.
    Leases,
    /// Answer: `Members`.
    Members { linearizable: bool },
    /// Answer: `Status`. Always at once.
    Status,
    /// Answer: `Alarms`. (kind 0 = all)
    Alarms { kind: i32 },
    /// Answer: `HashKv`.
    HashKv { revision: i64 },
    /// The state as it is now, for a file of etcd's form. Answer: `Backup`.
    Backup,
    /// The next records of a backup; `first`: from the beginning (again).
    /// Answer: `BackupRecords` or `BackupFailed`.
    BackupNext { backup: u64, first: bool },
    /// The asker of a backup is done with it or went away. No answer.
    BackupEnd { backup: u64 },
    /// Answer: `Hash` (the logical digest folded to 32 bits).
    Hash,
    /// Answer: `Moved`.
    MoveLeader { target: u64 },
    /// Answer: `Barrier` once a linearisable read would be served (health checks).
    Barrier,
    /// History for behind watches of a stream: every event with main revision >= `from`.
    /// Answer: `History`.
    History { from: i64, prev: bool },
}

/// What a watch stream asks of the core.
#[derive(Debug)]
pub enum WatchOp {
    /// Make `id` live from revision `next` on. Answer: `ToStream::Joined`, `Behind` or `Compacted`.
    /// `next` may lie in the future.
    Join {
        id: i64,
        spec: WatchSpec,
        next: i64,
    },
    Remove {
        id: i64,
    },
    /// Answer: `ToStream::Progress` behind everything already posted to the stream.
    Progress {
        token: u64,
    },
    /// The stream is gone with all its watches.
    Close,
}

#[derive(Clone, Debug)]
pub struct WatchSpec {
    pub range: KeyRange,
    pub no_put: bool,
    pub no_delete: bool,
    pub prev_kv: bool,
}

/// From the core to a watch stream, in order.
#[derive(Clone, Debug)]
pub enum ToStream {
    /// The watch is live. `missed`: the revisions from `next` to now that the ring still has,
    /// unfiltered (the stream filters); `revision`: the store's, all below or at it are in `missed` or before `next`.
    Joined { id: i64, revision: i64, missed: Vec<Arc<RevisionEvents>> },
    /// `next` is older than the ring: fetch `Request::History` first, then join again.
    Behind { id: i64, revision: i64 },
    /// `next` < compacted: ends the watch.
    Compacted { id: i64, compacted: i64 },
    /// Matching events of one revision (`picks`: indexes into `events.events`).
    Events { id: i64, events: Arc<RevisionEvents>, picks: Arc<[u32]> },
    /// Everything up to `revision` was posted to this stream before this message.
    Progress { token: u64, revision: i64 },
    /// Whether a leader is known, for `hasleader` streams. The driver says it on its own clock, not the core.
    Leader { known: bool },
    /// A snapshot was installed: the hub forgot every watch; the stream joins its live ones again.
    /// `posted`: every revision up to it was posted to this stream before this message
    /// (`Hub::reset` tells it; it is *not* the revision of the new state, below which this
    /// stream has seen nothing yet).
    AllBehind { posted: i64 },
}

#[derive(Debug)]
pub enum Output {
    /// Work for the disk; answered by `Input::Done` with the same id.
    Job {
        job: JobId,
        work: Job,
    },
    Send {
        to: u64,
        frame: Frame,
    },
    Answer {
        waiter: Waiter,
        revision: i64,
        term: u64,
        answer: Answer,
    },
    /// To one watch stream.
    Watch {
        stream: StreamId,
        message: ToStream,
    },
    /// Who leads, for logs, metrics and `hasleader`.
    Leader {
        term: u64,
        leader: u64,
        role: Role,
    },
    /// One line for the log of the program.
    Note {
        level: Level,
        text: String,
    },
    /// The clean stop is complete.
    Stopped,
    /// This member must stop at once; nothing may be acknowledged after this.
    Fatal {
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    Warn,
    Error,
}

#[derive(Debug)]
pub enum Answer {
    Applied {
        revision: i64,
        result: Result<Reply, store::Error>,
    },
    /// First answer to a range. Either `found` is complete (`walk` None), or `walk` names the
    /// walk that `WalkNext` continues from its start, and `bytes` is exact.
    Range(RangeStart),
    Slice(Slice),
    KeepAlive {
        ttl: i64,
    },
    TimeToLive {
        ttl: i64,
        granted: i64,
        keys: Vec<Key>,
    },
    Leases {
        ids: Vec<i64>,
    },
    Members {
        members: Vec<(Member, bool /* learner */)>,
    },
    Status(Box<Status>),
    Alarms {
        alarms: Vec<AlarmMember>,
    },
    HashKv {
        hash: u32,
        compacted: i64,
        hash_revision: i64,
    },
    Hash {
        hash: u32,
    },
    /// Everything but the records, which `BackupNext` reads until `BackupEnd`.
    Backup {
        backup: u64,
        export: Box<store::export::Export>,
    },
    /// Ascending: those of the backup and others (`Export::rows` tells). `end`: these are the last.
    BackupRecords {
        records: Vec<Record>,
        end: bool,
    },
    BackupFailed {
        reason: String,
    },
    Moved,
    Barrier,
    History(History),
    Refused(Refusal),
}

/// What a range found, in key order.
#[derive(Clone, Debug)]
pub enum Found {
    /// For answers without values, and for those that are still to be sorted.
    Items(Vec<Item>),
    /// For answers that show whole records as they come ([`Query::shows_records`]).
    Records(Vec<Located>),
}

impl Found {
    /// Nothing yet, of the kind that `query` asks for.
    pub fn none(query: &Query) -> Found {
        if query.shows_records() { Found::Records(Vec::new()) } else { Found::Items(Vec::new()) }
    }

    pub fn len(&self) -> usize {
        match self {
            Found::Items(items) => items.len(),
            Found::Records(records) => records.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the records lie.
    pub fn places(&self) -> Box<dyn Iterator<Item = &Located> + '_> {
        match self {
            Found::Items(items) => Box::new(items.iter().map(|item| &item.at)),
            Found::Records(records) => Box::new(records.iter()),
        }
    }

    /// Both are of one kind: of one query.
    pub fn extend(&mut self, more: Found) {
        match (self, more) {
            (Found::Items(items), Found::Items(more)) => items.extend(more),
            (Found::Records(records), Found::Records(more)) => records.extend(more),
            _ => unreachable!("slices of one walk are of one kind"),
        }
    }
}

#[derive(Debug)]
pub struct RangeStart {
    pub query: Query,
    pub found: Found,
    pub walk: Option<u64>,
    pub count: i64,
    pub more: bool,
    /// Encoded size of all `KeyValue` messages of the answer, without tags and lengths.
    /// Counted for walks alone, like `delimited`.
    pub bytes: u64,
    /// The same with the length in front of each, without tags.
    pub delimited: u64,
    /// Number of items of the answer.
    pub kvs: u64,
}

/// Part of a walk. The last one has `finished` (count, more).
#[derive(Debug)]
pub struct Slice {
    pub found: Found,
    pub finished: Option<(i64, bool)>,
}

/// A piece of history: whole revisions, ascending. The asker continues at `next`.
#[derive(Debug)]
pub struct History {
    pub revisions: Vec<Arc<RevisionEvents>>,
    /// First revision not contained; equal to the asked one when nothing was there (then Join).
    pub next: i64,
    /// The compacted revision when the history was read: below it nothing is promised.
    pub compacted: i64,
}

/// Try elsewhere or later: nothing is known to have been applied (see the timeouts for the exception).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoLeader,
    NotLeader,
    LeaderChanged,
    /// Outcome unknown.
    Timeout,
    /// Outcome unknown.
    TimeoutLeaderFail,
    /// Outcome unknown.
    TimeoutConnectionLost,
    TooManyRequests,
    /// A sorted range would keep so many bytes; more than was granted.
    SortNeeds(u64),
    Stopped,
    /// No leader has set the cluster's version yet, as far as this member knows.
    NotCapable,
    BadLeaderTransferee,
    LeaderTransferTimeout,
    /// The user was wrong, found before the log (quota, compacted reads, …).
    User(store::Error),
}

/// Bytes that one item of a sorted answer takes until it is sent: itself, its place in the
/// answer, and the value when the order depends on it.
pub fn sort_cost(query: &Query, item: &Item) -> u64 {
    const ITEM: u64 = 256;
    let value = if query.target == store::SortTarget::Value { u64::from(item.at.handle.len) } else { 0 };
    ITEM + 2 * item.key.len() as u64 + value + item.at.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
}

/// Bytes held inside the core, one for each of its budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub entry_cache: u64,
    pub uncommitted: u64,
    pub commands: u64,
    pub unapplied: u64,
    pub event_ring: u64,
    pub unwritten: u64,
    /// Commands refused because one of these was full.
    pub refused: u64,
    /// Entries that wait for apply.
    pub unapplied_entries: u64,
    /// Walks under way.
    pub walks: u64,
    /// Reads that wait for a read index or its apply.
    pub reads: u64,
    /// Bytes of forwards on their way to the leader.
    pub forwards: u64,
    /// Bodies of commands forwarded since start, and those of them that were said again. Counts.
    pub forwarded: u64,
    pub forwarded_again: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Status {
    pub cluster: u64,
    pub member: u64,
    pub leader: u64,
    pub term: u64,
    pub is_leader: bool,
    pub is_learner: bool,
    pub committed: u64,
    pub applied: u64,
    pub last: u64,
    pub persisted: u64,
    pub revision: i64,
    pub compacted: i64,
    pub keys: u64,
    pub live_bytes: u64,
    /// Bytes of all segments, checkpoints and log files this member holds.
    pub disk_bytes: u64,
    pub quota: u64,
    pub leases: u64,
    pub watches: u64,
    /// Replicated ones, and NOSPACE of this member while its disk is full.
    pub alarms: Vec<AlarmMember>,
    /// A job waits for space on this member's disk.
    pub disk_full: bool,
    /// This member may have lost what it promised: it does not stand for election until that is settled.
    pub doubt: bool,
    pub digest: u128,
    pub cluster_version: String,
    /// Followers as the leader sees them: (member, match index, recently active).
    pub followers: Vec<(u64, u64, bool)>,
    pub pending: u64,
    pub leader_changes: u64,
    pub proposals_failed: u64,
    pub held: Held,
    pub scrub: ScrubFigures,
    pub mend: MendFigures,
}

/// The slow look at what lies still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubFigures {
    /// Bytes read since start.
    pub read: u64,
    /// Whole passes since start, and the seconds since the last one ended.
    pub passes: u64,
    pub age: Option<u64>,
    /// Places outside of segments at which damage was found since start.
    pub found: u64,
}

/// Damaged records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendFigures {
    /// Damaged stretches of segments since start, and those of them that are whole again.
    pub found: u64,
    pub mended: u64,
    /// Segments that are damaged now.
    pub open: u64,
}

/// Disk work. Log jobs run in order on the disk thread, `ReadRecord` on the reader's, the rest on the
/// background thread in the order of [`crate::queue`]. `crate::work::run` executes any of them against `Files`.
#[derive(Debug)]
pub enum Job {
    /// disk thread: one batch, one flush.
    Save {
        number: u64,
        hard: HardState,
        entries: Vec<Entry>,
    },
    /// disk thread: what may be lost is remembered over a restart, or (None) forgotten.
    KeepDoubt {
        doubt: Option<Doubt>,
    },
    /// disk thread, when nothing was saved for a while and at a clean stop: the end of the log is proven.
    Prove {
        commit: u64,
    },
    /// disk thread: forget entries below.
    CutLog {
        below: u64,
    },
    /// disk thread: the log restarts behind an installed snapshot.
    RestartLog {
        hard: HardState,
        index: u64,
        term: u64,
    },
    /// disk thread: old entries for a follower far behind.
    ReadLog {
        ticket: u64,
        from: u64,
        max_bytes: u64,
    },
    /// disk thread: gives the spare files of the log back, for other files on a full disk.
    ReleaseSpares,
    /// background: append records to a segment file (not flushed).
    WriteRecords {
        segment: u32,
        offset: u32,
        parts: Vec<Bytes>,
        seals: bool,
    },
    /// reader, first of all: a value that apply waits for.
    ReadRecord {
        handle: Handle,
    },
    /// background, in its turn (it reads what the writes before it wrote): history for watches.
    ReadHistory {
        /// The segments that the state has.
        segments: Vec<u32>,
        from: i64,
        until: i64,
        max_bytes: u64,
    },
    /// background: checkpoint in three kinds of steps.
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
    /// background: the next records of a backup.
    ReadBackup {
        segments: Vec<u32>,
        place: Place,
        until: i64,
        max_bytes: u64,
    },
    /// background: the next slice of a HashKV scan.
    HashKv {
        scan: Box<crate::work::HashScan>,
    },
    /// background: the next step of a look at files that lie still.
    Scrub {
        scan: Box<disk::scrub::Scrub>,
        bytes: u64,
    },
    /// background: records for another member, whose copy is damaged.
    ReadRecords {
        segments: Vec<u32>,
        after: Rev,
        before: Rev,
        max_bytes: u64,
    },
    /// background: write whole records over damaged ones.
    Mend {
        segment: u32,
        at: u32,
        parts: Vec<Bytes>,
    },
    /// background: the records of a segment are whole again. A closed one, with records up to `sealed`,
    /// gets its seek table; where fillers stand in for records the checkpoints name another checksum.
    Mended {
        segment: u32,
        sealed: Option<u32>,
        fillers: bool,
    },
    /// background: a piece of a file for a follower that installs our checkpoint.
    ReadChunk {
        file: String,
        offset: u64,
        len: u32,
    },
    /// background: a piece of a file of the leader's checkpoint.
    InstallBegin {
        manifest: Bytes,
    },
    /// `kept`: bytes before `offset` came with an earlier transfer, and a power loss may have spoilt them.
    InstallChunk {
        file: String,
        offset: u64,
        bytes: Bytes,
        kept: bool,
    },
    /// background: the state has overtaken what was received of a checkpoint: remove it.
    InstallDrop {
        applied: u64,
    },
    /// background: remember over a restart that the state is not to be served.
    MarkCorrupt,
    /// background: verify all, rename the manifest, load the state.
    InstallFinish,
}

impl Job {
    /// The same read once more; None if it is no read.
    pub(crate) fn read_again(&self) -> Option<Job> {
        Some(match self {
            Job::ReadLog { ticket, from, max_bytes } => {
                Job::ReadLog { ticket: *ticket, from: *from, max_bytes: *max_bytes }
            }
            Job::ReadRecord { handle } => Job::ReadRecord { handle: *handle },
            Job::ReadHistory { segments, from, until, max_bytes } => {
                let (segments, from, until, max_bytes) = (segments.clone(), *from, *until, *max_bytes);
                Job::ReadHistory { segments, from, until, max_bytes }
            }
            Job::ReadBackup { segments, place, until, max_bytes } => {
                let (segments, place, until, max_bytes) = (segments.clone(), *place, *until, *max_bytes);
                Job::ReadBackup { segments, place, until, max_bytes }
            }
            Job::ReadChunk { file, offset, len } => Job::ReadChunk { file: file.clone(), offset: *offset, len: *len },
            _ => return None,
        })
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
    /// `damage`: records that were written earlier are not whole, so the segment has no seek table.
    Written {
        segment: u32,
        upto: u32,
        sealed: bool,
        damage: Option<disk::Fault>,
    },
    /// An error: a call failed, and the scan stands where it stood.
    Scrubbed {
        scan: Box<disk::scrub::Scrub>,
        step: Result<disk::scrub::Step, disk::Fault>,
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
        scan: Box<crate::work::HashScan>,
        done: bool,
    },
    /// The disk refused to read: the scan may go on where it stands.
    HashKvUnread {
        scan: Box<crate::work::HashScan>,
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
    Installed {
        store: Box<store::Store>,
    },
    /// The disk said no. `damage`: bytes were read but are wrong.
    Failed {
        fault: disk::Fault,
    },
}

impl std::fmt::Debug for JobResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JobResult::Failed { fault } => write!(f, "Failed({fault})"),
            other => write!(f, "{:?}", std::mem::discriminant(other)),
        }
    }
}
