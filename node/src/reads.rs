//! Linearisable reads (ReadIndex) and what else needs a leader proven current.
//!
//! All reads collected in one turn share one round. A round that fails, or whose leader changed,
//! puts its reads back in the queue: reads may be repeated. A round that the leader does not
//! answer is sent again under the same token: every send came after its reads, so the answer to
//! any of them counts, however long the way is.

use crate::config::TICK_MS;
use crate::frame::Frame;
use crate::io::*;
use crate::member::Node;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::Query;

/// A follower sends its question again after this (etcd: 500 ms). Ticks.
const ROUND_AGAIN: u64 = 500 / TICK_MS;

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
        body: Bytes,
    },
    Members,
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
        keys: bool,
    },
    /// For another member: the index goes back by frame.
    ForeignIndex {
        to: u64,
        boot: u64,
        token: u64,
    },
    ForeignKeepAlive {
        to: u64,
        boot: u64,
        token: u64,
        lease: i64,
    },
    ForeignTimeToLive {
        to: u64,
        boot: u64,
        token: u64,
        lease: i64,
    },
}

#[derive(Clone, Debug)]
struct Read {
    /// 0 for foreign ones.
    waiter: Waiter,
    then: Then,
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
    queue: Vec<Read>,
    rounds: BTreeMap<u64, Round>,
    /// Confirmed; waiting until the store has applied the index.
    reached: BTreeMap<u64, Vec<Read>>,
    /// Askers of this member that still wait. A read whose asker is not here is passed over
    /// when its turn comes, so that going away costs the same however many wait.
    wanted: BTreeSet<Waiter>,
    /// Reads that will be passed over, at most.
    unwanted: usize,
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
}

impl Node {
    pub(crate) fn queue_read(&mut self, waiter: Waiter, then: Then) {
        self.reads.wanted.insert(waiter);
        self.reads.queue.push(Read { waiter, then });
    }

    /// End of a turn: the collected reads join one round.
    pub(crate) fn submit_reads(&mut self, out: &mut Vec<Output>) {
        if self.reads.queue.is_empty() || self.leader == 0 {
            return;
        }
        let reads = std::mem::take(&mut self.reads.queue);
        if self.is_leader() {
            let token = self.reads.token();
            self.reads.rounds.insert(token, Round { reads, to: 0, at: self.ticks });
            self.consensus.read(token);
            return;
        }
        let mut plain = Vec::new();
        for read in reads {
            match read.then {
                Then::KeepAlive { .. } | Then::TimeToLive { .. } => self.ask_leader(vec![read], out),
                _ => plain.push(read),
            }
        }
        if !plain.is_empty() {
            self.ask_leader(plain, out);
        }
    }

    fn ask_leader(&mut self, reads: Vec<Read>, out: &mut Vec<Output>) {
        let token = self.reads.token();
        let frame = question(&reads[0].then, self.config.boot, token);
        self.reads.rounds.insert(token, Round { reads, to: self.leader, at: self.ticks });
        out.push(Output::Send { to: self.leader, frame });
    }

    /// Consensus answered a round of ours: `index` None = it failed.
    pub(crate) fn read_confirmed(&mut self, token: u64, index: Option<u64>, out: &mut Vec<Output>) {
        let Some(round) = self.reads.rounds.remove(&token) else { return };
        assert_eq!(round.to, 0, "a round of our own");
        match index {
            Some(index) => self.reads.reached.entry(index).or_default().extend(round.reads),
            None => self.read_again(round.reads, out),
        }
    }

