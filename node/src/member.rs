//! The member: its parts, its two verbs `step` and `flush`, and the order of one turn.
//!
//! ```text
//! step(input)   sorts one input into the part that it concerns; nothing is sent yet
//! flush()       one turn:
//!   gate         commands collected since the last turn are proposed, forwarded or held
//!   reads        reads collected since the last turn join one ReadIndex round
//!   consensus    messages leave, one save is submitted, entries are committed
//!   apply        committed and saved entries change the store, in order; waiters are answered
//!   reads        those whose index is applied are served
//!   walks        slices of ranges, round robin; of ranges of transactions, lists of leases,
//!                backups, hashes
//!   upkeep       sweep, lease expiry, records to files, rewritten segments, checkpoint rows
//! ```
//!
//! The parts do not know each other. What one of them needs to know of another is read here and
//! handed over as a value; what it wants of another comes back as a value and is handed on here.
//! A new part is one file, one field of `Node`, and its line in `turn`, `tick` or `sort`.

mod done;
mod requests;
mod status;

use crate::answers::Answers;
use crate::apply::{Applier, Done, ENTRIES_PER_TURN};
use crate::backup::Backups;
use crate::checkpoints::Checkpoints;
use crate::config::{Config, TICK_MS};
use crate::doubts::Doubts;
use crate::foundings::Foundings;
use crate::frame::{Caller, Frame};
use crate::gate::{Forward, Gate, Owed};
use crate::ground::Ground;
use crate::hashes::Hashes;
use crate::health::Health;
use crate::io::*;
use crate::jobs::Task;
use crate::lessor::{AskAgain, Lessor};
use crate::listings::Listings;
use crate::membership::Membership;
use crate::mend::{Mends, Sent, Wanted};
use crate::moves::Moves;
use crate::nonsense::{Nonsense, plausible};
use crate::reads::{Confirmed, Reads, Then};
use crate::reclaim::{self, Reclaim};
use crate::saves::Saves;
use crate::scrub::Scrubs;
use crate::tally::Tally;
use crate::tokens::Tokens;
use crate::transfer::{Piece, Stock, Transfer};
use crate::walks::Walks;
use crate::watchdog::{Ages, Watchdog};
use crate::watches::Watches;
use consensus::{Consensus, Role, Turn};
use disk::startover::Rebuilt;
use store::Store;

/// Keys that compaction left behind, taken out in one turn.
const SWEPT_PER_TURN: usize = 1_000;

/// A save that has waited for so many ticks: the disk is busy enough.
const SLOW: u64 = 5;

/// Apply lags when an entry has waited for so many heartbeats.
const LAGS: u64 = 2;

/// One member of a cluster (see the crate's page).
pub struct Node {
    ground: Ground,
    gate: Gate,
    reads: Reads,
    walks: Walks,
    answers: Answers,
    listings: Listings,
    backups: Backups,
    hashes: Hashes,
    watches: Watches,
    applier: Applier,
    saves: Saves,
    lessor: Lessor,
    checkpoints: Checkpoints,
    reclaim: Reclaim,
    transfer: Transfer,
    health: Health,
    watchdog: Watchdog,
    moves: Moves,
    membership: Membership,
    doubts: Doubts,
    foundings: Foundings,
    scrubs: Scrubs,
    mends: Mends,
    tokens: Tokens,
    nonsense: Nonsense,
    turn: Turn,
}

