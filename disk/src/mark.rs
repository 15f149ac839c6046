//! A fact about this member that must be remembered over a restart, as a file that is there or not.
//! It lies beside the log, which a checkpoint never tidies.

use crate::header::{check_page, page};
use crate::{Fault, Files, How, Identity};
use std::io::ErrorKind;

const DIR: &str = "log";

pub(crate) struct Mark {
    /// In the folder `log`.
    pub(crate) path: &'static str,
    pub(crate) magic: &'static [u8; 8],
}

impl Mark {
    /// Durable once this returns.
    pub(crate) fn set(&self, files: &dyn Files, id: Identity) -> Result<(), Fault> {
        let part = format!("{}.part", self.path);
        let written = files.open(&part, How::Create).and_then(|file| {
            file.write_at(0, &[&page(self.magic, id, 0)])?;
            file.sync()?;
            files.rename(&part, self.path)?;
            files.sync_dir(DIR)
        });
        written.map_err(|e| Fault::io(self.path, 0, e))
    }

    /// A mark that cannot be read is one.
    pub(crate) fn is_set(&self, files: &dyn Files, id: Identity) -> Result<bool, Fault> {
        let file = match files.open(self.path, How::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other.map_err(|e| Fault::io(self.path, 0, e))?,
        };
        match check_page(&*file, self.path, self.magic, id.cluster, Some(id.member), 0) {
            Err(fault) if !fault.is_damage() => Err(fault),
            _ => Ok(true),
        }
    }

    /// Durable once this returns.
    pub(crate) fn clear(&self, files: &dyn Files) -> Result<(), Fault> {
        match files.remove(self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| Fault::io(self.path, 0, e))?,
        }
        files.sync_dir(DIR).map_err(|e| Fault::io(self.path, 0, e))
    }
}
