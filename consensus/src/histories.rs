//! What shows that members have two histories, and what a member does that has seen it.
//!
//! Members lose what they had acknowledged, or forget a vote (an older copy of a disk, an emptied
//! one), and a second history is written beside the first. Three things show it to a member:
//!
//! - a leader's entry or snapshot is another than what is committed in its place here;
//! - a leader goes on to search below the log here, although it was told how far this log is
//!   committed: its own log ends before;
//! - two members lead one term.
//!
//! Nobody can tell which history is the right one. Whoever has seen it takes nothing more of any
//! leader, answers none, gives no vote and does not stand for election.

use crate::check::Suspicions;
use crate::consensus::Consensus;
use crate::types::Leadership;
use crate::{Contradiction, Message, Position, Role};
use raft::ProgressState;
use raft::eraftpb::{self, MessageType};

/// What was seen of leaders.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    /// There are two histories: this member takes nothing more.
    contradicted: bool,
    /// Who was last heard to lead. Unlike the crate's, it is kept when that leader falls silent.
    led: Leadership,
    /// Leaders whose appends end below the log here.
    below: Suspicions,
}

impl Histories {
    pub(crate) fn contradicted(&self) -> bool {
        self.contradicted
    }

    /// `leader`: 0 if none is known.
    pub(crate) fn remember_leader(&mut self, term: u64, leader: u64) {
        if leader != 0 && term > self.led.term {
            self.led = Leadership { term, leader };
        }
    }

    pub(crate) fn tick(&mut self) {
        self.below.tick();
    }

    /// The term, or who leads it, changed.
    pub(crate) fn leader_changed(&mut self) {
        self.below.clear();
    }
}

impl Consensus {
    /// That there are two histories was seen in an earlier life.
    pub fn take_nothing(&mut self) {
        self.histories.contradicted = true;
    }

    /// Whether the leader's state at this position is another than what is committed here. If it
    /// is, that is told as of an append.
    pub fn contradicts_state(&mut self, leader: u64, at: Position) -> bool {
        self.contradicts_committed(leader, std::iter::once(at))
    }

    fn found(&mut self, found: Contradiction) {
        self.histories.contradicted = true;
        self.out.contradicted = Some(found);
        if self.role() != Role::Follower {
            self.follow_nobody();
        }
    }

    /// `message` is a leader's. True: another member leads the same term, and nothing of it is
    /// taken.
    pub(crate) fn hears_second_leader(&mut self, message: &Message) -> bool {
        let led = self.histories.led;
        let (term, from) = (message.term(), message.from());
        let second = message.is_from_leader() && term == led.term && led.leader != from;
        if second && !self.histories.contradicted {
            self.found(Contradiction::Leaders { term, leaders: [led.leader, from] });
        }
        second
    }

    /// Whether one of these entries of the leader is another than what is committed in its place
    /// here.
    pub(crate) fn contradicts_committed(&mut self, leader: u64, known: impl Iterator<Item = Position>) -> bool {
        let log = &self.raw.raft.raft_log;
        // Ascending: of an append that begins behind the commit index the first one is looked at.
        let mut committed = known.skip_while(|at| at.index == 0).take_while(|at| at.index <= log.committed);
        let found = committed.find_map(|at| {
            // 0 for an entry that the log no longer has.
            let term = log.term(at.index).ok().filter(|term| *term > 0)?;
            let ours = Position { index: at.index, term };
            (term != at.term).then_some(Contradiction::Entry { leader, ours, theirs: at.term })
        });
        if let Some(found) = found {
            self.found(found);
        }
        found.is_some()
    }

    /// What `leader` sent ends at `theirs`. True: that is below the log here, so nothing can be
    /// compared and nothing is acknowledged. The leader hears from where on it can
    /// ([`Consensus::begin_at_commit`]). If it goes on below, it has nothing from there on.
    pub(crate) fn ends_below_log(&mut self, leader: u64, theirs: Position) -> bool {
        if theirs.index >= self.log_begins_behind() {
            self.histories.below.accepted(leader);
            return false;
        }
        let span = 2 * u64::from(self.config.election_ticks);
        if self.histories.below.contradicted(leader, span) {
            let index = self.log_begins_behind();
            let ours = Position { index, term: self.raw.raft.raft_log.term(index).unwrap_or(0) };
            self.found(Contradiction::Below { leader, ours, theirs });
        }
        true
    }

    /// As [`Consensus::hear_leader_only`], and nothing is answered: to each answer the leader would
    /// send the same append again.
    pub(crate) fn hear_leader_silently(&mut self, m: &eraftpb::Message) {
        let sent = self.raw.raft.msgs.len();
        self.hear_leader_only(m);
        self.raw.raft.msgs.truncate(sent);
    }

    /// The sender of this message leads, and no more of it is taken.
    pub(crate) fn hear_leader_only(&mut self, m: &eraftpb::Message) {
        let mut heartbeat = eraftpb::Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.from, heartbeat.to, heartbeat.term) = (m.from, m.to, m.term);
        self.call(|raw| raw.step(heartbeat).unwrap_or_default());
    }

    /// Leader: a follower says how far its log is committed. The search for the place where the
    /// logs agree does not go on below: the follower may have cut its log there, and then it can
    /// compare nothing.
    pub(crate) fn begin_at_commit(&mut self, m: &eraftpb::Message) {
        if self.role() != Role::Leader || m.term != self.raw.raft.term {
            return;
        }
        let raft = &mut self.raw.raft;
        let commit = m.commit.min(raft.raft_log.last_index());
        let Some(pr) = raft.mut_prs().get_mut(m.from) else { return };
        let found = match pr.state {
            ProgressState::Probe => pr.next_idx <= commit,
            ProgressState::Snapshot => pr.pending_snapshot <= commit,
            ProgressState::Replicate => false,
        };
        if found {
            // A snapshot is not needed either.
            pr.pending_snapshot = 0;
            pr.become_probe();
            pr.next_idx = commit + 1;
            self.again.lost(m.from);
        }
    }
}
