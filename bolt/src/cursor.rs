//! One pass through the tree of a bucket, in key order.
//!
//! Two rules make it end on any file: below the root no page is empty, and each key is greater
//! than the one before. A page met twice breaks the second rule at its first key.

use crate::read::{Db, Error, MAX_DEPTH, Page, Root, Source};
use bytes::Bytes;

/// An element of a leaf page.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub key: Bytes,
    pub value: Bytes,
    /// The value describes a bucket.
    pub bucket: bool,
}

/// The pages from the root to the element that comes next.
#[derive(Debug)]
pub(crate) struct Cursor<'a, S> {
    db: &'a Db<S>,
    /// Not read yet.
    root: Option<Root>,
    path: Vec<(Page, usize)>,
    last: Option<Bytes>,
    /// Page and offset of the element given last.
    place: (u64, u64),
}

impl<'a, S: Source> Cursor<'a, S> {
    pub(crate) fn new(db: &'a Db<S>, root: Root) -> Cursor<'a, S> {
        Cursor { db, root: Some(root), path: Vec::new(), last: None, place: (0, 0) }
    }

    /// Page and file offset of the page that the last element came from.
    pub(crate) fn place(&self) -> (u64, u64) {
        self.place
    }

    /// The first element whose key is not below `key`. Only as the first call.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<Option<Element>, Error> {
        let Some(root) = self.root.take() else { panic!("a cursor seeks once, at its beginning") };
        self.enter(root)?;
        while let Some((page, at)) = self.path.last_mut() {
            // the last child whose first key is not above `key`, or the first one;
            // in a leaf, the first element that is not below `key`
            let (mut low, mut high) = (0, page.count);
            while low < high {
                let middle = low + (high - low) / 2;
                let found = page.key(middle).map_err(|reason| self.db.wrong(page.id, reason))?;
                let before = if page.is_leaf() { found < key } else { found <= key };
                if before { low = middle + 1 } else { high = middle }
            }
            if page.is_leaf() {
                *at = low;
                break;
            }
            let child = low.saturating_sub(1);
            *at = child + 1;
            let child = page.child(child);
            self.enter(Root::Page(child))?;
        }
        self.next()
    }

    /// The element that comes next.
    pub(crate) fn next(&mut self) -> Result<Option<Element>, Error> {
        if let Some(root) = self.root.take() {
            self.enter(root)?;
        }
        loop {
            let Some((page, at)) = self.path.last_mut() else { return Ok(None) };
            if *at >= page.count {
                self.path.pop();
                continue;
            }
            let here = *at;
            *at += 1;
            if !page.is_leaf() {
                let child = page.child(here);
                self.enter(Root::Page(child))?;
                continue;
            }
            let element = page.element(here).map_err(|reason| self.db.wrong(page.id, reason))?;
            if self.last.as_ref().is_some_and(|last| *last >= element.key) {
                return Err(self
                    .db
                    .wrong(page.id, format!("the key of element {here} is not above the one before it")));
            }
            self.place = (page.id, page.offset);
            self.last = Some(element.key.clone());
            return Ok(Some(element));
        }
    }

    fn enter(&mut self, root: Root) -> Result<(), Error> {
        let page = match root {
            Root::Inline(page) => page,
            Root::Page(id) => self.db.page(id)?,
        };
        page.in_tree().map_err(|reason| self.db.wrong(page.id, reason))?;
        if page.count == 0 && !(page.is_leaf() && self.path.is_empty()) {
            return Err(self.db.wrong(page.id, "an empty page in a tree"));
        }
        if self.path.len() == MAX_DEPTH {
            return Err(self.db.wrong(page.id, format!("a tree of more than {MAX_DEPTH} levels")));
        }
        self.path.push((page, 0));
        Ok(())
    }
}

/// The (key, value) pairs of a bucket, ascending by key. Ends after the first error.
#[derive(Debug)]
pub struct Pairs<'a, S> {
    cursor: Cursor<'a, S>,
    from: Option<Vec<u8>>,
    failed: bool,
}

impl<'a, S: Source> Pairs<'a, S> {
    pub(crate) fn new(cursor: Cursor<'a, S>, from: Option<Vec<u8>>) -> Pairs<'a, S> {
        Pairs { cursor, from, failed: false }
    }

    fn step(&mut self) -> Result<Option<(Bytes, Bytes)>, Error> {
        loop {
            let element = match self.from.take() {
                Some(key) => self.cursor.seek(&key)?,
                None => self.cursor.next()?,
            };
            match element {
                Some(element) if element.bucket => {}
                Some(element) => return Ok(Some((element.key, element.value))),
                None => return Ok(None),
            }
        }
    }
}

impl<S: Source> Iterator for Pairs<'_, S> {
    type Item = Result<(Bytes, Bytes), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.step().transpose();
        self.failed = matches!(step, Some(Err(_)));
        step
    }
}
