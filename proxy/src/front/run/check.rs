//! Checks: one task for each server that is asked whether it is well.

use super::{Front, say, session};
use crate::front::config::{Backend, Balance, Check, HttpCheck, Server};
use crate::front::health::{Found, Wanted};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Two servers are first asked so far apart.
const STAGGER: Duration = Duration::from_millis(20);
/// The answer to a check is read so far.
const ANSWER: usize = 64 << 10;

/// Tasks, which end with this.
#[derive(Debug)]
pub(super) struct Checks(Vec<tokio::task::AbortHandle>);

impl Drop for Checks {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Checks {
    /// Of all servers of the file that holds now.
    pub(super) fn begin(front: &Rc<Front>) -> Checks {
        let backends = front.state.borrow().config.backends.clone();
        let mut tasks = Vec::new();
        for backend in backends {
            let backend = Rc::new(backend);
            for (at, server) in backend.servers.iter().enumerate().filter(|(_, server)| server.check) {
                let task =
                    ask_for_ever(backend.clone(), at, server.clone(), STAGGER * tasks.len() as u32, front.clone());
                tasks.push(tokio::task::spawn_local(task).abort_handle());
            }
        }
        Checks(tasks)
    }
}

async fn ask_for_ever(backend: Rc<Backend>, at: usize, server: Server, first: Duration, front: Rc<Front>) {
    tokio::time::sleep(first).await;
    loop {
        let is_asked = {
            let state = front.state.borrow();
            state.pools.get(&backend.name).is_some_and(|pool| pool.members[at].wanted != Wanted::Maint)
        };
        if is_asked {
            let began = Instant::now();
            let (found, text) = ask(&backend, &server).await;
            let took = began.elapsed();
            if found.is_good() && backend.balance == Balance::Leader {
                let leads = leads(&backend, &server).await;
                if let Some(pool) = front.state.borrow_mut().pools.get_mut(&backend.name) {
                    pool.leads(at, leads);
                }
            }
            heard(&backend, at, &server, (found, took, text), &front);
        }
        let interval = {
            let state = front.state.borrow();
            state.pools.get(&backend.name).map_or(server.inter.0, |pool| pool.members[at].health.interval())
        };
        tokio::time::sleep(interval).await;
    }
}

/// Takes what a check found, and says what changed by it.
fn heard(backend: &Backend, at: usize, server: &Server, (found, took, text): (Found, Duration, String), front: &Front) {
    let now = front.now();
    let (was, is) = {
        let mut state = front.state.borrow_mut();
        let Some(pool) = state.pools.get_mut(&backend.name) else { return };
        let was = pool.members[at].health.is_up();
        pool.checked(at, found, took, text.clone(), now);
        let is = pool.members[at].health.is_up();
        state.admit(&backend.name, now);
        (was, is)
    };
    let reason = if text.is_empty() { found.words().to_owned() } else { format!("{}: {text}", found.words()) };
    match (was, is) {
        (true, false) => session::marked_down(front, backend, server, &reason),
        (false, true) => {
            let fields =
                [("server", Value::from(format!("{}/{}", backend.name, server.name))), ("reason", Value::from(reason))];
            say("info", "server is up", &fields);
        }
        _ => {}
    }
}

/// Asks once.
async fn ask(backend: &Backend, server: &Server) -> (Found, String) {
    let whole = server.inter.0;
    let connect = if backend.timeout.check.is_some() { backend.timeout.connect.0.min(whole) } else { whole };
    let address = server.check_address.as_ref().unwrap_or(&server.address);
    let stream = match tokio::time::timeout(connect, TcpStream::connect(address)).await {
        Err(_) => return (Found::L4Tout, String::new()),
        Ok(Err(error)) if is_want_of_descriptors(&error) => return (Found::SockErr, crate::relay::reason(&error)),
        Ok(Err(error)) => return (Found::L4Con, capital(&crate::relay::reason(&error))),
        Ok(Ok(stream)) => stream,
    };
    let limit = backend.timeout.check.map_or(whole, |span| span.0);
    let rest = async {
        match (&backend.check, server.check_ssl || backend.check == Check::Tls) {
            (Check::Tcp, false) => (Found::L4Ok, String::new()),
            (Check::Tcp | Check::Tls, _) => match handshake(stream, server).await {
                Ok(_) => (Found::L4Ok, String::new()),
                Err(text) => (Found::L6Rsp, text),
            },
            (Check::Http(check), false) => http(stream, check, address).await,
            (Check::Http(check), true) => match handshake(stream, server).await {
                Ok(stream) => http(stream, check, address).await,
                Err(text) => (Found::L6Rsp, text),
            },
        }
    };
    tokio::time::timeout(limit, rest).await.unwrap_or((Found::L7Tout, String::new()))
}

/// No descriptor or memory is left here: nothing is said about the server.
fn is_want_of_descriptors(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOBUFS];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|other| other.raw_os_error() == code))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Begins TLS with a server.
///
/// # Errors
/// In words.
async fn handshake(stream: TcpStream, server: &Server) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let config = client_config(server)?;
    let host = server.address.rsplit_once(':').map_or(&server.address[..], |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = server.check_sni.as_deref().unwrap_or(host);
    let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no name"))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| error.to_string())
}

