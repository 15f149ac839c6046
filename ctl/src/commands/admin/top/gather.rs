//! One round of questions to all members.

use std::time::{Duration, Instant};

use client::{
    Client,
    wire::etcdserverpb::{Member, StatusResponse},
};
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::super::{each::single, memory};
use crate::exit::error_text;

/// What one member said.
#[derive(Clone, Debug)]
pub struct Sample {
    /// As the cluster knows it.
    pub name: String,
    /// Who was asked.
    pub endpoint: String,
    /// Its own words, or why there are none.
    pub status: Result<StatusResponse, String>,
    /// How long it took.
    pub latency: Duration,
    /// Watches; only a server whose metrics can be read says.
    pub watchers: Option<f64>,
    /// Ranges served since its start.
    pub reads: Option<f64>,
    /// Resident memory in bytes.
    pub memory: Option<f64>,
    /// Leases granted less those revoked and expired, since its start.
    pub leases: Option<f64>,
}

/// What all members said at about one time.
#[derive(Clone, Debug)]
pub struct Round {
    /// When it was complete.
    pub at: Instant,
    /// One for each member, in the order of the cluster.
    pub samples: Vec<Sample>,
}

/// Asks every member of the cluster, or the endpoints that were given while
/// there is nobody who knows the members.
pub async fn round(client: &Client, limit: Duration) -> Round {
    let listed = tokio::time::timeout(limit, client.member_list_with(false)).await;
    let asked: Vec<(String, String)> = match listed {
        Ok(Ok(list)) => list.members.into_iter().map(named).collect(),
        _ => client.endpoints().into_iter().map(|endpoint| (String::new(), endpoint)).collect(),
    };
    let questions: FuturesUnordered<_> = asked
        .into_iter()
        .enumerate()
        .map(|(at, (name, endpoint))| async move { (at, sample(client, name, endpoint, limit).await) })
        .collect();
    let mut answers: Vec<(usize, Sample)> = questions.collect().await;
    answers.sort_by_key(|(at, _)| *at);
    Round { at: Instant::now(), samples: answers.into_iter().map(|(_, sample)| sample).collect() }
}

fn named(member: Member) -> (String, String) {
    (member.name, member.client_urls.into_iter().next().unwrap_or_default())
}

async fn sample(client: &Client, name: String, endpoint: String, limit: Duration) -> Sample {
    let begin = Instant::now();
    let asked = async { single(client, &endpoint)?.status().await };
    let status = match tokio::time::timeout(limit, asked).await {
        Ok(answer) => answer.map_err(|error| error_text(&error)),
        Err(_) => Err("no answer".to_owned()),
    };
    let latency = begin.elapsed();
    let page = match &status {
        Ok(_) => tokio::time::timeout(limit, memory::page(client, &endpoint)).await.ok().and_then(Result::ok),
        Err(_) => None,
    };
    let value = |name| page.as_deref().and_then(|page| memory::value(page, name));
    let gone = |name| value(name).unwrap_or(0.0);
    Sample {
        watchers: value("etcd_debugging_mvcc_watcher_total"),
        reads: value("etcd_mvcc_range_total"),
        memory: value("process_resident_memory_bytes"),
        leases: value("etcd_debugging_lease_granted_total").map(|granted| {
            granted - gone("etcd_debugging_lease_revoked_total") - gone("etcd_debugging_server_lease_expired_total")
        }),
        name,
        endpoint,
        status,
        latency,
    }
}
