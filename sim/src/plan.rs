//! What a seed means: the cluster, its limits, its workload and its faults, all decided before
//! the first event.

use crate::alone::Loss;
use crate::badday::{self, Spot, Story};
use crate::operator::Order;
use crate::rng::Rng;
use crate::sights::{Sight, Sights};
use crate::trace::Time;

pub const MS: Time = 1_000;
pub const SECOND: Time = 1_000_000;

/// Whom a fault hits; decided when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Member by position.
    Nth(usize),
    Leader,
}

/// Which connections are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One alone, both directions.
    Isolate(Who),
    /// It is heard by nobody.
    Mute(Who),
    /// It hears nobody.
    Deaf(Who),
    /// Two groups, drawn by the bits.
    Halves(u64),
    /// Two groups and one member that sees both.
    Bridge(u64, Who),
    /// Everyone sees only its two neighbours.
    Ring,
    /// One directed link.
    OneWay(usize, usize),
    /// The leader loses the connection to one follower, both directions.
    Link(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies; `power`: the machine too. Down for `down`.
    Crash {
        who: Who,
        power: bool,
        down: Time,
    },
    /// Dies right after the `call`-th disk call of its next job of the lane.
    CrashAtCall {
        who: Who,
        lane: usize,
        call: u32,
        power: bool,
        down: Time,
    },
    CrashAll {
        power: bool,
        down: Time,
    },
    /// Its disk is gone for ever and it never comes back.
    Lose {
        who: Who,
    },
    Cut {
        shape: Shape,
        lasts: Time,
        breaks: bool,
    },
    /// Every connection breaks often for a while.
    Storm {
        lasts: Time,
        per_myriad: u64,
    },
    /// Messages take this much longer for a while.
    Lag {
        lasts: Time,
        delay: Time,
    },
    Freeze {
        who: Who,
        lasts: Time,
    },
    SlowDisk {
        who: Who,
        lasts: Time,
        percent: u64,
    },
    StallDisk {
        who: Who,
        lasts: Time,
    },
    /// The next job of the lane fails at its `call`-th disk call, or at the first flush after it.
    FailCall {
        who: Who,
        lane: usize,
        call: u32,
        flush: bool,
        pages_lost: bool,
    },
    /// Nothing that needs more room can be written for a while.
    FullDisk {
        who: Who,
        lasts: Time,
    },
    /// The wall clock jumps. No member knows it; nothing may happen.
    ClockJump {
        who: Who,
    },
    /// Asks the leader to hand over.
    Transfer {
        to: usize,
    },
    /// Clean stop and start.
    Restart {
        who: Who,
        down: Time,
    },
    /// A disk is harmed while its member is down.
    Hurt(Story),
    /// Bytes of a file change under a running member; `draw` says where.
    RotAwake {
        who: Who,
        spot: Spot,
        draw: u64,
    },
    /// The next record that is written is damaged before a checkpoint names it.
    RecordRot {
        who: Who,
    },
    /// Reads fail for a while, so many of a hundred.
    ReadsFail {
        who: Who,
        lasts: Time,
        percent: u64,
    },
    /// Nothing can be written for a while, allocated or not; `quota`: nothing that needs more room,
    /// and the system says that it is the quota.
    NoRoom {
        who: Who,
        lasts: Time,
        quota: bool,
    },
    /// Jobs of one lane wait, those of the others go on.
    LaneHung {
        who: Who,
        lane: usize,
        lasts: Time,
    },
    /// A member without enough of a processor: its turns take `cost`.
    SlowTurns {
        who: Who,
        lasts: Time,
        cost: Time,
    },
    /// A majority is lost for good, and one member goes on alone.
    Alone(Loss),
    /// So many of 10,000 appends and pieces are dropped inside a live connection.
    Drops {
        lasts: Time,
        per_myriad: u64,
    },
}

