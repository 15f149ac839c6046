//! What a founder concludes from the answers of the other initial members.
//!
//! An empty directory does not say why it is empty. It belongs to a new cluster, to a member that
//! starts late, or to one that lost its disk. A member that lost its disk has voted and has
//! acknowledged writes; if it founded again, it could help a majority that never saw these writes.
//! So a founder asks the others before it writes anything.

use std::collections::BTreeMap;

/// What a member that runs says about itself and about the asker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    pub term: u64,
    /// Index of the last entry that it knows as committed.
    pub commit: u64,
    /// Index of the last entry of its log.
    pub last: u64,
    /// It is a late founder that has not caught up: others are beyond genesis.
    pub late: bool,
    /// The asker's client URLs are in the replicated list of members.
    pub published: bool,
    /// The highest index that the asker has acknowledged to this member, if this one leads; else 0.
    pub acknowledged: u64,
    /// Which founding its state is of (`store::Store::founding`); 0: it knows none yet.
    pub founding: u64,
}

/// The answer to the inquiry of a founder: how far the start of the member that is asked has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has an empty directory, too, and the same initial cluster.
    Founding,
    /// It has a data directory and is reading it. It will say more soon.
    Recovering,
    Running(Running),
}

/// What the asker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Found {
        /// The cluster was founded without it: `late` marks the directory.
        late: bool,
    },
    /// `member` is beyond genesis and has heard of the asker.
    Refuse { member: u64, running: Running },
    /// Two members are beyond genesis, and their states are of different foundings: it is not for
    /// the asker to help one of them.
    Apart { one: (u64, Running), other: (u64, Running) },
    /// Ask again.
    Wait,
}

impl Running {
    /// Nothing has happened since `founders` members were written as the first entries of term 1.
    fn at_genesis(&self, founders: u64) -> bool {
        !self.late && self.term <= 1 && self.commit <= founders && self.last <= founders
    }

    /// An asker that has no data, and was added while this cluster ran, has been here before.
    pub fn knows_a_joiner(&self) -> bool {
        self.knows_the_asker(0)
    }

    fn knows_the_asker(&self, founders: u64) -> bool {
        self.published || self.acknowledged > founders
    }
}

