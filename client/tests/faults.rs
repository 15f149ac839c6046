//! What the client does when things go wrong, against a server that does what
//! it is told.

mod fake;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use client::{Client, Credentials, Error, Options, Spread, key, prefix};
use fake::{Call, End, Fake, Reply, UNAVAILABLE};
use wire::{
    etcdserverpb::*,
    mvccpb::{Event, KeyValue},
};

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..Default::default() })
}

/// Notes what was called, with the token it came with.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, call: &Call) {
        let token = call.header("token").map(|t| format!(" as {t}")).unwrap_or_default();
        self.0.lock().unwrap().push(format!("{}{token}", call.method()));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Answers by name of the method; whatever the test does not name is put or
/// got.
async fn fake(log: &Log, mut special: impl FnMut(&Call) -> Option<Reply> + Send + 'static) -> Fake {
    let log = log.clone();
    Fake::new(move |call| {
        log.note(&call);
        special(&call).unwrap_or_else(|| match call.method() {
            "Put" => Reply::with(&PutResponse { header: header(2), ..Default::default() }),
            "Range" => Reply::with(&RangeResponse { header: header(2), ..Default::default() }),
            _ => Reply::fails(12, "unknown method"),
        })
    })
    .await
}

/// What must come does so within this time, even on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

fn hasty(fakes: &[&Fake]) -> Options {
    Options {
        request_timeout: Some(PATIENCE),
        backoff: Duration::from_millis(5),
        ..Options::of(fakes.iter().map(|fake| fake.endpoint.clone()))
    }
}

/// Fails the first calls in these ways; `None` answers.
fn first(mut fails: Vec<Reply>) -> impl FnMut(&Call) -> Option<Reply> + Send {
    fails.reverse();
    move |_| fails.pop()
}

#[tokio::test]
async fn reads_are_repeated_writes_only_if_nothing_was_done() {
    let unavailable = || Reply::fails(UNAVAILABLE, "etcdserver: request timed out");
    let leaderless = || Reply::fails(UNAVAILABLE, "etcdserver: no leader");
    let cut = || Reply::default().ends(End::Cut);
    for (what, write, failure, calls) in [
        ("a read without an answer", false, cut as fn() -> Reply, 3),
        ("a read that timed out there", false, unavailable, 3),
        ("a write without an answer", true, cut, 1),
        ("a write that timed out there", true, unavailable, 1),
        ("a write that nobody took", true, leaderless, 3),
        ("a read that is wrong", false, || Reply::fails(3, "etcdserver: key is not provided"), 1),
        ("a write that is wrong", true, || Reply::fails(3, "etcdserver: key is not provided"), 1),
    ] {
        let log = Log::default();
        let server = fake(&log, first(vec![failure(), failure()])).await;
        let client = Client::connect(hasty(&[&server])).unwrap();
        let done = match write {
            true => client.put("a", "b").await.map(drop),
            false => client.get("a").await.map(drop),
        };
        assert_eq!((log.take().len(), done.is_ok()), (calls, calls == 3), "{what}: {done:?}");
        if let (Err(error), true) = (&done, write) {
            let maybe = !error.says("etcdserver: key is not provided");
            assert_eq!(error.maybe_done(), maybe, "{what}: {error}");
        }
    }
}

#[tokio::test]
async fn an_endpoint_that_is_of_no_use_is_left_and_found_again() {
    let logs = [Log::default(), Log::default()];
    let leaderless = Arc::new(Mutex::new(true));
    let first = {
        let leaderless = Arc::clone(&leaderless);
        move |_: &Call| leaderless.lock().unwrap().then(|| Reply::fails(UNAVAILABLE, "etcdserver: no leader"))
    };
    let (a, b) = (fake(&logs[0], first).await, fake(&logs[1], |_| None).await);
    let client = Client::connect(hasty(&[&a, &b])).unwrap();
    for _ in 0..5 {
        client.put("a", "b").await.unwrap();
    }
    assert_eq!((logs[0].take().len(), logs[1].take().len()), (1, 5));
    // The second one goes: the first one is of use again.
    *leaderless.lock().unwrap() = false;
    b.close();
    let mut done = 0;
    for _ in 0..5 {
        done += usize::from(client.put("a", "b").await.is_ok());
    }
    assert!(done >= 4, "{done}");
    assert!(logs[0].take().len() >= 4);
}

