//! Ranges inside of a transaction: who answers nobody does not run them, and a long one is run in
//! steps behind the entry. What it sees is decided when the entry is applied.

use crate::command::RangeRequest;
use crate::parked::Step;
use crate::state::Store;
use crate::walk::Walk;
use crate::{KeyRange, OpReply, Query, RangeReply, Reply, Rev};
use bytes::Bytes;

/// Who waits for what an entry answers. The state becomes the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// Nobody: ranges are checked and not run. Their replies are empty.
    #[default]
    Nobody,
    /// Somebody who wants all of it at once.
    Whole,
    /// Somebody who goes on with it ([`Store::go_on`]).
    InSteps,
}

/// Keys that the ranges of one entry may look at when it is applied, if its answer is gathered in
/// steps: what waits for its turn is small.
const AT_ONCE: usize = 1_000;

/// The ranges of one entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    asked: Asked,
    /// Keys that they may still look at.
    keys: usize,
    holds: Option<i64>,
}

impl Ranges {
    pub(crate) fn new(asked: Asked) -> Ranges {
        let keys = if asked == Asked::InSteps { AT_ONCE } else { usize::MAX };
        Ranges { asked, keys, holds: None }
    }

    pub(crate) fn in_steps() -> Ranges {
        Ranges::new(Asked::InSteps)
    }

    /// The revision that must stay readable until the answer is whole; None: it is.
    pub(crate) fn holds(&self) -> Option<i64> {
        self.holds
    }
}

impl RangeReply {
    /// What nobody reads.
    fn nothing() -> RangeReply {
        let range = KeyRange { key: Bytes::new(), end: None };
        RangeReply { query: Query::all(range), items: Vec::new(), count: 0, more: false, rest: None }
    }
}

impl Store {
    /// `newest`: for a reader at this place of the transaction; `before`: of that revision, only
    /// what came before this change.
    pub(crate) fn run_range(
        &self,
        range: &RangeRequest<'_>,
        newest: i64,
        before: Option<Rev>,
        step: &mut Step,
        ranges: &mut Ranges,
    ) -> OpReply {
        let reply = match ranges.asked {
            Asked::Nobody => RangeReply::nothing(),
            Asked::Whole | Asked::InSteps => {
                let mut walk = self.walk_at(range.query(), newest).expect("checked before");
                walk.ends_before(before);
                let items = Vec::new();
                let mut reply = RangeReply { query: range.query(), items, count: 0, more: false, rest: None };
                let most = if ranges.asked == Asked::Whole { usize::MAX } else { ranges.keys.min(step.keys) };
                let mut this = Step { keys: most, bytes: 0 };
                let whole = self.go_on_with(&mut reply, &mut walk, &mut this);
                let took = most - this.keys;
                (ranges.keys, step.keys) = (ranges.keys.saturating_sub(took), step.keys.saturating_sub(took));
                if !whole {
                    ranges.holds = Some(ranges.holds.map_or(walk.holds(), |holds| holds.min(walk.holds())));
                    reply.rest = Some(Box::new(walk));
                }
                reply
            }
        };
        OpReply { revision: newest, reply: Reply::Range(reply) }
    }

    /// Goes on with an answer that is not whole. The revision that it holds
    /// ([`crate::Applied::holds`]) must be pinned meanwhile. What its items take is taken from
    /// `room`, in bytes. True: it is whole.
    pub fn go_on(&self, reply: &mut Reply, step: &mut Step, room: &mut u64) -> bool {
        match reply {
            Reply::Range(range) => {
                let Some(mut walk) = range.rest.take() else { return true };
                let before = range.items.len();
                let whole = self.go_on_with(range, &mut walk, step);
                let took: usize = range.items[before..].iter().map(|item| size_of_val(item) + item.key.len()).sum();
                *room = room.saturating_sub(took as u64);
                range.rest = Some(walk).filter(|_| !whole);
                whole
            }
            Reply::Txn { responses, .. } => responses.iter_mut().all(|one| self.go_on(&mut one.reply, step, room)),
            _ => true,
        }
    }

    fn go_on_with(&self, reply: &mut RangeReply, walk: &mut Walk, step: &mut Step) -> bool {
        if step.keys == 0 {
            return false;
        }
        let before = walk.visited();
        let slice = self.advance(walk, step.keys);
        step.keys -= (walk.visited() - before).min(step.keys);
        if reply.items.is_empty() {
            reply.items = slice.items;
        } else {
            reply.items.extend(slice.items);
        }
        let Some(finished) = slice.finished else { return false };
        (reply.count, reply.more) = (finished.count, finished.more);
        true
    }
}
