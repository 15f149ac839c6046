//! A gRPC client that hides nothing: one connection, bytes in, bytes or code
//! and text out, no retries.

use std::{fmt, net::IpAddr, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use client::codec::BytesCodec;
use futures_util::StreamExt;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    metadata::AsciiMetadataValue,
    transport::{Channel, Endpoint},
};
use wire::{Method, Rpc};

/// No answer of a healthy server takes longer.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// An error answer, as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: i32,
    pub text: String,
}

impl Failure {
    fn of(status: &Status) -> Failure {
        Failure { code: status.code() as i32, text: status.message().to_owned() }
    }

    fn patience() -> Failure {
        Failure { code: -1, text: format!("no answer within {PATIENCE:?}") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {} {:?}", self.code, self.text)
    }
}

impl std::error::Error for Failure {}

/// One connection to one server.
#[derive(Clone, Debug)]
pub struct Raw {
    channel: Channel,
    token: Option<AsciiMetadataValue>,
}

impl Raw {
    pub async fn connect(endpoint: &str) -> Result<Raw> {
        Raw::dial(endpoint, None).await
    }

    /// The same from this address.
    pub async fn connect_from(endpoint: &str, address: IpAddr) -> Result<Raw> {
        Raw::dial(endpoint, Some(address)).await
    }

    async fn dial(endpoint: &str, from: Option<IpAddr>) -> Result<Raw> {
        let channel = Endpoint::from_shared(format!("http://{endpoint}"))?
            .connect_timeout(Duration::from_secs(2))
            .http2_keep_alive_interval(Duration::from_secs(6))
            .keep_alive_timeout(Duration::from_secs(4))
            .tcp_nodelay(true)
            .local_address(from)
            .connect()
            .await
            .with_context(|| format!("connecting to {endpoint}"))?;
        Ok(Raw { channel, token: None })
    }

    /// The same connection for a caller with this token, or without one.
    pub fn with_token(&self, token: Option<&str>) -> Raw {
        // What cannot be sent is none.
        Raw { channel: self.channel.clone(), token: token.and_then(|token| token.parse().ok()) }
    }

    /// A unary method by its messages.
    pub async fn call<Req: Message, Resp: Message + Default>(&self, rpc: Rpc, request: &Req) -> Result<Resp, Failure> {
        let bytes = self.unary(Method::of(rpc).path, request.encode_to_vec().into()).await?;
        Resp::decode(bytes).map_err(|e| Failure { code: -2, text: format!("the answer cannot be read: {e}") })
    }

    /// A unary method by path and bytes.
    pub async fn unary(&self, path: &str, request: Bytes) -> Result<Bytes, Failure> {
        let path = PathAndQuery::try_from(path).map_err(|e| Failure { code: -3, text: e.to_string() })?;
        let mut grpc = self.grpc();
        let call = async {
            grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
            grpc.unary(self.request(request), path, BytesCodec).await
        };
        match timeout(PATIENCE, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Failure::of(&status)),
            Err(_) => Err(Failure::patience()),
        }
    }

    /// The first answer of a method that answers with a stream, or how the stream ended before one;
    /// then the caller goes.
    pub async fn first(&self, path: &'static str, request: Bytes) -> Result<Option<Bytes>, Failure> {
        let opened = self.open(path, futures_util::stream::iter([request]));
        match timeout(PATIENCE, async { opened.await?.message().await }).await {
            Ok(first) => first.map_err(|status| Failure::of(&status)),
            Err(_) => Err(Failure::patience()),
        }
    }

    /// All answers of a method that answers with a stream, and how it ended.
    pub async fn collect(&self, path: &'static str, request: Bytes) -> (Vec<Bytes>, Option<Failure>) {
        let mut answers = Vec::new();
        let opened = self.open(path, futures_util::stream::iter([request]));
        let work = async {
            let mut stream = opened.await?;
            while let Some(bytes) = stream.message().await? {
                answers.push(bytes);
            }
            Ok::<(), Status>(())
        };
        let end = match timeout(PATIENCE, work).await {
            Ok(Ok(())) => None,
            Ok(Err(status)) => Some(Failure::of(&status)),
            Err(_) => Some(Failure::patience()),
        };
        (answers, end)
    }

    /// Opens a stream both ways. What arrives is given to `receive`, the end
    /// too; after `None` nothing comes.
    pub fn bidi(
        &self,
        path: &'static str,
        mut receive: impl FnMut(Option<Result<Bytes, Failure>>) + Send + 'static,
    ) -> Bidi {
        let (send, mut requests) = mpsc::unbounded_channel::<Bytes>();
        let raw = self.clone();
        let task = tokio::spawn(async move {
            let requests = futures_util::stream::poll_fn(move |cx| requests.poll_recv(cx));
            let mut stream = match raw.open(path, requests).await {
                Ok(stream) => stream,
                Err(status) => {
                    receive(Some(Err(Failure::of(&status))));
                    receive(None);
                    return;
                }
            };
            while let Some(message) = stream.next().await {
                let message = message.map_err(|status| Failure::of(&status));
                let failed = message.is_err();
                receive(Some(message));
                if failed {
                    break;
                }
            }
            receive(None);
        });
        Bidi { send, task }
    }

    async fn open(
        &self,
        path: &'static str,
        requests: impl futures_util::Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Streaming<Bytes>, Status> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc.streaming(self.request(requests), path, BytesCodec).await?.into_inner())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }
}

/// A stream both ways; dropped, it is cancelled.
#[derive(Debug)]
pub struct Bidi {
    send: mpsc::UnboundedSender<Bytes>,
    task: tokio::task::JoinHandle<()>,
}

impl Bidi {
    /// Nothing happens if the stream has ended.
    pub fn send(&self, request: Bytes) {
        let _ = self.send.send(request);
    }
}

impl Drop for Bidi {
    fn drop(&mut self) {
        self.task.abort();
    }
}
