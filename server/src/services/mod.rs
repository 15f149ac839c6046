//! What a member does for clients: a file for each of etcd's services, the pages of plain HTTP
//! ([`pages`]), the JSON gateway ([`gateway`]), and [`table`], which names the code of every
//! method. A service checks what can be checked without the state, in etcd's order, asks the core,
//! and turns its answer, which names records, into bytes ([`plan`], [`range`], [`watch`]); it does
//! not matter to it whether the client spoke gRPC or JSON, and permissions, quotas and the order of
//! things are the core's. It may import what `transport` shows (a call, its reply, its status), the
//! core's handle, the budgets, the metrics and the floors below.

mod auth;
mod backup;
mod cluster;
mod downgrade;
mod election;
mod gateway;
mod health;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod pages;
mod plan;
mod range;
mod recipe;
pub(crate) mod slow;
pub(crate) mod table;
mod watch;

#[cfg(test)]
mod tests;
