//! `Maintenance.Snapshot` of the real program: the file it streams, read by our reader, and by
//! the stock `etcdctl`, `etcdutl` and `etcd` of the folder that `KVORUM_TEST_ETCD` names.

mod live;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use bolt::Db;
use client::wire::etcdserverpb::PutRequest;
use client::{Client, key, prefix};
use live::ops::put_request;
use live::{Member, PATIENCE, Spec, block_on, client_of};
use store::Rev;
use store::hash::HashKv;

/// The file that `etcdctl snapshot save` would write, digest checked.
async fn save(client: &Client) -> Vec<u8> {
    let mut snapshot = client.snapshot().await.expect("is served");
    let mut file = Vec::new();
    while let Some(piece) = snapshot.next().await.expect("comes whole") {
        assert!(piece.len() <= 32 << 10, "a piece of {} bytes", piece.len());
        file.extend_from_slice(&piece);
    }
    assert!(bolt::digest_follows(file.len() as u64));
    file
}

fn open(file: &[u8]) -> Db<&[u8]> {
    let db = Db::open(&file[..file.len() - 32]).expect("a bbolt file");
    assert_eq!(db.check(), [], "whole");
    db
}

/// HashKV of the rows of a file at its own revision, nothing compacted.
fn hash(db: &Db<&[u8]>) -> (u32, i64) {
    let mut hash = HashKv::new(i64::MAX, -1, []);
    let mut last = 1;
    for row in db.bucket(b"key").expect("readable").expect("there").pairs() {
        let (key, value) = row.expect("readable");
        let number = |at: usize| i64::from_be_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        last = number(0);
        hash.feed(Rev { main: last, sub: number(9) }, key.len() == 18, &value);
    }
    (hash.finish(), last)
}

fn names(db: &Db<&[u8]>) -> Vec<String> {
    let names = db.buckets().expect("readable");
    names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn get(db: &Db<&[u8]>, bucket: &str, key: &str) -> Option<Vec<u8>> {
    let bucket = db.bucket(bucket.as_bytes()).expect("readable").expect("there");
    bucket.get(key.as_bytes()).expect("readable").map(|value| value.to_vec())
}

fn cluster(members: usize) -> (Vec<Member>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let times = ["--heartbeat-interval=50", "--election-timeout=500"];
    let mut members: Vec<Member> = Spec::cluster(dir.path(), members, &times).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    (members, dir)
}

#[test]
fn an_empty_store_has_every_bucket_of_etcd() {
    let (members, _dir) = cluster(1);
    block_on(async {
        let file = save(&client_of(&members)).await;
        let db = open(&file);
        let expected = "alarm auth authRoles authUsers cluster key lease members members_removed meta";
        assert_eq!(names(&db).join(" "), expected);
        assert_eq!(get(&db, "cluster", "clusterVersion").as_deref(), Some(&b"3.7.0"[..]));
        assert_eq!(get(&db, "meta", "storageVersion").as_deref(), Some(&b"3.7.0"[..]));
        assert_eq!(db.bucket(b"key").unwrap().unwrap().pairs().count(), 0);
        let members = db.bucket(b"members").unwrap().unwrap();
        let (id, json) = members.pairs().next().expect("one member").expect("readable");
        let member: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(format!("{:x}", member["id"].as_u64().expect("an id")).as_bytes(), id);
        assert_eq!(member["name"], "m1");
    });
}

#[test]
fn rows_are_those_that_hashkv_counts() {
    let (members, _dir) = cluster(1);
    block_on(async {
        let client = client_of(&members);
        for n in 0..40 {
            client.put(format!("k{}", n % 7), "v".repeat(n * 300)).await.expect("puts");
        }
        client.delete(key("k3")).await.expect("deletes");
        client.lease_grant(1000, 77).await.expect("grants");
        client.put_with(PutRequest { lease: 77, ..put_request("leased", "x") }).await.expect("puts");
        let file = save(&client).await;
        let db = open(&file);
        let kv = client.hash_kv(0).await.expect("hashes");
        assert_eq!(hash(&db), (kv.hash, kv.hash_revision));
        assert_eq!(get(&db, "meta", "finishedCompactRev"), None);
        let lease = db.bucket(b"lease").unwrap().unwrap().get(&77u64.to_be_bytes()).unwrap().expect("granted");
        assert_eq!(&lease[..], b"\x08\x4d\x10\xe8\x07");

        client.compact(30).await.expect("compacts");
        let file = save(&client).await;
        let db = open(&file);
        let rows = db.bucket(b"key").unwrap().unwrap().pairs().count();
        assert_eq!(rows, 7 + 13, "one of each key at 30, and 13 later ones");
        let compacted = get(&db, "meta", "finishedCompactRev").expect("compacted");
        assert_eq!(compacted, store::hash::bucket_key(Rev { main: 30, sub: 0 }, false));
        assert_eq!(get(&db, "meta", "scheduledCompactRev"), Some(compacted));
    });
}

/// Puts until told to stop.
async fn write(client: Client, stop: &AtomicBool) -> i64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        client.put(format!("w{}", count % 500), "x".repeat(200)).await.expect("puts");
        count += 1;
    }
    count
}

