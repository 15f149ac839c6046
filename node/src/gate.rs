//! The gate: how a client's command becomes one proposal, exactly once.
//!
//! A command gets a sequence number each time it is sent towards a log. It is sent in one term
//! only, and the leader proposes it only in that term, each number once. So when an entry of a
//! later term is applied and the command was not, it never will be: it is then sent again under
//! a new number. A client's write in flight survives a failover without ever being applied twice.

use crate::config::TICK_MS;
use crate::frame::{Forwarded, Frame, Why};
use crate::io::*;
use crate::member::Node;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::command::{AlarmAction, Origin};

/// A forward that was not answered by its entry is said again after this; the leader
/// knows the numbers it has seen. Ticks.
const FORWARD_AGAIN: u64 = 500 / TICK_MS;
/// Numbers remembered per forwarding member.
const SEEN: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) waiter: Option<Waiter>,
    pub(crate) body: Bytes,
    pub(crate) after: After,
}

/// What the asker waits for besides the apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Apply,
    /// The sweep, and a checkpoint that holds the compacted revision.
    Physical,
}

#[derive(Debug)]
struct Sent {
    command: Command,
    term: u64,
    /// 0 = proposed here.
    to: u64,
    at: u64,
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
    /// Of the commands that are queued and sent and still wanted.
    bytes: u64,
    refused: u64,
    /// Leader: numbers seen in this term.
    seen: Seen,
    pub(crate) failed: u64,
    /// Something in `queue` was not tried in this turn yet.
    fresh: bool,
    alarm_asked: u64,
}

/// Per life of a member: a frame of an earlier life may come late, and must not make the
/// numbers of the present one new again.
#[derive(Default)]
struct Seen {
    term: u64,
    /// By (member, boot).
    lives: BTreeMap<(u64, u64), Numbers>,
}

#[derive(Default)]
struct Numbers {
    floor: u64,
    numbers: BTreeSet<u64>,
}

impl Seen {
    /// True once per number.
    fn first(&mut self, life: (u64, u64), term: u64, seq: u64) -> bool {
        if self.term != term {
            *self = Seen { term, lives: BTreeMap::new() };
        }
        self.lives.entry(life).or_default().first(seq)
    }

    fn forget(&mut self, life: (u64, u64), seq: u64) {
        if let Some(numbers) = self.lives.get_mut(&life) {
            numbers.numbers.remove(&seq);
        }
    }
}

impl Numbers {
    fn first(&mut self, seq: u64) -> bool {
        if seq <= self.floor || !self.numbers.insert(seq) {
            return false;
        }
        if self.numbers.len() > SEEN {
            self.floor = self.numbers.pop_first().expect("not empty");
        }
        true
    }
}

impl Gate {
    pub(crate) fn idle(&self) -> bool {
        !self.fresh
    }

    pub(crate) fn pending(&self) -> u64 {
        (self.sent.len() + self.queue.len() - self.passed_over) as u64
    }

    /// Bytes of commands accepted and not yet applied, and how many were refused.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.bytes, self.refused)
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

    /// An own command was applied: its asker, if it still waits.
    pub(crate) fn applied(&mut self, seq: u64) -> Option<Command> {
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

    /// A snapshot replaced the state: nobody can tell which of these are in it.
    pub(crate) fn drain_sent(&mut self) -> Vec<Command> {
        self.by_waiter.clear();
        let drained: Vec<Command> = std::mem::take(&mut self.sent).into_values().map(|sent| sent.command).collect();
        self.bytes -= drained.iter().map(|command| command.body.len() as u64).sum::<u64>();
        drained
    }
}

impl Node {
    /// A validated command of a client of this member.
    pub(crate) fn on_propose(&mut self, waiter: Waiter, body: Bytes, cost: u64, after: After, out: &mut Vec<Output>) {
        if let Some(refusal) = self.gate_refuses(&body, cost) {
            self.gate.refused += u64::from(refusal == Refusal::TooManyRequests);
            if refusal == Refusal::User(store::Error::NoSpace) && !self.health.disk_full() {
                self.ask_for_alarm();
            }
            return self.refuse(waiter, refusal, out);
        }
        self.gate.enqueue(Command { waiter: Some(waiter), body, after });
    }

    fn gate_refuses(&self, body: &Bytes, cost: u64) -> Option<Refusal> {
        if self.health.stopping() {
            return Some(Refusal::Stopped);
        }
        let reserved = store::command::is_reserved(body);
        if self.commands_are_full(body.len() as u64, reserved) || (!reserved && self.apply_is_behind()) {
            return Some(Refusal::TooManyRequests);
        }
        if cost > 0 && (self.health.disk_full() || self.over_quota(cost)) {
            return Some(Refusal::User(store::Error::NoSpace));
        }
        None
    }

    fn commands_are_full(&self, bytes: u64, reserved: bool) -> bool {
        let limit = self.config.budgets.commands;
        let limit = if reserved { limit + limit / 8 } else { limit };
        // The first one always fits: otherwise a small budget would refuse a large request for ever.
        self.gate.bytes > 0 && self.gate.bytes.saturating_add(bytes) > limit
    }

