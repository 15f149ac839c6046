//! The incoming side of the peer port: members that dialled us, and HTTP/1.1.

use super::hello::{self, Hello, MAGIC, Verdict};
use super::wire::{self, Got};
use super::{Peering, http};
use crate::log::{self, hex, json};
use node::frame::{self, Lane};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A peer says who it is within this time.
const FIRST_WORDS: Duration = Duration::from_secs(5);
/// Connections open at once, of peers and of the curious.
const CONNECTIONS: usize = 256;
/// How long a member may say nothing at all; it pings every second.
const SILENCE: Duration = Duration::from_secs(10);
const READ_BUFFER: usize = 64 << 10;

pub(super) async fn accept(peering: Arc<Peering>, listener: std::net::TcpListener) {
    let listener = match listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)) {
        Ok(listener) => listener,
        Err(error) => log::fatal("listener failed", &[("error", json!(error.to_string()))]),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let peering = peering.clone();
                tokio::spawn(async move {
                    if let Err(error) = connection(&peering, stream).await {
                        report(&peering, from, &error);
                    }
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file handles, most likely: others must end first.
                peering.say("accept failed", &[("error", json!(error.to_string()))]);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn report(peering: &Peering, from: SocketAddr, error: &io::Error) {
    let gone = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    if !gone.contains(&error.kind()) {
        peering.say(
            "rejected connection on peer endpoint",
            &[("remote-addr", json!(from.ip().to_string())), ("error", json!(error.to_string()))],
        );
    }
}

fn late<T>(_: T) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no first words in time")
}

async fn connection(peering: &Arc<Peering>, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0; 1];
    if tokio::time::timeout(FIRST_WORDS, stream.peek(&mut first)).await.map_err(late)?? == 0 {
        return Ok(());
    }
    if first[0] != MAGIC[0] {
        return http::serve(peering.clone(), stream).await;
    }
    let hello = tokio::time::timeout(FIRST_WORDS, hello::read_hello(&mut stream)).await.map_err(late)??;
    let known = peering.members.contains_key(&hello.from);
    let verdict = hello.judge(peering.identity.cluster, peering.identity.member, known);
    tokio::time::timeout(FIRST_WORDS, hello::write_verdict(&mut stream, &verdict)).await.map_err(late)??;
    if let Verdict::Refused(why) = verdict {
        peering.say("refused a peer", &[("remote-peer-id", hex(hello.from)), ("reason", json!(why))]);
        return Ok(());
    }
    // It lives: dial it now, not at the end of the wait.
    if let Some(nudge) = peering.nudge.get(&hello.from) {
        nudge.notify_waiters();
    }
    let ended = receive(peering, &hello, stream).await;
    peering.core().intake().lost(hello.from);
    ended
}

async fn receive(peering: &Peering, hello: &Hello, stream: TcpStream) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(READ_BUFFER, reader);
    let received = peering.metrics().peer_received_bytes.with_label_values(&[peering.name(hello.from)]);
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer fell silent");
    loop {
        let got = tokio::time::timeout(SILENCE, wire::read(&mut reader, peering.max_frame)).await.map_err(silent)??;
        match got {
            Got::Frame { frame, bytes } => {
                received.inc_by(bytes);
                let urgent = frame::lane(&frame) == Lane::Urgent;
                while !urgent && peering.core().intake().peers_full() {
                    // The core is behind: the peer waits in its own socket.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if peering.core().intake().frame(hello.from, frame, bytes, urgent).is_err() {
                    return Ok(());
                }
            }
            Got::Ping(number) => tokio::io::AsyncWriteExt::write_all(&mut writer, &wire::pong(number)).await?,
            Got::Pong(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "a pong without a ping")),
        }
    }
}
