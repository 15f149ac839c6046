//! One backend: which server a connection goes to, and who waits for a place. Time and chance come
//! as arguments.

use super::config::{Backend, Balance};
use super::counters::Counters;
use super::health::{Change, Found, Health, Wanted};
use std::collections::VecDeque;
use std::time::Duration;

/// A connection that waits for a place.
pub(crate) type Ticket = u64;

/// One server, and all that is counted of it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) config: super::config::Server,
    pub(crate) health: Health,
    pub(crate) wanted: Wanted,
    /// As an operator changed it; at first that of the file.
    pub(crate) weight: u32,
    pub(crate) counters: Counters,
    /// The last check: what it found, how long it took, and in words what was wrong.
    pub(crate) last: Option<(Found, Duration, String)>,
    /// When it was last said to be up or down, drained, or in maintenance.
    pub(crate) changed: Duration,
    /// How long it was not up, before `changed`.
    pub(crate) downtime: Duration,
    /// It leads, as its checks learn it.
    pub(crate) leads: bool,
    /// Of its checks, in microseconds, smoothed.
    latency: Option<u64>,
    /// For taking turns.
    turn: i64,
    /// Connections that wait for this one alone.
    waiting: VecDeque<Ticket>,
}

impl Member {
    fn new(config: &super::config::Server, now: Duration) -> Member {
        let wanted = if config.disabled { Wanted::Maint } else { Wanted::Ready };
        Member {
            health: Health::new(config),
            wanted,
            weight: config.weight,
            counters: Counters::default(),
            last: None,
            changed: now,
            downtime: Duration::ZERO,
            leads: false,
            latency: None,
            turn: 0,
            waiting: VecDeque::new(),
            config: config.clone(),
        }
    }

    /// It takes new connections.
    pub(crate) fn is_usable(&self) -> bool {
        self.wanted == Wanted::Ready && self.weight > 0 && self.health.is_up()
    }

    /// It counts as up in statistics, whatever it takes.
    pub(crate) fn is_up(&self) -> bool {
        self.wanted != Wanted::Maint && self.health.is_up()
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting.len()
    }

    /// Its weight by now, in hundredths.
    fn share(&self, now: Duration) -> i64 {
        i64::from(self.weight) * i64::from(self.health.throttle(now))
    }

    /// Connections at once that it may have by now.
    fn room(&self, now: Duration) -> Option<u32> {
        let most = self.config.maxconn?;
        Some((u64::from(most) * u64::from(self.health.throttle(now)) / 100).max(1) as u32)
    }

    fn has_room(&self, now: Duration) -> bool {
        self.room(now).is_none_or(|room| self.counters.current < room)
    }

    /// How long it has not been up, in all.
    pub(crate) fn downtime(&self, now: Duration) -> Duration {
        let lasts = if self.is_up() { Duration::ZERO } else { now.saturating_sub(self.changed) };
        self.downtime + lasts
    }
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To this server, which counts it from now on.
    Server(usize),
    /// Nowhere yet.
    Waits,
    /// No server takes anything.
    Nobody,
}

/// What one look at a connection needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// Of its address.
    pub(crate) hash: u64,
    /// Two draws.
    pub(crate) draws: [u64; 2],
    /// Not this one, if there is another: it just failed.
    pub(crate) not: Option<usize>,
}

/// The servers of one backend.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) members: Vec<Member>,
    pub(crate) counters: Counters,
    balance: Balance,
    consistent: bool,
    allbackups: bool,
    /// Connections that wait for any place, the oldest first.
    waiting: VecDeque<Ticket>,
    next: Ticket,
    /// When the last server was lost, or the first was there again.
    pub(crate) changed: Duration,
    pub(crate) downtime: Duration,
    pub(crate) transitions: u64,
}

impl Pool {
    pub(crate) fn new(config: &Backend, now: Duration) -> Pool {
        Pool {
            name: config.name.clone(),
            members: config.servers.iter().map(|server| Member::new(server, now)).collect(),
            counters: Counters::default(),
            balance: config.balance,
            consistent: config.consistent,
            allbackups: config.allbackups,
            waiting: VecDeque::new(),
            next: 0,
            changed: now,
            downtime: Duration::ZERO,
            transitions: 0,
        }
    }

    pub(crate) fn balance(&self) -> Balance {
        self.balance
    }

    pub(crate) fn position(&self, server: &str) -> Option<usize> {
        self.members.iter().position(|member| member.config.name == server)
    }

    /// Those that take connections now: the backups when nobody else does.
    pub(crate) fn usable(&self) -> Vec<usize> {
        let of = |backup: bool| {
            let fits = move |at: &usize| self.members[*at].config.backup == backup && self.members[*at].is_usable();
            (0..self.members.len()).filter(fits)
        };
        let active: Vec<usize> = of(false).collect();
        match (active.is_empty(), self.allbackups) {
            (false, _) => active,
            (true, true) => of(true).collect(),
            (true, false) => of(true).take(1).collect(),
        }
    }

