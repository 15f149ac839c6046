//! One watch stream of one client, sans-IO: run by the connection thread and by the simulator.
//!
//! The stream stands between three parties. The *client* creates and cancels watches and
//! reads at its own speed. The *core* alone knows which watches are live. *History* feeds
//! those that are behind. A watch goes round between four states:
//!
//! ```text
//!   create ──► Joining ── Joined ──► Live ── over budget ──► Waiting ── room ──► Joining
//!                 ▲  └─── Behind ──► Behind ── history reached the head ──► Waiting
//!                 └──────────────── Live (AllBehind)
//! ```
//!
//! Rules that everything here serves:
//! - `next` of a watch is the first revision that was not queued for its client. It moves only
//!   together with the queue, so no event is lost or doubled, wherever the watch is.
//! - Every join has a new name (the id in `WatchOp`), so what the core had already posted to an
//!   earlier life of a watch, or to an earlier watch of the same id, finds no one.
//! - Progress passes through the core and then through the same queue as the events. It is
//!   dropped as soon as events before it are, or while one watch is not live, as in etcd.

mod few;
mod message;
mod outbox;

pub use message::{CreateRequest, FromClient, OutEvent, Response, StreamOut};

use crate::io::{History, Refusal, ToStream, WatchOp, WatchSpec};
use few::Few;
use message::Picked;
use outbox::{Batch, Outbox};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{KeyRange, RevisionEvents};

/// Most revisions in one response of a watch that catches up.
const CATCH_UP_REVISIONS: usize = 1000;
/// History that was found damaged is read again after a wait that doubles: another member mends it
/// soon, a compaction may drop it, or a snapshot of the leader replace it. 100 ms and 10 s, in
/// ticks.
const DAMAGE_WAITS: u32 = 10;
const DAMAGE_WAITS_MOST: u32 = 1000;
/// Watches that are fed from one piece of history, times its events: so many looks, or one watch.
/// The others are fed from the next one, which is the same piece, when all else had its turn.
const LOOKS: usize = 200_000;
/// What a watch takes beside its keys, here and in the core. Bytes, about.
const WATCH_BYTES: usize = 512;
/// So close to the newest revision a watch that is behind asks the ring for the rest.
const NEAR_REVISIONS: i64 = (store::watch::JOIN_REVISIONS / 4) as i64;
/// Joins of watches that were behind, at one time: each answer may hold a part of the ring.
const REJOINS: usize = 32;
/// Unanswered progress requests of a stream; more are dropped.
const PROGRESS_REQUESTS: usize = 64;
/// Checks in a row without a leader that end a stream which wants one.
const LEADERLESS_CHECKS: u32 = 3;

const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";
const EMPTY_RANGE: &str = "mvcc: watcher range is empty";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Bounds of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes held for the client, queued and handed over together. A single response may exceed it.
    pub buffer_bytes: usize,
    /// Responses of a watch with `fragment` stay below this if they have two events or more
    /// (etcd: max-request-bytes + 512 KiB).
    pub fragment_bytes: usize,
    /// Ticks between periodic progress notices (with the driver's jitter).
    pub progress_interval_ticks: u32,
}

/// See the module's page.
#[derive(Debug)]
pub struct WatchStream {
    limits: Limits,
    watches: Few<Box<Watch>>,
    /// What they take.
    kept: usize,
    /// Names of joins that are asked for or live, and whose they are.
    joins: Few<i64>,
    next_join: i64,
    next_auto_id: i64,
    /// (next, id) of watches that wait for room to join.
    waiting: BTreeSet<(i64, i64)>,
    /// (next, id) of watches that history must feed.
    behind: BTreeSet<(i64, i64)>,
    /// Watches in state Joining.
    joining: usize,
    reading: Option<Reading>,
    /// History had nothing, or was refused: not again before the next tick.
    history_rests: bool,
    /// No watch can join below this revision, as the core said.
    ring: i64,
    /// Ticks for which history is not asked, because a piece of it was found damaged.
    history_waits: u32,
    /// How long that was the last time, until a piece is whole. Ticks.
    history_waited: u32,
    questions: BTreeMap<u64, Question>,
    next_token: u64,
    /// Newest revision the stream has heard of.
    seen: i64,
    outbox: Outbox,
    progress_ticks: u32,
    leader: Leader,
    ended: bool,
}

