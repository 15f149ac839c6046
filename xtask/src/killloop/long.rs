//! One value that takes long: over a link on which it is longer on its way than any silence that is
//! borne. It must arrive, and nobody may be elected for it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use wire::{Rpc, etcdserverpb as pb};

use super::link::Link;
use crate::{raw::Raw, server::Server};

/// Below the largest request that is taken.
const VALUE: usize = 1_400_000;
/// Bytes a second: it takes 16 s, and a member gives a silent line up after 10.
const RATE: u64 = 90_000;
const WITHIN: Duration = Duration::from_secs(60);

async fn status(member: &Server) -> Result<pb::StatusResponse> {
    let raw = Raw::connect(&member.endpoint()).await?;
    raw.call(Rpc::Status, &pb::StatusRequest {}).await.context("status")
}

/// Puts the value at member `leader`, and waits until a follower has it.
///
/// # Errors
/// It does not arrive, or another term begins.
pub async fn long_value(members: &[Server], leader: usize, links: &[std::sync::Arc<Link>]) -> Result<()> {
    links.iter().for_each(|link| link.set_rate(RATE));
    let before = status(&members[leader]).await?;
    let value: Bytes = vec![b'l'; VALUE].into();
    let put = pb::PutRequest { key: "long".into(), value, ..Default::default() };
    let begin = Instant::now();
    let raw = Raw::connect(&members[leader].endpoint()).await?;
    // It may be answered with a timeout; it is on its way all the same.
    let answered = raw.call::<_, pb::PutResponse>(Rpc::Put, &put).await.is_ok();
    let follower = Raw::connect(&members[(leader + 1) % members.len()].endpoint()).await?;
    let get = pb::RangeRequest { key: "long".into(), serializable: true, keys_only: true, ..Default::default() };
    while follower.call::<_, pb::RangeResponse>(Rpc::Range, &get).await.map_or(0, |got| got.count) == 0 {
        if begin.elapsed() > WITHIN {
            bail!("a value of {VALUE} B is not there after {WITHIN:?} over {RATE} B/s");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let after = status(&members[leader]).await?;
    println!(
        "a value of {VALUE} B over {RATE} B/s: there after {:.1} s, answered {answered}, term {} before and {} after",
        begin.elapsed().as_secs_f64(),
        before.raft_term,
        after.raft_term
    );
    if after.raft_term != before.raft_term {
        bail!("a long value costs the leader its term");
    }
    Ok(())
}
