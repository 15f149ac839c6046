//! What a member says: work for the disk, frames, answers, messages to watch streams.

use super::{Job, JobId, StreamId, Waiter};
use crate::frame::Frame;
use consensus::Role;
use std::sync::Arc;
use store::record::Record;
use store::{AlarmMember, Item, Key, Located, Member, Query, Reply, RevisionEvents};

/// From the core to a watch stream, in order.
#[derive(Clone, Debug)]
pub enum ToStream {
    /// The watch is live. `missed`: the revisions from `next` to now that the ring still has,
    /// unfiltered (the stream filters); `revision`: the store's, all below or at it are in `missed` or before `next`.
    Joined { id: i64, revision: i64, missed: Vec<Arc<RevisionEvents>> },
    /// `next` is older than the ring: fetch `Request::History` first, then join again. No watch can join
    /// below revision `ring`, now and later; 0 = unknown.
    Behind { id: i64, revision: i64, ring: i64 },
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
    /// This member must stop as after a crash and start again at once: another state is in place. Nothing may
    /// be acknowledged after this.
    Restart {
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
    Auth(AuthAnswer),
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

/// What is known of users and roles.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthAnswer {
    Status {
        enabled: bool,
        revision: u64,
    },
    /// Roles of the user.
    User {
        roles: Vec<String>,
    },
    /// Names.
    Users {
        users: Vec<String>,
    },
    Role {
        permissions: Vec<store::auth::Permission>,
    },
    /// Names.
    Roles {
        roles: Vec<String>,
    },
    /// As bcrypt wrote it; `revision` of users and roles at that moment.
    Password {
        hash: Vec<u8>,
        revision: u64,
    },
}

/// Hashes are not shown.
impl std::fmt::Debug for AuthAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthAnswer")
    }
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

/// What rewriting segments has brought since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Runs of segments that were rewritten.
    pub runs: u64,
    /// Bytes of segments that nothing needs any more.
    pub bytes: u64,
}

/// A follower as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    pub member: u64,
    /// The last index that it acknowledged.
    pub matched: u64,
    /// It answered within the last election timeout.
    pub active: bool,
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
    /// Bytes of the files of the state: segments, index files, tables, manifests. Not the log's.
    pub disk_bytes: u64,
    pub reclaimed: Reclaimed,
    pub quota: u64,
    pub leases: u64,
    pub watches: u64,
    /// Replicated ones, and NOSPACE of this member while its disk is full.
    pub alarms: Vec<AlarmMember>,
    /// A job waits for space on this member's disk.
    pub disk_full: bool,
    /// This member may have lost what it promised: it does not stand for election until that is settled.
    pub doubt: bool,
    /// How often it gave up its state and started over.
    pub rebuilt: disk::startover::Rebuilt,
    pub digest: u128,
    pub cluster_version: String,
    /// Of the leader: the others.
    pub followers: Vec<Followed>,
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
