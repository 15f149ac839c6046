//! `kvorum dev`: a cluster on loopback with one command, for trying things out.

mod member;
mod ports;
mod running;
mod status;
mod trouble;

use member::Member;
use ports::Ports;
use running::Running;
pub use status::status;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
pub use trouble::Trouble;
use trouble::Why;

/// Where the members are, if nothing else is said.
pub const FOLDER: &str = "./kvorum-dev";
/// Until the first start gives up.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A member that ignores SIGTERM for this long is killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// A member that has ended starts again after this time: long enough to see what the others do.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// One that ended by itself so often within this time stays down.
const ENDS: usize = 3;
const LATELY: Duration = Duration::from_secs(60);
const MOST_MEMBERS: u16 = 9;

/// A cluster on loopback: `kvorum dev`.
#[derive(Clone, Debug)]
pub struct Dev {
    /// How many, 1 to 9. None: as many as the directory has, or 3.
    pub members: Option<u16>,
    /// One folder of it for each member.
    pub data_dir: PathBuf,
    /// Client port of the first member. None: as before, or etcd's.
    pub port: Option<u16>,
    /// What this program was called, for the examples.
    pub called: String,
}

/// Everything that runs.
struct Cluster {
    dir: PathBuf,
    ports: Vec<Ports>,
    members: Vec<Member>,
    ready: mpsc::Sender<String>,
}

/// Runs until Ctrl-C, SIGTERM or the end of the terminal.
///
/// # Errors
/// What could not be done.
pub fn run(dev: &Dev) -> Result<(), Trouble> {
    if dev.members.is_some_and(|members| members == 0 || members > MOST_MEMBERS) {
        return Err(Why::Members(MOST_MEMBERS).into());
    }
    let named = Trouble::of(&dev.data_dir);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dev.data_dir).map_err(&named)?;
    let dir = fs::canonicalize(&dev.data_dir).map_err(&named)?;
    let Some(_lock) = running::lock(&dir).map_err(&named)? else { return Err(runs_already(dir, dev).into()) };
    let ports = ports::ports(dev)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Trouble::of(Path::new("signals")))?;
    }
    let (ready, readiness) = mpsc::channel();
    let members = (0..ports.len()).map(|n| Member::new(&dir, &ports, n)).collect();
    let mut cluster = Cluster { dir, ports, members, ready };
    let up = cluster.start_all().and_then(|()| {
        say(&format!("starting {} in {} …", count(cluster.members.len()), cluster.dir.display()));
        cluster.wait_ready(&readiness, &stop)
    });
    if let Ok(true) = up {
        say(&introduction(&cluster, dev));
        cluster.watch(&readiness, &stop);
    }
    say("stopping …");
    cluster.stop_all();
    up.map(|_| say("stopped; `kvorum dev` with the same directory continues where this ended"))
}

