//! The sequential model: what an etcd does when nothing fails, told with plain maps.
//!
//! It replays the committed log, one entry after the other, and can afterwards be asked for the
//! state at any point of it. Written apart from the store it judges: every version of every key
//! is kept for ever, nothing is clever.

use crate::asked;
use crate::ops::{Asker, Blob, Command, Compare, Delete, Envelope, Op, Put, Range, Txn, decode};
use crate::users::Users;
use std::collections::{BTreeMap, BTreeSet};
pub use store::Error;
use store::Rev;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kv {
    pub key: Blob,
    pub value: Blob,
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Put { prev: Option<Kv> },
    Delete { deleted: i64, prevs: Vec<Kv> },
    Range { kvs: Vec<Kv>, count: i64, more: bool },
    Txn { succeeded: bool, responses: Vec<(i64, Reply)> },
    Compact,
    Grant { id: i64, ttl: i64 },
    Revoke,
    Other,
}

/// One change as watches see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub revision: i64,
    pub sub: i64,
    pub tombstone: bool,
    /// For a tombstone: key and `modified` alone.
    pub kv: Kv,
    /// The key just before this revision.
    pub prev: Option<Kv>,
}

#[derive(Clone, Debug)]
struct Version {
    main: i64,
    /// None: deleted.
    kv: Option<Kv>,
}

impl Version {
    fn has_lease(&self, lease: i64) -> bool {
        self.kv.as_ref().is_some_and(|kv| kv.lease == lease)
    }
}

#[derive(Clone, Debug)]
pub struct Lease {
    pub ttl: i64,
    pub granted_at: u64,
    /// Index that ended it; `u64::MAX` while it lives.
    pub ended_at: u64,
    pub expired: bool,
    keys: BTreeSet<Blob>,
}

/// Where the log stood after one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub index: u64,
    pub revision: i64,
    pub compacted: i64,
}

/// What one entry did.
#[derive(Clone, Debug)]
pub struct Done {
    pub mark: Mark,
    pub tag: Option<u64>,
    pub envelope: Option<Envelope>,
    pub result: Result<Reply, Error>,
    /// Leases ended by this entry's expiry.
    pub expired: Vec<i64>,
    /// Leases of an expiry that the fence refused.
    pub fenced: usize,
}

#[derive(Debug)]
pub struct Model {
    keys: BTreeMap<Blob, Vec<Version>>,
    /// By revision; index 0 is revision 2.
    events: Vec<Vec<Event>>,
    /// Every life of every lease id, oldest first.
    leases: BTreeMap<i64, Vec<Lease>>,
    alarms: BTreeSet<(u64, i64)>,
    /// Index of the last entry that changed them, and all that ever were.
    alarms_changed: u64,
    alarms_said: BTreeSet<(u64, i64)>,
    /// One per applied index, from `first` on.
    marks: Vec<Mark>,
    /// And roles.
    pub users: Users,
}

/// etcd's rule for key and range_end, told the long way.
pub fn within(key: &[u8], from: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == from,
        [0] => key >= from,
        end => key >= from && key < end,
    }
}

impl Model {
    /// An empty store after a log that ends at `index`.
    pub fn new(index: u64) -> Model {
        let mark = Mark { index, revision: 1, compacted: -1 };
        Model {
            keys: BTreeMap::new(),
            events: Vec::new(),
            leases: BTreeMap::new(),
            alarms: BTreeSet::new(),
            alarms_changed: 0,
            alarms_said: BTreeSet::new(),
            users: Users::default(),
            marks: vec![mark],
        }
    }

    pub fn last(&self) -> Mark {
        *self.marks.last().expect("never empty")
    }

    /// The state after `index`.
    pub fn mark(&self, index: u64) -> Option<Mark> {
        let first = self.marks[0].index;
        self.marks.get(usize::try_from(index.checked_sub(first)?).ok()?).copied()
    }

