//! One entry in many steps. While an entry is parked the state stands still, so what its plan has
//! found out stays true: the next call goes on there, and asks for the next records together.

use crate::apply::{Kept, Stop, value_in};
use crate::command::PutRequest;
use crate::record;
use crate::state::Store;
use crate::{Error, Halt, Handle};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Records asked for at once, however short they are.
const RECORDS: usize = 4_096;

/// How much one call may do. What it comes to in the end does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Keys that may still be looked at. Each call takes from it what it needs.
    pub keys: usize,
    /// Bytes of records that are asked for at once; one record at least.
    pub bytes: u64,
}

impl Default for Step {
    fn default() -> Step {
        Step { keys: 20_000, bytes: 1 << 20 }
    }
}

/// What is known of the entry that is not applied yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parked {
    /// It was parked once at least.
    begun: bool,
    /// Transactions of the entry by their number, as far as their compares are decided.
    chosen: BTreeMap<usize, Chosen>,
    /// Values that puts take over: they are written again.
    kept: BTreeMap<Handle, Bytes>,
    asked: Vec<Handle>,
    /// The records asked for last.
    fetched: BTreeMap<Handle, Bytes>,
}

/// How far the compares of one transaction are decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) succeeded: Option<bool>,
    /// So many of its compares hold.
    pub(crate) hold: usize,
    /// The next one holds for the keys below this place.
    pub(crate) at: Option<Place>,
}

/// Where a compare of a range goes on.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) key: Bytes,
    /// There is a key of the range below it.
    pub(crate) found: bool,
}

impl Parked {
    /// The records that were asked for.
    pub(crate) fn take(&mut self, index: u64, records: &[Bytes]) -> Result<(), Halt> {
        let asked = std::mem::take(&mut self.asked);
        assert_eq!(asked.len(), records.len(), "records come after they were asked for");
        self.fetched.clear();
        for (handle, record) in asked.into_iter().zip(records) {
            let damaged = |what: String| Halt { index, reason: format!("record {handle:?}: {what}") };
            record::open(record).map_err(|damage| damaged(damage.to_string()))?;
            if record.len() != handle.len as usize {
                return Err(damaged(format!("{} bytes", record.len())));
            }
            self.fetched.insert(handle, record.clone());
        }
        Ok(())
    }

    /// The entry waits for these records; what was fetched before was used.
    fn ask(&mut self, wanted: BTreeSet<Handle>) -> Vec<Handle> {
        self.fetched.clear();
        self.asked = wanted.into_iter().collect();
        self.asked.clone()
    }
}

/// One call's look at what decides an entry.
pub(crate) struct Look<'s> {
    store: &'s Store,
    parked: &'s mut Parked,
    step: &'s mut Step,
    wanted: BTreeSet<Handle>,
    bytes: u64,
}

impl<'s> Look<'s> {
    pub(crate) fn new(store: &'s Store, parked: &'s mut Parked, step: &'s mut Step) -> Look<'s> {
        Look { store, parked, step, wanted: BTreeSet::new(), bytes: 0 }
    }

    pub(crate) fn store(&self) -> &'s Store {
        self.store
    }

    /// A key is looked at; false: this call has looked at enough.
    pub(crate) fn key(&mut self) -> bool {
        let may = self.step.keys > 0;
        self.step.keys -= usize::from(may);
        may
    }

    /// This call does no more.
    pub(crate) fn is_over(&self) -> bool {
        self.step.keys == 0 || self.is_full()
    }

    /// No more records are asked for in this call.
    pub(crate) fn is_full(&self) -> bool {
        !self.wanted.is_empty() && (self.bytes >= self.step.bytes || self.wanted.len() >= RECORDS)
    }

    /// What is known of the compares of the transaction with this number.
    pub(crate) fn chosen(&mut self, number: usize) -> Chosen {
        self.parked.chosen.remove(&number).unwrap_or_default()
    }

    /// The same, for the next call. Most entries need one call.
    pub(crate) fn choose(&mut self, number: usize, chosen: Chosen) {
        if self.parked.begun || chosen.succeeded.is_none() {
            self.parked.chosen.insert(number, chosen);
        }
    }

    /// What was asked for ahead is not needed.
    pub(crate) fn want_nothing(&mut self) {
        self.wanted.clear();
        self.bytes = 0;
    }

    /// No record is awaited.
    pub(crate) fn wants_nothing(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The value of a record; None: it is asked for, if there is room.
    pub(crate) fn value(&mut self, handle: Handle) -> Result<Option<Bytes>, Stop> {
        let record = self.store.tail.get(handle).or_else(|| self.parked.fetched.get(&handle).cloned());
        match record {
            Some(record) => value_in(&record).map(Some),
            None => {
                if !self.is_full() && self.wanted.insert(handle) {
                    self.bytes += u64::from(handle.len);
                }
                Ok(None)
            }
        }
    }

    /// What a put with ignore flags takes over from the version before it: value and lease. The
    /// value is missing as long as it is awaited.
    pub(crate) fn kept_of(&mut self, put: &PutRequest<'_>) -> Result<Kept, Stop> {
        let mut kept = Kept::default();
        if !put.ignore_value && !put.ignore_lease {
            return Ok(kept);
        }
        let entry = self.store.keys.get(put.key).filter(|entry| entry.is_live());
        let before = entry.ok_or(Error::KeyNotFound)?.latest();
        if put.ignore_lease {
            kept.lease = Some(before.lease);
        }
        if put.ignore_value {
            kept.value = self.kept_value(before.handle)?;
        }
        Ok(kept)
    }

    /// As [`Look::value`]. What was fetched is held until the entry is applied.
    fn kept_value(&mut self, handle: Handle) -> Result<Option<Bytes>, Stop> {
        if let Some(value) = self.parked.kept.get(&handle) {
            return Ok(Some(value.clone()));
        }
        let value = self.value(handle)?;
        if let Some(value) = value.as_ref().filter(|_| self.parked.fetched.contains_key(&handle)) {
            self.parked.kept.insert(handle, value.clone());
        }
        Ok(value)
    }

    /// Why the entry cannot be executed in this call.
    pub(crate) fn stop(self) -> Stop {
        self.parked.begun = true;
        if self.wanted.is_empty() { Stop::Pause } else { Stop::Needs(self.parked.ask(self.wanted)) }
    }
}
