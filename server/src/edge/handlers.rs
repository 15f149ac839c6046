//! From a method to the code that serves it, after what every call is checked for.

use super::call::Call;
use super::methods::Method;
use super::reply::Driver;
use super::status::{self, Status};
use super::{backup, cluster, health, kv, lease, maintenance, range, watch};
use std::future::Future;
use std::pin::Pin;
use wire::{Kind, Rpc};

/// Longest client version that is counted under its own name.
const VERSION_CHARS: usize = 8;

/// Serves one call to its end. An error is the status the client sees.
///
/// Methods that are busy and those that are not are apart, and each of the latter is a box of its
/// own size: no call reserves room for what another method keeps.
pub fn handle(method: Method, call: Call) -> Driver {
    match method.wire.rpc {
        Rpc::Range | Rpc::Put | Rpc::Txn => Box::pin(busy(method, call)),
        _ => Box::pin(rarer(method, call)),
    }
}

async fn busy(method: Method, mut call: Call) -> Result<(), Status> {
    let call = &mut call;
    let result = match check(&method, call) {
        Ok(()) => match method.wire.rpc {
            Rpc::Range => range::range(call).await,
            Rpc::Put => kv::put(call).await,
            _ => kv::txn(call).await,
        },
        Err(refused) => Err(refused),
    };
    call.tally.end(&result);
    result
}

async fn rarer(method: Method, mut call: Call) -> Result<(), Status> {
    let result = match check(&method, &call) {
        Ok(()) => {
            if !method.is_unary() {
                call.reply.open();
            }
            serve(&method, &mut call).await
        }
        Err(refused) => Err(refused),
    };
    call.tally.end(&result);
    result
}

type Serving<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

fn serve<'a>(method: &Method, call: &'a mut Call) -> Serving<'a> {
    match method.wire.rpc {
        Rpc::RangeStream => Box::pin(range::range_stream(call)),
        Rpc::DeleteRange => Box::pin(kv::delete_range(call)),
        Rpc::Compact => Box::pin(kv::compact(call)),
        Rpc::Watch => Box::pin(watch::watch(call)),
        Rpc::LeaseGrant => Box::pin(lease::grant(call)),
        Rpc::LeaseRevoke => Box::pin(lease::revoke(call)),
        Rpc::LeaseKeepAlive => Box::pin(lease::keep_alive(call)),
        Rpc::LeaseTimeToLive => Box::pin(lease::time_to_live(call)),
        Rpc::LeaseLeases => Box::pin(lease::leases(call)),
        Rpc::MemberList => Box::pin(cluster::member_list(call)),
        Rpc::Alarm => Box::pin(maintenance::alarm(call)),
        Rpc::Status => Box::pin(maintenance::status(call)),
        Rpc::Defragment => Box::pin(maintenance::defragment(call)),
        Rpc::Hash => Box::pin(maintenance::hash(call)),
        Rpc::HashKV => Box::pin(maintenance::hash_kv(call)),
        Rpc::Snapshot => Box::pin(backup::snapshot(call)),
        Rpc::MoveLeader => Box::pin(maintenance::move_leader(call)),
        Rpc::HealthCheck => Box::pin(health::check(call)),
        Rpc::HealthList => Box::pin(health::list(call)),
        Rpc::HealthWatch => Box::pin(health::watch(call)),
        _ => Box::pin(std::future::ready(Err(Status::not_served(method.wire.path)))),
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
