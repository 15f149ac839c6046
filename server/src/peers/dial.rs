//! The outgoing side: dials, says hello, sends what is queued, dials again.

use super::hello::{self, Hello, Verdict};
use super::queue::Queue;
use super::roster::Peer;
use super::socket::Socket;
use super::wire::{self, Got};
use super::{Line, Peering};
use crate::log::{self, hex, json};
use crate::settings::ETCD_LEVEL;
use crate::sockets::{self, Stream};
use crate::tls::{Dialler, Moving, in_gos_words};
use disk::urls::Url;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

const CONNECT: Duration = Duration::from_secs(1);
const HELLO: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_secs(1);
/// A peer that answers no ping for this long is gone, whatever the socket says. While a long
/// frame arrives there it says so every second.
const SILENCE: Duration = Duration::from_secs(5);
/// Bytes taken from the queue at once: an urgent frame waits behind at most these.
const AT_ONCE: usize = 256 << 10;

/// Why no line stands.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoLine {
    /// The other side says so.
    #[error("the peer says that this member was removed from the cluster")]
    Removed,
    /// In the words of the other side.
    #[error("the peer refused us: {0}")]
    Refused(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Keeps one line to one member connected for as long as it is spoken to.
pub(super) async fn keep_connected(peering: Arc<Peering>, peer: Peer, line: Line) {
    let queue = match line {
        Line::Urgent => &peer.link.urgent,
        Line::Log | Line::Inquiry => &peer.link.log,
        Line::Bulk => &peer.link.bulk,
    };
    peering.metrics().peers.know(&peering.label, &peer.label);
    tokio::select! {
        () = peer.gone() => {}
        () = dial_for_ever(&peering, &peer, line, queue) => {}
    }
    queue.close();
    peering.metrics().peers.forget(&peering.label, &peer.label);
}

async fn dial_for_ever(peering: &Peering, peer: &Peer, line: Line, queue: &Queue) {
    let mut wait = FIRST_WAIT;
    let (mut failures, mut refused) = (0, 0);
    loop {
        match connect(peering, peer, line, failures).await {
            Ok((stream, founding)) => {
                (failures, refused) = (0, 0);
                let since = Instant::now();
                queue.open();
                stands(peering, peer, line);
                let ended = serve(stream, (peer, founding), queue, peering).await;
                queue.close();
                broke(peering, peer, line, &ended);
                // One that stood looks at once whether the other process is gone.
                wait = if since.elapsed() > LONGEST_WAIT { Duration::ZERO } else { FIRST_WAIT };
                peering.core().intake().lost(peer.id);
                peering.say(
                    "lost the connection to a peer",
                    &[
                        ("remote-peer-id", hex(peer.id)),
                        ("remote-peer-name", json!(peer.name())),
                        ("line", json!(format!("{line:?}"))),
                        ("error", json!(ended.to_string())),
                    ],
                );
            }
            Err(error) => {
                // Only where the cluster says that it is: whoever says a hello names URLs, too.
                let agreed = peer.addresses().is_agreed(failures);
                failures += 1;
                wait = (wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
                refused = if is_refused(&error) { refused + 1 } else { 0 };
                if refused > 0 && refused >= peer.addresses().count() {
                    peering.core().intake().gone(peer.id);
                }
                peering.metrics().peers.sent_failures.with_label_values(&[&peer.label]).inc();
                if queue.take_refused() {
                    peering.core().intake().lost(peer.id);
                }
                if agreed && matches!(error, NoLine::Removed) {
                    peering.core().intake().removed(peer.id);
                }
                peering.say(
                    "failed to connect to a peer",
                    &[
                        ("remote-peer-id", hex(peer.id)),
                        ("remote-peer-name", json!(peer.name())),
                        ("error", json!(error.to_string())),
                    ],
                );
            }
        }
        if !wait.is_zero() {
            let _ = tokio::time::timeout(wait, peer.nudge.notified()).await;
        }
    }
}

/// A line stands. A member is as near as its line for the log; the others come and go with it.
fn stands(peering: &Peering, peer: &Peer, line: Line) {
    if line == Line::Log {
        peering.metrics().peers.active.with_label_values(&[&peering.label[..], &peer.label]).set(1);
        log::info("peer became active", &[("peer-id", hex(peer.id)), ("peer-name", json!(peer.name()))]);
    }
}

fn broke(peering: &Peering, peer: &Peer, line: Line, error: &io::Error) {
    let peers = &peering.metrics().peers;
    peers.sent_failures.with_label_values(&[&peer.label]).inc();
    if line == Line::Log {
        let labels = [&peering.label[..], &peer.label];
        peers.active.with_label_values(&labels).set(0);
        peers.disconnected.with_label_values(&labels).inc();
        // etcd's words: tools look for them.
        log::warn(
            "peer became inactive (message send to peer failed)",
            &[("peer-id", hex(peer.id)), ("peer-name", json!(peer.name())), ("error", json!(error.to_string()))],
        );
    }
}

/// The machine answers, and nobody listens there.
fn is_refused(error: &NoLine) -> bool {
    matches!(error, NoLine::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

fn other(text: String) -> io::Error {
    io::Error::other(text)
}

async fn connect(peering: &Peering, peer: &Peer, line: Line, failures: usize) -> Result<(Socket, Option<u64>), NoLine> {
    let Some(url) = peer.addresses().nth(failures) else {
        return Err(other("the member has no peer URL".into()).into());
    };
    let hello = Hello {
        level: hello::WIRE_LEVEL,
        cluster: peering.identity.cluster,
        from: peering.identity.member,
        to: peer.id,
        boot: peering.boot,
        line,
        etcd_level: ETCD_LEVEL.into(),
        founding: Some(peering.core().founding()),
        urls: peering.urls.clone(),
    };
    let (stream, founding) = greet(&url, &hello, peering.dialler.as_ref()).await?;
    peering.met(peer.id, founding)?;
    Ok((stream, founding))
}

/// Connects to a peer URL and says hello. The stream is for what the hello's line carries; beside
/// it which founding the listener is of, as in [`Hello`]. If that is not the one of `hello`, the
/// stream is closed.
///
/// # Errors
/// Nobody answers there, or not as it should.
pub(super) async fn greet(
    url: &str,
    hello: &Hello,
    dialler: Option<&Dialler>,
) -> Result<(Socket, Option<u64>), NoLine> {
    let url = Url::parse(url).map_err(|bad| other(bad.to_string()))?;
    let mut stream = reach(&url, dialler).await?;
    let talk = async {
        hello::write_hello(&mut stream, hello).await?;
        hello::read_verdict(&mut stream).await
    };
    match tokio::time::timeout(HELLO, talk).await.map_err(|_| timed_out(&url))?? {
        Verdict::Ok { founding } => Ok((stream, founding)),
        Verdict::Apart { founding } => Ok((stream, Some(founding))),
        Verdict::Removed => Err(NoLine::Removed),
        Verdict::Refused(why) => Err(NoLine::Refused(why)),
    }
}

fn timed_out(url: &Url) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{url}: timed out"))
}

/// A connection to a peer URL, encrypted if the URL says so.
///
/// # Errors
/// Nobody is there, or nobody that is trusted.
pub(super) async fn reach(url: &Url, dialler: Option<&Dialler>) -> io::Result<Socket> {
    let stream = tokio::time::timeout(CONNECT, socket(url)).await.map_err(|_| timed_out(url))??;
    match (url.is_tls(), dialler) {
        (false, _) => Ok(stream.into()),
        (true, Some(dialler)) => {
            tokio::time::timeout(HELLO, encrypt(stream, url, dialler)).await.map_err(|_| timed_out(url))?
        }
        (true, None) => Err(other(format!("{url}: nothing is known of whom to trust for https"))),
    }
}

async fn socket(url: &Url) -> io::Result<Stream> {
    if url.is_unix() {
        return match UnixStream::connect(sockets::path(url)).await {
            Ok(stream) => Ok(Stream::Unix(stream)),
            // Whoever stops takes the file along: nobody listens there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, error))
            }
            Err(error) => Err(error),
        };
    }
    let stream = TcpStream::connect(url.address()).await?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// Files are looked at, and may hang: not on this thread.
async fn encrypt(stream: Stream, url: &Url, dialler: &Dialler) -> io::Result<Socket> {
    let dialler = dialler.clone();
    let config = tokio::task::spawn_blocking(move || dialler.now()).await.map_err(io::Error::other)?;
    let name = sockets::host(url)
        .to_string()
        .try_into()
        .map_err(|_| other(format!("{url}: no host that a certificate can name")))?;
    let shaken = TlsConnector::from(config).connect(name, Moving::new(stream)).await;
    Ok(shaken.map_err(|error| other(in_gos_words(&error)))?.into())
}

/// A peer, and which founding it said that it is of.
type Whom<'a> = (&'a Peer, Option<u64>);

/// Sends until the connection breaks; says why it did.
async fn serve(stream: Socket, whom: Whom<'_>, queue: &Queue, peering: &Peering) -> io::Error {
    let started = Instant::now();
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        error = send(writer, whom, queue, peering, started) => error,
        error = listen(reader, whom.0, peering, started) => error,
    }
}

async fn send(
    mut writer: impl AsyncWrite + Unpin,
    (peer, founding): Whom<'_>,
    queue: &Queue,
    peering: &Peering,
    started: Instant,
) -> io::Error {
    let sent = peering.metrics().peers.sent_bytes.with_label_values(&[&peer.label]);
    let mut taken = VecDeque::new();
    let mut next_ping = Instant::now();
    loop {
        if Instant::now() >= next_ping {
            next_ping = Instant::now() + PING_EVERY;
            taken.push_back(wire::ping((started.elapsed().as_micros() as u64).max(1)));
        }
        // Ours may have become known since.
        if let Err(apart) = peering.same_founding(founding) {
            return apart;
        }
        queue.take(AT_ONCE, &mut taken);
        if taken.is_empty() {
            let _ = tokio::time::timeout_at(next_ping.into(), queue.ready()).await;
            continue;
        }
        sent.inc_by(taken.iter().map(|frame| frame.len() as u64).sum());
        if let Err(error) = write_all(&mut writer, &mut taken).await {
            return error;
        }
    }
}

async fn write_all(writer: &mut (impl AsyncWrite + Unpin), frames: &mut VecDeque<Vec<u8>>) -> io::Result<()> {
    const VECTORS: usize = 64;
    let mut from = 0;
    while !frames.is_empty() {
        let slices: Vec<IoSlice> = frames
            .iter()
            .take(VECTORS)
            .enumerate()
            .map(|(n, frame)| IoSlice::new(if n == 0 { &frame[from..] } else { frame }))
            .collect();
        let mut wrote = writer.write_vectored(&slices).await?;
        if wrote == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = frames.front() {
            let left = first.len() - from;
            if wrote < left {
                from += wrote;
                break;
            }
            wrote -= left;
            from = 0;
            frames.pop_front();
        }
    }
    // TLS keeps what it has encrypted and the socket did not take.
    writer.flush().await
}

/// On a line that we dialled only pongs come back.
async fn listen(mut reader: impl AsyncRead + Unpin, peer: &Peer, peering: &Peering, started: Instant) -> io::Error {
    let round_trip = peering.metrics().peers.round_trip.with_label_values(&[&peer.label]);
    loop {
        match tokio::time::timeout(SILENCE, wire::read(&mut reader, wire::SHORT, peering.core().budgets())).await {
            Ok(Ok(Got::Pong(wire::ARRIVES))) => {}
            Ok(Ok(Got::Pong(sent))) => {
                let micros = (started.elapsed().as_micros() as u64).saturating_sub(sent);
                round_trip.observe(micros as f64 / 1e6);
            }
            Ok(Ok(_)) => return other("a frame against the direction of the line".into()),
            Ok(Err(error)) => return error,
            Err(_) => return io::Error::new(io::ErrorKind::TimedOut, "no answer to pings"),
        }
    }
}
