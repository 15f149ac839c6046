//! The way back: walk the chain of batches, decide at its end between "that is all", "torn", "in
//! doubt" and "damage", and only then touch the disk. What damage below the proven end leaves to a
//! member with peers is in `damage`.

mod damage;
mod understood;

use super::batch::{Frame, Header, NotHeader, Place, Row, decode_table, wrong_bodies};
use super::blank;
use super::marks::{self, Marks};
use super::seal::Seal;
use super::space::{self, Segment, Spares};
use super::tail::{self, Chain, End};
use super::{Log, LogContent, LogOptions, OnDoubt, Tail, Tip, Torn};
use crate::ahead::Ahead;
use crate::doubt::{self, Doubt, stricter};
use crate::header::{check_identity, read_exact, read_full};
use crate::holes::{HoleMark, Holes};
use crate::{EntryId, Fault, Files, How, Identity, PAGE};
use consensus::{HardState, Position};
use damage::Lost;
use std::collections::VecDeque;
use std::sync::Arc;
use understood::Strange;
pub use understood::{Reader, Understands};

/// Bytes read at a time when looking for proof behind the end of the chain.
const STRIDE: usize = 256 << 10;
/// Most identities listed in one fault.
const IDENTITIES_MAX: u64 = 1 << 16;

pub(super) fn recover(
    files: Arc<dyn Files>,
    id: Identity,
    options: LogOptions,
    state: Option<Position>,
    on_doubt: OnDoubt,
    reader: Reader,
) -> Result<(Log, LogContent), Fault> {
    let mut replay = read(files, id, options, on_doubt == OnDoubt::Peers, reader)?;
    replay.refuse_strange()?;
    let known = doubt::find(&*replay.log.files, id)?;
    replay.check_state(state, known.as_ref());
    match on_doubt {
        OnDoubt::Refuse => replay.refuse_doubt(known)?,
        OnDoubt::Keep => replay.remember_doubt(known)?,
        OnDoubt::Peers => {
            replay.judge_lost(state)?;
            replay.remember_doubt(known)?;
            replay.copy_lost_end()?;
            replay.cut_lost(state)?;
        }
    }
    replay.finish()
}

/// Opens a log that holds nothing but its start; None, and nothing changed, if it holds more.
/// Nobody was told of anything in it: whatever its end is may be cut.
pub(super) fn recover_unused(
    files: Arc<dyn Files>,
    id: Identity,
    options: LogOptions,
    start: Position,
) -> Result<Option<Log>, Fault> {
    let replay = read(files, id, options, false, Reader::NONE)?;
    let unused = replay.log.boundary == start
        && replay.log.last == start
        && replay.log.hard.vote == 0
        && replay.log.hard.commit <= start.index;
    if unused { replay.finish().map(|(log, _)| Some(log)) } else { Ok(None) }
}

/// `goes_on`: damage below the proven end does not end the way, so that it is known how far the log
/// went.
fn read(
    files: Arc<dyn Files>,
    id: Identity,
    options: LogOptions,
    goes_on: bool,
    reader: Reader,
) -> Result<Replay, Fault> {
    let (named, spares) = space::list(&*files, options)?;
    let marks = Marks::read(&*files, id, options.boot)?;
    let mut replay = Replay::new(files, id, options, spares);
    (replay.goes_on, replay.reader) = (goes_on, reader);
    if named.is_empty() {
        replay.lose(Fault::damaged(super::DIR, 0, "there is no log file"))?;
    }
    for pair in named.windows(2).filter(|pair| !goes_on && pair[1].0 != pair[0].0 + 1) {
        replay.lose(missing(&pair[0].1, &pair[1].1))?;
    }
    let mut segments = VecDeque::with_capacity(named.len());
    for (number, path) in named {
        let file = replay.log.files.open(&path, How::Write).map_err(|e| Fault::io(&path, 0, e))?;
        let len = file.len().map_err(|e| Fault::io(&path, 0, e))?;
        let file = if goes_on { Holes::marked(file, HoleMark::new(options.salt)) } else { file };
        segments.push_back(Segment { id: number, path, file, len });
    }
    replay.log.seal = Seal::find(id, segments.iter(), &marks)?;
    let count = segments.len();
    for (position, segment) in segments.into_iter().enumerate() {
        if let Some(before) = replay.log.segments.back().filter(|before| before.id + 1 != segment.id) {
            replay.lose(missing(&before.path, &segment.path))?;
            replay.jump();
        }
        replay.log.segments.push_back(segment);
        replay.segment(position + 1 == count)?;
    }
    replay.tail = tail::judge(&replay.chain(), replay.end.as_ref(), &marks);
    replay.healed.extend(marks.wrong.clone());
    replay.marks = marks;
    Ok(replay)
}