    /// Marks from `low` to `high`, both included.
    pub fn marks(&self, low: u64, high: u64) -> impl Iterator<Item = Mark> + '_ {
        (low.max(self.marks[0].index)..=high).map_while(|i| self.mark(i))
    }

    /// Events of one revision, in order.
    pub fn events(&self, revision: i64) -> &[Event] {
        usize::try_from(revision - 2).ok().and_then(|at| self.events.get(at)).map_or(&[], Vec::as_slice)
    }

    pub fn lease(&self, id: i64) -> &[Lease] {
        self.leases.get(&id).map_or(&[], Vec::as_slice)
    }

    /// True when the lease lived after the entry `index`.
    pub fn lease_lives(&self, id: i64, index: u64) -> bool {
        self.lease(id).iter().any(|l| l.granted_at <= index && index < l.ended_at)
    }

    pub fn living_leases(&self) -> Vec<i64> {
        self.leases
            .iter()
            .filter(|(_, lives)| lives.last().is_some_and(|l| l.ended_at == u64::MAX))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Keys attached now, ascending.
    pub fn lease_keys(&self, id: i64) -> Vec<Blob> {
        self.lease(id).last().map_or(Vec::new(), |l| l.keys.iter().cloned().collect())
    }

    /// The alarms now: member and kind.
    pub fn alarms(&self) -> &BTreeSet<(u64, i64)> {
        &self.alarms
    }

    /// Whether a member that had applied `index` when it was asked may list these alarms.
    pub fn may_list(&self, index: u64, alarms: &BTreeSet<(u64, i64)>) -> bool {
        alarms.is_subset(&self.alarms_said) && (index < self.alarms_changed || *alarms == self.alarms)
    }

    /// Leases that lived after the entry `index`, with their TTL.
    pub fn leases_at(&self, index: u64) -> Vec<(i64, i64)> {
        let lived =
            |lives: &Vec<Lease>| lives.iter().find(|l| l.granted_at <= index && index < l.ended_at).map(|l| l.ttl);
        self.leases.iter().filter_map(|(id, lives)| Some((*id, lived(lives)?))).collect()
    }

    /// Leases that lived all the time between two entries, and all that lived some of it.
    pub fn leases_between(&self, from: u64, upto: u64) -> (BTreeSet<i64>, BTreeSet<i64>) {
        let ids = |lives: &dyn Fn(&Lease) -> bool| {
            self.leases.iter().filter(|(_, all)| all.iter().any(lives)).map(|(id, _)| *id).collect()
        };
        let must = ids(&|l| l.granted_at <= from && upto < l.ended_at);
        (must, ids(&|l| l.granted_at <= upto && from < l.ended_at))
    }

    /// Whether these keys, ascending, may have been those of a lease at some time since the entry
    /// `index`: each one hung on it then, and none is left out that hung on it all the time.
    pub fn were_attached(&self, lease: i64, index: u64, keys: &[Blob]) -> bool {
        let Some(from) = self.mark(index) else { return true };
        let ever = |key: &Blob| {
            let versions = self.keys.get(key).map_or(&[][..], Vec::as_slice);
            let old = versions.iter().rev().find(|v| v.main <= from.revision);
            old.into_iter().chain(versions.iter().filter(|v| v.main > from.revision)).any(|v| v.has_lease(lease))
        };
        let always = |key: &&Blob| {
            let versions = &self.keys[*key];
            let old = versions.iter().rev().find(|v| v.main <= from.revision).is_some_and(|v| v.has_lease(lease));
            old && versions.iter().filter(|v| v.main > from.revision).all(|v| v.has_lease(lease))
        };
        keys.is_sorted_by(|a, b| a < b)
            && keys.iter().all(ever)
            && self.keys.keys().filter(always).all(|key| keys.contains(key))
    }

    /// Pairs of the keys that are there at a revision, by key.
    pub fn living_at(&self, revision: i64) -> impl Iterator<Item = &Kv> {
        self.keys.keys().filter_map(move |key| self.at(key, revision))
    }

    /// Revisions, in order, that are kept at a mark: those above the compacted revision, and what
    /// it keeps of each key, a delete exactly at it included.
    pub fn kept(&self, mark: Mark) -> Vec<Rev> {
        let (mut kept, mut above) = (BTreeMap::new(), Vec::new());
        for event in (1..=mark.revision).flat_map(|main| self.events(main)) {
            let rev = Rev { main: event.revision, sub: event.sub };
            if event.revision > mark.compacted {
                above.push(rev);
            } else if event.tombstone && event.revision < mark.compacted {
                kept.remove(&event.kv.key);
            } else {
                kept.insert(&event.kv.key, rev);
            }
        }
        let mut kept: Vec<Rev> = kept.into_values().chain(above).collect();
        kept.sort_unstable();
        kept
    }

    /// Every key that ever was, for questions about old revisions.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    fn at(&self, key: &[u8], revision: i64) -> Option<&Kv> {
        let versions = self.keys.get(key)?;
        versions.iter().rev().find(|v| v.main <= revision)?.kv.as_ref()
    }

    /// Applies the next entry of the committed log; None when its bytes say nothing known.
    pub fn apply(&mut self, index: u64, term: u64, normal: bool, data: &[u8]) -> Option<Done> {
        let last = self.last();
        assert_eq!(index, last.index + 1, "the log has no gaps");
        let envelope = if normal && !data.is_empty() { Some(decode(data)?) } else { None };
        let mut act = Act { now: last, next_sub: 0, changed: false };
        let (mut expired, mut fenced) = (Vec::new(), 0);
        let result = match envelope.as_ref().map(|e| &e.command) {
            None => Ok(Reply::Other),
            Some(Command::Expire { term: by, leases }) => {
                for &(id, grant) in leases {
                    let lives = self
                        .leases
                        .get(&id)
                        .and_then(|l| l.last())
                        .is_some_and(|l| l.ended_at == u64::MAX && l.granted_at == grant);
                    if *by != term || !lives {
                        fenced += 1;
                        continue;
                    }
                    self.end_lease(id, index, true, &mut act);
                    act.close();
                    expired.push(id);
                }
                Ok(Reply::Other)
            }
            Some(command) => {
                let (command, asker) = (command.clone(), envelope.as_ref().map(|e| e.asker.clone()));
                self.command(&command, &asker.unwrap_or_default(), index, &mut act)
            }
        };
        act.close();
        let mark = Mark { index, ..act.now };
        self.marks.push(mark);
        let tag = envelope.as_ref().and_then(|e| e.tag);
        Some(Done { mark, tag, envelope, result, expired, fenced })
    }

    fn refused_by_alarm(&self, command: &Command) -> Option<Error> {
        let raised = |kind| self.alarms.iter().any(|&(_, k)| k == kind);
        let changes = matches!(
            command,
            Command::Put(_)
                | Command::Delete(_)
                | Command::Txn(_)
                | Command::Compact { .. }
                | Command::Grant { .. }
                | Command::Revoke { .. }
        );
        if changes && raised(2) {
            return Some(Error::Corrupt);
        }
        let grows = match command {
            Command::Put(_) | Command::Grant { .. } => true,
            Command::Txn(t) => has_put(t),
            _ => false,
        };
        (grows && raised(1)).then_some(Error::NoSpace)
    }

    fn command(&mut self, command: &Command, asker: &Asker, index: u64, act: &mut Act) -> Result<Reply, Error> {
        if let Some(error) = self.refused_by_alarm(command) {
            return Err(error);
        }
        self.users.now().lets(asker, &asked::of_command(command), |lease| self.lease_keys(lease))?;
        match command {
            Command::Put(put) => {
                self.check_put(put, |m, key| m.at(key, i64::MAX).is_some())?;
                Ok(self.put(put, act))
            }
            Command::Delete(delete) => Ok(self.delete(delete, act)),
            Command::Txn(txn) => {
                let mut path = Vec::new();
                self.choose(txn, act.now.revision, &mut path);
                let mut shadow = BTreeMap::new();
                self.check_path(txn, &mut path.clone().into_iter(), act.now, &mut shadow)?;
                Ok(self.run(txn, &mut path.into_iter(), act))
            }
            Command::Compact { revision, .. } => {
                self.check_compact(*revision, act.now)?;
                act.now.compacted = *revision;
                Ok(Reply::Compact)
            }
            Command::Grant { id, ttl } => self.grant(*id, *ttl, index),
            Command::Revoke { id } => {
                if !self.lease_lives(*id, index) {
                    return Err(Error::LeaseNotFound);
                }
                self.end_lease(*id, index, false, act);
                Ok(Reply::Revoke)
            }
            Command::Alarm { action, member, kind } => {
                let changed = match action {
                    1 if *kind != 0 => self.alarms.insert((*member, *kind)),
                    2 => self.alarms.remove(&(*member, *kind)),
                    _ => false,
                };
                if changed {
                    self.alarms_changed = index;
                    self.alarms_said.extend(&self.alarms);
                }
                Ok(Reply::Other)
            }
            Command::Users(change) => self.users.apply(index, change).map(|()| Reply::Other),
            Command::Checkpoint { .. } | Command::Nothing | Command::Expire { .. } => Ok(Reply::Other),
        }
    }

    fn check_compact(&self, revision: i64, now: Mark) -> Result<(), Error> {
        match revision {
            r if r <= now.compacted => Err(Error::Compacted),
            r if r > now.revision => Err(Error::FutureRev),
            _ => Ok(()),
        }
    }

    fn grant(&mut self, id: i64, ttl: i64, index: u64) -> Result<Reply, Error> {
        if ttl > 9_000_000_000 {
            return Err(Error::LeaseTtlTooLarge);
        }
        let lives = self.leases.entry(id).or_default();
        if lives.last().is_some_and(|l| l.ended_at == u64::MAX) {
            return Err(Error::LeaseExist);
        }
        lives.push(Lease { ttl, granted_at: index, ended_at: u64::MAX, expired: false, keys: BTreeSet::new() });
        Ok(Reply::Grant { id, ttl })
    }

    fn end_lease(&mut self, id: i64, index: u64, expired: bool, act: &mut Act) {
        let lease = self.leases.get_mut(&id).and_then(|l| l.last_mut()).expect("the lease lives");
        (lease.ended_at, lease.expired) = (index, expired);
        for key in std::mem::take(&mut lease.keys) {
            self.write(&key, None, act);
        }
    }

    fn check_put(&self, put: &Put, exists: impl Fn(&Model, &[u8]) -> bool) -> Result<(), Error> {
        if put.lease != 0 && self.leases.get(&put.lease).and_then(|l| l.last()).is_none_or(|l| l.ended_at != u64::MAX) {
            return Err(Error::LeaseNotFound);
        }
        if (put.ignore_value || put.ignore_lease) && !exists(self, &put.key) {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    /// Adds one version and its event; `kv` None deletes.
    fn write(&mut self, key: &[u8], kv: Option<Kv>, act: &mut Act) {
        let (main, sub) = act.next();
        let prev = self.at(key, main - 1).cloned();
        let shown = kv.clone().unwrap_or_else(|| Kv {
            key: key.to_vec(),
            value: Vec::new(),
            create: 0,
            modified: main,
            version: 0,
            lease: 0,
        });
        let event = Event { revision: main, sub, tombstone: kv.is_none(), kv: shown, prev };
        if sub == 0 {
            assert_eq!(self.events.len() as i64, main - 2);
            self.events.push(Vec::new());
        }
        self.events.last_mut().expect("just pushed").push(event);
        self.keys.entry(key.to_vec()).or_default().push(Version { main, kv });
    }

    fn detach(&mut self, key: &[u8], lease: i64) {
        if let Some(lease) = self.leases.get_mut(&lease).and_then(|l| l.last_mut()) {
            lease.keys.remove(key);
        }
    }

    fn put(&mut self, put: &Put, act: &mut Act) -> Reply {
        let old = self.at(&put.key, i64::MAX).cloned();
        let main = act.now.revision + 1;
        let mut kv = Kv {
            key: put.key.clone(),
            value: put.value.clone(),
            create: old.as_ref().map_or(main, |o| o.create),
            modified: main,
            version: old.as_ref().map_or(1, |o| o.version + 1),
            lease: put.lease,
        };
        if let Some(old) = &old {
            if put.ignore_value {
                kv.value = old.value.clone();
            }
            if put.ignore_lease {
                kv.lease = old.lease;
            }
            self.detach(&put.key, old.lease);
        }
        if kv.lease != 0 {
            let lease = self.leases.get_mut(&kv.lease).and_then(|l| l.last_mut()).expect("checked");
            lease.keys.insert(put.key.clone());
        }
        self.write(&put.key, Some(kv), act);
        Reply::Put { prev: if put.prev_kv { old } else { None } }
    }

    fn delete(&mut self, delete: &Delete, act: &mut Act) -> Reply {
        let doomed: Vec<Kv> = self.living(&delete.key, &delete.end, i64::MAX).into_iter().cloned().collect();
        for kv in &doomed {
            self.detach(&kv.key, kv.lease);
            self.write(&kv.key, None, act);
        }
        Reply::Delete { deleted: doomed.len() as i64, prevs: if delete.prev_kv { doomed } else { Vec::new() } }
    }

    fn living(&self, key: &[u8], end: &[u8], revision: i64) -> Vec<&Kv> {
        self.keys.keys().filter(|k| within(k, key, end)).filter_map(|k| self.at(k, revision)).collect()
    }

    // Transactions. The chosen path is found first, in preorder: one flag for each transaction met.

    fn choose(&self, txn: &Txn, revision: i64, path: &mut Vec<bool>) {
        let holds = txn.compare.iter().all(|c| self.holds(c, revision));
        path.push(holds);
        for op in if holds { &txn.success } else { &txn.failure } {
            if let Op::Txn(inner) = op {
                self.choose(inner, revision, path);
            }
        }
    }

    fn holds(&self, c: &Compare, revision: i64) -> bool {
        let found = self.living(&c.key, &c.end, revision);
        if found.is_empty() {
            return c.target != 3 && judge(c.result, 0.cmp(&c.number));
        }
        found.iter().all(|kv| match c.target {
            0 => judge(c.result, kv.version.cmp(&c.number)),
            1 => judge(c.result, kv.create.cmp(&c.number)),
            2 => judge(c.result, kv.modified.cmp(&c.number)),
            3 => judge(c.result, kv.value.as_slice().cmp(&c.value)),
            _ => judge(c.result, kv.lease.cmp(&c.number)),
        })
    }

    /// `shadow`: keys as the path so far would leave them (true = there).
    fn check_path(
        &self,
        txn: &Txn,
        path: &mut impl Iterator<Item = bool>,
        now: Mark,
        shadow: &mut BTreeMap<Blob, bool>,
    ) -> Result<(), Error> {
        let holds = path.next().expect("one flag each");
        for op in if holds { &txn.success } else { &txn.failure } {
            match op {
                Op::Range(r) if r.revision > now.revision => return Err(Error::FutureRev),
                Op::Range(r) if r.revision != 0 && r.revision < now.compacted => return Err(Error::Compacted),
                Op::Range(_) => {}
                Op::Put(put) => {
                    self.check_put(put, |m, key| {
                        shadow.get(key).copied().unwrap_or_else(|| m.at(key, now.revision).is_some())
                    })?;
                    shadow.insert(put.key.clone(), true);
                }
                Op::Delete(d) => {
                    for (_, there) in shadow.iter_mut().filter(|(k, _)| within(k, &d.key, &d.end)) {
                        *there = false;
                    }
                    for key in self.keys.keys().filter(|k| within(k, &d.key, &d.end)) {
                        shadow.insert(key.clone(), false);
                    }
                }
                Op::Txn(inner) => self.check_path(inner, path, now, shadow)?,
            }
        }
        Ok(())
    }

    fn run(&mut self, txn: &Txn, path: &mut impl Iterator<Item = bool>, act: &mut Act) -> Reply {
        let holds = path.next().expect("one flag each");
        let mut responses = Vec::new();
        for op in if holds { &txn.success } else { &txn.failure } {
            let reply = match op {
                Op::Range(r) => {
                    let revision = if r.revision > 0 { r.revision } else { i64::MAX };
                    self.select(r, revision)
                }
                Op::Put(put) => self.put(put, act),
                Op::Delete(delete) => self.delete(delete, act),
                Op::Txn(inner) => self.run(inner, path, act),
            };
            let revision = match op {
                Op::Txn(_) => 0,
                _ => act.now.revision + i64::from(act.changed),
            };
            responses.push((revision, reply));
        }
        Reply::Txn { succeeded: holds, responses }
    }

    // Reads.

    /// A range as it is answered at `mark`.
    pub fn range(&self, r: &Range, mark: Mark) -> Result<Reply, Error> {
        let revision = match r.revision {
            wanted if wanted <= 0 => mark.revision,
            wanted if wanted > mark.revision => return Err(Error::FutureRev),
            wanted if wanted < mark.compacted => return Err(Error::Compacted),
            wanted => wanted,
        };
        Ok(self.select(r, revision))
    }

    /// A transaction of ranges alone as it is answered at `mark`.
    pub fn read_txn(&self, txn: &Txn, mark: Mark) -> Result<Reply, Error> {
        let succeeded = txn.compare.iter().all(|c| self.holds(c, mark.revision));
        let mut responses = Vec::new();
        for op in if succeeded { &txn.success } else { &txn.failure } {
            if let Op::Range(r) = op {
                if r.revision < 0 && r.revision < mark.compacted {
                    return Err(Error::Compacted);
                }
                responses.push((mark.revision, self.range(r, mark)?));
            }
        }
        Ok(Reply::Txn { succeeded, responses })
    }

    fn select(&self, r: &Range, revision: i64) -> Reply {
        let all = self.living(&r.key, &r.end, revision);
        let count = all.len() as i64;
        if r.count_only {
            return Reply::Range { kvs: Vec::new(), count, more: false };
        }
        let mut kvs: Vec<Kv> = all
            .into_iter()
            .filter(|kv| r.max_mod == 0 || kv.modified <= r.max_mod)
            .filter(|kv| r.min_mod == 0 || kv.modified >= r.min_mod)
            .filter(|kv| r.max_create == 0 || kv.create <= r.max_create)
            .filter(|kv| r.min_create == 0 || kv.create >= r.min_create)
            .cloned()
            .collect();
        let limit = if r.limit > 0 { r.limit as usize } else { usize::MAX };
        let filtered = [r.min_mod, r.max_mod, r.min_create, r.max_create].iter().any(|&f| f != 0);
        // No order asked but a target named: the cut comes first, then the sort.
        if r.order == 0 && !filtered {
            kvs.truncate(limit.saturating_add(1));
        }
        let descending = r.order == 2;
        if r.target != 0 || descending {
            kvs.sort_by(|a, b| {
                let order = sort_key(r.target, a, b);
                if descending { order.reverse() } else { order }
            });
        }
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if r.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
                if r.target != 4 {
                    kv.lease = 0;
                }
            }
        }
        Reply::Range { kvs, count, more }
    }
}