#[test]
fn a_backup_under_writes_is_of_one_revision_on_leader_and_follower() {
    let (members, _dir) = cluster(3);
    block_on(async {
        let all = client_of(&members);
        let stop = AtomicBool::new(false);
        let saved = async {
            let mut saved = Vec::new();
            for member in &members {
                tokio::time::sleep(Duration::from_millis(100)).await;
                saved.push(save(&client_of([member])).await);
            }
            stop.store(true, Ordering::Relaxed);
            saved
        };
        let (saved, _) = futures_util::future::join(saved, write(all.clone(), &stop)).await;
        for file in saved {
            let db = open(&file);
            let (rows, revision) = hash(&db);
            assert!(revision > 1, "something was written before");
            for member in &members {
                // a follower may be behind
                let until = Instant::now() + PATIENCE;
                let kv = loop {
                    match client_of([member]).hash_kv(revision).await {
                        Ok(kv) => break kv,
                        Err(error) => assert!(Instant::now() < until, "{error}"),
                    }
                };
                assert_eq!(rows, kv.hash, "at revision {revision}");
            }
            let conf = get(&db, "meta", "confState").expect("there");
            let conf: serde_json::Value = serde_json::from_slice(&conf).expect("JSON");
            assert_eq!(conf["voters"].as_array().map(Vec::len), Some(3));
        }
    });
}

/// A client that goes away half way, and one that starts after it: nothing is left behind.
#[test]
fn a_backup_whose_client_went_away_leaves_nothing() {
    let (members, _dir) = cluster(1);
    block_on(async {
        let client = client_of(&members);
        for n in 0..30 {
            client.put(format!("big{n}"), "x".repeat(1 << 20)).await.expect("puts");
        }
        // the server allows 8 at a time
        for _ in 0..20 {
            let mut snapshot = client.snapshot().await.expect("is served");
            assert!(snapshot.next().await.expect("begins").is_some());
        }
        let until = Instant::now() + PATIENCE;
        let file = loop {
            match client.snapshot().await.expect("is served").next().await {
                Ok(_) => break save(&client).await,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        assert_eq!(open(&file).summary().expect("readable").total_keys, 30);
    });
}

#[test]
fn the_json_gateway_streams_it_too() {
    let (members, _dir) = cluster(1);
    let answer = live::http::post(members[0].spec.client_port, "/v3/maintenance/snapshot", "{}").expect("answers");
    let mut file = Vec::new();
    for line in answer.body.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["result"]["version"], "3.7.0");
        let blob = line["result"]["blob"].as_str().expect("bytes");
        file.extend(base64::engine::general_purpose::STANDARD.decode(blob).expect("base64"));
    }
    assert_eq!(open(&file).buckets().expect("readable").len(), 10);
}

