//! Live faults: a cluster in namespaces of its own under honest clients, one fault after another,
//! and what the clients saw; on demand beside a real etcd. It makes `docs/faults.md`.

mod disks;
mod judge;
mod kinds;
mod load;
mod net;
mod page;
mod result;
mod scenes;
mod stage;
mod tool;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

pub use self::page::{made, wrapped};
use self::{
    load::{Load, World},
    net::Net,
    result::{Outcome, Results, Round},
    scenes::{Needs, SCENES, Scene},
    stage::Stage,
};
use crate::{
    inside,
    peers::{self, workspace},
    server::Program,
};

/// What is called, of util-linux, iproute2, e2fsprogs and strace.
const TOOLS: [&str; 8] = ["unshare", "nsenter", "mount", "fsfreeze", "ip", "tc", "mkfs.ext4", "strace"];
/// Of the largest scenario.
const MEMBERS: usize = 5;
/// Before the fault: connections are made, the first puts are answered.
const WARM_UP: Duration = Duration::from_millis(1500);
/// After it: what comes late is seen.
const SETTLE: Duration = Duration::from_secs(2);
/// How long members may take to serve again.
const BACK: Duration = Duration::from_secs(40);
/// Bytes of a value that fills disks.
const LARGE: usize = 48 << 10;

/// What `xtask faults` takes.
///
/// It needs root, for network namespaces and mounts, and touches none but its own: they end with
/// it. No scenario takes more than half a minute a round.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Scenarios, or beginnings of their names [default: all].
    pub names: Vec<String>,
    /// How often each fault is done to the same cluster.
    #[arg(long, default_value_t = 1)]
    pub rounds: usize,
    /// The same with the real etcd, in turns.
    #[arg(long)]
    pub etcd: bool,
    /// The program [default: this workspace's release build].
    #[arg(long, alias = "binary", value_name = "PROGRAM")]
    pub bin: Option<PathBuf>,
    /// Name the scenarios, and run none. With --page, write the page of what was kept.
    #[arg(long)]
    pub list: bool,
    /// Write docs/faults.json and docs/faults.md: what was run now, and what was kept of the rest.
    #[arg(long)]
    pub page: bool,
    /// Keep directories and logs, as after a violation.
    #[arg(long)]
    pub keep: bool,
    /// Something for the page that whoever reads the figures should know.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
}

/// One of the programs.
struct Side {
    name: &'static str,
    program: Program,
    version: String,
}

/// Runs the scenarios.
///
/// # Errors
/// If kvorum did something that must not be, or the machine lacks something.
pub async fn faults(args: &Args) -> Result<()> {
    let scenes = chosen(&args.names)?;
    if args.list {
        scenes.iter().for_each(|scene| println!("{:<14} {}", scene.name, scene.what));
        return if args.page { write_page(&result::read(&workspace().join("docs/faults.json"))?) } else { Ok(()) };
    }
    let Some(dir) = inside::folder() else {
        // What is built is built before: inside there is no network.
        sides(args)?;
        let status = inside::enter(&TOOLS).await?;
        if !status.success() {
            bail!("there were violations, or it did not come to its end");
        }
        return Ok(());
    };
    inside::end_with_the_outer();
    let sides = sides(args)?;
    let net = Net::new(MEMBERS).await.context("the network of the run")?;
    let kept = workspace().join("docs/faults.json");
    let mut results = result::read(&kept)?;
    let mut wrong = 0;
    for scene in scenes {
        for side in &sides {
            let outcome = run(args, scene, side, &net, &dir).await;
            let outcome = outcome.with_context(|| format!("{} with {}", scene.name, side.name))?;
            println!("{}", page::line(scene.name, side.name, &outcome));
            let found = outcome.wrong().count();
            wrong += if side.name == "etcd" { 0 } else { found };
            results.entry(scene.name.to_owned()).or_default().insert(side.name.to_owned(), outcome);
            if args.page {
                result::write(&kept, &results)?;
                write_page(&results)?;
            }
        }
    }
    if wrong > 0 {
        bail!("{wrong} violations");
    }
    Ok(())
}

