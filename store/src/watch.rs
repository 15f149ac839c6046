//! Live watches: who must hear of a revision, and the ring of the newest events.
//!
//! A watch is {range, filters, next revision}. The [`Hub`] knows the *live* ones, those
//! that have been told everything up to the newest revision. A watch that is further back
//! is in no index: its stream reads history until it is near, then asks to [`Hub::join`].
//! Joining hands over what the ring still holds and inserts the watch in the same step,
//! so nothing can fall between the two and nothing can come twice.
//!
//! Matching costs O(log n) in the number of distinct keys and ranges watched, plus the
//! watches that do match. The hub never looks at a value and never waits.

mod ranges;

use crate::types::{KeyRange, RevisionEvents};
use bytes::Bytes;
use ranges::{RangeId, Ranges};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most revisions that one join takes from the ring. A longer gap is answered by
/// [`Join::Behind`], so that no join keeps the single writer busy for long.
pub const JOIN_REVISIONS: usize = 4096;

/// A revision is matched as long as its events are found in lists of watches so often, or twice for
/// each event.
const MOST_FOUND: usize = 1 << 20;

/// What an event costs the ring beside the bytes of its records.
const EVENT_OVERHEAD: usize = 128;

/// One live watch: its stream, and the stream's own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchKey {
    /// Number of the stream.
    pub stream: u64,
    /// The watch's id on its stream.
    pub id: i64,
}

/// What a watch wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Which keys.
    pub range: KeyRange,
    /// Leave writes out.
    pub no_put: bool,
    /// Leave deletions out.
    pub no_delete: bool,
    /// Carried for the stream; matching does not look at it.
    pub prev_kv: bool,
}

/// One watch that a published revision concerns.
#[derive(Clone, Debug)]
pub struct Hit {
    /// Which watch.
    pub key: WatchKey,
    /// Indexes into `RevisionEvents::events`, ascending, never empty.
    pub picks: Arc<[u32]>,
}

/// Answer to [`Hub::join`].
#[derive(Clone, Debug)]
pub enum Join {
    /// The watch is live. `missed`: every revision from its `next` to the newest, unfiltered.
    Joined {
        /// May be empty.
        missed: Vec<Arc<RevisionEvents>>,
    },
    /// Too far back for the ring: read history up to near the newest revision, then ask again. No
    /// watch can join below revision `ring`, now and later.
    Behind {
        /// The oldest revision that the ring of events has whole.
        ring: i64,
    },
}

/// What [`Hub::reset`] took away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Streams that had a live watch, ascending.
    pub streams: Vec<u64>,
    /// The last revision that was published before: those watches have been told of
    /// everything up to and including it.
    pub posted: i64,
}

/// The live watches of one member, and the newest events.
#[derive(Debug)]
pub struct Hub {
    ring: VecDeque<Arc<RevisionEvents>>,
    ring_bytes: usize,
    ring_bytes_max: usize,
    seed: u64,
    /// The revision that must be published next; the ring ends just before it.
    coming: i64,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    keys: BTreeMap<WatchKey, u32>,
    /// Watches of a single key.
    singles: BTreeMap<Bytes, Vec<u32>>,
    /// Watches of ranges.
    ranges: Ranges,
    /// The picks of a revision with one event, which is nearly every revision.
    first: Arc<[u32]>,
}

#[derive(Debug)]
struct Slot {
    key: WatchKey,
    spec: Spec,
    /// No event below it is for this watch: it may lie in the future.
    next: i64,
    home: Home,
    /// Position in the list of its home.
    place: usize,
}

/// The list a watch stands in.
#[derive(Clone, Copy, Debug)]
enum Home {
    Single,
    Range(RangeId),
}

/// Names a list of watches: by the first of them, or by its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Single(u32),
    Range(RangeId),
}

impl Hub {
    /// `ring_bytes`: budget of the event ring. `first_revision`: the first one that will be
    /// published (the store's revision + 1). `seed`: what no client knows.
    pub fn new(ring_bytes: usize, first_revision: i64, seed: u64) -> Hub {
        Hub {
            ring: VecDeque::new(),
            ring_bytes: 0,
            ring_bytes_max: ring_bytes,
            seed,
            coming: first_revision,
            slots: Vec::new(),
            free: Vec::new(),
            keys: BTreeMap::new(),
            singles: BTreeMap::new(),
            ranges: Ranges::new(seed),
            first: Arc::from([0u32]),
        }
    }

