//! The threads that carry out disk jobs: the log's, the background's, and the reader of
//! values that apply waits for. Each does its jobs in the order of `node::queue` and reports to
//! the core.

use crate::budgets::{Budgets, Depth};
use crate::core::CoreEnd;
use crate::intake::Intake;
use crate::log;
use crate::transport::Edge;
use disk::{Files, Log};
use node::queue::{JobQueue, Queued};
use node::work::{self, Ran, Whose};
use node::{BackgroundJob, Job, JobId, JobResult, LogJob, ReadJob};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// Priority of the background thread, of 99 with 50 in the middle: niceness 10.
const PRIORITY: u8 = 22;

/// One thread and its queue.
struct Worker<J> {
    queue: Sender<(JobId, J)>,
    thread: JoinHandle<()>,
}

impl<J: Send + 'static> Worker<J> {
    fn start(name: &str, body: impl FnOnce(Receiver<(JobId, J)>) + Send + 'static) -> io::Result<Worker<J>> {
        let (queue, jobs) = channel();
        let thread = Builder::new().name(name.into()).spawn(move || body(jobs))?;
        Ok(Worker { queue, thread })
    }

    fn submit(&self, depth: &Depth, job: JobId, work: J) {
        depth.enter();
        // The thread ends only after this sender is dropped, or by a panic that ends the process.
        let _ = self.queue.send((job, work));
    }

    /// No more jobs come: the thread finishes what was submitted.
    fn close(self) -> JoinHandle<()> {
        self.thread
    }
}

/// The three threads. Their queues need no bound of their own: the node has a bounded
/// number of jobs in flight and waits for their reports.
pub(crate) struct Workers {
    log: Worker<LogJob>,
    reader: Worker<ReadJob>,
    background: Worker<BackgroundJob>,
    budgets: Arc<Budgets>,
}

impl Workers {
    pub(crate) fn start(
        edge: &Edge,
        end: &CoreEnd,
        files: Arc<dyn Files>,
        whose: Whose,
        mut log: Log,
    ) -> io::Result<Workers> {
        let shared = end.shared.clone();
        let wal = Worker::start("log", move |jobs| {
            carry_out(&shared.intake, &shared.budgets.jobs_log, jobs, |job| work::run_log(&mut log, job));
            prove_end(&mut log);
        })?;
        let (shared, reading) = (end.shared.clone(), files.clone());
        let reader = Worker::start("reader-apply", move |jobs| {
            carry_out(&shared.intake, &shared.budgets.jobs_reader, jobs, |job| work::run_read(&*reading, job));
        })?;
        let (shared, mut times) = (end.shared.clone(), edge.metrics().background.clone());
        let background = Worker::start("background", move |jobs| {
            stand_back();
            let run = |job| times.timed(job, |job| work::run_background(&*files, whose, job));
            carry_out(&shared.intake, &shared.budgets.jobs_background, jobs, run);
        })?;
        Ok(Workers { log: wal, reader, background, budgets: end.shared.budgets.clone() })
    }

    pub(crate) fn submit(&self, job: JobId, work: Job) {
        match work {
            Job::Log(work) => self.log.submit(&self.budgets.jobs_log, job, work),
            Job::Read(work) => self.reader.submit(&self.budgets.jobs_reader, job, work),
            Job::Background(work) => self.background.submit(&self.budgets.jobs_background, job, work),
        }
    }

    /// Lets the threads finish what was submitted and waits for them.
    pub(crate) fn finish(self) {
        for thread in [self.log.close(), self.reader.close(), self.background.close()] {
            let _ = thread.join();
        }
    }
}

/// A clean stop: the end of the log is proven, and said to be.
fn prove_end(log: &mut Log) {
    if log.usable()
        && let Err(fault) = log.close(log.hard().commit)
    {
        log::warn("the end of the log is not proven", &[("error", log::json!(fault.to_string()))]);
    }
}

/// The kernel prefers every other thread to this one, which does not preempt when it wakes.
fn stand_back() {
    let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    let nice = ThreadPriorityValue::try_from(PRIORITY).map(ThreadPriority::Crossplatform);
    let set = nice.map_err(|error| error.to_string()).and_then(|nice| {
        set_thread_priority_and_policy(thread_native_id(), nice, batch).map_err(|error| format!("{error:?}"))
    });
    if let Err(error) = set {
        log::warn("the background thread does not stand back", &[("error", log::json!(error))]);
    }
}

/// On a full disk the lane waits with its job until there is room.
fn until_done<J>(intake: &Intake, id: JobId, mut job: J, run: &mut impl FnMut(J) -> Ran<J>) -> JobResult {
    let mut told = false;
    loop {
        match run(job) {
            Ran::Done(result) => return result,
            Ran::Full { job: again, fault } => {
                job = again;
                if !told {
                    told = true;
                    intake.stalled(id, fault);
                }
                std::thread::sleep(Duration::from_millis(work::FULL_AGAIN_MS));
            }
        }
    }
}

/// Does the jobs in the order of [`JobQueue`], until there are none and none can come.
fn carry_out<J: Queued>(intake: &Intake, depth: &Depth, jobs: Receiver<(JobId, J)>, mut run: impl FnMut(J) -> Ran<J>) {
    let mut queue = JobQueue::default();
    loop {
        if queue.is_empty() {
            let Ok((id, job)) = jobs.recv() else { return };
            queue.push(id, job);
        }
        jobs.try_iter().for_each(|(id, job)| queue.push(id, job));
        let (id, job) = queue.pop().expect("there is one");
        let result = until_done(intake, id, job, &mut run);
        depth.leave();
        intake.done(id, result);
    }
}
