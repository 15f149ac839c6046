//! What goes into a [`crate::Consensus`] at birth and what comes out of it each turn.

use crate::{ConfState, Doubt, Entry, HardState, Message, Position, Role, Snapshot};

/// Settings that do not change while the process lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member; never 0.
    pub id: u64,
    /// Election timeouts are a function of {seed, id, term, own campaigns so far}.
    pub seed: u64,
    /// Differs between two lives of the same member; part of every ReadIndex context.
    pub boot: u64,
    /// In calls of [`crate::Consensus::tick`]; the timeout is drawn in
    /// `election_ticks..2 * election_ticks`.
    pub election_ticks: u32,
    /// In calls of [`crate::Consensus::tick`]; less than `election_ticks`.
    pub heartbeat_ticks: u32,
    /// Entries of one append message, in bytes of data (one entry may be larger).
    pub max_message_bytes: u64,
    /// Proposed but not committed, in bytes; a proposal beyond it is [`Refused::TooMany`].
    pub max_uncommitted_bytes: u64,
    /// Entries kept at and below applied, in bytes; those above applied are always kept.
    pub cache_bytes: u64,
}

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    pub hard: HardState,
    /// At `applied`. Empty for a joiner that waits for its first snapshot.
    pub conf: ConfState,
    /// The durable commit, already applied by the caller.
    pub applied: Position,
    /// Entries of the log, contiguous to its end: at least those above `applied`.
    pub entries: Vec<Entry>,
    /// The entry before the first one in the log: checkpoint position or log cut.
    pub boundary: Position,
    /// The first entry of each run of one term between the two, ascending: entries that the log has
    /// and nobody needs in memory.
    pub terms: Vec<Position>,
    /// What may have been promised beyond what was found.
    pub doubt: Option<Doubt>,
    /// Changes of who votes are among what is lost: at the promise others may vote than `conf`
    /// says.
    pub voters_lost: bool,
}

/// Everything that is ready at the end of a driver's turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Ordered by addressee, then in order. May leave at once; put them on the wire *before*
    /// `save` is submitted.
    pub messages: Vec<Message>,
    /// Submit, and later call [`crate::Consensus::saved`]. Present iff there are new entries, or
    /// term or vote changed; a moved commit index alone is never worth a flush.
    pub save: Option<Save>,
    /// Committed *and* locally durable, in order, each once. For each config entry call
    /// `conf_applied` or `conf_refused` before `applied` passes it.
    pub committed: Vec<Entry>,
    /// Token and index: serve the read once applied reaches it.
    pub reads: Vec<(u64, Result<u64, ReadFailed>)>,
    /// Present when any of its fields changed.
    pub soft: Option<Soft>,
    /// Read these old entries from the log, answer by [`crate::Consensus::fetched`].
    pub fetch: Vec<Fetch>,
    /// A checkpoint at or above this index is wanted; answer by
    /// [`crate::Consensus::offer_snapshot`]. Repeated about once per heartbeat while wanted.
    pub want_snapshot: Option<u64>,
    /// The followers that need it, ascending.
    pub want_snapshot_for: Vec<u64>,
    /// Member .0 leads and offers snapshot .1: transfer the files, restart the log there, then call
    /// [`crate::Consensus::installed`], or [`crate::Consensus::abandon_install`]. Until one of them
    /// the commit index stands still. May be repeated for the same snapshot.
    pub install: Option<(u64, Snapshot)>,
    /// Members that seem to have lost entries they had acknowledged (our own id: we have).
    pub lost_data: Vec<u64>,
    /// There are two histories. Said once; from then on nothing is taken of any leader.
    pub contradicted: Option<Contradiction>,
    /// [`crate::Consensus::doubt`] began, changed or is over: remember it over a restart.
    pub doubt_changed: bool,
    /// Nobody led for long, and not all voters answer: the doubt is over because the disk shows a
    /// write that never finished.
    pub tear_believed: bool,
}

