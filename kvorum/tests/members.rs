//! Three members as processes: what the loss of one or two of them does, and what not.

mod live;

use std::time::{Duration, Instant};

use client::wire::Code;
use client::wire::etcdserverpb::{RangeRequest, StatusResponse, WatchCreateRequest};
use client::{Client, Error, key, prefix};
use live::{Member, PATIENCE, Spec, block_on, client_of, is_other, shell_code};
use rustix::process::Signal;

const TIMES: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];
const LOOK_EVERY: Duration = Duration::from_millis(10);

struct Three {
    // Dropped in this order.
    members: Vec<Member>,
    _dir: tempfile::TempDir,
}

impl Three {
    fn start() -> Three {
        Three::with(&TIMES)
    }

    fn with(times: &[&str]) -> Three {
        Three::each_with(times, |_, _| ())
    }

    /// `alone`: flags of one member more, by its number.
    fn each_with(times: &[&str], alone: impl Fn(usize, &mut Vec<String>)) -> Three {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut specs = Spec::cluster(dir.path(), 3, times);
        specs.iter_mut().enumerate().for_each(|(member, spec)| alone(member, &mut spec.extra));
        let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
        members.iter_mut().for_each(Member::ready);
        Three { members, _dir: dir }
    }

    fn at(&self, member: usize) -> Client {
        client_of([&self.members[member]])
    }

    fn all(&self) -> Client {
        client_of(&self.members)
    }

    async fn status(&self, member: usize) -> StatusResponse {
        self.at(member).status().await.expect("says its status")
    }

