//! Segments that are rewritten: whatever is asked of the state, it says the same before and after;
//! crashes at every call, damage, a full disk.

mod life;

use bytes::Bytes;
use disk::fetch::{Fetched, Wanted, fetch};
use disk::{Files, checkpoint, records, transfer};
use life::{ID, Life, OTHER};
use std::ops::ControlFlow;
use store::hash::HashKv;
use store::record::Record;
use store::{Located, Rev};
use testkit::files::{Kept, MemFiles};

/// Entries that compact, and how far below the newest revision.
const COMPACTS: [(u64, i64); 5] = [(16, 2), (24, 4), (39, 0), (56, 9), (66, 1)];
const LAST: u64 = 76;

/// One entry in three puts a key of its own; the others put a few keys over and over.
fn key(number: u64) -> Vec<u8> {
    if number.is_multiple_of(3) { format!("cold-{number}").into_bytes() } else { life::key(number) }
}

/// Entry `index`: the same on every replay.
fn apply(life: &mut Life, index: u64) {
    match COMPACTS.iter().find(|(at, _)| *at == index) {
        Some((_, below)) => life.compact(life.store.revision() - below),
        None => life.put(index, &key(index)),
    }
}

fn apply_until(life: &mut Life, index: u64) {
    for next in life.store.applied().index + 1..=index {
        apply(life, next);
    }
}

/// The state after entry `index`, never swept and never rewritten.
fn untouched(index: u64) -> Life {
    let mut life = Life::begin(ID);
    apply_until(&mut life, index);
    life.write();
    life
}

fn read(files: &MemFiles, at: &Located) -> Bytes {
    if let Some(bytes) = &at.bytes {
        return bytes.clone();
    }
    records::read(files, at.handle).unwrap()
}

fn all_records(life: &Life) -> Vec<Record> {
    let mut all = Vec::new();
    let keep = |record, _| {
        all.push(record);
        ControlFlow::Continue(())
    };
    records::scan(&life.files, &life.store.segments_in_files(), 0, i64::MAX, keep).unwrap();
    all
}

fn hash(life: &Life, revision: i64) -> u32 {
    let mut set = life.store.keep_set(revision);
    let keep = loop {
        if let Some(keep) = life.store.gather(&mut set, 3) {
            break keep;
        }
    };
    let mut hash = HashKv::new(revision, life.store.compacted(), keep);
    all_records(life).iter().for_each(|record| hash.feed(record.rev, record.tombstone, &record.body));
    hash.finish()
}

/// Everything that a reader, a watch, a hash or a backup may ask, of two members with one state.
fn same(life: &Life, other: &Life, what: &str) {
    let (store, right) = (&life.store, &other.store);
    assert_eq!(store.applied(), right.applied(), "{what}");
    assert_eq!((store.revision(), store.compacted()), (right.revision(), right.compacted()), "{what}");
    assert_eq!(store.digest(), right.digest(), "{what}");
    let compacted = store.compacted();
    for revision in compacted.max(1)..=store.revision() {
        for number in 0..LAST {
            let [mine, theirs] = [life, other].map(|life| {
                let item = life.store.get_at(&key(number), revision);
                item.map(|item| read(&life.files, &item.at))
            });
            assert_eq!(mine, theirs, "{what}: key {number} at {revision}");
        }
    }
    let [mine, theirs] = [life, other].map(|life| {
        let known = life.store.segments_in_files();
        records::history(&life.files, &known, compacted + 1, store.revision() + 1, u64::MAX).unwrap()
    });
    assert_eq!(mine, theirs, "{what}: history");
    assert_eq!(hash(life, store.revision()), hash(other, store.revision()), "{what}: hash");
    let [mine, theirs] = [life, other].map(|life| {
        let mut export = life.store.export();
        while !life.store.gather_export(&mut export, 2) {}
        let mut rows = export.rows();
        let kept: Vec<Rev> = all_records(life).iter().map(|record| record.rev).filter(|rev| rows.has(*rev)).collect();
        assert_eq!(rows.missing(), 0, "{what}: backup");
        kept
    });
    assert_eq!(mine, theirs, "{what}: backup");
}

/// Compactions, rewrites and checkpoints in between. Marks: calls after each checkpoint, its index,
/// and how far the log may have been cut. The other number: runs that were rewritten.
fn rewritten_life() -> (Life, Vec<(usize, u64, u64)>, usize) {
    let mut life = Life::begin(ID);
    let (mut marks, mut runs) = (vec![(life.files.calls(), 1, 1)], 0);
    for index in [18, 26, 41, 43, 58, 68, 70] {
        apply_until(&mut life, index - 1);
        while life.rewrite().unwrap().is_some() {
            runs += 1;
        }
        apply_until(&mut life, index);
        let cut = life.checkpoint().cut;
        marks.push((life.files.calls(), index, cut - 1));
    }
    (life, marks, runs)
}