impl Turn {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
            && self.save.is_none()
            && self.committed.is_empty()
            && self.reads.is_empty()
            && self.soft.is_none()
            && self.fetch.is_empty()
            && self.want_snapshot.is_none()
            && self.install.is_none()
            && self.lost_data.is_empty()
            && self.contradicted.is_none()
            && !self.doubt_changed
            && !self.tear_believed
    }
}

/// What shows that members have two histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// An entry that is committed here, and the leader has another one in its place.
    Entry {
        /// The member that leads.
        leader: u64,
        /// The entry that is committed here.
        ours: Position,
        /// Term of the leader's entry.
        theirs: u64,
    },
    /// The leader was told how far this log is committed, and what it sends ends before.
    Below {
        /// The member that leads.
        leader: u64,
        /// The log here begins behind this entry, which is committed.
        ours: Position,
        /// Where the leader's entries end.
        theirs: Position,
    },
    /// Two members lead one term.
    Leaders {
        /// The term.
        term: u64,
        /// Who leads it. One of them may be this member.
        leaders: [u64; 2],
    },
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contradiction::Entry { leader, ours: Position { index, term }, theirs } => write!(
                f,
                "entry {index} is committed here, of term {term}, and leader {leader:x} has one of term {theirs} in its \
                 place"
            ),
            Contradiction::Below { leader, ours, theirs } => write!(
                f,
                "everything up to entry {} of term {} is committed here, and what leader {leader:x} has ends at entry \
                 {} of term {}",
                ours.index, ours.term, theirs.index, theirs.term
            ),
            Contradiction::Leaders { term, leaders: [one, other] } => {
                write!(f, "members {one:x} and {other:x} both lead term {term}: a member has forgotten its vote")
            }
        }
    }
}

/// One batch for the log, one flush. An entry replaces everything at and above its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Save {
    /// Ascending, with gaps. Saves must become durable in this order.
    pub number: u64,
    pub hard: HardState,
    pub entries: Vec<Entry>,
}

/// Old entries that a follower needs and memory no longer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Give it back to [`crate::Consensus::fetched`]. (Followers that need the same place share
    /// one.)
    pub ticket: u64,
    pub from_index: u64,
    /// At least one entry is wanted, whatever its size.
    pub max_bytes: u64,
}

/// Who leads, as this member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    pub term: u64,
    /// 0 = none known.
    pub leader: u64,
    pub role: Role,
}

/// Why nothing was proposed. Nothing was appended; asking again is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    NotLeader,
    /// A leadership transfer is under way; it ends within one election timeout.
    Transferring,
    /// `max_uncommitted_bytes` are on their way.
    TooMany,
    /// Another membership change is not applied yet, or this leader has not committed in its term.
    ChangePending,
    /// The change is no simple step from the present configuration.
    BadChange,
    /// Not a voter, or not replicating (far behind or unreachable).
    BadTransferee,
}

/// The read was not confirmed; it may be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFailed {
    NotLeader,
    /// Leadership was lost while the round was open.
    LeaderChanged,
}

/// How the leader feeds a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeding {
    /// Looking for the point where the logs meet.
    Probe,
    Replicate,
    Snapshot,
}

/// A follower as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    pub id: u64,
    /// Known to be durable there up to this index.
    pub matched: u64,
    /// Next index to send.
    pub next: u64,
    pub feeding: Feeding,
    /// Answered since the last quorum check (one election timeout).
    pub recent_active: bool,
    pub learner: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub id: u64,
    pub term: u64,
    /// Voted for in `term`; 0 = none.
    pub vote: u64,
    pub commit: u64,
    pub applied: u64,
    pub last: u64,
    /// Locally durable up to this index.
    pub persisted: u64,
    /// 0 = none known.
    pub leader: u64,
    pub role: Role,
    /// Transfer under way to this member; 0 = none.
    pub transferee: u64,
    /// The leader's view of everyone but itself, ascending; empty elsewhere.
    pub followers: Vec<Follower>,
    pub conf: ConfState,
    /// A snapshot is waiting for its files.
    pub installing: bool,
}
