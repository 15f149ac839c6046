//! Many records at once, for answers: few reads, and buffers that are used again.

use crate::checkpoint::{self, Manifest};
use crate::header::read_into;
use crate::records::{self, path, verify};
use crate::{Fault, File, Files, How};
use bytes::Bytes;
use std::io::ErrorKind;
use store::{Handle, Rev, record};

/// One read takes records that lie behind one another, up to this many bytes.
const RUN: usize = 256 << 10;
/// So many bytes between two records are read along with them rather than asked around.
const GAP: u32 = 1 << 10;
/// A record from this size on is read by itself, so that it can be handed on without a copy.
pub const ALONE: usize = 16 << 10;

/// A record to [`fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its number among those that are fetched together.
    pub place: usize,
    pub handle: Handle,
    pub rev: Rev,
    /// The main revision at which another version took its place, for a reader that can do without
    /// it once that revision is compacted, as etcd leaves `prev_kv` out. None: it must be there.
    pub superseded: Option<i64>,
}

/// Whole records by number. Those that were read together share a buffer, and the buffers are
/// used again: what is fetched piece by piece is read into the same memory.
#[derive(Debug, Default)]
pub struct Fetched {
    places: Vec<Option<Place>>,
    runs: Vec<Run>,
    spares: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    run: u32,
    start: u32,
    len: u32,
}

#[derive(Debug)]
enum Run {
    Read(Vec<u8>),
    Kept(Bytes),
}

impl Run {
    fn bytes(&self) -> &[u8] {
        match self {
            Run::Read(bytes) => bytes,
            Run::Kept(bytes) => bytes,
        }
    }
}

impl Fetched {
    /// Forgets the records and expects `count` others, numbered from 0.
    pub fn begin(&mut self, count: usize) {
        let read = |run| if let Run::Read(bytes) = run { Some(bytes) } else { None };
        self.spares = self.runs.drain(..).filter_map(read).filter(|bytes| bytes.capacity() <= RUN).collect();
        self.places.clear();
        self.places.resize(count, None);
    }

    /// Record `place` is at hand already.
    pub fn keep(&mut self, place: usize, record: Bytes) {
        let len = u32::try_from(record.len()).expect("a record's length has 32 bits");
        self.places[place] = Some(Place { run: self.runs.len() as u32, start: 0, len });
        self.runs.push(Run::Kept(record));
    }

    /// Takes over what was fetched elsewhere: number `n` of it becomes number `places[n]` here.
    pub fn absorb(&mut self, other: Fetched, places: impl Iterator<Item = usize>) {
        let base = self.runs.len() as u32;
        for (place, found) in places.zip(other.places) {
            self.places[place] = found.map(|found| Place { run: base + found.run, ..found });
        }
        self.runs.extend(other.runs);
    }

    /// Number of records that are expected.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Record `place`.
    ///
    /// # Panics
    /// If it was left out and not fetched since, was taken, or is gone.
    pub fn get(&self, place: usize) -> &[u8] {
        let Place { run, start, len } = self.places[place].expect("the record was fetched");
        &self.runs[run as usize].bytes()[start as usize..][..len as usize]
    }

    /// Record `place`; None if it is gone: [`Wanted::superseded`], compacted, and its file removed.
    pub fn find(&self, place: usize) -> Option<&[u8]> {
        self.places[place].map(|_| self.get(place))
    }

    /// Record `place`, which is not here any more then: without a copy if it was at hand, or has
    /// [`ALONE`] bytes and more.
    ///
    /// # Panics
    /// As [`Fetched::get`].
    pub fn take(&mut self, place: usize) -> Bytes {
        let Place { run, start, len } = self.places[place].take().expect("the record was fetched");
        match &mut self.runs[run as usize] {
            Run::Kept(bytes) => std::mem::take(bytes),
            Run::Read(bytes) => Bytes::copy_from_slice(&bytes[start as usize..][..len as usize]),
        }
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spares.pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }
}

