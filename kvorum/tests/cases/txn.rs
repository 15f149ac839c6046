//! Transactions: keys given twice, reads among writes, comparisons.

use client::Client;
use client::wire::{
    Code,
    etcdserverpb::{Compare, RequestOp, TxnRequest, compare::TargetUnion, response_op::Response},
};

use crate::live::ops::{compare, delete, get, get_at, nested, put, txn};
use crate::live::refused;
use crate::{COMPACTED, FUTURE, NO_KEY, revision, with_own, with_shared};

const TWICE: &str = "etcdserver: duplicate key given in txn request";

/// A transaction that does one or the other.
fn either(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, failure, ..TxnRequest::default() }
}

#[test]
fn a_key_is_put_once_in_every_branch() {
    with_shared(|client| async move {
        let x = || put("dup/x", "1");
        let inside = |ops: Vec<RequestOp>| nested(txn(ops));
        let both = || nested(either(vec![x()], vec![x()]));
        let twice: Vec<(&str, TxnRequest)> = vec![
            ("in one branch", txn(vec![x(), x()])),
            ("in the other branch", either(vec![], vec![x(), x()])),
            ("parent and nested", txn(vec![x(), inside(vec![x()])])),
            ("nested and parent", txn(vec![inside(vec![x()]), x()])),
            ("siblings", txn(vec![inside(vec![x()]), inside(vec![x()])])),
            ("siblings in either branch", txn(vec![both(), both()])),
            ("parent and the failure branch of a nested one", txn(vec![x(), nested(either(vec![], vec![x()]))])),
            ("two levels down", txn(vec![x(), inside(vec![inside(vec![x()])])])),
            ("inside a nested one", txn(vec![inside(vec![x(), x()])])),
            ("deleted before", txn(vec![delete("dup/x", ""), x()])),
            ("deleted after", txn(vec![x(), delete("dup/x", "")])),
            ("in a deleted range", txn(vec![delete("dup/a", "dup/z"), x()])),
            ("deleted in a nested one", txn(vec![x(), inside(vec![delete("dup/a", "dup/z")])])),
            ("put in a nested one", txn(vec![delete("dup/a", "dup/z"), inside(vec![x()])])),
            ("first key of a deleted range", txn(vec![delete("dup/x", "dup/z"), x()])),
        ];
        for (what, request) in twice {
            let result = client.txn(request).await;
            assert!(result.is_err(), "{what}: accepted");
            refused(result, Code::InvalidArgument, TWICE);
        }
        assert_eq!(client.get("dup/x").await.unwrap(), None);
    });
}

#[test]
fn what_only_looks_like_a_key_put_twice_is_done() {
    with_shared(|client| async move {
        let x = || put("once/x", "1");
        let done: Vec<(&str, TxnRequest)> = vec![
            ("one in each branch", either(vec![x()], vec![x()])),
            ("nested, in both branches", txn(vec![nested(either(vec![x()], vec![x()]))])),
            ("overlapping deletes", txn(vec![delete("once/a", "once/z"), delete("once/x", "")])),
            ("the same delete twice", txn(vec![delete("once/x", ""), delete("once/x", "")])),
            ("behind the end of a deleted range", txn(vec![delete("once/a", "once/x"), x()])),
            ("an empty range", txn(vec![delete("once/z", "once/a"), x()])),
            ("read and put", txn(vec![get("once/x", ""), x(), get("once/x", "")])),
            ("two keys", txn(vec![x(), put("once/y", "1")])),
            ("nothing", txn(vec![])),
        ];
        for (what, request) in done {
            if let Err(error) = client.txn(request).await {
                panic!("{what}: {error}");
            }
        }
    });
}

#[test]
fn a_delete_from_a_key_on_beside_a_covered_put_runs_in_order() {
    with_own(|client, _| async move {
        client.put("a", "0").await.unwrap();
        client.txn(txn(vec![put("x", "1"), delete("b", "\0")])).await.unwrap();
        assert_eq!(client.get("x").await.unwrap(), None);
        client.txn(txn(vec![delete("b", "\0"), put("x", "2")])).await.unwrap();
        assert_eq!(&client.get("x").await.unwrap().unwrap().value[..], b"2");
        assert!(client.get("a").await.unwrap().is_some());
    });
}

/// The values that a transaction's reads have found.
async fn read_values(client: &Client, request: TxnRequest) -> Vec<String> {
    let mut values = Vec::new();
    for response in client.txn(request).await.unwrap().responses {
        match response.response {
            Some(Response::ResponseRange(range)) => {
                values.extend(range.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()));
            }
            Some(Response::ResponseTxn(inner)) => {
                for response in inner.responses {
                    if let Some(Response::ResponseRange(range)) = response.response {
                        values.extend(range.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.value).into_owned()));
                    }
                }
            }
            _ => {}
        }
    }
    values
}

