//! gRPC messages out of a byte stream: five bytes of head (flag, length), then the message.

use super::status::{Code, Status};
use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the head of every message.
pub(crate) const HEAD: usize = 5;

/// Takes the stream apart, however it was cut. A message that lies in one piece is not copied.
#[derive(Debug)]
pub(crate) struct Unframer {
    limit: u64,
    /// Messages may be packed; then and only then.
    packed: bool,
    input: Bytes,
    head: [u8; HEAD],
    have: usize,
    /// Length of the message being gathered, once its head is whole.
    want: Option<usize>,
    body: BytesMut,
}

impl Unframer {
    /// Refuses messages of more than `limit` bytes, before any of their bytes are kept.
    pub(crate) fn new(limit: u64) -> Unframer {
        let (input, body) = (Bytes::new(), BytesMut::new());
        Unframer { limit, packed: false, input, head: [0; HEAD], have: 0, want: None, body }
    }

    /// The same, of messages that may be packed.
    pub(crate) fn of_packed(limit: u64) -> Unframer {
        Unframer { packed: true, ..Unframer::new(limit) }
    }

    /// Whether the message that came last says that it is packed.
    pub(crate) fn is_packed(&self) -> bool {
        self.head[0] == 1
    }

    /// The next piece of the stream. Call [`Unframer::next_message`] until it has nothing, before
    /// the next piece.
    pub(crate) fn push(&mut self, piece: Bytes) {
        assert!(self.input.is_empty(), "a piece of a stream was pushed over another");
        self.input = piece;
    }

    /// Bytes kept for a message that is not whole yet.
    pub(crate) fn kept(&self) -> usize {
        self.body.len()
    }

    /// The next whole message, or None when more of the stream is needed.
    pub(crate) fn next_message(&mut self) -> Result<Option<Bytes>, Status> {
        let want = match self.want {
            Some(want) => want,
            None => match self.read_head()? {
                Some(want) => want,
                None => return Ok(None),
            },
        };
        if self.body.is_empty() && self.input.len() >= want {
            self.restart();
            return Ok(Some(self.input.split_to(want)));
        }
        let missing = want - self.body.len();
        let piece = self.input.split_to(missing.min(self.input.len()));
        self.body.extend_from_slice(&piece);
        if self.body.len() < want {
            return Ok(None);
        }
        self.restart();
        Ok(Some(self.body.split().freeze()))
    }

    fn restart(&mut self) {
        self.have = 0;
        self.want = None;
    }

    fn read_head(&mut self) -> Result<Option<usize>, Status> {
        let take = (HEAD - self.have).min(self.input.len());
        self.input.copy_to_slice(&mut self.head[self.have..self.have + take]);
        self.have += take;
        if self.have < HEAD {
            return Ok(None);
        }
        let want = u32::from_be_bytes([self.head[1], self.head[2], self.head[3], self.head[4]]);
        if u64::from(want) > self.limit {
            return Err(Status::with(
                Code::ResourceExhausted,
                format!("grpc: received message larger than max ({want} vs. {})", self.limit),
            ));
        }
        match self.head[0] {
            0 => {}
            1 if self.packed => {}
            1 => return Err(Status::new(Code::Internal, "grpc: compressed flag set with identity or empty encoding")),
            other => {
                let text = format!("grpc: received unexpected payload format {other}");
                return Err(Status::with(Code::Internal, text));
            }
        }
        self.want = Some(want as usize);
        Ok(self.want)
    }

    /// The stream ended: an error when that was inside a message.
    pub(crate) fn end(&self) -> Result<(), Status> {
        match self.want {
            // A head that is cut short ends the stream, too, as grpc-go has it.
            None => Ok(()),
            Some(_) => Err(Status::new(Code::Internal, "unexpected EOF")),
        }
    }
}

/// The head of a message of `len` bytes.
pub(crate) fn head(len: u32) -> [u8; HEAD] {
    let len = len.to_be_bytes();
    [0, len[0], len[1], len[2], len[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for message in messages {
            out.extend_from_slice(&head(message.len() as u32));
            out.extend_from_slice(message);
        }
        out
    }

    fn read_all(stream: &[u8], piece: usize, limit: u64) -> Result<Vec<Bytes>, Status> {
        let mut unframer = Unframer::new(limit);
        let mut out = Vec::new();
        for piece in stream.chunks(piece) {
            unframer.push(Bytes::copy_from_slice(piece));
            while let Some(message) = unframer.next_message()? {
                out.push(message);
            }
        }
        unframer.end()?;
        Ok(out)
    }

    #[test]
    fn messages_survive_every_cut() {
        let long = vec![7u8; 300];
        let messages: [&[u8]; 5] = [b"one", b"", &long, b"", b"last"];
        let stream = framed(&messages);
        for piece in 1..=stream.len() {
            assert_eq!(read_all(&stream, piece, 300).unwrap(), messages, "pieces of {piece}");
        }
    }

    #[test]
    fn an_oversized_message_is_refused_by_its_head() {
        let mut unframer = Unframer::new(10);
        unframer.push(Bytes::copy_from_slice(&head(11)));
        let refused = unframer.next_message().unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(refused.message, "grpc: received message larger than max (11 vs. 10)");
        assert_eq!(unframer.kept(), 0);
    }

    #[test]
    fn compressed_and_cut_messages_are_errors() {
        assert_eq!(read_all(&[1, 0, 0, 0, 0], 5, 10).unwrap_err().code, Code::Internal);
        for cut in 1..7 {
            let stream = &framed(&[b"ab"])[..cut];
            let ended = read_all(stream, 3, 10);
            assert_eq!(ended.is_err(), cut >= HEAD, "cut at {cut}");
        }
        assert_eq!(read_all(&framed(&[b"ab"]), 3, 10).unwrap(), vec![Bytes::from_static(b"ab")]);
    }
}
