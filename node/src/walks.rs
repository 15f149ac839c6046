//! Ranges in slices: the core owns the index and walks it itself, a little each turn.
//!
//! A small answer is complete at once. A large one is measured first (count, exact bytes;
//! nothing is kept), then walked again slice by slice as the asker pulls. Each walk pins its
//! revision until it ends, or until nobody pulled for a minute.

use crate::config::TICK_MS;
use crate::io::*;
use crate::member::Node;
use std::collections::BTreeMap;
use store::{Finished, PinId, Query, Records, Walk};

/// A walk that nobody pulls ends after this. Ticks.
const PIN_PATIENCE: u64 = 60_000 / TICK_MS;
/// Walks are given at most this many slices in one turn, together.
const SLICES_PER_TURN: usize = 8;

struct Active {
    waiter: Waiter,
    /// Store revision when the walk began: what its answers name, whatever was applied since.
    header: i64,
    walk: Walk,
    pin: PinId,
    stage: Stage,
    touched: u64,
    /// The asker waits for a slice.
    wanted: bool,
    /// A RangeStream: compaction may end it. An accepted unary range always finishes.
    streams: bool,
}

enum Stage {
    /// Collecting a unary answer; past the budget it becomes `Measure`. A sorted one that costs more
    /// than it may keep is weighed to its end, without its items, so that its asker knows what to ask for.
    Collect {
        found: Found,
        cost: u64,
        keep: u64,
    },
    Measure(store::Measure),
    /// Pulled by `WalkNext`.
    Serve,
}

#[derive(Default)]
pub(crate) struct Walks {
    next: u64,
    active: BTreeMap<u64, Active>,
    by_waiter: BTreeMap<Waiter, u64>,
    /// Round robin: the walk served last.
    last: u64,
}

impl Walks {
    pub(crate) fn count(&self) -> u64 {
        self.active.len() as u64
    }

    pub(crate) fn idle(&self) -> bool {
        self.active.values().all(|active| !active.busy())
    }
}

impl Active {
    fn busy(&self) -> bool {
        match self.stage {
            Stage::Collect { .. } | Stage::Measure(_) => true,
            Stage::Serve => self.wanted,
        }
    }
}

impl Node {
    /// The state is new enough: resolve the revision, answer small ranges at once.
    pub(crate) fn begin_range(&mut self, waiter: Waiter, query: Query, stream: bool, keep: u64, out: &mut Vec<Output>) {
        if self.health.corrupt() {
            return self.refuse(waiter, Refusal::User(store::Error::Corrupt), out);
        }
        let walk = match self.store.walk(query) {
            Ok(walk) => walk,
            Err(error) => return self.refuse(waiter, Refusal::User(error), out),
        };
        if stream {
            let id = self.keep_walk(waiter, walk, Stage::Serve);
            self.walks.active.get_mut(&id).expect("kept").streams = true;
            return self.answer_walk(waiter, id, out);
        }
        self.collect(waiter, walk, keep, out);
    }

    fn answer_walk(&mut self, waiter: Waiter, id: u64, out: &mut Vec<Output>) {
        let query = self.walks.active[&id].walk.query().clone();
        let start = RangeStart {
            found: Found::none(&query),
            query,
            walk: Some(id),
            count: 0,
            more: false,
            bytes: 0,
            delimited: 0,
            kvs: 0,
        };
        self.answer(waiter, Answer::Range(start), out);
    }

    /// First slice in the turn of the request; the rest round robin.
    fn collect(&mut self, waiter: Waiter, mut walk: Walk, keep: u64, out: &mut Vec<Output>) {
        let most = self.config.budgets.whole_answer_items;
        if !walk.query().needs_sort() && walk.expected().is_some_and(|items| items > most as i64) {
            self.keep_walk(waiter, walk, Stage::Measure(store::Measure::default()));
            return;
        }
        let (found, finished) = self.advance_walk(&mut walk);
        let cost = sorting_cost(&walk, &found);
        match finished {
            Some(_) if cost > keep => self.refuse(waiter, Refusal::SortNeeds(cost), out),
            Some(finished) => {
                let start = whole(walk.query().clone(), found, finished);
                self.answer(waiter, Answer::Range(start), out);
            }
            None => {
                let found = if cost > keep { Found::none(walk.query()) } else { found };
                self.keep_walk(waiter, walk, Stage::Collect { found, cost, keep });
            }
        }
    }

    fn advance_walk(&self, walk: &mut Walk) -> (Found, Option<Finished>) {
        let most = self.config.budgets.slice_keys;
        if walk.query().shows_records() {
            let Records { records, finished } = self.store.advance_records(walk, most);
            return (Found::Records(records), finished);
        }
        let slice = self.store.advance(walk, most);
        (Found::Items(slice.items), slice.finished)
    }

    fn keep_walk(&mut self, waiter: Waiter, walk: Walk, stage: Stage) -> u64 {
        self.walks.next += 1;
        let id = self.walks.next;
        let pin = self.store.pin(walk.revision());
        let header = self.store.revision();
        let active = Active { waiter, header, walk, pin, stage, touched: self.ticks, wanted: false, streams: false };
        self.walks.active.insert(id, active);
        self.walks.by_waiter.insert(waiter, id);
        id
    }

    pub(crate) fn walk_next(&mut self, waiter: Waiter, id: u64, out: &mut Vec<Output>) {
        let now = self.ticks;
        let Some(active) = self.walks.active.get_mut(&id) else {
            return self.refuse(waiter, Refusal::Timeout, out);
        };
        self.walks.by_waiter.remove(&active.waiter);
        active.waiter = waiter;
        active.touched = now;
        active.wanted = true;
        self.walks.by_waiter.insert(waiter, id);
    }

