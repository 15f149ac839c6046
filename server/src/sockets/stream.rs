//! Listeners and connections of either kind.

use super::keepalive;
use rustix::net::RecvFlags;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::net as unix;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Bound, and not yet served.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(std::net::TcpListener),
    Unix(unix::UnixListener),
}

impl Listener {
    /// # Errors
    /// The system has no room for another handle.
    pub(crate) fn try_clone(&self) -> io::Result<Listener> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
        })
    }

    /// For the runtime that is called from.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(crate) fn accepting(self) -> io::Result<Accepting> {
        Ok(match self {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Accepting::Tcp(TcpListener::from_std(listener)?)
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Accepting::Unix(UnixListener::from_std(listener)?)
            }
        })
    }
}

impl From<std::net::TcpListener> for Listener {
    fn from(listener: std::net::TcpListener) -> Listener {
        Listener::Tcp(listener)
    }
}

/// A listener that is served.
pub(crate) enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    /// The next connection, and who made it.
    ///
    /// # Errors
    /// The system's; the next one may come all the same.
    pub(crate) async fn accept(&self) -> io::Result<(Stream, OtherEnd)> {
        match self {
            Accepting::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Stream::Tcp(stream), OtherEnd::Tcp(from)))
            }
            Accepting::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let stream = Stream::Unix(stream);
                let other_end = stream.other_end()?;
                Ok((stream, other_end))
            }
        }
    }
}

/// Who is at the other end of a connection. Its text is etcd's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OtherEnd {
    Tcp(SocketAddr),
    /// A process of this user, on this machine.
    Unix {
        user: u32,
    },
}

impl fmt::Display for OtherEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherEnd::Tcp(address) => address.fmt(f),
            OtherEnd::Unix { .. } => f.write_str("@"),
        }
    }
}

impl OtherEnd {
    pub(crate) fn origin(&self) -> Origin {
        match self {
            OtherEnd::Tcp(address) => Origin::Host(address.ip()),
            OtherEnd::Unix { user } => Origin::User(*user),
        }
    }
}

/// Whose connections share places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Host(IpAddr),
    /// Of this machine.
    User(u32),
}

impl Origin {
    /// The source that it counts as. Whoever has one address of a network of IPv6 has 2^64 of them.
    pub(crate) fn source(self) -> Origin {
        let Origin::Host(address) = self else { return self };
        Origin::Host(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                Ipv6Addr::from(network).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Host(address) => address.fmt(f),
            Origin::User(user) => write!(f, "@ (user {user})"),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection that no runtime has.
pub(crate) enum StdStream {
    Tcp(std::net::TcpStream),
    Unix(unix::UnixStream),
}

impl Stream {
    /// What every connection is set to. A socket on which this fails is broken, which reading it
    /// will tell.
    pub(crate) fn prepare(&self) {
        if let Stream::Tcp(stream) = self {
            // Small answers must not wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            keepalive::enable(stream);
        }
    }

    /// # Errors
    /// It is broken.
    pub(crate) fn other_end(&self) -> io::Result<OtherEnd> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().map(OtherEnd::Tcp),
            Stream::Unix(stream) => Ok(OtherEnd::Unix { user: stream.peer_cred()?.uid() }),
        }
    }

    /// The first bytes, which stay to be read; 0: there will be none.
    ///
    /// # Errors
    /// It is broken.
    pub(crate) async fn peek(&self, first: &mut [u8]) -> io::Result<usize> {
        let stream = match self {
            Stream::Tcp(stream) => return stream.peek(first).await,
            Stream::Unix(stream) => stream,
        };
        loop {
            stream.readable().await?;
            let peeked = stream.try_io(Interest::READABLE, || {
                let (length, _) = rustix::net::recv(stream, &mut *first, RecvFlags::PEEK)?;
                Ok(length)
            });
            match peeked {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                peeked => return peeked,
            }
        }
    }

    /// Takes it from its runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn into_std(self) -> io::Result<StdStream> {
        Ok(match self {
            Stream::Tcp(stream) => StdStream::Tcp(stream.into_std()?),
            Stream::Unix(stream) => StdStream::Unix(stream.into_std()?),
        })
    }

    /// For the runtime that is called from.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn from_std(stream: StdStream) -> io::Result<Stream> {
        Ok(match stream {
            StdStream::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream)?),
            StdStream::Unix(stream) => Stream::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Tcp(stream)
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_source_and_a_mapped_address_is_the_old_one() {
        let shared = |text: &str| Origin::Host(text.parse().unwrap()).source();
        assert_eq!(shared("2001:db8::1"), shared("2001:db8::ffff:2"));
        assert_ne!(shared("2001:db8::1"), shared("2001:db8:0:1::1"));
        assert_eq!(shared("::ffff:10.0.0.1"), shared("10.0.0.1"));
    }
}
