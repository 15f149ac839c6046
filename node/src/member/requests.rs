//! Sorts the requests of clients, and answers what needs no log and no round.

use super::Node;
use crate::frame::{Caller, Frame};
use crate::gate::{After, Command, is_kept_full};
use crate::io::*;
use crate::lessor::{AskAgain, answer_ttl};
use crate::permit::{Guard, Identity};
use crate::reads::{Due, Then};
use crate::tokens::Known;
use store::auth::Asker;
use store::command::Checked;
use store::{AlarmMember, Query, Step, Store, TxnRead};

/// A transaction that only reads may look at such a part of the keys that apply may look at: there
/// may be many of them in one turn.
const READS_SHARE: usize = 4;

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
            | Request::ChangeMember { .. }
            | Request::History { .. }
            | Request::Watch { .. }
            | Request::Admin
            | Request::BackupEnd { .. }
    )
}

fn answer_auth(store: &Store, query: &AuthQuery) -> Result<AuthAnswer, store::Error> {
    use store::Error::{AuthFailed, AuthNotEnabled, NoPasswordUser, RoleNotFound, UserNotFound};
    let auth = store.auth();
    Ok(match query {
        AuthQuery::Status => AuthAnswer::Status { enabled: auth.enabled(), revision: auth.revision() },
        AuthQuery::User { name } => AuthAnswer::User { roles: auth.user(name).ok_or(UserNotFound)?.roles.clone() },
        AuthQuery::Users => AuthAnswer::Users { users: auth.users().map(|user| user.name.clone()).collect() },
        AuthQuery::Role { name } => AuthAnswer::Role { permissions: auth.shown(name).ok_or(RoleNotFound)? },
        AuthQuery::Roles => AuthAnswer::Roles { roles: auth.roles().map(|role| role.name.clone()).collect() },
        AuthQuery::Password { .. } if !auth.enabled() => return Err(AuthNotEnabled),
        AuthQuery::Password { name } => {
            let user = auth.user(name).ok_or(AuthFailed)?;
            if user.no_password {
                return Err(NoPasswordUser);
            }
            AuthAnswer::Password { hash: user.password.clone(), revision: auth.revision() }
        }
    })
}

impl Node {
    /// Who asks is looked up first. A token that this member does not know yet is waited for.
    pub(super) fn request(&mut self, waiter: Waiter, who: Who, request: Request) {
        match self.tokens.identify(&self.ground, &who) {
            Known::Identity(identity) => self.request_of(waiter, identity, request),
            Known::From(index) => {
                if !self.tokens.wait(waiter, who, request, index) {
                    self.ground.refuse(waiter, Refusal::TooManyRequests);
                }
            }
            Known::Invalid => self.ground.refuse(waiter, Refusal::User(store::Error::InvalidAuthToken)),
        }
    }

    pub(super) fn serve_tokens(&mut self) {
        for one in self.tokens.due(&self.ground) {
            match self.tokens.identify(&self.ground, &one.who) {
                Known::Identity(identity) => self.request_of(one.waiter, identity, one.request),
                // What was given would be known by now.
                Known::From(_) | Known::Invalid => {
                    self.ground.refuse(one.waiter, Refusal::User(store::Error::InvalidAuthToken));
                }
            }
        }
    }

    /// What the cluster has is found out for those who wait.
    pub(super) fn ask_for_tokens(&mut self) {
        if let Some(upto) = self.tokens.asks() {
            self.reads.queue_tokens(upto);
        }
    }

    fn request_of(&mut self, waiter: Waiter, identity: Identity, request: Request) {
        let willing = self.health.willing();
        if self.membership.is_gone() && !matches!(request, Request::Status | Request::Members { linearizable: false }) {
            return self.ground.refuse(waiter, Refusal::Stopped);
        }
        // Without a state it knows the founders of its flags, or the members of a checkpoint of
        // before.
        let lists = matches!(request, Request::Members { .. }) && identity != Identity::Member;
        if willing.corrupt && of_the_state(&request) || lists && self.health.started_over() {
            return self.ground.refuse(waiter, Refusal::User(store::Error::Corrupt));
        }
        let request = match request {
            // Decided in apply.
            Request::Propose { body, cost } => return self.propose(waiter, &identity, body, cost, After::Apply),
            Request::Compact { revision, physical } => {
                let body = store::command::encode_compaction(revision, physical);
                let after = if physical { After::Physical } else { After::Apply };
                return self.propose(waiter, &identity, body, 0, after);
            }
            other => other,
        };
        let guard = Guard::new(&self.ground.store, identity, &request);
        let request = match request {
            // Decided when the state is new enough.
            Request::Range { query, linearizable: true, stream, keep } => {
                return self.reads.queue_guarded(waiter, guard, Then::Range { query, stream, keep });
            }
            Request::ReadTxn { body, linearizable: true } => {
                return self.reads.queue_guarded(waiter, guard, Then::ReadTxn { body });
            }
            Request::TimeToLive { lease, keys } => {
                return self.reads.queue_guarded(waiter, guard, Then::TimeToLive { lease, keys });
            }
            Request::Members { linearizable: true } => {
                return self.reads.queue_guarded(waiter, guard, Then::Members);
            }
            Request::Auth { query } => return self.reads.queue_guarded(waiter, guard, Then::Auth { query }),
            other => other,
        };
        match guard.check(&self.ground.store) {
            Ok(()) => self.permitted(waiter, &guard, request),
            Err(error) => self.ground.refuse(waiter, Refusal::User(error)),
        }
    }

