//! Where the checks work, and how they ask a machine.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::machines::{Machine, Shelf};
use crate::peers::workspace;

/// Where a check works, and what it runs.
#[derive(Debug)]
pub struct Place {
    /// Of the run.
    pub folder: PathBuf,
    /// The kvorum.
    pub program: PathBuf,
}

impl Place {
    /// What the machines of a part have.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn shelf(&self, part: &str) -> Result<Shelf> {
        let folder = self.folder.join(part);
        std::fs::create_dir_all(&folder)?;
        Shelf::new(&folder, &self.program)
    }
}

/// The folder of the files.
pub fn files() -> PathBuf {
    workspace().join("deploy")
}

/// Runs a script on a machine, and gives what it wrote.
///
/// # Errors
/// With what it wrote, if it fails.
pub fn does(machine: &Machine, script: &str) -> Result<String> {
    let output = machine.does(script)?;
    let wrote = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "{script}: {wrote}");
    Ok(wrote)
}
