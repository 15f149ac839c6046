//! `kvorum ctl backup` at running members: taken, listed, verified, restored to revisions that it
//! has, and what a watcher sees behind a restore that bumps the revision. With `KVORUM_TEST_ETCD`
//! also of a real etcd and for its tools.

mod live;

use client::wire::etcdserverpb::WatchCreateRequest;
use client::{Client, Error, prefix};
use live::{Ended, Member, Spec, block_on, client_of, comes, is_other, run_to_end};
use std::path::{Path, PathBuf};
use std::process::Command;

fn kvorum(words: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    command.args(words);
    run_to_end(command)
}

fn ok(words: &[&str]) -> String {
    let ended = kvorum(words);
    assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
    ended.stdout
}

fn json(words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(&[words, &["-w", "json"]].concat())).expect("JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

async fn fill(client: &Client, from: usize, to: usize) {
    for n in from..to {
        client.put(format!("k{:03}", n % 400), format!("{n}/{}", "x".repeat(600))).await.expect("puts");
    }
}

/// HashKV of a directory at a revision, as `kvorum utl hashkv` prints it.
fn hash_of(dir: &Path, revision: i64) -> String {
    ok(&["utl", "hashkv", text(dir), "--rev", &revision.to_string()])
}

/// The same of a member that runs.
async fn hash(client: &Client, revision: i64) -> String {
    let found = client.hash_kv(revision).await.expect("hashes");
    format!("{}, {}, {}\n", found.hash, found.hash_revision, found.compact_revision)
}

/// Restores a revision (0: the newest) to a directory that a member with this spec starts from.
fn restore(shelf: &str, at: i64, spec: &Spec, more: &[&str]) {
    let (at, peer) = (at.to_string(), format!("http://127.0.0.1:{}", spec.peer_port));
    let mut words = vec!["ctl", "backup", "restore", shelf, "--at", &at, "--data-dir", text(&spec.dir)];
    words.extend(["--name", &spec.name, "--initial-cluster", &spec.initial_cluster]);
    words.extend(["--initial-cluster-token", "tests", "--initial-advertise-peer-urls", &peer]);
    ok(&[&words[..], more].concat());
}

fn spec_in(dir: &Path, name: &str) -> Spec {
    let dir = dir.join(name);
    std::fs::create_dir(&dir).expect("a folder");
    Spec::alone(&dir, &[])
}

/// Other bytes come to lie in every piece.
fn spoil(shelf: &Path) {
    let within = |dir: PathBuf| std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    within(shelf.join("pieces")).flat_map(within).for_each(|piece| std::fs::write(piece, "x").expect("writes"));
}

#[test]
fn a_backup_is_restored_to_any_revision_that_it_has() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (folder, metrics) = (dir.path().join("shelf"), dir.path().join("backup.prom"));
    let shelf = text(&folder).to_owned();
    let old = Member::start(spec_in(dir.path(), "old"));
    let run = ["ctl", "--endpoints", &old.endpoint(), "backup", "run", &shelf, "--metrics-file", text(&metrics)];
    // A revision, and the hash of the keys there.
    let mut due: Vec<(i64, String)> = Vec::new();
    block_on(async {
        let client = client_of([&old]);
        fill(&client, 0, 400).await;
        let first = json(&run);
        assert_eq!((&first["revision"], &first["oldestRevision"]), (&401.into(), &1.into()), "{first}");
        due.extend([(401, hash(&client, 401).await), (201, hash(&client, 201).await)]);
        fill(&client, 400, 700).await;
        client.compact(300).await.expect("compacts");
        client.delete(prefix("k0")).await.expect("deletes");
        let newest = client.put("newest", "x").await.expect("puts").header.expect("a header").revision;
        let second = json(&run);
        assert_eq!((&second["revision"], &second["oldestRevision"]), (&newest.into(), &300.into()), "{second}");
        due.extend([(newest, hash(&client, newest).await), (550, hash(&client, 550).await)]);
        assert_eq!(json(&run)["newPieces"], 0, "nothing is new");
        // One that is killed while the snapshot comes leaves nothing that is listed.
        let slow = [&run[..], &["--limit-rate", "100000"]].concat();
        let killed = Command::new(env!("CARGO_BIN_EXE_kvorum")).args(slow).spawn().expect("starts");
        let mut killed = testkit::servers::Guarded::new(killed, dir.path());
        let incoming = folder.join(".incoming");
        comes("a part of a snapshot", || std::fs::metadata(&incoming).is_ok_and(|meta| meta.len() > 0));
        killed.end();
        assert!(incoming.exists(), "it was killed on its way");
    });
    let listed = json(&["ctl", "backup", "list", &shelf]);
    assert_eq!(listed["backups"].as_array().expect("a list").len(), 3, "{listed}");
    let told = std::fs::read_to_string(&metrics).expect("is there");
    for line in
        ["kvorum_backup_last_attempt_success 1", "kvorum_backup_last_success_revision 703", "kvorum_backup_kept 3"]
    {
        assert!(told.lines().any(|told| told == line), "{line}: {told}");
    }
    assert_eq!(ok(&["ctl", "backup", "verify", &shelf]).lines().filter(|line| line.contains(": good: ")).count(), 3);

    for (at, hash) in &due {
        let spec = spec_in(dir.path(), &format!("at{at}"));
        restore(&shelf, *at, &spec, &[]);
        assert_eq!(hash_of(&spec.dir, *at), *hash, "at {at}");
    }
    let late = kvorum(&["ctl", "backup", "restore", &shelf, "--at", "704", "--data-dir", text(&dir.path().join("no"))]);
    assert!(late.code == Some(1) && late.stderr.contains("no backup has revision 704"), "{late:?}");

    // Damage is named, and a backup that fails leaves the metrics of the last good one.
    spoil(&folder);
    let bad = kvorum(&["ctl", "backup", "verify", &shelf]);
    assert!(bad.code == Some(1) && bad.stdout.contains("is damaged"), "{bad:?}");
    let unreachable = kvorum(&[&["ctl", "--endpoints", "127.0.0.1:1"], &run[3..]].concat());
    assert_eq!(unreachable.code, Some(1), "{unreachable:?}");
    let told = std::fs::read_to_string(&metrics).expect("is there");
    assert!(told.contains("kvorum_backup_last_attempt_success 0"), "{told}");
    // The next good one puts the damaged pieces back that it has.
    let last = json(&[&run[..], &["--keep", "1"]].concat());
    assert_eq!(last["newPieces"], last["pieces"], "{last}");
    assert_eq!(ok(&["ctl", "backup", "list", &shelf]).lines().filter(|line| line.contains("good")).count(), 1);
}

