//! Writing a file from front to back, in two passes over the same pairs.
//!
//! The meta pages stand first and tell where the root lies and how many pages there are. So the
//! first pass ([`Planner`]) sees lengths only and lays out every page; the second ([`Writer`])
//! sees the pairs and emits the pages. Both fill the same [`Tree`], which closes a page when the
//! next element does not fit and then tells its parent: what is kept is one open page per level.
//!
//! ```text
//! 0 meta | 1 meta | 2 empty freelist | bucket: leaf leaf ... branch leaf ... branch | bucket ... | root
//! ```

use crate::layout::*;
use crate::read::MAX_PAGE_BYTES;

/// Bytes of the pages written, as on every machine that etcd is released for.
pub const PAGE_SIZE: u32 = 4096;
/// Metas and freelist come first.
const FIRST_PAGE: u64 = 3;
const FREELIST_PAGE: u64 = 2;
/// bbolt's own limit for keys.
const MAX_KEY: usize = 32768;
/// An element must leave room for its page's header.
const MAX_VALUE: usize = (MAX_PAGE_BYTES as usize) / 2;
/// bbolt's smallest number of children of a branch that is not the last of its level.
const MIN_CHILDREN: usize = 2;

/// Why pairs cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Diverged {
    /// A key of this many bytes.
    #[error("a key of {0} bytes: bbolt takes 1 to {MAX_KEY}")]
    Key(usize),
    /// A value of this many bytes.
    #[error("a value of {0} bytes: at most {MAX_VALUE} are written")]
    Value(usize),
    /// A key or a name is not above the one before it.
    #[error("keys and names of buckets must ascend")]
    Order,
    /// A pair came before the first bucket.
    #[error("a pair outside of any bucket")]
    NoBucket,
    /// The second pass gave other pairs than the first.
    #[error("the pairs are not those that the file was planned for ({0})")]
    Plan(&'static str),
}

/// Where everything goes: the result of the first pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    root: u64,
    high_water: u64,
    pairs: u64,
}

impl Plan {
    /// Length of the file, bytes.
    pub fn bytes(&self) -> u64 {
        self.high_water * u64::from(PAGE_SIZE)
    }

    /// Pairs of all buckets.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }
}

/// The first pass. Buckets in ascending order of their names, in each the lengths of its pairs in
/// ascending order of their keys.
#[derive(Debug)]
pub struct Planner {
    file: File<Lengths>,
}

impl Default for Planner {
    fn default() -> Planner {
        Planner { file: File::new() }
    }
}

impl Planner {
    /// A plan of nothing yet.
    pub fn new() -> Planner {
        Planner::default()
    }

    /// The pairs that follow belong to this bucket.
    ///
    /// # Errors
    /// The name is not above the one before it, or has a size that bbolt does not take.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), Diverged> {
        self.file.bucket(name, &mut Vec::new())
    }

    /// The next pair, by the bytes of its key and of its value.
    ///
    /// # Errors
    /// There is no bucket yet, or bbolt takes no key or value of that size.
    pub fn pair(&mut self, key: usize, value: usize) -> Result<(), Diverged> {
        sizes(key, value)?;
        self.file.pair(&key, value, |leaf| leaf.push(key, value), &mut Vec::new())
    }

    /// The plan of all that was given.
    pub fn finish(self) -> Plan {
        self.file.finish(&mut Vec::new())
    }
}

/// The second pass: the same buckets and pairs again, with their bytes.
#[derive(Debug)]
pub struct Writer {
    plan: Plan,
    file: File<Content>,
    out: Vec<u8>,
    emitted: u64,
    last: Vec<u8>,
}

impl Writer {
    /// Begins the file of this plan. Its meta pages and its freelist are ready at once.
    pub fn new(plan: Plan) -> Writer {
        let meta = Meta {
            page_size: PAGE_SIZE,
            root: plan.root,
            sequence: 0,
            freelist: FREELIST_PAGE,
            high_water: plan.high_water,
            txid: 0,
        };
        let mut out = meta.encode(0);
        out.extend_from_slice(&Meta { txid: 1, ..meta }.encode(1));
        out.extend_from_slice(&header(FREELIST_PAGE, FREELIST, 0, 0));
        out.resize(FIRST_PAGE as usize * PAGE_SIZE as usize, 0);
        Writer { plan, file: File::new(), out, emitted: 0, last: Vec::new() }
    }

