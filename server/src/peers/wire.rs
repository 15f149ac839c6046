//! Frames on a peer connection: `length u32, kind u8, body`, little-endian. The length
//! counts kind and body, and is checked before anything is allocated.

use node::frame::{self, Frame};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

const LENGTH: usize = 4;

/// A frame of the member.
const MEMBER: u8 = 0;
/// Eight bytes that come back as a pong on the same connection.
const PING: u8 = 1;
const PONG: u8 = 2;

#[derive(Debug)]
pub(crate) enum Got {
    Frame { frame: Frame, bytes: u64 },
    Ping(u64),
    Pong(u64),
}

/// None: longer than any receiver takes.
pub(crate) fn encode(frame: &Frame, max_frame: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; LENGTH];
    bytes.push(MEMBER);
    frame::encode(frame, &mut bytes);
    let len = bytes.len() - LENGTH;
    if len > max_frame {
        return None;
    }
    bytes[..LENGTH].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    Some(bytes)
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    let mut bytes = 9_u32.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(&number.to_le_bytes());
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

/// Reads one frame. Errors of kind `InvalidData` mean that the peer speaks nonsense.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin), max_frame: usize) -> io::Result<Got> {
    let len = from.read_u32_le().await? as usize;
    if len == 0 {
        return Err(bad("a frame of no bytes"));
    }
    if len > max_frame {
        return Err(bad("a frame longer than allowed"));
    }
    let kind = from.read_u8().await?;
    match kind {
        MEMBER => {
            let mut body = vec![0; len - 1];
            from.read_exact(&mut body).await?;
            let frame = frame::decode(body.into()).map_err(|_| bad("a malformed frame"))?;
            Ok(Got::Frame { frame, bytes: len as u64 })
        }
        PING | PONG if len == 9 => {
            let number = from.read_u64_le().await?;
            Ok(if kind == PING { Got::Ping(number) } else { Got::Pong(number) })
        }
        _ => Err(bad("a frame of unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8]) -> io::Result<Got> {
        let mut bytes = bytes;
        read(&mut bytes, 1000).await
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
    async fn hostile_lengths_and_kinds_are_refused_before_allocation() {
        let table: [(&[u8], &str); 6] = [
            (&[0, 0, 0, 0], "a frame of no bytes"),
            (&[0xff, 0xff, 0xff, 0xff, 0], "a frame longer than allowed"),
            (&[0xe9, 3, 0, 0, 0], "a frame longer than allowed"),
            (&[1, 0, 0, 0, 9], "a frame of unknown kind"),
            (&[2, 0, 0, 0, PING, 1], "a frame of unknown kind"),
            (&[2, 0, 0, 0, MEMBER, 250], "a malformed frame"),
        ];
        for (bytes, text) in table {
            let error = read_all(bytes).await.expect_err(text);
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
