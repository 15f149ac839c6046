//! All test programs of the workspace, two at a time.
//!
//! `cargo test` runs one program after the other and ends with the first that fails. Most of ours
//! wait for servers much of their time, and whoever looks at a failed run wants every failure.

use crate::cargo::{cargo_with, command};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

const LANES: usize = 2;

/// The longest, which begin first.
const LONG: [&str; 9] = ["seeds", "stock", "cluster", "membership", "scripts", "sim", "forms", "secure", "space"];

/// Programs that judge times or memory: nothing runs beside them.
const ALONE: [&str; 4] = ["hostile", "hostile_clients", "throttled", "failover"];

/// A test program, as cargo names it.
struct Program {
    name: String,
    /// The crate's folder: its tests run there.
    folder: PathBuf,
    path: PathBuf,
}

/// How one ended.
struct Ended {
    name: String,
    seconds: f64,
    failed: bool,
}

/// Builds and runs every test with these variables set.
///
/// # Errors
/// Names the programs that failed, after all have run; what they printed stands before it.
pub fn run(variables: &[(&str, &OsStr)]) -> Result<()> {
    let since = Instant::now();
    let (alone, mut beside): (Vec<_>, Vec<_>) =
        build(variables)?.into_iter().partition(|program| ALONE.contains(&program.name.as_str()));
    println!("built {} test programs in {} s", alone.len() + beside.len(), since.elapsed().as_secs());
    let rank = |program: &Program| LONG.iter().position(|name| *name == program.name).unwrap_or(LONG.len());
    // The last is taken first.
    beside.sort_by_key(|program| std::cmp::Reverse(rank(program)));
    let mut ended = lanes(beside, LANES, variables);
    ended.extend(lanes(alone, 1, variables));
    ended.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    println!("the longest:");
    for program in ended.iter().take(10) {
        println!("{:>8.1} s  {}", program.seconds, program.name);
    }
    let documented = cargo_with(&["test", "--workspace", "--doc"], variables);
    let failed: Vec<_> = ended.iter().filter(|program| program.failed).map(|program| &program.name[..]).collect();
    if !failed.is_empty() {
        bail!("test programs that failed: {}", failed.join(", "));
    }
    documented
}

/// Everything but the tests in documentation, which only cargo can run.
fn build(variables: &[(&str, &OsStr)]) -> Result<Vec<Program>> {
    let words = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let output = command(&words, variables).stderr(Stdio::inherit()).output().context("cargo does not start")?;
    if !output.status.success() {
        bail!("the tests do not build: {}", output.status);
    }
    let mut programs = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")) {
        let message: serde_json::Value = serde_json::from_slice(line).context("a message of cargo")?;
        if message["profile"]["test"] != true {
            continue;
        }
        if let (Some(path), Some(name), Some(manifest)) =
            (message["executable"].as_str(), message["target"]["name"].as_str(), message["manifest_path"].as_str())
        {
            let folder = PathBuf::from(manifest).parent().context("a manifest in a folder")?.to_owned();
            programs.push(Program { name: name.into(), folder, path: path.into() });
        }
    }
    if programs.is_empty() {
        bail!("cargo names no test program");
    }
    Ok(programs)
}

/// Runs them all, `count` at a time, from the last on.
fn lanes(programs: Vec<Program>, count: usize, variables: &[(&str, &OsStr)]) -> Vec<Ended> {
    let waiting = Mutex::new(programs);
    let ended = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("no lane panics with it").pop();
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let one = one(&program, variables);
                    ended.lock().expect("no lane panics with it").push(one);
                }
            });
        }
    });
    ended.into_inner().expect("no lane panics with it")
}

/// Runs one. What it printed is shown if it failed.
fn one(program: &Program, variables: &[(&str, &OsStr)]) -> Ended {
    let label = format!("{}: {}", program.folder.file_name().unwrap_or_default().display(), program.name);
    let since = Instant::now();
    let mut command = Command::new(&program.path);
    command.current_dir(&program.folder).envs(variables.iter().copied()).stdin(Stdio::null());
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    let output = command.output();
    let seconds = since.elapsed().as_secs_f64();
    let failed = !output.as_ref().is_ok_and(|output| output.status.success());
    let mut said = format!("{} {label} {seconds:.1} s", if failed { "FAILED" } else { "passed" });
    match output {
        Ok(output) if failed => {
            said += &format!(" ({})\n", output.status);
            said += &String::from_utf8_lossy(&output.stdout);
            said += &String::from_utf8_lossy(&output.stderr);
        }
        Ok(_) => {}
        Err(error) => said += &format!(": {error}"),
    }
    println!("{said}");
    Ended { name: label, seconds, failed }
}
