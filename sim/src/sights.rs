//! Sights: the bad days that the simulator can make, and the checks that look on. Each one is a
//! switch of a [`Plan`](crate::plan::Plan), so that a sight may stand in the tree before the
//! product survives it.

use std::collections::BTreeSet;

/// One switch. Faults are drawn from a stream of their own, so that no switch moves another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    EmptyDisk,
    OlderDisk,
    OlderFounding,
    OlderLog,
    LogGone,
    /// The newest log file and `log/tip` are gone.
    LogAndTip,
    /// The last batch, and what stands behind it.
    TailGone,
    /// A log of another founding, without a state.
    ForeignLog,
    LogHole,
    StateGone,
    TailRot,
    Rot,
    RotAwake,
    RecordRot,
    LostWrite,
    MisdirectedWrite,
    BadSector,
    ReadsFail,
    NoRoomInside,
    Quota,
    LaneHung,
    Liveness,
    CatchUp,
    LeaseKept,
    LeaseEnds,
    Chatter,
    SentAgain,
    Records,
    BigValues,
    ManyLeases,
    SlowTurns,
    TickCap,
    Bandwidth,
    MaxFrame,
    DroppedFrames,
    SpaceAlarm,
    Differs,
    KilledThenPower,
    /// Snapshots under way lose connections and senders.
    PullBroken,
    /// A member stops cleanly before it has a state.
    StoppedEmpty,
    /// A harmed disk has no room when its member comes back.
    FullAtStart,
    /// Members come and go. Behind all that draw harm to disks: it takes that away, or some of it.
    Operator,
    /// Disks are harmed where members come and go: it says how much `Operator` takes away.
    HarmAndChanges,
    /// A majority is lost for good.
    Alone,
    /// Users and roles are changed.
    Users,
    /// Users are asked for.
    Asked,
    /// Values are shaped like batches of the log.
    Forged,
    /// Transactions that look at everything.
    LongTxns,
}

/// A switch as people name it.
#[derive(Debug)]
pub struct Entry {
    pub sight: Sight,
    pub name: &'static str,
    pub what: &'static str,
}

const fn entry(sight: Sight, name: &'static str, what: &'static str) -> Entry {
    Entry { sight, name, what }
}

pub const ALL: &[Entry] = &[
    entry(Sight::EmptyDisk, "empty-disk", "a member comes back with an empty disk"),
    entry(Sight::OlderDisk, "older-disk", "a member comes back with an older copy of its whole disk"),
    entry(
        Sight::OlderFounding,
        "older-founding",
        "a member comes back with the disk of another founding of the same cluster",
    ),
    entry(Sight::OlderLog, "older-log", "the newest log file is an older copy of itself"),
    entry(Sight::LogGone, "log-gone", "the newest log file is gone, an older one is left"),
    entry(Sight::LogAndTip, "log-and-tip", "the newest log file is gone, and the mark of how far it had come"),
    entry(
        Sight::TailGone,
        "tail-gone",
        "other bytes stand over the last batch of the log and all that is behind it, and perhaps no mark is left",
    ),
    entry(
        Sight::ForeignLog,
        "foreign-log",
        "a member comes back with the log of another founding of the same cluster, and without a state",
    ),
    entry(Sight::LogHole, "log-hole", "bytes of the log before its last batch change while the member is down"),
    entry(Sight::StateGone, "state-gone", "a member comes back without a checkpoint"),
    entry(Sight::TailRot, "tail-rot", "bytes of the last batch of the log change while the member is down"),
    entry(Sight::Rot, "rot", "bytes of any file change while the member is down"),
    entry(Sight::RotAwake, "rot-awake", "bytes of any file change while the member runs"),
    entry(Sight::RecordRot, "record-rot", "a record changes between its write and the checkpoint that names it"),
    entry(Sight::LostWrite, "lost-write", "flushes that were acknowledged are undone by a power loss"),
    entry(Sight::MisdirectedWrite, "misdirected-write", "a flushed write of the log lies a page away"),
    entry(Sight::BadSector, "bad-sector", "a page of the log or of an index cannot be read until it is written"),
    entry(Sight::ReadsFail, "reads-fail", "reads fail for a while"),
    entry(Sight::NoRoomInside, "no-room-inside", "writes into allocated space find no room"),
    entry(Sight::Quota, "quota", "the user's quota on the file system is used up"),
    entry(Sight::LaneHung, "lane-hung", "the jobs of one lane hang, others go on"),
    entry(Sight::Liveness, "liveness", "V-2: a healthy majority writes and reads while the rest is faulty"),
    entry(Sight::CatchUp, "catch-up", "V-5: a healthy member that lags makes progress"),
    entry(Sight::LeaseKept, "lease-kept", "L-3: a lease that is renewed at healthy members does not expire"),
    entry(Sight::LeaseEnds, "lease-ends", "L-4: a lease that nobody renews ends, during faults too"),
    entry(Sight::Chatter, "chatter", "N-1: no note or job is repeated for ever"),
    entry(Sight::SentAgain, "sent-again", "B-1: commands are not forwarded over and over"),
    entry(Sight::Records, "records", "D-4: at the end every record of every member is as the model says"),
    entry(Sight::BigValues, "big-values", "values of up to 100 kB"),
    entry(Sight::ManyLeases, "many-leases", "tens of thousands of leases, and a follower that needs a snapshot"),
    entry(
        Sight::SlowTurns,
        "slow-turns",
        "turns of a member take up to a sixth of an election timeout, 500 ms at most",
    ),
    entry(Sight::TickCap, "tick-cap", "after a pause a member lives through at most six of the missed ticks"),
    entry(Sight::Bandwidth, "bandwidth", "links have bandwidth, and frames queue in bounded lanes"),
    entry(Sight::MaxFrame, "max-frame", "a frame that is longer than a peer takes is dropped"),
    entry(Sight::SpaceAlarm, "space-alarm", "the members' quota is small, and clients raise and take back NOSPACE"),
    entry(Sight::DroppedFrames, "dropped-frames", "appends and pieces are dropped inside a live connection"),
    entry(Sight::Differs, "differs", "the state of a member differs from the others', with all its checksums right"),
    entry(Sight::KilledThenPower, "killed-then-power", "the power goes soon after a killed process was started again"),
    entry(Sight::PullBroken, "pull-broken", "connections break under pieces of a snapshot, or its sender dies"),
    entry(Sight::StoppedEmpty, "stopped-empty", "a member that has no state yet is stopped cleanly"),
    entry(Sight::FullAtStart, "full-at-start", "a harmed disk is full when its member comes back"),
    entry(Sight::Operator, "operator", "members are added, promoted, moved, replaced and removed"),
    entry(
        Sight::HarmAndChanges,
        "harm-and-changes",
        "disks are harmed where members come and go; founders lose their states behind changes",
    ),
    entry(
        Sight::Alone,
        "alone",
        "a majority is lost for good, one member goes on alone, others join it, and lost machines come back",
    ),
    entry(Sight::Users, "users", "U-1: clients change users and roles, and ask for them"),
    entry(Sight::Asked, "asked", "U-2: users are asked for: clients log in, and are let in or refused"),
    entry(Sight::Forged, "forged", "D-9: values are shaped like batches of the log"),
    entry(
        Sight::LongTxns,
        "long-txns",
        "transactions compare and read whole ranges of values that are in files, in steps",
    ),
];

