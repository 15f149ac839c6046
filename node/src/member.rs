//! The member: its parts, its two verbs `step` and `flush`, and the order of one turn.
//!
//! ```text
//! step(input)   sorts one input into the part that it concerns; nothing is sent yet
//! flush()       one turn:
//!   gate         commands collected since the last turn are proposed, forwarded or held
//!   reads        reads collected since the last turn join one ReadIndex round
//!   consensus    messages leave, one save is submitted, entries are committed
//!   apply        committed and saved entries change the store, in order
//!   answers      waiters of applied commands, of reached read indexes
//!   walks        slices of ranges, round robin
//!   upkeep       sweep, records to files, checkpoint rows, lease expiry
//! ```

use crate::apply::Applier;
use crate::backup::Backups;
use crate::checkpoints::Checkpoints;
use crate::config::Config;
use crate::frame::Frame;
use crate::gate::Gate;
use crate::hashes::Hashes;
use crate::health::Health;
use crate::history::Histories;
use crate::io::*;
use crate::lessor::Lessor;
use crate::moves::Moves;
use crate::reads::Reads;
use crate::saves::Saves;
use crate::transfer::Transfer;
use crate::walks::Walks;
use consensus::{Consensus, Role, Turn};
use std::collections::BTreeMap;
use store::Store;
use store::watch::Hub;

/// One member of a cluster (see the crate's page).
pub struct Node {
    pub(crate) config: Config,
    pub(crate) consensus: Consensus,
    pub(crate) store: Store,
    pub(crate) hub: Hub,
    pub(crate) histories: Histories,
    /// Ticks of 10 ms since start.
    pub(crate) ticks: u64,
    pub(crate) term: u64,
    /// 0 = none known.
    pub(crate) leader: u64,
    pub(crate) role: Role,
    pub(crate) leader_changes: u64,
    pub(crate) jobs: Jobs,
    pub(crate) gate: Gate,
    pub(crate) reads: Reads,
    pub(crate) walks: Walks,
    pub(crate) backups: Backups,
    pub(crate) applier: Applier,
    pub(crate) saves: Saves,
    pub(crate) lessor: Lessor,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) transfer: Transfer,
    pub(crate) health: Health,
    pub(crate) moves: Moves,
    /// Lists of leases under way, oldest first.
    pub(crate) listings: std::collections::VecDeque<crate::requests::Listing>,
    pub(crate) hashes: Hashes,
    /// The tick of the last entry for the log.
    appended: u64,
    /// Counts installed snapshots: what was asked of an earlier state is not mixed with this one.
    pub(crate) epoch: u64,
    /// Set once `Output::Fatal` was said: nothing more is done.
    pub(crate) dead: bool,
    turn: Turn,
}

/// A member without a new entry for so long is quiet: 30 s, in ticks.
const QUIET: u64 = 30_000 / crate::TICK_MS;
/// What the entry cache of a quiet member shrinks to, and by how much at a tick. Bytes.
const QUIET_CACHE: u64 = 1 << 20;
const QUIET_STEP: u64 = 1 << 20;

/// What entries take in the log, about. Bytes.
pub(crate) fn log_bytes(entries: &[consensus::Entry]) -> u64 {
    entries.iter().map(|entry| entry.data.len() as u64 + 64).sum()
}

/// What is to be done when a job is done.
#[derive(Debug)]
pub(crate) enum Task {
    Save { number: u64 },
    CutLog,
    ReleaseSpares,
    MarkCorrupt,
    RestartLog,
    ReadLog { ticket: u64 },
    Write { epoch: u64, bytes: u64 },
    ApplyRead,
    History,
    Checkpoint { index: u64 },
    Backup { backup: u64 },
    HashKv { epoch: u64 },
    SendChunk { to: u64, boot: u64, token: u64 },
    Install,
}

/// The disk work under way.
#[derive(Default)]
pub(crate) struct Jobs {
    next: JobId,
    pub(crate) running: BTreeMap<JobId, Task>,
}

impl Jobs {
    pub(crate) fn start(&mut self, task: Task, work: Job, out: &mut Vec<Output>) -> JobId {
        self.next += 1;
        self.running.insert(self.next, task);
        out.push(Output::Job { job: self.next, work });
        self.next
    }
}

