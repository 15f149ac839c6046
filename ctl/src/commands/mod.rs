//! The table of commands: one row each, in files of their own.

pub mod admin;
mod browse;
mod compaction;
mod completion;
mod del;
mod elect;
mod get;
mod help_cmd;
mod lease;
mod lock;
mod man;
mod mirror;
mod put;
mod run;
mod txn;
mod version;
mod watch;
mod words;

pub use completion::complete;

use crate::{call::Call, connect, exit::Outcome, flags::Flag};

/// Heading of the commands that deal with keys.
pub const KEYS: &str = "Key-value commands";
/// Heading of the commands that look after the cluster.
pub const CLUSTER: &str = "Cluster maintenance commands";
/// Heading of locks and elections.
pub const CONCURRENCY: &str = "Concurrency commands";
/// Heading of users and roles.
pub const AUTH: &str = "Authentication commands";
/// Heading of the rest.
pub const UTILITY: &str = "Utility commands";
/// Heading of what only `kvorum ctl` has.
pub const PEOPLE: &str = "Commands for people";

/// The headings, in the order of the help.
pub const GROUPS: &[&str] = &[KEYS, CLUSTER, CONCURRENCY, AUTH, UTILITY, PEOPLE];

/// One command. Start from [`Command::NONE`].
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The word that is typed.
    pub name: &'static str,
    /// The line after `Usage:`, from the name on, without `[flags]`.
    pub usage: &'static str,
    /// No `[flags]` behind the usage.
    pub bare_usage: bool,
    /// Heading in the help of the program; empty for sub-commands.
    pub group: &'static str,
    /// One line.
    pub short: &'static str,
    /// A page, if one line is not enough.
    pub long: &'static str,
    /// Lines that can be copied; without them the help has no such section.
    pub examples: &'static str,
    /// Flags of the command alone.
    pub flags: &'static [Flag],
    /// Flags of the command and of everything below it.
    pub shared: &'static [Flag],
    /// Variables of the environment that the command reads itself.
    pub variables: &'static [&'static str],
    /// Tables of commands below it.
    pub subs: &'static [&'static [Command]],
    /// Its words may be any bytes: keys, values, files.
    pub raw: bool,
    /// What it does; none if it only has commands below it.
    pub run: Option<fn(&Call) -> Outcome>,
}

impl Command {
    /// Nothing yet.
    pub const NONE: Command = Command {
        name: "",
        usage: "",
        bare_usage: false,
        group: "",
        short: "",
        long: "",
        examples: "",
        flags: &[],
        shared: &[],
        variables: &[],
        subs: &[],
        raw: false,
        run: None,
    };

    /// The commands below it.
    pub fn all_subs(&self) -> impl Iterator<Item = &'static Command> + use<> {
        self.subs.iter().flat_map(|table| table.iter())
    }

    /// Whether there are commands below it.
    pub fn has_subs(&self) -> bool {
        self.all_subs().next().is_some()
    }

    /// The command below it with this name, or the only one whose name begins
    /// like this.
    pub fn sub(&self, word: &str) -> Option<&'static Command> {
        if let Some(sub) = self.all_subs().find(|c| c.name == word) {
            return Some(sub);
        }
        let mut near = self.all_subs().filter(|c| c.name.starts_with(word));
        let first = near.next()?;
        near.next().is_none().then_some(first)
    }
}

/// Keys, locks, elections and what has no cluster behind it.
const CORE: &[Command] = &[
    compaction::COMPACTION,
    del::DEL,
    get::GET,
    lease::LEASE,
    put::PUT,
    txn::TXN,
    watch::WATCH,
    elect::ELECT,
    lock::LOCK,
    completion::COMPLETION,
    help_cmd::HELP,
    mirror::MAKE_MIRROR,
    version::OPTIONS,
    version::VERSION,
];

/// What only `kvorum ctl` has, beside [`admin::PEOPLE_TABLE`].
const PEOPLE_TABLE: &[Command] = &[browse::BROWSE, man::MAN];

const ABOUT: &str = "The command line of etcd's third protocol.";

static ETCDCTL: Command =
    Command { name: crate::STOCK, short: ABOUT, shared: connect::GLOBAL, subs: &[CORE, admin::TABLE], ..Command::NONE };

static KVORUM_CTL: Command = Command {
    name: "kvorum ctl",
    short: ABOUT,
    shared: connect::GLOBAL_OURS,
    subs: &[CORE, admin::TABLE, admin::PEOPLE_TABLE, PEOPLE_TABLE],
    ..Command::NONE
};

/// The program with this name.
pub fn root(name: &str) -> &'static Command {
    if name == crate::STOCK { &ETCDCTL } else { &KVORUM_CTL }
}
