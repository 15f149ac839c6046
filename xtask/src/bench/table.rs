//! Medians, spreads and ratios of all runs.

use super::result::{Journal, number};
use super::rows::{Row, more_is_better};
use super::side::Side;
use serde_json::{Value, json};
use std::fmt::Write;

/// Runs of one figure on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub runs: usize,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (first, last) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, least: first, most: last, runs: values.len() })
    }

    fn text(self) -> String {
        match self.runs {
            1 => number(self.median),
            _ => format!("{} ({}..{})", number(self.median), number(self.least), number(self.most)),
        }
    }
}

/// One figure of one row.
#[derive(Clone, Debug)]
pub struct Line {
    pub figure: String,
    pub spreads: Vec<Option<Spread>>,
}

impl Line {
    /// How many times better the last side is than the first.
    pub fn ratio(&self) -> Option<f64> {
        let [Some(first), Some(last)] = self.spreads.as_slice() else { return None };
        let (up, down) =
            if more_is_better(&self.figure) { (last.median, first.median) } else { (first.median, last.median) };
        (down > 0.0 && up > 0.0).then(|| up / down)
    }
}

/// One row with one cluster size.
#[derive(Clone, Debug)]
pub struct Part {
    pub row: &'static Row,
    pub members: usize,
    pub lines: Vec<Line>,
    pub errors: Vec<String>,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Summary {
    pub sides: Vec<String>,
    pub parts: Vec<Part>,
    /// Whether the CPUs were kept from halting.
    pub awake: bool,
    /// CPUs that others used while it was measured, at most.
    pub others: f64,
}

impl Summary {
    pub fn of(journal: &Journal, rows: &'static [Row], sides: &[Side]) -> Summary {
        let sides: Vec<String> = sides.iter().map(|side| side.name.clone()).collect();
        let mut parts = Vec::new();
        for row in rows {
            let mut sizes: Vec<usize> =
                journal.entries.iter().filter(|e| e.key.row == row.name).map(|e| e.key.members).collect();
            sizes.sort_unstable();
            sizes.dedup();
            parts.extend(sizes.into_iter().map(|members| part(journal, row, members, &sides)));
        }
        let others = journal.entries.iter().filter_map(|e| e.figures.get("others' CPUs")).copied().fold(0.0, f64::max);
        Summary { sides, parts, awake: journal.awake, others }
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let mut out = format!("CPUs {}.\n", super::awake::mode(self.awake));
        let _ = write!(out, "{:<18} {:>2}  {:<20}", "row", "n", "figure");
        for side in &self.sides {
            let _ = write!(out, " {side:>28}");
        }
        out.push_str(if self.sides.len() == 2 { "   times better\n" } else { "\n" });
        for part in &self.parts {
            for (at, line) in part.lines.iter().filter(|l| part.row.figures.contains(&l.figure.as_str())).enumerate() {
                let name = if at == 0 { part.row.name } else { "" };
                let members = if at == 0 { part.members.to_string() } else { String::new() };
                let _ = write!(out, "{name:<18} {members:>2}  {:<20}", line.figure);
                for spread in &line.spreads {
                    let _ = write!(out, " {:>28}", spread.map_or("-".into(), Spread::text));
                }
                let _ = writeln!(out, "{}", line.ratio().map_or(String::new(), |r| format!("   {r:>6.2}")));
            }
            for error in &part.errors {
                let _ = writeln!(out, "{:<18} {:>2}  {error}", part.row.name, part.members);
            }
        }
        if self.others > 0.2 {
            let _ = writeln!(
                out,
                "A busy machine: others used up to {:.1} CPUs while it was measured. Compare within a row, and distrust latencies.",
                self.others
            );
        }
        out
    }

    pub fn json(&self) -> Value {
        let parts: Vec<Value> = self
            .parts
            .iter()
            .map(|part| {
                let figures: Vec<Value> = part
                    .lines
                    .iter()
                    .map(|line| {
                        let sides: serde_json::Map<String, Value> = self
                            .sides
                            .iter()
                            .zip(&line.spreads)
                            .filter_map(|(side, spread)| {
                                let s = (*spread)?;
                                let v = json!({"median": s.median, "min": s.least, "max": s.most, "runs": s.runs});
                                Some((side.clone(), v))
                            })
                            .collect();
                        json!({"figure": line.figure, "sides": sides, "times_better": line.ratio()})
                    })
                    .collect();
                json!({
                    "row": part.row.name, "what": part.row.what, "members": part.members,
                    "figures": figures, "errors": part.errors,
                })
            })
            .collect();
        json!({"sides": self.sides, "awake": self.awake, "cpus": super::awake::mode(self.awake), "others_cpus_at_most": self.others, "rows": parts})
    }
}

fn part(journal: &Journal, row: &'static Row, members: usize, sides: &[String]) -> Part {
    let entries: Vec<_> =
        journal.entries.iter().filter(|e| e.key.row == row.name && e.key.members == members).collect();
    // The row's own order first, then whatever else was measured.
    let mut names: Vec<String> = row.figures.iter().map(|name| (*name).to_owned()).collect();
    for entry in &entries {
        names.extend(entry.figures.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
    }
    // A call that failed at once took no time: a run with errors is shown as such and is no figure.
    let good: Vec<_> = entries.iter().filter(|entry| !entry.failed()).collect();
    let lines = names
        .into_iter()
        .map(|figure| {
            let of = |side: &String| {
                Spread::of(
                    good.iter()
                        .filter(|e| e.key.side == *side)
                        .filter_map(|e| e.figures.get(&figure).copied())
                        .collect(),
                )
            };
            Line { spreads: sides.iter().map(of).collect(), figure }
        })
        .filter(|line| line.spreads.iter().any(Option::is_some))
        .collect();
    let errors = entries
        .iter()
        .filter_map(|e| Some(format!("{} run {}: {}", e.key.side, e.key.repeat + 1, e.error.as_ref()?)))
        .collect();
    Part { row, members, lines, errors }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_errors_is_no_figure() {
        use super::super::result::{Entry, Key};
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = Journal::open(&folder.path().join("results.jsonl"), false, false).expect("a new file");
        for (repeat, ops, errors) in [(0, 100.0, 0), (1, 9000.0, 7)] {
            let key = Key { row: "put-1".into(), members: 1, repeat, side: "kvorum".into() };
            let figures = [("ops/s".to_owned(), ops)].into();
            journal.add(Entry::of(key, Ok((figures, json!({"errors_total": errors}))))).expect("written");
        }
        let row = super::super::rows::ROWS.iter().find(|row| row.name == "put-1").expect("a row");
        let part = part(&journal, row, 1, &["kvorum".to_owned()]);
        let spread = part.lines[0].spreads[0].expect("one good run");
        assert_eq!((spread.median, spread.runs, part.errors.len()), (100.0, 1, 1));
    }

    #[test]
    fn medians_and_ratios() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(spread(&[3.0, 1.0, 2.0]).map(|s| (s.median, s.least, s.most)), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0]).map(|s| s.median), Some(2.5));
        assert_eq!(spread(&[f64::NAN]), None);
        let line =
            |figure: &str, a: f64, b: f64| Line { figure: figure.into(), spreads: vec![spread(&[a]), spread(&[b])] };
        assert_eq!(line("ops/s", 10.0, 40.0).ratio(), Some(4.0));
        assert_eq!(line("p99 ms", 10.0, 40.0).ratio(), Some(0.25), "less is better");
        assert_eq!(line("flushes/op", 0.0, 40.0).ratio(), None);
    }
}
