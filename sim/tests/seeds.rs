//! The kept seeds stay clean; a seed is a whole reproduction; planted bugs are found.

use sim::campaign::hunt;
use sim::planted::{BANK, Planted, table};
use sim::run::run;
use sim::trace::Mode;

fn kept() -> Vec<u64> {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next()).map(|n| n.parse().expect("a seed is a number")).collect()
}

fn run_clean(seeds: &[u64]) {
    for &seed in seeds {
        let verdict = run(seed, None, Mode::Hash);
        assert!(verdict.failures.is_empty(), "seed {seed}: {:?}", verdict.failures);
        assert!(verdict.simulated >= 30_000_000 && verdict.operations >= sim::run::OPERATIONS);
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
fn the_page_lists_the_bank() {
    assert!(BANK.len() >= 15);
    let page = include_str!("../../docs/planted-bugs.md");
    assert_eq!(page, table(), "write it anew: cargo run -p sim --bin sim -- --planted-table > docs/planted-bugs.md");
}
