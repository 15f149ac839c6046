//! What the crate may read: the log in memory, and the newest snapshot.
//!
//! Entries above applied are always here. Below that a tail is kept for followers that miss it,
//! capped in bytes; what fell out of it is still in the log on disk and comes back through a fetch,
//! which the crate can wait for only when it sends appends. Every other read is a hit, by
//! assertion. Terms are kept for the whole log as runs, since terms change rarely.

use crate::message::{conf_into, snapshot_into};
use crate::{ConfState, Entry, EntryKind, Fetch, HardState, Position, Snapshot};
use raft::eraftpb::{self, EntryType};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

/// What an entry weighs beside its data.
const ENTRY_OVERHEAD: u64 = 64;
/// Applied entries kept though no follower is known to miss them (bytes): a new leader does not
/// know yet who misses what.
const KEPT: u64 = 1 << 20;

pub(crate) struct LogCache {
    initial: RaftState,
    /// The first entry of each run of one term, ascending; the first of all is the boundary, just
    /// below the oldest entry of the log on disk.
    terms: VecDeque<Position>,
    /// Contiguous; the last is the end of the log.
    entries: VecDeque<eraftpb::Entry>,
    /// Index of `entries[0]`, or of the next entry.
    first_cached: u64,
    bytes: u64,
    cap: u64,
    applied: u64,
    /// The crate reads through `&self`, and its reads leave wishes behind.
    wishes: RefCell<Wishes>,
    offered: Option<Snapshot>,
    /// Index of the newest applied membership change.
    conf_index: u64,
}

#[derive(Default)]
struct Wishes {
    next_ticket: u64,
    /// Asked for and not answered, by first index.
    pending: BTreeMap<u64, Pending>,
    /// Not yet handed out.
    fetch: Vec<Fetch>,
    /// The answer that is being handed to the crate right now.
    answer: Vec<eraftpb::Entry>,
    /// A follower, and the least index of the snapshot that would help it.
    snapshot: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Pending {
    ticket: u64,
    contexts: Vec<GetEntriesContext>,
}

impl LogCache {
    /// `terms`: as the field; `entries` begin behind `cut`.
    pub fn new(
        hard: HardState,
        conf: &ConfState,
        terms: VecDeque<Position>,
        cut: u64,
        entries: Vec<Entry>,
        applied: u64,
        cap: u64,
    ) -> LogCache {
        let mut theirs = eraftpb::HardState::default();
        (theirs.term, theirs.vote, theirs.commit) = (hard.term, hard.vote, hard.commit);
        let mut cache = LogCache {
            initial: RaftState::new(theirs, conf_into(conf)),
            terms,
            entries: VecDeque::new(),
            first_cached: cut + 1,
            bytes: 0,
            cap,
            applied: cut,
            wishes: RefCell::default(),
            offered: None,
            conf_index: 0,
        };
        cache.append(entries.iter().map(entry_into).collect());
        cache.set_applied(applied, [].into_iter());
        cache
    }

    /// Bytes of the entries held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Index of the entry before the oldest one in the log on disk.
    pub fn boundary(&self) -> u64 {
        self.terms[0].index
    }

    pub fn last(&self) -> u64 {
        self.first_cached + self.entries.len() as u64 - 1
    }

    /// Adds entries at the end; the first of them replaces everything at and above its index.
    pub fn append(&mut self, entries: Vec<eraftpb::Entry>) {
        let Some(first) = entries.first() else {
            return;
        };
        let first = first.index;
        assert!(first > self.applied, "entry {first} would replace one that is applied");
        assert!(first <= self.last() + 1, "entry {first} leaves a gap behind {}", self.last());
        while self.last() >= first {
            let entry = self.entries.pop_back().expect("entries above applied are cached");
            self.bytes -= weight(&entry);
        }
        while self.terms.back().is_some_and(|run| run.index >= first) {
            self.terms.pop_back();
        }
        for entry in entries {
            assert_eq!(entry.index, self.last() + 1, "the log has no gaps");
            let newest = self.terms.back().expect("the boundary stays").term;
            assert!(entry.term >= newest, "terms never fall along the log");
            if entry.term > newest {
                self.terms.push_back(Position { index: entry.index, term: entry.term });
            }
            self.bytes += weight(&entry);
            self.entries.push_back(entry);
        }
    }

    /// `next`: for each follower, the first entry that it may miss. One that misses more than is
    /// held is fed from the disk; nothing is kept for its sake.
    pub fn set_applied(&mut self, applied: u64, next: impl Iterator<Item = u64>) {
        assert!(applied >= self.applied);
        self.applied = applied;
        let missed = next.filter(|next| *next >= self.first_cached).min().unwrap_or(u64::MAX);
        self.shrink(self.cap);
        self.forget(KEPT.min(self.cap), missed);
    }

