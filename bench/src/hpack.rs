//! Header blocks (RFC 7541): requests are written from a few remembered entries, of answers only
//! what decides is looked at.
//!
//! A request of a method already used on its connection is eight index bytes, as a usual gRPC
//! client sends it. Answers are decoded in full as far as the shared table goes (its sizes must
//! agree on both sides), but a field is kept only if it is the status.

use std::collections::VecDeque;

/// What a field of an answer says, as far as the generator cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `:status`.
    HttpStatus(u16),
    /// `grpc-status`.
    GrpcStatus(u32),
    /// `grpc-message`, percent encoding left in.
    GrpcMessage(String),
    /// Anything else.
    Other,
}

/// Entries of RFC 7541, appendix A, that an answer can be made of: name and value lengths count
/// for the table, so literals are all that needs names. (1-based; the rest is `Other`.)
const STATUS_FIRST: usize = 8;
const STATUS_VALUES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const STATIC_LEN: usize = 61;
/// Lengths of the names of the static table, by index - 1: an indexed name counts for the size.
const STATIC_NAMES: [u8; STATIC_LEN] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14, 16, 13, 12, 6, 4,
    4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3, 16,
];

/// The receiving half of a connection's header compression.
#[derive(Debug)]
pub struct Decoder {
    /// Newest first: what the field says and its size by the rules of the table.
    table: VecDeque<(Field, Vec<u8>, usize)>,
    size: usize,
    capacity: usize,
    huffman: Huffman,
    scratch: Vec<u8>,
}

/// A header block that does not follow RFC 7541.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("bad header block: {0}")]
pub struct BadBlock(&'static str);

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { table: VecDeque::new(), size: 0, capacity: 4096, huffman: Huffman::new(), scratch: Vec::new() }
    }
}

impl Decoder {
    /// Reads one whole block; `see` gets what matters of it, in order.
    ///
    /// # Errors
    /// If the block is malformed: the connection is of no use afterwards.
    pub fn decode(&mut self, block: &[u8], mut see: impl FnMut(&Field)) -> Result<(), BadBlock> {
        let mut rest = block;
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                self.indexed(index, &mut see)?;
            } else if first & 0xc0 == 0x40 {
                let (field, name, size) = self.literal(&mut rest, 6)?;
                see(&field);
                self.insert(field, name, size);
            } else if first & 0xe0 == 0x20 {
                self.capacity = integer(&mut rest, 5)?;
                if self.capacity > 4096 {
                    return Err(BadBlock("a table larger than the one announced"));
                }
                self.evict(0);
            } else {
                let (field, _, _) = self.literal(&mut rest, 4)?;
                see(&field);
            }
        }
        Ok(())
    }

    fn indexed(&mut self, index: usize, see: &mut impl FnMut(&Field)) -> Result<(), BadBlock> {
        if index == 0 {
            return Err(BadBlock("index 0"));
        }
        if index <= STATIC_LEN {
            if (STATUS_FIRST..STATUS_FIRST + STATUS_VALUES.len()).contains(&index) {
                see(&Field::HttpStatus(STATUS_VALUES[index - STATUS_FIRST]));
            }
            return Ok(());
        }
        let (field, _, _) = self.table.get(index - STATIC_LEN - 1).ok_or(BadBlock("an index beyond the table"))?;
        see(field);
        Ok(())
    }

    /// A literal field: what it says, its name, and its size in a table.
    fn literal(&mut self, rest: &mut &[u8], prefix: u32) -> Result<(Field, Vec<u8>, usize), BadBlock> {
        let index = integer(rest, prefix)?;
        let (name, name_len) = if index == 0 {
            let name = string(&self.huffman, &mut self.scratch, rest)?.to_vec();
            let len = name.len();
            (name, len)
        } else if index <= STATIC_LEN {
            let is_status = (STATUS_FIRST..STATUS_FIRST + STATUS_VALUES.len()).contains(&index);
            let name = if is_status { b":status".to_vec() } else { Vec::new() };
            (name, usize::from(STATIC_NAMES[index - 1]))
        } else {
            let (_, name, _) = self.table.get(index - STATIC_LEN - 1).ok_or(BadBlock("a name beyond the table"))?;
            (name.clone(), name.len())
        };
        let value = string(&self.huffman, &mut self.scratch, rest)?;
        let size = name_len + value.len() + 32;
        let text = String::from_utf8_lossy(value);
        let field = match name.as_slice() {
            b":status" => Field::HttpStatus(text.parse().map_err(|_| BadBlock("a status that is no number"))?),
            b"grpc-status" => Field::GrpcStatus(text.parse().map_err(|_| BadBlock("a status that is no number"))?),
            b"grpc-message" => Field::GrpcMessage(text.into_owned()),
            _ => Field::Other,
        };
        // The length of a static name must survive as the name's length.
        let name = if name.len() == name_len { name } else { vec![0; name_len] };
        Ok((field, name, size))
    }

    fn insert(&mut self, field: Field, name: Vec<u8>, size: usize) {
        self.evict(size);
        if size <= self.capacity {
            self.size += size;
            self.table.push_front((field, name, size));
        }
    }

    fn evict(&mut self, coming: usize) {
        while self.size + coming > self.capacity {
            let Some((_, _, size)) = self.table.pop_back() else { return };
            self.size -= size;
        }
    }
}

