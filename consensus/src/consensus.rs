//! The facade: every way into the crate, and the turn that comes out.

use crate::again::Again;
use crate::away::Away;
use crate::check::{Here, Suspicions, is_sound};
use crate::doubt::Heard;
use crate::fit::{self, Fits};
use crate::gone::Gone;
use crate::histories::Histories;
use crate::message::conf_from;
use crate::plausible::Bounds;
use crate::reads::Reads;
use crate::storage::{LogCache, entry_from};
use crate::types::{Ballot, Matched};
use crate::{
    ConfState, Config, Doubt, Entry, EntryKind, Feeding, Follower, HardState, Message, Position, Refused, Restored,
    Role, Save, Snapshot, Soft, Status, Turn,
};
use bytes::Bytes;
use raft::eraftpb::{self, MessageType};
use raft::{ProgressState, RawNode, StateRole};
use std::collections::VecDeque;

/// Appends to a follower that may be under way: with the largest message, how much of a backlog
/// is sent in one turn.
const MAX_INFLIGHT: usize = 64;

/// One member's consensus. Calls change it; [`Consensus::turn`] says what is to be done.
pub struct Consensus {
    pub(crate) config: Config,
    pub(crate) raw: RawNode<LogCache>,
    /// On disk.
    durable: Ballot,
    /// Of the newest save.
    issued: Ballot,
    /// Submitted or about to be, ascending.
    outstanding: VecDeque<Outstanding>,
    /// Not yet handed out.
    pub(crate) saves: VecDeque<Save>,
    /// Committed, but a save that touches them is outstanding.
    committed: VecDeque<Entry>,
    /// Index of the last entry handed out.
    handed: u64,
    pub(crate) applied: u64,
    /// Config entries handed out, neither applied nor refused.
    pub(crate) changes: VecDeque<u64>,
    reads: Reads,
    suspicions: Suspicions,
    pub(crate) bounds: Bounds,
    pub(crate) again: Again,
    fits: Fits,
    away: Away,
    pub(crate) gone: Option<Gone>,
    campaigns: u64,
    /// Ticks since leadership began to move to another member; 0: it does not.
    moving: u64,
    /// Stepped down for a hung disk: no campaign until a save completes.
    blocked: bool,
    /// Its state is wrong: it must not lead.
    barred: bool,
    pub(crate) histories: Histories,
    /// What may have been promised and is not there.
    pub(crate) doubt: Option<Doubt>,
    pub(crate) heard: Heard,
    pub(crate) held: Option<(u64, Snapshot)>,
    soft: Soft,
    pub(crate) out: Turn,
}

/// A save that is not durable yet, and what waits for it.
struct Outstanding {
    number: u64,
    /// Newest of the crate's readies that need nothing beyond this save.
    through: u64,
    ballot: Ballot,
    first_entry: Option<u64>,
    messages: Vec<Message>,
}

impl Consensus {
    /// # Panics
    /// If the configuration or what was restored contradicts itself.
    pub fn new(config: Config, restored: Restored) -> Consensus {
        let Restored { mut hard, conf, applied: at, entries, boundary, terms, doubt, voters_lost } = restored;
        let (applied, cut) = (at.index, entries.first().map_or(at.index, |entry| entry.index - 1));
        let last = entries.last().map_or(cut, |entry| entry.index);
        assert!(boundary.index <= cut && cut <= applied && applied <= last, "applied {applied} is not in the log");
        hard.commit = hard.commit.max(applied);
        assert_eq!(hard.commit, applied, "the log is applied up to the durable commit first");
        let newest = entries.last().map(|e| e.term).or(terms.last().map(|run| run.term));
        hard.term = hard.term.max(newest.unwrap_or(boundary.term));
        let runs = std::iter::once(boundary).chain(terms).collect();
        let cache = LogCache::new(hard, &conf, runs, cut, entries, applied, config.cache_bytes);
        assert_eq!(cache.term_at(applied), Some(at.term), "term of applied entry {applied}");
        let raw = raw_node(&config, applied, cache);
        let mut consensus = Consensus {
            reads: Reads::new(config.id, config.boot),
            config,
            raw,
            durable: hard.ballot(),
            issued: hard.ballot(),
            outstanding: VecDeque::new(),
            saves: VecDeque::new(),
            committed: VecDeque::new(),
            handed: applied,
            applied,
            changes: VecDeque::new(),
            suspicions: Suspicions::default(),
            bounds: Bounds::new(hard.term, last),
            again: Again::default(),
            fits: Fits::default(),
            away: Away::default(),
            gone: None,
            campaigns: 0,
            moving: 0,
            blocked: false,
            barred: false,
            doubt,
            heard: Heard::after_restart(hard, voters_lost),
            held: None,
            histories: Histories::default(),
            soft: Soft { term: 0, leader: 0, role: Role::Follower },
            out: Turn::default(),
        };
        consensus.call(|_| ());
        consensus.look_at_doubt();
        consensus
    }

