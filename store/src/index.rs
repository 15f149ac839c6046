//! Which versions of which keys exist, and where their records lie. Every question of
//! *which version* is answered here, from memory.

use crate::packed::Packed;
use crate::record::{self, KeyValueRef};
use crate::tree::Tree;
use crate::{Handle, KeyRange, Rev};
use std::collections::VecDeque;
use std::ops::Bound;

/// One version of a key. A tombstone has version, create and lease 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub main: i64,
    pub create: i64,
    pub version: i64,
    pub lease: i64,
    pub sub: u32,
    pub handle: Handle,
}

impl Version {
    pub(crate) fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    pub(crate) fn rev(&self) -> Rev {
        Rev { main: self.main, sub: i64::from(self.sub) }
    }

    /// The `KeyValue` of this version less its value.
    pub(crate) fn without_value<'a>(&self, key: &'a [u8]) -> KeyValueRef<'a> {
        KeyValueRef { key, ..self.numbers(key.len()) }
    }

    /// The numbers of its `KeyValue`.
    fn numbers(&self, key_len: usize) -> KeyValueRef<'static> {
        // The row that a bumped revision leaves has no key and no numbers (see `import`).
        if self.is_tombstone() || key_len == 0 {
            return KeyValueRef::default();
        }
        KeyValueRef {
            key: b"",
            create: self.create,
            modified: self.main,
            version: self.version,
            value: b"",
            lease: self.lease,
        }
    }

    /// Bytes of the value, without reading it.
    pub(crate) fn value_len(&self, key_len: usize) -> usize {
        record::value_len(&self.numbers(key_len), key_len, self.handle.len)
    }

    /// What the quota counts for this record.
    fn cost(&self, key_len: usize) -> u64 {
        256 + key_len as u64 + self.value_len(key_len) as u64
    }
}

/// All kept versions of one key. The key itself is in the tree alone.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// In its place, for most readers want it and nothing else.
    latest: Packed,
    /// Few keys have any, so it costs one word.
    older: Option<Box<Older>>,
}

/// What a key was before its latest version.
#[derive(Clone, Debug)]
struct Older {
    /// Bytes of the key: what its versions cost must be known without it.
    key_len: usize,
    /// One at least, in revision order.
    versions: Vec<Packed>,
}

const _: () = assert!(size_of::<Option<Entry>>() == 32);

impl Entry {
    /// Of versions in revision order.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn new(key_len: usize, versions: &[Version]) -> Entry {
        let (latest, older) = versions.split_last().expect("an entry has a version");
        let older = (!older.is_empty()).then(|| {
            let versions = older.iter().map(|version| Packed::new(*version)).collect();
            Box::new(Older { key_len, versions })
        });
        Entry { latest: Packed::new(*latest), older }
    }

    fn older(&self) -> &[Packed] {
        self.older.as_ref().map_or(&[], |older| &older.versions)
    }

    pub(crate) fn latest(&self) -> Version {
        self.latest.get()
    }

    /// Whether the key exists at the newest revision.
    pub(crate) fn is_live(&self) -> bool {
        !self.latest.is_tombstone()
    }

    /// Every kept version, oldest first.
    pub(crate) fn versions(&self) -> impl DoubleEndedIterator<Item = Version> {
        self.older().iter().chain(std::iter::once(&self.latest)).map(Packed::get)
    }

    /// How many of the kept versions came at or before `revision`.
    pub(crate) fn upto(&self, revision: i64) -> usize {
        let older = self.older();
        if self.latest.main() <= revision {
            return older.len() + 1;
        }
        older.partition_point(|version| version.main() <= revision)
    }

    /// The newest version at or below `revision`, tombstones included.
    pub(crate) fn at(&self, revision: i64) -> Option<Version> {
        if self.latest.main() <= revision {
            return Some(self.latest());
        }
        self.upto(revision).checked_sub(1).map(|i| self.older()[i].get())
    }

    /// The newest version below `rev`, tombstones included.
    pub(crate) fn before(&self, rev: Rev) -> Option<Version> {
        (0..self.upto(rev.main)).rev().map(|n| self.nth(n).get()).find(|version| version.rev() < rev)
    }

    /// The kept version with this number, counted from the oldest, which is 0.
    pub(crate) fn nth(&self, n: usize) -> &Packed {
        self.older().get(n).unwrap_or(&self.latest)
    }

    /// The number of the kept version of revision `rev`, as for [`Entry::nth`].
    pub(crate) fn position(&self, rev: Rev) -> Option<usize> {
        let upto = self.upto(rev.main);
        let same = (0..upto).rev().take_while(|n| self.nth(*n).main() == rev.main);
        same.into_iter().find(|n| self.nth(*n).get().rev() == rev)
    }

    fn supersede(&mut self, key_len: usize, version: Version) {
        let before = std::mem::replace(&mut self.latest, Packed::new(version));
        match &mut self.older {
            Some(older) => older.versions.push(before),
            None => self.older = Some(Box::new(Older { key_len, versions: vec![before] })),
        }
    }

    /// Drops the `most` oldest, but never the latest, and tells `freed` of each and of the key's
    /// length.
    fn drop_oldest(&mut self, most: usize, mut freed: impl FnMut(Version, usize)) {
        let Some(older) = &mut self.older else { return };
        let Older { key_len, versions } = &mut **older;
        for version in versions.drain(..most.min(versions.len())) {
            freed(version.get(), *key_len);
        }
        if versions.is_empty() {
            self.older = None;
        } else if versions.capacity() > 4 * versions.len() {
            versions.shrink_to_fit();
        }
    }
}

