//! Why no configuration can be made of what was given.

use std::io;
use std::path::{Path, PathBuf};

/// Files, or what they hold, of which no configuration can be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// The system does not give the file. In its words as Go has them.
    #[error("open {}: {}", file.display(), crate::sockets::reason(error))]
    Unread { file: PathBuf, error: io::Error },
    /// The file holds something else.
    #[error("{}: {what}", file.display())]
    Content { file: PathBuf, what: String },
    /// Go's words for a key that is another certificate's.
    #[error("tls: private key does not match public key")]
    OtherKey,
    /// rustls takes these two files not.
    #[error("{} with {}: {error}", cert.display(), key.display())]
    Pair { cert: PathBuf, key: PathBuf, error: rustls::Error },
    /// A certificate is needed and none was given.
    #[error("KeyFile and CertFile are not presented")]
    NoPair,
    /// Nobody is trusted.
    #[error("no CA file was given, and the system names none that it trusts")]
    NoRoots,
    /// `--self-signed-cert-validity=0`.
    #[error("selfSignedCertValidity is invalid,it should be greater than 0")]
    NoYears,
    /// No file is at fault: what a library says.
    #[error("{0}")]
    Refused(String),
}

impl Unfit {
    /// Anything else that is said of this file.
    pub(super) fn content(file: &Path, what: impl ToString) -> Unfit {
        Unfit::Content { file: file.to_path_buf(), what: what.to_string() }
    }

    /// What a library says of things that come from no file.
    pub(super) fn refused(error: impl ToString) -> Unfit {
        Unfit::Refused(error.to_string())
    }
}
