//! Room that is kept back: files of zeros that nothing reads. They are given up when the disk is
//! full, so that what makes room goes through: a batch of deletes, the records of a checkpoint and
//! its files.

use super::{DIR, Log, space};
use crate::{Fault, Files, How};
use std::io::ErrorKind;

/// Each file of the reserve is so many times smaller than a file of the log.
pub(super) const SHARE: u64 = 8;

/// For whom room is kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// The next batches of the log.
    Log,
    /// Records and checkpoints.
    State,
}

impl Reserve {
    fn path(self) -> String {
        match self {
            Reserve::Log => format!("{DIR}/reserve-log"),
            Reserve::State => format!("{DIR}/reserve-state"),
        }
    }

    /// Gives all of it back, for a start that finds no room. True if there was any.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn release(files: &dyn Files) -> Result<bool, Fault> {
        let log = space::remove(files, &Reserve::Log.path())?;
        Ok(space::remove(files, &Reserve::State.path())? || log)
    }
}

impl Log {
    /// Makes what is missing of the reserve. The spare files are given up for it. False: there is
    /// no room for it.
    ///
    /// # Errors
    /// What the operating system says, but for a full disk. The log itself is as it was.
    pub fn keep_reserve(&mut self) -> Result<bool, Fault> {
        self.check_running()?;
        let len = self.spares.reserve_bytes();
        for reserve in [Reserve::Log, Reserve::State] {
            let stands = made(&*self.files, reserve, len)?
                || (self.spares.release(&*self.files)? && made(&*self.files, reserve, len)?);
            if !stands {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives a part of the reserve back to the file system. True if it was there.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn release_reserve(&mut self, reserve: Reserve) -> Result<bool, Fault> {
        self.check_running()?;
        space::remove(&*self.files, &reserve.path())
    }
}

/// True if the file is there afterwards. Half a file is removed: it would eat the room that is
/// missing.
fn made(files: &dyn Files, reserve: Reserve, len: u64) -> Result<bool, Fault> {
    let path = reserve.path();
    match files.open(&path, How::Read).and_then(|file| file.len()) {
        Ok(there) if there == len => return Ok(true),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Fault::io(&path, 0, error)),
        _ => {}
    }
    let made = files.open(&path, How::Create).and_then(|file| file.allocate(len)).map_err(|e| Fault::io(&path, 0, e));
    match made {
        Ok(()) => Ok(true),
        Err(fault) => {
            space::remove(files, &path)?;
            if fault.is_full() { Ok(false) } else { Err(fault) }
        }
    }
}