/// Entries by number, in blocks: it grows without a copy of all of them, and without slack.
#[derive(Clone, Debug, Default)]
struct Slab {
    blocks: Vec<Vec<Option<Entry>>>,
    free: Vec<u32>,
}

/// Entries of a block: a little less than 16 KiB of them, so that with what an allocator may add
/// for itself or for alignment a block still fits its class of that size.
const BLOCK: usize = (16 << 10) / size_of::<Option<Entry>>() - 1;
const _: () = assert!(BLOCK * size_of::<Option<Entry>>() + 15 <= 16 << 10);

impl Slab {
    fn slot(&mut self, number: u32) -> &mut Option<Entry> {
        &mut self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }

    fn get(&self, number: u32) -> &Entry {
        let slot = &self.blocks[number as usize / BLOCK][number as usize % BLOCK];
        slot.as_ref().expect("the index points to entries")
    }

    fn add(&mut self, entry: Entry) -> u32 {
        if let Some(number) = self.free.pop() {
            let slot = self.slot(number);
            assert!(slot.is_none(), "a free number has no entry");
            *slot = Some(entry);
            return number;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let before = (self.blocks.len() - 1) * BLOCK;
        let block = self.blocks.last_mut().expect("pushed just now");
        block.push(Some(entry));
        u32::try_from(before + block.len() - 1).expect("below 2^32 keys")
    }

    fn entry(&mut self, number: u32) -> &mut Entry {
        self.slot(number).as_mut().expect("the index points to entries")
    }

    fn remove(&mut self, number: u32) {
        *self.slot(number) = None;
        self.free.push(number);
    }
}

/// The entry of a key that [`Keys::find`] found; good until the index changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found(u32);

/// Gives back the room of a queue that was long and is short now, seldom enough that it costs
/// nothing.
fn give_back<T>(queue: &mut VecDeque<T>) {
    const KEPT: usize = 1024;
    if queue.capacity() > KEPT && queue.len() < queue.capacity() / 8 {
        queue.shrink_to((2 * queue.len()).max(KEPT));
    }
}

/// The index and the entries it points to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    tree: Tree,
    slab: Slab,
    /// (main revision that superseded a version, entry), ascending: what the sweep visits.
    superseded: VecDeque<(i64, u32)>,
    /// (main revision of a tombstone, entry, its key), ascending.
    tombstones: VecDeque<(i64, u32, Box<[u8]>)>,
    live_bytes: u64,
    versions: u64,
}

impl Keys {
    pub(crate) fn live_keys(&self) -> u64 {
        self.tree.live()
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn versions(&self) -> u64 {
        self.versions
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.find(key).map(|found| self.entry(found))
    }

    /// Which entry is that of `key`, for a caller that asks it and then adds to it.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Found> {
        self.tree.get(key).map(Found)
    }

    pub(crate) fn entry(&self, Found(number): Found) -> &Entry {
        self.slab.get(number)
    }

