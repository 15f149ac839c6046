//! The history of keys in a store: at which revision it is hashed, and what of it counts.

use crate::call::Failure;
use store::{Error, Rev, Store};

/// The hash of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash {
    /// CRC-32C, as etcd has it.
    pub hash: u32,
    /// The last one that is in it.
    pub revision: i64,
    /// Where it begins; -1: never compacted.
    pub compacted: i64,
}

/// The revision that is looked at, or etcd's refusal.
pub fn revision_of(store: &Store, revision: i64) -> Result<i64, Failure> {
    store.hash_revision(revision).map_err(|error| match error {
        Error::Compacted => Failure::new("mvcc: required revision has been compacted"),
        _ => Failure::new("mvcc: required revision is a future revision"),
    })
}

/// The versions at or below the compacted revision that count.
pub fn keep(store: &Store, revision: i64) -> Vec<Rev> {
    let mut set = store.keep_set(revision);
    loop {
        if let Some(keep) = store.gather(&mut set, 10_000) {
            return keep;
        }
    }
}
