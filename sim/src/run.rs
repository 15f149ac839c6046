//! One seed from its plan to its verdict: the phase of faults, then repair, and what must hold
//! in peace: a write in time, equal states, equal hashes, nothing lost by a last power loss.

use crate::client::Ask;
use crate::clients::Reader;
use crate::cluster::{Event, Member, Sim};
use crate::marks::Marks;
use crate::model::Reply;
use crate::ops::{Command, Delete, Put, Range};
use crate::oracle::Failure;
use crate::plan::{MS, Plan, SECOND};
use crate::planted::Planted;
use crate::trace::{Mode, Time};
use node::{Answer, Input, RangeStart, Request};
use std::collections::BTreeMap;
use store::Error;

/// Two passes over everything at rest, and time to ask others.
const HEAL: Time = 60 * SECOND;

#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Faults and clients.
    Safety,
    /// Everything is repaired; members come back.
    Repair {
        deadline: Time,
    },
    /// A write must succeed.
    Write {
        since: Time,
        deadline: Time,
        written: bool,
    },
    /// All members must become equal.
    Converge {
        deadline: Time,
    },
    /// Watches must be given what they missed.
    Watches {
        equal: Time,
    },
    /// Leases that nobody renews must end.
    Leases {
        began: Time,
        /// Since then nobody else leads.
        quiet: Time,
        until: Time,
    },
    /// Hashes, and all keys once more.
    Audit {
        asked: BTreeMap<u64, Audited>,
        deadline: Time,
    },
    /// Damaged records come again from other members.
    Heal {
        deadline: Time,
    },
    /// After a power loss of all: the same again.
    Again {
        deadline: Time,
    },
    Done,
}

/// A question of the audit, and the life of the member that it was put to.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    who: usize,
    life: u64,
    revision: Option<i64>,
}

/// What came out of one seed.
#[derive(Debug)]
pub struct Verdict {
    pub seed: u64,
    pub members: usize,
    pub failures: Vec<Failure>,
    pub hash: u64,
    pub simulated: Time,
    pub operations: u64,
    pub entries: u64,
    pub events: u64,
    pub marks: Marks,
    pub stats: BTreeMap<&'static str, u64>,
    pub faults: BTreeMap<&'static str, u64>,
    /// Bytes committed a second while clients were there.
    pub goodput: u64,
    /// The last lines of the story, when they were kept.
    pub tail: Vec<String>,
}

/// Runs one seed to its end or to its first finding.
pub fn run(seed: u64, planted: Option<Planted>, mode: Mode) -> Verdict {
    run_plan(Plan::new(seed), planted, mode)
}

/// As [`run`], with a plan that may have been changed.
pub fn run_plan(plan: Plan, planted: Option<Planted>, mode: Mode) -> Verdict {
    let seed = plan.seed;
    let mut sim = Sim::new(plan, planted, mode);
    while sim.step() {}
    let (members, events, _) = sim.sizes();
    Verdict {
        seed,
        members,
        failures: sim.oracle.failures.clone(),
        hash: sim.trace.hash(),
        simulated: sim.now,
        operations: sim.operations,
        entries: sim.oracle.last(),
        events,
        marks: sim.marks.clone(),
        stats: sim.stats.clone(),
        faults: sim.fault_counts.clone(),
        goodput: sim.goodput,
        tail: sim.trace.lines().cloned().collect(),
    }
}

const POLL: Time = 20 * MS;
/// Somebody leads for the time of a lease within so long.
const RESTLESS: Time = 180 * SECOND;
/// Operations that a seed asks for at least.
pub const OPERATIONS: u64 = 500;

impl Sim {
    fn election(&self) -> Time {
        self.plan.election_ms * MS
    }

    fn all_up(&self) -> bool {
        self.standing().iter().all(|&i| self.members[i].up.is_some())
    }

