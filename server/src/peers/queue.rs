//! What waits to be sent on one connection: the lanes of `node::lanes` behind a lock, charged to
//! the budgets.

use crate::budgets::Budgets;
use node::frame::Lane;
use node::lanes::{Bounds, Lanes, Pushed};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

pub(crate) struct Queue {
    budgets: Arc<Budgets>,
    lanes: Mutex<Lanes<Vec<u8>>>,
    ready: Notify,
}

impl Queue {
    pub(crate) fn new(budgets: &Arc<Budgets>) -> Queue {
        let bounds = Bounds { raft: budgets.limits.peer_send, forward: budgets.limits.peer_forwards };
        Queue { budgets: budgets.clone(), lanes: Mutex::new(Lanes::new(bounds)), ready: Notify::new() }
    }

    /// Changes the lanes, and brings the budgets up to it. Both under the lock: nothing is given
    /// back before it was taken.
    fn change<T>(&self, change: impl FnOnce(&mut Lanes<Vec<u8>>) -> T) -> T {
        let mut lanes = self.lanes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (before, lost_before) = (lanes.waiting(), lanes.lost());
        let done = change(&mut lanes);
        let (after, lost) = (lanes.waiting(), lanes.lost().since(lost_before));
        let budgets = &self.budgets;
        budgets.peer_send.take(after.raft.saturating_sub(before.raft));
        budgets.peer_send.give(before.raft.saturating_sub(after.raft));
        budgets.peer_forwards.take(after.forward.saturating_sub(before.forward));
        budgets.peer_forwards.give(before.forward.saturating_sub(after.forward));
        budgets.peer_send_frames.moved(before.frames.sum(), after.frames.sum());
        if lost.full.sum() + lost.closed.sum() > 0 {
            (0..lost.full.urgent + lost.full.log).for_each(|_| budgets.peer_send.count_full());
            (0..lost.full.forward).for_each(|_| budgets.peer_forwards.count_full());
            budgets.lose_frames(lost);
        }
        done
    }

    /// What is not queued was dropped.
    pub(crate) fn push(&self, lane: Lane, frame: Vec<u8>) -> Pushed {
        self.change(|lanes| lanes.push(lane, frame.len() as u64, frame))
    }

    pub(crate) fn wake(&self) {
        self.ready.notify_one();
    }

    /// Whether the connection stands.
    pub(crate) fn is_open(&self) -> bool {
        self.change(|lanes| lanes.is_open())
    }

    /// The connection stands: frames are taken from now on.
    pub(crate) fn open(&self) {
        self.change(Lanes::open);
    }

    /// The connection broke: everything queued is gone.
    pub(crate) fn close(&self) {
        self.change(Lanes::close);
    }

    /// Whether frames were dropped for want of a connection since the last question.
    pub(crate) fn take_refused(&self) -> bool {
        self.change(Lanes::take_refused)
    }

    /// Moves up to `most` bytes (at least one frame) into `out`.
    pub(crate) fn take(&self, most: usize, out: &mut VecDeque<Vec<u8>>) {
        self.change(|lanes| lanes.take(most as u64, out));
    }

    /// Until something may be there.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::lanes::PerLane;

    #[test]
    fn the_budgets_follow_what_waits_and_what_is_lost() {
        let budgets = Budgets::new(crate::budgets::Limits::default());
        let queue = Queue::new(&budgets);
        assert_eq!(queue.push(Lane::Urgent, vec![0]), Pushed::Closed);
        assert!(queue.take_refused() && !queue.take_refused());
        queue.open();
        for n in 0..20_u8 {
            assert_eq!(queue.push(Lane::Log, vec![n; 1 << 20]), Pushed::Queued);
            let pushed = if n < 8 { Pushed::Queued } else { Pushed::Refused };
            assert_eq!(queue.push(Lane::Forward, vec![n; 1 << 20]), pushed);
        }
        assert_eq!(queue.push(Lane::Urgent, vec![99]), Pushed::Queued);
        // 15 appends and the urgent byte fit; appends 0 to 4 were the oldest.
        assert_eq!((budgets.peer_send.used(), budgets.peer_send.times_full()), ((15 << 20) + 1, 5));
        assert_eq!((budgets.peer_forwards.used(), budgets.peer_forwards.times_full()), (8 << 20, 12));
        assert_eq!(budgets.peer_send_frames.get(), 24);
        let mut out = VecDeque::new();
        queue.take(3 << 20, &mut out);
        let first: Vec<u8> = out.iter().map(|frame| frame[0]).collect();
        assert_eq!(first, [99, 5, 0, 6]);
        queue.close();
        queue.open();
        out.clear();
        queue.take(usize::MAX, &mut out);
        assert!(out.is_empty(), "a broken connection's frames are gone");
        assert_eq!((budgets.peer_send.used(), budgets.peer_forwards.used(), budgets.peer_send_frames.get()), (0, 0, 0));
        let lost = budgets.lost_frames();
        assert_eq!(lost.full, PerLane { urgent: 0, log: 5, forward: 12 });
        assert_eq!(lost.closed, PerLane { urgent: 1, log: 13, forward: 7 });
    }
}
