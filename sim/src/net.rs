//! The simulated network: one directed link for each pair, with the lanes of the shipped frames.
//!
//! Inside one lane of one connection nothing is lost, doubled or reordered (it is TCP); lanes
//! overtake each other. A connection can *break*: both sides hear of it, what was under way is
//! lost, or arrives late beside the next connection (a message of a previous life), except at a
//! receiver that has restarted. A *cut* link holds everything back until it heals or breaks.

use crate::pipe::{Leaves, Pipe};
use crate::rng::Rng;
use crate::trace::Time;
use bytes::Bytes;
use node::frame::Lane;
use std::collections::VecDeque;

#[derive(Debug, Default)]
struct Link {
    cut: bool,
    epoch: u64,
    /// Frames of earlier connections are refused.
    oldest: u64,
    /// No connection before this time.
    up_at: Time,
    /// Arrival of the last frame of each lane.
    last: [Time; LANES],
    held: VecDeque<(Lane, Bytes)>,
    /// Used when the link has bandwidth.
    pipe: Pipe,
}

const LANES: usize = 4;

fn number(lane: Lane) -> usize {
    match lane {
        Lane::Urgent => 0,
        Lane::Log => 1,
        Lane::Bulk => 2,
        Lane::Forward => 3,
    }
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    pub from: usize,
    pub to: usize,
    pub epoch: u64,
    pub bytes: Bytes,
}

#[derive(Debug)]
pub enum Sent {
    Arrives(Time, Flight),
    /// Waits behind a cut.
    Held,
    /// There is no connection; the sender hears of it at this time.
    NoConnection(Time),
    /// The connection broke under this frame.
    Breaks,
    /// It is gone, and nobody hears of it.
    Dropped,
    /// It waits for its turn on the link: [`Net::depart`].
    Queued,
}

#[derive(Debug)]
pub struct Net {
    members: usize,
    links: Vec<Link>,
    rng: Rng,
    delay: Time,
    pub extra: Time,
    /// Frames of 10,000 that break their connection.
    pub breaks: u64,
    /// Frames of 10,000 that are not urgent and are dropped; the connection lives on.
    pub drops: u64,
    ghosts: u64,
    /// Bytes a second of each directed link; 0: no bound.
    pub bandwidth: u64,
    pub frames: u64,
    /// Frames that found their queue full.
    pub overflowed: u64,
}

