//! A checkpoint on its way from one member to another.
//!
//! The sender answers [`read_chunk`]. The receiver collects the files in `incoming/`, where nothing
//! counts: [`begin`], [`write_chunk`], [`install`]. A file is verified when it is complete, so that
//! a spoiled one comes again alone. Installing verifies everything once more, loads the state,
//! makes the files this member's own (header pages, seek tables, manifest) and flushes them; then
//! the rename of `incoming/ready` decides. Before it the member is the old one, after it the new
//! one: [`resume`], first of all at start, finishes or discards. Nothing is called damaged after
//! the rename.
//!
//! `incoming/ready` is the manifest of the new state until the log has restarted behind that
//! ([`followed`]). As long as it lies there the log is the one of before, and that it does not
//! reach the state says nothing of a loss.
//!
//! While [`install`] runs nobody may read `state/`: segment names are the sender's and may be in
//! use.

use crate::checkpoint::{INDEX_MAGIC, Manifest, Owner, TABLES_MAGIC, TablesFile, load_store, remove_if_there};
use crate::checkpoint::{verify_index, verify_segment, verify_tables};
use crate::header::{page, read_full};
use crate::manifest::{IndexFile, manifest_path, parse_manifest_name, part_of};
use crate::records::{self, names};
use crate::staging::{self, discard};
use crate::{Fault, Files, How, Identity, aside, corrupt};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use store::{Position, Store};

pub(crate) const DIR: &str = "incoming";
/// What is being received.
pub(crate) const WANTED: &str = "incoming/manifest";
/// What is whole and must be installed.
pub(crate) const READY: &str = "incoming/ready";
/// Most bytes of one chunk.
const CHUNK_MAX: u32 = 16 << 20;

/// What became of a piece of a file.
#[derive(Debug)]
pub enum Taken {
    /// It is written; the file is not complete.
    Piece,
    /// The file is complete, and it is what the manifest says.
    Whole,
    /// The file was complete and damaged. Now it is empty: it must come again, from its first byte.
    Spoiled(Fault),
}

/// The state that an install made this member's own.
#[derive(Debug)]
pub struct Installed {
    /// The manifest as it now stands.
    pub manifest: Manifest,
    pub store: Store,
}

/// Where the state of an offered checkpoint stands: the entry that it applied last.
///
/// # Errors
/// [`Fault::Damaged`] if the manifest is not readable or contradicts itself.
pub fn offered(manifest: &Bytes) -> Result<Position, Fault> {
    check_offer(&Manifest::decode(WANTED, manifest)?)
}

fn check_offer(wanted: &Manifest) -> Result<Position, Fault> {
    let head = wanted.image_head()?;
    let numbers = wanted.index_files.iter().map(|file| file.number);
    let ascend = numbers.clone().is_sorted_by(|a, b| a < b);
    if wanted.index_files.is_empty() || !ascend || numbers.clone().any(|number| number > wanted.index) {
        let what = format!("the index files {:x?} are none of a checkpoint", numbers.collect::<Vec<_>>());
        return Err(Fault::damaged(WANTED, 0, what));
    }
    Ok(head.applied)
}

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
    check_offer(&wanted)?;
    if unfinished(files)? {
        return Err(Fault::Refused { file: READY.to_string(), what: "an install is not finished".to_string() });
    }
    // The room may be needed.
    aside::clear_state(files)?;
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

/// Takes a piece of a file in. Refused if the manifest does not name these bytes. The piece that
/// ends the file must be its last one: the file is verified then.
pub fn write_chunk(files: &dyn Files, name: &str, offset: u64, bytes: &[u8]) -> Result<Taken, Fault> {
    let path = format!("{DIR}/{name}");
    let wanted = read_wanted(files)?;
    let end = offset.checked_add(bytes.len() as u64);
    let len = wanted.files().into_iter().find(|(wanted, _)| wanted == name).map(|(_, len)| len);
    let (Some(len), Some(end)) = (len, end.filter(|end| len.is_some_and(|len| *end <= len))) else {
        let what = format!("{} bytes at {offset} are not part of the checkpoint that is received", bytes.len());
        return Err(Fault::Refused { file: path, what });
    };
    let file = files.open(&path, How::Write).map_err(|e| Fault::io(&path, offset, e))?;
    file.write_at(offset, &[bytes]).map_err(|e| Fault::io(&path, offset, e))?;
    if end < len {
        return Ok(Taken::Piece);
    }
    match verify_received(files, &wanted, name) {
        Ok(()) => Ok(Taken::Whole),
        Err(fault) if fault.is_damage() => {
            file.set_len(0).map_err(|e| Fault::io(&path, 0, e))?;
            Ok(Taken::Spoiled(fault))
        }
        Err(other) => Err(other),
    }
}

/// Files on their way are the sender's until they are adopted, and an install may be repeated.
fn sender(manifest: &Manifest) -> Owner {
    Owner { cluster: manifest.id.cluster, member: None }
}

fn verify_received(files: &dyn Files, wanted: &Manifest, name: &str) -> Result<(), Fault> {
    for file in wanted.segments.iter().filter(|file| file.name() == name) {
        verify_segment(files, DIR, sender(wanted), file)?;
    }
    for file in wanted.index_files.iter().filter(|file| file.name() == name) {
        verify_index(files, DIR, sender(wanted), file)?;
    }
    let tables = wanted.tables.iter().find(|file| file.name() == name);
    tables.map_or(Ok(()), |file| verify_tables(files, DIR, sender(wanted), file))
}

