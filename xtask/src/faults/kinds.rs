//! The kinds of faults, and where each is played: live, in the simulator, or elsewhere.

/// A kind of fault.
pub struct Kind {
    /// Of the list of kinds.
    pub number: u8,
    /// What happens.
    pub fault: &'static str,
    /// Scenarios that play it; none: the simulator alone, or another job.
    pub scenes: &'static [&'static str],
    /// What else plays it, or why nothing does live.
    pub rest: &'static str,
}

const fn kind(number: u8, fault: &'static str, scenes: &'static [&'static str], rest: &'static str) -> Kind {
    Kind { number, fault, scenes, rest }
}

/// All of them.
#[rustfmt::skip]
pub const KINDS: &[Kind] = &[
    kind(1, "kill at any instruction", &["leader-kill", "leader-term", "power-off", "rolling"],
        "`kill-loop` kills again and again; `sweep crash` behind each call of the disk"),
    kind(2, "all members crash at once", &["all-killed"], "each tenth round of `kill-loop`"),
    kind(3, "power loss: what was not flushed is gone", &[],
        "only the simulator: a kernel that runs on keeps its pages. Its crashes with power lost drop any \
         part of what was not flushed (`KilledThenPower`, `LostWrite`)"),
    kind(4, "torn write at the end of the log", &["torn-tail"],
        "`sweep damage`; in the simulator each crash with power lost, and `TailGone`"),
    kind(5, "rot in the middle of the log", &[],
        "a member that is down, not a running cluster: `sweep damage` ([results](durability.md)); in the \
         simulator `LogHole`, `Rot`"),
    kind(6, "rot in the state", &[],
        "`sweep damage`, as above; in the simulator `Rot`, `RotAwake`, `RecordRot`, `Differs`"),
    kind(7, "rot in a local snapshot", &[], "kvorum's checkpoint is its state: as kind 6, and `StateGone`"),
    kind(8, "rot in a snapshot on its way, or in a backup", &[],
        "the stream carries checksums: `disk/tests`, `backup` and `utl` damage each part; in the simulator \
         `PullBroken`"),
    kind(9, "the record of term and vote is lost", &[],
        "only the simulator: it needs the right record of the right moment (`LogAndTip`, `TailGone`, \
         `EmptyDisk`)"),
    kind(10, "a flush fails with EIO", &["flush-eio"], "in the simulator the fault `FailCall`, with pages kept or dropped"),
    kind(11, "a read or a write fails with EIO", &["write-eio"],
        "reads: `BadSector`, `ReadsFail` of the simulator"),
    kind(12, "no space at any write", &["full-one", "full-all", "write-enospc"],
        "in the simulator `FullDisk`, `NoRoomInside`, `Quota`, `FullAtStart`"),
    kind(13, "slow or hung disk", &["disk-stall", "disk-hang", "flush-slow"], "in the simulator the faults `SlowDisk`, `StallDisk`, `LaneHung`"),
    kind(14, "the wall clock jumps", &[],
        "live it would need a library in front of libc, which Go does not ask. Below the edge nobody sees a \
         wall clock (`xtask/tests/tidy.rs`); in the simulator the fault `ClockJump`"),
    kind(15, "clocks at different rates", &[],
        "only the simulator: members of one machine share a clock (`SlowTurns`, `TickCap`, and a rate for \
         each member)"),
    kind(16, "symmetric partition", &["split", "unplug", "flap"], "in the simulator the shapes `Isolate`, `Halves`"),
    kind(17, "one-way and partial partitions",
        &["leader-mute", "leader-deaf", "follower-mute", "quorum-loss", "constrained", "chained", "one-follower"],
        "in the simulator the shapes `Mute`, `Deaf`, `OneWay`, `Bridge`, `Ring`, `Link`"),
    kind(18, "loss, duplication, reordering, delay", &["narrow"],
        "TCP hides the rest from a live member; `kill-loop --throttle`; in the simulator for each frame \
         (`Bandwidth`, `DroppedFrames`)"),
    kind(19, "pause", &["leader-pause", "leader-long", "all-paused", "starved"], "`kill-loop --pauses`; in the simulator the fault `Freeze`"),
    kind(20, "no processor, memory or descriptors", &["starved"],
        "`attack` takes memory and descriptors from a member beside an honest client"),
    kind(21, "change of membership under faults", &[],
        "`changes`: 500 changes and 100 replacements under load and kills; in the simulator `Operator`, \
         `HarmAndChanges`"),
    kind(22, "mixed versions", &[],
        "there is one version yet. What a member cannot understand stops it, with a reason"),
    kind(23, "quorum lost, and back", &["quorum-lost", "all-killed"], "in the simulator `Liveness`"),
    kind(24, "quorum lost for good", &[],
        "an operator's work, not a client's: `kvorum/tests/recover.rs`; in the simulator `Alone`"),
    kind(25, "restore from a backup", &[], "an operator's work: `kvorum/tests/restore.rs`, `kvorum/tests/backups.rs`"),
    kind(26, "wrong directory, two processes", &["two-processes"],
        "in the simulator `OlderDisk`, `OlderFounding`, `ForeignLog`"),
    kind(27, "misdirected or stale sector", &[],
        "only the simulator: no disk of this machine lies on demand (`MisdirectedWrite`, `LostWrite`)"),
    kind(28, "every member damaged, each differently", &[],
        "only the simulator: it knows that one good copy of each piece is left (its harms to several disks \
         at once)"),
];