    /// Keys of the range whose newest version is not a tombstone, without visiting them.
    pub(crate) fn count_live(&self, range: &KeyRange) -> u64 {
        range.bounds().map_or(0, |(from, to)| self.tree.count_live(from, to))
    }

    /// Calls `each` with the entries of `range`, in key order, until it answers false.
    pub(crate) fn scan(&self, range: &KeyRange, each: impl FnMut(&[u8], &Entry) -> bool) {
        self.scan_after(range, None, each);
    }

    /// As [`Keys::scan`], of the entries whose newest version is not a tombstone. Many others that
    /// lie together are passed over at once.
    pub(crate) fn scan_live(&self, range: &KeyRange, mut each: impl FnMut(&[u8], &Entry) -> bool) {
        if let Some((from, to)) = range.bounds() {
            self.tree.scan_live(from, to, |key, number| each(key, self.slab.get(number)));
        }
    }

    /// As [`Keys::scan`], behind the key `after`.
    pub(crate) fn scan_after(
        &self,
        range: &KeyRange,
        after: Option<&[u8]>,
        mut each: impl FnMut(&[u8], &Entry) -> bool,
    ) {
        let Some((from, to)) = range.bounds() else { return };
        let crossed = match (after, to) {
            (Some(after), Bound::Included(to)) | (Some(after), Bound::Excluded(to)) => after >= to,
            _ => false,
        };
        if !crossed {
            let from = after.map_or(from, Bound::Excluded);
            self.tree.scan(from, to, |key, number| each(key, self.slab.get(number)));
        }
    }

    /// Adds the newest version of `key`. `found`: what [`Keys::find`] says of it now.
    pub(crate) fn push(&mut self, key: &[u8], found: Option<Found>, version: Version) {
        self.versions += 1;
        self.live_bytes += version.cost(key.len());
        let number = match found {
            Some(Found(number)) => {
                self.supersede(number, key, version);
                number
            }
            None => {
                assert!(!version.is_tombstone(), "a key that does not exist is not deleted");
                let number = self.slab.add(Entry::new(key.len(), &[version]));
                self.tree.insert(key, number, true);
                number
            }
        };
        if version.is_tombstone() {
            self.tombstones.push_back((version.main, number, key.into()));
        }
    }

    fn supersede(&mut self, number: u32, key: &[u8], version: Version) {
        let entry = self.slab.entry(number);
        assert!(entry.latest().rev() < version.rev(), "versions come in revision order");
        match (entry.is_live(), !version.is_tombstone()) {
            (false, false) => panic!("a key that does not exist is not deleted again"),
            (was_live, is_live) if was_live != is_live => self.tree.set_live(key, is_live),
            _ => {}
        }
        entry.supersede(key.len(), version);
        self.superseded.push_back((version.main, number));
    }

    /// The entry of `key`, if it keeps the version of revision `rev` whose record lies at `handle`.
    pub(crate) fn keeps(&self, key: &[u8], rev: Rev, handle: Handle) -> Option<Found> {
        let found = self.find(key)?;
        let entry = self.entry(found);
        let version = entry.nth(entry.position(rev)?).get();
        (version.handle == handle).then_some(found)
    }

    /// A record lies elsewhere now. False, and nothing changes, if the entry does not keep the
    /// version any more: it was swept, and the number may be another key's.
    pub(crate) fn relocate(&mut self, Found(number): Found, rev: Rev, from: Handle, to: Handle) -> bool {
        let Some(entry) = self.slab.slot(number).as_mut() else { return false };
        let Some(n) = entry.position(rev) else { return false };
        let version = entry.nth(n).get();
        if version.handle != from {
            return false;
        }
        let moved = Packed::new(Version { handle: to, ..version });
        match entry.older.as_mut().and_then(|older| older.versions.get_mut(n)) {
            Some(older) => *older = moved,
            None => entry.latest = moved,
        }
        true
    }

    /// Takes in all versions of the next key of an image, oldest first. Keys come in order;
    /// `shared`: bytes that this one has in common with the one before. [`Keys::loaded`] must
    /// follow the last.
    ///
    /// # Panics
    /// If there is no version.
    pub(crate) fn load(&mut self, key: &[u8], shared: usize, versions: &[Version]) {
        let entry = Entry::new(key.len(), versions);
        let live = entry.is_live();
        let number = self.slab.add(entry);
        self.tree.append(key, shared, number, live);
        self.versions += versions.len() as u64;
        for (position, version) in versions.iter().enumerate() {
            self.live_bytes += version.cost(key.len());
            if version.is_tombstone() {
                self.tombstones.push_back((version.main, number, key.into()));
            }
            if position > 0 {
                self.superseded.push_back((version.main, number));
            }
        }
    }

