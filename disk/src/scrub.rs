//! A look at what lies still: files of the newest checkpoint and closed log files are read slowly,
//! piece by piece, and compared with their checksums, so that damage is found before somebody needs
//! the bytes.
//!
//! Of a segment every damaged *stretch* is found: where it begins and ends, and between which
//! revisions it lies. Where a record is damaged its length may be wrong too, so the next whole
//! record is looked for byte by byte. A pass takes the manifest as it finds it: files that a later
//! checkpoint dropped are passed over.

use crate::ahead::Ahead;
use crate::checkpoint::{INDEX_MAGIC, Manifest, TABLES_MAGIC, manifests};
use crate::header::{check_page, read_full};
use crate::holes::Holes;
use crate::log::closed;
use crate::manifest::manifest_path;
use crate::{Fault, File, Files, How, Identity, PAGE, measure, records};
use std::io;
use std::sync::Arc;
use store::record::{self, Damage};
use store::{Rev, SegmentUse};

/// Bytes of a file of the index that are read at a time.
const CHUNK: usize = 256 << 10;
/// Damaged stretches of one segment that are told of at once.
const STRETCHES: u32 = 256;

/// Bytes of a segment that are not what was written, from the first damaged record to the next
/// whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub segment: u32,
    /// The bytes `from..until`. All below [`PAGE`]: the header page alone.
    pub from: u32,
    pub until: u32,
    /// The revisions of the records in it lie between these two, which are not among them.
    pub after: Rev,
    pub before: Rev,
    /// The main revision of the segment's last record.
    pub last: i64,
    /// What is wrong, with file and offset.
    pub what: String,
}

/// Something that is not what was written.
#[derive(Debug)]
pub enum Finding {
    Stretch(Stretch),
    /// Every record of the segment is whole, but a checkpoint names another checksum. `mended`:
    /// fillers stand in for records, which explains it.
    Checksum {
        segment: u32,
        mended: bool,
        fault: Fault,
    },
    /// The seek table behind the records of a closed segment is damaged or missing.
    Seal {
        segment: u32,
    },
    /// Of the newest checkpoint: its manifest, index or tables.
    Checkpoint(Fault),
    /// Segments from this one on may have records that no checkpoint names yet, which a pass does
    /// not read: whoever knows where they end looks at them.
    Beyond {
        segment: u32,
    },
    /// Of a closed log file.
    Log(Fault),
    /// The disk refuses to read a file, again and again.
    Unreadable(Fault),
}

/// What a step saw.
#[derive(Debug, Default)]
pub struct Step {
    /// Bytes that were read.
    pub read: u64,
    pub found: Vec<Finding>,
    /// There is nothing more to look at.
    pub done: bool,
}

/// Where a look stands. It goes on with [`Scrub::step`].
#[derive(Debug)]
pub struct Scrub {
    stage: Stage,
    /// A page that cannot be read is damaged like any other, rather than a reason to stop.
    lenient: bool,
    /// One segment, and nothing else.
    single: bool,
}

#[derive(Debug)]
enum Stage {
    Manifest,
    /// Index and tables: the nth of them.
    Files(usize, Option<Sum>),
    /// The segments from this id on.
    Segments(u32, Option<Walk>),
    Logs(closed::Place),
    Done,
}

/// The checksum of a file on the way.
#[derive(Debug)]
struct Sum {
    name: String,
    offset: u64,
    crc: u32,
}

/// A way through one segment.
#[derive(Debug)]
struct Walk {
    segment: u32,
    until: u32,
    first: i64,
    last: i64,
    /// The checksum at `until` that a checkpoint names.
    named: Option<u32>,
    /// Where the next record begins, or is looked for.
    offset: u32,
    crc: u32,
    /// Revision of the last whole record.
    before: Rev,
    /// A damaged stretch that has no end yet: where it began, and why.
    open: Option<(u32, String)>,
    stretches: u32,
    fillers: bool,
    /// It has a seek table behind its records.
    sealed: bool,
}