    /// The pairs that follow belong to this bucket.
    ///
    /// # Errors
    /// The name is not above the one before it, or has a size that bbolt does not take.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), Diverged> {
        self.last.clear();
        self.file.bucket(name, &mut self.out)
    }

    /// The next pair.
    ///
    /// # Errors
    /// As in the first pass; also if the key is not above the one before it, or the file grows
    /// longer than planned.
    pub fn pair(&mut self, key: &[u8], value: &[u8]) -> Result<(), Diverged> {
        sizes(key.len(), value.len())?;
        if self.last.as_slice() >= key {
            return Err(Diverged::Order);
        }
        self.file.pair(key, value.len(), |leaf| leaf.push(key, value), &mut self.out)?;
        self.last.clear();
        self.last.extend_from_slice(key);
        if self.emitted + self.out.len() as u64 > self.plan.bytes() {
            return Err(Diverged::Plan("more pages"));
        }
        Ok(())
    }

    /// Bytes that [`Writer::take`] would give.
    pub fn ready(&self) -> usize {
        self.out.len()
    }

    /// The pages that are complete, in file order. Called often, it keeps memory small.
    pub fn take(&mut self) -> Vec<u8> {
        self.emitted += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// The rest of the file.
    ///
    /// # Errors
    /// [`Diverged::Plan`]: the pairs were not those of the first pass. What was taken before is
    /// worthless then.
    pub fn finish(self) -> Result<Vec<u8>, Diverged> {
        let Writer { plan, file, mut out, emitted, .. } = self;
        let written = file.finish(&mut out);
        if written != plan {
            return Err(Diverged::Plan("another number of pairs or pages"));
        }
        assert_eq!(emitted + out.len() as u64, plan.bytes(), "every page is emitted once");
        Ok(out)
    }
}

fn sizes(key: usize, value: usize) -> Result<(), Diverged> {
    if !(1..=MAX_KEY).contains(&key) {
        return Err(Diverged::Key(key));
    }
    if value > MAX_VALUE {
        return Err(Diverged::Value(value));
    }
    Ok(())
}

/// The file so far, of lengths or of bytes.
#[derive(Debug)]
struct File<F: Fill> {
    next_page: u64,
    pairs: u64,
    /// The buckets written: names and where their trees begin.
    roots: Vec<(Vec<u8>, u64)>,
    open: Option<(Vec<u8>, Tree<F>)>,
    /// Name of the last bucket.
    last: Option<Vec<u8>>,
}

impl<F: Fill> File<F> {
    fn new() -> File<F> {
        File { next_page: FIRST_PAGE, pairs: 0, roots: Vec::new(), open: None, last: None }
    }

    fn bucket(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<(), Diverged> {
        sizes(name.len(), 0)?;
        if self.last.as_deref().is_some_and(|last| last >= name) {
            return Err(Diverged::Order);
        }
        self.close(out);
        self.last = Some(name.to_vec());
        self.open = Some((name.to_vec(), Tree::new()));
        Ok(())
    }

    fn pair(
        &mut self,
        key: &F::Key,
        value: usize,
        push: impl FnOnce(&mut F),
        out: &mut Vec<u8>,
    ) -> Result<(), Diverged> {
        let Some((_, tree)) = &mut self.open else { return Err(Diverged::NoBucket) };
        tree.make_room(0, F::length(key) + value, &mut self.next_page, out);
        push(&mut tree.levels[0]);
        self.pairs += 1;
        Ok(())
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some((name, tree)) = self.open.take() else { return };
        let root = tree.finish(&mut self.next_page, out);
        self.roots.push((name, root));
    }

    fn finish(mut self, out: &mut Vec<u8>) -> Plan {
        self.close(out);
        // the root bucket comes after all others; its few elements are kept until then
        let mut tree = Tree::<Content>::new();
        for (name, root) in &self.roots {
            let mut value = [0; BUCKET];
            value[..8].copy_from_slice(&root.to_le_bytes());
            tree.make_room(0, name.len() + value.len(), &mut self.next_page, out);
            tree.levels[0].push_bucket(name, &value);
        }
        let root = tree.finish(&mut self.next_page, out);
        Plan { root, high_water: self.next_page, pairs: self.pairs }
    }
}

/// The open pages of one bucket, leaf first.
#[derive(Debug)]
struct Tree<F: Fill> {
    levels: Vec<F>,
}

impl<F: Fill> Tree<F> {
    fn new() -> Tree<F> {
        Tree { levels: vec![F::default()] }
    }

    /// Closes the open page of `level` if an element of so many bytes does not fit.
    fn make_room(&mut self, level: usize, bytes: usize, next_page: &mut u64, out: &mut Vec<u8>) {
        let least = if level == 0 { 1 } else { MIN_CHILDREN };
        let page = &self.levels[level];
        let full = HEADER + page.used() + ELEMENT + bytes > PAGE_SIZE as usize;
        if full && page.count() >= least {
            self.close(level, next_page, out);
        }
    }

    /// Emits the open page of `level` and puts it into its parent.
    fn close(&mut self, level: usize, next_page: &mut u64, out: &mut Vec<u8>) {
        let (id, key) = self.emit(level, next_page, out);
        if level + 1 == self.levels.len() {
            self.levels.push(F::default());
        }
        let key = key.expect("no page below the root is empty");
        self.make_room(level + 1, F::length(key.as_ref()), next_page, out);
        self.levels[level + 1].push_child(key.as_ref(), id);
    }

