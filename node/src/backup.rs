//! Backups (`Maintenance.Snapshot`): the state at one moment, read while traffic goes on.
//!
//! The head is taken at once, the rows that compaction left are gathered in slices between turns,
//! a pin keeps the records. Then the asker pulls the records piece by piece, twice if it likes,
//! and says when it is done. A backup that nobody pulls for
//! [`PATIENCE`] ends: a pin keeps old versions in memory and on the disk.

use crate::config::TICK_MS;
use crate::io::*;
use crate::member::{Node, Task};
use disk::records::Place;
use std::collections::BTreeMap;
use store::PinId;
use store::export::Export;
use store::record::Record;

/// Ticks.
const PATIENCE: u64 = 600_000 / TICK_MS;
/// At one time; each holds the list of rows that compaction left.
const MOST: usize = 8;

#[derive(Default)]
pub(crate) struct Backups {
    next: u64,
    active: BTreeMap<u64, Active>,
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
    pub(crate) fn idle(&self) -> bool {
        !self.active.values().any(|active| matches!(active.stage, Stage::Gather { .. }))
    }
}

impl Node {
    pub(crate) fn on_backup(&mut self, waiter: Waiter, out: &mut Vec<Output>) {
        if self.backups.active.len() >= MOST {
            return self.refuse(waiter, Refusal::TooManyRequests, out);
        }
        if self.transfer.swapping() {
            // The files are those of another state already.
            return self.refuse(waiter, Refusal::Timeout, out);
        }
        if self.store.cluster_version().is_empty() {
            // It would lack `clusterVersion`, which whoever restores it needs.
            return self.refuse(waiter, Refusal::NotCapable, out);
        }
        let export = Box::new(self.store.export());
        let pin = self.store.pin(export.compacted);
        let until = export.revision.saturating_add(1);
        self.backups.next += 1;
        let stage = Stage::Gather { waiter, export };
        self.backups
            .active
            .insert(self.backups.next, Active { pin, until, place: Place::default(), touched: self.ticks, stage });
    }

    /// One slice for each backup that gathers.
    pub(crate) fn run_backups(&mut self, out: &mut Vec<Output>) {
        let mut gathered = Vec::new();
        for (id, active) in &mut self.backups.active {
            if let Stage::Gather { export, .. } = &mut active.stage
                && self.store.gather_export(export, self.config.budgets.slice_keys)
            {
                gathered.push(*id);
            }
        }
        for id in gathered {
            let active = self.backups.active.get_mut(&id).expect("gathered just now");
            active.touched = self.ticks;
            if let Stage::Gather { waiter, export } = std::mem::replace(&mut active.stage, Stage::Pause) {
                self.answer(waiter, Answer::Backup { backup: id, export }, out);
            }
        }
    }

    pub(crate) fn on_backup_next(&mut self, waiter: Waiter, id: u64, first: bool, out: &mut Vec<Output>) {
        let paused = |active: &&mut Active| matches!(active.stage, Stage::Pause);
        // while files are swapped they are those of another state already
        let Some(active) = self.backups.active.get_mut(&id).filter(paused).filter(|_| !self.transfer.swapping()) else {
            let reason = "it was given up: nothing was taken for 10 minutes, or the member's state was replaced";
            return self.answer(waiter, Answer::BackupFailed { reason: reason.into() }, out);
        };
        active.touched = self.ticks;
        active.stage = Stage::Read { waiter };
        let place = if first { Place::default() } else { active.place };
        let job = Job::ReadBackup { place, until: active.until, max_bytes: self.config.budgets.history_bytes };
        self.write_all_records(out);
        self.jobs.start(Task::Backup { backup: id }, job, out);
    }

    pub(crate) fn backup_read(
        &mut self,
        id: u64,
        records: Vec<Record>,
        place: Place,
        end: bool,
        out: &mut Vec<Output>,
    ) {
        if let Some(waiter) = self.backup_job_done(id) {
            self.backups.active.get_mut(&id).expect("its asker waits").place = place;
            self.answer(waiter, Answer::BackupRecords { records, end }, out);
        }
    }

    /// Records that cannot be read end this backup; whoever else needs them finds out.
    pub(crate) fn backup_unread(&mut self, id: u64, fault: disk::Fault, out: &mut Vec<Output>) {
        if let Some(waiter) = self.backup_job_done(id) {
            self.note(Level::Error, format!("a backup cannot be read: {fault}"), out);
            self.end_backup(id);
            self.answer(waiter, Answer::BackupFailed { reason: fault.to_string() }, out);
        }
    }

    /// The asker of the job, if it still wants its answer.
    fn backup_job_done(&mut self, id: u64) -> Option<Waiter> {
        let active = self.backups.active.get_mut(&id)?;
        match std::mem::replace(&mut active.stage, Stage::Pause) {
            Stage::Read { waiter } => {
                active.touched = self.ticks;
                Some(waiter)
            }
            Stage::Ended => {
                self.end_backup(id);
                None
            }
            Stage::Gather { .. } | Stage::Pause => unreachable!("no job runs for it"),
        }
    }

    /// The asker is done with it or went away.
    pub(crate) fn end_backup(&mut self, id: u64) {
        match self.backups.active.get_mut(&id) {
            Some(active) if matches!(active.stage, Stage::Read { .. } | Stage::Ended) => active.stage = Stage::Ended,
            Some(_) => {
                let active = self.backups.active.remove(&id).expect("looked at just now");
                self.store.unpin(active.pin);
            }
            None => {}
        }
    }

    pub(crate) fn cancel_backup(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let asked = |(_, active): &(&u64, &Active)| active.stage.waiter() == Some(waiter);
        let Some(id) = self.backups.active.iter().find(asked).map(|(id, _)| *id) else { return false };
        self.end_backup(id);
        if timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
        }
        true
    }

    pub(crate) fn tick_backups(&mut self, out: &mut Vec<Output>) {
        let (now, paused) = (self.ticks, |active: &Active| matches!(active.stage, Stage::Pause));
        let active = self.backups.active.iter();
        let stale: Vec<u64> =
            active.filter(|(_, a)| paused(a) && now - a.touched > PATIENCE).map(|(id, _)| *id).collect();
        for id in stale {
            self.end_backup(id);
            self.note(Level::Warn, "a backup was given up: nothing of it was taken for 10 minutes".into(), out);
        }
    }

    /// A snapshot replaces the state, pins and all: backups of the old one end.
    pub(crate) fn end_backups(&mut self, out: &mut Vec<Output>) {
        for active in std::mem::take(&mut self.backups.active).into_values() {
            if let Some(waiter) = active.stage.waiter() {
                let reason = "the member's state was replaced by its leader's".into();
                self.answer(waiter, Answer::BackupFailed { reason }, out);
            }
        }
    }
}
