//! Damaged records come again from another member.
//!
//! One segment at a time: it is looked at (which stretches of it are damaged), the records of each
//! stretch are asked of the other members, piece by piece, and written over the damage at the
//! offsets that the index knows; then the segment is looked at again. A member without others says
//! what is damaged, and goes on with what is whole.
//!
//! A record that the index names goes where the index says. One that it does not name is dead: if
//! those of a gap are just as long as the gap, they were there; else a filler takes their place, as
//! nobody has them any more.

use crate::config::TICK_MS;
use crate::frame::{Caller, Frame};
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use crate::pace::{self, Pace, REST_MOST, longer_rest};
use crate::placing::{Misfit, Placing};
use bytes::Bytes;
use disk::records;
use disk::scrub::{Finding, Scrub, Step, Stretch};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::Rev;

/// Bytes of a segment that are read in one step.
const STEP: u64 = 8 << 20;
/// After this another member is asked as well, for less. What comes later is taken all the same.
/// Ticks.
const PATIENCE: u64 = 2_000 / TICK_MS;
/// A look that the disk refused is tried again so often; then what cannot be read is damaged.
const TRIES: u32 = 5;

pub(crate) struct Mends {
    /// Segments that are damaged, or may be.
    suspects: BTreeMap<u32, Suspect>,
    work: Option<Work>,
    token: u64,
    /// Bytes of records in one answer: as many as the link carries in time.
    pace: Pace,
    /// Members that records are read for.
    giving: BTreeSet<u64>,
    figures: MendFigures,
}

/// A segment that is to be looked at.
#[derive(Default)]
struct Suspect {
    due: u64,
    wait: u64,
    /// Where damage was found and told of.
    told: BTreeSet<u32>,
    /// It was told that nobody has what is missing.
    given_up: bool,
    /// The disk refused to read it so often.
    refused: u32,
    /// The disk refused to write it, which was told.
    unwritable: bool,
    /// Fillers were written into it.
    fillers: bool,
}

/// The segment at which something is done.
struct Work {
    segment: u32,
    stretches: VecDeque<Stretch>,
    /// Its seek table is not right.
    unsealed: bool,
    /// The first of them, as far as it has come.
    placing: Option<Placing>,
    /// Members that can still be asked for it.
    peers: Vec<u64>,
    request: Option<RecordsRequest>,
    /// Between which revisions records are asked for, and the name of that question.
    question: Option<((Rev, Rev), u64)>,
    /// Something was written.
    wrote: bool,
}

/// Records that are waited for.
struct RecordsRequest {
    peer: u64,
    since: u64,
}

/// What of the records another member wants.
pub(crate) struct Wanted {
    pub(crate) after: Rev,
    pub(crate) before: Rev,
    /// Bytes, about.
    pub(crate) most: u32,
}

/// Records that another member sent. `compacted`: what its compaction had removed when it read
/// them.
pub(crate) struct Sent {
    pub(crate) records: Vec<Bytes>,
    pub(crate) end: bool,
    pub(crate) compacted: i64,
}

impl Default for Mends {
    fn default() -> Mends {
        let (suspects, giving, figures) = Default::default();
        Mends { suspects, work: None, token: 0, pace: Pace::default(), giving, figures }
    }
}

impl Mends {
    /// A segment is being looked at or mended: its records must stay where they are.
    pub(crate) fn works(&self) -> bool {
        self.work.is_some()
    }

    pub(crate) fn figures(&self) -> MendFigures {
        let open = self.suspects.values().filter(|suspect| !suspect.told.is_empty()).count() as u64;
        MendFigures { open, ..self.figures }
    }

    /// Something in `file` is damaged, or may be. True: it is a segment, and is looked at.
    pub(crate) fn suspect(&mut self, g: &Ground, file: &str) -> bool {
        let Some(segment) = records::segment_of(file) else { return false };
        let known = g.store.segments().any(|known| known.id == segment);
        if known {
            self.suspects.entry(segment).or_insert_with(|| Suspect { due: g.now, ..Suspect::default() });
        }
        known
    }

