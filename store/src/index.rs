//! Which versions of which keys exist, and where their records lie. Every question of
//! *which version* is answered here, from memory.

use crate::record::{self, KeyValueRef};
use crate::tree::Tree;
use crate::{Handle, KeyRange, Rev};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Bound;

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
    pub fn value_len(&self, key_len: usize) -> usize {
        record::value_len(&self.numbers(key_len), key_len, self.handle.len)
    }

    /// What the quota counts for this record.
    fn cost(&self, key_len: usize) -> u64 {
        256 + key_len as u64 + self.value_len(key_len) as u64
    }
}

/// All kept versions of one key. The key itself is in the tree alone.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Bytes of the key and one: an entry that may be missing takes no more room so.
    key_len_and_one: NonZeroU32,
    pub latest: Version,
    /// Ascending, all before `latest`. Few keys have any, so it costs one word.
    #[allow(clippy::box_collection)]
    older: Option<Box<Vec<Version>>>,
}

const _: () = assert!(size_of::<Option<Entry>>() == 64);

impl Entry {
    /// # Panics
    /// If the key is longer than 32 bits can say.
    pub fn new(key: &[u8], latest: Version, older: Vec<Version>) -> Entry {
        let key_len_and_one = u32::try_from(key.len() + 1).ok().and_then(NonZeroU32::new).expect("keys are short");
        Entry { key_len_and_one, latest, older: (!older.is_empty()).then(|| Box::new(older)) }
    }

    pub fn key_len(&self) -> usize {
        self.key_len_and_one.get() as usize - 1
    }

    pub fn older(&self) -> &[Version] {
        self.older.as_ref().map_or(&[], |older| older)
    }

    /// Every kept version, oldest first.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.older().iter().chain(std::iter::once(&self.latest))
    }

    /// The newest version at or below `revision`, tombstones included.
    pub fn at(&self, revision: i64) -> Option<&Version> {
        if self.latest.main <= revision {
            return Some(&self.latest);
        }
        let upto = self.older().partition_point(|version| version.main <= revision);
        upto.checked_sub(1).map(|i| &self.older()[i])
    }

    fn supersede(&mut self, version: Version) {
        let before = std::mem::replace(&mut self.latest, version);
        self.older.get_or_insert_default().push(before);
    }

    fn drop_older(&mut self, most: usize) {
        let Some(older) = &mut self.older else { return };
        older.drain(..most);
        if older.is_empty() {
            self.older = None;
        } else if older.capacity() > 4 * older.len() {
            older.shrink_to_fit();
        }
    }

    /// The version just before the one at `rev`.
    pub fn before(&self, rev: Rev) -> Option<&Version> {
        self.versions().rev().find(|version| version.rev() < rev)
    }
}

/// Entries by number, in blocks: it grows without a copy of all of them, and without slack.
#[derive(Clone, Debug, Default)]
struct Slab {
    blocks: Vec<Vec<Option<Entry>>>,
    free: Vec<u32>,
}

const BLOCK: usize = 1024;

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

    fn remove(&mut self, number: u32) {
        *self.slot(number) = None;
        self.free.push(number);
    }
}

/// The index and the entries it points to.
#[derive(Clone, Debug, Default)]
pub struct Keys {
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
    pub fn live_keys(&self) -> u64 {
        self.tree.live()
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn versions(&self) -> u64 {
        self.versions
    }

    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.tree.get(key).map(|number| self.slab.get(number))
    }

    /// Keys of the range whose newest version is not a tombstone, without visiting them.
    pub fn count_live(&self, range: &KeyRange) -> u64 {
        range.bounds().map_or(0, |(from, to)| self.tree.count_live(from, to))
    }

    /// Calls `each` with the entries of `range`, in key order, until it answers false.
    pub fn scan(&self, range: &KeyRange, each: impl FnMut(&[u8], &Entry) -> bool) {
        self.scan_after(range, None, each);
    }

