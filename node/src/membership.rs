//! Membership: members that come, go, get a vote or move, one change at a time.
//!
//! Any member takes a change and hands it to the leader. The leader decides what depends on who is
//! alive (etcd's strict reconfiguration), and proposes one change when the one before it is
//! applied. What depends on the members alone is decided again in apply (`store::check_conf`). A
//! change is sent in one term only, as commands are (see `gate`): when an entry of a later term is
//! applied and the change was not, it never will be, and it is sent again under a new number.

use crate::config::{Config, TICK_MS};
use crate::frame::{Caller, Frame, Unchanged};
use crate::ground::{Ground, Willing, kind_of};
use crate::io::*;
use crate::jobs::Task;
use bytes::Bytes;
use consensus::ConfChange;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::command::{Malformed, MemberChangeKind, Origin};
use store::{Applied, Error, Member, MemberChange};

/// A voter counts as connected when it was heard without a gap for so long (etcd's health
/// interval). Ticks.
const HEALTHY: u64 = 5_000 / TICK_MS;
/// Changes of this member's clients that wait at once.
const MOST: usize = 64;
/// Changes that wait on a leader for their turn.
const MOST_WAITING: usize = 256;
/// Changes of other members' clients that a leader remembers to have dealt with in its term: said
/// again, they are known.
const MOST_SEEN: usize = 1_024;
/// Most peer URLs of a member, and the bytes of a change: what is longer nobody means.
const MOST_URLS: usize = 32;
const MOST_BYTES: usize = 16 << 10;
/// A learner is in step when it has so many hundredths of the leader's log (as etcd has it).
const IN_STEP: u64 = 90;

/// What a client is told.
fn refusal(why: Unchanged) -> Refusal {
    match why {
        Unchanged::NotLeader => Refusal::NotLeader,
        Unchanged::NotEnoughStarted => Refusal::NotEnoughStarted,
        Unchanged::Unhealthy => Refusal::Unhealthy,
        Unchanged::LearnerNotReady => Refusal::LearnerNotReady,
        Unchanged::TooManyLearners => Refusal::TooManyLearners,
        Unchanged::TooMany => Refusal::TooManyRequests,
        Unchanged::Exists => Refusal::User(Error::MemberExist),
        Unchanged::UrlExists => Refusal::User(Error::PeerUrlExist),
        Unchanged::NotFound => Refusal::User(Error::MemberNotFound),
        Unchanged::NotLearner => Refusal::User(Error::MemberNotLearner),
    }
}

/// What the members say against the change.
fn by_state(error: Error) -> Unchanged {
    match error {
        Error::MemberExist => Unchanged::Exists,
        Error::PeerUrlExist => Unchanged::UrlExists,
        Error::MemberNotLearner => Unchanged::NotLearner,
        _ => Unchanged::NotFound,
    }
}

/// A change of a client of this member.
struct Asked {
    waiter: Waiter,
    change: MemberChange,
    sent: Option<Sent>,
}

/// It was handed to the leader of `term`, or proposed in it.
#[derive(Clone, Copy)]
struct Sent {
    term: u64,
    seq: u64,
}

/// A change that the leader is to propose.
struct Proposal {
    origin: Origin,
    change: MemberChange,
}

/// Since when a member was heard without a gap, and when last. Ticks.
#[derive(Clone, Copy)]
struct Heard {
    since: u64,
    last: u64,
}

/// This member does not belong to the cluster any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// Since this tick. The others are told of it before it ends.
    Since(u64),
    Said,
}

#[derive(Default)]
pub(crate) struct Membership {
    asked: Vec<Asked>,
    next_seq: u64,
    /// Leader: in the order in which they came.
    proposals: VecDeque<Proposal>,
    /// Leader: changes that it knows in this term, and why it refused those that it did.
    seen: BTreeMap<(u64, u64, u64), Option<Unchanged>>,
    /// Those of them that are dealt with, the oldest first.
    dealt: VecDeque<(u64, u64, u64)>,
    seen_in: u64,
    heard: BTreeMap<u64, Heard>,
    /// Since when this member leads. Ticks.
    led_since: u64,
    /// Since when it hands over because it is to be removed. Ticks.
    leaves_since: Option<u64>,
    gone: Option<Gone>,
    /// Voters that say that this member was removed.
    told_by: BTreeSet<u64>,
    /// Removed, and still named as a member until this tick: what was said to them is on its way.
    leaving: BTreeMap<u64, Leaving>,
    /// Who votes as the files beside the log, or the flags of the founding, say it.
    voters: Vec<u64>,
}

