//! The leader of three members is killed again and again, under a watch, a
//! lease, a lock and an election: nothing is missed, nothing happens twice.

mod real;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use client::{
    Client, Error, Options,
    concurrency::{Election, Mutex, Session},
    key, prefix,
    wire::etcdserverpb::{PutRequest, RequestOp, TxnRequest, WatchCreateRequest, request_op::Request},
};
use real::{Cluster, PATIENCE, programs};
use tokio::{task::JoinHandle, time::timeout};

const ROUNDS: usize = 3;
/// Seconds that a session lives without a renewal: more than an election takes on a busy machine.
const LIFE: i64 = 20;

/// What goes on while members die.
struct Work {
    client: Client,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn again(&self) -> Work {
        Work { client: self.client.clone(), stop: Arc::clone(&self.stop) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missed_and_nothing_happens_twice() {
    let Some(programs) = programs("failover") else { return };
    let mut cluster = Cluster::start(&programs, 3, "http", &[]);
    let options = Options { request_timeout: Some(Duration::from_secs(20)), ..cluster.options() };
    let client = Client::connect(options.clone()).unwrap();
    cluster.ready(&client).await;
    let work = Work { client, stop: Arc::default() };
    let watched = watch(work.again()).await;
    let leased = lease(work.again()).await;
    let locked = lock(&work);
    let elected = elect(work.again()).await;
    for round in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = cluster.leader(&work.client).await;
        eprintln!("round {round}: member {leader} dies");
        cluster.kill(leader);
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.run(leader);
        cluster.ready(&work.client).await;
    }
    work.stop.store(true, Ordering::SeqCst);
    for (name, task) in [("watch", watched), ("lease", leased), ("lock", locked), ("election", elected)] {
        timeout(PATIENCE, task).await.unwrap_or_else(|_| panic!("{name} does not end")).unwrap();
    }
}

/// Puts go on, and a watch sees all that were done, once.
async fn watch(work: Work) -> JoinHandle<()> {
    let watching = Client::connect(work.client.options().clone()).unwrap();
    let first = work.client.put("watched/first", "").await.unwrap().header.unwrap().revision;
    let mut watcher = watching.watch(WatchCreateRequest { start_revision: first, ..prefix("watched/").into() });
    tokio::spawn(async move {
        let writes = tokio::spawn(async move {
            let (mut done, mut unknown) = (0, 0);
            while work.on() || done <= 50 {
                match work.client.put("watched/a", format!("{done}")).await {
                    Ok(_) => done += 1,
                    Err(error) if error.maybe_done() => unknown += 1,
                    Err(error) => panic!("{error}"),
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            let last = work.client.put("watched/last", "").await.unwrap().header.unwrap().revision;
            eprintln!("watch: {done} writes done, {unknown} unknown");
            (work.client, last)
        });
        let revisions = |batch: client::Batch| batch.events.into_iter().map(|e| e.kv.unwrap().mod_revision);
        let mut seen = Vec::new();
        let mut writes = writes;
        let (client, last) = loop {
            tokio::select! {
                batch = watcher.next() => seen.extend(revisions(batch.unwrap())),
                ended = &mut writes => break ended.unwrap(),
            }
        };
        while seen.last().is_none_or(|seen| *seen < last) {
            seen.extend(revisions(watcher.next().await.unwrap()));
        }
        // Another watch over the same time, undisturbed.
        let mut all = Vec::new();
        let mut undisturbed = client.watch(WatchCreateRequest { start_revision: first, ..prefix("watched/").into() });
        while all.last().is_none_or(|seen| *seen < last) {
            all.extend(revisions(undisturbed.next().await.unwrap()));
        }
        assert!(all.len() > 50, "{}", all.len());
        assert_eq!(seen, all);
    })
}

/// A session is kept, and its key with it.
async fn lease(work: Work) -> JoinHandle<()> {
    let session = Session::new(&work.client, LIFE / 2).await.unwrap();
    let put = PutRequest { key: "leased".into(), lease: session.lease(), ..Default::default() };
    work.client.put_with(put).await.unwrap();
    tokio::spawn(async move {
        while work.on() {
            assert!(!session.is_lost());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(work.client.get("leased").await.unwrap().unwrap().version, 1);
        session.close().await.unwrap();
        assert_eq!(work.client.get("leased").await.unwrap(), None);
    })
}

/// Sessions take a lock in turn: never two at a time, each later than the one
/// before.
fn lock(work: &Work) -> JoinHandle<()> {
    let inside = Arc::new(AtomicBool::new(false));
    let fence = Arc::new(AtomicI64::new(0));
    let turns = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..3)
        .map(|n| {
            let work = work.again();
            let (inside, fence, turns) = (Arc::clone(&inside), Arc::clone(&fence), Arc::clone(&turns));
            tokio::spawn(async move {
                let session = Session::new(&work.client, LIFE).await.unwrap();
                let mutex = Mutex::new(&session, "jobs");
                // A slow machine needs some time more.
                let few = || n < 2 && turns.load(Ordering::SeqCst) <= 20;
                while work.on() || few() {
                    if n == 2 {
                        // One that gives up leaves the queue to the others.
                        let _ = timeout(Duration::from_millis(10), mutex.lock()).await.map(|held| {
                            let held = held.unwrap();
                            tokio::spawn(async move { held.unlock().await })
                        });
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        continue;
                    }
                    let held = mutex.lock().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two have the lock");
                    let before = fence.swap(held.revision(), Ordering::SeqCst);
                    assert!(before < held.revision(), "{before} {}", held.revision());
                    let put = PutRequest { key: "guarded".into(), ..Default::default() };
                    let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
                    let guarded = TxnRequest { compare: vec![held.is_owner()], success, ..Default::default() };
                    match work.client.txn(guarded).await {
                        Ok(done) => assert!(done.succeeded),
                        Err(error) => assert!(error.maybe_done(), "{error}"),
                    }
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.store(false, Ordering::SeqCst);
                    held.unlock().await.unwrap();
                }
                session.close().await.unwrap();
            })
        })
        .collect();
    tokio::spawn(async move {
        for worker in workers {
            worker.await.unwrap();
        }
        let turns = turns.load(Ordering::SeqCst);
        eprintln!("lock: {turns} turns");
        assert!(turns > 20, "{turns}");
    })
}

/// A leader says one thing after the other, and an observer hears each once;
/// then the next one leads.
async fn elect(work: Work) -> JoinHandle<()> {
    let session = Session::new(&work.client, LIFE).await.unwrap();
    let leadership = Election::new(&session, "chair").campaign("0").await.unwrap();
    let observing = Client::connect(work.client.options().clone()).unwrap();
    let mut observer = observing.election_observe("chair");
    assert_eq!(&observer.next().await.unwrap().value[..], b"0");
    tokio::spawn(async move {
        let next = {
            let client = work.client.clone();
            tokio::spawn(async move {
                let session = Session::new(&client, LIFE).await.unwrap();
                let leadership = Election::new(&session, "chair").campaign("next").await.unwrap();
                (session, leadership)
            })
        };
        let speaker = tokio::spawn(async move {
            let mut said = 0;
            while work.on() {
                said += 1;
                leadership.proclaim(format!("{said}")).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            leadership.resign().await.unwrap();
            session.close().await.unwrap();
            said
        });
        let mut heard = Vec::new();
        loop {
            let kv = observer.next().await.unwrap();
            if kv.value == "next" {
                break;
            }
            heard.push(String::from_utf8(kv.value.to_vec()).unwrap());
        }
        let said = speaker.await.unwrap();
        eprintln!("election: {said} things said");
        assert_eq!(heard, (1..=said).map(|n| n.to_string()).collect::<Vec<_>>());
        let (session, leadership) = next.await.unwrap();
        assert_eq!(&observing.election_leader("chair").await.unwrap().key, leadership.key());
        session.close().await.unwrap();
        assert_eq!(observing.election_leader("chair").await, Err(Error::NoLeader));
        assert_eq!(leadership.proclaim("late").await, Err(Error::NotLeader));
        assert_eq!(observing.range(key("chair")).await.unwrap().count, 0);
    })
}
