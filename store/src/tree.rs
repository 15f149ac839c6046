//! An ordered map from keys to entry numbers that is small and can count.
//!
//! A B+tree whose leaves hold their keys front-coded: each record says how many bytes it shares
//! with the key before it and gives the rest. Inner nodes keep, for each child, how many *live*
//! keys lie below it, so that counting a range visits two paths, not the range. A record of a leaf
//! is
//!
//! ```text
//! shared bytes  varint | bytes that follow  varint | those bytes | number << 1 | live  u32
//! ```
//!
//! `shared` is exactly the length of the longest common prefix with the key before; 0 for the
//! first. Front-coding in blocks: Witten, Moffat, Bell, "Managing Gigabytes", ch. 4; counted
//! B+trees: Knuth, "The Art of Computer Programming" 3, 6.2.3.

use std::cmp::Ordering;
use std::ops::Bound;

/// A leaf is split beyond so many keys, or so many bytes if it holds two keys or more.
const LEAF_KEYS: usize = 64;
const LEAF_BYTES: usize = 2048;
/// An inner node is split beyond so many children.
const CHILDREN: usize = 64;
/// Bytes by which a leaf grows at least: few reallocations, little slack.
const GROWTH: usize = 128;
/// Bytes of number and liveness.
const WORD: usize = 4;
/// Most bytes of the two lengths before a record's key, unless they are huge.
const HEAD_MOST: usize = 8;

/// Keys, each with a number below 2^31 and whether it is live.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Node,
    live: u64,
    len: u64,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    Inner(Box<Inner>),
}

#[derive(Clone, Debug, Default)]
struct Leaf {
    records: Vec<u8>,
    keys: usize,
}

#[derive(Clone, Debug)]
struct Inner {
    children: Vec<Child>,
    /// Between two children: above every key of the left one, not above any of the right one.
    separators: Vec<Box<[u8]>>,
}

#[derive(Clone, Debug)]
struct Child {
    live: u64,
    node: Node,
}

/// What a node gave away because it was full.
struct Split {
    separator: Box<[u8]>,
    live: u64,
    node: Node,
}

/// One record of a leaf, where it lies.
struct Record {
    at: usize,
    shared: usize,
    rest: usize,
    word: usize,
    end: usize,
}

/// Where a key is, or would be: before the record at `at`.
struct Spot {
    at: usize,
    found: bool,
    /// Bytes shared with the key before.
    common: usize,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { root: Node::Leaf(Leaf::default()), live: 0, len: 0 }
    }
}

