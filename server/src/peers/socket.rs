//! One connection between members, encrypted or not.

use crate::sockets::Stream;
use crate::tls::{Moving, Shaken};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

enum Kind {
    Plain(Stream),
    /// They called.
    Called(Box<Shaken>),
    /// We dialled.
    Dialled(Box<tokio_rustls::client::TlsStream<Moving>>),
}

/// A byte stream whose first byte may be looked at.
pub(crate) struct Socket {
    kind: Kind,
    first: Option<u8>,
}

impl From<Stream> for Socket {
    fn from(stream: Stream) -> Socket {
        Socket { kind: Kind::Plain(stream), first: None }
    }
}

impl From<Box<Shaken>> for Socket {
    fn from(stream: Box<Shaken>) -> Socket {
        Socket { kind: Kind::Called(stream), first: None }
    }
}

impl From<tokio_rustls::client::TlsStream<Moving>> for Socket {
    fn from(stream: tokio_rustls::client::TlsStream<Moving>) -> Socket {
        Socket { kind: Kind::Dialled(Box::new(stream)), first: None }
    }
}

impl Socket {
    /// The first byte, which stays to be read. To be asked before anything is read.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn first_byte(&mut self) -> io::Result<u8> {
        let first = self.read_u8().await?;
        self.first = Some(first);
        Ok(first)
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buf.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Kind::Called(stream) => Pin::new(stream).poll_read(cx, buf),
            Kind::Dialled(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Kind::Called(stream) => Pin::new(stream).poll_write(cx, buf),
            Kind::Dialled(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Called(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Dialled(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Called(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Dialled(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Kind::Called(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Kind::Dialled(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