    /// The only way into the crate: afterwards the election timeout is ours again (the crate draws
    /// its own at random), and reads of a lost leadership have failed.
    pub(crate) fn call<T>(&mut self, body: impl FnOnce(&mut RawNode<LogCache>) -> T) -> T {
        let before = (self.raw.raft.term, self.raw.raft.state == StateRole::Leader);
        let result = body(&mut self.raw);
        let raft = &mut self.raw.raft;
        let timeout = election_timeout(&self.config, raft.term, self.campaigns);
        raft.set_randomized_election_timeout(timeout);
        let after = (raft.term, raft.state == StateRole::Leader);
        self.remember_leader();
        if self.raw.raft.election_elapsed == 0 {
            self.away.clear();
        }
        if before != after {
            self.reads.fail();
            self.suspicions.clear();
            self.histories.leader_changed();
            self.again.clear();
        }
        result
    }

    /// One consensus tick.
    pub fn tick(&mut self) {
        self.reads.tick();
        self.suspicions.tick();
        self.bounds.tick();
        self.histories.tick();
        self.again.tick();
        self.fits.tick();
        self.count_away();
        self.count_move(1);
        self.wait_for_leader();
        self.stand_for_gone();
        if self.role() != Role::Leader && !self.may_campaign() {
            // Time goes on, so that votes are granted once the leader is silent, but no election.
            self.raw.raft.election_elapsed += 1;
            self.forget_silent_leader();
            return;
        }
        let was_leader = self.role() == Role::Leader;
        let fired = self.call(|raw| raw.tick());
        if fired && !was_leader {
            self.campaigns += 1;
            self.call(|_| ());
        }
    }

    /// Whoever stands for election forgets its leader with that. One that may not stand would take
    /// a dead one for its leader until another one is elected.
    fn forget_silent_leader(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.pass_election_timeout() {
            raft.leader_id = 0;
        }
    }

    /// So many ticks went by that this member did not live through: it could neither hear nor
    /// answer. What was sent to it meanwhile is to be stepped before further ticks.
    pub fn was_away(&mut self, ticks: u64) {
        if self.role() != Role::Leader {
            self.away.add(ticks, 2 * u64::from(self.config.election_ticks));
        }
        self.count_move(ticks);
    }

    /// Nothing is proposed while leadership moves. So a move has an election timeout, whether or
    /// not this member lived through it.
    fn count_move(&mut self, ticks: u64) {
        let raft = &mut self.raw.raft;
        self.moving = if raft.lead_transferee.is_some() { self.moving + ticks } else { 0 };
        if self.moving >= u64::from(self.config.election_ticks) {
            raft.abort_leader_transfer();
        }
    }

    /// A leader counts none: its followers could not answer it.
    fn count_away(&mut self) {
        let missed = self.away.tick(u64::from(self.config.heartbeat_ticks));
        if self.role() != Role::Leader {
            self.raw.raft.election_elapsed += missed as usize;
        }
    }

    /// A campaign claims our whole log, so all of it must be durable; and while a snapshot is held
    /// our log is about to be replaced. Who lacks what somebody knows to be committed must not win.
    fn may_campaign(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        !self.blocked
            && !self.barred
            && !self.histories.contradicted()
            && self.doubt.is_none()
            && self.held.is_none()
            && self.has_all_that_is_known_committed()
            && log.last_index() == log.persisted
            && self.saves_hold_no_entries()
    }

