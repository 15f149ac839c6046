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
    /// `kvorum bench` with these words, before anything is measured.
    pub fill: &'static [&'static [&'static str]],
    pub run: Run,
    /// Figures of the printed table, most telling first.
    pub figures: &'static [&'static str],
    /// Part of the short form.
    pub short: bool,
}

const ANY: &[usize] = &[1, 3, 5];
const ONE: &[usize] = &[1];
const MANY: &[usize] = &[3, 5];
const WRITES: &[&str] = &["ops/s", "p50 ms", "p99 ms", "server us/op", "disk B/op", "flushes/op", "RSS MB"];
const READS: &[&str] = &["ops/s", "p50 ms", "p99 ms", "server us/op", "RSS MB"];
const FILL_100K: &[&str] = &["fill", "--keys", "100000", "--value-size", "256"];

/// In the order in which they run. The lines of a family (same first word) differ in one thing:
/// they show how it scales.
pub const ROWS: &[Row] = &[
    load("put-1", "put 256 B, 1 client", ANY, &["put", "--clients", "1"], WRITES, true),
    load("put-8", "put 256 B, 8 clients", ANY, &["put", "--clients", "8"], WRITES, false),
    load("put-64", "put 256 B, 64 clients", ANY, &["put", "--clients", "64"], WRITES, true),
    load("put-256", "put 256 B, 256 clients", ANY, &["put", "--clients", "256"], WRITES, false),
    load("put-1000", "put 256 B, 1,000 clients on 100 connections", ANY, &["put", "--clients", "1000"], WRITES, true),
    load("put-4k", "put 4 KiB, 64 clients", ANY, &["put", "--value-size", "4096"], WRITES, true),
    load(
        "put-100k",
        "put 100 KiB, 16 clients",
        ANY,
        &["put", "--value-size", "102400", "--clients", "16", "--keys", "200"],
        WRITES,
        false,
    ),
    load(
        "put-open",
        "put 256 B, 1,000 a second due (open loop)",
        ANY,
        &["put", "--rate", "1000", "--clients", "1000"],
        WRITES,
        true,
    ),
    load("swap-10k", "compare-and-swap of 10,000 keys, 256 clients", ANY, &["swap", "--clients", "256"], WRITES, true),
    load(
        "swap-100k",
        "compare-and-swap of 100,000 keys, 256 clients",
        ANY,
        &["swap", "--clients", "256", "--keys", "100000"],
        WRITES,
        false,
    ),
    filled(
        "get-1",
        "linearisable get, 1 client, 100,000 keys",
        ANY,
        &[FILL_100K],
        &["get", "--keys", "100000", "--clients", "1"],
        READS,
        true,
    ),
    filled(
        "get-1000",
        "linearisable get, 1,000 clients, 100,000 keys",
        ANY,
        &[FILL_100K],
        &["get", "--keys", "100000", "--clients", "1000"],
        READS,
        true,
    ),
    filled(
        "get-stale-1000",
        "serialisable get, 1,000 clients, 100,000 keys",
        ANY,
        &[FILL_100K],
        &["get", "--keys", "100000", "--clients", "1000", "--serializable"],
        READS,
        true,
    ),
];

const fn load(
    name: &'static str,
    what: &'static str,
    members: &'static [usize],
    words: &'static [&'static str],
    figures: &'static [&'static str],
    short: bool,
) -> Row {
    Row { name, what, members, fill: &[], run: Run::Load(words), figures, short }
}

const fn filled(
    name: &'static str,
    what: &'static str,
    members: &'static [usize],
    fill: &'static [&'static [&'static str]],
    words: &'static [&'static str],
    figures: &'static [&'static str],
    short: bool,
) -> Row {
    Row { name, what, members, fill, run: Run::Load(words), figures, short }
}

/// Whether more of a figure is better.
pub fn more_is_better(figure: &str) -> bool {
    figure.ends_with("/s") && !figure.starts_with("flushes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_rows_have_figures() {
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| !row.figures.is_empty() && !row.members.is_empty()));
    }
}
