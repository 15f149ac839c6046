//! The numbers of one member, under etcd's names.
//!
//! Made once per process and shared: the edge counts its calls here, the process side updates
//! what it knows (flushes, peers). What the core knows is copied in when someone looks
//! ([`Metrics::refresh`]), so that nothing is spent on numbers nobody reads.

mod disk;
mod edge;
mod peers;
mod process;
mod turns;

use crate::transport::methods::Methods;
pub(crate) use disk::{OfBackground, OfLog};
pub(crate) use edge::OfWatches;
use edge::{OfRequests, OfScrapes};
use node::{Held, Status};
use peers::OfPeers;
use process::OfProcess;
use prometheus::{
    CounterVec, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, exponential_buckets,
};
use std::sync::{Arc, Mutex};
use turns::OfTurns;
pub(crate) use turns::{Turns, op};
use wire::Code;

/// Counters of one method, looked up once.
pub(crate) struct Calls {
    pub(crate) started: IntCounter,
    pub(crate) received: IntCounter,
    pub(crate) sent: IntCounter,
    handled: [IntCounter; Code::ALL.len()],
    /// Only with `--metrics extensive`.
    pub(crate) seconds: Option<Histogram>,
}

impl Calls {
    pub(crate) fn handled(&self, code: Code) -> &IntCounter {
        &self.handled[usize::from(code.number())]
    }
}

/// See the module. Fields carry etcd's names less the prefix.
pub(crate) struct Metrics {
    pub(crate) calls: Vec<Calls>,
    pub(crate) client_sent_bytes: IntCounter,
    pub(crate) client_received_bytes: IntCounter,
    pub(crate) client_requests: IntCounterVec,
    pub(crate) health_success: IntCounter,
    pub(crate) health_failures: IntCounter,
    pub(crate) healthcheck: prometheus::GaugeVec,
    pub(crate) healthchecks: CounterVec,
    /// Connections of clients, open now, and refused for want of room.
    pub(crate) connections: IntGauge,
    pub(crate) connections_refused: IntCounter,
    /// Callers whose handshake failed.
    pub(crate) turned_away: TurnedAway,

    pub(crate) has_leader: IntGauge,
    pub(crate) is_leader: IntGauge,
    pub(crate) learners: OfLearners,
    pub(crate) leader_changes: IntCounter,
    pub(crate) proposals_committed: IntGauge,
    pub(crate) proposals_applied: IntGauge,
    pub(crate) proposals_pending: IntGauge,
    pub(crate) proposals_failed: IntCounter,
    pub(crate) quota_bytes: IntGauge,
    pub(crate) slow_apply: IntCounter,
    pub(crate) db_total_bytes: IntGauge,
    pub(crate) db_in_use_bytes: IntGauge,
    pub(crate) reclaim_runs: IntGauge,
    pub(crate) reclaimed_bytes: IntGauge,
    pub(crate) keys: IntGauge,
    pub(crate) watchers: IntGauge,
    pub(crate) current_revision: IntGauge,
    pub(crate) auth_revision: IntGauge,
    pub(crate) compact_revision: IntGauge,
    pub(crate) range_total: IntCounter,
    pub(crate) txn_total: IntCounter,
    open_reads: IntGauge,
    pub(crate) alarms: IntGaugeVec,

    cluster_version: IntGaugeVec,
    pub(crate) requests: OfRequests,
    pub(crate) watching: Arc<OfWatches>,
    pub(crate) scrapes: OfScrapes,
    pub(crate) turns: OfTurns,
    pub(crate) background: OfBackground,
    pub(crate) peers: OfPeers,
    process: OfProcess,
    queue_depth: IntGaugeVec,
    failed_reads: IntCounter,
    doubt: IntGauge,
    rest: OfRest,
    budgets: OfBudgets,
    rebuilds: IntCounterVec,

    seen: Mutex<Seen>,
}

/// Totals the core counts itself, as last copied.
#[derive(Default)]
struct Seen {
    leader_changes: u64,
    proposals_failed: u64,
}

