//! Damage on disk, case after case: a directory that a scripted life has left is damaged in one
//! place, the member is started on it, and what it says and serves is held against what was
//! acknowledged. The same for a real etcd, with the same eyes.

mod copy;
mod damage;
mod judge;
mod life;
mod places;
mod read;
mod table;

use std::{
    cell::{Cell, RefCell},
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use self::{
    judge::{Outcome, Stage},
    places::System,
};
use crate::{peers, rng::Rng, server::Program};

/// What `xtask sweep` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Damage one member's directory in one place, start it, and judge.
    Damage(Damages),
    /// A crash behind each write, flush, rename and removal of a member's life.
    Calls,
}

/// What `xtask sweep damage` takes.
#[derive(Clone, Debug, clap::Args)]
struct Damages {
    /// Damages in each setting.
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// Decides where and how.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only structures whose name contains this: `log`, `segment: sealed`, `manifest`, `wal`, `db`.
    #[arg(long, value_name = "STRUCTURE")]
    only: Option<String>,
    /// This case alone.
    #[arg(long, value_name = "NUMBER")]
    case: Option<u64>,
    /// Cases at the same time; each worker lives a life of its own first.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    #[arg(long, default_value = "kvorum")]
    system: System,
    /// Members of the cluster: 1 and 3, or one of them.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3])]
    members: Vec<usize>,
    /// The program [default: this workspace's release build, or the real etcd].
    #[arg(long, value_name = "PROGRAM")]
    bin: Option<PathBuf>,
    /// Where directories are kept while it runs, and the damaged ones of faults afterwards.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Every case is written here, a line of JSON each; results of earlier runs stay.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Run nothing: write the results of `--out` into docs/durability.md.
    #[arg(long)]
    table: bool,
}

/// Runs a sweep.
///
/// # Errors
/// If an acknowledged write was lost, a wrong value was served, or a member said nothing at all.
pub async fn sweep(args: &Args) -> Result<()> {
    match &args.what {
        What::Damage(args) if args.table => table::write(&results(args)),
        What::Damage(args) => damages(args).await,
        What::Calls => calls(),
    }
}

/// The sweep over a whole member's calls is a test of `node`; here each boundary has its turn,
/// there a sample.
fn calls() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = std::process::Command::new(cargo)
        .args(["test", "--profile", "sim", "--package", "node", "--test", "boundaries", "--", "--nocapture"])
        .env("BOUNDARIES", "all")
        .current_dir(peers::workspace())
        .status()
        .context("cargo does not start")?;
    if !status.success() {
        bail!("sweep calls: {status}");
    }
    Ok(())
}

fn results(args: &Damages) -> PathBuf {
    args.out.clone().unwrap_or_else(|| peers::workspace().join("target/sweep.jsonl"))
}

async fn damages(args: &Damages) -> Result<()> {
    let path = match (&args.bin, args.system) {
        (Some(path), _) => path.clone(),
        (None, System::Kvorum) => peers::kvorum()?,
        (None, System::Etcd) => peers::program("etcd")?,
    };
    let program = Program::new(&path)?;
    let temporary = tempfile::Builder::new().prefix("sweep").tempdir()?;
    let dir = args.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    let mut faults = 0;
    for members in &args.members {
        faults += setting(args, &program, *members, &dir).await?;
    }
    if faults > 0 {
        let kept = if args.dir.is_some() { dir } else { temporary.keep() };
        bail!("{faults} damages were met with loss, wrong answers or silence; their directories: {}", kept.display());
    }
    Ok(())
}

/// What the workers of one setting share.
struct Run<'a> {
    args: &'a Damages,
    program: &'a Program,
    members: usize,
    next: Cell<u64>,
    tally: RefCell<table::Tally>,
    out: RefCell<std::fs::File>,
    begin: Instant,
}

/// One system with so many members; the number of faults.
async fn setting(args: &Damages, program: &Program, members: usize, dir: &Path) -> Result<u64> {
    let out = results(args);
    let file = std::fs::File::options().create(true).append(true).open(&out);
    let out = RefCell::new(file.with_context(|| out.display().to_string())?);
    let (next, tally) = (Cell::new(args.case.unwrap_or(0)), RefCell::default());
    let run = Run { args, program, members, next, tally, out, begin: Instant::now() };
    let jobs = if args.case.is_some() { 1 } else { args.jobs.max(1) };
    let workers = (0..jobs).map(|worker| {
        let dir = dir.join(format!("{}-{members}-{worker}", args.system.name()));
        worker_of(&run, worker, dir)
    });
    let ends = futures_util::future::join_all(workers).await;
    let tally = run.tally.into_inner();
    println!("\n{}", tally.text(&format!("{}, {members} members", args.system.name())));
    for end in ends {
        end?;
    }
    Ok(tally.faults())
}

async fn worker_of(run: &Run<'_>, worker: u64, dir: PathBuf) -> Result<()> {
    let args = run.args;
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    let life = life::live(args.system, run.program, run.members, &dir, args.seed * 1000 + worker).await?;
    let mut stages = Vec::new();
    for image in &life.images {
        let mut stage = Stage::new((args.system, run.program), &life, image, &dir)?;
        stage.rehearse().await?;
        stages.push(stage);
    }
    loop {
        let case = run.next.get();
        let end = args.case.map_or(args.cases, |case| case + 1);
        if case >= end {
            return Ok(());
        }
        run.next.set(case + 1);
        let which = (case % stages.len() as u64) as usize;
        let stage = &mut stages[which];
        let mut structures = stage.structures();
        structures.retain(|name| args.only.as_ref().is_none_or(|only| name.contains(only.as_str())));
        if structures.is_empty() {
            bail!("no structure is called {:?}; there are {}", args.only, stage.structures().join(", "));
        }
        let structure = structures[(case / 3) as usize % structures.len()];
        let mut rng = Rng::new(args.seed.wrapping_mul(1_000_003).wrapping_add(case));
        let outcome = stage.case(case, structure, &mut rng).await.with_context(|| format!("case {case}"))?;
        run.note(&outcome)?;
    }
}

impl Run<'_> {
    fn note(&self, outcome: &Outcome) -> Result<()> {
        let mut line = outcome.json();
        line["system"] = self.args.system.name().into();
        line["members"] = self.members.into();
        writeln!(self.out.borrow_mut(), "{line}")?;
        let mut tally = self.tally.borrow_mut();
        tally.add(&line);
        if outcome.verdict.is_fault() {
            println!(
                "\ncase {} ({}): {} {} {}: {}\n  {}",
                outcome.case,
                outcome.image,
                outcome.damage.kind.name(),
                outcome.place.path,
                outcome.damage.what,
                outcome.verdict.name(),
                outcome.told.join("\n  ")
            );
        }
        print!("\r{} cases, {:.0} s: {}   ", tally.cases(), self.begin.elapsed().as_secs_f64(), tally.line());
        std::io::stdout().flush()?;
        Ok(())
    }
}