impl Tree {
    /// Live keys.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<u32> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => node = &inner.children[inner.child_of(key)].node,
                Node::Leaf(leaf) => {
                    let spot = leaf.find(key);
                    return spot.found.then(|| leaf.word(&leaf.record(spot.at)).0);
                }
            }
        }
    }

    /// # Panics
    /// If the key is there already, or the number is 2^31 or above.
    pub(crate) fn insert(&mut self, key: &[u8], number: u32, live: bool) {
        self.len += 1;
        self.live += u64::from(live);
        let split = self.root.insert(key, pack(number, live));
        self.grow(split);
    }

    /// As [`Tree::insert`] for a key above all that are there: `shared` is the length of what it
    /// has in common with the last of them, and nothing is searched.
    pub(crate) fn append(&mut self, key: &[u8], shared: usize, number: u32, live: bool) {
        self.len += 1;
        self.live += u64::from(live);
        let split = self.root.append(key, shared, pack(number, live));
        self.grow(split);
    }

    /// The root gets a sibling, and both a parent.
    fn grow(&mut self, split: Option<Split>) {
        if let Some(split) = split {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Leaf::default()));
            let left = Child { live: self.live - split.live, node: left };
            let right = Child { live: split.live, node: split.node };
            let inner = Inner { children: vec![left, right], separators: vec![split.separator] };
            self.root = Node::Inner(Box::new(inner));
        }
    }

    /// # Panics
    /// If the key is not there.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let was_live = self.root.remove(key);
        self.len -= 1;
        self.live -= u64::from(was_live);
        while let Node::Inner(inner) = &mut self.root {
            match inner.children.len() {
                0 => self.root = Node::Leaf(Leaf::default()),
                1 => self.root = inner.children.pop().expect("one child").node,
                _ => break,
            }
        }
    }

    /// # Panics
    /// If the key is not there, or is live already, or dead already.
    pub(crate) fn set_live(&mut self, key: &[u8], live: bool) {
        let mut node = &mut self.root;
        count(&mut self.live, live);
        loop {
            match node {
                Node::Inner(inner) => {
                    let child = inner.child_of(key);
                    let child = &mut inner.children[child];
                    count(&mut child.live, live);
                    node = &mut child.node;
                }
                Node::Leaf(leaf) => return leaf.set_live(key, live),
            }
        }
    }

    /// Live keys within the bounds, which must not cross. Two paths are visited.
    pub(crate) fn count_live(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> u64 {
        let below = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.live_before(key, false),
            Bound::Excluded(key) => self.live_before(key, true),
        };
        let upto = match to {
            Bound::Unbounded => self.live,
            Bound::Included(key) => self.live_before(key, true),
            Bound::Excluded(key) => self.live_before(key, false),
        };
        upto.checked_sub(below).expect("bounds do not cross")
    }

    /// Live keys before `key`, and `key` itself if `inclusive`.
    fn live_before(&self, key: &[u8], inclusive: bool) -> u64 {
        let mut node = &self.root;
        let mut before = 0;
        loop {
            match node {
                Node::Inner(inner) => {
                    let child = inner.child_of(key);
                    before += inner.children[..child].iter().map(|child| child.live).sum::<u64>();
                    node = &inner.children[child].node;
                }
                Node::Leaf(leaf) => return before + leaf.live_before(key, inclusive),
            }
        }
    }

    /// Calls `each` with the keys within the bounds, in order, until it answers false.
    /// The bounds must not cross.
    pub(crate) fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, each: impl FnMut(&[u8], u32) -> bool) {
        self.scan_of(from, to, false, each);
    }

    /// As [`Tree::scan`], less those that are not live. They cost nothing where they lie together.
    pub(crate) fn scan_live(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, each: impl FnMut(&[u8], u32) -> bool) {
        self.scan_of(from, to, true, each);
    }

    fn scan_of(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, live: bool, mut each: impl FnMut(&[u8], u32) -> bool) {
        let from = match from {
            Bound::Unbounded => None,
            Bound::Included(key) => Some((key, true)),
            Bound::Excluded(key) => Some((key, false)),
        };
        let to = match to {
            Bound::Unbounded => None,
            Bound::Included(key) => Some((key, true)),
            Bound::Excluded(key) => Some((key, false)),
        };
        self.root.scan(from, to, live, &mut Vec::new(), &mut each);
    }
}

/// A key, and whether it belongs to the range itself.
type Edge<'a> = Option<(&'a [u8], bool)>;

impl Node {
    fn insert(&mut self, key: &[u8], word: u32) -> Option<Split> {
        match self {
            Node::Leaf(leaf) => leaf.insert(key, word),
            Node::Inner(inner) => inner.insert(key, word),
        }
    }

    fn append(&mut self, key: &[u8], shared: usize, word: u32) -> Option<Split> {
        match self {
            Node::Leaf(leaf) => leaf.append(key, shared, word),
            Node::Inner(inner) => inner.append(key, shared, word),
        }
    }