/// Verifies everything, and makes the received checkpoint the only one of this member. A mark of
/// [`corrupt`] was said of the old state and goes with it. Afterwards the log must restart at the
/// manifest's index ([`crate::Log::restart_at`]), which ends the install.
///
/// # Errors
/// [`Fault::Damaged`]: what was received is wrong; the old state stands.
/// [`Fault::Io`]: a call failed; the old state stands.
/// [`Fault::Stopped`]: the install is decided and not finished. The files are of neither state: the
/// process must end, and the next start finishes it ([`resume`]).
pub fn install(files: &dyn Files, id: Identity, config: store::Config) -> Result<Installed, Fault> {
    let received = read_wanted(files)?;
    received.check_owner(WANTED, id.cluster, None)?;
    check_offer(&received)?;
    seal_segments(files, &received)?;
    for file in &received.index_files {
        verify_index(files, DIR, sender(&received), file)?;
    }
    let store = load_store(files, DIR, sender(&received), config, &received)?;
    let manifest = Manifest { id, ..received };
    adopt(files, &manifest)?;
    decide(files, &manifest)?;
    Ok(Installed { manifest, store })
}

/// What lies in `incoming/` and is flushed there becomes this member's state.
pub(crate) fn decide(files: &dyn Files, ours: &Manifest) -> Result<(), Fault> {
    files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
    ours.stage(files, READY)?;
    files.rename(&part_of(READY), READY).map_err(|e| Fault::io(READY, 0, e))?;
    roll_forward(files, ours).map_err(|fault| Fault::Stopped {
        file: READY.to_string(),
        reason: format!("a snapshot is half in place, and the next start finishes it: {fault}"),
    })
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

/// Puts the state of an install in place that a crash cut short; returns its manifest. The log must
/// follow ([`followed`]). What was received in part stays for the next offer: for a member, which
/// removes it when the log was enough.
pub fn finish(files: &dyn Files, id: Identity) -> Result<Option<Manifest>, Fault> {
    if !unfinished(files)? {
        return Ok(None);
    }
    let ours = decided(files, id)?;
    roll_forward(files, &ours)?;
    Ok(Some(ours))
}

/// The manifest of an install that is decided and whose log has not followed.
pub(crate) fn decided(files: &dyn Files, id: Identity) -> Result<Manifest, Fault> {
    Manifest::read(files, READY, id.cluster, Some(id.member))
}

/// The log has restarted behind the installed state: its manifest is a checkpoint's like any other.
/// Nothing is done if no install was under way. It needs no room.
///
/// # Errors
/// What the operating system says. Repeating it is safe, and so is a start after a crash.
pub fn followed(files: &dyn Files, id: Identity) -> Result<(), Fault> {
    if unfinished(files)? { end_install(files, &decided(files, id)?) } else { Ok(()) }
}

fn end_install(files: &dyn Files, ours: &Manifest) -> Result<(), Fault> {
    let path = manifest_path(ours.index);
    files.rename(READY, &path).map_err(|e| Fault::io(&path, 0, e))?;
    for dir in [records::DIR, DIR] {
        files.sync_dir(dir).map_err(|e| Fault::io(dir, 0, e))?;
    }
    discard(files)
}

/// True if an install is decided, and its state or its log is not in place: [`resume`] will finish
/// it.
pub fn unfinished(files: &dyn Files) -> Result<bool, Fault> {
    Ok(names(files, DIR)?.iter().any(|name| name == "ready"))
}

fn is_data_file(name: &str) -> bool {
    let number = name.rsplit_once('-').and_then(|(_, hex)| u64::from_str_radix(hex, 16).ok());
    let numbered = number.is_some_and(|number| {
        let (index, tables) = (IndexFile { number, len: 0, crc: 0 }, TablesFile { number, len: 0, crc: 0 });
        index.name() == name || tables.name() == name
    });
    numbered || records::parse_name(name).is_some()
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
    let tables = ours.tables.iter().map(|file| (file.name(), TABLES_MAGIC, file.number));
    for (name, magic, number) in segments.chain(indexes).chain(tables) {
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
    // The decision first: it may be visible and not durable, also after a kill.
    sync(DIR)?;
    files.make_dir(records::DIR).map_err(|e| Fault::io(records::DIR, 0, e))?;
    sync("")?;
    // A member that starts over keeps its damaged files until a leader has a whole state for it.
    let starts_over = ours.index == 0;
    let remove = |name: &str| match format!("{}/{name}", records::DIR) {
        path if starts_over => aside::take(files, &path),
        path => remove_if_there(files, &path),
    };
    // The old checkpoints first: their segments are about to be replaced under the same names.
    for name in names(files, records::DIR)? {
        if parse_manifest_name(&name).is_some() {
            remove(&name)?;
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
            remove(&name)?;
        }
    }
    sync(records::DIR)?;
    sync(DIR)?;
    // While the decision still stands: a crash cannot leave the mark beside the new state.
    corrupt::clear(files)?;
    // No log joins an empty state: the one that lies there is judged, and what it promised is
    // remembered.
    if starts_over { end_install(files, ours) } else { Ok(()) }
}

/// Verifies the received segments, and gives those that get no more records their seek tables.
fn seal_segments(files: &dyn Files, received: &Manifest) -> Result<(), Fault> {
    let head = received.image_head()?;
    let sealed: BTreeSet<u32> = head.segments.iter().filter(|used| used.sealed).map(|used| used.id).collect();
    for file in &received.segments {
        let seeks = verify_segment(files, DIR, sender(received), file)?;
        if sealed.contains(&file.segment) {
            let path = format!("{DIR}/{}", file.name());
            let handle = files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
            records::write_footer(&*handle, &path, seeks, file.len)?;
        }
    }
    Ok(())
}
