//! Places for connections of clients, shared by source: an address, or a user of this machine.
//!
//! One address may hold seven times as many as are free. Alone it gets seven of eight; the next
//! ones find what it had to leave, and leave something in turn. So an address that takes all it can
//! keeps nobody out.

use crate::budgets::SHARE;
use crate::sockets::Origin;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// All places.
pub(crate) struct Seats {
    most: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: u64,
    by: BTreeMap<Origin, u64>,
}

/// One of them.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    from: Origin,
}

impl Seats {
    pub(crate) fn new(most: u64) -> Arc<Seats> {
        Arc::new(Seats { most, held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// None: this address has all that it may have now.
    pub(crate) fn take(self: &Arc<Self>, from: Origin) -> Option<Seat> {
        let from = from.source();
        let mut held = self.held();
        let (free, mine) = (self.most.saturating_sub(held.all), held.by.get(&from).copied().unwrap_or(0));
        if free == 0 || mine >= free.saturating_mul(SHARE) {
            return None;
        }
        held.all += 1;
        *held.by.entry(from).or_default() += 1;
        Some(Seat { seats: self.clone(), from })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut held = self.seats.held();
        held.all -= 1;
        let mine = held.by.get_mut(&self.from).expect("it holds this one");
        *mine -= 1;
        if *mine == 0 {
            held.by.remove(&self.from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_that_takes_all_it_can_keeps_nobody_out() {
        let seats = Seats::new(1000);
        let mut taken = Vec::new();
        let mut counts = Vec::new();
        for last in 1..=3 {
            let before = taken.len();
            while let Some(seat) = seats.take(Origin::Host(Ipv4Addr::new(10, 0, 0, last).into())) {
                taken.push(seat);
            }
            counts.push(taken.len() - before);
        }
        assert!(seats.take(Origin::User(0)).is_some(), "a user of this machine is a source, too");
        assert_eq!(counts[0], 875);
        assert!(counts[1] > 100 && counts[2] > 10, "{counts:?}");
        taken.clear();
        assert!(seats.held().by.is_empty() && seats.held().all == 0);
    }
}
