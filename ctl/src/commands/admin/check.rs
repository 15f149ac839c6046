//! `check perf` and `check datascale`: is the cluster fit for a load?

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

use client::{Client, KeyRange, wire::etcdserverpb::RangeRequest};
use cobra::Flag;
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{each::single, memory};
use crate::{
    call::{Call, Command},
    commands::headings::UTILITY,
    exit::{BAD_FEATURE, ERROR, Failure, INVALID_INPUT, Outcome, error_text},
};

const AUTO_COMPACT: Flag = Flag::switch("auto-compact", "compact at the last revision when the test is over");
const AUTO_DEFRAG: Flag = Flag::switch("auto-defrag", "defragment when the test is over");
const LOAD: Flag = Flag::text("load", "s", "the load: s(small), m(medium), l(large), xl(xLarge)");

/// The row of the table.
pub const CHECK: Command = Command {
    name: "check",
    group: UTILITY,
    short: "Checks whether the cluster is fit for a load. See `check --help`",
    long: "Checks whether the cluster is fit for a load",
    subs: &[&[
        Command {
            name: "datascale",
            usage: "datascale [options]",
            short: "Shows how much memory a server needs for a load of data",
            long: "Shows how much memory a server needs for a load of data. The first endpoint is asked.",
            flags: &[
                AUTO_COMPACT,
                AUTO_DEFRAG,
                LOAD,
                Flag::text("prefix", "/etcdctl-check-datascale/", "how the keys that are written begin"),
            ],
            run: Some(datascale),
            ..Command::NONE
        },
        Command {
            name: "perf",
            usage: "perf [options]",
            short: "Shows whether the cluster keeps up with a load of writes",
            flags: &[
                AUTO_COMPACT,
                AUTO_DEFRAG,
                LOAD,
                Flag::text("prefix", "/etcdctl-check-perf/", "how the keys that are written begin"),
            ],
            run: Some(perf),
            ..Command::NONE
        },
    ]],
    ..Command::NONE
};

/// How long the load of `check perf` lasts.
const PERF_TIME: Duration = Duration::from_secs(60);
/// Size of a value.
const VALUE: usize = 1024;

/// One of four loads: {number, clients}; the number is of writes, in a second
/// or all in all.
fn load(call: &Call, loads: [(u64, u64); 4]) -> Outcome<(u64, u64)> {
    let text = call.text("load");
    let at = match text {
        "s" | "small" => 0,
        "m" | "medium" => 1,
        "l" | "large" => 2,
        "xl" | "xLarge" => 3,
        _ => return Err(Failure::new(BAD_FEATURE, format!("unknown load option {text}"))),
    };
    Ok(loads[at])
}

fn refuse_what_is_there(call: &Call, client: &Client, prefix: &str, quote: &str) -> Outcome {
    let request = RangeRequest { limit: 1, ..client::prefix(prefix.to_owned()).into() };
    if call.timed(client.range(request))?.kvs.is_empty() {
        return Ok(());
    }
    let name = cobra::quote(prefix);
    Err(Failure::new(
        INVALID_INPUT,
        format!("prefix {name} has keys. Delete with {quote}etcdctl del --prefix {prefix}{quote} first"),
    ))
}

/// What a run of writes gave.
#[derive(Debug, Default)]
struct Report {
    took: Vec<f64>,
    errors: BTreeMap<String, u64>,
    total: f64,
}

impl Report {
    fn rate(&self) -> f64 {
        self.took.len() as f64 / self.total
    }

    fn slowest(&self) -> f64 {
        self.took.iter().copied().fold(0.0, f64::max)
    }

    /// The standard deviation; not a number if there was nothing.
    fn deviation(&self) -> f64 {
        let count = self.took.len() as f64;
        let mean = self.took.iter().sum::<f64>() / count;
        (self.took.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / count).sqrt()
    }

    fn say_errors(&self) -> bool {
        if self.errors.is_empty() {
            return true;
        }
        println!("FAIL: too many errors");
        self.errors.iter().for_each(|(error, count)| println!("FAIL: ERROR({error}) -> {count}"));
        false
    }
}

