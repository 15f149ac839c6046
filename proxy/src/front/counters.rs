//! What is counted of a frontend, a backend and a server, in HAProxy's sense of each number.

use std::time::Duration;

/// How often something happens in a second: the second before counts by what is left of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    second: u64,
    now: u32,
    before: u32,
    /// The highest so far.
    pub(crate) max: u32,
}

impl Rate {
    fn turn(&mut self, second: u64) {
        if second != self.second {
            self.before = if second == self.second + 1 { self.now } else { 0 };
            (self.second, self.now) = (second, 0);
        }
    }

    pub(crate) fn happens(&mut self, now: Duration) {
        self.turn(now.as_secs());
        self.now += 1;
        self.max = self.max.max(self.read(now));
    }

    /// In a second, by now.
    pub(crate) fn read(&self, now: Duration) -> u32 {
        let second = now.as_secs();
        let (current, before) = match second.checked_sub(self.second) {
            Some(0) => (self.now, self.before),
            Some(1) => (0, self.now),
            _ => (0, 0),
        };
        let left = 1_000 - now.subsec_millis();
        current + (u64::from(before) * u64::from(left) / 1_000) as u32
    }

    /// Until one more keeps below `most` in a second.
    pub(crate) fn wait(&self, most: u32, now: Duration) -> Duration {
        if self.read(now) < most {
            return Duration::ZERO;
        }
        // What is left of the second before fades by the millisecond.
        Duration::from_millis(u64::from((1_000 / most.max(1)).max(1)))
    }
}

/// The mean of the last 512, and the longest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    sum: u64,
    count: u64,
    /// In milliseconds.
    pub(crate) max: u64,
}

impl Mean {
    pub(crate) fn add(&mut self, span: Duration) {
        let millis = span.as_millis() as u64;
        self.max = self.max.max(millis);
        if self.count < 512 {
            self.count += 1;
        } else {
            self.sum -= self.sum / 512;
        }
        self.sum += millis;
    }

    /// In milliseconds.
    pub(crate) fn read(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

/// One proxy's or server's numbers. Those that do not apply stay 0.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    /// Connections now, at most, and in all.
    pub(crate) current: u32,
    pub(crate) max: u32,
    pub(crate) total: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) rate: Rate,
    /// Connections refused by a limit.
    pub(crate) denied: u64,
    /// Clients that said nothing that could be used.
    pub(crate) request_errors: u64,
    pub(crate) connect_errors: u64,
    pub(crate) retries: u64,
    pub(crate) redispatches: u64,
    /// Tries to connect.
    pub(crate) attempts: u64,
    pub(crate) checks_failed: u64,
    pub(crate) checks_down: u64,
    /// How often the choice fell here.
    pub(crate) chosen: u64,
    pub(crate) client_aborts: u64,
    pub(crate) server_aborts: u64,
    pub(crate) queue_max: u32,
    pub(crate) queue_time: Mean,
    pub(crate) connect_time: Mean,
    pub(crate) total_time: Mean,
    /// The begin of the last connection.
    pub(crate) last: Option<Duration>,
    /// Of a backend: any server can be used.
    pub(crate) is_up: bool,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            current: 0,
            max: 0,
            total: 0,
            bytes_in: 0,
            bytes_out: 0,
            rate: Rate::default(),
            denied: 0,
            request_errors: 0,
            connect_errors: 0,
            retries: 0,
            redispatches: 0,
            attempts: 0,
            checks_failed: 0,
            checks_down: 0,
            chosen: 0,
            client_aborts: 0,
            server_aborts: 0,
            queue_max: 0,
            queue_time: Mean::default(),
            connect_time: Mean::default(),
            total_time: Mean::default(),
            last: None,
            is_up: true,
        }
    }
}

impl Counters {
    pub(crate) fn begins(&mut self, now: Duration) {
        self.current += 1;
        self.max = self.max.max(self.current);
        self.total += 1;
        self.rate.happens(now);
        self.last = Some(now);
    }

    pub(crate) fn ends(&mut self) {
        self.current = self.current.saturating_sub(1);
    }

    /// `clear counters`: the maxima; `all`: all but what is under way.
    pub(crate) fn clear(&mut self, all: bool) {
        if all {
            let kept = (self.current, self.is_up, self.last, self.rate.clone());
            *self = Counters::default();
            (self.current, self.is_up, self.last, self.rate) = kept;
        }
        self.max = self.current;
        self.rate.max = 0;
        self.queue_max = 0;
        (self.queue_time.max, self.connect_time.max, self.total_time.max) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_rate_fades_over_a_second() {
        let mut rate = Rate::default();
        (0..10).for_each(|_| rate.happens(at(5_500)));
        assert_eq!((rate.read(at(5_900)), rate.read(at(6_000)), rate.read(at(6_500))), (10, 10, 5));
        assert_eq!((rate.read(at(7_000)), rate.read(at(60_000)), rate.max), (0, 0, 10));
        assert_eq!(rate.wait(11, at(5_900)), Duration::ZERO);
        assert!(rate.wait(10, at(5_900)) > Duration::ZERO);
    }

    #[test]
    fn a_mean_forgets() {
        let mut mean = Mean::default();
        assert_eq!(mean.read(), 0);
        (0..1_000).for_each(|_| mean.add(at(100)));
        (0..5_000).for_each(|_| mean.add(at(10)));
        assert!((9..=11).contains(&mean.read()), "{}", mean.read());
        assert_eq!(mean.max, 100);
    }
}
