//! The words that the binary reads itself: which program, and all of `kvorum dev`.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// A drop-in replacement of etcd v3: a replicated, durable key-value store.
#[derive(Parser)]
#[command(name = "kvorum", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Program,
}

#[derive(Subcommand)]
pub(crate) enum Program {
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
    /// Stand before the members, or before other servers, as HAProxy does.
    #[command(disable_help_flag = true)]
    Proxy(Words),
    /// Measure a server from outside.
    #[command(disable_help_flag = true)]
    Bench(Words),
    /// Run a cluster on loopback for trying things out.
    ///
    /// Starts the members as processes of their own, waits until they serve, prints their
    /// endpoints and who leads. A member that ends starts again by itself. Ctrl-C stops all; the
    /// same directory continues.
    Dev(DevWords),
    /// Write a completion script for a shell: all programs, their commands, flags and values.
    #[command(after_help = COMPLETION_HELP)]
    Completion {
        /// The shell.
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(cobra::SHELLS))]
        shell: String,
    },
    /// Write the manual page of a program or command; with --out all pages.
    #[command(after_help = MAN_HELP)]
    Man {
        /// Write the page, and those of every command below it, to this directory.
        #[arg(long)]
        out: Option<PathBuf>,
        /// The command, such as `ctl lease grant`; none for the binary's own page.
        words: Vec<String>,
    },
    /// Print the version and the etcd version this program stands in for.
    Version,
}

#[derive(clap::Args)]
pub(crate) struct DevWords {
    #[command(subcommand)]
    pub(crate) what: Option<DevCommand>,
    /// How many members, 1 to 9 [default: as many as the directory has, or 3]
    #[arg(long)]
    pub(crate) members: Option<u16>,
    /// Where the members keep their data and logs.
    #[arg(long, default_value = server::dev::FOLDER, global = true)]
    pub(crate) data_dir: PathBuf,
    /// Client port of the first member [default: as before, or 2379]
    #[arg(long)]
    pub(crate) port: Option<u16>,
}

#[derive(Subcommand)]
pub(crate) enum DevCommand {
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
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

const COMPLETION_HELP: &str = "\
For this session:  source <(kvorum completion bash)
For all sessions:
  kvorum completion bash > /etc/bash_completion.d/kvorum
  kvorum completion zsh > \"${fpath[1]}/_kvorum\"
  kvorum completion fish > ~/.config/fish/completions/kvorum.fish";

const MAN_HELP: &str = "\
To read one:           kvorum man ctl lease grant | man -l -
For all of a machine:  kvorum man --out /usr/local/share/man/man1";
