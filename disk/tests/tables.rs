//! Tables that grow with the state lie in a file of their own: the manifest stays small whatever
//! clients do, at every crash, on every way.

mod life;

use bytes::Bytes;
use disk::checkpoint::Manifest;
use disk::{Fault, Files, checkpoint, transfer};
use life::{CONFIG, ID, Life, OTHER};
use std::collections::BTreeSet;
use store::command::{Checked, encode_lease_grant, encode_lease_revoke, seal};
use store::image::LeaseHead;
use store::{AlarmMember, ImageHead, Member, Origin, Outcome, Position, Store, TABLE_BLOCK};
use testkit::files::{KEPT, Kept, MemFiles};

/// Beyond it the tables leave the manifest.
const MANY: u64 = 3_000;

fn next(life: &mut Life, body: &Checked) {
    let index = life.store.applied().index + 1;
    let entry = seal(body, Origin { member: 1, boot: 1, seq: index }, Some(1_000 + index));
    match life.store.apply(Position { index, term: 1 }, &entry, None).unwrap() {
        Outcome::Done(applied) => assert!(applied.result.is_ok(), "{:?}", applied.result),
        other => panic!("nothing is needed, not {other:?}"),
    }
}

/// Ids from all over, as clients draw them.
fn lease_id(number: u64) -> i64 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).cast_signed().max(1)
}

fn grant(life: &mut Life, numbers: std::ops::Range<u64>) {
    for number in numbers {
        next(life, &encode_lease_grant(lease_id(number), 60 + (number % 1_000).cast_signed(), 2));
    }
}

fn manifest(bytes: &Bytes) -> Manifest {
    Manifest::decode("m", bytes).unwrap()
}

/// Everything that is not in rows, as the store has it.
fn tables(store: &Store) -> ImageHead {
    store.image_head()
}

fn checkpoint_of(files: &MemFiles, head: &ImageHead) -> checkpoint::Finished {
    let index = head.applied.index;
    let mut rows = Vec::new();
    let mut empty = Store::new(CONFIG);
    let (_, mut cursor) = empty.image();
    assert!(empty.image_rows(&mut cursor, 1, &mut rows));
    checkpoint::begin(files, ID, index).unwrap();
    checkpoint::rows(files, index, &rows).unwrap();
    checkpoint::finish(files, ID, index, head).unwrap()
}

/// What a cluster of the worst kind has in its tables.
fn large(leases: u64, members: u64) -> ImageHead {
    let mut head = Life::begin(ID).store.image_head();
    head.applied.index = 9;
    let lease = |number| LeaseHead { id: lease_id(number), ttl: i64::MAX, granted: u64::MAX, deadline: u64::MAX };
    head.leases = (0..leases).map(lease).collect();
    head.leases.sort_unstable_by_key(|lease| lease.id);
    head.leases.dedup_by_key(|lease| lease.id);
    let long = |n: u64| format!("{n:x}-{}", "m".repeat(4_000));
    head.members = (1..=members)
        .map(|id| Member { id, name: long(id), peer_urls: vec![long(id); 3], client_urls: vec![long(id); 3] })
        .collect();
    head.removed = (1_000..1_000 + members * 100).collect();
    let alarm = |member| [1, 2].map(|alarm| AlarmMember { member, alarm });
    head.alarms = (1..=members).flat_map(alarm).collect::<BTreeSet<_>>().into_iter().collect();
    head
}

#[test]
fn the_manifest_of_a_million_leases_is_small_and_all_of_them_come_back() {
    let head = large(1_000_000, 100);
    assert!(head.leases.len() > 990_000);
    let files = MemFiles::new();
    let finished = checkpoint_of(&files, &head);
    assert!(finished.manifest.len() <= 256 << 10, "{} bytes", finished.manifest.len());
    assert_eq!(transfer::offered(&finished.manifest).unwrap().index, 9);
    let named = manifest(&finished.manifest).tables.unwrap();
    assert!(named.len > 20 << 20, "{named:?}");
    checkpoint::verify(&files, &manifest(&finished.manifest)).unwrap();
    let loaded = checkpoint::load_newest(&files, ID, CONFIG, 0).unwrap().unwrap();
    let found = tables(&loaded.store);
    assert!(found.leases == head.leases, "leases differ");
    assert!(ImageHead { leases: Vec::new(), ..found } == ImageHead { leases: Vec::new(), ..head });
    // Every frame a block: what is in memory at a time is bounded.
    let bytes = files.bytes(&format!("state/{}", named.name()));
    let (mut at, mut blocks) = (4096, 0);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        assert!((1..=TABLE_BLOCK + (32 << 10)).contains(&len), "{len}");
        at += 8 + len;
        blocks += 1;
    }
    assert!(blocks > 300, "{blocks}");
}

