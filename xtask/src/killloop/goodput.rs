//! Goodput against load: many clients write big values at a follower over a narrow link. With eight
//! times the clients no less may come through, and no value may cross the link again and again.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use tokio::time::timeout;
use wire::{Rpc, etcdserverpb as pb};

use super::link::{Limits, links};
use super::long;
use crate::{
    raw::Raw,
    server::{self, Program, Server},
};

const VALUE: usize = 100_000;
const FEW: usize = 8;
const MANY: usize = 64;
/// How long each load is measured, behind a time in which it settles.
const TIME: Duration = Duration::from_secs(15);
const SETTLE: Duration = Duration::from_secs(3);
/// Share of the few clients' goodput that the many must reach.
const SHARE: f64 = 0.8;
/// A value crosses the link to the leader once, and comes back once as an entry.
const CROSSINGS: f64 = 3.0;

#[derive(Debug, Default)]
struct Counts {
    proposed: AtomicU64,
    acknowledged: AtomicU64,
    failed: AtomicU64,
}

/// What a load achieved.
#[derive(Debug)]
struct Load {
    clients: usize,
    /// Acknowledged bytes a second.
    goodput: f64,
    failed: u64,
    /// Bytes through the two ends of the link per byte that was proposed.
    crossings: f64,
}

/// # Errors
/// If more clients get less through, values cross the link too often, or a long one does not
/// arrive.
pub async fn goodput(program: &Program, rate: u64, dir: &Path) -> Result<()> {
    let mut ports = server::ports(3)?;
    let limits = Limits { rate, delay: Duration::from_millis(2) };
    let links = links(&mut ports, limits)?;
    let mut members = server::cluster_at(program, &ports, dir, &[])?;
    for member in &mut members {
        member.ready(Duration::from_secs(60)).await?;
    }
    let leader = leader(&members).await?;
    let follower = (leader + 1) % members.len();
    let mut loads = Vec::new();
    for clients in [FEW, MANY] {
        let carried = || links[leader].carried() + links[follower].carried();
        let load = measure(&members[follower].endpoint(), clients, carried).await;
        println!(
            "{clients} clients, values of {VALUE} B over {:.1} MB/s: {:.2} MB/s acknowledged, {} failed, {:.2} bytes \
             through the link per byte proposed",
            rate as f64 / 1e6,
            load.goodput / 1e6,
            load.failed,
            load.crossings
        );
        loads.push(load);
    }
    judge(&loads[0], &loads[1])?;
    long::long_value(&members, leader, &links).await
}

fn judge(few: &Load, many: &Load) -> Result<()> {
    if many.goodput < few.goodput * SHARE {
        bail!(
            "{} clients get {:.0} B/s through, {} got {:.0} B/s: load makes it less",
            many.clients,
            many.goodput,
            few.clients,
            few.goodput
        );
    }
    match [few, many].into_iter().find(|load| load.crossings >= CROSSINGS) {
        Some(load) => bail!("{} clients: {:.2} bytes cross the link for each proposed", load.clients, load.crossings),
        None => Ok(()),
    }
}

async fn leader(members: &[Server]) -> Result<usize> {
    for (at, member) in members.iter().enumerate() {
        let raw = Raw::connect(&member.endpoint()).await?;
        let status: pb::StatusResponse = raw.call(Rpc::Status, &pb::StatusRequest {}).await?;
        if status.header.is_some_and(|header| header.member_id == status.leader) {
            return Ok(at);
        }
    }
    bail!("nobody leads")
}

async fn measure(endpoint: &str, clients: usize, carried: impl Fn() -> u64) -> Load {
    let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..clients)
        .map(|number| tokio::spawn(client(endpoint.to_owned(), number, Arc::clone(&counts), Arc::clone(&stop))))
        .collect();
    tokio::time::sleep(SETTLE).await;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (begin, before) = (Instant::now(), (read(&counts.acknowledged), read(&counts.proposed), carried()));
    tokio::time::sleep(TIME).await;
    let seconds = begin.elapsed().as_secs_f64();
    let acknowledged = read(&counts.acknowledged) - before.0;
    let proposed = (read(&counts.proposed) - before.1).max(acknowledged).max(1);
    let crossings = (carried() - before.2) as f64 / (proposed as f64 * VALUE as f64);
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        // What is under way is answered or given up; the next load begins on an idle link.
        let _ = timeout(Duration::from_secs(20), task).await;
    }
    let goodput = acknowledged as f64 * VALUE as f64 / seconds;
    Load { clients, goodput, failed: read(&counts.failed), crossings }
}

async fn client(endpoint: String, number: usize, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    let mut raw = None;
    while !stop.load(Ordering::Relaxed) {
        let connected = match raw.take() {
            Some(raw) => Ok(raw),
            None => Raw::connect(&endpoint).await.context("connecting"),
        };
        let Ok(connected) = connected else { continue };
        let value: Bytes = vec![b'a' + (number % 26) as u8; VALUE].into();
        let put = pb::PutRequest { key: format!("load/{number}").into(), value, ..Default::default() };
        counts.proposed.fetch_add(1, Ordering::Relaxed);
        match connected.call::<_, pb::PutResponse>(Rpc::Put, &put).await {
            Ok(_) => counts.acknowledged.fetch_add(1, Ordering::Relaxed),
            Err(_) => counts.failed.fetch_add(1, Ordering::Relaxed),
        };
        raw = Some(connected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_under_load_and_values_sent_again_are_seen() {
        let load = |clients, goodput, crossings| Load { clients, goodput, failed: 0, crossings };
        assert!(judge(&load(8, 2e6, 2.1), &load(64, 1.9e6, 2.2)).is_ok());
        assert!(judge(&load(8, 2e6, 2.1), &load(64, 0.5e6, 2.2)).is_err());
        assert!(judge(&load(8, 2e6, 2.1), &load(64, 1.9e6, 6.4)).is_err());
    }
}
