//! Watches as the core sees them: live ones in the hub, history for those behind, and the
//! seam between the two, which the core alone closes.

use crate::config::TICK_MS;
use crate::ground::{Ground, Willing};
use crate::history::Histories;
use crate::io::*;
use crate::jobs::Task;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::watch::{Hit, Hub, Join, Reset, Spec, WatchKey};
use store::{Event, RevisionEvents};

/// It is told once in so many ticks that history cannot be read: once a minute.
const TOLD_AGAIN: u64 = 60_000 / TICK_MS;

pub(crate) struct Watches {
    hub: Hub,
    histories: Histories,
    /// Streams that asked for history of a corrupt state.
    held: BTreeSet<Waiter>,
    /// When it was last told that history cannot be read.
    told: Option<u64>,
}

impl Watches {
    /// Live watches hear of revisions from `next` on.
    pub(crate) fn new(ring_bytes: usize, next: i64, seed: u64) -> Watches {
        let hub = Hub::new(ring_bytes, next, seed);
        Watches { hub, histories: Histories::default(), held: BTreeSet::new(), told: None }
    }

    pub(crate) fn live(&self) -> u64 {
        self.hub.count() as u64
    }

    pub(crate) fn ring_bytes(&self) -> u64 {
        self.hub.ring_bytes() as u64
    }

    pub(crate) fn tick(&mut self, g: &Ground) {
        self.histories.tick(g.now);
    }

    pub(crate) fn watch(&mut self, g: &mut Ground, stream: StreamId, op: WatchOp, willing: Willing) {
        match op {
            WatchOp::Join { id, spec, next } => {
                let message = self.join(g, WatchKey { stream, id }, spec, next, willing);
                g.push(Output::Watch { stream, message });
            }
            WatchOp::Remove { id } => self.hub.remove(WatchKey { stream, id }),
            WatchOp::Progress { token } => {
                let message = ToStream::Progress { token, revision: g.store.revision() };
                g.push(Output::Watch { stream, message });
            }
            WatchOp::Close => self.hub.remove_stream(stream),
        }
    }

    fn join(&mut self, g: &Ground, key: WatchKey, spec: WatchSpec, next: i64, willing: Willing) -> ToStream {
        let (id, revision, compacted) = (key.id, g.store.revision(), g.store.compacted());
        if willing.corrupt {
            return ToStream::Behind { id, revision, ring: 0 };
        }
        if next < compacted {
            return ToStream::Compacted { id, compacted };
        }
        let WatchSpec { range, no_put, no_delete, prev_kv } = spec;
        match self.hub.join(key, Spec { range, no_put, no_delete, prev_kv }, next, revision) {
            Join::Joined { missed } => ToStream::Joined { id, revision, missed },
            Join::Behind { ring } => ToStream::Behind { id, revision, ring },
        }
    }

    /// A revision was applied: the live watches that it concerns hear of it.
    pub(crate) fn publish(&mut self, g: &mut Ground, events: &Arc<RevisionEvents>) {
        let mut hits: Vec<Hit> = Vec::new();
        if let Some(reset) = self.hub.publish(Arc::clone(events), &mut hits) {
            all_behind(g, reset);
        }
        for Hit { key, picks } in hits {
            let message = ToStream::Events { id: key.id, events: Arc::clone(events), picks };
            g.push(Output::Watch { stream: key.stream, message });
        }
    }

    /// History from the ring if it reaches back so far, from a piece that is at hand, else from the
    /// files. Of a corrupt state nothing is told: streams wait for one that can be trusted.
    pub(crate) fn history(&mut self, g: &mut Ground, waiter: Waiter, from: i64, prev: bool, willing: Willing) {
        if willing.corrupt {
            self.held.insert(waiter);
            return;
        }
        let from = from.max(1);
        let compacted = g.store.compacted();
        if let Some((revisions, next)) = self.hub.since(from, g.config.budgets.history_bytes as usize) {
            return g.answer(waiter, Answer::History(History { revisions, next, compacted }));
        }
        if g.swapping() {
            // The files are those of a later state already: what its compaction dropped would look
            // like silence.
            return g.refuse(waiter, Refusal::Timeout);
        }
        if let Some((revisions, next)) = self.histories.find(from, prev, g.now) {
            return g.answer(waiter, Answer::History(History { revisions, next, compacted }));
        }
        self.histories.want(waiter, from, prev);
        self.read_history(g);
    }

