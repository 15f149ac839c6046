//! The words of the store: keys, ranges, revisions, records, items.

use crate::walk::Walk;
use bytes::Bytes;
use std::sync::Arc;

/// A key, shared between the index, events and answers.
pub type Key = Arc<[u8]>;

/// Position of a change: main revision, and order inside its transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev {
    /// Revision of the transaction, from 2 on; the empty store is at 1.
    pub main: i64,
    /// Order inside the transaction, from 0 on.
    pub sub: i64,
}

/// Where a record lies: fixed at apply, local to this member (never replicated).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// Segment number, ascending in revision order.
    pub segment: u32,
    /// Byte offset of the record header in the segment file.
    pub offset: u32,
    /// Bytes of the whole record: header and `KeyValue` body.
    pub len: u32,
}

/// A handle, and the record's bytes as long as they are not yet in a file.
#[derive(Clone, Debug)]
pub struct Located {
    /// Where it lies.
    pub handle: Handle,
    /// Of the record. A reader compares it: an installed snapshot may have put another record
    /// there.
    pub rev: Rev,
    /// The whole record (header and body) when it is still in memory.
    pub bytes: Option<Bytes>,
}

/// One version of one key, as the index knows it.
#[derive(Clone, Debug)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// Revision at which this life of the key began.
    pub create: i64,
    /// Revision of this change.
    pub modified: i64,
    /// Number of changes in this life, from 1 on.
    pub version: i64,
    /// Id of the lease that holds the key, 0 for none.
    pub lease: i64,
    /// Where the record with the value lies.
    pub at: Located,
}

/// A normalised key range (etcd's key / range_end rules, `etcd-surface` 3.1).
/// `end`: None = the single key; Some(empty) = every key from `key` on; Some(e) = `[key, e)`.
/// The same object is checked and executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The key, or the first key.
    pub key: Bytes,
    /// The first key behind the range.
    pub end: Option<Bytes>,
}

/// In which direction the items of an answer are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// Not asked for: ascending.
    #[default]
    None,
    /// Lowest first.
    Ascend,
    /// Highest first.
    Descend,
}

/// By what the items of an answer are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    /// The bytes of the key.
    #[default]
    Key,
    /// The number of changes in the key's life.
    Version,
    /// The create revision.
    Create,
    /// The revision of the last change.
    Mod,
    /// The bytes of the value.
    Value,
}

/// A range request without transport matters (`RangeRequest` less `serializable`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which keys.
    pub range: KeyRange,
    /// 0 or negative = latest.
    pub revision: i64,
    /// 0 or negative = unlimited.
    pub limit: i64,
    /// In which direction they are sorted.
    pub order: SortOrder,
    /// By what they are sorted.
    pub target: SortTarget,
    /// The answer shows no values.
    pub keys_only: bool,
    /// The answer is the count alone.
    pub count_only: bool,
    /// Leaves out what was last changed before this revision; 0 is no bound.
    pub min_mod: i64,
    /// Leaves out what was last changed after this revision; 0 is no bound.
    pub max_mod: i64,
    /// Leaves out what was created before this revision; 0 is no bound.
    pub min_create: i64,
    /// Leaves out what was created after this revision; 0 is no bound.
    pub max_create: i64,
}

impl Query {
    /// Everything in `range`, as it is now, in the order of keys.
    pub fn all(range: KeyRange) -> Query {
        Query {
            range,
            revision: 0,
            limit: 0,
            order: SortOrder::None,
            target: SortTarget::Key,
            keys_only: false,
            count_only: false,
            min_mod: 0,
            max_mod: 0,
            min_create: 0,
            max_create: 0,
        }
    }
}

/// The user was wrong: the same answer on every member. Text and code at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A key of no bytes.
    EmptyKey,
    /// A write keeps the value or the lease of a key that is not there, or an operation of a
    /// transaction is none.
    KeyNotFound,
    /// A write gives a value and keeps the one that is there.
    ValueProvided,
    /// A write gives a lease and keeps the one that is there.
    LeaseProvided,
    /// A transaction has more operations or comparisons than the member allows.
    TooManyOps,
    /// A transaction writes a key twice.
    DuplicateKey,
    /// A sort order or target that does not exist.
    InvalidSortOption,
    /// The revision, or the one to compact at, is compacted.
    Compacted,
    /// The revision is not there yet.
    FutureRev,
    /// The alarm of space is raised.
    NoSpace,
    /// There is no such lease.
    LeaseNotFound,
    /// There is a lease with this id.
    LeaseExist,
    /// A lease of more seconds than etcd allows.
    LeaseTtlTooLarge,
    /// The alarm of corruption is raised.
    Corrupt,
    /// There is a member with this id.
    MemberExist,
    /// Another member has one of these peer URLs.
    PeerUrlExist,
    /// There is no such member.
    MemberNotFound,
    /// The member votes already.
    MemberNotLearner,
    /// The cluster has as many learners as it may have.
    TooManyLearners,
    /// Users cannot be asked for: there is no user root.
    RootUserNotExist,
    /// Users cannot be asked for: root does not hold the role root.
    RootRoleNotExist,
    /// There is a user of that name.
    UserAlreadyExist,
    /// Nobody asks, or a user without a name is meant.
    UserEmpty,
    /// There is no such user.
    UserNotFound,
    /// There is a role of that name.
    RoleAlreadyExist,
    /// There is no such role.
    RoleNotFound,
    /// A role without a name is meant.
    RoleEmpty,
    /// No such user, or another password.
    AuthFailed,
    /// A password was given for a user that has none.
    NoPasswordUser,
    /// A grant without a permission.
    PermissionNotGiven,
    /// The asker may not.
    PermissionDenied,
    /// The user does not hold the role.
    RoleNotGranted,
    /// The role does not have the permission.
    PermissionNotGranted,
    /// Users are not asked for.
    AuthNotEnabled,
    /// The token is none that is known.
    InvalidAuthToken,
    /// What would lock everybody out, or a range that is none.
    InvalidAuthMgmt,
    /// Users or roles have changed since the asker was looked up.
    AuthOldRevision,
    /// The entry is no command: its bytes do not decode.
    NoCommand,
}