/// What recovery found in the files besides the state and the log.
pub(crate) struct Found {
    /// Index of the checkpoint that it started from, and the bytes of its rows.
    pub(crate) checkpoint: u64,
    pub(crate) rows_bytes: u64,
    /// Bytes of the log beyond the checkpoint.
    pub(crate) log_bytes: u64,
    /// Id of the segment that was open at that checkpoint.
    pub(crate) open_segment: u32,
    /// Bytes of the files of the state.
    pub(crate) disk_bytes: u64,
    /// The state was found to differ from the other members' in an earlier life.
    pub(crate) corrupt: bool,
    /// A leader had another history, in an earlier life.
    pub(crate) contradicted: Option<String>,
    /// The founding that the files beside the log say it is of; 0: they do not.
    pub(crate) founding: u64,
    /// Who votes as those files say; None: they say nothing of it.
    pub(crate) voters: Option<Vec<u64>>,
    /// There is no state: that of the leader is awaited. The log is whole if it holds anything.
    pub(crate) empty: bool,
    /// What it promised may be lost.
    pub(crate) doubtful: bool,
    pub(crate) rebuilt: Rebuilt,
    /// Index of a checkpoint that was received in part.
    pub(crate) staged: Option<u64>,
}

impl Node {
    pub(crate) fn assemble(
        config: Config,
        consensus: Consensus,
        store: Store,
        found: &Found,
        out: &mut Vec<Output>,
    ) -> Node {
        let mut node = Node {
            gate: Gate::default(),
            reads: Reads::default(),
            walks: Walks::default(),
            answers: Answers::default(),
            listings: Listings::default(),
            backups: Backups::default(),
            hashes: Hashes::default(),
            watches: Watches::new(config.budgets.event_ring, store.revision() + 1, config.seed),
            applier: Applier::new(store.applied().index, found.empty),
            saves: Saves::default(),
            lessor: Lessor::default(),
            checkpoints: Checkpoints::new(found.checkpoint, found.rows_bytes, found.log_bytes, found.open_segment),
            reclaim: Reclaim::default(),
            transfer: Transfer::new(found.staged),
            health: Health::new(found.rebuilt),
            watchdog: Watchdog::default(),
            moves: Moves::default(),
            membership: Membership::new(&config, found.voters.clone()),
            doubts: Doubts::new(found.doubtful),
            foundings: Foundings::new(found.founding),
            scrubs: Scrubs::default(),
            mends: Mends::default(),
            tokens: Tokens::default(),
            nonsense: Nonsense::default(),
            turn: Turn::default(),
            ground: Ground::new(config, consensus, store),
        };
        node.checkpoints.files_grew(found.disk_bytes);
        node.ground.swap_out(out);
        node.membership.tell(&mut node.ground);
        if found.empty {
            let has_log = node.ground.store.applied().index > 0;
            node.health.found_empty(&mut node.ground, has_log);
            node.bar();
        } else if found.corrupt {
            node.health.found_wrong(&mut node.ground);
            node.bar();
        }
        if let Some(seen) = &found.contradicted {
            node.health.found_contradicted(&mut node.ground, seen);
            node.bar();
        }
        if node.ground.store.conf().voters == [node.ground.config.member] {
            node.ground.consensus.campaign();
        }
        node.ground.swap_out(out);
        node
    }

    /// Sorts one input into its part. Cheap; the work is in [`Node::flush`].
    pub fn step(&mut self, input: Input, out: &mut Vec<Output>) {
        if self.ground.dead() {
            return;
        }
        self.ground.swap_out(out);
        self.sort(input);
        self.ground.swap_out(out);
    }

    /// Ends a turn: everything the inputs since the last one made possible is done.
    pub fn flush(&mut self, out: &mut Vec<Output>) {
        if self.ground.dead() {
            return;
        }
        self.ground.swap_out(out);
        self.ground.tally.begin();
        self.turn();
        self.ground.swap_out(out);
    }

    /// False: another turn would make progress without any input.
    pub fn idle(&self) -> bool {
        self.ground.dead()
            || (self.walks.idle()
                && self.answers.idle()
                && self.listings.idle()
                && self.backups.idle()
                && self.hashes.idle()
                && self.applier.idle(&self.ground)
                && self.gate.idle()
                && self.checkpoints.idle()
                && self.reclaim.idle()
                && !self.ground.store.sweep_pending())
    }

