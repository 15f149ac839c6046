//! The vigil: checks that look on *while* faults go on. A majority that is up, connected, and
//! whose disks answer must serve, whatever the others suffer; and nothing may go on for ever.
//!
//! The *core* is such a majority, the same members in the same lives since some time.

use crate::client::Ask;
use crate::clients::Reader;
use crate::cluster::{Event, Sim};
use crate::ops::{Command, Put};
use crate::plan::{MS, SECOND};
use crate::planted::Planted;
use crate::run::Phase;
use crate::sights::Sight;
use crate::trace::{Time, fold};
use bytes::Bytes;
use node::{Answer, BackgroundJob, Input, Job, LogJob, Refusal, Waiter};
use std::collections::{BTreeMap, BTreeSet};
use store::Error;

/// Election timeouts within which a healthy majority serves.
const PATIENCE: u64 = 10;
const LOOK: Time = 50 * MS;
/// The lease that the vigil renews, and its TTL in seconds.
const LEASE: i64 = 1 << 40;
const TTL: i64 = 5;
/// Longest TTL whose end is waited for.
const LONG_TTL: i64 = 10;
/// The same note, or the same job, so often without progress is for ever.
const NOTES: u64 = 40;
const JOBS: u64 = 200;
/// Bytes of snapshots that may come again whatever else came.
const PULLED_AGAIN: u64 = 32 << 10;
/// Entries that a leader has ahead of the committed ones when its links are what limits it.
const BACKLOG: u64 = 1000;

/// What the vigil asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Probe {
    Write,
    Read,
    Grant,
    KeepAlive,
}

#[derive(Debug)]
struct Asked {
    who: usize,
    life: u64,
    waiter: Waiter,
    at: Time,
}

