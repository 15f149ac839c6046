//! One committed entry changes the state. The result depends on the state and the entry alone,
//! so every member that applies the same entries holds the same state.
//!
//! Order inside [`Store::apply`]: decode, refuse by alarm, check the request, find every value that
//! is needed (maybe park), and only then change anything. Past that point nothing can fail.

use crate::Located;
use crate::auth::{AuthChange, AuthCommand, needs_of};
use crate::command::{
    self, AlarmAction, Command, DeleteRangeRequest, Envelope, MemberChange, MemberChangeKind, PutRequest,
};
use crate::digest::Effect;
use crate::index::Version;
use crate::lease::{self, Lease};
use crate::parked::{Parked, Step};
use crate::ranges::{Asked, Ranges};
use crate::record::KeyValueRef;
use crate::state::{Conf, Store};
use crate::{AlarmMember, Error, Event, Handle, Item, Key, KeyRange, Origin, Reply, Rev, RevisionEvents};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Alarm numbers that refuse commands.
pub(crate) const ALARM_NOSPACE: i32 = 1;
pub(crate) const ALARM_CORRUPT: i32 = 2;

/// Where an entry stands in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Index of the entry, from 1 on.
    pub index: u64,
    /// Term in which it was proposed.
    pub term: u64,
}

// `Done` is the rule: a box would cost every entry an allocation
/// What became of an entry.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The values of these records are needed and not in memory. Nothing was changed. Call again
    /// for the same entry with the whole records in this order; more may be asked for after them.
    Park(Vec<Handle>),
    /// The step is over, and nothing was changed. Call again for the same entry.
    Pause,
    /// It is applied.
    Done(Applied),
}

/// What an applied entry did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// For the answer's header.
    pub revision: i64,
    /// The answer, or what the user did wrong: nothing was changed then.
    pub result: Result<Reply, Error>,
    /// Who asked; None for entries without an asker.
    pub origin: Option<Origin>,
    /// One per main revision, ascending: more than one only when several leases expired.
    pub events: Vec<Arc<RevisionEvents>>,
    /// Leases that began, ended or got another deadline, in order.
    pub leases: Vec<LeaseChange>,
    /// For the tokens of this member.
    pub auth: Option<AuthChange>,
    /// The answer is not whole: this revision must be pinned at once, until it is
    /// ([`Store::go_on`]).
    pub holds: Option<i64>,
}

/// For the leader, who watches deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// It has begun.
    Granted {
        /// The lease's id.
        id: i64,
        /// Seconds granted.
        ttl: i64,
        /// Index of the entry that granted it.
        granted: u64,
        /// Lease-clock milliseconds.
        deadline: u64,
    },
    /// It has another deadline.
    Checkpointed {
        /// The lease's id.
        id: i64,
        /// Lease-clock milliseconds.
        deadline: u64,
    },
    /// Revoked or expired.
    Ended {
        /// The lease's id.
        id: i64,
    },
}

/// A later version wrote the entry, or a record is not what it must be: the member stops, it never
/// skips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// Index of the entry.
    pub index: u64,
    /// What is wrong, for a person.
    pub reason: String,
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {}: {}", self.index, self.reason)
    }
}

impl std::error::Error for Halt {}

/// Why an entry was not executed. Only possible before the first change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The values of these records decide.
    Needs(Vec<Handle>),
    /// It takes more than one step.
    Pause,
    User(Error),
    Damaged(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::User(error)
    }
}

/// What one entry does, as it grows.
#[derive(Debug, Default)]
struct Effects {
    asked: Asked,
    step: Step,
    holds: Option<i64>,
    /// Somebody may want to know of it: there are events.
    told: bool,
    events: Vec<Arc<RevisionEvents>>,
    leases: Vec<LeaseChange>,
    auth: Option<AuthChange>,
}

