//! The last batch and what stands behind it are wrong together: that is no end of the log.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Boot, Fault, Identity, Log, LogContent, LogOptions, OnDoubt, Tail};
use std::collections::BTreeMap;
use testkit::files::MemFiles;

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const BOOT: Option<Boot> = Some([1; 16]);
const NEXT_BOOT: Option<Boot> = Some([2; 16]);
const SEGMENT: u64 = 160 << 10;
const PAGE: usize = 4096;

fn entry(index: u64, len: usize) -> Entry {
    let data: Vec<u8> = (0..len).map(|i| (index * 31 + i as u64) as u8 | 1).collect();
    Entry { index, term: 1, kind: EntryKind::Normal, data: Bytes::from(data) }
}

fn recover(files: &MemFiles, boot: Option<Boot>, state: Option<Position>, doubt: OnDoubt) -> Result<LogContent, Fault> {
    let options = LogOptions { segment_bytes: SEGMENT, boot, salt: 0x5a17 };
    Log::recover(files.shared(), ID, options, state, doubt).map(|(_, content)| content)
}

fn newest(files: &MemFiles) -> String {
    files.files().into_iter().rfind(|path| path.ends_with(".log")).expect("a log file")
}

/// A log whose last batch has an entry of `len` bytes.
struct Written {
    files: MemFiles,
    path: String,
    /// Where the last batch begins and ends.
    last: (usize, usize),
    index: u64,
    /// The newest file when it was opened, before the last batch, and before the one before that.
    older: [Vec<u8>; 3],
    /// `log/tip` before the last batch, and before the one before that.
    tips: [Vec<u8>; 2],
}

fn written(recycled: bool, small: u64, len: usize) -> Written {
    let files = MemFiles::new();
    let options = LogOptions { segment_bytes: SEGMENT, boot: BOOT, salt: 0x5a17 };
    let mut log = Log::create(files.shared(), ID, options, Position::default()).expect("an empty disk");
    let mut index = 0;
    let mut save = |log: &mut Log, len: usize| {
        index += 1;
        log.save(HardState { term: 1, vote: 0xa1, commit: index - 1 }, &[entry(index, len)]).expect("saves");
        index
    };
    if recycled {
        let first = newest(&files);
        while files.files().contains(&first) || newest(&files).as_str() < "log/0000000000000006.log" {
            let index = save(&mut log, 9_000);
            log.cut_below(index.saturating_sub(1)).expect("cuts");
        }
        // Behind a start it is not known what a page ahead of the log says.
        drop(log);
        log = Log::recover(files.shared(), ID, options, None, OnDoubt::Keep).expect("opens").0;
    }
    let at_first = files.bytes(&newest(&files));
    for _ in 1..small {
        save(&mut log, 100);
    }
    let before_that = (files.bytes(&newest(&files)), files.bytes("log/tip"));
    save(&mut log, 100);
    let path = newest(&files);
    let (before, tip) = (files.bytes(&path), files.bytes("log/tip"));
    let index = save(&mut log, len);
    let after = files.bytes(&path);
    assert_eq!(newest(&files), path);
    let at = before.iter().zip(&after).position(|(a, b)| a != b).expect("something was written") / PAGE * PAGE;
    let last = (at, at + (2 * 160 + 28 + len).next_multiple_of(PAGE));
    let (older, tips) = ([at_first, before, before_that.0], [tip, before_that.1]);
    Written { files, path, last, index, older, tips }
}

/// What stands in the place of the last batch and of what is behind it.
fn wrongs(written: &Written) -> Vec<(&'static str, Vec<u8>)> {
    let len = written.older[0].len();
    let mut seed = 88_172_645_463_325_252_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as u8
    };
    vec![
        ("zeros", vec![0; len]),
        ("ones", vec![0xff; len]),
        ("junk", (0..len).map(|_| random()).collect()),
        ("older", written.older[0].clone()),
    ]
}