/// Runs a stock tool and gives what it printed.
fn stock(folder: &Path, tool: &str, args: &[&str]) -> String {
    let mut command = Command::new(folder.join(tool));
    live::clean(&mut command);
    let output = command.args(args).output().expect("the tool starts");
    assert!(output.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Revision, lease and value of every key.
async fn everything(client: &Client) -> Vec<(Vec<u8>, i64, i64, i64, i64, Vec<u8>)> {
    let range = client.range(prefix("")).await.expect("reads");
    let fields = |kv: &client::wire::mvccpb::KeyValue| {
        (kv.key.to_vec(), kv.create_revision, kv.mod_revision, kv.version, kv.lease, kv.value.to_vec())
    };
    range.kvs.iter().map(fields).collect()
}

/// The stock tools take it, and a real etcd starts on it with the same keys, leases and hashes.
#[test]
fn a_real_etcd_goes_on_from_a_backup() {
    let Some(folder) = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from) else {
        eprintln!("a_real_etcd_goes_on_from_a_backup: KVORUM_TEST_ETCD is not set");
        return;
    };
    for count in [1, 3] {
        let (members, dir) = cluster(count);
        block_on(async {
            let all = client_of(&members);
            all.lease_grant(5000, 77).await.expect("grants");
            all.put_with(PutRequest { lease: 77, ..put_request("leased", "x") }).await.expect("puts");
            for n in 0..300 {
                all.put(format!("k{}", n % 50), "v".repeat(n)).await.expect("puts");
            }
            all.delete(key("k7")).await.expect("deletes");
            all.compact(200).await.expect("compacts");
            for member in &members {
                let path = dir.path().join(format!("{}.db", member.spec.name));
                let file = path.to_str().expect("a plain path").to_string();
                let stop = AtomicBool::new(false);
                let saving = async {
                    let (folder, file, endpoint) = (folder.clone(), file.clone(), member.endpoint());
                    let save =
                        move || stock(&folder, "etcdctl", &["--endpoints", &endpoint, "snapshot", "save", &file]);
                    let said = tokio::task::spawn_blocking(save).await.expect("ends");
                    stop.store(true, Ordering::Relaxed);
                    said
                };
                let (said, _) = futures_util::future::join(saving, write(all.clone(), &stop)).await;
                assert!(said.contains("Server version 3.7.0"), "{said}");
                let bytes = std::fs::read(&path).expect("was saved");
                let summary = open(&bytes).summary().expect("readable");
                let status = stock(&folder, "etcdutl", &["snapshot", "status", &file, "-w", "json"]);
                let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
                assert_eq!(status["hash"], summary.hash);
                assert_eq!(status["revision"], summary.revision);
                assert_eq!(status["totalKey"], summary.total_keys);
                assert_eq!(status["totalSize"], summary.total_bytes);
                restored(&folder, dir.path(), &file, summary.revision, member, &all).await;
            }
        });
    }
}

async fn restored(folder: &Path, dir: &Path, file: &str, revision: i64, of: &Member, all: &Client) {
    let mut spec = Spec::alone(dir, &[]);
    spec.name = format!("etcd-of-{}", of.spec.name);
    spec.dir = dir.join(&spec.name);
    let peer = format!("http://127.0.0.1:{}", spec.peer_port);
    spec.initial_cluster = format!("{}={peer}", spec.name);
    let data = spec.dir.to_str().expect("a plain path");
    let mut args = vec!["snapshot", "restore", file, "--data-dir", data, "--name", &spec.name];
    args.extend(["--initial-cluster", &spec.initial_cluster, "--initial-cluster-token", "tests"]);
    args.extend(["--initial-advertise-peer-urls", &peer]);
    stock(folder, "etcdutl", &args);
    let mut etcd = Member::spawn_by(spec.clone(), &folder.join("etcd"));
    etcd.ready();
    let (theirs, ours) = (client_of([&etcd]), client_of([of]));
    let until = Instant::now() + PATIENCE;
    let kv = loop {
        match ours.hash_kv(revision).await {
            Ok(kv) => break kv,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    let hash = theirs.hash_kv(revision).await.expect("hashes");
    assert_eq!((hash.hash, hash.compact_revision), (kv.hash, kv.compact_revision), "at revision {revision}");
    let mut now = everything(all).await;
    now.retain(|(_, _, modified, ..)| *modified <= revision);
    let mut then = everything(&theirs).await;
    then.retain(|key| now.iter().any(|same| same.0 == key.0));
    assert_eq!(then, now);
    let lease = theirs.lease_time_to_live(77, true).await.expect("the lease is there");
    assert_eq!((lease.granted_ttl, lease.keys.len()), (5000, 1));
    assert_eq!(theirs.put("more", "1").await.expect("it writes").header.unwrap_or_default().revision, revision + 1);
    theirs.compact(revision).await.expect("it compacts");
}
