//! Starts, refusals and stops of the real program: what is said, with which status, and
//! that a refused start leaves everything as it was.

#[path = "../live/mod.rs"]
mod live;

mod damage;
mod dev;
mod flags;
mod life;
mod logs;
mod second_terminal;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// All files below a directory with their bytes.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).expect("reads"));
        }
    }
    all
}

/// Panics unless the directory is as it was.
#[track_caller]
fn unchanged(before: &BTreeMap<PathBuf, Vec<u8>>, dir: &Path) {
    same(before, &contents(dir));
}

/// Panics unless both are the same; bytes are not shown.
#[track_caller]
fn same(before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>) {
    let names = |all: &BTreeMap<PathBuf, Vec<u8>>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(after), names(before));
    for (path, bytes) in before {
        assert!(after[path] == *bytes, "{} was changed", path.display());
    }
}
