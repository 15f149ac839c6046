//! One HTTP/2 connection of the generator (RFC 9113), without I/O: requests become bytes in
//! [`Tx::out`], bytes received become [`Event`]s.
//!
//! Only what a gRPC client needs: no push, no priorities. Flow control is kept on both sides. The
//! connection's own receive window is practically unlimited, so that a slow stream is slow alone.

use crate::hpack::{Decoder, Encoder, Field};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use wire::{Method, Rpc};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

const FRAME_HEAD: usize = 9;
const DEFAULT_WINDOW: i64 = 65_535;
/// Of the connection; given back when half of it is used.
const OWN_WINDOW: u32 = 1 << 30;
/// Code of a stream that ended without a `grpc-status`.
pub const NO_STATUS: u32 = 1000;
/// Code of a stream that the server reset: this plus the HTTP/2 error code.
pub const RESET: u32 = 1100;
/// Code of a stream whose connection was lost.
pub const LOST: u32 = 1001;

/// What a connection tells of a stream.
#[derive(Debug)]
pub enum Event<'a> {
    /// One whole message. `bytes` holds all of it, or, for streams that asked so, its beginning.
    Message { tag: u64, stream: u32, bytes: &'a [u8], len: usize },
    /// The stream is over; `code` 0 is success.
    End { tag: u64, code: u32, text: &'a str },
}

/// A connection that breaks the protocol.
#[derive(Debug, thiserror::Error)]
#[error("HTTP/2: {0}")]
pub struct Broken(pub String);

/// Stream numbers spread well by one multiplication.
#[derive(Default)]
pub struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u32")
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[derive(Debug)]
struct Stream {
    tag: u64,
    /// What the peer still takes of us.
    window: i64,
    unsent: Vec<u8>,
    end_after: bool,
    /// Received and not given back yet.
    taken: u32,
    /// Beginning of a message that has not come whole.
    part: Vec<u8>,
    /// Bytes of the message in `part` that were not kept.
    dropped: usize,
    /// Keep no more than this of a message that comes in parts.
    keep: usize,
    paused: bool,
}

/// How a stream is begun.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    pub rpc: Rpc,
    /// Comes back with each event.
    pub tag: u64,
    /// The request side stays open.
    pub open: bool,
    /// Of a message that comes in several frames, keep this much; the rest is counted only.
    pub keep: usize,
}

impl Begin {
    /// One request, one answer kept in full.
    pub fn unary(rpc: Rpc, tag: u64) -> Begin {
        Begin { rpc, tag, open: false, keep: usize::MAX }
    }
}

/// The sending half, and what is known of the streams.
#[derive(Debug)]
pub struct Tx {
    /// Bytes for the socket.
    pub out: Vec<u8>,
    next: u32,
    streams: HashMap<u32, Stream, BuildHasherDefault<ByNumber>>,
    window: i64,
    peer_window: i64,
    peer_frame: usize,
    peer_streams: usize,
    own_stream_window: u32,
    encoder: Encoder,
    /// Streams with unsent bytes, in the order in which they were stopped.
    stopped: VecDeque<u32>,
    /// Requests above the peer's limit of streams.
    waiting: VecDeque<(Begin, Vec<u8>)>,
}

/// One connection.
#[derive(Debug)]
pub struct H2 {
    pub tx: Tx,
    /// Bytes from the socket, from `seen` on not looked at.
    pub input: Vec<u8>,
    seen: usize,
    decoder: Decoder,
    block: Vec<u8>,
    /// Stream and flags of a header block that is being continued.
    block_of: Option<(u32, u8)>,
    taken: u32,
}

impl Tx {
    /// Begins a stream with its first message. Returns its number, or 0 if the server allows no
    /// further stream now (it begins by itself as soon as possible).
    pub fn start(&mut self, begin: Begin, message: &[u8]) -> u32 {
        if self.streams.len() >= self.peer_streams {
            self.waiting.push_back((begin, message.to_vec()));
            return 0;
        }
        let id = self.next;
        self.next += 2;
        assert!(self.next < 1 << 31, "the numbers of one connection are used up");
        let at = self.out.len();
        frame(&mut self.out, 0, HEADERS, END_HEADERS, id);
        self.encoder.block(Method::of(begin.rpc).path, &mut self.out);
        let len = self.out.len() - at - FRAME_HEAD;
        self.out[at + 1..at + 3].copy_from_slice(&(len as u16).to_be_bytes());
        let stream = Stream {
            tag: begin.tag,
            window: self.peer_window,
            unsent: Vec::new(),
            end_after: !begin.open,
            taken: 0,
            part: Vec::new(),
            dropped: 0,
            keep: begin.keep,
            paused: false,
        };
        self.streams.insert(id, stream);
        self.put_message(id, message);
        id
    }

