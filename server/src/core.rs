//! The handle that the edge holds on the core thread: ask, watch, read records.
//!
//! Nothing here decides anything. A question is queued ([`crate::intake`]), the core thread
//! (`driver`) answers in batches, and the batch is handed out on the runtime of the
//! connection that asked, so that a thousand answers cost one wake-up.

use crate::budgets::Budgets;
use crate::intake::{Batch, Depths, Intake, NotTaken};
use crate::posts::{self, Inbox, Post};
use crate::readers::Readers;
use crate::settings::Settings;
use crate::watchdog::Pulse;
use disk::fetch::{Fetched, Wanted};
use node::{Answer, Refusal, Request, StreamId, ToStream, Waiter, WatchOp, Who};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// An answer, with the revision and term of the member when it was given.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) revision: i64,
    pub(crate) term: u64,
    pub(crate) answer: Answer,
}

/// After a timeout the core is still asked for the text; it answers within a turn. If it
/// does not, it hangs, and the asker is told the general text.
const LAST_WORD: Duration = Duration::from_secs(1);

/// See [`hand_out`].
const TIMER_HORIZON: Duration = Duration::from_secs(1);

/// What every handle shares: the queue and the small numbers anyone may look at.
pub(crate) struct Shared {
    pub(crate) cluster: u64,
    pub(crate) member: u64,
    pub(crate) intake: Intake,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) settings: Settings,
    pub(crate) registry: prometheus::Registry,
    pub(crate) revision: AtomicI64,
    pub(crate) term: AtomicU64,
    pub(crate) leader: AtomicU64,
    /// This member is a learner, as far as it has applied.
    pub(crate) learner: AtomicBool,
    /// Revision of users and roles, and whether users are asked for.
    pub(crate) auth_revision: AtomicU64,
    pub(crate) asks_users: AtomicBool,
    /// Which founding the state is of; 0: none is known yet.
    pub(crate) founding: AtomicU64,
    /// Counts the turns of the core thread.
    pub(crate) turns: Pulse,
    waiters: AtomicU64,
    streams: AtomicU64,
    readers: Option<Readers>,
    stopping: watch::Sender<bool>,
}

/// A cheap handle; one per connection.
#[derive(Clone)]
pub(crate) struct Core {
    shared: Arc<Shared>,
    runtime: usize,
}

/// What the core thread hands out to the runtime of a connection.
pub(crate) enum Delivery {
    Answer(oneshot::Sender<Answered>, Answered),
    Stream(Post, ToStream),
}

pub(crate) type Deliveries = mpsc::UnboundedSender<Vec<Delivery>>;

/// The other end of the queue: what the core thread owns (and what a test may play).
pub(crate) struct CoreEnd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runtimes: Vec<Deliveries>,
}

/// Hands a runtime's share of the answers out; runs on that runtime until the core ends.
pub(crate) async fn hand_out(mut from_core: mpsc::UnboundedReceiver<Vec<Delivery>>) {
    // A timer that falls due before all others makes its runtime wake itself up. The time limits
    // of calls are longer than this one, so on a quiet runtime they cost no such wake-up each.
    let mut soon = tokio::time::interval(TIMER_HORIZON);
    loop {
        let batch = tokio::select! {
            biased;
            batch = from_core.recv() => batch,
            _ = soon.tick() => continue,
        };
        let Some(batch) = batch else { return };
        for delivery in batch {
            // Askers that went away want nothing any more.
            match delivery {
                Delivery::Answer(to, asked) => drop(to.send(asked)),
                Delivery::Stream(to, message) => to.send(message),
            }
        }
    }
}

