//! The judge. It sees the committed log as members apply it, replays it through the sequential
//! model, and holds every answer, every member's state and every disk against it.
//!
//! No search is needed for strict serialisability: the order is the log. An answered command
//! must stand in the log once, with the answer the model gives there; an answered read must
//! equal the model at some point that is not older than anything answered before it was asked.

use crate::clock::Clock;
use crate::confs::Confs;
use crate::model::{Done, Kv, Mark, Model, Reply, sort_key};
use crate::ops::{Command, Op, Range, Txn};
use crate::plan::{MS, SECOND};
use crate::trace::{Time, show};
use bytes::Bytes;
use consensus::{Entry, EntryKind, HardState, Position};
use std::collections::{BTreeMap, BTreeSet};
use store::Error;

/// A broken promise: the check's name (first page of this crate) and what was seen.
#[derive(Clone, Debug)]
pub struct Failure {
    pub at: Time,
    pub oracle: &'static str,
    pub text: String,
}

/// The alarm's number.
pub const CORRUPT: i32 = 2;

/// What one member holds, as the oracle follows it.
#[derive(Debug, Default)]
struct Seat {
    id: u64,
    /// The member's log as it was told to save it: index to (term, kind, data).
    log: BTreeMap<u64, (u64, EntryKind, Bytes)>,
    /// What its disk has flushed: index to term.
    durable: BTreeMap<u64, u64>,
    /// Everything at or below stands in a durable checkpoint.
    base: u64,
    durable_hard: HardState,
    applied: u64,
    /// The newest revision that serialisable reads were answered at in this life.
    serial: i64,
    harmed: Harmed,
}

/// Whether a member's disk is what it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Harmed {
    #[default]
    No,
    /// What it says it has is not held against what it flushed.
    Yes,
    /// Its state is of no use, and its log is whole: that is held against what it flushed.
    State,
    /// As `State`: its state is another than that of the other members.
    Differs,
    /// Its disk is of another founding: nothing that it does is part of this history.
    Foreign,
}

impl Harmed {
    fn keeps_log(self) -> bool {
        !matches!(self, Harmed::Yes | Harmed::Foreign)
    }
}

/// What a member promises another one.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    Vote { term: u64, candidate: u64 },
    Entries { upto: u64 },
}

#[derive(Debug)]
struct Committed {
    term: u64,
    kind: EntryKind,
    data: Bytes,
    at: Time,
}

#[derive(Debug)]
pub struct Oracle {
    pub model: Model,
    /// Index of the first entry after genesis.
    first: u64,
    log: Vec<Committed>,
    done: Vec<Done>,
    tags: BTreeMap<u64, u64>,
    /// Commands that were refused for good: may never stand in the log.
    never: BTreeMap<u64, String>,
    seats: Vec<Seat>,
    confs: Confs,
    leaders: BTreeMap<u64, usize>,
    digests: BTreeMap<u64, (usize, u128)>,
    /// Who said each of them first.
    hashes: BTreeMap<(i64, i64), Vec<(usize, u32)>>,
    /// Largest index that an answer has shown to a client.
    pub floor: u64,
    /// Lease to the sending time and TTL of its newest answered grant or renewal.
    renewed: BTreeMap<i64, (Time, i64)>,
    pub failures: Vec<Failure>,
    pub fenced: u64,
    /// Planted: there are two histories, and a member must say so in these words until then. What
    /// two histories break besides is not judged.
    two_histories: Option<(&'static str, Time)>,
}

impl Oracle {
    /// `founders` of `slots` members begin.
    pub fn new(founders: usize, slots: usize, genesis: u64) -> Oracle {
        Oracle {
            model: Model::new(genesis),
            first: genesis + 1,
            log: Vec::new(),
            done: Vec::new(),
            tags: BTreeMap::new(),
            never: BTreeMap::new(),
            seats: (1..=slots as u64)
                .map(|id| Seat { id, base: genesis, applied: genesis, ..Seat::default() })
                .collect(),
            confs: Confs::new(founders, genesis),
            leaders: BTreeMap::new(),
            digests: BTreeMap::new(),
            hashes: BTreeMap::new(),
            floor: genesis,
            renewed: BTreeMap::new(),
            failures: Vec::new(),
            fenced: 0,
            two_histories: None,
        }
    }

