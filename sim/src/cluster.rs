//! The driver: whole members on virtual time. It carries outputs out as the server does, on
//! three disk lanes for each member, over the simulated network, and feeds the oracle.

mod founding;
mod frames;
mod histories;
mod jobs;
mod lives;
mod plants;

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
use crate::sights::Sight;
use crate::streams::Stream;
use crate::trace::{Mode, Time, Trace, fold};
use bytes::Bytes;
use consensus::{HardState, Position};
use disk::Identity;
use node::frame::Frame;
use node::{
    Answer, BackgroundJob, Input, Job, JobId, JobResult, Level, Node, Output, Request, Status, StreamId, Waiter,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

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
    Tick {
        who: usize,
        life: u64,
        due: Time,
    },
    Turn {
        who: usize,
        life: u64,
    },
    Arrive {
        flight: Flight,
    },
    Lost {
        who: usize,
        life: u64,
        peer: usize,
    },
    /// A peer's port refuses connections.
    Gone {
        who: usize,
        life: u64,
        peer: usize,
    },
    LaneAgain {
        who: usize,
        life: u64,
        lane: usize,
    },
    JobDone {
        who: usize,
        life: u64,
        lane: usize,
        job: JobId,
        result: JobResult,
        durable: Option<Durable>,
    },
    Durable {
        who: usize,
        life: u64,
        durable: Durable,
    },
    Start {
        who: usize,
    },
    Up {
        who: usize,
        life: u64,
    },
    Crash {
        who: usize,
        life: u64,
        power: bool,
        down: Time,
    },
    Stream {
        who: usize,
        life: u64,
        stream: StreamId,
    },
    Taken {
        who: usize,
        life: u64,
        stream: StreamId,
        bytes: usize,
    },
    Client {
        client: usize,
    },
    Deadline {
        client: usize,
        tag: u64,
    },
    GiveUp {
        client: usize,
        tag: u64,
    },
    Fault {
        nth: usize,
    },
    /// The disk begins to lie about the log.
    Lie {
        who: usize,
    },
    Strike {
        nth: usize,
        who: usize,
    },
    Mend {
        who: usize,
    },
    /// A link with bandwidth is free for the next frame.
    Depart {
        from: usize,
        to: usize,
    },
    /// A disk that was full when its member came back has room again.
    Room {
        who: usize,
    },
    /// The next leases of a flood.
    Flood,
    /// The operator looks at what it wants.
    Operate,
    /// A member that serves says where.
    Publish {
        who: usize,
        life: u64,
    },
    /// The vigil looks on.
    Look,
    FaultEnds {
        nth: usize,
        member: usize,
    },
    Phase,
}

/// What a save makes durable.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    hard: HardState,
    entries: Vec<Position>,
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
    pub(crate) inbox: VecDeque<Input>,
    turn_set: bool,
    pub waiters: BTreeMap<Waiter, Reader>,
    pub streams: BTreeMap<StreamId, Stream>,
    /// Newest revision answered to anybody.
    pub published: i64,
    /// A disk call failed in this life: it may stop.
    pub faulted: bool,
    saving: bool,
    checkpointing: bool,
    checkpoint_began: Time,
    /// Another member's state takes the place of its own.
    pub installing: Installing,
    /// A snapshot was installed, or begun.
    pub replaced: bool,
    /// The run of segments that is being rewritten.
    rewriting: Vec<u32>,
    pub status: Status,
    pub frozen_once: bool,
    /// It said that nothing of its state is answered.
    pub barred: bool,
    /// It had said so before the turn that is carried out.
    pub was_barred: bool,
    /// It founded when others were beyond genesis, and had not caught up when it started.
    late: bool,
    /// It tells the others its client URLs.
    publishing: Option<Waiter>,
    published_urls: bool,
    /// Which founding it was of behind its last turn.
    pub founding: u64,
    /// Ids of those who vote, as it says.
    pub voters: Vec<u64>,
    /// Ids that are members no more, as it says.
    pub removed: BTreeSet<u64>,
}

