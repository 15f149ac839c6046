//! A file for the node exporter of Prometheus: when the last good backup was, and how it was.

use super::report::Taken;
use crate::{
    call::Call,
    exit::{Failure, IO, Outcome},
};
use backup::Shelf;
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// What is told.
#[derive(Debug)]
pub(super) struct Metrics {
    text: String,
}

impl Metrics {
    /// Of an attempt that is over. The last good one is that of the folder: it may be of an earlier
    /// life of this program.
    pub(super) fn of(call: &Call, folder: &Path, taken: &Outcome<Taken>, took: Duration) -> Metrics {
        let saved = call.block_on(async {
            let shelf = Shelf::folder(folder, false).await?;
            backup::list(&shelf).await
        });
        let saved = saved.unwrap_or_default();
        let good: Vec<_> = saved.iter().filter_map(|one| one.manifest.as_ref().ok()).collect();
        let newest = good.iter().max_by_key(|manifest| manifest.time);
        let mut metrics = Metrics { text: String::new() };
        let now = jiff::Timestamp::now().as_second() as f64;
        metrics.gauge("last_attempt_timestamp_seconds", "When a backup was last tried.", now);
        metrics.gauge("last_attempt_success", "Whether that one succeeded.", f64::from(u8::from(taken.is_ok())));
        metrics.gauge("last_attempt_duration_seconds", "How long that one took.", took.as_secs_f64());
        metrics.gauge("kept", "Backups in the folder that can be restored.", good.len() as f64);
        if let Some(manifest) = newest {
            let time = manifest.time as f64 / 1e3;
            metrics.gauge("last_success_timestamp_seconds", "When the last good backup was begun.", time);
            metrics.gauge("last_success_revision", "The newest revision in it.", manifest.revision as f64);
            metrics.gauge("last_success_bytes", "Bytes of its snapshot.", manifest.bytes as f64);
        }
        if let Ok(taken) = taken {
            let new = taken.written.new_bytes as f64;
            metrics.gauge("last_success_new_bytes", "Bytes of it that were not in the folder before.", new);
        }
        metrics
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let name = format!("kvorum_backup_{name}");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }

    /// Replaces the file as a whole: the exporter reads at any moment.
    pub(super) fn write(&self, file: &Path) -> Outcome {
        let part = PathBuf::from(format!("{}.part", file.display()));
        let written = std::fs::write(&part, &self.text).and_then(|()| std::fs::rename(&part, file));
        written.map_err(|error| Failure::new(IO, format!("{}: {}", file.display(), crate::exit::system_words(&error))))
    }
}
