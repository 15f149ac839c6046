//! The founding that the log is of. The state says so too, and may be lost while the log is not.

use crate::header::{Fields, put_u64};
use crate::{Fault, Files, Identity, small};

const MAGIC: &[u8; 8] = b"kvfoundg";
const DIR: &str = "log";
/// Its name in the data directory.
pub const PATH: &str = "log/founding";
/// Most names that are kept.
const MOST: usize = 16;

/// Durable once this returns. The names of before stay behind it.
///
/// # Errors
/// What the operating system says; a later format level, another member's file.
pub fn mark(files: &dyn Files, id: Identity, founding: u64) -> Result<(), Fault> {
    let mut names = all(files, id)?;
    names.retain(|name| *name != founding);
    names.insert(0, founding);
    names.truncate(MOST);
    let mut value = Vec::new();
    names.into_iter().for_each(|name| put_u64(&mut value, name));
    small::write(files, DIR, PATH, &small::encode(MAGIC, id, &value))
}

/// The name of the founding; 0: not known.
///
/// # Errors
/// A later format level, another member's file. A file that cannot be read says nothing.
pub fn find(files: &dyn Files, id: Identity) -> Result<u64, Fault> {
    Ok(all(files, id)?.first().copied().unwrap_or(0))
}

/// The names of all foundings that the log has been of, the newest first: a checkpoint may be older
/// than the entry with which the present one began.
///
/// # Errors
/// As [`find`].
pub fn all(files: &dyn Files, id: Identity) -> Result<Vec<u64>, Fault> {
    let value = match small::read(files, PATH, MAGIC, id) {
        Err(fault) if fault.is_damage() => None,
        other => other?,
    };
    let value = value.unwrap_or_default();
    let mut fields = Fields::new(&value);
    Ok(std::iter::from_fn(|| fields.u64()).take(MOST).collect())
}
