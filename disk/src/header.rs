//! Little-endian fields, and the header page that opens every file of `state/`.

use crate::{Fault, File, Identity, LEVEL, PAGE};

/// Reads fields from bytes that may be anything. Every getter is checked.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes(4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes(8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.u64().map(|v| v.cast_signed())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Reads until `into` is full or the file ends.
pub(crate) fn read_full(file: &dyn File, path: &str, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
    let mut done = 0;
    while done < into.len() {
        let at = offset + done as u64;
        match file.read_at(at, &mut into[done..]).map_err(|e| Fault::io(path, at, e))? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

/// Reads exactly `len` bytes; a shorter file is damage.
pub(crate) fn read_exact(file: &dyn File, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; len];
    read_into(file, path, offset, &mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes`; a file that ends before is damaged.
pub(crate) fn read_into(file: &dyn File, path: &str, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
    let got = read_full(file, path, offset, bytes)?;
    if got < bytes.len() {
        return Err(Fault::damaged(path, offset, format!("the file ends after {got} of {} bytes", bytes.len())));
    }
    Ok(())
}

/// Bytes of a header page that mean something: magic, level, reserved, cluster, member, number, crc
/// of all before. The rest of the page is zeros.
pub const HEADER: usize = 8 + 4 + 4 + 8 + 8 + 8 + 4;

/// The header page of a file. `number` is the segment id or the applied index in its name.
pub(crate) fn page(magic: &[u8; 8], id: Identity, number: u64) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE as usize);
    page.extend_from_slice(magic);
    put_u32(&mut page, LEVEL);
    put_u32(&mut page, 0);
    put_u64(&mut page, id.cluster);
    put_u64(&mut page, id.member);
    put_u64(&mut page, number);
    let crc = crc32c::crc32c(&page);
    put_u32(&mut page, crc);
    page.resize(PAGE as usize, 0);
    page
}

/// Checks the header page of `path`. With `member` None a file of any member of the cluster will do
/// (files on their way from another member).
pub(crate) fn check_page(
    file: &dyn File,
    path: &str,
    magic: &[u8; 8],
    cluster: u64,
    member: Option<u64>,
    number: u64,
) -> Result<(), Fault> {
    let bytes = read_exact(file, path, 0, HEADER)?;
    let malformed = || Fault::damaged(path, 0, "the header page is not readable");
    if &bytes[..8] != magic
        || crc32c::crc32c(&bytes[..HEADER - 4]) != Fields::new(&bytes[HEADER - 4..]).u32().unwrap_or(0)
    {
        return Err(malformed());
    }
    let mut fields = Fields::new(&bytes[8..]);
    let level = fields.u32().ok_or_else(malformed)?;
    if level > LEVEL {
        return Err(Fault::TooNew { file: path.to_string(), level });
    }
    fields.u32().ok_or_else(malformed)?;
    let found = Identity { cluster: fields.u64().ok_or_else(malformed)?, member: fields.u64().ok_or_else(malformed)? };
    check_identity(path, Identity { cluster, member: member.unwrap_or(found.member) }, found)?;
    let found = fields.u64().ok_or_else(malformed)?;
    if found != number {
        return Err(Fault::damaged(path, 0, format!("the header names file {found:x}, not {number:x}")));
    }
    Ok(())
}

pub(crate) fn check_identity(path: &str, ours: Identity, found: Identity) -> Result<(), Fault> {
    if ours == found {
        return Ok(());
    }
    let what = format!(
        "it belongs to cluster {:x} member {:x}, this is cluster {:x} member {:x}",
        found.cluster, found.member, ours.cluster, ours.member
    );
    Err(Fault::Foreign { file: path.to_string(), what })
}
