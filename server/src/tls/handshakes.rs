//! Handshakes, on a thread of their own: a signature costs up to a millisecond, and files are
//! looked at.

use super::config::Port;
use super::origin::Misplaced;
use super::texts::{in_gos_words, is_end};
use super::{Secured, origin};
use crate::log::{self, json};
use crate::sockets::{Origin, OtherEnd, StdStream, Stream};
use rustls::pki_types::CertificateDer;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tls::Facts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// All of a handshake takes at most this, as with etcd.
const WITHIN: Duration = Duration::from_secs(10);
/// The first byte of every TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// An encrypted connection that a caller began.
pub(crate) type Shaken = TlsStream<Moving>;

/// Who called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// The verified certificate; None: none was asked for.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    /// What the edge may know.
    pub(crate) secured: Secured,
}

/// What became of a connection.
pub(crate) enum Met {
    /// It spoke in the clear, and not a byte of it was read.
    Plain(Stream),
    /// Its handshake is done.
    Tls(Box<Shaken>, Caller),
}

struct Job {
    socket: StdStream,
    plain_too: bool,
    done: oneshot::Sender<Done>,
}

/// The socket comes back apart: it must be registered with the runtime that serves it.
enum Done {
    Plain(StdStream),
    Tls(Box<Shaken>, StdStream, Caller),
    Rejected,
}

/// The thread's end for listeners. Cheap to clone; the thread ends with the last clone.
#[derive(Clone)]
pub(crate) struct Handshakes {
    /// Whoever sends here counts its connections, and so bounds the handshakes under way.
    jobs: mpsc::UnboundedSender<Job>,
}

impl Handshakes {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(crate) fn start(name: &str, port: Port) -> io::Result<Handshakes> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (jobs, mut waiting) = mpsc::unbounded_channel::<Job>();
        let said = Arc::new(log::Seldom::default());
        std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(async move {
                while let Some(Job { socket, plain_too, done }) = waiting.recv().await {
                    let (port, said) = (port.clone(), said.clone());
                    tokio::spawn(async move {
                        let met = meet(socket, plain_too, &port, &said).await;
                        // Whoever asked may have gone.
                        let _ = done.send(met.unwrap_or(Done::Rejected));
                    });
                }
            });
        })?;
        Ok(Handshakes { jobs })
    }

    /// Shakes hands with a caller. None: it was turned away, and the log says why. `plain_too`: one
    /// that does not begin a handshake is taken as it is.
    ///
    /// # Errors
    /// The system refuses to move the socket.
    pub(crate) async fn meet(&self, socket: Stream, plain_too: bool) -> io::Result<Option<Met>> {
        let (done, answer) = oneshot::channel();
        let socket = socket.into_std()?;
        if self.jobs.send(Job { socket, plain_too, done }).is_err() {
            return Ok(None);
        }
        Ok(match answer.await {
            Ok(Done::Plain(socket)) => Some(Met::Plain(Stream::from_std(socket)?)),
            Ok(Done::Tls(mut stream, socket, caller)) => {
                stream.get_mut().0.0 = Some(Stream::from_std(socket)?);
                Some(Met::Tls(stream, caller))
            }
            Ok(Done::Rejected) | Err(_) => None,
        })
    }
}

/// Why a caller was turned away.
#[derive(Debug, thiserror::Error)]
enum Cause {
    /// It went without a word.
    #[error("EOF")]
    Gone,
    #[error("tls: handshake timed out")]
    Late,
    #[error("tls: first record does not look like a TLS handshake")]
    NotTls,
    /// The handshake failed, in Go's words.
    #[error("{0}")]
    Handshake(String),
    /// Its certificate cannot be read.
    #[error(transparent)]
    Unread(#[from] tls::Unreadable),
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// By its serial, in hexadecimal digits.
    #[error("transport: certificate serial {0} revoked")]
    Revoked(String),
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Cause {
        if is_end(&error) { Cause::Gone } else { Cause::Handshake(in_gos_words(&error)) }
    }
}

/// Why a caller was turned away, and what it showed.
struct Rejection {
    server_name: String,
    facts: Option<Facts>,
    cause: Cause,
}

async fn meet(socket: StdStream, plain_too: bool, port: &Port, said: &log::Seldom) -> io::Result<Done> {
    let socket = Stream::from_std(socket)?;
    let from = socket.other_end()?;
    let late = |_| Rejection { server_name: String::new(), facts: None, cause: Cause::Late };
    match tokio::time::timeout(WITHIN, shake(socket, from, plain_too, port)).await.map_err(late) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(rejection)) | Err(rejection) => {
            tell(&rejection, from, port, said);
            Ok(Done::Rejected)
        }
    }
}

