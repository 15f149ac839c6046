//! The folder of the command line, and who may write there.

use crate::{
    call::Call,
    exit::{Failure, IO, Outcome},
};
use rustix::fs::FlockOperation;
use std::{fs::File, path::Path};

impl From<backup::Error> for Failure {
    fn from(error: backup::Error) -> Failure {
        Failure::new(IO, error.to_string())
    }
}

/// The folder of the command line.
pub(super) fn folder(call: &Call) -> Outcome<&Path> {
    match call.arg(0) {
        Some(folder) => Ok(Path::new(folder)),
        None => Err(Failure::bad_args("backup: name the folder")),
    }
}

/// As long as it lives nobody else removes from the folder, and with `alone` nobody writes there.
pub(super) fn hold(folder: &Path, alone: bool) -> Outcome<File> {
    let named = |why: String| Failure::new(IO, format!("{}: {why}", folder.display()));
    let file = File::open(folder).map_err(|error| named(crate::exit::system_words(&error)))?;
    let how = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::LockShared };
    match rustix::fs::flock(&file, how) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(named("another program writes backups here, or reads them".into())),
        // Not every file system locks.
        Err(rustix::io::Errno::NOLCK | rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => Ok(file),
        Err(error) => Err(named(error.to_string())),
    }
}
