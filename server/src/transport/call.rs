//! One call: who asks, what was sent along, the requests coming in, the reply going out.

use super::frames::Unframer;
use super::gzip::Inflate;
use super::methods::{Method, Methods};
use super::reply::Reply;
use super::seats::Seats;
use super::status::{self, Status};
use crate::budgets::{Account, Budget, Part};
use crate::core::{Answered, Core};
use crate::log;
use crate::metrics::{Calls, Metrics};
use crate::passwords::Passwords;
use crate::sockets::{Origin, OtherEnd};
use crate::tls::Secured;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use node::{Answer, Request, Who};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::protobuf;
use tokio::time::Instant;
use wire::Code;

/// What gRPC allows a message to be longer than a command: etcd adds 512 KiB.
const MESSAGE_OVERHEAD: u64 = 512 << 10;

/// Of an answer with very many fields so much is written at once. Bytes.
const PIECE: usize = 32 << 10;

/// The client edge of one member. Cheap to clone; one per process, [`Edge::on`] per runtime.
#[derive(Clone)]
pub(crate) struct Edge {
    core: Core,
    shared: Arc<Shared>,
    /// What the connection holds of the bytes that are read and not sent.
    account: Arc<Account>,
    /// None: the connection is not encrypted.
    secured: Option<Secured>,
    /// Whose connection it is; None: nobody's.
    remote: Option<OtherEnd>,
}

struct Shared {
    methods: Methods,
    metrics: Metrics,
    passwords: Passwords,
    leases: AtomicU64,
    seats: Arc<Seats>,
    said: log::Seldom,
}

impl Edge {
    /// Registers the metrics of the member in the core's registry: once per process.
    pub(crate) fn new(core: Core) -> Edge {
        let methods = Methods::new();
        let metrics = Metrics::new(core.metrics(), &methods, core.settings(), core.member());
        let leases = AtomicU64::new(core.settings().seed);
        let account = Account::new(core.budgets());
        let passwords = Passwords::new(core.settings().bcrypt_cost);
        let (seats, said) = (Seats::new(core.budgets().limits.connections), log::Seldom::default());
        let shared = Arc::new(Shared { methods, metrics, passwords, leases, seats, said });
        Edge { core, shared, account, secured: None, remote: None }
    }

    /// The same edge on another connection runtime.
    pub(crate) fn on(&self, core: Core) -> Edge {
        Edge { core, ..self.clone() }
    }

    /// The same edge for one more connection. `secured`: what its handshake said; None if it had
    /// none.
    pub(crate) fn for_connection(&self, secured: Option<Secured>) -> Edge {
        Edge { account: Account::of_source(self.core.budgets(), self.source()), secured, ..self.clone() }
    }

    /// The same edge for this caller.
    pub(crate) fn at(&self, remote: OtherEnd) -> Edge {
        Edge { remote: Some(remote), ..self.clone() }
    }

    /// Who calls.
    pub(crate) fn remote(&self) -> Option<OtherEnd> {
        self.remote
    }

