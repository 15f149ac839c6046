//! The files of one process, with the open ones that it keeps, as `server/src/files.rs` keeps them.

use super::Disk;
use disk::handles::{Handles, Looked};
use disk::{File, Files, How};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// Few, so that some are closed again.
const KEPT: usize = 8;

struct Process {
    disk: Disk,
    kept: Mutex<Handles<Arc<dyn File>>>,
}

impl Disk {
    /// For one life of a process.
    pub fn process(&self) -> Arc<dyn Files> {
        Arc::new(Process { disk: self.clone(), kept: Mutex::new(Handles::new(KEPT)) })
    }
}

impl Process {
    fn kept(&self) -> MutexGuard<'_, Handles<Arc<dyn File>>> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A call after which `names` may stand for other files.
    fn change<T>(&self, names: &[&str], call: impl FnOnce(&Disk) -> io::Result<T>) -> io::Result<T> {
        if self.disk.lies().keeps_handles {
            return call(&self.disk);
        }
        self.kept().begin(names);
        let result = call(&self.disk);
        self.kept().end(names);
        result
    }
}

impl Files for Process {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        match how {
            How::Write => self.disk.open(path, how),
            How::Create => self.change(&[path], |disk| disk.open(path, how)),
            How::Read => {
                let looked = self.kept().look(path);
                let opening = match looked {
                    Looked::Kept(file) => return Ok(file),
                    Looked::Absent(opening) => opening,
                };
                let file = self.disk.open(path, how)?;
                self.kept().keep(path, opening, Arc::clone(&file));
                Ok(file)
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(&[from, to], |disk| disk.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.change(&[path], |disk| disk.remove(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.make_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}
