//! What a script consists of. Numbers that depend on the run (the current
//! revision, an id that the server chose) stand in a script as marks and are
//! filled in when it runs, so that a script keeps its meaning when steps are
//! dropped from it.

use bytes::Bytes;
use wire::etcdserverpb::{self as pb, compare::TargetUnion, request_op, watch_request::RequestUnion};

/// `CURRENT + d` is the current revision plus `d`.
pub const CURRENT: i64 = 1 << 40;
/// `COMPACTED + d` is the last compacted revision plus `d`.
pub const COMPACTED: i64 = 1 << 41;
/// `LEASE + n` is the id of the n-th lease for which the server chose one.
pub const LEASE: i64 = 1 << 42;
/// The id of the member asked.
pub const SELF: u64 = 1 << 43;
/// How far from a mark a number may be.
const REACH: u64 = 1 << 20;

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    Range(pb::RangeRequest),
    RangeStream(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    /// Granted and revoked at once: for a time to live that would end within
    /// the run.
    Brief(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases,
    KeepAlive(pb::LeaseKeepAliveRequest),
    HashKv(pb::HashKvRequest),
    Hash,
    Status,
    Alarms(pb::AlarmRequest),
    Members(pb::MemberListRequest),
    Defragment,
    MoveLeader(pb::MoveLeaderRequest),
    /// A call on the JSON gateway or a page. `@current` in the body is the
    /// current revision.
    Page {
        verb: &'static str,
        path: &'static str,
        kind: &'static str,
        body: String,
    },
    /// Any bytes to any path.
    Bytes {
        path: &'static str,
        request: Bytes,
    },
    Watch {
        stream: usize,
        request: pb::WatchRequest,
    },
    WatchBytes {
        stream: usize,
        request: Bytes,
    },
    /// The client goes; the next use opens a new stream.
    Close {
        stream: usize,
    },
    /// All events are waited for and compared.
    Settle,
}

/// What the marks stand for.
#[derive(Clone, Debug, Default)]
pub struct Meaning {
    pub current: i64,
    pub compacted: i64,
    pub leases: Vec<i64>,
    pub member: u64,
}

impl Meaning {
    /// The step with its marks filled in.
    pub fn fill(&self, step: &Step) -> Step {
        let mut step = step.clone();
        match &mut step {
            Step::Range(r) | Step::RangeStream(r) => self.range(r),
            Step::Put(r) => self.number(&mut r.lease),
            Step::Txn(r) => self.txn(r),
            Step::Compact(r) => self.number(&mut r.revision),
            Step::Grant(r) | Step::Brief(r) => self.number(&mut r.id),
            Step::Revoke(r) => self.number(&mut r.id),
            Step::TimeToLive(r) => self.number(&mut r.id),
            Step::KeepAlive(r) => self.number(&mut r.id),
            Step::HashKv(r) => self.number(&mut r.revision),
            Step::MoveLeader(r) if r.target_id == SELF => r.target_id = self.member,
            Step::Page { body, .. } => *body = body.replace("@current", &self.current.to_string()),
            Step::Watch { request, .. } => {
                if let Some(RequestUnion::CreateRequest(create)) = &mut request.request_union {
                    self.number(&mut create.start_revision);
                }
            }
            _ => {}
        }
        step
    }

    fn number(&self, n: &mut i64) {
        let near = |mark: i64| n.checked_sub(mark).is_some_and(|d| d.unsigned_abs() < REACH);
        if near(CURRENT) {
            *n = self.current + (*n - CURRENT);
        } else if near(COMPACTED) {
            *n = self.compacted + (*n - COMPACTED);
        } else if near(LEASE) {
            let which = usize::try_from(*n - LEASE).unwrap_or(usize::MAX);
            // Long as the list is empty, an id that nobody has.
            *n = self.leases.get(which % self.leases.len().max(1)).copied().unwrap_or(987_654_321);
        }
    }

    fn range(&self, r: &mut pb::RangeRequest) {
        for n in [
            &mut r.revision,
            &mut r.min_mod_revision,
            &mut r.max_mod_revision,
            &mut r.min_create_revision,
            &mut r.max_create_revision,
        ] {
            self.number(n);
        }
    }

    fn txn(&self, txn: &mut pb::TxnRequest) {
        for compare in &mut txn.compare {
            if let Some(TargetUnion::CreateRevision(n) | TargetUnion::ModRevision(n)) = &mut compare.target_union {
                self.number(n);
            }
        }
        for op in txn.success.iter_mut().chain(&mut txn.failure) {
            match &mut op.request {
                Some(request_op::Request::RequestRange(r)) => self.range(r),
                Some(request_op::Request::RequestPut(r)) => self.number(&mut r.lease),
                Some(request_op::Request::RequestTxn(r)) => self.txn(r),
                _ => {}
            }
        }
    }
}

impl Step {
    /// Whether what the step does to watches depends on how far they have come.
    pub fn needs_calm(&self) -> bool {
        match self {
            Step::Compact(_) | Step::Close { .. } | Step::WatchBytes { .. } | Step::Settle => true,
            Step::Watch { request, .. } => !matches!(request.request_union, Some(RequestUnion::CreateRequest(_))),
            Step::Page { path, .. } => path.ends_with("compaction"),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_filled_in_and_plain_numbers_stay() {
        let meaning = Meaning { current: 50, compacted: 20, leases: vec![700, 701], member: 9 };
        let filled = |n: i64| {
            let mut n = n;
            meaning.number(&mut n);
            n
        };
        assert_eq!(filled(CURRENT + 1), 51);
        assert_eq!(filled(COMPACTED - 1), 19);
        assert_eq!(filled(LEASE + 3), 701);
        for n in [0, -5, 7, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(filled(n), n);
        }
    }
}
