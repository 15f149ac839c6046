//! Time that a member did not live through: its process stood still, or one turn took long.
//!
//! What others sent meanwhile is heard behind it. So that time counts for an election only when the
//! member has lived a heartbeat longer and still heard no leader. If it never counted, a member of
//! slow turns would wait many election timeouts for a leader that is gone.

/// Ticks that are not counted yet.
#[derive(Debug, Default)]
pub(crate) struct Away {
    ticks: u64,
    /// Ticks lived through since the first of them.
    lived: u64,
}

impl Away {
    /// So many ticks went by unlived. More than `most` of them tell nothing new.
    pub fn add(&mut self, ticks: u64, most: u64) {
        self.ticks = self.ticks.saturating_add(ticks).min(most);
    }

    /// A leader was heard, or a vote was given: the silence ends here.
    pub fn clear(&mut self) {
        *self = Away::default();
    }

    /// One more tick is lived through. The ticks that count from now on. `heartbeat`: in ticks.
    pub fn tick(&mut self, heartbeat: u64) -> u64 {
        if self.ticks == 0 {
            return 0;
        }
        self.lived += 1;
        if self.lived <= heartbeat {
            return 0;
        }
        std::mem::take(self).ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_a_heartbeat_later_unless_a_leader_was_heard() {
        let mut away = Away::default();
        away.add(30, 100);
        away.add(90, 100);
        assert_eq!([away.tick(2), away.tick(2), away.tick(2), away.tick(2)], [0, 0, 100, 0]);
        away.add(30, 100);
        away.tick(2);
        away.clear();
        assert_eq!([away.tick(2), away.tick(2), away.tick(2)], [0, 0, 0]);
    }
}