#[test]
fn a_crash_after_any_call_of_a_rewrite_loses_nothing() {
    let (life, marks, runs) = rewritten_life();
    assert!(runs >= 3, "{runs} runs");
    same(&life, &untouched(70), "at the end");
    let twins: Vec<Life> = marks.iter().map(|mark| untouched(mark.1)).collect();
    let end = untouched(LAST);
    for calls in marks[0].0..=life.files.calls() {
        let done = marks.iter().rposition(|mark| mark.0 <= calls).unwrap();
        for kept in [Kept::Nothing, Kept::Everything, Kept::Some(calls as u64)] {
            let here = format!("call {calls}, {kept:?}");
            let crashed = life.files.crash(calls, kept);
            let (mut opened, passed_over) =
                Life::open(crashed.clone(), ID, marks[done].2).unwrap_or_else(|fault| panic!("{here}: {fault}"));
            assert!(passed_over.is_none(), "{here}: {passed_over:?}");
            let index = opened.store.applied().index;
            let found = marks.iter().position(|mark| mark.1 == index).unwrap();
            assert!(found == done || found == done + 1, "{here}: checkpoint {index}");
            same(&opened, &twins[found], &here);
            assert!(crashed.files().iter().all(|path| !path.ends_with(".part")), "{here}: nothing is half made");
            if !(calls + 1).is_multiple_of(3) {
                continue;
            }
            // Replay, rewrite, go on, start again.
            apply_until(&mut opened, LAST - 1);
            while opened.rewrite().unwrap().is_some() {}
            apply_until(&mut opened, LAST);
            opened.checkpoint();
            same(&opened, &end, &here);
            let (again, _) = Life::open(crashed, ID, 0).unwrap();
            same(&again, &end, &here);
        }
    }
}

/// Items of every key at every readable revision.
fn items(life: &Life) -> Vec<store::Item> {
    let revisions = life.store.compacted().max(1)..=life.store.revision();
    let at = |revision| (0..LAST).filter_map(move |number| life.store.get_at(&key(number), revision));
    revisions.flat_map(at).collect()
}

#[test]
fn old_files_go_with_the_last_checkpoint_that_names_them_and_old_handles_find_what_was_moved() {
    let mut life = Life::begin(ID);
    apply_until(&mut life, 40);
    life.checkpoint();
    // Nothing is swept yet: some of these are dead soon.
    let early: Vec<(Located, Bytes)> = (2..=39)
        .flat_map(|revision| (0..LAST).map(move |number| (revision, number)))
        .filter_map(|(revision, number)| life.store.get_at(&key(number), revision))
        .map(|item| (item.at.clone(), read(&life.files, &item.at)))
        .collect();
    let needed: Vec<(Located, Bytes)> =
        items(&life).into_iter().map(|item| (item.at.clone(), read(&life.files, &item.at))).collect();
    let mut gone: Vec<u32> = Vec::new();
    while let Some(run) = life.rewrite().unwrap() {
        gone.extend(run.segments.iter().map(|(id, _)| *id));
    }
    assert!(!gone.is_empty());
    let there = |life: &Life| gone.iter().filter(|id| life.files.files().contains(&records::path(**id))).count();
    for index in [41, 42] {
        assert!(there(&life) > 0, "a checkpoint names them still");
        apply_until(&mut life, index);
        life.checkpoint();
    }
    assert_eq!(there(&life), 0);
    let mut found = Fetched::default();
    let mut look = |at: &[(Located, Bytes)], superseded| {
        found.begin(at.len());
        let wanted =
            at.iter().enumerate().map(|(place, (at, _))| Wanted { place, handle: at.handle, rev: at.rev, superseded });
        assert_eq!(fetch(&life.files, wanted.collect(), &mut found).unwrap(), []);
        at.iter().enumerate().map(|(place, _)| found.find(place).map(Bytes::copy_from_slice)).collect::<Vec<_>>()
    };
    let expected: Vec<_> = needed.iter().map(|(_, bytes)| Some(bytes.clone())).collect();
    assert_eq!(look(&needed, None), expected);
    // What compaction took is gone, and nothing else is in its place.
    let mut missing = 0;
    for (found, (_, bytes)) in look(&early, Some(3)).into_iter().zip(&early) {
        assert!(found.as_ref().is_none_or(|found| found == bytes));
        missing += usize::from(found.is_none());
    }
    assert!(missing > 0 && missing < early.len(), "{missing}");
}

