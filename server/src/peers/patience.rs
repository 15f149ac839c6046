//! How long a line may be silent. A long frame on a slow link takes minutes, and no ping passes it:
//! as long as bytes come, the line lives, and the other side is told so.

use super::wire;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// How long a member may say nothing at all; it pings every second.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// How often the sender of a long frame hears that it arrives.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Bytes that came on a line.
#[derive(Clone, Default)]
pub(super) struct Came(Arc<AtomicU64>);

impl Came {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts the bytes that are read.
pub(super) struct Counted<R> {
    pub(super) inner: R,
    pub(super) came: Came,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.came.0.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

/// What `read` gives. While it takes long and bytes come, `writer` tells the sender every second;
/// while none come, it is waited for [`SILENCE`]. `pause` is a second.
///
/// # Errors
/// Those of `read` and of the writer; [`io::ErrorKind::TimedOut`] after a silence.
pub(super) async fn patiently<T>(
    read: impl Future<Output = io::Result<T>>,
    came: &Came,
    writer: &mut (impl AsyncWrite + Unpin),
    mut pause: impl AsyncFnMut(),
) -> io::Result<T> {
    let mut read = std::pin::pin!(read);
    let (mut seen, mut silent) = (came.now(), Duration::ZERO);
    while silent < SILENCE {
        tokio::select! {
            biased;
            done = &mut read => return done,
            () = pause() => {}
        }
        silent += TOLD_EVERY;
        if came.now() != seen {
            (seen, silent) = (came.now(), Duration::ZERO);
            tell(writer, &wire::pong(wire::ARRIVES)).await?;
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the peer fell silent"))
}

/// [`TOLD_EVERY`].
pub(super) async fn a_second() {
    tokio::time::sleep(TOLD_EVERY).await;
}

/// Writes something short, and does not wait for ever.
///
/// # Errors
/// Those of the writer; [`io::ErrorKind::TimedOut`] if nobody reads.
pub(super) async fn tell(writer: &mut (impl AsyncWrite + Unpin), short: &[u8]) -> io::Result<()> {
    let write = async {
        writer.write_all(short).await?;
        writer.flush().await
    };
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer reads no answers");
    timeout(SILENCE, write).await.map_err(silent)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::{Budgets, Limits};
    use node::frame::Frame;
    use tokio::io::duplex;

    /// A frame comes two bytes at a time, in every so many pauses. What was read, and how often the
    /// sender heard that it arrives.
    async fn trickled(pauses: u64) -> (io::Result<wire::Got>, u64) {
        let frame = Frame::ReadIndex { boot: 1 << 40, token: 1 << 50 };
        let bytes = wire::encode(&frame, 1 << 20).expect("short");
        let ((mut sends, reads), (mut hears, mut tells)) = (duplex(64), duplex(1 << 10));
        let (came, budgets) = (Came::default(), Budgets::new(Limits::default()));
        let mut reads = Counted { inner: reads, came: came.clone() };
        let (mut passed, mut pieces) = (0, bytes.chunks(2));
        let pause = async || {
            passed += 1;
            if passed % pauses == 0
                && let Some(piece) = pieces.next()
            {
                sends.write_all(piece).await.expect("it is read");
            }
            tokio::task::yield_now().await;
        };
        let got = patiently(wire::read(&mut reads, 1 << 20, &budgets), &came, &mut tells, pause).await;
        drop(tells);
        let mut pongs = 0;
        while let Ok(wire::Got::Pong(wire::ARRIVES)) = wire::read(&mut hears, wire::SHORT, &budgets).await {
            pongs += 1;
        }
        (got, pongs)
    }

    #[tokio::test]
    async fn a_frame_that_comes_slowly_is_waited_for_and_one_that_stops_is_not() {
        let silence = SILENCE.as_secs();
        for pauses in [1, silence / 2, silence - 1] {
            let (got, pongs) = trickled(pauses).await;
            assert!(matches!(got, Ok(wire::Got::Frame { .. })), "{pauses}: {got:?}");
            assert!(pongs >= 8, "the sender heard {pongs} times that it arrives");
        }
        let (got, pongs) = trickled(silence + 1).await;
        assert_eq!((got.expect_err("silent").kind(), pongs), (io::ErrorKind::TimedOut, 0));
    }
}
