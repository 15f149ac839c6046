//! Leases: unknown ones, moved keys, time.

use std::time::{Duration, Instant};

use client::wire::{Code, etcdserverpb::PutRequest};
use client::{Client, Error};

use crate::live::ops::put_request;
use crate::live::{PATIENCE, refused};
use crate::with_shared;

const NOT_FOUND: &str = "etcdserver: requested lease not found";

async fn put_under(client: &Client, key: &'static str, lease: i64) {
    client.put_with(PutRequest { lease, ..put_request(key, "x") }).await.unwrap();
}

#[test]
fn an_unknown_lease_is_told_in_three_ways() {
    with_shared(|client| async move {
        for id in [0x1234_5678, -3] {
            refused(client.lease_revoke(id).await, Code::NotFound, NOT_FOUND);
            assert_eq!(client.keep_alive(id).renew().await, Err(Error::LeaseGone { id }));
            for keys in [false, true] {
                let left = client.lease_time_to_live(id, keys).await.unwrap();
                assert_eq!((left.ttl, left.granted_ttl, left.id, left.keys.len()), (-1, 0, id, 0));
            }
        }
    });
}

#[test]
fn a_lease_is_granted_once_and_revoked_once() {
    with_shared(|client| async move {
        let begin = Instant::now();
        let granted = client.lease_grant(600, 0x0a11).await.unwrap();
        assert_eq!((granted.id, granted.ttl), (0x0a11, 600));
        refused(client.lease_grant(60, 0x0a11).await, Code::FailedPrecondition, "etcdserver: lease already exists");
        let left = client.lease_time_to_live(0x0a11, false).await.unwrap();
        // Seconds that have not passed are left.
        let least = 599 - begin.elapsed().as_secs() as i64;
        assert!(left.granted_ttl == 600 && (least..=600).contains(&left.ttl), "{left:?}");
        assert!(client.leases().await.unwrap().leases.iter().any(|lease| lease.id == 0x0a11));
        client.lease_revoke(0x0a11).await.unwrap();
        refused(client.lease_revoke(0x0a11).await, Code::NotFound, NOT_FOUND);
        assert!(!client.leases().await.unwrap().leases.iter().any(|lease| lease.id == 0x0a11));
    });
}

#[test]
fn times_are_kept_within_bounds() {
    with_shared(|client| async move {
        let text = "etcdserver: too large lease TTL";
        for ttl in [9_000_000_001, i64::MAX] {
            refused(client.lease_grant(ttl, 0).await, Code::OutOfRange, text);
        }
        // Never shorter than one and a half elections, in whole seconds.
        for (ttl, wanted) in [(1, 2), (2, 2), (0, 2), (-7, 2), (9_000_000_000, 9_000_000_000)] {
            let granted = client.lease_grant(ttl, 0).await.unwrap();
            assert_eq!(granted.ttl, wanted, "asked for {ttl}");
            assert_ne!(granted.id, 0);
            client.lease_revoke(granted.id).await.unwrap();
        }
    });
}

#[test]
fn a_key_goes_with_its_last_lease_alone() {
    with_shared(|client| async move {
        let one = client.lease_grant(60, 0).await.unwrap().id;
        let two = client.lease_grant(60, 0).await.unwrap().id;
        for name in ["move/other", "move/none", "move/stays", "move/deleted"] {
            put_under(&client, name, one).await;
        }
        put_under(&client, "move/other", two).await;
        put_under(&client, "move/none", 0).await;
        client.delete(client::key("move/deleted")).await.unwrap();
        client.put("move/deleted", "again").await.unwrap();
        let keys = client.lease_time_to_live(one, true).await.unwrap().keys;
        assert_eq!(keys, ["move/stays"]);
        client.lease_revoke(one).await.unwrap();
        for (name, there) in [("other", true), ("none", true), ("stays", false), ("deleted", true)] {
            let found = client.get(format!("move/{name}")).await.unwrap().is_some();
            assert_eq!(found, there, "{name}");
        }
        client.lease_revoke(two).await.unwrap();
        assert_eq!(client.get("move/other").await.unwrap(), None);
    });
}

#[test]
fn a_revoke_deletes_all_its_keys_in_one_revision() {
    with_shared(|client| async move {
        let lease = client.lease_grant(60, 0).await.unwrap().id;
        put_under(&client, "once/b", lease).await;
        put_under(&client, "once/a", lease).await;
        let before = client.range(client::key("once/a")).await.unwrap().kvs[0].mod_revision;
        let endpoint = crate::shared().member.endpoint();
        let watch = client::wire::etcdserverpb::WatchCreateRequest {
            start_revision: before + 1,
            ..client::prefix("once/").into()
        };
        let mut watch = crate::live::watching::Watching::open(&endpoint, watch).await;
        assert!(watch.next().await.created);
        client.lease_revoke(lease).await.unwrap();
        let events = watch.events(2).await;
        let names: Vec<&str> = events.iter().map(|(_, key, _)| key.as_str()).collect();
        assert_eq!(names, ["once/a", "once/b"]);
        assert!(events[0].2 == events[1].2 && events.iter().all(|(delete, _, _)| *delete), "{events:?}");
    });
}

#[test]
fn a_key_of_two_seconds_is_gone_after_two_and_soon() {
    with_shared(|client| async move {
        let begin = Instant::now();
        let lease = client.lease_grant(2, 0).await.unwrap().id;
        let granted = Instant::now();
        put_under(&client, "short/a", lease).await;
        while client.get("short/a").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let took = begin.elapsed();
        // The lease began behind `begin`; what is left to the machine is when we hear of its end.
        assert!(took >= Duration::from_secs(2), "gone after {took:?}");
        assert!(granted.elapsed() < Duration::from_secs(2) + PATIENCE, "gone after {took:?}");
        refused(client.lease_revoke(lease).await, Code::NotFound, NOT_FOUND);
    });
}

#[test]
fn a_lease_that_is_renewed_stays() {
    with_shared(|client| async move {
        // Long enough for a machine that is busy between two renewals.
        let lease = client.lease_grant(6, 0).await.unwrap().id;
        put_under(&client, "renewed/a", lease).await;
        let mut alive = client.keep_alive(lease);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(7500) {
            assert_eq!(alive.renew().await, Ok(6));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(client.get("renewed/a").await.unwrap().is_some());
        client.lease_revoke(lease).await.unwrap();
        assert_eq!(alive.renew().await, Err(Error::LeaseGone { id: lease }));
    });
}