#[tokio::test]
async fn round_robin_spreads_and_leaves_out_what_is_gone() {
    let logs = [Log::default(), Log::default(), Log::default()];
    let servers = [fake(&logs[0], |_| None).await, fake(&logs[1], |_| None).await, fake(&logs[2], |_| None).await];
    let options = Options { spread: Spread::RoundRobin, ..hasty(&[&servers[0], &servers[1], &servers[2]]) };
    let client = Client::connect(options).unwrap();
    // The connections are made beside the first requests: until all three are there.
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        logs.iter().for_each(|log| drop(log.take()));
        for _ in 0..servers.len() {
            client.get("a").await.unwrap();
        }
        if logs.each_ref().map(|log| log.take().len()) == [1, 1, 1] {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "one of three is never asked");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..30 {
        client.get("a").await.unwrap();
    }
    assert_eq!(logs.each_ref().map(|log| log.take().len()), [10, 10, 10]);
    servers[1].close();
    tokio::time::sleep(Duration::from_millis(20)).await;
    for _ in 0..30 {
        client.get("a").await.unwrap();
    }
    let counts = logs.each_ref().map(|log| log.take().len());
    assert!(counts[0] >= 10 && counts[1] == 0 && counts[2] >= 10, "{counts:?}");
}

/// A server with users: each token is good until it is given up.
fn guarded(valid: &Arc<Mutex<u32>>) -> impl FnMut(&Call) -> Option<Reply> + Send + use<> {
    let valid = Arc::clone(valid);
    move |call| {
        let valid = *valid.lock().unwrap();
        if call.method() == "Authenticate" {
            let request: AuthenticateRequest = call.read();
            return Some(if (request.name.as_str(), request.password.as_str()) == ("ann", "secret") {
                Reply::with(&AuthenticateResponse { token: format!("t{valid}"), ..Default::default() })
            } else {
                Reply::fails(3, "etcdserver: authentication failed, invalid user ID or password")
            });
        }
        match call.header("token") {
            Some(token) if token == format!("t{valid}") => None,
            Some(_) => Some(Reply::fails(16, "etcdserver: invalid auth token")),
            None => Some(Reply::fails(3, "etcdserver: user name is empty")),
        }
    }
}

fn ann(password: &str) -> Option<Credentials> {
    Some(Credentials { name: "ann".to_owned(), password: password.to_owned() })
}

#[tokio::test]
async fn a_token_is_got_once_and_replaced_when_it_is_refused() {
    let (log, valid) = (Log::default(), Arc::new(Mutex::new(1)));
    let server = fake(&log, guarded(&valid)).await;
    let client = Client::connect(Options { user: ann("secret"), ..hasty(&[&server]) }).unwrap();
    client.put("a", "b").await.unwrap();
    client.get("a").await.unwrap();
    assert_eq!(log.take(), ["Authenticate", "Put as t1", "Range as t1"]);
    *valid.lock().unwrap() = 2;
    // A refusal for the token is a promise that nothing was done: writes too.
    client.put("a", "b").await.unwrap();
    assert_eq!(log.take(), ["Put as t1", "Authenticate", "Put as t2"]);
    // Other clients of the same cluster share it.
    client.single(&server.endpoint).unwrap().get("a").await.unwrap();
    assert_eq!(log.take(), ["Range as t2"]);
}