#[test]
fn small_tables_stay_in_a_manifest_that_the_binary_before_reads() {
    let mut life = Life::begin(ID);
    grant(&mut life, 0..10);
    let small = life.checkpoint().manifest;
    assert_eq!((small[8], manifest(&small).tables), (1, None));
    grant(&mut life, 10..MANY);
    let large = life.checkpoint().manifest;
    assert_eq!(large[8], 2);
    assert!(manifest(&large).tables.is_some() && large.len() < 1_000, "{}", large.len());
    for number in 10..MANY {
        next(&mut life, &encode_lease_revoke(lease_id(number)));
    }
    assert_eq!(life.checkpoint().manifest[8], 1);
    let at = life.store.applied().index;
    next(&mut life, &encode_lease_grant(7, 60, 2));
    life.checkpoint();
    assert_eq!(checkpoint::manifests(&life.files).unwrap(), [at, at + 1]);
    assert!(!life.files.files().iter().any(|path| path.contains("tables-")), "the file goes with its checkpoint");
}

/// As they were written before there was a file for them.
#[test]
fn an_older_manifest_with_large_tables_in_it_is_read() {
    let head = large(20_000, 5);
    let files = MemFiles::new();
    let new = manifest(&checkpoint_of(&files, &head).manifest);
    let old = Manifest { tables: None, head: Bytes::from(head.encode()), ..new }.encode();
    assert!(old[8] == 1 && old.len() > 300_000);
    files.edit("state/manifest-0000000000000009", |bytes| *bytes = old.to_vec());
    let loaded = checkpoint::load_newest(&files, ID, CONFIG, 0).unwrap().unwrap();
    assert!(tables(&loaded.store) == head);
    checkpoint::settle(&files, ID, &loaded.manifest).unwrap();
    assert!(!files.files().iter().any(|path| path.contains("tables-")), "nothing names the file");
}

#[test]
fn a_head_and_its_tables_belong_together() {
    let head = large(20_000, 5);
    let files = MemFiles::new();
    let right = manifest(&checkpoint_of(&files, &head).manifest);
    for (story, wrong) in [
        ("tables twice", Manifest { head: Bytes::from(head.encode()), ..right.clone() }),
        ("tables nowhere", Manifest { tables: None, ..right.clone() }),
    ] {
        assert!(transfer::offered(&wrong.encode()).is_err_and(|fault| fault.is_damage()), "{story}");
    }
    // A file that is whole and of another head: a row less than the head says.
    let path = format!("state/{}", right.tables.unwrap().name());
    let fewer = MemFiles::new();
    let less = ImageHead { removed: head.removed[1..].to_vec(), ..head };
    let other = manifest(&checkpoint_of(&fewer, &less).manifest);
    let mixed = Manifest { tables: other.tables, ..right }.encode();
    fewer.edit("state/manifest-0000000000000009", |bytes| *bytes = mixed.to_vec());
    let fault = checkpoint::load_newest(&fewer, ID, CONFIG, 0).unwrap_err();
    assert!(fault.is_damage() && fault.to_string().contains("where the head says"), "{fault}");
    assert!(files.files().contains(&path));
}

/// Checkpoints at 1 (small), and twice with large tables. Marks: calls after each, and its state.
fn life_with_tables() -> (Life, Vec<(usize, ImageHead)>) {
    let mut life = Life::begin(ID);
    let mut marks = vec![(life.files.calls(), tables(&life.store))];
    for upto in [MANY, MANY + 10] {
        let from = life.store.leases().count() as u64;
        grant(&mut life, from..upto);
        life.checkpoint();
        marks.push((life.files.calls(), tables(&life.store)));
    }
    (life, marks)
}