/// A controller that remembers a revision of the cluster before must not see an older world behind
/// it: it is told that its revision is compacted.
#[test]
fn a_watcher_of_the_cluster_before_is_told_to_list_again() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shelf = text(&dir.path().join("shelf")).to_owned();
    let spec = spec_in(dir.path(), "old");
    let mut old = Member::start(spec.clone());
    let mut seen = 0;
    block_on(async {
        let client = client_of([&old]);
        fill(&client, 0, 50).await;
        // On a schedule: the second of them holds what was written behind the first.
        let mut words = vec!["ctl", "--endpoints"];
        let endpoint = old.endpoint();
        words.extend([&endpoint, "backup", "run", &shelf, "--every", "100ms", "--limit-rate", "100000000"]);
        let mut scheduled = Command::new(env!("CARGO_BIN_EXE_kvorum"));
        let scheduled = scheduled.args(&words).stdout(std::process::Stdio::null()).spawn().expect("starts");
        let mut scheduled = testkit::servers::Guarded::new(scheduled, dir.path());
        let taken = |count: usize| {
            let ended = kvorum(&["ctl", "backup", "list", &shelf]);
            ended.stdout.lines().filter(|line| line.contains("good")).count() >= count
        };
        comes("a backup", || taken(1));
        client.put("second", "x").await.expect("puts");
        comes("two more", || taken(3));
        scheduled.end();
        // What the cluster has behind the backup, a controller has seen.
        for n in 0..20 {
            seen = client.put("k000", format!("lost {n}")).await.expect("puts").header.expect("a header").revision;
        }
    });
    old.kill();
    std::fs::remove_dir_all(&spec.dir).expect("removes");
    restore(&shelf, 0, &spec, &["--bump-revision", "1000000", "--mark-compacted"]);
    let restored = Member::start(spec);
    block_on(async {
        let client = client_of([&restored]);
        let start_revision = seen + 1;
        let mut watch = client.watch(WatchCreateRequest { start_revision, ..prefix("k").into() });
        match watch.next().await {
            Err(Error::Compacted { oldest }) => assert!(oldest > 1_000_000, "{oldest}"),
            other => panic!("{other:?}"),
        }
        let revision = client.put("k000", "new").await.expect("puts").header.expect("a header").revision;
        assert!(revision > seen + 900_000, "{revision}");
    });
}

