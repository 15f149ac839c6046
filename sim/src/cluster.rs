//! The driver: whole members on virtual time. It carries outputs out as the server does, on
//! three disk lanes for each member, over the simulated network, and feeds the oracle.

mod jobs;

use crate::clients::{Client, Reader};
use crate::clock::Clock;
use crate::disk::{CallFault, Disk, FlushFailure, Lies, PowerLoss, Report, Speed};
use crate::marks::Marks;
use crate::net::{Flight, Net, Sent};
use crate::oracle::Oracle;
use crate::panics::guarded;
use crate::plan::{MS, Plan, SECOND};
use crate::planted::Planted;
use crate::rng::Rng;
use crate::streams::Stream;
use crate::trace::{Mode, Time, Trace, fold};
use bytes::Bytes;
use consensus::HardState;
use disk::Identity;
use node::frame::Frame;
use node::{Answer, Input, Job, JobId, JobResult, Level, Node, Output, Request, Status, StreamId, Waiter};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub const CLUSTER: u64 = 0xc1;
/// Log index that the genesis checkpoint stands for: one for each founder.
pub fn genesis_index(members: usize) -> u64 {
    members as u64
}
pub const MIN_TTL: i64 = 2;
const LOG: usize = 0;
const PROBE: Waiter = u64::MAX;

/// What happens next, and when. `life` tells a member's lives apart.
pub(crate) enum Event {
    Tick { who: usize, life: u64 },
    Turn { who: usize, life: u64 },
    Arrive { flight: Flight },
    Lost { who: usize, life: u64, peer: usize },
    LaneAgain { who: usize, life: u64, lane: usize },
    JobDone { who: usize, life: u64, lane: usize, job: JobId, result: JobResult, durable: Option<Durable> },
    Durable { who: usize, life: u64, durable: Durable },
    Start { who: usize },
    Up { who: usize, life: u64 },
    Crash { who: usize, life: u64, power: bool, down: Time },
    Stream { who: usize, life: u64, stream: StreamId },
    Taken { who: usize, life: u64, stream: StreamId, bytes: usize },
    Client { client: usize },
    Deadline { client: usize, tag: u64 },
    GiveUp { client: usize, tag: u64 },
    Fault { nth: usize },
    FaultEnds { nth: usize, member: usize },
    Phase,
}

/// What a save makes durable.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    hard: HardState,
    entries: Vec<(u64, u64)>,
}

struct Queued {
    at: Time,
    seq: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// A fault that waits for the next job of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Armed {
    Fail(CallFault),
    Crash { call: u32, power: bool, down: Time },
}

#[derive(Default)]
struct LaneQueue {
    waiting: node::queue::JobQueue,
    /// Waits for space on the disk, ahead of all others.
    held: Option<(JobId, Job)>,
    busy: bool,
}

pub(crate) struct Life {
    pub node: Node,
    pub log: disk::Log,
    lanes: [LaneQueue; 3],
    inbox: VecDeque<Input>,
    turn_set: bool,
    pub waiters: BTreeMap<Waiter, Reader>,
    pub streams: BTreeMap<StreamId, Stream>,
    /// Newest revision answered to anybody.
    pub published: i64,
    /// A disk call failed in this life: it may stop.
    faulted: bool,
    saving: bool,
    checkpointing: bool,
    installing: bool,
    pub status: Status,
    pub frozen_once: bool,
}

pub(crate) struct Member {
    pub id: u64,
    pub disk: Disk,
    pub life: u64,
    /// A process that serves.
    pub up: Option<Box<Life>>,
    /// A process that recovers; it serves from `Event::Up` on.
    starting: Option<Box<Life>>,
    pub gone: bool,
    pub clock: Clock,
    pub armed: BTreeMap<usize, Armed>,
    /// Planted: an image of the disk of some seconds ago.
    pub old_image: Option<(Time, BTreeMap<String, Vec<u8>>)>,
    stopping: Option<Time>,
    last_leader: u64,
}