    /// After the last [`Keys::load`].
    pub(crate) fn loaded(&mut self) {
        self.superseded.make_contiguous().sort_unstable();
        self.tombstones.make_contiguous().sort_unstable();
    }

    /// Visits one entry that may hold versions dead at `level` and drops them; `freed` hears of
    /// each. False: nothing is dead at `level` any more.
    pub(crate) fn sweep_one(&mut self, level: i64, freed: &mut impl FnMut(Handle)) -> bool {
        if self.superseded.front().is_some_and(|(main, _)| *main <= level) {
            let (_, number) = self.superseded.pop_front().expect("looked at just now");
            give_back(&mut self.superseded);
            self.drop_superseded(number, level, freed);
        } else if self.tombstones.front().is_some_and(|(main, ..)| *main < level) {
            let (_, number, key) = self.tombstones.pop_front().expect("looked at just now");
            give_back(&mut self.tombstones);
            self.drop_tombstone(number, &key, level, freed);
        } else {
            return false;
        }
        true
    }

    /// True if [`Keys::sweep_one`] would visit something at `level`.
    pub(crate) fn sweep_due(&self, level: i64) -> bool {
        self.swept_upto() < level
    }

    /// Nothing that is still here is dead at this revision.
    pub(crate) fn swept_upto(&self) -> i64 {
        let superseded = self.superseded.front().map_or(i64::MAX, |(main, _)| main - 1);
        let tombstone = self.tombstones.front().map_or(i64::MAX, |(main, ..)| *main);
        superseded.min(tombstone)
    }

    /// By then the number may name another key, or nothing: the predicate alone decides.
    fn drop_superseded(&mut self, number: u32, level: i64, freed: &mut impl FnMut(Handle)) {
        let Some(entry) = self.slab.slot(number).as_mut() else { return };
        // A dead tombstone that is the newest version is dropped with its key, by its own visit.
        let dead = crate::compact::dead_versions(entry, level);
        entry.drop_oldest(dead, |version, key_len| {
            self.versions -= 1;
            self.live_bytes -= version.cost(key_len);
            freed(version.handle);
        });
    }

    /// The key goes with its last version, if that is still this tombstone or another dead one.
    fn drop_tombstone(&mut self, number: u32, key: &[u8], level: i64, freed: &mut impl FnMut(Handle)) {
        if self.tree.get(key) != Some(number) {
            return;
        }
        self.drop_superseded(number, level, freed);
        let entry = self.slab.get(number);
        if crate::compact::dead_versions(entry, level) == 0 {
            return;
        }
        assert!(entry.older.is_none() && !entry.is_live(), "only a tombstone dies as the newest version");
        let latest = entry.latest();
        self.versions -= 1;
        self.live_bytes -= latest.cost(key.len());
        freed(latest.handle);
        self.tree.remove(key);
        self.slab.remove(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(main: i64) -> Version {
        let handle = Handle { segment: 1, offset: 4096, len: 64 };
        Version { main, create: 2, version: main - 1, lease: 0, sub: 0, handle }
    }

    #[test]
    fn a_sweep_gives_back_what_a_long_history_took() {
        let mut keys = Keys::default();
        let last = 20_000;
        for main in 2..=last {
            let found = keys.find(b"key");
            keys.push(b"key", found, version(main));
        }
        assert_eq!(keys.versions(), last as u64 - 1);
        assert!(keys.superseded.capacity() >= keys.superseded.len() && keys.superseded.len() == last as usize - 2);
        let mut freed = 0;
        while keys.sweep_one(last, &mut |_| freed += 1) {}
        assert_eq!((keys.versions(), freed), (1, last - 2));
        assert_eq!(keys.live_bytes(), version(last).cost(3));
        assert!(keys.superseded.capacity() <= 1024, "{}", keys.superseded.capacity());
        let entry = keys.get(b"key").expect("its newest version stays");
        assert!(entry.older.is_none(), "a lone version takes no more than its place");
        assert_eq!(entry.latest(), version(last));
    }
}