/// The changes of one main revision, as they grow.
#[derive(Debug)]
pub(crate) struct Batch {
    main: i64,
    changes: i64,
    /// One for each change, if they are told.
    events: Vec<Event>,
    told: bool,
    pub(crate) ranges: Ranges,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// The newest revision for a reader inside this batch.
    pub(crate) fn newest(&self) -> i64 {
        if self.is_empty() { self.main - 1 } else { self.main }
    }

    /// The change that comes next, if there were some.
    pub(crate) fn next_rev(&self) -> Option<Rev> {
        (!self.is_empty()).then_some(Rev { main: self.main, sub: self.changes })
    }

    /// `event` must follow for each change of a batch that is told.
    fn push(&mut self, event: Event) {
        assert!(self.told && self.events.len() as i64 + 1 == self.changes, "one event for each change");
        // Most revisions have one event, and it is kept for a while: no room for four.
        if self.events.capacity() == 0 {
            self.events.reserve_exact(1);
        }
        self.events.push(event);
    }

    /// A change more, and its revision.
    fn change(&mut self) -> Rev {
        let rev = Rev { main: self.main, sub: self.changes };
        self.changes += 1;
        rev
    }
}

/// As [`Outcome`], less what [`Effects`] hold.
#[allow(clippy::large_enum_variant)]
enum Entered {
    Park(Vec<Handle>),
    Pause,
    Done { result: Result<Reply, Error>, origin: Option<Origin> },
}

impl Store {
    /// Applies the next entry, whole. `fetched`: the records asked for by the last
    /// [`Outcome::Park`]; None: they were not read, or none were asked for.
    ///
    /// # Errors
    /// A later version wrote the entry, or the fetched record is not the one that it must be. The
    /// member must stop.
    ///
    /// # Panics
    /// If `at` is not the next index, or `fetched` was not asked for.
    pub fn apply(&mut self, at: Position, data: &Bytes, fetched: Option<&[Bytes]>) -> Result<Outcome, Halt> {
        self.apply_in_steps(at, data, fetched, Asked::Whole, &mut Step::default())
    }

