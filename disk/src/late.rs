//! The mark of a late founder: a member that founded in an empty directory while the others were
//! beyond genesis already. It may have been among them before, on a disk that was emptied since.
//! What it voted and acknowledged then is forgotten, so it must not vote until it has caught up.

use crate::mark::Mark;
use crate::{Fault, Files, Identity};

const MARK: Mark = Mark { path: "log/late", magic: b"kvlatefo" };

/// Durable once this returns. The folder of the log must be there.
pub fn mark(files: &dyn Files, id: Identity) -> Result<(), Fault> {
    MARK.set(files, id)
}

/// True while this member must not vote. A mark that cannot be read is one.
pub fn marked(files: &dyn Files, id: Identity) -> Result<bool, Fault> {
    MARK.is_set(files, id)
}

/// The member holds what a leader of the others had committed: it is as any other from now on.
pub fn clear(files: &dyn Files) -> Result<(), Fault> {
    MARK.clear(files)
}
