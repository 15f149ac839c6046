//! Segments, checkpoints and installs, with a real store on top: crashes at every call, damage at
//! every byte.

mod life;

use bytes::Bytes;
use disk::fetch::{Fetched, Wanted, fetch};
use disk::{Fault, Files, Identity, checkpoint, records, transfer};
use life::{CONFIG, ID, KEYS, Life, OTHER, life_with_checkpoints, model, named, receive, transfer_pair};
use store::{SegmentUse, Store};
use testkit::Dice;
use testkit::files::{KEPT, Kept, MemFiles};

#[test]
fn a_crash_after_any_call_leaves_the_old_or_the_new_checkpoint() {
    let (life, marks) = life_with_checkpoints();
    let models: Vec<Store> = marks.iter().map(|mark| model(ID, mark.1)).collect();
    let end = model(ID, 44);
    for calls in marks[0].0..=life.files.calls() {
        let done = marks.iter().rposition(|mark| mark.0 <= calls).unwrap();
        for kept in KEPT {
            let crashed = life.files.crash(calls, kept);
            let (mut opened, passed_over) = Life::open(crashed.clone(), ID, marks[done].2)
                .unwrap_or_else(|fault| panic!("call {calls}, {kept:?}: {fault}"));
            assert!(passed_over.is_none(), "call {calls}, {kept:?}: {passed_over:?}");
            let index = opened.store.applied().index;
            let found = marks.iter().position(|mark| mark.1 == index).unwrap();
            assert!(found == done || found == done + 1, "call {calls}, {kept:?}: checkpoint {index}");
            opened.check_against(&models[found]);
            // No byte behind the checkpoint is left to be believed.
            let known = opened.store.segments_in_files();
            for used in &known {
                let path = records::path(used.id);
                let bare = crashed.bytes(&path).len() == used.end as usize;
                assert!(bare || used.sealed && records::sealed(&crashed, used.id, used.end).unwrap(), "{path}");
            }
            let (records, _) = records::history(&crashed, &known, 0, i64::MAX, u64::MAX).unwrap();
            assert_eq!(records.len() as u64, index - 1, "call {calls}, {kept:?}");
            // Settled is settled.
            let settled = crashed.contents();
            let (again, _) = Life::open(crashed.clone(), ID, marks[done].2).unwrap();
            again.check_against(&models[found]);
            assert_eq!(crashed.contents(), settled);
            // Replay, go on, checkpoint, start again.
            opened.apply_until(44);
            opened.checkpoint();
            opened.check_against(&end);
            Life::open(crashed, ID, 0).unwrap().0.check_against(&end);
        }
    }
}

#[test]
fn two_checkpoints_are_kept_and_nothing_else() {
    let (mut life, _) = life_with_checkpoints();
    assert_eq!(checkpoint::manifests(&life.files).unwrap(), [30, 40]);
    let before = life.files.contents();
    let again = life.checkpoint();
    assert_eq!(again.cut, 31);
    assert_eq!(life.files.contents(), before, "a second checkpoint at the same index changes nothing");
    let manifest = checkpoint::Manifest::decode("m", &again.manifest).unwrap();
    checkpoint::verify(&life.files, &manifest).unwrap();
    assert!(manifest.segments.len() > 2, "{manifest:?}");
    assert!(!again.fresh);
    assert_eq!(
        checkpoint::disk_bytes(&life.files).unwrap(),
        before.values().map(|bytes| bytes.len() as u64).sum::<u64>()
    );
    // Segments that grow towards the next checkpoint are not unnamed leftovers.
    life.apply_until(70);
    life.write();
    let written = life.files.contents();
    checkpoint::clean(&life.files, ID, &[]).unwrap();
    assert_eq!(life.files.contents(), written);
    assert!(written.len() > before.len());
}

