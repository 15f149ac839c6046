//! Runs of cargo in the workspace.

use crate::peers::workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::process::Command;

/// Cargo with these words, not yet started: the one that runs this program, if one does.
pub fn command(words: &[&str], variables: &[(&str, &OsStr)]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(workspace()).envs(variables.iter().copied());
    command
}

/// Runs cargo with these words.
///
/// # Errors
/// If it does not start, or fails.
pub fn cargo(words: &[&str]) -> Result<()> {
    cargo_with(words, &[])
}

/// The same with variables.
///
/// # Errors
/// As [`cargo`].
pub fn cargo_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Result<()> {
    let status = command(words, variables).status().context("cargo does not start")?;
    if !status.success() {
        bail!("cargo {}: {status}", words.join(" "));
    }
    Ok(())
}
