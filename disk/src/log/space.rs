//! The log's files: names, and spare files that were written before and wait for reuse.

use super::{DIR, LogOptions};
use crate::{Fault, File, Files, How, PAGE};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

const SPARES: usize = 2;

/// One named (or about to be named) file of the log.
pub(super) struct Segment {
    pub id: u64,
    pub path: String,
    pub file: Arc<dyn File>,
    pub len: u64,
}

pub(super) fn segment_path(id: u64) -> String {
    format!("{DIR}/{id:016x}.log")
}

fn spare_path(id: u64) -> String {
    format!("{DIR}/spare-{id:016x}")
}

/// Files that may become segments: every spare name in the directory, each once, with its length. A
/// crash may leave more of them than are kept, and of any length.
pub(super) struct Spares {
    segment_bytes: u64,
    lengths: BTreeMap<String, u64>,
}

/// Segments (ascending id, path) and spares in the directory.
pub(super) fn list(files: &dyn Files, options: LogOptions) -> Result<(Vec<(u64, String)>, Spares), Fault> {
    let names = match files.list(DIR) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        other => other.map_err(|e| Fault::io(DIR, 0, e))?,
    };
    let mut segments = Vec::new();
    let mut lengths = BTreeMap::new();
    for name in names {
        if name.starts_with("spare-") {
            let path = format!("{DIR}/{name}");
            // One that cannot be opened is of no use, and no reason to refuse.
            let len = files.open(&path, How::Read).and_then(|file| file.len()).unwrap_or(0);
            lengths.insert(path, len);
        } else if let Some(id) = name.strip_suffix(".log").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            let path = segment_path(id);
            if path == format!("{DIR}/{name}") {
                segments.push((id, path));
            }
        }
    }
    segments.sort();
    let segment_bytes = options.segment_bytes.max(PAGE).next_multiple_of(PAGE);
    Ok((segments, Spares { segment_bytes, lengths }))
}

/// Ids of the log files, ascending.
pub(super) fn ids(files: &dyn Files) -> Result<Vec<u64>, Fault> {
    let (segments, _) = list(files, LogOptions { segment_bytes: PAGE, boot: None, salt: 0 })?;
    Ok(segments.into_iter().map(|(id, _)| id).collect())
}

/// Removes a file that need not be there. True if it was.
pub(super) fn remove(files: &dyn Files, path: &str) -> Result<bool, Fault> {
    match files.remove(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Fault::io(path, 0, error)),
    }
}

impl Spares {
    /// A file of at least `need` bytes for segment `id`, still under a spare name, and how far it
    /// was written before. Nothing of the log depends on it yet, so a failure is not final.
    pub(super) fn take(&mut self, files: &dyn Files, id: u64, need: u64) -> Result<(Segment, u64), Fault> {
        if need <= self.segment_bytes {
            while let Some((path, len)) = self.lengths.last_key_value().map(|(path, len)| (path.clone(), *len)) {
                if len == self.segment_bytes {
                    let file = files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
                    self.lengths.remove(&path);
                    return Ok((Segment { id, path, file, len }, len));
                }
                self.remove(files, &path)?;
            }
        }
        self.make_what_fits(files, id, need).map(|segment| (segment, 0))
    }

    /// A new file of the usual size, or of less where that is all the room there is. A disk with
    /// some room left must not look full because a whole file does not fit.
    fn make_what_fits(&mut self, files: &dyn Files, id: u64, need: u64) -> Result<Segment, Fault> {
        // The middle one takes all of the reserve, when that was given up for it.
        let mut sizes = vec![need.max(self.segment_bytes), need.max(self.reserve_bytes()), need];
        sizes.dedup();
        let mut made = self.make(files, id, sizes[0]);
        for len in &sizes[1..] {
            if !made.as_ref().is_err_and(Fault::is_full) {
                break;
            }
            made = self.make(files, id, *len);
        }
        made
    }

    /// A new file. A spare one with its name is emptied.
    fn make(&mut self, files: &dyn Files, id: u64, len: u64) -> Result<Segment, Fault> {
        let path = spare_path(id);
        self.lengths.remove(&path);
        let made = files.open(&path, How::Create).and_then(|file| {
            file.allocate(len)?;
            file.sync()?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok(Segment { id, path, file, len }),
            Err(error) => {
                // Half a file must not eat the space that is missing. If it stays, it is a spare
                // one of no use, which is removed later.
                if files.remove(&path).is_err_and(|error| error.kind() != ErrorKind::NotFound) {
                    self.lengths.insert(path.clone(), 0);
                }
                Err(Fault::io(&path, 0, error))
            }
        }
    }

    fn remove(&mut self, files: &dyn Files, path: &str) -> Result<(), Fault> {
        files.remove(path).map_err(|e| Fault::io(path, 0, e))?;
        self.lengths.remove(path);
        Ok(())
    }

    /// The segment is of use as a spare one.
    fn keeps(&self, segment: &Segment) -> bool {
        segment.len == self.segment_bytes && self.lengths.len() < SPARES
    }

    /// The segment did not become part of the log: its first batch found no room.
    pub(super) fn give_back(&mut self, files: &dyn Files, segment: Segment) -> Result<(), Fault> {
        if self.keeps(&segment) {
            self.lengths.insert(segment.path, segment.len);
            return Ok(());
        }
        files.remove(&segment.path).map_err(|e| Fault::io(&segment.path, 0, e))
    }

    /// The segment is no longer part of the log.
    pub(super) fn retire(&mut self, files: &dyn Files, segment: Segment) -> Result<(), Fault> {
        let io = |e| Fault::io(&segment.path, 0, e);
        if self.keeps(&segment) {
            let path = spare_path(segment.id);
            files.rename(&segment.path, &path).map_err(io)?;
            self.lengths.insert(path, segment.len);
        } else {
            files.remove(&segment.path).map_err(io)?;
        }
        files.sync_dir(DIR).map_err(io)
    }

    /// Removes every spare. True if there were any.
    pub(super) fn release(&mut self, files: &dyn Files) -> Result<bool, Fault> {
        let paths: Vec<String> = self.lengths.keys().cloned().collect();
        for path in &paths {
            self.remove(files, path)?;
        }
        Ok(!paths.is_empty())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.lengths.values().sum()
    }

    /// Bytes of each file of the reserve.
    pub(super) fn reserve_bytes(&self) -> u64 {
        (self.segment_bytes / super::reserve::SHARE).next_multiple_of(PAGE)
    }
}
