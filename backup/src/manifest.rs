//! What is said of one backup: a line of JSON, and its SHA-256 behind it.

use crate::{Error, Result, Shelf, hex};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const FOLDER: &str = "saved";

/// A piece of the rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Piece {
    /// The hash of its bytes, in hexadecimal.
    pub sha256: String,
    /// Its bytes.
    pub bytes: u64,
}

impl Piece {
    pub(crate) fn of(bytes: &[u8]) -> Piece {
        Piece { sha256: hex(&Sha256::digest(bytes)), bytes: bytes.len() as u64 }
    }

    pub(crate) fn name(&self) -> String {
        format!("pieces/{}/{}", &self.sha256[..2], self.sha256)
    }
}

/// One backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// When it was begun, milliseconds since 1970.
    pub time: i64,
    /// Where it was taken.
    pub endpoint: String,
    /// The version that the server said.
    pub version: String,
    /// Id of the cluster, in hexadecimal; empty: not known.
    pub cluster: String,
    /// The newest revision in it.
    pub revision: i64,
    /// The oldest that it can be restored to: 1, or what was compacted.
    pub oldest: i64,
    /// Keys at the newest revision.
    pub keys: u64,
    /// CRC-32C over names and rows, as `etcdutl snapshot status` says it.
    pub hash: u32,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// The SHA-256 of all rows, in hexadecimal.
    pub rows: String,
    /// In order.
    pub pieces: Vec<Piece>,
}

impl Manifest {
    /// Under this name it lies on the shelf.
    pub fn name(&self) -> String {
        let time = jiff::Timestamp::from_millisecond(self.time).unwrap_or_default();
        format!("{FOLDER}/{:020}-{}.json", self.revision, time.strftime("%Y%m%dT%H%M%S.%3fZ"))
    }

    pub(crate) fn encode(&self) -> Bytes {
        let line = serde_json::to_string(self).expect("texts and numbers");
        Bytes::from(format!("{line}\n{}\n", hex(&Sha256::digest(line.as_bytes()))))
    }

    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Manifest> {
        let damaged = |what: &str| Error::Damaged { name: name.to_owned(), what: what.to_owned() };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("no text"))?;
        let (line, sum) = text.split_once('\n').ok_or_else(|| damaged("it is cut short"))?;
        if sum.trim_end() != hex(&Sha256::digest(line.as_bytes())) {
            return Err(damaged("its hash is another one"));
        }
        let manifest: Manifest = serde_json::from_str(line).map_err(|error| damaged(&error.to_string()))?;
        let hashes = |piece: &Piece| piece.sha256.len() == 64 && piece.sha256.bytes().all(|b| b.is_ascii_hexdigit());
        if manifest.pieces.iter().all(hashes) { Ok(manifest) } else { Err(damaged("a piece without a hash")) }
    }
}

/// What lies on a shelf as a backup.
#[derive(Debug)]
pub struct Saved {
    /// Its name.
    pub name: String,
    /// What it says of itself, or why it is of no use.
    pub manifest: Result<Manifest>,
}

/// All backups, the oldest revision first. One whose pieces are not all there, with their lengths,
/// is of no use.
///
/// # Errors
/// What the shelf says.
pub async fn list(shelf: &Shelf) -> Result<Vec<Saved>> {
    let pieces: std::collections::BTreeMap<String, u64> = shelf.list("pieces").await?.into_iter().collect();
    let mut all = Vec::new();
    for (name, _) in shelf.list(FOLDER).await? {
        if !name.ends_with(".json") {
            continue;
        }
        let manifest = shelf.get(&name).await.and_then(|bytes| Manifest::decode(&name, &bytes));
        let manifest = manifest.and_then(|manifest| {
            for piece in &manifest.pieces {
                match pieces.get(&piece.name()) {
                    None => return Err(Error::Missing { name: piece.name() }),
                    Some(bytes) if *bytes != piece.bytes => {
                        let what = format!("{bytes} bytes instead of {}", piece.bytes);
                        return Err(Error::Damaged { name: piece.name(), what });
                    }
                    Some(_) => {}
                }
            }
            Ok(manifest)
        });
        all.push(Saved { name, manifest });
    }
    Ok(all)
}

/// The backup from which a revision is restored: the oldest that has it. 0: the newest one.
pub fn for_revision(saved: &[Saved], revision: i64) -> Option<&Manifest> {
    let mut good = saved.iter().filter_map(|saved| saved.manifest.as_ref().ok());
    if revision == 0 {
        return good.max_by_key(|manifest| (manifest.time, manifest.revision));
    }
    good.find(|manifest| (manifest.oldest..=manifest.revision).contains(&revision))
}
