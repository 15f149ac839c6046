//! A checkpoint on its way from one member to another.
//!
//! The sender answers [`read_chunk`]. The receiver collects the files in `incoming/`, where nothing
//! counts: [`begin`], [`write_chunk`], [`install`]. Installing verifies every file against the
//! manifest, makes the files this member's own (header pages, manifest) and flushes them; then the
//! rename of `incoming/ready` decides. Before it the member is the old one, after it the new one:
//! [`resume`], first of all at start, finishes or discards.
//!
//! While [`install`] runs nobody may read `state/`: segment names are the sender's and may be in use.

use crate::checkpoint::{self, INDEX_MAGIC, Manifest, remove_if_there};
use crate::header::{page, read_full};
use crate::manifest::{IndexFile, manifest_path, parse_manifest_name};
use crate::records::{self, names};
use crate::staging::{self, discard};
use crate::{Fault, Files, How, Identity};
use bytes::Bytes;
use std::io::ErrorKind;

pub(crate) const DIR: &str = "incoming";
/// What is being received.
pub(crate) const WANTED: &str = "incoming/manifest";
/// What is whole and must be installed.
const READY: &str = "incoming/ready";
/// Most bytes of one chunk.
const CHUNK_MAX: u32 = 16 << 20;

/// Up to `len` bytes of a file of `state/`, and whether the file ends with them. The receiver
/// knows from the manifest how many bytes it needs: a segment may go on behind them.
pub fn read_chunk(files: &dyn Files, name: &str, offset: u64, len: u32) -> Result<(Bytes, bool), Fault> {
    let path = format!("{}/{name}", records::DIR);
    if !is_data_file(name) || len > CHUNK_MAX {
        return Err(Fault::Refused { file: path, what: format!("no piece of {len} bytes of this file is given away") });
    }
    let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, offset, e))?;
    let mut bytes = vec![0; len as usize];
    let got = read_full(&*file, &path, offset, &mut bytes)?;
    let total = file.len().map_err(|e| Fault::io(&path, offset, e))?;
    bytes.truncate(got);
    Ok((Bytes::from(bytes), offset.saturating_add(got as u64) >= total))
}

/// Starts to receive the checkpoint of `manifest` (encoded, from the sender): the files that are
/// needed, with their lengths. What has come of a file that is the same stays
/// ([`crate::staging::received`] tells how much); other files are forgotten.
pub fn begin(files: &dyn Files, id: Identity, manifest: &Bytes) -> Result<Vec<(String, u64)>, Fault> {
    let wanted = Manifest::decode(WANTED, manifest)?;
    wanted.check_owner(WANTED, id.cluster, None)?;
    if unfinished(files)? {
        return Err(Fault::Refused { file: READY.to_string(), what: "an install is not finished".to_string() });
    }
    staging::keep(files, &wanted)?;
    let kept = names(files, DIR)?;
    let made = files.make_dir(DIR).and_then(|()| files.sync_dir("")).and_then(|()| {
        files.open(WANTED, How::Create)?.write_at(0, &[manifest])?;
        for (name, _) in wanted.files().into_iter().filter(|(name, _)| !kept.contains(name)) {
            files.open(&format!("{DIR}/{name}"), How::Create)?;
        }
        Ok(())
    });
    made.map_err(|e| Fault::io(WANTED, 0, e))?;
    Ok(wanted.files())
}

/// Takes a piece of a file in. Refused if the manifest does not name these bytes.
pub fn write_chunk(files: &dyn Files, name: &str, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let path = format!("{DIR}/{name}");
    let wanted = read_wanted(files)?;
    let end = offset.checked_add(bytes.len() as u64);
    let named = wanted.files().into_iter().any(|(wanted, len)| wanted == name && end.is_some_and(|end| end <= len));
    if !named {
        let what = format!("{} bytes at {offset} are not part of the checkpoint that is received", bytes.len());
        return Err(Fault::Refused { file: path, what });
    }
    files
        .open(&path, How::Write)
        .and_then(|file| file.write_at(offset, &[bytes]))
        .map_err(|e| Fault::io(&path, offset, e))
}

/// Verifies everything, and makes the received checkpoint the only one of this member. Returns the
/// manifest as it now stands. Afterwards the log must restart at its index
/// ([`crate::Log::restart_at`]) and the state must be loaded from it.
///
/// # Errors
/// [`Fault::Damaged`]: what was received is wrong; the old state stands.
pub fn install(files: &dyn Files, id: Identity) -> Result<Manifest, Fault> {
    let received = read_wanted(files)?;
    received.check_owner(WANTED, id.cluster, None)?;
    checkpoint::verify_in(files, DIR, &received)?;
    let ours = Manifest { id, ..received };
    adopt(files, &ours)?;
    files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
    ours.write(files, DIR, READY)?;
    roll_forward(files, &ours)?;
    seal_segments(files, &ours)?;
    Ok(ours)
}

