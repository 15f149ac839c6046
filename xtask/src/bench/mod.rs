//! kvorum and the real etcd under the same load, on the same machine and disk, in turns.
//!
//! Each run has a new cluster in a new directory; the two sides alternate (A B B A), so that a
//! machine that becomes slower does so for both, and neither always comes second. What is printed
//! are medians, and beside each the smallest and the largest run. Every result is written down at
//! once: a comparison that was stopped goes on with `--resume`.

pub mod awake;
mod chart;
mod page;
mod result;
mod rows;
mod run;
mod side;
mod table;

use crate::peers;
use crate::server::Program;
use anyhow::{Result, bail};
use result::{Journal, Key};
use rows::{ROWS, Row};
use side::Side;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What `xtask bench` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// With whom kvorum is compared: `etcd` is the real one, built if need be; a path is a program
    /// that takes etcd's flags (a kvorum of yesterday, say). Without it kvorum runs alone.
    #[arg(long, value_name = "etcd|PROGRAM")]
    pub against: Option<String>,
    /// The program measured [default: this workspace's release build].
    #[arg(long, value_name = "PROGRAM")]
    pub bin: Option<PathBuf>,
    /// The program whose `bench` makes the load [default: the one measured].
    #[arg(long, value_name = "PROGRAM")]
    pub generator: Option<PathBuf>,
    /// Sizes of the clusters.
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    pub members: Vec<usize>,
    /// The rows of the short form, in short runs: about nine minutes.
    #[arg(long)]
    pub short: bool,
    /// These rows alone, by name or by the beginning of the name.
    #[arg(long, value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Print the rows and end.
    #[arg(long)]
    pub list: bool,
    /// Runs of each row and side [default: 5, in the short form 2; of a soak 1].
    #[arg(long)]
    pub repeats: Option<usize>,
    /// Seconds that are measured [default: 30, in the short form 3; of a soak a day].
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Where results.jsonl, results.json and index.html go.
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// Where the members keep their data: it decides which disk is measured [default: in `out`].
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Keep every CPU from halting while it is measured, with a spinning process of the lowest
    /// priority on each: a lone client's latency on a virtual machine then shows the server, and
    /// not how long the hypervisor takes to wake a CPU.
    #[arg(long)]
    pub awake: bool,
    /// Go on with the results in `out` instead of beginning anew.
    #[arg(long)]
    pub resume: bool,
}

impl Args {
    fn repeats(&self) -> usize {
        self.repeats.unwrap_or(if self.short { 2 } else { 5 })
    }

    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.short { 3 } else { 30 })
    }

    fn warm_up(&self) -> u64 {
        (self.seconds() / 3).clamp(1, 10)
    }

    fn rows(&self) -> Result<Vec<&'static Row>> {
        let named = |row: &&Row| match self.rows.as_slice() {
            [] => !matches!(row.run, rows::Run::Soak(_)) && (!self.short || !row.short.is_empty()),
            wanted => wanted.iter().any(|name| named_by(row, name)),
        };
        for name in &self.rows {
            if !ROWS.iter().any(|row| named_by(row, name)) {
                bail!("no row is called {name}; `cargo xtask bench --list` prints them");
            }
        }
        Ok(ROWS.iter().filter(named).collect())
    }
}

/// Whether a word of the command line means this row: its name, or, if no row is called so, the
/// beginning of names.
fn named_by(row: &Row, word: &str) -> bool {
    match ROWS.iter().find(|row| row.name == word) {
        Some(exact) => exact.name == row.name,
        None => row.name.starts_with(word),
    }
}

/// Runs the rows and writes the pages.
///
/// # Errors
/// If a program cannot be built or a result not be written. A row that fails is noted as such and
/// the next one runs; at the end there is an error if any did.
pub async fn bench(args: &Args) -> Result<()> {
    let rows = args.rows()?;
    if args.list {
        let all = |row: &&Row| args.rows.is_empty() && !args.short || rows.iter().any(|r| r.name == row.name);
        for row in ROWS.iter().filter(all) {
            println!("{:<18} {}{}", row.name, row.what, if row.short.is_empty() { " (long form)" } else { "" });
        }
        return Ok(());
    }
    let sides = sides(args)?;
    let generator = match &args.generator {
        Some(path) => path.canonicalize()?,
        None => sides.last().expect("kvorum is measured").program.path.clone(),
    };
    std::fs::create_dir_all(&args.out)?;
    let data = args.data.clone().unwrap_or_else(|| args.out.clone());
    std::fs::create_dir_all(&data)?;
    let mut journal = Journal::open(&args.out.join("results.jsonl"), args.resume, args.awake)?;
    let spinners = args.awake.then(awake::Spinners::start).transpose()?;
    let bench = run::Bench {
        generator,
        data,
        seconds: args.seconds(),
        warm_up: args.warm_up(),
        soak: Duration::from_secs(args.seconds.unwrap_or(24 * 3600)),
        spinners: spinners.as_ref().map_or_else(Vec::new, awake::Spinners::pids),
    };
    let failed = all(args, &rows, &sides, &bench, &mut journal).await?;
    drop(spinners);
    report(args, &sides, &journal)?;
    if failed > 0 {
        bail!("{failed} runs failed or counted errors; they are named above and in the results");
    }
    Ok(())
}