/// What an applied command answers. Values stay behind handles; the edge builds bytes.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To a put.
    Put {
        /// The version before, if it was asked for and there was one.
        prev: Option<Item>,
    },
    /// To the deletion of a range.
    Delete {
        /// Number of keys deleted.
        deleted: i64,
        /// The versions before, if they were asked for.
        prevs: Vec<Item>,
    },
    /// To a range, inside a transaction.
    Range(RangeReply),
    /// To a transaction.
    Txn {
        /// Every comparison held.
        succeeded: bool,
        /// One for each operation that was done, in order.
        responses: Vec<OpReply>,
    },
    /// To a compaction: what it forgets is decided, and goes in steps.
    Compact,
    /// To the grant of a lease.
    LeaseGrant {
        /// The lease's id.
        id: i64,
        /// Seconds granted.
        ttl: i64,
    },
    /// To the revocation of a lease.
    LeaseRevoke,
    /// The alarms raised or removed by this command.
    Alarm {
        /// One for each member and kind.
        alarms: Vec<AlarmMember>,
    },
    /// A user has logged in. The edge makes the token: a simple one names the entry, a signed one
    /// the revision.
    LoggedIn {
        /// Of the entry.
        index: u64,
        /// Of users and roles, when it was applied.
        auth_revision: u64,
    },
    /// Nothing to say (changes of users and roles, publish, cluster version, expiry, no-op).
    Empty,
}

/// One response inside a transaction; `revision` is its own small header
/// (0 for a nested transaction).
#[derive(Clone, Debug)]
pub struct OpReply {
    /// Revision of the response's header.
    pub revision: i64,
    /// What the operation did.
    pub reply: Reply,
}

/// Range result. For the default order `items` is final. Otherwise (`query.needs_sort()`)
/// it holds every filtered item in key order and the edge sorts and cuts by `order::finish`.
#[derive(Clone, Debug)]
pub struct RangeReply {
    /// What was asked.
    pub query: Query,
    /// The keys found.
    pub items: Vec<Item>,
    /// Keys in the range, whatever limit and bounds leave out.
    pub count: i64,
    /// The limit left keys out.
    pub more: bool,
    /// It is not whole: `items` go on here ([`crate::Store::go_on`]), and what follows says nothing
    /// yet.
    pub rest: Option<Box<Walk>>,
}

/// An alarm of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlarmMember {
    /// The member's id.
    pub member: u64,
    /// 1 NOSPACE, 2 CORRUPT; other numbers are kept as given, as etcd does.
    pub alarm: i32,
}

/// One change, as watches see it.
#[derive(Clone, Debug)]
pub struct Event {
    /// The key was deleted, not written.
    pub tombstone: bool,
    /// The key.
    pub key: Key,
    /// The whole record: header and `KeyValue` body (for a tombstone a body with the key alone;
    /// the edge adds mod_revision, see `record`).
    pub record: Bytes,
    /// Revision of the change.
    pub revision: Rev,
    /// create_revision of the new version (0 for a tombstone): created iff equal to revision.main.
    pub create: i64,
    /// The version just before, if there was one.
    pub prev: Option<Located>,
}

/// All events of one main revision, in sub order.
#[derive(Clone, Debug)]
pub struct RevisionEvents {
    /// Their main revision.
    pub revision: i64,
    /// At least one.
    pub events: Vec<Event>,
}

/// A member as the cluster records it (voter or learner is read from ConfState only).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The member's id.
    pub id: u64,
    /// Empty until the member has started.
    pub name: String,
    /// URLs at which other members reach it.
    pub peer_urls: Vec<String>,
    /// URLs at which clients reach it; empty until the member has started.
    pub client_urls: Vec<String>,
}