    /// The disk refuses to read a file: what it does not give is damaged. True: it is a segment,
    /// and is looked at.
    pub(crate) fn unreadable(&mut self, g: &Ground, file: &str) -> bool {
        let known = self.suspect(g, file);
        if let Some(suspect) = records::segment_of(file).and_then(|segment| self.suspects.get_mut(&segment)) {
            suspect.refused = TRIES;
        }
        known
    }

    /// A pass found damage in a segment. It is looked at once more before something is done.
    pub(crate) fn found(&mut self, g: &mut Ground, finding: &Finding) {
        match finding {
            Finding::Stretch(stretch) => {
                self.suspect(g, &records::path(stretch.segment));
            }
            Finding::Beyond { segment } => {
                let beyond = g.store.segments().filter(|known| known.id >= *segment && known.first > 0);
                let paths: Vec<String> = beyond.map(|known| records::path(known.id)).collect();
                paths.iter().for_each(|path| {
                    self.suspect(g, path);
                });
            }
            Finding::Seal { segment } => {
                self.suspect(g, &records::path(*segment));
            }
            Finding::Checksum { segment, mended, fault } => self.wrong_sum(g, *segment, *mended, fault),
            _ => {}
        }
    }

    /// Every record is whole, and the checksum is another one.
    fn wrong_sum(&mut self, g: &mut Ground, segment: u32, mended: bool, fault: &disk::Fault) {
        if mended && !g.swapping() {
            g.start(Task::Mended { epoch: g.epoch() }, BackgroundJob::Mended { segment, sealed: None, fillers: true });
        } else {
            g.note(Level::Error, format!("{fault}, though every record in it is whole"));
        }
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        if g.swapping() {
            return;
        }
        if let Some(work) = &mut self.work
            && work.request.as_ref().is_some_and(|request| g.now - request.since >= PATIENCE)
        {
            work.request = None;
            self.pace.shrink();
            return self.ask(g);
        }
        if self.work.is_some() {
            return;
        }
        let due = self.suspects.iter().find(|(_, suspect)| suspect.due <= g.now).map(|(segment, _)| *segment);
        if let Some(segment) = due {
            self.look(g, segment);
        }
    }

    /// Begins to look at a segment.
    fn look(&mut self, g: &mut Ground, segment: u32) {
        // A background job never passes the writes that were submitted before it.
        g.write_records();
        let Some(known) = g.store.segments().find(|known| known.id == segment).copied() else {
            self.suspects.remove(&segment);
            return;
        };
        let lenient = self.suspects.get(&segment).is_some_and(|suspect| suspect.refused >= TRIES);
        let scan = Box::new(Scrub::segment(&known, lenient));
        self.work = Some(Work {
            segment,
            stretches: VecDeque::new(),
            unsealed: false,
            placing: None,
            peers: Vec::new(),
            request: None,
            question: None,
            wrote: false,
        });
        g.start(Task::Look { epoch: g.epoch() }, BackgroundJob::Scrub { scan, bytes: STEP });
    }

    pub(crate) fn looked(&mut self, g: &mut Ground, epoch: u64, scan: Box<Scrub>, step: Result<Step, disk::Fault>) {
        if g.swapping() {
            return self.rest(g);
        }
        let Some(work) = self.work.as_mut().filter(|_| epoch == g.epoch()) else { return };
        let suspect = self.suspects.entry(work.segment).or_default();
        match step {
            Ok(step) => {
                for finding in step.found {
                    match finding {
                        Finding::Stretch(stretch) => work.stretches.push_back(stretch),
                        Finding::Seal { .. } => work.unsealed = true,
                        _ => {}
                    }
                }
                if !step.done {
                    g.start(Task::Look { epoch }, BackgroundJob::Scrub { scan, bytes: STEP });
                    return;
                }
                self.begin(g);
            }
            Err(_) => {
                suspect.refused += 1;
                self.rest(g);
            }
        }
    }

