//! Apply: committed and saved entries change the store, in order, each once.
//!
//! An entry that needs a value from a file parks; ticks, consensus and reads go on.

use crate::config::TICK_MS;
use crate::ground::{Ground, kind_of};
use crate::io::*;
use crate::jobs::Task;
use bytes::Bytes;
use consensus::{ConfChange, ConfState, Entry, EntryKind};
use std::collections::VecDeque;
use store::command::{field, first_field, origin_of};
use store::protobuf::Malformed;
use store::{Applied, Asked, Conf, Member, Origin, Outcome, Position, Step, Store};

/// Entries applied in one turn before reads and walks get theirs.
pub(crate) const ENTRIES_PER_TURN: usize = 1_000;

/// A record that could not be read is asked for again after this. Ticks.
const AGAIN: u64 = 1_000 / TICK_MS;
/// It is told again that a record cannot be read. Ticks.
const TOLD_AGAIN: u64 = 60_000 / TICK_MS;

/// An entry that has changed the state: `member` shows it to every part that it concerns.
pub(crate) struct Done {
    pub(crate) at: Position,
    /// Field number of its command, if it has one.
    pub(crate) command: Option<u32>,
    /// Ticks between its commit and now.
    pub(crate) waited: u64,
    /// None: a membership entry.
    pub(crate) applied: Option<Applied>,
    /// It was a membership change.
    pub(crate) changed: Option<Applied>,
    /// The member that it removed.
    pub(crate) gone: Option<Member>,
    /// It was a compaction; the compacted revision before it.
    pub(crate) compacted: Option<i64>,
}

/// A batch of entries that waits since a tick.
struct Waiting {
    /// Index of its last entry.
    last: u64,
    since: u64,
}

pub(crate) struct Applier {
    queue: VecDeque<Entry>,
    /// Batches of entries in the queue, and since when they wait.
    since: VecDeque<Waiting>,
    /// Of the entries in the queue, those that may grant or end a lease.
    of_leases: VecDeque<u64>,
    /// Of the data of the entries in the queue.
    bytes: u64,
    applied: u64,
    /// The job that reads values which the first entry waits for.
    reading: Option<JobId>,
    /// So many records.
    wanted: usize,
    fetched: Option<Vec<Bytes>>,
    /// So many are read one by one: one of those that were read together is damaged, and perhaps
    /// the entry does without it.
    one_by_one: usize,
    /// It could not be read: nothing is applied before this tick.
    rests_until: u64,
    /// When it was last told that it cannot be read.
    told: Option<u64>,
    /// There is no state: of an entry that is no membership change nothing but its place counts.
    discards: bool,
}

impl Applier {
    /// `discards`: this member has no state yet.
    pub(crate) fn new(applied: u64, discards: bool) -> Applier {
        Applier {
            queue: VecDeque::new(),
            since: VecDeque::new(),
            of_leases: VecDeque::new(),
            bytes: 0,
            applied,
            reading: None,
            wanted: 0,
            fetched: None,
            one_by_one: 0,
            rests_until: 0,
            told: None,
            discards,
        }
    }

    pub(crate) fn committed(&mut self, now: u64, entries: impl Iterator<Item = Entry>) {
        let before = self.queue.len();
        for entry in entries {
            self.bytes += entry.data.len() as u64;
            if entry.kind == EntryKind::Normal && concerns_leases(&entry.data) {
                self.of_leases.push_back(entry.index);
            }
            self.queue.push_back(entry);
        }
        if let Some(last) = self.queue.back().filter(|_| self.queue.len() > before) {
            self.since.push_back(Waiting { last: last.index, since: now });
        }
    }

    /// How long the oldest entry has waited, in ticks; 0: none waits.
    pub(crate) fn age(&self, now: u64) -> u64 {
        self.since.front().map_or(0, |batch| now - batch.since)
    }

    /// The index at which everything up to `index` that may grant or end a lease is applied.
    pub(crate) fn leases_upto(&self, index: u64) -> u64 {
        let known = self.queue.back().map_or(self.applied, |last| last.index);
        if index > known {
            return index;
        }
        let below = self.of_leases.partition_point(|of_leases| *of_leases <= index);
        below.checked_sub(1).map_or(self.applied, |at| self.of_leases[at])
    }

