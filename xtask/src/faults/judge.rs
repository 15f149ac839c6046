//! What must be true when a fault is over: everything acknowledged is on every member, all are the
//! same, and the watch was told each change once.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use client::Client;
use tokio::time::sleep;
use wire::etcdserverpb as pb;

use super::load::{LEASED, PREFIX, World};

/// How long members and the watch may take to come to the end of the story.
const PATIENCE: Duration = Duration::from_secs(30);

type Held = BTreeMap<String, i64>;

/// What is wrong at the end. No puts are under way.
pub async fn judge(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut first, mut hash): (Option<Held>, Option<(i64, u32)>) = (None, None);
    for at in 0..world.endpoints.len() {
        if let Err(what) = member(world, at, &mut first, &mut hash, &mut wrong).await {
            wrong.push(format!("member {at}: {what}"));
        }
    }
    if let (Some(held), Some((revision, _))) = (&first, hash) {
        told(world, held, revision, &mut wrong).await;
    }
    wrong
}

/// Whether the key of the lease is there, as some member says that answers.
pub async fn leased(world: &World) -> bool {
    for at in 0..world.endpoints.len() {
        let Ok(client) = world.client(at, PATIENCE) else { continue };
        if let Ok(found) = client.get(LEASED).await {
            return found.is_some();
        }
    }
    // That nobody answers is found by whoever reads the rest.
    true
}

async fn member(
    world: &World,
    at: usize,
    first: &mut Option<Held>,
    hash: &mut Option<(i64, u32)>,
    wrong: &mut Vec<String>,
) -> client::Result<()> {
    let client = world.client(at, PATIENCE)?;
    // All are asked for the same revision: a put of which nobody heard may come late.
    let (held, revision) = all(&client, hash.map_or(0, |(revision, _)| revision), false).await?;
    lost(world, at, &held, wrong);
    let (own, _) = all(&client, revision, true).await?;
    if own != held {
        wrong.push(format!("member {at}: serialisable and linearisable reads of revision {revision} differ"));
    }
    match first {
        Some(first) if *first != held => wrong.push(format!("member {at}: other keys than member 0")),
        Some(_) => {}
        None => *first = Some(held),
    }
    let answer = client.hash_kv(revision).await?;
    match hash {
        Some((_, hash)) if *hash != answer.hash => {
            wrong.push(format!("member {at}: HashKV of revision {revision} is {:x}, not {hash:x}", answer.hash));
        }
        Some(_) => {}
        None => *hash = Some((revision, answer.hash)),
    }
    Ok(())
}

/// All keys, and the revision. Pages, since values may be large.
async fn all(client: &Client, revision: i64, serializable: bool) -> client::Result<(Held, i64)> {
    let range = client::prefix(PREFIX);
    let mut request = pb::RangeRequest { limit: 500, revision, serializable, ..range.into() };
    let mut held = Held::new();
    loop {
        let answer = client.range(request.clone()).await?;
        if request.revision == 0 {
            request.revision = answer.header.as_ref().map_or(0, |header| header.revision);
        }
        let more = answer.more;
        for kv in answer.kvs {
            let key = String::from_utf8_lossy(&kv.key).into_owned();
            // A value that is not its key's has no revision that fits.
            let revision = if kv.value.starts_with(&kv.key) { kv.mod_revision } else { -1 };
            request.key = format!("{key}\0").into();
            held.insert(key, revision);
        }
        if !more {
            return Ok((held, request.revision));
        }
    }
}

fn lost(world: &World, at: usize, held: &Held, wrong: &mut Vec<String>) {
    let seen = world.seen();
    let lost: Vec<String> = seen
        .acked
        .iter()
        .filter(|(key, revision)| held.get(*key) != Some(revision))
        .map(|(key, revision)| format!("{key} of revision {revision} (there: {:?})", held.get(key)))
        .collect();
    if !lost.is_empty() {
        wrong.push(format!("member {at}: {} acknowledged puts lost, such as {}", lost.len(), lost[0]));
    }
}

/// The watch was told every key once, in the order of revisions.
async fn told(world: &World, held: &Held, last: i64, wrong: &mut Vec<String>) {
    let mut due: Vec<(i64, String)> = held.iter().map(|(key, revision)| (*revision, key.clone())).collect();
    due.sort();
    let until = Instant::now() + PATIENCE;
    while world.seen().told.len() < due.len() && Instant::now() < until {
        sleep(Duration::from_millis(20)).await;
    }
    let told: Vec<(i64, String)> = world.seen().told.iter().filter(|(at, _)| *at <= last).cloned().collect();
    if let Some(at) = told.iter().zip(&due).position(|(told, due)| told != due) {
        wrong.push(format!("the watch was told {:?} where {:?} was due", told[at], due[at]));
    } else if told.len() != due.len() {
        wrong.push(format!("the watch was told {} changes of {}", told.len(), due.len()));
    }
}
