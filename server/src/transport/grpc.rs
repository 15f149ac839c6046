//! From an HTTP request to a call and back: gRPC over HTTP/2.

use super::call::{Call, Edge, OpenCall, Requests, Tally};
use super::methods::Method;
use super::reply::{self, Body, Queue, Reply, Speech};
use super::status::Status;
use crate::services::table;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use node::Who;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use wire::{Code, Rpc};

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// True for a request that speaks gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'+' || rest[0] == b';')
    })
}

/// Begins one gRPC request; Err: what it is refused with at once.
pub(crate) fn start(edge: Edge, request: Request<Incoming>) -> Result<Begun, Box<Response<Body>>> {
    let (parts, body) = request.into_parts();
    if parts.method != http::Method::POST {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return Err(Box::new(response));
    }
    let path = parts.uri.path();
    let refuse = |status: &Status| Box::new(refused(status));
    let Some(method) = edge.methods().by_path(path) else {
        return Err(refuse(&Status::with(Code::Unimplemented, edge.methods().unknown(path))));
    };
    let deadline = prepared(&parts.headers).map_err(|status| refuse(&status))?;
    let open = OpenCall::take(&edge).map_err(|status| refuse(&status))?;
    let requests = Requests::grpc(&edge, method, body);
    Ok(begin(&edge, method, &parts.headers, (deadline, open), requests, Speech::Grpc))
}

/// The answer to a call of which [`Begun`] said this.
pub(crate) fn respond(body: Body, refusal: Option<Status>) -> Response<Body> {
    match refusal {
        Some(status) => refused(&status),
        None => {
            let mut response = Response::new(body);
            response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
            response
        }
    }
}

/// Headers that can refuse a call before it begins; answers its deadline.
fn prepared(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    if let Some(encoding) = headers.get("grpc-encoding")
        && encoding != "identity"
    {
        let name = String::from_utf8_lossy(encoding.as_bytes());
        let text = format!("grpc: Decompressor is not installed for grpc-encoding {name:?}");
        return Err(Status::with(Code::Unimplemented, text));
    }
    deadline(headers)
}

/// From the header `grpc-timeout`.
pub(crate) fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    match timeout(value.as_bytes()) {
        // A deadline beyond what the clock can name is none.
        Some(timeout) => Ok(Instant::now().checked_add(timeout)),
        None => {
            let text = format!("malformed grpc-timeout: {:?}", String::from_utf8_lossy(value.as_bytes()));
            Err(Status::with(Code::Internal, text))
        }
    }
}

/// `grpc-timeout`: up to eight digits and a unit.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A call that failed before anything was said: status in the headers, no body.
pub(crate) fn refused(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = reply::trailers(Some(status));
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

/// A call at work: answers the body when the answer is whole, or has begun and is long, and the
/// status of a call that failed before it said anything.
///
/// Small, for the transport keeps room for it for as long as the stream lives.
pub(crate) struct Begun(Option<Body>);

/// Puts a call together and counts it.
pub(crate) fn begin(
    edge: &Edge,
    method: &Method,
    metadata: &HeaderMap,
    (deadline, open): (Option<Instant>, OpenCall),
    requests: Requests,
    speech: Speech,
) -> Begun {
    // Responses to watches have a budget of their own, and so have answers in JSON.
    let charged = speech != Speech::Json && method.wire.rpc != Rpc::Watch;
    let queue = Queue::new(edge.account(), charged);
    let calls = edge.calls(method);
    calls.started.inc();
    let reply = Reply::new(queue.clone(), speech, method.wire, calls.sent.clone());
    let received = calls.received.clone();
    let tally = Tally::new(edge, method, open);
    let wants_leader = wants_leader(metadata);
    // The gateway's own certificate speaks for nobody.
    let certified = speech == Speech::Grpc && edge.core().settings().client_cert_auth;
    let name = edge.common_name().filter(|_| certified);
    let who = identity_of(edge, metadata, name.map(|name| &**name));
    let call = Call { edge: edge.clone(), who, wants_leader, deadline, requests, reply, received, tally };
    let work = table::handle(method, metadata, call, &queue);
    Begun(Some(Body::of(queue, work, speech, edge.metrics().client_sent_bytes.clone())))
}

impl Begun {
    pub(crate) fn queue(&self) -> Queue {
        self.0.as_ref().and_then(Body::queue).expect("asked before it is over")
    }
}

impl Future for Begun {
    type Output = (Body, Option<Status>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Body, Option<Status>)> {
        let body = self.0.as_mut().expect("polled after it was over");
        let refusal = std::task::ready!(body.poll_begun(cx));
        Poll::Ready((self.0.take().expect("just seen"), refusal))
    }
}

/// Metadata `hasleader: true`: the client wants an error rather than to wait for a leader.
fn wants_leader(metadata: &HeaderMap) -> bool {
    metadata.get("hasleader").is_some_and(|value| value.as_bytes() == b"true")
}

/// Who asks. `name`: the common name of the client's certificate, if one was asked for; a token
/// goes before it.
fn identity_of(edge: &Edge, metadata: &HeaderMap, name: Option<&str>) -> Who {
    let token = metadata.get("token").or_else(|| metadata.get(http::header::AUTHORIZATION));
    match (token, name) {
        (Some(token), _) => {
            let token = token.to_str().unwrap_or_default();
            edge.core().settings().tokens.read(token.strip_prefix("Bearer ").unwrap_or(token))
        }
        (None, Some(name)) => Who::Certified { user: name.into() },
        (None, None) => Who::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_protocol_has_them() {
        let table: [(&str, Option<Duration>); 10] = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("10S", Some(Duration::from_secs(10))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000m", None),
            ("m", None),
            ("", None),
            ("1x", None),
        ];
        for (text, expected) in table {
            assert_eq!(timeout(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn content_types() {
        let table = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x", true),
            ("application/grpcx", false),
            ("application/json", false),
        ];
        for (value, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(is_grpc(&headers), expected, "{value}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