    /// Whether the key was live.
    fn remove(&mut self, key: &[u8]) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.remove(key),
            Node::Inner(inner) => inner.remove(key),
        }
    }

    /// `live`: of the live ones alone.
    fn scan(
        &self,
        from: Edge,
        to: Edge,
        live: bool,
        key: &mut Vec<u8>,
        each: &mut impl FnMut(&[u8], u32) -> bool,
    ) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.scan(from, to, live, key, each),
            Node::Inner(inner) => {
                let first = from.map_or(0, |(key, _)| inner.child_of(key));
                let last = to.map_or(inner.children.len() - 1, |(key, _)| inner.child_of(key));
                (first..=last).all(|i| {
                    let from = from.filter(|_| i == first);
                    let to = to.filter(|_| i == last);
                    let child = &inner.children[i];
                    live && child.live == 0 || child.node.scan(from, to, live, key, each)
                })
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.keys == 0,
            Node::Inner(inner) => inner.children.is_empty(),
        }
    }

    /// True if `right`, which follows behind `separator`, was taken in: both together leave room.
    fn absorb(&mut self, separator: &[u8], right: &mut Node) -> bool {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.absorb(right),
            (Node::Inner(left), Node::Inner(right)) => {
                let fits = left.children.len() + right.children.len() <= CHILDREN / 2;
                if fits {
                    left.separators.push(separator.into());
                    left.separators.append(&mut right.separators);
                    left.children.append(&mut right.children);
                }
                fits
            }
            _ => unreachable!("siblings are of one height"),
        }
    }
}

impl Inner {
    fn child_of(&self, key: &[u8]) -> usize {
        self.separators.partition_point(|separator| **separator <= *key)
    }

    fn insert(&mut self, key: &[u8], word: u32) -> Option<Split> {
        let i = self.child_of(key);
        let child = &mut self.children[i];
        child.live += u64::from(word & 1);
        let split = child.node.insert(key, word)?;
        self.take_in(i, split)
    }

    fn append(&mut self, key: &[u8], shared: usize, word: u32) -> Option<Split> {
        let i = self.children.len() - 1;
        let child = &mut self.children[i];
        child.live += u64::from(word & 1);
        let split = child.node.append(key, shared, word)?;
        self.take_in(i, split)
    }

    /// What child `i` gave away stands behind it.
    fn take_in(&mut self, i: usize, split: Split) -> Option<Split> {
        let Split { separator, live, node } = split;
        self.children[i].live -= live;
        self.separators.insert(i, separator);
        self.children.insert(i + 1, Child { live, node });
        if self.children.len() <= CHILDREN {
            return None;
        }
        // Keys that come in order fill what they leave behind.
        let at = if i + 2 == self.children.len() { CHILDREN } else { self.children.len() / 2 };
        let children = self.children.split_off(at);
        let separators = self.separators.split_off(at);
        let separator = self.separators.pop().expect("one for each child but the first");
        let live = children.iter().map(|child| child.live).sum();
        Some(Split { separator, live, node: Node::Inner(Box::new(Inner { children, separators })) })
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let i = self.child_of(key);
        let child = &mut self.children[i];
        let was_live = child.node.remove(key);
        child.live -= u64::from(was_live);
        if child.node.is_empty() {
            self.children.remove(i);
            if !self.separators.is_empty() {
                self.separators.remove(i.saturating_sub(1));
            }
        } else if !(i > 0 && self.merge(i - 1)) && i + 1 < self.children.len() {
            self.merge(i);
        }
        was_live
    }

    /// True if child `i` took in the one behind it.
    fn merge(&mut self, i: usize) -> bool {
        let (left, right) = self.children.split_at_mut(i + 1);
        let (left, right) = (&mut left[i], &mut right[0]);
        let merged = left.node.absorb(&self.separators[i], &mut right.node);
        if merged {
            left.live += right.live;
            self.children.remove(i + 1);
            self.separators.remove(i);
        }
        merged
    }
}

impl Leaf {
    fn record(&self, at: usize) -> Record {
        let (shared, len, behind) = head(&self.records[at..]);
        let rest = self.records.len() - behind.len();
        Record { at, shared, rest, word: rest + len, end: rest + len + WORD }
    }

    fn rest(&self, record: &Record) -> &[u8] {
        &self.records[record.rest..record.word]
    }

    /// Number and liveness.
    fn word(&self, record: &Record) -> (u32, bool) {
        let word = u32::from_le_bytes(self.records[record.word..record.end].try_into().expect("four bytes"));
        (word >> 1, word & 1 == 1)
    }

