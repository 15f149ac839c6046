//! Everything that must pass before a change lands, in one go, on a machine with cargo and go.

use crate::cargo::{cargo, cargo_with};
use crate::{differ, killloop};
use anyhow::{Context, Result, bail};
use std::time::Instant;

/// Which checks, in which order.
const STEPS: [&str; 10] =
    ["format", "clippy", "doc", "test", "sim", "planted", "differ", "kill-loop", "clients", "bench"];

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run this check alone (may be repeated): format, clippy, doc, test, sim, planted, differ,
    /// kill-loop, clients, bench.
    #[arg(long, value_name = "CHECK")]
    only: Vec<String>,
    /// Seeds of the simulator.
    #[arg(long, default_value = "1..300")]
    seeds: String,
}

/// Runs the checks; the first that fails ends it.
///
/// # Errors
/// Names the check that failed.
pub async fn ci(args: &Args) -> Result<()> {
    for name in &args.only {
        if !STEPS.contains(&name.as_str()) {
            bail!("no check is called {name}; there are {}", STEPS.join(", "));
        }
    }
    let mut table = Vec::new();
    for step in STEPS {
        if !args.only.is_empty() && !args.only.iter().any(|name| name == step) {
            continue;
        }
        println!("== {step}");
        let since = Instant::now();
        let result = run(step, args).await;
        let took = since.elapsed().as_secs();
        table.push(format!("{step:<10} {:>5} s  {}", took, if result.is_ok() { "passed" } else { "FAILED" }));
        if result.is_err() {
            println!("{}", table.join("\n"));
            return result.with_context(|| format!("check {step}"));
        }
    }
    println!("\n{}", table.join("\n"));
    Ok(())
}

async fn run(step: &str, args: &Args) -> Result<()> {
    match step {
        "format" => cargo(&["fmt", "--all", "--check"]),
        "clippy" => cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        "doc" => doc(),
        "test" => test(),
        "sim" => sim(&["--seeds".into(), args.seeds.clone(), "--jobs".into(), "2".into()]),
        "planted" => sim(&["--planted".into(), "--jobs".into(), "2".into()]),
        "differ" => differ::differ(&parsed(&["differ", "--seeds", "1..5", "--steps", "1100"])).await,
        "kill-loop" => killloop::kill_loop(&parsed(&["kill-loop", "--rounds", "10"])).await,
        "clients" => crate::clients::clients(&crate::clients::Args::default()).await,
        _ => bench().await,
    }
}

/// Every link in a comment leads somewhere, in private items too: they are what a reader of the
/// tree opens.
fn doc() -> Result<()> {
    let words = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    cargo_with(&words, &[("RUSTDOCFLAGS", "-D warnings".as_ref())])
}

/// All tests, in one run: with the stock tools, a real etcd and our own release binary at hand,
/// those that compare with them do so too. `cargo test` alone skips these.
fn test() -> Result<()> {
    let etcd = crate::peers::program("etcd")?;
    let tools = etcd.parent().context("a folder of programs")?;
    let own = crate::peers::kvorum()?;
    let peers = [("KVORUM_TEST_ETCD", tools.as_os_str()), ("KVORUM_TEST_SERVER", own.as_os_str())];
    crate::suites::run(&peers)
}

/// A few rows for seconds: that they run without an error, not how fast.
async fn bench() -> Result<()> {
    let rows = "put-64,get-1000,list-pages,fan-out-100";
    crate::bench::bench(&parsed(&["bench", "--short", "--repeats", "1", "--members", "1", "--rows", rows])).await
}

/// The arguments a check has on the command line, with its defaults.
fn parsed<A: clap::Args>(words: &[&str]) -> A {
    #[derive(clap::Parser)]
    struct Line<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    <Line<A> as clap::Parser>::parse_from(words).args
}

/// Builds the simulator in its profile and runs it.
///
/// # Errors
/// If it does not build, or finds something.
pub fn sim(args: &[String]) -> Result<()> {
    let mut words = vec!["run", "--profile", "sim", "--package", "sim", "--bin", "sim", "--"];
    words.extend(args.iter().map(String::as_str));
    cargo(&words)
}
