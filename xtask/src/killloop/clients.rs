//! The clients that work on the cluster while its members are killed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use anyhow::{Result, bail};
use bytes::Bytes;
use prost::Message;
use tokio::{
    sync::{RwLock, mpsc},
    time::{sleep, timeout},
};
use wire::{
    Method, Rpc,
    etcdserverpb::{self as pb, compare::TargetUnion, request_op::Request, watch_request::RequestUnion},
    mvccpb::Event,
};

use super::expected::{Expected, History, Read, Written, digest};
use crate::{raw::Raw, rng::Rng};

/// An operation that takes longer counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(4);
const KEYS_EACH: u64 = 8;

/// What all clients share.
#[derive(Debug)]
pub struct World {
    /// Where members may be.
    pub endpoints: Vec<String>,
    /// Those of them where voters are, by place.
    live: Mutex<Vec<usize>>,
    /// Held for reading by each operation, for writing by whoever needs quiet.
    pub gate: RwLock<()>,
    expected: Mutex<Expected>,
    history: Mutex<History>,
    /// Digests by revision of each watcher, revision 2 at place 0.
    stories: Vec<Mutex<Vec<u64>>>,
}

impl World {
    pub fn new(endpoints: Vec<String>, watchers: usize) -> World {
        World {
            live: Mutex::new((0..endpoints.len()).collect()),
            endpoints,
            gate: RwLock::new(()),
            expected: Mutex::default(),
            history: Mutex::default(),
            stories: (0..watchers).map(|_| Mutex::default()).collect(),
        }
    }

    /// Voters are at these places from now on.
    pub fn set_live(&self, places: Vec<usize>) {
        *self.live.lock().expect("nothing panics under this lock") = places;
    }

    /// Where voters are.
    pub fn live(&self) -> Vec<String> {
        let live = self.live.lock().expect("nothing panics under this lock");
        live.iter().map(|at| self.endpoints[*at].clone()).collect()
    }

    /// One of all places: mostly one where a voter is, now and then another.
    fn any(&self, rng: &mut Rng) -> usize {
        let live = self.live.lock().expect("nothing panics under this lock").clone();
        if live.is_empty() || live.len() == self.endpoints.len() || rng.percent(10) {
            return rng.below(self.endpoints.len() as u64) as usize;
        }
        rng.pick(&live)
    }

    pub fn expected(&self) -> MutexGuard<'_, Expected> {
        self.expected.lock().expect("nothing panics under this lock")
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("nothing panics under this lock")
    }

    pub fn watchers(&self) -> usize {
        self.stories.len()
    }

    pub fn story(&self, watcher: usize) -> MutexGuard<'_, Vec<u64>> {
        self.stories[watcher].lock().expect("nothing panics under this lock")
    }
}

/// Connections to the members, made when they are needed.
pub struct Members {
    world: Arc<World>,
    rng: Rng,
    open: BTreeMap<usize, Raw>,
}

impl Members {
    pub fn new(world: &Arc<World>, seed: u64) -> Members {
        Members { world: Arc::clone(world), rng: Rng::new(seed), open: BTreeMap::new() }
    }

    /// A call on a random member.
    pub async fn call<Req: Message, Resp: Message + Default>(&mut self, rpc: Rpc, request: &Req) -> Result<Resp> {
        let at = self.any();
        let answer = timeout(PATIENCE, async {
            let raw = self.member(at).await?;
            Ok::<Resp, anyhow::Error>(raw.call(rpc, request).await?)
        });
        match answer.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.open.remove(&at);
                sleep(Duration::from_millis(20)).await;
                Err(error)
            }
            Err(_) => {
                self.open.remove(&at);
                bail!("no answer within {PATIENCE:?}")
            }
        }
    }

    pub fn any(&mut self) -> usize {
        self.world.any(&mut self.rng)
    }

    /// The next call to this member connects anew.
    pub fn forget(&mut self, at: usize) {
        self.open.remove(&at);
    }

    pub async fn member(&mut self, at: usize) -> Result<Raw> {
        if let Some(raw) = self.open.get(&at) {
            return Ok(raw.clone());
        }
        let raw = Raw::connect(&self.world.endpoints[at]).await?;
        self.open.insert(at, raw.clone());
        Ok(raw)
    }
}

fn key(writer: u64, n: u64) -> Bytes {
    format!("w/{writer}/{n}").into()
}

