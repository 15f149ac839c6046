//! What is said to the cluster, again and again until it is done or is known to be done.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use prost::Message;
use tokio::time::{sleep, timeout};
use wire::{Rpc, etcdserverpb as pb};

use crate::{
    raw::{Failure, Raw},
    rng::Rng,
};

/// How long a change may take, kills and all.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// One answer. A change waits for a quorum, which may be down for a while.
const ANSWER: Duration = Duration::from_secs(8);
const AGAIN: Duration = Duration::from_millis(100);

/// A change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member that votes from the start.
    AddVoter,
    /// A member that does not vote.
    AddLearner,
    /// The learner gets its vote.
    Promote,
    /// One of these goes, or else any voter.
    Remove {
        /// The leader.
        leader: bool,
        /// The learner.
        learner: bool,
    },
    /// A voter gets another peer URL.
    Update,
    /// Another voter leads.
    MoveLeader,
}

/// A request, with ids and peer URLs.
#[derive(Clone, Debug)]
pub enum Said {
    /// `MemberAdd`.
    Add {
        /// Of the new member.
        urls: Vec<String>,
        /// Whether it is to be a learner.
        learner: bool,
    },
    /// `MemberPromote`.
    Promote(u64),
    /// `MemberRemove`.
    Remove(u64),
    /// `MemberUpdate`.
    Update(u64, Vec<String>),
    /// `MoveLeader`.
    MoveLeader(u64),
}

impl Said {
    /// Whether a refusal means that it was done before: nobody else changes anything.
    fn was_done(&self, failure: &Failure) -> bool {
        let text = match self {
            Said::Add { .. } => "Peer URLs already exists",
            Said::Promote(_) => "can only promote a learner member",
            Said::Remove(_) => "member not found",
            Said::Update(..) | Said::MoveLeader(_) => return false,
        };
        failure.text.ends_with(text)
    }

    /// Whether a refusal is one that passes.
    fn passes(failure: &Failure) -> bool {
        let texts = [
            "unhealthy cluster",
            "not enough started members",
            "in sync with leader",
            "request timed out",
            "no leader",
            "leader changed",
            "not leader",
            "server stopped",
            "not available",
            "member not found",
            "rpc not supported for learner",
            "leader transfer",
            "transferee",
            "too many requests",
            // Words of this client: the member was killed meanwhile.
            "transport error",
            "h2 protocol error",
            "error reading a body",
        ];
        // Unavailable, or an answer that did not come.
        failure.code == 14 || failure.code < 0 || texts.iter().any(|text| failure.text.contains(text))
    }

    async fn once(&self, raw: &Raw) -> Result<(), Failure> {
        match self {
            Said::Add { urls, learner } => {
                let request = pb::MemberAddRequest { peer_urls: urls.clone(), is_learner: *learner };
                answered::<_, pb::MemberAddResponse>(raw, Rpc::MemberAdd, &request).await
            }
            Said::Promote(id) => {
                let request = pb::MemberPromoteRequest { id: *id };
                answered::<_, pb::MemberPromoteResponse>(raw, Rpc::MemberPromote, &request).await
            }
            Said::Remove(id) => {
                let request = pb::MemberRemoveRequest { id: *id };
                answered::<_, pb::MemberRemoveResponse>(raw, Rpc::MemberRemove, &request).await
            }
            Said::Update(id, urls) => {
                let request = pb::MemberUpdateRequest { id: *id, peer_urls: urls.clone() };
                answered::<_, pb::MemberUpdateResponse>(raw, Rpc::MemberUpdate, &request).await
            }
            Said::MoveLeader(id) => {
                let request = pb::MoveLeaderRequest { target_id: *id };
                answered::<_, pb::MoveLeaderResponse>(raw, Rpc::MoveLeader, &request).await
            }
        }
    }
}

async fn answered<Req: Message, Resp: Message + Default>(raw: &Raw, rpc: Rpc, request: &Req) -> Result<(), Failure> {
    raw.call::<Req, Resp>(rpc, request).await.map(drop)
}

/// Says it to one voter after the other until it is done.
///
/// # Errors
/// It is refused for good, or does not come about in time.
pub async fn until_done(voters: Vec<String>, said: Said, seed: u64) -> Result<Said> {
    let (mut rng, until) = (Rng::new(seed), Instant::now() + PATIENCE);
    let mut last = String::new();
    let mut tried = false;
    while Instant::now() < until {
        let endpoint = rng.pick(&voters);
        let answer = timeout(ANSWER, async {
            let raw = Raw::connect(&endpoint).await.map_err(|error| Failure { code: -4, text: error.to_string() })?;
            said.once(&raw).await
        });
        match answer.await {
            Ok(Ok(())) => return Ok(said),
            // Only what was sent before can have been done.
            Ok(Err(failure)) if tried && said.was_done(&failure) => return Ok(said),
            Ok(Err(failure)) if matches!(said, Said::MoveLeader(_)) || Said::passes(&failure) => {
                tried |= failure.code != -4;
                last = failure.to_string();
                // Leadership that goes elsewhere in the meantime is no fault.
                if matches!(said, Said::MoveLeader(_)) && until.duration_since(Instant::now()) < PATIENCE / 2 {
                    return Ok(said);
                }
            }
            Ok(Err(failure)) => bail!("{said:?} at {endpoint}: {failure}"),
            Err(_) => {
                tried = true;
                last = format!("no answer within {ANSWER:?}");
            }
        }
        sleep(AGAIN).await;
    }
    bail!("{said:?} was not done within {PATIENCE:?}: {last}")
}

/// The members as any one of these voters knows them, as soon as one has this peer URL.
///
/// # Errors
/// It does not come about in time.
pub async fn listed_by_one(voters: Vec<String>, url: String) -> Result<Vec<pb::Member>> {
    let until = Instant::now() + PATIENCE;
    loop {
        for voter in &voters {
            if let Ok(members) = listed(voter, false).await
                && at_url(&members, &url).is_some()
            {
                return Ok(members);
            }
        }
        if Instant::now() > until {
            bail!("no voter knows a member at {url}");
        }
        sleep(AGAIN).await;
    }
}

/// The members, as one of them knows them or as the cluster does.
///
/// # Errors
/// It does not answer.
pub async fn listed(endpoint: &str, linearizable: bool) -> Result<Vec<pb::Member>> {
    let asked = timeout(ANSWER, async {
        let raw = Raw::connect(endpoint).await?;
        let request = pb::MemberListRequest { linearizable };
        Ok::<pb::MemberListResponse, anyhow::Error>(raw.call(Rpc::MemberList, &request).await?)
    });
    Ok(asked.await.context("no answer")??.members)
}

/// Of a list of members, the one with this peer URL.
pub fn at_url<'m>(members: &'m [pb::Member], url: &str) -> Option<&'m pb::Member> {
    members.iter().find(|member| member.peer_urls.iter().any(|own| own == url))
}
