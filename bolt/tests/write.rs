//! What is written is read back, whole, by our reader; the stock tools are asked in kvorum's tests.

use bolt::{Db, Diverged, PAGE_SIZE, Planner, Writer, write_all};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Buckets = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>;

fn written(buckets: &Buckets) -> Vec<u8> {
    let all: Vec<(&[u8], Vec<(Vec<u8>, Vec<u8>)>)> = buckets
        .iter()
        .map(|(name, pairs)| (&name[..], pairs.iter().map(|(k, v)| (k.clone(), v.clone())).collect()))
        .collect();
    write_all(&all).expect("ascending pairs")
}

fn read_back(file: &[u8]) -> Buckets {
    let db = Db::open(file).expect("opens");
    assert_eq!(db.check(), [], "whole");
    assert_eq!(db.bytes(), file.len() as u64);
    let names = db.buckets().expect("readable");
    let read = |name| {
        let bucket = db.bucket(name).expect("readable").expect("listed");
        bucket.pairs().map(|pair| pair.expect("readable")).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
    };
    names.iter().map(|name| (name.to_vec(), read(name))).collect()
}

fn numbered(count: u32, key: usize, value: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pair = |n: u32| {
        let mut name = n.to_be_bytes().to_vec();
        name.resize(key.max(4), b'k');
        (name, vec![n as u8; value])
    };
    (0..count).map(pair).collect()
}

#[test]
fn no_bucket_and_empty_buckets() {
    for names in [vec![], vec!["a"], vec!["a", "b", "c"]] {
        let buckets: Buckets = names.iter().map(|name| (name.as_bytes().to_vec(), BTreeMap::new())).collect();
        assert_eq!(read_back(&written(&buckets)), buckets);
    }
}

#[test]
fn trees_of_every_height() {
    for (count, key, value) in [
        (1, 4, 0),
        (126, 4, 12),    // one leaf, full to the last byte
        (127, 4, 12),    // one more
        (30_000, 17, 9), // three levels
        (3000, 1000, 0), // few children to a branch: many levels
        (40, 5000, 1),   // keys larger than a page
        (9, 8, 300_000), // values of many pages
    ] {
        let buckets = Buckets::from([(b"key".to_vec(), numbered(count, key, value))]);
        assert_eq!(read_back(&written(&buckets)), buckets, "{count} pairs of {key} and {value} bytes");
    }
}

#[test]
fn memory_does_not_grow_with_the_pairs() {
    let mut planner = Planner::new();
    planner.bucket(b"key").expect("a name");
    for _ in 0..200_000 {
        planner.pair(8, 40).expect("small");
    }
    let plan = planner.finish();
    let mut writer = Writer::new(plan.clone());
    writer.bucket(b"key").expect("a name");
    let (mut most, mut total) = (0, 0);
    for n in 0..200_000u64 {
        writer.pair(&n.to_be_bytes(), &[7; 40]).expect("planned");
        most = most.max(writer.ready());
        total += writer.take().len() as u64;
    }
    total += writer.finish().expect("as planned").len() as u64;
    assert_eq!(total, plan.bytes());
    assert!(most <= 4 * PAGE_SIZE as usize, "{most} bytes at once");
}

#[test]
fn what_was_not_planned_is_refused() {
    let plan = || {
        let mut planner = Planner::new();
        planner.bucket(b"b").expect("a name");
        planner.pair(1, 4000).expect("small");
        planner.pair(1, 4000).expect("small");
        planner.finish()
    };
    let writer = || {
        let mut writer = Writer::new(plan());
        writer.bucket(b"b").expect("a name");
        writer
    };
    let mut fewer = writer();
    fewer.pair(b"a", &[0; 4000]).expect("planned");
    assert!(matches!(fewer.finish(), Err(Diverged::Plan(_))));
    let mut more = writer();
    let result = (1..20u8).try_for_each(|n| more.pair(&[n], &[0; 4000]));
    assert!(matches!(result, Err(Diverged::Plan(_))));
    let mut order = writer();
    order.pair(b"b", b"").expect("the first");
    assert_eq!(order.pair(b"b", b""), Err(Diverged::Order));
    assert_eq!(order.pair(b"a", b""), Err(Diverged::Order));
    assert_eq!(order.pair(b"", b""), Err(Diverged::Key(0)));
    assert_eq!(order.bucket(b"a"), Err(Diverged::Order));
    assert_eq!(Writer::new(plan()).pair(b"a", b""), Err(Diverged::NoBucket));
    assert_eq!(Planner::new().pair(1, 1), Err(Diverged::NoBucket));
    assert_eq!(Planner::new().pair(40_000, 1), Err(Diverged::Key(40_000)));
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (0..most, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    bytes(3000).prop_map(|mut name| {
        name.push(1);
        name
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_buckets_are_read_back(
        buckets in prop::collection::btree_map(name(), prop::collection::btree_map(name(), bytes(20_000), 0..300), 0..6)
    ) {
        prop_assert_eq!(read_back(&written(&buckets)), buckets);
    }
}