/// Registers what it makes. Two metrics of one name are a mistake of ours, found at the first
/// start.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn add<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let made = made.expect("names and buckets of metrics are constants");
        self.0.register(Box::new(made.clone())).expect("each metric is registered once");
        made
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn seconds(&self, name: &str, help: &str, start: f64, count: usize) -> Histogram {
        self.add(Ok(histogram(name, help, start, count)))
    }

    fn constant(&self, name: &str, help: &str, label: &str, value: &str) {
        let gauge = self.add(Gauge::with_opts(Opts::new(name, help).const_label(label, value)));
        gauge.set(1.0);
    }

    fn constants(&self, settings: &crate::settings::Settings, member: u64) {
        self.constant("etcd_server_version", "Which version is running.", "server_version", settings.etcd_level);
        let features = self.gauges("etcd_server_feature_enabled", "1: the feature gate is on.", &["name", "stage"]);
        for gate in &settings.gates {
            features.with_label_values(&[gate.name, gate.stage]).set(i64::from(gate.on));
        }
        self.constant("etcd_server_id", "Which member this is, in hexadecimal.", "server_id", &format!("{member:x}"));
    }
}

/// With `count` buckets, each twice as wide as the one before.
fn histogram(name: &str, help: &str, start: f64, count: usize) -> Histogram {
    let buckets = exponential_buckets(start, 2.0, count).expect("constants");
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)).expect("names and buckets are constants")
}

fn histograms(
    name: &str,
    help: &str,
    (start, count): (f64, usize),
    labels: &[&str],
) -> prometheus::Result<HistogramVec> {
    let buckets = exponential_buckets(start, 2.0, count).expect("constants");
    HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)
}

/// How many callers were turned away, on encrypted ports for clients and for peers, and on crowded
/// ports for peers.
pub(crate) struct TurnedAway {
    /// Clients.
    pub(crate) clients: IntCounter,
    /// Members, or whoever called on their ports.
    pub(crate) peers: IntCounter,
    /// Those who are no members, on their ports: others wanted their place.
    pub(crate) strangers: IntCounter,
}

impl TurnedAway {
    fn new(m: &Maker) -> TurnedAway {
        let clients = "Connections to https client ports turned away.";
        let peers = "Connections to https peer ports turned away.";
        let strangers = "Connections on the peer port that were closed because others wanted their place.";
        TurnedAway {
            strangers: m.counter("kvorum_peer_connections_refused_total", strangers),
            clients: m.counter("kvorum_client_handshakes_failed_total", clients),
            peers: m.counter("kvorum_peer_handshakes_failed_total", peers),
        }
    }
}

/// Whether this member is a learner, and those that it as leader was asked to promote.
pub(crate) struct OfLearners {
    is_learner: IntGauge,
    pub(crate) promoted: IntCounter,
    pub(crate) not_promoted: IntCounterVec,
}

impl OfLearners {
    fn new(m: &Maker) -> OfLearners {
        OfLearners {
            is_learner: m.gauge("etcd_server_is_learner", "1: this member is a learner."),
            promoted: m.counter("etcd_server_learner_promote_successes", "Learners promoted while this member led."),
            not_promoted: m.counters(
                "etcd_server_learner_promote_failures",
                "Promotions of learners refused while this member led.",
                &["Reason"],
            ),
        }
    }
}

/// What is held against budgets.
struct OfBudgets {
    bytes: IntGaugeVec,
    limit_bytes: IntGaugeVec,
    full: IntCounterVec,
    cut: IntCounterVec,
}

impl OfBudgets {
    fn new(m: &Maker) -> OfBudgets {
        OfBudgets {
            bytes: m.gauges("kvorum_budget_bytes", "Bytes held against a budget.", &["name"]),
            limit_bytes: m.gauges("kvorum_budget_limit_bytes", "Bound of a budget in bytes.", &["name"]),
            full: m.counters(
                "kvorum_budget_full_total",
                "Times that somebody waited or was refused because a budget was full.",
                &["name"],
            ),
            cut: m.counters(
                "kvorum_budget_cut_total",
                "Connections cut because they held a budget that others needed, and took nothing.",
                &["name"],
            ),
        }
    }
}

/// What is known of the bytes at rest.
struct OfRest {
    scrub_bytes: IntCounter,
    scrub_passes: IntCounter,
    scrub_age: IntGauge,
    damage_found: IntCounterVec,
    peer_refused: IntCounterVec,
    damage_mended: IntCounter,
    damaged_segments: IntGauge,
}