#[test]
fn damage_of_the_newest_checkpoint_is_seen_and_the_older_one_stands_in() {
    let (life, _) = life_with_checkpoints();
    let (newest, older) = (model(ID, 40), model(ID, 30));
    let mut fallbacks = 0;
    for path in ["state/manifest-0000000000000028", "state/index-0000000000000028"] {
        let len = life.files.bytes(path).len();
        for at in 0..len {
            let damaged = life.files.copy();
            damaged.edit(path, |bytes| bytes[at] ^= 1 << (at % 8));
            match checkpoint::load_newest(&damaged, ID, CONFIG, 30).unwrap().unwrap() {
                loaded if loaded.passed_over.is_some() => {
                    fallbacks += 1;
                    let fault = loaded.passed_over.unwrap().to_string();
                    assert!(fault.starts_with(path), "{fault}");
                    assert_eq!(loaded.store.digest(), older.digest());
                }
                loaded => assert_eq!(loaded.store.digest(), newest.digest(), "{path} {at}"),
            }
            if at % 50 == 0
                && checkpoint::load_newest(&damaged, ID, CONFIG, 31).is_ok_and(|l| l.unwrap().passed_over.is_some())
            {
                panic!("the log does not cover the way from the older checkpoint");
            }
        }
    }
    assert!(fallbacks > 500, "{fallbacks}");
    // The fallback is settled, replayed and good again.
    let damaged = life.files.copy();
    damaged.edit("state/manifest-0000000000000028", |bytes| bytes.truncate(100));
    let calls = damaged.calls();
    assert!(checkpoint::load_newest(&damaged, ID, CONFIG, 40).unwrap_err().is_damage());
    assert_eq!(damaged.calls(), calls, "a refusal changes nothing");
    let (mut opened, fault) = Life::open(damaged.clone(), ID, 30).unwrap();
    assert!(fault.is_some());
    assert_eq!(checkpoint::manifests(&damaged).unwrap(), [30]);
    opened.apply_until(40);
    opened.checkpoint();
    Life::open(damaged, ID, 30).unwrap().0.check_against(&newest);
}

/// A checkpoint that a transfer reads is kept beside the two newest. Both may name a segment that
/// the newest no longer needs, each up to another place.
#[test]
fn a_segment_of_older_checkpoints_ends_where_the_last_of_them_names_it() {
    let mut life = Life::begin(ID);
    let mut ends = Vec::new();
    for index in [4, 6] {
        life.apply_until(index);
        life.checkpoint_beside(&[4]);
        let manifest = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
        let last = *manifest.segments.last().unwrap();
        ends.push((last.segment, last.len));
    }
    let [(segment, before), (same, end)] = ends[..] else { panic!("{ends:?}") };
    assert!(segment == same && before < end, "{ends:?}");
    // What follows in the segment is not named by any checkpoint.
    life.apply_until(40);
    life.write();
    life.compact(40);
    while !life.store.sweep(1_000) {}
    life.store.drop_dead_segments();
    life.checkpoint_beside(&[4]);
    assert_eq!(checkpoint::manifests(&life.files).unwrap().len(), 3);
    let newest = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    assert!(newest.segments.iter().all(|named| named.segment != segment), "{newest:?}");
    let path = records::path(segment);
    assert!(life.files.bytes(&path).len() > end as usize, "more was written");
    for torn in [false, true] {
        let crashed = life.files.copy();
        if torn {
            crashed.edit(&path, |bytes| bytes[end as usize..].fill(0));
        }
        checkpoint::settle(&crashed, ID, &newest).unwrap();
        let is_right = crashed.bytes(&path) == life.files.bytes(&path)[..end as usize];
        assert!(is_right, "{} bytes of {end}", crashed.bytes(&path).len());
        records::history(&crashed, &named(&crashed), 0, i64::MAX, u64::MAX).unwrap();
    }
}

#[test]
fn missing_and_short_files_are_damage() {
    let (life, _) = life_with_checkpoints();
    for path in life.files.files().iter().filter(|path| path.contains("seg-")) {
        for short in [false, true] {
            let damaged = life.files.copy();
            match short {
                true => damaged.edit(path, |bytes| bytes.truncate(4100)),
                false => Files::remove(&damaged, path).unwrap(),
            }
            match checkpoint::load_newest(&damaged, ID, CONFIG, 40) {
                Err(fault) => assert!(fault.is_damage() && fault.to_string().contains(path.as_str()), "{fault}"),
                Ok(loaded) => panic!("{path}: {:?}", loaded.unwrap().manifest),
            }
        }
    }
}

#[test]
fn others_checkpoints_are_refused() {
    let (life, _) = life_with_checkpoints();
    let calls = life.files.calls();
    for id in [OTHER, Identity { cluster: 2, ..ID }] {
        let fault = checkpoint::load_newest(&life.files, id, CONFIG, 0).unwrap_err();
        assert!(matches!(fault, Fault::Foreign { .. }), "{fault}");
    }
    assert_eq!(life.files.calls(), calls);
}