impl Core {
    /// A handle and its other end for `runtimes` connection runtimes, each of which must run
    /// [`hand_out`] on its receiver. `readers` None: records must be in memory (tests).
    pub(crate) fn new(
        cluster: u64,
        member: u64,
        settings: Settings,
        registry: prometheus::Registry,
        readers: Option<Readers>,
        runtimes: usize,
    ) -> (Core, CoreEnd, Vec<mpsc::UnboundedReceiver<Vec<Delivery>>>) {
        let budgets = Budgets::new(settings.budgets.clone());
        let shared = Arc::new(Shared {
            cluster,
            member,
            intake: Intake::new(budgets.clone()),
            budgets,
            settings,
            registry,
            revision: AtomicI64::new(1),
            term: AtomicU64::new(0),
            leader: AtomicU64::new(0),
            learner: AtomicBool::new(false),
            auth_revision: AtomicU64::new(1),
            asks_users: AtomicBool::new(false),
            founding: AtomicU64::new(0),
            turns: Pulse::default(),
            waiters: AtomicU64::new(1),
            streams: AtomicU64::new(1),
            readers,
            stopping: watch::Sender::new(false),
        });
        let (senders, receivers) = (0..runtimes).map(|_| mpsc::unbounded_channel()).unzip();
        let core = Core { shared: shared.clone(), runtime: 0 };
        (core, CoreEnd { shared, runtimes: senders }, receivers)
    }

    /// The same core, answering on another runtime.
    pub(crate) fn on_runtime(&self, runtime: usize) -> Core {
        Core { shared: self.shared.clone(), runtime }
    }

    pub(crate) fn cluster(&self) -> u64 {
        self.shared.cluster
    }

    /// Which founding the state is of; 0: none is known yet.
    pub(crate) fn founding(&self) -> u64 {
        self.shared.founding.load(Ordering::Acquire)
    }

    /// Counts the turns of the core thread, which has some each second at least.
    pub(crate) fn turns(&self) -> Pulse {
        self.shared.turns.clone()
    }

    pub(crate) fn member(&self) -> u64 {
        self.shared.member
    }

    /// The newest revision seen in an answer; never ahead of the store.
    pub(crate) fn revision(&self) -> i64 {
        self.shared.revision.load(Ordering::Acquire)
    }

    pub(crate) fn term(&self) -> u64 {
        self.shared.term.load(Ordering::Acquire)
    }

    /// 0 = none known.
    pub(crate) fn leader(&self) -> u64 {
        self.shared.leader.load(Ordering::Acquire)
    }

    /// This member is a learner, as far as it has applied.
    pub(crate) fn is_learner(&self) -> bool {
        self.shared.learner.load(Ordering::Acquire)
    }

    /// Users are asked for, as far as this member has applied.
    pub(crate) fn asks_users(&self) -> bool {
        self.shared.asks_users.load(Ordering::Acquire)
    }

    /// Of users and roles.
    pub(crate) fn auth_revision(&self) -> u64 {
        self.shared.auth_revision.load(Ordering::Acquire)
    }

    pub(crate) fn metrics(&self) -> &prometheus::Registry {
        &self.shared.registry
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub(crate) fn budgets(&self) -> &Arc<Budgets> {
        &self.shared.budgets
    }

    /// Turns true once when the member begins to stop.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.shared.stopping.subscribe()
    }

    /// Begins the clean stop: the edge drains, the core hands leadership over.
    pub(crate) fn stop(&self) {
        self.shared.stopping.send_replace(true);
        self.shared.intake.stop();
    }

    pub(crate) fn intake(&self) -> &Intake {
        &self.shared.intake
    }

    fn refused(&self, refusal: Refusal) -> Answered {
        Answered { revision: self.revision(), term: self.term(), answer: Answer::Refused(refusal) }
    }

