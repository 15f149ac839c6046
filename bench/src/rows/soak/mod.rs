//! Mixed load for long, at a fixed rate: does anything grow, become slower, get lost?
//!
//! [`mix`] draws the calls, [`expected`] holds every acknowledged write against what the watchers
//! are told, [`course`] samples the servers over the run. The store should be this run's alone
//! within the prefix; other prefixes do not matter.

mod course;
mod expected;
mod mix;

use super::keys::STAMP;
use super::unary;
use super::watchers::{Watch, Watchers};
use crate::args::{Load, Mixed};
use crate::call::Caller;
use crate::drive::{Live, Plan, drive};
use crate::failure::Failure;
use crate::report::Soak;
use crate::run::{Progress, Row, add_costs, finish, report_of};
use course::Course;
use expected::Expected;
use mix::{Mix, SLICES, Shared};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Calls a second that are due unless `--rate` says otherwise.
const RATE: f64 = 500.0;
/// Events and ends of leases that are owed at the end are waited for so long.
const OWED: Duration = Duration::from_secs(20);
/// Longest time between two compactions: that of kube-apiserver.
const COMPACT: Duration = Duration::from_secs(300);

/// Seconds that the leases live which are not renewed: shorter in a short run, so that they end in
/// it.
fn ttl(run: Duration) -> i64 {
    (run.as_secs() / 4).clamp(3, 10) as i64
}

/// # Errors
/// If the run cannot begin.
pub fn soak(load: &Load, args: &Mixed) -> Result<bool, Failure> {
    if load.value_size < STAMP {
        return Err(format!("--value-size must be at least {STAMP}: the value carries when it was sent").into());
    }
    if load.target.threads != 1 {
        return Err("soak runs on one thread: leave --threads out".into());
    }
    let load = Load { rate: load.rate.or(Some(RATE)), ..load.clone() };
    let every = args.compact_every.unwrap_or((load.target.run / 10).clamp(Duration::from_secs(2), COMPACT));
    let base = load.target.prefix.clone();
    let mut filled = load.clone();
    (filled.fill, filled.target.prefix) = (true, format!("{base}keys/"));
    unary::prepare(&filled)?;
    let shared = Arc::new(Mutex::new(Shared::default()));
    let plan = load.plan()?;
    let mix = Mix::new(&load, every, ttl(load.target.run), Arc::clone(&shared));
    mix.grant_renewed(&load)?;
    let live = Arc::new(Live::default());
    crate::stop::on_interrupt(&live)?;
    run(&load, args.watchers, every, &plan, mix, &shared, &live)
}

fn run(
    load: &Load,
    count: u64,
    every: Duration,
    plan: &Plan,
    mix: Mix,
    shared: &Mutex<Shared>,
    live: &Live,
) -> Result<bool, Failure> {
    let watched = load.target.watched();
    // All from one revision: "from now on" is earlier at a follower that still applies the fill.
    let from_revision = Caller::connect(load.target.dial()?)?.revision()? + 1;
    let watch = Watch { prefix: &load.target.prefix, count, conns: count.clamp(1, 10) as usize, from_revision };
    let mut watchers = Watchers::open(load.target.dial()?, &watch)?;
    watchers.told.heard = Some(Vec::new());
    let mut expected = Expected::new(count, mix.ttl());
    let mut progress = Progress::new("soak", load.target.quiet);
    let (seen, mut sources, (course, before, after)) = drive(plan, vec![mix], live, |from, until| {
        let until = until.expect("a run of a fixed time");
        let mut course = Course::new(&watched, from, plan.run / SLICES);
        let mut before = None;
        while Instant::now() < until && !live.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if before.is_none() && now >= from {
                watchers.told.count_from = Some(from);
                before = Some(watched.sample());
            }
            let wake = course.next().max(now + Duration::from_millis(5)).min(now + Duration::from_millis(250));
            watchers.pump(wake.min(until), |_| false);
            expected.take(shared, &mut watchers.told);
            if course.is_due() {
                course.sample(shared);
                progress.show(live);
            }
        }
        course.sample(shared);
        (course, before, watched.sample())
    })?;
    let begin = Instant::now();
    let patience = if live.stop.load(Ordering::Relaxed) { OWED / 4 } else { OWED };
    while begin.elapsed() < patience && !expected.is_settled() {
        watchers.pump(Instant::now() + Duration::from_millis(100), |_| false);
        expected.take(shared, &mut watchers.told);
    }
    progress.clear();
    let mix = sources.pop().expect("one source");
    let what = format!(
        "puts, swaps, gets, pages, leases over {} keys of {} B; {count} watchers; compaction each {} s",
        load.keys,
        load.value_size,
        every.as_secs()
    );
    let mut report = report_of(&Row { name: "soak", what, target: &load.target }, plan, seen);
    // A day of tenths of seconds is more than anybody reads: the points are the course of this run.
    report.line_tenths = Vec::new();
    if let Some(Ok(before)) = before {
        add_costs(&mut report, &before, after);
    }
    let figures = &mut report.figures;
    mix.figures(figures, Duration::from_secs_f64(report.seconds));
    course.figures(figures, mix.slices());
    expected.figures(figures);
    figures.insert("failed calls".into(), report.errors_total as f64);
    for (what, count) in expected.errors() {
        *report.errors.entry(what).or_default() += count;
    }
    super::watch::add_lag(&mut report, &watchers);
    let interrupted = live.stop.load(Ordering::Relaxed);
    if interrupted {
        report.remarks.push(format!("interrupted after {:.0} of {:.0} s", report.seconds, plan.run.as_secs_f64()));
    }
    if report.seconds < 3600.0 {
        report.remarks.push("growth per hour is extrapolated from less than an hour".into());
    }
    report.remarks.extend(course.remark());
    report.soak = Some(Soak { kinds: mix.latencies(), points: course.points(mix.slices()), interrupted });
    Ok(finish(&load.target, &report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_have_short_leases() {
        for (seconds, expected) in [(1, 3), (20, 5), (86_400, 10)] {
            assert_eq!(ttl(Duration::from_secs(seconds)), expected);
        }
    }
}
