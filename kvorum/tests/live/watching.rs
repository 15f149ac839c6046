//! Watch streams as they are on the wire: nothing is resumed, joined or hidden.

use std::time::Duration;

use client::wire::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
    watch_request::RequestUnion,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::{Request, Status, Streaming, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

use super::PATIENCE;

/// How long a silence is listened to.
const SILENCE: Duration = Duration::from_millis(400);

/// One watch stream.
#[derive(Debug)]
pub struct Watching {
    requests: UnboundedSender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl Watching {
    /// Opens a stream and creates its first watch; answers of the server come with `next`.
    pub async fn open(endpoint: &str, first: WatchCreateRequest) -> Watching {
        let channel = Endpoint::from_shared(format!("http://{endpoint}")).expect("an address");
        let mut grpc = Grpc::new(channel.connect().await.expect("connects")).max_decoding_message_size(usize::MAX);
        let (requests, mut queue) = unbounded_channel();
        let queued = futures_util::stream::poll_fn(move |context| queue.poll_recv(context));
        // A server need not answer anything, not even headers, before it is asked.
        let first = WatchRequest { request_union: Some(RequestUnion::CreateRequest(first)) };
        requests.send(first).expect("the stream is there");
        grpc.ready().await.expect("ready");
        let path = http::uri::PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let responses = grpc.streaming(Request::new(queued), path, codec).await.expect("opens").into_inner();
        Watching { requests, responses }
    }

    fn send(&self, request: RequestUnion) {
        self.requests.send(WatchRequest { request_union: Some(request) }).expect("the stream is there");
    }

    pub fn create(&self, request: WatchCreateRequest) {
        self.send(RequestUnion::CreateRequest(request));
    }

    pub fn cancel(&self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id }));
    }

    pub fn ask_progress(&self) {
        self.send(RequestUnion::ProgressRequest(WatchProgressRequest {}));
    }

    /// The next response, which must come.
    pub async fn next(&mut self) -> WatchResponse {
        match self.within(PATIENCE).await {
            Some(Ok(response)) => response,
            Some(Err(status)) => panic!("the stream failed: {status}"),
            None => panic!("nothing came within {PATIENCE:?}"),
        }
    }

    /// Panics if anything comes for a while.
    pub async fn silent(&mut self) {
        if let Some(response) = self.within(SILENCE).await {
            panic!("came unasked: {response:?}");
        }
    }

    /// A response that is there or comes at once.
    pub async fn soon(&mut self) -> Option<WatchResponse> {
        let response = self.within(Duration::from_millis(20)).await?;
        Some(response.expect("the stream goes on"))
    }

    async fn within(&mut self, time: Duration) -> Option<Result<WatchResponse, Status>> {
        match tokio::time::timeout(time, self.responses.message()).await {
            Ok(Ok(Some(response))) => Some(Ok(response)),
            Ok(Ok(None)) => Some(Err(Status::aborted("the stream has ended"))),
            Ok(Err(status)) => Some(Err(status)),
            Err(_) => None,
        }
    }

    /// Events until there are this many, as (is it a delete, key, mod revision).
    pub async fn events(&mut self, count: usize) -> Vec<(bool, String, i64)> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let response = self.next().await;
            assert!(!response.canceled, "{response:?}");
            seen.extend(briefly(&response));
        }
        seen
    }
}

/// The events of a response as (is it a delete, key, mod revision).
pub fn briefly(response: &WatchResponse) -> Vec<(bool, String, i64)> {
    let one = |event: &client::wire::mvccpb::Event| {
        let kv = event.kv.clone().unwrap_or_default();
        (event.r#type == 1, String::from_utf8_lossy(&kv.key).into_owned(), kv.mod_revision)
    };
    response.events.iter().map(one).collect()
}
