//! Goodput against load: over links that are full, eight times as many clients get no less done.
//!
//! Without faults, because nothing but the load shall differ. What is committed is counted, not
//! what is asked for or sent.

use crate::client::KINDS;
use crate::oracle::Failure;
use crate::plan::{MS, Plan, SECOND};
use crate::run::run_plan;
use crate::sights::Sights;
use crate::trace::Mode;

/// Clients that fill the links, and many more.
const CLIENTS: [usize; 2] = [8, 64];
/// What the many get done, in percent of the few.
const LEAST: u64 = 80;

/// Bytes committed a second by the few and by the many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goodput {
    pub few: u64,
    pub many: u64,
}

impl Goodput {
    /// The many get much less done.
    pub fn falls(self) -> bool {
        self.many * 100 < self.few * LEAST
    }
}

fn plan(seed: u64, clients: usize) -> Plan {
    let mut plan = Plan::with(seed, Sights::none(), Vec::new());
    plan.members = 3;
    plan.skew = vec![0; 3];
    plan.faults.clear();
    plan.until = 25 * SECOND;
    (plan.election_ms, plan.heartbeat_ms) = (1_000, 100);
    (plan.delay, plan.breaks, plan.flush) = (500, 0, 300);
    plan.small_budgets = false;
    plan.checkpoint_bytes = 64 << 20;
    (plan.segment_bytes, plan.log_segment_bytes) = (16 << 20, 16 << 20);
    // As in the story that was told: 2.5 MB/s, and values of up to 100 kB.
    plan.bandwidth = 2_500_000;
    plan.workload.clients = clients;
    plan.workload.think = MS;
    plan.workload.deadline = 5 * SECOND;
    plan.workload.weights = KINDS.iter().map(|kind| u64::from(kind.name == "put")).collect();
    (plan.workload.value, plan.workload.long) = (100_000, 100);
    (plan.workload.many, plan.workload.stalls) = (false, false);
    plan
}

/// Both runs of a seed, and what they broke.
pub fn judge(seed: u64) -> (Goodput, Vec<Failure>) {
    let [few, many] = CLIENTS.map(|clients| run_plan(plan(seed, clients), None, Mode::Hash));
    let goodput = Goodput { few: few.goodput, many: many.goodput };
    let mut failures = [few.failures, many.failures].concat();
    if goodput.falls() {
        let text = format!("{goodput:?} bytes committed a second by {CLIENTS:?} clients");
        failures.push(Failure { at: many.simulated, oracle: "B-2", text });
    }
    (goodput, failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_get_no_less_done_over_full_links() {
        for seed in [1, 2] {
            let (goodput, failures) = judge(seed);
            assert!(failures.is_empty(), "seed {seed}: {failures:?}");
            assert!(goodput.few > 500_000, "the links are not full: {goodput:?}");
        }
        assert!(Goodput { few: 2_250_000, many: 450_000 }.falls(), "as it once was");
    }
}
