//! Random lives of watch streams against the one truth: the log of all revisions. Whatever
//! the delays, budgets, demotions, compactions and snapshots, each watch is given exactly the
//! events it asked for, each once, in order, whole revisions at a time, or a notice of compaction.

mod watch_world;

use bytes::Bytes;
use node::Refusal;
use node::watch::{CreateRequest, FromClient, Limits, Response};
use std::collections::BTreeMap;
use testkit::Dice;
use watch_world::{Change, World, show_event, wanted};

const CLIENTS: usize = 2;
const KEYS: [&str; 6] = ["a", "ab", "b", "c", "ca", "d"];

/// What one client knows, from what it asked and was sent.
#[derive(Default)]
struct Expected {
    /// Creates not yet answered, in order: answers must come in this order.
    asked: std::collections::VecDeque<CreateRequest>,
    watches: BTreeMap<i64, Told>,
    checked: usize,
    seen: Seen,
}

/// One watch as its client was told of it.
struct Told {
    request: CreateRequest,
    /// First revision it must hear of.
    start: i64,
    got: Vec<String>,
    last: i64,
    parts: Vec<String>,
    compacted: bool,
}

/// What happened at all: a run that never meets the hard cases proves nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    events: usize,
    fragments: usize,
    progress: usize,
    notices: usize,
    compacted: usize,
    canceled: usize,
    refused: usize,
}

impl Expected {
    fn check(&mut self, world: &World, who: usize) {
        let received = &world.clients[who].received;
        for response in &received[self.checked..] {
            self.response(world, response);
        }
        self.checked = received.len();
    }

    fn response(&mut self, world: &World, response: &Response) {
        assert!(response.header_revision <= world.revision(), "header from the future");
        if response.created {
            return self.created(world, response);
        }
        if response.watch_id == -1 {
            return self.progress(world, response.header_revision);
        }
        if response.canceled {
            return self.canceled(response);
        }
        let told = self.watches.get_mut(&response.watch_id).expect("a response for a watch that is not open");
        assert!(!told.compacted, "something came after the notice of compaction");
        if response.events.is_empty() {
            assert!(told.request.progress_notify && !response.fragment && told.parts.is_empty());
            self.seen.notices += 1;
            return told.check_complete(world, response.header_revision);
        }
        self.seen.events += response.events.len();
        self.seen.fragments += usize::from(response.fragment);
        assert!(!response.fragment || told.request.fragment, "a fragment that was not asked for");
        if told.request.fragment {
            let size = response.bytes;
            assert!(size <= LIMITS.fragment_bytes || response.events.len() == 1, "a part of {size} bytes");
        }
        let first = response.events[0].revision.main;
        assert!(first >= told.start, "an event below the start");
        assert!(
            first > told.last || (first == told.last && !told.parts.is_empty()),
            "a revision came in two responses"
        );
        told.last = response.events.last().expect("not empty").revision.main;
        assert!(response.header_revision >= told.last);
        told.parts.extend(response.events.iter().map(show_event));
        if !response.fragment {
            told.got.append(&mut told.parts);
        }
    }

    fn created(&mut self, world: &World, response: &Response) {
        let request = self.asked.pop_front().expect("created without a create");
        if response.canceled {
            assert_eq!(response.watch_id, -1);
            assert!(!response.cancel_reason.is_empty());
            self.seen.refused += 1;
            return;
        }
        let now = response.header_revision;
        assert!(now <= world.revision());
        let start = if request.start_revision == 0 { now + 1 } else { request.start_revision };
        let told = Told { request, start, got: Vec::new(), last: 0, parts: Vec::new(), compacted: false };
        assert!(self.watches.insert(response.watch_id, told).is_none(), "an id was given twice");
    }

    fn progress(&mut self, world: &World, revision: i64) {
        self.seen.progress += 1;
        assert!(self.watches.values().any(|told| !told.compacted));
        for told in self.watches.values().filter(|told| !told.compacted) {
            assert!(told.request.start_revision <= revision, "progress before a start in the future");
            told.check_complete(world, revision);
        }
    }

