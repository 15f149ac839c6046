//! Watch: carries [`node::watch::WatchStream`] between a client, the core and the disk.
//!
//! Everything a watch means is decided there; here are the clock, the transport and the bytes.

use crate::core::{Core, Stream};
use crate::metrics::OfWatches;
use crate::transport::call::Call;
use crate::transport::frames::HEAD;
use crate::transport::status::{self, Status};
use bytes::Bytes;
use disk::fetch::Fetched;
use node::watch::{CreateRequest, FromClient, Limits, OutEvent, Response, StreamOut, WatchStream};
use node::{Answer, History, Refusal, Request, TICK_MS, ToStream, WatchOp, Who};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use store::protobuf::{self, Fields, Value};
use store::{KeyRange, Located, record};
use tokio::time::{Instant, Sleep};
use wire::Code;

/// What a stream may hold, at least, when the streams together are over their budget: its
/// watches are fed from history then.
const LEAST_BUFFER: usize = 16 << 10;
/// What gRPC allows beyond a request: responses above it are split if the watch asked for that.
const FRAGMENT_OVERHEAD: u64 = 512 << 10;
/// A stream looks at the clock ten times in a progress interval and once in an election timeout,
/// between these bounds.
const CLOCK_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// At most, while it holds nothing and need not know of a leader: thousands of streams that do
/// nothing shall cost nothing.
const CALM: Duration = Duration::from_secs(60);
/// Sooner, while the stream waits for a tick.
const SOON: Duration = Duration::from_millis(250);

/// Questions to the core that a stream may have open: a client that creates thousands of watches in
/// one breath is read as fast as they are answered.
const UNANSWERED: u32 = 256;

/// Messages of the core that a stream takes in before it looks at anything else.
const MOST_AT_ONCE: usize = 64;

/// Its messages took more room than there was.
const SLOW: Status =
    Status::new(Code::Unavailable, "kvorum: the watch stream is closed: its messages find no more room");

type Asking = Pin<Box<dyn Future<Output = Result<History, Refusal>> + Send>>;

struct Session {
    stream: WatchStream,
    core: Core,
    link: Stream,
    asking: Option<Asking>,
    on_the_way: VecDeque<OnTheWay>,
    /// Events of these.
    events_on_the_way: usize,
    clock: Clock,
    /// As last told to the budgets.
    held: u64,
    /// The same, of the watches that exist.
    kept: u64,
    /// Questions that the core has not answered.
    unanswered: u32,
    watching: Arc<OfWatches>,
    /// Watches behind and events waiting, as last told to the metrics.
    shown: (i64, i64),
}

/// A response that the transport holds.
#[derive(Clone, Copy)]
struct OnTheWay {
    /// Place in the transport's stream where it ends.
    end: u64,
    /// Charged.
    bytes: usize,
    events: u32,
}

fn ticks(of: Duration) -> u32 {
    u32::try_from(of.as_millis() / u128::from(TICK_MS)).unwrap_or(u32::MAX).max(1)
}

/// When a stream looks at the clock next.
struct Clock {
    sleep: Pin<Box<Sleep>>,
    pace: Duration,
    /// The same while it holds nothing.
    calm: Duration,
    ticked: Instant,
}

impl Clock {
    fn new(progress_interval: Duration, election: Duration, wants_leader: bool) -> Clock {
        let tenth = progress_interval / 10;
        let pace = tenth.min(election).clamp(CLOCK_BOUNDS.0, CLOCK_BOUNDS.1);
        let calm = if wants_leader { pace } else { tenth.clamp(CLOCK_BOUNDS.0, CALM) };
        Clock { sleep: Box::pin(tokio::time::sleep(calm)), pace, calm, ticked: Instant::now() }
    }

    /// The ticks that went by until now.
    fn ticks(&mut self, now: Instant, holds: bool) -> u32 {
        let count = u32::try_from((now - self.ticked).as_millis() / u128::from(TICK_MS)).unwrap_or(u32::MAX);
        self.ticked += Duration::from_millis(TICK_MS) * count;
        let next = if holds { self.pace } else { self.calm };
        self.sleep.as_mut().reset(now + next);
        count
    }

