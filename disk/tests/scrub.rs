//! Damage of files at rest is found where it is, and damaged records that are written again are
//! whole.

mod life;

use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use disk::scrub::{Finding, Scrub, Step, Stretch};
use disk::{Files, Log, LogOptions, PAGE, checkpoint, mend, records};
use life::{CONFIG, ID, Life, named};
use store::{Rev, SegmentUse, record};
use testkit::files::{KEPT, MemFiles};

/// Everything that a look finds. Small steps, so that each of them ends in the middle of something.
fn look(files: &MemFiles, mut scrub: Scrub) -> Vec<Finding> {
    let mut found = Vec::new();
    loop {
        let Step { done, found: more, .. } = scrub.step(files, ID, 700).expect("readable");
        found.extend(more.into_iter().filter(|finding| !matches!(finding, Finding::Beyond { .. })));
        if done {
            return found;
        }
    }
}

fn all(files: &MemFiles) -> Vec<Finding> {
    look(files, Scrub::all())
}

fn at_a_checkpoint() -> MemFiles {
    let mut life = Life::begin(ID);
    life.apply_until(14);
    life.checkpoint();
    life.apply_until(30);
    life.checkpoint();
    life.files
}

/// The whole records that lie in a stretch.
fn records_in(right: &MemFiles, stretch: &Stretch) -> Vec<Bytes> {
    let bytes = Bytes::from(right.bytes(&records::path(stretch.segment)));
    let (mut at, mut records) = (stretch.from as usize, Vec::new());
    while at < stretch.until as usize {
        let len = record::whole_len(&bytes[at..]).expect("a record");
        records.push(bytes.slice(at..at + len));
        at += len;
    }
    records
}

fn stretches(found: &[Finding]) -> Vec<Stretch> {
    let stretch =
        |finding: &Finding| if let Finding::Stretch(stretch) = finding { Some(stretch.clone()) } else { None };
    found.iter().filter_map(stretch).collect()
}

#[test]
fn a_whole_member_has_nothing_to_find() {
    let files = at_a_checkpoint();
    let found = all(&files);
    assert!(found.is_empty(), "{found:?}");
}

/// Whatever is done to the bytes of a segment is found, and its records written over it make it
/// whole.
#[test]
fn damage_of_any_byte_of_a_segment_is_found_and_mended() {
    let right = at_a_checkpoint();
    let mut damages = 0;
    let named = checkpoint::load_newest(&right, ID, CONFIG, 0).unwrap().unwrap().manifest.segments;
    for file in &named {
        let path = records::path(file.segment);
        let until = file.len as usize;
        for at in (0..disk::HEADER).step_by(9).chain((PAGE as usize..until).step_by(41)) {
            for kind in 0..4 {
                let files = right.copy();
                let end = (at + 300).min(until);
                files.edit(&path, |bytes| match kind {
                    0 => bytes[at] ^= 1 << (at % 8),
                    1 => bytes[at..end].fill(0),
                    2 => bytes[at..end].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31).wrapping_add(7)),
                    _ => bytes.truncate(at.max(PAGE as usize)),
                });
                if files.bytes(&path) == right.bytes(&path) {
                    continue;
                }
                let found = all(&files);
                assert!(!found.is_empty(), "{path} at {at}: {kind}");
                for stretch in stretches(&found) {
                    assert_eq!(stretch.segment, file.segment);
                    let parts = if stretch.from == 0 { Vec::new() } else { records_in(&right, &stretch) };
                    mend::write(&files, ID, stretch.segment, stretch.from.max(PAGE as u32), &parts).unwrap();
                }
                if records::sealed(&right, file.segment, file.len).unwrap() {
                    mend::seal_anew(&files, file.segment, file.len).unwrap();
                }
                let left = all(&files);
                assert!(left.is_empty(), "{path} at {at}: {kind}: {left:?}");
                let (now, then) = (files.bytes(&path), right.bytes(&path));
                assert_eq!(now[PAGE as usize..until], then[PAGE as usize..until], "{path} at {at}: {kind}");
                damages += 1;
            }
        }
    }
    assert!(damages > 300, "{damages}");
}

#[test]
fn a_missing_segment_is_one_stretch() {
    let right = at_a_checkpoint();
    let files = right.copy();
    files.remove(&records::path(1)).unwrap();
    let found = stretches(&all(&files));
    assert_eq!((found[0].from, found.len()), (PAGE as u32, 1));
    mend::write(&files, ID, 1, found[0].from, &records_in(&right, &found[0])).unwrap();
    mend::seal_anew(&files, 1, found[0].until).unwrap();
    assert!(all(&files).is_empty());
    assert_eq!(files.bytes(&records::path(1)), right.bytes(&records::path(1)));
}

/// With more of them than are told of at once, the last covers the rest: what lies between two
/// stretches may be whole records in a wrong place, and is not to be believed beside damage that
/// nobody was told of.
#[test]
fn so_many_stretches_end_with_one_over_the_rest() {
    let files = at_a_checkpoint();
    let fillers: Vec<Bytes> = (1..=800).map(|main| record::filler(Rev { main, sub: 0 }, 64)).collect();
    let end = PAGE as usize + 64 * fillers.len();
    files.edit(&records::path(1), |bytes| {
        bytes.truncate(PAGE as usize);
        bytes.extend(fillers.concat());
        (0..fillers.len()).step_by(2).for_each(|nth| bytes[PAGE as usize + 64 * nth + 60] ^= 1);
    });
    let used = SegmentUse { id: 1, first: 1, last: 800, end: end as u32, live: 0, sealed: false };
    let found = stretches(&look(&files, Scrub::segment(&used, false)));
    assert_eq!(found.len(), 256);
    let last = found.last().unwrap();
    assert_eq!((last.from as usize, last.until as usize), (PAGE as usize + 64 * 510, end));
    assert_eq!((last.after.main, last.before.main), (510, 801));
}

