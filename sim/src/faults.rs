//! The fault script, carried out.

use crate::cluster::{Armed, Event, Sim};
use crate::plan::{Fault, MS, SECOND, Shape, Who};
use std::io::ErrorKind;

impl Sim {
    pub(crate) fn who(&self, who: Who) -> Option<usize> {
        let at = match who {
            Who::Nth(at) => at,
            Who::Leader => self.leader()?,
        };
        (!self.members[at].gone).then_some(at)
    }

    pub(crate) fn fault(&mut self, nth: usize) {
        if self.phase != crate::run::Phase::Safety {
            return;
        }
        let fault = self.plan.faults[nth].1;
        let done = !self.is_quiet() && !self.are_parted() && self.strike(nth, fault);
        if done {
            *self.fault_counts.entry(fault.kind()).or_default() += 1;
        }
        self.tell(None, "fault", nth as u64, u64::from(done), || {
            format!("{fault:?}{}", if done { "" } else { " (nobody to hit)" })
        });
    }

    /// False when there was nobody to hit.
    fn strike(&mut self, nth: usize, fault: Fault) -> bool {
        match fault {
            Fault::Crash { who, power, down } => self.strike_one(who, |sim, at| sim.crash(at, power, Some(down))),
            Fault::CrashAtCall { who, lane, call, power, down } => {
                self.strike_one(who, |sim, at| sim.arm(at, lane, Armed::Crash { call, power, down }))
            }
            Fault::FailCall { who, lane, call, flush, pages_lost } => {
                let fault = Sim::flush_fault(call, flush, pages_lost);
                self.strike_one(who, |sim, at| sim.arm(at, lane, Armed::Fail(fault)))
            }
            Fault::CrashAll { power, down } => {
                let all = self.standing();
                for &at in &all {
                    let down = down + self.rng.below(down.max(1));
                    self.crash(at, power, Some(down));
                }
                self.marks.hit("quorum lost and regained");
                true
            }
            Fault::Lose { who } => self.strike_one(who, |sim, at| {
                if sim.may_lose(at) {
                    sim.crash(at, true, None);
                    sim.members[at].gone = true;
                }
            }),
            Fault::Cut { shape, lasts, breaks } => self.cut(nth, shape, lasts, breaks),
            Fault::Storm { lasts, per_myriad } => {
                self.net.breaks = per_myriad;
                self.at(self.now + lasts, Event::FaultEnds { nth, member: 0 });
                true
            }
            Fault::Lag { lasts, delay } => {
                self.net.extra = delay;
                self.at(self.now + lasts, Event::FaultEnds { nth, member: 0 });
                true
            }
            Fault::Freeze { who, lasts } => self.strike_one(who, |sim, at| {
                let until = sim.now + lasts;
                let clock = &mut sim.members[at].clock;
                clock.frozen_until = clock.frozen_until.max(until);
                if let Some(life) = sim.members[at].up.as_mut() {
                    life.frozen_once = true;
                }
            }),
            Fault::SlowDisk { who, lasts, percent } => self.strike_one(who, |sim, at| {
                sim.members[at].disk.set_percent(percent);
                sim.at(sim.now + lasts, Event::FaultEnds { nth, member: at });
            }),
            Fault::StallDisk { who, lasts } => self.strike_one(who, |sim, at| {
                let until = sim.now + lasts;
                sim.members[at].disk.stall(until);
            }),
            Fault::FullDisk { who, lasts } => self.strike_one(who, |sim, at| {
                sim.members[at].disk.set_full(true);
                sim.at(sim.now + lasts, Event::FaultEnds { nth, member: at });
            }),
            Fault::ClockJump { who } => self.who(who).is_some(),
            Fault::Transfer { to } => self.leader().is_some_and(|leader| {
                let target = self.members[to].id;
                let waiter = self.waiter(leader, crate::clients::Reader::Epilogue { tag: 0 });
                self.give(
                    leader,
                    node::Input::Request { waiter, who: self.staff(), request: node::Request::MoveLeader { target } },
                );
                true
            }),
            Fault::Restart { who, down } => self.strike_one(who, |sim, at| {
                sim.begin_stop(at, down);
                // A member that cannot finish is killed, as an init system would.
                let life = sim.members[at].life;
                sim.at(sim.now + 5 * SECOND, Event::Crash { who: at, life, power: false, down });
            }),
            other => self.strike_sight(nth, other),
        }
    }

    /// Faults that the sights draw.
    fn strike_sight(&mut self, nth: usize, fault: Fault) -> bool {
        let ends = |sim: &mut Sim, at, lasts| sim.at(sim.now + lasts, Event::FaultEnds { nth, member: at });
        match fault {
            Fault::Hurt(story) => self.begin_story(nth, story),
            Fault::RotAwake { who, spot, draw } => self.who(who).is_some_and(|at| self.rot_awake(at, spot, draw)),
            Fault::RecordRot { who } => self.who(who).is_some_and(|at| {
                let may = self.may_hurt(at);
                self.members[at].spoil_record |= may;
                may
            }),
            Fault::ReadsFail { who, lasts, percent } => self.strike_one(who, |sim, at| {
                sim.members[at].disk.trouble(|t| t.reads_fail = percent);
                ends(sim, at, lasts);
            }),
            Fault::NoRoom { who, lasts, quota } => self.strike_one(who, |sim, at| {
                let kind = if quota { ErrorKind::QuotaExceeded } else { ErrorKind::StorageFull };
                sim.members[at].disk.trouble(|t| t.no_room = Some((kind, !quota)));
                ends(sim, at, lasts);
            }),
            Fault::LaneHung { who, lane, lasts } => self.strike_one(who, |sim, at| {
                // What hangs already goes on no earlier.
                let until = &mut sim.members[at].hung[lane];
                *until = (sim.now + lasts).max(*until);
            }),
            Fault::SlowTurns { who, lasts, cost } => self.strike_one(who, |sim, at| {
                sim.members[at].slow = (sim.now + lasts, cost);
            }),
            Fault::Alone(loss) => self.lose_majority(nth, loss),
            Fault::Drops { lasts, per_myriad } => {
                self.net.drops = per_myriad;
                ends(self, 0, lasts);
                true
            }
            other => unreachable!("{other:?} is no fault of a sight"),
        }
    }