#[derive(Debug)]
struct Watch {
    spec: WatchSpec,
    /// See [`WatchStream::kept`].
    cost: usize,
    /// As asked: 0 = from creation on.
    start: i64,
    next: i64,
    state: State,
    fragment: bool,
    progress_notify: bool,
    /// No event was queued for it since the last progress interval began.
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Joining {
        join: i64,
    },
    Live {
        join: i64,
    },
    Waiting,
    Behind,
    /// Canceled by compaction. The id stays taken until the client cancels it.
    Compacted,
}

/// A request for history on its way.
#[derive(Clone, Copy, Debug)]
struct Reading {
    from: i64,
    prev: bool,
}

/// What a progress token was asked for.
#[derive(Debug)]
enum Question {
    WholeStream,
    Watches(Vec<i64>),
}

/// Watching over the leader, for streams that asked for one.
#[derive(Debug)]
struct Leader {
    known: bool,
    /// Ticks between checks; 0 = the stream does not care.
    check_ticks: u32,
    ticks: u32,
    missed: u32,
}

impl CreateRequest {
    /// What the watch would take until it is cancelled. Bytes, about.
    pub fn cost(&self) -> usize {
        WATCH_BYTES + self.key.len() + self.range_end.len()
    }
}

impl WatchStream {
    /// `revision_now`: the newest revision this member has published to any client.
    pub fn new(limits: Limits, revision_now: i64) -> WatchStream {
        WatchStream {
            watches: Few::None,
            kept: 0,
            joins: Few::None,
            next_join: 0,
            next_auto_id: 0,
            waiting: BTreeSet::new(),
            behind: BTreeSet::new(),
            joining: 0,
            reading: None,
            history_rests: false,
            ring: 0,
            history_waits: 0,
            history_waited: 0,
            questions: BTreeMap::new(),
            next_token: 0,
            seen: revision_now,
            outbox: Outbox::new(limits.buffer_bytes, limits.fragment_bytes),
            progress_ticks: 0,
            leader: Leader { known: true, check_ticks: 0, ticks: 0, missed: 0 },
            ended: false,
            limits,
        }
    }

    /// For a client that sent `hasleader`: three checks without a leader, `check_ticks`
    /// (one election timeout) apart, end the stream with `Refusal::NoLeader`.
    pub fn require_leader(&mut self, check_ticks: u32) {
        self.leader.check_ticks = check_ticks.max(1);
    }

    /// `revision_now`: the newest revision this member has answered to any client, at least.
    /// A watch without a start revision begins just after it.
    pub fn client(&mut self, from: FromClient, revision_now: i64, out: &mut Vec<StreamOut>) {
        if self.ended {
            return;
        }
        self.seen = self.seen.max(revision_now);
        match from {
            FromClient::Create(request) => self.create(request, out),
            FromClient::Refuse { reason } => self.refuse(&reason),
            FromClient::Cancel { id } => self.cancel(id, out),
            FromClient::Progress => self.ask_progress(out),
        }
        self.pump(out);
    }

    pub fn core(&mut self, message: ToStream, out: &mut Vec<StreamOut>) {
        if self.ended {
            return;
        }
        match message {
            ToStream::Joined { id: join, revision, missed } => self.on_joined(join, revision, &missed, out),
            ToStream::Behind { id: join, revision, ring } => self.on_behind(join, revision, ring),
            ToStream::Compacted { id: join, compacted } => self.on_compacted(join, compacted),
            ToStream::Events { id: join, events, picks } => self.on_events(join, Picked { events, picks }, out),
            ToStream::Progress { token, revision } => self.on_progress(token, revision),
            ToStream::Leader { known } => self.leader.known = known,
            ToStream::AllBehind { posted } => self.on_all_behind(posted, out),
        }
        self.pump(out);
    }

    /// The answer to the one `AskHistory` that is out.
    pub fn history(&mut self, answer: Result<History, Refusal>, out: &mut Vec<StreamOut>) {
        if self.ended {
            return;
        }
        let reading = self.reading.take().expect("watch stream: history that was not asked for");
        match answer {
            Ok(history) => {
                self.history_waited = 0;
                self.on_history(reading, &history);
            }
            Err(refusal) => {
                self.history_rests = true;
                match refusal {
                    // Joining tells each of them how far the compaction went.
                    Refusal::User(store::Error::Compacted) => self.behind_to_waiting(i64::MIN),
                    Refusal::User(store::Error::Corrupt) => {
                        self.history_waited = (2 * self.history_waited).clamp(DAMAGE_WAITS, DAMAGE_WAITS_MOST);
                        self.history_waits = self.history_waited;
                    }
                    _ => {}
                }
            }
        }
        self.pump(out);
    }