pub struct Sim {
    pub plan: Plan,
    pub planted: Option<Planted>,
    pub now: Time,
    seq: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub trace: Trace,
    pub marks: Marks,
    pub oracle: Oracle,
    pub net: Net,
    pub(crate) members: Vec<Member>,
    pub(crate) clients: Vec<Client>,
    pub(crate) rng: Rng,
    pub(crate) work_rng: Rng,
    pub fault_counts: BTreeMap<&'static str, u64>,
    pub(crate) next_waiter: Waiter,
    pub(crate) next_tag: u64,
    pub(crate) next_stream: StreamId,
    pub operations: u64,
    pub(crate) phase: crate::run::Phase,
    last_leader_change: Time,
    /// Lanes that a planted bug killed.
    dead_lanes: std::collections::BTreeSet<(usize, usize)>,
    frame_buffer: Vec<u8>,
    pub stats: BTreeMap<&'static str, u64>,
}

fn lane_number(lane: node::work::Lane) -> usize {
    match lane {
        node::work::Lane::Log => LOG,
        node::work::Lane::Reader => 1,
        node::work::Lane::Background => 2,
    }
}

fn frame_lane(frame: &Frame) -> usize {
    match node::frame::lane(frame) {
        node::frame::Lane::Urgent => 0,
        node::frame::Lane::Log => 1,
        node::frame::Lane::Bulk => 2,
    }
}

impl Sim {
    pub fn new(plan: Plan, planted: Option<Planted>, mode: Mode) -> Sim {
        let seed = plan.seed;
        let n = plan.members;
        let members = (0..n)
            .map(|i| {
                let disk = Disk::new(Rng::new(seed, &format!("disk {i}")), Speed { flush: plan.flush, percent: 100 });
                disk.set_lies(Lies {
                    ignores_sync: planted == Some(Planted::FlushLies),
                    ignores_sync_dir: planted == Some(Planted::DirFlushLies),
                });
                Member {
                    id: i as u64 + 1,
                    disk,
                    life: 0,
                    up: None,
                    starting: None,
                    gone: false,
                    clock: Clock::new(plan.skew[i], plan.ticks_catch_up),
                    armed: BTreeMap::new(),
                    old_image: None,
                    stopping: None,
                    last_leader: 0,
                }
            })
            .collect();
        let clients = (0..plan.workload.clients).map(|_| Client::default()).collect();
        let mut sim = Sim {
            planted,
            now: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            trace: Trace::new(mode),
            marks: Marks::default(),
            oracle: Oracle::new(n, genesis_index(n)),
            net: Net::new(n, Rng::new(seed, "net"), plan.delay, plan.breaks, plan.ghosts),
            members,
            clients,
            rng: Rng::new(seed, "driver"),
            work_rng: Rng::new(seed, "workload"),
            fault_counts: BTreeMap::new(),
            next_waiter: 1,
            next_tag: 1,
            next_stream: 1,
            operations: 0,
            phase: crate::run::Phase::Safety,
            last_leader_change: 0,
            dead_lanes: Default::default(),
            frame_buffer: Vec::new(),
            stats: BTreeMap::new(),
            plan,
        };
        sim.found();
        sim
    }

    /// Genesis on every disk, flushed; then everything is scheduled.
    fn found(&mut self) {
        let founders: Vec<store::Member> = (1..=self.plan.members as u64)
            .map(|id| store::Member {
                id,
                name: format!("m{id}"),
                peer_urls: vec![format!("http://m{id}:2380")],
                client_urls: vec![],
            })
            .collect();
        for who in 0..self.plan.members {
            let disk = self.members[who].disk.clone();
            disk.begin(0, None);
            let (config, identity) = (self.config(who), self.identity(who));
            let made = guarded(|| node::genesis(&disk.files(), identity, &config, founders.clone()));
            disk.end();
            disk.power_loss(1 << 40, PowerLoss::Everything);
            match made {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => self.oracle.fail(0, "recover", format!("genesis: {fault}")),
                Err(panic) => self.oracle.fail(0, "panic", panic),
            }
            let at = self.rng.below(200 * MS);
            self.at(at, Event::Start { who });
        }
        for client in 0..self.clients.len() {
            let at = SECOND / 2 + self.work_rng.below(SECOND);
            self.at(at, Event::Client { client });
        }
        for nth in 0..self.plan.faults.len() {
            self.at(self.plan.faults[nth].0, Event::Fault { nth });
        }
        self.at(self.plan.until, Event::Phase);
    }

