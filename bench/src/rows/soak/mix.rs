//! The calls: which one a client makes next, and what is noted of each.

use crate::args::Load;
use crate::call::Caller;
use crate::drive::{Ended, Latencies, Source, latencies};
use crate::failure::Failure;
use crate::message::{self, Fields, Range, Value};
use crate::report::Latency;
use crate::rows::keys::{Chance, STAMP, end_of, key, noise, stamp};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::Rpc;

/// Leases that are renewed all the time, and the seconds each lives without.
const RENEWED: u64 = 100;
const RENEWED_TTL: i64 = 60;
/// Keys that each client swaps.
const SWAPPED: u64 = 16;
/// Keys of a page.
const PAGE: u64 = 500;

/// Samples over a run.
pub const SLICES: u32 = 200;

/// Latencies of one slice of the run, microseconds, two digits: there are hundreds of them.
pub type Slice = Histogram<u64>;

/// Kinds of calls, and how many of a hundred are of each.
const KINDS: [(&str, u64); 8] = [
    ("put", 20),
    ("swap", 25),
    ("get", 30),
    ("page", 5),
    ("renew", 10),
    ("grant", 5),
    ("leased put", 5),
    ("compact", 0),
];
const PUT: usize = 0;
const SWAP: usize = 1;
const GET: usize = 2;
const LIST: usize = 3;
const RENEW: usize = 4;
const GRANT: usize = 5;
const LEASED: usize = 6;
const COMPACT: usize = 7;

/// A lease that is not renewed and has a key.
#[derive(Clone, Copy, Debug)]
pub struct Leased {
    pub number: u64,
    /// When it was asked for, and when the answer was there: it began between the two.
    pub asked: Instant,
    pub granted: Instant,
}

/// What the thread of the calls tells the one of the watchers.
#[derive(Debug, Default)]
pub struct Shared {
    /// Calls that went well.
    pub done: u64,
    acknowledged: Vec<i64>,
    leases: Vec<Leased>,
}

impl Shared {
    /// Revisions acknowledged and leases that have got their key since the last time.
    pub fn drain(&mut self) -> (Vec<i64>, Vec<Leased>) {
        (std::mem::take(&mut self.acknowledged), std::mem::take(&mut self.leases))
    }
}

/// A list under way: all pages at the revision of the first.
#[derive(Clone, Copy, Debug)]
struct List {
    seen: u64,
    revision: i64,
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Put,
    /// A place in `known`.
    Swap(usize),
    Get,
    Page(List),
    Renew,
    Grant(u64, Instant),
    Leased(Leased),
    Compact,
}

impl Doing {
    fn kind(&self) -> usize {
        match self {
            Doing::Put => PUT,
            Doing::Swap(_) => SWAP,
            Doing::Get => GET,
            Doing::Page(_) => LIST,
            Doing::Renew => RENEW,
            Doing::Grant(..) => GRANT,
            Doing::Leased(_) => LEASED,
            Doing::Compact => COMPACT,
        }
    }

    fn writes(&self) -> bool {
        matches!(self, Doing::Put | Doing::Swap(_) | Doing::Leased(_))
    }
}

/// Draws the calls of the soak.
pub struct Mix {
    prefix: String,
    keys: u64,
    end: Vec<u8>,
    value: Vec<u8>,
    chance: Chance,
    clients: Vec<Doing>,
    /// Mod revisions of the keys that are swapped, as far as known: each client has its own.
    known: Vec<i64>,
    lists: Vec<List>,
    granted: VecDeque<Leased>,
    ttl: i64,
    leases: u64,
    renewed: u64,
    every: Duration,
    compact_at: Instant,
    /// Newest revision seen, and the one that the next compaction takes: as old as the last one.
    newest: i64,
    compact_to: i64,
    slice: Duration,
    slices: Vec<Slice>,
    kinds: [Latencies; KINDS.len()],
    last_write: Duration,
    gap: Duration,
    shared: Arc<Mutex<Shared>>,
    scratch: Vec<u8>,
}

/// Ids of this process's leases begin here, those of other rows elsewhere.
fn first_id() -> i64 {
    (1 << 61) | (i64::from(std::process::id()) << 36)
}

