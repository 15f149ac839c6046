//! Why the disk said no: always with the file, where known the offset, and the reason.

use crate::holes::Unreadable;
use consensus::Position;
use std::fmt;
use std::io;

/// The name of a log entry that could not be read, from its batch's identity table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId {
    pub index: u64,
    /// 0 when the table itself is damaged.
    pub term: u64,
    /// CRC32C of the entry's data; 0 when the table itself is damaged.
    pub crc: u32,
}

/// A refusal. Whoever returns one has not changed acknowledged bytes.
#[derive(Debug)]
pub enum Fault {
    /// The operating system refused.
    Io { file: String, offset: u64, error: io::Error },
    /// Bytes that were durable are not what was written. `entries` names what is missing
    /// of the log, so that a peer can be asked for it.
    Damaged { file: String, offset: u64, what: String, entries: Vec<EntryId> },
    /// The end of the log is missing or wrong, and it cannot be told whether it was ever
    /// acknowledged. Nothing was changed. `promise`: the last entry it may have held, where known.
    Doubtful { file: String, offset: u64, what: String, promise: Option<Position> },
    /// A log entry whose bytes are whole, and that this program does not understand: a later one
    /// wrote it. Every member has it, and none that runs this program can apply it. It is no
    /// damage.
    NotUnderstood { file: String, offset: u64, entry: Position, what: String },
    /// Written by a later version of the format.
    TooNew { file: String, level: u32 },
    /// Belongs to another cluster or member.
    Foreign { file: String, what: String },
    /// Another process holds the data directory.
    Locked { file: String },
    /// An earlier write or flush failed; nothing may be acknowledged any more.
    Stopped { file: String, reason: String },
    /// Refused before anything was written: the caller asked for something impossible.
    Refused { file: String, what: String },
}

impl Fault {
    /// A call on `file` failed. A place that the disk cannot read, in a start, is damaged
    /// ([`crate::Patient`]).
    pub fn io(file: &str, offset: u64, error: io::Error) -> Fault {
        if let Some(place) = Unreadable::of(&error) {
            return Fault::damaged(file, place.offset, place.to_string());
        }
        Fault::Io { file: file.to_string(), offset, error }
    }

    pub fn damaged(file: &str, offset: u64, what: impl Into<String>) -> Fault {
        Fault::Damaged { file: file.to_string(), offset, what: what.into(), entries: Vec::new() }
    }

    /// True if bytes were read and are wrong, or cannot be read in a start (a peer may have them
    /// right).
    pub fn is_damage(&self) -> bool {
        matches!(self, Fault::Damaged { .. })
    }

    /// True if the disk gave nothing, which says nothing about what it holds. A file that is not
    /// there is another matter.
    pub fn is_refused(&self) -> bool {
        matches!(self, Fault::Io { error, .. } if error.kind() != io::ErrorKind::NotFound)
    }

    /// True if there is no room: the disk is full (ENOSPC), or the quota of whoever runs the member
    /// is used up (EDQUOT). Room may come back by itself, so the same call may be tried again. Such
    /// a fault of [`crate::Log::save`] leaves the log usable when it happened before the batch was
    /// written (see there).
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Fault::Io { error, .. } if matches!(error.kind(), StorageFull | QuotaExceeded))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Io { file, offset, error } => write!(f, "{file} at byte {offset}: {error}"),
            Fault::Damaged { file, offset, what, entries } => {
                write!(f, "{file} at byte {offset}: damaged: {what}")?;
                match (entries.first(), entries.last()) {
                    (Some(first), Some(last)) => {
                        write!(f, " (log entries {} to {}: {} missing)", first.index, last.index, entries.len())
                    }
                    _ => Ok(()),
                }
            }
            Fault::Doubtful { file, offset, what, promise } => {
                write!(f, "{file} at byte {offset}: {what}; what is lost may have been acknowledged")?;
                match promise {
                    Some(at) => write!(f, " (log entries up to {} of term {})", at.index, at.term),
                    None => Ok(()),
                }
            }
            Fault::NotUnderstood { file, offset, entry: Position { index, term }, what } => write!(
                f,
                "{file} at byte {offset}: entry {index} of term {term} is whole, and this program does not understand \
                 it ({what}): start the later version that wrote it"
            ),
            Fault::TooNew { file, level } => {
                let known = match file.as_str() {
                    file if file.contains("manifest") => crate::manifest::LEVEL,
                    file if file.ends_with(".log") => crate::log::LEVEL,
                    _ => crate::LEVEL,
                };
                write!(f, "{file} at byte 0: written in format level {level}, this program knows up to {known}")
            }
            Fault::Foreign { file, what } => write!(f, "{file} at byte 0: not ours: {what}"),
            Fault::Locked { file } => write!(f, "{file} at byte 0: another process is using this data directory"),
            Fault::Stopped { file, reason } => write!(f, "{file}: stopped after an earlier failure: {reason}"),
            Fault::Refused { file, what } => write!(f, "{file}: {what}"),
        }
    }
}

/// Where it was, for whoever sorts or counts faults.
impl Fault {
    /// The file concerned, relative to the data directory.
    pub fn file(&self) -> &str {
        match self {
            Fault::Io { file, .. }
            | Fault::Damaged { file, .. }
            | Fault::NotUnderstood { file, .. }
            | Fault::TooNew { file, .. }
            | Fault::Foreign { file, .. }
            | Fault::Locked { file }
            | Fault::Doubtful { file, .. }
            | Fault::Stopped { file, .. }
            | Fault::Refused { file, .. } => file,
        }
    }

    /// The byte of the file; None where the file as a whole is meant.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Fault::Io { offset, .. }
            | Fault::Damaged { offset, .. }
            | Fault::Doubtful { offset, .. }
            | Fault::NotUnderstood { offset, .. } => Some(*offset),
            _ => None,
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A used-up quota is no broken disk: room may come back. A file that is too large stays too
    /// large.
    #[test]
    fn a_used_up_quota_is_a_full_disk() {
        let full = |errno| Fault::io("f", 0, io::Error::from_raw_os_error(errno)).is_full();
        let [enospc, edquot, efbig, eio, erofs, emfile] = [28, 122, 27, 5, 30, 24];
        assert!(full(enospc) && full(edquot));
        assert!(![efbig, eio, erofs, emfile].into_iter().any(full));
    }
}
