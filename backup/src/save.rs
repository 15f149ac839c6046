//! From a snapshot to a shelf: pieces first, each read back, then the manifest that names them.

use crate::manifest::{Manifest, Piece};
use crate::rows::Cutter;
use crate::{Error, Result, Shelf, hex};
use bolt::{Db, Source};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What the caller knows of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// When it was begun, milliseconds since 1970.
    pub time: i64,
    /// Where it was taken.
    pub endpoint: String,
    /// The version that the server said.
    pub version: String,
    /// Id of the cluster, in hexadecimal; empty: not known.
    pub cluster: String,
}

/// How far it is: bytes of rows.
pub type Progress<'p> = &'p mut dyn FnMut(u64);

/// What became of it.
#[derive(Clone, Debug)]
pub struct Written {
    /// As it lies on the shelf.
    pub manifest: Manifest,
    /// Pieces, and their bytes, that were not there before.
    pub new_pieces: u64,
    /// Bytes of them.
    pub new_bytes: u64,
}

/// Writes a snapshot to a shelf. Nothing of it is listed before everything is there, was read back,
/// and is what the snapshot has.
///
/// # Errors
/// The snapshot is damaged; the shelf refuses, or does not give back what it was given.
pub async fn save<S: Source>(shelf: &Shelf, db: &Db<S>, about: About, progress: Progress<'_>) -> Result<Written> {
    let damaged = |error: bolt::Error| Error::Snapshot(error.to_string());
    if let Some(finding) = db.check().first() {
        return Err(Error::Snapshot(finding.to_string()));
    }
    let summary = db.summary().map_err(damaged)?;
    let there: BTreeMap<String, u64> = shelf.list("pieces").await?.into_iter().collect();
    let mut pieces = Pieces { shelf, there, all: Vec::new(), sum: Sha256::new(), new: (0, 0), bytes: 0, progress };
    let mut cutter = Cutter::default();
    for name in db.buckets().map_err(damaged)? {
        cutter.bucket(&name);
        let Some(bucket) = db.bucket(&name).map_err(damaged)? else { continue };
        for pair in bucket.pairs() {
            let (key, value) = pair.map_err(damaged)?;
            if let Some(piece) = cutter.pair(&key, &value) {
                pieces.put(piece).await?;
            }
        }
    }
    if let Some(piece) = cutter.rest() {
        pieces.put(piece).await?;
    }
    let manifest = Manifest {
        time: about.time,
        endpoint: about.endpoint,
        version: about.version,
        cluster: about.cluster,
        revision: summary.revision,
        oldest: compacted(db)?.max(1),
        keys: summary.total_keys,
        hash: summary.hash,
        bytes: summary.total_bytes,
        rows: hex(&pieces.sum.finalize()),
        pieces: pieces.all,
    };
    let (name, bytes) = (manifest.name(), manifest.encode());
    shelf.put(&name, bytes.clone()).await?;
    if shelf.get(&name).await? != bytes {
        return Err(Error::Damaged { name, what: "it was not written as it is".to_owned() });
    }
    Ok(Written { manifest, new_pieces: pieces.new.0, new_bytes: pieces.new.1 })
}

struct Pieces<'s, 'p> {
    shelf: &'s Shelf,
    /// Names and lengths of what lies there.
    there: BTreeMap<String, u64>,
    all: Vec<Piece>,
    sum: Sha256,
    /// Pieces and bytes that were written.
    new: (u64, u64),
    bytes: u64,
    progress: Progress<'p>,
}

impl Pieces<'_, '_> {
    async fn put(&mut self, bytes: Vec<u8>) -> Result<()> {
        let (piece, bytes) = (Piece::of(&bytes), Bytes::from(bytes));
        self.sum.update(&bytes);
        self.bytes += piece.bytes;
        (self.progress)(self.bytes);
        let name = piece.name();
        if !self.lies_there(&piece).await? {
            self.shelf.put(&name, bytes).await?;
            if Piece::of(&self.shelf.get(&name).await?) != piece {
                return Err(Error::Damaged { name, what: "it was not written as it is".to_owned() });
            }
            self.new = (self.new.0 + 1, self.new.1 + piece.bytes);
            self.there.insert(name, piece.bytes);
        }
        self.all.push(piece);
        Ok(())
    }

    /// One that is damaged is written anew: else each backup from then on would rest on it.
    async fn lies_there(&self, piece: &Piece) -> Result<bool> {
        let name = piece.name();
        if self.there.get(&name) != Some(&piece.bytes) {
            return Ok(false);
        }
        match self.shelf.get(&name).await {
            Ok(bytes) => Ok(Piece::of(&bytes) == *piece),
            // Removed since, or the disk cannot read it.
            Err(Error::Missing { .. } | Error::Shelf { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The revision up to which it was compacted; 0: it was not.
fn compacted<S: Source>(db: &Db<S>) -> Result<i64> {
    let damaged = |error: bolt::Error| Error::Snapshot(error.to_string());
    let Some(meta) = db.bucket(b"meta").map_err(damaged)? else { return Ok(0) };
    let mut last = 0;
    for key in [&b"finishedCompactRev"[..], b"scheduledCompactRev"] {
        if let Some(value) = meta.get(key).map_err(damaged)? {
            let main = value.get(..8).and_then(|main| main.try_into().ok()).map_or(0, i64::from_be_bytes);
            last = last.max(main);
        }
    }
    Ok(last)
}