    pub fn fail(&mut self, at: Time, oracle: &'static str, text: String) {
        let judged = self.two_histories.is_none() || ["R-7", "panic"].contains(&oracle);
        if judged && self.failures.len() < 20 {
            self.failures.push(Failure { at, oracle, text });
        }
    }

    /// Members have two histories now, and one of them must say so until then.
    pub fn expects_two_histories(&mut self, said: &'static str, until: Time) {
        self.two_histories.get_or_insert((said, until));
    }

    /// Nobody said that there are two histories.
    pub fn waited_in_vain(&self, now: Time) -> bool {
        self.two_histories.is_some_and(|(_, until)| now > until)
    }

    /// What a member says of two histories is what it must see.
    pub fn is_expected(&self, said: &str) -> bool {
        self.two_histories.is_none_or(|(expected, _)| said.contains(expected))
    }

    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Last index known to be committed.
    pub fn last(&self) -> u64 {
        self.model.last().index
    }

    /// The entry at `index` as committed: (term, data).
    pub fn committed(&self, index: u64) -> Option<(u64, &Bytes)> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.log.get(at).map(|c| (c.term, &c.data))
    }

    // What members do.

    /// A member was told to save: this is its log from now on, durable or not.
    /// True when that replaces other entries.
    pub fn on_save(&mut self, now: Time, who: usize, hard: HardState, entries: &[Entry]) -> bool {
        if self.is_foreign(who) {
            return false;
        }
        let before = self.seats[who].durable_hard;
        if hard.term < before.term || (hard.term == before.term && before.vote != 0 && hard.vote != before.vote) {
            self.fail(now, "R-6", format!("m{} saves {hard:?} after {before:?}", who + 1));
        }
        let Some(first) = entries.first() else { return false };
        if first.index <= self.seats[who].applied {
            let applied = self.seats[who].applied;
            self.fail(
                now,
                "R-2",
                format!("m{} rewrites its log from {} though it applied {applied}", who + 1, first.index),
            );
        }
        let seat = &mut self.seats[who];
        let replaced = !seat.log.split_off(&first.index).is_empty();
        for e in entries {
            seat.log.insert(e.index, (e.term, e.kind, e.data.clone()));
        }
        replaced
    }

    /// The disk of a member has flushed a save, whatever the member was told.
    pub fn on_durable(&mut self, who: usize, hard: HardState, entries: &[Position]) {
        if self.is_foreign(who) {
            return;
        }
        let seat = &mut self.seats[who];
        seat.durable_hard = hard;
        if let Some(first) = entries.first() {
            seat.durable.split_off(&first.index);
        }
        seat.durable.extend(entries.iter().map(|at| (at.index, at.term)));
    }

    /// A member promises something. Its disk has flushed it.
    pub fn on_promise(&mut self, now: Time, who: usize, promise: Promise) {
        let seat = &self.seats[who];
        let kept = match promise {
            Promise::Vote { term, candidate } => {
                let HardState { term: flushed, vote, .. } = seat.durable_hard;
                flushed > term || (flushed, vote) == (term, candidate)
            }
            Promise::Entries { upto } => seat.base.max(seat.durable.keys().next_back().copied().unwrap_or(0)) >= upto,
        };
        if !kept && seat.harmed.keeps_log() {
            let text = format!("m{} promises {promise:?}, and its disk has {:?}", who + 1, seat.durable_hard);
            self.fail(now, "D-2", text);
        }
    }

    /// An installed snapshot replaced the log of a member.
    pub fn on_restart_log(&mut self, who: usize, index: u64) {
        if self.is_foreign(who) {
            return;
        }
        let seat = &mut self.seats[who];
        seat.log.clear();
        seat.durable.clear();
        seat.base = index;
    }

    /// The disk of this member is of another founding.
    pub fn is_foreign(&self, who: usize) -> bool {
        self.seats[who].harmed == Harmed::Foreign
    }

    /// The state of this member is known to be another than that of the others.
    pub fn differs(&self, who: usize) -> bool {
        self.seats[who].harmed == Harmed::Differs
    }

