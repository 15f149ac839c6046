//! The words of the store: keys, ranges, revisions, records, items.

use bytes::Bytes;
use std::sync::Arc;

/// A key, shared between the index, events and answers.
pub type Key = Arc<[u8]>;

/// Position of a change: main revision, and order inside its transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev {
    pub main: i64,
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
    pub handle: Handle,
    /// Of the record. A reader compares it: an installed snapshot may have put another record there.
    pub rev: Rev,
    /// The whole record (header and body) when it is still in memory.
    pub bytes: Option<Bytes>,
}

/// One version of one key, as the index knows it.
#[derive(Clone, Debug)]
pub struct Item {
    pub key: Key,
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
    pub at: Located,
}

/// A normalised key range (etcd's key / range_end rules, `etcd-surface` 3.1).
/// `end`: None = the single key; Some(empty) = every key from `key` on; Some(e) = `[key, e)`.
/// The same object is checked and executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub key: Bytes,
    pub end: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    #[default]
    None,
    Ascend,
    Descend,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortTarget {
    #[default]
    Key,
    Version,
    Create,
    Mod,
    Value,
}

/// A range request without transport matters (`RangeRequest` less `serializable`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub range: KeyRange,
    /// 0 or negative = latest.
    pub revision: i64,
    /// 0 or negative = unlimited.
    pub limit: i64,
    pub order: SortOrder,
    pub target: SortTarget,
    pub keys_only: bool,
    pub count_only: bool,
    pub min_mod: i64,
    pub max_mod: i64,
    pub min_create: i64,
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
    EmptyKey,
    KeyNotFound,
    ValueProvided,
    LeaseProvided,
    TooManyOps,
    DuplicateKey,
    InvalidSortOption,
    Compacted,
    FutureRev,
    NoSpace,
    LeaseNotFound,
    LeaseExist,
    LeaseTtlTooLarge,
    Corrupt,
    MemberExist,
    PeerUrlExist,
    MemberNotFound,
    MemberNotLearner,
    TooManyLearners,
    RootUserNotExist,
    RootRoleNotExist,
    UserAlreadyExist,
    UserEmpty,
    UserNotFound,
    RoleAlreadyExist,
    RoleNotFound,
    RoleEmpty,
    AuthFailed,
    /// A password was given for a user that has none.
    NoPasswordUser,
    PermissionNotGiven,
    PermissionDenied,
    RoleNotGranted,
    PermissionNotGranted,
    AuthNotEnabled,
    InvalidAuthToken,
    InvalidAuthMgmt,
    /// Users or roles have changed since the asker was looked up.
    AuthOldRevision,
}

/// What an applied command answers. Values stay behind handles; the edge builds bytes.
#[derive(Clone, Debug)]
pub enum Reply {
    Put {
        prev: Option<Item>,
    },
    Delete {
        deleted: i64,
        prevs: Vec<Item>,
    },
    Range(RangeReply),
    Txn {
        succeeded: bool,
        responses: Vec<OpReply>,
    },
    Compact,
    LeaseGrant {
        id: i64,
        ttl: i64,
    },
    LeaseRevoke,
    /// The alarms raised or removed by this command.
    Alarm {
        alarms: Vec<AlarmMember>,
    },
    /// A user has logged in. The edge makes the token: a simple one names the entry, a signed one the revision.
    LoggedIn {
        index: u64,
        auth_revision: u64,
    },
    /// Nothing to say (changes of users and roles, publish, cluster version, expiry, no-op).
    Empty,
}

/// One response inside a transaction; `revision` is its own small header
/// (0 for a nested transaction).
#[derive(Clone, Debug)]
pub struct OpReply {
    pub revision: i64,
    pub reply: Reply,
}

/// Range result. For the default order `items` is final. Otherwise (`query.needs_sort()`)
/// it holds every filtered item in key order and the edge sorts and cuts by `order::finish`.
#[derive(Clone, Debug)]
pub struct RangeReply {
    pub query: Query,
    pub items: Vec<Item>,
    pub count: i64,
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlarmMember {
    pub member: u64,
    /// 1 NOSPACE, 2 CORRUPT; other numbers are kept as given, as etcd does.
    pub alarm: i32,
}

/// One change, as watches see it.
#[derive(Clone, Debug)]
pub struct Event {
    pub tombstone: bool,
    pub key: Key,
    /// The whole record: header and `KeyValue` body (for a tombstone a body with the key alone;
    /// the edge adds mod_revision, see `record`).
    pub record: Bytes,
    pub revision: Rev,
    /// create_revision of the new version (0 for a tombstone): created iff equal to revision.main.
    pub create: i64,
    /// The version just before, if there was one.
    pub prev: Option<Located>,
}

/// All events of one main revision, in sub order.
#[derive(Clone, Debug)]
pub struct RevisionEvents {
    pub revision: i64,
    pub events: Vec<Event>,
}

/// A member as the cluster records it (voter or learner is read from ConfState only).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
}
