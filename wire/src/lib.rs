//! The protocol: what travels between a client and the store.
//!
//! This crate is for whoever speaks to the store or answers for it: the edge
//! of the server, the client, the tests that hold the log's own codec against
//! it. It has three parts.
//!
//! - **Messages**, one module per package, generated from `proto/*.proto`.
//!   Field numbers and names are etcd's. `bytes` fields are [`bytes::Bytes`],
//!   so that decoding from `Bytes` copies nothing.
//! - **Methods**: [`METHODS`], one row per method with its path, its paths on
//!   the JSON gateway and its kind. [`json`] turns a JSON body into the bytes
//!   of the request and the bytes of a response into JSON, so that a handler
//!   only ever sees a method and bytes, whichever way the request came.
//! - **Status**: gRPC codes, their HTTP equivalents and the JSON error body.
//!
//! It refuses: transport, framing, gRPC stubs (those are made in `client`),
//! any judgement on a request ("key is not provided" is not a matter of
//! encoding), and every dependency on another crate of ours.

#![warn(missing_docs, unreachable_pub, clippy::missing_errors_doc)]

/// The store's own protocol, and the entries of the replicated log.
pub mod etcdserverpb {
    include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
}

/// What the store holds and what a watcher is told.
pub mod mvccpb {
    include!(concat!(env!("OUT_DIR"), "/mvccpb.rs"));
}

/// Users, roles and permissions.
pub mod authpb {
    include!(concat!(env!("OUT_DIR"), "/authpb.rs"));
}

/// What the log says about the cluster as a whole.
pub mod membershippb {
    include!(concat!(env!("OUT_DIR"), "/membershippb.rs"));
}

/// A lease as it is kept on disk.
pub mod leasepb {
    include!(concat!(env!("OUT_DIR"), "/leasepb.rs"));
}

/// Locks.
pub mod v3lockpb {
    include!(concat!(env!("OUT_DIR"), "/v3lockpb.rs"));
}

/// Elections.
pub mod v3electionpb {
    include!(concat!(env!("OUT_DIR"), "/v3electionpb.rs"));
}

/// The packages of the health protocol.
pub mod grpc {
    /// See [`health::v1`].
    pub mod health {
        /// The health protocol of gRPC.
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
        }
    }
}

pub mod json;
mod methods;
pub mod status;

pub use json::{JsonError, json_to_request, request_to_json, response_to_json};
pub use methods::{Kind, METHODS, Method, Rpc, method_by_json, method_by_path};
pub use status::Code;
