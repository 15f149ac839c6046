//! Checkpoints: the state at one applied index, durable as a whole.
//!
//! ```text
//! state/index-%016x       header page, then frames {len u32, crc32c u32, bytes of rows (store::image)}
//! state/tables-%016x      header page, then frames of store::ImageHead::table_blocks; only if they are large
//! state/manifest-%016x    see manifest.rs
//! ```
//!
//! [`begin`], [`rows`] as often as needed, [`finish`]. State is never believed beyond the newest
//! valid manifest: at start [`settle`] removes what it does not name and cuts segments to the
//! lengths it names, and the log is replayed from its index. Two checkpoints are kept, so that one
//! damaged manifest is not the end: the log is cut below the *older* one only.
//!
//! A crash at any step leaves the old or the new checkpoint, and files that nothing names.

use crate::ahead::Ahead;
use crate::header::{check_page, page, put_u32, read_full};
pub use crate::manifest::{IndexFile, Manifest, SegmentFile, TablesFile};
use crate::manifest::{index_name, manifest_path, parse_manifest_name};
use crate::measure::{self, FRAME, Part, frame};
use crate::records::{DIR, names};
use crate::{Fault, File, Files, How, Identity, PAGE, records, transfer};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use store::{Damage, ImageHead, SegmentUse, Store};

pub(crate) const INDEX_MAGIC: &[u8; 8] = b"kvindexf";
pub(crate) const TABLES_MAGIC: &[u8; 8] = b"kvtables";
const CHUNK: usize = 1 << 20;
/// Tables up to so many bytes stay in the manifest.
const TABLES_INLINE: usize = 64 << 10;

/// A durable checkpoint.
#[derive(Debug)]
pub struct Finished {
    /// The encoded manifest: what a snapshot message carries.
    pub manifest: Bytes,
    /// The log may be cut below this index: the older of the two kept checkpoints covers the rest.
    pub cut: u64,
    /// It was written now; false: there was one at this index, and that one stays.
    pub fresh: bool,
}

/// What a member starts from.
#[derive(Debug)]
pub struct Loaded {
    pub manifest: Manifest,
    pub store: Store,
    /// Why the newest checkpoint was not used, if an older one is.
    pub passed_over: Option<Fault>,
}

fn part_path(index: u64) -> String {
    format!("{DIR}/{}.part", index_name(index))
}

fn index_path(number: u64) -> String {
    format!("{DIR}/{}", index_name(number))
}

/// Starts the index file of a checkpoint at `index`.
pub fn begin(files: &dyn Files, id: Identity, index: u64) -> Result<(), Fault> {
    let path = part_path(index);
    files.make_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
    remove_begun(files)?;
    let header = page(INDEX_MAGIC, id, index);
    files.open(&path, How::Create).and_then(|file| file.write_at(0, &[&header])).map_err(|e| Fault::io(&path, 0, e))
}

/// One checkpoint at a time: what was begun before was given up.
fn remove_begun(files: &dyn Files) -> Result<(), Fault> {
    let begun = |name: &&String| name.starts_with("index-") && name.ends_with(".part");
    let names = names(files, DIR)?;
    names.iter().filter(begun).try_for_each(|name| remove_if_there(files, &format!("{DIR}/{name}")))
}

/// Appends the next bytes of the rows, as `Store::image_rows` made them.
pub fn rows(files: &dyn Files, index: u64, block: &[u8]) -> Result<(), Fault> {
    if block.is_empty() {
        // A slice without a live key. An empty frame would look like a hole in the file.
        return Ok(());
    }
    let path = part_path(index);
    let file = files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
    let end = file.len().map_err(|e| Fault::io(&path, 0, e))?;
    file.write_at(end, &[&frame_header(block), block]).map_err(|e| match file.set_len(end) {
        Ok(()) => Fault::io(&path, end, e),
        // Half a block stays: these rows must not be appended again.
        Err(_) => Fault::io(&path, end, io::Error::other(e)),
    })
}

