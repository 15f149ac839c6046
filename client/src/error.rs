//! What can go wrong, and whether a write may have happened all the same.

use tonic::Status;
use wire::Code;

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// The time of a request ran out ([`crate::Settings::timeout`]).
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
    /// later. `false` is a promise that it has not and will not.
    pub fn maybe_done(&self) -> bool {
        match self {
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
            Error::Unreachable { .. }
            | Error::Compacted { .. }
            | Error::Canceled { .. }
            | Error::LeaseGone { .. }
            | Error::Endpoint { .. } => false,
        }
    }

    /// Whether the same read may succeed on another endpoint or a little later.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Error::Server { code, .. } => *code == Code::Unavailable,
            Error::Lost { .. } | Error::Unreachable { .. } => true,
            _ => false,
        }
    }

    /// The failure of a call to an endpoint.
    pub(crate) fn from_status(endpoint: &str, status: &Status) -> Error {
        match of_transport(status) {
            Some(Transport::NotSent(reason)) => Error::Unreachable { reason: format!("{endpoint}: {reason}") },
            Some(Transport::Lost(reason)) => Error::Lost { endpoint: endpoint.to_owned(), reason },
            None => Error::Server {
                code: Code::from_number(i32::from(status.code()).cast_unsigned()),
                message: status.message().to_owned(),
            },
        }
    }
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
        match cause.source() {
            Some(next) => cause = next,
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
