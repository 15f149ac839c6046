//! The real disk: [`disk::Files`] over one locked data directory.
//!
//! New directories are 0700, new files 0600. The lock is on the directory itself, so that a
//! refused start leaves it as it was.

use crate::descriptors::{Patience, is_lacking};
use crate::log::{self, json};
use crate::metrics::OfLog;
use disk::handles::{Handles, Looked};
use disk::{File, Files, How};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// The folder of the log.
const LOG: &str = "log/";
/// Buffers of one vectored write; the kernel's bound is 1,024.
const VECTORS: usize = 512;

pub(crate) struct RealFiles {
    root: PathBuf,
    /// Holds the lock as long as it lives.
    _lock: fs::File,
    kept: Mutex<Handles<Arc<RealFile>>>,
    /// Of threads that may wait.
    pub(crate) patience: Patience,
    /// Writes and flushes of files below `log/`.
    pub(crate) of_log: OfLog,
}

/// Creates `root` and what is missing above it. A new directory whose name a power loss takes back
/// would take everything in it along, so each parent is flushed.
fn create_durably(root: &Path) -> io::Result<()> {
    let mut missing: Vec<&Path> = root.ancestors().take_while(|dir| !is_there(dir)).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    while let Some(dir) = missing.pop() {
        flush_name(dir)?;
    }
    Ok(())
}

/// Makes the name of `dir` durable. Who may create in a directory may still not read it: then
/// nobody can flush it, and that is no reason to refuse.
fn flush_name(dir: &Path) -> io::Result<()> {
    match fs::File::open(parent_of(dir)).and_then(|parent| parent.sync_all()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// The empty path is where the process stands.
fn is_there(dir: &Path) -> bool {
    dir.as_os_str().is_empty() || dir.exists()
}

fn parent_of(dir: &Path) -> &Path {
    match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => dir,
    }
}

/// Tells if others may change or read a data directory, or if it is a link. etcd's modes are those
/// of new directories here.
pub(crate) fn tell_modes(root: &Path) {
    let Ok(found) = fs::symlink_metadata(root) else { return };
    if found.is_symlink() {
        let target = fs::canonicalize(root).unwrap_or_default();
        let fields = [("data-dir", json!(root)), ("target", json!(target))];
        log::warn("the data directory is a link: whoever may change it decides what this member reads", &fields);
    }
    let Ok(found) = fs::metadata(root) else { return };
    let mode = found.permissions().mode() & 0o777;
    let text = match mode {
        0o700 => return,
        mode if mode & 0o022 != 0 => "others may write in the data directory",
        mode if mode & 0o077 != 0 => "others may look into the data directory",
        _ => return,
    };
    let mode = format!("{mode:04o}");
    log::warn(text, &[("data-dir", json!(root)), ("mode", json!(mode)), ("recommended", json!("0700"))]);
}

/// Locks a directory, as long as the file is open.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]: another process has it. Else what the operating system says.
pub(crate) fn lock(root: &Path) -> io::Result<fs::File> {
    let lock = fs::File::open(root)?;
    if !lock.metadata()?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a directory"));
    }
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another process is using this data directory"))
        }
        Err(error) => Err(error.into()),
    }
}

impl RealFiles {
    /// Creates the directory if it is absent, and locks it. The error names the directory. `kept`:
    /// read handles that stay open.
    pub(crate) fn open(root: &Path, kept: usize) -> io::Result<RealFiles> {
        if !root.exists() {
            create_durably(root)?;
        } else if fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_none()) {
            // A start that was cut short may have made it, and not have flushed it.
            flush_name(root)?;
        }
        let lock = lock(root)?;
        let (kept, patience) = (Mutex::new(Handles::new(kept)), Patience::default());
        Ok(RealFiles { root: root.to_path_buf(), _lock: lock, kept, patience, of_log: OfLog::default() })
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        let relative = Path::new(path);
        match relative.components().all(|part| matches!(part, Component::Normal(_))) {
            true => Ok(self.root.join(relative)),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path}: leaves the data directory"))),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Handles<Arc<RealFile>>> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A call after which `names` may stand for other files.
    fn change<T>(&self, names: &[&str], call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.kept().begin(names);
        let result = call();
        self.kept().end(names);
        result
    }

