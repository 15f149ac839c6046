//! Data directories on the real disk, for a tool: a new one that is being written ([`New`]), and
//! an existing one that stays as it is ([`Frozen`]).
//!
//! What recovery would change in a directory, `Frozen` keeps in memory: so the code that a member
//! starts with can run over a directory and tell what it finds, without changing a byte.

use disk::{File, Files, How};
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn path_in(root: &Path, path: &str) -> PathBuf {
    assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."), "paths of ours stay inside");
    root.join(path)
}

fn lock(root: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(root)?;
    if !file.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a directory"));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another process is using this data directory"))
        }
        Err(error) => Err(error.into()),
    }
}

fn names(root: &Path, dir: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path_in(root, dir))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn read_at(file: &fs::File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A directory that this program fills. Private: 0700, files 0600.
pub struct New {
    root: PathBuf,
    _lock: fs::File,
}

impl New {
    /// Creates the directory, parents too, if it is absent, and locks it. Its name is durable then:
    /// a member flushes what is in it, and not what is above it.
    pub fn open(root: &Path) -> io::Result<New> {
        let missing = root.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).count();
        if missing > 0 {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        }
        let held = lock(root)?;
        let whole = root.canonicalize()?;
        // An empty one may just have been made, too.
        for above in whole.ancestors().skip(1).take(missing.max(1)) {
            match fs::File::open(above).and_then(|above| above.sync_all()) {
                // Who may create in a directory may still not read it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                done => done?,
            }
        }
        Ok(New { root: root.to_path_buf(), _lock: held })
    }
}

