//! The mark of a member whose state differs from what the others agree on: it must be remembered
//! over a restart, because its checkpoint and its log look whole.

use crate::mark::Mark;
use crate::{Fault, Files, Identity};

const MARK: Mark = Mark { path: "log/corrupt", magic: b"kvcorupt" };

/// Durable once this returns.
pub fn mark(files: &dyn Files, id: Identity) -> Result<(), Fault> {
    MARK.set(files, id)
}

/// True if the state of this member must not be served. A mark that cannot be read is one.
pub fn marked(files: &dyn Files, id: Identity) -> Result<bool, Fault> {
    MARK.is_set(files, id)
}

/// The state was replaced by another member's.
pub fn clear(files: &dyn Files) -> Result<(), Fault> {
    MARK.clear(files)
}
