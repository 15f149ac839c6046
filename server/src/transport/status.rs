//! One table from everything that can go wrong to what a client sees:
//! a gRPC code and etcd's text. Clients decide by the text, so it is etcd's to the letter.

use crate::core::Unread;
use node::Refusal;
use std::borrow::Cow;
use std::fmt;
use store::command::Rejected;
use store::protobuf::Malformed;

pub(crate) use wire::Code;

/// How a call ended, other than well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) message: Cow<'static, str>,
}

impl Status {
    pub(crate) const fn new(code: Code, message: &'static str) -> Status {
        Status { code, message: Cow::Borrowed(message) }
    }

    pub(crate) fn with(code: Code, message: String) -> Status {
        Status { code, message: Cow::Owned(message) }
    }

    /// The core answered something that does not belong to the question: our fault.
    pub(crate) fn unexpected(question: &str) -> Status {
        Status::with(Code::Internal, format!("kvorum: unexpected answer to {question}"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {} desc = {}", self.code.name(), self.message)
    }
}

impl Status {
    /// As a stream reports the same failure: go-grpc words a bad message there in another way.
    pub(crate) fn on_stream(self) -> Status {
        match self == MALFORMED {
            true => Status::new(
                Code::Internal,
                "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data",
            ),
            false => self,
        }
    }
}

impl From<Malformed> for Status {
    fn from(_: Malformed) -> Status {
        MALFORMED
    }
}

impl From<Rejected> for Status {
    fn from(rejected: Rejected) -> Status {
        match rejected {
            Rejected::Malformed(malformed) => malformed.into(),
            Rejected::Wrong(error) => error.into(),
        }
    }
}

/// As go-grpc words it.
const MALFORMED: Status =
    Status::new(Code::Internal, "grpc: error unmarshalling request: proto: cannot parse invalid wire-format data");
pub(crate) const NO_LEADER: Status = Status::new(Code::Unavailable, "etcdserver: no leader");
pub(crate) const STOPPED: Status = Status::new(Code::Unavailable, "etcdserver: server stopped");
pub(crate) const REQUEST_TOO_LARGE: Status = Status::new(Code::InvalidArgument, "etcdserver: request is too large");
/// Unknown, not ResourceExhausted: on the wire etcd's error carries no status.
pub(crate) const TOO_MANY_REQUESTS: Status = Status::new(Code::Unknown, "etcdserver: too many requests");
pub(crate) const MEMBER_URLS: Status = Status::new(Code::InvalidArgument, "etcdserver: given member URLs are invalid");
pub(crate) const NOT_FOR_LEARNER: Status =
    Status::new(Code::FailedPrecondition, "etcdserver: rpc not supported for learner");
pub(crate) const DEADLINE: Status = Status::new(Code::DeadlineExceeded, "context deadline exceeded");
pub(crate) const API_VERSION: Status = Status::new(Code::InvalidArgument, "etcdserver: invalid client api version");
pub(crate) const STREAM_SORT: Status =
    Status::new(Code::Unimplemented, "RangeStream does not support custom sort orders");
pub(crate) const STREAM_FILTER: Status =
    Status::new(Code::Unimplemented, "RangeStream does not support revision filters");

impl From<store::Error> for Status {
    fn from(error: store::Error) -> Status {
        use Code::*;
        use store::Error as E;
        let (code, text) = match error {
            E::EmptyKey => (InvalidArgument, "etcdserver: key is not provided"),
            E::KeyNotFound => (InvalidArgument, "etcdserver: key not found"),
            E::ValueProvided => (InvalidArgument, "etcdserver: value is provided"),
            E::LeaseProvided => (InvalidArgument, "etcdserver: lease is provided"),
            E::TooManyOps => (InvalidArgument, "etcdserver: too many operations in txn request"),
            E::DuplicateKey => (InvalidArgument, "etcdserver: duplicate key given in txn request"),
            E::InvalidSortOption => (InvalidArgument, "etcdserver: invalid sort option"),
            E::Compacted => (OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
            E::FutureRev => (OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
            E::NoSpace => (ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            E::LeaseNotFound => (NotFound, "etcdserver: requested lease not found"),
            E::LeaseExist => (FailedPrecondition, "etcdserver: lease already exists"),
            E::LeaseTtlTooLarge => (OutOfRange, "etcdserver: too large lease TTL"),
            E::Corrupt => (DataLoss, "etcdserver: corrupt cluster"),
            E::MemberExist => (FailedPrecondition, "etcdserver: member ID already exist"),
            E::PeerUrlExist => (FailedPrecondition, "etcdserver: Peer URLs already exists"),
            E::MemberNotFound => (NotFound, "etcdserver: member not found"),
            E::MemberNotLearner => (FailedPrecondition, "etcdserver: can only promote a learner member"),
            E::TooManyLearners => (FailedPrecondition, "etcdserver: too many learner members in cluster"),
            E::RootUserNotExist => (FailedPrecondition, "etcdserver: root user does not exist"),
            E::RootRoleNotExist => (FailedPrecondition, "etcdserver: root user does not have root role"),
            E::UserAlreadyExist => (FailedPrecondition, "etcdserver: user name already exists"),
            E::UserEmpty => (InvalidArgument, "etcdserver: user name is empty"),
            E::UserNotFound => (FailedPrecondition, "etcdserver: user name not found"),
            E::RoleAlreadyExist => (FailedPrecondition, "etcdserver: role name already exists"),
            E::RoleNotFound => (FailedPrecondition, "etcdserver: role name not found"),
            E::RoleEmpty => (InvalidArgument, "etcdserver: role name is empty"),
            E::AuthFailed => (InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
            E::NoPasswordUser => (Unknown, "auth: authentication failed, password was given for no password user"),
            E::PermissionNotGiven => (InvalidArgument, "etcdserver: permission not given"),
            E::PermissionDenied => (PermissionDenied, "etcdserver: permission denied"),
            E::RoleNotGranted => (FailedPrecondition, "etcdserver: role is not granted to the user"),
            E::PermissionNotGranted => (FailedPrecondition, "etcdserver: permission is not granted to the role"),
            E::AuthNotEnabled => (FailedPrecondition, "etcdserver: authentication is not enabled"),
            E::InvalidAuthToken => (Unauthenticated, "etcdserver: invalid auth token"),
            E::InvalidAuthMgmt => (InvalidArgument, "etcdserver: invalid auth management"),
            E::NoCommand => (Internal, "etcdserver: the request is no command"),
            E::AuthOldRevision => (InvalidArgument, "etcdserver: revision of auth store is old"),
        };
        Status::new(code, text)
    }
}

impl From<Unread> for Status {
    fn from(unread: Unread) -> Status {
        match unread {
            Unread::Here(text) => Status::with(Code::Internal, text),
            // Stock clients try again, and elsewhere.
            Unread::Later(text) => Status::with(Code::Unavailable, text),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::NoLeader => NO_LEADER,
            Refusal::NotLeader => Status::new(Code::FailedPrecondition, "etcdserver: not leader"),
            Refusal::LeaderChanged => Status::new(Code::Unavailable, "etcdserver: leader changed"),
            Refusal::Timeout => Status::new(Code::Unavailable, "etcdserver: request timed out"),
            Refusal::TimeoutLeaderFail => {
                Status::new(Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure")
            }
            Refusal::TimeoutConnectionLost => {
                Status::new(Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost")
            }
            Refusal::TooManyRequests | Refusal::SortNeeds(_) => TOO_MANY_REQUESTS,
            Refusal::AnswerTooLarge => Status::new(
                Code::ResourceExhausted,
                "kvorum: the transaction was done, but its ranges find more than one answer may hold",
            ),
            Refusal::Stopped => STOPPED,
            Refusal::NotCapable => Status::new(Code::FailedPrecondition, "etcdserver: not capable"),
            Refusal::BadLeaderTransferee => Status::new(Code::FailedPrecondition, "etcdserver: bad leader transferee"),
            Refusal::LeaderTransferTimeout => {
                Status::new(Code::Unknown, "etcdserver: request timed out, leader transfer took too long")
            }
            // Unknown, not FailedPrecondition: on the wire etcd's error carries no status.
            Refusal::NotEnoughStarted => {
                Status::new(Code::Unknown, "etcdserver: re-configuration failed due to not enough started members")
            }
            Refusal::Unhealthy => Status::new(Code::Unavailable, "etcdserver: unhealthy cluster"),
            Refusal::LearnerNotReady => Status::new(
                Code::FailedPrecondition,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            Refusal::TooManyLearners => store::Error::TooManyLearners.into(),
            Refusal::User(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts and codes a client of etcd relies on, as they go over the wire.
    #[test]
    fn golden_table() {
        let table: Vec<(Status, u8, &str)> = vec![
            (store::Error::EmptyKey.into(), 3, "etcdserver: key is not provided"),
            (store::Error::KeyNotFound.into(), 3, "etcdserver: key not found"),
            (store::Error::UserEmpty.into(), 3, "etcdserver: user name is empty"),
            (store::Error::PermissionDenied.into(), 7, "etcdserver: permission denied"),
            (store::Error::InvalidAuthToken.into(), 16, "etcdserver: invalid auth token"),
            (store::Error::UserNotFound.into(), 9, "etcdserver: user name not found"),
            (store::Error::Compacted.into(), 11, "etcdserver: mvcc: required revision has been compacted"),
            (store::Error::NoSpace.into(), 8, "etcdserver: mvcc: database space exceeded"),
            (store::Error::Corrupt.into(), 15, "etcdserver: corrupt cluster"),
            (store::Error::LeaseNotFound.into(), 5, "etcdserver: requested lease not found"),
            (Refusal::User(store::Error::LeaseExist).into(), 9, "etcdserver: lease already exists"),
            (Refusal::NoLeader.into(), 14, "etcdserver: no leader"),
            (Refusal::NotLeader.into(), 9, "etcdserver: not leader"),
            (Refusal::TooManyRequests.into(), 2, "etcdserver: too many requests"),
            (Refusal::NotCapable.into(), 9, "etcdserver: not capable"),
            (MEMBER_URLS, 3, "etcdserver: given member URLs are invalid"),
            (store::Error::MemberExist.into(), 9, "etcdserver: member ID already exist"),
            (store::Error::PeerUrlExist.into(), 9, "etcdserver: Peer URLs already exists"),
            (store::Error::MemberNotFound.into(), 5, "etcdserver: member not found"),
            (store::Error::MemberNotLearner.into(), 9, "etcdserver: can only promote a learner member"),
            (
                Refusal::LearnerNotReady.into(),
                9,
                "etcdserver: can only promote a learner member which is in sync with leader",
            ),
            (Refusal::TooManyLearners.into(), 9, "etcdserver: too many learner members in cluster"),
            (
                Refusal::NotEnoughStarted.into(),
                2,
                "etcdserver: re-configuration failed due to not enough started members",
            ),
            (Refusal::Unhealthy.into(), 14, "etcdserver: unhealthy cluster"),
            (NOT_FOR_LEARNER, 9, "etcdserver: rpc not supported for learner"),
            (Refusal::Timeout.into(), 14, "etcdserver: request timed out"),
            (Refusal::LeaderTransferTimeout.into(), 2, "etcdserver: request timed out, leader transfer took too long"),
        ];
        for (status, code, text) in table {
            assert_eq!((status.code.number(), status.message.as_ref()), (code, text));
        }
    }
}
