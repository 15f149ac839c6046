//! Locks that the server waits for: `v3lockpb.Lock`.

use super::recipe::{self, At, Undo, told};
use crate::transport::call::Call;
use crate::transport::status::{Code, Status};
use bytes::Bytes;
use prost::Message;
use store::protobuf;
use wire::v3lockpb::{LockRequest, UnlockRequest};

const EXPIRED: Status = Status::new(Code::Unknown, "mutex: session is expired");

fn read<T: Message + Default>(request: &[u8]) -> Result<T, Status> {
    T::decode(request).map_err(|_| protobuf::Malformed::new("it is not that message").into())
}

/// Answers when the caller's key is the oldest of its name.
pub(crate) async fn lock(call: &mut Call) -> Result<(), Status> {
    let request: LockRequest = read(&call.request().await?)?;
    let (at, key) = acquired(call, &request).await.map_err(told)?;
    let mut rest = Vec::new();
    protobuf::write_bytes(&mut rest, 2, &key);
    call.answer(at.revision, at.term, &rest)
}

async fn acquired(call: &Call, request: &LockRequest) -> Result<(At, Bytes), Status> {
    let lease = recipe::lease(call, request.lease).await?;
    let prefix = recipe::prefix(&request.name);
    let key = recipe::key(&prefix, lease);
    let (mut at, stands) = recipe::stand(call, &key, b"", lease).await?;
    let revision = stands.unwrap_or_else(|there| there.create);
    let undo = Undo::of(call, &key, revision)?;
    match waited(call, &prefix, &key, revision).await {
        Ok(Some(later)) => at = later,
        Ok(None) => {}
        // Nothing is left to take back.
        Err(expired) if expired == EXPIRED => {
            undo.keep();
            return Err(expired);
        }
        Err(status) => {
            undo.now().await;
            return Err(status);
        }
    }
    undo.keep();
    Ok((at, key))
}

/// Where the key was seen to be still there, if others had to go first.
async fn waited(call: &Call, prefix: &[u8], key: &Bytes, revision: i64) -> Result<Option<At>, Status> {
    if !recipe::alone(call, prefix, revision).await? {
        return Ok(None);
    }
    match recipe::first(call, recipe::one(key)).await? {
        (at, Some(_)) => Ok(Some(at)),
        (_, None) => Err(EXPIRED),
    }
}

pub(crate) async fn unlock(call: &mut Call) -> Result<(), Status> {
    let request: UnlockRequest = read(&call.request().await?)?;
    let (revision, term) = deleted(call, request.key).await.map_err(told)?;
    call.answer(revision, term, &[])
}

async fn deleted(call: &Call, key: Bytes) -> Result<(i64, u64), Status> {
    let delete = wire::etcdserverpb::DeleteRangeRequest { key, ..Default::default() };
    let store::command::Write { body, cost } = store::command::delete_range(&delete.encode_to_vec())?;
    let (revision, term, _) = super::kv::propose(call, body, cost).await?;
    Ok((revision, term))
}
