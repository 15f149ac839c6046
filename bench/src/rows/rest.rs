//! A server that has nothing to do.

use crate::args::Target;
use crate::failure::Failure;
use crate::report::Report;
use crate::run::{Progress, add_costs, finish};
use std::time::Instant;

/// # Errors
/// If a process is not there.
pub fn idle(target: &Target) -> Result<bool, Failure> {
    let watched = target.watched();
    if watched.pids.is_empty() {
        return Err("--pid is needed: what is measured is a process".into());
    }
    std::thread::sleep(target.warm_up);
    let begin = Instant::now();
    let before = watched.sample()?;
    let mut progress = Progress::new("idle", target.quiet);
    while let Some(left) = target.run.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::sleep(left.min(std::time::Duration::from_secs(1)));
        progress.say("waiting");
    }
    progress.clear();
    let mut report = Report {
        row: "idle".into(),
        what: "no load".into(),
        seconds: begin.elapsed().as_secs_f64(),
        ..Report::default()
    };
    add_costs(&mut report, &before, watched.sample());
    let cpu: f64 = report.servers.iter().map(|server| server.cpu_seconds).sum();
    let switches: u64 = report.servers.iter().map(|server| server.context_switches).sum();
    report.figures.insert("idle CPU ms per s".into(), cpu * 1e3 / report.seconds);
    report.figures.insert("idle switches per s".into(), switches as f64 / report.seconds);
    Ok(finish(target, &report))
}
