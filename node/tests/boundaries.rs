//! A crash behind each call of the disk, over a whole life: found, load, checkpoint, compaction,
//! what the background does of itself, a process that ends and starts again, a snapshot that is
//! installed, damaged files that a member gives up for the others' copies, a clean stop.
//!
//! The life is lived once by one member and once by three. Each write, flush, rename and removal is
//! a boundary: there the power goes, for all members at once, and what no flush covers is gone,
//! stays, or is torn by the sector. Then the members start again. Every acknowledged command is
//! there, none that was never sent, and the next one is answered.
//!
//! `BOUNDARIES=all` tries each boundary in each way, `BOUNDARIES=1234` that one; else a sample has
//! its turn.

use bytes::Bytes;
use disk::{Fault, How, Identity, Log, LogOptions};
use node::frame::Frame;
use node::offline::cut_tail;
use node::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::command::{self, DeleteRangeRequest, PutRequest};
use store::{KeyRange, Member, Query};
use testkit::files::{KEPT, Kept, MemFiles};

const CLUSTER: u64 = 0xc1;
/// Boundaries of one life that are tried when not all are.
const SAMPLE: usize = 60;
/// Until the members serve again. An election takes ten to twenty.
const PATIENCE: u32 = 4_000;

struct Machine {
    id: u64,
    /// None: the process does not run.
    life: Option<(Node, Log)>,
    files: MemFiles,
}

/// What a client knows that sends one command after another.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    keys: BTreeMap<String, String>,
    leases: u64,
    /// -1: never.
    compacted: i64,
    revision: i64,
}

/// The power may go here.
#[derive(Clone, Debug)]
struct Boundary {
    /// Calls of each member's disk that were made.
    calls: Vec<usize>,
    /// Commands that were answered before.
    acknowledged: usize,
    /// Commands that were sent before.
    sent: usize,
    /// Members whose files were damaged before, and who have not made it good.
    hurt: BTreeSet<usize>,
    /// The job, for the report.
    during: &'static str,
}

#[derive(Default)]
struct Deck {
    machines: Vec<Machine>,
    jobs: VecDeque<(usize, JobId, Job)>,
    wires: VecDeque<(u64, u64, Frame)>,
    /// A member that nothing reaches.
    alone: Option<u64>,
    answers: BTreeMap<Waiter, Answer>,
    next: Waiter,
    boots: u64,
    /// Members that end to start again, and the machine that they run on.
    restarts: Vec<usize>,
    machine: u8,
    /// States behind each command; the first is the empty one.
    states: Vec<State>,
    sent: usize,
    acknowledged: usize,
    boundaries: Vec<Boundary>,
    done: BTreeSet<&'static str>,
    /// As in [`Boundary`].
    hurt: BTreeSet<usize>,
    fatal: Vec<String>,
    /// Warnings and worse.
    told: Vec<String>,
    /// Starts that needed a word of the operator.
    cut: usize,
    /// The only machine that is left; its member is told that it is alone at each start.
    survivor: Option<usize>,
}

fn config(id: u64, boot: u64, machine: u8) -> Config {
    let mut config = Config::new(CLUSTER, id, boot, 7 * boot + id);
    config.kernel_boot = Some([machine; 16]);
    config.election_ms = 100;
    config.heartbeat_ms = 20;
    config.segment_bytes = 24 << 10;
    config.log_segment_bytes = 64 << 10;
    config.checkpoint_bytes = 24 << 10;
    config.budgets.entry_cache = 8 << 10;
    config.budgets.unwritten = 4 << 10;
    config
}

fn name(job: &Job) -> &'static str {
    match job {
        Job::Log(LogJob::Save { .. }) => "Save",
        Job::Log(LogJob::Prove { .. }) => "Prove",
        Job::Log(LogJob::KeepDoubt { .. }) => "KeepDoubt",
        Job::Log(LogJob::CutLog { .. }) => "CutLog",
        Job::Log(LogJob::RestartLog { .. }) => "RestartLog",
        Job::Background(BackgroundJob::WriteRecords { .. }) => "WriteRecords",
        Job::Background(BackgroundJob::CheckpointBegin { .. }) => "CheckpointBegin",
        Job::Background(BackgroundJob::CheckpointRows { .. }) => "CheckpointRows",
        Job::Background(BackgroundJob::CheckpointFinish { .. }) => "CheckpointFinish",
        Job::Background(BackgroundJob::InstallBegin { .. }) => "InstallBegin",
        Job::Background(BackgroundJob::InstallChunk { .. }) => "InstallChunk",
        Job::Background(BackgroundJob::InstallFinish { .. }) => "InstallFinish",
        _ => "another job",
    }
}

