//! Snapshots between members: the follower pulls the files that the manifest names.
//!
//! The leader's MsgSnapshot carries the manifest; the follower asks for pieces, one at a time,
//! writes them to a staging place, verifies everything, swaps, restarts its log there, and
//! only then tells consensus. Until then it is its old self.
//!
//! Patience is measured by progress. Pieces fit the link ([`Pace`]), a piece is taken however late
//! it comes, and what has come stays in the staging place when a transfer ends: the next one goes
//! on with every file that is the same. A newer offer replaces a transfer until the files are
//! swapped.

use crate::config::TICK_MS;
use crate::frame::{Caller, Frame};
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use crate::pace::{self, Pace, longer_rest, longer_wait};
use bytes::Bytes;
use consensus::{ConfState, HardState, Position, Snapshot};
use disk::Fault;
use disk::checkpoint::Manifest;
use std::collections::BTreeMap;

/// Without a piece, or a request, for so long a transfer has ended. Ticks.
const PATIENCE: u64 = 60_000 / TICK_MS;
/// A state is asked for so often. Ticks.
const ASK_STATE: u64 = 1_000 / TICK_MS;
/// A leader looks for receivers that never asked. Ticks.
const OFFER_AGAIN: u64 = 5_000 / TICK_MS;

#[derive(Default)]
pub(crate) struct Transfer {
    receiving: Option<Receiving>,
    /// By receiver.
    sending: BTreeMap<u64, Sending>,
    /// Receiver → index of a checkpoint that it may pull no longer.
    dropped: BTreeMap<u64, u64>,
    /// Checkpoints that failed here, one of each sender.
    rests: BTreeMap<Offered, Rest>,
    token: u64,
    run: u64,
    /// Index of what lies in the staging place.
    staged: Option<u64>,
    /// Token of the newest question for a state, and when the next one is due. Ticks.
    asked_state: (u64, u64),
    /// The log begins behind this entry, or earlier.
    least: u64,
    /// It was told that there is no room for a snapshot.
    told_full: bool,
}

/// A checkpoint at `index`, offered by a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Offered {
    from: u64,
    index: u64,
}

struct Receiving {
    from: u64,
    snapshot: Snapshot,
    /// Consensus waits for it. Otherwise another member leads now, and its offer is waited for.
    wanted: bool,
    /// Tells its jobs from those of a transfer that it replaced.
    run: u64,
    /// Consensus knows nothing of it: the state alone is replaced, and the log stays.
    beside_log: bool,
    files: Vec<Part>,
    /// The first file that is not complete.
    file: usize,
    request: PieceRequest,
    pace: Pace,
    /// Tick of the last piece.
    moved: u64,
    stage: Stage,
    store: Option<Box<store::Store>>,
}

/// A file, and how much of it has come. Bytes.
struct Part {
    name: String,
    len: u64,
    got: u64,
    /// An earlier transfer began it. Pieces are not flushed, so a power loss may have spoilt what
    /// came.
    kept: bool,
}

/// The request for the piece that is wanted now.
#[derive(Clone, Copy, Default)]
struct PieceRequest {
    /// Names the place in the file: a repeated request has the same one, so any answer will do.
    token: u64,
    /// Ticks: of the first request and the last one, and from the last one to the next.
    since: u64,
    at: u64,
    wait: u64,
}

/// A receiver of a checkpoint of this member.
struct Sending {
    index: u64,
    /// Tick of the last request.
    asked: u64,
    /// Bytes that this member had logged when the first request came.
    logged: u64,
    /// The connection broke since.
    lost: bool,
}

/// A checkpoint of a sender that could not be installed.
struct Rest {
    wait: u64,
    until: u64,
    /// The sender was told, and may offer again.
    said: bool,
}

/// How far an install is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Pulling,
    /// The files are being put in place from now on.
    Swapping,
    /// They are in place: the log must restart behind them.
    Swapped,
}

/// A new state, from another member.
pub(crate) struct Installed {
    pub(crate) from: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) store: Box<store::Store>,
}

/// Which bytes of which file of the checkpoint at `index`.
pub(crate) struct Piece {
    pub(crate) index: u64,
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// What a sender has. `logged`: bytes logged since start; `bytes`: of a checkpoint, about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stock {
    pub(crate) newest: u64,
    pub(crate) logged: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Beginning,
    Asking,
    Writing,
    /// All files are here, and consensus does not want them for now.
    Waiting,
    Finishing,
    /// The files are in place, and the log restarts at the end of this turn.
    InPlace,
    RestartingLog,
}

