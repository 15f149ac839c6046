//! What the core thread did in its turns: applied entries, leases, compactions, heartbeats, and
//! snapshots between members.

use super::{Maker, Metrics, histograms};
use crate::log::{self, json};
use crate::services::slow;
use node::SnapshotNews;
use node::tally::{Counted, Tally};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::command::field;

/// Counters and histograms that the core thread moves.
pub(crate) struct OfTurns {
    apply: HistogramVec,
    put_total: IntCounter,
    put_bytes: IntGauge,
    delete_total: IntCounter,
    leases: OfLeases,
    swept: IntCounter,
    last_compaction: IntGauge,
    compaction_total: Histogram,
    compaction_pause: Histogram,
    read_rounds_failed: IntCounter,
    read_rounds_slow: IntCounter,
    heartbeats_late: IntCounter,
    snapshots: OfSnapshots,
}

struct OfLeases {
    granted: IntCounter,
    revoked: IntCounter,
    renewed: IntCounter,
    expired: IntCounter,
    ttl: Histogram,
}

impl OfLeases {
    fn new(m: &Maker) -> OfLeases {
        let expired = "Leases that ran out while this member led.";
        OfLeases {
            granted: m.counter("etcd_debugging_lease_granted_total", "Leases granted, on whichever member."),
            revoked: m.counter("etcd_debugging_lease_revoked_total", "Leases that ended: revoked, or run out."),
            renewed: m.counter("etcd_debugging_lease_renewed_total", "Leases renewed while this member led."),
            expired: m.counter("etcd_debugging_server_lease_expired_total", expired),
            ttl: m.seconds("etcd_debugging_lease_ttl_total", "Seconds to live of leases that were granted.", 1.0, 24),
        }
    }
}

/// One direction of snapshots.
struct OfSnapshots {
    begun: IntGaugeVec,
    done: IntCounterVec,
    failed: IntCounterVec,
    seconds: HistogramVec,
    receiving: IntGaugeVec,
    received: IntCounterVec,
    not_received: IntCounterVec,
    receive_seconds: HistogramVec,
    applying: IntGauge,
}

impl OfSnapshots {
    fn new(m: &Maker) -> OfSnapshots {
        let (send, receive) = (&["To"][..], &["From"][..]);
        let seconds = |name: &str, help: &str, labels: &[&str]| {
            let buckets = prometheus::exponential_buckets(0.1, 2.0, 10).expect("constants");
            m.add(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels))
        };
        let name = |rest: &str| format!("etcd_network_snapshot_{rest}");
        OfSnapshots {
            begun: m.gauges(&name("send_inflights_total"), "Snapshots that a member takes from this one now.", send),
            done: m.counters(&name("send_success"), "Snapshots that a member has taken from this one.", send),
            failed: m.counters(&name("send_failures"), "Snapshots that a member did not take to their end.", send),
            seconds: seconds(&name("send_total_duration_seconds"), "Seconds until a member had a snapshot.", send),
            receiving: m.gauges(&name("receive_inflights_total"), "Snapshots taken from a member now.", receive),
            received: m.counters(&name("receive_success"), "Snapshots from a member that are in place.", receive),
            not_received: m.counters(&name("receive_failures"), "Snapshots from a member given up.", receive),
            receive_seconds: seconds(
                &name("receive_total_duration_seconds"),
                "Seconds until a snapshot was in place.",
                receive,
            ),
            applying: m.gauge(
                "etcd_server_snapshot_apply_in_progress_total",
                "1: a snapshot of another member is being taken over.",
            ),
        }
    }
}

