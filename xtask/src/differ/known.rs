//! Where kvorum differs from etcd on purpose: the list that `docs/compat.md`
//! explains. An answer that differs in any other way is a finding.
//!
//! Beside these, the comparison itself leaves out what no client can rely on:
//! the value of `Hash`, sizes and raft indexes of `Status`, where `RangeStream`
//! cuts its chunks, the order of `LeaseLeases` and of equal keys in a sorted
//! range of more than twelve, how many revisions a watch that is behind gets at
//! once, whether a progress request is dropped, and the `prev_kv` of an event at
//! the compacted revision (etcd leaves it out; kvorum may still have it).

use super::step::Step;

/// A field that is a group: no proto3 message has one, and no client sends one.
/// etcd passes over it; kvorum takes the message for damaged.
pub const GROUP: &[u8] = b"\x0b\x0c";
/// Field 1 as a number where it is text. etcd passes over it.
pub const OTHER_TYPE: &[u8] = b"\x08\x96\x01";

const COMPACTED: &str = "\"etcdserver: mvcc: required revision has been compacted\"";

/// Why these two answers may differ; `None` for a finding.
pub fn reason(step: &Step, left: &str, right: &str) -> Option<&'static str> {
    match step {
        Step::Bytes { request, .. } if [GROUP, OTHER_TYPE].contains(&&request[..]) && right.starts_with("code 13 ") => {
            Some("fields of a type that the message does not have are refused")
        }
        // A store that was compacted at 0 answers with the hash of that
        // compaction, of nothing, until ten others have pushed it out.
        Step::HashKv(r)
            if r.revision == 0 && left.contains("hash: 1084519789, compact_revision: -1, hash_revision: 0") =>
        {
            Some("etcd remembers the hash of a compaction at 0")
        }
        // etcd remembers the hashes that its last ten compactions computed on
        // their way, over versions that are no more.
        Step::HashKv(r)
            if right.contains(&format!("compact_revision: {}, hash_revision: {}", r.revision, r.revision)) =>
        {
            Some("etcd remembers the hashes of its last compactions")
        }
        Step::HashKv(r)
            if right.ends_with(COMPACTED) && left.ends_with(&format!("hash_revision: {} }}", r.revision)) =>
        {
            Some("etcd remembers the hashes of its last compactions")
        }
        Step::Page { path: "/v3/maintenance/hashkv", .. } if left.starts_with("200 ") && right.starts_with("200 ") => {
            Some("etcd remembers the hashes of its last compactions")
        }
        // etcd sorts each chunk by itself, wherever it happens to cut; kvorum
        // streams in the order of the keys.
        Step::RangeStream(r) if r.sort_target != 0 && r.sort_order == 0 => {
            Some("a stream with a sort target but no order")
        }
        _ => None,
    }
}