/// Decides from one round of questions. `answers` has every other initial member, by id; None: it
/// gave no answer.
///
/// The order of the rules matters. One member that knows the asker outweighs any majority that
/// does not, and a member that is about to say more is waited for.
pub fn decide(answers: &BTreeMap<u64, Option<Stage>>) -> Decision {
    let founders = answers.len() as u64 + 1;
    let running = || {
        answers.iter().filter_map(|(member, stage)| match stage {
            Some(Stage::Running(running)) => Some((*member, *running)),
            _ => None,
        })
    };
    let beyond = || running().filter(|(_, running)| !running.at_genesis(founders));
    if let Some((member, running)) = beyond().find(|(_, running)| running.knows_the_asker(founders)) {
        return Decision::Refuse { member, running };
    }
    let mut named = beyond().filter(|(_, running)| running.founding != 0);
    if let Some(one) = named.next()
        && let Some(other) = named.find(|(_, running)| running.founding != one.1.founding)
    {
        return Decision::Apart { one, other };
    }
    if answers.values().any(|stage| *stage == Some(Stage::Recovering)) {
        return Decision::Wait;
    }
    if beyond().next().is_some() {
        return Decision::Found { late: true };
    }
    // Whoever is left founds, or is at genesis.
    let agreeing = 1 + answers.values().flatten().count() as u64;
    if agreeing * 2 > founders { Decision::Found { late: false } } else { Decision::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUNDING: Option<Stage> = Some(Stage::Founding);
    const RECOVERING: Option<Stage> = Some(Stage::Recovering);
    const NOW: Decision = Decision::Found { late: false };
    const LATE: Decision = Decision::Found { late: true };

    fn says(running: Running) -> Option<Stage> {
        Some(Stage::Running(running))
    }

    /// Of three members, as in all tables here.
    fn genesis() -> Running {
        Running { term: 1, commit: 3, last: 3, ..Running::default() }
    }

    fn beyond() -> Running {
        Running { term: 2, commit: 9, last: 9, ..Running::default() }
    }

    fn of_three(a: Option<Stage>, b: Option<Stage>) -> Decision {
        decide(&BTreeMap::from([(1, a), (2, b)]))
    }

    #[test]
    fn one_member_founds_at_once() {
        assert_eq!(decide(&BTreeMap::new()), NOW);
    }

    #[test]
    fn a_majority_at_the_beginning_founds() {
        let table = [
            (None, None, Decision::Wait),
            (FOUNDING, None, NOW),
            (FOUNDING, FOUNDING, NOW),
            (says(genesis()), None, NOW),
            (says(genesis()), FOUNDING, NOW),
            (RECOVERING, None, Decision::Wait),
            (RECOVERING, FOUNDING, Decision::Wait),
        ];
        for (a, b, decision) in table {
            assert_eq!((of_three(a, b), of_three(b, a)), (decision, decision), "{a:?} {b:?}");
        }
        for (silent, decision) in [(1, NOW), (2, NOW), (3, Decision::Wait), (4, Decision::Wait)] {
            let answers = (1..=4).map(|member| (member, FOUNDING.filter(|_| member > silent))).collect();
            assert_eq!(decide(&answers), decision, "{silent} of 5 are silent");
        }
        // Two of four are no majority.
        let answers = BTreeMap::from([(1, FOUNDING), (2, None), (3, None)]);
        assert_eq!(decide(&answers), Decision::Wait);
    }

    #[test]
    fn whoever_knows_the_asker_ends_the_founding() {
        let knows = [Running { published: true, ..beyond() }, Running { acknowledged: 4, ..beyond() }];
        for running in knows {
            let refused = Decision::Refuse { member: 2, running };
            for other in [None, FOUNDING, RECOVERING, says(genesis()), says(beyond())] {
                assert_eq!(of_three(other, says(running)), refused, "{other:?}");
            }
        }
        // A leader's first guess of what a follower has is no acknowledgement.
        for acknowledged in 0..=3 {
            assert_eq!(of_three(None, says(Running { acknowledged, ..beyond() })), LATE);
        }
    }

    #[test]
    fn a_late_founder_needs_no_majority_and_waits_for_who_recovers() {
        let table = [
            (None, LATE),
            (FOUNDING, LATE),
            (says(genesis()), LATE),
            (says(beyond()), LATE),
            (RECOVERING, Decision::Wait),
        ];
        for (other, decision) in table {
            assert_eq!(of_three(other, says(beyond())), decision, "{other:?}");
        }
    }

    #[test]
    fn two_foundings_are_told_apart() {
        let of = |founding| Running { founding, ..beyond() };
        let (one, other) = ((1, of(5)), (2, of(6)));
        assert_eq!(of_three(says(of(5)), says(of(6))), Decision::Apart { one, other });
        for (a, b) in [(5, 5), (5, 0), (0, 6), (0, 0)] {
            assert_eq!(of_three(says(of(a)), says(of(b))), LATE, "{a} {b}");
        }
        // Whoever knows the asker comes first, and a member at genesis has no part in it.
        let running = Running { published: true, ..of(5) };
        assert_eq!(of_three(says(running), says(of(6))), Decision::Refuse { member: 1, running });
        assert_eq!(of_three(says(of(5)), says(Running { founding: 6, ..genesis() })), LATE);
    }

    #[test]
    fn every_step_behind_genesis_counts() {
        for running in [
            Running { term: 2, ..genesis() },
            Running { commit: 4, ..genesis() },
            Running { last: 4, ..genesis() },
            Running { late: true, ..genesis() },
        ] {
            assert_eq!(of_three(FOUNDING, says(running)), LATE, "{running:?}");
        }
    }
}