/// Reads the whole records that `wanted` names, verified. Records that lie close together are read
/// together, in the order of the disk. What would have to wait ([`ErrorKind::WouldBlock`]) is left
/// out and returned.
///
/// The handles come from answers and may be older than a snapshot that was installed since, which
/// may have put another record there: that is refused. The file may have been rewritten since: its
/// records are found by their revisions. A record that is not there is damage, unless it is
/// compacted ([`Fetched::find`]).
pub fn fetch(files: &dyn Files, mut wanted: Vec<Wanted>, found: &mut Fetched) -> Result<Vec<Wanted>, Fault> {
    wanted.sort_unstable_by_key(|wanted| wanted.handle);
    let mut left_out = Vec::new();
    for segment in wanted.chunk_by(|a, b| a.handle.segment == b.handle.segment) {
        let first = segment[0].handle;
        let path = path(first.segment);
        let file = match files.open(&path, How::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match absent(files, segment, found) {
                    Err(fault) if would_wait(&fault) => left_out.extend_from_slice(segment),
                    other => other?,
                }
                continue;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                left_out.extend_from_slice(segment);
                continue;
            }
            other => other.map_err(|e| Fault::io(&path, u64::from(first.offset), e))?,
        };
        let mut rest = segment;
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(run_len(rest));
            rest = behind;
            match fetch_run(&*file, &path, run, found) {
                Err(fault) if would_wait(&fault) => left_out.extend_from_slice(run),
                other => other?,
            }
        }
    }
    Ok(left_out)
}

/// The whole records at `handles`, verified, in this order, each with bytes of its own. For whoever
/// knows that the handles are those of now. Few reads, in the order of the disk.
pub fn read_all(files: &dyn Files, handles: &[Handle]) -> Result<Vec<Bytes>, Fault> {
    let numbered = handles.iter().enumerate();
    let mut wanted: Vec<Wanted> = numbered
        .map(|(place, handle)| Wanted { place, handle: *handle, rev: Rev::default(), superseded: None })
        .collect();
    wanted.sort_unstable_by_key(|wanted| wanted.handle);
    let mut records = vec![Bytes::new(); handles.len()];
    for segment in wanted.chunk_by(|a, b| a.handle.segment == b.handle.segment) {
        let path = path(segment[0].handle.segment);
        let begins = u64::from(segment[0].handle.offset);
        let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, begins, e))?;
        let mut rest = segment;
        while !rest.is_empty() {
            let (run, behind) = rest.split_at(run_len(rest));
            rest = behind;
            read_run(&*file, &path, run, &mut records)?;
        }
    }
    Ok(records)
}

fn read_run(file: &dyn File, path: &str, run: &[Wanted], records: &mut [Bytes]) -> Result<(), Fault> {
    let start = run[0].handle.offset;
    let end = run.iter().map(end_of).max().expect("a run is not empty");
    let mut bytes = vec![0; (end - u64::from(start)) as usize];
    read_into(file, path, u64::from(start), &mut bytes)?;
    for Wanted { handle, .. } in run {
        verify(path, handle.offset, &bytes[(handle.offset - start) as usize..][..handle.len as usize])?;
    }
    if let [alone] = run {
        records[alone.place] = Bytes::from(bytes);
        return Ok(());
    }
    for Wanted { place, handle, .. } in run {
        let record = &bytes[(handle.offset - start) as usize..][..handle.len as usize];
        records[*place] = Bytes::copy_from_slice(record);
    }
    Ok(())
}

fn would_wait(fault: &Fault) -> bool {
    matches!(fault, Fault::Io { error, .. } if error.kind() == ErrorKind::WouldBlock)
}

