//! How clients reach a member: HTTP/1.1 and HTTP/2 on one port ([`accept`], [`cork`]), gRPC's
//! framing, metadata and deadlines ([`grpc`], [`frames`], [`methods`]), and what a service sees of
//! all that: a [`call`] with its requests as protobuf bytes, a [`reply`] that takes bytes, and one
//! table of what can go wrong ([`status`]). It may import the budgets, the core's handle, the
//! metrics, the threads of passwords, `sockets` and `tls`, and knows the services through
//! `services::table` alone. It decides nothing about data, and buffers no answer whole and no
//! request beyond its limit.

mod accept;
pub(crate) mod call;
mod cork;
pub(crate) mod forms;
pub(crate) mod frames;
pub(crate) mod grpc;
pub(crate) mod gzip;
pub(crate) mod methods;
pub(crate) mod reply;
mod seats;
pub(crate) mod status;

#[cfg(test)]
pub(crate) use accept::connection;
pub(crate) use accept::{Door, serve};
pub(crate) use call::Edge;
#[cfg(test)]
pub(crate) use cork::Spares;
