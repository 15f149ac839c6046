//! HashKV, and the hashes of the last ten compactions, which etcd remembers.
//!
//! One hash at a time: its keep-set is gathered from the index in slices between turns, then the
//! files are scanned in slices of the background lane. A pin holds back the sweep meanwhile.
//! A compaction is hashed as etcd's does on its way: over everything that counted just before it,
//! so the pin stands at the revision compacted before. Who asks for that hash waits for it.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use crate::scan::HashScan;
use std::collections::VecDeque;
use store::PinId;
use store::hash::KeepSet;

/// Hashes of compactions that are remembered.
const KEPT: usize = 10;
/// Compactions whose hash may wait for others; one more is not remembered (etcd: none waits).
const COMPACTIONS: usize = 4;
/// Different hashes that may be asked for at one time.
const ASKED: usize = 64;
/// A scan that the disk refused to read for goes on after this; so often in a row it is tried.
/// Ticks.
const AGAIN: u64 = 1_000 / TICK_MS;
const TRIES: u32 = 5;

#[derive(Default)]
pub(crate) struct Hashes {
    /// Of the last compactions, the newest last.
    kept: VecDeque<Kept>,
    /// The first one is being computed.
    queue: VecDeque<Hashing>,
    /// How often in a row the disk refused to read for it, and the scan that goes on at a tick.
    unread: u32,
    again: Option<(u64, HashScan)>,
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
    /// None: it is given up, and its slice is on the way still.
    pin: Option<PinId>,
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

    pub(crate) fn ask(&mut self, g: &mut Ground, waiter: Waiter, revision: i64) {
        if g.swapping() {
            // The files are those of another state already.
            return g.refuse(waiter, Refusal::Timeout);
        }
        if let Some(kept) = self.kept.iter().find(|kept| kept.revision == revision) {
            let &Kept { revision: hash_revision, compacted, hash } = kept;
            return g.answer(waiter, Answer::HashKv { hash, compacted, hash_revision });
        }
        if let Some(due) = self.queue.iter_mut().find(|due| due.compaction && due.revision == revision) {
            return due.askers.push(waiter);
        }
        let (compacted, revision) = match g.store.hash_revision(revision) {
            Ok(revision) => (g.store.compacted(), revision),
            Err(error) => return g.refuse(waiter, Refusal::User(error)),
        };
        let same = |due: &&mut Hashing| {
            let wanted = !due.compaction && due.pin.is_some();
            wanted && (due.revision, due.compacted) == (revision, compacted)
        };
        if let Some(due) = self.queue.iter_mut().find(same) {
            return due.askers.push(waiter);
        }
        if self.queue.len() >= ASKED {
            return g.refuse(waiter, Refusal::TooManyRequests);
        }
        // Every record above the compacted revision counts, and the scan reads them all from files:
        // what a later compaction makes dead must stay until it is done.
        let pin = Some(g.store.pin(compacted));
        let stage = Stage::Gathering(g.store.keep_set(revision));
        let hashing = Hashing { compaction: false, askers: vec![waiter], pin, stage, revision, compacted };
        self.queue.push_back(hashing);
    }

    /// A compaction was applied just now; `before` was the compacted revision until then.
    pub(crate) fn compacted(&mut self, g: &mut Ground, before: i64) {
        let due = self.queue.iter().filter(|hashing| hashing.compaction).count();
        if due >= COMPACTIONS {
            return;
        }
        let revision = g.store.compacted();
        let pin = Some(g.store.pin_unswept(before));
        let stage = Stage::Gathering(g.store.compaction_keep_set(revision, before));
        let hashing = Hashing { compaction: true, askers: Vec::new(), pin, stage, revision, compacted: before };
        self.queue.push_back(hashing);
    }

    /// A slice of the keep-set of the hash whose turn it is.
    pub(crate) fn run(&mut self, g: &mut Ground) {
        if g.swapping() {
            return;
        }
        let Some(Hashing { stage: Stage::Gathering(set), .. }) = self.queue.front_mut() else { return };
        let Some(keep) = g.store.gather(set, g.config.budgets.slice_keys) else { return };
        let (revision, compacted) = set.of();
        self.scan_files(g, HashScan::new(revision, compacted, keep));
    }

    fn scan_files(&mut self, g: &mut Ground, mut scan: HashScan) {
        // They may have been rewritten since the slice before.
        scan.knows(g.written_segments());
        self.queue.front_mut().expect("a hash is under way").stage = Stage::Scanning;
        g.start(Task::HashKv { epoch: g.epoch() }, BackgroundJob::HashKv { scan: Box::new(scan) });
    }

