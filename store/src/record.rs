//! One change of one key as it lies in a segment: a fixed header and the `mvccpb.KeyValue`
//! bytes exactly as etcd stores them (a tombstone carries the key alone).
//!
//! ```text
//! offset  0  crc32c of everything behind it      u32
//!         4  length of the body                  u32
//!         8  main revision                       u64
//!        16  sub revision                        u32
//!        20  flags (1 = tombstone)               u32
//!        24  body
//! ```
//!
//! All integers little endian. A record names no other record and no file: it can be copied
//! to another place as it is.

use crate::Rev;
use crate::protobuf::{Fields, Malformed, Value, varint_len, write_bytes, write_varint};
use bytes::Bytes;

/// Bytes before the body.
pub const HEADER: usize = 24;
const TOMBSTONE: u32 = 1;

/// Bytes that are not what they should be. `offset` counts from the start of what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Bytes.
    pub offset: u64,
    /// What is wrong, for a person.
    pub what: String,
}

impl Damage {
    /// `what` is for a person.
    pub fn new(offset: u64, what: impl Into<String>) -> Damage {
        Damage { offset, what: what.into() }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "offset {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Damage {}

impl From<Malformed> for Damage {
    fn from(malformed: Malformed) -> Damage {
        Damage::new(0, malformed.what)
    }
}

/// A record whose checksum held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Revision of the change.
    pub rev: Rev,
    /// The key was deleted, not written.
    pub tombstone: bool,
    /// `KeyValue` bytes.
    pub body: Bytes,
}

/// `mvccpb.KeyValue`, borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyValueRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Revision at which this life of the key began.
    pub create: i64,
    /// Revision of this change.
    pub modified: i64,
    /// Number of changes in this life, from 1 on.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// Id of the lease that holds the key, 0 for none.
    pub lease: i64,
}

impl KeyValueRef<'_> {
    /// Size of the canonical encoding in bytes.
    pub fn encoded_len(&self) -> usize {
        fn bytes(b: &[u8]) -> usize {
            if b.is_empty() { 0 } else { 1 + varint_len(b.len() as u64) + b.len() }
        }
        fn int(v: i64) -> usize {
            if v == 0 { 0 } else { 1 + varint_len(v as u64) }
        }
        bytes(self.key)
            + int(self.create)
            + int(self.modified)
            + int(self.version)
            + bytes(self.value)
            + int(self.lease)
    }

    /// Canonical proto3: fields in ascending order, zero fields omitted.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_bytes(out, 1, self.key);
        write_varint(out, 2, self.create as u64);
        write_varint(out, 3, self.modified as u64);
        write_varint(out, 4, self.version as u64);
        write_bytes(out, 5, self.value);
        write_varint(out, 6, self.lease as u64);
    }
}

/// The whole record for a change at `rev`.
///
/// # Panics
/// If the body would not fit in 32 bits of length, or `rev` is negative or its sub too large.
pub fn encode(rev: Rev, tombstone: bool, kv: &KeyValueRef<'_>) -> Bytes {
    let len = kv.encoded_len();
    let mut out = Vec::with_capacity(HEADER + len);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&u32::try_from(len).expect("a value fits in a record").to_le_bytes());
    out.extend_from_slice(&u64::try_from(rev.main).expect("revisions are positive").to_le_bytes());
    out.extend_from_slice(&u32::try_from(rev.sub).expect("sub revision in 32 bits").to_le_bytes());
    out.extend_from_slice(&(if tombstone { TOMBSTONE } else { 0 }).to_le_bytes());
    kv.encode(&mut out);
    assert!(out.len() == HEADER + len, "a record has the length its header says");
    let crc = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    Bytes::from(out)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Length of the whole record that starts with this header (for a sequential scan).
