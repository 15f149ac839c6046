//! What a member tells of itself on `/metrics`: every family of etcd is there or has its reason in
//! `docs/compat.md`, every family has something that moves it, and `docs/metrics.md` says what.
//! `REWRITE=1` writes that page.

mod live;
#[path = "metrics/scrape.rs"]
mod scrape;
#[path = "metrics/table.rs"]
mod table;

use client::wire::etcdserverpb::{AlarmRequest, WatchCreateRequest};
use client::{Client, Error};
use live::watching::Watching;
use live::{Member, PATIENCE, Spec, client_of, comes, http, is_other, ops};
use rustix::process::Signal;
use scrape::{Families, moved};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A busy machine moves it, too.
const OF_THE_MACHINE: [&str; 1] = ["etcd_server_heartbeat_send_failures_total"];
const WAIT: Duration = Duration::from_millis(20);

/// A cluster that is watched: what moved which family.
struct Watched {
    members: Vec<Member>,
    /// Families that move while nothing is done.
    restless: BTreeSet<String>,
    causes: BTreeMap<String, &'static str>,
    seen: Families,
    runtime: Runtime,
    dir: tempfile::TempDir,
}

impl Watched {
    fn start(count: usize, extra: &[&str]) -> Watched {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let flags = [&["--metrics=extensive"][..], extra].concat();
        let mut members: Vec<Member> =
            Spec::cluster(dir.path(), count, &flags).into_iter().map(Member::spawn).collect();
        members.iter_mut().for_each(Member::ready);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (restless, causes, seen) = (BTreeSet::new(), BTreeMap::new(), Families::new());
        Watched { members, restless, causes, seen, runtime, dir }
    }

    fn run<F: Future>(&self, what: F) -> F::Output {
        let within = async { tokio::time::timeout(2 * PATIENCE, what).await.expect("it takes too long") };
        self.runtime.block_on(within)
    }

    /// Asks whichever member. Its connections are closed afterwards.
    fn ask<F: Future>(&self, what: impl FnOnce(Client) -> F) -> F::Output {
        self.run(async {
            let done = what(client_of(&self.members)).await;
            tokio::time::sleep(WAIT).await;
            done
        })
    }

    fn look(&mut self) -> Families {
        let now = scrape::of(&self.members);
        for (name, family) in &now {
            let seen = self.seen.entry(name.clone()).or_insert_with(|| family.clone());
            seen.labels.extend(family.labels.iter().cloned());
            seen.values.extend(family.values.clone());
            if seen.buckets.is_empty() {
                seen.buckets.clone_from(&family.buckets);
            }
        }
        now
    }

    /// What moves by itself is found once the members have nothing left to write.
    fn rest(&mut self) {
        comes("rest", || {
            let before = self.look();
            std::thread::sleep(Duration::from_millis(1100));
            self.restless = moved(&before, &self.look());
            !self.restless.contains("etcd_disk_wal_write_bytes_total")
        });
        let by_itself = self.restless.iter().filter(|name| !OF_THE_MACHINE.contains(&&name[..]));
        self.causes = by_itself.map(|name| (name.clone(), table::BY_ITSELF)).collect();
    }

    /// `act` moves `families`: soon afterwards, or while it runs.
    #[track_caller]
    fn moves<T>(&mut self, cause: &'static str, families: &[&str], act: impl FnOnce(&Watched) -> T) -> T {
        let before = self.look();
        let done = act(self);
        let mut left: BTreeSet<&str> = families.iter().copied().collect();
        let until = Instant::now() + PATIENCE;
        loop {
            let now = moved(&before, &self.look());
            left.retain(|name| !now.contains(*name));
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "{cause} does not move {left:?}");
            std::thread::sleep(WAIT);
        }
        for name in families.iter().filter(|name| !OF_THE_MACHINE.contains(name)) {
            assert!(!self.restless.contains(*name), "{name} moves without {cause}");
        }
        for name in families {
            self.causes.entry((*name).to_owned()).or_insert(cause);
        }
        done
    }

    fn leader(&self) -> usize {
        let mut found = None;
        comes("a leader", || {
            let leads = |member: &Member| value(member, "etcd_server_is_leader") == 1.0;
            found = self.members.iter().position(leads);
            found.is_some()
        });
        found.expect("one leads")
    }
}

