//! Which versions of which keys exist, and where their records lie. Every question of
//! *which version* is answered here, from memory.

use crate::record::{self, KeyValueRef};
use crate::{Handle, Key, KeyRange, Rev};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// An ordered map from keys to entry numbers: the seam for another tree.
pub trait Index: Default {
    fn get(&self, key: &[u8]) -> Option<u32>;
    fn insert(&mut self, key: Key, id: u32);
    fn remove(&mut self, key: &[u8]);
    /// In key order. The bounds must not cross.
    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>)
    -> impl Iterator<Item = (&'a Key, u32)> + use<'a, Self>;
}

#[derive(Clone, Debug, Default)]
pub struct Tree {
    map: BTreeMap<Key, u32>,
}

impl Index for Tree {
    fn get(&self, key: &[u8]) -> Option<u32> {
        self.map.get(key).copied()
    }

    fn insert(&mut self, key: Key, id: u32) {
        self.map.insert(key, id);
    }

    fn remove(&mut self, key: &[u8]) {
        self.map.remove(key);
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl Iterator<Item = (&'a Key, u32)> + use<'a> {
        self.map.range::<[u8], _>((from, to)).map(|(key, id)| (key, *id))
    }
}

/// One version of a key. A tombstone has version, create and lease 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub main: i64,
    pub create: i64,
    pub version: i64,
    pub lease: i64,
    pub sub: u32,
    pub handle: Handle,
}

impl Version {
    pub fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    pub fn rev(&self) -> Rev {
        Rev { main: self.main, sub: i64::from(self.sub) }
    }

    /// The `KeyValue` of this version less its value.
    pub fn without_value<'a>(&self, key: &'a [u8]) -> KeyValueRef<'a> {
        // The row that a bumped revision leaves has no key and no numbers (see `import`).
        if self.is_tombstone() || key.is_empty() {
            return KeyValueRef { key, ..Default::default() };
        }
        KeyValueRef {
            key,
            create: self.create,
            modified: self.main,
            version: self.version,
            value: b"",
            lease: self.lease,
        }
    }

    /// Bytes of the value, without reading it.
    pub fn value_len(&self, key: &[u8]) -> usize {
        record::value_len(&self.without_value(key), self.handle.len)
    }

    /// What the quota counts for this record.
    fn cost(&self, key: &[u8]) -> u64 {
        256 + key.len() as u64 + self.value_len(key) as u64
    }
}

/// All kept versions of one key.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    pub latest: Version,
    /// Ascending, all before `latest`.
    pub older: Vec<Version>,
}

impl Entry {
    /// Every kept version, oldest first.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.older.iter().chain(std::iter::once(&self.latest))
    }

    /// The newest version at or below `revision`, tombstones included.
    pub fn at(&self, revision: i64) -> Option<&Version> {
        if self.latest.main <= revision {
            return Some(&self.latest);
        }
        let upto = self.older.partition_point(|version| version.main <= revision);
        upto.checked_sub(1).map(|i| &self.older[i])
    }

    /// The version just before the one at `rev`.
    pub fn before(&self, rev: Rev) -> Option<&Version> {
        self.versions().rev().find(|version| version.rev() < rev)
    }
}

/// The index and the entries it points to.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    tree: Tree,
    slab: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// (main revision that superseded a version, entry), ascending: what the sweep visits.
    superseded: VecDeque<(i64, u32)>,
    /// (main revision of a tombstone, entry), ascending.
    tombstones: VecDeque<(i64, u32)>,
    live_keys: u64,
    live_bytes: u64,
    versions: u64,
}

impl Keys {
    pub fn live_keys(&self) -> u64 {
        self.live_keys
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn versions(&self) -> u64 {
        self.versions
    }

    fn entry(&self, id: u32) -> &Entry {
        self.slab[id as usize].as_ref().expect("the index points to entries")
    }

    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.tree.get(key).map(|id| self.entry(id))
    }