/// A sight that the product does not survive today, the number of the fault that it shows, and what
/// is seen.
#[derive(Debug)]
pub struct NotYet {
    pub sight: Sight,
    pub fault: u32,
    pub seen: &'static str,
}

/// Off unless they are asked for. Whoever mends a fault takes its line out; `seeds.txt` has the
/// seeds that fail until then and must be clean from then on.
pub const NOT_YET: &[NotYet] = &[];

/// The switches of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sights(BTreeSet<Sight>);

impl Default for Sights {
    /// All that the product survives.
    fn default() -> Sights {
        let mut all = Sights::all();
        NOT_YET.iter().for_each(|n| all.set(n.sight, false));
        all
    }
}

impl Sights {
    pub fn all() -> Sights {
        Sights(ALL.iter().map(|e| e.sight).collect())
    }

    pub fn none() -> Sights {
        Sights(BTreeSet::new())
    }

    pub fn has(&self, sight: Sight) -> bool {
        self.0.contains(&sight)
    }

    pub fn set(&mut self, sight: Sight, on: bool) {
        if on {
            self.0.insert(sight);
        } else {
            self.0.remove(&sight);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Sight> + '_ {
        self.0.iter().copied()
    }
}

impl Sight {
    pub fn named(name: &str) -> Option<Sight> {
        ALL.iter().find(|e| e.name == name).map(|e| e.sight)
    }

    pub fn name(self) -> &'static str {
        ALL.iter().find(|e| e.sight == self).map_or("", |e| e.name)
    }
}

/// `sim --sights-table`: each sight, and the fault that keeps it off.
pub fn table() -> String {
    let mut page = String::new();
    for e in ALL {
        let off = NOT_YET.iter().find(|n| n.sight == e.sight);
        let why = off.map_or("on".to_string(), |n| format!("off: fault {}: {}", n.fault, n.seen));
        page.push_str(&format!("{:<18} {}\n{:<18}   {why}\n", e.name, e.what, ""));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sight_has_one_name_and_those_not_yet_survived_are_off() {
        let names: BTreeSet<&str> = ALL.iter().map(|e| e.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|e| Sight::named(e.name) == Some(e.sight) && e.sight.name() == e.name));
        assert!(NOT_YET.iter().all(|n| !Sights::default().has(n.sight) && Sights::all().has(n.sight)));
        assert_eq!(Sights::default().iter().count() + NOT_YET.len(), ALL.len());
        assert!(table().contains("empty-disk"));
    }
}
