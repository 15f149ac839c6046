//! The JSON gateway: the same handlers, asked and answered in JSON.

use crate::transport::call::{Edge, OpenCall, Requests};
use crate::transport::forms;
use crate::transport::grpc;
use crate::transport::reply::{Body, Speech};
use crate::transport::status::Status;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// True for paths the gateway answers for.
pub(crate) fn is_route(path: &str) -> bool {
    path.starts_with("/v3/") || path.starts_with("/v3beta/")
}

/// Serves one request on a gateway path.
pub(crate) async fn serve(edge: Edge, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Some(method) = edge.methods().by_route(parts.uri.path()) else {
        return failed(&Status::new(wire::Code::NotFound, "Not Found"));
    };
    if forms::meant(&parts) != http::Method::POST {
        return failed(&Status::new(wire::Code::Unimplemented, "Method Not Allowed"));
    }
    let metadata = match metadata(&parts.headers) {
        Ok(metadata) => metadata,
        Err(status) => return failed(&status),
    };
    let deadline = match forms::page_deadline(&parts.headers) {
        Ok(deadline) => deadline,
        Err(status) => return failed(&status),
    };
    let speech = if method.is_unary() { Speech::Json } else { Speech::JsonLines };
    let open = match OpenCall::take(&edge) {
        Ok(open) => open,
        Err(status) => return failed(&status),
    };
    let requests = Requests::json(&edge, method, body);
    let begun = grpc::begin(&edge, method, &metadata, (deadline, open), requests, speech, false);
    let (queue, unary) = (begun.queue(), speech == Speech::Json);
    let (body, refusal) = begun.await;
    match refusal {
        Some(status) if unary => failed(&status),
        Some(status) => {
            let mut response = json(Body::whole(wire::json::stream_error(status.code, &status.message)));
            *response.status_mut() = http_status(&status);
            response
        }
        // Whole, so that it goes out with its length.
        None if unary => json(Body::whole(queue.drain())),
        None => json(body),
    }
}

fn json(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response.headers_mut().insert("grpc-metadata-content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn http_status(status: &Status) -> StatusCode {
    StatusCode::from_u16(status.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// An error as the gateway tells it.
fn failed(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::whole(wire::json::error_body(status.code, &status.message)));
    *response.status_mut() = http_status(status);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    if status.code == wire::Code::Unauthenticated
        && let Ok(text) = HeaderValue::from_str(&status.message)
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, text);
    }
    response
}

/// What becomes metadata: the authorization, and every `Grpc-Metadata-<name>` as `<name>`.
fn metadata(headers: &HeaderMap) -> Result<HeaderMap, Status> {
    let mut metadata = HeaderMap::new();
    for (name, value) in headers {
        let name = match name.as_str().strip_prefix("grpc-metadata-") {
            Some("") => return Err(Status::new(wire::Code::Internal, "there is an empty key in the header")),
            Some(bare) => {
                if bare.ends_with("-bin")
                    && let Err(why) = forms::binary(value.as_bytes())
                {
                    let text = format!("invalid binary header {}: {why}", canonical(name.as_str()));
                    return Err(Status::with(wire::Code::InvalidArgument, text));
                }
                HeaderName::from_bytes(bare.as_bytes()).ok()
            }
            None if name == header::AUTHORIZATION => Some(name.clone()),
            None => None,
        };
        if let Some(name) = name {
            metadata.append(name, value.clone());
        }
    }
    Ok(metadata)
}

/// A header's name as Go writes it.
fn canonical(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for letter in name.chars() {
        let begins = out.is_empty() || out.ends_with('-');
        out.push(if begins { letter.to_ascii_uppercase() } else { letter });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_what_was_meant_as_such() {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-metadata-hasleader", HeaderValue::from_static("true"));
        headers.insert("authorization", HeaderValue::from_static("token"));
        headers.insert("hasleader", HeaderValue::from_static("false"));
        let metadata = metadata(&headers).unwrap();
        assert_eq!(metadata["hasleader"], "true");
        assert_eq!(metadata["authorization"], "token");
        assert_eq!(metadata.len(), 2);
    }
}
