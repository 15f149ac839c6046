//! What the runs gave, kept beside the page: a run of one scenario leaves the others as they were.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// What one round gave.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Longest time without an acknowledged put through any member, in milliseconds.
    pub gap: f64,
    /// When it began, in milliseconds after the fault.
    pub begins: f64,
    /// The same for the clients of those that were well, each alone: the worst of them.
    pub well: f64,
    /// Acknowledged puts.
    pub acked: u64,
    /// What clients saw, and how often.
    pub errors: BTreeMap<String, u64>,
    /// What must not be.
    pub wrong: Vec<String>,
    /// Processes that ended by themselves.
    pub ended: Vec<String>,
}

/// All rounds of a scenario with one program.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of the program.
    pub version: String,
    /// Day, commit and machine.
    pub made: String,
    /// In their order.
    pub rounds: Vec<Round>,
}

/// By scenario and program.
pub type Results = BTreeMap<String, BTreeMap<String, Outcome>>;

impl Outcome {
    /// Median and maximum of what a round says.
    pub fn spread(&self, of: impl Fn(&Round) -> f64) -> (f64, f64) {
        let mut all: Vec<f64> = self.rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        (all.get(all.len() / 2).copied().unwrap_or(0.0), all.last().copied().unwrap_or(0.0))
    }

    /// What clients saw in all rounds.
    pub fn errors(&self) -> BTreeMap<&str, u64> {
        let mut all = BTreeMap::new();
        for (text, count) in self.rounds.iter().flat_map(|round| &round.errors) {
            *all.entry(text.as_str()).or_default() += count;
        }
        all
    }

    /// What was wrong, in all rounds.
    pub fn wrong(&self) -> impl Iterator<Item = &String> {
        self.rounds.iter().flat_map(|round| &round.wrong)
    }
}

fn of_round(round: &Round) -> Value {
    json!({
        "gap ms": round.gap.round(), "gap begins ms": round.begins.round(), "gap of the well ms": round.well.round(), "acknowledged": round.acked,
        "errors": round.errors, "wrong": round.wrong, "ended": round.ended,
    })
}

fn round(value: &Value) -> Round {
    let texts = |name: &str| {
        let texts = value[name].as_array().into_iter().flatten();
        texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let errors = value["errors"].as_object().into_iter().flatten();
    Round {
        gap: value["gap ms"].as_f64().unwrap_or(0.0),
        begins: value["gap begins ms"].as_f64().unwrap_or(0.0),
        well: value["gap of the well ms"].as_f64().unwrap_or(0.0),
        acked: value["acknowledged"].as_u64().unwrap_or(0),
        errors: errors.map(|(text, count)| (text.clone(), count.as_u64().unwrap_or(0))).collect(),
        wrong: texts("wrong"),
        ended: texts("ended"),
    }
}

/// What was kept; nothing if there is no such file.
///
/// # Errors
/// If the file is not what [`write()`] wrote.
pub fn read(path: &Path) -> Result<Results> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(Results::new()) };
    let value: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let mut results = Results::new();
    for (scene, sides) in value.as_object().into_iter().flatten() {
        for (side, outcome) in sides.as_object().into_iter().flatten() {
            let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
            let rounds = outcome["rounds"].as_array().into_iter().flatten().map(round).collect();
            let outcome = Outcome { version: text("version"), made: text("made"), rounds };
            results.entry(scene.clone()).or_default().insert(side.clone(), outcome);
        }
    }
    Ok(results)
}

/// Keeps it.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, results: &Results) -> Result<()> {
    let of = |outcome: &Outcome| {
        let rounds: Vec<Value> = outcome.rounds.iter().map(of_round).collect();
        json!({ "version": outcome.version, "made": outcome.made, "rounds": rounds })
    };
    let scenes = results.iter().map(|(scene, sides)| {
        let sides: serde_json::Map<String, Value> = sides.iter().map(|(side, it)| (side.clone(), of(it))).collect();
        (scene.clone(), Value::Object(sides))
    });
    let all: serde_json::Map<String, Value> = scenes.collect();
    let text = serde_json::to_string_pretty(&Value::Object(all))?;
    fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_can_be_read() {
        let round = Round {
            gap: 12.0,
            begins: 1.0,
            well: 13.0,
            acked: 7,
            errors: [("no answer".to_owned(), 3)].into(),
            wrong: vec!["lost".into()],
            ended: vec!["m0".into()],
        };
        let outcome = Outcome { version: "1".into(), made: "today".into(), rounds: vec![round.clone(), round] };
        let results: Results = [("kill".to_owned(), [("etcd".to_owned(), outcome)].into())].into();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept.json");
        write(&path, &results).unwrap();
        assert_eq!(format!("{:?}", read(&path).unwrap()), format!("{results:?}"));
    }

    #[test]
    fn the_median_and_the_most_of_rounds() {
        let round = |gap| Round { gap, ..Round::default() };
        let outcome = Outcome { rounds: [30.0, 10.0, 20.0].map(round).to_vec(), ..Outcome::default() };
        assert_eq!(outcome.spread(|round| round.gap), (20.0, 30.0));
        assert_eq!(Outcome::default().spread(|round| round.gap), (0.0, 0.0));
    }
}
