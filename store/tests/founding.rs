//! The name of a founding: given once, part of the state, and kept in its image.

use store::command::{Origin, encode_cluster_version, seal};
use store::{Config, ImageHead, Member, Position, Store};

fn named(store: &mut Store, founding: u64) {
    let at = Position { index: store.applied().index + 1, term: 2 };
    let entry = seal(&encode_cluster_version("3.7.0", founding), Origin::default(), None);
    store.apply(at, &entry, None).expect("understood");
}

fn founded() -> Store {
    let member = Member { id: 1, name: "m1".into(), peer_urls: Vec::new(), client_urls: Vec::new() };
    Store::genesis(Config::default(), vec![member], Position { index: 1, term: 1 })
}

#[test]
fn the_first_name_stays() {
    let mut store = founded();
    named(&mut store, 0);
    assert_eq!(store.founding(), 0);
    let nameless = store.clone();
    named(&mut store, 5);
    assert_eq!(store.founding(), 5);
    let mut other = nameless;
    named(&mut other, 6);
    assert_ne!(store.digest(), other.digest(), "members of two foundings differ");
    let before = store.clone();
    named(&mut store, 6);
    let mut silent = before;
    named(&mut silent, 0);
    assert_eq!((store.founding(), store.digest()), (5, silent.digest()), "a later name says nothing");
}

#[test]
fn an_image_has_the_name_and_a_nameless_one_is_of_the_format_before() {
    let mut store = founded();
    named(&mut store, 0);
    let bytes = store.image_head().encode();
    assert_eq!((bytes[7], ImageHead::decode(&bytes).expect("whole").founding), (1, 0));
    named(&mut store, u64::MAX);
    for bytes in [store.image_head().encode(), store.image_head().encode_without_tables()] {
        assert_eq!(bytes[7], 3);
        assert_eq!(ImageHead::decode(&bytes).expect("whole").founding, u64::MAX);
    }
}

#[test]
fn a_state_that_is_made_begins_a_founding() {
    let mut made = founded();
    let nameless = made.digest();
    made.begin_founding(9);
    assert_eq!(made.founding(), 9);
    assert_ne!(made.digest(), nameless);
    named(&mut made, 5);
    assert_eq!(made.founding(), 9, "its first leader names no other");
    assert_eq!(ImageHead::decode(&made.image_head().encode()).expect("whole").founding, 9);
}
