//! What can go wrong, and whether a write may have happened all the same.

use tonic::Status;
use wire::Code;

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered, and this was its answer.
    #[error("{message} ({})", code.name())]
    Server {
        /// Its gRPC code.
        code: Code,
        /// Its text; etcd's are stable and meant to be compared.
        message: String,
    },
    /// The connection failed under a request.
    #[error("connection to {endpoint} lost: {reason}")]
    Lost {
        /// Where the request had gone.
        endpoint: String,
        /// What the transport says.
        reason: String,
    },
    /// No endpoint could be reached: nothing was sent.
    #[error("no endpoint can be reached: {reason}")]
    Unreachable {
        /// The last failure.
        reason: String,
    },
    /// The time of a request ran out ([`crate::Options::request_timeout`]).
    #[error("no answer from {endpoint} in time")]
    Timeout {
        /// Where the request had gone.
        endpoint: String,
    },
    /// What the watch asked for has been compacted away.
    #[error("required revision has been compacted; the oldest left is {oldest}")]
    Compacted {
        /// The first revision that can still be watched, 0 if the server does
        /// not say.
        oldest: i64,
    },
    /// The server ended the watch.
    #[error("watch canceled: {reason}")]
    Canceled {
        /// As the server gave it.
        reason: String,
    },
    /// The lease has expired or was revoked.
    #[error("lease {id:016x} is gone")]
    LeaseGone {
        /// Which.
        id: i64,
    },
    /// An endpoint that is none.
    #[error("bad endpoint {endpoint:?}: {reason}")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something that was given for the client to be made is of no use, such
    /// as a file with a certificate.
    #[error("{what}: {reason}")]
    Setup {
        /// The file or the setting.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No endpoints were found in the name service.
    #[error("{reason}")]
    Discovery {
        /// What it said.
        reason: String,
    },
    /// The snapshot that was received is not whole.
    #[error("the snapshot is not whole: {reason}")]
    Snapshot {
        /// What is wrong with it.
        reason: String,
    },
    /// Another session holds the lock.
    #[error("mutex: Locked by another session")]
    Locked,
    /// The lease of the session is gone, and with it what it held.
    #[error("mutex: session is expired")]
    SessionExpired,
    /// The leadership is somebody else's by now.
    #[error("election: not leader")]
    NotLeader,
    /// Nobody leads.
    #[error("election: no leader")]
    NoLeader,
    /// The server's answer is not the message that it should be.
    #[error("malformed answer from {endpoint}: {reason}")]
    Malformed {
        /// Who answered.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Whether a write that failed like this may have taken effect, now or
    /// later. `false` is a promise that it has not and will not: it is safe to
    /// send it again.
    pub fn maybe_done(&self) -> bool {
        match self {
            Error::Server { message, .. } if REFUSED.contains(&message.as_str()) => false,
            Error::Server { code, .. } => matches!(
                code,
                Code::Canceled
                    | Code::Unknown
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::Internal
                    | Code::Unavailable
                    | Code::DataLoss
            ),
            Error::Lost { .. } | Error::Timeout { .. } | Error::Malformed { .. } => true,
            _ => false,
        }
    }

    /// Whether the same request may succeed on another endpoint or a little
    /// later. For a write, see [`Error::maybe_done`] too.
    pub fn passes(&self) -> bool {
        match self {
            Error::Server { code, .. } => *code == Code::Unavailable,
            Error::Lost { .. } | Error::Unreachable { .. } => true,
            _ => false,
        }
    }

    /// What etcd's own client says in this case, to the letter where it is
    /// known: tools that people have scripts around print this. It says less
    /// than the error itself, which names endpoint and reason.
    pub fn etcd_text(&self) -> String {
        match self {
            Error::Server { code: Code::DeadlineExceeded, message } if message == DEADLINE => DEADLINE.to_owned(),
            Error::Server { message, .. } if KNOWN.contains(&message.as_str()) => message.clone(),
            Error::Server { code, message } => format!("rpc error: code = {} desc = {message}", code.name()),
            Error::Lost { reason, .. } => {
                format!("rpc error: code = Unavailable desc = error reading from server: {reason}")
            }
            // That client tries for as long as it may; then this is all it says.
            Error::Unreachable { .. } | Error::Timeout { .. } => DEADLINE.to_owned(),
            Error::Compacted { .. } => "etcdserver: mvcc: required revision has been compacted".to_owned(),
            Error::Canceled { reason } => reason.clone(),
            Error::LeaseGone { .. } => "etcdserver: requested lease not found".to_owned(),
            other => other.to_string(),
        }
    }

    /// Whether the server said exactly this.
    pub fn says(&self, text: &str) -> bool {
        matches!(self, Error::Server { message, .. } if message == text)
    }

    /// Whether another token may help.
    pub(crate) fn wants_token(&self) -> bool {
        const STALE: [&str; 3] = [
            "etcdserver: invalid auth token",
            "etcdserver: revision of auth store is old",
            // Users are asked for since the last token was given up.
            "etcdserver: user name is empty",
        ];
        match self {
            Error::Server { message, .. } => STALE.contains(&message.as_str()),
            // A watch is refused in these words.
            Error::Canceled { reason } => STALE.iter().any(|text| reason.ends_with(text)),
            _ => false,
        }
    }

    /// The failure of a call to an endpoint.
    pub(crate) fn from_status(endpoint: &str, status: &Status) -> Error {
        match of_transport(status) {
            Some(Transport::NotSent(reason)) => Error::Unreachable { reason: format!("{endpoint}: {reason}") },
            Some(Transport::Lost(reason)) => Error::Lost { endpoint: endpoint.to_owned(), reason },
            None => too_large(status).unwrap_or_else(|| Error::Server {
                code: Code::from_number(i32::from(status.code()).cast_unsigned()),
                message: status.message().to_owned(),
            }),
        }
    }
}

/// What etcd's client says when the time of a request is over.
const DEADLINE: &str = "context deadline exceeded";

/// Said before anything was done with a request.
const REFUSED: [&str; 2] = ["etcdserver: no leader", "etcdserver: too many requests"];

/// The texts that etcd's client shows without the code of the call.
const KNOWN: &[&str] = &[
    "etcdserver: key is not provided",
    "etcdserver: key not found",
    "etcdserver: value is provided",
    "etcdserver: lease is provided",
    "etcdserver: too many operations in txn request",
    "etcdserver: duplicate key given in txn request",
    "etcdserver: invalid sort option",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: mvcc: required revision is a future revision",
    "etcdserver: mvcc: database space exceeded",
    "etcdserver: requested lease not found",
    "etcdserver: lease already exists",
    "etcdserver: too large lease TTL",
    "etcdserver: member ID already exist",
    "etcdserver: Peer URLs already exists",
    "etcdserver: re-configuration failed due to not enough started members",
    "etcdserver: given member URLs are invalid",
    "etcdserver: member not found",
    "etcdserver: can only promote a learner member",
    "etcdserver: can only promote a learner member which is in sync with leader",
    "etcdserver: too many learner members in cluster",
    "etcdserver: cluster ID mismatch",
    "etcdserver: request is too large",
    "etcdserver: too many requests",
    "etcdserver: root user does not exist",
    "etcdserver: root user does not have root role",
    "etcdserver: user name already exists",
    "etcdserver: user name is empty",
    "etcdserver: user name not found",
    "etcdserver: role name already exists",
    "etcdserver: role name not found",
    "etcdserver: role name is empty",
    "etcdserver: authentication failed, invalid user ID or password",
    "etcdserver: permission denied",
    "etcdserver: role is not granted to the user",
    "etcdserver: permission is not granted to the role",
    "etcdserver: authentication is not enabled",
    "etcdserver: invalid auth token",
    "etcdserver: invalid auth management",
    "etcdserver: revision of auth store is old",
    "etcdserver: no leader",
    "etcdserver: not leader",
    "etcdserver: leader changed",
    "etcdserver: not capable",
    "etcdserver: server stopped",
    "etcdserver: request timed out",
    "etcdserver: request timed out, possibly due to previous leader failure",
    "etcdserver: request timed out, possibly due to connection lost",
    "etcdserver: unhealthy cluster",
    "etcdserver: corrupt cluster",
    "etcdserver: rpc not supported for learner",
    "etcdserver: bad leader transferee",
    "etcdserver: wrong downgrade target version format",
    "etcdserver: invalid downgrade target version",
    "etcdserver: cluster version not found during downgrade",
    "etcdserver: cluster has a downgrade job in progress",
    "etcdserver: no inflight downgrade job",
];

/// A response that was larger than it may be, in the words of etcd's client.
fn too_large(status: &Status) -> Option<Error> {
    let numbers = status.message().strip_prefix("Error, decoded message length too large: found ")?;
    let (found, rest) = numbers.split_once(" bytes, the limit is: ")?;
    let limit = rest.split_once(' ')?.0;
    let message = format!("grpc: received message larger than max ({found} vs. {limit})");
    Some(Error::Server { code: Code::ResourceExhausted, message })
}

enum Transport {
    NotSent(String),
    Lost(String),
}

/// A status that the transport made up, since no server gave one.
fn of_transport(status: &Status) -> Option<Transport> {
    let mut cause = std::error::Error::source(status)?;
    loop {
        if cause.is::<tonic::ConnectError>() {
            return Some(Transport::NotSent(deepest(cause)));
        }
        // It was still waiting for the connection when that ended.
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return Some(Transport::NotSent(deepest(cause)));
        }
        match cause.source() {
            Some(next) => cause = next,
            // The other side did not take our part of the handshake: it has
            // read nothing of what came after.
            None if cause.to_string().contains("received fatal alert") => {
                return Some(Transport::NotSent(cause.to_string()));
            }
            None => return Some(Transport::Lost(format!("{}: {cause}", status.message()))),
        }
    }
}

/// The last of a chain of causes: the one that names what happened.
pub(crate) fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