impl Fault {
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Crash { power: false, .. } => "kill",
            Fault::Crash { .. } => "power loss",
            Fault::CrashAtCall { power: false, .. } => "kill at a disk call",
            Fault::CrashAtCall { .. } => "power loss at a disk call",
            Fault::CrashAll { power: false, .. } => "kill all",
            Fault::CrashAll { .. } => "power loss of all",
            Fault::Lose { .. } => "disk lost for ever",
            Fault::Cut { shape, .. } => match shape {
                Shape::Isolate(_) => "isolate one",
                Shape::Mute(_) | Shape::Deaf(_) | Shape::OneWay(..) => "one-way cut",
                Shape::Halves(_) => "partition",
                Shape::Bridge(..) => "bridge",
                Shape::Ring => "ring",
                Shape::Link(..) => "cut link",
            },
            Fault::Storm { .. } => "connections break",
            Fault::Lag { .. } => "slow network",
            Fault::Freeze { .. } => "pause",
            Fault::SlowDisk { .. } => "slow disk",
            Fault::StallDisk { .. } => "hung disk",
            Fault::FailCall { flush: true, .. } => "failing flush",
            Fault::FailCall { .. } => "failing write",
            Fault::FullDisk { .. } => "full disk",
            Fault::ClockJump { .. } => "clock jump",
            Fault::Transfer { .. } => "leader moved",
            Fault::Restart { .. } => "clean restart",
            Fault::Hurt(story) => story.harm.name(),
            Fault::RotAwake { .. } => "rot while running",
            Fault::RecordRot { .. } => "rot of a fresh record",
            Fault::ReadsFail { .. } => "failing reads",
            Fault::NoRoom { quota: false, .. } => "no room in allocated space",
            Fault::NoRoom { .. } => "quota used up",
            Fault::LaneHung { .. } => "hung lane",
            Fault::SlowTurns { .. } => "slow turns",
            Fault::Alone(_) => "majority lost for good",
            Fault::Drops { .. } => "dropped frames",
        }
    }
}

/// Parts of a hundred of each kind of operation; the swarm: each seed has its own mixture.
#[derive(Clone, Debug)]
pub struct Workload {
    pub clients: usize,
    /// Mean pause of a client between two operations.
    pub think: Time,
    /// Length of the key list that is used.
    pub keys: usize,
    /// Weights, in the order of `client::KINDS`.
    pub weights: Vec<u64>,
    pub deadline: Time,
    /// Hundreds of keys beside the hostile ones.
    pub many: bool,
    /// Longest value, bytes.
    pub value: u64,
    /// Percent of the values that are near it; 0: one of twenty.
    pub long: u64,
    /// Percent of the puts whose values look like parts of the log.
    pub forged: u64,
    pub streams: usize,
    pub stalls: bool,
}

