//! Frames between members: encoded, sent over the simulated network, decoded, given.

use super::*;
use crate::oracle::Promise;
use crate::plan::Pulls;

/// In the wire form of a message (`consensus/src/message.rs`): two kinds, and where the index is.
const APPEND_RESPONSE: u8 = 2;
const VOTE_RESPONSE: u8 = 4;
const INDEX_AT: usize = 36;
/// So many senders of snapshots die in one seed, at most.
const SENDERS_DIE: u64 = 4;
/// Bytes of a frame that is put on the link five times, where that is planted.
const LONG: usize = 30_000;

impl Sim {
    pub(crate) fn position(&self, id: u64) -> Option<usize> {
        self.members.iter().position(|m| m.id == id)
    }

    pub(super) fn send(&mut self, who: usize, to: u64, frame: Frame) {
        let Some(peer) = self.position(to) else {
            if self.was_member(to) {
                return;
            }
            return self.fail("M-3", format!("m{} sends to {to}, which is nobody", who + 1));
        };
        if peer == who {
            return self.fail("M-3", format!("m{} sends to itself: {frame:?}", who + 1));
        }
        self.judge_foundings(who, peer);
        let lane = node::frame::lane(&frame);
        let mut bytes = std::mem::take(&mut self.frame_buffer);
        bytes.clear();
        if let Err(panic) = guarded(|| node::frame::encode(&frame, &mut bytes)) {
            return self.fail("panic", format!("m{} encodes a frame: {panic}", who + 1));
        }
        let wire = Bytes::copy_from_slice(&bytes);
        self.frame_buffer = bytes;
        self.tell(Some(who), "send", to, fold(&wire), || format!("to m{to} {frame:?}"));
        if let Frame::Raft(message) = &frame
            && message.is_urgent()
        {
            self.weigh_promise(who, message);
        }
        if let Frame::ChunkRequest { boot, token, file, offset, .. } = &frame {
            self.piece_asked(who, (*boot, *token), file, *offset);
        }
        if let Frame::Forward { commands, .. } = &frame {
            let epoch = self.net.epoch(who, peer);
            for command in commands {
                self.forwarded(who, peer, command.seq, command.body.len() as u64, epoch);
            }
        }
        if lane == node::frame::Lane::Urgent && self.plants.dead_lanes.contains(&(who, peer)) {
            return;
        }
        if self.members[peer].gone {
            return;
        }
        if self.is(Planted::ChunksLost) && matches!(frame, Frame::Chunk { .. })
            || self.is(Planted::FramesCapped) && wire.len() > 1 << 10
        {
            return;
        }
        if self.is(Planted::RebuildForgotten) && matches!(frame, Frame::StateOffer { .. }) {
            return;
        }
        if matches!(frame, Frame::Chunk { .. }) && self.oracle.differs(who) {
            // A wrong state that is given away is one fault too many.
            return;
        }
        if self.plan.sights.has(Sight::MaxFrame) && wire.len() + 1 > self.max_frame() {
            self.marks.hit("a frame was too long for a peer");
            return;
        }
        self.plant_in_send(who, &frame);
        if matches!(frame, Frame::Chunk { ok: true, .. }) && self.breaks_pull(who, peer) {
            return;
        }
        if self.is(Planted::ForwardsAgain)
            && let Frame::Forward { commands, .. } = &frame
        {
            let epoch = self.net.epoch(who, peer);
            for command in commands.iter().flat_map(|c| std::iter::repeat_n(c, 20)) {
                self.forwarded(who, peer, command.seq, command.body.len() as u64, epoch);
            }
        }
        let behind = self.is(Planted::UrgentBehindLog) && lane == node::frame::Lane::Urgent;
        let lane = if behind { node::frame::Lane::Log } else { lane };
        if self.is(Planted::LongAgain) && matches!(frame, Frame::Raft(_)) && wire.len() > LONG {
            for _ in 0..4 {
                self.put_on_link(who, peer, lane, wire.clone(), &frame);
            }
        }
        self.put_on_link(who, peer, lane, wire, &frame);
    }

    fn put_on_link(&mut self, who: usize, peer: usize, lane: node::frame::Lane, wire: Bytes, frame: &Frame) {
        match self.net.send(self.now, who, peer, lane, wire) {
            Sent::Arrives(at, flight) => self.at(at, Event::Arrive { flight }),
            Sent::Held => {}
            Sent::Queued => self.depart(who, peer),
            Sent::Dropped => self.marks.hit("a frame was dropped inside a connection"),
            Sent::NoConnection(up_at) => {
                let life = self.members[who].life;
                self.at(up_at, Event::Lost { who, life, peer });
            }
            Sent::Breaks => {
                if matches!(frame, Frame::Forward { .. }) {
                    self.marks.hit("forward lost with its connection");
                }
                self.break_pair(who, peer);
            }
        }
    }

