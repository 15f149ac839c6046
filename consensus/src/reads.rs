//! Rounds of ReadIndex: which reads wait for which confirmation.
//!
//! A round opens with a heartbeat that carries its context; once a quorum has answered, every read
//! that had joined *before the round opened* may be served at the commit index of that moment. A
//! read that comes later waits for the next round, for this one may have been confirmed by
//! heartbeats older than the read. A round not confirmed within one heartbeat interval sends a new
//! context; its older ones stay valid, or a round trip longer than the interval would never end.

use crate::ReadFailed;
use std::collections::VecDeque;

/// member id, boot nonce, counter.
const CONTEXT_BYTES: usize = 24;
const MAX_OPEN: usize = 2;

#[derive(Debug)]
pub(crate) struct Reads {
    id: u64,
    boot: u64,
    /// Last counter used in a context.
    counter: u64,
    /// Wait for the next round.
    waiting: Vec<u64>,
    /// Oldest first.
    open: VecDeque<Round>,
    finished: Vec<(u64, Result<u64, ReadFailed>)>,
}

#[derive(Debug)]
struct Round {
    tokens: Vec<u64>,
    /// Counter of its first context: any context from here on was sent after all its reads joined.
    opened: u64,
    /// Ticks since the last context was sent.
    age: u32,
}

impl Reads {
    pub fn new(id: u64, boot: u64) -> Reads {
        let (waiting, open, finished) = Default::default();
        Reads { id, boot, counter: 0, waiting, open, finished }
    }

    pub fn join(&mut self, token: u64) {
        self.waiting.push(token);
    }

    pub fn refuse(&mut self, token: u64) {
        self.finished.push((token, Err(ReadFailed::NotLeader)));
    }

    pub fn tick(&mut self) {
        self.open.iter_mut().for_each(|round| round.age += 1);
    }

    /// The contexts to send now: rounds older than `interval` ticks again, then a new round if
    /// reads wait and there is room.
    pub fn begin(&mut self, interval: u32) -> Vec<Vec<u8>> {
        let mut contexts = Vec::new();
        for at in 0..self.open.len() {
            if self.open[at].age >= interval {
                contexts.push(self.next_context());
                self.open[at].age = 0;
            }
        }
        if !self.waiting.is_empty() && self.open.len() < MAX_OPEN {
            contexts.push(self.next_context());
            let tokens = std::mem::take(&mut self.waiting);
            self.open.push_back(Round { tokens, opened: self.counter, age: 0 });
        }
        contexts
    }

    fn next_context(&mut self) -> Vec<u8> {
        self.counter += 1;
        let parts = [self.id, self.boot, self.counter];
        parts.iter().flat_map(|part| part.to_le_bytes()).collect()
    }

    /// A quorum answered `context`. It may be one of a round that is already served.
    pub fn confirm(&mut self, context: &[u8], index: u64) {
        let Some([id, boot, counter]) = parts_of(context) else {
            return;
        };
        assert_eq!((id, boot), (self.id, self.boot), "ReadIndex context of another life");
        // Contexts of two rounds interleave when both are sent again: a context serves every round
        // that was open when it was sent.
        while let Some(round) = self.open.pop_front_if(|round| round.opened <= counter) {
            self.finished.extend(round.tokens.into_iter().map(|token| (token, Ok(index))));
        }
    }

    /// Leadership is gone: nothing that waits can be confirmed any more.
    pub fn fail(&mut self) {
        let open = self.open.drain(..).flat_map(|round| round.tokens);
        let lost = open.chain(self.waiting.drain(..));
        self.finished.extend(lost.map(|token| (token, Err(ReadFailed::LeaderChanged))));
    }

    pub fn finished(&mut self) -> &mut Vec<(u64, Result<u64, ReadFailed>)> {
        &mut self.finished
    }
}

fn parts_of(context: &[u8]) -> Option<[u64; 3]> {
    if context.len() != CONTEXT_BYTES {
        return None;
    }
    let mut parts = [0; 3];
    for (part, bytes) in parts.iter_mut().zip(context.chunks_exact(8)) {
        *part = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(parts)
}

/// The counter in a heartbeat's context, for traces.
pub(crate) fn counter_of(context: &[u8]) -> Option<u64> {
    parts_of(context).map(|parts| parts[2])
}
