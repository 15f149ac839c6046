//! The gate: how a client's command becomes one proposal, exactly once.
//!
//! A command gets a sequence number each time it is sent towards a log. It is sent in one term
//! only, and the leader proposes it only in that term, each number once. So when an entry of a
//! later term is applied and the command was not, it never will be: it is then sent again under
//! a new number. A client's write in flight survives a failover without ever being applied twice.

use crate::config::TICK_MS;
use crate::forwards::{Figures, Flight, Life, Seen};
use crate::frame::{Caller, Forwarded, Frame, SeqRange, Why};
use crate::ground::{Ground, Willing};
use crate::io::*;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use store::auth::Asker;
use store::command::{AlarmAction, Checked, LEASE_GRANT_COST, Malformed, Origin};
use store::{Applied, Reply};

/// Bodies of one frame of forwards, about: heartbeats wait behind at most one. Bytes.
const FORWARD_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) waiter: Option<Waiter>,
    pub(crate) body: Checked,
    pub(crate) after: After,
}

/// What the asker waits for besides the apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Apply,
    /// The sweep, and a checkpoint that holds the compacted revision.
    Physical,
}

/// What is still owed to who asked for an entry that is applied.
pub(crate) enum Owed {
    /// The answer waits for [`After::Physical`].
    Physical { waiter: Waiter, revision: i64 },
    /// The answer is not whole ([`store::Applied`]).
    Rest { waiter: Waiter, revision: i64, reply: Reply, holds: i64 },
}

/// Commands of another member's clients, for the leader of `term`.
pub(crate) struct Forward {
    pub(crate) from: u64,
    pub(crate) boot: u64,
    pub(crate) term: u64,
    pub(crate) commands: Vec<Forwarded>,
}

#[derive(Debug)]
struct Sent {
    command: Command,
    term: u64,
}

#[derive(Default)]
pub(crate) struct Gate {
    next_seq: u64,
    /// Not yet sent, in order; also what waits for a leader.
    queue: VecDeque<Command>,
    /// Whose commands stand in the queue, with their bytes. A command whose asker has gone is
    /// passed over when its turn comes.
    queued: BTreeMap<Waiter, u64>,
    /// Commands in the queue that are passed over.
    passed_over: usize,
    sent: BTreeMap<u64, Sent>,
    by_waiter: BTreeMap<Waiter, u64>,
    /// The highest term of an applied entry: nothing in `sent` is older.
    fenced: u64,
    /// Of the commands that are queued and sent and still wanted.
    bytes: u64,
    refused: u64,
    /// Forwards on their way to the leader.
    flight: Flight,
    /// Leader: numbers seen in this term.
    seen: Seen,
    failed: u64,
    /// Something in `queue` was not tried in this turn yet.
    fresh: bool,
    alarm_asked: u64,
}

impl Gate {
    pub(crate) fn idle(&self) -> bool {
        !self.fresh
    }

    pub(crate) fn pending(&self) -> u64 {
        (self.sent.len() + self.queue.len() - self.passed_over) as u64
    }

    /// Bytes of commands accepted and not yet applied.
    pub(crate) fn held(&self) -> u64 {
        self.bytes
    }

