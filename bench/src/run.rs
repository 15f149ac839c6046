//! One measured run: the load, the costs of the servers at both ends of its window, a progress
//! line, and the report.

use crate::args::Target;
use crate::cost::{Sample, Watched};
use crate::drive::{Live, Plan, Source, drive};
use crate::failure::Failure;
use crate::report::Report;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a run is called.
#[derive(Debug)]
pub struct Row<'a> {
    pub name: &'a str,
    pub what: String,
    pub target: &'a Target,
}

/// Drives the plan and prints the report; whether all went well.
///
/// # Errors
/// If the run cannot begin.
pub fn measured<S: Source>(row: &Row<'_>, plan: &Plan, sources: Vec<S>) -> Result<bool, Failure> {
    measured_with(row, plan, sources, |_, _| ())
}

/// The same; `add` may put figures of the row's own into the report.
///
/// # Errors
/// If the run cannot begin.
pub fn measured_with<S: Source>(
    row: &Row<'_>,
    plan: &Plan,
    sources: Vec<S>,
    add: impl FnOnce(&mut Report, Vec<S>),
) -> Result<bool, Failure> {
    let watched = row.target.watched();
    watched.sample()?;
    let live = Live::default();
    let mut progress = Progress::new(row.name, row.target.quiet);
    let (seen, sources, samples) =
        drive(plan, sources, &live, |from, until| watch(&watched, from, until, || progress.show(&live)))?;
    progress.clear();
    let mut report = report_of(row, plan, seen);
    let (samples, resident) = samples;
    report.rss_line = resident;
    match samples {
        // A run that ends by count has no end known before: the second sample is now.
        (Ok(before), None) => add_costs(&mut report, &before, watched.sample()),
        (Ok(before), Some(after)) => add_costs(&mut report, &before, after),
        (Err(error), _) => report.remarks.push(error.to_string()),
    }
    add(&mut report, sources);
    Ok(finish(row.target, &report))
}

/// The report without costs.
pub fn report_of(row: &Row<'_>, plan: &Plan, seen: crate::drive::Seen) -> Report {
    let mut report = Report::of(row.name, row.what.clone(), seen);
    report.clients = u64::from(plan.clients);
    report.connections = plan.conns as u64;
    report.threads = plan.threads as u64;
    report.open_loop_rate = plan.rate;
    report
}

/// Puts the difference of two samples into the report, or why there is none.
pub fn add_costs(report: &mut Report, before: &Sample, after: Result<Sample, Failure>) {
    match after {
        Ok(after) => report.costs(after.since(before)),
        Err(error) => report.remarks.push(error.to_string()),
    }
}

/// Prints the report; whether nothing failed.
pub fn finish(target: &Target, report: &Report) -> bool {
    if target.json {
        println!("{}", serde_json::to_string(report).expect("a report is JSON"));
    } else {
        print!("{}", report.table());
    }
    report.errors_total == 0 && report.unanswered == 0
}

type Samples = (Result<Sample, Failure>, Option<Result<Sample, Failure>>);

/// Takes the samples at both ends of the window, and the resident memory once a second within it;
/// `tick` is called as often.
fn watch(watched: &Watched, from: Instant, until: Option<Instant>, mut tick: impl FnMut()) -> (Samples, Vec<u64>) {
    wait(from, &mut tick);
    let before = watched.sample();
    let mut resident = Vec::new();
    let after = until.map(|until| {
        wait(until, &mut || {
            resident.push(watched.resident());
            tick();
        });
        watched.sample()
    });
    ((before, after), resident)
}

fn wait(until: Instant, tick: &mut impl FnMut()) {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_secs(1)));
        tick();
    }
}

/// One line that is written over on a terminal; every ten seconds a line elsewhere.
#[derive(Debug)]
pub struct Progress {
    name: String,
    since: Instant,
    last: (Instant, u64),
    terminal: bool,
    quiet: bool,
    said: Instant,
}

impl Progress {
    pub fn new(name: &str, quiet: bool) -> Progress {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Progress { name: name.to_owned(), since: now, last: (now, 0), terminal, quiet, said: now }
    }

    pub fn show(&mut self, live: &Live) {
        let (now, done) = (Instant::now(), live.done.load(Ordering::Relaxed));
        let rate = (done - self.last.1) as f64 / (now - self.last.0).as_secs_f64().max(1e-3);
        self.last = (now, done);
        let errors = live.errors.load(Ordering::Relaxed);
        self.say(&format!("{rate:.0}/s, {done} done, {errors} errors"));
    }

    /// Says how far it is, in words of the row's own.
    pub fn say(&mut self, text: &str) {
        let elapsed = self.since.elapsed().as_secs();
        if self.quiet {
        } else if self.terminal {
            eprint!("\r\x1b[K{} {elapsed} s: {text}", self.name);
            let _ = std::io::stderr().flush();
        } else if self.said.elapsed() >= Duration::from_secs(10) {
            self.said = Instant::now();
            eprintln!("{} {elapsed} s: {text}", self.name);
        }
    }

    pub fn clear(&self) {
        if self.terminal && !self.quiet {
            eprint!("\r\x1b[K");
        }
    }
}
