//! Backups (`Maintenance.Snapshot`): the state at one moment, read while traffic goes on.
//!
//! The head is taken at once, the rows that compaction left are gathered in slices between turns,
//! a pin keeps the records. Then the asker pulls the records piece by piece, twice if it likes,
//! and says when it is done. A backup that nobody pulls for [`PATIENCE`] ends: a pin keeps old
//! versions in memory and on the disk. So does one whose old versions are in the way of writes.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use disk::records::Place;
use std::collections::{BTreeMap, BTreeSet};
use store::PinId;
use store::export::Export;
use store::record::Record;

/// Ticks.
const PATIENCE: u64 = 600_000 / TICK_MS;
/// At one time; each holds the list of rows that compaction left.
const MOST: usize = 8;

#[derive(Default)]
pub(crate) struct Backups {
    last: u64,
    active: BTreeMap<u64, Active>,
    /// Ended by [`Backups::let_go`]; their askers have not heard of it.
    let_go: BTreeSet<u64>,
}

struct Active {
    pin: PinId,
    /// The records of the backup are below this revision.
    until: i64,
    /// Where the next piece begins.
    place: Place,
    touched: u64,
    stage: Stage,
}

enum Stage {
    Gather {
        waiter: Waiter,
        export: Box<Export>,
    },
    /// The asker is at work with what it has.
    Pause,
    Read {
        waiter: Waiter,
    },
    /// Ended while a job reads its records: the pin goes when the job is done.
    Ended,
}

impl Stage {
    fn waiter(&self) -> Option<Waiter> {
        match self {
            Stage::Gather { waiter, .. } | Stage::Read { waiter } => Some(*waiter),
            Stage::Pause | Stage::Ended => None,
        }
    }
}

impl Backups {
    /// How many are under way.
    pub(crate) fn count(&self) -> u64 {
        self.active.len() as u64
    }

    pub(crate) fn idle(&self) -> bool {
        !self.active.values().any(|active| matches!(active.stage, Stage::Gather { .. }))
    }

    pub(crate) fn begin(&mut self, g: &mut Ground, waiter: Waiter) {
        if self.active.len() >= MOST {
            return g.refuse(waiter, Refusal::TooManyRequests);
        }
        if g.swapping() {
            // The files are those of another state already.
            return g.refuse(waiter, Refusal::Timeout);
        }
        if g.store.cluster_version().is_empty() {
            // It would lack `clusterVersion`, which whoever restores it needs.
            return g.refuse(waiter, Refusal::NotCapable);
        }
        let export = Box::new(g.store.export());
        let pin = g.store.pin(export.compacted);
        let until = export.revision.saturating_add(1);
        self.last += 1;
        let stage = Stage::Gather { waiter, export };
        self.active.insert(self.last, Active { pin, until, place: Place::default(), touched: g.now, stage });
    }

    /// One slice for each backup that gathers.
    pub(crate) fn run(&mut self, g: &mut Ground) {
        let mut gathered = Vec::new();
        for (id, active) in &mut self.active {
            if let Stage::Gather { export, .. } = &mut active.stage
                && g.store.gather_export(export, g.config.budgets.slice_keys)
            {
                gathered.push(*id);
            }
        }
        for id in gathered {
            let active = self.active.get_mut(&id).expect("gathered just now");
            active.touched = g.now;
            if let Stage::Gather { waiter, export } = std::mem::replace(&mut active.stage, Stage::Pause) {
                g.answer(waiter, Answer::Backup { backup: id, export });
            }
        }
    }

    pub(crate) fn next(&mut self, g: &mut Ground, waiter: Waiter, id: u64, first: bool) {
        let paused = |active: &&mut Active| matches!(active.stage, Stage::Pause);
        // while files are swapped they are those of another state already
        let Some(active) = self.active.get_mut(&id).filter(paused).filter(|_| !g.swapping()) else {
            let reason = match self.let_go.remove(&id) {
                true => "it was given up: what it kept of compacted versions was in the way of writes",
                false => "it was given up: nothing was taken for 10 minutes, or the member's state was replaced",
            };
            return g.answer(waiter, Answer::BackupFailed { reason: reason.into() });
        };
        active.touched = g.now;
        active.stage = Stage::Read { waiter };
        let place = if first { Place::default() } else { active.place };
        let until = active.until;
        let (segments, max_bytes) = (g.written_segments(), g.config.budgets.history_bytes);
        let job = BackgroundJob::ReadBackup { segments, place, until, max_bytes };
        g.start(Task::Backup { backup: id }, job);
    }

