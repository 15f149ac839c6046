//! What waits to be sent on one connection: urgent frames ahead, bounded in bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// Bytes that may wait; beyond it the oldest frames that are not urgent are dropped.
const BOUND: usize = 16 << 20;

#[derive(Default)]
struct Lanes {
    connected: bool,
    /// Frames were dropped because there was no connection.
    refused: bool,
    urgent: VecDeque<Vec<u8>>,
    rest: VecDeque<Vec<u8>>,
    bytes: usize,
}

#[derive(Default)]
pub struct Queue {
    lanes: Mutex<Lanes>,
    ready: Notify,
}

impl Queue {
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
        match urgent {
            true => lanes.urgent.push_back(frame),
            false => lanes.rest.push_back(frame),
        }
        while lanes.bytes > BOUND {
            // An urgent frame is small and its sender waits for few of them; should they
            // fill the bound all the same, the oldest go too.
            let Some(dropped) = lanes.rest.pop_front().or_else(|| lanes.urgent.pop_front()) else { break };
            lanes.bytes -= dropped.len();
        }
        true
    }

    pub fn wake(&self) {
        self.ready.notify_one();
    }

    /// The connection stands: frames are taken from now on.
    pub fn open(&self) {
        *self.lanes() = Lanes { connected: true, ..Lanes::default() };
    }

    /// The connection broke: everything queued is gone.
    pub fn close(&self) {
        *self.lanes() = Lanes::default();
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
        let queue = Queue::default();
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
    }
}