    /// The transport took responses of so many bytes in all (`Response::bytes`).
    pub fn sent(&mut self, bytes: usize, out: &mut Vec<StreamOut>) {
        self.outbox.taken(bytes);
        if !self.ended {
            self.pump(out);
        }
    }

    /// So many times 10 ms went by.
    pub fn ticks(&mut self, count: u32, out: &mut Vec<StreamOut>) {
        if self.ended || count == 0 {
            return;
        }
        self.history_waits = self.history_waits.saturating_sub(count);
        self.history_rests = self.history_waits > 0;
        if self.leader.ticks(count) {
            self.end(Refusal::NoLeader, out);
            return;
        }
        self.progress_ticks = self.progress_ticks.saturating_add(count);
        if self.progress_ticks >= self.limits.progress_interval_ticks {
            self.progress_ticks = 0;
            self.ask_periodic_progress(out);
        }
        self.pump(out);
    }

    /// The client or the connection is gone, or the stream must end with `Refusal`.
    pub fn end(&mut self, refusal: Refusal, out: &mut Vec<StreamOut>) {
        if !self.ended {
            self.ended = true;
            out.push(StreamOut::Ask(WatchOp::Close));
            out.push(StreamOut::End(refusal));
        }
    }

    /// Bytes held for the client, queued and handed over together.
    pub fn held(&self) -> usize {
        self.outbox.held()
    }

    /// What the watches of the stream take, as [`CreateRequest::cost`] counts it.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Events that wait for the client to read.
    pub fn waiting_events(&self) -> usize {
        self.outbox.waiting_events()
    }

    /// Watches that are not told of events as they are applied: history feeds them, or they wait
    /// for room.
    pub fn behind(&self) -> usize {
        self.behind.len() + self.waiting.len()
    }

    /// False: nothing waits for the transport, so that what it took need be told only by and by.
    pub fn is_pressed(&self) -> bool {
        self.outbox.is_pressed()
    }

    /// The stream waits for a tick to go on.
    pub fn rests(&self) -> bool {
        self.history_rests
    }

    /// From now on the stream may hold so much. True: that is another bound than before.
    pub fn set_buffer(&mut self, bytes: usize) -> bool {
        self.outbox.set_budget(bytes)
    }

    /// True while the client should not be read: it asks faster than it listens.
    pub fn is_full(&self) -> bool {
        self.outbox.is_over()
    }

    /// Watches of the stream, those ended by compaction excepted.
    pub fn count(&self) -> usize {
        self.watches.values().filter(|watch| watch.state != State::Compacted).count()
    }

    fn create(&mut self, request: CreateRequest, out: &mut Vec<StreamOut>) {
        if request.start_revision < 0 {
            return self.refuse(COMPACTED);
        }
        let key: &[u8] = if request.key.is_empty() { b"\0" } else { &request.key };
        let range = KeyRange::new(key, &request.range_end);
        if range.is_empty() {
            return self.refuse(EMPTY_RANGE);
        }
        let id = match request.watch_id {
            0 => self.free_id(),
            chosen if self.watches.contains_key(&chosen) => return self.refuse(DUPLICATE_ID),
            chosen => chosen,
        };
        let start = request.start_revision;
        self.kept += request.cost();
        let watch = Watch {
            spec: WatchSpec { range, no_put: request.no_put, no_delete: request.no_delete, prev_kv: request.prev_kv },
            cost: request.cost(),
            start,
            next: if start == 0 { self.seen + 1 } else { start },
            state: State::Waiting,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            quiet: true,
        };
        self.watches.insert(id, Box::new(watch));
        self.outbox.control(Response {
            header_revision: self.seen,
            watch_id: id,
            created: true,
            ..Response::default()
        });
        self.join(id, out);
    }

    fn free_id(&mut self) -> i64 {
        while self.watches.contains_key(&self.next_auto_id) {
            self.next_auto_id += 1;
        }
        self.next_auto_id += 1;
        self.next_auto_id - 1
    }

    fn refuse(&mut self, reason: &str) {
        self.outbox.control(Response {
            header_revision: self.seen,
            watch_id: -1,
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..Response::default()
        });
    }

