//! Calls that are begun and not ended, and answers that nobody reads.

use std::net::TcpStream;
use std::time::Duration;

use wire::etcdserverpb as pb;

use super::super::frames::*;
use super::super::target::Target;
use super::paths::{PUT, RANGE, WATCH};

/// The head of a message of 1 MB.
fn announced() -> Vec<u8> {
    let mut out = vec![0];
    out.extend((1_u32 << 20).to_be_bytes());
    out
}

fn stalled(stream: u32, headers: &[u8], begun: &[u8]) -> Vec<u8> {
    let mut out = frame(HEADERS, END_HEADERS, stream, headers);
    out.extend(frame(DATA, 0, stream, begun));
    out
}

/// So many connections with so many puts each, of whose bodies this much has come.
fn begin(target: &Target, connections: usize, calls: u32, begun: &[u8]) -> Vec<TcpStream> {
    let headers = call(PUT);
    let mut open = Vec::new();
    for _ in 0..connections {
        let Some(mut socket) = target.connect() else { continue };
        let mut out = hello(65_535);
        (0..calls).for_each(|n| out.extend(stalled(2 * n + 1, &headers, begun)));
        let _ = target.write(&mut socket, &out);
        target.count(u64::from(calls));
        open.push(socket);
    }
    open
}

pub(super) fn stalled_bodies(target: &Target, _: usize) {
    let mut begun = announced();
    begun.extend([b'x'; 8 << 10]);
    target.hold(begin(target, 100, 100, &begun));
}

pub(super) fn trickled(target: &Target, _: usize) {
    let mut open = begin(target, 50, 100, &announced());
    let bytes: Vec<u8> = (0..100).flat_map(|n| frame(DATA, 0, 2 * n + 1, b"x")).collect();
    while target.goes_on() && !open.is_empty() {
        open.retain_mut(|socket| target.goes_on() && target.write(socket, &bytes).is_ok());
        target.count(100 * open.len() as u64);
        target.rest(Duration::from_millis(20));
    }
    target.hold(open);
}

pub(super) fn unfinished(target: &Target, _: usize) {
    let headers = call(PUT);
    let mut open = Vec::new();
    for _ in 0..100 {
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

pub(super) fn unread_ranges(target: &Target, _: usize) {
    let everything =
        pb::RangeRequest { key: b"data/".to_vec().into(), range_end: b"data0".to_vec().into(), ..Default::default() };
    let mut request = hello(0x7fff_ffff);
    request.extend(whole(1, RANGE, &message(&everything)));
    let mut open = target.connect_many(200);
    for socket in &mut open {
        let _ = target.write(socket, &request);
        target.count(1);
    }
    target.hold(open);
}

pub(super) fn unread_watches(target: &Target, _: usize) {
    let create = pb::WatchCreateRequest {
        key: b"data/".to_vec().into(),
        range_end: b"data0".to_vec().into(),
        start_revision: 1,
        ..Default::default()
    };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    let create = message(&pb::WatchRequest { request_union: Some(union) });
    let mut out = hello(65_535);
    (0..10).for_each(|n| out.extend(stalled(2 * n + 1, &call(WATCH), &create)));
    let mut open = target.connect_many(100);
    for socket in &mut open {
        let _ = target.write(socket, &out);
        target.count(10);
    }
    target.hold(open);
}
