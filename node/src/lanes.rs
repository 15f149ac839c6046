//! What waits to be sent on one connection to another member: in lanes, bounded in bytes.
//!
//! For the two drivers, so that the simulator's wires have the order and the losses of real ones.
//! Decided here: what goes first, and what is given up when too much waits.
//!
//! - Urgent frames go ahead of everything. They are small, and their senders wait for few of them.
//! - Appends and forwards share what is left byte by byte while both wait: a backlog of forwards
//!   does not hold up replication, and replication does not hold up forwards for ever.
//! - Beyond the bound of Raft's frames the oldest append is dropped, because consensus sends again.
//! - Beyond the bound of forwards the newest is refused, so that their order stays.

use crate::frame::Lane;
use std::collections::VecDeque;

/// While both wait, so many bytes of appends go before forwards have their turn.
const SHARE: i64 = 256 << 10;

/// What may wait for one connection, in bytes. A frame that finds its lane empty is taken even if
/// it is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Everything but forwards.
    pub raft: u64,
    pub forward: u64,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    Queued,
    /// Its lane is full: it was never sent.
    Refused,
    /// There is no connection: it was never sent.
    Closed,
}

/// Numbers of frames, one for each lane of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerLane {
    pub urgent: u64,
    /// Appends; on the connection for bulk everything.
    pub log: u64,
    pub forward: u64,
}

impl PerLane {
    fn of(&mut self, lane: Lane) -> &mut u64 {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Log | Lane::Bulk => &mut self.log,
            Lane::Forward => &mut self.forward,
        }
    }

    pub fn sum(&self) -> u64 {
        self.urgent + self.log + self.forward
    }

    fn each(self, other: PerLane, of: impl Fn(u64, u64) -> u64) -> PerLane {
        PerLane {
            urgent: of(self.urgent, other.urgent),
            log: of(self.log, other.log),
            forward: of(self.forward, other.forward),
        }
    }
}

/// Frames that were given up since the lanes were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Dropped or refused because too much waited.
    pub full: PerLane,
    /// Pushed without a connection, or waiting when it broke.
    pub closed: PerLane,
}

impl Lost {
    /// Of several connections together.
    #[must_use]
    pub fn and(self, more: Lost) -> Lost {
        let sum = |a: PerLane, b| a.each(b, |a, b| a + b);
        Lost { full: sum(self.full, more.full), closed: sum(self.closed, more.closed) }
    }

    /// What came after `before`, of the same connection.
    #[must_use]
    pub fn since(self, before: Lost) -> Lost {
        let rest = |a: PerLane, b| a.each(b, |a, b| a - b);
        Lost { full: rest(self.full, before.full), closed: rest(self.closed, before.closed) }
    }
}

/// What waits now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub frames: PerLane,
    /// Bytes of everything but forwards.
    pub raft: u64,
    /// Bytes of forwards.
    pub forward: u64,
}

/// `T` is a frame, in whatever form the driver sends it.
pub struct Lanes<T> {
    bounds: Bounds,
    open: bool,
    /// Frames were given up for want of a connection since the last question.
    refused: bool,
    urgent: VecDeque<(u64, T)>,
    log: VecDeque<(u64, T)>,
    forward: VecDeque<(u64, T)>,
    waiting: Waiting,
    lost: Lost,
    /// Bytes that appends are ahead of forwards.
    ahead: i64,
    forwards_turn: bool,
}

impl<T> Lanes<T> {
    /// Closed: nothing is taken before [`Lanes::open`].
    pub fn new(bounds: Bounds) -> Lanes<T> {
        Lanes {
            bounds,
            open: false,
            refused: false,
            urgent: VecDeque::new(),
            log: VecDeque::new(),
            forward: VecDeque::new(),
            waiting: Waiting::default(),
            lost: Lost::default(),
            ahead: 0,
            forwards_turn: false,
        }
    }

