//! The mark of a directory that was restored from a backup and has not been started. It says of
//! itself what all members say that were restored from that file, and nothing of what one of them
//! may have acknowledged since: its first start asks the others, as a founder does.

use crate::mark::Mark;
use crate::{Fault, Files, Identity};

const MARK: Mark = Mark { path: "log/restored", magic: b"kvrestor" };

/// Durable once this returns. The folder of the log must be there.
///
/// # Errors
/// What the operating system says.
pub fn mark(files: &dyn Files, id: Identity) -> Result<(), Fault> {
    MARK.set(files, id)
}

/// True until the first start is done. A mark that cannot be read is one.
///
/// # Errors
/// A later format level, another member's file.
pub fn marked(files: &dyn Files, id: Identity) -> Result<bool, Fault> {
    MARK.is_set(files, id)
}

/// The others have been asked.
///
/// # Errors
/// What the operating system says.
pub fn clear(files: &dyn Files) -> Result<(), Fault> {
    MARK.clear(files)
}