    /// The segment was looked at.
    fn begin(&mut self, g: &mut Ground) {
        let work = self.work.as_ref().expect("it was looked at");
        if !g.store.segments().any(|known| known.id == work.segment) {
            // Compaction emptied it meanwhile, and its file may be gone.
            self.suspects.remove(&work.segment);
            self.work = None;
            return;
        }
        let suspect = self.suspects.get_mut(&work.segment).expect("it is a suspect");
        if work.stretches.is_empty() {
            return self.whole(g);
        }
        let alone = g.peers().is_empty();
        for stretch in &work.stretches {
            if suspect.told.insert(stretch.from) {
                self.figures.found += 1;
                let then = match alone {
                    true => "no other member has a copy; what is whole is served".to_string(),
                    false => format!(
                        "the {} bytes up to {} come from another member",
                        stretch.until - stretch.from,
                        stretch.until
                    ),
                };
                g.note(Level::Error, format!("{}; {then}", stretch.what));
            }
        }
        let work = self.work.as_mut().expect("it was looked at");
        join(&mut work.stretches);
        self.next_stretch(g);
    }

    /// Every record of the segment is whole.
    fn whole(&mut self, g: &mut Ground) {
        let Work { segment, unsealed, .. } = self.work.take().expect("it was looked at");
        let mut suspect = self.suspects.remove(&segment).expect("it is a suspect");
        let path = records::path(segment);
        if unsealed && suspect.told.is_empty() {
            self.figures.found += 1;
            suspect.told.insert(0);
            g.note(Level::Error, format!("{path}: the table behind the records is damaged, and is written anew"));
        }
        if !suspect.told.is_empty() {
            self.figures.mended += suspect.told.len() as u64;
            g.note(Level::Info, format!("mended: every record of {path} is whole"));
        }
        let end = g.store.segments().find(|known| known.id == segment && known.sealed).map(|known| known.end);
        let (sealed, fillers) = (end.filter(|_| unsealed), suspect.fillers);
        if sealed.is_some() || fillers {
            g.start(Task::Mended { epoch: g.epoch() }, BackgroundJob::Mended { segment, sealed, fillers });
        }
    }

    /// The first stretch that is left, or another look at the segment.
    fn next_stretch(&mut self, g: &mut Ground) {
        let work = self.work.as_mut().expect("under way");
        let Some(stretch) = work.stretches.front() else {
            let (segment, wrote) = (work.segment, work.wrote);
            return if wrote { self.look(g, segment) } else { self.rest(g) };
        };
        if stretch.from == 0 {
            // The header page: nobody is needed for it.
            let (segment, epoch) = (stretch.segment, g.epoch());
            work.wrote = true;
            work.placing = None;
            work.stretches.pop_front();
            g.start(Task::Mend { epoch }, BackgroundJob::Mend { segment, at: disk::PAGE as u32, parts: Vec::new() });
            return;
        }
        work.placing = Some(Placing::new(stretch));
        work.peers = g.peers();
        // The leader last: it has the most to do.
        let leader = g.leader;
        work.peers.sort_by_key(|peer| *peer != leader);
        self.ask(g);
    }

    /// Asks a member for what is missing of the stretch.
    fn ask(&mut self, g: &mut Ground) {
        let work = self.work.as_mut().expect("under way");
        let Some(peer) = work.peers.pop() else { return self.give_up_stretch(g) };
        self.ask_member(g, peer);
    }

    fn ask_member(&mut self, g: &mut Ground, peer: u64) {
        let work = self.work.as_mut().expect("under way");
        let missing = work.placing.as_ref().expect("a stretch is under way").missing();
        // Whoever answers this question, and however late: it is one answer.
        let token = match work.question {
            Some((asked, token)) if asked == missing => token,
            _ => {
                self.token += 1;
                self.token
            }
        };
        work.question = Some((missing, token));
        work.request = Some(RecordsRequest { peer, since: g.now });
        let (after, before) = missing;
        g.send(peer, Frame::RecordsWanted { boot: g.config.boot, token, after, before, most: self.pace.piece() });
    }

