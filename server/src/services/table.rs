//! The one table: from a method to the code that serves it, after what every call is checked for,
//! and to the pages for everything that is no gRPC.

pub(crate) use super::pages::{not_grpc, serve as page, serve_metrics as metrics_page};
use super::{auth, backup, cluster, downgrade, election, health, kv, lease, lock, maintenance, range, slow, watch};
use crate::transport::call::Call;
use crate::transport::methods::Method;
use crate::transport::reply::{Queue, Work};
use crate::transport::status::{self, Status};
use http::HeaderMap;
use std::future::Future;
use std::pin::Pin;
use store::command::field;
use wire::{Kind, Rpc};

/// Longest client version that is counted under its own name.
const VERSION_CHARS: usize = 8;

/// Serves one call to its end. An error is the status the client sees.
///
/// Methods that are busy and those that are not are apart, and each of the latter is a box of its
/// own size: no call reserves room for what another method keeps. Watches are tasks of their own,
/// since they must go on while the client's window is shut.
///
/// Blocks rather than functions: an async function keeps room for what it is given twice.
pub(crate) fn handle(method: &Method, metadata: &HeaderMap, mut call: Call, queue: &Queue) -> Work {
    if let Err(refused) = check(method, metadata, &call) {
        let refused = Err(refused);
        call.tally.end(&refused);
        queue.finish(refused);
        return Work::None;
    }
    if !method.is_unary() {
        call.reply.open_stream();
    }
    let (wire, unary) = (method.wire, method.is_unary());
    match route(wire.rpc) {
        Route::Busy(busy) => Work::Driven(Box::pin(async move {
            let result = match busy {
                Busy::Range => range::range(&mut call).await,
                Busy::Put => kv::put(&mut call).await,
                Busy::Txn => kv::txn(&mut call).await,
            };
            slow::ended(&call, wire, &result);
            call.tally.end(&result);
            result
        })),
        Route::Watch => {
            let queue = queue.clone();
            let task = tokio::spawn(async move {
                let result = watch::watch(&mut call).await;
                call.tally.end(&result);
                queue.finish(result);
            });
            Work::Task(task.abort_handle())
        }
        Route::Rare(serve) => Work::Driven(Box::pin(async move {
            let result = serve(&mut call).await;
            if unary {
                slow::ended(&call, wire, &result);
            }
            call.tally.end(&result);
            result
        })),
    }
}

type Serving<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// Which way a method goes.
enum Route {
    Busy(Busy),
    Watch,
    Rare(for<'a> fn(&'a mut Call) -> Serving<'a>),
}

#[derive(Clone, Copy)]
enum Busy {
    Range,
    Put,
    Txn,
}

