//! The kept seeds stay clean; a seed is a whole reproduction; planted bugs are found.

use sim::campaign::hunt;
use sim::plan::Plan;
use sim::planted::{BANK, Planted, table};
use sim::run::{Verdict, run, run_plan};
use sim::shrink::shrink;
use sim::sights::{NOT_YET, Sight, Sights};
use sim::trace::Mode;

/// A seed and the sights that it is run with beside the usual ones.
struct Kept {
    seed: u64,
    sights: Vec<Sight>,
}

impl Kept {
    fn of(line: &str) -> Kept {
        let mut words = line.split_whitespace();
        let seed = words.next().and_then(|n| n.parse().ok()).expect("a seed is a number");
        let names = words.next().and_then(|word| word.strip_prefix("sight:")).unwrap_or_default();
        let named = |name| Sight::named(name).unwrap_or_else(|| panic!("{name} is no sight"));
        Kept { seed, sights: names.split(',').filter(|name| !name.is_empty()).map(named).collect() }
    }

    /// The product is not there yet: it must fail.
    fn must_fail(&self) -> bool {
        NOT_YET.iter().any(|off| self.sights.contains(&off.sight))
    }

    fn run(&self) -> Verdict {
        let mut sights = Sights::default();
        self.sights.iter().for_each(|sight| sights.set(*sight, true));
        run_plan(Plan::with(self.seed, sights, self.sights.clone()), None, Mode::Hash)
    }
}

fn all_kept() -> Vec<Kept> {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(Kept::of).collect()
}

fn kept() -> Vec<u64> {
    all_kept().iter().filter(|kept| kept.sights.is_empty()).map(|kept| kept.seed).collect()
}

fn run_clean(seeds: &[u64]) {
    for &seed in seeds {
        let verdict = run(seed, None, Mode::Hash);
        assert!(verdict.failures.is_empty(), "seed {seed}: {:?}", verdict.failures);
        // A story is over after so many operations, or where turns are slow after three times its
        // time.
        let told = verdict.operations >= sim::run::OPERATIONS || verdict.simulated >= 3 * Plan::new(seed).until;
        assert!(verdict.simulated >= 30_000_000 && told, "seed {seed}: {} operations", verdict.operations);
    }
}

#[test]
fn kept_seeds_are_clean_first_half() {
    let kept = kept();
    run_clean(&kept[..kept.len() / 2]);
}

#[test]
fn kept_seeds_are_clean_second_half() {
    let kept = kept();
    run_clean(&kept[kept.len() / 2..]);
}

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    for seed in [3, 4] {
        let (once, twice) = (run(seed, None, Mode::Hash), run(seed, None, Mode::Keep(10)));
        assert_eq!((once.hash, once.events), (twice.hash, twice.events));
        assert_eq!(twice.tail.len(), 10);
    }
    assert_ne!(run(3, None, Mode::Hash).hash, run(4, None, Mode::Hash).hash);
}

#[test]
fn a_few_planted_bugs_are_found_at_once() {
    for bug in [
        Planted::SavedBeforeSync,
        Planted::ReadWithoutRound,
        Planted::WatchDrops,
        Planted::ForwardTwice,
        Planted::PrevForgotten,
    ] {
        let hunt = hunt(bug.entry(), 20);
        assert!(hunt.good(), "{hunt:?}");
    }
}

#[test]
fn seeds_of_a_sight_fail_until_it_is_survived_and_are_clean_from_then_on() {
    judge(|kept| !kept.sights.is_empty() && !kept.sights.contains(&Sight::ManyLeases));
}

/// By itself, because it takes as long as all others.
#[test]
fn seeds_with_many_leases_fail_until_that_is_survived_and_are_clean_from_then_on() {
    judge(|kept| kept.sights.contains(&Sight::ManyLeases));
}

fn judge(which: impl Fn(&Kept) -> bool) {
    for kept in all_kept().into_iter().filter(which) {
        let (verdict, Kept { seed, sights }) = (kept.run(), &kept);
        match kept.must_fail() {
            true => assert!(
                !verdict.failures.is_empty(),
                "seed {seed} with {sights:?} is clean: take the sight out of NOT_YET if its fault is mended"
            ),
            false => assert!(verdict.failures.is_empty(), "seed {seed} with {sights:?}: {:?}", verdict.failures),
        }
    }
}

#[test]
fn every_sight_that_is_off_has_a_seed_that_shows_why() {
    let kept = all_kept();
    for off in NOT_YET {
        assert!(kept.iter().any(|kept| kept.sights.contains(&off.sight)), "{:?}", off.sight);
    }
}

#[test]
fn a_failing_seed_is_made_smaller() {
    let plan = Plan::new(1);
    let faults = plan.faults.len();
    let bug = Some(Planted::PrevForgotten);
    let (small, verdict) = shrink(plan, bug, &mut |_| {}).expect("it fails");
    assert!(small.faults.len() < faults.max(1) && verdict.failures[0].oracle == "KV-1", "{small:?}");
    assert!(shrink(small, None, &mut |_| {}).is_none());
}

#[test]
fn the_page_lists_the_bank() {
    assert!(BANK.len() >= 30);
    let page = include_str!("../../docs/planted-bugs.md");
    assert_eq!(page, table(), "write it anew: cargo run -p sim --bin sim -- --planted-table > docs/planted-bugs.md");
}
