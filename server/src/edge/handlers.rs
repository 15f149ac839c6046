//! From a method to the code that serves it, after what every call is checked for.

use super::call::Call;
use super::methods::Method;
use super::status::{self, Status};
use super::{backup, cluster, health, kv, lease, maintenance, range, watch};
use wire::{Kind, Rpc};

/// Longest client version that is counted under its own name.
const VERSION_CHARS: usize = 8;

/// Serves one call to its end. An error is the status the client sees.
pub async fn handle(method: &Method, mut call: Call) -> Result<(), Status> {
    check(method, &call)?;
    if !method.is_unary() {
        call.reply.open();
    }
    let call = &mut call;
    match method.wire.rpc {
        Rpc::Range => range::range(call).await,
        Rpc::Put => kv::put(call).await,
        Rpc::Txn => kv::txn(call).await,
        _ => Box::pin(handle_rarer(method, call)).await,
    }
}

/// Apart, so that a call of the busy methods reserves no room for what the others keep.
async fn handle_rarer(method: &Method, call: &mut Call) -> Result<(), Status> {
    match method.wire.rpc {
        Rpc::RangeStream => range::range_stream(call).await,
        Rpc::DeleteRange => kv::delete_range(call).await,
        Rpc::Compact => kv::compact(call).await,
        Rpc::Watch => watch::watch(call).await,
        Rpc::LeaseGrant => lease::grant(call).await,
        Rpc::LeaseRevoke => lease::revoke(call).await,
        Rpc::LeaseKeepAlive => lease::keep_alive(call).await,
        Rpc::LeaseTimeToLive => lease::time_to_live(call).await,
        Rpc::LeaseLeases => lease::leases(call).await,
        Rpc::MemberList => cluster::member_list(call).await,
        Rpc::Alarm => maintenance::alarm(call).await,
        Rpc::Status => maintenance::status(call).await,
        Rpc::Defragment => maintenance::defragment(call).await,
        Rpc::Hash => maintenance::hash(call).await,
        Rpc::HashKV => maintenance::hash_kv(call).await,
        Rpc::Snapshot => backup::snapshot(call).await,
        Rpc::MoveLeader => maintenance::move_leader(call).await,
        Rpc::HealthCheck => health::check(call).await,
        Rpc::HealthList => health::list(call).await,
        Rpc::HealthWatch => health::watch(call).await,
        _ => Err(Status::not_served(method.wire.path)),
    }
}

/// What etcd's interceptors look at, in their order.
fn check(method: &Method, call: &Call) -> Result<(), Status> {
    let version = match call.metadata.get("client-api-version") {
        None => "unknown",
        Some(value) => std::str::from_utf8(value.as_bytes()).map_err(|_| status::API_VERSION)?,
    };
    let kind = if method.wire.kind == Kind::Unary { "unary" } else { "stream" };
    call.edge.metrics().client_requests.with_label_values(&[kind, countable(version)]).inc();
    if call.wants_leader() && call.core().leader() == 0 {
        return Err(status::NO_LEADER);
    }
    Ok(())
}

/// Versions are counted by name; anything else a client may write is not, so that clients
/// cannot make counters without end.
fn countable(version: &str) -> &str {
    let plain = version.len() <= VERSION_CHARS && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain && !version.is_empty() { version } else { "unknown" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_are_counted_by_name() {
        for (given, counted) in [("3.7", "3.7"), ("", "unknown"), ("evil", "unknown"), ("1.2.3.4.5.6", "unknown")] {
            assert_eq!(countable(given), counted);
        }
    }
}
