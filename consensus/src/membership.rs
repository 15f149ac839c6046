//! Membership changes: proposed one at a time, applied when they are committed.

use crate::consensus::Consensus;
use crate::message::conf_from;
use crate::{ConfChange, ConfChangeKind, ConfState, Refused, Role};
use raft::eraftpb::{self, EntryType};

impl Consensus {
    /// Appends a membership change; the next one may follow when this one is applied.
    pub fn propose_change(&mut self, change: &ConfChange) -> Result<(), Refused> {
        if self.role() != Role::Leader {
            return Err(Refused::NotLeader);
        }
        if self.change_pending() {
            return Err(Refused::ChangePending);
        }
        if self.conf().after(change).is_none() {
            return Err(Refused::BadChange);
        }
        let mut entry = eraftpb::Entry::default();
        entry.set_entry_type(EntryType::EntryConfChange);
        entry.data = change.encode();
        self.may_propose()?;
        // Not as MsgPropose: the crate would parse the data, whose kinds have etcd's numbers, and
        // turn what it refuses into an empty entry. Its own checks were made above.
        self.call(|raw| {
            if !raw.raft.append_entry(&mut [entry]) {
                return Err(Refused::TooMany);
            }
            raw.raft.pending_conf_index = raw.raft.raft_log.last_index();
            raw.raft.bcast_append();
            Ok(())
        })
    }

    /// Of a leader: the members may be about to change, so no other change can be proposed yet.
    pub fn change_pending(&self) -> bool {
        let raft = &self.raw.raft;
        raft.has_pending_conf() || !raft.commit_to_current_term()
    }

    /// Applies the oldest unsettled config entry; returns the configuration from there on.
    ///
    /// # Panics
    /// If no config entry is unsettled, or the change is no legal step: it was checked before it
    /// was proposed, so the members' states have diverged.
    pub fn conf_applied(&mut self, change: &ConfChange) -> ConfState {
        let index = self.changes.pop_front().expect("a config entry was handed out");
        let expected = self.conf().after(change);
        let expected = expected.unwrap_or_else(|| panic!("config entry {index}: {change:?}"));
        if change.kind == ConfChangeKind::Update {
            return expected;
        }
        if change.kind == ConfChangeKind::Remove && self.role() == Role::Leader {
            // The last that it hears: that its removal is committed.
            self.call(|raw| raw.raft.bcast_append());
        }
        self.raw.mut_store().set_conf_index(index);
        let mut theirs = eraftpb::ConfChange::default();
        theirs.node_id = change.member;
        theirs.set_change_type(match change.kind {
            ConfChangeKind::AddVoter => eraftpb::ConfChangeType::AddNode,
            ConfChangeKind::AddLearner => eraftpb::ConfChangeType::AddLearnerNode,
            ConfChangeKind::Remove | ConfChangeKind::Update => eraftpb::ConfChangeType::RemoveNode,
        });
        let conf = self.call(|raw| raw.apply_conf_change(&theirs));
        let conf = conf.unwrap_or_else(|error| panic!("config entry {index}: {error}"));
        assert_eq!(conf_from(&conf), expected, "config entry {index}");
        if !expected.voters.contains(&self.config.id) && self.role() == Role::Leader {
            self.leave_office();
        }
        expected
    }

    /// The crate cannot lead without being a voter: it tells everyone the commit index of its
    /// removal and steps down.
    fn leave_office(&mut self) {
        self.call(|raw| {
            raw.raft.bcast_append();
            let term = raw.raft.term;
            raw.raft.become_follower(term, 0);
        });
    }

    /// The store refused the oldest unsettled config entry: nothing changes.
    pub fn conf_refused(&mut self) {
        self.changes.pop_front().expect("a config entry was handed out");
    }
}
