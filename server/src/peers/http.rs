//! What etcd answers over HTTP/1.1 on its peer port: `/members` and `/version`.

use super::Peering;
use super::socket::Socket;
use crate::settings::ETCD_LEVEL;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use node::Answer;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::Member;

const HEADERS: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(5);

pub(super) async fn serve(peering: Arc<Peering>, stream: Socket) -> io::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let peering = peering.clone();
        async move { Ok::<_, Infallible>(answer(&peering, request.method(), request.uri().path()).await) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}

async fn answer(peering: &Peering, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let mut response = match (path, method == Method::GET) {
        ("/members" | "/version", false) => plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
        ("/members", true) => members(peering).await,
        ("/version", true) => version(peering).await,
        _ => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert("Allow", http::HeaderValue::from_static("GET"));
    }
    if let Ok(cluster) = format!("{:x}", peering.identity.cluster).parse() {
        response.headers_mut().insert("X-Etcd-Cluster-ID", cluster);
    }
    response
}

fn reply(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert("Content-Type", http::HeaderValue::from_static(kind));
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = reply(status, "text/plain; charset=utf-8", text.to_string());
    response.headers_mut().insert("X-Content-Type-Options", http::HeaderValue::from_static("nosniff"));
    response
}

async fn members(peering: &Peering) -> Response<Full<Bytes>> {
    let asked = peering.core().ask(node::Who::Member, node::Request::Members { linearizable: false }, ANSWER).await;
    match asked.answer {
        Answer::Members { members } => reply(StatusCode::OK, "application/json", members_json(&members)),
        _ => plain(StatusCode::SERVICE_UNAVAILABLE, "etcdserver: server stopped\n"),
    }
}

/// In the order and with the omissions of etcd's own.
#[derive(serde::Serialize)]
struct MemberJson<'a> {
    id: u64,
    #[serde(rename = "peerURLs")]
    peer_urls: &'a [String],
    #[serde(rename = "isLearner", skip_serializing_if = "std::ops::Not::not")]
    learner: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(rename = "clientURLs", skip_serializing_if = "<[String]>::is_empty")]
    client_urls: &'a [String],
}

fn members_json(members: &[(Member, bool)]) -> String {
    let list: Vec<MemberJson> = members
        .iter()
        .map(|(member, learner)| MemberJson {
            id: member.id,
            peer_urls: &member.peer_urls,
            learner: *learner,
            name: &member.name,
            client_urls: &member.client_urls,
        })
        .collect();
    serde_json::to_string(&list).unwrap_or_default() + "\n"
}

async fn version(peering: &Peering) -> Response<Full<Bytes>> {
    let asked = peering.core().ask(node::Who::Member, node::Request::Status, ANSWER).await;
    let cluster = match asked.answer {
        Answer::Status(status) if !status.cluster_version.is_empty() => status.cluster_version,
        _ => String::new(),
    };
    let or = |missing: &str| if cluster.is_empty() { missing.to_string() } else { cluster.clone() };
    let body = format!(
        "{{\"etcdserver\":\"{ETCD_LEVEL}\",\"etcdcluster\":\"{}\",\"storage\":\"{}\"}}",
        or("not_decided"),
        or("unknown")
    );
    reply(StatusCode::OK, "application/json", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_as_etcd_writes_it() {
        let member = |name: &str, clients: &[&str]| Member {
            id: 10276657743932975437,
            name: name.into(),
            peer_urls: vec!["http://localhost:2380".into()],
            client_urls: clients.iter().map(|url| url.to_string()).collect(),
        };
        let text = members_json(&[(member("default", &["http://localhost:2379"]), false), (member("", &[]), true)]);
        assert_eq!(
            text,
            "[{\"id\":10276657743932975437,\"peerURLs\":[\"http://localhost:2380\"],\"name\":\"default\",\
             \"clientURLs\":[\"http://localhost:2379\"]},\
             {\"id\":10276657743932975437,\"peerURLs\":[\"http://localhost:2380\"],\"isLearner\":true}]\n"
        );
    }
}
