//! HTTP/2 as an attacker writes it: any frame, in any order.

use prost::Message;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Preface and settings; `window`: what each stream may be sent.
pub(super) fn hello(window: u32) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let mut settings = vec![0, 4];
    settings.extend(window.to_be_bytes());
    out.extend(frame(SETTINGS, 0, 0, &settings));
    if window > 65_535 {
        out.extend(frame(WINDOW, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    }
    out
}

/// The header block of a gRPC call.
pub(super) fn call(path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in fields {
        out.extend(field(name, value));
    }
    out
}

/// A header that is not indexed; shorter than 127 bytes.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0];
    for text in [name, value] {
        out.push(text.len() as u8);
        out.extend(text.as_bytes());
    }
    out
}

/// A message with gRPC's head.
pub(super) fn message(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut out = vec![0];
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
    out
}

/// A whole call: headers, and the message in frames of 16 KiB.
pub(super) fn whole(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let mut out = frame(HEADERS, END_HEADERS, stream, &call(path));
    let mut pieces = message.chunks(16 << 10).peekable();
    while let Some(piece) = pieces.next() {
        let last = if pieces.peek().is_none() { END_STREAM } else { 0 };
        out.extend(frame(DATA, last, stream, piece));
    }
    out
}
