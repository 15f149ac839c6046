//! What the runs gave, as lines of a terminal and as `docs/faults.md`.

use std::{collections::BTreeMap, fmt::Write as _, process::Command};

use super::{
    kinds::KINDS,
    result::{Outcome, Results},
    scenes::Scene,
};

/// Errors that a cell names; the rest is counted.
const NAMED: usize = 4;

/// Day, commit and machine of a run.
pub fn made(note: &str) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (day, commit) = (said("date", &["+%F"]), said("git", &["rev-parse", "--short", "HEAD"]));
    let note = if note.is_empty() { String::new() } else { format!("; {note}") };
    format!("{day}, commit {commit}, {cores} cores{note}")
}

fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// A scenario with one program, for the terminal.
pub fn line(scene: &str, side: &str, outcome: &Outcome) -> String {
    let ((gap, most), (well, _)) = (outcome.spread(|round| round.gap), outcome.spread(|round| round.well));
    let acked: u64 = outcome.rounds.iter().map(|round| round.acked).sum();
    let mut text = format!(
        "{scene:<14} {side:<7} gap {gap:>6.0} ms (max {most:>6.0}), of the well {well:>6.0} ms, {acked:>6} acknowledged",
    );
    for (error, count) in most_frequent(&outcome.errors()) {
        let _ = write!(text, "\n               {count:>7} x {error}");
    }
    if let Some(longest) = outcome.rounds.iter().max_by(|one, other| one.gap.total_cmp(&other.gap)) {
        let _ = write!(text, "\n               the longest gap began {:.0} ms after the fault", longest.begins);
    }
    for end in outcome.rounds.iter().flat_map(|round| &round.ended) {
        let _ = write!(text, "\n               {end}");
    }
    for wrong in outcome.wrong() {
        let _ = write!(text, "\n               VIOLATION: {wrong}");
    }
    text
}

