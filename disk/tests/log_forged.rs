//! What a client wrote lies in the log's files, also behind the end of the log when a file is used
//! again. None of it may be taken for a batch.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Fault, Identity, Log, LogContent, LogOptions, OnDoubt, Tail};
use testkit::files::MemFiles;

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };
const SEGMENT: u64 = 1 << 20;
const PAGE: usize = 4096;
/// What clients do not know.
const SALT: u64 = 0x5a17;
/// A format level and a salt.
type Guess = (u32, u64);
/// Bytes of a header and of the salt behind it.
const HEAD: usize = 168;

fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT, boot: Some([1; 16]), salt: SALT }
}

/// Bytes that anybody can compute: the ids of cluster and member stand in every answer. The salt
/// behind them is a guess.
fn forged((level, salt): Guess, segment: u64, offset: u64) -> Vec<u8> {
    let mut out = b"kvlogbat".to_vec();
    out.extend(level.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    let (term, index) = (1u64 << 40, 1u64 << 50);
    for value in [
        ID.cluster,
        ID.member,
        segment,
        offset,
        1 << 30,
        index,
        index,
        segment,
        offset,
        term,
        7,
        1,
        index,
        term,
        0,
        SEGMENT,
    ] {
        out.extend(u64::to_le_bytes(value));
    }
    for value in [0u32, 0, 0] {
        out.extend(value.to_le_bytes());
    }
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    if level > 1 {
        out.extend(salt.to_le_bytes());
    }
    out
}

/// A value that holds on each page what a batch there would hold, if the page were of `segment`.
fn value(guess: Guess, segment: u64, len: usize, first: usize) -> Bytes {
    let mut data = vec![b'v'; len];
    let mut at = PAGE - first;
    while at + PAGE <= len {
        let offset = (at + first) as u64;
        let header = forged(guess, segment, offset);
        data[at..at + header.len()].copy_from_slice(&header);
        data[at + PAGE - header.len()..at + PAGE].copy_from_slice(&header);
        at += PAGE;
    }
    Bytes::from(data)
}

fn entry(index: u64, data: Bytes) -> Entry {
    Entry { index, term: 1, kind: EntryKind::Normal, data }
}

fn hard(commit: u64) -> HardState {
    HardState { term: 1, vote: 0xa1, commit }
}

/// Segments with one large value each. The file of segment m is used again for m + 2, as anybody can
/// tell who knows the program: the last one begins in such a file, with a small entry.
fn used_again(guess: Guess) -> MemFiles {
    let files = MemFiles::new();
    let mut log = Log::create(files.shared(), ID, options(), Position::default()).expect("an empty disk");
    let mut save = |index: u64, data: Bytes| {
        log.save(hard(index - 1), &[entry(index, data)]).expect("saves");
        log.cut_below(index).expect("cuts");
    };
    for index in 1..=4 {
        save(index, value(guess, index + 2, 700_000, HEAD + 28));
    }
    save(5, Bytes::from(vec![b'f'; 340_000]));
    save(6, Bytes::from_static(b"small"));
    save(7, Bytes::from_static(b"small"));
    log.close(7).expect("a clean stop");
    files
}

fn recover(files: &MemFiles, doubt: OnDoubt) -> Result<(Log, LogContent), Fault> {
    Log::recover(files.shared(), ID, options(), None, doubt)
}

#[test]
fn what_clients_wrote_is_no_proof_of_a_batch() {
    // A later level too: a member must not say that a later program wrote its log.
    for guess in [(1, 0), (2, 0), (9, 0)] {
        let files = used_again(guess);
        for doubt in [OnDoubt::Peers, OnDoubt::Refuse, OnDoubt::Keep] {
            let (log, content) = recover(&files.copy(), doubt).unwrap_or_else(|fault| panic!("{doubt:?}: {fault}"));
            assert_eq!((content.tail, content.doubt, log.last().index), (Tail::Whole, None, 7), "{doubt:?}");
            assert_eq!(log.hard().term, 1, "{doubt:?}");
        }
    }
    let found = recover(&used_again((2, SALT)), OnDoubt::Refuse);
    assert!(matches!(found, Err(Fault::Damaged { .. })), "with the salt it is a batch: {found:?}");
}

/// A bit of the last batch flips after a power loss. It was acknowledged, and a lone member must not
/// cut it without a word: not even if a client wrote what an earlier life of the file could hold.
#[test]
fn what_clients_wrote_is_no_proof_of_a_tear() {
    for crafted in [None, Some((1, 0)), Some((2, 0)), Some((2, SALT))] {
        let files = MemFiles::new();
        let mut log = Log::create(files.shared(), ID, options(), Position::default()).expect("an empty disk");
        log.save(hard(0), &[entry(1, Bytes::from_static(b"small"))]).expect("saves");
        // The batch begins behind two pages; its third page is that of byte 16384.
        let mut data = vec![b'v'; 20_000];
        if let Some(guess) = crafted {
            let (at, header) = (2 * PAGE - HEAD - 28, forged(guess, 0, 4 * PAGE as u64));
            data[at..at + header.len()].copy_from_slice(&header);
        }
        log.save(hard(1), &[entry(2, Bytes::from(data))]).expect("saves, and is acknowledged");
        drop(log);
        let path = files.files().into_iter().rfind(|path| path.ends_with(".log")).expect("a log file");
        disk::Files::remove(&files, "log/tip").expect("not flushed, gone with the power");
        files.edit(&path, |bytes| {
            let at = bytes.windows(8).rposition(|window| window == b"vvvvvvvv").expect("the value");
            bytes[at] ^= 1;
        });
        let options = LogOptions { boot: Some([2; 16]), ..options() };
        let found = Log::recover(files.shared(), ID, options, None, OnDoubt::Refuse);
        let told = found.as_ref().map(|(log, content)| (log.last().index, content.tail.clone()));
        let doubtful = matches!(found, Err(Fault::Doubtful { .. }));
        assert_eq!(doubtful, crafted != Some((2, SALT)), "crafted {crafted:?}: {told:?}");
    }
}