    fn open_read(&self, path: &str) -> io::Result<Arc<RealFile>> {
        let looked = self.kept().look(path);
        let opening = match looked {
            Looked::Kept(file) => return Ok(file),
            Looked::Absent(opening) => opening,
        };
        let file = Arc::new(RealFile { file: fs::File::open(self.path(path)?)?, of_log: None });
        self.kept().keep(path, opening, file.clone());
        Ok(file)
    }
}

impl Files for RealFiles {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        if how == How::Read {
            return Ok(self.patience.open(|| self.open_read(path))?);
        }
        let full = self.path(path)?;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let file = if how == How::Create {
            options.create(true).truncate(true);
            self.patience.open(|| self.change(&[path], || options.open(&full)))?
        } else {
            self.patience.open(|| options.open(&full))?
        };
        let of_log = path.starts_with(LOG).then(|| self.of_log.clone());
        Ok(Arc::new(RealFile { file, of_log }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (old, new) = (self.path(from)?, self.path(to)?);
        self.change(&[from, to], || fs::rename(old, new))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let full = self.path(path)?;
        self.change(&[path], || fs::remove_file(full))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let path = self.path(dir)?;
        for entry in self.patience.open(|| fs::read_dir(&path))? {
            let name = entry?.file_name();
            names.push(name.into_string().map_err(|name| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: not a name of ours", name.display()))
            })?);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(self.path(dir)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done,
        }
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let path = self.path(dir)?;
        self.patience.open(|| fs::File::open(&path))?.sync_all()
    }
}

struct RealFile {
    file: fs::File,
    /// Of files of the log.
    of_log: Option<OfLog>,
}

impl RealFile {
    fn write_parts(&self, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let batch = left.len().min(VECTORS);
            let wrote = match rustix::io::pwritev(&self.file, &left[..batch], offset) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::WriteZero, "the disk took no bytes")),
                Ok(wrote) => wrote,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            offset += wrote as u64;
            IoSlice::advance_slices(&mut left, wrote);
        }
        Ok(())
    }
}

impl File for RealFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let Some(of_log) = &self.of_log else { return self.write_parts(offset, parts) };
        let begun = Instant::now();
        self.write_parts(offset, parts)?;
        of_log.wrote(begun.elapsed(), parts.iter().map(|part| part.len()).sum());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let begun = Instant::now();
        self.file.sync_data()?;
        if let Some(of_log) = &self.of_log {
            of_log.flushed(begun.elapsed());
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // Not every file system reserves; the length is what callers rely on.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.len()? < len => self.file.set_len(len),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The same directory, read only from the page cache: what would wait for the disk fails
/// with `WouldBlock`. For threads that must not wait.
pub(crate) struct PageCache(pub(crate) Arc<RealFiles>);

fn not_here<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the page cache is only read"))
}

impl Files for PageCache {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        match how {
            How::Read => match self.0.open_read(path) {
                Ok(file) => Ok(Arc::new(CachedFile(file))),
                // A thread that may wait opens it.
                Err(error) if is_lacking(&error) => Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => Err(error),
            },
            _ => not_here(),
        }
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        not_here()
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        not_here()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn make_dir(&self, _dir: &str) -> io::Result<()> {
        not_here()
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        not_here()
    }
}

struct CachedFile(Arc<RealFile>);