fn value(member: &Member, name: &str) -> f64 {
    let Ok(page) = http::get(member.spec.client_port, "/metrics") else { return 0.0 };
    scrape::parse(&page.body).get(name).map_or(0.0, |family| family.values.values().sum())
}

/// A request whose answer nobody reads.
fn unread(port: u16, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sends");
    stream
}

fn keys(w: &mut Watched) {
    let of_a_put = [
        "etcd_mvcc_put_total",
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        "etcd_debugging_mvcc_keys_total",
        "etcd_debugging_mvcc_current_revision",
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "etcd_server_proposals_committed_total",
        "etcd_server_proposals_applied_total",
        "etcd_server_apply_duration_seconds",
        "etcd_server_request_duration_seconds",
        "etcd_disk_wal_fsync_duration_seconds",
        "etcd_disk_wal_write_duration_seconds",
        "etcd_disk_wal_write_bytes_total",
        "etcd_network_client_grpc_received_bytes_total",
        "etcd_network_client_grpc_sent_bytes_total",
        "etcd_server_client_requests_total",
        "grpc_server_started_total",
        "grpc_server_handled_total",
        "grpc_server_msg_received_total",
        "grpc_server_msg_sent_total",
        "grpc_server_handling_seconds",
    ];
    w.moves("a put", &of_a_put, |w| w.ask(async |c| c.put("a", vec![b'x'; 9000]).await).expect("puts"));
    let slow = "a read of keys, or applying entries, that takes longer than `--warning-apply-duration`";
    w.moves(slow, &["etcd_server_slow_apply_total"], |w| w.ask(async |c| c.get("a").await).expect("reads"));
    let of_a_range = ["etcd_mvcc_range_total", "etcd_server_range_duration_seconds"];
    w.moves("a range", &of_a_range, |w| w.ask(async |c| c.get("a").await).expect("reads"));
    w.moves("a transaction of two operations", &["etcd_mvcc_txn_total"], |w| {
        let txn = ops::txn(vec![ops::put("b", "x"), ops::put("c", "x")]);
        w.ask(async |c| c.txn(txn).await).expect("writes")
    });
    w.moves("a delete", &["etcd_mvcc_delete_total"], |w| {
        w.ask(async |c| c.delete(client::key("b")).await).expect("deletes")
    });
    let of_a_compaction = [
        "etcd_debugging_mvcc_compact_revision",
        "etcd_debugging_mvcc_db_compaction_keys_total",
        "etcd_debugging_mvcc_db_compaction_last",
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
        "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
    ];
    w.moves("a compaction", &of_a_compaction, |w| {
        w.ask(async |c| {
            let revision = c.put("a", "y").await.expect("puts").header.expect("a header").revision;
            c.compact(revision).await.expect("compacts")
        })
    });
}

fn leases(w: &mut Watched) {
    let granted = ["etcd_debugging_lease_granted_total", "etcd_debugging_lease_ttl_total"];
    w.moves("a lease granted", &granted, |w| w.ask(async |c| c.lease_grant(600, 7).await).expect("grants"));
    w.moves("a lease renewed", &["etcd_debugging_lease_renewed_total"], |w| {
        w.ask(async |c| c.keep_alive(7).renew().await).expect("renews")
    });
    w.moves("a lease that ended", &["etcd_debugging_lease_revoked_total"], |w| {
        w.ask(async |c| c.lease_revoke(7).await).expect("revokes")
    });
    w.moves("a lease that ran out", &["etcd_debugging_server_lease_expired_total"], |w| {
        w.ask(async |c| c.lease_grant(1, 8).await).expect("grants")
    });
}

