//! Wires that are slow, narrow or drop frames, clients that keep a member busy, and what crossed.

use super::{Cluster, Wire, propose_put};
use node::frame::Frame;
use node::{Answer, Input, Request, Waiter};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A wire that carries little.
struct Narrow {
    /// Bytes in one tick.
    rate: u64,
    /// The byte of its time at which it is free.
    free: u64,
}

#[derive(Default)]
pub struct Links {
    narrow: BTreeMap<Wire, Narrow>,
    /// Wires whose queue is full: pieces and forwards on them are dropped, and the connection
    /// stands.
    full: BTreeSet<Wire>,
    /// Members whose state seems to differ from all others', and the others' from theirs.
    twisted: BTreeSet<u64>,
    crossed: Crossed,
}

/// What was handed to the wires since somebody asked.
#[derive(Default)]
struct Crossed {
    /// Bodies of forwards, and their bytes.
    bodies: u64,
    bytes: u64,
    /// Requests for pieces of checkpoints, and bytes of pieces.
    requests: u64,
    pieces: u64,
}

/// Clients that put, wait for the answer and put again.
#[derive(Default)]
pub struct Clients {
    waiting: BTreeSet<Waiter>,
    answered: u64,
    refused: u64,
}

impl Clients {
    /// True if the answer was for one of them.
    pub fn heard(&mut self, waiter: Waiter, answer: &Answer) -> bool {
        if !self.waiting.remove(&waiter) {
            return false;
        }
        match answer {
            Answer::Applied { .. } => self.answered += 1,
            _ => self.refused += 1,
        }
        true
    }
}

impl Links {
    /// What is heard of this frame.
    pub fn twist(&self, wire: Wire, frame: Frame) -> Frame {
        match frame {
            Frame::Digest { index, digest } if self.twisted.contains(&wire.from) != self.twisted.contains(&wire.to) => {
                Frame::Digest { index, digest: !digest }
            }
            frame => frame,
        }
    }

    /// Counts what is sent. False: the frame is dropped.
    pub fn takes(&mut self, wire: Wire, frame: &Frame) -> bool {
        let crossed = &mut self.crossed;
        let bulky = match frame {
            Frame::Forward { commands, .. } => {
                crossed.bodies += commands.len() as u64;
                crossed.bytes += commands.iter().map(|command| command.body.len() as u64).sum::<u64>();
                true
            }
            Frame::ChunkRequest { .. } => {
                crossed.requests += 1;
                true
            }
            Frame::Chunk { bytes, .. } => {
                crossed.pieces += bytes.len() as u64;
                true
            }
            _ => false,
        };
        !(bulky && self.full.contains(&wire))
    }

    /// When a frame that is sent now arrives. None: now.
    pub fn arrival(&mut self, now: u64, wire: Wire, frame: &Frame) -> Option<u64> {
        // Heartbeats and votes go ahead, as in the queue of a connection.
        if matches!(frame, Frame::Raft(message) if message.is_urgent()) {
            return None;
        }
        let Narrow { rate, free } = self.narrow.get_mut(&wire)?;
        let mut bytes = Vec::new();
        node::frame::encode(frame, &mut bytes);
        *free = (*free).max(now * *rate) + bytes.len() as u64;
        Some(free.div_ceil(*rate))
    }
}

impl Cluster {
    /// Commands about links and load. False: it is none of them.
    pub fn link_command(&mut self, words: &[&str]) -> bool {
        let number = |word: &str| word.parse::<u64>().expect("a number");
        match words {
            ["cut", a, b] => self.cut_wire(a, b),
            ["long", a, b, ticks] => {
                let ticks = number(ticks);
                self.long.extend(Wire::both(number(a), number(b)).map(|wire| (wire, ticks)));
            }
            ["tap", a, b] => drop(self.tapped.insert(Wire { from: number(a), to: number(b) })),
            ["again"] => self.again(),
            // Digests say that this member's state differs, until `untwist`.
            ["twist", id] => drop(self.links.twisted.insert(number(id))),
            ["untwist", id] => drop(self.links.twisted.remove(&number(id))),
            ["mend"] => self.cut.clear(),
            ["narrow", a, b, rate] => {
                let (a, b, rate) = (number(a), number(b), number(rate));
                self.links.narrow.extend(Wire::both(a, b).map(|wire| (wire, Narrow { rate, free: 0 })));
            }
            ["wide"] => self.links.narrow.clear(),
            ["clog", a, b] => self.links.full.extend([Wire { from: number(a), to: number(b) }]),
            ["unclog"] => self.links.full.clear(),
            ["break", a, b] => self.break_connection(number(a), number(b)),
            ["crossed"] => {
                let Crossed { bodies, bytes, requests, pieces } = std::mem::take(&mut self.links.crossed);
                let (bytes, pieces) = (bytes >> 10, pieces >> 10);
                let _ = writeln!(
                    self.told,
                    "{bodies} bodies ({bytes} KiB), {requests} requests for {pieces} KiB of pieces"
                );
            }
            ["clients", id, count, size, ticks] => {
                self.clients(number(id), number(count), number(size) as usize, number(ticks));
            }
            _ => return false,
        }
        true
    }

    /// What is on its way is gone, and both sides hear it.
    fn break_connection(&mut self, a: u64, b: u64) {
        for frames in self.underway.values_mut() {
            frames.retain(|(wire, _)| !Wire::both(a, b).contains(wire));
        }
        self.foundings.connected.remove(&Wire { from: a.min(b), to: a.max(b) });
        self.input(a, Input::Lost { peer: b });
        self.input(b, Input::Lost { peer: a });
    }

    /// So many clients of a member, each with one put at a time, for so many ticks. What is
    /// answered afterwards is not told.
    fn clients(&mut self, id: u64, count: u64, size: usize, ticks: u64) {
        self.clients = Clients::default();
        let value = "x".repeat(size);
        for _ in 0..ticks {
            for at in self.clients.waiting.len() as u64..count {
                self.next += 1;
                self.clients.waiting.insert(self.next);
                let request: Request = propose_put(&format!("client-{at}"), &value, 0);
                self.input(id, Input::Request { waiter: self.next, who: node::Who::Nobody, request });
            }
            self.tick();
        }
        let Clients { answered, refused, .. } = self.clients;
        let _ = writeln!(self.told, "{id}: {answered} puts answered, {refused} refused in {ticks} ticks");
    }
}