impl File for CachedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            let part = &mut [IoSliceMut::new(&mut into[done..])];
            match rustix::io::preadv2(&self.0.file, part, offset + done as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, _offset: u64, _parts: &[&[u8]]) -> io::Result<()> {
        not_here()
    }

    fn sync(&self) -> io::Result<()> {
        not_here()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        not_here()
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        not_here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn what_is_written_is_read_and_private() {
        let dir = scratch();
        let root = dir.path().join("data");
        let files = RealFiles::open(&root, 256).expect("opens");
        files.make_dir("log").expect("made");
        files.make_dir("log").expect("made twice");
        let file = files.open("log/a", How::Create).expect("created");
        let parts: Vec<Vec<u8>> = (0..1500_u32).map(|n| n.to_le_bytes().to_vec()).collect();
        let refs: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        file.write_at(8, &refs).expect("more vectors than one call takes");
        file.sync().expect("synced");
        let mut back = vec![0; 8 + 6000 + 10];
        assert_eq!(files.open("log/a", How::Read).and_then(|f| f.read_at(0, &mut back)).expect("read"), 6008);
        assert_eq!(back[..8], [0; 8]);
        assert_eq!(back[8..6008], parts.concat()[..]);
        file.allocate(10_000).expect("allocated");
        assert_eq!(file.len().expect("length"), 10_000);
        file.allocate(5_000).expect("never shrinks");
        assert_eq!(file.len().expect("length"), 10_000);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&root), mode(&root.join("log")), mode(&root.join("log/a"))), (0o700, 0o700, 0o600));
    }

    #[test]
    fn a_kept_handle_never_shows_another_file() {
        let dir = scratch();
        let files = RealFiles::open(dir.path(), 256).expect("opens");
        let write = |name: &str, text: &[u8]| {
            files.open(name, How::Create).and_then(|f| f.write_at(0, &[text])).expect("written")
        };
        let read = |name: &str| {
            let mut bytes = [0; 3];
            files.open(name, How::Read).and_then(|f| f.read_at(0, &mut bytes)).map(|_| bytes)
        };
        write("a", b"one");
        assert_eq!(&read("a").expect("there"), b"one");
        write("b", b"two");
        files.rename("b", "a").expect("renamed");
        assert_eq!(&read("a").expect("there"), b"two");
        files.remove("a").expect("removed");
        assert_eq!(read("a").expect_err("gone").kind(), io::ErrorKind::NotFound);
    }

    /// A reader that opened the old file while it was renamed must not leave it to those who come
    /// later.
    #[test]
    fn a_reader_in_between_does_not_keep_the_old_file() {
        let dir = scratch();
        let files = RealFiles::open(dir.path(), 256).expect("opens");
        let number = |file: &dyn File| {
            let mut bytes = [0; 4];
            file.read_at(0, &mut bytes).map(|_| u32::from_le_bytes(bytes)).expect("read")
        };
        let put = |name: &str, number: u32| {
            files.open(name, How::Create).and_then(|file| file.write_at(0, &[&number.to_le_bytes()])).expect("written")
        };
        put("a", 0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(files.open("a", How::Read));
                }
            });
            let old = (1..3_000).find(|&n| {
                put("b", n);
                files.rename("b", "a").expect("renamed");
                number(&*files.open("a", How::Read).expect("opens")) != n
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(old, None, "an old file was kept");
        });
    }

    #[test]
    fn a_new_directory_is_made_with_all_its_parents() {
        let dir = scratch();
        let root = dir.path().join("x/y/z");
        RealFiles::open(&root, 256).expect("opens");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&root), mode(&dir.path().join("x"))), (0o700, 0o700));
        assert_eq!([parent_of(Path::new("data")), parent_of(Path::new("/"))], [Path::new("."), Path::new("/")]);
        let missing: Vec<_> = Path::new("no-such/thing").ancestors().take_while(|dir| !is_there(dir)).collect();
        assert_eq!(missing, [Path::new("no-such/thing"), Path::new("no-such")]);
    }

    #[test]
    fn the_page_cache_reads_or_says_that_it_would_wait() {
        let dir = scratch();
        let files = Arc::new(RealFiles::open(dir.path(), 256).expect("opens"));
        files.open("a", How::Create).and_then(|f| f.write_at(0, &[b"abc"])).expect("written");
        let file = PageCache(files).open("a", How::Read).expect("opens");
        let mut bytes = [0; 3];
        match file.read_at(0, &mut bytes) {
            Ok(got) => assert_eq!((got, &bytes), (3, b"abc")),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }

    #[test]
    fn a_locked_directory_is_refused_and_left_as_it_was() {
        let dir = scratch();
        let first = RealFiles::open(dir.path(), 256).expect("opens");
        let error = RealFiles::open(dir.path(), 256).err().expect("is refused");
        assert_eq!(error.to_string(), "another process is using this data directory");
        assert!(first.list("").expect("lists").is_empty());
        drop(first);
        assert!(RealFiles::open(dir.path(), 256).is_ok());
    }

    #[test]
    fn no_path_leaves_the_directory() {
        let dir = scratch();
        let files = RealFiles::open(dir.path(), 256).expect("opens");
        for path in ["../x", "/etc/passwd", "a/../../x"] {
            assert_eq!(files.open(path, How::Create).err().expect(path).kind(), io::ErrorKind::InvalidInput);
        }
    }
}
