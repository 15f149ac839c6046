//! Snapshots between members: the follower pulls the files that the manifest names.
//!
//! The leader's MsgSnapshot carries the manifest; the follower asks for pieces, one at a time,
//! writes them to a staging place, verifies everything, swaps, restarts its log there, and
//! only then tells consensus. Until then it is its old self.

use crate::config::TICK_MS;
use crate::frame::{Caller, Frame};
use crate::ground::Ground;
use crate::io::*;
use crate::jobs::Task;
use bytes::Bytes;
use consensus::{HardState, Snapshot};
use std::collections::BTreeMap;

/// Bytes of one piece.
const PIECE: u32 = 1 << 20;
/// A piece that did not come by then is asked for again. Ticks.
const AGAIN: u64 = 1_000 / TICK_MS;
/// So often without an answer: the install is given up.
const TRIES: u32 = 10;
/// A leader looks for receivers that never asked. Ticks.
const OFFER_AGAIN: u64 = 5_000 / TICK_MS;
/// A receiver that asks for nothing so long no longer holds the log back. Ticks.
const SENDER_PATIENCE: u64 = 60_000 / TICK_MS;

#[derive(Default)]
pub(crate) struct Transfer {
    receiving: Option<Receiving>,
    /// Leader: receiver → (checkpoint index, last request).
    sending: BTreeMap<u64, (u64, u64)>,
    next_token: u64,
}

struct Receiving {
    from: u64,
    snapshot: Snapshot,
    files: Vec<(String, u64)>,
    file: usize,
    offset: u64,
    token: u64,
    asked: u64,
    tries: u32,
    stage: Stage,
    store: Option<Box<store::Store>>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Beginning,
    Asking,
    Writing,
    Finishing,
    RestartingLog,
}

impl Transfer {
    pub(crate) fn installing(&self) -> bool {
        self.receiving.is_some()
    }

    /// Indexes of checkpoints on their way: they are kept, and the log is not cut above the lowest.
    pub(crate) fn pulled(&self) -> Vec<u64> {
        self.sending.values().map(|(index, _)| *index).collect()
    }

    pub(crate) fn begin(&mut self, g: &mut Ground, from: u64, snapshot: Snapshot) {
        if let Some(receiving) = &self.receiving {
            if receiving.snapshot.index != snapshot.index {
                // The running one ends first; the leader will offer again.
                g.note(Level::Info, format!("a snapshot at {} waits for the one under way", snapshot.index));
            }
            return;
        }
        g.note(Level::Info, format!("receiving the snapshot at {} from {from:x}", snapshot.index));
        let manifest = snapshot.manifest.clone();
        self.receiving = Some(Receiving {
            from,
            snapshot,
            files: Vec::new(),
            file: 0,
            offset: 0,
            token: 0,
            asked: g.now,
            tries: 0,
            stage: Stage::Beginning,
            store: None,
        });
        g.start(Task::Install, Job::InstallBegin { manifest });
    }

    /// Asks for the next piece. When all are here, the files are put in place.
    fn next_piece(&mut self, g: &mut Ground) -> Step {
        self.next_token += 1;
        let (token, now, boot) = (self.next_token, g.now, g.config.boot);
        let receiving = self.receiving.as_mut().expect("an install is under way");
        let Some((file, len)) = receiving.files.get(receiving.file) else {
            receiving.stage = Stage::Finishing;
            g.begin_swap();
            g.start(Task::Install, Job::InstallFinish);
            return Step::Swapping;
        };
        receiving.stage = Stage::Asking;
        receiving.token = token;
        receiving.asked = now;
        let left = len.saturating_sub(receiving.offset);
        let frame = Frame::ChunkRequest {
            boot,
            token,
            index: receiving.snapshot.index,
            file: file.clone(),
            offset: receiving.offset,
            len: left.min(u64::from(PIECE)) as u32,
        };
        g.send(receiving.from, frame);
        Step::Pulling
    }

    /// `piece` None: the sender does not have it.
    pub(crate) fn on_chunk(&mut self, g: &mut Ground, from: Caller, piece: Option<Bytes>) {
        let Some(receiving) = &mut self.receiving else { return };
        let asked = Caller { member: receiving.from, boot: g.config.boot, token: receiving.token };
        if from != asked || receiving.stage != Stage::Asking {
            return;
        }
        let (file, len) = receiving.files[receiving.file].clone();
        let fits = |bytes: &Bytes| {
            let end = receiving.offset.checked_add(bytes.len() as u64);
            end.is_some_and(|end| end <= len) && (!bytes.is_empty() || receiving.offset == len)
        };
        let Some(bytes) = piece.filter(fits) else {
            return self.give_up(g, "the sender no longer has the checkpoint");
        };
        receiving.tries = 0;
        receiving.stage = Stage::Writing;
        let offset = receiving.offset;
        receiving.offset += bytes.len() as u64;
        if receiving.offset == len {
            receiving.file += 1;
            receiving.offset = 0;
        }
        g.start(Task::Install, Job::InstallChunk { file, offset, bytes });
    }