    /// A stream that waits for a tick looks at the clock soon; one that holds something, at its
    /// usual pace.
    fn hurry(&mut self, now: Instant, rests: bool, holds: bool) {
        let within = match rests {
            true => SOON.min(self.pace),
            false if holds => self.pace,
            false => return,
        };
        let due = now + within;
        if self.sleep.deadline() > due {
            self.sleep.as_mut().reset(due);
        }
    }
}

/// Up to a tenth more, different for each stream, so that notices do not come all at once.
fn spread(interval: Duration, id: u64) -> Duration {
    let thousandths = u32::try_from(id.wrapping_mul(0x9e37_79b9) % 100).unwrap_or(0);
    interval + interval / 1000 * thousandths
}

impl Session {
    fn new(call: &Call) -> Session {
        let core = call.core().clone();
        let settings = core.settings();
        let link = core.open_stream();
        let interval = spread(settings.watch_progress_interval, link.id());
        let fragment = settings.max_request_bytes.saturating_add(FRAGMENT_OVERHEAD);
        let limits = Limits {
            buffer_bytes: usize::try_from(core.budgets().limits.watch_each).unwrap_or(usize::MAX),
            fragment_bytes: usize::try_from(fragment).unwrap_or(usize::MAX),
            progress_interval_ticks: ticks(interval),
        };
        let mut stream = WatchStream::new(limits, core.revision());
        if call.wants_leader {
            stream.require_leader(ticks(settings.election));
        }
        let clock = Clock::new(interval, settings.election, call.wants_leader);
        let watching = call.edge.metrics().watching.clone();
        watching.streams.inc();
        Session {
            stream,
            core,
            link,
            asking: None,
            on_the_way: VecDeque::new(),
            events_on_the_way: 0,
            clock,
            held: 0,
            kept: 0,
            unanswered: 0,
            watching,
            shown: (0, 0),
        }
    }

    /// Ticks for the time that went by, in the light of whether a leader is known now.
    fn tick(&mut self, out: &mut Vec<StreamOut>) {
        self.stream.core(ToStream::Leader { known: self.core.leader() != 0 }, out);
        let count = self.clock.ticks(Instant::now(), self.held > 0);
        self.stream.ticks(count, out);
    }

    /// A message of the core.
    fn told(&mut self, message: ToStream, out: &mut Vec<StreamOut>) {
        let answers = matches!(
            message,
            ToStream::Joined { .. } | ToStream::Behind { .. } | ToStream::Compacted { .. } | ToStream::Progress { .. }
        );
        self.unanswered = self.unanswered.saturating_sub(u32::from(answers));
        self.stream.core(message, out);
    }

    /// What the client says. A watch for which there is no room is refused.
    fn said(&mut self, from: FromClient, out: &mut Vec<StreamOut>) {
        let watches = &self.core.budgets().watches;
        let from = match &from {
            FromClient::Create(create) if !watches.try_take(create.cost() as u64) => {
                FromClient::Refuse { reason: status::TOO_MANY_REQUESTS.message.into_owned() }
            }
            FromClient::Create(create) => {
                self.kept += create.cost() as u64;
                from
            }
            _ => from,
        };
        self.stream.client(from, self.core.revision(), out);
        // Less if it was no watch, or one ended.
        let kept = self.stream.kept() as u64;
        watches.give(self.kept - kept);
        self.kept = kept;
    }

    fn ask(&mut self, op: WatchOp) {
        self.unanswered += u32::from(matches!(op, WatchOp::Join { .. } | WatchOp::Progress { .. }));
        self.link.ask(op);
    }

    /// The core takes no more of this stream: why.
    fn cut_off(&self) -> Status {
        match *self.core.stopping().borrow() {
            true => status::STOPPED,
            false => SLOW,
        }
    }

    /// The transport took everything up to `position`.
    fn sent(&mut self, position: u64, out: &mut Vec<StreamOut>) {
        while let Some(taken) = self.on_the_way.pop_front_if(|response| response.end <= position) {
            self.events_on_the_way -= taken.events as usize;
            self.stream.sent(taken.bytes, out);
        }
        if self.on_the_way.is_empty() {
            self.on_the_way = VecDeque::new();
        }
    }