    fn cancel(&mut self, id: i64, out: &mut Vec<StreamOut>) {
        let Some(watch) = self.watches.remove(&id) else { return };
        self.kept -= watch.cost;
        self.leave_state(id, watch.state, watch.next, out);
        self.drop_queued(id);
        self.outbox.control(Response {
            header_revision: self.seen,
            watch_id: id,
            canceled: true,
            ..Response::default()
        });
    }

    /// Undoes what a state holds elsewhere. The caller sets the next one.
    fn leave_state(&mut self, id: i64, state: State, next: i64, out: &mut Vec<StreamOut>) {
        match state {
            State::Joining { join } | State::Live { join } => {
                self.joins.remove(&join);
                self.joining -= usize::from(state == State::Joining { join });
                out.push(StreamOut::Ask(WatchOp::Remove { id: join }));
            }
            State::Waiting => assert!(self.waiting.remove(&(next, id))),
            State::Behind => assert!(self.behind.remove(&(next, id))),
            State::Compacted => {}
        }
    }

    fn join(&mut self, id: i64, out: &mut Vec<StreamOut>) {
        let join = self.next_join;
        self.next_join += 1;
        let watch = self.watches.get_mut(&id).expect("joined by its id");
        watch.state = State::Joining { join };
        self.joining += 1;
        self.joins.insert(join, id);
        out.push(StreamOut::Ask(WatchOp::Join { id: join, spec: watch.spec.clone(), next: watch.next }));
    }

    fn wait(&mut self, id: i64, next: i64) {
        let watch = self.watches.get_mut(&id).expect("waits by its id");
        (watch.state, watch.next) = (State::Waiting, next);
        self.waiting.insert((next, id));
    }

    /// The watch that asked to join under this name; None if it was canceled or demoted since.
    fn joined_watch(&mut self, join: i64) -> Option<(i64, &mut Watch)> {
        let id = *self.joins.get(&join)?;
        Some((id, self.watches.get_mut(&id).expect("a join belongs to a watch")))
    }

    /// As `joined_watch`, for the one answer to a join.
    fn answered(&mut self, join: i64) -> Option<(i64, &mut Watch)> {
        let id = *self.joins.get(&join)?;
        let watch = self.watches.get_mut(&id).expect("a join belongs to a watch");
        assert_eq!(watch.state, State::Joining { join }, "watch stream: a join was answered twice");
        self.joining -= 1;
        Some((id, watch))
    }

    fn on_joined(&mut self, join: i64, revision: i64, missed: &[Arc<RevisionEvents>], out: &mut Vec<StreamOut>) {
        self.seen = self.seen.max(revision);
        let Some((id, watch)) = self.answered(join) else { return };
        watch.state = State::Live { join };
        match self.feed(id, missed, revision) {
            Ok(()) => self.advance(id, revision + 1),
            Err(unqueued) => self.leave_core(id, unqueued, out),
        }
    }

    fn on_behind(&mut self, join: i64, revision: i64, ring: i64) {
        self.seen = self.seen.max(revision);
        self.ring = self.ring.max(ring);
        let Some((id, watch)) = self.answered(join) else { return };
        watch.state = State::Behind;
        let next = watch.next;
        self.joins.remove(&join);
        self.behind.insert((next, id));
    }

    fn on_compacted(&mut self, join: i64, compacted: i64) {
        let Some((id, _)) = self.answered(join) else { return };
        self.joins.remove(&join);
        self.compact(id, compacted);
    }

    fn on_events(&mut self, join: i64, picked: Picked, out: &mut Vec<StreamOut>) {
        let revision = picked.events.revision;
        self.seen = self.seen.max(revision);
        let Some((id, watch)) = self.joined_watch(join) else { return };
        assert_eq!(watch.state, State::Live { join }, "watch stream: events for a watch that is not live");
        assert!(revision >= watch.next, "watch stream: an event came twice or too early");
        let batch = watch.batch(id, revision, vec![picked]);
        if self.outbox.has_room(batch.bytes) {
            self.queue(batch);
            self.advance(id, revision + 1);
        } else {
            self.demote(id, revision, out);
        }
    }

    fn on_progress(&mut self, token: u64, revision: i64) {
        self.seen = self.seen.max(revision);
        match self.questions.remove(&token) {
            Some(Question::WholeStream) => {
                let mut watches = self.watches.values().filter(|watch| watch.state != State::Compacted).peekable();
                if watches.peek().is_some() && watches.all(|watch| watch.is_synced(revision)) {
                    self.outbox.progress(None, revision);
                }
            }
            Some(Question::Watches(ids)) => {
                for id in ids {
                    if self.watches.get(&id).is_some_and(|watch| watch.quiet && watch.is_synced(revision)) {
                        self.outbox.progress(Some(id), revision);
                    }
                }
            }
            None => {}
        }
    }