/// What happens to snapshots while they are pulled: percent of the pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulls {
    /// The connection breaks under it.
    pub breaks: u64,
    /// Its sender dies.
    pub dies: u64,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub members: usize,
    /// End of the safety phase.
    pub until: Time,
    pub election_ms: u64,
    pub heartbeat_ms: u64,
    pub segment_bytes: u32,
    pub log_segment_bytes: u64,
    pub checkpoint_bytes: u64,
    pub small_budgets: bool,
    /// Clients say who they are, and users are asked for some of the time.
    pub asked: bool,
    /// Percent of the kills behind whose next start the power goes.
    pub killed_then_power: u64,
    /// What happens to snapshots under way.
    pub pulls: Pulls,
    /// Percent of the starts without a state that end in a clean stop soon.
    pub stops_empty: u64,
    /// Percent of the harmed disks that are full when their member comes back.
    pub full_at_start: u64,
    /// Entries between two comparisons of digests.
    pub digest_every: u64,
    /// Mean one-way delay.
    pub delay: Time,
    /// Frames of 10,000 that break their connection.
    pub breaks: u64,
    /// In percent: what was under way on a broken connection still arrives.
    pub ghosts: u64,
    /// Mean of a disk flush.
    pub flush: Time,
    /// Percent that each member's clock runs fast.
    pub skew: Vec<i64>,
    /// After a pause the missed ticks come at once; else they are gone.
    pub ticks_catch_up: bool,
    pub workload: Workload,
    pub sights: Sights,
    /// Sights that show themselves in every seed, not in their share of them.
    pub always: Vec<Sight>,
    /// Bytes a second of each directed link; 0: no bound.
    pub bandwidth: u64,
    /// As the server's flag: the longest frame follows from it.
    pub max_request_bytes: u64,
    /// Leases that are granted in a flood, 0: none.
    pub leases: u64,
    /// Bytes of living versions from which on writes are refused; -1: no bound.
    pub quota: i64,
    /// Keys that apply looks at in a turn, and bytes that it reads at once; None: as usual.
    pub steps: Option<(usize, u64)>,
    pub faults: Vec<(Time, Fault)>,
    /// Slots for members that are added.
    pub spares: usize,
    /// What the operator is told to do.
    pub orders: Vec<(Time, Order)>,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        Plan::with(seed, Sights::default(), Vec::new())
    }

    /// The plan of a seed with these sights switched on; those in `always` whatever the seed says.
    pub fn with(seed: u64, sights: Sights, always: Vec<Sight>) -> Plan {
        let mut rng = Rng::new(seed, "plan");
        let members = *rng.pick(&[1, 3, 3, 3, 3, 5, 5, 7]);
        let until = (30 + rng.below(8)) * SECOND;
        let election_ms = *rng.pick(&[300, 500, 1000, 1000]);
        let heartbeat_ms = if election_ms == 1000 { 100 } else { *rng.pick(&[30, 50]) };
        let mut plan = Plan {
            seed,
            members,
            until,
            election_ms,
            heartbeat_ms,
            segment_bytes: *rng.pick(&[16 << 10, 32 << 10, 128 << 10]),
            log_segment_bytes: *rng.pick(&[16 << 10, 32 << 10, 64 << 10, 256 << 10]),
            checkpoint_bytes: *rng.pick(&[1 << 10, 4 << 10, 4 << 10, 16 << 10, 1 << 20]),
            small_budgets: rng.percent(50),
            asked: false,
            killed_then_power: 0,
            pulls: Pulls::default(),
            stops_empty: 0,
            full_at_start: 0,
            digest_every: 4_096,
            delay: *rng.pick(&[200, 500, 2_000, 10_000]),
            breaks: *rng.pick(&[0, 0, 1, 5, 20]),
            ghosts: *rng.pick(&[0, 30, 70]),
            flush: *rng.pick(&[300, 1_500, 5_000]),
            skew: (0..members).map(|_| rng.between(0, 20) as i64 - 10).collect(),
            ticks_catch_up: rng.percent(50),
            workload: workload(&mut Rng::new(seed, "workload plan")),
            sights,
            always,
            bandwidth: 0,
            max_request_bytes: 3 << 19,
            leases: 0,
            quota: -1,
            steps: None,
            faults: Vec::new(),
            spares: 0,
            orders: Vec::new(),
        };
        plan.faults = faults(&plan, &mut Rng::new(seed, "fault plan"));
        badday::add(&mut plan);
        plan
    }
}

fn workload(rng: &mut Rng) -> Workload {
    let mut weights: Vec<u64> = crate::client::KINDS.iter().map(|k| k.weight).collect();
    // What came later is switched on by its sight alone, and moves no other draw.
    let kinds = crate::client::KINDS.iter().take_while(|kind| kind.name != crate::client::USERS);
    for (weight, kind) in weights.iter_mut().zip(kinds) {
        match rng.below(6) {
            0 if !kind.needed => *weight = 0,
            1 => *weight *= 4,
            _ => {}
        }
    }
    Workload {
        clients: rng.between(3, 8) as usize,
        think: rng.between(40, 160) * MS,
        keys: rng.between(4, crate::client::KEYS.len() as u64) as usize,
        weights,
        deadline: rng.between(1_500, 6_000) * MS,
        many: rng.percent(25),
        value: *rng.pick(&[20, 60, 300, 3_000]),
        long: 0,
        forged: 0,
        streams: rng.between(1, 4) as usize,
        stalls: rng.percent(40),
    }
}

