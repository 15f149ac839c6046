//! The health protocol of gRPC: one service, the empty name, serving once the member serves.

use crate::transport::call::Call;
use crate::transport::status::{self, Status};
use store::protobuf::{self, Fields};
use wire::Code;

const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;
const SERVICE_UNKNOWN: u64 = 3;

async fn known(call: &mut Call) -> Result<bool, Status> {
    let request = call.request().await?;
    let mut served = true;
    let mut fields = Fields::new(&request);
    while let Some(field) = fields.next_field()? {
        if let (1, value) = field {
            served = value.bytes().is_empty();
        }
    }
    Ok(served)
}

fn say(call: &mut Call, state: u64) -> Result<(), Status> {
    let mut message = Vec::new();
    protobuf::write_varint(&mut message, 1, state);
    call.reply.message_now(&message)
}

pub(crate) async fn check(call: &mut Call) -> Result<(), Status> {
    match known(call).await? {
        true => say(call, SERVING),
        false => Err(Status::new(Code::NotFound, "unknown service")),
    }
}

pub(crate) async fn list(call: &mut Call) -> Result<(), Status> {
    call.request().await?;
    let mut state = Vec::new();
    protobuf::write_varint(&mut state, 1, SERVING);
    let mut entry = Vec::new();
    protobuf::write_message(&mut entry, 2, &state);
    let mut message = Vec::new();
    protobuf::write_message(&mut message, 1, &entry);
    call.reply.message_now(&message)
}

/// The state now, and again when it changes: once, when the member stops.
pub(crate) async fn watch(call: &mut Call) -> Result<(), Status> {
    let serving = match known(call).await? {
        true => SERVING,
        false => SERVICE_UNKNOWN,
    };
    say(call, serving)?;
    let mut stopping = call.core().stopping();
    let stopped = stopping.wait_for(|stopping| *stopping).await.is_ok();
    if stopped && serving == SERVING {
        say(call, NOT_SERVING)?;
    }
    Err(status::STOPPED)
}
