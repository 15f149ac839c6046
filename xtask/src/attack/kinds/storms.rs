//! Whole calls, and more of them than anybody needs.

use std::time::Duration;

use wire::etcdserverpb as pb;

use super::super::flow::Fair;
use super::super::frames::*;
use super::super::honest::USER;
use super::super::target::Target;
use super::paths::{AUTHENTICATE, GRANT, PUT, SNAPSHOT, WATCH};

/// Watches that one stream is asked for at once.
const BURST: usize = 20_000;

fn create(key: String) -> Vec<u8> {
    let create = pb::WatchCreateRequest { key: key.into_bytes().into(), ..Default::default() };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    message(&pb::WatchRequest { request_union: Some(union) })
}

fn cancel(id: i64) -> Vec<u8> {
    let union = pb::watch_request::RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: id });
    message(&pb::WatchRequest { request_union: Some(union) })
}

/// Each of them must be answered: a stream that asks for much is slowed down, and not cut.
pub(super) fn watch_burst(target: &Target, _: usize) {
    let all: Vec<u8> = (0..BURST).flat_map(|n| create(format!("burst/{n}"))).collect();
    while target.goes_on() {
        let Some(mut fair) = Fair::connect(target) else { continue };
        // One request a frame, as clients have it.
        fair.piece = create("burst/10000".into()).len();
        let mut goes_on = fair.begin(1, WATCH) && fair.send(1, &all, false);
        while goes_on && fair.heard.messages(1) < BURST {
            goes_on = fair.listen(1);
        }
        let answered = fair.heard.messages(1);
        target.count(answered as u64);
        if answered < BURST && target.goes_on() {
            let error =
                fair.heard.error.map_or("without a word".into(), |error| format!("with HTTP/2's error {error}"));
            target.breach(&format!("cut a stream for the watches that it created, {error}"));
        }
    }
}

pub(super) fn watches(target: &Target, _: usize) {
    let mut first = hello(0x7fff_ffff);
    first.extend(frame(HEADERS, END_HEADERS, 1, &call(WATCH)));
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let mut fine = target.write(&mut socket, &first).is_ok();
        let mut id = 0;
        while fine && target.goes_on() {
            let mut out = Vec::new();
            for _ in 0..100 {
                out.extend(frame(DATA, 0, 1, &create(format!("storm/{id}"))));
                out.extend(frame(DATA, 0, 1, &cancel(id)));
                id += 1;
            }
            fine = target.write(&mut socket, &out).is_ok() && target.drain(&mut socket, 64 << 10);
            target.count(100);
        }
    }
}

/// Whole calls on one connection after the other, so many between two looks at the answers.
fn calls(target: &Target, path: &str, message: &[u8], abreast: usize) {
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let mut fine = target.write(&mut socket, &hello(0x7fff_ffff)).is_ok();
        let mut stream = 1;
        while fine && target.goes_on() {
            let mut out = Vec::new();
            for _ in 0..abreast {
                out.extend(whole(stream, path, message));
                stream += 2;
            }
            fine = target.write(&mut socket, &out).is_ok() && target.drain(&mut socket, 16 << 10);
            target.count(abreast as u64);
        }
    }
}

pub(super) fn leases(target: &Target, _: usize) {
    calls(target, GRANT, &message(&pb::LeaseGrantRequest { ttl: 3_600, id: 0 }), 100);
}

/// Four clients a thread; none waits for its answer.
pub(super) fn passwords(target: &Target, thread: usize) {
    let mut open = target.connect_many(4);
    open.retain_mut(|socket| target.write(socket, &hello(0x7fff_ffff)).is_ok());
    let mut stream = 1;
    while target.goes_on() && !open.is_empty() {
        let password = format!("guess-{thread}-{stream}");
        let try_it = message(&pb::AuthenticateRequest { name: USER.into(), password });
        open.retain_mut(|socket| {
            target.count(1);
            target.write(socket, &whole(stream, AUTHENTICATE, &try_it)).is_ok() && target.drain(socket, 1 << 10)
        });
        stream += 2;
    }
}

pub(super) fn snapshots(target: &Target, _: usize) {
    let mut out = hello(0x7fff_ffff);
    out.extend(whole(1, SNAPSHOT, &message(&pb::SnapshotRequest::default())));
    let mut open = target.connect_many(16);
    for socket in &mut open {
        let _ = target.write(socket, &out);
        target.count(1);
    }
    while target.goes_on() {
        open.retain_mut(|socket| target.drain(socket, 1024));
        target.rest(Duration::from_millis(10));
    }
}

pub(super) fn large_puts(target: &Target, _: usize) {
    let put = |n: u32| pb::PutRequest {
        key: format!("large/{n}").into_bytes().into(),
        value: vec![b'x'; 1_500_000].into(),
        ..Default::default()
    };
    let puts: Vec<Vec<u8>> = (0..64).map(|n| message(&put(n))).collect();
    std::thread::scope(|scope| {
        for put in &puts {
            scope.spawn(|| {
                while target.goes_on() {
                    let Some(mut fair) = Fair::connect(target) else { continue };
                    let mut goes_on = fair.begin(1, PUT) && fair.send(1, put, true);
                    while goes_on {
                        goes_on = fair.listen(1);
                    }
                    target.count(fair.heard.messages(1) as u64);
                }
            });
        }
    });
}
