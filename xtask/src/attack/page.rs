//! The tables: on the screen, and as a page that later runs keep up to date.

use std::collections::BTreeMap;

use super::honest::Times;
use super::judge::{Against, BUDGET, Row, millis};
use super::kinds::{ALL, On};
use crate::faults::wrapped;

const HEAD: &str = "# Attacks

What an honest client notices while somebody attacks its member, beside a real etcd under the same
attack. This page is written by

```
cargo xtask attack --against kvorum,etcd --table docs/attacks.md   # all; root for `memory`
cargo xtask attack --list                                          # the attacks
cargo xtask attack ping watch-storm                                # some
```

- Every attack has a member of its own, with 2,000 keys of 4 KiB. kvorum runs with
  `--memory-budget=512MiB`.
- The honest client puts and reads (linearisable) every 5 ms, renews a lease every 50 ms, and
  connects anew every 100 ms. Values have 256 bytes, each tenth 40 KiB. A call that was due while
  another one hung has waited, too, and counts.
- The honest client comes from another address (127.0.0.2) than the attackers (127.0.0.1). kvorum
  shares places by address. Attackers who share the address of honest clients, behind one NAT, can
  take its places from them.
- The attackers run with niceness 19: they stand for other machines, and leave the processors to the
  member and its client.
- On a machine that does other work the run must go before it (`nice -n -15`, and with
  `sched_autogroup_enabled` in a session of its own with `-15` in `/proc/self/autogroup`). Else the
  figures are those of the other work.
- Each program is measured calm, under the attack, and for a second from its end on.
- Latencies are milliseconds: p50 / p99 / longest. Memory is anonymous memory in MiB: before, at the
  peak, and one second after the attack.

An attack does harm if

- a kind of call has a p99 of more than three times calm or of more than 150 ms, during the attack
  or after it. Below 40 ms it is never harm: that much is the scheduler's, where attackers, member
  and client share two processors. For logins only the first bound holds;
- a call of the honest client fails;
- the member's memory grows by more than 512 MiB, or the member ends;
- the member does what it must not: it takes one request for two, or cuts a stream of watches;
- a follower that starts again while its peer port is attacked does not serve within 3 s.

The command fails if an attack does harm to kvorum. etcd is judged alike, and fails nothing.

";

const FIGURES: &str = "## Calls and memory\n\n\
| attack | program | puts, calm | puts, attacked | reads, calm | reads, attacked | memory | verdict | commit |\n\
|---|---|---|---|---|---|---|---|---|\n";
const REST: &str = "## The rest\n\n\
*Done*: frames, calls or connections of the attackers. *Closed*: connections that the member refused\n\
or closed, as the attackers saw it. *Counted*: what the member's own metrics say of it.\n\n\
| attack | program | keep-alives, calm | keep-alives, attacked | connections, calm | connections, attacked \
| failed | longest put after | done | closed | counted |\n\
|---|---|---|---|---|---|---|---|---|---|---|\n";
const KINDS: &str = "## What is done\n\n| attack | what | the member |\n|---|---|---|\n";

fn three(times: &Times) -> String {
    if times.is_empty() { "–".into() } else { [50, 99, 100].map(|part| millis(times.at(part))).join(" / ") }
}

fn verdict(row: &Row) -> String {
    let harm = row.harm();
    if harm.is_empty() { "held".into() } else { format!("**harm**: {}", harm.join("; ")) }
}