    /// See [`Config::ticks_together`].
    pub fn ticks_together(&self) -> u32 {
        self.ground.config.ticks_together()
    }

    /// Which founding this member's state is of; 0: no leader has named it yet.
    pub fn founding(&self) -> u64 {
        self.ground.store.founding()
    }

    /// Users are asked for; and the revision of what is known of them.
    pub fn auth(&self) -> (bool, u64) {
        let auth = self.ground.store.auth();
        (auth.enabled(), auth.revision())
    }

    /// What was counted until now.
    pub fn tally(&self) -> &Tally {
        &self.ground.tally
    }

    /// The compacted revision.
    pub fn compacted(&self) -> i64 {
        self.ground.store.compacted()
    }

    /// Compaction has left something in the index that it will take out.
    pub fn sweeps(&self) -> bool {
        self.ground.store.sweep_pending()
    }

    /// The segments as far as files hold them; none while those of another state are put in place.
    pub fn segments_in_files(&self) -> Vec<store::SegmentUse> {
        let g = &self.ground;
        if g.swapping() { Vec::new() } else { g.store.segments_in_files() }
    }

    fn turn(&mut self) {
        self.submit_commands();
        self.ask_for_tokens();
        self.reads.submit(&mut self.ground);
        self.turn_consensus();
        self.apply();
        self.foundings.turn(&mut self.ground);
        self.serve_reads();
        self.serve_tokens();
        self.walks.run(&mut self.ground);
        self.answers.run(&mut self.ground);
        self.listings.run(&mut self.ground);
        self.backups.run(&mut self.ground);
        self.hashes.run(&mut self.ground);
        self.upkeep();
        // what apply, reads and upkeep proposed leaves in this turn too
        self.submit_commands();
        self.turn_consensus();
        if self.transfer.restarts_log() {
            // Behind every save that was ready: the restart names the newest term and vote.
            self.saves.hold(&mut self.ground);
            self.transfer.restart_log(&mut self.ground);
        }
    }

    fn sort(&mut self, input: Input) {
        let g = &mut self.ground;
        match input {
            Input::Tick => self.tick(),
            Input::Away { ticks } => {
                g.was_away(ticks);
                g.consensus.was_away(ticks);
                self.lessor.was_away(g);
            }
            Input::Frame { from, frame } => self.frame(from, frame),
            Input::Met { peer, founding } => self.met(peer, founding),
            Input::Lost { peer } => self.lost(peer),
            Input::Gone { peer } => g.consensus.leader_gone(peer),
            Input::Removed { by } => self.membership.told_gone(g, by),
            Input::Request { waiter, who, request } => self.request(waiter, who, request),
            Input::Cancel { waiter, timed_out } => self.cancel(waiter, timed_out),
            Input::Watch { stream, op } => self.watches.watch(g, stream, op, self.health.willing()),
            Input::Done { job, result } => self.done(job, result),
            Input::Unreadable { fault } => self.unreadable(&fault),
            Input::Stalled { job, fault } => {
                self.health.stalled(g, job, &fault);
                self.checkpoints.no_room(g);
                self.hashes.no_room(g);
            }
            Input::Stop => {
                let wanted = self.health.begin_stop(g, self.checkpoints.busy());
                self.want_checkpoint(wanted);
            }
        }
    }

