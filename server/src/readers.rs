//! Threads that read records which are not in memory, so that no connection waits for a disk.

use crate::log::{self, json};
use disk::fetch::{Fetched, Wanted, fetch};
use disk::{Fault, Files};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Reading threads; two keep one slow read from holding all others.
const THREADS: usize = 2;
/// Batches that may wait for the reading threads; beyond it their askers wait for room.
const WAITING: usize = 1024;
/// A read that the disk refuses is tried so often, so far apart.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(1);

struct Batch {
    wanted: Vec<Wanted>,
    answer: oneshot::Sender<Result<Fetched, Fault>>,
}

/// Handle on the reader threads.
#[derive(Clone)]
pub(crate) struct Readers {
    cached: Arc<dyn Files>,
    queue: Sender<Batch>,
    room: Arc<Semaphore>,
    unreadable: Arc<Unreadable>,
}

impl Readers {
    /// Starts the threads. `cached` fails with `WouldBlock` where `files` would wait.
    pub(crate) fn start(files: Arc<dyn Files>, cached: Arc<dyn Files>) -> io::Result<Readers> {
        let (queue, batches) = channel();
        let batches = Arc::new(Mutex::new(batches));
        for n in 0..THREADS {
            let (files, batches) = (files.clone(), batches.clone());
            std::thread::Builder::new().name(format!("reader-{n}")).spawn(move || read_batches(&files, &batches))?;
        }
        Ok(Readers { cached, queue, room: Arc::new(Semaphore::new(WAITING)), unreadable: Arc::default() })
    }

    /// See [`crate::core::Core::records`]. What is at hand is in `found` already. A read that the
    /// disk refuses says nothing about what it holds: it is tried again a moment later.
    pub(crate) async fn records(&self, wanted: Vec<Wanted>, found: &mut Fetched) -> Result<(), Fault> {
        for _ in 1..TRIES {
            match self.read(wanted.clone(), found).await {
                Err(Fault::Io { error, .. }) if error.kind() != ErrorKind::NotFound => tokio::time::sleep(AGAIN).await,
                other => return other,
            }
        }
        self.read(wanted, found).await
    }

    async fn read(&self, wanted: Vec<Wanted>, found: &mut Fetched) -> Result<(), Fault> {
        let missing = fetch(&*self.cached, wanted, found)?;
        if !missing.is_empty() {
            let places: Vec<usize> = missing.iter().map(|wanted| wanted.place).collect();
            found.absorb(self.wait(missing).await?, places.into_iter());
        }
        Ok(())
    }

    /// Counts and tells a read that failed. The text is for the asker.
    pub(crate) fn tell(&self, fault: &Fault) -> String {
        self.unreadable.tell(fault)
    }

    /// Batches that the reading threads have not finished.
    pub(crate) fn depth(&self) -> u64 {
        (WAITING - self.room.available_permits()) as u64
    }

    /// Reads that failed, because of what the disk holds or does.
    pub(crate) fn failed(&self) -> u64 {
        self.unreadable.times.load(Ordering::Relaxed)
    }

    /// Numbers them anew, from 0 in the order of `wanted`.
    async fn wait(&self, mut wanted: Vec<Wanted>) -> Result<Fetched, Fault> {
        wanted.iter_mut().enumerate().for_each(|(n, wanted)| wanted.place = n);
        let (answer, answered) = oneshot::channel();
        let stopped = || Fault::Stopped { file: "state".to_string(), reason: "the reader stopped".to_string() };
        let _room = self.room.acquire().await.map_err(|_| stopped())?;
        self.queue.send(Batch { wanted, answer }).map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

/// Reads that failed: each is counted, and each place told once a minute. The client that asked
/// sees the same text, but whoever runs the member does not see the client.
#[derive(Default)]
struct Unreadable {
    times: AtomicU64,
    said: log::Seldom,
}

impl Unreadable {
    /// The text for the asker.
    fn tell(&self, fault: &Fault) -> String {
        let text = fault.to_string();
        let (file, offset) = match fault {
            Fault::Damaged { file, offset, .. } => (file, *offset),
            // An installed snapshot takes files away from under those who read.
            Fault::Io { file, offset, error } if error.kind() != ErrorKind::NotFound => (file, *offset),
            _ => return text,
        };
        self.times.fetch_add(1, Ordering::Relaxed);
        if self.said.due(format!("{file} {offset}")) {
            let advice = "what is damaged comes again from another member if there is one; look at this \
                          member's disk, and once it is stopped let `kvorum utl verify` list what else is damaged";
            let fields = [
                ("file", json!(file)),
                ("offset", json!(offset)),
                ("error", json!(text)),
                ("what-to-do", json!(advice)),
            ];
            log::error("a record cannot be read from the disk", &fields);
        }
        text
    }
}

fn read_batches(files: &Arc<dyn Files>, batches: &Mutex<Receiver<Batch>>) {
    loop {
        let next = batches.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok(Batch { wanted, answer }) = next else { return };
        let mut found = Fetched::default();
        found.begin(wanted.len());
        let result = fetch(&**files, wanted, &mut found).map(|left_out| {
            assert!(left_out.is_empty(), "these files wait for the disk");
            found
        });
        // The asker may have gone away.
        drop(answer.send(result));
    }
}