#[test]
fn a_damaged_record_ends_the_rewrite_and_is_not_copied() {
    let mut life = Life::begin(ID);
    apply_until(&mut life, 40);
    life.checkpoint();
    let dry = Life::open(life.files.copy(), ID, 0).unwrap().0.rewrite().unwrap().expect("a run");
    let mut met = 0;
    for (segment, end) in &dry.segments {
        for at in (4096..*end).step_by(97) {
            let files = life.files.copy();
            let (mut damaged, _) = Life::open(files.clone(), ID, 0).unwrap();
            files.edit(&records::path(*segment), |bytes| bytes[at as usize] ^= 0x10);
            let fault = damaged.rewrite().unwrap_err();
            assert!(fault.is_damage() && fault.file() == records::path(*segment), "{segment} {at}: {fault}");
            assert!(!files.files().contains(&records::path(dry.output)));
            disk::reclaim::give_up(&files, dry.output).unwrap();
            assert!(files.files().iter().all(|path| !path.ends_with(".part")));
            met += 1;
        }
    }
    assert!(met > 20, "{met}");
}

#[test]
fn a_scan_in_parts_goes_on_over_a_rewrite() {
    for piece in [1, 700, 2500] {
        for at in 0..30 {
            let mut life = Life::begin(ID);
            apply_until(&mut life, 40);
            life.checkpoint();
            let (mut place, mut seen) = (records::Place::default(), Vec::new());
            for step in 0.. {
                if step == at {
                    while life.rewrite().unwrap().is_some() {}
                    for index in [41, 42] {
                        apply_until(&mut life, index);
                        life.checkpoint();
                    }
                }
                let known = life.store.segments_in_files();
                let push = |record: &Record| seen.push(record.rev);
                if records::scan_on(&life.files, &known, &mut place, 40, piece, push).unwrap() {
                    break;
                }
            }
            assert!(seen.is_sorted_by(|a, b| a < b), "{piece} {at}");
            let needed = items(&life).into_iter().map(|item| item.at.rev).filter(|rev| rev.main < 40);
            let missing: Vec<Rev> = needed.filter(|rev| !seen.contains(rev)).collect();
            assert_eq!(missing, [], "{piece} {at}");
        }
    }
}

#[test]
fn a_member_that_installs_what_was_rewritten_says_the_same() {
    let mut sender = Life::begin(OTHER);
    apply_until(&mut sender, 58);
    while sender.rewrite().unwrap().is_some() {}
    apply_until(&mut sender, 60);
    let manifest = sender.checkpoint().manifest;
    let files = MemFiles::new();
    life::receive(&sender, &manifest, &files, |_, _, _| {});
    let installed = transfer::install(&files, ID, life::CONFIG).unwrap();
    transfer::followed(&files, ID).unwrap();
    let mut installed = Life { files, id: ID, store: installed.store };
    same(&installed, &untouched(60), "installed");
    // And goes on as any other.
    apply_until(&mut installed, LAST - 1);
    while installed.rewrite().unwrap().is_some() {}
    apply_until(&mut installed, LAST);
    installed.checkpoint();
    same(&Life::open(installed.files, ID, 0).unwrap().0, &untouched(LAST), "started again");
}

#[test]
fn a_full_disk_ends_the_rewrite_and_nothing_else() {
    let mut life = Life::begin(ID);
    apply_until(&mut life, 40);
    life.checkpoint();
    life.files.set_full(true);
    assert!(life.rewrite().unwrap_err().is_full());
    for name in life.files.files().iter().filter_map(|path| path.strip_suffix(".part").map(str::to_string)) {
        let output = u32::from_str_radix(name.rsplit_once('-').unwrap().1, 16).unwrap();
        disk::reclaim::give_up(&life.files, output).unwrap();
    }
    same(&life, &untouched(40), "while it is full");
    life.files.set_full(false);
    assert!(life.rewrite().unwrap().is_some());
    apply_until(&mut life, 41);
    life.checkpoint();
    same(&life, &untouched(41), "when there is room");
}

/// An older checkpoint names files that the loaded state does not know: no new file takes their
/// place.
#[test]
fn no_file_that_an_older_checkpoint_names_is_written_over() {
    let mut life = Life::begin(ID);
    apply_until(&mut life, 40);
    life.checkpoint();
    while life.rewrite().unwrap().is_some() {}
    apply_until(&mut life, 41);
    life.checkpoint();
    let (mut opened, _) = Life::open(life.files.copy(), ID, 0).unwrap();
    apply_until(&mut opened, 58);
    while opened.rewrite().unwrap().is_some() {}
    let manifests = checkpoint::manifests(&opened.files).unwrap();
    assert_eq!(manifests, [40, 41]);
    Files::remove(&opened.files, "state/manifest-0000000000000029").unwrap();
    let older = checkpoint::load_newest(&opened.files, ID, life::CONFIG, 0).unwrap().expect("the older one");
    checkpoint::verify(&opened.files, &older.manifest).unwrap();
}
