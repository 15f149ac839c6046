//! The state itself and the small questions about it.

use crate::apply::Position;
use crate::auth::Auth;
use crate::compact::Pins;
use crate::digest::{Digest, Effect};
use crate::index::{Keys, Version};
use crate::lease::{Lease, Leases};
use crate::parked::Parked;
use crate::tail::{Extent, SegmentUse, Tail};
use crate::{AlarmMember, Item, Key, Located, Member};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// What is local to a member and cannot change the result of apply.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// A segment is closed when the next revision would make it longer than this (bytes).
    pub segment_bytes: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { segment_bytes: 64 << 20 }
    }
}

/// Who votes and who only listens, both ascending; as consensus gave it with the last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Ids of those that vote.
    pub voters: Vec<u64>,
    /// Ids of those that only listen.
    pub learners: Vec<u64>,
}

/// The replicated state of one member.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) config: Config,
    pub(crate) applied: Position,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    /// Milliseconds; the largest stamp seen.
    pub(crate) lease_clock: u64,
    pub(crate) digest: Digest,
    pub(crate) keys: Keys,
    pub(crate) leases: Leases,
    pub(crate) alarms: BTreeSet<AlarmMember>,
    pub(crate) members: BTreeMap<u64, Member>,
    pub(crate) conf: Conf,
    pub(crate) removed: BTreeSet<u64>,
    pub(crate) cluster_version: String,
    /// 0: nothing has named it yet.
    pub(crate) founding: u64,
    pub(crate) auth: Auth,
    pub(crate) tail: Tail,
    pub(crate) pins: Pins,
    /// What is known of the next entry.
    pub(crate) parked: Parked,
    /// It stands where the state would ([`Store::stand_at`]).
    pub(crate) stands_in: bool,
}

impl Store {
    /// The empty state: nothing applied, revision 1, never compacted.
    pub fn new(config: Config) -> Store {
        Store {
            config,
            applied: Position::default(),
            revision: 1,
            compacted: -1,
            lease_clock: 0,
            digest: Digest::default(),
            keys: Keys::default(),
            leases: Leases::default(),
            alarms: BTreeSet::new(),
            members: BTreeMap::new(),
            conf: Conf::default(),
            removed: BTreeSet::new(),
            cluster_version: String::new(),
            founding: 0,
            auth: Auth::default(),
            tail: Tail::new(),
            pins: Pins::default(),
            parked: Parked::default(),
            stands_in: false,
        }
    }

    /// The state every founder of a cluster starts from: empty, with its first members, all voters,
    /// as if `at` had been applied.
    pub fn genesis(config: Config, members: Vec<Member>, at: Position) -> Store {
        let mut store = Store::new(config);
        store.applied = at;
        store.conf.voters = members.iter().map(|member| member.id).collect();
        store.conf.voters.sort_unstable();
        for member in members {
            let earlier = store.members.insert(member.id, member);
            assert!(earlier.is_none(), "founders have different ids");
        }
        store
    }

    /// Moves a state without keys to another place of the log: what came before it is not there.
    ///
    /// # Panics
    /// If it has a key.
    pub fn stand_at(&mut self, at: Position) {
        assert_eq!(self.keys(), 0, "only a state without keys stands anywhere");
        self.applied = at;
        self.stands_in = true;
    }

    /// What it was made with.
    pub fn config(&self) -> Config {
        self.config
    }

    /// The newest revision; 1 in an empty store.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The last compacted revision; -1 before the first compaction.
    pub fn compacted(&self) -> i64 {
        self.compacted
    }

    /// The last applied entry.
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// Milliseconds: the largest stamp of an applied entry.
    pub fn lease_clock(&self) -> u64 {
        self.lease_clock
    }

    /// Of all logical effects so far: equal on all members at the same applied index.
    pub fn digest(&self) -> u128 {
        self.digest.value()
    }

    /// Sum over retained records of 256 + key + value bytes; falls as the sweep passes. Local.
    pub fn live_bytes(&self) -> u64 {
        self.keys.live_bytes()
    }

    /// Number of keys that exist at the newest revision.
    pub fn keys(&self) -> u64 {
        self.keys.live_keys()
    }

    /// Number of versions the index holds (tombstones and not yet swept ones included).
    pub fn versions(&self) -> u64 {
        self.keys.versions()
    }

