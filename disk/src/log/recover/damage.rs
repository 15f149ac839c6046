//! Damage below the proven end of the log, for a member with peers. What was durable and is wrong
//! was acknowledged, so nothing of it is guessed: the log is cut at the first damage, and the rest
//! of it is read for one purpose, to know how far it went. That is the promise of a [`Doubt`] which
//! is *sure*. The other members have the entries, or the member waits for them.
//!
//! The order of a cut: the doubt is durable first, then the files behind the damage leave the log,
//! newest first, then the file with the damage is blank behind what stays of it. A crash between
//! any two steps leaves a log that is cut again, and a doubt that knows more than that log
//! ([`Doubt::cutting`]).

use super::super::batch::{Header, Place, Row};
use super::super::seal::Seal;
use super::super::space::Segment;
use super::super::tail::last_of;
use super::super::{Span, Tail, Tip, Torn};
use super::{Break, Replay, STRIDE};
use crate::doubt::{self, Doubt, stricter};
use crate::{Fault, PAGE, aside};
use consensus::{HardState, Position};
use std::collections::VecDeque;

/// What is known of a log with damage below its proven end.
pub(super) struct Lost {
    /// The first damage, as a lone member tells it.
    fault: Fault,
    /// What was read before it; None: nothing.
    kept: Option<Kept>,
    /// The last entry that it is known to have held.
    promise: Option<Position>,
    /// The newest term and vote that it is known to have held.
    hard: HardState,
    /// The newest batch that it is known to have held.
    number: u64,
    /// Nothing tells where it ended.
    endless: bool,
    /// A file that is shorter than it was made, and its length then.
    length: Option<Length>,
}

/// The bytes that a file was made with.
#[derive(Clone, Copy)]
struct Length {
    segment: u64,
    made: u64,
}

/// The part of the log before the first damage.
struct Kept {
    boundary: Position,
    last: Position,
    hard: HardState,
    tip: Tip,
    spans: VecDeque<Span>,
    terms: Vec<Position>,
    newest: Option<Header>,
    rewrite: usize,
    healed: usize,
}

impl Replay {
    /// A refusal, unless it is only to be known how far the log went.
    pub(super) fn stop_at(&self, fault: Fault) -> Result<(), Fault> {
        if self.goes_on { Ok(()) } else { Err(fault) }
    }

    /// Damage behind what was read so far. The first one decides what stays.
    pub(super) fn lose(&mut self, fault: Fault) -> Result<(), Fault> {
        if !self.goes_on {
            return Err(fault);
        }
        if self.lost.is_none() {
            let log = &self.log;
            let kept = (log.tip.number > 0).then(|| Kept {
                boundary: log.boundary,
                last: log.last,
                hard: log.hard,
                tip: log.tip,
                spans: log.spans.clone(),
                terms: self.terms.clone(),
                newest: self.newest,
                rewrite: self.rewrite.len(),
                healed: self.healed.len(),
            });
            let promise = kept.as_ref().map(|kept| kept.last);
            let (hard, number) = (log.hard, log.tip.number);
            let lost = Lost { fault, kept, promise, hard, number, endless: false, length: None };
            self.lost = Some(Box::new(lost));
        }
        Ok(())
    }

    /// The next batch, wherever it is, has no predecessor to be compared with.
    pub(super) fn jump(&mut self) {
        self.log.tip.number = 0;
        self.pending = None;
    }

    /// A batch of the lost part, or what is left of one.
    pub(super) fn note_batch(&mut self, header: &Header, rows: Option<&[Row]>) {
        self.committed = self.committed.max(header.hard.commit);
        if let Some(lost) = &mut self.lost {
            lost.promise = lost.promise.max(Some(last_of(header, rows)));
            lost.hard = stricter(lost.hard, header.hard);
            lost.number = lost.number.max(header.number);
        }
    }

    /// The newest file ends in damage, and no batch behind it says what was there.
    pub(super) fn end_unknown(&mut self, last: bool) {
        if let Some(lost) = &mut self.lost {
            lost.endless |= last;
        }
    }

    /// The current file was made with `made` bytes.
    pub(super) fn lost_length(&mut self, made: u64) {
        let id = self.current().id;
        if let Some(lost) = &mut self.lost {
            lost.length.get_or_insert(Length { segment: id, made });
        }
    }

