//! The lease table: time to live, the entry that granted it, the deadline in lease-clock
//! milliseconds as the log said it, and the keys attached. Who watches the deadline (the leader)
//! and who answers keep-alives is `node`'s matter; here a lease only ends by an entry.

use crate::Key;
use std::collections::{BTreeMap, BTreeSet};

/// Longest time to live in seconds, as in etcd.
pub(crate) const MAX_TTL: i64 = 9_000_000_000;

/// A lease, and the keys that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Seconds granted.
    pub ttl: i64,
    /// Index of the entry that granted it: names this grant among all of the same id.
    pub granted: u64,
    /// When it runs out, by the last grant or checkpoint in the log (lease-clock ms).
    pub deadline: u64,
    /// Attached keys, ascending.
    pub keys: BTreeSet<Key>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    table: BTreeMap<i64, Lease>,
}

impl Leases {
    pub(crate) fn get(&self, id: i64) -> Option<&Lease> {
        self.table.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Lease)> {
        self.table.iter().map(|(id, lease)| (*id, lease))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Ids from `first` on, ascending.
    pub(crate) fn ids_from(&self, first: i64) -> impl Iterator<Item = i64> {
        self.table.range(first..).map(|(id, _)| *id)
    }

    pub(crate) fn insert(&mut self, id: i64, lease: Lease) {
        let earlier = self.table.insert(id, lease);
        assert!(earlier.is_none(), "a lease is granted once");
    }

    pub(crate) fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.table.remove(&id)?;
        assert!(lease.keys.is_empty(), "a lease ends after its keys");
        Some(lease)
    }

    pub(crate) fn set_deadline(&mut self, id: i64, deadline: u64) -> bool {
        self.table.get_mut(&id).map(|lease| lease.deadline = deadline).is_some()
    }

    /// A key moves from lease `from` to lease `to` (0 = none).
    pub(crate) fn attach(&mut self, key: &Key, from: i64, to: i64) {
        if from == to {
            return;
        }
        if from != 0 {
            let lease = self.table.get_mut(&from).expect("a key's lease exists");
            assert!(lease.keys.remove(key), "a key hangs on the lease its version names");
        }
        if to != 0 {
            let lease = self.table.get_mut(&to).expect("checked before");
            assert!(lease.keys.insert(key.clone()), "a key hangs on one lease");
        }
    }

    /// As [`Leases::attach`] for a key of an image; false if the lease is unknown.
    pub(crate) fn load_key(&mut self, key: &[u8], lease: i64) -> bool {
        lease == 0 || self.table.get_mut(&lease).is_some_and(|lease| lease.keys.insert(Key::from(key)))
    }
}

/// Deadline `seconds` after `clock` (ms).
pub(crate) fn deadline(clock: u64, seconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    clock.saturating_add(seconds.saturating_mul(1000))
}
