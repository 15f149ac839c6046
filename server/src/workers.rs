//! The threads that carry out disk jobs: the log's, the background's, and the reader of
//! values that apply waits for. Each does its jobs in order and reports to the core.

use crate::core::CoreEnd;
use crate::edge::Edge;
use crate::intake::Intake;
use crate::log;
use disk::{Files, Identity, Log};
use node::work::{self, Lane};
use node::{Job, JobId, JobResult};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// How far below everything else the background thread stands (of 19).
const NICE: i32 = 10;

/// Queues of the three threads. They need no bound of their own: the node has a bounded
/// number of jobs in flight and waits for their reports.
pub struct Workers {
    log: Sender<(JobId, Job)>,
    reader: Sender<(JobId, Job)>,
    background: Sender<(JobId, Job)>,
    threads: Vec<JoinHandle<()>>,
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
        let mut log = log;
        let flushes = edge.metrics().wal_fsync.clone();
        let log = thread(
            "log",
            Box::new(move |jobs| {
                carry_out(&shared.intake, jobs, |job| {
                    let saved = matches!(job, Job::Save { .. }).then(Instant::now);
                    let result = work::run_log(&mut log, job);
                    if let Some(since) = saved {
                        flushes.observe(since.elapsed().as_secs_f64());
                    }
                    result
                });
            }),
        )?;
        let (shared, reading) = (end.shared.clone(), files.clone());
        let reader = thread(
            "reader-apply",
            Box::new(move |jobs| carry_out(&shared.intake, jobs, |job| work::run(&reading, whose.0, whose.1, job))),
        )?;
        let shared = end.shared.clone();
        let background = thread(
            "background",
            Box::new(move |jobs| {
                if let Err(error) = rustix::process::nice(NICE) {
                    log::warn("the background thread could not be niced", &[("error", log::json!(error.to_string()))]);
                }
                carry_out(&shared.intake, jobs, |job| work::run(&files, whose.0, whose.1, job));
            }),
        )?;
        Ok(Workers { log, reader, background, threads })
    }

    pub fn submit(&self, job: JobId, work: Job) {
        let queue = match work::lane(&work) {
            Lane::Log => &self.log,
            Lane::Reader => &self.reader,
            Lane::Background => &self.background,
        };
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

fn carry_out(intake: &Intake, jobs: Receiver<(JobId, Job)>, mut run: impl FnMut(Job) -> JobResult) {
    while let Ok((id, job)) = jobs.recv() {
        intake.done(id, run(job));
    }
}