    /// Goes on behind a place whose batch was durable and is wrong. Returns the offset of the next
    /// batch in this file, if there is one.
    pub(super) fn pass(
        &mut self,
        place: Place,
        broken: Break,
        proof: Option<Header>,
        last: bool,
    ) -> Result<Option<u64>, Fault> {
        let path = self.current().path.clone();
        let (header, rows) = (broken.header, broken.rows.clone());
        let fault = match &proof {
            _ if place.offset == 0 => Some(self.refuse_first(&path, broken, proof)),
            Some(proof) => Some(self.refuse(&path, place.offset, broken, proof)),
            // The file is too short, and that is told as such.
            None => None,
        };
        let Some(fault) = fault else {
            if let Some(header) = &header {
                self.note_batch(header, rows.as_deref());
            }
            return Ok(None);
        };
        self.lose(fault)?;
        if let Some(header) = &header {
            self.note_batch(header, rows.as_deref());
        }
        // The first batch of a file may be right, and what is missing lies before it.
        let again = place.offset == 0 && header.is_none() && self.passed != Some(place);
        self.jump();
        self.passed = Some(place);
        if again {
            return Ok(Some(0));
        }
        let next = self.survey(place)?.proof.map(|proof| proof.at.offset).filter(|next| *next > place.offset);
        if next.is_none() && header.is_none() {
            self.end_unknown(last);
        }
        Ok(next)
    }

    /// The last entry and the commit index of the part of the log that stays.
    pub(super) fn stays(&self) -> (u64, u64) {
        match &self.lost {
            None => (self.log.last.index, self.log.hard.commit),
            Some(lost) => lost.kept.as_ref().map_or((0, 0), |kept| (kept.last.index, kept.hard.commit)),
        }
    }

    /// What the damage comes to, with the end of the log behind it.
    ///
    /// # Errors
    /// The damage, if nothing is left that the log could begin with. Damage of the state, if the
    /// log begins behind it.
    pub(super) fn judge_lost(&mut self, state: Option<Position>) -> Result<(), Fault> {
        self.must_reach(state)?;
        if let Some(lost) = self.lost.take_if(|lost| lost.kept.is_none() && state.is_none()) {
            return Err(lost.fault);
        }
        let Some(lost) = &mut self.lost else { return Ok(()) };
        if let (Some(state), Some(promise)) = (state, &mut lost.promise) {
            // The end that reached the checkpoint is missing besides.
            lost.endless |= state > *promise;
            *promise = state.max(*promise);
        }
        let (file, offset) = (lost.fault.file().to_string(), lost.fault.offset().unwrap_or_default());
        let found = Doubt {
            at: Torn { file, offset, what: what_of(&lost.fault) },
            promise: lost.promise,
            at_least: lost.endless && !self.marks.is_exact(lost.number),
            hard: lost.hard,
            proven_tear: false,
            by_zeros: false,
            sure: true,
            cutting: true,
        };
        let whole = match std::mem::replace(&mut self.tail, Tail::Whole) {
            Tail::Whole => found,
            Tail::Torn(end) | Tail::Doubtful(end) | Tail::Damaged(end) => end.merged(found),
        };
        self.tail = Tail::Damaged(whole);
        Ok(())
    }

    /// A log that begins behind the state, at an entry that is known to be committed, shows that a
    /// newer state is lost. The log is not: it is kept, and the state is given up. If that entry is
    /// not known to be committed, log is missing, and the rest of it joins nothing.
    fn must_reach(&mut self, state: Option<Position>) -> Result<(), Fault> {
        let boundary = match &self.lost {
            None => self.log.boundary.index,
            Some(lost) => match &lost.kept {
                None => return Ok(()),
                Some(kept) => kept.boundary.index,
            },
        };
        // What is committed stays so, whoever tells: a batch behind the damage, or a mark.
        let commit = self.committed.max(self.marks.committed());
        let stands = match state {
            Some(state) if boundary <= state.index => return Ok(()),
            None if boundary <= commit => return Ok(()),
            Some(state) => state.index,
            None => commit,
        };
        let file = self.log.segments.front().map_or(super::super::DIR, |first| &first.path).to_string();
        let what = |whose: &str| format!("the log begins behind entry {boundary}, {whose} {stands}");
        if state.is_none() {
            return Err(Fault::damaged(&file, 0, what("which is not known to be committed: known is")));
        }
        if boundary <= commit {
            return Err(Fault::damaged("state", 0, what("the newest whole checkpoint stands at")));
        }
        if self.lost.is_none() {
            self.lose(Fault::damaged(&file, 0, what("the checkpoint stands at")))?;
        }
        if let Some(lost) = &mut self.lost {
            lost.kept = None;
        }
        Ok(())
    }

