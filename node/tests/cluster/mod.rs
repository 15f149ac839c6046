//! A few members, jobs done at once, frames delivered in order; and the commands of the scripts.

mod budgets;
mod disks;
mod foundings;
mod links;
mod members;
mod requests;
mod txns;

use bytes::Bytes;
use consensus::Role;
use disk::{Files, Identity, Log};
use node::frame::Frame;
use node::queue::JobQueue;
use node::*;
use requests::{key_range, propose_delete, propose_put, propose_touch, range};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use store::command;
use store::{Member, Reply};
use testkit::files::MemFiles;

struct Machine {
    node: Node,
    log: Log,
    files: MemFiles,
    config: Config,
    down: bool,
    /// Saves are kept back while set.
    hung: bool,
    /// The restart of the log behind an installed snapshot is kept back while set.
    slow: bool,
    kept: Vec<(JobId, Job)>,
    /// Background jobs behind the one that runs: a lane keeps their order.
    behind: VecDeque<(JobId, Job)>,
    busy: bool,
    /// Lanes whose first job waits for space.
    stalled: Vec<Discriminant<Job>>,
    /// Proofs of the log's end are told.
    proofs: bool,
    /// Background jobs wait here while set.
    queue: Option<JobQueue>,
    /// When the process is stopped.
    throttle: Throttle,
    /// The process is stopped until this tick.
    paused_until: u64,
    /// Ticks that a stopped process has missed, and what came for it meanwhile.
    missed: u64,
    inbox: Vec<Input>,
}

/// Stopped for the first so many ticks of every so many.
#[derive(Clone, Copy, Default)]
struct Throttle {
    stopped: u64,
    of: u64,
}

/// What one member sends to another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wire {
    from: u64,
    to: u64,
}

