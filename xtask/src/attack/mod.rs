//! Attacks on a member that is started for each of them, beside a client that does no harm.
//!
//! What the honest client notices calm, under attack and after it, the member's memory and what it
//! refused become a table, `docs/attacks.md`. The command fails if an attack does harm.

mod bounds;
mod flow;
mod frames;
mod honest;
mod judge;
mod kinds;
mod page;
mod seen;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;

use self::bounds::Group;
use self::honest::Honest;
use self::judge::{Against, BUDGET, Memory, Row};
use self::kinds::Attack;
use self::target::Target;
use crate::faults;
use crate::peers;
use crate::server::{self, LOOPBACK, Program, Server};

/// Members of a cluster of which peer ports are attacked.
const MEMBERS: usize = 3;
/// From the end of an attack on, so long the honest client must be served as before.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// Niceness of an attacker.
const LOWEST: i32 = 19;
/// How long a member may take to serve at all.
const READY: Duration = Duration::from_secs(60);

/// Attacks a member beside an honest client, and fails if that does harm.
///
/// Each attack has a member of its own on loopback. The member ends with it.
#[derive(Debug, Parser)]
pub struct Args {
    /// Attacks, or beginnings of their names [default: all].
    names: Vec<String>,
    /// Attacks that are left out.
    #[arg(long, value_name = "NAME")]
    except: Vec<String>,
    /// What is attacked; a real etcd is judged alike, and fails nothing.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Against::Kvorum])]
    against: Vec<Against>,
    /// This kvorum, not a release build of the workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Seconds of calm, and of each attack.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Writes the tables into this page; rows that are not measured now stay.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// What a reader of the page must know of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Names the attacks, and does nothing.
    #[arg(long)]
    list: bool,
}

/// # Errors
/// An attack did harm, or could not be made.
pub async fn attack(args: &Args) -> Result<()> {
    let mut attacks = kinds::chosen(&args.names)?;
    if !args.except.is_empty() {
        let except = kinds::chosen(&args.except)?;
        attacks.retain(|attack| except.iter().all(|one| one.name != attack.name));
    }
    if args.list {
        attacks.iter().for_each(|attack| println!("{:16} {}", attack.name, attack.what));
        return Ok(());
    }
    if attacks.is_empty() {
        bail!("no attack is left");
    }
    if attacks.iter().any(|attack| attack.on.memory > 0) {
        // What cannot be made is told before an hour is spent.
        Group::new(BUDGET)?;
    }
    bounds::raise_own_descriptors();
    let mut programs = Vec::new();
    for against in &args.against {
        programs.push((*against, program(*against, args)?));
    }
    let mut rows = Vec::new();
    for attack in attacks {
        for (against, program) in &programs {
            let row = one(attack, *against, program, Duration::from_secs(args.seconds)).await;
            let row = row.with_context(|| format!("{} against {}", attack.name, against.name()))?;
            println!("{}", page::line(&row));
            rows.push(row);
            if let Some(table) = &args.table {
                write(table, &rows, &args.note)?;
            }
        }
    }
    let ours = rows.iter().filter(|row| row.against == Against::Kvorum);
    let harm =
        |row: &Row| row.harm().into_iter().map(|harm| format!("{}: {harm}", row.attack.name)).collect::<Vec<_>>();
    let bad: Vec<String> = ours.flat_map(harm).collect();
    if bad.is_empty() { Ok(()) } else { bail!("harm was done:\n{}", bad.join("\n")) }
}

fn program(against: Against, args: &Args) -> Result<Program> {
    let path = match (against, &args.program) {
        (Against::Etcd, _) => peers::program("etcd")?,
        (Against::Kvorum, Some(program)) => program.clone(),
        (Against::Kvorum, None) => peers::kvorum()?,
    };
    Program::new(&path)
}