struct Leaving {
    member: Member,
    until: u64,
}

impl Membership {
    /// `voters`: as the files beside the log say it.
    pub(crate) fn new(config: &Config, voters: Option<Vec<u64>>) -> Membership {
        let founders = || {
            let mut founders: Vec<u64> = config.founders.iter().map(|member| member.id).collect();
            founders.sort_unstable();
            founders
        };
        Membership { voters: voters.unwrap_or_else(founders), ..Membership::default() }
    }

    /// The checkpoints may be lost with the membership of today, and the flags know that of the
    /// founding alone.
    fn remember(&mut self, g: &mut Ground) {
        let now = &g.store.conf().voters;
        if g.consensus.voters_lost() {
            // They are of an earlier time, and what stands there is not.
            return;
        }
        if !now.is_empty() && *now != self.voters {
            self.voters.clone_from(now);
            g.start(Task::Remember, BackgroundJob::Remember(Remembered::Voters(self.voters.clone())));
        }
    }

    /// At start, and when another state is in place: who belongs to the cluster.
    pub(crate) fn tell(&mut self, g: &mut Ground) {
        let (mut members, mut removed) = (g.members(), g.store.removed().clone());
        if removed.contains(&g.config.member) && self.gone.is_none() {
            self.gone = Some(Gone::Since(g.now));
            g.note(Level::Warn, "this member was removed from the cluster: it ends".to_string());
        }
        for (id, leaving) in &self.leaving {
            removed.remove(id);
            members.push((leaving.member.clone(), true));
        }
        members.sort_by_key(|(member, _)| member.id);
        g.push(Output::Members { members, removed });
        self.remember(g);
    }

    /// No client is served any more: this member was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// A frame of this member came.
    pub(crate) fn heard(&mut self, g: &Ground, from: u64) {
        let gap = g.config.election_ticks();
        let heard = self.heard.entry(from).or_insert(Heard { since: g.now, last: g.now });
        if g.now - heard.last > gap {
            heard.since = g.now;
        }
        heard.last = g.now;
    }

    pub(crate) fn ask(&mut self, g: &mut Ground, waiter: Waiter, change: MemberChange, willing: Willing) {
        let refusal = match () {
            () if willing.stopping || self.is_gone() => Some(Refusal::Stopped),
            () if self.asked.len() >= MOST => Some(Refusal::TooManyRequests),
            () => None,
        };
        match refusal {
            Some(refusal) => g.refuse(waiter, refusal),
            None => self.asked.push(Asked { waiter, change, sent: None }),
        }
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let Some(at) = self.asked.iter().position(|asked| asked.waiter == waiter) else { return false };
        let asked = self.asked.remove(at);
        let (member, boot) = (g.config.member, g.config.boot);
        if let Some(Sent { seq, .. }) = asked.sent {
            self.proposals.retain(|proposal| proposal.origin != Origin { member, boot, seq });
        }
        if timed_out {
            let refusal = match asked.sent {
                Some(sent) if sent.term < g.term => Refusal::TimeoutLeaderFail,
                _ => Refusal::Timeout,
            };
            g.refuse(waiter, refusal);
        }
        true
    }

    /// Hands over, or proposes, what can be.
    pub(crate) fn submit(&mut self, g: &mut Ground, willing: Willing) {
        let settled = (g.consensus.term(), g.consensus.leader()) == (g.term, g.leader);
        if g.leader == 0 || !settled || willing.holds_commands {
            return;
        }
        self.new_term(g);
        let (member, boot) = (g.config.member, g.config.boot);
        for asked in self.asked.iter_mut().filter(|asked| asked.sent.is_none()) {
            self.next_seq += 1;
            let seq = self.next_seq;
            asked.sent = Some(Sent { term: g.term, seq });
            if g.is_leader() {
                let origin = Origin { member, boot, seq };
                self.proposals.push_back(Proposal { origin, change: asked.change.clone() });
            } else {
                let change = asked.change.encode();
                g.send(g.leader, Frame::ChangeMember { term: g.term, boot, token: seq, change });
            }
        }
        self.propose(g);
    }

    /// What is known of a term ends with it. What this member led and did not propose its asker
    /// sends again.
    fn new_term(&mut self, g: &Ground) {
        if self.seen_in != g.term {
            self.seen_in = g.term;
            self.seen.clear();
            self.dealt.clear();
            self.proposals.clear();
        }
    }

