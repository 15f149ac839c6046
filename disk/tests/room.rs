//! The log on a disk with little room, what is kept back for that, and a folder that is gone.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Files, Identity, Log, LogContent, LogOptions, OnDoubt, Reserve, Tail};
use testkit::files::MemFiles;

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const OPTIONS: LogOptions = LogOptions { segment_bytes: 256 << 10, boot: Some([1; 16]), salt: 0x5a17 };
/// Of each file of the reserve.
const RESERVE: u64 = (256 << 10) / 8;
const KIB: u64 = 1 << 10;

fn save(log: &mut Log, index: u64, bytes: usize) -> Result<(), disk::Fault> {
    let entry = Entry { index, term: 1, kind: EntryKind::Normal, data: Bytes::from(vec![7; bytes]) };
    log.save(HardState { term: 1, vote: 0, commit: 0 }, &[entry])
}

fn create(files: &MemFiles) -> Log {
    Log::create(files.shared(), ID, OPTIONS, Position::default()).expect("an empty disk")
}

fn recover(files: &MemFiles, state: Option<Position>) -> (Log, LogContent) {
    Log::recover(files.shared(), ID, OPTIONS, state, OnDoubt::Peers).expect("it opens")
}

/// Saves until a save finds no room. The entries that are durable.
fn fill(log: &mut Log, first: u64, bytes: usize) -> u64 {
    for index in first.. {
        match save(log, index, bytes) {
            Ok(()) => {}
            Err(fault) if fault.is_full() => return index - 1,
            Err(fault) => panic!("{fault}"),
        }
    }
    unreachable!("the disk is full at some time")
}

fn lengths(files: &MemFiles) -> Vec<u64> {
    let logs = files.files().into_iter().filter(|path| path.ends_with(".log"));
    logs.map(|path| files.bytes(&path).len() as u64).collect()
}

/// Room is left until less than a batch is: what fits is made, and a start finds all of it.
#[test]
fn a_file_of_less_is_made_where_a_whole_one_finds_no_room() {
    let files = MemFiles::new();
    let mut log = create(&files);
    files.set_space(50 * KIB);
    let last = fill(&mut log, 1, 3_000);
    assert!(files.space() < Some(8 * KIB), "{:?} bytes are free", files.space());
    let lengths = lengths(&files);
    assert!(lengths[1..].iter().all(|len| *len <= RESERVE) && lengths.len() > 2, "{lengths:?}");
    files.set_space(1 << 20);
    let (mut log, content) = recover(&files, None);
    assert_eq!((content.last.index, content.tail), (last, Tail::Whole));
    // Small files are not kept as spare ones, and the next one is a whole one again.
    fill_one(&mut log, last + 1);
    assert_eq!(lengths_after(&files), 256 * KIB);
}

fn fill_one(log: &mut Log, first: u64) {
    (first..first + 8).for_each(|index| save(log, index, 3_000).expect("there is room"));
}

fn lengths_after(files: &MemFiles) -> u64 {
    *lengths(files).last().expect("a log file")
}

/// A batch that is larger than anything before it, and one that a smaller file holds.
#[test]
fn a_batch_that_finds_no_room_goes_through_with_what_was_kept_back() {
    let files = MemFiles::new();
    let mut log = create(&files);
    assert!(log.keep_reserve().expect("there is room"));
    files.set_space(10 * KIB);
    let last = fill(&mut log, 1, 20_000);
    assert!(log.release_reserve(Reserve::Log).expect("removed"));
    assert!(!log.release_reserve(Reserve::Log).expect("it is gone already"));
    save(&mut log, last + 1, 20_000).expect("it fits now");
    save(&mut log, last + 2, 10).expect("and what makes room");
    assert!(!log.keep_reserve().expect("no call fails"), "there is no room for it");
    files.set_space(RESERVE);
    assert!(log.keep_reserve().expect("there is room"));
    assert_eq!(files.space(), Some(0), "it is as large as before, and the other one stood");
    let (_, content) = recover_after_release(&files);
    assert_eq!((content.last.index, content.tail), (last + 2, Tail::Whole));
}

/// A start that finds no room gives all of it up.
fn recover_after_release(files: &MemFiles) -> (Log, LogContent) {
    assert!(Reserve::release(&*files.shared()).expect("removed"));
    recover(files, None)
}

/// Half a file of the reserve, or one of another size, is made anew and eats no room for ever.
#[test]
fn a_reserve_of_another_size_is_made_anew() {
    let files = MemFiles::new();
    let mut log = create(&files);
    assert!(log.keep_reserve().expect("there is room"));
    files.edit("log/reserve-log", |bytes| bytes.truncate(10));
    files.set_space(RESERVE - 11);
    assert!(!log.keep_reserve().expect("no call fails"));
    files.set_space(RESERVE);
    assert!(log.keep_reserve().expect("there is room"));
    assert_eq!(files.bytes("log/reserve-log").len() as u64, RESERVE);
}

/// The folder itself is gone: the log begins anew, and what is not known any more is remembered as
/// a doubt.
#[test]
fn a_folder_that_is_gone_is_as_an_empty_one() {
    for whole in [false, true] {
        let files = MemFiles::new();
        let mut log = create(&files);
        save(&mut log, 1, 100).expect("there is room");
        drop(log);
        if whole {
            files.lose_dir("log");
        } else {
            for path in files.files() {
                Files::remove(&files, &path).expect("it is there");
            }
        }
        let (log, content) = recover(&files, Some(Position { index: 1, term: 1 }));
        assert_eq!(log.last(), Position { index: 1, term: 1 }, "{whole}");
        assert!(matches!(content.tail, Tail::Damaged(_)) && content.doubt.is_some_and(|doubt| doubt.sure), "{whole}");
    }
}
