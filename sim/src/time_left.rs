//! L-8: the time left to a lease, as members tell it, is what the renewals before say. It grows by
//! no question, and less than was promised is never left.

use crate::clock::Clock;
use crate::plan::{MS, SECOND};
use crate::trace::Time;
use std::collections::BTreeMap;

/// Two ticks, and what a turn takes.
const TICKS: Time = 300 * MS;
/// A renewal whose client has given up may still arrive so long after.
const LATE: Time = 5 * SECOND;

/// A question, from the moment it was sent to its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub sent: Time,
    pub answered: Time,
}

/// No more than this was left at the end of `over`.
#[derive(Clone, Copy, Debug)]
struct Told {
    over: Span,
    most: Time,
}

/// What is known of one life of a lease.
#[derive(Debug, Default)]
struct Known {
    /// The entry that granted it.
    granted: u64,
    /// The newest answered renewal, and the TTL.
    renewed: Option<(Span, Time)>,
    told: Option<Told>,
}

/// All that was told.
#[derive(Debug, Default)]
pub(crate) struct TimesLeft {
    lives: BTreeMap<i64, Known>,
    /// Renewals without an answer: their lease, and until when they may count.
    open: BTreeMap<u64, (i64, Time)>,
}

impl TimesLeft {
    pub(crate) fn renewal_sent(&mut self, tag: u64, lease: i64, until: Time) {
        self.open.insert(tag, (lease, until + LATE));
    }

    /// `granted`: the entry that began the life that was renewed; None: that is not known.
    pub(crate) fn renewed(&mut self, tag: u64, lease: i64, granted: Option<u64>, over: Span, ttl: i64) {
        self.open.remove(&tag);
        let Some(known) = self.life(lease, granted) else { return };
        let ttl = ttl as u64 * SECOND;
        if known.renewed.is_none_or(|(newest, _)| newest.sent < over.sent) {
            known.renewed = Some((over, ttl));
        }
        known.told = Some(Told { over, most: ttl });
    }

    /// `seconds` are said to be left. `steady`: since then one member leads, and none stood still
    /// while it was asked. What is wrong with it.
    pub(crate) fn told(
        &mut self,
        lease: i64,
        granted: Option<u64>,
        over: Span,
        seconds: i64,
        steady: Option<Time>,
    ) -> Option<String> {
        let lives = &mut self.lives;
        self.open.retain(|_, (other, until)| {
            let waits = *until > over.sent;
            if !waits && let Some(known) = lives.get_mut(other) {
                // Whether it counted is not known, so neither is what is left by now.
                known.told = None;
            }
            waits
        });
        let renewing = self.open.values().any(|(other, _)| *other == lease);
        let known = self.life(lease, granted)?;
        let passed = |from: Time, to: Time, percent: u64| to.saturating_sub(from) * percent / 100;
        let before = known.told.filter(|told| !renewing && steady.is_some_and(|since| since < told.over.sent));
        let most = before.map(|told| {
            let passed = passed(told.over.answered, over.sent, 100 - Clock::RHO);
            (told.most + TICKS).saturating_sub(passed) / SECOND
        });
        let least = known.renewed.filter(|(renewal, _)| renewal.answered <= over.sent).map(|(renewal, ttl)| {
            let passed = passed(renewal.sent, over.answered, 100 + Clock::RHO);
            ttl.saturating_sub(passed + TICKS) / SECOND
        });
        let left = seconds as u64;
        known.told = (!renewing).then_some(Told { over, most: (left + 1) * SECOND });
        let wrong = most.is_some_and(|most| left > most) || least.is_some_and(|least| left < least);
        wrong.then(|| {
            format!("lease {lease} is said to have {left} s; at most {most:?}, at least {least:?} are left {before:?}")
        })
    }

    /// None: which life it is is not known, so nothing is known of it.
    fn life(&mut self, lease: i64, granted: Option<u64>) -> Option<&mut Known> {
        let Some(granted) = granted else {
            self.lives.remove(&lease);
            return None;
        };
        let known = self.lives.entry(lease).or_default();
        if known.granted != granted {
            *known = Known { granted, ..Known::default() };
        }
        Some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: i64 = 7;

    fn at(second: u64) -> Span {
        Span { sent: second * SECOND, answered: second * SECOND + MS }
    }

    fn renewed() -> TimesLeft {
        let mut times = TimesLeft::default();
        times.renewal_sent(1, LEASE, 12 * SECOND);
        times.renewed(1, LEASE, Some(5), at(10), 6);
        times
    }

    #[test]
    fn what_is_left_follows_from_the_last_renewal() {
        for (seconds, right) in [(1, false), (2, true), (3, true), (4, false), (6, false)] {
            let said = renewed().told(LEASE, Some(5), at(13), seconds, Some(SECOND));
            assert_eq!(said.is_none(), right, "{seconds}: {said:?}");
        }
    }

    #[test]
    fn it_grows_by_a_renewal_another_leader_or_another_life_alone() {
        let mut times = renewed();
        assert_eq!(times.told(LEASE, Some(5), at(13), 3, Some(SECOND)), None);
        // Another member leads since then.
        assert_eq!(times.told(LEASE, Some(5), at(15), 6, Some(14 * SECOND)), None);
        // A renewal is under way.
        times.renewal_sent(2, LEASE, 18 * SECOND);
        assert_eq!(times.told(LEASE, Some(5), at(17), 6, Some(14 * SECOND)), None);
        // Another life of the id.
        assert_eq!(times.told(LEASE, Some(9), at(19), 6, Some(14 * SECOND)), None);
        assert!(times.told(LEASE, Some(9), at(40), 6, Some(14 * SECOND)).is_none(), "nothing is known of before");
        assert!(times.told(LEASE, Some(9), at(45), 6, Some(14 * SECOND)).is_some());
    }

    #[test]
    fn a_renewal_without_an_answer_may_have_counted() {
        let mut times = renewed();
        times.renewal_sent(2, LEASE, 14 * SECOND);
        // At 14 s nobody waits for it any more; it may have arrived until 19 s.
        assert_eq!(times.told(LEASE, Some(5), at(20), 5, Some(SECOND)), None);
        assert!(times.told(LEASE, Some(5), at(21), 6, Some(SECOND)).is_some());
    }
}