    /// Asks the core. After `timeout` the core is told, and its text for the timeout is the
    /// answer. Dropping the future cancels the question.
    pub(crate) async fn ask(&self, who: Who, request: Request, timeout: Duration) -> Answered {
        let waiter = self.shared.waiters.fetch_add(1, Ordering::Relaxed);
        let (sender, mut receiver) = oneshot::channel();
        match self.shared.intake.ask(waiter, self.runtime, who, request, sender) {
            Ok(()) => {}
            Err(NotTaken::Full) => return self.refused(Refusal::TooManyRequests),
            Err(NotTaken::Closed) => return self.refused(Refusal::Stopped),
        }
        let mut pending = Pending { core: self, waiter: Some(waiter) };
        let answer = match tokio::time::timeout(timeout, &mut receiver).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                pending.waiter = None;
                self.shared.intake.cancel(waiter, true);
                match tokio::time::timeout(LAST_WORD, receiver).await {
                    Ok(answer) => answer.ok(),
                    Err(_) => return self.refused(Refusal::Timeout),
                }
            }
        };
        pending.waiter = None;
        answer.unwrap_or_else(|| self.refused(Refusal::Stopped))
    }

    /// As [`Core::ask`] for a read: where a write would be refused for want of room in the
    /// queue, it waits, `timeout` at most.
    pub(crate) async fn ask_read(&self, who: Who, request: Request, timeout: Duration) -> Answered {
        if !self.shared.intake.has_room(&request) {
            let room = self.shared.budgets.queue_room(|| self.shared.intake.has_room(&request));
            if tokio::time::timeout(timeout, room).await.is_err() {
                return self.refused(Refusal::TooManyRequests);
            }
        }
        self.ask(who, request, timeout).await
    }

    /// Sends a request that has no answer (`WalkEnd`).
    pub(crate) fn tell(&self, request: Request) {
        let waiter = self.shared.waiters.fetch_add(1, Ordering::Relaxed);
        let _ = self.shared.intake.ask(waiter, self.runtime, Who::Member, request, oneshot::channel().0);
    }

    /// Reads of records that failed because of the disk.
    pub(crate) fn failed_reads(&self) -> u64 {
        self.shared.readers.as_ref().map_or(0, Readers::failed)
    }

    /// Every queue by name, with what stands in it.
    pub(crate) fn depths(&self) -> Vec<(&'static str, u64)> {
        let Depths { urgent, normal } = self.shared.intake.depths();
        let reads = self.shared.readers.as_ref().map_or(0, Readers::depth);
        let mut depths = vec![("core_urgent", urgent), ("core_normal", normal), ("record_reads", reads)];
        depths.extend(self.shared.budgets.depths());
        depths
    }

    /// A new watch stream; dropping it closes it in the core.
    pub(crate) fn open_stream(&self) -> Stream {
        let id = self.shared.streams.fetch_add(1, Ordering::Relaxed);
        let (post, inbox) = posts::queue(&self.shared.budgets);
        self.shared.intake.open(id, self.runtime, post);
        Stream { id, core: self.clone(), inbox }
    }

    /// The whole records of `located`, numbered in its order, checksums verified; those in memory
    /// at once, those in the page cache without a thread hop, the rest by the reader threads.
    /// The error names file, offset and reason.
    pub(crate) async fn records(&self, located: &[store::Located], found: &mut Fetched) -> Result<(), Unread> {
        self.fetch(located.iter().map(|at| (at, None)), found).await
    }

    /// As [`Core::records`], of versions that others took the place of at the revisions beside
    /// them: what compaction has removed since is gone ([`Fetched::find`]), and that is no error.
    pub(crate) async fn superseded(
        &self,
        located: &[(store::Located, i64)],
        found: &mut Fetched,
    ) -> Result<(), Unread> {
        self.fetch(located.iter().map(|(at, by)| (at, Some(*by))), found).await
    }

    async fn fetch(
        &self,
        located: impl ExactSizeIterator<Item = (&store::Located, Option<i64>)>,
        found: &mut Fetched,
    ) -> Result<(), Unread> {
        found.begin(located.len());
        let mut wanted = Vec::new();
        for (place, (at, superseded)) in located.enumerate() {
            match &at.bytes {
                Some(bytes) => found.keep(place, bytes.clone()),
                None => wanted.push(Wanted { place, handle: at.handle, rev: at.rev, superseded }),
            }
        }
        match &self.shared.readers {
            _ if wanted.is_empty() => Ok(()),
            Some(readers) => readers.records(wanted, found).await.map_err(|fault| {
                let text = readers.tell(&fault);
                if let disk::Fault::Refused { .. } = fault {
                    return Unread::Later(text);
                }
                self.shared.intake.unreadable(fault);
                Unread::Here(text)
            }),
            None => Err(Unread::Here("no reader for records on disk".into())),
        }
    }
}

