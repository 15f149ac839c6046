//! Sorts the requests of clients, and answers what needs no log and no round.

use crate::gate::After;
use crate::io::*;
use crate::member::Node;
use crate::reads::Then;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{AlarmMember, Member, TxnRead};

/// Lease ids gathered in one turn.
const LEASES_PER_TURN: usize = 4_096;

/// A list of all leases, gathered in slices.
pub(crate) struct Listing {
    waiter: Waiter,
    next: i64,
    ids: Vec<i64>,
}

/// What a member with a wrong state must not answer or judge.
fn of_the_state(request: &Request) -> bool {
    !matches!(
        request,
        Request::WalkEnd { .. }
            | Request::KeepAlive { .. }
            | Request::Members { .. }
            | Request::Status
            | Request::Alarms { .. }
            | Request::MoveLeader { .. }
            | Request::History { .. }
            | Request::BackupEnd { .. }
    )
}

impl Node {
    pub(crate) fn request(&mut self, waiter: Waiter, request: Request, out: &mut Vec<Output>) {
        if self.health.corrupt() && of_the_state(&request) {
            return self.refuse(waiter, Refusal::User(store::Error::Corrupt), out);
        }
        match request {
            Request::Propose { body, cost } => self.on_propose(waiter, body, cost, After::Apply, out),
            Request::Compact { revision, physical } => {
                let body = store::command::encode_compaction(revision, physical);
                let after = if physical { After::Physical } else { After::Apply };
                self.on_propose(waiter, body, 0, after, out);
            }
            Request::Range { query, linearizable: true, stream, keep } => {
                self.queue_read(waiter, Then::Range { query, stream, keep });
            }
            Request::Range { query, linearizable: false, stream, keep } => {
                self.begin_range(waiter, query, stream, keep, out);
            }
            Request::ReadTxn { body, linearizable: true } => self.queue_read(waiter, Then::ReadTxn { body }),
            Request::ReadTxn { body, linearizable: false } => self.read_txn(waiter, &body, out),
            Request::WalkNext { walk } => self.walk_next(waiter, walk, out),
            Request::WalkEnd { walk } => self.walk_end(walk),
            Request::KeepAlive { lease } => self.queue_read(waiter, Then::KeepAlive { lease }),
            Request::TimeToLive { lease, keys } => self.queue_read(waiter, Then::TimeToLive { lease, keys }),
            Request::Leases => self.listings.push_back(Listing { waiter, next: i64::MIN, ids: Vec::new() }),
            Request::Members { linearizable: true } => self.queue_read(waiter, Then::Members),
            Request::Members { linearizable: false } => self.answer_members(waiter, out),
            Request::Status => self.answer(waiter, Answer::Status(Box::new(self.status())), out),
            Request::Alarms { kind } => self.answer_alarms(waiter, kind, out),
            Request::Backup => self.on_backup(waiter, out),
            Request::BackupNext { backup, first } => self.on_backup_next(waiter, backup, first, out),
            Request::BackupEnd { backup } => self.end_backup(backup),
            Request::HashKv { revision } => self.on_hash_kv(waiter, revision, out),
            Request::Hash => {
                let digest = self.store.digest();
                let hash = (0..4).fold(0u32, |hash, part| hash ^ (digest >> (32 * part)) as u32);
                self.answer(waiter, Answer::Hash { hash }, out);
            }
            Request::MoveLeader { target } => self.on_move_leader(waiter, target, out),
            Request::Barrier => self.queue_read(waiter, Then::Barrier),
            Request::History { from, prev } => self.on_history(waiter, from, prev, out),
        }
    }

