//! The log: what a member has promised. `batch` is the layout, `recover` the way back after a
//! crash, `tail` the judgement of an end that is not whole, `marks` what is known of the end beside
//! the log, `space` the files.
//!
//! - One [`save`](Log::save) is one batch: one write and one flush, on pages of its own. A page
//!   with acknowledged bytes is never written again with other bytes.
//! - Batches form a chain (number, and digest of the one before). The log ends where the chain
//!   does; no length and no run of zeros means "end".
//! - A batch says how far the log was durable before it (*proven*). Damage below the proven end is
//!   [`Fault::Damaged`]; above it lies at most one batch. If that is not whole it is a [`Tail`]:
//!   torn, if there is proof that the write never finished, else in doubt. Who decides is
//!   [`OnDoubt`].
//! - An idle log is proven too ([`Log::prove`]), and how far it came is written beside it, so that
//!   an end that is missing altogether is noticed.
//! - A segment gets its name only after its first batch is durable, so a named segment without a
//!   readable first batch is damaged.
//! - A failed write or flush is final: the page cache may pretend that the bytes are there.

mod batch;
mod blank;
pub(crate) mod closed;
mod marks;
mod recover;
mod reserve;
mod seal;
mod space;
mod tail;

use crate::doubt::Doubt;
use crate::{Fault, Files, How, Identity, PAGE};
use batch::{Frame, Header, Indexes, Place, decode_bodies, decode_table, encode_table};
use bytes::Bytes;
use consensus::{Entry, HardState, Position};
pub(crate) use marks::told_last;
pub use recover::{Reader, Understands};
pub use reserve::Reserve;
use seal::Seal;
use space::{Segment, Spares};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use batch::LEVEL;

pub(crate) const DIR: &str = "log";
/// A new file is filled this far ahead of the log, in the same flush, so that a flush need not also
/// make file system metadata durable.
const FILL: u64 = 1 << 20;
/// A file that was written before is filled this far ahead, and half of it is always there: the
/// page behind a batch then says that nothing follows before the batch is written, unless that is
/// large. So no write that never finished explains a page that says something else.
const LEAD: u64 = 64 << 10;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// How the log's files are made.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Size of a log file in bytes; rounded up to the page. A larger batch gets a larger file.
    pub segment_bytes: u64,
    /// The boot of the machine. Equal to that of an earlier life: nothing but processes ended since
    /// then. None: not known.
    pub boot: Option<Boot>,
    /// A random number that nobody knows, for a log that has none yet (see `seal`).
    pub salt: u64,
}

/// The kernel's random name of one boot of the machine.
pub type Boot = [u8; 16];

/// Reads a boot as Linux tells it in `/proc/sys/kernel/random/boot_id`. None if `text` is something
/// else.
pub fn parse_boot(text: &str) -> Option<Boot> {
    let digits: Vec<char> = text.trim_end().chars().filter(|digit| *digit != '-').collect();
    let hex: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| u8::try_from(pair.first()?.to_digit(16)? << 4 | pair.get(1)?.to_digit(16)?).ok())
        .collect();
    Boot::try_from(hex?).ok()
}

/// Who decides about an end of the log that may hold what was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDoubt {
    /// The operator: recovery refuses with [`Fault::Doubtful`] and changes nothing. For a lone
    /// member.
    Refuse,
    /// The other members: whatever is cut, a proven tear too, is remembered as a [`Doubt`] first.
    /// Damage below the proven end is refused.
    Keep,
    /// As `Keep`, and the other members make good damage below the proven end too: the log is cut
    /// there.
    Peers,
}

/// How the log ended when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// All that was written is there.
    Whole,
    /// Cut: a batch whose write never finished. Nobody was told of it.
    Torn(Doubt),
    /// Cut: a batch that is wrong or missing and may have been acknowledged.
    Doubtful(Doubt),
    /// Cut below the proven end: what was acknowledged is damaged or missing.
    Damaged(Doubt),
}

impl Tail {
    /// What was cut, if anything was.
    pub fn cut(&self) -> Option<&Torn> {
        match self {
            Tail::Whole => None,
            Tail::Torn(doubt) | Tail::Doubtful(doubt) | Tail::Damaged(doubt) => Some(&doubt.at),
        }
    }
}

