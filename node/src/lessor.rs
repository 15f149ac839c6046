//! The leader's clockwork for leases: the lease clock, renewals, expiry in batches.
//!
//! The clock counts milliseconds of leadership: a new leader continues from the largest value
//! in the state. No leader, no time. A new leader gives every lease its full time to live
//! (etcd's rule), so whatever an earlier leader had renewed is kept.
//!
//! A lease ends only after a read round that began behind its deadline: so this member still led
//! then, and every keep-alive that had come before was in that round or an earlier one. A lease
//! that somebody waits to renew does not end.
//!
//! The clock goes on while the process is stopped. Leases that were due meanwhile get a little
//! longer: renewals may wait in sockets that nobody has read yet.

use crate::config::TICK_MS;
use crate::frame::{Caller, Frame};
use crate::ground::{Ground, Willing};
use crate::io::*;
use std::collections::{BTreeMap, BTreeSet};
use store::LeaseChange;
use store::command::Checked;

/// Leases of one expiry entry.
const EXPIRE_BATCH: usize = 1_000;
/// Leases whose expiry may be under way at once: enough to keep log and apply busy, few enough
/// that commands of clients come between.
const EXPIRING_MOST: usize = 8 * EXPIRE_BATCH;
/// An expiry that was not applied by then is proposed again, which is looked after this often.
/// Ticks.
const EXPIRE_AGAIN: u64 = 2_000 / TICK_MS;
const LOOK_AFTER: u64 = 100 / TICK_MS;

#[derive(Clone, Copy)]
struct Deadline {
    /// Lease clock ms.
    at: u64,
    /// Moved once already because this member was away.
    moved: bool,
}

#[derive(Default)]
pub(crate) struct Lessor {
    /// The term that this member leads and has applied an entry of; None = not (yet) primary.
    term: Option<u64>,
    /// Lease clock = `base` + time since `since`.
    base: u64,
    since: u64,
    /// Lease clock ms at which each lease is due.
    due: BTreeSet<(u64, i64)>,
    deadline: BTreeMap<i64, Deadline>,
    /// This member led after its clock showed this.
    led: u64,
    /// A round that shall confirm more is under way.
    asking: bool,
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
enum Asker {
    Own { waiter: Waiter },
    Foreign { caller: Caller },
}

/// A keep-alive that only a later round can answer: this member is not the primary (yet, or any
/// more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskAgain {
    pub(crate) waiter: Waiter,
    pub(crate) lease: i64,
}

impl Lessor {
    /// This member leads and its clock is right: it alone knows how long leases have left.
    pub(crate) fn primary(&self, g: &Ground) -> bool {
        g.is_leader() && self.active()
    }

    fn active(&self) -> bool {
        self.term.is_some()
    }

    /// Milliseconds; continues from the state's clock and never goes back.
    pub(crate) fn clock(&self, g: &Ground) -> u64 {
        self.base + (g.clock() - self.since) * TICK_MS
    }

    /// An entry of `term` is applied. The first one of this member's own term as leader starts the
    /// clockwork: then true.
    pub(crate) fn start(&mut self, g: &Ground, term: u64) -> bool {
        if !g.is_leader() || term != g.term || self.term == Some(term) {
            return false;
        }
        self.term = Some(term);
        (self.base, self.since) = (g.store.lease_clock(), g.clock());
        self.due.clear();
        self.deadline.clear();
        self.expiring.clear();
        self.settled.clear();
        (self.led, self.asking) = (0, false);
        for (id, lease) in g.store.leases() {
            self.set(id, self.base + seconds(lease.ttl));
        }
        true
    }

    fn set(&mut self, lease: i64, deadline: u64) {
        if let Some(old) = self.deadline.insert(lease, Deadline { at: deadline, moved: false }) {
            self.due.remove(&(old.at, lease));
        }
        self.due.insert((deadline, lease));
    }

    fn forget(&mut self, lease: i64) {
        if let Some(old) = self.deadline.remove(&lease) {
            self.due.remove(&(old.at, lease));
        }
    }

