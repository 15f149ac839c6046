//! Watches that outlive the connection they are on.

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc::{Sender, channel};
use wire::{
    Rpc,
    etcdserverpb::{
        ResponseHeader, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
        watch_request::RequestUnion,
    },
};

use crate::{Batch, Client, Error, Responses, Result, resume::Resume};

/// Requests that wait to be sent on a stream; there is never more than one at a
/// time from us.
const QUEUE: usize = 4;

impl Client {
    /// Watches a key or a range. Nothing is sent before the first
    /// [`Watcher::next`].
    ///
    /// With `start_revision` 0 the watch begins when the server first hears of
    /// it.
    pub fn watch(&self, request: impl Into<WatchCreateRequest>) -> Watcher {
        Watcher {
            client: self.clone(),
            resume: Resume::new(request.into()),
            stream: None,
            failures: 0,
            renewed: false,
            header: ResponseHeader::default(),
        }
    }
}

/// A watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    client: Client,
    resume: Resume,
    stream: Option<Open>,
    /// In a row, since something came.
    failures: u32,
    /// Whether a token was got because of a refusal, since something came.
    renewed: bool,
    header: ResponseHeader,
}

#[derive(Debug)]
struct Open {
    requests: Sender<Bytes>,
    responses: Responses<WatchResponse>,
}

impl Watcher {
    /// Waits until the server has taken up the watch: what happens from now on
    /// will be delivered.
    ///
    /// # Errors
    /// As [`Watcher::next`].
    pub async fn ready(&mut self) -> Result<()> {
        while self.stream.is_none() {
            if let Err(error) = self.open().await {
                self.recover(error).await?;
            }
        }
        Ok(())
    }

    /// What happened next. When the connection fails the watch goes on
    /// elsewhere, for as long as it takes. It may be dropped while it waits:
    /// nothing is lost.
    ///
    /// # Errors
    /// [`Error::Compacted`] when what is to come next is gone,
    /// [`Error::Canceled`] or [`Error::Server`] when the server refuses the
    /// watch. Another call asks for the same again.
    pub async fn next(&mut self) -> Result<Batch> {
        loop {
            self.ready().await?;
            let open = self.stream.as_mut().expect("ready has opened it");
            let taken = match open.responses.next().await {
                Ok(Some(response)) => {
                    self.header = response.header.unwrap_or_default();
                    self.resume.take(response)
                }
                Ok(None) => Err(closed(open)),
                Err(error) => Err(error),
            };
            match taken {
                Ok(Some(batch)) => {
                    (self.failures, self.renewed) = (0, false);
                    return Ok(batch);
                }
                Ok(None) => {}
                Err(error) => self.recover(error).await?,
            }
        }
    }

    /// Asks the server how far it is. The answer is a [`Batch`] without
    /// events; none comes if the watch has not caught up or the connection
    /// fails before.
    pub async fn request_progress(&mut self) {
        if let Some(open) = &self.stream {
            // A stream that is gone will be seen by `next`.
            let _ = open.requests.send(encode(RequestUnion::ProgressRequest(WatchProgressRequest {}))).await;
        }
    }

    /// The header of the newest response, a refusal's too.
    pub fn header(&self) -> &ResponseHeader {
        &self.header
    }

    /// Opens a stream and reads until the watch is created on it.
    async fn open(&mut self) -> Result<()> {
        let (requests, mut queue) = channel(QUEUE);
        let queued = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
        let create = encode(RequestUnion::CreateRequest(self.resume.request()));
        requests.try_send(create).expect("the queue is empty");
        let responses = self.client.open(Rpc::Watch, queued).await?;
        let mut open = Open { requests, responses };
        let created = open.responses.next().await?.ok_or_else(|| closed(&open))?;
        self.header = created.header.unwrap_or_default();
        self.resume.take(created)?;
        self.stream = Some(open);
        Ok(())
    }

    /// Waits a little after a failure that may pass; gives back one that will
    /// not.
    async fn recover(&mut self, error: Error) -> Result<()> {
        self.stream = None;
        let token = &self.client.token;
        if error.wants_token() && token.renewable() && !self.renewed {
            let (_, life) = token.held();
            self.client.renew_token(life).await?;
            self.renewed = true;
            return Ok(());
        }
        if !error.passes() {
            return Err(error);
        }
        self.client.pause_longer(self.failures).await;
        self.failures = self.failures.saturating_add(1);
        Ok(())
    }
}

/// A server that ends the stream without a word is as good as gone.
fn closed(open: &Open) -> Error {
    Error::Lost { endpoint: open.responses.endpoint().to_owned(), reason: "the stream was closed".to_owned() }
}

fn encode(request: RequestUnion) -> Bytes {
    WatchRequest { request_union: Some(request) }.encode_to_vec().into()
}
