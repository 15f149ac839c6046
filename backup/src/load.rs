//! From a shelf to a snapshot, and the proof that it could be done.

use crate::manifest::{Manifest, Piece};
use crate::rows::{self, Row};
use crate::{Error, Result, Shelf, hex};
use bolt::{Planner, Writer};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::io::Write;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Pieces.
    pub pieces: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
}

async fn piece(shelf: &Shelf, piece: &Piece) -> Result<(Bytes, Vec<Row>)> {
    let damaged = |what: &str| Error::Damaged { name: piece.name(), what: what.to_owned() };
    let bytes = shelf.get(&piece.name()).await?;
    if Piece::of(&bytes) != *piece {
        return Err(damaged("its hash is another one"));
    }
    let rows = rows::read(bytes.clone()).ok_or_else(|| damaged("no rows"))?;
    Ok((bytes, rows))
}

/// Reads all of a backup, as a restore would, and compares it with what its manifest says. `seen`
/// hears of the bytes.
///
/// # Errors
/// What is missing or damaged.
pub async fn verify(shelf: &Shelf, manifest: &Manifest, mut seen: impl FnMut(u64)) -> Result<Verified> {
    let damaged = |what: String| Error::Damaged { name: manifest.name(), what };
    let (mut sum, mut hash, mut revision) = (Sha256::new(), 0, 0);
    let (mut planner, mut verified, mut records) = (Planner::new(), Verified::default(), false);
    for named in &manifest.pieces {
        let (bytes, rows) = piece(shelf, named).await?;
        sum.update(&bytes);
        verified.pieces += 1;
        verified.bytes += bytes.len() as u64;
        seen(bytes.len() as u64);
        for row in rows {
            let planned = match &row {
                Row::Bucket(name) => {
                    records = name[..] == b"key"[..];
                    hash = crc32c::crc32c_append(hash, name);
                    planner.bucket(name)
                }
                Row::Pair(key, value) => {
                    verified.rows += 1;
                    hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, key), value);
                    if let Some(main) = key.get(..8).filter(|_| records) {
                        revision = i64::from_be_bytes(main.try_into().expect("eight bytes"));
                    }
                    planner.pair(key.len(), value.len())
                }
            };
            planned.map_err(|error| damaged(error.to_string()))?;
        }
    }
    if (hex(&sum.finalize()), hash, revision) != (manifest.rows.clone(), manifest.hash, manifest.revision) {
        return Err(damaged("its rows are other ones".to_owned()));
    }
    Ok(verified)
}

/// Makes the snapshot again, with its SHA-256 behind it, as `etcdctl snapshot save` would have
/// written it.
///
/// # Errors
/// What is missing or damaged; what the file says.
pub async fn rebuild(shelf: &Shelf, manifest: &Manifest, to: &mut impl Write) -> Result<u64> {
    let damaged = |error: bolt::Diverged| Error::Damaged { name: manifest.name(), what: error.to_string() };
    verify(shelf, manifest, |_| {}).await?;
    let mut planner = Planner::new();
    for named in &manifest.pieces {
        for row in piece(shelf, named).await?.1 {
            match row {
                Row::Bucket(name) => planner.bucket(&name),
                Row::Pair(key, value) => planner.pair(key.len(), value.len()),
            }
            .map_err(damaged)?;
        }
    }
    let mut file = Summed { to, sum: Sha256::new(), bytes: 0 };
    let mut writer = Writer::new(planner.finish());
    for named in &manifest.pieces {
        for row in piece(shelf, named).await?.1 {
            match row {
                Row::Bucket(name) => writer.bucket(&name),
                Row::Pair(key, value) => writer.pair(&key, &value),
            }
            .map_err(damaged)?;
        }
        file.write(&writer.take())?;
    }
    file.write(&writer.finish().map_err(damaged)?)?;
    let Summed { to, sum, bytes } = file;
    to.write_all(&sum.finalize())?;
    to.flush()?;
    Ok(bytes)
}

struct Summed<'t, T> {
    to: &'t mut T,
    sum: Sha256,
    bytes: u64,
}

impl<T: Write> Summed<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(self.to.write_all(bytes)?)
    }
}
