//! Runs the simulator: `sim --seeds 1..2000 --jobs 2`, `sim --seed 7 --trace`, `sim --planted`.

use sim::campaign::{Choice, Hunt, PLANTED_BUDGET, campaign, hunt, hunt_all};
use sim::planted::{Planted, table};
use sim::run::{Verdict, run_plan};
use sim::shrink::shrink;
use sim::sights::{Sight, Sights};
use sim::trace::Mode;
use std::ops::RangeInclusive;
use std::process::ExitCode;

const USAGE: &str = "\
usage: sim --seeds A..B [--jobs N]        run seeds A to B (both included)
       sim --seed N [--trace] [--bug NAME] run one seed, with its story
       sim --seed N --shrink [--bug NAME]  make a failing seed smaller
       sim --load N                       goodput of seed N with few clients and with many
       sim --planted [--jobs N]           every planted bug must be found
       sim --hunt NAME                     the same, of one planted bug
       sim --planted-table                docs/planted-bugs.md
       sim --sights-table                 what can be seen, and what is switched off
with --sight NAME (again and again)       this sight too, in every seed
     --without NAME                       not this sight
     --all-sights                         all of them, in their share of the seeds";

#[derive(Default)]
struct Arguments {
    seeds: Option<RangeInclusive<u64>>,
    seed: Option<u64>,
    trace: bool,
    shrink: bool,
    load: Option<u64>,
    planted: bool,
    hunt: Option<Planted>,
    table: bool,
    sights: bool,
    bug: Option<Planted>,
    jobs: usize,
    choice: Choice,
}

fn number(text: Option<String>, of: &str) -> Result<u64, String> {
    let text = text.ok_or(format!("{of} needs a number"))?;
    text.parse().map_err(|_| format!("{of}: {text} is not a number"))
}

fn range(text: Option<String>) -> Result<RangeInclusive<u64>, String> {
    let text = text.ok_or("--seeds needs A..B")?;
    let (from, to) = text.split_once("..").ok_or("--seeds needs A..B")?;
    let number =
        |t: &str| t.trim_start_matches('=').parse::<u64>().map_err(|_| format!("--seeds: {t} is not a number"));
    Ok(number(from)?..=number(to)?)
}

fn sight(name: Option<String>, of: &str) -> Result<Sight, String> {
    let name = name.ok_or(format!("{of} needs a name"))?;
    Sight::named(&name).ok_or(format!("no sight is called {name}"))
}

fn bug(name: Option<String>, of: &str) -> Result<Planted, String> {
    let name = name.ok_or(format!("{of} needs a name"))?;
    Planted::named(&name).ok_or(format!("no planted bug is called {name}"))
}

fn arguments() -> Result<Arguments, String> {
    let mut a = Arguments { jobs: 1, ..Arguments::default() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seeds" => a.seeds = Some(range(args.next())?),
            "--seed" => a.seed = Some(number(args.next(), "--seed")?),
            "--trace" => a.trace = true,
            "--shrink" => a.shrink = true,
            "--load" => a.load = Some(number(args.next(), "--load")?),
            "--planted" => a.planted = true,
            "--planted-table" => a.table = true,
            "--sights-table" => a.sights = true,
            "--hunt" => a.hunt = Some(bug(args.next(), "--hunt")?),
            "--bug" => {
                let bug = bug(args.next(), "--bug")?;
                a.choice.always.extend(bug.sights());
                a.bug = Some(bug);
            }
            "--sight" => {
                let sight = sight(args.next(), "--sight")?;
                a.choice.sights.set(sight, true);
                a.choice.always.push(sight);
            }
            "--without" => a.choice.sights.set(sight(args.next(), "--without")?, false),
            "--all-sights" => a.choice.sights = Sights::all(),
            "--jobs" => a.jobs = number(args.next(), "--jobs")? as usize,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(a)
}

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let a = match arguments() {
        Ok(a) => a,
        Err(text) => {
            eprintln!("sim: {text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if a.table || a.sights {
        print!("{}", if a.table { table() } else { sim::sights::table() });
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = a.load {
        return load(seed);
    }
    if a.planted {
        return report(&hunt_all(a.jobs, PLANTED_BUDGET));
    }
    if let Some(bug) = a.hunt {
        return report(&[hunt(bug.entry(), PLANTED_BUDGET)]);
    }
    if let Some(seed) = a.seed {
        return if a.shrink { smaller(seed, &a) } else { one(seed, &a) };
    }
    let Some(seeds) = &a.seeds else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let summary = campaign(*seeds.start()..*seeds.end() + 1, a.jobs, true, &a.choice);
    if summary.print(&mut std::io::stdout()).is_err() || !summary.failures.is_empty() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn load(seed: u64) -> ExitCode {
    let (goodput, failures) = sim::load::judge(seed);
    println!("seed {seed}: {goodput:?} bytes committed a second");
    failures.iter().for_each(|failure| println!("FAILED: {}: {}", failure.oracle, failure.text));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, a: &Arguments) -> ExitCode {
    let mode = if a.trace { Mode::Print } else { Mode::Hash };
    tell(&run_plan(a.choice.plan(seed), a.bug, mode))
}

fn tell(verdict: &Verdict) -> ExitCode {
    println!(
        "seed {}: {} members, {:.1} s simulated, {} operations, {} log entries, {} events, trace {:016x}",
        verdict.seed,
        verdict.members,
        verdict.simulated as f64 / 1e6,
        verdict.operations,
        verdict.entries,
        verdict.events,
        verdict.hash
    );
    for (what, n) in &verdict.stats {
        println!("  {what}: {n}");
    }
    for failure in &verdict.failures {
        println!("FAILED at {:.6}: {}: {}", failure.at as f64 / 1e6, failure.oracle, failure.text);
    }
    if verdict.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn smaller(seed: u64, a: &Arguments) -> ExitCode {
    let Some((plan, verdict)) = shrink(a.choice.plan(seed), a.bug, &mut |what| println!("  {what}")) else {
        println!("seed {seed} does not fail");
        return ExitCode::SUCCESS;
    };
    println!("{plan:#?}");
    tell(&verdict);
    ExitCode::FAILURE
}

fn report(hunts: &[Hunt]) -> ExitCode {
    let mut good = 0;
    for hunt in hunts {
        let name = hunt.entry.name;
        match &hunt.found {
            Some((seed, oracle, _)) if hunt.good() => {
                good += 1;
                println!("found   {name:<24} by {oracle:<6} with seed {seed}");
            }
            Some((seed, oracle, text)) => {
                println!("STRANGE {name:<24} by {oracle}, which is not meant to find it, with seed {seed}: {text}");
            }
            None => println!("MISSED  {name:<24} in {PLANTED_BUDGET} seeds"),
        }
    }
    println!("{good} of {} planted bugs found", hunts.len());
    if good == hunts.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