    /// The core forgot its watches. Live ones were told of everything up to `posted`; a join
    /// that is not answered yet was asked after the loss, and its answer still comes.
    fn on_all_behind(&mut self, posted: i64, out: &mut Vec<StreamOut>) {
        self.seen = self.seen.max(posted);
        let live = |watch: &Watch| match watch.state {
            State::Live { join } => Some(join),
            _ => None,
        };
        let lost: Vec<(i64, i64)> = self.watches.iter().filter_map(|(&id, watch)| Some((id, live(watch)?))).collect();
        for (id, join) in lost {
            self.joins.remove(&join);
            self.advance(id, posted + 1);
            self.join(id, out);
        }
    }

    fn on_history(&mut self, reading: Reading, history: &History) {
        assert!(history.next >= reading.from, "watch stream: history went backwards");
        // Under steady writes the head has moved on since the reading: near must do.
        let at_head = history.revisions.is_empty() || self.seen - history.next < NEAR_REVISIONS;
        self.history_rests = history.revisions.is_empty();
        self.seen = self.seen.max(history.next - 1);
        while let Some(&(next, id)) = self.behind.first()
            && next < history.compacted
        {
            self.behind.remove(&(next, id));
            self.compact(id, history.compacted);
        }
        let events: usize = history.revisions.iter().map(|revision| revision.events.len()).sum();
        let most = (LOOKS / events.max(1)).max(1);
        let concerned = self.behind.range((reading.from, i64::MIN)..(history.next, i64::MIN));
        let fed: Vec<(i64, i64)> = concerned.take(most).copied().collect();
        for (next, id) in fed {
            if self.watches[&id].spec.prev_kv && !reading.prev {
                continue;
            }
            let result = self.feed(id, &history.revisions, self.seen);
            self.behind.remove(&(next, id));
            self.advance(id, result.err().unwrap_or(history.next));
            self.behind.insert((self.watches[&id].next, id));
            if result.is_err() {
                break;
            }
        }
        if at_head {
            // Below the ring the core would only say once more that the watch is behind.
            let ring = if history.revisions.is_empty() { i64::MIN } else { self.ring };
            self.behind_to_waiting(history.next.max(ring));
        }
    }

    fn behind_to_waiting(&mut self, from: i64) {
        for (next, id) in self.behind.split_off(&(from, i64::MIN)) {
            self.wait(id, next);
        }
    }

    /// Queues what concerns the watch of these whole revisions, from its `next` on.
    /// Err: the first revision for which there was no room.
    fn feed(&mut self, id: i64, revisions: &[Arc<RevisionEvents>], header_revision: i64) -> Result<(), i64> {
        let watch = &self.watches[&id];
        let mut batches = Vec::new();
        let mut open: Vec<Picked> = Vec::new();
        let mut bytes = 0;
        for events in revisions.iter().filter(|events| events.revision >= watch.next) {
            let Some(picked) = watch.pick(events) else { continue };
            bytes += picked.encoded_len(watch.spec.prev_kv);
            open.push(picked);
            if open.len() == CATCH_UP_REVISIONS || bytes >= self.outbox.budget() / 8 {
                batches.push(watch.batch(id, header_revision, std::mem::take(&mut open)));
                bytes = 0;
            }
        }
        if !open.is_empty() {
            batches.push(watch.batch(id, header_revision, open));
        }
        for batch in batches {
            if !self.outbox.has_room(batch.bytes) {
                return Err(batch.revisions[0].events.revision);
            }
            self.queue(batch);
        }
        Ok(())
    }

    fn queue(&mut self, batch: Batch) {
        self.watches.get_mut(&batch.watch).expect("queued by its id").quiet = false;
        self.outbox.events(batch);
    }

    fn advance(&mut self, id: i64, next: i64) {
        let watch = self.watches.get_mut(&id).expect("advanced by its id");
        watch.next = watch.next.max(next);
    }

    /// A live watch whose client does not keep up: what is queued for it is dropped, and it
    /// goes on later from the first revision its client was not given.
    fn demote(&mut self, id: i64, unqueued: i64, out: &mut Vec<StreamOut>) {
        let dropped = self.drop_queued(id);
        self.leave_core(id, dropped.unwrap_or(unqueued), out);
    }

