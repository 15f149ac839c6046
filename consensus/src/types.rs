//! The words of consensus: what is logged, what is voted, who counts.

use bytes::Bytes;

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the log, from 1, without gaps.
    pub index: u64,
    /// Term of the leader that created the entry.
    pub term: u64,
    pub kind: EntryKind,
    /// Normal: `InternalRaftRequest` bytes, or empty (a new leader's first entry).
    /// Config: [`ConfChange::encode`].
    pub data: Bytes,
}

impl Entry {
    pub fn position(&self) -> Position {
        Position { index: self.index, term: self.term }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    Normal = 0,
    Config = 1,
}

/// What must be durable before a member may vote or acknowledge (Raft, figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    pub term: u64,
    /// Member voted for in `term`; 0 = none.
    pub vote: u64,
    /// Highest index known to be committed.
    pub commit: u64,
}

impl HardState {
    pub(crate) fn ballot(self) -> Ballot {
        Ballot { term: self.term, vote: self.vote }
    }
}

/// What an election leaves to remember: the newest term, and the member voted for in it; 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ballot {
    pub(crate) term: u64,
    pub(crate) vote: u64,
}

/// A place in a log. Ordered as elections order logs (Raft, 5.4.1): by the term of the entry, then
/// by its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub index: u64,
    /// Term of the entry at `index`.
    pub term: u64,
}

impl Ord for Position {
    fn cmp(&self, other: &Position) -> std::cmp::Ordering {
        (self.term, self.index).cmp(&(other.term, other.index))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Position) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What a member may have promised to others and lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// It may have acknowledged entries up to here; None: nobody has said yet how far.
    pub promise: Option<Position>,
    /// It may have given a vote that it does not know of.
    pub vote: bool,
    /// It surely had what it lost: no crash explains the loss.
    pub sure: bool,
    /// Its disk shows a write that never finished, so nobody was told of what is lost. A disk that
    /// loses what it flushed leaves the same traces.
    pub torn: bool,
}

impl Doubt {
    /// Both losses together: the farther promise holds.
    pub fn and(self, other: Doubt) -> Doubt {
        Doubt {
            promise: self.promise.zip(other.promise).map(|(one, two)| one.max(two)),
            vote: self.vote || other.vote,
            sure: self.sure || other.sure,
            torn: self.torn && other.torn,
        }
    }
}

/// What a member says of itself when another asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub term: u64,
    /// The end of its durable log; of a leader, of all of its log.
    pub last: Position,
    pub leads: bool,
    /// What it may have promised and lost.
    pub doubt: Option<Doubt>,
    /// The last entry that it knows to be committed.
    pub commit: Position,
    /// How far the asker acknowledged when this member led; None: it does not remember any of it.
    pub acknowledged: Option<Position>,
    /// The last entry here, if the asker wrote it as the leader of its term.
    pub wrote: Option<Position>,
}

/// Who led, or may have led, a term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    pub(crate) term: u64,
    /// 0 = none known.
    pub(crate) leader: u64,
}

/// How far a follower acknowledged its leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    pub(crate) peer: u64,
    pub(crate) index: u64,
}

/// Who votes and who only listens. Both lists ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfState {
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
}

/// A change of one member, etcd's numbers (raftpb.ConfChangeType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConfChangeKind {
    AddVoter = 0,
    Remove = 1,
    /// Changes attributes only (peer URLs); no effect on voters or learners.
    Update = 2,
    AddLearner = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfChange {
    pub kind: ConfChangeKind,
    /// The member concerned.
    pub member: u64,
    /// Opaque to consensus: the member as the store records it.
    pub context: Bytes,
}

/// A point of the log that a snapshot stands for, and the small manifest that names its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub index: u64,
    pub term: u64,
    pub conf: ConfState,
    /// The manifest, opaque to consensus (at most a few hundred KiB).
    pub manifest: Bytes,
}

impl Snapshot {
    pub fn position(&self) -> Position {
        Position { index: self.index, term: self.term }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Follower,
    /// Pre-candidate or candidate.
    Candidate,
    Leader,
}
