//! Watchers: each checks that what it is told goes forward, and together they measure how late.

use super::keys::{end_of, number_of, stamped};
use crate::cost::{Sample, Watched};
use crate::drive::{Latencies, latencies, thread_cpu};
use crate::failure::Failure;
use crate::h2::{Begin, Event};
use crate::message::{self, Fields, Value};
use crate::net::{Dial, Net};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::Rpc;

/// What is watched, and by how many.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    pub prefix: &'a str,
    pub count: u64,
    pub conns: usize,
    /// 0: from now on.
    pub from_revision: i64,
}

/// One event, for a row that looks at each.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub revision: i64,
    /// The number at the end of the key that was deleted.
    pub deleted: Option<u64>,
    pub at: Instant,
}

/// What all watchers together have been told.
#[derive(Debug)]
pub struct Told {
    pub created: u64,
    pub puts: u64,
    pub deletes: u64,
    pub lag: Latencies,
    pub errors: BTreeMap<String, u64>,
    pub first_delete: Option<Instant>,
    pub last_event: Option<Instant>,
    /// Lag counts for values sent from here on.
    pub count_from: Option<Instant>,
    /// Events that arrived from `count_from` to here, whenever they were sent: what the servers'
    /// CPU of that time is divided by.
    pub count_until: Option<Instant>,
    pub in_window: u64,
    /// Events of each watcher.
    each: Vec<u64>,
    /// Every event, for a row that takes them from here.
    pub heard: Option<Vec<Heard>>,
    /// Newest revision each watcher has been told of.
    last: Vec<i64>,
}

/// What the window of a run with watchers cost.
#[derive(Debug)]
pub struct Within {
    pub before: Result<Sample, Failure>,
    pub after: Result<Sample, Failure>,
    /// CPUs that the watchers' own thread used: near 1 the lag is its own.
    pub cpus: f64,
}

/// Watchers, one stream each.
#[derive(Debug)]
pub struct Watchers {
    net: Net,
    streams: Vec<(usize, u32)>,
    pub told: Told,
}

impl Watchers {
    /// Opens the watches and waits until the server has confirmed all.
    ///
    /// # Errors
    /// If it does not within a minute.
    pub fn open(dial: Dial, watch: &Watch<'_>) -> Result<Watchers, Failure> {
        let mut create = Vec::new();
        message::bytes(&mut create, 1, watch.prefix.as_bytes());
        message::bytes(&mut create, 2, &end_of(watch.prefix));
        message::number(&mut create, 3, watch.from_revision);
        let mut request = Vec::new();
        message::bytes(&mut request, 1, &create);
        let mut net = Net::connect(dial, watch.conns.max(1))?;
        let conns = net.len();
        let streams = (0..watch.count)
            .map(|tag| {
                let conn = tag as usize % conns;
                let begin = Begin { rpc: Rpc::Watch, tag, open: true, keep: usize::MAX };
                (conn, net.tx(conn).start(begin, &request))
            })
            .collect();
        let told = Told::new(watch.count as usize);
        let mut watchers = Watchers { net, streams, told };
        watchers.pump(Instant::now() + Duration::from_secs(60), |told| told.created == watch.count);
        if watchers.told.created < watch.count {
            let Told { created, errors, .. } = &watchers.told;
            return Err(format!("{created} of {} watches were created within a minute; {errors:?}", watch.count).into());
        }
        Ok(watchers)
    }

    /// From now on their readers read nothing: the server may send as much as a stream's window.
    pub fn stop_reading(&mut self) {
        for (conn, stream) in self.streams.clone() {
            self.net.tx(conn).pause(stream, true);
        }
    }

    /// Receives over a run's window, with the servers' counters at both ends of it; `tick` is
    /// called about once a second.
    pub fn within(&mut self, from: Instant, until: Instant, watched: &Watched, mut tick: impl FnMut()) -> Within {
        self.pump(from, |_| false);
        (self.told.count_from, self.told.count_until) = (Some(from), Some(until));
        let (before, cpu) = (watched.sample(), thread_cpu());
        while Instant::now() < until {
            self.pump(until.min(Instant::now() + Duration::from_secs(1)), |_| false);
            tick();
        }
        let after = watched.sample();
        let cpus = thread_cpu().saturating_sub(cpu).as_secs_f64() / (until - from).as_secs_f64().max(1e-9);
        Within { before, after, cpus }
    }

    /// Waits for what each watcher is still to be told after so many writes; how many events did
    /// not come.
    pub fn settle(&mut self, written: u64, patience: Duration) -> u64 {
        self.pump(Instant::now() + patience, |told| {
            told.puts + told.deletes >= written * told.each.len() as u64 && told.missing(written) == 0
        });
        self.told.missing(written)
    }

    /// Receives until then, or until it is enough.
    pub fn pump(&mut self, until: Instant, mut enough: impl FnMut(&Told) -> bool) {
        while !enough(&self.told) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let told = &mut self.told;
            self.net.poll(left.min(Duration::from_millis(50)), &mut |_, at, _, event| told.hear(at, event));
        }
    }
}