impl Deck {
    /// Members with these disks; empty ones are founded.
    fn new(disks: Vec<MemFiles>, machine: u8, boots: u64) -> Deck {
        Deck::with(disks, machine, boots, None)
    }

    /// Of these machines none but the survivor starts, if there is one.
    fn with(disks: Vec<MemFiles>, machine: u8, boots: u64, survivor: Option<usize>) -> Deck {
        let mut deck = Deck {
            boots,
            survivor,
            machine,
            states: vec![State { revision: 1, compacted: -1, ..State::default() }],
            ..Deck::default()
        };
        let count = disks.len() as u64;
        let member =
            |id| Member { id, name: format!("m{id}"), peer_urls: vec![format!("http://m{id}")], client_urls: vec![] };
        for (at, files) in disks.into_iter().enumerate() {
            let id = at as u64 + 1;
            deck.machines.push(Machine { id, life: None, files });
        }
        for at in deck.running() {
            let (id, files) = (deck.machines[at].id, deck.machines[at].files.shared());
            if !exists(&files).expect("readable") {
                let before = deck.calls();
                let identity = Identity { cluster: CLUSTER, member: id };
                // Half a founding is begun anew by whoever starts the member (`disk::founding`).
                deck.machines[at].files = if deck.machines[at].files.files().is_empty() {
                    deck.machines[at].files.clone()
                } else {
                    MemFiles::new()
                };
                let files = deck.machines[at].files.shared();
                genesis(&files, identity, &config(id, 1, machine), (1..=count).map(member).collect())
                    .expect("an empty disk");
                deck.mark(at, &before, "founding");
            }
            deck.start(at, machine);
        }
        deck
    }

    /// The machines that are not lost.
    fn running(&self) -> Vec<usize> {
        self.survivor.map_or_else(|| (0..self.machines.len()).collect(), |at| vec![at])
    }

    fn calls(&self) -> Vec<usize> {
        self.machines.iter().map(|machine| machine.files.calls()).collect()
    }

    /// Every call of this member since `before` was made while the others stood still.
    fn mark(&mut self, at: usize, before: &[usize], during: &'static str) {
        let after = self.machines[at].files.calls();
        self.done.insert(during);
        for calls in before[at] + 1..=after {
            let mut all = before.to_vec();
            all[at] = calls;
            let (acknowledged, sent) = (self.acknowledged, self.sent);
            self.boundaries.push(Boundary { calls: all, acknowledged, sent, hurt: self.hurt.clone(), during });
        }
    }

    fn start(&mut self, at: usize, machine: u8) {
        self.boots += 1;
        let (id, files) = (self.machines[at].id, self.machines[at].files.shared());
        let before = self.calls();
        let mut out = Vec::new();
        if self.survivor == Some(at) {
            let told = Config { founding: self.boots, ..config(id, self.boots, machine) };
            if let Err(fault) = alone(&told, &files, &mut out) {
                return self.fatal.push(format!("{id} does not go on alone: {fault}"));
            }
            self.mark(at, &before, "alone");
        }
        let before = self.calls();
        match Node::recover(config(id, self.boots, machine), &files, &mut out) {
            Ok(life) => self.machines[at].life = Some(life),
            Err(Fault::Doubtful { .. }) if self.machines.len() == 1 && self.cut == 0 => {
                // A lone member cuts no end of its log whose tear is not proven; its operator does.
                let config = config(id, self.boots, machine);
                let options = LogOptions {
                    segment_bytes: config.log_segment_bytes,
                    boot: config.kernel_boot,
                    salt: config.log_salt,
                };
                let identity = Identity { cluster: CLUSTER, member: id };
                cut_tail(&files, identity, options).expect("it can be cut").expect("there is an end in doubt");
                self.cut += 1;
                return self.start(at, machine);
            }
            Err(fault) => self.fatal.push(format!("{id} does not start: {fault}")),
        }
        self.mark(at, &before, "start");
        self.take(at, out);
    }

