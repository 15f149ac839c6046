//! The operator: adds, promotes, moves and removes members while everything else goes on.
//!
//! One change after the other: it looks at the members, asks for the change, looks again, and goes
//! on when the members are as it wanted. A change whose outcome is not known is asked for until it
//! is there. A seed with an operator has one slot more than founders, or two. In some of them disks
//! are harmed too: then no change begins that would leave the harmed ones too few whole ones beside
//! them.

use crate::badday::{End, Harm, Story};
use crate::clients::Reader;
use crate::cluster::{Event, Sim};
use crate::disk::{Disk, Speed};
use crate::oracle::Harmed;
use crate::plan::{Fault, MS, Plan, SECOND, Shape, Who};
use crate::planted::Planted;
use crate::rng::Rng;
use crate::run::Phase;
use crate::sights::Sight;
use crate::trace::Time;
use node::{Answer, Input, Refusal, Request, Waiter};
use std::collections::{BTreeSet, VecDeque};
use store::command::MemberChangeKind;
use store::{Member, MemberChange};

/// What the operator is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A new member, at once with a vote or as a learner that is promoted.
    Add {
        /// It has no vote at first.
        learner: bool,
    },
    /// One goes.
    Remove {
        /// Its slot.
        who: usize,
    },
    /// One goes and a new one comes. `first`: the new one.
    Replace {
        /// Slot of the one that goes.
        who: usize,
        /// The new one comes first.
        first: bool,
    },
    /// One gets another URL.
    Update {
        /// Its slot.
        who: usize,
    },
}

/// One change. `id`: of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add {
        slot: usize,
        id: u64,
        learner: bool,
    },
    Promote {
        id: u64,
    },
    Remove {
        slot: usize,
        id: u64,
    },
    Update {
        id: u64,
        to: u64,
    },
    /// The process of a removed member ends.
    End {
        slot: usize,
        id: u64,
    },
}

/// A step under way.
#[derive(Debug)]
struct Current {
    step: Step,
    since: Time,
    /// It was asked for, and nobody knows what came of it.
    unsure: bool,
}

