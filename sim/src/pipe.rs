//! What waits to be sent from one member to another: two connections, one of them for pieces, with
//! the lanes of `node::lanes` that the server's have too; and one link of a given bandwidth that
//! both share.

use crate::plan::SECOND;
use crate::trace::Time;
use bytes::Bytes;
use node::frame::Lane;
use node::lanes::{Bounds, Lanes, Pushed};
use std::collections::VecDeque;
use std::fmt;

/// As `server/src/budgets.rs` gives it to a small machine with two peers.
const BOUNDS: Bounds = Bounds { raft: 16 << 20, forward: 8 << 20 };

pub struct Pipe {
    log: Lanes<(Lane, Bytes)>,
    bulk: Lanes<(Lane, Bytes)>,
    /// The other connection goes next, if it has anything.
    bulk_next: bool,
    /// The link is busy until then.
    busy_until: Time,
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("waiting", &self.log.waiting()).finish_non_exhaustive()
    }
}

impl Default for Pipe {
    fn default() -> Pipe {
        let lanes = || {
            let mut lanes = Lanes::new(BOUNDS);
            lanes.open();
            lanes
        };
        Pipe { log: lanes(), bulk: lanes(), bulk_next: false, busy_until: 0 }
    }
}

impl Pipe {
    /// Queues a frame; the number of frames that were given up, this one among them if its lane is
    /// full.
    pub fn push(&mut self, lane: Lane, frame: Bytes) -> u64 {
        let lanes = if lane == Lane::Bulk { &mut self.bulk } else { &mut self.log };
        let before = lanes.lost().full.sum();
        let pushed = lanes.push(lane, frame.len() as u64, (lane, frame));
        assert_ne!(pushed, Pushed::Closed, "the connection stands");
        lanes.lost().full.sum() - before
    }

    /// What goes next, if the link is free: its lane, the frame, and when its last byte has left.
    pub fn next(&mut self, now: Time, bandwidth: u64) -> Option<(Lane, Bytes, Time)> {
        if now < self.busy_until {
            return None;
        }
        let bulk_first = std::mem::take(&mut self.bulk_next);
        let take = |lanes: &mut Lanes<(Lane, Bytes)>| {
            let mut one = VecDeque::new();
            lanes.take(1, &mut one);
            one.pop_front()
        };
        let (lane, frame) = match bulk_first {
            true => take(&mut self.bulk).or_else(|| take(&mut self.log))?,
            false => take(&mut self.log).or_else(|| take(&mut self.bulk))?,
        };
        self.bulk_next = lane != Lane::Bulk;
        let left = now + frame.len() as u64 * SECOND / bandwidth.max(1) + 1;
        self.busy_until = left;
        Some((lane, frame, left))
    }

    /// Everything that waits is gone with its connection.
    pub fn restart(&mut self, now: Time) {
        *self = Pipe { busy_until: now, ..Pipe::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_goes_first_connections_share_and_the_oldest_append_is_dropped() {
        let mut pipe = Pipe::default();
        for n in 0..20_u8 {
            pipe.push(Lane::Log, Bytes::from(vec![n; 1 << 20]));
        }
        assert_eq!(pipe.push(Lane::Urgent, Bytes::from_static(&[99])), 1);
        pipe.push(Lane::Bulk, Bytes::from_static(&[50]));
        for n in 0..9_u8 {
            assert_eq!(pipe.push(Lane::Forward, Bytes::from(vec![100 + n; 1 << 20])), u64::from(n == 8));
        }
        let mut now = 0;
        let mut order = Vec::new();
        while let Some((_, frame, left)) = pipe.next(now, 1 << 20) {
            assert!(pipe.next(left - 1, 1).is_none(), "the link is busy");
            order.push(frame[0]);
            now = left;
        }
        // Five of twenty are dropped: the bound leaves room for fifteen and the urgent one.
        // Forwards take turns with appends.
        assert_eq!(order[..6], [99, 50, 5, 100, 6, 101]);
        assert_eq!(order.len(), 17 + 8);
        assert!(now >= 23 * SECOND);
    }
}