    /// Other bytes come to lie on the disk of a member that does not run, in each of its files that
    /// are called so.
    fn spoil(&mut self, at: usize, prefix: &str, offset: u64) {
        self.hurt.insert(at);
        let machine = &self.machines[at];
        for path in machine.files.files().into_iter().filter(|path| path.starts_with(prefix)) {
            // By way of calls, so that a later crash has them too.
            let file = machine.files.shared().open(&path, How::Write).expect("a file");
            file.write_at(offset, &[&[0x5a; 64]]).and_then(|()| file.sync()).expect("a disk in memory");
        }
    }

    /// As a process that is killed: what it wrote stays.
    fn kill(&mut self, at: usize) {
        self.machines[at].life = None;
        self.jobs.retain(|(of, _, _)| *of != at);
    }

    fn take(&mut self, at: usize, out: Vec<Output>) {
        let id = self.machines[at].id;
        for output in out {
            match output {
                Output::Job { job, work } => self.jobs.push_back((at, job, work)),
                Output::Send { to, frame } => self.wires.push_back((id, to, frame)),
                Output::Answer { waiter, answer, .. } => {
                    self.answers.insert(waiter, answer);
                }
                Output::Note { level: Level::Warn | Level::Error, text } => self.told.push(text),
                Output::Restart { .. } => self.restarts.push(at),
                Output::Fatal { reason } => self.fatal.push(format!("{id} ends: {reason}")),
                _ => {}
            }
        }
    }

    fn input(&mut self, at: usize, input: Input) {
        let mut out = Vec::new();
        if let Some((node, _)) = &mut self.machines[at].life {
            node.step(input, &mut out);
        }
        self.take(at, out);
    }

    /// One job, with a boundary behind each of its calls.
    fn work(&mut self, at: usize, job: JobId, work: Job) {
        let (id, files, before) = (self.machines[at].id, self.machines[at].files.shared(), self.calls());
        let during = name(&work);
        let Some((_, log)) = &mut self.machines[at].life else { return };
        let id = Identity { cluster: CLUSTER, member: id };
        let config = store::Config { segment_bytes: config(id.member, 1, 1).segment_bytes };
        let ran = work::run(log, &*files, work::Whose { id, config }, work);
        self.mark(at, &before, during);
        match ran {
            work::Ran::Done(result) => self.input(at, Input::Done { job, result }),
            work::Ran::Full { .. } => panic!("the disk is never full here"),
        }
    }