    /// Commands that were refused because there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn forwards(&self) -> Figures {
        self.flight.figures()
    }

    /// Commands that were not applied, as far as their askers know.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    pub(crate) fn enqueue(&mut self, command: Command) {
        self.admit(&command);
        self.queue.push_back(command);
        self.fresh = true;
    }

    fn admit(&mut self, command: &Command) {
        self.bytes += command.body.len() as u64;
        if let Some(waiter) = command.waiter {
            self.queued.insert(waiter, command.body.len() as u64);
        }
    }

    /// The next command whose asker still waits, if it may be forwarded now.
    fn pop_forward(&mut self) -> Option<Command> {
        let command = self.pop()?;
        if self.flight.has_room(command.body.len()) {
            return Some(command);
        }
        self.requeue_quietly(command);
        None
    }

    /// The next command whose asker still waits.
    fn pop(&mut self) -> Option<Command> {
        while let Some(command) = self.queue.pop_front() {
            match command.waiter {
                Some(waiter) if self.queued.remove(&waiter).is_none() => self.passed_over -= 1,
                _ => {
                    self.bytes -= command.body.len() as u64;
                    return Some(command);
                }
            }
        }
        None
    }

    /// Somebody waits here for what this command answers.
    pub(crate) fn asks(&self, member: u64, boot: u64, origin: Origin) -> bool {
        (origin.member, origin.boot) == (member, boot)
            && self.sent.get(&origin.seq).is_some_and(|sent| sent.command.waiter.is_some())
    }

    /// A command that was sent and needs no more care; if it was one of these.
    fn take(&mut self, seq: u64) -> Option<Command> {
        let sent = self.sent.remove(&seq)?;
        self.bytes -= sent.command.body.len() as u64;
        if let Some(waiter) = sent.command.waiter {
            self.by_waiter.remove(&waiter);
        }
        Some(sent.command)
    }

    /// An entry of `term` was applied: what was sent in an earlier term and is not in the log
    /// below it never will be. It is sent again.
    pub(crate) fn fence(&mut self, term: u64) {
        // Once in a term: every applied entry comes here.
        if term <= self.fenced {
            return;
        }
        self.fenced = term;
        let lost: Vec<u64> = self.sent.iter().filter(|(_, sent)| sent.term < term).map(|(seq, _)| *seq).collect();
        for seq in lost.into_iter().rev() {
            let sent = self.sent.remove(&seq).expect("listed");
            self.bytes -= sent.command.body.len() as u64;
            self.requeue(sent.command);
        }
    }

    fn requeue(&mut self, command: Command) {
        if let Some(waiter) = command.waiter {
            self.by_waiter.remove(&waiter);
        }
        self.requeue_quietly(command);
        self.fresh = true;
    }

    /// The asker went away. True: it was waiting for a command.
    fn forget(&mut self, waiter: Waiter) -> Option<u64> {
        if let Some(seq) = self.by_waiter.remove(&waiter) {
            let sent = self.sent.remove(&seq).expect("a waiter's command is sent");
            self.bytes -= sent.command.body.len() as u64;
            return Some(sent.term.max(1));
        }
        self.bytes -= self.queued.remove(&waiter)?;
        self.passed_over += 1;
        if self.passed_over > 64 && self.passed_over > self.queue.len() / 2 {
            let queued = &self.queued;
            self.queue.retain(|command| command.waiter.is_none_or(|waiter| queued.contains_key(&waiter)));
            self.passed_over = 0;
        }
        Some(0)
    }

    /// A snapshot replaced the state: nobody can tell which of the commands sent are in it.
    pub(crate) fn replaced(&mut self, g: &mut Ground) {
        self.by_waiter.clear();
        self.flight.clear();
        for Sent { command, .. } in std::mem::take(&mut self.sent).into_values() {
            self.bytes -= command.body.len() as u64;
            if let Some(waiter) = command.waiter {
                g.refuse(waiter, Refusal::TimeoutLeaderFail);
            }
        }
    }

    /// A validated command of a client of this member. `unapplied`: bytes of entries that wait for
    /// apply.
    pub(crate) fn propose(&mut self, g: &mut Ground, command: Command, cost: u64, willing: Willing, unapplied: u64) {
        let Some(refusal) = self.refusal(g, &command.body, cost, willing, unapplied) else {
            return self.enqueue(command);
        };
        self.refused += u64::from(refusal == Refusal::TooManyRequests);
        if refusal == Refusal::User(store::Error::NoSpace) && !willing.disk_full {
            self.ask_for_alarm(g);
        }
        if let Some(waiter) = command.waiter {
            g.refuse(waiter, refusal);
        }
    }

    fn refusal(&self, g: &Ground, body: &Checked, cost: u64, willing: Willing, unapplied: u64) -> Option<Refusal> {
        if willing.stopping {
            return Some(Refusal::Stopped);
        }
        let reserved = store::command::is_reserved(body);
        let full = self.is_full(g, body.len() as u64, reserved);
        if full || (!reserved && apply_is_behind(g, unapplied)) {
            return Some(Refusal::TooManyRequests);
        }
        if cost > 0 && willing.disk_full {
            return Some(Refusal::User(store::Error::NoSpace));
        }
        if is_kept_full(g, cost) {
            // It is not known yet what is left: no reason for an alarm.
            return Some(Refusal::TooManyRequests);
        }
        (cost > 0 && over_quota(g, cost)).then_some(Refusal::User(store::Error::NoSpace))
    }

    fn is_full(&self, g: &Ground, bytes: u64, reserved: bool) -> bool {
        let limit = g.config.budgets.commands;
        let limit = if reserved { limit + limit / 8 } else { limit };
        // The first one always fits: otherwise a small budget would refuse a large request for
        // ever.
        self.bytes > 0 && self.bytes.saturating_add(bytes) > limit
    }

    /// NOSPACE is replicated: proposed at most once a second.
    fn ask_for_alarm(&mut self, g: &Ground) {
        let again = self.alarm_asked + 1000 / TICK_MS;
        let alarm = store::AlarmMember { member: g.config.member, alarm: 1 };
        if (self.alarm_asked != 0 && g.now < again) || g.store.alarms().any(|raised| raised == alarm) {
            return;
        }
        self.alarm_asked = g.now.max(1);
        let body = store::command::encode_alarm(AlarmAction::Activate, alarm.member, alarm.alarm);
        // A client could ask for the same. Before there are users nobody is asked, and versions
        // without them read it.
        let asker = if g.store.auth().untouched() { Asker::Nobody } else { Asker::Member };
        self.propose_own(store::command::signed(&body, asker));
    }

    /// A command of this member itself: no asker.
    pub(crate) fn propose_own(&mut self, body: Checked) {
        self.enqueue(Command { waiter: None, body, after: After::Apply });
    }

    /// Proposes, forwards or keeps what was collected. `clock`: the lease clock, for commands that
    /// want its stamp.
    pub(crate) fn submit(&mut self, g: &mut Ground, willing: Willing, clock: u64) {
        self.fresh = false;
        // Consensus may have moved on since its last turn: a command's term must be the real one.
        let settled = (g.consensus.term(), g.consensus.leader()) == (g.term, g.leader);
        if self.queue.is_empty() || g.leader == 0 || !settled || willing.holds_commands {
            return;
        }
        self.flight.head_for(g.leader, g.term, g.config.budgets.forwards);
        if g.is_leader() {
            self.propose_queue(g, clock);
        } else {
            self.forward_queue(g);
        }
    }

    fn propose_queue(&mut self, g: &mut Ground, clock: u64) {
        while let Some(command) = self.pop() {
            self.next_seq += 1;
            let seq = self.next_seq;
            let origin = Origin { member: g.config.member, boot: g.config.boot, seq };
            match propose_sealed(g, &command.body, origin, clock) {
                Ok(()) => self.sent(g, seq, command),
                Err(consensus::Refused::TooMany) => {
                    self.failed += 1;
                    self.refused += 1;
                    if let Some(waiter) = command.waiter {
                        g.refuse(waiter, Refusal::TooManyRequests);
                    }
                }
                Err(_) => return self.requeue_quietly(command),
            }
        }
    }

    fn sent(&mut self, g: &Ground, seq: u64, command: Command) {
        if let Some(waiter) = command.waiter {
            self.by_waiter.insert(waiter, seq);
        }
        assert!(g.term >= self.fenced, "an entry of a later term than ours was applied");
        self.bytes += command.body.len() as u64;
        self.sent.insert(seq, Sent { command, term: g.term });
    }

    /// Forwards what may be under way at once; the rest waits in the queue.
    fn forward_queue(&mut self, g: &mut Ground) {
        let mut commands = Vec::new();
        while let Some(command) = self.pop_forward() {
            self.next_seq += 1;
            let seq = self.next_seq;
            commands.push(Forwarded { seq, body: Bytes::clone(&command.body) });
            self.flight.sent(seq, command.body.len(), g.now);
            self.sent(g, seq, command);
        }
        send_forward(g, commands);
    }

    pub(crate) fn lost(&mut self, g: &Ground, peer: u64) {
        self.flight.lost(peer, g.now);
    }

    /// After long silence the leader is asked which forwards it has not seen.
    pub(crate) fn tick(&mut self, g: &mut Ground) {
        if let Some((token, seqs)) = self.flight.question(g.leader, g.term, g.now) {
            let frame = Frame::ForwardQuestion { term: g.term, boot: g.config.boot, token, seqs };
            g.send(g.leader, frame);
        }
    }

    /// Leader: another member asks which of its forwards never came.
    pub(crate) fn on_forward_question(
        &mut self,
        g: &mut Ground,
        from: Caller,
        term: u64,
        asked: &[SeqRange],
        willing: Willing,
    ) {
        let Caller { member, boot, token } = from;
        if !leads(g, term, willing) {
            // Nothing was decided: it asks again later.
            let seqs = asked.iter().take(1).map(|range| range.first).collect();
            return g.send(member, Frame::ForwardRefused { boot, seqs, why: Why::NotLeader });
        }
        let (seqs, refused) = self.seen.sort(Life { member, boot }, term, asked);
        if !refused.is_empty() {
            g.send(member, Frame::ForwardRefused { boot, seqs: refused, why: Why::TooMany });
        }
        g.send(member, Frame::ForwardMissing { boot, token, seqs });
    }

    /// The leader has not seen these: their bodies are said again, in order.
    pub(crate) fn on_forward_missing(&mut self, g: &mut Ground, boot: u64, token: u64, missing: &[SeqRange]) {
        if boot != g.config.boot {
            return;
        }
        let mut again = Vec::new();
        for seq in self.flight.missing(g.leader, g.term, token, missing) {
            match self.sent.get(&seq) {
                Some(sent) => again.push(Forwarded { seq, body: Bytes::clone(&sent.command.body) }),
                // Nobody wants it any more.
                None => self.flight.landed(seq, g.now, g.config.budgets.forwards),
            }
        }
        if !again.is_empty() {
            self.flight.sent_again(again.len() as u64);
            send_forward(g, again);
        }
    }

    /// Leader: commands of another member's clients. Answers those that are none. `unapplied`:
    /// bytes of entries that wait for apply.
    pub(crate) fn on_forward(
        &mut self,
        g: &mut Ground,
        forward: Forward,
        willing: Willing,
        clock: u64,
        unapplied: u64,
    ) -> Vec<Malformed> {
        let Forward { from, boot, term, commands } = forward;
        let behind = apply_is_behind(g, unapplied);
        let (life, willing) = (Life { member: from, boot }, leads(g, term, willing));
        let (mut too_many, mut not_now, mut none, mut malformed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for Forwarded { seq, body } in commands {
            if !willing {
                not_now.push(seq);
                continue;
            }
            if !self.seen.first(life, term, seq) {
                continue;
            }
            // Whole, before it is proposed: what is in the log cannot be taken out again.
            let body = match Checked::read(body) {
                Ok(body) => body,
                Err(bad) => {
                    self.seen.refuse(life, seq);
                    none.push(seq);
                    malformed.push(bad);
                    continue;
                }
            };
            let proposed = match behind && !store::command::is_reserved(&body) {
                true => Err(consensus::Refused::TooMany),
                false => propose_sealed(g, &body, Origin { member: from, boot, seq }, clock),
            };
            match proposed {
                Ok(()) => {}
                // Its asker is told that nothing was applied, so a copy of this frame must find the
                // number used.
                Err(consensus::Refused::TooMany) => {
                    self.seen.refuse(life, seq);
                    too_many.push(seq);
                }
                // Kept by its member, which asks again.
                Err(_) => {
                    self.seen.forget(life, seq);
                    not_now.push(seq);
                }
            }
        }
        for (seqs, why) in [(too_many, Why::TooMany), (not_now, Why::NotLeader), (none, Why::NoCommand)] {
            if !seqs.is_empty() {
                g.send(from, Frame::ForwardRefused { boot, seqs, why });
            }
        }
        malformed
    }

    /// The leader said that it did not propose these. An earlier copy of the same forward cannot
    /// have been proposed in between: the leader knows the numbers of its term, and another term
    /// refuses.
    pub(crate) fn on_forward_refused(&mut self, g: &mut Ground, boot: u64, seqs: Vec<u64>, why: Why) {
        if boot != g.config.boot {
            return;
        }
        if why == Why::NotLeader {
            // Not the leader of that term (any more): the fence decides, since an earlier copy may
            // have been proposed. One that still leads, and was about to hand over, is asked again.
            return self.flight.unwilling(&seqs, g.now);
        }
        let refusal = match why {
            Why::NoCommand => Refusal::User(store::Error::NoCommand),
            Why::TooMany | Why::NotLeader => Refusal::TooManyRequests,
        };
        if why == Why::TooMany {
            self.flight.crowded(g.now);
        }
        for seq in seqs {
            self.flight.landed(seq, g.now, g.config.budgets.forwards);
            let Some(command) = self.take(seq) else { continue };
            self.failed += 1;
            if let Some(waiter) = command.waiter {
                g.refuse(waiter, refusal);
            }
        }
    }

    /// The asker of a command went away or ran out of time. True: it was one of the gate's.
    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let Some(term) = self.forget(waiter) else { return false };
        self.failed += 1;
        if timed_out {
            let refusal = match term {
                0 => Refusal::Timeout,
                term if term < g.term => Refusal::TimeoutLeaderFail,
                // As etcd: without a leader there is no connection to one.
                _ if !g.is_leader() && g.leader != 0 => Refusal::TimeoutConnectionLost,
                _ => Refusal::Timeout,
            };
            g.refuse(waiter, refusal);
        }
        true
    }

    /// An entry was applied. If it is a command sent from here, its asker is answered; or what is
    /// still owed to it is returned. `corrupt`: the
    /// state must not be served, so nobody is told what the command did.
    pub(crate) fn applied(&mut self, g: &mut Ground, applied: Applied, corrupt: bool) -> Option<Owed> {
        let origin = applied.origin?;
        if (origin.member, origin.boot) != (g.config.member, g.config.boot) {
            return None;
        }
        self.flight.landed(origin.seq, g.now, g.config.budgets.forwards);
        let Command { waiter, after, .. } = self.take(origin.seq)?;
        let waiter = waiter?;
        if corrupt {
            // It happened in the cluster, and what it came to is not known here.
            g.refuse(waiter, Refusal::Timeout);
            return None;
        }
        if after == After::Physical && applied.result.is_ok() {
            return Some(Owed::Physical { waiter, revision: applied.revision });
        }
        match (applied.holds, applied.result) {
            (Some(holds), Ok(reply)) => Some(Owed::Rest { waiter, revision: applied.revision, reply, holds }),
            (_, result) => {
                g.answer(waiter, Answer::Applied { revision: applied.revision, result });
                None
            }
        }
    }

    /// Back to the front without another try in this turn.
    fn requeue_quietly(&mut self, command: Command) {
        self.admit(&command);
        self.queue.push_front(command);
    }
}