/// A string, decoded if it is compressed.
fn string<'a, 'r: 'a>(huffman: &Huffman, scratch: &'a mut Vec<u8>, rest: &mut &'r [u8]) -> Result<&'a [u8], BadBlock> {
    let compressed = rest.first().ok_or(BadBlock("a string that is missing"))? & 0x80 != 0;
    let len = integer(rest, 7)?;
    let (raw, after) = rest.split_at_checked(len).ok_or(BadBlock("a string beyond the block"))?;
    *rest = after;
    if !compressed {
        return Ok(raw);
    }
    scratch.clear();
    huffman.decode(raw, scratch)?;
    Ok(scratch)
}

/// An integer with a prefix of `bits` bits (RFC 7541, 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, BadBlock> {
    let (&first, mut after) = rest.split_first().ok_or(BadBlock("an integer that is missing"))?;
    let mask = (1_usize << bits) - 1;
    let mut value = usize::from(first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (&byte, next) = after.split_first().ok_or(BadBlock("an integer cut short"))?;
            after = next;
            if shift > 21 {
                return Err(BadBlock("an integer too large"));
            }
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = after;
    Ok(value)
}

/// The code of RFC 7541, appendix B. It is canonical (codes of one length are consecutive, in the
/// order of the symbols), so the lengths say all.
#[derive(Debug)]
struct Huffman {
    /// Per length: the first code, the number of codes, and where their symbols begin.
    lengths: [(u32, u32, u32); 31],
    symbols: Vec<u8>,
}

/// Length of the code of each byte.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

impl Huffman {
    fn new() -> Huffman {
        let mut lengths = [(0, 0, 0); 31];
        let mut symbols = Vec::with_capacity(256);
        let mut code = 0_u32;
        for (length, row) in lengths.iter_mut().enumerate().skip(1) {
            code <<= 1;
            let first = symbols.len() as u32;
            symbols.extend((0..=255_u8).filter(|&s| usize::from(CODE_LENGTHS[usize::from(s)]) == length));
            let count = symbols.len() as u32 - first;
            *row = (code, count, first);
            code += count;
        }
        Huffman { lengths, symbols }
    }

    fn decode(&self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), BadBlock> {
        let (mut code, mut length) = (0_u32, 0_usize);
        for bit in raw.iter().flat_map(|byte| (0..8).rev().map(move |i| u32::from(byte >> i & 1))) {
            code = code << 1 | bit;
            length += 1;
            let &(first, count, at) = self.lengths.get(length).ok_or(BadBlock("a code that means nothing"))?;
            if code >= first && code - first < count {
                out.push(self.symbols[(at + code - first) as usize]);
                (code, length) = (0, 0);
            }
        }
        // What is left must be the beginning of the all-ones code.
        if length > 7 || code != (1 << length) - 1 {
            return Err(BadBlock("bad padding"));
        }
        Ok(())
    }
}

/// The sending half: one remembered entry per field that does not change.
#[derive(Debug)]
pub struct Encoder {
    authority: String,
    /// Remembered by the peer, oldest first.
    entries: Vec<&'static str>,
    blocks: Vec<(&'static str, Vec<u8>)>,
}

const FIXED: [(&str, &str); 3] =
    [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "kvorum-bench")];
/// Fields of every request besides its path.
const USUAL: [&str; 4] = [":authority", "content-type", "te", "user-agent"];

impl Encoder {
    pub fn new(authority: &str) -> Encoder {
        Encoder { authority: authority.to_owned(), entries: Vec::new(), blocks: Vec::new() }
    }