/// `kvorum dev stop`: ends what runs in this directory, and waits for it.
///
/// # Errors
/// Nothing runs there, or it does not end.
pub fn stop(dev: &Dev) -> Result<String, Trouble> {
    let dir = absolute(&dev.data_dir);
    let process = status::running(dev)?.process;
    let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or(Why::Deaf(process))?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .map_err(|error| Why::System { what: format!("process {process}"), error: error.into() })?;
    let until = Instant::now() + 2 * STOP_WITHIN;
    while running::lock(&dir).map_err(Trouble::of(&dir))?.is_none() {
        if Instant::now() > until {
            return Err(Why::Deaf(process).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(format!("the cluster in {} has stopped\n", dir.display()))
}

fn absolute(dir: &Path) -> PathBuf {
    fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf())
}

/// Nobody may read it any more.
fn say(text: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn count(members: usize) -> String {
    if members == 1 { "1 member".into() } else { format!("{members} members") }
}

fn runs_already(dir: PathBuf, dev: &Dev) -> Why {
    let (called, folder) = (dev.called.clone(), folder(dev));
    match Running::read(&dir) {
        Some(running) => Why::Runs { dir, process: running.process, endpoints: running.endpoints(), called, folder },
        None => Why::Starting(dir),
    }
}

/// For the examples: nothing, or the flag that names the directory.
fn folder(dev: &Dev) -> String {
    if dev.data_dir == Path::new(FOLDER) { String::new() } else { format!(" --data-dir {}", dev.data_dir.display()) }
}

fn introduction(cluster: &Cluster, dev: &Dev) -> String {
    let (called, folder) = (&dev.called, folder(dev));
    let endpoints: Vec<String> = cluster.members.iter().map(Member::endpoint).collect();
    let endpoints = endpoints.join(",");
    let mut text = format!("\n{} on loopback serve etcd's protocol:\n\n", count(cluster.members.len()));
    for member in &cluster.members {
        let pid = member.pid().map_or("-".to_string(), |pid| pid.to_string());
        let log = member.log.display();
        text += &format!("  {}  http://{}  process {pid}  log {log}\n", member.name, member.endpoint());
    }
    let pid = cluster.members[0].pid().unwrap_or_default();
    let others = if cluster.members.len() > 2 { "the others go on, and " } else { "" };
    text += &format!(
        "\nTry, in another terminal:\n\n  \
         {called} ctl --endpoints={endpoints} put hello world\n  \
         {called} ctl --endpoints={endpoints} get hello\n  \
         {called} dev status{folder}\n  \
         kill -9 {pid}        # {others}{} starts again after {} s\n\n\
         Ctrl-C stops all. What was written stays in {}.\n",
        cluster.members[0].name,
        AGAIN_AFTER.as_secs(),
        cluster.dir.display(),
    );
    text
}

impl Cluster {
    fn start_all(&mut self) -> Result<(), Trouble> {
        for member in &mut self.members {
            member.start(&self.dir, &self.ports, &self.ready)?;
        }
        self.write()
    }

    fn write(&self) -> Result<(), Trouble> {
        let members = self.members.iter().map(|member| running::Member {
            name: member.name.clone(),
            endpoint: member.endpoint(),
            process: member.pid(),
        });
        let running = Running { process: std::process::id(), members: members.collect() };
        running.write(&self.dir).map_err(Trouble::of(&self.dir))
    }

    /// True: all serve. False: a signal came first.
    fn wait_ready(&mut self, ready: &mpsc::Receiver<String>, stop: &AtomicBool) -> Result<bool, Trouble> {
        let until = Instant::now() + READY_WITHIN;
        let mut waiting: Vec<String> = self.members.iter().map(|member| member.name.clone()).collect();
        while !waiting.is_empty() {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if let Ok(name) = ready.recv_timeout(Duration::from_millis(50)) {
                waiting.retain(|member| *member != name);
            }
            for member in &mut self.members {
                if let Some(ended) = member.ended() {
                    let (name, how) = (member.name.clone(), ended.status.to_string());
                    return Err(Why::Ended { member: name, how, why: why(member, &ended) }.into());
                }
            }
            if Instant::now() > until {
                let (members, seconds) = (waiting.join(", "), READY_WITHIN.as_secs());
                return Err(Why::Late { members, seconds, logs: self.dir.join("m*.log") }.into());
            }
        }
        Ok(true)
    }

    /// Tells who leads, and each change, and starts again what has ended, until the stop.
    fn watch(&mut self, ready: &mpsc::Receiver<String>, stop: &AtomicBool) {
        let mut said = None;
        while !stop.load(Ordering::Relaxed) {
            for n in 0..self.members.len() {
                self.look_at(n);
            }
            for name in ready.try_iter() {
                say(&format!("{name} serves again"));
            }
            if self.members.iter().all(|member| member.process.is_none() && member.again_at.is_none()) {
                say("no member is left");
                return;
            }
            let asked: Vec<_> = self
                .members
                .iter()
                .map(|member| (member.name.clone(), member.pid().and_then(|_| status::ask(&member.endpoint()))))
                .collect();
            let leader = status::leader(&asked);
            if leader != said {
                match &leader {
                    Some((name, term)) => say(&format!("{name} leads (term {term})")),
                    None => say("no leader"),
                }
                said = leader;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn look_at(&mut self, n: usize) {
        let (now, member) = (Instant::now(), &mut self.members[n]);
        if let Some(ended) = member.ended() {
            // Whoever kills it by hand wants to see it come back, however often.
            if ended.status.code().is_some() {
                member.ends.push(now);
            }
            member.ends.retain(|at| now.duration_since(*at) < LATELY);
            let stays = member.ends.len() >= ENDS;
            member.again_at = (!stays).then(|| now + AGAIN_AFTER);
            let then = match stays {
                false => format!("it starts again in {} s", AGAIN_AFTER.as_secs()),
                true => format!("it ended {ENDS} times within {} s and stays down", LATELY.as_secs()),
            };
            say(&format!("{} ended ({}); {then}; {}", member.name, ended.status, why(member, &ended)));
        } else if member.again_at.is_some_and(|at| now >= at) {
            if let Err(error) = member.start(&self.dir, &self.ports, &self.ready) {
                member.again_at = Some(now + AGAIN_AFTER);
                return say(&error.to_string());
            }
            let pid = member.pid().unwrap_or_default();
            say(&format!("{} starts again: process {pid}", member.name));
        } else {
            return;
        }
        if let Err(error) = self.write() {
            say(&error.to_string());
        }
    }

    fn stop_all(&mut self) {
        self.members.iter().for_each(Member::end);
        let until = Instant::now() + STOP_WITHIN;
        for member in &mut self.members {
            while member.ended().is_none() && member.process.is_some() {
                if Instant::now() > until {
                    say(&format!("{} does not stop and is killed", member.name));
                    member.kill();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = fs::remove_file(self.dir.join("running"));
    }
}

/// What its log said last, and where it is.
fn why(member: &Member, ended: &member::Ended) -> String {
    let log = member.log.display();
    if ended.last_line.is_empty() {
        format!("its log is {log}")
    } else {
        format!("the last line of {log}: {}", ended.last_line)
    }
}