/// The file of a segment is not there. If no checkpoint names it, it was rewritten or dropped: its
/// records lie where the newest checkpoint says. One that is not found there is gone for good if
/// that checkpoint stands above the revision at which it was superseded, and damage otherwise.
fn absent(files: &dyn Files, wanted: &[Wanted], found: &mut Fetched) -> Result<(), Fault> {
    let segment = wanted[0].handle.segment;
    let path = path(segment);
    let (named, newest) = checkpoint::naming(files, segment)?;
    let Some(newest) = newest else {
        return Err(Fault::Refused { file: path, what: "a snapshot is being installed".to_string() });
    };
    let offset = u64::from(wanted[0].handle.offset);
    if named || segment >= newest.open_segment()? {
        return Err(Fault::damaged(&path, offset, "this file holds records that are needed, and it is missing"));
    }
    let compacted = newest.image_head()?.compacted;
    for wanted in wanted {
        if let Some(record) = elsewhere(files, &newest, wanted.rev)? {
            found.keep(wanted.place, record);
        } else if wanted.superseded.is_none_or(|at| at > compacted) {
            let Rev { main, sub } = wanted.rev;
            let what = format!("the file of revision {main}.{sub} is missing, and compaction did not remove it");
            return Err(Fault::damaged(&path, u64::from(wanted.handle.offset), what));
        }
    }
    Ok(())
}

/// The record of a revision in the segments of a checkpoint.
fn elsewhere(files: &dyn Files, newest: &Manifest, rev: Rev) -> Result<Option<Bytes>, Fault> {
    let open = newest.open_segment()?;
    let begins = newest.segments.partition_point(|file| file.last < rev.main);
    for file in newest.segments[begins..].iter().take_while(|file| file.first <= rev.main) {
        if let Some(record) = records::find(files, &checkpoint::use_of(file, open), rev)? {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

fn end_of(wanted: &Wanted) -> u64 {
    u64::from(wanted.handle.offset) + u64::from(wanted.handle.len)
}

/// How many of `wanted` (ascending by offset, of one segment) one read takes: at least one.
fn run_len(wanted: &[Wanted]) -> usize {
    let start = u64::from(wanted[0].handle.offset);
    let alone = |wanted: &Wanted| wanted.handle.len as usize >= ALONE;
    let mut end = end_of(&wanted[0]);
    for (n, next) in wanted.iter().enumerate().skip(1) {
        let beyond = end.max(end_of(next));
        let far = u64::from(next.handle.offset) > end + u64::from(GAP) || beyond - start > RUN as u64;
        if far || alone(next) || alone(&wanted[0]) {
            return n;
        }
        end = beyond;
    }
    wanted.len()
}

/// A whole record that stands in for one that was lost.
fn is_filler(bytes: &[u8]) -> bool {
    record::check(bytes).is_ok_and(|(_, tombstone)| record::is_filler(tombstone, &bytes[record::HEADER..]))
}

fn fetch_run(file: &dyn File, path: &str, wanted: &[Wanted], found: &mut Fetched) -> Result<(), Fault> {
    let start = wanted[0].handle.offset;
    let end = wanted.iter().map(end_of).max().expect("a run is not empty");
    let mut bytes = found.buffer((end - u64::from(start)) as usize);
    read_into(file, path, u64::from(start), &mut bytes)?;
    let run = found.runs.len() as u32;
    for &Wanted { place, handle, rev, superseded } in wanted {
        let at = handle.offset - start;
        if superseded.is_some() && is_filler(&bytes[at as usize..][..handle.len as usize]) {
            // Compacted everywhere, and damaged here: nobody has it.
            continue;
        }
        if verify(path, handle.offset, &bytes[at as usize..][..handle.len as usize])? != rev {
            let what = format!("the record of revision {}.{} was replaced by an installed snapshot", rev.main, rev.sub);
            return Err(Fault::Refused { file: path.to_string(), what });
        }
        found.places[place] = Some(Place { run, start: at, len: handle.len });
    }
    let alone = wanted.len() == 1 && bytes.len() >= ALONE;
    found.runs.push(if alone { Run::Kept(Bytes::from(bytes)) } else { Run::Read(bytes) });
    Ok(())
}
