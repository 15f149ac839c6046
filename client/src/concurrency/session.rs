//! A lease that is kept alive, and the news of its end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use wire::{
    Rpc,
    etcdserverpb::{LeaseGrantRequest, LeaseGrantResponse},
};

use crate::{Client, Error, Result};

/// A lease that is kept alive for as long as a clone of this lives.
#[derive(Clone, Debug)]
pub struct Session {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    lease: i64,
    /// True when it is lost.
    lost: watch::Receiver<bool>,
    /// How many places are being left beside the caller.
    leaving: watch::Sender<usize>,
    /// How many callers stand or wait in each place.
    places: Mutex<BTreeMap<Bytes, usize>>,
    task: JoinHandle<()>,
}

impl Session {
    /// Grants a lease of `ttl` seconds (the server may give more) and keeps it
    /// alive.
    ///
    /// # Errors
    /// See [`Error`]. A grant whose answer is lost is asked for again; the
    /// lease that nobody knows of runs out.
    pub async fn new(client: &Client, ttl: i64) -> Result<Session> {
        let asked = Instant::now();
        let request = LeaseGrantRequest { ttl, id: 0 };
        let granted: LeaseGrantResponse = client.call_repeatable(Rpc::LeaseGrant, &request).await?;
        Ok(Session::begin(client, granted.id, granted.ttl, asked))
    }

    /// Keeps a lease alive that was granted before.
    ///
    /// # Errors
    /// [`Error::LeaseGone`], and see [`Error`].
    pub async fn with_lease(client: &Client, lease: i64) -> Result<Session> {
        let asked = Instant::now();
        let ttl = client.keep_alive(lease).renew().await?;
        Ok(Session::begin(client, lease, ttl, asked))
    }

    fn begin(client: &Client, lease: i64, ttl: i64, asked: Instant) -> Session {
        let (tell, lost) = watch::channel(false);
        let keeper = client.clone();
        let task = tokio::spawn(async move {
            keep(keeper, lease, ttl, asked).await;
            tell.send_replace(true);
        });
        Session {
            inner: Arc::new(Inner {
                client: client.clone(),
                lease,
                lost,
                leaving: watch::Sender::new(0),
                places: Mutex::default(),
                task,
            }),
        }
    }

    /// The lease.
    pub fn lease(&self) -> i64 {
        self.inner.lease
    }

    /// The client it was made with.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Waits until the lease is lost: the server says so, or it could not be
    /// renewed for as long as it lives. What was held under it may be
    /// somebody else's from then on.
    pub async fn lost(&self) {
        let mut lost = self.inner.lost.clone();
        // The keeper being gone is as bad as its word.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Whether the lease is lost, as far as is known.
    pub fn is_lost(&self) -> bool {
        *self.inner.lost.borrow() || self.inner.task.is_finished()
    }

    /// Revokes the lease: everything held under it is free at once.
    ///
    /// # Errors
    /// See [`Error`]. That it is gone already is none.
    pub async fn close(self) -> Result<()> {
        self.inner.task.abort();
        match self.inner.client.lease_revoke(self.inner.lease).await {
            Err(error) if !error.says("etcdserver: requested lease not found") => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps the lease alive no longer, and lets it run out.
    pub fn orphan(self) {
        self.inner.task.abort();
    }

    /// Does something beside the caller, to its end; [`Session::settled`] waits
    /// for it.
    pub(crate) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime nothing can be done, and nobody will wait for it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        self.inner.leaving.send_modify(|n| *n += 1);
        let session = self.clone();
        runtime.spawn(async move {
            work.await;
            session.inner.leaving.send_modify(|n| *n -= 1);
        });
    }

    /// One more caller has to do with this place.
    pub(crate) fn take_place(&self, key: &Bytes) {
        *self.places().entry(key.clone()).or_default() += 1;
    }

    /// One caller less; says whether it was the last.
    pub(crate) fn give_place(&self, key: &Bytes) -> bool {
        let mut places = self.places();
        match places.get_mut(key) {
            Some(callers) if *callers > 1 => {
                *callers -= 1;
                false
            }
            _ => {
                places.remove(key);
                true
            }
        }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Bytes, usize>> {
        // Nothing that can panic runs under this lock.
        self.inner.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what was begun beside the caller is done: it works on the
    /// same keys.
    pub(crate) async fn settled(&self) {
        let mut leaving = self.inner.leaving.subscribe();
        // The sender lives as long as the session.
        let _ = leaving.wait_for(|n| *n == 0).await;
    }

    /// Does something, unless the lease is lost before it is done.
    pub(crate) async fn unless_lost<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            // What is done is done, even if the lease is lost at the same time.
            biased;
            done = work => done,
            () = self.lost() => Err(Error::SessionExpired),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews a lease until it is lost.
async fn keep(client: Client, lease: i64, ttl: i64, asked: Instant) {
    let mut life = seconds(ttl);
    // The server counts from when it answered, which is after it was asked.
    let mut end = asked + life;
    let mut next = asked + life / 3;
    let mut renewal = client.keep_alive(lease);
    loop {
        sleep_until(next.min(end)).await;
        let asked = Instant::now();
        match renewal.renew_by(Some(end), Some(life / 3)).await {
            Ok(ttl) => {
                life = seconds(ttl);
                end = asked + life;
                next = asked + life / 3;
            }
            Err(Error::LeaseGone { .. }) => return,
            Err(_) if Instant::now() >= end => return,
            Err(_) => next = Instant::now() + Duration::from_millis(100),
        }
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
