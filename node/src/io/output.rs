//! What a member says: work for the disk, frames, answers, messages to watch streams.

use super::{Job, JobId, StreamId, Waiter};
use crate::frame::Frame;
use consensus::Role;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::record::Record;
use store::{AlarmMember, Item, Key, Located, Member, Query, Reply, RevisionEvents};

/// From the core to a watch stream, in order.
#[derive(Clone, Debug)]
pub enum ToStream {
    /// The watch is live. `missed`: the revisions from `next` to now that the ring still has,
    /// unfiltered (the stream filters); `revision`: the store's, all below or at it are in `missed`
    /// or before `next`.
    Joined { id: i64, revision: i64, missed: Vec<Arc<RevisionEvents>> },
    /// `next` is older than the ring: fetch `Request::History` first, then join again. No watch can
    /// join below revision `ring`, now and later; 0 = unknown.
    Behind { id: i64, revision: i64, ring: i64 },
    /// `next` < compacted: ends the watch.
    Compacted { id: i64, compacted: i64 },
    /// Matching events of one revision (`picks`: indexes into `events.events`).
    Events { id: i64, events: Arc<RevisionEvents>, picks: Arc<[u32]> },
    /// Everything up to `revision` was posted to this stream before this message.
    Progress { token: u64, revision: i64 },
    /// Whether a leader is known, for `hasleader` streams. The driver says it on its own clock, not
    /// the core.
    Leader { known: bool },
    /// A snapshot was installed: the hub forgot every watch; the stream joins its live ones again.
    /// `posted`: every revision up to it was posted to this stream before this message
    /// (`Hub::reset` tells it; it is *not* the revision of the new state, below which this
    /// stream has seen nothing yet).
    AllBehind { posted: i64 },
}

/// What a member says to its driver. In the order in which it is to be carried out.
#[derive(Debug)]
pub enum Output {
    /// Work for the disk; answered by `Input::Done` with the same id.
    Job {
        /// Names it; never reused in a process.
        job: JobId,
        /// What is to be done.
        work: Job,
    },
    /// To a peer, if there is a connection; else it is lost.
    Send {
        /// The member.
        to: u64,
        /// What is said.
        frame: Frame,
    },
    /// To a request.
    Answer {
        /// Who asked.
        waiter: Waiter,
        /// Of the store when the answer was made, for its header.
        revision: i64,
        /// Raft's, for its header.
        term: u64,
        /// Of the kind that belongs to the request, or a refusal.
        answer: Answer,
    },
    /// To one watch stream.
    Watch {
        /// Which one.
        stream: StreamId,
        /// What it is told.
        message: ToStream,
    },
    /// Who leads, for logs, metrics and `hasleader`.
    Leader {
        /// Raft's.
        term: u64,
        /// 0: none is known.
        leader: u64,
        /// What this member is.
        role: Role,
    },
    /// Who belongs to the cluster: said at start, and whenever it may have changed.
    Members {
        /// Ascending by id.
        members: Vec<(Member, bool /* learner */)>,
        /// Ids that were members once, and never are again.
        removed: BTreeSet<u64>,
    },
    /// This member was removed from the cluster: it must end, and its directory is of no use.
    /// Nothing may be acknowledged after this.
    Removed,
    /// One line for the log of the program.
    Note {
        /// How much it matters.
        level: Level,
        /// For a person.
        text: String,
    },
    /// A snapshot on its way between this member and another, for logs and metrics.
    Snapshot {
        /// The other member.
        peer: u64,
        /// What became of it.
        news: SnapshotNews,
    },
    /// The clean stop is complete.
    Stopped,
    /// This member must stop at once; nothing may be acknowledged after this.
    Fatal {
        /// For a person.
        reason: String,
    },
    /// This member must stop as after a crash and start again at once: another state is in place.
    /// Nothing may be acknowledged after this.
    Restart {
        /// For a person.
        reason: String,
    },
}