    /// Appends the header block of a request for `path` (at most some dozen different ones).
    pub fn block(&mut self, path: &'static str, out: &mut Vec<u8>) {
        if let Some((_, block)) = self.blocks.iter().find(|(known, _)| std::ptr::eq(*known, path) || *known == path) {
            out.extend_from_slice(block);
            return;
        }
        // Pseudo fields stand before the others. The path is remembered first, which moves the
        // indices of those after it.
        out.extend_from_slice(&[0x83, 0x86]);
        literal(out, 4, "", path);
        let first = self.entries.is_empty();
        self.entries.push(path);
        if first {
            literal(out, 1, "", &self.authority);
            self.entries.push(":authority");
            for (name, value) in FIXED {
                literal(out, 0, name, value);
                self.entries.push(name);
            }
        } else {
            out.extend(USUAL.iter().map(|name| self.index(name)));
        }
        assert!(self.entries.len() <= 40, "the table of the peer holds all of our entries");
        // All indices have moved: the blocks are made anew.
        let paths: Vec<&'static str> = self.entries.iter().copied().filter(|e| e.starts_with('/')).collect();
        self.blocks = paths
            .into_iter()
            .map(|path| {
                let mut block = vec![0x83, 0x86, self.index(path)];
                block.extend(USUAL.iter().map(|entry| self.index(entry)));
                (path, block)
            })
            .collect();
    }

    fn index(&self, entry: &str) -> u8 {
        let at = self.entries.iter().position(|e| *e == entry).expect("an entry the peer has been told");
        0x80 | u8::try_from(STATIC_LEN + self.entries.len() - at).expect("a small table")
    }
}

/// A literal that the peer is to remember; `name_index` 0 for a name of its own.
fn literal(out: &mut Vec<u8>, name_index: u8, name: &str, value: &str) {
    out.push(0x40 | name_index);
    if name_index == 0 {
        out.push(u8::try_from(name.len()).ok().filter(|n| *n < 127).expect("a short name"));
        out.extend_from_slice(name.as_bytes());
    }
    out.push(u8::try_from(value.len()).ok().filter(|n| *n < 127).expect("a short value"));
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
            .collect()
    }

    /// The blocks of RFC 7541, C.6: answers with Huffman codes, a table of 256 bytes that evicts.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let blocks = [
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ];
        let mut decoder = Decoder { capacity: 256, ..Decoder::default() };
        let mut seen = Vec::new();
        let mut sizes = Vec::new();
        for block in blocks {
            decoder
                .decode(&hex(block), |field| {
                    if *field != Field::Other {
                        seen.push(field.clone());
                    }
                })
                .expect("a good block");
            sizes.push(decoder.size);
        }
        assert_eq!(seen, [Field::HttpStatus(302), Field::HttpStatus(307), Field::HttpStatus(200)]);
        assert_eq!(sizes, [222, 222, 215], "as the RFC counts them");
    }

    #[test]
    fn a_grpc_status_is_found_literal_and_remembered() {
        let mut decoder = Decoder::default();
        let mut block = vec![0x40, 11];
        block.extend_from_slice(b"grpc-status");
        block.extend_from_slice(&[2, b'1', b'4']);
        block.push(0xbe);
        let mut seen = Vec::new();
        decoder.decode(&block, |field| seen.push(field.clone())).expect("a good block");
        assert_eq!(seen, [Field::GrpcStatus(14), Field::GrpcStatus(14)]);
        assert_eq!(decoder.size, 11 + 2 + 32);
    }

    #[test]
    fn damage_is_refused() {
        for (block, reason) in [
            ("80", "index 0"),
            ("be", "an index beyond the table"),
            ("7f80ffffff7f", "an integer too large"),
            ("0085aa", "a string beyond the block"),
            ("3fe17f", "a table larger than the one announced"),
        ] {
            assert_eq!(Decoder::default().decode(&hex(block), |_| {}), Err(BadBlock(reason)), "{block}");
        }
    }

    /// What is sent is read back by the rules of the table: the second request of a path is all
    /// indices, and a new path moves them.
    #[test]
    fn requests_are_short_after_the_first() {
        let mut encoder = Encoder::new("127.0.0.1:2379");
        let mut decoder = Decoder::default();
        let mut lengths = Vec::new();
        for path in ["/a/Put", "/a/Put", "/a/Range", "/a/Put", "/a/Range"] {
            let mut block = Vec::new();
            encoder.block(path, &mut block);
            let mut fields = 0;
            decoder.decode(&block, |_| fields += 1).expect("a good block");
            assert_eq!(fields, 5, "two of the seven are in the static table");
            lengths.push(block.len());
        }
        assert_eq!(lengths[1..], [7, 7 + 9, 7, 7].map(|n: usize| n));
    }
}
