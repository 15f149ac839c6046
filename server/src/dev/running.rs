//! What runs in a directory: who holds its lock, and the members that it has started.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// One member, as `kvorum dev` sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) name: String,
    /// `127.0.0.1:2379`.
    pub(super) endpoint: String,
    /// None: it is down.
    pub(super) process: Option<u32>,
}

/// What a second terminal can know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Running {
    /// Of `kvorum dev` itself.
    pub(super) process: u32,
    pub(super) members: Vec<Member>,
}

impl Running {
    /// `127.0.0.1:2379,127.0.0.1:23791`
    pub(super) fn endpoints(&self) -> String {
        self.members.iter().map(|member| member.endpoint.as_str()).collect::<Vec<_>>().join(",")
    }

    /// For others to read.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join("running.new");
        fs::write(&new, serde_json::to_string_pretty(self)? + "\n")?;
        fs::rename(new, dir.join("running"))
    }

    /// None: nothing is running there, or has not said anything yet.
    pub(super) fn read(dir: &Path) -> Option<Running> {
        serde_json::from_str(&fs::read_to_string(dir.join("running")).ok()?).ok()
    }
}

/// Held as long as the directory is in use. It ends with the process, however that ends.
#[derive(Debug)]
pub(super) struct Lock {
    _dir: File,
}

/// None: another process has it.
///
/// # Errors
/// What the file system says.
pub(super) fn lock(dir: &Path) -> io::Result<Option<Lock>> {
    match crate::files::lock(dir) {
        Ok(dir) => Ok(Some(Lock { _dir: dir })),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_directory() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let held = lock(dir.path()).expect("a lock file");
        assert!(held.is_some() && lock(dir.path()).expect("a lock file").is_none());
        drop(held);
        assert!(lock(dir.path()).expect("a lock file").is_some());
    }

    #[test]
    fn what_runs_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(Running::read(dir.path()), None);
        let member = |n: u32| Member { name: format!("m{n}"), endpoint: format!("127.0.0.1:{n}"), process: Some(n) };
        let running = Running { process: 7, members: vec![member(1), member(2)] };
        running.write(dir.path()).expect("writes");
        assert_eq!(Running::read(dir.path()), Some(running.clone()));
        assert_eq!(running.endpoints(), "127.0.0.1:1,127.0.0.1:2");
    }
}