#[test]
fn a_crash_at_any_call_leaves_a_checkpoint_with_its_tables() {
    let (life, marks) = life_with_tables();
    for calls in marks[0].0..=life.files.calls() {
        let done = marks.iter().rposition(|mark| mark.0 <= calls).unwrap();
        for kept in KEPT {
            let crashed = life.files.crash(calls, kept);
            let (opened, passed_over) =
                Life::open(crashed.clone(), ID, 0).unwrap_or_else(|fault| panic!("call {calls}, {kept:?}: {fault}"));
            assert!(passed_over.is_none(), "call {calls}, {kept:?}: {passed_over:?}");
            let found = tables(&opened.store);
            assert!(marks[done..].iter().take(2).any(|mark| mark.1 == found), "call {calls}, {kept:?}");
            let named: BTreeSet<String> =
                checkpoint::manifests(&crashed).unwrap().iter().map(|i| format!("{i:016x}")).collect();
            for path in crashed.files().iter().filter(|path| path.contains("tables-")) {
                assert!(named.iter().any(|index| path.ends_with(index)), "call {calls}, {kept:?}: {path} is left over");
            }
        }
    }
}

#[test]
fn damage_of_the_tables_is_seen_and_the_older_checkpoint_stands_in() {
    let (life, marks) = life_with_tables();
    let newest = *checkpoint::manifests(&life.files).unwrap().last().unwrap();
    let path = format!("state/tables-{newest:016x}");
    let len = life.files.bytes(&path).len();
    for at in (0..44).chain((4096..len).step_by(501)) {
        let damaged = life.files.copy();
        damaged.edit(&path, |bytes| bytes[at] ^= 1 << (at % 8));
        let loaded = checkpoint::load_newest(&damaged, ID, CONFIG, 0).unwrap().unwrap();
        let fault = loaded.passed_over.unwrap_or_else(|| panic!("byte {at} is not seen"));
        assert_eq!(fault.file(), path, "{fault}");
        assert!(tables(&loaded.store) == marks[1].1);
    }
    let damaged = life.files.copy();
    Files::remove(&damaged, &path).unwrap();
    assert!(checkpoint::load_newest(&damaged, ID, CONFIG, 0).unwrap().unwrap().passed_over.is_some());
}

#[test]
fn tables_go_to_another_member_piece_by_piece_and_survive_every_crash_there() {
    let mut sender = Life::begin(OTHER);
    grant(&mut sender, 0..MANY);
    let offer = sender.checkpoint().manifest;
    let receiver = Life::begin(ID);
    let old = tables(&receiver.store);
    let files = receiver.files;
    let start = files.calls();
    let mut spoiled = 0;
    for (name, len) in transfer::begin(&files, ID, &offer).unwrap() {
        let mut offset = 0;
        while offset < len {
            let (piece, _) = transfer::read_chunk(&sender.files, &name, offset, 20_000).unwrap();
            let piece = piece.slice(..piece.len().min((len - offset) as usize));
            if spoiled == 0 && name.starts_with("tables-") && offset + piece.len() as u64 == len {
                let mut wrong = piece.to_vec();
                wrong[100] ^= 1;
                let taken = transfer::write_chunk(&files, &name, offset, &wrong).unwrap();
                assert!(matches!(taken, transfer::Taken::Spoiled(Fault::Damaged { .. })), "{taken:?}");
                spoiled += 1;
                // Nothing is left of it.
                offset = 0;
                continue;
            }
            let taken = transfer::write_chunk(&files, &name, offset, &piece).unwrap();
            assert!(!matches!(taken, transfer::Taken::Spoiled(_)), "{taken:?}");
            offset += piece.len() as u64;
        }
    }
    assert_eq!(spoiled, 1);
    let installed = transfer::install(&files, ID, CONFIG).unwrap();
    transfer::followed(&files, ID).unwrap();
    let new = tables(&sender.store);
    assert!(tables(&installed.store) == new);
    for calls in start..=files.calls() {
        for kept in [Kept::Nothing, Kept::Everything, Kept::Some(5), Kept::Some(6)] {
            let crashed = files.crash(calls, kept);
            let opened = Life::open(crashed, ID, 0).unwrap_or_else(|fault| panic!("call {calls}, {kept:?}: {fault}")).0;
            let found = tables(&opened.store);
            assert!(found == old || found == new, "call {calls}, {kept:?}");
            assert!(calls < files.calls() || found == new);
        }
    }
}
