//! The client against a server that is running: etcd or kvorum, one member or
//! more, named by `KVORUM_TEST_ENDPOINTS=host:port[,host:port…]`, or started from
//! the folder `KVORUM_TEST_ETCD`. Without either these tests say so and pass.

mod proxy;
mod real;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use client::{Client, Error, from_key, key, prefix, wire};
use prost::Message;
use proxy::Proxy;
use wire::{
    Code,
    etcdserverpb::{
        PutRequest, PutResponse, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest, request_op::Request,
    },
};

/// Runs a test with a client and a prefix of its own.
fn live<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Client, String, Vec<String>) -> F) {
    let running = std::env::var("KVORUM_TEST_ENDPOINTS").ok();
    let started = match &running {
        Some(_) => None,
        None => match real::programs(name) {
            Some(programs) => Some(real::Cluster::start(&programs, 1, "http", &[])),
            None => return,
        },
    };
    let endpoints = |cluster: &real::Cluster| cluster.endpoints().iter().map(|e| e.replace("http://", "")).collect();
    let servers: Vec<String> = match &running {
        Some(named) => named.split(',').map(str::to_owned).collect(),
        None => started.as_ref().map(endpoints).unwrap_or_default(),
    };
    // One at a time: what one compacts another would miss.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(&servers).unwrap();
        if let Some(cluster) = &started {
            cluster.ready(&client).await;
        }
        let space = format!("{name}-{}/", std::process::id());
        client.delete(prefix(space.clone())).await.unwrap();
        tokio::time::timeout(4 * real::PATIENCE, test(client, space, servers)).await.expect("the test takes too long");
    });
}

#[test]
fn keys() {
    live("keys", |client, space, _| async move {
        let name = |n: &str| format!("{space}{n}");
        assert_eq!(client.get(name("a")).await.unwrap(), None);
        let first = client.put(name("a"), "1").await.unwrap().header.unwrap().revision;
        client.put(name("b"), "2").await.unwrap();
        let pair = client.get(name("a")).await.unwrap().unwrap();
        assert_eq!((&pair.value[..], pair.mod_revision, pair.version), (&b"1"[..], first, 1));

        let past = RangeRequest { revision: first, ..prefix(space.clone()).into() };
        assert_eq!(client.range(past).await.unwrap().count, 1);
        assert_eq!(client.range(prefix(space.clone())).await.unwrap().count, 2);

        let op = |request| RequestOp { request: Some(request) };
        let put = PutRequest { key: name("c").into(), value: "3".into(), ..Default::default() };
        let success = vec![op(Request::RequestPut(put)), op(Request::RequestRange(key(name("c")).into()))];
        let done = client.txn(TxnRequest { success, ..Default::default() }).await.unwrap();
        assert!(done.succeeded);
        assert_eq!(done.responses.len(), 2);

        assert_eq!(client.delete(prefix(space.clone())).await.unwrap().deleted, 3);
        let error = client.put("", "x").await.unwrap_err();
        let message = "etcdserver: key is not provided".to_owned();
        assert_eq!(error, Error::Server { code: Code::InvalidArgument, message });
        assert!(!error.maybe_done());
    });
}

#[test]
fn a_large_range_in_pieces() {
    live("pieces", |client, space, _| async move {
        for n in 0..300 {
            client.put(format!("{space}{n:03}"), vec![b'v'; 10_000]).await.unwrap();
        }
        let mut pieces = client.range_stream(prefix(space.clone())).await.unwrap();
        let (mut keys, mut count, mut last) = (Vec::new(), 0, None);
        while let Some(piece) = pieces.next().await.unwrap() {
            count += 1;
            keys.extend(piece.kvs.into_iter().map(|kv| kv.key));
            last = Some(piece.count);
        }
        assert_eq!((keys.len(), last), (300, Some(300)));
        assert!(count > 1, "{count} pieces");
        assert!(keys.is_sorted());

        let filtered = RangeRequest { min_mod_revision: 1, ..from_key("").into() };
        let code = match client.range_stream(filtered).await {
            Ok(mut stream) => stream.next().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(code, Error::Server { code: Code::Unimplemented, .. }), "{code}");
        client.delete(prefix(space)).await.unwrap();
    });
}

#[test]
fn bytes_in_bytes_out() {
    live("raw", |client, space, _| async move {
        let request = PutRequest { key: space.clone().into(), value: "v".into(), ..Default::default() };
        let answer = client.raw("/etcdserverpb.KV/Put", request.encode_to_vec().into()).await.unwrap();
        let revision = PutResponse::decode(answer).unwrap().header.unwrap().revision;
        assert_eq!(client.get(space).await.unwrap().unwrap().mod_revision, revision);
        let error = client.raw("/etcdserverpb.KV/Nope", Bytes::new()).await.unwrap_err();
        assert!(matches!(error, Error::Server { code: Code::Unimplemented, .. }), "{error}");
        assert!(matches!(client.raw("not a path", Bytes::new()).await, Err(Error::Endpoint { .. })));
    });
}