/// How checks of this server speak TLS. The file is read each time: it may be another by now.
fn client_config(server: &Server) -> Result<rustls::ClientConfig, String> {
    let provider = Arc::new(tls::provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = match &server.ca_file {
        None => {
            let anyone = Arc::new(tls::Anyone(provider));
            builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
        }
        Some(file) => {
            let certificates = tls::certificates(Path::new(file)).map_err(|fault| fault.to_string())?;
            let roots = tls::roots(&certificates).map_err(|fault| fault.to_string())?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Asks a path over a connection.
async fn http<S>(stream: S, check: &HttpCheck, address: &str) -> (Found, String)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let host = check.host.as_deref().unwrap_or(address);
    match exchange(stream, &check.method, &check.uri, host, Bytes::new()).await {
        Err(error) => (Found::L7Rsp, error),
        Ok((code, _)) => {
            let right = check.expected().unwrap_or_default();
            if right.iter().any(|(first, last)| (*first..=*last).contains(&code)) {
                (Found::L7Ok(code), String::new())
            } else {
                (Found::L7Sts(code), format!("HTTP status {code}"))
            }
        }
    }
}

/// One question over HTTP/1.1: the code and the body.
///
/// # Errors
/// In words.
async fn exchange<S>(stream: S, method: &str, uri: &str, host: &str, body: Bytes) -> Result<(u16, Bytes), String>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header("host", host)
        .header("user-agent", "kvorum-proxy")
        .header("connection", "close")
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(text)?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER).collect().await.map_err(|error| error.to_string())?;
        Ok((code, body.to_bytes()))
    };
    tokio::pin!(answer);
    tokio::select! {
        result = &mut answer => result,
        // It ends when the other side closes; the answer may be there already.
        _ = connection => answer.await,
    }
}

/// Whether a member of a cluster says that it leads.
async fn leads(backend: &Backend, server: &Server) -> bool {
    let asked = async {
        let stream = TcpStream::connect(&server.address).await.ok()?;
        let question = Bytes::from_static(b"{}");
        let uri = "/v3/maintenance/status";
        let (code, body) = if server.check_ssl {
            exchange(handshake(stream, server).await.ok()?, "POST", uri, &server.address, question).await.ok()?
        } else {
            exchange(stream, "POST", uri, &server.address, question).await.ok()?
        };
        let said: Value = serde_json::from_slice(&body).ok()?;
        let leader = said.get("leader")?.as_str()?.to_owned();
        (code == 200)
            .then(|| said.get("header")?.get("member_id")?.as_str().map(|own| own == leader && leader != "0"))?
    };
    let limit = backend.timeout.check.unwrap_or(server.inter).0;
    matches!(tokio::time::timeout(limit, asked).await, Ok(Some(true)))
}
