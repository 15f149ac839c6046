//! Watches as the core sees them: live ones in the hub, history for those behind, and the
//! seam between the two, which the core alone closes.

use crate::io::*;
use crate::member::{Node, Task};
use bytes::Bytes;
use std::sync::Arc;
use store::watch::{Hit, Join, Spec, WatchKey};
use store::{Event, RevisionEvents};

impl Node {
    pub(crate) fn watch(&mut self, stream: StreamId, op: WatchOp, out: &mut Vec<Output>) {
        match op {
            WatchOp::Join { id, spec, next } => self.join_watch(stream, id, spec, next, out),
            WatchOp::Remove { id } => self.hub.remove(WatchKey { stream, id }),
            WatchOp::Progress { token } => {
                let message = ToStream::Progress { token, revision: self.store.revision() };
                out.push(Output::Watch { stream, message });
            }
            WatchOp::Close => self.hub.remove_stream(stream),
        }
    }

    fn join_watch(&mut self, stream: StreamId, id: i64, spec: WatchSpec, next: i64, out: &mut Vec<Output>) {
        let revision = self.store.revision();
        let compacted = self.store.compacted();
        let message = if self.health.corrupt() {
            ToStream::Behind { id, revision }
        } else if next < compacted {
            ToStream::Compacted { id, compacted }
        } else {
            let WatchSpec { range, no_put, no_delete, prev_kv } = spec;
            let spec = Spec { range, no_put, no_delete, prev_kv };
            match self.hub.join(WatchKey { stream, id }, spec, next, revision) {
                Join::Joined { missed } => ToStream::Joined { id, revision, missed },
                Join::Behind => ToStream::Behind { id, revision },
            }
        };
        out.push(Output::Watch { stream, message });
    }

    /// A revision was applied: the live watches that it concerns hear of it.
    pub(crate) fn publish(&mut self, events: &Arc<RevisionEvents>, out: &mut Vec<Output>) {
        let mut hits: Vec<Hit> = Vec::new();
        self.hub.publish(Arc::clone(events), &mut hits);
        for Hit { key, picks } in hits {
            let message = ToStream::Events { id: key.id, events: Arc::clone(events), picks };
            out.push(Output::Watch { stream: key.stream, message });
        }
    }

    /// History from the ring if it reaches back so far, from a piece that is at hand, else from the files.
    pub(crate) fn on_history(&mut self, waiter: Waiter, from: i64, prev: bool, out: &mut Vec<Output>) {
        if self.hold_history(waiter) {
            return;
        }
        let from = from.max(1);
        let compacted = self.store.compacted();
        if let Some((revisions, next)) = self.hub.since(from, self.config.budgets.history_bytes as usize) {
            return self.answer(waiter, Answer::History(History { revisions, next, compacted }), out);
        }
        if self.transfer.swapping() {
            // The files are those of a later state already: what its compaction dropped would look like silence.
            return self.refuse(waiter, Refusal::Timeout, out);
        }
        if let Some((revisions, next)) = self.histories.find(from, prev, self.ticks) {
            return self.answer(waiter, Answer::History(History { revisions, next, compacted }), out);
        }
        self.histories.want(waiter, from, prev);
        self.read_history(out);
    }

    fn read_history(&mut self, out: &mut Vec<Output>) {
        let Some(from) = self.histories.begin() else { return };
        self.write_all_records(out);
        let job =
            Job::ReadHistory { from, until: self.store.revision() + 1, max_bytes: self.config.budgets.history_bytes };
        self.jobs.start(Task::History, job, out);
    }

    pub(crate) fn history_read(&mut self, records: Vec<Bytes>, next: i64, out: &mut Vec<Output>) {
        match self.revisions_of(records, self.histories.wants_prev()) {
            Ok(revisions) => match self.histories.read(revisions, next, self.ticks) {
                Some(served) => {
                    let compacted = self.store.compacted();
                    for (waiter, revisions, next) in served {
                        self.answer(waiter, Answer::History(History { revisions, next, compacted }), out);
                    }
                }
                None => {
                    for (waiter, from, prev) in self.histories.take_wanted() {
                        self.on_history(waiter, from, prev, out);
                    }
                }
            },
            Err(damage) => return self.history_failed(&damage.to_string(), out),
        }
        self.read_history(out);
    }

    pub(crate) fn cancel_history(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let found = self.histories.cancel(waiter);
        if found && timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
        }
        found
    }

    /// The index is whole: only the watches that need this piece wait. Their streams ask again, so
    /// it is told once a minute.
    pub(crate) fn history_failed(&mut self, why: &str, out: &mut Vec<Output>) {
        if self.health.tell_history(self.ticks) {
            self.note(Level::Error, format!("history for watches could not be read: {why}"), out);
        }
        for waiter in self.histories.failed() {
            self.refuse(waiter, Refusal::User(store::Error::Corrupt), out);
        }
        self.read_history(out);
    }

    /// Groups raw records into revisions; the version before comes from the index.
    fn revisions_of(&self, records: Vec<Bytes>, prev: bool) -> Result<Vec<Arc<RevisionEvents>>, store::Damage> {
        let mut revisions: Vec<RevisionEvents> = Vec::new();
        for record in records {
            let opened = store::record::open(&record)?;
            let kv = store::record::key_value(&opened.body)?;
            let created = !opened.tombstone && kv.create == opened.rev.main;
            let before = if prev && !created { self.store.version_before(kv.key, opened.rev.main) } else { None };
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

    /// After a snapshot install: every live watch is behind at its own next revision.
    pub(crate) fn reset_watches(&mut self, out: &mut Vec<Output>) {
        self.histories.reset();
        let reset = self.hub.reset(self.store.revision() + 1);
        for stream in reset.streams {
            out.push(Output::Watch { stream, message: ToStream::AllBehind { posted: reset.posted } });
        }
    }
}