impl Net {
    pub fn new(members: usize, rng: Rng, delay: Time, breaks: u64, ghosts: u64) -> Net {
        let links = (0..members * members).map(|_| Link::default()).collect();
        Net { members, links, rng, delay, extra: 0, breaks, drops: 0, ghosts, bandwidth: 0, frames: 0, overflowed: 0 }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from * self.members + to]
    }

    pub fn send(&mut self, now: Time, from: usize, to: usize, lane: Lane, bytes: Bytes) -> Sent {
        self.frames += 1;
        let up_at = self.link(from, to).up_at;
        if now < up_at {
            return Sent::NoConnection(up_at);
        }
        if self.breaks > 0 && self.rng.per_myriad(self.breaks) {
            return Sent::Breaks;
        }
        if self.drops > 0 && lane != Lane::Urgent && self.rng.per_myriad(self.drops) {
            return Sent::Dropped;
        }
        if self.bandwidth > 0 {
            self.overflowed += self.link(from, to).pipe.push(lane, bytes);
            return Sent::Queued;
        }
        if self.link(from, to).cut {
            self.link(from, to).held.push_back((lane, bytes));
            return Sent::Held;
        }
        let (at, flight) = self.fly(now, from, to, lane, bytes);
        Sent::Arrives(at, flight)
    }

    /// The next frame of a link with bandwidth: when it arrives, and when the link is free again.
    pub fn depart(&mut self, now: Time, from: usize, to: usize) -> Option<(Option<(Time, Flight)>, Time)> {
        let bandwidth = self.bandwidth;
        let link = self.link(from, to);
        if link.cut || now < link.up_at {
            return None;
        }
        let Leaves { frame, left } = link.pipe.next(now, bandwidth)?;
        let flight = frame.map(|(lane, bytes)| self.fly(left, from, to, lane, bytes));
        Some((flight, left))
    }

    fn fly(&mut self, now: Time, from: usize, to: usize, lane: Lane, bytes: Bytes) -> (Time, Flight) {
        let mut took = self.rng.delay(self.delay) + self.extra;
        if lane == Lane::Bulk && self.bandwidth == 0 {
            took += bytes.len() as u64 / 20;
        }
        let link = self.link(from, to);
        // Behind the frame before it in the same lane.
        let at = (now + took).max(link.last[number(lane)] + 1);
        link.last[number(lane)] = at;
        (at, Flight { from, to, epoch: link.epoch, bytes })
    }

    /// True when the receiver still takes it.
    pub fn arrives(&mut self, flight: &Flight) -> bool {
        let link = self.link(flight.from, flight.to);
        flight.epoch >= link.oldest
    }

    /// True for a frame of a connection that was broken meanwhile.
    pub fn is_old(&self, flight: &Flight) -> bool {
        flight.epoch < self.links[flight.from * self.members + flight.to].epoch
    }

    /// Breaks both directions of a pair; a new connection stands at the returned time.
    pub fn break_pair(&mut self, now: Time, a: usize, b: usize) -> Time {
        let up_at = now + self.rng.delay(20_000);
        let ghosts = self.rng.percent(self.ghosts);
        for (from, to) in [(a, b), (b, a)] {
            let link = self.link(from, to);
            link.epoch += 1;
            link.up_at = link.up_at.max(up_at);
            link.held.clear();
            link.pipe.restart(now);
            // The lanes of the new connection do not queue behind the old one.
            link.last = [now; LANES];
            if !ghosts {
                link.oldest = link.epoch;
            }
        }
        up_at
    }

    /// The process `who` ended: nothing that was sent to it arrives at its next life.
    pub fn died(&mut self, now: Time, who: usize) {
        for other in 0..self.members {
            if other != who {
                self.break_pair(now, who, other);
                let link = self.link(other, who);
                link.oldest = link.epoch;
            }
        }
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        self.link(from, to).cut = true;
    }

    /// Ends every cut; what was held back arrives now.
    pub fn heal(&mut self, now: Time) -> Vec<(Time, Flight)> {
        let mut flights = Vec::new();
        for from in 0..self.members {
            for to in 0..self.members {
                let link = self.link(from, to);
                link.cut = false;
                for (lane, bytes) in std::mem::take(&mut link.held) {
                    flights.push(self.fly(now, from, to, lane, bytes));
                }
            }
        }
        flights
    }

    /// Number of the connection.
    pub fn epoch(&self, from: usize, to: usize) -> u64 {
        self.links[from * self.members + to].epoch
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.links[from * self.members + to].cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(ghosts: u64) -> Net {
        Net::new(3, Rng::new(5, "net"), 1_000, 0, ghosts)
    }

    fn arrival(sent: Sent) -> (Time, Flight) {
        match sent {
            Sent::Arrives(at, flight) => (at, flight),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lane_keeps_its_order_and_lanes_overtake() {
        let mut n = net(0);
        let mut overtaken = false;
        let (mut last_log, mut last_urgent) = (0, 0);
        for i in 0..200 {
            let (log, _) = arrival(n.send(i, 0, 1, Lane::Log, Bytes::new()));
            let (urgent, _) = arrival(n.send(i, 0, 1, Lane::Urgent, Bytes::new()));
            assert!(log > last_log && urgent > last_urgent);
            overtaken |= urgent < log;
            (last_log, last_urgent) = (log, urgent);
        }
        assert!(overtaken);
    }

    #[test]
    fn a_broken_connection_loses_what_was_under_way_unless_ghosts_walk() {
        for (ghosts, arrives) in [(0, false), (100, true)] {
            let mut n = net(ghosts);
            let (_, flight) = arrival(n.send(0, 0, 1, Lane::Log, Bytes::new()));
            let up_at = n.break_pair(1, 0, 1);
            assert_eq!(n.arrives(&flight), arrives);
            assert!(matches!(n.send(up_at - 1, 0, 1, Lane::Log, Bytes::new()), Sent::NoConnection(_)));
            let (_, next) = arrival(n.send(up_at, 0, 1, Lane::Log, Bytes::new()));
            assert!(n.arrives(&next));
            n.died(up_at + 1, 1);
            assert!(!n.arrives(&next), "a new life hears nothing that was sent to the old one");
        }
    }

    #[test]
    fn a_cut_holds_back_until_it_heals() {
        let mut n = net(0);
        n.cut(0, 1);
        assert!(matches!(n.send(0, 0, 1, Lane::Log, Bytes::from_static(b"x")), Sent::Held));
        arrival(n.send(0, 1, 0, Lane::Log, Bytes::new()));
        let flights = n.heal(1_000_000);
        assert_eq!(flights.len(), 1);
        assert!(flights[0].0 > 1_000_000);
    }
}