impl Receiving {
    fn swaps(&self) -> bool {
        matches!(self.stage, Stage::Finishing | Stage::InPlace | Stage::RestartingLog)
    }

    fn is(&self, from: u64, snapshot: &Snapshot) -> bool {
        let same = (self.from, self.snapshot.index, self.snapshot.term) == (from, snapshot.index, snapshot.term);
        same && self.snapshot.manifest == snapshot.manifest
    }
}

impl Transfer {
    /// `staged`: index of the checkpoint that an earlier life received in part.
    pub(crate) fn new(staged: Option<u64>) -> Transfer {
        Transfer { staged, ..Transfer::default() }
    }

    pub(crate) fn installing(&self) -> bool {
        self.receiving.is_some()
    }

    /// Indexes of checkpoints on their way: they are kept, and the log is not cut above the lowest.
    pub(crate) fn pulled(&self) -> Vec<u64> {
        self.sending.values().map(|sending| sending.index).collect()
    }

    /// The leader offers a snapshot. It replaces one of another offer, which goes on with its
    /// files.
    pub(crate) fn begin(&mut self, g: &mut Ground, from: u64, snapshot: Snapshot) {
        let index = snapshot.index;
        if let Some(receiving) = &mut self.receiving {
            if receiving.swaps() {
                // The running one ends first; the leader will offer again.
                return g.note(Level::Info, format!("a snapshot at {index} waits for the one under way"));
            }
            if receiving.is(from, &snapshot) && receiving.stage != Stage::Waiting {
                // Consensus takes no entries until this ends: the log is behind what the leader
                // has, and the snapshot replaces it too.
                (receiving.wanted, receiving.beside_log) = (true, false);
                return;
            }
            receiving.wanted = false;
        }
        if self.rests.get(&Offered { from, index }).is_some_and(|rest| g.now < rest.until) {
            return g.consensus.abandon_install();
        }
        if let Err(why) = check(&snapshot) {
            g.consensus.abandon_install();
            return self.rest(g, from, index, &why.to_string());
        }
        self.start(g, from, snapshot, false);
    }

    /// The state of this member is of no use, and its log is whole from behind entry `least` on:
    /// the leader's state is asked for.
    pub(crate) fn want_state(&mut self, g: &mut Ground, least: u64) {
        if !self.takes_state(g) || g.leader == 0 || g.is_leader() || g.now < self.asked_state.1 {
            return;
        }
        self.token += 1;
        self.asked_state = (self.token, g.now + ASK_STATE);
        self.least = least;
        g.send(g.leader, Frame::StateWanted { boot: g.config.boot, token: self.token, least });
    }

    /// No state is on its way, or its sender leads no longer and has sent nothing for a while: it
    /// may be dead, and its patience is long.
    fn takes_state(&self, g: &Ground) -> bool {
        self.receiving.as_ref().is_none_or(|receiving| {
            let silent = g.now - receiving.moved >= ASK_STATE;
            let may_end = receiving.beside_log || !receiving.wanted;
            may_end && !receiving.swaps() && receiving.from != g.leader && silent
        })
    }

    /// The answer. `wanted`: it still is.
    pub(crate) fn on_state_offer(&mut self, g: &mut Ground, from: Caller, manifest: Bytes, wanted: bool) {
        let asked = Caller { member: g.leader, boot: g.config.boot, token: self.asked_state.0 };
        if !wanted || from != asked || !self.takes_state(g) {
            return;
        }
        let from = from.member;
        let snapshot = match snapshot_of(manifest) {
            Ok(snapshot) if snapshot.index >= self.least => snapshot,
            Ok(snapshot) => return self.rest(g, from, snapshot.index, "the log begins behind it"),
            Err(why) => return self.rest(g, from, 0, &why.to_string()),
        };
        if g.consensus.contradicts_state(from, Position { index: snapshot.index, term: snapshot.term }) {
            return;
        }
        let offered = Offered { from, index: snapshot.index };
        if self.rests.get(&offered).is_none_or(|rest| g.now >= rest.until) {
            self.start(g, from, snapshot, true);
        }
    }

    /// What is being received replaces the state alone.
    pub(crate) fn beside_log(&self) -> bool {
        self.receiving.as_ref().is_some_and(|receiving| receiving.beside_log)
    }

