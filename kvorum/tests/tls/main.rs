//! Encrypted ports of real members: who is let in, who is turned away and with which words, and
//! certificates that change under running clients and members.
//!
//! What these expect was asked of a real etcd (`KVORUM_TEST_BIN`), where the test does not say
//! otherwise.

#[path = "../live/mod.rs"]
mod live;

mod certs;
mod clients;
mod peers;
mod sockets;

use certs::{Authority, Pair};
use client::{Client, Options, Tls};
use live::{Member, PATIENCE, Spec};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A folder with an authority.
struct Place {
    ca: Authority,
    // Dropped last.
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Place { ca: Authority::new(dir.path(), "ca"), dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A member alone whose client port is encrypted, with these flags besides.
    fn encrypted(&self, extra: &[&str]) -> Member {
        let server = self.ca.issue("server", &["127.0.0.1", "localhost"], "server", 1);
        let mut spec = Spec::alone(self.dir.path(), &[]);
        spec.extra = client_flags(&spec, &server);
        spec.extra.extend(extra.iter().map(ToString::to_string));
        let mut member = Member::spawn(spec);
        says(&mut member, "serving client traffic securely");
        member
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

fn flag(name: &str, value: impl AsRef<Path>) -> String {
    format!("--{name}={}", text(value.as_ref()))
}

fn client_flags(spec: &Spec, server: &Pair) -> Vec<String> {
    let url = format!("https://127.0.0.1:{}", spec.client_port);
    vec![
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        flag("cert-file", &server.cert),
        flag("key-file", &server.key),
    ]
}

/// Waits until the member's log says this.
#[track_caller]
fn says(member: &mut Member, words: &str) {
    let until = Instant::now() + PATIENCE;
    while !member.log().contains(words) {
        if let Some(status) = member.ended() {
            panic!("ended with {status}\n{}", member.log());
        }
        assert!(Instant::now() < until, "does not say {words:?}\n{}", member.log());
        std::thread::sleep(LOOK_EVERY);
    }
}

#[track_caller]
fn serves(member: &mut Member) {
    says(member, "ready to serve client requests");
}

/// How often the log says this.
fn times(member: &Member, words: &str) -> usize {
    member.log().matches(words).count()
}

fn client(member: &Member, tls: Tls) -> Client {
    let options = Options {
        tls: Some(tls),
        dial_timeout: Duration::from_secs(5),
        request_timeout: Some(PATIENCE),
        ..Options::of([format!("https://127.0.0.1:{}", member.spec.client_port)])
    };
    Client::connect(options).expect("an endpoint")
}

fn trusting(ca: &Path, own: Option<&Pair>) -> Tls {
    Tls {
        ca: Some(ca.to_path_buf()),
        cert: own.map(|own| own.cert.clone()),
        key: own.map(|own| own.key.clone()),
        ..Tls::default()
    }
}

/// A put that is tried for a moment alone.
async fn refused(client: &Client) -> String {
    let soon = Duration::from_secs(3);
    match tokio::time::timeout(soon, client.put("k", "v")).await {
        Ok(Ok(_)) => panic!("the member took it"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "nothing".into(),
    }
}

/// One connection of a client that says which versions and protocols it speaks.
async fn shake(
    port: u16,
    ca: &Path,
    own: Option<&Pair>,
    versions: &[&'static rustls::SupportedProtocolVersion],
    protocol: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let certificates = tls::certificates(ca).expect("an authority");
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(tls::provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(tls::roots(&certificates).expect("roots"));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = tls::certificates(&own.cert).expect("a certificate");
            builder.with_client_auth_cert(chain, tls::private_key(&own.key).expect("a key")).expect("a pair")
        }
    };
    if !protocol.is_empty() {
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    }
    let socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = "127.0.0.1".try_into().expect("an address");
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
}

/// The answer to a GET over a connection of its own, with its head.
async fn get(port: u16, ca: &Path, own: Option<&Pair>, path: &str) -> io::Result<String> {
    let mut stream = shake(port, ca, own, rustls::ALL_VERSIONS, "http/1.1").await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What comes back for these bytes in the clear, until the end.
async fn plainly(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("connects");
    socket.write_all(bytes).await.expect("writes");
    let mut answer = Vec::new();
    // Closed or reset: both are an end.
    let _ = socket.read_to_end(&mut answer).await;
    answer
}

/// The stock etcdctl, where it has been built.
fn etcdctl() -> Option<Command> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers/.cache/bin/etcdctl");
    if !place.exists() {
        eprintln!("without the stock etcdctl: `cargo xtask peers` builds it");
        return None;
    }
    let mut command = Command::new(place);
    live::clean(&mut command);
    Some(command)
}
