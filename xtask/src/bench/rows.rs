//! The rows of the comparison: what is filled in before, what is measured, which figures count.

/// What a row does once its cluster stands and is filled.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// `kvorum bench` with these words.
    Load(&'static [&'static str]),
    /// Kill -9 of every member, start, until a linearisable read is answered.
    Restart,
    /// Kill -9 of the leader under an open loop of puts.
    Failover,
    /// The leader hands over under an open loop of puts.
    MoveLeader,
    /// Deletion of all keys, compaction, defragmentation under an open loop of puts.
    Space,
    /// `kvorum bench` with these words, for a day; Ctrl-C ends it with what it has.
    Soak(&'static [&'static str]),
    /// A follower is away while these words run, and comes back.
    Behind(&'static [&'static str]),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub what: &'static str,
    /// Cluster sizes for which it says something.
    pub members: &'static [usize],
    /// Of them, those of the short form.
    pub short: &'static [usize],
    /// `kvorum bench` with these words, before anything is measured.
    pub fill: &'static [&'static [&'static str]],
    pub run: Run,
    /// Figures of the printed table, most telling first.
    pub figures: &'static [&'static str],
    /// What grows from row to row of a family, and how much of it this row has.
    pub scale: Option<(&'static str, f64)>,
}

impl Row {
    const fn new(name: &'static str, what: &'static str, run: Run, figures: &'static [&'static str]) -> Row {
        Row { name, what, members: &[1, 3, 5], short: &[], fill: &[], run, figures, scale: None }
    }

    const fn members(self, members: &'static [usize]) -> Row {
        Row { members, ..self }
    }

    const fn short(self, short: &'static [usize]) -> Row {
        Row { short, ..self }
    }

    const fn fill(self, fill: &'static [&'static [&'static str]]) -> Row {
        Row { fill, ..self }
    }

    const fn scale(self, what: &'static str, much: f64) -> Row {
        Row { scale: Some((what, much)), ..self }
    }
}

use Run::{Behind, Failover, Load, MoveLeader, Restart, Soak, Space};

const ONE: &[usize] = &[1];
const BOTH: &[usize] = &[1, 3];
const MANY: &[usize] = &[3, 5];
const THREE: &[usize] = &[3];

const WRITES: &[&str] =
    &["ops/s", "p50 ms", "p99 ms", "server us/op", "disk B/op", "flushes/op", "RSS MB", "anonymous MB"];
const READS: &[&str] = &["ops/s", "p50 ms", "p99 ms", "server us/op", "RSS MB", "anonymous MB"];
const LISTS: &[&str] = &["p50 ms", "keys/s", "MB/s", "server CPU ms per 10,000 keys", "peak MB"];
const PAGES: &[&str] = &["whole list p50 ms", "keys/s", "server CPU ms per 10,000 keys", "peak MB"];
const WATCHES: &[&str] =
    &["events/server CPU/s", "lag p50 ms", "lag p99 ms", "p99 ms", "kB a watcher", "RSS MB", "anonymous MB"];
const LEASES: &[&str] = &["drained s", "due within s", "ended %", "server us per lease", "p99 ms", "flushes/op"];
const COMPACTIONS: &[&str] =
    &["compact call ms", "compact physical ms", "calm p99 ms", "p99 ms", "max ms", "disk B/op"];
const RESTARTS: &[&str] = &["restart s", "restart CPU s", "RSS MB", "anonymous MB"];
const MEMORY: &[&str] = &["RSS MB", "anonymous MB", "peak MB"];
const GAPS: &[&str] = &["gap ms", "failed calls", "max ms"];
const SPACES: &[&str] = &["filled MB", "emptied MB", "defragmented MB", "defragmentation ms", "gap ms", "p99 ms"];
const SOAKS: &[&str] = &[
    "put p50 ms",
    "put p99 ms",
    "swap p99 ms",
    "get p99 ms",
    "page p99 ms",
    "gap ms",
    "failed calls",
    "us/op first tenth",
    "us/op last tenth",
    "anonymous MB at the beginning",
    "anonymous MB at the end",
    "anonymous MB grown per hour",
    "disk MB at the end",
    "disk MB grown per hour",
    "writes told to all watchers",
    "leases ended",
];
const BOUNDS: &[&str] = &["echo/s", "echo p50 ms", "fdatasync/s", "fdatasync p50 ms", "fdatasync p99 ms"];
const IDLE: &[&str] = &["idle CPU ms per s", "idle flushes per s", "idle switches per s", "RSS MB", "anonymous MB"];