    pub(crate) fn saves_hold_no_entries(&self) -> bool {
        self.outstanding.iter().all(|save| save.first_entry.is_none())
    }

    /// A message from a peer. What contradicts itself or our state is dropped, and so is what is
    /// too far ahead of it.
    pub fn step(&mut self, message: Message) {
        if self.bounds.message(&message).is_err() {
            return;
        }
        let raft = &self.raw.raft;
        let here = Here { id: self.config.id, term: raft.term, last: raft.raft_log.last_index() };
        if !is_sound(&here, &message) || self.hears_second_leader(&message) || !self.may_vote(&message) {
            return;
        }
        if self.histories.contradicted() && message.is_from_leader() {
            return;
        }
        let current = message.0.term >= here.term;
        match message.0.get_msg_type() {
            MessageType::MsgAppend if current && self.held.is_some() => return,
            MessageType::MsgAppend if current && self.bounds.full => return self.hear_leader_silently(&message.0),
            MessageType::MsgSnapshot if !current => return,
            MessageType::MsgSnapshot => return self.step_snapshot(message),
            MessageType::MsgTimeoutNow if !self.may_campaign() => return,
            MessageType::MsgAppendResponse if self.contradicts(&message.0) => return,
            _ => {}
        }
        let mut m = message.0;
        if m.get_msg_type() == MessageType::MsgAppend && current {
            return self.step_append(m);
        }
        self.strip_commit(&mut m);
        if m.get_msg_type() == MessageType::MsgHeartbeat && current && m.commit > here.last {
            // A leader never tells more than we had acknowledged: our log has lost entries, and
            // maybe a vote.
            self.raise_lost_data(here.id);
            self.begin_doubt(Doubt { promise: None, vote: true, sure: false, torn: false });
            m.commit = 0;
        }
        if m.get_msg_type() == MessageType::MsgHeartbeatResponse {
            self.begin_at_commit(&m);
        }
        match m.get_msg_type() {
            MessageType::MsgAppendResponse if current => self.append_answered(&m),
            MessageType::MsgHeartbeatResponse if self.holds_back(&m) => return self.step_quietly(m),
            _ => {}
        }
        // Answers of strangers are refused by the crate.
        self.call(|raw| raw.step(m).unwrap_or_default());
    }

    /// Whether entries of the leader are passed over for now, as if they were lost on the way: what
    /// is committed and not applied stays in memory.
    pub fn hold_appends(&mut self, hold: bool) {
        self.bounds.full = hold;
    }

    /// An append of the leader. Where it overlaps with what is committed here both must be the
    /// same. The answer claims no more than was compared: the crate would claim all that is
    /// committed here.
    fn step_append(&mut self, mut m: eraftpb::Message) {
        let anchor = Position { index: m.index, term: m.log_term };
        let told = m.entries.iter().map(|entry| Position { index: entry.index, term: entry.term });
        if self.contradicts_committed(m.from, std::iter::once(anchor).chain(told)) {
            return;
        }
        let last = m.entries.last().map_or(anchor, |entry| Position { index: entry.index, term: entry.term });
        if self.ends_below_log(m.from, last) {
            return self.hear_leader_silently(&m);
        }
        let committed = self.raw.raft.raft_log.committed;
        let (leader, compared) = (m.from, last.index);
        let below = m.index < committed;
        self.strip_commit(&mut m);
        self.call(|raw| {
            let sent = raw.raft.msgs.len();
            raw.step(m).unwrap_or_default();
            for answer in raw.raft.msgs.iter_mut().skip(sent) {
                if below && answer.get_msg_type() == MessageType::MsgAppendResponse && answer.to == leader {
                    answer.index = answer.index.min(compared);
                }
            }
        });
    }

    /// All that its sender may be sent is under way, and it is too early to send any of it again.
    fn holds_back(&mut self, m: &eraftpb::Message) -> bool {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader || m.term != raft.term {
            return false;
        }
        let waits = raft.prs().get(m.from).is_some_and(|pr| match pr.state {
            ProgressState::Probe => pr.paused,
            ProgressState::Replicate => pr.ins.full(),
            ProgressState::Snapshot => false,
        });
        let (heartbeat, election) = (u64::from(self.config.heartbeat_ticks), u64::from(self.config.election_ticks));
        let first = self.fits.patience(m.from, heartbeat, self.slow_answer());
        waits && !self.again.is_due(m.from, first, election)
    }

