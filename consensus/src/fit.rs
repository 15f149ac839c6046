//! How much one append carries to each follower: what fits the link to it.
//!
//! What comes later waits behind the append that is on its way. On a slow link a long append takes
//! an election timeout, and a next leader's first entry waits as long behind it, or begins with the
//! same append. So an append to a follower whose answers take long is short, and
//! becomes longer as they come quickly.

use std::collections::BTreeMap;

/// Bytes of entries in the shortest append.
pub(crate) const LEAST: u64 = 16 << 10;

/// What is known of the links to the others.
#[derive(Debug, Default)]
pub(crate) struct Fits {
    now: u64,
    of: BTreeMap<u64, Fit>,
}

#[derive(Debug)]
struct Fit {
    /// Bytes of entries in the next append.
    bytes: u64,
    /// An entry that was sent and is not acknowledged, and since when.
    unanswered: Option<(u64, u64)>,
    /// The last answer was.
    late: bool,
}

impl Fits {
    /// Time goes on.
    pub fn tick(&mut self) {
        self.now += 1;
    }

    /// Bytes of entries in the next append to this follower: `most`, or what fits. An answer that
    /// takes more than `slow` ticks is late.
    pub fn bytes(&mut self, to: u64, most: u64, slow: u64) -> u64 {
        let fit = self.of.entry(to).or_insert(Fit { bytes: most, unanswered: None, late: false });
        if fit.unanswered.is_some_and(|(_, since)| self.now > since + slow) {
            (fit.bytes, fit.unanswered) = (LEAST.min(most), None);
        }
        fit.bytes
    }

    /// The last answer of this follower was late.
    pub fn is_slow(&self, to: u64) -> bool {
        self.of.get(&to).is_some_and(|fit| fit.late)
    }

    /// The connection to this follower broke: what was under way is gone.
    pub fn lost(&mut self, to: u64) {
        if let Some(fit) = self.of.get_mut(&to) {
            fit.unanswered = None;
        }
    }

    /// An append that ends with entry `last` leaves.
    pub fn sent(&mut self, to: u64, last: u64) {
        if let Some(fit) = self.of.get_mut(&to) {
            fit.unanswered.get_or_insert((last, self.now));
        }
    }

    /// A follower has acknowledged everything up to `index`. `slow`: as in [`Fits::bytes`]. An
    /// answer within a quarter of that is quick.
    pub fn answered(&mut self, from: u64, index: u64, most: u64, slow: u64) {
        let Some(fit) = self.of.get_mut(&from) else { return };
        let Some((_, since)) = fit.unanswered.take_if(|(last, _)| *last <= index) else { return };
        let took = self.now - since;
        fit.late = took > slow;
        if fit.late {
            fit.bytes = LEAST.min(most);
        } else if took <= slow / 4 {
            fit.bytes = (2 * fit.bytes).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 256 << 10;
    const SLOW: u64 = 20;

    fn after(fits: &mut Fits, ticks: u64, last: u64) -> u64 {
        fits.bytes(2, MOST, SLOW);
        fits.sent(2, last);
        (0..ticks).for_each(|_| fits.tick());
        fits.answered(2, last, MOST, SLOW);
        fits.bytes(2, MOST, SLOW)
    }

    #[test]
    fn a_late_answer_makes_appends_short_and_quick_ones_make_them_long() {
        let mut fits = Fits::default();
        assert_eq!(after(&mut fits, 20, 5), MOST, "not late yet");
        assert_eq!(after(&mut fits, 21, 6), LEAST);
        assert_eq!(after(&mut fits, 6, 7), LEAST, "neither quick nor late");
        let grown: Vec<u64> = (8..14).map(|last| after(&mut fits, 5, last)).collect();
        assert_eq!(grown, [32 << 10, 64 << 10, 128 << 10, MOST, MOST, MOST]);
    }

    #[test]
    fn a_follower_is_slow_by_its_last_answer_and_not_by_a_connection_that_broke() {
        let mut fits = Fits::default();
        for (ticks, slow) in [(20, false), (21, true), (3, false)] {
            after(&mut fits, ticks, ticks);
            assert_eq!(fits.is_slow(2), slow, "{ticks}");
        }
        fits.sent(2, 99);
        (0..1000).for_each(|_| fits.tick());
        fits.lost(2);
        fits.answered(2, 99, MOST, SLOW);
        assert!(!fits.is_slow(2) && !fits.is_slow(3));
    }

    #[test]
    fn an_answer_that_does_not_come_is_late() {
        let mut fits = Fits::default();
        fits.bytes(2, MOST, SLOW);
        fits.sent(2, 9);
        (0..21).for_each(|_| fits.tick());
        fits.answered(2, 8, MOST, SLOW);
        assert_eq!((fits.bytes(2, MOST, SLOW), fits.bytes(3, MOST, SLOW)), (LEAST, MOST));
    }
}