/// A question under way.
#[derive(Debug)]
struct Asked {
    who: usize,
    life: u64,
    waiter: Waiter,
    at: Time,
    /// The change itself; else the members.
    change: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Operator {
    /// How many of the plan's orders were taken.
    taken: usize,
    steps: VecDeque<Step>,
    current: Option<Current>,
    asked: Option<Asked>,
    /// Of members that are no more.
    former: BTreeSet<u64>,
    /// Slots whose member was added and has no state yet.
    joining: BTreeSet<usize>,
    /// What a joiner is told of the others.
    told: Vec<(Member, bool)>,
    next_id: u64,
}

/// Ids of new members begin here.
const FIRST: u64 = 100;
/// An answer is waited for so long.
const PATIENCE: Time = 8 * SECOND;
/// Election timeouts without a leader in which a member without a state stands for election, if it
/// ever does.
const LONELY: u64 = 14;
/// A change that is refused for so long is given up.
const GIVE_UP: Time = 12 * SECOND;

/// Orders for a seed.
pub(crate) fn command(plan: &mut Plan, rng: &mut Rng) {
    plan.skew.push(rng.between(0, 20) as i64 - 10);
    let mut hurts = Rng::new(plan.seed, "harm among changes");
    let among =
        plan.sights.has(Sight::HarmAndChanges) && (hurts.percent(50) || plan.always.contains(&Sight::HarmAndChanges));
    plan.faults.retain(|(_, fault)| may_come(fault, among));
    plan.stops_empty = 0;
    plan.spares = 1;
    let slots = plan.members + 1;
    let mut at = 3 * SECOND + rng.delay(3 * SECOND);
    while at < plan.until - 3 * SECOND {
        let who = rng.below(slots as u64) as usize;
        let order = match rng.below(10) {
            0 | 1 => Order::Add { learner: rng.percent(50) },
            2 => Order::Remove { who },
            3 => Order::Update { who },
            _ => Order::Replace { who, first: rng.percent(50) },
        };
        plan.orders.push((at, order));
        at += rng.delay(5 * SECOND);
    }
    if among {
        harm_among(plan, &mut hurts);
    }
}

/// Whether this fault may strike where members come and go. `among`: disks are harmed too.
///
/// Not there: a member that is lost for ever (its slot would be free), disks of other members'
/// histories, and an emptied one, which its operator replaces.
pub(crate) fn may_come(fault: &Fault, among: bool) -> bool {
    match fault {
        Fault::Lose { .. } => false,
        Fault::Hurt(story) => {
            let apart = matches!(
                story.harm,
                Harm::Emptied | Harm::OlderFounding { .. } | Harm::ForeignLog { .. } | Harm::Differs { .. }
            );
            among && !apart
        }
        Fault::RotAwake { .. } | Fault::RecordRot { .. } | Fault::ReadsFail { .. } => among,
        _ => true,
    }
}

/// Founders lose their states when others than the founders vote: the flags of their start name
/// the founders alone. Some of them come back among a few.
fn harm_among(plan: &mut Plan, rng: &mut Rng) {
    if plan.members <= 5 && rng.percent(50) {
        two_spares(plan, rng);
    }
    let learner = rng.percent(50);
    for at in 0..plan.spares as u64 {
        plan.orders.push((2 * SECOND + at, Order::Add { learner }));
    }
    plan.orders.sort_by_key(|(at, _)| *at);
    let mut at = 6 * SECOND + rng.delay(4 * SECOND);
    for _ in 0..rng.between(1, 3) {
        if at > plan.until - 4 * SECOND {
            break;
        }
        let founder = rng.below(plan.members as u64);
        let story = Story {
            harm: *rng.pick(&[Harm::StateGone, Harm::StateFolder]),
            who: Who::Nth(founder as usize),
            behind: if rng.percent(40) { rng.between(500, 3_000) * MS } else { 0 },
            end: *rng.pick(&[End::Kill, End::Power, End::Clean]),
            all: rng.percent(40),
            down: rng.between(20, 2_000) * MS,
        };
        let struck = at + story.behind.max(400 * MS) + story.down;
        plan.faults.push((at, Fault::Hurt(story)));
        if rng.percent(70) {
            // A majority of the founders, and nobody else; or any halves.
            let most = (0..=plan.members as u64 / 2).map(|next| 1 << ((founder + next) % plan.members as u64));
            let bits = if rng.percent(60) { most.sum() } else { rng.draw() };
            let shape = Shape::Halves(bits);
            let lasts = LONELY * plan.election_ms * MS + rng.below(3 * SECOND);
            plan.faults.push((struck - 20 * MS, Fault::Cut { shape, lasts, breaks: rng.percent(50) }));
        }
        at = struck + rng.delay(8 * SECOND);
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

/// With two slots to spare a majority of the slots need not be one of those who vote: who counts
/// slots does not look on.
pub(crate) fn two_spares(plan: &mut Plan, rng: &mut Rng) {
    plan.spares = 2;
    while plan.skew.len() < plan.members + plan.spares {
        plan.skew.push(rng.between(0, 20) as i64 - 10);
    }
    for sight in [Sight::Liveness, Sight::CatchUp, Sight::LeaseKept, Sight::LeaseEnds] {
        plan.sights.set(sight, false);
    }
}

fn url(id: u64, at: u64) -> String {
    if at == 0 { format!("http://m{id}:2380") } else { format!("http://m{id}:{at}") }
}

impl Sim {
    pub(crate) fn has_operator(&self) -> bool {
        self.plan.spares > 0
    }

    /// Nothing is left to do.
    pub(crate) fn operator_rests(&self) -> bool {
        self.operator.current.is_none() && self.operator.steps.is_empty()
    }

    /// It was a member once, or is about to be.
    pub(crate) fn was_member(&self, id: u64) -> bool {
        self.operator.former.contains(&id) || (FIRST..=self.operator.next_id).contains(&id)
    }

    /// It was added and has no state yet, or is of the cluster before.
    pub(crate) fn is_joining(&self, who: usize) -> bool {
        self.operator.joining.contains(&who) || self.is_old(who)
    }

    /// The spare slots stand empty, and the operator begins its round.
    pub(crate) fn employ_operator(&mut self) {
        if !self.has_operator() {
            return;
        }
        for spare in self.plan.members..self.members.len() {
            self.members[spare].gone = true;
            self.operator.former.insert(self.members[spare].id);
        }
        self.operator.next_id = FIRST - 1;
        self.at(2 * SECOND, Event::Operate);
    }

    pub(crate) fn operate(&mut self) {
        if self.phase == Phase::Done {
            return;
        }
        let soon = self.operator_rng.between(50, 500) * MS;
        self.at(self.now + soon, Event::Operate);
        self.tell_the_removed();
        self.take_order();
        let Some(current) = &self.operator.current else { return self.next_step() };
        if let Step::End { slot, .. } = current.step {
            return self.await_end(slot);
        }
        if let Some(asked) = &self.operator.asked {
            let lives = self.members[asked.who].up.is_some() && self.members[asked.who].life == asked.life;
            if lives && self.now < asked.at + PATIENCE {
                return;
            }
            let Asked { who, waiter, .. } = self.operator.asked.take().expect("just seen");
            if lives {
                self.give(who, Input::Cancel { waiter, timed_out: false });
                self.members[who].up.as_mut().expect("up").waiters.remove(&waiter);
            }
        }
        self.ask_operator(None, Request::Members { linearizable: true });
    }

    fn take_order(&mut self) {
        if !self.operator_rests() || self.phase != Phase::Safety || self.is_quiet() {
            return;
        }
        let Some(&(at, order)) = self.plan.orders.get(self.operator.taken).filter(|(at, _)| *at <= self.now) else {
            return;
        };
        self.operator.taken += 1;
        self.tell(None, "order", at, 0, || format!("{order:?}"));
        let spare = (0..self.members.len()).find(|who| self.members[*who].gone && !self.is_old(*who));
        let voters: Vec<usize> = self.standing().into_iter().filter(|who| !self.is_old(*who)).collect();
        let named = |who: usize| voters.contains(&who).then_some(who);
        match order {
            Order::Add { learner } => self.add_steps(spare, learner),
            Order::Remove { who } if voters.len() > 1 => self.remove_steps(named(who)),
            Order::Replace { who, first: true } if spare.is_some() => {
                self.add_steps(spare, true);
                self.remove_steps(named(who));
            }
            Order::Replace { who, .. } if voters.len() > 2 && named(who).is_some() => {
                self.remove_steps(named(who));
                self.add_steps(Some(who), true);
            }
            Order::Update { who } => {
                if let Some(who) = named(who) {
                    let to = 3000 + self.operator.taken as u64;
                    self.operator.steps.push_back(Step::Update { id: self.members[who].id, to });
                }
            }
            Order::Remove { .. } | Order::Replace { .. } => {}
        }
    }

    fn add_steps(&mut self, slot: Option<usize>, learner: bool) {
        let Some(slot) = slot else { return };
        self.operator.next_id += 1;
        let id = self.operator.next_id;
        self.operator.steps.push_back(Step::Add { slot, id, learner });
        if learner {
            self.operator.steps.push_back(Step::Promote { id });
        }
    }

    fn remove_steps(&mut self, slot: Option<usize>) {
        let Some(slot) = slot else { return };
        let id = self.members[slot].id;
        self.operator.steps.push_back(Step::Remove { slot, id });
        self.operator.steps.push_back(Step::End { slot, id });
    }

    /// Who votes behind a step, where `voters` do before it.
    fn behind_step(voters: &BTreeSet<u64>, step: Step) -> BTreeSet<u64> {
        let mut voters = voters.clone();
        match step {
            Step::Add { id, learner: false, .. } | Step::Promote { id } => drop(voters.insert(id)),
            Step::Remove { id, .. } => drop(voters.remove(&id)),
            Step::Add { .. } | Step::Update { .. } | Step::End { .. } => {}
        }
        voters
    }

    /// Who votes behind the step that is under way, where `voters` do before it.
    pub(crate) fn behind_the_step(&self, voters: &BTreeSet<u64>) -> BTreeSet<u64> {
        self.operator.current.as_ref().map_or_else(|| voters.clone(), |now| Sim::behind_step(voters, now.step))
    }

    /// Beside harmed disks a change waits until those who vote behind it are whole enough.
    fn may_begin(&self, step: Step) -> bool {
        matches!(step, Step::End { .. }) || self.may_become(&Sim::behind_step(self.oracle.voters(), step))
    }

    fn next_step(&mut self) {
        let next = self.operator.steps.front().copied();
        if let Some(step) = next.filter(|step| self.may_begin(*step)) {
            self.operator.steps.pop_front();
            self.tell(None, "step", 0, 0, || format!("{step:?}"));
            self.operator.current = Some(Current { step, since: self.now, unsure: false });
        }
    }

    fn ask_operator(&mut self, who: Option<usize>, request: Request) {
        let able: Vec<usize> = (0..self.members.len())
            .filter(|&who| self.members[who].up.is_some() && !self.is_joining(who) && !self.is_leaving(who))
            .collect();
        let Some(who) = who.or_else(|| (!able.is_empty()).then(|| *self.operator_rng.pick(&able))) else { return };
        let change = matches!(request, Request::ChangeMember { .. });
        let waiter = self.waiter(who, Reader::Operator);
        let (life, at) = (self.members[who].life, self.now);
        self.operator.asked = Some(Asked { who, life, waiter, at, change });
        self.give(who, Input::Request { waiter, who: self.staff(), request });
    }

    fn is_leaving(&self, who: usize) -> bool {
        let ends = |step: &Step| matches!(step, Step::End { slot, .. } if *slot == who);
        self.operator.current.as_ref().is_some_and(|current| ends(&current.step))
    }

    pub(crate) fn operator_answered(&mut self, answer: Answer) {
        let Some(Asked { who, change, .. }) = self.operator.asked.take() else { return };
        let undone = change && self.is(Planted::ChangeUndone);
        let Some(current) = self.operator.current.as_mut() else { return };
        let (step, since, unsure) = (current.step, current.since, current.unsure);
        match answer {
            Answer::Members { members } if is_done(step, &members) && !undone => self.step_done(step, members),
            Answer::Members { .. } if change => {
                let text = format!("m{} says that {step:?} is done, and it is not", who + 1);
                self.fail("M-8", text);
            }
            Answer::Members { .. } => {
                self.ask_operator(Some(who), Request::ChangeMember { change: change_of(step) });
            }
            Answer::Refused(refusal) if change => {
                let definite = is_definite(refusal);
                current.unsure |= !definite;
                // A learner is in step sooner or later.
                let may_wait = matches!(step, Step::Promote { .. });
                if definite && !unsure && !may_wait && self.now > since + GIVE_UP {
                    self.tell(None, "gives up", 0, 0, || format!("{step:?}: {refusal:?}"));
                    self.give_step_up(step);
                }
            }
            _ => {}
        }
    }

    /// A member that asked for it dies: nobody knows what came of the change.
    pub(crate) fn operator_orphaned(&mut self) {
        let change = self.operator.asked.take().is_some_and(|asked| asked.change);
        if let Some(current) = self.operator.current.as_mut().filter(|_| change) {
            current.unsure = true;
        }
    }

    fn give_step_up(&mut self, step: Step) {
        self.operator.current = None;
        // What follows from it falls away too.
        match step {
            Step::Add { id, .. } => self.operator.steps.retain(|step| *step != Step::Promote { id }),
            Step::Remove { .. } => self.operator.steps.clear(),
            _ => {}
        }
    }

    fn step_done(&mut self, step: Step, members: Vec<(Member, bool)>) {
        self.operator.current = None;
        match step {
            Step::Add { slot, id, .. } => {
                self.marks.hit("a member was added");
                self.operator.told = members;
                self.operator.joining.insert(slot);
                let member = &mut self.members[slot];
                (member.id, member.gone) = (id, false);
                self.oracle.on_seated(slot, id);
                let soon = self.operator_rng.between(1, 3_000) * MS;
                self.at(self.now + soon, Event::Start { who: slot });
            }
            Step::Promote { .. } => self.marks.hit("a learner was promoted"),
            Step::Remove { .. } => self.marks.hit("a member was removed"),
            Step::Update { .. } => self.marks.hit("a member has another URL"),
            Step::End { .. } => {}
        }
    }

    /// What a member that joins begins with.
    pub(crate) fn joined(&mut self, who: usize) -> Result<(), disk::Fault> {
        let (id, config) = (self.identity(who), self.config(who));
        let files = std::sync::Arc::clone(&self.members[who].files);
        let ready =
            |ready| disk::identity::write(&*files, id, ready).map_err(|error| disk::Fault::io("identity", 0, error));
        ready(false)?;
        let told = self.operator.told.clone();
        let begun = match self.is(Planted::JoinerFounds) {
            true => node::genesis(&files, id, &config, told.into_iter().map(|(member, _)| member).collect()),
            false => node::join(&files, id, &config, told),
        };
        begun?;
        ready(true)
    }

    /// It has the leader's state.
    pub(crate) fn has_joined(&mut self, who: usize) {
        if self.operator.joining.remove(&who) {
            self.oracle.on_harmed(who, Harmed::No);
            self.marks.hit("a member has joined");
        }
    }

    /// Members call each other: one that was removed is told so.
    fn tell_the_removed(&mut self) {
        for who in 0..self.members.len() {
            if self.members[who].up.is_none() || !self.is_leaving(who) || self.is(Planted::RemovedUntold) {
                continue;
            }
            let id = self.members[who].id;
            let tells = |other: &usize| {
                let knows = self.members[*other].up.as_ref().is_some_and(|life| life.removed.contains(&id));
                *other != who && knows && !self.net.is_cut(who, *other) && !self.net.is_cut(*other, who)
            };
            for other in (0..self.members.len()).filter(tells).collect::<Vec<_>>() {
                let by = self.members[other].id;
                self.give(who, Input::Removed { by });
            }
        }
    }

    /// Of the other voters that it knows, those that are still members are too few to tell it that
    /// it was removed.
    fn is_deserted(&self, who: usize) -> bool {
        let Some(life) = &self.members[who].up else { return false };
        let others = life.voters.iter().filter(|id| **id != self.members[who].id);
        let (there, gone): (Vec<u64>, Vec<u64>) = others.partition(|id| {
            self.members.iter().any(|member| member.id == **id && !member.gone) && !self.oracle.was_removed(**id)
        });
        there.len() <= gone.len()
    }

    fn await_end(&mut self, slot: usize) {
        let since = self.operator.current.as_ref().map_or(self.now, |current| current.since);
        let untold = match self.now > since + GIVE_UP {
            // It knows the founders alone, and may hear of none of them: nobody tells it.
            true if self.lacks_state(slot) => Some("a removed member without a state was ended"),
            true if self.is_deserted(slot) => Some("a removed member whose voters were replaced was ended"),
            _ => None,
        };
        if let Some(mark) = untold {
            self.marks.hit(mark);
            self.crash(slot, false, None);
            self.members[slot].gone = true;
        }
        let member = &self.members[slot];
        if member.up.is_some() || member.starting.is_some() {
            return;
        }
        // One that is down at that time starts once more, most often, and is told.
        if !member.gone && self.operator_rng.percent(80) {
            return;
        }
        self.vacate(slot);
    }

    /// The member says that it was removed, and its process ends.
    pub(crate) fn ends_removed(&mut self, who: usize) {
        let id = self.members[who].id;
        if !self.is_leaving(who) && !self.oracle.was_removed(id) {
            return self.fail("M-8", format!("m{} ends as removed, and is a member", who + 1));
        }
        self.marks.hit("a removed member ended");
        self.crash(who, false, None);
        self.members[who].gone = true;
    }

    /// The slot is empty, with a new disk.
    fn vacate(&mut self, slot: usize) {
        self.operator.current = None;
        self.empty_slot(slot);
    }

    /// Its member is no more, and another one may take it.
    pub(crate) fn empty_slot(&mut self, slot: usize) {
        let id = self.members[slot].id;
        self.operator.former.insert(id);
        self.operator.joining.remove(&slot);
        self.hurts.remove(&slot);
        let rng = Rng::new(self.plan.seed, &format!("disk {slot} behind {id}"));
        let disk = Disk::new(rng, Speed { flush: self.plan.flush, percent: 100 });
        let member = &mut self.members[slot];
        member.gone = true;
        member.life += 1;
        member.files = disk.process();
        member.disk = disk;
    }
}

fn is_definite(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotEnoughStarted
            | Refusal::Unhealthy
            | Refusal::LearnerNotReady
            | Refusal::TooManyLearners
            | Refusal::User(_)
            | Refusal::Stopped
    )
}

fn is_done(step: Step, members: &[(Member, bool)]) -> bool {
    let find = |id: u64| members.iter().find(|(member, _)| member.id == id);
    match step {
        Step::Add { id, .. } => find(id).is_some(),
        Step::Promote { id } => find(id).is_some_and(|(_, learner)| !learner),
        Step::Remove { id, .. } => find(id).is_none(),
        Step::Update { id, to } => find(id).is_some_and(|(member, _)| member.peer_urls == [url(id, to)]),
        Step::End { .. } => false,
    }
}

fn change_of(step: Step) -> MemberChange {
    let member = |id: u64, at: u64| Member { id, peer_urls: vec![url(id, at)], ..Member::default() };
    let (kind, member) = match step {
        Step::Add { id, learner: true, .. } => (MemberChangeKind::AddLearner, member(id, 0)),
        Step::Add { id, .. } => (MemberChangeKind::AddVoter, member(id, 0)),
        Step::Promote { id } => (MemberChangeKind::Promote, member(id, 0)),
        Step::Remove { id, .. } | Step::End { id, .. } => (MemberChangeKind::Remove, member(id, 0)),
        Step::Update { id, to } => (MemberChangeKind::Update, member(id, to)),
    };
    MemberChange { origin: None, kind, member }
}
