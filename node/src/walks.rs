//! Ranges in slices: the core owns the index and walks it itself, a little each turn.
//!
//! A small answer is complete at once. A large one is measured first (count, exact bytes;
//! nothing is kept), then walked again slice by slice as the asker pulls. Each walk pins its
//! revision until it ends, until nobody pulled for a minute, or until what it keeps is in the way
//! of writes. One that a compaction has overtaken has ten minutes.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use std::collections::{BTreeMap, BTreeSet};
use store::{Finished, PinId, Query, Records, Walk};

/// A walk that nobody pulls ends after this. Ticks.
const PIN_PATIENCE: u64 = 60_000 / TICK_MS;
/// A walk whose revision was compacted meanwhile ends so long after it began: while it is pinned,
/// all that was superseded since stays, in memory and against the quota. Ticks.
const OVERTAKEN: u64 = 600_000 / TICK_MS;
/// Walks are given at most this many slices in one turn, together.
const SLICES_PER_TURN: usize = 8;

struct Active {
    waiter: Waiter,
    /// Store revision when the walk began: what its answers name, whatever was applied since.
    header: i64,
    walk: Walk,
    pin: PinId,
    stage: Stage,
    began: u64,
    touched: u64,
    /// The asker waits for a slice.
    wanted: bool,
    /// A RangeStream: compaction may end it. An accepted unary range always finishes.
    streams: bool,
}

enum Stage {
    /// Collecting a unary answer; past the budget it becomes `Measure`. A sorted one that costs
    /// more than it may keep is weighed to its end, without its items, so that its asker knows what
    /// to ask for.
    Collect {
        found: Found,
        cost: u64,
        keep: u64,
    },
    Measure(store::Measure),
    /// Pulled by `WalkNext`.
    Serve,
}

impl Active {
    fn busy(&self) -> bool {
        match self.stage {
            Stage::Collect { .. } | Stage::Measure(_) => true,
            Stage::Serve => self.wanted,
        }
    }
}

#[derive(Default)]
pub(crate) struct Walks {
    newest: u64,
    active: BTreeMap<u64, Active>,
    by_waiter: BTreeMap<Waiter, u64>,
    /// Round robin: the walk served last.
    last: u64,
    /// Ended by [`Walks::let_go`]; their askers have not heard of it.
    let_go: BTreeSet<u64>,
}

impl Walks {
    pub(crate) fn count(&self) -> u64 {
        self.active.len() as u64
    }

    pub(crate) fn idle(&self) -> bool {
        self.active.values().all(|active| !active.busy())
    }

    /// The state is new enough: resolve the revision, answer small ranges at once.
    pub(crate) fn begin(&mut self, g: &mut Ground, waiter: Waiter, query: Query, stream: bool, keep: u64) {
        let walk = match g.store.walk(query) {
            Ok(walk) => walk,
            Err(error) => return g.refuse(waiter, Refusal::User(error)),
        };
        if stream {
            let id = self.keep(g, waiter, walk, Stage::Serve);
            self.active.get_mut(&id).expect("kept").streams = true;
            return self.answer_walk(g, waiter, id);
        }
        self.collect(g, waiter, walk, keep);
    }

    fn answer_walk(&mut self, g: &mut Ground, waiter: Waiter, id: u64) {
        let query = self.active[&id].walk.query().clone();
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
        g.answer(waiter, Answer::Range(start));
    }

    /// First slice in the turn of the request; the rest round robin.
    fn collect(&mut self, g: &mut Ground, waiter: Waiter, mut walk: Walk, keep: u64) {
        let most = g.config.budgets.whole_answer_items;
        if !walk.query().needs_sort() && walk.expected().is_some_and(|items| items > most as i64) {
            self.keep(g, waiter, walk, Stage::Measure(store::Measure::default()));
            return;
        }
        let (found, finished) = advance(g, &mut walk);
        let cost = sorting_cost(&walk, &found);
        match finished {
            Some(_) if cost > keep => g.refuse(waiter, Refusal::SortNeeds(cost)),
            Some(finished) => {
                let start = whole(walk.query().clone(), found, finished);
                g.answer(waiter, Answer::Range(start));
            }
            None => {
                let found = if cost > keep { Found::none(walk.query()) } else { found };
                self.keep(g, waiter, walk, Stage::Collect { found, cost, keep });
            }
        }
    }

    fn keep(&mut self, g: &mut Ground, waiter: Waiter, walk: Walk, stage: Stage) -> u64 {
        self.newest += 1;
        let id = self.newest;
        let pin = g.store.pin(walk.revision());
        let header = g.store.revision();
        let (began, touched) = (g.now, g.now);
        let active = Active { waiter, header, walk, pin, stage, began, touched, wanted: false, streams: false };
        self.active.insert(id, active);
        self.by_waiter.insert(waiter, id);
        id
    }

