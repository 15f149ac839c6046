//! A shorter script with the same difference.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{
    plant::Plant,
    run::{Difference, Pair, Run},
    step::Step,
};

/// How long shrinking may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Drops steps as long as the last one still differs: halves first, single
/// steps at the end. A difference of another kind of step does not count.
pub async fn shrink(pair: &Pair, script: &[Step], found: &Difference) -> Result<(Vec<Step>, Difference)> {
    let mut best = (script[..=found.at].to_vec(), found.clone());
    let deadline = Instant::now() + PATIENCE;
    let mut size = best.0.len().div_ceil(2);
    while size > 0 && Instant::now() < deadline {
        let mut at = 0;
        let mut shorter = false;
        while at + 1 < best.0.len() && Instant::now() < deadline {
            // The last step is the one that differs.
            let end = (at + size).min(best.0.len() - 1);
            let mut candidate = best.0.clone();
            candidate.drain(at..end);
            match differs(pair, &candidate).await {
                Some(difference) if same_kind(&difference, found) => {
                    candidate.truncate(difference.at + 1);
                    best = (candidate, difference);
                    shorter = true;
                }
                _ => at = end,
            }
        }
        if size > 1 || !shorter {
            size /= 2;
        }
    }
    Ok(best)
}

async fn differs(pair: &Pair, script: &[Step]) -> Option<Difference> {
    let dir = tempfile::tempdir().ok()?;
    let mut run = Run::start(pair, dir.path()).await.ok()?;
    run.script(script, None::<(usize, Plant)>).await.ok()?
}

fn same_kind(one: &Difference, other: &Difference) -> bool {
    let kind = |found: &Difference| match found.step.bare() {
        Step::Call(call) => (std::mem::discriminant(found.step.bare()), Some(call.request().0)),
        step => (std::mem::discriminant(step), None),
    };
    kind(one) == kind(other)
}
