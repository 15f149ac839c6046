//! What an end of the log that is not whole was: a write that never finished, of which nobody was
//! told, or bytes that were acknowledged and are lost. Only the first may be cut without a word.

use super::batch::{Header, Place, Row};
use super::blank::{self, SECTOR};
use super::marks::Marks;
use super::seal::Seal;
use super::{Tail, Torn};
use crate::PAGE;
use crate::doubt::{Doubt, stricter};
use crate::holes::HoleMark;
use consensus::Position;

/// The place in the newest segment where no batch continues the chain.
#[derive(Debug)]
pub(super) struct End {
    pub place: Place,
    /// The batch that belongs here, if one of its two headers is there.
    pub header: Option<Header>,
    /// The first of the two is there.
    pub front: bool,
    /// Its identity table, if that is whole.
    pub rows: Option<Vec<Row>>,
    /// What is wrong with it.
    pub what: String,
    /// The bytes of the batch; of an unknown one its first page.
    pub bytes: Vec<u8>,
    /// Behind the batch before it stood a page that says that nothing follows.
    pub marked: bool,
    /// That page stood there before the batch.
    pub led: bool,
    /// The end of the last page behind `place` that holds anything but zeros, or says that nothing
    /// follows.
    pub nonzero_end: u64,
}

/// The chain as far as it goes.
#[derive(Debug)]
pub(super) struct Chain {
    pub seal: Seal,
    /// What stands in for a page that cannot be read.
    pub unread: HoleMark,
    pub number: u64,
    pub end: Place,
    /// Name of the newest segment, and its length in bytes.
    pub path: String,
    pub len: u64,
    pub last: Position,
}

const NOTHING_SAYS: &str =
    "the page behind the last batch is not what was written there, and there may have been another";

/// Judges the end of a chain.
pub(super) fn judge(chain: &Chain, end: Option<&End>, marks: &Marks) -> Tail {
    if let Some(lost) = lost_end(chain, end, marks) {
        return Tail::Doubtful(lost);
    }
    let Some(end) = end else { return Tail::Whole };
    if end.header.is_none() && end.is_unwritten(chain.seal) {
        return Tail::Whole;
    }
    if end.header.is_none() && chain.unread.is_hole(&end.bytes) && marks.acknowledged() != Some(chain.number) {
        let what = "the disk cannot read the place behind the last batch, and there may have been another";
        return Tail::Doubtful(doubt_of(chain, Some(end), what.to_string()));
    }
    let blank_from = marks.blank_from(end.place.segment).unwrap_or_else(|| end.looks_blank_from(chain.len));
    // Whatever was written there since left a sector of the page, or a batch.
    if end.header.is_none() && end.page_was_durable(chain, marks) && !end.says_nothing_follows(chain.seal) {
        return Tail::Doubtful(doubt_of(chain, Some(end), NOTHING_SAYS.to_string()));
    }
    if end.header.is_none() && (end.nonzero_end <= end.place.offset || end.place.offset < blank_from) {
        return nothing_there(chain, end, marks, blank_from);
    }
    let unfinished = match marks.acknowledged() {
        // Each save writes `tip` before the next one begins. If that is further behind, another
        // program wrote the log, and `tip` says nothing of its last batch.
        Some(number) if number == chain.number => true,
        _ if marks.same_boot() => end.is_prefix(chain.seal),
        _ => end.misses_a_write(chain.seal, blank_from),
    };
    if unfinished {
        let doubt = Doubt { proven_tear: true, ..doubt_of(chain, Some(end), end.what.clone()) };
        return Tail::Torn(doubt);
    }
    let what = format!("{}, and nothing shows that it is a write which never finished", end.what);
    Tail::Doubtful(doubt_of(chain, Some(end), what))
}

/// The log ends before a batch that is known to have been durable.
fn lost_end(chain: &Chain, end: Option<&End>, marks: &Marks) -> Option<Doubt> {
    let (file, mark) = marks.furthest().filter(|(_, mark)| mark.number > chain.number)?;
    let what =
        format!("the log ends behind batch {}, and {file} says that batch {} was durable", chain.number, mark.number);
    let mut doubt = doubt_of(chain, end, what);
    // Behind the batch that is wrong lies no other one, or it would be its proof. Without that
    // batch, and without a mark that is exact, the log may have gone on.
    let last = end.and_then(|end| end.header).is_some_and(|header| header.number >= mark.number);
    doubt.at_least = !last && !marks.is_exact(mark.number);
    doubt.promise = doubt.promise.max(Some(mark.last));
    // Both files are written when the batch is durable, before anybody is told of it.
    doubt.sure = true;
    doubt.hard = stricter(doubt.hard, mark.hard);
    Some(doubt)
}

