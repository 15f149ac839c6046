//! An HTTP/2 client that says exactly what it is told, however wrong, and shows all that it hears.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Who has not ended a call by then waits for its client.
const PATIENCE: Duration = Duration::from_millis(1500);

pub type Fields = Vec<(String, String)>;

/// All that came back for one call.
#[derive(Debug, Default)]
pub struct Heard {
    /// Fields of each block of headers, in order.
    pub blocks: Vec<Fields>,
    pub data: Vec<u8>,
    /// Neither an end nor a reset came.
    pub open: bool,
    pub reset: Option<u32>,
    /// The connection was closed, or told to go away.
    pub gone: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

fn number(out: &mut Vec<u8>, bits: u8, first: u8, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// Literal fields, never indexed, as they are.
fn encoded(fields: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            number(&mut out, 7, 0, text.len());
            out.extend(text.as_bytes());
        }
    }
    out
}

/// One call on a connection of its own. `ends`: the body ends it.
pub fn call(port: u16, fields: &[(String, String)], body: &[u8], ends: bool) -> Heard {
    let mut out = PREFACE.to_vec();
    out.extend(frame(4, 0, 0, &[]));
    out.extend(frame(1, 4, 1, &encoded(fields)));
    for piece in body.chunks(16 << 10) {
        out.extend(frame(0, 0, 1, piece));
    }
    if ends {
        out.extend(frame(0, 1, 1, &[]));
    }
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    socket.set_nodelay(true).expect("a socket");
    // A server may stop reading what it has refused.
    let _ = socket.write_all(&out);
    hear(&mut socket, PATIENCE)
}

fn hear(socket: &mut TcpStream, patience: Duration) -> Heard {
    let mut heard = Heard::default();
    let mut table = Table::default();
    let until = Instant::now() + patience;
    loop {
        let Some((kind, flags, stream, payload)) = next_frame(socket, until) else {
            heard.gone = Instant::now() < until;
            heard.open = !heard.gone;
            return heard;
        };
        match (kind, stream) {
            (0, 1) => heard.data.extend(payload),
            (1, 1) => heard.blocks.push(table.decoded(&payload)),
            (3, 1) => heard.reset = Some(u32::from_be_bytes(payload[..4].try_into().expect("a code"))),
            (4, 0) if flags & 1 == 0 => drop(socket.write_all(&frame(4, 1, 0, &[]))),
            (6, 0) if flags & 1 == 0 => drop(socket.write_all(&frame(6, 1, 0, &payload))),
            (7, 0) => heard.gone = true,
            _ => {}
        }
        let over = kind < 2 && flags & 1 == 1 || kind == 3;
        if stream == 1 && over || heard.gone {
            return heard;
        }
    }
}

fn next_frame(socket: &mut TcpStream, until: Instant) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    read(socket, &mut head, until)?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; len];
    read(socket, &mut payload, until)?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

fn read(socket: &mut TcpStream, out: &mut [u8], until: Instant) -> Option<()> {
    let mut at = 0;
    while at < out.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        socket.set_read_timeout(Some(left)).expect("a socket");
        match socket.read(&mut out[at..]) {
            Ok(0) | Err(_) => return None,
            Ok(more) => at += more,
        }
    }
    Some(())
}

/// Names and values of HPACK (RFC 7541, appendix A) as far as answers use them.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Lengths of the codes of all bytes (RFC 7541, appendix B); the codes follow from them.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28,
    28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15,
    6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20,
    20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23,
    24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22,
    22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27,
    24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26,
    26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut order: Vec<u8> = (0..=255).collect();
    order.sort_by_key(|byte| (CODE_LENGTHS[usize::from(*byte)], *byte));
    let mut codes = std::collections::HashMap::new();
    let (mut code, mut len) = (0u32, CODE_LENGTHS[usize::from(order[0])]);
    for byte in order {
        let next = CODE_LENGTHS[usize::from(byte)];
        code <<= next - len;
        len = next;
        codes.insert((len, code), byte);
        code += 1;
    }
    let (mut out, mut code, mut len) = (Vec::new(), 0u32, 0);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1))) {
        code = code << 1 | bit;
        len += 1;
        if let Some(byte) = codes.get(&(len, code)) {
            out.push(*byte);
            (code, len) = (0, 0);
        }
    }
    out
}

#[derive(Default)]
struct Table {
    /// The newest first.
    dynamic: Fields,
}

impl Table {
    fn entry(&self, at: usize) -> (String, String) {
        match STATIC.get(at - 1) {
            Some((name, value)) => ((*name).to_owned(), (*value).to_owned()),
            None => self.dynamic[at - 1 - STATIC.len()].clone(),
        }
    }

    fn decoded(&mut self, mut block: &[u8]) -> Fields {
        let mut fields = Fields::new();
        while let Some(first) = block.first().copied() {
            let (bits, kept) = match first {
                128.. => {
                    fields.push(self.entry(read_number(&mut block, 7)));
                    continue;
                }
                64.. => (6, true),
                32.. => {
                    read_number(&mut block, 5);
                    continue;
                }
                _ => (4, false),
            };
            let name = match read_number(&mut block, bits) {
                0 => read_text(&mut block),
                at => self.entry(at).0,
            };
            let field = (name, read_text(&mut block));
            if kept {
                self.dynamic.insert(0, field.clone());
            }
            fields.push(field);
        }
        fields
    }
}

fn read_number(block: &mut &[u8], bits: u8) -> usize {
    let most = (1usize << bits) - 1;
    let mut value = usize::from(block[0]) & most;
    *block = &block[1..];
    if value < most {
        return value;
    }
    let mut shift = 0;
    loop {
        let byte = block[0];
        *block = &block[1..];
        value += usize::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

fn read_text(block: &mut &[u8]) -> String {
    let packed = block[0] & 128 != 0;
    let len = read_number(block, 7);
    let (text, rest) = block.split_at(len);
    *block = rest;
    let bytes = if packed { plain(text) } else { text.to_vec() };
    String::from_utf8_lossy(&bytes).into_owned()
}
