//! `-w fields`: `"Name" : value` lines.

use client::wire::{etcdserverpb::ResponseHeader, mvccpb::KeyValue};

use super::{Out, quote};

/// One line with a value as it is.
pub fn field(out: &mut Out, name: &str, value: impl std::fmt::Display) {
    out.line(format!("\"{name}\" : {value}"));
}

/// One line with bytes in quotes.
pub fn bytes(out: &mut Out, name: &str, value: &[u8]) {
    field(out, name, quote(value));
}

/// One line with the id of a member or a cluster: as the stock tool says it, without leading zeros.
pub fn id(out: &mut Out, name: &str, value: u64) {
    if out.hex { field(out, name, format!("{value:x}")) } else { field(out, name, value) }
}

/// One line with the id of a lease.
pub fn lease(out: &mut Out, name: &str, value: i64) {
    if out.hex { field(out, name, format!("{value:016x}")) } else { field(out, name, value) }
}

/// Who answered, and when.
pub fn header(out: &mut Out, header: Option<&ResponseHeader>) {
    let header = header.cloned().unwrap_or_default();
    id(out, "ClusterID", header.cluster_id);
    id(out, "MemberID", header.member_id);
    if header.revision > 0 {
        field(out, "Revision", header.revision);
    }
    field(out, "RaftTerm", header.raft_term);
}

/// A key; each name begins with the prefix.
pub fn key_value(out: &mut Out, prefix: &str, kv: &KeyValue) {
    bytes(out, &format!("{prefix}Key"), &kv.key);
    field(out, &format!("{prefix}CreateRevision"), kv.create_revision);
    field(out, &format!("{prefix}ModRevision"), kv.mod_revision);
    field(out, &format!("{prefix}Version"), kv.version);
    bytes(out, &format!("{prefix}Value"), &kv.value);
    lease(out, &format!("{prefix}Lease"), kv.lease);
}