    /// The state of this member was of no use when it came back, or it has none.
    pub fn lacks_state(&self, who: usize) -> bool {
        self.seats[who].harmed == Harmed::State
    }

    /// It has every entry that is known to be committed on its disk.
    pub fn has_all(&self, who: usize) -> bool {
        let (seat, last) = (&self.seats[who], self.last());
        let durable = seat.durable.get(&last).copied();
        seat.base >= last || durable.is_some() && durable == self.committed(last).map(|(term, _)| term)
    }

    /// This member decides alone from now on, and what its log holds says that the others are gone.
    /// Its next term may be one that another member led without its knowledge: that one is of the
    /// founding before.
    pub fn on_alone(&mut self, id: u64) {
        self.leaders.clear();
        self.confs.decides_alone(id);
    }

    /// A new member takes the place: it has nothing.
    pub fn on_seated(&mut self, who: usize, id: u64) {
        self.seats[who] = Seat { id, harmed: Harmed::State, ..Seat::default() };
    }

    /// A committed entry removed it.
    pub fn was_removed(&self, id: u64) -> bool {
        self.confs.was_removed(id)
    }

    /// Ids of those who vote.
    pub fn voters(&self) -> &BTreeSet<u64> {
        self.confs.voters()
    }

    /// The same, and those who voted before the newest change.
    pub fn electorates(&self) -> [BTreeSet<u64>; 2] {
        self.confs.electorates()
    }

    /// These were the members at some index from `from` to `upto`.
    pub fn was_list(&self, from: u64, upto: u64, ids: &[u64]) -> bool {
        self.confs.was_list(from, upto, ids)
    }

    /// The disk of a member is not what it was, or is it again.
    pub fn on_harmed(&mut self, who: usize, harmed: Harmed) {
        self.seats[who].harmed = harmed;
    }

    /// The last index that any disk has.
    pub fn last_durable(&self) -> u64 {
        self.seats.iter().filter_map(|s| s.durable.keys().next_back()).copied().max().unwrap_or(0).max(self.last())
    }

    /// Term and vote that the disk of a member has flushed.
    pub fn ballot(&self, who: usize) -> HardState {
        self.seats[who].durable_hard
    }

    pub fn is_harmed(&self, who: usize) -> bool {
        self.seats[who].harmed != Harmed::No
    }

    /// Last entry and commit index that the disk of a member has flushed.
    pub fn flushed(&self, who: usize) -> (u64, u64) {
        let seat = &self.seats[who];
        let last = seat.durable.keys().next_back().copied().unwrap_or(0);
        (last.max(seat.base), seat.durable_hard.commit)
    }

    /// Holds a recovered log against what was flushed: (check, what is wrong).
    fn compare_recovered(
        &self,
        who: usize,
        hard: HardState,
        entries: &[Entry],
        applied: u64,
    ) -> Option<(&'static str, String)> {
        let seat = &self.seats[who];
        let before = seat.durable_hard;
        if hard.term < before.term || (hard.term == before.term && before.vote != 0 && hard.vote != before.vote) {
            return Some(("D-2", format!("m{} recovers {hard:?}, but {before:?} was flushed", who + 1)));
        }
        let last = entries.last().map_or(applied, |e| e.index).max(applied);
        // A save that was under way may have cut it off.
        let wanted =
            |(index, term): &(&u64, &u64)| **index > last && seat.log.get(index).is_some_and(|l| l.0 == **term);
        if let Some((index, term)) = seat.durable.iter().next_back().filter(wanted) {
            let text = format!("m{} recovers a log up to {last}; {index} of term {term} was flushed", who + 1);
            return Some(("D-1", text));
        }
        entries.iter().find_map(|e| {
            let term = *seat.durable.get(&e.index)?;
            let (_, kind, data) = seat.log.get(&e.index)?;
            // A save that was under way may have replaced it.
            let replaced = seat.log.get(&e.index).is_some_and(|l| l.0 != term);
            let same = e.term == term && e.kind == *kind && e.data == *data;
            (!same && !replaced).then(|| {
                (
                    "D-3",
                    format!("m{} recovers another entry at {}: term {}, {term} was flushed", who + 1, e.index, e.term),
                )
            })
        })
    }

