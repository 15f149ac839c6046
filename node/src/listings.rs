//! Lists of all leases, gathered in slices between turns.

use crate::ground::Ground;
use crate::io::{Answer, Refusal, Waiter};
use std::collections::VecDeque;

/// Lease ids gathered in one turn.
const LEASES_PER_TURN: usize = 4_096;

/// Lists under way, oldest first.
#[derive(Default)]
pub(crate) struct Listings {
    queue: VecDeque<Listing>,
}

struct Listing {
    waiter: Waiter,
    next: i64,
    ids: Vec<i64>,
}

impl Listings {
    pub(crate) fn idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn begin(&mut self, waiter: Waiter) {
        self.queue.push_back(Listing { waiter, next: i64::MIN, ids: Vec::new() });
    }

    /// One slice of the oldest list.
    pub(crate) fn run(&mut self, g: &mut Ground) {
        let Some(mut listing) = self.queue.pop_front() else { return };
        let before = listing.ids.len();
        listing.ids.extend(g.store.lease_ids_from(listing.next).take(LEASES_PER_TURN));
        match listing.ids.last().and_then(|last| last.checked_add(1)) {
            Some(next) if listing.ids.len() - before == LEASES_PER_TURN => {
                listing.next = next;
                self.queue.push_front(listing);
            }
            _ => g.answer(listing.waiter, Answer::Leases { ids: listing.ids }),
        }
    }

    /// Nothing of the state is told any more.
    pub(crate) fn end_all_with(&mut self, g: &mut Ground, refusal: Refusal) {
        for listing in std::mem::take(&mut self.queue) {
            g.refuse(listing.waiter, refusal);
        }
    }

    pub(crate) fn cancel(&mut self, g: &mut Ground, waiter: Waiter, timed_out: bool) -> bool {
        let before = self.queue.len();
        self.queue.retain(|listing| listing.waiter != waiter);
        let found = self.queue.len() != before;
        if found && timed_out {
            g.refuse(waiter, Refusal::Timeout);
        }
        found
    }
}
