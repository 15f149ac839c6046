//! Nothing is blessed that was not verified: checkpoints over damage, and installs of it. What
//! was decided is never called damaged.

mod life;

use bytes::Bytes;
use disk::checkpoint::Manifest;
use disk::{Fault, Files, How, checkpoint, corrupt, records, staging, transfer};
use life::{CONFIG, ID, Life, OTHER, model, receive, transfer_pair};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use testkit::files::{KEPT, Kept, MemFiles};

const PAGE: usize = 4096;

/// Offsets of the records of a file, and where the last one ends.
fn offsets(bytes: &[u8], end: usize) -> Vec<usize> {
    let mut all = vec![PAGE];
    while *all.last().unwrap() < end {
        let at = *all.last().unwrap();
        all.push(at + store::record::whole_len(&bytes[at..]).unwrap());
    }
    all
}

/// The files of `state/` and the log's mark, as they lie there.
fn state_of(files: &MemFiles) -> BTreeMap<String, Vec<u8>> {
    files.contents().into_iter().filter(|(path, _)| !path.starts_with("incoming/")).collect()
}

/// A life at a checkpoint, with records behind it that no checkpoint names yet.
fn written_behind_a_checkpoint() -> Life {
    let mut life = Life::begin(ID);
    life.apply_until(14);
    life.checkpoint();
    life.apply_until(30);
    life.write();
    life
}

fn try_checkpoint(life: &mut Life) -> Result<checkpoint::Finished, Fault> {
    life.write();
    let index = life.store.applied().index;
    let (head, mut cursor) = life.store.image();
    checkpoint::begin(&life.files, life.id, index)?;
    let mut done = false;
    while !done {
        let mut block = Vec::new();
        done = life.store.image_rows(&mut cursor, 3, &mut block);
        checkpoint::rows(&life.files, index, &block)?;
    }
    life.store.end_image(cursor);
    checkpoint::finish(&life.files, life.id, index, &head)
}

/// Where the records of a segment end.
fn end_of(life: &Life, segment: u32) -> usize {
    let known = life.store.segments_in_files();
    known.iter().find(|used| used.id == segment).map_or(PAGE, |used| used.end as usize)
}

/// The first record behind the checkpoint before was dead and damaged, and nobody had it any more.
#[test]
fn a_checkpoint_over_a_filler_right_behind_the_one_before_is_made() {
    let mut life = written_behind_a_checkpoint();
    let before = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let mut tried = 0;
    for file in &before.segments {
        let path = records::path(file.segment);
        let bytes = life.files.bytes(&path);
        let end = end_of(&life, file.segment);
        let at = file.len as usize;
        if at >= end {
            continue;
        }
        let last = *offsets(&bytes, at).iter().rev().nth(1).expect("a record before it");
        let rev = store::record::check(&bytes[last..at]).expect("whole").0;
        let len = store::record::whole_len(&bytes[at..]).expect("a record");
        let rev = store::Rev { main: rev.main, sub: rev.sub + 1 };
        let filler = store::record::filler(rev, len);
        life.files.edit(&path, |bytes| bytes[at..at + len].copy_from_slice(&filler));
        tried += 1;
    }
    assert!(tried > 0, "a segment goes on behind the checkpoint");
    try_checkpoint(&mut life).expect("every record is whole, and in order");
}