    pub(crate) fn step_done(&mut self, g: &mut Ground, result: JobResult) -> Step {
        let receiving = self.receiving.as_mut().expect("an install is under way");
        match result {
            JobResult::InstallBegun { files } => {
                receiving.files = files;
                self.next_piece(g)
            }
            JobResult::ChunkWritten => self.next_piece(g),
            JobResult::Installed { store } => {
                receiving.stage = Stage::RestartingLog;
                receiving.store = Some(store);
                Step::Swapped
            }
            other => panic!("{other:?} does not answer an install step"),
        }
    }

    /// The manifest stands: this member *is* the snapshot now. The log follows.
    pub(crate) fn restart_log(&mut self, g: &mut Ground) {
        let status = g.consensus.status();
        let receiving = self.receiving.as_ref().expect("an install is under way");
        let (index, term) = (receiving.snapshot.index, receiving.snapshot.term);
        let hard = HardState { term: status.term, vote: status.vote, commit: index };
        g.start(Task::RestartLog, Job::RestartLog { hard, index, term });
    }

    /// The log has restarted behind the new state.
    pub(crate) fn log_restarted(&mut self) -> Installed {
        let Receiving { from, snapshot, store, .. } = self.receiving.take().expect("an install is under way");
        let store = store.expect("loaded");
        assert_eq!(store.applied().index, snapshot.index, "the files are those of the manifest");
        Installed { from, snapshot, store }
    }

    pub(crate) fn failed(&mut self, g: &mut Ground, fault: &disk::Fault) {
        if matches!(fault, disk::Fault::Io { .. }) {
            return g.fatal(fault.to_string());
        }
        self.give_up(g, &fault.to_string());
    }

    fn give_up(&mut self, g: &mut Ground, why: &str) {
        let receiving = self.receiving.take().expect("an install is under way");
        g.end_swap();
        g.consensus.abandon_install();
        let index = receiving.snapshot.index;
        g.note(Level::Warn, format!("gave up the snapshot at {index} from {:x}: {why}", receiving.from));
        g.send(receiving.from, Frame::TransferEnded { index, ok: false });
    }

    pub(crate) fn tick(&mut self, g: &mut Ground) {
        let now = g.now;
        self.sending.retain(|_, (_, asked)| now - *asked < SENDER_PATIENCE);
        if now.is_multiple_of(OFFER_AGAIN) && g.is_leader() {
            self.offer_again(g);
        }
        let Some(receiving) = &mut self.receiving else { return };
        if receiving.stage != Stage::Asking || now - receiving.asked < AGAIN {
            return;
        }
        receiving.tries += 1;
        if receiving.tries >= TRIES {
            return self.give_up(g, "the sender does not answer");
        }
        let step = self.next_piece(g);
        assert_eq!(step, Step::Pulling, "the piece that was asked for is not here yet");
    }

    /// A follower that was offered a snapshot and asks for nothing may not have heard the offer.
    fn offer_again(&mut self, g: &mut Ground) {
        for follower in g.consensus.status().followers {
            let silent = !self.sending.contains_key(&follower.id);
            if follower.feeding == consensus::Feeding::Snapshot && silent {
                g.consensus.snapshot_sent(follower.id, false);
            }
        }
    }

    pub(crate) fn lost(&mut self, peer: u64) {
        if let Some(receiving) = &mut self.receiving
            && receiving.from == peer
        {
            // Asked again at the next tick: a reconnect drops what was queued.
            receiving.asked = 0;
        }
        self.sending.remove(&peer);
    }

    /// `offered`: the index of the checkpoint that this member offers.
    pub(crate) fn on_chunk_request(&mut self, g: &mut Ground, to: Caller, piece: Piece, offered: Option<u64>) {
        let Piece { index, file, offset, len } = piece;
        if offered.is_none_or(|offered| offered < index) || len > PIECE {
            return send_nothing(g, to);
        }
        self.sending.insert(to.member, (index, g.now));
        g.start(Task::SendChunk { to }, Job::ReadChunk { file, offset, len });
    }

    pub(crate) fn on_transfer_ended(&mut self, g: &mut Ground, from: u64, index: u64, ok: bool) {
        if self.sending.get(&from).is_some_and(|(sent, _)| *sent == index) {
            self.sending.remove(&from);
        }
        if g.is_leader() {
            g.consensus.snapshot_sent(from, ok);
        }
    }
}

/// The answer to whoever asked for a piece that is not to be had here.
pub(crate) fn send_nothing(g: &mut Ground, to: Caller) {
    let Caller { member, boot, token } = to;
    g.send(member, Frame::Chunk { boot, token, ok: false, end: false, bytes: Bytes::new() });
}