    pub(crate) fn next(&mut self, g: &mut Ground, waiter: Waiter, id: u64) {
        let now = g.now;
        let Some(active) = self.active.get_mut(&id) else {
            return g.refuse(
                waiter,
                match self.let_go.remove(&id) {
                    true => Refusal::User(store::Error::Compacted),
                    false => Refusal::Timeout,
                },
            );
        };
        self.by_waiter.remove(&active.waiter);
        active.waiter = waiter;
        active.touched = now;
        active.wanted = true;
        self.by_waiter.insert(waiter, id);
    }

    pub(crate) fn end(&mut self, g: &mut Ground, id: u64) {
        self.let_go.remove(&id);
        if let Some(active) = self.active.remove(&id) {
            self.by_waiter.remove(&active.waiter);
            g.store.unpin(active.pin);
        }
    }

    pub(crate) fn run(&mut self, g: &mut Ground) {
        for _ in 0..SLICES_PER_TURN {
            let last = self.last;
            let busy = |(_, active): &(&u64, &Active)| active.busy();
            let after = self.active.range(last + 1..).find(busy).map(|(id, _)| *id);
            let Some(id) = after.or_else(|| self.active.iter().find(busy).map(|(id, _)| *id)) else { return };
            self.last = id;
            self.run_slice(g, id);
        }
    }

    fn run_slice(&mut self, g: &mut Ground, id: u64) {
        let mut active = self.active.remove(&id).expect("busy");
        let done = match &mut active.stage {
            Stage::Collect { .. } => self.collect_slice(g, &mut active),
            Stage::Measure(_) => self.measure_slice(g, id, &mut active),
            Stage::Serve => self.serve_slice(g, &mut active),
        };
        if done {
            self.by_waiter.remove(&active.waiter);
            g.store.unpin(active.pin);
        } else {
            self.active.insert(id, active);
        }
    }

    fn collect_slice(&mut self, g: &mut Ground, active: &mut Active) -> bool {
        let (more, finished) = advance(g, &mut active.walk);
        let Stage::Collect { found, cost, keep } = &mut active.stage else { unreachable!("collecting") };
        *cost += sorting_cost(&active.walk, &more);
        match *cost > *keep {
            true => *found = Found::none(active.walk.query()),
            false => found.extend(more),
        }
        let sorted = active.walk.query().needs_sort();
        if let Some(finished) = finished {
            if *cost > *keep {
                g.refuse(active.waiter, Refusal::SortNeeds(*cost));
                return true;
            }
            let found = std::mem::replace(found, Found::none(active.walk.query()));
            let start = whole(active.walk.query().clone(), found, finished);
            g.answer_at(active.header, active.waiter, Answer::Range(start));
            return true;
        }
        if !sorted && found.len() > g.config.budgets.whole_answer_items {
            active.walk.restart();
            active.stage = Stage::Measure(store::Measure::default());
        }
        false
    }

    fn measure_slice(&mut self, g: &mut Ground, id: u64, active: &mut Active) -> bool {
        let Stage::Measure(measure) = &mut active.stage else { unreachable!("measuring") };
        if !g.store.measure(&mut active.walk, g.config.budgets.slice_keys, measure) {
            return false;
        }
        let store::Measure { kvs, bytes, delimited, finished } = *measure;
        let Finished { count, more } = finished.expect("a finished walk has a count");
        let query = active.walk.query().clone();
        let found = Found::none(&query);
        let start = RangeStart { query, found, walk: Some(id), count, more, bytes, delimited, kvs };
        active.walk.restart();
        active.stage = Stage::Serve;
        active.touched = g.now;
        g.answer_at(active.header, active.waiter, Answer::Range(start));
        false
    }

