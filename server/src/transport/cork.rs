//! Joins what HTTP/2 writes piece by piece into few writes to the socket.
//!
//! h2 hands each DATA frame of 256 bytes or more to the socket by itself and flushes it, whatever
//! follows. A revision that a hundred watches of one connection see would be a hundred writes. Here
//! small writes are gathered while the connection's task is at work, and leave when it pauses
//! ([`Pauses`]). Large ones pass through, with what was gathered before them.
//!
//! A wake-up of the client's machine costs more than a copy: the frames of a large answer (16 KiB
//! is what clients allow) are gathered, too. What a full socket leaves here is charged to the
//! connection.

use crate::budgets::{Account, Hold, What};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Writes from this size on are not copied.
const LARGE: usize = 64 << 10;
/// Gathered bytes that are written without waiting for the pause.
const MOST: usize = 256 << 10;
/// The same while half of what all connections may hold is held.
const PRESSED: usize = 32 << 10;
/// Spare buffers kept, for all connections of a listener: few tasks are at work at one time.
const SPARES: usize = 8;

/// Buffers that no connection uses at the moment. A connection at rest has none.
#[derive(Clone, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spares {
    fn take(&self, room: usize) -> Vec<u8> {
        let spare = if room < MOST { None } else { lock(&self.0).pop() };
        spare.unwrap_or_else(|| Vec::with_capacity(room))
    }

    fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spares = lock(&self.0);
        if buffer.capacity() >= MOST && spares.len() < SPARES {
            spares.push(buffer);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Inner<S> {
    socket: S,
    spares: Spares,
    account: Arc<Account>,
    /// For the buffer, while the socket is full.
    hold: Option<Hold>,
    /// Gathered, and how much of it was written.
    gathered: Vec<u8>,
    written: usize,
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    fn waiting(&self) -> usize {
        self.gathered.len() - self.written
    }

    /// The socket is full.
    fn stuck<T>(&mut self) -> Poll<T> {
        if self.hold.is_none() && self.waiting() > 0 {
            self.hold = Some(self.account.hold(What::Unsent, self.gathered.capacity() as u64));
        }
        Poll::Pending
    }

    fn wrote(&mut self, count: usize) {
        self.written += count;
        if let Some(hold) = &mut self.hold {
            hold.less(count as u64);
        }
    }

    /// Writes all that was gathered.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.waiting() > 0 {
            match Pin::new(&mut self.socket).poll_write(cx, &self.gathered[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.wrote(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return self.stuck(),
            }
        }
        self.all_written();
        // TLS keeps what it has encrypted and the socket did not take.
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn all_written(&mut self) {
        self.written = 0;
        self.hold = None;
        if self.gathered.capacity() > 0 {
            self.spares.give(std::mem::take(&mut self.gathered));
        }
    }

    /// Writes `parts` behind what was gathered, in one go.
    fn poll_through(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let waiting = self.waiting();
            if waiting == 0 {
                return Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
            }
            let first = [IoSlice::new(&self.gathered[self.written..])];
            let all: Vec<IoSlice<'_>> = first.into_iter().chain(parts.iter().copied()).collect();
            let count = match Pin::new(&mut self.socket).poll_write_vectored(cx, &all) {
                Poll::Ready(wrote) => wrote?,
                Poll::Pending => return self.stuck(),
            };
            match count.checked_sub(waiting) {
                None if count == 0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                None => self.wrote(count),
                Some(taken) => {
                    self.all_written();
                    if taken > 0 {
                        return Poll::Ready(Ok(taken));
                    }
                }
            }
        }
    }

    fn poll_take(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len >= LARGE {
            return self.poll_through(cx, parts);
        }
        let most = if self.account.budgets().is_pressed() { PRESSED } else { MOST };
        if self.waiting() + len > most {
            std::task::ready!(self.poll_out(cx))?;
        }
        if self.gathered.capacity() == 0 {
            self.gathered = self.spares.take(most.max(len));
        }
        for part in parts {
            self.gathered.extend_from_slice(part);
        }
        Poll::Ready(Ok(len))
    }
}

/// A stream whose small writes wait until [`Pauses`] lets them go.
pub(crate) struct Cork<S>(Arc<Mutex<Inner<S>>>);

impl<S> Cork<S> {
    pub(crate) fn new(socket: S, spares: &Spares, account: &Arc<Account>) -> (Cork<S>, Pauses<S>) {
        let (spares, account) = (spares.clone(), account.clone());
        let inner = Inner { socket, spares, account, hold: None, gathered: Vec::new(), written: 0 };
        let inner = Arc::new(Mutex::new(inner));
        (Cork(inner.clone()), Pauses(inner))
    }
}

/// The other end of a [`Cork`].
pub(crate) struct Pauses<S>(Arc<Mutex<Inner<S>>>);

impl<S: AsyncWrite + Unpin> Pauses<S> {
    /// Runs `connection`, which writes to the cork: whenever it pauses or ends, what it wrote goes
    /// out.
    pub(crate) async fn run<F: Future>(&self, mut connection: Pin<&mut F>) -> F::Output {
        std::future::poll_fn(|cx| {
            let polled = connection.as_mut().poll(cx);
            // A write that fails is told to the connection by its next one, or by its next read.
            let _ = lock(&self.0).poll_out(cx);
            polled
        })
        .await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        lock(&self.0).poll_take(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).poll_take(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The pause of the connection's task is the flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        std::task::ready!(inner.poll_out(cx))?;
        Pin::new(&mut inner.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;

    /// A socket that takes so many bytes a write, then is full.
    #[derive(Default)]
    struct Socket {
        room: VecDeque<usize>,
        writes: Vec<Vec<u8>>,
    }

    impl AsyncWrite for Socket {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let Some(room) = self.room.pop_front() else { return Poll::Pending };
            let taken = buf.len().min(room);
            self.writes.push(buf[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let whole = bufs.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
            self.poll_write(cx, &whole)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn account() -> Arc<Account> {
        Account::new(&crate::budgets::Budgets::new(crate::budgets::Limits::default()))
    }

    fn writes(cork: &Cork<Socket>) -> Vec<usize> {
        lock(&cork.0).socket.writes.iter().map(Vec::len).collect()
    }

    fn room(cork: &Cork<Socket>, room: &[usize]) {
        lock(&cork.0).socket.room.extend(room);
    }

    fn write(cork: &mut Cork<Socket>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(cork).poll_write(&mut Context::from_waker(Waker::noop()), bytes)
    }

    fn pause(cork: &Cork<Socket>) {
        let (pauses, mut pending) = (Pauses(cork.0.clone()), std::future::pending::<()>());
        let mut running = std::pin::pin!(pauses.run(Pin::new(&mut pending)));
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn small_writes_go_out_together_when_the_task_pauses() {
        let spares = Spares::default();
        let (mut cork, _) = Cork::new(Socket::default(), &spares, &account());
        room(&cork, &[usize::MAX; 2]);
        for n in 0..10u8 {
            assert!(matches!(write(&mut cork, &[n; 1000]), Poll::Ready(Ok(1000))));
        }
        assert!(writes(&cork).is_empty());
        pause(&cork);
        assert_eq!(writes(&cork), [10_000]);
        assert_eq!(lock(&cork.0).socket.writes[0][9_999], 9);
        assert_eq!(lock(&cork.0).gathered.capacity(), 0, "a connection at rest holds no buffer");
        assert_eq!(lock(&spares.0).len(), 1);
        pause(&cork);
        assert_eq!(writes(&cork), [10_000]);
    }

    #[test]
    fn order_is_kept_through_large_writes_and_a_full_socket() {
        let (mut cork, _) = Cork::new(Socket::default(), &Spares::default(), &account());
        let held = |cork: &Cork<Socket>| lock(&cork.0).account.budgets().unsent.used();
        assert!(matches!(write(&mut cork, &[1; 100]), Poll::Ready(Ok(100))));
        assert_eq!(held(&cork), 0, "not charged while the socket takes it");
        assert!(write(&mut cork, &[2; LARGE]).is_pending(), "what came first must go first");
        assert_eq!(held(&cork), MOST as u64, "the buffer that a full socket leaves");
        room(&cork, &[60, 1040]);
        assert!(matches!(write(&mut cork, &[2; LARGE]), Poll::Ready(Ok(1000))), "the rest of the first and some");
        assert_eq!(held(&cork), 0);
        room(&cork, &[usize::MAX]);
        assert!(matches!(write(&mut cork, &[2; LARGE]), Poll::Ready(Ok(LARGE))));
        assert_eq!(writes(&cork), [60, 1040, LARGE]);
        room(&cork, &[]);
        for _ in 0..MOST / 1024 {
            assert!(write(&mut cork, &[3; 1024]).is_ready());
        }
        assert!(write(&mut cork, &[4; 1]).is_pending(), "no more than that is gathered");
        pause(&cork);
        room(&cork, &[usize::MAX; 3]);
        assert!(write(&mut cork, &[4; 1]).is_ready());
        let mut shut = || Pin::new(&mut cork).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        assert!(shut().is_ready(), "the last bytes go before the end");
        assert_eq!(writes(&cork), [60, 1040, LARGE, MOST, 1]);
    }

    #[test]
    fn little_is_gathered_while_all_connections_hold_much() {
        let account = account();
        let (mut cork, _) = Cork::new(Socket::default(), &Spares::default(), &account);
        let others = account.hold(What::Unsent, crate::budgets::Limits::default().unsent);
        for _ in 0..PRESSED / 1024 {
            assert!(write(&mut cork, &[1; 1024]).is_ready());
        }
        assert!(write(&mut cork, &[2; 1]).is_pending());
        assert_eq!(lock(&cork.0).gathered.capacity(), PRESSED);
        drop(others);
        assert!(write(&mut cork, &[2; 1]).is_ready());
    }
}
