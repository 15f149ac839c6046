//! The honest clients: one for each member, which puts and reads; a lease that is kept alive; a
//! watch of everything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use client::{Client, Error, Options};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep},
};
use wire::etcdserverpb as pb;

/// All keys begin like this.
pub const PREFIX: &str = "w/";
/// Key of the lease.
pub const LEASED: &str = "leased";
/// Of the lease, in seconds.
const TTL: i64 = 10;
/// Longer than etcd itself waits for a put (7 s), so that its own answer is seen.
const PATIENCE: Duration = Duration::from_secs(8);
/// What the lease's client waits for one member.
const RENEWAL: Duration = Duration::from_secs(2);
/// Puts under way through one member. Enough that those that hang do not leave the rest waiting.
const UNDER_WAY: usize = 1500;

/// What the clients saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Acknowledged puts: when, and through which member.
    pub acks: Vec<(Instant, usize)>,
    /// Acknowledged keys and their revisions.
    pub acked: BTreeMap<String, i64>,
    /// Keys that may be there or not.
    pub unknown: u64,
    /// What failed, and how often.
    pub errors: BTreeMap<String, u64>,
    /// What must not be.
    pub problems: Vec<String>,
    /// Keys and revisions that the watch told, in its order.
    pub told: Vec<(i64, String)>,
    /// When the lease was found to be gone.
    pub lease_gone: Option<Instant>,
    /// A key that was acknowledged lately.
    last: Option<String>,
}

/// What all clients share.
#[derive(Debug)]
pub struct World {
    /// Where the members are.
    pub endpoints: Vec<String>,
    seen: Mutex<Seen>,
    next: AtomicU64,
    /// Bytes of a value at least.
    size: usize,
    /// Between two puts through one member.
    every: Duration,
}

impl World {
    /// Nothing has been seen. Values of `size` bytes are put.
    pub fn new(endpoints: Vec<String>, size: usize) -> World {
        // Large values fill disks; many of them would only fill the processors.
        let every = Duration::from_millis(if size > 1000 { 20 } else { 10 });
        World { endpoints, seen: Mutex::default(), next: AtomicU64::new(0), size, every }
    }

    /// What was seen so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nothing panics under this lock")
    }

    /// A new round: what was acknowledged stays, the rest is seen anew.
    pub fn begin(&self) {
        let mut seen = self.seen();
        let (acked, last) = (std::mem::take(&mut seen.acked), seen.last.take());
        *seen = Seen { acked, last, ..Seen::default() };
    }

    /// A client of one member.
    ///
    /// # Errors
    /// If the endpoint is none.
    pub fn client(&self, member: usize, patience: Duration) -> client::Result<Client> {
        let options = Options::of([self.endpoints[member].clone()]);
        Client::connect(Options { request_timeout: Some(patience), ..options })
    }

    fn of_all(&self, patience: Duration) -> client::Result<Client> {
        Client::connect(Options { request_timeout: Some(patience), ..Options::of(self.endpoints.clone()) })
    }
}

/// Clients at work; they stop when it is dropped.
#[derive(Debug)]
pub struct Load {
    writers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    under_way: Arc<AtomicUsize>,
}

impl Load {
    /// Starts them.
    ///
    /// # Errors
    /// If the lease cannot be granted.
    pub async fn start(world: &Arc<World>) -> Result<Load> {
        let under_way = Arc::new(AtomicUsize::new(0));
        let all = world.of_all(RENEWAL)?;
        let lease = all.lease_grant(TTL, 0).await?.id;
        all.put_with(pb::PutRequest { key: LEASED.into(), lease, ..Default::default() }).await?;
        let mut load = Load { writers: Vec::new(), others: Vec::new(), under_way: Arc::clone(&under_way) };
        load.others.push(tokio::spawn(keep(Arc::clone(world), all, lease)));
        load.others.push(tokio::spawn(watch(Arc::clone(world), world.of_all(PATIENCE)?)));
        for at in 0..world.endpoints.len() {
            let (puts, reads) = (world.client(at, PATIENCE)?, world.client(at, PATIENCE)?);
            load.writers.push(tokio::spawn(write(Arc::clone(world), at, puts, Arc::clone(&under_way))));
            load.others.push(tokio::spawn(read(Arc::clone(world), at, reads)));
        }
        Ok(load)
    }