    /// A further message on an open stream; nothing happens if it is over.
    pub fn send(&mut self, id: u32, message: &[u8]) {
        if self.streams.contains_key(&id) {
            self.put_message(id, message);
        }
    }

    /// While a stream is paused, the server gets no window back for it.
    pub fn pause(&mut self, id: u32, paused: bool) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.paused = paused;
            if !paused && stream.taken > 0 {
                update(&mut self.out, id, std::mem::take(&mut stream.taken));
            }
        }
    }

    /// Tags of the streams under way and of those that wait, in no order; they are forgotten.
    pub fn forget(&mut self) -> Vec<u64> {
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|(begin, _)| begin.tag);
        let mut tags: Vec<u64> = self.streams.drain().map(|(_, s)| s.tag).chain(waiting).collect();
        tags.sort_unstable();
        tags
    }

    fn put_message(&mut self, id: u32, message: &[u8]) {
        let stream = self.streams.get_mut(&id).expect("a stream just found");
        let len = u32::try_from(message.len()).expect("a message below 4 GiB").to_be_bytes();
        let whole = message.len() + 5;
        let fits = whole <= self.peer_frame && whole as i64 <= stream.window.min(self.window);
        if stream.unsent.is_empty() && fits {
            let flags = if stream.end_after { END_STREAM } else { 0 };
            frame(&mut self.out, whole, DATA, flags, id);
            self.out.push(0);
            self.out.extend_from_slice(&len);
            self.out.extend_from_slice(message);
            stream.window -= whole as i64;
            self.window -= whole as i64;
            return;
        }
        stream.unsent.push(0);
        stream.unsent.extend_from_slice(&len);
        stream.unsent.extend_from_slice(message);
        if self.push_unsent(id) {
            self.stopped.push_back(id);
        }
    }

    /// Sends what the windows allow; whether something is left.
    fn push_unsent(&mut self, id: u32) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let mut sent = 0;
        while sent < stream.unsent.len() {
            let allowed = stream.window.min(self.window).max(0) as usize;
            let chunk = (stream.unsent.len() - sent).min(allowed).min(self.peer_frame);
            if chunk == 0 {
                break;
            }
            let last = sent + chunk == stream.unsent.len() && stream.end_after;
            frame(&mut self.out, chunk, DATA, if last { END_STREAM } else { 0 }, id);
            self.out.extend_from_slice(&stream.unsent[sent..sent + chunk]);
            stream.window -= chunk as i64;
            self.window -= chunk as i64;
            sent += chunk;
        }
        stream.unsent.drain(..sent);
        !stream.unsent.is_empty()
    }

    fn go_on(&mut self) {
        for _ in 0..self.stopped.len() {
            let Some(id) = self.stopped.pop_front() else { return };
            if self.push_unsent(id) {
                self.stopped.push_back(id);
            }
        }
    }

    fn begin_waiting(&mut self) {
        while self.streams.len() < self.peer_streams {
            let Some((begin, message)) = self.waiting.pop_front() else { return };
            self.start(begin, &message);
        }
    }
}

impl H2 {
    /// A new connection: its greeting stands in `tx.out`. `stream_window`: what the server may
    /// send on one stream ahead of us.
    pub fn new(authority: &str, stream_window: u32) -> H2 {
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let settings: [(u16, u32); 2] = [(2, 0), (4, stream_window)];
        frame(&mut out, settings.len() * 6, SETTINGS, 0, 0);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        update(&mut out, 0, OWN_WINDOW - DEFAULT_WINDOW as u32);
        H2 {
            tx: Tx {
                out,
                next: 1,
                streams: HashMap::default(),
                window: DEFAULT_WINDOW,
                peer_window: DEFAULT_WINDOW,
                peer_frame: 16_384,
                peer_streams: 100,
                own_stream_window: stream_window,
                encoder: Encoder::new(authority),
                stopped: VecDeque::new(),
                waiting: VecDeque::new(),
            },
            input: Vec::new(),
            seen: 0,
            decoder: Decoder::default(),
            block: Vec::new(),
            block_of: None,
            taken: 0,
        }
    }