/// As etcd: one that goes without a word is no news.
fn tell(rejection: &Rejection, from: OtherEnd, port: &Port, said: &log::Seldom) {
    let Rejection { server_name, facts, cause } = rejection;
    let mut fields = vec![("remote-addr", json!(from.to_string())), ("server-name", json!(server_name))];
    if let Some(facts) = facts {
        fields.push(("ip-addresses", json!(facts.ips)));
        fields.push(("dns-names", json!(facts.dns_names)));
    }
    fields.push(("error", json!(cause.to_string())));
    if matches!(cause, Cause::Gone) {
        log::debug(port.rejection, &fields);
    } else if said.due(format!("{} {cause}", from.origin())) {
        log::warn(port.rejection, &fields);
    }
}

async fn shake(socket: Stream, from: OtherEnd, plain_too: bool, port: &Port) -> Result<Done, Rejection> {
    let unnamed = |cause| Rejection { server_name: String::new(), facts: None, cause };
    let failed = |error: io::Error| unnamed(error.into());
    let mut first = [0; 1];
    match socket.peek(&mut first).await.map_err(failed)? {
        0 => return Err(unnamed(Cause::Gone)),
        _ if first[0] == HANDSHAKE => {}
        _ if plain_too => return socket.into_std().map(Done::Plain).map_err(failed),
        // Without an alert, as Go: whoever speaks no TLS understands none.
        _ => return Err(unnamed(Cause::NotTls)),
    }
    let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), Moving(Some(socket)));
    let begun = acceptor.await.map_err(failed)?;
    let server_name = begun.client_hello().server_name().unwrap_or_default().to_owned();
    let rejected = |cause: Cause, facts| Rejection { server_name: server_name.clone(), facts, cause };
    let serving = port.now();
    let shaken = begun.into_stream(serving.config.clone()).await;
    let mut stream = Box::new(shaken.map_err(|error| rejected(error.into(), None))?);
    let chain: Vec<CertificateDer<'static>> = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|shown| shown.clone().into_owned())
        .collect();
    let mut caller = Caller::default();
    if let Some(shown) = chain.first() {
        let facts = Facts::of(shown).map_err(|error| rejected(error.into(), None))?;
        check(&chain, &facts, from, port, &serving.revoked)
            .await
            .map_err(|cause| rejected(cause, Some(facts.clone())))?;
        let common_name = Some(facts.common_name).filter(|name| !name.is_empty()).map(Arc::from);
        caller = Caller { certificate: Some(shown.clone()), secured: Secured { common_name } };
    }
    let socket = stream.get_mut().0.0.take().ok_or_else(|| rejected(Cause::Gone, None))?;
    let socket = socket.into_std().map_err(|error| rejected(error.into(), None))?;
    Ok(Done::Tls(stream, socket, caller))
}

/// What is checked of a certificate that a CA vouches for.
async fn check(
    chain: &[CertificateDer<'_>],
    facts: &Facts,
    from: OtherEnd,
    port: &Port,
    revoked: &std::collections::BTreeSet<Vec<u8>>,
) -> Result<(), Cause> {
    // The socket of a file leads to no address.
    if let (true, Origin::Host(address)) = (port.checks_origin, from.origin()) {
        origin::check(facts, address).await?;
    }
    for shown in chain {
        let serial = Facts::of(shown)?.serial;
        if revoked.contains(&serial) {
            let serial: String = serial.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Cause::Revoked(serial));
        }
    }
    Ok(())
}

/// A socket that may be taken out, to go from one runtime to another.
pub(crate) struct Moving(Option<Stream>);

impl Moving {
    /// Around a socket that stays.
    pub(crate) fn new(socket: Stream) -> Moving {
        Moving(Some(socket))
    }

