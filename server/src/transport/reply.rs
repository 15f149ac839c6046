//! The way of an answer out: a bounded queue between a handler and the body that hyper sends.
//!
//! A handler writes messages through [`Reply`]; [`Body`] hands their bytes to the transport
//! as its window opens. For answers that are not streams the body itself drives the handler,
//! so a slow client slows its own handler and nothing else, and a client that goes away
//! drops it. Streams run as tasks of their own, ended with the body.

use super::frames;
use super::gzip::{self, Packing};
use super::status::{Code, Status};
use crate::budgets::{Account, Kept, Share, What};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// A handler waits when this many bytes of its answer are queued.
pub(crate) const HIGH_WATER: usize = 128 << 10;
/// Small parts are joined up to this size before they are handed to the transport.
const JOIN: usize = 16 << 10;
/// Largest message gRPC can announce to a stock client.
const LARGEST: u64 = i32::MAX as u64;

/// A handler at work.
pub(crate) type Driver = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// What the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Five-byte heads, status in trailers.
    Grpc,
    /// The JSON gateway, one answer.
    Json,
    /// The JSON gateway, a stream: `{"result":…}` lines.
    JsonLines,
}

/// Parts from this size on stay charged until the transport has written them.
const KEPT: usize = 8 << 10;
/// A JSON answer is held as it came from the store, and as text: base64 and names.
const JSON_FACTOR: u64 = 3;

#[derive(Default)]
struct Out {
    /// Charged for what is queued.
    account: Option<Arc<Account>>,
    /// The share of the budget that an answer in JSON stands on.
    json: Option<Share>,
    parts: VecDeque<Bytes>,
    queued: usize,
    /// Bytes ever taken by the transport.
    sent: u64,
    /// Headers may go out although nothing is queued.
    open: bool,
    finished: Option<Result<(), Status>>,
    /// The answer broke off inside a message: only a reset is honest.
    broken: Option<String>,
    /// The content type of the answer, if it is not the usual one.
    kind: Option<Box<HeaderValue>>,
    body: Option<Waker>,
    room: Option<Waker>,
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give(What::Unsent, self.queued as u64);
        }
    }
}

/// Shared by a [`Reply`] and its [`Body`].
#[derive(Clone)]
pub(crate) struct Queue {
    out: Arc<Mutex<Out>>,
    account: Arc<Account>,
    packed: bool,
}

