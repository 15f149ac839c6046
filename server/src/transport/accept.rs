//! The accept loop: HTTP/2 and HTTP/1.1 on one port, with deadlines and bounds.
//!
//! What a port serves is its [`Door`], as etcd has it with `--listen-client-http-urls` and
//! `--listen-metrics-urls`.

use super::call::Edge;
use super::cork::{Cork, Spares};
use super::forms;
use super::grpc;
use super::reply::Body;
use crate::log::json;
use crate::services::table;
use crate::sockets::{Accepting, OtherEnd, Stream};
use crate::tls::{Met, Security};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What an HTTP/2 client says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A client must say what it speaks within this.
const FIRST_WORDS: Duration = Duration::from_secs(10);
/// HTTP/1.1: the head of a request, idle time before it included.
const HEAD: Duration = Duration::from_secs(60);
const HEADER_LIST: u32 = 16 << 10;
/// Receive windows: a connection is bounded by the second, however many streams it has.
///
/// h2 ends a connection whose unread DATA frames of fewer than 256 bytes cost more than half
/// the second, at 256 bytes each less what they carry. Clients say thousands of keep-alives or
/// watches in one breath; a stream window full of 16-byte messages must stay below that.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;
const _: () = assert!(STREAM_WINDOW / 16 * (256 - 16) <= CONNECTION_WINDOW / 2);
/// Bytes HTTP/2 keeps for each stream beyond our own queue.
const SEND_BUFFER: usize = 256 << 10;
/// After an accept that failed for want of something: first and longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// gRPC, JSON and pages.
    All,
    /// gRPC alone: anything but HTTP/2 is closed, and what is no gRPC call is refused with 415.
    Grpc,
    /// JSON and pages, over HTTP/1.1 alone.
    Http,
    /// Metrics and health, over HTTP/1.1 alone.
    Metrics,
}

