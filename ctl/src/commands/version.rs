//! `version` and `options`.

use super::headings::UTILITY;
use crate::{
    call::{Call, Command},
    exit::Outcome,
};

/// The release of etcd that this program stands in for.
pub const ETCD_VERSION: &str = "3.7.3";
const API_VERSION: &str = "3.7";

/// The row of the table.
pub const VERSION: Command = Command {
    name: "version",
    usage: "version",
    group: UTILITY,
    short: "Shows the version of this program",
    run: Some(version),
    ..Command::NONE
};

/// The row of the table.
pub const OPTIONS: Command = Command {
    name: "options",
    usage: "options",
    group: UTILITY,
    short: "Shows the flags that every command takes",
    run: Some(options),
    ..Command::NONE
};

fn version(call: &Call) -> Outcome {
    let ours = if call.is_ours() { format!("kvorum version: {}\n", env!("CARGO_PKG_VERSION")) } else { String::new() };
    crate::say(&format!("{ours}etcdctl version: {ETCD_VERSION}\nAPI version: {API_VERSION}\n"))
}

fn options(call: &Call) -> Outcome {
    crate::say(&format!("{}\n", cobra::help::options(call.path[0])))
}