    /// Looks at all whole frames of `input`.
    ///
    /// # Errors
    /// If the server breaks the protocol or closes the connection.
    pub fn take(&mut self, on: &mut impl FnMut(&mut Tx, Event<'_>)) -> Result<(), Broken> {
        let input = std::mem::take(&mut self.input);
        let mut at = self.seen;
        let mut result = Ok(());
        while result.is_ok() && input.len() - at >= FRAME_HEAD {
            let len = usize::from(input[at]) << 16 | usize::from(input[at + 1]) << 8 | usize::from(input[at + 2]);
            if len > 16_384 {
                result = Err(Broken(format!("a frame of {len} bytes, above the agreed size")));
                break;
            }
            let Some(payload) = input.get(at + FRAME_HEAD..at + FRAME_HEAD + len) else { break };
            let (kind, flags) = (input[at + 3], input[at + 4]);
            let id = u32::from_be_bytes([input[at + 5] & 0x7f, input[at + 6], input[at + 7], input[at + 8]]);
            result = self.frame(kind, flags, id, payload, on);
            at += FRAME_HEAD + len;
        }
        self.input = input;
        self.seen = at;
        if self.seen == self.input.len() {
            self.input.clear();
            self.seen = 0;
        } else if self.seen > 1 << 18 {
            self.input.drain(..self.seen);
            self.seen = 0;
        }
        result
    }

    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &[u8],
        on: &mut impl FnMut(&mut Tx, Event<'_>),
    ) -> Result<(), Broken> {
        match kind {
            DATA => self.data(flags, id, payload, on),
            HEADERS => {
                let mut body = unpadded(flags, payload)?;
                if flags & PRIORITY != 0 {
                    body = body.get(5..).ok_or_else(|| Broken("a short HEADERS frame".into()))?;
                }
                if flags & END_HEADERS != 0 {
                    return self.headers(id, flags, body, on);
                }
                self.block.clear();
                self.block.extend_from_slice(body);
                self.block_of = Some((id, flags));
                Ok(())
            }
            CONTINUATION => {
                self.block.extend_from_slice(payload);
                let Some((of, first)) = self.block_of.filter(|(of, _)| *of == id) else {
                    return Err(Broken("a CONTINUATION of nothing".into()));
                };
                if flags & END_HEADERS != 0 {
                    self.block_of = None;
                    let block = std::mem::take(&mut self.block);
                    self.headers(of, first, &block, on)?;
                    self.block = block;
                }
                Ok(())
            }
            RST_STREAM => {
                let code = number(payload, 0)?;
                self.end(id, RESET + code, "the server reset the stream", on);
                Ok(())
            }
            SETTINGS if flags & ACK == 0 => self.settings(payload),
            PING if flags & ACK == 0 => {
                frame(&mut self.tx.out, payload.len(), PING, ACK, 0);
                self.tx.out.extend_from_slice(payload);
                Ok(())
            }
            GOAWAY => {
                let text = String::from_utf8_lossy(payload.get(8..).unwrap_or_default()).into_owned();
                Err(Broken(format!("the server closes the connection: code {} {text}", number(payload, 4)?)))
            }
            WINDOW_UPDATE => {
                let more = i64::from(number(payload, 0)? & 0x7fff_ffff);
                if id == 0 {
                    self.tx.window += more;
                } else if let Some(stream) = self.tx.streams.get_mut(&id) {
                    stream.window += more;
                }
                self.tx.go_on();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn settings(&mut self, payload: &[u8]) -> Result<(), Broken> {
        for pair in payload.chunks_exact(6) {
            let value = number(pair, 2)?;
            match u16::from_be_bytes([pair[0], pair[1]]) {
                1 if value < 4096 => return Err(Broken("the server's header table is too small for us".into())),
                3 => self.tx.peer_streams = value as usize,
                4 => {
                    let change = i64::from(value) - self.tx.peer_window;
                    self.tx.peer_window = i64::from(value);
                    self.tx.streams.values_mut().for_each(|stream| stream.window += change);
                }
                5 => self.tx.peer_frame = (value as usize).min(1 << 20),
                _ => {}
            }
        }
        frame(&mut self.tx.out, 0, SETTINGS, ACK, 0);
        self.tx.begin_waiting();
        self.tx.go_on();
        Ok(())
    }

    fn headers(
        &mut self,
        id: u32,
        flags: u8,
        block: &[u8],
        on: &mut impl FnMut(&mut Tx, Event<'_>),
    ) -> Result<(), Broken> {
        let (mut code, mut http, mut text) = (None, None, String::new());
        self.decoder
            .decode(block, |field| match field {
                Field::GrpcStatus(status) => code = Some(*status),
                Field::HttpStatus(status) => http = Some(*status),
                Field::GrpcMessage(message) => text.clone_from(message),
                Field::Other => {}
            })
            .map_err(|error| Broken(error.to_string()))?;
        if flags & END_STREAM != 0 {
            self.end(id, code.unwrap_or(NO_STATUS), &text, on);
        } else if http.is_some_and(|status| status != 200) {
            let text = format!("HTTP status {}", http.unwrap_or_default());
            self.end(id, NO_STATUS, &text, on);
        }
        Ok(())
    }

    fn data(
        &mut self,
        flags: u8,
        id: u32,
        payload: &[u8],
        on: &mut impl FnMut(&mut Tx, Event<'_>),
    ) -> Result<(), Broken> {
        self.taken += payload.len() as u32;
        if self.taken > OWN_WINDOW / 2 {
            update(&mut self.tx.out, 0, std::mem::take(&mut self.taken));
        }
        let body = unpadded(flags, payload)?;
        let half = self.tx.own_stream_window / 2;
        // A stream that was given up may still be told things.
        let Some(stream) = self.tx.streams.get_mut(&id) else { return Ok(()) };
        stream.taken += payload.len() as u32;
        if stream.taken > half && !stream.paused && flags & END_STREAM == 0 {
            update(&mut self.tx.out, id, std::mem::take(&mut stream.taken));
        }
        let tag = stream.tag;
        let mut rest = body;
        while !rest.is_empty() {
            let Some(stream) = self.tx.streams.get_mut(&id) else { return Ok(()) };
            if stream.part.is_empty()
                && let Some(len) = message_len(rest)?
                && rest.len() >= 5 + len
            {
                let bytes = &rest[5..5 + len];
                on(&mut self.tx, Event::Message { tag, stream: id, bytes, len });
                rest = &rest[5 + len..];
                continue;
            }
            rest = stream.append(rest)?;
            if let Some(len) = message_len(&stream.part)?
                && stream.part.len() + stream.dropped == 5 + len
            {
                let mut part = std::mem::take(&mut stream.part);
                stream.dropped = 0;
                on(&mut self.tx, Event::Message { tag, stream: id, bytes: &part[5..], len });
                if let Some(stream) = self.tx.streams.get_mut(&id) {
                    part.clear();
                    stream.part = part;
                }
            }
        }
        if flags & END_STREAM != 0 {
            self.end(id, NO_STATUS, "the stream ended without a status", on);
        }
        Ok(())
    }

    fn end(&mut self, id: u32, code: u32, text: &str, on: &mut impl FnMut(&mut Tx, Event<'_>)) {
        let Some(stream) = self.tx.streams.remove(&id) else { return };
        if !stream.unsent.is_empty() || stream.window < 0 {
            self.tx.stopped.retain(|stopped| *stopped != id);
        }
        on(&mut self.tx, Event::End { tag: stream.tag, code, text });
        if !self.tx.waiting.is_empty() {
            self.tx.begin_waiting();
        }
    }
}

impl Stream {
    /// Takes what belongs to the message under way; returns what is behind it.
    fn append<'a>(&mut self, rest: &'a [u8]) -> Result<&'a [u8], Broken> {
        let head = 5_usize.saturating_sub(self.part.len()).min(rest.len());
        self.part.extend_from_slice(&rest[..head]);
        let rest = &rest[head..];
        let Some(len) = message_len(&self.part)? else { return Ok(rest) };
        let missing = 5 + len - self.part.len() - self.dropped;
        let (body, behind) = rest.split_at(missing.min(rest.len()));
        let kept = body.len().min(self.keep.saturating_sub(self.part.len() - 5));
        self.part.extend_from_slice(&body[..kept]);
        self.dropped += body.len() - kept;
        Ok(behind)
    }
}

/// Length of the message whose 5-byte head begins `bytes`, if the head is there.
fn message_len(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    match bytes {
        [0, a, b, c, d, ..] => Ok(Some(u32::from_be_bytes([*a, *b, *c, *d]) as usize)),
        [compressed, ..] if *compressed != 0 => Err(Broken("a compressed message, which was not agreed".into())),
        _ => Ok(None),
    }
}

fn unpadded(flags: u8, payload: &[u8]) -> Result<&[u8], Broken> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let short = || Broken("padding longer than its frame".into());
    let (&pad, body) = payload.split_first().ok_or_else(short)?;
    body.get(..body.len().checked_sub(usize::from(pad)).ok_or_else(short)?).ok_or_else(short)
}

fn number(payload: &[u8], at: usize) -> Result<u32, Broken> {
    let bytes = payload.get(at..at + 4).ok_or_else(|| Broken("a frame cut short".into()))?;
    Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn frame(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, id: u32) {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&id.to_be_bytes());
}

fn update(out: &mut Vec<u8>, id: u32, more: u32) {
    frame(out, 4, WINDOW_UPDATE, 0, id);
    out.extend_from_slice(&more.to_be_bytes());
}