fn write(table: &Path, rows: &[Row], note: &str) -> Result<()> {
    let before = std::fs::read_to_string(table).unwrap_or_default();
    let made = faults::made(note);
    let commit = made.split("commit ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
    let text = page::page(&before, rows, commit, &made);
    std::fs::write(table, text).with_context(|| table.display().to_string())
}

/// The members of one attack, and where they are found.
struct Scene {
    /// The first one is attacked, or all of them.
    servers: Vec<Server>,
    group: Option<Group>,
    target: Arc<Target>,
    /// Goes last.
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn start(attack: &Attack, against: Against, program: &Program) -> Result<Scene> {
        let folder = tempfile::tempdir()?;
        let on = &attack.on;
        let group = if on.memory > 0 { Some(Group::new(on.memory)?) } else { None };
        let ports = server::ports(if on.cluster { MEMBERS } else { 1 })?;
        let mut target = Target {
            client_port: ports[0].client,
            peer_ports: ports.iter().map(|ports| ports.peer).collect(),
            ..Target::default()
        };
        let mut extra = Vec::new();
        if against == Against::Kvorum && on.memory == 0 {
            extra.push(format!("--memory-budget={BUDGET}MiB"));
        }
        if on.tls {
            target.tls_port = server::free_port()?;
            let (plain, tls) = (target.client_port, target.tls_port);
            extra.push(format!("--listen-client-urls=http://{LOOPBACK}:{plain},https://{LOOPBACK}:{tls}"));
            extra.push("--auto-tls".to_owned());
        }
        let program = bounds::of(program, on.files, group.as_ref());
        let mut servers = server::cluster_at(&program, &ports, folder.path(), &extra)?;
        for server in &mut servers {
            server.ready(READY).await?;
        }
        Ok(Scene { servers, group, target: Arc::new(target), _folder: folder })
    }

    /// Starts one of the others again, and waits until it serves.
    async fn start_again(&mut self, lasting: Duration) -> Result<Option<Duration>> {
        let Some(follower) = self.servers.get_mut(1) else { return Ok(None) };
        // The attack is under way.
        tokio::time::sleep(lasting / 4).await;
        follower.terminate().await;
        follower.restart()?;
        let since = Instant::now();
        follower.ready(READY).await.context("a follower that was started again")?;
        Ok(Some(since.elapsed()))
    }

    fn ended(&mut self) -> Option<String> {
        let ends: Vec<String> = self.servers.iter_mut().filter_map(Server::ended).collect();
        let starved = self.group.as_ref().is_some_and(Group::has_ended_one);
        let why = if starved { ", for want of memory" } else { "" };
        (!ends.is_empty()).then(|| format!("{}{why}", ends.join("; ")))
    }

    async fn end(mut self) {
        for server in &mut self.servers {
            server.terminate().await;
        }
    }
}

async fn one(attack: &'static Attack, against: Against, program: &Program, lasting: Duration) -> Result<Row> {
    let mut scene = Scene::start(attack, against, program).await?;
    let endpoint = scene.servers[0].endpoint();
    let honest = Honest::new(&endpoint, attack.on.users, scene.target.tls_port).await?;
    let calm = honest.work(lasting).await;
    if calm.failed() > 0 {
        bail!("{} calls failed before the attack", calm.failed());
    }
    let counted = seen::counters(&endpoint).await?;
    let target = scene.target.clone();
    let mut memory = Memory { before: anonymous(scene.servers[0].pid()), ..Memory::default() };
    let peak = watch_memory(scene.servers[0].pid(), &target);
    let attackers: Vec<_> = (0..attack.threads).map(|thread| attacker(attack, &target, thread)).collect();
    let (under, started) = tokio::join!(honest.work(lasting), scene.start_again(lasting));
    target.stop.store(true, Ordering::Relaxed);
    // The attackers end their connections while the honest client goes on.
    let after = honest.work(AFTERWARDS).await;
    for attacker in attackers {
        attacker.join().map_err(|_| anyhow!("an attacker panicked"))?;
    }
    memory.peak = peak.join().map_err(|_| anyhow!("the watcher panicked"))?.max(memory.before);
    let ended = scene.ended();
    memory.after = anonymous(scene.servers[0].pid());
    let refused = match &ended {
        None => seen::between(&counted, &seen::counters(&endpoint).await.unwrap_or_default()),
        Some(_) => {
            println!("{}", scene.servers[0].log_tail());
            String::new()
        }
    };
    scene.end().await;
    let mut breaches = target.told();
    let started = started.unwrap_or_else(|error| {
        breaches.push(format!("{error:#}"));
        None
    });
    let row = Row {
        attack,
        against,
        calm,
        under,
        after,
        memory,
        done: target.done.load(Ordering::Relaxed),
        closed: target.closed.load(Ordering::Relaxed),
        refused,
        breaches,
        started,
        ended,
    };
    Ok(row)
}

/// A thread of an attacker, who is elsewhere: it has what is left of the processors.
fn attacker(attack: &'static Attack, target: &Arc<Target>, thread: usize) -> std::thread::JoinHandle<()> {
    let target = target.clone();
    std::thread::spawn(move || {
        // Of this thread and those that it starts. Standing back is always allowed.
        let _ = rustix::process::setpriority_process(None, LOWEST);
        (attack.run)(&target, thread);
    })
}

/// MiB of anonymous memory; 0 for a process that has ended.
fn anonymous(pid: Option<u32>) -> u64 {
    let status = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok()).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn watch_memory(pid: Option<u32>, target: &Arc<Target>) -> std::thread::JoinHandle<u64> {
    let target = target.clone();
    std::thread::spawn(move || {
        let mut peak = 0;
        while target.goes_on() {
            peak = peak.max(anonymous(pid));
            std::thread::sleep(Duration::from_millis(50));
        }
        peak.max(anonymous(pid))
    })
}
