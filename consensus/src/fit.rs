//! How much one append carries to each follower: what fits the link to it.
//!
//! What comes later waits behind the append that is on its way. On a slow link a long append takes
//! an election timeout, and a next leader's first entry waits as long behind it, or begins with the
//! same append. So an append to a follower whose answers take long is short, and
//! becomes longer as they come quickly.

use std::collections::BTreeMap;

/// Bytes of entries in the shortest append.
pub(crate) const LEAST: u64 = 16 << 10;
/// A link is taken to carry at least so much in a heartbeat, until it has shown more.
const CARRIED: u64 = 8 << 10;

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
    /// An append that was sent and is not acknowledged.
    unanswered: Option<Sent>,
    /// The last answer was.
    late: bool,
    /// Bytes of the newest append.
    newest: u64,
    /// Bytes of the longest append that was answered in time since an answer was late.
    shown: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    last: u64,
    since: u64,
    bytes: u64,
}

impl Fits {
    /// Time goes on.
    pub fn tick(&mut self) {
        self.now += 1;
    }

    /// Bytes of entries in the next append to this follower: `most`, or what fits. An answer that
    /// takes more than `slow` ticks is late.
    pub fn bytes(&mut self, to: u64, most: u64, slow: u64) -> u64 {
        let new = Fit { bytes: most, unanswered: None, late: false, newest: 0, shown: 0 };
        let fit = self.of.entry(to).or_insert(new);
        if fit.unanswered.is_some_and(|sent| self.now > sent.since + slow) {
            (fit.bytes, fit.unanswered) = (LEAST.min(most), None);
        }
        fit.bytes
    }

    /// How long the answer to what was sent last is waited for before it is sent again, in ticks.
    /// `slow`: as in [`Fits::bytes`]. What is still on its way is not lost: a second copy makes the
    /// link slower yet.
    pub fn patience(&self, to: u64, heartbeat: u64, slow: u64) -> u64 {
        let Some(fit) = self.of.get(&to) else { return heartbeat };
        let least = if fit.late { slow.max(heartbeat) } else { heartbeat };
        if fit.newest <= fit.shown { least } else { least.max(fit.newest * heartbeat / CARRIED) }
    }

    /// The connection to this follower broke: what was under way is gone.
    pub fn lost(&mut self, to: u64) {
        if let Some(fit) = self.of.get_mut(&to) {
            fit.unanswered = None;
        }
    }

    /// An append that ends with entry `last` leaves, with so many bytes of entries.
    pub fn sent(&mut self, to: u64, last: u64, bytes: u64) {
        if let Some(fit) = self.of.get_mut(&to) {
            fit.newest = bytes;
            fit.unanswered.get_or_insert(Sent { last, since: self.now, bytes });
        }
    }

    /// A follower has acknowledged everything up to `index`. `slow`: as in [`Fits::bytes`]. An
    /// answer within a quarter of that is quick.
    pub fn answered(&mut self, from: u64, index: u64, most: u64, slow: u64) {
        let Some(fit) = self.of.get_mut(&from) else { return };
        let Some(sent) = fit.unanswered.take_if(|sent| sent.last <= index) else { return };
        let took = self.now - sent.since;
        fit.late = took > slow;
        if fit.late {
            (fit.bytes, fit.shown) = (LEAST.min(most), 0);
            return;
        }
        fit.shown = fit.shown.max(sent.bytes);
        if took <= slow / 4 {
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
        fits.sent(2, last, LEAST);
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

    const HEARTBEAT: u64 = 5;

    #[test]
    fn a_follower_is_slow_by_its_last_answer_and_not_by_a_connection_that_broke() {
        let mut fits = Fits::default();
        let patience = |fits: &Fits, to| fits.patience(to, HEARTBEAT, SLOW);
        for (ticks, waits) in [(20, HEARTBEAT), (21, SLOW), (3, HEARTBEAT)] {
            after(&mut fits, ticks, ticks);
            assert_eq!(patience(&fits, 2), waits, "{ticks}");
        }
        fits.sent(2, 99, LEAST);
        (0..1000).for_each(|_| fits.tick());
        fits.lost(2);
        fits.answered(2, 99, MOST, SLOW);
        assert_eq!((patience(&fits, 2), patience(&fits, 3)), (HEARTBEAT, HEARTBEAT));
    }

    #[test]
    fn a_long_append_is_waited_for_until_the_link_has_shown_that_it_carries_it() {
        let mut fits = Fits::default();
        let long = 40 * CARRIED;
        let patience = |fits: &Fits| fits.patience(2, HEARTBEAT, SLOW);
        after(&mut fits, 1, 5);
        fits.sent(2, 6, long);
        assert_eq!(patience(&fits), 40 * HEARTBEAT);
        fits.answered(2, 6, MOST, SLOW);
        fits.sent(2, 7, long);
        assert_eq!(patience(&fits), HEARTBEAT, "it came through in time");
        (0..=SLOW).for_each(|_| fits.tick());
        fits.answered(2, 7, MOST, SLOW);
        fits.sent(2, 8, long);
        assert_eq!(patience(&fits), 40 * HEARTBEAT, "and now it did not");
        fits.sent(2, 9, 100);
        assert_eq!(patience(&fits), SLOW);
    }

    #[test]
    fn an_answer_that_does_not_come_is_late() {
        let mut fits = Fits::default();
        fits.bytes(2, MOST, SLOW);
        fits.sent(2, 9, LEAST);
        (0..21).for_each(|_| fits.tick());
        fits.answered(2, 8, MOST, SLOW);
        assert_eq!((fits.bytes(2, MOST, SLOW), fits.bytes(3, MOST, SLOW)), (LEAST, MOST));
    }
}
