//! A store, the files it is kept in, and what a member does with both: shared by the tests of
//! checkpoints and installs.

#![allow(dead_code)]

use bytes::Bytes;
use disk::{Fault, Identity, checkpoint, reclaim, records, transfer};
use std::collections::BTreeSet;
use store::command::{PutRequest, encode_compaction, encode_put, seal};
use store::{Config, Member, Origin, Outcome, Position, Run, SegmentUse, Store};
use testkit::files::MemFiles;

pub const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
pub const OTHER: Identity = Identity { cluster: 0xc1, member: 0xa2 };
pub const CONFIG: Config = Config { segment_bytes: 9000 };
pub const KEYS: u64 = 7;

pub fn key(number: u64) -> Vec<u8> {
    format!("key-{}", number % KEYS).into_bytes()
}

pub fn value(index: u64) -> Vec<u8> {
    (0..200 + index * 37 % 900).map(|i| (index + i) as u8).collect()
}

/// The segments as the newest checkpoint has them.
pub fn named(files: &MemFiles) -> Vec<SegmentUse> {
    let newest = checkpoint::load_newest(files, ID, CONFIG, 0).unwrap().unwrap();
    newest.manifest.image_head().unwrap().segments
}

/// A store and the files it is kept in.
pub struct Life {
    pub files: MemFiles,
    pub id: Identity,
    pub store: Store,
}

impl Life {
    pub fn begin(id: Identity) -> Life {
        let files = MemFiles::new();
        let member = Member { id: id.member, name: "a".to_string(), ..Member::default() };
        let store = Store::genesis(CONFIG, vec![member], Position { index: 1, term: 1 });
        checkpoint::genesis(&files, id, 1, &store.image_head()).unwrap();
        Life { files, id, store }
    }

    /// Applies entry `index`, which is the same on every replay.
    pub fn apply(&mut self, index: u64) {
        self.put(index, &key(index * 3));
    }

    /// Applies entry `index`, a put of its value under `key`.
    pub fn put(&mut self, index: u64, key: &[u8]) {
        let value = value(index);
        let mut request = Vec::new();
        PutRequest { key, value: &value, ..PutRequest::default() }.encode(&mut request);
        let origin = Origin { member: 1, boot: 1, seq: index };
        let entry = seal(&encode_put(&request).unwrap(), origin, None);
        match self.store.apply(Position { index, term: 1 }, &entry, None).unwrap() {
            Outcome::Done(applied) => assert!(applied.result.is_ok()),
            other => panic!("a put needs nothing, not {other:?}"),
        }
    }

    /// Applies a compaction as the next entry. Entries and revisions are no longer the same behind
    /// it.
    pub fn compact(&mut self, revision: i64) {
        let index = self.store.applied().index + 1;
        let entry = seal(&encode_compaction(revision, false), Origin { member: 1, boot: 1, seq: index }, None);
        match self.store.apply(Position { index, term: 1 }, &entry, None).unwrap() {
            Outcome::Done(applied) => assert!(applied.result.is_ok()),
            other => panic!("a compaction needs nothing, not {other:?}"),
        }
    }

    pub fn apply_until(&mut self, index: u64) {
        for next in self.store.applied().index + 1..=index {
            self.apply(next);
        }
    }

    pub fn write(&mut self) {
        for extent in self.store.unwritten(usize::MAX) {
            let end = if extent.parts.is_empty() {
                extent.offset
            } else {
                records::write(&self.files, self.id, extent.segment, extent.offset, &extent.parts).unwrap()
            };
            assert_eq!(end, extent.end());
            if extent.seals {
                records::seal(&self.files, extent.segment, end).unwrap();
            }
            self.store.written(extent.segment, end, extent.seals);
        }
    }

    /// Sweeps, and rewrites the run that is worth it most; None: there is none.
    pub fn rewrite(&mut self) -> Result<Option<Run>, Fault> {
        while !self.store.sweep(1_000) {}
        self.store.close_dead_open();
        self.write();
        self.store.drop_dead_segments();
        let manifest =
            checkpoint::load_newest(&self.files, self.id, CONFIG, 0)?.expect("there is a checkpoint").manifest;
        let Some(run) = self.store.choose_run(&BTreeSet::new(), manifest.open_segment()?) else { return Ok(None) };
        let mut moves = self.store.begin_run(run.clone());
        let mut place = Some(reclaim::Place::default());
        while let Some(at) = place {
            let piece = reclaim::read(&self.files, self.id, &run.segments, at, 4, 3000)?;
            let (offset, mut parts) = (moves.end(), Vec::new());
            for (handle, whole) in piece.records {
                if self.store.mark(&mut moves, handle, &whole).unwrap() {
                    parts.push(whole);
                }
            }
            if !parts.is_empty() {
                reclaim::write(&self.files, self.id, run.output, offset, &parts)?;
            }
            place = piece.next;
        }
        assert!(!moves.is_empty(), "a segment without a living record is dropped");
        reclaim::finish(&self.files, run.output, moves.end())?;
        self.store.begin_moves(&moves);
        while !self.store.move_records(&mut moves, 5) {}
        self.store.end_moves(moves);
        Ok(Some(run))
    }

