//! What one client may ask for at once costs no more than its size: nested transactions, deletes
//! beside keys that are gone, watches by the thousand. Bounds are in seconds, and what each of
//! these tests guards against takes minutes.

use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::auth::AuthCommand;
use store::command::{self, Checked, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use store::watch::{Hit, Hub, Join, Reset, Spec, WatchKey};
use store::{Config, Error, Event, KeyRange, Origin, Outcome, Position, Reply, Rev, RevisionEvents, Store};

/// Far more than any of them takes, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn within<T>(what: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = what();
    assert!(begun.elapsed() < PATIENCE, "it took {:?}", begun.elapsed());
    done
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn apply(store: &mut Store, body: &Checked) -> Result<Reply, Error> {
    let at = Position { index: store.applied().index + 1, term: 1 };
    let data = command::seal(body, Origin { member: 1, boot: 2, seq: at.index }, Some(1));
    match store.apply(at, &data, None).expect("well formed") {
        Outcome::Done(applied) => applied.result,
        other => panic!("{other:?}"),
    }
}

fn put<'a>(key: &'a [u8], lease: i64) -> PutRequest<'a> {
    PutRequest { key, value: b"v", lease, ..Default::default() }
}

fn nested<'a>(success: Vec<RequestOp<'a>>) -> RequestOp<'a> {
    RequestOp::Txn(TxnRequest { success, ..Default::default() })
}

fn names(count: usize, prefix: &str) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("{prefix}{n:06}").into_bytes()).collect()
}

/// Each put was held against each delete.
#[test]
fn puts_of_a_transaction_beside_as_many_deletes() {
    let (gone, keys) = (names(100_000, "d"), names(100_000, "p"));
    let deletes = gone.iter().map(|key| DeleteRangeRequest { key, ..Default::default() });
    let deletes = deletes.map(RequestOp::DeleteRange).collect();
    let puts = keys.iter().map(|key| RequestOp::Put(put(key, 0))).collect();
    let mut txn = TxnRequest { success: vec![nested(deletes), nested(puts)], ..Default::default() };
    assert_eq!(within(|| command::check_txn(&txn, i64::MAX)), Ok(()));
    let RequestOp::Txn(second) = &mut txn.success[1] else { unreachable!() };
    second.success.push(RequestOp::Put(put(&gone[70_000], 0)));
    assert_eq!(command::check_txn(&txn, i64::MAX), Err(Error::DuplicateKey));
}

/// The same, for what puts with ignore flags rely on.
#[test]
fn puts_that_keep_their_lease_beside_as_many_deletes() {
    let mut store = Store::new(Config::default());
    let keys = names(60_000, "p");
    for key in &keys {
        apply(&mut store, &command::encode_put(&encoded(|out| put(key, 0).encode(out))).unwrap()).unwrap();
    }
    let gone = names(60_000, "d");
    let deletes = gone.iter().map(|key| DeleteRangeRequest { key, ..Default::default() });
    let kept = |key| PutRequest { ignore_lease: true, ..put(key, 0) };
    let success = vec![
        nested(deletes.map(RequestOp::DeleteRange).collect()),
        nested(keys.iter().map(|key| RequestOp::Put(kept(key))).collect()),
    ];
    let txn = TxnRequest { success, ..Default::default() };
    let body = command::encode_txn(&encoded(|out| txn.encode(out))).unwrap();
    within(|| apply(&mut store, &body)).unwrap();
    assert_eq!(store.keys(), 60_000);
}

/// Each delete walked over all keys that were deleted before and not compacted yet.
#[test]
fn deletes_pass_over_keys_that_are_gone() {
    let mut store = Store::new(Config::default());
    for key in names(100_000, "k") {
        apply(&mut store, &command::encode_put(&encoded(|out| put(&key, 0).encode(out))).unwrap()).unwrap();
    }
    let all = || DeleteRangeRequest { key: b"k", range_end: b"l", prev_kv: false };
    let success = (0..20_000).map(|_| RequestOp::DeleteRange(all())).collect();
    let txn = TxnRequest { success, ..Default::default() };
    let body = command::encode_txn(&encoded(|out| txn.encode(out))).unwrap();
    let reply = within(|| apply(&mut store, &body)).unwrap();
    let Reply::Txn { responses, .. } = reply else { panic!("{reply:?}") };
    let deleted: Vec<i64> = responses
        .iter()
        .map(|one| match one.reply {
            Reply::Delete { deleted, .. } => deleted,
            _ => panic!("{one:?}"),
        })
        .collect();
    assert_eq!((deleted[0], deleted[1..].iter().sum::<i64>()), (100_000, 0));
    assert_eq!(store.keys(), 0);
}

