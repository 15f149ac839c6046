//! One request, one answer or many: where it is sent and when it is sent again.

use std::{future::Future, pin::Pin};

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
use wire::{
    Code, Kind, Method, Rpc,
    etcdserverpb::{AuthenticateRequest, AuthenticateResponse},
};

use crate::{Client, Credentials, Error, Result, codec::BytesCodec, endpoints::Connection};

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
        let mut patience = self.patience();
        loop {
            let generation = self.token.held().1;
            let error = match self.first(rpc, one()).await {
                Ok(responses) => return Ok(responses),
                Err(error) => error,
            };
            if !self.again(error.passes(), &error, generation, &mut patience).await? {
                return Err(error);
            }
        }
    }

    /// Opens a stream and waits for its first message: a server that refuses
    /// says so only then.
    async fn first<Resp: Message + Default>(
        &self,
        rpc: Rpc,
        requests: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Responses<Resp>> {
        let mut responses: Responses<Resp> = self.open(rpc, requests).await?;
        responses.first = Some(responses.receive().await?);
        Ok(responses)
    }

    /// Opens a stream on the endpoint in use, once.
    pub(crate) async fn open<Resp>(
        &self,
        rpc: Rpc,
        requests: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Responses<Resp>> {
        self.sign_in().await?;
        let connection = self.endpoints.connect().await?;
        let metadata = self.metadata()?;
        let mut request = Request::new(requests);
        *request.metadata_mut() = metadata;
        if self.options.require_leader && matches!(rpc, Rpc::Watch | Rpc::LeaseKeepAlive | Rpc::Observe) {
            request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        }
        let path = PathAndQuery::from_static(Method::of(rpc).path);
        let mut grpc = self.grpc(&connection);
        let opened = async {
            grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
            grpc.streaming(request, path, BytesCodec).await
        };
        match opened.await {
            Ok(response) => Ok(Responses {
                client: self.clone(),
                connection,
                first: None,
                stream: response.into_inner(),
                response: std::marker::PhantomData,
            }),
            Err(status) => Err(self.failed(&connection, &status)),
        }
    }

    async fn unary(&self, path: &str, request: Bytes) -> Result<(String, Bytes)> {
        let repeatable = wire::method_by_path(path).is_some_and(|m| is_read(m.rpc));
        let signed = wire::method_by_path(path).is_none_or(|m| m.rpc != Rpc::Authenticate);
        self.unary_with(path, request, repeatable, signed).await
    }

    async fn unary_with(&self, path: &str, request: Bytes, repeatable: bool, signed: bool) -> Result<(String, Bytes)> {
        let path: PathAndQuery = path
            .parse()
            .map_err(|e: http::uri::InvalidUri| Error::Endpoint { endpoint: path.to_owned(), reason: e.to_string() })?;
        self.check_size(request.len())?;
        let mut patience = self.patience();
        loop {
            if signed {
                match patience.deadline {
                    None => self.sign_in().await?,
                    Some(deadline) => timeout_at(deadline, self.sign_in())
                        .await
                        .map_err(|_| Error::Unreachable { reason: self.endpoints.why() })??,
                }
            }
            let generation = self.token.held().1;
            let error = match self.attempt(&path, &request, patience.deadline, signed).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let safe = error.passes() && (repeatable || !error.maybe_done());
            if !self.again(safe, &error, generation, &mut patience).await? {
                return Err(error);
            }
        }
    }

    /// Like [`Client::call`], for a write that may be done twice: it compares
    /// first, so that the second time changes nothing.
    pub(crate) async fn call_repeatable<Req: Message, Resp: Message + Default>(
        &self,
        rpc: Rpc,
        request: &Req,
    ) -> Result<Resp> {
        let bytes = request.encode_to_vec().into();
        let (address, bytes) = self.unary_with(Method::of(rpc).path, bytes, true, true).await?;
        decode(&address, bytes)
    }

    /// Asks for a token. (A request asks for one first, and this is a request:
    /// hence the box.)
    pub(crate) fn ask_for_token<'a>(
        &'a self,
        user: &'a Credentials,
    ) -> Pin<Box<dyn Future<Output = Result<String>> + Send + 'a>> {
        Box::pin(async move {
            let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
            let bytes = request.encode_to_vec().into();
            let (address, bytes) = self.unary_with(Method::of(Rpc::Authenticate).path, bytes, true, false).await?;
            Ok(decode::<AuthenticateResponse>(&address, bytes)?.token)
        })
    }

    async fn attempt(
        &self,
        path: &PathAndQuery,
        request: &Bytes,
        deadline: Option<Instant>,
        signed: bool,
    ) -> Result<(String, Bytes)> {
        let metadata = if signed { self.metadata()? } else { MetadataMap::new() };
        let connection = match deadline {
            Some(deadline) => match timeout_at(deadline, self.endpoints.connect()).await {
                Ok(connected) => connected?,
                Err(_) => {
                    return Err(Error::Unreachable { reason: self.endpoints.why() });
                }
            },
            None => self.endpoints.connect().await?,
        };
        let mut message = Request::new(request.clone());
        *message.metadata_mut() = metadata;
        let mut grpc = self.grpc(&connection);
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
            Ok(response) => {
                self.endpoints.well(&connection);
                Ok((connection.address, response.into_inner()))
            }
            Err(status) => Err(self.failed(&connection, &status)),
        }
    }

    /// After a failure: whether to try again. A token that is no longer taken
    /// is replaced; whatever else may pass is given a little time.
    async fn again(&self, safe: bool, error: &Error, generation: u64, patience: &mut Patience) -> Result<bool> {
        if error.wants_token() && self.token.renewable() && patience.tokens > 0 {
            patience.tokens -= 1;
            self.renew_token(generation).await?;
            return Ok(true);
        }
        Ok(safe && self.pause(patience.deadline).await)
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

    fn patience(&self) -> Patience {
        Patience { deadline: self.options.request_timeout.map(|timeout| Instant::now() + timeout), tokens: TOKENS }
    }

    /// Waits a little, longer after each failure in a row.
    pub(crate) async fn pause_longer(&self, failures: u32) {
        sleep(self.options.backoff * 2u32.pow(failures.min(5))).await;
    }

    /// Waits a little, if there is time for it before the deadline.
    pub(crate) async fn pause(&self, deadline: Option<Instant>) -> bool {
        let until = Instant::now() + self.options.backoff;
        if deadline.is_some_and(|deadline| deadline <= until) {
            return false;
        }
        sleep(self.options.backoff).await;
        true
    }

    fn metadata(&self) -> Result<MetadataMap> {
        let mut map = MetadataMap::new();
        let (token, _) = self.token.held();
        let token = token.as_deref().map(|token| ("token", token));
        let given = self.options.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in given.chain(token) {
            let bad = |reason: String| Error::Endpoint { endpoint: format!("metadata {name}"), reason };
            let key: AsciiMetadataKey = name.parse().map_err(|_| bad("not a metadata name".to_owned()))?;
            let value: AsciiMetadataValue = value.parse().map_err(|_| bad("not a metadata value".to_owned()))?;
            map.insert(key, value);
        }
        Ok(map)
    }

    /// A request that is too large for the server is not sent at all.
    fn check_size(&self, bytes: usize) -> Result<()> {
        let most = self.options.max_send_bytes;
        if bytes <= most {
            return Ok(());
        }
        let message = format!("trying to send message larger than max ({bytes} vs. {most})");
        Err(Error::Server { code: Code::ResourceExhausted, message })
    }

    fn grpc(&self, connection: &Connection) -> Grpc<tonic::transport::Channel> {
        Grpc::new(connection.channel.clone()).max_decoding_message_size(self.options.max_recv_bytes)
    }
}

/// How often a token is replaced under one request before its refusal counts.
const TOKENS: u32 = 2;

/// What one request may still cost.
struct Patience {
    deadline: Option<Instant>,
    tokens: u32,
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
    /// What has come and was not asked for yet.
    first: Option<Option<Resp>>,
    stream: Streaming<Bytes>,
    response: std::marker::PhantomData<fn() -> Resp>,
}

impl<Resp: Message + Default> Responses<Resp> {
    /// The next answer; `None` when the stream has ended well.
    ///
    /// # Errors
    /// See [`Error`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Option<Resp>> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Result<Option<Resp>> {
        match self.stream.message().await {
            Ok(Some(bytes)) => {
                self.client.endpoints.well(&self.connection);
                decode(&self.connection.address, bytes).map(Some)
            }
            Ok(None) => Ok(None),
            Err(status) => Err(self.client.failed(&self.connection, &status)),
        }
    }

    /// The endpoint that answers.
    pub fn endpoint(&self) -> &str {
        &self.connection.address
    }
}