fn watches(w: &mut Watched) {
    let endpoint = w.members[0].endpoint();
    let begun = [
        "etcd_debugging_mvcc_watch_stream_total",
        "etcd_debugging_mvcc_watcher_total",
        "kvorum_client_connections",
        "etcd_debugging_server_watch_send_loop_control_stream_duration_seconds",
    ];
    let create = WatchCreateRequest { key: "w".into(), ..WatchCreateRequest::default() };
    let mut watching = w.moves("a watch begun", &begun, |w| {
        w.run(async {
            let mut watching = Watching::open(&endpoint, create).await;
            assert!(watching.next().await.created);
            watching
        })
    });
    let told = [
        "etcd_debugging_mvcc_events_total",
        "etcd_debugging_server_watch_send_loop_watch_stream_duration_seconds",
        "etcd_debugging_server_watch_send_loop_watch_stream_duration_per_event_seconds",
    ];
    w.moves("an event sent to a watch", &told, |w| {
        w.ask(async |c| c.put("w", "x").await).expect("puts");
        w.run(async { assert_eq!(watching.next().await.events.len(), 1) })
    });
    let progress = "etcd_debugging_server_watch_send_loop_progress_duration_seconds";
    w.moves("a progress notice", &[progress], |w| {
        w.run(async {
            watching.ask_progress();
            watching.next().await
        })
    });
    w.moves("a watch request that cannot be read", &["etcd_network_server_stream_failures_total"], |w| {
        let nonsense = bytes::Bytes::from_static(b"\x0a\xff");
        w.ask(async |c| c.raw("/etcdserverpb.Watch/Watch", nonsense).await).expect_err("refused")
    });
    // Records are written when enough of them wait.
    let written = ["etcd_disk_backend_commit_duration_seconds", "etcd_mvcc_db_total_size_in_bytes"];
    // Events in great number, and a client that reads none of them.
    let port = w.members[0].spec.client_port;
    let behind = ["etcd_debugging_mvcc_pending_events_total", "etcd_debugging_mvcc_slow_watcher_total"];
    let _unread = w.moves("a client that does not read its events", &behind, |w| {
        let stream = unread(port, "/v3/watch", r#"{"create_request":{"key":"aGVhdnk="}}"#);
        comes("the watch", || value(&w.members[0], "etcd_debugging_mvcc_watcher_total") >= 2.0);
        w.ask(async |c| {
            for _ in 0..80 {
                c.put("heavy", vec![b'x'; 200 << 10]).await.expect("puts");
            }
        });
        stream
    });
    w.moves("records written to a file", &written, |w| {
        w.ask(async |c| {
            for _ in 0..30 {
                c.put("heavy", vec![b'x'; 200 << 10]).await.expect("puts");
            }
            let mut snapshot = c.snapshot().await.expect("begins");
            while snapshot.next().await.expect("goes on").is_some() {}
        });
    });
}

fn maintenance(w: &mut Watched) {
    w.moves("Maintenance.Hash", &["etcd_mvcc_hash_duration_seconds"], |w| {
        w.ask(async |c| c.hash().await).expect("hashes")
    });
    w.moves("Maintenance.HashKV", &["etcd_mvcc_hash_rev_duration_seconds"], |w| {
        w.ask(async |c| c.hash_kv(0).await).expect("hashes")
    });
    w.moves("Maintenance.Defragment", &["etcd_disk_backend_defrag_duration_seconds"], |w| {
        w.ask(async |c| c.defragment().await).expect("answers")
    });
    w.moves("a snapshot sent to a client", &["etcd_disk_backend_snapshot_duration_seconds"], |w| {
        w.ask(async |c| {
            let mut snapshot = c.snapshot().await.expect("begins");
            while snapshot.next().await.expect("goes on").is_some() {}
        })
    });
    let port = w.members[0].spec.client_port;
    let _unread = w.moves("a snapshot under way", &["etcd_mvcc_db_open_read_transactions"], |_| {
        unread(port, "/v3/maintenance/snapshot", "{}")
    });
    let pages = ["etcd_server_healthcheck", "etcd_server_healthchecks_total"];
    w.moves("/livez and /readyz", &pages, |_| http::get(port, "/readyz").expect("answers"));
    w.moves("/health", &["etcd_server_health_success"], |_| http::get(port, "/health").expect("answers"));
    let alarmed = ["etcd_debugging_server_alarms", "etcd_server_health_failures"];
    let id = w.ask(async |c| c.status().await).expect("tells").header.expect("a header").member_id;
    let alarm = AlarmRequest { action: 1, member_id: id, alarm: 1 };
    w.moves("an alarm, and /health while it is raised", &alarmed, |w| {
        w.ask(async |c| c.alarm(alarm).await).expect("raised");
        comes("the alarm", || value(&w.members[0], "etcd_debugging_server_alarms") == 1.0);
        assert_eq!(http::get(port, "/health").expect("answers").status, 503);
    });
    w.ask(async |c| c.alarm(AlarmRequest { action: 2, ..alarm }).await).expect("disarmed");
    w.moves("a change of users or roles", &["etcd_debugging_auth_revision"], |w| {
        w.ask(async |c| c.role_add("r").await).expect("adds")
    });
}

fn leadership(w: &mut Watched) {
    let leader = w.leader();
    let changed = ["etcd_server_is_leader", "etcd_server_leader_changes_seen_total"];
    w.moves("another leader", &changed, |w| {
        let to = &w.members[(leader + 1) % w.members.len()];
        let target =
            w.run(async { client_of([to]).status().await }).expect("tells").header.expect("a header").member_id;
        w.run(async { client_of([&w.members[leader]]).move_leader(target).await }).expect("moves")
    });
    let leader = w.leader();
    let late = "a leader that had no turn for two heartbeats";
    w.moves(late, &["etcd_server_heartbeat_send_failures_total"], |w| {
        w.members[leader].signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(400));
        w.members[leader].signal(Signal::CONT);
    });
}

