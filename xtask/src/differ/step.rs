//! What a script consists of. Numbers that depend on the run (the current
//! revision, an id that the server chose) stand in a script as marks and are
//! filled in when it runs, so that a script keeps its meaning when steps are
//! dropped from it.

use bytes::Bytes;
use prost::Message;
use wire::{
    Rpc,
    etcdserverpb::{self as pb, compare::TargetUnion, request_op, watch_request::RequestUnion},
    v3electionpb as election, v3lockpb as lock,
};

use super::{
    calls::Call,
    marks::{COMPACTED, CURRENT, LEASE, MEMBER, PEER, REACH, SELF},
};

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
    /// How many leases there are, whatever their ids.
    HowManyLeases,
    /// Any other call.
    Call(Call),
    /// Those who hold the lock give way.
    Lock(lock::LockRequest),
    /// Those who lead give way.
    Campaign(election::CampaignRequest),
    /// What an observer is told first.
    Observe(election::LeaderRequest),
    /// A user asks for a token.
    Login {
        /// Its name.
        user: &'static str,
        /// What it says its password is.
        password: &'static str,
    },
    /// A step under somebody's name.
    As {
        /// Whose.
        who: Who,
        /// What is done.
        step: Box<Step>,
    },
    /// The same call over the JSON gateway.
    Json(Box<Step>),
    /// Both servers end and start again.
    Restart {
        /// Without a warning.
        kill: bool,
    },
}

/// Whose token a request carries.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// The one from the last time that this user signed in, if it ever did.
    User(&'static str),
    /// The one from the time before.
    Before(&'static str),
    /// One that nobody was given.
    Bad(&'static str),
}

/// What the marks stand for.
#[derive(Clone, Debug, Default)]
pub struct Meaning {
    pub current: i64,
    pub compacted: i64,
    pub leases: Vec<i64>,
    pub member: u64,
    /// Members that were added, the last one last.
    pub members: Vec<u64>,
    /// Its own peer URL.
    pub peer: String,
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
            Step::MoveLeader(r) => self.id(&mut r.target_id),
            Step::Alarms(r) => self.id(&mut r.member_id),
            Step::Call(call) => self.call(call),
            Step::Lock(r) => self.number(&mut r.lease),
            Step::Campaign(r) => self.number(&mut r.lease),
            Step::As { step, .. } | Step::Json(step) => **step = self.fill(step),
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

    fn id(&self, id: &mut u64) {
        if *id == SELF {
            *id = self.member;
        } else if let Some(n) = id.checked_sub(MEMBER).filter(|n| *n < REACH) {
            // As long as there is none, an id that nobody has.
            *id = self.members.iter().rev().nth(n as usize).copied().unwrap_or(987_654_321);
        }
    }

    fn call(&self, call: &mut Call) {
        let urls = match call {
            Call::MemberAdd(r) => &mut r.peer_urls,
            Call::MemberUpdate(r) => {
                self.id(&mut r.id);
                &mut r.peer_urls
            }
            Call::MemberRemove(r) => return self.id(&mut r.id),
            Call::MemberPromote(r) => return self.id(&mut r.id),
            Call::Proclaim(r) => return r.leader.iter_mut().for_each(|leader| self.number(&mut leader.rev)),
            Call::Resign(r) => return r.leader.iter_mut().for_each(|leader| self.number(&mut leader.rev)),
            _ => return,
        };
        urls.iter_mut().filter(|url| *url == PEER).for_each(|url| url.clone_from(&self.peer));
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
    /// Method and message of a step that is one call with one answer.
    pub fn request(&self) -> Option<(Rpc, Bytes)> {
        fn of(rpc: Rpc, message: &impl Message) -> Option<(Rpc, Bytes)> {
            Some((rpc, message.encode_to_vec().into()))
        }
        match self {
            Step::Range(r) => of(Rpc::Range, r),
            Step::Put(r) => of(Rpc::Put, r),
            Step::Delete(r) => of(Rpc::DeleteRange, r),
            Step::Txn(r) => of(Rpc::Txn, r),
            Step::Compact(r) => of(Rpc::Compact, r),
            Step::Grant(r) => of(Rpc::LeaseGrant, r),
            Step::Revoke(r) => of(Rpc::LeaseRevoke, r),
            Step::TimeToLive(r) => of(Rpc::LeaseTimeToLive, r),
            Step::HashKv(r) => of(Rpc::HashKV, r),
            Step::Status => of(Rpc::Status, &pb::StatusRequest {}),
            Step::Alarms(r) => of(Rpc::Alarm, r),
            Step::Members(r) => of(Rpc::MemberList, r),
            Step::Defragment => of(Rpc::Defragment, &pb::DefragmentRequest {}),
            Step::MoveLeader(r) => of(Rpc::MoveLeader, r),
            Step::Login { user, password } => {
                let (name, password) = (user.to_string(), password.to_string());
                of(Rpc::Authenticate, &pb::AuthenticateRequest { name, password })
            }
            Step::Call(call) => Some(call.request()),
            _ => None,
        }
    }

    /// What is done, whoever does it and whichever way.
    pub fn bare(&self) -> &Step {
        match self {
            Step::As { step, .. } | Step::Json(step) => step.bare(),
            step => step,
        }
    }

    /// Whether what the step does to watches depends on how far they have come.
    pub fn needs_calm(&self) -> bool {
        match self.bare() {
            Step::Compact(_) | Step::Close { .. } | Step::WatchBytes { .. } | Step::Settle | Step::Restart { .. } => {
                true
            }
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
        let meaning = Meaning { current: 50, compacted: 20, leases: vec![700, 701], member: 9, ..Meaning::default() };
        let filled = |n: i64| {
            let mut n = n;
            meaning.number(&mut n);
            n
        };
        assert_eq!(filled(CURRENT + 1), 51);
        assert_eq!(filled(COMPACTED - 1), 19);
        assert_eq!(filled(LEASE + 3), 701);
        let members = Meaning { member: 9, members: vec![70, 71], ..Meaning::default() };
        for (id, means) in [(SELF, 9), (MEMBER, 71), (MEMBER + 1, 70), (MEMBER + 2, 987_654_321), (5, 5)] {
            let mut filled = id;
            members.id(&mut filled);
            assert_eq!(filled, means);
        }
        for n in [0, -5, 7, i64::MAX, i64::MIN, i64::MIN + 1] {
            assert_eq!(filled(n), n);
        }
    }
}
