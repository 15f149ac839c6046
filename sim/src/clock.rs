//! The monotonic clock of one member: it runs a little fast or slow, and it stands still while
//! the process is paused. There is no wall clock to jump: a member is never told one.

use crate::trace::Time;

#[derive(Clone, Debug)]
pub struct Clock {
    /// Virtual time between two ticks.
    period: Time,
    pub frozen_until: Time,
    /// Missed ticks come at once after a pause; else they are gone.
    catch_up: bool,
}

/// The driver's cap: what was missed beyond it is thrown away.
const MOST_TICKS: u64 = 6;

/// Virtual microseconds of one tick of a true clock.
const TICK: Time = node::TICK_MS * 1_000;

impl Clock {
    /// `fast`: percent, negative = slow.
    pub fn new(fast: i64, catch_up: bool) -> Clock {
        let period = (TICK as i64 * 100 / (100 + fast)) as Time;
        Clock { period, frozen_until: 0, catch_up }
    }

    pub fn frozen(&self, now: Time) -> bool {
        now < self.frozen_until
    }

    /// The tick after the one that was due at `at`; `at` may lie in a pause that is over now.
    pub fn next(&self, at: Time, now: Time) -> Time {
        let next = at + self.period;
        if next < now && !self.catch_up { now } else { next }
    }

    /// How many ticks the driver gives at `now` when the first one was due at `due`, and when the
    /// next one is: `due_ticks` of `server/src/driver.rs`.
    pub fn due(&self, due: Time, now: Time) -> (u64, Time) {
        let missed = (now - due) / self.period;
        if missed == 0 {
            return (1, self.next(due, now));
        }
        match missed < MOST_TICKS {
            true => (missed + 1, due + (missed + 1) * self.period),
            false => (MOST_TICKS, now + self.period),
        }
    }

    /// Largest error of this clock's rate, in percent of the truth: what leases must allow for.
    pub const RHO: u64 = 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_ticks_early_and_a_pause_is_made_up_or_not() {
        assert!(Clock::new(10, true).next(0, 0) < TICK);
        assert!(Clock::new(-10, true).next(0, 0) > TICK);
        let clock = Clock::new(0, true);
        assert_eq!(clock.due(TICK, 4 * TICK), (4, 5 * TICK));
        assert_eq!(clock.due(TICK, 1000 * TICK), (6, 1001 * TICK));
        assert_eq!(Clock::new(0, true).next(0, 100 * TICK), TICK);
        assert_eq!(Clock::new(0, false).next(0, 100 * TICK), 100 * TICK);
    }
}
