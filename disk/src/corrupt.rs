//! The mark of a member whose state differs from what the others agree on: it must be remembered
//! over a restart, because its checkpoint and its log look whole. It lies beside the log, which a
//! checkpoint never tidies.

use crate::header::{check_page, page};
use crate::{Fault, Files, How, Identity};
use std::io::ErrorKind;

const MAGIC: &[u8; 8] = b"kvcorupt";
const DIR: &str = "log";
const PATH: &str = "log/corrupt";

/// Durable once this returns.
pub fn mark(files: &dyn Files, id: Identity) -> Result<(), Fault> {
    let part = format!("{PATH}.part");
    let written = files.open(&part, How::Create).and_then(|file| {
        file.write_at(0, &[&page(MAGIC, id, 0)])?;
        file.sync()?;
        files.rename(&part, PATH)?;
        files.sync_dir(DIR)
    });
    written.map_err(|e| Fault::io(PATH, 0, e))
}

/// True if the state of this member must not be served. A mark that cannot be read is one.
pub fn marked(files: &dyn Files, id: Identity) -> Result<bool, Fault> {
    let file = match files.open(PATH, How::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|e| Fault::io(PATH, 0, e))?,
    };
    match check_page(&*file, PATH, MAGIC, id.cluster, Some(id.member), 0) {
        Err(fault) if !fault.is_damage() => Err(fault),
        _ => Ok(true),
    }
}

/// The state was replaced by another member's.
pub fn clear(files: &dyn Files) -> Result<(), Fault> {
    match files.remove(PATH) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| Fault::io(PATH, 0, e))?,
    }
    files.sync_dir(DIR).map_err(|e| Fault::io(PATH, 0, e))
}