impl OfRest {
    fn new(m: &Maker) -> OfRest {
        OfRest {
            scrub_bytes: m.counter("kvorum_scrub_bytes_total", "Bytes at rest that were verified."),
            scrub_passes: m.counter("kvorum_scrub_passes_total", "Whole passes over everything at rest."),
            scrub_age: m.gauge(
                "kvorum_scrub_age_seconds",
                "Seconds since the last whole pass over everything at rest; -1 before the first.",
            ),
            peer_refused: m.counters(
                "kvorum_peer_refused_total",
                "What members said that no member can mean: terms and indexes too far ahead, commands that are none.",
                &["what"],
            ),
            damage_found: m.counters(
                "kvorum_damage_found_total",
                "Damaged places that were found: in records, or in other files at rest.",
                &["kind"],
            ),
            damage_mended: m.counter("kvorum_damage_mended_total", "Damaged places in records that are whole again."),
            damaged_segments: m.gauge("kvorum_damaged_segments", "Segment files with damaged records now."),
        }
    }
}

impl Metrics {
    /// Registers everything. Once per registry.
    pub(crate) fn new(
        registry: &Registry,
        methods: &Methods,
        settings: &crate::settings::Settings,
        member: u64,
    ) -> Metrics {
        let m = Maker(registry);
        m.constants(settings, member);
        Metrics {
            calls: calls(&m, methods, settings.extensive_metrics),
            client_sent_bytes: m.counter("etcd_network_client_grpc_sent_bytes_total", "Bytes sent to clients."),
            client_received_bytes: m
                .counter("etcd_network_client_grpc_received_bytes_total", "Bytes received from clients."),
            client_requests: m.counters(
                "etcd_server_client_requests_total",
                "Requests by kind and client version.",
                &["type", "client_api_version"],
            ),
            health_success: m.counter("etcd_server_health_success", "Health checks answered true."),
            health_failures: m.counter("etcd_server_health_failures", "Health checks answered false."),
            healthcheck: m.add(prometheus::GaugeVec::new(
                Opts::new("etcd_server_healthcheck", "Result of each check, last time."),
                &["type", "name"],
            )),
            healthchecks: m.add(CounterVec::new(
                Opts::new("etcd_server_healthchecks_total", "Checks done, by result."),
                &["type", "name", "status"],
            )),
            connections: m.gauge("kvorum_client_connections", "Connections of clients open now."),
            connections_refused: m.counter("kvorum_client_connections_refused_total", "Closed for want of room."),
            turned_away: TurnedAway::new(&m),
            has_leader: m.gauge("etcd_server_has_leader", "1: a leader is known."),
            is_leader: m.gauge("etcd_server_is_leader", "1: this member leads."),
            learners: OfLearners::new(&m),
            leader_changes: m.counter("etcd_server_leader_changes_seen_total", "Changes of leader seen."),
            proposals_committed: m.gauge("etcd_server_proposals_committed_total", "Last committed index."),
            proposals_applied: m.gauge("etcd_server_proposals_applied_total", "Last applied index."),
            proposals_pending: m.gauge("etcd_server_proposals_pending", "Proposals waiting for their outcome."),
            proposals_failed: m.counter("etcd_server_proposals_failed_total", "Proposals that failed."),
            quota_bytes: m.gauge("etcd_server_quota_backend_bytes", "Quota of the store in bytes."),
            slow_apply: m.counter("etcd_server_slow_apply_total", "Applies slower than they should be."),
            db_total_bytes: m.gauge("etcd_mvcc_db_total_size_in_bytes", "Bytes on disk."),
            db_in_use_bytes: m.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of records in use."),
            reclaim_runs: m.gauge("kvorum_reclaim_runs_total", "Runs of segments that were rewritten."),
            reclaimed_bytes: m.gauge("kvorum_reclaimed_bytes_total", "Bytes of segments that came back."),
            keys: m.gauge("etcd_debugging_mvcc_keys_total", "Keys."),
            watchers: m.gauge("etcd_debugging_mvcc_watcher_total", "Watches."),
            auth_revision: m.gauge("etcd_debugging_auth_revision", "Revision of users and roles."),
            current_revision: m.gauge("etcd_debugging_mvcc_current_revision", "Revision of the store."),
            compact_revision: m.gauge("etcd_debugging_mvcc_compact_revision", "Revision of the last compaction."),
            range_total: m.counter("etcd_mvcc_range_total", "Ranges served by this member, in transactions too."),
            txn_total: m.counter("etcd_mvcc_txn_total", "Transactions with more than one operation."),
            open_reads: m.gauge(
                "etcd_mvcc_db_open_read_transactions",
                "Reads under way that hold a revision: ranges in slices, and backups.",
            ),
            alarms: m.gauges("etcd_debugging_server_alarms", "Alarms active.", &["server_id", "alarm_type"]),
            cluster_version: m.gauges("etcd_cluster_version", "Which version the cluster runs.", &["cluster_version"]),
            requests: OfRequests::new(&m, methods),
            watching: OfWatches::new(&m),
            scrapes: OfScrapes::new(&m),
            turns: OfTurns::new(&m),
            background: OfBackground::new(&m),
            peers: OfPeers::new(&m),
            process: OfProcess::new(&m),
            queue_depth: m.gauges("kvorum_queue_depth", "Things that stand in a queue.", &["name"]),
            failed_reads: m.counter(
                "kvorum_record_reads_failed_total",
                "Reads of records that failed: damaged bytes, or a disk that refused.",
            ),
            doubt: m
                .gauge("kvorum_doubt", "Whether this member may have lost what it promised. 1 is true, 0 is false."),
            rebuilds: m.counters(
                "kvorum_rebuilds_total",
                "Times that this member gave its state up and started over, since it was founded.",
                &["reason"],
            ),
            budgets: OfBudgets::new(&m),
            rest: OfRest::new(&m),
            seen: Mutex::new(Seen::default()),
        }
    }

