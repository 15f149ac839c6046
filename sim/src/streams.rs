//! Watch streams at work: the connection thread's half of watching, with delays between it and
//! the core, clients that stop reading, and members that die under them.

use crate::client::Ask;
use crate::clients::Reader;
use crate::cluster::{Event, Installing, Sim};
use crate::plan::{MS, SECOND};
use crate::planted::Planted;
use crate::trace::Time;
use crate::watcher::Watcher;
use bytes::Bytes;
use disk::fetch::{Fetched, Wanted, fetch};
use node::watch::{CreateRequest, FromClient, Limits, Response, StreamOut, WatchStream};
use node::{Answer, History, Input, Refusal, Request, StreamId, ToStream, WatchOp};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a stream hears, in the order of arrival.
pub(crate) enum Heard {
    Core(ToStream),
    Client(FromClient),
    History(Result<History, Refusal>),
    Tick,
}

pub(crate) struct Stream {
    stream: WatchStream,
    watcher: Watcher,
    inbox: VecDeque<Heard>,
    wake_set: bool,
    /// The client does not read before this time.
    stalled_until: Time,
    /// When it was last sent events.
    fed: Time,
}

/// Every watch is to have everything so long after the members are equal. A stream of many watches
/// gets a second more for so many events that they may have asked for.
const ALL_FED: Time = 60 * SECOND;
const FED_RATE: u64 = 2_000;
/// A stream that still owes its client something sends something in this time.
const FED_AGAIN: Time = 2 * SECOND;

impl Stream {
    /// True when a watch waits for a revision above `revision`.
    pub fn waits_beyond(&self, revision: i64) -> bool {
        self.watcher.watches.values().any(|w| w.next > revision + 1)
    }
}

impl Sim {
    /// Requests that go over a stream; true when `ask` was one.
    pub(crate) fn ask_stream(&mut self, who: usize, ask: &Ask) -> bool {
        let message = match ask {
            Ask::Watch(create) => {
                let stream = self.stream_for(who);
                return self.create_watch(who, stream, create.clone());
            }
            Ask::CancelWatch { nth } => {
                let Some((stream, id)) = self.some_watch(who, *nth) else { return true };
                let watcher =
                    &mut self.members[who].up.as_mut().expect("up").streams.get_mut(&stream).expect("there").watcher;
                if let Some(watch) = watcher.watches.get_mut(&id).or_else(|| watcher.compacted.get_mut(&id)) {
                    watch.cancel_sent = true;
                }
                (stream, FromClient::Cancel { id })
            }
            Ask::WatchProgress => {
                let Some(&stream) = self.members[who].up.as_ref().expect("up").streams.keys().next() else {
                    return true;
                };
                (stream, FromClient::Progress)
            }
            _ => return false,
        };
        self.hear(who, message.0, Heard::Client(message.1));
        true
    }

    fn create_watch(&mut self, who: usize, stream: StreamId, create: CreateRequest) -> bool {
        let watcher = &mut self.members[who].up.as_mut().expect("up").streams.get_mut(&stream).expect("there").watcher;
        watcher.asked(create.clone());
        self.hear(who, stream, Heard::Client(FromClient::Create(create)));
        true
    }

    fn some_watch(&self, who: usize, nth: u64) -> Option<(StreamId, i64)> {
        let streams = &self.members[who].up.as_ref()?.streams;
        let all: Vec<(StreamId, i64)> = streams
            .iter()
            .flat_map(|(id, s)| {
                s.watcher
                    .watches
                    .iter()
                    .chain(&s.watcher.compacted)
                    .filter(|(_, w)| !w.cancel_sent)
                    .map(move |(w, _)| (*id, *w))
            })
            .collect();
        (!all.is_empty()).then(|| all[(nth % all.len() as u64) as usize])
    }