/// A batch of the chain, read whole and verified.
struct Batch {
    header: Header,
    digest: u32,
    rows: Vec<Row>,
    /// A header or its copy was wrong, and what.
    wrong: Option<&'static str>,
    /// The first entry that is not understood, and why.
    strange: Option<(Position, String)>,
}

/// What lies behind the end of the chain in a segment.
#[derive(Default)]
struct Survey {
    /// The trailing copy of the header of the batch that is expected at the start.
    copy: Option<(Header, u32)>,
    /// A batch that was written after the expected one was durable.
    proof: Option<Header>,
    /// As in [`End`]; of pages before the proof, if there is one.
    nonzero_end: u64,
}

/// Why the chain does not go on at a place.
struct Break {
    what: String,
    /// The expected batch, if something of it is there.
    header: Option<Header>,
    /// The first of its two headers is.
    front: bool,
    /// Its identity table, if that is whole.
    rows: Option<Vec<Row>>,
    entries: Vec<EntryId>,
}

/// What is at a place: a batch, or why there is none.
type Found = Result<Batch, (Break, Survey)>;

/// What a whole batch holds.
struct Whole {
    rows: Vec<Row>,
    /// The trailing copy of its header is wrong.
    copy_wrong: bool,
    /// As in [`Batch`].
    strange: Option<(Position, String)>,
}

/// The contents of a batch, or what is wrong with them.
type Contents = Result<Whole, Break>;

struct Replay {
    log: Log,
    /// For a log that has none yet.
    salt: u64,
    /// As in [`LogContent`].
    terms: Vec<Position>,
    /// Where the chain breaks off in the newest segment.
    end: Option<End>,
    marks: Marks,
    tail: Tail,
    /// As in [`LogContent`].
    doubt: Option<Doubt>,
    healed: Vec<Torn>,
    /// Batches that are to be written again, in order.
    rewrite: Vec<Header>,
    /// The last batch, unless it stands there.
    newest: Option<Header>,
    /// The break at the end of the last segment but one, which its follower must explain.
    pending: Option<(String, u64, Break)>,
    /// As for [`read`].
    goes_on: bool,
    /// The first damage below the proven end.
    lost: Option<Box<Lost>>,
    /// A place that was given up: what follows it is looked for.
    passed: Option<Place>,
    /// The log was cut at the damage.
    cut: bool,
    /// The highest commit index that any batch tells, behind damage too.
    committed: u64,
    reader: Reader,
    /// The first entry of the log that is not understood.
    strange: Option<Strange>,
}

fn missing(before: &str, path: &str) -> Fault {
    Fault::damaged(path, 0, format!("the log file between {before} and this one is missing"))
}

/// No torn write makes a file shorter: it had its full length, durably, before its first batch.
fn shortened(path: &str, len: u64, made: u64) -> Fault {
    Fault::damaged(path, len, format!("the file ends here and was made with {made} bytes: batches may be missing"))
}

/// Table and bodies of a whole batch.
fn parts<'a>(header: &Header, batch: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let bodies = header.head() + header.table_len();
    let end = bodies + usize::try_from(header.body_len).expect("smaller than its file");
    (&batch[header.head()..bodies], &batch[bodies..end])
}