    /// Copies what the core answered into the gauges.
    pub(crate) fn refresh(&self, status: &Status) {
        let flag = |gauge: &IntGauge, value: bool| gauge.set(i64::from(value));
        let big = |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        flag(&self.has_leader, status.leader != 0);
        flag(&self.is_leader, status.is_leader);
        flag(&self.learners.is_learner, status.is_learner);
        big(&self.proposals_committed, status.committed);
        big(&self.proposals_applied, status.applied);
        big(&self.proposals_pending, status.pending);
        big(&self.quota_bytes, status.quota);
        big(&self.db_total_bytes, db_size(status));
        big(&self.db_in_use_bytes, db_in_use(status));
        big(&self.reclaim_runs, status.reclaimed.runs);
        big(&self.reclaimed_bytes, status.reclaimed.bytes);
        big(&self.keys, status.keys);
        self.watchers.set(signed(status.watches) + self.watching.slow.get());
        big(&self.open_reads, status.held.walks + status.held.backups);
        self.process.look();
        self.cluster_version.reset();
        if let Some((version, _patch)) = status.cluster_version.rsplit_once('.') {
            self.cluster_version.with_label_values(&[version]).set(1);
        }
        self.current_revision.set(status.revision);
        self.compact_revision.set(status.compacted);
        self.alarms.reset();
        for alarm in &status.alarms {
            let name = alarm_name(alarm.alarm);
            self.alarms.with_label_values(&[format!("{:x}", alarm.member).as_str(), name.as_ref()]).set(1);
        }
        self.doubt.set(i64::from(status.doubt));
        self.refresh_damage(status);
        for (reason, count) in [("damaged", status.rebuilt.damaged), ("differs", status.rebuilt.differs)] {
            self.follow(&self.rebuilds.with_label_values(&[reason]), count);
        }
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.leader_changes.inc_by(status.leader_changes.saturating_sub(seen.leader_changes));
        self.proposals_failed.inc_by(status.proposals_failed.saturating_sub(seen.proposals_failed));
        seen.leader_changes = seen.leader_changes.max(status.leader_changes);
        seen.proposals_failed = seen.proposals_failed.max(status.proposals_failed);
    }
}

impl Metrics {
    fn refresh_damage(&self, status: &Status) {
        let (scrub, mend) = (status.scrub, status.mend);
        self.follow(&self.rest.scrub_bytes, scrub.read);
        self.follow(&self.rest.scrub_passes, scrub.passes);
        self.rest.scrub_age.set(scrub.age.map_or(-1, signed));
        self.follow(&self.rest.peer_refused.with_label_values(&["numbers"]), status.nonsense.numbers);
        self.follow(&self.rest.peer_refused.with_label_values(&["command"]), status.nonsense.commands);
        self.follow(&self.rest.damage_found.with_label_values(&["records"]), mend.found);
        self.follow(&self.rest.damage_found.with_label_values(&["files"]), scrub.found);
        self.follow(&self.rest.damage_mended, mend.mended);
        self.rest.damaged_segments.set(signed(mend.open));
    }