    /// Takes the next revision into the ring and appends to `out` every live watch it
    /// concerns, each once. Some: it concerns too many watches by too many events, and all watches
    /// are forgotten before it. They join again and find it in the ring, or in history.
    ///
    /// Revisions must come without a gap: a hole here would be a lost event everywhere.
    #[must_use]
    pub fn publish(&mut self, events: Arc<RevisionEvents>, out: &mut Vec<Hit>) -> Option<Reset> {
        assert_eq!(events.revision, self.coming, "watch hub: a revision was skipped or repeated");
        let found = self.find(&events, out);
        let reset = (!found).then(|| self.forget());
        self.coming = events.revision.checked_add(1).expect("revisions are far from their end");
        self.ring_bytes += weight(&events);
        self.ring.push_back(events);
        while self.ring_bytes > self.ring_bytes_max {
            let oldest = self.ring.pop_front().expect("a ring with bytes has an entry");
            self.ring_bytes -= weight(&oldest);
        }
        reset
    }

    /// Forgets every watch.
    fn forget(&mut self) -> Reset {
        let mut streams: Vec<u64> = self.keys.keys().map(|key| key.stream).collect();
        streams.dedup();
        (self.slots, self.free) = (Vec::new(), Vec::new());
        (self.keys, self.singles) = (BTreeMap::new(), BTreeMap::new());
        self.ranges = Ranges::new(self.seed);
        Reset { streams, posted: self.coming - 1 }
    }

    /// Makes a watch live from `next` on, which may lie in the future. An older watch of the
    /// same key is replaced. The caller has checked `next` against the compacted revision.
    pub fn join(&mut self, key: WatchKey, spec: Spec, next: i64, current_revision: i64) -> Join {
        assert_eq!(current_revision + 1, self.coming, "watch hub: join between apply and publish");
        self.remove(key);
        let next = next.max(1);
        let ring = self.ring_start().max(self.coming - JOIN_REVISIONS as i64);
        if next < ring {
            return Join::Behind { ring };
        }
        let missed = self.ring.range(self.offset(next)..).cloned().collect();
        self.insert(key, spec, next);
        Join::Joined { missed }
    }

    /// Ends one watch; unknown keys are ignored.
    pub fn remove(&mut self, key: WatchKey) {
        let Some(slot_id) = self.keys.remove(&key) else { return };
        let slot = self.slots[slot_id as usize].take().expect("a named slot is filled");
        self.free.push(slot_id);
        match slot.home {
            Home::Single => {
                let list = self.singles.get_mut(&slot.spec.range.key).expect("a live watch stands in its list");
                leave(list, &mut self.slots, slot_id, slot.place);
                if list.is_empty() {
                    self.singles.remove(&slot.spec.range.key);
                }
            }
            Home::Range(range) => {
                leave(self.ranges.list(range), &mut self.slots, slot_id, slot.place);
                self.ranges.prune(range);
            }
        }
    }

