//! The rows of a snapshot as one stream of bytes, and where that is cut.
//!
//! ```text
//! 0, length of the name (u32), name                                 the rows that follow are of this bucket
//! 1, length of the key (u32), length of the value (u32), key, value a row
//! ```
//!
//! Numbers are little-endian. A piece ends behind a row. Which row that is the row itself says: its
//! key and its length. So what is in front of it does not move the places of the cuts, and pieces
//! of rows that did not change stay the same. A compaction takes rows out of the middle of a
//! snapshot, which moves every page of the file behind them; here it changes the pieces that held
//! them.

use bytes::{Buf, Bytes};

/// A piece has about so many bytes.
const AVERAGE: u64 = 256 << 10;
/// And no fewer than these, but for the last one.
const LEAST: usize = 16 << 10;
/// It is ended behind the row that makes it so long.
const MOST: usize = 4 << 20;

/// What stands in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    Bucket(Bytes),
    Pair(Bytes, Bytes),
}

/// Cuts a stream of rows.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    piece: Vec<u8>,
}

impl Cutter {
    pub(crate) fn bucket(&mut self, name: &[u8]) {
        self.piece.push(0);
        self.piece.extend_from_slice(&length(name));
        self.piece.extend_from_slice(name);
    }

    /// A piece, if one ends behind this row.
    pub(crate) fn pair(&mut self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        self.piece.push(1);
        self.piece.extend_from_slice(&length(key));
        self.piece.extend_from_slice(&length(value));
        self.piece.extend_from_slice(key);
        self.piece.extend_from_slice(value);
        let row = (9 + key.len() + value.len()) as u64;
        let ends = u64::from(crc32c::crc32c(key)) * AVERAGE < row << 32;
        let long = self.piece.len() >= MOST;
        (long || ends && self.piece.len() >= LEAST).then(|| std::mem::take(&mut self.piece))
    }

    /// What is left.
    pub(crate) fn rest(self) -> Option<Vec<u8>> {
        (!self.piece.is_empty()).then_some(self.piece)
    }
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("bbolt takes no longer ones").to_le_bytes()
}

/// The rows of a piece; None: it is none.
pub(crate) fn read(mut piece: Bytes) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    while !piece.is_empty() {
        let tag = piece.get_u8();
        let first = take_length(&mut piece)?;
        match tag {
            0 => rows.push(Row::Bucket(take(&mut piece, first)?)),
            1 => {
                let second = take_length(&mut piece)?;
                rows.push(Row::Pair(take(&mut piece, first)?, take(&mut piece, second)?));
            }
            _ => return None,
        }
    }
    Some(rows)
}

fn take_length(piece: &mut Bytes) -> Option<usize> {
    (piece.len() >= 4).then(|| piece.get_u32_le() as usize)
}

fn take(piece: &mut Bytes, length: usize) -> Option<Bytes> {
    (piece.len() >= length).then(|| piece.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(rows: impl Iterator<Item = (u64, usize)>) -> Vec<Vec<u8>> {
        let mut cutter = Cutter::default();
        cutter.bucket(b"key");
        let mut pieces: Vec<Vec<u8>> =
            rows.filter_map(|(n, size)| cutter.pair(&n.to_be_bytes(), &vec![n as u8; size])).collect();
        pieces.extend(cutter.rest());
        pieces
    }

    #[test]
    fn a_stream_is_what_its_pieces_are() {
        let cut = pieces((0..20_000).map(|n| (n, 200)));
        let mut rows = cut.iter().flat_map(|piece| read(Bytes::from(piece.clone())).expect("rows"));
        assert_eq!(rows.next(), Some(Row::Bucket(Bytes::from_static(b"key"))));
        for n in 0..20_000_u64 {
            let pair = Row::Pair(Bytes::copy_from_slice(&n.to_be_bytes()), Bytes::from(vec![n as u8; 200]));
            assert_eq!(rows.next(), Some(pair));
        }
        assert_eq!(rows.next(), None);
        let average = 20_000 * 217 / cut.len();
        assert!((100_000..600_000).contains(&average), "{average}");
        assert!(cut.iter().rev().skip(1).all(|piece| piece.len() >= LEAST));
    }

    #[test]
    fn rows_that_go_change_the_pieces_that_held_them() {
        let before = pieces((0..40_000).map(|n| (n, 200)));
        // A hundred rows of the first tenth are compacted, and a hundred new ones come.
        let after = pieces((0..40_100).filter(|n| !(2_000..2_100).contains(n)).map(|n| (n, 200)));
        let new = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!(new <= 3, "{new} of {} are new", after.len());
    }

    #[test]
    fn large_values_are_pieces_of_their_own() {
        let cut = pieces((0..40).map(|n| (n, 1 << 20)));
        assert!(cut.iter().all(|piece| piece.len() < MOST + (2 << 20)));
        assert!(cut.len() >= 10, "{}", cut.len());
    }

    #[test]
    fn what_is_no_piece_is_none() {
        for bad in [&b"\x02\0\0\0\0"[..], b"\x00\x05\0\0\0abc", b"\x01\0\0", b"\x01\x01\0\0\0\x09\0\0\0ab"] {
            assert_eq!(read(Bytes::copy_from_slice(bad)), None, "{bad:?}");
        }
    }
}
