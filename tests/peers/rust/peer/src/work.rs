//! One run: the work, and what must be true after it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use etcd_client::{Client, Compare, CompareOp, Error, GetOptions, PutOptions, Txn, TxnOp, WatchOptions};
use tokio::{task::LocalSet, time::sleep};

/// After this the end of a request counts as unknown.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The cluster has this long to serve again after the work.
const RECOVERY: Duration = Duration::from_secs(60);

/// What was acknowledged, and what may or may not have happened.
#[derive(Default)]
struct Tally {
    acknowledged: Cell<usize>,
    unknown: Cell<usize>,
}

impl Tally {
    fn acknowledge(&self) {
        self.acknowledged.set(self.acknowledged.get() + 1);
    }

    fn doubt(&self) {
        self.unknown.set(self.unknown.get() + 1);
    }

    fn report(&self) -> String {
        format!(r#"{{"acknowledged":{},"unknown":{}}}"#, self.acknowledged.get(), self.unknown.get())
    }
}

/// One run, in a key space of its own. All of it is on one thread.
#[derive(Clone)]
pub struct Run(Rc<Inner>);

struct Inner {
    client: Client,
    /// For what has no end, and hence no time limit.
    streams: Client,
    space: String,
    over: Cell<bool>,
    faults: RefCell<Vec<String>>,
    puts: Tally,
    /// Revision of each acknowledged key.
    acked: RefCell<BTreeMap<Vec<u8>, i64>>,
    counter: Tally,
    /// What the watch saw.
    seen: RefCell<BTreeSet<(Vec<u8>, i64)>>,
    newest: Cell<i64>,
    renewals: Cell<usize>,
}

impl Run {
    pub fn new(client: Client, streams: Client) -> Run {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        Run(Rc::new(Inner {
            client,
            streams,
            space: format!("peer-rust-{}-{now}/", std::process::id()),
            over: Cell::new(false),
            faults: RefCell::default(),
            puts: Tally::default(),
            acked: RefCell::default(),
            counter: Tally::default(),
            seen: RefCell::default(),
            newest: Cell::new(0),
            renewals: Cell::new(0),
        }))
    }

    pub fn faults(&self) -> Vec<String> {
        self.0.faults.borrow().clone()
    }

    pub fn report(&self) -> String {
        let run = &self.0;
        format!(
            r#"{{"client":"rust","puts":{},"transaction":{},"events":{},"renewals":{},"faults":{:?}}}"#,
            run.puts.report(),
            run.counter.report(),
            run.seen.borrow().len(),
            run.renewals.get(),
            run.faults.borrow(),
        )
    }

    fn fault(&self, text: String) {
        self.0.faults.borrow_mut().push(text);
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.0.space)
    }