fn sides(args: &Args) -> Result<Vec<Side>> {
    let mut sides = Vec::new();
    if let Some(against) = &args.against {
        let path = if against == "etcd" { real_etcd()? } else { PathBuf::from(against) };
        let name = if against == "etcd" { "etcd" } else { "other" };
        sides.push(Side { name: name.into(), program: Program::new(&path)? });
    }
    let own = match &args.bin {
        Some(path) => path.clone(),
        None => peers::kvorum()?,
    };
    sides.push(Side { name: "kvorum".into(), program: Program::new(&own)? });
    Ok(sides)
}

fn real_etcd() -> Result<PathBuf> {
    match std::env::var_os("KVORUM_TEST_ETCD") {
        Some(folder) => Ok(Path::new(&folder).join("etcd")),
        None => peers::program("etcd"),
    }
}

/// All runs that the journal does not have; how many of them failed.
async fn all(
    args: &Args,
    rows: &[&'static Row],
    sides: &[Side],
    bench: &run::Bench,
    journal: &mut Journal,
) -> Result<usize> {
    let mut work = Vec::new();
    for row in rows {
        // The short form leaves out sizes, unless the row was asked for by name.
        let sizes = if args.short && args.rows.is_empty() { row.short } else { row.members };
        for members in args.members.iter().copied().filter(|m| sizes.contains(m)) {
            // Nobody wants five days of it by accident.
            let once = matches!(row.run, rows::Run::Soak(_)) && args.repeats.is_none();
            for repeat in 0..if once { 1 } else { args.repeats() } {
                work.extend(in_turn(sides, repeat).map(|side| (*row, members, repeat, side)));
            }
        }
    }
    let begin = Instant::now();
    let (mut failed, total) = (0, work.len());
    for (at, (row, members, repeat, side)) in work.into_iter().enumerate() {
        let key = Key { row: row.name.into(), members, repeat, side: side.name.clone() };
        if journal.has(&key) {
            continue;
        }
        let left = begin.elapsed().as_secs_f64() / (at.max(1) as f64) * (total - at) as f64;
        print!("[{}/{total}, {:.0} s left] {} of {members} {}: ", at + 1, left, row.name, side.name);
        std::io::stdout().flush()?;
        let own_time = if matches!(row.run, rows::Run::Soak(_)) { bench.soak } else { Duration::ZERO };
        let result = tokio::time::timeout(Duration::from_secs(1800) + own_time, bench.one(row, members, side)).await;
        let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("no result half an hour after its time")));
        let interrupted = matches!(&result, Ok((_, report)) if report["soak"]["interrupted"] == true);
        let entry = result::Entry::of(key, result);
        println!("{}", entry.line(row));
        failed += usize::from(entry.failed());
        journal.add(entry)?;
        if interrupted {
            println!("interrupted: the runs that were left are not made");
            break;
        }
    }
    Ok(failed)
}

/// The sides of a repeat: the other way round in each second one, so that neither always finds what
/// the other has left behind, in the page cache and on the disk.
fn in_turn(sides: &[Side], repeat: usize) -> impl Iterator<Item = &Side> {
    let last = sides.len().wrapping_sub(1);
    (0..sides.len()).map(move |at| &sides[if repeat.is_multiple_of(2) { at } else { last - at }])
}

/// Where it was measured, in words.
fn machine(args: &Args) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |m| m.1);
    let memory: f64 = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().split_once(' ')?.0.parse().ok())
        .unwrap_or(0.0);
    format!(
        "{cpus} CPUs ({model}), {:.0} GiB, Linux {}; {} s measured, {} s warm-up, {} runs a side; CPUs {}",
        memory / 1024.0 / 1024.0,
        read("/proc/sys/kernel/osrelease").trim(),
        args.seconds(),
        args.warm_up(),
        args.repeats(),
        awake::mode(args.awake)
    )
}

fn report(args: &Args, sides: &[Side], journal: &Journal) -> Result<()> {
    let summary = table::Summary::of(journal, ROWS, sides);
    println!("\n{}", summary.text());
    let json = args.out.join("results.json");
    std::fs::write(&json, serde_json::to_vec_pretty(&summary.json())?)?;
    let html = args.out.join("index.html");
    std::fs::write(&html, page::page(&summary, journal, &machine(args)))?;
    println!("{} and {}", json.display(), html.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_side_always_comes_second() {
        let program = Program { path: PathBuf::new(), first: Vec::new(), own_group: false };
        let sides = ["etcd", "kvorum"].map(|name| Side { name: name.into(), program: program.clone() });
        let order: Vec<&str> =
            (0..4).flat_map(|repeat| in_turn(&sides, repeat)).map(|side| side.name.as_str()).collect();
        assert_eq!(order, ["etcd", "kvorum", "kvorum", "etcd", "etcd", "kvorum", "kvorum", "etcd"]);
    }

    #[test]
    fn a_name_means_one_row_and_a_beginning_a_family() {
        let rows = |word: &str| ROWS.iter().filter(|row| named_by(row, word)).map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(rows("list-pages"), ["list-pages"], "not list-pages-1m");
        assert_eq!(rows("fan-out-1"), ["fan-out-100", "fan-out-1000", "fan-out-10k"]);
        assert!(rows("no-such-row").is_empty());
    }
}
