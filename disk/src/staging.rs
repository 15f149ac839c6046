//! The staging place `incoming/`: what has come of a checkpoint stays there.
//!
//! A transfer may end before all has come: the sender is gone, the process restarts, a newer
//! checkpoint is offered. The next one goes on with every file that is the same in both manifests:
//! same name, length and checksum. A complete file is verified first; one that is wrong comes again
//! from its first byte. A file in part is believed until it is complete: its end is its length.

use crate::checkpoint::{INDEX_MAGIC, IndexFile, Manifest, SegmentFile, TABLES_MAGIC, TablesFile, remove_if_there};
use crate::header::{page, read_full};
use crate::holes::is_unreadable;
use crate::records::{self, names};
use crate::transfer::{DIR, WANTED};
use crate::{Fault, File, Files, How, PAGE};
use bytes::Bytes;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Longest manifest that is read.
const MANIFEST_MOST: u64 = 256 << 20;

/// One file of a manifest: equal ones hold the same bytes behind their header pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Segment(SegmentFile),
    Index(IndexFile),
    Tables(TablesFile),
}

impl Named {
    fn all(manifest: &Manifest) -> impl Iterator<Item = Named> + '_ {
        let segments = manifest.segments.iter().map(|file| Named::Segment(*file));
        let index = manifest.index_files.iter().map(|file| Named::Index(*file));
        segments.chain(index).chain(manifest.tables.iter().map(|file| Named::Tables(*file)))
    }

    fn name(&self) -> String {
        match self {
            Named::Segment(file) => file.name(),
            Named::Index(file) => file.name(),
            Named::Tables(file) => file.name(),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Named::Segment(file) => u64::from(file.len),
            Named::Index(file) => file.len,
            Named::Tables(file) => file.len,
        }
    }

    fn crc(&self) -> u32 {
        match self {
            Named::Segment(file) => file.crc,
            Named::Index(file) => file.crc,
            Named::Tables(file) => file.crc,
        }
    }

    fn header(&self, manifest: &Manifest) -> Vec<u8> {
        match self {
            Named::Segment(file) => page(records::MAGIC, manifest.id, u64::from(file.segment)),
            Named::Index(file) => page(INDEX_MAGIC, manifest.id, file.number),
            Named::Tables(file) => page(TABLES_MAGIC, manifest.id, file.number),
        }
    }
}

/// Index of the checkpoint that is being received; None if there is none, or its manifest is not
/// readable.
pub fn index(files: &dyn Files) -> Result<Option<u64>, Fault> {
    Ok(manifest(files)?.map(|manifest| manifest.index))
}

/// How much of each file has come, in the order of [`Manifest::files`]. Bytes.
pub fn received(files: &dyn Files) -> Result<Vec<u64>, Fault> {
    let Some(manifest) = manifest(files)? else {
        return Err(Fault::Refused { file: WANTED.to_string(), what: "nothing is received".to_string() });
    };
    let got = |(name, len): (String, u64)| {
        let path = format!("{DIR}/{name}");
        let found = files.open(&path, How::Read).and_then(|file| file.len());
        found.map(|found| found.min(len)).map_err(|e| Fault::io(&path, 0, e))
    };
    manifest.files().into_iter().map(got).collect()
}

/// Removes everything if the state has overtaken it: `applied` is the state's index.
pub fn drop_overtaken(files: &dyn Files, applied: u64) -> Result<(), Fault> {
    match manifest(files)? {
        Some(manifest) if manifest.index > applied => Ok(()),
        _ => discard(files),
    }
}

/// Keeps what is part of `wanted` as well, and removes the rest, the old manifest aside.
pub(crate) fn keep(files: &dyn Files, wanted: &Manifest) -> Result<(), Fault> {
    let before = manifest(files)?;
    let before: Vec<Named> = before.iter().flat_map(Named::all).collect();
    for name in names(files, DIR)? {
        let path = format!("{DIR}/{name}");
        match Named::all(wanted).find(|named| named.name() == name) {
            Some(named) if before.contains(&named) => keep_file(files, &path, named, wanted)?,
            _ if path == WANTED => {}
            _ => remove_if_there(files, &path)?,
        }
    }
    Ok(())
}

/// The header page is the sender's, and the sender may be another one now.
fn keep_file(files: &dyn Files, path: &str, named: Named, wanted: &Manifest) -> Result<(), Fault> {
    let io = |error| Fault::io(path, 0, error);
    let file = files.open(path, How::Write).map_err(io)?;
    let len = file.len().map_err(io)?;
    if len < PAGE || (len >= named.len() && !is_whole(&*file, path, named)?) {
        return file.set_len(0).map_err(io);
    }
    file.write_at(0, &[&named.header(wanted)]).map_err(io)
}

fn is_whole(file: &dyn File, path: &str, named: Named) -> Result<bool, Fault> {
    let (mut buffer, mut offset, mut crc) = (vec![0; CHUNK], PAGE, 0);
    while offset < named.len() {
        let want = usize::try_from(named.len() - offset).map_or(CHUNK, |left| left.min(CHUNK));
        let got = match read_full(file, path, offset, &mut buffer[..want]) {
            // It comes again, and is written where the disk can.
            Err(fault) if is_unreadable(&fault) => return Ok(false),
            other => other?,
        };
        if got < want {
            return Ok(false);
        }
        crc = crc32c::crc32c_append(crc, &buffer[..want]);
        offset += want as u64;
    }
    Ok(crc == named.crc())
}

/// None: there is none, or a crash left half of it.
fn manifest(files: &dyn Files) -> Result<Option<Manifest>, Fault> {
    if !names(files, DIR)?.iter().any(|name| WANTED.ends_with(&format!("/{name}"))) {
        return Ok(None);
    }
    let file = files.open(WANTED, How::Read).map_err(|e| Fault::io(WANTED, 0, e))?;
    let len = file.len().map_err(|e| Fault::io(WANTED, 0, e))?;
    if len > MANIFEST_MOST {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    read_full(&*file, WANTED, 0, &mut bytes)?;
    match Manifest::decode(WANTED, &Bytes::from(bytes)) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(Fault::Io { file, offset, error }) => Err(Fault::Io { file, offset, error }),
        Err(_) => Ok(None),
    }
}

pub(crate) fn discard(files: &dyn Files) -> Result<(), Fault> {
    for name in names(files, DIR)? {
        remove_if_there(files, &format!("{DIR}/{name}"))?;
    }
    Ok(())
}