impl OfTurns {
    pub(super) fn new(m: &Maker) -> OfTurns {
        let name = |rest: &str| format!("etcd_debugging_mvcc_{rest}");
        let pause = "Milliseconds of a turn of the core in which compaction took versions out of the index.";
        let swept = "Versions that compaction took out of the index.";
        let late = "Times that a leader was too busy to send its heartbeats in time.";
        OfTurns {
            apply: m.add(histograms(
                "etcd_server_apply_duration_seconds",
                "Seconds of applying an entry: its share of the core's turn.",
                (0.0001, 20),
                &["version", "op", "success"],
            )),
            put_total: m.counter("etcd_mvcc_put_total", "Puts applied, in transactions too."),
            put_bytes: m.gauge(&name("total_put_size_in_bytes"), "Bytes of the records of puts applied."),
            delete_total: m.counter("etcd_mvcc_delete_total", "Deletions of a key or a range applied."),
            leases: OfLeases::new(m),
            swept: m.counter(&name("db_compaction_keys_total"), swept),
            last_compaction: m.gauge(&name("db_compaction_last"), "When the last compaction ended, in Unix time."),
            compaction_total: m.seconds(
                &name("db_compaction_total_duration_milliseconds"),
                "Milliseconds until the index was rid of all that a compaction made superfluous.",
                100.0,
                14,
            ),
            compaction_pause: m.seconds(&name("index_compaction_pause_duration_milliseconds"), pause, 0.5, 14),
            read_rounds_failed: m.counter("etcd_server_read_indexes_failed_total", "Read index rounds that failed."),
            read_rounds_slow: m.counter(
                "etcd_server_slow_read_indexes_total",
                "Read index rounds without an answer after half a second, each half second.",
            ),
            heartbeats_late: m.counter("etcd_server_heartbeat_send_failures_total", late),
            snapshots: OfSnapshots::new(m),
        }
    }
}

/// etcd's name of what an entry asks for.
pub(crate) fn op(command: u32) -> &'static str {
    match command {
        field::PUT => "Put",
        field::DELETE_RANGE => "DeleteRange",
        field::TXN => "Txn",
        field::COMPACTION => "Compaction",
        field::LEASE_GRANT => "LeaseGrant",
        // What etcd has instead: one for each lease.
        field::LEASE_REVOKE | field::EXPIRE => "LeaseRevoke",
        field::LEASE_CHECKPOINT => "LeaseCheckpoint",
        field::ALARM => "Alarm",
        field::AUTH_ENABLE => "AuthEnable",
        field::AUTH_DISABLE => "AuthDisable",
        field::AUTHENTICATE => "Authenticate",
        field::AUTH_USER_ADD => "AuthUserAdd",
        field::AUTH_USER_DELETE => "AuthUserDelete",
        field::AUTH_USER_CHANGE_PASSWORD => "AuthUserChangePassword",
        field::AUTH_USER_GRANT_ROLE => "AuthUserGrantRole",
        field::AUTH_USER_REVOKE_ROLE => "AuthUserRevokeRole",
        field::AUTH_ROLE_ADD => "AuthRoleAdd",
        field::AUTH_ROLE_DELETE => "AuthRoleDelete",
        field::AUTH_ROLE_GRANT_PERMISSION => "AuthRoleGrantPermission",
        field::AUTH_ROLE_REVOKE_PERMISSION => "AuthRoleRevokePermission",
        field::CLUSTER_VERSION => "ClusterVersionSet",
        field::MEMBER_ATTR => "ClusterMemberAttrSet",
        _ => "Unknown",
    }
}

/// What the core thread remembers from turn to turn.
#[derive(Default)]
pub(crate) struct Turns {
    seen: Counted,
    /// By command, and whether it was refused: looked up once.
    apply: BTreeMap<(u32, bool), Histogram>,
    /// A compaction is being carried out since.
    compacting: Option<Instant>,
    swept_before: u64,
    /// Since when a snapshot is on its way to a member (true), or from it.
    snapshots: BTreeMap<(u64, bool), Instant>,
}

impl Turns {
    /// A turn has ended that took so long. `sweeps`: compaction is not done with the index.
    /// `compacted`: the compacted revision.
    pub(crate) fn ended(&mut self, metrics: &Metrics, tally: &Tally, took: Duration, sweeps: bool, compacted: i64) {
        self.deeds(&metrics.turns, tally, took);
        let now = tally.counted;
        if now != self.seen {
            self.count(metrics, &now, took);
        }
        if self.compacting.is_some() && !sweeps {
            self.compaction_ends(&metrics.turns, now.swept, compacted);
        }
    }

    fn deeds(&mut self, of: &OfTurns, tally: &Tally, took: Duration) {
        let Ok(count) = u32::try_from(tally.deeds.len()) else { return };
        if count == 0 {
            return;
        }
        let share = (took / count).as_secs_f64();
        for deed in &tally.deeds {
            let seconds = self.apply.entry((deed.command, deed.done)).or_insert_with(|| {
                let success = if deed.done { "true" } else { "false" };
                of.apply.with_label_values(&["v3", op(deed.command), success])
            });
            seconds.observe(share);
        }
        for ttl in &tally.granted {
            of.leases.ttl.observe(*ttl as f64);
        }
    }

