//! One connection: a socket, encrypted or not, within its time, with somebody
//! at the other end.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::oneshot,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::{
    address::{Address, Target},
    tls::Handshake,
};

/// A socket, or what encrypts one.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// How connections to one address are made.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub address: Address,
    pub handshake: Option<Arc<Handshake>>,
    pub dial_timeout: Duration,
}

impl Dialer {
    /// For one connection, and the news of whether the server is there: it
    /// speaks first, so a request that is sent only then has a reader.
    pub(crate) fn connector(&self) -> (Connector, oneshot::Receiver<io::Result<()>>) {
        let (tell, heard) = oneshot::channel();
        (Connector { dialer: self.clone(), tell: Some(tell) }, heard)
    }

    async fn dial(self, tell: oneshot::Sender<io::Result<()>>) -> io::Result<TokioIo<Box<dyn Wire>>> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {:?}", self.dial_timeout));
        let wire = timeout(self.dial_timeout, self.socket("h2")).await.map_err(|_| late())??;
        Ok(TokioIo::new(Box::new(Heard { wire, tell: Some(tell) })))
    }

    /// A connection for whoever speaks `protocol`, ALPN's name of it.
    pub(crate) async fn socket(&self, protocol: &str) -> io::Result<Box<dyn Wire>> {
        match &self.address.target {
            Target::Tcp(host, port) => {
                let socket = TcpStream::connect((host.as_str(), *port)).await?;
                socket.set_nodelay(true)?;
                self.encrypt(socket, protocol).await
            }
            Target::Nowhere(reason) => Err(io::Error::other(reason.clone())),
            Target::Unix(path) => self.encrypt(UnixStream::connect(path).await?, protocol).await,
        }
    }

    async fn encrypt(&self, wire: impl Wire + 'static, protocol: &str) -> io::Result<Box<dyn Wire>> {
        let Some(handshake) = &self.handshake else {
            return Ok(Box::new(wire));
        };
        let mut config = handshake.config().map_err(io::Error::other)?;
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = handshake.name(self.address.host()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, wire).await?))
    }
}

/// Makes one connection. A second one would be used without waiting for the
/// server, so it is refused, and whoever asked dials anew.
#[derive(Debug)]
pub(crate) struct Connector {
    dialer: Dialer,
    tell: Option<oneshot::Sender<io::Result<()>>>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Wire>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = self.dialer.clone();
        match self.tell.take() {
            Some(tell) => Box::pin(dialer.dial(tell)),
            None => Box::pin(async { Err(io::Error::new(io::ErrorKind::ConnectionReset, "the connection has ended")) }),
        }
    }
}

/// Tells when the first byte has come, or that none will.
struct Heard {
    wire: Box<dyn Wire>,
    tell: Option<oneshot::Sender<io::Result<()>>>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.wire).poll_read(context, buffer);
        if let Poll::Ready(read) = &polled
            && let Some(tell) = self.tell.take()
        {
            let heard = match read {
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                Ok(()) if buffer.filled().len() == before => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(()) => Ok(()),
            };
            // Nobody waits any more if the time is over.
            let _ = tell.send(heard);
        }
        polled
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(context)
    }
}
