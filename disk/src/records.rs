//! State segments: records in (main, sub) order.
//!
//! ```text
//! state/seg-%08x    page 0: header page
//!                   from PAGE on: records (store::record), one behind the other
//!                   a sealed segment: seek table [(main i64, offset u32)], one row for about every
//!                   64 KiB; trailer {magic, rows u32, end of the records u32, crc32c of table
//!                   and trailer}
//! ```
//!
//! The seek table is a convenience: not flushed before it matters, cut at the next start if its
//! checksum is wrong, and without one a scan starts at the first record. Records are verified
//! whenever they are read.
//!
//! Where the records end says whoever reads: the state in memory, or a checkpoint. The last bytes
//! of a file are never asked for it: those of a segment without a table are a client's, and a
//! client may write what looks like a table.

use crate::header::{Fields, check_page, page, put_u32, put_u64, read_exact, read_full};
use crate::measure::{self, Part};
use crate::{Fault, File, Files, How, Identity, PAGE, checkpoint};
use bytes::Bytes;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;
use store::record::{self, Damage, Record};
use store::{Handle, Rev, SegmentUse};

/// The folder of the state, below the data directory.
pub const DIR: &str = "state";
pub(crate) const MAGIC: &[u8; 8] = b"kvsegmnt";
const TRAILER_MAGIC: &[u8; 8] = b"kvseekta";
const TRAILER: usize = 8 + 4 + 4 + 4;
const ROW: usize = 12;
/// Bytes of records between two rows of the seek table.
const SEEK_EVERY: u32 = 64 << 10;
/// Bytes read at a time by a scan.
const CHUNK: usize = 256 << 10;

/// Path of a segment file, relative to the data directory.
pub fn path(segment: u32) -> String {
    format!("{DIR}/{}", file_name(segment))
}

pub(crate) fn file_name(segment: u32) -> String {
    format!("seg-{segment:08x}")
}

pub(crate) fn parse_name(name: &str) -> Option<u32> {
    let id = name.strip_prefix("seg-").and_then(|hex| u32::from_str_radix(hex, 16).ok())?;
    (file_name(id) == name).then_some(id)
}

/// Writes whole records at `offset`, without a flush: what a checkpoint does not name is written
/// again after a crash. The first write of a segment (offset [`PAGE`]) creates its file.
/// Returns the offset behind the last byte.
pub fn write(files: &dyn Files, id: Identity, segment: u32, offset: u32, parts: &[Bytes]) -> Result<u32, Fault> {
    let path = path(segment);
    let io = |e| Fault::io(&path, u64::from(offset), e);
    assert!(u64::from(offset) >= PAGE, "records begin behind the header page");
    let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let end = u32::try_from(u64::from(offset) + len)
        .map_err(|_| Fault::Refused { file: path.clone(), what: "a segment is smaller than 4 GiB".to_string() })?;
    let mut slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).filter(|part| !part.is_empty()).collect();
    if u64::from(offset) > PAGE {
        let file = files.open(&path, How::Write).map_err(io)?;
        file.write_at(u64::from(offset), &slices).map_err(io)?;
        return Ok(end);
    }
    let file = match files.open(&path, How::Write) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            files.make_dir(DIR).map_err(io)?;
            files.open(&path, How::Create)
        }
        other => other,
    };
    let header = page(MAGIC, id, u64::from(segment));
    slices.insert(0, &header);
    file.and_then(|file| file.write_at(0, &slices)).map_err(io)?;
    Ok(end)
}

/// Flushes segments. After a failure the process must not count on their unflushed bytes again.
pub fn sync(files: &dyn Files, segments: &[u32]) -> Result<(), Fault> {
    for &segment in segments {
        let path = path(segment);
        files.open(&path, How::Write).and_then(|file| file.sync()).map_err(|e| Fault::io(&path, 0, e))?;
    }
    Ok(())
}