fn has_put(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        Op::Put(_) => true,
        Op::Txn(t) => has_put(t),
        _ => false,
    })
}

/// How a sort target orders two answers.
pub fn sort_key(target: i64, a: &Kv, b: &Kv) -> std::cmp::Ordering {
    match target {
        0 => a.key.cmp(&b.key),
        1 => a.version.cmp(&b.version),
        2 => a.create.cmp(&b.create),
        3 => a.modified.cmp(&b.modified),
        _ => a.value.cmp(&b.value),
    }
}

fn judge(result: i64, order: std::cmp::Ordering) -> bool {
    match result {
        0 => order.is_eq(),
        1 => order.is_gt(),
        2 => order.is_lt(),
        3 => order.is_ne(),
        _ => true,
    }
}

/// One revision in the making.
struct Act {
    now: Mark,
    next_sub: i64,
    changed: bool,
}

impl Act {
    fn next(&mut self) -> (i64, i64) {
        let sub = self.next_sub;
        self.next_sub += 1;
        self.changed = true;
        (self.now.revision + 1, sub)
    }

    fn close(&mut self) {
        if self.changed {
            self.now.revision += 1;
        }
        (self.next_sub, self.changed) = (0, false);
    }
}

/// The transaction rules that are checked before the log (etcd's duplicate-key rule with its
/// blind spot: a delete to `\0` covers nothing there).
pub fn acceptable(txn: &Txn, most: usize) -> bool {
    fits(txn, most) && [&txn.success, &txn.failure].iter().all(|branch| keys_apart(branch).is_some())
}

