//! The client edge: what listens on the client URLs.
//!
//! A connection speaks gRPC over HTTP/2 or HTTP/1.1 on the same port ([`accept`]). A request
//! becomes a [`call`]: method, metadata, requests as protobuf bytes, and a reply that takes
//! bytes. Handlers ([`handlers`] and the page of each service) see nothing else, so it does
//! not matter to them whether the client spoke gRPC ([`grpc`]) or JSON ([`gateway`]), and no
//! type of a gRPC library passes that line.
//!
//! The edge checks what can be checked without the state, in etcd's order; turns the core's
//! answers, which name records, into bytes ([`plan`], [`range`], [`watch`]); and translates
//! everything that goes wrong through one table ([`status`]).
//!
//! It refuses to decide: permissions, quotas of the store and the order of things belong to
//! the core. It buffers no answer whole and no request beyond its limit.

pub(crate) mod accept;
pub(crate) mod auth;
mod backup;
pub(crate) mod call;
pub(crate) mod cluster;
mod cork;
pub(crate) mod frames;
pub(crate) mod gateway;
pub(crate) mod grpc;
pub(crate) mod handlers;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod kv;
pub(crate) mod lease;
pub(crate) mod maintenance;
pub(crate) mod methods;
pub(crate) mod metrics;
pub(crate) mod plan;
pub(crate) mod range;
pub(crate) mod reply;
pub(crate) mod status;
pub(crate) mod watch;

#[cfg(test)]
mod tests;

pub(crate) use accept::{Door, serve};
pub(crate) use call::Edge;
pub(crate) use metrics::Metrics;
