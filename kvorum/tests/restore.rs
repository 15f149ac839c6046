//! Disaster recovery with the real program alone: a snapshot of a running member, three members
//! restored from it with `kvorum utl`, and a cluster that goes on where the old one was.

mod live;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use client::wire::etcdserverpb::PutRequest;
use client::{Client, key, prefix};
use live::ops::put_request;
use live::{Member, PATIENCE, Spec, block_on, client_of, is_other};
use rustix::process::Signal;

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];

async fn save(client: &Client, to: &Path) {
    let mut snapshot = client.snapshot().await.expect("is served");
    let mut file = Vec::new();
    while let Some(piece) = snapshot.next().await.expect("comes whole") {
        file.extend_from_slice(&piece);
    }
    std::fs::write(to, file).expect("is written");
}

/// What `kvorum utl` with these words said on standard output.
fn utl(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kvorum")).arg("utl").args(words).output().expect("starts");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The member that is lost; in a folder of its own beside the new ones.
fn old_spec(dir: &Path) -> Spec {
    let dir = dir.join("old");
    std::fs::create_dir(&dir).expect("a folder");
    Spec::alone(&dir, &TIMES)
}

fn restore(file: &Path, spec: &Spec, flags: &[&str]) {
    let (file, dir) = (file.display().to_string(), spec.dir.display().to_string());
    let peer = format!("http://127.0.0.1:{}", spec.peer_port);
    let mut words = vec!["snapshot", "restore", &file, "--data-dir", &dir, "--name", &spec.name];
    words.extend(["--initial-cluster", &spec.initial_cluster, "--initial-cluster-token", "tests"]);
    words.extend(["--initial-advertise-peer-urls", &peer]);
    words.extend(flags);
    utl(&words);
}

#[test]
fn a_cluster_is_restored_from_a_snapshot_of_one() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("saved.db");
    let mut old = Member::start(old_spec(dir.path()));
    let (hash, revision) = block_on(async {
        let client = client_of([&old]);
        for n in 0..30 {
            client.put(format!("k{}", n % 9), format!("value {n}")).await.expect("puts");
        }
        client.delete(key("k3")).await.expect("deletes");
        client.lease_grant(1000, 77).await.expect("grants");
        client.put_with(PutRequest { lease: 77, ..put_request("leased", "x") }).await.expect("puts");
        client.compact(20).await.expect("compacts");
        save(&client, &file).await;
        let hash = client.hash_kv(0).await.expect("hashes");
        (hash.hash, hash.hash_revision)
    });
    old.stop(Signal::TERM);

    let specs = Spec::cluster(dir.path(), 3, &TIMES);
    for spec in &specs {
        restore(&file, spec, &[]);
        let said = utl(&["hashkv", &spec.dir.display().to_string()]);
        assert_eq!(said, format!("{hash}, {revision}, 20\n"));
    }
    let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    block_on(async {
        let client = client_of(&members);
        for member in &members {
            let found = client_of([member]).hash_kv(revision).await.expect("hashes");
            assert_eq!((found.hash, found.compact_revision), (hash, 20));
        }
        assert_eq!(client.range(prefix("k")).await.expect("reads").count, 8);
        let lease = client.lease_time_to_live(77, true).await.expect("is known");
        assert_eq!((lease.granted_ttl, &lease.keys[..]), (1000, &[b"leased".to_vec().into()][..]));
        let put = client.put("after", "the restore").await.expect("puts");
        assert_eq!(put.header.expect("a header").revision, revision + 1);
        client.lease_revoke(77).await.expect("revokes");
        assert_eq!(client.get("leased").await.expect("reads"), None);
    });
    for mut member in members {
        let dir = member.spec.dir.display().to_string();
        member.stop(Signal::TERM);
        assert!(utl(&["verify", &dir]).starts_with("OK "));
    }
}

