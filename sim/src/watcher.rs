//! What a client of one watch stream may believe: every response is held against the model.

use crate::model::{Event, Kv, Model, within};
use crate::trace::show;
use node::watch::{CreateRequest, OutEvent, Response};
use std::collections::{BTreeMap, VecDeque};
use store::Located;

/// A broken rule (`docs/invariants.md`) and what was seen.
pub type Broken = (&'static str, String);

/// Turns a located record into a key-value pair; None if it is gone by right. The revision is the
/// one at which another version took its place.
pub type Fetch<'a> = dyn FnMut(&Located, i64) -> Result<Option<Kv>, String> + 'a;

/// One watch as its client sees it.
#[derive(Clone, Debug)]
pub struct Watching {
    pub create: CreateRequest,
    /// All matching events below were delivered; the next one is at or above.
    pub next: i64,
    /// Parts of revisions whose last fragment has not come.
    parts: Vec<OutEvent>,
    pub cancel_sent: bool,
}

#[derive(Debug, Default)]
pub struct Watcher {
    /// Creates that were sent and not yet answered.
    asked: VecDeque<CreateRequest>,
    pub watches: BTreeMap<i64, Watching>,
    /// Canceled by compaction: nothing but the answer to a cancel may follow.
    pub compacted: BTreeMap<i64, Watching>,
    pub delivered: u64,
    pub fragments: u64,
    pub progress: u64,
}

impl Watching {
    fn wants(&self, event: &Event) -> bool {
        let from: &[u8] = if self.create.key.is_empty() { b"\0" } else { &self.create.key };
        within(&event.kv.key, from, &self.create.range_end)
            && !(if event.tombstone { self.create.no_delete } else { self.create.no_put })
    }

    /// The first revision in `from..=to` with an event for this watch.
    pub fn first_match(&self, model: &Model, from: i64, to: i64) -> Option<i64> {
        (from.max(2)..=to).find(|&r| model.events(r).iter().any(|e| self.wants(e) && !may_be_swept(model, e)))
    }
}

/// A version that its own revision overwrites (etcd lets a transaction do that where the end of a
/// delete is `\0`) is swept when exactly that revision is compacted, as in etcd. Watches may still
/// start there.
fn may_be_swept(model: &Model, event: &Event) -> bool {
    let again = |other: &Event| other.sub > event.sub && other.kv.key == event.kv.key;
    event.revision <= model.last().compacted && model.events(event.revision).iter().any(again)
}

fn key_value(record: &bytes::Bytes) -> Result<(store::Rev, bool, Kv), String> {
    let record = store::record::open(record).map_err(|e| format!("damaged record: {e}"))?;
    let kv = store::record::key_value(&record.body).map_err(|e| format!("damaged record: {e:?}"))?;
    Ok((record.rev, record.tombstone, kv_of(&kv)))
}

pub fn kv_of(kv: &store::record::KeyValueRef<'_>) -> Kv {
    Kv {
        key: kv.key.to_vec(),
        value: kv.value.to_vec(),
        create: kv.create,
        modified: kv.modified,
        version: kv.version,
        lease: kv.lease,
    }
}

/// The key-value pair of a whole record.
pub fn open(record: &bytes::Bytes) -> Result<Kv, String> {
    key_value(record).map(|(_, _, kv)| kv)
}

impl Watcher {
    pub fn asked(&mut self, create: CreateRequest) {
        self.asked.push_back(create);
    }

    pub fn idle(&self) -> bool {
        self.asked.is_empty()
    }

    pub fn on_response(&mut self, r: &Response, model: &Model, fetch: &mut Fetch<'_>) -> Result<(), Broken> {
        if r.header_revision > model.last().revision {
            return Err(("W-12", format!("{r:?} is ahead of the committed log ({})", model.last().revision)));
        }
        match r {
            Response { created: true, .. } => self.on_created(r, model),
            Response { canceled: true, .. } => self.on_canceled(r, model),
            Response { watch_id: -1, events, .. } if events.is_empty() => {
                // The progress of a watch that chose the id -1 looks the same (as in etcd).
                let only = self.watches.contains_key(&-1).then_some(-1);
                self.on_progress(r, model, only)
            }
            Response { watch_id, events, .. } if events.is_empty() => self.on_progress(r, model, Some(*watch_id)),
            _ => self.on_events(r, model, fetch),
        }
    }

    fn on_created(&mut self, r: &Response, model: &Model) -> Result<(), Broken> {
        let Some(create) = self.asked.pop_front() else {
            return Err(("W-13", format!("{r:?} answers no create")));
        };
        let taken = |id: i64| self.watches.contains_key(&id) || self.compacted.contains_key(&id);
        let empty = !create.range_end.is_empty() && create.range_end[..] != [0] && create.key >= create.range_end;
        let must_refuse = create.start_revision < 0 || empty || (create.watch_id != 0 && taken(create.watch_id));
        if r.canceled {
            return if must_refuse && r.watch_id == -1 {
                Ok(())
            } else {
                Err(("W-13", format!("{create:?} was refused: {}", r.cancel_reason)))
            };
        }
        let wrong_id = taken(r.watch_id) || (create.watch_id != 0 && create.watch_id != r.watch_id);
        if must_refuse || wrong_id {
            return Err(("W-13", format!("{create:?} was accepted as {}", r.watch_id)));
        }
        let next = if create.start_revision == 0 { r.header_revision + 1 } else { create.start_revision };
        if r.header_revision > model.last().revision {
            return Err(("W-12", format!("{r:?} is ahead of the committed log")));
        }
        self.watches.insert(r.watch_id, Watching { create, next, parts: Vec::new(), cancel_sent: false });
        Ok(())
    }

    fn on_canceled(&mut self, r: &Response, model: &Model) -> Result<(), Broken> {
        if r.compact_revision > 0 {
            let Some(watch) = self.watches.remove(&r.watch_id) else {
                return Err(("W-13", format!("{r:?} cancels no watch")));
            };
            let ok = watch.next < r.compact_revision && r.compact_revision <= model.last().compacted;
            if !ok {
                let text = format!(
                    "watch {} at {} was canceled by compaction {}; compacted is {}",
                    r.watch_id,
                    watch.next,
                    r.compact_revision,
                    model.last().compacted
                );
                return Err(("W-11", text));
            }
            self.compacted.insert(r.watch_id, watch);
            return Ok(());
        }
        match self.watches.remove(&r.watch_id).or_else(|| self.compacted.remove(&r.watch_id)) {
            Some(watch) if watch.cancel_sent => Ok(()),
            _ => Err(("W-13", format!("{r:?} though nobody canceled"))),
        }
    }

    fn on_progress(&mut self, r: &Response, model: &Model, only: Option<i64>) -> Result<(), Broken> {
        if let Some(id) = only
            && !self.watches.contains_key(&id)
        {
            return Err(("W-13", format!("{r:?} is for no watch")));
        }
        self.progress += 1;
        for (id, watch) in &mut self.watches {
            if only.is_some_and(|only| only != *id) {
                continue;
            }
            if r.header_revision < watch.create.start_revision - 1 {
                return Err((
                    "W-10",
                    format!(
                        "progress {} before the start {} of watch {id}",
                        r.header_revision, watch.create.start_revision
                    ),
                ));
            }
            if let Some(missed) = watch.first_match(model, watch.next, r.header_revision) {
                return Err((
                    "W-7",
                    format!(
                        "progress {} overtook the event at {missed} of watch {id} ({:?})",
                        r.header_revision, watch.create
                    ),
                ));
            }
            watch.next = watch.next.max(r.header_revision + 1);
        }
        Ok(())
    }

    fn on_events(&mut self, r: &Response, model: &Model, fetch: &mut Fetch<'_>) -> Result<(), Broken> {
        let Some(watch) = self.watches.get_mut(&r.watch_id) else {
            return Err((
                "W-13",
                format!("events for {}, which is no watch: {:?}", r.watch_id, r.events.first().map(|e| e.revision)),
            ));
        };
        if r.fragment && !watch.create.fragment {
            return Err(("W-4", format!("watch {} did not ask for fragments", r.watch_id)));
        }
        self.delivered += r.events.len() as u64;
        self.fragments += u64::from(r.fragment);
        watch.parts.extend(r.events.iter().cloned());
        if r.fragment {
            return Ok(());
        }
        let events = std::mem::take(&mut watch.parts);
        if events.iter().any(|e| e.revision.main > r.header_revision) {
            return Err((
                "W-7",
                format!("header revision {} is below an event of the same response", r.header_revision),
            ));
        }
        for group in events.chunk_by(|a, b| a.revision.main == b.revision.main) {
            check_revision(r.watch_id, watch, group, model, fetch)?;
            watch.next = group[0].revision.main + 1;
        }
        Ok(())
    }
}

fn check_revision(
    id: i64,
    watch: &Watching,
    group: &[OutEvent],
    model: &Model,
    fetch: &mut Fetch<'_>,
) -> Result<(), Broken> {
    let revision = group[0].revision.main;
    let about = |text: String| format!("watch {id} ({:?}) at {}: {text}", watch.create, watch.next);
    if revision > model.last().revision {
        return Err(("W-12", about(format!("event of revision {revision} is not committed"))));
    }
    if revision < watch.next {
        return Err(("W-3", about(format!("revision {revision} came again or out of order"))));
    }
    if let Some(missed) = watch.first_match(model, watch.next, revision - 1) {
        return Err(("W-5", about(format!("revision {missed} was left out, {revision} came"))));
    }
    let came = |e: &Event| group.iter().any(|got| got.revision.sub == e.sub);
    let due = |e: &&Event| watch.wants(e) && (came(e) || !may_be_swept(model, e));
    let want: Vec<&Event> = model.events(revision).iter().filter(due).collect();
    if want.len() != group.len() {
        let oracle = if want.is_empty() { "W-1" } else { "W-4" };
        return Err((oracle, about(format!("revision {revision} came with {} of {} events", group.len(), want.len()))));
    }
    for (want, got) in want.into_iter().zip(group) {
        check_event(want, got, watch, model, fetch).map_err(|(oracle, text)| (oracle, about(text)))?;
    }
    Ok(())
}

fn check_event(
    want: &Event,
    got: &OutEvent,
    watch: &Watching,
    model: &Model,
    fetch: &mut Fetch<'_>,
) -> Result<(), Broken> {
    let (rev, tombstone, mut kv) = key_value(&got.record).map_err(|e| ("D-5", e))?;
    if tombstone {
        kv.modified = rev.main;
    }
    if (rev, got.revision.sub, tombstone, got.tombstone) != (got.revision, want.sub, want.tombstone, want.tombstone) {
        return Err(("W-2", format!("event {got:?} instead of {want:?}")));
    }
    if kv != want.kv {
        return Err(("W-5", format!("event shows {kv:?}, right is {:?}", want.kv)));
    }
    let created = !want.tombstone && want.kv.create == want.revision;
    let prev = if watch.create.prev_kv && !created { want.prev.clone() } else { None };
    let may_be_gone = want.revision - 1 < model.last().compacted;
    match (&got.prev, &prev) {
        (None, None) => Ok(()),
        (None, Some(_)) if may_be_gone => Ok(()),
        (Some(located), Some(prev)) => match fetch(located, got.revision.main).map_err(|e| ("D-5", e))? {
            None if may_be_gone => Ok(()),
            Some(kv) if kv == *prev => Ok(()),
            kv => Err(("W-8", format!("prev_kv {kv:?}, right is {prev:?}"))),
        },
        (got, want) => Err((
            "W-8",
            format!("prev_kv of {} {:?}, right is {want:?}", show(&kv.key), got.as_ref().map(|p| p.handle)),
        )),
    }
}