    /// The answer counts as a sign of life and for reads, and no append follows: to a follower that
    /// waits for a snapshot the crate sends none.
    fn step_quietly(&mut self, m: eraftpb::Message) {
        let from = m.from;
        let Some(pr) = self.raw.raft.mut_prs().get_mut(from) else { return };
        let (state, paused) = (std::mem::replace(&mut pr.state, ProgressState::Snapshot), pr.paused);
        self.call(|raw| raw.step(m).unwrap_or_default());
        if let Some(pr) = self.raw.raft.mut_prs().get_mut(from) {
            (pr.state, pr.paused) = (state, paused);
        }
    }

    /// A rejection below what this follower has acknowledged. Delivered, it would set `next` at or
    /// below `matched`, which 0.7.0 does not guard against.
    fn contradicts(&mut self, m: &eraftpb::Message) -> bool {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader || m.term != raft.term {
            return false;
        }
        let Some(progress) = raft.prs().get(m.from) else {
            return false;
        };
        let matched = progress.matched;
        if !m.reject {
            self.suspicions.accepted(m.from);
            return false;
        }
        let contradicts = m.index <= matched || m.reject_hint < matched;
        let span = 2 * u64::from(self.config.election_ticks);
        if contradicts && matched > 0 && self.suspicions.contradicted(m.from, span) {
            self.raise_lost_data(m.from);
        }
        contradicts
    }

    pub(crate) fn raise_lost_data(&mut self, id: u64) {
        if !self.out.lost_data.contains(&id) {
            self.out.lost_data.push(id);
        }
    }

    /// Appends one entry on the leader; where it lands is known once it is committed.
    pub fn propose(&mut self, data: Bytes) -> Result<(), Refused> {
        let mut entry = eraftpb::Entry::default();
        entry.data = data;
        self.may_propose()?;
        let mut m = eraftpb::Message::default();
        m.set_msg_type(MessageType::MsgPropose);
        m.from = self.config.id;
        m.set_entries(vec![entry].into());
        self.call(|raw| raw.step(m)).map_err(|_| Refused::TooMany)
    }

    pub(crate) fn may_propose(&self) -> Result<(), Refused> {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader || raft.prs().get(self.config.id).is_none() {
            return Err(Refused::NotLeader);
        }
        if raft.lead_transferee.is_some() {
            return Err(Refused::Transferring);
        }
        Ok(())
    }

    /// Joins the next ReadIndex round. The answer always comes, in [`Turn::reads`].
    pub fn read(&mut self, token: u64) {
        if self.role() == Role::Leader {
            self.reads.join(token);
        } else {
            self.reads.refuse(token);
        }
    }

    /// Hands leadership to a voter that keeps up, or has all entries. The end shows in
    /// [`Turn::soft`], or [`Status::transferee`] is 0 again after at most one election timeout.
    pub fn transfer(&mut self, to: u64) -> Result<(), Refused> {
        if self.role() != Role::Leader {
            return Err(Refused::NotLeader);
        }
        if to == self.config.id {
            return Ok(());
        }
        let progress = self.raw.raft.prs().get(to);
        // Behind a broken connection only the next append would show that it keeps up, and none
        // comes while nothing is proposed.
        let last = self.raw.raft.raft_log.last_index();
        let keeps_up = progress.is_some_and(|pr| match pr.state {
            ProgressState::Replicate => true,
            ProgressState::Probe => pr.matched == last,
            ProgressState::Snapshot => false,
        });
        if !keeps_up || !self.conf().voters.contains(&to) {
            return Err(Refused::BadTransferee);
        }
        if self.raw.raft.lead_transferee != Some(to) {
            self.moving = 0;
        }
        self.call(|raw| raw.transfer_leader(to));
        Ok(())
    }

