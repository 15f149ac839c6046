//! What became of an attack, and whether the member bore it.

use std::time::Duration;

use super::honest::{Noticed, Times};
use super::kinds::Attack;

/// The member's `--memory-budget`, and the bound of what it may take. MiB.
pub(super) const BUDGET: u64 = 512;
/// What a call of the honest client may take at the 99th percentile, against calm, and at most.
const TIMES_CALM: u32 = 3;
const MOST: Duration = Duration::from_millis(150);
/// Less than this is the scheduler's: attackers, client and member share the processors.
const NOISE: Duration = Duration::from_millis(40);
/// A follower that starts again while its port is under attack serves within this.
const STARTED: Duration = Duration::from_secs(3);

/// What is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Against {
    Kvorum,
    Etcd,
}

impl Against {
    pub(super) fn name(self) -> &'static str {
        match self {
            Against::Kvorum => "kvorum",
            Against::Etcd => "etcd",
        }
    }
}

/// Anonymous memory of the member, in MiB.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) before: u64,
    pub(super) peak: u64,
    pub(super) after: u64,
}

/// What became of one attack.
pub(super) struct Row {
    pub(super) attack: &'static Attack,
    pub(super) against: Against,
    /// What the honest client noticed before, meanwhile, and from the attack's end on.
    pub(super) calm: Noticed,
    pub(super) under: Noticed,
    pub(super) after: Noticed,
    pub(super) memory: Memory,
    pub(super) done: u64,
    pub(super) closed: u64,
    /// What the member counted of that, in its own words.
    pub(super) refused: String,
    /// What it must not do, and did.
    pub(super) breaches: Vec<String>,
    /// How long a follower took that was started again; none: none was.
    pub(super) started: Option<Duration>,
    pub(super) ended: Option<String>,
}

pub(super) fn millis(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

/// What a kind of call may take at the 99th percentile.
fn bound(name: &str, calm: &Times) -> Duration {
    let thrice = (TIMES_CALM * calm.at(99)).max(NOISE);
    // A password takes its time to be compared, however calm it is.
    if name == "logins" { thrice } else { thrice.min(MOST) }
}

impl Row {
    /// What went wrong, if anything did.
    pub(super) fn harm(&self) -> Vec<String> {
        if let Some(end) = &self.ended {
            return vec![end.clone()];
        }
        let mut harm = Vec::new();
        for (when, noticed) in [("during", &self.under), ("after", &self.after)] {
            for ((name, now), (_, calm)) in noticed.kinds().into_iter().zip(self.calm.kinds()) {
                let (took, bound) = (now.at(99), bound(name, calm));
                if took > bound {
                    harm.push(format!("{name} {when}: {} ms, at most {}", millis(took), millis(bound)));
                }
                if now.failed > 0 {
                    harm.push(format!("{name} {when}: {} failed", now.failed));
                }
            }
        }
        let grown = self.memory.peak.saturating_sub(self.memory.before);
        if grown > BUDGET {
            harm.push(format!("memory grew by {grown} MiB"));
        }
        if let Some(started) = self.started.filter(|started| *started > STARTED) {
            harm.push(format!("a follower served {} ms after its start", millis(started)));
        }
        harm.extend(self.breaches.iter().cloned());
        harm
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::attack::kinds::ALL;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn noticed(millis: u64) -> Noticed {
        let mut noticed = Noticed::default();
        (0..200).for_each(|_| noticed.puts.add(ms(millis), ms(millis)));
        noticed
    }

    pub(in crate::attack) fn row(calm: u64, under: u64) -> Row {
        Row {
            attack: &ALL[0],
            against: Against::Kvorum,
            calm: noticed(calm),
            under: noticed(under),
            after: noticed(calm),
            memory: Memory::default(),
            done: 0,
            closed: 0,
            refused: String::new(),
            breaches: Vec::new(),
            started: None,
            ended: None,
        }
    }

    fn harm(row: &Row) -> String {
        row.harm().join("; ")
    }

    #[test]
    fn slow_calls_are_harm_by_both_bounds() {
        assert_eq!(harm(&row(1, 1)), "");
        // Below what the scheduler does.
        assert_eq!(harm(&row(1, 40)), "");
        assert_eq!(harm(&row(1, 41)), "puts during: 41.0 ms, at most 40.0");
        assert_eq!(harm(&row(30, 90)), "");
        assert_eq!(harm(&row(30, 91)), "puts during: 91.0 ms, at most 90.0");
        // Three times calm, and 150 ms.
        assert_eq!(harm(&row(100, 151)), "puts during: 151.0 ms, at most 150.0");
        let mut late = row(1, 1);
        late.after = noticed(500);
        assert_eq!(harm(&late), "puts after: 500.0 ms, at most 40.0");
    }

    #[test]
    fn logins_may_take_three_times_what_they_take_calm() {
        let mut row = row(1, 1);
        row.calm.logins.add(ms(70), ms(500));
        row.under.logins.add(ms(200), ms(500));
        assert_eq!(harm(&row), "");
        row.under.logins.add(ms(220), ms(500));
        assert_eq!(harm(&row), "logins during: 220.0 ms, at most 210.0");
    }

    #[test]
    fn failed_calls_memory_breaches_and_an_end_are_harm() {
        let mut row = row(1, 1);
        row.under.renewals.failed = 2;
        assert_eq!(harm(&row), "keep-alives during: 2 failed");
        row.under.renewals.failed = 0;
        row.memory = Memory { before: 30, peak: 30 + BUDGET, after: 30 };
        assert_eq!(harm(&row), "");
        row.memory.peak += 1;
        assert_eq!(harm(&row), "memory grew by 513 MiB");
        row.memory.peak = 0;
        row.started = Some(ms(3_001));
        row.breaches = vec!["took one for two".into()];
        assert_eq!(harm(&row), "a follower served 3001.0 ms after its start; took one for two");
        row.ended = Some("it ended".into());
        assert_eq!(harm(&row), "it ended");
    }
}
