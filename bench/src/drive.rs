//! Drives unary calls: closed loop (each client asks again when it has its answer) or open loop
//! (requests fall due at a fixed rate, whatever the server does; latency counts from when a
//! request was due, so a server that stalls is charged for all it kept waiting).

use crate::failure::Failure;
use crate::h2::{Begin, Event, Tx};
use crate::net::{Dial, Net};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::Rpc;

/// After an error a client waits this long: a dead server must not be asked a million times.
const PENALTY: Duration = Duration::from_millis(10);
/// How long answers that are still owed at the end of a run are waited for.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// Width of a bucket of the time line.
const BUCKET: Duration = Duration::from_millis(100);

/// What is asked. One per thread; `client` counts within the thread.
pub trait Source: Send {
    /// Appends the request message of the client's next call.
    fn next(&mut self, client: u32, out: &mut Vec<u8>) -> Rpc;

    /// Judges one message of the answer.
    ///
    /// # Errors
    /// Says what is wrong with it; it is counted as an error.
    fn answer(&mut self, _client: u32, _bytes: &[u8], _len: usize) -> Result<(), &'static str> {
        Ok(())
    }

    /// Judges an answer that is complete (all messages seen).
    ///
    /// # Errors
    /// As [`Source::answer`].
    fn complete(&mut self, _client: u32) -> Result<(), &'static str> {
        Ok(())
    }

    /// Notes that a call has ended, well or not.
    fn ended(&mut self, _client: u32, _ended: Ended) {}

    /// How much of an answer's message must be kept to be judged; `usize::MAX` for all.
    fn keep(&self) -> usize {
        256
    }
}

/// How a call ended. Times count from the beginning of the window; before it they are 0.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub good: bool,
    /// When it was due or begun, if that was within the window.
    pub due: Option<Duration>,
    pub at: Duration,
    /// Latency in microseconds, at least 1.
    pub us: u64,
}

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Plan {
    pub dial: Dial,
    /// Callers; each has at most one call under way.
    pub clients: u32,
    pub conns: usize,
    pub threads: usize,
    pub warm_up: Duration,
    pub run: Duration,
    /// Calls a second of an open loop; `None` is a closed loop.
    pub rate: Option<f64>,
    /// A closed loop that ends after this many calls instead of after a time.
    pub total: Option<u64>,
}

/// Latencies in microseconds, three digits, up to an hour.
pub type Latencies = Histogram<u64>;

pub fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("bounds that make sense")
}

/// One tenth of a second of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    pub done: u64,
    pub errors: u64,
    pub worst_us: u64,
}

/// What a thread, or a whole run, has seen within its window.
#[derive(Debug)]
pub struct Seen {
    pub latencies: Latencies,
    pub done: u64,
    pub bytes: u64,
    pub errors: BTreeMap<String, u64>,
    /// Due (open loop) or under way (closed loop) within the window and never answered.
    pub unanswered: u64,
    /// Answered well, before, within and after the window.
    pub answered: u64,
    pub window: Duration,
    pub cpu: Duration,
    pub line: Vec<Bucket>,
    pub losses: Vec<String>,
    pub lost: u64,
    /// Longest time within the window without a good answer.
    pub gap: Duration,
}

impl Seen {
    pub fn new() -> Seen {
        Seen {
            latencies: latencies(),
            done: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            unanswered: 0,
            answered: 0,
            window: Duration::ZERO,
            cpu: Duration::ZERO,
            line: Vec::new(),
            losses: Vec::new(),
            lost: 0,
            gap: Duration::ZERO,
        }
    }