    /// As [`Keys::scan`], behind the key `after`.
    pub fn scan_after(&self, range: &KeyRange, after: Option<&[u8]>, mut each: impl FnMut(&[u8], &Entry) -> bool) {
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

    /// Adds the newest version of `key`.
    pub fn push(&mut self, key: &[u8], version: Version) {
        self.versions += 1;
        self.live_bytes += version.cost(key.len());
        let number = match self.tree.get(key) {
            Some(number) => {
                self.supersede(number, key, version);
                number
            }
            None => {
                assert!(!version.is_tombstone(), "a key that does not exist is not deleted");
                let number = self.slab.add(Entry::new(key, version, Vec::new()));
                self.tree.insert(key, number, true);
                number
            }
        };
        if version.is_tombstone() {
            self.tombstones.push_back((version.main, number, key.into()));
        }
    }

    fn supersede(&mut self, number: u32, key: &[u8], version: Version) {
        let entry = self.slab.slot(number).as_mut().expect("the index points to entries");
        assert!(entry.latest.rev() < version.rev(), "versions come in revision order");
        match (entry.latest.is_tombstone(), version.is_tombstone()) {
            (true, true) => panic!("a key that does not exist is not deleted again"),
            (was_dead, is_dead) if was_dead != is_dead => self.tree.set_live(key, was_dead),
            _ => {}
        }
        entry.supersede(version);
        self.superseded.push_back((version.main, number));
    }

    /// Takes in a whole entry of an image. [`Keys::loaded`] must follow the last one.
    pub fn load(&mut self, key: &[u8], entry: Entry) {
        let live = !entry.latest.is_tombstone();
        for version in entry.versions() {
            self.versions += 1;
            self.live_bytes += version.cost(key.len());
        }
        let tombstones: Vec<i64> = entry.versions().filter(|v| v.is_tombstone()).map(|v| v.main).collect();
        let superseded: Vec<i64> = entry.versions().skip(1).map(|version| version.main).collect();
        let number = self.slab.add(entry);
        self.tree.insert(key, number, live);
        self.tombstones.extend(tombstones.into_iter().map(|main| (main, number, key.into())));
        self.superseded.extend(superseded.into_iter().map(|main| (main, number)));
    }

    /// After the last [`Keys::load`].
    pub fn loaded(&mut self) {
        self.superseded.make_contiguous().sort_unstable();
        self.tombstones.make_contiguous().sort_unstable();
    }

    /// Visits one entry that may hold versions dead at `level` and drops them; `freed` hears of each.
    /// False: nothing is dead at `level` any more.
    pub fn sweep_one(&mut self, level: i64, freed: &mut impl FnMut(Handle)) -> bool {
        if self.superseded.front().is_some_and(|(main, _)| *main <= level) {
            let (_, number) = self.superseded.pop_front().expect("looked at just now");
            self.drop_superseded(number, level, freed);
        } else if self.tombstones.front().is_some_and(|(main, ..)| *main < level) {
            let (_, number, key) = self.tombstones.pop_front().expect("looked at just now");
            self.drop_tombstone(number, &key, level, freed);
        } else {
            return false;
        }
        true
    }

    /// True if [`Keys::sweep_one`] would visit something at `level`.
    pub fn sweep_due(&self, level: i64) -> bool {
        self.swept_upto() < level
    }

    /// Nothing that is still here is dead at this revision.
    pub fn swept_upto(&self) -> i64 {
        let superseded = self.superseded.front().map_or(i64::MAX, |(main, _)| main - 1);
        let tombstone = self.tombstones.front().map_or(i64::MAX, |(main, ..)| *main);
        superseded.min(tombstone)
    }

    /// By then the number may name another key, or nothing: the predicate alone decides.
    fn drop_superseded(&mut self, number: u32, level: i64, freed: &mut impl FnMut(Handle)) {
        let Some(entry) = self.slab.slot(number).as_mut() else { return };
        // A dead tombstone that is the newest version is dropped with its key, by its own visit.
        let dead = crate::compact::dead_versions(entry, level).min(entry.older().len());
        for version in &entry.older()[..dead] {
            self.versions -= 1;
            self.live_bytes -= version.cost(entry.key_len());
            freed(version.handle);
        }
        entry.drop_older(dead);
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
        assert!(entry.older().is_empty() && entry.latest.is_tombstone(), "only a tombstone dies as the newest version");
        self.versions -= 1;
        self.live_bytes -= entry.latest.cost(key.len());
        freed(entry.latest.handle);
        self.tree.remove(key);
        self.slab.remove(number);
    }
}
