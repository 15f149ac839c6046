//! One request, one answer or many: where it is sent and when it is sent again.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
};
use wire::{Kind, Method, Rpc};

use crate::{Client, Error, Result, codec::BytesCodec, endpoints::Connection};

/// Times, and what goes with every request.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For a connection to be made.
    pub connect_timeout: Duration,
    /// For a unary request, with everything that is done to get it answered.
    /// `None` waits for ever.
    pub timeout: Option<Duration>,
    /// How often a connection with calls under way is probed.
    pub ping_interval: Duration,
    /// How long a probe may take before the connection counts as lost.
    pub ping_timeout: Duration,
    /// Between one attempt and the next when no endpoint can be reached.
    pub backoff: Duration,
    /// Sent with every request, such as `("token", …)`. Names are lower-case.
    pub metadata: Vec<(String, String)>,
    /// Ask that streams end when the member they are on has no leader, so that
    /// they move on to one that has.
    pub require_leader: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connect_timeout: Duration::from_secs(2),
            timeout: Some(Duration::from_secs(10)),
            ping_interval: Duration::from_secs(6),
            ping_timeout: Duration::from_secs(3),
            backoff: Duration::from_millis(50),
            metadata: Vec::new(),
            require_leader: true,
        }
    }
}

impl Client {
    /// Calls a unary method. `Req` and `Resp` must be the method's own
    /// messages.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::maybe_done`] says what a write's failure means.
    pub async fn call<Req: Message, Resp: Message + Default>(&self, rpc: Rpc, request: &Req) -> Result<Resp> {
        let (address, bytes) = self.unary(Method::of(rpc).path, request.encode_to_vec().into()).await?;
        decode(&address, bytes)
    }

    /// Calls the unary method at any path, such as `/etcdserverpb.KV/Put`, with
    /// the bytes of its request; the answer is the bytes of its response.
    ///
    /// # Errors
    /// See [`Error`]. A path that is none is [`Error::Endpoint`].
    pub async fn raw(&self, path: &str, request: Bytes) -> Result<Bytes> {
        Ok(self.unary(path, request).await?.1)
    }