impl Life {
    /// It says who belongs to the cluster, and who does no more.
    pub(crate) fn listed(&mut self, members: &[(store::Member, bool)], removed: BTreeSet<u64>) {
        let voters = members.iter().filter(|(_, learner)| !learner);
        self.voters = voters.map(|(member, _)| member.id).collect();
        self.removed = removed;
    }
}

/// How far a member is with another one's state.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Installing {
    #[default]
    No,
    /// Its files come.
    Pulls,
    /// Files take the place of its own: what it reads by an old handle may be of the new state.
    Swaps,
}

/// Who leads a term.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Led {
    term: u64,
    leader: u64,
}

pub(crate) struct Member {
    pub id: u64,
    pub disk: Disk,
    /// The disk as this life of the process sees it.
    pub files: Arc<dyn disk::Files>,
    pub life: u64,
    /// Power losses so far: each gives the machine another boot.
    power_losses: u64,
    /// A process that serves.
    pub up: Option<Box<Life>>,
    /// A process that recovers; it serves from `Event::Up` on.
    pub starting: Option<Box<Life>>,
    pub gone: bool,
    pub clock: Clock,
    pub armed: BTreeMap<usize, Armed>,
    /// Planted: an image of the disk of some seconds ago.
    pub old_image: Option<(Time, BTreeMap<String, Vec<u8>>)>,
    stopping: Option<Time>,
    /// It waits for the other founders.
    founding: bool,
    last_leader: u64,
    /// The newest leader that it knew.
    led: Led,
    /// Lanes whose jobs wait, and until when.
    pub hung: [Time; 3],
    /// A turn takes so long until that time.
    pub slow: (Time, Time),
    /// Its last turn ends then.
    pub busy_until: Time,
    /// The next record that is written is spoilt.
    pub spoil_record: bool,
    /// Its process was killed, and behind its next start the power goes.
    pub then_power: bool,
}

impl Member {
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// The process does nothing before this time: it is paused, or a turn takes long.
    pub fn stands_still_until(&self) -> Time {
        self.clock.frozen_until.max(self.busy_until)
    }
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
    pub(crate) asked: crate::asked::Asked,
    twice_rng: Rng,
    gone_rng: Rng,
    pub(crate) operator: crate::operator::Operator,
    pub(crate) operator_rng: Rng,
    pub(crate) alone: crate::alone::Alone,
    pub fault_counts: BTreeMap<&'static str, u64>,
    pub(crate) next_waiter: Waiter,
    pub(crate) next_tag: u64,
    pub(crate) next_stream: StreamId,
    pub operations: u64,
    pub(crate) phase: crate::run::Phase,
    /// When somebody began to lead, last.
    pub(crate) led_since: Time,
    pub(crate) hurts: BTreeMap<usize, crate::stories::Hurt>,
    pub(crate) vigil: crate::vigil::Vigil,
    pub(crate) flooded: u64,
    pub(crate) times_left: crate::time_left::TimesLeft,
    pub(crate) last_leader_change: Time,
    plants: plants::Plants,
    /// For what happens to snapshots under way, and to members without a state.
    pull_rng: Rng,
    /// For disks that are full when their members come back.
    pub(crate) room_rng: Rng,
    /// Senders of snapshots that died so far.
    senders_died: u64,
    /// Pairs of members of which each has heard which founding the other is of, and over which
    /// connection.
    pub(crate) connected: BTreeMap<(usize, usize), u64>,
    frame_buffer: Vec<u8>,
    pub stats: BTreeMap<&'static str, u64>,
    /// Bytes committed a second, until the end of the faults.
    pub(crate) goodput: u64,
}

fn lane_number(job: &Job) -> usize {
    match job {
        Job::Log(_) => LOG,
        Job::Read(_) => 1,
        Job::Background(_) => 2,
    }
}