    fn merge(&mut self, other: Seen) {
        self.latencies.add(other.latencies).expect("the same bounds");
        self.done += other.done;
        self.bytes += other.bytes;
        for (what, count) in other.errors {
            *self.errors.entry(what).or_default() += count;
        }
        self.unanswered += other.unanswered;
        self.answered += other.answered;
        self.window = self.window.max(other.window);
        self.cpu += other.cpu;
        if self.line.len() < other.line.len() {
            self.line.resize(other.line.len(), Bucket::default());
        }
        for (mine, theirs) in self.line.iter_mut().zip(other.line) {
            mine.done += theirs.done;
            mine.errors += theirs.errors;
            mine.worst_us = mine.worst_us.max(theirs.worst_us);
        }
        self.losses.extend(other.losses);
        self.lost += other.lost;
        self.gap = self.gap.max(other.gap);
    }

    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Counters that the progress line reads while a run is under way.
#[derive(Debug, Default)]
pub struct Live {
    pub done: AtomicU64,
    pub errors: AtomicU64,
    /// Set from outside: the run ends now instead of at its time.
    pub stop: AtomicBool,
}

/// Runs the plan with one source per thread. `during` runs beside it on the calling thread, from
/// the start to the end of the window; it is given both times (the end is `None` for a run that
/// ends by count).
///
/// # Errors
/// If the connections cannot be made.
pub fn drive<S: Source, R>(
    plan: &Plan,
    sources: Vec<S>,
    live: &Live,
    during: impl FnOnce(Instant, Option<Instant>) -> R,
) -> Result<(Seen, Vec<S>, R), Failure> {
    assert_eq!(sources.len(), plan.threads, "one source a thread");
    let nets: Vec<Net> = share(plan.conns as u64, plan.threads)
        .map(|n| Net::connect(plan.dial.clone(), n as usize))
        .collect::<Result<_, _>>()?;
    let begin = Instant::now();
    let from = begin + plan.warm_up;
    let until = plan.total.is_none().then(|| from + plan.run);
    let (mut all, mut back) = (Seen::new(), Vec::new());
    let during = std::thread::scope(|scope| {
        let clients = share(u64::from(plan.clients), plan.threads);
        let totals = share(plan.total.unwrap_or(0), plan.threads);
        let workers: Vec<_> = sources
            .into_iter()
            .zip(nets)
            .zip(clients.zip(totals))
            .map(|((source, net), (clients, total))| {
                let worker = Worker {
                    clients: vec![Client::default(); clients as usize],
                    conns: net.len(),
                    source,
                    seen: Seen::new(),
                    from,
                    until,
                    left: plan.total.map(|_| total),
                    under_way: 0,
                    free: Vec::new(),
                    backlog: VecDeque::new(),
                    sick: VecDeque::new(),
                    request: Vec::new(),
                    live,
                    last_good: from,
                    done: 0,
                };
                let interval = plan.rate.map(|rate| Duration::from_secs_f64(plan.threads as f64 / rate));
                scope.spawn(move || worker.run(net, begin, interval))
            })
            .collect();
        let result = during(from, until);
        for worker in workers {
            let (seen, source) = worker.join().expect("a worker does not panic");
            all.merge(seen);
            back.push(source);
        }
        result
    });
    Ok((all, back, during))
}

/// `total` in equal shares, the first ones one larger.
pub fn share(total: u64, parts: usize) -> impl Iterator<Item = u64> {
    let parts = parts as u64;
    (0..parts).map(move |i| total / parts + u64::from(i < total % parts))
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// When its call was begun, or was due.
    since: Option<Instant>,
    bad: Option<&'static str>,
}

struct Worker<'a, S> {
    clients: Vec<Client>,
    conns: usize,
    source: S,
    seen: Seen,
    from: Instant,
    until: Option<Instant>,
    left: Option<u64>,
    under_way: usize,
    /// Open loop: clients without a call, and calls without a client.
    free: Vec<u32>,
    backlog: VecDeque<Instant>,
    /// Clients that had an error, and when they may go on.
    sick: VecDeque<(Instant, u32)>,
    request: Vec<u8>,
    live: &'a Live,
    last_good: Instant,
    done: u64,
}

