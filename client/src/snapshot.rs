//! A member's state as one stream of bytes, whose end vouches for the rest.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use wire::{
    Rpc,
    etcdserverpb::{SnapshotRequest, SnapshotResponse},
};

use crate::{Client, Error, Responses, Result};

/// Bytes of the digest behind the database.
const DIGEST: usize = 32;
/// A database consists of whole sectors.
const SECTOR: u64 = 512;

impl Client {
    /// A copy of a member's state, in pieces. Use [`Client::single`] to say
    /// whose.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let responses = self.stream(Rpc::Snapshot, &SnapshotRequest {}).await?;
        Ok(Snapshot { responses, check: Check::default(), version: String::new(), remaining: 0 })
    }
}

/// The pieces of a snapshot. Put together they are the file that
/// `etcdctl snapshot save` writes: the database, then its digest.
#[derive(Debug)]
pub struct Snapshot {
    responses: Responses<SnapshotResponse>,
    check: Check,
    version: String,
    remaining: u64,
}

impl Snapshot {
    /// The next piece; `None` after the last, when the digest was right.
    ///
    /// # Errors
    /// [`Error::Snapshot`] if the digest is missing or wrong, and see
    /// [`Error`]. What has come is worth nothing then.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(response) = self.responses.next().await? {
            if !response.version.is_empty() {
                self.version = response.version;
            }
            self.remaining = response.remaining_bytes;
            if !response.blob.is_empty() {
                self.check.add(&response.blob);
                return Ok(Some(response.blob));
            }
        }
        self.check.verify().map_err(|reason| Error::Snapshot { reason })?;
        Ok(None)
    }

    /// The version of the storage, `""` if the server does not say; known
    /// after the first piece.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Bytes of the database that are still to come.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The endpoint that answers.
    pub fn endpoint(&self) -> &str {
        self.responses.endpoint()
    }
}

/// The digest of everything but the last bytes, which may be the digest.
#[derive(Debug, Default)]
struct Check {
    sha: Sha256,
    tail: Vec<u8>,
    bytes: u64,
}

impl Check {
    fn add(&mut self, blob: &[u8]) {
        self.bytes += blob.len() as u64;
        self.tail.extend_from_slice(blob);
        let certain = self.tail.len().saturating_sub(DIGEST);
        self.sha.update(&self.tail[..certain]);
        self.tail.drain(..certain);
    }

    fn verify(&self) -> std::result::Result<(), String> {
        if self.bytes % SECTOR != DIGEST as u64 {
            return Err(format!("sha256 checksum not found [bytes: {}]", self.bytes));
        }
        if self.sha.clone().finalize()[..] != self.tail[..] {
            return Err(format!("the digest does not fit the {} bytes before it", self.bytes - DIGEST as u64));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(database: &[u8]) -> Vec<u8> {
        [database, &Sha256::digest(database)].concat()
    }

    fn verdict(file: &[u8], piece: usize) -> std::result::Result<(), String> {
        let mut check = Check::default();
        file.chunks(piece).for_each(|blob| check.add(blob));
        check.verify()
    }

    #[test]
    fn the_digest_is_found_however_the_pieces_are_cut() {
        let whole = file(&[7; 1024]);
        for piece in [1, 31, 32, 33, 512, 1040, 4096] {
            assert_eq!(verdict(&whole, piece), Ok(()), "{piece}");
            for flipped in [0, 500, 1023, 1024, 1055] {
                let mut wrong = whole.clone();
                wrong[flipped] ^= 1;
                assert_eq!(
                    verdict(&wrong, piece),
                    Err("the digest does not fit the 1024 bytes before it".to_owned()),
                    "{piece} {flipped}"
                );
            }
        }
    }

    #[test]
    fn a_stream_cut_short_has_no_digest() {
        let whole = file(&[7; 1024]);
        for end in [0, 31, 512, 1024, 1055] {
            assert_eq!(verdict(&whole[..end], 100), Err(format!("sha256 checksum not found [bytes: {end}]")));
        }
        // Whole sectors and 32 bytes, by chance.
        assert!(verdict(&whole[..544], 100).unwrap_err().contains("does not fit"));
    }
}
