//! Many seeds: progress, determinism checks, summary; and the planted bugs.

use crate::marks::{ALL, Marks};
use crate::plan::Plan;
use crate::planted::{BANK, Entry};
use crate::run::{Verdict, run_plan};
use crate::sights::{Sight, Sights};
use crate::trace::Mode;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One seed in so many is run twice: both must give the same trace.
pub const TWICE: u64 = 100;
/// Seeds within which every planted bug must be found.
pub const PLANTED_BUDGET: u64 = 300;

/// Which sights are on.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub sights: Sights,
    /// In every seed, not in their share of them.
    pub always: Vec<Sight>,
}

impl Choice {
    pub fn plan(&self, seed: u64) -> Plan {
        Plan::with(seed, self.sights.clone(), self.always.clone())
    }
}

#[derive(Debug, Default)]
pub struct Summary {
    pub seeds: u64,
    /// Virtual microseconds, all seeds.
    pub simulated: u64,
    pub operations: u64,
    pub entries: u64,
    pub events: u64,
    pub faults: BTreeMap<&'static str, u64>,
    pub marks: Marks,
    /// What was measured.
    pub stats: BTreeMap<&'static str, u64>,
    pub twice: u64,
    /// Failing seeds with the check's name and what it saw.
    pub failures: Vec<(u64, &'static str, String)>,
    pub seconds: f64,
}

impl Summary {
    fn add(&mut self, verdict: &Verdict) {
        self.seeds += 1;
        self.simulated += verdict.simulated;
        self.operations += verdict.operations;
        self.entries += verdict.entries;
        self.events += verdict.events;
        for (kind, n) in &verdict.faults {
            *self.faults.entry(kind).or_default() += n;
        }
        for (what, n) in &verdict.stats {
            *self.stats.entry(what).or_default() += n;
        }
        self.marks.add(&verdict.marks);
        if let Some(failure) = verdict.failures.first() {
            self.failures.push((verdict.seed, failure.oracle, failure.text.clone()));
        }
    }

    /// The summary as people read it.
    pub fn print(&self, to: &mut dyn std::io::Write) -> std::io::Result<()> {
        let hours = self.simulated as f64 / 3.6e9;
        writeln!(
            to,
            "seeds {}   cluster-hours {hours:.2}   operations {}   log entries {}   events {}",
            self.seeds, self.operations, self.entries, self.events
        )?;
        writeln!(
            to,
            "speed {:.2} cluster-hours a minute, {:.0}x real time, {:.1} seeds/s, {:.0} s; run twice and equal: {}",
            hours * 60.0 / self.seconds,
            self.simulated as f64 / 1e6 / self.seconds,
            self.seeds as f64 / self.seconds,
            self.seconds,
            self.twice
        )?;
        for (what, n) in &self.stats {
            writeln!(to, "{what}: {n}")?;
        }
        writeln!(to, "faults:")?;
        for (kind, n) in &self.faults {
            writeln!(to, "  {n:>8}  {kind}")?;
        }
        writeln!(to, "sometimes:")?;
        for mark in ALL {
            let n = self.marks.0.get(mark).copied().unwrap_or(0);
            writeln!(to, "  {n:>8}  {mark}{}", if n == 0 { "   <- never" } else { "" })?;
        }
        let mut failures = self.failures.clone();
        failures.sort();
        for (seed, oracle, text) in &failures {
            writeln!(to, "seed {seed}: {oracle}: {text}")?;
        }
        writeln!(to, "{} of {} seeds failed", failures.len(), self.seeds)
    }
}

/// Runs a seed; every hundredth twice.
pub fn check(seed: u64, choice: &Choice) -> (Verdict, bool) {
    let run = || run_plan(choice.plan(seed), None, Mode::Hash);
    let mut verdict = run();
    let twice = seed.is_multiple_of(TWICE);
    if twice {
        let again = run();
        if again.hash != verdict.hash {
            let text = format!("two runs differ: {:016x} and {:016x}", verdict.hash, again.hash);
            verdict.failures.push(crate::oracle::Failure { at: verdict.simulated, oracle: "determinism", text });
        }
    }
    (verdict, twice)
}

/// Runs `seeds` on `jobs` threads. `progress`: a line on stderr now and then.
pub fn campaign(seeds: Range<u64>, jobs: usize, progress: bool, choice: &Choice) -> Summary {
    let started = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let summary = Mutex::new(Summary::default());
    let total = seeds.end - seeds.start;
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let (verdict, twice) = check(seed, choice);
                    let mut summary = summary.lock().expect("no thread panics with it");
                    summary.add(&verdict);
                    summary.twice += u64::from(twice);
                    if progress {
                        show_progress(&summary, total, started, &verdict);
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().expect("all threads are done");
    summary.seconds = started.elapsed().as_secs_f64().max(0.001);
    summary.failures.sort();
    summary
}

fn show_progress(summary: &Summary, total: u64, started: Instant, verdict: &Verdict) {
    let mut err = std::io::stderr();
    if let Some(failure) = verdict.failures.first() {
        let first = failure.text.lines().next().unwrap_or_default();
        let short: String = first.chars().take(160).collect();
        let _ = writeln!(err, "\rseed {} ({} members): {}: {short}", verdict.seed, verdict.members, failure.oracle);
    }
    if summary.seeds.is_multiple_of(20) || summary.seeds == total {
        let hours = summary.simulated as f64 / 3.6e9;
        let _ = write!(
            err,
            "\r{}/{total} seeds, {hours:.1} cluster-hours, {} failed, {:.0} s ",
            summary.seeds,
            summary.failures.len(),
            started.elapsed().as_secs_f64()
        );
        if summary.seeds == total {
            let _ = writeln!(err);
        }
    }
}

/// How a planted bug fared.
#[derive(Debug)]
pub struct Hunt {
    pub entry: &'static Entry,
    /// Seed and check of the first finding.
    pub found: Option<(u64, &'static str, String)>,
}

impl Hunt {
    /// Found, and by a check that is meant to find it.
    pub fn good(&self) -> bool {
        self.found.as_ref().is_some_and(|(_, oracle, _)| self.entry.found_by.contains(oracle))
    }
}

/// Hunts one planted bug through at most `budget` seeds.
pub fn hunt(entry: &'static Entry, budget: u64) -> Hunt {
    for seed in 1..=budget {
        let plan = Plan::with(seed, Sights::default(), entry.bug.sights().to_vec());
        let verdict = run_plan(plan, Some(entry.bug), Mode::Hash);
        if let Some(failure) = verdict.failures.first() {
            return Hunt { entry, found: Some((seed, failure.oracle, failure.text.clone())) };
        }
    }
    Hunt { entry, found: None }
}

/// Hunts every planted bug on `jobs` threads; in the order of the bank.
pub fn hunt_all(jobs: usize, budget: u64) -> Vec<Hunt> {
    let next = AtomicU64::new(0);
    let hunts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(entry) = BANK.get(at) else { return };
                    let hunt = hunt(entry, budget);
                    hunts.lock().expect("no thread panics with it").insert(at, hunt);
                }
            });
        }
    });
    hunts.into_inner().expect("all threads are done").into_values().collect()
}
