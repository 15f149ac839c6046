//! `docs/invariants.md` is the one place that says what must hold. Every id that the tree uses is
//! defined there, every id defined there is checked, and what an entry names is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/invariants.md";
const PLANTED: &str = "docs/planted-bugs.md";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Texts below `folder` that may use an id, by their path from the workspace.
fn texts(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let outside = name == "target" || name == "fixtures" || path.ends_with("tests/peers") || name.starts_with('.');
        if path.is_dir() && !outside {
            texts(&path, found);
        } else if [".rs", ".txt", ".md"].iter().any(|ending| name.ends_with(ending)) {
            let place = path.strip_prefix(workspace()).expect("below the workspace").display().to_string();
            found.insert(place, read(&path));
        }
    }
}

fn tree() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    texts(&workspace(), &mut found);
    found
}

/// An id of an invariant: one or two capitals, a hyphen, one or two digits.
fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(family, number)| {
        (1..=2).contains(&family.len())
            && family.bytes().all(|b| b.is_ascii_uppercase())
            && (1..=2).contains(&number.len())
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// An id of a case of etcd: `C` and a number.
fn is_case(word: &str) -> bool {
    word.strip_prefix('C').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
}

/// The entries of the page: id to its whole text.
fn entries() -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for item in read(&workspace().join(PAGE)).split("\n- **").skip(1) {
        let (id, rest) = item.split_once("**").expect("an id ends with **");
        let text = rest.split("\n\n").next().unwrap_or_default().to_string();
        assert!(found.insert(id.to_string(), text).is_none(), "{PAGE}: {id} is defined twice");
    }
    found.retain(|id, _| !["Oracle", "Alone"].contains(&id.as_str()));
    found
}

#[test]
fn every_id_that_is_used_is_defined() {
    let defined = entries();
    for (path, text) in tree().iter().filter(|(path, _)| *path != PAGE) {
        for word in words(text).filter(|word| is_id(word)) {
            assert!(defined.contains_key(word), "{path}: {word} is not defined in {PAGE}");
        }
        let script = path.contains("tests/") && path.ends_with(".txt");
        for line in text.lines().filter(|line| script && line.starts_with('#')) {
            for word in words(line).filter(|word| is_case(word)) {
                assert!(defined.contains_key(word), "{path}: {word} is not defined in {PAGE}");
            }
        }
    }
    for (path, text) in tree().iter().filter(|(path, _)| path.starts_with("sim/src/")) {
        for id in text.split("fail(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(defined.contains_key(id), "{path}: {id} is not defined in {PAGE}");
        }
    }
    for row in read(&workspace().join(PLANTED)).lines().filter(|line| line.starts_with("| `")) {
        for id in row.rsplit(" | ").next().unwrap_or_default().trim_end_matches(" |").split(", ") {
            assert!(defined.contains_key(id), "{PLANTED}: {id} is not defined in {PAGE}");
        }
    }
}

#[test]
fn every_id_that_is_defined_is_checked() {
    let tree = tree();
    for id in entries().keys() {
        let literal = format!("\"{id}\"");
        let checked = tree.iter().any(|(path, text)| {
            if is_case(id) {
                path.starts_with("store/tests/scripts/") && words(text).any(|word| word == id)
            } else {
                path.starts_with("sim/src/") && path != "sim/src/planted.rs" && text.contains(&literal)
            }
        });
        assert!(checked, "{PAGE}: nothing checks {id}");
    }
}

#[test]
fn what_an_entry_names_is_there() {
    let tree = tree();
    for (id, text) in entries() {
        let (oracle, alone) = text.split_once("Alone:").unwrap_or_else(|| panic!("{PAGE}: {id} says no `Alone:`"));
        let named: BTreeSet<&str> = alone.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty() || alone.contains("nothing yet"), "{PAGE}: what shows {id} alone?");
        for name in named {
            let (path, function) = name.split_once("::").unwrap_or((name, ""));
            let file = tree.get(path).unwrap_or_else(|| panic!("{PAGE}: {id} names {path}, which is not there"));
            assert!(function.is_empty() || has(file, function), "{PAGE}: {id} names {name}, which is not there");
        }
        let Some((_, oracle)) = oracle.split_once("Oracle:") else {
            assert!(is_case(&id), "{PAGE}: {id} says no `Oracle:`");
            continue;
        };
        for name in oracle.split('`').skip(1).step_by(2) {
            let (module, function) = name.split_once("::").expect("module::function");
            let places = [format!("sim/src/{module}.rs"), format!("sim/src/{module}/")];
            let there = |path: &str| path == places[0] || path.starts_with(&places[1]);
            let literal = format!("\"{id}\"");
            let found = tree.iter().any(|(path, text)| there(path) && has(text, function) && text.contains(&literal));
            assert!(found, "{PAGE}: {id} names the oracle {name}, which is not there or does not say the id");
        }
    }
}

fn has(text: &str, function: &str) -> bool {
    text.contains(&format!("fn {function}(")) || text.contains(&format!("fn {function}<"))
}
