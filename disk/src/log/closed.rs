//! Log files, read while the log goes on: each batch of them against its checksums. Of the newest
//! one as much as later batches prove: its end may just be written.

use super::batch::{decode_table, wrong_bodies};
use super::seal::Seal;
use super::space;
use crate::header::{read_exact, read_full};
use crate::scrub::{Finding, Step};
use crate::{Fault, File, Files, How, Identity, PAGE};
use std::io::ErrorKind;

/// Where in the log files a look stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Files from this id on are looked at.
    file: u64,
    offset: u64,
    /// Number of the last batch that was read; 0: none.
    number: u64,
}

impl Place {
    /// The beginning of the next file.
    pub(crate) fn next(self) -> Option<Place> {
        Some(Place { file: self.file.checked_add(1)?, offset: 0, number: 0 })
    }
}

/// Bytes behind a place of the newest file that are searched for a proof that it was durable.
const PROOF: u64 = 8 << 20;

/// Reads on. True: every file was read.
pub(crate) fn check(
    files: &dyn Files,
    id: Identity,
    at: &mut Place,
    bytes: u64,
    step: &mut Step,
) -> Result<bool, Fault> {
    let ids = space::ids(files)?;
    let Some(position) = ids.iter().position(|file| *file >= at.file) else { return Ok(true) };
    if ids[position] != at.file {
        *at = Place { file: ids[position], offset: 0, number: 0 };
    }
    let path = space::segment_path(at.file);
    let file = match files.open(&path, How::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(go_on(at)),
        other => other.map_err(|e| Fault::io(&path, 0, e))?,
    };
    let seal = Seal::of_file(id, &*file, &path, at.file)?;
    while step.read < bytes {
        match batch_at(&*file, &path, seal, at) {
            Ok(Some(size)) => {
                at.offset += size;
                step.read += size;
            }
            Err(fault @ Fault::Io { .. }) => return Err(fault),
            ended => {
                let wrong = match ids.get(position + 1) {
                    None => in_the_newest(&*file, &path, seal, at, ended.err())?,
                    Some(next) => match ended {
                        Err(fault) => Some(fault),
                        Ok(_) => end(files, &path, id, at, *next)?,
                    },
                };
                tell(files, at, step, wrong)?;
                return Ok(go_on(at));
            }
        }
    }
    Ok(false)
}

/// No whole batch is at the place: what is wrong there, if a later batch proves that one was
/// durable.
fn in_the_newest(
    file: &dyn File,
    path: &str,
    seal: Seal,
    at: &mut Place,
    fault: Option<Fault>,
) -> Result<Option<Fault>, Fault> {
    if !proven(file, path, seal, at)? {
        return Ok(None);
    }
    // It may have been written between the two looks.
    match batch_at(file, path, seal, at) {
        Ok(Some(_)) => Ok(None),
        Err(fault @ Fault::Io { .. }) => Err(fault),
        Err(fault) => Ok(Some(fault)),
        Ok(None) => {
            let what = || format!("the header of batch {} is not readable", at.number + 1);
            Ok(Some(fault.unwrap_or_else(|| Fault::damaged(path, at.offset, what()))))
        }
    }
}

/// A batch behind the place says that it was durable.
fn proven(file: &dyn File, path: &str, seal: Seal, at: &Place) -> Result<bool, Fault> {
    let len = file.len().map_err(|e| Fault::io(path, 0, e))?.min(at.offset.saturating_add(PROOF));
    let mut page = vec![0; seal.head(at.file)];
    for offset in (at.offset + PAGE..len).step_by(PAGE as usize) {
        let got = read_full(file, path, offset, &mut page)?;
        let Ok((header, _)) = seal.decode(&page[..got]) else { continue };
        if header.id != seal.id || (header.at.segment, header.at.offset) != (at.file, offset) {
            continue;
        }
        return Ok((header.proven.segment, header.proven.offset) > (at.file, at.offset));
    }
    Ok(false)
}

fn go_on(at: &mut Place) -> bool {
    match at.next() {
        Some(next) => {
            *at = next;
            false
        }
        None => true,
    }
}

/// A file that was cut meanwhile may hold anything: it is used again.
fn tell(files: &dyn Files, at: &Place, step: &mut Step, wrong: Option<Fault>) -> Result<(), Fault> {
    if let Some(fault) = wrong
        && space::ids(files)?.contains(&at.file)
    {
        step.found.push(Finding::Log(fault));
    }
    Ok(())
}

/// The size of the batch at the place; None if none begins there.
fn batch_at(file: &dyn File, path: &str, seal: Seal, at: &mut Place) -> Result<Option<u64>, Fault> {
    let len = file.len().map_err(|e| Fault::io(path, 0, e))?;
    let mut bytes = vec![0; seal.head(at.file)];
    let got = read_full(file, path, at.offset, &mut bytes)?;
    let Ok((header, _)) = seal.decode(&bytes[..got]) else { return Ok(None) };
    if header.id != seal.id || (header.at.segment, header.at.offset) != (at.file, at.offset) {
        return Ok(None);
    }
    let size = header.size();
    if at.offset + size > len {
        return Err(Fault::damaged(path, len, "the file ends inside a batch"));
    }
    let body = at.offset + header.head() as u64;
    let table = read_exact(file, path, body, header.table_len())?;
    let Some(rows) = decode_table(&header, &table) else {
        return Err(Fault::damaged(path, body, "the table of a batch has the wrong checksum"));
    };
    let bodies = read_exact(file, path, body + table.len() as u64, header.body_len as usize)?;
    let entries = wrong_bodies(&rows, &bodies);
    if let Some(first) = entries.first() {
        let what = format!("the data of entry {} of term {} has the wrong checksum", first.index, first.term);
        return Err(Fault::damaged(path, body + table.len() as u64, what));
    }
    at.number = header.number;
    Ok(Some(size))
}

/// Whether the chain goes on in the next file where this one ends.
fn end(files: &dyn Files, path: &str, id: Identity, at: &Place, next: u64) -> Result<Option<Fault>, Fault> {
    let follower = space::segment_path(next);
    let file = match files.open(&follower, How::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| Fault::io(&follower, 0, e))?,
    };
    let seal = Seal::of_file(id, &*file, &follower, next)?;
    let mut bytes = vec![0; seal.head(next)];
    let got = read_full(&*file, &follower, 0, &mut bytes)?;
    // A first batch that is not readable is told of where its own file is read, once it is closed.
    let Ok((header, _)) = seal.decode(&bytes[..got]) else { return Ok(None) };
    let whole = header.id != id || next != at.file + 1 || header.number == at.number + 1;
    let what = || format!("the header of batch {} is not readable", at.number + 1);
    Ok((!whole).then(|| Fault::damaged(path, at.offset, what())))
}
