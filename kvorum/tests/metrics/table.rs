//! The table of `docs/metrics.md`: every family with its type, labels, unit, meaning, and what
//! moves it.

use crate::scrape::Families;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Families that stand still by their nature.
const CONSTANT: &[(&str, &str)] = &[
    ("etcd_server_version", "never: it is the version"),
    ("etcd_server_id", "never: it is the id"),
    ("etcd_cluster_version", "the first leader of a new cluster sets it"),
    ("etcd_server_feature_enabled", "never: `--feature-gates` sets it"),
    ("etcd_server_quota_backend_bytes", "never: `--quota-backend-bytes` sets it"),
    ("process_start_time_seconds", "a start"),
    ("process_max_fds", "never: the limit of the system"),
    ("os_fd_limit", "never: the limit of the system"),
    ("process_virtual_memory_max_bytes", "never: the limit of the system"),
    ("kvorum_budget_limit_bytes", "never: `--memory-budget` sets it"),
    ("promhttp_metric_handler_requests_in_flight", "a scrape sees itself"),
    ("process_open_fds", "connections and files that are opened and closed"),
    ("os_fd_used", "connections and files that are opened and closed"),
    ("process_threads", "work that waits for the disk"),
    ("process_virtual_memory_bytes", "memory that is mapped"),
    ("process_resident_memory_bytes", "memory that is used"),
    ("process_cpu_seconds_total", "work"),
    ("process_network_receive_bytes_total", "traffic of the machine"),
    ("process_network_transmit_bytes_total", "traffic of the machine"),
    ("etcd_server_snapshot_apply_in_progress_total", "1 while a member takes a snapshot over"),
];

/// Families whose cause is too rare or too rough for one cluster, and the test that brings it
/// about.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("kvorum_client_connections_refused_total", "more clients than there is room for", "kvorum/tests/hostile.rs"),
    ("kvorum_client_handshakes_failed_total", "a client whose handshake fails", "kvorum/tests/tls/clients.rs"),
    (
        "kvorum_peer_handshakes_failed_total",
        "a caller on the peer port whose handshake fails",
        "kvorum/tests/tls/peers.rs",
    ),
    ("kvorum_peer_connections_refused_total", "too many strangers on the peer port", "kvorum/tests/hostile_peers.rs"),
    ("kvorum_peer_refused_total", "a member that says what none can mean", "kvorum/tests/hostile_peers.rs"),
    ("kvorum_peer_foundings_refused_total", "a member on a directory of another founding", "kvorum/tests/founding.rs"),
    ("kvorum_budget_bytes", "requests under way, and what is kept for watches", "kvorum/tests/hostile.rs"),
    ("kvorum_budget_full_total", "more work than a budget allows", "kvorum/tests/hostile.rs"),
    ("kvorum_budget_cut_total", "a client that holds a budget and reads nothing", "kvorum/tests/hostile.rs"),
    ("kvorum_record_reads_failed_total", "a damaged record that is read", "kvorum/tests/start/damage.rs"),
    ("kvorum_damage_found_total", "damage on the disk", "kvorum/tests/start/damage.rs"),
    ("kvorum_damage_mended_total", "damage that another member mends", "kvorum/tests/repair.rs"),
    ("kvorum_damaged_segments", "damage on the disk", "kvorum/tests/start/damage.rs"),
    ("kvorum_scrub_bytes_total", "the slow look at what lies still", "kvorum/tests/repair.rs"),
    ("kvorum_scrub_passes_total", "the slow look at what lies still", "kvorum/tests/repair.rs"),
    ("kvorum_scrub_age_seconds", "the slow look at what lies still", "kvorum/tests/repair.rs"),
    ("kvorum_reclaim_runs_total", "segments that are mostly dead", "kvorum/tests/space.rs"),
    ("kvorum_reclaimed_bytes_total", "segments that are mostly dead", "kvorum/tests/space.rs"),
    ("kvorum_doubt", "a log whose end was lost", "node/tests/boundaries.rs"),
    ("kvorum_rebuilds_total", "a state that is given up", "kvorum/tests/repair.rs"),
    ("kvorum_open_file_waits_total", "no descriptor is left", "server/src/descriptors.rs"),
    ("kvorum_checkpoint_duration_seconds", "a checkpoint", "node/tests/killed.rs"),
];

const HEAD: &str = "# Metrics

Every family on `/metrics`. `kvorum/tests/metrics.rs` writes this page (`REWRITE=1`), brings each
cause about and looks for what moves.

- etcd's families have etcd's names, types, labels and buckets; those that are not here stand in
  [compat.md](compat.md#metrics-that-are-not-here) with the reason.
- What begins with `kvorum_` is of kvorum alone.
- A family with labels is shown once it has something to say. So
  `etcd_network_snapshot_send_failures` and `etcd_network_snapshot_receive_failures` come with the
  first snapshot that was given up.

What to alert on: [operations/watch.md](operations/watch.md).

| metric | type | labels | unit | meaning | moved by |
|---|---|---|---|---|---|
";

fn unit(name: &str) -> &'static str {
    let name = name.trim_end_matches("_total");
    let units = [("_seconds", "s"), ("_milliseconds", "ms"), ("_bytes", "B"), ("_in_bytes", "B")];
    units.iter().find(|(end, _)| name.ends_with(end)).map_or("", |(_, unit)| unit)
}

/// What moves families while nothing is asked.
pub const BY_ITSELF: &str = "time, and looking at it";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// What moves each family, beside what was seen here.
fn told(causes: &BTreeMap<String, &'static str>) -> BTreeMap<String, String> {
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for (name, cause, test) in ELSEWHERE {
        assert!(workspace().join(test).exists(), "{test} is gone");
        told.insert((*name).into(), (*cause).into());
    }
    // A request that happened to be under way at one of two looks is no cause of its own.
    let by_chance = |name: &str, cause: &str| cause == BY_ITSELF && ELSEWHERE.iter().any(|(other, ..)| *other == name);
    let causes = causes.iter().filter(|(name, cause)| !by_chance(name, cause));
    told.extend(causes.map(|(name, cause)| (name.clone(), (*cause).to_owned())));
    told.extend(CONSTANT.iter().map(|(name, cause)| ((*name).into(), (*cause).into())));
    told
}

/// The page says what the members show, and every family has something that moves it.
pub fn agrees(seen: &Families, causes: &BTreeMap<String, &'static str>) {
    let told = told(causes);
    let still: Vec<&String> = seen.keys().filter(|name| !told.contains_key(*name)).collect();
    assert!(still.is_empty(), "nothing moves {still:#?}");
    let mut page = HEAD.to_owned();
    for (name, family) in seen {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let cells = [&format!("`{name}`"), &family.kind, &labels.join(", "), unit(name), &family.help, &told[name]];
        page += &format!("| {} |\n", cells.join(" | "));
    }
    let path = workspace().join("docs/metrics.md");
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, &page).expect("writes");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (written, page) = (lines(&written), lines(&page));
    let differs = page.iter().zip(&written).find(|(wanted, found)| wanted != found);
    assert!(written == page, "docs/metrics.md is old, REWRITE=1 writes it: {differs:?}");
}
