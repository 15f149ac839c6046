//! What is wrong with a body.

use std::fmt;

/// A body that is not the request it should be, or a response that is not the
/// message it should be. The gateway answers the former with
/// [`crate::Code::InvalidArgument`] and this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(pub String);

impl JsonError {
    /// The original separates its prefix by a space that does not break.
    pub(super) fn proto(text: &str) -> JsonError {
        JsonError(format!("proto:\u{a0}{text}"))
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}
