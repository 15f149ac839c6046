//! One gRPC call of a line: a method, and what is unlike a good call.
//!
//! `NAME=VALUE` replaces a field or adds it, `+NAME=VALUE` adds one more, `-NAME` takes it away.
//! `body=…` says what is sent; without it, one good message.

use crate::h2::{self, Fields, Heard};

/// Path and one good message of each method.
fn method(name: &str) -> (&str, Vec<u8>) {
    match name {
        "Range" => ("/etcdserverpb.KV/Range", b"\x0a\x01k".to_vec()),
        "Put" => ("/etcdserverpb.KV/Put", b"\x0a\x01k\x12\x01v".to_vec()),
        "RangeStream" => ("/etcdserverpb.KV/RangeStream", b"\x0a\x01k".to_vec()),
        "Watch" => ("/etcdserverpb.Watch/Watch", b"\x0a\x03\x0a\x01k".to_vec()),
        "LeaseKeepAlive" => ("/etcdserverpb.Lease/LeaseKeepAlive", b"\x08\x01".to_vec()),
        "Health" => ("/grpc.health.v1.Health/Check", Vec::new()),
        other => (other, b"\x0a\x01k".to_vec()),
    }
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut out = vec![flag];
    out.extend((message.len() as u32).to_be_bytes());
    out.extend(message);
    out
}

/// gzip of one stored block.
fn gzipped(message: &[u8]) -> Vec<u8> {
    let len = message.len() as u16;
    let mut out = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01".to_vec();
    out.extend(len.to_le_bytes());
    out.extend((!len).to_le_bytes());
    out.extend(message);
    out.extend(crc32(message).to_le_bytes());
    out.extend(u32::from(len).to_le_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// gzip of `millions` of zeros, which are a few bytes: members one behind the other.
fn bomb(millions: usize) -> Vec<u8> {
    // A mebibyte of zeros, as zlib packs it best.
    let mut member = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    member.extend(b"\xed\xc1\x31\x01\0\0\0\xc2\xa0\xf5\x4f\x6d\x08\x5f\xa0");
    member.extend(std::iter::repeat_n(0, 1016));
    member.extend(b"\x3e\x03\x1c\xea\x38\xa7\0\0\x10\0");
    std::iter::repeat_n(member, millions).flatten().collect()
}

/// True: the body ends the call.
fn body(word: &str, message: &[u8]) -> (Vec<u8>, bool) {
    let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
    let whole = framed(0, message);
    let count = || rest.parse::<usize>().expect("a number");
    let bytes = match kind {
        "open" => return (whole, false),
        "good" => whole,
        "empty" => Vec::new(),
        "cut" => whole[..count()].to_vec(),
        "twice" => [&whole[..], &whole].concat(),
        "flag" => framed(count() as u8, message),
        "gzip" => framed(1, &gzipped(message)),
        "gzip-cut" => framed(1, &gzipped(message)[..count()]),
        "gzip-empty" => framed(1, b""),
        "gzip-then-plain" => [framed(1, &gzipped(message)), whole].concat(),
        "bomb" => framed(1, &bomb(count())),
        // Nothing follows the head.
        "announced" => [&[0], &(count() as u32).to_be_bytes()[..]].concat(),
        "garbage" => framed(0, b"\xff\xff\xff\xff"),
        other => panic!("no body {other}"),
    };
    (bytes, true)
}

fn fields(path: &str, words: &[&str]) -> Fields {
    let mut fields: Fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "127.0.0.1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    for word in words {
        if let Some(name) = word.strip_prefix('-') {
            fields.retain(|(known, _)| known != name);
            continue;
        }
        let (more, word) = word.strip_prefix('+').map_or((false, *word), |word| (true, word));
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        // A blank stands between words.
        let value = value.replace("%20", " ");
        match fields.iter_mut().find(|(known, _)| known == name && !more) {
            Some((_, known)) => *known = value,
            None if name.starts_with(':') => fields.insert(0, (name.to_owned(), value)),
            None => fields.push((name.to_owned(), value)),
        }
    }
    fields
}

/// Fields that say the same on both sides, in an order of their own.
const SHOWN: [&str; 7] =
    [":status", "content-type", "grpc-encoding", "grpc-status", "grpc-message", "content-length", "allow"];

fn shown(heard: &Heard) -> String {
    let mut out = String::new();
    // What stands before no message at all may come together with the end, or stay away until then.
    let early = heard.data.is_empty() && (heard.open || heard.blocks.len() > 1);
    let mut blocks = heard.blocks.clone();
    if early && heard.open {
        blocks.clear();
    } else if early {
        let rest = blocks.split_off(1);
        blocks[0].retain(|(name, _)| name != "grpc-encoding");
        blocks[0].extend(rest.into_iter().flatten());
    }
    for block in &blocks {
        let known = |name: &&str| block.iter().find(|(known, _)| known == *name);
        let words: Vec<String> = SHOWN
            .iter()
            .filter_map(known)
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{}: {value}", name.trim_start_matches(':')))
            .collect();
        out += &format!("{}\n", words.join(", "));
    }
    let mut rest = &heard.data[..];
    let mut messages = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(5) {
        let len = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        messages.push(if head[0] == 1 { "packed" } else { "plain" });
        rest = behind.get(len..).unwrap_or_default();
    }
    if !messages.is_empty() {
        out += &format!("messages: {}\n", messages.join(" "));
    }
    match heard.reset {
        None | Some(0) => {}
        Some(code) => out += &format!("reset: {code}\n"),
    }
    if heard.gone {
        out += "closed\n";
    }
    if heard.open {
        out += "open\n";
    }
    out
}

/// What comes of one line.
pub fn line(port: u16, line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    let (path, message) = method(words.remove(0));
    let sent = words.iter().position(|word| word.starts_with("body=")).map(|at| words.remove(at));
    let (body, ends) = body(sent.map_or("good", |word| &word[5..]), &message);
    shown(&h2::call(port, &fields(path, &words), &body, ends))
}