    fn start(&mut self, g: &mut Ground, from: u64, snapshot: Snapshot, beside_log: bool) {
        g.note(Level::Info, format!("receiving the snapshot at {} from {from:x}", snapshot.index));
        if let Some(replaced) = &self.receiving {
            received(g, replaced.from, false);
        }
        received_begins(g, from);
        self.run += 1;
        self.staged = Some(snapshot.index);
        let manifest = snapshot.manifest.clone();
        self.receiving = Some(Receiving {
            from,
            snapshot,
            wanted: true,
            run: self.run,
            beside_log,
            files: Vec::new(),
            file: 0,
            request: PieceRequest::default(),
            pace: self.receiving.as_ref().map_or(Pace::default(), |before| before.pace),
            moved: g.now,
            stage: Stage::Beginning,
            store: None,
        });
        g.start(Task::Install { run: self.run }, BackgroundJob::InstallBegin { manifest });
    }

    /// Asks for the next piece. When all are here, the files are put in place. `differed`: the
    /// entry at which the state differed that they replace.
    fn next_piece(&mut self, g: &mut Ground, differed: Option<u64>) -> Step {
        let receiving = self.receiving.as_mut().expect("an install is under way");
        receiving.file = receiving.files.iter().take_while(|file| file.got == file.len).count();
        if receiving.file < receiving.files.len() {
            self.token += 1;
            let wait = receiving.pace.wait();
            receiving.request = PieceRequest { token: self.token, since: g.now, at: g.now, wait };
            receiving.stage = Stage::Asking;
            receiving.ask(g);
            return Step::Pulling;
        }
        if !receiving.wanted {
            receiving.stage = Stage::Waiting;
            return Step::Pulling;
        }
        receiving.stage = Stage::Finishing;
        g.begin_swap();
        g.start(Task::Install { run: receiving.run }, BackgroundJob::InstallFinish { differed });
        Step::Swapping
    }

    /// `piece` None: the sender does not have it.
    pub(crate) fn on_chunk(&mut self, g: &mut Ground, from: Caller, piece: Option<Bytes>) {
        let Some(receiving) = &mut self.receiving else { return };
        let asked = Caller { member: receiving.from, boot: g.config.boot, token: receiving.request.token };
        if from != asked || receiving.stage != Stage::Asking {
            return;
        }
        let part = &mut receiving.files[receiving.file];
        let fits = |bytes: &Bytes| !bytes.is_empty() && bytes.len() as u64 <= part.len - part.got;
        let Some(bytes) = piece.filter(fits) else {
            return self.give_up(g, "the sender no longer has the checkpoint");
        };
        let (file, offset, kept) = (part.name.clone(), part.got, part.kept);
        part.got += bytes.len() as u64;
        receiving.moved = g.now;
        receiving.pace.came(g.now - receiving.request.since);
        receiving.stage = Stage::Writing;
        g.start(Task::Install { run: receiving.run }, BackgroundJob::InstallChunk { file, offset, bytes, kept });
    }

    /// A job of an install is done; of one that was replaced, nothing follows.
    pub(crate) fn step_done(&mut self, g: &mut Ground, run: u64, result: JobResult, differed: Option<u64>) -> Step {
        let Some(receiving) = self.receiving.as_mut().filter(|receiving| receiving.run == run) else {
            return Step::Pulling;
        };
        match result {
            JobResult::InstallBegun { files, received } => {
                let parts = files.into_iter().zip(received);
                receiving.files = parts.map(|((name, len), got)| Part { name, len, got, kept: got > 0 }).collect();
                receiving.moved = g.now;
                self.next_piece(g, differed)
            }
            JobResult::ChunkWritten => self.next_piece(g, differed),
            JobResult::KeptSpoiled { fault } => {
                // Now all of it comes from one sender in one life: damage is the sender's then.
                let part = &mut receiving.files[receiving.file];
                (part.got, part.kept) = (0, false);
                g.note(Level::Info, format!("what was kept of a snapshot comes again: {fault}"));
                self.next_piece(g, differed)
            }
            JobResult::Installed { store } => {
                receiving.stage = Stage::InPlace;
                receiving.store = Some(store);
                Step::Swapped
            }
            other => panic!("{other:?} does not answer an install step"),
        }
    }

    /// The manifest stands, and the log is to follow.
    pub(crate) fn restarts_log(&self) -> bool {
        self.receiving.as_ref().is_some_and(|receiving| receiving.stage == Stage::InPlace && !receiving.beside_log)
    }

