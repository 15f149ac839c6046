//! A member from its start to its end, and again.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use client::key;
use client::wire::Code;
use rustix::process::Signal;
use serde_json::Value;

use crate::live::{Alone, block_on, is_other, refused, shell_code};

/// Supervisors send SIGKILL after this long at the earliest. The member gives itself a second and
/// a half of it, on a machine that lets it run.
const IN_TIME: Duration = Duration::from_secs(10);

#[test]
fn signals_end_it_in_time_with_their_status() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut alone = Alone::new(&[]);
        block_on(async { alone.client().put("a", "x").await.expect("puts") });
        let (status, took) = alone.member.stop(signal);
        assert_eq!(shell_code(status), Some(code), "{status}");
        assert!(took < IN_TIME, "{took:?}");
    }
}

#[test]
fn it_declines_huge_pages() {
    let words = |status: std::io::Result<String>| -> Option<String> {
        let status = status.expect("a process has a status");
        Some(status.lines().find_map(|line| line.strip_prefix("THP_enabled:"))?.trim().to_owned())
    };
    // A system that has none says nothing of them.
    if is_other() || words(std::fs::read_to_string("/proc/self/status")).is_none() {
        return;
    }
    let alone = Alone::new(&[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", alone.member.pid()));
    assert_eq!(words(status).as_deref(), Some("0"));
}

#[test]
fn systemd_is_told_when_it_serves_and_that_it_lives() {
    if is_other() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    systemd.set_read_timeout(Some(crate::live::PATIENCE)).expect("a bound");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kvorum"));
    let urls = format!("http://127.0.0.1:{}", crate::live::free_port());
    let peer = format!("http://127.0.0.1:{}", crate::live::free_port());
    command.args(["server", "--data-dir"]).arg(folder.path().join("data"));
    command.args(["--listen-client-urls", &urls, "--advertise-client-urls", &urls, "--listen-peer-urls", &peer]);
    command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut member = command.stderr(std::process::Stdio::null()).spawn().expect("starts");
    let next = || {
        let mut bytes = [0; 64];
        let length = systemd.recv(&mut bytes).expect("a word in time");
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    while next() != "READY=1" {}
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    let pid = rustix::process::Pid::from_child(&member);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    while next() != "STOPPING=1" {}
    member.wait().expect("it ends");
}

#[test]
fn an_open_connection_does_not_hold_up_the_stop() {
    if is_other() {
        // A real etcd waits for its streams, without a bound.
        return;
    }
    let mut alone = Alone::new(&[]);
    let watching = block_on(async {
        let endpoint = alone.member.endpoint();
        let mut watch = crate::live::watching::Watching::open(&endpoint, key("a").into()).await;
        assert!(watch.next().await.created);
        let idle = std::net::TcpStream::connect(&endpoint).expect("connects");
        (watch, idle)
    });
    let (status, took) = alone.member.stop(Signal::TERM);
    assert_eq!(shell_code(status), Some(143));
    assert!(took < IN_TIME, "{took:?}");
    drop(watching);
}

/// Revision, compaction and lease as they were, whatever ended the last life.
fn lives_on(signal: Signal) {
    let mut alone = Alone::new(&[]);
    let (before, lease) = block_on(async {
        let client = alone.client();
        let lease = client.lease_grant(600, 0).await.expect("grants").id;
        for value in ["2", "3", "4"] {
            client.put("a", value).await.expect("puts");
        }
        let leased =
            client::wire::etcdserverpb::PutRequest { lease, key: "b".into(), value: "5".into(), ..Default::default() };
        client.put_with(leased).await.expect("puts");
        client.compact(3).await.expect("compacts");
        (client.hash_kv(0).await.expect("hashes"), lease)
    });
    alone.member.stop(signal);
    alone.member.respawn();
    alone.member.ready();
    block_on(async {
        let client = alone.client();
        let after = client.hash_kv(0).await.expect("hashes");
        assert_eq!((after.hash, after.compact_revision, after.hash_revision), (before.hash, 3, 5));
        let (old, new) = (before.header.unwrap_or_default(), after.header.unwrap_or_default());
        assert_eq!((new.cluster_id, new.member_id), (old.cluster_id, old.member_id));
        assert!(new.raft_term > old.raft_term);
        let pair = client.get("a").await.expect("reads").expect("is there");
        assert_eq!((&pair.value[..], pair.mod_revision, pair.create_revision, pair.version), (&b"4"[..], 4, 2, 3));
        refused(client.compact(3).await, Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        let left = client.lease_time_to_live(lease, true).await.expect("asks");
        assert_eq!((left.granted_ttl, left.keys.len()), (600, 1));
        assert_eq!(client.put("a", "6").await.expect("puts").header.unwrap_or_default().revision, 6);
    });
}

#[test]
fn a_restart_keeps_everything() {
    lives_on(Signal::TERM);
}

#[test]
fn a_kill_keeps_everything() {
    lives_on(Signal::KILL);
}

#[test]
fn flags_of_the_founding_do_not_matter_later() {
    let mut alone = Alone::new(&[]);
    block_on(async { alone.client().put("a", "x").await.expect("puts") });
    alone.member.stop(Signal::TERM);
    // As a harness starts it that adds members, and as one that forgot what it said first.
    alone.member.spec.extra = vec!["--initial-cluster-state=existing".into(), "--initial-cluster-token=other".into()];
    alone.member.respawn();
    alone.member.ready();
    block_on(async { assert!(alone.client().get("a").await.expect("reads").is_some()) });
}

#[test]
fn every_line_of_the_log_is_json_and_none_is_an_error() {
    let mut alone = Alone::new(&["--log-level=debug"]);
    block_on(async { alone.client().put("a", "x").await.expect("puts") });
    alone.member.stop(Signal::TERM);
    let log = alone.member.log();
    let mut ready = 0;
    for line in log.lines() {
        let json: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["level", "ts", "msg"] {
            assert!(json[field].is_string(), "{field}: {line}");
        }
        // A real etcd complains about the listeners that it has closed itself.
        assert!(is_other() || (json["level"] != "error" && json["level"] != "fatal"), "{line}");
        ready += usize::from(json["msg"] == "ready to serve client requests");
    }
    assert_eq!(ready, 1, "{log}");
}

#[test]
fn the_directory_is_its_owners_alone() {
    let alone = Alone::new(&[]);
    let mode = std::fs::metadata(&alone.member.spec.dir).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