    /// What a message promises stands on the disk of the member that sends it.
    fn weigh_promise(&mut self, who: usize, message: &consensus::Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let number = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (kind, rejects) = (bytes[1], bytes[2] != 0);
        let promise = match kind {
            _ if rejects => return,
            APPEND_RESPONSE => Promise::Entries { upto: number(INDEX_AT) },
            VOTE_RESPONSE => Promise::Vote { term: message.term(), candidate: message.to() },
            _ => return,
        };
        self.oracle.on_promise(self.now, who, promise);
    }

    /// As `max_frame` of `server/src/peers.rs`, but for its lower bound.
    fn max_frame(&self) -> usize {
        let unit = self.plan.max_request_bytes.min(256 << 20) as usize;
        // Pieces of checkpoints have a size of their own.
        (4 * unit + (64 << 10)).max((1 << 20) + (64 << 10))
    }

    /// The next frame of a link leaves, if it is free.
    pub(super) fn depart(&mut self, from: usize, to: usize) {
        if let Some((frame, left)) = self.net.depart(self.now, from, to) {
            if let Some((at, flight)) = frame {
                self.at(at, Event::Arrive { flight });
            }
            self.at(left, Event::Depart { from, to });
        }
    }

    /// All links that wait go on.
    pub(crate) fn depart_all(&mut self) {
        for from in 0..self.members.len() {
            (0..self.members.len()).for_each(|to| self.depart(from, to));
        }
    }

    /// The others are a majority that can elect: a member in doubt may wait for those who are away.
    fn can_do_without(&self, who: usize) -> bool {
        let can = |other: &usize| {
            let up = self.members[*other].up.as_ref();
            *other != who && up.is_some_and(|life| !life.status.doubt && !life.barred)
        };
        (0..self.members.len()).filter(can).count() * 2 > self.members.len()
    }

    /// A piece of a snapshot is about to leave. True: it goes with its connection. Or its sender
    /// dies soon.
    fn breaks_pull(&mut self, who: usize, peer: usize) -> bool {
        let Pulls { breaks, dies } = self.plan.pulls;
        if breaks + dies == 0 || self.phase != crate::run::Phase::Safety || self.is_quiet() {
            return false;
        }
        if self.pull_rng.percent(dies) && self.senders_died < SENDERS_DIE && self.can_do_without(who) {
            self.senders_died += 1;
            *self.fault_counts.entry("sender of a snapshot dies").or_default() += 1;
            let (life, down) = (self.members[who].life, self.pull_rng.between(4, 15) * SECOND);
            self.at(self.now, Event::Crash { who, life, power: false, down });
        }
        let breaks = self.pull_rng.percent(breaks);
        if breaks {
            *self.fault_counts.entry("connection of a snapshot breaks").or_default() += 1;
            self.break_pair(who, peer);
        }
        breaks
    }

    pub(crate) fn break_pair(&mut self, a: usize, b: usize) {
        self.net.break_pair(self.now, a, b);
        if self.is(Planted::UrgentLaneDies) {
            self.plants.dead_lanes.extend([(a, b), (b, a)]);
        }
        self.plants.broke(a, b);
        for (who, peer) in [(a, b), (b, a)] {
            let life = self.members[who].life;
            let at = self.now + self.rng.below(10 * MS);
            self.at(at, Event::Lost { who, life, peer });
        }
    }

    pub(super) fn arrive(&mut self, flight: Flight) {
        if !self.net.arrives(&flight) || self.members[flight.to].up.is_none() {
            return;
        }
        if self.net.is_old(&flight) {
            self.marks.hit("message of a previous life arrived");
        }
        if !self.net.is_old(&flight) {
            self.connect(flight.from, flight.to);
        }
        let from = self.members[flight.from].id;
        let frame = match guarded(|| node::frame::decode(flight.bytes.clone())) {
            Ok(Ok(frame)) => frame,
            Ok(Err(_)) => return self.fail("codec", "a frame that was encoded is not decoded".to_string()),
            Err(panic) => return self.fail("panic", panic),
        };
        let who = flight.to;
        if let Frame::Chunk { boot, token, ok: true, bytes, .. } = &frame {
            self.piece_arrived(who, (*boot, *token), bytes);
        }
        self.tell(Some(who), "recv", from, fold(&flight.bytes), || format!("from m{from} {frame:?}"));
        let Some(frame) = self.plant_in_frame(who, flight.from, frame) else { return };
        if self.is(Planted::ReadIndexByAnyone)
            && let Frame::ReadIndex { boot, token } = frame
        {
            let status = self.members[who].up.as_ref().expect("up").status.clone();
            if status.is_leader {
                return self.send(who, from, Frame::ReadIndexReply { boot, token, index: status.applied });
            }
        }
        if self.is(Planted::ForwardTwice)
            && self.rng.percent(5)
            && let Frame::Forward { term, boot, commands } = &frame
        {
            let again = commands
                .iter()
                .map(|c| node::frame::Forwarded { seq: c.seq + (1 << 40), body: c.body.clone() })
                .collect();
            self.give(who, Input::Frame { from, frame: Frame::Forward { term: *term, boot: *boot, commands: again } });
        }
        self.give(who, Input::Frame { from, frame });
    }
}