    /// `sent` None: it does not have them.
    pub(crate) fn on_records(&mut self, g: &mut Ground, from: Caller, sent: Option<Sent>) {
        let Some(work) = &mut self.work else { return };
        let named = work.question.map(|(_, token)| (g.config.boot, token)) == Some((from.boot, from.token));
        let peer = from.member;
        let ours = |request: &mut RecordsRequest| named && (sent.is_some() || peer == request.peer);
        let Some(request) = work.request.take_if(ours) else { return };
        if g.swapping() {
            return self.rest(g);
        }
        let Some(Sent { records, end, compacted }) = sent else { return self.ask(g) };
        self.pace.grow(g.now - request.since);
        let placing = work.placing.as_mut().expect("a stretch is under way");
        if records.is_empty() && !end {
            return self.ask(g);
        }
        let taken = records.into_iter().try_for_each(|record| placing.take(&g.store, record, compacted));
        let taken = taken.and_then(|()| if end { placing.end(&g.store, compacted) } else { Ok(()) });
        match taken {
            Ok(()) => {
                let (at, parts) = placing.placed();
                work.wrote |= !parts.is_empty();
                if parts.is_empty() {
                    return self.written(g, peer);
                }
                let segment = work.segment;
                g.start(Task::MendFrom { epoch: g.epoch(), peer }, BackgroundJob::Mend { segment, at, parts });
            }
            // What it has and what this member has do not go together: another may have more.
            Err(Misfit::Later) => self.give_up_stretch(g),
            Err(Misfit::Wrong(why)) => {
                let text =
                    format!("member {:x} sent records that do not fit {}: {why}", peer, records::path(work.segment));
                g.note(Level::Warn, text);
                work.placing = work.stretches.front().map(Placing::new);
                self.ask(g);
            }
        }
    }

    /// A piece is on the disk.
    pub(crate) fn mended(&mut self, g: &mut Ground, epoch: u64, peer: Option<u64>) {
        if epoch != g.epoch() || self.work.is_none() {
            return;
        }
        if g.swapping() {
            return self.rest(g);
        }
        match peer {
            Some(peer) => self.written(g, peer),
            None => self.next_stretch(g),
        }
    }

    /// The disk refused to write records, or a header page.
    pub(crate) fn refused(&mut self, g: &mut Ground, epoch: u64, fault: &disk::Fault) {
        let Some(work) = self.work.as_ref().filter(|_| epoch == g.epoch()) else { return };
        self.tell_refusal(g, work.segment, fault);
        self.rest(g);
    }

    /// The disk refused to write what follows from mended records: a seek table, or a name in a
    /// checkpoint.
    pub(crate) fn refused_after(&mut self, g: &mut Ground, epoch: u64, fault: &disk::Fault) {
        let Some(segment) = records::segment_of(fault.file()).filter(|_| epoch == g.epoch()) else { return };
        self.tell_refusal(g, segment, fault).due = g.now + REST_MOST;
    }

    fn tell_refusal(&mut self, g: &mut Ground, segment: u32, fault: &disk::Fault) -> &mut Suspect {
        let suspect = self.suspects.entry(segment).or_default();
        if !std::mem::replace(&mut suspect.unwritable, true) {
            g.note(Level::Error, format!("what is damaged cannot be mended, it is tried again: {fault}"));
        }
        suspect
    }

    fn written(&mut self, g: &mut Ground, peer: u64) {
        let work = self.work.as_mut().expect("under way");
        if !work.placing.as_ref().is_some_and(Placing::is_done) {
            return self.ask_member(g, peer);
        }
        let fillers = work.placing.take().is_some_and(|placing| placing.filled());
        if fillers && let Some(suspect) = self.suspects.get_mut(&work.segment) {
            suspect.fillers = true;
        }
        work.stretches.pop_front();
        self.next_stretch(g);
    }

