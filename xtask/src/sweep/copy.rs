//! Copies of data directories. Holes stay holes, and a file that did not change since it was last
//! restored is not copied again: a directory of hundreds of megabytes is ready for the next case in
//! milliseconds.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

/// The parts of a file that are not holes: (from, to), in bytes, ascending.
pub fn extents(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let len = file.metadata()?.len();
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = seek(file, SeekFrom::Hole(from))?;
        found.push((from, at.min(len)));
    }
    Ok(found)
}

/// Copies one file, its holes and its mode.
pub fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let work = || -> io::Result<()> {
        let source = File::open(from)?;
        let meta = source.metadata()?;
        let target = File::create(to)?;
        target.set_permissions(meta.permissions())?;
        let mut buffer = vec![0; PIECE];
        for (mut at, end) in extents(&source)? {
            while at < end {
                let want = (end - at).min(PIECE as u64) as usize;
                source.read_exact_at(&mut buffer[..want], at)?;
                target.write_all_at(&buffer[..want], at)?;
                at += want as u64;
            }
        }
        target.set_len(meta.len())
    };
    work().with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

/// The files below a directory, relative to it, sorted.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    fn walk(dir: &Path, below: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(dir.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => walk(dir, &path, found)?,
                false => found.push(path),
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(dir, Path::new(""), &mut found).with_context(|| dir.display().to_string())?;
    found.sort();
    Ok(found)
}

/// Copies a whole directory to a place where nothing is yet.
pub fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    Slot::new(from, to).restore()
}

/// What tells a file that was written to from one that was not.
type Stamp = (u64, u64, i64, i64);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let meta = fs::metadata(path)?;
    Ok((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// A directory in which a member lives for one case, and the one it is restored from.
#[derive(Debug)]
pub struct Slot {
    pristine: PathBuf,
    pub dir: PathBuf,
    /// Of the files as they were restored.
    seen: BTreeMap<PathBuf, Stamp>,
}

impl Slot {
    pub fn new(pristine: &Path, dir: &Path) -> Slot {
        Slot { pristine: pristine.to_owned(), dir: dir.to_owned(), seen: BTreeMap::new() }
    }

    /// The file is restored next time whatever its time stamp says: stamps are coarser than this
    /// program.
    pub fn touched(&mut self, path: &str) {
        self.seen.remove(Path::new(path));
    }

    /// Makes the directory equal to the pristine one.
    ///
    /// # Errors
    /// If a file cannot be copied; the next call begins anew.
    pub fn restore(&mut self) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        let wanted = files(&self.pristine)?;
        for path in files(&self.dir)? {
            if wanted.binary_search(&path).is_err() {
                let path = self.dir.join(path);
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
        for path in wanted {
            let to = self.dir.join(&path);
            let same = stamp(&to).is_ok_and(|now| self.seen.get(&path) == Some(&now));
            if same {
                continue;
            }
            self.seen.remove(&path);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
            }
            copy_file(&self.pristine.join(&path), &to)?;
            self.seen.insert(path, stamp(&to)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_directory_equals_the_pristine_one() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("log")).unwrap();
        fs::write(from.join("identity"), "who").unwrap();
        let sparse = File::create(from.join("log/1")).unwrap();
        sparse.set_len(8 << 20).unwrap();
        sparse.write_all_at(b"middle", 4 << 20).unwrap();
        let mut slot = Slot::new(&from, &to);
        slot.restore().unwrap();
        assert_eq!(fs::read(from.join("log/1")).unwrap(), fs::read(to.join("log/1")).unwrap());

        fs::remove_file(to.join("identity")).unwrap();
        fs::write(to.join("log/2"), "new").unwrap();
        fs::write(to.join("log/1"), "short").unwrap();
        slot.touched("log/1");
        slot.restore().unwrap();
        assert_eq!(files(&to).unwrap(), [PathBuf::from("identity"), PathBuf::from("log/1")]);
        assert_eq!(fs::read(to.join("log/1")).unwrap().len(), 8 << 20);
    }
}