    /// Copies the budgets. `held`: what is inside the core.
    pub(crate) fn refresh_budgets(&self, core: &crate::core::Core, held: &Held) {
        let limits = &core.budgets().limits;
        for budget in core.budgets().all() {
            self.budget(budget.name, budget.used(), budget.limit(), Some(budget.times_full()));
        }
        self.follow(&self.budgets.cut.with_label_values(&["unsent"]), core.budgets().times_cut());
        let lost = core.budgets().lost_frames();
        for (reason, frames) in [("full", lost.full), ("closed", lost.closed)] {
            for (lane, count) in [("urgent", frames.urgent), ("log", frames.log), ("forward", frames.forward)] {
                self.follow(&self.peers.lost.with_label_values(&[lane, reason]), count);
            }
        }
        self.follow(&self.failed_reads, core.failed_reads());
        self.budget("entry_cache", held.entry_cache, limits.entry_cache, None);
        self.budget("uncommitted", held.uncommitted, limits.uncommitted, None);
        self.budget("commands", held.commands, limits.commands, Some(held.refused));
        self.budget("unapplied", held.unapplied, limits.unapplied, None);
        self.budget("event_ring", held.event_ring, limits.event_ring, None);
        self.budget("unwritten", held.unwritten, limits.unwritten, None);
        self.budget("txn_answers", held.txn_answers, limits.txn_answers, None);
        let core_queues = [("apply", held.unapplied_entries), ("walks", held.walks), ("reads", held.reads)];
        for (name, depth) in core.depths().into_iter().chain(core_queues) {
            self.queue_depth.with_label_values(&[name]).set(signed(depth));
        }
    }

    fn budget(&self, name: &str, used: u64, limit: u64, full: Option<u64>) {
        self.budgets.bytes.with_label_values(&[name]).set(signed(used));
        self.budgets.limit_bytes.with_label_values(&[name]).set(signed(limit));
        if let Some(full) = full {
            self.follow(&self.budgets.full.with_label_values(&[name]), full);
        }
    }

    /// Brings a counter up to what was counted elsewhere. Only looking changes it, and lookers
    /// may come at once.
    fn follow(&self, counter: &prometheus::IntCounter, counted: u64) {
        let _seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        counter.inc_by(counted.saturating_sub(counter.get()));
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Never 0 and never below what is in use: stock tools divide the one by the other.
pub(crate) fn db_size(now: &node::Status) -> u64 {
    now.disk_bytes.max(db_in_use(now))
}

/// What the tables of an empty store take, in whole pages as etcd counts them: tools take 0 for a
/// member that does not say.
const EMPTY: u64 = 4096;

/// Never 0.
pub(crate) fn db_in_use(now: &node::Status) -> u64 {
    now.live_bytes.max(EMPTY)
}

/// etcd's name of an alarm; numbers it does not know are shown as such.
pub(crate) fn alarm_name(alarm: i32) -> std::borrow::Cow<'static, str> {
    match alarm {
        0 => "NONE".into(),
        1 => "NOSPACE".into(),
        2 => "CORRUPT".into(),
        other => other.to_string().into(),
    }
}

fn calls(m: &Maker<'_>, methods: &Methods, extensive: bool) -> Vec<Calls> {
    let labels = ["grpc_type", "grpc_service", "grpc_method"];
    let started = m.counters("grpc_server_started_total", "Calls begun.", &labels);
    let received = m.counters("grpc_server_msg_received_total", "Messages received.", &labels);
    let sent = m.counters("grpc_server_msg_sent_total", "Messages sent.", &labels);
    let handled = m.counters(
        "grpc_server_handled_total",
        "Calls ended, by code.",
        &["grpc_type", "grpc_service", "grpc_method", "grpc_code"],
    );
    let seconds = extensive.then(|| {
        m.add(HistogramVec::new(
            HistogramOpts::new("grpc_server_handling_seconds", "Seconds from begin to end of a call.")
                .buckets(prometheus::DEFAULT_BUCKETS.to_vec()),
            &labels,
        ))
    });
    methods
        .all()
        .iter()
        .map(|method| {
            let of = [method.kind(), method.service, method.name];
            Calls {
                started: started.with_label_values(&of),
                received: received.with_label_values(&of),
                sent: sent.with_label_values(&of),
                handled: Code::ALL.map(|code| handled.with_label_values(&[of[0], of[1], of[2], code.name()])),
                seconds: seconds.as_ref().map(|s| s.with_label_values(&of)),
            }
        })
        .collect()
}