    fn apply_is_behind(&self) -> bool {
        let budgets = &self.config.budgets;
        self.consensus.commit().saturating_sub(self.store.applied().index) > budgets.backlog
            || self.applier.waiting().1 > budgets.unapplied
    }

    /// The last eighth of what may be uncommitted is kept for what must pass.
    fn uncommitted_is_full(&self, body: &Bytes) -> bool {
        let limit = self.config.budgets.uncommitted;
        let uncommitted = self.consensus.uncommitted_bytes();
        uncommitted > 0
            && uncommitted.saturating_add(body.len() as u64) > limit - limit / 8
            && !store::command::is_reserved(body)
    }

    fn over_quota(&self, cost: u64) -> bool {
        match u64::try_from(self.config.quota_bytes) {
            Ok(quota) => self.store.live_bytes().saturating_add(cost) >= quota,
            Err(_) => false,
        }
    }

    /// NOSPACE is replicated: proposed at most once a second.
    fn ask_for_alarm(&mut self) {
        let again = self.gate.alarm_asked + 1000 / TICK_MS;
        let alarm = store::AlarmMember { member: self.config.member, alarm: 1 };
        if (self.gate.alarm_asked != 0 && self.ticks < again) || self.store.alarms().any(|raised| raised == alarm) {
            return;
        }
        self.gate.alarm_asked = self.ticks.max(1);
        let body = store::command::encode_alarm(AlarmAction::Activate, alarm.member, alarm.alarm);
        self.propose_own(body);
    }

    /// A command of this member itself: no asker.
    pub(crate) fn propose_own(&mut self, body: Bytes) {
        self.gate.enqueue(Command { waiter: None, body, after: After::Apply });
    }

    /// Proposes, forwards or keeps what was collected.
    pub(crate) fn submit_commands(&mut self, out: &mut Vec<Output>) {
        self.gate.fresh = false;
        // Consensus may have moved on since its last turn: a command's term must be the real one.
        let settled = (self.consensus.term(), self.consensus.leader()) == (self.term, self.leader);
        if self.gate.queue.is_empty() || self.leader == 0 || !settled || self.health.holds_commands() {
            return;
        }
        if self.is_leader() {
            self.propose_queue(out);
        } else {
            self.forward_queue(out);
        }
    }

    fn propose_queue(&mut self, out: &mut Vec<Output>) {
        while let Some(command) = self.gate.pop() {
            self.gate.next_seq += 1;
            let seq = self.gate.next_seq;
            let origin = Origin { member: self.config.member, boot: self.config.boot, seq };
            match self.propose_sealed(&command.body, origin) {
                Ok(()) => self.sent(seq, command, 0),
                Err(consensus::Refused::TooMany) => {
                    self.gate.failed += 1;
                    self.gate.refused += 1;
                    if let Some(waiter) = command.waiter {
                        self.refuse(waiter, Refusal::TooManyRequests, out);
                    }
                }
                Err(_) => return self.gate.requeue_quietly(command),
            }
        }
    }

    fn propose_sealed(&mut self, body: &Bytes, origin: Origin) -> Result<(), consensus::Refused> {
        if self.uncommitted_is_full(body) {
            return Err(consensus::Refused::TooMany);
        }
        let clock = store::command::wants_clock(body).then(|| self.lessor.clock(self.ticks));
        self.consensus.propose(store::command::seal(body, origin, clock))
    }

    fn sent(&mut self, seq: u64, command: Command, to: u64) {
        if let Some(waiter) = command.waiter {
            self.gate.by_waiter.insert(waiter, seq);
        }
        self.gate.bytes += command.body.len() as u64;
        self.gate.sent.insert(seq, Sent { command, term: self.term, to, at: self.ticks });
    }

    fn forward_queue(&mut self, out: &mut Vec<Output>) {
        let mut commands = Vec::with_capacity(self.gate.queue.len());
        while let Some(command) = self.gate.pop() {
            self.gate.next_seq += 1;
            let seq = self.gate.next_seq;
            commands.push(Forwarded { seq, body: command.body.clone() });
            self.sent(seq, command, self.leader);
        }
        self.send_forward(commands, out);
    }

    /// Frames stay near one MiB so that a large backlog does not hold up heartbeats.
    fn send_forward(&self, commands: Vec<Forwarded>, out: &mut Vec<Output>) {
        let mut frame = Vec::new();
        let mut bytes = 0;
        for command in commands {
            bytes += command.body.len() + 12;
            frame.push(command);
            if bytes >= 1 << 20 {
                bytes = 0;
                out.push(self.forward_frame(std::mem::take(&mut frame)));
            }
        }
        if !frame.is_empty() {
            out.push(self.forward_frame(frame));
        }
    }

    fn forward_frame(&self, commands: Vec<Forwarded>) -> Output {
        let frame = Frame::Forward { term: self.term, boot: self.config.boot, commands };
        Output::Send { to: self.leader, frame }
    }

