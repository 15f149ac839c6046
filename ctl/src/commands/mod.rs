//! The table of commands: one row each, in files of their own.

pub mod admin;
mod backup;
mod browse;
mod compaction;
mod completion;
mod del;
mod elect;
mod get;
pub mod headings;
mod help;
mod lease;
mod live;
mod lock;
mod man;
mod mirror;
mod put;
mod recover;
mod run;
mod txn;
mod version;
mod watch;
mod words;

pub use completion::complete;
pub use man::MANUAL;

use cobra::Pages;

use crate::{
    call::{Command, STOCK},
    connect,
};
use headings::{AUTH, CLUSTER, CONCURRENCY, KEYS, PEOPLE, UTILITY};

/// The headings, in the order of the help.
const GROUPS: &[&str] = &[KEYS, CLUSTER, CONCURRENCY, AUTH, UTILITY, PEOPLE];

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
    help::HELP,
    mirror::MAKE_MIRROR,
    version::OPTIONS,
    version::VERSION,
];

/// What only `kvorum ctl` has, beside [`admin::PEOPLE_TABLE`].
const PEOPLE_TABLE: &[Command] = &[backup::BACKUP, browse::BROWSE, man::MAN, recover::RECOVER];

const ABOUT: &str = "The command line of etcd's third protocol.";

static ETCDCTL: Command = Command {
    name: STOCK,
    short: ABOUT,
    shared: connect::GLOBAL,
    subs: &[CORE, admin::TABLE],
    pages: Pages::About(GROUPS),
    ..Command::NONE
};

static KVORUM_CTL: Command = Command {
    name: "kvorum ctl",
    short: ABOUT,
    shared: connect::GLOBAL_OURS,
    subs: &[CORE, admin::OURS_TABLE, admin::PEOPLE_TABLE, PEOPLE_TABLE],
    pages: Pages::About(GROUPS),
    ..Command::NONE
};

/// The program with this name.
pub fn root(name: &str) -> &'static Command {
    if name == STOCK { &ETCDCTL } else { &KVORUM_CTL }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_kvorum_ctl_has_what_the_stock_tool_has_not() {
        let stock: Vec<&str> = super::root(crate::STOCK).all_subs().map(|c| c.name).collect();
        let ours: Vec<&str> = super::root("kvorum ctl").all_subs().map(|c| c.name).collect();
        assert!(stock.iter().all(|name| ours.contains(name)));
        let mut once = ours.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), ours.len(), "a name is used twice");
    }
}
