//! Room on the disk: jobs that wait for it, and the reserve that is kept back.
//!
//! A lane whose first job finds no room waits with it, and everything behind it waits too: also the
//! checkpoint that would let dead files go. So a part of the disk is kept back (`disk`'s
//! `Reserve`). The log gives its part up by itself, as deletes must get through. The state's part
//! is given up once so much is dead that more comes back than it costs; before that it would be
//! filled with what nothing frees. Until the reserve stands again this member counts as full.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use std::collections::BTreeSet;

/// Ticks between two tries to make the reserve, and between two looks whether giving it up is worth
/// it.
const LOOK_EVERY: u64 = 250 / TICK_MS;
/// Dead bytes of at least this part of a segment are worth the reserve.
const WORTH: u64 = 8;

#[derive(Default)]
pub(super) struct Room {
    /// Jobs that wait for space on the disk.
    stalled: BTreeSet<JobId>,
    /// One of them is not of the log.
    state_waits: bool,
    /// The reserve was given up, or could not be made.
    short: bool,
    /// The state's part of it was given up.
    given: bool,
    /// The reserve was asked for since start.
    asked: bool,
    /// It is being made.
    making: bool,
}

impl Room {
    /// Jobs wait for room, or the reserve does not stand.
    pub(super) fn is_full(&self) -> bool {
        self.short || self.waits()
    }

    /// Jobs wait for room.
    pub(super) fn waits(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// A job found no room. True: this is news. The log's spare files go at once.
    pub(super) fn stalled(&mut self, g: &mut Ground, job: JobId) -> bool {
        let news = !self.is_full();
        self.stalled.insert(job);
        self.short = true;
        let task = g.task(job).expect("a job that waits is under way");
        if !matches!(task, Task::Save { .. } | Task::RestartLog) {
            self.state_waits = true;
            self.given |= is_worth_it(g);
            g.start(Task::ReleaseSpares, LogJob::ReleaseSpares { reserve: self.given });
        }
        news
    }

    /// The log's part of the reserve was needed. True: this is news.
    pub(super) fn used_reserve(&mut self) -> bool {
        !std::mem::replace(&mut self.short, true) && !self.waits()
    }

    pub(super) fn unstalled(&mut self, job: JobId) {
        if self.stalled.remove(&job) && !self.waits() {
            self.state_waits = false;
            // It is asked for at the next tick.
            self.asked = false;
        }
    }

    pub(super) fn tick(&mut self, g: &mut Ground) {
        if self.asked && !g.now.is_multiple_of(LOOK_EVERY) {
            return;
        }
        if self.state_waits && !self.given && is_worth_it(g) {
            self.given = true;
            g.start(Task::ReleaseSpares, LogJob::ReleaseSpares { reserve: true });
        }
        if (self.short || !self.asked) && !self.making && !self.waits() {
            (self.asked, self.making) = (true, true);
            g.start(Task::KeepReserve, LogJob::KeepReserve);
        }
    }

    /// The reserve `stands`, or there is no room for it. Whether that is news.
    pub(super) fn reserved(&mut self, stands: bool) -> bool {
        self.making = false;
        if self.waits() {
            return false; // a job found no room meanwhile
        }
        self.given &= !stands;
        std::mem::replace(&mut self.short, !stands) == stands
    }
}

/// More comes back than the reserve costs: what waits to be written, and a checkpoint.
fn is_worth_it(g: &Ground) -> bool {
    let dead = g.store.dead_bytes();
    dead >= u64::from(g.config.segment_bytes) / WORTH && dead >= g.store.unwritten_bytes()
}