    fn propose(&mut self, g: &mut Ground) {
        while let Some(proposal) = self.proposals.pop_front() {
            let origin = proposal.origin;
            let result = match g.is_leader() {
                true => self.try_propose(g, &proposal),
                false => Err(Some(Unchanged::NotLeader)),
            };
            match result {
                Ok(()) => self.deal(g, origin, None),
                Err(Some(why)) => self.unchanged(g, origin, why),
                // The one before it is not applied yet.
                Err(None) => return self.proposals.push_front(proposal),
            }
        }
    }

    /// None: it must wait.
    fn try_propose(&mut self, g: &mut Ground, proposal: &Proposal) -> Result<(), Option<Unchanged>> {
        if g.consensus.change_pending() {
            // What is decided here is decided on the members as they are.
            return Err(None);
        }
        self.allowed(g, &proposal.change).map_err(Some)?;
        if self.hands_over_first(g, &proposal.change) {
            return Err(None);
        }
        let context = MemberChange { origin: Some(proposal.origin), ..proposal.change.clone() }.encode();
        let change = ConfChange { kind: kind_of(proposal.change.kind), member: proposal.change.member.id, context };
        match g.consensus.propose_change(&change) {
            Ok(()) => Ok(()),
            Err(consensus::Refused::BadChange) => Err(Some(Unchanged::NotEnoughStarted)),
            Err(consensus::Refused::NotLeader) => Err(Some(Unchanged::NotLeader)),
            Err(_) => Err(None),
        }
    }

    /// A leader that is to go lets another one remove it, so that nobody waits for an election. If
    /// none takes over in an election timeout, it removes itself.
    fn hands_over_first(&mut self, g: &mut Ground, change: &MemberChange) -> bool {
        let leaves = change.kind == MemberChangeKind::Remove && change.member.id == g.config.member;
        let Some(successor) = g.successor().filter(|_| leaves) else { return false };
        let since = *self.leaves_since.get_or_insert(g.now);
        if g.now >= since + g.config.election_ticks() {
            return false;
        }
        let _ = g.consensus.transfer(successor);
        true
    }

    /// etcd's checks, in its order.
    fn allowed(&self, g: &Ground, change: &MemberChange) -> Result<(), Unchanged> {
        let id = change.member.id;
        let strict = g.config.strict_reconfig;
        match change.kind {
            MemberChangeKind::AddVoter if strict => {
                ready_to_add(g)?;
                self.connected_with_one_more(g)?;
            }
            MemberChangeKind::AddLearner if strict => self.connected_with_one_more(g)?,
            MemberChangeKind::Promote => {
                in_step(g, id)?;
                if strict {
                    ready_to_promote(g)?;
                }
            }
            MemberChangeKind::Remove if strict && !g.store.is_learner(id) => {
                ready_to_remove(g, id)?;
                self.connected_without(g, id)?;
            }
            _ => {}
        }
        g.store.check_conf(change).map_err(by_state)?;
        if change.kind == MemberChangeKind::AddLearner && g.store.conf().learners.len() >= g.config.max_learners {
            return Err(Unchanged::TooManyLearners);
        }
        Ok(())
    }

    fn is_connected(&self, g: &Ground, id: u64) -> bool {
        if id == g.config.member {
            return true;
        }
        let Some(heard) = self.heard.get(&id) else { return false };
        let now = g.now - heard.last <= g.config.election_ticks();
        // A new leader has not heard them for long: that they answer must do.
        let long = heard.since + HEALTHY <= g.now || self.led_since + HEALTHY > g.now;
        now && long
    }

    /// Enough of the voters are connected for a quorum with one more that is not. A learner counts
    /// as well, as etcd has it: it is to be a voter. A lone voter may always get a second one.
    fn connected_with_one_more(&self, g: &Ground) -> Result<(), Unchanged> {
        let voters = &g.store.conf().voters;
        let connected = voters.iter().filter(|id| self.is_connected(g, **id)).count();
        let enough = voters.len() <= 1 || connected > voters.len().div_ceil(2);
        if enough { Ok(()) } else { Err(Unchanged::Unhealthy) }
    }

    /// Enough of the voters stay connected without this one. One that is down may always go.
    fn connected_without(&self, g: &Ground, id: u64) -> Result<(), Unchanged> {
        let down = id != g.config.member
            && self.heard.get(&id).is_none_or(|heard| g.now - heard.last > g.config.election_ticks());
        if down {
            return Ok(());
        }
        let voters = &g.store.conf().voters;
        let connected = voters.iter().filter(|voter| self.is_connected(g, **voter)).count();
        // (n - 1) / 2 + 1 of the n - 1 that are left.
        if connected.saturating_sub(1) < 1 + (voters.len().saturating_sub(1)) / 2 {
            return Err(Unchanged::Unhealthy);
        }
        Ok(())
    }

