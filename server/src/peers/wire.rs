//! Frames on a peer connection: `length u32, checksum u32, kind u8, body`, little-endian. The
//! length counts kind and body; the checksum is the CRC-32C of both.
//!
//! A length is a promise: it is bounded, and room is taken as the bytes come.

use crate::budgets::Budgets;
use node::frame::{self, Frame};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Length and checksum.
const HEAD: usize = 8;
/// So much of a frame is read before there is room for more, and at once.
const PIECE: usize = 64 << 10;
/// Pings, pongs: the longest frames that come back on a line that was dialled.
pub(crate) const SHORT: usize = 9;

/// A frame of the member.
const MEMBER: u8 = 0;
/// Eight bytes that come back as a pong on the same connection.
const PING: u8 = 1;
const PONG: u8 = 2;

/// The number of a pong that answers no ping: a long frame is on its way, and bytes of it came.
pub(crate) const ARRIVES: u64 = 0;

#[derive(Debug)]
pub(crate) enum Got {
    Frame { frame: Frame, bytes: u64 },
    Ping(u64),
    Pong(u64),
}

/// None: longer than any receiver takes.
pub(crate) fn encode(frame: &Frame, max_frame: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; HEAD];
    bytes.push(MEMBER);
    frame::encode(frame, &mut bytes);
    let len = bytes.len() - HEAD;
    if len > max_frame {
        return None;
    }
    put_head(&mut bytes, u32::try_from(len).ok()?);
    Some(bytes)
}

fn put_head(bytes: &mut [u8], len: u32) {
    let sum = crc32c::crc32c(&bytes[HEAD..]);
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..HEAD].copy_from_slice(&sum.to_le_bytes());
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.push(kind);
    bytes.extend_from_slice(&number.to_le_bytes());
    put_head(&mut bytes, 9);
    bytes
}

pub(crate) fn ping(number: u64) -> Vec<u8> {
    numbered(PING, number)
}

pub(crate) fn pong(number: u64) -> Vec<u8> {
    numbered(PONG, number)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What has come of a frame, charged until the frame is whole.
struct Arriving<'a> {
    budgets: &'a Budgets,
    bytes: Vec<u8>,
    charged: u64,
}

impl Arriving<'_> {
    /// Others hold all room. A frame that is longer than all room waits no more once it has taken
    /// it: what comes next waits for this one.
    fn must_wait(&self) -> bool {
        let budget = &self.budgets.peer_frames;
        let others = budget.used().saturating_sub(self.charged);
        !self.bytes.is_empty() && self.charged <= budget.limit() && others > budget.limit()
    }

    /// Reads one piece more. A frame that is longer than a piece waits while others hold all room.
    async fn more(&mut self, from: &mut (impl AsyncRead + Unpin), left: usize) -> io::Result<()> {
        let budget = &self.budgets.peer_frames;
        while self.must_wait() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // It doubles: what is there was sent.
        let piece = left.min(self.bytes.len().max(PIECE));
        self.bytes.reserve_exact(piece);
        let begin = self.bytes.len();
        while self.bytes.len() < begin + piece {
            let missing = (begin + piece - self.bytes.len()) as u64;
            let got = (&mut *from).take(missing).read_buf(&mut self.bytes).await?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            budget.take(got as u64);
            self.charged += got as u64;
        }
        Ok(())
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.budgets.peer_frames.give(self.charged);
    }
}