/// What became of a snapshot on its way between two members. One that begins ends once, unless the
/// member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotNews {
    /// This member begins to take it.
    ReceiveBegins,
    /// It stands here, or it was given up.
    ReceiveEnds {
        /// It stands here.
        ok: bool,
    },
    /// The other member begins to take it.
    SendBegins,
    /// The other member has it, or it was given up.
    SendEnds {
        /// The other member has it.
        ok: bool,
    },
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Somebody should know.
    Warn,
    /// Somebody must act.
    Error,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// To a command, once its entry is applied here.
    Applied {
        /// Of the store behind the entry.
        revision: i64,
        /// What the entry gave, or why it was refused when it was applied.
        result: Result<Reply, store::Error>,
    },
    /// First answer to a range. Either `found` is complete (`walk` None), or `walk` names the
    /// walk that `WalkNext` continues from its start, and `bytes` is exact.
    Range(RangeStart),
    /// The next part of a walk.
    Slice(Slice),
    /// The lease was renewed.
    KeepAlive {
        /// Seconds; 0: there is no such lease.
        ttl: i64,
    },
    /// What is left of a lease.
    TimeToLive {
        /// Seconds left; -1: there is no such lease.
        ttl: i64,
        /// Seconds granted.
        granted: i64,
        /// Those on it, if they were asked for.
        keys: Vec<Key>,
    },
    /// All leases.
    Leases {
        /// Their ids.
        ids: Vec<i64>,
    },
    /// Who belongs to the cluster.
    Members {
        /// Ascending by id.
        members: Vec<(Member, bool /* learner */)>,
    },
    /// What this member says of itself.
    Status(Box<Status>),
    /// The alarms that are raised.
    Alarms {
        /// Of the kind that was asked for.
        alarms: Vec<AlarmMember>,
    },
    /// What is known of users and roles.
    Auth(AuthAnswer),
    /// The hash over the records, as etcd's.
    HashKv {
        /// CRC32C.
        hash: u32,
        /// The compacted revision.
        compacted: i64,
        /// The revision up to which it counts.
        hash_revision: i64,
    },
    /// The digest of the state.
    Hash {
        /// Folded to 32 bits.
        hash: u32,
    },
    /// Everything but the records, which `BackupNext` reads until `BackupEnd`.
    Backup {
        /// Names it in the requests that follow.
        backup: u64,
        /// The tables, and which records belong to it.
        export: Box<store::export::Export>,
    },
    /// Ascending: those of the backup and others (`Export::rows` tells). `end`: these are the last.
    BackupRecords {
        /// Whole ones.
        records: Vec<Record>,
        /// Nothing follows.
        end: bool,
    },
    /// The backup ends here.
    BackupFailed {
        /// For a person.
        reason: String,
    },
    /// Another member leads now.
    Moved,
    /// What was asked is so.
    Barrier,
    /// Events of the past.
    History(History),
    /// Nothing was done, but for the timeouts: see there.
    Refused(Refusal),
}

/// What is known of users and roles.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthAnswer {
    /// Whether users are asked for.
    Status {
        /// They are.
        enabled: bool,
        /// Of users and roles.
        revision: u64,
    },
    /// Roles of the user.
    User {
        /// Their names.
        roles: Vec<String>,
    },
    /// Names.
    Users {
        /// Ascending.
        users: Vec<String>,
    },
    /// Permissions of the role.
    Role {
        /// On keys and ranges.
        permissions: Vec<store::auth::Permission>,
    },
    /// Names.
    Roles {
        /// Ascending.
        roles: Vec<String>,
    },
    /// As bcrypt wrote it; `revision` of users and roles at that moment.
    Password {
        /// Empty: the user has none.
        hash: Vec<u8>,
        /// It must still be this one when the login is proposed.
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

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Found::Items(items) => items.len(),
            Found::Records(records) => records.len(),
        }
    }

    /// Nothing was found, or nothing yet.
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

/// The first answer to a range.
#[derive(Debug)]
pub struct RangeStart {
    /// As it was asked.
    pub query: Query,
    /// All of it, if there is no walk.
    pub found: Found,
    /// Names the walk that gives it slice by slice.
    pub walk: Option<u64>,
    /// Keys in the range, as etcd counts them.
    pub count: i64,
    /// There are more than the limit.
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
    /// In key order behind those of the slice before.
    pub found: Found,
    /// Count and more, as in [`RangeStart`]; None: slices follow.
    pub finished: Option<(i64, bool)>,
}

/// A piece of history: whole revisions, ascending. The asker continues at `next`.
#[derive(Debug)]
pub struct History {
    /// Unfiltered.
    pub revisions: Vec<Arc<RevisionEvents>>,
    /// First revision not contained; equal to the asked one when nothing was there (then Join).
    pub next: i64,
    /// The compacted revision when the history was read: below it nothing is promised.
    pub compacted: i64,
}