/// What recovery found, and verified byte by byte. [`Log::each`] reads the entries.
#[derive(Debug)]
pub struct LogContent {
    /// Term, vote and commit index, of the newest batch or of what it promised.
    pub hard: HardState,
    /// The entry before the first one.
    pub boundary: Position,
    /// The last entry: the boundary, if there is none. Without gaps between the two.
    pub last: Position,
    /// The first entry of each run of one term behind the boundary, ascending; a run that only goes
    /// on with the boundary's term is not among them.
    pub terms: Vec<Position>,
    /// How the log ended this time.
    pub tail: Tail,
    /// What was ever cut and is not yet made good ([`crate::doubt::clear`]), this time included.
    /// Term and vote of it are in `hard` already. None under [`OnDoubt::Refuse`].
    pub doubt: Option<Doubt>,
    /// Batches whose damaged header or copy was restored from the other one, and a damaged file
    /// beside the log that was written anew.
    pub healed: Vec<Torn>,
}

impl LogContent {
    /// Term of the entry at `index`, or of the boundary; None outside of the log.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        if index < self.boundary.index || index > self.last.index {
            return None;
        }
        let runs = self.terms.partition_point(|run| run.index <= index);
        Some(runs.checked_sub(1).map_or(self.boundary.term, |run| self.terms[run].term))
    }
}

/// A place in the log's files and what was wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    pub file: String,
    pub offset: u64,
    pub what: String,
}

/// Live entries of one batch.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: Place,
    first: u64,
    last: u64,
    /// Term of the entry `first - 1`.
    base_term: u64,
}

impl Span {
    /// The entry before the first.
    fn base(&self) -> Position {
        Position { index: self.first - 1, term: self.base_term }
    }
}

/// The open log of a member. Not for two threads: every change takes `&mut`.
pub struct Log {
    files: Arc<dyn Files>,
    seal: Seal,
    boot: Option<Boot>,
    tip_file: marks::TipFile,
    segments: VecDeque<Segment>,
    spares: Spares,
    /// Ascending and without gaps.
    spans: VecDeque<Span>,
    boundary: Position,
    last: Position,
    hard: HardState,
    /// Entries up to this one are committed, as a cut told, whatever the last batch says.
    committed: u64,
    tip: Tip,
    /// Why nothing may be acknowledged any more.
    stopped: Option<(String, String)>,
    /// The next batch opens a file of its own.
    closes: bool,
    /// The last save found no room and wrote nothing; saves that were queued behind it have a gap.
    refused: Option<String>,
}

/// The last batch of the chain, and where the next one goes.
#[derive(Clone, Copy, Debug, Default)]
struct Tip {
    number: u64,
    digest: u32,
    range: Indexes,
    end: Place,
    /// Below this offset the last segment was written before.
    filled: u64,
    /// From the end of the log up to this offset it says that nothing follows, durably.
    led: u64,
    /// From this offset on, or from the end of the log, the last segment holds zeros.
    blank_from: u64,
    /// The last batch is known to have been durable by what came after it.
    proven: bool,
    /// As in [`Header`], of the last batch.
    marked: bool,
    page_led: bool,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("boundary", &self.boundary)
            .field("last", &self.last)
            .field("hard", &self.hard)
            .field("tip", &self.tip)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// A new log that begins behind the entry `start`, which a checkpoint stands for. A log that a
    /// crash left behind just created is taken up again; any other one is refused, unchanged.
    pub fn create(files: Arc<dyn Files>, id: Identity, options: LogOptions, start: Position) -> Result<Log, Fault> {
        files.make_dir(DIR).map_err(|e| Fault::io(DIR, 0, e))?;
        files.sync_dir("").map_err(|e| Fault::io(DIR, 0, e))?;
        let (segments, spares) = space::list(&*files, options)?;
        if let Some((_, path)) = segments.first() {
            return match recover::recover_unused(files, id, options, start)? {
                Some(log) => Ok(log),
                None => Err(Fault::Refused { file: path.clone(), what: "there is a log already".to_string() }),
            };
        }
        Log::begin(files, Seal::new(id, options.salt), spares, options, start)
    }

    fn begin(
        files: Arc<dyn Files>,
        seal: Seal,
        spares: Spares,
        options: LogOptions,
        start: Position,
    ) -> Result<Log, Fault> {
        let hard = HardState { term: start.term, vote: 0, commit: start.index };
        marks::forget(&*files)?;
        let mut log = Log {
            tip_file: marks::open_tip(&*files)?,
            files,
            seal,
            boot: options.boot,
            segments: VecDeque::new(),
            spares,
            spans: VecDeque::new(),
            boundary: start,
            last: start,
            hard,
            committed: start.index,
            tip: Tip::default(),
            stopped: None,
            closes: false,
            refused: None,
        };
        log.append(hard, start, &[], true)?;
        Ok(log)
    }

