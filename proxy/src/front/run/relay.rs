//! Copies bytes both ways between two connections until both are through, or nothing came for long.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// What is read at once.
const PIECE: usize = 32 << 10;

/// Who ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both said all that they had to say.
    Whole,
    /// The client's connection broke.
    Client,
    /// The server's connection broke.
    Server,
    /// Nothing came for too long.
    Idle,
}

/// Copies. `bytes`: from the client and to it, counted as they go; `idle`: how long nothing may
/// come.
pub(super) async fn both_ways(
    client: &mut TcpStream,
    server: &mut TcpStream,
    bytes: &[Cell<u64>; 2],
    idle: Option<Duration>,
) -> End {
    let last = Cell::new(Instant::now());
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = one_way(from_client, to_server, &bytes[0], &last);
    let down = one_way(from_server, to_client, &bytes[1], &last);
    let both = async {
        tokio::pin!(up, down);
        let (mut up_done, mut down_done) = (false, false);
        loop {
            tokio::select! {
                result = &mut up, if !up_done => match result {
                    Ok(()) => up_done = true,
                    Err(Broken::Reading) => return End::Client,
                    Err(Broken::Writing) => return End::Server,
                },
                result = &mut down, if !down_done => match result {
                    Ok(()) => down_done = true,
                    Err(Broken::Reading) => return End::Server,
                    Err(Broken::Writing) => return End::Client,
                },
            }
            if up_done && down_done {
                return End::Whole;
            }
        }
    };
    let silence = async {
        let Some(idle) = idle else { return std::future::pending().await };
        loop {
            let rest = idle.saturating_sub(last.get().elapsed());
            if rest.is_zero() {
                return;
            }
            tokio::time::sleep(rest).await;
        }
    };
    tokio::select! {
        end = both => end,
        () = silence => End::Idle,
    }
}

/// Which end of a way broke.
enum Broken {
    Reading,
    Writing,
}

async fn one_way(
    from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    count: &Cell<u64>,
    last: &Cell<Instant>,
) -> Result<(), Broken> {
    // A connection at rest has no buffer: it is made when something is there.
    loop {
        from.readable().await.map_err(|_| Broken::Reading)?;
        let mut buffer = vec![0; PIECE];
        loop {
            let read = match from.try_read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(Broken::Reading),
            };
            last.set(Instant::now());
            if read == 0 {
                let _ = to.shutdown().await;
                return Ok(());
            }
            to.write_all(&buffer[..read]).await.map_err(|_| Broken::Writing)?;
            count.set(count.get() + read as u64);
            last.set(Instant::now());
            if read < PIECE {
                break;
            }
        }
    }
}

/// Writes what comes before the copying.
pub(super) async fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await
}
