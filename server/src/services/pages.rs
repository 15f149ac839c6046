//! The plain HTTP pages of a member: version, health, metrics.

use super::{gateway, maintenance};
use crate::metrics::alarm_name;
use crate::transport::call::Edge;
use crate::transport::reply::Body;
use crate::transport::status::Status;
use crate::transport::{forms, gzip};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use node::{Answer, Request as Ask};
use std::fmt::Write;

/// Serves one request that does not speak gRPC.
pub(crate) async fn serve(edge: Edge, request: Request<Incoming>) -> Response<Body> {
    let origin = allowed_origin(&edge.core().settings().cors, request.headers());
    let mut response = match host_refused(&edge, &request) {
        Some(refusal) => refusal,
        None if request.method() == Method::OPTIONS => Response::new(Body::empty()),
        None if request.method() != Method::CONNECT && forms::shortest(request.uri().path()).is_some() => {
            moved(&request)
        }
        None if edge.core().settings().gateway && gateway::is_route(request.uri().path()) => {
            gateway::serve(edge, request).await
        }
        None => page(&edge, request.method(), request.uri(), request.headers()).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers
            .insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("accept, content-type, authorization"),
        );
    }
    response
}

fn allowed_origin(cors: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    if cors.is_empty() || cors.iter().any(|allowed| allowed == "*") {
        return Some(HeaderValue::from_static("*"));
    }
    let origin = headers.get(header::ORIGIN)?;
    cors.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// A browser may be led to us under a name that is not ours (DNS rebinding).
fn host_refused(edge: &Edge, request: &Request<Incoming>) -> Option<Response<Body>> {
    let allowed = &edge.core().settings().host_whitelist;
    // A certificate says who we are.
    if edge.is_secured() || allowed.is_empty() || allowed.iter().any(|host| host == "*") {
        return None;
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or(request.uri().host()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    if allowed.iter().any(|allowed| allowed == name) {
        return None;
    }
    let text = "This member does not know itself by the name in the Host header (see CVE-2018-5702).\n\
                Use one of the names in --host-whitelist, or add this one to it.";
    Some(error(StatusCode::MISDIRECTED_REQUEST, text))
}

/// What a listener of metrics serves: these pages, and nothing else.
pub(crate) async fn serve_metrics(edge: &Edge, request: &Request<Incoming>) -> Response<Body> {
    let path = request.uri().path();
    match matches!(path, "/metrics" | "/health") || Probe::of(path).is_some() {
        true => page(edge, request.method(), request.uri(), request.headers()).await,
        false => error(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// What a port of gRPC alone answers to other requests.
pub(crate) fn not_grpc() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

async fn page(edge: &Edge, method: &Method, uri: &http::Uri, headers: &HeaderMap) -> Response<Body> {
    let path = uri.path();
    let query = Query::of(uri);
    match path {
        "/version" => only_get(method, version(edge).await),
        "/health" => match method == Method::GET {
            true => health(edge, &query).await,
            false => only_get(method, Response::new(Body::empty())),
        },
        "/metrics" => metrics(edge, headers).await,
        "/debug/vars" => vars(edge).await,
        "/v3" if edge.core().settings().gateway => redirected(method, "/v3/"),
        _ => match Probe::of(path) {
            Some(probe) if method == Method::GET => probe.run(edge, &query).await,
            Some(_) => only_get(method, Response::new(Body::empty())),
            None => error(StatusCode::NOT_FOUND, "404 page not found"),
        },
    }
}

fn only_get(method: &Method, response: Response<Body>) -> Response<Body> {
    if method == Method::GET {
        return response;
    }
    let mut refusal = error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
    refusal
}

fn text(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// As Go's `http.Error`: the text, a newline, and no guessing of types.
fn error(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = text(status, format!("{body}\n"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// As Go's mux sends a client to the shortest path of the same meaning.
fn moved(request: &Request<Incoming>) -> Response<Body> {
    let path = forms::shortest(request.uri().path()).unwrap_or_default();
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    redirected(request.method(), &format!("{path}{query}"))
}

/// As Go's mux sends a client to the path with the slash.
fn redirected(method: &Method, to: &str) -> Response<Body> {
    let shown = matches!(*method, Method::GET | Method::HEAD);
    let escaped = to.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
    let page = format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", escaped.replace('\'', "&#39;"));
    let mut response = Response::new(if *method == Method::GET { Body::whole(page) } else { Body::empty() });
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    if shown {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    }
    if let Ok(to) = HeaderValue::from_str(to) {
        headers.insert(header::LOCATION, to);
    }
    response
}

fn json(body: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The pairs of a query string.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(uri: &http::Uri) -> Query {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (unescape(name), unescape(value))
                })
                .collect(),
        )
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    fn first(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    fn contains(&self, name: &str, value: &str) -> bool {
        self.0.iter().any(|(n, v)| n == name && v == value)
    }
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn ask(edge: &Edge, request: Ask) -> Result<Answer, Status> {
    let core = edge.core();
    match core.ask(node::Who::Member, request, core.settings().request_timeout()).await.answer {
        Answer::Refused(refusal) => Err(refusal.into()),
        answer => Ok(answer),
    }
}

async fn status(edge: &Edge) -> Result<node::Status, Status> {
    match ask(edge, Ask::Status).await? {
        Answer::Status(status) => Ok(*status),
        _ => Err(Status::unexpected("status")),
    }
}

async fn version(edge: &Edge) -> Response<Body> {
    let cluster = status(edge).await.map(|s| s.cluster_version).unwrap_or_default();
    let storage = maintenance::storage_version(&cluster);
    let or = |value: &str, none: &str| if value.is_empty() { none.to_owned() } else { value.to_owned() };
    json(format!(
        r#"{{"etcdserver":"{}","etcdcluster":"{}","storage":"{}"}}"#,
        edge.core().settings().etcd_level,
        or(&cluster, "not_decided"),
        or(storage, "unknown"),
    ))
}

/// Why a member is not healthy; None when it is.
async fn unhealthy(edge: &Edge, query: &Query) -> Option<String> {
    let serializable = query.first("serializable") == "true";
    let now = match status(edge).await {
        Ok(now) => now,
        Err(status) => return Some(format!("RANGE ERROR:{}", status.message)),
    };
    for alarm in &now.alarms {
        let name = match alarm.alarm {
            1 | 2 => alarm_name(alarm.alarm),
            _ => "UNKNOWN".into(),
        };
        if !query.contains("exclude", &name) {
            return Some(format!("ALARM {name}"));
        }
    }
    if serializable {
        return None;
    }
    if now.leader == 0 {
        return Some("RAFT NO LEADER".into());
    }
    ask(edge, Ask::Barrier).await.err().map(|status| format!("RANGE ERROR:{}", status.message))
}

async fn health(edge: &Edge, query: &Query) -> Response<Body> {
    match unhealthy(edge, query).await {
        None => {
            edge.metrics().health_success.inc();
            text(StatusCode::OK, r#"{"health":"true","reason":""}"#.into())
        }
        Some(reason) => {
            edge.metrics().health_failures.inc();
            let body = serde_json::json!({ "health": "false", "reason": reason });
            error(StatusCode::SERVICE_UNAVAILABLE, &body.to_string())
        }
    }
}

const LIVE: &[&str] = &["serializable_read"];
const READY: &[&str] = &["data_corruption", "serializable_read", "linearizable_read", "non_learner"];

/// `/livez` and `/readyz`: several checks, or one of them.
struct Probe {
    kind: &'static str,
    checks: Vec<&'static str>,
    /// It was asked for alone: then nothing is left out.
    alone: bool,
}

impl Probe {
    fn of(path: &str) -> Option<Probe> {
        let (kind, all, rest) = match (path.strip_prefix("/livez"), path.strip_prefix("/readyz")) {
            (Some(rest), _) => ("livez", LIVE, rest),
            (_, Some(rest)) => ("readyz", READY, rest),
            _ => return None,
        };
        let (checks, alone) = match rest.strip_prefix('/') {
            None if rest.is_empty() => (all.to_vec(), false),
            Some(one) => (vec![*all.iter().find(|check| **check == one)?], true),
            None => return None,
        };
        Some(Probe { kind, checks, alone })
    }

    async fn run(&self, edge: &Edge, query: &Query) -> Response<Body> {
        let (mut lines, mut failed) = (String::new(), false);
        for check in self.checks.iter().filter(|check| self.alone || !query.contains("exclude", check)) {
            let result = run_check(edge, check).await;
            self.count(edge, check, result.is_ok());
            match result {
                Ok(()) => lines.push_str(&format!("[+]{check} ok\n")),
                Err(reason) => {
                    failed = true;
                    lines.push_str(&format!("[-]{check} failed: {reason}\n"));
                }
            }
        }
        match (failed, query.has("verbose")) {
            (true, _) => error(StatusCode::SERVICE_UNAVAILABLE, &lines),
            (false, true) => error(StatusCode::OK, &format!("{lines}ok")),
            (false, false) => error(StatusCode::OK, "ok"),
        }
    }

    fn count(&self, edge: &Edge, check: &str, ok: bool) {
        let metrics = edge.metrics();
        metrics.healthcheck.with_label_values(&[self.kind, check]).set(if ok { 1.0 } else { 0.0 });
        let status = if ok { "success" } else { "error" };
        metrics.healthchecks.with_label_values(&[self.kind, check, status]).inc();
    }
}

async fn run_check(edge: &Edge, check: &str) -> Result<(), String> {
    let told = |status: Status| status.message.into_owned();
    match check {
        "linearizable_read" => ask(edge, Ask::Barrier).await.map(|_| ()).map_err(told),
        "data_corruption" => match status(edge).await.map_err(told)?.alarms.iter().any(|a| a.alarm == 2) {
            true => Err("alarm activated: CORRUPT".into()),
            false => Ok(()),
        },
        "non_learner" => match status(edge).await.map_err(told)?.is_learner {
            true => Err("not supported for learner".into()),
            false => Ok(()),
        },
        _ => status(edge).await.map(|_| ()).map_err(told),
    }
}

/// Everything registered, in Prometheus' text format.
async fn metrics(edge: &Edge, wishes: &HeaderMap) -> Response<Body> {
    let scrapes = &edge.metrics().scrapes;
    scrapes.in_flight.inc();
    let answer = scraped(edge, wishes).await;
    scrapes.in_flight.dec();
    scrapes.answered.with_label_values(&[answer.status().as_str()]).inc();
    answer
}

async fn scraped(edge: &Edge, wishes: &HeaderMap) -> Response<Body> {
    if let Ok(now) = status(edge).await {
        edge.metrics().refresh(&now);
        edge.metrics().auth_revision.set(edge.core().auth_revision().cast_signed());
        edge.metrics().refresh_budgets(edge.core(), &now.held);
    }
    let encoder = prometheus::TextEncoder::new();
    let mut families = edge.core().metrics().gather();
    families.extend(prometheus::gather());
    match encoder.encode_to_string(&families) {
        Ok(body) => {
            let packed = forms::takes_gzip(wishes).then(|| gzip::page(body.as_bytes()).ok()).flatten();
            let is_packed = packed.is_some();
            let mut response = Response::new(Body::whole(packed.unwrap_or(body.into_bytes())));
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, kind);
            if is_packed {
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(gzip::NAME));
            }
            response
        }
        Err(failure) => error(StatusCode::INTERNAL_SERVER_ERROR, &failure.to_string()),
    }
}

/// The few variables tools look at, in the shape of Go's expvar.
async fn vars(edge: &Edge) -> Response<Body> {
    let now = status(edge).await.unwrap_or_default();
    let role = if now.is_leader { "StateLeader" } else { "StateFollower" };
    let raft = serde_json::json!({
        "id": format!("{:x}", edge.core().member()),
        "term": now.term,
        "commit": now.committed,
        "applied": now.applied,
        "lead": format!("{:x}", now.leader),
        "raftState": role,
    });
    let cmdline: Vec<String> = std::env::args().collect();
    let mut body = String::from("{\n");
    let _ = write!(body, "\"cmdline\": {},\n\"raft.status\": {raft}\n}}\n", serde_json::json!(cmdline));
    let mut response = json(body);
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_found_by_path() {
        assert_eq!(Probe::of("/readyz").map(|p| p.checks.len()), Some(4));
        assert_eq!(Probe::of("/livez/serializable_read").map(|p| p.checks.len()), Some(1));
        assert!(Probe::of("/livez/linearizable_read").is_none());
        assert!(Probe::of("/livezx").is_none());
    }

    #[test]
    fn queries_are_unescaped_pairs() {
        let query = Query::of(&"/health?exclude=NOSPACE&exclude=A%20b+c&serializable=true&verbose".parse().unwrap());
        assert!(query.contains("exclude", "NOSPACE") && query.contains("exclude", "A b c"));
        assert!(query.has("verbose") && query.first("serializable") == "true");
        assert_eq!(unescape("%"), "%");
        assert_eq!(unescape("%zz%41"), "%zzA");
    }

    #[test]
    fn origins_are_echoed_only_when_named() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static("https://a"));
        assert_eq!(allowed_origin(&["*".into()], &headers).unwrap(), "*");
        assert_eq!(allowed_origin(&["https://a".into()], &headers).unwrap(), "https://a");
        assert!(allowed_origin(&["https://b".into()], &headers).is_none());
    }
}
