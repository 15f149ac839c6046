//! Every acknowledged write against what each watcher is told: once, and in order.

use super::mix::{Leased, Shared};
use crate::rows::watchers::{Heard, Told};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So long an entry that is complete but for the acknowledgement is kept (a lease that ends has
/// none), and an incomplete one is waited for.
const KEPT: Duration = Duration::from_secs(600);
/// So long after it was due the end of a lease is overdue.
const OVERDUE: Duration = Duration::from_secs(5);

/// A server counts the life of a lease in ticks: so much too early is the grain of its clock, shown
/// as a figure and no failure.
const GRAIN: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
struct Entry {
    told: u64,
    acknowledged: bool,
    since: Instant,
}

/// Writes and events that are not settled yet.
#[derive(Debug)]
pub struct Expected {
    watchers: u64,
    ttl: Duration,
    /// By revision, and for deletions also the number of the key: a lease that ends takes several
    /// keys in one revision, and several leases may end in one.
    open: BTreeMap<(i64, u64), Entry>,
    leases: BTreeMap<u64, Leased>,
    settled: u64,
    lost: u64,
    doubled: u64,
    early: u64,
    ended: u64,
    latest: Duration,
    /// How much too early, at most.
    earliest: Duration,
}

impl Expected {
    pub fn new(watchers: u64, ttl: Duration) -> Expected {
        Expected {
            watchers,
            ttl,
            open: BTreeMap::new(),
            leases: BTreeMap::new(),
            settled: 0,
            lost: 0,
            doubled: 0,
            early: 0,
            ended: 0,
            latest: Duration::ZERO,
            earliest: Duration::ZERO,
        }
    }

    /// Takes over what was acknowledged and told since the last time.
    pub fn take(&mut self, shared: &Mutex<Shared>, told: &mut Told) {
        let (acknowledged, leases) = shared.lock().expect("no holder panics").drain();
        for lease in leases {
            self.leases.insert(lease.number, lease);
        }
        for revision in acknowledged {
            self.enter((revision, 0), |entry| entry.acknowledged = true);
        }
        for heard in std::mem::take(told.heard.as_mut().expect("the row asks for them")) {
            self.hear(heard);
        }
        self.settle(Instant::now());
    }

    fn hear(&mut self, heard: Heard) {
        let Heard { revision, deleted, at } = heard;
        self.enter((revision, deleted.unwrap_or(0)), |entry| entry.told += 1);
        let Some(lease) = deleted.and_then(|number| self.leases.remove(&number)) else { return };
        self.ended += 1;
        self.early += u64::from(at + GRAIN < lease.asked + self.ttl);
        self.earliest = self.earliest.max((lease.asked + self.ttl).saturating_duration_since(at));
        self.latest = self.latest.max(at.saturating_duration_since(lease.granted + self.ttl));
    }

    fn enter(&mut self, key: (i64, u64), change: impl FnOnce(&mut Entry)) {
        let new = || Entry { told: 0, acknowledged: false, since: Instant::now() };
        let entry = self.open.entry(key).or_insert_with(new);
        change(entry);
        if entry.acknowledged && entry.told == self.watchers {
            self.open.remove(&key);
            self.settled += 1;
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(first) = self.open.first_entry()
            && now.saturating_duration_since(first.get().since) > KEPT
        {
            let entry = first.remove();
            self.judge(entry);
        }
    }

    fn judge(&mut self, entry: Entry) {
        self.lost += self.watchers.saturating_sub(entry.told);
        self.doubled += entry.told.saturating_sub(self.watchers);
        self.settled += u64::from(entry.told == self.watchers);
    }

    /// Whether every write was told to all, and every lease has ended.
    pub fn is_settled(&self) -> bool {
        self.leases.is_empty() && self.open.values().all(|entry| entry.told >= self.watchers)
    }

    /// What is wrong now that no more is waited for.
    pub fn errors(&mut self) -> Vec<(String, u64)> {
        for (_, entry) in std::mem::take(&mut self.open) {
            self.judge(entry);
        }
        let now = Instant::now();
        let overdue = self.leases.values().filter(|lease| lease.granted + self.ttl + OVERDUE < now).count();
        [
            ("events that a watcher was not told", self.lost),
            ("events that a watcher was told twice", self.doubled),
            ("leases that ended early", self.early),
            ("leases that did not end", overdue as u64),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| (what.to_owned(), count))
        .collect()
    }

    pub fn figures(&self, figures: &mut BTreeMap<String, f64>) {
        figures.insert("writes told to all watchers".into(), self.settled as f64);
        figures.insert("leases ended".into(), self.ended as f64);
        figures.insert("lease early max ms".into(), self.earliest.as_secs_f64() * 1e3);
        figures.insert("lease late max ms".into(), self.latest.as_secs_f64() * 1e3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(revision: i64) -> Heard {
        Heard { revision, deleted: None, at: Instant::now() }
    }

    fn names(expected: &mut Expected) -> Vec<(String, u64)> {
        expected.errors()
    }

    #[test]
    fn lost_and_doubled_events_are_found() {
        let mut expected = Expected::new(2, Duration::from_secs(5));
        for revision in [5, 6] {
            expected.enter((revision, 0), |entry| entry.acknowledged = true);
        }
        // An event may come before the answer of its write.
        [5, 5, 6, 7, 7].map(put).into_iter().for_each(|heard| expected.hear(heard));
        assert!(!expected.is_settled(), "one watcher has not been told of 6");
        expected.enter((7, 0), |entry| entry.acknowledged = true);
        let end = Heard { revision: 8, deleted: Some(3), at: Instant::now() };
        [end; 3].into_iter().for_each(|heard| expected.hear(heard));
        assert_eq!(
            names(&mut expected),
            [
                ("events that a watcher was not told".to_owned(), 1),
                ("events that a watcher was told twice".to_owned(), 1)
            ]
        );
        assert_eq!(expected.settled, 2);
    }

    #[test]
    fn a_lease_ends_neither_early_nor_never() {
        let now = Instant::now();
        let mut expected = Expected::new(1, Duration::from_secs(5));
        let old = now.checked_sub(Duration::from_secs(30)).expect("the machine runs for longer");
        for (number, asked) in [(1, now), (2, old), (3, old)] {
            expected.leases.insert(number, Leased { number, asked, granted: asked });
        }
        for number in [1, 2] {
            expected.hear(Heard { revision: number as i64, deleted: Some(number), at: now });
        }
        assert!(!expected.is_settled());
        assert_eq!(
            names(&mut expected),
            [("leases that ended early".to_owned(), 1), ("leases that did not end".to_owned(), 1)]
        );
        assert_eq!(expected.latest.as_secs(), 25);
    }
}
