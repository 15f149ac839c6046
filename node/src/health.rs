//! A member that must not lead, or must not answer: a hung disk, a clean stop, a digest that
//! differs from its peers'.

use crate::apply::DIGEST_EVERY;
use crate::config::TICK_MS;
use crate::frame::Frame;
use crate::io::*;
use crate::member::{Node, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Digest marks remembered.
const MARKS: u64 = 64;
/// A clean stop waits at most this long for a successor. Ticks.
const HANDOVER: u64 = 500 / TICK_MS;
/// And in all at most this long for its checkpoint. Ticks.
const STOP: u64 = 1_000 / TICK_MS;

#[derive(Default)]
pub(crate) struct Health {
    /// Saves not yet durable: (number, submitted at).
    saves: VecDeque<(u64, u64)>,
    /// The oldest save is older than an election timeout: leadership is being given away.
    yielding: bool,
    /// Jobs that wait for space on the disk.
    stalled: BTreeSet<JobId>,
    stop: Option<Stop>,
    corrupt: bool,
    /// When it was last told that history cannot be read.
    history_told: Option<u64>,
    /// Streams that asked for history of a corrupt state.
    held_history: BTreeSet<Waiter>,
    marks: BTreeMap<u64, u128>,
    /// Per index: what each peer said.
    peers: BTreeMap<u64, BTreeMap<u64, u128>>,
    /// Members already reported to have lost acknowledged entries.
    lost_data: BTreeSet<u64>,
}

struct Stop {
    since: u64,
    handed_over: bool,
    checkpoint: bool,
    said: bool,
}

impl Health {
    pub(crate) fn save_submitted(&mut self, number: u64, now: u64) {
        self.saves.push_back((number, now));
    }

    pub(crate) fn saved(&mut self, number: u64) {
        while self.saves.front().is_some_and(|(oldest, _)| *oldest <= number) {
            self.saves.pop_front();
        }
        if self.saves.is_empty() && self.stalled.is_empty() {
            self.yielding = false;
        }
    }

    /// True once a minute.
    pub(crate) fn tell_history(&mut self, now: u64) -> bool {
        let due = self.history_told.is_none_or(|told| now - told >= 60_000 / TICK_MS);
        if due {
            self.history_told = Some(now);
        }
        due
    }

    /// True once per member.
    pub(crate) fn lost_data(&mut self, peer: u64) -> bool {
        self.lost_data.insert(peer)
    }

    fn oldest_save_age(&self, now: u64) -> u64 {
        self.saves.front().map_or(0, |(_, at)| now - at)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Commands wait (and are forwarded later) while leadership is on its way to another member.
    pub(crate) fn holds_commands(&self) -> bool {
        self.yielding
    }

    /// A job waits for space: this member takes no writes and does not lead if another can.
    pub(crate) fn disk_full(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// This member's state differs from what its peers agree on: it answers no reads.
    pub(crate) fn corrupt(&self) -> bool {
        self.corrupt
    }

    pub(crate) fn mark(&mut self, index: u64, digest: u128) {
        self.marks.insert(index, digest);
        let floor = index.saturating_sub(MARKS * DIGEST_EVERY);
        self.marks.retain(|mark, _| *mark > floor);
        self.peers.retain(|mark, _| *mark > floor);
    }
}

impl Node {
    pub(crate) fn tick_health(&mut self, out: &mut Vec<Output>) {
        self.watch_disk(out);
        self.go_on_stopping(out);
    }

    /// A leader whose disk hangs gives up: first it hands over, an election
    /// timeout later it is a follower of no one until a save completes.
    fn watch_disk(&mut self, out: &mut Vec<Output>) {
        let age = self.health.oldest_save_age(self.ticks);
        let timeout = self.config.election_ticks();
        if age == timeout && self.is_leader() {
            self.note(
                Level::Error,
                format!("the log's disk has not answered for {} ms: giving up leadership", self.config.election_ms),
                out,
            );
            self.health.yielding = true;
            if let Some(successor) = self.best_successor() {
                let _ = self.consensus.transfer(successor);
            }
        }
        if self.health.corrupt && self.is_leader() && self.ticks.is_multiple_of(timeout) {
            // Its successor was not ready an election timeout ago.
            self.give_up_leadership();
        }
        if self.health.disk_full() && self.ticks.is_multiple_of(10 * timeout) {
            self.give_up_leadership();
        }
        if age == 2 * timeout && self.is_leader() && self.store.conf().voters.len() > 1 {
            self.consensus.step_down();
        }
    }

    /// The disk is full. The lane waits with the job; reads go on, and leadership goes to a member
    /// with space. The log's spare files are the reserve of the other lanes.
    pub(crate) fn stalled(&mut self, job: JobId, fault: &disk::Fault, out: &mut Vec<Output>) {
        let first = self.health.stalled.is_empty();
        self.health.stalled.insert(job);
        let task = self.jobs.running.get(&job).expect("a job that waits is under way");
        if !matches!(task, Task::Save { .. } | Task::RestartLog) {
            self.jobs.start(Task::ReleaseSpares, Job::ReleaseSpares, out);
        }
        if first {
            let text = format!("the disk is full: {fault}; reads go on, writes are refused until there is room");
            self.note(Level::Error, text, out);
            self.give_up_leadership();
        }
    }

    pub(crate) fn unstalled(&mut self, job: JobId, out: &mut Vec<Output>) {
        if self.health.stalled.remove(&job) && self.health.stalled.is_empty() {
            self.note(Level::Warn, "there is room on the disk again: going on".to_string(), out);
            self.health.yielding &= self.health.stop.is_some();
        }
    }

    /// Hands over to the best successor, if there is one. Commands wait meanwhile.
    fn give_up_leadership(&mut self) {
        if self.is_leader()
            && let Some(successor) = self.best_successor()
        {
            self.health.yielding = true;
            let _ = self.consensus.transfer(successor);
        }
    }

    /// The most caught-up voter that is alive.
    pub(crate) fn best_successor(&self) -> Option<u64> {
        self.consensus
            .status()
            .followers
            .iter()
            .filter(|f| !f.learner && f.recent_active)
            .max_by_key(|f| (f.matched, f.id))
            .map(|f| f.id)
    }

    pub(crate) fn leader_changed_health(&mut self) {
        if self.health.yielding && !self.is_leader() {
            self.health.yielding = false;
        }
    }

    pub(crate) fn begin_stop(&mut self, out: &mut Vec<Output>) {
        if self.health.stop.is_some() {
            return;
        }
        self.health.stop = Some(Stop { since: self.ticks, handed_over: false, checkpoint: false, said: false });
        if self.is_leader()
            && let Some(successor) = self.best_successor()
        {
            self.health.yielding = true;
            let _ = self.consensus.transfer(successor);
        }
        self.go_on_stopping(out);
    }

    fn go_on_stopping(&mut self, out: &mut Vec<Output>) {
        let (leads, alone) = (self.is_leader(), self.best_successor().is_none());
        let now = self.ticks;
        let small = self.store.keys() < 100_000;
        let Some(stop) = &mut self.health.stop else { return };
        let waited = now - stop.since;
        if !stop.handed_over {
            if leads && !alone && waited < HANDOVER {
                return;
            }
            stop.handed_over = true;
        }
        if !stop.checkpoint {
            // A large store is not worth a slow stop: the log has everything.
            stop.checkpoint = true;
            if small {
                let index = self.store.applied().index;
                self.want_checkpoint(index);
                return;
            }
        }
        let writing = self.checkpoints.busy() || self.checkpoints.pending();
        let stop = self.health.stop.as_mut().expect("stopping");
        if !stop.said && (!writing || waited >= STOP) {
            stop.said = true;
            out.push(Output::Stopped);
        }
    }

    /// A peer's digest at a mark. Everyone else agrees and we differ: this member is corrupt.
    pub(crate) fn on_digest(&mut self, from: u64, index: u64, digest: u128, out: &mut Vec<Output>) {
        let floor = self.store.applied().index.saturating_sub(MARKS * DIGEST_EVERY);
        let ceiling = self.store.applied().index + MARKS * DIGEST_EVERY;
        if !index.is_multiple_of(DIGEST_EVERY) || index <= floor || index > ceiling {
            return;
        }
        self.health.peers.entry(index).or_default().insert(from, digest);
        self.compare_digests(index, out);
    }

    fn compare_digests(&mut self, index: u64, out: &mut Vec<Output>) {
        let (Some(own), Some(peers)) = (self.health.marks.get(&index), self.health.peers.get(&index)) else { return };
        let members = self.store.conf().voters.len();
        let others = peers.values().filter(|digest| *digest != own);
        let agreeing = others.clone().count();
        let alike = others.clone().next().is_some_and(|first| others.clone().all(|other| other == first));
        if agreeing * 2 > members && alike && !self.health.corrupt {
            let text = format!(
                "the state at index {index} differs from what the other members agree on: CORRUPT; \
                 nothing of it is answered any more"
            );
            self.note(Level::Error, text, out);
            self.jobs.start(Task::MarkCorrupt, Job::MarkCorrupt, out);
            self.fence_corrupt(out);
        }
    }

    /// What was found in an earlier life still holds.
    pub(crate) fn remember_corrupt(&mut self, out: &mut Vec<Output>) {
        let text = "the state was found to differ from the other members': CORRUPT; nothing of it is answered";
        self.note(Level::Error, text.to_string(), out);
        self.fence_corrupt(out);
    }

    /// Reads, watches and hashes end or wait, and this member does not lead. The majority is right,
    /// so the cluster goes on: the alarm is shown by this member alone.
    fn fence_corrupt(&mut self, out: &mut Vec<Output>) {
        self.health.corrupt = true;
        self.consensus.bar(true);
        self.end_walks_with(Refusal::User(store::Error::Corrupt), out);
        self.end_hashes_with(Refusal::User(store::Error::Corrupt), out);
        self.reset_watches(out);
        self.give_up_leadership();
    }

    /// Another member's state was installed.
    pub(crate) fn healed(&mut self, out: &mut Vec<Output>) {
        self.health.marks.clear();
        self.health.peers.clear();
        if std::mem::take(&mut self.health.corrupt) {
            self.consensus.bar(false);
            self.note(Level::Warn, "the state was replaced by the leader's: CORRUPT is over".to_string(), out);
        }
        for waiter in std::mem::take(&mut self.health.held_history) {
            self.refuse(waiter, Refusal::Timeout, out);
        }
    }

    /// Watches wait for a state that can be trusted. True: this one was held.
    pub(crate) fn hold_history(&mut self, waiter: Waiter) -> bool {
        if self.health.corrupt {
            self.health.held_history.insert(waiter);
        }
        self.health.corrupt
    }

    pub(crate) fn cancel_held(&mut self, waiter: Waiter) -> bool {
        self.health.held_history.remove(&waiter)
    }

    /// Our own mark was set: peers may have spoken before.
    pub(crate) fn own_mark(&mut self, index: u64, digest: u128, out: &mut Vec<Output>) {
        self.health.mark(index, digest);
        for to in self.peers() {
            out.push(Output::Send { to, frame: Frame::Digest { index, digest } });
        }
        self.compare_digests(index, out);
    }
}