    fn strike_one(&mut self, who: Who, act: impl FnOnce(&mut Sim, usize)) -> bool {
        match self.who(who) {
            Some(at) if self.members[at].up.is_some() => {
                act(self, at);
                true
            }
            _ => false,
        }
    }

    fn cut(&mut self, nth: usize, shape: Shape, lasts: u64, breaks: bool) -> bool {
        let n = self.members.len();
        let mut pairs = Vec::new();
        let mut both = |a: usize, b: usize| pairs.extend([(a, b), (b, a)]);
        match shape {
            Shape::Isolate(who) => {
                let Some(one) = self.who(who) else { return false };
                (0..n).filter(|&i| i != one).for_each(|i| both(one, i));
            }
            Shape::Mute(who) => {
                let Some(one) = self.who(who) else { return false };
                pairs.extend((0..n).filter(|&i| i != one).map(|i| (one, i)));
            }
            Shape::Deaf(who) => {
                let Some(one) = self.who(who) else { return false };
                pairs.extend((0..n).filter(|&i| i != one).map(|i| (i, one)));
            }
            Shape::Halves(bits) => {
                let side = |i: usize| bits >> i & 1;
                (0..n)
                    .flat_map(|a| (0..a).map(move |b| (a, b)))
                    .filter(|&(a, b)| side(a) != side(b))
                    .for_each(|(a, b)| both(a, b));
            }
            Shape::Bridge(bits, who) => {
                let Some(bridge) = self.who(who) else { return false };
                let side = |i: usize| bits >> i & 1;
                let apart = |&(a, b): &(usize, usize)| a != bridge && b != bridge && side(a) != side(b);
                (0..n).flat_map(|a| (0..a).map(move |b| (a, b))).filter(apart).for_each(|(a, b)| both(a, b));
            }
            Shape::Ring => {
                let apart = |&(a, b): &(usize, usize)| a - b != 1 && a - b != n - 1;
                (0..n).flat_map(|a| (0..a).map(move |b| (a, b))).filter(apart).for_each(|(a, b)| both(a, b));
            }
            Shape::OneWay(a, b) => pairs.push((a, b)),
            Shape::Link(a, b) => both(a, b),
        }
        pairs.retain(|(a, b)| a != b);
        for &(a, b) in &pairs {
            self.net.cut(a, b);
        }
        if breaks {
            // TCP gives up at last; what was sent into the cut is gone.
            let mut broken: Vec<(usize, usize)> = pairs.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect();
            broken.sort_unstable();
            broken.dedup();
            for (a, b) in broken {
                self.break_pair(a, b);
            }
        }
        self.at(self.now + lasts, Event::FaultEnds { nth, member: 0 });
        true
    }

    pub(crate) fn fault_ends(&mut self, nth: usize, member: usize) {
        let fault = self.plan.faults[nth].1;
        match fault {
            Fault::Cut { .. } => self.heal(),
            Fault::Storm { .. } => self.net.breaks = self.plan.breaks,
            Fault::Lag { .. } => self.net.extra = 0,
            Fault::SlowDisk { .. } => self.members[member].disk.set_percent(100),
            Fault::FullDisk { .. } => self.members[member].disk.set_full(false),
            Fault::ReadsFail { .. } => self.members[member].disk.trouble(|t| t.reads_fail = 0),
            Fault::NoRoom { .. } => self.members[member].disk.trouble(|t| t.no_room = None),
            Fault::Drops { .. } => self.net.drops = 0,
            Fault::Alone(loss) => self.old_machine(nth, member, loss.back.1),
            _ => {}
        }
        self.tell(None, "heal", nth as u64, 0, || format!("{fault:?}"));
    }

    pub(crate) fn heal(&mut self) {
        for (at, flight) in self.net.heal(self.now) {
            self.at(at, Event::Arrive { flight });
        }
        self.depart_all();
    }

    /// Everything that can be repaired is, and nothing new happens.
    pub(crate) fn repair(&mut self) {
        self.heal();
        self.net.extra = 0;
        self.net.breaks = 0;
        self.net.drops = 0;
        self.no_more_stories();
        self.old_machines_end();
        for at in 0..self.members.len() {
            let now = self.now;
            let m = &mut self.members[at];
            m.disk.set_percent(100);
            m.disk.stall(0);
            m.disk.set_full(false);
            m.disk.trouble(|t| *t = Default::default());
            m.slow = (0, 0);
            m.busy_until = m.busy_until.min(now);
            m.spoil_record = false;
            m.clock.frozen_until = m.clock.frozen_until.min(now);
            m.armed.clear();
            let (life, frozen) = (m.life, m.up.is_some());
            self.at(self.now + MS, Event::Start { who: at });
            if frozen {
                // Turns that waited for the end of a pause come now.
                self.at(self.now, Event::Turn { who: at, life });
            }
        }
    }
}