    /// Entries that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Bytes of their data.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn idle(&self, g: &Ground) -> bool {
        self.queue.is_empty() || self.reading.is_some() || g.now < self.rests_until || !may_apply(g)
    }

    /// Records read for a state that a snapshot has replaced since are not for this one.
    pub(crate) fn fetched(&mut self, job: JobId, records: Vec<Bytes>) {
        if self.reading == Some(job) {
            self.reading = None;
            self.one_by_one = self.one_by_one.saturating_sub(1);
            self.fetched = Some(records);
        }
    }

    pub(crate) fn waits_for(&self, job: JobId) -> bool {
        self.reading == Some(job)
    }

    /// The records were not read: if their entry still waits, they are asked for again.
    pub(crate) fn unread(&mut self, job: JobId) {
        if self.reading == Some(job) {
            self.reading = None;
        }
    }

    /// A record is damaged, or the disk refuses to read it. No member may skip an entry: this one
    /// waits until the record is there, and says so once a minute. Of several records it may be one
    /// that the entry does without.
    pub(crate) fn waits(&mut self, g: &mut Ground, job: JobId, fault: &disk::Fault) {
        self.unread(job);
        if self.wanted > 1 {
            self.one_by_one = self.wanted;
            return;
        }
        self.rests_until = g.now + AGAIN;
        if self.told.is_none_or(|told| g.now - told >= TOLD_AGAIN) {
            self.told = Some(g.now);
            let index = self.applied + 1;
            g.note(Level::Error, format!("entry {index} waits for a record that cannot be read: {fault}"));
        }
    }

    /// The state was replaced by a snapshot at `index`.
    pub(crate) fn restart(&mut self, index: u64) {
        self.queue.clear();
        self.since.clear();
        self.of_leases.clear();
        self.bytes = 0;
        self.applied = index;
        self.reading = None;
        self.fetched = None;
        self.one_by_one = 0;
        self.rests_until = 0;
        self.discards = false;
    }

    /// What transactions may do in one turn.
    pub(crate) fn step(&self, g: &Ground) -> Step {
        Step { keys: g.config.budgets.apply_keys, bytes: g.config.budgets.apply_read }
    }

    /// Applies the next entry, if it is its turn. `step`: what is left of the turn. `asks`: whether
    /// somebody waits here for the answer. None: nothing waits, its values must be read first, it
    /// goes on in the next turn, or the member stops.
    pub(crate) fn next(&mut self, g: &mut Ground, step: &mut Step, asks: &dyn Fn(Origin) -> bool) -> Option<Done> {
        if self.reading.is_some() || g.dead() || g.now < self.rests_until || !may_apply(g) {
            return None;
        }
        let entry = self.queue.pop_front()?;
        self.bytes -= entry.data.len() as u64;
        assert_eq!(entry.index, self.applied + 1, "entries are applied in order, each once");
        let done = match entry.kind {
            EntryKind::Config => apply_config(g, &entry),
            _ => self.apply_entry(g, entry, step, asks),
        }?;
        self.applied = done.at.index;
        let done = Done { waited: self.age(g.now), ..done };
        self.since.pop_front_if(|batch| batch.last <= done.at.index);
        self.of_leases.pop_front_if(|index| *index <= done.at.index);
        g.consensus.applied(done.at.index);
        Some(done)
    }

    fn apply_entry(
        &mut self,
        g: &mut Ground,
        entry: Entry,
        step: &mut Step,
        asks: &dyn Fn(Origin) -> bool,
    ) -> Option<Done> {
        let at = Position { index: entry.index, term: entry.term };
        let fetched = self.fetched.take();
        let before = g.store.compacted();
        let nothing = Bytes::new();
        let data = if self.discards { &nothing } else { &entry.data };
        let bytes = if self.one_by_one > 0 { 0 } else { step.bytes };
        let mut this = Step { keys: step.keys, bytes };
        let outcome = g.store.apply_in_steps(at, data, fetched.as_deref(), asked(data, asks), &mut this);
        step.keys = this.keys;
        match outcome {
            Ok(Outcome::Park(handles)) => {
                self.again(entry);
                self.wanted = handles.len();
                self.reading = Some(g.start(Task::ApplyRead, ReadJob::ReadRecords { handles }));
                None
            }
            Ok(Outcome::Pause) => {
                self.again(entry);
                None
            }
            Ok(Outcome::Done(applied)) => {
                let compacted = (g.store.compacted() > before).then_some(before);
                let command = first_field(data);
                self.one_by_one = 0;
                Some(Done { at, command, waited: 0, applied: Some(applied), changed: None, gone: None, compacted })
            }
            Err(halt) => {
                g.fatal(format!("entry {} of term {} cannot be applied: {halt}", at.index, at.term));
                None
            }
        }
    }

    /// The entry is not applied yet.
    fn again(&mut self, entry: Entry) {
        self.bytes += entry.data.len() as u64;
        self.queue.push_front(entry);
    }
}

