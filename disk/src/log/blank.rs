//! The page that says: the log ends here. Each batch is written with one behind it, in the same
//! write. New files are filled with such pages ahead of the log. So the end of the log can be told
//! from a batch that is gone: zeros, or anything else, in its place are damage or a write that
//! never finished. Every sector says where it stands.

use super::batch::Place;
use super::seal::Seal;
use crate::PAGE;

pub(super) const SECTOR: usize = 512;
const MAGIC: &[u8; 8] = b"kvlogend";

/// Bytes that say it, over and over: magic, cluster, member, segment, offset, salt.
const WORDS: usize = 48;

fn sector(seal: Seal, at: Place) -> [u8; SECTOR] {
    let mut words = [0; WORDS];
    let Seal { id, salt, .. } = seal;
    let values = [id.cluster, id.member, at.segment, at.offset, salt].map(u64::to_le_bytes);
    // Level 1 had no salt.
    let words = if seal.is_salted(at.segment) { &mut words[..] } else { &mut words[..WORDS - 8] };
    for (word, value) in words.chunks_exact_mut(8).zip([*MAGIC].iter().chain(&values)) {
        word.copy_from_slice(value);
    }
    let mut out = [0; SECTOR];
    for part in out.chunks_mut(words.len()) {
        part.copy_from_slice(&words[..part.len()]);
    }
    out
}

/// The pages that stand at `at`, over `len` bytes, if no batch does.
pub(super) fn pages(seal: Seal, at: Place, len: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(usize::try_from(len).expect("smaller than its file"));
    for offset in (at.offset..at.offset + len).step_by(SECTOR) {
        out.extend_from_slice(&sector(seal, Place { offset, ..at }));
    }
    out
}

/// The sector at `at` is one of such a page.
pub(super) fn is_sector(seal: Seal, at: Place, bytes: &[u8]) -> bool {
    bytes == sector(seal, at)
}

/// The segment in which the sector at `offset` said so.
pub(super) fn segment_of(seal: Seal, offset: u64, bytes: &[u8]) -> Option<u64> {
    let segment = u64::from_le_bytes(bytes.get(24..32)?.try_into().ok()?);
    is_sector(seal, Place { segment, offset }, bytes).then_some(segment)
}

/// The page at `at` is such a page.
pub(super) fn is_page(seal: Seal, at: Place, bytes: &[u8]) -> bool {
    bytes.len() as u64 == PAGE
        && bytes
            .chunks_exact(SECTOR)
            .zip((at.offset..).step_by(SECTOR))
            .all(|(bytes, offset)| is_sector(seal, Place { offset, ..at }, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    #[test]
    fn a_sector_says_where_it_stands_to_its_end() {
        let (id, at) = (Identity { cluster: 1, member: 2 }, Place { segment: 3, offset: 4096 });
        let words = [*MAGIC, 1_u64.to_le_bytes(), 2_u64.to_le_bytes(), 3_u64.to_le_bytes(), 4608_u64.to_le_bytes()];
        let salted = [words.concat(), 77_u64.to_le_bytes().to_vec()].concat();
        for (seal, words) in [(Seal::new(id, 77), salted), (Seal::without_salt(id), words.concat())] {
            let page = pages(seal, at, PAGE);
            assert!(is_page(seal, at, &page));
            assert!((0..SECTOR).all(|byte| page[SECTOR + byte] == words[byte % words.len()]));
            for byte in [0, 511, 512, 4095] {
                let mut bad = page.clone();
                bad[byte] ^= 1;
                assert!(!is_page(seal, at, &bad), "byte {byte}");
            }
            assert!(!is_page(seal, Place { offset: 8192, ..at }, &page));
            assert!(!is_page(Seal::new(id, 78), at, &page), "without the salt it is data");
            assert_eq!(segment_of(seal, 4096, &page[..SECTOR]), Some(3));
        }
    }
}