impl Wire {
    fn both(a: u64, b: u64) -> [Wire; 2] {
        [Wire { from: a, to: b }, Wire { from: b, to: a }]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Leads {
    term: u64,
    leader: u64,
}

impl Machine {
    fn paused(&self, now: u64) -> bool {
        let Throttle { stopped, of } = self.throttle;
        now < self.paused_until || of > 0 && now % of < stopped
    }
}

#[derive(Default)]
pub struct Cluster {
    machines: BTreeMap<u64, Machine>,
    wires: VecDeque<(Wire, Frame)>,
    cut: BTreeSet<Wire>,
    /// Frames on these wires take so many ticks.
    long: BTreeMap<Wire, u64>,
    /// Frames on long wires, by the tick they arrive at.
    underway: BTreeMap<u64, Vec<(Wire, Frame)>>,
    now: u64,
    links: links::Links,
    clients: links::Clients,
    /// Forwards on these wires are remembered, to arrive once more.
    tapped: BTreeSet<Wire>,
    copies: Vec<(Wire, Frame)>,
    /// Bytes of the event ring; 0: the default.
    ring: usize,
    /// Largest amount of uncommitted data; 0: the default.
    uncommitted: u64,
    /// Bytes of entries kept in memory; 0: few.
    cache: u64,
    /// Bytes of records that are kept before they are written; 0: the default.
    unwritten: usize,
    /// Bytes of records in memory beyond which apply waits; 0: the default.
    unwritten_most: u64,
    /// Bytes of log that call for a checkpoint; 0: few.
    checkpoint: u64,
    /// Seconds of one pass over everything at rest; 0: none.
    scrub: u64,
    founders: Vec<Member>,
    /// All ends of processes are kills: the machine goes on.
    same_boot: bool,
    /// Disks hang from the first start on.
    hung: bool,
    next: Waiter,
    boots: u64,
    told: String,
    /// Members that said that they restart.
    restarts: Vec<u64>,
    foundings: foundings::Foundings,
    members: members::Members,
    txns: txns::Txns,
    budgets: budgets::Budgets,
    /// Copies of disks.
    images: BTreeMap<u64, MemFiles>,
    /// Who leads, as each member knows it.
    leader: BTreeMap<u64, Leads>,
}

const CLUSTER: u64 = 0xc1;

impl Cluster {
    pub fn command(&mut self, line: &str) -> String {
        self.told.clear();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["cache", bytes] => self.cache = bytes.parse().expect("bytes"),
            ["unwritten", bytes] => self.unwritten = bytes.parse().expect("bytes"),
            ["unwritten", bytes, most] => {
                self.unwritten = bytes.parse().expect("bytes");
                self.unwritten_most = most.parse().expect("bytes");
            }
            ["checkpoint", bytes] => self.checkpoint = bytes.parse().expect("bytes"),
            ["scrub", seconds] => self.scrub = seconds.parse().expect("seconds"),
            ["uncommitted", bytes] => self.uncommitted = bytes.parse().expect("bytes"),
            ["start", count] => {
                self.found(count.parse().expect("a number"));
                (0..300).for_each(|_| self.tick());
            }
            ["found", count] => self.found(count.parse().expect("a number")),
            ["found", count, "hung"] => {
                self.hung = true;
                self.found(count.parse().expect("a number"));
            }
            ["ballot", id] => {
                let machine = &self.machines[&id.parse().expect("id")];
                let whose = Identity { cluster: CLUSTER, member: id.parse().expect("id") };
                let doubt = disk::doubt::find(&*machine.files.shared(), whose).expect("readable");
                let doubt = doubt.map(|doubt| (doubt.promise, doubt.hard.term, doubt.hard.vote));
                let _ = writeln!(
                    self.told,
                    "{id}: on disk {:?}, doubt {doubt:?}, in memory term {}",
                    machine.log.hard(),
                    machine.node.status().term
                );
            }
            ["machine", "stays"] => self.same_boot = true,
            ["ticks", count] => (0..count.parse().expect("a number")).for_each(|_| self.tick()),
            // As a process that is killed: what it wrote stays.
            ["crash", id] => self.machines.get_mut(&id.parse().expect("id")).expect("member").down = true,
            ["restart", id] => self.restart(id.parse().expect("id")),
            ["hang", id] => self.machines.get_mut(&id.parse().expect("id")).expect("member").hung = true,
            ["queue", id] => {
                self.machines.get_mut(&id.parse().expect("id")).expect("member").queue = Some(JobQueue::default())
            }
            ["unqueue", id] => {
                let id = id.parse().expect("id");
                self.do_queued(id, usize::MAX, "");
                self.machines.get_mut(&id).expect("member").queue = None;
            }
            ["pause", id, ticks] => {
                let until = self.now + 1 + ticks.parse::<u64>().expect("ticks");
                self.machines.get_mut(&id.parse().expect("id")).expect("member").paused_until = until;
            }
            ["throttle", id, stopped, of] => {
                let throttle = Throttle { stopped: stopped.parse().expect("ticks"), of: of.parse().expect("ticks") };
                self.machines.get_mut(&id.parse().expect("id")).expect("member").throttle = throttle;
            }
            ["proofs", id] => self.machines.get_mut(&id.parse().expect("id")).expect("member").proofs = true,
            // As one other member alone says.
            ["differ", id, index, "from", from] => {
                let frame = Frame::Digest { index: index.parse().expect("index"), digest: 7 };
                self.input(id.parse().expect("id"), Input::Frame { from: from.parse().expect("id"), frame });
            }
            ["differ", id, index] => self.differ(id.parse().expect("id"), index.parse().expect("index")),
            ["flip", id, path, offset] => {
                let offset: usize = offset.parse().expect("offset");
                self.machines[&id.parse().expect("id")].files.edit(path, |bytes| bytes[offset] ^= 1);
            }
            ["blank", id, path, from, until] => {
                let (from, until): (usize, usize) = (from.parse().expect("offset"), until.parse().expect("offset"));
                let files = &self.machines[&id.parse().expect("id")].files;
                files.edit(&named(files, path), |bytes| bytes[from..until].fill(0));
            }
            // A page written to another place as well.
            ["misdirect", id, path, from, to] => {
                let (from, to): (usize, usize) = (from.parse().expect("offset"), to.parse().expect("offset"));
                let files = &self.machines[&id.parse().expect("id")].files;
                files.edit(&named(files, path), |bytes| bytes.copy_within(from..from + 4096, to));
            }
            ["truncate", id, path, len] => {
                let len = len.parse().expect("length");
                self.machines[&id.parse().expect("id")].files.edit(path, |bytes| bytes.truncate(len));
            }
            // Whether the files of two members hold the same records.
            ["same", a, b, segment] => {
                let path = disk::records::path(segment.parse().expect("segment"));
                let records = |id: &str| {
                    let files = &self.machines[&id.parse().expect("id")].files;
                    files.files().contains(&path).then(|| files.bytes(&path)[4096..].to_vec())
                };
                let (a, b) = (records(a), records(b));
                assert!(a.is_some() || b.is_some(), "nobody has a file {path}");
                let _ =
                    writeln!(self.told, "records of {path} are {}", if a == b { "the same" } else { "not the same" });
            }
            ["failreads", id, count] => {
                self.machines[&id.parse().expect("id")].files.fail_reads(count.parse().expect("count"));
            }
            // Nor can it write it.
            ["stuckpage", id, path, page] => {
                let files = &self.machines[&id.parse().expect("id")].files;
                files.stick_page(&named(files, path), page.parse().expect("page"));
            }
            // The disk cannot read this page until it is written.
            ["badpage", id, path, page] => {
                let files = &self.machines[&id.parse().expect("id")].files;
                files.spoil_page(&named(files, path), page.parse().expect("page"));
            }
            ["flip", id, path, "first", word] => self.flip_first(id.parse().expect("id"), path, word),
            ["lose", id, path] => {
                let files = &self.machines[&id.parse().expect("id")].files;
                for path in files.files().into_iter().filter(|name| name.starts_with(path)) {
                    Files::remove(files, &path).expect("it is there");
                }
            }
            ["files", id, dir] => {
                let files = self.machines[&id.parse().expect("id")].files.files();
                let count = files.into_iter().filter(|name| name.starts_with(&format!("{dir}/"))).count();
                let _ = writeln!(self.told, "{id}: {count} files in {dir}");
            }
            ["fliplast", id, word] => self.flip_last(id.parse().expect("id"), word),
            ["remember", id] => {
                let id = id.parse().expect("id");
                self.images.insert(id, self.machines[&id].files.copy());
            }
            ["rollback", id] => {
                let id = id.parse().expect("id");
                self.machines.get_mut(&id).expect("member").files = self.images[&id].copy();
            }
            ["full", id] => self.machines[&id.parse().expect("id")].files.set_full(true),
            ["room", id] => {
                let id = id.parse().expect("id");
                self.machines[&id].files.set_full(false);
                self.free(id);
            }
            ["ring", bytes] => self.ring = bytes.parse().expect("bytes"),
            ["do", id, count] => self.do_queued(id.parse().expect("id"), count.parse().expect("count"), ""),
            ["do", id, count, "until", last] => {
                self.do_queued(id.parse().expect("id"), count.parse().expect("count"), last);
            }
            ["slow", id] => self.machines.get_mut(&id.parse().expect("id")).expect("member").slow = true,
            ["flush", id, count] => self.flush(id.parse().expect("id"), count.parse().expect("count")),
            ["free", id] => self.free(id.parse().expect("id")),
            ["stop", id] => {
                let id = id.parse().expect("id");
                self.input(id, Input::Stop);
                (0..100).for_each(|_| self.tick());
            }
            words if self.link_command(words) || self.disk_command(words) => {}
            words if self.founding_command(words) || self.member_command(words) => {}
            words if self.txn_command(words) || self.budget_command(words) => {}
            [id, rest @ ..] => self.ask(id.parse().expect("a member or a command"), rest),
            [] => {}
        }
        self.told.clone()
    }

    /// Members as they are before their first tick.
    fn found(&mut self, count: u64) {
        let members: Vec<Member> = (1..=count)
            .map(|id| Member {
                id,
                name: format!("m{id}"),
                peer_urls: vec![format!("http://m{id}")],
                client_urls: vec![],
            })
            .collect();
        self.founders = members.clone();
        // Those of a cluster before this one are gone.
        self.machines.clear();
        self.wires.clear();
        self.foundings.connected.clear();
        for id in 1..=count {
            let files = MemFiles::new();
            let config = self.config(id);
            let shared: Arc<dyn Files> = files.shared();
            genesis(&shared, Identity { cluster: CLUSTER, member: id }, &config, members.clone())
                .expect("an empty disk");
            self.open(id, files, config);
        }
    }

    fn config(&mut self, id: u64) -> Config {
        self.boots += 1;
        let mut config = Config::new(CLUSTER, id, self.boots, 7 + id);
        config.founders = self.founders.clone();
        config.founding *= u64::from(!self.foundings.nameless);
        config.kernel_boot = self.same_boot.then_some([1; 16]);
        config.segment_bytes = 64 << 10;
        config.log_segment_bytes = 256 << 10;
        config.checkpoint_bytes = 16 << 10;
        config.budgets.entry_cache = 16 << 10;
        config.scrub_seconds = self.scrub;
        self.txns.configure(&mut config);
        self.budgets.configure(&mut config);
        if self.cache > 0 {
            config.budgets.entry_cache = self.cache;
        }
        if self.unwritten > 0 {
            config.budgets.unwritten = self.unwritten;
        }
        if self.unwritten_most > 0 {
            config.budgets.unwritten_most = self.unwritten_most;
        }
        if self.checkpoint > 0 {
            config.checkpoint_bytes = self.checkpoint;
        }
        if self.ring > 0 {
            config.budgets.event_ring = self.ring;
        }
        if self.uncommitted > 0 {
            config.budgets.uncommitted = self.uncommitted;
        }
        config
    }

    fn open(&mut self, id: u64, files: MemFiles, config: Config) {
        let shared: Arc<dyn Files> = files.shared();
        let mut out = Vec::new();
        let (node, log) = match Node::recover(config.clone(), &shared, &mut out) {
            Ok(recovered) => recovered,
            Err(fault) => {
                let _ = writeln!(self.told, "{id}: does not start: {fault}");
                return;
            }
        };
        let slow = self.machines.remove(&id).is_some_and(|before| before.slow);
        let machine = Machine {
            node,
            log,
            files,
            config,
            down: false,
            hung: self.hung,
            slow,
            kept: Vec::new(),
            behind: VecDeque::new(),
            busy: false,
            stalled: Vec::new(),
            proofs: false,
            queue: None,
            throttle: Throttle::default(),
            paused_until: 0,
            missed: 0,
            inbox: Vec::new(),
        };
        self.machines.insert(id, machine);
        self.foundings.ended(id);
        self.carry_out(id, out);
        self.settle(id);
    }

    fn restart(&mut self, id: u64) {
        let files = self.machines[&id].files.clone();
        let config = self.config(id);
        self.open(id, files, config);
        if !self.machines[&id].down {
            let revision = self.machines[&id].node.status().revision;
            let _ = writeln!(self.told, "{id}: back at revision {revision}");
        }
    }

    /// One bit changes in the first place that says `word`, of the first file whose name begins
    /// with `path`.
    fn flip_first(&mut self, id: u64, path: &str, word: &str) {
        let files = &self.machines[&id].files;
        let found = |path: &String| files.bytes(path).windows(word.len()).position(|window| window == word.as_bytes());
        let place = files.files().into_iter().filter(|name| name.starts_with(path)).find_map(|path| {
            let at = found(&path)?;
            Some((path, at))
        });
        let (path, at) = place.expect("a file says the word");
        files.edit(&path, |bytes| bytes[at] ^= 1);
    }

    /// One bit changes in the newest log file, in the last place that says `word`.
    fn flip_last(&mut self, id: u64, word: &str) {
        let files = &self.machines[&id].files;
        let path = files.files().into_iter().rfind(|path| path.starts_with("log/") && path.ends_with(".log"));
        files.edit(&path.expect("a log file"), |bytes| {
            let at = bytes.windows(word.len()).rposition(|window| window == word.as_bytes());
            bytes[at.expect("the word is in the log")] ^= 1;
        });
    }

    /// A hung disk does its next jobs, and hangs again.
    fn flush(&mut self, id: u64, count: usize) {
        for _ in 0..count {
            let kept = &mut self.machines.get_mut(&id).expect("member").kept;
            if kept.is_empty() {
                break;
            }
            let (job, work) = kept.remove(0);
            self.work(id, job, work);
        }
        self.deliver();
    }

    fn free(&mut self, id: u64) {
        let machine = self.machines.get_mut(&id).expect("member");
        (machine.hung, machine.slow) = (false, false);
        machine.stalled.clear();
        let kept = std::mem::take(&mut machine.kept);
        let _ = writeln!(self.told, "{id}: the disk does {} waiting jobs", kept.len());
        for (job, work) in kept {
            self.work(id, job, work);
        }
        self.deliver();
    }

    /// The background thread does its next jobs, and says which.
    fn do_queued(&mut self, id: u64, count: usize, last: &str) {
        let mut writes = 0;
        for _ in 0..count {
            let queue = self.machines.get_mut(&id).expect("member").queue.as_mut().expect("jobs are queued");
            let Some((job, work)) = queue.pop() else { break };
            let name = format!("{work:?}");
            let name = name.split(|letter: char| !letter.is_alphanumeric()).next().expect("a word").to_string();
            if count > 1 && name == "WriteRecords" {
                writes += 1;
            } else {
                let _ = writeln!(self.told, "{id}: does {name}");
            }
            self.work(id, job, work);
            if name == last {
                break;
            }
        }
        if writes > 0 {
            let _ = writeln!(self.told, "{id}: and writes records");
        }
        self.deliver();
    }

    /// All others tell this member of another state at `index` than its own.
    fn differ(&mut self, id: u64, index: u64) {
        let others: Vec<u64> = self.machines.keys().copied().filter(|other| *other != id).collect();
        for from in others {
            self.input(id, Input::Frame { from, frame: Frame::Digest { index, digest: 7 } });
        }
    }

    /// Remembered forwards arrive once more.
    fn again(&mut self) {
        self.tapped.clear();
        self.wires.extend(self.copies.drain(..));
        self.deliver();
    }

    fn cut_wire(&mut self, a: &str, b: &str) {
        let (a, b) = (a.parse().expect("id"), b.parse().expect("id"));
        self.cut.extend(Wire::both(a, b));
    }

    fn tick(&mut self) {
        self.now += 1;
        for id in std::mem::take(&mut self.restarts) {
            self.restart(id);
        }
        for (wire, frame) in self.underway.remove(&self.now).unwrap_or_default() {
            self.arrive(wire, frame);
        }
        self.deliver();
        let ids: Vec<u64> = self.machines.keys().copied().collect();
        for id in ids {
            let machine = self.machines.get_mut(&id).expect("member");
            let missed = std::mem::take(&mut machine.missed);
            if !machine.down && machine.paused(self.now) {
                machine.missed = missed + 1;
            } else if missed > 0 {
                self.go_on(id, missed + 1);
            } else {
                self.input(id, Input::Tick);
            }
        }
        self.lanes_again();
    }

    /// A process that was stopped goes on, as the driver does it: first what came, then the time
    /// that went by, all in one turn.
    fn go_on(&mut self, id: u64, due: u64) {
        let machine = self.machines.get_mut(&id).expect("member");
        let mut out = Vec::new();
        for input in std::mem::take(&mut machine.inbox) {
            machine.node.step(input, &mut out);
        }
        let lived = due.min(6);
        (0..lived).for_each(|_| machine.node.step(Input::Tick, &mut out));
        if due > lived {
            machine.node.step(Input::Away { ticks: due - lived }, &mut out);
        }
        self.carry_out(id, out);
        self.settle(id);
        self.deliver();
    }

    fn input(&mut self, id: u64, input: Input) {
        let now = self.now;
        let machine = self.machines.get_mut(&id).expect("member");
        if machine.down {
            return;
        }
        if machine.paused(now) {
            return machine.inbox.push(input);
        }
        let mut out = Vec::new();
        machine.node.step(input, &mut out);
        self.carry_out(id, out);
        self.settle(id);
        self.deliver();
    }

    fn settle(&mut self, id: u64) {
        loop {
            let machine = self.machines.get_mut(&id).expect("member");
            let mut out = Vec::new();
            machine.node.flush(&mut out);
            let done = out.is_empty() && machine.node.idle();
            self.carry_out(id, out);
            if done {
                return;
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((wire, frame)) = self.wires.pop_front() {
            if self.tapped.contains(&wire) && matches!(frame, Frame::Forward { .. }) {
                self.copies.push((wire, frame.clone()));
            }
            let far = self.long.get(&wire).map(|ticks| self.now + ticks);
            let narrow = self.links.arrival(self.now, wire, &frame);
            match far.max(narrow).filter(|at| *at > self.now) {
                Some(at) => self.underway.entry(at).or_default().push((wire, frame)),
                None => self.arrive(wire, frame),
            }
        }
    }

    fn arrive(&mut self, wire: Wire, frame: Frame) {
        let Wire { from, to } = wire;
        if self.cut.contains(&wire) || self.machines.get(&to).is_none_or(|machine| machine.down) {
            return;
        }
        self.connect(from, to);
        if self.machines[&to].down {
            return;
        }
        let mut bytes = Vec::new();
        node::frame::encode(&frame, &mut bytes);
        let frame = self.links.twist(wire, node::frame::decode(Bytes::from(bytes)).expect("own frames are readable"));
        let now = self.now;
        let machine = self.machines.get_mut(&to).expect("member");
        if machine.paused(now) {
            return machine.inbox.push(Input::Frame { from, frame });
        }
        let mut out = Vec::new();
        machine.node.step(Input::Frame { from, frame }, &mut out);
        self.carry_out(to, out);
        self.settle(to);
    }

    fn carry_out(&mut self, id: u64, mut out: Vec<Output>) {
        // Jobs are done here and now, and what follows from them too: a later write must not pass
        // these.
        let writes = |work: &Job| matches!(work, Job::Background(BackgroundJob::WriteRecords { .. }));
        out.sort_by_key(|output| !matches!(output, Output::Job { work, .. } if writes(work)));
        for output in out {
            match output {
                Output::Job { job, work } => {
                    self.txns.see(id, &work);
                    let machine = self.machines.get_mut(&id).expect("member");
                    let late = machine.hung && matches!(work, Job::Log(LogJob::Save { .. }))
                        || machine.slow && matches!(work, Job::Log(LogJob::RestartLog { .. }));
                    if let Job::Log(LogJob::Prove { commit }) = work
                        && machine.proofs
                    {
                        let _ = writeln!(self.told, "{id}: proves its log, committed up to {commit}");
                    }
                    let background = matches!(work, Job::Background(_));
                    if late || machine.stalled.contains(&discriminant(&work)) {
                        machine.kept.push((job, work));
                    } else if let Some(queue) = machine.queue.as_mut().filter(|_| background) {
                        queue.push(job, work);
                    } else if background {
                        machine.behind.push_back((job, work));
                    } else {
                        self.work(id, job, work);
                    }
                }
                Output::Send { to, frame } => {
                    assert!(to != id, "{id} speaks to itself: {frame:?}");
                    let wire = Wire { from: id, to };
                    if self.links.takes(wire, &frame) {
                        self.wires.push_back((wire, frame));
                    }
                }
                Output::Answer { waiter, answer, .. } if self.clients.heard(waiter, &answer) => {}
                Output::Answer { revision, answer, .. } => {
                    let text = self.tell(id, &answer);
                    let _ = writeln!(self.told, "{id}: @{revision} {text}");
                }
                Output::Watch { message, .. } => {
                    let _ = writeln!(self.told, "{id}: watch {}", tell_watch(&message));
                }
                Output::Leader { term, leader, role } => {
                    let leads = Leads { term, leader };
                    if leader != 0 && self.leader.insert(id, leads) != Some(leads) && role == Role::Leader {
                        let _ = writeln!(self.told, "{id}: leads");
                    }
                }
                Output::Snapshot { .. } => {}
                Output::Note { level: Level::Info, text }
                    if !["installed", "mended"].iter().any(|s| text.starts_with(s)) => {}
                Output::Note { level, text } => {
                    let _ = writeln!(self.told, "{id}: {level:?}: {text}");
                }
                Output::Members { members, removed } => self.who_belongs(id, &members, removed),
                Output::Removed => self.ends_removed(id),
                Output::Stopped => {
                    let _ = writeln!(self.told, "{id}: stopped");
                }
                Output::Fatal { reason } => {
                    let _ = writeln!(self.told, "{id}: FATAL {reason}");
                    self.machines.get_mut(&id).expect("member").down = true;
                }
                Output::Restart { reason } => {
                    let _ = writeln!(self.told, "{id}: restarts: {reason}");
                    self.machines.get_mut(&id).expect("member").down = true;
                    self.restarts.push(id);
                }
            }
        }
        self.work_in_order(id);
    }

    fn ask(&mut self, id: u64, words: &[&str]) {
        self.next += 1;
        let waiter = self.next;
        let request = match words {
            words if txns::request(words).is_some() => txns::request(words).expect("just seen"),
            words if budgets::request(words).is_some() => budgets::request(words).expect("just seen"),
            words if members::change(words).is_some() => members::change(words).expect("just seen"),
            ["put", key, value] => propose_put(key, value, 0),
            ["put", key, value, lease] => propose_put(key, value, lease.parse().expect("lease")),
            ["touch", key] => propose_touch(key),
            ["del", key] => propose_delete(key, ""),
            ["del", key, end] => propose_delete(key, end),
            ["get", key] => range(key, None, 0, true),
            ["get", key, revision] => range(key, None, revision.parse().expect("revision"), true),
            ["local", key] => range(key, None, 0, false),
            ["list"] => range("\0", Some(""), 0, true),
            ["compact", revision] => {
                Request::Compact { revision: revision.parse().expect("revision"), physical: false }
            }
            ["compact", revision, "physical"] => {
                Request::Compact { revision: revision.parse().expect("revision"), physical: true }
            }
            ["grant", lease, ttl] => Request::Propose {
                body: command::encode_lease_grant(lease.parse().expect("id"), ttl.parse().expect("ttl"), 2),
                cost: 64,
            },
            ["revoke", lease] => {
                Request::Propose { body: command::encode_lease_revoke(lease.parse().expect("id")), cost: 0 }
            }
            ["keep", lease] => Request::KeepAlive { lease: lease.parse().expect("id") },
            ["ttl", lease] => Request::TimeToLive { lease: lease.parse().expect("id"), keys: true },
            ["hash"] => Request::HashKv { revision: 0 },
            ["hash", revision] => Request::HashKv { revision: revision.parse().expect("revision") },
            ["backup"] => Request::Backup,
            ["backup", backup, piece] => {
                Request::BackupNext { backup: backup.parse().expect("backup"), first: *piece == "first" }
            }
            ["backup-end", backup] => Request::BackupEnd { backup: backup.parse().expect("backup") },
            ["weight"] => {
                let weight = self.machines[&id].node.status().live_bytes;
                let _ = writeln!(self.told, "{id}: versions weigh {weight}");
                return;
            }
            ["figures"] => {
                let Status { scrub, mend, .. } = self.machines[&id].node.status();
                let _ = writeln!(
                    self.told,
                    "{id}: {} passes; {} found elsewhere; {} stretches found, {} mended, {} segments damaged",
                    scrub.passes, scrub.found, mend.found, mend.mended, mend.open
                );
                return;
            }
            ["cached"] => {
                let kib = self.machines[&id].node.status().held.entry_cache >> 10;
                let _ = writeln!(self.told, "{id}: {kib} KiB of entries cached");
                return;
            }
            ["publish"] => Request::Propose { body: command::encode_member_attr(id, &format!("m{id}"), &[]), cost: 0 },
            ["move", target] => Request::MoveLeader { target: target.parse().expect("id") },
            ["members", local @ ..] => Request::Members { linearizable: local.is_empty() },
            ["alarms"] => Request::Alarms { kind: 0 },
            ["status"] => Request::Status,
            ["checkpoints"] => {
                let held = disk::checkpoint::manifests(&*self.machines[&id].files.shared()).expect("readable");
                let cut = self.machines[&id].log.boundary().index;
                let _ = writeln!(self.told, "{id}: checkpoints at {held:?}, the log begins behind {cut}");
                return;
            }
            ["segments"] => return self.tell_segments(id),
            ["space"] => {
                let machine = &self.machines[&id];
                let status = machine.node.status();
                let files = machine.files.shared();
                let there = disk::checkpoint::disk_bytes(&*files).expect("readable") >> 10;
                let (segments, says) = (disk::records::list(&*files).expect("readable").len(), status.disk_bytes >> 10);
                let live = status.live_bytes >> 10;
                let _ =
                    writeln!(self.told, "{id}: {segments} segments, {there} KiB in files, says {says}, {live} live");
                return;
            }
            ["thin", every] => return self.thin(id, every.parse().expect("count")),
            ["fill", count, size] => return self.fill(id, count.parse().expect("count"), size.parse().expect("size")),
            ["watch", key, next] => {
                let spec = WatchSpec { range: key_range(key, None), no_put: false, no_delete: false, prev_kv: true };
                let op = WatchOp::Join { id: 0, spec, next: next.parse().expect("revision") };
                return self.input(id, Input::Watch { stream: 1, op });
            }
            ["history", from] => Request::History { from: from.parse().expect("revision"), prev: true },
            ["timeout", "last"] => return self.input(id, Input::Cancel { waiter: waiter - 1, timed_out: true }),
            ["timeout"] => return self.input(id, Input::Cancel { waiter: waiter - 2, timed_out: true }),
            other => panic!("no such command: {other:?}"),
        };
        self.input(id, Input::Request { waiter, who: node::Who::Nobody, request });
    }

    /// Many puts at once, answers counted, not told.
    fn fill(&mut self, id: u64, count: usize, size: usize) {
        let before = std::mem::take(&mut self.told);
        let value = "x".repeat(size);
        for at in 0..count {
            self.next += 1;
            let request = propose_put(&format!("fill-{:04}", at % 500), &value, 0);
            self.input(id, Input::Request { waiter: self.next, who: node::Who::Nobody, request });
        }
        let answered = self.told.matches("put ok").count();
        self.told = before;
        let _ = writeln!(self.told, "{id}: {answered} of {count} puts answered");
    }

    /// Deletes the keys of a fill, but for one of `every`.
    fn thin(&mut self, id: u64, every: usize) {
        let before = std::mem::take(&mut self.told);
        for at in (0..500).filter(|at| at % every != 0) {
            self.next += 1;
            let request = propose_delete(&format!("fill-{at:04}"), "");
            self.input(id, Input::Request { waiter: self.next, who: node::Who::Nobody, request });
        }
        let deleted = self.told.matches("deleted 1").count();
        self.told = before;
        let _ = writeln!(self.told, "{id}: deleted {deleted}");
    }

    fn tell(&self, id: u64, answer: &Answer) -> String {
        match answer {
            Answer::Applied { result: Ok(Reply::Put { .. }), .. } => "put ok".into(),
            Answer::Applied { result: Ok(Reply::Delete { deleted, .. }), .. } => format!("deleted {deleted}"),
            Answer::Applied { result: Ok(Reply::Txn { succeeded, responses }), .. } => {
                txns::tell(*succeeded, responses)
            }
            Answer::Applied { result: Ok(reply), .. } => format!("{reply:?}"),
            Answer::Applied { result: Err(error), .. } => format!("refused: {error:?}"),
            Answer::Range(start) => {
                let walk = start.walk.map_or(String::new(), |walk| format!(", walk {walk}"));
                format!("count {} [{}]{walk}", start.count, self.values(id, &start.found))
            }
            Answer::Slice(slice) => format!("slice [{}] finished {:?}", self.values(id, &slice.found), slice.finished),
            Answer::Status(status) => format!(
                "leader {} revision {} compacted {} keys {} alarms {:?}",
                status.leader, status.revision, status.compacted, status.keys, status.alarms
            ),
            Answer::HashKv { hash, compacted, hash_revision } => {
                format!("hash {hash:08x} of {hash_revision}, compacted {compacted}")
            }
            Answer::TimeToLive { ttl, granted, keys } => {
                let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
                format!("ttl {ttl} of {granted} keys {keys:?}")
            }
            Answer::History(history) => {
                let revisions: Vec<i64> = history.revisions.iter().map(|events| events.revision).collect();
                match revisions.as_slice() {
                    [first, .., last] if revisions.len() > 8 => {
                        format!(
                            "history {} revisions from {first} to {last}, next {}, compacted {}",
                            revisions.len(),
                            history.next,
                            history.compacted
                        )
                    }
                    _ => format!("history {revisions:?} next {}", history.next),
                }
            }
            Answer::Backup { backup, export } => {
                format!("backup {backup} of revision {}, compacted {}", export.revision, export.compacted)
            }
            Answer::BackupRecords { records, end } => {
                let revisions: Vec<i64> = records.iter().map(|record| record.rev.main).collect();
                if let ([first, .., last], true) = (revisions.as_slice(), revisions.len() > 50) {
                    return format!("{} records from {first} to {last} end {end}", revisions.len());
                }
                format!("records {revisions:?} end {end}")
            }
            Answer::Members { members } => {
                let names: Vec<String> =
                    members.iter().map(|(member, learner)| members::named(member, *learner)).collect();
                names.join(" ")
            }
            other => format!("{other:?}"),
        }
    }
}

/// `name*` is the last file that begins so, `name+` the first.
fn named(files: &MemFiles, path: &str) -> String {
    let all = files.files();
    let found = match (path.strip_suffix('*'), path.strip_suffix('+')) {
        (Some(start), _) => all.iter().rfind(|path| path.starts_with(start)),
        (_, Some(start)) => all.iter().find(|path| path.starts_with(start)),
        _ => return path.to_string(),
    };
    found.expect("a file").clone()
}

fn tell_watch(message: &ToStream) -> String {
    match message {
        ToStream::Events { events, picks, .. } => {
            let told: Vec<String> = picks
                .iter()
                .map(|pick| &events.events[*pick as usize])
                .map(|event| {
                    format!("{}{}", if event.tombstone { "-" } else { "+" }, String::from_utf8_lossy(&event.key))
                })
                .collect();
            format!("@{} {}", events.revision, told.join(" "))
        }
        ToStream::Joined { revision, missed, .. } => format!("joined at {revision}, {} missed", missed.len()),
        ToStream::Behind { revision, .. } => format!("behind {revision}"),
        other => format!("{other:?}"),
    }
}