    /// Stands for election now; a single member wins at once. Nothing happens if it may not.
    pub fn campaign(&mut self) {
        if self.role() != Role::Leader && self.may_campaign() && self.raw.raft.promotable() {
            self.campaigns += 1;
            self.call(|raw| raw.campaign().unwrap_or_default());
        }
    }

    /// Moves everything that is ready into `out`, behind what is there. Call again until it leaves
    /// `out` empty: each call hands out at most one save.
    pub fn turn(&mut self, out: &mut Turn) {
        self.begin_reads();
        self.collect();
        let ready = &mut self.out;
        ready.messages.sort_by_key(Message::to);
        out.messages.append(&mut ready.messages);
        if out.save.is_none() {
            out.save = self.saves.pop_front();
        }
        out.committed.append(&mut ready.committed);
        out.reads.append(self.reads.finished());
        out.lost_data.append(&mut ready.lost_data);
        out.contradicted = ready.contradicted.take().or(out.contradicted);
        out.doubt_changed |= std::mem::take(&mut ready.doubt_changed);
        out.tear_believed |= std::mem::take(&mut ready.tear_believed);
        out.install = ready.install.take().or(out.install.take());
        self.raw.mut_store().take_fetches(&mut out.fetch);
        let wishes = self.raw.mut_store().take_snapshot_wishes();
        if let Some((index, followers)) = wishes.filter(|_| self.role() == Role::Leader) {
            out.want_snapshot = Some(index);
            out.want_snapshot_for = followers;
        }
        let soft = self.soft_now();
        if soft != self.soft {
            self.soft = soft;
            out.soft = Some(soft);
        }
    }

    fn begin_reads(&mut self) {
        let raft = &self.raw.raft;
        // Before its first own commit a leader may not know what its predecessors committed.
        if raft.state != StateRole::Leader || !raft.commit_to_current_term() {
            return;
        }
        for context in self.reads.begin(self.config.heartbeat_ticks) {
            self.call(|raw| raw.read_index(context));
        }
    }

    /// Takes what the crate has ready, in order.
    pub(crate) fn collect(&mut self) {
        while self.raw.has_ready() {
            self.collect_one(None);
        }
    }

    /// `installed`: this Ready carries the snapshot that is already durable.
    pub(crate) fn collect_one(&mut self, installed: Option<Position>) {
        let mut ready = self.raw.ready();
        let number = ready.number();
        let mut messages = ready.take_messages();
        messages.append(&mut ready.take_persisted_messages());
        let committed = ready.take_committed_entries();
        let entries = ready.take_entries();
        for state in ready.take_read_states() {
            self.reads.confirm(&state.request_ctx, state.index);
        }
        assert_eq!(ready.snapshot().is_empty(), installed.is_none());
        if let Some(at) = installed {
            assert!(entries.is_empty() && committed.is_empty());
            self.restart(at);
        }
        let ours: Vec<Entry> = entries.iter().map(entry_from).collect();
        // The cache must hold them before the crate lets go of its own copy.
        self.raw.mut_store().append(entries);
        self.call(|raw| raw.advance_append_async(ready));
        self.save_or_persist(number, ours);
        if let Some(at) = installed {
            self.call(|raw| {
                raw.on_persist_ready(number);
                raw.advance_apply_to(at.index);
            });
        }
        self.committed.extend(committed.iter().map(entry_from));
        self.route(messages);
        self.hand_out();
    }

    fn restart(&mut self, at: Position) {
        self.raw.mut_store().restart(at);
        self.committed.clear();
        self.changes.clear();
        self.out.committed.clear();
        self.handed = at.index;
        self.applied = at.index;
    }

    fn save_or_persist(&mut self, number: u64, entries: Vec<Entry>) {
        let raft = &self.raw.raft;
        let hard = HardState { term: raft.term, vote: raft.vote, commit: raft.raft_log.committed };
        let first_entry = entries.first().map(|entry| entry.index);
        let ballot = hard.ballot();
        if first_entry.is_some() || ballot != self.issued {
            self.issued = ballot;
            let messages = Vec::new();
            self.outstanding.push_back(Outstanding { number, through: number, ballot, first_entry, messages });
            self.saves.push_back(Save { number, hard, entries });
        } else if let Some(newest) = self.outstanding.back_mut() {
            newest.through = number;
        } else {
            self.call(|raw| raw.on_persist_ready(number));
        }
    }