    /// Every alarm that is raised, ascending by member.
    pub fn alarms(&self) -> impl Iterator<Item = AlarmMember> + '_ {
        self.alarms.iter().copied()
    }

    /// By id, ascending.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// The member of this id.
    pub fn member(&self, id: u64) -> Option<&Member> {
        self.members.get(&id)
    }

    /// Who votes and who listens.
    pub fn conf(&self) -> &Conf {
        &self.conf
    }

    /// The member listens without a vote.
    pub fn is_learner(&self, id: u64) -> bool {
        self.conf.learners.contains(&id)
    }

    /// Ids of members that were removed: never used again.
    pub fn removed(&self) -> &BTreeSet<u64> {
        &self.removed
    }

    /// Empty until the leader has set it.
    pub fn cluster_version(&self) -> &str {
        &self.cluster_version
    }

    /// What follows in this state is of the founding with this name. Running members agree on it by
    /// an entry; a tool that makes a state calls it.
    pub fn begin_founding(&mut self, name: u64) {
        self.digest.effect(Effect::Founding);
        self.digest.word(name);
        self.founding = name;
    }

    /// Names the founding whose history this state is of. 0: no leader has named it yet.
    pub fn founding(&self) -> u64 {
        self.founding
    }

    /// Users, roles, and whether they are asked for.
    pub fn auth(&self) -> &Auth {
        &self.auth
    }

    /// By id, ascending.
    pub fn leases(&self) -> impl Iterator<Item = (i64, &Lease)> {
        self.leases.iter()
    }

    /// Number of leases.
    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// Ids of leases from `first` on, ascending.
    pub fn lease_ids_from(&self, first: i64) -> impl Iterator<Item = i64> {
        self.leases.ids_from(first)
    }

    /// The lease of this id.
    pub fn lease(&self, id: i64) -> Option<&Lease> {
        self.leases.get(id)
    }

    /// The newest version of a key.
    pub fn get(&self, key: &[u8]) -> Option<Item> {
        let entry = self.keys.get(key)?;
        entry.is_live().then(|| self.item(key, &entry.latest()))
    }

    /// The version of a key that a reader at `revision` sees.
    pub fn get_at(&self, key: &[u8], revision: i64) -> Option<Item> {
        let entry = self.keys.get(key)?;
        let version = entry.at(revision).filter(|version| !version.is_tombstone())?;
        Some(self.item(key, &version))
    }

    /// Where the version of a key just before main revision `main` lies: what `prev_kv` of an event
    /// shows. None if the key did not exist then, or that version is compacted.
    pub fn version_before(&self, key: &[u8], main: i64) -> Option<Located> {
        let entry = self.keys.get(key)?;
        let dead = crate::compact::dead_versions(entry, self.compacted);
        let last = entry.upto(main.saturating_sub(1)).checked_sub(1).filter(|last| *last >= dead)?;
        let version = entry.nth(last).get();
        (!version.is_tombstone()).then(|| self.located(&version))
    }

    pub(crate) fn item(&self, key: &[u8], version: &crate::index::Version) -> Item {
        Item {
            key: Key::from(key),
            create: version.create,
            modified: version.main,
            version: version.version,
            lease: version.lease,
            at: self.located(version),
        }
    }

    /// Where the version of `key` at `rev` lies; None if the index does not have it (any more).
    pub fn handle_of(&self, key: &[u8], rev: crate::Rev) -> Option<crate::Handle> {
        let entry = self.keys.get(key)?;
        entry.position(rev).map(|n| entry.nth(n).get().handle)
    }

    /// The bytes of a record while they are in memory.
    pub fn in_memory(&self, handle: crate::Handle) -> Option<Bytes> {
        self.tail.get(handle)
    }

    /// A handle with the record's bytes while they are in memory.
    pub(crate) fn located(&self, version: &Version) -> Located {
        let handle = version.handle;
        Located { handle, rev: version.rev(), bytes: self.tail.get(handle) }
    }

    /// Records that no file holds yet, oldest first, at most about `most` bytes (at least one
    /// record, if there is one). The same are given again until [`Store::written`] is told.
    pub fn unwritten(&self, most: usize) -> Vec<Extent> {
        self.tail.unwritten(most)
    }

    /// The file of `segment` holds everything below `upto` (and its seal, if `sealed`):
    /// memory is freed and those records are served from the file from now on.
    pub fn written(&mut self, segment: u32, upto: u32, sealed: bool) {
        self.tail.written(segment, upto, sealed);
    }

    /// Bytes of records held in memory until written.
    pub fn unwritten_bytes(&self) -> u64 {
        self.tail.bytes()
    }

    /// Segments in which a scan finds each record once, ascending: of a run that is being rewritten
    /// the old ones, until they are forgotten.
    pub fn segments_to_scan(&self) -> impl Iterator<Item = &SegmentUse> {
        self.tail.to_scan()
    }

    /// [`Store::segments_to_scan`] as far as files hold them: each ends where its first record
    /// begins that is in memory alone.
    pub fn segments_in_files(&self) -> Vec<SegmentUse> {
        self.tail.in_files()
    }

    /// Every segment that exists, ascending.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentUse> {
        self.tail.segments()
    }

    /// Forgets sealed segments in which no record is needed any more, and names them: their files
    /// may be deleted when no kept checkpoint names them.
    pub fn drop_dead_segments(&mut self) -> Vec<u32> {
        self.tail.drop_dead()
    }
}
