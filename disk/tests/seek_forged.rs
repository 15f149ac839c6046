//! Where the records of a segment end says the state, or a checkpoint. What a client wrote at the
//! end of a file is no seek table, whatever it looks like.

mod life;

use bytes::Bytes;
use disk::{PAGE, checkpoint, records};
use life::{CONFIG, ID, Life};
use store::record::{self, KeyValueRef};
use store::{Rev, SegmentUse};
use testkit::files::MemFiles;

/// The bytes of a table with `rows` that says: the records end at `end`.
fn table(rows: &[(i64, u32)], end: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for (main, offset) in rows {
        out.extend(main.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    out.extend(b"kvseekta");
    out.extend((rows.len() as u32).to_le_bytes());
    out.extend(end.to_le_bytes());
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    out
}

fn encoded(main: i64, value: &[u8]) -> Bytes {
    let kv = KeyValueRef { key: b"k", create: 2, modified: main, version: main - 1, value, lease: 0 };
    record::encode(Rev { main, sub: 0 }, false, &kv)
}

/// One segment: a record, and one whose value ends with a table, which says that the records end
/// where it begins.
fn forged() -> (MemFiles, SegmentUse) {
    let (first, files) = (encoded(2, b"first"), MemFiles::new());
    let value = |end: u32| [vec![b'v'; 80], table(&[], end)].concat();
    let end = PAGE as u32 + (first.len() + encoded(3, &value(0)).len()) as u32 - 20;
    let end = records::write(&files, ID, 1, PAGE as u32, &[first, encoded(3, &value(end))]).unwrap();
    (files, SegmentUse { id: 1, first: 2, last: 3, end, live: 0, sealed: false })
}

#[test]
fn a_value_is_no_seek_table() {
    let (files, open) = forged();
    for sealed in [false, true] {
        let known = [SegmentUse { sealed, ..open }];
        let (found, _) = records::history(&files, &known, 0, i64::MAX, u64::MAX).expect("both are whole");
        assert_eq!(found.len(), 2);
        assert!(!records::sealed(&files, 1, open.end).unwrap());
    }
    // A table of its own is found behind the records.
    records::seal(&files, 1, open.end).unwrap();
    assert!(records::sealed(&files, 1, open.end).unwrap());
    let known = [SegmentUse { sealed: true, ..open }];
    let (found, _) = records::history(&files, &known, 3, i64::MAX, u64::MAX).unwrap();
    assert_eq!(found.len(), 1);
}

/// What was written behind the newest checkpoint is cut at a start, also if it ends as a table does
/// that begins where the checkpoint ends.
#[test]
fn what_is_behind_a_checkpoint_is_cut_whatever_it_looks_like() {
    let mut life = Life::begin(ID);
    life.apply_until(4);
    life.checkpoint();
    let newest = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let open = *newest.segments.last().unwrap();
    let path = records::path(open.segment);
    life.files.edit(&path, |bytes| bytes.extend(table(&[(2, PAGE as u32)], open.len)));
    checkpoint::settle(&life.files, ID, &newest).unwrap();
    assert_eq!(life.files.bytes(&path).len(), open.len as usize);
}

#[test]
fn a_segment_that_is_too_short_is_not_read_as_if_it_ended_there() {
    let (files, open) = forged();
    files.edit(&records::path(1), |bytes| bytes.truncate(PAGE as usize + encoded(2, b"first").len()));
    let fault = records::history(&files, &[open], 0, i64::MAX, u64::MAX).expect_err("a record is missing");
    assert!(fault.is_damage(), "{fault}");
}