/// Finishes an install that a crash cut short, or removes what was received in part. Returns the
/// manifest if one was finished.
pub fn resume(files: &dyn Files, id: Identity) -> Result<Option<Manifest>, Fault> {
    let finished = finish(files, id)?;
    if finished.is_none() {
        discard(files)?;
    }
    Ok(finished)
}

/// Finishes an install that a crash cut short; returns its manifest. What was received in part stays
/// for the next offer: for a member, which removes it when the log was enough.
pub fn finish(files: &dyn Files, id: Identity) -> Result<Option<Manifest>, Fault> {
    if !unfinished(files)? {
        return Ok(None);
    }
    let ours = Manifest::read(files, READY, id.cluster, Some(id.member))?;
    roll_forward(files, &ours)?;
    Ok(Some(ours))
}

/// True if an install is decided and not finished: [`resume`] will finish it.
pub fn unfinished(files: &dyn Files) -> Result<bool, Fault> {
    Ok(names(files, DIR)?.iter().any(|name| name == "ready"))
}

fn is_data_file(name: &str) -> bool {
    let index = name.strip_prefix("index-").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let index = index.is_some_and(|number| IndexFile { number, len: 0, crc: 0 }.name() == name);
    index || records::parse_name(name).is_some()
}

fn read_wanted(files: &dyn Files) -> Result<Manifest, Fault> {
    let file = files.open(WANTED, How::Read).map_err(|e| Fault::io(WANTED, 0, e))?;
    let len = file.len().map_err(|e| Fault::io(WANTED, 0, e))?;
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| Fault::damaged(WANTED, 0, "too long"))?];
    read_full(&*file, WANTED, 0, &mut bytes)?;
    Manifest::decode(WANTED, &Bytes::from(bytes))
}

/// Header pages of our own, and a flush of every file.
fn adopt(files: &dyn Files, ours: &Manifest) -> Result<(), Fault> {
    let segments = ours.segments.iter().map(|file| (file.name(), records::MAGIC, u64::from(file.segment)));
    let indexes = ours.index_files.iter().map(|file| (file.name(), INDEX_MAGIC, file.number));
    for (name, magic, number) in segments.chain(indexes) {
        let path = format!("{DIR}/{name}");
        let header = page(magic, ours.id, number);
        files
            .open(&path, How::Write)
            .and_then(|file| {
                file.write_at(0, &[&header])?;
                file.sync()
            })
            .map_err(|e| Fault::io(&path, 0, e))?;
    }
    Ok(())
}

/// Replaces `state/` by what lies in `incoming/`. Every step may have been done before a crash.
fn roll_forward(files: &dyn Files, ours: &Manifest) -> Result<(), Fault> {
    let sync = |dir: &str| files.sync_dir(dir).map_err(|e| Fault::io(dir, 0, e));
    files.make_dir(records::DIR).map_err(|e| Fault::io(records::DIR, 0, e))?;
    sync("")?;
    // The old checkpoints first: their segments are about to be replaced under the same names.
    for name in names(files, records::DIR)? {
        if parse_manifest_name(&name).is_some() {
            remove_if_there(files, &format!("{}/{name}", records::DIR))?;
        }
    }
    sync(records::DIR)?;
    let wanted = ours.files();
    for (name, _) in &wanted {
        let to = format!("{}/{name}", records::DIR);
        match files.rename(&format!("{DIR}/{name}"), &to) {
            // Moved before the crash; verified when the manifest is loaded.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => other.map_err(|e| Fault::io(&to, 0, e))?,
        }
    }
    for name in names(files, records::DIR)? {
        if !wanted.iter().any(|(wanted, _)| *wanted == name) {
            remove_if_there(files, &format!("{}/{name}", records::DIR))?;
        }
    }
    sync(records::DIR)?;
    sync(DIR)?;
    let path = manifest_path(ours.index);
    files.rename(READY, &path).map_err(|e| Fault::io(&path, 0, e))?;
    sync(records::DIR)?;
    sync(DIR)?;
    discard(files)
}

/// Seek tables for segments that get no more records. A convenience: not flushed.
fn seal_segments(files: &dyn Files, ours: &Manifest) -> Result<(), Fault> {
    let closed = ours.segments.len().saturating_sub(1);
    for file in &ours.segments[..closed] {
        records::seal(files, file.segment, file.len)?;
    }
    Ok(())
}