    /// What is answered on this member's state as it is.
    fn permitted(&mut self, waiter: Waiter, guard: &Guard, request: Request) {
        let g = &mut self.ground;
        let willing = self.health.willing();
        match request {
            Request::Propose { .. } | Request::Compact { .. } | Request::Auth { .. } | Request::TimeToLive { .. } => {
                unreachable!("sorted before")
            }
            Request::Range { query, stream, keep, .. } => self.begin_range(waiter, query, stream, keep),
            Request::ReadTxn { body, .. } => self.read_txn(waiter, guard, body),
            Request::WalkNext { walk } => self.walks.next(g, waiter, walk),
            Request::WalkEnd { walk } => self.walks.end(g, walk),
            Request::KeepAlive { lease } => self.reads.queue(waiter, Then::KeepAlive { lease }),
            Request::Leases => self.listings.begin(waiter),
            Request::Members { .. } => g.answer_members(waiter),
            Request::Watch { .. } | Request::Admin => g.answer(waiter, Answer::Barrier),
            Request::Status => self.answer_status(waiter),
            Request::Alarms { kind } => self.answer_alarms(waiter, kind),
            Request::Backup => self.backups.begin(g, waiter),
            Request::BackupNext { backup, first } => self.backups.next(g, waiter, backup, first),
            Request::BackupEnd { backup } => self.backups.end(g, backup),
            Request::HashKv { .. } if self.health.waits_for_room() => g.refuse(waiter, Refusal::Timeout),
            Request::HashKv { revision } => self.hashes.ask(g, waiter, revision),
            Request::Hash => {
                let digest = g.store.digest();
                let hash = (0..4).fold(0u32, |hash, part| hash ^ (digest >> (32 * part)) as u32);
                g.answer(waiter, Answer::Hash { hash });
            }
            Request::MoveLeader { target } => self.moves.begin(g, waiter, target),
            Request::ChangeMember { change } => self.membership.ask(g, waiter, change, willing),
            Request::Barrier => self.reads.queue(waiter, Then::Barrier),
            Request::History { from, prev } => self.watches.history(g, waiter, from, prev, willing),
        }
    }

    pub(super) fn cancel(&mut self, waiter: Waiter, timed_out: bool) {
        let g = &mut self.ground;
        let _ = self.gate.cancel(g, waiter, timed_out)
            || self.reads.cancel(g, waiter, timed_out)
            || self.walks.cancel(g, waiter, timed_out)
            || self.answers.cancel(g, waiter, timed_out)
            || self.backups.cancel(g, waiter, timed_out)
            || self.hashes.cancel(g, waiter, timed_out)
            || self.watches.cancel(g, waiter, timed_out)
            || self.lessor.cancel(g, waiter, timed_out)
            || self.moves.cancel(g, waiter, timed_out)
            || self.membership.cancel(g, waiter, timed_out)
            || self.listings.cancel(g, waiter, timed_out)
            || self.tokens.cancel(g, waiter, timed_out)
            || self.checkpoints.cancel(g, waiter, timed_out);
    }

    pub(super) fn serve_reads(&mut self) {
        for due in self.reads.due(&self.ground) {
            self.serve_read(due);
        }
    }