/// Reads one frame. Errors of kind `InvalidData` mean that the peer speaks nonsense.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin), max_frame: usize, budgets: &Budgets) -> io::Result<Got> {
    let len = from.read_u32_le().await? as usize;
    if len == 0 {
        return Err(bad("a frame of no bytes"));
    }
    if len > max_frame {
        return Err(bad("a frame longer than allowed"));
    }
    let sum = from.read_u32_le().await?;
    let mut arriving = Arriving { budgets, bytes: Vec::new(), charged: 0 };
    while arriving.bytes.len() < len {
        let left = len - arriving.bytes.len();
        arriving.more(from, left).await?;
    }
    let bytes = std::mem::take(&mut arriving.bytes);
    drop(arriving);
    if crc32c::crc32c(&bytes) != sum {
        return Err(bad("a frame whose checksum is wrong"));
    }
    match bytes[0] {
        MEMBER => {
            let body = bytes::Bytes::from(bytes).slice(1..);
            let frame = frame::decode(body).map_err(|_| bad("a malformed frame"))?;
            Ok(Got::Frame { frame, bytes: len as u64 })
        }
        kind @ (PING | PONG) if len == 9 => {
            let number = bytes[1..].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            Ok(if kind == PING { Got::Ping(number) } else { Got::Pong(number) })
        }
        _ => Err(bad("a frame of unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8]) -> io::Result<Got> {
        let (mut bytes, budgets) = (bytes, Budgets::new(crate::budgets::Limits::default()));
        let got = read(&mut bytes, 1000, &budgets).await;
        assert_eq!(budgets.peer_frames.used(), 0, "all is given back");
        got
    }

    /// A frame of these bytes, with its checksum.
    fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes.extend_from_slice(body);
        put_head(&mut bytes, body.len() as u32);
        bytes
    }

    #[tokio::test]
    async fn frames_come_back() {
        let frame = Frame::ReadIndex { boot: 3, token: 4 };
        let bytes = encode(&frame, 1000).expect("short");
        let got = read_all(&bytes).await.expect("good");
        assert!(matches!(got, Got::Frame { frame: Frame::ReadIndex { boot: 3, token: 4 }, bytes: 18 }));
        assert!(matches!(read_all(&ping(7)).await.expect("good"), Got::Ping(7)));
        assert!(matches!(read_all(&pong(8)).await.expect("good"), Got::Pong(8)));
    }

    #[tokio::test]
    async fn a_frame_longer_than_all_room_arrives() {
        let limits = crate::budgets::Limits { peer_frames: 1000, ..crate::budgets::Limits::default() };
        let budgets = Budgets::new(limits);
        let whole = bytes::Bytes::from(vec![7; 4 * PIECE]);
        let frame = Frame::Chunk { boot: 1, token: 2, ok: true, end: true, bytes: whole };
        let bytes = encode(&frame, usize::MAX).expect("short");
        let mut from = &bytes[..];
        let reading = read(&mut from, usize::MAX, &budgets);
        let got = tokio::time::timeout(Duration::from_secs(10), reading).await.expect("it does not wait for itself");
        assert!(matches!(got.expect("good"), Got::Frame { frame: Frame::Chunk { .. }, .. }));
        assert_eq!(budgets.peer_frames.used(), 0);
    }

    #[tokio::test]
    async fn hostile_lengths_and_kinds_are_refused_before_allocation() {
        let mut flipped = ping(7);
        flipped[HEAD + 3] ^= 1;
        let table: [(Vec<u8>, &str); 7] = [
            (vec![0, 0, 0, 0], "a frame of no bytes"),
            (vec![0xff, 0xff, 0xff, 0xff, 0], "a frame longer than allowed"),
            (vec![0xe9, 3, 0, 0, 0], "a frame longer than allowed"),
            (framed(&[9]), "a frame of unknown kind"),
            (framed(&[PING, 1]), "a frame of unknown kind"),
            (framed(&[MEMBER, 250]), "a malformed frame"),
            (flipped, "a frame whose checksum is wrong"),
        ];
        for (bytes, text) in table {
            let error = read_all(&bytes).await.expect_err(text);
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidData, text));
        }
        let good = encode(&Frame::ReadIndex { boot: 3, token: 4 }, 1000).expect("short");
        for cut in 0..good.len() {
            let error = read_all(&good[..cut]).await.expect_err("cut short");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        assert!(encode(&Frame::ReadIndex { boot: 3, token: 4 }, 17).is_none(), "too long to send");
    }
}
