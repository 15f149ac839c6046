//! What every part of a member may use: the ground that the parts stand on.
//!
//! A part has its own state in private fields. Its methods take `&mut Ground` beside it. What a
//! part needs to know of another part comes as a value in an argument, and what it wants of another
//! part goes back as a value; `member` carries both. So no part names another part's type.

use crate::config::Config;
use crate::frame::{Caller, Frame};
use crate::io::{Answer, BackgroundJob, Job, JobId, Level, Output, Refusal, Waiter};
use crate::jobs::{Jobs, Task};
use crate::tally::Tally;
use crate::writing::Writing;
use consensus::{ConfChangeKind, Consensus, Role};
use std::collections::{BTreeMap, BTreeSet};
use store::{Member, MemberChangeKind, Store};

/// See the module's page.
pub(crate) struct Ground {
    pub(crate) config: Config,
    pub(crate) consensus: Consensus,
    pub(crate) store: Store,
    /// Ticks of 10 ms since start that this member lived through. Patience with others is counted
    /// in these.
    pub(crate) now: u64,
    /// Ticks that went by while this member could do nothing. Only the lease clock counts them.
    away: u64,
    pub(crate) term: u64,
    /// 0 = none known.
    pub(crate) leader: u64,
    pub(crate) role: Role,
    /// Leaders known since start, each time that another one became known.
    pub(crate) leader_changes: u64,
    /// Members that said that they should not lead, and until when that counts.
    unable: BTreeMap<u64, u64>,
    /// Members of another founding.
    apart: BTreeSet<u64>,
    barred: [bool; 2],
    jobs: Jobs,
    writing: Writing,
    epoch: u64,
    swapping: bool,
    dead: bool,
    /// For the driver.
    pub(crate) tally: Tally,
    out: Vec<Output>,
}

/// Why this member must not campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// Its state is wrong.
    Corrupt,
    /// Clients would get nothing from it.
    Unable,
}

/// What `health` says of this member: what it must not do for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Willing {
    /// A clean stop has begun: no commands are taken any more.
    pub(crate) stopping: bool,
    /// Leadership is on its way to another member: commands wait, and are forwarded later.
    pub(crate) holds_commands: bool,
    /// A job waits for space: no writes are taken.
    pub(crate) disk_full: bool,
    /// The state differs from what the other members agree on: nothing of it is answered.
    pub(crate) corrupt: bool,
}

impl Ground {
    pub(crate) fn new(config: Config, consensus: Consensus, store: Store) -> Ground {
        let term = consensus.status().term;
        Ground {
            config,
            consensus,
            store,
            now: 0,
            away: 0,
            term,
            leader: 0,
            role: Role::Follower,
            leader_changes: 0,
            unable: BTreeMap::new(),
            apart: BTreeSet::new(),
            barred: [false; 2],
            jobs: Jobs::default(),
            writing: Writing::default(),
            epoch: 0,
            swapping: false,
            dead: false,
            tally: Tally::default(),
            out: Vec::new(),
        }
    }

    /// The driver's outputs change places with the ground's: once when a verb begins, once when it
    /// ends.
    pub(crate) fn swap_out(&mut self, out: &mut Vec<Output>) {
        std::mem::swap(&mut self.out, out);
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.out.push(output);
    }

    /// Nothing is said to a member of another founding.
    pub(crate) fn send(&mut self, to: u64, frame: Frame) {
        if !self.is_apart(to) {
            self.out.push(Output::Send { to, frame });
        }
    }

    /// The member is of another founding: nothing that it says is about this state.
    pub(crate) fn is_apart(&self, member: u64) -> bool {
        self.apart.contains(&member)
    }

    pub(crate) fn set_apart(&mut self, member: u64, apart: bool) {
        match apart {
            true if self.apart.insert(member) => self.consensus.forget(member),
            true => {}
            false => drop(self.apart.remove(&member)),
        }
    }

    /// One line for the log of the program.
    pub(crate) fn note(&mut self, level: Level, text: String) {
        self.out.push(Output::Note { level, text });
    }

    pub(crate) fn answer(&mut self, waiter: Waiter, answer: Answer) {
        self.answer_at(self.store.revision(), waiter, answer);
    }

    /// An answer that shows the state of an earlier revision.
    pub(crate) fn answer_at(&mut self, revision: i64, waiter: Waiter, answer: Answer) {
        self.out.push(Output::Answer { waiter, revision, term: self.term, answer });
    }

    /// Who belongs to the cluster, and who of them is a learner.
    pub(crate) fn members(&self) -> Vec<(Member, bool)> {
        self.store.members().map(|member| (member.clone(), self.store.is_learner(member.id))).collect()
    }

    /// Who belongs to the cluster.
    pub(crate) fn answer_members(&mut self, waiter: Waiter) {
        let members = self.members();
        self.answer(waiter, Answer::Members { members });
    }