/// A mean gap per seed decides how rough it is; each fault kind may be off in a seed.
fn faults(plan: &Plan, rng: &mut Rng) -> Vec<(Time, Fault)> {
    let gap = *rng.pick(&[1_200, 2_500, 5_000]) * MS;
    let on: Vec<bool> = (0..KINDS).map(|_| rng.percent(65)).collect();
    let mut all = Vec::new();
    let mut lost = 0;
    let mut at = 2 * SECOND + rng.delay(gap);
    while at < plan.until - SECOND {
        let kind = rng.below(KINDS as u64) as usize;
        if on[kind] {
            let fault = draw(plan, kind, rng);
            let allowed = match fault {
                Fault::Lose { .. } => {
                    lost += 1;
                    lost * 2 < plan.members
                }
                Fault::Cut { .. } | Fault::Transfer { .. } => plan.members > 1,
                _ => true,
            };
            if allowed {
                all.push((at, fault));
            }
        }
        at += rng.delay(gap);
    }
    all
}

const KINDS: usize = 19;

fn draw(plan: &Plan, kind: usize, rng: &mut Rng) -> Fault {
    let n = plan.members as u64;
    let election = plan.election_ms * MS;
    let who = if rng.percent(45) { Who::Leader } else { Who::Nth(rng.below(n) as usize) };
    let lasts = election / 4 + rng.below(6 * election);
    let down = *rng.pick(&[20 * MS, 300 * MS, 2 * SECOND, 5 * SECOND, 12 * SECOND]) + rng.below(300 * MS);
    let lane = *rng.pick(&[0, 0, 0, 2, 2, 1]);
    let call = *rng.pick(&[1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10]);
    let one = rng.below(n) as usize;
    let other = (one + 1 + rng.below(n.max(2) - 1) as usize) % plan.members;
    match kind {
        0 => Fault::Crash { who, power: false, down },
        1 | 2 => Fault::Crash { who, power: true, down },
        3 | 4 => Fault::CrashAtCall { who, lane, call, power: rng.percent(70), down },
        5 => Fault::CrashAll { power: rng.percent(70), down: down.min(SECOND) },
        6 => Fault::Lose { who },
        7 | 8 => {
            let shape = match rng.below(9) {
                0 | 1 => Shape::Isolate(who),
                2 => Shape::Mute(who),
                3 => Shape::Deaf(who),
                4 => Shape::Halves(rng.draw()),
                5 => Shape::Bridge(rng.draw(), who),
                6 => Shape::Ring,
                7 => Shape::OneWay(one, other),
                _ => Shape::Link(one, other),
            };
            Fault::Cut { shape, lasts, breaks: rng.percent(60) }
        }
        9 => Fault::Storm { lasts, per_myriad: rng.between(50, 1500) },
        10 => Fault::Lag { lasts, delay: rng.between(10, 700) * MS },
        11 | 12 => Fault::Freeze { who, lasts: rng.between(50, 4 * plan.election_ms) * MS },
        13 => Fault::SlowDisk { who, lasts, percent: *rng.pick(&[500, 3_000, 10_000]) },
        14 => Fault::StallDisk { who, lasts },
        15 => Fault::FailCall { who, lane, call, flush: rng.percent(60), pages_lost: rng.percent(50) },
        16 => match rng.below(3) {
            0 => Fault::ClockJump { who },
            _ => Fault::Transfer { to: one },
        },
        17 => Fault::FullDisk { who, lasts },
        _ => Fault::Restart { who, down },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_long_enough_and_every_size_and_fault_occurs() {
        let mut sizes = std::collections::BTreeSet::new();
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let plan = Plan::new(seed);
            assert!(plan.until >= 30 * SECOND);
            sizes.insert(plan.members);
            kinds.extend(plan.faults.iter().map(|(_, f)| f.kind()));
        }
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [1, 3, 5, 7]);
        assert!(kinds.len() >= 20, "{kinds:?}");
    }
}
