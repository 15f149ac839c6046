//! When a leader says again what a follower did not answer.
//!
//! The crate sends an append for every answer to a heartbeat: a probe once more, and one beyond the
//! window when the window is full. Each round of reads is a heartbeat, so on a slow link that is a
//! hundred appends a second behind the one that is still under way. Here the answer to an append
//! opens the way, and a heartbeat only after a wait that doubles.

use std::collections::BTreeMap;

/// Longest wait, in election timeouts.
const WAIT_MOST: u64 = 16;

/// Followers that were sent all they may be sent, and have not answered.
#[derive(Debug, Default)]
pub(crate) struct Again {
    now: u64,
    waits: BTreeMap<u64, Wait>,
}

/// Ticks: when the last append may have left, and how long it is waited for.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: u64,
    ticks: u64,
}

impl Again {
    pub fn tick(&mut self) {
        self.now += 1;
    }

    /// `id` answered an append.
    pub fn answered(&mut self, id: u64) {
        self.waits.remove(&id);
    }

    /// The connection to `id` broke: what was under way is gone, so nothing is waited for.
    pub fn lost(&mut self, id: u64) {
        self.waits.insert(id, Wait { since: self.now, ticks: 0 });
    }

    /// A heartbeat of `id` came back while appends wait for their answer: true when it is time to
    /// send one again. `first`: how long the first answer is waited for; `election`: both in ticks.
    pub fn is_due(&mut self, id: u64, first: u64, election: u64) -> bool {
        let now = self.now;
        let wait = self.waits.entry(id).or_insert(Wait { since: now, ticks: first });
        if now - wait.since < wait.ticks {
            return false;
        }
        *wait = Wait { since: now, ticks: (2 * wait.ticks).clamp(first, first.max(WAIT_MOST * election)) };
        true
    }

    pub fn clear(&mut self) {
        self.waits.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_end_with_an_answer() {
        let mut again = Again::default();
        let mut at = Vec::new();
        for tick in 0..400 {
            if again.is_due(7, 1, 4) {
                at.push(tick);
            }
            again.tick();
        }
        assert_eq!(at, [1, 3, 7, 15, 31, 63, 127, 191, 255, 319, 383]);
        again.answered(7);
        assert!(!again.is_due(7, 1, 4));
        again.tick();
        assert!(again.is_due(7, 1, 4));
        again.lost(7);
        assert!(again.is_due(7, 1, 4) && !again.is_due(7, 1, 4));
    }
}
