//! What the permissions of a user, or the deletes of a transaction, add up to: intervals of keys,
//! merged, so that one look-up says whether a key or a range lies in them without a gap.

use crate::KeyRange;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Half-open intervals of keys. They do not overlap and do not touch. No end: every key from the
/// begin on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// Begin to end.
    spans: BTreeMap<Bytes, Option<Bytes>>,
}

/// The range as begin and end. A single key is the interval up to the next possible key.
fn span(range: &KeyRange) -> (Bytes, Option<Bytes>) {
    let end = match &range.end {
        None => Some(Bytes::from([&range.key[..], b"\0"].concat())),
        Some(end) if end.is_empty() => None,
        Some(end) => Some(end.clone()),
    };
    (range.key.clone(), end)
}

/// The end `a` lies at `b` or behind it.
fn reaches(a: &Option<Bytes>, b: &Option<Bytes>) -> bool {
    match (a, b) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(a), Some(b)) => a >= b,
    }
}

impl Intervals {
    /// Everything that lies in one of the ranges.
    pub fn of<'r>(ranges: impl IntoIterator<Item = &'r KeyRange>) -> Intervals {
        let mut all = Intervals::default();
        ranges.into_iter().for_each(|range| all.add(range));
        all
    }

    /// Adds everything that lies in the range.
    pub(crate) fn add(&mut self, range: &KeyRange) {
        if !range.is_empty() {
            let (begin, end) = span(range);
            self.add_span(begin, end);
        }
    }

    fn add_span(&mut self, mut begin: Bytes, mut end: Option<Bytes>) {
        let before = self.spans.range::<Bytes, _>(..=&begin).next_back();
        if let Some((first, _)) = before.filter(|(_, its_end)| reaches(its_end, &Some(begin.clone()))) {
            begin = first.clone();
        }
        // Those that it overlaps or touches become one with it.
        while let Some((next, its_end)) = self.spans.range::<Bytes, _>(&begin..).next()
            && reaches(&end, &Some(next.clone()))
        {
            let next = next.clone();
            if reaches(its_end, &end) {
                end = its_end.clone();
            }
            self.spans.remove(&next);
        }
        self.spans.insert(begin, end);
    }

    /// Adds everything that lies in the others.
    pub(crate) fn join(&mut self, mut others: Intervals) {
        if others.spans.len() > self.spans.len() {
            std::mem::swap(self, &mut others);
        }
        others.spans.into_iter().for_each(|(begin, end)| self.add_span(begin, end));
    }

    /// The end of the interval that the key lies in; None in it: it has none. None: it lies in
    /// none.
    pub(crate) fn end_behind(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (_, end) = self.spans.range::<[u8], _>(upto).next_back()?;
        end.as_ref().is_none_or(|end| key < &end[..]).then_some(end.as_ref())
    }

    /// True if the key lies in the intervals.
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        self.end_behind(key).is_some()
    }

    /// True if every key of the range lies in the intervals. A range whose end is not behind its
    /// key holds no key; it is covered, as in etcd, where one interval holds both of its ends.
    pub fn cover(&self, range: &KeyRange) -> bool {
        let (begin, end) = span(range);
        if range.is_empty() {
            let end = end.expect("a range without end is not empty");
            let below = self.spans.range(..end).next_back();
            return below.is_some_and(|(_, its_end)| its_end.as_ref().is_none_or(|its_end| begin < *its_end));
        }
        let found = self.spans.range(..=begin).next_back();
        found.is_some_and(|(_, its_end)| reaches(its_end, &end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(key: &[u8], end: &[u8]) -> KeyRange {
        KeyRange::new(key, end)
    }

    #[test]
    fn neighbours_are_one_interval_and_gaps_are_not() {
        let mut granted = vec![range(b"b", b"c"), range(b"a", b"b")];
        let all = Intervals::of(&granted);
        assert!(all.cover(&range(b"a", b"c")) && all.cover(&range(b"b", b"")));
        assert!(!all.cover(&range(b"a", b"c\0")) && !all.cover(&range(b"c", b"")));
        granted.push(range(b"d", b"e"));
        let all = Intervals::of(&granted);
        assert!(!all.cover(&range(b"a", b"e")));
        assert!(!all.cover(&range(b"a", b"\0")), "an open end needs an open permission");
        granted.push(range(b"c", b"\0"));
        let all = Intervals::of(&granted);
        assert!(all.cover(&range(b"a", b"\0")));
        assert_eq!(all.spans.len(), 1);
    }

    #[test]
    fn a_single_key_is_no_prefix() {
        let one = Intervals::of(&[range(b"k", b"")]);
        assert!(one.cover(&range(b"k", b"")) && one.cover(&range(b"k", b"k\0")));
        assert!(!one.cover(&range(b"k\0", b"")) && !one.cover(&range(b"k", b"\0")) && !one.cover(&range(b"k", b"l")));
    }

    /// Every key of up to three letters out of three: dense enough that each gap shows.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for _ in 0..3 {
            let longer: Vec<Vec<u8>> =
                keys.iter().flat_map(|key| [0u8, b'a', b'b'].map(|c| [&key[..], &[c]].concat())).collect();
            keys.extend(longer);
        }
        keys.retain(|key| !key.is_empty());
        keys.sort();
        keys.dedup();
        keys
    }

    proptest! {
        /// The model: a set of all small keys, each permitted by one of the ranges.
        #[test]
        fn coverage_is_that_of_every_key(
            granted in prop::collection::vec(("[\0ab]{1,2}", "[\0ab]{0,2}"), 0..6),
            key in "[\0ab]{1,2}", end in "[\0ab]{0,2}",
        ) {
            let granted: Vec<KeyRange> =
                granted.iter().map(|(key, end)| range(key.as_bytes(), end.as_bytes())).collect();
            let all = Intervals::of(&granted);
            let asked = range(key.as_bytes(), end.as_bytes());
            let inside: Vec<Vec<u8>> = keys().into_iter().filter(|key| asked.contains(key)).collect();
            let permitted = inside.iter().all(|key| granted.iter().any(|range| range.contains(key)));
            if !asked.is_empty() {
                // Beyond the longest key of the model an open end is seen in the ranges alone.
                let open = asked.end.as_ref().is_some_and(Bytes::is_empty);
                let reaches = granted.iter().any(|range| range.end.as_ref().is_some_and(Bytes::is_empty));
                prop_assert_eq!(all.cover(&asked), permitted && (!open || reaches));
            }
            let spans: Vec<_> = all.spans.iter().collect();
            for pair in spans.windows(2) {
                prop_assert!(pair[0].1.as_ref().is_some_and(|end| end < pair[1].0), "apart: {:?}", spans);
            }
        }
    }
}
