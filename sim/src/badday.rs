//! What the new sights draw for a seed: harms to disks, and settings. One stream for each sight.

use crate::alone;
use crate::operator;
use crate::plan::{Fault, MS, Plan, Pulls, SECOND, Who};
use crate::rng::Rng;
use crate::sights::Sight;
use crate::trace::Time;

/// What happens to the disk of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Emptied,
    /// The whole disk as it was when the story began.
    Older,
    /// The disk that the member had after another founding of the same cluster, with so many
    /// elections.
    OlderFounding {
        elections: u64,
    },
    /// The newest log file as it was when the story began.
    OlderLog,
    /// The newest log file is not there, if there is one before it.
    LogGone,
    /// The same, and `log/tip` with it.
    LogAndTip,
    /// The last write of the log and some pages behind it; `tip`: and `log/tip` with it.
    TailGone {
        /// Zeros stand there, else junk.
        zeros: bool,
        /// `log/tip` is gone too.
        tip: bool,
        /// Chooses how much of it.
        draw: u64,
    },
    /// As `OlderFounding`, and there is no state.
    ForeignLog {
        /// How many elections that other cluster went through.
        elections: u64,
    },
    /// Some batch of the log before the last one; `draw` says which.
    LogHole(Spot, u64),
    /// All manifests.
    StateGone,
    /// The whole folder of the state.
    StateFolder,
    /// The last batch of the log.
    TailRot(Spot),
    /// Any file; `draw` says where.
    Rot(Spot, u64),
    /// A page of the log or of an index cannot be read until it is written; the number says which.
    BadSector(u64),
    /// Flushes between the beginning of the story and the power loss only seemed to happen.
    LostWrites,
    /// The last flushed write of the log lies a page away.
    Misdirected,
    /// The state is another than that of the other members, and all checksums are right. `leads`:
    /// the member is asked to lead before that is found.
    Differs {
        leads: bool,
    },
}

/// How much changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    Bit,
    Sector,
    Page,
    ZeroPage,
}

impl Harm {
    /// No trace of what is missing is left on the disk: only others can tell. While such a disk is
    /// not whole again, no other fault strikes, so that those who can tell are there.
    pub fn is_silent(self) -> bool {
        !matches!(
            self,
            Harm::TailRot(_)
                | Harm::Rot(..)
                | Harm::LogHole(..)
                | Harm::BadSector(_)
                | Harm::StateGone
                | Harm::StateFolder
                | Harm::Emptied
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            Harm::Emptied => "disk emptied",
            Harm::Older => "older disk",
            Harm::OlderFounding { .. } => "disk of another founding",
            Harm::OlderLog => "older log file",
            Harm::LogGone => "log file gone",
            Harm::LogAndTip => "log file and its mark gone",
            Harm::TailGone { .. } => "end of the log gone",
            Harm::ForeignLog { .. } => "log of another founding",
            Harm::LogHole(..) => "rot of an earlier batch",
            Harm::StateGone => "no checkpoint left",
            Harm::StateFolder => "no state left",
            Harm::TailRot(_) => "rot of the last batch",
            Harm::Rot(..) => "rot while down",
            Harm::BadSector(_) => "bad sector",
            Harm::LostWrites => "lost writes",
            Harm::Misdirected => "misdirected write",
            Harm::Differs { .. } => "state that differs",
        }
    }
}

/// How the member goes down before its disk is harmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Kill,
    Power,
    Clean,
}

/// A story: some members fall behind, then one of the others goes down and its disk is harmed.
/// It and those behind would be a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Story {
    pub harm: Harm,
    pub who: Who,
    /// How long the members behind are cut off; 0: nobody is.
    pub behind: Time,
    pub end: End,
    /// All other members die in the same moment.
    pub all: bool,
    pub down: Time,
}

/// What happens to disks that are full when their members come back.
const HARMS_OF_FULL_DISKS: &[Sight] = &[
    Sight::EmptyDisk,
    Sight::OlderDisk,
    Sight::LogGone,
    Sight::LogAndTip,
    Sight::TailGone,
    Sight::LogHole,
    Sight::StateGone,
    Sight::TailRot,
    Sight::TailRot,
    Sight::Rot,
    Sight::BadSector,
    Sight::LostWrite,
    Sight::MisdirectedWrite,
];

fn spot(rng: &mut Rng) -> Spot {
    *rng.pick(&[Spot::Bit, Spot::Bit, Spot::Sector, Spot::Page, Spot::ZeroPage])
}