/// An operator restores two of three while the third still runs. It has the same flags, so the same
/// ids, and a newer history: it must not undo the restore.
#[test]
fn a_living_member_of_the_cluster_before_does_not_undo_a_restore() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("saved.db");
    let mut members: Vec<Member> = Spec::cluster(dir.path(), 3, &TIMES).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    block_on(async {
        let client = client_of(&members);
        client.put("kept", "x").await.expect("puts");
        save(&client, &file).await;
        for n in 0..20 {
            client.put(format!("undone{n}"), "x").await.expect("puts");
        }
    });
    for member in &mut members[..2] {
        member.kill();
        std::fs::remove_dir_all(&member.spec.dir).expect("removes");
        restore(&file, &member.spec, &[]);
    }
    members[..2].iter_mut().for_each(Member::respawn);
    members[..2].iter_mut().for_each(Member::ready);
    block_on(async { client_of(&members[..2]).put("after", "x").await.expect("two of three take writes") });
    let until = Instant::now() + PATIENCE;
    while members[2].ended().is_none() {
        assert!(Instant::now() < until, "the member of before goes on beside the restored ones: {}", members[2].log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let log = members[2].log();
    assert!(log.lines().last().unwrap_or_default().contains("a majority, are of founding"), "{log}");
    // The third is restored from the same file: it is one of them.
    members[2].kill();
    std::fs::remove_dir_all(&members[2].spec.dir).expect("removes");
    restore(&file, &members[2].spec, &[]);
    members[2].respawn();
    members[2].ready();
    members[0].kill();
    block_on(async {
        let client = client_of(&members[1..]);
        client.put("later", "x").await.expect("the third counts");
        let found = client.range(prefix("")).await.expect("reads");
        let keys: Vec<&[u8]> = found.kvs.iter().map(|kv| &kv.key[..]).collect();
        assert_eq!(keys, [&b"after"[..], b"kept", b"later"]);
    });
}

/// One disk of a restored cluster is lost. Whoever restores that member from the same file gives it
/// the founding of the others, and nothing of what it has acknowledged since.
#[test]
fn a_member_restored_beside_the_others_does_not_vote_as_if_it_were_new() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("saved.db");
    let mut old = Member::start(old_spec(dir.path()));
    block_on(async {
        let client = client_of([&old]);
        client.put("kept", "x").await.expect("puts");
        save(&client, &file).await;
    });
    old.stop(Signal::TERM);
    let specs = Spec::cluster(dir.path(), 3, &TIMES);
    specs.iter().for_each(|spec| restore(&file, spec, &[]));
    let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    members[0].kill();
    block_on(async { client_of(&members[1..]).put("acknowledged", "x").await.expect("two of three take writes") });
    members[1..].iter_mut().for_each(Member::kill);
    std::fs::remove_dir_all(&members[2].spec.dir).expect("removes");
    restore(&file, &members[2].spec, &[]);
    members[0].respawn();
    members[2].respawn();
    let until = Instant::now() + PATIENCE;
    // Whether the first one knows that it has been there depends on how far that one had come.
    let heeds = |log: &str| log.contains("has already been bootstrapped") || log.contains("founding, late");
    while !heeds(&members[2].log()) {
        assert!(Instant::now() < until, "it asks nobody: {}", members[2].log());
        std::thread::sleep(Duration::from_millis(10));
    }
    members[1].respawn();
    members[..2].iter_mut().for_each(Member::ready);
    block_on(async {
        let found = client_of(&members[..2]).get("acknowledged").await.expect("reads");
        assert!(found.is_some(), "what was acknowledged is there");
    });
}

/// Controllers that remember a revision must not meet it again.
#[test]
fn a_bumped_revision_is_where_the_cluster_goes_on() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("saved.db");
    let mut old = Member::start(old_spec(dir.path()));
    let revision = block_on(async {
        let client = client_of([&old]);
        client.put("k", "one").await.expect("puts");
        let put = client.put("k", "two").await.expect("puts");
        save(&client, &file).await;
        put.header.expect("a header").revision
    });
    old.stop(Signal::TERM);
    let spec = Spec::alone(dir.path(), &TIMES);
    restore(&file, &spec, &["--bump-revision", "1000000", "--mark-compacted"]);
    let mut member = Member::start(spec);
    let bumped = revision + 1_000_000;
    for life in 0..2 {
        block_on(async {
            let client = client_of([&member]);
            let found = client.range(prefix("")).await.expect("reads");
            assert_eq!((found.count, found.header.expect("a header").revision), (1, bumped + life));
            assert_eq!(client.hash_kv(0).await.expect("hashes").compact_revision, bumped);
            client.put("k", "three").await.expect("puts");
        });
        member.stop(Signal::TERM);
        member.respawn();
        member.ready();
    }
}

/// The same binary under the stock tool's name is the stock tool.
#[test]
fn under_the_name_etcdutl_it_is_etcdutl() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let link = dir.path().join("etcdutl");
    symlink(env!("CARGO_BIN_EXE_kvorum"), &link).expect("a link");
    let run = |words: &[&str]| {
        let output = Command::new(&link).args(words).output().expect("starts");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    assert_eq!(run(&["version"]), ("etcdutl version: 3.7.3\nAPI version: 3.7\n".into(), Some(0)));
    assert!(run(&["--help"]).0.starts_with("Usage:\n  etcdutl [command]\n"));
    assert_eq!(run(&["verify", "."]).1, Some(1));
}