/// Adds the seek table behind the records of a segment that ends at `end` and gets no more.
///
/// # Errors
/// [`Fault::Damaged`] if a record is not what was written.
pub fn seal(files: &dyn Files, segment: u32, end: u32) -> Result<(), Fault> {
    let path = path(segment);
    let file = files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
    let seeks = measure::records(&*file, &path, Part::whole(end))?.seeks;
    write_footer(&*file, &path, seeks, end)
}

/// Writes the seek table, the last bytes of its file then.
pub(crate) fn write_footer(file: &dyn File, path: &str, seeks: Seeks, end: u32) -> Result<(), Fault> {
    let footer = seeks.footer(end);
    let at = u64::from(end);
    file.write_at(at, &[&footer])
        .and_then(|()| file.set_len(at + footer.len() as u64))
        .map_err(|e| Fault::io(path, at, e))
}

/// Rows of a seek table: (main revision, offset) of about one record in [`SEEK_EVERY`] bytes.
#[derive(Default)]
pub(crate) struct Seeks {
    rows: Vec<(i64, u32)>,
    next: u32,
}

impl Seeks {
    /// A record, in the order of the file.
    pub(crate) fn pass(&mut self, main: i64, offset: u32) {
        if offset >= self.next {
            self.rows.push((main, offset));
            self.next = offset.saturating_add(SEEK_EVERY);
        }
    }

    fn footer(self, end: u32) -> Vec<u8> {
        let mut footer = Vec::with_capacity(self.rows.len() * ROW + TRAILER);
        for (main, offset) in &self.rows {
            put_u64(&mut footer, main.cast_unsigned());
            put_u32(&mut footer, *offset);
        }
        footer.extend_from_slice(TRAILER_MAGIC);
        put_u32(&mut footer, u32::try_from(self.rows.len()).expect("fewer rows than bytes"));
        put_u32(&mut footer, end);
        let crc = crc32c::crc32c(&footer);
        put_u32(&mut footer, crc);
        footer
    }
}

/// The whole record at `handle`, verified.
pub fn read(files: &dyn Files, handle: Handle) -> Result<Bytes, Fault> {
    let path = path(handle.segment);
    let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, u64::from(handle.offset), e))?;
    read_from(&*file, handle)
}

/// As [`read`], from a segment file that is already open.
pub fn read_from(file: &dyn File, handle: Handle) -> Result<Bytes, Fault> {
    let path = path(handle.segment);
    let bytes = Bytes::from(read_exact(file, &path, u64::from(handle.offset), handle.len as usize)?);
    verify(&path, handle.offset, &bytes)?;
    Ok(bytes)
}

pub(crate) fn verify(path: &str, offset: u32, bytes: &[u8]) -> Result<Rev, Fault> {
    record::check(bytes).map(|(rev, _)| rev).map_err(|damage| fault(path, offset, damage))
}

fn fault(path: &str, offset: u32, damage: Damage) -> Fault {
    Fault::damaged(path, u64::from(offset) + damage.offset, damage.what)
}

