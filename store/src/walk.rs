//! Reading a range at one revision as a cursor over the index, in slices, so that a long range
//! never holds up anything else. A slice gives items (handles, not values).

use crate::index::Version;
use crate::protobuf::varint_len;
use crate::record::HEADER;
use crate::state::Store;
use crate::{Error, Item, Key, Located, Query, Rev};

/// A range being read. Its revision must be pinned while it goes on over more than one slice.
#[derive(Clone, Debug)]
pub struct Walk {
    query: Query,
    revision: i64,
    /// It sees only what came before this change of that revision.
    before: Option<Rev>,
    after: Option<Key>,
    /// Keys looked at, whether they exist or not.
    visited: usize,
    /// Keys seen so far that exist at the revision.
    count: i64,
    /// Keys of the whole range at the revision, where the index knew without visiting them.
    counted: Option<i64>,
    /// Items handed out so far.
    taken: i64,
    more: bool,
    finished: bool,
}

/// Count over the whole range, and whether the limit cut something off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Keys in the range.
    pub count: i64,
    /// The limit cut something off.
    pub more: bool,
}

/// One step of a walk.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// The keys found in this step.
    pub items: Vec<Item>,
    /// Set with the last slice.
    pub finished: Option<Finished>,
}

/// As [`Slice`], for answers that show whole records: what an item says stands in them.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// The records found in this step.
    pub records: Vec<Located>,
    /// Set with the last slice.
    pub finished: Option<Finished>,
}

/// Sizes of an answer in key order, gathered without keeping anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Items of the answer.
    pub kvs: u64,
    /// Encoded size of their `KeyValue` messages, without tags and lengths.
    pub bytes: u64,
    /// The same with each message's own length (the varint in front), but without tags.
    pub delimited: u64,
    /// Set with the last slice.
    pub finished: Option<Finished>,
}

impl Walk {
    /// What is asked.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The revision that is read.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// A compaction has passed the revision meanwhile. The pin keeps it readable, but a stream
    /// ends here, as etcd's does.
    pub fn overtaken(&self, compacted: i64) -> bool {
        self.revision < compacted
    }

    /// Starts again from the first key, at the same revision.
    pub fn restart(&mut self) {
        let counted = self.counted;
        *self = Walk { counted, before: self.before, ..Walk::new(self.query.clone(), self.revision) };
    }

    /// For a reader inside of a transaction, if it reads the revision of that.
    pub(crate) fn ends_before(&mut self, before: Option<Rev>) {
        self.before = before.filter(|before| before.main == self.revision);
    }

    /// The revision that must be pinned while it goes on over more than one slice.
    pub(crate) fn holds(&self) -> i64 {
        // What a change of its own revision superseded must stay.
        self.revision - i64::from(self.before.is_some())
    }

    /// Keys looked at so far.
    pub(crate) fn visited(&self) -> usize {
        self.visited
    }

    /// There is nothing left to read.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    fn new(query: Query, revision: i64) -> Walk {
        Walk {
            query,
            revision,
            before: None,
            visited: 0,
            after: None,
            count: 0,
            counted: None,
            taken: 0,
            more: false,
            finished: false,
        }
    }

    /// Takes note of a key of the range; true if it belongs to the answer.
    fn take(&mut self, version: &Version) -> bool {
        self.count += 1;
        if self.query.count_only || !self.query.admits(version.main, version.create) {
            return false;
        }
        if self.query.walk_limit().is_some_and(|limit| self.taken >= limit) {
            self.more = true;
            return false;
        }
        self.taken += 1;
        true
    }

    /// Items of the answer, where the index knows without visiting them.
    pub fn expected(&self) -> Option<i64> {
        let counted = self.counted.filter(|_| !self.query.has_filters() && !self.query.count_only)?;
        Some(self.query.walk_limit().map_or(counted, |limit| counted.min(limit)))
    }

    /// Nothing that is still ahead could change the result.
    fn knows_all(&self) -> bool {
        self.counted.is_some() && (self.query.count_only || self.more)
    }

    fn result(&self) -> Finished {
        Finished { count: self.counted.unwrap_or(self.count), more: self.more && !self.query.needs_sort() }
    }
}