/// Nothing that a table's cell cannot hold.
fn cell(text: &str) -> String {
    text.replace('|', "/").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn figures(row: &Row, commit: &str) -> Vec<String> {
    let memory = &row.memory;
    vec![
        three(&row.calm.puts),
        three(&row.under.puts),
        three(&row.calm.gets),
        three(&row.under.gets),
        format!("{} / {} / {}", memory.before, memory.peak, memory.after),
        verdict(row),
        commit.to_owned(),
    ]
}

fn rest(row: &Row) -> Vec<String> {
    let mut counted: Vec<String> = Vec::new();
    if let Some(started) = row.started {
        counted.push(format!("a follower served {} ms after its start", millis(started)));
    }
    let others =
        [("logins", &row.calm.logins, &row.under.logins), ("handshakes", &row.calm.handshakes, &row.under.handshakes)];
    for (what, calm, under) in others.into_iter().filter(|(_, calm, _)| !calm.is_empty()) {
        counted.push(format!("{what} of the honest client: calm {}, attacked {}", three(calm), three(under)));
    }
    counted.push(row.refused.clone());
    vec![
        three(&row.calm.renewals),
        three(&row.under.renewals),
        three(&row.calm.connections),
        three(&row.under.connections),
        (row.under.failed() + row.after.failed()).to_string(),
        millis(row.after.puts.at(100)),
        row.done.to_string(),
        row.closed.to_string(),
        counted.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join("; "),
    ]
}

/// A row for the terminal.
pub(super) fn line(row: &Row) -> String {
    let (name, against, memory) = (row.attack.name, row.against.name(), &row.memory);
    let mut text = format!("{name} ({}), {against}: {}\n", row.attack.what, verdict(row));
    for ((what, calm), (_, under)) in row.calm.kinds().into_iter().zip(row.under.kinds()) {
        if !calm.is_empty() {
            text += &format!("  {what:16} {:>22}   attacked {:>24}\n", three(calm), three(under));
        }
    }
    text += &format!("  {:16} {} / {} / {} MiB\n", "memory", memory.before, memory.peak, memory.after);
    let told = rest(row).pop().unwrap_or_default();
    text + &format!("  {:16} {} done, {} closed; {told}", "the attackers", row.done, row.closed)
}

fn member(on: &On) -> String {
    match on {
        On { files, .. } if *files > 0 => format!("`ulimit -n {files}`"),
        On { memory, .. } if *memory > 0 => format!("a control group of {memory} MiB, kvorum without its flag"),
        On { tls: true, .. } => "serves TLS beside".into(),
        On { users: true, .. } => "has users".into(),
        On { cluster: true, .. } => "has two others; one is started again meanwhile".into(),
        _ => String::new(),
    }
}

/// The rows of one table, in the order of the attacks.
type Table = BTreeMap<(usize, Against), String>;

/// The tables of a page that was written before.
fn read(page: &str) -> [Table; 2] {
    let mut tables = [Table::new(), Table::new()];
    let mut at = 0;
    for line in page.lines() {
        if line.starts_with("## ") {
            at = usize::from(REST.starts_with(line));
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, program, _, ..] = cells.as_slice() else { continue };
        let attack = ALL.iter().position(|attack| format!("`{}`", attack.name) == *name);
        let against = [Against::Kvorum, Against::Etcd].into_iter().find(|against| against.name() == *program);
        if let (Some(attack), Some(against)) = (attack, against) {
            tables[at].insert((attack, against), line.to_owned());
        }
    }
    tables
}

/// The whole page. Attacks that were not made now keep the rows of `before`.
pub(super) fn page(before: &str, rows: &[Row], commit: &str, made: &str) -> String {
    let [mut first, mut second] = read(before);
    for row in rows {
        let Some(at) = ALL.iter().position(|attack| attack.name == row.attack.name) else { continue };
        let line = |cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
            format!("| `{}` | {} | {} |", row.attack.name, row.against.name(), cells.join(" | "))
        };
        first.insert((at, row.against), line(figures(row, commit)));
        second.insert((at, row.against), line(rest(row)));
    }
    let mut text = HEAD.replace("512", &BUDGET.to_string());
    text += &format!("The last run: {made}.\n\n");
    for (head, table) in [(FIGURES, first), (REST, second)] {
        text += head;
        table.values().for_each(|line| text += &format!("{line}\n"));
        text.push('\n');
    }
    text += KINDS;
    for attack in ALL {
        text += &format!("| `{}` | {} | {} |\n", attack.name, attack.what, member(&attack.on));
    }
    wrapped(&text)
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::row;
    use super::*;

    #[test]
    fn a_page_keeps_what_was_not_measured_again() {
        let mut one = row(1, 2);
        let mut other = row(1, 200);
        other.attack = &ALL[1];
        other.refused = "a | b\nc".into();
        let page_of = |before: &str, rows: &[Row]| page(before, rows, "abc", &"today, 2 cores; ".repeat(9));
        let both = page_of("", &[one, other]);
        assert!(both.contains("| `rapid-reset` | kvorum | 1.0 / 1.0 / 1.0 | 2.0 / 2.0 / 2.0 |"), "{both}");
        assert!(both.contains("**harm**: puts during: 200.0 ms, at most 40.0"), "{both}");
        assert!(both.contains("| a / b c |"), "{both}");
        assert_eq!(page_of(&both, &[]), both);
        one = row(1, 3);
        one.against = Against::Etcd;
        let more = page_of(&both, &[one]);
        let order = ["| `rapid-reset` | kvorum", "| `rapid-reset` | etcd", "| `continuation` | kvorum"];
        let at = order.map(|text| more.find(text).unwrap());
        assert!(at.is_sorted(), "{more}");
        assert_eq!(more.matches("| `rapid-reset` | etcd").count(), 2);
        assert!(more.lines().all(|line| line.starts_with('|') || line.chars().count() <= 100));
    }
}
