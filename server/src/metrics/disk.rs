//! What the disk costs: writes and flushes of the log, records, checkpoints, snapshots.

use super::{Maker, histogram};
use crate::log::{self, json};
use crate::services::slow::go;
use node::BackgroundJob;
use prometheus::{Histogram, IntGauge, Registry};
use std::time::{Duration, Instant};

/// A flush that takes longer is told, as in etcd.
const SLOW_FLUSH: Duration = Duration::from_secs(1);

/// Writes and flushes of the log. Made with the files, which are there before everything else.
#[derive(Clone)]
pub(crate) struct OfLog {
    flushes: Histogram,
    writes: Histogram,
    bytes: IntGauge,
}

impl Default for OfLog {
    fn default() -> OfLog {
        let write = "Seconds of one write to the log, without its flush.";
        let bytes = "Bytes written to the log since start.";
        OfLog {
            flushes: histogram("etcd_disk_wal_fsync_duration_seconds", "Seconds of one flush of the log.", 0.001, 14),
            writes: histogram("etcd_disk_wal_write_duration_seconds", write, 0.001, 14),
            bytes: IntGauge::new("etcd_disk_wal_write_bytes_total", bytes).expect("a good name"),
        }
    }
}

impl OfLog {
    pub(crate) fn register(&self, registry: &Registry) {
        let m = Maker(registry);
        m.add(Ok(self.flushes.clone()));
        m.add(Ok(self.writes.clone()));
        m.add(Ok(self.bytes.clone()));
    }

    pub(crate) fn wrote(&self, took: Duration, bytes: usize) {
        self.writes.observe(took.as_secs_f64());
        self.bytes.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn flushed(&self, took: Duration) {
        self.flushes.observe(took.as_secs_f64());
        if let Some(fields) = slow_flush(took) {
            log::warn("slow fdatasync", &fields);
        }
    }
}

/// What is told of a flush; None: it was fast enough.
fn slow_flush(took: Duration) -> Option<[(&'static str, log::Value); 2]> {
    let slow = took > SLOW_FLUSH;
    slow.then(|| [("took", json!(go(took))), ("expected-duration", json!(go(SLOW_FLUSH)))])
}

/// Jobs of the background thread.
#[derive(Clone)]
pub(crate) struct OfBackground {
    records: Histogram,
    checkpoints: Histogram,
    received: Histogram,
    put_in_place: Histogram,
    /// A checkpoint, or a snapshot from another member, begins with one job and ends with another.
    checkpoint_since: Option<Instant>,
    snapshot_since: Option<Instant>,
}

impl OfBackground {
    pub(super) fn new(m: &Maker) -> OfBackground {
        let (name, text) = ("etcd_disk_backend_commit_duration_seconds", "Seconds of one write of records to a file.");
        let received = "Seconds from the first piece of another member's snapshot until it is in place.";
        let in_place = "Seconds of making another member's snapshot durable and putting it in place.";
        let checkpoint = "Seconds from the begin of a checkpoint until it is durable.";
        OfBackground {
            records: m.seconds(name, text, 0.001, 14),
            checkpoints: m.seconds("kvorum_checkpoint_duration_seconds", checkpoint, 0.001, 20),
            received: m.seconds("etcd_snap_db_save_total_duration_seconds", received, 0.1, 10),
            put_in_place: m.seconds("etcd_snap_db_fsync_duration_seconds", in_place, 0.001, 14),
            checkpoint_since: None,
            snapshot_since: None,
        }
    }

    /// Carries a job out and notes how long it took.
    pub(crate) fn timed<T>(&mut self, job: BackgroundJob, run: impl FnOnce(BackgroundJob) -> T) -> T {
        enum Of {
            Records,
            CheckpointEnds,
            InstallEnds,
            Other,
        }
        let begun = Instant::now();
        let of = match job {
            BackgroundJob::WriteRecords { .. } => Of::Records,
            BackgroundJob::CheckpointFinish { .. } => Of::CheckpointEnds,
            BackgroundJob::InstallFinish { .. } => Of::InstallEnds,
            BackgroundJob::CheckpointBegin { .. } => {
                self.checkpoint_since = Some(begun);
                Of::Other
            }
            BackgroundJob::InstallBegin { .. } => {
                self.snapshot_since = Some(begun);
                Of::Other
            }
            _ => Of::Other,
        };
        let ran = run(job);
        let since = |since: Option<Instant>| since.unwrap_or(begun).elapsed().as_secs_f64();
        match of {
            Of::Records => self.records.observe(begun.elapsed().as_secs_f64()),
            Of::CheckpointEnds => self.checkpoints.observe(since(self.checkpoint_since.take())),
            Of::InstallEnds => {
                self.put_in_place.observe(begun.elapsed().as_secs_f64());
                self.received.observe(since(self.snapshot_since.take()));
            }
            Of::Other => {}
        }
        ran
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_flush_is_told_in_etcds_words() {
        assert!(slow_flush(SLOW_FLUSH).is_none());
        let fields = slow_flush(Duration::from_millis(1500)).expect("it is slow");
        assert_eq!(fields, [("took", json!("1.5s")), ("expected-duration", json!("1s"))]);
    }
}
