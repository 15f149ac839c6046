//! What waits to be sent on one connection: urgent frames ahead, bounded in bytes.

use crate::ledger::Ledger;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

#[derive(Default)]
struct Lanes {
    connected: bool,
    /// Frames were dropped because there was no connection.
    refused: bool,
    urgent: VecDeque<Vec<u8>>,
    rest: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Bytes that may wait for one peer are bounded; beyond it the oldest frames that are not
/// urgent are dropped.
pub struct Queue {
    ledger: Arc<Ledger>,
    lanes: Mutex<Lanes>,
    ready: Notify,
}

impl Queue {
    pub fn new(ledger: &Arc<Ledger>) -> Queue {
        Queue { ledger: ledger.clone(), lanes: Mutex::default(), ready: Notify::new() }
    }

    fn left(&self, frame: &[u8]) {
        self.ledger.peer_send.give(frame.len() as u64);
        self.ledger.peer_send_frames.leave();
    }

    /// Everything that waits is dropped.
    fn restart(&self, connected: bool) {
        let lanes = std::mem::replace(&mut *self.lanes(), Lanes { connected, ..Lanes::default() });
        lanes.urgent.iter().chain(&lanes.rest).for_each(|frame| self.left(frame));
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// False: not connected, the frame was dropped.
    pub fn push(&self, frame: Vec<u8>, urgent: bool) -> bool {
        let mut lanes = self.lanes();
        if !lanes.connected {
            lanes.refused = true;
            return false;
        }
        lanes.bytes += frame.len();
        self.ledger.peer_send.take(frame.len() as u64);
        self.ledger.peer_send_frames.enter();
        match urgent {
            true => lanes.urgent.push_back(frame),
            false => lanes.rest.push_back(frame),
        }
        while lanes.bytes as u64 > self.ledger.limits.peer_send {
            // An urgent frame is small and its sender waits for few of them; should they
            // fill the bound all the same, the oldest go too.
            let Some(dropped) = lanes.rest.pop_front().or_else(|| lanes.urgent.pop_front()) else { break };
            lanes.bytes -= dropped.len();
            self.left(&dropped);
            self.ledger.peer_send.count_full();
        }
        true
    }

    pub fn wake(&self) {
        self.ready.notify_one();
    }

    /// The connection stands: frames are taken from now on.
    pub fn open(&self) {
        self.restart(true);
    }

    /// The connection broke: everything queued is gone.
    pub fn close(&self) {
        self.restart(false);
    }

    /// Whether frames were dropped for want of a connection since the last question.
    pub fn take_refused(&self) -> bool {
        std::mem::take(&mut self.lanes().refused)
    }

    /// Moves up to `most` bytes (at least one frame) into `out`, urgent ones first.
    pub fn take(&self, most: usize, out: &mut VecDeque<Vec<u8>>) {
        let mut lanes = self.lanes();
        let mut taken = 0;
        while taken < most {
            let Some(frame) = lanes.urgent.pop_front().or_else(|| lanes.rest.pop_front()) else { break };
            taken += frame.len();
            self.left(&frame);
            out.push_back(frame);
        }
        lanes.bytes -= taken;
    }

    /// Until something may be there.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_goes_first_and_the_oldest_append_is_dropped() {
        let ledger = Ledger::new(crate::ledger::Limits::default());
        let queue = Queue::new(&ledger);
        assert!(!queue.push(vec![0], true), "nothing is queued without a connection");
        assert!(queue.take_refused() && !queue.take_refused());
        queue.open();
        for n in 0..20_u8 {
            assert!(queue.push(vec![n; 1 << 20], false));
        }
        assert!(queue.push(vec![99], true));
        let mut out = VecDeque::new();
        queue.take(3 << 20, &mut out);
        let first: Vec<u8> = out.iter().map(|frame| frame[0]).collect();
        // 15 appends and the urgent byte fit; appends 0 to 4 were the oldest.
        assert_eq!(first, [99, 5, 6, 7]);
        queue.close();
        queue.open();
        out.clear();
        queue.take(usize::MAX, &mut out);
        assert!(out.is_empty(), "a broken connection's frames are gone");
        assert_eq!((ledger.peer_send.used(), ledger.peer_send.times_full()), (0, 5));
    }
}
