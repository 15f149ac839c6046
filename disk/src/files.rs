//! The seam between this crate and a real or simulated disk.

use std::io;
use std::sync::Arc;

/// How [`Files::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A new file, or an existing one emptied; for reading and writing.
    Create,
}

/// One data directory. Paths are relative to it, with `/` between parts.
///
/// What a crash may leave: any subset of the calls `Create`, [`rename`](Files::rename) and
/// [`remove`](Files::remove) made since the last [`sync_dir`](Files::sync_dir) of their
/// directory, each of them whole or not at all.
pub trait Files: Send + Sync {
    /// `NotFound` if the file is absent and `how` is not `Create`.
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>>;
    /// Replaces `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Names (without the directory) of the files in `dir`, in any order. `NotFound` if `dir` is
    /// absent.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// No error if the directory exists.
    fn make_dir(&self, dir: &str) -> io::Result<()>;
    /// Makes creations, renames and removals in `dir` durable. `""` is the data directory itself.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
}

/// One open file. What a crash may leave of writes since the last [`sync`](File::sync): any
/// subset of their sectors.
pub trait File: Send + Sync {
    /// Bytes read; fewer than asked only at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all parts one after another from `offset`, or fails (then any subset may be written).
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()>;
    /// Data and length are durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space up to `len` and extends the file to it with zeros; never shrinks it.
    fn allocate(&self, len: u64) -> io::Result<()>;
}

/// Whose files these are. Written into every file; others' files are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: u64,
    pub member: u64,
}
