//! The layout of one batch.
//!
//! ```text
//! page boundary
//!   header          HEADER bytes, see Header::encode, and the log's salt (8, see `seal`)
//!   identity table  count * ROW: index, term, length, crc of the data, kind
//!   bodies          the entries' data, one after another
//!   zeros           to the end of the last page less header and salt
//!   header          the same bytes again, and the salt
//! page boundary
//! ```
//!
//! Every level of the format keeps magic, level, the header's crc and the salt where they are, so
//! that a reader can tell a later format from damage. Level 1 had no salt.

use crate::files::Identity;
use crate::header::{Fields, put_u32, put_u64};
use crate::{EntryId, PAGE};
use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};

/// The level in which batches are written.
pub(crate) const LEVEL: u32 = 2;
/// Bytes of a header without the salt.
const HEADER: usize = 160;
const SALT: usize = 8;
pub(super) const ROW: usize = 28;
const MAGIC: &[u8; 8] = b"kvlogbat";
const RESTART: u32 = 1;
const MARKED: u32 = 2;
const LED: u32 = 4;

/// Bytes of a header of this level.
pub(super) fn head(level: u32) -> usize {
    if level == 1 { HEADER } else { HEADER + SALT }
}

/// The salt behind a header that `bytes` begin with.
pub(super) fn salt(bytes: &[u8]) -> Option<u64> {
    Fields::new(bytes.get(HEADER..)?).u64()
}

/// A place in the log's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub segment: u64,
    pub offset: u64,
}

/// First and last index of entries that follow each other (last < first: there are none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    pub first: u64,
    pub last: u64,
}

/// What a batch says of itself. It means: cut the log behind `base`, then append `count` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub level: u32,
    pub id: Identity,
    /// Where the batch was written. A header found elsewhere is stale or data.
    pub at: Place,
    /// Counts batches of this log, from 1.
    pub number: u64,
    /// The crc of the previous batch's header, which covers its table, which covers its bodies.
    pub prev_digest: u32,
    /// Entries of the previous batch.
    pub prev_range: Indexes,
    /// Everything before this place was durable before this batch was written.
    pub proven: Place,
    pub hard: HardState,
    /// The entry before the first of this batch.
    pub base: Position,
    /// Everything before `base` is forgotten: the state comes from a checkpoint at `base`.
    pub restart: bool,
    /// Behind the batch, in the same write, stands a page that says that nothing follows.
    pub marked: bool,
    /// That page stood there before, durably: a write of this batch that never finished left it.
    pub led: bool,
    pub count: u32,
    pub body_len: u64,
    /// Bytes of the file it was written to. Files are made at their full length, so a shorter
    /// one has lost its end, durable batches included.
    pub file_len: u64,
    pub table_crc: u32,
}

/// Why bytes are not the header that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotHeader {
    Unreadable,
    /// A valid header of a later format level.
    TooNew(u32),
}