/// Visits every record of the state with `from <= main revision < until` that is in a file, in
/// order, until `visit` breaks. `known`: the segments as the state in memory has them. Of one that
/// has nothing from `until` on, the file holds everything.
pub fn scan(
    files: &dyn Files,
    known: &[SegmentUse],
    from: i64,
    until: i64,
    mut visit: impl FnMut(Record, Bytes) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let segments = checkpoint::current(files, known)?;
    let mut before = None;
    for used in &segments[start_of(&segments, from)..] {
        let mut reader = open_at(files, used, from, until)?;
        while let Some((offset, record, bytes)) = reader.next()? {
            if before.is_some_and(|before| before >= record.rev) {
                return Err(Fault::damaged(
                    &reader.path,
                    u64::from(offset),
                    "records are not in the order of revisions",
                ));
            }
            before = Some(record.rev);
            if record.rev.main >= until {
                return Ok(());
            }
            let says = !record::is_filler(record.tombstone, &record.body);
            if record.rev.main >= from && says && visit(record, bytes).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Number of the segment in which the first record with main revision >= `from` may be: the last
/// one that begins below it.
fn start_of(segments: &[SegmentUse], from: i64) -> usize {
    segments.partition_point(|used| used.first < from).saturating_sub(1)
}

/// Where a scan in parts goes on. Stays valid while files are appended to, removed or rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    segment: u32,
    offset: u32,
    before: Option<Rev>,
}

/// Visits records in order from `place` on, below main revision `until`, about `max_bytes` of
/// them; `place` moves behind the last one. True: there are no more. `known` as for [`scan`].
pub fn scan_on(
    files: &dyn Files,
    known: &[SegmentUse],
    place: &mut Place,
    until: i64,
    max_bytes: u64,
    mut visit: impl FnMut(&Record),
) -> Result<bool, Fault> {
    let mut bytes = 0u64;
    let segments = checkpoint::current(files, known)?;
    let there = segments.binary_search_by_key(&place.segment, |used| used.id).ok();
    // Rewritten since: its records lie elsewhere, and the revision tells where.
    let after = place.before.filter(|_| there.is_none());
    let start = match (there, after) {
        (Some(there), _) => there,
        (None, Some(after)) => start_of(&segments, after.main),
        (None, None) => 0,
    };
    for used in &segments[start..] {
        let segment = used.id;
        let mut reader = match after {
            Some(after) => open_at(files, used, after.main, until)?,
            None => reader_of(files, used, until, if segment == place.segment { place.offset } else { 0 })?,
        };
        while let Some((offset, record, whole)) = reader.next()? {
            if after.is_some_and(|after| record.rev <= after) {
                continue;
            }
            if place.before.is_some_and(|before| before >= record.rev) {
                let what = "records are not in the order of revisions";
                return Err(Fault::damaged(&reader.path, u64::from(offset), what));
            }
            if record.rev.main >= until {
                return Ok(true);
            }
            if !record::is_filler(record.tombstone, &record.body) {
                visit(&record);
            }
            *place = Place { segment, offset: reader.offset, before: Some(record.rev) };
            bytes += whole.len() as u64;
            if bytes >= max_bytes {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A reader that stands at `from`, or at the first record.
fn reader_of(files: &dyn Files, used: &SegmentUse, until: i64, from: u32) -> Result<Reader, Fault> {
    let path = path(used.id);
    let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, 0, e))?;
    let end = end_for(&*file, &path, used, until)?;
    Ok(Reader::new(file, path, from.max(PAGE as u32), end))
}

/// The whole record of revision `rev` in a segment that a checkpoint names, if it is there.
pub(crate) fn find(files: &dyn Files, used: &SegmentUse, rev: Rev) -> Result<Option<Bytes>, Fault> {
    let mut reader = open_at(files, used, rev.main, i64::MAX)?;
    while let Some((_, record, whole)) = reader.next()? {
        if record.rev >= rev {
            return Ok((record.rev == rev).then_some(whole));
        }
    }
    Ok(None)
}

/// Records from revision `from` on, below `until`: whole revisions, about `max_bytes` of them. The
/// second value is the first revision not contained. Every record below `until` must be in a file.
/// `known` as for [`scan`].
pub fn history(
    files: &dyn Files,
    known: &[SegmentUse],
    from: i64,
    until: i64,
    max_bytes: u64,
) -> Result<(Vec<Bytes>, i64), Fault> {
    let mut records: Vec<Bytes> = Vec::new();
    let (mut bytes, mut main, mut next) = (0u64, from, until.max(from));
    scan(files, known, from, until, |record, whole| {
        if record.rev.main != main && bytes >= max_bytes && !records.is_empty() {
            next = record.rev.main;
            return ControlFlow::Break(());
        }
        main = record.rev.main;
        bytes += whole.len() as u64;
        records.push(whole);
        ControlFlow::Continue(())
    })?;
    Ok((records, next))
}

/// Records with revisions between `after` and `before`, which are not among them: about
/// `max_bytes`, one at least if there is one. True: there are no more. `known`: the segments in
/// which the state has them.
///
/// # Errors
/// [`Fault::Damaged`] also if one of these files is missing: what it held must not look like
/// nothing.
pub fn between(
    files: &dyn Files,
    known: &[SegmentUse],
    after: Rev,
    before: Rev,
    max_bytes: u64,
) -> Result<(Vec<Bytes>, bool), Fault> {
    check_there(files, known)?;
    let (mut records, mut bytes, mut end) = (Vec::new(), 0u64, true);
    scan(files, known, after.main, before.main.saturating_add(1), |record, whole| {
        if record.rev <= after {
            return ControlFlow::Continue(());
        }
        if record.rev >= before {
            return ControlFlow::Break(());
        }
        if bytes + whole.len() as u64 > max_bytes && !records.is_empty() {
            end = false;
            return ControlFlow::Break(());
        }
        bytes += whole.len() as u64;
        records.push(whole);
        ControlFlow::Continue(())
    })?;
    Ok((records, end))
}

/// The segment whose file this is, by its path in the data directory.
pub fn segment_of(path: &str) -> Option<u32> {
    parse_name(path.strip_prefix(DIR)?.strip_prefix('/')?)
}

/// Ids of all segment files, ascending. Which of them hold the state: [`checkpoint::current`].
pub fn list(files: &dyn Files) -> Result<Vec<u32>, Fault> {
    let mut ids: Vec<u32> = names(files, DIR)?.iter().filter_map(|name| parse_name(name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Whether the files of these segments are there, for whoever is about to read all that they hold:
/// one that is missing must not look like silence. `needed`: what the state had when it was asked;
/// what a checkpoint dropped since is not missed.
///
/// # Errors
/// [`Fault::Damaged`], with the file that is missing.
pub fn check_there(files: &dyn Files, needed: &[SegmentUse]) -> Result<(), Fault> {
    let there = list(files)?;
    let needed = needed.iter().filter(|used| used.first > 0).map(|used| used.id);
    let mut missing = needed.filter(|segment| there.binary_search(segment).is_err()).peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let named = checkpoint::newest_segments(files)?;
    let last = named.last().copied().unwrap_or(0);
    match missing.find(|segment| *segment > last || named.binary_search(segment).is_ok()) {
        Some(segment) => {
            let what = "this file holds records that are needed, and it is missing";
            Err(Fault::damaged(&path(segment), 0, what))
        }
        None => Ok(()),
    }
}

/// Names in a directory; none if it does not exist.
pub(crate) fn names(files: &dyn Files, dir: &str) -> Result<Vec<String>, Fault> {
    match files.list(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|e| Fault::io(dir, 0, e)),
    }
}

/// Checks the header page of a segment.
pub fn check(files: &dyn Files, id: Identity, segment: u32) -> Result<(), Fault> {
    let path = path(segment);
    let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, 0, e))?;
    check_page(&*file, &path, MAGIC, id.cluster, Some(id.member), u64::from(segment))
}

/// Whether a seek table that is readable stands behind the records of a closed segment, which end
/// at `end`.
pub fn sealed(files: &dyn Files, segment: u32, end: u32) -> Result<bool, Fault> {
    let path = path(segment);
    let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, 0, e))?;
    Ok(seek_table(&*file, &path, end)?.is_some())
}

/// A reader of the segment that stands at or before the first record with main revision >= `from`.
fn open_at(files: &dyn Files, used: &SegmentUse, from: i64, until: i64) -> Result<Reader, Fault> {
    let path = path(used.id);
    let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, 0, e))?;
    let end = end_for(&*file, &path, used, until)?;
    let rows = if used.sealed { seek_table(&*file, &path, used.end)? } else { None }.unwrap_or_default();
    let position = rows.partition_point(|&(main, _)| main < from);
    let start = position.checked_sub(1).map_or(PAGE as u32, |position| rows[position].1);
    Ok(Reader::new(file, path, start, end))
}