impl Mix {
    /// A compaction falls due each `every`; leases that are not renewed live `ttl` seconds.
    pub fn new(load: &Load, every: Duration, ttl: i64, shared: Arc<Mutex<Shared>>) -> Mix {
        let prefix = load.target.prefix.clone();
        Mix {
            end: end_of(&format!("{prefix}keys/")),
            prefix,
            keys: load.keys,
            value: noise(load.value_size),
            chance: Chance::new(1),
            clients: vec![Doing::Get; load.clients as usize],
            known: vec![0; load.clients as usize * SWAPPED as usize],
            lists: Vec::new(),
            granted: VecDeque::new(),
            ttl,
            leases: 0,
            renewed: 0,
            every,
            compact_at: Instant::now() + every,
            newest: 0,
            compact_to: 0,
            slice: load.target.run / SLICES,
            slices: Vec::new(),
            kinds: std::array::from_fn(|_| latencies()),
            last_write: Duration::ZERO,
            gap: Duration::ZERO,
            shared,
            scratch: Vec::new(),
        }
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.unsigned_abs())
    }

    /// Grants the leases that are renewed.
    ///
    /// # Errors
    /// If the server does not.
    pub fn grant_renewed(&self, load: &Load) -> Result<(), Failure> {
        let mut caller = Caller::connect(load.target.dial()?)?;
        for number in 0..RENEWED {
            let mut request = Vec::new();
            message::number(&mut request, 1, RENEWED_TTL);
            message::number(&mut request, 2, first_id() + number as i64);
            caller.ask(Rpc::LeaseGrant, &request)?;
        }
        Ok(())
    }

    fn draw(&mut self, client: u32) -> Doing {
        let now = Instant::now();
        if now >= self.compact_at {
            self.compact_at = now + self.every;
            if self.compact_to > 0 {
                return Doing::Compact;
            }
            self.compact_to = self.newest;
        }
        let mut at = self.chance.below(100);
        let kind = KINDS.iter().position(|(_, share)| {
            let hit = at < *share;
            at = at.saturating_sub(*share);
            hit
        });
        match kind.unwrap_or(GET) {
            PUT => Doing::Put,
            SWAP => {
                let turn = self.chance.below(SWAPPED) as usize;
                Doing::Swap(client as usize + turn * self.clients.len())
            }
            LIST => self.page(now),
            RENEW => Doing::Renew,
            GRANT => {
                self.leases += 1;
                Doing::Grant(self.leases, now)
            }
            LEASED => {
                // One that ends soon would end before its key is there.
                let half = self.ttl() / 2;
                self.granted.retain(|lease| lease.asked + half > now);
                self.granted.pop_front().map_or(Doing::Put, Doing::Leased)
            }
            _ => Doing::Get,
        }
    }

    fn page(&mut self, now: Instant) -> Doing {
        // One that takes too long would meet a compaction: it is begun anew.
        let half = self.every / 2;
        self.lists.retain(|list| list.since + half > now);
        Doing::Page(self.lists.pop().unwrap_or(List { seen: 0, revision: 0, since: now }))
    }

    fn write(&mut self, doing: Doing, out: &mut Vec<u8>) -> Rpc {
        let mut name = Vec::new();
        if let Some(begin) = self.value.first_chunk_mut::<STAMP>() {
            *begin = stamp();
        }
        let folder = |folder: &str| format!("{}{folder}/", self.prefix);
        match doing {
            Doing::Put => {
                key(&mut name, &folder("keys"), self.chance.below(self.keys));
                message::put(out, &name, &self.value, 0);
                Rpc::Put
            }
            Doing::Swap(at) => {
                key(&mut name, &folder("swaps"), at as u64);
                message::swap(out, &name, self.known[at], &self.value, &mut self.scratch);
                Rpc::Txn
            }
            Doing::Get => {
                key(&mut name, &folder("keys"), self.chance.below(self.keys));
                message::range(out, &Range { key: &name, ..Range::default() });
                Rpc::Range
            }
            Doing::Page(list) => {
                key(&mut name, &folder("keys"), list.seen);
                let (limit, revision) = (PAGE as i64, list.revision);
                message::range(out, &Range { key: &name, end: &self.end, limit, revision, ..Range::default() });
                Rpc::Range
            }
            Doing::Renew => {
                self.renewed = (self.renewed + 1) % RENEWED;
                message::number(out, 1, first_id() + self.renewed as i64);
                Rpc::LeaseKeepAlive
            }
            Doing::Grant(number, _) => {
                message::number(out, 1, self.ttl);
                message::number(out, 2, first_id() + (RENEWED + number) as i64);
                Rpc::LeaseGrant
            }
            Doing::Leased(lease) => {
                key(&mut name, &folder("leased"), lease.number);
                message::put(out, &name, &self.value, first_id() + (RENEWED + lease.number) as i64);
                Rpc::Put
            }
            Doing::Compact => {
                message::number(out, 1, self.compact_to);
                self.compact_to = self.newest;
                Rpc::Compact
            }
        }
    }

    fn acknowledge(&mut self, revision: i64) {
        self.newest = self.newest.max(revision);
        self.shared.lock().expect("no holder panics").acknowledged.push(revision);
    }

    fn swapped(&mut self, at: usize, bytes: &[u8]) -> Result<(), &'static str> {
        if message::number_of(bytes, 2) == 1 {
            self.known[at] = message::revision(bytes);
            self.acknowledge(self.known[at]);
            return Ok(());
        }
        // The other branch: responses (3) > response_range (1) > kvs (2) > mod_revision (3).
        let kv = message::bytes_of(bytes, 3)
            .and_then(|op| message::bytes_of(op, 1))
            .and_then(|range| message::bytes_of(range, 2));
        let found = kv.map_or(0, |kv| message::number_of(kv, 3));
        if found == self.known[at] {
            return Err("the comparison failed although the revision is the known one");
        }
        self.known[at] = found;
        Ok(())
    }

    fn paged(&mut self, mut list: List, bytes: &[u8]) -> Result<(), &'static str> {
        let rows = Fields(bytes).filter(|(number, value)| *number == 2 && matches!(value, Value::Bytes(_))).count();
        if rows as u64 != PAGE.min(self.keys - list.seen) {
            return Err("a page that is too short or too long");
        }
        list.seen += rows as u64;
        if list.revision == 0 {
            list.revision = message::revision(bytes);
        }
        if list.seen < self.keys {
            self.lists.push(list);
        }
        Ok(())
    }

    /// Per kind, of the calls that were due within the window.
    pub fn latencies(&self) -> BTreeMap<&'static str, Latency> {
        KINDS.iter().zip(&self.kinds).map(|((name, _), seen)| (*name, Latency::of(seen))).collect()
    }

    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// `window`: how long was measured.
    pub fn figures(&self, figures: &mut BTreeMap<String, f64>, window: Duration) {
        for (name, latency) in self.latencies().into_iter().filter(|(_, latency)| latency.count > 0) {
            let points =
                [("p50", latency.p50_us), ("p99", latency.p99_us), ("p99.9", latency.p999_us), ("max", latency.max_us)];
            for (point, us) in points {
                figures.insert(format!("{name} {point} ms"), us as f64 / 1e3);
            }
        }
        let gap = self.gap.max(window.saturating_sub(self.last_write));
        figures.insert("gap ms".into(), gap.as_secs_f64() * 1e3);
        figures.insert("compactions".into(), self.kinds[COMPACT].len() as f64);
    }
}

