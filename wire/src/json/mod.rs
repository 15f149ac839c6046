//! JSON in and out, exactly as the gateway of etcd 3.7.3 has it.
//!
//! One codec, driven by the table of messages, serves all methods. A body is
//! read in two steps, as in the original, and each has the original's error
//! texts: `scan` cuts one value off the body by JSON's grammar alone, then
//! `decode` reads that value as the message. What follows the first value is
//! not looked at.
//!
//! Requests may use proto names or lowerCamel, numbers with or without quotes,
//! names or numbers for enums, any base64. Unknown fields and unknown enum
//! names are passed over. Answers use proto names in the order of declaration,
//! quote 64-bit numbers and leave out what has its default value.
//!
//! ```
//! use wire::{Method, Rpc, json_to_request, response_to_json};
//!
//! let put = Method::of(Rpc::Put);
//! let request = json_to_request(put, br#"{"key": "Zm9v", "lease": 5}"#)?;
//! assert_eq!(&request[..], b"\x0a\x03foo\x18\x05");
//! let response = b"\x0a\x02\x18\x07"; // a header with revision 7
//! assert_eq!(response_to_json(put, response)?, r#"{"header":{"revision":"7"}}"#);
//! # Ok::<(), wire::JsonError>(())
//! ```

mod decode;
mod encode;
mod error;
mod quote;
mod scalar;
mod scan;
#[cfg(test)]
mod tests;
mod token;

use bytes::Bytes;

pub use self::error::JsonError;
use self::{
    encode::{Style, encode, push_string},
    scan::{Scan, Scanner, scan},
};
use crate::{Code, Method, methods::MessageShape};

/// The bytes of the request that a body describes: of its first value, or the
/// default message if it is empty.
///
/// # Errors
/// The body is not JSON, or not that of the message; the texts are etcd's.
///
/// # Panics
/// If the method has no JSON path.
pub fn json_to_request(method: &Method, body: &[u8]) -> Result<Bytes, JsonError> {
    match scan(body, true).map_err(|unexpected| JsonError(unexpected.to_string()))? {
        Scan::Empty => Ok(Bytes::new()),
        Scan::Partial => Err(JsonError("unexpected EOF".to_owned())),
        Scan::Value { start, end } => decode::decode(&body[start..end], request_shape(method)).map(Bytes::from),
    }
}

/// Requests that follow each other in what arrives piece by piece. Each byte is looked at once to
/// find where they end.
#[derive(Default)]
pub struct Requests {
    scanner: Scanner,
}

impl Requests {
    /// As [`next_request`]. Until it gives a request, `arrived` begins with what it was given
    /// before; behind one it begins with what the request did not take.
    ///
    /// # Errors
    /// As [`next_request`].
    ///
    /// # Panics
    /// As [`next_request`].
    pub fn next(&mut self, method: &Method, arrived: &[u8], end: bool) -> Result<Option<(Bytes, usize)>, JsonError> {
        let scanned = self.scanner.read(arrived, end).map_err(|unexpected| JsonError(unexpected.to_string()));
        if !matches!(scanned, Ok(Scan::Empty | Scan::Partial)) {
            self.scanner = Scanner::default();
        }
        match scanned? {
            Scan::Partial if end => Err(JsonError("unexpected EOF".to_owned())),
            Scan::Empty | Scan::Partial => Ok(None),
            Scan::Value { start, end } => {
                let request = decode::decode(&arrived[start..end], request_shape(method))?;
                Ok(Some((Bytes::from(request), end)))
            }
        }
    }
}

/// The next request of a stream, from the bytes that have arrived so far and
/// were not taken yet, and how many of these it took. `None`: there is no whole
/// request in them. `end` says that no more bytes will come.
///
/// The gateway does not report an error to the client: it ends the stream of
/// requests there.
///
/// # Errors
/// What has arrived cannot become a request, whatever follows it.
///
/// # Panics
/// If the method has no JSON path.
pub fn next_request(method: &Method, arrived: &[u8], end: bool) -> Result<Option<(Bytes, usize)>, JsonError> {
    Requests::default().next(method, arrived, end)
}

/// The body that asks for what these bytes ask for.
///
/// # Errors
/// If these are not the bytes of the method's request.
///
/// # Panics
/// If the method has no JSON path.
pub fn request_to_json(method: &Method, request: &[u8]) -> Result<String, JsonError> {
    let mut out = String::new();
    encode(&mut out, Style::Body, request, request_shape(method))?;
    Ok(out)
}

/// The body of a unary answer.
///
/// # Errors
/// If these are not the bytes of the method's response.
///
/// # Panics
/// If the method has no JSON path.
pub fn response_to_json(method: &Method, response: &[u8]) -> Result<String, JsonError> {
    let mut out = String::new();
    encode(&mut out, Style::Body, response, response_shape(method))?;
    Ok(out)
}

/// One line of a streamed answer, with its newline.
///
/// # Errors
/// If these are not the bytes of the method's response.
///
/// # Panics
/// If the method has no JSON path.
pub fn stream_frame(method: &Method, response: &[u8]) -> Result<String, JsonError> {
    let mut out = "{\"result\":".to_owned();
    encode(&mut out, Style::Frame, response, response_shape(method))?;
    out.push_str("}\n");
    Ok(out)
}

/// The last line of a stream that failed, with its newline.
pub fn stream_error(code: Code, message: &str) -> String {
    let mut out = "{\"error\":".to_owned();
    push_error(&mut out, Style::Frame, code, message);
    out.push_str("}\n");
    out
}

/// The body of an answer that failed, for the status [`Code::http`].
pub fn error_body(code: Code, message: &str) -> String {
    let mut out = String::new();
    push_error(&mut out, Style::Body, code, message);
    out
}

fn push_error(out: &mut String, style: Style, code: Code, message: &str) {
    let comma = if style == Style::Body { ", " } else { "," };
    out.push('{');
    let mut separator = "";
    if code != Code::Ok {
        out.push_str(&format!("\"code\":{}", code.number()));
        separator = comma;
    }
    if !message.is_empty() {
        out.push_str(separator);
        out.push_str("\"message\":");
        push_string(out, style, message);
    }
    out.push('}');
}

fn request_shape(method: &Method) -> &'static MessageShape {
    method.request_shape().expect("only methods with a JSON path are asked for JSON")
}

fn response_shape(method: &Method) -> &'static MessageShape {
    method.response_shape().expect("only methods with a JSON path are asked for JSON")
}