/// The tools of etcd's release in the folder that `KVORUM_TEST_ETCD` names.
#[test]
fn stock_snapshots_come_in_and_ours_go_out() {
    let Some(stock) = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from).filter(|_| !is_other()) else {
        eprintln!("stock_snapshots_come_in_and_ours_go_out: KVORUM_TEST_ETCD is not set");
        return;
    };
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(stock.join(program));
        command.args(words);
        let ended = run_to_end(command);
        assert_eq!(ended.code, Some(0), "{program} {words:?}: {ended:?}");
        ended.stdout
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (folder, file) = (dir.path().join("shelf"), dir.path().join("out.db"));
    let (shelf, out) = (text(&folder).to_owned(), text(&file).to_owned());

    // A backup of a real etcd, restored to ours.
    let mut etcd = Member::spawn_by(spec_in(dir.path(), "etcd"), &stock.join("etcd"));
    etcd.ready();
    let (mut due, mut revision) = (String::new(), 0);
    block_on(async {
        let client = client_of([&etcd]);
        fill(&client, 0, 500).await;
        client.compact(300).await.expect("compacts");
        client.delete(prefix("k1")).await.expect("deletes");
        let taken = json(&["ctl", "--endpoints", &etcd.endpoint(), "backup", "run", &shelf]);
        revision = taken["revision"].as_i64().expect("a number");
        due = hash(&client, revision).await;
    });
    let ours = spec_in(dir.path(), "ours");
    restore(&shelf, 0, &ours, &[]);
    assert_eq!(hash_of(&ours.dir, revision), due);

    // And what lies on the shelf, as a file for the stock tools.
    ok(&["ctl", "backup", "restore", &shelf, "--output", &out]);
    let status: serde_json::Value =
        serde_json::from_str(&run("etcdutl", &["snapshot", "status", &out, "-w", "json"])).expect("JSON");
    assert_eq!(status["revision"], revision, "{status}");
    let listed = json(&["ctl", "backup", "list", &shelf]);
    assert_eq!(status["hash"], listed["backups"][0]["hash"], "{status} {listed}");
    let theirs = dir.path().join("theirs");
    run("etcdutl", &["snapshot", "restore", &out, "--data-dir", text(&theirs)]);
    // It opens the file to write, and changes it.
    assert_eq!(run("etcdutl", &["hashkv", &out]), due);

    // A snapshot of ours that the stock tool saves is the same.
    let ours = Member::start(ours);
    let saved = text(&dir.path().join("saved.db")).to_owned();
    run("etcdctl", &["--endpoints", &ours.endpoint(), "snapshot", "save", &saved]);
    assert_eq!(run("etcdutl", &["hashkv", &saved]), due);
}