    pub fn checkpoint(&mut self) -> checkpoint::Finished {
        self.checkpoint_beside(&[])
    }

    /// `held`: indexes of checkpoints that a transfer is reading.
    pub fn checkpoint_beside(&mut self, held: &[u64]) -> checkpoint::Finished {
        self.write();
        let index = self.store.applied().index;
        let (head, mut cursor) = self.store.image();
        checkpoint::begin(&self.files, self.id, index).unwrap();
        loop {
            let mut block = Vec::new();
            let last = self.store.image_rows(&mut cursor, 3, &mut block);
            checkpoint::rows(&self.files, index, &block).unwrap();
            if last {
                break;
            }
        }
        self.store.end_image(cursor);
        let finished = checkpoint::finish(&self.files, self.id, index, &head).unwrap();
        if finished.fresh {
            checkpoint::clean(&self.files, self.id, held).unwrap();
        }
        finished
    }

    /// As a member starts: finish an install, load, let the log follow, settle.
    pub fn open(files: MemFiles, id: Identity, log_boundary: u64) -> Result<(Life, Option<Fault>), Fault> {
        transfer::resume(&files, id)?;
        let loaded = checkpoint::load_newest(&files, id, CONFIG, log_boundary)?.expect("there is a checkpoint");
        assert_eq!(loaded.manifest.index, loaded.store.applied().index);
        transfer::followed(&files, id)?;
        checkpoint::settle(&files, id, &loaded.manifest)?;
        let mut store = loaded.store;
        records::list(&files)?.into_iter().for_each(|segment| store.file_is_there(segment));
        Ok((Life { files, id, store }, loaded.passed_over))
    }

    pub fn check_against(&self, model: &Store) {
        assert_eq!(self.store.applied(), model.applied());
        assert_eq!((self.store.revision(), self.store.digest()), (model.revision(), model.digest()));
        assert_eq!(self.store.live_bytes(), model.live_bytes());
        for number in 0..KEYS {
            let Some(item) = self.store.get(&key(number)) else {
                assert!(model.get(&key(number)).is_none());
                continue;
            };
            let whole = match &item.at.bytes {
                Some(bytes) => bytes.clone(),
                None => records::read(&self.files, item.at.handle).unwrap(),
            };
            let record = store::record::open(&whole).unwrap();
            assert_eq!(record.rev.main, item.modified);
            let kv = store::record::key_value(&record.body).unwrap();
            // Entry i makes revision i: genesis is entry 1 and revision 1.
            assert_eq!((kv.key, kv.value), (&key(number)[..], &value(item.modified.unsigned_abs())[..]));
        }
    }
}

/// The state after entry `index`, from nothing.
pub fn model(id: Identity, index: u64) -> Store {
    let mut life = Life::begin(id);
    life.apply_until(index);
    life.store
}

/// Checkpoints at 1, 10, 11, 30, 40, with writes in between that no checkpoint covers yet.
/// Marks: calls after each, its index, and how far the log may have been cut.
pub fn life_with_checkpoints() -> (Life, Vec<(usize, u64, u64)>) {
    let mut life = Life::begin(ID);
    let mut marks = vec![(life.files.calls(), 1, 1)];
    for (written, index) in [(5, 10), (10, 11), (25, 30), (33, 40)] {
        life.apply_until(written);
        life.write();
        life.apply_until(index);
        let cut = life.checkpoint().cut;
        marks.push((life.files.calls(), index, cut - 1));
    }
    (life, marks)
}

/// A sender's checkpoint and a receiver with other contents under the same names.
pub fn transfer_pair() -> (Life, Bytes, Life) {
    let mut sender = Life::begin(OTHER);
    sender.apply_until(50);
    let manifest = sender.checkpoint().manifest;
    sender.apply_until(55);
    sender.write();
    let mut receiver = Life::begin(ID);
    receiver.apply_until(12);
    receiver.checkpoint();
    receiver.apply_until(15);
    receiver.write();
    (sender, manifest, receiver)
}

pub fn receive(sender: &Life, manifest: &Bytes, receiver: &MemFiles, mut spoil: impl FnMut(&str, u64, &mut Vec<u8>)) {
    for (name, len) in transfer::begin(receiver, ID, manifest).unwrap() {
        let mut offset = 0;
        while offset < len {
            let (piece, _) = transfer::read_chunk(&sender.files, &name, offset, 3000).unwrap();
            let mut piece = piece.slice(..piece.len().min((len - offset) as usize)).to_vec();
            spoil(&name, offset, &mut piece);
            transfer::write_chunk(receiver, &name, offset, &piece).unwrap();
            offset += piece.len() as u64;
        }
    }
}