impl Node {
    pub(crate) fn assemble(config: Config, consensus: Consensus, store: Store, checkpoint: (u64, u64)) -> Node {
        let status = consensus.status();
        let hub = Hub::new(config.budgets.event_ring, store.revision() + 1);
        let applier = Applier::new(store.applied().index);
        let checkpoints = Checkpoints::new(checkpoint.0, checkpoint.1);
        Node {
            consensus,
            hub,
            ticks: 0,
            appended: 0,
            term: status.term,
            leader: 0,
            role: Role::Follower,
            leader_changes: 0,
            jobs: Jobs::default(),
            gate: Gate::default(),
            reads: Reads::default(),
            walks: Walks::default(),
            histories: Histories::default(),
            backups: Backups::default(),
            applier,
            saves: Saves::default(),
            lessor: Lessor::default(),
            checkpoints,
            transfer: Transfer::default(),
            health: Health::default(),
            moves: Moves::default(),
            listings: std::collections::VecDeque::new(),
            hashes: Hashes::default(),
            epoch: 0,
            dead: false,
            turn: Turn::default(),
            store,
            config,
        }
    }

    /// Sorts one input into its part. Cheap; the work is in [`Node::flush`].
    pub fn step(&mut self, input: Input, out: &mut Vec<Output>) {
        if self.dead {
            return;
        }
        match input {
            Input::Tick => self.tick(out),
            Input::Frame { from, frame } => self.frame(from, frame, out),
            Input::Lost { peer } => self.lost(peer, out),
            Input::Request { waiter, request } => self.request(waiter, request, out),
            Input::Cancel { waiter, timed_out } => self.cancel(waiter, timed_out, out),
            Input::Watch { stream, op } => self.watch(stream, op, out),
            Input::Done { job, result } => self.done(job, result, out),
            Input::Stalled { job, fault } => self.stalled(job, &fault, out),
            Input::Stop => self.begin_stop(out),
        }
    }

    /// Ends a turn: everything the inputs since the last one made possible is done.
    pub fn flush(&mut self, out: &mut Vec<Output>) {
        if self.dead {
            return;
        }
        self.submit_commands(out);
        self.submit_reads(out);
        self.turn_consensus(out);
        self.run_apply(out);
        self.serve_reads(out);
        self.run_walks(out);
        self.run_listings(out);
        self.run_backups(out);
        self.run_hashes(out);
        self.upkeep(out);
        // what apply, reads and upkeep proposed leaves in this turn too
        self.submit_commands(out);
        self.turn_consensus(out);
    }

    /// False: another turn would make progress without any input.
    pub fn idle(&self) -> bool {
        self.dead
            || (self.walks.idle()
                && self.listings.is_empty()
                && self.backups.idle()
                && self.hashes.idle()
                && (self.applier.idle() || !self.may_apply())
                && self.gate.idle()
                && self.checkpoints.idle()
                && !self.store.sweep_pending())
    }

    /// See [`Config::ticks_together`].
    pub fn ticks_together(&self) -> u32 {
        self.config.ticks_together()
    }

    fn tick(&mut self, out: &mut Vec<Output>) {
        self.ticks += 1;
        self.consensus.tick();
        self.tick_reads(out);
        self.tick_gate(out);
        self.tick_lessor();
        self.tick_walks(out);
        self.tick_backups(out);
        self.tick_health(out);
        self.tick_transfer(out);
        self.tick_checkpoints();
        self.tick_cache();
        self.histories.tick(self.ticks);
    }

    /// A quiet member gives back the memory of old entries, a little at each tick.
    fn tick_cache(&mut self) {
        let cached = self.consensus.cached_bytes();
        if cached > QUIET_CACHE && self.ticks - self.appended >= QUIET {
            self.consensus.shrink_cache(QUIET_CACHE.max(cached - QUIET_STEP.min(cached)));
        }
    }

