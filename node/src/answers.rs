//! Answers of transactions whose ranges take more than a turn.
//!
//! What they show was decided when they were applied, and a pin keeps it. So the entries behind
//! them are applied meanwhile. One answer is gathered at a time; of those that wait there is only
//! the beginning.

use crate::ground::Ground;
use crate::io::{Answer, Refusal, Waiter};
use std::collections::VecDeque;
use store::{PinId, Reply, Step};

/// Slices gathered in one turn.
const SLICES_PER_TURN: usize = 8;

/// Answers under way, oldest first.
#[derive(Default)]
pub(crate) struct Answers {
    queue: VecDeque<Answering>,
}

struct Answering {
    waiter: Waiter,
    revision: i64,
    reply: Reply,
    pin: PinId,
    /// What its items may still take. Bytes.
    room: u64,
}

impl Answers {
    pub(crate) fn idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of what was found and is not answered. Others than the first one have not begun.
    pub(crate) fn held(&self, g: &Ground) -> u64 {
        self.queue.front().map_or(0, |front| g.config.budgets.txn_answer.saturating_sub(front.room))
    }

    /// `holds`: as in [`store::Applied`], of what was applied or read just now.
    pub(crate) fn begin(&mut self, g: &mut Ground, waiter: Waiter, revision: i64, reply: Reply, holds: i64) {
        let (pin, room) = (g.store.pin(holds), g.config.budgets.txn_answer);
        self.queue.push_back(Answering { waiter, revision, reply, pin, room });
    }

    pub(crate) fn run(&mut self, g: &mut Ground) {
        let mut step = Step { keys: SLICES_PER_TURN * g.config.budgets.slice_keys, bytes: 0 };
        while step.keys > 0
            && let Some(front) = self.queue.front_mut()
        {
            let whole = g.store.go_on(&mut front.reply, &mut step, &mut front.room);
            if front.room > 0 && !whole {
                return;
            }
            let Answering { waiter, revision, reply, pin, room } = self.queue.pop_front().expect("the front");
            g.store.unpin(pin);
            match room {
                0 => g.refuse(waiter, Refusal::AnswerTooLarge),
                _ => g.answer_at(revision, waiter, Answer::Applied { revision, result: Ok(reply) }),
            }
        }
    }

    /// Of the state that is told no more.
    pub(crate) fn end_all_with(&mut self, g: &mut Ground, refusal: Refusal) {
        for Answering { waiter, pin, .. } in std::mem::take(&mut self.queue) {
            g.store.unpin(pin);
            g.refuse(waiter, refusal);
        }
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let Some(at) = self.queue.iter().position(|one| one.waiter == waiter) else { return false };
        let one = self.queue.remove(at).expect("found just now");
        g.store.unpin(one.pin);
        if timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        true
    }
}