    /// Forgets applied entries, oldest first, while more than `bytes` are held.
    pub fn shrink(&mut self, bytes: u64) {
        self.forget(bytes, u64::MAX);
    }

    fn forget(&mut self, bytes: u64, below: u64) {
        let below = below.min(self.applied + 1);
        while self.bytes > bytes && self.first_cached < below && self.forget_first() {}
    }

    fn forget_first(&mut self) -> bool {
        let Some(entry) = self.entries.pop_front() else {
            return false;
        };
        self.bytes -= weight(&entry);
        self.first_cached += 1;
        true
    }

    /// The log on disk now begins at `below`.
    pub fn cut(&mut self, below: u64) {
        if below <= self.boundary() + 1 {
            return;
        }
        let index = below - 1;
        assert!(index <= self.applied, "log cut at {below} above applied {}", self.applied);
        let term = self.term_at(index).expect("applied entries have terms");
        while self.first_cached < below && self.forget_first() {}
        while self.terms.get(1).is_some_and(|run| run.index <= index) {
            self.terms.pop_front();
        }
        self.terms[0] = Position { index, term };
    }

    /// The log restarts behind an installed snapshot.
    pub fn restart(&mut self, at: Position) {
        let index = at.index;
        assert!(index > self.applied);
        self.terms = VecDeque::from([at]);
        self.entries.clear();
        self.first_cached = index + 1;
        self.bytes = 0;
        self.applied = index;
        self.conf_index = index;
        let wishes = self.wishes.get_mut();
        *wishes = Wishes { next_ticket: wishes.next_ticket, ..Wishes::default() };
    }

    pub fn term_at(&self, index: u64) -> Option<u64> {
        if index > self.last() {
            return None;
        }
        let runs = self.terms.partition_point(|run| run.index <= index);
        runs.checked_sub(1).map(|run| self.terms[run].term)
    }

    pub fn set_conf_index(&mut self, index: u64) {
        self.conf_index = index;
    }

    pub fn offer(&mut self, snapshot: Snapshot) {
        // The same one may have another manifest: a file of it was mended, and has another
        // checksum.
        if self.offered.as_ref().is_none_or(|old| old.index <= snapshot.index) {
            self.offered = Some(snapshot);
        }
    }

    /// The snapshot that was offered is not given to anybody any more.
    pub fn withdraw(&mut self) {
        self.offered = None;
    }

    pub fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        out.append(&mut self.wishes.get_mut().fetch);
    }

    /// Followers that wait for a snapshot (ascending), and the least index that serves them all.
    pub fn take_snapshot_wishes(&mut self) -> Option<(u64, Vec<u64>)> {
        let wishes = std::mem::take(&mut self.wishes.get_mut().snapshot);
        let least = wishes.values().max().copied()?;
        Some((least, wishes.into_keys().collect()))
    }

    /// Readies the answer to a fetch and returns the callers to wake. No entries: they are gone
    /// from the log, and the callers will find that out.
    pub fn answer(&mut self, ticket: u64, entries: &[Entry]) -> Vec<GetEntriesContext> {
        let wishes = self.wishes.get_mut();
        let found = wishes.pending.iter().find(|(_, pending)| pending.ticket == ticket);
        let Some(from) = found.map(|(from, _)| *from) else {
            return Vec::new();
        };
        let contexts = wishes.pending.remove(&from).unwrap_or_default().contexts;
        if entries.is_empty() {
            if from <= self.applied {
                self.cut(from + 1);
            }
            return contexts;
        }
        // Behind what is applied another leader may have replaced entries while they were read.
        let same = |(entry, index): &(&Entry, u64)| (entry.index, Some(entry.term)) == (*index, self.term_at(*index));
        let right = entries.iter().zip(from..).take_while(same).count();
        if let Some(entry) = entries.get(right) {
            let place = from + right as u64;
            assert!(place > self.applied, "the log on disk has {entry:?} at the applied place {place}");
        }
        self.wishes.get_mut().answer = entries[..right].iter().map(entry_into).collect();
        contexts
    }

    pub fn forget_answer(&mut self) {
        self.wishes.get_mut().answer = Vec::new();
    }

    fn wish_entries(&self, low: u64, max_bytes: u64, context: GetEntriesContext) {
        let mut wishes = self.wishes.borrow_mut();
        let wishes = &mut *wishes;
        let pending = wishes.pending.entry(low).or_default();
        if pending.ticket == 0 {
            wishes.next_ticket += 1;
            pending.ticket = wishes.next_ticket;
            let ticket = pending.ticket;
            wishes.fetch.push(Fetch { ticket, from_index: low, max_bytes });
        }
        // The context names its follower only in its debug form; a follower asks again with every
        // heartbeat while the disk is slow.
        let name = format!("{context:?}");
        if !pending.contexts.iter().any(|known| format!("{known:?}") == name) {
            pending.contexts.push(context);
        }
    }