/// Serves one listener until the member stops. Called on the connection runtime.
pub(crate) async fn serve(listener: Accepting, edge: Edge, door: Door, security: Security) {
    let mut stopping = edge.core().stopping();
    let mut pause = PAUSES.0;
    let spares = Spares::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        match accepted {
            Ok(accepted) => {
                pause = PAUSES.0;
                admit(accepted, &spares, &edge, door, &security);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                edge.say("a client cannot be let in", &[("error", json!(error.to_string()))]);
                // Descriptors or memory ran out: without a pause this would spin.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// Errors of the one connection that was being accepted.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// Counts a connection for as long as it lives.
struct Open(prometheus::IntGauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn admit((socket, from): (Stream, OtherEnd), spares: &Spares, edge: &Edge, door: Door, security: &Security) {
    let metrics = edge.metrics();
    let Some(seat) = edge.seats().take(from.origin()) else {
        metrics.connections_refused.inc();
        let most = edge.core().budgets().limits.connections;
        let fields = [("remote-addr", json!(from.origin().to_string())), ("most", json!(most))];
        return edge.say("refused a client: too many connections", &fields);
    };
    metrics.connections.inc();
    let open = Open(metrics.connections.clone());
    let (edge, spares, security) = (edge.at(from), spares.clone(), security.clone());
    tokio::spawn(async move {
        let _open = (open, seat);
        socket.prepare();
        // Whatever ends a connection concerns its client alone; calls have their own tally.
        let _ = secure(socket, spares, edge, door, security).await;
    });
}

/// Shakes hands where the listener wants it. A caller that is turned away is no error.
async fn secure(socket: Stream, spares: Spares, edge: Edge, door: Door, security: Security) -> Served {
    let met = match security {
        Security::Plain => Some(Met::Plain(socket)),
        Security::Tls(handshakes) => handshakes.meet(socket, false).await?,
        Security::Both(handshakes) => handshakes.meet(socket, true).await?,
    };
    match met {
        None => {
            edge.metrics().turned_away.clients.inc();
            Ok(())
        }
        Some(Met::Plain(socket)) => connection(socket, spares, edge.for_connection(None), door).await,
        Some(Met::Tls(stream, caller)) => {
            connection(stream, spares, edge.for_connection(Some(caller.secured)), door).await
        }
    }
}

/// Any byte stream: a plain socket, or TLS over one.
pub(crate) async fn connection<S>(
    mut socket: S,
    spares: Spares,
    edge: Edge,
    door: Door,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let first = tokio::time::timeout(FIRST_WORDS, first_words(&mut socket)).await??;
    let h2 = first == PREFACE;
    let socket = Rewound { first, at: 0, socket };
    match (h2, door) {
        (true, Door::All | Door::Grpc) => over_http2(socket, spares, edge, door).await,
        (false, Door::All | Door::Http | Door::Metrics) => over_http1(TokioIo::new(socket), edge, door).await,
        // As etcd: the connection is closed.
        (true, Door::Http | Door::Metrics) | (false, Door::Grpc) => Ok(()),
    }
}

/// Reads as long as what comes may be the preface of HTTP/2.
async fn first_words<S: AsyncRead + Unpin>(socket: &mut S) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(PREFACE.len());
    while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
        let missing = PREFACE.len() - first.len();
        let read = (&mut *socket).take(missing as u64).read_buf(&mut first).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(first)
}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn over_http2<S>(socket: Rewound<S>, spares: Spares, edge: Edge, door: Door) -> Served
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = edge.core().settings();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // gRPC has no use for it, and etcd sends none.
        .auto_date_header(false)
        .max_concurrent_streams(settings.max_concurrent_streams)
        .keep_alive_interval(settings.keepalive_interval)
        .keep_alive_timeout(settings.keepalive_timeout)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_LIST)
        .max_send_buf_size(SEND_BUFFER);
    let mut stopping = edge.core().stopping();
    let account = edge.account().clone();
    let service = service_fn(move |request| answer(edge.clone(), door, request));
    let (cork, pauses) = Cork::new(socket, &spares, &account);
    let connection = builder.serve_connection(TokioIo::new(cork), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = pauses.run(connection.as_mut()) => return Ok(ended?),
        () = account.cut() => return Ok(()),
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(pauses.run(connection).await?)
}

async fn over_http1<S>(io: TokioIo<Rewound<S>>, edge: Edge, door: Door) -> Served
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stopping = edge.core().stopping();
    let service = service_fn(move |request| answer(edge.clone(), door, request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = stopping.wait_for(|stopping| *stopping) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

/// gRPC by its content type over HTTP/2, everything else as a page.
fn answer(edge: Edge, door: Door, request: Request<Incoming>) -> Answering {
    if request.version() == Version::HTTP_2 && forms::means_grpc(request.headers()) {
        return match grpc::start(edge, request) {
            Ok(begun) => Answering::Call(begun),
            Err(refusal) => Answering::Other(Box::pin(std::future::ready(*refusal))),
        };
    }
    Answering::Other(Box::pin(async move {
        if let Some(refusal) = forms::page(&request) {
            return refusal;
        }
        match door {
            Door::Grpc => table::not_grpc(),
            Door::Metrics => table::metrics_page(&edge, &request).await,
            Door::All | Door::Http => table::page(edge, request).await,
        }
    }))
}

/// An answer on its way. The transport keeps room for it for as long as the stream lives: what
/// is not small lies behind it.
enum Answering {
    Call(grpc::Begun),
    Other(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(match &mut *self {
            Answering::Call(begun) => {
                let (body, refusal) = std::task::ready!(Pin::new(begun).poll(cx));
                grpc::respond(body, refusal)
            }
            Answering::Other(page) => std::task::ready!(page.as_mut().poll(cx)),
        }))
    }
}

/// A stream whose first bytes were already looked at.
struct Rewound<S> {
    first: Vec<u8>,
    at: usize,
    socket: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let rest = &self.first[self.at..];
        if rest.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let now = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..now]);
        self.at += now;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn words(sent: &[&[u8]]) -> io::Result<Vec<u8>> {
        let (mut here, mut there) = tokio::io::duplex(64);
        let sent: Vec<Vec<u8>> = sent.iter().map(|piece| piece.to_vec()).collect();
        let sending = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            for piece in sent {
                there.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let first = first_words(&mut here).await;
        sending.await.unwrap();
        first
    }

    #[tokio::test]
    async fn the_first_words_decide() {
        assert_eq!(words(&[b"PRI * HT", b"TP/2.0\r\n\r\nSM\r\n\r\nmore"]).await.unwrap(), PREFACE);
        let get = words(&[b"GET / HTTP/1.1\r\n"]).await.unwrap();
        assert!(b"GET / HTTP/1.1\r\n".starts_with(&get) && !get.is_empty());
        let put = words(&[b"P", b"UT / HTTP/1.1\r\n"]).await.unwrap();
        assert!(b"PUT / HTTP/1.1\r\n".starts_with(&put) && put.len() > 1);
        assert!(words(&[b"PRI"]).await.is_err());
    }
}
