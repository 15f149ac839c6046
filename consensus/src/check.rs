//! What a message from the network must satisfy before the crate sees it.
//!
//! The crate trusts its peers and panics on contradictions. A peer may be damaged, restored from an
//! old disk, or hostile; whatever it sends, this member drops it or takes it, and lives.

use crate::Message;
use crate::message::{conf_from, snapshot_from};
use raft::eraftpb::{self, MessageType};
use std::collections::BTreeMap;

/// Rejections that contradict what a follower acknowledged, so many of them on different ticks,
/// over two election timeouts and with no acceptance in between, are no leftovers of the network.
const SUSPECT_AFTER: u32 = 4;

/// What this member knows when a message arrives.
pub(crate) struct Here {
    pub id: u64,
    pub term: u64,
    pub last: u64,
}

/// Holds for every message, whatever our state; true = take it.
pub(crate) fn is_sound(here: &Here, message: &Message) -> bool {
    let m = &message.0;
    // Term 0 would make it a local message.
    m.to == here.id
        && m.from != here.id
        && m.from != 0
        && m.term != 0
        && m.log_term <= m.term
        && match m.get_msg_type() {
            MessageType::MsgAppend => append_is_sound(m),
            MessageType::MsgAppendResponse if m.term == here.term => {
                let hint = !m.reject || m.reject_hint <= m.index;
                m.index <= here.last && hint
            }
            MessageType::MsgSnapshot => snapshot_is_sound(m),
            MessageType::MsgPropose | MessageType::MsgReadIndex => false,
            _ => true,
        }
}

fn append_is_sound(m: &eraftpb::Message) -> bool {
    // An index beyond our log has term 0 for the crate: an append "at" term 0 would match there.
    let anchored = (m.index == 0) == (m.log_term == 0);
    let mut newest = m.log_term.max(1);
    anchored
        && m.entries.iter().zip(m.index + 1..).all(|(entry, index)| {
            let rising = entry.term >= newest && entry.term <= m.term && entry.index == index;
            newest = entry.term;
            rising
        })
}

fn snapshot_is_sound(m: &eraftpb::Message) -> bool {
    let snapshot = snapshot_from(m.get_snapshot());
    let conf = conf_from(m.get_snapshot().get_metadata().get_conf_state());
    let mut ids = [&conf.voters[..], &conf.learners[..]].concat();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    let conf_is_sound = !conf.voters.is_empty() && ids.len() == count && !ids.contains(&0);
    snapshot.index > 0 && (1..=m.term).contains(&snapshot.term) && conf_is_sound
}

/// Counts, per follower, rejections that contradict its acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Suspicions {
    now: u64,
    counts: BTreeMap<u64, Contradictions>,
}

#[derive(Clone, Copy, Debug)]
struct Contradictions {
    /// Different ticks that saw one.
    ticks: u32,
    first: u64,
    last: u64,
}

impl Suspicions {
    pub fn tick(&mut self) {
        self.now += 1;
    }

    pub fn accepted(&mut self, from: u64) {
        self.counts.remove(&from);
    }

    /// True when it is time to raise it. `span`: two election timeouts, in ticks.
    pub fn contradicted(&mut self, from: u64, span: u64) -> bool {
        let now = self.now;
        let new = Contradictions { ticks: 0, first: now, last: u64::MAX };
        let seen = self.counts.entry(from).or_insert(new);
        if seen.last == now {
            return false;
        }
        seen.last = now;
        seen.ticks += 1;
        let raise = seen.ticks >= SUSPECT_AFTER && now - seen.first >= span;
        if raise {
            *seen = new;
        }
        raise
    }

    pub fn clear(&mut self) {
        self.counts.clear();
    }
}