/// Makes the checkpoint durable: data files, then the manifest under a new name, then the rename.
/// Every record that `head` knows of must have been written. If there is a readable checkpoint at
/// `index` already, that one stays and is returned.
///
/// Every record and block of rows that no earlier checkpoint named is verified on the way.
///
/// # Errors
/// [`Fault::Damaged`], with file and offset: what was written is not what the file holds. No
/// manifest names it and the log must not be cut: a restart writes it again.
/// After a failed flush the bytes of a segment may look written and not be: the process must not
/// make another checkpoint, but stop.
pub fn finish(files: &dyn Files, id: Identity, index: u64, head: &ImageHead) -> Result<Finished, Fault> {
    let (newest, _) = newest_manifest(files, id)?;
    match newest {
        Some(ref manifest) if manifest.index == index => {
            remove_if_there(files, &part_path(index))?;
            // Who made it may have been killed before its name was flushed.
            files.sync_dir(DIR).map_err(|e| unflushed(DIR, e))?;
            return report(files, id, manifest.encode(), false);
        }
        Some(ref manifest) => assert!(manifest.index < index, "checkpoints go forward: {} to {index}", manifest.index),
        None => {}
    }
    let base = seal_index(files, index)?;
    let mut segments = named_segments(head);
    for file in &mut segments {
        let before = newest_segment(newest.as_ref(), file.segment);
        measure_segment(files, id, file, before)?;
    }
    let (tables, head) = match head.tables_bytes() > TABLES_INLINE {
        true => (Some(write_tables(files, id, index, head)?), head.encode_without_tables()),
        false => (None, head.encode()),
    };
    // The names must be there before a manifest relies on them.
    files.sync_dir(DIR).map_err(|e| unflushed(DIR, e))?;
    let manifest = Manifest { id, index, segments, index_files: vec![base], tables, head: Bytes::from(head) };
    let bytes = manifest.write(files, DIR, &manifest_path(index))?;
    report(files, id, bytes, true)
}

/// The empty checkpoint a member begins with: `head` at `index`, no rows, no records.
pub fn genesis(files: &dyn Files, id: Identity, index: u64, head: &ImageHead) -> Result<Finished, Fault> {
    files.make_dir(DIR).and_then(|()| files.sync_dir("")).map_err(|e| Fault::io(DIR, 0, e))?;
    begin(files, id, index)?;
    rows(files, index, &no_rows())?;
    finish(files, id, index, head)
}

/// The rows of a store without keys.
pub(crate) fn no_rows() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut empty = Store::new(store::Config::default());
    let (_, mut cursor) = empty.image();
    assert!(empty.image_rows(&mut cursor, 1, &mut bytes), "an empty store has no rows");
    bytes
}

/// The newest checkpoint that is whole, if there is any. Reads only.
///
/// `log_boundary`: the log holds every entry above this index. An older checkpoint stands in for a
/// damaged newer one only if the log covers the way from it.
///
/// # Errors
/// [`Fault::Damaged`] if no checkpoint can be used; later levels and foreign files are refused
/// even if an older checkpoint would do.
pub fn load_newest(
    files: &dyn Files,
    id: Identity,
    config: store::Config,
    log_boundary: u64,
) -> Result<Option<Loaded>, Fault> {
    if transfer::unfinished(files)? {
        // The state of an install, whose log has not followed: there is no other one.
        let manifest = transfer::decided(files, id)?;
        let store = load(files, id, config, &manifest)?;
        return Ok(Some(Loaded { manifest, store, passed_over: None }));
    }
    let mut passed_over = None;
    for index in manifests(files)?.into_iter().rev() {
        let damage = match load_named(files, id, config, index) {
            Ok((manifest, store)) if index >= log_boundary => {
                return Ok(Some(Loaded { manifest, store, passed_over }));
            }
            Ok(_) => {
                let what = format!("the log begins behind entry {log_boundary}, the checkpoint stands at {index}");
                Fault::damaged(&manifest_path(index), 0, what)
            }
            Err(fault) if fault.is_damage() => fault,
            Err(other) => return Err(other),
        };
        passed_over.get_or_insert(damage);
    }
    match passed_over {
        None => Ok(None),
        Some(fault) => Err(fault),
    }
}