    fn frame(&mut self, from: u64, frame: Frame, out: &mut Vec<Output>) {
        match frame {
            Frame::Raft(message) => {
                let honest = message.from() == from && message.to() == self.config.member;
                // Removed and unknown members are not heard: consensus does not know who they were.
                if honest && self.store.member(from).is_some() {
                    self.consensus.step(message);
                }
            }
            Frame::Forward { term, boot, commands } => self.on_forward(from, term, boot, commands, out),
            Frame::ForwardRefused { boot, seqs, why } => self.on_forward_refused(boot, seqs, why, out),
            Frame::ReadIndex { boot, token } => self.on_read_index(from, boot, token, out),
            Frame::ReadIndexReply { boot, token, index } => self.on_read_index_reply(boot, token, index),
            Frame::KeepAlive { boot, token, lease } => self.on_keep_alive(from, boot, token, lease, out),
            Frame::KeepAliveReply { boot, token, ok, ttl } => self.on_keep_alive_reply(boot, token, ok, ttl, out),
            Frame::TimeToLive { boot, token, lease } => self.on_time_to_live(from, boot, token, lease, out),
            Frame::TimeToLiveReply { boot, token, ok, ttl, index } => {
                self.on_time_to_live_reply(boot, token, ok, ttl, index)
            }
            Frame::ChunkRequest { boot, token, index, file, offset, len } => {
                self.on_chunk_request(from, boot, token, index, file, offset, len, out);
            }
            Frame::Chunk { boot, token, ok, end, bytes } => self.on_chunk(from, boot, token, ok, end, bytes, out),
            Frame::TransferEnded { index, ok } => self.on_transfer_ended(from, index, ok),
            Frame::Digest { index, digest } => self.on_digest(from, index, digest, out),
        }
    }

    fn lost(&mut self, peer: u64, _out: &mut Vec<Output>) {
        self.consensus.unreachable(peer);
        // If a snapshot was on its way there, it may be lost: another is offered when it is needed.
        self.consensus.snapshot_sent(peer, false);
        self.lost_transfer(peer);
        self.lost_reads(peer);
    }

    /// Moves everything ready in consensus outward: messages before the save of the same turn.
    fn turn_consensus(&mut self, out: &mut Vec<Output>) {
        let mut turn = std::mem::take(&mut self.turn);
        loop {
            self.consensus.turn(&mut turn);
            if turn.is_empty() {
                break;
            }
            for message in turn.messages.drain(..) {
                out.push(Output::Send { to: message.to(), frame: Frame::Raft(message) });
            }
            if let Some(save) = turn.save.take() {
                self.checkpoints.log_grew(log_bytes(&save.entries));
                if !save.entries.is_empty() {
                    self.appended = self.ticks;
                }
                self.submit_save(save, out);
            }
            self.applier.committed(turn.committed.drain(..));
            if let Some(soft) = turn.soft.take() {
                self.leadership(soft.term, soft.leader, soft.role, out);
            }
            for (token, result) in turn.reads.drain(..) {
                self.read_confirmed(token, result.ok(), out);
            }
            for fetch in turn.fetch.drain(..) {
                let job = Job::ReadLog { ticket: fetch.ticket, from: fetch.from_index, max_bytes: fetch.max_bytes };
                self.jobs.start(Task::ReadLog { ticket: fetch.ticket }, job, out);
            }
            if let Some(index) = turn.want_snapshot.take() {
                self.want_snapshot(index, out);
            }
            if let Some((from, snapshot)) = turn.install.take() {
                self.begin_install(from, snapshot, out);
            }
            for peer in turn.lost_data.drain(..) {
                if self.health.lost_data(peer) {
                    let text = format!("member {peer:x} seems to have lost entries that it had acknowledged");
                    out.push(Output::Note { level: Level::Error, text });
                }
            }
        }
        self.turn = turn;
    }

    fn leadership(&mut self, term: u64, leader: u64, role: Role, out: &mut Vec<Output>) {
        let changed = (term, leader) != (self.term, self.leader);
        if leader != 0 && leader != self.leader {
            self.leader_changes += 1;
        }
        (self.term, self.leader, self.role) = (term, leader, role);
        if changed {
            self.leader_changed_reads(out);
            self.leader_changed_health();
            self.leader_changed_moves(out);
            self.stop_lessor(out);
            out.push(Output::Leader { term, leader, role });
        }
    }

