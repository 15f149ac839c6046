//! What a member's directory consists of: each file with the structure it belongs to, and how far
//! it is used.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::copy::{extents, files};

/// Whose directories are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum System {
    Kvorum,
    Etcd,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            System::Kvorum => "kvorum",
            System::Etcd => "etcd",
        }
    }
}

/// One file that can be damaged.
#[derive(Clone, Debug)]
pub struct Place {
    /// What the file is to the member, as in the table.
    pub structure: &'static str,
    /// Relative to the data directory.
    pub path: String,
    /// Length of the file, in bytes.
    pub len: u64,
    /// End of what was written: zeros follow.
    pub used: u64,
}

/// All files of a directory that belong to a structure.
///
/// # Errors
/// If the directory cannot be read.
pub fn places(system: System, dir: &Path) -> Result<Vec<Place>> {
    let all = files(dir)?;
    let mut found = Vec::new();
    for path in &all {
        let structure = match system {
            System::Kvorum => kvorum(path, &all),
            System::Etcd => etcd(path, &all),
        };
        let Some(structure) = structure else { continue };
        let whole = dir.join(path);
        let file = File::open(&whole).with_context(|| whole.display().to_string())?;
        let len = file.metadata()?.len();
        let used = used(&file).with_context(|| whole.display().to_string())?;
        found.push(Place { structure, path: path.to_string_lossy().into_owned(), len, used });
    }
    Ok(found)
}

/// Whether no later file stands in the same folder under a name of the same kind.
fn newest(path: &Path, all: &[PathBuf], same: impl Fn(&str) -> bool) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let own = name(path);
    let later = |other: &&PathBuf| other.parent() == path.parent() && same(&name(other)) && name(other) > own;
    !all.iter().any(|other| later(&other))
}

fn kvorum(path: &Path, all: &[PathBuf]) -> Option<&'static str> {
    let text = path.to_string_lossy();
    let (dir, name) = text.rsplit_once('/').unwrap_or(("", &text));
    let newest = |same: &str, then, otherwise| {
        let alike = |name: &str| name.starts_with(same) && !name.ends_with(".part");
        if newest(path, all, alike) { then } else { otherwise }
    };
    Some(match (dir, name) {
        ("", "identity") => "identity",
        ("log", "reached") => "log/reached",
        ("log", "tip") => "log/tip",
        ("log", "doubt") => "log/doubt",
        ("log", "founding") => "log/founding",
        ("log", "voters") => "log/voters",
        ("log", "late" | "restored" | "rebuilt" | "corrupt" | "contradicted") => "log: marks",
        ("log", name) if name.starts_with("reserve-") => "log: reserve",
        ("log", name) if name.starts_with("spare") => "log: spare",
        ("log", name) if name.ends_with(".log") => newest("0", "log: newest", "log: closed"),
        ("state", name) if name.ends_with(".part") => "unfinished checkpoint",
        ("state", name) if name.starts_with("manifest-") => newest("manifest-", "manifest: newest", "manifest: older"),
        ("state", name) if name.starts_with("index-") => newest("index-", "index: newest", "index: older"),
        ("state", name) if name.starts_with("tables-") => newest("tables-", "tables: newest", "tables: older"),
        ("state", name) if name.starts_with("seg-") => newest("seg-", "segment: newest", "segment: sealed"),
        _ => return None,
    })
}

fn etcd(path: &Path, all: &[PathBuf]) -> Option<&'static str> {
    let text = path.to_string_lossy();
    let (dir, name) = text.rsplit_once('/').unwrap_or(("", &text));
    Some(match (dir, name) {
        ("member/wal", name) if name.ends_with(".wal") => match newest(path, all, |n| n.ends_with(".wal")) {
            true => "wal: newest",
            false => "wal: closed",
        },
        ("member/snap", "db") => "db",
        ("member/snap", name) if name.ends_with(".snap") => match newest(path, all, |n| n.ends_with(".snap")) {
            true => "snap: newest",
            false => "snap: older",
        },
        _ => return None,
    })
}

/// Where the last byte lies that is not zero, plus one.
fn used(file: &File) -> io::Result<u64> {
    const PIECE: u64 = 64 << 10;
    const PAGE: usize = 4 << 10;
    let mut buffer = vec![0; PIECE as usize];
    for (from, to) in extents(file)?.into_iter().rev() {
        let mut end = to;
        while end > from {
            let at = end.saturating_sub(PIECE).max(from);
            let piece = &mut buffer[..(end - at) as usize];
            file.read_exact_at(piece, at)?;
            let Some(last) = piece.iter().rposition(|byte| *byte != 0) else {
                end = at;
                continue;
            };
            // A page that says that the log ends before it.
            let page = last / PAGE * PAGE;
            if !piece[page..].starts_with(b"kvlogend") {
                return Ok(at + last as u64 + 1);
            }
            end = at + page as u64;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_of_a_kind_is_told_from_the_others() {
        let all: Vec<PathBuf> =
            ["log/0000000000000001.log", "log/0000000000000002.log", "log/tip", "state/seg-00000001"]
                .iter()
                .map(PathBuf::from)
                .collect();
        let of = |at: usize| kvorum(&all[at], &all).unwrap();
        assert_eq!([of(0), of(1), of(2), of(3)], ["log: closed", "log: newest", "log/tip", "segment: newest"]);
    }
}