#[tokio::test]
async fn a_wrong_password_and_a_foreign_token_are_refused_once() {
    let (log, valid) = (Log::default(), Arc::new(Mutex::new(1)));
    let server = fake(&log, guarded(&valid)).await;
    let client = Client::connect(Options { user: ann("wrong"), ..hasty(&[&server]) }).unwrap();
    let error = client.put("a", "b").await.unwrap_err();
    assert_eq!(error.etcd_text(), "etcdserver: authentication failed, invalid user ID or password");
    assert_eq!(client.sign_in().await, Err(error));
    assert_eq!(log.take(), ["Authenticate", "Authenticate"]);
    let client = Client::connect(Options { token: Some("jwt".to_owned()), ..hasty(&[&server]) }).unwrap();
    assert_eq!(client.get("a").await.unwrap_err().etcd_text(), "etcdserver: invalid auth token");
    assert_eq!(log.take(), ["Range as jwt"]);
}

#[tokio::test]
async fn a_cluster_without_users_takes_one_all_the_same() {
    let log = Log::default();
    let server = fake(&log, |call| {
        (call.method() == "Authenticate").then(|| Reply::fails(9, "etcdserver: authentication is not enabled"))
    })
    .await;
    let client = Client::connect(Options { user: ann("secret"), ..hasty(&[&server]) }).unwrap();
    client.put("a", "b").await.unwrap();
    client.put("a", "b").await.unwrap();
    assert_eq!(log.take(), ["Authenticate", "Put", "Put"]);
}

#[tokio::test]
async fn a_token_that_is_never_taken_does_not_loop() {
    let log = Log::default();
    let server = fake(&log, |call| {
        Some(match call.method() {
            "Authenticate" => Reply::with(&AuthenticateResponse { token: "t".to_owned(), ..Default::default() }),
            _ => Reply::fails(3, "etcdserver: revision of auth store is old"),
        })
    })
    .await;
    let client = Client::connect(Options { user: ann("secret"), ..hasty(&[&server]) }).unwrap();
    assert_eq!(client.get("a").await.unwrap_err().etcd_text(), "etcdserver: revision of auth store is old");
    assert_eq!(log.take().len(), 6);
}

/// The history of a store: event `n` is at revision `n`.
fn event(revision: i64) -> Event {
    let kv = KeyValue { key: "k".into(), mod_revision: revision, ..Default::default() };
    Event { kv: Some(kv), ..Default::default() }
}

