//! Disks of members that can be stopped, filled and made to fail.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::timeout,
};

use super::tool::run;

/// Of one disk: both programs reserve room for their logs in advance.
const BYTES: u64 = 512 << 20;
/// Who holds the rest of a full disk.
const FILLER: &str = "filler";

/// A file that is a disk: ext4 on a loop device, mounted for one member.
#[derive(Debug)]
pub struct Disk {
    mount: PathBuf,
}

impl Disk {
    /// Makes it in a folder of `dir` with this name.
    ///
    /// # Errors
    /// If there is no loop device or no room.
    pub async fn new(dir: &Path, name: &str) -> Result<Disk> {
        let (image, mount) = (dir.join(format!("{name}.img")), dir.join(format!("{name}.disk")));
        File::create(&image)?.set_len(BYTES)?;
        fs::create_dir_all(&mount)?;
        run(&format!("mkfs.ext4 -q -m 0 {}", image.display())).await?;
        run(&format!("mount -o loop {} {}", image.display(), mount.display())).await?;
        Ok(Disk { mount })
    }

    /// Where the member's directory is to be.
    pub fn folder(&self) -> PathBuf {
        self.mount.join("data")
    }

    /// Nothing is written any more until it goes on; who writes waits.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub async fn freeze(&self) -> Result<()> {
        run(&format!("fsfreeze --freeze {}", self.mount.display())).await?;
        Ok(())
    }

    /// It goes on.
    ///
    /// # Errors
    /// If it was not stopped.
    pub async fn thaw(&self) -> Result<()> {
        run(&format!("fsfreeze --unfreeze {}", self.mount.display())).await?;
        Ok(())
    }

    /// Not one block is free.
    ///
    /// # Errors
    /// If it cannot be filled.
    pub fn fill(&self) -> Result<()> {
        let filler = File::create(self.mount.join(FILLER))?;
        let mut filled = 0;
        for piece in [1 << 20, 64 << 10, 4096] {
            while rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), filled, piece).is_ok() {
                filled += piece;
            }
        }
        if filled == 0 {
            bail!("{} was full before", self.mount.display());
        }
        Ok(())
    }

    /// What filled it is gone.
    ///
    /// # Errors
    /// If it was not there.
    pub fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.mount.join(FILLER))?)
    }

    /// It is taken away; nobody may use it any more.
    ///
    /// # Errors
    /// If somebody does.
    pub async fn end(self) -> Result<()> {
        run(&format!("umount {}", self.mount.display())).await?;
        Ok(())
    }
}

/// Calls of a process that fail or wait, by `strace`.
#[derive(Debug)]
pub struct Tampered {
    strace: Child,
}

impl Tampered {
    /// From now on, what `strace --inject` says happens to these calls of the process.
    ///
    /// # Errors
    /// If the process cannot be traced.
    pub async fn new(pid: u32, calls: &str, how: &str) -> Result<Tampered> {
        let mut strace = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-p", &pid.to_string()])
            .args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{how}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        // It says so when it is attached.
        let mut said = strace.stderr.take().context("its errors are a pipe")?;
        let mut text = vec![0; 4096];
        let count = timeout(Duration::from_secs(10), said.read(&mut text)).await.context("strace says nothing")??;
        let text = String::from_utf8_lossy(&text[..count]).into_owned();
        if !text.contains("attached") {
            bail!("strace: {}", text.trim());
        }
        // Who reads no more would stop it.
        tokio::spawn(async move {
            let mut rest = Vec::new();
            let _ = said.read_to_end(&mut rest).await;
        });
        Ok(Tampered { strace })
    }

    /// The calls are as they were.
    ///
    /// # Errors
    /// If `strace` does not end.
    pub async fn end(mut self) -> Result<()> {
        if let Some(pid) = self.strace.id().and_then(|id| Pid::from_raw(id as i32)) {
            // It has ended if the process has.
            let _ = kill_process(pid, Signal::TERM);
        }
        timeout(Duration::from_secs(20), self.strace.wait()).await.context("strace does not end")??;
        Ok(())
    }
}