    pub(crate) fn cancel(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) {
        let found = self.cancel_command(waiter, timed_out, out)
            || self.cancel_read(waiter, timed_out, out)
            || self.cancel_walk(waiter, timed_out, out)
            || self.cancel_backup(waiter, timed_out, out)
            || self.cancel_hash(waiter, timed_out, out)
            || self.cancel_held(waiter)
            || self.cancel_history(waiter, timed_out, out)
            || self.cancel_keep_alive(waiter, timed_out, out)
            || self.cancel_move(waiter, timed_out, out)
            || self.cancel_listing(waiter, timed_out, out);
        if !found && self.checkpoints.forget_physical(waiter) && timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
        }
    }

    /// A transaction of ranges alone, on the state as it is.
    pub(crate) fn read_txn(&mut self, waiter: Waiter, body: &Bytes, out: &mut Vec<Output>) {
        if self.health.corrupt() {
            return self.refuse(waiter, Refusal::User(store::Error::Corrupt), out);
        }
        match self.store.read_txn(body, &BTreeMap::new()) {
            Ok(TxnRead::Done { revision, result }) => self.answer(waiter, Answer::Applied { revision, result }, out),
            Ok(TxnRead::Needs(_)) => {
                // A compare of values that are in files: decided where apply decides it, in the log.
                self.gate.enqueue(crate::gate::Command {
                    waiter: Some(waiter),
                    body: body.clone(),
                    after: After::Apply,
                });
            }
            Ok(TxnRead::Damaged(reason)) => self.fatal(format!("a record is damaged: {reason}"), out),
            Err(malformed) => self.fatal(format!("the edge sent a malformed transaction: {malformed}"), out),
        }
    }

    pub(crate) fn answer_members(&mut self, waiter: Waiter, out: &mut Vec<Output>) {
        let members: Vec<(Member, bool)> =
            self.store.members().map(|member| (member.clone(), self.store.is_learner(member.id))).collect();
        self.answer(waiter, Answer::Members { members }, out);
    }

    /// The replicated ones, and what this member alone has to say.
    fn alarms(&self) -> Vec<AlarmMember> {
        let mut alarms: Vec<AlarmMember> = self.store.alarms().collect();
        for (kind, raised) in [(1, self.health.disk_full()), (2, self.health.corrupt())] {
            let own = AlarmMember { member: self.config.member, alarm: kind };
            if raised && !alarms.contains(&own) {
                alarms.push(own);
            }
        }
        alarms.sort_by_key(|alarm| (alarm.member, alarm.alarm));
        alarms
    }

    fn answer_alarms(&self, waiter: Waiter, kind: i32, out: &mut Vec<Output>) {
        let alarms = self.alarms().into_iter().filter(|alarm| kind == 0 || alarm.alarm == kind).collect();
        self.answer(waiter, Answer::Alarms { alarms }, out);
    }

    /// One slice of the oldest list of leases.
    pub(crate) fn run_listings(&mut self, out: &mut Vec<Output>) {
        let Some(mut listing) = self.listings.pop_front() else { return };
        let before = listing.ids.len();
        listing.ids.extend(self.store.lease_ids_from(listing.next).take(LEASES_PER_TURN));
        match listing.ids.last().and_then(|last| last.checked_add(1)) {
            Some(next) if listing.ids.len() - before == LEASES_PER_TURN => {
                listing.next = next;
                self.listings.push_front(listing);
            }
            _ => self.answer(listing.waiter, Answer::Leases { ids: listing.ids }, out),
        }
    }

    fn cancel_listing(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let before = self.listings.len();
        self.listings.retain(|listing| listing.waiter != waiter);
        let found = self.listings.len() != before;
        if found && timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
        }
        found
    }

    fn held(&self) -> Held {
        let (commands, refused) = self.gate.held();
        let (unapplied_entries, unapplied) = self.applier.waiting();
        Held {
            entry_cache: self.consensus.cached_bytes(),
            uncommitted: self.consensus.uncommitted_bytes(),
            commands,
            unapplied,
            event_ring: self.hub.ring_bytes() as u64,
            unwritten: self.store.unwritten_bytes(),
            refused,
            unapplied_entries,
            walks: self.walks.count(),
            reads: self.reads.waiting(),
        }
    }

    /// A snapshot of the member's figures.
    pub fn status(&self) -> Status {
        let consensus = self.consensus.status();
        Status {
            cluster: self.config.cluster,
            member: self.config.member,
            leader: self.leader,
            term: self.term,
            is_leader: self.is_leader(),
            is_learner: self.store.is_learner(self.config.member),
            committed: consensus.commit,
            applied: self.store.applied().index,
            last: consensus.last,
            persisted: consensus.persisted,
            revision: self.store.revision(),
            compacted: self.store.compacted(),
            keys: self.store.keys(),
            live_bytes: self.store.live_bytes(),
            disk_bytes: self.disk_bytes(),
            quota: u64::try_from(self.config.quota_bytes).unwrap_or(0),
            leases: self.store.lease_count() as u64,
            watches: self.hub.count() as u64,
            alarms: self.alarms(),
            disk_full: self.health.disk_full(),
            digest: self.store.digest(),
            cluster_version: self.store.cluster_version().to_string(),
            followers: consensus.followers.iter().map(|f| (f.id, f.matched, f.recent_active)).collect(),
            pending: self.gate.pending(),
            leader_changes: self.leader_changes,
            proposals_failed: self.gate.failed,
            held: self.held(),
        }
    }
}