/// A signal takes a moment.
fn is_stopped(member: &Member) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", member.pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// The other members stand still: nothing is committed, and soon nobody leads.
fn without_quorum(w: &mut Watched) {
    const CAUSE: &str = "a majority that is away while clients write and read";
    let leader = w.leader();
    let alone = [
        "etcd_server_has_leader",
        "etcd_server_slow_read_indexes_total",
        "etcd_server_read_indexes_failed_total",
        "etcd_server_proposals_failed_total",
    ];
    w.moves(CAUSE, &alone, |w| {
        let others = || w.members.iter().enumerate().filter(|(at, _)| *at != leader).map(|(_, member)| member);
        others().for_each(|member| member.signal(Signal::STOP));
        comes("a majority that stands still", || others().all(is_stopped));
        let member = &w.members[leader];
        w.run(async {
            let client = client_of([member]).with_request_timeout(Some(Duration::from_secs(3)));
            let requests = async { tokio::join!(client.put("a", "x"), client.get("a")) };
            tokio::pin!(requests);
            let sent = tokio::time::timeout(Duration::from_millis(200), &mut requests).await;
            assert!(sent.is_err(), "nothing is committed");
            comes("a command that waits", || value(member, "etcd_server_proposals_pending") > 0.0);
            comes("a read that waits", || value(member, "kvorum_queue_depth") > 0.0);
            let (put, get) = requests.await;
            assert!(put.is_err() && get.is_err(), "{put:?} {get:?}");
            // The member hears that nobody waits any more.
            while value(member, "etcd_server_proposals_failed_total") == 0.0 {
                tokio::time::sleep(WAIT).await;
            }
        });
        comes("a round that is slow", || value(member, "etcd_server_slow_read_indexes_total") > 0.0);
        comes("a member without a leader", || value(member, "etcd_server_has_leader") == 0.0);
        others().for_each(|member| member.signal(Signal::CONT));
    });
    for waits in ["etcd_server_proposals_pending", "kvorum_queue_depth"] {
        w.causes.insert(waits.into(), CAUSE);
    }
    comes("the answer", || w.ask(async |c| c.put("a", "x").await).is_ok());
}

