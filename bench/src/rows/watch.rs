//! Watch rows: fan-out, slow readers, watchers that resume far back, watches that rest.

use super::keys::STAMP;
use super::unary::{Puts, history as write_history};
use super::watchers::{Watch, Watchers, Within};
use crate::args::Load;
use crate::call::Caller;
use crate::drive::{Live, drive};
use crate::failure::Failure;
use crate::report::{Latency, Report};
use crate::run::{Progress, Row, add_costs, finish, report_of};
use std::time::{Duration, Instant};

/// How long events that are still owed are waited for.
pub const OWED: Duration = Duration::from_secs(20);

/// Watchers of one prefix and puts into it.
#[derive(Clone, Copy, Debug)]
pub struct FanOut {
    pub watchers: u64,
    pub conns: usize,
    /// Further watchers, which read nothing.
    pub slow: u64,
}

/// # Errors
/// If the run cannot begin.
pub fn fan_out(load: &Load, fan: FanOut) -> Result<bool, Failure> {
    if load.value_size < STAMP {
        return Err(format!("--value-size must be at least {STAMP}: the value carries when it was sent").into());
    }
    let watched = load.target.watched();
    let unwatched = watched.sample()?;
    let prefix = load.target.prefix.as_str();
    // All from one revision: "from now on" is earlier at a follower that is still behind.
    let from_revision = Caller::connect(load.target.dial()?)?.revision()? + 1;
    let watch = Watch { prefix, count: fan.watchers, conns: fan.conns, from_revision };
    let mut watchers = Watchers::open(load.target.dial()?, &watch)?;
    let mut slow = slow_watchers(load, fan.slow)?;
    let grown = watched.sample()?.anonymous() - unwatched.anonymous();
    let plan = load.plan()?;
    let sources: Vec<Puts> = (0..plan.threads).map(|thread| Puts::new(load, thread)).collect();
    let live = Live::default();
    let mut progress = Progress::new("watch", load.target.quiet);
    let (seen, _, within) = drive(&plan, sources, &live, |from, until| {
        let until = until.expect("a run of a fixed time");
        watchers.within(from, until, &watched, || {
            slow.iter_mut().for_each(|slow| slow.pump(Instant::now() + Duration::from_millis(1), |_| false));
            progress.show(&live);
        })
    })?;
    let missing = watchers.settle(seen.answered, OWED);
    progress.clear();
    let what = format!(
        "{} watchers on {} connections, {} slow ones, of one prefix; puts of {} B into it",
        fan.watchers, fan.conns, fan.slow, load.value_size
    );
    let mut report = report_of(&Row { name: "watch", what, target: &load.target }, &plan, seen);
    report.figures.insert("kB a watcher".into(), grown / 1e3 / (fan.watchers + fan.slow).max(1) as f64);
    add_watchers(&mut report, &watchers, within, missing);
    Ok(finish(&load.target, &report))
}

/// Adds what the window cost, how late watchers were told, and what was wrong with it.
pub fn add_watchers(report: &mut Report, watchers: &Watchers, within: Within, missing: u64) {
    match within.before {
        Ok(before) => add_costs(report, &before, within.after),
        Err(error) => report.remarks.push(error.to_string()),
    }
    if missing > 0 {
        report.errors.insert("events that a watcher was not told".into(), missing);
    }
    report.figures.insert("watchers' thread CPUs".into(), within.cpus);
    if within.cpus > 0.95 {
        report.remarks.push("the thread of the watchers is the limit: the lag is its own".into());
    }
    add_lag(report, watchers);
}

/// Adds how late watchers were told, and what was wrong with it.
pub fn add_lag(report: &mut Report, watchers: &Watchers) {
    let told = &watchers.told;
    let lag = Latency::of(&told.lag);
    let cpu: f64 = report.servers.iter().map(|server| server.cpu_seconds).sum();
    for (name, us) in [
        ("lag p50 ms", lag.p50_us),
        ("lag p99 ms", lag.p99_us),
        ("lag p99.9 ms", lag.p999_us),
        ("lag max ms", lag.max_us),
    ] {
        report.figures.insert(name.into(), us as f64 / 1e3);
    }
    report.lag = Some(lag);
    report.figures.insert("events/s".into(), told.in_window as f64 / report.seconds.max(1e-9));
    if cpu > 0.0 {
        report.figures.insert("events/server CPU/s".into(), told.in_window as f64 / cpu);
    }
    for (what, count) in &told.errors {
        *report.errors.entry(what.clone()).or_default() += count;
    }
    report.errors_total = report.errors.values().sum();
}

