//! A compaction under load: half of the time without, then it, then half of the time with what it
//! leaves to do.

use super::unary::{Puts, history};
use crate::args::Load;
use crate::call::Caller;
use crate::drive::{Live, drive};
use crate::failure::Failure;
use crate::message;
use crate::report::Latency;
use crate::run::{Row, add_costs, finish, report_of};
use std::time::Instant;
use wire::Rpc;

/// # Errors
/// If the run cannot begin.
pub fn compact(load: &Load, revisions: u64) -> Result<bool, Failure> {
    history(load, revisions)?;
    let plan = load.plan()?;
    let watched = load.target.watched();
    let mut caller = Caller::connect(load.target.dial()?)?;
    let puts = |_: &()| (0..plan.threads).map(|thread| Puts::new(load, thread)).collect::<Vec<_>>();
    let (calm, ..) = drive(&plan, puts(&()), &Live::default(), |_, _| ())?;
    let calm_errors = calm.errors_total();
    let calm = Latency::of(&calm.latencies);

    let (seen, _, outcome) = drive(&plan, puts(&()), &Live::default(), |from, until| {
        std::thread::sleep(from.saturating_duration_since(Instant::now()));
        let before = watched.sample()?;
        let revision = caller.revision()?;
        let logical = compact_call(&mut caller, revision - 1, false)?;
        let physical = compact_call(&mut caller, revision, true)?;
        let until = until.expect("a run of a fixed time");
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok::<_, Failure>((before, watched.sample(), logical, physical))
    })?;
    let (before, after, logical, physical) = outcome?;
    let what = format!("puts of {} B while {revisions} revisions are compacted", load.value_size);
    let mut report = report_of(&Row { name: "compact", what, target: &load.target }, &plan, seen);
    add_costs(&mut report, &before, after);
    for (name, value) in [
        ("compact call ms", logical),
        ("compact physical ms", physical),
        ("calm p50 ms", calm.p50_us as f64 / 1e3),
        ("calm p99 ms", calm.p99_us as f64 / 1e3),
        ("calm max ms", calm.max_us as f64 / 1e3),
        ("p99 times calm", report.latency.p99_us as f64 / calm.p99_us.max(1) as f64),
    ] {
        report.figures.insert(name.into(), value);
    }
    if calm_errors > 0 {
        report.errors.insert("before the compaction".into(), calm_errors);
        report.errors_total += calm_errors;
    }
    Ok(finish(&load.target, &report))
}

/// Milliseconds that the call took.
fn compact_call(caller: &mut Caller, revision: i64, physical: bool) -> Result<f64, Failure> {
    let mut request = Vec::new();
    message::number(&mut request, 1, revision);
    message::number(&mut request, 2, i64::from(physical));
    let since = Instant::now();
    caller.ask(Rpc::Compact, &request)?;
    Ok(since.elapsed().as_secs_f64() * 1e3)
}
