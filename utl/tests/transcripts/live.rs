//! Beside the stock programs: skipped where KVORUM_TEST_ETCD is not set.

use crate::fixtures;
use crate::script::{Outcome, Step, cases, parse, run};
use std::fs;
use std::path::PathBuf;

fn programs() -> Option<PathBuf> {
    let folder = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from);
    if folder.is_none() {
        println!("(KVORUM_TEST_ETCD is not set: skipped)");
    }
    folder
}

/// What scripts read: not the log, and not where in which source a line of it was written.
fn told(outcome: &Outcome) -> (String, String, i32) {
    let stderr: Vec<&str> = outcome.stderr.lines().filter(|line| !line.starts_with("TIME")).collect();
    (outcome.stdout.clone(), stderr.join("\n"), outcome.status)
}

/// Every command line of the scripts that is not marked otherwise, given to the stock tool.
pub fn stock() -> Result<(), String> {
    let Some(stock) = programs() else { return Ok(()) };
    let mut wrong = String::new();
    let mut count = 0;
    for case in cases() {
        for step in parse(&fs::read_to_string(&case).expect("a case")) {
            let Step::Command { line, compared: true, expected } = step else { continue };
            // The stock tool changes what it reads and leaves what it fails at.
            let dir = tempfile::tempdir().expect("a temporary folder");
            fixtures::write(dir.path());
            let outcome = run(dir.path(), &line, Some(&stock));
            count += 1;
            if told(&outcome) != told(&expected) {
                wrong.push_str(&format!("{}: {line}\nstock {outcome:#?}\nours {expected:#?}\n", case.display()));
            }
        }
    }
    println!("({count} command lines)");
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

pub fn migration() -> Result<(), String> {
    let Some(_stock) = programs() else { return Ok(()) };
    Ok(())
}