/// Why records could not be read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// What lies on this member's disk, or the disk itself, is the reason: file, offset and error.
    Here(String),
    /// A snapshot takes the place of the files just now.
    Later(String),
}

impl Unread {
    /// File, offset and error.
    pub(crate) fn text(self) -> String {
        match self {
            Unread::Here(text) | Unread::Later(text) => text,
        }
    }
}

struct Pending<'a> {
    core: &'a Core,
    waiter: Option<Waiter>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.core.shared.intake.cancel(waiter, false);
        }
    }
}

/// One watch stream of one connection.
pub(crate) struct Stream {
    id: StreamId,
    core: Core,
    inbox: Inbox,
}

impl Stream {
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// The next message of the core; None: the core dropped the stream (it stopped, or the
    /// stream was too slow to take its messages).
    pub(crate) async fn recv(&mut self) -> Option<ToStream> {
        self.inbox.recv().await
    }

    /// As [`Stream::recv`], if there is a message already.
    pub(crate) fn try_recv(&mut self) -> Option<ToStream> {
        self.inbox.try_recv()
    }

    pub(crate) fn ask(&self, op: WatchOp) {
        self.core.shared.intake.watch(self.id, op);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.core.shared.intake.watch(self.id, WatchOp::Close);
    }
}

impl CoreEnd {
    /// Waits for what was queued; see [`Intake::take`].
    pub(crate) fn take(&self, until: Option<Instant>, batch: &mut Batch) {
        self.shared.intake.take(until, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::ToCore;

    fn pair() -> (Core, CoreEnd, tokio::task::JoinHandle<()>) {
        let (core, end, mut receivers) = Core::new(1, 2, Settings::default(), prometheus::Registry::new(), None, 1);
        let task = tokio::spawn(hand_out(receivers.remove(0)));
        (core, end, task)
    }

    #[tokio::test]
    async fn an_answer_comes_back_on_the_asking_runtime() {
        let (core, end, _task) = pair();
        let thread = std::thread::spawn(move || {
            let mut batch = Batch::default();
            end.take(Some(Instant::now() + Duration::from_secs(60)), &mut batch);
            let Some(ToCore::Ask { answer, runtime, .. }) = batch.urgent.pop() else {
                panic!("one urgent question was asked")
            };
            let asked = Answered { revision: 9, term: 3, answer: Answer::Barrier };
            assert!(end.runtimes[runtime].send(vec![Delivery::Answer(answer, asked)]).is_ok());
            end
        });
        let asked = core.ask(Who::Nobody, Request::Barrier, Duration::from_secs(60)).await;
        assert!(matches!(asked, Answered { revision: 9, term: 3, answer: Answer::Barrier }));
        thread.join().expect("the core's part ends");
    }

    #[tokio::test]
    async fn a_dropped_question_is_cancelled() {
        let (core, end, _task) = pair();
        let asking = core.ask(Who::Nobody, Request::Leases, Duration::from_secs(60));
        // Once it has been asked, in this order.
        tokio::select! { biased; _ = asking => panic!("nobody answers"), () = std::future::ready(()) => {} }
        let mut batch = Batch::default();
        end.take(None, &mut batch);
        assert!(matches!(
            batch.normal[..],
            [ToCore::Ask { waiter: a, .. }, ToCore::Cancel { waiter: b, timed_out: false }] if a == b
        ));
    }

    #[tokio::test]
    async fn a_closed_core_answers_stopped() {
        let (core, end, _task) = pair();
        end.shared.intake.close();
        let asked = core.ask(Who::Nobody, Request::Leases, Duration::from_secs(5)).await;
        assert!(matches!(asked.answer, Answer::Refused(Refusal::Stopped)));
    }
}
