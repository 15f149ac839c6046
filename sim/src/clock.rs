//! The monotonic clock of one member: it runs a little fast or slow. While the process is paused
//! nothing is told; afterwards the member hears of all that it missed. There is no wall clock to
//! jump: a member is never told one.

use crate::trace::Time;

#[derive(Clone, Debug)]
pub struct Clock {
    /// Virtual time between two ticks.
    period: Time,
    pub frozen_until: Time,
    /// Up to `LUMP` missed ticks come at once after a pause, as the server's driver does it; else
    /// none.
    catch_up: bool,
    /// When the next tick is due. In the past while the process does nothing.
    due: Time,
}

/// What a member hears of the time that went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub ticks: u64,
    /// Ticks that it does not live through.
    pub away: u64,
    /// When the next tick is due.
    pub next: Time,
}

/// Ticks that come at once after a pause, at most.
const LUMP: u64 = 6;

/// Virtual microseconds of one tick of a true clock.
const TICK: Time = node::TICK_MS * 1_000;

impl Clock {
    /// `fast`: percent, negative = slow.
    pub fn new(fast: i64, catch_up: bool) -> Clock {
        let period = (TICK as i64 * 100 / (100 + fast)) as Time;
        Clock { period, frozen_until: 0, catch_up, due: 0 }
    }

    pub fn frozen(&self, now: Time) -> bool {
        now < self.frozen_until
    }

    /// Another life of the process begins, and its first tick is due.
    pub fn begin(&mut self, now: Time) {
        self.due = now;
    }

    pub fn due(&self) -> Time {
        self.due
    }

    /// The process hears of every tick that was due until `now`, of one at least.
    pub fn pass(&mut self, now: Time) -> Passed {
        let passed = (now - self.due) / self.period + 1;
        self.due += passed * self.period;
        let ticks = passed.min(if self.catch_up { LUMP } else { 1 });
        Passed { ticks, away: passed - ticks, next: self.due }
    }

    /// Largest error of this clock's rate, in percent of the truth: what leases must allow for.
    pub const RHO: u64 = 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_ticks_early_and_a_pause_loses_no_time() {
        assert!(Clock::new(10, true).pass(0).next < TICK);
        assert!(Clock::new(-10, true).pass(0).next > TICK);
        for (catch_up, ticks) in [(true, LUMP), (false, 1)] {
            let mut clock = Clock::new(0, catch_up);
            clock.begin(TICK);
            let next = 101 * TICK;
            assert_eq!(clock.pass(100 * TICK + 1), Passed { ticks, away: 100 - ticks, next });
            assert_eq!(clock.due(), next);
            assert_eq!(clock.pass(next), Passed { ticks: 1, away: 0, next: next + TICK });
        }
    }
}
