//! Damaged records are written again, in place, from what another member sent.
//!
//! Only bytes that are damaged already are written over, so a crash half way leaves nothing worse
//! than there was: some of them are still damaged, and are found again. Whole records that share a
//! sector with them are written as they are. Offsets stay, so every handle stays right, and so do
//! open files.

use crate::checkpoint::{Manifest, manifests, unflushed};
use crate::header::{check_page, page};
use crate::manifest::manifest_path;
use crate::measure::{self, Part};
use crate::records::{self, DIR};
use crate::{Fault, Files, How, Identity, PAGE};
use bytes::Bytes;
use std::io::ErrorKind;

/// Writes whole records at `at`, and the header page if that is not right. Durable once this
/// returns.
///
/// # Errors
/// [`Fault::Io`]: after a failed flush the process must not count on these bytes.
pub fn write(files: &dyn Files, id: Identity, segment: u32, at: u32, parts: &[Bytes]) -> Result<(), Fault> {
    let path = records::path(segment);
    let io = |e| Fault::io(&path, u64::from(at), e);
    let (file, made) = match files.open(&path, How::Write) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            files.make_dir(DIR).map_err(io)?;
            (files.open(&path, How::Create).map_err(io)?, true)
        }
        other => (other.map_err(io)?, false),
    };
    let header = check_page(&*file, &path, records::MAGIC, id.cluster, Some(id.member), u64::from(segment));
    if header.is_err() {
        file.write_at(0, &[&page(records::MAGIC, id, u64::from(segment))]).map_err(io)?;
    }
    if !parts.is_empty() {
        let slices: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        file.write_at(u64::from(at), &slices).map_err(io)?;
    }
    file.sync().map_err(|e| unflushed(&path, e))?;
    if made {
        files.sync_dir(DIR).map_err(|e| unflushed(DIR, e))?;
    }
    Ok(())
}

/// Writes the seek table of a closed segment anew, whose records end at `end`.
///
/// # Errors
/// [`Fault::Damaged`]: a record is not whole.
pub fn seal_anew(files: &dyn Files, segment: u32, end: u32) -> Result<(), Fault> {
    if records::sealed(files, segment, end)? {
        return Ok(());
    }
    // What is left of the old one must not be taken for a part of the new one.
    let path = records::path(segment);
    let file = files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
    file.set_len(u64::from(end)).map_err(|e| Fault::io(&path, u64::from(end), e))?;
    records::seal(files, segment, end)
}

/// Fillers stand where records were: the checkpoints that name the segment name its checksum anew.
/// Every record is verified on the way. Returns the newest manifest, encoded; None if there is
/// none.
///
/// # Errors
/// [`Fault::Damaged`]: a record is not whole, or the segment has other revisions than a checkpoint
/// names.
pub fn name_anew(files: &dyn Files, id: Identity, segment: u32) -> Result<Option<Bytes>, Fault> {
    let path = records::path(segment);
    let mut newest = None;
    for index in manifests(files)? {
        let place = manifest_path(index);
        let mut manifest = match Manifest::read(files, &place, id.cluster, Some(id.member)) {
            Err(fault) if fault.is_damage() => continue,
            other => other?,
        };
        if let Some(named) = manifest.segments.iter_mut().find(|named| named.segment == segment) {
            let file = files.open(&path, How::Read).map_err(|e| Fault::io(&path, 0, e))?;
            let measured = measure::records(&*file, &path, Part::whole(named.len))?;
            if (measured.first, measured.last) != (named.first, named.last) {
                let (first, last) = (measured.first, measured.last);
                let what = format!("revisions {first} to {last}, a checkpoint names {} to {}", named.first, named.last);
                return Err(Fault::damaged(&path, PAGE, what));
            }
            if named.crc != measured.crc {
                named.crc = measured.crc;
                manifest.write(files, DIR, &place)?;
            }
        }
        newest = Some(manifest.encode());
    }
    Ok(newest)
}