impl Sim {
    pub fn new(mut plan: Plan, planted: Option<Planted>, mode: Mode) -> Sim {
        plants::shape(&mut plan, planted);
        let seed = plan.seed;
        let n = plan.members + plan.spares;
        let members = (0..n)
            .map(|i| {
                let disk = Disk::new(Rng::new(seed, &format!("disk {i}")), Speed { flush: plan.flush, percent: 100 });
                disk.set_lies(plants::lies(planted));
                Member {
                    id: i as u64 + 1,
                    files: disk.process(),
                    disk,
                    life: 0,
                    up: None,
                    starting: None,
                    gone: false,
                    clock: Clock::new(plan.skew[i], plan.ticks_catch_up),
                    armed: BTreeMap::new(),
                    old_image: None,
                    power_losses: 0,
                    stopping: None,
                    founding: false,
                    last_leader: 0,
                    led: Led::default(),
                    hung: [0; 3],
                    slow: (0, 0),
                    busy_until: 0,
                    spoil_record: false,
                    then_power: false,
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
            oracle: Oracle::new(plan.members, n, genesis_index(plan.members)),
            net: Net::new(n, Rng::new(seed, "net"), plan.delay, plan.breaks, plan.ghosts),
            members,
            clients,
            rng: Rng::new(seed, "driver"),
            work_rng: Rng::new(seed, "workload"),
            asked: crate::asked::Asked::new(seed),
            twice_rng: Rng::new(seed, "killed, then power"),
            gone_rng: Rng::new(seed, "ports that refuse"),
            operator: Default::default(),
            operator_rng: Rng::new(seed, "operator's day"),
            alone: Default::default(),
            fault_counts: BTreeMap::new(),
            next_waiter: 1,
            next_tag: 1,
            next_stream: 1,
            operations: 0,
            phase: crate::run::Phase::Safety,
            led_since: 0,
            hurts: BTreeMap::new(),
            vigil: Default::default(),
            flooded: 0,
            times_left: Default::default(),
            last_leader_change: 0,
            plants: Default::default(),
            pull_rng: Rng::new(seed, "pulls"),
            room_rng: Rng::new(seed, "full at start"),
            senders_died: 0,
            connected: BTreeMap::new(),
            frame_buffer: Vec::new(),
            stats: BTreeMap::new(),
            goodput: 0,
            plan,
        };
        sim.schedule();
        sim
    }

    /// Everything is scheduled; the members start in empty directories.
    fn schedule(&mut self) {
        for who in 0..self.plan.members {
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
        self.at(SECOND, Event::Look);
        self.net.bandwidth = self.plan.bandwidth;
        self.employ_operator();
        if self.plan.leases > 0 {
            self.at(2 * SECOND, Event::Flood);
        }
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

    pub(crate) fn config(&self, who: usize) -> node::Config {
        let member = &self.members[who];
        // Lives and members differ; two runs of a seed do not.
        let boot = (member.id << 32) | (member.life + 1);
        // Consensus mixes the member's id in: with the same id in the seed all members would draw
        // the same timeouts.
        let mut config = node::Config::new(CLUSTER, member.id, boot, self.plan.seed);
        let machine = u128::from(member.id) << 64 | u128::from(member.power_losses);
        config.kernel_boot = Some(machine.to_be_bytes());
        config.log_salt = crate::rng::Rng::new(self.plan.seed, &format!("salt {boot}")).draw();
        config.election_ms = self.plan.election_ms;
        config.heartbeat_ms = self.plan.heartbeat_ms;
        config.segment_bytes = self.plan.segment_bytes;
        config.log_segment_bytes = self.plan.log_segment_bytes;
        config.checkpoint_bytes = self.plan.checkpoint_bytes;
        config.quota_bytes = self.plan.quota;
        config.digest_every = self.plan.digest_every;
        config.scrub_seconds = 20;
        config.founders = self.founders_in_flags(member.id);
        config.founding = self.founding_of(boot);
        if let Some((keys, bytes)) = self.plan.steps {
            (config.budgets.apply_keys, config.budgets.apply_read) = (keys, bytes);
        }
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
        let over = self.phase == crate::run::Phase::Done || self.oracle.waited_in_vain(self.now);
        if self.oracle.failed() || over {
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
            Event::Tick { who, life, due } if self.alive(who, life) => self.tick(who, life, due),
            Event::Turn { who, life } if self.alive(who, life) => self.turn(who),
            Event::Arrive { flight } => self.arrive(flight),
            Event::Lost { who, life, peer } if self.alive(who, life) => {
                let peer = self.members[peer].id;
                self.tell(Some(who), "lost", peer, 0, || format!("connection to m{peer}"));
                self.give(who, Input::Lost { peer });
            }
            Event::Gone { who, life, peer } if self.alive(who, life) => self.sees_gone(who, peer),
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
            Event::Lie { who } => self.lie(who),
            Event::Strike { nth, who } => self.strike_story(nth, who),
            Event::Mend { who } => self.mend(who),
            Event::Look => self.look(),
            Event::Depart { from, to } => self.depart(from, to),
            Event::Room { who } => self.has_room(who),
            Event::Flood => self.flood(),
            Event::Operate => self.operate(),
            Event::Publish { who, life } if self.alive(who, life) => self.publish(who),
            Event::FaultEnds { nth, member } => self.fault_ends(nth, member),
            Event::Phase => self.advance_phase(),
            _ => {}
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
        let until = self.members[who].stands_still_until();
        let soon = self.now + 1 + self.rng.below(40);
        let Some(life) = self.members[who].up.as_mut() else { return };
        if !life.turn_set {
            life.turn_set = true;
            self.at(soon.max(until), Event::Turn { who, life: number });
        }
    }

    /// `due`: when the tick is due that this is about. A turn may have taken it already.
    fn tick(&mut self, who: usize, life: u64, due: Time) {
        let until = self.members[who].stands_still_until();
        let clock = &mut self.members[who].clock;
        if due != clock.due() || due > self.now {
            return;
        }
        if self.now < until {
            // The tick waits for the process; more will be due meanwhile.
            return self.at(until, Event::Tick { who, life, due });
        }
        let passed = clock.pass(self.now);
        self.at(passed.next, Event::Tick { who, life, due: passed.next });
        if !self.is(Planted::ClockTooSlow) || self.rng.percent(33) {
            for _ in 0..passed.ticks {
                self.give(who, Input::Tick);
            }
            if passed.away > 0 {
                self.give(who, Input::Away { ticks: passed.away });
            }
        }
        self.plant_in_tick(who);
        if self.is(Planted::JobForEver) {
            self.see_job(who, "begin install", &BackgroundJob::InstallFinish { differed: None }.into());
        }
        if self.is(Planted::ClockTooFast) {
            self.give(who, Input::Tick);
        }
        self.tick_streams(who);
    }

    fn turn(&mut self, who: usize) {
        let until = self.members[who].stands_still_until();
        let number = self.members[who].life;
        if self.now < until {
            return self.at(until, Event::Turn { who, life: number });
        }
        // As in the server's driver: behind its inputs a turn has all ticks that are due. Else it
        // would count leases from a clock that stands where an earlier turn left it.
        self.tick(who, number, self.members[who].clock.due());
        let Some(life) = self.members[who].up.as_mut() else { return };
        life.turn_set = false;
        life.was_barred = life.barred;
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
        if self.is(Planted::NoteForEver) {
            self.hear_note(who, "planted");
        }
        self.tell(Some(who), "turn", count, out.len() as u64, || format!("{count} in, {} out", out.len()));
        self.observe(who);
        if self.oracle.failed() {
            return;
        }
        for output in out {
            let Some(output) = self.plant_in_output(who, output) else { continue };
            self.carry_out(who, output);
            if self.members[who].life != number || self.oracle.failed() {
                return;
            }
        }
        self.remember_founding(who);
        let (until, cost) = self.members[who].slow;
        if self.now < until {
            self.members[who].busy_until = self.now + cost;
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
            // Its clients and watchers are those of another cluster.
            Output::Answer { waiter, .. } if self.is_foreign(who) => {
                let reader = self.members[who].up.as_mut().and_then(|life| life.waiters.remove(&waiter));
                reader.into_iter().for_each(|reader| self.orphan(reader));
            }
            Output::Watch { .. } if self.is_foreign(who) => {}
            Output::Answer { waiter, revision, term, answer } => {
                self.tell(Some(who), "answer", waiter, revision as u64, || {
                    format!("w{waiter} rev {revision} term {term} {answer:?}")
                });
                self.answered(who, waiter, revision, answer);
            }
            Output::Watch { stream, message } => self.tell_stream(who, stream, message),
            Output::Leader { term, leader, role } => {
                self.tell(Some(who), "leader", term, leader, || format!("term {term}: {leader} ({role:?})"));
                if role == consensus::Role::Leader {
                    self.led_since = self.now;
                }
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
                }
                // Who leads again in another term gives every lease its full time too.
                if leader != 0 && self.members[who].led != (Led { term, leader }) {
                    self.members[who].led = Led { term, leader };
                    self.last_leader_change = self.now;
                }
                self.tell_streams_leader(who, leader != 0);
            }
            Output::Note { level, text } => {
                if level == Level::Error || text.contains("disk") {
                    self.marks_of_note(who, &text);
                }
                self.tell(Some(who), "note", fold(text.as_bytes()), 0, || format!("{level:?}: {text}"));
                self.hear_note(who, &text);
                self.hear_contradiction(who, &text);
                if let Some(life) = self.members[who].up.as_mut() {
                    if text.starts_with("installed the snapshot") {
                        life.installing = Installing::No;
                    }
                    life.barred = crate::differs::is_barred(&text).unwrap_or(life.barred);
                    if !life.barred {
                        self.has_joined(who);
                    }
                }
            }
            Output::Members { members, removed } => {
                self.members[who].up.as_mut().expect("up").listed(&members, removed);
            }
            Output::Snapshot { .. } => {}
            Output::Removed => self.ends_removed(who),
            Output::Stopped => {
                self.marks.hit("member stopped cleanly");
                let down = self.members[who].stopping.unwrap_or(SECOND);
                let status = self.members[who].up.as_ref().expect("up").status.clone();
                let lacks = self.lacks_state(who);
                self.crash(who, false, Some(down));
                if lacks && self.is(Planted::EmptyStateWritten) {
                    self.plant_at_stop(who, &status);
                }
            }
            Output::Fatal { reason } => self.fatal(who, reason),
            Output::Restart { reason } => {
                self.tell(Some(who), "restarts", fold(reason.as_bytes()), 0, || reason.clone());
                self.crash(who, false, Some(10 * MS));
                if self.is(Planted::LogGivenUp) {
                    self.members[who].disk.lose_log();
                }
            }
        }
    }

    fn marks_of_note(&mut self, who: usize, text: &str) {
        if text.contains("differs from what the other members agree on: CORRUPT") {
            self.found_to_differ(who);
        }
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
        if self.is_hurt(who) && (self.foreign_stops(who, &reason) || !self.is_foreign(who)) {
            self.marks.hit("damage was met and named");
            // An operator reads what it said, and puts the right bytes back.
            self.crash(who, false, None);
            let at = self.now + SECOND + self.rng.below(SECOND);
            return self.at(at, Event::Mend { who });
        }
        self.fail("fatal", format!("m{} stops though its disk never failed: {reason}", who + 1));
    }

    fn net_is_one_way(&self) -> bool {
        let n = self.members.len();
        (0..n).any(|a| (0..n).any(|b| self.net.is_cut(a, b) && !self.net.is_cut(b, a)))
    }

    // Faults that touch a member.

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |m: &Member| m.up.as_ref().is_some_and(|l| l.status.is_leader);
        (0..self.members.len())
            .filter(|&i| leads(&self.members[i]) && !self.is_old(i))
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