    fn socket(&mut self) -> io::Result<Pin<&mut Stream>> {
        self.0.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for Moving {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Moving {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.as_ref().is_some_and(Stream::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Own, Wish};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::ClientConfig;
    use std::path::{Path, PathBuf};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    struct Place {
        dir: tempfile::TempDir,
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed");
            std::fs::write(dir.path().join("ca"), issuer.pem()).expect("written");
            Place { dir, issuer }
        }

        fn file(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
            let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("a name");
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().expect("a key");
            let pair = (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
            std::fs::write(&pair.0, params.signed_by(&key, &self.issuer).expect("signed").pem()).expect("written");
            std::fs::write(&pair.1, key.serialize_pem()).expect("written");
            pair
        }

        fn wish(&self) -> Wish {
            let (cert, key) = self.issue("server");
            let versions = vec![&rustls::version::TLS13, &rustls::version::TLS12];
            Wish { own: Own::Files(cert, key), ca: Some(self.file("ca")), versions, ..Wish::default() }
        }
    }

    fn config(ca: &Path, own: &(PathBuf, PathBuf)) -> Arc<ClientConfig> {
        let roots = tls::roots(&tls::certificates(ca).expect("read")).expect("roots");
        let builder = ClientConfig::builder_with_provider(Arc::new(tls::provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
        let (chain, key) = (tls::certificates(&own.0).expect("read"), tls::private_key(&own.1).expect("read"));
        Arc::new(builder.with_client_auth_cert(chain, key).expect("a pair"))
    }

    #[tokio::test]
    async fn bytes_flow_after_the_socket_has_changed_its_runtime_and_the_caller_is_known() {
        let place = Place::new();
        let handshakes = Handshakes::start("test", Port::for_clients(&place.wish()).expect("good")).expect("a thread");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let config = config(&place.file("ca"), &place.issue("alice"));
        let calling = tokio::spawn(async move {
            let socket = TcpStream::connect(address).await.expect("connects");
            let name = "127.0.0.1".try_into().expect("an address");
            let mut stream = TlsConnector::from(config).connect(name, socket).await.expect("shakes hands");
            // At once: these bytes may come to the thread of the handshakes.
            stream.write_all(&[7; 100_000]).await.expect("writes");
            stream.flush().await.expect("flushes");
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.expect("reads");
            answer
        });
        let (socket, _) = listener.accept().await.expect("accepts");
        let met = handshakes.meet(socket.into(), false).await.expect("moves");
        let Some(Met::Tls(mut stream, caller)) = met else { panic!("not let in") };
        assert_eq!(caller.secured.common_name.as_deref(), Some("alice"));
        let mut sent = vec![0; 100_000];
        stream.read_exact(&mut sent).await.expect("reads");
        assert!(sent.iter().all(|byte| *byte == 7));
        stream.write_all(b"good").await.expect("writes");
        stream.flush().await.expect("flushes");
        assert_eq!(&calling.await.expect("ran"), b"good");
    }

    #[tokio::test]
    async fn one_that_speaks_no_tls_is_taken_as_it_is_only_where_that_is_wanted() {
        let place = Place::new();
        let handshakes = Handshakes::start("test", Port::for_clients(&place.wish()).expect("good")).expect("a thread");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        for plain_too in [true, false] {
            let mut socket = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connects");
            socket.write_all(b"GET /").await.expect("writes");
            let (accepted, _) = listener.accept().await.expect("accepts");
            match handshakes.meet(accepted.into(), plain_too).await.expect("moves") {
                Some(Met::Plain(mut stream)) => {
                    assert!(plain_too);
                    let mut word = [0; 5];
                    stream.read_exact(&mut word).await.expect("reads");
                    assert_eq!(&word, b"GET /");
                }
                Some(Met::Tls(..)) => panic!("no handshake"),
                None => {
                    assert!(!plain_too);
                    // Closed with bytes that were not read: a reset, or an end.
                    assert!(!matches!(socket.read(&mut [0; 8]).await, Ok(1..)));
                }
            }
        }
    }

    #[test]
    fn the_changed_list_of_the_revoked_is_in_force_at_once() {
        let place = Place::new();
        let crl = place.file("crl");
        std::fs::write(&crl, "garbage").expect("written");
        let wish = Wish { crl: Some(crl), ..place.wish() };
        assert!(Port::for_clients(&wish).err().expect("no list").to_string().contains("malformed crl"));
    }
}