    /// What a narrow link needs to carry the largest state twice: once in vain, for a snapshot that
    /// is already old.
    fn carrying(&self) -> Time {
        let lives = self.members.iter().filter_map(|member| member.up.as_ref());
        let most = lives.map(|life| life.status.disk_bytes).max().unwrap_or(0);
        (2 * most * SECOND).checked_div(self.plan.bandwidth).unwrap_or(0)
    }

    /// No job waits any more for a lane that hung, or for a call that began on a slow disk.
    fn lanes_go(&self) -> bool {
        let goes = |m: &Member| m.hung.iter().all(|&until| until <= self.now) && m.disk.is_well(self.now);
        self.members.iter().filter(|m| !m.gone).all(goes)
    }

    fn equal(&self) -> bool {
        let mut states = self.standing().into_iter().map(|i| {
            let status = &self.members[i].up.as_ref().expect("all are up").status;
            (status.applied, status.digest)
        });
        let first = states.next();
        states.all(|s| Some(s) == first) && first.is_some_and(|f| f.0 == self.oracle.last())
    }

    pub(crate) fn advance_phase(&mut self) {
        let now = self.now;
        let election = self.election();
        // Clocks may run slow by their share.
        let patience = |elections: u64| elections * election * 115 / 100;
        let next = match self.phase.clone() {
            // Slow disks and long pauses leave some seeds with too little to judge.
            Phase::Safety if (self.operations < OPERATIONS || self.any_differs()) && now < 3 * self.plan.until => {
                Phase::Safety
            }
            Phase::Safety => {
                self.weigh_forwards();
                self.weigh_pulls();
                self.goodput = self.oracle.committed_bytes() * SECOND / now;
                self.repair();
                Phase::Repair { deadline: now + 60 * SECOND }
            }
            Phase::Repair { .. } if self.all_up() && self.lanes_go() && self.operator_rests() => {
                // Long values take their time to those that lag.
                let lagging = if self.plan.workload.long > 0 || self.plan.bandwidth > 0 { 5 * SECOND } else { 0 };
                let room = if self.plan.quota >= 0 { 5 * SECOND } else { 0 };
                let deadline = now + patience(4) + SECOND / 2 + lagging + room;
                Phase::Write { since: now, deadline, written: false }
            }
            Phase::Repair { deadline } if now > deadline => {
                return self.fail("V-4", "a member does not come back".to_string());
            }
            Phase::Write { written: true, .. } => {
                let flood = if self.plan.leases > 0 { 30 * SECOND } else { 0 };
                Phase::Converge { deadline: now + patience(10) + 10 * SECOND + flood + self.carrying() }
            }
            Phase::Write { since, deadline, .. } => {
                if now > deadline {
                    return self.fail("V-1", format!("no write succeeded within {} ms of peace", (now - since) / MS));
                }
                self.try_write();
                self.phase.clone()
            }
            Phase::Converge { deadline } => {
                if self.all_up() && self.equal() && self.streams_had_time(deadline, patience(10) + 10 * SECOND) {
                    Phase::Watches { equal: now }
                } else if now > deadline && self.withholds() {
                    self.marks.hit("peace with a leader whose state differs, and a member without one");
                    Phase::Done
                } else if now > deadline {
                    return self.fail("V-4", format!("members are not equal in peace: {}", self.states()));
                } else {
                    self.phase.clone()
                }
            }
            Phase::Watches { equal } if self.watches_are_fed(equal) => {
                Phase::Leases { began: now, quiet: now, until: self.lease_wait() }
            }
            // A frame that is under way for an election timeout moves leadership in peace too, and
            // a new leader gives each lease its time again.
            Phase::Leases { began, quiet, until } if now >= until && self.led_since > quiet => {
                if now > began + RESTLESS {
                    return self.fail("V-1", "leadership does not rest in peace".to_string());
                }
                Phase::Leases { began, quiet: self.led_since, until: self.led_since + (until - quiet) }
            }
            Phase::Leases { quiet, until, .. } if now >= until => {
                if until > quiet {
                    self.oracle.check_no_old_leases(now, quiet, patience(1) + 2 * SECOND);
                }
                self.audit(now)
            }
            Phase::Audit { asked, deadline } => {
                if asked.is_empty() {
                    Phase::Heal { deadline: now + HEAL }
                } else if now > deadline {
                    return self.fail("V-1", format!("an audit question was not answered in peace: {asked:?}"));
                } else {
                    self.ask_again(asked, deadline)
                }
            }
            Phase::Heal { deadline } if self.is_healed(now > deadline) && self.nobody_holds(now > deadline) => {
                self.check_records();
                self.lights_out();
                Phase::Again { deadline: now + 60 * SECOND }
            }
            Phase::Again { .. } if self.all_up() && self.equal() && self.leader().is_some() => Phase::Done,
            Phase::Again { deadline } if now > deadline => {
                return self.fail("V-4", format!("members are not equal after a power loss of all: {}", self.states()));
            }
            same => same,
        };
        self.phase = next;
        if self.phase != Phase::Done {
            self.at(now + POLL, Event::Phase);
        }
    }