fn harm_of(sight: Sight, rng: &mut Rng) -> Option<Harm> {
    Some(match sight {
        Sight::EmptyDisk => Harm::Emptied,
        Sight::OlderDisk => Harm::Older,
        Sight::OlderFounding => Harm::OlderFounding { elections: rng.below(8) },
        Sight::OlderLog => Harm::OlderLog,
        Sight::LogGone => Harm::LogGone,
        Sight::LogAndTip => Harm::LogAndTip,
        Sight::TailGone => Harm::TailGone { zeros: rng.percent(50), tip: rng.percent(40), draw: rng.draw() },
        Sight::ForeignLog => Harm::ForeignLog { elections: rng.below(8) },
        Sight::LogHole => Harm::LogHole(spot(rng), rng.draw()),
        Sight::StateGone => Harm::StateGone,
        Sight::TailRot => Harm::TailRot(spot(rng)),
        Sight::Rot => Harm::Rot(spot(rng), rng.draw()),
        Sight::BadSector => Harm::BadSector(rng.draw()),
        Sight::LostWrite => Harm::LostWrites,
        Sight::MisdirectedWrite => Harm::Misdirected,
        Sight::Differs => Harm::Differs { leads: rng.percent(50) },
        _ => return None,
    })
}

fn story(sight: Sight, rng: &mut Rng) -> Option<Fault> {
    let harm = harm_of(sight, rng)?;
    let end = match harm {
        Harm::LostWrites | Harm::Misdirected => End::Power,
        _ => *rng.pick(&[End::Kill, End::Power, End::Power, End::Clean]),
    };
    let story = Story {
        harm,
        who: if rng.percent(50) { Who::Leader } else { Who::Nth(rng.below(7) as usize) },
        behind: if rng.percent(70) { rng.between(500, 4_000) * MS } else { 0 },
        end,
        all: end != End::Clean && rng.percent(40),
        down: rng.between(20, 2_000) * MS,
    };
    Some(Fault::Hurt(match harm {
        // Nobody may need a snapshot of a state that is wrong.
        Harm::Differs { .. } => Story { behind: 0, all: false, ..story },
        _ => story,
    }))
}

fn fault(plan: &Plan, sight: Sight, rng: &mut Rng) -> Option<Fault> {
    let who = if rng.percent(60) { Who::Leader } else { Who::Nth(rng.below(plan.members as u64) as usize) };
    let lasts = rng.between(1, 8) * SECOND;
    Some(match sight {
        Sight::RotAwake => Fault::RotAwake { who, spot: spot(rng), draw: rng.draw() },
        Sight::RecordRot => Fault::RecordRot { who },
        Sight::ReadsFail => Fault::ReadsFail { who, lasts: lasts / 4, percent: *rng.pick(&[5, 50, 100]) },
        Sight::NoRoomInside => Fault::NoRoom { who, lasts, quota: false },
        Sight::Quota => Fault::NoRoom { who, lasts, quota: true },
        Sight::LaneHung => Fault::LaneHung { who, lane: *rng.pick(&[0, 2, 2, 1]), lasts: lasts * 3 },
        Sight::SlowTurns => {
            // What comes waits for one turn, and what the disk says for another: an exchange with
            // such a member takes three of its turns at most. A new leader needs two exchanges
            // before it serves anything: one to find where the logs meet, one for its first entry.
            // It has an election timeout before it gives way.
            let most = (plan.election_ms / 6).min(500);
            Fault::SlowTurns { who, lasts: lasts * 8, cost: rng.between(most / 2, most) * MS }
        }
        Sight::DroppedFrames => Fault::Drops { lasts, per_myriad: rng.between(10, 2_000) },
        Sight::FullAtStart => return story(*rng.pick(HARMS_OF_FULL_DISKS), rng),
        _ => return story(sight, rng),
    })
}

/// Percent of the seeds that a sight's faults fall on, where it is not the usual share.
fn share(sight: Sight) -> u64 {
    match sight {
        Sight::BigValues => 10,
        Sight::ManyLeases => 2,
        Sight::Operator => 20,
        Sight::Differs
        | Sight::StoppedEmpty
        | Sight::OlderFounding
        | Sight::ForeignLog
        | Sight::FullAtStart
        | Sight::Alone => 8,
        Sight::Bandwidth => 20,
        Sight::Asked => 12,
        Sight::LongTxns => 12,
        Sight::Forged => 6,
        _ => 15,
    }
}

