//! Checksums over verified bytes. A checksum of whatever a file holds would call damage right:
//! every record, and every block of rows, is verified while it is measured.

use crate::ahead::Ahead;
use crate::header::Fields;
use crate::records::Seeks;
use crate::{Fault, File, PAGE};
use store::RowsCheck;
use store::record::{self, Damage};

/// Bytes in front of a block of rows: its length and its CRC32C, 32 bits each.
pub(crate) const FRAME: u64 = 8;

/// What of a segment is to be measured.
pub(crate) struct Part {
    pub(crate) from: u64,
    /// Where the last record ends.
    pub(crate) until: u64,
    /// The checksum of the records in front of `from`.
    pub(crate) crc: u32,
    /// Main revision of the last record in front of `from`; 0 if there is none.
    pub(crate) after: i64,
}

impl Part {
    /// All records of a segment that ends at `until`.
    pub(crate) fn whole(until: u32) -> Part {
        Part { from: PAGE, until: u64::from(until), crc: 0, after: 0 }
    }
}

/// Whole records in the order of revisions.
pub(crate) struct Measured {
    /// CRC32C of all bytes up to the end of the part.
    pub(crate) crc: u32,
    /// Main revisions of the part's first and last record; 0 when there is none.
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) seeks: Seeks,
}

/// Reads every record of the part once.
///
/// # Errors
/// [`Fault::Damaged`] with the offset of the first record that is not what was written: a wrong
/// checksum, a length that does not fit, a revision out of order.
pub(crate) fn records(file: &dyn File, path: &str, part: Part) -> Result<Measured, Fault> {
    let mut ahead = Ahead::new(file, path, part.until);
    let mut measured = Measured { crc: part.crc, first: 0, last: 0, seeks: Seeks::default() };
    let (mut offset, mut before) = (part.from, None);
    while offset < part.until {
        let wrong = |damage: Damage| Fault::damaged(path, offset + damage.offset, damage.what);
        let room = part.until - offset;
        if room < record::HEADER as u64 {
            return Err(Fault::damaged(path, offset, format!("{room} bytes are no record")));
        }
        let len = record::whole_len(ahead.get(offset, record::HEADER)?).map_err(wrong)?;
        if len as u64 > room {
            return Err(Fault::damaged(path, offset, format!("a record of {len} bytes where {room} are left")));
        }
        let bytes = ahead.get(offset, len)?;
        let (rev, tombstone) = record::check(bytes).map_err(wrong)?;
        // A filler in the place of the first record may have the revision of the one before it.
        let filler = record::is_filler(tombstone, &bytes[record::HEADER..]);
        let follows = rev.main > part.after || filler && rev.main == part.after;
        if !follows || before.is_some_and(|before| before >= rev) {
            return Err(Fault::damaged(path, offset, "records are not in the order of revisions"));
        }
        measured.crc = crc32c::crc32c_append(measured.crc, bytes);
        measured.first = if before.is_none() { rev.main } else { measured.first };
        measured.last = rev.main;
        measured.seeks.pass(rev.main, offset as u32);
        before = Some(rev);
        offset += len as u64;
    }
    Ok(measured)
}

/// The checksum of the rows in an index file of `until` bytes: whole frames, whole blocks, as many
/// keys as the last block says.
pub(crate) fn rows(file: &dyn File, path: &str, until: u64) -> Result<u32, Fault> {
    let mut check = RowsCheck::default();
    let crc = frames(file, path, until, |block| {
        check.blocks(block).map_err(|damage| Damage { what: format!("rows: {damage}"), ..damage })
    })?;
    check.finish().map_err(|damage| Fault::damaged(path, until, format!("rows: {}", damage.what)))?;
    Ok(crc)
}

/// Hands the blocks of a file of `until` bytes to `take`, each verified. Returns the checksum of
/// all frames.
pub(crate) fn frames(
    file: &dyn File,
    path: &str,
    until: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), Damage>,
) -> Result<u32, Fault> {
    let mut ahead = Ahead::new(file, path, until);
    let (mut crc, mut offset) = (0, PAGE);
    while offset < until {
        let (block, next) = frame(&mut ahead, path, offset, until)?;
        take(block).map_err(|damage| Fault::damaged(path, offset, damage.what))?;
        let whole = ahead.get(offset, (next - offset) as usize)?;
        crc = crc32c::crc32c_append(crc, whole);
        offset = next;
    }
    Ok(crc)
}

/// One block, and where the next frame begins.
pub(crate) fn frame<'a>(rows: &'a mut Ahead, path: &str, offset: u64, end: u64) -> Result<(&'a [u8], u64), Fault> {
    let damaged = |what: &str| Fault::damaged(path, offset, what);
    let mut fields = Fields::new(rows.get(offset, FRAME as usize)?);
    let (Some(len), Some(crc)) = (fields.u32(), fields.u32()) else { return Err(damaged("no frame")) };
    let next = offset + FRAME + u64::from(len);
    if next > end {
        return Err(damaged("a block of rows is longer than its file"));
    }
    // From the frame on: both are one read, and the buffer keeps what was looked at.
    let block = &rows.get(offset, FRAME as usize + len as usize)?[FRAME as usize..];
    if crc32c::crc32c(block) != crc {
        return Err(damaged("a block of rows has the wrong checksum"));
    }
    Ok((block, next))
}
