//! Range: revisions, bounds, order, filters.

use client::wire::{
    Code,
    etcdserverpb::{RangeRequest, RangeResponse, range_request::SortTarget},
};
use client::{Client, from_key, key, prefix};

use crate::live::ops::{get_at, txn};
use crate::live::refused;
use crate::{COMPACTED, FUTURE, NO_KEY, revision, with_own, with_shared};

fn at(one: &'static str, revision: i64) -> RangeRequest {
    RangeRequest { revision, ..key(one).into() }
}

/// a at 2, 3, 4, gone at 5; b at 6; compacted at 5.
async fn compacted_at_5(client: &Client) {
    for value in ["2", "3", "4"] {
        client.put("a", value).await.unwrap();
    }
    client.delete(key("a")).await.unwrap();
    assert_eq!(revision(client.put("b", "6").await.unwrap().header), 6);
    client.compact(5).await.unwrap();
}

#[test]
fn reads_of_compacted_and_future_revisions_are_refused_each_in_its_words() {
    with_own(|client, _| async move {
        compacted_at_5(&client).await;
        for serializable in [false, true] {
            let ask = async |revision: i64| client.range(RangeRequest { serializable, ..at("a", revision) }).await;
            for gone in [1, 2, 4] {
                refused(ask(gone).await, Code::OutOfRange, COMPACTED);
            }
            let empty = ask(5).await.unwrap();
            assert_eq!((empty.kvs.len(), empty.count, revision(empty.header)), (0, 0, 6));
            for future in [7, 999, i64::MAX] {
                refused(ask(future).await, Code::OutOfRange, FUTURE);
            }
            // What is below zero is "now", as zero is.
            for now in [0, 6, -5, i64::MIN] {
                let range = RangeRequest { serializable, ..at("b", now) };
                assert_eq!(client.range(range).await.unwrap().kvs[0].mod_revision, 6, "{now}");
            }
        }
    });
}

#[test]
fn every_kind_of_read_minds_the_compaction() {
    with_own(|client, _| async move {
        compacted_at_5(&client).await;
        let kinds: [fn(&mut RangeRequest); 5] = [
            |r| r.count_only = true,
            |r| r.keys_only = true,
            |r| r.limit = 1,
            |r| r.sort_order = 2,
            |r| r.range_end = "\0".into(),
        ];
        for (n, kind) in kinds.iter().enumerate() {
            for (revision, text) in [(4, COMPACTED), (7, FUTURE)] {
                let mut range = at("b", revision);
                kind(&mut range);
                refused(client.range(range).await, Code::OutOfRange, text);
            }
            let mut range = at("b", 6);
            kind(&mut range);
            assert_eq!(client.range(range).await.unwrap().count, 1, "kind {n}");
        }
        for (revision, text) in [(4, COMPACTED), (7, FUTURE)] {
            let inside = txn(vec![get_at("b", "", revision)]);
            refused(client.txn(inside).await, Code::OutOfRange, text);
            let streamed = async { client.range_stream(at("b", revision)).await?.next().await };
            refused(streamed.await, Code::OutOfRange, text);
        }
    });
}

#[test]
fn a_new_store_is_at_revision_1() {
    with_own(|client, _| async move {
        for now in [0, 1, -1] {
            let empty = client.range(at("a", now)).await.unwrap();
            assert_eq!((empty.count, revision(empty.header)), (0, 1));
        }
        refused(client.range(at("a", 2)).await, Code::OutOfRange, FUTURE);
    });
}

async fn five(client: &Client, space: &str) {
    for n in 1..=5 {
        client.put(format!("{space}{n}"), format!("v{}", 9 - n)).await.unwrap();
    }
    // Version 2, and the newest.
    client.put(format!("{space}3"), "v0").await.unwrap();
}

fn keys(response: &RangeResponse) -> String {
    response.kvs.iter().filter_map(|kv| kv.key.last()).map(|byte| char::from(*byte)).collect()
}