/// Brings `state/` back to what `manifest` (the loaded one) says, before anything is written: newer
/// manifests, unnamed files and bytes behind the named lengths go. Idempotent. The log must have
/// followed an install ([`transfer::followed`]).
pub fn settle(files: &dyn Files, id: Identity, manifest: &Manifest) -> Result<(), Fault> {
    // First the manifests that were passed over: afterwards nothing names what is cut below.
    for index in manifests(files)? {
        let path = manifest_path(index);
        if index > manifest.index
            || (index < manifest.index && is_damaged(Manifest::read(files, &path, id.cluster, Some(id.member)))?)
        {
            remove_if_there(files, &path)?;
        }
    }
    files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
    remove_unnamed(files, id, Reach::Everything)?;
    for used in named_last(files, id, manifest)?.values() {
        cut_segment(files, used)?;
    }
    files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))
}

/// Every segment as the newest checkpoint that has it names it, `manifest` being the newest of all.
/// That one flushed it last: what a file holds beyond may be torn.
fn named_last(files: &dyn Files, id: Identity, manifest: &Manifest) -> Result<BTreeMap<u32, SegmentUse>, Fault> {
    let mut last: BTreeMap<u32, SegmentUse> = BTreeMap::new();
    let mut name = |manifest: &Manifest| {
        let open = manifest.open_segment()?;
        last.extend(manifest.segments.iter().map(|file| (file.segment, use_of(file, open))));
        Ok::<(), Fault>(())
    };
    for index in manifests(files)?.into_iter().filter(|index| *index < manifest.index) {
        name(&Manifest::read(files, &manifest_path(index), id.cluster, Some(id.member))?)?;
    }
    name(manifest)?;
    Ok(last)
}

/// Removes all but the two newest checkpoints, and files older than the newest that no kept one
/// names. `held`: indexes of checkpoints that a transfer is reading. To be called behind a fresh
/// checkpoint alone: a file that was rewritten since the newest one is named by none yet.
pub fn clean(files: &dyn Files, id: Identity, held: &[u64]) -> Result<(), Fault> {
    let indexes = manifests(files)?;
    let Some(&newest) = indexes.last() else { return Ok(()) };
    let newest = Manifest::read(files, &manifest_path(newest), id.cluster, Some(id.member))?;
    for index in &indexes[..indexes.len().saturating_sub(2)] {
        if !held.contains(index) {
            remove_if_there(files, &manifest_path(*index))?;
        }
    }
    files.sync_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
    // What was begun since the newest checkpoint will be named by the next one.
    remove_unnamed(files, id, Reach::Below(newest.open_segment()?))
}

/// Every index with a manifest, ascending. Whether it is readable is another question.
pub fn manifests(files: &dyn Files) -> Result<Vec<u64>, Fault> {
    let mut indexes: Vec<u64> = names(files, DIR)?.iter().filter_map(|name| parse_manifest_name(name)).collect();
    indexes.sort_unstable();
    Ok(indexes)
}

/// Whether any checkpoint names a segment; and the newest one. None if there is no checkpoint: a
/// snapshot is being put in place.
pub(crate) fn naming(files: &dyn Files, segment: u32) -> Result<(bool, Option<Manifest>), Fault> {
    let (mut named, mut newest) = (false, None);
    for index in manifests(files)?.into_iter().rev() {
        let path = manifest_path(index);
        let manifest = match Manifest::read_unchecked(files, &path) {
            // Removed since the names were read.
            Err(Fault::Io { error, .. }) if error.kind() == ErrorKind::NotFound => continue,
            other => other?,
        };
        named |= newest_segment(Some(&manifest), segment).is_some();
        newest.get_or_insert(manifest);
    }
    Ok((named, newest))
}

/// The segments that hold the state, ascending: those of the newest readable checkpoint, and of
/// `known`, as the state in memory has them, the one that is open there and what was begun behind
/// it. Any other file is of an older checkpoint, or was rewritten since the newest one and has the
/// records of several that the newest names. Without a checkpoint: all that are known.
pub fn current(files: &dyn Files, known: &[SegmentUse]) -> Result<Vec<SegmentUse>, Fault> {
    let all = records::list(files)?;
    let there = |used: &&SegmentUse| used.first > 0 && all.binary_search(&used.id).is_ok();
    for index in manifests(files)?.into_iter().rev() {
        let manifest = Manifest::read_unchecked(files, &manifest_path(index));
        let (manifest, open) = match manifest.and_then(|manifest| manifest.open_segment().map(|open| (manifest, open)))
        {
            Err(fault) if fault.is_damage() => continue,
            other => other?,
        };
        let named = manifest.segments.iter().map(|file| use_of(file, open)).filter(|used| used.sealed);
        return Ok(named.chain(known.iter().filter(there).filter(|used| used.id >= open).copied()).collect());
    }
    Ok(known.iter().filter(there).copied().collect())
}