    /// No more puts; waits for those under way.
    pub async fn quiet(&mut self) {
        self.writers.drain(..).for_each(|writer| writer.abort());
        while self.under_way.load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.writers.iter().chain(&self.others).for_each(JoinHandle::abort);
    }
}

/// How a failure is counted: as the client says it, without what differs from one to the next.
fn named(error: &Error) -> String {
    match error {
        Error::Server { message, .. } => message.clone(),
        Error::Lost { .. } => "connection lost".to_owned(),
        Error::Unreachable { .. } => format!("not reached in {} s", PATIENCE.as_secs()),
        Error::Timeout { .. } => format!("no answer in {} s", PATIENCE.as_secs()),
        other => other.to_string(),
    }
}

/// A put of a new key at each beat, whether or not those before were answered.
async fn write(world: Arc<World>, at: usize, client: Client, under_way: Arc<AtomicUsize>) {
    let mut beat = interval(world.every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let own = Arc::new(AtomicUsize::new(0));
    loop {
        beat.tick().await;
        if own.load(Ordering::Relaxed) >= UNDER_WAY {
            continue;
        }
        let (world, client) = (Arc::clone(&world), client.clone());
        let counts = [Arc::clone(&own), Arc::clone(&under_way)];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        tokio::spawn(async move {
            put(&world, at, &client).await;
            for count in &counts {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }
}

async fn put(world: &World, at: usize, client: &Client) {
    let key = format!("{PREFIX}{at}/{:08}", world.next.fetch_add(1, Ordering::Relaxed));
    let value = format!("{key:.<size$}", size = world.size);
    let answer = client.put(key.clone(), value).await;
    let mut seen = world.seen();
    match answer {
        Ok(answer) => {
            seen.acks.push((Instant::now(), at));
            seen.last = Some(key.clone());
            seen.acked.insert(key, answer.header.map_or(0, |header| header.revision));
        }
        Err(error) => {
            seen.unknown += u64::from(error.maybe_done());
            *seen.errors.entry(named(&error)).or_default() += 1;
        }
    }
}

/// Whatever was acknowledged before a linearisable read was sent is found by it.
async fn read(world: Arc<World>, at: usize, client: Client) {
    loop {
        sleep(Duration::from_millis(50)).await;
        let Some(key) = world.seen().last.clone() else { continue };
        match client.get(key.clone()).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let what = format!("stale: {key} was acknowledged, and a later read through member {at} has it not");
                world.seen().problems.push(what);
            }
            Err(error) => *world.seen().errors.entry(format!("read: {}", named(&error))).or_default() += 1,
        }
    }
}

async fn keep(world: Arc<World>, client: Client, lease: i64) {
    let mut renewals = client.keep_alive(lease);
    loop {
        match renewals.renew().await {
            Err(Error::LeaseGone { .. }) => {
                world.seen().lease_gone = Some(Instant::now());
                return;
            }
            // The next attempt goes to another member.
            Ok(_) | Err(_) => sleep(Duration::from_secs(1)).await,
        }
    }
}

async fn watch(world: Arc<World>, client: Client) {
    let mut request = pb::WatchCreateRequest::from(client::prefix(PREFIX));
    request.start_revision = 1;
    let mut watch = client.watch(request);
    loop {
        match watch.next().await {
            Ok(batch) => {
                let mut seen = world.seen();
                for kv in batch.events.into_iter().filter_map(|event| event.kv) {
                    seen.told.push((kv.mod_revision, String::from_utf8_lossy(&kv.key).into_owned()));
                }
            }
            Err(error) => {
                world.seen().problems.push(format!("the watch ended: {error}"));
                return;
            }
        }
    }
}
