//! Leases: grant, revoke, keep alive, time to live, list.

use super::kv::propose;
use crate::transport::call::Call;
use crate::transport::status::Status;
use bytes::Bytes;
use node::{Answer, Request};
use std::time::Duration;
use store::command;
use store::protobuf::{self, Fields};

/// Two `int64` fields, 1 and 2, of a request.
fn two_ints(request: &Bytes) -> Result<(i64, i64), Status> {
    let (mut first, mut second) = (0, 0);
    let mut fields = Fields::new(request);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => first = value.int(),
            (2, value) => second = value.int(),
            _ => {}
        }
    }
    Ok((first, second))
}

/// Shortest time to live in seconds: one and a half elections in whole ticks, rounded up (etcd's
/// rule).
fn min_ttl(election: Duration, heartbeat: Duration) -> i64 {
    let heartbeat = heartbeat.as_millis().max(1);
    let ticks = election.as_millis() / heartbeat;
    let millis = (3 * ticks / 2) * heartbeat;
    i64::try_from(millis.div_ceil(1000)).unwrap_or(i64::MAX).max(1)
}

pub(crate) async fn grant(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (ttl, id) = two_ints(&request)?;
    let id = if id == 0 { call.edge.lease_id() } else { id };
    let Granted { revision, term, id, ttl } = granted(call, id, ttl).await?;
    let mut rest = Vec::new();
    protobuf::write_int(&mut rest, 2, id);
    protobuf::write_int(&mut rest, 3, ttl);
    call.answer(revision, term, &rest)
}

/// A lease that was granted, and where.
pub(super) struct Granted {
    revision: i64,
    term: u64,
    pub(super) id: i64,
    ttl: i64,
}

pub(super) async fn granted(call: &Call, id: i64, ttl: i64) -> Result<Granted, Status> {
    let settings = call.core().settings();
    let body = command::encode_lease_grant(id, ttl, min_ttl(settings.election, settings.heartbeat));
    let (revision, term, reply) = propose(call, body, command::LEASE_GRANT_COST).await?;
    let store::Reply::LeaseGrant { id, ttl } = reply else { return Err(Status::unexpected("a grant")) };
    Ok(Granted { revision, term, id, ttl })
}

pub(crate) async fn revoke(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (id, _) = two_ints(&request)?;
    let (revision, term, _) = propose(call, command::encode_lease_revoke(id), 0).await?;
    call.answer(revision, term, &[])
}

/// One answer for each request, in order; the header's revision is from before the renewal.
pub(crate) async fn keep_alive(call: &mut Call) -> Result<(), Status> {
    while let Some(request) = call.next_of_stream("lease-keepalive").await? {
        let read = two_ints(&request).map_err(Status::on_stream);
        call.count_failure(read.as_ref().err(), "lease-keepalive");
        let (id, _) = read?;
        let revision = call.core().revision();
        let asked = call.read(Request::KeepAlive { lease: id }).await?;
        let Answer::KeepAlive { ttl } = asked.answer else { return Err(Status::unexpected("a renewal")) };
        let mut rest = Vec::new();
        protobuf::write_int(&mut rest, 2, id);
        protobuf::write_int(&mut rest, 3, ttl);
        call.answer(revision, asked.term, &rest)?;
        call.reply.room().await;
    }
    Ok(())
}

pub(crate) async fn time_to_live(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (id, keys) = two_ints(&request)?;
    let asked = call.read(Request::TimeToLive { lease: id, keys: keys != 0 }).await?;
    let Answer::TimeToLive { ttl, granted, keys } = asked.answer else {
        return Err(Status::unexpected("a time to live"));
    };
    let mut head = Vec::new();
    protobuf::write_int(&mut head, 2, id);
    protobuf::write_int(&mut head, 3, ttl);
    protobuf::write_int(&mut head, 4, granted);
    let len = keys.iter().map(|key| protobuf::field_len(5, key.len()) as u64).sum();
    let fields = keys.iter().map(|key| move |out: &mut Vec<u8>| protobuf::write_message(out, 5, key));
    call.answer_fields(asked.revision, asked.term, &head, len, fields).await
}

pub(crate) async fn leases(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    let asked = call.read(Request::Leases).await?;
    let Answer::Leases { ids } = asked.answer else { return Err(Status::unexpected("leases")) };
    let len = ids.iter().map(|id| protobuf::field_len(2, protobuf::int_len(1, *id)) as u64).sum();
    let fields = ids.iter().map(|id| move |out: &mut Vec<u8>| protobuf::nested(out, 2, |out| write_id(out, *id)));
    call.answer_fields(asked.revision, asked.term, &[], len, fields).await
}

fn write_id(out: &mut Vec<u8>, id: i64) {
    protobuf::write_int(out, 1, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_lease_is_etcds() {
        let ms = Duration::from_millis;
        assert_eq!(min_ttl(ms(1000), ms(100)), 2);
        assert_eq!(min_ttl(ms(3000), ms(500)), 5);
        assert_eq!(min_ttl(ms(100), ms(10)), 1);
    }
}