impl Header {
    pub(super) fn encode(&self, salt: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + SALT);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, self.level);
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        put_u32(&mut out, flag(self.restart, RESTART) | flag(self.marked, MARKED) | flag(self.led, LED));
        for value in [
            self.id.cluster,
            self.id.member,
            self.at.segment,
            self.at.offset,
            self.number,
            self.prev_range.first,
            self.prev_range.last,
            self.proven.segment,
            self.proven.offset,
            self.hard.term,
            self.hard.vote,
            self.hard.commit,
            self.base.index,
            self.base.term,
            self.body_len,
            self.file_len,
        ] {
            put_u64(&mut out, value);
        }
        put_u32(&mut out, self.prev_digest);
        put_u32(&mut out, self.count);
        put_u32(&mut out, self.table_crc);
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        if self.level > 1 {
            put_u64(&mut out, salt);
        }
        assert_eq!(out.len(), self.head());
        out
    }

    /// The header and its digest, whoever wrote it: [`Seal::decode`](super::seal::Seal::decode)
    /// tells.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Header, u32), NotHeader> {
        let bytes = bytes.get(..HEADER).ok_or(NotHeader::Unreadable)?;
        let (covered, crc) = bytes.split_at(HEADER - 4);
        let digest = Fields::new(crc).u32().ok_or(NotHeader::Unreadable)?;
        if !covered.starts_with(MAGIC) || crc32c::crc32c(covered) != digest {
            return Err(NotHeader::Unreadable);
        }
        let mut fields = Fields::new(&covered[MAGIC.len()..]);
        let level = fields.u32().ok_or(NotHeader::Unreadable)?;
        if level > LEVEL {
            return Err(NotHeader::TooNew(level));
        }
        let header = Header::decode_fields(level, &mut fields).ok_or(NotHeader::Unreadable)?;
        Ok((header, digest))
    }

    fn decode_fields(level: u32, fields: &mut Fields) -> Option<Header> {
        let flags = fields.u32()?;
        let id = Identity { cluster: fields.u64()?, member: fields.u64()? };
        let at = Place { segment: fields.u64()?, offset: fields.u64()? };
        let number = fields.u64()?;
        let prev_range = Indexes { first: fields.u64()?, last: fields.u64()? };
        let proven = Place { segment: fields.u64()?, offset: fields.u64()? };
        let hard = HardState { term: fields.u64()?, vote: fields.u64()?, commit: fields.u64()? };
        let base = Position { index: fields.u64()?, term: fields.u64()? };
        let body_len = fields.u64()?;
        let file_len = fields.u64()?;
        let prev_digest = fields.u32()?;
        let count = fields.u32()?;
        let table_crc = fields.u32()?;
        let (restart, marked, led) = (flags & RESTART != 0, flags & MARKED != 0, flags & LED != 0);
        let header = Header {
            level,
            id,
            at,
            number,
            prev_digest,
            prev_range,
            proven,
            hard,
            base,
            restart,
            marked,
            led,
            count,
            body_len,
            file_len,
            table_crc,
        };
        (flags & !(RESTART | MARKED | LED) == 0 && header.checked_size().is_some()).then_some(header)
    }

    /// Bytes of the header, and of its copy.
    pub(super) fn head(&self) -> usize {
        head(self.level)
    }

    /// Its entries.
    pub(super) fn range(&self) -> Indexes {
        Indexes { first: self.base.index + 1, last: self.base.index + u64::from(self.count) }
    }

    /// Bytes on disk, a multiple of the page.
    pub(super) fn size(&self) -> u64 {
        self.checked_size().expect("checked by decode and by Batch::new")
    }

    fn checked_size(&self) -> Option<u64> {
        let used =
            (2 * self.head() as u64).checked_add(u64::from(self.count) * ROW as u64)?.checked_add(self.body_len)?;
        let size = used.checked_next_multiple_of(PAGE)?;
        self.at.offset.checked_add(size)?;
        self.base.index.checked_add(u64::from(self.count))?.checked_add(1)?;
        Some(size)
    }

    pub(super) fn table_len(&self) -> usize {
        self.count as usize * ROW
    }
}

/// One row of the identity table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub id: EntryId,
    pub len: u32,
    pub kind: EntryKind,
}

pub(super) fn encode_table(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * ROW);
    for entry in entries {
        put_u64(&mut out, entry.index);
        put_u64(&mut out, entry.term);
        put_u32(&mut out, u32::try_from(entry.data.len()).expect("an entry is smaller than 4 GiB"));
        put_u32(&mut out, crc32c::crc32c(&entry.data));
        put_u32(&mut out, entry.kind as u32);
    }
    out
}

/// None if the table does not have the header's crc or does not fit the header.
pub(super) fn decode_table(header: &Header, table: &[u8]) -> Option<Vec<Row>> {
    if table.len() != header.table_len() || crc32c::crc32c(table) != header.table_crc {
        return None;
    }
    let mut fields = Fields::new(table);
    let mut rows = Vec::with_capacity(header.count as usize);
    let mut total: u64 = 0;
    for position in 1..=u64::from(header.count) {
        let (index, term) = (fields.u64()?, fields.u64()?);
        let (len, crc) = (fields.u32()?, fields.u32()?);
        let kind = match fields.u32()? {
            0 => EntryKind::Normal,
            1 => EntryKind::Config,
            _ => return None,
        };
        if index != header.base.index + position {
            return None;
        }
        total += u64::from(len);
        rows.push(Row { id: EntryId { index, term, crc }, len, kind });
    }
    (total == header.body_len).then_some(rows)
}

