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
//! | `cobra`, `commands` | the command line as the stock tool reads it; the table of commands |
//! | `complete` | what can follow the words so far, for the shells' scripts |
//! | `print`, `progress`, `hints` | output forms, log lines; what people get |
//! | `etcd`, `wal`, `initial_cluster` | what is where in an etcd's files; who the members are |
//! | `directory`, `kvorum` | data directories: a new one, one that stays as it is |
//! | `restore`, `status`, `hashkv`, `bbolt`, `defrag`, `migrate`, `verify`, `completion`, `man`, `version` | one command each |

mod bbolt;
mod cobra;
mod commands;
mod complete;
mod completion;
mod defrag;
mod directory;
mod etcd;
mod hashkv;
mod hints;
mod initial_cluster;
mod kvorum;
mod man;
mod migrate;
mod print;
mod progress;
mod restore;
mod rewrite;
mod status;
mod verify;
mod version;
mod wal;

use std::io::IsTerminal;

/// Runs the program called `name` (`etcdutl` or `kvorum utl`) with the words after its name;
/// the exit code is etcdutl's.
pub fn run(name: &str, args: &[String]) -> i32 {
    if let Some(word @ ("__complete" | "__completeNoDesc")) = args.first().map(String::as_str)
        && name != "etcdutl"
    {
        print!("{}", complete::answer(&commands::ROOT, &args[1..], word == "__complete"));
        return 0;
    }
    let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    cobra::main(name, &commands::ROOT, args, terminal)
}