/// Puts, txns and deletes on its own keys, each value unique and at least `size` bytes long.
pub async fn writer(world: Arc<World>, number: u64, seed: u64, size: usize) {
    let mut members = Members::new(&world, seed);
    for n in 0u64.. {
        let gate = world.gate.read().await;
        let one = key(number, members.rng.below(KEYS_EACH));
        let other = key(number, KEYS_EACH + members.rng.below(KEYS_EACH));
        let value: Bytes = format!("{number}-{n:.<size$}").into();
        let second: Bytes = format!("{number}-{n}b").into();
        let put = |key: &Bytes, value: &Bytes| pb::PutRequest {
            key: key.clone(),
            value: value.clone(),
            ..Default::default()
        };
        let written = |key: &Bytes, value: Option<&Bytes>, header: &Option<pb::ResponseHeader>| Written {
            revision: header.as_ref().map_or(0, |h| h.revision),
            key: key.clone(),
            value: value.cloned(),
        };
        let done: Result<Vec<Written>> = match members.rng.below(10) {
            0..6 => members
                .call::<_, pb::PutResponse>(Rpc::Put, &put(&one, &value))
                .await
                .map(|r| vec![written(&one, Some(&value), &r.header)]),
            6..9 => {
                let ops = [(&one, &value), (&other, &second)]
                    .map(|(k, v)| pb::RequestOp { request: Some(Request::RequestPut(put(k, v))) });
                let txn =
                    pb::TxnRequest { compare: vec![exists(&one)], success: ops.to_vec(), failure: ops[..1].to_vec() };
                members.call::<_, pb::TxnResponse>(Rpc::Txn, &txn).await.map(|r| {
                    let mut all = vec![written(&one, Some(&value), &r.header)];
                    if r.succeeded {
                        all.push(written(&other, Some(&second), &r.header));
                    }
                    all
                })
            }
            _ => {
                let delete = pb::DeleteRangeRequest { key: one.clone(), ..Default::default() };
                members
                    .call::<_, pb::DeleteRangeResponse>(Rpc::DeleteRange, &delete)
                    .await
                    .map(|r| if r.deleted == 0 { vec![] } else { vec![written(&one, None, &r.header)] })
            }
        };
        world.expected().wrote(done.ok());
        drop(gate);
        // Other clients of this thread have their turn.
        tokio::task::yield_now().await;
    }
}

/// `create_revision(key) != 0`.
fn exists(key: &Bytes) -> pb::Compare {
    pb::Compare {
        result: pb::compare::CompareResult::NotEqual as i32,
        target: pb::compare::CompareTarget::Create as i32,
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(0)),
        ..Default::default()
    }
}

/// Linearisable reads on any member: none may be older than what anybody has
/// been told before it was sent.
pub async fn reader(world: Arc<World>, writers: u64, seed: u64) {
    let mut members = Members::new(&world, seed);
    loop {
        let gate = world.gate.read().await;
        let key = key(members.rng.below(writers), members.rng.below(2 * KEYS_EACH));
        let read = pb::RangeRequest { key: key.clone(), ..Default::default() };
        let fresh = world.expected().fresh;
        let answer = members.call::<_, pb::RangeResponse>(Rpc::Range, &read).await;
        let read = answer.ok().map(|answer| Read {
            revision: answer.header.as_ref().map_or(0, |h| h.revision),
            key,
            found: answer.kvs.into_iter().next(),
        });
        world.expected().read(fresh, read);
        drop(gate);
        tokio::task::yield_now().await;
    }
}

/// Watches everything from the first revision on, now here and now there.
pub async fn watcher(world: Arc<World>, number: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    loop {
        let at = world.any(&mut rng);
        let moves_on = Duration::from_millis(500 + rng.below(8000));
        let from = world.story(number).len() as i64 + 2;
        let endpoint = world.endpoints[at].clone();
        let sink = Arc::clone(&world);
        let end = follow(&endpoint, from, None, moves_on, move |revision, events| {
            let mut story = sink.story(number);
            let due = story.len() as i64 + 2;
            if revision != due {
                return Err(format!("watcher {number} was told of revision {revision}, due was {due}"));
            }
            story.push(digest(&events));
            if number == 0 {
                sink.history().push(events);
            }
            Ok(())
        });
        if let Err(problem) = end.await {
            world.expected().problem(format!("{endpoint}, from {from}: {problem}"));
            return;
        }
        world.expected().counts.resumes += 1;
        sleep(Duration::from_millis(20)).await;
    }
}

/// Watches everything from a revision on until the stream breaks, `until` is
/// reached or the time is over. Whole revisions go to `take`.
///
/// # Errors
/// What no server may do, or what `take` objects to.
pub async fn follow(
    endpoint: &str,
    from: i64,
    until: Option<i64>,
    time: Duration,
    mut take: impl FnMut(i64, Vec<Event>) -> Result<(), String>,
) -> Result<(), String> {
    let Ok(raw) = Raw::connect(endpoint).await else {
        return Ok(());
    };
    let (send, mut messages) = mpsc::unbounded_channel();
    let bidi = raw.bidi(Method::of(Rpc::Watch).path, move |message| {
        let _ = send.send(message);
    });
    let create = pb::WatchCreateRequest {
        key: b"\0".as_slice().into(),
        range_end: b"\0".as_slice().into(),
        start_revision: from,
        fragment: from % 2 == 0,
        ..Default::default()
    };
    let request = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    bidi.send(request.encode_to_vec().into());
    let deadline = tokio::time::Instant::now() + time;
    let mut open: Vec<Event> = Vec::new();
    while let Ok(Some(Some(Ok(bytes)))) = tokio::time::timeout_at(deadline, messages.recv()).await {
        let response = pb::WatchResponse::decode(bytes).map_err(|e| e.to_string())?;
        if response.canceled {
            return Err(format!("the watch was cancelled: {response:?}"));
        }
        open.extend(response.events);
        if response.fragment {
            continue;
        }
        // A response without the mark ends with a whole revision.
        for events in open.chunk_by(|a, b| revision(a) == revision(b)) {
            take(revision(&events[0]), events.to_vec())?;
            if until == Some(revision(&events[0])) {
                return Ok(());
            }
        }
        open.clear();
    }
    Ok(())
}

fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}