/// `unapplied`: bytes of entries that wait for apply.
fn apply_is_behind(g: &Ground, unapplied: u64) -> bool {
    let budgets = &g.config.budgets;
    g.consensus.commit().saturating_sub(g.store.applied().index) > budgets.backlog || unapplied > budgets.unapplied
}

/// The quota is reached, and compacted versions are part of what fills it: whoever keeps them is in
/// the way of a write of this `cost`.
pub(crate) fn is_kept_full(g: &Ground, cost: u64) -> bool {
    cost > 0 && g.sweeps() && over_quota(g, cost)
}

/// Leases count for what a grant costs: they are no records, and their number has no other bound.
fn over_quota(g: &Ground, cost: u64) -> bool {
    let leases = g.store.lease_count() as u64 * LEASE_GRANT_COST;
    match u64::try_from(g.config.quota_bytes) {
        Ok(quota) => g.store.live_bytes().saturating_add(leases).saturating_add(cost) >= quota,
        Err(_) => false,
    }
}

/// The last eighth of what may be uncommitted is kept for what must pass.
fn uncommitted_is_full(g: &Ground, body: &[u8]) -> bool {
    let limit = g.config.budgets.uncommitted;
    let uncommitted = g.consensus.uncommitted_bytes();
    uncommitted > 0
        && uncommitted.saturating_add(body.len() as u64) > limit - limit / 8
        && !store::command::is_reserved(body)
}