/// How often a member said or did one thing since it last made progress.
#[derive(Debug, Default)]
struct Habits {
    applied: u64,
    counts: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Progress {
    applied: u64,
    fresh: u64,
    at: Time,
    /// Pieces of checkpoints that arrived.
    pieces: BTreeSet<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Vigil {
    core: Vec<(usize, u64)>,
    /// Members in doubt, or silent, while all are well: their lives, and since when.
    pub held: BTreeMap<usize, (u64, Time)>,
    since: Time,
    /// When no majority was well, last.
    without: Time,
    /// What the links need to bring a quorum of the core up to what is committed, as it was when
    /// the core became well.
    catches_up: Time,
    /// What was committed in the core when it was looked at last.
    committed: u64,
    /// When a backlog was seen last.
    backlog: Time,
    served: BTreeMap<Probe, Time>,
    asked: BTreeMap<Probe, Asked>,
    turn: usize,
    /// When somebody last tried to renew a lease.
    tried: BTreeMap<i64, Time>,
    habits: BTreeMap<usize, Habits>,
    progress: BTreeMap<usize, Progress>,
    /// Forwards by (member, life, number): the connection they went over.
    forwards: BTreeMap<(usize, u64, u64), u64>,
    first_bytes: u64,
    again_bytes: u64,
    /// Where the pieces stand that members asked for: by (member, life, number).
    places: BTreeMap<(usize, u64, u64), u64>,
    /// Pieces of snapshots by receiver, since its last install.
    pulled: BTreeMap<usize, BTreeSet<u64>>,
    first_pulled: u64,
    again_pulled: u64,
}

impl Sim {
    pub(crate) fn patience(&self) -> Time {
        // Clocks may run slow by their share.
        PATIENCE * self.plan.election_ms * MS * 115 / 100 + SECOND / 2
    }

    /// Up, its process runs, its disk answers, and nothing was done to it.
    fn is_healthy(&self, who: usize) -> bool {
        let m = &self.members[who];
        m.up.is_some()
            && !self.is_joining(who)
            && !m.is_stopping()
            && m.armed.is_empty()
            && !m.clock.frozen(self.now)
            && m.hung.iter().all(|&until| until <= self.now)
            && m.disk.is_well(self.now)
            && !self.is_hurt(who)
    }

    fn are_connected(&self, a: usize, b: usize) -> bool {
        a == b || !(self.net.is_cut(a, b) || self.net.is_cut(b, a))
    }

    /// A late founder that has not caught up may have forgotten its vote: the others are a majority
    /// without it.
    fn are_core(&self, group: &[usize]) -> bool {
        group.iter().filter(|&&who| !self.is_late(who)).count() * 2 > self.members.len()
            && group.iter().all(|&a| self.is_healthy(a) && group.iter().all(|&b| self.are_connected(a, b)))
    }

    fn find_core(&self) -> Vec<usize> {
        let n = self.members.len();
        if self.net.extra > 0 || self.net.drops > 0 || self.net.breaks > self.plan.breaks || self.plan.breaks > 5 {
            return Vec::new();
        }
        // Each question is asked once: this runs a hundred times in a second of the story.
        let set = |is: &dyn Fn(usize) -> bool| (0..n).filter(|i| is(*i)).fold(0_u32, |bits, i| bits | 1 << i);
        let healthy = set(&|who| self.is_healthy(who));
        let punctual = set(&|who| !self.is_late(who));
        let seen: Vec<u32> = (0..n).map(|a| set(&|b| self.are_connected(a, b))).collect();
        let members = |bits: u32| (0..n).filter(move |i| bits >> i & 1 == 1);
        let is_core = |bits: &u32| {
            bits & !healthy == 0
                && (bits & punctual).count_ones() as usize * 2 > n
                && members(*bits).all(|a| bits & !seen[a] == 0)
        };
        let core = (0_u32..1 << n).filter(is_core).max_by_key(|bits| bits.count_ones());
        members(core.unwrap_or(0)).collect()
    }

    pub(crate) fn look(&mut self) {
        if self.phase == Phase::Done {
            return;
        }
        self.at(self.now + LOOK, Event::Look);
        self.end_stories();
        self.watch_differing();
        self.watch_doubts();
        self.plant_older_majority();
        if self.phase != Phase::Safety {
            return;
        }
        self.keep_core();
        if self.plan.sights.has(Sight::Liveness) {
            self.probe_liveness();
        }
        if self.plan.sights.has(Sight::LeaseKept) {
            self.keep_lease();
        }
        if self.plan.sights.has(Sight::CatchUp) {
            self.watch_progress();
        }
        if self.plan.sights.has(Sight::LeaseEnds) {
            self.watch_leases();
        }
    }

    /// Nobody is gone, or harmed, or faulty, and all see each other.
    pub(crate) fn all_are_well(&self) -> bool {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.find_core() == all
    }

    fn keep_core(&mut self) {
        let core = &self.vigil.core;
        let members: Vec<usize> = core.iter().map(|(who, _)| *who).collect();
        let same = !core.is_empty() && core.iter().all(|&(who, life)| self.members[who].life == life);
        // Trouble of the whole network ends it too.
        if same && self.are_core(&members) && !self.find_core().is_empty() {
            return;
        }
        let core: Vec<(usize, u64)> = self.find_core().into_iter().map(|who| (who, self.members[who].life)).collect();
        if core.is_empty() {
            self.vigil.without = self.now;
        }
        self.vigil.core = core;
        self.vigil.since = self.now;
        self.vigil.catches_up = self.catching_up();
        self.vigil.served.clear();
        self.vigil.progress.clear();
    }

    /// What a narrow link needs to carry what a quorum of the core lacks, twice: what is under way
    /// to it may be of another term.
    fn catching_up(&self) -> Time {
        let lives = self.vigil.core.iter().filter_map(|(who, _)| self.members[*who].up.as_ref());
        let mut ends: Vec<u64> = lives.map(|life| life.status.last).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let lacks = ends.get(self.members.len() / 2).map_or(0, |end| self.oracle.bytes_behind(*end));
        (2 * lacks * SECOND).checked_div(self.plan.bandwidth).unwrap_or(0)
    }

    /// Without a snapshot too few of the core have what the log of the others begins behind.
    fn quorum_needs_state(&self) -> bool {
        let lives: Vec<_> = self.vigil.core.iter().filter_map(|(who, _)| self.members[*who].up.as_ref()).collect();
        let longest = lives.iter().max_by_key(|life| life.status.last);
        let Some(ahead) = longest.map(|life| life.log.boundary().index) else {
            return false;
        };
        lives.iter().filter(|life| life.status.last >= ahead).count() * 2 <= self.members.len()
    }

    fn probe_liveness(&mut self) {
        if self.vigil.core.is_empty() {
            return;
        }
        self.watch_backlog();
        if self.plan.pulls.breaks > 0 && self.quorum_needs_state() {
            // Its connections break under every third piece: V-5 sees that it comes on.
            self.vigil.since = self.now;
            self.vigil.served.clear();
        }
        for probe in [Probe::Write, Probe::Read] {
            let last = self.vigil.served.get(&probe).copied().unwrap_or(self.vigil.since);
            if self.now > last + self.patience() + self.vigil.catches_up {
                let core: Vec<usize> = self.vigil.core.iter().map(|(who, _)| who + 1).collect();
                let text = format!(
                    "no {probe:?} was served for {} ms though members {core:?} are well since {} ms",
                    (self.now - last) / MS,
                    (self.now - self.vigil.since) / MS
                );
                return self.fail("V-2", text);
            }
            let again = self.plan.election_ms * MS;
            if self.vigil.asked.get(&probe).is_none_or(|asked| self.now >= asked.at + again) {
                self.ask_probe(probe);
            }
        }
    }

    /// Clients propose more than links of some bandwidth carry: what was proposed last waits for
    /// its turn. Writes are served as long as the backlog moves.
    fn watch_backlog(&mut self) {
        let core = self.vigil.core.iter().filter_map(|(who, _)| Some((*who, &self.members[*who].up.as_ref()?.status)));
        let leader = core.filter(|(_, status)| status.is_leader).max_by_key(|(_, status)| status.term);
        let Some((who, status)) = leader else { return };
        // Many entries, or more bytes than a link carries while a probe waits, or half of it.
        let carried = self.plan.bandwidth * self.plan.election_ms / 2_000;
        let long = status.last > status.committed + BACKLOG || self.oracle.bytes_ahead(who, status.committed) > carried;
        let moves = status.committed > self.vigil.committed;
        self.vigil.committed = status.committed;
        if self.plan.bandwidth > 0 && moves && long {
            self.vigil.served.insert(Probe::Write, self.now);
            self.vigil.backlog = self.now;
            self.marks.hit("a backlog of writes moves over a full link");
        }
    }

    fn ask_probe(&mut self, probe: Probe) {
        self.vigil.turn += 1;
        let (who, life) = self.vigil.core[self.vigil.turn % self.vigil.core.len()];
        if let Some(old) = self.vigil.asked.remove(&probe)
            && self.members[old.who].life == old.life
        {
            self.give(old.who, Input::Cancel { waiter: old.waiter, timed_out: false });
            if let Some(life) = self.members[old.who].up.as_mut() {
                life.waiters.remove(&old.waiter);
            }
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let ask = match probe {
            Probe::Write => Ask::Command(Command::Put(Put {
                key: b"vigil".to_vec(),
                value: format!("v{tag}").into_bytes(),
                ..Put::default()
            })),
            Probe::Read => Ask::Barrier,
            Probe::Grant => Ask::Command(Command::Grant { id: LEASE, ttl: TTL }),
            Probe::KeepAlive => Ask::KeepAlive { lease: LEASE },
        };
        let request = self.request(&ask, tag);
        let waiter = self.waiter(who, Reader::Vigil { probe });
        self.vigil.asked.insert(probe, Asked { who, life, waiter, at: self.now });
        if probe == Probe::KeepAlive && self.is(Planted::RenewalsRefused) {
            return;
        }
        self.give(who, Input::Request { waiter, who: self.staff(), request });
    }

    pub(crate) fn vigil_answered(&mut self, probe: Probe, answer: Answer) {
        let served = match answer {
            // A clear refusal in time is service too.
            Answer::Applied { result: Err(Error::NoSpace), .. } | Answer::Refused(Refusal::User(Error::NoSpace)) => {
                self.plan.quota >= 0
            }
            Answer::Applied { result, .. } => result.is_ok(),
            Answer::Barrier => true,
            Answer::KeepAlive { ttl } => ttl > 0,
            _ => false,
        };
        self.vigil.asked.remove(&probe);
        if served {
            self.vigil.served.insert(probe, self.now);
        }
    }

    // Leases.

    /// One lease is renewed four times in its TTL, at one member of the core after the other.
    fn keep_lease(&mut self) {
        if self.vigil.core.is_empty() {
            return;
        }
        let ttl = TTL as u64 * SECOND;
        let last = self.oracle.model.lease(LEASE).last();
        if let Some(life) = last.filter(|l| l.expired)
            && let Some(ended) = self.oracle.commit_time(life.ended_at)
            && let Some(granted) = self.oracle.commit_time(life.granted_at)
            && ended > self.vigil.since.max(granted) + self.patience() + ttl
            && self.vigil.served.get(&Probe::Grant).is_none_or(|&at| at < ended)
        {
            let text = format!(
                "the lease that was renewed four times in its TTL at healthy members expired, {} ms after these stood",
                (ended - self.vigil.since) / MS
            );
            return self.fail("L-3", text);
        }
        let (probe, again) = match last.is_some_and(|l| l.ended_at == u64::MAX) {
            true => (Probe::KeepAlive, ttl / 4),
            false => (Probe::Grant, SECOND),
        };
        if self.vigil.asked.get(&probe).is_none_or(|asked| self.now >= asked.at + again) {
            let since = self.vigil.served.get(&probe).copied().unwrap_or(0);
            if self.now >= since + again {
                self.ask_probe(probe);
            }
        }
    }

    pub(crate) fn tried_to_renew(&mut self, lease: i64) {
        self.vigil.tried.insert(lease, self.now);
    }

    /// No lease outlives its TTL for long while a majority is well.
    fn watch_leases(&mut self) {
        if self.vigil.core.is_empty() || !(self.now / LOOK).is_multiple_of(8) {
            return;
        }
        // It need not be the same majority all the time. What ends a lease is an entry, and waits
        // behind a backlog as any other does.
        let settled = self.vigil.without.max(self.last_leader_change).max(self.vigil.backlog);
        // A renewal may be answered as late as its client waits, and a while after.
        let late = self.plan.workload.deadline + SECOND;
        for id in self.oracle.model.living_leases().into_iter().filter(|id| *id != LEASE) {
            let Some(life) = self.oracle.model.lease(id).last().filter(|l| l.ttl <= LONG_TTL) else { continue };
            let granted = self.oracle.commit_time(life.granted_at).unwrap_or(0);
            let tried = self.vigil.tried.get(&id).map_or(0, |at| at + late);
            let ends = settled.max(granted).max(tried) + life.ttl as u64 * SECOND * 120 / 100 + self.patience();
            if self.now > ends {
                let text = format!(
                    "lease {id} with TTL {} s, renewed by nobody, lives {} ms too long",
                    life.ttl,
                    (self.now - ends) / MS
                );
                return self.fail("L-4", text);
            }
        }
    }

    /// Grants leases until there are as many as the plan says, at the leader, in bursts.
    pub(crate) fn flood(&mut self) {
        if self.phase != Phase::Safety || self.flooded >= self.plan.leases {
            return;
        }
        self.at(self.now + 20 * MS, Event::Flood);
        let Some(who) = self.leader() else { return };
        for _ in 0..100 {
            self.flooded += 1;
            let tag = self.next_tag;
            self.next_tag += 1;
            let id = (1 << 50) + self.flooded as i64;
            let request = self.request(&Ask::Command(Command::Grant { id, ttl: 1 << 30 }), tag);
            let waiter = self.waiter(who, Reader::Flood);
            self.give(who, Input::Request { waiter, who: self.staff(), request });
        }
    }

    // Progress.

    /// The leader's state differs, and what it sends of it is withheld (`frames::send`): whoever
    /// lacks a state cannot have one. That is two faults at a time.
    pub(crate) fn withholds(&self) -> bool {
        self.leader().is_some_and(|leader| self.oracle.differs(leader))
    }

    /// A member of the core that lags applies something, or gets a piece it did not have.
    fn watch_progress(&mut self) {
        let last = self.oracle.last();
        let patience = self.patience() + 5 * SECOND;
        let withheld = self.withholds();
        for (who, _) in self.vigil.core.clone() {
            let applied = self.oracle.applied(who);
            let now = self.now;
            let progress = self.vigil.progress.entry(who).or_insert(Progress { at: now, ..Progress::default() });
            let fresh = progress.pieces.len() as u64;
            if withheld || (applied, fresh) != (progress.applied, progress.fresh) || applied >= last {
                (progress.applied, progress.fresh, progress.at) = (applied, fresh, now);
            } else if now > progress.at + patience {
                let text = format!("m{} is well and stands at {applied} of {last} for {} ms", who + 1, patience / MS);
                return self.fail("V-5", text);
            }
        }
    }

    pub(crate) fn piece_asked(&mut self, who: usize, number: (u64, u64), file: &str, offset: u64) {
        let place = fold(file.as_bytes()) ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.vigil.places.insert((who, number.0, number.1), place);
    }

    /// Equal bytes of two places are two pieces: values repeat themselves.
    pub(crate) fn piece_arrived(&mut self, who: usize, number: (u64, u64), bytes: &Bytes) {
        let place = self.vigil.places.get(&(who, number.0, number.1)).copied().unwrap_or_default();
        let piece = fold(bytes) ^ place;
        let first = self.vigil.pulled.entry(who).or_default().insert(piece);
        let pulled = if first { &mut self.vigil.first_pulled } else { &mut self.vigil.again_pulled };
        *pulled += bytes.len() as u64;
        if let Some(progress) = self.vigil.progress.get_mut(&who) {
            progress.pieces.insert(piece);
        }
    }

    /// What came of a snapshot is in place, or may be gone: the next one may bring it again.
    pub(crate) fn pulls_anew(&mut self, who: usize) {
        self.vigil.pulled.remove(&who);
    }

    /// At the end of the faults.
    pub(crate) fn weigh_pulls(&mut self) {
        let (first, again) = (self.vigil.first_pulled, self.vigil.again_pulled);
        *self.stats.entry("bytes of snapshots").or_default() += first;
        *self.stats.entry("bytes of snapshots again").or_default() += again;
        if again > first / 4 + PULLED_AGAIN {
            let text = format!("{first} bytes of snapshots were pulled, and {again} bytes again");
            self.fail("B-3", text);
        }
    }

    // Repetition.

    fn repeated(&mut self, who: usize, what: u64) -> u64 {
        let applied = self.members[who].up.as_ref().map_or(0, |l| l.status.applied);
        let habits = self.vigil.habits.entry(who).or_default();
        if habits.applied != applied || habits.counts.len() > 1_000 {
            (habits.applied, habits.counts) = (applied, BTreeMap::new());
        }
        let count = habits.counts.entry(what).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn hear_note(&mut self, who: usize, text: &str) {
        if !self.plan.sights.has(Sight::Chatter) {
            return;
        }
        if self.repeated(who, fold(text.as_bytes())) > NOTES {
            self.fail("N-1", format!("m{} says for ever: {text}", who + 1));
        }
    }

    /// Harm is bounded so that nothing acknowledged is lost: then no member's history is another
    /// than the leader's.
    pub(crate) fn hear_contradiction(&mut self, who: usize, text: &str) {
        if text.contains("members have lost what they had acknowledged") && self.oracle.is_expected(text) {
            self.fail("R-7", format!("m{} says: {text}", who + 1));
        }
    }

    pub(crate) fn see_job(&mut self, who: usize, name: &'static str, work: &Job) {
        use BackgroundJob::{CheckpointBegin, InstallBegin, InstallFinish, ReadChunk};
        let again = match work {
            Job::Log(LogJob::ReadLog { .. }) | Job::Read(_) | Job::Background(ReadChunk { .. }) => format!("{work:?}"),
            Job::Background(InstallBegin { .. } | InstallFinish { .. } | CheckpointBegin { .. }) => name.to_string(),
            _ => return,
        };
        if self.plan.sights.has(Sight::Chatter) && self.repeated(who, fold(again.as_bytes())) > JOBS {
            self.fail("N-1", format!("m{} does for ever: {again}", who + 1));
        }
    }

    /// `epoch`: of the connection. What is said again over the same one counts.
    pub(crate) fn forwarded(&mut self, who: usize, peer: usize, seq: u64, bytes: u64, epoch: u64) {
        let life = self.members[who].life;
        let over = epoch * 16 + peer as u64;
        match self.vigil.forwards.insert((who, life, seq), over) {
            None => self.vigil.first_bytes += bytes,
            Some(before) if before == over => self.vigil.again_bytes += bytes,
            Some(_) => {}
        }
    }

    /// At the end of the faults.
    pub(crate) fn weigh_forwards(&mut self) {
        let (first, again) = (self.vigil.first_bytes, self.vigil.again_bytes);
        *self.stats.entry("bytes forwarded").or_default() += first;
        *self.stats.entry("bytes forwarded again").or_default() += again;
        if self.plan.sights.has(Sight::SentAgain) && again > first / 2 + (128 << 10) {
            let text =
                format!("{first} bytes of commands were forwarded, and {again} bytes again over the same connections");
            self.fail("B-1", text);
        }
    }

    // Records.

    /// Whether the records of members whose disks were harmed are whole. `late`: they must be by
    /// now.
    pub(crate) fn is_healed(&mut self, late: bool) -> bool {
        if !self.plan.sights.has(Sight::Records) {
            return true;
        }
        let last = self.oracle.model.last().revision;
        for who in self.standing().into_iter().filter(|who| self.is_hurt(*who)) {
            let disk = self.members[who].disk.clone();
            disk.begin(self.now, None);
            let known = self.known_segments(who);
            let on = |_, _| std::ops::ControlFlow::Continue(());
            let scanned = disk::records::scan(&*disk.files(), &known, 0, last + 1, on);
            disk.end();
            if let Err(fault) = scanned {
                if late {
                    self.fail("D-7", format!("m{} does not get its records back: {fault}", who + 1));
                }
                return false;
            }
        }
        true
    }

    /// The segments of a member as far as its files hold them.
    fn known_segments(&self, who: usize) -> Vec<store::SegmentUse> {
        self.members[who].up.as_ref().map_or(Vec::new(), |life| life.node.segments_in_files())
    }

    /// Every record in every member's files is the one that the model has, and none is missing that
    /// compaction has not taken.
    pub(crate) fn check_records(&mut self) {
        if !self.plan.sights.has(Sight::Records) {
            return;
        }
        for who in self.standing() {
            let disk = self.members[who].disk.clone();
            disk.trouble(|t| t.reads_fail = 0);
            disk.begin(self.now, None);
            let known = self.known_segments(who);
            let model = &self.oracle.model;
            let last = model.last().revision;
            let mut wrong = None;
            let mut seen = BTreeSet::new();
            let scanned = disk::records::scan(&*disk.files(), &known, 0, last + 1, |record, whole| {
                seen.insert(record.rev);
                let (main, sub) = (record.rev.main, record.rev.sub);
                let right = model.events(main).iter().find(|e| e.sub == sub);
                let same = right.is_some_and(|right| {
                    right.tombstone == record.tombstone
                        && crate::watcher::open(&whole)
                            .is_ok_and(|kv| right.tombstone && kv.key == right.kv.key || kv == right.kv)
                });
                if same {
                    return std::ops::ControlFlow::Continue(());
                }
                wrong = Some(format!("record {main}.{sub} is {:?}, right is {right:?}", crate::watcher::open(&whole)));
                std::ops::ControlFlow::Break(())
            });
            disk.end();
            *self.stats.entry("records compared").or_default() += seen.len() as u64;
            if let (Ok(()), None, Some(last)) = (&scanned, &wrong, seen.last()) {
                // What came later may be in memory alone.
                let missing = model.kept(model.last()).into_iter().find(|rev| rev < last && !seen.contains(rev));
                wrong = missing.map(|rev| format!("record {}.{} is missing", rev.main, rev.sub));
            }
            match (scanned, wrong) {
                (_, Some(text)) => return self.fail("D-4", format!("m{}: {text}", who + 1)),
                (Err(fault), None) => return self.met_damage(who, format!("m{}: {fault}", who + 1)),
                _ => {}
            }
        }
    }
}
