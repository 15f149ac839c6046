//! The house is tidy: floors, forbidden words below the edge, one page at the head of each
//! crate, no file that is two things. What the compiler cannot guard is guarded here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which of our crates each crate may use (normal dependencies; tests are free).
const FLOORS: [(&str, &[&str]); 19] = [
    ("consensus", &[]),
    ("store", &[]),
    ("wire", &[]),
    ("disk", &["consensus", "store"]),
    ("node", &["consensus", "disk", "store"]),
    ("bolt", &[]),
    ("tls", &[]),
    ("server", &["bolt", "client", "consensus", "disk", "node", "store", "tls", "wire"]),
    ("client", &["tls", "wire"]),
    ("cobra", &[]),
    ("backup", &["bolt"]),
    ("ctl", &["backup", "bolt", "client", "cobra", "utl", "wire"]),
    ("utl", &["bolt", "cobra", "consensus", "disk", "node", "store", "wire"]),
    ("proxy", &["client", "cobra", "tls"]),
    ("bench", &["client", "wire"]),
    ("kvorum", &["bench", "client", "cobra", "ctl", "proxy", "server", "utl"]),
    ("sim", &["bolt", "consensus", "disk", "node", "store"]),
    ("testkit", &["disk"]),
    ("xtask", &["client", "wire"]),
];

/// Crates without clock, socket, thread, lock, hidden randomness or hash-map order.
const PURE: [&str; 6] = ["bolt", "consensus", "store", "wire", "disk", "node"];

const FORBIDDEN: [&str; 19] = [
    "async fn",
    ".await",
    "tokio::",
    "std::net",
    "std::thread",
    "thread::spawn",
    "Mutex<",
    "RwLock<",
    "SystemTime",
    "Instant::",
    "thread_rng",
    " rand::",
    "rand_chacha",
    "HashMap",
    "HashSet",
    "RandomState",
    "cfg(sim",
    "std::fs",
    "std::env",
];

const LINES_MAX: usize = 900;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn rust_files(below: &str) -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    sources(&workspace().join(below), &mut paths);
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("readable"))).collect()
}

/// Product code of a file: without comments and without what stands behind `#[cfg(test)]`.
fn product(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn crates_use_lower_floors_only() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let allowed: BTreeMap<&str, &[&str]> = FLOORS.into_iter().collect();
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("crate {name} has no floor: give it one here"));
        seen.insert(name.to_string());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("a name");
            let ours = dependency["path"].is_string() && dependency["kind"].is_null();
            assert!(!ours || allowed.contains(&used), "{name} must not use {used}");
        }
    }
    assert_eq!(seen.len(), FLOORS.len(), "a crate of the list is gone");
}

#[test]
fn no_clock_thread_or_chance_below_the_edge() {
    for name in PURE {
        for (path, text) in rust_files(&format!("{name}/src")) {
            for (number, line) in product(&text) {
                for word in FORBIDDEN {
                    assert!(
                        !line.contains(word),
                        "{}:{}: `{word}` does not belong below the edge",
                        path.display(),
                        number + 1
                    );
                }
            }
        }
    }
}

#[test]
fn every_crate_begins_with_its_page() {
    for (name, _) in FLOORS {
        let root = workspace().join(name).join("src");
        let main = ["lib.rs", "main.rs"].into_iter().map(|file| root.join(file)).find(|path| path.exists());
        let text = std::fs::read_to_string(main.expect("a crate has a root")).expect("readable");
        assert!(text.starts_with("//! "), "{name} does not say what it is for, for whom, and what it refuses");
    }
}

#[test]
fn files_are_one_thing_and_finished() {
    for (name, _) in FLOORS {
        for (path, text) in rust_files(name) {
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines: is it still one thing?", path.display());
            let this = path.ends_with("tidy.rs");
            for word in ["TODO", "FIXME", "todo!(", "unimplemented!("] {
                assert!(this || !text.contains(word), "{}: {word}", path.display());
            }
            for place in ["/work/", "/root/", "/home/"] {
                assert!(this || !text.contains(place), "{}: a path of one machine", path.display());
            }
        }
    }
}

#[test]
fn no_crate_or_module_without_an_owner() {
    for (name, _) in FLOORS {
        for (path, _) in rust_files(name) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            assert!(!["util", "utils", "common", "helpers", "misc"].contains(&stem.as_str()), "{}", path.display());
        }
    }
}

/// What every part of a member may use. Among themselves these have their own order.
const NODE_GROUND: [&str; 12] =
    ["config", "frame", "ground", "io", "jobs", "pace", "permit", "queue", "scan", "tally", "work", "writing"];

/// Files of `node/src` that put parts together, or stand beside the member. Every other file is a
/// part.
const NODE_WHOLE: [&str; 5] = ["lib", "member", "offline", "recover", "watch"];

/// A part that has a second file for itself.
const NODE_INNER: [(&str, &str); 3] = [("watches", "history"), ("gate", "forwards"), ("mend", "placing")];

/// The modules of its own crate that a file names, so many folders below the root. Names that the
/// crate exports count by themselves.
fn own_modules(text: &str, folders: usize) -> BTreeSet<String> {
    let code = product(text).map(|(_, line)| line).collect::<Vec<_>>().join("\n");
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let above = "super::".repeat(folders + 1);
    let named = code.split("crate::").skip(1).chain(code.split(&above).skip(1));
    named.map(name).filter(|name: &String| !name.is_empty() && name != "super").collect()
}

