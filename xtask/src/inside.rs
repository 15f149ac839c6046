//! A place of its own for the run: namespaces of network, mounts and processes that only it sees.
//! Whatever it makes there ends with it, however it ends.

use std::{
    io::Read,
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

/// The variable by which the inner run knows that it is inside: its folder.
const INSIDE: &str = "KVORUM_XTASK_INSIDE";
/// A file in the folder: it is to be kept.
const KEEP: &str = "keep";

/// The folder of the inner run, if this is it.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(PathBuf::from)
}

/// The folder is not removed at the end.
pub fn keep() {
    if let Some(folder) = folder() {
        // Without it there is less to look at, and nothing else is wrong.
        let _ = std::fs::write(folder.join(KEEP), "");
    }
}

/// Runs this command once more, inside, and waits for it. `tools` are what it calls there.
///
/// # Errors
/// If a tool or a right is missing.
pub async fn enter(tools: &[&str]) -> Result<ExitStatus> {
    if !rustix::process::geteuid().is_root() {
        bail!("network namespaces and mounts need root: run it with sudo, or in a virtual machine");
    }
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !is_there(tool)).collect();
    if !missing.is_empty() {
        bail!("not installed: {}", missing.join(", "));
    }
    let dir = tempfile::Builder::new().prefix("xtask").tempdir()?;
    // Its input stays open as long as this process lives: the inner run ends when it is closed.
    let mut child = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .context("unshare does not start")?;
    let open = child.stdin.take();
    let mut told = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        status = child.wait() => Some(status?),
        _ = tokio::signal::ctrl_c() => None,
        _ = told.recv() => None,
    };
    let status = match ended {
        Some(status) => status,
        None => {
            drop(open);
            child.wait().await?
        }
    };
    if dir.path().join(KEEP).exists() {
        println!("kept: {}", dir.keep().display());
    }
    Ok(status)
}

/// Ends this process when the outer run is gone. All that runs in the namespaces ends with it.
pub fn end_with_the_outer() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(130);
    });
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}