    /// Tells the metrics what has changed of it.
    fn show(&mut self, behind: usize, waiting: usize) {
        let now = (i64::try_from(behind).unwrap_or(i64::MAX), i64::try_from(waiting).unwrap_or(i64::MAX));
        if now != self.shown {
            self.watching.slow.add(now.0 - self.shown.0);
            self.watching.pending.add(now.1 - self.shown.1);
            self.shown = now;
        }
    }

    /// Tells the budgets what is held. While all streams together hold too much, each may hold
    /// an equal part of what is left.
    fn settle(&mut self) {
        self.show(self.stream.behind(), self.stream.waiting_events() + self.events_on_the_way);
        let budgets = self.core.budgets();
        let now = self.stream.held() as u64;
        match now.checked_sub(self.held) {
            Some(more) => budgets.watch.take(more),
            None => budgets.watch.give(self.held - now),
        }
        self.held = now;
        let free = budgets.watch.limit().saturating_sub(budgets.watch.used());
        let buffer = usize::try_from(free.min(budgets.limits.watch_each)).unwrap_or(usize::MAX).max(LEAST_BUFFER);
        if self.stream.set_buffer(buffer) && free < budgets.limits.watch_each {
            budgets.watch.count_full();
        }
    }

    fn ask_history(&mut self, from: i64, prev: bool) {
        let core = self.core.clone();
        self.asking = Some(Box::pin(async move {
            let timeout = core.settings().request_timeout();
            match core.ask(Who::Member, Request::History { from, prev }, timeout).await.answer {
                Answer::History(history) => Ok(history),
                Answer::Refused(refusal) => Err(refusal),
                _ => Err(Refusal::Stopped),
            }
        }));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.budgets().watch.give(self.held);
        self.core.budgets().watches.give(self.kept);
        self.show(0, 0);
        self.watching.streams.dec();
    }
}

/// The answer to the question that is out; never, when there is none.
async fn answered(asking: &mut Option<Asking>) -> Result<History, Refusal> {
    match asking {
        Some(question) => {
            let answer = question.await;
            *asking = None;
            answer
        }
        None => std::future::pending().await,
    }
}

pub(crate) async fn watch(call: &mut Call) -> Result<(), Status> {
    let mut session = Session::new(call);
    let mut stopping = session.core.stopping();
    // Once for all: each turn of the loop would enter and leave a list that all streams share.
    let stopped = stopping.wait_for(|stopping| *stopping);
    tokio::pin!(stopped);
    let mut told_to_stop = false;
    let mut listening = true;
    loop {
        let oldest = session.on_the_way.front().filter(|_| session.stream.is_pressed()).copied();
        let hears = listening && !session.stream.is_full() && session.unanswered < UNANSWERED;
        // Of this turn alone: a stream at rest keeps none.
        let mut out = Vec::new();
        let mut asks = None;
        tokio::select! {
            message = session.link.recv() => match message {
                Some(message) => {
                    session.told(message, &mut out);
                    for _ in 0..MOST_AT_ONCE {
                        let Some(message) = session.link.try_recv() else { break };
                        session.told(message, &mut out);
                    }
                }
                None => return Err(session.cut_off()),
            },
            request = call.requests.next(), if hears => match unreadable(call, request)? {
                Some(request) => {
                    call.received.inc();
                    let read = unreadable(call, read_request(&request).map_err(Status::on_stream))?;
                    if let Some(from) = read {
                        match session.core.asks_users() {
                            true => asks = Some(from),
                            false => session.said(from, &mut out),
                        }
                    }
                }
                // The client has said all it will; it still listens.
                None => listening = false,
            },
            history = answered(&mut session.asking) => {
                // Thousands of streams may have asked while nobody held anything: what is taken of
                // an answer follows from what others took since.
                session.settle();
                session.stream.history(history, &mut out);
            }
            () = call.reply.taken(oldest.map_or(0, |response| response.end)), if oldest.is_some() => {}
            () = session.clock.sleep.as_mut() => session.tick(&mut out),
            _ = &mut stopped, if !told_to_stop => {
                told_to_stop = true;
                session.stream.end(Refusal::Stopped, &mut out);
            }
        }
        if let Some(from) = asks {
            // Rare: streams need not reserve room for it.
            let from = Box::pin(permitted(call, from)).await?;
            session.said(from, &mut out);
        }
        session.sent(call.reply.taken_upto(), &mut out);
        // Records are waited for: others must see what is held for them.
        session.settle();
        carry_out(call, &mut session, out).await?;
        session.settle();
        session.clock.hurry(Instant::now(), session.stream.rests(), session.held > 0);
    }
}