fn write_page(results: &Results) -> Result<()> {
    let path = workspace().join("docs/faults.md");
    fs::write(&path, page::page(results, SCENES)).with_context(|| path.display().to_string())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Scene>> {
    let unknown = |name: &&String| !SCENES.iter().any(|scene| scene.name.starts_with(name.as_str()));
    if let Some(name) = names.iter().find(unknown) {
        bail!("{name}: no such scenario; --list names them");
    }
    let asked = |scene: &&Scene| names.is_empty() || names.iter().any(|name| scene.name.starts_with(name.as_str()));
    Ok(SCENES.iter().filter(asked).collect())
}

fn sides(args: &Args) -> Result<Vec<Side>> {
    let path = match &args.bin {
        Some(path) => path.clone(),
        None if inside::folder().is_some() => workspace().join("target/release/kvorum"),
        None => peers::kvorum()?,
    };
    let mut programs = vec![("kvorum", path)];
    if args.etcd {
        programs.push(("etcd", peers::program("etcd")?));
    }
    let side = |(name, path): (&'static str, PathBuf)| {
        let output = std::process::Command::new(&path).arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.lines().next().and_then(|line| line.split_whitespace().last()).unwrap_or("?").to_owned();
        Ok(Side { name, program: Program::new(&path)?, version })
    };
    programs.into_iter().map(side).collect()
}

/// All rounds of a scenario on one cluster.
async fn run(args: &Args, scene: &Scene, side: &Side, net: &Net, dir: &Path) -> Result<Outcome> {
    let dir = dir.join(format!("{}-{}", scene.name, side.name));
    fs::create_dir_all(&dir)?;
    let mut stage = Stage::new(net, &side.program, scene.members, scene.needs != Needs::Nothing, &dir).await?;
    let size = if scene.needs == Needs::Full { LARGE } else { 0 };
    let mut outcome = Outcome { version: side.version.clone(), made: page::made(&args.note), rounds: Vec::new() };
    let world = Arc::new(World::new(stage.endpoints(), size));
    for _ in 0..args.rounds {
        let round = round(scene, &mut stage, &world).await?;
        let failed = !round.wrong.is_empty();
        outcome.rounds.push(round);
        if failed {
            // The cluster is no longer what the next round begins with.
            inside::keep();
            for member in stage.members.iter().filter(|_| side.name == "kvorum") {
                println!("{}", member.log_tail());
            }
            return Ok(outcome);
        }
    }
    if args.keep {
        inside::keep();
    } else {
        stage.end().await?;
    }
    Ok(outcome)
}

async fn round(scene: &Scene, stage: &mut Stage<'_>, world: &Arc<World>) -> Result<Round> {
    world.begin();
    let mut load = Load::start(world).await.context("the clients")?;
    sleep(WARM_UP).await;
    let begin = Instant::now();
    let played = scenes::play(stage, scene.name).await?;
    let mut wrong = played.wrong;
    if let Err(error) = stage.all_ready(BACK).await {
        wrong.push(format!("not back after {BACK:?}: {error:#}"));
    }
    sleep(SETTLE).await;
    let end = Instant::now();
    load.quiet().await;
    let leased = judge::leased(world).await;
    wrong.extend(judge::judge(world).await);
    drop(load);
    let seen = world.seen();
    wrong.extend(seen.problems.iter().cloned());
    match (seen.lease_gone, leased) {
        (Some(_), true) => wrong.push("a member said that the lease is gone, and it lives".to_owned()),
        (_, false) if scene.majority => wrong.push("the lease that was kept alive is gone".to_owned()),
        _ => {}
    }
    let well = (0..scene.members).filter(|at| !played.hurt.contains(at));
    Ok(Round {
        gap: gap(&seen.acks, begin, end, |_| true),
        begins: begins(&seen.acks, begin, end),
        well: well.map(|at| gap(&seen.acks, begin, end, |by| by == at)).fold(0.0, f64::max),
        acked: seen.acks.len() as u64,
        errors: seen.errors.clone(),
        wrong,
        ended: std::mem::take(&mut stage.ended),
    })
}

/// The longest time from `begin` to `end` without an acknowledgement of these, in milliseconds.
fn gap(acks: &[(Instant, usize)], begin: Instant, end: Instant, of: impl Fn(usize) -> bool) -> f64 {
    let inside = acks.iter().filter(|(at, by)| of(*by) && *at >= begin && *at <= end).map(|(at, _)| *at);
    let mut times: Vec<Instant> = [begin, end].into_iter().chain(inside).collect();
    times.sort();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    longest.as_secs_f64() * 1e3
}

/// When that time began, in milliseconds after `begin`.
fn begins(acks: &[(Instant, usize)], begin: Instant, end: Instant) -> f64 {
    let inside = acks.iter().filter(|(at, _)| *at >= begin && *at <= end).map(|(at, _)| *at);
    let mut times: Vec<Instant> = [begin, end].into_iter().chain(inside).collect();
    times.sort();
    let longest = times.windows(2).max_by_key(|pair| pair[1] - pair[0]);
    longest.map_or(0.0, |pair| (pair[0] - begin).as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_longest_time_without_an_acknowledgement() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let acks = [(at(10), 0), (at(40), 1), (at(50), 0), (at(300), 0)];
        assert_eq!(gap(&acks, begin, at(100), |_| true).round(), 50.0, "the end counts too");
        assert_eq!(gap(&acks, begin, at(100), |by| by == 1).round(), 60.0);
        assert_eq!(begins(&acks, begin, at(100)).round(), 50.0);
        assert_eq!(gap(&[], begin, at(100), |_| true).round(), 100.0);
    }

    #[test]
    fn scenarios_are_chosen_by_the_beginning_of_their_names() {
        let names = |of: &[&str]| {
            let of: Vec<String> = of.iter().map(|name| (*name).to_owned()).collect();
            chosen(&of).map(|scenes| scenes.iter().map(|scene| scene.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["leader-k", "chained"]).unwrap(), ["leader-kill", "chained"]);
        assert_eq!(names(&[]).unwrap().len(), SCENES.len());
        assert!(names(&["nothing"]).is_err());
    }
}
