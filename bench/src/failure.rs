//! Why a run could not be made.

use std::fmt;

/// For the person who started the run: what was being done, if that is not plain, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was being done, or to what; None: the reason says it.
    doing: Option<String>,
    reason: String,
}

impl Failure {
    /// A reason with what was being done in front of it.
    pub fn of(doing: impl Into<String>, reason: impl fmt::Display) -> Failure {
        Failure { doing: Some(doing.into()), reason: reason.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.doing {
            Some(doing) => write!(f, "{doing}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure { doing: None, reason }
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Failure {
        reason.to_owned().into()
    }
}
