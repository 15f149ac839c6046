//! `kvorum bench`: a load generator that measures a server from outside.
//!
//! For whoever sizes a cluster, hunts a regression or compares kvorum with etcd
//! (`cargo xtask bench` runs it against both). It speaks HTTP/2 by itself (`h2`, `hpack`) on
//! one epoll (`net`) so that a call costs it a few microseconds: on the machine that serves, a
//! heavier client would be what is measured. `drive` keeps closed and open loops, `rows` says
//! what is asked, `cost` what it cost the servers.
//!
//! It refuses: TLS, users and passwords, other machines' processes, and any rate without its
//! errors: they are counted, printed, and make the exit code 1.

mod args;
mod call;
mod cost;
mod drive;
mod failure;
#[cfg(test)]
mod fake;
mod h2;
mod hpack;
mod message;
mod net;
mod report;
mod rows;
mod run;
mod stop;

use crate::failure::Failure;
use args::{Cli, Row};
use clap::{CommandFactory, Parser};
use rows::list::Way;
use rows::watch::FanOut;

/// Runs the program with the words after its name; its exit code: 0, 1 if a call failed or the
/// run could not be made, 2 for a command line that makes no sense.
pub fn run(words: &[String]) -> i32 {
    let cli = match Cli::try_parse_from(std::iter::once("kvorum bench").chain(words.iter().map(String::as_str))) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output; a broken pipe there is nobody's concern.
            let _ = error.print();
            return error.exit_code();
        }
    };
    match row(&cli.row) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            eprintln!("kvorum bench: {error}");
            1
        }
    }
}

/// Its commands and flags.
pub fn command() -> clap::Command {
    Cli::command()
}

fn fan_out(fan: args::Fan, slow: u64) -> FanOut {
    FanOut { watchers: fan.watchers, conns: fan.watch_conns, slow }
}

fn row(row: &Row) -> Result<bool, Failure> {
    match row {
        Row::Put(load) => rows::unary::put(load),
        Row::Get { load, serializable } => rows::unary::get(load, *serializable),
        Row::Swap(load) => rows::unary::swap(load),
        Row::Fill(load) => rows::unary::fill(load),
        Row::List { load, page, stream, count, total } => {
            let way = match page {
                Some(limit) => Way::Pages(*limit),
                None if *stream => Way::Stream,
                None if *count => Way::Count,
                None => Way::Whole,
            };
            rows::list::list(load, way, *total)
        }
        Row::Watch { load, fan, slow } => rows::watch::fan_out(load, fan_out(*fan, *slow)),
        Row::Resume { load, fan, history } => rows::watch::resume(load, fan_out(*fan, 0), *history),
        Row::Rest { load, fan } => rows::watch::resting(load, fan_out(*fan, 0)),
        Row::Expire { load, leases, ttl } => rows::lease::expire(load, *leases, *ttl),
        Row::KeepAlive(load) => rows::lease::keep_alive(load),
        Row::Compact { load, history } => rows::compact::compact(load, *history),
        Row::Pods { load, fan } => rows::pods::pods(load, fan_out(*fan, 0)),
        Row::Soak { load, soak } => rows::soak::soak(load, soak),
        Row::Idle(target) => rows::rest::idle(target),
        Row::Bound(target) => rows::bound::bound(target),
    }
}
