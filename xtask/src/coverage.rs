//! How many lines of floors 0 to 2 the simulator reaches, measured; and what it does not reach, with
//! the reason. Writes `docs/coverage.md`.
//!
//! The compiler counts (`-Cinstrument-coverage`), LLVM's own tools read the counts: those of the
//! toolchain (`rustup component add llvm-tools`), or of the folder in `LLVM_TOOLS`. They must be as new
//! as the compiler.

use crate::peers::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Percent of the lines that are to be reached.
const GOAL: f64 = 95.0;
const FLOORS: [&str; 4] = ["consensus", "store", "disk", "node"];
const PAGE: &str = "docs/coverage.md";

/// Why lines of a file are not reached. The first that fits counts.
const REASONS: &[(&str, &str)] = &[
    ("store/src/export.rs", "backups are read by the edge; nobody asks for one here"),
    ("node/src/backup.rs", "backups are read by the edge; nobody asks for one here"),
    ("node/src/offline.rs", "for `kvorum utl`, beside the operator's word about a torn end"),
    ("disk/src/urls.rs", "the server's flags; members have numbers here"),
    ("disk/src/founding.rs", "the server's flags; members have numbers here"),
    ("disk/src/identity.rs", "ids from the server's flags; members have numbers here"),
    ("consensus/src/change.rs", "no membership changes yet"),
    ("store/src/command.rs", "the simulator encodes commands by itself"),
    ("store/src/request.rs", "the simulator encodes commands by itself"),
];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seeds that are run.
    #[arg(long, default_value = "1..300")]
    seeds: String,
    #[arg(long, default_value = "2")]
    jobs: String,
}

/// Lines of a file, and how many of them were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    lines: u64,
    reached: u64,
}

impl Count {
    fn and(self, more: Count) -> Count {
        Count { lines: self.lines + more.lines, reached: self.reached + more.reached }
    }

    fn percent(self) -> f64 {
        100.0 * self.reached as f64 / self.lines.max(1) as f64
    }
}

/// Builds the simulator with counters, runs the seeds, and writes the page.
///
/// # Errors
/// A tool is missing, a seed fails, or lines are not reached and nothing says why.
pub fn coverage(args: &Args) -> Result<()> {
    let folder = workspace().join("target/coverage");
    let (raw, merged) = (folder.join("sim.profraw"), folder.join("sim.profdata"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--profile", "sim", "--package", "sim", "--bin", "sim", "--target-dir"];
    run(Command::new(cargo)
        .args(build)
        .arg(&folder)
        .current_dir(workspace())
        .env("RUSTFLAGS", "-Cinstrument-coverage")
        // What a build script counts is not wanted.
        .env("LLVM_PROFILE_FILE", folder.join("build.profraw")))?;
    let program = folder.join("sim/sim");
    run(Command::new(&program).args(["--seeds", &args.seeds, "--jobs", &args.jobs]).env("LLVM_PROFILE_FILE", &raw))?;
    run(Command::new(tool("llvm-profdata")?).args(["merge", "--sparse", "-o"]).arg(&merged).arg(&raw))?;
    let mut export = Command::new(tool("llvm-cov")?);
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged).arg(&program);
    let lcov = export.output().context("llvm-cov does not start")?;
    ensure!(lcov.status.success(), "llvm-cov: {}", String::from_utf8_lossy(&lcov.stderr));
    let counts = counts(&String::from_utf8_lossy(&lcov.stdout), &workspace());
    ensure!(!counts.is_empty(), "no line of {FLOORS:?} was counted");
    let (page, without) = page(&args.seeds, &counts);
    std::fs::write(workspace().join(PAGE), page).context(PAGE)?;
    ensure!(without.is_empty(), "lines are not reached, and no reason is written down:\n{}", without.join("\n"));
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} does not start"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn tool(name: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os("LLVM_TOOLS") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let found = Command::new("rustc").args(["--print", "target-libdir"]).output().context("rustc")?;
            PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()).with_file_name("bin")
        }
    };
    let path = folder.join(name);
    if !path.exists() {
        bail!("{} is not there: rustup component add llvm-tools, or name its folder in LLVM_TOOLS", path.display());
    }
    Ok(path)
}

