//! `kvorum utl`, and `etcdutl` when the binary has that name: work on files without a server.
//!
//! For whoever restores, inspects or checks: snapshots and data directories of etcd (bbolt files),
//! and data directories of kvorum whose member is stopped. As `etcdutl`, and whenever no terminal
//! listens, it prints the stock tool's lines; under its own name, to people, it shows progress and
//! says what to do next.
//!
//! It refuses a file or directory that a running process has open, to change a directory of
//! kvorum (a new one apart), and to believe a file: what is damaged is named, not guessed around.
//!
//! | file | what it does |
//! |---|---|
//! | `call`, `commands` | one run of one command; the table of commands, which the crate `cobra` reads |
//! | `print`, `progress`, `hints` | output forms, log lines; what people get |
//! | `etcd`, `wal`, `initial_cluster` | what is where in an etcd's files; who the members are |
//! | `directory`, `kvorum` | data directories: a new one, one that stays as it is |
//! | `history` | what of the keys' history is hashed |
//! | `restore`, `status`, `hashkv`, `bbolt`, `defrag`, `migrate`, `verify`, `version` | one command each |
//! | `survey` | what a directory has that a cluster could go on with, for `kvorum ctl recover` |
//! | `pages` | `help`, `man`, `completion`: what is made from the table |

mod bbolt;
mod call;
mod commands;
mod cut_tail;
mod defrag;
mod directory;
mod etcd;
mod hashkv;
mod hints;
mod history;
mod initial_cluster;
mod kvorum;
mod migrate;
mod pages;
mod print;
mod progress;
mod restore;
mod rewrite;
mod status;
pub mod survey;
mod verify;
mod version;
mod wal;

use std::io::IsTerminal;

pub use pages::MANUAL;

/// The commands of `kvorum utl`, without what carries them out.
pub fn table() -> &'static cobra::Command<()> {
    commands::root("kvorum utl").bare()
}

/// Runs the program called `name` (`etcdutl` or `kvorum utl`) with the words after its name;
/// the exit code is etcdutl's.
pub fn run(name: &str, args: &[String]) -> i32 {
    let root = commands::root(name);
    if let Some(word @ ("__complete" | "__completeNoDesc")) = args.first().map(String::as_str) {
        pages::complete(root, &args[1..], word == "__complete");
        return 0;
    }
    let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    call::main(root, args, terminal)
}
