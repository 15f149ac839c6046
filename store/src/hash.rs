//! etcd's HashKV: a CRC-32C over the stored keys and values of every record up to a revision,
//! compaction allowed for. Equal to etcd's for the same history, whatever was reclaimed.

use crate::index::Entry;
use crate::state::Store;
use crate::{Error, Key, KeyRange, Rev};
use bytes::Bytes;
use std::collections::BTreeSet;

/// The hash of no record at all (etcd answers it for negative revisions).
pub const EMPTY: u32 = 1_084_519_789;

/// Fed with every record in revision order.
#[derive(Clone, Debug)]
pub struct HashKv {
    crc: u32,
    revision: i64,
    compacted: i64,
    keep: BTreeSet<Rev>,
}

impl HashKv {
    /// `keep`: [`Store::keep_set`] at the same revision and compacted revision.
    pub fn new(revision: i64, compacted: i64, keep: impl IntoIterator<Item = Rev>) -> HashKv {
        let crc = crc32c::crc32c(b"key");
        HashKv { crc, revision, compacted, keep: keep.into_iter().collect() }
    }

    /// `body`: the record's `KeyValue` bytes. Records that do not count are passed over.
    pub fn feed(&mut self, rev: Rev, tombstone: bool, body: &[u8]) {
        if rev.main > self.revision || (rev.main <= self.compacted && !self.keep.contains(&rev)) {
            return;
        }
        if rev.main == self.compacted && tombstone {
            return;
        }
        self.crc = crc32c::crc32c_append(self.crc, &bucket_key(rev, tombstone));
        self.crc = crc32c::crc32c_append(self.crc, body);
    }

    /// The hash of what was given so far.
    pub fn finish(&self) -> u32 {
        self.crc
    }
}

/// The key under which etcd stores a revision.
pub fn bucket_key(rev: Rev, tombstone: bool) -> Vec<u8> {
    let mut key = Vec::with_capacity(18);
    key.extend_from_slice(&rev.main.to_be_bytes());
    key.push(b'_');
    key.extend_from_slice(&rev.sub.to_be_bytes());
    if tombstone {
        key.push(b't');
    }
    key
}

/// Gathers a keep-set in slices. The revision must stay pinned meanwhile.
#[derive(Clone, Debug)]
pub struct KeepSet {
    revision: i64,
    compacted: i64,
    /// As the compaction at `revision` itself hashes, rather than a later HashKV.
    compaction: bool,
    after: Option<Key>,
    /// Some key at all is kept at the revision.
    any: bool,
    kept: Vec<Rev>,
    /// What compaction itself retained: counts when nothing is kept at the revision.
    retained: Vec<Rev>,
}

impl Store {
    /// The revision that HashKV of `revision` (0 = newest) looks at.
    ///
    /// # Errors
    /// [`Error::FutureRev`] or [`Error::Compacted`].
    pub fn hash_revision(&self, revision: i64) -> Result<i64, Error> {
        match revision {
            0 => Ok(self.revision),
            _ if revision > 0 && revision < self.compacted => Err(Error::Compacted),
            _ if revision > self.revision => Err(Error::FutureRev),
            _ => Ok(revision),
        }
    }

    /// Begins to gather the records at or below the compacted revision that count in
    /// HashKV at `revision` (from [`Store::hash_revision`]).
    pub fn keep_set(&self, revision: i64) -> KeepSet {
        KeepSet::new(revision, self.compacted, false)
    }

    /// What etcd's compaction at `revision` hashes on its way: everything that counted before it,
    /// when `before` was the compacted revision. The versions dead since must be still there
    /// (see [`Store::pin_unswept`]).
    pub fn compaction_keep_set(&self, revision: i64, before: i64) -> KeepSet {
        assert!(before < revision, "compaction goes forward: {before} to {revision}");
        KeepSet::new(revision, before, true)
    }

    /// Looks at up to `most` keys more; the set, in no order, once all keys were seen.
    pub fn gather(&self, set: &mut KeepSet, most: usize) -> Option<Vec<Rev>> {
        let mut seen = 0;
        let all = KeyRange::all();
        let after = set.after.take();
        self.keys.scan_after(&all, after.as_deref(), |key, entry| {
            set.visit(entry);
            seen += 1;
            if seen == most {
                set.after = Some(key.into());
            }
            seen < most
        });
        if seen == most {
            return None;
        }
        Some(std::mem::take(if set.any { &mut set.kept } else { &mut set.retained }))
    }

    /// HashKV computed at once, for tests and small stores. `record` reads a record by its handle.
    pub fn hash_kv(&self, revision: i64, record: impl Fn(crate::Handle) -> Bytes) -> u32 {
        self.hash_kept(self.keep_set(revision), record)
    }

    /// As [`Store::hash_kv`], of any keep-set.
    pub fn hash_kept(&self, mut set: KeepSet, record: impl Fn(crate::Handle) -> Bytes) -> u32 {
        let (revision, compacted) = set.of();
        let keep = loop {
            if let Some(keep) = self.gather(&mut set, 1000) {
                break keep;
            }
        };
        let mut hash = HashKv::new(revision, compacted, keep);
        let mut records: Vec<(Rev, crate::Handle)> = Vec::new();
        self.keys.scan(&KeyRange::all(), |_, entry| {
            records.extend(entry.versions().map(|version| (version.rev(), version.handle)));
            true
        });
        records.sort_unstable();
        for (rev, handle) in records {
            let opened = crate::record::open(&record(handle)).expect("the caller reads verified records");
            assert!(opened.rev == rev, "a handle names the record of its version");
            hash.feed(rev, opened.tombstone, &opened.body);
        }
        hash.finish()
    }
}

impl KeepSet {
    fn new(revision: i64, compacted: i64, compaction: bool) -> KeepSet {
        KeepSet { revision, compacted, compaction, after: None, any: false, kept: Vec::new(), retained: Vec::new() }
    }

    /// (revision, compacted revision) that the hash is of.
    pub fn of(&self) -> (i64, i64) {
        (self.revision, self.compacted)
    }

    fn visit(&mut self, entry: &Entry) {
        // etcd looks at the first generation whose tombstone is not before the revision: with a
        // tombstone right at it the key counts as gone, even if it came back in the same
        // transaction
        let gone = entry.versions().any(|v| v.is_tombstone() && v.main == self.revision);
        // a compaction counts such a tombstone among what it keeps
        self.any |= gone && self.compaction;
        let visible = entry.at(self.revision).filter(|v| !gone && !v.is_tombstone());
        if let Some(version) = visible {
            self.any = true;
            if version.main <= self.compacted {
                self.kept.push(version.rev());
            }
        }
        let dead = crate::compact::dead_versions(entry, self.compacted);
        let retained = entry.versions().skip(dead).take_while(|v| v.main <= self.compacted);
        self.retained.extend(retained.map(|version| version.rev()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hashes_to_the_name_of_the_bucket() {
        assert_eq!(HashKv::new(-1, -1, []).finish(), EMPTY);
    }

    #[test]
    fn bucket_keys_are_etcds() {
        let rev = Rev { main: 258, sub: 1 };
        assert_eq!(bucket_key(rev, false), b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x01");
        assert_eq!(bucket_key(rev, true).last(), Some(&b't'));
    }
}
