//! The same requests to a real etcd and to kvorum: all answers, errors and
//! event streams must be equal.

mod auth;
mod calls;
mod gateway;
mod generate;
mod known;
mod locks;
mod maintenance;
mod marks;
mod normal;
mod pages;
mod phases;
mod plant;
mod run;
mod shrink;
mod side;
mod step;
mod watches;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Result, bail};

use self::run::{Difference, Pair, Run};
use crate::{peers, seeds::Seeds, server::Program};

/// What `xtask differ` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// One seed, or a first and a last one.
    #[arg(long, default_value = "1..30", value_name = "A..B")]
    pub seeds: Seeds,
    /// Steps of each script.
    #[arg(long, default_value_t = 2000)]
    pub steps: usize,
    /// Every phase is about this subject [default: any].
    #[arg(long, value_enum, value_name = "SUBJECT")]
    only: Option<phases::Subject>,
    /// The program that is right [default: the real etcd].
    #[arg(long, value_name = "PROGRAM")]
    pub left: Option<PathBuf>,
    /// The program that is judged [default: this workspace's release build].
    #[arg(long, value_name = "PROGRAM")]
    pub right: Option<PathBuf>,
    /// Alter one answer on the way; it must be noticed.
    #[arg(long)]
    pub plant: bool,
    /// Go on after a difference, and do not shrink it.
    #[arg(long)]
    pub all: bool,
    /// Print each step before it is carried out, and what the left side answers.
    #[arg(long)]
    pub trace: bool,
}

/// Runs the seeds.
///
/// # Errors
/// At a difference, or with `plant` if one is missed.
pub async fn differ(args: &Args) -> Result<()> {
    let pair = Pair {
        left: Program::new(&or(&args.left, || peers::program("etcd"))?)?,
        right: Program::new(&or(&args.right, peers::kvorum)?)?,
        // Passwords are hashed as fast as it gets.
        extra: vec!["--bcrypt-cost=4".to_owned()],
        trace: args.trace,
    };
    let begin = Instant::now();
    let (mut compared, mut findings) = (0, 0);
    for seed in args.seeds.iter() {
        let found = one(&pair, args, seed, &mut compared).await?;
        if let Some((script, difference)) = &found
            && !args.plant
        {
            findings += 1;
            report(seed, difference);
            if !args.all {
                let (script, difference) = shrink::shrink(&pair, script, difference).await?;
                tell_script(&script, &difference);
                bail!("seed {seed} differs");
            }
        }
        if args.plant && found.is_none() {
            bail!("seed {seed}: the planted difference was not noticed");
        }
        print!(
            "\rseed {seed}: {compared} answers compared, {findings} differences, {:.0} s   ",
            begin.elapsed().as_secs_f64()
        );
        std::io::stdout().flush()?;
    }
    println!();
    if findings > 0 {
        bail!("{findings} seeds differ");
    }
    let what = if args.plant { "every planted difference was noticed" } else { "no difference" };
    println!("differ: {} seeds of {} steps, {compared} answers compared: {what}", args.seeds.len(), args.steps);
    Ok(())
}

type Found = Option<(Vec<step::Step>, Difference)>;

async fn one(pair: &Pair, args: &Args, seed: u64, compared: &mut u64) -> Result<Found> {
    let script = phases::script(seed, args.steps, args.only);
    let plant = args.plant.then(|| {
        let what = plant::ALL[(seed % plant::ALL.len() as u64) as usize];
        (args.steps / 3, what)
    });
    let dir = tempfile::tempdir()?;
    let mut run = Run::start(pair, dir.path()).await?;
    let found = match run.script(&script, plant).await {
        Ok(found) => found,
        Err(error) => {
            let kept = dir.keep();
            return Err(error.context(format!("seed {seed}; kept: {}", kept.display())));
        }
    };
    *compared += run.compared;
    // With `all`, many directories would fill the disk; a seed makes them again.
    if found.is_some() && !args.plant && !args.all {
        let kept = dir.keep();
        println!("\nkept: {}", kept.display());
    }
    Ok(found.map(|difference| (script, difference)))
}

fn or(given: &Option<PathBuf>, otherwise: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    match given {
        Some(path) => Ok(Path::new(path).to_owned()),
        None => otherwise(),
    }
}

fn report(seed: u64, difference: &Difference) {
    println!("\nseed {seed}, step {}: {:?}", difference.at, difference.step);
    println!("  left:  {}\n  right: {}", difference.left, difference.right);
}

fn tell_script(script: &[step::Step], difference: &Difference) {
    println!("\nthe shortest script found, {} steps:", script.len());
    for (at, step) in script.iter().enumerate() {
        println!("  {at:4} {step:?}");
    }
    println!("  left:  {}\n  right: {}", difference.left, difference.right);
}
