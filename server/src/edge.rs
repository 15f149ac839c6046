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

pub mod accept;
pub mod auth;
mod backup;
pub mod call;
pub mod cluster;
mod cork;
pub mod frames;
pub mod gateway;
pub mod grpc;
pub mod handlers;
pub mod health;
pub mod http;
pub mod kv;
pub mod lease;
pub mod maintenance;
pub mod methods;
pub mod metrics;
pub mod plan;
pub mod range;
pub mod reply;
pub mod status;
pub mod watch;

#[cfg(test)]
mod tests;

pub use accept::{Door, serve};
pub use call::Edge;
pub use metrics::Metrics;
