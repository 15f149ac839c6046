//! The protobuf wire format, as much of it as commands and records need: borrowed reading
//! with strict bounds, and canonical proto3 writing.

/// Bytes that do not decode, and where it was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl Malformed {
    pub fn new(what: impl Into<String>) -> Malformed {
        Malformed(what.into())
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The fields of one message in the order they stand. Groups are refused.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    /// The next field; None at the end of the message.
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
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

/// A varint at the front of `bytes`, and how many bytes it takes.
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

pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A varint field; left out when zero.
pub fn write_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number) << 3);
        put_varint(out, value);
    }
}

pub fn write_bool(out: &mut Vec<u8>, number: u32, value: bool) {
    write_varint(out, number, u64::from(value));
}

/// A bytes field; left out when empty.
pub fn write_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    if !value.is_empty() {
        write_message(out, number, value);
    }
}

/// A message field; written also when empty (presence counts).
pub fn write_message(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, value.len() as u64);
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

    #[test]
    fn cut_messages_and_groups_are_refused() {
        let read = |bytes: &[u8]| Fields::new(bytes).next().map(|field| field.is_some());
        assert_eq!(read(b"\x0a\x03foo"), Ok(true));
        assert!(read(b"\x0a\x04foo").is_err());
        assert!(read(b"\x0b").is_err(), "group");
        assert!(read(b"\x00\x01").is_err(), "field number 0");
    }
}