    /// Until nobody has anything to do.
    fn settle(&mut self) {
        loop {
            let mut busy = false;
            for at in 0..self.machines.len() {
                let mut out = Vec::new();
                if let Some((node, _)) = &mut self.machines[at].life {
                    node.flush(&mut out);
                    busy |= !node.idle();
                }
                busy |= !out.is_empty();
                self.take(at, out);
            }
            // Frames leave before jobs are done, as they do in a member.
            while let Some((from, to, frame)) = self.wires.pop_front() {
                busy = true;
                if self.alone.is_none_or(|alone| alone != from && alone != to) {
                    self.input(to as usize - 1, Input::Frame { from, frame });
                }
            }
            for at in std::mem::take(&mut self.restarts) {
                busy = true;
                self.kill(at);
                self.start(at, self.machine);
            }
            if let Some((at, job, work)) = self.jobs.pop_front() {
                busy = true;
                self.work(at, job, work);
            }
            if !busy {
                return;
            }
        }
    }

    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            (0..self.machines.len()).for_each(|at| self.input(at, Input::Tick));
            self.settle();
        }
    }

    /// Asks a member; None: no answer came.
    fn ask(&mut self, at: usize, request: Request) -> Option<Answer> {
        self.next += 1;
        let waiter = self.next;
        self.input(at, Input::Request { waiter, who: node::Who::Nobody, request });
        self.settle();
        for _ in 0..PATIENCE {
            if let Some(answer) = self.answers.remove(&waiter) {
                return Some(answer);
            }
            if !self.fatal.is_empty() {
                break;
            }
            self.ticks(1);
        }
        None
    }

    /// A command that must succeed, and the state behind it.
    fn command(&mut self, at: usize, request: Request, change: impl FnOnce(&mut State)) {
        let mut state = self.states.last().expect("the first one").clone();
        change(&mut state);
        self.states.push(state);
        self.sent += 1;
        let answer = self.ask(at, request);
        assert!(matches!(answer, Some(Answer::Applied { result: Ok(_), .. })), "{answer:?} {:?}", self.fatal);
        self.acknowledged += 1;
    }

    fn put(&mut self, at: usize, key: &str, value: &str, lease: i64) {
        let mut request = Vec::new();
        let put = PutRequest { key: key.as_bytes(), value: value.as_bytes(), lease, ..PutRequest::default() };
        put.encode(&mut request);
        let body = command::encode_put(&request).expect("well-formed");
        self.command(at, Request::Propose { body, cost: command::put_cost(&put) }, |state| {
            state.keys.insert(key.to_string(), value.to_string());
            state.revision += 1;
        });
    }

    fn delete(&mut self, at: usize, key: &str) {
        let mut request = Vec::new();
        DeleteRangeRequest { key: key.as_bytes(), ..DeleteRangeRequest::default() }.encode(&mut request);
        let body = command::encode_delete_range(&request).expect("well-formed");
        self.command(at, Request::Propose { body, cost: 0 }, |state| {
            let there = state.keys.remove(key).is_some();
            state.revision += i64::from(there);
        });
    }

    fn grant(&mut self, at: usize, lease: i64) {
        let body = command::encode_lease_grant(lease, 1_000_000, 0);
        self.command(at, Request::Propose { body, cost: 64 }, |state| state.leases += 1);
    }

    fn compact(&mut self, at: usize, behind: i64) {
        let revision = self.states.last().expect("the first one").revision - behind;
        self.command(at, Request::Compact { revision, physical: true }, |state| state.compacted = revision);
    }

    /// So many puts, of sizes that fill segments, log files and checkpoints now and then.
    fn load(&mut self, at: usize, round: u64, count: u64) {
        for n in 0..count {
            let size = if n % 7 == 0 { 3_000 } else { 40 + (n as usize * 37) % 300 };
            let key = format!("k{}", (n * 5 + round) % 23);
            self.put(at, &key, &format!("{round}/{n}/{}", "x".repeat(size)), 0);
            if n % 9 == 4 {
                self.delete(at, &format!("k{}", (n * 3 + round) % 23));
            }
        }
    }

    fn leader(&mut self) -> usize {
        for _ in 0..PATIENCE {
            let leads = |machine: &Machine| machine.life.as_ref().is_some_and(|(node, _)| node.status().is_leader);
            if let Some(at) = self.machines.iter().position(leads) {
                return at;
            }
            self.ticks(1);
        }
        panic!("nobody leads: {:?}", self.fatal);
    }

    /// What the cluster serves, at its leader and then at every member.
    fn served(&mut self) -> Result<State, String> {
        let query = Query::all(KeyRange { key: Bytes::from_static(b"\0"), end: Some(Bytes::new()) });
        let mut seen: Option<State> = None;
        for at in self.running() {
            let mut answer = None;
            for _ in 0..PATIENCE {
                let query = query.clone();
                answer = self.ask(at, Request::Range { query, linearizable: true, stream: false, keep: u64::MAX });
                // It waits for a state. That of the leader comes soon.
                if !matches!(answer, Some(Answer::Refused(node::Refusal::User(store::Error::Corrupt)))) {
                    break;
                }
                self.ticks(1);
            }
            let Some(Answer::Range(start)) = answer else {
                return Err(format!("member {}: {answer:?} instead of a range; {:?}", at + 1, self.fatal));
            };
            let keys = start.found.places().map(|place| self.pair(at, place)).collect::<Result<_, String>>()?;
            let (node, _) = self.machines[at].life.as_ref().expect("it answered");
            let status = node.status();
            let state = State { keys, leases: status.leases, compacted: status.compacted, revision: status.revision };
            if seen.as_ref().is_some_and(|seen| *seen != state) {
                return Err(format!("member {} has another state than the first", at + 1));
            }
            seen = Some(state);
        }
        seen.ok_or_else(|| "nobody".to_string())
    }

    fn pair(&self, at: usize, place: &store::Located) -> Result<(String, String), String> {
        let files = self.machines[at].files.shared();
        let record = match &place.bytes {
            Some(bytes) => bytes.clone(),
            None => {
                disk::records::read(&*files, place.handle).map_err(|fault| format!("member {}: {fault}", at + 1))?
            }
        };
        let opened = store::record::open(&record).map_err(|damage| damage.what.to_string())?;
        let kv = store::record::key_value(&opened.body).map_err(|_| "no key value")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(kv.key), text(kv.value)))
    }
}

