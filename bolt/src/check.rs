//! The check of a whole file: what bbolt's `check` looks at.
//!
//! Every page below the high-water mark is used once or free, all pages lie inside the file,
//! keys ascend, and a page's keys lie between its key in the parent and the next one.

use crate::layout::*;
use crate::read::Root;
use crate::read::{Db, MAX_DEPTH, Page, Source, bucket_root};
use bytes::Bytes;
use std::fmt;

/// No more findings than this are listed; a file with so many is lost.
const MOST: usize = 1000;
/// Buckets in buckets that are followed; etcd has none.
const MAX_NESTING: usize = 16;

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Number of the page.
    pub page: u64,
    /// Where that page lies in the file, bytes.
    pub offset: u64,
    /// What is wrong there, for a person.
    pub reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} (offset {}): {}", self.page, self.offset, self.reason)
    }
}

impl<S: Source> Db<S> {
    /// Reads every page; empty if the file is whole.
    pub fn check(&self) -> Vec<Finding> {
        let mut check = Check { db: self, used: Pages::new(self), free: Pages::new(self), findings: Vec::new() };
        let freelist = self.meta().freelist;
        if freelist != NO_FREELIST {
            check.freelist(freelist);
        }
        check.trees();
        check.leftovers(freelist != NO_FREELIST);
        check.findings
    }
}

/// A set of pages, one bit each.
struct Pages {
    bits: Vec<u64>,
}

impl Pages {
    fn new<S: Source>(db: &Db<S>) -> Pages {
        // the file has all these pages, so this is an eighth of a bit for each of its bytes at most
        Pages { bits: vec![0; db.meta().high_water.div_ceil(64) as usize] }
    }

    fn has(&self, page: u64) -> bool {
        self.bits[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    /// False if it is in the set already.
    fn add(&mut self, page: u64) -> bool {
        let new = !self.has(page);
        self.bits[(page / 64) as usize] |= 1 << (page % 64);
        new
    }
}

struct Check<'a, S> {
    db: &'a Db<S>,
    used: Pages,
    free: Pages,
    findings: Vec<Finding>,
}

/// A page still to be looked at, and what its parents say about it.
struct Visit {
    root: Root,
    depth: usize,
    nesting: usize,
    /// Keys are not below this ...
    least: Option<Bytes>,
    /// ... and below this.
    below: Option<Bytes>,
}

impl<S: Source> Check<'_, S> {
    fn full(&self) -> bool {
        self.findings.len() >= MOST
    }

    fn find(&mut self, page: u64, reason: impl Into<String>) {
        if !self.full() {
            self.findings.push(Finding { page, offset: self.db.offset(page), reason: reason.into() });
        }
    }

    fn load(&mut self, id: u64) -> Option<Page> {
        match self.db.page(id) {
            Ok(page) => Some(page),
            Err(crate::Error::Page { page, reason, .. }) => {
                self.find(page, reason);
                None
            }
            Err(error) => {
                self.find(id, error.to_string());
                None
            }
        }
    }

    /// Marks a page with its overflow as used.
    fn claim(&mut self, page: &Page) -> bool {
        let mut new = true;
        for id in page.id..=page.id + u64::from(page.overflow) {
            if !self.used.add(id) {
                self.find(id, "used twice");
                new = false;
            }
            if self.free.has(id) {
                self.find(id, "in use and in the freelist");
            }
        }
        new
    }

    fn freelist(&mut self, id: u64) {
        let Some(page) = self.load(id) else { return };
        if page.flags != FREELIST {
            return self.find(id, "the meta page takes it for the freelist");
        }
        self.claim(&page);
        let body = &page.bytes[HEADER..];
        let (count, body) = match page.count {
            0xFFFF => (u64_at(body, 0), &body[8..]),
            count => (count as u64, body),
        };
        if count > (body.len() / 8) as u64 {
            return self.find(id, format!("a freelist of {count} pages in {} bytes", page.bytes.len()));
        }
        let mut last = 1;
        for entry in body.chunks_exact(8).take(count as usize) {
            let free = u64_at(entry, 0);
            if free <= last || free >= self.db.meta().high_water {
                return self.find(id, format!("page {free} is out of order or out of bounds in the freelist"));
            }
            last = free;
            self.free.add(free);
            if self.used.has(free) {
                self.find(free, "in use and in the freelist");
            }
        }
    }

