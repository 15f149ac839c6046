//! What a member is told at start. Every number that the tests shrink is here.

/// Settings of one member; the same on all members of a cluster except `member`, `boot`, `seed`.
#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: u64,
    pub member: u64,
    /// Drawn anew at each start: tells lives of one member apart.
    pub boot: u64,
    /// The boot of the machine, which outlives processes. None: not known.
    pub kernel_boot: Option<disk::Boot>,
    /// A random number that nobody knows, for a log that has no salt yet.
    pub log_salt: u64,
    /// Seeds the election timeouts.
    pub seed: u64,
    /// A follower that hears nothing for this long campaigns. Milliseconds.
    pub election_ms: u64,
    pub heartbeat_ms: u64,
    /// Bytes of `live_bytes` above which the NOSPACE alarm is proposed; negative = unlimited.
    pub quota_bytes: i64,
    /// A state segment is sealed at this size. Bytes.
    pub segment_bytes: u32,
    /// A log segment is sealed at this size. Bytes.
    pub log_segment_bytes: u64,
    /// A checkpoint is taken when the log grew by max(this, 4 x the last checkpoint's rows). Bytes.
    pub checkpoint_bytes: u64,
    /// Rewriting segments reads at most so many bytes of them in a second.
    pub reclaim_bytes: u64,
    /// Everything at rest is read and compared with its checksums in about so many seconds; 0:
    /// never.
    pub scrub_seconds: u64,
    /// Members compare the digests of their states at entries divisible by this; the same on all
    /// members.
    pub digest_every: u64,
    /// A simple token ends when it was not used for so many seconds.
    pub token_seconds: u64,
    /// Members are added, given votes and removed only while enough of the others are connected
    /// and have started once (etcd's strict reconfiguration).
    pub strict_reconfig: bool,
    /// Most learners at once.
    pub max_learners: usize,
    pub budgets: Budgets,
    /// etcd level of the cluster version that a leader sets, "3.7.0".
    pub cluster_version: String,
    /// Names the founding of the cluster if nothing has named it yet and this member leads: random,
    /// not 0.
    pub founding: u64,
    /// This member founded when the others were beyond genesis (`disk::late`): it must not vote,
    /// campaign or acknowledge before it has caught up.
    pub late_founder: bool,
    /// The members that this one was founded with, as far as it is told. A member whose state is
    /// lost learns from them whom it can ask.
    pub founders: Vec<store::Member>,
}

impl Config {
    /// The defaults of a member of production size.
    pub fn new(cluster: u64, member: u64, boot: u64, seed: u64) -> Config {
        Config {
            cluster,
            member,
            boot,
            kernel_boot: None,
            log_salt: 0,
            seed,
            election_ms: 1000,
            heartbeat_ms: 100,
            quota_bytes: 2 << 30,
            segment_bytes: 64 << 20,
            log_segment_bytes: 64 << 20,
            checkpoint_bytes: 64 << 20,
            reclaim_bytes: 64 << 20,
            scrub_seconds: 24 * 60 * 60,
            digest_every: 4_096,
            token_seconds: 300,
            strict_reconfig: true,
            max_learners: 1,
            budgets: Budgets::default(),
            cluster_version: "3.7.0".to_string(),
            founding: boot.max(1),
            late_founder: false,
            founders: Vec::new(),
        }
    }

    /// What the store is told of it.
    pub(crate) fn store(&self) -> store::Config {
        store::Config { segment_bytes: self.segment_bytes }
    }

    /// Ticks that a member with nothing to do may be told together: half a heartbeat, 50 ms at
    /// most.
    pub fn ticks_together(&self) -> u32 {
        (self.heartbeat_ms / TICK_MS / 2).clamp(1, 5) as u32
    }

    pub(crate) fn election_ticks(&self) -> u64 {
        (self.election_ms / TICK_MS).max(2)
    }
}

/// Milliseconds of one `Input::Tick`.
pub const TICK_MS: u64 = 10;

/// The budgets in bytes inside the core (`docs/operations/memory.md`): each bounds one queue.
/// Full means wait (reads), "too many requests" (writes), demote (watches).
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Entries kept in RAM at and below the applied index.
    pub entry_cache: u64,
    /// Proposed and not yet committed; the last eighth is for what must pass.
    pub uncommitted: u64,
    /// Commands of this member's clients, accepted and not yet applied: held without a leader,
    /// proposed, or forwarded and kept until their entry comes. What must pass (revokes, alarms,
    /// compactions) has an eighth more.
    pub commands: u64,
    /// Of these: on their way to the leader, forwarded and not yet answered by their entry.
    pub forwards: u64,
    /// Committed and not yet applied, on the leader.
    pub unapplied: u64,
    /// Events kept for watches that join a little late.
    pub event_ring: usize,
    /// Records not yet written to a file before a write is asked for.
    pub unwritten: usize,
    /// Records in memory beyond which apply waits for the background to write them.
    pub unwritten_most: u64,
    /// Items kept for one answer that is not measured first. Count.
    pub whole_answer_items: usize,
    /// Keys walked in one slice.
    pub slice_keys: usize,
    /// Keys that transactions may look at in one turn, for their compares and ranges.
    pub apply_keys: usize,
    /// Bytes of records that apply reads at once; one record at least.
    pub apply_read: u64,
    /// What the ranges of one transaction may take until it is answered. Bytes.
    pub txn_answer: u64,
    /// Raw bytes of one history read.
    pub history_bytes: u64,
    /// Commands committed and not yet applied before new ones are refused (etcd: 5,000).
    pub backlog: u64,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            entry_cache: 64 << 20,
            uncommitted: 64 << 20,
            commands: 64 << 20,
            forwards: 4 << 20,
            unapplied: 64 << 20,
            event_ring: 8 << 20,
            unwritten: 1 << 20,
            unwritten_most: 64 << 20,
            whole_answer_items: 4_000,
            slice_keys: 1_000,
            apply_keys: 20_000,
            apply_read: 1 << 20,
            txn_answer: 128 << 20,
            history_bytes: 1 << 20,
            backlog: 5_000,
        }
    }
}