fn unreadable<T>(call: &Call, request: Result<T, Status>) -> Result<T, Status> {
    call.count_failure(request.as_ref().err(), "watch");
    request
}

async fn carry_out(call: &mut Call, session: &mut Session, out: Vec<StreamOut>) -> Result<(), Status> {
    for what in out {
        match what {
            StreamOut::Respond(response) => {
                let begun = std::time::Instant::now();
                let (events, control) = (response.events.len(), response.created || response.canceled);
                let bytes = response.bytes;
                let message = match response.events.iter().any(|event| event.prev.is_some()) {
                    false => encode(call, &response, &Fetched::default())?,
                    // Rare: streams need not reserve room for it.
                    true => Box::pin(encode_with_prevs(call, &response)).await?,
                };
                call.reply.message_behind_head(message)?;
                let way =
                    OnTheWay { end: call.reply.position(), bytes, events: u32::try_from(events).unwrap_or(u32::MAX) };
                session.events_on_the_way += way.events as usize;
                session.on_the_way.push_back(way);
                session.watching.sent(events, control, begun.elapsed());
            }
            StreamOut::Ask(op) => session.ask(op),
            StreamOut::AskHistory { from, prev } => session.ask_history(from, prev),
            StreamOut::End(refusal) => return Err(refusal.into()),
        }
    }
    Ok(())
}

/// Whether the client may watch what it asks for; only its creation asks, as in etcd.
async fn permitted(call: &Call, from: FromClient) -> Result<FromClient, Status> {
    let FromClient::Create(create) = &from else { return Ok(from) };
    if create.start_revision < 0 {
        return Ok(from); // refused for that
    }
    let key: &[u8] = if create.key.is_empty() { b"\0" } else { &create.key };
    let range = KeyRange::new(key, &create.range_end);
    let refused = match call.asked(Request::Watch { range }).await?.answer {
        Answer::Refused(refusal) => refusal,
        _ => return Ok(from),
    };
    let Refusal::User(error) = refused else { return Err(refused.into()) };
    Ok(FromClient::Refuse { reason: Status::from(error).to_string() })
}

/// A `WatchRequest`; None for one that asks nothing we know.
fn read_request(request: &Bytes) -> Result<Option<FromClient>, Status> {
    let mut from = None;
    let mut fields = Fields::new(request);
    while let Some(field) = fields.next_field()? {
        from = match field {
            (1, Value::Bytes(create)) => Some(FromClient::Create(read_create(create)?)),
            (2, Value::Bytes(cancel)) => {
                let mut id = 0;
                let mut fields = Fields::new(cancel);
                while let Some(field) = fields.next_field()? {
                    if let (1, value) = field {
                        id = value.int();
                    }
                }
                Some(FromClient::Cancel { id })
            }
            (3, Value::Bytes(_)) => Some(FromClient::Progress),
            _ => from,
        };
    }
    Ok(from)
}

/// Keys are copied: they live as long as the watch, and must not keep the buffer of a connection.
fn read_create(create: &[u8]) -> Result<CreateRequest, Status> {
    let mut request = CreateRequest::default();
    let mut fields = Fields::new(create);
    while let Some(field) = fields.next_field()? {
        match field {
            (1, value) => request.key = Bytes::copy_from_slice(value.bytes()),
            (2, value) => request.range_end = Bytes::copy_from_slice(value.bytes()),
            (3, value) => request.start_revision = value.int(),
            (4, value) => request.progress_notify = value.flag(),
            (5, Value::Bytes(filters)) => {
                for filter in protobuf::packed(filters)? {
                    add_filter(&mut request, filter);
                }
            }
            (5, value) => add_filter(&mut request, value.uint()),
            (6, value) => request.prev_kv = value.flag(),
            (7, value) => request.watch_id = value.int(),
            (8, value) => request.fragment = value.flag(),
            _ => {}
        }
    }
    Ok(request)
}