/// A segment as a checkpoint names it whose open segment is `open`.
pub(crate) fn use_of(file: &SegmentFile, open: u32) -> SegmentUse {
    let SegmentFile { segment: id, first, last, len: end, .. } = *file;
    SegmentUse { id, first, last, end, live: 0, sealed: id < open }
}

/// Segments that the newest readable checkpoint names, ascending.
pub(crate) fn newest_segments(files: &dyn Files) -> Result<Vec<u32>, Fault> {
    for index in manifests(files)?.into_iter().rev() {
        match Manifest::read_unchecked(files, &manifest_path(index)) {
            Ok(manifest) => return Ok(manifest.segments.iter().map(|file| file.segment).collect()),
            // Removed since the names were read.
            Err(Fault::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {}
            Err(fault) if fault.is_damage() => {}
            Err(other) => return Err(other),
        }
    }
    Ok(Vec::new())
}

/// Verifies that every file of the checkpoint has the length and checksum that it names, and every
/// record its own. Reads all of it: for offline checks.
pub fn verify(files: &dyn Files, manifest: &Manifest) -> Result<(), Fault> {
    let owner = Owner { cluster: manifest.id.cluster, member: Some(manifest.id.member) };
    for file in &manifest.segments {
        verify_segment(files, DIR, owner, file)?;
    }
    for file in &manifest.index_files {
        verify_index(files, DIR, owner, file)?;
    }
    manifest.tables.iter().try_for_each(|file| verify_tables(files, DIR, owner, file))
}

/// Whose a file may be. Without `member`: any member's of the cluster.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) cluster: u64,
    pub(crate) member: Option<u64>,
}

/// A file that a manifest names: if it is absent, that is damage.
fn open_named(files: &dyn Files, path: &str, how: How) -> Result<std::sync::Arc<dyn File>, Fault> {
    files.open(path, how).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Fault::damaged(path, 0, "a checkpoint names this file, and it is missing"),
        _ => Fault::io(path, 0, error),
    })
}

fn crc_of(file: &dyn File, path: &str, from: u64, until: u64, mut crc: u32) -> Result<u32, Fault> {
    let mut buffer = vec![0; CHUNK];
    let mut offset = from;
    while offset < until {
        let want = usize::try_from(until - offset).map_or(CHUNK, |left| left.min(CHUNK));
        let got = read_full(file, path, offset, &mut buffer[..want])?;
        if got < want {
            let what = format!("the file ends at byte {}, a checkpoint names {until}", offset + got as u64);
            return Err(Fault::damaged(path, offset + got as u64, what));
        }
        crc = crc32c::crc32c_append(crc, &buffer[..want]);
        offset += want as u64;
    }
    Ok(crc)
}

fn newest_segment(manifest: Option<&Manifest>, segment: u32) -> Option<SegmentFile> {
    let segments = &manifest?.segments;
    let position = segments.binary_search_by_key(&segment, |file| file.segment).ok()?;
    Some(segments[position])
}

/// A failed flush is final, even if it failed for want of space: what it was to flush may look
/// written and not be.
pub(crate) fn unflushed(path: &str, error: io::Error) -> Fault {
    Fault::Stopped { file: path.to_string(), reason: format!("flush: {error}") }
}

