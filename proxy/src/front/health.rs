//! Whether one server is up, as checks and connections of clients say. Time comes as an argument.

use super::config::{OnError, Server};
use std::time::Duration;

/// What a check found. The words are HAProxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It takes connections.
    L4Ok,
    /// It answered as it should, with this code.
    L7Ok(u16),
    /// It took no connection.
    L4Con,
    /// It took none in time.
    L4Tout,
    /// TLS failed.
    L6Rsp,
    /// No answer in time.
    L7Tout,
    /// No answer that could be read.
    L7Rsp,
    /// It answered with this code.
    L7Sts(u16),
    /// No descriptor was left for the question.
    SockErr,
}

impl Found {
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Found::L4Ok | Found::L7Ok(_))
    }

    /// The short name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Found::L4Ok => "L4OK",
            Found::L7Ok(_) => "L7OK",
            Found::L4Con => "L4CON",
            Found::L4Tout => "L4TOUT",
            Found::L6Rsp => "L6RSP",
            Found::L7Tout => "L7TOUT",
            Found::L7Rsp => "L7RSP",
            Found::L7Sts(_) => "L7STS",
            Found::SockErr => "SOCKERR",
        }
    }

    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Found::L4Ok => "Layer4 check passed",
            Found::L7Ok(_) => "Layer7 check passed",
            Found::L4Con => "Layer4 connection problem",
            Found::L4Tout => "Layer4 timeout",
            Found::L6Rsp => "Layer6 invalid response",
            Found::L7Tout => "Layer7 timeout",
            Found::L7Rsp => "Layer7 invalid response",
            Found::L7Sts(_) => "Layer7 wrong status",
            Found::SockErr => "Socket error",
        }
    }

    /// The code of HTTP, if one came.
    pub(crate) fn code(self) -> Option<u16> {
        match self {
            Found::L7Ok(code) | Found::L7Sts(code) => Some(code),
            _ => None,
        }
    }
}

/// What an operator wants of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    Ready,
    /// Nothing new; what is there goes on. It is still asked whether it is well.
    Drain,
    /// Nothing new, and it is not asked.
    Maint,
}

/// A change that others must hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Up,
    Down,
}

/// What is known of one server.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    checked: bool,
    rise: u32,
    fall: u32,
    inter: Duration,
    fastinter: Duration,
    downinter: Duration,
    slowstart: Option<Duration>,
    error_limit: u32,
    on_error: OnError,
    /// From 0 to `rise + fall - 1`; up from `rise` on.
    score: u32,
    /// Connections of clients that failed, one after another.
    errors: u32,
    /// When it came up last. None: since the beginning.
    up_since: Option<Duration>,
}

