//! Linearisable reads (ReadIndex) and what else needs a leader proven current.
//!
//! All reads collected in one turn share one round. A round that fails, or whose leader changed,
//! puts its reads back in the queue: reads may be repeated. A round that the leader does not
//! answer is sent again under the same token: every send came after its reads, so the answer to
//! any of them counts, however long the way is.

use crate::config::TICK_MS;
use crate::frame::{Caller, Frame};
use crate::ground::Ground;
use crate::io::*;
use crate::permit::Guard;
use std::collections::{BTreeMap, BTreeSet};
use store::Query;
use store::command::Checked;

/// A follower sends its question again after this (etcd: 500 ms). Ticks.
const ROUND_AGAIN: u64 = 500 / TICK_MS;

/// It is told again that rounds are slow. Ticks.
const SLOW_TOLD_AGAIN: u64 = 5_000 / TICK_MS;

/// Reads of askers that went away are taken out when there are more of them than this, and
/// more than of others.
const UNWANTED: usize = 64;

/// What waits for a read index, and what is done then.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Range {
        query: Query,
        stream: bool,
        keep: u64,
    },
    ReadTxn {
        body: Checked,
    },
    Members,
    Auth {
        query: AuthQuery,
    },
    Barrier,
    /// Leader: renew after the round. Follower: ask the leader.
    KeepAlive {
        lease: i64,
    },
    TimeToLive {
        lease: i64,
        keys: bool,
    },
    /// The leader has told the remaining time; the keys are ours once its index is applied here.
    TtlKnown {
        lease: i64,
        ttl: i64,
        /// What the leader had applied then.
        index: u64,
        keys: bool,
    },
    /// For another member: the index goes back by frame.
    ForeignIndex {
        caller: Caller,
    },
    ForeignKeepAlive {
        caller: Caller,
        lease: i64,
    },
    ForeignTimeToLive {
        caller: Caller,
        lease: i64,
    },
    /// For the tokens that this member does not know: all of them up to a number.
    Tokens {
        upto: u64,
    },
    /// For the lessor: this member led after its lease clock showed `upto` ms.
    Deadlines {
        upto: u64,
    },
}

impl Then {
    /// The answer says something of keys, leases or users.
    pub(crate) fn tells_state(&self) -> bool {
        match self {
            Then::Range { .. }
            | Then::ReadTxn { .. }
            | Then::Auth { .. }
            | Then::TimeToLive { .. }
            | Then::TtlKnown { .. } => true,
            Then::Members
            | Then::Barrier
            | Then::KeepAlive { .. }
            | Then::ForeignIndex { .. }
            | Then::ForeignKeepAlive { .. }
            | Then::ForeignTimeToLive { .. }
            | Then::Tokens { .. }
            | Then::Deadlines { .. } => false,
        }
    }

    /// The lease that its asker wants to renew.
    fn renews(&self) -> Option<i64> {
        match self {
            Then::KeepAlive { lease } | Then::ForeignKeepAlive { lease, .. } => Some(*lease),
            _ => None,
        }
    }

    /// Only a leader can answer it, whatever is applied here.
    fn needs_leader(&self) -> bool {
        matches!(
            self,
            Then::KeepAlive { .. }
                | Then::TimeToLive { .. }
                | Then::ForeignKeepAlive { .. }
                | Then::ForeignTimeToLive { .. }
        )
    }
}

#[derive(Clone, Debug)]
struct Read {
    /// 0 for foreign ones.
    waiter: Waiter,
    guard: Guard,
    then: Then,
    /// The tick at which it came.
    since: u64,
}

/// A read whose index is applied: it is to be served now.
pub(crate) struct Due {
    /// 0 for foreign ones.
    pub(crate) waiter: Waiter,
    /// To be asked when it is served.
    pub(crate) guard: Guard,
    pub(crate) then: Then,
}

/// A round of this member is confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    pub(crate) index: u64,
    /// A keep-alive may be answered when this is applied.
    pub(crate) renewals: u64,
}

struct Round {
    reads: Vec<Read>,
    /// 0 = a round of our own (we lead); else the leader asked.
    to: u64,
    /// When it was last sent.
    at: u64,
}

