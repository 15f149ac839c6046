//! Snapshots between members: the follower pulls the files that the manifest names.
//!
//! The leader's MsgSnapshot carries the manifest; the follower asks for pieces, one at a time,
//! writes them to a staging place, verifies everything, swaps, restarts its log there, and
//! only then tells consensus. Until then it is its old self.

use crate::config::TICK_MS;
use crate::frame::Frame;
use crate::io::*;
use crate::member::{Node, Task};
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

    /// The files of the new state are being put in place: the old one stands still.
    pub(crate) fn swapping(&self) -> bool {
        let stage = self.receiving.as_ref().map(|receiving| receiving.stage);
        matches!(stage, Some(Stage::Finishing | Stage::RestartingLog))
    }

    /// Checkpoints on their way: kept, and the log is not cut above the lowest.
    pub(crate) fn held(&self) -> Vec<u64> {
        self.sending.values().map(|(index, _)| *index).collect()
    }
}

impl Node {
    pub(crate) fn begin_install(&mut self, from: u64, snapshot: Snapshot, out: &mut Vec<Output>) {
        if let Some(receiving) = &self.transfer.receiving {
            if receiving.snapshot.index != snapshot.index {
                // The running one ends first; the leader will offer again.
                self.note(Level::Info, format!("a snapshot at {} waits for the one under way", snapshot.index), out);
            }
            return;
        }
        self.note(Level::Info, format!("receiving the snapshot at {} from {from:x}", snapshot.index), out);
        let manifest = snapshot.manifest.clone();
        self.transfer.receiving = Some(Receiving {
            from,
            snapshot,
            files: Vec::new(),
            file: 0,
            offset: 0,
            token: 0,
            asked: self.ticks,
            tries: 0,
            stage: Stage::Beginning,
            store: None,
        });
        self.jobs.start(Task::Install, Job::InstallBegin { manifest }, out);
    }

