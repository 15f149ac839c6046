//! The ranges being watched, by the keys they cover: a treap ordered by (start, end) in
//! which every node knows the furthest end below it. Which ranges cover a key is answered
//! by walking only the parts that can. Priorities come from a counter and a seed that no client
//! knows: whoever knew them could choose keys that make a list of the tree.

use bytes::Bytes;

/// Names a range that is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RangeId(u32);

const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Ranges {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    seed: u64,
    made: u64,
}

#[derive(Debug)]
struct Node {
    start: Bytes,
    /// Exclusive; empty = no end.
    end: Bytes,
    /// The furthest `end` of this node and everything below it.
    furthest: Bytes,
    priority: u64,
    left: u32,
    right: u32,
    watches: Vec<u32>,
}

impl Ranges {
    pub(crate) fn new(seed: u64) -> Ranges {
        Ranges { nodes: Vec::new(), free: Vec::new(), root: NIL, seed, made: 0 }
    }

    /// The range `[start, end)`, made if it is new. An empty `end` means no end.
    pub(crate) fn enter(&mut self, start: &Bytes, end: &Bytes) -> RangeId {
        if let Some(found) = self.lookup(start, end) {
            return RangeId(found);
        }
        self.made += 1;
        let node = Node {
            start: start.clone(),
            end: end.clone(),
            furthest: end.clone(),
            priority: scatter(self.seed ^ scatter(self.made)),
            left: NIL,
            right: NIL,
            watches: Vec::new(),
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 ranges")
            }
        };
        let (below, above) = self.split(self.root, start, end);
        let low = self.merge(below, id);
        self.root = self.merge(low, above);
        RangeId(id)
    }

    /// The watches of a range.
    pub(crate) fn list(&mut self, range: RangeId) -> &mut Vec<u32> {
        &mut self.nodes[range.0 as usize].watches
    }

    /// As [`Ranges::list`], to read.
    pub(crate) fn watches(&self, range: RangeId) -> &[u32] {
        &self.nodes[range.0 as usize].watches
    }

    /// Forgets the range if no watch is left in it.
    pub(crate) fn prune(&mut self, range: RangeId) {
        let node = &self.nodes[range.0 as usize];
        if !node.watches.is_empty() {
            return;
        }
        let (start, end) = (node.start.clone(), node.end.clone());
        self.root = self.cut(self.root, &start, &end);
        let node = &mut self.nodes[range.0 as usize];
        (node.start, node.end, node.furthest) = (Bytes::new(), Bytes::new(), Bytes::new());
        self.free.push(range.0);
    }

    /// Visits the watches of every range that covers `key`, ranges in order.
    pub(crate) fn stab(&self, key: &[u8], visit: &mut impl FnMut(RangeId, &[u32])) {
        self.stab_below(self.root, key, visit);
    }

    fn stab_below(&self, at: u32, key: &[u8], visit: &mut impl FnMut(RangeId, &[u32])) {
        if at == NIL || !before_end(key, &self.nodes[at as usize].furthest) {
            return;
        }
        let node = &self.nodes[at as usize];
        self.stab_below(node.left, key, visit);
        if node.start > key {
            return;
        }
        if before_end(key, &node.end) {
            visit(RangeId(at), &node.watches);
        }
        self.stab_below(node.right, key, visit);
    }

    fn lookup(&self, start: &[u8], end: &[u8]) -> Option<u32> {
        let mut at = self.root;
        while at != NIL {
            let node = &self.nodes[at as usize];
            at = match (start, end).cmp(&(&node.start[..], &node.end[..])) {
                std::cmp::Ordering::Less => node.left,
                std::cmp::Ordering::Greater => node.right,
                std::cmp::Ordering::Equal => return Some(at),
            };
        }
        None
    }

    /// (nodes below the range, nodes at or above it)
    fn split(&mut self, at: u32, start: &[u8], end: &[u8]) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let node = &self.nodes[at as usize];
        if (&node.start[..], &node.end[..]) < (start, end) {
            let (low, high) = self.split(node.right, start, end);
            self.nodes[at as usize].right = low;
            self.refresh(at);
            (at, high)
        } else {
            let (low, high) = self.split(node.left, start, end);
            self.nodes[at as usize].left = high;
            self.refresh(at);
            (low, at)
        }
    }

    /// One tree of two, all of `low` being below all of `high`.
    fn merge(&mut self, low: u32, high: u32) -> u32 {
        if low == NIL || high == NIL {
            return if low == NIL { high } else { low };
        }
        if self.nodes[low as usize].priority >= self.nodes[high as usize].priority {
            let right = self.merge(self.nodes[low as usize].right, high);
            self.nodes[low as usize].right = right;
            self.refresh(low);
            low
        } else {
            let left = self.merge(low, self.nodes[high as usize].left);
            self.nodes[high as usize].left = left;
            self.refresh(high);
            high
        }
    }

    /// The tree without the node of exactly this range, which must be there.
    fn cut(&mut self, at: u32, start: &[u8], end: &[u8]) -> u32 {
        assert_ne!(at, NIL, "watch ranges: a known range is not in the tree");
        let node = &self.nodes[at as usize];
        let (left, right) = (node.left, node.right);
        match (start, end).cmp(&(&node.start[..], &node.end[..])) {
            std::cmp::Ordering::Equal => return self.merge(left, right),
            std::cmp::Ordering::Less => self.nodes[at as usize].left = self.cut(left, start, end),
            std::cmp::Ordering::Greater => self.nodes[at as usize].right = self.cut(right, start, end),
        }
        self.refresh(at);
        at
    }

    fn refresh(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let mut furthest = node.end.clone();
        for below in [node.left, node.right] {
            if below != NIL {
                let other = &self.nodes[below as usize].furthest;
                if !furthest.is_empty() && (other.is_empty() || *other > furthest) {
                    furthest = other.clone();
                }
            }
        }
        self.nodes[at as usize].furthest = furthest;
    }
}

fn before_end(key: &[u8], end: &[u8]) -> bool {
    end.is_empty() || key < end
}

/// The n-th number of a fixed sequence without pattern (the finaliser of splitmix64).
fn scatter(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
