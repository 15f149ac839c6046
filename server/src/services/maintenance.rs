//! Status, alarms, hashes, leadership.

use super::kv::propose;
use super::plan;
use crate::metrics::{alarm_name, db_in_use, db_size};
use crate::transport::call::Call;
use crate::transport::status::{self, Status};
use bytes::Bytes;
use node::{Answer, Request};
use store::command::{self, AlarmAction};
use store::protobuf::{self, Fields};
use wire::Code;

/// What etcd reports as its quota when none is set.
const DEFAULT_QUOTA: i64 = 2 << 30;

fn first_int(request: &Bytes) -> Result<u64, Status> {
    let mut first = 0;
    let mut fields = Fields::new(request);
    while let Some(field) = fields.next_field()? {
        if let (1, value) = field {
            first = value.uint();
        }
    }
    Ok(first)
}

pub(crate) async fn status(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    let asked = call.read(Request::Status).await?;
    let Answer::Status(now) = asked.answer else { return Err(Status::unexpected("status")) };
    let settings = call.core().settings();
    let quota = if settings.quota_bytes == 0 { DEFAULT_QUOTA } else { settings.quota_bytes };
    let mut rest = Vec::new();
    protobuf::write_bytes(&mut rest, 2, settings.etcd_level.as_bytes());
    protobuf::write_varint(&mut rest, 3, db_size(&now));
    protobuf::write_varint(&mut rest, 4, now.leader);
    protobuf::write_varint(&mut rest, 5, now.committed);
    protobuf::write_varint(&mut rest, 6, now.term);
    protobuf::write_varint(&mut rest, 7, now.applied);
    for error in errors(&now) {
        protobuf::write_bytes(&mut rest, 8, error.as_bytes());
    }
    protobuf::write_varint(&mut rest, 9, db_in_use(&now));
    protobuf::write_bool(&mut rest, 10, now.is_learner);
    protobuf::write_bytes(&mut rest, 11, storage_version(&now.cluster_version).as_bytes());
    protobuf::write_int(&mut rest, 12, quota);
    protobuf::write_message(&mut rest, 13, &[]);
    call.answer(now.revision, now.term, &rest)
}

/// The storage version follows the cluster's; empty until that is decided.
pub(crate) fn storage_version(cluster_version: &str) -> &str {
    cluster_version
}

fn errors(now: &node::Status) -> Vec<String> {
    let mut errors = Vec::new();
    if now.leader == 0 {
        errors.push(status::NO_LEADER.message.into_owned());
    }
    errors.extend(now.alarms.iter().map(alarm_text));
    errors
}

/// As Go shows the message: what has its default is left out.
fn alarm_text(alarm: &store::AlarmMember) -> String {
    let member = (alarm.member != 0).then(|| format!("memberID:{}", alarm.member));
    let kind = (alarm.alarm != 0).then(|| format!("alarm:{}", alarm_name(alarm.alarm)));
    [member, kind].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// GET, ACTIVATE, DEACTIVATE. An action that is none of these is refused (it kills an etcd).
pub(crate) async fn alarm(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (mut action, mut member, mut kind) = (0, 0, 0);
    let mut fields = Fields::new(&request);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => action = value.int32(),
            (2, value) => member = value.uint(),
            (3, value) => kind = value.int32(),
            _ => {}
        }
    }
    let action = match action {
        0 => return get_alarms(call, kind).await,
        1 => AlarmAction::Activate,
        2 => AlarmAction::Deactivate,
        other => {
            return Err(Status::with(Code::InvalidArgument, format!("etcdserver: unknown alarm action {other}")));
        }
    };
    let (revision, term, reply) = propose(call, command::encode_alarm(action, member, kind), 0).await?;
    let mut rest = Vec::new();
    if let store::Reply::Alarm { alarms } = &reply {
        plan::put_alarms(&mut rest, alarms);
    }
    call.answer(revision, term, &rest)
}

async fn get_alarms(call: &mut Call, kind: i32) -> Result<(), Status> {
    let asked = call.read(Request::Alarms { kind }).await?;
    let Answer::Alarms { alarms } = asked.answer else { return Err(Status::unexpected("alarms")) };
    let mut rest = Vec::new();
    plan::put_alarms(&mut rest, &alarms);
    call.answer(asked.revision, asked.term, &rest)
}

/// There is nothing to do: space is reclaimed all the time. etcd's answer has no header.
pub(crate) async fn defragment(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    call.read(Request::Admin).await?;
    call.reply.message_now(&[])
}

pub(crate) async fn hash(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    let asked = call.read(Request::Hash).await?;
    let Answer::Hash { hash } = asked.answer else { return Err(Status::unexpected("a hash")) };
    let mut rest = Vec::new();
    protobuf::write_varint(&mut rest, 2, u64::from(hash));
    call.answer(asked.revision, asked.term, &rest)
}

pub(crate) async fn hash_kv(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let revision = i64::from_ne_bytes(first_int(&request)?.to_ne_bytes());
    let asked = call.read(Request::HashKv { revision }).await?;
    let Answer::HashKv { hash, compacted, hash_revision } = asked.answer else {
        return Err(Status::unexpected("a hash"));
    };
    let mut rest = Vec::new();
    protobuf::write_varint(&mut rest, 2, u64::from(hash));
    protobuf::write_int(&mut rest, 3, compacted);
    protobuf::write_int(&mut rest, 4, hash_revision);
    call.answer(asked.revision, asked.term, &rest)
}

/// etcd's answer has no header.
pub(crate) async fn move_leader(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let target = first_int(&request)?;
    match call.write(Request::MoveLeader { target }).await?.answer {
        Answer::Moved => call.reply.message_now(&[]),
        _ => Err(Status::unexpected("a change of leader")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_what_is_wrong() {
        let mut now = node::Status::default();
        now.alarms.push(store::AlarmMember { member: 12, alarm: 1 });
        assert_eq!(errors(&now), ["etcdserver: no leader", "memberID:12 alarm:NOSPACE"]);
        now.leader = 3;
        now.alarms = [(0, 1), (0, 7), (5, 7), (5, 0), (0, 0)]
            .map(|(member, alarm)| store::AlarmMember { member, alarm })
            .to_vec();
        assert_eq!(errors(&now), ["alarm:NOSPACE", "alarm:7", "memberID:5 alarm:7", "memberID:5", ""]);
        now.alarms.clear();
        assert!(errors(&now).is_empty());
    }
}
