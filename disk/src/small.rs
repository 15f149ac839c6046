//! Small files of one value each: what stands beside the log. A file is replaced as a whole.
//!
//! ```text
//! magic (8), format level (4), length of the value (4), cluster (8), member (8), value,
//! crc32c of all before (4)
//! ```
//!
//! Every level of the format keeps magic, level, length and crc where they are.

use crate::header::{Fields, check_identity, put_u32, put_u64, read_full};
use crate::{Fault, File, Files, How, Identity, LEVEL};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Bytes before the value.
const HEAD: usize = 8 + 4 + 4 + 8 + 8;
/// Most bytes that are read of such a file.
const MOST: usize = 4096;

pub(crate) fn encode(magic: &[u8; 8], id: Identity, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + value.len() + 4);
    out.extend_from_slice(magic);
    put_u32(&mut out, LEVEL);
    put_u32(&mut out, u32::try_from(value.len()).expect("a small value"));
    put_u64(&mut out, id.cluster);
    put_u64(&mut out, id.member);
    out.extend_from_slice(value);
    let crc = crc32c::crc32c(&out);
    put_u32(&mut out, crc);
    assert!(out.len() <= MOST, "a small file holds {MOST} bytes at most");
    out
}

/// The name of a file while it is written.
pub(crate) fn part(path: &str) -> String {
    format!("{path}.part")
}

/// Replaces the file at `path` in `dir`. Durable once this returns.
pub(crate) fn write(files: &dyn Files, dir: &str, path: &str, bytes: &[u8]) -> Result<(), Fault> {
    let part = part(path);
    let written = create(files, dir, &part).and_then(|file| {
        file.write_at(0, &[bytes])?;
        file.sync()?;
        files.rename(&part, path)?;
        files.sync_dir(dir)
    });
    written.map_err(|e| Fault::io(path, 0, e))
}

/// Its folder may be gone: whoever removed or lost that asks nobody what else makes it.
fn create(files: &dyn Files, dir: &str, part: &str) -> io::Result<Arc<dyn File>> {
    match files.open(part, How::Create) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            files.make_dir(dir)?;
            files.sync_dir("")?;
            files.open(part, How::Create)
        }
        other => other,
    }
}

/// The value of the file at `path`; None if there is no file.
///
/// # Errors
/// [`Fault::Damaged`], a later format level, another member's file.
pub(crate) fn read(files: &dyn Files, path: &str, magic: &[u8; 8], id: Identity) -> Result<Option<Vec<u8>>, Fault> {
    let file = match files.open(path, How::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| Fault::io(path, 0, e))?,
    };
    let mut bytes = vec![0; MOST];
    let got = read_full(&*file, path, 0, &mut bytes)?;
    let (level, owner, value) =
        decode(&bytes[..got], magic).ok_or_else(|| Fault::damaged(path, 0, "the file is not readable"))?;
    if level > LEVEL {
        return Err(Fault::TooNew { file: path.to_string(), level });
    }
    check_identity(path, id, owner)?;
    Ok(Some(value.to_vec()))
}

/// False if the file is absent, empty, or nothing but zeros.
pub(crate) fn holds_anything(files: &dyn Files, path: &str) -> bool {
    let mut bytes = vec![0; MOST];
    let read = files.open(path, How::Read).and_then(|file| file.read_at(0, &mut bytes));
    read.is_ok_and(|got| bytes[..got].iter().any(|byte| *byte != 0))
}

fn decode<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Option<(u32, Identity, &'a [u8])> {
    let mut fields = Fields::new(bytes.strip_prefix(magic)?);
    let level = fields.u32()?;
    let len = usize::try_from(fields.u32()?).ok()?;
    let owner = Identity { cluster: fields.u64()?, member: fields.u64()? };
    let value = fields.bytes(len)?;
    let crc = fields.u32()?;
    (crc32c::crc32c(&bytes[..HEAD + len]) == crc).then_some((level, owner, value))
}

/// Removes the file at `path` in `dir`, durably. True if there was one.
pub(crate) fn remove(files: &dyn Files, dir: &str, path: &str) -> Result<bool, Fault> {
    match files.remove(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|e| Fault::io(path, 0, e))?,
    }
    files.sync_dir(dir).map_err(|e| Fault::io(path, 0, e))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8; 8] = b"kvtest\0\0";

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let id = Identity { cluster: 1, member: 2 };
        let good = encode(MAGIC, id, b"what it says");
        assert_eq!(decode(&good, MAGIC), Some((LEVEL, id, &b"what it says"[..])));
        assert_eq!(decode(&good, b"kvother\0"), None);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad, MAGIC), None, "bit {bit}");
        }
        for len in 0..good.len() {
            assert_eq!(decode(&good[..len], MAGIC), None, "{len} bytes");
        }
    }
}