    pub(crate) fn refuse(&mut self, waiter: Waiter, refusal: Refusal) {
        self.answer(waiter, Answer::Refused(refusal));
    }

    /// This member must stop at once.
    pub(crate) fn fatal(&mut self, reason: String) {
        self.dead = true;
        self.out.push(Output::Fatal { reason });
    }

    /// This member was removed from the cluster.
    pub(crate) fn removed(&mut self) {
        self.dead = true;
        self.out.push(Output::Removed);
    }

    /// This member must stop, and start again by itself.
    pub(crate) fn restart(&mut self, reason: String) {
        self.dead = true;
        self.out.push(Output::Restart { reason });
    }

    /// `Output::Fatal`, `Output::Removed` or `Output::Restart` was said: nothing more is done.
    pub(crate) fn dead(&self) -> bool {
        self.dead
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }

    /// Consensus told who leads. True: the term or the leader is another one now.
    pub(crate) fn lead(&mut self, term: u64, leader: u64, role: Role) -> bool {
        let changed = (term, leader) != (self.term, self.leader);
        if leader != 0 && leader != self.leader {
            self.leader_changes += 1;
        }
        (self.term, self.leader, self.role) = (term, leader, role);
        changed
    }

    /// Ticks of 10 ms since start by the clock, whatever this member lived through of them.
    pub(crate) fn clock(&self) -> u64 {
        self.now + self.away
    }

    /// So many ticks went by while this member could do nothing.
    pub(crate) fn was_away(&mut self, ticks: u64) {
        self.away += ticks;
    }

    /// While any reason holds, this member does not campaign.
    pub(crate) fn bar(&mut self, why: Bar, barred: bool) {
        if self.barred[why as usize] != barred {
            self.barred[why as usize] = barred;
            self.consensus.bar(self.barred.contains(&true));
        }
    }

    /// `until`: the tick until which this member counts as unable to lead; None = it is able.
    pub(crate) fn set_unable(&mut self, peer: u64, until: Option<u64>) {
        match until {
            Some(until) => self.unable.insert(peer, until),
            None => self.unable.remove(&peer),
        };
    }

    /// The most caught-up voter that is alive and able to lead, if this member leads.
    pub(crate) fn successor(&self) -> Option<u64> {
        let able = |id: &u64| self.unable.get(id).is_none_or(|until| *until <= self.now);
        let followers = self.consensus.status().followers;
        let voters = followers.iter().filter(|f| !f.learner && f.recent_active && able(&f.id));
        voters.max_by_key(|f| (f.matched, f.id)).map(|f| f.id)
    }

    /// Whether this follower has all that is committed. Whoever has not can win no election.
    pub(crate) fn has_all_committed(&self, follower: u64) -> bool {
        let status = self.consensus.status();
        status.followers.iter().any(|f| f.id == follower && f.matched >= status.commit)
    }

    /// The other members.
    pub(crate) fn peers(&self) -> Vec<u64> {
        let conf = self.store.conf();
        conf.voters.iter().chain(&conf.learners).copied().filter(|id| *id != self.config.member).collect()
    }

    /// The other voters.
    pub(crate) fn voters(&self) -> Vec<u64> {
        self.store.conf().voters.iter().copied().filter(|id| *id != self.config.member).collect()
    }

    pub(crate) fn start(&mut self, task: Task, work: impl Into<Job>) -> JobId {
        let work = work.into();
        assert!(!(self.swapping && work.writes_state()), "{task:?} would write into the files of another state");
        self.jobs.start(task, work, self.now, &mut self.out)
    }

    pub(crate) fn job_done(&mut self, job: JobId) -> Option<Task> {
        self.jobs.done(job)
    }

    /// A job failed. None: it is a read that will be tried again.
    pub(crate) fn job_fails(&mut self, job: JobId, fault: disk::Fault) -> Option<disk::Fault> {
        if self.swapping {
            return Some(fault);
        }
        self.jobs.fails(job, fault, self.now)
    }

    /// True while the background and the reader have nothing to do.
    pub(crate) fn background_rests(&self) -> bool {
        self.jobs.background_rests()
    }

    /// Begins reads again that the disk refused. Those that are given up, because the files are
    /// being replaced, come back.
    pub(crate) fn read_again(&mut self) -> Vec<(JobId, disk::Fault)> {
        if self.swapping {
            return self.jobs.give_up();
        }
        self.jobs.begin_again(self.now, &mut self.out);
        Vec::new()
    }

    pub(crate) fn task(&self, job: JobId) -> Option<&Task> {
        self.jobs.task(job)
    }

    /// How long the oldest piece of a snapshot for a follower has been read. Ticks.
    pub(crate) fn piece_age(&self) -> u64 {
        self.jobs.piece_age(self.now)
    }

    /// A piece of a snapshot is being read for this request.
    pub(crate) fn reads_piece(&self, to: Caller) -> bool {
        self.jobs.reads_piece(to)
    }

