//! A member that must not lead, or must not answer: a hung disk, a clean stop, a digest that
//! differs from its peers'.

mod room;

use crate::config::TICK_MS;
use crate::frame::Frame;
use crate::ground::{Bar, Ground, Willing};
use crate::io::*;
use crate::jobs::Task;
use consensus::Contradiction;
use disk::startover::Rebuilt;
use room::Room;
use std::collections::{BTreeMap, BTreeSet};

/// Digest marks remembered.
const MARKS: u64 = 64;
/// A clean stop waits at most this long for a successor. Ticks.
const HANDOVER: u64 = 500 / TICK_MS;
/// And in all at most this long for its checkpoint. Ticks.
const STOP: u64 = 1_000 / TICK_MS;

/// States are compared when nothing was applied for so long, and again. Ticks.
const QUIET: u64 = 1_000 / TICK_MS;
const QUIET_AGAIN: u64 = 10_000 / TICK_MS;

/// A member whose state is wrong campaigns when nobody has led for so many election timeouts.
const LAST_RESORT: u64 = 10;

/// Why a member that differs is not rebuilt by itself.
fn stays(before: Rebuilt, index: u64) -> String {
    format!(
        "the state differs at entry {index}, and this member had started over at entry {} already: it stays CORRUPT \
         and answers nothing; look at its memory and its disk",
        before.at
    )
}

#[derive(Default)]
pub(crate) struct Health {
    /// Leadership is being given away.
    yielding: bool,
    /// The same, because clients get nothing from this member.
    overdue: bool,
    room: Room,
    stop: Option<Stop>,
    corrupt: bool,
    /// Members have two histories.
    contradicted: bool,
    /// This member has no state: the leader's is awaited.
    empty: bool,
    /// Its log is whole.
    has_log: bool,
    /// How often it has started over.
    rebuilt: Rebuilt,
    rebuild: Option<Rebuild>,
    /// While the state is wrong: since when nobody leads.
    leaderless: Option<u64>,
    marks: BTreeMap<u64, u128>,
    /// Per index: what each peer said.
    peers: BTreeMap<u64, BTreeMap<u64, u128>>,
    quiet: Quiet,
    /// Members that differ from this one.
    strange: BTreeSet<u64>,
    /// Members differ, and no majority says which are right.
    undecided: Option<Undecided>,
    /// Members already reported to have lost acknowledged entries.
    lost_data: BTreeSet<u64>,
}

/// The state of a member that differs is to be replaced.
struct Rebuild {
    /// Entry at which it differs.
    index: u64,
    /// It is remembered over a restart.
    marked: bool,
}

/// Since when nothing was applied.
#[derive(Default)]
struct Quiet {
    /// The last entry that was applied.
    index: u64,
    /// When the members compare their states next. Ticks.
    due: u64,
}

/// The first mark at which members differ without a majority.
struct Undecided {
    index: u64,
    since: u64,
    told: bool,
}

struct Stop {
    since: u64,
    handed_over: bool,
    checkpoint: bool,
    said: bool,
}

impl Health {
    /// `rebuilt`: how often this member has started over before.
    pub(crate) fn new(rebuilt: Rebuilt) -> Health {
        Health { rebuilt, ..Health::default() }
    }

    pub(crate) fn rebuilt(&self) -> Rebuilt {
        self.rebuilt
    }

    /// What this member must not do for now.
    pub(crate) fn willing(&self) -> Willing {
        Willing {
            stopping: self.stop.is_some(),
            holds_commands: self.yielding || self.overdue,
            disk_full: self.disk_full(),
            corrupt: self.corrupt,
        }
    }

    fn disk_full(&self) -> bool {
        self.room.is_full()
    }

