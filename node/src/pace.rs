//! How much is asked of another member at a time, how long it is waited for, and when what failed
//! is tried again.

use crate::config::TICK_MS;

/// Bytes of the first piece.
const FIRST: u32 = 128 << 10;
/// Bytes of the smallest one.
const LEAST: u32 = 16 << 10;
/// Nobody gives more bytes in one piece.
pub(crate) const MOST: u32 = 1 << 20;
/// A piece that came within this may be larger. Ticks.
const QUICK: u64 = 200 / TICK_MS;
/// One that took longer than this is too large. Ticks.
const SLOW: u64 = 1_000 / TICK_MS;
/// A piece is asked for again after this at the latest. Ticks.
const LONGEST_WAIT: u64 = 15_000 / TICK_MS;
/// What failed is not tried again before this, then twice as long, and so on. Ticks.
const REST: u64 = 1_000 / TICK_MS;
/// The longest time until what failed is tried again. Ticks.
pub(crate) const REST_MOST: u64 = 60_000 / TICK_MS;

/// The size of pieces that fits the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    piece: u32,
    /// How long the last piece took. Ticks.
    took: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { piece: FIRST, took: 0 }
    }
}

impl Pace {
    /// Bytes of the next piece.
    pub(crate) fn piece(&self) -> u32 {
        self.piece
    }

    /// A piece came within so many ticks: the next one may be larger or is smaller.
    pub(crate) fn came(&mut self, took: u64) {
        self.grow(took);
        if took > SLOW {
            self.shrink();
        }
    }

    /// A piece came within so many ticks. The next one may be larger; whoever asks says itself when
    /// it is smaller.
    pub(crate) fn grow(&mut self, took: u64) {
        self.took = took;
        if took <= QUICK {
            self.piece = (2 * self.piece).min(MOST);
        }
    }

    /// A piece did not come, or too late.
    pub(crate) fn shrink(&mut self) {
        self.piece = (self.piece / 2).max(LEAST);
    }

    /// How long a piece is waited for before it is asked for again. Ticks.
    pub(crate) fn wait(&self) -> u64 {
        SLOW.max(4 * self.took).min(LONGEST_WAIT)
    }
}

/// How long a piece is waited for that was asked for once more, after `wait`. Ticks.
pub(crate) fn longer_wait(wait: u64) -> u64 {
    (2 * wait).clamp(SLOW, LONGEST_WAIT)
}

/// When what failed again is tried once more, after it rested for `wait`. 0: it never failed.
/// Ticks.
pub(crate) fn longer_rest(wait: u64) -> u64 {
    (2 * wait).clamp(REST, REST_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_the_link() {
        let mut pace = Pace::default();
        assert_eq!((pace.piece(), pace.wait()), (128 << 10, 100));
        for _ in 0..5 {
            pace.came(20);
        }
        assert_eq!(pace.piece(), 1 << 20);
        pace.came(21);
        pace.came(100);
        assert_eq!((pace.piece(), pace.wait()), (1 << 20, 400), "neither quick nor slow");
        pace.came(101);
        assert_eq!((pace.piece(), pace.wait()), (512 << 10, 404));
        for _ in 0..9 {
            pace.came(900);
        }
        assert_eq!((pace.piece(), pace.wait()), (16 << 10, 1_500), "patience ends at a quarter of a minute");
    }

    #[test]
    fn waits_double_up_to_their_bounds() {
        assert_eq!([0, 60, 100, 800, 1_500].map(longer_wait), [100, 120, 200, 1_500, 1_500]);
        assert_eq!([0, 100, 3_000, 6_000].map(longer_rest), [100, 200, 6_000, 6_000]);
    }
}