    /// Sends what claims nothing that is not durable; the rest waits for the newest save.
    pub(crate) fn route(&mut self, messages: Vec<eraftpb::Message>) {
        let mut parts = Vec::new();
        for m in messages {
            if m.to == self.config.id || m.to == 0 {
                continue;
            }
            let free = self.outstanding.is_empty() || self.leaves_at_once(&m);
            let m = self.realign(m);
            self.cut(m, &mut parts);
            match self.outstanding.back_mut() {
                Some(newest) if !free => newest.messages.append(&mut parts),
                _ => self.out.messages.append(&mut parts),
            }
        }
    }

    /// The parts of a message that fit the link. A probe has one: the crate sends what is behind
    /// it when the probe is answered, whatever has left before.
    fn cut(&mut self, m: eraftpb::Message, parts: &mut Vec<Message>) {
        let (to, most) = (m.to, self.config.max_message_bytes);
        let probes = self.raw.raft.prs().get(to).is_some_and(|progress| progress.state == ProgressState::Probe);
        let fits = self.fits.bytes(to, most, self.slow_answer());
        split(m, if probes { fits.min(fit::LEAST) } else { fits }, parts);
        if probes {
            parts.truncate(1);
        }
        if let Some(part) = parts.last()
            && let Some(last) = part.0.entries.last()
        {
            let bytes = part.0.entries.iter().map(|entry| entry.data.len() as u64).sum();
            self.fits.sent(to, last.index, bytes);
        }
    }

    fn append_answered(&mut self, m: &eraftpb::Message) {
        self.again.answered(m.from);
        if !m.reject {
            self.fits.answered(m.from, m.index, self.config.max_message_bytes, self.slow_answer());
        }
    }

    /// An answer to an append is late after so many ticks.
    fn slow_answer(&self) -> u64 {
        u64::from(self.config.election_ticks / 2)
    }

    /// The crate batches entries into an append of the same turn that has none yet, even when the
    /// follower's next index was set back meanwhile: the append must stand where its entries begin.
    fn realign(&self, mut m: eraftpb::Message) -> eraftpb::Message {
        let first = m.entries.first().map_or(m.index + 1, |entry| entry.index);
        if m.get_msg_type() != MessageType::MsgAppend || first == m.index + 1 {
            return m;
        }
        match self.raw.raft.raft_log.term(first - 1) {
            Ok(term) => (m.index, m.log_term) = (first - 1, term),
            // Too old to prove: the empty append stands, and its rejection sets the follower right.
            Err(_) => m.entries.clear(),
        }
        m
    }

    /// A leader's messages and answers to heartbeats claim its term and vote, not its log.
    fn leaves_at_once(&self, m: &eraftpb::Message) -> bool {
        let kind = matches!(
            m.get_msg_type(),
            MessageType::MsgAppend
                | MessageType::MsgHeartbeat
                | MessageType::MsgHeartbeatResponse
                | MessageType::MsgSnapshot
                | MessageType::MsgTimeoutNow
        );
        let raft = &self.raw.raft;
        let Ballot { term, vote } = self.durable;
        let vote_stands = raft.term != m.term || raft.vote == vote;
        kind && (m.term < term || (m.term == term && vote_stands))
    }

    /// First entry of the saves that are not durable yet.
    pub(crate) fn first_unsaved(&self) -> Option<u64> {
        self.outstanding.iter().filter_map(|save| save.first_entry).min()
    }

    fn hand_out(&mut self) {
        let durable = self.first_unsaved().map_or(u64::MAX, |first| first - 1);
        while let Some(entry) = self.committed.pop_front_if(|entry| entry.index <= durable) {
            assert_eq!(entry.index, self.handed + 1, "entries are handed out in order");
            self.handed = entry.index;
            if entry.kind == EntryKind::Config {
                self.changes.push_back(entry.index);
            }
            self.out.committed.push(entry);
        }
    }