    /// Calls a method that answers with a stream. It is not resumed by itself
    /// when it breaks; its first connection is retried like a read.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn stream<Req: Message, Resp: Message + Default>(
        &self,
        rpc: Rpc,
        request: &Req,
    ) -> Result<Responses<Resp>> {
        assert_eq!(Method::of(rpc).kind, Kind::ServerStream, "{rpc:?} is called another way");
        let request = Bytes::from(request.encode_to_vec());
        let one = || futures_util::stream::iter([request.clone()]);
        let deadline = self.deadline();
        loop {
            match self.open(rpc, one()).await {
                Err(error) if error.passes() && self.pause(deadline).await => {}
                result => return result,
            }
        }
    }

    /// Opens a stream on the endpoint in use, once.
    pub(crate) async fn open<Resp>(
        &self,
        rpc: Rpc,
        requests: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Responses<Resp>> {
        let connection = self.endpoints.connect().await?;
        let mut request = Request::new(requests);
        *request.metadata_mut() = self.metadata()?;
        if self.settings.require_leader {
            request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        }
        let path = PathAndQuery::from_static(Method::of(rpc).path);
        let mut grpc = grpc(&connection);
        let opened = async {
            grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
            grpc.streaming(request, path, BytesCodec).await
        };
        match opened.await {
            Ok(response) => Ok(Responses {
                client: self.clone(),
                connection,
                stream: response.into_inner(),
                response: std::marker::PhantomData,
            }),
            Err(status) => Err(self.failed(&connection, &status)),
        }
    }

    async fn unary(&self, path: &str, request: Bytes) -> Result<(String, Bytes)> {
        let repeatable = wire::method_by_path(path).is_some_and(|m| is_read(m.rpc));
        let path: PathAndQuery = path
            .parse()
            .map_err(|e: http::uri::InvalidUri| Error::Endpoint { endpoint: path.to_owned(), reason: e.to_string() })?;
        let deadline = self.deadline();
        loop {
            let error = match self.attempt(&path, &request, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let again = matches!(error, Error::Unreachable { .. }) || (repeatable && error.passes());
            if !again || !self.pause(deadline).await {
                return Err(error);
            }
        }
    }

    async fn attempt(
        &self,
        path: &PathAndQuery,
        request: &Bytes,
        deadline: Option<Instant>,
    ) -> Result<(String, Bytes)> {
        let connection = match deadline {
            Some(deadline) => match timeout_at(deadline, self.endpoints.connect()).await {
                Ok(connected) => connected?,
                Err(_) => {
                    return Err(Error::Unreachable { reason: "time ran out while connecting".to_owned() });
                }
            },
            None => self.endpoints.connect().await?,
        };
        let mut message = Request::new(request.clone());
        *message.metadata_mut() = self.metadata()?;
        let mut grpc = grpc(&connection);
        let answer = async {
            grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
            grpc.unary(message, path.clone(), BytesCodec).await
        };
        let answered = match deadline {
            None => answer.await,
            Some(deadline) => match timeout_at(deadline, answer).await {
                Ok(answered) => answered,
                Err(_) => {
                    // It may hang: whoever comes next should not wait for it.
                    self.endpoints.broken(&connection);
                    return Err(Error::Timeout { endpoint: connection.address });
                }
            },
        };
        match answered {
            Ok(response) => Ok((connection.address, response.into_inner())),
            Err(status) => Err(self.failed(&connection, &status)),
        }
    }

    /// Names the failure, and moves on to another endpoint if that may help.
    fn failed(&self, connection: &Connection, status: &Status) -> Error {
        let error = Error::from_status(&connection.address, status);
        match error {
            Error::Lost { .. } | Error::Unreachable { .. } => self.endpoints.broken(connection),
            _ if error.passes() => self.endpoints.avoid(connection),
            _ => {}
        }
        error
    }

    fn deadline(&self) -> Option<Instant> {
        self.settings.timeout.map(|timeout| Instant::now() + timeout)
    }

    /// Waits a little, if there is time for it before the deadline.
    pub(crate) async fn pause(&self, deadline: Option<Instant>) -> bool {
        let until = Instant::now() + self.settings.backoff;
        if deadline.is_some_and(|deadline| deadline <= until) {
            return false;
        }
        sleep(self.settings.backoff).await;
        true
    }

    fn metadata(&self) -> Result<MetadataMap> {
        let mut map = MetadataMap::new();
        for (name, value) in &self.settings.metadata {
            let bad = |reason: String| Error::Endpoint { endpoint: format!("metadata {name}"), reason };
            let key: AsciiMetadataKey = name.parse().map_err(|_| bad("not a metadata name".to_owned()))?;
            let value: AsciiMetadataValue = value.parse().map_err(|_| bad("not a metadata value".to_owned()))?;
            map.insert(key, value);
        }
        Ok(map)
    }
}

fn grpc(connection: &Connection) -> Grpc<tonic::transport::Channel> {
    // A server bounds what it sends by its own rules.
    Grpc::new(connection.channel.clone()).max_decoding_message_size(usize::MAX)
}

pub(crate) fn decode<Resp: Message + Default>(endpoint: &str, bytes: Bytes) -> Result<Resp> {
    Resp::decode(bytes).map_err(|e| Error::Malformed { endpoint: endpoint.to_owned(), reason: e.to_string() })
}

/// The methods that change nothing: to repeat one is safe.
fn is_read(rpc: Rpc) -> bool {
    matches!(
        rpc,
        Rpc::Range
            | Rpc::LeaseTimeToLive
            | Rpc::LeaseLeases
            | Rpc::MemberList
            | Rpc::Status
            | Rpc::Hash
            | Rpc::HashKV
            | Rpc::AuthStatus
            | Rpc::UserGet
            | Rpc::UserList
            | Rpc::RoleGet
            | Rpc::RoleList
            | Rpc::Leader
            | Rpc::HealthCheck
            | Rpc::HealthList
    )
}

/// The answers of a stream. Dropping it ends the stream.
#[derive(Debug)]
pub struct Responses<Resp> {
    client: Client,
    connection: Connection,
    stream: Streaming<Bytes>,
    response: std::marker::PhantomData<fn() -> Resp>,
}

impl<Resp: Message + Default> Responses<Resp> {
    /// The next answer; `None` when the stream has ended well.
    ///
    /// # Errors
    /// See [`Error`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Option<Resp>> {
        match self.stream.message().await {
            Ok(Some(bytes)) => decode(&self.connection.address, bytes).map(Some),
            Ok(None) => Ok(None),
            Err(status) => Err(self.client.failed(&self.connection, &status)),
        }
    }

    /// The endpoint that answers.
    pub fn endpoint(&self) -> &str {
        &self.connection.address
    }
}