/// Everything a member does with its disk. `members`: one or three.
fn life(members: u64) -> Deck {
    let mut deck = Deck::new((0..members).map(|_| MemFiles::new()).collect(), 1, 0);
    let at = deck.leader();
    deck.ticks(30);
    deck.grant(at, 11);
    deck.put(at, "leased", "one", 11);
    deck.load(at, 1, 40);
    deck.compact(at, 12);
    // What the background does of itself, and the proof of an idle log.
    deck.ticks(300);
    deck.load(at, 2, 20);

    // A process that is killed, and one that stops: the machine goes on.
    deck.kill(at);
    deck.start(at, 1);
    let at = deck.leader();
    deck.load(at, 3, 15);
    if members > 1 {
        far_behind(&mut deck);
        damaged(&mut deck);
    }
    let at = deck.leader();
    deck.grant(at, 12);
    for at in 0..deck.machines.len() {
        deck.input(at, Input::Stop);
        deck.ticks(60);
        deck.kill(at);
    }
    for at in 0..deck.machines.len() {
        deck.start(at, 1);
    }
    let at = deck.leader();
    deck.load(at, 4, 10);
    deck.ticks(200);
    deck
}

/// A member is cut off until the others' logs no longer reach back to where it stands.
fn far_behind(deck: &mut Deck) {
    let leader = deck.leader();
    let last = (0..deck.machines.len()).rfind(|at| *at != leader).expect("three");
    deck.alone = Some(deck.machines[last].id);
    for round in 5..8 {
        deck.load(leader, round, 25);
        deck.compact(leader, 5);
        deck.ticks(20);
    }
    deck.alone = None;
    deck.ticks(300);
}

/// A follower finds its files damaged when it starts, and begins anew from the others: first no
/// checkpoint is whole, then its log is damaged far below its end.
fn damaged(deck: &mut Deck) {
    for (path, offset) in [("state/index-", 0), ("log/0", 4096)] {
        let leader = deck.leader();
        let follower = (0..deck.machines.len()).rfind(|at| *at != leader).expect("three");
        deck.kill(follower);
        deck.spoil(follower, path, offset);
        deck.told.clear();
        deck.start(follower, 1);
        assert!(deck.told.iter().any(|text| text.contains(path)), "nothing is said of {path}: {:?}", deck.told);
        deck.ticks(300);
        deck.load(leader, 9, 5);
        deck.ticks(100);
        deck.hurt.clear();
    }
}

/// The power goes at a boundary. What is wrong afterwards?
fn crashed(lived: &Deck, boundary: &Boundary, kept: Kept) -> Result<usize, String> {
    let disks = lived.machines.iter().zip(&boundary.calls);
    let disks = disks.map(|(machine, calls)| machine.files.crash(*calls, kept)).collect();
    // With everything kept it was the processes that ended, all of them at once.
    let machine = if matches!(kept, Kept::Everything) { 1 } else { 2 };
    let mut deck = Deck::with(disks, machine, 1_000, lived.survivor);
    if let Some(fault) = deck.fatal.first() {
        return Err(fault.clone());
    }
    if !matches!(kept, Kept::Some(_)) {
        let whole = deck.running().into_iter().filter(|at| !boundary.hurt.contains(at));
        whole.map(|at| &deck.machines[at]).try_for_each(doubts_nothing)?;
    }
    let state = deck.served()?;
    let may_be = &lived.states[boundary.acknowledged..=boundary.sent];
    if !may_be.contains(&state) {
        let due = &may_be[0];
        let revision = |state: &State| (state.revision, state.compacted, state.leases, state.keys.len());
        let differing = due.keys.iter().find(|(key, value)| state.keys.get(*key) != Some(value));
        let differing = differing.map(|(key, value)| (key, value.len(), state.keys.get(key).map(String::len)));
        return Err(format!(
            "the state is none that was acknowledged or sent: (revision, compacted, leases, keys) {:?} instead of {:?}, {differing:?}",
            revision(&state),
            revision(due)
        ));
    }
    deck.states = vec![state];
    let at = deck.running()[0];
    deck.put(at, "afterwards", "all is well", 0);
    let after = deck.served()?;
    if deck.states.last() != Some(&after) {
        return Err("the next put is not there".into());
    }
    if deck.cut > 0 && !matches!(kept, Kept::Some(_)) {
        return Err("the end of the log is in doubt, and no write was torn".into());
    }
    Ok(deck.cut)
}

/// A disk that kept everything it flushed, and on which nothing was torn or damaged, has lost
/// nothing: its member votes.
fn doubts_nothing(machine: &Machine) -> Result<(), String> {
    let id = Identity { cluster: CLUSTER, member: machine.id };
    match disk::doubt::find(&*machine.files.shared(), id).map_err(|fault| fault.to_string())? {
        Some(doubt) if doubt.promise.is_none() || doubt.at_least => {
            Err(format!("member {} does not vote, and has lost nothing: {doubt:?}", machine.id))
        }
        _ => Ok(()),
    }
}

