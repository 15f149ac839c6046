//! What `etcdutl snapshot status` tells of a file.

use crate::read::{Db, Error, Source};
use std::collections::BTreeSet;

/// The bucket in which etcd keeps the records, by revision.
const RECORDS: &[u8] = b"key";
/// Where the letter `t` of a deletion stands in the key of a record.
const TOMBSTONE_AT: usize = 17;

/// A file of etcd, seen as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// CRC-32C (Castagnoli) over the name of each bucket, then its keys and values.
    pub hash: u32,
    /// Main revision of the last record of the bucket `key`; 0 if it has none.
    pub revision: i64,
    /// Keys of the store that exist at that revision.
    pub total_keys: u64,
    /// Bytes that the meta page counts.
    pub total_bytes: u64,
}

impl<S: Source> Db<S> {
    /// One pass over every pair of the file. Remembers the keys that exist.
    ///
    /// # Errors
    /// [`Error::Page`] and [`Error::Io`], of any page of the file.
    pub fn summary(&self) -> Result<Summary, Error> {
        let mut summary = Summary { total_bytes: self.bytes(), ..Summary::default() };
        let mut alive: BTreeSet<Vec<u8>> = BTreeSet::new();
        for name in self.buckets()? {
            summary.hash = crc32c::crc32c_append(summary.hash, &name);
            let Some(bucket) = self.bucket(&name)? else { continue };
            for pair in bucket.pairs() {
                let (key, value) = pair?;
                summary.hash = crc32c::crc32c_append(summary.hash, &key);
                summary.hash = crc32c::crc32c_append(summary.hash, &value);
                if name == RECORDS && key.len() >= 8 {
                    summary.revision = i64::from_be_bytes(key[..8].try_into().expect("eight bytes"));
                    match (key.get(TOMBSTONE_AT), first_field(&value)) {
                        (Some(b't'), Some(key)) => drop(alive.remove(key)),
                        (_, Some(key)) => drop(alive.insert(key.to_vec())),
                        (_, None) => {}
                    }
                }
            }
        }
        summary.total_keys = alive.len() as u64;
        Ok(summary)
    }
}

/// The key in a `KeyValue` message: its first field.
fn first_field(message: &[u8]) -> Option<&[u8]> {
    let (&tag, mut rest) = message.split_first()?;
    if tag != 0x0a {
        return None;
    }
    let mut length = 0usize;
    for shift in [0, 7, 14, 21] {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return rest.get(..length);
        }
    }
    None
}

/// A file of this size has the SHA-256 of its other bytes behind it, as `etcdctl snapshot save`
/// writes it: 32 bytes that are no part of the bbolt file.
pub fn digest_follows(size: u64) -> bool {
    size % 512 == 32
}