#[test]
fn a_limit_says_that_there_is_more_and_counts_all() {
    with_shared(|client| async move {
        five(&client, "limit/").await;
        let table = [(0, 5, false), (1, 1, true), (4, 4, true), (5, 5, false), (6, 5, false), (-1, 5, false)];
        for (limit, got, more) in table {
            for sort_order in [0, 1, 2] {
                let range = RangeRequest { limit, sort_order, ..prefix("limit/").into() };
                let response = client.range(range).await.unwrap();
                assert_eq!(
                    (response.kvs.len(), response.more, response.count),
                    (got, more, 5),
                    "limit {limit}, order {sort_order}"
                );
            }
        }
        let counted = RangeRequest { limit: 2, count_only: true, ..prefix("limit/").into() };
        let counted = client.range(counted).await.unwrap();
        assert_eq!((counted.kvs.len(), counted.more, counted.count), (0, false, 5));
    });
}

#[test]
fn every_order_by_every_target() {
    with_shared(|client| async move {
        five(&client, "order/").await;
        // Order none, ascending, descending; target key, version, create, mod, value.
        let table = [
            (0, 0, "12345"),
            (1, 0, "12345"),
            (2, 0, "54321"),
            (1, 1, "12453"),
            (2, 1, "31245"),
            (1, 2, "12345"),
            (2, 2, "54321"),
            (1, 3, "12453"),
            (2, 3, "35421"),
            (1, 4, "35421"),
            (2, 4, "12453"),
            // A target alone means ascending.
            (0, 3, "12453"),
            (0, 4, "35421"),
        ];
        for (sort_order, sort_target, wanted) in table {
            let range = RangeRequest { sort_order, sort_target, ..prefix("order/").into() };
            let all = client.range(range.clone()).await.unwrap();
            assert_eq!(keys(&all), wanted, "order {sort_order}, target {sort_target}");
            let first = client.range(RangeRequest { limit: 2, ..range }).await.unwrap();
            // Without an order no more than one key above the limit is read before it is sorted.
            let two = if (sort_order, sort_target) == (0, 4) { "32" } else { &wanted[..2] };
            assert_eq!(keys(&first), two, "order {sort_order}, target {sort_target}, two");
            assert!(first.more && first.count == 5);
        }
        for (sort_order, sort_target) in [(3, 0), (0, 5), (-1, 0), (1, -1)] {
            let range = RangeRequest { sort_order, sort_target, ..prefix("order/").into() };
            refused(client.range(range).await, Code::InvalidArgument, "etcdserver: invalid sort option");
        }
    });
}

#[test]
fn filters_by_revision_take_away_what_is_outside() {
    with_own(|client, _| async move {
        // 1 2 4 5 created and changed at 2 3 5 6; 3 created at 4, changed at 7.
        five(&client, "f").await;
        let table: [(fn(&mut RangeRequest), &str); 7] = [
            (|r| r.min_mod_revision = 6, "35"),
            (|r| r.max_mod_revision = 5, "124"),
            (|r| (r.min_mod_revision, r.max_mod_revision) = (3, 6), "245"),
            (|r| r.min_create_revision = 4, "345"),
            (|r| r.max_create_revision = 4, "123"),
            (|r| (r.max_create_revision, r.min_mod_revision) = (4, 7), "3"),
            (|r| (r.min_mod_revision, r.max_mod_revision) = (6, 3), ""),
        ];
        for (n, (filter, wanted)) in table.iter().enumerate() {
            let mut range: RangeRequest = prefix("f").into();
            filter(&mut range);
            let response = client.range(range).await.unwrap();
            assert_eq!((keys(&response).as_str(), response.count, response.more), (*wanted, 5, false), "filter {n}");
        }
        let limited = RangeRequest { min_mod_revision: 6, limit: 1, ..prefix("f").into() };
        let limited = client.range(limited).await.unwrap();
        assert_eq!((keys(&limited).as_str(), limited.count, limited.more), ("3", 5, true));
    });
}

