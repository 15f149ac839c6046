//! A cluster loses its majority for good, and one member goes on alone with `--force-new-cluster`.
//! Others join it. Some of the lost machines boot again later, with their old disks: nothing of
//! theirs may enter the new cluster.
//!
//! The survivor is one that has everything that was acknowledged. What another one lacks is lost by
//! what was done to the disks, and no check could be held against it.

use crate::badday::{End, Harm, Story};
use crate::cluster::{Event, Sim};
use crate::operator::{Order, may_come, two_spares};
use crate::oracle::Harmed;
use crate::plan::{Fault, MS, Plan, SECOND, Who};
use crate::planted::Planted;
use crate::rng::Rng;
use crate::run::Phase;
use crate::trace::Time;
use consensus::{Entry, EntryKind, HardState};
use disk::{Log, LogOptions, OnDoubt};
use node::Output;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How a majority is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Chooses the survivor.
    pub draw: u64,
    /// The power of the survivor goes too; else its process is killed.
    pub power: bool,
    /// Until it is started with the flag.
    pub down: Time,
    /// Slots whose machines boot again, by the bits.
    pub returns: u64,
    /// When they do, and for how long.
    pub back: (Time, Time),
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// Started with the flag until it serves.
    forced: Option<usize>,
    /// Slots of lost machines that boot again.
    old: BTreeSet<usize>,
}

/// What the sight draws for a seed. A seed whose operator has other orders is left as it is.
pub(crate) fn draw(plan: &mut Plan, rng: &mut Rng) {
    if plan.members < 3 || plan.spares > 0 {
        return;
    }
    plan.faults.retain(|(_, fault)| may_come(fault, false));
    plan.stops_empty = 0;
    two_spares(plan, rng);
    let at = rng.between(6_000, 20_000) * MS;
    let loss = Loss {
        draw: rng.draw(),
        power: rng.percent(60),
        down: rng.between(20, 2_000) * MS,
        returns: if rng.percent(70) { rng.draw() } else { 0 },
        back: (rng.between(100, 8_000) * MS, rng.between(1_000, 8_000) * MS),
    };
    plan.faults.push((at, Fault::Alone(loss)));
    plan.until += 15 * SECOND;
    let mut order = at + rng.delay(2 * SECOND);
    if rng.percent(50) {
        // Nobody could give it another state.
        let harm = *rng.pick(&[Harm::StateGone, Harm::StateFolder]);
        let story = Story { harm, who: Who::Leader, behind: 0, end: End::Kill, all: false, down: loss.down };
        let struck = at + loss.down + rng.between(2_000, 5_000) * MS;
        plan.faults.push((struck, Fault::Hurt(story)));
        order = struck + SECOND;
    }
    for nth in 0..rng.between(2, 6) {
        let (who, first) = (rng.below(plan.members as u64 + 2) as usize, rng.percent(50));
        let next = if nth < 2 { Order::Add { learner: first } } else { Order::Replace { who, first } };
        plan.orders.push((order, next));
        order += rng.delay(4 * SECOND);
    }
}

impl Sim {
    /// This machine is one of the lost ones, and is running again or will.
    pub(crate) fn is_old(&self, who: usize) -> bool {
        self.alone.old.contains(&who)
    }

    /// All members but one are lost for good, and that one is started with the flag.
    pub(crate) fn lose_majority(&mut self, nth: usize, loss: Loss) -> bool {
        let voters = self.electorate();
        let whole = |who: &usize| self.members[*who].up.is_some() && self.oracle.has_all(*who);
        let able: Vec<usize> = voters.iter().copied().filter(whole).collect();
        let busy = self.any_hurt() || !self.operator_rests() || self.alone.forced.is_some();
        if voters.len() < 3 || busy || able.is_empty() {
            return false;
        }
        let survivor = able[loss.draw as usize % able.len()];
        for lost in self.standing().into_iter().filter(|who| *who != survivor) {
            self.crash(lost, true, None);
            self.members[lost].gone = true;
            if loss.returns >> lost & 1 == 1 {
                self.alone.old.insert(lost);
                let soon = self.rng.below(2 * SECOND);
                self.at(self.now + loss.down + loss.back.0 + soon, Event::FaultEnds { nth, member: lost });
            } else {
                self.empty_slot(lost);
            }
        }
        self.alone.forced = Some(survivor);
        self.crash(survivor, loss.power, Some(loss.down));
        true
    }

    /// A lost machine boots, or goes down for ever.
    pub(crate) fn old_machine(&mut self, nth: usize, who: usize, lasts: Time) {
        if self.phase != Phase::Safety || !self.is_old(who) {
            return;
        }
        if !self.members[who].gone {
            return self.old_machine_ends(who);
        }
        self.members[who].gone = false;
        self.oracle.on_harmed(who, Harmed::Foreign);
        self.marks.hit("a machine of the cluster before came back");
        self.at(self.now + lasts, Event::FaultEnds { nth, member: who });
        self.start(who);
    }

    fn old_machine_ends(&mut self, who: usize) {
        self.crash(who, false, None);
        self.alone.old.remove(&who);
        self.empty_slot(who);
    }

    /// None is left in peace.
    pub(crate) fn old_machines_end(&mut self) {
        for who in self.alone.old.clone() {
            self.old_machine_ends(who);
        }
    }

    /// Before a start: what the flag does.
    pub(crate) fn goes_on_alone(
        &self,
        who: usize,
        config: &node::Config,
        out: &mut Vec<Output>,
    ) -> Result<(), disk::Fault> {
        if self.alone.forced != Some(who) {
            return Ok(());
        }
        if self.is(Planted::AloneDropsTail) {
            self.drop_tail(who, config)?;
        }
        node::alone(config, &self.members[who].files, out)
    }

    /// It serves: from now on it decides by itself.
    pub(crate) fn went_on_alone(&mut self, who: usize) {
        if self.alone.forced == Some(who) {
            self.alone.forced = None;
            self.oracle.on_alone(self.members[who].id);
            self.marks.hit("a member went on alone");
        }
    }

    /// Planted: entries that are not known to be committed give way to another one.
    fn drop_tail(&self, who: usize, config: &node::Config) -> Result<(), disk::Fault> {
        let (id, files) = (self.identity(who), Arc::clone(&self.members[who].files));
        let options =
            LogOptions { segment_bytes: config.log_segment_bytes, boot: config.kernel_boot, salt: config.log_salt };
        let (mut log, found) = Log::recover(files, id, options, None, OnDoubt::Peers)?;
        let HardState { term, commit, .. } = found.hard;
        if found.last.index <= commit || commit < log.boundary().index {
            return Ok(());
        }
        let entry = Entry { index: commit + 1, term: term + 1, kind: EntryKind::Normal, data: Default::default() };
        log.save(HardState { term: term + 1, vote: id.member, commit }, &[entry])
    }
}