    pub(crate) fn read(&mut self, g: &mut Ground, id: u64, records: Vec<Record>, place: Place, end: bool) {
        if let Some(waiter) = self.job_done(g, id) {
            self.active.get_mut(&id).expect("its asker waits").place = place;
            g.answer(waiter, Answer::BackupRecords { records, end });
        }
    }

    /// Records that cannot be read end this backup; whoever else needs them finds out.
    pub(crate) fn unread(&mut self, g: &mut Ground, id: u64, fault: disk::Fault) {
        if let Some(waiter) = self.job_done(g, id) {
            g.note(Level::Error, format!("a backup cannot be read: {fault}"));
            self.end(g, id);
            g.answer(waiter, Answer::BackupFailed { reason: fault.to_string() });
        }
    }

    /// The asker of the job, if it still wants its answer.
    fn job_done(&mut self, g: &mut Ground, id: u64) -> Option<Waiter> {
        let active = self.active.get_mut(&id)?;
        match std::mem::replace(&mut active.stage, Stage::Pause) {
            Stage::Read { waiter } => {
                active.touched = g.now;
                Some(waiter)
            }
            Stage::Ended => {
                self.end(g, id);
                None
            }
            Stage::Gather { .. } | Stage::Pause => unreachable!("no job runs for it"),
        }
    }

    /// The asker is done with it or went away.
    pub(crate) fn end(&mut self, g: &mut Ground, id: u64) {
        self.let_go.remove(&id);
        match self.active.get_mut(&id) {
            Some(active) if matches!(active.stage, Stage::Read { .. } | Stage::Ended) => active.stage = Stage::Ended,
            Some(_) => {
                let active = self.active.remove(&id).expect("looked at just now");
                g.store.unpin(active.pin);
            }
            None => {}
        }
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let asked = |(_, active): &(&u64, &Active)| active.stage.waiter() == Some(waiter);
        let Some(id) = self.active.iter().find(asked).map(|(id, _)| *id) else { return false };
        self.end(g, id);
        if timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        true
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        let (now, paused) = (g.now, |active: &Active| matches!(active.stage, Stage::Pause));
        let active = self.active.iter();
        let stale: Vec<u64> =
            active.filter(|(_, a)| paused(a) && now - a.touched > PATIENCE).map(|(id, _)| *id).collect();
        for id in stale {
            self.end(g, id);
            g.note(Level::Warn, "a backup was given up: nothing of it was taken for 10 minutes".into());
        }
    }

    /// What is compacted is in the way of writes: backups that wait for their readers, and keep
    /// some of it, end. How many.
    pub(crate) fn let_go(&mut self, g: &mut Ground) -> usize {
        let compacted = g.store.compacted();
        let keeps = |active: &Active| active.pin.revision() < compacted && matches!(active.stage, Stage::Pause);
        let kept: Vec<u64> = self.active.iter().filter(|(_, active)| keeps(active)).map(|(id, _)| *id).collect();
        for id in &kept {
            self.end(g, *id);
        }
        self.let_go.extend(&kept);
        kept.len()
    }

    /// Nothing of the state is told any more.
    pub(crate) fn refuse_all(&mut self, g: &mut Ground, reason: &str) {
        let ids: Vec<u64> = self.active.keys().copied().collect();
        for id in ids {
            let waiter = self.active[&id].stage.waiter();
            self.end(g, id);
            if let Some(waiter) = waiter {
                g.answer(waiter, Answer::BackupFailed { reason: reason.into() });
            }
        }
    }

    /// A snapshot replaces the state, pins and all: backups of the old one end.
    pub(crate) fn end_all(&mut self, g: &mut Ground) {
        for active in std::mem::take(&mut self.active).into_values() {
            if let Some(waiter) = active.stage.waiter() {
                let reason = "the member's state was replaced by its leader's".into();
                g.answer(waiter, Answer::BackupFailed { reason });
            }
        }
    }
}