impl<S: Source> Worker<'_, S> {
    fn run(mut self, mut net: Net, begin: Instant, interval: Option<Duration>) -> (Seen, S) {
        let open = interval.is_some();
        let mut due = begin;
        if open {
            self.free = (0..self.clients.len() as u32).rev().collect();
        } else {
            for client in 0..self.clients.len() as u32 {
                let conn = client as usize % self.conns;
                self.begin(client, Instant::now(), net.tx(conn));
            }
        }
        let mut cpu_at_start = None;
        let mut measured_until = None;
        loop {
            let now = Instant::now();
            if cpu_at_start.is_none() && now >= self.from {
                cpu_at_start = Some((now, thread_cpu()));
            }
            if self.live.stop.load(Ordering::Relaxed) && self.until.is_none_or(|until| now < until) {
                self.until = Some(now);
            }
            let over = self.until.is_some_and(|until| now >= until);
            if over && measured_until.is_none() {
                measured_until = Some((now, thread_cpu()));
            }
            // Also what fell due just before the end, if this thread comes late.
            while let Some(interval) = interval
                && due <= now
                && self.until.is_none_or(|until| due < until)
            {
                self.fall_due(due, &mut net);
                due += interval;
            }
            // Also of a closed loop: a server that holds answers back must not be rid of them at
            // the end.
            let owed = self.under_way > 0 || !self.backlog.is_empty();
            let late = self.until.is_some_and(|until| now >= until + GRACE);
            if (over && (!owed || late)) || (self.left == Some(0) && self.under_way == 0) {
                break;
            }
            while (open || !over)
                && let Some((at, client)) = self.sick.front().copied().filter(|(at, _)| *at <= now)
            {
                self.sick.pop_front();
                self.recover(at, client, open, &mut net);
            }
            let mut wake = now + BUCKET;
            for at in
                [interval.filter(|_| !over).map(|_| due), self.sick.front().map(|s| s.0), self.until, Some(self.from)]
            {
                wake = at.filter(|at| *at > now).map_or(wake, |at| wake.min(at));
            }
            net.poll(wake.saturating_duration_since(Instant::now()), &mut |conn, at, tx, event| {
                self.event(conn, at, tx, event, open);
            });
        }
        let now = Instant::now();
        let (start, cpu) = cpu_at_start.unwrap_or((self.from, Duration::ZERO));
        let (end, cpu_end) = measured_until.unwrap_or((now, thread_cpu()));
        self.seen.window = end.saturating_duration_since(start);
        self.seen.cpu = cpu_end.saturating_sub(cpu);
        self.seen.gap = self.seen.gap.max(end.saturating_duration_since(self.last_good));
        self.charge_unanswered(now);
        self.seen.answered = self.done;
        self.seen.losses = std::mem::take(&mut net.losses);
        self.seen.lost = net.lost;
        (self.seen, self.source)
    }

    /// A call of the open loop is due: now if a client is free.
    fn fall_due(&mut self, at: Instant, net: &mut Net) {
        match self.free.pop() {
            Some(client) => self.begin(client, at, net.tx(client as usize % self.conns)),
            None => self.backlog.push_back(at),
        }
    }

    fn recover(&mut self, at: Instant, client: u32, open: bool, net: &mut Net) {
        let tx = net.tx(client as usize % self.conns);
        if !open {
            self.begin(client, at, tx);
        } else if let Some(since) = self.backlog.pop_front() {
            self.begin(client, since, tx);
        } else {
            self.free.push(client);
        }
    }

    fn begin(&mut self, client: u32, since: Instant, tx: &mut Tx) {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        self.request.clear();
        let rpc = self.source.next(client, &mut self.request);
        self.clients[client as usize] = Client { since: Some(since), bad: None };
        self.under_way += 1;
        let begin = Begin { rpc, tag: u64::from(client), open: false, keep: self.source.keep() };
        tx.start(begin, &self.request);
    }

    fn event(&mut self, _conn: usize, now: Instant, tx: &mut Tx, event: Event<'_>, open: bool) {
        match event {
            Event::Message { tag, bytes, len, .. } => {
                if self.in_window(now) {
                    self.seen.bytes += len as u64;
                }
                if let Err(what) = self.source.answer(tag as u32, bytes, len) {
                    self.clients[tag as usize].bad = Some(what);
                }
            }
            Event::End { tag, code, text } => {
                let client = tag as u32;
                let state = &mut self.clients[tag as usize];
                let since = state.since.take().expect("a call that was begun");
                let mut bad = state.bad.take();
                self.under_way -= 1;
                if code == 0 && bad.is_none() {
                    bad = self.source.complete(client).err();
                }
                self.source.ended(
                    client,
                    Ended {
                        good: code == 0 && bad.is_none(),
                        due: self.in_window(since).then(|| since - self.from),
                        at: now.saturating_duration_since(self.from),
                        us: ((now - since).as_micros() as u64).max(1),
                    },
                );
                if code != 0 || bad.is_some() {
                    self.failed(now, code, bad.unwrap_or(text));
                    self.sick.push_back((now + PENALTY, client));
                    return;
                }
                self.good(now, since, open);
                if self.until.is_some_and(|until| now >= until) && !open {
                    return;
                }
                if !open {
                    self.begin(client, now, tx);
                } else if let Some(since) = self.backlog.pop_front() {
                    self.begin(client, since, tx);
                } else {
                    self.free.push(client);
                }
            }
        }
    }

    fn in_window(&self, at: Instant) -> bool {
        at >= self.from && self.until.is_none_or(|until| at < until)
    }

    /// Whether a call that ended after the window was begun before its end.
    fn began_before_the_end(&self, since: Instant, now: Instant) -> bool {
        self.until.is_some_and(|until| since < until && now >= until)
    }

    fn good(&mut self, now: Instant, since: Instant, open: bool) {
        self.done += 1;
        if self.done.is_multiple_of(64) {
            self.live.done.fetch_add(64, Ordering::Relaxed);
        }
        let us = (now - since).as_micros() as u64;
        if self.in_window(now) {
            if now > self.last_good {
                self.seen.gap = self.seen.gap.max(now - self.last_good);
                self.last_good = now;
            }
            let bucket = self.bucket(now);
            bucket.done += 1;
            bucket.worst_us = bucket.worst_us.max(us);
        }
        // A closed loop counts what ended in the window, an open one what was due in it; both have
        // the latencies of what was under way at its end.
        let counted = self.in_window(if open { since } else { now });
        self.seen.done += u64::from(counted);
        if counted || self.began_before_the_end(since, now) {
            self.seen.latencies.saturating_record(us.max(1));
        }
    }

    fn failed(&mut self, now: Instant, code: u32, text: &str) {
        self.live.errors.fetch_add(1, Ordering::Relaxed);
        // A call counts once for the limit of calls, whether it went well or not.
        let name = match code {
            0 => format!("wrong answer: {text}"),
            _ => format!("code {code}: {text}"),
        };
        if self.seen.errors.len() < 20 || self.seen.errors.contains_key(&name) {
            *self.seen.errors.entry(name).or_default() += 1;
        } else {
            *self.seen.errors.entry("others".into()).or_default() += 1;
        }
        if self.in_window(now) {
            self.bucket(now).errors += 1;
        }
    }

    fn bucket(&mut self, now: Instant) -> &mut Bucket {
        let at = ((now - self.from).as_nanos() / BUCKET.as_nanos()) as usize;
        if self.seen.line.len() <= at {
            self.seen.line.resize(at + 1, Bucket::default());
        }
        &mut self.seen.line[at]
    }

    /// What was due and never answered waited at least until now; also what was due before the
    /// window.
    fn charge_unanswered(&mut self, now: Instant) {
        let waiting = self.clients.iter().filter_map(|client| client.since).chain(self.backlog.iter().copied());
        let owed: Vec<Instant> = waiting.filter(|since| self.until.is_none_or(|until| *since < until)).collect();
        for since in owed {
            self.seen.unanswered += 1;
            self.seen.latencies.saturating_record((now - since).as_micros() as u64);
        }
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Plant, serve};
    use crate::message;

    struct Puts(usize);

    impl Source for Puts {
        fn next(&mut self, _client: u32, out: &mut Vec<u8>) -> Rpc {
            message::put(out, b"key", &vec![1; self.0], 0);
            Rpc::Put
        }

        fn answer(&mut self, _client: u32, bytes: &[u8], len: usize) -> Result<(), &'static str> {
            let whole = bytes.len() == len || bytes.len() == self.keep();
            if whole && message::revision(bytes) == 7 { Ok(()) } else { Err("not what the server said") }
        }
    }

    fn plan(address: std::net::SocketAddr, clients: u32) -> Plan {
        Plan {
            dial: Dial { endpoints: vec![address], stream_window: 65_535 },
            clients,
            conns: 1,
            threads: 1,
            warm_up: Duration::ZERO,
            run: Duration::from_millis(900),
            rate: None,
            total: None,
        }
    }

    fn run(plan: &Plan, size: usize) -> Seen {
        drive(plan, vec![Puts(size)], &Live::default(), |_, _| ()).expect("a server").0
    }

    /// The point of an open loop: a server that sleeps for a third of the run makes a third of the
    /// calls late, while a closed loop of one client has just one call that was.
    #[test]
    fn a_sleep_of_the_server_shows_in_the_open_loop() {
        let plant = Plant { stall: Some((Duration::from_millis(200), Duration::from_millis(300))), ..Plant::default() };
        let closed = run(&plan(serve(plant.clone()).0, 1), 10);
        let open = run(&Plan { rate: Some(500.0), ..plan(serve(plant).0, 1) }, 10);
        let late = |seen: &Seen| {
            let late = seen.latencies.count_between(50_000, u64::from(u32::MAX));
            late as f64 / seen.latencies.len() as f64
        };
        assert_eq!(open.done + open.unanswered, 450, "every call that was due is accounted for");
        assert!((0.2..0.6).contains(&late(&open)), "{} of the calls waited", late(&open));
        assert!(late(&closed) < 0.05, "{} of the calls waited", late(&closed));
        assert!(closed.gap >= Duration::from_millis(290) && open.gap >= Duration::from_millis(290), "the gap itself");
    }

    /// One of four clients of a closed loop never gets its answer: the others are answered all the
    /// time.
    #[test]
    fn an_answer_that_never_comes_shows_in_the_closed_loop() {
        let plant = Plant { swallow: 5, ..Plant::default() };
        let seen = run(&Plan { run: Duration::from_millis(300), ..plan(serve(plant).0, 4) }, 10);
        assert_eq!((seen.unanswered, seen.errors_total()), (1, 0));
        assert!(seen.latencies.max() >= 200_000, "its wait counts: {} us", seen.latencies.max());
        assert_eq!(seen.latencies.len(), seen.done + 1 + 3, "and so do those under way at the end");
    }

    #[test]
    fn errors_are_counted_not_hidden() {
        let (address, count) = serve(Plant { fail_every: 5, ..Plant::default() });
        let seen = run(&Plan { total: Some(100), ..plan(address, 4) }, 10);
        assert_eq!((seen.done, seen.errors_total()), (80, 20));
        assert_eq!(seen.errors.keys().next().map(String::as_str), Some("code 14: "));
        assert_eq!(count.calls.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn lost_connections_are_made_again() {
        let (address, _) = serve(Plant { close_after: 10, ..Plant::default() });
        let seen = run(&Plan { total: Some(95), ..plan(address, 1) }, 10);
        assert_eq!(seen.done + seen.errors_total(), 95);
        assert!(seen.lost >= 8, "{} connections lost", seen.lost);
    }

    /// More than the windows of the connection and of a stream, several frames each way.
    #[test]
    fn large_messages_pass_both_ways() {
        let (address, count) = serve(Plant { answer: 150_000, ..Plant::default() });
        let seen = run(&Plan { total: Some(40), ..plan(address, 8) }, 200_000);
        assert_eq!((seen.done, seen.errors), (40, BTreeMap::new()));
        assert!(count.bytes.load(Ordering::Relaxed) > 40 * 200_000);
        assert!((60_000..=65_535).contains(&count.owed.load(Ordering::Relaxed)), "the windows are used and kept");
    }

    #[test]
    fn the_limit_of_streams_is_kept() {
        let (address, count) = serve(Plant { streams: 3, ..Plant::default() });
        // The settings must have come before the first calls for the limit to bind them.
        let seen = run(&Plan { rate: Some(2000.0), ..plan(address, 50) }, 10);
        assert_eq!((seen.errors_total(), seen.unanswered), (0, 0));
        assert_eq!(seen.done, 1800);
        assert!(count.at_once.load(Ordering::Relaxed) <= 100);
    }

    #[test]
    fn shares_are_fair_and_whole() {
        assert_eq!(share(10, 3).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!(share(2, 4).sum::<u64>(), 2);
    }
}