    fn serve_read(&mut self, Due { waiter, guard, then }: Due) {
        let g = &mut self.ground;
        if let Err(error) = guard.check(&g.store) {
            return g.refuse(waiter, Refusal::User(error));
        }
        // Asked while the state was right, and answered only now.
        if self.health.willing().corrupt && then.tells_state() {
            return g.refuse(waiter, Refusal::User(store::Error::Corrupt));
        }
        match then {
            Then::Range { query, stream, keep } => self.begin_range(waiter, query, stream, keep),
            Then::ReadTxn { body } => self.read_txn(waiter, &guard, body),
            Then::Auth { query } => match answer_auth(&g.store, &query) {
                Ok(answer) => g.answer(waiter, Answer::Auth(answer)),
                Err(error) => g.refuse(waiter, Refusal::User(error)),
            },
            Then::Members => g.answer_members(waiter),
            Then::Barrier => g.answer(waiter, Answer::Barrier),
            // Its leases are wrong too: one that it does not know may be there.
            Then::KeepAlive { .. } if self.health.willing().corrupt => {
                g.refuse(waiter, Refusal::User(store::Error::Corrupt));
            }
            Then::KeepAlive { lease } => {
                if let Some(AskAgain { waiter, lease }) = self.lessor.renew(g, waiter, lease) {
                    self.reads.queue(waiter, Then::KeepAlive { lease });
                }
            }
            // Only a leader knows how much is left; who led when it was asked may lead no more.
            Then::TimeToLive { lease, keys } if !self.lessor.primary(g) => {
                self.reads.queue_guarded(waiter, guard, Then::TimeToLive { lease, keys });
            }
            Then::TimeToLive { lease, keys } => {
                let ttl = self.lessor.remaining(g, lease);
                answer_ttl(g, waiter, lease, ttl, keys);
            }
            // Granted anew since the leader told its time: that was another lease of the same id.
            Then::TtlKnown { lease, index, keys, .. } if g.store.lease(lease).is_some_and(|l| l.granted > index) => {
                self.reads.queue_guarded(waiter, guard, Then::TimeToLive { lease, keys });
            }
            Then::TtlKnown { lease, ttl, keys, .. } => answer_ttl(g, waiter, lease, ttl, keys),
            Then::ForeignIndex { .. } | Then::Deadlines { .. } => unreachable!("settled when the round was confirmed"),
            // Its leases are wrong too. The asker asks whoever leads next.
            Then::ForeignKeepAlive { caller: Caller { member, boot, token }, .. } if self.health.willing().corrupt => {
                g.send(member, Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 });
            }
            Then::ForeignTimeToLive { caller: Caller { member, boot, token }, .. } if self.health.willing().corrupt => {
                g.send(member, Frame::TimeToLiveReply { boot, token, ok: false, ttl: 0, index: 0 });
            }
            Then::Tokens { upto } => self.tokens.caught_up(upto),
            Then::ForeignKeepAlive { caller, lease } => self.lessor.renew_foreign(g, caller, lease),
            Then::ForeignTimeToLive { caller, lease } => self.lessor.tell_foreign(g, caller, lease),
        }
    }

    fn propose(&mut self, waiter: Waiter, identity: &Identity, body: Checked, cost: u64, after: After) {
        if is_kept_full(&self.ground, cost) {
            self.let_go();
        }
        let body = self.signed(identity, &body);
        let command = Command { waiter: Some(waiter), body, after };
        let unapplied = self.applier.waiting_bytes();
        self.gate.propose(&mut self.ground, command, cost, self.health.willing(), unapplied);
    }

    /// The command with who asks. Before there are users it stays as it is, and versions without
    /// them read it.
    fn signed(&self, identity: &Identity, body: &Checked) -> Checked {
        let store = &self.ground.store;
        let asker = if store.auth().untouched() { Asker::Nobody } else { identity.asker(store) };
        store::command::signed(body, asker)
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
    fn read_txn(&mut self, waiter: Waiter, guard: &Guard, body: Checked) {
        let g = &mut self.ground;
        if self.health.willing().corrupt {
            return g.refuse(waiter, Refusal::User(store::Error::Corrupt));
        }
        if g.swapping() {
            return g.refuse(waiter, Refusal::Timeout);
        }
        let keys = g.config.budgets.apply_keys / READS_SHARE;
        let mut step = Step { keys: keys.max(1), bytes: 0 };
        match g.store.read_txn(&body, &mut step) {
            Ok(TxnRead::Done { revision, result: Ok(reply), holds: Some(holds) }) => {
                self.answers.begin(g, waiter, revision, reply, holds);
            }
            Ok(TxnRead::Done { revision, result, .. }) => g.answer(waiter, Answer::Applied { revision, result }),
            // Compares of values that are in files, or of very many keys: decided where apply
            // decides them, in the log. So it is let in as a command is.
            Ok(TxnRead::Needs) => self.propose(waiter, guard.identity(), body, 0, After::Apply),
            Ok(TxnRead::Damaged(reason)) => g.fatal(format!("a record is damaged: {reason}")),
            // It is another command: the edge sends none.
            Err(_) => g.refuse(waiter, Refusal::User(store::Error::NoCommand)),
        }
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