    /// The manifest stands: this member *is* the snapshot now. The log follows.
    pub(crate) fn restart_log(&mut self, g: &mut Ground) {
        let status = g.consensus.status();
        let receiving = self.receiving.as_mut().expect("an install is under way");
        receiving.stage = Stage::RestartingLog;
        let at = receiving.snapshot.position();
        let hard = HardState { term: status.term, vote: status.vote, commit: at.index };
        g.start(Task::RestartLog, LogJob::RestartLog { hard, at });
    }

    /// The log has restarted behind the new state.
    pub(crate) fn log_restarted(&mut self) -> Installed {
        let Receiving { from, snapshot, store, .. } = self.receiving.take().expect("an install is under way");
        let store = store.expect("loaded");
        assert_eq!(store.applied().index, snapshot.index, "the files are those of the manifest");
        self.rests.clear();
        (self.staged, self.told_full) = (None, false);
        Installed { from, snapshot, store }
    }

    /// A job of an install failed. Behind the point of no return, or when the disk fails, this
    /// member must stop.
    pub(crate) fn failed(&mut self, g: &mut Ground, run: u64, fault: &disk::Fault) {
        let runs = self.receiving.as_ref().filter(|receiving| receiving.run == run);
        if fault.is_full() && runs.is_none_or(|receiving| !receiving.swaps()) {
            if runs.is_some() {
                self.give_up_for_room(g, fault);
            }
            return;
        }
        match fault {
            disk::Fault::Io { .. } | disk::Fault::Stopped { .. } => g.fatal(fault.to_string()),
            _ if self.receiving.as_ref().is_some_and(|receiving| receiving.run == run) => {
                self.give_up(g, &fault.to_string());
            }
            _ => {}
        }
    }

    /// What has come is removed: it would take the room that is missing. The sender offers again
    /// after a rest.
    fn give_up_for_room(&mut self, g: &mut Ground, fault: &disk::Fault) {
        let receiving = self.receiving.take().expect("an install is under way");
        received(g, receiving.from, false);
        if receiving.wanted && !receiving.beside_log {
            g.consensus.abandon_install();
        }
        if !std::mem::replace(&mut self.told_full, true) {
            let text = format!("there is no room for a snapshot: {fault}; it comes again when there is");
            g.note(Level::Error, text);
        }
        self.staged = None;
        g.start(Task::DropStaged, BackgroundJob::InstallDrop { applied: u64::MAX });
        self.rest_quietly(g, receiving.from, receiving.snapshot.index);
    }

    /// What has come stays in the staging place.
    fn give_up(&mut self, g: &mut Ground, why: &str) {
        let receiving = self.receiving.take().expect("an install is under way");
        received(g, receiving.from, false);
        if receiving.swaps() {
            g.end_swap();
        }
        if receiving.wanted && !receiving.beside_log {
            g.consensus.abandon_install();
        }
        self.rest(g, receiving.from, receiving.snapshot.index, why);
    }

    /// The checkpoint is not taken again for a while. Its sender hears of it when it may offer
    /// again.
    fn rest(&mut self, g: &mut Ground, from: u64, index: u64, why: &str) {
        if !self.rests.contains_key(&Offered { from, index }) {
            g.note(Level::Warn, format!("gave up the snapshot at {index} from {from:x}: {why}"));
        }
        self.rest_quietly(g, from, index);
    }

    fn rest_quietly(&mut self, g: &Ground, from: u64, index: u64) {
        self.rests.retain(|offered, _| offered.from != from || offered.index == index);
        let rest = self.rests.entry(Offered { from, index }).or_insert(Rest { wait: 0, until: 0, said: false });
        let wait = longer_rest(rest.wait);
        *rest = Rest { wait, until: g.now + wait, said: false };
    }

    /// Another member than the sender leads now: its appends must be heard, and it may feed this
    /// member by the log. Pulling goes on until it offers a snapshot of its own.
    pub(crate) fn follow(&mut self, g: &mut Ground) {
        if let Some(receiving) = &mut self.receiving
            && receiving.wanted
            && !receiving.beside_log
            && !receiving.swaps()
            && g.leader != 0
            && g.leader != receiving.from
        {
            receiving.wanted = false;
            g.consensus.abandon_install();
        }
    }

