//! What `etcdutl snapshot status` tells of a file.

use crate::read::{Db, Error, Source};

/// The bucket in which etcd keeps the records, by revision.
const RECORDS: &[u8] = b"key";

/// A file of etcd, seen as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// CRC-32C (Castagnoli) over the name of each bucket, then its keys and values.
    pub hash: u32,
    /// Main revision of the last record of the bucket `key`; 0 if it has none.
    pub revision: i64,
    /// Pairs of all buckets.
    pub total_keys: u64,
    /// Bytes that the meta page counts.
    pub total_bytes: u64,
}

impl<S: Source> Db<S> {
    /// One pass over every pair of the file.
    pub fn summary(&self) -> Result<Summary, Error> {
        let mut summary = Summary { total_bytes: self.bytes(), ..Summary::default() };
        for name in self.buckets()? {
            summary.hash = crc32c::crc32c_append(summary.hash, &name);
            let bucket = self.bucket(&name)?.expect("listed");
            for pair in bucket.pairs() {
                let (key, value) = pair?;
                summary.hash = crc32c::crc32c_append(summary.hash, &key);
                summary.hash = crc32c::crc32c_append(summary.hash, &value);
                summary.total_keys += 1;
                if name == RECORDS && key.len() >= 8 {
                    summary.revision = i64::from_be_bytes(key[..8].try_into().expect("eight bytes"));
                }
            }
        }
        Ok(summary)
    }
}

/// A file of this size has the SHA-256 of its other bytes behind it, as `etcdctl snapshot save`
/// writes it: 32 bytes that are no part of the bbolt file.
pub fn digest_follows(size: u64) -> bool {
    size % 512 == 32
}