    /// Without building any key: a record is compared by what it shares with the one before.
    fn find(&self, key: &[u8]) -> Spot {
        let (mut left, mut common) = (&self.records[..], 0);
        while !left.is_empty() {
            let (shared, len, behind) = head(left);
            let at = self.records.len() - left.len();
            match shared.cmp(&common) {
                // It differs from the one before only behind where that already differed from
                // `key`.
                Ordering::Greater => {}
                // It left the common prefix upwards.
                Ordering::Less => return Spot { at, found: false, common },
                Ordering::Equal => {
                    let (rest, wanted) = (&behind[..len], &key[common..]);
                    let same = common_prefix(rest, wanted);
                    match rest.get(same).cmp(&wanted.get(same)) {
                        Ordering::Less => common += same,
                        Ordering::Equal => return Spot { at, found: true, common },
                        Ordering::Greater => return Spot { at, found: false, common },
                    }
                }
            }
            left = &behind[len + WORD..];
        }
        Spot { at: self.records.len(), found: false, common }
    }

    fn insert(&mut self, key: &[u8], word: u32) -> Option<Split> {
        let Spot { at, found, common } = self.find(key);
        assert!(!found, "a key is inserted once");
        let mut new = Vec::with_capacity(key.len() - common + 16);
        put_record(&mut new, common, &[&key[common..]], word);
        let mut replaced = at..at;
        if at < self.records.len() {
            // The one behind may share more with the new key than with the one before.
            let next = self.record(at);
            if next.shared == common {
                let more = common_prefix(self.rest(&next), &key[common..]);
                put_head(&mut new, common + more, next.word - next.rest - more);
                replaced.end = next.rest + more;
            }
        }
        self.replace(replaced, &new);
        self.keys += 1;
        self.is_crowded().then(|| {
            let last = at + new.len() >= self.records.len();
            self.split(last)
        })
    }

    /// Leaves what [`Leaf::insert`] would leave, room apart.
    fn append(&mut self, key: &[u8], shared: usize, word: u32) -> Option<Split> {
        let at = self.records.len();
        if self.records.capacity() - at < key.len() - shared + HEAD_MOST + WORD {
            self.records.reserve_exact(key.len() - shared + GROWTH);
        }
        put_record(&mut self.records, shared, &[&key[shared..]], word);
        self.keys += 1;
        if !self.is_crowded() {
            return None;
        }
        self.records.truncate(at);
        self.keys -= 1;
        self.records.shrink_to(at + GROWTH);
        let mut right = Leaf { records: Vec::with_capacity(at), keys: 1 };
        put_record(&mut right.records, 0, &[key], word);
        Some(Split { separator: key[..shared + 1].into(), live: u64::from(word & 1), node: Node::Leaf(right) })
    }

    fn is_crowded(&self) -> bool {
        self.keys > LEAF_KEYS || (self.keys > 1 && self.records.len() > LEAF_BYTES)
    }

    fn replace(&mut self, range: std::ops::Range<usize>, new: &[u8]) {
        let len = self.records.len() - range.len() + new.len();
        if self.records.capacity() < len {
            self.records.reserve_exact(len - self.records.len() + GROWTH);
        }
        self.records.splice(range, new.iter().copied());
    }

    /// Gives away the upper half, or the last record alone: keys that come in order fill what they
    /// leave behind.
    fn split(&mut self, last_alone: bool) -> Split {
        let (mut key, mut kept, mut at) = (Vec::new(), 0, 0);
        let half = self.records.len() / 2;
        let record = loop {
            let record = self.record(at);
            key.truncate(record.shared);
            key.extend_from_slice(self.rest(&record));
            let here = if last_alone { record.end == self.records.len() } else { at >= half };
            // Each side keeps one at least.
            if kept > 0 && (here || record.end == self.records.len()) {
                break record;
            }
            kept += 1;
            at = record.end;
        };
        let separator = key[..record.shared + 1].into();
        let mut right = Leaf { records: Vec::new(), keys: self.keys - kept };
        let (number, live) = self.word(&record);
        let behind = &self.records[record.end..];
        right.records.reserve_exact(behind.len() + key.len() + 16 + GROWTH);
        put_record(&mut right.records, 0, &[&key], pack(number, live));
        right.records.extend_from_slice(behind);
        self.records.truncate(at);
        if !last_alone {
            self.records.shrink_to(at + GROWTH);
        }
        self.keys = kept;
        Split { separator, live: right.live(), node: Node::Leaf(right) }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Spot { at, found, .. } = self.find(key);
        assert!(found, "a key that is not there is not removed");
        let record = self.record(at);
        let (_, live) = self.word(&record);
        let mut replaced = record.at..record.end;
        let mut new = Vec::new();
        if record.end < self.records.len() {
            let next = self.record(record.end);
            if next.shared > record.shared {
                // What the next one shared with this one alone it must say itself.
                let own = &self.rest(&record)[..next.shared - record.shared];
                put_head(&mut new, record.shared, own.len() + next.word - next.rest);
                new.extend_from_slice(own);
                replaced.end = next.rest;
            }
        }
        self.replace(replaced, &new);
        self.keys -= 1;
        live
    }

