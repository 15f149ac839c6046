//! Outcomes: the codes of gRPC, what they are over HTTP, and the error body of
//! the JSON gateway.

/// A gRPC status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Code {
    /// The call was answered.
    Ok = 0,
    /// The caller gave the call up. This and all that follow are failures; the text says which.
    Canceled = 1,
    /// The server failed in a way that it has no code for.
    Unknown = 2,
    /// The request makes no sense, whatever the state is.
    InvalidArgument = 3,
    /// The time of the call ran out. The request may have had its effect.
    DeadlineExceeded = 4,
    /// What the request names is not there.
    NotFound = 5,
    /// What the request would make is there already.
    AlreadyExists = 6,
    /// The caller is known and may not do this.
    PermissionDenied = 7,
    /// A quota or a bound is reached.
    ResourceExhausted = 8,
    /// The state does not allow it; the same request fails until the state changes.
    FailedPrecondition = 9,
    /// Another change came in between.
    Aborted = 10,
    /// A revision outside of what can be read.
    OutOfRange = 11,
    /// The server does not have this method.
    Unimplemented = 12,
    /// Something that must hold did not.
    Internal = 13,
    /// The server cannot answer now; the same request may succeed soon.
    Unavailable = 14,
    /// Data is damaged and cannot be had back.
    DataLoss = 15,
    /// The caller has not shown who it is.
    Unauthenticated = 16,
}

impl Code {
    /// All codes; a code's place is its number.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Canceled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The code with this number; numbers that mean nothing are `Unknown`, as
    /// the protocol asks.
    pub fn from_number(number: u32) -> Code {
        usize::try_from(number).ok().and_then(|n| Code::ALL.get(n)).copied().unwrap_or(Code::Unknown)
    }

    /// The name that etcd's texts and logs use, such as `InvalidArgument`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Canceled => "Canceled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
            Code::Unauthenticated => "Unauthenticated",
        }
    }

    /// The status with which the JSON gateway answers.
    pub fn http(self) -> u16 {
        match self {
            Code::Ok => 200,
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
            Code::Unauthenticated => 401,
            Code::PermissionDenied => 403,
            Code::NotFound => 404,
            Code::AlreadyExists | Code::Aborted => 409,
            Code::ResourceExhausted => 429,
            Code::Canceled => 499,
            Code::Unknown | Code::Internal | Code::DataLoss => 500,
            Code::Unimplemented => 501,
            Code::Unavailable => 503,
            Code::DeadlineExceeded => 504,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways_and_strangers_are_unknown() {
        for (at, code) in Code::ALL.iter().enumerate() {
            assert_eq!(usize::from(code.number()), at);
            assert_eq!(Code::from_number(u32::from(code.number())), *code);
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from_number(u32::MAX), Code::Unknown);
    }

    #[test]
    fn http_status_of_every_code() {
        let seen: Vec<u16> = Code::ALL.iter().map(|c| c.http()).collect();
        let wanted = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
        assert_eq!(seen, wanted);
    }
}