    /// How long the oldest step of a checkpoint has been on its way. Ticks.
    pub(crate) fn checkpoint_age(&self) -> u64 {
        self.jobs.checkpoint_age(self.now)
    }

    /// Bytes of records that are in no file and on the way to none.
    pub(crate) fn unhanded_bytes(&self) -> u64 {
        self.store.unwritten_bytes() - self.writing.bytes()
    }

    /// Hands every record that is in no file yet to the background thread, each once.
    pub(crate) fn write_records(&mut self) {
        if self.unhanded_bytes() > 0 {
            self.write_seals();
        }
    }

    /// As [`Ground::write_records`], also if seals alone are left to be written.
    pub(crate) fn write_seals(&mut self) {
        if self.swapping {
            return;
        }
        for extent in self.store.unwritten(usize::MAX) {
            let Some((extent, bytes)) = self.writing.hand_over(extent) else { continue };
            let store::Extent { segment, offset, parts, seals, .. } = extent;
            let task = Task::Write { epoch: self.epoch, bytes };
            self.start(task, BackgroundJob::WriteRecords { segment, offset, parts, seals });
        }
    }

    /// Segments that have a file once what is handed over is written; everything is handed over
    /// now. A background job never passes the writes that were submitted before it.
    pub(crate) fn written_segments(&mut self) -> Vec<store::SegmentUse> {
        self.write_records();
        self.store.segments_to_scan().filter(|segment| segment.first > 0).copied().collect()
    }

    pub(crate) fn written(&mut self, epoch: u64, bytes: u64, segment: u32, upto: u32, sealed: bool) {
        if epoch != self.epoch {
            return; // of a state that a snapshot has replaced since
        }
        self.store.written(segment, upto, sealed);
        self.writing.written(segment, bytes, sealed);
    }

    /// Forgets segments without a living record: their files are needed by kept checkpoints alone.
    /// No checkpoint may be under way. Bytes of their files.
    pub(crate) fn drop_dead_segments(&mut self) -> u64 {
        let bytes = |store: &Store| store.segments().map(|segment| u64::from(segment.end)).sum::<u64>();
        let before = bytes(&self.store);
        let dropped = !self.store.drop_dead_segments().is_empty();
        if dropped { before - bytes(&self.store) } else { 0 }
    }

    /// Compaction has left something in the index that is not taken out yet: its turn has not come,
    /// or a pin keeps it.
    pub(crate) fn sweeps(&self) -> bool {
        self.store.swept() < self.store.compacted()
    }

    /// Counts installed snapshots: what was asked of an earlier state is not mixed with this one.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The files of a new state are being put in place: the old one stands still, and its files may
    /// be gone.
    pub(crate) fn swapping(&self) -> bool {
        self.swapping
    }

    pub(crate) fn begin_swap(&mut self) {
        self.swapping = true;
    }

    /// The swap was given up.
    pub(crate) fn end_swap(&mut self) {
        self.swapping = false;
    }

    /// The new state takes the place of the old one.
    pub(crate) fn replace_state(&mut self, store: Store) {
        self.swapping = false;
        self.epoch += 1;
        self.store = store;
        self.writing = Writing::default();
    }
}

/// What consensus is to do for a membership change.
pub(crate) fn kind_of(kind: MemberChangeKind) -> ConfChangeKind {
    match kind {
        MemberChangeKind::AddVoter | MemberChangeKind::Promote => ConfChangeKind::AddVoter,
        MemberChangeKind::AddLearner => ConfChangeKind::AddLearner,
        MemberChangeKind::Update => ConfChangeKind::Update,
        MemberChangeKind::Remove => ConfChangeKind::Remove,
    }
}

#[cfg(test)]
impl Ground {
    /// That of a lone member 1, which has applied so many entries.
    pub(crate) fn alone(applied: u64) -> Ground {
        let config = Config::new(1, 1, 1, 1);
        let member = store::Member { id: 1, name: "m1".to_string(), peer_urls: Vec::new(), client_urls: Vec::new() };
        let at = store::Position { index: applied, term: 1 };
        let store = Store::genesis(store::Config { segment_bytes: config.segment_bytes }, vec![member], at);
        let restored = consensus::Restored {
            hard: consensus::HardState { term: 1, vote: 0, commit: applied },
            conf: consensus::ConfState { voters: vec![1], learners: Vec::new() },
            applied: consensus::Position { index: applied, term: 1 },
            boundary: consensus::Position { index: applied, term: 1 },
            ..consensus::Restored::default()
        };
        let settings = consensus::Config {
            id: 1,
            seed: 1,
            boot: 1,
            election_ticks: 100,
            heartbeat_ticks: 10,
            max_message_bytes: 1 << 18,
            max_uncommitted_bytes: 1 << 20,
            cache_bytes: 1 << 20,
        };
        Ground::new(config, Consensus::new(settings, restored), store)
    }
}
