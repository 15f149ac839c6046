//! Put and delete: what is checked, and what the flags keep.

use client::wire::{
    Code, Rpc,
    etcdserverpb::{DeleteRangeRequest, PutRequest, PutResponse},
};
use client::{Client, key, prefix};

use crate::live::ops::{put, put_op, put_request, txn};
use crate::live::refused;
use crate::{NO_KEY, revision, with_shared};

async fn put_with(client: &Client, request: PutRequest) -> client::Result<PutResponse> {
    client.call(Rpc::Put, &request).await
}

/// The same put alone, and as a transaction of one and of two levels: the same refusal.
async fn refused_everywhere(client: &Client, request: PutRequest, code: Code, text: &str) {
    refused(put_with(client, request.clone()).await, code, text);
    refused(client.txn(txn(vec![put_op(request.clone())])).await, code, text);
    let inner = txn(vec![put_op(request)]);
    refused(client.txn(txn(vec![crate::live::ops::nested(inner)])).await, code, text);
}

#[test]
fn puts_that_contradict_themselves_or_the_store_are_refused() {
    with_shared(|client| async move {
        let before = revision(client.put("puts/there", "x").await.unwrap().header);
        let there = || put_request("puts/there", "");
        let table = [
            (put_request("", "x"), Code::InvalidArgument, NO_KEY),
            (
                PutRequest { ignore_value: true, ..put_request("puts/none", "") },
                Code::InvalidArgument,
                "etcdserver: key not found",
            ),
            (
                PutRequest { ignore_lease: true, ..put_request("puts/none", "x") },
                Code::InvalidArgument,
                "etcdserver: key not found",
            ),
            (
                PutRequest { ignore_value: true, value: "y".into(), ..there() },
                Code::InvalidArgument,
                "etcdserver: value is provided",
            ),
            (
                PutRequest { ignore_lease: true, lease: 5, ..there() },
                Code::InvalidArgument,
                "etcdserver: lease is provided",
            ),
            (PutRequest { lease: 0x7777, ..there() }, Code::NotFound, "etcdserver: requested lease not found"),
            (PutRequest { lease: -1, ..there() }, Code::NotFound, "etcdserver: requested lease not found"),
            // The first complaint counts.
            (
                PutRequest { ignore_value: true, value: "y".into(), ..put_request("", "") },
                Code::InvalidArgument,
                NO_KEY,
            ),
        ];
        for (request, code, text) in table {
            refused_everywhere(&client, request, code, text).await;
        }
        let pair = client.get("puts/there").await.unwrap().unwrap();
        assert_eq!((&pair.value[..], pair.mod_revision), (&b"x"[..], before), "nothing was changed");
    });
}

#[test]
fn a_refused_put_takes_its_whole_transaction_with_it() {
    with_shared(|client| async move {
        let bad = PutRequest { lease: 0x7778, ..put_request("puts/bad", "x") };
        let both = txn(vec![put("puts/good", "x"), put_op(bad)]);
        refused(client.txn(both).await, Code::NotFound, "etcdserver: requested lease not found");
        assert_eq!(client.get("puts/good").await.unwrap(), None);
    });
}

#[test]
fn what_is_ignored_stays_as_it_was() {
    with_shared(|client| async move {
        let lease = client.lease_grant(60, 0).await.unwrap().id;
        put_with(&client, PutRequest { lease, ..put_request("keep/a", "1") }).await.unwrap();
        put_with(&client, PutRequest { ignore_lease: true, ..put_request("keep/a", "2") }).await.unwrap();
        let pair = client.get("keep/a").await.unwrap().unwrap();
        assert_eq!((&pair.value[..], pair.lease, pair.version), (&b"2"[..], lease, 2));
        put_with(&client, PutRequest { ignore_value: true, ..put_request("keep/a", "") }).await.unwrap();
        let pair = client.get("keep/a").await.unwrap().unwrap();
        assert_eq!((&pair.value[..], pair.lease, pair.version), (&b"2"[..], 0, 3));
        let both = PutRequest { ignore_value: true, ignore_lease: true, prev_kv: true, ..put_request("keep/a", "") };
        let answer = put_with(&client, both).await.unwrap();
        assert_eq!(&answer.prev_kv.unwrap().value[..], b"2");
        // A key that was put before in the same transaction is there.
        let again = PutRequest { ignore_value: true, ..put_request("keep/b", "") };
        let text = "etcdserver: duplicate key given in txn request";
        refused(client.txn(txn(vec![put("keep/b", "x"), put_op(again)])).await, Code::InvalidArgument, text);
    });
}

#[test]
fn a_put_gives_back_the_pair_before_if_asked() {
    with_shared(|client| async move {
        let ask = |value: &'static str| PutRequest { prev_kv: true, ..put_request("prev/a", value) };
        assert_eq!(put_with(&client, ask("1")).await.unwrap().prev_kv, None);
        let before = put_with(&client, ask("2")).await.unwrap().prev_kv.unwrap();
        assert_eq!((&before.value[..], before.version), (&b"1"[..], 1));
        assert_eq!(client.put("prev/a", "3").await.unwrap().prev_kv, None);
    });
}

#[test]
fn deletes_count_what_they_delete_and_cost_a_revision_only_then() {
    with_shared(|client| async move {
        for name in ["a", "b", "c"] {
            client.put(format!("del/{name}"), name).await.unwrap();
        }
        let delete = |range: client::KeyRange, prev_kv| DeleteRangeRequest { prev_kv, ..range.into() };
        let one = client.delete(delete(key("del/a"), true)).await.unwrap();
        assert_eq!((one.deleted, one.prev_kvs.len()), (1, 1));
        assert_eq!(&one.prev_kvs[0].value[..], b"a");
        let rest = client.delete(delete(prefix("del/"), false)).await.unwrap();
        assert_eq!((rest.deleted, rest.prev_kvs.len()), (2, 0));
        let none = client.delete(delete(prefix("del/"), true)).await.unwrap();
        assert_eq!((none.deleted, none.prev_kvs.len()), (0, 0));
        refused(client.delete(key("")).await, Code::InvalidArgument, NO_KEY);
        // A key that comes again begins anew.
        client.put("del/a", "again").await.unwrap();
        let pair = client.get("del/a").await.unwrap().unwrap();
        assert_eq!((pair.version, pair.create_revision), (1, pair.mod_revision));
    });
}

#[test]
fn a_request_beyond_the_limit_is_refused() {
    with_shared(|client| async move {
        let sized = |bytes: usize| vec![b'v'; bytes];
        client.put("large/a", sized(1_500_000)).await.unwrap();
        let text = "etcdserver: request is too large";
        refused(client.put("large/b", sized(1_600_000)).await, Code::InvalidArgument, text);
        refused(client.txn(txn(vec![put("large/b", sized(1_600_000))])).await, Code::InvalidArgument, text);
        // A message beyond half a MiB more is not even read.
        match client.put("large/b", sized(3_000_000)).await {
            Err(client::Error::Server { code: Code::ResourceExhausted, message }) => {
                assert!(message.contains("received message larger than max"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(client.get("large/b").await.unwrap(), None);
        client.delete(prefix("large/")).await.unwrap();
    });
}