#[tokio::test]
async fn a_watch_over_broken_streams_misses_nothing_and_repeats_nothing() {
    const LAST: i64 = 400;
    let log = Log::default();
    // Each stream carries a few events, cut anywhere: whole batches, halves of
    // fragments, batches that overlap what was given, refusals.
    let mut seed = 7u64;
    let server = fake(&log, move |call| {
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let request: WatchRequest = call.read();
        let Some(watch_request::RequestUnion::CreateRequest(create)) = request.request_union else {
            panic!("only one watch is asked for");
        };
        if draw(5) == 0 {
            return Some(Reply::fails(UNAVAILABLE, "etcdserver: no leader"));
        }
        let mut reply = Reply::with(&WatchResponse { created: true, header: header(LAST), ..Default::default() });
        let (mut next, mut open) = (create.start_revision, false);
        for _ in 0..draw(4) {
            // A server may say again what it is not sure to have said.
            let from = if !open && draw(4) == 0 { (next - 2).max(1) } else { next };
            let events: Vec<Event> = (from..=LAST).take(1 + draw(4) as usize).map(event).collect();
            let Some(last) = events.last() else { break };
            next = last.kv.as_ref().unwrap().mod_revision + 1;
            open = draw(3) == 0;
            reply = reply.and(&WatchResponse { events, fragment: open, header: header(LAST), ..Default::default() });
        }
        Some(reply.ends(if draw(2) == 0 { End::Cut } else { End::Status(UNAVAILABLE, "etcdserver: server stopped") }))
    })
    .await;
    let options = Options { backoff: Duration::from_millis(1), ..hasty(&[&server]) };
    let client = Client::connect(options).unwrap();
    let mut watcher = client.watch(WatchCreateRequest { start_revision: 1, ..key("k").into() });
    let mut seen = Vec::new();
    while seen.len() < LAST as usize {
        // Dropped while it waits, now and then.
        if let Ok(batch) = tokio::time::timeout(Duration::from_millis(20), watcher.next()).await {
            seen.extend(batch.unwrap().events.into_iter().map(|e| e.kv.unwrap().mod_revision));
        }
    }
    assert_eq!(seen, (1..=LAST).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watch_that_is_refused_for_its_token_gets_another() {
    let (log, refused) = (Log::default(), Arc::new(Mutex::new(true)));
    let server = {
        let refused = Arc::clone(&refused);
        fake(&log, move |call| {
            if call.method() == "Authenticate" {
                return Some(Reply::with(&AuthenticateResponse { token: "t".to_owned(), ..Default::default() }));
            }
            let created = WatchResponse { created: true, header: header(1), ..Default::default() };
            let reason = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
            let ended = WatchResponse { canceled: true, cancel_reason: reason.to_owned(), ..created.clone() };
            let news = WatchResponse { events: vec![event(2)], header: header(2), ..Default::default() };
            Some(match *refused.lock().unwrap() {
                true => {
                    // The next one is taken.
                    if log_of(call) { Reply::with(&ended) } else { Reply::with(&created).and(&news) }
                }
                false => Reply::with(&ended),
            })
        })
        .await
    };
    let client = Client::connect(Options { user: ann("secret"), ..hasty(&[&server]) }).unwrap();
    let mut watcher = client.watch(prefix("k"));
    assert_eq!(watcher.next().await.unwrap().events.len(), 1);
    assert_eq!(log.take(), ["Authenticate", "Watch as t", "Authenticate", "Watch as t"]);
    // One that is refused whatever it shows ends.
    *refused.lock().unwrap() = false;
    let error = client.watch(prefix("k")).next().await.unwrap_err();
    assert!(matches!(&error, Error::Canceled { reason } if reason.ends_with("invalid auth token")), "{error}");
}

/// Whether this is the first call of its connection's life with a watch.
fn log_of(call: &Call) -> bool {
    use std::sync::atomic::{AtomicBool, Ordering};
    static FIRST: AtomicBool = AtomicBool::new(true);
    call.method() == "Watch" && FIRST.swap(false, Ordering::SeqCst)
}

#[tokio::test]
async fn a_lease_is_renewed_through_cuts_and_silence() {
    let log = Log::default();
    let mut number = 0;
    let server = fake(&log, move |call| {
        let id = call.read::<LeaseKeepAliveRequest>().id;
        number += 1;
        let alive = Reply::with(&LeaseKeepAliveResponse { id, ttl: 30, ..Default::default() });
        Some(match number {
            1 => alive,
            2 => Reply::default().ends(End::Cut),
            3 => Reply::fails(2, "not a primary lessor"),
            4 => Reply::fails(UNAVAILABLE, "etcdserver: no leader"),
            5 => alive.ends(End::Cut),
            6 => alive,
            _ => Reply::with(&LeaseKeepAliveResponse { id, ttl: 0, ..Default::default() }),
        })
    })
    .await;
    let client = Client::connect(hasty(&[&server])).unwrap();
    let mut renewal = client.keep_alive(77);
    for round in 0..4 {
        assert_eq!(renewal.renew().await, Ok(30), "{round}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        if round == 2 {
            break;
        }
    }
    assert_eq!(renewal.renew().await, Err(Error::LeaseGone { id: 77 }));
}

#[tokio::test]
async fn a_session_knows_when_its_lease_is_lost() {
    use client::concurrency::Session;
    // Seconds: long enough for a busy machine between two renewals.
    const TTL: i64 = 3;
    let renewals = Arc::new(Mutex::new(0));
    let server = {
        let renewals = Arc::clone(&renewals);
        fake(&Log::default(), move |call| match call.method() {
            "LeaseGrant" => Some(Reply::with(&LeaseGrantResponse { id: 5, ttl: TTL, ..Default::default() })),
            "LeaseKeepAlive" => {
                let mut renewals = renewals.lock().unwrap();
                *renewals += 1;
                let alive = Reply::with(&LeaseKeepAliveResponse { id: 5, ttl: TTL, ..Default::default() });
                // After the first, nobody answers any more.
                Some(if *renewals <= 1 { alive } else { Reply::default().ends(End::Hang) })
            }
            _ => None,
        })
        .await
    };
    let client = Client::connect(hasty(&[&server])).unwrap();
    let session = Session::new(&client, TTL).await.unwrap();
    let begun = tokio::time::Instant::now();
    assert!(!session.is_lost());
    tokio::time::timeout(PATIENCE, session.lost()).await.expect("it is lost");
    assert!(session.is_lost());
    // A renewal at a third of its life, then a whole life without one.
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(TTL as u64), "{took:?}");
    assert!(*renewals.lock().unwrap() > 1);
}

#[tokio::test]
async fn a_snapshot_is_checked_by_its_digest() {
    use sha2::Digest;
    let wrong = Arc::new(Mutex::new(0u8));
    let server = {
        let wrong = Arc::clone(&wrong);
        fake(&Log::default(), move |_| {
            let database = vec![1u8; 1024];
            let mut digest = sha2::Sha256::digest(&database).to_vec();
            let mut reply = Reply::default();
            let piece = |remaining_bytes, blob: &[u8]| SnapshotResponse {
                remaining_bytes,
                blob: blob.to_vec().into(),
                version: "3.7.0".to_owned(),
                ..Default::default()
            };
            for (n, blob) in database.chunks(300).enumerate() {
                reply = reply.and(&piece(1024 - (n as u64 * 300 + blob.len() as u64), blob));
            }
            let end = match *wrong.lock().unwrap() {
                0 => End::Status(0, ""),
                1 => {
                    digest[3] ^= 1;
                    End::Status(0, "")
                }
                2 => return Some(reply.ends(End::Status(0, ""))),
                _ => return Some(reply.ends(End::Cut)),
            };
            Some(reply.and(&piece(0, &digest)).ends(end))
        })
        .await
    };
    let client = Client::connect(hasty(&[&server])).unwrap();
    let read = async || {
        let mut snapshot = client.snapshot().await?;
        let (mut bytes, mut left) = (0, Vec::new());
        while let Some(piece) = snapshot.next().await? {
            bytes += piece.len();
            left.push(snapshot.remaining());
        }
        Ok::<_, Error>((bytes, left, snapshot.version().to_owned()))
    };
    assert_eq!(read().await.unwrap(), (1056, vec![724, 424, 124, 0, 0], "3.7.0".to_owned()));
    *wrong.lock().unwrap() = 1;
    assert!(matches!(read().await, Err(Error::Snapshot { reason }) if reason.contains("does not fit")));
    *wrong.lock().unwrap() = 2;
    assert!(
        matches!(read().await, Err(Error::Snapshot { reason }) if reason == "sha256 checksum not found [bytes: 1024]")
    );
    *wrong.lock().unwrap() = 3;
    assert!(matches!(read().await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn what_is_too_large_is_refused_here() {
    let server = fake(&Log::default(), |call| {
        let value = vec![0u8; 2000].into();
        let kvs = vec![KeyValue { value, ..Default::default() }];
        (call.method() == "Range").then(|| Reply::with(&RangeResponse { kvs, ..Default::default() }))
    })
    .await;
    let options = Options { max_send_bytes: 1000, max_recv_bytes: 1000, ..hasty(&[&server]) };
    let client = Client::connect(options).unwrap();
    let error = client.put("a", vec![0u8; 2000]).await.unwrap_err();
    let told = "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2006 vs. 1000)";
    assert_eq!((error.etcd_text(), error.maybe_done()), (told.to_owned(), false));
    let error = client.get("a").await.unwrap_err();
    let told = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (2006 vs. 1000)";
    assert_eq!(error.etcd_text(), told);
}