#[test]
fn damage_of_any_byte_of_a_record_is_seen() {
    let (life, _) = life_with_checkpoints();
    let manifest = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let segment = manifest.segments[1];
    let path = records::path(segment.segment);
    let known = named(&life.files);
    let (all, _) = records::history(&life.files, &known, 0, i64::MAX, u64::MAX).unwrap();
    for at in 4096..segment.len as usize {
        let damaged = life.files.copy();
        damaged.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
        let fault = records::history(&damaged, &known, segment.first, segment.last + 1, u64::MAX).unwrap_err();
        assert!(fault.is_damage() && fault.to_string().starts_with(&path), "{at}: {fault}");
        if at % 97 == 0 {
            assert!(checkpoint::verify(&damaged, &manifest).unwrap_err().is_damage());
        }
    }
    // The seek table is a convenience: damaged or gone, the same records come.
    let len = life.files.bytes(&path).len();
    assert!(len > segment.len as usize, "the segment is sealed");
    for at in segment.len as usize..len {
        let damaged = life.files.copy();
        damaged.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
        let (records, _) = records::history(&damaged, &known, 0, i64::MAX, u64::MAX).unwrap();
        assert_eq!(records, all);
    }
}

/// Handle and revision of every record of a segment, and its bytes.
fn records_of(files: &MemFiles, segment: u32, range: (i64, i64)) -> (Vec<Wanted>, Vec<Bytes>) {
    let (all, _) = records::history(files, &named(files), range.0, range.1 + 1, u64::MAX).unwrap();
    let mut offset = 4096;
    let mut wanted = Vec::new();
    for bytes in &all {
        let handle = store::Handle { segment, offset, len: bytes.len() as u32 };
        wanted.push(Wanted { place: 0, handle, rev: store::record::open(bytes).unwrap().rev, superseded: None });
        offset += handle.len;
    }
    (wanted, all)
}

#[test]
fn records_fetched_together_are_those_fetched_alone() {
    let (life, _) = life_with_checkpoints();
    let manifest = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let (mut wanted, mut expected) = (Vec::new(), Vec::new());
    for segment in manifest.segments.iter().filter(|segment| segment.first > 0) {
        let (handles, bytes) = records_of(&life.files, segment.segment, (segment.first, segment.last));
        wanted.extend(handles);
        expected.extend(bytes);
    }
    assert!(wanted.len() > 8, "{}", wanted.len());
    // Any order, gaps, the same record twice; some at hand already; one buffer after the other.
    let mut dice = Dice::new(7);
    let mut found = Fetched::default();
    for _ in 0..200 {
        let chosen: Vec<usize> = (0..dice.roll() % 30).map(|_| (dice.roll() % wanted.len() as u64) as usize).collect();
        let asked = numbered(&chosen, &wanted);
        found.begin(asked.len());
        let (kept, asked): (Vec<Wanted>, Vec<Wanted>) = asked.into_iter().partition(|_| dice.roll().is_multiple_of(4));
        kept.iter().for_each(|kept| found.keep(kept.place, expected[chosen[kept.place]].clone()));
        assert_eq!(fetch(&life.files, asked, &mut found).unwrap(), []);
        assert_eq!(found.len(), chosen.len());
        for (place, &n) in chosen.iter().enumerate() {
            assert_eq!(found.get(place), expected[n]);
        }
        for (place, &n) in chosen.iter().enumerate() {
            assert_eq!(found.take(place), expected[n]);
        }
    }
    // What another fetched comes under other numbers.
    let mut other = Fetched::default();
    other.begin(2);
    assert_eq!(fetch(&life.files, numbered(&[1, 4], &wanted), &mut other).unwrap(), []);
    found.begin(3);
    assert_eq!(fetch(&life.files, numbered(&[2], &wanted), &mut found).unwrap(), []);
    found.absorb(other, [2, 1].into_iter());
    assert_eq!([0, 1, 2].map(|place| found.get(place)), [2, 4, 1].map(|n| &expected[n][..]));
    // What is fetched next is read into the same memory.
    let read = |found: &mut Fetched| {
        found.begin(1);
        assert_eq!(fetch(&life.files, numbered(&[2], &wanted), found).unwrap(), []);
        found.get(0).as_ptr()
    };
    assert_eq!(read(&mut found), read(&mut found));
    // A record that is another one is refused; a damaged one is named, whatever lies around it.
    let all: Vec<usize> = (0..wanted.len()).collect();
    let mut replaced = numbered(&all, &wanted);
    replaced[3].rev.main += 1000;
    found.begin(all.len());
    assert!(matches!(fetch(&life.files, replaced, &mut found), Err(Fault::Refused { .. })));
    let damaged = life.files.copy();
    let (handle, path) = (wanted[5].handle, records::path(wanted[5].handle.segment));
    damaged.edit(&path, |bytes| bytes[handle.offset as usize + handle.len as usize - 1] ^= 1);
    let fault = fetch(&damaged, numbered(&all, &wanted), &mut found).unwrap_err();
    assert!(fault.is_damage() && fault.to_string().starts_with(&path), "{fault}");
    let around: Vec<Wanted> = numbered(&all, &wanted).into_iter().filter(|other| other.handle != handle).collect();
    assert_eq!(fetch(&damaged, around, &mut found).unwrap(), []);
}