    fn states(&self) -> String {
        let one = |i: &usize| match &self.members[*i].up {
            Some(life) => format!(
                "m{} applied {} of {} term {} leader {}",
                i + 1,
                life.status.applied,
                life.status.last,
                life.status.term,
                life.status.leader
            ),
            None => format!("m{} down", i + 1),
        };
        self.standing().iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Streams are given a moment after the last event.
    fn streams_had_time(&self, deadline: Time, span: Time) -> bool {
        self.now + span > deadline + 4 * SECOND
    }

    fn try_write(&mut self) {
        let up: Vec<usize> = self.standing();
        let who = *self.rng.pick(&up);
        if self.plan.quota >= 0 {
            self.make_room(who);
        }
        // It may end in peace, too, if something is wrong with it.
        if self.members[who].up.is_none() {
            return;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let command =
            Command::Put(Put { key: b"peace".to_vec(), value: format!("v{tag}").into_bytes(), ..Put::default() });
        let request = self.request(&Ask::Command(command), tag);
        let waiter = self.waiter(who, Reader::Epilogue { tag });
        self.give(who, Input::Request { waiter, who: self.staff(), request });
    }

    /// As an operator does it: what nobody needs goes, then the alarms.
    fn make_room(&mut self, who: usize) {
        let revision = self.oracle.model.last().revision;
        let everything = Delete { key: vec![0], end: vec![0], prev_kv: false };
        let mut commands = vec![Command::Delete(everything), Command::Compact { revision, physical: false }];
        let alarms = self.oracle.model.alarms().iter();
        commands.extend(alarms.map(|&(member, kind)| Command::Alarm { action: 2, member, kind }));
        for command in commands {
            if self.members[who].up.is_none() {
                return;
            }
            let tag = self.next_tag;
            self.next_tag += 1;
            let request = self.request(&Ask::Command(command), tag);
            self.tell_member(who, request);
        }
    }

    /// Long enough for every lease to end; only some seeds wait.
    fn lease_wait(&self) -> Time {
        if !self.plan.seed.is_multiple_of(4) {
            return self.now;
        }
        let longest = self
            .oracle
            .model
            .living_leases()
            .iter()
            .filter_map(|id| self.oracle.model.lease(*id).last().map(|l| l.ttl as u64))
            .filter(|ttl| *ttl <= 10)
            .max();
        longest.map_or(self.now, |ttl| self.now + ttl * SECOND * 130 / 100 + self.election() * 2 + 2 * SECOND)
    }

    fn audit(&mut self, now: Time) -> Phase {
        let mut asked = BTreeMap::new();
        // What every member has by now; a lease may just have ended on some of them.
        let revisions =
            self.standing().into_iter().filter_map(|i| self.members[i].up.as_ref().map(|life| life.status.revision));
        let revision = revisions.min().unwrap_or(0);
        for who in self.standing() {
            for revision in [Some(revision), None] {
                self.audit_one(who, revision, &mut asked);
            }
        }
        Phase::Audit { asked, deadline: now + 20 * SECOND }
    }

    /// Asks for the hash at a revision, or for all keys.
    fn audit_one(&mut self, who: usize, revision: Option<i64>, asked: &mut BTreeMap<u64, Audited>) {
        let ask = revision.map_or_else(everything, |revision| Ask::HashKv { revision });
        let tag = self.next_tag;
        self.next_tag += 1;
        asked.insert(tag, Audited { who, life: self.members[who].life, revision });
        let request = self.request(&ask, tag);
        let waiter = self.waiter(who, Reader::Epilogue { tag });
        self.give(who, Input::Request { waiter, who: self.staff(), request });
    }

    /// A member that named damage and was mended meanwhile is asked in its new life.
    fn ask_again(&mut self, mut asked: BTreeMap<u64, Audited>, deadline: Time) -> Phase {
        let lost = |sim: &Sim, one: &Audited| {
            let member = &sim.members[one.who];
            member.up.is_some() && member.life != one.life
        };
        let again: Vec<(u64, Audited)> =
            asked.iter().filter(|(_, one)| lost(self, one)).map(|(tag, one)| (*tag, one.clone())).collect();
        for (tag, Audited { who, revision, .. }) in again {
            asked.remove(&tag);
            self.audit_one(who, revision, &mut asked);
        }
        Phase::Audit { asked, deadline }
    }

    pub(crate) fn epilogue_answered(&mut self, who: usize, tag: u64, revision: i64, answer: Answer) {
        match answer {
            Answer::Applied { result: Err(Error::NoSpace), .. } if self.plan.quota >= 0 => {}
            Answer::Applied { result, .. } => {
                let Ok(Ok(Reply::Put { .. })) = self.convert_result(who, result) else {
                    return self.fail("V-1", "the write in peace was refused".to_string());
                };
                if self.oracle.index_of(tag).is_none() {
                    self.fail("D-1", "the write in peace is not in the log".to_string());
                }
                if let Phase::Write { written, .. } = &mut self.phase {
                    *written = true;
                }
            }
            Answer::Moved => self.marks.hit("leader moved on request"),
            Answer::HashKv { hash, compacted, hash_revision } => {
                self.oracle.on_hash_kv(self.now, who, hash_revision, compacted, hash);
                self.audited(tag);
            }
            Answer::Range(RangeStart { walk: Some(walk), .. }) => {
                // Counted without its values; the walk is not pulled.
                self.give(who, Input::Request { waiter: 0, who: self.staff(), request: Request::WalkEnd { walk } });
                self.audited(tag);
            }
            Answer::Range(start) => {
                let count = start.count;
                let Ask::Range { range, .. } = everything() else { unreachable!("a range") };
                let want = self.oracle.model.range(&range, self.oracle.model.last());
                if let Ok(Reply::Range { count: right, .. }) = want
                    && right != count
                {
                    self.fail(
                        "KV-1",
                        format!("m{} has {count} keys at revision {revision}, right is {right}", who + 1),
                    );
                }
                self.audited(tag);
            }
            Answer::Refused(refusal) if self.is_hurt(who) && self.asks(tag) => {
                self.met_damage(who, format!("{refusal:?}"));
                self.audited(tag);
            }
            Answer::Refused(refusal) => {
                if let Phase::Audit { asked, .. } = &self.phase
                    && asked.contains_key(&tag)
                {
                    self.fail("V-1", format!("an audit question was refused in peace: {refusal:?}"));
                }
            }
            other => self.fail("KV-1", format!("an audit question was answered with {other:?}")),
        }
    }

    fn asks(&self, tag: u64) -> bool {
        matches!(&self.phase, Phase::Audit { asked, .. } if asked.contains_key(&tag))
    }

    fn audited(&mut self, tag: u64) {
        if let Phase::Audit { asked, .. } = &mut self.phase {
            asked.remove(&tag);
        }
    }

    fn lights_out(&mut self) {
        for who in self.standing() {
            self.crash(who, true, Some(100 * MS));
        }
    }
}

fn everything() -> Ask {
    Ask::Range { range: Range { key: vec![0], end: vec![0], ..Range::default() }, stream: false }
}
