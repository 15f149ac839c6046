//! Ranges in slices: the core owns the index and walks it itself, a little each turn.
//!
//! A small answer is complete at once. A large one is measured first (count, exact bytes;
//! nothing is kept), then walked again slice by slice as the asker pulls. Each walk pins its
//! revision until it ends, or until nobody pulled for a minute.

use crate::config::TICK_MS;
use crate::io::*;
use crate::member::Node;
use std::collections::BTreeMap;
use store::{Finished, Item, PinId, Query, Walk};

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
        items: Vec<Item>,
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
            query,
            items: Vec::new(),
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
        let slice = self.store.advance(&mut walk, self.config.budgets.slice_keys);
        let cost = sorting_cost(&walk, &slice.items);
        match slice.finished {
            Some(_) if cost > keep => self.refuse(waiter, Refusal::SortNeeds(cost), out),
            Some(finished) => {
                let start = whole(walk.query().clone(), slice.items, finished);
                self.answer(waiter, Answer::Range(start), out);
            }
            None => {
                let items = if cost > keep { Vec::new() } else { slice.items };
                self.keep_walk(waiter, walk, Stage::Collect { items, cost, keep });
            }
        }
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
        let slice = self.store.advance(&mut active.walk, self.config.budgets.slice_keys);
        let Stage::Collect { items, cost, keep } = &mut active.stage else { unreachable!("collecting") };
        *cost += sorting_cost(&active.walk, &slice.items);
        match *cost > *keep {
            true => *items = Vec::new(),
            false => items.extend(slice.items),
        }
        let sorted = active.walk.query().needs_sort();
        if let Some(finished) = slice.finished {
            if *cost > *keep {
                self.refuse(active.waiter, Refusal::SortNeeds(*cost), out);
                return true;
            }
            let start = whole(active.walk.query().clone(), std::mem::take(items), finished);
            self.answer_at(active.header, active.waiter, Answer::Range(start), out);
            return true;
        }
        if !sorted && items.len() > self.config.budgets.whole_answer_items {
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
        let start = RangeStart { query, items: Vec::new(), walk: Some(id), count, more, bytes, delimited, kvs };
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
        let slice = self.store.advance(&mut active.walk, self.config.budgets.slice_keys);
        active.wanted = false;
        active.touched = self.ticks;
        let finished = slice.finished.map(|finished| (finished.count, finished.more));
        self.answer_at(active.header, active.waiter, Answer::Slice(Slice { items: slice.items, finished }), out);
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
fn sorting_cost(walk: &Walk, items: &[Item]) -> u64 {
    let query = walk.query();
    if query.needs_sort() { items.iter().map(|item| sort_cost(query, item)).sum() } else { 0 }
}

fn whole(query: Query, items: Vec<Item>, finished: Finished) -> RangeStart {
    let kvs = items.len() as u64;
    RangeStart { query, items, walk: None, count: finished.count, more: finished.more, bytes: 0, delimited: 0, kvs }
}
