//! Which member a connection goes to. Time comes as an argument.
//!
//! Members take turns. One that could not be reached is passed over until it was reached again;
//! it is tried once a delay. When none was reached last, all are tried before a client is sent
//! away: after a moment in which nothing answered, the stock gateway refuses for a whole delay.

use std::time::Duration;

/// One member's address.
#[derive(Debug)]
struct Endpoint {
    /// `host:port`.
    address: String,
    /// When it is to be tried again; none: it was reached last.
    retry: Option<Duration>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Endpoints {
    all: Vec<Endpoint>,
    /// Where the next turn begins.
    turn: usize,
    delay: Duration,
}

impl Endpoints {
    /// `delay`: until a member that failed is tried again.
    pub(crate) fn new(addresses: Vec<String>, delay: Duration) -> Endpoints {
        let all = addresses.into_iter().map(|address| Endpoint { address, retry: None }).collect();
        Endpoints { all, turn: 0, delay }
    }

    pub(crate) fn address(&self, at: usize) -> &str {
        &self.all[at].address
    }

    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// The order in which a new connection tries them.
    pub(crate) fn order(&mut self) -> Vec<usize> {
        let count = self.all.len();
        let (well, failed): (Vec<usize>, Vec<usize>) =
            (0..count).map(|step| (self.turn + step) % count).partition(|at| self.all[*at].retry.is_none());
        // The next connection begins behind the one that this one gets.
        self.turn = well.first().or(failed.first()).map_or(0, |at| (at + 1) % count);
        well.into_iter().chain(failed).collect()
    }

    /// It was reached. True: it had failed before.
    pub(crate) fn reached(&mut self, at: usize) -> bool {
        self.all[at].retry.take().is_some()
    }

    /// It could not be reached. True: it could before.
    pub(crate) fn failed(&mut self, at: usize, now: Duration) -> bool {
        self.all[at].retry.replace(now + self.delay).is_none()
    }

    /// Those that failed and are to be tried now.
    pub(crate) fn due(&self, now: Duration) -> Vec<usize> {
        let is_due = |at: &usize| self.all[*at].retry.is_some_and(|retry| retry <= now);
        (0..self.all.len()).filter(is_due).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(60);

    fn three() -> Endpoints {
        Endpoints::new(["a:1", "b:1", "c:1"].map(str::to_owned).to_vec(), DELAY)
    }

    #[test]
    fn members_take_turns() {
        let mut endpoints = three();
        let first: Vec<usize> = (0..4).map(|_| endpoints.order()[0]).collect();
        assert_eq!(first, [0, 1, 2, 0]);
        assert_eq!(endpoints.order(), [1, 2, 0]);
    }

    #[test]
    fn one_that_failed_is_passed_over_until_it_is_reached() {
        let mut endpoints = three();
        let now = Duration::from_secs(5);
        assert!(endpoints.failed(1, now) && !endpoints.failed(1, now));
        let first: Vec<usize> = (0..4).map(|_| endpoints.order()[0]).collect();
        assert_eq!(first, [0, 2, 0, 2]);
        assert_eq!(endpoints.order().last(), Some(&1), "the last resort");
        assert_eq!(endpoints.due(now + DELAY - Duration::from_millis(1)), [0; 0]);
        assert_eq!(endpoints.due(now + DELAY), [1]);
        assert!(endpoints.reached(1) && !endpoints.reached(1));
        assert_eq!(endpoints.due(now + DELAY), [0; 0]);
    }

    #[test]
    fn when_all_failed_all_are_tried() {
        let mut endpoints = three();
        assert!((0..3).all(|at| endpoints.failed(at, Duration::ZERO)));
        assert_eq!(endpoints.order(), [0, 1, 2]);
        assert_eq!(endpoints.order(), [1, 2, 0]);
    }

    #[test]
    fn a_lone_member_has_every_turn() {
        let mut endpoints = Endpoints::new(vec!["a:1".into()], DELAY);
        assert_eq!((endpoints.order(), endpoints.order()), (vec![0], vec![0]));
    }
}
