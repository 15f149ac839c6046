//! Sorts the requests of clients, and answers what needs no log and no round.

use super::Node;
use crate::gate::{After, Command};
use crate::io::*;
use crate::lessor::{AskAgain, answer_ttl};
use crate::reads::{Due, Then};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{AlarmMember, Member, Query, TxnRead};

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
    pub(super) fn request(&mut self, waiter: Waiter, request: Request) {
        let g = &mut self.ground;
        let willing = self.health.willing();
        if willing.corrupt && of_the_state(&request) {
            return g.refuse(waiter, Refusal::User(store::Error::Corrupt));
        }
        match request {
            Request::Propose { body, cost } => self.propose(waiter, body, cost, After::Apply),
            Request::Compact { revision, physical } => {
                let body = store::command::encode_compaction(revision, physical);
                self.propose(waiter, body, 0, if physical { After::Physical } else { After::Apply });
            }
            Request::Range { query, linearizable: true, stream, keep } => {
                self.reads.queue(waiter, Then::Range { query, stream, keep });
            }
            Request::Range { query, linearizable: false, stream, keep } => {
                self.begin_range(waiter, query, stream, keep);
            }
            Request::ReadTxn { body, linearizable: true } => self.reads.queue(waiter, Then::ReadTxn { body }),
            Request::ReadTxn { body, linearizable: false } => self.read_txn(waiter, body),
            Request::WalkNext { walk } => self.walks.next(g, waiter, walk),
            Request::WalkEnd { walk } => self.walks.end(g, walk),
            Request::KeepAlive { lease } => self.reads.queue(waiter, Then::KeepAlive { lease }),
            Request::TimeToLive { lease, keys } => self.reads.queue(waiter, Then::TimeToLive { lease, keys }),
            Request::Leases => self.listings.begin(waiter),
            Request::Members { linearizable: true } => self.reads.queue(waiter, Then::Members),
            Request::Members { linearizable: false } => self.answer_members(waiter),
            Request::Status => self.answer_status(waiter),
            Request::Alarms { kind } => self.answer_alarms(waiter, kind),
            Request::Backup => self.backups.begin(g, waiter),
            Request::BackupNext { backup, first } => self.backups.next(g, waiter, backup, first),
            Request::BackupEnd { backup } => self.backups.end(g, backup),
            Request::HashKv { revision } => self.hashes.ask(g, waiter, revision),
            Request::Hash => {
                let digest = g.store.digest();
                let hash = (0..4).fold(0u32, |hash, part| hash ^ (digest >> (32 * part)) as u32);
                g.answer(waiter, Answer::Hash { hash });
            }
            Request::MoveLeader { target } => self.moves.begin(g, waiter, target),
            Request::Barrier => self.reads.queue(waiter, Then::Barrier),
            Request::History { from, prev } => self.watches.history(g, waiter, from, prev, willing),
        }
    }

    pub(super) fn cancel(&mut self, waiter: Waiter, timed_out: bool) {
        let g = &mut self.ground;
        let _ = self.gate.cancel(g, waiter, timed_out)
            || self.reads.cancel(g, waiter, timed_out)
            || self.walks.cancel(g, waiter, timed_out)
            || self.backups.cancel(g, waiter, timed_out)
            || self.hashes.cancel(g, waiter, timed_out)
            || self.watches.cancel(g, waiter, timed_out)
            || self.lessor.cancel(g, waiter, timed_out)
            || self.moves.cancel(g, waiter, timed_out)
            || self.listings.cancel(g, waiter, timed_out)
            || self.checkpoints.cancel(g, waiter, timed_out);
    }

    pub(super) fn serve_reads(&mut self) {
        for due in self.reads.due(&self.ground) {
            self.serve_read(due);
        }
    }

    fn serve_read(&mut self, Due { waiter, then }: Due) {
        let g = &mut self.ground;
        match then {
            Then::Range { query, stream, keep } => self.begin_range(waiter, query, stream, keep),
            Then::ReadTxn { body } => self.read_txn(waiter, body),
            Then::Members => self.answer_members(waiter),
            Then::Barrier => g.answer(waiter, Answer::Barrier),
            Then::KeepAlive { lease } => {
                if let Some(AskAgain { waiter, lease }) = self.lessor.renew(g, waiter, lease) {
                    self.reads.queue(waiter, Then::KeepAlive { lease });
                }
            }
            // Only a leader knows how much is left; who led when it was asked may lead no more.
            Then::TimeToLive { lease, keys } if !self.lessor.primary(g) => {
                self.reads.queue(waiter, Then::TimeToLive { lease, keys });
            }
            Then::TimeToLive { lease, keys } => {
                let ttl = self.lessor.remaining(g, lease);
                answer_ttl(g, waiter, lease, ttl, keys);
            }
            Then::TtlKnown { lease, ttl, keys } => answer_ttl(g, waiter, lease, ttl, keys),
            Then::ForeignIndex { .. } | Then::Deadlines { .. } => unreachable!("settled when the round was confirmed"),
            Then::ForeignKeepAlive { caller, lease } => self.lessor.renew_foreign(g, caller, lease),
            Then::ForeignTimeToLive { caller, lease } => self.lessor.tell_foreign(g, caller, lease),
        }
    }

    fn propose(&mut self, waiter: Waiter, body: Bytes, cost: u64, after: After) {
        let command = Command { waiter: Some(waiter), body, after };
        let unapplied = self.applier.waiting_bytes();
        self.gate.propose(&mut self.ground, command, cost, self.health.willing(), unapplied);
    }

    /// The state is new enough: a range walks over it.
    fn begin_range(&mut self, waiter: Waiter, query: Query, stream: bool, keep: u64) {
        if self.health.willing().corrupt {
            return self.ground.refuse(waiter, Refusal::User(store::Error::Corrupt));
        }
        if self.ground.swapping() {
            // The files that the old state names are gone already.
            return self.ground.refuse(waiter, Refusal::Timeout);
        }
        self.walks.begin(&mut self.ground, waiter, query, stream, keep);
    }

    /// A transaction of ranges alone, on the state as it is.
    fn read_txn(&mut self, waiter: Waiter, body: Bytes) {
        let g = &mut self.ground;
        if self.health.willing().corrupt {
            return g.refuse(waiter, Refusal::User(store::Error::Corrupt));
        }
        if g.swapping() {
            return g.refuse(waiter, Refusal::Timeout);
        }
        match g.store.read_txn(&body, &BTreeMap::new()) {
            Ok(TxnRead::Done { revision, result }) => g.answer(waiter, Answer::Applied { revision, result }),
            // A compare of values that are in files: decided where apply decides it, in the log.
            Ok(TxnRead::Needs(_)) => {
                self.gate.enqueue(Command { waiter: Some(waiter), body, after: After::Apply });
            }
            Ok(TxnRead::Damaged(reason)) => g.fatal(format!("a record is damaged: {reason}")),
            Err(malformed) => g.fatal(format!("the edge sent a malformed transaction: {malformed}")),
        }
    }

    fn answer_members(&mut self, waiter: Waiter) {
        let store = &self.ground.store;
        let members: Vec<(Member, bool)> =
            store.members().map(|member| (member.clone(), store.is_learner(member.id))).collect();
        self.ground.answer(waiter, Answer::Members { members });
    }

    fn answer_status(&mut self, waiter: Waiter) {
        let status = Box::new(self.status());
        self.ground.answer(waiter, Answer::Status(status));
    }

    fn answer_alarms(&mut self, waiter: Waiter, kind: i32) {
        let wanted = |alarm: &AlarmMember| kind == 0 || alarm.alarm == kind;
        let alarms = self.alarms().into_iter().filter(wanted).collect();
        self.ground.answer(waiter, Answer::Alarms { alarms });
    }
}