/// Watchers with the smallest window, each on a connection with nine others, that read nothing.
fn slow_watchers(load: &Load, count: u64) -> Result<Option<Watchers>, Failure> {
    if count == 0 {
        return Ok(None);
    }
    let mut dial = load.target.dial()?;
    dial.stream_window = 65_535;
    let conns = (count as usize).div_ceil(10);
    let watch = Watch { prefix: &load.target.prefix, count, conns, from_revision: 0 };
    let mut slow = Watchers::open(dial, &watch)?;
    slow.stop_reading();
    Ok(Some(slow))
}

/// Watchers that begin far back, while puts go on elsewhere.
///
/// # Errors
/// If the run cannot begin.
pub fn resume(load: &Load, fan: FanOut, history: u64) -> Result<bool, Failure> {
    let mut caller = Caller::connect(load.target.dial()?)?;
    let first = caller.revision()? + 1;
    write_history(load, history)?;
    // The puts that go on are into another prefix: what the watchers get is history alone.
    let mut beside = load.clone();
    beside.target.prefix = "/beside/".into();
    let plan = beside.plan()?;
    let sources: Vec<Puts> = (0..plan.threads).map(|thread| Puts::new(&beside, thread)).collect();
    let watched = load.target.watched();
    let live = Live::default();
    let watch = Watch { prefix: &load.target.prefix, count: fan.watchers, conns: fan.conns, from_revision: first };
    let (seen, _, outcome) = drive(&plan, sources, &live, |from, until| {
        std::thread::sleep(from.saturating_duration_since(Instant::now()));
        let before = watched.sample();
        let begin = Instant::now();
        let mut watchers = Watchers::open(load.target.dial()?, &watch)?;
        let until = until.expect("a run of a fixed time");
        watchers.pump(until, |told| told.puts >= history * fan.watchers);
        let took = watchers.told.last_event.map_or(0.0, |last| (last - begin).as_secs_f64());
        let in_step = watched.sample();
        // The calls are counted to the end of the window, and so must be what they cost.
        watchers.pump(until, |_| false);
        Ok::<_, Failure>((before?, in_step?, watched.sample(), watchers, took))
    })?;
    let (before, in_step, after, watchers, took) = outcome?;
    let what = format!("{} watchers resume {history} revisions back; puts go on in another prefix", fan.watchers);
    let mut report = report_of(&Row { name: "resume", what, target: &load.target }, &plan, seen);
    add_costs(&mut report, &before, after);
    let told = &watchers.told;
    report.figures.insert("in step s".into(), took);
    report.figures.insert("history events/s".into(), told.puts as f64 / took.max(1e-9));
    report.figures.insert("server CPU s".into(), in_step.cpu() - before.cpu());
    report.errors.extend(told.errors.clone());
    if told.puts < history * fan.watchers {
        report.errors.insert("events that did not come in time".into(), history * fan.watchers - told.puts);
    }
    report.errors_total = report.errors.values().sum();
    Ok(finish(&load.target, &report))
}

/// Watches that rest: what they cost in memory.
///
/// # Errors
/// If the run cannot begin.
pub fn resting(load: &Load, fan: FanOut) -> Result<bool, Failure> {
    let watched = load.target.watched();
    let before = watched.sample()?;
    let prefix = load.target.prefix.as_str();
    let begin = Instant::now();
    let watch = Watch { prefix, count: fan.watchers, conns: fan.conns, from_revision: 0 };
    let mut watchers = Watchers::open(load.target.dial()?, &watch)?;
    let opened = begin.elapsed();
    let rested = watched.sample()?;
    watchers.pump(Instant::now() + load.target.run, |_| false);
    let mut report = Report {
        row: "rest".into(),
        what: format!("{} watches on {} connections, nothing written", fan.watchers, fan.conns),
        connections: fan.conns as u64,
        seconds: load.target.run.as_secs_f64(),
        errors: watchers.told.errors.clone(),
        ..Report::default()
    };
    report.errors_total = report.errors.values().sum();
    let rested_since = watched.sample()?;
    let grown = rested_since.anonymous() - before.anonymous();
    add_costs(&mut report, &rested, Ok(rested_since));
    report.figures.insert("kB a watch".into(), grown / 1e3 / fan.watchers.max(1) as f64);
    report.figures.insert("opened in s".into(), opened.as_secs_f64());
    Ok(finish(&load.target, &report))
}
