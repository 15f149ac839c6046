//! Members whose files are damaged, as processes: with peers they come back by themselves.

mod live;

use bytes::Bytes;
use client::wire::etcdserverpb::RangeRequest;
use client::{Client, prefix};
use disk::checkpoint::Manifest;
use live::{Member, PATIENCE, Spec, block_on, client_of, is_other};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Members compare their states at entries divisible by this.
const DIGEST_EVERY: usize = 4_096;

/// Three members with some data, of which the last is stopped.
fn one_of_three_is_down(dir: &Path) -> Vec<Member> {
    let mut members: Vec<Member> = Spec::cluster(dir, 3, &TIMES).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    block_on(async {
        let client = client_of(&members);
        for n in 0..50 {
            client.put(format!("k{n}"), format!("value {n}")).await.expect("puts");
        }
        sees(&members[2], 50).await;
    });
    members[2].stop(Signal::TERM);
    block_on(async {
        client_of(&members[..2]).put("k-later", "x").await.expect("two of three acknowledge");
    });
    members
}

async fn count(client: &Client) -> Option<i64> {
    let request = RangeRequest { serializable: true, count_only: true, ..prefix("k").into() };
    client.range(request).await.ok().map(|range| range.count)
}

async fn sees(member: &Member, keys: i64) {
    let client = client_of([member]);
    let until = Instant::now() + PATIENCE;
    while count(&client).await != Some(keys) {
        assert!(Instant::now() < until, "{} does not have {keys} keys: {}", member.spec.name, member.log());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn agree(members: &[Member], revision: i64) {
    let mut hashes = Vec::new();
    for member in members {
        let hash = client_of([member]).hash_kv(revision).await.expect("hashes");
        hashes.push(hash.hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

/// The files of a member whose paths below its directory begin with `part`, ascending.
fn files(member: &Member, part: &str) -> Vec<PathBuf> {
    let (dir, name) = part.split_once('/').expect("a folder and a name");
    let names = fs::read_dir(member.spec.dir.join(dir)).expect("is there").map(|entry| entry.expect("reads").path());
    let mut found: Vec<PathBuf> =
        names.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(name))).collect();
    found.sort();
    assert!(!found.is_empty(), "no file {part}");
    found
}

fn comes_back(mut members: Vec<Member>, said: &str) {
    members[2].respawn();
    members[2].ready();
    block_on(async {
        sees(&members[2], 51).await;
        let revision = client_of([&members[2]]).get("k0").await.map(|_| 52).expect("reads");
        agree(&members, revision).await;
        client_of([&members[2]]).put("k-after", "x").await.expect("writes go on");
    });
    let log = members[2].log();
    assert!(log.contains(said), "{log}");
    let until = Instant::now() + PATIENCE;
    while fs::read_dir(members[2].spec.dir.join("aside")).is_ok_and(|mut names| names.next().is_some()) {
        assert!(Instant::now() < until, "damaged files stay");
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn a_damaged_log_is_made_good_by_the_others() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let members = one_of_three_is_down(dir.path());
    let path = files(&members[2], "log/0").remove(0);
    let mut bytes = fs::read(&path).expect("reads");
    let at = bytes.windows(8).position(|window| window == b"value 20").expect("the log has the value");
    bytes[at] ^= 1;
    fs::write(&path, bytes).expect("writes");
    comes_back(members, "damaged: cut there");
}

#[test]
fn a_member_without_a_checkpoint_starts_over() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let members = one_of_three_is_down(dir.path());
    for path in files(&members[2], "state/manifest-") {
        let mut bytes = fs::read(&path).expect("reads");
        bytes[30] ^= 1;
        fs::write(&path, bytes).expect("writes");
    }
    comes_back(members, "this member starts over");
}

/// Its digest is another one from now on.
fn make_differ(member: &Member) {
    for path in files(member, "state/manifest-") {
        let bytes = Bytes::from(fs::read(&path).expect("reads"));
        let mut manifest = Manifest::decode("manifest", &bytes).expect("whole");
        let mut head = manifest.image_head().expect("whole");
        head.digest ^= 1;
        manifest.head = Bytes::from(head.encode());
        fs::write(&path, manifest.encode()).expect("writes");
    }
}

#[test]
fn a_member_that_differs_restarts_in_place_and_is_rebuilt() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut members = one_of_three_is_down(dir.path());
    make_differ(&members[2]);
    members[2].respawn();
    members[2].ready();
    let pid = members[2].pid();
    block_on(async {
        let client = client_of(&members[..2]);
        let put = |n: usize| {
            let client = client.clone();
            async move {
                // One that waits for a new leader may be refused meanwhile.
                while client.put(format!("k{}", n % 50), "x").await.is_err() {}
            }
        };
        for batch in (0..DIGEST_EVERY).collect::<Vec<_>>().chunks(256) {
            futures_util::future::join_all(batch.iter().copied().map(put)).await;
        }
        let until = Instant::now() + PATIENCE;
        while !members[2].log().contains("the leader's state is in place") {
            assert!(Instant::now() < until, "it is not rebuilt: {}", members[2].log());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    let log = members[2].log();
    for text in ["differs from what the other members agree on", "restarting the member", "receiving the snapshot"] {
        assert!(log.contains(text), "{text}: {log}");
    }
    assert!(members[2].ended().is_none() && members[2].pid() == pid, "whoever looks after the process sees no end");
    members[2].ready();
    block_on(async {
        client_of([&members[2]]).put("k-last", "x").await.expect("writes go on");
        sees(&members[2], 52).await;
        let status = client_of([&members[2]]).get("k-last").await.expect("reads").expect("is there");
        agree(&members, status.mod_revision).await;
    });
}