/// Adds what the switched-on sights draw for this seed.
pub(crate) fn add(plan: &mut Plan) {
    for sight in plan.sights.clone().iter() {
        let mut rng = Rng::new(plan.seed, &format!("sight {}", sight.name()));
        let asked = |sight| plan.always.contains(&sight);
        // A sight that was asked for alone shows itself in every seed.
        let asked = asked(sight) || sight == Sight::Operator && asked(Sight::HarmAndChanges);
        if !rng.percent(share(sight)) && !asked {
            continue;
        }
        if sight == Sight::Operator && !plan.always.is_empty() && !asked {
            // A sight that was asked for alone is not hidden by it.
            continue;
        }
        settings(plan, sight, &mut rng);
        let until = plan.until - 4 * SECOND;
        let mut at = 2 * SECOND + rng.delay(4 * SECOND);
        for _ in 0..rng.between(1, 4) {
            if at < until
                && let Some(fault) = fault(plan, sight, &mut rng)
            {
                plan.faults.push((at, fault));
            }
            at += rng.delay(7 * SECOND);
        }
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

fn settings(plan: &mut Plan, sight: Sight, rng: &mut Rng) {
    match sight {
        Sight::Operator => operator::command(plan, rng),
        Sight::Alone => alone::draw(plan, rng),
        Sight::BigValues => {
            plan.workload.value = 100_000;
            plan.workload.long = rng.between(10, 60);
        }
        Sight::SlowTurns => {
            plan.until += 40 * SECOND;
            if rng.percent(50) {
                // As an operator of slow machines sets it: room for turns of half a second.
                (plan.election_ms, plan.heartbeat_ms) = (3_000, 300);
            }
        }
        Sight::Bandwidth => plan.bandwidth = *rng.pick(&[250_000, 1_000_000, 2_500_000, 20_000_000]),
        Sight::ManyLeases if plan.members > 1 => {
            plan.leases = 50_000;
            plan.max_request_bytes = 256 << 10;
            plan.small_budgets = false;
            plan.checkpoint_bytes = 256 << 10;
            plan.log_segment_bytes = 64 << 10;
            // One is away while they are granted, and needs a snapshot when it is back.
            let who = Who::Nth(rng.below(plan.members as u64) as usize);
            plan.faults.push((3 * SECOND, Fault::Crash { who, power: false, down: 11 * SECOND }));
        }
        Sight::SpaceAlarm => {
            plan.quota = rng.between(8_000, 40_000) as i64;
            // Deletes exactly at the compacted revision are kept: those of few keys fit.
            plan.workload.many = false;
            let kinds = crate::client::KINDS.iter().zip(&mut plan.workload.weights);
            kinds.filter(|(kind, _)| kind.name == crate::client::ALARM).for_each(|(_, weight)| *weight = 4);
        }
        Sight::Users => {
            use crate::client::{KINDS, USERS, USERS_ASKED};
            for (kind, weight) in KINDS.iter().zip(&mut plan.workload.weights) {
                match kind.name {
                    USERS => *weight = 8,
                    USERS_ASKED => *weight = 4,
                    _ => {}
                }
            }
        }
        // Values of 160 kB are more than a narrow link carries in time.
        Sight::Forged if !(1..2_500_000).contains(&plan.bandwidth) => {
            plan.workload.forged = rng.between(5, 30);
            // Files that are soon used again, longer than what is blank ahead of the log, and a
            // start that looks at them.
            plan.log_segment_bytes = 256 << 10;
            plan.checkpoint_bytes = plan.checkpoint_bytes.min(16 << 10);
            for _ in 0..4 {
                let who = Who::Nth(rng.below(plan.members as u64) as usize);
                let at = 4 * SECOND + rng.below(20 * SECOND);
                plan.faults.push((at, Fault::Crash { who, power: rng.percent(50), down: 300 * MS }));
            }
        }
        Sight::Asked => {
            use crate::client::{ASKED, KINDS, USERS_ASKED};
            plan.asked = true;
            for (kind, weight) in KINDS.iter().zip(&mut plan.workload.weights) {
                match kind.name {
                    ASKED => *weight = 16,
                    USERS_ASKED => *weight = 4,
                    _ => {}
                }
            }
        }
        Sight::LongTxns => {
            plan.workload.many = true;
            plan.steps = Some(*rng.pick(&[(7, 200), (40, 2_000), (500, 40_000)]));
            let kinds = crate::client::KINDS.iter().zip(&mut plan.workload.weights);
            kinds.filter(|(kind, _)| kind.name == crate::client::LONG_TXN).for_each(|(_, weight)| *weight = 12);
        }
        Sight::KilledThenPower => {
            plan.killed_then_power = rng.between(40, 90);
            // What is lost then must still be unflushed.
            plan.flush = 5_000;
        }
        Sight::Differs => {
            plan.digest_every = *rng.pick(&[8, 32, 64]);
            plan.until += 10 * SECOND;
        }
        Sight::PullBroken if plan.members > 1 => {
            plan.pulls = Pulls { breaks: *rng.pick(&[10, 30, 50]), dies: *rng.pick(&[0, 10, 30]) };
            // Snapshots of some pieces, and somebody who needs one.
            plan.checkpoint_bytes = plan.checkpoint_bytes.min(16 << 10);
            (plan.segment_bytes, plan.log_segment_bytes) = (16 << 10, 16 << 10);
            plan.workload.value = plan.workload.value.max(3_000);
            plan.workload.long = plan.workload.long.max(30);
            for at in [3, 16] {
                let who = Who::Nth(rng.below(plan.members as u64) as usize);
                plan.faults.push((at * SECOND, Fault::Crash { who, power: false, down: 6 * SECOND }));
            }
            plan.until += 10 * SECOND;
        }
        Sight::StoppedEmpty if plan.members > 1 => {
            plan.stops_empty = 70;
            let (who, behind) = (Who::Nth(rng.below(7) as usize), 0);
            let story = Story { harm: Harm::StateGone, who, behind, end: End::Kill, all: false, down: SECOND };
            plan.faults.push((rng.between(5, 20) * SECOND, Fault::Hurt(story)));
        }
        Sight::FullAtStart => plan.full_at_start = rng.between(50, 90),
        Sight::LaneHung => {
            plan.small_budgets = true;
            plan.until += 20 * SECOND;
        }
        _ => {}
    }
}
