//! Messages in gzip, as grpc-go has them: one that came in gzip is read, and answered in gzip.
//!
//! Reading and packing go in steps, so that one large message does not stop the others of its
//! thread. Neither holds more than the limits say, whatever the bytes announce.

use super::frames::HEAD;
use super::status::{Code, Status};
use crate::budgets::Hold;
use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compression, Crc};
use std::io::{self, Read, Write};

/// The one encoding there is beside `identity`.
pub(crate) const NAME: &str = "gzip";

/// Bytes that are read or packed before others have their turn.
const STEP: usize = 64 << 10;
/// The window and the buffers of a message that is being read.
const READER: usize = 48 << 10;
/// The window, the tables and the buffers of a message that is being packed.
pub(crate) const PACKER: u64 = 384 << 10;
/// A message is packed whole before its first byte goes out, for its head says its length: longer
/// ones go out as they are, which the protocol allows within a call.
const LONGEST: u64 = 1 << 20;
/// The same for messages that are packed in one go.
const LONGEST_AT_ONCE: usize = 256 << 10;
/// Shorter ones are put into gzip as they are: packing them would gain nothing.
const SHORT: usize = 256;

/// A message on its way out of gzip.
pub(crate) struct Inflate {
    source: MultiGzDecoder<Reader<Bytes>>,
    out: Vec<u8>,
    empty: bool,
    /// Some of it could be read.
    begun: bool,
    len: usize,
    limit: u64,
}

impl Inflate {
    /// `limit`: of the message itself, in bytes.
    pub(crate) fn new(message: Bytes, limit: u64) -> Inflate {
        let (len, empty) = (message.len(), message.is_empty());
        Inflate { source: MultiGzDecoder::new(message.reader()), out: Vec::new(), empty, begun: false, len, limit }
    }

    /// Bytes held.
    pub(crate) fn kept(&self) -> usize {
        self.len + self.out.capacity() + READER
    }

    /// Goes on; the message when it is whole.
    pub(crate) fn step(&mut self) -> Result<Option<Bytes>, Status> {
        if self.empty {
            return Err(unread(false, "EOF"));
        }
        let begin = self.out.len();
        // One byte beyond the limit shows that there is more.
        let most = usize::try_from(self.limit.saturating_add(1)).unwrap_or(usize::MAX);
        let end = begin.saturating_add(STEP).min(most);
        self.out.resize(end, 0);
        let mut at = begin;
        while at < end {
            match self.source.read(&mut self.out[at..]) {
                Ok(0) => {
                    self.out.truncate(at);
                    return Ok(Some(std::mem::take(&mut self.out).into()));
                }
                Ok(more) => {
                    self.begun = true;
                    at += more;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(unread(self.begun || self.source.header().is_some(), said(&error)));
                }
            }
        }
        if end as u64 > self.limit {
            let text = format!("grpc: received message after decompression larger than max {}", self.limit);
            return Err(Status::with(Code::ResourceExhausted, text));
        }
        Ok(None)
    }
}

fn unread(begun: bool, why: &str) -> Status {
    let what = if begun { "read decompressed data" } else { "decompress the message" };
    Status::with(Code::Internal, format!("grpc: failed to {what}: {why}"))
}

/// As Go's packages word it. Its place in the stream, which they say too, is not known here.
fn said(error: &io::Error) -> &'static str {
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "unexpected EOF",
        _ if text.contains("header") => "gzip: invalid header",
        _ if text.contains("checksum") => "gzip: invalid checksum",
        _ => "flate: corrupt input",
    }
}

/// A message on its way into gzip, behind room for its head.
pub(crate) struct Packing {
    into: GzEncoder<Vec<u8>>,
    _hold: Hold,
}

/// Whether a message of this length, whose parts come one by one, is packed.
pub(crate) fn fits(len: u64) -> bool {
    (1..=LONGEST).contains(&len)
}

/// Whether a message of this length is packed in one go.
pub(crate) fn fits_at_once(len: usize) -> bool {
    (1..=LONGEST_AT_ONCE).contains(&len)
}

impl Packing {
    /// `hold`: for [`PACKER`] and the message.
    pub(crate) fn new(hold: Hold) -> Packing {
        Packing { into: GzEncoder::new(vec![0; HEAD], Compression::fast()), _hold: hold }
    }

