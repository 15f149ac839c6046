//! A page that the disk cannot read, anywhere in a directory: nothing acknowledged goes without a
//! word, and only that page is damaged.

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::{Fault, Files, How, Identity, Log, LogContent, LogOptions, OnDoubt, Patient, Tail};
use std::sync::Arc;
use testkit::files::MemFiles;

const ID: Identity = Identity { cluster: 0xc1, member: 1 };
const START: Position = Position { index: 3, term: 1 };
const LAST: u64 = 32;

/// Page sized batches and larger ones, in a few files. `boot`: the machine's.
fn written(boot: Option<[u8; 16]>) -> (MemFiles, LogOptions) {
    let files = MemFiles::new();
    let options = LogOptions { segment_bytes: 32 << 10, boot, salt: 0x5a17 };
    let mut log = Log::create(files.shared(), ID, options, START).unwrap();
    for index in 4..=LAST {
        let size = if index % 5 == 0 { 9_000 } else { 100 };
        let data = Bytes::from(vec![index as u8; size]);
        let entry = Entry { index, term: 2, kind: EntryKind::Normal, data };
        log.save(HardState { term: 2, vote: 1, commit: index - 1 }, &[entry]).unwrap();
    }
    (files, options)
}

fn open(files: &MemFiles, options: LogOptions, doubt: OnDoubt) -> Result<(Log, LogContent), Fault> {
    let served = files.shared();
    let (mut log, content) = Log::recover(Patient::before(&served), ID, options, Some(START), doubt)?;
    log.serve(served)?;
    Ok((log, content))
}

fn logs(files: &MemFiles) -> Vec<String> {
    files.files().into_iter().filter(|path| path.ends_with(".log")).collect()
}

#[test]
fn a_page_of_the_log_that_cannot_be_read_loses_nothing_in_silence() {
    let boots = [(None, None), (Some([1; 16]), Some([1; 16])), (Some([1; 16]), Some([2; 16]))];
    let (mut whole, mut told) = (0, 0);
    // The tip is not flushed: a power loss may take it.
    for ((before, now), tip) in boots.into_iter().flat_map(|boots| [(boots, true), (boots, false)]) {
        let (lived, _) = written(before);
        if !tip {
            lived.edit("log/tip", Vec::clear);
        }
        let options = LogOptions { segment_bytes: 32 << 10, boot: now, salt: 0x5a17 };
        for path in logs(&lived) {
            for page in 0..lived.bytes(&path).len() / 4096 {
                let files = lived.copy();
                files.spoil_page(&path, page);
                let (mut log, content) = open(&files, options, OnDoubt::Peers).unwrap();
                if content.last.index == LAST {
                    whole += 1;
                } else {
                    told += 1;
                    assert!(content.tail != Tail::Whole, "page {page} of {path}, {now:?}: ends at {:?}", content.last);
                    let doubt = content.doubt.expect("remembered");
                    let promise = doubt.promise.filter(|_| !doubt.at_least);
                    assert!(promise.is_none_or(|at| at.index >= LAST), "page {page} of {path}: {doubt:?}");
                }
                // It goes on from there, and the next start finds what it wrote.
                let (next, hard) =
                    (content.last.index + 1, HardState { term: 3, vote: 1, commit: content.hard.commit });
                let data = Bytes::from_static(b"afterwards");
                log.save(hard, &[Entry { index: next, term: 3, kind: EntryKind::Normal, data }]).unwrap();
                drop(log);
                let (log, _) = open(&files, options, OnDoubt::Peers).unwrap();
                assert_eq!(log.last(), Position { index: next, term: 3 }, "page {page} of {path}");

                // A lone member has nobody to ask: it has all of it, or refuses and changes
                // nothing.
                let files = lived.copy();
                files.spoil_page(&path, page);
                let before = files.contents();
                match open(&files, options, OnDoubt::Refuse) {
                    Ok((log, _)) => assert_eq!(log.last().index, LAST, "page {page} of {path}"),
                    Err(fault) => {
                        assert!(fault.to_string().contains("cannot read"), "{fault}");
                        assert_eq!((fault.file(), fault.offset()), (&path[..], Some(page as u64 * 4096)), "{fault}");
                        assert!(files.contents() == before);
                    }
                }
            }
        }
    }
    assert!(whole > 10 && told > 50, "{whole} {told}");
}

#[test]
fn a_disk_that_reads_nothing_is_not_damaged() {
    let (files, options) = written(None);
    for path in files.files() {
        (0..=files.bytes(&path).len() / 4096).for_each(|page| files.spoil_page(&path, page));
    }
    let before = files.contents();
    let fault = open(&files, options, OnDoubt::Peers).unwrap_err();
    assert!(matches!(fault, Fault::Io { .. }), "{fault}");
    assert!(files.contents() == before);
}

#[test]
fn a_read_is_tried_again_and_a_page_is_named() {
    let (lived, _) = written(None);
    let path = logs(&lived)[0].clone();
    let right = lived.bytes(&path);
    let files: Arc<dyn Files> = Patient::before(&lived.shared());
    let file = files.open(&path, How::Read).unwrap();
    let mut bytes = vec![0; right.len()];
    lived.fail_reads(4);
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), right.len());
    assert!(bytes == right);
    lived.fail_reads(5);
    let refused = file.read_at(0, &mut bytes).unwrap_err();
    assert!(matches!(Fault::io(&path, 0, refused), Fault::Io { .. }), "no medium said so");
    lived.spoil_page(&path, 2);
    let refused = file.read_at(100, &mut bytes).unwrap_err();
    let fault = Fault::io(&path, 100, refused);
    assert!(fault.is_damage() && fault.offset() == Some(2 * 4096), "{fault}");
    assert_eq!(file.read_at(0, &mut bytes[..8192]).unwrap(), 8192, "the pages beside it");
}