    /// A place for a connection, which counts from now on.
    pub(crate) fn assign(&mut self, asker: Asker, now: Duration) -> Place {
        let usable = self.usable();
        if usable.is_empty() {
            return Place::Nobody;
        }
        let others: Vec<usize> = usable.iter().copied().filter(|at| Some(*at) != asker.not).collect();
        let usable = if others.is_empty() { usable } else { others };
        // Who waits already comes first.
        let free = |at: &usize| self.members[*at].has_room(now) && self.members[*at].waiting.is_empty();
        let free: Vec<usize> = usable.iter().copied().filter(free).collect();
        let chosen = match self.balance {
            // Its clients stay with it, so they wait for it.
            Balance::Source => Some(self.by_source(&usable, asker.hash)),
            _ if !self.waiting.is_empty() => None,
            _ if free.is_empty() => None,
            Balance::Roundrobin => Some(self.in_turn(&free, now)),
            Balance::Leastconn => Some(self.least(&free, now)),
            Balance::First => free.first().copied(),
            Balance::Random => {
                let [a, b] = asker.draws.map(|draw| free[(draw % free.len() as u64) as usize]);
                Some(if self.load(b, now) < self.load(a, now) { b } else { a })
            }
            Balance::Leader => {
                let leader = free.iter().copied().find(|at| self.members[*at].leads);
                Some(leader.unwrap_or_else(|| self.in_turn(&free, now)))
            }
            Balance::Nearest => free.iter().copied().min_by_key(|at| self.members[*at].latency.unwrap_or(u64::MAX)),
        };
        match chosen {
            Some(at) if self.members[at].has_room(now) => {
                self.begins(at, now);
                Place::Server(at)
            }
            _ => Place::Waits,
        }
    }

    /// Counts a connection of this server.
    fn begins(&mut self, at: usize, now: Duration) {
        self.members[at].counters.begins(now);
        self.members[at].counters.chosen += 1;
        self.counters.chosen += 1;
    }

    /// Puts a connection into the queue. `at`: it waits for this server alone. None: the queue is
    /// full.
    pub(crate) fn wait(&mut self, asker: Asker) -> Option<Ticket> {
        self.next += 1;
        let ticket = self.next;
        if self.balance == Balance::Source {
            let at = self.by_source(&self.usable(), asker.hash);
            let member = &mut self.members[at];
            if member.config.maxqueue.is_some_and(|most| member.waiting.len() >= most as usize) {
                return None;
            }
            member.waiting.push_back(ticket);
            member.counters.queue_max = member.counters.queue_max.max(member.waiting.len() as u32);
        } else {
            self.waiting.push_back(ticket);
            self.counters.queue_max = self.counters.queue_max.max(self.waiting.len() as u32);
        }
        Some(ticket)
    }

    pub(crate) fn queued(&self) -> usize {
        self.waiting.len() + self.members.iter().map(Member::queued).sum::<usize>()
    }

    /// It does not wait any more.
    pub(crate) fn leaves(&mut self, ticket: Ticket) {
        self.waiting.retain(|other| *other != ticket);
        self.members.iter_mut().for_each(|member| member.waiting.retain(|other| *other != ticket));
    }

    /// A connection of this server has ended. Unless the server is another by now it was counted.
    pub(crate) fn ends(&mut self, at: usize) {
        let current = &mut self.members[at].counters.current;
        *current = current.saturating_sub(1);
    }

    /// Those that need wait no longer, each with its server, which counts it.
    pub(crate) fn admitted(&mut self, now: Duration) -> Vec<(Ticket, usize)> {
        let mut admitted = Vec::new();
        for at in 0..self.members.len() {
            while self.members[at].is_usable() && self.members[at].has_room(now) {
                let Some(ticket) = self.members[at].waiting.pop_front() else { break };
                self.begins(at, now);
                admitted.push((ticket, at));
            }
        }
        while !self.waiting.is_empty() {
            let free: Vec<usize> = self.usable().into_iter().filter(|at| self.members[*at].has_room(now)).collect();
            if free.is_empty() {
                break;
            }
            let at = self.least(&free, now);
            let ticket = self.waiting.pop_front().expect("it is not empty");
            self.begins(at, now);
            admitted.push((ticket, at));
        }
        admitted
    }

    /// By weight, and spread: who got less than its share comes next.
    fn in_turn(&mut self, usable: &[usize], now: Duration) -> usize {
        let total: i64 = usable.iter().map(|at| self.members[*at].share(now)).sum();
        for at in usable {
            self.members[*at].turn += self.members[*at].share(now);
        }
        let next = |at: &&usize| (self.members[**at].turn, std::cmp::Reverse(**at));
        let chosen = *usable.iter().max_by_key(next).expect("one is usable");
        self.members[chosen].turn -= total;
        chosen
    }

    /// Connections by weight: comparable among servers.
    fn load(&self, at: usize, now: Duration) -> u64 {
        let member = &self.members[at];
        (u64::from(member.counters.current) + 1) * 25_600 / member.share(now).max(1) as u64
    }