    /// Save `number`, and all before it, are durable.
    pub fn saved(&mut self, number: u64) {
        self.blocked = false;
        while let Some(save) = self.outstanding.pop_front_if(|save| save.number <= number) {
            let waiting = self.saves.front().is_some_and(|next| next.number <= save.number);
            assert!(!waiting, "save {} was never handed out", save.number);
            self.durable = save.ballot;
            // What an earlier term was to be told of may be replaced in this flush. It is lost, as
            // the network could lose it.
            let term = self.raw.raft.term;
            self.out.messages.extend(save.messages.into_iter().filter(|message| message.term() >= term));
            self.call(|raw| raw.on_persist_ready(save.through));
        }
        self.look_at_doubt();
        self.hand_out();
    }

    /// The caller has applied everything up to `index`.
    ///
    /// # Panics
    /// If that was not handed out, or a config entry in it was neither applied nor refused.
    pub fn applied(&mut self, index: u64) {
        assert!(self.applied <= index && index <= self.handed, "applied {index} was not handed out");
        let open = self.changes.front().is_some_and(|change| *change <= index);
        assert!(!open, "a config entry at or below {index} is not settled");
        self.applied = index;
        self.call(|raw| raw.advance_apply_to(index));
        let matched = self.matched_by_followers();
        self.remember_acknowledged(&matched);
        // The first entry that each may miss.
        self.raw.mut_store().set_applied(index, matched.into_iter().map(|matched| matched.index + 1));
    }

    /// Each follower of this leader, and the last entry that it acknowledged.
    fn matched_by_followers(&self) -> Vec<Matched> {
        if self.raw.raft.state != StateRole::Leader {
            return Vec::new();
        }
        let others = self.raw.raft.prs().iter().filter(|(id, _)| **id != self.raw.raft.id);
        others.map(|(id, progress)| Matched { peer: *id, index: progress.matched }).collect()
    }

    /// Old entries from the log, as asked by [`Turn::fetch`]; none: the log no longer has them.
    pub fn fetched(&mut self, ticket: u64, entries: Vec<Entry>) {
        for context in self.raw.mut_store().answer(ticket, &entries) {
            self.call(|raw| raw.on_entries_fetched(context));
        }
        self.raw.mut_store().forget_answer();
    }

    /// Messages to `peer` may be lost.
    pub fn unreachable(&mut self, peer: u64) {
        self.again.lost(peer);
        self.fits.lost(peer);
        if self.raw.raft.lead_transferee == Some(peer) {
            // It may never have been told to lead; nothing is proposed while it is waited for.
            self.raw.raft.abort_leader_transfer();
        }
        self.call(|raw| raw.report_unreachable(peer));
    }

    /// Lets go of applied entries beyond `bytes` of cached ones; the log on disk has them.
    pub fn shrink_cache(&mut self, bytes: u64) {
        self.raw.mut_store().shrink(bytes);
    }

    /// The log on disk begins at `below`, which is at most applied + 1.
    pub fn compact_cache(&mut self, below: u64) {
        self.raw.mut_store().cut(below);
    }

    /// While the state of this member is wrong, it must not lead.
    pub fn bar(&mut self, barred: bool) {
        self.barred = barred;
    }

    /// The disk hangs: follow no one, and do not campaign until a save completes.
    pub fn step_down(&mut self) {
        self.collect();
        self.blocked = !self.outstanding.is_empty();
        self.follow_nobody();
    }

    pub(crate) fn follow_nobody(&mut self) {
        self.call(|raw| {
            let term = raw.raft.term;
            raw.raft.become_follower(term, 0);
        });
    }

