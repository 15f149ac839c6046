//! A cluster whose members are killed with SIGKILL, again and again, under
//! writers, readers, watchers and leases.

mod check;
mod clients;
mod ledger;

use std::{
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use wire::{Rpc, etcdserverpb as pb};

use self::clients::World;
use crate::{
    peers,
    raw::Raw,
    rng::Rng,
    server::{self, Program, Server},
};

const WRITERS: u64 = 4;
const READERS: u64 = 3;
const WATCHERS: usize = 4;
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
    let mut members = server::cluster(&program, args.members, dir.path(), &[])?;
    match rounds(args, &mut members).await {
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

async fn rounds(args: &Args, members: &mut [Server]) -> Result<()> {
    for member in members.iter_mut() {
        member.ready(Duration::from_secs(60)).await?;
    }
    let world = Arc::new(World::new(members.iter().map(Server::endpoint).collect(), WATCHERS));
    let work = start(&world, args.seed);
    let begin = Instant::now();
    let mut rng = Rng::new(args.seed);
    let (mut compacted, mut kills) = (0, 0);
    for round in 1..=args.rounds {
        kills += one(members, round % 10 == 0, &mut rng).await?;
        let current =
            check::check(&world, compacted, &mut rng).await.with_context(|| format!("round {round}, {kills} kills"))?;
        if round % 5 == 0 {
            compacted = compact(&world, current - 200, compacted).await?;
        }
        let counts = world.ledger().counts;
        print!(
            "\rround {round}/{}: {kills} kills, {} writes acknowledged, {} unknown, {} reads ({} failed), revision {current}, {} watch resumes, {} renewals, {:.0} s   ",
            args.rounds,
            counts.acknowledged,
            counts.unknown,
            counts.reads,
            counts.failed_reads,
            counts.resumes,
            counts.renewals,
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

/// Kills one member, or all; starts them again; lets the clients work.
async fn one(members: &mut [Server], all: bool, rng: &mut Rng) -> Result<u64> {
    let whom = rng.below(members.len() as u64) as usize;
    let mut kills = 0;
    for (at, member) in members.iter_mut().enumerate() {
        if let Some(end) = member.ended() {
            bail!("{end}\n{}", member.log_tail());
        }
        if all || at == whom {
            member.kill();
            kills += 1;
        }
    }
    tokio::time::sleep(Duration::from_millis(rng.below(1500))).await;
    for member in members.iter_mut().filter(|member| !member.runs()) {
        member.restart()?;
    }
    for member in members.iter_mut() {
        member.ready(Duration::from_secs(60)).await?;
    }
    tokio::time::sleep(Duration::from_millis(300 + rng.below(1200))).await;
    Ok(kills)
}

async fn compact(world: &World, to: i64, compacted: i64) -> Result<i64> {
    if to <= compacted.max(1) {
        return Ok(compacted);
    }
    let request = pb::CompactionRequest { revision: to, physical: to % 2 == 0 };
    for endpoint in &world.endpoints {
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
struct Work(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

fn start(world: &Arc<World>, seed: u64) -> Work {
    let of = |kind: u64, n: u64| seed.wrapping_mul(1000) + kind * 100 + n;
    let mut tasks = Vec::new();
    for n in 0..WRITERS {
        tasks.push(tokio::spawn(clients::writer(Arc::clone(world), n, of(1, n))));
    }
    for n in 0..READERS {
        tasks.push(tokio::spawn(clients::reader(Arc::clone(world), WRITERS, of(2, n))));
    }
    for n in 0..WATCHERS {
        tasks.push(tokio::spawn(clients::watcher(Arc::clone(world), n, of(3, n as u64))));
    }
    for n in 1..=LEASES {
        tasks.push(tokio::spawn(clients::lease(Arc::clone(world), n, of(4, n as u64))));
    }
    Work(tasks)
}