fn fits(txn: &Txn, most: usize) -> bool {
    let n = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    n <= most
        && txn.compare.iter().all(|c| !c.key.is_empty())
        && txn.success.iter().chain(&txn.failure).all(|op| match op {
            Op::Range(r) => !r.key.is_empty(),
            Op::Put(p) => {
                !p.key.is_empty() && (!p.ignore_value || p.value.is_empty()) && (!p.ignore_lease || p.lease == 0)
            }
            Op::Delete(d) => !d.key.is_empty(),
            Op::Txn(t) => fits(t, most - n),
        })
}

#[derive(Default)]
struct Touched {
    puts: BTreeSet<Blob>,
    deletes: Vec<(Blob, Blob)>,
}

fn covered(key: &[u8], (from, end): &(Blob, Blob)) -> bool {
    match end.as_slice() {
        [] => key == from.as_slice(),
        end => key >= from.as_slice() && key < end,
    }
}

/// What a branch writes; None if it steps on itself. The branches of a nested transaction exclude
/// each other, and its puts are held against deletes of this branch and of the nested transactions
/// before it, not behind.
fn keys_apart(ops: &[Op]) -> Option<Touched> {
    let mut all = Touched::default();
    let clash = |all: &Touched, key: &Blob| all.puts.contains(key) || all.deletes.iter().any(|d| covered(key, d));
    for op in ops {
        if let Op::Delete(d) = op {
            all.deletes.push((d.key.clone(), d.end.clone()));
        }
    }
    for op in ops {
        let Op::Txn(txn) = op else { continue };
        let (then, other) = (keys_apart(&txn.success)?, keys_apart(&txn.failure)?);
        if then.puts.iter().chain(&other.puts).any(|key| clash(&all, key)) {
            return None;
        }
        all.puts.extend(then.puts.into_iter().chain(other.puts));
        all.deletes.extend(then.deletes.into_iter().chain(other.deletes));
    }
    for op in ops {
        let Op::Put(p) = op else { continue };
        if clash(&all, &p.key) {
            return None;
        }
        all.puts.insert(p.key.clone());
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Command {
        Command::Put(Put { key: key.into(), value: value.into(), prev_kv: true, ..Put::default() })
    }

    fn apply(model: &mut Model, command: Command) -> Result<Reply, Error> {
        let index = model.last().index + 1;
        model.apply(index, 1, true, &command.encode(index)).expect("known").result
    }

    fn all(model: &Model, revision: i64) -> Result<Vec<(String, i64, i64)>, Error> {
        let range = Range { key: vec![0], end: vec![0], revision, ..Range::default() };
        let Reply::Range { kvs, .. } = model.range(&range, model.last())? else { panic!("a range") };
        Ok(kvs.into_iter().map(|kv| (String::from_utf8(kv.key).expect("text"), kv.modified, kv.version)).collect())
    }

    #[test]
    fn versions_deletes_and_compaction() {
        let mut m = Model::new(3);
        apply(&mut m, put("a", "1")).expect("put");
        apply(&mut m, put("a", "2")).expect("put");
        apply(&mut m, put("b", "3")).expect("put");
        let deleted = apply(&mut m, Command::Delete(Delete { key: b"a".to_vec(), ..Delete::default() }));
        assert_eq!(deleted, Ok(Reply::Delete { deleted: 1, prevs: vec![] }));
        assert_eq!(m.last().revision, 5);
        assert_eq!(all(&m, 0), Ok(vec![("b".into(), 4, 1)]));
        assert_eq!(all(&m, 3), Ok(vec![("a".into(), 3, 2)]));
        assert_eq!(apply(&mut m, Command::Compact { revision: 4, physical: false }), Ok(Reply::Compact));
        assert_eq!(apply(&mut m, Command::Compact { revision: 4, physical: false }), Err(Error::Compacted));
        assert_eq!(all(&m, 3), Err(Error::Compacted));
        assert_eq!(all(&m, 4), Ok(vec![("a".into(), 3, 2), ("b".into(), 4, 1)]));
        assert_eq!(all(&m, 6), Err(Error::FutureRev));
    }

    #[test]
    fn a_transaction_shares_one_revision_and_sees_itself() {
        let mut m = Model::new(3);
        let txn = Txn {
            compare: vec![Compare { key: b"a".to_vec(), ..Compare::default() }],
            success: vec![
                Op::Range(Range { key: b"a".to_vec(), ..Range::default() }),
                Op::Put(Put { key: b"a".to_vec(), ..Put::default() }),
                Op::Txn(Txn {
                    success: vec![Op::Range(Range { key: b"a".to_vec(), ..Range::default() })],
                    ..Txn::default()
                }),
            ],
            failure: vec![],
        };
        let Ok(Reply::Txn { succeeded: true, responses }) = apply(&mut m, Command::Txn(txn)) else { panic!("holds") };
        assert_eq!(responses.iter().map(|r| r.0).collect::<Vec<_>>(), [1, 2, 0]);
        assert!(
            matches!(&responses[2].1, Reply::Txn { responses, .. } if matches!(&responses[0], (2, Reply::Range { count: 1, .. })))
        );
    }

    #[test]
    fn leases_end_with_their_keys_and_the_fence_holds() {
        let mut m = Model::new(3);
        assert_eq!(apply(&mut m, Command::Grant { id: 9, ttl: 2 }), Ok(Reply::Grant { id: 9, ttl: 2 }));
        let leased = |key: &[u8]| Command::Put(Put { key: key.to_vec(), lease: 9, ..Put::default() });
        apply(&mut m, leased(b"x")).expect("put");
        apply(&mut m, leased(b"y")).expect("put");
        apply(&mut m, put("x", "free")).expect("put");
        let mut expire = crate::proto::Writer::default();
        let mut inner = crate::proto::Writer::default();
        let mut pair = crate::proto::Writer::default();
        pair.int(1, 9).int(2, 4);
        inner.int(1, 6).message(2, &pair.0);
        expire.message(20002, &inner.0);
        let done = m.apply(8, 7, true, &expire.0).expect("known");
        assert_eq!((done.fenced, m.last().revision), (1, 4), "another term's expiry does nothing");
        let done = m.apply(9, 6, true, &expire.0).expect("known");
        assert_eq!((done.expired, m.last().revision), (vec![9], 5));
        assert_eq!(m.events(5).len(), 1);
        assert_eq!(m.events(5)[0].kv.key, b"y");
    }

    #[test]
    fn the_duplicate_rule() {
        let put = |key: &[u8]| Op::Put(Put { key: key.to_vec(), ..Put::default() });
        let delete =
            |key: &[u8], end: &[u8]| Op::Delete(Delete { key: key.to_vec(), end: end.to_vec(), prev_kv: false });
        let ok = |success: Vec<Op>| acceptable(&Txn { success, ..Txn::default() }, 128);
        assert!(!ok(vec![put(b"x"), put(b"x")]));
        assert!(!ok(vec![put(b"x"), delete(b"a", b"z")]));
        assert!(ok(vec![put(b"x"), delete(b"a", b"\0")]));
        assert!(ok(vec![delete(b"a", b"z"), delete(b"b", b"c")]));
        let nested = |success, failure| Op::Txn(Txn { success, failure, ..Txn::default() });
        assert!(ok(vec![nested(vec![put(b"x")], vec![put(b"x")])]));
        assert!(!ok(vec![nested(vec![put(b"x")], vec![]), nested(vec![put(b"x")], vec![])]));
        let deletes = || nested(vec![delete(b"x", b"")], vec![]);
        assert!(!ok(vec![deletes(), nested(vec![put(b"x")], vec![])]));
        assert!(ok(vec![nested(vec![put(b"x")], vec![]), deletes()]), "a later nested transaction may delete it");
    }
}