/// Flushes a segment, verifies its records and fills in its checksum. Goes on from where the
/// checkpoint before stopped: what that one named is not read again.
fn measure_segment(
    files: &dyn Files,
    id: Identity,
    file: &mut SegmentFile,
    before: Option<SegmentFile>,
) -> Result<(), Fault> {
    let before = before.filter(|before| before.len <= file.len);
    if let Some(before) = before.filter(|before| before.len == file.len) {
        file.crc = before.crc;
        return Ok(());
    }
    let path = records::path(file.segment);
    let handle = open_named(files, &path, How::Write)?;
    handle.sync().map_err(|e| unflushed(&path, e))?;
    check_page(&*handle, &path, records::MAGIC, id.cluster, Some(id.member), u64::from(file.segment))?;
    let until = u64::from(file.len);
    let part = before.map_or(Part::whole(file.len), |before| Part {
        from: u64::from(before.len),
        until,
        crc: before.crc,
        after: before.last,
    });
    let measured = measure::records(&*handle, &path, part)?;
    let first = before.map_or(measured.first, |before| before.first);
    check_revisions(&path, file, first, measured.last)?;
    file.crc = measured.crc;
    Ok(())
}

fn check_revisions(path: &str, file: &SegmentFile, first: i64, last: i64) -> Result<(), Fault> {
    if (first, last) == (file.first, file.last) {
        return Ok(());
    }
    let what = format!("revisions {first} to {last} where {} to {} were written", file.first, file.last);
    Err(Fault::damaged(path, PAGE, what))
}

/// Every record of a segment that a manifest names, against its checksum. `dir` is where it lies.
pub(crate) fn verify_segment(
    files: &dyn Files,
    dir: &str,
    owner: Owner,
    file: &SegmentFile,
) -> Result<records::Seeks, Fault> {
    let path = format!("{dir}/{}", file.name());
    let handle = open_named(files, &path, How::Read)?;
    check_page(&*handle, &path, records::MAGIC, owner.cluster, owner.member, u64::from(file.segment))?;
    let measured = measure::records(&*handle, &path, Part::whole(file.len))?;
    check_crc(&path, u64::from(file.len), measured.crc, file.crc)?;
    check_revisions(&path, file, measured.first, measured.last)?;
    Ok(measured.seeks)
}

/// As [`verify_segment`], of an index file. What the rows say is for the store.
pub(crate) fn verify_index(files: &dyn Files, dir: &str, owner: Owner, file: &IndexFile) -> Result<(), Fault> {
    let path = format!("{dir}/{}", file.name());
    let handle = open_named(files, &path, How::Read)?;
    check_page(&*handle, &path, INDEX_MAGIC, owner.cluster, owner.member, file.number)?;
    check_crc(&path, file.len, crc_of(&*handle, &path, PAGE, file.len, 0)?, file.crc)
}

/// As [`verify_index`], of a tables file.
pub(crate) fn verify_tables(files: &dyn Files, dir: &str, owner: Owner, file: &TablesFile) -> Result<(), Fault> {
    read_tables(files, dir, owner, file, |_| Ok(()))
}

fn read_tables(
    files: &dyn Files,
    dir: &str,
    owner: Owner,
    named: &TablesFile,
    take: impl FnMut(&[u8]) -> Result<(), Damage>,
) -> Result<(), Fault> {
    let path = format!("{dir}/{}", named.name());
    let file = open_named(files, &path, How::Read)?;
    check_page(&*file, &path, TABLES_MAGIC, owner.cluster, owner.member, named.number)?;
    let found = measure::frames(&*file, &path, named.len, take)?;
    check_crc(&path, named.len, found, named.crc)
}

fn check_crc(path: &str, len: u64, found: u32, named: u32) -> Result<(), Fault> {
    if found == named {
        return Ok(());
    }
    Err(Fault::damaged(path, PAGE, format!("checksum {found:08x} instead of {named:08x} over {len} bytes")))
}

/// Flushes the index file and gives it its name.
fn seal_index(files: &dyn Files, index: u64) -> Result<IndexFile, Fault> {
    let (part, path) = (part_path(index), index_path(index));
    let file = match files.open(&part, How::Write) {
        // An attempt that found the disk full behind this step is repeated.
        Err(error) if error.kind() == ErrorKind::NotFound => files.open(&path, How::Write),
        other => other,
    };
    let file = file.map_err(|e| Fault::io(&part, 0, e))?;
    file.sync().map_err(|e| unflushed(&part, e))?;
    let len = file.len().map_err(|e| Fault::io(&part, 0, e))?;
    let crc = measure::rows(&*file, &part, len)?;
    match files.rename(&part, &path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => other.map_err(|e| Fault::io(&path, 0, e))?,
    }
    Ok(IndexFile { number: index, len, crc })
}