impl Told {
    pub fn new(watchers: usize) -> Told {
        Told {
            created: 0,
            puts: 0,
            deletes: 0,
            lag: latencies(),
            errors: BTreeMap::new(),
            first_delete: None,
            last_event: None,
            count_from: None,
            count_until: None,
            in_window: 0,
            each: vec![0; watchers],
            heard: None,
            last: vec![0; watchers],
        }
    }

    fn hear(&mut self, at: Instant, event: Event<'_>) {
        match event {
            Event::Message { tag, bytes, .. } => self.message(tag, at, bytes),
            Event::End { code, text, .. } => self.wrong(&format!("a watch ended with code {code}: {text}")),
        }
    }

    fn message(&mut self, tag: u64, at: Instant, bytes: &[u8]) {
        for (number, value) in Fields(bytes) {
            match (number, value) {
                (3, Value::Number(1)) => self.created += 1,
                (4, Value::Number(1)) => self.wrong("a watch was cancelled"),
                (11, Value::Bytes(event)) => self.event(tag, at, event),
                _ => {}
            }
        }
    }

    fn event(&mut self, tag: u64, at: Instant, event: &[u8]) {
        let deleted = message::number_of(event, 1) == 1;
        let kv = message::bytes_of(event, 2).unwrap_or_default();
        let (mut revision, mut key, mut value) = (0, &[][..], &[][..]);
        for field in Fields(kv) {
            match field {
                (1, Value::Bytes(bytes)) => key = bytes,
                (3, Value::Number(n)) => revision = n as i64,
                (5, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        let last = &mut self.last[tag as usize];
        // Several deletions share a revision: a lease that ends takes all its keys at once.
        let forward = if deleted { revision >= *last } else { revision > *last };
        *last = revision;
        if !forward {
            self.wrong("an event that goes back or comes twice");
        }
        self.last_event = Some(at);
        self.each[tag as usize] += 1;
        let within = self.count_from.is_some_and(|from| at >= from) && self.count_until.is_none_or(|until| at < until);
        self.in_window += u64::from(within);
        if let Some(heard) = &mut self.heard {
            heard.push(Heard { revision, deleted: deleted.then(|| number_of(key)), at });
        }
        if deleted {
            self.deletes += 1;
            self.first_delete.get_or_insert(at);
            return;
        }
        self.puts += 1;
        if let (Some(from), Some(sent)) = (self.count_from, stamped(value))
            && sent >= from
        {
            self.lag.saturating_record((at.saturating_duration_since(sent).as_micros() as u64).max(1));
        }
    }

    /// Events that a watcher was not told of, all watchers together, if all of them watch from
    /// before the first of `written` writes that are known to be done. One that had an error may
    /// have been done all the same: what one watcher was told, each must be.
    pub fn missing(&self, written: u64) -> u64 {
        let owed = self.each.iter().copied().fold(written, u64::max);
        self.each.iter().map(|told| owed - told).sum()
    }

    fn wrong(&mut self, what: &str) {
        *self.errors.entry(what.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::stamp;
    use super::*;
    use prost::Message;
    use wire::{etcdserverpb as pb, mvccpb};

    fn told() -> Told {
        Told { count_from: Some(Instant::now()), ..Told::new(2) }
    }

    fn event(revision: i64, deleted: bool) -> Vec<u8> {
        let value = if deleted { Vec::new() } else { stamp().to_vec() };
        let kv =
            mvccpb::KeyValue { key: "k".into(), mod_revision: revision, value: value.into(), ..Default::default() };
        let event = mvccpb::Event { r#type: i32::from(deleted), kv: Some(kv), ..Default::default() };
        pb::WatchResponse { events: vec![event], ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn an_event_that_comes_twice_is_an_error() {
        let mut told = told();
        let begin = Instant::now();
        for (revision, deleted) in [(5, false), (6, false), (7, true), (7, true)] {
            told.message(0, Instant::now(), &event(revision, deleted));
        }
        assert_eq!((told.puts, told.deletes, told.lag.len()), (2, 2, 2));
        assert!(told.lag.max() <= begin.elapsed().as_micros() as u64 + 1);
        assert!(told.errors.is_empty(), "{:?}", told.errors);
        told.message(0, Instant::now(), &event(7, false));
        assert_eq!(told.errors.values().sum::<u64>(), 1);
    }

    /// Two watchers, three writes; one is told of a fourth that had no answer, and the other of
    /// neither it nor the third. Together they were told of six.
    #[test]
    fn each_watcher_must_be_told_of_everything() {
        let mut told = told();
        for (tag, revision) in [(0, 5), (1, 5), (0, 6), (1, 6), (0, 7), (0, 8)] {
            told.message(tag, Instant::now(), &event(revision, false));
        }
        assert_eq!((told.missing(3), told.missing(4), told.missing(5)), (2, 2, 4));
        told.message(1, Instant::now(), &event(7, false));
        told.message(1, Instant::now(), &event(8, true));
        assert_eq!(told.missing(4), 0);
    }

    /// What comes after the window has a lag, and is no part of what was done within it.
    #[test]
    fn late_events_are_not_part_of_the_rate() {
        let mut told = told();
        let until = Instant::now() + Duration::from_secs(60);
        told.count_until = Some(until);
        let bytes = event(5, false);
        told.message(0, Instant::now(), &bytes);
        told.message(1, until, &bytes);
        assert_eq!((told.lag.len(), told.in_window), (2, 1));
    }
}
