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

/// Why these two answers may differ; `None` for a finding.
pub fn reason(step: &Step, right: &str) -> Option<&'static str> {
    match step {
        Step::Bytes { request, .. } if [GROUP, OTHER_TYPE].contains(&&request[..]) && right.starts_with("code 13 ") => {
            Some("fields of a type that the message does not have are refused")
        }
        // etcd sorts each chunk by itself, wherever it happens to cut; kvorum
        // sorts the whole answer.
        Step::RangeStream(r) if r.sort_target != 0 && r.sort_order == 0 => {
            Some("a stream with a sort target but no order")
        }
        _ => None,
    }
}
