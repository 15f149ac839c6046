//! Leases.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::{
    sync::mpsc::{Sender, channel},
    time::{Instant, sleep, timeout_at},
};
use wire::{
    Rpc,
    etcdserverpb::{
        LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest,
        LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    },
};

use crate::{Client, Error, Responses, Result};

impl Client {
    /// Grants a lease of `ttl` seconds; id 0 lets the server choose.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn lease_grant(&self, ttl: i64, id: i64) -> Result<LeaseGrantResponse> {
        self.call(Rpc::LeaseGrant, &LeaseGrantRequest { ttl, id }).await
    }

    /// Revokes a lease, and with it deletes its keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn lease_revoke(&self, id: i64) -> Result<LeaseRevokeResponse> {
        self.call(Rpc::LeaseRevoke, &LeaseRevokeRequest { id }).await
    }

    /// What is left of a lease, in seconds (-1 when it is gone), and its keys
    /// if asked.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn lease_time_to_live(&self, id: i64, keys: bool) -> Result<LeaseTimeToLiveResponse> {
        self.call(Rpc::LeaseTimeToLive, &LeaseTimeToLiveRequest { id, keys }).await
    }

    /// The leases that a member knows.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn leases(&self) -> Result<LeaseLeasesResponse> {
        self.call(Rpc::LeaseLeases, &LeaseLeasesRequest {}).await
    }

    /// A way to renew a lease again and again. Nothing is sent before the first
    /// [`KeepAlive::renew`].
    pub fn keep_alive(&self, id: i64) -> KeepAlive {
        KeepAlive { client: self.clone(), id, stream: None, last: LeaseKeepAliveResponse::default() }
    }
}

type Stream = (Sender<Bytes>, Responses<LeaseKeepAliveResponse>);

/// Renews one lease over a stream of its own.
#[derive(Debug)]
pub struct KeepAlive {
    client: Client,
    id: i64,
    stream: Option<Stream>,
    last: LeaseKeepAliveResponse,
}

impl KeepAlive {
    /// The newest answer, as the server gave it.
    pub fn last(&self) -> &LeaseKeepAliveResponse {
        &self.last
    }

    /// Renews the lease once and says for how many seconds. A failure that may
    /// pass is tried again elsewhere until [`crate::Options::request_timeout`].
    ///
    /// # Errors
    /// [`Error::LeaseGone`], or what the last attempt failed with.
    pub async fn renew(&mut self) -> Result<i64> {
        let deadline = self.client.options.request_timeout.map(|timeout| Instant::now() + timeout);
        self.renew_by(deadline, None).await
    }

    /// Renews the lease once, until a time, with so much time for each attempt:
    /// a member that does not answer must not use up the life of the lease.
    pub(crate) async fn renew_by(&mut self, deadline: Option<Instant>, each: Option<Duration>) -> Result<i64> {
        let mut tokens = 2;
        loop {
            let generation = self.client.token.held().1;
            let error = match self.attempt(deadline, each).await {
                Ok(0) => return Err(Error::LeaseGone { id: self.id }),
                Ok(ttl) => return Ok(ttl),
                Err(error) => error,
            };
            self.stream = None;
            if error.wants_token() && self.client.token.renewable() && tokens > 0 {
                tokens -= 1;
                self.client.renew_token(generation).await?;
                continue;
            }
            // A leader that has just lost its place says so in these words.
            let deposed = error.says("not a primary lessor");
            let slow = matches!(error, Error::Timeout { .. }) && deadline.is_none_or(|d| Instant::now() < d);
            if !(error.passes() || deposed || slow) || !self.client.pause(deadline).await {
                return Err(error);
            }
        }
    }

    /// Renews the lease each third of its time for as long as it lives.
    ///
    /// # Errors
    /// It only ends with one: see [`KeepAlive::renew`].
    pub async fn hold(&mut self) -> Result<std::convert::Infallible> {
        loop {
            let ttl = self.renew().await?;
            let seconds = u64::try_from(ttl).unwrap_or(0);
            sleep(Duration::from_secs(seconds) / 3).await;
        }
    }

    async fn attempt(&mut self, deadline: Option<Instant>, each: Option<Duration>) -> Result<i64> {
        let soon = each.map(|each| Instant::now() + each);
        let Some(until) = deadline.into_iter().chain(soon).min() else {
            return self.exchange().await;
        };
        match timeout_at(until, self.exchange()).await {
            Ok(result) => result,
            Err(_) => {
                self.client.endpoints.avoid_current();
                Err(Error::Timeout { endpoint: self.client.endpoints().join(",") })
            }
        }
    }

    async fn exchange(&mut self) -> Result<i64> {
        let request = Bytes::from(LeaseKeepAliveRequest { id: self.id }.encode_to_vec());
        // A stream whose answer was not awaited would answer the last question:
        // it is put back only after it has answered this one.
        let (requests, mut responses) = match self.stream.take() {
            Some((requests, responses)) => {
                requests.send(request).await.map_err(|_| lost(&responses))?;
                (requests, responses)
            }
            None => self.open(request).await?,
        };
        let response = responses.next().await?.ok_or_else(|| lost(&responses))?;
        self.stream = Some((requests, responses));
        self.last = response;
        Ok(self.last.ttl)
    }

    async fn open(&self, first: Bytes) -> Result<Stream> {
        let (requests, mut queue) = channel(1);
        // The server answers nothing, not even headers, before it is asked.
        requests.try_send(first).expect("the queue is empty");
        let queued = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
        let responses = self.client.open(Rpc::LeaseKeepAlive, queued).await?;
        Ok((requests, responses))
    }
}

fn lost(responses: &Responses<LeaseKeepAliveResponse>) -> Error {
    Error::Lost { endpoint: responses.endpoint().to_owned(), reason: "the stream was closed".to_owned() }
}