/// Nothing to look at.
impl Default for Scrub {
    fn default() -> Scrub {
        Scrub { stage: Stage::Done, lenient: false, single: false }
    }
}

impl Scrub {
    /// Everything at rest.
    pub fn all() -> Scrub {
        Scrub { stage: Stage::Manifest, lenient: false, single: false }
    }

    /// One segment, all of whose records were written. `lenient`: bytes that the disk refuses to
    /// read are damaged.
    pub fn segment(used: &SegmentUse, lenient: bool) -> Scrub {
        let SegmentUse { id: segment, first, last, end, sealed, .. } = *used;
        let walk = Walk { sealed, ..Walk::new(segment, end, first, last, None) };
        Scrub { stage: Stage::Segments(segment, Some(walk)), lenient, single: true }
    }

    /// Reads about `bytes` more.
    ///
    /// # Errors
    /// [`Fault::Io`]: a call failed. The same step may be tried again, or [`Scrub::pass_over`]
    /// be called.
    pub fn step(&mut self, files: &dyn Files, id: Identity, bytes: u64) -> Result<Step, Fault> {
        let mut step = Step::default();
        while step.read < bytes && !matches!(self.stage, Stage::Done) {
            self.go(files, id, bytes, &mut step)?;
        }
        step.done = matches!(self.stage, Stage::Done);
        Ok(step)
    }

    /// Leaves out the file that cannot be read.
    pub fn pass_over(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Manifest => Stage::Files(0, None),
            Stage::Files(nth, _) => Stage::Files(nth + 1, None),
            Stage::Segments(..) if self.single => Stage::Done,
            Stage::Segments(next, walk) => {
                Stage::Segments(walk.map_or(next, |walk| walk.segment).saturating_add(1), None)
            }
            Stage::Logs(place) => place.next().map_or(Stage::Done, Stage::Logs),
            Stage::Done => Stage::Done,
        };
    }

    fn go(&mut self, files: &dyn Files, id: Identity, bytes: u64, step: &mut Step) -> Result<(), Fault> {
        let (lenient, single) = (self.lenient, self.single);
        match &mut self.stage {
            Stage::Manifest => {
                check_manifest(files, id, step)?;
                self.stage = Stage::Files(0, None);
            }
            Stage::Files(nth, sum) => {
                if !sum_on(files, id, *nth, sum, bytes, step)? {
                    self.stage = Stage::Segments(0, None);
                } else if sum.is_none() {
                    *nth += 1;
                }
            }
            Stage::Segments(next, None) => {
                let named = newest(files, id)?.map_or(Vec::new(), |manifest| manifest.segments);
                self.stage = match named.iter().find(|file| file.segment >= *next) {
                    Some(file) => {
                        let walk = Walk::new(file.segment, file.len, file.first, file.last, Some(file.crc));
                        // Only the last one is written to.
                        let sealed = named.last().is_some_and(|last| last.segment > file.segment);
                        let walk = Walk { sealed, ..walk };
                        Stage::Segments(file.segment, Some(walk))
                    }
                    None => {
                        let segment = named.last().map_or(0, |last| last.segment);
                        step.found.push(Finding::Beyond { segment });
                        Stage::Logs(closed::Place::default())
                    }
                };
            }
            Stage::Segments(next, Some(walk)) => {
                if walk.on(files, id, lenient, bytes, step)? {
                    let following = next.checked_add(1).filter(|_| !single);
                    self.stage = following.map_or(Stage::Done, |next| Stage::Segments(next, None));
                }
            }
            Stage::Logs(place) => {
                if closed::check(files, id, place, bytes, step)? {
                    self.stage = Stage::Done;
                }
            }
            Stage::Done => {}
        }
        Ok(())
    }
}