/// What became of `log/tip`: there, gone, damaged, as it was one and two batches ago.
fn tips(written: &Written) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let mut damaged = written.tips[0].clone();
    damaged[40] ^= 4;
    vec![
        ("there", Some(written.files.bytes("log/tip"))),
        ("gone", None),
        ("damaged", Some(damaged)),
        ("zeros", Some(vec![0; 512])),
        ("one batch older", Some(written.tips[0].clone())),
        ("two batches older", Some(written.tips[1].clone())),
    ]
}

/// Batches of each size, in new and in used files; as many pages behind the last batch as there
/// may be.
#[test]
fn the_last_batch_and_what_is_behind_it_do_not_vanish_without_a_word() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for recycled in [false, true] {
        for len in [100, 3_900, 9_000, 70_000] {
            let written = written(recycled, 5, len);
            let end = written.older[0].len();
            for (name, wrong) in wrongs(&written) {
                for pages in [1, 2, 17, usize::MAX / PAGE] {
                    let upto = written.last.1.saturating_add(pages.saturating_mul(PAGE)).min(end);
                    for (mark, tip) in tips(&written) {
                        let damaged = written.files.copy();
                        damaged.edit(&written.path, |bytes| {
                            bytes[written.last.0..upto].copy_from_slice(&wrong[written.last.0..upto]);
                        });
                        match &tip {
                            Some(tip) => damaged.edit("log/tip", |bytes| bytes.clone_from(tip)),
                            None => disk::Files::remove(&damaged, "log/tip").expect("there"),
                        }
                        for boot in [BOOT, NEXT_BOOT] {
                            let what = format!("{name} over {pages} pages, tip {mark}, {boot:?}, {recycled}, {len}");
                            *seen.entry(judge(&damaged.copy(), boot, written.index, name, &what)).or_default() += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(seen["in doubt"] > 1_000 && !seen.contains_key("torn"), "{seen:?}");
}

fn judge(damaged: &MemFiles, boot: Option<Boot>, index: u64, name: &str, what: &str) -> &'static str {
    let alone = recover(&damaged.copy(), boot, None, OnDoubt::Refuse);
    let content = recover(damaged, boot, None, OnDoubt::Peers).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    assert_eq!(content.last.index, index - 1, "{what}");
    // In a new file older bytes say that nothing was ever written there. Only the marks, and the
    // peers, know better.
    if name != "older" || content.tail != Tail::Whole {
        assert!(content.doubt.is_some(), "{what}: {:?}", content.tail);
    }
    match alone {
        Err(Fault::Doubtful { .. }) => "in doubt",
        Err(fault) => panic!("{what}: {fault}"),
        Ok(content) => {
            assert!(name == "older", "{what}: {:?}", content.tail);
            "not to be told"
        }
    }
}

/// The last batch was written whole, and the page behind it was not: in a used file that page holds
/// what lay there. It may be any bytes, but for most batches a page stands there already.
#[test]
fn a_torn_page_behind_a_whole_batch_is_no_loss() {
    for small in 3..30 {
        let Written { files, path, last, older, index, .. } = written(true, small, 100);
        disk::Files::remove(&files, "log/tip").expect("there");
        files.edit(&path, |bytes| bytes[last.1..].copy_from_slice(&older[1][last.1..]));
        for doubt in [OnDoubt::Refuse, OnDoubt::Peers] {
            let content = recover(&files.copy(), NEXT_BOOT, None, doubt);
            let content = content.unwrap_or_else(|fault| panic!("{small} batches: {fault}"));
            assert_eq!(content.last.index, index);
        }
    }
}

/// A state goes into a checkpoint when its entries are durable in the log. A log that ends before
/// it has lost its end, whatever stands beside it.
#[test]
fn a_log_below_its_checkpoint_is_a_sure_loss_whatever_the_marks_say() {
    let written = written(false, 5, 100);
    let state = Some(Position { index: written.index, term: 1 });
    let back = written.files.copy();
    back.edit(&written.path, |bytes| bytes.clone_from(&written.older[1]));
    for (mark, tip) in tips(&written) {
        for reached in [true, false] {
            let files = back.copy();
            match &tip {
                Some(tip) => files.edit("log/tip", |bytes| bytes.clone_from(tip)),
                None => disk::Files::remove(&files, "log/tip").expect("there"),
            }
            if !reached {
                disk::Files::remove(&files, "log/reached").expect("there");
            }
            for boot in [BOOT, NEXT_BOOT, None] {
                let what = format!("tip {mark}, reached {reached}, {boot:?}");
                let alone = recover(&files.copy(), boot, state, OnDoubt::Refuse);
                assert!(matches!(alone, Err(Fault::Doubtful { .. })), "{what}: {alone:?}");
                let content = recover(&files.copy(), boot, state, OnDoubt::Peers).expect("opens");
                assert!(content.doubt.as_ref().is_some_and(|doubt| doubt.sure), "{what}: {:?}", content.tail);
            }
        }
    }
}

/// The newest file of the log is gone, and the one before it ends in a checkpoint's past.
#[test]
fn a_newest_file_that_is_gone_is_a_sure_loss_below_a_checkpoint() {
    let files = MemFiles::new();
    let options = LogOptions { segment_bytes: 64 << 10, boot: BOOT, salt: 0x5a17 };
    let mut log = Log::create(files.shared(), ID, options, Position::default()).expect("an empty disk");
    let mut tip = Vec::new();
    let mut index = 0;
    while files.files().iter().filter(|path| path.ends_with(".log")).count() < 3 {
        tip = files.bytes("log/tip");
        index += 1;
        log.save(HardState { term: 1, vote: 0xa1, commit: index - 1 }, &[entry(index, 3_000)]).expect("saves");
    }
    drop(log);
    disk::Files::remove(&files, &newest(&files)).expect("there");
    files.edit("log/tip", |bytes| bytes.clone_from(&tip));
    disk::Files::remove(&files, "log/reached").expect("there");
    let state = Some(Position { index, term: 1 });
    for boot in [BOOT, NEXT_BOOT] {
        let alone = recover(&files.copy(), boot, state, OnDoubt::Refuse);
        assert!(matches!(alone, Err(Fault::Doubtful { .. })), "{boot:?}: {alone:?}");
        let content = recover(&files.copy(), boot, state, OnDoubt::Peers).expect("opens");
        assert!(content.doubt.as_ref().is_some_and(|doubt| doubt.sure), "{boot:?}: {:?}", content.tail);
    }
}

/// Damage in the newest file does not wait for the file to be full: the log goes on in another one,
/// and a checkpoint lets the damaged one go.
#[test]
fn a_damaged_newest_file_is_left_and_goes_with_the_next_cut() {
    let files = MemFiles::new();
    let options = LogOptions { segment_bytes: SEGMENT, boot: BOOT, salt: 0x5a17 };
    let mut log = Log::create(files.shared(), ID, options, Position::default()).expect("an empty disk");
    let save = |log: &mut Log, index| {
        log.save(HardState { term: 1, vote: 0xa1, commit: index - 1 }, &[entry(index, 100)]).expect("saves");
    };
    (1..6).for_each(|index| save(&mut log, index));
    let path = newest(&files);
    files.edit(&path, |bytes| bytes[3 * PAGE + 200] ^= 1);
    log.leave_file("log/another").expect("it is not the newest");
    assert_eq!(newest(&files), path);
    log.leave_file(&path).expect("leaves");
    assert_ne!(newest(&files), path);
    save(&mut log, 6);
    let damaged = recover(&files.copy(), NEXT_BOOT, None, OnDoubt::Refuse);
    assert!(matches!(damaged, Err(Fault::Damaged { .. })), "{damaged:?}");
    log.cut_below(6).expect("a checkpoint has the rest");
    drop(log);
    let content = recover(&files, NEXT_BOOT, None, OnDoubt::Refuse).expect("nothing is damaged any more");
    assert_eq!((content.boundary.index, content.last.index, content.tail), (5, 6, Tail::Whole));
}