/// The identities of those rows whose bytes are wrong.
pub(super) fn wrong_bodies(rows: &[Row], bodies: &[u8]) -> Vec<EntryId> {
    let mut wrong = Vec::new();
    let mut from = 0usize;
    for row in rows {
        let until = from + row.len as usize;
        if bodies.get(from..until).is_none_or(|body| crc32c::crc32c(body) != row.id.crc) {
            wrong.push(row.id);
        }
        from = until;
    }
    wrong
}

/// The entries of `rows` out of their bodies, or the identities of those whose bytes are wrong.
pub(super) fn decode_bodies(rows: &[Row], bodies: &Bytes) -> Result<Vec<Entry>, Vec<EntryId>> {
    let wrong = wrong_bodies(rows, bodies);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut from = 0usize;
    let entry = |row: &Row| {
        let until = from + row.len as usize;
        let data = bodies.slice(from..until);
        from = until;
        Entry { index: row.id.index, term: row.id.term, kind: row.kind, data }
    };
    Ok(rows.iter().map(entry).collect())
}

/// Everything of a batch but its bodies, ready to be written around them.
pub(super) struct Frame {
    pub digest: u32,
    pub size: u64,
    pub front: Vec<u8>,
    pub back: Vec<u8>,
}

impl Frame {
    pub(super) fn new(header: &Header, salt: u64, table: &[u8]) -> Frame {
        let size = header.checked_size().expect("a batch fits in 64 bits");
        let mut front = header.encode(salt);
        let copy = front.clone();
        let digest = Fields::new(&copy[HEADER - 4..]).u32().expect("four bytes");
        front.extend_from_slice(table);
        let used = (front.len() + header.head()) as u64 + header.body_len;
        let mut back = vec![0; usize::try_from(size - used).expect("less than a page")];
        back.extend_from_slice(&copy);
        Frame { digest, size, front, back }
    }
}

#[cfg(test)]
impl Header {
    /// Of a batch without entries.
    pub(super) fn of_nothing(id: Identity) -> Header {
        Header {
            level: LEVEL,
            id,
            at: Place::default(),
            number: 1,
            prev_digest: 0,
            prev_range: Indexes::default(),
            proven: Place::default(),
            hard: HardState::default(),
            base: Position::default(),
            restart: false,
            marked: false,
            led: false,
            count: 0,
            body_len: 0,
            file_len: 0,
            table_crc: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(count: u32, body_len: u64) -> Header {
        Header {
            level: LEVEL,
            id: Identity { cluster: 1, member: 2 },
            at: Place { segment: 3, offset: 8192 },
            number: 4,
            prev_digest: 5,
            prev_range: Indexes { first: 6, last: 7 },
            proven: Place { segment: 3, offset: 8192 },
            hard: HardState { term: 8, vote: 9, commit: 10 },
            base: Position { index: 11, term: 12 },
            restart: true,
            marked: true,
            led: count % 2 == 1,
            count,
            body_len,
            file_len: 1 << 20,
            table_crc: 13,
        }
    }

    #[test]
    fn a_header_survives_encoding() {
        for level in [1, LEVEL] {
            let header = Header { level, ..header(2, 100) };
            let bytes = header.encode(77);
            assert_eq!((Header::decode(&bytes).unwrap().0, bytes.len()), (header, head(level)));
            assert_eq!(salt(&bytes), (level > 1).then_some(77));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let good = header(2, 100).encode(77);
        for bit in 0..HEADER * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bad), Err(NotHeader::Unreadable), "bit {bit}");
        }
    }

    #[test]
    fn sizes_that_overflow_are_no_header() {
        for (count, body_len) in [(0, u64::MAX), (u32::MAX, u64::MAX - 4096), (1, u64::MAX - 8192)] {
            assert_eq!(Header::decode(&header(count, body_len).encode(77)), Err(NotHeader::Unreadable));
        }
    }

    #[test]
    fn batches_are_whole_pages() {
        assert_eq!(header(0, 0).size(), 4096);
        let room = 4096 - 2 * head(LEVEL) as u64 - ROW as u64;
        assert_eq!(header(1, room).size(), 4096);
        assert_eq!(header(1, room + 1).size(), 8192);
        let frame = Frame::new(&header(1, room), 77, &[0; ROW]);
        assert_eq!(frame.back.len(), head(LEVEL));
    }
}
