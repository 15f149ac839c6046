//! A small world around watch streams: a core made of the real hub and a full history,
//! queues in between that move only when told to, and clients that check what they get.
#![allow(dead_code)]

use bytes::Bytes;
use node::watch::{CreateRequest, FromClient, Limits, OutEvent, Response, StreamOut, WatchStream};
use node::{History, Refusal, ToStream, WatchOp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::record::{self, KeyValueRef};
use store::watch::{Hub, Join, Spec, WatchKey};
use store::{Event, Handle, KeyRange, Located, Rev, RevisionEvents};

/// Put (with a value) or delete (None).
pub type Change = (String, Option<String>);

pub struct World {
    pub hub: Hub,
    /// Every revision ever, from revision 2 on.
    pub log: Vec<Arc<RevisionEvents>>,
    pub compacted: i64,
    state: BTreeMap<String, Version>,
    pub clients: Vec<Client>,
    pub history_chunk: usize,
    /// History is refused.
    pub damaged: bool,
}

struct Version {
    create: i64,
    version: i64,
    record: Bytes,
}

pub struct Client {
    pub stream: WatchStream,
    to_core: VecDeque<WatchOp>,
    from_core: VecDeque<ToStream>,
    reading: Option<(i64, bool)>,
    /// Bytes handed to the transport, response by response.
    pub transport: VecDeque<usize>,
    /// Transport takes nothing.
    pub stalled: bool,
    pub received: Vec<Response>,
    pub ended: Option<Refusal>,
    /// Most bytes the transport ever held.
    pub peak: usize,
    /// How often a watch asked to join.
    pub joins: usize,
}

impl World {
    pub fn new(ring_bytes: usize, limits: &[Limits]) -> World {
        World {
            hub: Hub::new(ring_bytes, 2, 1),
            log: Vec::new(),
            compacted: -1,
            state: BTreeMap::new(),
            clients: limits.iter().map(|limits| Client::new(*limits)).collect(),
            history_chunk: usize::MAX,
            damaged: false,
        }
    }

    pub fn revision(&self) -> i64 {
        self.log.len() as i64 + 1
    }

    /// One transaction; None if it changed nothing.
    pub fn change(&mut self, changes: &[Change]) -> bool {
        let Some(events) = self.record(changes) else { return false };
        let mut hits = Vec::new();
        assert_eq!(self.hub.publish(Arc::clone(&events), &mut hits), None, "few watches, few events");
        for hit in hits {
            let message = ToStream::Events { id: hit.key.id, events: Arc::clone(&events), picks: hit.picks };
            self.clients[hit.key.stream as usize].from_core.push_back(message);
        }
        true
    }

    /// As if a snapshot had brought these transactions: nobody is told of them.
    pub fn install(&mut self, transactions: &[Vec<Change>]) {
        for changes in transactions {
            self.record(changes);
        }
        let reset = self.hub.reset(self.revision() + 1);
        for stream in reset.streams {
            self.clients[stream as usize].from_core.push_back(ToStream::AllBehind { posted: reset.posted });
        }
    }

    fn record(&mut self, changes: &[Change]) -> Option<Arc<RevisionEvents>> {
        let main = self.revision() + 1;
        let mut events: Vec<Event> = Vec::new();
        for (key, value) in changes {
            let old = self.state.get(key);
            if value.is_none() && old.is_none() {
                continue;
            }
            let revision = Rev { main, sub: events.len() as i64 };
            let create = match value {
                None => 0,
                Some(_) => old.map_or(main, |old| old.create),
            };
            let version = if value.is_none() { 0 } else { old.map_or(1, |old| old.version + 1) };
            let kv = KeyValueRef {
                key: key.as_bytes(),
                create,
                modified: if value.is_none() { 0 } else { main },
                version,
                value: value.as_deref().unwrap_or("").as_bytes(),
                lease: 0,
            };
            let record = record::encode(revision, value.is_none(), &kv);
            let prev = old.map(|old| Located {
                rev: Rev::default(),
                handle: Handle { segment: 0, offset: 0, len: old.record.len() as u32 },
                bytes: Some(old.record.clone()),
            });
            match value {
                None => self.state.remove(key),
                Some(_) => self.state.insert(key.clone(), Version { create, version, record: record.clone() }),
            };
            let key = key.as_bytes().into();
            events.push(Event { tombstone: value.is_none(), key, record, revision, create, prev });
        }
        if events.is_empty() {
            return None;
        }
        let events = Arc::new(RevisionEvents { revision: main, events });
        self.log.push(Arc::clone(&events));
        Some(events)
    }

    pub fn client(&mut self, who: usize, from: FromClient) {
        let now = self.revision();
        self.act(who, |stream, out| stream.client(from, now, out));
    }

    pub fn tick(&mut self, who: usize) {
        self.act(who, |stream, out| stream.ticks(1, out));
    }

    pub fn tell(&mut self, who: usize, message: ToStream) {
        self.clients[who].from_core.push_back(message);
    }

    /// The core takes one question of a stream.
    pub fn step_core(&mut self, who: usize) -> bool {
        let Some(op) = self.clients[who].to_core.pop_front() else { return false };
        let stream = who as u64;
        let revision = self.revision();
        let answer = match op {
            WatchOp::Join { id, next, .. } if next < self.compacted => {
                ToStream::Compacted { id, compacted: self.compacted }
            }
            WatchOp::Join { id, spec, next } => {
                let spec =
                    Spec { range: spec.range, no_put: spec.no_put, no_delete: spec.no_delete, prev_kv: spec.prev_kv };
                match self.hub.join(WatchKey { stream, id }, spec, next, revision) {
                    Join::Joined { missed } => ToStream::Joined { id, revision, missed },
                    Join::Behind { ring } => ToStream::Behind { id, revision, ring },
                }
            }
            WatchOp::Remove { id } => {
                self.hub.remove(WatchKey { stream, id });
                return true;
            }
            WatchOp::Progress { token } => ToStream::Progress { token, revision },
            WatchOp::Close => {
                self.hub.remove_stream(stream);
                return true;
            }
        };
        self.clients[who].from_core.push_back(answer);
        true
    }

    /// A stream takes one message of the core.
    pub fn step_stream(&mut self, who: usize) -> bool {
        let Some(message) = self.clients[who].from_core.pop_front() else { return false };
        self.act(who, |stream, out| stream.core(message, out));
        true
    }

    /// History is read and answered. What lies below the compaction is gone at once.
    pub fn step_history(&mut self, who: usize) -> bool {
        let Some((from, prev)) = self.clients[who].reading.take() else { return false };
        if self.damaged {
            let corrupt = Refusal::User(store::Error::Corrupt);
            self.act(who, |stream, out| stream.history(Err(corrupt), out));
            return true;
        }
        let first = from.max(self.compacted).max(2);
        let revisions: Vec<_> = self
            .log
            .iter()
            .skip((first - 2) as usize)
            .take(self.history_chunk)
            .map(|events| if prev { Arc::clone(events) } else { without_prev(events) })
            .collect();
        let next = revisions.last().map_or(from, |last| last.revision + 1);
        let history = History { revisions, next, compacted: self.compacted };
        self.act(who, |stream, out| stream.history(Ok(history), out));
        true
    }

    /// The transport takes one response.
    pub fn step_transport(&mut self, who: usize) -> bool {
        if self.clients[who].stalled {
            return false;
        }
        let Some(bytes) = self.clients[who].transport.pop_front() else { return false };
        self.act(who, |stream, out| stream.sent(bytes, out));
        true
    }

    /// Moves everything until nothing moves, which must come to pass.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1000, "the streams do not come to rest");
            let mut moved = false;
            for who in 0..self.clients.len() {
                for _ in 0..1000 {
                    let step = self.step_core(who)
                        || self.step_stream(who)
                        || self.step_transport(who)
                        || self.step_history(who);
                    moved |= step;
                    if !step {
                        break;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn act(&mut self, who: usize, act: impl FnOnce(&mut WatchStream, &mut Vec<StreamOut>)) {
        let client = &mut self.clients[who];
        let mut out = Vec::new();
        act(&mut client.stream, &mut out);
        for output in out {
            match output {
                StreamOut::Ask(op) => {
                    client.joins += usize::from(matches!(op, WatchOp::Join { .. }));
                    client.to_core.push_back(op);
                }
                StreamOut::AskHistory { from, prev } => {
                    assert!(client.reading.replace((from, prev)).is_none(), "two readings at once");
                }
                StreamOut::End(refusal) => client.ended = Some(refusal),
                StreamOut::Respond(response) => {
                    client.transport.push_back(response.bytes);
                    client.received.push(response);
                    client.peak = client.peak.max(client.transport.iter().sum());
                }
            }
        }
    }
}

impl Client {
    fn new(limits: Limits) -> Client {
        Client {
            stream: WatchStream::new(limits, 1),
            to_core: VecDeque::new(),
            from_core: VecDeque::new(),
            reading: None,
            transport: VecDeque::new(),
            stalled: false,
            received: Vec::new(),
            ended: None,
            peak: 0,
            joins: 0,
        }
    }
}

fn without_prev(events: &Arc<RevisionEvents>) -> Arc<RevisionEvents> {
    let events_without = events.events.iter().map(|event| Event { prev: None, ..event.clone() }).collect();
    Arc::new(RevisionEvents { revision: events.revision, events: events_without })
}

/// What a watch must be given of one revision, in order.
pub fn wanted(request: &CreateRequest, events: &RevisionEvents) -> Vec<String> {
    let range = KeyRange::new(&request.key, &request.range_end);
    events
        .events
        .iter()
        .filter(|event| {
            range.contains(&event.key) && !(if event.tombstone { request.no_delete } else { request.no_put })
        })
        .map(|event| {
            let prev = event.prev.as_ref().filter(|_| request.prev_kv);
            show(event.tombstone, &event.record, event.revision, prev)
        })
        .collect()
}

pub fn show_event(event: &OutEvent) -> String {
    show(event.tombstone, &event.record, event.revision, event.prev.as_ref())
}

fn show(tombstone: bool, bytes: &Bytes, revision: Rev, prev: Option<&Located>) -> String {
    let body = record::open(bytes).expect("a whole record").body;
    let kv = record::key_value(&body).expect("a key and its value");
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if text.len() > 20 { format!("{}..({} bytes)", &text[..4], text.len()) } else { text }
    };
    let prev = prev.map_or(String::new(), |prev| {
        let body = record::open(prev.bytes.as_ref().expect("in memory")).expect("a whole record").body;
        let kv = record::key_value(&body).expect("a key and its value");
        format!(" (was {}@{})", text(kv.value), kv.modified)
    });
    let at = format!("{}.{}", revision.main, revision.sub);
    if tombstone {
        format!("DELETE {} @{at}{prev}", text(kv.key))
    } else {
        let new = if kv.create == kv.modified { " new" } else { "" };
        format!("PUT {}={} @{at}{new}{prev}", text(kv.key), text(kv.value))
    }
}