    fn tick(&mut self) {
        let g = &mut self.ground;
        g.now += 1;
        g.consensus.tick();
        self.read_again();
        let g = &mut self.ground;
        self.reads.tick(g);
        self.gate.tick(g);
        self.membership.tick(g);
        if let Some(command) = self.lessor.tick(g, self.health.willing()) {
            self.gate.propose_own(command);
        }
        if let Some(upto) = self.lessor.wants_round(g) {
            self.reads.queue_deadlines(upto);
        }
        self.tokens.tick(g);
        self.walks.tick(g);
        self.backups.tick(g);
        self.hashes.tick(g);
        let read = if g.is_leader() { self.reads.age() } else { 0 };
        let ages = Ages {
            save: self.saves.age(g.now),
            apply: self.applier.age(g.now),
            read,
            piece: g.piece_age(),
            checkpoint: self.checkpoints.age(g),
        };
        let willing = self.health.willing();
        self.watchdog.tick(g, ages, willing.disk_full || willing.corrupt);
        let wanted = self.health.tick(g, self.watchdog.holds_commands(), self.checkpoints.busy());
        self.want_checkpoint(wanted);
        if willing.disk_full {
            self.let_go();
        }
        if self.health.compare_when_quiet(&mut self.ground) {
            self.bar();
        }
        let stock = self.stock();
        let g = &mut self.ground;
        self.transfer.tick(g, stock, self.health.lacks_state());
        if self.health.wants_state() {
            // Consensus does not hear of it when the log is cut on the disk.
            let least = g.consensus.log_begins_behind().max(self.checkpoints.cut());
            self.transfer.want_state(g, least);
        }
        self.doubts.tick(g);
        self.checkpoints.tick(g);
        self.saves.tick(g);
        self.watches.tick(g);
        if !self.reclaim.holds_checkpoints() {
            // What is mended must not be moved meanwhile.
            self.mends.tick(g);
        }
        self.scrubs.tick(g, self.checkpoints.disk_bytes());
        self.free_files();
    }

    /// What the other parts are at, for the one that rewrites segments.
    fn beside_reclaim(&self) -> reclaim::Beside {
        let (checkpoints, willing) = (&self.checkpoints, self.health.willing());
        let slow = self.saves.age(self.ground.now) >= SLOW;
        reclaim::Beside {
            checkpointing: checkpoints.running(),
            checkpoint_wanted: checkpoints.busy(),
            installing: self.transfer.installing(),
            hold: slow || self.mends.works() || willing.stopping || willing.corrupt || self.health.waits_for_room(),
            newest: checkpoints.newest(),
            open_segment: checkpoints.open_segment(),
            rows_bytes: checkpoints.rows_bytes(),
        }
    }

    /// Files that nothing needs any more go with the checkpoints that name them.
    fn free_files(&mut self) {
        match self.reclaim.wanted(&self.ground, self.beside_reclaim()) {
            Some(reclaim::Wanted::Checkpoint) => self.want_checkpoint(true),
            Some(reclaim::Wanted::Entry) => self.gate.propose_own(store::command::encode_lease_checkpoint(&[])),
            None if self.checkpoints.wants_entry(&self.ground) => {
                self.gate.propose_own(store::command::encode_lease_checkpoint(&[]));
            }
            None => {}
        }
    }

    /// Why no checkpoint may begin now.
    fn checkpoints_held(&self) -> bool {
        // One whose state is wrong, or that has none, keeps its log whole: it may be the last one.
        let corrupt = self.health.willing().corrupt;
        let held = self.transfer.installing() || self.reclaim.holds_checkpoints() || corrupt;
        held || self.health.waits_for_room()
    }

    /// A record could not be read: damage comes again from another member.
    fn unreadable(&mut self, fault: &disk::Fault) {
        let g = &self.ground;
        if fault.is_damage() {
            self.mends.suspect(g, fault.file());
        } else if fault.is_refused() {
            self.mends.unreadable(g, fault.file());
        }
    }

    /// What other members may pull from this one.
    fn stock(&self) -> Stock {
        let checkpoints = &self.checkpoints;
        let (newest, logged) = (checkpoints.newest(), checkpoints.logged());
        Stock { newest, logged, bytes: checkpoints.bytes(&self.ground) }
    }

    fn want_checkpoint(&mut self, wanted: bool) {
        if wanted {
            self.checkpoints.want(self.ground.store.applied().index);
        }
    }