fn most_frequent<'a>(errors: &BTreeMap<&'a str, u64>) -> Vec<(&'a str, u64)> {
    let mut all: Vec<(&str, u64)> = errors.iter().map(|(text, count)| (*text, *count)).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// The whole page.
pub fn page(results: &Results, scenes: &[Scene]) -> String {
    let mut runs: Vec<String> = Vec::new();
    for outcome in results.values().flat_map(BTreeMap::values) {
        let run = run_of(outcome);
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    runs.sort();
    let mut text = HEAD.to_owned();
    for (at, run) in runs.iter().enumerate() {
        let _ = writeln!(text, "- Run {}: {run}.", at + 1);
    }
    figures(&mut text, results, scenes, &runs);
    errors(&mut text, results, scenes);
    kinds(&mut text, results);
    wrapped(&text)
}

const HEAD: &str = "# Faults, live

What clients see when something breaks: real processes in network namespaces, on disks that are
filled and stopped. This page is written by

```
sudo cargo xtask faults --etcd --rounds 5 --page   # all of it; needs root, touches its own alone
cargo xtask faults --list                          # the scenarios
```

- Each member has a client that puts a new key every 10 ms, and reads. A lease of 10 s is kept
  alive, and a watch is told everything.
- *Gap* is the longest time without an acknowledged put, through any member, from the fault until
  two seconds after its end. *Of the well* is the same for the clients of members that were not
  hurt, each client alone: the worst of them.
- A *violation* is an acknowledged put that is not on every member at the end, a linearisable read
  that misses one, members that differ (keys, HashKV), a watch that was told something twice or not
  at all, a lease that ended though a majority was well, or a member that does not come back. No
  round follows one.
- Both programs have the same flags, with an election timeout of one second.
- A process that *ended* did so by itself. It was started again when the fault was over.
- *torn-tail* zeros bytes that were flushed and acknowledged, on one member of three.

";

fn cell(outcome: Option<&Outcome>) -> String {
    let Some(outcome) = outcome else { return "| | | ".to_owned() };
    let ((gap, most), (well, worst)) = (outcome.spread(|round| round.gap), outcome.spread(|round| round.well));
    let well = if worst == 0.0 { "—".to_owned() } else { format!("{well:.0} / {worst:.0}") };
    let ended: usize = outcome.rounds.iter().map(|round| round.ended.len()).sum();
    let ended = if ended == 0 { String::new() } else { format!(", {ended} ended") };
    format!("| {gap:.0} / {most:.0} | {well} | {}{ended} ", outcome.wrong().count())
}

fn figures(text: &mut String, results: &Results, scenes: &[Scene], runs: &[String]) {
    let versions: Vec<String> = ["kvorum", "etcd"].map(|side| version(results, side)).to_vec();
    let _ = write!(
        text,
        "\n## Figures\n\nMilliseconds: median / maximum. The programs are kvorum {} and etcd {}.\n\n\
         | scenario | what happens | kvorum: gap | of the well | violations | etcd: gap | of the well | violations | run |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        versions[0], versions[1]
    );
    for scene in scenes {
        let Some(sides) = results.get(scene.name) else { continue };
        let of = |side: &str| sides.get(side);
        let mut from: Vec<usize> = Vec::new();
        for outcome in sides.values() {
            let run = run_of(outcome);
            let at = runs.iter().position(|known| *known == run).map_or(0, |at| at + 1);
            if !from.contains(&at) {
                from.push(at);
            }
        }
        let from: Vec<String> = from.iter().map(usize::to_string).collect();
        let (what, from) = (scene.what, from.join(", "));
        let members = if scene.members == 3 { String::new() } else { format!(" ({} members)", scene.members) };
        let (kvorum, etcd) = (cell(of("kvorum")), cell(of("etcd")));
        let _ = writeln!(text, "| `{}` | {what}{members} {kvorum}{etcd}| {from} |", scene.name);
    }
}

fn run_of(outcome: &Outcome) -> String {
    let rounds = outcome.rounds.len();
    format!("{}; {rounds} round{}", outcome.made, if rounds == 1 { "" } else { "s" })
}

fn version(results: &Results, side: &str) -> String {
    let known = results.values().filter_map(|sides| sides.get(side)).map(|outcome| outcome.version.clone());
    known.max().unwrap_or_else(|| "(not run)".to_owned())
}

fn errors(text: &mut String, results: &Results, scenes: &[Scene]) {
    text.push_str(
        "\n## What clients were told\n\nFailed calls of all rounds, the most frequent first. A scenario without any \
         is not listed.\n\n| scenario | program | failures |\n|---|---|---|\n",
    );
    for scene in scenes {
        for side in ["kvorum", "etcd"] {
            let Some(outcome) = results.get(scene.name).and_then(|sides| sides.get(side)) else { continue };
            let all = outcome.errors();
            let named: Vec<String> =
                most_frequent(&all).iter().take(NAMED).map(|(error, count)| format!("{count} × {error}")).collect();
            let more = if all.len() > NAMED { format!(", {} more kinds", all.len() - NAMED) } else { String::new() };
            if !named.is_empty() {
                let _ = writeln!(text, "| `{}` | {side} | {}{more} |", scene.name, named.join(", "));
            }
        }
    }
    violations(text, results);
}

fn violations(text: &mut String, results: &Results) {
    for (scene, sides) in results {
        for (side, outcome) in sides {
            for wrong in outcome.wrong() {
                let first = wrong.lines().next().unwrap_or_default();
                let _ = writeln!(text, "\nViolation, `{scene}`, {side}: {first}");
            }
        }
    }
}

fn kinds(text: &mut String, results: &Results) {
    text.push_str(
        "\n## Every kind of fault\n\nThe longest gap of kvorum in its scenarios, and what else plays the kind. Names \
         such as `LogHole` are sights, faults and shapes of the simulator (`sim/src/sights.rs`, `sim/src/plan.rs`).\n\n\
         | # | fault | live | longest gap, ms | what else, or why not live |\n|---|---|---|---|---|\n",
    );
    for kind in KINDS {
        let outcomes = kind.scenes.iter().filter_map(|scene| results.get(*scene)?.get("kvorum"));
        let longest = outcomes.map(|outcome| outcome.spread(|round| round.gap).1).reduce(f64::max);
        let longest = longest.map_or_else(|| "—".to_owned(), |gap| format!("{gap:.0}"));
        let scenes: Vec<String> = kind.scenes.iter().map(|scene| format!("`{scene}`")).collect();
        let live = if scenes.is_empty() { "—".to_owned() } else { scenes.join(", ") };
        let _ = writeln!(text, "| {} | {} | {live} | {longest} | {} |", kind.number, kind.fault, kind.rest);
    }
}

/// Rows of tables stay one line; the rest is broken for a reader.
pub fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with('|') || line.chars().count() <= 100 {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut width = 0;
        for (at, word) in line.split(' ').enumerate() {
            if at > 0 && width + 1 + word.chars().count() > 100 {
                out.push('\n');
                out.push_str(indent);
                width = indent.len();
            } else if at > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += word.chars().count();
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{super::scenes::SCENES, *};

    #[test]
    fn every_kind_is_there_once_and_names_scenarios_that_are() {
        let numbers: Vec<u8> = KINDS.iter().map(|kind| kind.number).collect();
        assert_eq!(numbers, (1..=28).collect::<Vec<u8>>());
        for kind in KINDS {
            for scene in kind.scenes {
                assert!(SCENES.iter().any(|known| known.name == *scene), "{scene} of kind {}", kind.number);
            }
        }
    }

    #[test]
    fn every_scenario_plays_a_kind_but_the_planned_move() {
        let playing = |scene: &&Scene| KINDS.iter().any(|kind| kind.scenes.contains(&scene.name));
        let rest: Vec<&str> = SCENES.iter().filter(|scene| !playing(scene)).map(|scene| scene.name).collect();
        assert_eq!(rest, ["move-leader"]);
    }

    #[test]
    fn the_page_is_what_was_kept() {
        let docs = crate::peers::workspace().join("docs");
        let kept = super::super::result::read(&docs.join("faults.json")).unwrap();
        let text = std::fs::read_to_string(docs.join("faults.md")).unwrap();
        assert!(!kept.is_empty());
        assert!(text == page(&kept, SCENES), "`cargo xtask faults --list --page` writes it again");
    }

    #[test]
    fn long_lines_are_broken_and_rows_are_not() {
        let text = format!("- {}\n| {} |\n", "word ".repeat(40).trim(), "cell ".repeat(40).trim());
        let lines: Vec<String> = wrapped(&text).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("  word") && lines[..2].iter().all(|line| line.chars().count() <= 100));
    }
}
