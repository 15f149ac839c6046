//! What waits to be sent from one member to another: three connections (what is urgent, the log,
//! and pieces of checkpoints), with the lanes of `node::lanes` that the server's have too; and one
//! link of a given bandwidth that they share. A long frame does not hold up what another connection
//! sends: networks carry packets, and connections take turns.

use crate::plan::SECOND;
use crate::trace::Time;
use bytes::Bytes;
use node::frame::{Connection, Lane};
use node::lanes::{Bounds, Lanes, Pushed};
use std::collections::VecDeque;
use std::fmt;

/// As `server/src/budgets.rs` gives it to a small machine with two peers.
const BOUNDS: Bounds = Bounds { raft: 16 << 20, forward: 8 << 20 };

/// Bytes of one connection that leave before another has its turn: a packet, or on a fast link
/// those of four milliseconds, so that it costs few events.
fn share(bandwidth: u64) -> usize {
    usize::try_from(bandwidth / 250).unwrap_or(usize::MAX).max(1500)
}

const CONNECTIONS: usize = 3;

/// The link is busy for a while.
#[derive(Debug)]
pub struct Leaves {
    /// The frame whose last byte leaves then.
    pub frame: Option<(Lane, Bytes)>,
    /// When the link is free again.
    pub left: Time,
}

/// One connection: what waits, and a frame of which so many bytes have not left yet.
struct Line {
    lanes: Lanes<(Lane, Bytes)>,
    begun: Option<((Lane, Bytes), usize)>,
}

impl Line {
    /// The next packets, of at most so many bytes: how many, and the frame that ends with them.
    fn packets(&mut self, most: usize) -> Option<(Option<(Lane, Bytes)>, usize)> {
        let (frame, waits) = self.begun.take().or_else(|| {
            let mut one = VecDeque::new();
            self.lanes.take(1, &mut one);
            one.pop_front().map(|frame| (frame.clone(), frame.1.len()))
        })?;
        let bytes = waits.min(most);
        if bytes < waits {
            self.begun = Some((frame, waits - bytes));
            return Some((None, bytes));
        }
        Some((Some(frame), bytes))
    }
}

pub struct Pipe {
    /// One for each of `node::frame::Connection`.
    lines: [Line; CONNECTIONS],
    /// Whose turn it is, and the bytes that it has had in it.
    turn: (usize, usize),
    /// The link is busy until then.
    busy_until: Time,
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines.iter().map(|line| line.lanes.waiting())).finish()
    }
}

impl Default for Pipe {
    fn default() -> Pipe {
        let line = |_| {
            let mut lanes = Lanes::new(BOUNDS);
            lanes.open();
            Line { lanes, begun: None }
        };
        Pipe { lines: [0, 1, 2].map(line), turn: (0, 0), busy_until: 0 }
    }
}

impl Pipe {
    /// Queues a frame; the number of frames that were given up, this one among them if its lane is
    /// full.
    pub fn push(&mut self, lane: Lane, frame: Bytes) -> u64 {
        let lanes = &mut self.lines[number(lane)].lanes;
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
        let (share, (first, had)) = (share(bandwidth), self.turn);
        let mut turns = (0..CONNECTIONS).map(|n| ((first + n) % CONNECTIONS, if n == 0 { had } else { 0 }));
        let (line, had, (frame, bytes)) =
            turns.find_map(|(line, had)| Some((line, had, self.lines[line].packets(share - had)?)))?;
        self.turn = if had + bytes < share { (line, had + bytes) } else { ((line + 1) % CONNECTIONS, 0) };
        let left = now + bytes as u64 * SECOND / bandwidth.max(1) + 1;
        self.busy_until = left;
        Some(Leaves { frame, left })
    }

    /// Everything that waits is gone with its connection.
    pub fn restart(&mut self, now: Time) {
        *self = Pipe { busy_until: now, ..Pipe::default() };
    }
}

fn number(lane: Lane) -> usize {
    match lane.connection() {
        Connection::Urgent => 0,
        Connection::Log => 1,
        Connection::Bulk => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that leaves, in its order: the first byte of each frame and when its last left.
    fn drain(pipe: &mut Pipe, bandwidth: u64) -> Vec<(u8, Time)> {
        let (mut now, mut order) = (0, Vec::new());
        while let Some(Leaves { frame, left }) = pipe.next(now, bandwidth) {
            assert!(pipe.next(left - 1, 1).is_none(), "the link is busy");
            order.extend(frame.map(|(_, bytes)| (bytes[0], left)));
            now = left;
        }
        order
    }

    #[test]
    fn connections_take_turns_and_the_oldest_append_is_dropped() {
        let mut pipe = Pipe::default();
        for n in 0..20_u8 {
            assert_eq!(pipe.push(Lane::Log, Bytes::from(vec![n; 1 << 20])), u64::from(n >= 16));
        }
        assert_eq!(pipe.push(Lane::Urgent, Bytes::from_static(&[99])), 0);
        pipe.push(Lane::Bulk, Bytes::from_static(&[50]));
        for n in 0..9_u8 {
            assert_eq!(pipe.push(Lane::Forward, Bytes::from(vec![100 + n; 1 << 20])), u64::from(n == 8));
        }
        let order = drain(&mut pipe, 1 << 20);
        // Forwards take turns with appends.
        assert_eq!(order.iter().map(|(first, _)| *first).take(6).collect::<Vec<_>>(), [99, 50, 4, 100, 5, 101]);
        assert_eq!(order.len(), 18 + 8);
        assert!(order.last().expect("many").1 >= 24 * SECOND);
    }

    #[test]
    fn a_long_frame_does_not_hold_up_what_is_urgent() {
        for long in [Lane::Log, Lane::Bulk, Lane::Forward] {
            let mut pipe = Pipe::default();
            pipe.push(long, Bytes::from(vec![7; 6000]));
            let first = pipe.next(0, 1500).expect("it begins");
            assert!(first.frame.is_none() && first.left <= SECOND + 1);
            for n in 0..3 {
                pipe.push(Lane::Urgent, Bytes::from(vec![n; 200]));
            }
            let mut now = first.left;
            for n in 0..3 {
                let next = pipe.next(now, 1500).expect("the heartbeats");
                assert_eq!(next.frame.expect("whole").1[0], n);
                now = next.left;
            }
            for whole in [false, false, true] {
                let next = pipe.next(now, 1500).expect("it goes on");
                assert_eq!(next.frame.is_some(), whole);
                now = next.left;
            }
            assert!(now >= 22 * SECOND / 5 && pipe.next(now, 1500).is_none());
        }
    }
}
