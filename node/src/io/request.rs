//! What is said to a member: time, frames, requests, finished jobs.

use super::{JobId, JobResult};
use crate::frame::Frame;
use std::sync::Arc;
use store::command::Checked;
use store::{KeyRange, MemberChange, Query};

/// Names one asker of this process; chosen by the driver, never reused in a process.
pub type Waiter = u64;
/// One watch stream of one connection; chosen by the driver.
pub type StreamId = u64;

/// What a driver says to a member.
#[derive(Debug)]
pub enum Input {
    /// 10 ms of the driver's monotonic clock went by.
    Tick,
    /// So many ticks went by in which this member could do nothing, and which it will not live
    /// through: leases count them, patience with others does not. Said after the ticks of the same
    /// turn: leases that were due meanwhile are kept a little longer, counted from here.
    Away {
        /// 10 ms each.
        ticks: u64,
    },
    /// From a peer, over the connection that said hello as `from`.
    Frame {
        /// The member that said hello.
        from: u64,
        /// What it says.
        frame: Frame,
    },
    /// A connection to a peer said which founding its state is of; 0: it knows none yet. None: its
    /// version knows of no founding. Said before the frames of the connection, also if it is
    /// refused for what it said.
    Met { peer: u64, founding: Option<u64> },
    /// The port of a peer refuses connections: its process is gone.
    Gone {
        /// The member.
        peer: u64,
    },
    /// A member of this cluster, of the same founding, says that this one was removed from it.
    Removed {
        /// Who says so.
        by: u64,
    },
    /// The connection to a peer broke: everything queued on it is gone.
    Lost {
        /// The member at its other end.
        peer: u64,
    },
    /// A client, or this program itself, wants something. Answered once by `Output::Answer`, unless
    /// it is canceled.
    Request {
        /// To whom the answer goes.
        waiter: Waiter,
        /// As whom it is asked.
        who: Who,
        /// What is asked.
        request: Request,
    },
    /// The asker went away, or its deadline passed (`timed_out`: it still wants
    /// the text of the timeout, and gets `Refusal::Timeout…`).
    Cancel {
        /// Who waited.
        waiter: Waiter,
        /// Its deadline passed; false: it went away.
        timed_out: bool,
    },
    /// From a watch stream.
    Watch {
        /// Which one.
        stream: StreamId,
        /// What it asks.
        op: WatchOp,
    },
    /// A disk job has ended. Once for each job.
    Done {
        /// As in `Output::Job`.
        job: JobId,
        /// Of the kind that belongs to the job.
        result: JobResult,
    },
    /// The disk is full: this job is tried again until there is room. Said once for a job.
    Stalled {
        /// As in `Output::Job`; its `Done` is still to come.
        job: JobId,
        /// What the disk said.
        fault: disk::Fault,
    },
    /// A reader of records found damage in this file, or cannot read it.
    Unreadable {
        /// It names the file.
        fault: disk::Fault,
    },
    /// Clean stop: hand leadership over, write a checkpoint, then `Output::Stopped`.
    Stop,
}

/// A token. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// A token, as the client showed it.
    pub fn new(secret: &str) -> Secret {
        Secret(secret.into())
    }

    /// Its text, for whoever compares or sends it.
    pub fn shown(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Who asks, as the edge knows it. While users are not asked for, it does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// This program itself, for no client.
    Member,
    /// A client that did not say.
    Nobody,
    /// A simple token, not looked at yet.
    Token(Secret),
    /// A signed token, which was verified.
    Signed {
        /// The name in its claims.
        user: Arc<str>,
        /// Of users and roles, when the token was signed.
        revision: u64,
    },
    /// A client certificate names the user.
    Certified { user: Arc<str> },
    /// A token that cannot be right.
    Invalid,
}

/// What is asked about users and roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthQuery {
    /// Whether users are asked for, and the revision of users and roles.
    Status,
    /// The roles of a user.
    User {
        /// Of the user.
        name: String,
    },
    /// The names of all users.
    Users,
    /// The permissions of a role.
    Role {
        /// Of the role.
        name: String,
    },
    /// The names of all roles.
    Roles,
    /// For the edge, which compares passwords.
    Password {
        /// Of the user.
        name: String,
    },
}

/// What a member is asked for. Revisions are of the store; `linearizable` false: as far as this
/// member knows.
#[derive(Debug)]
pub enum Request {
    /// A validated command: `InternalRaftRequest` bytes without header
    /// (see `store::command`'s builders). Answer: `Applied`.
    Propose { body: Checked, cost: u64 },
    /// Compaction; `physical` answers after the sweep passed and a checkpoint holds it. Answer:
    /// `Applied`.
    Compact { revision: i64, physical: bool },
    /// Answer: `Range`, or with `stream` directly `Walk`. `keep`: bytes that the items of a sorted
    /// answer may take (see [`crate::sort_cost`]); more is refused with `SortNeeds`.
    Range { query: Query, linearizable: bool, stream: bool, keep: u64 },
    /// A transaction of ranges alone (all compares, both branches read only). `body` as for
    /// Propose. Answer: `Applied` with `Reply::Txn`.
    ReadTxn { body: Checked, linearizable: bool },
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
    /// A member comes, goes, gets a vote or moves; without an origin. Answer: `Members`, those
    /// behind the change, once it is applied here.
    ChangeMember {
        /// Who, and what happens to it.
        change: MemberChange,
    },
    /// Answer: `Status`. Always at once.
    Status,
    /// Answer: `Alarms`. (kind 0 = all)
    Alarms { kind: i32 },
    /// Linearisable. Answer: `Auth`.
    Auth { query: AuthQuery },
    /// Whether the asker may watch the range. Answer: `Barrier`, at once.
    Watch { range: KeyRange },
    /// Whether the asker is an admin, for what the edge does alone. Answer: `Barrier`, at once.
    Admin,
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
        /// Of the watch, unique in its stream.
        id: i64,
        /// What it watches.
        spec: WatchSpec,
        /// The first revision that it has not seen.
        next: i64,
    },
    /// The watch is over. No answer.
    Remove {
        /// Of the watch.
        id: i64,
    },
    /// Answer: `ToStream::Progress` behind everything already posted to the stream.
    Progress {
        /// Comes back with the answer.
        token: u64,
    },
    /// The stream is gone with all its watches.
    Close,
}

/// What a watch wants to see.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// Events of these keys.
    pub range: KeyRange,
    /// Without puts.
    pub no_put: bool,
    /// Without deletes.
    pub no_delete: bool,
    /// With the version before each event.
    pub prev_kv: bool,
}
