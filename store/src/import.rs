//! A store built from the stored history of an etcd: the rows of its `key` bucket in revision
//! order, then the small tables. For offline tools (restore of a snapshot, hashes of a file).
//!
//! Rows keep their revisions and their canonical `KeyValue` bytes, so HashKV is what etcd gives
//! for the same file. What etcd would choke on or answer wrongly is refused with its revision.
//!
//! One row of etcd has no key: `--bump-revision` of its restore leaves an empty `KeyValue` at the
//! new revision. It is kept under the empty key, which no request can name, because it counts in
//! HashKV and makes the revision what it is.

use crate::apply::Position;
use crate::auth::{Role, User, decode_role, decode_user, encode_role, encode_user};
use crate::digest::{Digest, Effect};
use crate::image::LeaseHead;
use crate::index::Version;
use crate::lease::{self, Lease};
use crate::record::{self, Damage, KeyValueRef};
use crate::state::{Conf, Config, Store};
use crate::tail::Extent;
use crate::tree::common_prefix;
use crate::{AlarmMember, Key, Member, Rev};
use std::collections::{BTreeMap, BTreeSet};

/// Takes rows, then everything else. Records come out through [`Import::unwritten`] meanwhile.
#[derive(Debug)]
pub struct Import {
    store: Store,
    keys: BTreeMap<Key, Vec<Version>>,
    last: Rev,
    rows: u64,
}

/// The tables beside the keys.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// What the state counts as: the last applied entry.
    pub applied: Position,
    /// Raised to the last row's and to `compacted`.
    pub revision: i64,
    /// -1: never compacted.
    pub compacted: i64,
    /// (id, seconds granted, seconds left)
    pub leases: Vec<(i64, i64, i64)>,
    /// Every alarm that is raised.
    pub alarms: Vec<AlarmMember>,
    /// All of them vote.
    pub members: Vec<Member>,
    /// Such as `3.7.0`; empty while the cluster has none.
    pub cluster_version: String,
    /// Users and roles.
    pub auth: AuthTables,
}

/// Users and roles, as the buckets of etcd hold them.
#[derive(Clone, Debug, Default)]
pub struct AuthTables {
    /// Users are asked for.
    pub enabled: bool,
    /// 0: not said; it counts as 1.
    pub revision: u64,
    /// By name, ascending.
    pub users: Vec<User>,
    /// By name, ascending.
    pub roles: Vec<Role>,
}

impl AuthTables {
    /// A row of the bucket `authUsers`, under its name. Rows come in the order of names.
    ///
    /// # Errors
    /// What is no user, or one of another name.
    pub fn user(&mut self, name: &[u8], row: &[u8]) -> Result<(), Damage> {
        let user = decode_user(row)?;
        named(name, &user.name)?;
        self.users.push(user);
        Ok(())
    }

    /// A row of the bucket `authRoles`, as [`AuthTables::user`].
    ///
    /// # Errors
    /// What is no role, or one of another name.
    pub fn role(&mut self, name: &[u8], row: &[u8]) -> Result<(), Damage> {
        let role = decode_role(row)?;
        named(name, &role.name)?;
        self.roles.push(role);
        Ok(())
    }
}

fn named(key: &[u8], name: &str) -> Result<(), Damage> {
    match !name.is_empty() && key == name.as_bytes() {
        true => Ok(()),
        false => Err(Damage::new(0, format!("{name:?} stands under {:?}", key.escape_ascii().to_string()))),
    }
}

/// What was built.
#[derive(Debug)]
pub struct Imported {
    /// The state, with every record in its tail.
    pub store: Store,
    /// Leases that keys name and no table holds: made anew with the longest time to live, so
    /// that their keys stay, as they would under etcd.
    pub orphans: Vec<i64>,
}

impl Import {
    /// An import into an empty store.
    pub fn new(config: Config) -> Import {
        Import { store: Store::new(config), keys: BTreeMap::new(), last: Rev::default(), rows: 0 }
    }

    /// Rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The last row's main revision; 0 before the first.
    pub fn last(&self) -> i64 {
        self.last.main
    }