    /// Ends every watch of a stream.
    pub fn remove_stream(&mut self, stream: u64) {
        let of_stream = WatchKey { stream, id: i64::MIN }..=WatchKey { stream, id: i64::MAX };
        let keys: Vec<WatchKey> = self.keys.range(of_stream).map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// Number of live watches.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Bytes that the ring holds.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// The oldest revision the ring holds; the next one to come if it holds none.
    pub fn ring_start(&self) -> i64 {
        self.ring.front().map_or(self.coming, |oldest| oldest.revision)
    }

    /// Whole revisions from `from` on, about `max_bytes` of them (at least one if there is one),
    /// and the first revision not contained. None when the ring begins later than `from`.
    pub fn since(&self, from: i64, max_bytes: usize) -> Option<(Vec<Arc<RevisionEvents>>, i64)> {
        if from < self.ring_start() {
            return None;
        }
        let mut bytes = 0;
        let mut found = Vec::new();
        for events in self.ring.range(self.offset(from)..) {
            if bytes >= max_bytes {
                break;
            }
            bytes += weight(events);
            found.push(Arc::clone(events));
        }
        let next = found.last().map_or(from, |last| last.revision + 1);
        Some((found, next))
    }

    /// The state jumped (a snapshot was installed): forgets the ring and every watch.
    /// `first_revision`: the first one that will be published from now on.
    pub fn reset(&mut self, first_revision: i64) -> Reset {
        let reset = self.forget();
        *self = Hub::new(self.ring_bytes_max, first_revision, self.seed);
        reset
    }

    /// Position of `revision` in the ring, which holds every revision from its start on;
    /// its length for one that is yet to come.
    fn offset(&self, revision: i64) -> usize {
        let offset = revision.min(self.coming) - self.ring_start();
        usize::try_from(offset).expect("asked at or above the start of the ring")
    }

    fn insert(&mut self, key: WatchKey, spec: Spec, next: i64) {
        let slot_id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 watches")
        });
        let (home, list) = match &spec.range.end {
            None => (Home::Single, self.singles.entry(spec.range.key.clone()).or_default()),
            Some(end) => {
                let range = self.ranges.enter(&spec.range.key, end);
                (Home::Range(range), self.ranges.list(range))
            }
        };
        let place = list.len();
        list.push(slot_id);
        self.slots[slot_id as usize] = Some(Slot { key, spec, next, home, place });
        self.keys.insert(key, slot_id);
    }

    /// False: too many events concern too many ranges.
    fn find(&self, events: &RevisionEvents, out: &mut Vec<Hit>) -> bool {
        let [event] = &events.events[..] else { return self.find_many(events, out) };
        self.visit(&event.key, |_, list| {
            let slots = list.iter().map(|id| self.slot(*id));
            let wanting = slots.filter(|slot| slot.next <= events.revision && slot.wants(event.tombstone));
            out.extend(wanting.map(|slot| Hit { key: slot.key, picks: Arc::clone(&self.first) }));
        });
        true
    }

    /// By list, and not by watch: there may be many watches of one range, and each would be found
    /// again for each event.
    fn find_many(&self, events: &RevisionEvents, out: &mut Vec<Hit>) -> bool {
        let mut lists: BTreeMap<List, Vec<u32>> = BTreeMap::new();
        let (mut found, most) = (0, MOST_FOUND.max(2 * events.events.len()));
        for (index, event) in (0u32..).zip(&events.events) {
            self.visit(&event.key, |list, _| {
                found += 1;
                if found <= most {
                    lists.entry(list).or_default().push(index);
                }
            });
            if found > most {
                return false;
            }
        }
        let mut hits: Vec<(u32, Hit)> = Vec::new();
        for (list, of_list) in lists {
            let watches = match list {
                List::Single(one) => &self.singles[&self.slot(one).spec.range.key],
                List::Range(range) => self.ranges.watches(range),
            };
            self.pick(watches, events, &of_list, &mut hits);
        }
        hits.sort_unstable_by_key(|(id, _)| *id);
        out.extend(hits.into_iter().map(|(_, hit)| hit));
        true
    }

    /// `of_list`: the events whose keys lie in the range of these watches. Those with the same
    /// filters share their picks.
    fn pick(&self, watches: &[u32], events: &RevisionEvents, of_list: &[u32], hits: &mut Vec<(u32, Hit)>) {
        let mut shared: [Option<Arc<[u32]>>; 4] = Default::default();
        for id in watches {
            let slot = self.slot(*id);
            if slot.next > events.revision {
                continue;
            }
            let filters = usize::from(slot.spec.no_put) + 2 * usize::from(slot.spec.no_delete);
            let wanted = |index: &u32| slot.wants(events.events[*index as usize].tombstone);
            let picks = shared[filters].get_or_insert_with(|| of_list.iter().copied().filter(wanted).collect());
            if !picks.is_empty() {
                hits.push((*id, Hit { key: slot.key, picks: Arc::clone(picks) }));
            }
        }
    }

    fn slot(&self, id: u32) -> &Slot {
        self.slots[id as usize].as_ref().expect("a listed slot is filled")
    }

    /// The lists of watches that a change of `key` concerns.
    fn visit(&self, key: &[u8], mut visit: impl FnMut(List, &[u32])) {
        if let Some(list) = self.singles.get(key) {
            visit(List::Single(list[0]), list);
        }
        self.ranges.stab(key, &mut |range, list| visit(List::Range(range), list));
    }
}

impl Slot {
    fn wants(&self, tombstone: bool) -> bool {
        !(if tombstone { self.spec.no_delete } else { self.spec.no_put })
    }
}

/// Takes a watch out of its list: the last one moves to its place.
fn leave(list: &mut Vec<u32>, slots: &mut [Option<Slot>], slot_id: u32, place: usize) {
    assert_eq!(list[place], slot_id, "watch hub: a watch is not where it should be");
    list.swap_remove(place);
    if let Some(&moved) = list.get(place) {
        slots[moved as usize].as_mut().expect("a listed slot is filled").place = place;
    }
}

fn weight(events: &RevisionEvents) -> usize {
    let bytes = |event: &crate::types::Event| {
        let prev = event.prev.as_ref().and_then(|prev| prev.bytes.as_ref()).map_or(0, Bytes::len);
        EVENT_OVERHEAD + event.key.len() + event.record.len() + prev
    };
    events.events.iter().map(bytes).sum()
}