/// Where the records end that a scan below `until` may read. What comes later may not be in the
/// file yet.
fn end_for(file: &dyn File, path: &str, used: &SegmentUse, until: i64) -> Result<u32, Fault> {
    if used.last < until {
        return Ok(used.end);
    }
    let len = file.len().map_err(|e| Fault::io(path, 0, e))?;
    Ok(u32::try_from(len).map_or(used.end, |len| len.min(used.end)))
}

/// The rows of the seek table of a closed segment whose records end at `end`; None if there is none
/// that is readable.
pub(crate) fn seek_table(file: &dyn File, path: &str, end: u32) -> Result<Option<Vec<(i64, u32)>>, Fault> {
    let len = file.len().map_err(|e| Fault::io(path, 0, e))?;
    let Some(table) = len.checked_sub(u64::from(end) + TRAILER as u64) else { return Ok(None) };
    if !table.is_multiple_of(ROW as u64) {
        return Ok(None);
    }
    let trailer = read_exact(file, path, u64::from(end) + table, TRAILER)?;
    let mut fields = Fields::new(&trailer);
    if fields.bytes(8) != Some(TRAILER_MAGIC) {
        return Ok(None);
    }
    let (count, behind) = (fields.u32(), fields.u32());
    if count.map(u64::from) != Some(table / ROW as u64) || behind != Some(end) {
        return Ok(None);
    }
    let table = read_exact(file, path, u64::from(end), table as usize + TRAILER)?;
    let (covered, crc) = table.split_at(table.len() - 4);
    if Fields::new(crc).u32() != Some(crc32c::crc32c(covered)) {
        return Ok(None);
    }
    let mut fields = Fields::new(covered);
    let mut rows = Vec::new();
    for _ in 0..count.unwrap_or(0) {
        let (Some(main), Some(offset)) = (fields.i64(), fields.u32()) else { return Ok(None) };
        if u64::from(offset) < PAGE || offset >= end {
            return Ok(None);
        }
        rows.push((main, offset));
    }
    Ok(Some(rows))
}

