//! The table of commands: names, flags, defaults and help as the stock tool's.

use crate::call::{Command, STOCK};
use crate::{bbolt, cut_tail, defrag, hashkv, migrate, pages, restore, status, verify, version};
use cobra::Flag;

/// The program with this name.
pub fn root(name: &str) -> &'static Command {
    if name == STOCK { &ETCDUTL } else { &KVORUM_UTL }
}

static ETCDUTL: Command = Command {
    name: STOCK,
    shared: GLOBAL,
    subs: &[&[Command { hidden: true, ..BBOLT }, COMPLETION, DEFRAG, HASHKV, HELP, MIGRATE, STOCK_SNAPSHOT, VERSION]],
    ..Command::NONE
};

static KVORUM_UTL: Command = Command {
    name: "kvorum utl",
    short: "Works on snapshots and data directories without a server",
    shared: GLOBAL,
    subs: &[&[BBOLT, COMPLETION, CUT_TAIL, DEFRAG, HASHKV, HELP, MAN, MIGRATE, SNAPSHOT, VERIFY, VERSION]],
    ..Command::NONE
};

/// Flags of every command.
const GLOBAL: &[Flag] = &[
    Flag::duration("timeout", "10s", "time to wait to obtain a file lock on db file, 0 to block indefinitely"),
    Flag::text("write-out", "simple", "set the output format (fields, json, protobuf, simple, table)")
        .short('w')
        .choices(&["fields", "json", "protobuf", "simple", "table"]),
];

const BBOLT: Command = Command {
    name: "bbolt",
    short: "Looks at bbolt files",
    subs: &[&[Command {
        name: "check",
        usage: "check <filename> [flags]",
        short: "Checks the pages of a bbolt file: OK, or what is wrong",
        words: Some(1),
        run: Some(bbolt::check),
        ..Command::NONE
    }]],
    ..Command::NONE
};

const COMPLETION: Command = Command {
    name: "completion",
    usage: "completion [bash|zsh|fish|powershell]",
    short: "Generate completion script",
    words: Some(1),
    bare_usage: true,
    choices: cobra::SHELLS,
    run: Some(pages::completion),
    ..Command::NONE
};

const CUT_TAIL: Command = Command {
    name: "cut-tail",
    usage: "cut-tail --data-dir {data dir} [flags]",
    short: "Cuts the end of the log on which a stopped lone member does not start",
    flags: &[
        Flag::text("data-dir", "", "Required. The data directory of the member.").required(),
        Flag::switch("yes", "Cut it. Without this flag what would be cut is shown, and nothing is changed."),
    ],
    run: Some(cut_tail::run),
    ..Command::NONE
};

const DEFRAG: Command = Command {
    name: "defrag",
    usage: "defrag [flags]",
    short: "Defragments the storage of the etcd",
    flags: &[Flag::text("data-dir", "", "Required. Defragments a data directory not in use by etcd.").required()],
    run: Some(defrag::run),
    ..Command::NONE
};

const HASHKV: Command = Command {
    name: "hashkv",
    usage: "hashkv <filename> [flags]",
    short: "Prints the KV history hash of a given file",
    flags: &[Flag::int("rev", "0", "maximum revision to hash (default: latest revision)")],
    words: Some(1),
    run: Some(hashkv::run),
    ..Command::NONE
};

const HELP: Command = Command {
    name: "help",
    usage: "help [command] [flags]",
    short: "Help about any command",
    topics: true,
    run: Some(pages::help),
    ..Command::NONE
};

const MAN: Command = Command {
    name: "man",
    usage: "man [command] [flags]",
    short: "Writes the manual page of a command, or all pages to a directory",
    flags: &[Flag::text("out", "", "directory for one file for each page")],
    topics: true,
    run: Some(pages::manual),
    ..Command::NONE
};

const MIGRATE: Command = Command {
    name: "migrate",
    usage: "migrate [flags]",
    short: "Migrates schema of etcd data dir files to make them compatible with different etcd version",
    flags: &[
        Flag::text("data-dir", "", "Path to the etcd data dir").required(),
        Flag::switch("force", "Ignore migration failure and forcefully override storage version. Not recommended."),
        Flag::text(
            "target-version",
            "",
            "Target etcd version to migrate contents of data dir. Minimal value 3.5. Format \"X.Y\" for example 3.6.",
        )
        .required(),
    ],
    run: Some(migrate::run),
    ..Command::NONE
};

/// Where those stand in them that the stock tool has not.
const OURS: [usize; 2] = [0, 3];

const RESTORE_FLAGS: [Flag; 12] = [
    Flag::int("at", "0", "Restore the keys as they were at this revision (default: the newest)"),
    Flag::uint("bump-revision", "0", "How much to increase the latest revision after restore"),
    Flag::text("data-dir", "", "Path to the output data directory"),
    Flag::switch("drop-auth", "Restore a snapshot without its users and roles: open to everybody"),
    Flag::text(
        "initial-advertise-peer-urls",
        "http://localhost:2380",
        "List of this member's peer URLs to advertise to the rest of the cluster",
    ),
    Flag::text(
        "initial-cluster",
        "default=http://localhost:2380",
        "Initial cluster configuration for restore bootstrap",
    ),
    Flag::text(
        "initial-cluster-token",
        "etcd-cluster",
        "Initial cluster token for the etcd cluster during restore bootstrap",
    ),
    Flag::uint(
        "initial-memory-map-size",
        "10737418240",
        "Initial memory map size of the database in bytes. It uses the default value if not defined or \
                     defined to 0",
    ),
    Flag::switch(
        "mark-compacted",
        "Mark the latest revision after restore as the point of scheduled compaction (required if \
                     --bump-revision > 0, disallowed otherwise)",
    ),
    Flag::text("name", "default", "Human-readable name for this member"),
    Flag::switch("skip-hash-check", "Ignore snapshot integrity hash value (required if copied from data directory)"),
    Flag::text("wal-dir", "", "Path to the WAL directory (use --data-dir if none given)"),
];

const RESTORE: Command = Command {
    name: "restore",
    usage: "restore <filename> --data-dir {output dir} [options] [flags]",
    short: "Restores an etcd member snapshot to an etcd directory",
    flags: &RESTORE_FLAGS,
    run: Some(restore::run),
    ..Command::NONE
};

const STATUS: Command = Command {
    name: "status",
    usage: "status <filename> [flags]",
    short: "Gets backend snapshot status of a given file",
    run: Some(status::run),
    ..Command::NONE
};

const SNAPSHOT: Command =
    Command { name: "snapshot", short: "Manages etcd node snapshots", subs: &[&[RESTORE, STATUS]], ..Command::NONE };

/// As it is under the stock name: what that tool has not is taken and not shown.
const STOCK_SNAPSHOT: Command =
    Command { subs: &[&[Command { flags: &STOCK_RESTORE_FLAGS, ..RESTORE }, STATUS]], ..SNAPSHOT };

const STOCK_RESTORE_FLAGS: [Flag; 12] = {
    let mut flags = RESTORE_FLAGS;
    flags[OURS[0]] = flags[OURS[0]].hidden();
    flags[OURS[1]] = flags[OURS[1]].hidden();
    flags
};

const VERIFY: Command = Command {
    name: "verify",
    usage: "verify <data-dir> [flags]",
    short: "Reads every file of a stopped member's data directory and names what is damaged",
    words: Some(1),
    run: Some(verify::run),
    ..Command::NONE
};

const VERSION: Command = Command {
    name: "version",
    usage: "version [flags]",
    short: "Prints the version of etcdutl",
    run: Some(version::run),
    ..Command::NONE
};