    /// The next row. Returns whether `body` was canonical: if not, it is kept as written again,
    /// and HashKV differs from etcd's.
    ///
    /// # Errors
    /// Rows out of order, and rows whose content contradicts their revision.
    pub fn row(&mut self, rev: Rev, tombstone: bool, body: &[u8]) -> Result<bool, Damage> {
        let kv = record::key_value(body)?;
        let bad = |what: &str| Damage::new(0, format!("revision {}.{}: {what}", rev.main, rev.sub));
        if rev <= self.last || rev.main < 2 || rev.sub < 0 {
            return Err(bad("revisions do not ascend from 2"));
        }
        let sub = u32::try_from(rev.sub).map_err(|_| bad("a sub revision above 32 bits"))?;
        let numbers = (kv.create, kv.modified, kv.version, kv.lease);
        let (create, version, kv) = if tombstone {
            if kv.key.is_empty() {
                return Err(bad("a delete without a key"));
            }
            (0, 0, KeyValueRef { key: kv.key, ..KeyValueRef::default() })
        } else if kv.key.is_empty() {
            if numbers != (0, 0, 0, 0) || !kv.value.is_empty() {
                return Err(bad("a value without a key"));
            }
            (rev.main, 1, kv)
        } else {
            if kv.modified != rev.main || !(1..=rev.main).contains(&kv.create) || kv.version < 1 {
                return Err(bad("the value names another revision than its place"));
            }
            (kv.create, kv.version, kv)
        };
        let digest = &mut self.store.digest;
        match tombstone {
            true => digest.delete(rev, kv.key),
            false => digest.put(rev, kv.key, kv.value, kv.lease),
        }
        let (handle, bytes) = self.store.tail.append(self.store.config.segment_bytes, rev, tombstone, &kv);
        let version = Version { main: rev.main, create, version, lease: kv.lease, sub, handle };
        match self.keys.get_mut(kv.key) {
            Some(versions) => versions.push(version),
            None => drop(self.keys.insert(Key::from(kv.key), vec![version])),
        }
        self.last = rev;
        self.rows += 1;
        Ok(bytes[record::HEADER..] == *body)
    }

    /// As [`Store::unwritten`].
    pub fn unwritten(&self, most: usize) -> Vec<Extent> {
        self.store.unwritten(most)
    }

    /// Bytes of records that [`Import::unwritten`] would give in all.
    pub fn unwritten_bytes(&self) -> u64 {
        self.store.unwritten_bytes()
    }

    /// As [`Store::written`].
    pub fn written(&mut self, segment: u32, upto: u32, sealed: bool) {
        self.store.written(segment, upto, sealed);
    }

    /// All rows were given.
    ///
    /// # Errors
    /// The tables contradict the rows or one another.
    pub fn finish(mut self, tables: Tables) -> Result<Imported, Damage> {
        let bad = |what: String| Damage::new(0, what);
        let store = &mut self.store;
        store.applied = tables.applied;
        store.revision = tables.revision.max(self.last.main).max(tables.compacted).max(1);
        store.compacted = tables.compacted.max(-1);
        let mut leases = Vec::with_capacity(tables.leases.len());
        let mut ids = BTreeSet::new();
        for &(id, ttl, left) in &tables.leases {
            if id == 0 || ttl < 1 || left > ttl || !ids.insert(id) {
                return Err(bad(format!("lease {id:016x}: twice, or without an id or a time to live")));
            }
            let left = if left > 0 { left } else { ttl };
            leases.push(LeaseHead { id, ttl, granted: tables.applied.index, deadline: lease::deadline(0, left) });
        }
        let orphans = self.orphans(&tables);
        for &id in &orphans {
            let ttl = lease::MAX_TTL;
            leases.push(LeaseHead { id, ttl, granted: tables.applied.index, deadline: lease::deadline(0, ttl) });
        }
        self.take_tables(tables, leases);
        let keys = std::mem::take(&mut self.keys);
        let mut before: &[u8] = b"";
        for (key, versions) in &keys {
            let latest = versions.last().expect("a key has versions");
            assert!(self.store.leases.load_key(key, latest.lease), "orphans were adopted");
            self.store.keys.load(key, common_prefix(before, key), versions);
            before = key;
        }
        self.store.keys.loaded();
        while !self.store.sweep(10_000) {}
        Ok(Imported { store: self.store, orphans })
    }

    fn orphans(&self, tables: &Tables) -> Vec<i64> {
        let known: BTreeSet<i64> = tables.leases.iter().map(|(id, ..)| *id).collect();
        let named = self.keys.values().filter_map(|versions| versions.last()).map(|latest| latest.lease);
        let orphans: BTreeSet<i64> = named.filter(|id| *id != 0 && !known.contains(id)).collect();
        orphans.into_iter().collect()
    }

    /// The digest takes in everything, so that members restored from different files are told
    /// apart.
    fn take_tables(&mut self, tables: Tables, leases: Vec<LeaseHead>) {
        let store = &mut self.store;
        store.digest.effect(Effect::Compact);
        store.digest.int(store.revision);
        store.digest.int(store.compacted);
        for LeaseHead { id, ttl, granted, deadline } in leases {
            store.digest.effect(Effect::LeaseGrant);
            mix(&mut store.digest, &[id as u64, ttl as u64, granted, deadline]);
            store.leases.insert(id, Lease { ttl, granted, deadline, keys: BTreeSet::new() });
        }
        for alarm in tables.alarms {
            store.digest.effect(Effect::Alarm);
            mix(&mut store.digest, &[alarm.member, i64::from(alarm.alarm) as u64]);
            store.alarms.insert(alarm);
        }
        store.conf = Conf { voters: tables.members.iter().map(|member| member.id).collect(), learners: Vec::new() };
        store.conf.voters.sort_unstable();
        for member in tables.members {
            store.digest.effect(Effect::Member);
            mix(&mut store.digest, &[member.id]);
            let earlier = store.members.insert(member.id, member);
            assert!(earlier.is_none(), "members have different ids");
        }
        store.cluster_version = tables.cluster_version;
        take_auth(store, tables.auth);
    }
}

