//! What the clients were told, and what must then be true.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::mvccpb::{Event, KeyValue, event::EventType};

/// Answers that are still to be held against the history.
#[derive(Debug, Default)]
pub struct Expected {
    /// The highest revision in any answer so far: a linearisable read that is
    /// sent now may not be older.
    pub fresh: i64,
    pub writes: Vec<Written>,
    pub reads: Vec<Read>,
    pub problems: Vec<String>,
    pub counts: Counts,
}

/// An acknowledged change.
#[derive(Clone, Debug)]
pub struct Written {
    pub revision: i64,
    pub key: Bytes,
    /// `None` for a delete.
    pub value: Option<Bytes>,
}

/// A linearisable read of one key.
#[derive(Clone, Debug)]
pub struct Read {
    pub revision: i64,
    pub key: Bytes,
    pub found: Option<KeyValue>,
}

/// For the progress line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub acknowledged: u64,
    pub unknown: u64,
    pub reads: u64,
    pub failed_reads: u64,
    pub resumes: u64,
    pub renewals: u64,
    /// Leases that nobody renewed, and that ended in their time.
    pub expired: u64,
}

impl Expected {
    pub fn problem(&mut self, what: String) {
        // The first ones tell the story.
        if self.problems.len() < 20 {
            self.problems.push(what);
        }
    }

    /// What an acknowledged request changed; `None`: it is not known whether it
    /// changed anything.
    pub fn wrote(&mut self, changes: Option<Vec<Written>>) {
        let Some(changes) = changes else {
            self.counts.unknown += 1;
            return;
        };
        self.counts.acknowledged += 1;
        let last = changes.iter().map(|w| w.revision).max().unwrap_or(0);
        self.fresh = self.fresh.max(last);
        self.writes.extend(changes);
    }

    /// A linearisable read that was sent when `fresh` was known; `None`: it
    /// failed.
    pub fn read(&mut self, fresh: i64, read: Option<Read>) {
        let Some(read) = read else {
            self.counts.failed_reads += 1;
            return;
        };
        if read.revision < fresh {
            self.problem(format!("stale: {read:?} was sent when {fresh} was known"));
        }
        self.fresh = self.fresh.max(read.revision);
        self.counts.reads += 1;
        self.reads.push(read);
    }
}

/// The store's history, as the first watcher was told it, and the state that
/// follows from it.
#[derive(Debug, Default)]
pub struct History {
    /// Revision 2 is at place 0.
    revisions: Vec<Vec<Event>>,
    /// How many of them the state has.
    replayed: usize,
    pub state: BTreeMap<Bytes, KeyValue>,
    /// By key: each revision that changed it, and what it was then.
    keys: BTreeMap<Bytes, Vec<(i64, Option<KeyValue>)>>,
    /// Values that were written, all of them unique.
    values: BTreeSet<Bytes>,
}

impl History {
    /// Takes the events of the next revision.
    pub fn push(&mut self, events: Vec<Event>) {
        self.revisions.push(events);
    }

    /// Replays what is new; the result says what cannot be.
    pub fn replay(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        while let Some(events) = self.revisions.get(self.replayed) {
            let revision = self.replayed as i64 + 2;
            for event in events {
                let kv = event.kv.clone().unwrap_or_default();
                let before = self.state.get(&kv.key);
                if event.r#type == EventType::Delete as i32 {
                    if before.is_none() {
                        problems.push(format!("revision {revision} deletes {:?}, which is not there", kv.key));
                    }
                    self.state.remove(&kv.key);
                    self.keys.entry(kv.key).or_default().push((revision, None));
                    continue;
                }
                let (version, create) = before.map_or((1, revision), |b| (b.version + 1, b.create_revision));
                if (kv.version, kv.create_revision, kv.mod_revision) != (version, create, revision) {
                    problems.push(format!(
                        "revision {revision}: {kv:?} should have version {version}, created at {create}"
                    ));
                }
                if !kv.value.is_empty() && !self.values.insert(kv.value.clone()) {
                    problems.push(format!("revision {revision}: {:?} was written twice", kv.value));
                }
                self.keys.entry(kv.key.clone()).or_default().push((revision, Some(kv.clone())));
                self.state.insert(kv.key.clone(), kv);
            }
            self.replayed += 1;
        }
        problems
    }

    /// Whether an acknowledged change is there.
    pub fn has(&self, written: &Written) -> bool {
        let at = usize::try_from(written.revision - 2).ok();
        let Some(events) = at.and_then(|at| self.revisions.get(at)) else {
            return false;
        };
        events.iter().any(|event| {
            let Some(kv) = &event.kv else { return false };
            let deleted = event.r#type == EventType::Delete as i32;
            kv.key == written.key
                && match &written.value {
                    Some(value) => !deleted && kv.value == *value,
                    None => deleted,
                }
        })
    }

    /// What a read at that revision finds.
    pub fn at(&self, key: &Bytes, revision: i64) -> Option<&KeyValue> {
        let versions = self.keys.get(key)?;
        let after = versions.partition_point(|(at, _)| *at <= revision);
        versions.get(after.checked_sub(1)?)?.1.as_ref()
    }
}

/// A number for the events of one revision, to compare watchers by.
pub fn digest(events: &[Event]) -> u64 {
    let text = format!("{events:?}");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str, create: i64, revision: i64, version: i64) -> Event {
        let kv = KeyValue {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            create_revision: create,
            mod_revision: revision,
            version,
            lease: 0,
        };
        Event { r#type: 0, kv: Some(kv), prev_kv: None }
    }

    fn delete(key: &str, revision: i64) -> Event {
        let kv = KeyValue { key: key.to_owned().into(), mod_revision: revision, ..Default::default() };
        Event { r#type: 1, kv: Some(kv), prev_kv: None }
    }

    #[test]
    fn a_history_answers_reads_and_knows_writes() {
        let mut history = History::default();
        history.push(vec![put("a", "1", 2, 2, 1)]);
        history.push(vec![put("a", "2", 2, 3, 2)]);
        history.push(vec![delete("a", 4)]);
        assert_eq!(history.replay(), Vec::<String>::new());
        let at = |revision| history.at(&"a".into(), revision).map(|kv| kv.value.clone());
        assert_eq!([at(1), at(2), at(3), at(4)], [None, Some("1".into()), Some("2".into()), None]);
        let written = |revision, value: Option<&'static str>| Written {
            revision,
            key: "a".into(),
            value: value.map(Bytes::from),
        };
        assert!(history.has(&written(3, Some("2"))));
        assert!(history.has(&written(4, None)));
        assert!(!history.has(&written(3, Some("1"))));
        assert!(!history.has(&written(9, Some("2"))));
        assert!(history.state.is_empty());
    }

    #[test]
    fn a_write_that_came_twice_and_a_wrong_version_are_seen() {
        let mut history = History::default();
        history.push(vec![put("a", "1", 2, 2, 1)]);
        history.push(vec![put("a", "1", 2, 3, 2)]);
        history.push(vec![put("a", "x", 2, 4, 2)]);
        let problems = history.replay();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("twice") && problems[1].contains("version 3"), "{problems:?}");
    }
}
