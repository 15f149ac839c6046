//! The follower's side of a snapshot, and the leader's bookkeeping of one.
//!
//! A leader's snapshot message is held back while its files are transferred. Until the driver says
//! `installed` or `abandon_install` the commit index stands still: appends are dropped (dropping is
//! always safe) and commit indexes stripped, since the files are about to replace the state, and
//! the crate must never be given a snapshot at or below its commit index.

use crate::consensus::Consensus;
use crate::message::{snapshot_from, snapshot_into};
use crate::{Message, Role, Snapshot};
use raft::SnapshotStatus;
use raft::eraftpb::{self, MessageType};

impl Consensus {
    /// A leader's snapshot message.
    pub(crate) fn step_snapshot(&mut self, message: Message) {
        let m = message.0;
        // The sender leads: that much is heard at once.
        self.hear_leader_only(&m);
        let raft = &self.raw.raft;
        if raft.term != m.term || self.role() != Role::Follower {
            return;
        }
        let snapshot = snapshot_from(m.get_snapshot());
        let committed = raft.raft_log.committed;
        if snapshot.index <= committed {
            // The leader waits for a sign that the snapshot is not needed. Everything up to the
            // commit index is in our log, and durable once the newest save is. No more is claimed
            // than was compared.
            let known = !self.ends_below_log(m.from, snapshot.position());
            if known && !self.contradicts_committed(m.from, std::iter::once(snapshot.position())) {
                self.acknowledge(m.from, snapshot.index);
            }
        } else if raft.raft_log.match_term(snapshot.index, snapshot.term) {
            // Our log holds all of it: the crate only moves its commit index.
            if self.held.is_none() {
                self.call(|raw| raw.step(m).unwrap_or_default());
            }
        } else if snapshot.conf.contains(self.config.id) {
            self.held = Some((m.from, snapshot.clone()));
            self.out.install = Some((m.from, snapshot));
        }
    }

    fn acknowledge(&mut self, to: u64, index: u64) {
        let mut m = eraftpb::Message::default();
        m.set_msg_type(MessageType::MsgAppendResponse);
        (m.from, m.to, m.term) = (self.config.id, to, self.raw.raft.term);
        (m.index, m.commit) = (index, index);
        // Entries not yet in any save must come first.
        self.collect();
        self.route(vec![m]);
    }

    /// Commit indexes that may not move ours while a snapshot is held.
    pub(crate) fn strip_commit(&self, m: &mut eraftpb::Message) {
        if self.held.is_some() {
            m.commit = m.commit.min(self.raw.raft.raft_log.committed);
            m.commit_term = 0;
        }
    }

    /// The snapshot's files are durable, the state is replaced, and the log restarts at its index,
    /// all of it durable. Also forgets every entry that was handed out before.
    ///
    /// # Panics
    /// If the commit index has reached the snapshot, or saves with entries are outstanding: the
    /// driver installed something that [`crate::Turn::install`] had not asked for.
    pub fn installed(&mut self, snapshot: &Snapshot) {
        self.collect();
        let (from, _) = self.held.take().expect("only a held snapshot can be installed");
        assert!(snapshot.index > self.raw.raft.raft_log.committed, "install would go backwards");
        assert!(self.saves_hold_no_entries(), "entries of the old log are still being saved");
        assert_eq!(self.role(), Role::Follower, "no campaign while a snapshot is held");
        let mut m = eraftpb::Message::default();
        m.set_msg_type(MessageType::MsgSnapshot);
        m.to = self.config.id;
        m.term = self.raw.raft.term;
        // Its leader may be gone; then the answer goes nowhere.
        m.from = if self.raw.raft.leader_id == from { from } else { self.raw.raft.leader_id };
        m.set_snapshot(snapshot_into(snapshot));
        self.call(|raw| raw.step(m).unwrap_or_default());
        let restored = self.raw.snap().map(|snap| snap.get_metadata().index);
        assert_eq!(restored, Some(snapshot.index), "the crate refused an installed snapshot");
        self.collect_one(Some(snapshot.position()));
        self.collect();
        // It may have been offered again since the last turn.
        self.out.install = None;
        // So may a vote have been cast, beside the commit index of before.
        for save in &mut self.saves {
            save.hard.commit = save.hard.commit.max(snapshot.index);
        }
        self.look_at_doubt();
    }

    /// The transfer failed: appends are taken again, and the leader may offer a snapshot anew.
    pub fn abandon_install(&mut self) {
        self.held = None;
        self.out.install = None;
    }

    /// The index below the first entry of the log.
    pub fn log_begins_behind(&self) -> u64 {
        self.raw.raft.raft_log.store.boundary()
    }

    /// Leader: the newest checkpoint, for followers behind the log.
    pub fn offer_snapshot(&mut self, snapshot: Snapshot) {
        assert!(snapshot.index > 0 && snapshot.index <= self.applied);
        self.raw.mut_store().offer(snapshot);
    }

    /// What was offered is of no use: no follower gets it any more.
    pub fn withdraw_snapshot(&mut self) {
        self.raw.mut_store().withdraw();
    }

    /// Leader: the transfer to `to` ended; without success it is offered again.
    pub fn snapshot_sent(&mut self, to: u64, ok: bool) {
        let status = if ok { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.call(|raw| raw.report_snapshot(to, status));
    }
}
