//! From an HTTP request to a call and back: gRPC over HTTP/2.

use super::call::{Call, Edge, OpenCall, Requests, Seen, Tally};
use super::forms;
use super::gzip;
use super::methods::Method;
use super::reply::{self, Body, Queue, Reply, Speech};
use super::status::Status;
use crate::services::table;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use node::Who;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Instant;
use wire::{Code, Rpc};

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// Begins one gRPC request; Err: what it is refused with at once.
pub(crate) fn start(edge: Edge, request: Request<Incoming>) -> Result<Begun, Box<Response<Body>>> {
    let (parts, body) = request.into_parts();
    let deadline = forms::call(&parts)?;
    let kind = forms::content_type(&parts.headers);
    // With what stands behind a question mark: no method has such a name.
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let Some(method) = edge.methods().by_path(path) else {
        return Err(Box::new(refused(&Status::with(Code::Unimplemented, edge.methods().unknown(path)), kind)));
    };
    let packed = match packed(&parts.headers) {
        Ok(packed) => packed,
        Err(status) => return Err(Box::new(refused(&status, kind))),
    };
    let open = match OpenCall::take(&edge) {
        Ok(open) => open,
        Err(status) => return Err(Box::new(refused(&status, kind))),
    };
    let requests = Requests::grpc(&edge, method, body, packed);
    let begun = begin(&edge, method, &parts.headers, (deadline, open), requests, Speech::Grpc, packed);
    if kind != CONTENT_TYPE {
        begun.queue().answer_as(kind);
    }
    Ok(begun)
}

/// The answer to a call of which [`Begun`] said this.
pub(crate) fn respond(body: Body, refusal: Option<Status>) -> Response<Body> {
    let kind = body.content_type().unwrap_or(CONTENT_TYPE);
    match refusal {
        Some(status) => refused(&status, kind),
        None => {
            let packed = body.is_packed();
            let mut response = Response::new(body);
            if packed {
                response.headers_mut().insert("grpc-encoding", HeaderValue::from_static(gzip::NAME));
            }
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
    }
}

/// Whether messages come in gzip: then they are answered so, whatever the client says it accepts
/// (grpc-go's rule).
fn packed(headers: &HeaderMap) -> Result<bool, Status> {
    match headers.get("grpc-encoding").map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(name) if name == gzip::NAME.as_bytes() => Ok(true),
        Some(name) => {
            let name = String::from_utf8_lossy(name);
            let text = format!("grpc: Decompressor is not installed for grpc-encoding {name:?}");
            Err(Status::with(Code::Unimplemented, text))
        }
    }
}

/// A call that failed before anything was said: status in the headers, no body.
fn refused(status: &Status, kind: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = reply::trailers(Some(status));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
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
    packed: bool,
) -> Begun {
    // Responses to watches have a budget of their own, and so have answers in JSON.
    let charged = speech != Speech::Json && method.wire.rpc != Rpc::Watch;
    let queue = Queue::new(edge.account(), charged, packed);
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
    let call = Call {
        edge: edge.clone(),
        who,
        wants_leader,
        deadline,
        requests,
        reply,
        received,
        tally,
        seen: Seen::default(),
    };
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
