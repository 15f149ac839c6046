//! The leader's clockwork for leases: the lease clock, renewals, expiry in batches.
//!
//! The clock counts milliseconds of leadership: a new leader continues from the largest value
//! in the state. No leader, no time. A new leader gives every lease its full time to live
//! (etcd's rule), so whatever an earlier leader had renewed is kept.

use crate::config::TICK_MS;
use crate::frame::Frame;
use crate::io::*;
use crate::member::Node;
use crate::reads::Then;
use std::collections::{BTreeMap, BTreeSet};
use store::{LeaseChange, Store};

/// Leases of one expiry entry.
const EXPIRE_BATCH: usize = 1_000;
/// Leases whose expiry may be under way at once: enough to keep log and apply busy, few enough
/// that commands of clients come between.
const EXPIRING_MOST: usize = 8 * EXPIRE_BATCH;
/// An expiry that was not applied by then is proposed again, which is looked after this often. Ticks.
const EXPIRE_AGAIN: u64 = 2_000 / TICK_MS;
const LOOK_AFTER: u64 = 100 / TICK_MS;

#[derive(Default)]
pub(crate) struct Lessor {
    /// The term that this member leads and has applied an entry of; None = not (yet) primary.
    term: Option<u64>,
    /// Lease clock = `base` + time since `since`.
    base: u64,
    since: u64,
    /// Lease clock ms at which each lease is due.
    due: BTreeSet<(u64, i64)>,
    deadline: BTreeMap<i64, u64>,
    /// Proposed to expire and not yet applied: no renewal until then.
    expiring: BTreeMap<i64, Expiring>,
    /// Leases whose expiry was decided by an entry: gone, or granted anew.
    settled: Vec<i64>,
}

struct Expiring {
    granted: u64,
    proposed: u64,
    waiting: Vec<Asker>,
}

/// Whose keep-alive waits for the apply of an expiry.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    Own { waiter: Waiter, lease: i64 },
    Foreign { to: u64, boot: u64, token: u64 },
}

impl Lessor {
    pub(crate) fn active(&self) -> bool {
        self.term.is_some()
    }

    /// Milliseconds; continues from the state's clock and never goes back.
    pub(crate) fn clock(&self, now: u64) -> u64 {
        self.base + (now - self.since) * TICK_MS
    }

    /// Leadership lost: the clockwork stops; returns the keep-alives that waited for an expiry.
    fn stop(&mut self) -> Vec<Asker> {
        let old = std::mem::take(self);
        old.expiring.into_values().flat_map(|expiring| expiring.waiting).collect()
    }

    /// True once per term: the first entry of the own term is applied.
    pub(crate) fn start(&mut self, store: &Store, term: u64, now: u64) -> bool {
        if self.term == Some(term) {
            return false;
        }
        self.term = Some(term);
        (self.base, self.since) = (store.lease_clock(), now);
        self.due.clear();
        self.deadline.clear();
        self.expiring.clear();
        self.settled.clear();
        for (id, lease) in store.leases() {
            self.set(id, self.base + seconds(lease.ttl));
        }
        true
    }

    fn set(&mut self, lease: i64, deadline: u64) {
        if let Some(old) = self.deadline.insert(lease, deadline) {
            self.due.remove(&(old, lease));
        }
        self.due.insert((deadline, lease));
    }

    fn forget(&mut self, lease: i64) {
        if let Some(old) = self.deadline.remove(&lease) {
            self.due.remove(&(old, lease));
        }
    }

    pub(crate) fn applied(&mut self, change: &LeaseChange, now: u64) {
        if self.term.is_none() {
            return;
        }
        match change {
            // Counted from its apply, which is later than its stamp: never early.
            LeaseChange::Granted { id, ttl, .. } => {
                self.set(*id, self.clock(now) + seconds(*ttl));
                self.settle(*id);
            }
            LeaseChange::Checkpointed { .. } => {}
            LeaseChange::Ended { id } => {
                self.forget(*id);
                self.settle(*id);
            }
        }
    }

    fn settle(&mut self, lease: i64) {
        if self.expiring.contains_key(&lease) {
            self.settled.push(lease);
        }
    }

    /// Whole seconds left, floor; -1 = unknown lease.
    pub(crate) fn remaining(&self, store: &Store, lease: i64, now: u64) -> i64 {
        if store.lease(lease).is_none() {
            return -1;
        }
        match self.deadline.get(&lease) {
            Some(deadline) => (deadline.saturating_sub(self.clock(now)) / 1000) as i64,
            None => -1,
        }
    }
}

fn seconds(ttl: i64) -> u64 {
    u64::try_from(ttl).expect("a granted time to live is positive") * 1000
}

impl Node {
    pub(crate) fn tick_lessor(&mut self) {
        if !self.lessor.active() || self.health.holds_commands() {
            return;
        }
        if self.ticks.is_multiple_of(LOOK_AFTER) {
            self.expire_again();
        }
        self.expire_due();
    }

    /// A proposal may have been dropped; the fence makes a second one harmless.
    fn expire_again(&mut self) {
        let now = self.ticks;
        let mut batch = Vec::new();
        for (lease, expiring) in &mut self.lessor.expiring {
            if now - expiring.proposed > EXPIRE_AGAIN && batch.len() < EXPIRE_BATCH {
                expiring.proposed = now;
                batch.push((*lease, expiring.granted));
            }
        }
        if !batch.is_empty() {
            self.propose_own(store::command::encode_expire(self.term, &batch));
        }
    }

