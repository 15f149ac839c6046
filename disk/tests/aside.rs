//! What lies in `aside/` is the last copy, as long as it is needed, and no longer.

use bytes::Bytes;
use consensus::{Doubt, Entry, EntryKind, HardState, Position};
use disk::{Files, How, Identity, Log, LogContent, LogOptions, OnDoubt, doubt};
use std::collections::BTreeSet;
use testkit::files::{Kept, MemFiles};

const ID: Identity = Identity { cluster: 0xc1, member: 0xa1 };

fn open(files: &MemFiles) -> (Log, LogContent) {
    let options = LogOptions { segment_bytes: 24 << 10, boot: None, salt: 0x5a17 };
    Log::recover(files.shared(), ID, options, Some(Position { index: 0, term: 0 }), OnDoubt::Peers).expect("opens")
}

fn aside(files: &MemFiles) -> Vec<String> {
    files.files().into_iter().filter(|path| path.starts_with("aside/")).collect()
}

fn written() -> MemFiles {
    let files = MemFiles::new();
    let options = LogOptions { segment_bytes: 24 << 10, boot: None, salt: 0x5a17 };
    let mut log = Log::create(files.shared(), ID, options, Position::default()).expect("an empty disk");
    for index in 1..=20 {
        let entry = Entry { index, term: 1, kind: EntryKind::Normal, data: Bytes::from(vec![index as u8; 3000]) };
        log.save(HardState { term: 1, vote: 0xa2, commit: index - 1 }, &[entry]).expect("saves");
    }
    log.close(20).expect("stops");
    files
}

/// The doubt is over; a crash on the way. Whoever starts then removes what is left.
#[test]
fn nothing_stays_aside_when_the_doubt_is_over() {
    let files = written();
    files.edit("log/0000000000000002.log", |bytes| bytes[5000] ^= 1);
    let recording = MemFiles::new();
    for dir in ["log", "aside"] {
        recording.make_dir(dir).expect("makes");
    }
    for (path, bytes) in files.contents() {
        let file = Files::open(&recording, &path, How::Create).expect("makes");
        file.write_at(0, &[&bytes]).and_then(|()| file.sync()).expect("writes");
    }
    Files::sync_dir(&recording, "log").expect("flushes");
    let (mut log, content) = open(&recording);
    let promise = content.doubt.expect("it lost something").promise.expect("known");
    assert!(!aside(&recording).is_empty());
    let before = recording.calls();
    log.keep_doubt(None, log.hard()).expect("it has it again");
    let mut left = BTreeSet::new();
    for calls in before..=recording.calls() {
        for kept in [Kept::Nothing, Kept::Everything] {
            let crashed = recording.crash(calls, kept);
            let (mut log, content) = open(&crashed);
            if content.doubt.is_some() {
                // It ends again, and with it what lies aside.
                log.keep_doubt(None, log.hard()).expect("again");
            }
            if !aside(&crashed).is_empty() {
                left.insert((calls - before, format!("{kept:?}"), aside(&crashed)));
            }
        }
    }
    assert!(left.is_empty(), "promise {promise:?}: no doubt is left, and nobody will ever remove {left:#?}");
}

/// The disk spoils the log twice while the member waits for the others.
#[test]
fn the_last_copy_is_not_replaced() {
    let files = written();
    let first = files.bytes("log/0000000000000001.log");
    // Nothing of the log joins the state any more: all of it goes aside.
    files.edit("log/0000000000000001.log", |bytes| bytes[100] ^= 1);
    files.edit("log/0000000000000001.log", |bytes| bytes[4000] ^= 1);
    let (mut log, content) = open(&files);
    assert_eq!(content.doubt.as_ref().map(|doubt| doubt.promise), Some(Some(Position { index: 20, term: 1 })));
    let copy = files.bytes("aside/log-0000000000000001.log");
    assert_eq!(copy[8192..], first[8192..], "the entries that nobody else may have");
    // It waits: its terms go on.
    log.save(HardState { term: 2, vote: 0, commit: 0 }, &[]).expect("saves");
    drop(log);
    files.edit("log/0000000000000001.log", |bytes| bytes[100] ^= 1);
    files.edit("log/0000000000000001.log", |bytes| bytes[4000] ^= 1);
    let (_, content) = open(&files);
    let promise = content.doubt.and_then(|doubt| doubt.promise);
    println!("promise {promise:?}, doubt on disk {:?}", doubt::find(&files, ID).expect("reads").map(|d| d.promise));
    let _ = Doubt { promise, vote: false, sure: true, torn: false };
    let now = files.bytes("aside/log-0000000000000001.log");
    assert!(now[8192..] == first[8192..], "the only copy of acknowledged entries was written over");
}
