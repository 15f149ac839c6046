//! A cluster whose members are killed with SIGKILL, again and again, under
//! writers, readers, watchers and leases. On demand they are also stopped for a
//! while, and speak to each other over links that are narrow and break.

pub mod check;
pub mod clients;
mod expected;
mod goodput;
mod leases;
mod link;
mod long;

use std::{
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use wire::{Rpc, etcdserverpb as pb};

use self::{
    clients::World,
    link::{Limits, Link, links},
};
use crate::{
    peers,
    raw::Raw,
    rng::Rng,
    server::{self, Program, Server},
};

const WRITERS: u64 = 4;
const READERS: u64 = 3;
/// Watchers of everything.
pub const WATCHERS: usize = 4;
const LEASES: i64 = 3;

/// What `xtask kill-loop` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How often members are killed.
    #[arg(long, default_value_t = 200)]
    pub rounds: u64,
    #[arg(long, default_value_t = 3)]
    pub members: usize,
    /// The program [default: this workspace's release build].
    #[arg(long, value_name = "PROGRAM")]
    pub bin: Option<PathBuf>,
    /// Decides who is killed and when.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Members are also stopped for a while, and go on.
    #[arg(long)]
    pub pauses: bool,
    /// Members speak over links of so many bytes a second, such as 2.5M, which break now and then.
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub throttle: Option<u64>,
    /// The links are narrow for the first so many minutes [default: all the time].
    #[arg(long, value_name = "MINUTES", requires = "throttle")]
    pub minutes: Option<u64>,
    /// No rounds: many clients against few over the narrow link.
    #[arg(long)]
    pub goodput: bool,
}

/// A rate of the goodput check when none is given: a link on which loads of big values pile up.
const NARROW: u64 = 2_500_000;
/// Each way over a narrow link.
const DELAY: Duration = Duration::from_millis(5);
/// Size of one writer's values over narrow links.
const PADDED: usize = 20_000;

/// `2.5M`, `800k` or a number.
fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['k', 'M']) {
        Some(number) => (number, if text.ends_with('k') { 1e3 } else { 1e6 }),
        None => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|rate| rate * unit).filter(|rate| (1e3..1e12).contains(rate));
    rate.map(|rate| rate as u64).ok_or_else(|| format!("{text:?} is no rate such as 2.5M, of at least 1k"))
}

/// Runs the rounds.
///
/// # Errors
/// At the first thing that is lost, stale, doubled or different; the data
/// directories are kept and named.
pub async fn kill_loop(args: &Args) -> Result<()> {
    let path = match &args.bin {
        Some(path) => path.clone(),
        None => peers::kvorum()?,
    };
    let program = Program::new(&path)?;
    let dir = tempfile::Builder::new().prefix("kill-loop").tempdir()?;
    if args.goodput {
        return goodput::goodput(&program, args.throttle.unwrap_or(NARROW), dir.path()).await;
    }
    let mut ports = server::ports(args.members)?;
    let links = match args.throttle {
        Some(rate) => links(&mut ports, Limits { rate, delay: DELAY })?,
        None => Vec::new(),
    };
    let mut members = server::cluster_at(&program, &ports, dir.path(), &[])?;
    match rounds(args, &mut members, &links).await {
        Ok(()) => Ok(()),
        Err(error) => {
            let kept = dir.keep();
            println!();
            for member in &members {
                println!("{}", member.log_tail());
            }
            Err(error.context(format!("kept: {}", kept.display())))
        }
    }
}

async fn rounds(args: &Args, members: &mut [Server], links: &[Arc<Link>]) -> Result<()> {
    for member in members.iter_mut() {
        member.ready(Duration::from_secs(60)).await?;
    }
    let world = Arc::new(World::new(members.iter().map(Server::endpoint).collect(), WATCHERS));
    let work = start(&world, args.seed, if links.is_empty() { 0 } else { PADDED });
    let begin = Instant::now();
    let mut rng = Rng::new(args.seed);
    let mut compacted = 0;
    let mut done = Done::default();
    for round in 1..=args.rounds {
        if args.minutes.is_some_and(|minutes| begin.elapsed() > Duration::from_secs(60 * minutes)) {
            links.iter().for_each(|link| link.set_rate(0));
        }
        let lease = tokio::spawn(leases::abandoned(Arc::clone(&world), 1_000_000 + round as i64, rng.next()));
        one(members, (round, args.pauses), links, &mut done, &mut rng).await?;
        lease.await?;
        let current =
            check::check(&world, compacted, &mut rng).await.with_context(|| format!("round {round}, {done}"))?;
        if round % 5 == 0 {
            compacted = compact(&world, current - 200, compacted).await?;
        }
        let counts = world.expected().counts;
        print!(
            "\rround {round}/{}: {done}, {} writes acknowledged, {} unknown, {} reads ({} failed), revision {current}, {} watch resumes, {} renewals, {} leases expired, {:.0} s   ",
            args.rounds,
            counts.acknowledged,
            counts.unknown,
            counts.reads,
            counts.failed_reads,
            counts.resumes,
            counts.renewals,
            counts.expired,
            begin.elapsed().as_secs_f64()
        );
        std::io::stdout().flush()?;
    }
    drop(work);
    println!(
        "\nkill-loop: {} rounds, nothing lost, nothing stale, every revision seen once, hashes equal",
        args.rounds
    );
    Ok(())
}