    /// One of the member's streams, or a new one.
    fn stream_for(&mut self, who: usize) -> StreamId {
        let most = self.plan.workload.streams;
        let life = self.members[who].up.as_ref().expect("up");
        if life.streams.len() >= most {
            let ids: Vec<StreamId> = life.streams.keys().copied().collect();
            return *self.work_rng.pick(&ids);
        }
        let id = self.next_stream;
        self.next_stream += 1;
        let small = self.plan.small_budgets;
        let limits = Limits {
            buffer_bytes: if small { 1_000 } else { 1 << 20 },
            fragment_bytes: if small { 300 } else { 2 << 20 },
            progress_interval_ticks: 100 + self.rng.below(10) as u32,
        };
        let life = self.members[who].up.as_mut().expect("up");
        let stream = WatchStream::new(limits, life.published);
        let stream = Stream {
            stream,
            watcher: Watcher::default(),
            inbox: VecDeque::new(),
            wake_set: false,
            stalled_until: 0,
            fed: 0,
        };
        life.streams.insert(id, stream);
        id
    }

    fn hear(&mut self, who: usize, id: StreamId, heard: Heard) {
        let number = self.members[who].life;
        let frozen = self.members[who].clock.frozen_until;
        let delay = 1 + self.rng.below(2 * MS);
        let Some(life) = self.members[who].up.as_mut() else { return };
        let Some(stream) = life.streams.get_mut(&id) else { return };
        stream.inbox.push_back(heard);
        if !stream.wake_set {
            stream.wake_set = true;
            let at = (self.now + delay).max(frozen);
            self.at(at, Event::Stream { who, life: number, stream: id });
        }
    }

    pub(crate) fn tell_stream(&mut self, who: usize, id: StreamId, message: ToStream) {
        self.tell(Some(who), "watch", id, watch_word(&message), || format!("s{id} {message:?}"));
        let planted = self.planted;
        let one_in_40 = matches!(planted, Some(Planted::WatchDrops | Planted::WatchDoubles)) && self.rng.below(40) == 0;
        let events = matches!(message, ToStream::Events { .. });
        match planted {
            Some(Planted::WatchDrops) if events && one_in_40 => return,
            Some(Planted::WatchDoubles) if events && one_in_40 => self.hear(who, id, Heard::Core(message.clone())),
            Some(Planted::WatchSwaps) if events => {
                let inbox = &mut match self.members[who].up.as_mut().expect("up").streams.get_mut(&id) {
                    Some(stream) => stream,
                    None => return,
                }
                .inbox;
                if let Some(Heard::Core(ToStream::Events { .. })) = inbox.back() {
                    let last = inbox.pop_back().expect("there");
                    inbox.push_back(Heard::Core(message));
                    inbox.push_back(last);
                    return;
                }
            }
            Some(Planted::WatchSplits) => {
                if let ToStream::Events { id: watch, events, picks } = &message
                    && picks.len() > 1
                {
                    for part in [&picks[..1], &picks[1..]] {
                        let half = ToStream::Events { id: *watch, events: events.clone(), picks: part.into() };
                        self.hear(who, id, Heard::Core(half));
                    }
                    return;
                }
            }
            _ => {}
        }
        let message = match message {
            ToStream::Progress { token, revision } if planted == Some(Planted::ProgressEarly) => {
                ToStream::Progress { token, revision: revision + 1 }
            }
            message => message,
        };
        self.hear(who, id, Heard::Core(message));
    }

    pub(crate) fn tick_streams(&mut self, who: usize) {
        let Some(life) = self.members[who].up.as_ref() else { return };
        let ids: Vec<StreamId> = life.streams.keys().copied().collect();
        for id in ids {
            self.hear(who, id, Heard::Tick);
        }
    }

    pub(crate) fn tell_streams_leader(&mut self, who: usize, known: bool) {
        let Some(life) = self.members[who].up.as_ref() else { return };
        let ids: Vec<StreamId> = life.streams.keys().copied().collect();
        for id in ids {
            self.hear(who, id, Heard::Core(ToStream::Leader { known }));
        }
    }

