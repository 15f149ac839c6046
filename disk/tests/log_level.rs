//! A log of format level 1, which had no salt, byte by byte as it was written: it is read, and goes
//! on with a salt in a file of its own.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Files, How, Identity, Log, LogContent, LogOptions, OnDoubt, Tail};
use testkit::files::{KEPT, MemFiles};

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const SEGMENT: u64 = 64 << 10;

fn options(salt: u64) -> LogOptions {
    LogOptions { segment_bytes: SEGMENT, boot: None, salt }
}

fn entry(index: u64) -> Entry {
    Entry { index, term: 1, kind: EntryKind::Normal, data: Bytes::from(vec![b'e'; 3_000]) }
}

/// The file `number` of a log in which each batch has one entry, but for the first one of all.
struct Writer {
    bytes: Vec<u8>,
    number: u64,
    digest: u32,
    range: (u64, u64),
    last: u64,
}

impl Writer {
    fn batch(&mut self, entries: &[Entry]) {
        let at = self.bytes.len() as u64;
        let mut table = Vec::new();
        for entry in entries {
            table.extend(entry.index.to_le_bytes());
            table.extend(entry.term.to_le_bytes());
            table.extend((entry.data.len() as u32).to_le_bytes());
            table.extend(crc32c::crc32c(&entry.data).to_le_bytes());
            table.extend(0u32.to_le_bytes());
        }
        let body: Vec<u8> = entries.iter().flat_map(|entry| entry.data.to_vec()).collect();
        self.number += 1;
        let mut header = b"kvlogbat".to_vec();
        header.extend(1u32.to_le_bytes());
        header.extend(0u32.to_le_bytes());
        let (number, (first, upto), last) = (self.number, self.range, self.last);
        // In the first file alone: a batch proves what stands before it.
        let proven = if number == 1 { [0, 0] } else { [1, at] };
        let vote = if entries.is_empty() { 0 } else { ID.member };
        let hard = [u64::from(number > 1), vote, last];
        for value in [ID.cluster, ID.member, 1, at, number, first, upto].into_iter().chain(proven).chain(hard).chain([
            last,
            u64::from(last > 0),
            body.len() as u64,
            SEGMENT,
        ]) {
            header.extend(value.to_le_bytes());
        }
        header.extend(self.digest.to_le_bytes());
        header.extend((entries.len() as u32).to_le_bytes());
        header.extend(crc32c::crc32c(&table).to_le_bytes());
        self.digest = crc32c::crc32c(&header);
        header.extend(self.digest.to_le_bytes());
        assert_eq!(header.len(), 160);
        let batch = [&header[..], &table, &body].concat();
        let size = (batch.len() + header.len()).next_multiple_of(4096);
        self.bytes.extend(&batch);
        self.bytes.resize(at as usize + size - header.len(), 0);
        self.bytes.extend(&header);
        self.last += entries.len() as u64;
        self.range = (last + 1, self.last);
    }
}

fn of_level_1() -> MemFiles {
    let mut log = Writer { bytes: Vec::new(), number: 0, digest: 0, range: (0, 0), last: 0 };
    log.batch(&[]);
    for index in 1..=5 {
        log.batch(&[entry(index)]);
    }
    log.bytes.resize(SEGMENT as usize, 0);
    let files = MemFiles::new();
    files.make_dir("log").expect("a folder");
    let spare = [b"what a client wrote".repeat(3_000), vec![0; SEGMENT as usize]].concat();
    for (path, bytes) in [("log/0000000000000001.log", &log.bytes[..]), ("log/spare-0000000000000000", &spare)] {
        let file = files.open(path, How::Create).expect("a new file");
        file.write_at(0, &[&bytes[..SEGMENT as usize]]).and_then(|()| file.sync()).expect("written");
    }
    files.sync_dir("log").and_then(|()| files.sync_dir("")).expect("flushed");
    files
}

fn open(files: &MemFiles, salt: u64) -> (Log, LogContent) {
    Log::recover(files.shared(), ID, options(salt), None, OnDoubt::Refuse).expect("a whole log")
}

/// Level, and what stands where the salt does, of the first batch in a file.
fn told(files: &MemFiles, path: &str) -> (u8, u64) {
    let bytes = files.bytes(path);
    (bytes[8], u64::from_le_bytes(bytes[160..168].try_into().expect("eight bytes")))
}

#[test]
fn it_is_read_and_goes_on_with_a_salt() {
    let files = of_level_1();
    let (mut log, content) = open(&files, 0x5a17);
    assert_eq!((content.last.index, content.tail), (5, Tail::Whole));
    assert!(!files.files().iter().any(|path| path.contains("spare")), "{:?}", files.files());
    assert_eq!(told(&files, "log/0000000000000001.log").0, 1);
    assert_eq!(told(&files, "log/0000000000000002.log"), (2, 0x5a17));
    log.save(HardState { term: 1, vote: ID.member, commit: 5 }, &[entry(6)]).expect("saves");
    drop(log);
    // The salt is drawn once.
    let (log, content) = open(&files, 0xbad);
    assert_eq!(content.last.index, 6);
    assert_eq!(log.read(1, u64::MAX).expect("all of it").len(), 6);
    assert_eq!(files.files().iter().filter(|path| path.ends_with(".log")).count(), 2);
}

#[test]
fn a_crash_at_any_call_of_the_first_start_loses_nothing() {
    let files = of_level_1();
    let before = files.calls();
    drop(open(&files, 0x5a17));
    for calls in before..=files.calls() {
        for kept in KEPT {
            let left = files.crash(calls, kept);
            let (log, content) = open(&left, 0xfeed);
            let text = format!("{calls} calls, {kept:?}");
            assert_eq!((content.last.index, content.tail), (5, Tail::Whole), "{text}");
            assert_eq!(log.read(1, u64::MAX).expect("all of it").len(), 5, "{text}");
            drop(log);
            assert_eq!(open(&left, 0xbad).1.last, Position { index: 5, term: 1 }, "{text}");
        }
    }
}

/// The marks know the salt where the first page of the only file does not tell it.
#[test]
fn a_first_page_that_is_wrong_is_healed_with_the_salt_of_the_marks() {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(0x5a17), Position::default()).expect("an empty disk");
    log.save(HardState { term: 1, vote: ID.member, commit: 0 }, &[entry(1)]).expect("saves");
    log.close(1).expect("stops");
    drop(log);
    let path = files.files().into_iter().find(|path| path.ends_with(".log")).expect("a log file");
    files.edit(&path, |bytes| bytes[100] ^= 1);
    let (_, content) = open(&files, 0xbad);
    assert_eq!((content.healed.len(), content.last.index), (1, 1), "{:?}", content.healed);
    assert_eq!(told(&files, &path), (2, 0x5a17));
}
