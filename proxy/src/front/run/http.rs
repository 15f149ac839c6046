//! The page of statistics and the metrics, over HTTP.

use super::{Front, admin};
use crate::front::config::Stats;
use crate::front::state::Session;
use crate::front::{metrics, page, table};
use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;

/// A form is read so far.
const FORM: usize = 16 << 10;
/// Until the head of a request is there.
const HEAD: Duration = Duration::from_secs(10);

type Answer = Response<Full<Bytes>>;

/// Serves one connection.
pub(super) async fn run(stream: TcpStream, session: &Rc<Session>, front: &Rc<Front>) {
    let door = front.state.borrow().doors.get(&session.frontend).map(|door| door.config.clone());
    let Some(stats) = door.and_then(|door| door.stats) else { return };
    let stats = Rc::new(stats);
    let service = hyper::service::service_fn(|request| {
        let (stats, front) = (stats.clone(), front.clone());
        async move { Ok::<_, Infallible>(answer(request, &stats, &front).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // However it ends, the connection is closed.
        _ = connection => {}
        () = session.end.notified() => {}
    }
}

async fn answer(request: Request<Incoming>, stats: &Stats, front: &Rc<Front>) -> Answer {
    if !may_look(request.headers(), stats) {
        let mut refused = text(StatusCode::UNAUTHORIZED, "text/plain", "a name and a password are wanted\n".into());
        refused
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Basic realm=\"proxy\""));
        return refused;
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let form = path.strip_prefix(&stats.uri).filter(|_| !stats.uri.is_empty()).map(str::to_owned);
    match (request.method().clone(), form) {
        (Method::GET, _) if path == stats.metrics => metrics_of(front),
        (Method::GET, Some(form)) => shown(&form, stats, front),
        (Method::POST, Some(_)) if stats.admin => changed(request, stats, front).await,
        (Method::POST, Some(_)) => text(StatusCode::FORBIDDEN, "text/plain", "nothing may be changed here\n".into()),
        (Method::GET, None) => text(StatusCode::NOT_FOUND, "text/plain", format!("the page is at {}\n", stats.uri)),
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET and POST are understood\n".into()),
    }
}

fn text(code: StatusCode, kind: &str, body: String) -> Answer {
    let built = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, kind)
        .header(header::CACHE_CONTROL, "no-cache")
        .header("content-security-policy", page::POLICY)
        .header("x-content-type-options", "nosniff")
        .header("x-frame-options", "DENY")
        .body(Full::new(Bytes::from(body)));
    built.expect("headers of ours")
}

fn may_look(headers: &HeaderMap, stats: &Stats) -> bool {
    if stats.auth.is_empty() {
        return true;
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(coded) = given.and_then(|value| value.strip_prefix("Basic ")) else { return false };
    let Ok(both) = base64::engine::general_purpose::STANDARD.decode(coded.trim()) else { return false };
    // All are compared, each in the time that its length takes: nothing is told by the time.
    stats.auth.iter().fold(false, |right, wanted| right | same(wanted.as_bytes(), &both))
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn metrics_of(front: &Front) -> Answer {
    let now = front.now();
    let mut state = front.state.borrow_mut();
    state.count_all();
    let rows = table::rows(&state, now);
    text(StatusCode::OK, "text/plain; version=0.0.4", metrics::text(&state, &rows, now))
}

fn shown(form: &str, stats: &Stats, front: &Front) -> Answer {
    let now = front.now();
    let mut state = front.state.borrow_mut();
    state.count_all();
    let rows = table::rows(&state, now);
    // As HAProxy has it: words behind a semicolon.
    if form.split(';').any(|word| word == "csv") {
        return text(StatusCode::OK, "text/plain", table::csv(rows.iter()));
    }
    let told = form.split_once(";st=").map(|(_, told)| told.split(';').next().unwrap_or_default().to_owned());
    text(StatusCode::OK, "text/html; charset=utf-8", page::html(&state, &rows, stats, now, told.as_deref()))
}

/// A form of the page: servers of a backend, and what becomes of them.
async fn changed(request: Request<Incoming>, stats: &Stats, front: &Rc<Front>) -> Answer {
    if !is_own_form(request.headers()) {
        return text(StatusCode::FORBIDDEN, "text/plain", "the form comes from another place\n".into());
    }
    let Ok(body) = Limited::new(request.into_body(), FORM).collect().await else {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "the form is too long\n".into());
    };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let pairs: Vec<(String, String)> = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.into(), decoded(value)))
        .collect();
    let value = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let backend = value("b").unwrap_or_default().trim_start_matches('#').to_owned();
    let action = value("action").unwrap_or_default();
    let servers: Vec<&str> = pairs.iter().filter(|(name, _)| name == "s").map(|(_, value)| value.as_str()).collect();
    let command = |server: &str| match action {
        "ready" | "enable" => Some(format!("set server {backend}/{server} state ready")),
        "drain" => Some(format!("set server {backend}/{server} state drain")),
        "maint" | "disable" => Some(format!("set server {backend}/{server} state maint")),
        "shutdown" => Some(format!("shutdown sessions server {backend}/{server}")),
        _ => None,
    };
    let mut told = if servers.is_empty() { "NONE" } else { "DONE" };
    for server in servers {
        let done = command(server).map(|command| admin::carry_out(&command, crate::front::config::Level::Admin, front));
        if done.is_none_or(|said| !said.trim().is_empty()) {
            told = "ERRP";
        }
    }
    let mut seen = text(StatusCode::SEE_OTHER, "text/plain", String::new());
    if let Ok(place) = format!("{};st={told}", stats.uri).parse() {
        seen.headers_mut().insert(header::LOCATION, place);
    }
    seen
}

/// A form that a page of another origin sends is not taken: a browser says where it comes from.
fn is_own_form(headers: &HeaderMap) -> bool {
    let word = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    match (word(header::ORIGIN), word(header::HOST)) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        (Some(_), None) => false,
    }
}

/// A value of a form.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail
            .get(..2)
            .and_then(|two| std::str::from_utf8(two).ok())
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
