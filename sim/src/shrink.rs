//! A failing seed made smaller: parts of its plan are taken out while the same check still fails.

use crate::plan::Plan;
use crate::planted::Planted;
use crate::run::{Verdict, run_plan};
use crate::trace::Mode;

/// Most runs that a shrink may take.
const RUNS: u32 = 400;

struct Shrink<'a> {
    planted: Option<Planted>,
    /// The check that must go on failing.
    check: &'static str,
    runs: u32,
    say: &'a mut dyn FnMut(&str),
}

impl Shrink<'_> {
    fn fails(&mut self, plan: &Plan) -> bool {
        if self.runs >= RUNS {
            return false;
        }
        self.runs += 1;
        let verdict = run_plan(plan.clone(), self.planted, Mode::Hash);
        verdict.failures.first().is_some_and(|f| f.oracle == self.check)
    }

    /// Takes the smaller plan if it still fails.
    fn take(&mut self, plan: &mut Plan, what: &str, smaller: impl FnOnce(&mut Plan)) -> bool {
        let mut tried = plan.clone();
        smaller(&mut tried);
        let fails = self.fails(&tried);
        if fails {
            (self.say)(what);
            *plan = tried;
        }
        fails
    }

    fn faults(&mut self, plan: &mut Plan) {
        // Large pieces first, then one by one.
        let mut piece = plan.faults.len().div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < plan.faults.len() {
                let end = (at + piece).min(plan.faults.len());
                let what = format!("without faults {at} to {}", end - 1);
                if !self.take(plan, &what, |p| drop(p.faults.drain(at..end))) {
                    at = end;
                }
            }
            piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
        }
    }

    fn settings(&mut self, plan: &mut Plan) {
        for members in [1, 3, 5] {
            if members < plan.members && self.take(plan, &format!("{members} members"), |p| p.members = members) {
                break;
            }
        }
        for kind in 0..plan.workload.weights.len() {
            if plan.workload.weights[kind] > 0 {
                let what = format!("no {}", crate::client::KINDS[kind].name);
                self.take(plan, &what, |p| p.workload.weights[kind] = 0);
            }
        }
        while plan.workload.clients > 1 && self.take(plan, "a client less", |p| p.workload.clients -= 1) {}
        self.take(plan, "no breaks", |p| p.breaks = 0);
        self.take(plan, "true clocks", |p| p.skew.iter_mut().for_each(|s| *s = 0));
        self.take(plan, "large budgets", |p| p.small_budgets = false);
    }
}

/// The smallest plan found, and its verdict; None when the plan does not fail.
pub fn shrink(plan: Plan, planted: Option<Planted>, say: &mut dyn FnMut(&str)) -> Option<(Plan, Verdict)> {
    let first = run_plan(plan.clone(), planted, Mode::Hash);
    let check = first.failures.first()?.oracle;
    let mut plan = plan;
    let mut shrink = Shrink { planted, check, runs: 0, say };
    shrink.faults(&mut plan);
    shrink.settings(&mut plan);
    shrink.faults(&mut plan);
    let verdict = run_plan(plan.clone(), planted, Mode::Hash);
    Some((plan, verdict))
}