/// What a follower asks the leader for this read and those of its round.
fn question(then: &Then, boot: u64, token: u64) -> Frame {
    match *then {
        Then::KeepAlive { lease } => Frame::KeepAlive { boot, token, lease },
        Then::TimeToLive { lease, .. } => Frame::TimeToLive { boot, token, lease },
        _ => Frame::ReadIndex { boot, token },
    }
}

#[derive(Default)]
pub(crate) struct Reads {
    next_token: u64,
    now: u64,
    queue: Vec<Read>,
    rounds: BTreeMap<u64, Round>,
    /// Confirmed; waiting until the store has applied the index.
    reached: BTreeMap<u64, Vec<Read>>,
    /// Askers of this member that still wait. A read whose asker is not here is passed over
    /// when its turn comes, so that going away costs the same however many wait.
    wanted: BTreeSet<Waiter>,
    /// Reads that will be passed over, at most.
    unwanted: usize,
    /// When it was last told that a round is slow.
    told: Option<u64>,
}

/// A round has no answer for long. `to`: the leader that was asked; 0: this member leads. In etcd's
/// words, now and then.
fn slow(g: &mut Ground, told: &mut Option<u64>, to: u64) {
    g.tally.counted.read_rounds_slow += 1;
    if told.is_some_and(|told| g.now - told < SLOW_TOLD_AGAIN) {
        return;
    }
    *told = Some(g.now);
    let why = match to {
        0 => "no majority confirms that this member leads".to_string(),
        leader => format!("the leader {leader:x} does not answer"),
    };
    g.note(Level::Warn, format!("waiting for ReadIndex response took too long, retrying: {why}"));
}

impl Reads {
    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn forget(&mut self, waiter: Waiter) -> bool {
        if !self.wanted.remove(&waiter) {
            return false;
        }
        self.unwanted += 1;
        if self.unwanted > UNWANTED && self.unwanted > self.wanted.len() {
            self.purge();
        }
        true
    }

    fn purge(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        let keep = |read: &Read| read.waiter == 0 || wanted.contains(&read.waiter);
        self.queue.retain(keep);
        self.rounds.values_mut().for_each(|round| round.reads.retain(keep));
        self.reached.values_mut().for_each(|reads| reads.retain(keep));
        self.wanted = wanted;
        self.unwanted = 0;
    }

    /// True if the read's asker still waits; it does so no more.
    fn take(&mut self, read: &Read) -> bool {
        read.waiter == 0 || self.wanted.remove(&read.waiter)
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.wanted.len() as u64
    }

    /// A read that was let in.
    pub(crate) fn queue(&mut self, waiter: Waiter, then: Then) {
        self.queue_guarded(waiter, Guard::passed(), then);
    }

    /// A read that is let in, or not, when it is served.
    pub(crate) fn queue_guarded(&mut self, waiter: Waiter, guard: Guard, then: Then) {
        self.wanted.insert(waiter);
        self.queue.push(Read { waiter, guard, then, since: self.now });
    }

    /// A round for the lessor (see [`Then::Deadlines`]).
    pub(crate) fn queue_deadlines(&mut self, upto: u64) {
        self.queue.push(Read { waiter: 0, guard: Guard::passed(), then: Then::Deadlines { upto }, since: self.now });
    }

    /// A round for the tokens (see [`Then::Tokens`]).
    pub(crate) fn queue_tokens(&mut self, upto: u64) {
        self.queue.push(Read { waiter: 0, guard: Guard::passed(), then: Then::Tokens { upto }, since: self.now });
    }

    /// How long the oldest read has waited here for an answer, in ticks. Reads of other members
    /// count.
    pub(crate) fn age(&self) -> u64 {
        self.here().map(|read| self.now - read.since).max().unwrap_or(0)
    }

    /// Leases that somebody waits to renew.
    pub(crate) fn renewals(&self) -> BTreeSet<i64> {
        self.here().filter_map(|read| read.then.renews()).collect()
    }

    /// Every read that no other member was asked about.
    fn here(&self) -> impl Iterator<Item = &Read> {
        let rounds = self.rounds.values().filter(|round| round.to == 0);
        self.queue.iter().chain(rounds.flat_map(|round| &round.reads)).chain(self.reached.values().flatten())
    }