    pub(crate) fn run_stream(&mut self, who: usize, id: StreamId) {
        let number = self.members[who].life;
        let frozen = self.members[who].clock.frozen_until;
        if self.now < frozen {
            return self.at(frozen, Event::Stream { who, life: number, stream: id });
        }
        let Some(life) = self.members[who].up.as_mut() else { return };
        let published = life.published;
        let Some(stream) = life.streams.get_mut(&id) else { return };
        stream.wake_set = false;
        let mut out = Vec::new();
        let heard = std::mem::take(&mut stream.inbox);
        let done = crate::panics::guarded(|| {
            for heard in heard {
                match heard {
                    Heard::Core(message) => stream.stream.core(message, &mut out),
                    Heard::Client(message) => stream.stream.client(message, published, &mut out),
                    Heard::History(answer) => stream.stream.history(answer, &mut out),
                    Heard::Tick => stream.stream.ticks(1, &mut out),
                }
            }
        });
        if let Err(panic) = done {
            return self.fail("panic", format!("m{} watch stream: {panic}", who + 1));
        }
        self.stream_outputs(who, id, out);
    }

    fn stream_outputs(&mut self, who: usize, id: StreamId, out: Vec<StreamOut>) {
        for output in out {
            match output {
                StreamOut::Respond(response) => self.respond(who, id, response),
                StreamOut::Ask(op) => {
                    let op = self.plant_in_join(op);
                    self.give(who, Input::Watch { stream: id, op });
                }
                StreamOut::AskHistory { from, prev } => {
                    let waiter = self.waiter(who, Reader::History { stream: id });
                    self.give(
                        who,
                        Input::Request { waiter, who: self.staff(), request: Request::History { from, prev } },
                    );
                }
                StreamOut::End(_) => {
                    let stream = self.members[who].up.as_mut().and_then(|l| l.streams.remove(&id));
                    if let Some(stream) = stream {
                        self.orphan_stream(stream);
                    }
                    return;
                }
            }
            if self.oracle.failed() {
                return;
            }
        }
    }

    fn plant_in_join(&mut self, op: WatchOp) -> WatchOp {
        match op {
            WatchOp::Join { id, spec, next } if self.is(Planted::WatchStartsLate) => {
                WatchOp::Join { id, spec, next: next + 1 }
            }
            op => op,
        }
    }

    /// What a watch stream says to its client; and what it says behind that.
    fn plant_in_response(&self, who: usize, id: u64, response: &mut Response) -> Option<Response> {
        if self.is(Planted::CompactedTooSoon) && response.canceled && response.compact_revision > 0 {
            let stream = self.members[who].up.as_ref()?.streams.get(&id)?;
            response.compact_revision = stream.watcher.watches.get(&response.watch_id)?.next;
        }
        let begins = self.is(Planted::ProgressTooSoon) && response.created && !response.canceled;
        begins.then(|| Response { created: false, bytes: 0, header_revision: 1, ..response.clone() })
    }

