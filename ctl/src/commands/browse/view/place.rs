//! A level on the screen: the rows that were read, those that the filter lets
//! through, the one that is chosen, the part that is seen.

use client::wire::etcdserverpb::RangeResponse;

use crate::commands::browse::{
    level::{Level, Row},
    show,
};

/// One level.
#[derive(Debug)]
pub struct Place {
    /// How far it has been read.
    pub level: Level,
    prefix: Vec<u8>,
    rows: Vec<Entry>,
    /// What names must have in them, in lower case.
    filter: String,
    /// Places of the rows that the filter lets through.
    found: Vec<usize>,
    /// Which of `found`.
    chosen: usize,
    /// The first of `found` that is seen, and how many are.
    top: usize,
    height: usize,
    /// To be chosen once it comes.
    seek: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Entry {
    row: Row,
    count: Option<u64>,
}

impl Place {
    /// Nothing is read yet.
    pub fn new(prefix: &[u8], separator: &[u8]) -> Place {
        Place {
            level: Level::new(prefix, separator),
            prefix: prefix.to_vec(),
            rows: Vec::new(),
            filter: String::new(),
            found: Vec::new(),
            chosen: 0,
            top: 0,
            height: 1,
            seek: None,
        }
    }

    /// What all keys here begin with.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// How many rows are known.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// What names must have in them.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// How many of the rows have it.
    pub fn found(&self) -> usize {
        self.found.len()
    }

    /// The row that is chosen, if there is any.
    pub fn chosen(&self) -> Option<&Row> {
        self.found.get(self.chosen).map(|at| &self.rows[*at].row)
    }

    /// Chooses this row once it comes, unless the person moves before.
    pub fn seek(&mut self, key: &[u8]) {
        self.seek = Some(key.to_vec());
    }

    /// Whether more rows should be read: fewer than `ahead` below those seen.
    pub fn wants_rows(&self, ahead: usize) -> bool {
        let seen = self.top.max(self.chosen) + self.height;
        !self.level.is_whole() && self.found.len() < seen.saturating_add(ahead)
    }

    /// Takes a page of keys.
    pub fn take(&mut self, page: &RangeResponse) {
        for row in self.level.take(page.kvs.iter().map(|kv| &kv.key[..]), page.more) {
            let at = self.rows.len();
            let sought = self.seek.as_ref() == Some(&row.key);
            self.rows.push(Entry { row, count: None });
            if self.passes(at) {
                self.found.push(at);
                if sought {
                    self.chosen = self.found.len() - 1;
                    self.seek = None;
                }
            }
        }
    }

    /// Branches that are seen and whose keys have not been counted.
    pub fn uncounted(&self) -> impl Iterator<Item = &[u8]> {
        let seen = self.found.iter().skip(self.top).take(self.height).map(|at| &self.rows[*at]);
        seen.filter(|entry| entry.row.branch && entry.count.is_none()).map(|entry| &entry.row.key[..])
    }

    /// The keys of a branch have been counted.
    pub fn counted(&mut self, key: &[u8], count: u64) {
        if let Some(entry) = self.rows.iter_mut().find(|entry| entry.row.branch && entry.row.key == key) {
            entry.count = Some(count);
        }
    }

    /// How many keys a branch has.
    pub fn count(&self, key: &[u8]) -> Option<u64> {
        self.rows.iter().find(|entry| entry.row.branch && entry.row.key == key)?.count
    }

    /// Moves the choice; as far as there are rows.
    pub fn step(&mut self, by: isize) {
        self.chosen = self.chosen.saturating_add_signed(by).min(self.found.len().saturating_sub(1));
        self.seek = None;
    }

    /// Shows only names that have this in them, without regard to case.
    pub fn filter_by(&mut self, filter: &str) {
        if self.filter == filter {
            return;
        }
        let chosen = self.found.get(self.chosen).copied();
        self.filter = filter.to_owned();
        self.found = (0..self.rows.len()).filter(|at| self.passes(*at)).collect();
        self.chosen = self.found.iter().position(|at| Some(*at) == chosen).unwrap_or(0);
    }

    fn passes(&self, at: usize) -> bool {
        let name = || show::name(&self.rows[at].row.key[self.level.stem()..]).to_lowercase();
        self.filter.is_empty() || name().contains(&self.filter.to_lowercase())
    }

    /// The rows for so many lines, with their counts, and which of them is
    /// chosen.
    pub fn seen(&mut self, height: usize) -> (usize, impl ExactSizeIterator<Item = (&Row, Option<u64>)>) {
        self.height = height.max(1);
        let least = (self.chosen + 1).saturating_sub(self.height);
        self.top = self.top.clamp(least, self.chosen);
        let end = (self.top + self.height).min(self.found.len());
        let rows = self.found[self.top.min(end)..end].iter().map(|at| &self.rows[*at]);
        (self.chosen - self.top, rows.map(|entry| (&entry.row, entry.count)))
    }
}