    /// Whether the connection stands.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The connection stands.
    pub fn open(&mut self) {
        self.give_up();
        self.open = true;
        self.refused = false;
    }

    /// The connection broke: what waits is given up.
    pub fn close(&mut self) {
        self.give_up();
        self.open = false;
        self.refused = false;
    }

    fn give_up(&mut self) {
        for lane in [Lane::Urgent, Lane::Log, Lane::Forward] {
            *self.lost.closed.of(lane) += *self.waiting.frames.of(lane);
            self.queue(lane).clear();
        }
        self.waiting = Waiting::default();
        (self.ahead, self.forwards_turn) = (0, false);
    }

    /// Whether frames were given up for want of a connection since the last question.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    pub fn lost(&self) -> Lost {
        self.lost
    }

    fn queue(&mut self, lane: Lane) -> &mut VecDeque<(u64, T)> {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Log | Lane::Bulk => &mut self.log,
            Lane::Forward => &mut self.forward,
        }
    }

    fn held(&mut self, lane: Lane) -> &mut u64 {
        if lane == Lane::Forward { &mut self.waiting.forward } else { &mut self.waiting.raft }
    }

    /// Adds a frame of `len` bytes. It may cost older ones their place.
    pub fn push(&mut self, lane: Lane, len: u64, frame: T) -> Pushed {
        if !self.open {
            self.refused = true;
            *self.lost.closed.of(lane) += 1;
            return Pushed::Closed;
        }
        if lane == Lane::Forward && !self.forward.is_empty() && self.waiting.forward + len > self.bounds.forward {
            self.lost.full.forward += 1;
            return Pushed::Refused;
        }
        self.queue(lane).push_back((len, frame));
        *self.held(lane) += len;
        *self.waiting.frames.of(lane) += 1;
        while self.waiting.raft > self.bounds.raft && self.waiting.frames.urgent + self.waiting.frames.log > 1 {
            let oldest = if self.log.is_empty() { Lane::Urgent } else { Lane::Log };
            self.pop(oldest);
            *self.lost.full.of(oldest) += 1;
        }
        Pushed::Queued
    }

    fn pop(&mut self, lane: Lane) -> Option<(u64, T)> {
        let (len, frame) = self.queue(lane).pop_front()?;
        *self.held(lane) -= len;
        *self.waiting.frames.of(lane) -= 1;
        Some((len, frame))
    }

    /// Which lane is next; the shares move with it.
    fn turn(&mut self) -> Lane {
        if !self.urgent.is_empty() {
            return Lane::Urgent;
        }
        let next = |queue: &VecDeque<(u64, T)>| queue.front().map(|(len, _)| i64::try_from(*len).unwrap_or(i64::MAX));
        match (next(&self.log), next(&self.forward)) {
            (Some(len), Some(_)) if !self.forwards_turn => {
                self.ahead = self.ahead.saturating_add(len);
                self.forwards_turn = self.ahead >= SHARE;
                Lane::Log
            }
            (Some(_), Some(len)) => {
                self.ahead = self.ahead.saturating_sub(len);
                self.forwards_turn = self.ahead > 0;
                Lane::Forward
            }
            // Alone, a lane takes nothing from the other: whoever comes next goes next.
            (None, Some(_)) => {
                (self.ahead, self.forwards_turn) = (0, false);
                Lane::Forward
            }
            (_, None) => {
                (self.ahead, self.forwards_turn) = (SHARE, true);
                Lane::Log
            }
        }
    }

    /// Moves frames of up to `most` bytes, and at least one if there is one, to the end of `out`.
    pub fn take(&mut self, most: u64, out: &mut VecDeque<T>) {
        let mut taken = 0;
        while taken < most && self.waiting.frames.sum() > 0 {
            let lane = self.turn();
            let Some((len, frame)) = self.pop(lane) else { break };
            taken += len;
            out.push_back(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const BOUNDS: Bounds = Bounds { raft: 1000 * KIB, forward: 500 * KIB };

    fn open() -> Lanes<(Lane, u64)> {
        let mut lanes = Lanes::new(BOUNDS);
        lanes.open();
        lanes
    }

    fn push(lanes: &mut Lanes<(Lane, u64)>, lane: Lane, kib: u64, number: u64) -> Pushed {
        lanes.push(lane, kib * KIB, (lane, number))
    }

    fn take(lanes: &mut Lanes<(Lane, u64)>, kib: u64) -> Vec<(Lane, u64)> {
        let mut out = VecDeque::new();
        lanes.take(kib * KIB, &mut out);
        out.into()
    }

    #[test]
    fn urgent_goes_first_and_each_lane_keeps_its_order() {
        let mut lanes = open();
        for number in 0..3 {
            for lane in [Lane::Forward, Lane::Log, Lane::Urgent] {
                assert_eq!(push(&mut lanes, lane, 1, number), Pushed::Queued);
            }
        }
        let wanted = [Lane::Urgent, Lane::Log, Lane::Forward].map(|lane| (0..3).map(move |number| (lane, number)));
        assert_eq!(take(&mut lanes, 100), wanted.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!((lanes.waiting(), lanes.lost()), (Waiting::default(), Lost::default()));
    }

    #[test]
    fn at_least_one_frame_is_taken_and_no_more_than_asked_for() {
        let mut lanes = open();
        for number in 0..4 {
            push(&mut lanes, Lane::Log, 300, number);
        }
        // The first was dropped: 1,200 KiB are more than may wait.
        assert_eq!(take(&mut lanes, 1), [(Lane::Log, 1)]);
        assert_eq!(take(&mut lanes, 301), [(Lane::Log, 2), (Lane::Log, 3)]);
        assert_eq!(take(&mut lanes, 1), []);
    }

    #[test]
    fn the_oldest_append_is_dropped_and_the_newest_forward_is_refused() {
        let mut lanes = open();
        for number in 0..12 {
            assert_eq!(push(&mut lanes, Lane::Log, 100, number), Pushed::Queued);
        }
        push(&mut lanes, Lane::Urgent, 1, 0);
        for number in 0..7 {
            let pushed = push(&mut lanes, Lane::Forward, 100, number);
            assert_eq!(pushed, if number < 5 { Pushed::Queued } else { Pushed::Refused });
        }
        assert_eq!(lanes.lost().full, PerLane { urgent: 0, log: 3, forward: 2 });
        let frames = PerLane { urgent: 1, log: 9, forward: 5 };
        assert_eq!(lanes.waiting(), Waiting { frames, raft: 901 * KIB, forward: 500 * KIB });
        let all = take(&mut lanes, 10_000);
        let of = |lane| all.iter().filter(|frame| frame.0 == lane).map(|frame| frame.1).collect::<Vec<_>>();
        assert_eq!(of(Lane::Log), (3..12).collect::<Vec<_>>());
        assert_eq!(of(Lane::Forward), [0, 1, 2, 3, 4]);
        assert_eq!(all[0], (Lane::Urgent, 0));
    }

    #[test]
    fn forwards_cost_no_other_frame_its_place_and_none_theirs() {
        let mut lanes = open();
        for number in 0..5 {
            push(&mut lanes, Lane::Forward, 100, number);
        }
        for number in 0..20 {
            push(&mut lanes, Lane::Log, 100, number);
        }
        assert_eq!(lanes.waiting().frames, PerLane { urgent: 0, log: 10, forward: 5 });
    }

    #[test]
    fn a_frame_larger_than_its_bound_passes_when_its_lane_is_empty() {
        for (lane, bound) in [(Lane::Log, 1000), (Lane::Urgent, 1000), (Lane::Forward, 500)] {
            let mut lanes = open();
            assert_eq!(push(&mut lanes, lane, bound + 1, 0), Pushed::Queued);
            assert_eq!(take(&mut lanes, 1), [(lane, 0)]);
        }
        // Urgent frames beyond the bound go oldest first, behind the appends.
        let mut lanes = open();
        push(&mut lanes, Lane::Log, 400, 0);
        for number in 0..5 {
            push(&mut lanes, Lane::Urgent, 300, number);
        }
        assert_eq!(take(&mut lanes, 10_000), [(Lane::Urgent, 2), (Lane::Urgent, 3), (Lane::Urgent, 4)]);
        assert_eq!(lanes.lost().full, PerLane { urgent: 2, log: 1, forward: 0 });
    }

    /// KiB of appends and forwards in the first `kib` that are taken, while both have a backlog.
    fn shares(log: u64, forward: u64, kib: u64) -> PerLane {
        let mut lanes = Lanes::new(Bounds { raft: u64::MAX, forward: u64::MAX });
        lanes.open();
        for number in 0..kib {
            push(&mut lanes, Lane::Log, log, number);
            push(&mut lanes, Lane::Forward, forward, number);
        }
        let (mut got, mut taken) = (PerLane::default(), 0);
        while taken < kib {
            for (lane, _) in take(&mut lanes, 64) {
                let len = if lane == Lane::Log { log } else { forward };
                *got.of(lane) += len;
                taken += len;
            }
        }
        got
    }

    #[test]
    fn neither_appends_nor_forwards_starve_whatever_their_sizes() {
        for (log, forward) in [(1, 1), (1, 1500), (256, 1), (256, 1500), (1500, 1), (1500, 1500)] {
            let got = shares(log, forward, 20_000);
            let apart = got.log.abs_diff(got.forward);
            assert!(apart <= 256 + 2 * (log + forward), "{log} {forward}: {got:?}");
        }
    }

    #[test]
    fn an_append_waits_behind_one_share_of_forwards_at_most() {
        let mut lanes = Lanes::new(Bounds { raft: u64::MAX, forward: u64::MAX });
        lanes.open();
        for number in 0..1000 {
            push(&mut lanes, Lane::Forward, 10, number);
        }
        take(&mut lanes, 500);
        push(&mut lanes, Lane::Log, 10, 0);
        assert_eq!(take(&mut lanes, 1), [(Lane::Log, 0)], "forwards went alone: an append is next");
        for number in 0..100 {
            push(&mut lanes, Lane::Log, 10, number);
        }
        let all = take(&mut lanes, 1500);
        let runs: Vec<usize> = all.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect();
        assert!(runs.iter().all(|run| *run <= 27), "{runs:?}");
        // And the other way round: appends went alone, so a forward is next.
        let mut lanes = open();
        for number in 0..50 {
            push(&mut lanes, Lane::Log, 10, number);
        }
        take(&mut lanes, 100);
        push(&mut lanes, Lane::Forward, 10, 7);
        assert_eq!(take(&mut lanes, 1), [(Lane::Forward, 7)]);
    }

    #[test]
    fn nothing_waits_without_a_connection() {
        let mut lanes: Lanes<(Lane, u64)> = Lanes::new(BOUNDS);
        assert_eq!(push(&mut lanes, Lane::Urgent, 1, 0), Pushed::Closed);
        assert!(lanes.take_refused() && !lanes.take_refused());
        lanes.open();
        push(&mut lanes, Lane::Log, 1, 1);
        push(&mut lanes, Lane::Forward, 1, 2);
        lanes.close();
        assert_eq!(push(&mut lanes, Lane::Bulk, 1, 3), Pushed::Closed);
        lanes.open();
        assert_eq!(take(&mut lanes, 100), []);
        let closed = PerLane { urgent: 1, log: 2, forward: 1 };
        assert_eq!((lanes.waiting(), lanes.lost()), (Waiting::default(), Lost { closed, ..Lost::default() }));
    }
}