/// `n` writers with connections of their own share the writes. At most
/// `per_second` begin in a second, 0 for as many as can be.
async fn write(clients: &[Client], prefix: &str, end: End, per_second: u64, bar: &Bar) -> Report {
    let begin = Instant::now();
    let next = std::cell::Cell::new(0_u64);
    let value = "a".repeat(VALUE);
    let pace = per_second.max(1) as f64;
    let one = |client: Client| {
        let (next, value) = (&next, &value);
        async move {
            let mut done: Vec<Result<f64, String>> = Vec::new();
            loop {
                let number = next.get();
                next.set(number + 1);
                let due = Duration::from_secs_f64(if per_second == 0 { 0.0 } else { number as f64 / pace });
                if end.reached(number, due.max(begin.elapsed())) {
                    return done;
                }
                tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
                let sent = Instant::now();
                let key = format!("{prefix}{number:016}");
                done.push(match client.put(key, value.clone()).await {
                    Ok(_) => Ok(sent.elapsed().as_secs_f64()),
                    Err(error) => Err(error_text(&error)),
                });
            }
        }
    };
    let writers: FuturesUnordered<_> = clients.iter().cloned().map(one).collect();
    let all = writers.collect::<Vec<_>>();
    tokio::pin!(all);
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let done = loop {
        tokio::select! {
            done = &mut all => break done,
            _ = tick.tick() => bar.show(end.progress(next.get(), begin.elapsed()), begin.elapsed()),
        }
    };
    let mut report = Report { total: begin.elapsed().as_secs_f64(), ..Report::default() };
    for one in done.into_iter().flatten() {
        match one {
            Ok(seconds) => report.took.push(seconds),
            Err(error) => *report.errors.entry(error).or_default() += 1,
        }
    }
    bar.finish(begin.elapsed());
    report
}

/// When the writers stop.
#[derive(Clone, Copy)]
enum End {
    Time(Duration),
    Count(u64),
}

impl End {
    fn reached(self, number: u64, elapsed: Duration) -> bool {
        match self {
            End::Time(time) => elapsed >= time,
            End::Count(count) => number >= count,
        }
    }

    fn progress(self, number: u64, elapsed: Duration) -> u64 {
        match self {
            End::Time(_) => elapsed.as_secs(),
            End::Count(_) => number,
        }
    }
}

/// A line on standard error that grows, if there is a terminal to see it.
struct Bar {
    total: u64,
    shown: bool,
}

impl Bar {
    fn new(total: u64) -> Bar {
        Bar { total, shown: std::io::stderr().is_terminal() }
    }

    fn show(&self, at: u64, elapsed: Duration) {
        if self.shown {
            eprint!("\r{}", bar(at.min(self.total), self.total, elapsed, width()));
            let _ = std::io::stderr().flush();
        }
    }

    fn finish(&self, elapsed: Duration) {
        self.show(self.total, elapsed);
        if self.shown {
            complain!("");
        }
    }
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map_or(80, |size| usize::from(size.ws_col)).clamp(40, 200)
}

fn bar(at: u64, total: u64, elapsed: Duration, width: usize) -> String {
    let share = at as f64 / total.max(1) as f64;
    let rate = if at == 0 { "?".to_owned() } else { format!("{:.0}", at as f64 / elapsed.as_secs_f64().max(0.001)) };
    let (head, tail) = (format!("{at} / {total} ["), format!("] {:.2}% {rate} p/s", share * 100.0));
    let room = width.saturating_sub(head.len() + tail.len() + 1);
    let filled = (share * room as f64) as usize;
    let arrow = if filled == 0 || filled == room { String::new() } else { ">".to_owned() };
    let dashes = "-".repeat(filled - arrow.len());
    format!("{head}{dashes}{arrow}{}{tail}", "_".repeat(room - filled))
}

fn clients(call: &Call, count: u64) -> Outcome<Vec<Client>> {
    (0..count).map(|_| call.client()).collect()
}

/// Takes away what was written; says so if it cannot.
fn clean_up(call: &Call, client: &Client, prefix: &str) -> Option<i64> {
    let range: KeyRange = client::prefix(prefix.to_owned());
    let deleted = call.block_on(client.with_request_timeout(None).delete(range));
    match deleted {
        Ok(response) => response.header.map(|h| h.revision),
        Err(error) => {
            println!("FAIL: Cleanup failed during key deletion: ERROR({})", error_text(&error));
            None
        }
    }
}