impl Files for New {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(how != How::Read).mode(0o600);
        if how == How::Create {
            options.create(true).truncate(true);
        }
        Ok(Arc::new(NewFile(options.open(path_in(&self.root, path))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(path_in(&self.root, from), path_in(&self.root, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(path_in(&self.root, path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        names(&self.root, dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(path_in(&self.root, dir)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        fs::File::open(path_in(&self.root, dir))?.sync_all()
    }
}

struct NewFile(fs::File);

impl File for NewFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.0, offset, into)
    }

    fn write_at(&self, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        // Many small records: one call for them all.
        let joined;
        let bytes: &[u8] = match parts {
            [one] => one,
            many => {
                joined = many.concat();
                &joined
            }
        };
        for piece in bytes.chunks(1 << 20) {
            self.0.write_all_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if self.len()? < len { self.0.set_len(len) } else { Ok(()) }
    }
}

/// A directory that is only read. Changes are kept in memory and forgotten.
pub struct Frozen {
    root: PathBuf,
    _lock: fs::File,
    /// What is not as on the disk; `None`: removed.
    changed: Mutex<BTreeMap<String, Option<Arc<Layer>>>>,
}

impl Frozen {
    /// Locks the directory: a member that is running refuses it.
    pub fn open(root: &Path) -> io::Result<Frozen> {
        Ok(Frozen { root: root.to_path_buf(), _lock: lock(root)?, changed: Mutex::default() })
    }

    fn changed(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<Layer>>>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn layer(&self, path: &str) -> io::Result<Arc<Layer>> {
        let mut changed = self.changed();
        match changed.get(path) {
            Some(Some(layer)) => return Ok(layer.clone()),
            Some(None) => return Err(io::ErrorKind::NotFound.into()),
            None => {}
        }
        let file = fs::File::open(path_in(&self.root, path))?;
        let len = file.metadata()?.len();
        let layer = Layer { below: Some(file), state: Mutex::new(State { len, below: len, pages: BTreeMap::new() }) };
        let layer = Arc::new(layer);
        changed.insert(path.to_string(), Some(layer.clone()));
        Ok(layer)
    }
}

impl Files for Frozen {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        if how == How::Create {
            let layer = Arc::new(Layer { below: None, state: Mutex::default() });
            self.changed().insert(path.to_string(), Some(layer.clone()));
            return Ok(layer);
        }
        Ok(self.layer(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let layer = self.layer(from)?;
        let mut changed = self.changed();
        changed.insert(from.to_string(), None);
        changed.insert(to.to_string(), Some(layer));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.layer(path)?;
        self.changed().insert(path.to_string(), None);
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = names(&self.root, dir)?;
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        for (path, layer) in self.changed().iter() {
            let Some(name) = path.strip_prefix(&prefix).filter(|name| !name.contains('/')) else { continue };
            names.retain(|known| known != name);
            if layer.is_some() {
                names.push(name.to_string());
            }
        }
        Ok(names)
    }

    fn make_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }
}

const PAGE: u64 = 4096;

/// A file as it would be.
struct Layer {
    below: Option<fs::File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    len: u64,
    /// So many bytes of the file below still count; behind them are zeros.
    below: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Layer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page as it would be, zeros behind the end.
    fn page(&self, state: &State, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(page) = state.pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = vec![0; PAGE as usize].into_boxed_slice();
        let start = number * PAGE;
        if let Some(below) = self.below.as_ref().filter(|_| start < state.below) {
            let len = (state.below - start).min(PAGE) as usize;
            read_at(below, start, &mut page[..len])?;
        }
        Ok(page)
    }
}

impl File for Layer {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.state();
        let len = usize::try_from(state.len.saturating_sub(offset)).map_or(into.len(), |left| left.min(into.len()));
        if len == 0 {
            return Ok(0);
        }
        let end = offset + len as u64;
        let untouched = state.pages.range(offset / PAGE..end.div_ceil(PAGE)).next().is_none() && end <= state.below;
        if let Some(below) = self.below.as_ref().filter(|_| untouched) {
            return read_at(below, offset, &mut into[..len]);
        }
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (PAGE as usize - within).min(len - done);
            let page = self.page(&state, at / PAGE)?;
            into[done..done + part].copy_from_slice(&page[within..within + part]);
            done += part;
        }
        Ok(len)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut state = self.state();
        let mut at = offset;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let within = (at % PAGE) as usize;
                let some = (PAGE as usize - within).min(rest.len());
                let mut page = self.page(&state, at / PAGE)?;
                page[within..within + some].copy_from_slice(&rest[..some]);
                state.pages.insert(at / PAGE, page);
                at += some as u64;
                rest = &rest[some..];
            }
        }
        state.len = state.len.max(at);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if len < state.len {
            state.pages.retain(|number, _| number * PAGE < len);
            state.below = state.below.min(len);
            let last = len / PAGE;
            if let Some(page) = state.pages.get_mut(&last) {
                page[(len % PAGE) as usize..].fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.len = state.len.max(len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in a frozen directory beside a plain vector: the same after any changes, and the
    /// disk as it was.
    #[test]
    fn a_frozen_directory_shows_changes_and_keeps_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..30_000u32).map(|n| n as u8).collect();
        fs::write(dir.path().join("a"), &bytes).unwrap();
        let frozen = Frozen::open(dir.path()).unwrap();
        let file = frozen.open("a", How::Write).unwrap();
        let mut model = bytes.clone();
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for step in 0..400 {
            let at = next(40_000) as usize;
            match next(4) {
                0 => {
                    let part = vec![step as u8; next(9_000) as usize];
                    file.write_at(at as u64, &[&part, b"x"]).unwrap();
                    model.resize(model.len().max(at + part.len() + 1), 0);
                    model[at..at + part.len()].copy_from_slice(&part);
                    model[at + part.len()] = b'x';
                }
                1 if step % 5 == 0 => {
                    file.set_len(at as u64).unwrap();
                    model.resize(at, 0);
                }
                2 if step % 7 == 0 => {
                    file.allocate(at as u64).unwrap();
                    model.resize(model.len().max(at), 0);
                }
                _ => {}
            }
            let mut got = vec![0; next(12_000) as usize];
            let len = file.read_at(at as u64, &mut got).unwrap();
            let expected = model.get(at..).unwrap_or_default();
            assert_eq!(got[..len], expected[..expected.len().min(got.len())], "step {step}");
            assert_eq!(file.len().unwrap(), model.len() as u64);
        }
        frozen.rename("a", "b").unwrap();
        frozen.open("c", How::Create).unwrap();
        assert_eq!(frozen.list("").unwrap(), ["b", "c"]);
        frozen.remove("b").unwrap();
        assert_eq!(frozen.open("b", How::Read).err().unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(names(dir.path(), "").unwrap(), ["a"]);
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), bytes);
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let held = New::open(dir.path()).unwrap();
        let error = Frozen::open(dir.path()).err().unwrap();
        assert_eq!(error.to_string(), "another process is using this data directory");
        drop(held);
        assert!(Frozen::open(dir.path()).is_ok());
    }
}