    fn count(&mut self, metrics: &Metrics, now: &Counted, took: Duration) {
        let (of, seen) = (&metrics.turns, &self.seen);
        of.put_total.inc_by(now.puts - seen.puts);
        of.put_bytes.add(i64::try_from(now.put_bytes - seen.put_bytes).unwrap_or(i64::MAX));
        of.delete_total.inc_by(now.deletes - seen.deletes);
        metrics.range_total.inc_by(now.ranges - seen.ranges);
        metrics.txn_total.inc_by(now.txns - seen.txns);
        of.leases.granted.inc_by(now.leases_granted - seen.leases_granted);
        of.leases.revoked.inc_by(now.leases_ended - seen.leases_ended);
        of.leases.renewed.inc_by(now.leases_renewed - seen.leases_renewed);
        of.leases.expired.inc_by(now.leases_expired - seen.leases_expired);
        of.read_rounds_failed.inc_by(now.read_rounds_failed - seen.read_rounds_failed);
        of.read_rounds_slow.inc_by(now.read_rounds_slow - seen.read_rounds_slow);
        if now.compactions != seen.compactions && self.compacting.is_none() {
            self.compacting = Some(Instant::now());
            self.swept_before = seen.swept;
        }
        if now.swept != seen.swept {
            of.swept.inc_by(now.swept - seen.swept);
            of.compaction_pause.observe(took.as_secs_f64() * 1000.0);
        }
        self.seen = *now;
    }

    fn compaction_ends(&mut self, of: &OfTurns, swept: u64, compacted: i64) {
        let Some(since) = self.compacting.take() else { return };
        of.compaction_total.observe(since.elapsed().as_secs_f64() * 1000.0);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        of.last_compaction.set(i64::try_from(unix).unwrap_or(i64::MAX));
        let fields = [
            ("compact-revision", json!(compacted)),
            ("took", json!(slow::go(since.elapsed()))),
            ("versions-dropped", json!(swept - self.swept_before)),
        ];
        log::info("finished scheduled compaction", &fields);
    }

    /// The leader had no turn for so long.
    pub(crate) fn late(&self, metrics: &Metrics, took: Duration, heartbeat: Duration) {
        let expected = 2 * heartbeat;
        let Some(exceeded) = took.checked_sub(expected).filter(|exceeded| !exceeded.is_zero()) else { return };
        metrics.turns.heartbeats_late.inc();
        log::warn(
            "leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk",
            &[
                ("heartbeat-interval", json!(slow::go(heartbeat))),
                ("expected-duration", json!(slow::go(expected))),
                ("exceeded-duration", json!(slow::go(exceeded))),
            ],
        );
    }

    pub(crate) fn snapshot(&mut self, metrics: &Metrics, peer: u64, news: SnapshotNews) {
        let (of, label) = (&metrics.turns.snapshots, format!("{peer:x}"));
        let of_peer = [&label[..]];
        let (sends, begins) = match news {
            SnapshotNews::SendBegins => (true, true),
            SnapshotNews::SendEnds { .. } => (true, false),
            SnapshotNews::ReceiveBegins => (false, true),
            SnapshotNews::ReceiveEnds { .. } => (false, false),
        };
        let inflight = if sends { &of.begun } else { &of.receiving }.with_label_values(&of_peer);
        inflight.set(i64::from(begins));
        let since = match begins {
            true => self.snapshots.insert((peer, sends), Instant::now()),
            false => self.snapshots.remove(&(peer, sends)),
        };
        of.applying.set(i64::from(self.snapshots.keys().any(|(_, sends)| !sends)));
        let (done, failed, seconds) = match news {
            SnapshotNews::SendEnds { ok } => (ok, &of.failed, (&of.done, &of.seconds)),
            SnapshotNews::ReceiveEnds { ok } => (ok, &of.not_received, (&of.received, &of.receive_seconds)),
            _ => return,
        };
        if !done {
            return failed.with_label_values(&of_peer).inc();
        }
        seconds.0.with_label_values(&of_peer).inc();
        if let Some(since) = since {
            seconds.1.with_label_values(&of_peer).observe(since.elapsed().as_secs_f64());
        }
    }
}
