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

#[cfg(test)]
mod tests {
    use super::*;
    use store::command::{self, PutRequest};
    use store::{Config, Position};

    /// Sixty puts of ten keys, and their records as they lie in segment 1.
    fn written() -> (Store, Vec<Bytes>) {
        let mut store = Store::new(Config { segment_bytes: 1 << 20 });
        for index in 1..=60 {
            let (key, value) = (format!("key-{}", index % 10), "v".repeat(index as usize));
            let mut request = Vec::new();
            PutRequest { key: key.as_bytes(), value: value.as_bytes(), ..PutRequest::default() }.encode(&mut request);
            let body = command::encode_put(&request).expect("well-formed");
            store.apply(Position { index, term: 1 }, &body, None).expect("applied");
        }
        let records = store.unwritten(usize::MAX).into_iter().flat_map(|extent| extent.parts).collect();
        (store, records)
    }

    fn rev(record: &Bytes) -> Rev {
        record::check(record).expect("whole").0
    }

    /// Records `from..until` are damaged.
    fn stretch(records: &[Bytes], from: usize, until: usize) -> Stretch {
        let offset = |n: usize| 4096 + records[..n].iter().map(|record| record.len() as u32).sum::<u32>();
        let last = rev(&records[records.len() - 1]).main;
        let after = from.checked_sub(1).map_or(Rev { main: rev(&records[0]).main, sub: -1 }, |n| rev(&records[n]));
        let before = records.get(until).map_or(Rev { main: last + 1, sub: 0 }, rev);
        let (from, until) = (offset(from), offset(until));
        Stretch { segment: 1, from, until, after, before, last, what: String::new() }
    }

    fn place(store: &Store, stretch: &Stretch, sent: &[Bytes], compacted: i64) -> Result<(Vec<u8>, bool), Misfit> {
        let mut placing = Placing::new(stretch);
        let (mut bytes, mut at) = (Vec::new(), stretch.from);
        let mut written = |placing: &mut Placing| {
            let (start, parts) = placing.placed();
            assert_eq!(start, at);
            bytes.extend(parts.concat());
            at = stretch.from + bytes.len() as u32;
        };
        for record in sent {
            placing.take(store, record.clone(), compacted)?;
            written(&mut placing);
        }
        placing.end(store, compacted)?;
        written(&mut placing);
        assert!(placing.is_done());
        let filled = placing.filled();
        Ok((bytes, filled))
    }

    #[test]
    fn what_was_there_goes_back_to_where_it_was() {
        let (store, records) = written();
        for (from, until) in [(0, 1), (5, 6), (3, 40), (59, 60), (0, 60)] {
            let placed = place(&store, &stretch(&records, from, until), &records[from..until], 0);
            assert_eq!(placed, Ok((records[from..until].concat(), false)));
        }
    }

    /// Whatever the sender has dropped: needed records are where they were, and the rest is whole
    /// records in order.
    #[test]
    fn fillers_take_the_place_of_what_nobody_has() {
        let (mut store, records) = written();
        store.apply(Position { index: 61, term: 1 }, &command::encode_compaction(55, false), None).expect("applied");
        let needed = |store: &Store, record: &Bytes| {
            let opened = record::open(record).expect("whole");
            let key = record::key_value(&opened.body).expect("a pair").key.to_vec();
            store.handle_of(&key, opened.rev).is_some()
        };
        let late = stretch(&records, 20, 60);
        let sent: Vec<Bytes> = records[50..].to_vec();
        assert_eq!(place(&store, &late, &sent, 55), Err(Misfit::Later), "this member still has them in its index");
        while !store.sweep(1000) {}
        for (from, until) in [(0, 60), (20, 60), (0, 49), (30, 31), (58, 60), (44, 47)] {
            let stretch = stretch(&records, from, until);
            for keep in 0..8 {
                // The sender has what is needed, and some of the rest.
                let kept = |(n, record): &(usize, &Bytes)| needed(&store, record) || n % 8 < keep;
                let sent: Vec<Bytes> =
                    records[from..until].iter().enumerate().filter(kept).map(|(_, record)| record.clone()).collect();
                let (bytes, _) = place(&store, &stretch, &sent, 55).expect("it fits");
                assert_eq!(bytes.len() as u32, stretch.until - stretch.from);
                let (bytes, mut at, mut before) = (Bytes::from(bytes), 0, stretch.after);
                while at < bytes.len() {
                    let len = record::whole_len(&bytes[at..]).expect("a record");
                    let found = rev(&bytes.slice(at..at + len));
                    assert!(found > before && found < stretch.before, "{found:?} behind {before:?}");
                    (before, at) = (found, at + len);
                }
                if until == 60 {
                    assert_eq!(before.main, stretch.last);
                }
                let mut offset = 0;
                for record in &records[from..until] {
                    if needed(&store, record) {
                        assert_eq!(bytes[offset..offset + record.len()], record[..]);
                    }
                    offset += record.len();
                }
            }
        }
    }

    #[test]
    fn what_does_not_belong_there_is_refused() {
        let (store, records) = written();
        let stretch = stretch(&records, 10, 20);
        let wrong = |sent: &[Bytes]| matches!(place(&store, &stretch, sent, -1), Err(Misfit::Wrong(_)));
        assert!(wrong(&records[9..20]) && wrong(&records[10..21]), "of other revisions");
        let mut swapped = records[10..20].to_vec();
        swapped.swap(3, 4);
        assert!(wrong(&swapped));
        // Of the right revision, with a value of another length.
        let mut other = records[10..20].to_vec();
        let opened = record::open(&other[5]).expect("whole");
        let kv = record::key_value(&opened.body).expect("a pair");
        other[5] = record::encode(opened.rev, false, &store::record::KeyValueRef { value: b"x", ..kv });
        assert!(wrong(&other));
    }
}