    /// End of a turn: the collected reads join one round.
    pub(crate) fn submit(&mut self, g: &mut Ground) {
        if self.queue.is_empty() || g.leader == 0 {
            return;
        }
        let reads = std::mem::take(&mut self.queue);
        if g.is_leader() {
            let token = self.token();
            self.rounds.insert(token, Round { reads, to: 0, at: g.now });
            g.consensus.read(token);
            return;
        }
        let mut plain = Vec::new();
        for read in reads {
            match read.then {
                Then::KeepAlive { .. } | Then::TimeToLive { .. } => self.ask_leader(g, vec![read]),
                _ => plain.push(read),
            }
        }
        if !plain.is_empty() {
            self.ask_leader(g, plain);
        }
    }

    fn ask_leader(&mut self, g: &mut Ground, reads: Vec<Read>) {
        let token = self.token();
        let frame = question(&reads[0].then, g.config.boot, token);
        self.rounds.insert(token, Round { reads, to: g.leader, at: g.now });
        g.send(g.leader, frame);
    }

    /// Consensus answered a round of ours: `at` None = it failed. The result: this member led after
    /// its lease clock showed so many ms.
    pub(crate) fn confirmed(&mut self, g: &mut Ground, token: u64, at: Option<Confirmed>) -> Option<u64> {
        let round = self.rounds.remove(&token)?;
        assert_eq!(round.to, 0, "a round of our own");
        let Some(at) = at else {
            g.tally.counted.read_rounds_failed += 1;
            self.again(g, round.reads);
            return None;
        };
        let mut led = None;
        for read in round.reads {
            match read.then {
                // Its asker waits for its own apply, not for ours.
                Then::ForeignIndex { caller: Caller { member, boot, token } } => {
                    g.send(member, Frame::ReadIndexReply { boot, token, index: at.index });
                }
                Then::Deadlines { upto } => led = led.max(Some(upto)),
                Then::KeepAlive { .. } | Then::ForeignKeepAlive { .. } => {
                    self.reached.entry(at.renewals).or_default().push(read);
                }
                _ => self.reached.entry(at.index).or_default().push(read),
            }
        }
        led
    }