    fn trees(&mut self) {
        let root = Root::Page(self.db.meta().root);
        let mut open = vec![Visit { root, depth: 0, nesting: 0, least: None, below: None }];
        while let Some(visit) = open.pop() {
            if self.full() {
                return;
            }
            self.visit(visit, &mut open);
        }
    }

    fn visit(&mut self, visit: Visit, open: &mut Vec<Visit>) {
        let page = match &visit.root {
            Root::Inline(page) => page.clone(),
            Root::Page(id) => {
                let Some(page) = self.load(*id) else { return };
                if !self.claim(&page) {
                    return;
                }
                page
            }
        };
        if let Err(reason) = page.in_tree() {
            return self.find(page.id, reason);
        }
        if page.count == 0 && !(page.is_leaf() && visit.depth == 0) {
            return self.find(page.id, "an empty page in a tree");
        }
        if visit.depth >= MAX_DEPTH {
            return self.find(page.id, format!("a tree of more than {MAX_DEPTH} levels"));
        }
        match self.keys(&page, &visit) {
            Err(reason) => self.find(page.id, reason),
            Ok(_) if page.is_leaf() => self.buckets(&page, &visit, open),
            Ok(keys) => branch(&page, &visit, keys, open),
        }
    }

    /// The keys of a page, in order and between what the parents say.
    fn keys(&self, page: &Page, visit: &Visit) -> Result<Vec<Bytes>, String> {
        let mut keys: Vec<Bytes> = Vec::with_capacity(page.count);
        for at in 0..page.count {
            let key = page.key(at)?;
            if keys.last().is_some_and(|last| *last >= key) {
                return Err(format!("the key of element {at} is not above the one before it"));
            }
            if visit.least.as_ref().is_some_and(|least| key < *least) {
                return Err(format!("the key of element {at} is below the page's key in its parent"));
            }
            if visit.below.as_ref().is_some_and(|below| key >= *below) {
                return Err(format!("the key of element {at} is not below the next page's key in the parent"));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    fn buckets(&mut self, page: &Page, visit: &Visit, open: &mut Vec<Visit>) {
        for at in 0..page.count {
            let found = page.element(at).and_then(|element| {
                if !element.bucket {
                    return Ok(None);
                }
                if visit.nesting == MAX_NESTING {
                    return Err(format!("more than {MAX_NESTING} buckets in one another"));
                }
                bucket_root(&element.value, page.id, page.offset).map(|(root, _)| Some(root))
            });
            match found {
                Ok(None) => {}
                Ok(Some(root)) => {
                    open.push(Visit { root, depth: 0, nesting: visit.nesting + 1, least: None, below: None });
                }
                Err(reason) => self.find(page.id, reason),
            }
        }
    }

    fn leftovers(&mut self, listed: bool) {
        if !listed || self.full() {
            // without a freelist, what no tree uses is free
            return;
        }
        for id in 2..self.db.meta().high_water {
            if !self.used.has(id) && !self.free.has(id) {
                self.find(id, "neither in use nor in the freelist");
            }
        }
    }
}

fn branch(page: &Page, visit: &Visit, keys: Vec<Bytes>, open: &mut Vec<Visit>) {
    for at in (0..page.count).rev() {
        open.push(Visit {
            root: Root::Page(page.child(at)),
            depth: visit.depth + 1,
            nesting: visit.nesting,
            least: Some(keys[at].clone()),
            below: keys.get(at + 1).cloned().or_else(|| visit.below.clone()),
        });
    }
}
