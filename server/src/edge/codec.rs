//! The little protobuf the edge needs itself: reading the scalar fields of a
//! request and writing answers around bytes that are already encoded.
//!
//! Reading follows the rules of the protobuf wire format: fields in any order,
//! the last one wins, unknown fields are skipped, truncated input is an error.

use bytes::Bytes;

/// The bytes are not a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// One field as it stands on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// Length-delimited: bytes, string, message or packed numbers.
    Bytes(Bytes),
}

impl Value {
    /// As `int64`; other wire types count as a field of another kind, that is, as absent.
    pub fn int(&self) -> i64 {
        match self {
            Value::Varint(v) => i64::from_ne_bytes(v.to_ne_bytes()),
            _ => 0,
        }
    }

    pub fn uint(&self) -> u64 {
        match self {
            Value::Varint(v) => *v,
            _ => 0,
        }
    }

    /// As an `int32` or enum: the low 32 bits, as protobuf reads them.
    pub fn int32(&self) -> i32 {
        i32::from_ne_bytes((self.uint() as u32).to_ne_bytes())
    }

    pub fn flag(&self) -> bool {
        self.uint() != 0
    }

    pub fn bytes(&self) -> Bytes {
        match self {
            Value::Bytes(b) => b.clone(),
            _ => Bytes::new(),
        }
    }
}

/// The fields of one message, in wire order. Slices share the message's memory.
#[derive(Debug)]
pub struct Fields {
    rest: Bytes,
}

impl Fields {
    pub fn new(message: &Bytes) -> Fields {
        Fields { rest: message.clone() }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let (value, used) = read_varint(&self.rest)?;
        let _ = self.rest.split_to(used);
        Ok(value)
    }

    fn take(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.rest.len() {
            return Err(Malformed);
        }
        Ok(self.rest.split_to(len))
    }

    fn field(&mut self) -> Result<(u32, Value), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                let raw = self.take(8)?;
                Value::Fixed64(u64::from_le_bytes(raw.as_ref().try_into().map_err(|_| Malformed)?))
            }
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(len)?)
            }
            5 => {
                let raw = self.take(4)?;
                Value::Fixed32(u32::from_le_bytes(raw.as_ref().try_into().map_err(|_| Malformed)?))
            }
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }
}

impl Iterator for Fields {
    type Item = Result<(u32, Value), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = Bytes::new();
        }
        Some(field)
    }
}

/// Reads a varint; answers the value and the bytes it took.
///
/// ```
/// assert_eq!(server::edge::codec::read_varint(&[0xac, 0x02, 9]), Ok((300, 2)));
/// ```
pub fn read_varint(from: &[u8]) -> Result<(u64, usize), Malformed> {
    let mut value = 0u64;
    for (at, byte) in from.iter().take(10).enumerate() {
        if at == 9 && *byte > 1 {
            return Err(Malformed);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok((value, at + 1));
        }
    }
    Err(Malformed)
}

/// Numbers of a packed repeated field.
pub fn packed(bytes: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (value, used) = read_varint(&bytes[at..])?;
        out.push(value);
        at += used;
    }
    Ok(out)
}

/// Bytes a varint takes.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes of a length-delimited field: tag, length and `len` bytes.
pub fn field_len(number: u32, len: usize) -> usize {
    varint_len(u64::from(number) << 3) + varint_len(len as u64) + len
}

/// Bytes of an `int64` field (none when 0).
pub fn int_len(number: u32, value: i64) -> usize {
    if value == 0 {
        return 0;
    }
    varint_len(u64::from(number) << 3) + varint_len(u64::from_ne_bytes(value.to_ne_bytes()))
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Tag and length of a length-delimited field whose bytes follow.
pub fn put_head(out: &mut Vec<u8>, number: u32, len: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, len as u64);
}

/// A nested message or bytes that may be present and empty.
pub fn put_message(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// `bytes` or `string`; nothing when empty, as proto3 has it.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_message(out, number, bytes);
    }
}

/// `uint64` (and `bool`, `uint32`, enums); nothing when 0.
pub fn put_uint(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number) << 3);
        put_varint(out, value);
    }
}

/// `int64`; nothing when 0.
pub fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_uint(out, number, u64::from_ne_bytes(value.to_ne_bytes()));
}

pub fn put_flag(out: &mut Vec<u8>, number: u32, value: bool) {
    put_uint(out, number, u64::from(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        put_int(&mut out, 1, -1);
        put_bytes(&mut out, 2, b"key");
        put_flag(&mut out, 3, true);
        put_int(&mut out, 64, 300);
        put_bytes(&mut out, 5, b"");
        let fields: Vec<_> = Fields::new(&out.into()).map(|f| f.unwrap()).collect();
        assert_eq!(fields.len(), 4);
        assert_eq!(fields[0].1.int(), -1);
        assert_eq!(fields[1], (2, Value::Bytes(Bytes::from_static(b"key"))));
        assert!(fields[2].1.flag());
        assert_eq!((fields[3].0, fields[3].1.int()), (64, 300));
    }

    #[test]
    fn lengths_are_exact() {
        for value in [0u64, 1, 127, 128, 16383, 16384, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
            assert_eq!(read_varint(&out), Ok((value, out.len())));
        }
        for value in [0i64, 5, -1, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_int(&mut out, 17, value);
            assert_eq!(out.len(), int_len(17, value), "{value}");
        }
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_message() {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, &[7; 200]);
        put_uint(&mut out, 2, 1 << 40);
        let whole = Bytes::from(out);
        for cut in 1..whole.len() {
            let bad = Fields::new(&whole.slice(..cut)).any(|f| f.is_err());
            let boundary = cut == field_len(1, 200);
            assert_eq!(bad, !boundary, "cut at {cut}");
        }
        for hostile in [&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &[0x00, 0x01], &[0x0b], &[0xff; 11]] {
            assert!(Fields::new(&Bytes::copy_from_slice(hostile)).any(|f| f.is_err()), "{hostile:?}");
        }
    }
}
