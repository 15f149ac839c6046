//! Where records go. Each gets its place in a segment at apply; its bytes stay here until a file
//! holds them. The layout is local to the member: it is decided by arrival alone.
//!
//! A main revision never spans two segments (so segments cover disjoint, ascending intervals),
//! except a monstrous one that would not fit in [`HARD_LIMIT`].

use crate::record::{self, KeyValueRef};
use crate::{Handle, Rev};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Records of a segment file start behind one header page.
pub(crate) const FIRST_OFFSET: u32 = 4096;
/// No segment grows beyond this, whatever one revision holds.
pub(crate) const HARD_LIMIT: u32 = 1 << 31;
/// From the id of one segment to that of the next one that is begun. The ids between are for files
/// that take the place of their neighbours (`reclaim`): ids ascend as revisions do.
pub(crate) const ID_STEP: u32 = 64;

/// A run of records for one segment file, to be written at `offset`.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Number of the segment.
    pub segment: u32,
    /// Byte offset in its file.
    pub offset: u32,
    /// Whole records one after another, shared with the memory they lie in.
    pub parts: Vec<Bytes>,
    /// First and last revision in `parts`; None if empty (a seal alone).
    pub revisions: Option<(Rev, Rev)>,
    /// Nothing follows in this segment: the file gets its footer.
    pub seals: bool,
}

impl Extent {
    /// Offset behind the last record.
    pub fn end(&self) -> u32 {
        self.offset + self.parts.iter().map(|part| part.len() as u32).sum::<u32>()
    }
}