/// Two of three machines are lost for good, and with them a command that nobody acknowledged. The
/// member of the third goes on alone.
fn survived() -> Deck {
    let mut deck = Deck::new((0..3).map(|_| MemFiles::new()).collect(), 1, 0);
    let at = deck.leader();
    deck.grant(at, 11);
    deck.put(at, "leased", "one", 11);
    // Checkpoints of the old founding, and a log behind them.
    deck.load(at, 1, 60);
    deck.ticks(100);
    deck.load(at, 5, 10);
    deck.ticks(50);
    (0..3).filter(|other| *other != at).for_each(|other| deck.kill(other));
    let mut request = Vec::new();
    PutRequest { key: b"last", value: b"word", ..PutRequest::default() }.encode(&mut request);
    let body = command::encode_put(&request).expect("well-formed");
    let mut state = deck.states.last().expect("the first one").clone();
    state.keys.insert("last".to_string(), "word".to_string());
    state.revision += 1;
    deck.states.push(state);
    deck.sent += 1;
    deck.input(at, Input::Request { waiter: 0, who: node::Who::Nobody, request: Request::Propose { body, cost: 0 } });
    deck.settle();
    deck.kill(at);
    deck.boundaries.clear();

    // Nobody heard of the last command, but it is on the only disk that is left.
    deck.survivor = Some(at);
    deck.acknowledged = deck.sent;
    deck.start(at, 1);
    assert_eq!(deck.leader(), at);
    deck.load(at, 2, 20);
    deck.ticks(100);
    deck.kill(at);
    deck.start(at, 1);
    deck.leader();
    deck.load(at, 3, 5);
    deck
}

fn sweep(lived: &Deck, must: &[&str]) {
    let members = lived.running().len();
    assert_eq!(lived.fatal, Vec::<String>::new());
    let missing: Vec<_> = must.iter().filter(|job| !lived.done.contains(*job)).collect();
    assert!(missing.is_empty(), "the life does not do everything: {missing:?} of {:?}", lived.done);
    let wanted = std::env::var("BOUNDARIES").unwrap_or_default();
    let count = lived.boundaries.len();
    let step = (count / SAMPLE).max(1);
    let (mut wrong, mut tried, mut cut) = (Vec::new(), 0, 0);
    for (at, boundary) in lived.boundaries.iter().enumerate() {
        let chosen = match wanted.parse::<usize>() {
            Ok(one) => at == one,
            // Another one of each step, so that no job is passed over for its place in the life.
            Err(_) => wanted == "all" || at % step == (at / step * 7) % step,
        };
        if !chosen {
            continue;
        }
        let ways: Vec<Kept> = match wanted.is_empty() {
            true => vec![KEPT[at / step % KEPT.len()]],
            false => KEPT.to_vec(),
        };
        for kept in ways {
            tried += 1;
            // A panic is a finding like the others: which boundary it was must be told.
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| crashed(lived, boundary, kept)));
            match found.unwrap_or_else(|_| Err("a panic, see above".into())) {
                Ok(ends) => cut += ends,
                Err(why) => {
                    wrong.push(format!("boundary {at} of {count}, during {}, {kept:?} kept: {why}", boundary.during));
                }
            }
        }
    }
    println!("{members} members: {count} boundaries, {tried} crashes, {cut} ends cut by hand, {} wrong", wrong.len());
    let few = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong:\n{few}", wrong.len());
    assert!(cut * 100 <= tried.max(100), "{cut} of {tried} ends of the log needed a word of the operator");
}

const ALWAYS: [&str; 8] =
    ["founding", "start", "Save", "Prove", "WriteRecords", "CheckpointBegin", "CheckpointFinish", "CutLog"];

#[test]
fn a_lone_member_loses_nothing_at_any_call() {
    sweep(&life(1), &ALWAYS);
}

#[test]
fn three_members_lose_nothing_at_any_call() {
    let installs = ["InstallBegin", "InstallChunk", "InstallFinish", "RestartLog"];
    sweep(&life(3), &[&ALWAYS[..], &installs[..]].concat());
}

#[test]
fn the_last_member_of_three_goes_on_alone_from_any_call() {
    sweep(&survived(), &["alone", "start", "Save", "CheckpointFinish"]);
}