    fn emit(&mut self, level: usize, next_page: &mut u64, out: &mut Vec<u8>) -> (u64, Option<F::Owned>) {
        let page = std::mem::take(&mut self.levels[level]);
        let pages = (HEADER + page.used()).div_ceil(PAGE_SIZE as usize) as u64;
        let id = *next_page;
        *next_page += pages;
        let kind = if level == 0 { LEAF } else { BRANCH };
        page.encode(id, kind, (pages - 1) as u32, out);
        (id, page.first())
    }

    /// Closes every level; the page of the root.
    fn finish(mut self, next_page: &mut u64, out: &mut Vec<u8>) -> u64 {
        let mut level = 0;
        while level + 1 < self.levels.len() {
            self.close(level, next_page, out);
            level += 1;
        }
        self.emit(level, next_page, out).0
    }
}

/// What an open page is filled with.
trait Fill: Default {
    type Key: ?Sized;
    type Owned: AsRef<Self::Key>;
    fn length(key: &Self::Key) -> usize;
    fn count(&self) -> usize;
    /// Bytes of all elements.
    fn used(&self) -> usize;
    fn push_child(&mut self, key: &Self::Key, page: u64);
    fn first(&self) -> Option<Self::Owned>;
    /// Appends the page with its overflow to `out`.
    fn encode(&self, id: u64, kind: u16, overflow: u32, out: &mut Vec<u8>);
}

/// Lengths alone: the first pass.
#[derive(Debug, Default)]
struct Lengths {
    first: Option<Length>,
    count: usize,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Length(usize);

impl AsRef<usize> for Length {
    fn as_ref(&self) -> &usize {
        &self.0
    }
}

impl Lengths {
    fn push(&mut self, key: usize, value: usize) {
        self.first.get_or_insert(Length(key));
        self.count += 1;
        self.used += ELEMENT + key + value;
    }
}

impl Fill for Lengths {
    type Key = usize;
    type Owned = Length;

    fn length(key: &usize) -> usize {
        *key
    }

    fn count(&self) -> usize {
        self.count
    }

    fn used(&self) -> usize {
        self.used
    }

    fn push_child(&mut self, key: &usize, _page: u64) {
        self.push(*key, 0);
    }

    fn first(&self) -> Option<Length> {
        self.first
    }

    fn encode(&self, _id: u64, _kind: u16, _overflow: u32, _out: &mut Vec<u8>) {}
}

/// Elements and their bytes: the second pass.
#[derive(Debug, Default)]
struct Content {
    elements: Vec<Slot>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Slot {
    flags: u32,
    key: u32,
    value: u32,
    page: u64,
}

impl Content {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.add(0, key, value, 0);
    }

    fn push_bucket(&mut self, name: &[u8], value: &[u8]) {
        self.add(IS_BUCKET, name, value, 0);
    }

    fn add(&mut self, flags: u32, key: &[u8], value: &[u8], page: u64) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("lengths were checked");
        self.elements.push(Slot { flags, key: length(key), value: length(value), page });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }
}

impl Fill for Content {
    type Key = [u8];
    type Owned = Vec<u8>;

    fn length(key: &[u8]) -> usize {
        key.len()
    }

    fn count(&self) -> usize {
        self.elements.len()
    }

    fn used(&self) -> usize {
        self.elements.len() * ELEMENT + self.bytes.len()
    }

    fn push_child(&mut self, key: &[u8], page: u64) {
        self.add(0, key, &[], page);
    }

    fn first(&self) -> Option<Vec<u8>> {
        let first = self.elements.first()?;
        Some(self.bytes[..first.key as usize].to_vec())
    }

    fn encode(&self, id: u64, kind: u16, overflow: u32, out: &mut Vec<u8>) {
        let start = out.len();
        let count = u16::try_from(self.elements.len()).expect("a page has room for fewer elements");
        out.extend_from_slice(&header(id, kind, count, overflow));
        // positions count from the element itself
        let mut pos = u32::try_from(self.elements.len() * ELEMENT).expect("a page of elements");
        for slot in &self.elements {
            if kind == LEAF {
                let fields = [slot.flags, pos, slot.key, slot.value];
                out.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
            } else {
                out.extend_from_slice(&pos.to_le_bytes());
                out.extend_from_slice(&slot.key.to_le_bytes());
                out.extend_from_slice(&slot.page.to_le_bytes());
            }
            pos = pos - ELEMENT as u32 + slot.key + slot.value;
        }
        out.extend_from_slice(&self.bytes);
        out.resize(start + (overflow as usize + 1) * PAGE_SIZE as usize, 0);
    }
}