/// What was done to the members so far.
#[derive(Debug, Default)]
struct Done {
    kills: u64,
    pauses: u64,
    cuts: u64,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} kills", self.kills)?;
        match (self.pauses, self.cuts) {
            (0, 0) => Ok(()),
            (pauses, cuts) => write!(f, ", {pauses} pauses, {cuts} cuts"),
        }
    }
}

/// Kills one member, or all, or stops one, or cuts its link; makes it good; lets the clients work.
async fn one(
    members: &mut [Server],
    (round, pauses): (u64, bool),
    links: &[Arc<Link>],
    done: &mut Done,
    rng: &mut Rng,
) -> Result<()> {
    for member in members.iter_mut() {
        if let Some(end) = member.ended() {
            bail!("{end}\n{}", member.log_tail());
        }
    }
    let all = round.is_multiple_of(10);
    let whom = rng.below(members.len() as u64) as usize;
    if !all && !links.is_empty() && rng.percent(25) {
        links[whom].cut(true);
        tokio::time::sleep(Duration::from_millis(rng.below(3000))).await;
        links[whom].cut(false);
        done.cuts += 1;
    } else if !all && pauses && rng.percent(50) {
        // Some are shorter than an election timeout, some outlast two.
        members[whom].pause();
        tokio::time::sleep(Duration::from_millis(100 + rng.below(4000))).await;
        members[whom].resume();
        done.pauses += 1;
    } else {
        done.kills += kill(members, if all { None } else { Some(whom) }, rng).await?;
    }
    for member in members.iter_mut() {
        member.ready(Duration::from_secs(60)).await?;
    }
    tokio::time::sleep(Duration::from_millis(300 + rng.below(1200))).await;
    Ok(())
}

async fn kill(members: &mut [Server], whom: Option<usize>, rng: &mut Rng) -> Result<u64> {
    let mut kills = 0;
    for (at, member) in members.iter_mut().enumerate() {
        if whom.is_none_or(|whom| whom == at) {
            member.kill();
            kills += 1;
        }
    }
    tokio::time::sleep(Duration::from_millis(rng.below(1500))).await;
    for member in members.iter_mut().filter(|member| !member.runs()) {
        member.restart()?;
    }
    Ok(kills)
}

/// Compacts to a revision; gives what is compacted then.
pub async fn compact(world: &World, to: i64, compacted: i64) -> Result<i64> {
    if to <= compacted.max(1) {
        return Ok(compacted);
    }
    let request = pb::CompactionRequest { revision: to, physical: to % 2 == 0 };
    for endpoint in &world.live() {
        let raw = Raw::connect(endpoint).await?;
        match raw.call::<_, pb::CompactionResponse>(Rpc::Compact, &request).await {
            Ok(_) => return Ok(to),
            // An attempt before this one may have come through.
            Err(failure) if failure.text.contains("has been compacted") => return Ok(to),
            Err(_) => {}
        }
    }
    Ok(compacted.max(to))
}

/// Clients at work; they stop when it is dropped.
#[derive(Debug)]
pub struct Work(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Starts them. `padded`: bytes that the values of one writer have at least.
pub fn start(world: &Arc<World>, seed: u64, padded: usize) -> Work {
    let of = |kind: u64, n: u64| seed.wrapping_mul(1000) + kind * 100 + n;
    let mut tasks = Vec::new();
    for n in 0..WRITERS {
        tasks.push(tokio::spawn(clients::writer(Arc::clone(world), n, of(1, n), if n == 0 { padded } else { 0 })));
    }
    for n in 0..READERS {
        tasks.push(tokio::spawn(clients::reader(Arc::clone(world), WRITERS, of(2, n))));
    }
    for n in 0..WATCHERS {
        tasks.push(tokio::spawn(clients::watcher(Arc::clone(world), n, of(3, n as u64))));
    }
    for n in 1..=LEASES {
        tasks.push(tokio::spawn(leases::kept(Arc::clone(world), n, of(4, n as u64))));
    }
    Work(tasks)
}
