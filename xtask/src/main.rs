//! What is done to the workspace rather than by it: for whoever changes it, and
//! for the machine that checks a change.
//!
//! `cargo xtask ci` runs every check in one go; the others are its parts: real peers are built
//! (`peers`), kvorum is held against them (`differ`) and killed under load (`killloop`), its disks
//! are damaged (`sweep`), its network and its machines fail (`faults`), and it is measured beside
//! them (`bench`).
//!
//! It refuses: unit tests (they stand beside the code), and anything that talks
//! to another machine, but for the package registries from which the peers are
//! built.

mod attack;
mod bench;
mod cargo;
mod changes;
mod ci;
mod clients;
mod coverage;
mod deploy;
mod differ;
mod faults;
mod howto;
mod inside;
mod killloop;
mod machines;
mod peers;
mod plain;
mod raw;
mod rng;
mod seeds;
mod server;
mod suites;
mod sweep;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Checks of the workspace.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build the real etcd, etcdctl and etcdutl into tests/peers/.cache/bin.
    Peers,
    /// Compare kvorum with the real etcd, answer by answer.
    Differ(differ::Args),
    /// Kill members of a cluster under load, and look for what is lost.
    KillLoop(killloop::Args),
    /// Change the members of a cluster under load and kills, and replace them by the one command.
    Changes(changes::Args),
    /// One fault after another on a live cluster, beside the real etcd: docs/faults.md.
    Faults(faults::Args),
    /// Damage a member's directory, or crash it behind each call of its disk, and judge from
    /// outside.
    Sweep(sweep::Args),
    /// Stock clients at work while the leader is killed; a transcript of the stock etcdctl.
    Clients(clients::Args),
    /// Run the simulator: `sim --seeds A..B`, `--seed N --trace`, `--planted`.
    #[command(disable_help_flag = true)]
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Lines of floors 0 to 2 that the simulator reaches, and why it does not reach the others:
    /// docs/coverage.md.
    Coverage(coverage::Args),
    /// Attack a member in every known way beside an honest client: a table.
    Attack(attack::Args),
    /// kvorum and the real etcd under the same load, in turns: a table, JSON and a page.
    Bench(bench::Args),
    /// Keeps one CPU from halting; `bench --awake` starts it.
    #[command(hide = true)]
    Spin {
        cpu: usize,
        /// The process whose end is also this one's.
        parent: u32,
    },
    /// Judge the files of deploy/ by the tools that they are for, and run what can be run.
    Deploy(deploy::Args),
    /// Run the code blocks of docs/howto as they are written, on machines of namespaces.
    Howto(howto::Args),
    /// Everything that must pass before a change lands.
    Ci(ci::Args),
}

fn main() -> ExitCode {
    if let Some(code) = coverage::as_compiler() {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let task = Xtask::parse().task;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs nothing but memory and a file descriptor");
    match runtime.block_on(run(task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!();
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(task: Task) -> Result<()> {
    match task {
        Task::Peers => peers::build(),
        Task::Differ(args) => differ::differ(&args).await,
        Task::KillLoop(args) => killloop::kill_loop(&args).await,
        Task::Changes(args) => changes::changes(&args).await,
        Task::Faults(args) => faults::faults(&args).await,
        Task::Sweep(args) => sweep::sweep(&args).await,
        Task::Clients(args) => clients::clients(&args).await,
        Task::Sim { args } => ci::sim(&args),
        Task::Coverage(args) => coverage::coverage(&args),
        Task::Attack(args) => attack::attack(&args).await,
        Task::Bench(args) => bench::bench(&args).await,
        Task::Spin { cpu, parent } => bench::awake::spin(cpu, parent),
        Task::Deploy(args) => deploy::deploy(&args).await,
        Task::Howto(args) => howto::howto(&args).await,
        Task::Ci(args) => ci::ci(&args).await,
    }
}
