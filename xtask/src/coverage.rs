//! How many lines of floors 0 to 2 the simulator reaches, measured; and what it does not reach,
//! with the reason. Writes `docs/coverage.md`.
//!
//! The compiler counts (`-Cinstrument-coverage`), LLVM's own tools read the counts. They are looked
//! for in the folder that `LLVM_TOOLS` names, in the toolchain (`rustup component add llvm-tools`),
//! and in `PATH` under the number of the compiler's LLVM. Older ones cannot read what the compiler
//! wrote.

mod lines;
mod page;
mod reasons;

use crate::peers::workspace;
use anyhow::{Context, Result, bail, ensure};
use lines::FLOORS;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/coverage.md";
/// Set where cargo starts this program as the compiler.
const COMPILER: &str = "XTASK_COVERAGE_COMPILER";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seeds that are run.
    #[arg(long, default_value = "1..300")]
    seeds: String,
    /// Processes that run them.
    #[arg(long, default_value = "2")]
    jobs: u64,
    /// Print what is not reached, line by line, as `file:line: text`.
    #[arg(long)]
    lines: bool,
}

/// Builds the simulator with counters, runs the seeds, and writes the page.
///
/// # Errors
/// A tool is missing, a seed fails, too few lines are reached, or a reason is no longer one.
pub fn coverage(args: &Args) -> Result<()> {
    let (profdata, cov) = (tool("llvm-profdata")?, tool("llvm-cov")?);
    let folder = workspace().join("target/coverage");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let program = build(&folder)?;
    let counts = run_seeds(&program, &folder, &args.seeds, args.jobs)?;
    let merged = folder.join("sim.profdata");
    run(Command::new(profdata).args(["merge", "--sparse", "-o"]).arg(&merged).args(&counts))?;
    let mut export = Command::new(cov);
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged).arg(&program);
    let lcov = export.output().context("llvm-cov does not start")?;
    ensure!(lcov.status.success(), "llvm-cov: {}", String::from_utf8_lossy(&lcov.stderr));
    let files = lines::files(&String::from_utf8_lossy(&lcov.stdout), &workspace(), &FLOORS)?;
    ensure!(!files.is_empty(), "no line of {FLOORS:?} was counted");
    if args.lines {
        files.iter().for_each(lines::File::print_missed);
    }
    let page = page::page(&args.seeds, &files, reasons::REASONS);
    std::fs::write(workspace().join(PAGE), page.text).context(PAGE)?;
    ensure!(page.wrong.is_empty(), "{PAGE} was written, but:\n{}", page.wrong.join("\n"));
    Ok(())
}

/// The simulator with counters in its own crate and those of the floors, not in what they stand on.
fn build(folder: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = ["build", "--profile", "sim", "--package", "sim", "--bin", "sim", "--target-dir"];
    run(Command::new(cargo)
        .args(build)
        .arg(folder)
        .current_dir(workspace())
        .env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?)
        .env(COMPILER, "1"))?;
    Ok(folder.join("sim/sim"))
}

/// Cargo starts this program in the place of the compiler. None: it did not; else the exit code.
pub fn as_compiler() -> Option<i32> {
    std::env::var_os(COMPILER)?;
    let mut words = std::env::args_os().skip(1);
    let mut rustc = Command::new(words.next()?);
    rustc.args(words);
    // Generic code of the floors stands in the simulator's object code.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    if package == "sim" || FLOORS.contains(&package.as_str()) {
        rustc.arg("-Cinstrument-coverage");
    }
    Some(rustc.status().ok().and_then(|status| status.code()).unwrap_or(1))
}

/// Each job is a process with counters of its own: threads would wait for each other's.
fn run_seeds(program: &Path, folder: &Path, seeds: &str, jobs: u64) -> Result<Vec<PathBuf>> {
    let mut running = Vec::new();
    for (nth, (first, last)) in shares(seeds, jobs)?.into_iter().enumerate() {
        let counts = folder.join(format!("sim-{nth}.profraw"));
        let mut command = Command::new(program);
        command.args(["--seeds", &format!("{first}..{last}")]).env("LLVM_PROFILE_FILE", &counts);
        let child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        running.push((child, counts));
    }
    let ended: Vec<_> = running.into_iter().map(|(mut child, counts)| (child.wait(), counts)).collect();
    ended
        .into_iter()
        .map(|(status, counts)| {
            ensure!(status?.success(), "a seed fails: first mend that, or run other seeds");
            Ok(counts)
        })
        .collect()
}

/// `A..B`, both included, in so many parts.
fn shares(seeds: &str, jobs: u64) -> Result<Vec<(u64, u64)>> {
    let both = seeds.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (first, last): (u64, u64) = both.with_context(|| format!("--seeds: {seeds} is not A..B"))?;
    ensure!(first <= last && last < u64::MAX, "--seeds: there is no seed in {seeds}");
    let count = last - first + 1;
    let jobs = jobs.clamp(1, count);
    let begin = |nth: u64| first + (u128::from(count) * u128::from(nth) / u128::from(jobs)) as u64;
    Ok((0..jobs).map(|nth| (begin(nth), begin(nth + 1) - 1)).collect())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} does not start"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// One of LLVM's programs, of the version that the compiler has.
fn tool(name: &str) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("LLVM_TOOLS") {
        let path = PathBuf::from(folder).join(name);
        ensure!(path.exists(), "{} is not there; LLVM_TOOLS names the folder of {name}", path.display());
        return Ok(path);
    }
    let toolchain = PathBuf::from(rustc(&["--print", "target-libdir"])?.trim()).with_file_name("bin").join(name);
    if toolchain.exists() {
        return Ok(toolchain);
    }
    let version = rustc(&["-vV"])?;
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: ")).unwrap_or("unknown");
    let numbered = format!("{name}-{}", llvm.split('.').next().unwrap_or_default());
    let starts = Command::new(&numbered).arg("--version").output().is_ok_and(|output| output.status.success());
    if !starts {
        bail!(
            "{name} for LLVM {llvm} is neither {} nor {numbered} in PATH: run `rustup component add llvm-tools`, \
             or name its folder in LLVM_TOOLS",
            toolchain.display()
        );
    }
    Ok(numbered.into())
}

fn rustc(words: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(words).output().context("rustc does not start")?;
    ensure!(output.status.success(), "rustc {}: {}", words.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_shared_out() {
        assert_eq!(shares("1..300", 2).unwrap(), [(1, 150), (151, 300)]);
        assert_eq!(shares("7..9", 8).unwrap(), [(7, 7), (8, 8), (9, 9)]);
        assert_eq!(shares("5..5", 0).unwrap(), [(5, 5)]);
        assert!(shares("9..7", 2).is_err() && shares("seven", 2).is_err());
    }
}
