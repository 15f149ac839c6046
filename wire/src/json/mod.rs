//! JSON in and out, as etcd's gateway has it.
use std::fmt;

use bytes::Bytes;

use crate::{Code, Method};

/// A body that is not the request it should be. The gateway answers it with
/// [`Code::InvalidArgument`] and this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(pub String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

/// The bytes of the request that a body describes. What follows the first
/// value is ignored; an empty body is the default message.
pub fn json_to_request(_method: &Method, _body: &[u8]) -> Result<Bytes, JsonError> {
    unimplemented!()
}

/// The body of a unary answer.
pub fn response_to_json(_method: &Method, _response: &[u8]) -> Result<String, JsonError> {
    unimplemented!()
}

/// One line of a streamed answer: `{"result":…}` and a newline.
pub fn stream_frame(_method: &Method, _response: &[u8]) -> Result<String, JsonError> {
    unimplemented!()
}

/// The last line of a stream that failed: `{"error":…}` and a newline.
pub fn stream_error(_code: Code, _message: &str) -> String {
    unimplemented!()
}

/// The body of an answer that failed.
pub fn error_body(_code: Code, _message: &str) -> String {
    unimplemented!()
}

/// Reads the next request of a stream from the bytes that have arrived.
/// `None`: more bytes are needed (or, if `end`, there is nothing more).
/// Otherwise the request and how many bytes it took.
pub fn next_request(_method: &Method, _arrived: &[u8], _end: bool) -> Result<Option<(Bytes, usize)>, JsonError> {
    unimplemented!()
}