    /// Own reads queue again; foreign ones are told at once.
    fn again(&mut self, g: &mut Ground, reads: Vec<Read>) {
        for read in reads {
            match read.then {
                Then::ForeignIndex { caller: Caller { member, boot, token } } => {
                    g.send(member, Frame::ReadIndexReply { boot, token, index: 0 });
                }
                Then::ForeignKeepAlive { caller: Caller { member, boot, token }, .. } => {
                    g.send(member, Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 });
                }
                Then::ForeignTimeToLive { caller: Caller { member, boot, token }, .. } => {
                    g.send(member, Frame::TimeToLiveReply { boot, token, ok: false, ttl: 0, index: 0 });
                }
                // The lessor asks again, if this member leads again.
                Then::Deadlines { .. } => {}
                _ => self.queue.push(read),
            }
        }
    }

    pub(crate) fn leader_changed(&mut self, g: &mut Ground) {
        let rounds = std::mem::take(&mut self.rounds);
        for round in rounds.into_values() {
            g.tally.counted.read_rounds_failed += 1;
            self.again(g, round.reads);
        }
        self.queue.retain(|read| !matches!(read.then, Then::Deadlines { .. }));
        // Confirmed, and not applied here in time: the next leader answers.
        let mut late = Vec::new();
        self.reached.retain(|_, reads| {
            late.extend(reads.extract_if(.., |read| read.then.needs_leader()));
            !reads.is_empty()
        });
        self.again(g, late);
    }

    /// The connection to a peer broke: what was asked there is asked again.
    pub(crate) fn lost(&mut self, peer: u64) {
        let lost: Vec<u64> = self.rounds.iter().filter(|(_, r)| r.to == peer).map(|(t, _)| *t).collect();
        for token in lost {
            let round = self.rounds.remove(&token).expect("listed");
            self.queue.extend(round.reads);
        }
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        let (now, boot) = (g.now, g.config.boot);
        self.now = now;
        let Reads { rounds, wanted, told, .. } = self;
        rounds.retain(|token, round| {
            if now - round.at < ROUND_AGAIN {
                return true;
            }
            if round.to == 0 {
                // Consensus asks again by itself.
                round.at = now;
                slow(g, told, 0);
                return true;
            }
            round.reads.retain(|read| read.waiter == 0 || wanted.contains(&read.waiter));
            let Some(first) = round.reads.first() else { return false };
            slow(g, told, round.to);
            round.at = now;
            g.send(round.to, question(&first.then, boot, *token));
            true
        });
    }

    /// What another member asks of the leader.
    pub(crate) fn foreign(&mut self, g: &mut Ground, then: Then) {
        let read = Read { waiter: 0, guard: Guard::passed(), then, since: self.now };
        if g.is_leader() { self.queue.push(read) } else { self.again(g, vec![read]) }
    }

    pub(crate) fn on_read_index_reply(&mut self, g: &Ground, boot: u64, token: u64, index: u64) {
        if boot != g.config.boot {
            return;
        }
        let Some(round) = self.rounds.remove(&token) else { return };
        if index == 0 {
            // Not the leader, or deposed meanwhile. Asked again at the next tick of the round
            // timer, not at once: two members that think of each other as leader must not spin.
            self.rounds.insert(token, Round { at: round.at, ..round });
            return;
        }
        self.reached.entry(index).or_default().extend(round.reads);
    }

    pub(crate) fn on_keep_alive_reply(&mut self, g: &mut Ground, boot: u64, token: u64, ok: bool, ttl: i64) {
        if boot != g.config.boot || !ok {
            return; // asked again by the round timer
        }
        let Some(round) = self.rounds.remove(&token) else { return };
        for read in round.reads {
            if self.take(&read) {
                g.answer(read.waiter, Answer::KeepAlive { ttl });
            }
        }
    }

    pub(crate) fn on_time_to_live_reply(&mut self, g: &Ground, boot: u64, token: u64, ok: bool, ttl: i64, index: u64) {
        if boot != g.config.boot || !ok {
            return;
        }
        let Some(round) = self.rounds.remove(&token) else { return };
        for mut read in round.reads {
            if let Then::TimeToLive { lease, keys } = read.then {
                read.then = Then::TtlKnown { lease, ttl, index, keys };
            }
            self.reached.entry(index).or_default().push(read);
        }
    }

    /// Every read whose index is applied. None before the cluster has its version: who got
    /// an answer may count on everything that a cluster has once (etcd: `not capable` until then).
    pub(crate) fn due(&mut self, g: &Ground) -> Vec<Due> {
        let mut due = Vec::new();
        if g.store.cluster_version().is_empty() {
            return due;
        }
        let applied = g.store.applied().index;
        while let Some(entry) = self.reached.first_entry()
            && *entry.key() <= applied
        {
            for read in entry.remove() {
                if self.take(&read) {
                    due.push(Due { waiter: read.waiter, guard: read.guard, then: read.then });
                }
            }
        }
        due
    }

    /// The asker of a read went away or ran out of time. True: it was one.
    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        if !self.forget(waiter) {
            return false;
        }
        if timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whose_askers_went_away_are_taken_out() {
        let mut reads = Reads::default();
        for waiter in 1..=1000 {
            reads.wanted.insert(waiter);
            reads.queue.push(Read { waiter, guard: Guard::passed(), then: Then::Barrier, since: 0 });
        }
        let then = Then::ForeignIndex { caller: Caller { member: 2, boot: 1, token: 1 } };
        reads.queue.push(Read { waiter: 0, guard: Guard::passed(), then, since: 0 });
        for waiter in 1..=900 {
            assert!(reads.forget(waiter));
            assert!(!reads.forget(waiter), "once");
        }
        assert_eq!(reads.waiting(), 100);
        assert!(reads.queue.len() <= 2 * 100 + UNWANTED + 1, "{}", reads.queue.len());
        let queue = std::mem::take(&mut reads.queue);
        assert_eq!(queue.iter().filter(|read| reads.take(read)).count(), 101, "foreign reads stay");
    }
}
