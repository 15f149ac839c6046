//! A log that meets damage, or its own marks, on a full disk.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Boot, Fault, File, Files, How, Identity, Log, LogContent, LogOptions, OnDoubt, Tail};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::files::MemFiles;

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const BOOT: Option<Boot> = Some([1; 16]);
const SEGMENT: u64 = 24 << 10;

fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT, boot: BOOT, salt: 0x5a17 }
}

fn save(log: &mut Log, index: u64, commit: u64) -> Result<(), Fault> {
    let entry = Entry { index, term: 1, kind: EntryKind::Normal, data: Bytes::from(vec![index as u8; 3000]) };
    log.save(HardState { term: 1, vote: 0xa2, commit }, &[entry])
}

fn recover(files: &MemFiles, state: Option<Position>) -> Result<(Log, LogContent), Fault> {
    Log::recover(files.shared(), ID, options(), state, OnDoubt::Peers)
}

/// The damaged file is copied before it is cut. Where that would take the last room, the member
/// starts without a copy, and says so.
#[test]
fn a_copy_of_damage_never_takes_the_room_of_the_cut() {
    let right = MemFiles::new();
    let mut log = Log::create(right.shared(), ID, options(), Position::default()).expect("an empty disk");
    (1..=20).for_each(|index| save(&mut log, index, index - 1).expect("saves"));
    log.close(20).expect("stops");
    drop(log);
    right.edit("log/0000000000000002.log", |bytes| bytes[5000] ^= 1);
    let (mut without, mut with) = (0, 0);
    for space in (16 << 10..400 << 10).step_by(3 << 10) {
        let files = right.copy();
        files.set_space(space);
        let (_, content) = recover(&files, Some(Position::default())).unwrap_or_else(|e| panic!("{space} bytes: {e}"));
        let Tail::Damaged(doubt) = content.tail else { panic!("{:?}", content.tail) };
        let kept = files.files().contains(&"aside/log-0000000000000002.log".to_string());
        assert_eq!(kept, !doubt.at.what.contains("no copy of the file is kept"), "{space}: {doubt:?}");
        *(if kept { &mut with } else { &mut without }) += 1;
        assert!(!files.files().iter().any(|path| path.ends_with(".part")), "{space}: {:?}", files.files());
    }
    assert!(without > 20 && with > 20, "{without} {with}");
}

/// The state is lost, and the log is damaged behind its first batches. It begins at an entry that
/// later batches, and the marks, know to be committed: what is whole of it stays.
#[test]
fn a_log_that_was_cut_keeps_its_good_part_without_a_state() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(), Position::default()).expect("an empty disk");
    // The commit index lags, as under load.
    (1_u64..=40).for_each(|index| save(&mut log, index, index.saturating_sub(8)).expect("saves"));
    log.cut_below(20).expect("a checkpoint has those");
    let begins = log.boundary();
    assert!(begins.index > 8);
    drop(log);
    let first = files.files().into_iter().find(|path| path.ends_with(".log")).expect("a log");
    // The third batch: what stands before it does not know that the log's first entry is committed.
    files.edit(&first, |bytes| bytes[2 * 4096 + 300] ^= 1);
    for marks in [true, false] {
        let files = files.copy();
        if !marks {
            for path in ["log/tip", "log/reached"] {
                Files::remove(&files, path).expect("there");
            }
        }
        let (_, content) = recover(&files, None).unwrap_or_else(|fault| panic!("marks {marks}: {fault}"));
        assert_eq!((content.boundary, content.last.index), (begins, begins.index + 2), "marks {marks}");
        assert!(content.doubt.is_some_and(|doubt| doubt.sure), "marks {marks}");
    }
}

/// A backlog was flushed before its commit index was known, then a checkpoint came and the log was
/// cut behind it. Nothing was written since, and the state is lost: the log is not.
#[test]
fn a_log_that_was_cut_says_that_its_beginning_is_committed() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(), Position::default()).expect("an empty disk");
    (1_u64..=40).for_each(|index| save(&mut log, index, 0).expect("saves"));
    log.cut_below(20).expect("a checkpoint has those");
    let begins = log.boundary();
    assert!(begins.index > 8);
    drop(log);
    let (_, content) = recover(&files, None).expect("the state alone is gone");
    assert_eq!((content.boundary, content.last.index), (begins, 40));
}

/// A disk where every write needs new room: `log/tip` finds none while the log still does.
struct Copying {
    files: MemFiles,
    full: Arc<AtomicBool>,
}

struct Tip {
    file: Arc<dyn File>,
    full: Arc<AtomicBool>,
}

impl File for Tip {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => self.file.write_at(offset, parts),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
}

impl Files for Copying {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        if path == "log/tip" && how == How::Create && self.full.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let file = Files::open(&self.files, path, how)?;
        Ok(if path == "log/tip" { Arc::new(Tip { file, full: Arc::clone(&self.full) }) } else { file })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Files::rename(&self.files, from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Files::remove(&self.files, path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Files::list(&self.files, dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        Files::make_dir(&self.files, dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        Files::sync_dir(&self.files, dir)
    }
}

/// A `tip` that cannot be written any more would say that less was acknowledged. It goes, and is
/// made again when there is room.
#[test]
fn a_tip_without_room_goes_and_comes_again() {
    let (files, full) = (MemFiles::new(), Arc::new(AtomicBool::new(false)));
    let disk = Arc::new(Copying { files: files.copy(), full: Arc::clone(&full) });
    let mut log = Log::create(disk.clone(), ID, options(), Position::default()).expect("an empty disk");
    save(&mut log, 1, 0).expect("saves");
    let there = |disk: &Copying| disk.files.files().contains(&"log/tip".to_string());
    assert!(there(&disk));
    full.store(true, Ordering::Relaxed);
    (2..5).for_each(|index| save(&mut log, index, index - 1).expect("the log itself has room"));
    assert!(!there(&disk) && log.usable());
    log.prove(4).expect("proves");
    assert!(!there(&disk));
    full.store(false, Ordering::Relaxed);
    save(&mut log, 5, 4).expect("saves");
    log.prove(5).expect("proves");
    assert!(there(&disk), "an idle moment makes it again");
    save(&mut log, 6, 5).expect("saves");
    drop(log);
    let reopened = Log::recover(disk, ID, options(), None, OnDoubt::Refuse).expect("opens").1;
    assert_eq!((reopened.last.index, reopened.tail), (6, Tail::Whole));
}