    /// One of another founding is not heard. Of one that is not known here a leader is followed and
    /// a candidate heard; nothing else.
    fn hears(&mut self, from: u64, frame: &Frame) -> bool {
        let g = &self.ground;
        let known = g.store.member(from).is_some();
        if known {
            self.membership.heard(g, from);
        }
        !g.is_apart(from) && (known || from == g.leader || matches!(frame, Frame::Raft(_)))
    }

    fn frame(&mut self, from: u64, frame: Frame) {
        if !self.hears(from, &frame) {
            return;
        }
        let g = &mut self.ground;
        let caller = |boot, token| Caller { member: from, boot, token };
        match frame {
            Frame::Raft(message) => {
                let honest = message.from() == from && message.to() == g.config.member;
                if !honest || !is_heard(g, from, &message) {
                    return;
                }
                // A leader refuses its clients then.
                g.consensus.hold_appends(self.applier.waiting_bytes() > g.config.budgets.unapplied);
                match g.consensus.plausible_message(&message) {
                    Ok(()) => g.consensus.step(message),
                    Err(what) => self.nonsense.implausible(g, from, what),
                }
            }
            Frame::Forward { term, boot, commands } => {
                let forward = Forward { from, boot, term, commands };
                let (willing, clock) = (self.health.willing(), self.lessor.clock(g));
                let none = self.gate.on_forward(g, forward, willing, clock, self.applier.waiting_bytes());
                self.nonsense.no_commands(g, from, &none);
            }
            Frame::ForwardRefused { boot, seqs, why } => self.gate.on_forward_refused(g, boot, seqs, why),
            Frame::ForwardQuestion { term, boot, token, seqs } => {
                self.gate.on_forward_question(g, caller(boot, token), term, &seqs, self.health.willing());
            }
            Frame::ForwardMissing { boot, token, seqs } => self.gate.on_forward_missing(g, boot, token, &seqs),
            Frame::ReadIndex { boot, token } => {
                self.reads.foreign(g, Then::ForeignIndex { caller: caller(boot, token) });
            }
            Frame::ReadIndexReply { boot, token, index } => self.reads.on_read_index_reply(g, boot, token, index),
            Frame::KeepAlive { boot, token, lease } => {
                self.reads.foreign(g, Then::ForeignKeepAlive { caller: caller(boot, token), lease });
            }
            Frame::KeepAliveReply { boot, token, ok, ttl } => self.reads.on_keep_alive_reply(g, boot, token, ok, ttl),
            Frame::TimeToLive { boot, token, lease } => {
                self.reads.foreign(g, Then::ForeignTimeToLive { caller: caller(boot, token), lease });
            }
            Frame::TimeToLiveReply { boot, token, ok, ttl, index } => {
                self.reads.on_time_to_live_reply(g, boot, token, ok, ttl, index);
            }
            Frame::ChunkRequest { boot, token, index, file, offset, len } => {
                let piece = Piece { index, file, offset, len };
                let (stock, corrupt) = (self.stock(), self.health.willing().corrupt);
                self.transfer.on_chunk_request(&mut self.ground, caller(boot, token), piece, stock, corrupt);
            }
            Frame::Chunk { boot, token, ok, end: _, bytes } => {
                self.transfer.on_chunk(g, caller(boot, token), ok.then_some(bytes));
            }
            Frame::RecordsWanted { boot, token, after, before, most } => {
                let corrupt = self.health.willing().corrupt;
                self.mends.on_wanted(g, caller(boot, token), &Wanted { after, before, most }, corrupt);
            }
            Frame::Records { boot, token, ok, end, compacted, records } => {
                let sent = Sent { records, end, compacted };
                self.mends.on_records(g, caller(boot, token), ok.then_some(sent));
            }
            Frame::Standing { boot, question, standing } => match plausible(g, &standing) {
                Ok(()) => self.doubts.on_standing(g, from, boot, question, standing),
                Err(what) => self.nonsense.implausible(g, from, what),
            },
            Frame::StateWanted { boot, token, least } => self.give_state(caller(boot, token), least),
            Frame::StateOffer { boot, token, manifest } => {
                self.transfer.on_state_offer(g, caller(boot, token), manifest, self.health.wants_state());
            }
            Frame::TransferEnded { index, ok } => {
                self.transfer.on_transfer_ended(g, from, index, ok);
                if !ok {
                    self.scrubs.hurry(g);
                }
            }
            Frame::Able { able } => self.watchdog.on_able(g, from, able),
            Frame::ChangeMember { term, boot, token, change } => {
                let willing = self.health.willing();
                if let Err(none) = self.membership.on_change(g, caller(boot, token), term, &change, willing) {
                    self.nonsense.no_commands(g, from, &[none]);
                }
            }
            Frame::MemberUnchanged { boot, token, why } => self.membership.on_unchanged(g, boot, token, why),
            Frame::Digest { index, digest } => {
                if self.health.on_digest(g, from, index, digest) {
                    self.bar();
                }
            }
        }
    }

