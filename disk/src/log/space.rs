//! The log's files: names, and spare files that were written before and wait for reuse.

use super::{DIR, LogOptions};
use crate::{Fault, File, Files, How, PAGE};
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

/// Files that may become segments.
pub(super) struct Spares {
    segment_bytes: u64,
    paths: Vec<String>,
}

/// Segments (ascending id, path) and spares in the directory. Opens nothing.
pub(super) fn list(files: &dyn Files, options: LogOptions) -> Result<(Vec<(u64, String)>, Spares), Fault> {
    let names = match files.list(DIR) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        other => other.map_err(|e| Fault::io(DIR, 0, e))?,
    };
    let mut segments = Vec::new();
    let mut paths = Vec::new();
    for name in names {
        if name.starts_with("spare-") {
            paths.push(format!("{DIR}/{name}"));
        } else if let Some(id) = name.strip_suffix(".log").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            let path = segment_path(id);
            if path == format!("{DIR}/{name}") {
                segments.push((id, path));
            }
        }
    }
    segments.sort();
    paths.sort();
    let segment_bytes = options.segment_bytes.max(PAGE).next_multiple_of(PAGE);
    Ok((segments, Spares { segment_bytes, paths }))
}

impl Spares {
    /// A file of at least `need` bytes for segment `id`, still under a spare name, and how far it
    /// was written before. Nothing of the log depends on it yet, so a failure is not final.
    pub(super) fn take(&mut self, files: &dyn Files, id: u64, need: u64) -> Result<(Segment, u64), Fault> {
        if need <= self.segment_bytes {
            while let Some(path) = self.paths.pop() {
                let file = files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
                let len = file.len().map_err(|e| Fault::io(&path, 0, e))?;
                if len == self.segment_bytes {
                    return Ok((Segment { id, path, file, len }, len));
                }
                files.remove(&path).map_err(|e| Fault::io(&path, 0, e))?;
            }
        }
        let path = spare_path(id);
        let len = need.max(self.segment_bytes);
        let made = files.open(&path, How::Create).and_then(|file| {
            file.allocate(len)?;
            file.sync()?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok((Segment { id, path, file, len }, 0)),
            Err(error) => {
                // Half a file must not eat the space that is missing; that it is gone is not vital.
                let _ = files.remove(&path);
                Err(Fault::io(&path, 0, error))
            }
        }
    }

    /// The segment is no longer part of the log.
    pub(super) fn retire(&mut self, files: &dyn Files, segment: Segment) -> Result<(), Fault> {
        let io = |e| Fault::io(&segment.path, 0, e);
        if segment.len == self.segment_bytes && self.paths.len() < SPARES {
            let path = spare_path(segment.id);
            files.rename(&segment.path, &path).map_err(io)?;
            self.paths.push(path);
        } else {
            files.remove(&segment.path).map_err(io)?;
        }
        files.sync_dir(DIR).map_err(io)
    }

    /// Removes every spare. True if there were any.
    pub(super) fn release(&mut self, files: &dyn Files) -> Result<bool, Fault> {
        let any = !self.paths.is_empty();
        while let Some(path) = self.paths.pop() {
            files.remove(&path).map_err(|e| Fault::io(&path, 0, e))?;
        }
        Ok(any)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.paths.len() as u64 * self.segment_bytes
    }
}
