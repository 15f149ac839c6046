//! A file that etcd 3.7.3 wrote: `etcdctl snapshot save` after puts, deletions, a transaction, a
//! lease, users and a compaction at revision 3. The numbers are what `etcdutl` said about it.

use bolt::{Db, Summary, digest_follows};

const SAVED: &[u8] = include_bytes!("fixtures/etcd-3.7.3.db");

fn open() -> Db<&'static [u8]> {
    assert!(digest_follows(SAVED.len() as u64));
    Db::open(&SAVED[..SAVED.len() - 32]).expect("a file of etcd")
}

#[test]
fn status_is_what_etcdutl_says() {
    let expected = Summary { hash: 948_700_829, revision: 38, total_keys: 35, total_bytes: 40_960 };
    assert_eq!(open().summary().expect("readable"), expected);
}

#[test]
fn it_is_whole() {
    assert_eq!(open().check(), []);
}

#[test]
fn its_buckets_and_what_is_in_them() {
    let db = open();
    let mut text = String::new();
    for name in db.buckets().expect("readable") {
        let bucket = db.bucket(&name).expect("readable").expect("listed");
        text += &format!("{}: {}\n", name.escape_ascii(), bucket.pairs().count());
        for pair in bucket.pairs().take(if name == "key" { 3 } else { 9 }) {
            let (key, value) = pair.expect("readable");
            assert_eq!(bucket.get(&key).expect("readable"), Some(value.clone()));
            text += &format!("  {} = {}\n", key.escape_ascii(), value.escape_ascii());
        }
    }
    assert_eq!(text, include_str!("fixtures/etcd-3.7.3.txt"));
}

#[test]
fn a_pass_can_begin_anywhere() {
    let db = open();
    let bucket = db.bucket(b"key").expect("readable").expect("there");
    let all: Vec<_> = bucket.pairs().map(|pair| pair.expect("readable")).collect();
    assert_eq!(all.len(), 39);
    for at in 0..all.len() {
        for (from, first) in [(all[at].0.to_vec(), at), ([&all[at].0[..], b"\0"].concat(), at + 1)] {
            let rest: Vec<_> = bucket.pairs_from(&from).map(|pair| pair.expect("readable")).collect();
            assert_eq!(rest, all[first..]);
        }
    }
}