/// Only the answer of a transaction is worth to be left out.
fn asked(data: &Bytes, asks: &dyn Fn(Origin) -> bool) -> Asked {
    if first_field(data) != Some(field::TXN) {
        return Asked::InSteps;
    }
    if origin_of(data).is_some_and(asks) { Asked::InSteps } else { Asked::Nobody }
}

/// It may grant a lease or end one. Some others are taken for such.
fn concerns_leases(body: &[u8]) -> bool {
    store::command::wants_clock(body) || store::command::is_reserved(body)
}

/// Apply waits while the state is being replaced, and while the background is so far behind
/// that records in memory are over their budget: commits then run into the backlog limit.
fn may_apply(g: &Ground) -> bool {
    !g.swapping() && g.store.unwritten_bytes() < g.config.budgets.unwritten_most
}

/// Members and ConfState change in one step.
fn apply_config(g: &mut Ground, entry: &Entry) -> Option<Done> {
    let at = Position { index: entry.index, term: entry.term };
    let mut gone = None;
    let changed = match membership(&entry.data) {
        Err(Malformed { what, .. }) => {
            g.fatal(format!("membership entry {} cannot be applied: {what}", at.index));
            return None;
        }
        // Who votes is not known before there is a state.
        Ok(Some(_)) if g.store.conf().voters.is_empty() => {
            g.consensus.conf_refused();
            g.store.pass_over(at);
            None
        }
        // No version writes one that leaves nobody to vote.
        Ok(Some((change, member)))
            if g.store.check_conf(&member).is_ok() && conf_state(&g.store).after(&change).is_none() =>
        {
            g.consensus.conf_refused();
            g.store.pass_over(at);
            None
        }
        Ok(None) => {
            g.consensus.conf_refused();
            g.store.pass_over(at);
            None
        }
        Ok(Some((change, member))) => {
            let after = if g.store.check_conf(&member).is_err() {
                g.consensus.conf_refused();
                conf_state(&g.store)
            } else {
                g.consensus.conf_applied(&change)
            };
            let before = g.store.member(change.member).cloned();
            let applied = change_members(&mut g.store, at, &member, &after);
            gone = before.filter(|_| g.store.removed().contains(&change.member));
            Some(applied)
        }
    };
    Some(Done { at, command: None, waited: 0, applied: None, changed, gone, compacted: None })
}

pub(crate) fn conf_state(store: &Store) -> ConfState {
    let conf = store.conf();
    ConfState { voters: conf.voters.clone(), learners: conf.learners.clone() }
}

/// What a membership entry says. None: nothing that any version writes, so all pass over it alike.
///
/// # Errors
/// A later version wrote it.
pub(crate) fn membership(data: &Bytes) -> Result<Option<(ConfChange, store::MemberChange)>, Malformed> {
    let change = match ConfChange::decode(data) {
        Ok(change) => change,
        Err(bad) if bad.later => return Err(Malformed::later(bad.to_string())),
        Err(_) => return Ok(None),
    };
    match store::MemberChange::decode(&change.context) {
        Ok(member) if member.member.id == change.member && kind_of(member.kind) == change.kind => {
            Ok(Some((change, member)))
        }
        Err(malformed) if malformed.later => Err(malformed),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// The store's half of a membership entry; `after`: what consensus makes of it.
pub(crate) fn change_members(
    store: &mut Store,
    at: Position,
    member: &store::MemberChange,
    after: &ConfState,
) -> Applied {
    store.apply_conf(at, member, &Conf { voters: after.voters.clone(), learners: after.learners.clone() })
}