    /// Jobs wait for space on the disk: nothing more may be begun that needs some.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.room.waits()
    }

    /// The disk has no save left to do: it answers.
    pub(crate) fn all_saved(&mut self) {
        if !self.room.waits() {
            self.yielding = false;
        }
    }

    /// Consensus found that a member lacks what it had acknowledged. It is told once.
    pub(crate) fn lost_data(&mut self, g: &mut Ground, peer: u64) {
        if self.lost_data.insert(peer) {
            g.note(Level::Error, format!("member {peer:x} seems to have lost entries that it had acknowledged"));
        }
    }

    /// Members have two histories. Who is right cannot be told: this member stops answering, and
    /// nothing of it is replaced, for it may be the only one with what was acknowledged.
    pub(crate) fn contradicted(&mut self, g: &mut Ground, found: Contradiction) {
        self.contradicted = true;
        let text = format!(
            "{found}: members have lost what they had acknowledged. CORRUPT: nothing of this member is answered any \
             more, and nothing of it is replaced, for it may be the only one with those entries. Keep a copy of its \
             directory, and compare the keys"
        );
        g.note(Level::Error, text);
        g.start(Task::Remember, BackgroundJob::Remember(Remembered::Contradicted(found.to_string())));
    }

    /// As [`Health::contradicted`], found at start.
    pub(crate) fn found_contradicted(&mut self, g: &mut Ground, seen: &str) {
        self.contradicted = true;
        g.consensus.take_nothing();
        let text = format!(
            "two histories, as seen in an earlier life: {seen}. CORRUPT: nothing of this member is answered, and \
             nothing of it is replaced, until an operator has decided (the file log/contradicted)"
        );
        g.note(Level::Error, text);
    }

    /// `every`: entries between two marks. Of comparisons between marks the newest is remembered,
    /// and one that no majority decided.
    fn mark(&mut self, every: u64, index: u64, digest: u128) {
        self.marks.insert(index, digest);
        let floor = index.saturating_sub(MARKS * every);
        let undecided = self.undecided.as_ref().map(|undecided| undecided.index);
        let kept = |mark: u64| mark.is_multiple_of(every) || mark == index || Some(mark) == undecided;
        self.marks.retain(|mark, _| *mark > floor && kept(*mark));
        self.peers.retain(|mark, _| *mark > floor);
    }

    /// What `peer` said between marks before it was quiet at `index`.
    fn forget_quiet(&mut self, every: u64, peer: u64, index: u64) {
        let undecided = self.undecided.as_ref().map(|undecided| undecided.index);
        for (mark, digests) in &mut self.peers {
            if !mark.is_multiple_of(every) && *mark != index && Some(*mark) != undecided {
                digests.remove(&peer);
            }
        }
        self.peers.retain(|_, digests| !digests.is_empty());
    }

    /// `overdue`: this member hands over because clients get nothing from it. `writing`: a
    /// checkpoint is being written or wanted. True: a checkpoint of what is applied is wanted now.
    pub(crate) fn tick(&mut self, g: &mut Ground, overdue: bool, writing: bool) -> bool {
        self.overdue = overdue;
        self.room.tick(g);
        self.hand_over_again(g);
        self.lead_if_nobody_can(g);
        self.tell_undecided(g);
        self.go_on_stopping(g, writing)
    }

    /// A member that must not lead for long, and still leads, tries again.
    fn hand_over_again(&mut self, g: &mut Ground) {
        let timeout = g.config.election_ticks();
        // Twice, for a leader forgets in one tick of each election timeout who was active, and that
        // may be the first of these.
        let again = |every: u64| [0, timeout / 2].contains(&(g.now % every));
        // Its successor was not ready an election timeout ago.
        let corrupt = self.corrupt && again(timeout);
        if g.is_leader() && (corrupt || self.disk_full() && again(10 * timeout)) {
            self.give_up_leadership(g);
        }
    }

    /// The disk is full. The lane waits with the job; reads go on, and leadership goes to a member
    /// with space.
    pub(crate) fn stalled(&mut self, g: &mut Ground, job: JobId, fault: &disk::Fault) {
        if self.room.stalled(g, job) {
            self.begin_full(g, &fault.to_string());
        }
    }

    /// The log goes on in the room that was kept back for it.
    pub(crate) fn used_reserve(&mut self, g: &mut Ground) {
        if self.room.used_reserve() {
            self.begin_full(g, "the log uses the room that was kept back for it");
        }
    }

    fn begin_full(&mut self, g: &mut Ground, why: &str) {
        let text = format!("the disk is full: {why}; reads go on, writes are refused until there is room");
        g.note(Level::Error, text);
        self.give_up_leadership(g);
    }

    pub(crate) fn unstalled(&mut self, job: JobId) {
        self.room.unstalled(job);
    }

    /// The reserve on the disk `stands`, or there is no room for it.
    pub(crate) fn reserved(&mut self, g: &mut Ground, stands: bool) {
        match (self.room.reserved(stands), stands) {
            (false, _) => {}
            (true, true) => {
                g.note(Level::Warn, "there is room on the disk again: going on".to_string());
                self.yielding &= self.stop.is_some();
            }
            (true, false) => self.begin_full(g, "there is no room for what is kept back"),
        }
    }

    /// Hands over to the best successor, if there is one. Commands wait meanwhile.
    pub(crate) fn give_up_leadership(&mut self, g: &mut Ground) {
        if g.is_leader()
            && let Some(successor) = g.successor()
        {
            self.yielding = true;
            let _ = g.consensus.transfer(successor);
        }
    }

    pub(crate) fn leader_changed(&mut self, g: &Ground) {
        if !g.is_leader() {
            (self.yielding, self.overdue) = (false, false);
        }
    }

    /// A clean stop. `writing` and the result as for `tick`.
    pub(crate) fn begin_stop(&mut self, g: &mut Ground, writing: bool) -> bool {
        if self.stop.is_some() {
            return false;
        }
        self.stop = Some(Stop { since: g.now, handed_over: false, checkpoint: false, said: false });
        self.give_up_leadership(g);
        self.go_on_stopping(g, writing)
    }

    fn go_on_stopping(&mut self, g: &mut Ground, writing: bool) -> bool {
        let (leads, alone) = (g.is_leader(), g.successor().is_none());
        let now = g.now;
        let (small, of_use) = (g.store.keys() < 100_000, !self.corrupt);
        let Some(stop) = &mut self.stop else { return false };
        let waited = now - stop.since;
        if !stop.handed_over {
            if leads && !alone && waited < HANDOVER {
                return false;
            }
            stop.handed_over = true;
        }
        if !stop.checkpoint {
            // A large store is not worth a slow stop: the log has everything.
            stop.checkpoint = true;
            if small && of_use {
                return true;
            }
        }
        if !stop.said && (!writing || waited >= STOP) {
            stop.said = true;
            g.push(Output::Stopped);
        }
        false
    }

    /// A peer's digest at a mark, or where it is quiet. True: everyone else agrees and we differ,
    /// so this member is corrupt.
    #[must_use]
    pub(crate) fn on_digest(&mut self, g: &mut Ground, from: u64, index: u64, digest: u128) -> bool {
        let (every, applied) = (g.config.digest_every, g.store.applied().index);
        let floor = applied.saturating_sub(MARKS * every);
        let ceiling = applied + MARKS * every;
        if index <= floor || index > ceiling {
            return false;
        }
        if !g.store.conf().voters.contains(&from) {
            // It compares itself with the voters, and decides nothing for them.
            return false;
        }
        if !index.is_multiple_of(every) {
            self.forget_quiet(every, from, index);
        }
        self.peers.entry(index).or_default().insert(from, digest);
        self.compare_digests(g, index)
    }

    fn compare_digests(&mut self, g: &mut Ground, index: u64) -> bool {
        if g.swapping() {
            // The state that they are of is being replaced, and a mark would be of the new one.
            return false;
        }
        let (Some(own), Some(peers)) = (self.marks.get(&index), self.peers.get(&index)) else { return false };
        let members = g.store.conf().voters.len();
        let others = peers.values().filter(|digest| *digest != own);
        let differing = others.clone().count();
        let alike = others.clone().next().is_some_and(|first| others.clone().all(|other| other == first));
        let found = differing * 2 > members && alike && !self.corrupt;
        if found {
            let text = format!(
                "the state at index {index} differs from what the other members agree on: CORRUPT; \
                 nothing of it is answered any more"
            );
            g.note(Level::Error, text);
            g.start(Task::MarkCorrupt, BackgroundJob::MarkCorrupt);
            self.undecided = None;
            self.begin_rebuild(g, index);
        } else if !self.corrupt {
            let agreeing = 1 + peers.len() - differing;
            self.note_difference(g, index, agreeing * 2 > members);
        }
        found
    }

    /// At this mark nobody has shown that this member is wrong. `right`: a majority agrees with it.
    fn note_difference(&mut self, g: &mut Ground, index: u64, right: bool) {
        let (own, peers) = (self.marks[&index], &self.peers[&index]);
        if right {
            for (member, digest) in peers {
                if *digest == own {
                    self.strange.remove(member);
                } else if self.strange.insert(*member) {
                    let text = format!(
                        "the state of member {member:x} at index {index} differs from what a majority agrees on: \
                         it is to be CORRUPT there"
                    );
                    g.note(Level::Warn, text);
                }
            }
        } else if peers.values().any(|digest| *digest != own) {
            self.undecided.get_or_insert(Undecided { index, since: g.now, told: false });
        }
        if right
            && let Some(before) = self.undecided.take_if(|undecided| undecided.index <= index)
            && before.told
        {
            g.note(Level::Warn, format!("the states of a majority are the same at index {index}"));
        }
    }

    /// The others had time to speak, and still no majority says which member is right. This one may
    /// be: it goes on. Stopping all of them would leave no state to mend from.
    fn tell_undecided(&mut self, g: &mut Ground) {
        let Some(undecided) = self.undecided.as_mut().filter(|undecided| !undecided.told) else { return };
        if g.now - undecided.since < 2 * g.config.election_ticks() {
            return;
        }
        undecided.told = true;
        let index = undecided.index;
        let Some(own) = self.marks.get(&index) else { return };
        let differing = self.peers.get(&index).into_iter().flatten().filter(|(_, digest)| *digest != own);
        let names: Vec<String> = differing.map(|(member, _)| format!("{member:x}")).collect();
        let text = format!(
            "the state at index {index} differs from that of {}, and no majority says who is right: \
             everything is served on; compare the members' keys and keep a backup of each before one is given up",
            names.join(", ")
        );
        g.note(Level::Error, text);
    }

    /// Members differ, every one of the `voters` was heard, and this one may be the wrong one. As
    /// long as one of them is away, or its digest was lost on the way, it may yet say who is right.
    pub(crate) fn undecided(&self, voters: usize) -> bool {
        let heard = |undecided: &Undecided| 1 + self.peers.get(&undecided.index).map_or(0, BTreeMap::len);
        self.undecided.as_ref().is_some_and(|undecided| undecided.told && heard(undecided) >= voters)
    }

    /// The leader's state is to replace this one, unless that was done just before.
    fn begin_rebuild(&mut self, g: &mut Ground, index: u64) {
        if self.rebuilt.allows(index) {
            self.rebuild = Some(Rebuild { index, marked: false });
        } else {
            g.note(Level::Error, stays(self.rebuilt, index));
        }
    }

    /// The mark is durable: a start finds it.
    pub(crate) fn corrupt_marked(&mut self) {
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.marked = true;
        }
    }

    /// The log of this member may be the only one with the newest entries. If nobody has led for
    /// long, it campaigns all the same: its log is right. It hands over as soon as another member
    /// has caught up.
    fn lead_if_nobody_can(&mut self, g: &mut Ground) {
        if !self.corrupt || self.contradicted || (self.empty && !self.has_log) {
            return;
        }
        if g.leader != 0 {
            self.leaderless = None;
            return g.bar(Bar::Corrupt, true);
        }
        if g.store.conf().voters.is_empty() {
            // Who votes is not known here: others may lead.
            return;
        }
        let since = *self.leaderless.get_or_insert(g.now);
        if g.now - since == LAST_RESORT * g.config.election_ticks() {
            g.note(
                Level::Warn,
                "nobody leads: this member stands for election with its log, and will hand over".into(),
            );
            g.bar(Bar::Corrupt, false);
        }
    }

    /// There is no state, or it is to be replaced: nothing of it may be kept, and the log stays
    /// whole.
    pub(crate) fn lacks_state(&self) -> bool {
        self.empty || self.rebuild.is_some()
    }

    /// Its state was of no use, and it has no other one yet.
    pub(crate) fn started_over(&self) -> bool {
        self.empty && !self.joins()
    }

    /// The leader's state is wanted in the place of this one, beside the log.
    pub(crate) fn wants_state(&self) -> bool {
        let differs = self.rebuild.as_ref().is_some_and(|rebuild| rebuild.marked);
        let may = self.stop.is_none() && !self.contradicted && !self.rebuilt.is_hopeless();
        may && (differs || (self.empty && self.has_log))
    }

    /// The entry at which the state differed that is to be replaced.
    pub(crate) fn differed(&self) -> Option<u64> {
        self.rebuild.as_ref().map(|rebuild| rebuild.index)
    }

    /// The state must not be served, as was found now or in an earlier life. The majority is right,
    /// so the cluster goes on: the alarm is shown by this member alone, and it does not lead.
    pub(crate) fn bar(&mut self, g: &mut Ground) {
        self.corrupt = true;
        g.bar(Bar::Corrupt, true);
    }

    /// As [`Health::bar`], found at start: the state is wrong.
    pub(crate) fn found_wrong(&mut self, g: &mut Ground) {
        let index = g.store.applied().index;
        let text = match self.rebuilt.allows(index) {
            true => {
                self.rebuild = Some(Rebuild { index, marked: true });
                "the state was found to differ from the other members': CORRUPT; nothing of it is answered".to_string()
            }
            false => stays(self.rebuilt, index),
        };
        g.note(Level::Error, text);
    }

    /// As [`Health::bar`], found at start: there is no state. `has_log`: the log is whole.
    pub(crate) fn found_empty(&mut self, g: &mut Ground, has_log: bool) {
        (self.empty, self.has_log) = (true, has_log);
        if self.joins() {
            let text = "this member joins: nothing is answered before the leader's snapshot is installed";
            return g.note(Level::Info, text.to_string());
        }
        let text = match has_log {
            _ if self.rebuilt.is_hopeless() => {
                "the state of this member was damaged again and again: it stays CORRUPT and answers nothing, and takes \
                 no other state; look at its memory and its disk"
            }
            true => {
                "this member has started over and has no state: it acknowledges and votes, and answers nothing before \
                 it has the leader's"
            }
            false => {
                "this member has started over and has no state: nothing is answered before the leader's snapshot is \
                 installed"
            }
        };
        g.note(Level::Error, text.to_string());
    }

    /// It never had a state.
    fn joins(&self) -> bool {
        self.empty && !self.has_log && self.rebuilt == Rebuilt::default()
    }

    /// Another member's state was installed.
    pub(crate) fn healed(&mut self, g: &mut Ground) {
        self.marks.clear();
        self.peers.clear();
        self.strange.clear();
        self.undecided = None;
        self.rebuild = None;
        self.leaderless = None;
        if self.contradicted {
            // Two histories were seen while the files were swapped: nothing is answered before an
            // operator has decided.
            self.empty = false;
            return;
        }
        let joined = self.joins();
        if std::mem::take(&mut self.corrupt) {
            g.bar(Bar::Corrupt, false);
            let text = match std::mem::take(&mut self.empty) {
                true if joined => return g.note(Level::Info, "this member has joined the cluster".to_string()),
                true => "this member has a state again, the leader's",
                false => "the state was replaced by the leader's: CORRUPT is over",
            };
            g.note(Level::Warn, text.to_string());
        }
    }

    /// An entry was applied. At a mark the other members hear our digest, and may have spoken
    /// before. The result as for `on_digest`.
    #[must_use]
    pub(crate) fn applied(&mut self, g: &mut Ground, index: u64) -> bool {
        if self.empty || !index.is_multiple_of(g.config.digest_every) {
            return false;
        }
        self.tell_digest(g, index)
    }

    /// Nothing was applied for a second, or for ten more: members that are quiet compare their
    /// states, for the next mark may be days away. The result as for `on_digest`.
    #[must_use]
    pub(crate) fn compare_when_quiet(&mut self, g: &mut Ground) -> bool {
        let index = g.store.applied().index;
        if index != self.quiet.index {
            self.quiet = Quiet { index, due: g.now + QUIET };
        }
        if g.now < self.quiet.due || self.empty || self.corrupt || g.swapping() {
            return false;
        }
        self.quiet.due = g.now + QUIET_AGAIN;
        self.tell_digest(g, index)
    }

    fn tell_digest(&mut self, g: &mut Ground, index: u64) -> bool {
        let digest = g.store.digest();
        self.mark(g.config.digest_every, index, digest);
        for to in g.peers() {
            g.send(to, Frame::Digest { index, digest });
        }
        self.compare_digests(g, index)
    }
}