/// Nothing of a batch is behind the last one, or what an earlier life of the file left.
fn nothing_there(chain: &Chain, end: &End, marks: &Marks, blank_from: u64) -> Tail {
    if !end.marked || marks.is_exact(chain.number) {
        return Tail::Whole;
    }
    let doubt = doubt_of(chain, Some(end), NOTHING_SAYS.to_string());
    if marks.same_boot() {
        return Tail::Doubtful(doubt);
    }
    // A write that never finished leaves what was there before it.
    if end.says_nothing_follows(chain.seal) {
        return Tail::Whole;
    }
    if end.holds_what_was_before(chain.seal, blank_from) {
        let by_zeros = end.bytes.iter().all(|byte| *byte == 0);
        return Tail::Torn(Doubt { proven_tear: true, by_zeros, ..doubt });
    }
    Tail::Doubtful(doubt)
}

/// The state that a checkpoint holds came from this log, and the log does not reach it.
pub(super) fn below_state(chain: &Chain, state: Position) -> Doubt {
    let what =
        format!("the log ends behind entry {}, and the checkpoint stands at entry {}", chain.last.index, state.index);
    // A state goes into a checkpoint when its entries are durable in the log.
    Doubt { sure: true, ..doubt_of(chain, None, what) }
}

/// The last entry of a batch. Without its table no term is known but the member's own, which no
/// entry exceeds.
pub(super) fn last_of(header: &Header, rows: Option<&[Row]>) -> Position {
    if header.count == 0 {
        return header.base;
    }
    let term = rows.and_then(<[Row]>::last).map_or(header.hard.term, |row| row.id.term);
    Position { index: header.range().last, term }
}

fn doubt_of(chain: &Chain, end: Option<&End>, what: String) -> Doubt {
    let at = Torn { file: chain.path.clone(), offset: chain.end.offset, what };
    let header = end.and_then(|end| end.header);
    Doubt {
        at,
        promise: end.and_then(End::promise),
        at_least: false,
        hard: header.map(|header| header.hard).unwrap_or_default(),
        proven_tear: false,
        by_zeros: false,
        sure: false,
        cutting: false,
    }
}

impl End {
    fn promise(&self) -> Option<Position> {
        Some(last_of(self.header.as_ref()?, self.rows.as_deref()))
    }

    fn copy(&self, seal: Seal) -> bool {
        self.header.is_some_and(|header| {
            let at = self.bytes.len().checked_sub(header.head());
            self.bytes.len() as u64 == header.size()
                && at.is_some_and(|at| self.bytes[at..] == header.encode(seal.salt))
        })
    }

    /// Where in the batch each body that is not empty lies, and whether it is right.
    fn bodies(&self, head: usize, rows: &[Row]) -> Vec<(std::ops::Range<usize>, bool)> {
        let mut from = head + rows.len() * super::batch::ROW;
        let place = |row: &Row| {
            let range = from..from + row.len as usize;
            from = range.end;
            let right = self.bytes.get(range.clone()).is_some_and(|body| crc32c::crc32c(body) == row.id.crc);
            (range, right)
        };
        rows.iter().map(place).filter(|(range, _)| !range.is_empty()).collect()
    }

    /// A page stood here that says that nothing follows, durably: it stood before the last batch
    /// was written, or that batch is known to have been durable.
    fn page_was_durable(&self, chain: &Chain, marks: &Marks) -> bool {
        let known = marks.furthest().is_some_and(|(_, mark)| mark.number >= chain.number);
        self.led || (self.marked && known)
    }

    /// The page holds what lay there before the batch in front of it was written: zeros in a part
    /// of the file that held zeros alone, or an earlier life of the file.
    fn holds_what_was_before(&self, seal: Seal, blank_from: u64) -> bool {
        let zeros = self.place.offset >= blank_from && self.bytes.iter().all(|byte| *byte == 0);
        zeros || self.holds_an_earlier_batch(seal) || self.said_that_nothing_follows(seal)
    }

    /// A sector did so in an earlier life of the file.
    fn said_that_nothing_follows(&self, seal: Seal) -> bool {
        self.bytes.chunks(SECTOR).zip((self.place.offset..).step_by(SECTOR)).any(|(sector, offset)| {
            let segment = blank::segment_of(seal, offset, sector);
            let salted = |segment| seal.is_salted(segment) == seal.is_salted(self.place.segment);
            segment.is_some_and(|segment| segment < self.place.segment && salted(segment))
        })
    }