    /// The leader does not propose it: whoever asked is told.
    fn unchanged(&mut self, g: &mut Ground, origin: Origin, why: Unchanged) {
        let Origin { member, boot, seq } = origin;
        self.leaves_since = None;
        if (member, boot) == (g.config.member, g.config.boot) {
            return self.refused(g, seq, why);
        }
        self.deal(g, origin, Some(why));
        g.send(member, Frame::MemberUnchanged { boot, token: seq, why });
    }

    /// A change of another member's client was proposed, or refused: it is remembered for a while.
    fn deal(&mut self, g: &Ground, origin: Origin, why: Option<Unchanged>) {
        let Origin { member, boot, seq } = origin;
        if (member, boot) == (g.config.member, g.config.boot) {
            return;
        }
        self.seen.insert((member, boot, seq), why);
        self.dealt.push_back((member, boot, seq));
        if self.dealt.len() > MOST_SEEN {
            let oldest = self.dealt.pop_front().expect("it holds some");
            self.seen.remove(&oldest);
        }
    }

    /// Of this member's clients.
    fn refused(&mut self, g: &mut Ground, seq: u64, why: Unchanged) {
        let Some(at) = self.asked.iter().position(|asked| asked.sent.is_some_and(|sent| sent.seq == seq)) else {
            return;
        };
        if why == Unchanged::NotLeader {
            // The fence decides when it is sent again.
            return;
        }
        let asked = self.asked.remove(at);
        g.refuse(asked.waiter, refusal(why));
    }

    /// Leader: a change of another member's client.
    pub(crate) fn on_change(
        &mut self,
        g: &mut Ground,
        from: Caller,
        term: u64,
        change: &Bytes,
        willing: Willing,
    ) -> Result<(), Malformed> {
        if change.len() > MOST_BYTES {
            return Err(Malformed::new("a membership change of too many bytes"));
        }
        let change = MemberChange::decode(change)?;
        if change.member.peer_urls.len() > MOST_URLS {
            return Err(Malformed::new("a member of too many URLs"));
        }
        let Caller { member, boot, token } = from;
        self.new_term(g);
        let leads = g.is_leader() && g.term == term && !willing.holds_commands;
        let known = (member, boot, token);
        let origin = Origin { member, boot, seq: token };
        match self.seen.get(&known) {
            _ if !leads => {}
            Some(Some(why)) => {
                let why = *why;
                g.send(member, Frame::MemberUnchanged { boot, token, why });
            }
            Some(None) => {}
            None if self.proposals.len() >= MOST_WAITING => {
                g.send(member, Frame::MemberUnchanged { boot, token, why: Unchanged::TooMany });
            }
            None => {
                self.seen.insert(known, None);
                self.proposals.push_back(Proposal { origin, change });
            }
        }
        Ok(())
    }

    /// The leader did not propose a change of this life of this member.
    pub(crate) fn on_unchanged(&mut self, g: &mut Ground, boot: u64, token: u64, why: Unchanged) {
        if boot == g.config.boot {
            self.refused(g, token, why);
        }
    }

    /// An entry of `term` was applied: changes of earlier terms that are not in the log never will
    /// be.
    pub(crate) fn fence(&mut self, term: u64) {
        for asked in &mut self.asked {
            asked.sent = asked.sent.filter(|sent| sent.term >= term);
        }
    }

    /// Frames may be lost: what was handed over is said again once in an election timeout. The
    /// leader knows it by its number.
    pub(crate) fn tick(&mut self, g: &mut Ground) {
        self.remember(g);
        let before = self.leaving.len();
        self.leaving.retain(|_, leaving| leaving.until > g.now);
        if self.leaving.len() != before {
            self.tell(g);
        }
        if let Some(Gone::Since(since)) = self.gone
            && g.now >= since + g.config.election_ticks()
        {
            self.gone = Some(Gone::Said);
            return g.removed();
        }
        if g.is_leader() || g.leader == 0 || !g.now.is_multiple_of(g.config.election_ticks()) {
            return;
        }
        let boot = g.config.boot;
        for asked in &self.asked {
            if let Some(Sent { term, seq }) = asked.sent.filter(|sent| sent.term == g.term) {
                g.send(g.leader, Frame::ChangeMember { term, boot, token: seq, change: asked.change.encode() });
            }
        }
    }

