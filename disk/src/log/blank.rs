//! The page that says: the log ends here. Each batch is written with one behind it, in the same write. New
//! files are filled with such pages ahead of the log. So the end of the log can be told from a batch that is
//! gone: zeros, or anything else, in its place are damage or a write that never finished. Every sector says
//! where it stands.

use super::batch::Place;
use crate::PAGE;
use crate::files::Identity;
use crate::header::put_u64;

pub(super) const SECTOR: usize = 512;
const MAGIC: &[u8; 8] = b"kvlogend";

fn sector(id: Identity, at: Place) -> [u8; SECTOR] {
    let mut words = MAGIC.to_vec();
    for value in [id.cluster, id.member, at.segment, at.offset] {
        put_u64(&mut words, value);
    }
    std::array::from_fn(|position| words[position % words.len()])
}

/// The pages that stand at `at`, over `len` bytes, if no batch does.
pub(super) fn pages(id: Identity, at: Place, len: u64) -> Vec<u8> {
    let sectors = (at.offset..at.offset + len).step_by(SECTOR);
    sectors.flat_map(|offset| sector(id, Place { offset, ..at })).collect()
}

/// The sector at `at` is one of such a page.
pub(super) fn is_sector(id: Identity, at: Place, bytes: &[u8]) -> bool {
    bytes == sector(id, at)
}

/// The page at `at` is such a page.
pub(super) fn is_page(id: Identity, at: Place, bytes: &[u8]) -> bool {
    bytes.len() as u64 == PAGE
        && bytes
            .chunks_exact(SECTOR)
            .zip((at.offset..).step_by(SECTOR))
            .all(|(bytes, offset)| is_sector(id, Place { offset, ..at }, bytes))
}