    /// True if the directory has a log (for the choice between [`create`](Log::create) and
    /// [`recover`](Log::recover)).
    pub fn exists(files: &dyn Files) -> Result<bool, Fault> {
        Ok(!space::list(files, LogOptions { segment_bytes: 0, boot: None, salt: 0 })?.0.is_empty())
    }

    /// Opens the log after a stop or crash. The last batch is written and flushed again before it
    /// counts, and a batch is appended that proves it. `state` is where the checkpoint stands, if
    /// its entries went through this log: then a log that does not reach it is missing its end.
    ///
    /// # Errors
    /// Damage below the proven end, a doubt that `doubt` refuses, a later format level, another
    /// member's log: nothing was changed.
    pub fn recover(
        files: Arc<dyn Files>,
        id: Identity,
        options: LogOptions,
        state: Option<Position>,
        doubt: OnDoubt,
    ) -> Result<(Log, LogContent), Fault> {
        recover::recover(files, id, options, state, doubt, Reader::NONE)
    }

    /// Uses `files` from now on: the recovery is over, through whatever files it went.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn serve(&mut self, files: Arc<dyn Files>) -> Result<(), Fault> {
        for segment in &mut self.segments {
            segment.file = files.open(&segment.path, How::Write).map_err(|e| Fault::io(&segment.path, 0, e))?;
        }
        if self.tip_file.is_some() {
            self.tip_file = marks::open_tip(&*files)?;
        }
        self.files = files;
        Ok(())
    }

    /// As [`recover`](Log::recover), for whoever applies entries.
    ///
    /// # Errors
    /// Also [`Fault::NotUnderstood`]: a committed entry that `reader` is to apply. Nothing was
    /// changed.
    pub fn recover_for(
        reader: Reader,
        files: Arc<dyn Files>,
        id: Identity,
        options: LogOptions,
        state: Option<Position>,
        doubt: OnDoubt,
    ) -> Result<(Log, LogContent), Fault> {
        recover::recover(files, id, options, state, doubt, reader)
    }

    /// Makes `hard` and `entries` durable: one batch, one flush. Entries at or below the last index
    /// replace the log from there.
    ///
    /// # Errors
    /// After a failed write, flush or rename the log is stopped for good: what of the batch is on
    /// disk is unknown. If the space for a further segment is missing, or a write finds no room
    /// ([`Fault::is_full`]), nothing was flushed, and the same save may be tried again.
    ///
    /// # Panics
    /// If entries have gaps or touch the committed part, or if term, vote or commit would go back:
    /// the caller is broken, and no bytes may follow from it.
    pub fn save(&mut self, hard: HardState, entries: &[Entry]) -> Result<(), Fault> {
        self.check_running()?;
        self.assert_forward(hard);
        self.check_follows(entries)?;
        let base = self.base_of(entries)?;
        assert!(
            base.index >= self.hard.commit.min(self.last.index),
            "committed entries never change: {entries:?} at commit {}",
            self.hard.commit
        );
        let mut before = base;
        for entry in entries {
            assert!(
                entry.index == before.index + 1 && entry.term >= before.term,
                "entry {} of term {} after {before:?}",
                entry.index,
                entry.term
            );
            before = entry.position();
        }
        self.append(hard, base, entries, false)
    }

    /// Appends an empty batch, which proves everything before it, and remembers beside the log how
    /// far it came: damage of the last acknowledged batch cannot be taken for a torn tail any more,
    /// nor can the end of the log go missing unseen. For a log that is idle. `commit` is the newest
    /// commit index that is known; one that is older or beyond the log does no harm. Nothing is
    /// written if everything is proven and the commit is not news.
    ///
    /// # Errors
    /// As [`save`](Log::save).
    pub fn prove(&mut self, commit: u64) -> Result<(), Fault> {
        self.prove_and_mark(commit, false)
    }

    /// As [`prove`](Log::prove), at a clean stop: the last call.
    ///
    /// # Errors
    /// As [`save`](Log::save).
    pub fn close(&mut self, commit: u64) -> Result<(), Fault> {
        self.prove_and_mark(commit, true)
    }

    /// The log goes on in another file, if the one at `path` is the newest: it is damaged, and goes
    /// when a checkpoint has overtaken it.
    ///
    /// # Errors
    /// As [`save`](Log::save).
    pub fn leave_file(&mut self, path: &str) -> Result<(), Fault> {
        self.check_running()?;
        if self.segments.back().is_none_or(|newest| newest.path != path) {
            return Ok(());
        }
        self.closes = true;
        self.append(self.hard, self.last, &[], false)
    }

    fn prove_and_mark(&mut self, commit: u64, clean: bool) -> Result<(), Fault> {
        self.check_running()?;
        let commit = commit.min(self.last.index).max(self.hard.commit);
        let news = !self.tip.proven || commit > self.hard.commit;
        if news {
            self.append(HardState { commit, ..self.hard }, self.last, &[], false)?;
            self.tip.proven = true;
        }
        if news || clean { self.write_reached(clean) } else { Ok(()) }
    }

    /// Remembers over a restart what may be lost, or (None) that nothing is missing any more.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn keep_doubt(&mut self, doubt: Option<consensus::Doubt>, hard: HardState) -> Result<(), Fault> {
        self.check_running()?;
        let Some(consensus::Doubt { promise, vote, sure, torn }) = doubt else {
            // The doubt last: as long as it is there, a start ends it again, and all of this with
            // it.
            crate::aside::clear(&*self.files)?;
            crate::late::clear(&*self.files)?;
            return crate::doubt::clear(&*self.files).map(drop);
        };
        // As long as a vote may be forgotten, nothing less is remembered than "everything".
        let promise = promise.filter(|_| !vote);
        let file = self.segments.back().map_or(String::new(), |segment| segment.path.clone());
        let what = "the other members remember more than this log has".to_string();
        let at = Torn { file, offset: self.tip.end.offset, what };
        let known = crate::doubt::find(&*self.files, self.seal.id)?;
        // The vote may still wait for its turn in the log.
        let hard = crate::doubt::stricter(self.hard, hard);
        let (at, hard) = known.map_or((at, hard), |known| (known.at, crate::doubt::stricter(known.hard, hard)));
        let doubt =
            Doubt { at, promise, at_least: false, hard, proven_tear: torn, by_zeros: false, sure, cutting: false };
        crate::doubt::remember(&*self.files, self.seal.id, &doubt)
    }

    /// True if the last batch with content is proven: [`prove`](Log::prove) would add no safety.
    pub fn proven(&self) -> bool {
        self.tip.proven
    }

    /// Entries from index `from` on, in order: as many as fit in `max_bytes` of data, but one at
    /// least. Empty if `from` is not in the log (cut, or not yet there).
    pub fn read(&self, from: u64, max_bytes: u64) -> Result<Vec<Entry>, Fault> {
        self.check_running()?;
        let mut entries = Vec::new();
        if from <= self.boundary.index || from > self.last.index {
            return Ok(entries);
        }
        let mut bytes = 0u64;
        let start = self.spans.partition_point(|span| span.last < from);
        for span in self.spans.range(start..) {
            for entry in self.read_span(span)? {
                if entry.index < from || entry.index > span.last {
                    continue;
                }
                bytes = bytes.saturating_add(entry.data.len() as u64);
                if bytes > max_bytes && !entries.is_empty() {
                    return Ok(entries);
                }
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// Hands over the entries from index `from` to `upto`, in order, one batch in memory at a time.
    /// Of these the log holds what it hands over: none below its boundary, none behind its last.
    ///
    /// # Errors
    /// What `take` says, and damage that was not there when the log was opened.
    pub fn each(&self, from: u64, upto: u64, mut take: impl FnMut(Entry) -> Result<(), Fault>) -> Result<(), Fault> {
        self.check_running()?;
        let start = self.spans.partition_point(|span| span.last < from);
        for span in self.spans.range(start..).take_while(|span| span.first <= upto) {
            let last = span.last.min(upto);
            for entry in self.read_span(span)? {
                if (from..=last).contains(&entry.index) {
                    take(entry)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets whole segments whose entries all lie below `index`; their files are kept for reuse.
    /// The caller holds a durable checkpoint at or above `index - 1`.
    pub fn cut_below(&mut self, index: u64) -> Result<(), Fault> {
        self.check_running()?;
        assert!(index <= self.last.index + 1, "a cut below {index} would go beyond the last entry {}", self.last.index);
        let mut told = false;
        while self.segments.len() > 1 {
            let first = self.segments[0].id;
            let gone = self.spans.partition_point(|span| span.at.segment == first);
            if self.spans.range(..gone).any(|span| span.last >= index) {
                break;
            }
            if !told {
                self.tell_committed(index.saturating_sub(1))?;
                told = true;
            }
            self.retire_first()?;
            self.spans.drain(..gone);
            self.boundary = self.spans.front().map_or(self.last, Span::base);
        }
        Ok(())
    }

    /// Entries up to this one stand in a checkpoint, so they are committed. No batch need say so:
    /// the commit index alone causes no flush. Once the log begins behind them, a start that finds
    /// no state must know that nothing but the state is missing.
    fn tell_committed(&mut self, index: u64) -> Result<(), Fault> {
        let known = index.min(self.last.index);
        if known > self.hard.commit.max(self.committed) {
            self.committed = known;
            self.write_reached(false)?;
        }
        Ok(())
    }

    /// The log begins again behind the entry `at`, which an installed checkpoint stands for. A
    /// crash leaves the log from before or the one from after; the install is over behind it
    /// ([`crate::transfer::followed`]).
    pub fn restart_at(&mut self, hard: HardState, at: Position) -> Result<(), Fault> {
        self.check_running()?;
        self.assert_forward(hard);
        assert!(
            at.index >= self.hard.commit && hard.commit >= at.index,
            "a restart at {at:?} with commit {}, before {}",
            hard.commit,
            self.hard.commit
        );
        self.append(hard, at, &[], true)?;
        while self.segments.len() > 1 {
            self.retire_first()?;
        }
        crate::transfer::followed(&*self.files, self.seal.id)
    }

    /// The last entry.
    pub fn last(&self) -> Position {
        self.last
    }

    /// The entry before the first one.
    pub fn boundary(&self) -> Position {
        self.boundary
    }

    pub fn hard(&self) -> HardState {
        self.hard
    }

    /// Bytes of all files of the log, spares included.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.len).sum::<u64>() + self.spares.bytes()
    }

    /// Gives the spare files back to the file system, for a full disk. True if there were any.
    pub fn release_spares(&mut self) -> Result<bool, Fault> {
        self.check_running()?;
        self.spares.release(&*self.files)
    }

    /// False once a write or flush failed: nothing more may be acknowledged.
    pub fn usable(&self) -> bool {
        self.stopped.is_none()
    }

    fn check_running(&self) -> Result<(), Fault> {
        match &self.stopped {
            None => Ok(()),
            Some((file, reason)) => Err(Fault::Stopped { file: file.clone(), reason: reason.clone() }),
        }
    }

    /// Saves are queued without waiting for the one before: behind one that was refused, what
    /// does not continue the log is its consequence, not the caller's mistake.
    fn check_follows(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        let gap = entries.first().is_some_and(|first| first.index > self.last.index + 1);
        let Some(reason) = self.refused.clone().filter(|_| gap) else { return Ok(()) };
        self.stop(Err(Fault::Refused { file: DIR.to_string(), what: format!("the save before was refused: {reason}") }))
    }

    /// Marks a fault as final.
    fn stop<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        if let Err(fault) = &result {
            self.stopped = Some((DIR.to_string(), fault.to_string()));
        }
        result
    }

    fn assert_forward(&self, hard: HardState) {
        let old = self.hard;
        assert!(
            hard.term >= old.term && hard.commit >= old.commit,
            "term and commit never go back: {old:?} to {hard:?}"
        );
        assert!(
            hard.term > old.term || old.vote == 0 || hard.vote == old.vote,
            "one vote in a term: {old:?} to {hard:?}"
        );
    }

    /// The entry that a batch of `entries` continues from.
    fn base_of(&self, entries: &[Entry]) -> Result<Position, Fault> {
        let Some(first) = entries.first() else { return Ok(self.last) };
        assert!(
            first.index > self.boundary.index && first.index <= self.last.index + 1,
            "entry {} does not continue {:?}",
            first.index,
            self.last
        );
        let before = first.index - 1;
        if before == self.last.index {
            return Ok(self.last);
        }
        if before == self.boundary.index {
            return Ok(self.boundary);
        }
        let position = self.spans.partition_point(|span| span.last < before);
        let entries = self.read_span(&self.spans[position])?;
        let found = entries.iter().find(|entry| entry.index == before).expect("a span holds its indexes");
        Ok(found.position())
    }

    fn append(&mut self, hard: HardState, base: Position, entries: &[Entry], restart: bool) -> Result<(), Fault> {
        let table = encode_table(entries);
        let mut header = Header {
            level: self.seal.level(self.tip.end.segment),
            id: self.seal.id,
            at: self.tip.end,
            number: self.tip.number + 1,
            prev_digest: self.tip.digest,
            prev_range: self.tip.range,
            proven: self.tip.end,
            hard,
            base,
            restart,
            marked: false,
            led: false,
            count: u32::try_from(entries.len()).expect("fewer than 2^32 entries in a batch"),
            body_len: entries.iter().map(|entry| entry.data.len() as u64).sum(),
            file_len: self.segments.back().map_or(0, |segment| segment.len),
            table_crc: crc32c::crc32c(&table),
        };
        let room = self.segments.back().map_or(0, |segment| segment.len - self.tip.end.offset);
        // A restart opens a segment so that all earlier ones can go.
        let rolls = restart || self.closes || header.size() > room;
        if rolls {
            self.append_in_new_segment(&mut header, &table, entries)?;
            self.closes = false;
        } else {
            self.append_here(&mut header, &table, entries)?;
        }
        self.account(&header, entries.last().map_or(base.term, |entry| entry.term));
        self.tip.proven = false;
        if rolls {
            self.write_reached(false)?;
        }
        self.write_tip()
    }

    fn append_here(&mut self, header: &mut Header, table: &[u8], entries: &[Entry]) -> Result<(), Fault> {
        let segment = self.segments.back().expect("an open log has a segment");
        let marked = header.at.offset + header.size() + PAGE;
        header.marked = marked <= segment.len;
        header.led = marked <= self.tip.led;
        let frame = Frame::new(header, self.seal.salt, table);
        let written = write_batch(segment, self.seal, header, &frame, entries, (self.tip.filled, self.tip.led));
        if let Err(Unwritten { to, fault, no_room: true }) = written {
            // Part of it may lie there: what stands behind the end is as in a file that was used
            // before, and does not say any more that nothing follows.
            let Tip { filled, blank_from, .. } = self.tip;
            self.tip = Tip { filled: filled.max(to), led: 0, blank_from: blank_from.max(to), ..self.tip };
            self.refused = Some(fault.to_string());
            return Err(fault);
        }
        let (filled, led) = self.stop(written.map_err(|unwritten| unwritten.fault))?;
        self.refused = None;
        let (digest, marked, page_led) = (frame.digest, header.marked, header.led);
        self.tip = Tip { digest, filled, led, marked, page_led, ..self.tip };
        Ok(())
    }

    /// Write, flush, rename, flush the directory: the segment exists only with its first batch.
    fn append_in_new_segment(&mut self, header: &mut Header, table: &[u8], entries: &[Entry]) -> Result<(), Fault> {
        let id = self.segments.back().map_or(1, |segment| segment.id + 1);
        header.at = Place { segment: id, offset: 0 };
        header.level = self.seal.level(id);
        let taken = self.spares.take(&*self.files, id, header.size());
        self.refused = taken.as_ref().err().map(Fault::to_string);
        let (mut segment, written_before) = taken?;
        header.file_len = segment.len;
        header.marked = header.size() + PAGE <= segment.len;
        let frame = Frame::new(header, self.seal.salt, table);
        let written = write_batch(&segment, self.seal, header, &frame, entries, (written_before, 0));
        if let Err(Unwritten { fault, no_room: true, .. }) = written {
            self.refused = Some(fault.to_string());
            let given_back = self.spares.give_back(&*self.files, segment);
            return self.stop(given_back).and(Err(fault));
        }
        let (filled, led) = self.stop(written.map_err(|unwritten| unwritten.fault))?;
        let path = space::segment_path(id);
        let renamed = self.files.rename(&segment.path, &path).and_then(|()| self.files.sync_dir(DIR));
        self.stop(renamed.map_err(|e| Fault::io(&path, 0, e)))?;
        segment.path = path;
        self.segments.push_back(segment);
        let (digest, marked, blank_from) = (frame.digest, header.marked, written_before);
        self.tip = Tip { digest, filled, led, blank_from, marked, page_led: false, ..self.tip };
        Ok(())
    }

    /// Takes a durable batch into the picture in memory. `last_term`: of its last entry, or of its
    /// base.
    fn account(&mut self, header: &Header, last_term: u64) {
        let Indexes { first, last } = header.range();
        if header.restart || header.base.index <= self.boundary.index {
            self.spans.clear();
            self.boundary = header.base;
        }
        while self.spans.back().is_some_and(|span| span.first > header.base.index) {
            self.spans.pop_back();
        }
        if let Some(span) = self.spans.back_mut() {
            span.last = span.last.min(header.base.index);
        }
        if header.count > 0 {
            self.spans.push_back(Span { at: header.at, first, last, base_term: header.base.term });
        }
        self.last = Position { index: last, term: last_term };
        self.hard = header.hard;
        self.tip.number = header.number;
        self.tip.range = header.range();
        self.tip.end = Place { segment: header.at.segment, offset: header.at.offset + header.size() };
    }

    /// Removes the oldest segment. One directory flush each: a gap between segments is damage.
    fn retire_first(&mut self) -> Result<(), Fault> {
        let segment = self.segments.pop_front().expect("a log has segments");
        let retired = self.spares.retire(&*self.files, segment);
        self.stop(retired)
    }

    fn read_span(&self, span: &Span) -> Result<Vec<Entry>, Fault> {
        let segment = self.segments.iter().find(|s| s.id == span.at.segment).expect("spans lie in segments");
        let damaged = |what: &str, entries| Fault::Damaged {
            file: segment.path.clone(),
            offset: span.at.offset,
            what: what.to_string(),
            entries,
        };
        let range = || (span.first..=span.last).map(|index| crate::EntryId { index, term: 0, crc: 0 }).collect();
        let head = self.seal.head(span.at.segment);
        let front = crate::header::read_exact(&*segment.file, &segment.path, span.at.offset, head)?;
        let header = match self.seal.decode(&front) {
            Ok((header, _)) if header.at == span.at && header.id == self.seal.id => header,
            _ => return Err(damaged("the header of a batch is not readable", range())),
        };
        let len = usize::try_from(header.table_len() as u64 + header.body_len).expect("it was in memory once");
        let rest = crate::header::read_exact(&*segment.file, &segment.path, span.at.offset + head as u64, len)?;
        let rest = Bytes::from(rest);
        let rows = decode_table(&header, &rest[..header.table_len()])
            .ok_or_else(|| damaged("the identity table of a batch is not readable", range()))?;
        decode_bodies(&rows, &rest.slice(header.table_len()..))
            .map_err(|ids| damaged("the data of log entries is wrong", ids))
    }
}

/// A batch that is not durable.
struct Unwritten {
    fault: Fault,
    /// Only the write failed, and for want of room: it may be done again.
    no_room: bool,
    /// Nothing behind this offset was touched.
    to: u64,
}

/// One vectored write and one flush. Returns how far the segment is now written, and how far it
/// says that nothing follows.
fn write_batch(
    segment: &Segment,
    seal: Seal,
    header: &Header,
    frame: &Frame,
    entries: &[Entry],
    (filled, led): (u64, u64),
) -> Result<(u64, u64), Unwritten> {
    let offset = header.at.offset;
    let end = offset + frame.size;
    let marked = if header.marked { end + PAGE } else { end };
    let ahead = marked + LEAD / 2;
    let to = match led {
        _ if ahead <= led || led == segment.len => marked,
        _ if ahead > filled => ahead.next_multiple_of(FILL),
        _ => ahead.next_multiple_of(LEAD),
    };
    let to = to.min(segment.len).max(end);
    let behind = blank::pages(seal, Place { offset: end, ..header.at }, to - end);
    let mut parts: Vec<&[u8]> = Vec::with_capacity(entries.len() + 3);
    parts.push(&frame.front);
    parts.extend(entries.iter().map(|entry| &entry.data[..]).filter(|data| !data.is_empty()));
    parts.extend([&frame.back[..], &behind]);
    let fault = |error| Fault::io(&segment.path, offset, error);
    segment.file.write_at(offset, &parts).map_err(fault).map_err(|fault| {
        let no_room = fault.is_full();
        Unwritten { fault, no_room, to }
    })?;
    segment.file.sync().map_err(|error| Unwritten { fault: fault(error), no_room: false, to })?;
    Ok((filled.max(to), led.max(to)))
}