    pub(crate) fn leader_changed(&mut self, g: &Ground) {
        self.leaves_since = None;
        if g.is_leader() {
            self.led_since = g.now;
        }
    }

    /// A membership entry was applied here.
    pub(crate) fn applied(&mut self, g: &mut Ground, changed: Applied, gone: Option<Member>) {
        if let Some(member) = gone.filter(|member| member.id != g.config.member) {
            let until = g.now + 2 * g.config.heartbeat_ms / TICK_MS;
            self.leaving.insert(member.id, Leaving { member, until });
        }
        if changed.result.is_ok() {
            self.tell(g);
        }
        let Some(origin) = changed.origin else { return };
        if (origin.member, origin.boot) != (g.config.member, g.config.boot) {
            return;
        }
        let ours = |asked: &Asked| asked.sent.is_some_and(|sent| sent.seq == origin.seq);
        let Some(at) = self.asked.iter().position(ours) else { return };
        let asked = self.asked.remove(at);
        match changed.result {
            Ok(_) => g.answer_members(asked.waiter),
            Err(error) => g.refuse(asked.waiter, Refusal::User(error)),
        }
    }

    /// A snapshot replaced the state: nobody can tell which of the changes sent are in it.
    pub(crate) fn replaced(&mut self, g: &mut Ground) {
        for asked in self.asked.extract_if(.., |asked| asked.sent.is_some()) {
            g.refuse(asked.waiter, Refusal::TimeoutLeaderFail);
        }
        self.tell(g);
    }

    /// Another member of this cluster says that this one was removed. It is believed when more than
    /// half of the other voters say so, as far as this one knows them: a single one may lie, and
    /// one that was removed harms nobody while it waits.
    pub(crate) fn told_gone(&mut self, g: &mut Ground, by: u64) {
        let ours = g.config.member;
        let voters: Vec<u64> = match g.store.conf().voters.is_empty() {
            // A joiner knows who there is, and not who votes.
            true => g.store.members().map(|member| member.id).collect(),
            false => g.store.conf().voters.clone(),
        };
        let others = voters.iter().filter(|id| **id != ours).count();
        if g.is_apart(by) || !voters.contains(&by) || by == ours || self.gone == Some(Gone::Said) {
            return;
        }
        if self.told_by.insert(by) {
            let text = format!("member {by:x} says that this member was removed from the cluster");
            g.note(Level::Error, text);
        }
        if self.told_by.len() * 2 <= others {
            return;
        }
        self.gone = Some(Gone::Said);
        g.removed();
    }
}

/// A voter has started once it has told its name.
fn started(g: &Ground, without: u64) -> usize {
    let has_name = |id: &u64| g.store.member(*id).is_some_and(|member| !member.name.is_empty());
    g.store.conf().voters.iter().filter(|id| **id != without && has_name(id)).count()
}

/// `started` of `members` voters are enough for a quorum.
fn enough(started: usize, members: usize) -> Result<(), Unchanged> {
    if started > members / 2 { Ok(()) } else { Err(Unchanged::NotEnoughStarted) }
}

fn ready_to_add(g: &Ground) -> Result<(), Unchanged> {
    let (started, members) = (started(g, 0), g.store.conf().voters.len() + 1);
    // A lone member may always get a second one.
    if started == 1 && members == 2 { Ok(()) } else { enough(started, members) }
}

/// The learner counts as started, as etcd counts it.
fn ready_to_promote(g: &Ground) -> Result<(), Unchanged> {
    enough(started(g, 0) + 1, g.store.conf().voters.len() + 1)
}

fn ready_to_remove(g: &Ground, id: u64) -> Result<(), Unchanged> {
    let members = g.store.conf().voters.iter().filter(|voter| **voter != id).count();
    enough(started(g, id), members)
}

/// The member has nearly all of the leader's log.
fn in_step(g: &Ground, id: u64) -> Result<(), Unchanged> {
    let status = g.consensus.status();
    let matched = match status.followers.iter().find(|follower| follower.id == id) {
        Some(follower) => follower.matched,
        None if id == g.config.member => status.last,
        None => return Err(Unchanged::NotFound),
    };
    let in_step = u128::from(matched) * 100 >= u128::from(status.last) * u128::from(IN_STEP);
    if in_step { Ok(()) } else { Err(Unchanged::LearnerNotReady) }
}