impl Replay {
    fn new(files: Arc<dyn Files>, id: Identity, options: LogOptions, spares: Spares) -> Replay {
        let log = Log {
            files,
            seal: Seal::without_salt(id),
            boot: options.boot,
            tip_file: None,
            spares,
            segments: VecDeque::new(),
            spans: VecDeque::new(),
            boundary: Position::default(),
            last: Position::default(),
            hard: HardState::default(),
            committed: 0,
            tip: Tip::default(),
            stopped: None,
            closes: false,
            refused: None,
        };
        Replay {
            log,
            salt: options.salt,
            terms: Vec::new(),
            end: None,
            marks: Marks::default(),
            tail: Tail::Whole,
            doubt: None,
            healed: Vec::new(),
            rewrite: Vec::new(),
            newest: None,
            pending: None,
            goes_on: false,
            lost: None,
            passed: None,
            cut: false,
            committed: 0,
            reader: Reader::NONE,
            strange: None,
        }
    }

    fn current(&self) -> &Segment {
        self.log.segments.back().expect("a segment is being read")
    }

    /// Walks the newest segment of `self.log` to the end of the chain.
    fn segment(&mut self, last: bool) -> Result<(), Fault> {
        let segment = self.current();
        let (id, len, path) = (segment.id, segment.len, segment.path.clone());
        let file = Arc::clone(&segment.file);
        let (mut ahead, mut offset, mut short) = (Ahead::new(&*file, &path, len), 0, None);
        while offset + PAGE <= len {
            let place = Place { segment: id, offset };
            match self.batch_at(place, &mut ahead)? {
                Ok(batch) => {
                    if batch.header.file_len > len {
                        short = Some(batch.header.file_len);
                        self.stop_at(shortened(&path, len, batch.header.file_len))?;
                    }
                    offset += batch.header.size();
                    self.accept(batch)?;
                }
                Err((broken, survey)) => {
                    if let Some(made) = short {
                        self.lose(shortened(&path, len, made))?;
                    } else if offset > 0 && survey.proof.is_none() {
                        return self.chain_ends(place, broken, &survey, last);
                    }
                    match self.pass(place, broken, survey.proof, last)? {
                        Some(next) => offset = next,
                        None => break,
                    }
                }
            }
        }
        if offset == 0 && self.passed.is_none_or(|passed| passed.segment != id) {
            self.lose(Fault::damaged(&path, 0, "the file is shorter than a page"))?;
            self.jump();
            self.end_unknown(last);
        }
        if let Some(made) = short {
            self.lose(shortened(&path, len, made))?;
            self.lost_length(made);
            self.end_unknown(last);
        }
        Ok(())
    }

    /// No batch continues the chain, and nothing shows that there was one.
    fn chain_ends(&mut self, place: Place, broken: Break, survey: &Survey, last: bool) -> Result<(), Fault> {
        let segment = self.current();
        if let Some(header) = broken.header.filter(|header| header.file_len > segment.len) {
            self.lose(shortened(&segment.path, segment.len, header.file_len))?;
            self.note_batch(&header, broken.rows.as_deref());
            self.lost_length(header.file_len);
            self.end_unknown(last);
        } else if last {
            self.end = Some(self.end_at(place, broken, survey)?);
        } else {
            self.pending = Some((segment.path.clone(), place.offset, broken));
        }
        Ok(())
    }

    fn end_at(&self, place: Place, broken: Break, survey: &Survey) -> Result<End, Fault> {
        let segment = self.current();
        let size = broken.header.map_or(PAGE, |header| header.size()).min(segment.len - place.offset);
        let size = usize::try_from(size).expect("smaller than its file");
        Ok(End {
            place,
            header: broken.header,
            front: broken.front,
            rows: broken.rows,
            what: broken.what,
            bytes: read_exact(&*segment.file, &segment.path, place.offset, size)?,
            marked: self.log.tip.marked,
            led: self.log.tip.page_led,
            nonzero_end: survey.nonzero_end,
        })
    }

    fn chain(&self) -> Chain {
        let (path, len) =
            self.log.segments.back().map_or((super::DIR.to_string(), 0), |newest| (newest.path.clone(), newest.len));
        let tip = &self.log.tip;
        Chain {
            seal: self.log.seal,
            unread: HoleMark::new(self.salt),
            number: tip.number,
            end: tip.end,
            path,
            len,
            last: self.log.last,
        }
    }