    pub(crate) fn applied(&mut self, g: &Ground, change: &LeaseChange) {
        if self.term.is_none() {
            return;
        }
        match change {
            // Counted from its apply, which is later than its stamp: never early.
            LeaseChange::Granted { id, ttl, .. } => {
                self.set(*id, self.clock(g) + seconds(*ttl));
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
    pub(crate) fn remaining(&self, g: &Ground, lease: i64) -> i64 {
        if g.store.lease(lease).is_none() {
            return -1;
        }
        match self.deadline.get(&lease) {
            Some(deadline) => (deadline.at.saturating_sub(self.clock(g)) / 1000) as i64,
            None => -1,
        }
    }

    /// What was proposed long ago is proposed again.
    pub(crate) fn tick(&mut self, g: &Ground, willing: Willing) -> Option<Checked> {
        let look = self.active() && !willing.holds_commands && !willing.corrupt && g.now.is_multiple_of(LOOK_AFTER);
        look.then(|| self.expire_again(g)).flatten()
    }

    /// Something is due: until a round confirms that this member led after this time, it does not
    /// end.
    pub(crate) fn wants_round(&mut self, g: &Ground) -> Option<u64> {
        let clock = self.clock(g);
        // The tick in which a lease was granted or renewed had begun before: one more must pass.
        let unproven = |(at, _): &(u64, i64)| *at < clock && self.led <= *at;
        if !self.active() || self.asking || !self.due.range((self.led, i64::MIN)..).next().is_some_and(unproven) {
            return None;
        }
        self.asking = true;
        Some(clock)
    }

    /// This member led after its clock showed `upto`.
    pub(crate) fn confirmed(&mut self, upto: u64) {
        (self.led, self.asking) = (self.led.max(upto), false);
    }

    /// Time went by while this member could do nothing. What became due meanwhile is kept for a
    /// heartbeat, so that renewals which came meanwhile can be read. Once for each: a member that
    /// is stopped again and again ends its leases all the same.
    pub(crate) fn was_away(&mut self, g: &Ground) {
        if !self.active() {
            return;
        }
        let clock = self.clock(g);
        let missed: Vec<_> = self.due.range((self.led, i64::MIN)..(clock, i64::MIN)).copied().collect();
        for (_, lease) in missed {
            if self.deadline.get(&lease).is_some_and(|deadline| !deadline.moved) {
                let at = clock + g.config.heartbeat_ms;
                self.set(lease, at);
                self.deadline.insert(lease, Deadline { at, moved: true });
            }
        }
    }

    /// Something is due, and this member led behind its deadline.
    pub(crate) fn may_expire(&self) -> bool {
        self.active() && self.due.first().is_some_and(|(at, _)| *at < self.led)
    }

    /// A proposal may have been dropped; the fence makes a second one harmless.
    fn expire_again(&mut self, g: &Ground) -> Option<Checked> {
        let now = g.now;
        let mut batch = Vec::new();
        for (lease, expiring) in &mut self.expiring {
            if now - expiring.proposed > EXPIRE_AGAIN && batch.len() < EXPIRE_BATCH {
                expiring.proposed = now;
                batch.push((*lease, expiring.granted));
            }
        }
        (!batch.is_empty()).then(|| store::command::encode_expire(g.term, &batch))
    }

    /// The end of what is due and not in `kept`, as far as there is room beside what is under way.
    pub(crate) fn expire(&mut self, g: &Ground, kept: &BTreeSet<i64>) -> Vec<Checked> {
        let mut commands = Vec::new();
        while self.expiring.len() + EXPIRE_BATCH <= EXPIRING_MOST {
            let due = self.due.range(..(self.led, i64::MIN)).map(|(_, lease)| *lease);
            let leases: Vec<i64> = due.filter(|lease| !kept.contains(lease)).take(EXPIRE_BATCH).collect();
            if leases.is_empty() {
                break;
            }
            let mut batch = Vec::new();
            for lease in leases {
                self.forget(lease);
                if let Some(found) = g.store.lease(lease) {
                    batch.push((lease, found.granted));
                    let expiring = Expiring { granted: found.granted, proposed: g.now, waiting: Vec::new() };
                    self.expiring.entry(lease).or_insert(expiring);
                }
            }
            if !batch.is_empty() {
                commands.push(store::command::encode_expire(g.term, &batch));
            }
        }
        commands
    }

    /// A read round begun after the request has confirmed us.
    pub(crate) fn renew(&mut self, g: &mut Ground, waiter: Waiter, lease: i64) -> Option<AskAgain> {
        if !self.primary(g) {
            return Some(AskAgain { waiter, lease });
        }
        if let Some(expiring) = self.expiring.get_mut(&lease) {
            expiring.waiting.push(Asker::Own { waiter });
            return None;
        }
        let ttl = self.renewed(g, lease);
        g.answer(waiter, Answer::KeepAlive { ttl });
        None
    }

    pub(crate) fn renew_foreign(&mut self, g: &mut Ground, caller: Caller, lease: i64) {
        let Caller { member, boot, token } = caller;
        if !self.primary(g) {
            return g.send(member, Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 });
        }
        if let Some(expiring) = self.expiring.get_mut(&lease) {
            return expiring.waiting.push(Asker::Foreign { caller });
        }
        let ttl = self.renewed(g, lease);
        g.send(member, Frame::KeepAliveReply { boot, token, ok: true, ttl });
    }

    /// Another member asks how much is left; it waits then until it has applied as much as this
    /// one.
    pub(crate) fn tell_foreign(&self, g: &mut Ground, caller: Caller, lease: i64) {
        let Caller { member, boot, token } = caller;
        let frame = if self.primary(g) {
            let (ttl, index) = (self.remaining(g, lease), g.store.applied().index);
            Frame::TimeToLiveReply { boot, token, ok: true, ttl, index }
        } else {
            Frame::TimeToLiveReply { boot, token, ok: false, ttl: 0, index: 0 }
        };
        g.send(member, frame);
    }

    /// The granted time to live, or 0 for an unknown lease.
    fn renewed(&mut self, g: &mut Ground, lease: i64) -> i64 {
        let Some(ttl) = g.store.lease(lease).map(|found| found.ttl) else { return 0 };
        g.tally.counted.leases_renewed += 1;
        let deadline = self.clock(g) + seconds(ttl);
        self.set(lease, deadline);
        ttl
    }

    /// Keep-alives of leases whose expiry was applied are answered: 0, or renewed if the id
    /// was granted anew meanwhile and the fence refused the expiry.
    pub(crate) fn settle_expired(&mut self, g: &mut Ground) -> Vec<AskAgain> {
        let settled = std::mem::take(&mut self.settled);
        let mut again = Vec::new();
        for lease in &settled {
            // The same id may be listed twice: ended, and granted anew.
            let Some(expiring) = self.expiring.remove(lease) else { continue };
            let found = g.store.lease(*lease).map(|found| found.granted);
            assert!(found != Some(expiring.granted), "settled by an entry");
            g.tally.counted.leases_expired += u64::from(found.is_none());
            for asker in expiring.waiting {
                match asker {
                    Asker::Own { waiter } => again.extend(self.renew(g, waiter, *lease)),
                    Asker::Foreign { caller } => self.renew_foreign(g, caller, *lease),
                }
            }
        }
        again
    }

    /// No longer the leader of that term: nothing is renewed on its word.
    pub(crate) fn stop(&mut self, g: &mut Ground) -> Vec<AskAgain> {
        let mut again = Vec::new();
        for (lease, expiring) in std::mem::take(self).expiring {
            for asker in expiring.waiting {
                match asker {
                    Asker::Own { waiter } => again.push(AskAgain { waiter, lease }),
                    Asker::Foreign { caller: Caller { member, boot, token } } => {
                        g.send(member, Frame::KeepAliveReply { boot, token, ok: false, ttl: 0 });
                    }
                }
            }
        }
        again
    }

    /// The asker of a waiting keep-alive went away. True: there was one.
    pub(crate) fn cancel(&mut self, g: &mut Ground, gone: Waiter, timed_out: bool) -> bool {
        for expiring in self.expiring.values_mut() {
            let before = expiring.waiting.len();
            expiring.waiting.retain(|asker| !matches!(asker, Asker::Own { waiter, .. } if *waiter == gone));
            if expiring.waiting.len() != before {
                if timed_out {
                    g.refuse(gone, Refusal::Timeout);
                }
                return true;
            }
        }
        false
    }
}

/// `ttl`: whole seconds left, or -1.
pub(crate) fn answer_ttl(g: &mut Ground, waiter: Waiter, lease: i64, ttl: i64, keys: bool) {
    let answer = match g.store.lease(lease) {
        Some(found) if ttl >= 0 => {
            let keys = if keys { found.keys.iter().cloned().collect() } else { Vec::new() };
            Answer::TimeToLive { ttl, granted: found.ttl, keys }
        }
        _ => Answer::TimeToLive { ttl: -1, granted: 0, keys: Vec::new() },
    };
    g.answer(waiter, answer);
}

fn seconds(ttl: i64) -> u64 {
    u64::try_from(ttl).expect("a granted time to live is positive") * 1000
}
