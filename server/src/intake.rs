//! The one queue into the core thread: two lanes, a budget in bytes, taken whole.
//!
//! Urgent things (votes, heartbeats, disk reports, keep-alives, health, stop) stand ahead of
//! the rest. What comes from clients is refused when the budget is full; what comes from
//! peers waits on its connection; reports of the disk are always taken, because the core
//! asked for them.

use crate::budgets::Budgets;
use crate::core::Answered;
use crate::posts::Post;
use node::frame::Frame;
use node::{JobId, JobResult, Request, StreamId, Waiter, WatchOp, Who};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::oneshot;

/// What a queued request costs besides its body.
const OVERHEAD: u64 = 256;

pub(crate) enum ToCore {
    Ask {
        waiter: Waiter,
        runtime: usize,
        who: Who,
        request: Request,
        cost: u64,
        answer: oneshot::Sender<Answered>,
    },
    Cancel {
        waiter: Waiter,
        timed_out: bool,
    },
    Open {
        stream: StreamId,
        runtime: usize,
        post: Post,
    },
    Watch {
        stream: StreamId,
        op: WatchOp,
    },
    Frame {
        from: u64,
        frame: Frame,
        cost: u64,
    },
    Met {
        peer: u64,
        founding: Option<u64>,
    },
    Lost {
        peer: u64,
    },
    /// A peer says that this member was removed from the cluster.
    Removed {
        by: u64,
    },
    Done {
        job: JobId,
        result: JobResult,
    },
    Stalled {
        job: JobId,
        fault: disk::Fault,
    },
    /// A connection could not read a record.
    Unreadable {
        fault: disk::Fault,
    },
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The budget is full: "too many requests".
    Full,
    /// The core has stopped.
    Closed,
}

#[derive(Default)]
struct Lanes {
    urgent: Vec<ToCore>,
    normal: Vec<ToCore>,
    closed: bool,
    waiting: bool,
}

pub(crate) struct Intake {
    lanes: Mutex<Lanes>,
    ready: Condvar,
    budgets: Arc<Budgets>,
}

/// Everything that was queued, urgent first; both ascending in time.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) urgent: Vec<ToCore>,
    pub(crate) normal: Vec<ToCore>,
}

/// Things that wait in each lane.
pub(crate) struct Depths {
    pub(crate) urgent: u64,
    pub(crate) normal: u64,
}

impl Intake {
    pub(crate) fn new(budgets: Arc<Budgets>) -> Intake {
        Intake { lanes: Mutex::default(), ready: Condvar::new(), budgets }
    }

    pub(crate) fn depths(&self) -> Depths {
        let lanes = self.lanes();
        Depths { urgent: lanes.urgent.len() as u64, normal: lanes.normal.len() as u64 }
    }

    /// Whether a question of this kind fits now. What ends something always fits; what keeps a
    /// promise (keep-alives, health, revokes) has as much room again as all others.
    fn fits(&self, request: &Request, cost: u64) -> bool {
        let queue = &self.budgets.queue;
        let limit = match reserve(request) {
            Reserve::None => queue.limit(),
            Reserve::Half => queue.limit().saturating_mul(2),
            Reserve::All => return true,
        };
        queue.used().saturating_add(cost) <= limit
    }

    /// As [`Intake::ask`] would say.
    pub(crate) fn has_room(&self, request: &Request) -> bool {
        self.fits(request, request_cost(request))
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        // A panic while the lock is held aborts the process, so it is never poisoned in a
        // release; in tests the data is plain queues and stays valid.
        self.lanes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, urgent: bool, what: ToCore) -> Result<(), NotTaken> {
        let mut lanes = self.lanes();
        if lanes.closed {
            return Err(NotTaken::Closed);
        }
        match urgent {
            true => lanes.urgent.push(what),
            false => lanes.normal.push(what),
        }
        if lanes.waiting {
            lanes.waiting = false;
            drop(lanes);
            self.ready.notify_one();
        }
        Ok(())
    }