    /// Entries in key order.
    pub fn scan<'a>(&'a self, range: &KeyRange) -> impl Iterator<Item = &'a Entry> + use<'a> {
        self.scan_after(range, None)
    }

    /// Entries of `range` behind `after`, in key order.
    pub fn scan_after<'a>(
        &'a self,
        range: &KeyRange,
        after: Option<&[u8]>,
    ) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let bounds = range.bounds().filter(|(_, to)| match (after, to) {
            (Some(after), Bound::Included(to)) => after < *to,
            (Some(after), Bound::Excluded(to)) => after < *to,
            _ => true,
        });
        let found = bounds.map(|(from, to)| {
            let from = after.map_or(from, Bound::Excluded);
            // the iterator borrows the tree alone, not the bounds
            self.tree.scan(from, to)
        });
        found.into_iter().flatten().map(|(_, id)| self.entry(id))
    }

    /// Adds the newest version of `key`. Returns the shared key.
    pub fn push(&mut self, key: &[u8], version: Version) -> Key {
        self.versions += 1;
        self.live_bytes += version.cost(key);
        let (id, shared) = match self.tree.get(key) {
            Some(id) => (id, self.supersede(id, version)),
            None => (self.next_id(), self.create(key, version)),
        };
        if version.is_tombstone() {
            self.tombstones.push_back((version.main, id));
        }
        shared
    }

    fn supersede(&mut self, id: u32, version: Version) -> Key {
        let entry = self.slab[id as usize].as_mut().expect("the index points to entries");
        assert!(entry.latest.rev() < version.rev(), "versions come in revision order");
        match (entry.latest.is_tombstone(), version.is_tombstone()) {
            (true, false) => self.live_keys += 1,
            (false, true) => self.live_keys -= 1,
            (false, false) => {}
            (true, true) => panic!("a key that does not exist is not deleted again"),
        }
        entry.older.push(std::mem::replace(&mut entry.latest, version));
        self.superseded.push_back((version.main, id));
        entry.key.clone()
    }

    fn next_id(&self) -> u32 {
        self.free.last().copied().unwrap_or_else(|| u32::try_from(self.slab.len()).expect("below 2^32 keys"))
    }

    fn create(&mut self, key: &[u8], version: Version) -> Key {
        assert!(!version.is_tombstone(), "a key that does not exist is not deleted");
        let key = Key::from(key);
        self.live_keys += 1;
        self.insert(Entry { key: key.clone(), latest: version, older: Vec::new() });
        key
    }

    fn insert(&mut self, entry: Entry) {
        let id = self.next_id();
        self.tree.insert(entry.key.clone(), id);
        match self.free.pop() {
            Some(id) => {
                assert!(self.slab[id as usize].is_none());
                self.slab[id as usize] = Some(entry);
            }
            None => self.slab.push(Some(entry)),
        }
    }

    /// Takes in a whole entry of an image. [`Keys::loaded`] must follow the last one.
    pub fn load(&mut self, entry: Entry) {
        let id = self.next_id();
        for version in entry.versions() {
            self.versions += 1;
            self.live_bytes += version.cost(&entry.key);
            if version.is_tombstone() {
                self.tombstones.push_back((version.main, id));
            }
        }
        for version in entry.versions().skip(1) {
            self.superseded.push_back((version.main, id));
        }
        self.live_keys += u64::from(!entry.latest.is_tombstone());
        self.insert(entry);
    }

    /// After the last [`Keys::load`].
    pub fn loaded(&mut self) {
        self.superseded.make_contiguous().sort_unstable();
        self.tombstones.make_contiguous().sort_unstable();
    }

    /// Visits one entry that may hold versions dead at `level` and drops them; `freed` hears of each.
    /// False: nothing is dead at `level` any more.
    pub fn sweep_one(&mut self, level: i64, freed: &mut impl FnMut(Handle)) -> bool {
        let id = if self.superseded.front().is_some_and(|(main, _)| *main <= level) {
            self.superseded.pop_front()
        } else if self.tombstones.front().is_some_and(|(main, _)| *main < level) {
            self.tombstones.pop_front()
        } else {
            return false;
        };
        let id = id.expect("looked at just now").1;
        self.drop_dead(id, level, freed);
        true
    }

    /// True if [`Keys::sweep_one`] would visit something at `level`.
    pub fn sweep_due(&self, level: i64) -> bool {
        self.swept_upto() < level
    }

    /// Nothing that is still here is dead at this revision.
    pub fn swept_upto(&self) -> i64 {
        let superseded = self.superseded.front().map_or(i64::MAX, |(main, _)| main - 1);
        let tombstone = self.tombstones.front().map_or(i64::MAX, |(main, _)| *main);
        superseded.min(tombstone)
    }

    /// By then the number may name another key, or nothing: the predicate alone decides.
    fn drop_dead(&mut self, id: u32, level: i64, freed: &mut impl FnMut(Handle)) {
        let Some(entry) = self.slab[id as usize].as_mut() else {
            return;
        };
        let dead = crate::compact::dead_versions(entry, level);
        for version in entry.versions().take(dead) {
            self.versions -= 1;
            self.live_bytes -= version.cost(&entry.key);
            freed(version.handle);
        }
        if dead > entry.older.len() {
            let key = entry.key.clone();
            self.tree.remove(&key);
            self.slab[id as usize] = None;
            self.free.push(id);
        } else {
            entry.older.drain(..dead);
        }
    }
}