fn propose_sealed(g: &mut Ground, body: &Checked, origin: Origin, clock: u64) -> Result<(), consensus::Refused> {
    if uncommitted_is_full(g, body) {
        return Err(consensus::Refused::TooMany);
    }
    let clock = store::command::wants_clock(body).then_some(clock);
    g.consensus.propose(store::command::seal(body, origin, clock))
}

/// This member leads in `term`, also for consensus, and takes commands.
fn leads(g: &Ground, term: u64, willing: Willing) -> bool {
    let settled = (g.consensus.term(), g.consensus.leader()) == (term, g.config.member);
    g.is_leader() && settled && !willing.holds_commands
}

/// Frames are small, so that a large backlog does not hold up heartbeats.
fn send_forward(g: &mut Ground, commands: Vec<Forwarded>) {
    let (to, term, boot) = (g.leader, g.term, g.config.boot);
    let mut frame = Vec::new();
    let mut bytes = 0;
    for command in commands {
        bytes += command.body.len() + 12;
        frame.push(command);
        if bytes >= FORWARD_BYTES {
            bytes = 0;
            g.send(to, Frame::Forward { term, boot, commands: std::mem::take(&mut frame) });
        }
    }
    if !frame.is_empty() {
        g.send(to, Frame::Forward { term, boot, commands: frame });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A put of so many bytes.
    fn body(bytes: usize) -> Checked {
        let mut request = vec![0x0a, (bytes - 4) as u8];
        request.resize(bytes - 2, b'k');
        let body = store::command::encode_put(&request).expect("a put");
        assert_eq!(body.len(), bytes);
        body
    }

    fn command(waiter: u64, bytes: usize) -> Command {
        Command { waiter: Some(waiter), body: body(bytes), after: After::Apply }
    }

    #[test]
    fn leases_count_for_the_quota() {
        let mut g = Ground::alone(7);
        g.config.quota_bytes = 100 * LEASE_GRANT_COST as i64;
        let mut granted = 0;
        while !over_quota(&g, LEASE_GRANT_COST) {
            granted += 1;
            let body = store::command::encode_lease_grant(granted, 60, 1);
            let entry = store::command::seal(&body, Origin { member: 1, boot: 1, seq: 1 }, Some(1));
            let at = store::Position { index: g.store.applied().index + 1, term: 1 };
            g.store.apply(at, &entry, None).expect("an entry");
            assert!(granted < 100, "no more than fit");
        }
        assert_eq!(granted, 99);
    }

    #[test]
    fn a_command_whose_asker_went_away_is_passed_over_and_holds_nothing() {
        let mut gate = Gate::default();
        for waiter in 1..=1000 {
            gate.enqueue(command(waiter, 10));
        }
        for waiter in 1..=900 {
            assert_eq!(gate.forget(waiter), Some(0));
            assert_eq!(gate.forget(waiter), None, "once");
        }
        assert_eq!((gate.held(), gate.pending()), (1000, 100));
        assert!(gate.queue.len() < 300, "what nobody wants is taken out: {}", gate.queue.len());
        let first = gate.pop().expect("one is wanted");
        assert_eq!(first.waiter, Some(901));
        gate.requeue(first);
        assert_eq!(gate.held(), 1000);
        let mut left = Vec::new();
        while let Some(command) = gate.pop() {
            left.extend(command.waiter);
        }
        assert_eq!(left, (901..=1000).collect::<Vec<_>>());
        assert_eq!((gate.held(), gate.pending()), (0, 0));
    }
}