/// Those of `all` that `chosen` names, numbered in its order.
fn numbered(chosen: &[usize], all: &[Wanted]) -> Vec<Wanted> {
    chosen.iter().enumerate().map(|(place, &n)| Wanted { place, ..all[n] }).collect()
}

#[test]
fn a_seek_table_finds_every_revision() {
    let files = MemFiles::new();
    let (mut offset, mut handles) = (4096, Vec::new());
    for main in 2..=200 {
        for sub in 0..3 {
            let kv = store::record::KeyValueRef {
                key: b"k",
                create: main,
                modified: main,
                version: 1,
                value: &[7; 500],
                lease: 0,
            };
            let whole = store::record::encode(store::Rev { main, sub }, false, &kv);
            let len = whole.len() as u32;
            handles.push(store::Handle { segment: 1, offset, len });
            offset = records::write(&files, ID, 1, offset, &[whole]).unwrap();
        }
    }
    records::seal(&files, 1, offset).unwrap();
    records::sync(&files, &[1]).unwrap();
    records::check(&files, ID, 1).unwrap();
    assert!(matches!(records::check(&files, OTHER, 1), Err(Fault::Foreign { .. })));
    let known = [SegmentUse { id: 1, first: 2, last: 200, end: offset, live: 0, sealed: true }];
    for from in 0..=201 {
        let (found, _) = records::history(&files, &known, from, from + 1, u64::MAX).unwrap();
        let wanted = if (2..=200).contains(&from) { 3 } else { 0 };
        assert_eq!(found.len(), wanted, "revision {from}");
    }
    for handle in handles.iter().step_by(50) {
        records::read(&files, *handle).unwrap();
        files.edit(&records::path(1), |bytes| bytes[handle.offset as usize + 40] ^= 1);
        assert!(records::read(&files, *handle).unwrap_err().is_damage());
    }
}

#[test]
fn history_comes_in_whole_revisions() {
    let (mut life, _) = life_with_checkpoints();
    life.apply_until(60);
    life.write();
    for most in [1, 1000, 5000, u64::MAX] {
        for start in [0, 1, 2, 17, 59, 60, 61] {
            let (mut from, mut mains) = (start, Vec::new());
            while from < 61 {
                let (records, next) =
                    records::history(&life.files, &life.store.segments_in_files(), from, 61, most).unwrap();
                mains.extend(records.iter().map(|whole| store::record::open(whole).unwrap().rev.main));
                assert!(next > from);
                from = next;
            }
            assert_eq!(mains, (start.max(2)..=60).collect::<Vec<_>>(), "from {start}, {most} bytes at a time");
        }
    }
}

