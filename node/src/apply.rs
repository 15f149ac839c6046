//! Apply: committed and saved entries change the store, in order, each once.
//!
//! An entry that needs a value from a file parks; ticks, consensus and reads go on.

use crate::gate::After;
use crate::io::*;
use crate::member::{Node, Task};
use bytes::Bytes;
use consensus::{ConfChange, ConfState, Entry, EntryKind};
use std::collections::VecDeque;
use store::{Applied, Conf, Outcome, Position, Store};

/// Entries applied in one turn before reads and walks get theirs.
const ENTRIES_PER_TURN: usize = 1_000;
/// The logical digest is exchanged at indexes divisible by this.
pub(crate) const DIGEST_EVERY: u64 = 4_096;

pub(crate) struct Applier {
    queue: VecDeque<Entry>,
    /// Of the data of the entries in the queue.
    bytes: u64,
    applied: u64,
    /// The job that reads a value which the first entry waits for.
    reading: Option<JobId>,
    fetched: Option<Bytes>,
}

impl Applier {
    pub(crate) fn new(applied: u64) -> Applier {
        Applier { queue: VecDeque::new(), bytes: 0, applied, reading: None, fetched: None }
    }

    pub(crate) fn committed(&mut self, entries: impl Iterator<Item = Entry>) {
        for entry in entries {
            self.bytes += entry.data.len() as u64;
            self.queue.push_back(entry);
        }
    }

    /// (entries, bytes) that wait.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        (self.queue.len() as u64, self.bytes)
    }

    pub(crate) fn idle(&self) -> bool {
        self.queue.is_empty() || self.reading.is_some()
    }

    /// A record read for a state that a snapshot has replaced since is not for this one.
    pub(crate) fn fetched(&mut self, job: JobId, bytes: Bytes) {
        if self.reading == Some(job) {
            self.reading = None;
            self.fetched = Some(bytes);
        }
    }

    pub(crate) fn waits_for(&self, job: JobId) -> bool {
        self.reading == Some(job)
    }

    /// The record was not read: if its entry still waits, it is asked for again.
    pub(crate) fn unread(&mut self, job: JobId) {
        if self.reading == Some(job) {
            self.reading = None;
        }
    }

    /// The state was replaced by a snapshot at `index`.
    pub(crate) fn restart(&mut self, index: u64) {
        self.queue.clear();
        self.bytes = 0;
        self.applied = index;
        self.reading = None;
        self.fetched = None;
    }
}

impl Node {
    pub(crate) fn run_apply(&mut self, out: &mut Vec<Output>) {
        let mut left = ENTRIES_PER_TURN;
        while left > 0 && self.applier.reading.is_none() && !self.dead && self.may_apply() {
            let Some(entry) = self.applier.queue.pop_front() else { break };
            self.applier.bytes -= entry.data.len() as u64;
            assert_eq!(entry.index, self.applier.applied + 1, "entries are applied in order, each once");
            if !self.apply_entry(entry, out) {
                break;
            }
            left -= 1;
        }
    }

    /// Apply waits while the state is being replaced, and while the background is so far behind
    /// that records in memory are over their budget: commits then run into the backlog limit.
    pub(crate) fn may_apply(&self) -> bool {
        !self.transfer.swapping() && self.store.unwritten_bytes() < self.config.budgets.unwritten_most
    }

    /// False: parked, or the member stops.
    fn apply_entry(&mut self, entry: Entry, out: &mut Vec<Output>) -> bool {
        let at = Position { index: entry.index, term: entry.term };
        if entry.kind == EntryKind::Config {
            return self.apply_config(at, &entry, out);
        }
        let fetched = self.applier.fetched.take();
        let compacted = self.store.compacted();
        match self.store.apply(at, &entry.data, fetched.as_ref()) {
            Ok(Outcome::Park(handle)) => {
                self.applier.bytes += entry.data.len() as u64;
                self.applier.queue.push_front(entry);
                self.applier.reading = Some(self.jobs.start(Task::ApplyRead, Job::ReadRecord { handle }, out));
                false
            }
            Ok(Outcome::Done(applied)) => {
                if self.store.compacted() > compacted {
                    self.hash_compaction(compacted);
                }
                self.entry_applied(at, applied, out);
                true
            }
            Err(halt) => {
                self.fatal(format!("entry {} of term {} cannot be applied: {halt}", at.index, at.term), out);
                false
            }
        }
    }

    fn entry_applied(&mut self, at: Position, applied: Applied, out: &mut Vec<Output>) {
        self.advance_applied(at, out);
        for change in &applied.leases {
            self.lessor.applied(change, self.ticks);
        }
        for events in &applied.events {
            self.publish(events, out);
        }
        if let Some(origin) = applied.origin
            && (origin.member, origin.boot) == (self.config.member, self.config.boot)
            && let Some(command) = self.gate.applied(origin.seq)
        {
            self.command_applied(command, applied, out);
        }
    }

    fn command_applied(&mut self, command: crate::gate::Command, applied: Applied, out: &mut Vec<Output>) {
        let Some(waiter) = command.waiter else { return };
        if command.after == After::Physical && applied.result.is_ok() {
            return self.wait_for_physical(waiter, applied.revision);
        }
        let answer = Answer::Applied { revision: applied.revision, result: applied.result };
        self.answer(waiter, answer, out);
    }

    fn advance_applied(&mut self, at: Position, out: &mut Vec<Output>) {
        self.applier.applied = at.index;
        self.consensus.applied(at.index);
        self.gate.fence(at.term);
        if self.is_leader() && at.term == self.term {
            self.lead_from_here();
        }
        if at.index.is_multiple_of(DIGEST_EVERY) {
            let digest = self.store.digest();
            self.own_mark(at.index, digest, out);
        }
    }

    /// The first entry of its own term is applied: a leader's clockwork starts.
    fn lead_from_here(&mut self) {
        if !self.lessor.start(&self.store, self.term, self.ticks) {
            return;
        }
        if self.store.cluster_version() != self.config.cluster_version {
            let body = store::command::encode_cluster_version(&self.config.cluster_version);
            self.propose_own(body);
        }
    }

    /// Members and ConfState change in one step.
    fn apply_config(&mut self, at: Position, entry: &Entry, out: &mut Vec<Output>) -> bool {
        let Ok(change) = ConfChange::decode(&entry.data) else {
            self.fatal(format!("membership entry {} cannot be read", at.index), out);
            return false;
        };
        let refused = match store::MemberChange::decode(&change.context) {
            Ok(member) => self.store.check_conf(&member).is_err(),
            Err(_) => false,
        };
        let after = if refused {
            self.consensus.conf_refused();
            conf_state(&self.store)
        } else {
            self.consensus.conf_applied(&change)
        };
        if let Err(reason) = change_members(&mut self.store, at, &change, &after) {
            self.fatal(format!("membership entry {} cannot be applied: {reason}", at.index), out);
            return false;
        }
        self.advance_applied(at, out);
        true
    }
}

pub(crate) fn conf_state(store: &Store) -> ConfState {
    let conf = store.conf();
    ConfState { voters: conf.voters.clone(), learners: conf.learners.clone() }
}

/// The store's half of a membership entry; `after`: what consensus makes of it.
pub(crate) fn change_members(
    store: &mut Store,
    at: Position,
    change: &ConfChange,
    after: &ConfState,
) -> Result<(), String> {
    let member = store::MemberChange::decode(&change.context).map_err(|malformed| malformed.to_string())?;
    store.apply_conf(at, &member, &Conf { voters: after.voters.clone(), learners: after.learners.clone() });
    Ok(())
}