#[test]
fn damage_of_the_newest_checkpoint_and_of_closed_log_files_is_found() {
    let right = at_a_checkpoint();
    let newest = checkpoint::load_newest(&right, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let names = newest.index_files.iter().map(|file| format!("state/{}", file.name()));
    for path in names.chain([format!("state/manifest-{:016x}", newest.index)]) {
        for at in (0..right.bytes(&path).len()).step_by(11) {
            let files = right.copy();
            files.edit(&path, |bytes| bytes[at] ^= 0x10);
            // The rest of a header page says nothing.
            let silent = !path.contains("manifest") && (disk::HEADER..PAGE as usize).contains(&at);
            let found = all(&files);
            let named = found.iter().any(|finding| matches!(finding, Finding::Checkpoint(f) if f.file() == path));
            assert_eq!(named, !silent, "{path} at {at}: {found:?}");
        }
    }
}

/// A filler in the place of a record explains another checksum; afterwards the checkpoints name
/// that.
#[test]
fn fillers_are_named_anew_and_a_crash_on_the_way_is_repeated() {
    let mut life = Life::begin(ID);
    life.apply_until(14);
    life.checkpoint();
    life.apply_until(30);
    life.checkpoint();
    let (calls, files) = (life.files.calls(), life.files.clone());
    let newest = checkpoint::load_newest(&files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let file = newest.segments[0];
    let bytes = Bytes::from(files.bytes(&records::path(file.segment)));
    let len = record::whole_len(&bytes[PAGE as usize..]).unwrap();
    let (rev, _) = record::check(&bytes[PAGE as usize..PAGE as usize + len]).unwrap();
    mend::write(&files, ID, file.segment, PAGE as u32, &[record::filler(rev, len)]).unwrap();
    let found = all(&files);
    assert!(
        matches!(found[..], [Finding::Checksum { segment, mended: true, .. }] if segment == file.segment),
        "{found:?}"
    );
    let manifest = mend::name_anew(&files, ID, file.segment).unwrap().expect("there is one");
    assert_ne!(manifest, newest.encode());
    assert!(all(&files).is_empty());
    let mut seen = 0;
    records::scan(&files, &named(&files), 0, i64::MAX, |record, _| {
        assert_ne!(record.rev, rev, "a filler says nothing");
        seen += 1;
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert!(seen > 10);
    // A crash after each call: the state loads, and what was begun can be done again.
    for call in calls..=files.calls() {
        for kept in KEPT {
            let crashed = files.crash(call, kept);
            checkpoint::load_newest(&crashed, ID, CONFIG, 0).unwrap().expect("a checkpoint");
            mend::write(&crashed, ID, file.segment, PAGE as u32, &[record::filler(rev, len)]).unwrap();
            mend::name_anew(&crashed, ID, file.segment).unwrap();
            let found = all(&crashed);
            assert!(found.is_empty(), "{call} {kept:?}: {found:?}");
        }
    }
}

/// Damage of any byte that means something in a log file is found, in the open one before its last
/// batch: that may just be written.
#[test]
fn damage_of_log_files_is_found() {
    let right = MemFiles::new();
    let options = LogOptions { segment_bytes: 32 << 10, boot: None, salt: 0x5a17 };
    let mut log = Log::create(right.shared(), ID, options, Position { index: 1, term: 1 }).unwrap();
    for index in 2..60 {
        let data = Bytes::from(vec![index as u8; 40 * index as usize]);
        let entry = Entry { index, term: 1, kind: EntryKind::Normal, data };
        log.save(HardState { term: 1, vote: 1, commit: index - 1 }, &[entry]).unwrap();
    }
    drop(log);
    assert!(all(&right).is_empty());
    let names: Vec<String> = right.files().into_iter().filter(|path| path.ends_with(".log")).collect();
    assert!(names.len() > 3, "{names:?}");
    let (open, closed) = names.split_last().unwrap();
    let flip = |path: &str, at: usize| {
        let files = right.copy();
        files.edit(path, |bytes| bytes[at] ^= 4);
        all(&files).iter().any(|finding| matches!(finding, Finding::Log(fault) if fault.file() == path))
    };
    let (mut seen, mut silent) = (0, 0);
    let last = |path: &str| {
        let bytes = right.bytes(path);
        (0..bytes.len()).step_by(4096).rfind(|at| bytes[*at..].starts_with(b"kvlogbat")).expect("a batch")
    };
    for path in closed.iter().chain([open]) {
        let bytes = right.bytes(path);
        // What follows a batch up to its second header is zeros, and says nothing.
        let end = if path == open { last(path) } else { bytes.len() };
        for at in (0..end).step_by(37).filter(|at| bytes[*at] != 0 || at % 4096 < 188) {
            if flip(path, at) { seen += 1 } else { silent += 1 }
        }
    }
    // The second header of each batch is a spare of the first.
    assert!(seen > 1_000 && silent * 8 < seen, "{seen} {silent}");
    assert!(last(open) > 4096 && flip(open, 300));
    assert!(!flip(open, last(open) + 300));
}