    /// Of the leader, and of nobody else: what it has is what the members agree on.
    fn give_state(&mut self, to: Caller, least: u64) {
        let g = &mut self.ground;
        // What is not in its log it can never give.
        if !g.is_leader() || self.health.willing().corrupt || least > g.consensus.status().last {
            return;
        }
        if let Some(manifest) = self.checkpoints.offer(g, least) {
            g.send(to.member, Frame::StateOffer { boot: to.boot, token: to.token, manifest });
        }
    }

    fn met(&mut self, peer: u64, founding: Option<u64>) {
        self.foundings.met(&mut self.ground, peer, founding);
        let named = self.foundings.names(&self.ground);
        if named != 0 {
            self.name_cluster(named);
        }
    }

    /// Version of the cluster, and the name of its founding; 0: it has one, or must wait for it.
    fn name_cluster(&mut self, founding: u64) {
        let version = &self.ground.config.cluster_version;
        self.gate.propose_own(store::command::encode_cluster_version(version, founding));
    }

    fn lost(&mut self, peer: u64) {
        self.ground.consensus.unreachable(peer);
        // If a snapshot was on its way there, it may be lost: another is offered when it is needed.
        self.ground.consensus.snapshot_sent(peer, false);
        self.foundings.lost(&mut self.ground, peer);
        self.gate.lost(&self.ground, peer);
        self.transfer.lost(peer);
        self.reads.lost(peer);
        self.doubts.lost(&self.ground);
    }

    fn submit_commands(&mut self) {
        let clock = self.lessor.clock(&self.ground);
        self.gate.submit(&mut self.ground, self.health.willing(), clock);
        self.membership.submit(&mut self.ground, self.health.willing());
    }