    pub(crate) fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }

    pub(crate) fn conf(&self) -> ConfState {
        conf_from(&self.raw.raft.prs().conf().to_conf_state())
    }

    fn soft_now(&self) -> Soft {
        let raft = &self.raw.raft;
        Soft { term: raft.term, leader: raft.leader_id, role: self.role() }
    }

    /// The term this member is in, without the rest of [`Consensus::status`].
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// The leader it knows; 0 = none.
    pub fn leader(&self) -> u64 {
        self.raw.raft.leader_id
    }

    /// Ticks since a leader was last heard or a vote was given. Of no meaning while this member
    /// leads.
    pub fn leader_silence(&self) -> u64 {
        self.raw.raft.election_elapsed as u64
    }

    /// Term, vote and commit as they are now, saved or not.
    pub fn hard(&self) -> HardState {
        let hard = self.raw.raft.hard_state();
        HardState { term: hard.term, vote: hard.vote, commit: hard.commit }
    }

    /// Number of the newest save that is not durable, handed out or not; None: all are.
    pub fn unsaved(&self) -> Option<u64> {
        self.outstanding.back().map(|save| save.number)
    }

    /// The commit index it knows.
    pub fn commit(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    pub fn status(&self) -> Status {
        let raft = &self.raw.raft;
        let unsaved = self.first_unsaved();
        Status {
            id: self.config.id,
            term: raft.term,
            vote: raft.vote,
            commit: raft.raft_log.committed,
            applied: self.applied,
            last: raft.raft_log.last_index(),
            persisted: raft.raft_log.persisted.min(unsaved.map_or(u64::MAX, |first| first - 1)),
            leader: raft.leader_id,
            role: self.role(),
            transferee: raft.lead_transferee.unwrap_or(0),
            followers: self.followers(),
            conf: self.conf(),
            installing: self.held.is_some(),
        }
    }

    fn followers(&self) -> Vec<Follower> {
        if self.role() != Role::Leader {
            return Vec::new();
        }
        let conf = self.conf();
        let mut ids = [&conf.voters[..], &conf.learners[..]].concat();
        ids.sort_unstable();
        ids.retain(|id| *id != self.config.id);
        let follower = |id: u64| {
            let progress = self.raw.raft.prs().get(id)?;
            let feeding = match progress.state {
                ProgressState::Probe => Feeding::Probe,
                ProgressState::Replicate => Feeding::Replicate,
                ProgressState::Snapshot => Feeding::Snapshot,
            };
            Some(Follower {
                id,
                matched: progress.matched,
                next: progress.next_idx,
                feeding,
                recent_active: progress.recent_active,
                learner: conf.learners.contains(&id),
            })
        };
        ids.into_iter().filter_map(follower).collect()
    }
}

fn raw_node(config: &Config, applied: u64, cache: LogCache) -> RawNode<LogCache> {
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&crate_config(config, applied), cache, &logger)
        .unwrap_or_else(|error| panic!("consensus settings: {error}"))
}

fn crate_config(config: &Config, applied: u64) -> raft::Config {
    assert!(config.heartbeat_ticks < config.election_ticks);
    raft::Config {
        id: config.id,
        election_tick: config.election_ticks as usize,
        heartbeat_tick: config.heartbeat_ticks as usize,
        applied,
        max_size_per_msg: config.max_message_bytes,
        max_inflight_msgs: MAX_INFLIGHT,
        check_quorum: true,
        pre_vote: true,
        batch_append: true,
        max_uncommitted_size: config.max_uncommitted_bytes,
        ..raft::Config::default()
    }
}

/// In `election_ticks..2 * election_ticks`, spread by a mixing function (splitmix64).
fn election_timeout(config: &Config, term: u64, campaigns: u64) -> usize {
    let mut x = config.seed;
    for part in [config.id, term, campaigns] {
        x = (x ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    let ticks = u64::from(config.election_ticks);
    (ticks + x % ticks) as usize
}

/// The crate batches appends to one follower without looking at sizes: cut them again.
fn split(mut m: eraftpb::Message, max_bytes: u64, out: &mut Vec<Message>) {
    // A follower far behind may be sent its whole backlog in one message: each entry moves once.
    let mut entries = m.take_entries().into_iter().peekable();
    loop {
        let (mut bytes, mut fits) = (0, Vec::new());
        while let Some(entry) = entries.peek() {
            bytes += entry.data.len() as u64;
            if bytes > max_bytes && !fits.is_empty() {
                break;
            }
            fits.extend(entries.next());
        }
        let mut part = m.clone();
        if let Some(last) = fits.last() {
            (m.index, m.log_term) = (last.index, last.term);
        }
        part.set_entries(fits.into());
        out.push(Message(part));
        if entries.peek().is_none() {
            return;
        }
    }
}