    /// The checkpoint at `state` came from this log. If that does not reach it, the end is missing,
    /// whatever the marks say: they may be as old as the log is.
    fn check_state(&mut self, state: Option<Position>, known: Option<&Doubt>) {
        let Some(state) = state.filter(|state| state.index >= self.log.boundary.index) else { return };
        let reaches = self.log.last.index >= state.index && self.term_at(state.index) == state.term;
        // An earlier start cut it, and remembers as much at least.
        let told = known.is_some_and(|known| known.sure && known.promise.is_none_or(|promise| promise >= state));
        if reaches || told || self.lost.is_some() {
            return;
        }
        let below = tail::below_state(&self.chain(), state);
        self.tail = Tail::Doubtful(match std::mem::replace(&mut self.tail, Tail::Whole) {
            Tail::Whole => below,
            Tail::Torn(end) => Doubt { hard: end.hard, ..below },
            // How far the end went is known only if the marks told more than the checkpoint does.
            Tail::Doubtful(end) | Tail::Damaged(end) if end.sure && end.promise >= Some(state) => end,
            Tail::Doubtful(end) | Tail::Damaged(end) => Doubt { hard: end.hard, at: end.at, ..below },
        });
    }

    fn term_at(&self, index: u64) -> u64 {
        let runs = self.terms.partition_point(|run| run.index <= index);
        runs.checked_sub(1).map_or(self.log.boundary.term, |run| self.terms[run].term)
    }

    /// What was durable is wrong now, and is written over when the log goes on.
    fn copy_lost_end(&mut self) -> Result<(), Fault> {
        let sure = matches!(&self.tail, Tail::Doubtful(doubt) if doubt.sure);
        if sure && self.lost.is_none() && !crate::aside::copy(&*self.log.files, &self.current().path)? {
            self.tell_no_copy();
        }
        Ok(())
    }

    /// The disk is full: what is cut is not kept anywhere.
    fn tell_no_copy(&mut self) {
        if let Tail::Doubtful(doubt) | Tail::Damaged(doubt) = &mut self.tail {
            doubt.at.what.push_str(" (no copy of the file is kept: there is no room for one)");
        }
    }

    /// A lone member has nobody who could know better.
    fn refuse_doubt(&self, known: Option<Doubt>) -> Result<(), Fault> {
        let new = match &self.tail {
            Tail::Doubtful(doubt) => Some(doubt.clone()),
            Tail::Torn(_) | Tail::Damaged(_) | Tail::Whole => None,
        };
        match known.filter(|known| !known.proven_tear).or(new) {
            None => Ok(()),
            Some(Doubt { at, promise, .. }) => {
                Err(Fault::Doubtful { file: at.file, offset: at.offset, what: at.what, promise })
            }
        }
    }

    /// Durable before the end is cut: until the doubt is cleared no restart forgets it.
    fn remember_doubt(&mut self, known: Option<Doubt>) -> Result<(), Fault> {
        let new = match &self.tail {
            Tail::Whole => None,
            Tail::Torn(doubt) | Tail::Doubtful(doubt) | Tail::Damaged(doubt) => Some(doubt.clone()),
        };
        self.doubt = match (known, new) {
            // What a crash left of a cut says less than what was known before it.
            (Some(known), _) if known.cutting => Some(known),
            (Some(known), Some(new)) => Some(known.merged(new)),
            (known, new) => known.or(new),
        };
        match &self.doubt {
            Some(doubt) if self.tail != Tail::Whole => doubt::remember(&*self.log.files, self.log.seal.id, doubt),
            _ => Ok(()),
        }
    }