    fn done(&mut self, job: JobId, result: JobResult, out: &mut Vec<Output>) {
        let Some(task) = self.jobs.running.remove(&job) else {
            panic!("job {job} was never started or is done twice");
        };
        self.unstalled(job, out);
        if let JobResult::Failed { fault } = result {
            return self.job_failed(job, task, fault, out);
        }
        match (task, result) {
            (Task::Save { number }, JobResult::Saved) => self.saved(number, out),
            (Task::MarkCorrupt, JobResult::CorruptMarked)
            | (Task::CutLog, JobResult::LogCut)
            | (Task::ReleaseSpares, JobResult::SparesReleased) => {}
            (Task::RestartLog, JobResult::LogRestarted) => self.log_restarted(out),
            (Task::ReadLog { .. }, JobResult::Log { ticket, entries }) => self.consensus.fetched(ticket, entries),
            (Task::Write { epoch, bytes }, JobResult::Written { segment, upto, sealed }) => {
                self.written(epoch, bytes, segment, upto, sealed);
            }
            (Task::ApplyRead, JobResult::Record(bytes)) => self.applier.fetched(job, bytes),
            (Task::History, JobResult::History { records, next }) => self.history_read(records, next, out),
            (Task::Backup { backup }, JobResult::Backup { records, place, end }) => {
                self.backup_read(backup, records, place, end, out);
            }
            (Task::Checkpoint { index }, result) => self.checkpoint_step_done(index, result, out),
            (Task::HashKv { epoch }, JobResult::HashKv { scan, done }) => self.hash_scanned(epoch, *scan, done, out),
            (Task::SendChunk { to, boot, token }, JobResult::Chunk { bytes, end }) => {
                out.push(Output::Send { to, frame: Frame::Chunk { boot, token, ok: true, end, bytes } });
            }
            (Task::Install, result) => self.install_step_done(result, out),
            (task, result) => panic!("{result:?} does not answer {task:?}"),
        }
    }

    /// A read that failed concerns its asker; anything else means that this member must stop.
    fn job_failed(&mut self, job: JobId, task: Task, fault: disk::Fault, out: &mut Vec<Output>) {
        match task {
            // Its file may be gone with the state that is being replaced.
            Task::ApplyRead if self.transfer.swapping() || !self.applier.waits_for(job) => self.applier.unread(job),
            Task::SendChunk { to, boot, token } => {
                self.note(Level::Warn, format!("a checkpoint file could not be read for member {to:x}: {fault}"), out);
                let frame = Frame::Chunk { boot, token, ok: false, end: false, bytes: bytes::Bytes::new() };
                out.push(Output::Send { to, frame });
            }
            Task::Backup { backup } => self.backup_unread(backup, fault, out),
            Task::HashKv { epoch } => self.hash_failed(epoch, &fault, out),
            Task::History => self.history_failed(&fault.to_string(), out),
            Task::Install => self.install_failed(fault, out),
            Task::ReadLog { ticket } => {
                // The follower gets a snapshot instead.
                self.note(Level::Error, format!("old log entries could not be read: {fault}"), out);
                self.consensus.fetched(ticket, Vec::new());
            }
            _ => self.fatal(format!("{fault}"), out),
        }
    }

    pub(crate) fn fatal(&mut self, reason: String, out: &mut Vec<Output>) {
        self.dead = true;
        out.push(Output::Fatal { reason });
    }

    pub(crate) fn note(&self, level: Level, text: String, out: &mut Vec<Output>) {
        out.push(Output::Note { level, text });
    }

    pub(crate) fn answer(&self, waiter: Waiter, answer: Answer, out: &mut Vec<Output>) {
        self.answer_at(self.store.revision(), waiter, answer, out);
    }

    /// An answer that shows the state of an earlier revision.
    pub(crate) fn answer_at(&self, revision: i64, waiter: Waiter, answer: Answer, out: &mut Vec<Output>) {
        out.push(Output::Answer { waiter, revision, term: self.term, answer });
    }

    pub(crate) fn refuse(&self, waiter: Waiter, refusal: Refusal, out: &mut Vec<Output>) {
        self.answer(waiter, Answer::Refused(refusal), out);
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }

    pub(crate) fn peers(&self) -> Vec<u64> {
        let conf = self.store.conf();
        conf.voters.iter().chain(&conf.learners).copied().filter(|id| *id != self.config.member).collect()
    }
}