/// Every method of etcd's surface stands here.
fn route(rpc: Rpc) -> Route {
    match rpc {
        Rpc::Range => Route::Busy(Busy::Range),
        Rpc::Put => Route::Busy(Busy::Put),
        Rpc::Txn => Route::Busy(Busy::Txn),
        Rpc::Watch => Route::Watch,
        Rpc::RangeStream => Route::Rare(|call| Box::pin(range::range_stream(call))),
        Rpc::DeleteRange => Route::Rare(|call| Box::pin(kv::delete_range(call))),
        Rpc::Compact => Route::Rare(|call| Box::pin(kv::compact(call))),
        Rpc::LeaseGrant => Route::Rare(|call| Box::pin(lease::grant(call))),
        Rpc::LeaseRevoke => Route::Rare(|call| Box::pin(lease::revoke(call))),
        Rpc::LeaseKeepAlive => Route::Rare(|call| Box::pin(lease::keep_alive(call))),
        Rpc::LeaseTimeToLive => Route::Rare(|call| Box::pin(lease::time_to_live(call))),
        Rpc::LeaseLeases => Route::Rare(|call| Box::pin(lease::leases(call))),
        Rpc::MemberList => Route::Rare(|call| Box::pin(cluster::member_list(call))),
        Rpc::Alarm => Route::Rare(|call| Box::pin(maintenance::alarm(call))),
        Rpc::Status => Route::Rare(|call| Box::pin(maintenance::status(call))),
        Rpc::Defragment => Route::Rare(|call| Box::pin(maintenance::defragment(call))),
        Rpc::Hash => Route::Rare(|call| Box::pin(maintenance::hash(call))),
        Rpc::HashKV => Route::Rare(|call| Box::pin(maintenance::hash_kv(call))),
        Rpc::Snapshot => Route::Rare(|call| Box::pin(backup::snapshot(call))),
        Rpc::MoveLeader => Route::Rare(|call| Box::pin(maintenance::move_leader(call))),
        Rpc::HealthCheck => Route::Rare(|call| Box::pin(health::check(call))),
        Rpc::HealthList => Route::Rare(|call| Box::pin(health::list(call))),
        Rpc::HealthWatch => Route::Rare(|call| Box::pin(health::watch(call))),
        Rpc::Downgrade => Route::Rare(|call| Box::pin(downgrade::downgrade(call))),
        Rpc::MemberAdd => Route::Rare(|call| Box::pin(cluster::member_add(call))),
        Rpc::MemberRemove => Route::Rare(|call| Box::pin(cluster::member_remove(call))),
        Rpc::MemberUpdate => Route::Rare(|call| Box::pin(cluster::member_update(call))),
        Rpc::MemberPromote => Route::Rare(|call| Box::pin(cluster::member_promote(call))),
        Rpc::AuthStatus => Route::Rare(|call| Box::pin(auth::status(call))),
        Rpc::Authenticate => Route::Rare(|call| Box::pin(auth::authenticate(call))),
        Rpc::UserAdd => Route::Rare(|call| Box::pin(auth::user_add(call))),
        Rpc::UserGet => Route::Rare(|call| Box::pin(auth::user_get(call))),
        Rpc::UserList => Route::Rare(|call| Box::pin(auth::user_list(call))),
        Rpc::UserChangePassword => Route::Rare(|call| Box::pin(auth::user_change_password(call))),
        Rpc::RoleGet => Route::Rare(|call| Box::pin(auth::role_get(call))),
        Rpc::RoleList => Route::Rare(|call| Box::pin(auth::role_list(call))),
        Rpc::AuthEnable => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_ENABLE))),
        Rpc::AuthDisable => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_DISABLE))),
        Rpc::UserDelete => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_USER_DELETE))),
        Rpc::UserGrantRole => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_USER_GRANT_ROLE))),
        Rpc::UserRevokeRole => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_USER_REVOKE_ROLE))),
        Rpc::RoleAdd => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_ROLE_ADD))),
        Rpc::RoleDelete => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_ROLE_DELETE))),
        Rpc::RoleGrantPermission => Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_ROLE_GRANT_PERMISSION))),
        Rpc::RoleRevokePermission => {
            Route::Rare(|call| Box::pin(auth::change(call, field::AUTH_ROLE_REVOKE_PERMISSION)))
        }
        Rpc::Campaign => Route::Rare(|call| Box::pin(election::campaign(call))),
        Rpc::Proclaim => Route::Rare(|call| Box::pin(election::proclaim(call))),
        Rpc::Leader => Route::Rare(|call| Box::pin(election::leader(call))),
        Rpc::Observe => Route::Rare(|call| Box::pin(election::observe(call))),
        Rpc::Resign => Route::Rare(|call| Box::pin(election::resign(call))),
        Rpc::Lock => Route::Rare(|call| Box::pin(lock::lock(call))),
        Rpc::Unlock => Route::Rare(|call| Box::pin(lock::unlock(call))),
    }
}

/// Whether a learner serves it. Of ranges only those that ask for nothing but its own state; that
/// is known when the request was read.
fn is_for_learners(rpc: Rpc) -> bool {
    matches!(rpc, Rpc::Status | Rpc::Snapshot | Rpc::Range)
}

/// What etcd's interceptors look at, in their order.
fn check(method: &Method, metadata: &HeaderMap, call: &Call) -> Result<(), Status> {
    if call.core().is_learner() && !is_for_learners(method.wire.rpc) {
        return Err(status::NOT_FOR_LEARNER);
    }
    let version = match metadata.get("client-api-version") {
        None => "unknown",
        Some(value) => std::str::from_utf8(value.as_bytes()).map_err(|_| status::API_VERSION)?,
    };
    let kind = if method.wire.kind == Kind::Unary { "unary" } else { "stream" };
    call.edge.metrics().client_requests.with_label_values(&[kind, countable(version)]).inc();
    if call.wants_leader && call.core().leader() == 0 {
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