    /// A log that was harmed may show less than it had, and never an entry with another content.
    fn find_another(&self, who: usize, entries: &[Entry]) -> Option<String> {
        let log = &self.seats[who].log;
        entries.iter().find_map(|e| {
            let (_, kind, data) = log.get(&e.index).filter(|(term, ..)| *term == e.term)?;
            let same = e.kind == *kind && e.data == *data;
            (!same).then(|| format!("m{} recovers another entry at {} of term {}", who + 1, e.index, e.term))
        })
    }

    /// A member starts from what its disk has.
    pub fn on_recovered(&mut self, now: Time, who: usize, hard: HardState, entries: &[Entry], applied: u64) {
        if self.is_foreign(who) {
            return;
        }
        if self.seats[who].harmed.keeps_log()
            && let Some((check, text)) = self.compare_recovered(who, hard, entries, applied)
        {
            self.fail(now, check, text);
        }
        if let Some(text) = self.find_another(who, entries) {
            self.fail(now, "D-3", text);
        }
        let seat = &mut self.seats[who];
        seat.log = entries.iter().map(|e| (e.index, (e.term, e.kind, e.data.clone()))).collect();
        // Recovery writes the tail again before it counts.
        seat.durable = entries.iter().map(|e| (e.index, e.term)).collect();
        // An install that a start finished leaves no log below the state.
        seat.base = seat.base.max(entries.first().map_or(applied, |e| e.index - 1));
        if !seat.harmed.keeps_log() {
            // It has what it shows, no more.
            seat.base = entries.first().map_or(applied, |e| e.index - 1);
        }
        seat.durable_hard = hard;
        seat.applied = 0;
        seat.serial = 0;
    }

    /// What a member says of itself after a turn.
    pub fn on_status(&mut self, now: Time, who: usize, status: &node::Status) -> Vec<Done> {
        if self.is_foreign(who) {
            return Vec::new();
        }
        if status.is_leader {
            let first = *self.leaders.entry(status.term).or_insert(who);
            if first != who {
                self.fail(now, "R-1", format!("m{} and m{} both lead term {}", first + 1, who + 1, status.term));
            }
        }
        if status.applied == self.seats[who].applied {
            return Vec::new();
        }
        let fresh = self.on_applied(now, who, status.applied);
        self.check_state(now, who, status);
        fresh
    }

    fn on_applied(&mut self, now: Time, who: usize, applied: u64) -> Vec<Done> {
        let before = self.seats[who].applied;
        if applied < before {
            self.fail(now, "S-3", format!("m{} applied {applied} after {before}", who + 1));
        }
        let mut fresh = Vec::new();
        for index in before.max(self.first - 1) + 1..=applied {
            let mine = self.seats[who].log.get(&index).cloned();
            match self.log.get((index - self.first) as usize) {
                Some(known) => {
                    if let Some((term, kind, data)) = mine
                        && (term != known.term || kind != known.kind || data != known.data)
                    {
                        let text = format!(
                            "m{} applied another entry at {index}: term {term}, committed was term {}",
                            who + 1,
                            known.term
                        );
                        self.fail(now, "R-5", text);
                    }
                }
                None => match mine {
                    Some((term, kind, data)) => fresh.extend(self.commit(now, who, index, term, kind, data)),
                    None => {
                        self.fail(now, "R-4", format!("m{} applied {index}, which stands in no log it saved", who + 1));
                        break;
                    }
                },
            }
            if self.failed() {
                break;
            }
        }
        self.seats[who].applied = applied;
        fresh
    }