    pub(crate) fn walk_end(&mut self, id: u64) {
        if let Some(active) = self.walks.active.remove(&id) {
            self.walks.by_waiter.remove(&active.waiter);
            self.store.unpin(active.pin);
        }
    }

    pub(crate) fn run_walks(&mut self, out: &mut Vec<Output>) {
        for _ in 0..SLICES_PER_TURN {
            let last = self.walks.last;
            let busy = |(_, active): &(&u64, &Active)| active.busy();
            let after = self.walks.active.range(last + 1..).find(busy).map(|(id, _)| *id);
            let Some(id) = after.or_else(|| self.walks.active.iter().find(busy).map(|(id, _)| *id)) else { return };
            self.walks.last = id;
            self.run_slice(id, out);
        }
    }

    fn run_slice(&mut self, id: u64, out: &mut Vec<Output>) {
        let mut active = self.walks.active.remove(&id).expect("busy");
        let done = match &mut active.stage {
            Stage::Collect { .. } => self.collect_slice(id, &mut active, out),
            Stage::Measure(_) => self.measure_slice(id, &mut active, out),
            Stage::Serve => self.serve_slice(&mut active, out),
        };
        if done {
            self.walks.by_waiter.remove(&active.waiter);
            self.store.unpin(active.pin);
        } else {
            self.walks.active.insert(id, active);
        }
    }

    fn collect_slice(&mut self, _id: u64, active: &mut Active, out: &mut Vec<Output>) -> bool {
        let (more, finished) = self.advance_walk(&mut active.walk);
        let Stage::Collect { found, cost, keep } = &mut active.stage else { unreachable!("collecting") };
        *cost += sorting_cost(&active.walk, &more);
        match *cost > *keep {
            true => *found = Found::none(active.walk.query()),
            false => found.extend(more),
        }
        let sorted = active.walk.query().needs_sort();
        if let Some(finished) = finished {
            if *cost > *keep {
                self.refuse(active.waiter, Refusal::SortNeeds(*cost), out);
                return true;
            }
            let found = std::mem::replace(found, Found::none(active.walk.query()));
            let start = whole(active.walk.query().clone(), found, finished);
            self.answer_at(active.header, active.waiter, Answer::Range(start), out);
            return true;
        }
        if !sorted && found.len() > self.config.budgets.whole_answer_items {
            active.walk.restart();
            active.stage = Stage::Measure(store::Measure::default());
        }
        false
    }

    fn measure_slice(&mut self, id: u64, active: &mut Active, out: &mut Vec<Output>) -> bool {
        let Stage::Measure(measure) = &mut active.stage else { unreachable!("measuring") };
        if !self.store.measure(&mut active.walk, self.config.budgets.slice_keys, measure) {
            return false;
        }
        let store::Measure { kvs, bytes, delimited, finished } = *measure;
        let Finished { count, more } = finished.expect("a finished walk has a count");
        let query = active.walk.query().clone();
        let found = Found::none(&query);
        let start = RangeStart { query, found, walk: Some(id), count, more, bytes, delimited, kvs };
        active.walk.restart();
        active.stage = Stage::Serve;
        active.touched = self.ticks;
        self.answer_at(active.header, active.waiter, Answer::Range(start), out);
        false
    }

    fn serve_slice(&mut self, active: &mut Active, out: &mut Vec<Output>) -> bool {
        assert!(active.wanted, "only wanted walks are busy");
        if active.streams && active.walk.revision() < self.store.compacted() {
            self.refuse(active.waiter, Refusal::User(store::Error::Compacted), out);
            return true;
        }
        let (found, finished) = self.advance_walk(&mut active.walk);
        active.wanted = false;
        active.touched = self.ticks;
        let finished = finished.map(|finished| (finished.count, finished.more));
        self.answer_at(active.header, active.waiter, Answer::Slice(Slice { found, finished }), out);
        finished.is_some()
    }

    pub(crate) fn tick_walks(&mut self, _out: &mut Vec<Output>) {
        let now = self.ticks;
        let stale: Vec<u64> = self
            .walks
            .active
            .iter()
            .filter(|(_, active)| !active.busy() && now - active.touched > PIN_PATIENCE)
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.walk_end(id);
        }
    }

    pub(crate) fn cancel_walk(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let Some(id) = self.walks.by_waiter.get(&waiter).copied() else { return false };
        self.walk_end(id);
        if timed_out {
            self.refuse(waiter, Refusal::Timeout, out);
        }
        true
    }

    /// A snapshot replaces the state: walks over the old one end.
    pub(crate) fn end_walks(&mut self, out: &mut Vec<Output>) {
        self.end_walks_with(Refusal::User(store::Error::Compacted), out);
    }

    pub(crate) fn end_walks_with(&mut self, refusal: Refusal, out: &mut Vec<Output>) {
        let walks = std::mem::take(&mut self.walks.active);
        self.walks.by_waiter.clear();
        for active in walks.into_values() {
            self.store.unpin(active.pin);
            if active.busy() {
                self.refuse(active.waiter, refusal, out);
            }
        }
    }
}

/// What a sorted answer would keep of these items; others keep what fits in one answer.
fn sorting_cost(walk: &Walk, found: &Found) -> u64 {
    match found {
        Found::Items(items) if walk.query().needs_sort() => {
            items.iter().map(|item| sort_cost(walk.query(), item)).sum()
        }
        _ => 0,
    }
}

fn whole(query: Query, found: Found, finished: Finished) -> RangeStart {
    let kvs = found.len() as u64;
    RangeStart { query, found, walk: None, count: finished.count, more: finished.more, bytes: 0, delimited: 0, kvs }
}