    fn answered(&self, low: u64, high: u64, max_bytes: u64) -> Option<Vec<eraftpb::Entry>> {
        let wishes = self.wishes.borrow();
        let first = wishes.answer.first()?.index;
        let start = usize::try_from(low.checked_sub(first)?).ok()?;
        let rest = wishes.answer.get(start..).filter(|rest| !rest.is_empty())?;
        Some(limited(rest.iter().take_while(|entry| entry.index < high), max_bytes))
    }
}

impl Storage for LogCache {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        assert!(low < high && high <= self.last() + 1);
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        if low <= self.boundary() {
            return Err(Error::Store(StorageError::Compacted));
        }
        if low >= self.first_cached {
            let start = (low - self.first_cached) as usize;
            let end = (high - self.first_cached) as usize;
            return Ok(limited(self.entries.range(start..end), max_bytes));
        }
        assert!(context.can_async(), "entry {low} is needed at once but not in memory: {context:?}");
        if let Some(entries) = self.answered(low, high, max_bytes) {
            return Ok(entries);
        }
        self.wish_entries(low, max_bytes, context);
        Err(Error::Store(StorageError::LogTemporarilyUnavailable))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.boundary() {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.term_at(index).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.boundary() + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// A snapshot helps a follower only if our log continues behind it and its membership contains
    /// the follower; otherwise a newer one is wished for.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<eraftpb::Snapshot> {
        let mut least = self.boundary().max(request_index).max(1);
        if let Some(offered) = &self.offered {
            let continues = offered.index >= least && offered.index <= self.applied;
            if continues && offered.conf.contains(to) {
                return Ok(snapshot_into(offered));
            }
            if continues {
                least = least.max(self.conf_index).max(offered.index + 1);
            }
        } else {
            least = least.max(self.conf_index);
        }
        self.wishes.borrow_mut().snapshot.insert(to, least);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

/// The longest prefix within `max_bytes`, but at least one.
fn limited<'a>(entries: impl Iterator<Item = &'a eraftpb::Entry>, max_bytes: u64) -> Vec<eraftpb::Entry> {
    let mut taken = Vec::new();
    let mut bytes = 0u64;
    for entry in entries {
        bytes = bytes.saturating_add(weight(entry));
        if bytes > max_bytes && !taken.is_empty() {
            break;
        }
        taken.push(entry.clone());
    }
    taken
}

fn weight(entry: &eraftpb::Entry) -> u64 {
    entry.data.len() as u64 + ENTRY_OVERHEAD
}

pub(crate) fn entry_from(entry: &eraftpb::Entry) -> Entry {
    let kind = crate::message::kind_of(entry);
    Entry { index: entry.index, term: entry.term, kind, data: entry.data.clone() }
}

fn entry_into(entry: &Entry) -> eraftpb::Entry {
    let mut theirs = eraftpb::Entry::default();
    theirs.index = entry.index;
    theirs.term = entry.term;
    theirs.data = entry.data.clone();
    if entry.kind == EntryKind::Config {
        theirs.set_entry_type(EntryType::EntryConfChange);
    }
    theirs
}

impl crate::Consensus {
    /// Bytes proposed and not yet committed; counted by a leader.
    pub fn uncommitted_bytes(&self) -> u64 {
        self.raw.raft.uncommitted_size() as u64
    }

    /// Bytes of log entries held in memory.
    pub fn cached_bytes(&self) -> u64 {
        self.raw.raft.raft_log.store.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_whose_manifest_was_named_anew_is_offered_so() {
        let (at, conf) = (Position { index: 5, term: 1 }, ConfState { voters: vec![1, 2], learners: Vec::new() });
        let hard = HardState { term: 1, vote: 0, commit: 5 };
        let mut cache = LogCache::new(hard, &conf, VecDeque::from([at]), 5, Vec::new(), 5, 1 << 20);
        let named = |index, manifest: &'static [u8]| Snapshot {
            index,
            term: 1,
            conf: conf.clone(),
            manifest: bytes::Bytes::from_static(manifest),
        };
        let given = |cache: &LogCache| cache.snapshot(0, 2).expect("it is offered").data.to_vec();
        cache.offer(named(5, b"before"));
        cache.offer(named(5, b"mended"));
        cache.offer(named(4, b"older"));
        assert_eq!(given(&cache), snapshot_into(&named(5, b"mended")).data.to_vec());
    }
}
