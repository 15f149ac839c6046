//! Why some code is not the simulator's to reach.

/// The first reason that fits a function counts.
#[derive(Debug)]
pub struct Reason {
    /// A file, a folder, or nothing for any file.
    pub file: &'static str,
    /// The last part of their names; nothing for all.
    pub functions: &'static [&'static str],
    pub why: &'static str,
}

impl Reason {
    pub fn fits(&self, path: &str, function: &str) -> bool {
        let named = |name: &str| function == name || function.ends_with(&format!("::{name}"));
        path.starts_with(self.file) && (self.functions.is_empty() || self.functions.iter().any(|name| named(name)))
    }

    /// As the page names it.
    pub fn place(&self) -> String {
        let names: Vec<String> = self.functions.iter().map(|name| format!("`{name}`")).collect();
        match (self.file, names.is_empty()) {
            (file, true) => format!("`{file}`"),
            ("", false) => format!("{} of any file", names.join(", ")),
            (file, false) => format!("`{file}`: {}", names.join(", ")),
        }
    }
}

const fn file(file: &'static str, why: &'static str) -> Reason {
    Reason { file, functions: &[], why }
}

const fn some(file: &'static str, functions: &'static [&'static str], why: &'static str) -> Reason {
    Reason { file, functions, why }
}

const TOOLS: &str = "for `kvorum utl`, on files without a member; the cases of `utl` hold it";
const FLAGS: &str = "founding from the server's flags; members have numbers here";
const EDGE: &str = "for the server's edge, which is not simulated; its tests hold it";
const SEALED: &str = "refusals behind a checksum that held: bytes of another program; unit tests hold them";
const FOREIGN: &str = "refusals of files that this program did not write; the tests of `bolt` hold them";

pub const REASONS: &[Reason] = &[
    some("", &["fmt"], "texts for people; unit tests hold the words"),
    file("node/src/offline.rs", TOOLS),
    file("bolt/src/small.rs", TOOLS),
    some(
        "bolt/src/read.rs",
        &["second_meta", "sequence", "pairs_from", "wrong", "believe_meta", "open", "page", "bucket_root", "meta_at"],
        FOREIGN,
    ),
    some("bolt/src/layout.rs", &["decode"], FOREIGN),
    file("bolt/src/check.rs", FOREIGN),
    some("bolt/src/status.rs", &["digest_follows"], EDGE),
    some("store/src/import.rs", &["rows", "last", "unwritten", "unwritten_bytes", "written"], TOOLS),
    some("store/src/import.rs", &["row", "finish", "orphans", "take_tables"], FOREIGN),
    some("disk/src/checkpoint.rs", &["verify"], TOOLS),
    file("disk/src/urls.rs", FLAGS),
    file("disk/src/founding.rs", FLAGS),
    some("disk/src/identity.rs", &["member_id", "cluster_id", "from_other_files"], FLAGS),
    some("consensus/src/consensus.rs", &["shrink_cache", "compact_cache"], EDGE),
    some("disk/src/fetch.rs", &["absorb", "len", "is_empty", "take", "would_wait"], EDGE),
    some("disk/src/log/mod.rs", &["parse_boot"], EDGE),
    some("node/src/lanes.rs", &["each", "and", "since", "close", "take_refused", "waiting", "push"], EDGE),
    some(
        "node/src/watch.rs",
        &["require_leader", "end", "held", "is_pressed", "rests", "set_buffer", "is_full", "count"],
        EDGE,
    ),
    some("node/src/watch/outbox.rs", &["set_budget", "is_over", "is_pressed"], EDGE),
    some("node/src/io/output.rs", &["is_empty", "places"], EDGE),
    some("store/src/command.rs", &["encode_put", "encode_delete_range", "encode_txn"], EDGE),
    some("consensus/src/message.rs", &["decode", "entries"], SEALED),
    some("disk/src/manifest.rs", &["decode_fields"], SEALED),
    some("disk/src/log/batch.rs", &["decode_table"], SEALED),
    some("store/src/image.rs", &["block", "row", "decode", "read_field"], SEALED),
    some("store/src/command.rs", &["read_command", "read_checkpoint", "read_member_attr", "read_ints"], SEALED),
];