    /// The sender's history is another one: nothing of it is put in place.
    pub(crate) fn end_unwanted(&mut self) {
        if let Some(receiving) = self.receiving.as_mut().filter(|receiving| !receiving.swaps()) {
            (receiving.wanted, receiving.beside_log) = (false, true);
        }
    }

    /// `lacks_state`: what is applied here is none, so nothing that comes is behind it.
    pub(crate) fn tick(&mut self, g: &mut Ground, stock: Stock, lacks_state: bool) {
        let now = g.now;
        self.sending.retain(|receiver, sending| {
            let patient = now - sending.asked < PATIENCE;
            if !patient {
                sent(g, *receiver, false);
            }
            patient
        });
        self.drop_costly(g, stock);
        if now.is_multiple_of(OFFER_AGAIN) && g.is_leader() {
            self.offer_again(g);
        }
        for (Offered { from, index }, rest) in &mut self.rests {
            if now >= rest.until && !rest.said {
                rest.said = true;
                g.send(*from, Frame::TransferEnded { index: *index, ok: false });
            }
        }
        self.tick_receiving(g, if lacks_state { 0 } else { g.store.applied().index });
    }

    /// `applied`: index of the newest entry that is in the state of this member.
    fn tick_receiving(&mut self, g: &mut Ground, applied: u64) {
        let now = g.now;
        let Some(receiving) = &mut self.receiving else {
            if self.staged.is_some_and(|index| index <= applied) {
                self.staged = None;
                g.start(Task::DropStaged, BackgroundJob::InstallDrop { applied });
            }
            return;
        };
        if !receiving.wanted && applied >= receiving.snapshot.index {
            // The log was enough.
            received(g, receiving.from, false);
            self.receiving = None;
            return;
        }
        if !matches!(receiving.stage, Stage::Asking | Stage::Waiting) {
            return;
        }
        if now - receiving.moved >= PATIENCE {
            return self.give_up(g, "no piece came for a minute");
        }
        if receiving.stage == Stage::Asking && now - receiving.request.at >= receiving.request.wait {
            receiving.request.at = now;
            receiving.request.wait = longer_wait(receiving.request.wait);
            receiving.pace.shrink();
            receiving.ask(g);
        }
    }

    /// A slow receiver may not hold the log for ever: beyond the larger of a checkpoint's worth of
    /// log and four checkpoints, it gets a newer one. It keeps the files that are the same.
    fn drop_costly(&mut self, g: &mut Ground, stock: Stock) {
        let most = g.config.checkpoint_bytes.max(4 * stock.bytes);
        let costly = |sending: &Sending| sending.index < stock.newest && stock.logged - sending.logged > most;
        let dropped: Vec<u64> =
            self.sending.iter().filter(|(_, sending)| costly(sending)).map(|(receiver, _)| *receiver).collect();
        for receiver in dropped {
            let Sending { index, .. } = self.sending.remove(&receiver).expect("listed");
            sent(g, receiver, false);
            self.dropped.insert(receiver, index);
            let text = format!("the snapshot at {index} holds back too much log: {receiver:x} gets a newer one");
            g.note(Level::Warn, text);
            if g.is_leader() {
                g.consensus.snapshot_sent(receiver, false);
            }
        }
    }

    /// A follower that was offered a snapshot and asks for nothing may not have heard the offer.
    fn offer_again(&mut self, g: &mut Ground) {
        for follower in g.consensus.status().followers {
            let silent = self.sending.get(&follower.id).is_none_or(|sending| sending.lost);
            if follower.feeding == consensus::Feeding::Snapshot && silent {
                g.consensus.snapshot_sent(follower.id, false);
            }
        }
    }

    pub(crate) fn lost(&mut self, peer: u64) {
        if let Some(receiving) = &mut self.receiving
            && receiving.from == peer
        {
            // Asked again at the next tick: what was queued is gone.
            receiving.request.wait = 0;
        }
        if let Some(sending) = self.sending.get_mut(&peer) {
            sending.lost = true;
        }
    }

    /// The state is wrong: whoever pulls it gets no more of it.
    pub(crate) fn withdraw(&mut self, g: &mut Ground) {
        for receiver in std::mem::take(&mut self.sending).into_keys() {
            sent(g, receiver, false);
            if g.is_leader() {
                g.consensus.snapshot_sent(receiver, false);
            }
        }
    }

