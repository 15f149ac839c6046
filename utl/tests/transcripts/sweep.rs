//! `verify` against damage: every kind of file, one byte at a time.

use crate::script::{Outcome, run};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn tree(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => tree(&path, found),
            path => drop(found.insert(path.clone(), fs::read(&path).expect("a file"))),
        }
    }
}

fn restored() -> (tempfile::TempDir, BTreeMap<PathBuf, Vec<u8>>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    crate::fixtures::write(dir.path());
    let done = run(dir.path(), "kvorum utl snapshot restore saved.db --data-dir d", None);
    assert_eq!(done.status, 0, "{}", done.stderr);
    let mut files = BTreeMap::new();
    tree(&dir.path().join("d"), &mut files);
    (dir, files)
}

fn verify(dir: &Path) -> Outcome {
    run(dir, "kvorum utl verify d", None)
}

/// Where a byte that matters lies, for each kind of file.
pub fn flips() -> Result<(), String> {
    let (dir, files) = restored();
    let healthy = verify(dir.path());
    if healthy.status != 0 || !healthy.stdout.starts_with("OK d\n") {
        return Err(format!("{healthy:?}"));
    }
    let mut kinds = 0;
    for (path, bytes) in &files {
        let name = path.strip_prefix(dir.path().join("d")).expect("below it").display().to_string();
        let places = match name.split('-').next().unwrap_or_default() {
            "identity" => vec![0, 9, bytes.len() / 2, bytes.len() - 2],
            "state/manifest" => vec![0, 8, 40, bytes.len() / 2, bytes.len() - 1],
            "state/index" => vec![0, 8, 30, 3000, 4096, 4104, 4200, bytes.len() - 1],
            "state/seg" => vec![0, 8, 30, 3000, 4096, 4099, 4112, 4130, bytes.len() / 2, bytes.len() - 1],
            _ if name.ends_with(".log") => vec![0, 8, 20, 40],
            "log/reached" | "log/tip" => vec![0, 8, 30, 40],
            _ => continue,
        };
        kinds += 1;
        for at in places {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            fs::write(path, &bad).expect("written");
            let found = verify(dir.path());
            if found.status != 1 || !found.stdout.contains(&format!("DAMAGED {name} at byte ")) {
                return Err(format!("{name}, byte {at} flipped: {found:?}"));
            }
        }
        fs::write(path, bytes).expect("written");
        if ["log/reached", "log/tip"].contains(&&*name) {
            // A directory of before these were written has none.
            continue;
        }
        fs::remove_file(path).expect("removed");
        let found = verify(dir.path());
        if found.status != 1 {
            return Err(format!("{name} removed: {found:?}"));
        }
        fs::write(path, bytes).expect("written");
    }
    let healthy = verify(dir.path());
    if kinds != 7 || healthy.status != 0 {
        return Err(format!("{kinds} kinds of files; {healthy:?}"));
    }
    Ok(())
}

/// Neither a healthy directory nor a damaged one is changed.
pub fn untouched() -> Result<(), String> {
    let (dir, mut files) = restored();
    for damage in [false, true] {
        if damage {
            let (path, bytes) = files.iter_mut().find(|(path, _)| path.ends_with("seg-00000001")).expect("a segment");
            bytes[5000] ^= 1;
            fs::write(path, bytes).expect("written");
        }
        verify(dir.path());
        run(dir.path(), "kvorum utl hashkv d", None);
        run(dir.path(), "kvorum utl defrag --data-dir d", None);
        let mut after = BTreeMap::new();
        tree(&dir.path().join("d"), &mut after);
        if files != after {
            return Err("the directory was changed".into());
        }
    }
    Ok(())
}