    /// Moves everything ready in consensus outward: messages before the save of the same turn.
    fn turn_consensus(&mut self) {
        let mut turn = std::mem::take(&mut self.turn);
        loop {
            let g = &mut self.ground;
            g.consensus.turn(&mut turn);
            if turn.is_empty() {
                break;
            }
            for message in turn.messages.drain(..) {
                g.send(message.to(), Frame::Raft(message));
            }
            if let Some(save) = turn.save.take() {
                self.checkpoints.log_grew(&save.entries);
                self.saves.submit(g, save);
            }
            self.applier.committed(self.ground.now, turn.committed.drain(..));
            if let Some(soft) = turn.soft.take() {
                self.leadership(soft.term, soft.leader, soft.role);
            }
            let g = &mut self.ground;
            for (token, result) in turn.reads.drain(..) {
                let primary = self.lessor.primary(g);
                let at = result.ok().map(|index| {
                    // A new leader knows no lease before it has applied up to its own first entry.
                    let renewals = if primary { self.applier.leases_upto(index) } else { index };
                    Confirmed { index, renewals }
                });
                if let Some(upto) = self.reads.confirmed(g, token, at) {
                    self.lessor.confirmed(upto);
                }
            }
            for fetch in turn.fetch.drain(..) {
                let job = LogJob::ReadLog { ticket: fetch.ticket, from: fetch.from_index, max_bytes: fetch.max_bytes };
                g.start(Task::ReadLog { ticket: fetch.ticket }, job);
            }
            let corrupt = self.health.willing().corrupt;
            if let Some(index) = turn.want_snapshot.take().filter(|_| !corrupt) {
                let held = self.checkpoints_held();
                self.checkpoints.want_snapshot(&mut self.ground, index, held);
            }
            let g = &mut self.ground;
            if let Some((from, snapshot)) = turn.install.take() {
                self.transfer.begin(g, from, snapshot);
            }
            if std::mem::take(&mut turn.tear_believed) {
                self.doubts.believed(g);
            }
            if std::mem::take(&mut turn.doubt_changed) {
                self.doubts.changed(g);
            }
            self.transfer.follow(g);
            for peer in turn.lost_data.drain(..) {
                self.health.lost_data(g, peer);
            }
            if let Some(found) = turn.contradicted.take() {
                self.transfer.end_unwanted();
                self.health.contradicted(g, found);
                self.bar();
            }
        }
        self.turn = turn;
    }

    fn leadership(&mut self, term: u64, leader: u64, role: Role) {
        let g = &mut self.ground;
        if !g.lead(term, leader, role) {
            return;
        }
        self.reads.leader_changed(g);
        self.health.leader_changed(g);
        self.watchdog.leader_changed(g);
        self.moves.leader_changed(g);
        self.membership.leader_changed(g);
        for AskAgain { waiter, lease } in self.lessor.stop(g) {
            self.reads.queue(waiter, Then::KeepAlive { lease });
        }
        g.push(Output::Leader { term, leader, role });
    }

    fn apply(&mut self) {
        let (member, boot) = (self.ground.config.member, self.ground.config.boot);
        let mut step = self.applier.step(&self.ground);
        for _ in 0..ENTRIES_PER_TURN {
            let asks = |origin| self.gate.asks(member, boot, origin);
            let Some(done) = self.applier.next(&mut self.ground, &mut step, &asks) else { return };
            self.applied(done);
        }
    }

    /// An entry has changed the state: every part that it concerns is shown it.
    fn applied(&mut self, done: Done) {
        let g = &mut self.ground;
        if let Some(before) = done.compacted.filter(|_| !self.health.waits_for_room()) {
            self.hashes.compacted(g, before);
        }
        self.gate.fence(done.at.term);
        self.membership.fence(done.at.term);
        if self.lessor.start(g, done.at.term) {
            let named = self.foundings.names(g);
            if named != 0 || g.store.cluster_version() != g.config.cluster_version {
                self.name_cluster(named);
            }
        }
        let g = &mut self.ground;
        let differs = self.health.applied(g, done.at.index);
        if let Some(applied) = done.applied {
            let tally = &mut self.ground.tally;
            tally.waited = tally.waited.max(done.waited);
            tally.applied(done.command, &applied);
            self.tell_applied(applied);
        }
        if let Some(changed) = done.changed {
            self.membership.applied(&mut self.ground, changed, done.gone);
        }
        if differs {
            // Behind the events of the entry: what is barred begins anew behind the state.
            self.bar();
        }
    }

    fn tell_applied(&mut self, applied: store::Applied) {
        let g = &mut self.ground;
        for change in &applied.leases {
            self.lessor.applied(g, change);
        }
        for events in &applied.events {
            self.watches.publish(g, events);
        }
        let mut applied = applied;
        if let Some(change) = applied.auth.take() {
            self.tokens.applied(g, change);
        }
        let corrupt = self.health.willing().corrupt;
        match self.gate.applied(g, applied, corrupt) {
            Some(Owed::Physical { waiter, revision }) => self.checkpoints.wait_for_physical(g, waiter, revision),
            Some(Owed::Rest { waiter, revision, reply, holds }) => {
                self.answers.begin(g, waiter, revision, reply, holds);
            }
            None => {}
        }
    }

