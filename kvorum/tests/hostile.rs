//! Clients that ask for much and read nothing, and what the others notice of them.

#[path = "live/mod.rs"]
mod live;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::wire::Code;
use client::wire::etcdserverpb::{RangeRequest, RequestOp, TxnRequest, WatchCreateRequest, request_op, response_op};
use live::watching::Watching;
use live::{Alone, PATIENCE, http};

const MIB: i64 = 1 << 20;

/// A gauge or counter of the member; panics if it has none of that name.
fn metric(port: u16, name: &str) -> i64 {
    let page = http::get(port, "/metrics").unwrap().body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is shown")).parse::<f64>().unwrap() as i64
}

fn budget(port: u16, kind: &str, name: &str) -> i64 {
    metric(port, &format!("kvorum_budget_{kind}{{name=\"{name}\"}}"))
}

/// Bytes of anonymous memory of a process.
fn anonymous(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<i64>().unwrap() * 1024
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// A connection that asks for a range, opens its windows wide, and never reads.
fn deaf(port: u16, prefix: &str) -> TcpStream {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE, and as much for the connection.
    out.extend(frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    out.extend(frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    let mut head = Vec::new();
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", "/etcdserverpb.KV/Range"), (":authority", "deaf")];
    for (name, value) in fields.into_iter().chain([("content-type", "application/grpc"), ("te", "trailers")]) {
        for text in [name, value] {
            if text == name {
                head.push(0);
            }
            head.push(text.len() as u8);
            head.extend(text.as_bytes());
        }
    }
    out.extend(frame(1, 4, 1, &head));
    let RangeRequest { key, range_end, .. } = all(prefix);
    let mut message = vec![0x0a, key.len() as u8];
    message.extend(&key[..]);
    message.extend([0x12, range_end.len() as u8]);
    message.extend(&range_end[..]);
    let mut data = vec![0];
    data.extend((message.len() as u32).to_be_bytes());
    data.extend(message);
    out.extend(frame(0, 1, 1, &data));
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(&out).unwrap();
    socket
}

fn all(prefix: &str) -> RangeRequest {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().unwrap() += 1;
    RangeRequest { key: prefix.as_bytes().to_vec().into(), range_end: end.into(), ..RangeRequest::default() }
}

/// Seconds that a lease lives without a renewal.
const LEASE: i64 = 60;

/// Renews a lease until its end; it lives through all that others do meanwhile.
struct Renewals {
    stop: Arc<AtomicBool>,
    worst: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<u64>,
}

impl Renewals {
    async fn begin(own: &Alone) -> Renewals {
        let (stop, worst) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = own.client();
        let lease = client.lease_grant(LEASE, 0).await.unwrap().id;
        let task = tokio::spawn({
            let (stop, worst) = (stop.clone(), worst.clone());
            async move {
                let mut count = 0;
                let mut renewing = client.keep_alive(lease);
                while !stop.load(Ordering::Relaxed) {
                    let since = Instant::now();
                    assert!(renewing.renew().await.unwrap() > 0, "the lease lives");
                    worst.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
                    count += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                count
            }
        });
        Renewals { stop, worst, task }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let count = self.task.await.unwrap();
        let worst = self.worst.load(Ordering::Relaxed);
        println!("{count} renewals, the slowest took {worst} ms");
        assert!(count > 0 && worst < LEASE as u64 * 1000, "{count} renewals, the slowest took {worst} ms");
    }
}

async fn settled(port: u16, name: &str) {
    let until = Instant::now() + PATIENCE;
    while budget(port, "bytes", name) > 0 {
        assert!(Instant::now() < until, "{name} is given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn two_hundred_connections_that_read_nothing_hold_a_bounded_part() {
    if live::is_other() {
        return; // etcd has no budgets to look at
    }
    let own = Alone::new(&["--memory-budget=512MiB"]);
    live::block_on(async {
        let (client, port) = (own.client(), own.port());
        for n in 0..800 {
            client.put(format!("big/{n:04}"), vec![b'x'; 64 << 10]).await.unwrap();
        }
        let renewals = Renewals::begin(&own).await;
        let before = anonymous(own.member.pid());
        let limit = budget(port, "limit_bytes", "unsent");
        assert_eq!(limit, 8 * MIB);
        let deaf: Vec<TcpStream> = (0..200).map(|_| deaf(port, "big/")).collect();
        let mut most = 0;
        let until = Instant::now() + PATIENCE;
        // They do wait; a second more shows whether what they hold goes on growing.
        let mut looks = 0;
        while looks < 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            most = most.max(budget(port, "bytes", "unsent"));
            looks += u32::from(most > MIB);
            assert!(Instant::now() < until, "they do wait: {most}");
        }
        let grown = anonymous(own.member.pid()) - before;
        println!("unsent: {most} of {limit}; anonymous memory grew by {grown}");
        // Each connection may hold one piece and the places of its answer, until it has taken
        // nothing for ten seconds and is cut: see docs/operations.md.
        assert!(most < limit + 200 * (512 << 10), "{most}");
        assert!(grown < 160 * MIB, "{grown}");
        // Others go on, with large ranges too.
        assert_eq!(client.range(all("big/")).await.unwrap().kvs.len(), 800);
        client.put("small", "x").await.unwrap();
        let cut = Instant::now() + PATIENCE;
        while budget(port, "cut_total", "unsent") == 0 || budget(port, "bytes", "unsent") > limit {
            assert!(Instant::now() < cut, "those that read nothing are cut: {}", budget(port, "bytes", "unsent"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        drop(deaf);
        settled(port, "unsent").await;
        renewals.end().await;
    });
}

#[test]
fn sorted_ranges_wait_for_each_other_and_all_are_answered() {
    if live::is_other() {
        return; // etcd has no budgets to look at
    }
    let own = Alone::new(&["--memory-budget=128MiB"]);
    live::block_on(async {
        let (client, port) = (own.client(), own.port());
        for n in 0..3000 {
            client.put(format!("sort/{n:04}"), vec![b'x'; 512]).await.unwrap();
        }
        let renewals = Renewals::begin(&own).await;
        let limit = budget(port, "limit_bytes", "sorts");
        // By value, descending: about 2.5 MiB each of 8 in all.
        let request = RangeRequest { sort_order: 2, sort_target: 4, ..all("sort/") };
        let mut asked = Vec::new();
        for _ in 0..64 {
            let (client, request) = (own.client(), request.clone());
            asked.push(tokio::spawn(async move { client.range(request).await }));
        }
        let mut most = 0;
        while asked.iter().any(|task| !task.is_finished()) {
            most = most.max(budget(port, "bytes", "sorts"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for task in asked {
            assert_eq!(task.await.unwrap().unwrap().kvs.len(), 3000);
        }
        println!("sorts: {most} of {limit}, full {} times", budget(port, "full_total", "sorts"));
        assert!(most > 0 && most <= limit, "{most} of {limit}");
        assert!(budget(port, "full_total", "sorts") > 0, "some had to wait");
        settled(port, "sorts").await;
        sorted_in_transactions(&own).await;
        renewals.end().await;
    });
}

/// The values that decide the order of a transaction's range take room as those of a range do.
async fn sorted_in_transactions(own: &Alone) {
    let client = own.client();
    let sorted = |prefix| {
        let range = RangeRequest { sort_order: 2, sort_target: 4, ..all(prefix) };
        let request = Some(request_op::Request::RequestRange(range));
        TxnRequest { success: vec![RequestOp { request }], ..TxnRequest::default() }
    };
    let answer = client.txn(sorted("sort/")).await.unwrap();
    let Some(response_op::Response::ResponseRange(range)) = &answer.responses[0].response else { panic!("a range") };
    assert_eq!(range.kvs.len(), 3000);
    for n in 0..200 {
        client.put(format!("long/{n:04}"), vec![b'x'; 64 << 10]).await.unwrap();
    }
    let text = "kvorum: the transaction was done, but its ranges find more than one answer may hold";
    live::refused(client.txn(sorted("long/")).await, Code::ResourceExhausted, text);
    settled(own.port(), "sorts").await;
}

#[test]
fn a_flood_of_puts_is_refused_and_what_was_acknowledged_stays() {
    if live::is_other() {
        return; // etcd has no budgets to look at
    }
    let own = Alone::new(&["--memory-budget=128MiB"]);
    live::block_on(async {
        let port = own.port();
        let renewals = Renewals::begin(&own).await;
        let mut asked = Vec::new();
        for n in 0..100 {
            let client = own.client();
            asked.push(tokio::spawn(async move {
                let put = client.put(format!("flood/{n:03}"), vec![b'x'; 1 << 20]).await;
                (n, put)
            }));
        }
        let (mut taken, mut refused) = (Vec::new(), 0);
        for task in asked {
            match task.await.unwrap() {
                (n, Ok(_)) => taken.push(n),
                (_, Err(error)) => {
                    live::refused::<()>(Err(error), Code::Unknown, "etcdserver: too many requests");
                    refused += 1;
                }
            }
        }
        println!("{} puts taken, {refused} refused", taken.len());
        assert!(!taken.is_empty() && refused > 0, "{} taken, {refused} refused", taken.len());
        let client = own.client();
        for n in taken {
            assert!(client.get(format!("flood/{n:03}")).await.unwrap().is_some(), "put {n} was acknowledged");
        }
        settled(port, "commands").await;
        renewals.end().await;
    });
}

#[test]
fn a_watcher_that_reads_nothing_holds_its_buffer_and_loses_nothing() {
    if live::is_other() {
        return; // etcd has no budgets to look at
    }
    let own = Alone::new(&["--memory-budget=128MiB"]);
    live::block_on(async {
        let (client, port) = (own.client(), own.port());
        let renewals = Renewals::begin(&own).await;
        let watch = WatchCreateRequest {
            key: b"storm/".to_vec().into(),
            range_end: b"storm0".to_vec().into(),
            ..WatchCreateRequest::default()
        };
        let mut watching = Watching::open(&own.member.endpoint(), watch).await;
        assert!(watching.next().await.created);
        let mut most = 0;
        for n in 0..400 {
            client.put(format!("storm/{n:04}"), vec![b'x'; 32 << 10]).await.unwrap();
            if n % 20 == 0 {
                most = most.max(budget(port, "bytes", "watch") + budget(port, "bytes", "posts"));
            }
        }
        println!("held for the watcher: {most}");
        assert!(most > 0 && most < 3 * MIB, "{most}");
        let events = watching.events(400).await;
        assert!(
            events.iter().enumerate().all(|(n, (_, key, _))| *key == format!("storm/{n:04}")),
            "each once, in order"
        );
        renewals.end().await;
    });
}

#[test]
fn each_port_serves_its_own() {
    let (http_port, metrics_port) = (live::free_port(), live::free_port());
    let (http_url, metrics_url) = (format!("http://127.0.0.1:{http_port}"), format!("http://127.0.0.1:{metrics_port}"));
    let dir = tempfile::tempdir().unwrap();
    let extra = ["--listen-client-http-urls", &http_url, "--listen-metrics-urls", &metrics_url];
    // The usual way to wait asks the client port for its health, which this one does not serve.
    let member = live::Member::spawn(live::Spec::alone(dir.path(), &extra));
    let until = Instant::now() + PATIENCE;
    while !http::get(http_port, "/health").is_ok_and(|answer| answer.status == 200) {
        assert!(Instant::now() < until, "serves: {}", member.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    live::block_on(async { live::client_of([&member]).put("a", "b").await.unwrap() });
    assert!(http::get(member.spec.client_port, "/health").is_err(), "gRPC alone");
    let status = |port, path| http::get(port, path).unwrap().status;
    for (path, on_http, on_metrics) in [
        ("/version", 200, 404),
        ("/health", 200, 200),
        ("/metrics", 200, 200),
        ("/livez", 200, 200),
        ("/readyz", 200, 200),
        ("/debug/vars", 200, 404),
        ("/nope", 404, 404),
    ] {
        assert_eq!((status(http_port, path), status(metrics_port, path)), (on_http, on_metrics), "{path}");
    }
    let range = r#"{"key":"YQ=="}"#;
    let answer = http::post(http_port, "/v3/kv/range", range).unwrap();
    assert_eq!((answer.status, answer.json()["count"].as_str()), (200, Some("1")));
    assert_eq!(http::post(metrics_port, "/v3/kv/range", range).unwrap().status, 404);
    let options = http::send(metrics_port, "OPTIONS", "/health", &[], "").unwrap();
    assert_eq!((options.status, options.header("allow")), (405, Some("GET")));
}