const FILL_10K_1KB: &[&[&str]] = &[&["fill", "--keys", "10000", "--value-size", "1024"]];
const FILL_100K: &[&[&str]] = &[&["fill", "--keys", "100000", "--value-size", "256"]];
const FILL_100K_1KB: &[&[&str]] = &[&["fill", "--keys", "100000", "--value-size", "1024"]];
const FILL_1M: &[&[&str]] = &[&["fill", "--keys", "1000000", "--value-size", "256"]];

/// In the order in which they run. Rows of a family differ in one thing: they show how it scales.
pub const ROWS: &[Row] = &[
    Row::new(
        "bound",
        "the machine itself: 128 B there and back over loopback, 4 KiB flushed",
        Load(&["bound"]),
        BOUNDS,
    )
    .members(ONE)
    .short(ONE),
    Row::new("put-1", "put 256 B, 1 client", Load(&["put", "--clients", "1"]), WRITES)
        .short(BOTH)
        .scale("put: clients", 1.0),
    Row::new("put-8", "put 256 B, 8 clients", Load(&["put", "--clients", "8"]), WRITES).scale("put: clients", 8.0),
    Row::new("put-64", "put 256 B, 64 clients", Load(&["put", "--clients", "64"]), WRITES)
        .short(BOTH)
        .scale("put: clients", 64.0),
    Row::new("put-256", "put 256 B, 256 clients", Load(&["put", "--clients", "256"]), WRITES)
        .scale("put: clients", 256.0),
    Row::new("put-1000", "put 256 B, 1,000 clients, 100 connections", Load(&["put", "--clients", "1000"]), WRITES)
        .short(BOTH)
        .scale("put: clients", 1000.0),
    Row::new("put-4k", "put 4 KiB, 64 clients", Load(&["put", "--value-size", "4096"]), WRITES)
        .short(ONE)
        .scale("put by 64 clients: bytes of a value", 4096.0),
    Row::new("put-32k", "put 32 KiB, 64 clients", Load(&["put", "--value-size", "32768", "--keys", "1000"]), WRITES)
        .scale("put by 64 clients: bytes of a value", 32768.0),
    Row::new("put-100k", "put 100 KiB, 64 clients", Load(&["put", "--value-size", "102400", "--keys", "200"]), WRITES)
        .scale("put by 64 clients: bytes of a value", 102_400.0),
    Row::new(
        "put-open",
        "put 256 B, 1,000 a second due (open loop)",
        Load(&["put", "--rate", "1000", "--clients", "1000"]),
        WRITES,
    )
    .short(ONE)
    .scale("put, open loop: calls due a second", 1000.0),
    Row::new(
        "put-open-5000",
        "put 256 B, 5,000 a second due (open loop)",
        Load(&["put", "--rate", "5000", "--clients", "1000"]),
        WRITES,
    )
    .scale("put, open loop: calls due a second", 5000.0),
    Row::new("swap-10k", "compare-and-swap of 10,000 leases of nodes", Load(&["swap", "--clients", "256"]), WRITES)
        .short(BOTH)
        .scale("compare-and-swap: keys", 10_000.0),
    Row::new(
        "swap-100k",
        "compare-and-swap of 100,000 leases of nodes",
        Load(&["swap", "--clients", "256", "--keys", "100000"]),
        WRITES,
    )
    .scale("compare-and-swap: keys", 100_000.0),
    Row::new(
        "swap-open",
        "compare-and-swap of 10,000 leases of nodes, 10,000 a second due (open loop)",
        Load(&["swap", "--clients", "1000", "--rate", "10000"]),
        WRITES,
    ),
    Row::new(
        "pods",
        "pods of 4 KB come and go, 64 at a time, 5 watchers",
        Load(&["pods", "--clients", "64", "--value-size", "4096", "--watchers", "5", "--watch-conns", "5"]),
        &["pods/s", "p99 ms", "lag p50 ms", "lag p99 ms", "server us/op", "RSS MB"],
    )
    .short(ONE),
    Row::new(
        "get-1",
        "linearisable get, 1 client, 100,000 keys",
        Load(&["get", "--keys", "100000", "--clients", "1"]),
        READS,
    )
    .fill(FILL_100K)
    .scale("linearisable get: clients", 1.0),
    Row::new(
        "get-64",
        "linearisable get, 64 clients, 100,000 keys",
        Load(&["get", "--keys", "100000", "--clients", "64"]),
        READS,
    )
    .fill(FILL_100K)
    .scale("linearisable get: clients", 64.0),
    Row::new(
        "get-1000",
        "linearisable get, 1,000 clients, 100,000 keys",
        Load(&["get", "--keys", "100000", "--clients", "1000"]),
        READS,
    )
    .fill(FILL_100K)
    .short(BOTH)
    .scale("linearisable get: clients", 1000.0),
    Row::new(
        "get-stale-1000",
        "serialisable get, 1,000 clients, 100,000 keys",
        Load(&["get", "--keys", "100000", "--clients", "1000", "--serializable"]),
        READS,
    )
    .fill(FILL_100K),
    Row::new(
        "list-1k",
        "list of 1,000 x 1 KB in one answer",
        Load(&["list", "--keys", "1000", "--clients", "1"]),
        LISTS,
    )
    .members(ONE)
    .fill(&[&["fill", "--keys", "1000", "--value-size", "1024"]])
    .scale("list in one answer: keys", 1000.0),
    Row::new(
        "list-10k",
        "list of 10,000 x 1 KB in one answer",
        Load(&["list", "--keys", "10000", "--clients", "1"]),
        LISTS,
    )
    .members(ONE)
    .short(ONE)
    .fill(FILL_10K_1KB)
    .scale("list in one answer: keys", 10_000.0),
    Row::new(
        "list-100k",
        "list of 100,000 x 1 KB in one answer",
        Load(&["list", "--keys", "100000", "--clients", "1"]),
        LISTS,
    )
    .members(ONE)
    .fill(FILL_100K_1KB)
    .scale("list in one answer: keys", 100_000.0),
    Row::new(
        "list-pages",
        "list of 10,000 x 1 KB by pages of 500",
        Load(&["list", "--keys", "10000", "--clients", "1", "--page", "500"]),
        PAGES,
    )
    .members(ONE)
    .short(ONE)
    .fill(FILL_10K_1KB),
    Row::new(
        "list-stream",
        "four at once stream 100,000 x 1 KB",
        Load(&["list", "--keys", "100000", "--clients", "4", "--stream"]),
        LISTS,
    )
    .members(ONE)
    .fill(FILL_100K_1KB),
    Row::new(
        "list-pages-1m",
        "list of 1,000,000 keys by pages of 10,000",
        Load(&["list", "--keys", "1000000", "--clients", "1", "--page", "10000"]),
        PAGES,
    )
    .members(ONE)
    .fill(FILL_1M),
    Row::new(
        "count-100k",
        "count of 100,000 keys",
        Load(&["list", "--keys", "100000", "--clients", "1", "--count"]),
        READS,
    )
    .members(ONE)
    .fill(FILL_100K)
    .scale("count: keys", 100_000.0),
    Row::new(
        "count-1m",
        "count of 1,000,000 keys",
        Load(&["list", "--keys", "1000000", "--clients", "1", "--count"]),
        READS,
    )
    .members(ONE)
    .fill(FILL_1M)
    .scale("count: keys", 1_000_000.0),
    Row::new(
        "fan-out-100",
        "100 watchers of one prefix, 100 events/s x 1 KB",
        Load(&["watch", "--watchers", "100", "--rate", "100", "--value-size", "1024"]),
        WATCHES,
    )
    .scale("watchers of one prefix", 100.0),
    Row::new(
        "fan-out-1000",
        "1,000 watchers of one prefix, 100 events/s x 1 KB",
        Load(&["watch", "--watchers", "1000", "--rate", "100", "--value-size", "1024"]),
        WATCHES,
    )
    .short(ONE)
    .scale("watchers of one prefix", 1000.0),
    Row::new(
        "fan-out-10k",
        "10,000 watchers on 100 connections, 10 events/s x 1 KB",
        Load(&["watch", "--watchers", "10000", "--watch-conns", "100", "--rate", "10", "--value-size", "1024"]),
        WATCHES,
    )
    .scale("watchers of one prefix", 10_000.0),
    Row::new(
        "fan-out-slow",
        "500 watchers that read nothing, 100 that do; 200 puts/s of 1 KB",
        Load(&["watch", "--watchers", "100", "--slow", "500", "--rate", "200", "--value-size", "1024"]),
        &["p50 ms", "p99 ms", "lag p99 ms", "RSS MB"],
    ),
    Row::new(
        "resume",
        "100 watchers resume 20,000 revisions back while puts go on",
        Load(&["resume", "--watchers", "100", "--history", "20000", "--rate", "200", "--for", "20s"]),
        &["in step s", "history events/s", "p99 ms", "server CPU s", "RSS MB", "anonymous MB"],
    )
    .members(ONE),
    Row::new(
        "rest-10k",
        "10,000 watches on 1,000 connections, nothing written",
        Load(&["rest", "--watchers", "10000", "--watch-conns", "1000"]),
        &["kB a watch", "opened in s", "RSS MB", "anonymous MB", "CPU ms per s"],
    )
    .members(ONE),
    Row::new(
        "expire-3k",
        "3,000 leases of one key end together while puts go on",
        Load(&["expire", "--leases", "3000", "--ttl", "6", "--rate", "100", "--for", "5s"]),
        LEASES,
    )
    .short(ONE)
    .scale("leases that end together", 3000.0),
    Row::new(
        "expire-20k",
        "20,000 leases of one key end together while puts go on",
        Load(&["expire", "--leases", "20000", "--ttl", "30", "--rate", "100", "--for", "60s"]),
        LEASES,
    )
    .scale("leases that end together", 20_000.0),
    Row::new(
        "expire-100k",
        "100,000 leases of one key end together while puts go on",
        Load(&["expire", "--leases", "100000", "--ttl", "60", "--rate", "100", "--for", "130s"]),
        LEASES,
    )
    .members(ONE)
    .scale("leases that end together", 100_000.0),
    Row::new(
        "keep-alive",
        "renewals, 1,000 clients on 100 connections",
        Load(&["keep-alive", "--clients", "1000"]),
        READS,
    ),
    Row::new(
        "compact-20k",
        "20,000 revisions are compacted under 500 puts/s",
        Load(&["compact", "--history", "20000", "--rate", "500"]),
        COMPACTIONS,
    )
    .short(ONE)
    .scale("compaction: revisions", 20_000.0),
    Row::new(
        "compact-300k",
        "300,000 revisions are compacted under 500 puts/s",
        // Longer than the sweep of either side.
        Load(&["compact", "--history", "300000", "--rate", "500", "--for", "16s"]),
        COMPACTIONS,
    )
    .scale("compaction: revisions", 300_000.0),
    Row::new("space", "100,000 keys of 1 KB deleted, compacted, defragmented under 500 puts/s due", Space, SPACES)
        .members(ONE)
        .fill(FILL_100K_1KB),
    Row::new("restart-100k", "kill -9 and start, 100,000 keys of 256 B", Restart, RESTARTS)
        .members(BOTH)
        .short(ONE)
        .fill(FILL_100K)
        .scale("restart: keys", 100_000.0),
    Row::new("restart-1m", "kill -9 and start, 1,000,000 keys of 256 B", Restart, RESTARTS)
        .members(ONE)
        .fill(FILL_1M)
        .scale("restart: keys", 1_000_000.0),
    Row::new("memory-100k", "memory with 100,000 keys of 256 B", Load(&["idle"]), MEMORY)
        .members(ONE)
        .fill(FILL_100K)
        .scale("memory: keys", 100_000.0),
    Row::new("memory-1m", "memory with 1,000,000 keys of 256 B", Load(&["idle"]), MEMORY)
        .members(ONE)
        .fill(FILL_1M)
        .scale("memory: keys", 1_000_000.0),
    Row::new(
        "memory-scans-1m",
        "memory after 10 lists of 1,000,000 keys of 256 B",
        Load(&["list", "--keys", "1000000", "--clients", "1", "--total", "10"]),
        &["anonymous MB", "RSS MB", "peak MB", "p50 ms"],
    )
    .members(ONE)
    .fill(FILL_1M),
    Row::new("idle", "nothing to do", Load(&["idle"]), IDLE).short(ONE),
    Row::new("failover", "kill -9 of the leader under 500 puts/s due", Failover, GAPS).members(MANY).short(THREE),
    Row::new("move-leader", "the leader hands over under 500 puts/s due", MoveLeader, GAPS).members(MANY).short(THREE),
    Row::new(
        "behind",
        "a follower misses 100,000 puts of 256 B and comes back",
        Behind(&["fill", "--keys", "100000", "--prefix", "/missed/"]),
        &["catch-up s", "all CPU s", "ops/s"],
    )
    .members(MANY),
    Row::new(
        "soak",
        "24 hours of mixed load, 500 calls/s due; only if named with --rows",
        Soak(&["soak", "--clients", "500", "--conns", "6"]),
        SOAKS,
    ),
];

/// Whether more of a figure is better.
pub fn more_is_better(figure: &str) -> bool {
    figure.ends_with("/s") || figure == "ended %"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_rows_have_figures() {
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            assert!(!row.figures.is_empty() && !row.members.is_empty(), "{}", row.name);
            assert!(row.short.iter().all(|size| row.members.contains(size)), "{}", row.name);
        }
    }

    /// Of 100 runs that took 6.4 s each, some of them far longer, the longest were shortened.
    #[test]
    fn the_short_form_fits_into_ten_minutes() {
        const RUNS_MAX: usize = 92;
        let runs = ROWS.iter().map(|row| row.short.len()).sum::<usize>() * 2 * 2;
        assert!(runs <= RUNS_MAX, "{runs} runs of two sides, twice: take another row out of the short form");
    }
}
