//! What is made of files, and made anew when they change.

use super::unfit::Unfit;
use crate::log::{self, json};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// File systems stamp coarsely: a file may change twice under one stamp. One that is younger than
/// this is read again.
const SETTLED: Duration = Duration::from_secs(2);

/// What tells two states of a file apart; None: it cannot be looked at.
type Stamp = Option<[i128; 6]>;

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).ok()?;
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Some([
        i128::from(meta.dev()),
        i128::from(meta.ino()),
        i128::from(meta.size()),
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec()),
        i128::from(meta.mode()),
    ])
}

struct State<T> {
    now: Arc<T>,
    /// Of the last time that the files were read, with success or without.
    stamps: Vec<Stamp>,
    settled: bool,
}

/// Something made of files.
pub(crate) struct Reloading<T> {
    /// For the log: whose files these are.
    what: &'static str,
    files: Vec<PathBuf>,
    build: Box<dyn Fn() -> Result<T, Unfit> + Send + Sync>,
    state: Mutex<State<T>>,
}

impl<T> Reloading<T> {
    /// # Errors
    /// What `build` says of the files as they are.
    pub(crate) fn new(
        what: &'static str,
        files: Vec<PathBuf>,
        build: impl Fn() -> Result<T, Unfit> + Send + Sync + 'static,
    ) -> Result<Reloading<T>, Unfit> {
        // Looked at before they are read: what changes meanwhile is read again.
        let stamps = stamps(&files);
        let now = Arc::new(build()?);
        let state = State { now, settled: settled(&stamps), stamps };
        Ok(Reloading { what, files, build: Box::new(build), state: Mutex::new(state) })
    }

    /// As the files are now. If they are of no use, as they were the last time they were, and the
    /// log says so once. Looks at the files, and may read them: not for a thread that must not
    /// wait.
    pub(crate) fn now(&self) -> Arc<T> {
        let stamps = stamps(&self.files);
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let changed = stamps != state.stamps;
        if !changed && state.settled {
            return state.now.clone();
        }
        state.settled = settled(&stamps);
        state.stamps = stamps;
        let files = || json!(self.files);
        match (self.build)() {
            Ok(new) => {
                state.now = Arc::new(new);
                if changed {
                    log::info("read the changed TLS files", &[("of", json!(self.what)), ("files", files())]);
                }
            }
            Err(error) if changed => {
                log::warn(
                    "the changed TLS files are of no use; those from before stay in force",
                    &[("of", json!(self.what)), ("files", files()), ("error", json!(error.to_string()))],
                );
            }
            Err(_) => {}
        }
        state.now.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    files.iter().map(|file| stamp(file)).collect()
}

/// Whether no file can have changed again under the same stamp.
fn settled(stamps: &[Stamp]) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as i128;
    stamps.iter().flatten().all(|stamp| stamp[3].max(stamp[4]) + (SETTLED.as_nanos() as i128) < now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn text(file: &Path) -> impl Fn() -> Result<String, Unfit> + Send + Sync + use<> {
        let file = file.to_path_buf();
        move || match std::fs::read_to_string(&file) {
            Ok(text) if text == "bad" => Err(Unfit::Refused("bad".into())),
            Ok(text) => Ok(text),
            Err(error) => Err(Unfit::Unread { file: file.clone(), error }),
        }
    }

    #[test]
    fn each_change_is_seen_at_once_and_a_bad_one_changes_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("f");
        assert!(Reloading::new("test", vec![file.clone()], text(&file)).is_err());
        std::fs::write(&file, "one").expect("writes");
        let reloading = Reloading::new("test", vec![file.clone()], text(&file)).expect("good");
        for (new, expected) in [("two", "two"), ("six", "six"), ("bad", "six"), ("ten", "ten")] {
            std::fs::write(&file, new).expect("writes");
            assert_eq!(*reloading.now(), expected, "{new}");
        }
        std::fs::remove_file(&file).expect("removes");
        assert_eq!(*reloading.now(), "ten");
        // As secrets are mounted: a link is moved to another folder.
        std::fs::write(dir.path().join("g"), "new").expect("writes");
        std::os::unix::fs::symlink(dir.path().join("g"), &file).expect("links");
        assert_eq!(*reloading.now(), "new");
    }

    #[test]
    fn what_has_settled_is_not_read_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("f");
        std::fs::write(&file, "one").expect("writes");
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let build = move || Ok(counted.fetch_add(1, Ordering::Relaxed));
        let reloading = Reloading::new("test", vec![file], build).expect("good");
        reloading.state.lock().expect("whole").settled = true;
        reloading.now();
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        reloading.state.lock().expect("whole").settled = false;
        reloading.now();
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }
}
