//! What waits to be sent from one member to another, as `server/src/peers/queue.rs` keeps it: two
//! connections, one for urgent frames and appends and one for pieces, each bounded in bytes; and
//! one link of a given bandwidth that both share.

use crate::net::LANES;
use crate::plan::SECOND;
use crate::trace::Time;
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that may wait on one connection, as `--max-request-bytes` and the memory of a small machine give it.
const WAITING: usize = 16 << 20;

/// The queue of one connection.
#[derive(Debug, Default)]
struct Queue {
    urgent: VecDeque<Bytes>,
    rest: VecDeque<Bytes>,
    bytes: usize,
}

impl Queue {
    /// How many frames were dropped to stay within the bound: the oldest that are not urgent.
    fn push(&mut self, frame: Bytes, urgent: bool) -> u64 {
        self.bytes += frame.len();
        if urgent {
            self.urgent.push_back(frame)
        } else {
            self.rest.push_back(frame)
        }
        let mut dropped = 0;
        while self.bytes > WAITING {
            let Some(oldest) = self.rest.pop_front().or_else(|| self.urgent.pop_front()) else { break };
            self.bytes -= oldest.len();
            dropped += 1;
        }
        dropped
    }

    /// The next frame and whether it is urgent.
    fn take(&mut self) -> Option<(Bytes, bool)> {
        let urgent = !self.urgent.is_empty();
        let frame = self.urgent.pop_front().or_else(|| self.rest.pop_front())?;
        self.bytes -= frame.len();
        Some((frame, urgent))
    }
}

#[derive(Debug, Default)]
pub struct Pipe {
    log: Queue,
    bulk: Queue,
    /// The other connection goes next, if it has anything.
    bulk_next: bool,
    /// The link is busy until then.
    busy_until: Time,
}

impl Pipe {
    /// Queues a frame of a lane (urgent, log, bulk); the number of frames that were dropped for it.
    pub fn push(&mut self, lane: usize, frame: Bytes) -> u64 {
        assert!(lane < LANES);
        match lane {
            2 => self.bulk.push(frame, false),
            lane => self.log.push(frame, lane == 0),
        }
    }

    /// What goes next, if the link is free: its lane, the frame, and when its last byte has left.
    pub fn next(&mut self, now: Time, bandwidth: u64) -> Option<(usize, Bytes, Time)> {
        if now < self.busy_until {
            return None;
        }
        let bulk_first = std::mem::take(&mut self.bulk_next);
        let log = |pipe: &mut Pipe| pipe.log.take().map(|(frame, urgent)| (usize::from(!urgent), frame));
        let bulk = |pipe: &mut Pipe| pipe.bulk.take().map(|(frame, _)| (2, frame));
        let (lane, frame) = match bulk_first {
            true => bulk(self).or_else(|| log(self))?,
            false => log(self).or_else(|| bulk(self))?,
        };
        self.bulk_next = lane != 2;
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
            pipe.push(1, Bytes::from(vec![n; 1 << 20]));
        }
        assert_eq!(pipe.push(0, Bytes::from_static(&[99])), 1);
        pipe.push(2, Bytes::from_static(&[50]));
        let mut now = 0;
        let mut order = Vec::new();
        while let Some((_, frame, left)) = pipe.next(now, 1 << 20) {
            assert!(pipe.next(left - 1, 1).is_none(), "the link is busy");
            order.push(frame[0]);
            now = left;
        }
        // Five of twenty are dropped: the bound leaves room for fifteen and the urgent one.
        assert_eq!(order[..3], [99, 50, 5]);
        assert_eq!(order.len(), 17);
        assert!(now >= 15 * SECOND);
    }
}