    pub(crate) fn at(&mut self, at: Time, event: Event) {
        self.seq += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), seq: self.seq, event }));
    }

    pub(crate) fn tell(
        &mut self,
        who: Option<usize>,
        kind: &'static str,
        a: u64,
        b: u64,
        text: impl FnOnce() -> String,
    ) {
        self.trace.event(self.now, who.map_or(0, |w| w as u64 + 1), kind, a, b, text);
    }

    pub(crate) fn fail(&mut self, oracle: &'static str, text: String) {
        self.oracle.fail(self.now, oracle, text);
    }

    pub(crate) fn is(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    fn config(&self, who: usize) -> node::Config {
        let member = &self.members[who];
        // Lives and members differ; two runs of a seed do not.
        let boot = (member.id << 32) | (member.life + 1);
        let mut config = node::Config::new(CLUSTER, member.id, boot, self.plan.seed ^ member.id);
        config.election_ms = self.plan.election_ms;
        config.heartbeat_ms = self.plan.heartbeat_ms;
        config.segment_bytes = self.plan.segment_bytes;
        config.log_segment_bytes = self.plan.log_segment_bytes;
        config.checkpoint_bytes = self.plan.checkpoint_bytes;
        config.quota_bytes = -1;
        if self.plan.small_budgets {
            config.budgets.entry_cache = 4 << 10;
            config.budgets.uncommitted = 2 << 20;
            config.budgets.backlog = 30;
            config.budgets.event_ring = 2 << 10;
            config.budgets.unwritten = 2 << 10;
            config.budgets.whole_answer_items = 4;
            config.budgets.slice_keys = 3;
            config.budgets.history_bytes = 1 << 10;
        }
        config
    }

    pub(crate) fn identity(&self, who: usize) -> Identity {
        Identity { cluster: CLUSTER, member: self.members[who].id }
    }

    /// Runs until a finding or the end; false once the seed is over.
    pub fn step(&mut self) -> bool {
        if self.oracle.failed() || self.phase == crate::run::Phase::Done {
            return false;
        }
        let Some(Reverse(next)) = self.queue.pop() else { return false };
        self.now = next.at;
        self.happen(next.event);
        true
    }

    fn alive(&self, who: usize, life: u64) -> bool {
        self.members[who].life == life
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick { who, life } if self.alive(who, life) => self.tick(who, life),
            Event::Turn { who, life } if self.alive(who, life) => self.turn(who),
            Event::Arrive { flight } => self.arrive(flight),
            Event::Lost { who, life, peer } if self.alive(who, life) => {
                let peer = self.members[peer].id;
                self.tell(Some(who), "lost", peer, 0, || format!("connection to m{peer}"));
                self.give(who, Input::Lost { peer });
            }
            Event::LaneAgain { who, life, lane } if self.alive(who, life) => {
                self.members[who].up.as_mut().expect("up").lanes[lane].busy = false;
                self.run_lane(who, lane);
            }
            Event::JobDone { who, life, lane, job, result, durable } if self.alive(who, life) => {
                self.job_done(who, lane, job, result, durable);
            }
            Event::Durable { who, life, durable } if self.alive(who, life) => {
                self.oracle.on_durable(who, durable.hard, &durable.entries);
            }
            Event::Start { who } => self.start(who),
            Event::Up { who, life } if self.alive(who, life) => self.come_up(who),
            Event::Crash { who, life, power, down } if self.alive(who, life) => self.crash(who, power, Some(down)),
            Event::Stream { who, life, stream } if self.alive(who, life) => self.run_stream(who, stream),
            Event::Taken { who, life, stream, bytes } if self.alive(who, life) => self.stream_taken(who, stream, bytes),
            Event::Client { client } => self.client(client),
            Event::Deadline { client, tag } => self.deadline(client, tag),
            Event::GiveUp { client, tag } => self.give_up(client, tag),
            Event::Fault { nth } => self.fault(nth),
            Event::FaultEnds { nth, member } => self.fault_ends(nth, member),
            Event::Phase => self.advance_phase(),
            _ => {}
        }
    }

    // The process.

    fn start(&mut self, who: usize) {
        let m = &mut self.members[who];
        if m.gone || m.up.is_some() || m.starting.is_some() {
            return;
        }
        m.life += 1;
        let (life, disk) = (m.life, m.disk.clone());
        if self.is(Planted::DiskRolledBack)
            && life > 1
            && let Some((_, image)) = self.members[who].old_image.take()
        {
            disk.restore(&image);
        }
        self.members[who].life -= 1;
        let config = self.config(who);
        self.members[who].life += 1;
        disk.begin(self.now, None);
        let mut out = Vec::new();
        let recovered = guarded(|| Node::recover(config, &disk.files(), &mut out));
        let report = disk.end();
        let (node, log) = match recovered {
            Ok(Ok(both)) => both,
            Ok(Err(fault)) if fault.is_full() => {
                // Nothing to do but wait for space.
                let life = self.members[who].life;
                self.tell(Some(who), "full", life, 0, || fault.to_string());
                return self.at(self.now + SECOND / 2, Event::Start { who });
            }
            Ok(Err(fault)) => return self.fail("recover", format!("m{} does not start: {fault}", who + 1)),
            Err(panic) => return self.fail("panic", format!("m{} in recovery: {panic}", who + 1)),
        };
        let life_box = Life {
            node,
            log,
            lanes: Default::default(),
            inbox: VecDeque::new(),
            turn_set: false,
            waiters: BTreeMap::new(),
            streams: BTreeMap::new(),
            published: 0,
            faulted: false,
            saving: false,
            checkpointing: false,
            installing: false,
            status: Status::default(),
            frozen_once: false,
        };
        self.tell(Some(who), "start", life, report.end, || format!("life {life}, {} disk calls", report.calls.len()));
        self.members[who].starting = Some(Box::new(life_box));
        if life > 1 && !report.calls.is_empty() && self.phase == crate::run::Phase::Safety && self.rng.percent(12) {
            let (at, power) = (*self.rng.pick(&report.calls), self.rng.percent(60));
            let down = 10 * MS + self.rng.below(SECOND);
            self.at(at, Event::Crash { who, life, power, down });
        }
        self.at(report.end, Event::Up { who, life });
        // Outputs of recovery are carried out when it serves.
        self.starting_outputs(who, out);
    }

    fn starting_outputs(&mut self, who: usize, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Note { text, .. } => {
                    if text.contains("never acknowledged") {
                        self.marks.hit("torn tail cut");
                    }
                    self.tell(Some(who), "note", fold(text.as_bytes()), 0, || text.clone());
                }
                Output::Job { job, work } => {
                    let lane = lane_number(node::work::lane(&work));
                    let life = self.members[who].starting.as_mut().expect("starting");
                    life.lanes[lane].waiting.push(job, work);
                }
                other => panic!("recovery cannot say {other:?}"),
            }
        }
    }

    fn come_up(&mut self, who: usize) {
        let Some(life) = self.members[who].starting.take() else { return };
        let number = self.members[who].life;
        self.members[who].up = Some(life);
        let life = self.members[who].up.as_mut().expect("just put");
        let (first, hard) = (life.log.boundary().0 + 1, life.log.hard());
        let entries = guarded(|| life.log.read(first, u64::MAX));
        let entries = match entries {
            Ok(Ok(entries)) => entries,
            Ok(Err(fault)) => return self.fail("recover", format!("m{} cannot read its log: {fault}", who + 1)),
            Err(panic) => return self.fail("panic", panic),
        };
        let applied = self.probe(who).applied;
        self.oracle.on_recovered(self.now, who, hard, &entries, applied);
        let revision = self.probe(who).revision;
        let life = self.members[who].up.as_mut().expect("up");
        life.published = revision;
        self.tell(Some(who), "up", applied, hard.term, || {
            format!(
                "applied {applied} term {} vote {} log {}..={}",
                hard.term,
                hard.vote,
                first,
                first + entries.len() as u64 - 1
            )
        });
        for lane in 0..3 {
            self.run_lane(who, lane);
        }
        self.observe(who);
        self.members[who].clock.begin();
        self.at(self.now, Event::Tick { who, life: number });
        self.wake(who);
    }

    fn probe(&mut self, who: usize) -> Status {
        let life = self.members[who].up.as_mut().expect("up");
        let mut out = Vec::new();
        life.node.step(Input::Request { waiter: PROBE, request: Request::Status }, &mut out);
        for output in out {
            if let Output::Answer { answer: Answer::Status(status), .. } = output {
                return *status;
            }
        }
        // A member that stopped says nothing more.
        self.members[who].up.as_ref().expect("up").status.clone()
    }

    /// Holds what the member says of itself against the log.
    fn observe(&mut self, who: usize) {
        let status = self.probe(who);
        let fresh = self.oracle.on_status(self.now, who, &status);
        for done in &fresh {
            if !done.expired.is_empty() {
                self.marks.hit("lease expired");
                if self.now < self.last_leader_change + 2 * SECOND && self.now > 5 * SECOND {
                    self.marks.hit("lease expired right after a leader change");
                }
            }
            if done.fenced > 0 {
                self.marks.hit("fenced expiry refused");
            }
            if let Some(envelope) = &done.envelope
                && crate::clients::is_nested(&envelope.command)
            {
                self.marks.hit("transaction nested");
            }
        }
        self.members[who].up.as_mut().expect("up").status = status;
    }

    /// Ends the process. `down`: when it starts again.
    pub(crate) fn crash(&mut self, who: usize, power: bool, down: Option<Time>) {
        let now = self.now;
        let Some(life) = self.members[who].up.take().or_else(|| self.members[who].starting.take()) else { return };
        let was_starting = life.status.member == 0;
        self.tell(Some(who), if power { "power" } else { "kill" }, 0, 0, || "the process is dead".to_string());
        if was_starting {
            self.marks.hit("crash during recovery");
        }
        if life.saving {
            self.marks.hit("crash between log flush and apply");
        }
        if life.checkpointing {
            self.marks.hit("crash while a checkpoint is written");
        }
        if life.installing {
            self.marks.hit("snapshot interrupted by a crash");
        }
        let Life { waiters, streams, node, log, .. } = *life;
        // Handles close before the disk decides what survives.
        drop(node);
        drop(log);
        let m = &mut self.members[who];
        m.life += 1;
        m.armed.clear();
        m.stopping = None;
        if power {
            let how = match self.rng.below(10) {
                0..=2 => PowerLoss::Nothing,
                3 => PowerLoss::Everything,
                _ => PowerLoss::Some,
            };
            m.disk.power_loss(now, how);
        } else {
            m.disk.kill(now);
        }
        self.net.died(now, who);
        for peer in 0..self.members.len() {
            if peer != who && self.members[peer].up.is_some() {
                let life = self.members[peer].life;
                let at = now + self.rng.below(5 * MS);
                self.at(at, Event::Lost { who: peer, life, peer: who });
            }
        }
        for (_, reader) in waiters {
            self.orphan(reader);
        }
        for (_, stream) in streams {
            self.orphan_stream(stream);
        }
        if let Some(down) = down {
            self.at(now + down.max(1), Event::Start { who });
        }
    }

    // One turn.

    /// Queues an input for the next turn.
    pub(crate) fn give(&mut self, who: usize, input: Input) {
        if let Some(life) = self.members[who].up.as_mut() {
            life.inbox.push_back(input);
            self.wake(who);
        }
    }

    fn wake(&mut self, who: usize) {
        let number = self.members[who].life;
        let until = self.members[who].clock.frozen_until;
        let soon = self.now + 1 + self.rng.below(40);
        let Some(life) = self.members[who].up.as_mut() else { return };
        if !life.turn_set {
            life.turn_set = true;
            self.at(soon.max(until), Event::Turn { who, life: number });
        }
    }

    fn tick(&mut self, who: usize, life: u64) {
        let now = self.now;
        let clock = &mut self.members[who].clock;
        if clock.frozen(now) {
            // The tick waits for the process; more will be due meanwhile.
            clock.wait(now);
            let until = clock.frozen_until;
            self.at(until, Event::Tick { who, life });
            return;
        }
        let passed = clock.pass(now);
        self.at(passed.next, Event::Tick { who, life });
        for _ in 0..passed.ticks {
            self.give(who, Input::Tick);
        }
        if passed.away > 0 {
            self.give(who, Input::Away { ticks: passed.away });
        }
        if self.is(Planted::ClockTooFast) {
            self.give(who, Input::Tick);
        }
        self.tick_streams(who);
    }

    fn turn(&mut self, who: usize) {
        let until = self.members[who].clock.frozen_until;
        let number = self.members[who].life;
        if self.now < until {
            return self.at(until, Event::Turn { who, life: number });
        }
        let Some(life) = self.members[who].up.as_mut() else { return };
        life.turn_set = false;
        let inputs = std::mem::take(&mut life.inbox);
        let count = inputs.len() as u64;
        let mut out = Vec::new();
        let done = guarded(|| {
            for input in inputs {
                life.node.step(input, &mut out);
            }
            life.node.flush(&mut out);
            // Walks and sweeps go on in turns of their own.
            life.node.idle()
        });
        let idle = match done {
            Ok(idle) => idle,
            Err(panic) => return self.fail("panic", format!("m{}: {panic}", who + 1)),
        };
        self.tell(Some(who), "turn", count, out.len() as u64, || format!("{count} in, {} out", out.len()));
        self.observe(who);
        if self.oracle.failed() {
            return;
        }
        for output in out {
            self.carry_out(who, output);
            if self.members[who].life != number || self.oracle.failed() {
                return;
            }
        }
        if !idle {
            self.wake(who);
        }
    }

    fn carry_out(&mut self, who: usize, output: Output) {
        match output {
            Output::Job { job, work } => self.submit(who, job, work),
            Output::Send { to, frame } => self.send(who, to, frame),
            Output::Answer { waiter: PROBE, .. } => {}
            Output::Answer { waiter, revision, term, answer } => {
                self.tell(Some(who), "answer", waiter, revision as u64, || {
                    format!("w{waiter} rev {revision} term {term} {answer:?}")
                });
                self.answered(who, waiter, revision, answer);
            }
            Output::Watch { stream, message } => self.to_stream(who, stream, message),
            Output::Leader { term, leader, role } => {
                self.tell(Some(who), "leader", term, leader, || format!("term {term}: {leader} ({role:?})"));
                if leader != 0 && leader != self.members[who].last_leader {
                    if self.members[who].last_leader != 0 {
                        self.marks.hit("leader changed");
                    }
                    let last = self.oracle.last();
                    if self.members.iter().any(|m| m.up.as_ref().is_some_and(|l| l.status.last > last)) {
                        self.marks.hit("leader changed with uncommitted entries");
                    }
                    if self.net_is_one_way() {
                        self.marks.hit("one-way cut with an election");
                    }
                    self.members[who].last_leader = leader;
                    self.last_leader_change = self.now;
                }
                self.tell_streams_leader(who, leader != 0);
            }
            Output::Note { level, text } => {
                if level == Level::Error || text.contains("disk") {
                    self.marks_of_note(&text);
                }
                self.tell(Some(who), "note", fold(text.as_bytes()), 0, || format!("{level:?}: {text}"));
            }
            Output::Stopped => {
                self.marks.hit("member stopped cleanly");
                let down = self.members[who].stopping.unwrap_or(SECOND);
                self.crash(who, false, Some(down));
            }
            Output::Fatal { reason } => self.fatal(who, reason),
        }
    }

    fn marks_of_note(&mut self, text: &str) {
        if text.contains("giving up leadership") {
            self.marks.hit("leader gave way with a hung disk");
        }
    }

    fn fatal(&mut self, who: usize, reason: String) {
        self.tell(Some(who), "fatal", fold(reason.as_bytes()), 0, || reason.clone());
        if self.members[who].up.as_ref().is_some_and(|l| l.faulted) {
            if self.members[who].disk.is_full() {
                *self.stats.entry("full disk ended a member").or_default() += 1;
            } else {
                self.marks.hit("disk error ended a member");
            }
            let down = 50 * MS + self.rng.below(SECOND);
            let power = self.rng.percent(30);
            return self.crash(who, power, Some(down));
        }
        self.fail("fatal", format!("m{} stops though its disk never failed: {reason}", who + 1));
    }

    fn net_is_one_way(&self) -> bool {
        let n = self.members.len();
        (0..n).any(|a| (0..n).any(|b| self.net.is_cut(a, b) && !self.net.is_cut(b, a)))
    }

    // Disk.

    fn position(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|m| m.id == id)
    }

    fn send(&mut self, who: usize, to: u64, frame: Frame) {
        let Some(peer) = self.position(to) else {
            return self.fail("M-3", format!("m{} sends to {to}, which is nobody", who + 1));
        };
        if peer == who {
            return self.fail("M-3", format!("m{} sends to itself: {frame:?}", who + 1));
        }
        let lane = frame_lane(&frame);
        let mut bytes = std::mem::take(&mut self.frame_buffer);
        bytes.clear();
        if let Err(panic) = guarded(|| node::frame::encode(&frame, &mut bytes)) {
            return self.fail("panic", format!("m{} encodes a frame: {panic}", who + 1));
        }
        let wire = Bytes::copy_from_slice(&bytes);
        self.frame_buffer = bytes;
        self.tell(Some(who), "send", to, fold(&wire), || format!("to m{to} {frame:?}"));
        if lane == 0 && self.dead_lanes.contains(&(who, peer)) {
            return;
        }
        if self.members[peer].gone {
            return;
        }
        match self.net.send(self.now, who, peer, lane, wire) {
            Sent::Arrives(at, flight) => self.at(at, Event::Arrive { flight }),
            Sent::Held => {}
            Sent::NoConnection(up_at) => {
                let life = self.members[who].life;
                self.at(up_at, Event::Lost { who, life, peer });
            }
            Sent::Breaks => {
                if matches!(frame, Frame::Forward { .. }) {
                    self.marks.hit("forward lost with its connection");
                }
                self.break_pair(who, peer);
            }
        }
    }

    pub(crate) fn break_pair(&mut self, a: usize, b: usize) {
        self.net.break_pair(self.now, a, b);
        if self.is(Planted::UrgentLaneDies) {
            self.dead_lanes.insert((a, b));
            self.dead_lanes.insert((b, a));
        }
        for (who, peer) in [(a, b), (b, a)] {
            let life = self.members[who].life;
            let at = self.now + self.rng.below(10 * MS);
            self.at(at, Event::Lost { who, life, peer });
        }
    }

    fn arrive(&mut self, flight: Flight) {
        if !self.net.arrives(&flight) || self.members[flight.to].up.is_none() {
            return;
        }
        if self.net.is_old(&flight) {
            self.marks.hit("message of a previous life arrived");
        }
        let from = self.members[flight.from].id;
        let frame = match guarded(|| node::frame::decode(flight.bytes.clone())) {
            Ok(Ok(frame)) => frame,
            Ok(Err(_)) => return self.fail("codec", "a frame that was encoded is not decoded".to_string()),
            Err(panic) => return self.fail("panic", panic),
        };
        let who = flight.to;
        self.tell(Some(who), "recv", from, fold(&flight.bytes), || format!("from m{from} {frame:?}"));
        if self.is(Planted::ReadIndexByAnyone)
            && let Frame::ReadIndex { boot, token } = frame
        {
            let status = self.members[who].up.as_ref().expect("up").status.clone();
            if status.is_leader {
                return self.send(who, from, Frame::ReadIndexReply { boot, token, index: status.applied });
            }
        }
        if self.is(Planted::ForwardTwice)
            && self.rng.percent(5)
            && let Frame::Forward { term, boot, commands } = &frame
        {
            let again = commands
                .iter()
                .map(|c| node::frame::Forwarded { seq: c.seq + (1 << 40), body: c.body.clone() })
                .collect();
            self.give(who, Input::Frame { from, frame: Frame::Forward { term: *term, boot: *boot, commands: again } });
        }
        self.give(who, Input::Frame { from, frame });
    }

    // Faults that touch a member.

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |m: &Member| m.up.as_ref().is_some_and(|l| l.status.is_leader);
        (0..self.members.len())
            .filter(|&i| leads(&self.members[i]))
            .max_by_key(|&i| self.members[i].up.as_ref().map(|l| l.status.term))
    }

    pub(crate) fn begin_stop(&mut self, who: usize, down: Time) {
        self.members[who].stopping = Some(down);
        self.give(who, Input::Stop);
    }

    pub(crate) fn arm(&mut self, who: usize, lane: usize, armed: Armed) {
        self.members[who].armed.insert(lane, armed);
    }

    pub(crate) fn flush_fault(call: u32, flush: bool, lost: bool) -> CallFault {
        CallFault {
            call,
            only_flush: flush,
            flush: if lost { FlushFailure::PagesLost } else { FlushFailure::PagesKept },
        }
    }

    /// Members whose disk is not lost.
    pub(crate) fn standing(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|&i| !self.members[i].gone).collect()
    }

    pub fn sizes(&self) -> (usize, u64, u64) {
        (self.plan.members, self.trace.events(), self.net.frames)
    }
}
