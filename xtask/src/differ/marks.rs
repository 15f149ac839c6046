//! Marks: what stands in a script for a number or an address that depends on the run.

/// `CURRENT + d` is the current revision plus `d`.
pub const CURRENT: i64 = 1 << 40;
/// `COMPACTED + d` is the last compacted revision plus `d`.
pub const COMPACTED: i64 = 1 << 41;
/// `LEASE + n` is the id of the n-th lease for which the server chose one.
pub const LEASE: i64 = 1 << 42;
/// The id of the member asked.
pub const SELF: u64 = 1 << 43;
/// `MEMBER + n` is the id of the member that was added last, `n` before it.
pub const MEMBER: u64 = 1 << 44;
/// The create revision of the key that the request names.
pub const CREATED: i64 = 1 << 45;
/// The peer URL of the member asked.
pub const PEER: &str = "@peer";
/// How far from a mark a number may be.
pub const REACH: u64 = 1 << 20;
