//! Key ranges: etcd's `key` / `range_end` pair, normalised once. The same object is checked
//! (permissions, duplicate keys) and executed.

use crate::KeyRange;
use bytes::Bytes;
use std::ops::Bound;

/// Lower and upper bound for an ordered map.
pub(crate) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl KeyRange {
    /// etcd's rules: no end = the single key; end `\0` = every key from `key` on; else
    /// `[key, range_end)`.
    pub fn new(key: &[u8], range_end: &[u8]) -> KeyRange {
        let end = match range_end {
            b"" => None,
            b"\0" => Some(Bytes::new()),
            end => Some(Bytes::copy_from_slice(end)),
        };
        KeyRange { key: Bytes::copy_from_slice(key), end }
    }

    /// Every key there is.
    pub fn all() -> KeyRange {
        KeyRange { key: Bytes::new(), end: Some(Bytes::new()) }
    }

    /// Whether a key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            None => key == self.key,
            Some(end) => key >= &self.key[..] && (end.is_empty() || key < &end[..]),
        }
    }

    /// True for an end at or before the key: no key lies in it.
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, Some(end) if !end.is_empty() && *end <= self.key)
    }

    /// True if some key could lie in both.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        fn below_end(key: &[u8], range: &KeyRange) -> bool {
            match &range.end {
                None => key <= &range.key[..],
                Some(end) => end.is_empty() || key < &end[..],
            }
        }
        !self.is_empty() && !other.is_empty() && below_end(&self.key, other) && below_end(&other.key, self)
    }

    /// Bounds for an ordered map; None when no key can match.
    pub fn bounds(&self) -> Option<Bounds<'_>> {
        if self.is_empty() {
            return None;
        }
        let upper = match &self.end {
            None => Bound::Included(&self.key[..]),
            Some(end) if end.is_empty() => Bound::Unbounded,
            Some(end) => Bound::Excluded(&end[..]),
        };
        Some((Bound::Included(&self.key[..]), upper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_rules() {
        let keys: [&[u8]; 5] = [b"\0", b"a", b"a\0", b"b", b"\xff"];
        let inside = |key: &[u8], end: &[u8]| {
            let range = KeyRange::new(key, end);
            keys.iter().map(|k| if range.contains(k) { '1' } else { '.' }).collect::<String>()
        };
        assert_eq!(inside(b"a", b""), ".1...");
        assert_eq!(inside(b"a", b"b"), ".11..");
        assert_eq!(inside(b"a", b"\0"), ".1111");
        assert_eq!(inside(b"\0", b"\0"), "11111");
        assert_eq!(inside(b"b", b"a"), ".....");
        assert_eq!(inside(b"a", b"a"), ".....");
        assert!(KeyRange::new(b"b", b"a").is_empty());
        assert!(KeyRange::new(b"b", b"a").bounds().is_none());
        assert!(!KeyRange::new(b"b", b"\0").is_empty());
    }

    #[test]
    fn overlap_agrees_with_contains() {
        let ends: [&[u8]; 5] = [b"", b"\0", b"a", b"b", b"c"];
        let keys: [&[u8]; 4] = [b"\0", b"a", b"b", b"c"];
        let probes: [&[u8]; 7] = [b"\0", b"\0\0", b"a", b"a\0", b"b", b"b\0", b"c"];
        for (k1, e1) in keys.iter().flat_map(|k| ends.iter().map(move |e| (k, e))) {
            for (k2, e2) in keys.iter().flat_map(|k| ends.iter().map(move |e| (k, e))) {
                let (one, two) = (KeyRange::new(k1, e1), KeyRange::new(k2, e2));
                let both = probes.iter().any(|p| one.contains(p) && two.contains(p));
                assert_eq!(one.overlaps(&two), both, "{one:?} {two:?}");
            }
        }
    }
}