    /// Everything that happens beside traffic.
    fn upkeep(&mut self) {
        let g = &mut self.ground;
        let versions = g.store.versions();
        g.store.sweep(SWEPT_PER_TURN);
        g.tally.counted.swept += versions - g.store.versions();
        for AskAgain { waiter, lease } in self.lessor.settle_expired(g) {
            self.reads.queue(waiter, Then::KeepAlive { lease });
        }
        self.expire_leases();
        let g = &mut self.ground;
        if g.unhanded_bytes() >= g.config.budgets.unwritten as u64 {
            g.write_records();
        }
        let beside = self.beside_reclaim();
        self.reclaim.run(&mut self.ground, beside);
        let held = self.checkpoints_held();
        self.checkpoints.run(&mut self.ground, held, &self.transfer.pulled());
        self.reclaim.dropped(&self.ground, self.checkpoints.take_dropped());
    }

    /// Ends leases that are due. None while apply lags: what grants a lease or ends it may wait
    /// there.
    fn expire_leases(&mut self) {
        let g = &self.ground;
        let lags = self.applier.age(g.now) > LAGS * g.config.heartbeat_ms / TICK_MS;
        let willing = self.health.willing();
        // Leases of a wrong state say nothing of what is due.
        if lags || !self.lessor.may_expire() || willing.holds_commands || willing.corrupt {
            return;
        }
        for command in self.lessor.expire(g, &self.reads.renewals()) {
            self.gate.propose_own(command);
        }
    }

    /// There is no room for writes: no reader keeps what compaction would take.
    fn let_go(&mut self) {
        let g = &mut self.ground;
        if !g.sweeps() {
            return;
        }
        let (walks, backups) = (self.walks.let_go(g), self.backups.let_go(g));
        if walks + backups > 0 {
            let text = format!(
                "ended {walks} ranges and {backups} backups that were read slowly: they kept compacted versions, and \
                 there is no room for writes"
            );
            g.note(Level::Warn, text);
        }
    }

    /// The state must not be served, neither to clients nor to members: what waits for something of
    /// it ends or waits on, and this member does not lead.
    fn bar(&mut self) {
        let g = &mut self.ground;
        self.health.bar(g);
        self.walks.end_all_with(g, Refusal::User(store::Error::Corrupt));
        // They happened in the cluster, and what they came to is not known here.
        self.answers.end_all_with(g, Refusal::Timeout);
        self.hashes.end_all_with(g, Refusal::User(store::Error::Corrupt));
        self.listings.end_all_with(g, Refusal::User(store::Error::Corrupt));
        self.checkpoints.end_physical_with(g, Refusal::User(store::Error::Corrupt));
        self.checkpoints.withdraw(g);
        self.transfer.withdraw(g);
        self.backups.refuse_all(g, "the member's state differs from that of the others: it is CORRUPT");
        self.watches.reset(g);
        self.health.give_up_leadership(g);
    }
}

/// Members are heard, removed ones are not. A follower that has not applied the addition of a
/// member hears it all the same when it leads, or asks for a vote: it may be the only one that can
/// lead, and then this one would never learn of it. A lone voter has committed itself whatever adds
/// a member, so it knows all of them.
fn is_heard(g: &Ground, from: u64, message: &consensus::Message) -> bool {
    let lone = g.store.conf().voters == [g.config.member];
    let says = message.is_from_leader() || message.asks_for_vote();
    // One that has a leader needs no other one to tell it of a member.
    let needs = g.leader == 0 || g.leader == from;
    let stranger = says && needs && message.term() >= g.consensus.term() && !lone;
    g.store.member(from).is_some() || (stranger && !g.store.removed().contains(&from))
}
