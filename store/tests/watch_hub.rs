//! The hub against a dumb list of watches, and its ring at the edges.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::watch::{Hit, Hub, JOIN_REVISIONS, Join, Reset, Spec, WatchKey};
use store::{Event, KeyRange, Rev, RevisionEvents};

fn revision(main: i64, changes: &[(&str, bool)]) -> Arc<RevisionEvents> {
    let events = (0..).zip(changes).map(|(sub, (key, tombstone))| Event {
        tombstone: *tombstone,
        key: key.as_bytes().into(),
        record: Bytes::from_static(&[0; 100]),
        revision: Rev { main, sub },
        create: 0,
        prev: None,
    });
    Arc::new(RevisionEvents { revision: main, events: events.collect() })
}

fn spec(key: &str, end: &str) -> Spec {
    let range = KeyRange::new(key.as_bytes(), end.as_bytes());
    Spec { range, no_put: false, no_delete: false, prev_kv: false }
}

fn key(stream: u64, id: i64) -> WatchKey {
    WatchKey { stream, id }
}

fn publish(hub: &mut Hub, events: Arc<RevisionEvents>) -> BTreeMap<WatchKey, Vec<u32>> {
    let mut hits: Vec<Hit> = Vec::new();
    assert_eq!(hub.publish(events, &mut hits), None, "few watches, few events");
    let all = hits.len();
    let map: BTreeMap<_, _> = hits.into_iter().map(|hit| (hit.key, hit.picks.to_vec())).collect();
    assert_eq!(map.len(), all, "a watch was told twice of one revision");
    map
}

fn missed(join: Join) -> Vec<i64> {
    match join {
        Join::Joined { missed } => missed.iter().map(|events| events.revision).collect(),
        Join::Behind { .. } => panic!("behind"),
    }
}

#[test]
fn join_hands_over_the_ring_and_then_every_revision() {
    let mut hub = Hub::new(1000, 2, 1);
    for main in 2..=5 {
        assert!(publish(&mut hub, revision(main, &[("a", false)])).is_empty());
    }
    assert_eq!(hub.ring_start(), 2);
    assert_eq!(missed(hub.join(key(1, 0), spec("a", ""), 4, 5)), [4, 5]);
    assert_eq!(missed(hub.join(key(1, 1), spec("a", ""), 6, 5)), [0; 0]);
    assert_eq!(missed(hub.join(key(1, 2), spec("a", ""), 7, 5)), [0; 0]);
    let told = |hub: &mut Hub, main| {
        publish(hub, revision(main, &[("a", false)])).into_keys().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut hub, 6), [0, 1], "the third begins at 7");
    assert_eq!(told(&mut hub, 7), [0, 1, 2]);
    // 229 bytes a revision: four fit.
    assert_eq!(hub.ring_start(), 4);
    assert!(matches!(hub.join(key(1, 3), spec("a", ""), 3, 7), Join::Behind { .. }));
    assert_eq!(missed(hub.join(key(1, 3), spec("a", ""), 4, 7)), [4, 5, 6, 7]);
    assert_eq!(hub.count(), 4);
    hub.remove_stream(1);
    assert_eq!(hub.count(), 0);
    assert!(told(&mut hub, 8).is_empty());
}

#[test]
fn a_revision_larger_than_the_ring_leaves_it_empty() {
    let mut hub = Hub::new(100, 2, 1);
    publish(&mut hub, revision(2, &[("a", false)]));
    assert_eq!(hub.ring_start(), 3);
    assert!(matches!(hub.join(key(1, 0), spec("a", ""), 2, 2), Join::Behind { .. }));
    assert_eq!(missed(hub.join(key(1, 0), spec("a", ""), 3, 2)), [0; 0]);
}

#[test]
fn a_long_gap_is_not_joined_though_the_ring_has_it() {
    let mut hub = Hub::new(usize::MAX, 2, 1);
    let last = JOIN_REVISIONS as i64 + 10;
    for main in 2..=last {
        publish(&mut hub, revision(main, &[("a", false)]));
    }
    let edge = last + 1 - JOIN_REVISIONS as i64;
    assert!(matches!(hub.join(key(1, 0), spec("a", ""), edge - 1, last), Join::Behind { .. }));
    assert_eq!(missed(hub.join(key(1, 0), spec("a", ""), edge, last)).len(), JOIN_REVISIONS);
    let (part, next) = hub.since(edge - 1, 500).unwrap();
    assert_eq!((part.len(), next), (3, edge + 2));
    assert_eq!(hub.since(last + 1, 500).unwrap().1, last + 1);
    assert!(hub.since(1, 500).is_none());
}