    /// The first batch of a named segment was durable before the name. If it does not continue the
    /// chain, what is missing may lie at the end of the segment before.
    fn refuse_first(&mut self, path: &str, broken: Break, proof: Option<Header>) -> Fault {
        match self.pending.take() {
            Some((file, offset, before)) if proof.is_some() && broken.header.is_none() => {
                let proof = proof.expect("just seen");
                self.refuse(&file, offset, before, &proof)
            }
            _ => {
                let what = format!("the first batch of a log file: {}", broken.what);
                let entries = match (broken.entries.is_empty(), &proof) {
                    (true, Some(proof)) => self.range_before(proof),
                    _ => broken.entries,
                };
                Fault::Damaged { file: path.to_string(), offset: 0, what, entries }
            }
        }
    }

    fn refuse(&self, file: &str, offset: u64, broken: Break, proof: &Header) -> Fault {
        let what = format!(
            "{}; batch {} at byte {} of log file {:x} proves that it was durable",
            broken.what, proof.number, proof.at.offset, proof.at.segment
        );
        let entries = if broken.entries.is_empty() { self.range_before(proof) } else { broken.entries };
        Fault::Damaged { file: file.to_string(), offset, what, entries }
    }

    /// Entries between what was read and the batch `proof`, known by index alone.
    fn range_before(&self, proof: &Header) -> Vec<EntryId> {
        let (mut first, last) = (self.log.last.index + 1, proof.prev_range.last.max(proof.base.index));
        if proof.number == self.log.tip.number + 2 {
            first = proof.prev_range.first;
        }
        (first..=last.min(first.saturating_add(IDENTITIES_MAX)))
            .map(|index| EntryId { index, term: 0, crc: 0 })
            .collect()
    }

    /// The batch that continues the chain at `place`, or why there is none and the proof that there
    /// was one.
    fn batch_at(&self, place: Place, ahead: &mut Ahead) -> Result<Found, Fault> {
        let found = match self.log.seal.decode(ahead.get(place.offset, self.log.seal.head(place.segment))?) {
            Ok((header, digest)) if self.continues(&header, place)? => Some((header, digest, None)),
            Err(NotHeader::TooNew(level)) => return Err(Fault::TooNew { file: self.current().path.clone(), level }),
            Ok(_) | Err(NotHeader::Unreadable) => None,
        };
        let mut survey = None;
        let found = match found {
            Some(found) => Some(found),
            None => {
                let seen = survey.insert(self.survey(place)?);
                seen.copy.map(|(header, digest)| (header, digest, Some("the header was wrong")))
            }
        };
        let broken = match found {
            None => Break {
                what: "no batch continues the chain".to_string(),
                header: None,
                front: false,
                rows: None,
                entries: Vec::new(),
            },
            Some((header, digest, wrong)) => match self.read_batch(&header, wrong.is_none(), ahead)? {
                Ok(Whole { rows, copy_wrong, strange }) => {
                    let wrong = wrong.or(copy_wrong.then_some("the copy of the header was wrong"));
                    return Ok(Ok(Batch { header, digest, rows, wrong, strange }));
                }
                Err(broken) => broken,
            },
        };
        let survey = match survey {
            Some(survey) => survey,
            None => self.survey(place)?,
        };
        Ok(Err((broken, survey)))
    }

    /// Is this the next batch, at its place? The very first one of the oldest segment has no
    /// predecessor to be compared with; whose it is, is checked there.
    fn continues(&self, header: &Header, place: Place) -> Result<bool, Fault> {
        if header.at != place {
            return Ok(false);
        }
        if self.log.tip.number == 0 {
            check_identity(&self.current().path, self.log.seal.id, header.id)?;
            return Ok(true);
        }
        let tip = &self.log.tip;
        Ok(header.id == self.log.seal.id
            && header.number == tip.number + 1
            && header.prev_digest == tip.digest
            && header.prev_range == tip.range
            && header.proven == tip.end
            && (header.restart || header.base.index <= self.log.last.index))
    }

