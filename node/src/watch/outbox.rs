//! What a stream holds for its client: a queue with a budget in bytes, and the part of it
//! that the transport has but has not yet taken. What still stands in the queue can be
//! dropped; what was handed over cannot, and neither can the rest of a response of which
//! one fragment went out.

use super::message::{ENVELOPE_BYTES, OutEvent, Picked, Response};
use std::collections::VecDeque;

/// What an entry costs beside the bytes it will have on the wire.
const ENTRY_OVERHEAD: usize = 64;

/// The part of the budget that the transport may have: what it has exists for one stream alone,
/// what is queued is shared by all that watch the same.
const WINDOW: usize = 8;

#[derive(Debug)]
pub(super) struct Outbox {
    budget: usize,
    window: usize,
    fragment_bytes: usize,
    queue: VecDeque<Entry>,
    queued: usize,
    /// Events in the queue.
    events: usize,
    /// Handed to the transport, not yet taken by it.
    in_flight: usize,
    parts: Option<Parts>,
}

#[derive(Debug)]
enum Entry {
    Control(Response),
    Events(Batch),
    /// Everything up to `revision` stands before this entry; `watch` None = for all of them.
    Progress {
        watch: Option<i64>,
        revision: i64,
    },
}

/// Whole revisions for one watch: one response, unless it is cut into fragments.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) watch: i64,
    pub(super) header_revision: i64,
    pub(super) revisions: Vec<Picked>,
    pub(super) prev_kv: bool,
    pub(super) fragment: bool,
    /// Encoded size of all events.
    pub(super) bytes: usize,
}

/// A response of which some fragments are out.
#[derive(Debug)]
struct Parts {
    watch: i64,
    header_revision: i64,
    rest: VecDeque<OutEvent>,
    rest_bytes: usize,
}

impl Outbox {
    /// `budget`: bytes held in all; `fragment_bytes`: largest response of a watch that asked for
    /// fragments.
    pub(super) fn new(budget: usize, fragment_bytes: usize) -> Outbox {
        Outbox {
            budget,
            window: (budget / WINDOW).max(1),
            fragment_bytes,
            queue: VecDeque::new(),
            queued: 0,
            events: 0,
            in_flight: 0,
            parts: None,
        }
    }

    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    /// True: it is another budget than before. What is held already stays.
    pub(super) fn set_budget(&mut self, budget: usize) -> bool {
        if budget == self.budget {
            return false;
        }
        (self.budget, self.window) = (budget, (budget / WINDOW).max(1));
        true
    }