#[test]
fn a_checkpoint_over_a_damaged_record_is_refused_and_a_restart_heals_it() {
    let written = written_behind_a_checkpoint();
    let whole = written.files.copy();
    let before = checkpoint::load_newest(&whole, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let right = model(ID, 30);
    let mut refused = 0;
    for segment in records::list(&whole).unwrap() {
        let path = records::path(segment);
        let bytes = whole.bytes(&path);
        let end = end_of(&written, segment);
        let named = before.segments.iter().find(|file| file.segment == segment).map_or(PAGE, |file| file.len as usize);
        let places = offsets(&bytes, end);
        for at in named..end {
            if !(at - named).is_multiple_of(13) {
                continue;
            }
            let mut life = written_behind_a_checkpoint();
            life.files.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            let fault = try_checkpoint(&mut life).expect_err("damage is not blessed");
            let record = places.iter().rev().find(|place| **place <= at).unwrap();
            let Fault::Damaged { file, offset, .. } = &fault else { panic!("{path} {at}: {fault}") };
            let range = *record as u64..(*record + store::record::HEADER) as u64;
            assert!(*file == path && range.contains(offset), "{path} {at}: {fault}");
            assert_eq!(checkpoint::manifests(&life.files).unwrap(), [1, 14], "no manifest names it");
            // The log still has everything behind entry 14: a restart writes the records again.
            let (mut again, _) = Life::open(life.files.copy(), ID, 1).unwrap();
            assert_eq!(again.store.applied().index, 14);
            again.apply_until(30);
            try_checkpoint(&mut again).unwrap();
            again.check_against(&right);
            refused += 1;
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn records_that_are_missing_or_in_the_wrong_place_are_no_checkpoint() {
    for story in ["short", "zeros", "twice", "header"] {
        let mut life = written_behind_a_checkpoint();
        let segment = *records::list(&life.files).unwrap().last().unwrap();
        let path = records::path(segment);
        let places = offsets(&life.files.bytes(&path), life.files.bytes(&path).len());
        life.files.edit(&path, |bytes| match story {
            "short" => bytes.truncate(places[1]),
            "zeros" => bytes[places[1]..places[2]].fill(0),
            "twice" => {
                // The first record over the second: each is whole, and the order is wrong.
                let first = bytes[places[0]..places[1]].to_vec();
                bytes.splice(places[1]..places[1] + first.len().min(places[2] - places[1]), first);
            }
            _ => bytes[40] ^= 1,
        });
        let fault = try_checkpoint(&mut life).expect_err(story);
        assert!(fault.is_damage() && fault.to_string().starts_with(&path), "{story}: {fault}");
        assert_eq!(checkpoint::manifests(&life.files).unwrap(), [1, 14], "{story}");
    }
}

#[test]
fn a_checkpoint_over_damaged_rows_is_refused() {
    let mut life = written_behind_a_checkpoint();
    let (head, mut cursor) = life.store.image();
    checkpoint::begin(&life.files, ID, 30).unwrap();
    let mut ends = vec![PAGE];
    loop {
        let mut block = Vec::new();
        let done = life.store.image_rows(&mut cursor, 3, &mut block);
        checkpoint::rows(&life.files, 30, &block).unwrap();
        ends.push(life.files.bytes("state/index-000000000000001e.part").len());
        if done {
            break;
        }
    }
    let part = "state/index-000000000000001e.part";
    let whole = life.files.copy();
    let len = whole.bytes(part).len();
    let refused = |files: &MemFiles, story: &str| {
        let fault = checkpoint::finish(files, ID, 30, &head).expect_err(story);
        assert!(fault.is_damage() && fault.to_string().starts_with("state/index-"), "{story}: {fault}");
        assert_eq!(checkpoint::manifests(files).unwrap(), [1, 14], "{story}");
    };
    for at in PAGE..len {
        let files = whole.copy();
        files.edit(part, |bytes| bytes[at] ^= 1 << (at % 8));
        refused(&files, &format!("byte {at}"));
    }
    for (n, end) in ends[..ends.len() - 1].iter().enumerate() {
        let files = whole.copy();
        files.edit(part, |bytes| bytes.truncate(*end));
        refused(&files, "cut short");
        let files = whole.copy();
        files.edit(part, |bytes| bytes[*end..ends[n + 1]].fill(0));
        refused(&files, "a frame of zeros");
        let files = whole.copy();
        files.edit(part, |bytes| drop(bytes.drain(*end..ends[n + 1])));
        refused(&files, "a frame left out");
    }
    checkpoint::finish(&whole, ID, 30, &head).unwrap();
}

/// Rot under what an earlier checkpoint measured: the hash stays that of the right bytes.
#[test]
fn rot_below_the_last_checkpoint_is_not_blessed_by_the_next() {
    let mut life = written_behind_a_checkpoint();
    let named = checkpoint::load_newest(&life.files, ID, CONFIG, 0).unwrap().unwrap().manifest;
    let open = named.segments.last().unwrap();
    life.files.edit(&records::path(open.segment), |bytes| bytes[PAGE + 100] ^= 4);
    let finished = try_checkpoint(&mut life).unwrap();
    let manifest = Manifest::decode("m", &finished.manifest).unwrap();
    let fault = checkpoint::verify(&life.files, &manifest).unwrap_err();
    assert!(matches!(&fault, Fault::Damaged { offset, .. } if *offset == PAGE as u64), "{fault}");
}

/// `sender`'s manifest with the checksum of what its file holds now: what blessed damage looks
/// like.
fn blessed(sender: &Life, manifest: &Bytes, path: &str) -> Bytes {
    let mut manifest = Manifest::decode("m", manifest).unwrap();
    let crc = |len: usize| crc32c::crc32c(&sender.files.bytes(path)[PAGE..len]);
    for file in &mut manifest.segments {
        if path.ends_with(&file.name()) {
            file.crc = crc(file.len as usize);
        }
    }
    for file in &mut manifest.index_files {
        if path.ends_with(&file.name()) {
            file.crc = crc(file.len as usize);
        }
    }
    manifest.encode()
}

#[test]
fn what_another_member_blessed_is_verified_before_anything_is_replaced() {
    let (sender, manifest, receiver) = transfer_pair();
    let old = model(ID, 12);
    for (name, len) in Manifest::decode("m", &manifest).unwrap().files() {
        let path = format!("state/{name}");
        for at in [PAGE, PAGE + 30, PAGE + 300, len as usize - 1] {
            let rotten = Life { files: sender.files.copy(), id: OTHER, store: model(OTHER, 50) };
            rotten.files.edit(&path, |bytes| bytes[at] ^= 2);
            let manifest = blessed(&rotten, &manifest, &path);
            let files = receiver.files.copy();
            let before = state_of(&files);
            let refusal = receive_or_fault(&rotten, &manifest, &files);
            let fault = refusal.and_then(|()| transfer::install(&files, ID, CONFIG).map(drop)).unwrap_err();
            assert!(fault.is_damage(), "{path} {at}: {fault}");
            assert!(before == state_of(&files), "{path} {at}: {fault}: the old state stands");
            assert!(!transfer::unfinished(&files).unwrap());
            Life::open(files, ID, 0).unwrap().0.check_against(&old);
        }
    }
}

/// As [`receive`]; a file that is not what the manifest says ends it.
fn receive_or_fault(sender: &Life, manifest: &Bytes, receiver: &MemFiles) -> Result<(), Fault> {
    for (name, len) in transfer::begin(receiver, ID, manifest)? {
        let (piece, _) = transfer::read_chunk(&sender.files, &name, 0, len as u32)?;
        transfer::write_chunk(receiver, &name, 0, &piece[..len as usize])?;
    }
    Ok(())
}

#[test]
fn a_spoiled_file_is_named_when_it_is_complete_and_comes_again_alone() {
    let (sender, manifest, receiver) = transfer_pair();
    for (spoiled, len) in Manifest::decode("m", &manifest).unwrap().files() {
        let files = receiver.files.copy();
        let mut told = Vec::new();
        for (name, len) in transfer::begin(&files, ID, &manifest).unwrap() {
            let mut piece = transfer::read_chunk(&sender.files, &name, 0, len as u32).unwrap().0.to_vec();
            piece.truncate(len as usize);
            if name == spoiled {
                piece[PAGE + 77] ^= 1;
            }
            let (front, back) = piece.split_at(PAGE);
            assert!(matches!(transfer::write_chunk(&files, &name, 0, front), Ok(transfer::Taken::Piece)));
            match transfer::write_chunk(&files, &name, PAGE as u64, back).unwrap() {
                transfer::Taken::Whole => assert_ne!(name, spoiled),
                transfer::Taken::Spoiled(fault) => told.push((name, fault.to_string())),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(told.len() == 1 && told[0].0 == spoiled && told[0].1.contains(&spoiled), "{told:?}");
        let names = Manifest::decode("m", &manifest).unwrap().files();
        let place = names.iter().position(|(name, _)| *name == spoiled).unwrap();
        assert_eq!(staging::received(&files).unwrap()[place], 0, "{spoiled}: nothing of a damaged file is believed");
        let again = transfer::read_chunk(&sender.files, &spoiled, 0, len as u32).unwrap().0;
        let taken = transfer::write_chunk(&files, &spoiled, 0, &again[..len as usize]).unwrap();
        assert!(matches!(taken, transfer::Taken::Whole), "{taken:?}");
        let installed = transfer::install(&files, ID, CONFIG).unwrap();
        assert_eq!(installed.store.digest(), model(OTHER, 50).digest());
    }
}

/// Every call of an install fails once: before the mark the old member stands, behind it the
/// fault is final and a restart is the new member.
/// A call failed before the mark. A flush that fails there stops the member, too.
fn is_before(fault: &Fault) -> bool {
    match fault {
        Fault::Io { .. } => true,
        Fault::Stopped { reason, .. } => reason.starts_with("flush: "),
        _ => false,
    }
}

#[test]
fn a_failing_call_never_leaves_a_member_between_two_states() {
    let (sender, manifest, receiver) = transfer_pair();
    let (old, new) = (model(ID, 12), model(OTHER, 50));
    let (mut before, mut behind, mut done) = (0, 0, false);
    let mut calls = 0;
    while !done {
        let files = receiver.files.copy();
        receive(&sender, &manifest, &files, |_, _, _| {});
        files.fail_after(calls, ErrorKind::Other);
        let state = state_of(&files);
        let result = transfer::install(&files, ID, CONFIG);
        files.heal();
        match result {
            Ok(_) => done = true,
            Err(fault) if is_before(&fault) => {
                before += 1;
                assert!(!transfer::unfinished(&files).unwrap(), "call {calls}");
                assert!(state == state_of(&files), "call {calls}");
                Life::open(files, ID, 0).unwrap().0.check_against(&old);
            }
            Err(Fault::Stopped { file, .. }) => {
                behind += 1;
                assert_eq!(file, "incoming/ready");
                Life::open(files, ID, 0).unwrap().0.check_against(&new);
            }
            Err(other) => panic!("call {calls}: {other}"),
        }
        calls += 1;
    }
    assert!(before > 5 && behind > 10, "{before} {behind}");
}

#[test]
fn a_manifest_that_contradicts_itself_is_refused_at_its_offer() {
    let (_, manifest, receiver) = transfer_pair();
    let right = Manifest::decode("m", &manifest).unwrap();
    assert_eq!(transfer::offered(&manifest).unwrap().index, 50);
    let mut wrong = vec![
        ("another index", Manifest { index: 51, ..right.clone() }),
        ("no index file", Manifest { index_files: Vec::new(), ..right.clone() }),
        ("no head", Manifest { head: Bytes::from_static(b"head"), ..right.clone() }),
    ];
    for (story, change) in [("a segment less", 0), ("a shorter segment", 1), ("other revisions", 2)] {
        let mut manifest = right.clone();
        match change {
            0 => drop(manifest.segments.remove(0)),
            1 => manifest.segments[0].len -= 100,
            _ => manifest.segments[0].last += 1,
        }
        wrong.push((story, manifest));
    }
    let before = state_of(&receiver.files);
    for (story, manifest) in wrong {
        let bytes = manifest.encode();
        assert!(transfer::offered(&bytes).is_err_and(|fault| fault.is_damage()), "{story}");
        let fault = transfer::begin(&receiver.files, ID, &bytes).expect_err(story);
        assert!(fault.is_damage(), "{story}: {fault}");
    }
    assert!(before == state_of(&receiver.files));
}

/// The mark was said of the state that the install replaces: it goes with it, at every crash.
#[test]
fn the_mark_of_a_corrupt_state_goes_with_that_state() {
    let (sender, manifest, receiver) = transfer_pair();
    Files::make_dir(&receiver.files, "log").unwrap();
    corrupt::mark(&receiver.files, ID).unwrap();
    receive(&sender, &manifest, &receiver.files, |_, _, _| {});
    let start = receiver.files.calls();
    transfer::install(&receiver.files, ID, CONFIG).unwrap();
    let (mut olds, mut news) = (0, 0);
    for calls in start..=receiver.files.calls() {
        for kept in KEPT.into_iter().chain((10..20).map(Kept::Some)) {
            let crashed = receiver.files.crash(calls, kept);
            let opened = Life::open(crashed.clone(), ID, 0).unwrap().0;
            let old = opened.store.applied().index == 12;
            *(if old { &mut olds } else { &mut news }) += 1;
            assert_eq!(corrupt::marked(&crashed, ID).unwrap(), old, "call {calls}, {kept:?}");
        }
    }
    assert!(olds > 50 && news > 50, "{olds} {news}");
    assert!(receiver.files.open("log/corrupt", How::Read).is_err());
}

/// A kill keeps what a power loss may take: what a resumed install relies on must be durable first.
#[test]
fn an_install_that_a_kill_cut_short_survives_a_power_loss_while_it_is_finished() {
    let (old, new) = (model(ID, 12), model(OTHER, 50));
    let mut decided = 0;
    for failing in 0.. {
        let (sender, manifest, receiver) = transfer_pair();
        let files = receiver.files;
        receive(&sender, &manifest, &files, |_, _, _| {});
        files.fail_after(failing, ErrorKind::Other);
        let result = transfer::install(&files, ID, CONFIG);
        files.heal();
        let start = files.calls();
        decided += u32::from(matches!(result, Err(Fault::Stopped { .. })));
        drop(Life::open(files.clone(), ID, 0).unwrap());
        for calls in start..=files.calls() {
            for kept in KEPT {
                let crashed = files.crash(calls, kept);
                let opened = Life::open(crashed, ID, 0)
                    .unwrap_or_else(|fault| panic!("failing call {failing}, crash after {calls}, {kept:?}: {fault}"));
                let model = if opened.0.store.applied().index == 12 { &old } else { &new };
                opened.0.check_against(model);
            }
        }
        if result.is_ok() {
            break;
        }
    }
    assert!(decided > 10, "{decided}");
}
