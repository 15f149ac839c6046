//! A run of neighbouring segments is rewritten into one file, a piece at a time.
//!
//! ```text
//! state/seg-%08x.part    what is rewritten; removed at a start
//! ```
//!
//! [`read`] and [`write()`] in turn, then [`finish`]. Records are copied as they are, so their own
//! checksums go with them: nothing that is damaged gets a new one. The new file is verified and
//! flushed before it has its name. The old files stay until no kept checkpoint names them.
//!
//! Between [`finish`] and the first checkpoint that names the new file no checkpoint may be under
//! way: [`crate::checkpoint::clean`] would take it for a leftover.

use crate::checkpoint::{remove_if_there, unflushed};
use crate::header::{check_page, page};
use crate::measure::{self, Part};
use crate::records::{self, DIR, MAGIC, Reader, path, write_footer};
use crate::{Fault, Files, How, Identity, PAGE};
use bytes::Bytes;
use std::io::ErrorKind;
use store::Handle;

/// So many bytes of the new file are flushed together, so that a checkpoint does not find all of it
/// unflushed.
const FLUSH_EVERY: u64 = 8 << 20;

/// Where in a run the next piece begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the segment in the run.
    pub segment: usize,
    /// Offset of the next record there; below [`PAGE`]: the first one.
    pub offset: u32,
}

/// The next records of a run.
#[derive(Debug)]
pub struct Piece {
    /// Whole records, each with its place.
    pub records: Vec<(Handle, Bytes)>,
    /// None: the run ends with them.
    pub next: Option<Place>,
}

fn part_path(output: u32) -> String {
    format!("{}.part", path(output))
}

/// Up to `most` records from `place` on, about `max_bytes` of them. `run`: id of each segment, and
/// the offset behind its last record.
///
/// # Errors
/// [`Fault::Damaged`], with file and offset, at the first record that is not what was written.
pub fn read(
    files: &dyn Files,
    id: Identity,
    run: &[(u32, u32)],
    place: Place,
    most: usize,
    max_bytes: u64,
) -> Result<Piece, Fault> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    let Some(&(segment, end)) = run.get(place.segment) else { return Ok(Piece { records, next: None }) };
    let path = path(segment);
    let file = files.open(&path, How::Read).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Fault::damaged(&path, 0, "this file holds records that are needed, and it is missing"),
        _ => Fault::io(&path, 0, error),
    })?;
    if u64::from(place.offset) < PAGE {
        check_page(&*file, &path, MAGIC, id.cluster, Some(id.member), u64::from(segment))?;
    }
    let mut reader = Reader::new(file, path, place.offset.max(PAGE as u32), end);
    let mut next = place;
    while records.len() < most && bytes < max_bytes {
        let Some((offset, _, whole)) = reader.next()? else {
            let segment = place.segment + 1;
            let next = (segment < run.len()).then_some(Place { segment, offset: 0 });
            return Ok(Piece { records, next });
        };
        let len = u32::try_from(whole.len()).expect("a record is shorter than its segment");
        next.offset = offset + len;
        bytes += u64::from(len);
        records.push((Handle { segment, offset, len }, whole));
    }
    Ok(Piece { records, next: Some(next) })
}

/// Appends whole records at `offset` of the new file; the first ones, at [`PAGE`], create it.
pub fn write(files: &dyn Files, id: Identity, output: u32, offset: u32, parts: &[Bytes]) -> Result<(), Fault> {
    let path = part_path(output);
    let io = |e| Fault::io(&path, u64::from(offset), e);
    let mut slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    let end = u64::from(offset) + slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
    if u64::from(offset) == PAGE {
        let header = page(MAGIC, id, u64::from(output));
        slices.insert(0, &header);
        let file = files.open(&path, How::Create).map_err(io)?;
        return file.write_at(0, &slices).map_err(io);
    }
    let file = files.open(&path, How::Write).map_err(io)?;
    file.write_at(u64::from(offset), &slices).map_err(io)?;
    if u64::from(offset) / FLUSH_EVERY != end / FLUSH_EVERY {
        file.sync().map_err(|e| unflushed(&path, e))?;
    }
    Ok(())
}

/// The new file ends at `end`: it is verified, gets its seek table, is flushed, and has its name
/// then.
///
/// # Errors
/// [`Fault::Damaged`] if a record is not what was written. [`Fault::Refused`] if there is a file of
/// that name: a checkpoint may need it.
pub fn finish(files: &dyn Files, output: u32, end: u32) -> Result<(), Fault> {
    let (part, name) = (part_path(output), path(output));
    if records::list(files)?.contains(&output) {
        return Err(Fault::Refused { file: name, what: "no file is written anew over another one".to_string() });
    }
    let file = files.open(&part, How::Write).map_err(|e| Fault::io(&part, 0, e))?;
    let seeks = measure::records(&*file, &part, Part::whole(end))?.seeks;
    write_footer(&*file, &part, seeks, end)?;
    file.sync().map_err(|e| unflushed(&part, e))?;
    files.rename(&part, &name).map_err(|e| Fault::io(&name, 0, e))?;
    files.sync_dir(DIR).map_err(|e| unflushed(&name, e))
}

/// The rewrite was given up: whatever is there of the new file goes.
pub fn give_up(files: &dyn Files, output: u32) -> Result<(), Fault> {
    remove_if_there(files, &part_path(output))
}
