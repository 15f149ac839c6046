//! Why there are no tokens, or not this one.

/// What is wrong with `--auth-token`, with a key file that it names, or with a login.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The text of the flag.
    #[error("auth: invalid auth options ({0})")]
    Options(String),
    /// No key was given that can verify.
    #[error("auth: missing key data")]
    NoKey,
    /// The two keys do not belong together.
    #[error("auth: public and private keys don't match")]
    Mismatch,
    /// The file is no PEM.
    #[error("auth: {path} is no PEM file")]
    NoPem { path: String },
    /// The file holds something else. `why` is what the library says, behind a colon, or empty.
    #[error("auth: {path} holds no {what} that can be used with this sign-method{why}")]
    NoSuchKey { what: &'static str, path: String, why: String },
    /// There is a public key alone.
    #[error("auth: token signing attempted with verify-only key")]
    VerifyOnly,
    /// `--auth-token=`: nobody can log in.
    #[error("auth: authentication failed, invalid user ID or password")]
    NoTokens,
}