    /// Does something that may be repeated, until it is done or the cluster
    /// has had all the time it may need.
    async fn until_done<T>(&self, what: &str, act: impl AsyncFn(Client) -> Result<T, Error>) -> Option<T> {
        let deadline = Instant::now() + RECOVERY;
        loop {
            match act(self.0.client.clone()).await {
                Ok(done) => return Some(done),
                Err(error) if Instant::now() > deadline => {
                    self.fault(format!("{what}: {error}"));
                    return None;
                }
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Puts a key for sure; the revision.
    async fn put(&self, name: &str, lease: i64) -> Option<i64> {
        let key = self.key(name);
        let options = Some(PutOptions::new().with_lease(lease)).filter(|_| lease != 0);
        let put = self.until_done(name, async |mut c| c.put(key.clone(), "", options.clone()).await).await?;
        Some(put.header().map_or(0, |h| h.revision()))
    }

    pub async fn work(&self, length: Duration) {
        LocalSet::new().run_until(self.work_on_this_thread(length)).await;
    }

    async fn work_on_this_thread(&self, length: Duration) {
        let Some(first) = self.put("first", 0).await else { return };
        let granted = self.until_done("lease", async |mut c| c.lease_grant(30, None).await).await;
        let Some(lease) = granted.map(|g| g.id()) else { return };
        self.put("lease", lease).await;

        let run = self.clone();
        let watcher = tokio::task::spawn_local(async move { run.watch(first + 1).await });
        let mut tasks = Vec::new();
        for writer in 0..4 {
            let run = self.clone();
            tasks.push(tokio::task::spawn_local(async move { run.write(writer).await }));
        }
        for _ in 0..2 {
            let run = self.clone();
            tasks.push(tokio::task::spawn_local(async move { run.count().await }));
        }
        let run = self.clone();
        tasks.push(tokio::task::spawn_local(async move { run.keep(lease).await }));
        sleep(length).await;
        self.0.over.set(true);
        for task in tasks {
            if let Err(error) = task.await {
                self.fault(format!("a task ended: {error}"));
            }
        }

        let last = self.put("last", 0).await.unwrap_or(0);
        self.check_puts().await;
        self.check_counter().await;
        self.check_lease(lease).await;
        self.check_watch(last).await;
        watcher.abort();
    }

    async fn write(&self, writer: usize) {
        for n in 0.. {
            if self.0.over.get() {
                return;
            }
            let key = self.key(&format!("puts/{writer}/{n:06}"));
            match self.0.client.clone().put(key.clone(), "x", None).await {
                Ok(put) => {
                    self.0.puts.acknowledge();
                    let revision = put.header().map_or(0, |h| h.revision());
                    self.0.acked.borrow_mut().insert(key.into_bytes(), revision);
                }
                Err(_) => {
                    self.0.puts.doubt();
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Adds to a counter, one by one, if nobody else did in between.
    async fn count(&self) {
        let key = self.key("count");
        while !self.0.over.get() {
            let read = self.until_done("count", async |mut c| c.get(key.clone(), None).await).await;
            let Some(read) = read else { return };
            let pair = read.kvs().first();
            let value: u64 = pair.and_then(|kv| kv.value_str().ok()?.parse().ok()).unwrap_or(0);
            let revision = pair.map_or(0, |kv| kv.mod_revision());
            let swap = Txn::new()
                .when([Compare::mod_revision(key.clone(), CompareOp::Equal, revision)])
                .and_then([TxnOp::put(key.clone(), (value + 1).to_string(), None)]);
            match self.0.client.clone().txn(swap).await {
                Ok(done) if done.succeeded() => self.0.counter.acknowledge(),
                Ok(_) => {}
                Err(_) => self.0.counter.doubt(),
            }
        }
    }

    /// Renews the lease; a stream that breaks is opened again.
    async fn keep(&self, lease: i64) {
        while !self.0.over.get() {
            if self.renew(lease).await.is_err() {
                sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn renew(&self, lease: i64) -> Result<(), Error> {
        let (mut keeper, mut answers) = self.0.streams.clone().lease_keep_alive(lease).await?;
        while !self.0.over.get() {
            keeper.keep_alive().await?;
            let answer = tokio::time::timeout(PATIENCE, answers.message()).await;
            match answer {
                Ok(Ok(Some(answer))) if answer.ttl() > 0 => self.0.renewals.set(self.0.renewals.get() + 1),
                Ok(Ok(Some(_))) => {
                    self.fault("the lease was lost while it was kept".to_owned());
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error),
                Ok(Ok(None)) | Err(_) => return Ok(()),
            }
            sleep(Duration::from_secs(2)).await;
        }
        Ok(())
    }

    /// Collects events, from where it stopped whenever the stream ends.
    async fn watch(&self, start: i64) {
        loop {
            let _ = self.watch_once(start.max(self.0.newest.get() + 1)).await;
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn watch_once(&self, start: i64) -> Result<(), Error> {
        let options = WatchOptions::new().with_prefix().with_start_revision(start);
        let mut stream = self.0.streams.clone().watch(self.0.space.clone(), Some(options)).await?;
        while let Some(response) = stream.message().await? {
            if response.canceled() {
                self.fault(format!("the watch was canceled: {}", response.cancel_reason()));
            }
            for kv in response.events().iter().filter_map(|event| event.kv()) {
                self.take(kv.key().to_vec(), kv.mod_revision());
            }
        }
        Ok(())
    }

    fn take(&self, key: Vec<u8>, revision: i64) {
        if revision < self.0.newest.get() {
            self.fault(format!("the watch saw revision {revision} after {}", self.0.newest.get()));
        }
        self.0.newest.set(revision);
        let shown = String::from_utf8_lossy(&key).into_owned();
        if !self.0.seen.borrow_mut().insert((key, revision)) {
            self.fault(format!("the watch saw {shown} at {revision} twice"));
        }
    }

    async fn check_puts(&self) {
        let prefix = self.key("puts/");
        let all = Some(GetOptions::new().with_prefix());
        let read = self.until_done("puts", async |mut c| c.get(prefix.clone(), all.clone()).await).await;
        let Some(read) = read else { return };
        let found: BTreeMap<&[u8], i64> = read.kvs().iter().map(|kv| (kv.key(), kv.mod_revision())).collect();
        for (key, revision) in self.0.acked.borrow().iter() {
            let shown = String::from_utf8_lossy(key);
            match found.get(key.as_slice()) {
                Some(at) if at == revision => {}
                Some(at) => {
                    self.fault(format!("key {shown} was acknowledged at revision {revision} and is at {at}"));
                }
                None => self.fault(format!("acknowledged key {shown} is lost")),
            }
        }
    }

    async fn check_counter(&self) {
        let key = self.key("count");
        let read = self.until_done("count", async |mut c| c.get(key.clone(), None).await).await;
        let Some(read) = read else { return };
        let value: usize = read.kvs().first().and_then(|kv| kv.value_str().ok()?.parse().ok()).unwrap_or(0);
        let (sure, unknown) = (self.0.counter.acknowledged.get(), self.0.counter.unknown.get());
        if value < sure || value > sure + unknown {
            self.fault(format!("the count is {value} after {sure} acknowledged and {unknown} unknown steps"));
        }
        if sure == 0 {
            self.fault("no transaction was acknowledged".to_owned());
        }
    }

    async fn check_lease(&self, lease: i64) {
        let key = self.key("lease");
        let read = async || self.until_done("lease", async |mut c| c.get(key.clone(), None).await).await;
        if read().await.is_some_and(|read| read.kvs().is_empty()) {
            self.fault("the key of a kept lease is gone".to_owned());
        }
        self.until_done("revoke", async |mut c| c.lease_revoke(lease).await).await;
        if read().await.is_some_and(|read| !read.kvs().is_empty()) {
            self.fault("a key outlives its lease".to_owned());
        }
    }

    async fn check_watch(&self, last: i64) {
        let deadline = Instant::now() + RECOVERY;
        while self.0.newest.get() < last && Instant::now() < deadline {
            sleep(Duration::from_millis(50)).await;
        }
        if self.0.newest.get() < last {
            self.fault(format!("the watch stands at revision {}, the store at {last}", self.0.newest.get()));
        }
        let seen = self.0.seen.borrow();
        for (key, revision) in self.0.acked.borrow().iter() {
            if !seen.contains(&(key.clone(), *revision)) {
                self.fault(format!("the watch missed {} at revision {revision}", String::from_utf8_lossy(key)));
            }
        }
    }
}
