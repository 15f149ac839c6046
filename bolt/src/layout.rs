//! Where the numbers stand on a page.

/// Bytes in front of what a page holds.
pub(crate) const HEADER: usize = 16;
/// Bytes of one element of a leaf or branch page, without key and value.
pub(crate) const ELEMENT: usize = 16;
/// Bytes of a meta page in use: header, fields, checksum.
pub(crate) const META: usize = HEADER + 64;
/// Bytes of a bucket's value: root page and sequence.
pub(crate) const BUCKET: usize = 16;

pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META_PAGE: u16 = 0x04;
pub(crate) const FREELIST: u16 = 0x10;
/// The value of this leaf element is a bucket.
pub(crate) const IS_BUCKET: u32 = 0x01;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;

/// Stands in a meta page for the freelist's page when none was written, as etcd has it.
pub const NO_FREELIST: u64 = u64::MAX;

/// A meta page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Bytes.
    pub page_size: u32,
    /// Page of the bucket of all buckets.
    pub root: u64,
    /// Sequence of the root bucket; nobody uses it.
    pub sequence: u64,
    /// Page of the freelist, or [`NO_FREELIST`].
    pub freelist: u64,
    /// The first page number that was never used.
    pub high_water: u64,
    /// Number of the transaction that wrote this page; of two valid meta pages the larger counts.
    pub txid: u64,
}

impl Meta {
    /// From the first [`META`] bytes of a page. The error says what is wrong with it.
    pub(crate) fn decode(page: &[u8]) -> Result<Meta, &'static str> {
        if page.len() < META {
            return Err("the file is too short for it");
        }
        let body = &page[HEADER..META];
        if u32_at(body, 0) != MAGIC {
            return Err("no bbolt magic number");
        }
        if u32_at(body, 4) != VERSION {
            return Err("a version of the format other than 2");
        }
        if u64_at(body, 56) != fnv1a(&body[..56]) {
            return Err("wrong checksum");
        }
        Ok(Meta {
            page_size: u32_at(body, 8),
            root: u64_at(body, 16),
            sequence: u64_at(body, 24),
            freelist: u64_at(body, 32),
            high_water: u64_at(body, 40),
            txid: u64_at(body, 48),
        })
    }

    /// The whole page `id` (0 or 1).
    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let mut page = vec![0; self.page_size as usize];
        page[..HEADER].copy_from_slice(&header(id, META_PAGE, 0, 0));
        let body = &mut page[HEADER..META];
        body[..4].copy_from_slice(&MAGIC.to_le_bytes());
        body[4..8].copy_from_slice(&VERSION.to_le_bytes());
        body[8..12].copy_from_slice(&self.page_size.to_le_bytes());
        let fields = [self.root, self.sequence, self.freelist, self.high_water, self.txid];
        for (slot, field) in body[16..56].chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        let sum = fnv1a(&body[..56]);
        body[56..].copy_from_slice(&sum.to_le_bytes());
        page
    }
}

pub(crate) fn header(id: u64, flags: u16, count: u16, overflow: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..10].copy_from_slice(&flags.to_le_bytes());
    bytes[10..12].copy_from_slice(&count.to_le_bytes());
    bytes[12..].copy_from_slice(&overflow.to_le_bytes());
    bytes
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// FNV-1a, 64 bits: the checksum of a meta page.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_page_is_read_back_and_a_flipped_bit_is_seen() {
        let meta = Meta { page_size: 4096, root: 3, sequence: 0, freelist: NO_FREELIST, high_water: 9, txid: 7 };
        let mut page = meta.encode(1);
        assert_eq!(Meta::decode(&page), Ok(meta));
        page[HEADER + 49] ^= 4;
        assert_eq!(Meta::decode(&page), Err("wrong checksum"));
    }

    #[test]
    fn fnv_of_known_words() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x85944171f73967e8);
    }
}