fn tidy(call: &Call, client: &Client, revision: Option<i64>) -> Outcome {
    if call.switch("auto-compact")
        && let Some(revision) = revision
    {
        println!("Compacting with revision {revision}");
        call.block_on(client.with_request_timeout(None).compact(revision))?;
        println!("Compacted with revision {revision}");
    }
    if call.switch("auto-defrag") {
        for endpoint in &client.options().endpoints {
            let name = cobra::quote(endpoint);
            println!("Defragmenting {name}");
            call.block_on(single(client, endpoint)?.with_request_timeout(None).defragment())?;
            println!("Defragmented {name}");
        }
    }
    Ok(())
}

fn perf(call: &Call) -> Outcome {
    let (per_second, writers) = load(call, [(150, 50), (1_000, 200), (8_000, 500), (15_000, 1_000)])?;
    let client = call.connect()?;
    let prefix = call.text("prefix");
    refuse_what_is_there(call, &client, prefix, "'")?;
    let clients = clients(call, writers)?;
    let bar = Bar::new(PERF_TIME.as_secs());
    let report = call.block_on(write(&clients, prefix, End::Time(PERF_TIME), per_second, &bar));
    let revision = clean_up(call, &client, prefix);
    tidy(call, &client, revision)?;
    if judge(&report, per_second) { Ok(()) } else { Err(Failure::Silent(ERROR)) }
}

/// Slower than this is too slow, in seconds.
const SLOW: f64 = 0.5;
/// More uneven than this is too uneven, in seconds.
const UNEVEN: f64 = 0.1;

fn judge(report: &Report, per_second: u64) -> bool {
    let mut well = report.say_errors();
    let rate = report.rate();
    if rate < 0.9 * per_second as f64 {
        well = false;
        println!("FAIL: Throughput too low: {} writes/s", rate as u64 + 1);
    } else {
        println!("PASS: Throughput is {} writes/s", rate as u64 + 1);
    }
    let slowest = report.slowest();
    if slowest > SLOW {
        well = false;
        println!("Slowest request took too long: {slowest:.6}s");
    } else {
        println!("PASS: Slowest request took {slowest:.6}s");
    }
    let deviation = report.deviation();
    if deviation > UNEVEN {
        well = false;
        println!("Stddev too high: {deviation:.6}s");
    } else {
        println!("PASS: Stddev is {deviation:.6}s");
    }
    println!("{}", if well { "PASS" } else { "FAIL" });
    well
}

fn datascale(call: &Call) -> Outcome {
    let (pairs, writers) = load(call, [(10_000, 50), (100_000, 200), (1_000_000, 500), (3_000_000, 1_000)])?;
    let client = call.connect()?;
    let prefix = call.text("prefix");
    refuse_what_is_there(call, &client, prefix, "")?;
    let clients = clients(call, writers)?;
    let endpoint = client.options().endpoints.first().cloned().unwrap_or_default();
    let before = memory::resident(call, &client, &endpoint)?;
    println!(
        "Start data scale check for work load [{pairs} key-value pairs, {VALUE} bytes per key-value, {writers} concurrent clients]."
    );
    let bar = Bar::new(pairs);
    let report = call.block_on(write(&clients, prefix, End::Count(pairs), 0, &bar));
    let after = memory::resident(call, &client, &endpoint)?;
    let revision = clean_up(call, &client, prefix);
    tidy(call, &client, revision)?;
    if !report.say_errors() {
        return Err(Failure::Silent(ERROR));
    }
    println!("PASS: Approximate system memory used : {:.2} MB.", (after - before) / 1_048_576.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_its_line() {
        let at = |at, seconds| bar(at, 60, Duration::from_secs(seconds), 40);
        assert_eq!(at(0, 0), "0 / 60 [__________________] 0.00% ? p/s");
        assert_eq!(at(30, 30), "30 / 60 [------->________] 50.00% 1 p/s");
        assert_eq!(at(60, 60), "60 / 60 [---------------] 100.00% 1 p/s");
    }

    #[test]
    fn deviation_is_of_the_whole() {
        let report = Report { took: vec![0.1, 0.3], total: 2.0, ..Report::default() };
        assert!((report.deviation() - 0.1).abs() < 1e-9);
        assert!((report.rate() - 1.0).abs() < 1e-9);
        assert!(Report::default().deviation().is_nan());
    }
}
