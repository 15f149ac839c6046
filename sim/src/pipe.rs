//! What waits to be sent from one member to another: two connections, one of them for pieces, with
//! the lanes of `node::lanes` that the server's have too; and one link of a given bandwidth that
//! both share. A piece does not hold up what the other connection sends: networks carry packets.

use crate::plan::SECOND;
use crate::trace::Time;
use bytes::Bytes;
use node::frame::Lane;
use node::lanes::{Bounds, Lanes, Pushed};
use std::collections::VecDeque;
use std::fmt;

/// As `server/src/budgets.rs` gives it to a small machine with two peers.
const BOUNDS: Bounds = Bounds { raft: 16 << 20, forward: 8 << 20 };

/// Bytes of a piece that leave before the other connection has its turn.
const PACKETS: usize = 16 << 10;

/// The link is busy for a while.
#[derive(Debug)]
pub struct Leaves {
    /// The frame whose last byte leaves then.
    pub frame: Option<(Lane, Bytes)>,
    /// When the link is free again.
    pub left: Time,
}

pub struct Pipe {
    log: Lanes<(Lane, Bytes)>,
    bulk: Lanes<(Lane, Bytes)>,
    /// The other connection goes next, if it has anything.
    bulk_next: bool,
    /// A piece of which so many bytes have not left yet.
    piece: Option<(Bytes, usize)>,
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
        Pipe { log: lanes(), bulk: lanes(), bulk_next: false, piece: None, busy_until: 0 }
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

    /// What goes next, if the link is free and anything waits.
    pub fn next(&mut self, now: Time, bandwidth: u64) -> Option<Leaves> {
        if now < self.busy_until {
            return None;
        }
        let bulk_first = std::mem::take(&mut self.bulk_next);
        let (frame, bytes) = match bulk_first {
            true => self.next_packets().or_else(|| self.next_frame())?,
            false => self.next_frame().or_else(|| self.next_packets())?,
        };
        self.bulk_next = frame.as_ref().is_some_and(|(lane, _)| *lane != Lane::Bulk);
        let left = now + bytes as u64 * SECOND / bandwidth.max(1) + 1;
        self.busy_until = left;
        Some(Leaves { frame, left })
    }

    fn next_frame(&mut self) -> Option<(Option<(Lane, Bytes)>, usize)> {
        let next = take(&mut self.log)?;
        let bytes = next.1.len();
        Some((Some(next), bytes))
    }

    fn next_packets(&mut self) -> Option<(Option<(Lane, Bytes)>, usize)> {
        let begun = self.piece.take().or_else(|| take(&mut self.bulk).map(|(_, frame)| (frame.clone(), frame.len())));
        let (frame, waits) = begun?;
        let bytes = waits.min(PACKETS);
        if bytes < waits {
            self.piece = Some((frame, waits - bytes));
            return Some((None, bytes));
        }
        Some((Some((Lane::Bulk, frame)), bytes))
    }

    /// Everything that waits is gone with its connection.
    pub fn restart(&mut self, now: Time) {
        *self = Pipe { busy_until: now, ..Pipe::default() };
    }
}

fn take(lanes: &mut Lanes<(Lane, Bytes)>) -> Option<(Lane, Bytes)> {
    let mut one = VecDeque::new();
    lanes.take(1, &mut one);
    one.pop_front()
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
        while let Some(Leaves { frame, left }) = pipe.next(now, 1 << 20) {
            assert!(pipe.next(left - 1, 1).is_none(), "the link is busy");
            order.push(frame.expect("small pieces leave whole").1[0]);
            now = left;
        }
        // Five of twenty are dropped: the bound leaves room for fifteen and the urgent one.
        // Forwards take turns with appends.
        assert_eq!(order[..6], [99, 50, 5, 100, 6, 101]);
        assert_eq!(order.len(), 17 + 8);
        assert!(now >= 23 * SECOND);
    }

    #[test]
    fn a_piece_does_not_hold_up_the_other_connection() {
        let mut pipe = Pipe::default();
        pipe.push(Lane::Bulk, Bytes::from(vec![7; 40 << 10]));
        let first = pipe.next(0, 16 << 10).expect("the piece begins");
        assert!(first.frame.is_none() && first.left <= SECOND + 1);
        pipe.push(Lane::Urgent, Bytes::from_static(&[99]));
        let second = pipe.next(first.left, 16 << 10).expect("the heartbeat");
        assert_eq!(second.frame.expect("whole").1[0], 99);
        let third = pipe.next(second.left, 16 << 10).expect("the piece goes on");
        let last = pipe.next(third.left, 16 << 10).expect("and ends");
        assert!(third.frame.is_none());
        assert_eq!(last.frame.expect("whole").1.len(), 40 << 10);
        assert!(last.left >= 5 * SECOND / 2);
    }
}
