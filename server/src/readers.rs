//! Threads that read records which are not in memory, so that no connection waits for a disk.

use bytes::Bytes;
use disk::{Fault, Files};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use store::{Handle, Located, Rev};
use tokio::sync::{Semaphore, oneshot};

/// Reading threads; two keep one slow read from holding all others.
const THREADS: usize = 2;
/// Batches that may wait for the reading threads; beyond it their askers wait for room.
const WAITING: usize = 1024;

struct Batch {
    handles: Vec<(Handle, Rev)>,
    answer: oneshot::Sender<Result<Vec<Bytes>, Fault>>,
}

/// Handle on the reader threads.
#[derive(Clone)]
pub struct Readers {
    cached: Arc<dyn Files>,
    queue: Sender<Batch>,
    room: Arc<Semaphore>,
}

impl Readers {
    /// Starts the threads. `cached` fails with `WouldBlock` where `files` would wait.
    pub fn start(files: Arc<dyn Files>, cached: Arc<dyn Files>) -> io::Result<Readers> {
        let (queue, batches) = channel();
        let batches = Arc::new(Mutex::new(batches));
        for n in 0..THREADS {
            let (files, batches) = (files.clone(), batches.clone());
            std::thread::Builder::new().name(format!("reader-{n}")).spawn(move || read_batches(&files, &batches))?;
        }
        Ok(Readers { cached, queue, room: Arc::new(Semaphore::new(WAITING)) })
    }

    /// See [`crate::core::Core::records`].
    pub(crate) async fn records(&self, located: &[Located]) -> Result<Vec<Bytes>, String> {
        let mut found: Vec<Bytes> = located.iter().map(|at| at.bytes.clone().unwrap_or_default()).collect();
        let wanted = |place: usize| (located[place].handle, located[place].rev);
        let mut places: Vec<usize> = (0..located.len()).filter(|&place| located[place].bytes.is_none()).collect();
        let handles: Vec<(Handle, Rev)> = places.iter().map(|&place| wanted(place)).collect();
        let missing = disk::records::fetch(&*self.cached, &handles, |n, bytes| found[places[n]] = bytes)
            .map_err(|fault| fault.to_string())?;
        if !missing.is_empty() {
            places = missing.into_iter().map(|n| places[n]).collect();
            let handles = places.iter().map(|&place| wanted(place)).collect();
            for (bytes, place) in self.wait(handles).await?.into_iter().zip(&places) {
                found[*place] = bytes;
            }
        }
        Ok(found)
    }

    /// Batches that the reading threads have not finished.
    pub(crate) fn depth(&self) -> u64 {
        (WAITING - self.room.available_permits()) as u64
    }

    async fn wait(&self, handles: Vec<(Handle, Rev)>) -> Result<Vec<Bytes>, String> {
        let (answer, answered) = oneshot::channel();
        let stopped = "the reader stopped";
        let _room = self.room.acquire().await.map_err(|_| stopped)?;
        self.queue.send(Batch { handles, answer }).map_err(|_| stopped)?;
        match answered.await {
            Ok(result) => result.map_err(|fault| fault.to_string()),
            Err(_) => Err(stopped.into()),
        }
    }
}

fn read_batches(files: &Arc<dyn Files>, batches: &Mutex<Receiver<Batch>>) {
    loop {
        let next = batches.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok(Batch { handles, answer }) = next else { return };
        let mut found = vec![Bytes::new(); handles.len()];
        let result = disk::records::fetch(&**files, &handles, |n, bytes| found[n] = bytes).map(|left_out| {
            assert!(left_out.is_empty(), "these files wait for the disk");
            found
        });
        // The asker may have gone away.
        drop(answer.send(result));
    }
}