impl Source for Mix {
    fn next(&mut self, client: u32, out: &mut Vec<u8>) -> Rpc {
        let doing = self.draw(client);
        self.clients[client as usize] = doing;
        self.write(doing, out)
    }

    fn answer(&mut self, client: u32, bytes: &[u8], _len: usize) -> Result<(), &'static str> {
        let revision = message::revision(bytes);
        match self.clients[client as usize] {
            Doing::Put if revision > 0 => self.acknowledge(revision),
            Doing::Swap(at) => return self.swapped(at, bytes),
            Doing::Get if message::bytes_of(bytes, 2).is_some() => {}
            Doing::Get => return Err("the key is not there"),
            Doing::Page(list) => return self.paged(list, bytes),
            Doing::Renew if message::number_of(bytes, 3) > 0 => {}
            Doing::Renew => return Err("a lease that was renewed all the time has ended"),
            Doing::Grant(number, asked) if message::number_of(bytes, 3) == self.ttl => {
                self.granted.push_back(Leased { number, asked, granted: Instant::now() });
            }
            Doing::Grant(..) => return Err("a lease with another time to live than asked for"),
            Doing::Leased(lease) if revision > 0 => {
                self.acknowledge(revision);
                self.shared.lock().expect("no holder panics").leases.push(lease);
            }
            Doing::Compact if revision > 0 => {}
            Doing::Put | Doing::Leased(_) | Doing::Compact => return Err("no revision in the answer"),
        }
        Ok(())
    }

    fn ended(&mut self, client: u32, ended: Ended) {
        let doing = self.clients[client as usize];
        if !ended.good {
            return;
        }
        self.shared.lock().expect("no holder panics").done += 1;
        if doing.writes() {
            self.gap = self.gap.max(ended.at.saturating_sub(self.last_write));
            self.last_write = ended.at;
        }
        let Some(due) = ended.due else { return };
        self.kinds[doing.kind()].saturating_record(ended.us);
        let at = (due.as_secs_f64() / self.slice.as_secs_f64().max(1e-6)) as usize;
        let slice = || Slice::new_with_bounds(1, 3_600_000_000, 2).expect("bounds that make sense");
        while self.slices.len() <= at.min(SLICES as usize) {
            self.slices.push(slice());
        }
        self.slices[at.min(SLICES as usize)].saturating_record(ended.us);
    }

    fn keep(&self) -> usize {
        usize::MAX
    }
}
