//! Everything that one member serves, read over the wire.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::{Rpc, etcdserverpb as pb, mvccpb::KeyValue};

use crate::raw::{Failure, Raw};

/// Keys in one answer: a page of big values stays below what any client takes.
const PAGE: i64 = 100;

/// What a member said of its state.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Of the first answer.
    pub revision: i64,
    pub kvs: BTreeMap<Bytes, KeyValue>,
    pub leases: BTreeSet<i64>,
    /// HashKV, at the revision that was asked for.
    pub hash: u32,
}

/// By key, for comparing.
pub fn by_key(kvs: Vec<KeyValue>) -> BTreeMap<Bytes, KeyValue> {
    kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect()
}

/// Reads all keys with their values, the leases, and HashKV at `hash_at`, or at the revision found.
///
/// # Errors
/// What the member answered instead.
pub async fn read_all(raw: &Raw, linearizable: bool, hash_at: Option<i64>) -> Result<State, Failure> {
    let mut kvs: Vec<KeyValue> = Vec::new();
    let mut key = Bytes::from_static(b"\0");
    let mut revision = 0;
    loop {
        let request = pb::RangeRequest {
            key: key.clone(),
            range_end: Bytes::from_static(b"\0"),
            limit: PAGE,
            revision,
            serializable: !linearizable,
            ..Default::default()
        };
        let answer: pb::RangeResponse = raw.call(Rpc::Range, &request).await?;
        if revision == 0 {
            revision = answer.header.map_or(0, |header| header.revision);
        }
        let Some(last) = answer.kvs.last() else { break };
        key = [&last.key[..], &[0]].concat().into();
        kvs.extend(answer.kvs);
        if !answer.more {
            break;
        }
    }
    let leases: pb::LeaseLeasesResponse = raw.call(Rpc::LeaseLeases, &pb::LeaseLeasesRequest {}).await?;
    let hash_at = hash_at.unwrap_or(revision);
    let hash: pb::HashKvResponse = raw.call(Rpc::HashKV, &pb::HashKvRequest { revision: hash_at }).await?;
    let leases = leases.leases.into_iter().map(|lease| lease.id).collect();
    Ok(State { revision, kvs: by_key(kvs), leases, hash: hash.hash })
}