    /// A member that leads no longer goes on serving what it has. One that is `corrupt` has nothing
    /// to give.
    pub(crate) fn on_chunk_request(&mut self, g: &mut Ground, to: Caller, piece: Piece, stock: Stock, corrupt: bool) {
        let Piece { index, file, offset, len } = piece;
        let dropped = self.dropped.get(&to.member).is_some_and(|dropped| index <= *dropped);
        if corrupt || dropped || stock.newest < index || len > pace::MOST {
            return send_nothing(g, to);
        }
        let since = self.sending.get(&to.member).filter(|sending| sending.index == index);
        let (begins, logged) = (since.is_none(), since.map_or(stock.logged, |sending| sending.logged));
        let before = self.sending.insert(to.member, Sending { index, asked: g.now, logged, lost: false });
        if begins {
            if before.is_some() {
                sent(g, to.member, false);
            }
            g.push(Output::Snapshot { peer: to.member, news: SnapshotNews::SendBegins });
        }
        // A request that came again while the disk is slow has its answer on the way.
        if !g.reads_piece(to) {
            g.start(Task::SendChunk { to }, BackgroundJob::ReadChunk { file, offset, len });
        }
    }

    pub(crate) fn on_transfer_ended(&mut self, g: &mut Ground, from: u64, index: u64, ok: bool) {
        if self.sending.get(&from).is_some_and(|sending| sending.index == index) {
            self.sending.remove(&from);
            sent(g, from, ok);
        }
        if g.is_leader() {
            g.consensus.snapshot_sent(from, ok);
        }
    }
}

fn received_begins(g: &mut Ground, from: u64) {
    g.push(Output::Snapshot { peer: from, news: SnapshotNews::ReceiveBegins });
}

/// A transfer has ended. `ok`: what was received stands here.
pub(crate) fn received(g: &mut Ground, from: u64, ok: bool) {
    g.push(Output::Snapshot { peer: from, news: SnapshotNews::ReceiveEnds { ok } });
}

fn sent(g: &mut Ground, to: u64, ok: bool) {
    g.push(Output::Snapshot { peer: to, news: SnapshotNews::SendEnds { ok } });
}

impl Receiving {
    fn ask(&self, g: &mut Ground) {
        let part = &self.files[self.file];
        let len = (part.len - part.got).min(u64::from(self.pace.piece())) as u32;
        let frame = Frame::ChunkRequest {
            boot: g.config.boot,
            token: self.request.token,
            index: self.snapshot.index,
            file: part.name.clone(),
            offset: part.got,
            len,
        };
        g.send(self.from, frame);
    }
}

/// Why an offered snapshot is not taken.
#[derive(Debug)]
enum BadOffer {
    /// Its manifest cannot be read.
    Manifest(Fault),
    /// It is offered as another state than its manifest says.
    Otherwise { said: store::Position, index: u64, applied: store::Position },
}

impl From<Fault> for BadOffer {
    fn from(fault: Fault) -> BadOffer {
        BadOffer::Manifest(fault)
    }
}

impl std::fmt::Display for BadOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadOffer::Manifest(fault) => fault.fmt(f),
            BadOffer::Otherwise { said, index, applied } => {
                write!(f, "it is offered as {said:?}, its manifest is of {index} and {applied:?}")
            }
        }
    }
}

/// What a manifest of the leader stands for.
fn snapshot_of(manifest: Bytes) -> Result<Snapshot, BadOffer> {
    let read = Manifest::decode("the offered manifest", &manifest)?;
    let head = read.image_head()?;
    let conf = ConfState { voters: head.conf.voters, learners: head.conf.learners };
    let snapshot = Snapshot { index: read.index, term: head.applied.term, conf, manifest };
    check(&snapshot).map(|()| snapshot)
}

/// What the leader says of a snapshot must be what its manifest says: behind the swap it is too
/// late.
fn check(snapshot: &Snapshot) -> Result<(), BadOffer> {
    let manifest = Manifest::decode("the offered manifest", &snapshot.manifest)?;
    let applied = manifest.image_head()?.applied;
    let said = store::Position { index: snapshot.index, term: snapshot.term };
    if manifest.index != snapshot.index || applied != said {
        return Err(BadOffer::Otherwise { said, index: manifest.index, applied });
    }
    Ok(())
}

/// The answer to whoever asked for a piece that is not to be had here.
pub(crate) fn send_nothing(g: &mut Ground, to: Caller) {
    let Caller { member, boot, token } = to;
    g.send(member, Frame::Chunk { boot, token, ok: false, end: false, bytes: Bytes::new() });
}
