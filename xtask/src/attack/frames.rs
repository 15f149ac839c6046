//! HTTP/2 and TLS as an attacker writes them: any frame, in any order.

use prost::Message;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GO_AWAY: u8 = 7;
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

/// The first byte of a record of a TLS handshake; a hello that is refused is answered with another
/// one.
pub(super) const HANDSHAKE: u8 = 0x16;

/// A whole ClientHello of TLS 1.3, with a share of X25519: the member must draw a key, and sign.
pub(super) fn client_hello(turn: u8) -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, data: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend((data.len() as u16).to_be_bytes());
        extensions.extend(data);
    };
    extension(43, &[2, 3, 4]);
    extension(10, &[0, 2, 0, 0x1d]);
    extension(13, &[0, 12, 4, 3, 5, 3, 6, 3, 8, 4, 8, 5, 4, 1]);
    extension(16, &[0, 3, 2, b'h', b'2']);
    let mut share = vec![0, 36, 0, 0x1d, 0, 32];
    share.extend([turn | 1; 32]);
    extension(51, &share);

    let mut hello = vec![3, 3];
    hello.extend([turn; 32]);
    hello.push(32);
    hello.extend([7; 32]);
    hello.extend([0, 6, 0x13, 1, 0x13, 2, 0x13, 3, 1, 0]);
    hello.extend((extensions.len() as u16).to_be_bytes());
    hello.extend(extensions);

    let mut out = vec![HANDSHAKE, 3, 1];
    out.extend((hello.len() as u16 + 4).to_be_bytes());
    out.push(1);
    out.extend(&(hello.len() as u32).to_be_bytes()[1..]);
    out.extend(hello);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_says_its_lengths() {
        let hello = client_hello(9);
        assert_eq!(hello.len(), 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])));
        assert_eq!(hello.len(), 9 + u32::from_be_bytes([0, hello[6], hello[7], hello[8]]) as usize);
    }
}
