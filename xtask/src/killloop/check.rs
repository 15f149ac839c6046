//! What must be true whenever the cluster is quiet.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use wire::{Rpc, etcdserverpb as pb, mvccpb::KeyValue};

use super::clients::{World, follow};
use crate::{raw::Raw, rng::Rng};

/// How long a member may take to catch up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Holds all answers so far against the history, the members and each other;
/// gives the revision at which that was.
///
/// # Errors
/// The first thing that is not as it must be.
pub async fn check(world: &Arc<World>, compacted: i64, rng: &mut Rng) -> Result<i64> {
    // No client works now.
    let _quiet = world.gate.write().await;
    let current = current(world).await?;
    watchers_told_all(world, current).await?;
    answers_were_true(world)?;
    members_agree(world, current).await?;
    history_is_kept(world, &rng.pick(&world.live()), compacted.max(1) + 1, current).await?;
    let problems = &world.expected().problems;
    if !problems.is_empty() {
        bail!("{}", problems.join("\n  "));
    }
    Ok(current)
}

/// The revision of a linearisable read; none is older than what was answered.
async fn current(world: &World) -> Result<i64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let fresh = world.expected().fresh;
        let read = range(0);
        let answer = async {
            let raw = Raw::connect(world.live().first().context("a voter")?).await?;
            Ok::<_, anyhow::Error>(raw.call::<_, pb::RangeResponse>(Rpc::Range, &read).await?)
        };
        match answer.await {
            Ok(answer) => {
                let revision = answer.header.context("a header")?.revision;
                if revision < fresh {
                    bail!("stale read: revision {revision}, known before it was sent: {fresh}");
                }
                return Ok(revision);
            }
            Err(error) if Instant::now() > deadline => return Err(error.context("the cluster does not serve")),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn watchers_told_all(world: &World, current: i64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for watcher in 0..world.watchers() {
        loop {
            let last = world.story(watcher).len() as i64 + 1;
            if last == current {
                break;
            }
            let problems = world.expected().problems.clone();
            if last > current || !problems.is_empty() || Instant::now() > deadline {
                bail!(
                    "watcher {watcher} was told of revision {last}, the store is at {current}\n  {}",
                    problems.join("\n  ")
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // One lock at a time: they may be the same.
        let first = world.story(0).clone();
        let this = world.story(watcher).clone();
        if let Some(at) = first.iter().zip(&this).position(|(a, b)| a != b) {
            bail!("watchers 0 and {watcher} were told different things of revision {}", at + 2);
        }
    }
    Ok(())
}

fn answers_were_true(world: &World) -> Result<()> {
    let mut history = world.history();
    let mut expected = world.expected();
    for problem in history.replay() {
        expected.problem(problem);
    }
    for written in std::mem::take(&mut expected.writes) {
        if !history.has(&written) {
            expected.problem(format!("an acknowledged write is lost: {written:?}"));
        }
    }
    for read in std::mem::take(&mut expected.reads) {
        let due = history.at(&read.key, read.revision);
        if read.found.as_ref() != due {
            expected.problem(format!("{read:?} should have found {due:?}"));
        }
    }
    if expected.problems.is_empty() {
        return Ok(());
    }
    bail!("{}", expected.problems.join("\n  "))
}

/// Equal hashes and equal keys at one revision.
async fn members_agree(world: &World, current: i64) -> Result<()> {
    let due: Vec<KeyValue> = world.history().state.values().cloned().collect();
    let mut hashes = Vec::new();
    for endpoint in &world.live() {
        let deadline = Instant::now() + PATIENCE;
        let (hash, kvs) = loop {
            match ask(endpoint, current).await {
                Ok(answer) => break answer,
                Err(error) if Instant::now() > deadline => return Err(error.context(endpoint.clone())),
                Err(_) => tokio::time::sleep(Duration::from_millis(30)).await,
            }
        };
        hashes.push(hash);
        if kvs != due {
            let at = kvs.iter().zip(&due).position(|(a, b)| a != b).unwrap_or(kvs.len().min(due.len()));
            bail!("{endpoint} at revision {current} has {:?} where the history has {:?}", kvs.get(at), due.get(at));
        }
    }
    if hashes.iter().any(|hash| hash != &hashes[0]) {
        bail!("HashKV at revision {current} differs: {hashes:x?} on {:?}", world.live());
    }
    Ok(())
}

async fn ask(endpoint: &str, revision: i64) -> Result<(u32, Vec<KeyValue>)> {
    let raw = Raw::connect(endpoint).await?;
    let hash: pb::HashKvResponse = raw.call(Rpc::HashKV, &pb::HashKvRequest { revision }).await?;
    let range: pb::RangeResponse = raw.call(Rpc::Range, &range(revision)).await?;
    Ok((hash.hash, range.kvs))
}

fn range(revision: i64) -> pb::RangeRequest {
    pb::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        revision,
        // A member's own state, not the leader's; it waits until it has it.
        serializable: revision > 0,
        ..Default::default()
    }
}

/// A new watch from the compacted revision on is told what the old ones were.
async fn history_is_kept(world: &World, at: &str, from: i64, current: i64) -> Result<()> {
    if from > current {
        return Ok(());
    }
    let mut next = from;
    let told = follow(at, from, Some(current), PATIENCE, |revision, events| {
        let due = world.story(0).get(revision as usize - 2).copied();
        if revision != next || due != Some(super::expected::digest(&events)) {
            return Err(format!("revision {revision} instead of {next}, or told differently"));
        }
        next += 1;
        Ok(())
    });
    if let Err(problem) = told.await {
        bail!("a new watch on {at} from {from}: {problem}");
    }
    if next != current + 1 {
        bail!("a new watch on {at} from {from} came to {} of {current}", next - 1);
    }
    Ok(())
}