#[test]
fn a_transaction_reads_what_it_has_written() {
    with_shared(|client| async move {
        client.put("own/x", "0").await.unwrap();
        let ops = vec![get("own/x", ""), put("own/x", "1"), get("own/x", ""), nested(txn(vec![get("own/x", "")]))];
        assert_eq!(read_values(&client, txn(ops)).await, ["0", "1", "1"]);
        let ops = vec![delete("own/x", ""), get("own/x", ""), put("own/y", "2"), get("own/", "own0")];
        assert_eq!(read_values(&client, txn(ops)).await, ["2"]);
        // All of a transaction is one revision.
        let request = txn(vec![put("own/a", "1"), put("own/b", "2"), nested(txn(vec![put("own/c", "3")]))]);
        let at = revision(client.txn(request).await.unwrap().header);
        for name in ["own/a", "own/b", "own/c"] {
            let pair = client.get(name).await.unwrap().unwrap();
            assert_eq!((pair.mod_revision, pair.create_revision), (at, at));
        }
    });
}

#[test]
fn a_read_that_is_refused_takes_the_writes_with_it() {
    with_own(|client, _| async move {
        for value in ["2", "3", "4"] {
            client.put("a", value).await.unwrap();
        }
        client.compact(3).await.unwrap();
        for (at, text) in [(2, COMPACTED), (5, FUTURE), (999, FUTURE)] {
            for ops in [
                vec![put("z", "x"), get_at("a", "", at)],
                vec![get_at("a", "", at), put("z", "x")],
                vec![put("z", "x"), nested(txn(vec![get_at("a", "", at)]))],
            ] {
                refused(client.txn(txn(ops)).await, Code::OutOfRange, text);
            }
        }
        let nothing = client.range(client::key("z")).await.unwrap();
        assert_eq!((nothing.count, revision(nothing.header)), (0, 4));
        // A refusal in the branch that is not taken is none.
        let request = either(vec![put("z", "y")], vec![get_at("a", "", 2)]);
        assert_eq!(revision(client.txn(request).await.unwrap().header), 5);
        assert_eq!(read_values(&client, txn(vec![get_at("a", "", 3)])).await, ["3"]);
    });
}

#[test]
fn only_what_writes_costs_a_revision() {
    with_own(|client, _| async move {
        assert_eq!(revision(client.put("a", "1").await.unwrap().header), 2);
        let table: Vec<(TxnRequest, i64)> = vec![
            (txn(vec![]), 2),
            (txn(vec![get("a", "")]), 2),
            (txn(vec![delete("none", "")]), 2),
            (either(vec![], vec![put("a", "2")]), 2),
            (txn(vec![put("a", "2"), put("b", "2")]), 3),
            (txn(vec![delete("b", ""), delete("b", "")]), 4),
        ];
        for (request, wanted) in table {
            assert_eq!(revision(client.txn(request.clone()).await.unwrap().header), wanted, "{request:?}");
        }
    });
}

async fn holds(client: &Client, compare: Vec<Compare>) -> bool {
    client.txn(TxnRequest { compare, ..TxnRequest::default() }).await.unwrap().succeeded
}

#[test]
fn comparisons_of_a_missing_key() {
    use TargetUnion::{CreateRevision, Lease, ModRevision, Value, Version};
    with_shared(|client| async move {
        // All numbers of a missing key are 0; no value is equal, unequal, less or greater.
        let table = [
            (0, Version(0), true),
            (0, Version(1), false),
            (3, Version(1), true),
            (2, Version(1), true),
            (1, Version(0), false),
            (0, CreateRevision(0), true),
            (0, ModRevision(0), true),
            (0, ModRevision(99), false),
            (0, Lease(0), true),
            (0, Value("".into()), false),
            (0, Value("x".into()), false),
            (3, Value("x".into()), false),
            (2, Value("x".into()), false),
            (1, Value("".into()), false),
        ];
        for (result, with, wanted) in table {
            for end in ["", "miss/z"] {
                let got = holds(&client, vec![compare("miss/a", end, result, with.clone())]).await;
                assert_eq!(got, wanted, "{result} {with:?} to {end:?}");
            }
        }
    });
}