/// The checksum is not looked at: [`open`] does.
///
/// # Errors
/// The bytes are not the header of a record.
pub fn whole_len(header: &[u8]) -> Result<usize, Damage> {
    if header.len() < HEADER {
        return Err(Damage::new(header.len() as u64, "record header is cut short"));
    }
    Ok(HEADER + u32_at(header, 4) as usize)
}

/// Whether a header may be one of a whole record with a main revision in `first..=last`: cheap, to
/// look for the next whole record behind a damaged one.
pub fn looks_whole(header: &[u8], first: i64, last: i64) -> bool {
    let main = u64::from(u32_at(header, 8)) | u64::from(u32_at(header, 12)) << 32;
    u32_at(header, 20) & !TOMBSTONE == 0 && i64::try_from(main).is_ok_and(|main| (first..=last).contains(&main))
}

/// Verifies one whole record. Returns its revision and whether it is a tombstone.
///
/// # Errors
/// The bytes are no record, or its checksum does not hold.
pub fn check(record: &[u8]) -> Result<(Rev, bool), Damage> {
    let len = whole_len(record)?;
    if record.len() != len {
        let what = format!("record of {len} bytes in {} bytes", record.len());
        return Err(Damage::new(4, what));
    }
    let (stored, computed) = (u32_at(record, 0), crc32c::crc32c(&record[4..]));
    if stored != computed {
        let what = format!("record checksum {stored:08x}, computed {computed:08x}");
        return Err(Damage::new(0, what));
    }
    let main = u64::from(u32_at(record, 8)) | u64::from(u32_at(record, 12)) << 32;
    let main = i64::try_from(main).map_err(|_| Damage::new(8, "record revision above 2^63"))?;
    let flags = u32_at(record, 20);
    if flags & !TOMBSTONE != 0 {
        return Err(Damage::new(20, format!("unknown record flags {flags:#x}")));
    }
    Ok((Rev { main, sub: i64::from(u32_at(record, 16)) }, flags & TOMBSTONE != 0))
}

/// As [`check`], and takes the record apart without copying.
///
/// # Errors
/// As [`check`].
pub fn open(record: &Bytes) -> Result<Record, Damage> {
    let (rev, tombstone) = check(record)?;
    Ok(Record { rev, tombstone, body: record.slice(HEADER..) })
}

/// The least that a [`filler`] takes. A record with a key is longer.
const FILLER_LEAST: usize = HEADER + 2;

/// A record of `len` bytes that says nothing: it stands where a record was that nobody needs and
/// nobody has any more. To a reader that does not know fillers it is a delete of the empty key.
///
/// # Panics
/// If no record is as short or as long as that.
pub fn filler(rev: Rev, len: usize) -> Bytes {
    assert!(len >= FILLER_LEAST, "a record is longer than {len} bytes");
    let body = len - HEADER;
    // A value of zeros; where no length of a value fits, two bytes of another field go with it.
    let zeros = |version: i64| {
        let rest = if version > 0 { body - 2 } else { body };
        let len = (1..=5usize).find_map(|n| rest.checked_sub(1 + n).filter(|len| varint_len(*len as u64) == n))?;
        Some((version, vec![0; len]))
    };
    let empty = body == 2;
    let (version, value) = if empty {
        (1, Vec::new())
    } else {
        zeros(0).filter(|(_, v)| !v.is_empty()).or_else(|| zeros(1)).expect("one of both lengths fits")
    };
    let kv = KeyValueRef { version, value: &value, ..KeyValueRef::default() };
    let record = encode(rev, true, &kv);
    assert_eq!(record.len(), len, "a filler has the length that was asked for");
    record
}

/// True of what [`filler`] made: a tombstone without a key.
pub fn is_filler(tombstone: bool, body: &[u8]) -> bool {
    // The key is the first field, and no key is empty.
    tombstone && body.first() != Some(&0x0a)
}