#[test]
fn reset_tells_who_was_live_and_up_to_where() {
    let mut hub = Hub::new(1000, 2, 1);
    hub.join(key(3, 0), spec("a", ""), 2, 1);
    hub.join(key(1, 5), spec("a", "b"), 2, 1);
    hub.join(key(1, 6), spec("a", "b"), 2, 1);
    publish(&mut hub, revision(2, &[("x", false)]));
    assert_eq!(hub.reset(50), Reset { streams: vec![1, 3], posted: 2 });
    assert_eq!((hub.count(), hub.ring_start()), (0, 50));
    assert!(publish(&mut hub, revision(50, &[("a", false)])).is_empty());
}

#[test]
#[should_panic(expected = "skipped or repeated")]
fn a_gap_stops_the_member() {
    let _ = Hub::new(1000, 2, 1).publish(revision(3, &[("a", false)]), &mut Vec::new());
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn key(&mut self) -> String {
        (0..1 + self.below(3)).map(|_| ['a', 'b', 'c'][self.below(3)]).collect()
    }
}

#[test]
fn the_index_finds_what_a_list_finds() {
    let mut chance = Chance(7);
    let mut found = 0;
    for _ in 0..40 {
        let mut hub = Hub::new(5000, 2, 1);
        let mut list: BTreeMap<WatchKey, (Spec, i64)> = BTreeMap::new();
        let mut now = 1;
        for _ in 0..400 {
            let who = key(chance.below(4) as u64, chance.below(40) as i64);
            match chance.below(8) {
                0..=3 => {
                    let end = ["", "", "\0", "b", "cc"]
                        .get(chance.below(7))
                        .map_or_else(|| chance.key(), |end| (*end).to_owned());
                    let mut spec = spec(&chance.key(), &end);
                    (spec.no_put, spec.no_delete) = (chance.below(5) == 0, chance.below(5) == 0);
                    if spec.range.is_empty() {
                        continue;
                    }
                    let next = now + 1 + chance.below(3) as i64;
                    assert!(missed(hub.join(who, spec.clone(), next, now)).is_empty());
                    list.insert(who, (spec, next));
                }
                4 => {
                    hub.remove(who);
                    list.remove(&who);
                }
                5 if chance.below(20) == 0 => {
                    hub.remove_stream(who.stream);
                    list.retain(|key, _| key.stream != who.stream);
                }
                _ => {
                    now += 1;
                    let changes: Vec<(String, bool)> =
                        (0..1 + chance.below(4)).map(|_| (chance.key(), chance.below(3) == 0)).collect();
                    let changes: Vec<(&str, bool)> =
                        changes.iter().map(|(key, tombstone)| (&key[..], *tombstone)).collect();
                    let told = publish(&mut hub, revision(now, &changes));
                    let expected = expected(&list, now, &changes);
                    found += told.len();
                    assert_eq!(told, expected);
                }
            }
            assert_eq!(hub.count(), list.len());
        }
    }
    assert!(found > 10_000, "only {found} hits");
}

fn expected(
    list: &BTreeMap<WatchKey, (Spec, i64)>,
    now: i64,
    changes: &[(&str, bool)],
) -> BTreeMap<WatchKey, Vec<u32>> {
    let mut all = BTreeMap::new();
    for (who, (spec, _)) in list.iter().filter(|(_, (_, next))| *next <= now) {
        let wants = |(key, tombstone): &(&str, bool)| {
            spec.range.contains(key.as_bytes()) && !(if *tombstone { spec.no_delete } else { spec.no_put })
        };
        let picks: Vec<u32> = (0..).zip(changes).filter(|(_, change)| wants(change)).map(|(index, _)| index).collect();
        if !picks.is_empty() {
            all.insert(*who, picks);
        }
    }
    all
}
