//! Programs of the system that are called, without holding up the clients.

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// Runs a line of words and gives what it wrote.
///
/// # Errors
/// With what it wrote, if it fails.
pub async fn run(line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().context("a line without a program")?;
    let output = Command::new(program).args(words).output().await.with_context(|| line.to_owned())?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
