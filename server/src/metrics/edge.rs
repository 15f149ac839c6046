//! What clients see: durations of requests, watches and what they wait for, scrapes.

use super::{Maker, histogram, histograms};
use crate::transport::methods::Methods;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::Rpc;

/// Durations of one method, looked up when it first ends so.
#[derive(Default)]
struct Ends {
    failed: OnceLock<Histogram>,
    done: OnceLock<Histogram>,
}

impl Ends {
    fn of(&self, ok: bool) -> &OnceLock<Histogram> {
        if ok { &self.done } else { &self.failed }
    }
}

/// Durations of requests, by what they ask.
pub(crate) struct OfRequests {
    seconds: HistogramVec,
    ranges: HistogramVec,
    /// By method.
    ends: Vec<Ends>,
    of_ranges: Ends,
    of_read_txns: Ends,
    hash: Histogram,
    hash_kv: Histogram,
    defragment: Histogram,
    /// Of backups, from the first question to the last byte.
    pub(crate) backup: Histogram,
    /// Streams of requests that could not be read.
    pub(crate) stream_failures: IntCounterVec,
}

impl OfRequests {
    pub(super) fn new(m: &Maker, methods: &Methods) -> OfRequests {
        let seconds = "Seconds until a request was answered, by its kind.";
        let ranges = "Seconds until a range was found, with the wait for its turn.";
        let hash = |name: &str, help: &str| m.seconds(name, help, 0.01, 15);
        let backup = "Seconds of sending a snapshot to a client.";
        OfRequests {
            seconds: m.add(histograms(
                "etcd_server_request_duration_seconds",
                seconds,
                (0.001, 14),
                &["type", "success"],
            )),
            ranges: m.add(histograms("etcd_server_range_duration_seconds", ranges, (0.0001, 20), &["success"])),
            ends: methods.all().iter().map(|_| Ends::default()).collect(),
            of_ranges: Ends::default(),
            of_read_txns: Ends::default(),
            hash: hash("etcd_mvcc_hash_duration_seconds", "Seconds of Maintenance.Hash."),
            hash_kv: hash("etcd_mvcc_hash_rev_duration_seconds", "Seconds of Maintenance.HashKV."),
            defragment: m.seconds(
                "etcd_disk_backend_defrag_duration_seconds",
                "Seconds of Maintenance.Defragment, which has nothing to do.",
                0.1,
                13,
            ),
            backup: m.seconds("etcd_disk_backend_snapshot_duration_seconds", backup, 0.01, 17),
            stream_failures: m.counters(
                "etcd_network_server_stream_failures_total",
                "Streams of a client that ended because its requests could not be read.",
                &["Type", "API"],
            ),
        }
    }

    /// A unary call has ended. `index`: of its method; `reads`: a transaction that changes nothing.
    pub(crate) fn ended(&self, rpc: Rpc, index: usize, reads: bool, ok: bool, took: Duration) {
        let took = took.as_secs_f64();
        let success = if ok { "true" } else { "false" };
        match rpc {
            Rpc::Range => {
                let range = || self.ranges.with_label_values(&[success]);
                self.of_ranges.of(ok).get_or_init(range).observe(took);
            }
            Rpc::Hash => self.hash.observe(took),
            Rpc::HashKV => self.hash_kv.observe(took),
            Rpc::Defragment => self.defragment.observe(took),
            _ => {}
        }
        let Some(kind) = kind(rpc) else { return };
        let (ends, kind) = if reads { (&self.of_read_txns, "ReadonlyTxn") } else { (&self.ends[index], kind) };
        ends.of(ok).get_or_init(|| self.seconds.with_label_values(&[kind, success])).observe(took);
    }
}