#[test]
fn a_crash_during_an_install_leaves_the_old_or_the_new_member() {
    let (sender, manifest, receiver) = transfer_pair();
    let start = receiver.files.calls();
    receive(&sender, &manifest, &receiver.files, |_, _, _| {});
    let installed = transfer::install(&receiver.files, ID, CONFIG).unwrap();
    assert_eq!((installed.manifest.id, installed.manifest.index), (ID, 50));
    assert!(transfer::unfinished(&receiver.files).unwrap(), "the log has not followed");
    transfer::followed(&receiver.files, ID).unwrap();
    assert!(!transfer::unfinished(&receiver.files).unwrap());
    let (old, new) = (model(ID, 12), model(OTHER, 50));
    let (mut olds, mut news) = (0, 0);
    for calls in start..=receiver.files.calls() {
        for kept in KEPT.into_iter().chain((10..20).map(Kept::Some)) {
            let crashed = receiver.files.crash(calls, kept);
            let (opened, passed_over) =
                Life::open(crashed.clone(), ID, 0).unwrap_or_else(|fault| panic!("call {calls}, {kept:?}: {fault}"));
            assert!(passed_over.is_none());
            if opened.store.applied().index == 12 {
                olds += 1;
                opened.check_against(&old);
            } else {
                news += 1;
                opened.check_against(&new);
            }
            assert!(calls < receiver.files.calls() || opened.store.applied().index == 50);
            let (again, _) = Life::open(crashed.clone(), ID, 0).unwrap();
            assert_eq!(again.store.applied(), opened.store.applied());
            assert!(!crashed.files().iter().any(|path| path.starts_with("incoming/")), "{:?}", crashed.files());
        }
    }
    assert!(olds > 50 && news > 50, "{olds} {news}");
}

/// The crash that hits while the crash before is being repaired.
#[test]
fn a_crash_during_resume_is_resumed() {
    let (sender, manifest, receiver) = transfer_pair();
    receive(&sender, &manifest, &receiver.files, |_, _, _| {});
    transfer::install(&receiver.files, ID, CONFIG).unwrap();
    transfer::followed(&receiver.files, ID).unwrap();
    let new = model(OTHER, 50);
    let mut dice = Dice::new(7);
    let mut met = 0;
    for calls in 0..receiver.files.calls() {
        let crashed = receiver.files.crash(calls, Kept::Everything);
        if !crashed.files().iter().any(|path| path == "incoming/ready") {
            continue;
        }
        met += 1;
        // Make the state the durable beginning of a new history.
        let history = MemFiles::new();
        for (path, bytes) in crashed.contents() {
            let dir = path.rsplit_once('/').unwrap().0;
            history.make_dir(dir).unwrap();
            let file = history.open(&path, disk::How::Create).unwrap();
            file.write_at(0, &[&bytes]).unwrap();
            file.sync().unwrap();
            history.sync_dir(dir).unwrap();
        }
        let start = history.calls();
        Life::open(history.clone(), ID, 0).unwrap().0.check_against(&new);
        for calls in start..=history.calls() {
            let twice = history.crash(calls, Kept::Some(dice.roll()));
            Life::open(twice, ID, 0).unwrap().0.check_against(&new);
        }
    }
    assert!(met > 5, "{met}");
}

#[test]
fn a_spoiled_transfer_is_refused_and_the_old_member_stands() {
    let (sender, manifest, receiver) = transfer_pair();
    let old = model(ID, 12);
    for (spoiled, _) in checkpoint::Manifest::decode("m", &manifest).unwrap().files() {
        for at in [0usize, 20, 2999] {
            let files = receiver.files.copy();
            receive(&sender, &manifest, &files, |name, offset, piece| {
                // The middle of the header page is padding: spoil what counts.
                if *name == spoiled && (offset == 3000 || (offset == 0 && at < 40)) {
                    let at = at.min(piece.len() - 1);
                    piece[at] ^= 0x10;
                }
            });
            let state: Vec<_> = files.contents().into_iter().filter(|(path, _)| path.starts_with("state/")).collect();
            match transfer::install(&files, ID, CONFIG) {
                Err(fault) => {
                    assert!(fault.is_damage(), "{fault}");
                    let after: Vec<_> =
                        files.contents().into_iter().filter(|(path, _)| path.starts_with("state/")).collect();
                    assert_eq!(state, after);
                    Life::open(files, ID, 0).unwrap().0.check_against(&old);
                }
                Ok(_) => panic!("{spoiled} spoiled at {at} was installed"),
            }
        }
    }
}