    /// True if `bytes` more fit. A drained outbox takes anything: the largest revision must pass
    /// too.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let held = self.held();
        self.is_drained() || held.saturating_add(bytes).saturating_add(ENVELOPE_BYTES + ENTRY_OVERHEAD) <= self.budget
    }

    pub(super) fn is_over(&self) -> bool {
        self.held() > self.budget
    }

    /// Everything was handed over and the transport takes more.
    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.parts.is_none() && self.in_flight < self.window
    }

    /// What the transport took is worth knowing at once. Else it is soon enough with the next
    /// event.
    pub(super) fn is_pressed(&self) -> bool {
        !self.queue.is_empty() || self.parts.is_some() || self.in_flight >= self.window / 2
    }

    pub(super) fn control(&mut self, response: Response) {
        self.push(Entry::Control(response));
    }

    pub(super) fn events(&mut self, batch: Batch) {
        self.push(Entry::Events(batch));
    }

    /// Dropped when there is no room, as a client that does not read has no use for it.
    pub(super) fn progress(&mut self, watch: Option<i64>, revision: i64) {
        if self.has_room(0) {
            self.push(Entry::Progress { watch, revision });
        }
    }

    /// Drops what is queued for one watch, its answers to requests excepted.
    /// Returns the first revision dropped, if any.
    pub(super) fn drop_watch(&mut self, id: i64) -> Option<i64> {
        let mut first = None;
        self.retain(|entry| match entry {
            Entry::Events(batch) if batch.watch == id => {
                first = first.or(batch.revisions.first().map(|picked| picked.events.revision));
                false
            }
            Entry::Progress { watch: Some(watch), .. } => *watch != id,
            _ => true,
        });
        first
    }

    /// Drops the queued progress of the whole stream: it is no longer true.
    pub(super) fn drop_progress(&mut self) {
        self.retain(|entry| !matches!(entry, Entry::Progress { watch: None, .. }));
    }

    /// The transport took so many bytes.
    pub(super) fn taken(&mut self, bytes: usize) {
        assert!(bytes <= self.in_flight, "watch stream: the transport took more than it was given");
        self.in_flight -= bytes;
    }

    /// The next response, if the transport has room for it.
    pub(super) fn pop(&mut self) -> Option<Response> {
        if self.in_flight >= self.window {
            return None;
        }
        let response = match self.parts.take() {
            Some(parts) => self.next_part(parts),
            None => {
                let entry = self.queue.pop_front()?;
                if self.queue.is_empty() {
                    // Most streams rest most of the time: they keep no room for the next event.
                    self.queue = VecDeque::new();
                }
                self.queued -= cost(&entry);
                self.events -= events(&entry);
                self.open(entry)
            }
        };
        self.in_flight += response.bytes;
        Some(response)
    }

    /// Events that wait for the client to read.
    pub(super) fn waiting_events(&self) -> usize {
        self.events + self.parts.as_ref().map_or(0, |parts| parts.rest.len())
    }

    pub(super) fn held(&self) -> usize {
        self.queued + self.in_flight + self.parts.as_ref().map_or(0, |parts| parts.rest_bytes)
    }

    fn push(&mut self, entry: Entry) {
        self.queued += cost(&entry);
        self.events += events(&entry);
        self.queue.push_back(entry);
    }

    fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let (mut dropped, mut gone) = (0, 0);
        self.queue.retain(|entry| {
            let kept = keep(entry);
            if !kept {
                dropped += cost(entry);
                gone += events(entry);
            }
            kept
        });
        self.queued -= dropped;
        self.events -= gone;
    }

    fn open(&mut self, entry: Entry) -> Response {
        match entry {
            Entry::Control(response) => Response { bytes: ENVELOPE_BYTES + response.cancel_reason.len(), ..response },
            Entry::Progress { watch, revision } => Response {
                header_revision: revision,
                watch_id: watch.unwrap_or(-1),
                bytes: ENVELOPE_BYTES,
                ..Response::default()
            },
            Entry::Events(batch) => {
                let events =
                    batch.revisions.iter().flat_map(Picked::iter).map(|event| OutEvent::new(event, batch.prev_kv));
                let (watch, header_revision) = (batch.watch, batch.header_revision);
                if batch.fragment && batch.bytes + ENVELOPE_BYTES >= self.fragment_bytes {
                    let parts = Parts { watch, header_revision, rest: events.collect(), rest_bytes: batch.bytes };
                    return self.next_part(parts);
                }
                let bytes = batch.bytes + ENVELOPE_BYTES;
                Response { header_revision, watch_id: watch, events: events.collect(), bytes, ..Response::default() }
            }
        }
    }

    /// As many events as fit, one at least; the rest is kept for the next call.
    fn next_part(&mut self, mut parts: Parts) -> Response {
        let mut events = Vec::new();
        let mut bytes = 0;
        while let Some(event) = parts.rest.front() {
            let more = event.encoded_len();
            if !events.is_empty() && bytes + more + ENVELOPE_BYTES >= self.fragment_bytes {
                break;
            }
            bytes += more;
            events.extend(parts.rest.pop_front());
        }
        parts.rest_bytes -= bytes;
        let response = Response {
            header_revision: parts.header_revision,
            watch_id: parts.watch,
            fragment: !parts.rest.is_empty(),
            events,
            bytes: bytes + ENVELOPE_BYTES,
            ..Response::default()
        };
        if response.fragment {
            self.parts = Some(parts);
        }
        response
    }
}

fn events(entry: &Entry) -> usize {
    match entry {
        Entry::Events(batch) => batch.revisions.iter().map(|picked| picked.picks.len()).sum(),
        Entry::Control(_) | Entry::Progress { .. } => 0,
    }
}

fn cost(entry: &Entry) -> usize {
    let bytes = match entry {
        Entry::Control(response) => response.cancel_reason.len(),
        Entry::Events(batch) => batch.bytes,
        Entry::Progress { .. } => 0,
    };
    bytes + ENVELOPE_BYTES + ENTRY_OVERHEAD
}
