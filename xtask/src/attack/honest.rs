//! What a client that does no harm notices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use wire::{Rpc, etcdserverpb as pb};

use crate::raw::Raw;

/// Latencies of one kind of call, in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    took: Vec<Duration>,
    pub(super) failed: usize,
}

impl Times {
    pub(super) fn add<T, E>(&mut self, since: Instant, result: &Result<T, E>) {
        match result {
            Ok(_) => self.took.push(since.elapsed()),
            Err(_) => self.failed += 1,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.took.len()
    }

    /// The latency below which `part` of a hundred lie; 100: the longest.
    pub(super) fn at(&self, part: usize) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * part / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(Duration::ZERO)
    }
}

/// Puts, renewals and new connections of one stretch of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Noticed {
    pub(super) puts: Times,
    pub(super) renewals: Times,
    pub(super) connections: Times,
}

pub(super) struct Honest {
    raw: Raw,
    endpoint: String,
    lease: i64,
}

impl Honest {
    pub(super) async fn new(endpoint: &str) -> Result<Honest> {
        let raw = Raw::connect(endpoint).await?;
        let grant = pb::LeaseGrantRequest { ttl: 60, id: 0 };
        let granted: pb::LeaseGrantResponse = raw.call(Rpc::LeaseGrant, &grant).await.context("a lease")?;
        Ok(Honest { raw, endpoint: endpoint.to_owned(), lease: granted.id })
    }

    /// What attacks read: 2,000 keys of 4 KiB.
    pub(super) async fn fill(&self) -> Result<()> {
        for n in 0..2_000 {
            let put = pb::PutRequest {
                key: format!("data/{n:05}").into_bytes().into(),
                value: vec![b'x'; 4096].into(),
                ..Default::default()
            };
            let _: pb::PutResponse = self.raw.call(Rpc::Put, &put).await.context("a put")?;
        }
        Ok(())
    }

    /// Works for so long, on the clock of a client that does not hurry.
    pub(super) async fn work(&self, lasting: Duration) -> Noticed {
        let mut noticed = Noticed::default();
        let until = Instant::now() + lasting;
        let mut turn = 0_u32;
        while Instant::now() < until {
            let put = pb::PutRequest {
                key: format!("honest/{}", turn % 100).into_bytes().into(),
                value: vec![b'h'; 256].into(),
                ..Default::default()
            };
            let since = Instant::now();
            noticed.puts.add(since, &self.raw.call::<_, pb::PutResponse>(Rpc::Put, &put).await);
            if turn.is_multiple_of(10) {
                let since = Instant::now();
                let ask = pb::LeaseTimeToLiveRequest { id: self.lease, keys: false };
                noticed
                    .renewals
                    .add(since, &self.raw.call::<_, pb::LeaseTimeToLiveResponse>(Rpc::LeaseTimeToLive, &ask).await);
            }
            if turn.is_multiple_of(25) {
                let since = Instant::now();
                noticed.connections.add(since, &self.connect().await);
            }
            turn += 1;
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        noticed
    }

    /// A new client, and its first answer.
    async fn connect(&self) -> Result<()> {
        let raw = Raw::connect(&self.endpoint).await?;
        let read = pb::RangeRequest { key: b"honest/0".to_vec().into(), ..Default::default() };
        let _: pb::RangeResponse = raw.call(Rpc::Range, &read).await?;
        Ok(())
    }
}
