//! Where kvorum differs from etcd on purpose: the list that `docs/compat.md`
//! explains. An answer that differs in any other way is a finding.
//!
//! Beside these, the comparison itself leaves out what no client can rely on:
//! the value of `Hash`, sizes and raft indexes of `Status`, where `RangeStream`
//! cuts its chunks, the order of `LeaseLeases` and of equal keys in a sorted
//! range of more than twelve, how many revisions a watch that is behind gets at
//! once, whether a progress request is dropped, and the `prev_kv` of an event at
//! the compacted revision (etcd leaves it out; kvorum may still have it).

use wire::etcdserverpb::{self as pb, request_op::Request};

use super::{calls::Call, step::Step};

/// A field that is a group: no proto3 message has one, and no client sends one.
/// etcd passes over it; kvorum takes the message for damaged.
pub const GROUP: &[u8] = b"\x0b\x0c";
/// Field 1 as a number where it is text. etcd passes over it.
pub const OTHER_TYPE: &[u8] = b"\x08\x96\x01";

/// Why these two answers may differ; `None` for a finding.
pub fn reason(step: &Step, left: &str, right: &str) -> Option<&'static str> {
    if refuses(left) && is_alarm(right) {
        return Some("of two reasons to refuse, the alarm is named first");
    }
    match step.bare() {
        Step::Bytes { request, .. } if [GROUP, OTHER_TYPE].contains(&&request[..]) && right.starts_with("code 13 ") => {
            Some("fields of a type that the message does not have are refused")
        }
        // etcd sorts each chunk by itself, wherever it happens to cut; kvorum
        // sorts the whole answer.
        Step::RangeStream(r) if r.sort_target != 0 && r.sort_order == 0 => {
            Some("a stream with a sort target but no order")
        }
        Step::Call(Call::Resign(r)) if r.leader.as_ref().is_some_and(|leader| leader.lease == 0) => {
            Some("to resign without a lease grants none")
        }
        Step::Txn(txn) if does_nothing(txn) && refuses(right) => {
            Some("a transaction without operations asks for a user")
        }
        Step::Page { path: "/v3/kv/txn", body, .. } if !body.contains("ompare") && !body.contains("ccess") => {
            refuses(right).then_some("a transaction without operations asks for a user")
        }
        Step::Observe(_) if refuses(right) => Some("an observer who may not read is told so"),
        _ => None,
    }
}

/// Nothing that etcd checks for permissions.
fn does_nothing(txn: &pb::TxnRequest) -> bool {
    let nothing = |op: &pb::RequestOp| matches!(&op.request, Some(Request::RequestTxn(txn)) if does_nothing(txn));
    txn.compare.is_empty() && txn.success.iter().chain(&txn.failure).all(nothing)
}

/// While an alarm is up.
fn is_alarm(answer: &str) -> bool {
    ["database space exceeded", "corrupt cluster"].iter().any(|text| answer.contains(text))
}

/// Of what a caller may not.
fn refuses(answer: &str) -> bool {
    ["user name is empty", "permission denied", "invalid auth token"].iter().any(|text| answer.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_document_names_may_differ() {
        let denied = "code 3 \"etcdserver: user name is empty\"";
        let full = "code 8 \"etcdserver: mvcc: database space exceeded\"";
        let empty = Step::Txn(pb::TxnRequest::default());
        assert!(reason(&empty, "TxnResponse", denied).is_some());
        assert!(reason(&empty, denied, "TxnResponse").is_none(), "what etcd denies is denied");
        let compare = vec![pb::Compare::default()];
        assert!(reason(&Step::Txn(pb::TxnRequest { compare, ..Default::default() }), "TxnResponse", denied).is_none());
        let grant = Step::Grant(pb::LeaseGrantRequest::default());
        assert!(reason(&grant, denied, full).is_some());
        assert!(reason(&grant, full, denied).is_none() && reason(&grant, "LeaseGrantResponse", full).is_none());
    }
}