    fn set_live(&mut self, key: &[u8], live: bool) {
        let spot = self.find(key);
        assert!(spot.found, "a key that is not there neither lives nor dies");
        let record = self.record(spot.at);
        let (number, was) = self.word(&record);
        assert!(was != live, "a key lives and dies in turn");
        self.records[record.word..record.end].copy_from_slice(&pack(number, live).to_le_bytes());
    }

    fn live(&self) -> u64 {
        self.live_upto(self.records.len())
    }

    fn live_upto(&self, end: usize) -> u64 {
        let (mut at, mut live) = (0, 0);
        while at < end {
            let record = self.record(at);
            live += u64::from(self.word(&record).1);
            at = record.end;
        }
        live
    }

    fn live_before(&self, key: &[u8], inclusive: bool) -> u64 {
        let spot = self.find(key);
        let end = if spot.found && inclusive { self.record(spot.at).end } else { spot.at };
        self.live_upto(end)
    }

    fn scan(
        &self,
        from: Edge,
        to: Edge,
        live: bool,
        key: &mut Vec<u8>,
        each: &mut impl FnMut(&[u8], u32) -> bool,
    ) -> bool {
        let mut at = 0;
        key.clear();
        if let Some((from, inclusive)) = from {
            let spot = self.find(from);
            at = spot.at;
            // All that the record there can share with the one before, it shares with `from`.
            key.extend_from_slice(from);
            if spot.found && !inclusive {
                at = self.record(at).end;
            }
        }
        while at < self.records.len() {
            let record = self.record(at);
            key.truncate(record.shared);
            key.extend_from_slice(self.rest(&record));
            if let Some((to, inclusive)) = to {
                match key.as_slice().cmp(to) {
                    Ordering::Greater => return false,
                    Ordering::Equal if !inclusive => return false,
                    _ => {}
                }
            }
            let (number, is_live) = self.word(&record);
            if (is_live || !live) && !each(key, number) {
                return false;
            }
            at = record.end;
        }
        true
    }

    fn absorb(&mut self, right: &mut Leaf) -> bool {
        let fits =
            self.keys + right.keys <= LEAF_KEYS / 2 && self.records.len() + right.records.len() <= LEAF_BYTES / 2;
        if fits {
            let mut last = Vec::new();
            self.scan(None, None, false, &mut last, &mut |_, _| true);
            let first = right.record(0);
            let same = common_prefix(&last, right.rest(&first));
            let mut new = Vec::new();
            let (number, live) = right.word(&first);
            put_record(&mut new, same, &[&right.rest(&first)[same..]], pack(number, live));
            new.extend_from_slice(&right.records[first.end..]);
            let end = self.records.len();
            self.replace(end..end, &new);
            self.keys += right.keys;
        }
        fits
    }
}

fn pack(number: u32, live: bool) -> u32 {
    assert!(number < 1 << 31, "below 2^31 keys");
    number << 1 | u32::from(live)
}

fn count(live: &mut u64, more: bool) {
    match more {
        true => *live += 1,
        false => *live -= 1,
    }
}

fn put_head(out: &mut Vec<u8>, shared: usize, rest: usize) {
    crate::protobuf::put_varint(out, shared as u64);
    crate::protobuf::put_varint(out, rest as u64);
}

