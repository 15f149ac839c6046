//! `--auto-compaction-*`: the leader proposes compactions by itself.

use crate::core::Core;
use crate::log::{self, json};
use crate::options::AutoCompaction;
use node::{Answer, Request};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How often the revision mode looks.
const REVISION_EVERY: Duration = Duration::from_secs(300);
/// In periodic mode the revision is written down this many times per retention.
const SAMPLES: u32 = 10;
const HOUR: Duration = Duration::from_secs(3600);

/// Runs for the life of the member.
pub(crate) async fn run(core: Core, mode: AutoCompaction) {
    let mut stopping = core.stopping();
    let every = match mode {
        AutoCompaction::Periodic(keep) => keep.min(HOUR) / SAMPLES,
        AutoCompaction::Revision(_) => REVISION_EVERY,
    };
    let mut plan = Plan::new(mode);
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(every) => {}
        }
        let asked = core.ask(node::Who::Member, Request::Status, core.settings().request_timeout()).await;
        let Answer::Status(status) = asked.answer else { continue };
        let Some(revision) = plan.next(Instant::now(), status.revision) else { continue };
        if status.is_leader && revision > status.compacted && revision > 0 {
            compact(&core, revision).await;
        }
    }
}

async fn compact(core: &Core, revision: i64) {
    log::info("starting auto compaction", &[("revision", json!(revision))]);
    let request = Request::Compact { revision, physical: false };
    match core.ask(node::Who::Member, request, core.settings().request_timeout()).await.answer {
        Answer::Applied { result: Ok(_) | Err(store::Error::Compacted), .. } => {
            log::info("completed auto compaction", &[("revision", json!(revision))]);
        }
        other => log::warn(
            "failed auto compaction",
            &[("revision", json!(revision)), ("error", json!(format!("{other:?}")))],
        ),
    }
}

/// When to compact, and up to where.
struct Plan {
    mode: AutoCompaction,
    /// (when, revision) of the last retention, oldest first.
    seen: VecDeque<(Instant, i64)>,
    last: Option<Instant>,
}

impl Plan {
    fn new(mode: AutoCompaction) -> Plan {
        Plan { mode, seen: VecDeque::new(), last: None }
    }

    /// The revision to compact at now, if any. Called at each look with the store's revision.
    fn next(&mut self, now: Instant, revision: i64) -> Option<i64> {
        match self.mode {
            AutoCompaction::Revision(keep) => Some(revision - keep).filter(|target| *target > 0),
            AutoCompaction::Periodic(keep) => {
                self.seen.push_back((now, revision));
                let mut old = None;
                while let Some((at, seen)) = self.seen.front().copied() {
                    if now.duration_since(at) < keep {
                        break;
                    }
                    old = Some(seen);
                    self.seen.pop_front();
                }
                let target = old?;
                // What was read stays the newest known revision of that age.
                self.seen.push_front((now - keep, target));
                if self.last.is_some_and(|last| now.duration_since(last) < keep.min(HOUR)) {
                    return None;
                }
                self.last = Some(now);
                Some(target)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_keeps_what_was_current_within_the_retention() {
        let keep = Duration::from_secs(100);
        let start = Instant::now();
        let mut plan = Plan::new(AutoCompaction::Periodic(keep));
        let mut done = Vec::new();
        for look in 0..=30_u64 {
            let at = Duration::from_secs(look * 10);
            // Revision equals seconds.
            if let Some(revision) = plan.next(start + at, at.as_secs() as i64) {
                done.push((at.as_secs(), revision));
            }
        }
        assert_eq!(done, [(100, 0), (200, 100), (300, 200)]);
    }

    #[test]
    fn revision_mode_keeps_a_number_of_revisions() {
        let mut plan = Plan::new(AutoCompaction::Revision(10));
        assert_eq!(plan.next(Instant::now(), 10), None);
        assert_eq!(plan.next(Instant::now(), 25), Some(15));
    }
}
