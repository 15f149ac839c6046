//! Members that come, go, get a vote and move, as processes.
//!
//! What etcd answers in the same place was asked of etcd 3.7.3 (`KVORUM_TEST_BIN`), and is compared
//! with it call by call in `etcd_refuses_the_same` (`KVORUM_TEST_ETCD`).

mod live;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::wire::Code;
use client::wire::etcdserverpb::{Member as Listed, RangeRequest};
use client::{Client, Error, Options, prefix};
use live::{Member, PATIENCE, Spec, block_on, client_of, comes, http, is_other, refused, shell_code};

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];
const LOOK_EVERY: Duration = Duration::from_millis(10);
const UNHEALTHY: &str = "etcdserver: unhealthy cluster";
const NOT_STARTED: &str = "etcdserver: re-configuration failed due to not enough started members";
const NOT_READY: &str = "etcdserver: can only promote a learner member which is in sync with leader";
const FOR_VOTERS: &str = "etcdserver: rpc not supported for learner";

/// A cluster whose members come and go. The members are dropped before the folder.
struct Cluster {
    members: Vec<Member>,
    named: usize,
    dir: tempfile::TempDir,
}

fn id_of(listed: &[Listed], member: &Spec) -> u64 {
    let url = peer_url(member.peer_port);
    listed.iter().find(|listed| listed.peer_urls.contains(&url)).expect("it is listed").id
}