/// Writes the tables of `head`, a block at a time, flushes and verifies them.
fn write_tables(files: &dyn Files, id: Identity, index: u64, head: &ImageHead) -> Result<TablesFile, Fault> {
    let mut named = TablesFile { number: index, len: PAGE, crc: 0 };
    let path = format!("{DIR}/{}", named.name());
    let file = files.open(&path, How::Create).map_err(|e| Fault::io(&path, 0, e))?;
    file.write_at(0, &[&page(TABLES_MAGIC, id, index)]).map_err(|e| Fault::io(&path, 0, e))?;
    head.table_blocks(|block| {
        let header = frame_header(block);
        file.write_at(named.len, &[&header, block]).map_err(|e| Fault::io(&path, named.len, e))?;
        named.crc = crc32c::crc32c_append(crc32c::crc32c_append(named.crc, &header), block);
        named.len += FRAME + block.len() as u64;
        Ok(())
    })?;
    file.sync().map_err(|e| unflushed(&path, e))?;
    let found = measure::frames(&*file, &path, named.len, |_| Ok(()))?;
    check_crc(&path, named.len, found, named.crc)?;
    Ok(named)
}

pub(crate) fn frame_header(block: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(FRAME as usize);
    put_u32(&mut header, u32::try_from(block.len()).expect("a block is smaller than 4 GiB"));
    put_u32(&mut header, crc32c::crc32c(block));
    header
}

fn report(files: &dyn Files, id: Identity, manifest: Bytes, fresh: bool) -> Result<Finished, Fault> {
    let (newest, older) = newest_manifest(files, id)?;
    let kept = older.or(newest).expect("a checkpoint was just written");
    Ok(Finished { manifest, cut: kept.index + 1, fresh })
}

/// Bytes of all files in `state/`.
pub fn disk_bytes(files: &dyn Files) -> Result<u64, Fault> {
    let mut bytes = 0;
    for name in names(files, DIR)? {
        let path = format!("{DIR}/{name}");
        bytes += files.open(&path, How::Read).and_then(|file| file.len()).map_err(|e| Fault::io(&path, 0, e))?;
    }
    Ok(bytes)
}

/// The newest readable manifest, and the newest readable one before it.
fn newest_manifest(files: &dyn Files, id: Identity) -> Result<(Option<Manifest>, Option<Manifest>), Fault> {
    let mut readable = Vec::new();
    for index in manifests(files)?.into_iter().rev() {
        match Manifest::read(files, &manifest_path(index), id.cluster, Some(id.member)) {
            Ok(manifest) => readable.push(manifest),
            Err(fault) if fault.is_damage() => {}
            Err(other) => return Err(other),
        }
        if readable.len() == 2 {
            break;
        }
    }
    let mut readable = readable.into_iter();
    Ok((readable.next(), readable.next()))
}

fn is_damaged<T>(result: Result<T, Fault>) -> Result<bool, Fault> {
    match result {
        Ok(_) => Ok(false),
        Err(fault) if fault.is_damage() => Ok(true),
        Err(other) => Err(other),
    }
}

fn load_named(files: &dyn Files, id: Identity, config: store::Config, index: u64) -> Result<(Manifest, Store), Fault> {
    let manifest = Manifest::read(files, &manifest_path(index), id.cluster, Some(id.member))?;
    if manifest.index != index {
        return Err(Fault::damaged(&manifest_path(index), 0, "the manifest is of another index than its name"));
    }
    let store = load(files, id, config, &manifest)?;
    Ok((manifest, store))
}

fn load(files: &dyn Files, id: Identity, config: store::Config, manifest: &Manifest) -> Result<Store, Fault> {
    for named in &manifest.segments {
        let path = records::path(named.segment);
        let file = open_named(files, &path, How::Read)?;
        check_page(&*file, &path, records::MAGIC, id.cluster, Some(id.member), u64::from(named.segment))?;
        let len = file.len().map_err(|e| Fault::io(&path, 0, e))?;
        if len < u64::from(named.len) {
            return Err(Fault::damaged(
                &path,
                len,
                format!("the file ends here, a checkpoint names {} bytes", named.len),
            ));
        }
    }
    let owner = Owner { cluster: id.cluster, member: Some(id.member) };
    load_store(files, DIR, owner, config, manifest)
}

