//! The one binary: which program it is, by the name it was started as or by its first word.
//! No logic of its own.

use clap::{Parser, Subcommand};
use server::dev::Dev;
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A drop-in replacement of etcd v3: a replicated, durable key-value store.
#[derive(Parser)]
#[command(name = "kvorum", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Run one member, with etcd's flags and ETCD_* variables (a link named `etcd` does the same).
    #[command(disable_help_flag = true)]
    Server {
        /// etcd's flags; `kvorum server --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Run a cluster on loopback for trying things out.
    ///
    /// Starts the members as processes of their own, waits until they serve, prints their
    /// endpoints and who leads. Ctrl-C stops all; the same directory continues.
    Dev {
        /// How many members.
        #[arg(long, default_value_t = 3)]
        members: u16,
        /// Where the members keep their data and logs.
        #[arg(long, default_value = "./kvorum-dev")]
        data_dir: PathBuf,
        /// Client port of the first member, if it is free.
        #[arg(long, default_value_t = 2379)]
        port: u16,
    },
    /// Print the version and the etcd version this program stands in for.
    Version,
}

fn main() {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let name = args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    std::process::exit(match name {
        Some("etcd") => server::process::serve(&args[1..]),
        Some(tool @ ("etcdctl" | "etcdutl")) => {
            eprintln!("{tool}: not built yet; use the stock {tool} of etcd 3.7, it works with kvorum");
            1
        }
        // etcd's flags are not clap's: they go past it untouched.
        _ if args.get(1).is_some_and(|arg| arg == "server") => server::process::serve(&args[2..]),
        _ => run(Cli::parse()),
    });
}

fn run(cli: Cli) -> i32 {
    match cli.command {
        Program::Server { flags } => server::process::serve(&flags),
        Program::Dev { members, data_dir, port } => match server::dev::run(&Dev { members, data_dir, port }) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("kvorum dev: {error}");
                1
            }
        },
        Program::Version => {
            print!("{}", server::process::version_text());
            0
        }
    }
}