fn add_filter(request: &mut CreateRequest, filter: u64) {
    match filter {
        0 => request.no_put = true,
        1 => request.no_delete = true,
        _ => {}
    }
}

async fn encode_with_prevs(call: &Call, response: &Response) -> Result<Vec<u8>, Status> {
    // An event may have waited until its version before was compacted: then it goes without, as
    // etcd's.
    let prev = |event: &OutEvent| Some((event.prev.clone()?, event.revision.main));
    let wanted: Vec<(Located, i64)> = response.events.iter().filter_map(prev).collect();
    let mut prevs = Fetched::default();
    call.core().superseded(&wanted, &mut prevs).await?;
    encode(call, response, &prevs)
}

/// A whole `WatchResponse`, behind room for its head. `prevs`: of the events that have one, in
/// order; those that are gone are left out.
fn encode(call: &Call, response: &Response, prevs: &Fetched) -> Result<Vec<u8>, Status> {
    let mut numbers = 0..prevs.len();
    let mut out = Vec::with_capacity(HEAD + response.bytes);
    out.extend_from_slice(&[0; HEAD]);
    call.edge.put_header(&mut out, response.header_revision, call.core().term());
    protobuf::write_int(&mut out, 2, response.watch_id);
    protobuf::write_bool(&mut out, 3, response.created);
    protobuf::write_bool(&mut out, 4, response.canceled);
    protobuf::write_int(&mut out, 5, response.compact_revision);
    protobuf::write_bytes(&mut out, 6, response.cancel_reason.as_bytes());
    protobuf::write_bool(&mut out, 7, response.fragment);
    for event in &response.events {
        let prev = event.prev.as_ref().and_then(|_| numbers.next()).and_then(|n| prevs.find(n));
        put_event(&mut out, event, prev)?;
    }
    Ok(out)
}

/// The `KeyValue` inside a whole record.
fn body(record: &[u8]) -> Result<&[u8], Status> {
    record
        .get(record::HEADER..)
        .ok_or_else(|| Status::new(Code::Internal, "kvorum: a record is shorter than its header"))
}