    /// A killed process leaves the front of a write: everything is right up to some page, and
    /// nothing behind it.
    fn is_prefix(&self, seal: Seal) -> bool {
        if !self.front || self.copy(seal) {
            return false;
        }
        let head = seal.head(self.place.segment);
        let bodies = self.rows.as_ref().map(|rows| self.bodies(head, rows)).unwrap_or_default();
        bodies.iter().skip_while(|(_, right)| *right).all(|(_, right)| !right)
    }

    /// A sector of the batch holds what lay there before it: zeros in a part of the file that held
    /// zeros alone, or a batch of the file's earlier life.
    fn misses_a_write(&self, seal: Seal, blank_from: u64) -> bool {
        let Some(header) = self.header else {
            return self.is_blank(seal, 0..1, blank_from) || self.says_nothing_follows(seal);
        };
        let head = header.head();
        let bodies_from = head + header.table_len();
        let mut wrong = Vec::new();
        if !self.front {
            wrong.push(0..head);
        }
        match &self.rows {
            None => wrong.push(head..bodies_from.min(self.bytes.len())),
            Some(rows) => {
                wrong.extend(self.bodies(head, rows).into_iter().filter(|(_, right)| !right).map(|(range, _)| range));
            }
        }
        if !self.copy(seal) {
            wrong.push(self.bytes.len().saturating_sub(head)..self.bytes.len());
        }
        wrong.into_iter().any(|range| self.is_blank(seal, range, blank_from)) || self.holds_an_earlier_batch(seal)
    }

    /// The page says that nothing follows, but for sectors of zeros: the padding of a write that
    /// never finished, of which neither header is there.
    fn is_unwritten(&self, seal: Seal) -> bool {
        let padding = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
        let says = |(sector, offset): (&[u8], u64)| blank::is_sector(seal, Place { offset, ..self.place }, sector);
        let sectors = || self.bytes.chunks(SECTOR).zip((self.place.offset..).step_by(SECTOR));
        sectors().any(says) && sectors().all(|(sector, offset)| padding(sector) || says((sector, offset)))
    }

    /// A sector of the first page does: the batch that would stand here was not written whole.
    fn says_nothing_follows(&self, seal: Seal) -> bool {
        self.bytes
            .chunks(SECTOR)
            .take((PAGE as usize) / SECTOR)
            .zip((self.place.offset..).step_by(SECTOR))
            .any(|(sector, offset)| blank::is_sector(seal, Place { offset, ..self.place }, sector))
    }

    /// One of the sectors that `range` of the batch touches was never written.
    fn is_blank(&self, seal: Seal, range: std::ops::Range<usize>, blank_from: u64) -> bool {
        let first = range.start / SECTOR * SECTOR;
        (first..range.end.min(self.bytes.len())).step_by(SECTOR).any(|at| {
            let sector = &self.bytes[at..(at + SECTOR).min(self.bytes.len())];
            let offset = self.place.offset + at as u64;
            let zeros = || offset >= blank_from && sector.iter().all(|byte| *byte == 0);
            let marked = self.marked && (at as u64) < PAGE;
            blank::is_sector(seal, Place { offset, ..self.place }, sector) || (!marked && zeros())
        })
    }

    /// A page of the batch begins or ends with a header that was written there before this segment.
    fn holds_an_earlier_batch(&self, seal: Seal) -> bool {
        let salted = seal.is_salted(self.place.segment);
        let earlier = |header: &Header| {
            let same = header.id == seal.id && header.at.segment < self.place.segment;
            // What has no salt may be what a client wrote.
            same && salted == seal.is_salted(header.at.segment)
        };
        self.bytes.chunks_exact(PAGE as usize).zip(0u64..).any(|(page, number)| {
            let at = self.place.offset + number * PAGE;
            let front = seal.decode(page).is_ok_and(|(header, _)| earlier(&header) && header.at.offset == at);
            let back = seal.decode_copy(self.place.segment, page);
            front || back.is_ok_and(|(h, _)| earlier(&h) && h.at.offset.checked_add(h.size()) == Some(at + PAGE))
        })
    }

    /// For a directory that says nothing of its segment: if nothing lies behind the batch, nothing
    /// lay under it either. At the very end of the file nothing can be told.
    fn looks_blank_from(&self, len: u64) -> u64 {
        let end = self.place.offset + self.header.map_or(PAGE, |header| header.size());
        if self.nonzero_end <= end && end + PAGE <= len { self.place.offset } else { u64::MAX }
    }
}