    /// The disk refused to read: the scan goes on a moment later, but not for ever.
    pub(crate) fn unread(&mut self, g: &mut Ground, epoch: u64, scan: HashScan, fault: &disk::Fault) {
        if epoch != g.epoch() {
            return;
        }
        self.unread += 1;
        if self.unread >= TRIES || g.swapping() {
            return self.failed(g, epoch, fault);
        }
        self.again = Some((g.now + AGAIN, scan));
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        if let Some((_, scan)) = self.again.take_if(|(due, _)| *due <= g.now && !g.swapping()) {
            self.scan_files(g, scan);
        }
    }

    pub(crate) fn scanned(&mut self, g: &mut Ground, epoch: u64, scan: HashScan, done: bool) {
        if epoch != g.epoch() {
            return; // of a state that a snapshot has replaced since: `end_all` told its askers
        }
        self.unread = 0;
        let first = self.queue.front().expect("a hash is under way");
        let wanted = first.compaction || !first.askers.is_empty();
        if !done && wanted && !g.swapping() {
            return self.scan_files(g, scan);
        }
        let hashing = self.end_first(g);
        if !done {
            return refuse_all(g, &hashing, Refusal::Timeout);
        }
        let Hashing { compaction, askers, revision, compacted, .. } = hashing;
        let hash = scan.hash();
        for waiter in askers {
            g.answer(waiter, Answer::HashKv { hash, compacted, hash_revision: revision });
        }
        if compaction {
            self.kept.push_back(Kept { revision, compacted, hash });
            if self.kept.len() > KEPT {
                self.kept.pop_front();
            }
        }
    }

    /// A damaged record, or a disk that cannot read: it concerns the askers, nothing else.
    pub(crate) fn failed(&mut self, g: &mut Ground, epoch: u64, fault: &disk::Fault) {
        if epoch != g.epoch() {
            return;
        }
        self.unread = 0;
        let hashing = self.end_first(g);
        g.note(Level::Error, format!("HashKV at revision {} found no hash: {fault}", hashing.revision));
        let refusal = if fault.is_damage() { Refusal::User(store::Error::Corrupt) } else { Refusal::Timeout };
        refuse_all(g, &hashing, refusal);
    }

    fn end_first(&mut self, g: &mut Ground) -> Hashing {
        let hashing = self.queue.pop_front().expect("a hash is under way");
        unpin(g, hashing.pin);
        hashing
    }

    /// The asker went away, or its time is over. What nobody waits for any more ends with its
    /// slice.
    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let Some(at) = self.queue.iter().position(|hashing| hashing.askers.contains(&waiter)) else {
            return false;
        };
        let hashing = &mut self.queue[at];
        hashing.askers.retain(|asker| *asker != waiter);
        let unwanted = hashing.askers.is_empty() && !hashing.compaction;
        if unwanted && matches!(hashing.stage, Stage::Gathering(_)) {
            let hashing = self.queue.remove(at).expect("found");
            unpin(g, hashing.pin);
        }
        if timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        true
    }

    /// The disk is full, and no scan ends before there is room: what is dead must not be held for
    /// one. A compaction whose hash was due is not remembered.
    pub(crate) fn no_room(&mut self, g: &mut Ground) {
        for hashing in std::mem::take(&mut self.queue) {
            unpin(g, hashing.pin);
            refuse_all(g, &hashing, Refusal::Timeout);
            let under_way = matches!(hashing.stage, Stage::Scanning) && self.again.is_none();
            if under_way {
                self.queue.push_back(Hashing { compaction: false, askers: Vec::new(), pin: None, ..hashing });
            }
        }
        self.again = None;
    }

    /// A snapshot replaces the state: its pins are gone with it, and so is what was hashed of it.
    pub(crate) fn end_all(&mut self, g: &mut Ground) {
        self.end_all_with(g, Refusal::Timeout);
        *self = Hashes::default();
    }

    /// Nobody waits any more, nothing is remembered; what is under way ends with its slice.
    pub(crate) fn end_all_with(&mut self, g: &mut Ground, refusal: Refusal) {
        self.kept.clear();
        let under_way = self.queue.len().min(1);
        for hashing in self.queue.split_off(under_way) {
            unpin(g, hashing.pin);
            refuse_all(g, &hashing, refusal);
        }
        if let Some(mut first) = self.queue.pop_front() {
            refuse_all(g, &first, refusal);
            first.askers.clear();
            first.compaction = false;
            self.queue.push_front(first);
        }
    }
}

fn unpin(g: &mut Ground, pin: Option<PinId>) {
    if let Some(pin) = pin {
        g.store.unpin(pin);
    }
}

fn refuse_all(g: &mut Ground, hashing: &Hashing, refusal: Refusal) {
    for waiter in &hashing.askers {
        g.refuse(*waiter, refusal);
    }
}
