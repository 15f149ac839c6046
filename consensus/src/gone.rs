//! The process of the leader is gone: its port refuses connections. Nobody waits for an election
//! timeout then.
//!
//! Each follower that sees it forgets the leader, so that it grants pre-votes. The others stand for
//! election one behind the other, each with time for the one before it. A leader that lives refuses
//! no connection, and its other followers have not forgotten it: they grant nothing.

use crate::Role;
use crate::consensus::Consensus;

/// Of an election timeout: between two members that stand, at least [`LEAST`] ticks.
const STEPS: u64 = 20;
/// Ticks. Longer than a round of votes with a flush on each side.
const LEAST: u64 = 5;
/// How often one member stands before it leaves it to the election timeout.
const TRIES: u32 = 3;

/// A leader that is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    /// Its term.
    term: u64,
    /// Ticks until this member stands for election.
    wait: u64,
    tries: u32,
}

impl Consensus {
    /// The process of `peer` is gone. Nothing happens if it does not lead.
    pub fn leader_gone(&mut self, peer: u64) {
        let raft = &self.raw.raft;
        if peer == 0 || raft.leader_id != peer || self.role() == Role::Leader {
            return;
        }
        let (term, id) = (raft.term, self.config.id);
        let voters: Vec<u64> = self.conf().voters.into_iter().filter(|voter| *voter != peer).collect();
        self.follow_nobody();
        let Some(place) = voters.iter().position(|voter| *voter == id) else { return };
        // Whoever is first is another one in each term.
        let count = voters.len() as u64;
        let rank = (place as u64 + count - term % count) % count;
        self.gone = Some(Gone { term, wait: 1 + rank * self.step_of_gone(), tries: 0 });
    }

    fn step_of_gone(&self) -> u64 {
        (u64::from(self.config.election_ticks) / STEPS).max(LEAST)
    }

    /// Time goes on.
    pub(crate) fn stand_for_gone(&mut self) {
        let raft = &self.raw.raft;
        if raft.leader_id != 0 || self.role() == Role::Leader {
            self.gone = None;
        }
        let (term, vote, id, step) = (raft.term, raft.vote, self.config.id, self.step_of_gone());
        let voters = self.conf().voters.len() as u64;
        let Some(gone) = &mut self.gone else { return };
        gone.wait -= 1;
        if gone.wait > 0 {
            return;
        }
        gone.wait = (1 + voters) * step;
        gone.tries += 1;
        // One that has this member's vote may be about to win.
        let given = term > gone.term && vote != 0 && vote != id;
        if gone.tries == TRIES {
            self.gone = None;
        }
        if !given {
            self.campaign();
        }
    }
}
