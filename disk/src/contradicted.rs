//! What a member remembers when it has seen that there are two histories. It lies beside the log,
//! and a start finds it. Only an operator takes it away.

use crate::{Fault, Files, Identity, small};

const MAGIC: &[u8; 8] = b"kvtwohis";
const DIR: &str = "log";
/// Its name in the data directory.
pub const PATH: &str = "log/contradicted";
/// Most bytes that are kept of what was seen.
const TEXT: usize = 1024;

/// `seen`: what showed it. Durable once this returns.
///
/// # Errors
/// What the operating system says.
pub fn mark(files: &dyn Files, id: Identity, seen: &str) -> Result<(), Fault> {
    let seen = &seen.as_bytes()[..seen.floor_char_boundary(TEXT)];
    small::write(files, DIR, PATH, &small::encode(MAGIC, id, seen))
}

/// An operator has decided for the history of this member. True if there was a mark.
///
/// # Errors
/// What the operating system says.
pub fn clear(files: &dyn Files) -> Result<bool, Fault> {
    small::remove(files, DIR, PATH)
}

/// What was seen in an earlier life. A mark that cannot be read is one, of which nothing is known.
///
/// # Errors
/// A later format level, another member's file.
pub fn find(files: &dyn Files, id: Identity) -> Result<Option<String>, Fault> {
    match small::read(files, PATH, MAGIC, id) {
        Ok(seen) => Ok(seen.map(|seen| String::from_utf8_lossy(&seen).into_owned())),
        Err(fault) if fault.is_damage() => Ok(Some("what was seen cannot be read any more".to_string())),
        Err(fault) => Err(fault),
    }
}
