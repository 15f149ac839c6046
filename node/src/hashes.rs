//! HashKV, and the hashes of the last ten compactions, which etcd remembers.
//!
//! One hash at a time: its keep-set is gathered from the index in slices between turns, then the
//! files are scanned in slices of the background lane. A pin holds back the sweep meanwhile.
//! A compaction is hashed as etcd's does on its way: over everything that counted just before it,
//! so the pin stands at the revision compacted before. Who asks for that hash waits for it.

use crate::io::*;
use crate::member::{Node, Task};
use crate::work::HashScan;
use std::collections::VecDeque;
use store::PinId;
use store::hash::{HashKv, KeepSet};

/// Hashes of compactions that are remembered.
const KEPT: usize = 10;
/// Compactions whose hash may wait for others; one more is not remembered (etcd: none waits).
const COMPACTIONS: usize = 4;
/// Different hashes that may be asked for at one time.
const ASKED: usize = 64;

#[derive(Default)]
pub(crate) struct Hashes {
    /// Of the last compactions, the newest last.
    kept: VecDeque<Kept>,
    /// The first one is being computed.
    queue: VecDeque<Hashing>,
}

struct Kept {
    revision: i64,
    compacted: i64,
    hash: u32,
}

struct Hashing {
    /// Of a compaction, rather than asked for.
    compaction: bool,
    askers: Vec<Waiter>,
    pin: PinId,
    stage: Stage,
    revision: i64,
    compacted: i64,
}

enum Stage {
    Gathering(KeepSet),
    /// A slice of the files is being read.
    Scanning,
}

impl Hashes {
    /// False: another turn would go on with the keep-set.
    pub(crate) fn idle(&self) -> bool {
        !matches!(self.queue.front(), Some(Hashing { stage: Stage::Gathering(_), .. }))
    }
}

impl Node {
    pub(crate) fn on_hash_kv(&mut self, waiter: Waiter, revision: i64, out: &mut Vec<Output>) {
        if self.transfer.swapping() {
            // The files are those of another state already.
            return self.refuse(waiter, Refusal::Timeout, out);
        }
        if let Some(kept) = self.hashes.kept.iter().find(|kept| kept.revision == revision) {
            let &Kept { revision: hash_revision, compacted, hash } = kept;
            return self.answer(waiter, Answer::HashKv { hash, compacted, hash_revision }, out);
        }
        if let Some(due) = self.hashes.queue.iter_mut().find(|due| due.compaction && due.revision == revision) {
            return due.askers.push(waiter);
        }
        let (compacted, revision) = match self.store.hash_revision(revision) {
            Ok(revision) => (self.store.compacted(), revision),
            Err(error) => return self.refuse(waiter, Refusal::User(error), out),
        };
        let same = |due: &&mut Hashing| !due.compaction && (due.revision, due.compacted) == (revision, compacted);
        if let Some(due) = self.hashes.queue.iter_mut().find(same) {
            return due.askers.push(waiter);
        }
        if self.hashes.queue.len() >= ASKED {
            return self.refuse(waiter, Refusal::TooManyRequests, out);
        }
        // Every record above the compacted revision counts, and the scan reads them all from files:
        // what a later compaction makes dead must stay until it is done.
        let pin = self.store.pin(compacted);
        let stage = Stage::Gathering(self.store.keep_set(revision));
        let hashing = Hashing { compaction: false, askers: vec![waiter], pin, stage, revision, compacted };
        self.hashes.queue.push_back(hashing);
    }

    /// A compaction was applied just now; `before` was the compacted revision until then.
    pub(crate) fn hash_compaction(&mut self, before: i64) {
        let due = self.hashes.queue.iter().filter(|hashing| hashing.compaction).count();
        if due >= COMPACTIONS {
            return;
        }
        let revision = self.store.compacted();
        let pin = self.store.pin_unswept(before);
        let stage = Stage::Gathering(self.store.compaction_keep_set(revision, before));
        let hashing = Hashing { compaction: true, askers: Vec::new(), pin, stage, revision, compacted: before };
        self.hashes.queue.push_back(hashing);
    }

