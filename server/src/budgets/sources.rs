//! What each source holds of budgets whose holders decide how long they hold them: calls that are
//! open, and requests that are not whole.
//!
//! Such a budget may be full for as long as one client likes. So each source may hold seven times
//! as much as is free, as with places for connections: alone seven of eight, and whoever comes next
//! finds room.

use super::Budget;
use crate::sockets::Origin;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Of what is free, a source may hold so many times as much.
pub(crate) const SHARE: u64 = 7;

/// What the connections of one source hold of such a budget.
#[derive(Debug, Default)]
pub(crate) struct Part(AtomicU64);

/// What the connections of one source hold.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) calls: Part,
    pub(crate) inbound: Part,
    pub(crate) json_requests: Part,
}

/// Those that have connections. None: nobody's.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<BTreeMap<Option<Origin>, Weak<Source>>>);

impl Sources {
    pub(super) fn of(&self, from: Option<Origin>) -> Arc<Source> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = from.map(Origin::source);
        if let Some(source) = sources.get(&from).and_then(Weak::upgrade) {
            return source;
        }
        // A new one comes seldom: who left goes then.
        sources.retain(|_, source| source.strong_count() > 0);
        let source = Arc::new(Source::default());
        sources.insert(from, Arc::downgrade(&source));
        source
    }
}

impl Budget {
    /// Takes if it fits and leaves their part to other sources; a refusal is counted.
    pub(crate) fn try_share(&self, part: &Part, bytes: u64) -> bool {
        let held = part.0.load(Ordering::Relaxed).saturating_add(bytes);
        let free = self.limit().saturating_sub(self.used().saturating_add(bytes));
        if bytes > 0 && held > free.saturating_mul(SHARE) {
            self.count_full();
            return false;
        }
        let fits = self.try_take(bytes);
        if fits {
            part.0.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Gives back what was taken so.
    pub(crate) fn give_share(&self, part: &Part, bytes: u64) {
        self.give(bytes);
        let before = part.0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{}: a source gave back more than it held", self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> Option<Origin> {
        Some(Origin::Host([10, 0, 0, last].into()))
    }

    #[test]
    fn a_source_that_takes_all_it_can_leaves_the_rest_to_others() {
        let (budget, sources) = (Budget::new("calls", 1000), Sources::default());
        let mut taken = Vec::new();
        for last in 1..=3 {
            let source = sources.of(from(last));
            let mut count = 0;
            while budget.try_share(&source.calls, 1) {
                count += 1;
            }
            taken.push((source, count));
        }
        assert_eq!(taken[0].1, 875);
        assert!(taken[1].1 > 100 && taken[2].1 > 10, "{taken:?}");
        assert_eq!(budget.times_full(), 3);
        for (source, count) in taken {
            budget.give_share(&source.calls, count);
        }
        assert_eq!(budget.used(), 0);
        assert_eq!(sources.of(from(1)).calls.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn connections_of_one_source_share_and_who_left_is_forgotten() {
        let sources = Sources::default();
        let one = sources.of(from(1));
        assert!(Arc::ptr_eq(&one, &sources.of(from(1))));
        assert!(!Arc::ptr_eq(&one, &sources.of(from(2))));
        drop(one);
        let _other = sources.of(None);
        assert_eq!(sources.0.lock().unwrap().len(), 1);
    }
}
