//! Results of single runs, one JSON object a line, written as soon as they are there.

use super::rows::Row;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Which run it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub row: String,
    pub members: usize,
    pub repeat: usize,
    pub side: String,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    /// By name, with the unit in it.
    pub figures: BTreeMap<String, f64>,
    /// What the generator said, in full.
    pub report: Value,
    pub error: Option<String>,
}

impl Entry {
    pub fn of(key: Key, result: Result<(BTreeMap<String, f64>, Value)>) -> Entry {
        match result {
            Ok((figures, report)) => {
                let error = errors(&report);
                Entry { key, figures, report, error }
            }
            Err(error) => {
                Entry { key, figures: BTreeMap::new(), report: Value::Null, error: Some(format!("{error:#}")) }
            }
        }
    }

    pub fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// For the terminal.
    pub fn line(&self, row: &Row) -> String {
        let figures: Vec<String> = row
            .figures
            .iter()
            .filter_map(|name| Some(format!("{name} {}", number(*self.figures.get(*name)?))))
            .collect();
        match &self.error {
            Some(error) => format!("{} ERRORS: {error}", figures.join(", ")),
            None => figures.join(", "),
        }
    }

    fn json(&self, awake: bool) -> Value {
        let Key { row, members, repeat, side } = &self.key;
        json!({
            "row": row, "members": members, "repeat": repeat, "side": side, "awake": awake,
            "figures": self.figures, "report": self.report, "error": self.error,
        })
    }

    /// An entry, and whether it was measured with CPUs kept awake.
    fn parse(line: &str) -> Option<(Entry, bool)> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| value[name].as_u64().map(|n| n as usize);
        let figures = value["figures"].as_object()?;
        let entry = Entry {
            key: Key {
                row: value["row"].as_str()?.into(),
                members: number("members")?,
                repeat: number("repeat")?,
                side: value["side"].as_str()?.into(),
            },
            figures: figures.iter().filter_map(|(name, v)| Some((name.clone(), v.as_f64()?))).collect(),
            report: value["report"].clone(),
            error: value["error"].as_str().map(str::to_owned),
        };
        Some((entry, value["awake"].as_bool().unwrap_or(false)))
    }
}

/// What went wrong within a run that has a result.
fn errors(report: &Value) -> Option<String> {
    let count = report["errors_total"].as_u64().unwrap_or(0);
    let owed = report["unanswered"].as_u64().unwrap_or(0);
    if count + owed == 0 || report["errors_expected"].as_bool() == Some(true) {
        return None;
    }
    Some(format!("{count} errors, {owed} unanswered: {}", report["errors"]))
}

/// The file of results.
#[derive(Debug)]
pub struct Journal {
    file: File,
    pub entries: Vec<Entry>,
    /// Whether the CPUs were kept from halting: of all entries alike.
    pub awake: bool,
}

impl Journal {
    /// # Errors
    /// If the file cannot be made, a line of it is no result, or one was measured in the other
    /// mode.
    pub fn open(path: &Path, resume: bool, awake: bool) -> Result<Journal> {
        let mut entries = Vec::new();
        if resume && path.exists() {
            let text = std::fs::read_to_string(path)?;
            for (at, line) in text.lines().enumerate() {
                // A run that was killed may have left half a line, as the last one.
                match Entry::parse(line) {
                    Some((_, was)) if was != awake => anyhow::bail!(
                        "{}:{}: measured with{} --awake; the two modes do not mix: choose another --out",
                        path.display(),
                        at + 1,
                        if was { "" } else { "out" }
                    ),
                    Some((entry, _)) => entries.push(entry),
                    None if at + 1 == text.lines().count() => {}
                    None => anyhow::bail!("{}:{}: no result; remove the line", path.display(), at + 1),
                }
            }
        }
        let mut file = File::create(path).with_context(|| path.display().to_string())?;
        for entry in &entries {
            writeln!(file, "{}", entry.json(awake))?;
        }
        Ok(Journal { file, entries, awake })
    }

    /// A run that failed is not a result: it is made again.
    pub fn has(&self, key: &Key) -> bool {
        self.entries.iter().any(|entry| entry.key == *key && !entry.failed())
    }

    pub fn add(&mut self, entry: Entry) -> Result<()> {
        self.entries.retain(|old| old.key != entry.key);
        writeln!(self.file, "{}", entry.json(self.awake))?;
        self.file.flush()?;
        self.entries.push(entry);
        Ok(())
    }
}

/// A number as it is read: three digits that count.
pub fn number(value: f64) -> String {
    match value.abs() {
        a if a >= 10_000.0 => {
            let digits = format!("{value:.0}");
            let mut out = String::new();
            for (at, c) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) && !out.ends_with('-') {
                    out.push(',');
                }
                out.push(c);
            }
            out
        }
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        a if a >= 0.1 || a == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_goes_on_where_it_stopped() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("results.jsonl");
        let key = |repeat| Key { row: "put".into(), members: 3, repeat, side: "etcd".into() };
        let figures = BTreeMap::from([("ops/s".to_owned(), 5.0)]);
        let mut journal = Journal::open(&path, true, false).expect("a new file");
        journal.add(Entry::of(key(0), Ok((figures.clone(), Value::Null)))).expect("written");
        journal.add(Entry::of(key(1), Ok((figures, json!({"errors_total": 2, "errors": {"x": 2}}))))).expect("written");
        let mut text = std::fs::read_to_string(&path).expect("a file");
        text.push_str("{\"row\": \"pu");
        std::fs::write(&path, text).expect("written");

        let again = Journal::open(&path, true, false).expect("half a line at the end is no harm");
        assert_eq!(again.entries.len(), 2);
        assert!(again.has(&key(0)));
        assert!(!again.has(&key(1)), "a run with errors is made again");
        assert_eq!(again.entries[0].figures["ops/s"], 5.0);
        let mixed = Journal::open(&path, true, true).expect_err("another mode").to_string();
        assert!(mixed.contains("measured without --awake"), "{mixed}");
        assert!(Journal::open(&path, false, false).expect("anew").entries.is_empty());
    }

    #[test]
    fn numbers_are_readable() {
        for (value, text) in
            [(1_234_567.0, "1,234,567"), (999.6, "1000"), (12.34, "12.3"), (0.0123, "0.0123"), (0.0, "0.00")]
        {
            assert_eq!(number(value), text);
        }
    }
}