    fn serve_slice(&mut self, g: &mut Ground, active: &mut Active) -> bool {
        assert!(active.wanted, "only wanted walks are busy");
        if active.streams && active.walk.revision() < g.store.compacted() {
            g.refuse(active.waiter, Refusal::User(store::Error::Compacted));
            return true;
        }
        let (found, finished) = advance(g, &mut active.walk);
        active.wanted = false;
        active.touched = g.now;
        let finished = finished.map(|finished| (finished.count, finished.more));
        g.answer_at(active.header, active.waiter, Answer::Slice(Slice { found, finished }));
        finished.is_some()
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        let now = g.now;
        let stale: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, active)| !active.busy() && now - active.touched > PIN_PATIENCE)
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.end(g, id);
        }
        self.end_overtaken(g);
    }

    /// Its asker takes it slowly, however steadily.
    fn end_overtaken(&mut self, g: &mut Ground) {
        let (now, compacted) = (g.now, g.store.compacted());
        let late = |active: &Active| active.walk.overtaken(compacted) && now - active.began > OVERTAKEN;
        let ids: Vec<u64> = self.active.iter().filter(|(_, active)| late(active)).map(|(id, _)| *id).collect();
        for id in ids {
            let waiter = self.active.get(&id).filter(|active| active.busy()).map(|active| active.waiter);
            self.end(g, id);
            if let Some(waiter) = waiter {
                g.refuse(waiter, Refusal::User(store::Error::Compacted));
            }
        }
    }

    /// What is compacted is in the way of writes: walks that wait for their readers, and keep some
    /// of it, end. How many.
    pub(crate) fn let_go(&mut self, g: &mut Ground) -> usize {
        let compacted = g.store.compacted();
        let keeps = |active: &Active| active.pin.revision() < compacted && !active.busy();
        let kept: Vec<u64> = self.active.iter().filter(|(_, active)| keeps(active)).map(|(id, _)| *id).collect();
        for id in &kept {
            self.end(g, *id);
        }
        self.let_go.extend(&kept);
        kept.len()
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let Some(id) = self.by_waiter.get(&waiter).copied() else { return false };
        self.end(g, id);
        if timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        true
    }

    /// A snapshot replaces the state: walks over the old one end.
    pub(crate) fn end_all(&mut self, g: &mut Ground) {
        self.end_all_with(g, Refusal::User(store::Error::Compacted));
    }

    pub(crate) fn end_all_with(&mut self, g: &mut Ground, refusal: Refusal) {
        let walks = std::mem::take(&mut self.active);
        self.by_waiter.clear();
        self.let_go.clear();
        for active in walks.into_values() {
            g.store.unpin(active.pin);
            if active.busy() {
                g.refuse(active.waiter, refusal);
            }
        }
    }
}

fn advance(g: &Ground, walk: &mut Walk) -> (Found, Option<Finished>) {
    let most = g.config.budgets.slice_keys;
    if walk.query().shows_records() {
        let Records { records, finished } = g.store.advance_records(walk, most);
        return (Found::Records(records), finished);
    }
    let slice = g.store.advance(walk, most);
    (Found::Items(slice.items), slice.finished)
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

#[cfg(test)]
mod tests {
    use super::*;
    use store::command;
    use store::{KeyRange, Position};

    fn apply(g: &mut Ground, body: &command::Checked) {
        let at = Position { index: g.store.applied().index + 1, term: 1 };
        let origin = command::Origin { member: 1, boot: 1, seq: at.index };
        g.store.apply(at, &command::seal(body, origin, None), None).expect("an entry");
    }

    /// Pulls a slice; whether there was one.
    fn pulls(g: &mut Ground, walks: &mut Walks, id: u64) -> bool {
        g.swap_out(&mut Vec::new());
        walks.next(g, 2, id);
        walks.run(g);
        let mut out = Vec::new();
        g.swap_out(&mut out);
        matches!(out[..], [Output::Answer { answer: Answer::Slice(_), .. }])
    }

    #[test]
    fn a_walk_that_compaction_has_overtaken_holds_nothing_for_ever() {
        let (mut g, mut walks) = (Ground::alone(7), Walks::default());
        (g.config.budgets.whole_answer_items, g.config.budgets.slice_keys) = (10, 1);
        for n in 0..1_000 {
            let mut put = Vec::new();
            let key = format!("{n:04}");
            command::PutRequest { key: key.as_bytes(), ..Default::default() }.encode(&mut put);
            apply(&mut g, &command::encode_put(&put).expect("a put"));
        }
        walks.begin(&mut g, 1, Query::all(KeyRange::all()), false, 0);
        while !walks.idle() {
            walks.run(&mut g);
        }
        let (read, id) = (g.store.revision(), walks.newest);
        let slowly = |g: &mut Ground, walks: &mut Walks, times: u64| {
            (0..times).all(|_| {
                g.now += PIN_PATIENCE;
                walks.tick(g);
                pulls(g, walks, id)
            })
        };
        assert!(slowly(&mut g, &mut walks, 20), "as slowly as its asker likes while nothing is compacted");
        let mut put = Vec::new();
        command::PutRequest { key: b"0000", ..Default::default() }.encode(&mut put);
        apply(&mut g, &command::encode_put(&put).expect("a put"));
        apply(&mut g, &command::encode_compaction(read + 1, false));
        assert_eq!(g.store.sweep_level(), read);
        assert!(!slowly(&mut g, &mut walks, 1), "it has had its ten minutes");
        assert_eq!((g.store.sweep_level(), walks.count()), (read + 1, 0));
    }
}