/// Lines by file, of the floors alone. A line that stands in the binary more than once is reached if one is.
fn counts(lcov: &str, root: &Path) -> BTreeMap<String, Count> {
    let mut lines: BTreeMap<String, BTreeMap<u64, bool>> = BTreeMap::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path)).display().to_string();
            let ours = FLOORS.iter().any(|floor| path.starts_with(&format!("{floor}/src/")));
            file = ours.then_some(path);
        } else if let (Some(file), Some(count)) = (&file, line.strip_prefix("DA:")) {
            let mut numbers = count.split(',').map_while(|number| number.parse::<u64>().ok());
            if let (Some(number), Some(times)) = (numbers.next(), numbers.next()) {
                *lines.entry(file.clone()).or_default().entry(number).or_default() |= times > 0;
            }
        }
    }
    let count = |lines: BTreeMap<u64, bool>| Count {
        lines: lines.len() as u64,
        reached: lines.values().filter(|reached| **reached).count() as u64,
    };
    lines.into_iter().map(|(file, lines)| (file, count(lines))).collect()
}

/// The page, and the files of which it cannot say why.
fn page(seeds: &str, counts: &BTreeMap<String, Count>) -> (String, Vec<String>) {
    let mut page = format!(
        "# What the simulator reaches\n\nWritten by `cargo xtask coverage --seeds {seeds}`: lines of floors 0 to 2 that the simulator runs.\n\
         Tests are not counted, neither as code nor as what reaches it. The goal is {GOAL} %.\n\n\
         | crate | lines | reached | percent |\n|---|---:|---:|---:|\n"
    );
    let of = |crate_: &str| {
        let files = counts.iter().filter(|(file, _)| file.starts_with(&format!("{crate_}/")));
        files.fold(Count::default(), |sum, (_, count)| sum.and(*count))
    };
    let all = FLOORS.iter().fold(Count::default(), |sum, floor| sum.and(of(floor)));
    for (name, count) in FLOORS.iter().map(|floor| (*floor, of(floor))).chain([("all", all)]) {
        let _ = writeln!(page, "| {name} | {} | {} | {:.1} |", count.lines, count.reached, count.percent());
    }
    page.push_str("\n## What it does not reach\n\n| file | lines not reached | why |\n|---|---:|---|\n");
    let mut without = Vec::new();
    for (file, count) in counts.iter().filter(|(_, count)| count.reached < count.lines) {
        let why = REASONS.iter().find(|(prefix, _)| file.starts_with(prefix)).map(|(_, why)| *why);
        // A few lines are errors of the system and refusals of hostile bytes: unit tests and scripts hold them.
        let few = count.percent() >= GOAL;
        let why = why.or(few.then_some("errors and refusals that its tests hold"));
        if why.is_none() {
            without.push(format!("{file}: {} of {}", count.reached, count.lines));
        }
        let why = why.unwrap_or("not looked into");
        let _ = writeln!(page, "| `{file}` | {} of {} | {why} |", count.lines - count.reached, count.lines);
    }
    (page, without)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:/w/node/src/a.rs\nDA:1,5\nDA:2,0\nend_of_record\nSF:/w/sim/src/b.rs\nDA:1,0\nend_of_record\n\
                        SF:/w/node/src/a.rs\nDA:2,1\nDA:3,0\nend_of_record\n";

    #[test]
    fn lines_are_counted_once_and_of_the_floors_alone() {
        let counts = counts(LCOV, Path::new("/w"));
        assert_eq!(counts, BTreeMap::from([("node/src/a.rs".to_string(), Count { lines: 3, reached: 2 })]));
    }

    #[test]
    fn a_file_that_is_hardly_reached_needs_a_reason() {
        let counts = counts(LCOV, Path::new("/w"));
        assert_eq!(page("1..2", &counts).1, ["node/src/a.rs: 2 of 3"]);
        let well = BTreeMap::from([("disk/src/b.rs".to_string(), Count { lines: 100, reached: 96 })]);
        let (page, without) = page("1..2", &well);
        assert!(
            without.is_empty()
                && page.contains("| all | 100 | 96 | 96.0 |")
                && page.contains("| `disk/src/b.rs` | 4 of 100 |"),
            "{page}"
        );
    }
}