    fn canceled(&mut self, response: &Response) {
        let id = response.watch_id;
        if response.compact_revision != 0 {
            self.seen.compacted += 1;
            let told = self.watches.get_mut(&id).expect("a notice for a watch that is not open");
            assert_eq!((response.header_revision, told.compacted), (0, false));
            assert!(told.parts.is_empty() && told.start.max(told.last + 1) < response.compact_revision);
            told.compacted = true;
        } else {
            self.seen.canceled += 1;
            self.watches.remove(&id).expect("canceled a watch that is not open");
        }
    }
}

impl Told {
    /// All that the watch must have heard up to `revision` was delivered.
    fn check_complete(&self, world: &World, revision: i64) {
        let truth = self.truth(world, revision);
        assert_eq!(self.got[..truth.len().min(self.got.len())], truth[..], "not everything up to {revision} had come");
    }

    fn truth(&self, world: &World, until: i64) -> Vec<String> {
        let log = world.log.iter().filter(|events| events.revision >= self.start && events.revision <= until);
        log.flat_map(|events| wanted(&self.request, events)).collect()
    }

    fn check_end(&self, world: &World) {
        let truth = self.truth(world, i64::MAX);
        if self.compacted {
            assert_eq!(self.got[..], truth[..self.got.len()], "not a beginning of the truth");
        } else {
            assert_eq!(self.got, truth);
        }
    }
}

const LIMITS: Limits = Limits { buffer_bytes: 3000, fragment_bytes: 500, progress_interval_ticks: 5 };

#[test]
fn every_watch_hears_the_truth_once_and_in_order() {
    let mut total = Seen::default();
    let seeds: u64 = std::env::var("WATCH_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    for seed in 1..=seeds {
        let seen = std::panic::catch_unwind(|| life(seed)).unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        });
        total.events += seen.events;
        total.fragments += seen.fragments;
        total.progress += seen.progress;
        total.notices += seen.notices;
        total.compacted += seen.compacted;
        total.canceled += seen.canceled;
        total.refused += seen.refused;
    }
    println!("{total:?}");
    let Seen { events, fragments, progress, notices, compacted, canceled, refused } = total;
    for count in [events, fragments, progress, notices, compacted, canceled, refused] {
        assert!(count > 0, "something was never met: {total:?}");
    }
}

fn life(seed: u64) -> Seen {
    let mut chance = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let ring_bytes = [400, 2000, 20_000][chance.below(3) as usize];
    let mut world = World::new(ring_bytes, &[LIMITS; CLIENTS]);
    world.history_chunk = 1 + chance.below(8) as usize;
    let mut all_expected: [Expected; CLIENTS] = Default::default();
    let calm = chance.below(4);
    for _ in 0..400 {
        let who = chance.below(CLIENTS as u64) as usize;
        match chance.below(14) {
            0..=2 => {
                let changes = transaction(&mut chance);
                world.change(&changes);
            }
            3 => client(&mut world, who, &mut all_expected[who], &mut chance),
            4 => drop(world.step_core(who)),
            5 | 6 => drop(world.step_stream(who)),
            7 => drop(world.step_history(who)),
            8 | 9 => drop(world.step_transport(who)),
            10 => world.tick(who),
            11 if chance.one_in(4) => world.compacted = compaction(&world, &mut chance),
            12 if chance.one_in(10) => {
                let installed: Vec<_> = (0..chance.below(6)).map(|_| transaction(&mut chance)).collect();
                world.install(&installed);
            }
            12 if chance.one_in(4) => world.clients[who].stalled = !world.clients[who].stalled,
            13 if calm > 0 && chance.one_in(4 * calm) => world.settle(),
            _ => {}
        }
        all_expected[who].check(&world, who);
    }
    finish(&mut world, &mut all_expected)
}

