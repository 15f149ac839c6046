//! The protobuf wire format, as much of it as commands, records and the server's edge need:
//! borrowed reading with strict bounds, and canonical proto3 writing.
//!
//! Reading follows the rules of the format: fields in any order, the last one wins, unknown fields
//! are passed over, input that is cut short is an error.

/// Bytes that do not decode, and where it was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What was noticed, and where, for a person.
    pub what: String,
    /// The bytes are whole, and a later version may know what they say.
    pub later: bool,
}

impl Malformed {
    /// `what`: what was noticed, and where, for a person.
    pub fn new(what: impl Into<String>) -> Malformed {
        Malformed { what: what.into(), later: false }
    }

    /// As [`Malformed::new`], of what only a later version can have written.
    pub fn later(what: impl Into<String>) -> Malformed {
        Malformed { what: what.into(), later: true }
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Malformed {}

/// A field's value, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Integers, enums and flags.
    Varint(u64),
    /// Eight bytes, little-endian.
    Fixed64(u64),
    /// Bytes, texts and messages.
    Bytes(&'a [u8]),
    /// Four bytes, little-endian.
    Fixed32(u32),
}

/// A value of another wire type than the one that is asked for counts as absent: zero, or empty.
impl<'a> Value<'a> {
    /// As `uint64`.
    pub fn uint(self) -> u64 {
        match self {
            Value::Varint(v) => v,
            Value::Fixed64(_) | Value::Fixed32(_) | Value::Bytes(_) => 0,
        }
    }

    /// As `int64`.
    pub fn int(self) -> i64 {
        self.uint().cast_signed()
    }

    /// As `int32` or an enum: the low 32 bits, as protobuf reads them.
    pub fn int32(self) -> i32 {
        (self.uint() as u32).cast_signed()
    }

    /// As `bool`.
    pub fn flag(self) -> bool {
        self.uint() != 0
    }

    /// As `bytes`, text or the bytes of a message.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32(_) => &[],
        }
    }
}

/// The fields of one message in the order they stand. Groups are refused.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a message, given as its bytes.
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    /// The next field; None at the end of the message.
    ///
    /// # Errors
    /// The bytes are cut short, a number is out of range, or a group begins.
    pub fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n));
        let number = number.ok_or_else(|| Malformed::new("field number out of range"))?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(Malformed::new(format!("field {number}: wire type {other}"))),
        };
        Ok(Some((number, value)))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let (value, used) = read_varint(self.rest)?;
        self.rest = &self.rest[used..];
        Ok(value)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.rest.len());
        let len = len.ok_or_else(|| Malformed::new("message is cut short"))?;
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("take gives the asked length"))
    }
}

/// Numbers of a packed repeated field.
///
/// # Errors
/// The last one is cut short, or one has more than 64 bits.
pub fn packed(mut bytes: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        let (number, used) = read_varint(bytes)?;
        numbers.push(number);
        bytes = &bytes[used..];
    }
    Ok(numbers)
}

/// A varint at the front of `bytes`, and how many bytes it takes.
///
/// # Errors
/// It is cut short, or has more than 64 bits.
#[inline]
pub fn read_varint(bytes: &[u8]) -> Result<(u64, usize), Malformed> {
    match bytes {
        [byte, ..] if *byte < 0x80 => Ok((u64::from(*byte), 1)),
        _ => read_long(bytes),
    }
}

fn read_long(bytes: &[u8]) -> Result<(u64, usize), Malformed> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        if i == 9 && *byte > 1 {
            return Err(Malformed::new("varint above 64 bits"));
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((value, i + 1));
        }
    }
    Err(Malformed::new(if bytes.len() < 10 { "varint is cut short" } else { "varint above 64 bits" }))
}

/// Bytes that a varint takes.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes of a field with a length: tag, length and `len` bytes.
pub fn field_len(number: u32, len: usize) -> usize {
    varint_len(u64::from(number) << 3) + varint_len(len as u64) + len
}

/// Bytes of an `int64` field; none when zero.
pub fn int_len(number: u32, value: i64) -> usize {
    if value == 0 { 0 } else { varint_len(u64::from(number) << 3) + varint_len(value.cast_unsigned()) }
}

/// Appends a varint: 1 to 10 bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A `uint64` field (and `uint32`, enums); left out when zero.
pub fn write_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number) << 3);
        put_varint(out, value);
    }
}

/// An `int64` field; left out when zero.
pub fn write_int(out: &mut Vec<u8>, number: u32, value: i64) {
    write_varint(out, number, value.cast_unsigned());
}

/// A `bool` field; left out when false.
pub fn write_bool(out: &mut Vec<u8>, number: u32, value: bool) {
    write_varint(out, number, u64::from(value));
}

/// A `bytes` or `string` field; left out when empty.
pub fn write_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    if !value.is_empty() {
        write_message(out, number, value);
    }
}

/// Tag and length of a field whose `len` bytes follow.
pub fn write_head(out: &mut Vec<u8>, number: u32, len: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, len as u64);
}

/// A message field; written also when empty (presence counts).
pub fn write_message(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    write_head(out, number, value.len());
    out.extend_from_slice(value);
}

/// A message field whose content `encode` writes.
pub fn nested(out: &mut Vec<u8>, number: u32, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    encode(&mut inner);
    write_message(out, number, &inner);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_know_their_length() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            assert_eq!(read_varint(&out).unwrap(), (value, out.len()));
            assert!(read_varint(&out[..out.len() - 1]).is_err());
        }
        assert!(read_varint(&[0xff; 10]).is_err());
    }

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        let mut fields = Fields::new(bytes);
        std::iter::from_fn(|| fields.next_field().transpose()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        write_int(&mut out, 1, -1);
        write_bytes(&mut out, 2, b"key");
        write_bool(&mut out, 3, true);
        write_int(&mut out, 64, 300);
        write_bytes(&mut out, 5, b"");
        let fields = all(&out).unwrap();
        assert_eq!(fields.len(), 4);
        assert_eq!((fields[0].1.int(), fields[0].1.bytes()), (-1, &b""[..]));
        assert_eq!((fields[1], fields[1].1.int()), ((2, Value::Bytes(b"key")), 0));
        assert!(fields[2].1.flag());
        assert_eq!((fields[3].0, fields[3].1.int32()), (64, 300));
    }

    #[test]
    fn lengths_are_exact() {
        for value in [0i64, 5, -1, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_int(&mut out, 17, value);
            assert_eq!(out.len(), int_len(17, value), "{value}");
        }
        let mut out = Vec::new();
        [1, 300, u64::MAX].into_iter().for_each(|number| put_varint(&mut out, number));
        assert_eq!(packed(&out), Ok(vec![1, 300, u64::MAX]));
        assert!(packed(&out[..2]).is_err());
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_message() {
        let mut out = Vec::new();
        write_bytes(&mut out, 1, &[7; 200]);
        write_varint(&mut out, 2, 1 << 40);
        for cut in 1..out.len() {
            assert_eq!(all(&out[..cut]).is_ok(), cut == field_len(1, 200), "cut at {cut}");
        }
        for hostile in [&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &[0x00, 0x01], &[0x0b], &[0xff; 11]] {
            assert!(all(hostile).is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn cut_messages_and_groups_are_refused() {
        let read = |bytes: &[u8]| Fields::new(bytes).next_field().map(|field| field.is_some());
        assert_eq!(read(b"\x0a\x03foo"), Ok(true));
        assert!(read(b"\x0a\x04foo").is_err());
        assert!(read(b"\x0b").is_err(), "group");
        assert!(read(b"\x00\x01").is_err(), "field number 0");
    }
}
