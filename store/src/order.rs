//! The orders a range can be answered in, and where the limit cuts: etcd's rules, its trap
//! included.
//!
//! The trap: order NONE with a target other than KEY sorts ascending by that target, but a limit
//! first takes the limit + 1 lowest *keys*. Every other sorted query looks at all keys, sorts, and
//! cuts then.

use crate::{Item, Query, SortOrder, SortTarget};
use bytes::Bytes;

impl Query {
    /// True when the answer is not in key order: the walk gives every item that counts, in key
    /// order, and [`finish`] sorts and cuts.
    pub fn needs_sort(&self) -> bool {
        !self.count_only && (self.target != SortTarget::Key || self.order == SortOrder::Descend)
    }

    /// Any filter on mod or create revision.
    pub fn has_filters(&self) -> bool {
        [self.min_mod, self.max_mod, self.min_create, self.max_create].iter().any(|bound| *bound != 0)
    }

    /// True if the answer consists of whole records, in the order of the index.
    pub fn shows_records(&self) -> bool {
        !self.keys_only && !self.count_only && !self.needs_sort()
    }

    /// True if a version passes the filters.
    pub fn admits(&self, modified: i64, create: i64) -> bool {
        (self.max_mod == 0 || modified <= self.max_mod)
            && (self.min_mod == 0 || modified >= self.min_mod)
            && (self.max_create == 0 || create <= self.max_create)
            && (self.min_create == 0 || create >= self.min_create)
    }

    /// Most items a walk hands out; None = all.
    pub(crate) fn walk_limit(&self) -> Option<i64> {
        if self.limit <= 0 {
            return None;
        }
        if !self.needs_sort() {
            return Some(self.limit);
        }
        let trap = self.order == SortOrder::None && !self.has_filters();
        trap.then(|| self.limit.saturating_add(1))
    }
}

/// Whether the answer has another order than that of keys, so that all of it must be there first.
pub fn needs_sort(query: &Query) -> bool {
    query.needs_sort()
}

/// Sorts the items of a whole walk and cuts at the limit. `value` gives the bytes of an item's
/// value and is called only for target VALUE. Ties stay in key order, also descending.
pub fn finish(query: &Query, items: Vec<Item>, value: impl Fn(&Item) -> Bytes) -> (Vec<Item>, bool) {
    let descend = query.order == SortOrder::Descend;
    let mut items = match query.target {
        SortTarget::Key => sorted(items, descend, |item| item.key.clone()),
        SortTarget::Version => sorted(items, descend, |item| item.version),
        SortTarget::Create => sorted(items, descend, |item| item.create),
        SortTarget::Mod => sorted(items, descend, |item| item.modified),
        SortTarget::Value => sorted(items, descend, value),
    };
    let limit = usize::try_from(query.limit).unwrap_or(0);
    let more = limit > 0 && items.len() > limit;
    if more {
        items.truncate(limit);
    }
    (items, more)
}

fn sorted<K: Ord>(items: Vec<Item>, descend: bool, key: impl Fn(&Item) -> K) -> Vec<Item> {
    let mut keyed: Vec<(K, Item)> = items.into_iter().map(|item| (key(&item), item)).collect();
    keyed.sort_by(|(a, _), (b, _)| if descend { b.cmp(a) } else { a.cmp(b) });
    keyed.into_iter().map(|(_, item)| item).collect()
}