fn put_record(out: &mut Vec<u8>, shared: usize, rest: &[&[u8]], word: u32) {
    put_head(out, shared, rest.iter().map(|piece| piece.len()).sum());
    for piece in rest {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(&word.to_le_bytes());
}

/// Of the record at the front: both lengths, and everything behind them. Most are below 128.
fn head(records: &[u8]) -> (usize, usize, &[u8]) {
    if let [shared, len, behind @ ..] = records
        && (shared | len) < 0x80
    {
        return (usize::from(*shared), usize::from(*len), behind);
    }
    let length = |bytes| crate::protobuf::read_varint(bytes).expect("a leaf holds what was put there");
    let (shared, used) = length(records);
    let (len, more) = length(&records[used..]);
    (shared as usize, len as usize, &records[used + more..])
}

/// How many bytes two keys have in common at their front.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let mut same = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return same + different.trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What the tree shall be: the dumb one.
    #[derive(Default)]
    struct Both {
        tree: Tree,
        map: BTreeMap<Vec<u8>, (u32, bool)>,
        next: u32,
    }

    impl Both {
        fn act(&mut self, key: Vec<u8>, what: u8) {
            match self.map.get_mut(&key) {
                None => {
                    let live = what != 0;
                    self.next += 1;
                    self.tree.insert(&key, self.next, live);
                    self.map.insert(key, (self.next, live));
                }
                Some((_, live)) if what < 2 => {
                    *live = !*live;
                    self.tree.set_live(&key, *live);
                }
                Some(_) => {
                    self.tree.remove(&key);
                    self.map.remove(&key);
                }
            }
        }

        fn compare(&self, bounds: &[(Bound<&[u8]>, Bound<&[u8]>)]) {
            assert_eq!(self.tree.len, self.map.len() as u64);
            for (key, (number, _)) in &self.map {
                assert_eq!(self.tree.get(key), Some(*number), "{key:?}");
            }
            for (from, to) in bounds {
                let expected: Vec<_> = self
                    .map
                    .range::<[u8], _>((*from, *to))
                    .map(|(key, (number, live))| (key, *number, *live))
                    .collect();
                let mut found = Vec::new();
                self.tree.scan(*from, *to, |key, number| {
                    found.push((key.to_vec(), number));
                    true
                });
                let names: Vec<_> = expected.iter().map(|(key, number, _)| (key.to_vec(), *number)).collect();
                assert_eq!(found, names, "{from:?}..{to:?}");
                found.clear();
                self.tree.scan_live(*from, *to, |key, number| {
                    found.push((key.to_vec(), number));
                    true
                });
                let living = expected.iter().filter(|(_, _, live)| *live);
                let names: Vec<_> = living.map(|(key, number, _)| (key.to_vec(), *number)).collect();
                assert_eq!(found, names, "{from:?}..{to:?}");
                let live = expected.iter().filter(|(_, _, live)| *live).count() as u64;
                assert_eq!(self.tree.count_live(*from, *to), live, "{from:?}..{to:?}");
            }
        }
    }

    /// Keys that share much, with prefixes of each other, single bytes, long ones.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 1..7),
            3 => (0u32..2000).prop_map(|n| format!("/registry/pods/default/pod-{n:05}").into_bytes()),
            1 => (0u32..50, 200usize..400).prop_map(|(n, len)| {
                let mut long = format!("/long/{n}/").into_bytes();
                long.resize(len, b'x');
                long
            }),
        ]
    }

    fn bounds<'a>(a: &'a [u8], b: &'a [u8]) -> Vec<(Bound<&'a [u8]>, Bound<&'a [u8]>)> {
        use Bound::{Excluded, Included, Unbounded};
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let mut all = vec![
            (Unbounded, Unbounded),
            (Included(a), Unbounded),
            (Excluded(a), Unbounded),
            (Unbounded, Included(a)),
            (Unbounded, Excluded(b)),
            (Included(a), Included(a)),
            (Included(a), Included(b)),
            (Included(a), Excluded(b)),
        ];
        if a < b {
            all.extend([(Excluded(a), Excluded(b)), (Excluded(a), Included(b))]);
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn as_a_sorted_map(
            steps in proptest::collection::vec((key(), 0u8..4), 1..900),
            probes in proptest::collection::vec((key(), key()), 8),
        ) {
            let mut both = Both::default();
            for (key, what) in steps {
                both.act(key, what);
            }
            for (a, b) in &probes {
                both.compare(&bounds(a, b));
            }
        }
    }

    /// What a checkpoint loads is what inserting would have made, node for node.
    #[test]
    fn appended_is_inserted() {
        let mut keys: Vec<Vec<u8>> = (0..9_000).map(|n| format!("/registry/{}/{n:06}", n % 11).into_bytes()).collect();
        keys.extend((0..40u8).map(|n| vec![n; 70 + 50 * usize::from(n)]));
        keys.extend([vec![], vec![0], vec![0, 0], b"/registry".to_vec(), b"/registry/3/000003/".to_vec()]);
        keys.sort();
        let (mut inserted, mut appended, mut before) = (Tree::default(), Tree::default(), Vec::new());
        for (number, key) in (0..).zip(keys) {
            inserted.insert(&key, number, number % 3 > 0);
            appended.append(&key, common_prefix(&before, &key), number, number % 3 > 0);
            before = key;
        }
        assert!(matches!(&inserted.root, Node::Inner(inner) if matches!(inner.children[0].node, Node::Inner(_))));
        assert_eq!(format!("{appended:?}"), format!("{inserted:?}"));
    }

    #[test]
    fn a_common_prefix_ends_at_the_first_difference() {
        for len in 0..40usize {
            let a = vec![7; len];
            for different in 0..=len {
                let mut b = [&a[..], &[7; 3]].concat();
                b[different] ^= 0x80 >> (len % 8);
                assert_eq!(common_prefix(&a, &b), different);
                assert_eq!(common_prefix(&b, &a), different);
                assert_eq!(common_prefix(&a, &a[..different]), different);
            }
        }
    }

    /// Grown in order, at random, then emptied: through every split and merge.
    #[test]
    fn grows_to_three_levels_and_empties() {
        let mut both = Both::default();
        let name = |n: u64| format!("/registry/{}/namespace-{}/object-{n:06}", n % 7, n % 101).into_bytes();
        for n in 0..6_000 {
            both.act(name(n), 1);
        }
        for n in 0..6_000u64 {
            both.act(name(1_000_000 + n.wrapping_mul(7919) % 100_003), 1);
        }
        both.compare(&bounds(&name(17), &name(5_500)));
        assert!(matches!(&both.tree.root, Node::Inner(inner) if matches!(inner.children[0].node, Node::Inner(_))));
        let mut keys: Vec<Vec<u8>> = both.map.keys().cloned().collect();
        keys.sort_by_key(|key| crc32c::crc32c(key));
        for (n, key) in keys.into_iter().enumerate() {
            both.act(key, 2);
            if n % 3_000 == 0 {
                both.compare(&bounds(&name(17), &name(5_500)));
            }
        }
        both.compare(&[(Bound::Unbounded, Bound::Unbounded)]);
        assert!(matches!(&both.tree.root, Node::Leaf(leaf) if leaf.keys == 0));
    }

    /// The point of front-coding: bytes for a key of 64 that comes in order or at random.
    #[test]
    fn is_small() {
        let size = |order: fn(u64) -> u64| {
            let mut tree = Tree::default();
            for n in 0..20_000 {
                tree.insert(format!("/registry/pods/{:048}", order(n)).as_bytes(), n as u32, true);
            }
            fn bytes(node: &Node) -> usize {
                match node {
                    Node::Leaf(leaf) => leaf.records.capacity(),
                    Node::Inner(inner) => {
                        let own = inner.children.capacity() * size_of::<Child>();
                        let separators = inner.separators.iter().map(|separator| separator.len() + 16).sum::<usize>();
                        own + separators + inner.children.iter().map(|child| bytes(&child.node)).sum::<usize>()
                    }
                }
            }
            bytes(&tree.root) / 20_000
        };
        let ordered = size(|n| n);
        let random = size(|n| n.wrapping_mul(7919) % 20_011);
        assert!(ordered <= 14, "{ordered} bytes");
        assert!(random <= 18, "{random} bytes");
    }
}
