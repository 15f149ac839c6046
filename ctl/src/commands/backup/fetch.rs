//! A snapshot on its way into a file.

use crate::exit::{Failure, IO, Outcome};
use bolt::{Db, Source};
use client::Client;
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    time::{Duration, Instant},
};

/// Bytes of the hash behind a snapshot.
const SUM: usize = 32;

/// A file of etcd's form that is only read.
#[derive(Debug)]
pub(super) struct DbFile {
    file: File,
    len: u64,
}

impl Source for DbFile {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Receives a snapshot, `rate` bytes in a second at most (0: as they come), and opens it. Also the
/// version that the server says.
///
/// # Errors
/// The server's, the disk's; a hash that is not that of the bytes before it.
pub(super) async fn fetch(client: &Client, to: &Path, rate: u64, bar: &ProgressBar) -> Outcome<(Db<DbFile>, String)> {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(to);
    let file = file.as_mut().map_err(|error| Failure::io(error))?;
    let mut snapshot = client.snapshot().await.map_err(Failure::from)?;
    let (mut sum, mut held, mut bytes, begin) = (Sha256::new(), Vec::new(), 0_u64, Instant::now());
    while let Some(piece) = snapshot.next().await.map_err(Failure::from)? {
        file.write_all(&piece).map_err(|error| Failure::io(&error))?;
        bytes += piece.len() as u64;
        // The last bytes are the hash of all before them.
        held.extend_from_slice(&piece);
        let before = held.len().saturating_sub(SUM);
        sum.update(&held[..before]);
        held.drain(..before);
        bar.set_length(bytes.saturating_add(snapshot.remaining()));
        bar.set_position(bytes);
        if let Some(due) = bytes.checked_div(rate).map(|_| Duration::from_secs_f64(bytes as f64 / rate as f64)) {
            tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
        }
    }
    if !bolt::digest_follows(bytes) || held[..] != sum.finalize()[..] {
        return Err(Failure::new(IO, "the snapshot came damaged: its hash is another one"));
    }
    let len = bytes - SUM as u64;
    let file = file.try_clone().map_err(|error| Failure::io(&error))?;
    let db = Db::open(DbFile { file, len }).map_err(|error| Failure::new(IO, error.to_string()))?;
    Ok((db, snapshot.version().to_owned()))
}