/// Reads records one after another.
pub(crate) struct Reader {
    file: Arc<dyn File>,
    path: String,
    /// Where `buffer` begins in the file.
    offset: u32,
    end: u32,
    buffer: Bytes,
    chunk: usize,
}

impl Reader {
    pub(crate) fn new(file: Arc<dyn File>, path: String, offset: u32, end: u32) -> Reader {
        Reader { file, path, offset, end, buffer: Bytes::new(), chunk: CHUNK }
    }

    /// Offset, record, and the record's bytes.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Record, Bytes)>, Fault> {
        if self.offset >= self.end {
            return Ok(None);
        }
        self.fill(record::HEADER)?;
        let len = record::whole_len(&self.buffer)
            .map_err(|damage| Fault::damaged(&self.path, u64::from(self.offset), damage.what))?;
        self.fill(len)?;
        let bytes = self.buffer.split_to(len);
        let record = record::open(&bytes).map_err(|damage| fault(&self.path, self.offset, damage))?;
        let offset = self.offset;
        self.offset += len as u32;
        Ok(Some((offset, record, bytes)))
    }

    /// Makes `need` bytes from `offset` available.
    fn fill(&mut self, need: usize) -> Result<(), Fault> {
        if self.buffer.len() >= need {
            return Ok(());
        }
        let room = (self.end - self.offset) as usize;
        if need > room {
            let what = format!("a record of {need} bytes where {room} are left");
            return Err(Fault::damaged(&self.path, u64::from(self.offset), what));
        }
        let mut bytes = vec![0; need.max(self.chunk).min(room)];
        let got = read_full(&*self.file, &self.path, u64::from(self.offset), &mut bytes)?;
        if got < need {
            return Err(Fault::damaged(&self.path, u64::from(self.offset), "the file ends inside a record"));
        }
        bytes.truncate(got);
        self.buffer = Bytes::from(bytes);
        Ok(())
    }
}