    /// The first apply of an index.
    fn commit(&mut self, now: Time, who: usize, index: u64, term: u64, kind: EntryKind, data: Bytes) -> Option<Done> {
        let has = |at: &BTreeMap<u64, u64>| at.get(&index) == Some(&term);
        let holders = self.seats.iter().filter(|s| s.base >= index || has(&s.durable));
        let holders: BTreeSet<u64> = holders.map(|seat| seat.id).collect();
        if !self.confs.is_quorum(&holders) {
            let (have, of) = (holders.len(), self.confs.voters().len());
            let text = format!("m{} applied {index} of term {term} while {have} of {of} disks have it", who + 1);
            self.fail(now, "D-2", text);
        }
        if kind == EntryKind::Config {
            self.confs.apply(index, &data);
        }
        if self.log.last().is_some_and(|last| last.term > term) {
            self.fail(now, "R-3", format!("entry {index} is of term {term}, the one before of a later one"));
        }
        self.log.push(Committed { term, kind, data: data.clone(), at: now });
        let Some(done) = self.model.apply(index, term, kind == EntryKind::Normal, &data) else {
            self.fail(now, "KV-1", format!("entry {index} says nothing known: {}", show(&data)));
            return None;
        };
        if let Some(tag) = done.tag {
            if let Some(first) = self.tags.insert(tag, index) {
                self.fail(now, "KV-8", format!("operation {tag} was applied at {first} and at {index}"));
            }
            if let Some(why) = self.never.get(&tag) {
                let why = why.clone();
                self.fail(now, "KV-7", format!("operation {tag} was refused ({why}) and applied at {index}"));
            }
        }
        self.fenced += done.fenced as u64;
        for &lease in &done.expired {
            if let Some((sent, ttl)) = self.renewed.remove(&lease) {
                self.check_not_early(now, lease, sent, ttl, now);
            }
        }
        if let (Some(Command::Revoke { id }), Ok(_)) = (done.envelope.as_ref().map(|e| &e.command), &done.result) {
            self.renewed.remove(id);
        }
        self.done.push(done.clone());
        Some(done)
    }

    fn check_state(&mut self, now: Time, who: usize, status: &node::Status) {
        let Some(mark) = self.model.mark(status.applied) else { return };
        let own = store::AlarmMember { member: status.member, alarm: CORRUPT };
        if self.seats[who].harmed != Harmed::No && status.alarms.contains(&own) {
            // It has no state, or a wrong one, and says so.
            return;
        }
        if (status.revision, status.compacted) != (mark.revision, mark.compacted) {
            let text = format!(
                "m{} at index {}: revision {} compacted {}; right is {} and {}",
                who + 1,
                status.applied,
                status.revision,
                status.compacted,
                mark.revision,
                mark.compacted
            );
            self.fail(now, "KV-2", text);
        }
        if self.seats[who].harmed == Harmed::Differs {
            if self.digests.get(&status.applied).is_some_and(|(_, digest)| *digest == status.digest) {
                // Another member's state has replaced it.
                self.seats[who].harmed = Harmed::State;
            }
            return;
        }
        let (first, digest) = *self.digests.entry(status.applied).or_insert((who, status.digest));
        if digest != status.digest {
            self.fail(now, "H-1", format!("m{} and m{} differ at index {}", first + 1, who + 1, status.applied));
        }
    }

    // What clients see.

    /// A command was answered with `got`; `floor`: what had been answered before it was sent.
    pub fn on_applied_answer(
        &mut self,
        now: Time,
        tag: u64,
        floor: u64,
        command: &Command,
        revision: i64,
        got: &Result<Reply, Error>,
    ) {
        let Some(&index) = self.tags.get(&tag) else {
            return self.fail(
                now,
                "D-1",
                format!("operation {tag} ({command:?}) was acknowledged but is not in the log"),
            );
        };
        if index <= floor {
            self.fail(
                now,
                "KV-1",
                format!("operation {tag} stands at {index}, before {floor}, which was answered before it was sent"),
            );
        }
        let done = &self.done[(index - self.first) as usize];
        let (want, mark) = (done.result.clone(), done.mark);
        let same = match (&want, got) {
            (Ok(want), Ok(got)) => agree_command(command, want, got),
            (want, got) => want == got,
        };
        if !same {
            return self.fail(
                now,
                "KV-1",
                format!("operation {tag} at {index}: {command:?}\n  answered {got:?}\n  right is {want:?}"),
            );
        }
        if revision != mark.revision {
            return self.fail(
                now,
                "KV-1",
                format!("operation {tag} at {index}: header revision {revision}, right is {}", mark.revision),
            );
        }
        self.floor = self.floor.max(index);
    }