#[test]
fn bounds_of_ranges() {
    with_own(|client, _| async move {
        for name in ["a", "b", "c", "c\0", "d"] {
            client.put(name, name).await.unwrap();
        }
        let table: [(&str, &str, i64); 9] = [
            ("a", "", 1),
            ("a", "c", 2),
            ("c", "c\0", 1),
            ("c", "c\0\0", 2),
            ("b", "\0", 4),
            ("\0", "\0", 5),
            ("c", "a", 0),
            ("c", "c", 0),
            ("x", "", 0),
        ];
        for (first, end, count) in table {
            let range = RangeRequest { key: first.into(), range_end: end.into(), ..RangeRequest::default() };
            assert_eq!(client.range(range).await.unwrap().count, count, "{first:?} to {end:?}");
        }
        for end in ["", "\0", "z"] {
            let range = RangeRequest { range_end: end.into(), ..RangeRequest::default() };
            refused(client.range(range).await, Code::InvalidArgument, NO_KEY);
        }
        let names = RangeRequest { keys_only: true, ..from_key("c").into() };
        let names = client.range(names).await.unwrap();
        assert_eq!(names.kvs.len(), 3);
        assert!(names.kvs.iter().all(|kv| kv.value.is_empty() && kv.version == 1));
    });
}

#[test]
fn keys_and_values_are_any_bytes() {
    with_shared(|client| async move {
        let odd: &[u8] = b"odd/\xff\0\xfe";
        client.put(odd, &b"\0\xff"[..]).await.unwrap();
        let pair = client.get(odd).await.unwrap().unwrap();
        assert_eq!((&pair.key[..], &pair.value[..]), (odd, &b"\0\xff"[..]));
        client.put("odd/empty", "").await.unwrap();
        assert_eq!(client.get("odd/empty").await.unwrap().unwrap().value.len(), 0);
        assert_eq!(client.get("odd/none").await.unwrap(), None);
    });
}

/// A stream that names what to sort by and not how is sorted by it, ascending, over all of its
/// messages.
#[test]
fn a_stream_with_a_target_and_no_order_is_sorted() {
    with_shared(|client| async move {
        five(&client, "sorted/").await;
        let streamed = async |range: RangeRequest| {
            let mut stream = client.range_stream(range).await.unwrap();
            let (mut all, mut last) = (String::new(), None);
            while let Some(response) = stream.next().await.unwrap() {
                all += &keys(&response);
                last = Some(response);
            }
            (all, last.unwrap())
        };
        let of = |target: SortTarget| RangeRequest { sort_target: target.into(), ..prefix("sorted/").into() };
        let table = [
            (SortTarget::Key, "12345"),
            (SortTarget::Version, "12453"),
            (SortTarget::Create, "12345"),
            (SortTarget::Mod, "12453"),
            (SortTarget::Value, "35421"),
        ];
        for (target, order) in table {
            let (keys, last) = streamed(of(target)).await;
            assert_eq!((keys.as_str(), last.count, last.more), (order, 5, false), "{target:?}");
            assert!(last.header.is_some_and(|header| header.revision > 0));
        }
        let (none, last) = streamed(RangeRequest { count_only: true, ..of(SortTarget::Value) }).await;
        assert_eq!((none.as_str(), last.count), ("", 5));
        let (keys, _) = streamed(RangeRequest { keys_only: true, ..of(SortTarget::Value) }).await;
        assert_eq!(keys, "35421");
        // Many more than one message holds. (etcd sorts each message by itself.)
        if !crate::live::is_other() {
            for n in 0..100 {
                client.put(format!("sorted2/{n:02}"), format!("{:02}", 99 - n)).await.unwrap();
            }
            let range = RangeRequest { sort_target: SortTarget::Value.into(), ..prefix("sorted2/").into() };
            let mut stream = client.range_stream(range).await.unwrap();
            let (mut values, mut messages) = (Vec::new(), 0);
            while let Some(response) = stream.next().await.unwrap() {
                messages += 1;
                values.extend(response.kvs.into_iter().map(|kv| kv.value));
            }
            assert!(values.is_sorted() && values.len() == 100 && messages > 1, "{messages}");
        }
    });
}
