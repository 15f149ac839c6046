//! Compaction and the hash that depends on it.

use client::wire::{
    Code, Rpc,
    etcdserverpb::{CompactionRequest, CompactionResponse},
};
use client::{Client, key};

use crate::live::refused;
use crate::{COMPACTED, FUTURE, revision, with_own};

async fn puts(client: &Client, count: i64) {
    for n in 0..count {
        client.put("a", n.to_string()).await.unwrap();
    }
}

async fn physically(client: &Client, revision: i64) -> client::Result<CompactionResponse> {
    client.call(Rpc::Compact, &CompactionRequest { revision, physical: true }).await
}

#[test]
fn a_revision_is_compacted_once_and_never_a_future_one() {
    with_own(|client, _| async move {
        puts(&client, 6).await;
        let done = client.compact(5).await.unwrap();
        assert_eq!(revision(done.header), 7, "a compaction is not a revision");
        for gone in [5, 4, 1, 0, -1, i64::MIN] {
            refused(client.compact(gone).await, Code::OutOfRange, COMPACTED);
            refused(physically(&client, gone).await, Code::OutOfRange, COMPACTED);
        }
        for future in [8, 999, i64::MAX] {
            refused(client.compact(future).await, Code::OutOfRange, FUTURE);
            refused(physically(&client, future).await, Code::OutOfRange, FUTURE);
        }
        client.compact(7).await.unwrap();
        refused(client.compact(7).await, Code::OutOfRange, COMPACTED);
        let pair = client.get("a").await.unwrap().unwrap();
        assert_eq!((&pair.value[..], pair.version, pair.create_revision), (&b"5"[..], 6, 2));
        assert_eq!(revision(client.put("a", "on").await.unwrap().header), 8);
    });
}

#[test]
fn revision_0_is_compacted_once_on_a_new_store() {
    with_own(|client, _| async move {
        refused(client.compact(-1).await, Code::OutOfRange, COMPACTED);
        client.compact(0).await.unwrap();
        refused(client.compact(0).await, Code::OutOfRange, COMPACTED);
        client.compact(1).await.unwrap();
        refused(client.compact(2).await, Code::OutOfRange, FUTURE);
    });
}

#[test]
fn a_hash_is_of_one_revision_and_of_nothing_compacted_or_future() {
    with_own(|client, _| async move {
        puts(&client, 5).await;
        let now = client.hash_kv(0).await.unwrap();
        assert_eq!((now.hash_revision, now.compact_revision), (6, -1));
        assert_eq!(client.hash_kv(6).await.unwrap().hash, now.hash);
        assert_ne!(client.hash_kv(5).await.unwrap().hash, now.hash);
        refused(client.hash_kv(7).await, Code::OutOfRange, FUTURE);
        client.compact(4).await.unwrap();
        let compacted = client.hash_kv(0).await.unwrap();
        assert_eq!((compacted.hash_revision, compacted.compact_revision), (6, 4));
        assert_eq!(client.hash_kv(4).await.unwrap().hash_revision, 4);
        for gone in [3, 1] {
            refused(client.hash_kv(gone).await, Code::OutOfRange, COMPACTED);
        }
    });
}

#[test]
fn hashes_are_etcds_through_a_compaction_at_a_delete() {
    with_own(|client, _| async move {
        for value in ["2", "3", "4"] {
            client.put("a", value).await.unwrap();
        }
        client.delete(key("a")).await.unwrap();
        client.put("a", "6").await.unwrap();
        // Written down from etcd 3.7.3: the delete stays while it is the newest at the
        // compaction, and goes with the next.
        let table = [(0, 6, 1_636_957_157), (0, 5, 4_195_363_088), (4, 6, 534_304_306), (4, 5, 4_218_384_198)];
        let table = table.into_iter().chain([(5, 6, 2_829_086_727), (6, 0, 2_829_086_727)]);
        let mut compacted = 0;
        for (compaction, at, wanted) in table {
            if compaction > compacted {
                client.compact(compaction).await.unwrap();
                compacted = compaction;
            }
            assert_eq!(client.hash_kv(at).await.unwrap().hash, wanted, "compacted at {compaction}, hash of {at}");
        }
    });
}

#[test]
fn a_physical_compaction_answers_when_the_old_is_deleted() {
    with_own(|client, _| async move {
        let value = vec![b'v'; 100_000];
        for _ in 0..50 {
            client.put("a", value.clone()).await.unwrap();
        }
        let full = client.status().await.unwrap().db_size_in_use;
        // etcd counts what it has written to its file, up to a tenth of a second late.
        assert!(full > 3_000_000, "{full} bytes in use");
        let newest = revision(client.delete(key("a")).await.unwrap().header);
        let done = physically(&client, newest).await.unwrap();
        assert_eq!(revision(done.header), newest);
        let left = client.status().await.unwrap().db_size_in_use;
        assert!(left < 500_000, "{left} of {full} bytes are still in use");
        assert_eq!(client.get("a").await.unwrap(), None);
    });
}