    fn respond(&mut self, who: usize, id: StreamId, mut response: Response) {
        let more = self.plant_in_response(who, id, &mut response);
        self.tell(Some(who), "respond", id, response.header_revision as u64, || format!("s{id} {}", short(&response)));
        // Its watchers are those of another cluster.
        if self.is_foreign(who) {
            return;
        }
        let number = self.members[who].life;
        let now = self.now;
        let Some(life) = self.members[who].up.as_mut() else { return };
        let Some(stream) = life.streams.get_mut(&id) else { return };
        let mut watcher = std::mem::take(&mut stream.watcher);
        if !response.events.is_empty() {
            stream.fed = now;
        }
        if self.plan.workload.stalls && self.phase == crate::run::Phase::Safety && self.rng.per_myriad(80) {
            stream.stalled_until = now + self.rng.below(3 * SECOND);
        }
        let at = (now + self.rng.below(3 * MS)).max(stream.stalled_until);
        self.at(at, Event::Taken { who, life: number, stream: id, bytes: response.bytes });
        self.response_marks(&response, &watcher);
        let files = Arc::clone(&self.members[who].files);
        let (mut from_file, mut gone, mut unread) = (false, false, None);
        let mut read = |located: &store::Located, superseded: i64| match &located.bytes {
            Some(bytes) => crate::watcher::open(bytes).map(Some),
            None => {
                from_file = true;
                let prev = superseded_record(files.as_ref(), located, superseded).map_err(|fault| {
                    let text = fault.to_string();
                    unread = Some(fault);
                    text
                })?;
                gone |= prev.is_none();
                prev.as_ref().map(crate::watcher::open).transpose()
            }
        };
        let judged = watcher.on_response(&response, &self.oracle.model, &mut read);
        let mut installs = false;
        match unread {
            Some(disk::Fault::Refused { .. }) => installs = true,
            Some(fault) => {
                installs = self.members[who].up.as_ref().is_some_and(|life| life.installing == Installing::Swaps);
                self.give(who, Input::Unreadable { fault });
            }
            None => {}
        }
        if from_file {
            self.marks.hit("value read from a file");
        }
        if gone {
            self.marks.hit("prev_kv gone with its segment");
        }
        if let Some(stream) = self.members[who].up.as_mut().and_then(|l| l.streams.get_mut(&id)) {
            stream.watcher = watcher;
        }
        if let Err(("D-5", text)) = &judged
            && (installs || self.reads_may_fail(who))
        {
            // The edge reads it, names it, and ends the stream.
            match installs {
                true => self.marks.hit("a stream met the files of a snapshot"),
                false => self.met_damage(who, text.clone()),
            }
            self.give(who, Input::Watch { stream: id, op: WatchOp::Close });
            if let Some(stream) = self.members[who].up.as_mut().and_then(|l| l.streams.remove(&id)) {
                self.orphan_stream(stream);
            }
            return;
        }
        if let Err((oracle, text)) = judged {
            return self.fail(oracle, format!("m{} s{id}: {text}", who + 1));
        }
        if let Some(more) = more {
            self.respond(who, id, more);
        }
    }

    fn response_marks(&mut self, response: &Response, watcher: &Watcher) {
        if response.fragment {
            self.marks.hit("fragment sent");
        }
        if response.canceled && response.compact_revision > 0 {
            self.marks.hit("watch canceled by compaction");
        }
        if response.watch_id == -1 && !response.created {
            self.marks.hit("progress on request");
        }
        if let Some(watch) = watcher.watches.get(&response.watch_id)
            && let Some(first) = response.events.first()
            && watch.create.start_revision == first.revision.main
            && watch.next == first.revision.main
        {
            self.marks.hit("watch of a future revision fired");
        }
    }

    pub(crate) fn stream_taken(&mut self, who: usize, id: StreamId, bytes: usize) {
        let frozen = self.members[who].clock.frozen_until;
        let life = self.members[who].life;
        if self.now < frozen {
            return self.at(frozen, Event::Taken { who, life, stream: id, bytes });
        }
        let Some(stream) = self.members[who].up.as_mut().and_then(|l| l.streams.get_mut(&id)) else { return };
        let mut out = Vec::new();
        let done = crate::panics::guarded(|| stream.stream.sent(bytes, &mut out));
        if let Err(panic) = done {
            return self.fail("panic", format!("m{} watch stream: {panic}", who + 1));
        }
        self.stream_outputs(who, id, out);
    }

    pub(crate) fn history_answered(&mut self, who: usize, id: StreamId, answer: Answer) {
        let heard = match answer {
            Answer::History(history) => Ok(history),
            Answer::Refused(refusal) => Err(refusal),
            other => return self.fail("W-5", format!("history was answered with {other:?}")),
        };
        self.hear(who, id, Heard::History(heard));
    }