    /// Where the caller is.
    pub(crate) fn source(&self) -> Option<Origin> {
        self.remote.map(|remote| remote.origin())
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_secured(&self) -> bool {
        self.secured.is_some()
    }

    /// The CN of the certificate that the client showed and that was verified. etcd takes it for a
    /// user's name with `--client-cert-auth` alone, and never from the JSON gateway.
    pub(crate) fn common_name(&self) -> Option<&Arc<str>> {
        self.secured.as_ref().and_then(|secured| secured.common_name.as_ref())
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn methods(&self) -> &Methods {
        &self.shared.methods
    }

    /// The numbers of this member, for whoever has some to add.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Places for connections of clients.
    pub(crate) fn seats(&self) -> &Arc<Seats> {
        &self.shared.seats
    }

    /// At most one line a minute for each different text.
    pub(crate) fn say(&self, text: &str, fields: log::Fields) {
        if self.shared.said.due(format!("{text} {fields:?}")) {
            log::warn(text, fields);
        }
    }

    pub(crate) fn passwords(&self) -> &Passwords {
        &self.shared.passwords
    }

    pub(crate) fn calls(&self, method: &Method) -> &Calls {
        &self.shared.metrics.calls[method.index]
    }

    /// Largest message a client may send.
    pub(crate) fn largest_message(&self) -> u64 {
        self.core.settings().max_request_bytes.saturating_add(MESSAGE_OVERHEAD)
    }

    /// A lease id nobody has chosen: positive, spread over all of int64.
    pub(crate) fn lease_id(&self) -> i64 {
        loop {
            let drawn = self.shared.leases.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = mix(drawn ^ self.core.member().rotate_left(32));
            let id = i64::try_from(mixed >> 1).expect("63 bits");
            if id != 0 {
                return id;
            }
        }
    }

    /// `ResponseHeader` as field 1 of an answer. `revision` 0 is left out.
    pub(crate) fn put_header(&self, out: &mut Vec<u8>, revision: i64, term: u64) {
        let mut header = Vec::with_capacity(40);
        protobuf::write_varint(&mut header, 1, self.core.cluster());
        protobuf::write_varint(&mut header, 2, self.core.member());
        protobuf::write_int(&mut header, 3, revision);
        protobuf::write_varint(&mut header, 4, term);
        protobuf::write_message(out, 1, &header);
    }
}

/// Spreads the bits of a counter (the finaliser of splitmix64): a bijection, so no id comes twice.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a call costs while it is open, beside what it says: its stream, headers, handler. Bytes.
const OPEN_CALL: u64 = 12 << 10;

/// Charges a call for as long as it is open, and the source that it is from.
pub(crate) struct OpenCall(Arc<Account>);

impl OpenCall {
    /// # Errors
    /// There are as many as memory bears, or as this source may have.
    pub(crate) fn take(edge: &Edge) -> Result<OpenCall, Status> {
        let account = &edge.account;
        match account.budgets().calls.try_share(&account.source().calls, OPEN_CALL) {
            true => Ok(OpenCall(account.clone())),
            false => Err(status::TOO_MANY_REQUESTS),
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.budgets().calls.give_share(&self.0.source().calls, OPEN_CALL);
    }
}

/// Counts how a call ended; one that is dropped was cancelled by its client.
pub(crate) struct Tally {
    shared: Arc<Shared>,
    index: usize,
    begun: std::time::Instant,
    ended: bool,
    /// Goes when the call does.
    _open: OpenCall,
}

impl Tally {
    pub(crate) fn new(edge: &Edge, method: &Method, open: OpenCall) -> Tally {
        let (shared, begun) = (edge.shared.clone(), std::time::Instant::now());
        Tally { shared, index: method.index, begun, ended: false, _open: open }
    }

    pub(crate) fn end(&mut self, result: &Result<(), Status>) {
        self.ended_with(result.as_ref().err().map_or(Code::Ok, |status| status.code));
    }

    fn ended_with(&mut self, code: Code) {
        self.ended = true;
        let calls = &self.shared.metrics.calls[self.index];
        calls.handled(code).inc();
        if let Some(seconds) = &calls.seconds {
            seconds.observe(self.begun.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if !self.ended {
            self.ended_with(Code::Canceled);
        }
    }
}

/// Bytes held by one request that is not whole yet.
struct Held {
    account: Arc<Account>,
    json: bool,
    bytes: usize,
}

impl Held {
    fn budget(&self) -> (&Budget, &Part) {
        let (budgets, source) = (self.account.budgets(), self.account.source());
        match self.json {
            true => (&budgets.json_requests, &source.json_requests),
            false => (&budgets.inbound, &source.inbound),
        }
    }

    fn set(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes == self.bytes {
            return Ok(());
        }
        let (budget, part) = self.budget();
        match bytes.checked_sub(self.bytes) {
            Some(more) if !budget.try_share(part, more as u64) => return Err(status::TOO_MANY_REQUESTS),
            Some(_) => {}
            None => budget.give_share(part, (self.bytes - bytes) as u64),
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (budget, part) = self.budget();
        budget.give_share(part, self.bytes as u64);
    }
}

enum Source {
    Grpc(Unframer),
    /// JSON objects, one after another.
    JsonLines(Box<Lines>),
    /// JSON: one object, or nothing at all.
    Json,
    Over,
}

/// What has come of the objects of a stream.
#[derive(Default)]
struct Lines {
    requests: wire::json::Requests,
    arrived: Vec<u8>,
    /// So many bytes of it were taken: they go when more comes.
    taken: usize,
    ended: bool,
}

/// The messages of a client, as protobuf bytes, whichever way they came.
pub(crate) struct Requests {
    edge: Edge,
    body: Incoming,
    source: Source,
    method: &'static wire::Method,
    limit: u64,
    held: Held,
    /// A message that is being unpacked.
    inflating: Option<Box<Inflate>>,
}

impl Requests {
    /// `packed`: messages may be in gzip.
    pub(crate) fn grpc(edge: &Edge, method: &Method, body: Incoming, packed: bool) -> Requests {
        let limit = edge.largest_message();
        let unframer = if packed { Unframer::of_packed(limit) } else { Unframer::new(limit) };
        Requests::new(edge, method, body, Source::Grpc(unframer))
    }

    /// The JSON gateway; streams take any number of objects.
    pub(crate) fn json(edge: &Edge, method: &Method, body: Incoming) -> Requests {
        let source = match method.is_unary() {
            true => Source::Json,
            false => Source::JsonLines(Box::default()),
        };
        Requests::new(edge, method, body, source)
    }

    fn new(edge: &Edge, method: &Method, body: Incoming, source: Source) -> Requests {
        let held = Held { account: edge.account.clone(), json: !matches!(source, Source::Grpc(_)), bytes: 0 };
        let limit = edge.largest_message();
        Requests { edge: edge.clone(), body, source, method: method.wire, limit, held, inflating: None }
    }

    /// Over gRPC.
    fn is_framed(&self) -> bool {
        !self.held.json
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Status> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|_| Status::new(Code::Canceled, "context canceled"))?;
            if let Ok(data) = frame.into_data() {
                self.edge.metrics().client_received_bytes.inc_by(data.len() as u64);
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The next message; None when the client has said it is done.
    /// Safe to drop between two messages only when nothing else is lost with it:
    /// what arrived stays with `self`, so a dropped call may simply be made again.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let message = match &mut self.source {
            Source::Grpc(_) => self.next_framed().await?,
            Source::JsonLines(_) => self.next_line().await?,
            Source::Json => Some(self.whole_json().await?),
            Source::Over => None,
        };
        if message.is_none() {
            self.source = Source::Over;
        }
        Ok(message)
    }

    async fn next_framed(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(inflate) = &mut self.inflating {
                let message = inflate.step()?;
                self.held.set(message.as_ref().map_or(inflate.kept(), |_| 0))?;
                if message.is_some() {
                    self.inflating = None;
                    return Ok(message);
                }
                // The others of this thread have their turn.
                tokio::task::yield_now().await;
                continue;
            }
            let Source::Grpc(unframer) = &mut self.source else { return Ok(None) };
            let message = unframer.next_message()?;
            self.held.set(unframer.kept())?;
            match message {
                Some(message) if unframer.is_packed() => {
                    self.inflating = Some(Box::new(Inflate::new(message, self.limit)));
                    continue;
                }
                Some(_) => return Ok(message),
                None => {}
            }
            let piece = self.piece().await?;
            let Source::Grpc(unframer) = &mut self.source else { return Ok(None) };
            match piece {
                Some(piece) => unframer.push(piece),
                None => return unframer.end().map(|()| None),
            }
        }
    }

    async fn next_line(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let limit = self.json_limit();
            let Source::JsonLines(lines) = &mut self.source else { return Ok(None) };
            let Lines { requests, arrived, taken, ended } = &mut **lines;
            // What cannot be read ends the client's side, as etcd's gateway has it: the answers to
            // what it said before still come.
            let Ok(next) = requests.next(self.method, &arrived[*taken..], *ended) else { return Ok(None) };
            match next {
                Some((message, used)) => {
                    *taken += used;
                    return self.checked(message).map(Some);
                }
                None if *ended => return Ok(None),
                None => {}
            }
            arrived.drain(..std::mem::take(taken));
            self.held.set(arrived.len())?;
            if arrived.len() as u64 > limit {
                return Err(too_large(arrived.len() as u64, self.limit));
            }
            let piece = self.piece().await?;
            let Source::JsonLines(lines) = &mut self.source else { return Ok(None) };
            match piece {
                Some(piece) => lines.arrived.extend_from_slice(&piece),
                None => lines.ended = true,
            }
        }
    }

    async fn whole_json(&mut self) -> Result<Bytes, Status> {
        let limit = self.json_limit();
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await? {
            whole.extend_from_slice(&piece);
            self.held.set(whole.len())?;
            if whole.len() as u64 > limit {
                return Err(too_large(whole.len() as u64, self.limit));
            }
        }
        let message = wire::json_to_request(self.method, &whole).map_err(bad_json)?;
        self.source = Source::Over;
        self.checked(message)
    }

    /// Base64 and quotes take more room than what they say.
    fn json_limit(&self) -> u64 {
        self.limit.saturating_mul(2)
    }

    fn checked(&self, message: Bytes) -> Result<Bytes, Status> {
        match message.len() as u64 > self.limit {
            true => Err(too_large(message.len() as u64, self.limit)),
            false => Ok(message),
        }
    }
}

fn bad_json(error: wire::JsonError) -> Status {
    Status::with(Code::InvalidArgument, error.0)
}

fn too_large(len: u64, limit: u64) -> Status {
    Status::with(Code::ResourceExhausted, format!("grpc: received message larger than max ({len} vs. {limit})"))
}

/// As grpc-go words it.
const CUT: Status = Status::new(Code::Internal, "unexpected EOF");
const NONE_AT_ALL: Status =
    Status::new(Code::Internal, "cardinality violation: received no request message from non-client-streaming RPC");
const MORE_THAN_ONE: Status = Status::new(
    Code::Internal,
    "cardinality violation: received multiple request messages for non-client-streaming RPC",
);

/// One call on its way through a handler.
pub(crate) struct Call {
    pub(crate) edge: Edge,
    pub(crate) who: Who,
    /// The client wants an error rather than to wait for a leader.
    pub(crate) wants_leader: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) requests: Requests,
    pub(crate) reply: Reply,
    pub(crate) received: prometheus::IntCounter,
    pub(crate) tally: Tally,
    pub(crate) seen: Seen,
}

/// What a call has seen so far, for the log.
#[derive(Default)]
pub(crate) struct Seen {
    /// The one request of a unary call.
    request: Bytes,
    /// Microseconds until the core's last answer; 0: there is none.
    worked: AtomicU64,
    /// Keys found or deleted.
    found: u64,
    /// It is a transaction that changes nothing.
    reads_only: bool,
}

impl Call {
    /// The one request of a unary call, once it was read.
    pub(crate) fn said(&self) -> &Bytes {
        &self.seen.request
    }

    /// Keys found or deleted.
    pub(crate) fn found(&self) -> i64 {
        i64::try_from(self.seen.found).unwrap_or(i64::MAX)
    }

    /// It is a transaction that changes nothing.
    pub(crate) fn reads_only(&self) -> bool {
        self.seen.reads_only
    }

    pub(crate) fn set_reads_only(&mut self, reads_only: bool) {
        self.seen.reads_only = reads_only;
    }

    /// Place of the method in [`Methods`].
    pub(crate) fn index(&self) -> usize {
        self.tally.index
    }

    pub(crate) fn set_found(&mut self, found: u64) {
        self.seen.found = found;
    }

    /// How long it took until there was an answer, without what sending it takes.
    pub(crate) fn worked(&self) -> Duration {
        match self.seen.worked.load(Ordering::Relaxed) {
            0 => self.tally.begun.elapsed(),
            micros => Duration::from_micros(micros),
        }
    }

    fn note(&self, answered: Answered) -> Answered {
        let micros = u64::try_from(self.tally.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.seen.worked.store(micros.max(1), Ordering::Relaxed);
        answered
    }

    pub(crate) fn core(&self) -> &Core {
        self.edge.core()
    }

    /// The one request of a call that is not a stream of them.
    pub(crate) async fn request(&mut self) -> Result<Bytes, Status> {
        let unary = self.requests.method.kind == wire::Kind::Unary;
        let first = self.next().await.map_err(|status| match unary && status == CUT {
            true => Status { code: Code::Unknown, ..status },
            false => status,
        })?;
        if let Some(message) = first.as_ref().filter(|_| unary) {
            // The handler keeps it as long.
            self.seen.request = message.clone();
        }
        match first {
            Some(message) if unary || !self.requests.is_framed() => Ok(message),
            // The one request of a stream of answers must be seen to be the only one.
            Some(message) => match self.next().await? {
                None => Ok(message),
                Some(_) => Err(MORE_THAN_ONE),
            },
            None if unary => Err(Status::new(Code::Unknown, "EOF")),
            None => Err(NONE_AT_ALL),
        }
    }

    /// The next request of a stream of them.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let message = self.requests.next().await?;
        if message.is_some() {
            self.received.inc();
        }
        Ok(message)
    }

    /// As [`Call::next`]; what cannot be read is counted for `api`.
    pub(crate) async fn next_of_stream(&mut self, api: &str) -> Result<Option<Bytes>, Status> {
        let next = self.next().await;
        self.count_failure(next.as_ref().err(), api);
        next
    }

    /// Counts a stream whose requests could not be read. A client that went away is none.
    pub(crate) fn count_failure(&self, failed: Option<&Status>, api: &str) {
        if failed.is_some_and(|status| status.code != Code::Canceled) {
            self.edge.metrics().requests.stream_failures.with_label_values(&["receive", api]).inc();
        }
    }

    fn timeout(&self) -> Duration {
        self.core().settings().request_timeout()
    }

    /// Asks for something that changes nothing: the client's own deadline is told as such.
    pub(crate) async fn read(&self, request: Request) -> Result<Answered, Status> {
        self.read_within(request, self.timeout()).await
    }

    /// For questions that are asked while the answer goes out.
    pub(crate) fn asker(&self) -> Asker {
        let (core, account) = (self.core().clone(), self.edge.account().clone());
        Asker { core, account, deadline: self.deadline, timeout: self.timeout() }
    }

    /// As [`Call::read`], for work that takes longer than requests usually may.
    pub(crate) async fn read_within(&self, request: Request, timeout: Duration) -> Result<Answered, Status> {
        let asked = self.patiently(self.core().ask_read(self.who.clone(), request, timeout)).await?;
        accepted(self.note(asked))
    }

    /// As [`Call::read`], for callers that want to see refusals.
    pub(crate) async fn asked(&self, request: Request) -> Result<Answered, Status> {
        let asked = self.patiently(self.core().ask_read(self.who.clone(), request, self.timeout())).await?;
        Ok(self.note(asked))
    }

    /// Waits for room, no longer than the client does.
    pub(crate) async fn patiently<T>(&self, waiting: impl Future<Output = T>) -> Result<T, Status> {
        until(self.deadline, waiting).await
    }

    /// Asks for a change: a deadline that passes is a timeout whose outcome is unknown,
    /// and the core has the text for it.
    pub(crate) async fn write(&self, request: Request) -> Result<Answered, Status> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(self.timeout(), |left| left.min(self.timeout()));
        accepted(self.note(self.core().ask(self.who.clone(), request, timeout).await))
    }

    /// An answer of a header alone, or of a header and `rest`.
    pub(crate) fn answer(&mut self, revision: i64, term: u64, rest: &[u8]) -> Result<(), Status> {
        let mut out = Vec::with_capacity(48 + rest.len());
        self.edge.put_header(&mut out, revision, term);
        out.extend_from_slice(rest);
        self.reply.message_now(&out)
    }

    /// As [`Call::answer`]. `fields` follow, of `len` bytes together: there may be very many, so
    /// they are written as the client takes them.
    pub(crate) async fn answer_fields<F: FnOnce(&mut Vec<u8>)>(
        &mut self,
        revision: i64,
        term: u64,
        rest: &[u8],
        len: u64,
        fields: impl Iterator<Item = F>,
    ) -> Result<(), Status> {
        let mut piece = Vec::with_capacity(48 + rest.len());
        self.edge.put_header(&mut piece, revision, term);
        piece.extend_from_slice(rest);
        self.reply.begin_large(piece.len() as u64 + len).await?;
        for field in fields {
            field(&mut piece);
            if piece.len() >= PIECE {
                self.reply.part(std::mem::take(&mut piece).into()).await?;
            }
        }
        match piece.is_empty() {
            true => Ok(()),
            false => self.reply.part(piece.into()).await,
        }
    }
}

async fn until<T>(deadline: Option<Instant>, waiting: impl Future<Output = T>) -> Result<T, Status> {
    match deadline {
        None => Ok(waiting.await),
        Some(deadline) => tokio::time::timeout_at(deadline, waiting).await.map_err(|_| status::DEADLINE),
    }
}

/// What a call needs to ask the core, apart from the call.
pub(crate) struct Asker {
    core: Core,
    account: Arc<Account>,
    deadline: Option<Instant>,
    timeout: Duration,
}

impl Asker {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Goes on with what was let in, when the connection may hold more.
    pub(crate) async fn read(&self, request: Request) -> Result<Answered, Status> {
        until(self.deadline, self.account.ask()).await?;
        accepted(until(self.deadline, self.core.ask_read(Who::Member, request, self.timeout)).await?)
    }
}

fn accepted(asked: Answered) -> Result<Answered, Status> {
    match asked.answer {
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_ids_do_not_repeat() {
        let mut seen = std::collections::BTreeSet::new();
        let mut drawn = 7u64;
        for _ in 0..10_000 {
            drawn = drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
            assert!(seen.insert(mix(drawn) >> 1));
        }
    }
}