impl Queue {
    /// `charged`: what is queued counts as read and not sent. `packed`: messages of gRPC go out in
    /// gzip.
    pub(crate) fn new(account: &Arc<Account>, charged: bool, packed: bool) -> Queue {
        let mut out = Out::default();
        out.account = charged.then(|| account.clone());
        Queue { out: Arc::new(Mutex::new(out)), account: account.clone(), packed }
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Answers with this content type.
    pub(crate) fn answer_as(&self, kind: HeaderValue) {
        self.lock().kind = Some(Box::new(kind));
    }

    fn push(&self, part: Bytes) {
        let mut out = self.lock();
        out.queued += part.len();
        if let Some(account) = &out.account {
            account.take(What::Unsent, part.len() as u64);
        }
        out.parts.push_back(part);
        if let Some(waker) = out.body.take() {
            waker.wake();
        }
    }

    /// The handler's end; the first word counts.
    pub(crate) fn finish(&self, result: Result<(), Status>) {
        let mut out = self.lock();
        if out.finished.is_none() {
            out.finished = Some(result);
        }
        if let Some(waker) = out.body.take() {
            waker.wake();
        }
    }

    /// Takes the status of a handler that ended in an error before it said anything.
    pub(crate) fn refused(&self) -> Option<Status> {
        let mut out = self.lock();
        match (&out.finished, out.parts.is_empty(), out.sent) {
            (Some(Err(_)), true, 0) => out.finished.take().and_then(|r| r.err()),
            _ => None,
        }
    }

    /// Whether the headers should go out now.
    pub(crate) fn ready(&self, cx: &mut Context<'_>) -> bool {
        let mut out = self.lock();
        let ready = out.open || out.finished.is_some() || out.queued >= HIGH_WATER;
        if !ready {
            out.body = Some(cx.waker().clone());
        }
        ready
    }

    /// All of a finished answer at once, for callers that want it whole. It keeps its share of
    /// the budget until it is sent.
    pub(crate) fn drain(&self) -> Bytes {
        let mut out = self.lock();
        let queued = std::mem::take(&mut out.queued);
        if let Some(account) = &out.account {
            account.give(What::Unsent, queued as u64);
        }
        let parts: Vec<Bytes> = out.parts.drain(..).collect();
        let whole = if parts.len() == 1 { parts.into_iter().next().unwrap_or_default() } else { parts.concat().into() };
        match out.json.take() {
            Some(share) => Bytes::from_owner(Kept(whole, share)),
            None => whole,
        }
    }
}

/// What a handler writes its answer to.
pub(crate) struct Reply {
    queue: Queue,
    speech: Speech,
    wire: &'static wire::Method,
    messages: prometheus::IntCounter,
    /// JSON: the message being gathered.
    gathered: Vec<u8>,
    /// gRPC: of the present message, not queued yet: it goes with the first bytes.
    head: Option<[u8; frames::HEAD]>,
    /// gRPC: the present message, if it goes out in gzip.
    packing: Option<Packing>,
    /// Bytes of the present message that are still to come.
    owed: u64,
    /// Messages completed.
    whole: u64,
    /// Bytes of all messages, as they were begun.
    size: u64,
}

impl Reply {
    pub(crate) fn new(
        queue: Queue,
        speech: Speech,
        wire: &'static wire::Method,
        messages: prometheus::IntCounter,
    ) -> Reply {
        Reply {
            queue,
            speech,
            wire,
            messages,
            gathered: Vec::new(),
            head: None,
            packing: None,
            owed: 0,
            whole: 0,
            size: 0,
        }
    }

    /// A stream begins. Over gRPC its headers go out now; as text they wait for the first message,
    /// as etcd's do: of a stream that fails before it they show how it failed.
    pub(crate) fn open_stream(&self) {
        if self.speech == Speech::Grpc {
            self.open();
        }
    }

    /// Lets the headers go out before there is a message.
    pub(crate) fn open(&self) {
        let mut out = self.queue.lock();
        out.open = true;
        if let Some(waker) = out.body.take() {
            waker.wake();
        }
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.queue.account
    }

    /// Bytes of all messages, as they were begun.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// As [`Reply::begin`]; a message in JSON first waits for room, since it is held whole.
    pub(crate) async fn begin_large(&mut self, len: u64) -> Result<(), Status> {
        if self.speech != Speech::Grpc && len <= LARGEST {
            // A stream's earlier message has gone out as text.
            self.queue.lock().json = None;
            let budgets = self.account().budgets().clone();
            let Some(share) = budgets.json_answer(len * JSON_FACTOR).await else {
                let most = budgets.json_answers.limit() / JSON_FACTOR;
                let text = format!(
                    "kvorum: an answer of {len} bytes is more than JSON answers may hold here ({most}): \
                     ask for less, or over gRPC"
                );
                return Err(Status::with(Code::ResourceExhausted, text));
            };
            self.queue.lock().json = Some(share);
        }
        self.begin(len)
    }

    /// Begins a message of exactly `len` bytes, given by [`Reply::part`].
    pub(crate) fn begin(&mut self, len: u64) -> Result<(), Status> {
        assert_eq!(self.owed, 0, "a message was begun inside another");
        if len > LARGEST {
            return Err(Status::with(
                Code::ResourceExhausted,
                format!("grpc: trying to send message larger than max ({len} vs. {LARGEST})"),
            ));
        }
        self.owed = len;
        self.size += len;
        match self.speech {
            Speech::Grpc if self.queue.packed && gzip::fits(len) => {
                let hold = self.account().hold(What::Unsent, gzip::PACKER + len);
                self.packing = Some(Packing::new(hold));
            }
            Speech::Grpc => self.head = Some(frames::head(len as u32)),
            Speech::Json | Speech::JsonLines => self.gathered.clear(),
        }
        if len == 0 {
            self.push_head();
            self.end_message()?;
        }
        Ok(())
    }