#[test]
fn comparisons_of_keys_that_are_there() {
    use TargetUnion::{CreateRevision, Lease, ModRevision, Value, Version};
    with_shared(|client| async move {
        let created = revision(client.put("cmp/a", "m").await.unwrap().header);
        let changed = revision(client.put("cmp/a", "n").await.unwrap().header);
        client.put("cmp/b", "z").await.unwrap();
        // Equal, greater, less, not equal.
        let table = [
            (Version(2), [true, false, false, false]),
            (Version(1), [false, true, false, true]),
            (Version(3), [false, false, true, true]),
            (CreateRevision(created), [true, false, false, false]),
            (ModRevision(changed), [true, false, false, false]),
            (ModRevision(created), [false, true, false, true]),
            (Value("n".into()), [true, false, false, false]),
            (Value("m".into()), [false, true, false, true]),
            (Value("na".into()), [false, false, true, true]),
            (Lease(0), [true, false, false, false]),
            (Lease(7), [false, false, true, true]),
        ];
        for (with, wanted) in table {
            for (result, wanted) in (0..).zip(wanted) {
                let got = holds(&client, vec![compare("cmp/a", "", result, with.clone())]).await;
                assert_eq!(got, wanted, "{result} {with:?}");
            }
        }
        // Every key of a range, and every comparison.
        assert!(holds(&client, vec![compare("cmp/", "cmp0", 1, Value("m".into()))]).await);
        assert!(!holds(&client, vec![compare("cmp/", "cmp0", 0, Version(2))]).await);
        let first = || compare("cmp/a", "", 0, Version(2));
        assert!(holds(&client, vec![first(), compare("cmp/b", "", 0, Version(1))]).await);
        assert!(!holds(&client, vec![first(), compare("cmp/b", "", 0, Version(2))]).await);
        assert!(holds(&client, vec![]).await);
    });
}

#[test]
fn nested_comparisons_see_the_writes_before_them() {
    with_shared(|client| async move {
        let inner = TxnRequest {
            compare: vec![compare("see/a", "", 0, TargetUnion::Version(0))],
            ..either(vec![put("see/took", "success")], vec![put("see/took", "failure")])
        };
        client.txn(txn(vec![put("see/a", "1"), nested(inner)])).await.unwrap();
        let took = client.get("see/took").await.unwrap().unwrap();
        assert_eq!(&took.value[..], b"success", "comparisons are decided before the first write");
    });
}

#[test]
fn operations_are_counted() {
    with_shared(|client| async move {
        let puts = |count: usize| (0..count).map(|n| put(format!("many/{n}"), "x")).collect::<Vec<_>>();
        let compares = |count: usize| {
            (0..count).map(|n| compare(format!("many/{n}"), "", 1, TargetUnion::Version(-1))).collect::<Vec<_>>()
        };
        client.txn(either(puts(128), puts(128))).await.unwrap();
        assert!(holds(&client, compares(128)).await);
        let text = "etcdserver: too many operations in txn request";
        let over = [
            txn(puts(129)),
            either(vec![], puts(129)),
            TxnRequest { compare: compares(129), ..TxnRequest::default() },
            txn(vec![nested(txn(puts(129)))]),
        ];
        for request in over {
            refused(client.txn(request).await, Code::InvalidArgument, text);
        }
        // A nested one has what the widest of its parent's lists leaves.
        client.txn(txn(vec![nested(txn(puts(127)))])).await.unwrap();
        refused(client.txn(txn(vec![nested(txn(puts(128)))])).await, Code::InvalidArgument, text);
        let wide = TxnRequest { compare: compares(100), ..txn(vec![nested(txn(puts(29)))]) };
        refused(client.txn(wide).await, Code::InvalidArgument, text);
        // Siblings do not share it.
        let many = |from: usize| (from..from + 120).map(|n| put(format!("many/{n}"), "x")).collect::<Vec<_>>();
        client.txn(txn(vec![nested(txn(many(0))), nested(txn(many(200)))])).await.unwrap();
    });
}

#[test]
fn every_operation_needs_a_key() {
    with_shared(|client| async move {
        let bad = [
            txn(vec![put("", "x")]),
            txn(vec![get("", "")]),
            txn(vec![delete("", "z")]),
            either(vec![], vec![put("", "x")]),
            txn(vec![nested(txn(vec![get("", "")]))]),
            TxnRequest { compare: vec![compare("", "", 0, TargetUnion::Version(0))], ..TxnRequest::default() },
        ];
        for request in bad {
            refused(client.txn(request).await, Code::InvalidArgument, NO_KEY);
        }
    });
}

#[test]
fn answers_stand_in_the_order_of_the_operations() {
    with_shared(|client| async move {
        let ops =
            vec![put("seq/a", "1"), get("seq/a", ""), nested(txn(vec![delete("seq/b", "")])), delete("seq/c", "")];
        let done = client.txn(txn(ops)).await.unwrap();
        assert!(done.succeeded);
        let kinds: Vec<&str> = done
            .responses
            .iter()
            .map(|response| match &response.response {
                Some(Response::ResponseRange(_)) => "range",
                Some(Response::ResponsePut(_)) => "put",
                Some(Response::ResponseDeleteRange(_)) => "delete",
                Some(Response::ResponseTxn(_)) => "txn",
                None => "none",
            })
            .collect();
        assert_eq!(kinds, ["put", "range", "txn", "delete"]);
    });
}