/// Each put on a lease looked at every key that hangs on it.
#[test]
fn puts_on_a_lease_with_many_keys_by_who_is_asked() {
    let mut store = Store::new(Config::default());
    apply(&mut store, &command::encode_lease_grant(7, 1000, 1)).unwrap();
    let keys = names(100_000, "k");
    for key in &keys {
        apply(&mut store, &command::encode_put(&encoded(|out| put(key, 7).encode(out))).unwrap()).unwrap();
    }
    let permission = |key: &'static [u8], range_end: &'static [u8]| store::auth::Permission {
        kind: store::auth::READ_WRITE,
        key: Bytes::from_static(key),
        range_end: Bytes::from_static(range_end),
    };
    let commands = [
        AuthCommand::UserAdd { name: "root", hashed: "", no_password: true },
        AuthCommand::UserGrantRole { user: "root", role: "root" },
        AuthCommand::UserAdd { name: "one", hashed: "", no_password: true },
        AuthCommand::RoleAdd { name: "ones" },
        AuthCommand::RoleGrantPermission { role: "ones", permission: Some(permission(b"k", b"k05")) },
        AuthCommand::RoleGrantPermission { role: "ones", permission: Some(permission(b"k05", b"l")) },
        AuthCommand::UserGrantRole { user: "one", role: "ones" },
        AuthCommand::Enable,
    ];
    for command in &commands {
        apply(&mut store, &command.body()).unwrap();
    }
    let success = keys[..20_000].iter().map(|key| RequestOp::Put(put(key, 7))).collect();
    let txn = TxnRequest { success, ..Default::default() };
    let body = command::encode_txn(&encoded(|out| txn.encode(out))).unwrap();
    let asker = |store: &Store| store::auth::Asker::User { name: "one", revision: store.auth().revision() };
    let signed = command::signed(&body, asker(&store));
    within(|| apply(&mut store, &signed)).unwrap();
    // One key behind those that it may write, and one between them.
    let revoke = |store: &mut Store| {
        let signed = command::signed(&command::encode_lease_revoke(7), asker(store));
        apply(store, &signed)
    };
    for other in [&b"l"[..], b"a"] {
        let body = command::encode_put(&encoded(|out| put(other, 7).encode(out))).unwrap();
        apply(&mut store, &command::signed(&body, store::auth::Asker::Member)).unwrap();
        assert_eq!(revoke(&mut store).err(), Some(Error::PermissionDenied));
        let body = command::encode_put(&encoded(|out| put(other, 0).encode(out))).unwrap();
        apply(&mut store, &command::signed(&body, store::auth::Asker::Member)).unwrap();
    }
    assert!(revoke(&mut store).is_ok());
}

fn spec(key: &[u8], end: &[u8]) -> Spec {
    Spec { range: KeyRange::new(key, end), no_put: false, no_delete: false, prev_kv: false }
}

fn revision(main: i64, keys: &[Vec<u8>]) -> Arc<RevisionEvents> {
    let events = (0..).zip(keys).map(|(sub, key)| Event {
        tombstone: false,
        key: key[..].into(),
        record: Bytes::from_static(&[0; 100]),
        revision: Rev { main, sub },
        create: 0,
        prev: None,
    });
    Arc::new(RevisionEvents { revision: main, events: events.collect() })
}

/// The numbers by which the ranges were balanced, in the order in which they were drawn. Whoever
/// knew them gave each range a start that made a list of the tree, and a walk over it as deep as
/// there were watches: the stack of a thread has no room for that.
#[test]
fn no_order_of_ranges_makes_their_tree_deep() {
    let scatter = |n: u64| {
        let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut hub = Hub::new(1 << 20, 2, 1);
    for n in 1..=200_000u64 {
        let start = scatter(n).to_be_bytes();
        let joined = hub.join(WatchKey { stream: 1, id: n as i64 }, spec(&start, b"\0"), 2, 1);
        assert!(matches!(joined, Join::Joined { .. }));
    }
    let mut hits: Vec<Hit> = Vec::new();
    assert_eq!(hub.publish(revision(2, &[vec![0xff; 9]]), &mut hits), None);
    assert_eq!(hits.len(), 200_000);
}

/// Each watch was listed beside each event, eight bytes a pair.
#[test]
fn many_events_are_matched_with_ranges_and_not_with_watches() {
    let mut hub = Hub::new(16 << 20, 2, 1);
    for id in 0..3_000 {
        hub.join(WatchKey { stream: 1, id }, spec(b"k", b"l"), 2, 1);
    }
    let keys = names(50_000, "k");
    let mut hits: Vec<Hit> = Vec::new();
    assert_eq!(within(|| hub.publish(revision(2, &keys), &mut hits)), None);
    assert_eq!((hits.len(), hits[0].picks.len()), (3_000, 50_000));
    assert!(hits.iter().all(|hit| Arc::ptr_eq(&hit.picks, &hits[0].picks)), "what is the same is there once");

    // Each with a range of its own: they are told to look for themselves.
    for id in 0..3_000_i64 {
        hub.join(WatchKey { stream: 2, id }, spec(b"k", format!("l{id}").as_bytes()), 3, 2);
    }
    hits.clear();
    let forgotten = within(|| hub.publish(revision(3, &keys), &mut hits));
    assert_eq!(forgotten, Some(Reset { streams: vec![1, 2], posted: 2 }));
    assert_eq!((hits.len(), hub.count()), (0, 0));
    let Join::Joined { missed } = hub.join(WatchKey { stream: 2, id: 1 }, spec(b"k", b"l"), 3, 3) else {
        panic!("far")
    };
    assert_eq!(missed.iter().map(|events| events.revision).collect::<Vec<_>>(), [3], "they find it there");
}