    pub(crate) fn part(&mut self, part: &[u8]) -> io::Result<()> {
        self.into.write_all(part)
    }

    /// The message with its head.
    pub(crate) fn framed(self) -> io::Result<Vec<u8>> {
        self.into.finish().map(headed)
    }
}

/// A whole message, packed, with its head.
pub(crate) fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    if message.len() < SHORT {
        return Ok(headed(stored(message)));
    }
    let mut into = GzEncoder::new(vec![0; HEAD], Compression::fast());
    into.write_all(message)?;
    into.finish().map(headed)
}

/// A page, packed.
pub(crate) fn page(page: &[u8]) -> io::Result<Vec<u8>> {
    let mut into = GzEncoder::new(Vec::new(), Compression::fast());
    into.write_all(page)?;
    into.finish()
}

fn headed(mut framed: Vec<u8>) -> Vec<u8> {
    let len = u32::try_from(framed.len() - HEAD).expect("messages that are packed are short");
    framed[0] = 1;
    framed[1..HEAD].copy_from_slice(&len.to_be_bytes());
    framed
}

/// gzip (RFC 1952) of one stored block, behind room for the head.
fn stored(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).expect("short");
    let mut crc = Crc::new();
    crc.update(message);
    let mut out = Vec::with_capacity(HEAD + message.len() + 23);
    out.extend_from_slice(&[0; HEAD]);
    // Deflate, no flags, no time, no hint, an unknown system.
    out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    out.push(1);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&(!len).to_le_bytes());
    out.extend_from_slice(message);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&crc.amount().to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflated(message: &[u8], limit: u64) -> Result<Vec<u8>, Status> {
        let mut inflate = Inflate::new(Bytes::copy_from_slice(message), limit);
        loop {
            assert!(inflate.kept() as u64 <= message.len() as u64 + 2 * (limit + 1) + (READER + STEP) as u64);
            if let Some(whole) = inflate.step()? {
                return Ok(whole.to_vec());
            }
        }
    }

    fn packed(message: &[u8]) -> Vec<u8> {
        let mut into = GzEncoder::new(Vec::new(), Compression::best());
        into.write_all(message).unwrap();
        into.finish().unwrap()
    }

    #[test]
    fn what_is_packed_is_read_again() {
        for len in [1, 2, 255, 256, 257, 70_000, 200_000] {
            let message: Vec<u8> = (0..len).map(|n: u32| (n % 251) as u8).collect();
            let framed = framed(&message).unwrap();
            let (head, body) = framed.split_at(HEAD);
            assert_eq!(head[0], 1);
            assert_eq!(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize, body.len());
            assert_eq!(inflated(body, u64::from(len)).unwrap(), message);
        }
        // Members one behind the other are one message.
        assert_eq!(inflated(&[packed(b"one"), packed(b"two")].concat(), 6).unwrap(), b"onetwo");
        assert_eq!(inflated(&packed(b""), 0).unwrap(), b"");
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let bomb = packed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100 << 10);
        let limit = 2 << 20;
        let refused = inflated(&bomb, limit).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(refused.message, "grpc: received message after decompression larger than max 2097152");
        assert_eq!(inflated(&packed(&[7; 10]), 10).unwrap().len(), 10);
        assert!(inflated(&packed(&[7; 11]), 10).is_err());
    }

    #[test]
    fn what_is_no_gzip_is_told_as_grpc_go_tells_it() {
        let whole = packed(b"a message");
        let mut wrong = whole.clone();
        let at = wrong.len() - 8;
        wrong[at] ^= 1;
        let table: [(&[u8], &str); 6] = [
            (b"", "grpc: failed to decompress the message: EOF"),
            (b"plain bytes that are no gzip", "grpc: failed to decompress the message: gzip: invalid header"),
            (&whole[..5], "grpc: failed to decompress the message: unexpected EOF"),
            (&whole[..15], "grpc: failed to read decompressed data: unexpected EOF"),
            (&wrong, "grpc: failed to read decompressed data: gzip: invalid checksum"),
            (
                &[&whole[..], b"garbage behind it"].concat(),
                "grpc: failed to read decompressed data: gzip: invalid header",
            ),
        ];
        for (message, text) in table {
            let refused = inflated(message, 100).unwrap_err();
            assert_eq!((refused.code, refused.message.as_ref()), (Code::Internal, text), "{message:?}");
        }
    }
}