    /// Proposes the end of what is due, as far as there is room beside what is under way.
    fn expire_due(&mut self) {
        let (clock, now) = (self.lessor.clock(self.ticks), self.ticks);
        while self.lessor.expiring.len() + EXPIRE_BATCH <= EXPIRING_MOST {
            let mut batch = Vec::new();
            while batch.len() < EXPIRE_BATCH {
                // The tick in which a lease was granted or renewed had begun before: one more must pass.
                let due = self.lessor.due.first().filter(|(deadline, _)| *deadline < clock);
                let Some((_, lease)) = due.copied() else { break };
                self.lessor.forget(lease);
                if let Some(found) = self.store.lease(lease) {
                    batch.push((lease, found.granted));
                    let expiring = Expiring { granted: found.granted, proposed: now, waiting: Vec::new() };
                    self.lessor.expiring.entry(lease).or_insert(expiring);
                }
            }
            if batch.is_empty() {
                return;
            }
            self.propose_own(store::command::encode_expire(self.term, &batch));
        }
    }

    /// A read round begun after the request has confirmed us.
    pub(crate) fn renew(&mut self, waiter: Waiter, lease: i64, out: &mut Vec<Output>) {
        if !self.is_leader() || !self.lessor.active() {
            return self.queue_read(waiter, Then::KeepAlive { lease });
        }
        if let Some(expiring) = self.lessor.expiring.get_mut(&lease) {
            return expiring.waiting.push(Asker::Own { waiter, lease });
        }
        let ttl = self.renewed(lease);
        self.answer(waiter, Answer::KeepAlive { ttl }, out);
    }

    pub(crate) fn renew_foreign(&mut self, to: u64, boot: u64, token: u64, lease: i64, out: &mut Vec<Output>) {
        if !self.is_leader() || !self.lessor.active() {
            let frame = Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 };
            return out.push(Output::Send { to, frame });
        }
        if let Some(expiring) = self.lessor.expiring.get_mut(&lease) {
            return expiring.waiting.push(Asker::Foreign { to, boot, token });
        }
        let ttl = self.renewed(lease);
        out.push(Output::Send { to, frame: Frame::KeepAliveReply { boot, token, ok: true, ttl } });
    }

    /// The granted time to live, or 0 for an unknown lease.
    fn renewed(&mut self, lease: i64) -> i64 {
        let Some(ttl) = self.store.lease(lease).map(|found| found.ttl) else { return 0 };
        let deadline = self.lessor.clock(self.ticks) + seconds(ttl);
        self.lessor.set(lease, deadline);
        ttl
    }

    pub(crate) fn answer_ttl(&mut self, waiter: Waiter, lease: i64, ttl: i64, keys: bool, out: &mut Vec<Output>) {
        let answer = match self.store.lease(lease) {
            Some(found) if ttl >= 0 => {
                let keys = if keys { found.keys.iter().cloned().collect() } else { Vec::new() };
                Answer::TimeToLive { ttl, granted: found.ttl, keys }
            }
            _ => Answer::TimeToLive { ttl: -1, granted: 0, keys: Vec::new() },
        };
        self.answer(waiter, answer, out);
    }

    /// Keep-alives of leases whose expiry was applied are answered: 0, or renewed if the id
    /// was granted anew meanwhile and the fence refused the expiry.
    pub(crate) fn settle_expiring(&mut self, out: &mut Vec<Output>) {
        let settled = std::mem::take(&mut self.lessor.settled);
        for lease in &settled {
            // The same id may be listed twice: ended, and granted anew.
            let Some(expiring) = self.lessor.expiring.remove(lease) else { continue };
            let found = self.store.lease(*lease).map(|found| found.granted);
            assert!(found != Some(expiring.granted), "settled by an entry");
            for asker in expiring.waiting {
                match asker {
                    Asker::Own { waiter, lease } => self.renew(waiter, lease, out),
                    Asker::Foreign { to, boot, token } => self.renew_foreign(to, boot, token, *lease, out),
                }
            }
        }
        if !settled.is_empty() && self.lessor.active() && !self.health.holds_commands() {
            // There is room again: what else is due does not wait for a tick.
            self.expire_due();
        }
    }

    /// No longer the leader of that term: nothing is renewed on its word.
    pub(crate) fn stop_lessor(&mut self, out: &mut Vec<Output>) {
        for asker in self.lessor.stop() {
            match asker {
                Asker::Own { waiter, lease } => self.queue_read(waiter, Then::KeepAlive { lease }),
                Asker::Foreign { to, boot, token } => {
                    out.push(Output::Send { to, frame: Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 } });
                }
            }
        }
    }

    /// The asker of a waiting keep-alive went away. True: there was one.
    pub(crate) fn cancel_keep_alive(&mut self, gone: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        for expiring in self.lessor.expiring.values_mut() {
            let before = expiring.waiting.len();
            expiring.waiting.retain(|asker| !matches!(asker, Asker::Own { waiter, .. } if *waiter == gone));
            if expiring.waiting.len() != before {
                if timed_out {
                    self.refuse(gone, Refusal::Timeout, out);
                }
                return true;
            }
        }
        false
    }
}
