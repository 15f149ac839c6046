//! Where the records of a damaged stretch belong: pure, and checked against the index.

use bytes::Bytes;
use disk::scrub::Stretch;
use store::{Rev, Store, record};

/// Dead records that wait for the end of their gap. Bytes; with more a filler takes their place.
const WAITING: usize = 8 << 20;
/// Longest filler, where several fit between two revisions. Bytes.
const FILLER: u32 = 1 << 20;
/// A rest shorter than this would be no record. Bytes.
const SHORTEST: u32 = 64;

/// Why records cannot be placed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The other member has compacted what this one still needs. It will compact it too.
    Later,
    Wrong(String),
}

/// A stretch that is filled from front to back.
#[derive(Debug)]
pub(crate) struct Placing {
    segment: u32,
    /// The next byte to be written, and the end of the stretch.
    at: u32,
    until: u32,
    /// Revision of the last record that came, and the one that ends the stretch.
    came: Rev,
    before: Rev,
    /// Revision of the last record that was placed.
    placed: Rev,
    last: i64,
    /// Records that the index does not name, since the last that it does. None: they are too many.
    dead: Option<Vec<Bytes>>,
    dead_bytes: usize,
    /// What is to be written now, and where.
    start: u32,
    parts: Vec<Bytes>,
    filled: bool,
}

impl Placing {
    pub(crate) fn new(stretch: &Stretch) -> Placing {
        let Stretch { segment, from, until, after, before, last, .. } = *stretch;
        Placing {
            segment,
            at: from,
            until,
            came: after,
            before,
            placed: after,
            last,
            dead: Some(Vec::new()),
            dead_bytes: 0,
            start: from,
            parts: Vec::new(),
            filled: false,
        }
    }

    /// Between which revisions records are still missing.
    pub(crate) fn missing(&self) -> (Rev, Rev) {
        (self.came, self.before)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at == self.until
    }

    /// Fillers stand in for records.
    pub(crate) fn filled(&self) -> bool {
        self.filled
    }

    /// What is to be written, and where.
    pub(crate) fn placed(&mut self) -> (u32, Vec<Bytes>) {
        let start = std::mem::replace(&mut self.start, self.at);
        (start, std::mem::take(&mut self.parts))
    }

    /// The next record that came, in order. `compacted`: of the member that sent it.
    pub(crate) fn take(&mut self, store: &Store, record: Bytes, compacted: i64) -> Result<(), Misfit> {
        let wrong = |what: String| Err(Misfit::Wrong(what));
        let opened = match record::open(&record) {
            Ok(opened) => opened,
            Err(damage) => return wrong(damage.to_string()),
        };
        let rev = opened.rev;
        if rev <= self.came || rev >= self.before {
            return wrong(format!("revision {}.{} was not asked for", rev.main, rev.sub));
        }
        let key = match record::key_value(&opened.body) {
            Ok(kv) => kv.key,
            Err(malformed) => return wrong(malformed.to_string()),
        };
        self.came = rev;
        let Some(handle) = store.handle_of(key, rev) else {
            self.wait(record);
            return Ok(());
        };
        if handle.segment != self.segment {
            return Ok(());
        }
        let end = handle.offset.saturating_add(handle.len);
        if handle.len as usize != record.len() || handle.offset < self.at || end > self.until {
            return wrong(format!("revision {}.{} has another place in the index", rev.main, rev.sub));
        }
        self.fill(store, handle.offset, rev, compacted)?;
        self.put(record, rev);
        Ok(())
    }

    /// There are no more records.
    pub(crate) fn end(&mut self, store: &Store, compacted: i64) -> Result<(), Misfit> {
        self.fill(store, self.until, self.before, compacted)
    }

    fn wait(&mut self, record: Bytes) {
        let Some(dead) = &mut self.dead else { return };
        self.dead_bytes += record.len();
        dead.push(record);
        if self.dead_bytes > WAITING {
            self.dead = None;
        }
    }

    fn put(&mut self, record: Bytes, rev: Rev) {
        self.at += record.len() as u32;
        self.placed = rev;
        self.parts.push(record);
    }

    /// Closes the gap up to `end`, where the record of revision `next` begins.
    fn fill(&mut self, store: &Store, end: u32, next: Rev, compacted: i64) -> Result<(), Misfit> {
        let dead = self.dead.replace(Vec::new());
        let dead_bytes = std::mem::take(&mut self.dead_bytes);
        let gap = end - self.at;
        if gap == 0 {
            return Ok(());
        }
        if let Some(dead) = dead
            && dead_bytes == gap as usize
        {
            for record in dead {
                let (rev, _) = record::check(&record).expect("it was checked when it came");
                self.put(record, rev);
            }
            return Ok(());
        }
        // Whatever this member needs of the gap the other one has, unless it has compacted more.
        if store.swept() < compacted {
            return Err(Misfit::Later);
        }
        self.filled = true;
        while self.at < end {
            let left = end - self.at;
            let several = next.main > self.placed.main && left > FILLER + SHORTEST;
            let len = if several { FILLER } else { left };
            let mut rev = Rev { main: self.placed.main, sub: self.placed.sub + 1 };
            if self.at + len == self.until && next.main > self.last {
                // The last record of the segment has its last revision.
                rev = rev.max(Rev { main: self.last, sub: 0 });
            }
            if len < SHORTEST / 2 {
                return Err(Misfit::Wrong(format!("a gap of {len} bytes")));
            }
            self.put(record::filler(rev, len as usize), rev);
        }
        Ok(())
    }
}
