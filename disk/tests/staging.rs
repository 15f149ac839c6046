//! What has come of a checkpoint stays in the staging place.

use bytes::Bytes;
use disk::checkpoint::{IndexFile, Manifest};
use disk::{Files, How, Identity, PAGE, staging, transfer};
use store::{Member, Position, Store};
use testkit::files::MemFiles;

const CLUSTER: u64 = 1;
const ID: Identity = Identity { cluster: CLUSTER, member: 2 };
const SENDER: Identity = Identity { cluster: CLUSTER, member: 3 };
const OTHER: Identity = Identity { cluster: CLUSTER, member: 4 };

/// A checkpoint whose index files are made up: `(number, bytes behind the header page)`.
fn manifest(id: Identity, index: u64, index_files: &[(u64, Vec<u8>)]) -> Bytes {
    let member = Member { id: ID.member, name: "a".into(), peer_urls: vec![], client_urls: vec![] };
    let store = Store::genesis(store::Config { segment_bytes: 1 << 20 }, vec![member], Position { index, term: 1 });
    let index_files = index_files
        .iter()
        .map(|(number, body)| IndexFile { number: *number, len: PAGE + body.len() as u64, crc: crc32c::crc32c(body) })
        .collect();
    Manifest { id, index, segments: vec![], index_files, tables: None, head: Bytes::from(store.image_head().encode()) }
        .encode()
}

/// What came of a file, as it lies there: made-up files are none that [`transfer::write_chunk`]
/// calls whole.
fn put(files: &MemFiles, name: &str, body: &[u8], upto: usize) {
    let whole = [&vec![7; PAGE as usize][..], body].concat();
    let file = files.open(&format!("incoming/{name}"), How::Write).expect("it was begun");
    file.write_at(0, &[&whole[..upto]]).expect("room");
}

fn begin(files: &MemFiles, manifest: &Bytes) -> Vec<u64> {
    transfer::begin(files, ID, manifest).expect("an offer");
    staging::received(files).expect("readable")
}

#[test]
fn a_transfer_goes_on_with_the_files_that_are_the_same() {
    let (first, second, third) = (vec![1; 5000], vec![2; 5000], vec![3; 5000]);
    let files = MemFiles::new();
    let offer = manifest(SENDER, 9, &[(1, first.clone()), (2, second.clone()), (3, third.clone())]);
    assert_eq!(begin(&files, &offer), [0, 0, 0]);
    put(&files, "index-0000000000000001", &first, 9096);
    put(&files, "index-0000000000000002", &second, 6000);
    put(&files, "index-0000000000000003", &third, 4000);
    // A piece of less than a header page is no gain: the page is written anew for every sender.
    assert_eq!(begin(&files, &offer), [9096, 6000, 0]);

    // Another sender, a later checkpoint, and one file of it is another one of the same name.
    let later = manifest(OTHER, 12, &[(1, first), (2, third.clone()), (3, third)]);
    assert_eq!(begin(&files, &later), [9096, 0, 0]);
    assert_eq!(staging::index(&files).expect("readable"), Some(12));
    let mut header = vec![0; PAGE as usize];
    let file = files.open("incoming/index-0000000000000001", How::Read).expect("kept");
    file.read_at(0, &mut header).expect("readable");
    assert_eq!(header[24..32], OTHER.member.to_le_bytes(), "the header page is the new sender's");
}

#[test]
fn a_complete_file_that_is_wrong_comes_again() {
    let body = vec![1; 5000];
    let files = MemFiles::new();
    let offer = manifest(SENDER, 9, &[(1, body.clone())]);
    begin(&files, &offer);
    put(&files, "index-0000000000000001", &body, 6000);
    files.edit("incoming/index-0000000000000001", |bytes| bytes[5000] ^= 1);
    assert_eq!(begin(&files, &offer), [6000], "a part is believed until it is complete");
    let file = files.open("incoming/index-0000000000000001", How::Write).expect("there");
    file.write_at(6000, &[&body[6000 - PAGE as usize..]]).expect("room");
    assert_eq!(begin(&files, &offer), [0]);
}

#[test]
fn what_the_state_has_overtaken_goes() {
    let files = MemFiles::new();
    let body = vec![1; 5000];
    begin(&files, &manifest(SENDER, 9, &[(1, body.clone())]));
    put(&files, "index-0000000000000001", &body, 6000);
    staging::drop_overtaken(&files, 8).expect("readable");
    assert_eq!(staging::received(&files).expect("kept"), [6000]);
    assert_eq!(transfer::finish(&files, ID).expect("readable").map(|manifest| manifest.index), None);
    assert_eq!(staging::index(&files).expect("readable"), Some(9), "a start keeps it");
    staging::drop_overtaken(&files, 9).expect("readable");
    assert_eq!(staging::index(&files).expect("readable"), None);
    assert!(files.list("incoming").expect("a directory").is_empty());
}

#[test]
fn half_a_manifest_keeps_nothing() {
    let files = MemFiles::new();
    let body = vec![1; 5000];
    let offer = manifest(SENDER, 9, &[(1, body.clone())]);
    begin(&files, &offer);
    put(&files, "index-0000000000000001", &body, 6000);
    files.edit("incoming/manifest", |bytes| bytes.truncate(50));
    assert_eq!(staging::index(&files).expect("readable"), None);
    assert_eq!(begin(&files, &offer), [0]);
}
