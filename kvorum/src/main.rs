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
    Server(Words),
    /// The command line of a running cluster: all of etcdctl, and more (a link named `etcdctl` is
    /// etcdctl alone).
    #[command(disable_help_flag = true)]
    Ctl(Words),
    /// Work on data directories and snapshot files without a server (a link named `etcdutl` is
    /// etcdutl alone).
    #[command(disable_help_flag = true)]
    Utl(Words),
    /// Pass connections on to the members of a cluster (`etcd gateway` does the same).
    #[command(disable_help_flag = true)]
    Gateway(Words),
    /// Measure a server from outside.
    #[command(disable_help_flag = true)]
    Bench(Words),
    /// Run a cluster on loopback for trying things out.
    ///
    /// Starts the members as processes of their own, waits until they serve, prints their
    /// endpoints and who leads. A member that ends starts again by itself. Ctrl-C stops all; the
    /// same directory continues.
    Dev(DevWords),
    /// Print the version and the etcd version this program stands in for.
    Version,
}

#[derive(clap::Args)]
struct DevWords {
    #[command(subcommand)]
    what: Option<DevCommand>,
    /// How many members, 1 to 9 [default: as many as the directory has, or 3]
    #[arg(long)]
    members: Option<u16>,
    /// Where the members keep their data and logs.
    #[arg(long, default_value = server::dev::FOLDER, global = true)]
    data_dir: PathBuf,
    /// Client port of the first member [default: as before, or 2379]
    #[arg(long)]
    port: Option<u16>,
}

#[derive(Subcommand)]
enum DevCommand {
    /// Show the members of the cluster that runs in the directory; fails if nobody leads.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Stop the cluster that runs in the directory.
    Stop,
}

/// Words that the program itself reads; its own `--help` lists them.
#[derive(clap::Args)]
struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

fn main() {
    let raw: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let args: Vec<String> = raw.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let name = args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    std::process::exit(match name {
        Some("etcd") => etcd(&args[1..]),
        Some("etcdctl") => ctl::run("etcdctl", &raw[1..]),
        Some("etcdutl") => utl::run("etcdutl", &args[1..]),
        // These read their own words: they go past clap untouched.
        _ => match args.get(1).map(String::as_str) {
            Some("server") => server::process::serve(&args[2..]),
            Some("gateway") => proxy::run("kvorum gateway", &args[2..]),
            Some("ctl") => ctl::run("kvorum ctl", &raw[2..]),
            Some("utl") => utl::run("kvorum utl", &args[2..]),
            Some("bench") => bench::run(&args[2..]),
            _ => run(Cli::parse()),
        },
    });
}

/// As the stock program: a member, unless the first word names another program.
fn etcd(args: &[String]) -> i32 {
    match args.first().map(String::as_str) {
        Some("gateway") => proxy::run("etcd gateway", &args[1..]),
        Some("grpc-proxy") => {
            eprintln!("grpc-proxy is not built yet; `etcd gateway start` passes connections on");
            1
        }
        _ => server::process::serve(args),
    }
}

fn run(cli: Cli) -> i32 {
    match cli.command {
        Program::Server(own) => server::process::serve(&own.words),
        Program::Ctl(own) => ctl::run("kvorum ctl", &own.words.iter().map(Into::into).collect::<Vec<_>>()),
        Program::Utl(own) => utl::run("kvorum utl", &own.words),
        Program::Gateway(own) => proxy::run("kvorum gateway", &own.words),
        Program::Bench(own) => bench::run(&own.words),
        Program::Dev(words) => dev(words),
        Program::Version => {
            print!("{}", server::process::version_text());
            0
        }
    }
}

fn dev(words: DevWords) -> i32 {
    let called = std::env::args().next().unwrap_or_else(|| "kvorum".into());
    let wanted = Dev { members: words.members, data_dir: words.data_dir, port: words.port, called };
    let done = match words.what {
        None => server::dev::run(&wanted).map(|()| (String::new(), true)),
        Some(DevCommand::Status { json }) => server::dev::status(&wanted, json),
        Some(DevCommand::Stop) => server::dev::stop(&wanted).map(|text| (text, true)),
    };
    match done {
        Ok((text, good)) => {
            print!("{text}");
            i32::from(!good)
        }
        Err(error) => {
            eprintln!("kvorum dev: {error}");
            1
        }
    }
}
