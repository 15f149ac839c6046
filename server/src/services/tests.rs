//! The edge from a client's side: real sockets, real HTTP/2, a core that is played.

mod joined;

use crate::core::{Answered, Core, Delivery, Shared, hand_out};
use crate::intake::{Batch, ToCore};
use crate::settings::Settings;
use crate::sockets::Accepting;
use crate::transport::{Door, Edge, frames, serve};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use node::{Answer, Found, RangeStart, Refusal, Request as Ask, Slice, ToStream, WatchOp};
use prost::Message;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use store::protobuf;
use store::{Event, Handle, Item, Located, Reply, Rev, RevisionEvents, record};
use wire::etcdserverpb as pb;

const CLUSTER: u64 = 0xc1;
const MEMBER: u64 = 0x3e;
const REVISION: i64 = 40;
const TERM: u64 = 7;

/// What the played core was told, beside what it answered.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Cancel {
        timed_out: bool,
    },
    WalkEnd(u64),
    /// A watch stream.
    Closed,
}

/// What must come does so within this time, even on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

struct Stage {
    address: SocketAddr,
    edge: Edge,
    core: Core,
    shared: Arc<Shared>,
    told: mpsc::Receiver<Told>,
}

/// A served edge whose core answers by `play`; None leaves the asker waiting.
async fn stage(settings: Settings, mut play: impl FnMut(&Ask) -> Option<Answer> + Send + 'static) -> Stage {
    let (core, end, mut receivers) = Core::new(CLUSTER, MEMBER, settings, prometheus::Registry::new(), None, 1);
    tokio::spawn(hand_out(receivers.remove(0)));
    let shared = end.shared.clone();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut timed_out = Vec::new();
        let mut streams = std::collections::BTreeMap::new();
        let mut pending = std::collections::BTreeMap::new();
        loop {
            let mut batch = Batch::default();
            end.take(Some(Instant::now() + Duration::from_millis(20)), &mut batch);
            let mut deliveries = Vec::new();
            for what in batch.urgent.drain(..).chain(batch.normal.drain(..)) {
                match what {
                    ToCore::Ask { request: Ask::WalkEnd { walk }, .. } => drop(tell.send(Told::WalkEnd(walk))),
                    ToCore::Ask { waiter, request, answer, .. } => match play(&request) {
                        Some(said) => {
                            let asked = Answered { revision: REVISION, term: TERM, answer: said };
                            deliveries.push(Delivery::Answer(answer, asked));
                        }
                        None => drop(pending.insert(waiter, answer)),
                    },
                    ToCore::Cancel { waiter, timed_out: late } => {
                        let _ = tell.send(Told::Cancel { timed_out: late });
                        timed_out.push((waiter, late));
                    }
                    ToCore::Open { stream, post, .. } => drop(streams.insert(stream, post)),
                    ToCore::Watch { stream, op: WatchOp::Join { id, next, .. } } => {
                        let missed = vec![Arc::new(change(next))];
                        let joined = ToStream::Joined { id, revision: next, missed };
                        assert!(streams[&stream].charge(&joined));
                        deliveries.push(Delivery::Stream(streams[&stream].clone(), joined));
                    }
                    ToCore::Watch { op: WatchOp::Close, .. } => drop(tell.send(Told::Closed)),
                    ToCore::Stop => return,
                    _ => {}
                }
            }
            for (waiter, late) in timed_out.drain(..) {
                if let (Some(answer), true) = (pending.remove(&waiter), late) {
                    let said = Answer::Refused(Refusal::Timeout);
                    deliveries
                        .push(Delivery::Answer(answer, Answered { revision: REVISION, term: TERM, answer: said }));
                }
            }
            let _ = end.runtimes[0].send(deliveries);
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let edge = Edge::new(core.clone());
    tokio::spawn(serve(Accepting::Tcp(listener), edge.clone(), Door::All, crate::tls::Security::Plain));
    Stage { address, edge, core, shared, told }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.core.stop();
    }
}