    /// A command was refused in a way that promises that it never happens.
    pub fn on_never(&mut self, now: Time, tag: u64, why: String) {
        if let Some(index) = self.tags.get(&tag) {
            let index = *index;
            self.fail(now, "KV-7", format!("operation {tag} was refused ({why}) but stands at {index}"));
        }
        self.never.insert(tag, why);
    }

    /// Whom the entry of an operation names.
    pub fn asker_of(&self, tag: u64) -> Option<&crate::ops::Asker> {
        let index = self.index_of(tag)?;
        Some(&self.done[(index - self.first) as usize].envelope.as_ref()?.asker)
    }

    pub fn index_of(&self, tag: u64) -> Option<u64> {
        self.tags.get(&tag).copied()
    }

    /// A linearisable read. Its point lies at or above `floor`.
    pub fn on_read(&mut self, now: Time, floor: u64, revision: i64, what: &Read, got: &Result<Reply, Error>) {
        match self.find_point(floor, self.last(), revision, what, got) {
            Some(point) => self.floor = self.floor.max(point),
            None => self.explain_read(
                now,
                if self.is_stale(floor, revision) { "KV-3" } else { "KV-1" },
                floor,
                revision,
                what,
                got,
            ),
        }
    }

    fn is_stale(&self, floor: u64, revision: i64) -> bool {
        self.model.mark(floor).is_some_and(|m| revision < m.revision)
    }

    /// The newest revision that serialisable reads of this life of a member were answered at.
    pub fn serial(&self, who: usize) -> i64 {
        self.seats[who].serial
    }

    /// A serialisable read on member `who` begins to be answered. `floor`: what had been answered
    /// when it was asked. Reads that were under way together may be answered in any order: a long
    /// one is measured first, at the revision at which it began.
    pub fn on_serial_begins(&mut self, now: Time, who: usize, floor: i64, revision: i64) {
        if revision < floor {
            self.fail(now, "KV-5", format!("m{} goes back from revision {floor} to {revision}", who + 1));
        }
        self.seats[who].serial = self.seats[who].serial.max(revision);
    }

    /// A serialisable read on member `who` is answered in whole.
    pub fn on_serializable(&mut self, now: Time, who: usize, revision: i64, what: &Read, got: &Result<Reply, Error>) {
        let high = self.seats[who].applied.max(self.first - 1);
        if self.find_point(self.first - 1, high, revision, what, got).is_none() {
            self.explain_read(now, "KV-5", self.first - 1, revision, what, got);
        }
    }

    fn find_point(&self, low: u64, high: u64, revision: i64, what: &Read, got: &Result<Reply, Error>) -> Option<u64> {
        let mut seen = None;
        for mark in self.model.marks(low, high) {
            // Only these two can change an answer.
            if mark.revision != revision || seen == Some(mark.compacted) {
                continue;
            }
            seen = Some(mark.compacted);
            if what.agrees(&self.model, mark, got) {
                return Some(mark.index);
            }
        }
        None
    }

    fn explain_read(
        &mut self,
        now: Time,
        oracle: &'static str,
        floor: u64,
        revision: i64,
        what: &Read,
        got: &Result<Reply, Error>,
    ) {
        let low = self.model.mark(floor);
        let high = self.model.last();
        let at = self.model.marks(floor, high.index).find(|m| m.revision == revision).unwrap_or(high);
        let want = what.answer(&self.model, at);
        let text = format!(
            "read {what:?}\n  answered at revision {revision}: {got:?}\n  at {at:?}: {want:?}\n  floor {low:?}, head {high:?}"
        );
        self.fail(now, oracle, text);
    }

    // Leases.

    fn check_not_early(&mut self, now: Time, lease: i64, sent: Time, ttl: i64, ended: Time) {
        let keeps = sent + ttl as u64 * SECOND * (100 - Clock::RHO) / 100;
        if ended + 20 * MS < keeps {
            let text = format!(
                "lease {lease} with TTL {ttl} renewed at {sent} µs expired at {ended} µs, {} ms early",
                (keeps - ended) / MS
            );
            self.fail(now, "L-1", text);
        }
    }

