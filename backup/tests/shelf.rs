//! Backups in a folder: what is shared, what a crash leaves, what is damaged, what is made again.

use backup::{About, Error, Keep, Manifest, Shelf, for_revision, list, prune, rebuild, save, verify};
use bolt::{Db, Planner, Writer};
use std::path::{Path, PathBuf};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The key of a record, and a record with a key and a value.
fn record(revision: i64, size: usize) -> (Vec<u8>, Vec<u8>) {
    let key = [&revision.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat();
    let name = format!("k{revision:06}");
    (key, [&[0x0a, name.len() as u8], name.as_bytes(), &[0x2a], &vec![revision as u8; size]].concat())
}

/// A snapshot with these records.
fn snapshot(records: impl Iterator<Item = i64>, compacted: i64) -> Vec<u8> {
    let mut meta: Rows = vec![(b"consistent_index".to_vec(), vec![0; 8])];
    if compacted > 0 {
        let value = [&compacted.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat();
        meta.push((b"finishedCompactRev".to_vec(), value));
    }
    let buckets: [(&[u8], Rows); 2] =
        [(b"key", records.map(|revision| record(revision, 300)).collect()), (b"meta", meta)];
    let mut planner = Planner::new();
    for (name, rows) in &buckets {
        planner.bucket(name).expect("in order");
        rows.iter().for_each(|(key, value)| planner.pair(key.len(), value.len()).expect("fits"));
    }
    let mut writer = Writer::new(planner.finish());
    for (name, rows) in &buckets {
        writer.bucket(name).expect("in order");
        rows.iter().for_each(|(key, value)| writer.pair(key, value).expect("in order"));
    }
    let mut file = writer.take();
    file.extend(writer.finish().expect("as planned"));
    file
}

fn about(time: i64) -> About {
    About { time, endpoint: "e".into(), ..About::default() }
}

async fn saved(shelf: &Shelf, file: &[u8], time: i64) -> backup::Written {
    let db = Db::open(file.to_vec()).expect("a file");
    save(shelf, &db, about(time), &mut |_| {}).await.expect("saved")
}

async fn good(shelf: &Shelf) -> Vec<Manifest> {
    list(shelf).await.expect("lists").into_iter().filter_map(|saved| saved.manifest.ok()).collect()
}

fn pieces(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in std::fs::read_dir(folder.join("pieces")).expect("a folder") {
        let dir = dir.expect("an entry").path();
        found.extend(std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()));
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_backup_is_the_snapshot_that_it_was_and_the_next_one_shares_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::folder(&dir.path().join("new"), true).await.expect("a new shelf");
    let first = snapshot(2..20_000, 0);
    let written = saved(&shelf, &first, 100).await;
    assert_eq!((written.manifest.revision, written.manifest.oldest, written.manifest.keys), (19_999, 1, 19_998));
    assert_eq!(written.new_pieces, written.manifest.pieces.len() as u64);
    // Rows are compacted, and new ones come.
    let second = snapshot((2..20_200).filter(|n| !(1_000..1_100).contains(n)), 1_100);
    let next = saved(&shelf, &second, 200).await;
    assert!(next.new_bytes * 4 < written.new_bytes, "{} of {}", next.new_bytes, written.new_bytes);
    assert_eq!(saved(&shelf, &second, 300).await.new_pieces, 0, "nothing is new");

    for (file, manifest) in [(&first, &written.manifest), (&second, &next.manifest)] {
        let mut again = Vec::new();
        rebuild(&shelf, manifest, &mut again).await.expect("makes it again");
        assert!(bolt::digest_follows(again.len() as u64));
        let (was, is) = (Db::open(file.clone()).expect("a file"), Db::open(again[..again.len() - 32].to_vec()));
        assert_eq!(is.expect("a file").summary().expect("reads"), was.summary().expect("reads"));
        verify(&shelf, manifest, |_| {}).await.expect("good");
    }
    let all = list(&shelf).await.expect("lists");
    let time = |revision| for_revision(&all, revision).map(|manifest| manifest.time);
    assert_eq!(
        [time(0), time(5), time(19_999), time(20_000), time(20_200)],
        [Some(300), Some(100), Some(100), Some(200), None]
    );
}

#[tokio::test]
async fn what_is_not_whole_is_not_listed_as_good() {
    let dir = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::folder(dir.path(), true).await.expect("a new shelf");
    let file = snapshot(2..4_000, 0);
    let manifest = saved(&shelf, &file, 100).await.manifest;
    let path = dir.path().join(manifest.name());
    let whole = std::fs::read(&path).expect("is there");
    // A crash at any byte of the manifest, were it not written as a whole.
    for len in (0..whole.len()).step_by(37).chain([whole.len() - 2]) {
        std::fs::write(&path, &whole[..len]).expect("writes");
        assert_eq!(good(&shelf).await, [], "{len}");
    }
    std::fs::write(&path, &whole).expect("writes");
    assert_eq!(good(&shelf).await.len(), 1);
    // A crash before the manifest leaves pieces and nothing else.
    std::fs::remove_file(&path).expect("removes");
    assert!(list(&shelf).await.expect("lists").is_empty());
    let again = saved(&shelf, &file, 200).await;
    assert_eq!(again.new_pieces, 0, "they are used again");

    let piece = pieces(dir.path()).remove(1);
    let bytes = std::fs::read(&piece).expect("is there");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    std::fs::write(&piece, &flipped).expect("writes");
    assert_eq!(good(&shelf).await.len(), 1, "its length is right");
    let error = verify(&shelf, &again.manifest, |_| {}).await.expect_err("damaged");
    assert!(error.to_string().contains("its hash is another one"), "{error}");
    // A backup that needs the piece does not rely on it unread: it is written again.
    let next = saved(&shelf, &file, 250).await;
    verify(&shelf, &next.manifest, |_| {}).await.expect("as good as it was called");
    assert_eq!(next.new_pieces, 1);
    std::fs::write(&piece, &bytes[..bytes.len() - 1]).expect("writes");
    assert_eq!(good(&shelf).await, []);
    // The next backup writes it again, and the one before is good again.
    assert_eq!(saved(&shelf, &file, 300).await.new_pieces, 1);
    assert_eq!(good(&shelf).await.len(), 3);
    std::fs::remove_file(&piece).expect("removes");
    let all = list(&shelf).await.expect("lists");
    assert!(all.iter().all(|saved| matches!(saved.manifest, Err(Error::Missing { .. }))));
}

#[tokio::test]
async fn a_shelf_that_cannot_be_written_lists_nothing_new() {
    let dir = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::folder(dir.path(), true).await.expect("a new shelf");
    // A file stands where the folder of manifests would be.
    std::fs::write(dir.path().join("saved"), "").expect("writes");
    let db = Db::open(snapshot(2..100, 0)).expect("a file");
    save(&shelf, &db, about(1), &mut |_| {}).await.expect_err("no manifest can be written");
    std::fs::remove_file(dir.path().join("saved")).expect("removes");
    assert!(list(&shelf).await.expect("lists").is_empty());
}

#[tokio::test]
async fn old_backups_go_with_the_pieces_that_they_alone_have() {
    let dir = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::folder(dir.path(), true).await.expect("a new shelf");
    for (time, from) in [(100, 2), (200, 3_000), (300, 3_500)] {
        saved(&shelf, &snapshot(from..from + 3_000, from), time).await;
    }
    let before = pieces(dir.path()).len();
    let keep = Keep { count: Some(2), age: None };
    let pruned = prune(&shelf, keep, 400).await.expect("prunes");
    assert_eq!((pruned.backups.len(), pruned.pieces as usize), (1, before - pieces(dir.path()).len()));
    assert!(pruned.pieces > 0);
    let left = good(&shelf).await;
    assert_eq!(left.iter().map(|manifest| manifest.time).collect::<Vec<_>>(), [200, 300]);
    for manifest in &left {
        verify(&shelf, manifest, |_| {}).await.expect("whole");
    }
    // One that cannot be read may need any piece.
    std::fs::write(dir.path().join(left[0].name()), "{").expect("writes");
    let pruned = prune(&shelf, Keep { count: Some(1), age: None }, 400).await.expect("prunes");
    assert_eq!((pruned.backups.len(), pruned.pieces), (0, 0));
}

#[tokio::test]
async fn only_a_shelf_is_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let none = Shelf::folder(dir.path(), false).await.expect_err("there is none");
    assert!(none.to_string().contains("there are no backups here"), "{none}");
    std::fs::write(dir.path().join("photo"), "x").expect("writes");
    let other = Shelf::folder(dir.path(), true).await.expect_err("something else");
    assert!(other.to_string().contains("photo lies here"), "{other}");
    std::fs::remove_file(dir.path().join("photo")).expect("removes");
    std::fs::write(dir.path().join("kvorum-backup"), "{\"format\":2}\n").expect("writes");
    let later = Shelf::folder(dir.path(), true).await.expect_err("a later one");
    assert!(later.to_string().contains("a later format"), "{later}");
}

#[tokio::test]
async fn a_damaged_snapshot_is_not_taken() {
    let dir = tempfile::tempdir().expect("a folder");
    let shelf = Shelf::folder(dir.path(), true).await.expect("a new shelf");
    let mut file = snapshot(2..2_000, 0);
    let middle = file.len() / 2 / 4096 * 4096;
    file[middle..middle + 16].fill(0xff);
    let db = Db::open(file).expect("its meta pages are good");
    let error = save(&shelf, &db, about(1), &mut |_| {}).await.expect_err("damaged");
    assert!(matches!(error, Error::Snapshot(_)), "{error}");
    assert!(list(&shelf).await.expect("lists").is_empty());
}
