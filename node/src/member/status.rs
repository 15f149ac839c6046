//! The member's figures, and the alarms that it shows.

use super::Node;
use crate::io::{Followed, Held, Status};
use consensus::Follower;
use store::AlarmMember;

impl Node {
    /// The replicated ones, and what this member alone has to say.
    pub(super) fn alarms(&self) -> Vec<AlarmMember> {
        let (g, willing) = (&self.ground, self.health.willing());
        let mut alarms: Vec<AlarmMember> = g.store.alarms().collect();
        let corrupt = willing.corrupt || self.health.undecided(g.store.conf().voters.len());
        for (kind, raised) in [(1, willing.disk_full), (2, corrupt)] {
            let own = AlarmMember { member: g.config.member, alarm: kind };
            if raised && !alarms.contains(&own) {
                alarms.push(own);
            }
        }
        alarms.sort_by_key(|alarm| (alarm.member, alarm.alarm));
        alarms
    }

    fn held(&self) -> Held {
        let g = &self.ground;
        let forwards = self.gate.forwards();
        Held {
            entry_cache: g.consensus.cached_bytes(),
            uncommitted: g.consensus.uncommitted_bytes(),
            commands: self.gate.held(),
            txn_answers: self.answers.held(&self.ground),
            unapplied: self.applier.waiting_bytes(),
            event_ring: self.watches.ring_bytes(),
            unwritten: g.store.unwritten_bytes(),
            refused: self.gate.refused(),
            unapplied_entries: self.applier.waiting(),
            walks: self.walks.count(),
            backups: self.backups.count(),
            reads: self.reads.waiting(),
            forwards: forwards.bytes,
            forwarded: forwards.said,
            forwarded_again: forwards.said_again,
        }
    }

    /// A snapshot of the member's figures.
    pub fn status(&self) -> Status {
        let g = &self.ground;
        let consensus = g.consensus.status();
        Status {
            cluster: g.config.cluster,
            member: g.config.member,
            leader: g.leader,
            term: g.term,
            is_leader: g.is_leader(),
            is_learner: g.store.is_learner(g.config.member),
            committed: consensus.commit,
            applied: g.store.applied().index,
            last: consensus.last,
            persisted: consensus.persisted,
            revision: g.store.revision(),
            compacted: g.store.compacted(),
            keys: g.store.keys(),
            live_bytes: g.store.live_bytes(),
            disk_bytes: self.checkpoints.disk_bytes(),
            reclaimed: self.reclaim.figures(),
            quota: u64::try_from(g.config.quota_bytes).unwrap_or(0),
            leases: g.store.lease_count() as u64,
            watches: self.watches.live(),
            alarms: self.alarms(),
            doubt: g.consensus.doubt().is_some(),
            rebuilt: self.health.rebuilt(),
            disk_full: self.health.willing().disk_full,
            digest: g.store.digest(),
            cluster_version: g.store.cluster_version().to_string(),
            followers: consensus.followers.iter().map(followed).collect(),
            pending: self.gate.pending(),
            leader_changes: g.leader_changes,
            proposals_failed: self.gate.failed(),
            held: self.held(),
            scrub: self.scrubs.figures(g.now),
            mend: self.mends.figures(),
            nonsense: self.nonsense.figures(),
        }
    }
}

fn followed(follower: &Follower) -> Followed {
    Followed { member: follower.id, matched: follower.matched, active: follower.recent_active }
}
