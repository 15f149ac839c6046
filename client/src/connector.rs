//! One connection: a socket, encrypted or not, within its time.

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
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
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

/// Makes connections to one address.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub address: Address,
    pub handshake: Option<Arc<Handshake>>,
    pub dial_timeout: Duration,
}

impl Connector {
    async fn dial(self) -> io::Result<TokioIo<Box<dyn Wire>>> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {:?}", self.dial_timeout));
        let wire = timeout(self.dial_timeout, self.socket()).await.map_err(|_| late())??;
        Ok(TokioIo::new(wire))
    }

    async fn socket(&self) -> io::Result<Box<dyn Wire>> {
        match &self.address.target {
            Target::Tcp(host, port) => {
                let socket = TcpStream::connect((host.as_str(), *port)).await?;
                socket.set_nodelay(true)?;
                self.encrypt(socket).await
            }
            Target::Unix(path) => self.encrypt(UnixStream::connect(path).await?).await,
        }
    }

    async fn encrypt(&self, wire: impl Wire + 'static) -> io::Result<Box<dyn Wire>> {
        let Some(handshake) = &self.handshake else {
            return Ok(Box::new(wire));
        };
        let config = handshake.config().map_err(io::Error::other)?;
        let name = handshake.name(self.address.host()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, wire).await?))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Wire>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}