fn peer_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Cluster {
    fn start(count: usize, extra: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let flags = [&TIMES[..], extra].concat();
        let mut members: Vec<Member> =
            Spec::cluster(dir.path(), count, &flags).into_iter().map(Member::spawn).collect();
        members.iter_mut().for_each(Member::ready);
        Cluster { members, named: count, dir }
    }

    fn client(&self) -> Client {
        client_of(&self.members)
    }

    fn at(&self, member: usize) -> Client {
        client_of([&self.members[member]])
    }

    async fn listed(&self) -> Vec<Listed> {
        self.client().member_list().await.expect("lists").members
    }

    async fn id(&self, member: usize) -> u64 {
        id_of(&self.listed().await, &self.members[member].spec)
    }

    async fn add(&mut self, learner: bool) -> Member {
        Member::spawn(self.make_room(learner).await)
    }

    /// Adds a member that does not run yet. The cluster refuses it while a voter was not heard for
    /// five seconds, as etcd does: so this is said again.
    async fn make_room(&mut self, learner: bool) -> Spec {
        let port = live::free_port();
        let until = Instant::now() + PATIENCE;
        let answer = loop {
            match self.client().member_add(vec![peer_url(port)], learner).await {
                Ok(answer) => break answer,
                Err(error) => assert!(error.says(UNHEALTHY) && Instant::now() < until, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let added = answer.member.expect("the new member");
        assert!(added.name.is_empty() && added.is_learner == learner && added.peer_urls == [peer_url(port)]);
        assert_eq!(answer.header.expect("a header").revision, 0);
        assert!(answer.members.contains(&added) && answer.members.is_sorted_by_key(|member| member.id));
        self.named += 1;
        let name = format!("m{}", self.named);
        let named = answer.members.iter().map(|listed| {
            let name = if listed.id == added.id { &name } else { &listed.name };
            format!("{name}={}", listed.peer_urls[0])
        });
        Spec {
            client_port: live::free_port(),
            peer_port: port,
            initial_cluster: named.collect::<Vec<_>>().join(","),
            dir: self.dir.path().join(&name),
            extra: [&TIMES[..], &["--initial-cluster-state=existing"]]
                .concat()
                .iter()
                .map(ToString::to_string)
                .collect(),
            name,
        }
    }

    async fn grow(&mut self) {
        let mut member = self.add(false).await;
        member.ready();
        self.members.push(member);
    }

    /// The index of the member that leads.
    async fn leader(&self) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            for member in 0..self.members.len() {
                let Ok(status) = self.at(member).status().await else { continue };
                if status.leader != 0 && status.leader == status.header.unwrap_or_default().member_id {
                    return member;
                }
            }
            assert!(Instant::now() < until, "nobody leads");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (0..self.members.len()).find(|member| *member != leader).expect("there is another")
    }

    /// Waits until all hash to the same.
    async fn agree(&self) {
        let newest = self.client().put("agree", "x").await.expect("puts").header.unwrap_or_default().revision;
        let mut hashes = Vec::new();
        for member in 0..self.members.len() {
            let until = Instant::now() + PATIENCE;
            loop {
                match self.at(member).hash_kv(newest).await {
                    Ok(hash) => break hashes.push((hash.hash, hash.hash_revision)),
                    Err(error) => assert!(Instant::now() < until, "member {member} does not catch up: {error}"),
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:x?}");
    }
}

async fn fill(client: &Client, name: &str, count: usize) {
    for n in 0..count {
        client.put(format!("{name}{n}"), "x".repeat(100)).await.expect("puts");
    }
}

async fn count(client: &Client, name: &'static str) -> i64 {
    client.range(RangeRequest { count_only: true, ..prefix(name).into() }).await.expect("counts").count
}

fn serves(member: &Member) {
    comes("the line of a member that serves", || member.log().contains("ready to serve client requests"));
}

/// It ends by itself, as a removed member.
#[track_caller]
fn ends_as_removed(member: &mut Member) {
    comes("the end of the removed member", || member.ended().is_some());
    let log = member.log();
    let wanted =
        ["the member has been permanently removed from the cluster", "data-dir used by this member must be removed"];
    assert!(wanted.iter().all(|text| log.contains(text)), "{log}");
    if !is_other() {
        // One that restarts may end with 1 at etcd: it fails to serve before it is told.
        assert_eq!(shell_code(member.ended().expect("has ended")), Some(0));
    }
}

/// A change is refused while a voter was not heard for long enough without a gap. On a busy machine
/// there are gaps.
async fn when_healthy<T, F: Future<Output = client::Result<T>>>(mut ask: impl FnMut() -> F) -> client::Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if error.says(UNHEALTHY) && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other => return other,
        }
    }
}

#[test]
fn a_cluster_grows_from_one_to_three() {
    let mut cluster = Cluster::start(1, &[]);
    block_on(async {
        fill(&cluster.client(), "k", 200).await;
        cluster.grow().await;
        cluster.grow().await;
        assert_eq!(count(&cluster.at(2), "k").await, 200);
        cluster.agree().await;
        let listed = cluster.listed().await;
        assert!(listed.iter().all(|member| !member.name.is_empty() && member.client_urls.len() == 1), "{listed:?}");
        // They count: without the one that leads two of three go on.
        let leader = cluster.leader().await;
        let mut gone = cluster.members.remove(leader);
        gone.kill();
        let until = Instant::now() + PATIENCE;
        while let Err(error) = cluster.client().put("after", "x").await {
            assert!(Instant::now() < until, "{error}");
        }
        gone.respawn();
        gone.ready();
        cluster.members.push(gone);
        cluster.agree().await;
    });
    // All of them start again, with the flags they had.
    cluster.members.iter_mut().for_each(Member::kill);
    cluster.members.iter_mut().for_each(Member::respawn);
    cluster.members.iter_mut().for_each(Member::ready);
    block_on(cluster.agree());
    let log = cluster.members[0].log();
    assert!(log.contains("added member") && log.contains("added-peer-is-learner"), "{log}");
}

#[test]
fn a_learner_is_promoted_when_it_is_in_step() {
    let mut cluster = Cluster::start(1, &[]);
    block_on(async {
        fill(&cluster.client(), "k", 100).await;
        let spec = cluster.make_room(true).await;
        let id = id_of(&cluster.listed().await, &spec);
        refused(cluster.client().member_promote(id).await, Code::FailedPrecondition, NOT_READY);
        let client = cluster.client();
        let again = when_healthy(|| client.member_add(vec![peer_url(1)], true)).await;
        refused(again, Code::FailedPrecondition, "etcdserver: too many learner members in cluster");

        let mut learner = Member::spawn(spec);
        serves(&learner);
        // It is a learner before and behind a restart.
        for _ in 0..2 {
            let alone = client_of([&learner]);
            let serializable = || RangeRequest { serializable: true, ..prefix("k").into() };
            let until = Instant::now() + PATIENCE;
            while alone.range(serializable()).await.map_or(0, |range| range.count) < 100 {
                assert!(Instant::now() < until, "the learner does not get the keys");
                tokio::time::sleep(LOOK_EVERY).await;
            }
            assert!(alone.status().await.expect("says").is_learner);
            refused(alone.get("k1").await, Code::FailedPrecondition, FOR_VOTERS);
            refused(alone.put("k1", "x").await, Code::FailedPrecondition, FOR_VOTERS);
            refused(alone.member_list().await, Code::FailedPrecondition, FOR_VOTERS);
            refused(alone.hash_kv(0).await, Code::FailedPrecondition, FOR_VOTERS);
            let port = learner.spec.client_port;
            let put = http::post(port, "/v3/kv/put", r#"{"key":"YQ=="}"#).expect("answers").json();
            assert_eq!((put["code"].as_u64(), put["message"].as_str()), (Some(9), Some(FOR_VOTERS)));
            let watch = http::post(port, "/v3/watch", r#"{"create_request":{"key":"YQ=="}}"#).expect("answers");
            assert!(watch.body.contains(FOR_VOTERS), "{watch:?}");
            assert_eq!(http::get(port, "/health").expect("answers").status, 200);
            let ready = http::get(port, "/readyz").expect("answers");
            assert!(ready.status == 503 && ready.body.contains("[-]non_learner failed"), "{ready:?}");
            let metrics = http::get(port, "/metrics").expect("answers").body;
            assert!(metrics.contains("etcd_server_is_learner 1"));
            learner.kill();
            learner.respawn();
            comes("a port", || http::get(learner.spec.client_port, "/health").is_ok());
        }
        let until = Instant::now() + PATIENCE;
        let promoted = loop {
            match cluster.client().member_promote(id).await {
                Ok(answer) => break answer,
                Err(error) => assert!(error.says(NOT_READY) && Instant::now() < until, "{error}"),
            }
        };
        assert!(promoted.members.iter().all(|member| !member.is_learner));
        learner.ready();
        cluster.members.push(learner);
        let again = cluster.client().member_promote(id).await;
        refused(again, Code::FailedPrecondition, "etcdserver: can only promote a learner member");
        cluster.agree().await;
        let metrics = http::get(cluster.members[0].spec.client_port, "/metrics").expect("answers").body;
        assert!(metrics.contains("etcd_server_learner_promote_successes 1"), "{metrics}");
        assert!(metrics.contains(&format!("etcd_server_learner_promote_failures{{Reason=\"{NOT_READY}\"}}")));
        assert!(cluster.members[0].log().contains("promote member"));
    });
}

#[test]
fn a_removed_follower_ends_and_does_not_come_back() {
    let mut cluster = Cluster::start(3, &[]);
    let mut gone = block_on(async {
        let follower = cluster.follower().await;
        let id = cluster.id(follower).await;
        let gone = cluster.members.remove(follower);
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Asked of itself: it answers before it ends. An etcd may stop before it does.
        let asked = if is_other() { cluster.client() } else { client_of([&gone]) };
        let answer = when_healthy(|| asked.member_remove(id)).await.expect("removes");
        assert_eq!(answer.members.len(), 2);
        refused(cluster.client().member_remove(id).await, Code::NotFound, "etcdserver: member not found");
        gone
    });
    let id = {
        ends_as_removed(&mut gone);
        block_on(async { fill(&cluster.client(), "k", 20).await });
        gone.kill();
        gone.respawn();
        ends_as_removed(&mut gone);
        gone.spec.dir.clone()
    };
    if is_other() {
        return;
    }
    // With an empty directory, and as a founder: its id does not come back.
    std::fs::remove_dir_all(&id).expect("removes");
    gone.kill();
    gone.respawn();
    comes("the end of the removed founder", || gone.ended().is_some());
    assert_eq!(shell_code(gone.ended().expect("has ended")), Some(1));
    let log = gone.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("was removed from the cluster") && last.contains("member add"), "{last}");
    assert!(!id.exists(), "a refused start leaves no directory");
    for member in &cluster.members {
        comes("the end of its series", || {
            let metrics = http::get(member.spec.client_port, "/metrics").expect("answers").body;
            metrics.lines().filter(|line| line.starts_with("etcd_network_active_peers{")).count() == 1
        });
        assert!(member.log().contains("removed member"));
    }
    block_on(cluster.agree());
}

/// A member that was down when it was removed hears of it from the others.
#[test]
fn a_member_that_was_down_when_it_was_removed_ends_at_its_start() {
    let mut cluster = Cluster::start(3, &[]);
    block_on(async {
        let follower = cluster.follower().await;
        let id = cluster.id(follower).await;
        let mut gone = cluster.members.remove(follower);
        gone.kill();
        // As soon as it counts as down.
        let until = Instant::now() + PATIENCE;
        while let Err(error) = cluster.client().member_remove(id).await {
            assert!(error.says(UNHEALTHY) && Instant::now() < until, "{error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        gone.respawn();
        ends_as_removed(&mut gone);
        cluster.agree().await;
    });
}

#[test]
fn the_leader_is_removed() {
    let mut cluster = Cluster::start(3, &[]);
    block_on(async {
        fill(&cluster.client(), "k", 20).await;
        let leader = cluster.leader().await;
        let id = cluster.id(leader).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Asked of itself.
        let own = cluster.at(leader);
        let asked = when_healthy(|| own.member_remove(id)).await;
        assert_eq!(asked.expect("removes itself").members.len(), 2);
        let mut gone = cluster.members.remove(leader);
        ends_as_removed(&mut gone);
        assert_eq!(count(&cluster.client(), "k").await, 20);
        cluster.agree().await;
        gone.kill();
        gone.respawn();
        ends_as_removed(&mut gone);
    });
}

#[test]
fn a_member_moves_to_another_port() {
    let mut cluster = Cluster::start(3, &[]);
    block_on(async {
        fill(&cluster.client(), "k", 20).await;
        let follower = cluster.follower().await;
        let id = cluster.id(follower).await;
        let port = live::free_port();
        let answer = cluster.client().member_update(id, vec![peer_url(port)]).await.expect("updates");
        let listed = answer.members.iter().find(|member| member.id == id).expect("is listed");
        assert_eq!(listed.peer_urls, [peer_url(port)]);
        let moved = &mut cluster.members[follower];
        moved.kill();
        moved.spec.peer_port = port;
        moved.respawn();
        moved.ready();
        cluster.agree().await;
        assert!(cluster.members.iter().any(|member| member.log().contains("updated member")));
    });
}

/// The cluster was not told: the member names its place itself, and is found.
#[test]
fn a_member_that_moved_before_the_cluster_was_told_is_found() {
    if is_other() {
        return;
    }
    let mut cluster = Cluster::start(3, &[]);
    block_on(async {
        let leader = cluster.leader().await;
        let moved = &mut cluster.members[leader];
        moved.kill();
        moved.spec.peer_port = live::free_port();
        moved.respawn();
        moved.ready();
        // It can be reached, so that a command of one of the others comes back to it.
        cluster.agree().await;
    });
}

/// Every key that was acknowledged is there behind it.
#[test]
fn a_member_is_replaced_under_load() {
    let mut cluster = Cluster::start(3, &[]);
    block_on(async {
        let follower = cluster.follower().await;
        let id = cluster.id(follower).await;
        let writers =
            client_of(cluster.members.iter().filter(|member| member.spec.name != cluster.members[follower].spec.name));
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let writer = |name: usize| {
            let (writers, stop) = (writers.clone(), stop.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for n in 0.. {
                    // On a busy machine the change may be over before anything is written.
                    if n >= 20 && stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("load{name}-{n:06}");
                    if writers.put(key.clone(), "x".repeat(200)).await.is_ok() {
                        acknowledged.push(key);
                    }
                }
                acknowledged
            })
        };
        let load: Vec<_> = (0..8).map(writer).collect();
        let mut dead = cluster.members.remove(follower);
        dead.kill();
        let until = Instant::now() + PATIENCE;
        while let Err(error) = cluster.client().member_remove(id).await {
            assert!(error.says(UNHEALTHY) && Instant::now() < until, "{error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        cluster.grow().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        for writer in load {
            acknowledged.extend(writer.await.expect("the load ends"));
        }
        assert!(acknowledged.len() > 100, "{}", acknowledged.len());
        cluster.agree().await;
        // What the new member has of its own.
        let mine = RangeRequest { serializable: true, keys_only: true, ..prefix("load").into() };
        let found = cluster.at(2).range(mine).await.expect("reads").kvs;
        let found: std::collections::BTreeSet<_> = found.into_iter().map(|kv| kv.key).collect();
        let lost: Vec<_> = acknowledged.iter().filter(|key| !found.contains(key.as_bytes())).collect();
        assert!(lost.is_empty(), "{} acknowledged keys are lost: {lost:?}", lost.len());
    });
}

#[test]
fn nobody_is_added_while_a_voter_is_down() {
    let mut cluster = Cluster::start(3, &[]);
    block_on(async {
        let follower = cluster.follower().await;
        let mut down = cluster.members.remove(follower);
        down.kill();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let added = cluster.client().member_add(vec![peer_url(1)], false).await;
        refused(added, Code::Unavailable, UNHEALTHY);
        // Another one may not go either.
        let follower = cluster.follower().await;
        let removed = cluster.client().member_remove(cluster.id(follower).await).await;
        refused(removed, Code::Unavailable, UNHEALTHY);
        down.respawn();
        down.ready();
        cluster.members.push(down);
        // Now all are connected.
        cluster.grow().await;
        cluster.agree().await;
    });
}

#[test]
fn nobody_is_added_while_one_that_was_never_started() {
    let mut cluster = Cluster::start(1, &[]);
    block_on(async {
        cluster.grow().await;
        let spec = cluster.make_room(false).await;
        // Two of four have started, and three are needed.
        refused(cluster.client().member_add(vec![peer_url(1)], false).await, Code::Unknown, NOT_STARTED);
        let started = cluster.id(0).await;
        refused(cluster.client().member_remove(started).await, Code::Unknown, NOT_STARTED);
        let mut added = Member::start(spec);
        added.ready();
        cluster.members.push(added);
        cluster.agree().await;
    });
}

/// It would forget what it acknowledged. etcd starts it.
#[test]
fn an_emptied_member_does_not_join_again() {
    if is_other() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    block_on(cluster.grow());
    let mut second = cluster.members.pop().expect("two");
    // As a joiner, and as a founder: then it takes itself for a member of another cluster.
    for state in ["existing", "new"] {
        second.kill();
        std::fs::remove_dir_all(&second.spec.dir).ok();
        second.spec.extra.retain(|flag| !flag.contains("cluster-state"));
        second.spec.extra.push(format!("--initial-cluster-state={state}"));
        second.respawn();
        comes("the end of the emptied member", || second.ended().is_some());
        assert_eq!(shell_code(second.ended().expect("has ended")), Some(1));
        let log = second.log();
        let last = log.lines().last().unwrap_or_default();
        let parts = ["has already been bootstrapped", "member remove", "member add m2 --peer-urls=http://127.0.0.1:"];
        assert!(parts.iter().all(|part| last.contains(part)), "{state}: {last}");
        assert!(!second.spec.dir.exists(), "a refused start leaves no directory");
    }
}

/// Its id is not that of its flags, as a founder's is: the cluster has to say that it is right.
#[test]
fn the_identity_of_a_joined_member_is_written_anew() {
    if is_other() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    block_on(cluster.grow());
    let mut second = cluster.members.pop().expect("two");
    let damage = |second: &mut Member, url: Option<u16>| {
        second.kill();
        let path = second.spec.dir.join("identity");
        let mut bytes = std::fs::read(&path).expect("reads");
        bytes[20] ^= 1;
        std::fs::write(&path, bytes).expect("writes");
        if let Some(port) = url {
            let own = peer_url(second.spec.peer_port);
            second.spec.initial_cluster = second.spec.initial_cluster.replace(&own, &peer_url(port));
            second.spec.peer_port = port;
            second.spec.initial_cluster = second.spec.initial_cluster.replace("m2=", "m9=");
            second.spec.name = "m9".into();
        }
        second.respawn();
    };
    damage(&mut second, None);
    second.ready();
    assert!(second.log().contains("the identity is written anew"), "{}", second.log());
    cluster.members.push(second);
    block_on(cluster.agree());
    // Under the flags of another member it is not believed.
    let mut second = cluster.members.pop().expect("two");
    damage(&mut second, Some(live::free_port()));
    comes("the end of the member", || second.ended().is_some());
    let log = second.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("identity at byte 0: damaged") && last.contains("is not what the flags say"), "{last}");
}

/// It was added, and is started as a founder of another cluster by mistake.
#[test]
fn an_added_member_that_would_found_is_told_how_to_join() {
    if is_other() {
        return;
    }
    let mut cluster = Cluster::start(1, &[]);
    let mut spec = block_on(cluster.make_room(true));
    spec.extra.retain(|flag| !flag.contains("cluster-state"));
    let ended = spec.run_to_end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("--initial-cluster-state existing") && last.contains("was added"), "{last}");
    assert!(!spec.dir.exists(), "a refused start leaves no directory");
}

#[test]
fn a_join_that_was_interrupted_goes_on() {
    let mut cluster = Cluster::start(1, &[]);
    block_on(async {
        fill(&cluster.client(), "k", 50).await;
        let mut joiner = cluster.add(true).await;
        // At some place of its first moments, thrice.
        for millis in [30, 80, 200] {
            std::thread::sleep(Duration::from_millis(millis));
            joiner.kill();
            joiner.respawn();
        }
        serves(&joiner);
        let id = id_of(&cluster.listed().await, &joiner.spec);
        let until = Instant::now() + PATIENCE;
        while let Err(error) = cluster.client().member_promote(id).await {
            assert!(error.says(NOT_READY) && Instant::now() < until, "{error}");
        }
        joiner.ready();
        cluster.members.push(joiner);
        cluster.agree().await;
    });
}

/// Starts that are refused, in etcd's words.
#[test]
fn a_join_that_does_not_fit_is_refused() {
    let cluster = Cluster::start(1, &[]);
    let first = &cluster.members[0].spec;
    let (known, own, nobody) = (first.initial_cluster.clone(), live::free_port(), live::free_port());
    let table = [
        (known.clone(), "couldn't find local name \"m9\" in the initial cluster configuration"),
        (format!("m1={0},m9={0}", peer_url(own)), "has duplicate url"),
        (format!("{known},m9={}", peer_url(own)), "}: member count is unequal"),
        (
            format!("m9={}", peer_url(own)),
            "cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs",
        ),
        (
            format!("m1={},m9={}", peer_url(nobody), peer_url(own)),
            "cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs",
        ),
    ];
    for (initial_cluster, text) in table {
        let spec = Spec {
            name: "m9".into(),
            client_port: live::free_port(),
            peer_port: own,
            initial_cluster,
            dir: cluster.dir.path().join("m9"),
            extra: vec!["--initial-cluster-state=existing".into()],
        };
        let ended = spec.run_to_end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("discovery failed") && last.contains(&text.replace('"', "\\\"")), "{text}: {last}");
        assert!(is_other() || !spec.dir.exists());
        std::fs::remove_dir_all(&spec.dir).ok();
    }
}

/// Asks for one change, and gives code and text as they go over the wire.
fn say(port: u16, call: &str, body: &str) -> (u64, String) {
    let answer = http::post(port, &format!("/v3/cluster/member/{call}"), body).expect("answers").json();
    match answer["code"].as_u64() {
        Some(code) => (code, answer["message"].as_str().unwrap_or_default().to_owned()),
        None => (0, format!("{} members", answer["members"].as_array().map_or(0, Vec::len))),
    }
}

/// The same calls on a cluster of one and on one of three of which one is down.
fn refusals(program: Option<&Path>) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let start = |spec: Spec| match program {
        Some(program) => Member::spawn_by(spec, program),
        None => Member::spawn(spec),
    };
    let mut said = Vec::new();
    {
        let mut alone = start(Spec::alone(dir.path(), &[]));
        alone.ready();
        let port = alone.spec.client_port;
        let list = http::post(port, "/v3/cluster/member/list", "{}").expect("answers").json();
        let ours = list["members"][0]["ID"].as_str().expect("an id").to_owned();
        let own_url = peer_url(alone.spec.peer_port);
        let mut learner = String::new();
        let calls = [
            ("add", r#"{"peerURLs":[]}"#.to_owned()),
            ("add", r#"{"peerURLs":["127.0.0.1:1"]}"#.into()),
            ("add", r#"{"peerURLs":["http://127.0.0.1:1/"]}"#.into()),
            ("add", r#"{"peerURLs":["http://127.0.0.1"]}"#.into()),
            ("add", r#"{"peerURLs":["ftp://127.0.0.1:1"]}"#.into()),
            ("remove", r#"{"ID":"1"}"#.into()),
            ("promote", r#"{"ID":"1"}"#.into()),
            ("update", r#"{"ID":"1","peerURLs":["http://127.0.0.1:9"]}"#.into()),
            ("remove", format!(r#"{{"ID":"{ours}"}}"#)),
            ("promote", format!(r#"{{"ID":"{ours}"}}"#)),
            ("update", format!(r#"{{"ID":"{ours}","peerURLs":["{own_url}"]}}"#)),
            ("add", r#"{"peerURLs":["http://127.0.0.1:9"],"isLearner":true}"#.into()),
            ("add", r#"{"peerURLs":["http://127.0.0.1:8"],"isLearner":true}"#.into()),
            ("add", r#"{"peerURLs":["http://127.0.0.1:9"]}"#.into()),
            ("add", format!(r#"{{"peerURLs":["{own_url}"],"isLearner":true}}"#)),
            ("promote", r#"{"ID":"LEARNER"}"#.into()),
            ("update", format!(r#"{{"ID":"LEARNER","peerURLs":["{own_url}"]}}"#)),
            ("remove", r#"{"ID":"LEARNER"}"#.into()),
            ("remove", r#"{"ID":"LEARNER"}"#.into()),
            ("promote", r#"{"ID":"LEARNER"}"#.into()),
            ("update", r#"{"ID":"LEARNER","peerURLs":["http://127.0.0.1:7"]}"#.into()),
        ];
        for (call, body) in calls {
            // The same URLs give the same id within a second.
            std::thread::sleep(Duration::from_millis(if call == "add" { 1_001 } else { 0 }));
            let (code, text) = say(port, call, &body.replace("LEARNER", &learner));
            said.push(format!("{call} {}: {code} {text}", body.replace(&ours, "OURS").replace(&own_url, "URL")));
            let list = http::post(port, "/v3/cluster/member/list", "{}").expect("answers").json();
            let ids = list["members"].as_array().expect("a list").iter();
            if let Some(id) = ids.filter(|member| member["isLearner"] == true).find_map(|member| member["ID"].as_str())
            {
                learner = id.to_owned();
            }
        }
    }
    let mut members: Vec<Member> = Spec::cluster(&dir.path().join("three"), 3, &TIMES)
        .into_iter()
        .map(|spec| {
            std::fs::create_dir_all(spec.dir.parent().expect("a parent")).expect("makes it");
            start(spec)
        })
        .collect();
    members.iter_mut().for_each(Member::ready);
    std::thread::sleep(Duration::from_secs(6));
    let port = members[0].spec.client_port;
    let list = http::post(port, "/v3/cluster/member/list", "{}").expect("answers").json();
    let by_name = |name: &str| {
        let members = list["members"].as_array().expect("a list");
        members
            .iter()
            .find(|member| member["name"] == name)
            .and_then(|member| member["ID"].as_str())
            .expect("is there")
            .to_owned()
    };
    members[2].kill();
    std::thread::sleep(Duration::from_secs(3));
    for (call, body) in [
        ("add", r#"{"peerURLs":["http://127.0.0.1:9"]}"#.to_owned()),
        ("add", r#"{"peerURLs":["http://127.0.0.1:9"],"isLearner":true}"#.into()),
        ("remove", format!(r#"{{"ID":"{}"}}"#, by_name("m2"))),
        ("remove", format!(r#"{{"ID":"{}"}}"#, by_name("m3"))),
    ] {
        let (code, text) = say(port, call, &body);
        let body = body.replace(&by_name("m2"), "M2").replace(&by_name("m3"), "M3");
        said.push(format!("one is down: {call} {body}: {code} {text}"));
    }
    said
}

#[test]
fn etcd_refuses_the_same() {
    let Some(folder) = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from) else {
        eprintln!("etcd_refuses_the_same: KVORUM_TEST_ETCD is not set");
        return;
    };
    let (ours, theirs) = (refusals(None), refusals(Some(&folder.join("etcd"))));
    println!("{}", theirs.join("\n"));
    let differ: Vec<_> = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs).collect();
    assert!(ours.len() == theirs.len() && differ.is_empty(), "{differ:#?}");
}

/// Where etcd ends.
#[test]
fn urls_that_nobody_can_dial_are_refused() {
    if is_other() {
        return;
    }
    let cluster = Cluster::start(1, &[]);
    block_on(async {
        let id = cluster.id(0).await;
        for url in ["nonsense", "http://a"] {
            let bad = "etcdserver: given member URLs are invalid";
            refused(cluster.client().member_update(id, vec![url.into()]).await, Code::InvalidArgument, bad);
            refused(cluster.client().member_add(vec![url.into()], false).await, Code::InvalidArgument, bad);
        }
        // Without strict checks the members alone count.
        let options = Options::of([cluster.members[0].endpoint()]);
        let hasty = Client::connect(Options { request_timeout: Some(Duration::from_millis(1500)), ..options });
        let removed = hasty.expect("an endpoint").member_remove(id).await;
        assert_eq!(
            removed.expect_err("the last one"),
            Error::Server { code: Code::Unknown, message: NOT_STARTED.into() }
        );
    });
}

/// Every command of the stock client, from a cluster of one to one that has changed its members.
#[test]
fn the_stock_etcdctl_changes_the_members() {
    let Some(folder) = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from) else {
        eprintln!("the_stock_etcdctl_changes_the_members: KVORUM_TEST_ETCD is not set");
        return;
    };
    let mut cluster = Cluster::start(1, &[]);
    let endpoint = cluster.members[0].endpoint();
    let ctl = |words: &[&str]| {
        let mut command = std::process::Command::new(folder.join("etcdctl"));
        live::clean(&mut command);
        live::run_to_end({
            command.args(["--endpoints", &endpoint]).args(words);
            command
        })
    };
    let (peer, client) = (live::free_port(), live::free_port());
    let added = ctl(&["member", "add", "m2", "--learner", "--peer-urls", &peer_url(peer)]);
    assert!(added.code == Some(0) && added.stdout.contains(" added as learner to cluster "), "{added:?}");
    let printed = |name: &str| {
        let line = added.stdout.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{added:?}")).trim_matches('"').to_owned()
    };
    let id = added.stdout.split_whitespace().nth(1).expect("an id").to_owned();
    let mut learner = Member::spawn(Spec {
        name: printed("ETCD_NAME"),
        client_port: client,
        peer_port: peer,
        initial_cluster: printed("ETCD_INITIAL_CLUSTER"),
        dir: cluster.dir.path().join("m2"),
        extra: vec![format!("--initial-cluster-state={}", printed("ETCD_INITIAL_CLUSTER_STATE"))],
    });
    serves(&learner);
    let health = ctl(&["member", "list"]);
    assert!(health.stdout.contains(&format!("{id}, started, m2, {}", peer_url(peer))), "{health:?}");
    let until = Instant::now() + PATIENCE;
    loop {
        let promoted = ctl(&["member", "promote", &id]);
        if promoted.code == Some(0) {
            assert!(promoted.stdout.contains(" promoted in cluster "), "{promoted:?}");
            break;
        }
        assert!(promoted.stderr.contains(NOT_READY) && Instant::now() < until, "{promoted:?}");
    }
    learner.ready();
    let moved = ctl(&["member", "update", &id, "--peer-urls", &peer_url(peer)]);
    assert!(moved.code == Some(0) && moved.stdout.contains(" updated in cluster "), "{moved:?}");
    let clash = ctl(&["member", "update", &id, "--peer-urls", &peer_url(cluster.members[0].spec.peer_port)]);
    assert!(clash.code == Some(1) && clash.stderr.contains("etcdserver: Peer URLs already exists"), "{clash:?}");
    std::thread::sleep(Duration::from_secs(5));
    let removed = ctl(&["member", "remove", &id]);
    assert!(removed.code == Some(0) && removed.stdout.contains(" removed from cluster "), "{removed:?}");
    ends_as_removed(&mut learner);
    block_on(async { cluster.agree().await });
    cluster.members.clear();
}