    fn ask_piece(&mut self, out: &mut Vec<Output>) {
        self.transfer.next_token += 1;
        let (token, now, boot) = (self.transfer.next_token, self.ticks, self.config.boot);
        let receiving = self.transfer.receiving.as_mut().expect("an install is under way");
        let Some((file, len)) = receiving.files.get(receiving.file) else {
            receiving.stage = Stage::Finishing;
            self.abort_checkpoint();
            self.jobs.start(Task::Install, Job::InstallFinish, out);
            return;
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
        out.push(Output::Send { to: receiving.from, frame });
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_chunk(
        &mut self,
        from: u64,
        boot: u64,
        token: u64,
        ok: bool,
        _end: bool,
        bytes: Bytes,
        out: &mut Vec<Output>,
    ) {
        let Some(receiving) = &mut self.transfer.receiving else { return };
        if boot != self.config.boot
            || from != receiving.from
            || token != receiving.token
            || receiving.stage != Stage::Asking
        {
            return;
        }
        let (file, len) = receiving.files[receiving.file].clone();
        let fits = receiving.offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= len);
        if !ok || !fits || (bytes.is_empty() && receiving.offset < len) {
            return self.give_up("the sender no longer has the checkpoint", out);
        }
        receiving.tries = 0;
        receiving.stage = Stage::Writing;
        let offset = receiving.offset;
        receiving.offset += bytes.len() as u64;
        if receiving.offset == len {
            receiving.file += 1;
            receiving.offset = 0;
        }
        self.jobs.start(Task::Install, Job::InstallChunk { file, offset, bytes }, out);
    }

    pub(crate) fn install_step_done(&mut self, result: JobResult, out: &mut Vec<Output>) {
        match result {
            JobResult::InstallBegun { files } => {
                self.transfer.receiving.as_mut().expect("an install is under way").files = files;
                self.ask_piece(out);
            }
            JobResult::ChunkWritten => self.ask_piece(out),
            JobResult::Installed { store } => self.files_installed(store, out),
            other => panic!("{other:?} does not answer an install step"),
        }
    }

    /// The manifest stands: this member *is* the snapshot now. The log follows.
    fn files_installed(&mut self, store: Box<store::Store>, out: &mut Vec<Output>) {
        let status = self.consensus.status();
        let receiving = self.transfer.receiving.as_mut().expect("an install is under way");
        receiving.stage = Stage::RestartingLog;
        receiving.store = Some(store);
        let (index, term) = (receiving.snapshot.index, receiving.snapshot.term);
        let hard = HardState { term: status.term, vote: status.vote, commit: index };
        self.hold_saves(out);
        self.jobs.start(Task::RestartLog, Job::RestartLog { hard, index, term }, out);
    }

    pub(crate) fn log_restarted(&mut self, out: &mut Vec<Output>) {
        let receiving = self.transfer.receiving.take().expect("an install is under way");
        let snapshot = receiving.snapshot;
        self.end_walks(out);
        self.end_backups(out);
        self.end_hashes(out);
        self.epoch += 1;
        self.store = *receiving.store.expect("loaded");
        assert_eq!(self.store.applied().index, snapshot.index, "the files are those of the manifest");
        self.applier.restart(snapshot.index);
        self.checkpoints.restart(snapshot.index);
        self.consensus.installed(&snapshot);
        self.release_saves(snapshot.index, out);
        self.reset_watches(out);
        self.healed(out);
        for command in self.gate.drain_sent() {
            // Its entry may be inside the snapshot: nobody can tell.
            if let Some(waiter) = command.waiter {
                self.refuse(waiter, Refusal::TimeoutLeaderFail, out);
            }
        }
        self.note(Level::Info, format!("installed the snapshot at {}", snapshot.index), out);
        let frame = Frame::TransferEnded { index: snapshot.index, ok: true };
        out.push(Output::Send { to: receiving.from, frame });
    }

    pub(crate) fn install_failed(&mut self, fault: disk::Fault, out: &mut Vec<Output>) {
        if matches!(fault, disk::Fault::Io { .. }) {
            return self.fatal(format!("{fault}"), out);
        }
        self.give_up(&format!("{fault}"), out);
    }

    fn give_up(&mut self, why: &str, out: &mut Vec<Output>) {
        let receiving = self.transfer.receiving.take().expect("an install is under way");
        self.consensus.abandon_install();
        let index = receiving.snapshot.index;
        self.note(Level::Warn, format!("gave up the snapshot at {index} from {:x}: {why}", receiving.from), out);
        out.push(Output::Send { to: receiving.from, frame: Frame::TransferEnded { index, ok: false } });
    }

    pub(crate) fn tick_transfer(&mut self, out: &mut Vec<Output>) {
        let now = self.ticks;
        self.transfer.sending.retain(|_, (_, asked)| now - *asked < SENDER_PATIENCE);
        if now.is_multiple_of(OFFER_AGAIN) && self.is_leader() {
            self.offer_again();
        }
        let Some(receiving) = &mut self.transfer.receiving else { return };
        if receiving.stage != Stage::Asking || now - receiving.asked < AGAIN {
            return;
        }
        receiving.tries += 1;
        if receiving.tries >= TRIES {
            return self.give_up("the sender does not answer", out);
        }
        self.ask_piece(out);
    }

    /// A follower that was offered a snapshot and asks for nothing may not have heard the offer.
    fn offer_again(&mut self) {
        for follower in self.consensus.status().followers {
            let silent = !self.transfer.sending.contains_key(&follower.id);
            if follower.feeding == consensus::Feeding::Snapshot && silent {
                self.consensus.snapshot_sent(follower.id, false);
            }
        }
    }

    pub(crate) fn lost_transfer(&mut self, peer: u64) {
        if let Some(receiving) = &mut self.transfer.receiving
            && receiving.from == peer
        {
            // Asked again at the next tick: a reconnect drops what was queued.
            receiving.asked = 0;
        }
        self.transfer.sending.remove(&peer);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_chunk_request(
        &mut self,
        from: u64,
        boot: u64,
        token: u64,
        index: u64,
        file: String,
        offset: u64,
        len: u32,
        out: &mut Vec<Output>,
    ) {
        let known = self.checkpoints.offered.as_ref().is_some_and(|offered| offered.index >= index);
        if !known || len > PIECE {
            let frame = Frame::Chunk { boot, token, ok: false, end: false, bytes: Bytes::new() };
            return out.push(Output::Send { to: from, frame });
        }
        self.transfer.sending.insert(from, (index, self.ticks));
        self.jobs.start(Task::SendChunk { to: from, boot, token }, Job::ReadChunk { file, offset, len }, out);
    }

    pub(crate) fn on_transfer_ended(&mut self, from: u64, index: u64, ok: bool) {
        if self.transfer.sending.get(&from).is_some_and(|(sent, _)| *sent == index) {
            self.transfer.sending.remove(&from);
        }
        if self.is_leader() {
            self.consensus.snapshot_sent(from, ok);
        }
    }
}
