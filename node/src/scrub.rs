//! The slow look at what lies still (`disk::scrub`): a step now and then, when the background has
//! nothing else to do, so that a whole pass takes about as long as the configuration says.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use disk::scrub::{Finding, Scrub, Step};
use std::collections::BTreeSet;

/// Bytes read in one step.
const STEP: u64 = 1 << 20;
/// The first pass begins so long after the start, or after a tenth of its time if that is less.
/// Ticks.
const FIRST: u64 = 60_000 / TICK_MS;
/// Between two steps at least. Ticks.
const PAUSE: u64 = 100 / TICK_MS;
/// A step that the disk refused is tried again after this, so often; then the file is passed over.
/// Ticks.
const AGAIN: u64 = 1_000 / TICK_MS;
const TRIES: u32 = 5;
/// A pass is hurried so seldom. Ticks.
const HURRIED: u64 = 60_000 / TICK_MS;
/// Damage that is remembered, so that no pass tells of it again.
const TOLD: usize = 1_000;

#[derive(Default)]
pub(crate) struct Scrubs {
    /// The look under way, while none of its steps is.
    scan: Option<Box<Scrub>>,
    /// One of its steps is.
    reading: bool,
    /// Ticks: of the next step, and of the beginning of the pass.
    due: Option<u64>,
    begun: u64,
    tries: u32,
    /// The pass under way does not take its time. When that was last asked for, a tick.
    hurries: bool,
    hurried: Option<u64>,
    /// Bytes read in this pass, and in the one before.
    read: u64,
    pass: Option<u64>,
    figures: ScrubFigures,
    /// Damage that was told of.
    told: BTreeSet<String>,
    /// The tick at which the last pass ended.
    ended: Option<u64>,
}

impl Scrubs {
    pub(crate) fn figures(&self, now: u64) -> ScrubFigures {
        ScrubFigures { age: self.ended.map(|ended| (now - ended) * TICK_MS / 1_000), ..self.figures }
    }

    /// `bytes`: of what a pass reads, about.
    pub(crate) fn tick(&mut self, g: &mut Ground, bytes: u64) {
        let period = g.config.scrub_seconds * 1_000 / TICK_MS;
        if period == 0 {
            return;
        }
        let due = *self.due.get_or_insert(FIRST.min(period / 10));
        if self.reading || g.now < due || g.swapping() || !g.background_rests() {
            return;
        }
        let scan = self.scan.take().unwrap_or_else(|| {
            self.begun = g.now;
            Box::new(Scrub::all())
        });
        self.reading = true;
        // What the last pass read. Before that: two checkpoints keep about so much log.
        let bytes = self.pass.unwrap_or(bytes + 2 * g.config.checkpoint_bytes).max(bytes);
        let pause = if self.hurries { PAUSE } else { period / (bytes / STEP + 1) };
        self.due = Some(g.now + pause.clamp(PAUSE, period));
        g.start(Task::Scrub { epoch: g.epoch() }, BackgroundJob::Scrub { scan, bytes: STEP });
    }

    /// What a step found.
    pub(crate) fn done(
        &mut self,
        g: &mut Ground,
        epoch: u64,
        mut scan: Box<Scrub>,
        step: Result<Step, disk::Fault>,
    ) -> Vec<Finding> {
        if epoch != g.epoch() {
            return Vec::new();
        }
        self.reading = false;
        match step {
            Ok(step) => {
                self.tries = 0;
                self.figures.read += step.read;
                self.read += step.read;
                if step.done {
                    self.hurries = false;
                    self.pass = Some(std::mem::take(&mut self.read));
                    self.figures.passes += 1;
                    self.ended = Some(g.now);
                    let period = g.config.scrub_seconds * 1_000 / TICK_MS;
                    self.due = self.due.max(Some(self.begun + period));
                } else {
                    self.scan = Some(scan);
                }
                step.found
            }
            Err(fault) => {
                self.tries += 1;
                self.due = Some(g.now + AGAIN);
                if self.tries >= TRIES {
                    self.tries = 0;
                    scan.pass_over();
                    let unreadable = Finding::Unreadable(fault);
                    self.scan = Some(scan);
                    return vec![unreadable];
                }
                self.scan = Some(scan);
                Vec::new()
            }
        }
    }

    /// Another member found damage in what this one sent: the next pass begins now, and does not
    /// take its time.
    pub(crate) fn hurry(&mut self, g: &Ground) {
        if g.config.scrub_seconds == 0 || self.hurried.is_some_and(|at| g.now - at < HURRIED) {
            return;
        }
        self.hurried = Some(g.now);
        self.hurries = true;
        self.scan = None;
        self.due = Some(g.now);
    }

    /// Damage outside of segments. True: it is not known yet.
    pub(crate) fn is_news(&mut self, fault: &disk::Fault) -> bool {
        if self.told.len() >= TOLD {
            self.told.clear();
        }
        let news = self.told.insert(fault.to_string());
        self.figures.found += u64::from(news);
        news
    }

    /// Another state took the place of the one that was looked at.
    pub(crate) fn restart(&mut self) {
        (self.scan, self.reading, self.tries, self.read) = (None, false, 0, 0);
    }
}
