//! H-3: a member whose state is another than that of the others is found, answers nothing of it any
//! more, and is rebuilt by itself.
//!
//! Its state differs in the digest alone: what it answered before it was found is right all the
//! same, and is judged as any answer.

use crate::clients::Reader;
use crate::cluster::Sim;
use crate::plan::{MS, SECOND};
use crate::trace::Time;
use node::{Answer, Input, Request};

/// Digests that all members have, until the one that differs must be found. One may go with its
/// connection.
const MARKS: u64 = 3;
/// Between two tries to let it lead.
const LEAD_AGAIN: Time = SECOND;

/// A life of a member that is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Looked {
    /// Which of its lives; 0: none yet.
    life: u64,
    /// What it had applied when it began to serve.
    applied: u64,
}

/// A state that differs, and what became of it.
#[derive(Debug)]
pub(crate) struct Differing {
    /// It is asked to lead, and when next.
    leads: Option<Time>,
    looked: Looked,
    /// All members have digests enough since then.
    compared: Option<Time>,
    found: Option<Time>,
}

impl Differing {
    pub(crate) fn new(leads: bool) -> Differing {
        Differing { leads: leads.then_some(0), looked: Looked::default(), compared: None, found: None }
    }
}

/// What a note says of its state: nothing of it is answered, or it is served again. The alarm alone
/// does not tell: without a majority all members raise it, and serve on.
pub(crate) fn is_barred(note: &str) -> Option<bool> {
    let says = |words: &[&str]| words.iter().any(|words| note.contains(words));
    if says(&[
        "nothing of it is answered",
        "nothing is answered before the leader's",
        "answers nothing before it has",
        "answers nothing; look",
    ]) {
        Some(true)
    } else if says(&["CORRUPT is over", "has a state again", "has joined the cluster"]) {
        Some(false)
    } else {
        None
    }
}

/// An answer that was read from the state, or computed by it.
pub(crate) fn shows_state(answer: &Answer) -> bool {
    matches!(answer, Answer::Range(_) | Answer::Slice(_) | Answer::Applied { .. } | Answer::HashKv { .. })
}

impl Sim {
    /// A member that started over once is not rebuilt again so soon.
    pub(crate) fn started_over(&self, who: usize) -> bool {
        self.members[who].disk.peek("log/rebuilt").is_some()
    }

    /// Somebody's state is still another.
    pub(crate) fn any_differs(&self) -> bool {
        (0..self.members.len()).any(|who| self.oracle.differs(who))
    }

    /// A member says that it was found to differ.
    pub(crate) fn found_to_differ(&mut self, who: usize) {
        let leads = self.members[who].up.as_ref().is_some_and(|life| life.status.is_leader);
        self.marks.hit(match leads {
            true => "a state that differs was found on a leader",
            false => "a state that differs was found on a follower",
        });
        if let Some(differing) = self.hurts.get_mut(&who).and_then(|hurt| hurt.differs.as_mut()) {
            differing.found.get_or_insert(self.now);
        }
    }

    pub(crate) fn watch_differing(&mut self) {
        for who in (0..self.members.len()).filter(|who| self.oracle.differs(*who)).collect::<Vec<_>>() {
            let Some(mut differing) = self.hurts.get_mut(&who).and_then(|hurt| hurt.differs.take()) else { continue };
            self.watch_one(who, &mut differing);
            if let Some(hurt) = self.hurts.get_mut(&who) {
                hurt.differs = Some(differing);
            }
        }
    }

    fn watch_one(&mut self, who: usize, differing: &mut Differing) {
        let patience = 10 * self.plan.election_ms * MS + 5 * SECOND;
        if let Some(since) = differing.found.filter(|since| self.now > since + 2 * patience) {
            let text =
                format!("m{} was found to differ and is not rebuilt for {} ms", who + 1, (self.now - since) / MS);
            return self.fail("H-3", text);
        }
        let (number, now) = (self.members[who].life, self.now);
        let Some(life) = self.members[who].up.as_ref() else { return };
        let (applied, leads) = (life.status.applied, life.status.is_leader);
        if life.barred {
            differing.found.get_or_insert(now);
            return;
        }
        if differing.found.is_some() {
            // It has another member's state, or has none yet.
            return;
        }
        if differing.looked.life != number {
            (differing.looked, differing.compared) = (Looked { life: number, applied }, None);
        }
        self.let_it_lead(who, leads, differing);
        let every = self.plan.digest_every;
        let all = self.members.iter().map(|m| m.up.as_ref().map_or(0, |life| life.status.applied));
        let marks = (all.min().unwrap_or(0) / every).saturating_sub(differing.looked.applied / every);
        if marks < MARKS {
            return;
        }
        let since = *differing.compared.get_or_insert(now);
        if now > since + patience {
            let text = format!(
                "m{} differs, all members have {marks} digests behind entry {} for {} ms, and it goes on serving",
                who + 1,
                differing.looked.applied,
                (now - since) / MS
            );
            self.fail("H-3", text);
        }
    }

    fn let_it_lead(&mut self, who: usize, leads: bool, differing: &mut Differing) {
        let Some(leader) = self.leader() else { return };
        if leads || differing.leads.is_none_or(|due| self.now < due) {
            return;
        }
        differing.leads = Some(self.now + LEAD_AGAIN);
        let target = self.members[who].id;
        let waiter = self.waiter(leader, Reader::Epilogue { tag: 0 });
        self.give(leader, Input::Request { waiter, who: self.staff(), request: Request::MoveLeader { target } });
    }
}
