//! What other members say that no member can mean. It is refused, counted, and told.

use crate::config::TICK_MS;
use crate::ground::Ground;
use crate::io::*;
use consensus::{Implausible, Standing};
use store::protobuf::Malformed;

/// At most one line of each kind in this time. Ticks.
const TOLD_AGAIN: u64 = 60_000 / TICK_MS;

/// One kind of it.
#[derive(Default)]
struct Kind {
    count: u64,
    told: Option<u64>,
}

impl Kind {
    /// Whether it is to be told.
    fn count(&mut self, now: u64, more: u64) -> bool {
        self.count += more;
        let due = self.told.is_none_or(|told| now - told >= TOLD_AGAIN);
        if due {
            self.told = Some(now);
        }
        due
    }
}

#[derive(Default)]
pub(crate) struct Nonsense {
    numbers: Kind,
    commands: Kind,
}

impl Nonsense {
    /// A message or a standing whose numbers are too far ahead.
    pub(crate) fn implausible(&mut self, g: &mut Ground, from: u64, what: Implausible) {
        if self.numbers.count(g.now, 1) {
            g.note(Level::Warn, format!("refused what member {from:x} says: {what} of this member"));
        }
    }

    /// Forwarded commands that are none.
    pub(crate) fn no_commands(&mut self, g: &mut Ground, from: u64, malformed: &[Malformed]) {
        let Some(first) = malformed.first() else { return };
        if self.commands.count(g.now, malformed.len() as u64) {
            g.note(Level::Warn, format!("refused a command that member {from:x} forwards: {first}"));
        }
    }

    pub(crate) fn figures(&self) -> NonsenseFigures {
        NonsenseFigures { numbers: self.numbers.count, commands: self.commands.count }
    }
}

/// Whether a member can stand so.
///
/// # Errors
/// One of its numbers is too far ahead of this member's.
pub(crate) fn plausible(g: &Ground, standing: &Standing) -> Result<(), Implausible> {
    let Standing { term, last, leads: _, doubt, commit, acknowledged, wrote } = standing;
    let promise = doubt.and_then(|doubt| doubt.promise);
    let places = [Some(*last), Some(*commit), promise, *acknowledged, *wrote].into_iter().flatten();
    let (mut terms, mut indexes) = (*term, Vec::new());
    for place in places {
        terms = terms.max(place.term);
        indexes.push(place.index);
    }
    g.consensus.plausible(terms, &indexes)
}