    /// The member died or ended the stream: its client goes on elsewhere, just behind the last
    /// event.
    pub(crate) fn orphan_stream(&mut self, stream: Stream) {
        let serves = |who: &usize| self.members[*who].up.is_some() && !self.is_joining(*who);
        let alive: Vec<usize> = (0..self.members.len()).filter(serves).collect();
        if alive.is_empty() || stream.watcher.watches.is_empty() {
            return;
        }
        let who = *self.rng.pick(&alive);
        let id = self.stream_for(who);
        self.marks.hit("watch resumed on another member");
        for watch in stream.watcher.watches.into_values().filter(|w| !w.cancel_sent) {
            let create = CreateRequest { start_revision: watch.next, watch_id: 0, ..watch.create };
            self.create_watch(who, id, create);
        }
    }

    /// After the faults every watch of a reading client is given everything: true once it is so. A
    /// stream of many watches may need a while, but it goes on. `equal`: since when the members
    /// have the same state.
    pub(crate) fn watches_are_fed(&mut self, equal: Time) -> bool {
        // A lease may have ended this very moment.
        let settled = (1..=self.oracle.last())
            .rev()
            .find(|&index| self.oracle.commit_time(index).is_none_or(|at| at + SECOND <= self.now));
        let last = settled.and_then(|index| self.oracle.model.mark(index)).unwrap_or(self.oracle.model.last());
        let mut late: Option<(Time, String)> = None;
        let mut most = 0;
        for (who, member) in self.members.iter().enumerate() {
            let Some(life) = member.up.as_ref() else { continue };
            // Where history cannot be read the edge ends the stream.
            if self.reads_may_fail(who) {
                continue;
            }
            for (id, stream) in &life.streams {
                most = most.max(stream.watcher.watches.len() as u64 * last.revision as u64);
                for (watch_id, watch) in &stream.watcher.watches {
                    if let Some(missed) = watch.first_match(&self.oracle.model, watch.next, last.revision) {
                        let text = format!(
                            "m{} s{id} watch {watch_id} ({:?}) starves: {missed} was never delivered",
                            who + 1,
                            watch.create
                        );
                        // A thread for files that hangs reads no history.
                        let hung = member.hung.iter().copied().max().unwrap_or(0);
                        late = late.into_iter().chain([(stream.fed.max(hung), text)]).min();
                    }
                }
            }
        }
        match late {
            None => true,
            Some((fed, text)) => {
                // Each of its watches may have asked for all there ever was.
                let all_fed = equal + ALL_FED + most * SECOND / FED_RATE;
                if self.now > all_fed || self.now > fed.max(equal) + FED_AGAIN {
                    self.fail("W-5", text);
                }
                false
            }
        }
    }
}

/// As the server's readers do it.
fn superseded_record(files: &dyn disk::Files, at: &store::Located, by: i64) -> Result<Option<Bytes>, disk::Fault> {
    let wanted = Wanted { place: 0, handle: at.handle, rev: at.rev, superseded: Some(by) };
    let mut found = Fetched::default();
    found.begin(1);
    fetch(files, vec![wanted], &mut found)?;
    Ok(found.find(0).map(Bytes::copy_from_slice))
}

fn watch_word(message: &ToStream) -> u64 {
    match message {
        ToStream::Joined { revision, .. } => *revision as u64,
        ToStream::Behind { revision, .. } => *revision as u64 | 1 << 32,
        ToStream::Compacted { compacted, .. } => *compacted as u64 | 2 << 32,
        ToStream::Events { events, .. } => events.revision as u64 | 3 << 32,
        ToStream::Progress { revision, .. } => *revision as u64 | 4 << 32,
        ToStream::Leader { known } => u64::from(*known) | 5 << 32,
        ToStream::AllBehind { .. } => 6 << 32,
    }
}

fn short(r: &Response) -> String {
    let revisions: Vec<i64> = r.events.iter().map(|e| e.revision.main).collect();
    format!(
        "watch {} header {} created {} canceled {} compact {} fragment {} events {revisions:?}",
        r.watch_id, r.header_revision, r.created, r.canceled, r.compact_revision, r.fragment
    )
}
