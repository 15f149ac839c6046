//! A state that was built by entries, written down as rows of etcd and imported again, is the same
//! state: keys, every version, leases, hashes. Random histories with transactions, deletes,
//! leases and compactions.

use bytes::Bytes;
use std::collections::BTreeMap;
use store::command::{self, PutRequest, RequestOp, TxnRequest};
use store::import::{Import, Imported, Tables};
use store::{Config, Handle, Origin, Outcome, Position, Rev, Store, record};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

struct Member {
    store: Store,
    random: Random,
    leases: Vec<i64>,
}

impl Member {
    fn apply(&mut self, body: &command::Checked) {
        let at = Position { index: self.store.applied().index + 1, term: 1 };
        let data = command::seal(body, Origin::default(), Some(1));
        let outcome = self.store.apply(at, &data, None).expect("a good entry");
        assert!(matches!(outcome, Outcome::Done(_)), "no value is needed");
    }

    fn step(&mut self) {
        let mut bytes = Vec::new();
        match self.random.below(12) {
            0 => {
                let id = self.random.below(1 << 40) as i64 + 1;
                self.leases.push(id);
                self.apply(&command::encode_lease_grant(id, 60, 1));
            }
            1 if !self.leases.is_empty() => {
                let at = self.random.below(self.leases.len() as u64) as usize;
                let id = self.leases.swap_remove(at);
                self.apply(&command::encode_lease_revoke(id));
            }
            2 => {
                let revision = self.store.compacted().max(1) + self.random.below(6) as i64;
                self.apply(&command::encode_compaction(revision, false));
                while !self.store.sweep(1000) {}
            }
            3 | 4 => {
                let key = self.key();
                let end = if self.random.below(4) == 0 { b"key6".to_vec() } else { Vec::new() };
                let request = command::DeleteRangeRequest { key: &key, range_end: &end, prev_kv: false };
                request.encode(&mut bytes);
                self.apply(&command::encode_delete_range(&bytes).expect("a good request"));
            }
            5 => {
                let keys: Vec<Vec<u8>> = (0..3).map(|n| format!("txn{n}").into_bytes()).collect();
                let put = |key| PutRequest { key, value: b"together", ..PutRequest::default() };
                let success = keys.iter().map(|key| RequestOp::Put(put(key))).collect();
                TxnRequest { compare: Vec::new(), success, failure: Vec::new() }.encode(&mut bytes);
                self.apply(&command::encode_txn(&bytes).expect("a good request"));
            }
            _ => {
                let key = self.key();
                let value = vec![b'v'; self.random.below(300) as usize];
                let lease = match self.random.below(3) {
                    0 if !self.leases.is_empty() => self.leases[self.random.below(self.leases.len() as u64) as usize],
                    _ => 0,
                };
                let put = PutRequest { key: &key, value: &value, lease, ..PutRequest::default() };
                put.encode(&mut bytes);
                self.apply(&command::encode_put(&bytes).expect("a good request"));
            }
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key{}", self.random.below(9)).into_bytes()
    }
}

/// Every version that the index names: (key, revision, create, version, lease).
type Versions = Vec<(Vec<u8>, Rev, i64, i64, i64)>;

fn versions(store: &mut Store) -> (Versions, BTreeMap<Handle, Bytes>) {
    let records: BTreeMap<Rev, Bytes> = store
        .unwritten(usize::MAX)
        .into_iter()
        .flat_map(|extent| extent.parts)
        .map(|bytes| (record::open(&bytes).expect("good").rev, bytes))
        .collect();
    let (mut found, mut by_handle) = (Vec::new(), BTreeMap::new());
    for revision in store.compacted().max(1)..=store.revision() {
        for key in (0..9).map(|n| format!("key{n}")).chain((0..3).map(|n| format!("txn{n}"))) {
            let Some(item) = store.get_at(key.as_bytes(), revision) else { continue };
            found.push((key.into_bytes(), item.at.rev, item.create, item.version, item.lease));
            by_handle.insert(item.at.handle, records[&item.at.rev].clone());
        }
    }
    found.sort();
    found.dedup();
    (found, by_handle)
}

#[test]
fn what_was_written_down_is_the_same_state() {
    for seed in 0..40 {
        let mut member =
            Member { store: Store::new(Config::default()), random: Random(seed * 7919 + 1), leases: Vec::new() };
        for _ in 0..30 + 3 * seed {
            member.step();
        }
        let mut store = member.store;
        let (before, kept) = versions(&mut store);
        // As etcd's file: what is above the compacted revision, deletes right at it, and what a
        // reader at it still sees.
        let kept: BTreeMap<Rev, ()> = kept.values().map(|bytes| (record::open(bytes).expect("good").rev, ())).collect();
        let mut import = Import::new(Config { segment_bytes: 2000 });
        for part in store.unwritten(usize::MAX).into_iter().flat_map(|extent| extent.parts) {
            let record = record::open(&part).expect("good");
            let above = record.rev.main - store.compacted() >= i64::from(!record.tombstone);
            if above || kept.contains_key(&record.rev) {
                assert!(import.row(record.rev, record.tombstone, &record.body).expect("a good row"));
            }
        }
        let leases = store.leases().map(|(id, lease)| (id, lease.ttl, 0)).collect();
        let tables = Tables { revision: store.revision(), compacted: store.compacted(), leases, ..Tables::default() };
        let Imported { store: mut imported, orphans } = import.finish(tables).expect("a good history");
        assert!(orphans.is_empty(), "seed {seed}");
        let (after, _) = versions(&mut imported);
        assert_eq!(before, after, "seed {seed}");
        assert_eq!((imported.revision(), imported.compacted()), (store.revision(), store.compacted()));
        assert_eq!((imported.keys(), imported.live_bytes()), (store.keys(), store.live_bytes()), "seed {seed}");
        let attached = |store: &Store| -> Vec<(i64, Vec<Vec<u8>>)> {
            store.leases().map(|(id, lease)| (id, lease.keys.iter().map(|key| key.to_vec()).collect())).collect()
        };
        assert_eq!(attached(&imported), attached(&store), "seed {seed}");
        for revision in (store.compacted().max(1)..=store.revision()).rev().step_by(9) {
            let hash = |store: &Store| store.hash_kv(revision, |handle| store.in_memory(handle).expect("in memory"));
            assert_eq!(hash(&imported), hash(&store), "seed {seed} at {revision}");
        }
    }
}
