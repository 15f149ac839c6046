//! A connection of an attacker that keeps HTTP/2's rules: it sends no more than it may, and reads
//! its answers. What breaks them is cut by every member, and shows nothing.

use std::collections::BTreeMap;
use std::net::TcpStream;

use super::frames::*;
use super::target::Target;

/// Bytes of a frame's head, and of a message's.
const HEAD: usize = 9;
const MESSAGE_HEAD: usize = 5;
/// What either side may be sent before it says otherwise.
const WINDOW_AT_FIRST: i64 = 65_535;
/// The flag of an acknowledgement.
const ACK: u8 = 1;
/// Bytes of a frame that everybody takes.
const LARGEST: usize = 16 << 10;

/// What the other end has said so far.
#[derive(Debug)]
pub(super) struct Heard {
    bytes: Vec<u8>,
    /// Bytes that may be sent on the whole connection.
    room: i64,
    /// What each new stream may be sent.
    first: i64,
    streams: BTreeMap<u32, Stream>,
    /// Settings that are not acknowledged. Until they are, they do not hold for the other end.
    unacknowledged: usize,
    /// It ended the connection.
    pub(super) over: bool,
    /// HTTP/2's number of the error with which it ended a stream or the connection.
    pub(super) error: Option<i64>,
}

#[derive(Debug, Default)]
struct Stream {
    room: i64,
    /// Of DATA, what is no whole message yet.
    begun: Vec<u8>,
    messages: usize,
    over: bool,
}

impl Heard {
    pub(super) fn new() -> Heard {
        let (bytes, streams) = (Vec::new(), BTreeMap::new());
        Heard {
            bytes,
            room: WINDOW_AT_FIRST,
            first: WINDOW_AT_FIRST,
            streams,
            unacknowledged: 0,
            over: false,
            error: None,
        }
    }

    pub(super) fn open(&mut self, stream: u32) {
        self.streams.insert(stream, Stream { room: self.first, ..Stream::default() });
    }

    /// Bytes that may be sent on a stream.
    fn room(&self, stream: u32) -> usize {
        let room = self.streams.get(&stream).map_or(0, |stream| stream.room.min(self.room));
        usize::try_from(room).unwrap_or(0)
    }

    fn sent(&mut self, stream: u32, bytes: usize) {
        self.room -= bytes as i64;
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.room -= bytes as i64;
        }
    }

    /// Messages that were answered on a stream.
    pub(super) fn messages(&self, stream: u32) -> usize {
        self.streams.get(&stream).map_or(0, |stream| stream.messages)
    }

    /// Nothing more comes on this stream.
    pub(super) fn is_over(&self, stream: u32) -> bool {
        self.over || self.streams.get(&stream).is_none_or(|stream| stream.over)
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.bytes);
        let mut rest = bytes.as_slice();
        while let Some(head) = rest.get(..HEAD) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
            let Some(payload) = rest.get(HEAD..HEAD + length) else { break };
            self.frame(head[3], head[4], of, payload);
            rest = &rest[HEAD + length..];
        }
        self.bytes = rest.to_vec();
    }

    fn frame(&mut self, kind: u8, flags: u8, of: u32, payload: &[u8]) {
        match (kind, of) {
            (GO_AWAY, _) => {
                self.over = true;
                self.error = payload.get(4..).map(number);
            }
            (WINDOW, 0) => self.room += number(payload),
            (SETTINGS, _) => {
                self.unacknowledged += usize::from(flags & ACK == 0);
                for setting in payload.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]) {
                    let (before, now) = (self.first, number(&setting[2..]));
                    self.first = now;
                    self.streams.values_mut().for_each(|stream| stream.room += now - before);
                }
            }
            _ => {
                self.error = if kind == RESET { Some(number(payload)) } else { self.error };
                if let Some(stream) = self.streams.get_mut(&of) {
                    stream.frame(kind, flags, payload);
                }
            }
        }
    }
}

impl Stream {
    fn frame(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        match kind {
            WINDOW => self.room += number(payload),
            RESET => self.over = true,
            DATA => self.data(payload),
            _ => {}
        }
        self.over |= matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
    }

    fn data(&mut self, payload: &[u8]) {
        self.begun.extend_from_slice(payload);
        let mut at = 0;
        while let Some(head) = self.begun.get(at..at + MESSAGE_HEAD) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if self.begun.len() < at + MESSAGE_HEAD + length {
                break;
            }
            at += MESSAGE_HEAD + length;
            self.messages += 1;
        }
        self.begun.drain(..at);
    }
}