fn take_auth(store: &mut Store, tables: AuthTables) {
    if tables.revision > 1 || tables.enabled {
        store.digest.effect(Effect::Auth);
        mix(&mut store.digest, &[u64::from(tables.enabled), tables.revision]);
    }
    let mut encoded = Vec::new();
    tables.users.iter().for_each(|user| encode_user(user, &mut encoded));
    tables.roles.iter().for_each(|role| encode_role(role, &mut encoded));
    if !encoded.is_empty() {
        store.digest.bytes(&encoded);
    }
    // A directory that has users must not look untouched.
    let touched = !encoded.is_empty() || tables.enabled;
    store.auth.load(tables.enabled, tables.revision.max(if touched { 2 } else { 1 }));
    for user in tables.users {
        assert!(store.auth.load_user(user), "users have different names");
    }
    for role in tables.roles {
        assert!(store.auth.load_role(role), "roles have different names");
    }
    store.auth.loaded();
}

fn mix(digest: &mut Digest, words: &[u64]) {
    for word in words {
        digest.word(*word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HEADER;

    fn body(key: &str, create: i64, modified: i64, version: i64, lease: i64) -> Vec<u8> {
        let mut out = Vec::new();
        KeyValueRef { key: key.as_bytes(), create, modified, version, value: b"v", lease }.encode(&mut out);
        out
    }

    fn deleted(key: &str) -> Vec<u8> {
        let mut out = Vec::new();
        KeyValueRef { key: key.as_bytes(), ..Default::default() }.encode(&mut out);
        out
    }

    fn rev(main: i64) -> Rev {
        Rev { main, sub: 0 }
    }

    #[test]
    fn history_leases_and_the_bumped_revision_come_over() {
        let mut import = Import::new(Config::default());
        assert!(import.row(rev(2), false, &body("a", 2, 2, 1, 0)).unwrap());
        assert!(import.row(rev(3), false, &body("a", 2, 3, 2, 7)).unwrap());
        assert!(import.row(rev(4), true, &deleted("b")).unwrap(), "its put was compacted");
        assert!(import.row(rev(5), false, &body("c", 5, 5, 1, 9)).unwrap());
        assert!(import.row(rev(1000), false, b"").unwrap());
        assert_eq!((import.rows(), import.last()), (5, 1000));
        let tables = Tables { compacted: 4, leases: vec![(7, 60, 20)], ..Tables::default() };
        let Imported { store, orphans } = import.finish(tables).unwrap();
        assert_eq!((store.revision(), store.compacted(), orphans), (1000, 4, vec![9]));
        assert_eq!(store.lease(7).unwrap().deadline, 20_000);
        assert_eq!(store.lease(9).unwrap().ttl, lease::MAX_TTL);
        assert_eq!(store.get(b"a").map(|item| (item.version, item.lease)), Some((2, 7)));
        assert!(store.get_at(b"a", 2).is_none(), "it was superseded below the compacted revision");
        assert!(store.get(b"b").is_none());
        assert_eq!(store.unwritten(usize::MAX)[0].parts.last().unwrap().len(), HEADER);
        // The bumped revision survives a checkpoint like any key.
        let mut store = store;
        let (head, mut cursor) = store.image();
        let mut rows = Vec::new();
        assert!(store.image_rows(&mut cursor, 100, &mut rows));
        let loaded = Store::load::<_, Damage>(Config::default(), head, [Ok(rows)]).unwrap();
        assert_eq!((loaded.keys(), loaded.revision()), (3, 1000));
        let record = |handle| store.in_memory(handle).unwrap();
        assert_eq!(loaded.hash_kv(1000, record), store.hash_kv(1000, record));
    }

    #[test]
    fn contradictions_are_refused_with_their_revision() {
        let table: [(i64, bool, Vec<u8>, &str); 6] = [
            (1, false, body("a", 1, 1, 1, 0), "do not ascend"),
            (3, false, body("a", 3, 4, 1, 0), "another revision"),
            (3, false, body("a", 4, 3, 1, 0), "another revision"),
            (3, true, deleted(""), "without a key"),
            (3, false, vec![0x2a, 1, b'v'], "without a key"),
            (3, false, vec![0x0a, 9], ""),
        ];
        for (main, tombstone, body, text) in table {
            let error = Import::new(Config::default()).row(rev(main), tombstone, &body).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn another_file_has_another_digest() {
        let digest = |value: &str| {
            let mut import = Import::new(Config::default());
            import.row(rev(2), false, &body(value, 2, 2, 1, 0)).unwrap();
            import.finish(Tables { compacted: -1, ..Tables::default() }).unwrap().store.digest()
        };
        assert_eq!(digest("a"), digest("a"));
        assert_ne!(digest("a"), digest("b"));
    }
}
