//! How the program ends: exit codes and the line on standard error.

use client::wire::Code;

/// A server's refusal, and everything that has no code of its own.
pub const ERROR: i32 = 1;
/// There is no client to work with: credentials, certificates, endpoints.
pub const BAD_CONNECTION: i32 = 2;
/// What was typed or piped in cannot be understood.
pub const INVALID_INPUT: i32 = 3;
/// A form or feature that this command does not have.
pub const BAD_FEATURE: i32 = 4;
/// The operation ended before it was done.
pub const INTERRUPTED: i32 = 5;
/// A file or pipe failed.
pub const IO: i32 = 6;
/// The arguments do not fit the command.
pub const BAD_ARGS: i32 = 128;

/// Why a command did not do what it was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Ends with this code; the text stands after `Error: ` on standard error.
    Text {
        /// Exit code.
        code: i32,
        /// What is wrong.
        text: String,
        /// What is behind it, if the text does not say so; never printed, but
        /// a hint may come of it.
        cause: Option<String>,
    },
    /// Ends with this code; everything has been said already.
    Silent(i32),
    /// Ends with this code; everything has been said already, and this was the
    /// reason.
    Told {
        /// Exit code.
        code: i32,
        /// What was said.
        reason: Box<Failure>,
    },
    /// The words do not fit the command: the text, then how it is used; code 1.
    Usage(String),
}

/// What a command gives back.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with a code of this page.
    pub fn new(code: i32, text: impl Into<String>) -> Failure {
        Failure::Text { code, text: text.into(), cause: None }
    }

    /// Arguments that do not fit the command.
    pub fn bad_args(text: impl Into<String>) -> Failure {
        Failure::new(BAD_ARGS, text)
    }

    /// The exit code.
    pub fn code(&self) -> i32 {
        match self {
            Failure::Text { code, .. } | Failure::Silent(code) | Failure::Told { code, .. } => *code,
            Failure::Usage(_) => ERROR,
        }
    }

    /// The same failure under another code.
    #[must_use]
    pub fn with_code(self, code: i32) -> Failure {
        match self {
            Failure::Text { text, cause, .. } => Failure::Text { code, text, cause },
            Failure::Usage(text) => Failure::new(code, text),
            Failure::Silent(_) => Failure::Silent(code),
            Failure::Told { reason, .. } => Failure::Told { code, reason },
        }
    }

    /// The end of a command that has told of this failure itself.
    pub fn told(code: i32, reason: Failure) -> Failure {
        Failure::Told { code, reason: Box::new(reason) }
    }

    /// A failure of standard output or of a file.
    pub fn io(error: &std::io::Error) -> Failure {
        Failure::new(IO, error.to_string())
    }
}

/// A request's failure, as the stock tool words it.
impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        // The stock tool signs in when it makes its client.
        let refused = error.says("etcdserver: authentication failed, invalid user ID or password");
        let text = error_text(&error);
        let cause = Some(error.to_string()).filter(|cause| *cause != text);
        Failure::Text { code: if refused { BAD_CONNECTION } else { ERROR }, text, cause }
    }
}

/// The words of etcd's Go client for a failure: a known text of the server
/// stands alone, any other with its code; time that ran out and endpoints that
/// cannot be reached are the same to it.
pub fn error_text(error: &client::Error) -> String {
    match error {
        client::Error::Server { message, .. } if message.starts_with("etcdserver: ") => message.clone(),
        client::Error::Server { code: Code::DeadlineExceeded, .. }
        | client::Error::Timeout { .. }
        | client::Error::Unreachable { .. } => "context deadline exceeded".to_owned(),
        client::Error::Server { code, message } => {
            format!("rpc error: code = {} desc = {message}", code.name())
        }
        client::Error::Lost { reason, .. } => {
            format!("rpc error: code = {} desc = {reason}", Code::Unavailable.name())
        }
        client::Error::LeaseGone { .. } => "etcdserver: requested lease not found".to_owned(),
        client::Error::Compacted { .. } => "etcdserver: mvcc: required revision has been compacted".to_owned(),
        other => other.to_string(),
    }
}

/// The system's words for a failure, without Rust's number behind them.
pub fn system_words(error: &std::io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_words_stand_alone_if_they_are_etcd_s() {
        let server = |code, message: &str| client::Error::Server { code, message: message.to_owned() };
        let text = |error| error_text(&error);
        assert_eq!(
            text(server(Code::InvalidArgument, "etcdserver: key is not provided")),
            "etcdserver: key is not provided"
        );
        assert_eq!(
            text(server(Code::Unimplemented, "unknown service")),
            "rpc error: code = Unimplemented desc = unknown service"
        );
        assert_eq!(text(client::Error::Unreachable { reason: "refused".to_owned() }), "context deadline exceeded");
    }
}