impl Health {
    /// As HAProxy begins: up, and the first failed check ends that.
    pub(crate) fn new(server: &Server) -> Health {
        let or_inter = |span: Option<super::span::Span>| span.unwrap_or(server.inter).0;
        Health {
            checked: server.check,
            rise: server.rise,
            fall: server.fall,
            inter: server.inter.0,
            fastinter: or_inter(server.fastinter),
            downinter: or_inter(server.downinter),
            slowstart: server.slowstart.map(|span| span.0),
            error_limit: server.error_limit,
            on_error: server.on_error,
            score: server.rise,
            errors: 0,
            up_since: None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.checked || self.score >= self.rise
    }

    /// Checks that passed or failed on the way to another state, and how many are wanted.
    pub(crate) fn step(&self) -> Option<(u32, u32)> {
        let best = self.best();
        match (self.is_up(), self.score) {
            (true, score) if score >= best => None,
            (true, score) => Some((score - self.rise + 1, self.fall)),
            (false, 0) => None,
            (false, score) => Some((score, self.rise)),
        }
    }

    fn best(&self) -> u32 {
        self.rise + self.fall - 1
    }

    pub(crate) fn score(&self) -> u32 {
        self.score
    }

    /// A check says so.
    pub(crate) fn checked(&mut self, good: bool, now: Duration) -> Option<Change> {
        let was_up = self.is_up();
        if good {
            self.errors = 0;
            self.score = (self.score + 1).min(self.best());
            if self.score >= self.rise && !was_up {
                self.score = self.best();
            }
        } else if self.score > self.rise {
            self.score -= 1;
        } else {
            self.score = 0;
        }
        self.change(was_up, now)
    }

    /// A client's connection could not be made, or could: passive checks.
    pub(crate) fn observed(&mut self, good: bool, now: Duration) -> Option<Change> {
        if good {
            self.errors = 0;
            return None;
        }
        self.errors += 1;
        if self.errors < self.error_limit || !self.is_up() {
            return None;
        }
        self.errors = 0;
        match self.on_error {
            OnError::Fastinter => {
                // Not the best any more: the next check comes sooner.
                if self.score == self.best() && self.score > self.rise {
                    self.score -= 1;
                }
                None
            }
            OnError::FailCheck => self.checked(false, now),
            OnError::SuddenDeath => {
                self.score = self.rise;
                None
            }
            OnError::MarkDown => {
                self.score = self.rise;
                self.checked(false, now)
            }
        }
    }

    fn change(&mut self, was_up: bool, now: Duration) -> Option<Change> {
        match (was_up, self.is_up()) {
            (false, true) => {
                self.up_since = Some(now);
                Some(Change::Up)
            }
            (true, false) => Some(Change::Down),
            _ => None,
        }
    }

    /// It comes back from maintenance: up at once, by its first check down again if need be.
    pub(crate) fn enabled(&mut self, now: Duration) {
        (self.score, self.errors, self.up_since) = (self.rise, 0, Some(now));
    }

    /// Until the next check.
    pub(crate) fn interval(&self) -> Duration {
        match (self.is_up(), self.score) {
            (true, score) if score >= self.best() => self.inter,
            (false, 0) => self.downinter,
            _ => self.fastinter,
        }
    }

    /// How much of its share it gets by now, in percent.
    pub(crate) fn throttle(&self, now: Duration) -> u32 {
        let (Some(slow), Some(since)) = (self.slowstart, self.up_since) else { return 100 };
        let up = now.saturating_sub(since);
        if up >= slow { 100 } else { (up.as_micros() * 100 / slow.as_micros().max(1)).max(1) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::span::Span;
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn three_three() -> Health {
        let server = Server {
            check: true,
            inter: Span::seconds(5),
            fastinter: Some(Span::seconds(1)),
            downinter: Some(Span::seconds(20)),
            rise: 3,
            fall: 3,
            ..Server::new("a", "a:1")
        };
        Health::new(&server)
    }

    #[test]
    fn the_first_failed_check_ends_what_was_believed_at_the_start() {
        let mut health = three_three();
        assert!(health.is_up());
        assert_eq!(health.checked(false, NOW), Some(Change::Down));
        assert_eq!(health.interval(), Duration::from_secs(20));
    }

    #[test]
    fn it_falls_after_fall_and_rises_after_rise() {
        let mut health = three_three();
        assert_eq!([health.checked(true, NOW), health.checked(true, NOW)], [None, None]);
        assert_eq!(health.interval(), Duration::from_secs(5), "at its best");
        assert_eq!([health.checked(false, NOW), health.checked(false, NOW)], [None, None]);
        assert_eq!((health.interval(), health.step()), (Duration::from_secs(1), Some((1, 3))));
        assert_eq!(health.checked(false, NOW), Some(Change::Down));
        assert_eq!([health.checked(true, NOW), health.checked(true, NOW)], [None, None]);
        assert_eq!(health.step(), Some((2, 3)));
        assert_eq!(health.checked(false, NOW), None, "and everything from the beginning");
        assert_eq!(health.step(), None);
        let risen: Vec<_> = (0..3).map(|_| health.checked(true, NOW)).collect();
        assert_eq!(risen, [None, None, Some(Change::Up)]);
        // All at once at its best: it takes `fall` bad ones again.
        let fallen: Vec<_> = (0..3).map(|_| health.checked(false, NOW)).collect();
        assert_eq!(fallen, [None, None, Some(Change::Down)]);
    }

    #[test]
    fn one_that_is_not_checked_is_up() {
        let mut health = Health::new(&Server::new("a", "a:1"));
        assert_eq!(health.checked(false, NOW), None);
        assert!(health.is_up());
    }

    #[test]
    fn failed_connections_do_what_was_said() {
        for (on_error, down) in [
            (OnError::MarkDown, true),
            (OnError::FailCheck, false),
            (OnError::SuddenDeath, false),
            (OnError::Fastinter, false),
        ] {
            let mut health = three_three();
            (health.error_limit, health.on_error) = (2, on_error);
            health.checked(true, NOW);
            health.checked(true, NOW);
            assert_eq!(health.observed(false, NOW), None);
            assert_eq!(health.observed(true, NOW), None, "one that works ends the count");
            assert_eq!(health.observed(false, NOW), None);
            assert_eq!(health.observed(false, NOW).is_some(), down, "{on_error:?}");
            if !down {
                assert_eq!(health.interval(), Duration::from_secs(1), "{on_error:?}");
            }
            let next = health.checked(false, NOW);
            assert_eq!(next.is_some(), on_error == OnError::SuddenDeath, "{on_error:?}");
        }
    }

    #[test]
    fn a_slow_start_gives_more_and_more() {
        let mut health = three_three();
        health.slowstart = Some(Duration::from_secs(10));
        assert_eq!(health.throttle(NOW), 100, "up since the beginning");
        health.checked(false, NOW);
        (0..3).for_each(|_| {
            health.checked(true, NOW);
        });
        let after = |seconds| health.throttle(NOW + Duration::from_secs(seconds));
        assert_eq!((after(0), after(1), after(5), after(10), after(60)), (1, 10, 50, 100, 100));
    }
}
