//! Quorums that are lost for good, and the clusters that go on from what is left.

mod live;

use client::wire::etcdserverpb::{Member as Listed, PutRequest};
use client::{Client, prefix};
use live::ops::put_request;
use live::{Member, PATIENCE, Spec, block_on, client_of, comes, is_other, run_to_end};
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// What `kvorum ctl recover` with these words plans.
fn planned(words: &[&str]) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    command.args(["ctl", "recover", "--dry-run", "-w", "json"]).args(words);
    let ended = run_to_end(command);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// The plan's commands, as they are to be typed.
fn steps(plan: &serde_json::Value) -> Vec<String> {
    let steps = plan["steps"].as_array().unwrap_or_else(|| panic!("no plan: {plan}"));
    steps.iter().map(|step| step["command"].as_str().expect("a command").to_string()).collect()
}

/// Types a command; again while a voter was not heard for five seconds, or a learner is behind, as
/// with etcd.
fn type_it(line: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_kvorum")).parent().expect("a folder").display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let until = Instant::now() + PATIENCE;
    loop {
        let mut command = Command::new("sh");
        let ended = run_to_end({
            command.args(["-c", line]).env("PATH", &path);
            command
        });
        if ended.code == Some(0) {
            return ended.stdout;
        }
        assert!(Instant::now() < until, "{line}: {ended:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The member that a command starts, in `dir` if it is to be another than the plan's.
fn spec_of(line: &str, dir: Option<PathBuf>) -> Spec {
    let words: Vec<&str> = line.split_whitespace().collect();
    let flag = |name: &str| words[words.iter().position(|word| *word == name).expect("the flag") + 1].to_string();
    let port = |name: &str| flag(name).rsplit(':').next().expect("a port").parse().expect("a port");
    let last = words.iter().position(|word| *word == "--initial-cluster").expect("the last flag of all") + 2;
    Spec {
        name: flag("--name"),
        client_port: port("--listen-client-urls"),
        peer_port: port("--listen-peer-urls"),
        initial_cluster: flag("--initial-cluster"),
        dir: dir.unwrap_or_else(|| flag("--data-dir").into()),
        extra: TIMES.iter().copied().chain(words[last..].iter().copied()).map(str::to_string).collect(),
    }
}

/// Lets the first member go on alone; `meanwhile` it runs with the flag.
fn goes_on(steps: &[String], meanwhile: impl FnOnce(&Member)) -> Member {
    let mut survivor = Member::start(spec_of(&steps[0], None));
    assert!(type_it(&steps[1]).contains("true"), "it leads");
    meanwhile(&survivor);
    survivor.kill();
    Member::start(spec_of(&steps[2], None))
}

/// Adds so many others: the plan's commands, three for each.
fn grows(members: &mut Vec<Member>, steps: &[String], count: usize, dir: &Path) {
    for three in steps[3..].chunks(3).take(count) {
        type_it(&three[0]);
        let name = spec_of(&three[1], None).name;
        members.push(Member::spawn(spec_of(&three[1], Some(dir.join(format!("{name}.new"))))));
        type_it(&three[2]);
        members.last_mut().expect("it was just added").ready();
    }
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
        let leased = client.put_with(PutRequest { lease, ..put_request("leased", "x") });
        let revision = leased.await.expect("puts").header.expect("a header").revision;
        let before = listed(&client).await;
        lost.iter_mut().for_each(Member::kill);

        let all: Vec<String> = lost.iter().map(|member| member.spec.dir.display().to_string()).collect();
        let why = planned(&all.iter().map(String::as_str).collect::<Vec<_>>())["unfit"].to_string();
        assert!(why.contains("3 of 3 voters are whole, and 2 are a majority"), "{why}");
        let plan = planned(&[&all[0]]);
        assert_eq!(plan["directories"][0]["revision"], revision, "{plan}");
        let possibly = plan["lost"]["possibly"][0].to_string();
        assert!(possibly.contains(&format!("(revision {revision})")), "{plan}");

        lost.remove(0);
        let steps = steps(&plan);
        let survivor = goes_on(&steps, |survivor| {
            assert!(survivor.log().contains("is the only one of its cluster"), "it says what it does");
            // A majority of the old cluster is back, with its old data.
            lost.iter_mut().for_each(Member::respawn);
            comes("a line about the lost ones", || {
                lost.iter().all(|member| member.log().contains("they do not hear each other"))
            });
            lost.iter_mut().for_each(Member::kill);
        });
        let client = client_of([&survivor]);
        let all = client.range(prefix("")).await.expect("reads");
        assert_eq!((all.kvs.len(), all.header.expect("a header").revision), (51, revision));
        assert_eq!(client.lease_time_to_live(lease, true).await.expect("is there").keys, [&b"leased"[..]]);
        let only = listed(&client).await;
        assert_eq!(only, before.into_iter().filter(|member| member.name == "m1").collect::<Vec<_>>());

        let mut members = vec![survivor];
        grows(&mut members, &steps, 2, dir.path());
        fill(&client_of(&members), "after", 20).await;
        agree(&members).await;
        assert_eq!(listed(&client_of(&members)).await.len(), 3);
    });
}

/// Of five two are left, and one of them has more than the other.
#[test]
fn the_newer_of_two_survivors_of_five_is_chosen() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    block_on(async {
        let mut all = cluster(dir.path(), 5);
        fill(&client_of(&all), "before", 20).await;
        let mut behind = all.remove(0);
        behind.kill();
        fill(&client_of(&all), "more", 20).await;
        let newest = client_of(&all).put("last", "x").await.expect("puts").header.expect("a header").revision;
        // A put is acknowledged before the last of five has it.
        comes("the put on the other survivor", || revision_of(&all[0]) == newest);
        all.iter_mut().for_each(Member::kill);
        let dirs = [&behind, &all[0]].map(|member| member.spec.dir.display().to_string());
        let plan = planned(&[&dirs[0], &dirs[1]]);
        let name = all[0].spec.name.clone();
        assert_eq!((&plan["chosen"]["name"], &plan["directories"][1]["revision"]), (&name.into(), &newest.into()));
        assert!(plan["directories"][0]["revision"].as_i64().expect("a number") < newest, "{plan}");

        let steps = steps(&plan);
        let mut members = vec![goes_on(&steps, |_| {})];
        grows(&mut members, &steps, 2, dir.path());
        agree(&members).await;
        let last = client_of(&members).get("last").await.expect("reads");
        assert_eq!(last.map(|kv| kv.mod_revision), Some(newest));
    });
}

/// The revision that a member has.
fn revision_of(member: &Member) -> i64 {
    let answer = live::http::post(member.spec.client_port, "/v3/maintenance/status", "{}").expect("answers").json();
    answer["header"]["revision"].as_str().expect("a number").parse().expect("a number")
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