    /// The head of the message that was just begun, for whoever puts it before its first bytes: it
    /// counts as one more part of the message then.
    pub(crate) fn take_head(&mut self) -> Option<[u8; frames::HEAD]> {
        let head = self.head.take();
        self.owed += head.map_or(0, |head| head.len() as u64);
        head
    }

    fn push_head(&mut self) {
        if let Some(head) = self.head.take() {
            self.queue.push(Bytes::copy_from_slice(&head));
        }
    }

    /// The next bytes of the message; waits while the client is slow.
    pub(crate) async fn part(&mut self, part: Bytes) -> Result<(), Status> {
        self.room().await;
        self.part_now(part)?;
        if self.packing.is_some() {
            // Packing takes its time: the others of this thread have their turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn part_now(&mut self, part: Bytes) -> Result<(), Status> {
        let len = part.len() as u64;
        assert!(len <= self.owed, "more bytes than the message was announced with");
        self.owed -= len;
        match self.speech {
            Speech::Grpc if self.packing.is_some() => {
                let packing = self.packing.as_mut().expect("just seen");
                packing.part(&part).map_err(not_packed)?;
                if self.owed == 0 {
                    let framed = self.packing.take().expect("just seen").framed().map_err(not_packed)?;
                    self.queue.push(Bytes::from(framed));
                }
            }
            Speech::Grpc if len > 0 => {
                self.push_head();
                self.queue.push(part);
            }
            Speech::Grpc => {}
            Speech::Json | Speech::JsonLines => self.gathered.extend_from_slice(&part),
        }
        if self.owed == 0 && len > 0 {
            self.end_message()?;
        }
        Ok(())
    }

    fn end_message(&mut self) -> Result<(), Status> {
        self.messages.inc();
        self.whole += 1;
        if self.speech == Speech::Grpc {
            return Ok(());
        }
        let message = std::mem::take(&mut self.gathered);
        let json = match self.speech {
            Speech::JsonLines => wire::json::stream_frame(self.wire, &message),
            _ => wire::response_to_json(self.wire, &message),
        };
        let json = json.map_err(|e| Status::with(Code::Internal, e.0))?;
        self.queue.push(Bytes::from(json));
        if self.speech == Speech::JsonLines {
            self.open();
        }
        Ok(())
    }

    /// One small message, without waiting.
    pub(crate) fn message_now(&mut self, message: &[u8]) -> Result<(), Status> {
        assert_eq!(self.owed, 0, "a message was begun inside another");
        match self.speech {
            Speech::Grpc if self.queue.packed && gzip::fits_at_once(message.len()) => self.packed_now(message),
            Speech::Grpc if (message.len() as u64) <= LARGEST => {
                let mut framed = Vec::with_capacity(frames::HEAD + message.len());
                framed.extend_from_slice(&frames::head(message.len() as u32));
                framed.extend_from_slice(message);
                self.size += message.len() as u64;
                self.queue.push(Bytes::from(framed));
                self.messages.inc();
                self.whole += 1;
                Ok(())
            }
            _ => {
                self.begin(message.len() as u64)?;
                self.part_now(Bytes::copy_from_slice(message))
            }
        }
    }

    fn packed_now(&mut self, message: &[u8]) -> Result<(), Status> {
        self.size += message.len() as u64;
        self.queue.push(Bytes::from(gzip::framed(message).map_err(not_packed)?));
        self.messages.inc();
        self.whole += 1;
        Ok(())
    }

    /// As [`Reply::message_now`], of a message behind room for its head: it is not copied.
    pub(crate) fn message_behind_head(&mut self, mut framed: Vec<u8>) -> Result<(), Status> {
        let len = framed.len() - frames::HEAD;
        let packed = self.queue.packed && gzip::fits_at_once(len);
        if self.speech != Speech::Grpc || len as u64 > LARGEST || packed {
            return self.message_now(&framed[frames::HEAD..]);
        }
        assert_eq!(self.owed, 0, "a message was begun inside another");
        framed[..frames::HEAD].copy_from_slice(&frames::head(len as u32));
        self.queue.push(Bytes::from(framed));
        self.messages.inc();
        self.whole += 1;
        Ok(())
    }

    /// Waits until the queue has room.
    pub(crate) async fn room(&self) {
        self.until(|out| out.queued < HIGH_WATER).await
    }

    /// Place in the stream of bytes where what was queued last ends.
    pub(crate) fn position(&self) -> u64 {
        let out = self.queue.lock();
        out.sent + out.queued as u64
    }

    /// How much the transport has taken: a place in the stream, as [`Reply::position`] has them.
    pub(crate) fn taken_upto(&self) -> u64 {
        self.queue.lock().sent
    }

    /// Waits until the transport has taken everything up to `position`.
    pub(crate) async fn taken(&self, position: u64) {
        self.until(|out| out.sent >= position).await
    }

    async fn until(&self, enough: impl Fn(&Out) -> bool) {
        std::future::poll_fn(|cx| {
            let mut out = self.queue.lock();
            if enough(&out) {
                return Poll::Ready(());
            }
            out.room = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The answer cannot be completed although part of a message went out: the client must
    /// see a broken stream, never a short answer.
    pub(crate) fn break_off(&mut self, reason: String) -> Status {
        if self.owed > 0 && self.speech == Speech::Grpc {
            self.head = None;
            self.packing = None;
            let mut out = self.queue.lock();
            if self.whole == 0 && out.sent == 0 {
                out.parts.clear();
                let queued = std::mem::take(&mut out.queued);
                if let Some(account) = &out.account {
                    account.give(What::Unsent, queued as u64);
                }
            } else {
                out.broken = Some(reason.clone());
            }
        }
        Status::with(Code::Internal, reason)
    }
}

fn not_packed(error: std::io::Error) -> Status {
    Status::with(Code::Internal, format!("grpc: error while compressing: {error}"))
}

/// What writes an answer.
pub(crate) enum Work {
    None,
    /// Polled by the body itself.
    Driven(Driver),
    /// Runs by itself; ended with the body.
    Task(tokio::task::AbortHandle),
}

/// The body of an answer.
pub(crate) struct Body {
    kind: Kind,
}

enum Kind {
    Whole(Option<Bytes>),
    Queue { queue: Queue, work: Work, speech: Speech, taken: prometheus::IntCounter, over: bool },
}

impl Body {
    pub(crate) fn empty() -> Body {
        Body { kind: Kind::Whole(None) }
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
        let bytes = bytes.into();
        Body { kind: Kind::Whole((!bytes.is_empty()).then_some(bytes)) }
    }

    pub(crate) fn of(queue: Queue, work: Work, speech: Speech, taken: prometheus::IntCounter) -> Body {
        Body { kind: Kind::Queue { queue, work, speech, taken, over: false } }
    }

    /// None: nothing writes it any more, it was there from the beginning.
    pub(crate) fn queue(&self) -> Option<Queue> {
        match &self.kind {
            Kind::Whole(_) => None,
            Kind::Queue { queue, .. } => Some(queue.clone()),
        }
    }

    /// None: the usual one.
    pub(crate) fn content_type(&self) -> Option<HeaderValue> {
        match &self.kind {
            Kind::Queue { queue, .. } => queue.lock().kind.as_deref().cloned(),
            Kind::Whole(_) => None,
        }
    }

    /// Whether its messages are in gzip.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(&self.kind, Kind::Queue { queue, .. } if queue.packed)
    }

    /// Ready when the headers should go out, with the status of a call that failed before it said
    /// anything.
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        let Kind::Queue { queue, work, .. } = &mut self.kind else { return Poll::Ready(None) };
        if let Work::Driven(driver) = work
            && let Poll::Ready(result) = driver.as_mut().poll(cx)
        {
            queue.finish(result);
            *work = Work::None;
        }
        if !queue.ready(cx) {
            return Poll::Pending;
        }
        Poll::Ready(match work {
            Work::Driven(_) => None,
            _ => queue.refused(),
        })
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Kind::Queue { work: Work::Task(task), .. } = &self.kind {
            task.abort();
        }
    }
}

fn take_part(out: &mut Out) -> Option<Bytes> {
    let first = out.parts.pop_front()?;
    let joined = match out.parts.front() {
        Some(second) if first.len() + second.len() <= JOIN => {
            let mut joined = Vec::with_capacity(JOIN.min(out.queued));
            joined.extend_from_slice(&first);
            while let Some(next) = out.parts.front() {
                if joined.len() + next.len() > JOIN {
                    break;
                }
                joined.extend_from_slice(next);
                out.parts.pop_front();
            }
            Bytes::from(joined)
        }
        _ => first,
    };
    if out.parts.is_empty() {
        // A stream at rest keeps no room for its next message.
        out.parts = VecDeque::new();
    }
    out.queued -= joined.len();
    out.sent += joined.len() as u64;
    if let Some(waker) = out.room.take() {
        waker.wake();
    }
    let Some(account) = &out.account else { return Some(joined) };
    if joined.len() < KEPT {
        account.give(What::Unsent, joined.len() as u64);
        return Some(joined);
    }
    // The charge was taken when the part was queued; it goes along.
    let hold = account.adopt(What::Unsent, joined.len() as u64);
    Some(Bytes::from_owner(Kept(joined, hold)))
}

type FrameResult = Result<Frame<Bytes>, std::io::Error>;

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let (queue, work, speech, taken, over) = match &mut self.get_mut().kind {
            Kind::Whole(bytes) => return Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Kind::Queue { queue, work, speech, taken, over } => (queue, work, speech, taken, over),
        };
        if *over {
            return Poll::Ready(None);
        }
        let mut worked = false;
        loop {
            let mut out = queue.lock();
            out.body = None;
            if let Some(part) = take_part(&mut out) {
                taken.inc_by(part.len() as u64);
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            if let Some(reason) = out.broken.take() {
                *over = true;
                return Poll::Ready(Some(Err(std::io::Error::other(reason))));
            }
            if let Some(result) = out.finished.take() {
                *over = true;
                return Poll::Ready(last_frame(*speech, result).map(Ok));
            }
            match work {
                Work::Driven(driver) if !worked => {
                    drop(out);
                    worked = true;
                    if let Poll::Ready(result) = driver.as_mut().poll(cx) {
                        *work = Work::None;
                        queue.finish(result);
                    }
                }
                Work::None if !worked => {
                    *over = true;
                    return Poll::Ready(Some(Err(std::io::Error::other("the handler of this answer is gone"))));
                }
                _ => {
                    out.body = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Queue { over, .. } => *over,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Queue { .. } => SizeHint::default(),
        }
    }
}

fn last_frame(speech: Speech, result: Result<(), Status>) -> Option<Frame<Bytes>> {
    match (speech, result) {
        (Speech::Grpc, result) => Some(Frame::trailers(trailers(result.err().as_ref()))),
        (_, Ok(())) => None,
        (_, Err(status)) => Some(Frame::data(Bytes::from(wire::json::stream_error(status.code, &status.message)))),
    }
}

/// `grpc-status` and `grpc-message`.
pub(crate) fn trailers(status: Option<&Status>) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(2);
    let code = status.map_or(Code::Ok, |s| s.code);
    map.insert("grpc-status", HeaderValue::from(u16::from(code.number())));
    if let Some(status) = status
        && !status.message.is_empty()
    {
        let text = percent(&status.message);
        map.insert("grpc-message", HeaderValue::from_str(&text).expect("percent-encoded text is a header"));
    }
    map
}

/// gRPC's percent-encoding of messages: printable ASCII but `%` stands for itself.
pub(crate) fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => out.push_str("%25"),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent("etcdserver: no leader"), "etcdserver: no leader");
        assert_eq!(percent("100% \u{e9}\n"), "100%25 %C3%A9%0A");
        assert_eq!(percent("~ \u{7f}"), "~ %7F");
    }

    #[test]
    fn trailers_carry_code_and_text() {
        let map = trailers(Some(&super::super::status::NO_LEADER));
        assert_eq!(map["grpc-status"], "14");
        assert_eq!(map["grpc-message"], "etcdserver: no leader");
        assert_eq!(trailers(None)["grpc-status"], "0");
        assert!(!trailers(None).contains_key("grpc-message"));
    }
}