    /// Nobody has what is missing now.
    fn give_up_stretch(&mut self, g: &mut Ground) {
        let work = self.work.as_mut().expect("under way");
        work.placing = None;
        let stretch = work.stretches.pop_front().expect("it was under way");
        let suspect = self.suspects.get_mut(&stretch.segment).expect("it is a suspect");
        if !suspect.given_up && !g.peers().is_empty() && suspect.wait >= REST_MOST {
            suspect.given_up = true;
            let from = stretch.from;
            let text = format!("{} at byte {from}: no other member gives the records", records::path(stretch.segment));
            g.note(Level::Error, text);
        }
        self.next_stretch(g);
    }

    /// The segment is looked at again later; no job of this look may be under way. So it is, too,
    /// while a snapshot is put in place: the file of that name may be the new state's, in which
    /// other records lie.
    fn rest(&mut self, g: &Ground) {
        let Some(work) = self.work.take() else { return };
        let alone = g.peers().is_empty();
        let suspect = self.suspects.entry(work.segment).or_default();
        suspect.wait = if alone { REST_MOST } else { longer_rest(suspect.wait) };
        suspect.due = g.now + suspect.wait;
    }

    /// Another member wants records. It gets them if this one surely has all that there are.
    pub(crate) fn on_wanted(&mut self, g: &mut Ground, to: Caller, wanted: &Wanted, corrupt: bool) {
        let Wanted { after, before, most } = *wanted;
        let upto = if before.sub <= 0 { before.main - 1 } else { before.main };
        let refused = corrupt || g.swapping() || g.store.revision() < upto || after >= before;
        if refused || !self.giving.insert(to.member) {
            return send_none(g, to);
        }
        // A background job never passes the writes that were submitted before it.
        g.write_records();
        let holds =
            |known: &&store::SegmentUse| known.first > 0 && known.first <= before.main && known.last >= after.main;
        let segments = g.store.segments().filter(holds).copied().collect();
        let work = BackgroundJob::ReadRecords { segments, after, before, max_bytes: u64::from(most.min(pace::MOST)) };
        g.start(Task::GiveRecords { to, epoch: g.epoch() }, work);
    }

    pub(crate) fn give(&mut self, g: &mut Ground, to: Caller, epoch: u64, records: Option<(Vec<Bytes>, bool)>) {
        self.giving.remove(&to.member);
        match records.filter(|_| epoch == g.epoch()) {
            Some((records, end)) => {
                let Caller { member, boot, token } = to;
                let compacted = g.store.compacted();
                g.send(member, Frame::Records { boot, token, ok: true, end, compacted, records });
            }
            None => send_none(g, to),
        }
    }

    /// Another state took the place of the one with the damage.
    pub(crate) fn restart(&mut self) {
        let figures = self.figures;
        *self = Mends { figures, token: self.token, pace: self.pace, ..Mends::default() };
    }
}

/// Several stretches of records become one, over all that lies between them. Records between two of
/// them are whole, but may be in a wrong place (a page that was written there by mistake): then
/// revisions that they seem to bound are not those that were there. Before the first and behind the
/// last one the order of revisions and the lengths leave no doubt.
fn join(stretches: &mut VecDeque<Stretch>) {
    let header = stretches.pop_front_if(|stretch| stretch.from == 0);
    if stretches.len() > 1
        && let Some(last) = stretches.pop_back()
        && let Some(first) = stretches.front_mut()
    {
        (first.until, first.before) = (last.until, last.before);
        stretches.truncate(1);
    }
    if let Some(header) = header {
        stretches.push_front(header);
    }
}

fn send_none(g: &mut Ground, to: Caller) {
    let Caller { member, boot, token } = to;
    g.send(member, Frame::Records { boot, token, ok: false, end: false, compacted: 0, records: Vec::new() });
}