    /// A question of a client, against the budget. On refusal nothing was queued.
    pub(crate) fn ask(
        &self,
        waiter: Waiter,
        runtime: usize,
        who: Who,
        request: Request,
        answer: oneshot::Sender<Answered>,
    ) -> Result<(), NotTaken> {
        let cost = request_cost(&request);
        let urgent = is_urgent(&request);
        if !self.fits(&request, cost) {
            self.budgets.queue.count_full();
            return Err(NotTaken::Full);
        }
        self.budgets.queue.take(cost);
        let asked = self.push(urgent, ToCore::Ask { waiter, runtime, who, request, cost, answer });
        if asked.is_err() {
            self.budgets.queue.give(cost);
        }
        asked
    }

    pub(crate) fn cancel(&self, waiter: Waiter, timed_out: bool) {
        let _ = self.push(false, ToCore::Cancel { waiter, timed_out });
    }

    pub(crate) fn open(&self, stream: StreamId, runtime: usize, post: Post) {
        let _ = self.push(false, ToCore::Open { stream, runtime, post });
    }

    pub(crate) fn watch(&self, stream: StreamId, op: WatchOp) {
        let _ = self.push(false, ToCore::Watch { stream, op });
    }

    /// A frame of `bytes` on the wire. The caller looks at [`Intake::peers_full`] first.
    pub(crate) fn frame(&self, from: u64, frame: Frame, bytes: u64, urgent: bool) -> Result<(), NotTaken> {
        let cost = bytes + OVERHEAD;
        self.budgets.peer_frames.take(cost);
        let taken = self.push(urgent, ToCore::Frame { from, frame, cost });
        if taken.is_err() {
            self.budgets.peer_frames.give(cost);
        }
        taken
    }

    /// True while a peer's connection shall not be read.
    pub(crate) fn peers_full(&self) -> bool {
        self.budgets.peer_frames.used() > self.budgets.peer_frames.limit()
    }

    /// Ahead of the frames of the new connection.
    pub fn met(&self, peer: u64, founding: Option<u64>) {
        let _ = self.push(true, ToCore::Met { peer, founding });
    }

    /// A peer of this cluster says that this member was removed from it.
    pub(crate) fn removed(&self, by: u64) {
        let _ = self.push(true, ToCore::Removed { by });
    }

    /// Behind the frames of the broken connection, so it takes their lane.
    pub(crate) fn lost(&self, peer: u64) {
        let _ = self.push(false, ToCore::Lost { peer });
    }

    pub(crate) fn done(&self, job: JobId, result: JobResult) {
        let _ = self.push(true, ToCore::Done { job, result });
    }

    pub(crate) fn stalled(&self, job: JobId, fault: disk::Fault) {
        let _ = self.push(true, ToCore::Stalled { job, fault });
    }

    /// A record could not be read: the member gets it from another one.
    pub(crate) fn unreadable(&self, fault: disk::Fault) {
        let _ = self.push(true, ToCore::Unreadable { fault });
    }

    pub(crate) fn stop(&self) {
        let _ = self.push(true, ToCore::Stop);
    }

    /// Nothing is taken any more; what waits is dropped (its askers see "stopped").
    pub(crate) fn close(&self) {
        let mut lanes = self.lanes();
        lanes.closed = true;
        let dropped = Batch { urgent: std::mem::take(&mut lanes.urgent), normal: std::mem::take(&mut lanes.normal) };
        drop(lanes);
        self.settle(&dropped);
    }

