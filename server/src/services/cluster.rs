//! Who belongs to the cluster.

use crate::transport::call::Call;
use crate::transport::status::Status;
use node::{Answer, Request};
use store::Member;
use store::protobuf::{self, Fields};

/// `etcdserverpb.Member`.
fn put_member(out: &mut Vec<u8>, number: u32, member: &Member, learner: bool) {
    let mut message = Vec::new();
    protobuf::write_varint(&mut message, 1, member.id);
    protobuf::write_bytes(&mut message, 2, member.name.as_bytes());
    for url in &member.peer_urls {
        protobuf::write_message(&mut message, 3, url.as_bytes());
    }
    for url in &member.client_urls {
        protobuf::write_message(&mut message, 4, url.as_bytes());
    }
    protobuf::write_bool(&mut message, 5, learner);
    protobuf::write_message(out, number, &message);
}

/// Headers of the Cluster service carry no revision.
pub(crate) async fn member_list(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let mut linearizable = false;
    let mut fields = Fields::new(&request);
    while let Some(field) = fields.next_field()? {
        if let (1, value) = field {
            linearizable = value.flag();
        }
    }
    let asked = call.read(Request::Members { linearizable }).await?;
    let Answer::Members { mut members } = asked.answer else { return Err(Status::unexpected("members")) };
    members.sort_by_key(|(member, _)| member.id);
    let mut rest = Vec::new();
    for (member, learner) in &members {
        put_member(&mut rest, 2, member, *learner);
    }
    call.answer(0, asked.term, &rest)
}