/// etcd's name of what is timed.
fn kind(rpc: Rpc) -> Option<&'static str> {
    Some(match rpc {
        Rpc::Range => "Range",
        Rpc::Put => "Put",
        Rpc::DeleteRange => "DeleteRange",
        Rpc::Txn => "Txn",
        Rpc::Compact => "Compaction",
        Rpc::LeaseGrant => "LeaseGrant",
        Rpc::LeaseRevoke => "LeaseRevoke",
        Rpc::Alarm => "Alarm",
        Rpc::Authenticate => "Authenticate",
        Rpc::AuthEnable => "AuthEnable",
        Rpc::AuthDisable => "AuthDisable",
        Rpc::AuthStatus => "AuthStatus",
        Rpc::UserAdd => "AuthUserAdd",
        Rpc::UserGet => "AuthUserGet",
        Rpc::UserList => "AuthUserList",
        Rpc::UserDelete => "AuthUserDelete",
        Rpc::UserChangePassword => "AuthUserChangePassword",
        Rpc::UserGrantRole => "AuthUserGrantRole",
        Rpc::UserRevokeRole => "AuthUserRevokeRole",
        Rpc::RoleAdd => "AuthRoleAdd",
        Rpc::RoleGet => "AuthRoleGet",
        Rpc::RoleList => "AuthRoleList",
        Rpc::RoleDelete => "AuthRoleDelete",
        Rpc::RoleGrantPermission => "AuthRoleGrantPermission",
        Rpc::RoleRevokePermission => "AuthRoleRevokePermission",
        _ => return None,
    })
}

/// Watches, shared with their streams.
pub(crate) struct OfWatches {
    pub(crate) streams: IntGauge,
    /// Watches behind.
    pub(crate) slow: IntGauge,
    /// Events that wait for their client to read.
    pub(crate) pending: IntGauge,
    pub(crate) events: IntCounter,
    events_seconds: Histogram,
    event_seconds: Histogram,
    control_seconds: Histogram,
    progress_seconds: Histogram,
}

impl OfWatches {
    pub(super) fn new(m: &Maker) -> Arc<OfWatches> {
        let of = |what: &str, help: &str| {
            let name = format!("etcd_debugging_server_watch_send_loop_{what}_seconds");
            m.add(Ok(histogram(&name, help, 0.001, 14)))
        };
        Arc::new(OfWatches {
            streams: m.gauge("etcd_debugging_mvcc_watch_stream_total", "Watch streams open now."),
            slow: m.gauge("etcd_debugging_mvcc_slow_watcher_total", "Watches that are behind, fed from history."),
            pending: m.gauge("etcd_debugging_mvcc_pending_events_total", "Events that wait for their client to read."),
            events: m.counter("etcd_debugging_mvcc_events_total", "Events sent to watches of this member."),
            events_seconds: of("watch_stream_duration", "Seconds of sending events to a stream."),
            event_seconds: of("watch_stream_duration_per_event", "The same, for each event."),
            control_seconds: of("control_stream_duration", "Seconds of sending the begin or end of a watch."),
            progress_seconds: of("progress_duration", "Seconds of sending a progress notice."),
        })
    }

    /// A response with so many events went out. `control`: a watch began or ended.
    pub(crate) fn sent(&self, events: usize, control: bool, took: Duration) {
        let took = took.as_secs_f64();
        match events {
            0 if control => self.control_seconds.observe(took),
            0 => self.progress_seconds.observe(took),
            events => {
                self.events.inc_by(events as u64);
                self.events_seconds.observe(took);
                self.event_seconds.observe(took / events as f64);
            }
        }
    }
}

/// Scrapes of `/metrics`, as Go's clients count them.
pub(crate) struct OfScrapes {
    pub(crate) in_flight: IntGauge,
    pub(crate) answered: IntCounterVec,
}

impl OfScrapes {
    pub(super) fn new(m: &Maker) -> OfScrapes {
        let answered =
            m.counters("promhttp_metric_handler_requests_total", "Scrapes of /metrics, by HTTP status.", &["code"]);
        for code in ["200", "500", "503"] {
            let _ = answered.with_label_values(&[code]);
        }
        let in_flight = m.gauge("promhttp_metric_handler_requests_in_flight", "Scrapes being answered now.");
        OfScrapes { in_flight, answered }
    }
}