fn peers(w: &mut Watched) {
    let at = (w.leader() + 1) % w.members.len();
    let lost = [
        "etcd_network_active_peers",
        "etcd_network_disconnected_peers_total",
        "etcd_network_peer_sent_failures_total",
        "etcd_network_peer_received_failures_total",
        "kvorum_peer_frames_lost_total",
    ];
    let before = w.look();
    w.members[at].kill();
    let until = Instant::now() + PATIENCE;
    loop {
        let now = w.look();
        let moved = moved(&before, &now);
        if lost.iter().all(|name| moved.contains(*name)) {
            break;
        }
        assert!(Instant::now() < until, "a lost member moves {moved:?}");
        std::thread::sleep(WAIT);
    }
    w.causes.extend(lost.map(|name| (name.to_owned(), "a member that is lost")));
    w.members[at].respawn();
    w.members[at].ready();
    comes("each member once to each other", || {
        let active = scrape::of(&w.members).remove("etcd_network_active_peers").unwrap_or_default();
        active.values.len() == 6 && active.values.values().all(|value| *value == 1.0)
    });
}

/// One member alone that has cut its log: whoever joins it needs a snapshot.
fn joins(w: &mut Watched) {
    for _ in 0..2 {
        w.ask(async |c| c.put("a", "x").await).expect("puts");
        w.members[0].stop(Signal::TERM);
        w.members[0].respawn();
        w.members[0].ready();
    }
    let (port, url) = {
        let port = live::free_port();
        (port, format!("http://127.0.0.1:{port}"))
    };
    w.moves("a member added", &["etcd_server_learner_promote_failures"], |w| {
        let added = w.ask(async |c| c.member_add(vec![url.clone()], true).await).expect("adds").member;
        let id = added.expect("the new member").id;
        let refused = w.ask(async |c| c.member_promote(id).await).expect_err("it has nothing yet");
        assert!(matches!(refused, Error::Server { .. }), "{refused}");
    });
    let first = &w.members[0].spec;
    let cluster = format!("{},m9={url}", first.initial_cluster);
    let extra = [&first.extra[..], &["--initial-cluster-state=existing".to_owned()]].concat();
    let dir = w.dir.path().join("m9");
    let spec = Spec {
        name: "m9".into(),
        client_port: live::free_port(),
        peer_port: port,
        initial_cluster: cluster,
        dir,
        extra,
    };
    let before = w.look();
    w.members.push(Member::spawn(spec));
    let joined = [
        "etcd_network_known_peers",
        "etcd_server_is_learner",
        "etcd_network_snapshot_send_success",
        "etcd_network_snapshot_send_inflights_total",
        "etcd_network_snapshot_send_total_duration_seconds",
        "etcd_network_snapshot_receive_success",
        "etcd_network_snapshot_receive_inflights_total",
        "etcd_network_snapshot_receive_total_duration_seconds",
        "etcd_snap_db_save_total_duration_seconds",
        "etcd_snap_db_fsync_duration_seconds",
    ];
    let until = Instant::now() + PATIENCE;
    loop {
        let moved = moved(&before, &w.look());
        if joined.iter().all(|name| moved.contains(*name)) {
            break;
        }
        let left: Vec<_> = joined.iter().filter(|name| !moved.contains(**name)).collect();
        assert!(Instant::now() < until, "a member that joins does not move {left:?}");
        std::thread::sleep(WAIT);
    }
    w.causes.extend(joined.map(|name| (name.to_owned(), "a member that joins, and takes a snapshot")));
    w.moves("a learner promoted", &["etcd_server_learner_promote_successes"], |w| {
        comes("the promotion", || {
            w.run(async {
                let client = client_of([&w.members[0]]);
                let members = client.member_list().await.expect("lists").members;
                let learner = members.iter().find(|member| member.is_learner).map(|member| member.id);
                client.member_promote(learner.expect("it is there")).await.is_ok()
            })
        });
    });
}