    /// Reads and verifies table and bodies.
    fn read_batch(&self, header: &Header, front: bool, ahead: &mut Ahead) -> Result<Contents, Fault> {
        let broken = |what: &str, rows, entries| {
            Ok(Err(Break { what: what.to_string(), header: Some(*header), front, rows, entries }))
        };
        let room = self.current().len - header.at.offset;
        if header.size() > room {
            return broken("the file ends inside a batch", None, Vec::new());
        }
        let size = usize::try_from(header.size()).expect("smaller than its file");
        let bytes = ahead.get(header.at.offset, size)?;
        let (table, bodies) = parts(header, bytes);
        let Some(rows) = decode_table(header, table) else {
            return broken("the identity table of a batch is wrong", None, Vec::new());
        };
        let wrong = wrong_bodies(&rows, bodies);
        if !wrong.is_empty() {
            return broken("the data of log entries is wrong", Some(rows), wrong);
        }
        let strange = self.reader.first_strange(&rows, bodies);
        Ok(Ok(Whole {
            rows,
            copy_wrong: bytes[size - header.head()..] != header.encode(self.log.seal.salt)[..],
            strange,
        }))
    }

    /// Looks at every page of the segment from `place` on.
    fn survey(&self, place: Place) -> Result<Survey, Fault> {
        let segment = self.current();
        let mut survey = Survey::default();
        let mut buffer = vec![0; usize::try_from(segment.len - place.offset).map_or(STRIDE, |rest| rest.min(STRIDE))];
        let mut offset = place.offset;
        while offset < segment.len && survey.proof.is_none() {
            let got = read_full(&*segment.file, &segment.path, offset, &mut buffer)?;
            for (position, page) in buffer[..got].chunks_exact(PAGE as usize).enumerate() {
                let at = Place { segment: place.segment, offset: offset + position as u64 * PAGE };
                self.survey_page(place, at, page, &mut survey)?;
            }
            if got < buffer.len() {
                break;
            }
            offset += got as u64;
        }
        Ok(survey)
    }

    fn survey_page(&self, place: Place, at: Place, page: &[u8], survey: &mut Survey) -> Result<(), Fault> {
        if page != &super::ZEROS[..page.len()] && !blank::is_page(self.log.seal, at, page) {
            survey.nonzero_end = at.offset + PAGE;
        }
        let front = self.log.seal.decode(page).ok().filter(|(header, _)| header.at == at);
        let back =
            self.log.seal.decode_copy(at.segment, page).ok().filter(|(h, _)| {
                h.at.segment == at.segment && h.at.offset.checked_add(h.size()) == Some(at.offset + PAGE)
            });
        if let Some((header, digest)) = back
            && header.at == place
            && self.continues(&header, place)?
        {
            survey.copy = Some((header, digest));
        }
        for (header, _) in front.into_iter().chain(back) {
            let ours = header.id == self.log.seal.id;
            // A later batch in this place's segment, or (at its very start) one that is not its
            // successor.
            let gap = place.offset == 0 && header.at == place && header.number > self.log.tip.number + 1;
            let later = header.proven > place || (gap && self.passed != Some(place));
            if ours && later && survey.proof.is_none() {
                survey.proof = Some(header);
            }
        }
        Ok(())
    }

    fn accept(&mut self, batch: Batch) -> Result<(), Fault> {
        let header = batch.header;
        match batch.wrong {
            None => self.newest = Some(header),
            Some(wrong) => {
                self.newest = None;
                self.rewrite.push(header);
                let (file, offset) = (self.current().path.clone(), header.at.offset);
                self.healed.push(Torn { file, offset, what: wrong.to_string() });
            }
        }
        self.pending = None;
        self.committed = self.committed.max(header.hard.commit);
        self.note_strange(header.base.index, header.at.offset, batch.strange);
        if self.log.tip.number == 0 {
            self.log.boundary = header.base;
            self.log.last = header.base;
        }
        self.take_terms(&header, &batch.rows);
        let last_term = batch.rows.last().map_or(header.base.term, |row| row.id.term);
        self.log.account(&header, last_term);
        // A batch that is not whole to its end explains a page behind it that is not there.
        (self.log.tip.digest, self.log.tip.marked) = (batch.digest, header.marked && batch.wrong.is_none());
        self.log.tip.page_led = header.led;
        self.note_batch(&header, Some(&batch.rows));
        Ok(())
    }