/// Hands the rows of the index files in `dir` to the store, one frame at a time.
pub(crate) fn load_store(
    files: &dyn Files,
    dir: &str,
    owner: Owner,
    config: store::Config,
    manifest: &Manifest,
) -> Result<Store, Fault> {
    let mut loader = Store::loader(config, manifest.image_head()?);
    if let Some(named) = &manifest.tables {
        read_tables(files, dir, owner, named, |block| loader.table(block))?;
    }
    for named in &manifest.index_files {
        let path = format!("{dir}/{}", named.name());
        let file = open_named(files, &path, How::Read)?;
        check_page(&*file, &path, INDEX_MAGIC, owner.cluster, owner.member, named.number)?;
        let (mut rows, mut offset) = (Ahead::new(&*file, &path, named.len), PAGE);
        while offset < named.len {
            let (block, next) = frame(&mut rows, &path, offset, named.len)?;
            loader.block(block).map_err(|damage| Fault::damaged(&path, offset, format!("rows: {damage}")))?;
            offset = next;
        }
    }
    let path = manifest_path(manifest.index);
    loader.finish().map_err(|damage| Fault::damaged(&path, damage.offset, damage.what))
}

/// How far [`remove_unnamed`] goes.
#[derive(Clone, Copy)]
enum Reach {
    Everything,
    /// Segments with a smaller id than this; nothing that is half made.
    Below(u32),
}

/// Removes files of `state/` that no manifest names.
fn remove_unnamed(files: &dyn Files, id: Identity, reach: Reach) -> Result<(), Fault> {
    let mut named = BTreeSet::new();
    for index in manifests(files)? {
        match Manifest::read(files, &manifest_path(index), id.cluster, Some(id.member)) {
            Ok(manifest) => named.extend(manifest.files().into_iter().map(|(name, _)| name)),
            // The newest was read by the caller; an older one that cannot be read protects nothing.
            Err(fault) if fault.is_damage() => {}
            Err(other) => return Err(other),
        }
    }
    for name in names(files, DIR)? {
        let spared = match reach {
            Reach::Everything => false,
            Reach::Below(limit) => {
                name.ends_with(".part") || records::parse_name(&name).is_some_and(|segment| segment >= limit)
            }
        };
        if !named.contains(&name) && !spared && is_ours(&name) {
            remove_if_there(files, &format!("{DIR}/{name}"))?;
        }
    }
    Ok(())
}

fn is_ours(name: &str) -> bool {
    let data = ["seg-", "index-", "tables-"].iter().any(|kind| name.starts_with(kind));
    data || (name.starts_with("manifest-") && name.ends_with(".part"))
}

/// Cuts what was written behind the checkpoint, unless it is the seek table of a sealed segment.
fn cut_segment(files: &dyn Files, named: &SegmentUse) -> Result<(), Fault> {
    let path = records::path(named.id);
    let io = |e| Fault::io(&path, u64::from(named.end), e);
    let file = open_named(files, &path, How::Write)?;
    // Never made longer: the bytes would be zeros.
    if file.len().map_err(io)? <= u64::from(named.end) {
        return Ok(());
    }
    // What lies behind records of an open segment are records, whatever a client made them look
    // like.
    if named.sealed {
        match records::seek_table(&*file, &path, named.end) {
            Ok(Some(_)) => return Ok(()),
            // A seek table that cannot be read is none, and a scan does without it.
            Err(fault) if !fault.is_damage() => return Err(fault),
            _ => {}
        }
    }
    file.set_len(u64::from(named.end)).and_then(|()| file.sync()).map_err(io)
}

pub(crate) fn remove_if_there(files: &dyn Files, path: &str) -> Result<(), Fault> {
    match files.remove(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Fault::io(path, 0, error)),
        _ => Ok(()),
    }
}

/// The segments that a head needs, without checksums yet. An empty one has no file.
pub(crate) fn named_segments(head: &ImageHead) -> Vec<SegmentFile> {
    head.segments
        .iter()
        .filter(|used| u64::from(used.end) > PAGE)
        .map(|used| SegmentFile { segment: used.id, first: used.first, last: used.last, len: used.end, crc: 0 })
        .collect()
}