/// Everything flows again: every watch must reach the end of the log by itself.
fn finish(world: &mut World, all_expected: &mut [Expected; CLIENTS]) -> Seen {
    let mut seen = Seen::default();
    for client in &mut world.clients {
        client.stalled = false;
    }
    for _ in 0..3 {
        (0..CLIENTS).for_each(|who| world.tick(who));
        world.settle();
    }
    let open: usize = world.clients.iter().map(|client| client.stream.count()).sum();
    assert_eq!(world.hub.count(), open, "every open watch is live, and no other");
    for (who, expected) in all_expected.iter_mut().enumerate() {
        expected.check(world, who);
        expected.watches.values().for_each(|told| told.check_end(world));
        // All is quiet and live: a progress request is answered unless a start lies ahead.
        let before = expected.seen.progress;
        world.client(who, FromClient::Progress);
        world.settle();
        expected.check(world, who);
        let mut open = expected.watches.values().filter(|told| !told.compacted).peekable();
        let expect = open.peek().is_some() && open.all(|told| told.request.start_revision <= world.revision());
        assert_eq!(expected.seen.progress - before, usize::from(expect), "progress of a quiet stream");
        let held = world.clients[who].peak;
        assert!(held <= LIMITS.buffer_bytes + 1500, "the transport held {held} bytes");
        world.clients[who].stream.end(Refusal::Stopped, &mut Vec::new());
        seen = Seen {
            events: seen.events + expected.seen.events,
            fragments: seen.fragments + expected.seen.fragments,
            progress: seen.progress + expected.seen.progress,
            notices: seen.notices + expected.seen.notices,
            compacted: seen.compacted + expected.seen.compacted,
            canceled: seen.canceled + expected.seen.canceled,
            refused: seen.refused + expected.seen.refused,
        };
    }
    seen
}

fn transaction(chance: &mut Dice) -> Vec<Change> {
    let most = if chance.one_in(4) { KEYS.len() } else { 1 };
    let mut changes: Vec<Change> = Vec::new();
    for _ in 0..most {
        let key = chance.pick(&KEYS).to_owned();
        if changes.iter().any(|(other, _)| *other == key) {
            continue;
        }
        let value = (!chance.one_in(3)).then(|| {
            let len = if chance.one_in(10) { 200 } else { 1 + chance.below(9) as usize };
            "v".repeat(len)
        });
        changes.push((key, value));
    }
    changes
}

fn compaction(world: &World, chance: &mut Dice) -> i64 {
    let span = (world.revision() - world.compacted.max(0)) as u64;
    world.compacted.max(chance.below(span + 1) as i64 + world.compacted.max(0))
}

fn client(world: &mut World, who: usize, expected: &mut Expected, chance: &mut Dice) {
    match chance.below(8) {
        0..=3 => {
            let request = create(world, chance);
            expected.asked.push_back(request.clone());
            world.client(who, FromClient::Create(request));
        }
        4 => world.client(who, FromClient::Cancel { id: chance.below(6) as i64 }),
        _ => world.client(who, FromClient::Progress),
    }
}

fn create(world: &World, chance: &mut Dice) -> CreateRequest {
    let now = world.revision();
    CreateRequest {
        key: Bytes::from_static(chance.pick(&KEYS).as_bytes()),
        range_end: Bytes::from_static(chance.pick(&["", "", "c", "e", "\0"]).as_bytes()),
        start_revision: match chance.below(5) {
            0 => now + 1 + chance.below(6) as i64,
            1 => 1 + chance.below(now as u64) as i64,
            2 => (now - chance.below(10) as i64).max(-1),
            _ => 0,
        },
        progress_notify: chance.one_in(2),
        no_put: chance.one_in(6),
        no_delete: chance.one_in(6),
        prev_kv: chance.one_in(2),
        watch_id: if chance.one_in(3) { 1 + chance.below(5) as i64 } else { 0 },
        fragment: chance.one_in(2),
    }
}