    fn take_terms(&mut self, header: &Header, rows: &[Row]) {
        // What a restart or a replaced end leaves is of the base's term at most.
        while self.terms.last().is_some_and(|run| header.restart || run.index > header.base.index) {
            self.terms.pop();
        }
        let mut term = header.base.term;
        for row in rows {
            if row.id.term > term {
                term = row.id.term;
                self.terms.push(Position { index: row.id.index, term });
            }
        }
    }

    /// A batch as it should be on the disk.
    fn whole(&self, header: &Header) -> Result<Vec<u8>, Fault> {
        let segment = self.log.segments.iter().find(|segment| segment.id == header.at.segment);
        let segment = segment.expect("it was read from there");
        let size = usize::try_from(header.size()).expect("smaller than its file");
        let bytes = read_exact(&*segment.file, &segment.path, header.at.offset, size)?;
        let (table, bodies) = parts(header, &bytes);
        let same = decode_table(header, table).is_some_and(|rows| wrong_bodies(&rows, bodies).is_empty());
        if !same {
            let what = "a batch that was whole just now is not any more";
            return Err(Fault::damaged(&segment.path, header.at.offset, what));
        }
        let frame = Frame::new(header, self.log.seal.salt, table);
        Ok([&frame.front[..], bodies, &frame.back].concat())
    }

    /// A log of level 1 goes on in a file of its own, with a salt. No file of before is used again:
    /// it holds what clients wrote.
    fn salt_the_log(&mut self) -> Result<(), Fault> {
        let log = &mut self.log;
        let newest = log.segments.back().map_or(0, |segment| segment.id);
        if log.seal.is_salted(newest) {
            return Ok(());
        }
        if log.spares.release(&*log.files)? {
            log.files.sync_dir(super::DIR).map_err(|e| Fault::io(super::DIR, 0, e))?;
        }
        log.seal = Seal { salt: self.salt, from: newest + 1, ..log.seal };
        log.closes = true;
        Ok(())
    }

    /// Nothing is refused any more: make durable what was read, then prove it.
    fn finish(mut self) -> Result<(Log, LogContent), Fault> {
        // The names that were found may only be visible: the process before may have ended between
        // a rename and its directory flush.
        self.log.files.sync_dir(super::DIR).map_err(|e| Fault::io(super::DIR, 0, e))?;
        for header in self.rewrite.iter().chain(&self.newest) {
            let (at, bytes) = (header.at, self.whole(header)?);
            let segment = self.log.segments.iter().find(|s| s.id == at.segment).expect("it was read from there");
            segment
                .file
                .write_at(at.offset, &[&bytes])
                .and_then(|()| segment.file.sync())
                .map_err(|e| Fault::io(&segment.path, at.offset, e))?;
        }
        marks::tidy(&*self.log.files)?;
        self.log.committed = self.marks.committed();
        self.log.tip_file = marks::open_tip(&*self.log.files)?;
        if !self.cut {
            // Behind the last page that is not zero nothing was written. Before it everything may
            // have been.
            let written = self.end.as_ref().map_or(self.current().len, |end| end.nonzero_end);
            let filled = self.log.tip.end.offset.next_multiple_of(super::FILL).min(self.current().len);
            self.log.tip.filled = filled.max(written);
            self.log.tip.blank_from = written;
        }
        self.salt_the_log()?;
        let hard = self.doubt.as_ref().map_or(self.log.hard, |doubt| stricter(self.log.hard, doubt.hard));
        self.log.append(hard, self.log.last, &[], false)?;
        self.log.tip.proven = true;
        self.log.write_reached(false)?;
        if let Some(file) = &self.log.tip_file {
            // From now on it has a place on the disk, and no later write of it needs room.
            file.sync().map_err(|e| Fault::io(marks::TIP, 0, e))?;
        }
        // Not before both marks say what the cut log has.
        self.end_cut()?;
        let content = LogContent {
            hard: self.log.hard,
            boundary: self.log.boundary,
            last: self.log.last,
            terms: self.terms,
            tail: self.tail,
            doubt: self.doubt,
            healed: self.healed,
        };
        Ok((self.log, content))
    }
}