/// `mvccpb.Event` as field 11.
fn put_event(out: &mut Vec<u8>, event: &OutEvent, prev: Option<&[u8]>) -> Result<(), Status> {
    let kv = body(&event.record)?;
    let prev = prev.map(body).transpose()?;
    // A tombstone's record holds the key alone.
    let modified = if event.tombstone { event.revision.main } else { 0 };
    let kv_len = kv.len() + protobuf::int_len(3, modified);
    let kind_len = if event.tombstone { 2 } else { 0 };
    let prev_len = prev.map_or(0, |prev| protobuf::field_len(3, prev.len()));
    protobuf::write_head(out, 11, kind_len + protobuf::field_len(2, kv_len) + prev_len);
    protobuf::write_bool(out, 1, event.tombstone);
    protobuf::write_head(out, 2, kv_len);
    out.extend_from_slice(kv);
    protobuf::write_int(out, 3, modified);
    if let Some(prev) = prev {
        protobuf::write_message(out, 3, prev);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use store::{Rev, record::KeyValueRef};
    use wire::etcdserverpb as pb;

    fn record_of(rev: Rev, tombstone: bool, value: &[u8]) -> Bytes {
        let numbers = if tombstone { (0, 0, 0) } else { (2, rev.main, 2) };
        let kv = KeyValueRef { key: b"a", create: numbers.0, modified: numbers.1, version: numbers.2, value, lease: 0 };
        record::encode(rev, tombstone, &kv)
    }

    #[test]
    fn events_read_back_as_the_generated_types_have_them() {
        let rev = Rev { main: 9, sub: 0 };
        let prev = record_of(Rev { main: 8, sub: 0 }, false, b"old");
        let put = OutEvent { tombstone: false, record: record_of(rev, false, b"new"), revision: rev, prev: None };
        let delete = OutEvent { tombstone: true, record: record_of(rev, true, b""), ..put.clone() };
        let mut out = Vec::new();
        put_event(&mut out, &put, Some(&prev)).unwrap();
        put_event(&mut out, &delete, None).unwrap();
        let read = pb::WatchResponse::decode(out.as_slice()).unwrap();
        let (put, delete) = (&read.events[0], &read.events[1]);
        assert_eq!((put.r#type, put.kv.as_ref().unwrap().mod_revision), (0, 9));
        assert_eq!(put.prev_kv.as_ref().unwrap().value.as_ref(), b"old");
        let gone = delete.kv.as_ref().unwrap();
        assert_eq!((delete.r#type, gone.key.as_ref(), gone.mod_revision, gone.version), (1, &b"a"[..], 9, 0));
        assert!(delete.prev_kv.is_none());
    }

    #[test]
    fn requests_are_read_field_by_field() {
        let create = pb::WatchCreateRequest {
            key: Bytes::from_static(b"k"),
            range_end: Bytes::from_static(b"l"),
            start_revision: -4,
            filters: vec![0, 1],
            watch_id: 7,
            prev_kv: true,
            ..Default::default()
        };
        let union = pb::watch_request::RequestUnion::CreateRequest(create);
        let request: Bytes = pb::WatchRequest { request_union: Some(union) }.encode_to_vec().into();
        let Some(FromClient::Create(read)) = read_request(&request).unwrap() else { panic!("a create") };
        assert_eq!((read.key.as_ref(), read.start_revision, read.watch_id), (&b"k"[..], -4, 7));
        assert!(read.no_put && read.no_delete && read.prev_kv && !read.fragment);
        assert!(read_request(&Bytes::new()).unwrap().is_none());
        assert!(read_request(&Bytes::from_static(&[0x0a, 5])).is_err());
    }

    #[tokio::test]
    async fn an_idle_stream_looks_at_the_clock_once_a_minute_and_one_with_something_due_soon() {
        const INTERVAL: Duration = Duration::from_secs(600);
        let election = Duration::from_millis(400);
        let mut clock = Clock::new(INTERVAL, election, false);
        let start = clock.ticked;
        let after = |clock: &Clock, now: Instant| clock.sleep.deadline().saturating_duration_since(now);
        let second = Duration::from_secs(1);
        assert!(after(&clock, start) > CALM - second && after(&clock, start) < CALM + second);
        // A turn in which nothing became due changes nothing.
        clock.hurry(start, false, false);
        assert!(after(&clock, start) > CALM - second);
        clock.hurry(start, false, true);
        assert_eq!(after(&clock, start), election, "what is held may have to go");
        clock.hurry(start, true, false);
        assert_eq!(after(&clock, start), SOON, "a tick is waited for");
        // It is never put off, and all of the time that went by is told once.
        clock.hurry(start + second, false, true);
        assert_eq!(after(&clock, start), SOON);
        assert_eq!(clock.ticks(start + Duration::from_millis(255), true), 25);
        assert_eq!(after(&clock, start + Duration::from_millis(255)), election);
        let late = start + Duration::from_secs(60);
        assert_eq!(clock.ticks(late, false), 6000 - 25);
        assert_eq!(after(&clock, late), CALM, "calm again");

        let wants = Clock::new(INTERVAL, election, true);
        assert!(after(&wants, wants.ticked) <= election + second, "it must notice that there is no leader");
        let short = Clock::new(Duration::from_millis(200), election, false);
        assert!(after(&short, short.ticked) <= Duration::from_millis(20) + second, "a tenth of the interval");
    }

    #[test]
    fn notices_are_spread_by_a_tenth_at_most() {
        let interval = Duration::from_secs(600);
        let all: std::collections::BTreeSet<_> = (0..1000).map(|id| spread(interval, id)).collect();
        assert!(all.len() > 50);
        assert!(all.iter().all(|d| *d >= interval && *d < interval + interval / 10));
    }
}
