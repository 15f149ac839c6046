//! Elections that the server waits for: `v3electionpb.Election`.

use super::recipe::{self, At, Look, Undo, Wish, told};
use crate::transport::call::Call;
use crate::transport::status::{Code, Status};
use bytes::Bytes;
use prost::Message;
use store::{KeyRange, protobuf};
use wire::v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest};

const NO_LEADER: Status = Status::new(Code::Unknown, "election: no leader");
const NOT_LEADER: Status = Status::new(Code::Unknown, "election: not leader");
const NO_KEY: Status = Status::new(Code::Unknown, "\"leader\" field must be provided");

fn read<T: Message + Default>(request: &[u8]) -> Result<T, Status> {
    T::decode(request).map_err(|_| protobuf::Malformed::new("it is not that message").into())
}

/// Answers when the caller's key is the oldest of its name.
pub(crate) async fn campaign(call: &mut Call) -> Result<(), Status> {
    let request: CampaignRequest = read(&call.request().await?)?;
    let (at, leader) = elected(call, request).await.map_err(told)?;
    let mut rest = Vec::new();
    protobuf::write_message(&mut rest, 2, &leader.encode_to_vec());
    call.answer(at.revision, at.term, &rest)
}

async fn elected(call: &Call, request: CampaignRequest) -> Result<(At, LeaderKey), Status> {
    let lease = recipe::lease(call, request.lease).await?;
    let prefix = recipe::prefix(&request.name);
    let key = recipe::key(&prefix, lease);
    let (at, stands) = recipe::stand(call, &key, &request.value, lease).await?;
    let revision = match &stands {
        Ok(revision) => *revision,
        Err(there) => there.create,
    };
    let undo = Undo::of(call, &key, revision)?;
    let done = async {
        if let Err(there) = &stands
            && recipe::value(call.core(), there).await? != request.value
        {
            proclaimed(call, &key, revision, &request.value, lease).await?;
        }
        recipe::alone(call, &prefix, revision).await
    };
    match done.await {
        Ok(_) => undo.keep(),
        Err(status) => {
            undo.now().await;
            return Err(status);
        }
    }
    Ok((at, LeaderKey { name: request.name, key, rev: revision, lease }))
}

async fn proclaimed(call: &Call, key: &Bytes, revision: i64, value: &[u8], lease: i64) -> Result<At, Status> {
    let put = vec![recipe::put(key, value, lease)];
    match recipe::commit(call, recipe::created(key, revision), put, Vec::new()).await? {
        (at, true, _) => Ok(at),
        (_, false, _) => Err(NOT_LEADER),
    }
}

pub(crate) async fn proclaim(call: &mut Call) -> Result<(), Status> {
    let request: ProclaimRequest = read(&call.request().await?)?;
    let leader = request.leader.ok_or(NO_KEY)?;
    let proclaim = async {
        let lease = recipe::lease(call, leader.lease).await?;
        proclaimed(call, &leader.key, leader.rev, &request.value, lease).await
    };
    let at = proclaim.await.map_err(told)?;
    call.answer(at.revision, at.term, &[])
}

/// Of a leadership that is over already, it does nothing.
pub(crate) async fn resign(call: &mut Call) -> Result<(), Status> {
    let request: ResignRequest = read(&call.request().await?)?;
    let leader = request.leader.ok_or(NO_KEY)?;
    let delete = vec![recipe::delete(&leader.key)];
    let resigned = recipe::commit(call, recipe::created(&leader.key, leader.rev), delete, Vec::new()).await;
    let (at, ..) = resigned.map_err(told)?;
    call.answer(at.revision, at.term, &[])
}

pub(crate) async fn leader(call: &mut Call) -> Result<(), Status> {
    let request: LeaderRequest = read(&call.request().await?)?;
    let prefix = recipe::prefix(&request.name);
    match leads(call, &prefix).await.map_err(told)? {
        (at, Some((_, kv))) => say(call, at, &kv),
        (_, None) => Err(NO_LEADER),
    }
}

/// The leader's key, with its `KeyValue`.
async fn leads(call: &Call, prefix: &[u8]) -> Result<(At, Option<(Bytes, Bytes)>), Status> {
    let query = store::Query { keys_only: true, ..recipe::oldest(prefix) };
    let (at, oldest) = recipe::first(call, query).await?;
    Ok(match oldest {
        None => (at, None),
        Some(item) => {
            let kv = recipe::key_value(call.core(), &item).await?;
            (at, Some((Bytes::copy_from_slice(&item.key), kv)))
        }
    })
}

fn say(call: &mut Call, at: At, kv: &[u8]) -> Result<(), Status> {
    let mut rest = Vec::new();
    protobuf::write_message(&mut rest, 2, kv);
    call.answer(at.revision, at.term, &rest)
}

/// Every leader and all that it proclaims, from the present one on; what came while the client was
/// slow may be left out, and the newest is not.
pub(crate) async fn observe(call: &mut Call) -> Result<(), Status> {
    let request: LeaderRequest = read(&call.request().await?)?;
    let prefix = recipe::prefix(&request.name);
    loop {
        let (at, key, kv) = match leads(call, &prefix).await.map_err(told)? {
            (at, Some((key, kv))) => (at, key, kv),
            (at, None) => {
                let wish = Wish::put_below(&prefix, at.revision + 1);
                let seen = Look::begin(call, wish).await.map_err(told)?.next(call).await.map_err(told)?;
                let Some(seen) = seen else { continue };
                let key = store::record::key_value(&seen.kv).map(|kv| Bytes::copy_from_slice(kv.key));
                let Ok(key) = key else { return Err(Status::unexpected("an event")) };
                (At { revision: seen.revision, ..at }, key, seen.kv)
            }
        };
        call.reply.room().await;
        say(call, at, &kv)?;
        let wish = Wish { range: KeyRange::new(&key, b""), puts: true, deletes: true, next: at.revision + 1 };
        let mut look = Look::begin(call, wish).await.map_err(told)?;
        while let Some(seen) = look.next(call).await.map_err(told)? {
            if seen.deleted {
                break;
            }
            call.reply.room().await;
            say(call, At { revision: seen.revision, ..at }, &seen.kv)?;
        }
    }
}