    /// Who leads, and in which term, as that member says itself.
    async fn leader(&self, among: &[usize]) -> (usize, u64) {
        let until = Instant::now() + PATIENCE;
        loop {
            for member in among {
                let status = self.status(*member).await;
                if status.leader != 0 && status.leader == status.header.unwrap_or_default().member_id {
                    return (*member, status.raft_term);
                }
            }
            assert!(Instant::now() < until, "no leader among {among:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until all have applied the same and hash to the same, and gives that hash.
    async fn agree(&self) -> u32 {
        let newest = self.all().put("agree", "x").await.expect("puts").header.unwrap_or_default().revision;
        let mut hashes = Vec::new();
        for member in 0..3 {
            let until = Instant::now() + PATIENCE;
            loop {
                match self.at(member).hash_kv(newest).await {
                    Ok(hash) => break hashes.push((hash.hash, hash.compact_revision, hash.hash_revision)),
                    Err(error) => assert!(Instant::now() < until, "member {member} does not catch up: {error}"),
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:x?}");
        hashes[0].0
    }
}

fn others(member: usize) -> Vec<usize> {
    (0..3).filter(|other| *other != member).collect()
}

#[test]
fn writes_go_on_after_the_leader_is_killed_and_all_agree_when_it_is_back() {
    if is_other() {
        // A write in flight when the leader dies fails there after seconds.
        return;
    }
    let mut three = Three::start();
    block_on(async {
        for member in 0..3 {
            three.at(member).put(format!("k{member}"), "x").await.expect("puts");
            for reader in 0..3 {
                let pair = three.at(reader).get(format!("k{member}")).await.expect("reads");
                assert!(pair.is_some(), "what was put on {member} is missing on {reader}");
            }
        }
        let (leader, term) = three.leader(&[0, 1, 2]).await;
        let alive = others(leader);
        let mut watch = three.at(alive[0]).watch(WatchCreateRequest { start_revision: 2, ..prefix("k").into() });
        watch.ready().await.expect("watches");
        let lease = three.all().lease_grant(60, 0).await.expect("grants").id;

        three.members[leader].kill();
        let killed = Instant::now();
        let client = client_of(alive.iter().map(|member| &three.members[*member]));
        let mut done = 0;
        while done == 0 {
            match client.put("k-after", "x").await {
                Ok(_) => done += 1,
                // It may have been on its way when the leader died.
                Err(error) => assert!(killed.elapsed() < PATIENCE, "{error} after {:?}", killed.elapsed()),
            }
        }
        println!("the first write took {:?}", killed.elapsed());
        for n in 0..50 {
            client.put(format!("k-more-{n:02}"), "x").await.expect("goes on");
        }
        assert!(three.leader(&alive).await.1 > term);
        assert_eq!(client.lease_time_to_live(lease, false).await.expect("asks").granted_ttl, 60);

        // Each put once, in order, over the change of leaders.
        let (mut keys, mut last) = (Vec::new(), 0);
        while keys.len() < 54 {
            for event in watch.next().await.expect("goes on").events {
                let kv = event.kv.unwrap_or_default();
                assert!(kv.mod_revision > last, "{last} before {}", kv.mod_revision);
                last = kv.mod_revision;
                keys.push(kv.key);
            }
        }
        assert_eq!((&keys[0][..], &keys[3][..], &keys[53][..]), (&b"k0"[..], &b"k-after"[..], &b"k-more-49"[..]));

        three.members[leader].respawn();
        three.members[leader].ready();
        three.agree().await;
        let pair = three.at(leader).get("k-more-49").await.expect("reads");
        assert!(pair.is_some(), "it has caught up");
    });
}

#[test]
fn a_leader_that_is_asked_to_stop_hands_over_first() {
    if is_other() {
        // With connections open it takes seconds to stop.
        return;
    }
    // So long that no member begins an election of its own while the machine is busy.
    let mut three = Three::with(&["--heartbeat-interval=100", "--election-timeout=5000"]);
    block_on(async {
        three.all().put("a", "x").await.expect("puts");
        let (leader, term) = three.leader(&[0, 1, 2]).await;
        let begin = Instant::now();
        let (status, _) = three.members[leader].stop(Signal::TERM);
        assert_eq!(shell_code(status), Some(143));
        let (_, next) = three.leader(&others(leader)).await;
        assert_eq!(next, term + 1, "one election, and no more");
        // The others need not first find out that it is gone.
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?} without a leader", begin.elapsed());
    });
}

#[test]
fn without_a_majority_nothing_is_promised_and_nothing_is_lost() {
    let mut three = Three::start();
    block_on(async {
        let before = three.all().put("a", "x").await.expect("puts").header.unwrap_or_default().revision;
        while three.status(2).await.header.unwrap_or_default().revision < before {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    three.members[0].kill();
    three.members[1].kill();
    block_on(async {
        // One member of three reads what it has, if that is enough.
        let serializable = RangeRequest { serializable: true, ..key("a").into() };
        assert_eq!(three.at(2).range(serializable).await.expect("reads its own").count, 1);
        let alone = client::Options::of([three.members[2].endpoint()]);
        let alone = Client::connect(client::Options { request_timeout: Some(Duration::from_millis(1500)), ..alone })
            .expect("an endpoint");
        for result in [alone.put("b", "x").await.err(), alone.get("a").await.err()] {
            match result {
                Some(
                    Error::Timeout { .. } | Error::Server { code: Code::Unavailable | Code::DeadlineExceeded, .. },
                ) => {}
                other => panic!("{other:?}"),
            }
        }
        let health = live::http::get(three.members[2].spec.client_port, "/health").expect("answers");
        assert_eq!(health.status, 503, "{health:?}");
    });
    three.members[0].respawn();
    three.members[0].ready();
    block_on(async {
        assert!(three.at(0).get("a").await.expect("reads").is_some());
        three.at(2).put("c", "x").await.expect("puts");
    });
    three.members[1].respawn();
    three.members[1].ready();
    block_on(async { three.agree().await });
}

#[test]
fn all_members_know_the_same_cluster_and_leadership_moves_on_request() {
    // The flag is being changed, one member after the other.
    let three = Three::each_with(&TIMES, |member, flags| {
        flags.extend((member == 0).then(|| "--max-request-bytes=10485760".to_owned()));
    });
    block_on(async {
        let mut lists = Vec::new();
        for member in 0..3 {
            let mut list = three.at(member).member_list().await.expect("lists").members;
            list.sort_by_key(|member| member.id);
            assert!(list.iter().all(|member| !member.name.is_empty() && member.client_urls.len() == 1), "{list:?}");
            lists.push(list);
        }
        assert!(lists.iter().all(|list| *list == lists[0]), "{lists:?}");
        assert_eq!(lists[0].len(), 3);

        let (leader, term) = three.leader(&[0, 1, 2]).await;
        let target = others(leader)[0];
        let id = three.status(target).await.header.unwrap_or_default().member_id;
        live::refused(three.at(target).move_leader(id).await, Code::FailedPrecondition, "etcdserver: not leader");
        three.at(leader).move_leader(id).await.expect("moves");
        assert_eq!(three.leader(&[0, 1, 2]).await, (target, term + 1));
        // A write on each: two of them pass it on.
        for member in 0..3 {
            three.at(member).put("a", "x").await.expect("puts");
        }
        three.agree().await;

        // What one member may take all of them take, whoever leads.
        for leader in [1, 0] {
            let (before, _) = three.leader(&[0, 1, 2]).await;
            if before != leader {
                let id = three.status(leader).await.header.unwrap_or_default().member_id;
                three.at(before).move_leader(id).await.expect("moves");
            }
            three.at(0).put("long", vec![b'x'; 8 << 20]).await.expect("puts what is long");
            three.at(2).put("a", "y").await.expect("puts");
        }
        three.agree().await;
    });
}

/// With an election timeout of ten seconds: whoever waited for it would be too late.
#[test]
fn a_killed_leader_is_not_waited_for() {
    if is_other() {
        return; // etcd waits
    }
    block_on(async {
        let mut three = Three::with(&["--heartbeat-interval=1000", "--election-timeout=10000"]);
        let (leader, term) = three.leader(&[0, 1, 2]).await;
        three.all().put("before", "one").await.expect("acknowledged");
        three.members[leader].kill();
        let since = Instant::now();
        let alive = others(leader);
        three.at(alive[0]).put("behind", "two").await.expect("acknowledged by the next leader");
        let took = since.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(three.leader(&alive).await.1 > term);
        assert!(three.at(alive[1]).get("behind").await.expect("answered").is_some());
        println!("the next write was acknowledged after {took:?}");
    });
}