/// One segment as the state knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Number of the segment.
    pub id: u32,
    /// First and last main revision in it; 0, 0 while it is empty.
    pub first: i64,
    /// Last main revision in it; 0 while it is empty.
    pub last: i64,
    /// Offset behind the last record.
    pub end: u32,
    /// Bytes of records that the index still points to.
    pub live: u64,
    /// Nothing is appended any more.
    pub sealed: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    offset: u32,
    rev: Rev,
    bytes: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Unwritten {
    records: VecDeque<Waiting>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tail {
    segments: BTreeMap<u32, SegmentUse>,
    /// Segments with something to write: records, or a seal.
    unwritten: BTreeMap<u32, Unwritten>,
    bytes: u64,
    /// Ids of segments that are gone. Whoever still has a handle there must not find another
    /// record, so none is given again in this life.
    spent: BTreeSet<u32>,
    /// A run that is being rewritten, and what it becomes at the end: its segments stay, even if
    /// nothing in them lives any more.
    held: Vec<u32>,
}

fn empty_segment(id: u32) -> SegmentUse {
    SegmentUse { id, first: 0, last: 0, end: FIRST_OFFSET, live: 0, sealed: false }
}

impl Tail {
    pub(crate) fn new() -> Tail {
        Tail::restore([empty_segment(1)]).expect("one open segment")
    }

    /// Continues behind the segments of an image. None unless they are ascending and only the last
    /// is open.
    pub(crate) fn restore(segments: impl IntoIterator<Item = SegmentUse>) -> Option<Tail> {
        let (unwritten, spent) = (BTreeMap::new(), BTreeSet::new());
        let mut tail = Tail { segments: BTreeMap::new(), unwritten, bytes: 0, spent, held: Vec::new() };
        for segment in segments {
            if let Some((id, last)) = tail.segments.last_key_value()
                && (*id >= segment.id || !last.sealed)
            {
                return None;
            }
            tail.segments.insert(segment.id, segment);
        }
        let open = tail.segments.last_key_value().is_some_and(|(_, last)| !last.sealed);
        open.then_some(tail)
    }

    /// Places and encodes one record, and shows its bytes. `rev` ascends from call to call.
    pub(crate) fn append(
        &mut self,
        segment_bytes: u32,
        rev: Rev,
        tombstone: bool,
        kv: &KeyValueRef<'_>,
    ) -> (Handle, &Bytes) {
        let bytes = record::encode(rev, tombstone, kv);
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len < HARD_LIMIT);
        let len = len.expect("a record is shorter than a segment may be");
        let segment = self.segment_for(segment_bytes, rev.main, len);
        let handle = Handle { segment: segment.id, offset: segment.end, len };
        segment.first = if segment.first == 0 { rev.main } else { segment.first };
        segment.last = rev.main;
        segment.end += len;
        segment.live += u64::from(len);
        let records = &mut self.unwritten.entry(handle.segment).or_default().records;
        records.push_back(Waiting { offset: handle.offset, rev, bytes });
        self.bytes += u64::from(len);
        (handle, &records.back().expect("pushed just now").bytes)
    }

    fn segment_for(&mut self, segment_bytes: u32, main: i64, len: u32) -> &mut SegmentUse {
        let (_, open) = self.segments.last_key_value().expect("there is an open segment");
        assert!(!open.sealed && open.last <= main, "records are appended in revision order");
        let mut id = open.id;
        let begun = open.end > FIRST_OFFSET;
        let (end, limit) = (u64::from(open.end) + u64::from(len), u64::from(segment_bytes));
        let over = if open.last == main { end > u64::from(HARD_LIMIT) } else { end > limit };
        if begun && over {
            id = self.seal_open();
        }
        self.segments.get_mut(&id).expect("the open one")
    }

    /// Nothing more goes to the open segment. The id of the new one.
    fn seal_open(&mut self) -> u32 {
        let mut last = self.segments.last_entry().expect("there is an open segment");
        let id = *last.key();
        last.get_mut().sealed = true;
        // A seal is written even if every record of the segment already is.
        self.unwritten.entry(id).or_default();
        let next = id.checked_add(ID_STEP).expect("fewer than 2^32 / ID_STEP segments");
        self.segments.insert(next, empty_segment(next));
        next
    }

    /// Closes the open segment so that it can be rewritten, unless it is empty.
    pub(crate) fn close_open(&mut self) {
        if self.open().end > FIRST_OFFSET {
            self.seal_open();
        }
    }

    pub(crate) fn open(&self) -> &SegmentUse {
        self.segments.last_key_value().expect("there is an open segment").1
    }

    /// Files hold all of it, and it gets no more.
    pub(crate) fn is_settled(&self, segment: &SegmentUse) -> bool {
        segment.sealed && !self.unwritten.contains_key(&segment.id)
    }

    /// An id between those of two segments that was never used: the one nearest to their middle.
    /// None: there is none left.
    pub(crate) fn free_between(&self, before: u32, behind: u32) -> Option<u32> {
        let room = behind.saturating_sub(before);
        let middle = before + room / 2;
        let nearest = (0..room).flat_map(|far| [middle.checked_sub(far), middle.checked_add(far)]);
        let used = |id: &u32| self.segments.contains_key(id) || self.spent.contains(id);
        nearest.flatten().filter(|id| before < *id && *id < behind).find(|id| !used(id))
    }

    /// A file of this id is on the disk, though the state does not know the segment.
    pub(crate) fn spend(&mut self, id: u32) {
        if !self.segments.contains_key(&id) {
            self.spent.insert(id);
        }
    }

    /// These are being rewritten; none: nothing is.
    pub(crate) fn hold(&mut self, segments: Vec<u32>) {
        self.held = segments;
    }

    /// A file that holds what is needed of others: they are forgotten by [`Tail::retire`].
    pub(crate) fn add(&mut self, segment: SegmentUse) {
        assert!(segment.sealed, "only the newest segment is open");
        assert!(self.segments.insert(segment.id, segment).is_none(), "a segment is added once");
    }

    /// Forgets segments that others took the place of. Bytes of their files, about.
    ///
    /// # Panics
    /// If a record in one of them is still needed.
    pub(crate) fn retire(&mut self, segments: &[u32]) -> u64 {
        let mut bytes = 0;
        for id in segments {
            let gone = self.segments.remove(id).expect("it was there");
            assert!(gone.live == 0, "a record of segment {id} was not moved");
            self.spent.insert(*id);
            bytes += u64::from(gone.end);
        }
        bytes
    }

    /// The bytes of a record that no file holds yet.
    pub(crate) fn get(&self, handle: Handle) -> Option<Bytes> {
        let records = &self.unwritten.get(&handle.segment)?.records;
        // Most records that are read are older than all of these.
        records.front().filter(|oldest| oldest.offset <= handle.offset)?;
        let found = records.binary_search_by_key(&handle.offset, |waiting| waiting.offset).ok()?;
        let bytes = &records[found].bytes;
        assert!(bytes.len() == handle.len as usize, "a handle names one whole record");
        Some(bytes.clone())
    }

    pub(crate) fn unwritten(&self, most: usize) -> Vec<Extent> {
        let (mut extents, mut room) = (Vec::new(), most.max(1));
        for (id, unwritten) in &self.unwritten {
            if room == 0 {
                break;
            }
            let sealed = self.segments.get(id).is_none_or(|segment| segment.sealed);
            let extent = extent(*id, unwritten, sealed, self.segments.get(id), &mut room);
            if !extent.parts.is_empty() || extent.seals {
                extents.push(extent);
            }
        }
        extents
    }

    pub(crate) fn written(&mut self, segment: u32, upto: u32, sealed: bool) {
        let Some(unwritten) = self.unwritten.get_mut(&segment) else {
            return;
        };
        while unwritten.records.front().is_some_and(|waiting| waiting.offset < upto) {
            let gone = unwritten.records.pop_front().expect("looked at just now");
            let end = gone.offset as usize + gone.bytes.len();
            assert!(end <= upto as usize, "records are written whole");
            self.bytes -= gone.bytes.len() as u64;
        }
        let open = self.segments.get(&segment).is_some_and(|segment| !segment.sealed);
        if unwritten.records.is_empty() && (sealed || open) {
            self.unwritten.remove(&segment);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &SegmentUse> {
        self.segments.values()
    }

    /// The segments in which a scan finds each record once: of a run that is being rewritten the
    /// old ones, until they are forgotten.
    pub(crate) fn to_scan(&self) -> impl Iterator<Item = &SegmentUse> {
        let output = self.held.last();
        self.segments.values().filter(move |used| output != Some(&used.id))
    }

    /// The segments as far as files hold them: each ends where its first record begins that is in
    /// memory alone.
    pub(crate) fn in_files(&self) -> Vec<SegmentUse> {
        let first = |id: &u32| self.unwritten.get(id).and_then(|unwritten| unwritten.records.front());
        let written =
            |used: &SegmentUse| SegmentUse { end: first(&used.id).map_or(used.end, |waiting| waiting.offset), ..*used };
        self.to_scan().map(written).filter(|used| used.end > FIRST_OFFSET).collect()
    }

    /// The index does not point to this record any more.
    pub(crate) fn freed(&mut self, handle: Handle) {
        let segment = self.segments.get_mut(&handle.segment).expect("records lie in known segments");
        segment.live -= u64::from(handle.len);
    }

    /// Begins to count the index's records anew, after loading.
    pub(crate) fn begin_recount(&mut self) {
        for segment in self.segments.values_mut() {
            segment.live = 0;
        }
    }

    /// One record more that the index points to. False: it lies in no segment.
    pub(crate) fn counted(&mut self, handle: Handle) -> bool {
        let Some(segment) = self.segments.get_mut(&handle.segment) else { return false };
        let end = handle.offset.checked_add(handle.len);
        let inside = handle.offset >= FIRST_OFFSET && end.is_some_and(|end| end <= segment.end);
        segment.live += u64::from(handle.len);
        inside
    }

    pub(crate) fn drop_dead(&mut self) -> Vec<u32> {
        let dead =
            |segment: &&SegmentUse| segment.live == 0 && self.is_settled(segment) && !self.held.contains(&segment.id);
        let dead: Vec<u32> = self.segments.values().filter(dead).map(|segment| segment.id).collect();
        self.retire(&dead);
        dead
    }
}

impl Default for Tail {
    fn default() -> Tail {
        Tail::new()
    }
}

fn extent(id: u32, unwritten: &Unwritten, sealed: bool, segment: Option<&SegmentUse>, room: &mut usize) -> Extent {
    let records = &unwritten.records;
    let (mut parts, mut last) = (Vec::new(), None);
    for waiting in records {
        if *room == 0 {
            break;
        }
        *room = room.saturating_sub(waiting.bytes.len());
        parts.push(waiting.bytes.clone());
        last = Some(waiting.rev);
    }
    let first = records.front();
    let end = segment.map_or(FIRST_OFFSET, |segment| segment.end);
    Extent {
        segment: id,
        offset: first.map_or(end, |waiting| waiting.offset),
        seals: sealed && parts.len() == records.len(),
        revisions: first.map(|waiting| waiting.rev).zip(last),
        parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(tail: &mut Tail, main: i64, sub: i64, value: usize) -> Handle {
        let value = vec![b'v'; value];
        let kv = KeyValueRef { key: b"k", create: 2, modified: main, version: 1, value: &value, lease: 0 };
        tail.append(8192, Rev { main, sub }, false, &kv).0
    }

    #[test]
    fn a_revision_stays_in_one_segment_and_seals_come_once() {
        let mut tail = Tail::new();
        let a = put(&mut tail, 2, 0, 3000);
        let b = put(&mut tail, 3, 0, 900);
        let c = put(&mut tail, 3, 1, 900);
        let d = put(&mut tail, 4, 0, 10);
        assert_eq!((a.segment, a.offset), (1, FIRST_OFFSET));
        assert_eq!((b.segment, b.offset), (1, FIRST_OFFSET + a.len));
        assert_eq!(c.segment, 1, "the same revision runs over the limit");
        assert_eq!((d.segment, d.offset), (1 + ID_STEP, FIRST_OFFSET));

        let extents = tail.unwritten(usize::MAX);
        assert_eq!(extents.len(), 2);
        assert_eq!((extents[0].segment, extents[0].offset, extents[0].parts.len()), (1, FIRST_OFFSET, 3));
        assert!(extents[0].seals && !extents[1].seals);
        assert_eq!(extents[0].revisions, Some((Rev { main: 2, sub: 0 }, Rev { main: 3, sub: 1 })));
        assert_eq!(tail.unwritten(1).len(), 1);
        assert!(!tail.unwritten(1)[0].seals);

        tail.written(1, b.offset, false);
        assert!(tail.get(a).is_none());
        assert!(tail.get(b).is_some());
        tail.written(1, extents[0].end(), true);
        assert_eq!(tail.unwritten(usize::MAX).len(), 1);
        tail.written(d.segment, extents[1].end(), false);
        assert_eq!(tail.bytes(), 0);
        assert!(tail.unwritten(usize::MAX).is_empty());
    }

    #[test]
    fn a_seal_alone_is_still_written() {
        let mut tail = Tail::new();
        let a = put(&mut tail, 2, 0, 4000);
        tail.written(1, a.offset + a.len, false);
        put(&mut tail, 3, 0, 200);
        let extents = tail.unwritten(usize::MAX);
        assert_eq!((extents[0].segment, extents[0].offset), (1, a.offset + a.len));
        assert!(extents[0].parts.is_empty() && extents[0].seals);
        tail.written(1, a.offset + a.len, true);
        assert_eq!(tail.unwritten(usize::MAX).len(), 1);
    }

    #[test]
    fn dead_segments_are_named_once() {
        let mut tail = Tail::new();
        let a = put(&mut tail, 2, 0, 4000);
        put(&mut tail, 3, 0, 200);
        tail.freed(a);
        assert!(tail.drop_dead().is_empty(), "not yet written");
        tail.written(1, a.offset + a.len, true);
        assert_eq!(tail.drop_dead(), vec![1]);
        assert!(tail.drop_dead().is_empty());
    }

    #[test]
    fn an_id_between_two_segments_is_given_once() {
        let mut tail = Tail::new();
        let a = put(&mut tail, 2, 0, 4000);
        put(&mut tail, 3, 0, 200);
        assert_eq!(tail.free_between(1, 1 + ID_STEP), Some(1 + ID_STEP / 2));
        assert_eq!(tail.free_between(0, 2), None, "1 is in use");
        tail.written(1, a.offset + a.len, true);
        tail.freed(a);
        assert_eq!(tail.drop_dead(), [1]);
        assert_eq!(tail.free_between(0, 2), None, "1 was used");
        assert_eq!(tail.free_between(0, 3), Some(2));
        assert_eq!(tail.free_between(7, 8), None);
        assert_eq!(tail.free_between(7, 9), Some(8));
    }

    #[test]
    fn the_open_segment_is_closed_on_demand_unless_it_is_empty() {
        let mut tail = Tail::new();
        tail.close_open();
        assert_eq!(tail.segments().count(), 1);
        let a = put(&mut tail, 2, 0, 100);
        tail.close_open();
        tail.close_open();
        let b = put(&mut tail, 3, 0, 100);
        assert_eq!((a.segment, b.segment), (1, 1 + ID_STEP));
        let seals: Vec<bool> = tail.unwritten(usize::MAX).iter().map(|extent| extent.seals).collect();
        assert_eq!(seals, [true, false]);
    }
}
