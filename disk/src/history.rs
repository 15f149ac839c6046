//! The founding that the log is of. The state says so too, and may be lost while the log is not.

use crate::header::{Fields, put_u64};
use crate::{Fault, Files, Identity, small};

const MAGIC: &[u8; 8] = b"kvfoundg";
const DIR: &str = "log";
/// Its name in the data directory.
pub const PATH: &str = "log/founding";

/// Durable once this returns.
///
/// # Errors
/// What the operating system says.
pub fn mark(files: &dyn Files, id: Identity, founding: u64) -> Result<(), Fault> {
    let mut value = Vec::new();
    put_u64(&mut value, founding);
    small::write(files, DIR, PATH, &small::encode(MAGIC, id, &value))
}

/// The name of the founding; 0: not known.
///
/// # Errors
/// A later format level, another member's file. A file that cannot be read says nothing.
pub fn find(files: &dyn Files, id: Identity) -> Result<u64, Fault> {
    match small::read(files, PATH, MAGIC, id) {
        Ok(value) => Ok(value.and_then(|value| Fields::new(&value).u64()).unwrap_or(0)),
        Err(fault) if fault.is_damage() => Ok(0),
        Err(fault) => Err(fault),
    }
}