#[test]
fn a_watch_outlives_its_connections() {
    live("watch", |client, space, servers| async move {
        let proxies = [Proxy::to(servers[0].clone()).await, Proxy::to(servers[servers.len() - 1].clone()).await];
        let watching = Client::new(proxies.iter().map(|p| p.address.clone())).unwrap();
        let mut watcher = watching.watch(prefix(space.clone()));
        watcher.ready().await.unwrap();
        // Cut before the first event: it must be there all the same.
        proxies[0].cut();
        let mut wanted = Vec::new();
        let mut seen = Vec::new();
        for n in 0..200 {
            let put = client.put(format!("{space}{}", n % 7), format!("{n}")).await.unwrap();
            wanted.push(put.header.unwrap().revision);
            if n % 10 == 0 {
                proxies[n / 10 % 2].cut();
            }
            if n % 3 == 0 {
                seen.extend(watcher.next().await.unwrap().events);
            }
        }
        while seen.len() < wanted.len() {
            seen.extend(watcher.next().await.unwrap().events);
        }
        let seen: Vec<i64> = seen.iter().map(|e| e.kv.as_ref().unwrap().mod_revision).collect();
        assert_eq!(seen, wanted);

        watcher.request_progress().await;
        let progress = watcher.next().await.unwrap();
        assert!(progress.events.is_empty() && progress.revision >= wanted[wanted.len() - 1], "{progress:?}");
        client.delete(prefix(space)).await.unwrap();
    });
}

#[test]
fn a_watch_that_cannot_go_on_says_why() {
    live("ended", |client, space, _| async move {
        let first = client.put(space.clone(), "1").await.unwrap().header.unwrap().revision;
        let last = client.put(space.clone(), "2").await.unwrap().header.unwrap().revision;
        client.compact(last).await.unwrap();
        let mut watcher = client.watch(WatchCreateRequest { start_revision: first, ..key(space.clone()).into() });
        assert_eq!(watcher.next().await, Err(Error::Compacted { oldest: last }));
        let reversed = WatchCreateRequest { range_end: "a".into(), ..key("b").into() };
        let reason = "mvcc: watcher range is empty".to_owned();
        assert_eq!(client.watch(reversed).next().await, Err(Error::Canceled { reason }));
    });
}

#[test]
fn a_lease_is_kept_and_its_end_is_seen() {
    live("lease", |client, space, servers| async move {
        let lease = client.lease_grant(60, 0).await.unwrap().id;
        client.put_with(PutRequest { key: space.clone().into(), lease, ..Default::default() }).await.unwrap();
        let proxy = Proxy::to(servers[0].clone()).await;
        let mut keep_alive = Client::new([&proxy.address]).unwrap().keep_alive(lease);
        assert_eq!(keep_alive.renew().await, Ok(60));
        proxy.cut();
        assert_eq!(keep_alive.renew().await, Ok(60));
        let left = client.lease_time_to_live(lease, true).await.unwrap();
        assert_eq!((left.granted_ttl, left.keys), (60, vec![Bytes::from(space.clone())]));
        assert!(client.leases().await.unwrap().leases.iter().any(|l| l.id == lease));
        client.lease_revoke(lease).await.unwrap();
        assert_eq!(client.get(space).await.unwrap(), None);
        assert_eq!(keep_alive.renew().await, Err(Error::LeaseGone { id: lease }));
        assert!(matches!(keep_alive.hold().await, Err(Error::LeaseGone { .. })));
    });
}

#[test]
fn writes_are_sent_once_reads_until_they_are_answered() {
    live("failover", |client, space, servers| async move {
        let proxies = [Proxy::to(servers[0].clone()).await, Proxy::to(servers[0].clone()).await];
        let failing = Client::new(proxies.iter().map(|p| p.address.clone())).unwrap();
        failing.put(space.clone(), "0").await.unwrap();
        // The first endpoint goes away: what was not sent is sent to the other.
        proxies[0].close();
        tokio::time::sleep(Duration::from_millis(50)).await;
        failing.get(space.clone()).await.unwrap().unwrap();
        let mut refused = 0;
        for n in 0..30 {
            // A cut under the request: either it was answered or it may have
            // been done, once.
            let before = client.get(space.clone()).await.unwrap().unwrap().version;
            let cut = async {
                tokio::time::sleep(Duration::from_millis(n / 3)).await;
                proxies[1].cut();
            };
            let (put, ()) = tokio::join!(failing.put(space.clone(), "1"), cut);
            let after = client.get(space.clone()).await.unwrap().unwrap().version;
            match put {
                Ok(_) => assert_eq!(after, before + 1, "round {n}"),
                Err(error) => {
                    refused += 1;
                    assert!(error.maybe_done(), "round {n}: {error}");
                    assert!(after <= before + 1, "round {n}");
                }
            }
            assert!(failing.get(space.clone()).await.unwrap().is_some());
        }
        eprintln!("failover: {refused} of 30 writes have an unknown end");
    });
}

#[test]
fn members_and_upkeep() {
    live("upkeep", |client, _, servers| async move {
        let members = client.member_list().await.unwrap().members;
        assert_eq!(members.len(), servers.len());
        let mut hashes = Vec::new();
        let revision = client.range(key("x")).await.unwrap().header.unwrap().revision;
        for server in &servers {
            let one = client.single(server).unwrap();
            let status = one.status().await.unwrap();
            assert!(members.iter().any(|m| m.id == status.leader));
            // A linearisable read first: then the member has the revision.
            one.range(key("x")).await.unwrap();
            hashes.push(one.hash_kv(revision).await.unwrap().hash);
        }
        assert!(hashes.iter().all(|h| *h == hashes[0]), "{hashes:?}");
    });
}
