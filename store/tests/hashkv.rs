//! HashKV against a real etcd: the same histories, the same hashes, before and after the sweep and
//! after loading an image. The file was written by driving etcd 3.7.3.

use bytes::Bytes;
use std::collections::BTreeMap;
use store::command::{self, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use store::{Config, Handle, Origin, Outcome, Position, Store};

struct Run {
    store: Store,
    files: BTreeMap<Handle, Bytes>,
}

impl Run {
    fn new() -> Run {
        Run { store: Store::new(Config { segment_bytes: 8192 }), files: BTreeMap::new() }
    }

    fn apply(&mut self, body: &command::Checked) {
        let at = Position { index: self.store.applied().index + 1, term: 1 };
        let data = command::seal(body, Origin::default(), Some(1));
        let outcome = self.store.apply(at, &data, None).unwrap();
        let Outcome::Done(applied) = outcome else { panic!("no value is needed") };
        for event in applied.events.iter().flat_map(|revision| &revision.events) {
            let handle = self.handle_of(event);
            self.files.insert(handle, event.record.clone());
        }
    }

    /// The place of an event's record: the only one in memory with these bytes.
    fn handle_of(&self, event: &store::Event) -> Handle {
        for extent in self.store.unwritten(usize::MAX) {
            let mut offset = extent.offset;
            for part in extent.parts {
                let handle = Handle { segment: extent.segment, offset, len: part.len() as u32 };
                if part == event.record {
                    return handle;
                }
                offset += handle.len;
            }
        }
        panic!("a new record waits to be written");
    }

    fn hash(&self, revision: i64) -> u32 {
        self.store.hash_kv(revision, |handle| self.files[&handle].clone())
    }

    /// What etcd's compaction at `revision` remembers, asked just before it.
    fn compaction_hash(&self, revision: i64) -> u32 {
        let set = self.store.compaction_keep_set(revision, self.store.compacted());
        self.store.hash_kept(set, |handle| self.files[&handle].clone())
    }

    fn step(&mut self, words: &[&str]) {
        let text = |word: &str| {
            if word == "-" { Vec::new() } else { word.as_bytes().to_vec() }
        };
        let number = |word: &str| word.parse::<i64>().unwrap();
        let body = match words {
            ["put", key, value, lease] => {
                let value = text(value);
                let put = PutRequest { key: key.as_bytes(), value: &value, lease: number(lease), ..Default::default() };
                let mut request = Vec::new();
                put.encode(&mut request);
                command::encode_put(&request).unwrap()
            }
            ["delete", key, end] => {
                let end = text(end);
                let delete = DeleteRangeRequest { key: key.as_bytes(), range_end: &end, prev_kv: false };
                let mut request = Vec::new();
                delete.encode(&mut request);
                command::encode_delete_range(&request).unwrap()
            }
            ["txn", first, gone, second, value] => txn(first, gone, second, value),
            ["compact", revision] => command::encode_compaction(number(revision), true),
            ["grant", lease] => command::encode_lease_grant(number(lease), 3600, 2),
            ["revoke", lease] => command::encode_lease_revoke(number(lease)),
            other => panic!("{other:?}"),
        };
        self.apply(&body);
    }

    /// Swept to the end and loaded from an image, nothing changes.
    fn settle(&mut self) {
        while !self.store.sweep(10) {}
        let (head, mut cursor) = self.store.image();
        let mut rows = Vec::new();
        while !self.store.image_rows(&mut cursor, 10, &mut rows) {}
        self.store = Store::load(self.store.config(), head, [Ok::<_, store::Damage>(rows)]).unwrap();
    }
}

fn txn(first: &str, gone: &str, second: &str, value: &str) -> command::Checked {
    let op = |key| RequestOp::Put(PutRequest { key, value: value.as_bytes(), ..Default::default() });
    let delete = DeleteRangeRequest { key: gone.as_bytes(), ..Default::default() };
    let success = vec![op(first.as_bytes()), RequestOp::DeleteRange(delete), op(second.as_bytes())];
    let mut request = Vec::new();
    TxnRequest { success, ..Default::default() }.encode(&mut request);
    command::encode_txn(&request).unwrap()
}

/// Lines `kept <revision> <compacted revision> <hash>`: what etcd answers at its last compactions.
#[test]
fn a_compaction_remembers_what_etcds_does() {
    let (mut run, mut kept, mut checked) = (Run::new(), BTreeMap::new(), 0);
    for (number, line) in include_str!("hashkv/etcd-3.7.3-compactions.txt").lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", ..] => {}
            ["history", _] => (run, kept) = (Run::new(), BTreeMap::new()),
            ["kept", revision, compacted, hash] => {
                let expected = (compacted.parse::<i64>().unwrap(), hash.parse::<u32>().unwrap());
                assert_eq!(kept[&revision.parse::<i64>().unwrap()], expected, "line {}", number + 1);
                checked += 1;
            }
            ["compact", at] => {
                let at: i64 = at.parse().unwrap();
                kept.insert(at, (run.store.compacted(), run.compaction_hash(at)));
                run.step(&words);
                if number % 2 == 0 {
                    run.settle();
                }
            }
            _ => run.step(&words),
        }
    }
    assert!(checked > 200);
}

#[test]
fn equal_to_etcd_for_the_same_history() {
    let (mut run, mut checked) = (Run::new(), 0);
    for (number, line) in include_str!("hashkv/etcd-3.7.3.txt").lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", ..] => {}
            ["history", _] => run = Run::new(),
            ["hash", revision, compacted, hash] => {
                assert_eq!(run.store.compacted(), compacted.parse::<i64>().unwrap());
                let (revision, hash) = (revision.parse().unwrap(), hash.parse::<u32>().unwrap());
                assert_eq!(run.hash(revision), hash, "line {}", number + 1);
                run.settle();
                assert_eq!(run.hash(revision), hash, "line {}, swept and loaded", number + 1);
                checked += 1;
            }
            _ => run.step(&words),
        }
    }
    assert!(checked > 100);
}
