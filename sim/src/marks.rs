//! "Sometimes" marks: situations that a good campaign must meet, counted.

use std::collections::BTreeMap;

/// Every mark there is; a campaign prints those it never met.
pub const ALL: &[&str] = &[
    "leader changed",
    "leader changed with uncommitted entries",
    "entry overwritten on a follower",
    "linearizable read on a follower",
    "outcome unknown",
    "snapshot installed",
    "snapshot interrupted by a crash",
    "a snapshot went on with what had come",
    "install while a watch waits for the future",
    "checkpoint written",
    "log cut",
    "crash between log flush and apply",
    "crash while a checkpoint is written",
    "segments rewritten",
    "crash while segments are rewritten",
    "watch fed from history while segments are rewritten",
    "snapshot read while segments are rewritten",
    "crash during recovery",
    "torn tail cut",
    "disk error ended a member",
    "leader gave way with a hung disk",
    "one-way cut with an election",
    "message of a previous life arrived",
    "quorum lost and regained",
    "lease expired",
    "lease expired right after a leader change",
    "fenced expiry refused",
    "keep-alive after a pause",
    "renewal answered by a follower",
    "watch fed from history",
    "watch canceled by compaction",
    "watch of a future revision fired",
    "watch resumed on another member",
    "a backlog of writes moves over a full link",
    "fragment sent",
    "progress on request",
    "transaction nested",
    "compacted read refused",
    "future read refused",
    "walk in slices",
    "value read from a file",
    "prev_kv gone with its segment",
    "apply waited for a value",
    "apply waited for several values",
    "too many requests",
    "leader moved on request",
    "member stopped cleanly",
    "a full disk was waited for",
    "forward lost with its connection",
    "a disk was harmed",
    "a harmed disk was refused",
    "a late founder began",
    "a harmed disk was put back",
    "a harmed disk is whole again",
    "damage was met and named",
    "damaged records came again from another member",
    "a damaged log was cut",
    "a member started over",
    "a member without a state was asked",
    "a frame was dropped inside a connection",
    "a member was added",
    "a member has joined",
    "a learner was promoted",
    "a member was removed",
    "a removed member ended",
    "a removed member without a state was ended",
    "a removed member whose voters were replaced was ended",
    "a member has another URL",
    "a member went on alone",
    "a machine of the cluster before came back",
    "a frame was too long for a peer",
    "backup taken",
    "NOSPACE refused a write",
    "backup ended by a snapshot",
    "backup ended for room",
    "a stream met the files of a snapshot",
    "a sorted range was too large",
    "the power went behind a kill",
    "a state that differs was found on a follower",
    "a state that differs was found on a leader",
    "a state that differed is equal again",
    "peace with a leader whose state differs, and a member without one",
    "a member of another founding stopped",
    "a request was denied",
    "who had not logged in was refused",
    "an old revision of users was refused",
    "a token was good",
    "a token was not known",
];

#[derive(Clone, Debug, Default)]
pub struct Marks(pub BTreeMap<&'static str, u64>);

impl Marks {
    pub fn hit(&mut self, mark: &'static str) {
        debug_assert!(ALL.contains(&mark), "{mark} is not listed");
        *self.0.entry(mark).or_default() += 1;
    }

    pub fn add(&mut self, other: &Marks) {
        for (mark, n) in &other.0 {
            *self.0.entry(mark).or_default() += n;
        }
    }

    pub fn missed(&self) -> Vec<&'static str> {
        ALL.iter().copied().filter(|m| !self.0.contains_key(m)).collect()
    }
}