    /// Takes everything queued into `batch` (which is empty). Sleeps until something is
    /// there or `until` passed; `until` None = does not sleep.
    pub(crate) fn take(&self, until: Option<Instant>, batch: &mut Batch) {
        assert!(batch.urgent.is_empty() && batch.normal.is_empty(), "a batch is carried out before the next");
        let mut lanes = self.lanes();
        if let Some(until) = until {
            while lanes.urgent.is_empty() && lanes.normal.is_empty() {
                let now = Instant::now();
                if now >= until {
                    break;
                }
                lanes.waiting = true;
                lanes = self.ready.wait_timeout(lanes, until - now).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
            lanes.waiting = false;
        }
        std::mem::swap(&mut lanes.urgent, &mut batch.urgent);
        std::mem::swap(&mut lanes.normal, &mut batch.normal);
        drop(lanes);
        self.settle(batch);
    }

    fn settle(&self, batch: &Batch) {
        let (mut clients, mut peers) = (0, 0);
        for item in batch.urgent.iter().chain(&batch.normal) {
            match item {
                ToCore::Ask { cost, .. } => clients += cost,
                ToCore::Frame { cost, .. } => peers += cost,
                _ => {}
            }
        }
        if clients > 0 {
            self.budgets.queue.give(clients);
            self.budgets.queue_drained();
        }
        if peers > 0 {
            self.budgets.peer_frames.give(peers);
        }
    }
}

fn request_cost(request: &Request) -> u64 {
    let body = match request {
        Request::Propose { body, .. } | Request::ReadTxn { body, .. } => body.len(),
        Request::Range { query, .. } => query.range.key.len() + query.range.end.as_ref().map_or(0, |end| end.len()),
        _ => 0,
    };
    body as u64 + OVERHEAD
}

enum Reserve {
    None,
    Half,
    All,
}

fn reserve(request: &Request) -> Reserve {
    match request {
        // Without an answer, and it gives room.
        Request::WalkEnd { .. } => Reserve::All,
        request if is_urgent(request) => Reserve::Half,
        Request::Compact { .. } => Reserve::Half,
        Request::Propose { body, .. } if store::command::is_reserved(body) => Reserve::Half,
        _ => Reserve::None,
    }
}

/// Keep-alives and health go ahead of everything that clients may pile up.
fn is_urgent(request: &Request) -> bool {
    matches!(request, Request::KeepAlive { .. } | Request::Status | Request::Barrier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn propose(len: usize) -> Request {
        // A put's body takes six bytes more than a key of one byte and its value.
        let mut put = vec![0x0a, 1, b'k'];
        if len > 64 {
            store::protobuf::write_message(&mut put, 2, &vec![0; len - 14]);
        }
        let body = store::command::encode_put(&put).expect("a put");
        Request::Propose { body, cost: 0 }
    }

    fn intake() -> Intake {
        Intake::new(Budgets::new(crate::budgets::Limits::default()))
    }

    #[test]
    fn a_full_budget_refuses_writes_and_lets_health_through() {
        let intake = intake();
        let full = (intake.budgets.queue.limit() - OVERHEAD) as usize;
        let ask = |request| intake.ask(1, 0, Who::Nobody, request, oneshot::channel().0);
        assert_eq!(ask(propose(full)), Ok(()));
        assert_eq!(ask(propose(1)), Err(NotTaken::Full));
        assert_eq!(ask(Request::Status), Ok(()));
        assert!(!intake.has_room(&Request::Leases));
        let revoke = store::command::encode_lease_revoke(7);
        assert_eq!(ask(Request::Propose { body: revoke, cost: 0 }), Ok(()), "revokes have a reserve");
        assert_eq!(ask(Request::WalkEnd { walk: 3 }), Ok(()));
        assert_eq!(intake.budgets.queue.times_full(), 1);
        let mut batch = Batch::default();
        intake.take(None, &mut batch);
        assert!(matches!(batch.urgent[..], [ToCore::Ask { request: Request::Status, .. }]));
        assert_eq!(batch.normal.len(), 3);
        assert_eq!(intake.budgets.queue.used(), 0);
        assert_eq!(ask(propose(1)), Ok(()));
    }

    #[test]
    fn a_sleeping_core_is_woken_and_a_closed_one_takes_nothing() {
        let intake = Arc::new(intake());
        let other = intake.clone();
        let pusher = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.lost(7);
        });
        let mut batch = Batch::default();
        let start = Instant::now();
        intake.take(Some(start + Duration::from_secs(120)), &mut batch);
        assert!(start.elapsed() < Duration::from_secs(60));
        assert!(matches!(batch.normal[..], [ToCore::Lost { peer: 7 }]));
        pusher.join().expect("the pusher ends");
        intake.close();
        assert_eq!(intake.ask(1, 0, Who::Nobody, Request::Status, oneshot::channel().0), Err(NotTaken::Closed));
        assert_eq!(intake.budgets.queue.used(), 0);
    }
}