/// Decodes `KeyValue` bytes; unknown fields are skipped.
///
/// # Errors
/// A field has another wire type than the message's, or the bytes are cut short.
pub fn key_value(body: &[u8]) -> Result<KeyValueRef<'_>, Malformed> {
    let mut kv = KeyValueRef::default();
    let mut fields = Fields::new(body);
    while let Some((number, value)) = fields.next_field()? {
        match (number, value) {
            (1, Value::Bytes(b)) => kv.key = b,
            (2, Value::Varint(v)) => kv.create = v as i64,
            (3, Value::Varint(v)) => kv.modified = v as i64,
            (4, Value::Varint(v)) => kv.version = v as i64,
            (5, Value::Bytes(b)) => kv.value = b,
            (6, Value::Varint(v)) => kv.lease = v as i64,
            (1..=6, _) => return Err(Malformed::new("KeyValue: wrong wire type")),
            _ => {}
        }
    }
    Ok(kv)
}

/// Length of the value inside a record, from what the index knows: the numbers and the length of
/// the key. The record's bytes are not needed.
pub(crate) fn value_len(numbers: &KeyValueRef<'_>, key_len: usize, record_len: u32) -> usize {
    assert!(numbers.key.is_empty() && numbers.value.is_empty());
    let key = if key_len == 0 { 0 } else { 1 + varint_len(key_len as u64) + key_len };
    let rest = record_len as usize - HEADER - key - numbers.encoded_len();
    if rest == 0 {
        return 0;
    }
    let found = (1..=5usize).find_map(|n| {
        let value = rest.checked_sub(1 + n)?;
        (value > 0 && varint_len(value as u64) == n).then_some(value)
    });
    found.expect("a record's length follows from its fields")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> KeyValueRef<'static> {
        KeyValueRef { key: b"foo", create: 2, modified: 300, version: 4, value: b"bar", lease: -1 }
    }

    #[test]
    fn layout_is_fixed() {
        let kv = KeyValueRef { lease: 0, ..sample() };
        let bytes = encode(Rev { main: 300, sub: 1 }, false, &kv);
        let body = b"\x0a\x03foo\x10\x02\x18\xac\x02\x20\x04\x2a\x03bar";
        assert_eq!(&bytes[4..HEADER], &[17, 0, 0, 0, 44, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[HEADER..], body);
        let record = open(&bytes).unwrap();
        assert_eq!(record.rev, Rev { main: 300, sub: 1 });
        assert_eq!(key_value(&record.body).unwrap(), kv);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let bytes = encode(Rev { main: 7, sub: 0 }, true, &KeyValueRef { key: b"k", ..Default::default() });
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&Bytes::from(bad)).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(open(&bytes.slice(..cut)).is_err(), "cut {cut}");
        }
    }

    #[test]
    fn a_filler_has_any_length() {
        for len in (26..20_000).chain([(1 << 21) + 20, (1 << 21) + 31, (1 << 21) + 32]) {
            let filler = filler(Rev { main: 5, sub: 3 }, len);
            let record = open(&filler).unwrap();
            assert_eq!((filler.len(), record.rev), (len, Rev { main: 5, sub: 3 }));
            assert!(is_filler(record.tombstone, &record.body), "{len}");
            assert!(key_value(&record.body).unwrap().key.is_empty());
        }
        let delete = encode(Rev { main: 5, sub: 3 }, true, &KeyValueRef { key: b"k", ..Default::default() });
        assert!(!is_filler(true, &delete[HEADER..]));
    }

    #[test]
    fn value_length_follows_from_record_length() {
        for len in [0, 1, 126, 127, 128, 129, 130, 16382, 16383, 16384, 16385, 70_000] {
            let value = vec![b'x'; len];
            let kv = KeyValueRef { value: &value, ..sample() };
            let bytes = encode(Rev { main: 300, sub: 0 }, false, &kv);
            let numbers = KeyValueRef { key: b"", value: b"", ..kv };
            assert_eq!(value_len(&numbers, kv.key.len(), bytes.len() as u32), len);
        }
    }
}