    fn least(&mut self, usable: &[usize], now: Duration) -> usize {
        let fewest = usable.iter().map(|at| self.load(*at, now)).min().expect("one is usable");
        let all: Vec<usize> = usable.iter().copied().filter(|at| self.load(*at, now) == fewest).collect();
        self.in_turn(&all, now)
    }

    fn by_source(&self, usable: &[usize], hash: u64) -> usize {
        let weight = |at: usize| u64::from(self.members[at].weight.max(1));
        if self.consistent {
            // The highest of their own draws: who leaves takes nobody else's clients along.
            let draw = |at: &&usize| {
                let own = mix(hash ^ mix(**at as u64 + 1));
                let unit = (own >> 11) as f64 / (1_u64 << 53) as f64;
                (-(1.0 - unit).ln() / weight(**at) as f64, **at)
            };
            let best = usable.iter().min_by(|a, b| draw(a).0.total_cmp(&draw(b).0));
            return *best.expect("one is usable");
        }
        let total: u64 = usable.iter().map(|at| weight(*at)).sum();
        let mut left = mix(hash) % total;
        for at in usable {
            match left.checked_sub(weight(*at)) {
                Some(rest) => left = rest,
                None => return *at,
            }
        }
        unreachable!("less than the sum of the weights")
    }

    /// A check has ended.
    pub(crate) fn checked(&mut self, at: usize, found: Found, took: Duration, text: String, now: Duration) {
        let member = &mut self.members[at];
        if member.wanted == Wanted::Maint {
            return;
        }
        if !found.is_good() {
            member.counters.checks_failed += u64::from(member.health.is_up());
        } else {
            let micros = took.as_micros() as u64;
            member.latency = Some(member.latency.map_or(micros, |before| (before * 7 + micros) / 8));
        }
        member.last = Some((found, took, text));
        let change = member.health.checked(found.is_good(), now);
        self.heard(at, change, now);
    }

    /// What a check learned of who leads.
    pub(crate) fn leads(&mut self, at: usize, leads: bool) {
        self.members[at].leads = leads;
    }

    /// A client's connection to it was made, or could not be. Whether it went down by that.
    pub(crate) fn observed(&mut self, at: usize, good: bool, now: Duration) -> bool {
        let member = &mut self.members[at];
        if !good {
            member.counters.connect_errors += 1;
            self.counters.connect_errors += 1;
        }
        if !member.config.observe || !member.config.check {
            return false;
        }
        let change = member.health.observed(good, now);
        self.heard(at, change, now);
        change == Some(Change::Down)
    }

    fn heard(&mut self, at: usize, change: Option<Change>, now: Duration) {
        let Some(change) = change else { return };
        let member = &mut self.members[at];
        match change {
            Change::Down => member.counters.checks_down += 1,
            Change::Up => {
                member.downtime += now.saturating_sub(member.changed);
                member.turn = 0;
            }
        }
        member.changed = now;
        self.counts_whole(now);
    }

    /// An operator says so. Whether that is new.
    pub(crate) fn want(&mut self, at: usize, wanted: Wanted, now: Duration) -> bool {
        let member = &mut self.members[at];
        let before = std::mem::replace(&mut member.wanted, wanted);
        if before == wanted {
            return false;
        }
        if before == Wanted::Maint {
            member.downtime += now.saturating_sub(member.changed);
            member.health.enabled(now);
            member.last = None;
        }
        member.changed = now;
        self.counts_whole(now);
        true
    }

    pub(crate) fn weigh(&mut self, at: usize, weight: u32, now: Duration) {
        self.members[at].weight = weight;
        self.members[at].turn = 0;
        self.counts_whole(now);
    }

    /// Any server can be used.
    pub(crate) fn is_up(&self) -> bool {
        self.members.iter().any(Member::is_usable)
    }

    fn counts_whole(&mut self, now: Duration) {
        let up = self.is_up();
        if up != self.counters.is_up {
            if up {
                self.downtime += now.saturating_sub(self.changed);
            } else {
                self.transitions += 1;
            }
            (self.counters.is_up, self.changed) = (up, now);
        }
    }

    /// What was learned of servers that the new file has too.
    pub(crate) fn inherits(&mut self, before: &Pool, now: Duration) {
        for member in &mut self.members {
            let Some(was) = before.members.iter().find(|was| was.config.name == member.config.name) else { continue };
            member.counters = was.counters.clone();
            (member.downtime, member.changed) = (was.downtime, was.changed);
            if was.config.address == member.config.address && was.config.check == member.config.check {
                (member.last, member.leads, member.latency) = (was.last.clone(), was.leads, was.latency);
                // What an operator said over the socket goes with the file that it was said of.
                if was.config.disabled == member.config.disabled {
                    member.wanted = was.wanted;
                }
                if was.config.weight == member.config.weight {
                    member.weight = was.weight;
                }
                if !was.health.is_up() {
                    let _ = member.health.checked(false, now);
                }
            }
        }
        // A ticket of before is never one of now.
        self.next = before.next;
        self.counters = before.counters.clone();
        (self.changed, self.downtime, self.transitions) = (before.changed, before.downtime, before.transitions);
    }
}

/// Spreads a number over all of its bits.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

#[cfg(test)]
mod tests;