/// The newest manifest that is readable.
fn newest(files: &dyn Files, id: Identity) -> Result<Option<Manifest>, Fault> {
    for index in manifests(files)?.into_iter().rev() {
        match Manifest::read(files, &manifest_path(index), id.cluster, Some(id.member)) {
            Ok(manifest) => return Ok(Some(manifest)),
            Err(fault @ Fault::Io { .. }) if !is_gone(&fault) => return Err(fault),
            Err(_) => {}
        }
    }
    Ok(None)
}

fn is_gone(fault: &Fault) -> bool {
    matches!(fault, Fault::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
}

fn check_manifest(files: &dyn Files, id: Identity, step: &mut Step) -> Result<(), Fault> {
    let Some(index) = manifests(files)?.pop() else { return Ok(()) };
    let path = manifest_path(index);
    match Manifest::read(files, &path, id.cluster, Some(id.member)) {
        Ok(manifest) if manifest.index == index => step.read += 4096,
        Ok(_) => {
            let what = "the manifest is of another index than its name";
            step.found.push(Finding::Checkpoint(Fault::damaged(&path, 0, what)));
        }
        Err(fault @ Fault::Io { .. }) => return Err(fault),
        Err(fault) => step.found.push(Finding::Checkpoint(fault)),
    }
    Ok(())
}

/// A file of the checkpoint that is no segment: name, magic, number, length, checksum.
type Named = (String, &'static [u8; 8], u64, u64, u32);

fn named_files(manifest: &Manifest) -> Vec<Named> {
    let indexes = manifest.index_files.iter().map(|file| (file.name(), INDEX_MAGIC, file.number, file.len, file.crc));
    let tables = manifest.tables.iter().map(|file| (file.name(), TABLES_MAGIC, file.number, file.len, file.crc));
    indexes.chain(tables).collect()
}

/// Goes on with the nth file of the index and the tables. False: there is none. `sum` None: it is
/// done.
fn sum_on(
    files: &dyn Files,
    id: Identity,
    nth: usize,
    sum: &mut Option<Sum>,
    bytes: u64,
    step: &mut Step,
) -> Result<bool, Fault> {
    let Some(manifest) = newest(files, id)? else { return Ok(false) };
    let named = named_files(&manifest);
    let Some((name, magic, number, len, crc)) = named.get(nth) else { return Ok(false) };
    let path = format!("{}/{name}", records::DIR);
    if sum.as_ref().is_none_or(|sum| sum.name != *name) {
        *sum = Some(Sum { name: name.clone(), offset: PAGE, crc: 0 });
    }
    let reading = sum.as_mut().expect("just made");
    let wrong = match sum_file(files, id, &path, (magic, *number, *len), reading, bytes, step) {
        Ok(false) => return Ok(true),
        Ok(true) if reading.crc == *crc => None,
        Ok(true) => Some(what_is_wrong(files, &path, *len, *crc, reading.crc)?),
        Err(fault) if is_gone(&fault) => {
            Some(Fault::damaged(&path, 0, "a checkpoint names this file, and it is missing"))
        }
        Err(fault @ Fault::Io { .. }) => return Err(fault),
        Err(fault) => Some(fault),
    };
    *sum = None;
    step.found.extend(wrong.map(Finding::Checkpoint));
    Ok(true)
}

/// True: all of the file was read.
fn sum_file(
    files: &dyn Files,
    id: Identity,
    path: &str,
    (magic, number, len): (&[u8; 8], u64, u64),
    sum: &mut Sum,
    bytes: u64,
    step: &mut Step,
) -> Result<bool, Fault> {
    let file = files.open(path, How::Read).map_err(|e| Fault::io(path, 0, e))?;
    if sum.offset == PAGE {
        check_page(&*file, path, magic, id.cluster, Some(id.member), number)?;
    }
    let mut buffer = vec![0; CHUNK];
    while sum.offset < len && step.read < bytes {
        let want = usize::try_from(len - sum.offset).map_or(CHUNK, |left| left.min(CHUNK));
        let got = read_full(&*file, path, sum.offset, &mut buffer[..want])?;
        if got < want {
            return Err(Fault::damaged(path, sum.offset + got as u64, "the file ends before its length"));
        }
        sum.crc = crc32c::crc32c_append(sum.crc, &buffer[..want]);
        sum.offset += want as u64;
        step.read += want as u64;
    }
    Ok(sum.offset >= len)
}

/// The first frame that is damaged, or the file as a whole.
fn what_is_wrong(files: &dyn Files, path: &str, len: u64, named: u32, found: u32) -> Result<Fault, Fault> {
    let file = files.open(path, How::Read).map_err(|e| Fault::io(path, 0, e))?;
    match measure::frames(&*file, path, len, |_| Ok(())) {
        Err(fault @ Fault::Io { .. }) => Err(fault),
        Err(fault) => Ok(fault),
        Ok(_) => {
            Ok(Fault::damaged(path, PAGE, format!("checksum {found:08x} instead of {named:08x} over {len} bytes")))
        }
    }
}

impl Walk {
    fn new(segment: u32, until: u32, first: i64, last: i64, named: Option<u32>) -> Walk {
        Walk {
            segment,
            until,
            first,
            last,
            named,
            offset: PAGE as u32,
            crc: 0,
            before: Rev { main: first, sub: -1 },
            open: None,
            stretches: 0,
            fillers: false,
            sealed: false,
        }
    }

    /// Reads on; true when the segment is read.
    fn on(
        &mut self,
        files: &dyn Files,
        id: Identity,
        lenient: bool,
        bytes: u64,
        step: &mut Step,
    ) -> Result<bool, Fault> {
        let path = records::path(self.segment);
        let file = match files.open(&path, How::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.missing(files, id, &path, step)?;
                return Ok(true);
            }
            other => other.map_err(|e| Fault::io(&path, 0, e))?,
        };
        if self.offset == PAGE as u32 && self.open.is_none() {
            // A disk that does not even give this page is not one with a few bad places.
            self.check_header(&*file, &path, id, step)?;
        }
        let file: Arc<dyn File> = if lenient { Holes::blank(file) } else { file };
        let len = file.len().map_err(|e| Fault::io(&path, 0, e))?;
        let mut ahead = Ahead::new(&*file, &path, u64::from(self.until).min(len));
        self.look_back(&mut ahead, step);
        while self.offset < self.until && step.read < bytes && self.stretches < STRETCHES {
            if u64::from(self.offset) >= len {
                self.ends_here();
                break;
            }
            let was = self.offset;
            match self.record(&mut ahead) {
                Ok((whole, rev)) => self.pass(whole, rev, step),
                Err(fault @ Fault::Io { .. }) => return Err(fault),
                Err(Fault::Damaged { what, .. }) => {
                    self.open.get_or_insert((self.offset, what));
                    self.offset += 1;
                }
                Err(other) => return Err(other),
            }
            step.read += u64::from(self.offset - was);
        }
        if self.offset < self.until && self.stretches < STRETCHES {
            return Ok(false);
        }
        self.end(&path, step);
        if self.sealed && records::seek_table(&*file, &path, self.until)?.is_none() {
            step.found.push(Finding::Seal { segment: self.segment });
        }
        Ok(true)
    }

    /// The file ends before what checkpoints name of it does.
    fn ends_here(&mut self) {
        self.open.get_or_insert_with(|| (self.offset, "the file ends here".to_string()));
        self.offset = self.until;
    }

    /// The file is not there. That is right if no checkpoint names it any more.
    fn missing(&mut self, files: &dyn Files, id: Identity, path: &str, step: &mut Step) -> Result<(), Fault> {
        let names = |m: Manifest| m.segments.iter().any(|file| file.segment == self.segment);
        let named = self.named.is_none() || newest(files, id)?.is_some_and(names);
        if named && self.until > PAGE as u32 {
            (self.offset, self.before) = (self.until, Rev { main: self.first, sub: -1 });
            self.open = Some((PAGE as u32, "a checkpoint names this file, and it is missing".to_string()));
            self.end(path, step);
            if self.sealed {
                step.found.push(Finding::Seal { segment: self.segment });
            }
        }
        Ok(())
    }

    fn check_header(&mut self, file: &dyn File, path: &str, id: Identity, step: &mut Step) -> Result<(), Fault> {
        let found = check_page(file, path, records::MAGIC, id.cluster, Some(id.member), u64::from(self.segment));
        match found {
            Ok(()) => {}
            Err(fault @ (Fault::Io { .. } | Fault::TooNew { .. })) => return Err(fault),
            Err(fault) => {
                let at = Rev { main: self.first, sub: -1 };
                let what = fault.to_string();
                let (segment, last, until) = (self.segment, self.last, PAGE as u32);
                step.found.push(Finding::Stretch(Stretch {
                    segment,
                    from: 0,
                    until,
                    after: at,
                    before: at,
                    last,
                    what,
                }));
            }
        }
        Ok(())
    }

    /// An open stretch may have been mended since the step before: its first record is whole then,
    /// and the walk goes on behind that.
    fn look_back(&mut self, ahead: &mut Ahead, step: &mut Step) {
        let Some(open) = self.open.take() else { return };
        let offset = std::mem::replace(&mut self.offset, open.0);
        match self.record(ahead) {
            Ok((whole, rev)) => self.pass(whole, rev, step),
            Err(_) => (self.offset, self.open) = (offset, Some(open)),
        }
    }

    /// The length of the whole record at the offset, and its revision; its bytes are in `ahead`.
    fn record(&mut self, ahead: &mut Ahead) -> Result<(u32, Rev), Fault> {
        let (offset, path) = (u64::from(self.offset), records::path(self.segment));
        let wrong = |damage: Damage| Fault::damaged(&path, offset + damage.offset, damage.what);
        let room = (self.until - self.offset) as usize;
        if room < record::HEADER {
            return Err(Fault::damaged(&path, offset, format!("{room} bytes are no record")));
        }
        let header = ahead.get(offset, record::HEADER)?;
        let len = record::whole_len(header).map_err(wrong)?;
        if len > room || self.open.is_some() && !record::looks_whole(header, self.first, self.last) {
            return Err(Fault::damaged(&path, offset, format!("a record of {len} bytes where {room} are left")));
        }
        let bytes = ahead.get(offset, len)?;
        let (rev, tombstone) = record::check(bytes).map_err(wrong)?;
        if rev <= self.before || rev.main > self.last {
            return Err(Fault::damaged(&path, offset, "records are not in the order of revisions"));
        }
        self.fillers |= record::is_filler(tombstone, &bytes[record::HEADER..]);
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok((len as u32, rev))
    }

    fn pass(&mut self, len: u32, rev: Rev, step: &mut Step) {
        self.close(rev, step);
        self.before = rev;
        self.offset += len;
    }

    /// The stretch that is open ends at the offset.
    fn close(&mut self, before: Rev, step: &mut Step) {
        let Some((from, what)) = self.open.take() else { return };
        self.stretches += 1;
        let (segment, last) = (self.segment, self.last);
        // The last that is told of covers the rest, whatever it holds.
        let (until, before) = match self.stretches {
            STRETCHES => (self.until, Rev { main: last + 1, sub: 0 }),
            _ => (self.offset, before),
        };
        let what = format!("{} at byte {from}: {what}", records::path(segment));
        step.found.push(Finding::Stretch(Stretch { segment, from, until, after: self.before, before, last, what }));
    }

    fn end(&mut self, path: &str, step: &mut Step) {
        if self.offset >= self.until {
            self.close(Rev { main: self.last + 1, sub: 0 }, step);
        }
        let Some(named) = self.named.filter(|named| self.stretches == 0 && *named != self.crc) else { return };
        let what = format!("checksum {:08x} instead of {named:08x} over {} bytes", self.crc, self.until);
        let (segment, fault) = (self.segment, Fault::damaged(path, PAGE, what));
        step.found.push(Finding::Checksum { segment, mended: self.fillers, fault });
    }
}