    /// A slice of the keep-set of the hash whose turn it is.
    pub(crate) fn run_hashes(&mut self, out: &mut Vec<Output>) {
        if self.transfer.swapping() {
            return;
        }
        let Some(Hashing { stage: Stage::Gathering(set), .. }) = self.hashes.queue.front_mut() else { return };
        let Some(keep) = self.store.gather(set, self.config.budgets.slice_keys) else { return };
        let (revision, compacted) = set.of();
        // A background job never passes the writes that were submitted before it.
        self.write_all_records(out);
        self.scan_files(HashScan::new(revision, HashKv::new(revision, compacted, keep)), out);
    }

    fn scan_files(&mut self, scan: HashScan, out: &mut Vec<Output>) {
        self.hashes.queue.front_mut().expect("a hash is under way").stage = Stage::Scanning;
        self.jobs.start(Task::HashKv { epoch: self.epoch }, Job::HashKv { scan: Box::new(scan) }, out);
    }

    pub(crate) fn hash_scanned(&mut self, epoch: u64, scan: HashScan, done: bool, out: &mut Vec<Output>) {
        if epoch != self.epoch {
            return; // of a state that a snapshot has replaced since: `end_hashes` told its askers
        }
        let first = self.hashes.queue.front().expect("a hash is under way");
        let wanted = first.compaction || !first.askers.is_empty();
        if !done && wanted && !self.transfer.swapping() {
            return self.scan_files(scan, out);
        }
        let hashing = self.end_first_hash();
        if !done {
            return self.refuse_hash(&hashing, Refusal::Timeout, out);
        }
        let Hashing { compaction, askers, revision, compacted, .. } = hashing;
        let hash = scan.hash();
        for waiter in askers {
            self.answer(waiter, Answer::HashKv { hash, compacted, hash_revision: revision }, out);
        }
        if compaction {
            self.hashes.kept.push_back(Kept { revision, compacted, hash });
            if self.hashes.kept.len() > KEPT {
                self.hashes.kept.pop_front();
            }
        }
    }

    /// A damaged record, or a disk that cannot read: it concerns the askers, nothing else.
    pub(crate) fn hash_failed(&mut self, epoch: u64, fault: &disk::Fault, out: &mut Vec<Output>) {
        if epoch != self.epoch {
            return;
        }
        let hashing = self.end_first_hash();
        self.note(Level::Error, format!("HashKV at revision {} found no hash: {fault}", hashing.revision), out);
        self.refuse_hash(&hashing, Refusal::User(store::Error::Corrupt), out);
    }

    fn end_first_hash(&mut self) -> Hashing {
        let hashing = self.hashes.queue.pop_front().expect("a hash is under way");
        self.store.unpin(hashing.pin);
        hashing
    }

    fn refuse_hash(&self, hashing: &Hashing, refusal: Refusal, out: &mut Vec<Output>) {
        for waiter in &hashing.askers {
            self.refuse(*waiter, refusal, out);
        }
    }

    /// The asker went away, or its time is over. What nobody waits for any more ends with its slice.
    pub(crate) fn cancel_hash(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let Some(at) = self.hashes.queue.iter().position(|hashing| hashing.askers.contains(&waiter)) else {
            return false;
        };
        let hashing = &mut self.hashes.queue[at];
        hashing.askers.retain(|asker| *asker != waiter);
        let unwanted = hashing.askers.is_empty() && !hashing.compaction;
        if unwanted && matches!(hashing.stage, Stage::Gathering(_)) {
            let hashing = self.hashes.queue.remove(at).expect("found");
            self.store.unpin(hashing.pin);
        }
        if timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
        }
        true
    }

    /// A snapshot replaces the state: its pins are gone with it, and so is what was hashed of it.
    pub(crate) fn end_hashes(&mut self, out: &mut Vec<Output>) {
        self.end_hashes_with(Refusal::Timeout, out);
        self.hashes = Hashes::default();
    }

    /// Nobody waits any more, nothing is remembered; what is under way ends with its slice.
    pub(crate) fn end_hashes_with(&mut self, refusal: Refusal, out: &mut Vec<Output>) {
        self.hashes.kept.clear();
        let under_way = self.hashes.queue.len().min(1);
        for hashing in self.hashes.queue.split_off(under_way) {
            self.store.unpin(hashing.pin);
            self.refuse_hash(&hashing, refusal, out);
        }
        if let Some(mut first) = self.hashes.queue.pop_front() {
            self.refuse_hash(&first, refusal, out);
            first.askers.clear();
            first.compaction = false;
            self.hashes.queue.push_front(first);
        }
    }
}