#[test]
fn only_named_bytes_are_sent_and_taken() {
    let (sender, manifest, receiver) = transfer_pair();
    for name in ["../secret", "manifest-0000000000000032", "seg-1", "index-..", "", "seg-00000001/../x"] {
        assert!(matches!(transfer::read_chunk(&sender.files, name, 0, 10), Err(Fault::Refused { .. })), "{name}");
    }
    assert!(matches!(transfer::read_chunk(&sender.files, "seg-00000001", 0, u32::MAX), Err(Fault::Refused { .. })));
    let files = transfer::begin(&receiver.files, ID, &manifest).unwrap();
    let (name, len) = &files[0];
    for (name, offset) in [("../x", 0), ("manifest", 0), (&name[..], *len), (&name[..], u64::MAX)] {
        assert!(
            matches!(transfer::write_chunk(&receiver.files, name, offset, b"x"), Err(Fault::Refused { .. })),
            "{name} {offset}"
        );
    }
    let foreign = Identity { cluster: 9, ..ID };
    assert!(matches!(transfer::begin(&receiver.files, foreign, &manifest), Err(Fault::Foreign { .. })));
}

/// A file that a checkpoint removed is told apart from one that is missing, by the records wanted
/// of it.
#[test]
fn a_removed_segment_is_gone_for_what_compaction_took_and_damage_for_the_rest() {
    let mut life = Life::begin(ID);
    life.apply_until(60);
    life.checkpoint();
    let old = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let segment = old.segments[0];
    let (wanted, expected) = records_of(&life.files, segment.segment, (segment.first, segment.last));
    // Entry i makes revision i of key 3i; keys come again after KEYS entries.
    let superseded = |wanted: &Wanted| wanted.rev.main + KEYS as i64;
    let asked = |by: Option<i64>| -> Vec<Wanted> {
        let number = |(place, wanted): (usize, &Wanted)| Wanted { place, superseded: by, ..*wanted };
        wanted.iter().enumerate().map(number).collect()
    };
    let last = superseded(wanted.last().unwrap());
    let mut found = Fetched::default();
    let mut look = |files: &MemFiles, wanted: Vec<Wanted>| {
        found.begin(wanted.len());
        let places = wanted.len();
        let result = fetch(files, wanted, &mut found).map(|left_out| assert_eq!(left_out, []));
        result.map(|()| (0..places).map(|place| found.find(place).map(<[u8]>::to_vec)).collect::<Vec<_>>())
    };
    let here: Vec<_> = expected.iter().map(|bytes| Some(bytes.to_vec())).collect();
    assert_eq!(look(&life.files, asked(Some(last))).unwrap(), here, "what is there is read, however old");
    // Missing while a checkpoint names it, or the newest stands below: damage.
    let lost = life.files.copy();
    Files::remove(&lost, &records::path(segment.segment)).unwrap();
    for by in [None, Some(last)] {
        assert!(look(&lost, asked(by)).is_err_and(|fault| fault.is_damage()), "{by:?}");
    }
    // Compacted, swept, and named by no checkpoint: removed.
    life.compact(50);
    while !life.store.sweep(1_000) {}
    life.store.drop_dead_segments();
    for index in [70, 80] {
        life.apply_until(index);
        life.checkpoint();
    }
    assert!(!life.files.files().contains(&records::path(segment.segment)));
    assert_eq!(look(&life.files, asked(Some(last))).unwrap(), vec![None; wanted.len()]);
    for by in [None, Some(51)] {
        let fault = look(&life.files, asked(by)).unwrap_err();
        assert!(fault.is_damage() && fault.file() == records::path(segment.segment), "{by:?}: {fault}");
    }
    // One that the checkpoint names still, and one behind it, are damage whoever asks.
    let newest = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    life.apply_until(120);
    life.write();
    let behind = *records::list(&life.files).unwrap().last().unwrap();
    assert!(behind > newest.segments.last().unwrap().segment);
    for segment in [newest.segments[0].segment, behind] {
        let lost = life.files.copy();
        Files::remove(&lost, &records::path(segment)).unwrap();
        let handle = store::Handle { segment, ..wanted[0].handle };
        let wanted = vec![Wanted { handle, superseded: Some(2), ..wanted[0] }];
        assert!(look(&lost, wanted).is_err_and(|fault| fault.is_damage()), "{segment:x}");
    }
    // While a snapshot is put in place there is no checkpoint: nothing is known, and nothing is
    // gone.
    let installing = life.files.copy();
    for path in installing.files().iter().filter(|path| path.starts_with("state/manifest-")) {
        Files::remove(&installing, path).unwrap();
    }
    assert!(matches!(look(&installing, asked(Some(last))), Err(Fault::Refused { .. })));
}
