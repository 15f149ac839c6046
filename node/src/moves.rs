//! MoveLeader: leadership handed to a named voter.

use crate::io::*;
use crate::member::Node;

#[derive(Default)]
pub(crate) struct Moves {
    waiting: Vec<(Waiter, u64)>,
}

impl Node {
    pub(crate) fn on_move_leader(&mut self, waiter: Waiter, target: u64, out: &mut Vec<Output>) {
        if !self.is_leader() {
            return self.refuse(waiter, Refusal::NotLeader, out);
        }
        if !self.store.conf().voters.contains(&target) {
            return self.refuse(waiter, Refusal::BadLeaderTransferee, out);
        }
        if target == self.config.member {
            return self.answer(waiter, Answer::Moved, out);
        }
        match self.consensus.transfer(target) {
            Ok(()) => self.moves.waiting.push((waiter, target)),
            Err(consensus::Refused::BadTransferee) => self.refuse(waiter, Refusal::LeaderTransferTimeout, out),
            Err(_) => self.moves.waiting.push((waiter, target)),
        }
    }

    /// A new leader is known: whoever asked for it is answered.
    pub(crate) fn leader_changed_moves(&mut self, out: &mut Vec<Output>) {
        if self.leader == 0 {
            return;
        }
        let waiting = std::mem::take(&mut self.moves.waiting);
        for (waiter, target) in waiting {
            if self.leader == target {
                self.answer(waiter, Answer::Moved, out);
            } else if self.is_leader() {
                self.moves.waiting.push((waiter, target));
            } else {
                self.refuse(waiter, Refusal::LeaderTransferTimeout, out);
            }
        }
    }

    pub(crate) fn cancel_move(&mut self, waiter: Waiter, timed_out: bool, out: &mut Vec<Output>) -> bool {
        let before = self.moves.waiting.len();
        self.moves.waiting.retain(|(waiting, _)| *waiting != waiter);
        let found = self.moves.waiting.len() != before;
        if found && timed_out {
            self.refuse(waiter, Refusal::LeaderTransferTimeout, out);
        }
        found
    }
}