    fn read_history(&mut self, g: &mut Ground) {
        let Some(from) = self.histories.begin() else { return };
        g.write_records();
        let (until, max_bytes) = (g.store.revision() + 1, g.config.budgets.history_bytes);
        let job = BackgroundJob::ReadHistory { segments: g.written_segments(), from, until, max_bytes };
        g.start(Task::History, job);
    }

    pub(crate) fn history_read(&mut self, g: &mut Ground, records: Vec<Bytes>, next: i64, willing: Willing) {
        match revisions_of(g, records, self.histories.wants_prev()) {
            Ok(revisions) => match self.histories.read(revisions, next, g.now) {
                Some(served) => {
                    let compacted = g.store.compacted();
                    for (waiter, revisions, next) in served {
                        g.answer(waiter, Answer::History(History { revisions, next, compacted }));
                    }
                }
                None => {
                    for (waiter, from, prev) in self.histories.take_wanted() {
                        self.history(g, waiter, from, prev, willing);
                    }
                }
            },
            Err(damage) => return self.history_failed(g, &disk::Fault::damaged("state", damage.offset, damage.what)),
        }
        self.read_history(g);
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        if self.held.remove(&waiter) {
            return true;
        }
        let found = self.histories.cancel(waiter);
        if found && timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        found
    }

    /// The index is whole: only the watches that need this piece wait. Their streams ask again, so
    /// it is told once a minute.
    pub(crate) fn history_failed(&mut self, g: &mut Ground, fault: &disk::Fault) {
        if self.told.is_none_or(|told| g.now - told >= TOLD_AGAIN) {
            self.told = Some(g.now);
            g.note(Level::Error, format!("history for watches could not be read: {fault}"));
        }
        let refusal = if fault.is_damage() { Refusal::User(store::Error::Corrupt) } else { Refusal::Timeout };
        for waiter in self.histories.failed() {
            g.refuse(waiter, refusal);
        }
        self.read_history(g);
    }

    /// After a snapshot install: every live watch is behind at its own next revision.
    pub(crate) fn reset(&mut self, g: &mut Ground) {
        self.histories.reset();
        let reset = self.hub.reset(g.store.revision() + 1);
        all_behind(g, reset);
    }

    /// Whoever was held asks the new state again.
    pub(crate) fn release_held(&mut self, g: &mut Ground) {
        for waiter in std::mem::take(&mut self.held) {
            g.refuse(waiter, Refusal::Timeout);
        }
    }
}

/// The hub has forgotten every watch.
fn all_behind(g: &mut Ground, reset: Reset) {
    for stream in reset.streams {
        g.push(Output::Watch { stream, message: ToStream::AllBehind { posted: reset.posted } });
    }
}

/// Groups raw records into revisions; the version before comes from the index.
fn revisions_of(g: &Ground, records: Vec<Bytes>, prev: bool) -> Result<Vec<Arc<RevisionEvents>>, store::Damage> {
    let mut revisions: Vec<RevisionEvents> = Vec::new();
    for record in records {
        let opened = store::record::open(&record)?;
        let kv = store::record::key_value(&opened.body)?;
        let created = !opened.tombstone && kv.create == opened.rev.main;
        let before = if prev && !created { g.store.version_before(kv.key, opened.rev.main) } else { None };
        let event = Event {
            tombstone: opened.tombstone,
            key: Arc::from(kv.key),
            create: kv.create,
            revision: opened.rev,
            prev: before,
            record: record.clone(),
        };
        match revisions.last_mut() {
            Some(last) if last.revision == opened.rev.main => last.events.push(event),
            _ => revisions.push(RevisionEvents { revision: opened.rev.main, events: vec![event] }),
        }
    }
    Ok(revisions.into_iter().map(Arc::new).collect())
}
