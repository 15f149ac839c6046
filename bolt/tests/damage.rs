//! Files that lie. Nothing may panic, hang, or come back changed and unnoticed by the check.

use bolt::{Db, Source, write_all};
use proptest::prelude::*;
use std::sync::LazyLock;

const SAVED: &[u8] = include_bytes!("fixtures/etcd-3.7.3.db");

/// Several levels, several buckets, overflow pages.
static OURS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let pairs = |count: u32, value: usize| {
        (0..count).map(|n| (format!("key {n:08}").repeat(4).into_bytes(), vec![n as u8; value])).collect()
    };
    write_all(&[(b"a", pairs(300, 20)), (b"b", pairs(3, 9000)), (b"c", vec![]), (b"d", pairs(20, 900))])
        .expect("ascending")
});

/// Everything that can be asked of a file. True if nothing wrong was noticed.
fn use_all(file: &[u8]) -> bool {
    let Ok(db) = Db::open(file) else { return false };
    let mut well = db.check().is_empty();
    well &= db.summary().is_ok();
    let Ok(names) = db.buckets() else { return false };
    for name in names {
        let Ok(Some(bucket)) = db.bucket(&name) else { return false };
        let keys: Vec<_> = bucket.pairs().map_while(Result::ok).map(|(key, _)| key).collect();
        for key in keys.iter().step_by(keys.len() / 3 + 1) {
            well &= bucket.get(key).is_ok();
            well &= bucket.pairs_from(key).all(|pair| pair.is_ok());
        }
        well &= bucket.buckets().is_ok();
    }
    well
}

fn originals() -> [&'static [u8]; 2] {
    [&SAVED[..SAVED.len() - 32], &OURS]
}

#[test]
fn the_originals_are_well() {
    assert!(originals().into_iter().all(use_all));
}

#[test]
fn every_cut_at_a_page_is_noticed() {
    for file in originals() {
        for cut in (0..file.len()).step_by(1024) {
            assert!(Db::open(&file[..cut]).is_err(), "cut at {cut} of {}", file.len());
        }
    }
}

/// Numbers that a header or element is most likely to lie with.
#[test]
fn every_field_of_every_page_lies() {
    for file in originals() {
        let mut bad = file.to_vec();
        for page in 0..file.len() / 4096 {
            for field in (0..96).step_by(4) {
                let at = page * 4096 + field;
                for lie in [0, 1, 2, 3, 7, 0xFFFF, 0xFFFF_FFFF, 0x7FFF_FFFF, file.len() as u32 / 4096] {
                    bad[at..at + 4].copy_from_slice(&u32::to_le_bytes(lie));
                    if let Ok(db) = Db::open(&bad[..]) {
                        db.check();
                        let _ = db.summary();
                    }
                }
                bad[at..at + 4].copy_from_slice(&file[at..at + 4]);
            }
        }
    }
}

fn is_branch(file: &[u8], page: usize) -> bool {
    let header = &file[page * 4096..];
    header[..8] == (page as u64).to_le_bytes() && header[8..10] == [1, 0]
}

/// A page that is its own child, and a page that is the child of two.
#[test]
fn circles_and_shared_pages_end() {
    let file = &*OURS;
    let db = Db::open(&file[..]).expect("ours");
    let branches: Vec<usize> = (3..file.len() / 4096).filter(|&page| is_branch(file, page)).collect();
    assert!(!branches.is_empty() && db.check().is_empty());
    for branch in branches {
        for child in 2..file.len() / 4096 {
            let mut bad = file.to_vec();
            let at = branch * 4096 + 16 + 8;
            if bad[at..at + 8] == (child as u64).to_le_bytes() {
                continue;
            }
            bad[at..at + 8].copy_from_slice(&(child as u64).to_le_bytes());
            assert!(!use_all(&bad), "branch {branch}, child {child}");
        }
    }
}

/// Two buckets with one root: every key can be read, and only the check sees it.
#[test]
fn a_page_used_twice_and_pages_used_by_nobody_are_found() {
    let mut bad = OURS.clone();
    let root = Db::open(&bad[..]).expect("ours").meta().root as usize * 4096;
    let (first, second) = (root + 16 + 4 * 16 + 1, root + 16 + 4 * 16 + 17 + 1);
    let page = bad[first..first + 8].to_vec();
    bad[second..second + 8].copy_from_slice(&page);
    let db = Db::open(&bad[..]).expect("its meta page is whole");
    assert!(db.summary().is_ok());
    let findings: Vec<String> = db.check().iter().map(ToString::to_string).collect();
    let twice = format!("page {0} (offset {1}): used twice", page[0], usize::from(page[0]) * 4096);
    assert!(findings.contains(&twice), "{findings:?}");
    assert!(findings.iter().any(|found| found.ends_with("neither in use nor in the freelist")), "{findings:?}");
}

#[test]
fn the_older_meta_page_serves_when_the_newer_is_damaged() {
    for file in originals() {
        for meta in [0, 1] {
            let mut bad = file.to_vec();
            bad[meta * 4096 + 30] ^= 1;
            assert!(Db::open(&bad[..]).is_ok(), "without meta page {meta}");
            bad[(1 - meta) * 4096 + 30] ^= 1;
            let error = Db::open(&bad[..]).expect_err("no meta page is left").to_string();
            assert_eq!(
                error,
                "no valid meta page: page 0: wrong checksum; page 1: not found at any page size (is this a bbolt file?)"
            );
        }
    }
}

#[test]
fn errors_name_page_offset_and_reason() {
    let mut bad = OURS.clone();
    let page = Db::open(&bad[..]).expect("ours").meta().root as usize;
    bad[page * 4096 + 8] = 9;
    let error = Db::open(&bad[..]).expect("its meta page is whole").buckets().expect_err("no such kind of page");
    assert_eq!(error.to_string(), format!("page {page} (offset {}): of an unknown kind (flags 0x9)", page * 4096));
}

/// A file that fails in the middle.
struct Failing<'a>(&'a [u8]);

impl Source for Failing<'_> {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        if offset > 12288 {
            return Err(std::io::Error::other("the disk says no"));
        }
        self.0.read_at(offset, buffer)
    }
}

#[test]
fn what_the_disk_says_is_passed_on() {
    let db = Db::open(Failing(&OURS)).expect("the first pages are read");
    let error = db.buckets().expect_err("the root lies behind").to_string();
    assert!(error.starts_with("reading 4096 bytes at offset ") && error.ends_with("the disk says no"), "{error}");
    assert!(db.check()[0].to_string().contains("the disk says no"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes(which in 0..2usize, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bad = originals()[which].to_vec();
        for (at, byte) in flips {
            let at = at.index(bad.len());
            bad[at] = byte;
        }
        use_all(&bad);
    }

    /// Damage where the structure is: headers and elements, with small numbers.
    #[test]
    fn lying_structure(which in 0..2usize, lies in prop::collection::vec((any::<prop::sample::Index>(), 0..40usize, 0..64u64), 1..5)) {
        let mut bad = originals()[which].to_vec();
        for (page, word, lie) in lies {
            let at = page.index(bad.len() / 4096) * 4096 + word * 8;
            bad[at..at + 8].copy_from_slice(&lie.to_le_bytes());
        }
        use_all(&bad);
    }

    #[test]
    fn cuts_and_noise(cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..300)) {
        use_all(&OURS[..cut.index(OURS.len())]);
        use_all(&noise);
    }
}
