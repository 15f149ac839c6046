//! Leases, strictly: one whose renewals are answered does not end; one that nobody renews ends in
//! its time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use prost::Message;
use tokio::time::{sleep, timeout};
use wire::{Method, Rpc, etcdserverpb as pb};

use super::clients::{Members, PATIENCE, World};

/// Of the leases that are kept alive, in seconds.
const TTL: i64 = 10;
/// Of the leases that nobody renews: etcd's least at an election timeout of a second.
const ABANDONED_TTL: i64 = 2;
/// How late a lease may end: ticks, batches of expiries, a busy machine.
const MARGIN: Duration = Duration::from_secs(3);
/// A new leader gives each lease its time again, and there is none for a while before.
const PER_TERM: Duration = Duration::from_secs(ABANDONED_TTL as u64 + 4);

/// A lease kept alive on any member; its key must stay. One that ended because nobody answered for
/// its whole time is granted anew.
pub async fn kept(world: Arc<World>, number: i64, seed: u64) {
    let mut members = Members::new(&world, seed);
    for id in (0..).map(|life| number + life * 1000) {
        grant(&mut members, id, TTL).await;
        let put = pb::PutRequest { key: format!("l/{id}").into(), lease: id, ..Default::default() };
        let mut held = Instant::now();
        let attached = loop {
            match members.call::<_, pb::PutResponse>(Rpc::Put, &put).await {
                Ok(_) => break true,
                Err(error) if error.to_string().contains("lease not found") => break false,
                Err(_) => {}
            }
        };
        if !attached {
            continue;
        }
        loop {
            let sent = Instant::now();
            let at = members.any();
            match timeout(PATIENCE, renew(&mut members, at, id)).await {
                Ok(Ok(ttl)) if ttl > 0 => {
                    held = sent;
                    world.expected().counts.renewals += 1;
                }
                Ok(Ok(_)) => {
                    // Nobody can hold a lease that was not renewed in its time.
                    if held.elapsed() < Duration::from_secs(TTL as u64) {
                        let what = format!("lease {id} is lost {:?} after it was renewed for {TTL} s", held.elapsed());
                        world.expected().problem(what);
                    }
                    break;
                }
                _ => members.forget(at),
            }
            sleep(Duration::from_millis(700)).await;
        }
    }
}

async fn grant(members: &mut Members, id: i64, ttl: i64) {
    let request = pb::LeaseGrantRequest { ttl, id };
    while let Err(error) = members.call::<_, pb::LeaseGrantResponse>(Rpc::LeaseGrant, &request).await {
        if error.to_string().contains("already exists") {
            return;
        }
    }
}

async fn renew(members: &mut Members, at: usize, id: i64) -> Result<i64> {
    let raw = members.member(at).await?;
    let request = pb::LeaseKeepAliveRequest { id }.encode_to_vec();
    let (answers, end) = raw.collect(Method::of(Rpc::LeaseKeepAlive).path, request.into()).await;
    match (answers.into_iter().next(), end) {
        (Some(answer), _) => Ok(pb::LeaseKeepAliveResponse::decode(answer)?.ttl),
        (None, end) => bail!("no answer to a keep-alive: {end:?}"),
    }
}

/// A lease that is granted and never renewed: its key is there for its time, and gone soon after.
/// The cluster does not become quiet before it is gone.
pub async fn abandoned(world: Arc<World>, id: i64, seed: u64) {
    let _gate = world.gate.read().await;
    let mut members = Members::new(&world, seed);
    let sent = Instant::now();
    let request = pb::LeaseGrantRequest { ttl: ABANDONED_TTL, id };
    let Ok(granted) = members.call::<_, pb::LeaseGrantResponse>(Rpc::LeaseGrant, &request).await else {
        return gone(&mut members, id).await;
    };
    let (known, term) = (Instant::now(), granted.header.map_or(0, |header| header.raft_term));
    let key = format!("a/{id}");
    let put = pb::PutRequest { key: key.clone().into(), lease: id, ..Default::default() };
    let attached = members.call::<_, pb::PutResponse>(Rpc::Put, &put).await.is_ok();
    if !attached {
        return gone(&mut members, id).await;
    }
    let read = pb::RangeRequest { key: key.into(), ..Default::default() };
    loop {
        let asked = Instant::now();
        let Ok(answer) = members.call::<_, pb::RangeResponse>(Rpc::Range, &read).await else { continue };
        let terms = answer.header.map_or(0, |header| header.raft_term).saturating_sub(term) as u32;
        let ttl = Duration::from_secs(ABANDONED_TTL as u64);
        if answer.kvs.is_empty() {
            if sent.elapsed() < ttl {
                let what = format!("lease {id} of {ABANDONED_TTL} s ended {:?} after it was asked for", sent.elapsed());
                world.expected().problem(what);
            }
            world.expected().counts.expired += 1;
            return;
        }
        if asked > known + ttl + MARGIN + PER_TERM * terms {
            let late = asked.duration_since(known);
            let what = format!("lease {id} of {ABANDONED_TTL} s is still there after {late:?} and {terms} terms");
            return world.expected().problem(what);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A lease of which nobody knows whether it was granted: it must not end while the cluster is
/// quiet.
async fn gone(members: &mut Members, id: i64) {
    let revoke = pb::LeaseRevokeRequest { id };
    loop {
        match members.call::<_, pb::LeaseRevokeResponse>(Rpc::LeaseRevoke, &revoke).await {
            Ok(_) => return,
            Err(error) if error.to_string().contains("not found") => return,
            Err(_) => {}
        }
    }
}