impl Store {
    /// Begins to read; refuses compacted and future revisions.
    ///
    /// # Errors
    /// [`Error::Compacted`] or [`Error::FutureRev`].
    pub fn walk(&self, query: Query) -> Result<Walk, Error> {
        self.walk_at(query, self.revision)
    }

    /// The revision that a reader who asks for `revision` reads.
    pub(crate) fn revision_for(&self, revision: i64, newest: i64) -> Result<i64, Error> {
        let revision = if revision <= 0 { newest } else { revision };
        if revision > newest {
            return Err(Error::FutureRev);
        }
        if revision < self.compacted {
            return Err(Error::Compacted);
        }
        Ok(revision)
    }

    /// `newest` may lie ahead of the store's revision by the transaction being executed.
    pub(crate) fn walk_at(&self, query: Query, newest: i64) -> Result<Walk, Error> {
        let revision = self.revision_for(query.revision, newest)?;
        let mut walk = Walk::new(query, revision);
        if revision == newest && walk.query.range.end.is_some() {
            // No version is newer than the newest revision, so what lives now lives at it.
            walk.counted = Some(self.keys.count_live(&walk.query.range) as i64);
        }
        Ok(walk)
    }

    /// Looks at up to `most` keys more and hands out those that belong to the answer. Goes on to
    /// the end of the range, behind the limit too: the count needs it.
    pub fn advance(&self, walk: &mut Walk, most: usize) -> Slice {
        let mut items = Vec::new();
        let strip_lease = walk.query.keys_only && walk.query.target != crate::SortTarget::Value;
        let finished = self.visit(walk, most, |key, version| {
            let mut item = self.item(key, version);
            if strip_lease {
                item.lease = 0;
            }
            items.push(item);
        });
        Slice { items, finished }
    }

    /// As [`Store::advance`], but hands out where the records lie and nothing else. For walks in
    /// key order that show values.
    pub fn advance_records(&self, walk: &mut Walk, most: usize) -> Records {
        assert!(walk.query.shows_records(), "only whole records in key order need no keys");
        let mut records = Vec::new();
        let finished = self.visit(walk, most, |_, version| records.push(self.located(version)));
        Records { records, finished }
    }

    /// As [`Store::advance`], but adds up sizes into `measure` and keeps nothing.
    /// True when the walk is finished. For walks in key order.
    pub fn measure(&self, walk: &mut Walk, most: usize, measure: &mut Measure) -> bool {
        assert!(!walk.query.needs_sort(), "a sorted answer is measured after sorting");
        let keys_only = walk.query.keys_only;
        let finished = self.visit(walk, most, |key, version| {
            let len = if keys_only {
                let mut kv = version.without_value(key);
                kv.lease = 0;
                kv.encoded_len()
            } else {
                version.handle.len as usize - HEADER
            };
            measure.kvs += 1;
            measure.bytes += len as u64;
            measure.delimited += (len + varint_len(len as u64)) as u64;
        });
        measure.finished = finished;
        finished.is_some()
    }

    fn visit(&self, walk: &mut Walk, most: usize, mut each: impl FnMut(&[u8], &Version)) -> Option<Finished> {
        if walk.finished {
            return Some(walk.result());
        }
        let range = walk.query.range.clone();
        let after = walk.after.take();
        let mut seen = 0;
        self.keys.scan_after(&range, after.as_deref(), |key, entry| {
            let version = match walk.before {
                Some(before) => entry.before(before),
                None => entry.at(walk.revision),
            };
            let version = version.filter(|version| !version.is_tombstone());
            if let Some(version) = version
                && walk.take(&version)
            {
                each(key, &version);
            }
            seen += 1;
            if seen == most {
                walk.after = Some(key.into());
            }
            seen < most && !walk.knows_all()
        });
        walk.visited += seen;
        if walk.after.is_some() && !walk.knows_all() {
            return None;
        }
        walk.finished = true;
        Some(walk.result())
    }
}