    /// Forwards are said again while term and leader stay: the leader proposes each number once.
    pub(crate) fn tick_gate(&mut self, out: &mut Vec<Output>) {
        if self.is_leader() || self.leader == 0 {
            return;
        }
        let (now, term, leader) = (self.ticks, self.term, self.leader);
        let mut again = Vec::new();
        for (seq, sent) in &mut self.gate.sent {
            if sent.term == term && sent.to == leader && now - sent.at >= FORWARD_AGAIN {
                sent.at = now;
                again.push(Forwarded { seq: *seq, body: sent.command.body.clone() });
            }
        }
        if !again.is_empty() {
            self.send_forward(again, out);
        }
    }

    /// Leader: commands of another member's clients.
    pub(crate) fn on_forward(
        &mut self,
        from: u64,
        term: u64,
        boot: u64,
        commands: Vec<Forwarded>,
        out: &mut Vec<Output>,
    ) {
        let mut refused = Vec::new();
        let mut why = Why::NotLeader;
        let settled = (self.consensus.term(), self.consensus.leader()) == (term, self.config.member);
        let willing = self.is_leader() && settled && !self.health.holds_commands();
        for command in commands {
            if !willing {
                refused.push(command.seq);
                continue;
            }
            if !self.gate.seen.first((from, boot), term, command.seq) {
                continue;
            }
            let origin = Origin { member: from, boot, seq: command.seq };
            match self.propose_sealed(&command.body, origin) {
                Ok(()) => {}
                // Its asker is told that nothing was applied, so a copy of this frame must find the number used.
                Err(consensus::Refused::TooMany) => {
                    why = Why::TooMany;
                    refused.push(command.seq);
                }
                // Kept by its member, which says it again.
                Err(_) => self.gate.seen.forget((from, boot), command.seq),
            }
        }
        if !refused.is_empty() {
            out.push(Output::Send { to: from, frame: Frame::ForwardRefused { boot, seqs: refused, why } });
        }
    }

    /// The leader said that it did not propose these. An earlier copy of the same forward cannot
    /// have been proposed in between: the leader knows the numbers of its term, and another term refuses.
    pub(crate) fn on_forward_refused(&mut self, boot: u64, seqs: Vec<u64>, why: Why, out: &mut Vec<Output>) {
        if boot != self.config.boot || why != Why::TooMany {
            // Not the leader of that term (any more): the fence decides, since an earlier copy may have been proposed.
            return;
        }
        for seq in seqs {
            let Some(command) = self.gate.applied(seq) else { continue };
            self.gate.failed += 1;
            if let Some(waiter) = command.waiter {
                self.refuse(waiter, Refusal::TooManyRequests, out);
            }
        }
    }

    /// The asker of a command went away or ran out of time. True: it was one of the gate's.
    pub(crate) fn cancel_command(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let Some(term) = self.gate.forget(waiter) else { return false };
        self.gate.failed += 1;
        if timed_out {
            let refusal = match term {
                0 => Refusal::Timeout,
                term if term < self.term => Refusal::TimeoutLeaderFail,
                _ if !self.is_leader() => Refusal::TimeoutConnectionLost,
                _ => Refusal::Timeout,
            };
            self.refuse(waiter, refusal, out);
        }
        true
    }
}

impl Gate {
    /// Back to the front without another try in this turn.
    fn requeue_quietly(&mut self, command: Command) {
        self.admit(&command);
        self.queue.push_front(command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(waiter: u64, bytes: usize) -> Command {
        Command { waiter: Some(waiter), body: Bytes::from(vec![0; bytes]), after: After::Apply }
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
        assert_eq!((gate.held().0, gate.pending()), (1000, 100));
        assert!(gate.queue.len() < 300, "what nobody wants is taken out: {}", gate.queue.len());
        let first = gate.pop().expect("one is wanted");
        assert_eq!(first.waiter, Some(901));
        gate.requeue(first);
        assert_eq!(gate.held().0, 1000);
        let mut left = Vec::new();
        while let Some(command) = gate.pop() {
            left.extend(command.waiter);
        }
        assert_eq!(left, (901..=1000).collect::<Vec<_>>());
        assert_eq!((gate.held().0, gate.pending()), (0, 0));
    }

    #[test]
    fn a_number_is_new_once_per_term_and_life() {
        let mut seen = Seen::default();
        assert!(seen.first((3, 1), 5, 10));
        assert!(!seen.first((3, 1), 5, 10));
        assert!(seen.first((3, 1), 5, 9), "a later copy of an earlier loss is still new");
        assert!(seen.first((3, 1), 6, 10), "another term");
        assert!(seen.first((3, 2), 6, 10), "another life");
        assert!(!seen.first((3, 1), 6, 10), "a late frame of the earlier life");
        assert!(!seen.first((3, 2), 6, 10), "the earlier life's frame made nothing new");
    }

    #[test]
    fn numbers_below_the_memory_count_as_seen() {
        let mut seen = Seen::default();
        for seq in 1..=(SEEN as u64 + 10) {
            assert!(seen.first((3, 1), 1, seq));
        }
        assert!(!seen.first((3, 1), 1, 3));
    }
}