impl Stage {
    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let socket = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn send(&self, path: &str, body: Vec<u8>, headers: &[(&'static str, &str)]) -> Response<Incoming> {
        let mut request =
            Request::post(format!("http://{}{path}", self.address)).header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.connect().await.send_request(request.body(Full::from(body)).unwrap()).await.unwrap()
    }

    /// A whole call: the messages of the answer, and how it ended.
    async fn call(&self, path: &str, message: &[u8], headers: &[(&'static str, &str)]) -> (Vec<Bytes>, Ended) {
        let response = self.send(path, framed(message), headers).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let at_once = ended(response.headers());
        let collected = response.into_body().collect().await.unwrap();
        let end = match collected.trailers() {
            Some(trailers) => ended(trailers).expect("trailers carry the status"),
            None => at_once.expect("without trailers the headers carry the status"),
        };
        (unframed(collected.to_bytes()), end)
    }

    /// The text of an HTTP/1.1 answer to these bytes.
    async fn raw(&self, request: String) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut socket = tokio::net::TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn post(&self, path: &str, body: &str) -> String {
        let head = "Host: a\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded";
        self.raw(format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
    }

    async fn get(&self, path: &str) -> String {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await
    }

    /// What the core was told next.
    async fn told(&self) -> Told {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.told.try_recv() {
                Ok(told) => return told,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            assert!(Instant::now() < until, "the core was told nothing");
        }
    }
}

type Ended = (u32, String);

fn ended(headers: &HeaderMap) -> Option<Ended> {
    let code = headers.get("grpc-status")?.to_str().unwrap().parse().unwrap();
    let text = headers.get("grpc-message").map_or("", |text| text.to_str().unwrap());
    Some((code, text.to_owned()))
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = frames::head(message.len() as u32).to_vec();
    out.extend_from_slice(message);
    out
}

fn unframed(stream: Bytes) -> Vec<Bytes> {
    let mut unframer = frames::Unframer::new(u64::MAX);
    unframer.push(stream);
    let mut messages = Vec::new();
    while let Some(message) = unframer.next_message().unwrap() {
        messages.push(message);
    }
    unframer.end().unwrap();
    messages
}

fn applied(reply: Reply) -> Option<Answer> {
    Some(Answer::Applied { revision: REVISION, result: Ok(reply) })
}

fn put_request(key: &[u8], value: &[u8]) -> Vec<u8> {
    let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    pb::PutRequest { key, value, ..Default::default() }.encode_to_vec()
}

fn item(number: usize, value: &[u8]) -> Item {
    let key = format!("key{number:05}");
    let kv = record::KeyValueRef { key: key.as_bytes(), create: 2, modified: 3, version: 2, value, lease: 0 };
    let bytes = record::encode(Rev { main: 3, sub: 0 }, false, &kv);
    let handle = Handle { segment: 1, offset: 4096, len: bytes.len() as u32 };
    let at = Located { handle, rev: Rev { main: 3, sub: 0 }, bytes: Some(bytes) };
    Item { key: key.as_bytes().into(), create: 2, modified: 3, version: 2, lease: 0, at }
}

/// A put of `key` at this revision.
fn change(revision: i64) -> RevisionEvents {
    let rev = Rev { main: revision, sub: 0 };
    let kv =
        record::KeyValueRef { key: b"key", create: revision, modified: revision, version: 1, value: b"v", lease: 0 };
    let record = record::encode(rev, false, &kv);
    let event = Event { tombstone: false, key: b"key"[..].into(), record, revision: rev, create: revision, prev: None };
    RevisionEvents { revision, events: vec![event] }
}

fn watch_create(start_revision: i64) -> Vec<u8> {
    let create = pb::WatchCreateRequest { key: Bytes::from_static(b"key"), start_revision, ..Default::default() };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    pb::WatchRequest { request_union: Some(union) }.encode_to_vec()
}

/// A core that serves one measured walk over `items`, in slices, but hands out only `given` of
/// them.
fn walk(items: Vec<Item>, given: usize, slice: usize) -> impl FnMut(&Ask) -> Option<Answer> {
    let mut next = 0;
    move |ask| match ask {
        Ask::Range { query, .. } => {
            let sizes = items.iter().map(|item| item.at.handle.len as usize - record::HEADER);
            let delimited = sizes.clone().map(|len| (protobuf::varint_len(len as u64) + len) as u64).sum();
            Some(Answer::Range(RangeStart {
                query: query.clone(),
                found: Found::none(query),
                walk: Some(9),
                count: items.len() as i64,
                more: false,
                bytes: sizes.sum::<usize>() as u64,
                delimited,
                kvs: items.len() as u64,
            }))
        }
        Ask::WalkNext { walk: 9 } => {
            let until = (next + slice).min(given);
            let part = items[next..until].iter().map(|item| item.at.clone()).collect();
            next = until;
            let finished = (next == given).then_some((items.len() as i64, false));
            Some(Answer::Slice(Slice { found: Found::Records(part), finished }))
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_put_is_answered_with_the_header_and_nothing_else() {
    let stage = stage(Settings::default(), |_| applied(Reply::Put { prev: None })).await;
    let (messages, end) = stage.call("/etcdserverpb.KV/Put", &put_request(b"a", b"1"), &[]).await;
    assert_eq!(end, (0, String::new()));
    // Golden: header {cluster_id = 1, member_id = 2, revision = 3, raft_term = 4} as field 1.
    assert_eq!(messages, [Bytes::from_static(&[0x0a, 9, 0x08, 0xc1, 0x01, 0x10, 0x3e, 0x18, 40, 0x20, 7])]);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_before_the_core_is_asked() {
    let stage = stage(Settings::default(), |ask| panic!("asked {ask:?}")).await;
    let put = |key, value| put_request(key, value);
    let table: Vec<(&str, Vec<u8>, &[(&str, &str)], u32, &str)> = vec![
        ("/etcdserverpb.KV/Put", put(b"", b"1"), &[], 3, "etcdserver: key is not provided"),
        ("/etcdserverpb.KV/Put", put(b"a", &[0; 1_572_864]), &[], 3, "etcdserver: request is too large"),
        (
            "/etcdserverpb.KV/Put",
            put(b"a", &[0; 2_097_152]),
            &[],
            8,
            "grpc: received message larger than max (2097160 vs. 2097152)",
        ),
        ("/etcdserverpb.KV/Fly", vec![], &[], 12, "unknown method Fly for service etcdserverpb.KV"),
        ("/a.B/C", vec![], &[], 12, "unknown service a.B"),
        (
            "/etcdserverpb.KV/Put",
            vec![],
            &[("grpc-encoding", "snappy")],
            12,
            "grpc: Decompressor is not installed for grpc-encoding \"snappy\"",
        ),
        ("/etcdserverpb.KV/Put", put(b"a", b"1"), &[("hasleader", "true")], 14, "etcdserver: no leader"),
        (
            "/etcdserverpb.KV/Put",
            vec![0x0a, 9],
            &[],
            13,
            "grpc: error unmarshalling request: proto: cannot parse invalid wire-format data",
        ),
        ("/etcdserverpb.Cluster/MemberAdd", vec![], &[], 3, "etcdserver: given member URLs are invalid"),
        ("/etcdserverpb.Cluster/MemberUpdate", vec![8, 1], &[], 3, "etcdserver: given member URLs are invalid"),
        ("/grpc.health.v1.Health/Check", vec![0x0a, 1, b'x'], &[], 5, "unknown service"),
    ];
    for (path, message, headers, code, text) in table {
        let (messages, end) = stage.call(path, &message, headers).await;
        assert_eq!((messages.len(), end), (0, (code, text.to_owned())), "{path}");
    }
}

#[tokio::test]
async fn a_client_that_resets_its_call_cancels_the_question() {
    let (tell, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let stage = stage(Settings::default(), move |_| {
        tell.send(()).expect("the test listens");
        None
    })
    .await;
    let calling = stage.send("/etcdserverpb.KV/Put", framed(&put_request(b"a", b"1")), &[]);
    // The core has the question when the client goes away.
    tokio::select! { _ = calling => panic!("nobody answers"), _ = asked.recv() => {} }
    assert_eq!(stage.told().await, Told::Cancel { timed_out: false });
}

#[tokio::test]
async fn deadlines_are_told_by_what_they_interrupt() {
    // The member's own deadline is two minutes from here.
    let stage = stage(Settings { election: PATIENCE, ..Settings::default() }, |_| None).await;
    let soon = &[("grpc-timeout", "50m")];
    let begun = Instant::now();
    let (_, end) = stage.call("/etcdserverpb.KV/Put", &put_request(b"a", b"1"), soon).await;
    assert_eq!(end, (14, "etcdserver: request timed out".into()));
    assert_eq!(stage.told().await, Told::Cancel { timed_out: true });
    let range = pb::RangeRequest { key: Bytes::from_static(b"a"), ..Default::default() }.encode_to_vec();
    let (_, end) = stage.call("/etcdserverpb.KV/Range", &range, soon).await;
    assert_eq!(end, (4, "context deadline exceeded".into()));
    assert!(begun.elapsed() < PATIENCE, "the client's deadline counts, not the member's");
    assert_eq!(stage.told().await, Told::Cancel { timed_out: false });
}

#[tokio::test]
async fn a_large_range_streams_as_one_message() {
    let items: Vec<Item> =
        (0..3000).map(|n| item(n, &vec![b'v'; if n % 50 == 0 { 20_000 } else { n % 200 }])).collect();
    let stage = stage(Settings::default(), walk(items, 3000, 1000)).await;
    let range = pb::RangeRequest { key: Bytes::from_static(b"key"), ..Default::default() }.encode_to_vec();
    let (messages, end) = stage.call("/etcdserverpb.KV/Range", &range, &[]).await;
    assert_eq!((messages.len(), end.0), (1, 0));
    let read = pb::RangeResponse::decode(messages[0].clone()).unwrap();
    assert_eq!((read.count, read.more, read.kvs.len()), (3000, false, 3000));
    assert_eq!(read.header.unwrap().revision, REVISION);
    for (n, kv) in read.kvs.iter().enumerate() {
        let size = if n % 50 == 0 { 20_000 } else { n % 200 };
        assert_eq!((kv.key.as_ref(), kv.value.len()), (format!("key{n:05}").as_bytes(), size));
    }
}

#[tokio::test]
async fn a_range_that_falls_short_is_broken_off_not_shortened() {
    let items: Vec<Item> = (0..3000).map(|n| item(n, &[b'v'; 300])).collect();
    let stage = stage(Settings::default(), walk(items, 2999, 1000)).await;
    let range = pb::RangeRequest { key: Bytes::from_static(b"key"), ..Default::default() }.encode_to_vec();
    let response = stage.send("/etcdserverpb.KV/Range", framed(&range), &[]).await;
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_walk_is_ended_when_its_client_leaves() {
    let items: Vec<Item> = (0..3000).map(|n| item(n, &[b'v'; 3000])).collect();
    let stage = stage(Settings::default(), walk(items, 3000, 100)).await;
    let range = pb::RangeRequest { key: Bytes::from_static(b"key"), ..Default::default() }.encode_to_vec();
    let response = stage.send("/etcdserverpb.KV/Range", framed(&range), &[]).await;
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    // The slice that was asked for may be cancelled before.
    let mut told = stage.told().await;
    if told == (Told::Cancel { timed_out: false }) {
        told = stage.told().await;
    }
    assert_eq!(told, Told::WalkEnd(9));
}

/// The client takes nothing, so nothing but the first slice can be under way. (A connection that
/// holds its share asks for nothing ahead.)
#[tokio::test]
async fn one_slice_of_a_walk_is_asked_for_ahead_and_no_more() {
    let items: Vec<Item> = (0..4000).map(|n| item(n, &[b'v'; 3000])).collect();
    let mut play = walk(items, 4000, 1000);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let mut settings = Settings::default();
    settings.budgets.unsent_each = 32 << 20;
    let stage = stage(settings, move |ask| {
        counted.fetch_add(usize::from(matches!(ask, Ask::WalkNext { .. })), Ordering::Relaxed);
        play(ask)
    })
    .await;
    let range = pb::RangeRequest { key: Bytes::from_static(b"key"), ..Default::default() }.encode_to_vec();
    let response = stage.send("/etcdserverpb.KV/Range", framed(&range), &[]).await;
    let until = Instant::now() + PATIENCE;
    while asked.load(Ordering::Relaxed) < 2 {
        assert!(Instant::now() < until, "the second slice is not asked for");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let whole = response.into_body().collect().await.unwrap().to_bytes();
    let read = pb::RangeResponse::decode(unframed(whole).remove(0)).unwrap();
    assert_eq!((read.kvs.len(), asked.load(Ordering::Relaxed)), (4000, 4));
}

#[tokio::test]
async fn a_large_answer_goes_out_in_full_frames() {
    let items: Vec<Item> = (0..3000).map(|n| item(n, &[b'v'; 1000])).collect();
    let stage = stage(Settings::default(), walk(items, 3000, 1000)).await;
    let range = pb::RangeRequest { key: Bytes::from_static(b"key"), ..Default::default() }.encode_to_vec();
    let mut body = stage.send("/etcdserverpb.KV/Range", framed(&range), &[]).await.into_body();
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.extend(frame.unwrap().into_data().ok().map(|data| data.len()));
    }
    // What ends the header, three slices and the answer; what the client's window cuts. It was 60
    // more.
    let scraps = frames.iter().filter(|len| **len != 16 << 10).count();
    assert!(frames.len() > 180 && scraps < 30, "{frames:?}");
}

#[tokio::test]
async fn a_range_stream_has_header_and_count_on_its_last_message_only() {
    let items: Vec<Item> = (0..45).map(|n| item(n, b"v")).collect();
    let stage = stage(Settings::default(), walk(items, 45, 7)).await;
    let range = pb::RangeRequest { key: Bytes::from_static(b"key"), ..Default::default() }.encode_to_vec();
    let (messages, end) = stage.call("/etcdserverpb.KV/RangeStream", &range, &[]).await;
    assert_eq!(end.0, 0);
    let parts: Vec<pb::RangeResponse> = messages
        .into_iter()
        .map(|message| pb::RangeStreamResponse::decode(message).unwrap().range_response.unwrap())
        .collect();
    let shape: Vec<_> = parts.iter().map(|p| (p.kvs.len(), p.header.is_some(), p.count)).collect();
    assert_eq!(shape, [(10, false, 0), (20, false, 0), (15, true, 45)]);
}

/// One small DATA frame each, as a client with many leases says them: they cost the transport
/// more than they carry, and must not be taken for a flood.
#[tokio::test]
async fn thousands_of_keep_alives_in_one_breath_are_answered() {
    const MANY: i64 = 8_000;
    let stage = stage(Settings::default(), |ask| match ask {
        Ask::KeepAlive { .. } => Some(Answer::KeepAlive { ttl: 10 }),
        _ => None,
    })
    .await;
    let socket = tokio::net::TcpStream::connect(stage.address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let said = (0..MANY).map(|id| {
        let message = framed(&pb::LeaseKeepAliveRequest { id: (1 << 62) + id }.encode_to_vec());
        Ok::<_, Infallible>(hyper::body::Frame::data(Bytes::from(message)))
    });
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(said));
    let request = Request::post(format!("http://{}/etcdserverpb.Lease/LeaseKeepAlive", stage.address))
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    let response = client.send_request(request).await.unwrap();
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(ended(collected.trailers().unwrap()), Some((0, String::new())));
    assert_eq!(unframed(collected.to_bytes()).len() as i64, MANY);
}

#[tokio::test]
async fn keep_alives_are_answered_in_order() {
    let stage = stage(Settings::default(), |ask| match ask {
        Ask::KeepAlive { lease } => Some(Answer::KeepAlive { ttl: if *lease == 2 { 0 } else { *lease * 10 } }),
        _ => None,
    })
    .await;
    let mut body = Vec::new();
    for id in [3i64, 2, 1] {
        body.extend(framed(&pb::LeaseKeepAliveRequest { id }.encode_to_vec()));
    }
    let response = stage.send("/etcdserverpb.Lease/LeaseKeepAlive", body, &[]).await;
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(ended(collected.trailers().unwrap()), Some((0, String::new())));
    let answers: Vec<_> = unframed(collected.to_bytes())
        .into_iter()
        .map(|message| pb::LeaseKeepAliveResponse::decode(message).unwrap())
        .map(|answer| (answer.id, answer.ttl))
        .collect();
    assert_eq!(answers, [(3, 30), (2, 0), (1, 10)]);
}

#[tokio::test]
async fn the_gateway_takes_forms_and_answers_json() {
    let stage = stage(Settings::default(), |_| applied(Reply::Put { prev: None })).await;
    let answer = stage.post("/v3/kv/put", r#"{"key":"YQ==","value":"MQ=="}"#).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("access-control-allow-origin: *"), "{answer}");
    let body = answer.rsplit_once("\r\n\r\n").unwrap().1.replace(", ", ",");
    let header = r#"{"header":{"cluster_id":"193","member_id":"62","revision":"40","raft_term":"7"}}"#;
    assert_eq!(body, header);
    let table = [
        ("/v3/kv/put", "", "400 Bad Request", r#"{"code":3,"message":"etcdserver: key is not provided"}"#),
        ("/v3/nothing", "{}", "404 Not Found", r#"{"code":5,"message":"Not Found"}"#),
        ("/v3alpha/kv/put", "{}", "404 Not Found", "404 page not found\n"),
        ("/health", "{}", "405 Method Not Allowed", "Method Not Allowed\n"),
    ];
    for (path, body, status, text) in table {
        let answer = stage.post(path, body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert_eq!(answer.rsplit_once("\r\n\r\n").unwrap().1.replace(", ", ","), text, "{path}");
    }
    let answer = stage.get("/v3/kv/put").await;
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
}

#[tokio::test]
async fn health_tells_what_is_wrong() {
    let stage = stage(Settings::default(), |ask| match ask {
        Ask::Status => {
            let alarms = vec![store::AlarmMember { member: 3, alarm: 1 }];
            Some(Answer::Status(Box::new(node::Status { leader: MEMBER, alarms, ..Default::default() })))
        }
        Ask::Barrier => Some(Answer::Barrier),
        _ => None,
    })
    .await;
    let sick = stage.get("/health").await;
    assert!(sick.starts_with("HTTP/1.1 503"), "{sick}");
    assert!(sick.ends_with("{\"health\":\"false\",\"reason\":\"ALARM NOSPACE\"}\n"), "{sick}");
    let well = stage.get("/health?exclude=NOSPACE").await;
    assert!(well.ends_with("{\"health\":\"true\",\"reason\":\"\"}"), "{well}");
    assert!(stage.get("/readyz").await.ends_with("\r\n\r\nok\n"));
    let metrics = stage.get("/metrics").await;
    assert!(metrics.contains("etcd_server_health_failures 1"), "{metrics}");
    assert!(metrics.contains("etcd_server_has_leader 1"));
}

#[tokio::test]
async fn a_watch_outlives_the_words_of_its_client_and_ends_with_its_connection() {
    let stage = stage(Settings::default(), |_| None).await;
    // The body ends with its only request: the client has half-closed.
    let response = stage.send("/etcdserverpb.Watch/Watch", framed(&watch_create(50)), &[]).await;
    let mut body = response.into_body();
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        messages.extend(unframed(data).into_iter().map(|message| pb::WatchResponse::decode(message).unwrap()));
    }
    assert!(messages[0].created && messages[0].events.is_empty());
    assert_eq!(messages[1].events[0].kv.as_ref().unwrap().mod_revision, 50);
    assert!(tokio::time::timeout(Duration::from_millis(300), body.frame()).await.is_err(), "the stream stays");
    drop(body);
    assert_eq!(stage.told().await, Told::Closed);
}

#[tokio::test]
async fn a_watch_that_wants_a_leader_ends_without_one() {
    let settings = Settings { election: Duration::from_millis(50), ..Settings::default() };
    let stage = stage(settings, |_| None).await;
    stage.shared.leader.store(MEMBER, Ordering::Release);
    let response = stage.send("/etcdserverpb.Watch/Watch", framed(&watch_create(50)), &[("hasleader", "true")]).await;
    stage.shared.leader.store(0, Ordering::Release);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(ended(collected.trailers().unwrap()), Some((14, "etcdserver: no leader".into())));
}

#[tokio::test]
async fn a_stopping_member_tells_its_watches() {
    let stage = stage(Settings::default(), |_| None).await;
    let response = stage.send("/etcdserverpb.Watch/Watch", framed(&watch_create(50)), &[]).await;
    stage.core.stop();
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(ended(collected.trailers().unwrap()), Some((14, "etcdserver: server stopped".into())));
}
