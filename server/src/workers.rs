//! The threads that carry out disk jobs: the log's, the background's, and the reader of
//! values that apply waits for. Each does its jobs in the order of `node::queue` and reports to
//! the core.

use crate::core::CoreEnd;
use crate::edge::Edge;
use crate::intake::Intake;
use crate::ledger::{Depth, Ledger};
use crate::log;
use disk::{Files, Identity, Log};
use node::queue::JobQueue;
use node::work::{self, Lane, Ran};
use node::{Job, JobId, JobResult};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

/// Priority of the background thread, of 99 with 50 in the middle: niceness 10.
const PRIORITY: u8 = 22;

/// Queues of the three threads. They need no bound of their own: the node has a bounded
/// number of jobs in flight and waits for their reports.
pub struct Workers {
    log: Sender<(JobId, Job)>,
    reader: Sender<(JobId, Job)>,
    background: Sender<(JobId, Job)>,
    threads: Vec<JoinHandle<()>>,
    ledger: Arc<Ledger>,
}

impl Workers {
    pub fn start(
        edge: &Edge,
        end: &CoreEnd,
        files: Arc<dyn Files>,
        whose: (Identity, store::Config),
        log: Log,
    ) -> io::Result<Workers> {
        let mut threads = Vec::new();
        let mut thread = |name: &str, body: Box<dyn FnOnce(Receiver<(JobId, Job)>) + Send>| {
            let (sender, jobs) = channel();
            threads.push(Builder::new().name(name.into()).spawn(move || body(jobs))?);
            io::Result::Ok(sender)
        };
        let shared = end.shared.clone();
        let mut wal = log;
        let flushes = edge.metrics().wal_fsync.clone();
        let log = thread(
            "log",
            Box::new(move |jobs| {
                carry_out(&shared.intake, &shared.ledger.jobs_log, jobs, |job| {
                    let saved = matches!(job, Job::Save { .. }).then(Instant::now);
                    let result = work::run_log(&mut wal, job);
                    if let Some(since) = saved {
                        flushes.observe(since.elapsed().as_secs_f64());
                    }
                    result
                });
                // A clean stop: the end of the log is proven, and said to be.
                if wal.usable()
                    && let Err(fault) = wal.close(wal.hard().commit)
                {
                    log::warn("the end of the log is not proven", &[("error", log::json!(fault.to_string()))]);
                }
            }),
        )?;
        let (shared, reading) = (end.shared.clone(), files.clone());
        let reader = thread(
            "reader-apply",
            Box::new(move |jobs| {
                carry_out(&shared.intake, &shared.ledger.jobs_reader, jobs, |job| {
                    work::run(&reading, whose.0, whose.1, job)
                })
            }),
        )?;
        let shared = end.shared.clone();
        let background = thread(
            "background",
            Box::new(move |jobs| {
                stand_back();
                carry_out(&shared.intake, &shared.ledger.jobs_background, jobs, |job| {
                    work::run(&files, whose.0, whose.1, job)
                });
            }),
        )?;
        Ok(Workers { log, reader, background, threads, ledger: end.shared.ledger.clone() })
    }

    pub fn submit(&self, job: JobId, work: Job) {
        let (queue, depth) = match work::lane(&work) {
            Lane::Log => (&self.log, &self.ledger.jobs_log),
            Lane::Reader => (&self.reader, &self.ledger.jobs_reader),
            Lane::Background => (&self.background, &self.ledger.jobs_background),
        };
        depth.enter();
        // The thread ends only after this sender is dropped, or by a panic that ends the process.
        let _ = queue.send((job, work));
    }

    /// Lets the threads finish what was submitted and waits for them.
    pub fn finish(self) {
        drop((self.log, self.reader, self.background));
        for thread in self.threads {
            let _ = thread.join();
        }
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
fn until_done(intake: &Intake, id: JobId, mut job: Job, run: &mut impl FnMut(Job) -> Ran) -> JobResult {
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
fn carry_out(intake: &Intake, depth: &Depth, jobs: Receiver<(JobId, Job)>, mut run: impl FnMut(Job) -> Ran) {
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
