//! Quorums that are lost for good, and the clusters that go on from what is left.

mod live;

use client::wire::etcdserverpb::Member as Listed;
use client::{Client, prefix};
use live::ops::put_request;
use live::{Member, PATIENCE, Spec, block_on, client_of, comes, free_port, is_other};
use std::path::Path;
use std::time::{Duration, Instant};

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];
const FORCE: &str = "--force-new-cluster";
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn cluster(dir: &Path, count: usize) -> Vec<Member> {
    let mut members: Vec<Member> = Spec::cluster(dir, count, &TIMES).into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    members
}

async fn fill(client: &Client, name: &str, count: usize) {
    for n in 0..count {
        client.put(format!("{name}/{n:04}"), "x".repeat(200)).await.expect("puts");
    }
}

async fn listed(client: &Client) -> Vec<Listed> {
    client.member_list().await.expect("lists").members
}

/// A member that is added, started and in step.
async fn joins(members: &[Member], name: &str, dir: &Path) -> Member {
    let (client, port) = (client_of(members), free_port());
    let url = format!("http://127.0.0.1:{port}");
    let until = Instant::now() + PATIENCE;
    let answer = loop {
        match client.member_add(vec![url.clone()], false).await {
            Ok(answer) => break answer,
            // A voter is to be heard for five seconds first, as with etcd.
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let named = answer.members.iter().map(|listed| {
        let name = if listed.peer_urls == [url.clone()] { name } else { &listed.name };
        format!("{name}={}", listed.peer_urls[0])
    });
    let spec = Spec {
        client_port: free_port(),
        peer_port: port,
        initial_cluster: named.collect::<Vec<_>>().join(","),
        dir: dir.join(name),
        extra: [&TIMES[..], &["--initial-cluster-state=existing"]].concat().iter().map(ToString::to_string).collect(),
        name: name.to_string(),
    };
    Member::start(spec)
}

/// All members hash to the same at the newest revision.
async fn agree(members: &[Member]) {
    let newest = client_of(members).put("agree", "x").await.expect("puts").header.unwrap_or_default().revision;
    let mut hashes = Vec::new();
    for member in members {
        let until = Instant::now() + PATIENCE;
        loop {
            match client_of([member]).hash_kv(newest).await {
                Ok(hash) => break hashes.push(hash.hash),
                Err(error) => assert!(Instant::now() < until, "does not catch up: {error}"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:x?}");
}

/// Two of three are lost for good. The third goes on with all that it had, and the cluster grows to
/// three again. The lost ones come back with their old data, and nobody hears them.
#[test]
fn the_last_of_three_goes_on_and_the_lost_ones_are_not_heard() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    block_on(async {
        let mut lost = cluster(dir.path(), 3);
        let client = client_of(&lost);
        fill(&client, "before", 50).await;
        let lease = client.lease_grant(600, 0).await.expect("grants").id;
        let leased = client.put_with(client::wire::etcdserverpb::PutRequest { lease, ..put_request("leased", "x") });
        let revision = leased.await.expect("puts").header.expect("a header").revision;
        let before = listed(&client).await;
        lost.iter_mut().for_each(Member::kill);
        let mut survivor = lost.remove(0);
        survivor.spec.extra.push(FORCE.to_string());
        survivor.respawn();
        survivor.ready();
        let client = client_of([&survivor]);
        let all = client.range(prefix("")).await.expect("reads");
        assert_eq!((all.kvs.len(), all.header.expect("a header").revision), (51, revision));
        assert_eq!(client.lease_time_to_live(lease, true).await.expect("is there").keys, [&b"leased"[..]]);
        let only = listed(&client).await;
        assert_eq!(only, before.into_iter().filter(|member| member.name == "m1").collect::<Vec<_>>());
        assert!(survivor.log().contains("is the only one of its cluster"), "it says what it does");

        // A majority of the old cluster is back, with its old data.
        lost.iter_mut().for_each(Member::respawn);
        comes("a line about the lost ones", || {
            lost.iter().all(|member| member.log().contains("they do not hear each other"))
        });
        fill(&client, "alone", 20).await;
        lost.iter_mut().for_each(Member::kill);

        // Without the flag from now on.
        survivor.kill();
        survivor.spec.extra.retain(|flag| flag != FORCE);
        survivor.respawn();
        survivor.ready();
        let mut members = vec![survivor];
        for name in ["m4", "m5"] {
            let member = joins(&members, name, dir.path()).await;
            members.push(member);
        }
        fill(&client_of(&members), "after", 20).await;
        agree(&members).await;
        assert_eq!(listed(&client_of(&members)).await.len(), 3);
    });
}

#[test]
fn there_is_nothing_to_go_on_with() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let spec = Spec::alone(dir.path(), &[FORCE]);
    let ended = spec.run_to_end();
    assert!(ended.code == Some(1) && ended.stderr.contains("correct --data-dir"), "{ended:?}");
    assert!(!spec.dir.exists(), "nothing is founded");
}