    /// As [`Store::apply`], no more than `step` allows at once, and with an answer for who
    /// `asked`.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn apply_in_steps(
        &mut self,
        at: Position,
        data: &Bytes,
        fetched: Option<&[Bytes]>,
        asked: Asked,
        step: &mut Step,
    ) -> Result<Outcome, Halt> {
        let mut effects = Effects { told: true, asked, step: *step, ..Effects::default() };
        let done = self.apply_entry(at, data, fetched, &mut effects);
        *step = effects.step;
        done.map(|done| match done {
            Entered::Park(handles) => Outcome::Park(handles),
            Entered::Pause => Outcome::Pause,
            Entered::Done { result, origin } => Outcome::Done(Applied {
                revision: self.revision,
                result,
                origin,
                events: effects.events,
                leases: effects.leases,
                auth: effects.auth,
                holds: effects.holds,
            }),
        })
    }

    /// As [`Store::apply`] when nobody asks or watches: the state becomes the same, and nothing is
    /// said of it. Some: the records that are needed, as in [`Outcome::Park`]. `bytes`: so many of
    /// records are asked for at once ([`Step`]).
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn replay(
        &mut self,
        at: Position,
        data: &Bytes,
        fetched: Option<&[Bytes]>,
        bytes: u64,
    ) -> Result<Option<Vec<Handle>>, Halt> {
        // Nobody waits for a turn.
        let step = Step { keys: usize::MAX, bytes };
        let done = self.apply_entry(at, data, fetched, &mut Effects { step, ..Effects::default() });
        done.map(|done| match done {
            Entered::Park(handles) => Some(handles),
            Entered::Pause => unreachable!("there are fewer keys than a step allows"),
            Entered::Done { .. } => None,
        })
    }

    fn apply_entry(
        &mut self,
        at: Position,
        data: &Bytes,
        fetched: Option<&[Bytes]>,
        effects: &mut Effects,
    ) -> Result<Entered, Halt> {
        self.assert_next(at);
        let halt = |reason: String| Halt { index: at.index, reason };
        if let Some(records) = fetched {
            self.parked.take(at.index, records)?;
        }
        let envelope = match command::decode(data) {
            Ok(envelope) => envelope,
            Err(malformed) if malformed.later => return Err(halt(malformed.to_string())),
            // No version writes such an entry, so every one says the same of it.
            Err(_) => {
                self.finish_entry(at);
                return Ok(Entered::Done { result: Err(Error::NoCommand), origin: command::origin_of(data) });
            }
        };
        let clock = self.lease_clock.max(envelope.lease_clock.unwrap_or(0));
        let result = match self.execute(at, clock, &envelope, effects) {
            Ok(reply) => Ok(reply),
            Err(stop) => {
                assert!(effects.events.is_empty() && effects.leases.is_empty(), "a stop comes first");
                match stop {
                    Stop::User(error) => Err(error),
                    Stop::Damaged(reason) => return Err(halt(reason)),
                    Stop::Needs(handles) => return Ok(Entered::Park(handles)),
                    Stop::Pause => return Ok(Entered::Pause),
                }
            }
        };
        self.lease_clock = clock;
        self.finish_entry(at);
        Ok(Entered::Done { result, origin: envelope.origin })
    }

    /// A membership entry whose bytes no version writes: all members pass over it alike.
    ///
    /// # Panics
    /// If `at` is not the next index.
    pub fn pass_over(&mut self, at: Position) {
        self.assert_next(at);
        self.finish_entry(at);
    }

    fn assert_next(&self, at: Position) {
        assert!(at.index == self.applied.index + 1, "entries are applied one after another");
        assert!(at.term >= self.applied.term, "terms never go back");
    }

    fn finish_entry(&mut self, at: Position) {
        self.digest.effect(Effect::Entry);
        self.digest.word(at.index);
        self.applied = at;
        self.parked = Parked::default();
    }

    fn execute(
        &mut self,
        at: Position,
        clock: u64,
        envelope: &Envelope<'_>,
        effects: &mut Effects,
    ) -> Result<Reply, Stop> {
        let Envelope { asker, command, .. } = envelope;
        self.refused_by_alarm(command).and_then(|()| self.refused_by_auth(*asker, command))?;
        match command {
            Command::Empty => Ok(Reply::Empty),
            Command::Put(put) => self.apply_put(put, effects),
            Command::DeleteRange(delete) => self.apply_delete(delete, effects),
            Command::Txn(txn) => {
                let mut batch = self.batch(effects);
                let reply = self.apply_txn(txn, &mut batch, &mut effects.step)?;
                effects.holds = batch.ranges.holds();
                self.commit(batch, effects);
                Ok(reply)
            }
            Command::Compaction { revision, .. } => self.apply_compaction(*revision),
            Command::LeaseGrant { id, ttl } => self.apply_grant(at, clock, *id, *ttl, effects),
            Command::LeaseRevoke { id } => {
                self.leases.get(*id).ok_or(Error::LeaseNotFound)?;
                self.end_lease(*id, effects);
                Ok(Reply::LeaseRevoke)
            }
            Command::LeaseCheckpoint { leases } => {
                self.apply_checkpoint(clock, leases, effects);
                Ok(Reply::Empty)
            }
            Command::Expire { term, leases } => {
                self.apply_expire(at, *term, leases, effects);
                Ok(Reply::Empty)
            }
            Command::Alarm { action, member, alarm } => Ok(self.apply_alarm(*action, *member, *alarm)),
            Command::MemberAttr { member, name, client_urls } => {
                self.publish(*member, name, client_urls);
                Ok(Reply::Empty)
            }
            Command::ClusterVersion { version, founding } => Ok(self.set_cluster_version(version, *founding)),
            Command::Refound { founding } => Ok(self.refound(*founding)),
            Command::Auth(change) => Ok(self.apply_auth(at, change, effects)?),
        }
    }

    /// The founding is named once: later names of leaders that had not applied the first one say
    /// nothing.
    fn set_cluster_version(&mut self, version: &str, founding: u64) -> Reply {
        self.digest.effect(Effect::ClusterVersion);
        self.digest.bytes(version.as_bytes());
        self.cluster_version = version.to_owned();
        if self.founding == 0 && founding != 0 {
            self.begin_founding(founding);
        }
        Reply::Empty
    }

    fn refound(&mut self, founding: u64) -> Reply {
        self.begin_founding(founding);
        Reply::Empty
    }

    fn apply_auth(&mut self, at: Position, change: &AuthCommand<'_>, effects: &mut Effects) -> Result<Reply, Error> {
        effects.auth = self.auth.apply(at.index, change, &mut self.digest)?;
        Ok(match change {
            AuthCommand::Authenticate { .. } => {
                Reply::LoggedIn { index: at.index, auth_revision: self.auth.revision() }
            }
            _ => Reply::Empty,
        })
    }

    fn refused_by_auth(&self, asker: crate::auth::Asker<'_>, command: &Command<'_>) -> Result<(), Error> {
        if self.auth.enabled() { self.permit(asker, &needs_of(command)) } else { Ok(()) }
    }

    /// Decided by the replicated alarms alone, never by the size of anything.
    fn refused_by_alarm(&self, command: &Command<'_>) -> Result<(), Error> {
        let raised = |kind: i32| self.alarms.iter().any(|alarm| alarm.alarm == kind);
        let changes = matches!(
            command,
            Command::Put(_)
                | Command::DeleteRange(_)
                | Command::Txn(_)
                | Command::Compaction { .. }
                | Command::LeaseGrant { .. }
                | Command::LeaseRevoke { .. }
                | Command::Expire { .. }
        );
        if changes && raised(ALARM_CORRUPT) {
            return Err(Error::Corrupt);
        }
        let adds = match command {
            Command::Put(_) | Command::LeaseGrant { .. } => true,
            Command::Txn(txn) => command::txn_cost(txn) > 0,
            _ => false,
        };
        if adds && raised(ALARM_NOSPACE) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn apply_put(&mut self, put: &PutRequest<'_>, effects: &mut Effects) -> Result<Reply, Stop> {
        command::check_put(put)?;
        if put.lease != 0 && self.leases.get(put.lease).is_none() {
            return Err(Error::LeaseNotFound.into());
        }
        let kept = self.look(&mut effects.step, |mut look| {
            let kept = look.kept_of(put)?;
            if look.wants_nothing() { Ok(kept) } else { Err(look.stop()) }
        })?;
        let mut batch = self.batch(effects);
        let prev = self.write_put(&mut batch, put, kept);
        self.commit(batch, effects);
        Ok(Reply::Put { prev })
    }

    fn apply_delete(&mut self, delete: &DeleteRangeRequest<'_>, effects: &mut Effects) -> Result<Reply, Stop> {
        command::check_delete(delete)?;
        let mut batch = self.batch(effects);
        let reply = self.write_delete(&mut batch, &delete.range(), delete.prev_kv);
        self.commit(batch, effects);
        Ok(reply)
    }

    fn apply_compaction(&mut self, revision: i64) -> Result<Reply, Stop> {
        if revision <= self.compacted {
            return Err(Error::Compacted.into());
        }
        if revision > self.revision {
            return Err(Error::FutureRev.into());
        }
        self.compacted = revision;
        self.digest.effect(Effect::Compact);
        self.digest.int(revision);
        Ok(Reply::Compact)
    }

    fn apply_grant(
        &mut self,
        at: Position,
        clock: u64,
        id: i64,
        ttl: i64,
        effects: &mut Effects,
    ) -> Result<Reply, Stop> {
        if id == 0 {
            return Err(Error::LeaseNotFound.into());
        }
        if ttl > lease::MAX_TTL {
            return Err(Error::LeaseTtlTooLarge.into());
        }
        if self.leases.get(id).is_some() {
            return Err(Error::LeaseExist.into());
        }
        // the proposer raised it to its minimum; nobody can hold a lease of no time at all
        let ttl = ttl.max(1);
        let deadline = lease::deadline(clock, ttl);
        self.leases.insert(id, Lease { ttl, granted: at.index, deadline, keys: BTreeSet::new() });
        self.digest.effect(Effect::LeaseGrant);
        self.digest.int(id);
        self.digest.int(ttl);
        self.digest.word(deadline);
        effects.leases.push(LeaseChange::Granted { id, ttl, granted: at.index, deadline });
        Ok(Reply::LeaseGrant { id, ttl })
    }

    /// Leases that are gone are passed over, as in etcd.
    fn apply_checkpoint(&mut self, clock: u64, leases: &[(i64, i64)], effects: &mut Effects) {
        for (id, remaining) in leases {
            let deadline = lease::deadline(clock, *remaining);
            if self.leases.set_deadline(*id, deadline) {
                self.digest.effect(Effect::LeaseCheckpoint);
                self.digest.int(*id);
                self.digest.word(deadline);
                effects.leases.push(LeaseChange::Checkpointed { id: *id, deadline });
            }
        }
    }

    /// Void if the proposer no longer led when the entry was logged, or the lease was granted anew.
    fn apply_expire(&mut self, at: Position, term: u64, leases: &[(i64, u64)], effects: &mut Effects) {
        if at.term != term {
            return;
        }
        for (id, granted) in leases {
            if self.leases.get(*id).is_some_and(|lease| lease.granted == *granted) {
                self.end_lease(*id, effects);
            }
        }
    }

    /// Deletes the lease's keys in one revision, in key order, then the lease.
    fn end_lease(&mut self, id: i64, effects: &mut Effects) {
        let lease = self.leases.get(id).expect("looked up by the caller");
        let keys: Vec<_> = lease.keys.iter().cloned().collect();
        let mut batch = self.batch(effects);
        for key in keys {
            let range = KeyRange { key: Bytes::copy_from_slice(&key), end: None };
            let reply = self.write_delete(&mut batch, &range, false);
            assert!(matches!(reply, Reply::Delete { deleted: 1, .. }), "an attached key exists");
        }
        self.commit(batch, effects);
        self.leases.remove(id);
        self.digest.effect(Effect::LeaseEnd);
        self.digest.int(id);
        effects.leases.push(LeaseChange::Ended { id });
    }

    fn apply_alarm(&mut self, action: AlarmAction, member: u64, alarm: i32) -> Reply {
        let named = AlarmMember { member, alarm };
        let alarms = match action {
            AlarmAction::Get => {
                let asked = |raised: &&AlarmMember| alarm == 0 || raised.alarm == alarm;
                return Reply::Alarm { alarms: self.alarms.iter().filter(asked).copied().collect() };
            }
            AlarmAction::Activate if alarm == 0 => Vec::new(),
            AlarmAction::Activate => {
                if self.alarms.insert(named) {
                    self.digest_alarm(Effect::Alarm, named);
                }
                vec![named]
            }
            AlarmAction::Deactivate => {
                let found = self.alarms.remove(&named);
                if found {
                    self.digest_alarm(Effect::Disarm, named);
                }
                found.then_some(named).into_iter().collect()
            }
        };
        Reply::Alarm { alarms }
    }

    fn digest_alarm(&mut self, effect: Effect, alarm: AlarmMember) {
        self.digest.effect(effect);
        self.digest.word(alarm.member);
        self.digest.int(i64::from(alarm.alarm));
    }

    /// A member says its name and client URLs. One that was removed meanwhile is passed over.
    fn publish(&mut self, id: u64, name: &str, client_urls: &[&str]) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        member.name = name.to_owned();
        member.client_urls = client_urls.iter().map(|url| (*url).to_owned()).collect();
        self.digest_member(id);
    }

    fn digest_member(&mut self, id: u64) {
        let mut encoded = Vec::new();
        command::encode_member(&self.members[&id], &mut encoded);
        self.digest.effect(Effect::Member);
        self.digest.bytes(&encoded);
    }

    /// What state alone says against a member change. Connectivity and flags are the gate's matter.
    ///
    /// # Errors
    /// The member is there already or is not there, has no such role, or shares a URL with another.
    pub fn check_conf(&self, change: &MemberChange) -> Result<(), Error> {
        let id = change.member.id;
        let known = self.members.contains_key(&id);
        let clash = |member: &crate::Member| {
            member.id != id && member.peer_urls.iter().any(|url| change.member.peer_urls.contains(url))
        };
        if self.removed.contains(&id) {
            return Err(Error::MemberNotFound);
        }
        match change.kind {
            MemberChangeKind::AddVoter | MemberChangeKind::AddLearner => {
                if known {
                    return Err(Error::MemberExist);
                }
                if self.members.values().any(clash) {
                    return Err(Error::PeerUrlExist);
                }
            }
            MemberChangeKind::Promote if known && !self.is_learner(id) => {
                return Err(Error::MemberNotLearner);
            }
            MemberChangeKind::Update if known && self.members.values().any(clash) => {
                return Err(Error::PeerUrlExist);
            }
            _ if !known => return Err(Error::MemberNotFound),
            _ => {}
        }
        Ok(())
    }

    /// Applies a configuration entry. `conf`: what consensus made of it, or, when
    /// [`Store::check_conf`] refuses the change, the configuration as it was.
    ///
    /// # Panics
    /// If the change is refused and `conf` differs from the state's.
    pub fn apply_conf(&mut self, at: Position, change: &MemberChange, conf: &Conf) -> Applied {
        self.assert_next(at);
        let result = self.check_conf(change);
        match result {
            Ok(()) => self.change_member(change, conf),
            Err(_) => assert!(*conf == self.conf, "a refused change leaves the voters alone"),
        }
        self.finish_entry(at);
        Applied {
            revision: self.revision,
            result: result.map(|()| Reply::Empty),
            origin: change.origin,
            events: Vec::new(),
            leases: Vec::new(),
            auth: None,
            holds: None,
        }
    }

    fn change_member(&mut self, change: &MemberChange, conf: &Conf) {
        let id = change.member.id;
        match change.kind {
            MemberChangeKind::AddVoter | MemberChangeKind::AddLearner => {
                self.members.insert(id, change.member.clone());
                self.digest_member(id);
            }
            MemberChangeKind::Update => {
                let member = self.members.get_mut(&id).expect("checked before");
                member.peer_urls.clone_from(&change.member.peer_urls);
                self.digest_member(id);
            }
            MemberChangeKind::Promote => {}
            MemberChangeKind::Remove => {
                self.members.remove(&id);
                self.removed.insert(id);
                self.digest.effect(Effect::MemberGone);
                self.digest.word(id);
            }
        }
        self.conf = conf.clone();
        self.digest.effect(Effect::Conf);
        for list in [&self.conf.voters, &self.conf.learners] {
            self.digest.word(list.len() as u64);
            for id in list {
                self.digest.word(*id);
            }
        }
    }

    fn batch(&self, effects: &Effects) -> Batch {
        let ranges = Ranges::new(effects.asked);
        Batch { main: self.revision + 1, changes: 0, events: Vec::new(), told: effects.told, ranges }
    }

    fn commit(&mut self, batch: Batch, effects: &mut Effects) {
        if batch.is_empty() {
            return;
        }
        self.revision = batch.main;
        if !batch.told {
            return;
        }
        effects.events.push(Arc::new(RevisionEvents { revision: batch.main, events: batch.events }));
    }

    /// Executes a checked put. Returns the version before, if asked for.
    pub(crate) fn write_put(&mut self, batch: &mut Batch, put: &PutRequest<'_>, kept: Kept) -> Option<Item> {
        let rev = batch.change();
        let found = self.keys.find(put.key);
        let entry = found.map(|found| self.keys.entry(found)).filter(|entry| entry.is_live());
        let before = entry.map(|entry| entry.latest());
        let lease = kept.lease.unwrap_or(put.lease);
        let kv = KeyValueRef {
            key: put.key,
            create: before.map_or(rev.main, |before| before.create),
            modified: rev.main,
            version: before.map_or(1, |before| before.version + 1),
            value: kept.value.as_deref().unwrap_or(put.value),
            lease,
        };
        // While its record is where it was.
        let shown = before.filter(|_| batch.told).map(|before| self.item(put.key, &before));
        self.digest.put(rev, kv.key, kv.value, lease);
        let (handle, record) = self.tail.append(self.config.segment_bytes, rev, false, &kv);
        let record = batch.told.then(|| record.clone());
        let version = Version {
            main: rev.main,
            create: kv.create,
            version: kv.version,
            lease,
            sub: u32::try_from(rev.sub).expect("below 2^32 changes in a transaction"),
            handle,
        };
        self.keys.push(put.key, found, version);
        let create = kv.create;
        let lease_before = before.map_or(0, |before| before.lease);
        let Some(record) = record else {
            if lease_before != lease {
                self.leases.attach(&Key::from(put.key), lease_before, lease);
            }
            return None;
        };
        let key = shown.as_ref().map_or_else(|| Key::from(put.key), |before| before.key.clone());
        self.leases.attach(&key, lease_before, lease);
        let prev = match shown.as_ref() {
            Some(before) if create < rev.main => self.shown_before(put.key, before, rev.main),
            _ => None,
        };
        batch.push(Event { tombstone: false, key, record, revision: rev, create, prev });
        shown.filter(|_| put.prev_kv)
    }

    /// Deletes every key of the range that exists now.
    pub(crate) fn write_delete(&mut self, batch: &mut Batch, range: &KeyRange, prev_kv: bool) -> Reply {
        let mut found: Vec<Item> = Vec::new();
        self.keys.scan_live(range, |key, entry| {
            found.push(self.item(key, &entry.latest()));
            true
        });
        for item in &found {
            self.write_tombstone(batch, item);
        }
        Reply::Delete { deleted: found.len() as i64, prevs: if prev_kv { found } else { Vec::new() } }
    }

    /// What an event shows as the version before: the one before its whole revision, as in etcd,
    /// and not one that the same transaction wrote.
    fn shown_before(&self, key: &[u8], before: &Item, main: i64) -> Option<Located> {
        if before.modified < main {
            return Some(before.at.clone());
        }
        self.version_before(key, main)
    }

    fn write_tombstone(&mut self, batch: &mut Batch, before: &Item) {
        let rev = batch.change();
        self.digest.delete(rev, &before.key);
        let kv = KeyValueRef { key: &before.key, ..Default::default() };
        let (handle, record) = self.tail.append(self.config.segment_bytes, rev, true, &kv);
        let record = batch.told.then(|| record.clone());
        let version = Version {
            main: rev.main,
            create: 0,
            version: 0,
            lease: 0,
            sub: u32::try_from(rev.sub).expect("below 2^32 changes in a transaction"),
            handle,
        };
        self.keys.push(&before.key, self.keys.find(&before.key), version);
        let key = before.key.clone();
        self.leases.attach(&key, before.lease, 0);
        if let Some(record) = record {
            let prev = self.shown_before(&before.key, before, rev.main);
            batch.push(Event { tombstone: true, key, record, revision: rev, create: 0, prev });
        }
    }
}

/// What a put with ignore flags takes over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub value: Option<Bytes>,
    pub lease: Option<i64>,
}

/// The value inside a whole record.
pub(crate) fn value_in(record: &Bytes) -> Result<Bytes, Stop> {
    let body = record.slice(crate::record::HEADER..);
    let kv = crate::record::key_value(&body).map_err(|malformed| Stop::Damaged(malformed.to_string()))?;
    Ok(body.slice_ref(kv.value))
}