#[test]
fn every_family_moves_or_says_why_not() {
    if is_other() {
        return;
    }
    let mut three = Watched::start(3, &["--memory-budget=256MiB"]);
    // Everything is slow to this member.
    three.members[0].stop(Signal::TERM);
    three.members[0].spec.extra.push("--warning-apply-duration=1ns".into());
    three.members[0].respawn();
    three.members[0].ready();
    three.rest();
    for part in [keys, leases, watches, maintenance, leadership, without_quorum, peers] {
        part(&mut three);
    }
    let mut one = Watched::start(1, &[]);
    one.rest();
    joins(&mut one);
    let mut seen = three.seen;
    for (name, family) in one.seen {
        let into = seen.entry(name).or_insert_with(|| family.clone());
        into.labels.extend(family.labels);
        into.values.extend(family.values);
    }
    let mut causes = one.causes;
    causes.extend(three.causes);
    table::agrees(&seen, &causes);
    etcds(&seen);
    deploys(&seen);
}

/// What the alerts and dashboards of `deploy/prometheus`, and of etcd's mixin, ask for is there.
fn deploys(seen: &Families) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("deploy/prometheus");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("readable");
    let base = |name: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        let cut = ends.iter().find_map(|end| name.strip_suffix(end).filter(|base| seen.contains_key(*base)));
        cut.unwrap_or(name).to_owned()
    };
    let mut wrong = Vec::new();
    for file in ["kvorum.rules.yml", "dashboard.json"] {
        let text = read(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let starts = ["etcd_", "grpc_server_", "kvorum_", "process_", "os_"];
        let names = words.filter(|word| starts.iter().any(|start| word.starts_with(start)));
        wrong.extend(names.filter(|name| !seen.contains_key(&base(name))).map(|name| format!("{file}: {name}")));
    }
    for line in read("mixin.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line, ""));
        let labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
        let has = |series: &String| labels.iter().all(|label| series.contains(label));
        if !seen.get(&base(name)).is_some_and(|family| family.values.keys().any(has)) {
            wrong.push(format!("etcd's mixin: {line}"));
        }
    }
    assert!(wrong.is_empty(), "not on /metrics:\n{}", wrong.join("\n"));
}

/// Every family of etcd is here as etcd has it, or named in `docs/compat.md`.
fn etcds(seen: &Families) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let compat = std::fs::read_to_string(root.join("docs/compat.md")).expect("readable");
    let absent: Vec<&str> = compat
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('|').nth(1).unwrap_or_default().split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    let is_absent = |name: &str| {
        absent.iter().any(|known| known.strip_suffix('*').map_or(*known == name, |start| name.starts_with(start)))
    };
    let mut wrong = Vec::new();
    for line in include_str!("metrics/etcd.txt").lines() {
        let mut words = line.split(' ');
        let name = words.next().expect("a name");
        let theirs = words.collect::<Vec<_>>().join(" ");
        match seen.get(name) {
            // A snapshot that is given up takes minutes.
            None if name.starts_with("etcd_network_snapshot_") && name.ends_with("_failures") => {}
            None if !is_absent(name) => wrong.push(format!("{name}: neither here nor in docs/compat.md")),
            None => {}
            Some(_) if is_absent(name) => wrong.push(format!("{name}: docs/compat.md says that it is absent")),
            Some(family) => {
                let labels = family.labels.iter().cloned().collect::<Vec<_>>().join(",");
                let labels = if labels.is_empty() { "-".into() } else { labels };
                let ours = format!("{} {labels} {}", family.kind, family.buckets);
                if ours.trim() != theirs {
                    wrong.push(format!("{name}: {} and not {theirs}", ours.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
