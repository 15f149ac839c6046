//! The table of commands: names, flags, defaults and help as the stock tool's.

use crate::cobra::{Command, Flag, Kind, Seen, Words};
use crate::{bbolt, cobra, completion, defrag, hashkv, man, migrate, restore, status, verify, version};

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind, default, required: false, ours: false, help }
}

const fn required(flag: Flag) -> Flag {
    Flag { required: true, ..flag }
}

const fn ours(flag: Flag) -> Flag {
    Flag { ours: true, ..flag }
}

const PARENT: Command = Command {
    name: "",
    usage: "",
    short: "",
    flags: &[],
    words: Words::Any,
    seen: Seen::Always,
    run: None,
    children: &[],
};

pub const ROOT: Command = Command {
    name: "etcdutl",
    children: &[BBOLT, COMPLETION, DEFRAG, HASHKV, HELP, MAN, MIGRATE, SNAPSHOT, VERIFY, VERSION],
    ..PARENT
};

const BBOLT: Command = Command {
    name: "bbolt",
    short: "Looks at bbolt files",
    seen: Seen::Ours,
    children: &[Command {
        name: "check",
        usage: "check <filename> [flags]",
        short: "Checks the pages of a bbolt file: OK, or what is wrong",
        words: Words::Exactly(1),
        run: Some(bbolt::check),
        ..PARENT
    }],
    ..PARENT
};

const COMPLETION: Command = Command {
    name: "completion",
    usage: "completion [bash|zsh|fish|powershell]",
    short: "Generate completion script",
    words: Words::Exactly(1),
    run: Some(completion::run),
    ..PARENT
};

const DEFRAG: Command = Command {
    name: "defrag",
    usage: "defrag [flags]",
    short: "Defragments the storage of the etcd",
    flags: &[required(flag("data-dir", Kind::Text, "", "Required. Defragments a data directory not in use by etcd."))],
    run: Some(defrag::run),
    ..PARENT
};

const HASHKV: Command = Command {
    name: "hashkv",
    usage: "hashkv <filename> [flags]",
    short: "Prints the KV history hash of a given file",
    flags: &[flag("rev", Kind::Int, "0", "maximum revision to hash (default: latest revision)")],
    words: Words::Exactly(1),
    run: Some(hashkv::run),
    ..PARENT
};

const HELP: Command = Command {
    name: "help",
    usage: "help [command] [flags]",
    short: "Help about any command",
    run: Some(cobra::help),
    ..PARENT
};

const MAN: Command = Command {
    name: "man",
    usage: "man [command] [flags]",
    short: "Writes the manual page of a command, or all pages to a directory",
    flags: &[flag("out", Kind::Text, "", "directory for one file for each page")],
    seen: Seen::OursAlone,
    run: Some(man::run),
    ..PARENT
};

const MIGRATE: Command = Command {
    name: "migrate",
    usage: "migrate [flags]",
    short: "Migrates schema of etcd data dir files to make them compatible with different etcd version",
    flags: &[
        required(flag("data-dir", Kind::Text, "", "Path to the etcd data dir")),
        flag(
            "force",
            Kind::Bool,
            "false",
            "Ignore migration failure and forcefully override storage version. Not recommended.",
        ),
        required(flag(
            "target-version",
            Kind::Text,
            "",
            "Target etcd version to migrate contents of data dir. Minimal value 3.5. Format \"X.Y\" for example 3.6.",
        )),
    ],
    run: Some(migrate::run),
    ..PARENT
};

const SNAPSHOT: Command = Command {
    name: "snapshot",
    short: "Manages etcd node snapshots",
    children: &[
        Command {
            name: "restore",
            usage: "restore <filename> --data-dir {output dir} [options] [flags]",
            short: "Restores an etcd member snapshot to an etcd directory",
            flags: &[
                flag("bump-revision", Kind::Uint, "0", "How much to increase the latest revision after restore"),
                flag("data-dir", Kind::Text, "", "Path to the output data directory"),
                ours(flag(
                    "drop-auth",
                    Kind::Bool,
                    "false",
                    "Restore a snapshot with authentication enabled, without its users and roles: open to everybody",
                )),
                flag(
                    "initial-advertise-peer-urls",
                    Kind::Text,
                    "http://localhost:2380",
                    "List of this member's peer URLs to advertise to the rest of the cluster",
                ),
                flag(
                    "initial-cluster",
                    Kind::Text,
                    "default=http://localhost:2380",
                    "Initial cluster configuration for restore bootstrap",
                ),
                flag(
                    "initial-cluster-token",
                    Kind::Text,
                    "etcd-cluster",
                    "Initial cluster token for the etcd cluster during restore bootstrap",
                ),
                flag(
                    "initial-memory-map-size",
                    Kind::Uint,
                    "10737418240",
                    "Initial memory map size of the database in bytes. It uses the default value if not defined or \
                     defined to 0",
                ),
                flag(
                    "mark-compacted",
                    Kind::Bool,
                    "false",
                    "Mark the latest revision after restore as the point of scheduled compaction (required if \
                     --bump-revision > 0, disallowed otherwise)",
                ),
                flag("name", Kind::Text, "default", "Human-readable name for this member"),
                flag(
                    "skip-hash-check",
                    Kind::Bool,
                    "false",
                    "Ignore snapshot integrity hash value (required if copied from data directory)",
                ),
                flag("wal-dir", Kind::Text, "", "Path to the WAL directory (use --data-dir if none given)"),
            ],
            run: Some(restore::run),
            ..PARENT
        },
        Command {
            name: "status",
            usage: "status <filename> [flags]",
            short: "Gets backend snapshot status of a given file",
            run: Some(status::run),
            ..PARENT
        },
    ],
    ..PARENT
};

const VERIFY: Command = Command {
    name: "verify",
    usage: "verify <data-dir> [flags]",
    short: "Reads every file of a stopped member's data directory and names what is damaged",
    words: Words::Exactly(1),
    seen: Seen::OursAlone,
    run: Some(verify::run),
    ..PARENT
};

const VERSION: Command = Command {
    name: "version",
    usage: "version [flags]",
    short: "Prints the version of etcdutl",
    run: Some(version::run),
    ..PARENT
};