    /// A grant or renewal that was sent at `sent` was answered with `ttl` > 0.
    pub fn on_renewed(&mut self, now: Time, floor: u64, lease: i64, sent: Time, ttl: i64) {
        let lives = self.model.lease(lease).iter().any(|l| l.ended_at > floor && l.ttl == ttl);
        if !lives {
            return self.fail(now, "L-7", format!("lease {lease} is renewed for {ttl} s, but it did not live then"));
        }
        let Some(life) = self.model.lease(lease).last().cloned() else { return };
        if life.granted_at > floor {
            // It may have been an earlier life of the id that was renewed.
            return;
        }
        if life.ended_at == u64::MAX {
            let newest = self.renewed.entry(lease).or_insert((sent, ttl));
            if sent >= newest.0 {
                *newest = (sent, ttl);
            }
        } else if life.expired {
            let ended = self.commit_time(life.ended_at).unwrap_or(now);
            if ended > sent {
                self.check_not_early(now, lease, sent, ttl, ended);
            }
        }
    }

    /// A grant was answered. A new life of the id: old promises do not count.
    pub fn on_granted(&mut self, now: Time, tag: u64, lease: i64, sent: Time, ttl: i64) {
        let Some(index) = self.index_of(tag) else { return };
        let Some(life) = self.model.lease(lease).iter().rev().find(|l| l.granted_at == index).cloned() else { return };
        if life.ended_at == u64::MAX {
            let newest = self.renewed.entry(lease).or_insert((sent, ttl));
            *newest = (sent.max(newest.0), ttl);
        } else if life.expired {
            self.check_not_early(now, lease, sent, ttl, self.commit_time(life.ended_at).unwrap_or(now));
        }
    }

    /// The entry that granted the lease, if it lives and lived already at `floor`.
    pub fn lives_since(&self, lease: i64, floor: u64) -> Option<u64> {
        let last = self.model.lease(lease).last()?;
        (last.granted_at <= floor && last.ended_at == u64::MAX).then_some(last.granted_at)
    }

    /// True when the leader's clock may say that the lease is over, though it is not yet revoked.
    pub fn may_have_lapsed(&self, lease: i64, now: Time) -> bool {
        self.renewed.get(&lease).is_none_or(|&(sent, ttl)| now >= sent + ttl as u64 * SECOND * (100 - Clock::RHO) / 100)
    }

    /// A renewal was answered with TTL 0.
    pub fn on_not_renewed(&mut self, now: Time, floor: u64, lease: i64) {
        let lived_throughout = self.model.lease(lease).iter().any(|l| l.granted_at <= floor && l.ended_at == u64::MAX);
        if lived_throughout {
            self.fail(now, "L-7", format!("lease {lease} lives, but its renewal was answered with TTL 0"));
        }
    }

    /// In quiet times nothing may outlive its lease for long.
    pub fn check_no_old_leases(&mut self, now: Time, quiet_since: Time, grace: Time) {
        for id in self.model.living_leases() {
            let ttl = self.model.lease(id).last().map_or(0, |l| l.ttl) as u64;
            let since = self.renewed.get(&id).map_or(quiet_since, |r| r.0.max(quiet_since));
            let latest = since + ttl * SECOND * (100 + 2 * Clock::RHO) / 100 + grace;
            if now > latest {
                self.fail(now, "L-2", format!("lease {id} with TTL {ttl} still lives at {now} µs"));
            }
        }
    }

    // Hashes.

    pub fn on_hash_kv(&mut self, now: Time, who: usize, revision: i64, compacted: i64, hash: u32) {
        // At a delete that leaves nothing, the hash that a compaction at it remembers is another
        // than the one asked for before: etcd 3.7.3 answers both, one after the other.
        let most = 1 + usize::from(self.model.events(revision).iter().any(|event| event.tombstone));
        let known = self.hashes.entry((revision, compacted)).or_default();
        if known.iter().any(|(_, other)| *other == hash) {
            return;
        }
        known.push((who, hash));
        if known.len() > most {
            let said: Vec<String> = known.iter().map(|(who, hash)| format!("m{} says {hash}", who + 1)).collect();
            let text = format!("HashKV at revision {revision} compacted {compacted}: {}", said.join(", "));
            self.fail(now, "H-2", text);
        }
    }

