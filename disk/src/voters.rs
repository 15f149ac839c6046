//! Who votes, once that are others than those who founded the cluster. The checkpoints say so too,
//! and may be lost while the log is not. A copy lies outside of the folder of the log: whoever lost
//! that must know that others vote than its checkpoint says.

use crate::header::{Fields, put_u64};
use crate::{Fault, Files, Identity, small};

const MAGIC: &[u8; 8] = b"kvvoters";
const DIR: &str = "log";
/// Its name in the data directory.
pub const PATH: &str = "log/voters";
/// The name of the copy.
const COPY: &str = "voters";

/// Durable once this returns. `voters`: ids, ascending.
///
/// # Errors
/// What the operating system says.
pub fn mark(files: &dyn Files, id: Identity, voters: &[u64]) -> Result<(), Fault> {
    let mut value = Vec::new();
    voters.iter().for_each(|voter| put_u64(&mut value, *voter));
    let bytes = small::encode(MAGIC, id, &value);
    small::write(files, DIR, PATH, &bytes)?;
    small::write(files, "", COPY, &bytes)
}

/// Ids, ascending. None: they never were others than the founders. Empty: they were, and the file
/// cannot be read.
///
/// # Errors
/// A later format level, another member's file.
pub fn find(files: &dyn Files, id: Identity) -> Result<Option<Vec<u64>>, Fault> {
    let read = |path| match small::read(files, path, MAGIC, id) {
        Err(fault) if fault.is_damage() => Ok(Some(Vec::new())),
        other => other,
    };
    let mut value = read(PATH)?;
    if value.as_ref().is_none_or(Vec::is_empty) {
        // The copy is written last, so it may be the older one.
        value = read(COPY)?.or(value);
    }
    Ok(value.map(|value| {
        let mut fields = Fields::new(&value);
        std::iter::from_fn(|| fields.u64()).collect()
    }))
}