    /// Own reads queue again; foreign ones are told at once.
    fn read_again(&mut self, reads: Vec<Read>, out: &mut Vec<Output>) {
        for read in reads {
            match read.then {
                Then::ForeignIndex { to, boot, token } => {
                    out.push(Output::Send { to, frame: Frame::ReadIndexReply { boot, token, index: 0 } });
                }
                Then::ForeignKeepAlive { to, boot, token, .. } => {
                    out.push(Output::Send { to, frame: Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 } });
                }
                Then::ForeignTimeToLive { to, boot, token, .. } => {
                    let frame = Frame::TimeToLiveReply { boot, token, ok: false, ttl: 0, index: 0 };
                    out.push(Output::Send { to, frame });
                }
                _ => self.reads.queue.push(read),
            }
        }
    }

    pub(crate) fn leader_changed_reads(&mut self, out: &mut Vec<Output>) {
        let rounds = std::mem::take(&mut self.reads.rounds);
        for round in rounds.into_values() {
            self.read_again(round.reads, out);
        }
    }

    /// The connection to a peer broke: what was asked there is asked again.
    pub(crate) fn lost_reads(&mut self, peer: u64) {
        let lost: Vec<u64> = self.reads.rounds.iter().filter(|(_, r)| r.to == peer).map(|(t, _)| *t).collect();
        for token in lost {
            let round = self.reads.rounds.remove(&token).expect("listed");
            self.reads.queue.extend(round.reads);
        }
    }

    pub(crate) fn tick_reads(&mut self, out: &mut Vec<Output>) {
        let (now, boot) = (self.ticks, self.config.boot);
        let Reads { rounds, wanted, .. } = &mut self.reads;
        rounds.retain(|token, round| {
            if round.to == 0 || now - round.at < ROUND_AGAIN {
                return true;
            }
            round.reads.retain(|read| wanted.contains(&read.waiter));
            let Some(first) = round.reads.first() else { return false };
            round.at = now;
            out.push(Output::Send { to: round.to, frame: question(&first.then, boot, *token) });
            true
        });
    }

    pub(crate) fn on_read_index(&mut self, from: u64, boot: u64, token: u64, out: &mut Vec<Output>) {
        self.foreign_read(Then::ForeignIndex { to: from, boot, token }, out);
    }

    pub(crate) fn on_keep_alive(&mut self, from: u64, boot: u64, token: u64, lease: i64, out: &mut Vec<Output>) {
        self.foreign_read(Then::ForeignKeepAlive { to: from, boot, token, lease }, out);
    }

    pub(crate) fn on_time_to_live(&mut self, from: u64, boot: u64, token: u64, lease: i64, out: &mut Vec<Output>) {
        self.foreign_read(Then::ForeignTimeToLive { to: from, boot, token, lease }, out);
    }

    fn foreign_read(&mut self, then: Then, out: &mut Vec<Output>) {
        let read = Read { waiter: 0, then };
        if self.is_leader() { self.reads.queue.push(read) } else { self.read_again(vec![read], out) }
    }

    pub(crate) fn on_read_index_reply(&mut self, boot: u64, token: u64, index: u64) {
        if boot != self.config.boot {
            return;
        }
        let Some(round) = self.reads.rounds.remove(&token) else { return };
        if index == 0 {
            // Not the leader, or deposed meanwhile. Asked again at the next tick of the round
            // timer, not at once: two members that think of each other as leader must not spin.
            self.reads.rounds.insert(token, Round { at: round.at, ..round });
            return;
        }
        self.reads.reached.entry(index).or_default().extend(round.reads);
    }

    pub(crate) fn on_keep_alive_reply(&mut self, boot: u64, token: u64, ok: bool, ttl: i64, out: &mut Vec<Output>) {
        if boot != self.config.boot || !ok {
            return; // asked again by the round timer
        }
        let Some(round) = self.reads.rounds.remove(&token) else { return };
        for read in round.reads {
            if self.reads.take(&read) {
                self.answer(read.waiter, Answer::KeepAlive { ttl }, out);
            }
        }
    }

    pub(crate) fn on_time_to_live_reply(&mut self, boot: u64, token: u64, ok: bool, ttl: i64, index: u64) {
        if boot != self.config.boot || !ok {
            return;
        }
        let Some(round) = self.reads.rounds.remove(&token) else { return };
        for mut read in round.reads {
            if let Then::TimeToLive { lease, keys } = read.then {
                read.then = Then::TtlKnown { lease, ttl, keys };
            }
            self.reads.reached.entry(index).or_default().push(read);
        }
    }

    /// Serves every read whose index is applied. None before the cluster has its version: who got
    /// an answer may count on everything that a cluster has once (etcd: `not capable` until then).
    pub(crate) fn serve_reads(&mut self, out: &mut Vec<Output>) {
        if self.store.cluster_version().is_empty() {
            return;
        }
        let applied = self.store.applied().index;
        while let Some(entry) = self.reads.reached.first_entry() {
            if *entry.key() > applied {
                break;
            }
            let index = *entry.key();
            for read in entry.remove() {
                self.serve_read(read, index, out);
            }
        }
    }

    fn serve_read(&mut self, read: Read, index: u64, out: &mut Vec<Output>) {
        if !self.reads.take(&read) {
            return;
        }
        let waiter = read.waiter;
        match read.then {
            Then::Range { query, stream, keep } => self.begin_range(waiter, query, stream, keep, out),
            Then::ReadTxn { body } => self.read_txn(waiter, &body, out),
            Then::Members => self.answer_members(waiter, out),
            Then::Barrier => self.answer(waiter, Answer::Barrier, out),
            Then::KeepAlive { lease } => self.renew(waiter, lease, out),
            // Only a leader knows how much is left; who led when it was asked may lead no more.
            Then::TimeToLive { lease, keys } if !self.is_leader() || !self.lessor.active() => {
                self.queue_read(waiter, Then::TimeToLive { lease, keys });
            }
            Then::TimeToLive { lease, keys } => {
                let ttl = self.lessor.remaining(&self.store, lease, self.ticks);
                self.answer_ttl(waiter, lease, ttl, keys, out);
            }
            Then::TtlKnown { lease, ttl, keys } => self.answer_ttl(waiter, lease, ttl, keys, out),
            Then::ForeignIndex { to, boot, token } => {
                out.push(Output::Send { to, frame: Frame::ReadIndexReply { boot, token, index } });
            }
            Then::ForeignKeepAlive { to, boot, token, lease } => self.renew_foreign(to, boot, token, lease, out),
            Then::ForeignTimeToLive { to, boot, token, lease } => {
                let frame = if self.is_leader() && self.lessor.active() {
                    let ttl = self.lessor.remaining(&self.store, lease, self.ticks);
                    let index = self.store.applied().index;
                    Frame::TimeToLiveReply { boot, token, ok: true, ttl, index }
                } else {
                    Frame::TimeToLiveReply { boot, token, ok: false, ttl: 0, index: 0 }
                };
                out.push(Output::Send { to, frame });
            }
        }
    }

    /// The asker of a read went away or ran out of time. True: it was one.
    pub(crate) fn cancel_read(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        if !self.reads.forget(waiter) {
            return false;
        }
        if timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
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
            reads.queue.push(Read { waiter, then: Then::Barrier });
        }
        reads.queue.push(Read { waiter: 0, then: Then::ForeignIndex { to: 2, boot: 1, token: 1 } });
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