fn number(bytes: &[u8]) -> i64 {
    let four = bytes.first_chunk().copied().unwrap_or_default();
    i64::from(u32::from_be_bytes(four) & 0x7fff_ffff)
}

/// A connection.
pub(super) struct Fair<'a> {
    target: &'a Target,
    socket: TcpStream,
    pub(super) heard: Heard,
    /// Bytes of a frame of DATA, at most.
    pub(super) piece: usize,
}

impl<'a> Fair<'a> {
    /// None: it could not be made.
    pub(super) fn connect(target: &'a Target) -> Option<Fair<'a>> {
        let mut socket = target.connect()?;
        target.write(&mut socket, &hello(0x7fff_ffff)).ok()?;
        Some(Fair { target, socket, heard: Heard::new(), piece: LARGEST })
    }

    pub(super) fn begin(&mut self, stream: u32, path: &str) -> bool {
        self.heard.open(stream);
        self.target.write(&mut self.socket, &frame(HEADERS, END_HEADERS, stream, &call(path))).is_ok()
    }

    /// Sends all of it as there is room. False: the stream or the attack is over.
    pub(super) fn send(&mut self, stream: u32, mut bytes: &[u8], last: bool) -> bool {
        while !bytes.is_empty() {
            let mut out = Vec::new();
            while !bytes.is_empty() && self.heard.room(stream) > 0 {
                let (piece, rest) = bytes.split_at(bytes.len().min(self.piece).min(self.heard.room(stream)));
                let end = if last && rest.is_empty() { END_STREAM } else { 0 };
                out.extend(frame(DATA, end, stream, piece));
                self.heard.sent(stream, piece.len());
                bytes = rest;
            }
            let wrote = self.target.write(&mut self.socket, &out).is_ok();
            if !wrote || !bytes.is_empty() && !self.listen(stream) {
                return false;
            }
        }
        true
    }

    /// Takes what is there, for a moment. False: nothing more comes, or the attack is over.
    pub(super) fn listen(&mut self, stream: u32) -> bool {
        let mut came = Vec::new();
        self.heard.over |= !self.target.take(&mut self.socket, &mut came, 1);
        self.heard.push(&came);
        for _ in 0..std::mem::take(&mut self.heard.unacknowledged) {
            self.heard.over |= self.target.write(&mut self.socket, &frame(SETTINGS, ACK, 0, &[])).is_err();
        }
        self.target.goes_on() && !self.heard.is_over(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_however_they_are_cut() {
        let mut bytes = frame(SETTINGS, 0, 0, &[]);
        bytes.extend(frame(HEADERS, END_HEADERS, 1, b"head"));
        bytes.extend(frame(DATA, 0, 1, &[0, 0, 0, 0, 2, b'a']));
        bytes.extend(frame(DATA, 0, 3, &[0, 0, 0, 0, 0]));
        bytes.extend(frame(DATA, 0, 1, &[b'b', 0, 0, 0, 0, 0]));
        for size in [1, 7, 1000] {
            let mut heard = Heard::new();
            heard.open(1);
            bytes.chunks(size).for_each(|piece| heard.push(piece));
            assert_eq!((heard.messages(1), heard.is_over(1)), (2, false));
            heard.push(&frame(HEADERS, END_HEADERS | END_STREAM, 1, b"trailers"));
            assert!(heard.is_over(1) && !heard.over);
        }
    }

    #[test]
    fn no_more_is_sent_than_there_is_room_for() {
        let mut heard = Heard::new();
        heard.open(1);
        heard.sent(1, 65_000);
        assert_eq!(heard.room(1), 535);
        // More for the connection alone is no more for the stream.
        heard.push(&frame(WINDOW, 0, 0, &100_000_u32.to_be_bytes()));
        assert_eq!(heard.room(1), 535);
        heard.push(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9, 0, 4, 0, 1, 0, 0]));
        assert_eq!((heard.room(1), heard.unacknowledged), (536, 1));
        heard.push(&frame(WINDOW, 0, 1, &1_000_u32.to_be_bytes()));
        assert_eq!(heard.room(1), 1_536);
        heard.push(&frame(GO_AWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]));
        assert!(heard.is_over(1));
        assert_eq!(heard.error, Some(11));
    }
}