#[test]
fn parts_of_a_member_know_the_ground_alone() {
    let mut parts = 0;
    for (path, text) in rust_files("node/src") {
        let inside = path.strip_prefix(workspace().join("node/src")).expect("below it").with_extension("");
        let file = inside.iter().next().expect("a name").to_string_lossy().into_owned();
        if NODE_WHOLE.contains(&file.as_str()) {
            continue;
        }
        let is_ground = NODE_GROUND.contains(&file.as_str());
        parts += usize::from(!is_ground);
        let folders = inside.iter().count() - 1;
        for used in own_modules(&text, folders) {
            let own = NODE_INNER.contains(&(file.as_str(), used.as_str()));
            let below = NODE_GROUND.contains(&used.as_str()) && !(is_ground && used == "ground");
            assert!(own || below, "{}: what it names of `{used}` comes as a value, by way of `member`", path.display());
        }
    }
    assert!(parts > 10, "the parts have moved: {parts} files");
}

/// The page of `node` names every file once, and no other.
#[test]
fn the_page_of_a_member_names_every_file() {
    let folder = workspace().join("node/src");
    let page = std::fs::read_to_string(folder.join("lib.rs")).expect("the page");
    let row = |line: &str| Some(line.strip_prefix("//! | `")?.split_once("` | ")?.0.to_string());
    let mut named: Vec<String> = page.lines().filter_map(row).collect();
    let mut files: Vec<String> = rust_files("node/src")
        .iter()
        .map(|(path, _)| path.strip_prefix(&folder).expect("below it").with_extension("").display().to_string())
        .filter(|file| file != "lib" && !file.ends_with("tests"))
        .collect();
    named.sort();
    files.sort();
    assert_eq!(named, files, "left: the rows of node/src/lib.rs; right: its files");
}

/// Of the edge, what carries a call knows what serves it through one table.
#[test]
fn the_transport_knows_no_service() {
    let files = rust_files("server/src/transport");
    assert!(files.len() > 5, "the transport has moved: {} files", files.len());
    for (path, text) in files {
        let code: Vec<&str> = product(&text).map(|(_, line)| line).collect();
        for named in code.join("\n").split("services::").skip(1) {
            assert!(named.starts_with("table"), "{}: it names a service, not the table", path.display());
        }
    }
}

#[test]
fn every_module_that_a_file_names_is_seen() {
    let named = |text, folders| own_modules(text, folders).into_iter().collect::<Vec<_>>().join(" ");
    let text = "use crate::gate::Gate;\n// crate::health\nfn f() { crate::lessor::g(crate::Node) }";
    assert_eq!(named(text, 0), "Node gate lessor");
    let text = "use super::gate::Gate;\nuse super::super::mend::Mend;\nuse super::*;";
    assert_eq!((named(text, 0).as_str(), named(text, 1).as_str()), ("gate mend", "mend"));
}

/// Lines of prose, in characters: Markdown, and comments of Rust. One width, so that a paragraph
/// that is mended does not change its neighbours.
const PROSE_MAX: usize = 100;

fn tracked(suffix: &str) -> Vec<(PathBuf, String)> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", suffix])
        .current_dir(workspace())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    names
        .lines()
        .map(|name| workspace().join(name))
        .filter(|path| path.exists())
        .map(|path| (path.clone(), std::fs::read_to_string(path).expect("readable")))
        .collect()
}

/// Tables and what stands between fences have the width they need.
#[test]
fn prose_has_one_width() {
    let mut long = Vec::new();
    for (path, text) in tracked("*.md") {
        let mut fenced = false;
        for (number, line) in text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if !fenced && !line.starts_with('|') && line.chars().count() > PROSE_MAX {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    for (path, text) in tracked("*.rs") {
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let Some(prose) = comment.strip_prefix("//") else { continue };
            let prose = prose.trim_start_matches(['/', '!']).trim();
            let table = prose.starts_with('|') || prose.contains("   ") || prose.contains(" | ");
            if !table && line.chars().count() > PROSE_MAX {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than {PROSE_MAX} characters:\n{}", long.join("\n"));
}

/// Lines of a paragraph or of an item of a list. What is longer is several things.
const PARAGRAPH_MAX: usize = 5;

/// Where paragraphs and items of lists are too long, outside of tables and fences.
fn long_paragraphs(text: &str) -> Vec<usize> {
    let (mut fenced, mut lines, mut long) = (false, 0, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let fence = line.starts_with("```");
        fenced ^= fence;
        if fence || fenced || line.is_empty() || line.starts_with(['|', '#']) {
            lines = 0;
            continue;
        }
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = digits.len() < line.len() && digits.starts_with(". ");
        if numbered || line.starts_with("- ") || line.starts_with("* ") {
            lines = 0;
        }
        lines += 1;
        if lines == PARAGRAPH_MAX + 1 {
            long.push(number + 1 - PARAGRAPH_MAX);
        }
    }
    long
}

#[test]
fn paragraphs_are_short() {
    let mut long = Vec::new();
    for (path, text) in tracked("*.md") {
        long.extend(long_paragraphs(&text).iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert!(long.is_empty(), "more than {PARAGRAPH_MAX} lines:\n{}", long.join("\n"));
}

#[test]
fn a_long_paragraph_is_seen() {
    let five = "a\n".repeat(5);
    assert_eq!(long_paragraphs(&format!("{five}a\n\n{five}- b\n{five}")), [1, 13]);
    assert_eq!(long_paragraphs(&format!("{five}\n- a\n{}12. b\n{}", &five[2..], &five[2..])), Vec::<usize>::new());
    assert_eq!(long_paragraphs(&format!("```\n{five}{five}```\n# A\n{}", "| a |\n".repeat(9))), Vec::<usize>::new());
}