/// Try elsewhere or later: nothing is known to have been applied (see the timeouts for the
/// exception).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No leader is known.
    NoLeader,
    /// Only a leader does this.
    NotLeader,
    /// The leader changed before the answer was sure.
    LeaderChanged,
    /// Outcome unknown.
    Timeout,
    /// Outcome unknown.
    TimeoutLeaderFail,
    /// Outcome unknown.
    TimeoutConnectionLost,
    /// A budget is full.
    TooManyRequests,
    /// A sorted range would keep so many bytes; more than was granted.
    SortNeeds(u64),
    /// The transaction was done, but its ranges find more than one answer may take in memory.
    AnswerTooLarge,
    /// This member is about to stop.
    Stopped,
    /// No leader has set the cluster's version yet, as far as this member knows.
    NotCapable,
    /// It is no voter of this cluster.
    BadLeaderTransferee,
    /// The other member did not lead in time.
    LeaderTransferTimeout,
    /// With this change too few voters would ever have started.
    NotEnoughStarted,
    /// Too few voters are connected for this change.
    Unhealthy,
    /// The learner lags behind the leader.
    LearnerNotReady,
    /// There are as many learners as may be.
    TooManyLearners,
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
    /// Log entries kept in memory.
    pub entry_cache: u64,
    /// Entries that this leader proposed.
    pub uncommitted: u64,
    /// Commands that wait for their outcome.
    pub commands: u64,
    /// Committed entries that wait for apply.
    pub unapplied: u64,
    /// The newest events, for watches that join.
    pub event_ring: u64,
    /// Records that are in no file yet.
    pub unwritten: u64,
    /// What the ranges of the transaction found that is answered next.
    pub txn_answers: u64,
    /// Commands refused because one of these was full.
    pub refused: u64,
    /// Entries that wait for apply.
    pub unapplied_entries: u64,
    /// Walks under way.
    pub walks: u64,
    /// Backups under way.
    pub backups: u64,
    /// Reads that wait for a read index or its apply.
    pub reads: u64,
    /// Bytes of forwards on their way to the leader.
    pub forwards: u64,
    /// Bodies of commands forwarded since start, and those of them that were said again. Counts.
    pub forwarded: u64,
    /// Said again after a broken connection.
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
    /// Its id.
    pub member: u64,
    /// The last index that it acknowledged.
    pub matched: u64,
    /// It answered within the last election timeout.
    pub active: bool,
}

/// What a member says of itself. Counters begin at its start.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The cluster's id.
    pub cluster: u64,
    /// This member's id.
    pub member: u64,
    /// 0: none is known.
    pub leader: u64,
    /// Raft's.
    pub term: u64,
    /// It leads.
    pub is_leader: bool,
    /// It does not vote.
    pub is_learner: bool,
    /// Index of the last committed entry that it knows of.
    pub committed: u64,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Index of the last entry of its log.
    pub last: u64,
    /// Index of the last entry that is durable here.
    pub persisted: u64,
    /// Of the store.
    pub revision: i64,
    /// The compacted revision.
    pub compacted: i64,
    /// Living keys.
    pub keys: u64,
    /// Bytes of the records that are in use.
    pub live_bytes: u64,
    /// Bytes of the files of the state: segments, index files, tables, manifests. Not the log's.
    pub disk_bytes: u64,
    /// By rewriting segments.
    pub reclaimed: Reclaimed,
    /// Bytes of the store from which on puts are refused; 0: no bound.
    pub quota: u64,
    /// How many there are.
    pub leases: u64,
    /// Live ones on this member.
    pub watches: u64,
    /// Replicated ones, and NOSPACE of this member while its disk is full.
    pub alarms: Vec<AlarmMember>,
    /// A job waits for space on this member's disk.
    pub disk_full: bool,
    /// This member may have lost what it promised: it does not stand for election until that is
    /// settled.
    pub doubt: bool,
    /// How often it gave up its state and started over.
    pub rebuilt: disk::startover::Rebuilt,
    /// Of the state, equal on all members at one applied index.
    pub digest: u128,
    /// As the leader set it; empty: not yet.
    pub cluster_version: String,
    /// Of the leader: the others.
    pub followers: Vec<Followed>,
    /// Commands that wait for their outcome.
    pub pending: u64,
    /// Seen by this member.
    pub leader_changes: u64,
    /// Commands of this member that were given up.
    pub proposals_failed: u64,
    /// Bytes, by budget.
    pub held: Held,
    /// Of the slow look.
    pub scrub: ScrubFigures,
    /// Of damaged records.
    pub mend: MendFigures,
    /// Of what other members say that no member can mean.
    pub nonsense: NonsenseFigures,
}

/// What other members said that no member can mean, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonsenseFigures {
    /// Terms and indexes that are too far ahead.
    pub numbers: u64,
    /// Forwarded commands that are none.
    pub commands: u64,
}

/// The slow look at what lies still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubFigures {
    /// Bytes read since start.
    pub read: u64,
    /// Whole passes since start, and the seconds since the last one ended.
    pub passes: u64,
    /// None: no pass has ended.
    pub age: Option<u64>,
    /// Places outside of segments at which damage was found since start.
    pub found: u64,
}

/// Damaged records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendFigures {
    /// Damaged stretches of segments since start, and those of them that are whole again.
    pub found: u64,
    /// Whole again.
    pub mended: u64,
    /// Segments that are damaged now.
    pub open: u64,
}