    /// Cuts the log at the damage: durably, and in an order that a crash may end anywhere.
    pub(super) fn cut_lost(&mut self, state: Option<Position>) -> Result<(), Fault> {
        let Some(lost) = self.lost.take() else { return Ok(()) };
        self.cut = true;
        let stays = lost.kept.as_ref().map_or(0, |kept| kept.tip.end.segment);
        while let Some(segment) = self.log.segments.pop_back_if(|segment| segment.id > stays) {
            aside::take(&*self.log.files, &segment.path)?;
        }
        match lost.kept {
            Some(kept) => self.blank(kept, lost.length),
            None => self.begin_again(state.expect("it was asked for before"), lost.number),
        }
    }

    /// What was read before the damage is the log, and nothing lies behind it.
    fn blank(&mut self, kept: Kept, length: Option<Length>) -> Result<(), Fault> {
        let path = self.log.segments.back().expect("the kept part ends there").path.clone();
        if !aside::copy(&*self.log.files, &path)? {
            self.tell_no_copy();
        }
        let segment = self.log.segments.back_mut().expect("the kept part ends there");
        let io = |e| Fault::io(&segment.path, kept.tip.end.offset, e);
        if let Some(Length { made, .. }) = length.filter(|length| length.segment == segment.id) {
            segment.file.allocate(made).map_err(io)?;
            segment.len = made;
        }
        blank_behind(segment, kept.tip.end.offset)?;
        let (filled, blank_from) = (segment.len, kept.tip.end.offset);
        let Kept { boundary, last, hard, tip, spans, terms, newest, rewrite, healed } = kept;
        let tip = Tip { filled, blank_from, ..tip };
        let log = &mut self.log;
        (log.boundary, log.last, log.hard, log.tip, log.spans) = (boundary, last, hard, tip, spans);
        (self.terms, self.newest) = (terms, newest);
        self.rewrite.truncate(rewrite);
        self.healed.truncate(healed);
        Ok(())
    }

    /// Nothing of the log stays: another one begins behind the state.
    fn begin_again(&mut self, state: Position, number: u64) -> Result<(), Fault> {
        let log = &mut self.log;
        // The new log numbers its files anew, and a spare file holds batches of the old one: under
        // its old number these would pass for batches that prove an end that is not there.
        if log.spares.release(&*log.files)? {
            log.files.sync_dir(super::super::DIR).map_err(|e| Fault::io(super::super::DIR, 0, e))?;
        }
        log.seal = Seal::new(log.seal.id, self.salt);
        let hard = self.doubt.as_ref().map_or(HardState::default(), |doubt| doubt.hard);
        let term = hard.term.max(state.term);
        let vote = if term == hard.term { hard.vote } else { 0 };
        log.spans.clear();
        // No batch that is known from before has the number of a new one.
        log.tip = Tip { number, ..Tip::default() };
        log.append(HardState { term, vote, commit: state.index }, state, &[], true)?;
        self.terms.clear();
        self.newest = None;
        self.rewrite.clear();
        self.healed.clear();
        Ok(())
    }

    /// The cut is done: from now on the log speaks for itself again.
    pub(super) fn end_cut(&mut self) -> Result<(), Fault> {
        match &mut self.doubt {
            Some(doubt) if doubt.cutting => {
                doubt.cutting = false;
                doubt::remember(&*self.log.files, self.log.seal.id, doubt)
            }
            _ => Ok(()),
        }
    }
}

/// The reason alone: file and offset stand beside it.
fn what_of(fault: &Fault) -> String {
    match fault {
        Fault::Damaged { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

/// Zeros from `offset` to the end of the file, durably.
fn blank_behind(segment: &Segment, offset: u64) -> Result<(), Fault> {
    let zeros = vec![0; STRIDE];
    let mut at = offset;
    while at < segment.len {
        let step = (segment.len - at).min(STRIDE as u64);
        segment.file.write_at(at, &[&zeros[..step as usize]]).map_err(|e| Fault::io(&segment.path, at, e))?;
        at += step;
    }
    debug_assert!(offset.is_multiple_of(PAGE));
    segment.file.sync().map_err(|e| Fault::io(&segment.path, offset, e))
}
