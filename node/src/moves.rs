//! MoveLeader: leadership handed to a named voter.

use crate::ground::Ground;
use crate::io::*;

#[derive(Default)]
pub(crate) struct Moves {
    waiting: Vec<(Waiter, u64)>,
}

impl Moves {
    pub(crate) fn begin(&mut self, g: &mut Ground, waiter: Waiter, target: u64) {
        if !g.is_leader() {
            return g.refuse(waiter, Refusal::NotLeader);
        }
        if !g.store.conf().voters.contains(&target) {
            return g.refuse(waiter, Refusal::BadLeaderTransferee);
        }
        if target == g.config.member {
            return g.answer(waiter, Answer::Moved);
        }
        match g.consensus.transfer(target) {
            Ok(()) => self.waiting.push((waiter, target)),
            Err(consensus::Refused::BadTransferee) => g.refuse(waiter, Refusal::LeaderTransferTimeout),
            Err(_) => self.waiting.push((waiter, target)),
        }
    }

    /// A new leader is known: whoever asked for it is answered.
    pub(crate) fn leader_changed(&mut self, g: &mut Ground) {
        if g.leader == 0 {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        for (waiter, target) in waiting {
            if g.leader == target {
                g.answer(waiter, Answer::Moved);
            } else if g.is_leader() {
                self.waiting.push((waiter, target));
            } else {
                g.refuse(waiter, Refusal::LeaderTransferTimeout);
            }
        }
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != waiter);
        let found = self.waiting.len() != before;
        if found && timed_out {
            g.refuse(waiter, Refusal::LeaderTransferTimeout);
        }
        found
    }
}