    /// Digests of the states from one index to another, if all are known.
    pub fn digests(&self, from: u64, upto: u64) -> Option<Vec<u128>> {
        (from..=upto).map(|index| Some(self.digests.get(&index)?.1)).collect()
    }

    pub fn applied(&self, who: usize) -> u64 {
        self.seats[who].applied
    }

    /// When the entry was first applied.
    pub fn commit_time(&self, index: u64) -> Option<Time> {
        Some(self.log.get((index.checked_sub(self.first)?) as usize)?.at)
    }

    /// Bytes of all entries that are committed.
    pub fn committed_bytes(&self) -> u64 {
        self.log.iter().map(|committed| committed.data.len() as u64).sum()
    }

    /// Bytes of the committed entries behind this index.
    pub fn bytes_behind(&self, index: u64) -> u64 {
        self.log.iter().skip(index as usize).map(|committed| committed.data.len() as u64).sum()
    }

    /// Bytes of the entries behind this index in a member's log.
    pub fn bytes_ahead(&self, who: usize, index: u64) -> u64 {
        self.seats[who].log.range(index + 1..).map(|(_, (.., data))| data.len() as u64).sum()
    }

    /// Operations that stand in the log.
    pub fn tags(&self) -> BTreeSet<u64> {
        self.tags.keys().copied().collect()
    }
}

/// A read as it was asked.
#[derive(Clone, Debug)]
pub enum Read {
    Range(Range),
    Txn(Txn),
    /// Nothing but the header: a barrier.
    Nothing,
}

impl Read {
    pub fn answer(&self, model: &Model, mark: Mark) -> Result<Reply, Error> {
        match self {
            Read::Range(range) => model.range(range, mark),
            Read::Txn(txn) => model.read_txn(txn, mark),
            Read::Nothing => Ok(Reply::Other),
        }
    }

    fn agrees(&self, model: &Model, mark: Mark, got: &Result<Reply, Error>) -> bool {
        match (self.answer(model, mark), got) {
            (Ok(want), Ok(got)) => match self {
                Read::Range(range) => agree_range(range, &want, got),
                Read::Txn(txn) => agree_txn(txn, &want, got),
                Read::Nothing => true,
            },
            (want, got) => want == *got,
        }
    }
}

/// Equal, except that the order of equal sort keys is free.
fn agree_range(range: &Range, want: &Reply, got: &Reply) -> bool {
    if want == got {
        return true;
    }
    let (Reply::Range { kvs: a, count: c, more: m }, Reply::Range { kvs: b, count: d, more: n }) = (want, got) else {
        return false;
    };
    if (c, m, a.len()) != (d, n, b.len()) || range.target == 0 {
        return false;
    }
    let sorted = |kvs: &[Kv]| {
        let mut keys: Vec<_> = kvs.iter().map(|kv| kv.key.clone()).collect();
        keys.sort();
        keys
    };
    // Keys-only answers have lost the value they were sorted by.
    let comparable = !(range.keys_only && range.target == 4);
    let ties_alone = !comparable || a.iter().zip(b).all(|(x, y)| sort_key(range.target, x, y).is_eq());
    let same_set = range.limit > 0 || (sorted(a) == sorted(b) && b.iter().all(|kv| a.contains(kv)));
    ties_alone && same_set
}

fn agree_txn(txn: &Txn, want: &Reply, got: &Reply) -> bool {
    let (Reply::Txn { succeeded: s, responses: a }, Reply::Txn { succeeded: t, responses: b }) = (want, got) else {
        return false;
    };
    let ops = if *s { &txn.success } else { &txn.failure };
    s == t
        && a.len() == b.len()
        && ops.len() == a.len()
        && ops.iter().zip(a).zip(b).all(|((op, (ra, x)), (rb, y))| {
            ra == rb
                && match op {
                    Op::Range(range) => agree_range(range, x, y),
                    Op::Txn(inner) => agree_txn(inner, x, y),
                    _ => x == y,
                }
        })
}

fn agree_command(command: &Command, want: &Reply, got: &Reply) -> bool {
    match command {
        Command::Txn(txn) => agree_txn(txn, want, got),
        _ => want == got,
    }
}