    /// Drops what is queued for a watch and, as it would overtake that, the progress of the
    /// stream. Returns the first revision dropped.
    fn drop_queued(&mut self, id: i64) -> Option<i64> {
        let dropped = self.outbox.drop_watch(id);
        if dropped.is_some() {
            self.outbox.drop_progress();
        }
        dropped
    }

    /// Takes a watch out of the core until there is room; it goes on from `next`.
    fn leave_core(&mut self, id: i64, next: i64, out: &mut Vec<StreamOut>) {
        let watch = &self.watches[&id];
        self.leave_state(id, watch.state, watch.next, out);
        self.wait(id, next);
    }

    /// Compaction overtook the watch. Its sets were left by the caller.
    fn compact(&mut self, id: i64, compacted: i64) {
        self.watches.get_mut(&id).expect("compacted by its id").state = State::Compacted;
        self.outbox.control(Response {
            watch_id: id,
            canceled: true,
            compact_revision: compacted,
            ..Response::default()
        });
    }

    fn ask_progress(&mut self, out: &mut Vec<StreamOut>) {
        let late = !self.waiting.is_empty() || !self.behind.is_empty();
        if late || self.watches.is_empty() || self.questions.len() >= PROGRESS_REQUESTS {
            return;
        }
        self.ask(Question::WholeStream, out);
    }

    fn ask_periodic_progress(&mut self, out: &mut Vec<StreamOut>) {
        let mut due = Vec::new();
        for (&id, watch) in self.watches.iter_mut().filter(|(_, watch)| watch.progress_notify) {
            if watch.quiet && matches!(watch.state, State::Live { .. }) {
                due.push(id);
            }
            watch.quiet = true;
        }
        if !due.is_empty() {
            self.ask(Question::Watches(due), out);
        }
    }

    fn ask(&mut self, question: Question, out: &mut Vec<StreamOut>) {
        let token = self.next_token;
        self.next_token += 1;
        self.questions.insert(token, question);
        out.push(StreamOut::Ask(WatchOp::Progress { token }));
    }

    /// Hands over what the transport has room for; with room left, late watches go on.
    fn pump(&mut self, out: &mut Vec<StreamOut>) {
        while let Some(response) = self.outbox.pop() {
            out.push(StreamOut::Respond(response));
        }
        if !self.outbox.is_drained() {
            return;
        }
        while self.joining < REJOINS
            && let Some((_, id)) = self.waiting.pop_first()
        {
            self.join(id, out);
        }
        if let Some(&(from, _)) = self.behind.first()
            && self.reading.is_none()
            && !self.history_rests
        {
            let prev = self.behind.iter().any(|(_, id)| self.watches[id].spec.prev_kv);
            self.reading = Some(Reading { from, prev });
            out.push(StreamOut::AskHistory { from, prev });
        }
    }
}

impl Watch {
    /// Everything up to `revision` was queued for it, if the core says that it posted so far.
    fn is_synced(&self, revision: i64) -> bool {
        matches!(self.state, State::Live { .. }) && self.start <= revision
    }

    /// The events of one revision that the watch wants.
    fn pick(&self, events: &Arc<RevisionEvents>) -> Option<Picked> {
        let wanted = |event: &store::Event| {
            let filtered = if event.tombstone { self.spec.no_delete } else { self.spec.no_put };
            !filtered && self.spec.range.contains(&event.key)
        };
        let picks: Arc<[u32]> =
            (0u32..).zip(&events.events).filter(|(_, event)| wanted(event)).map(|(index, _)| index).collect();
        (!picks.is_empty()).then(|| Picked { events: Arc::clone(events), picks })
    }

    fn batch(&self, id: i64, header_revision: i64, revisions: Vec<Picked>) -> Batch {
        Batch {
            watch: id,
            header_revision,
            bytes: revisions.iter().map(|picked| picked.encoded_len(self.spec.prev_kv)).sum(),
            revisions,
            prev_kv: self.spec.prev_kv,
            fragment: self.fragment,
        }
    }
}

impl Leader {
    /// True when the last of the checks failed.
    fn ticks(&mut self, count: u32) -> bool {
        if self.check_ticks == 0 {
            return false;
        }
        self.ticks = self.ticks.saturating_add(count);
        if self.ticks >= self.check_ticks {
            self.ticks = 0;
            self.missed = if self.known { 0 } else { self.missed + 1 };
        }
        self.missed >= LEADERLESS_CHECKS
    }
}
