//! Open files are a budget: what the process may have open is shared out before anybody is let in.
//!
//! Clients get what log, state, members and the curious on the peer port do not need. A file that
//! cannot be opened all the same, for want of descriptors or memory, is waited for: opening does
//! nothing by halves.

use crate::log::{self, json};
use std::io;
use std::time::Duration;

/// Threads, listeners, the log's files, a checkpoint that is written, files of certificates.
const OWN: u64 = 48;
/// With fewer than this clients get a few places all the same, and the log says so.
const LEAST: u64 = 160;
/// Between two tries to open a file.
const PAUSE: Duration = Duration::from_millis(100);

/// How the descriptors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// What the system allows.
    pub(crate) limit: u64,
    /// Files of the state that stay open between reads.
    pub(crate) kept: usize,
    /// Connections on the peer port of those who are no members.
    pub(crate) strangers: usize,
    /// Connections of clients.
    pub(crate) clients: u64,
}

impl Descriptors {
    pub(crate) fn of(limit: u64) -> Descriptors {
        let kept = (limit / 8).clamp(16, 256);
        let strangers = (limit / 16).clamp(8, 64);
        // To and from each member, with what broken connections leave for a while.
        let members = (limit / 8).clamp(24, 256);
        let clients = limit.saturating_sub(OWN + kept + strangers + members).max(8);
        Descriptors { limit, kept: kept as usize, strangers: strangers as usize, clients }
    }

    /// What an operator should know of it. `wanted`: connections that memory allows.
    pub(crate) fn tell(self, wanted: u64) {
        let fields = [("limit", json!(self.limit)), ("client-connections", json!(self.clients.min(wanted)))];
        if self.limit < LEAST {
            log::warn("the limit of open files is very low; raise it (ulimit -n, LimitNOFILE)", &fields);
        } else if self.clients < wanted {
            log::warn("the limit of open files leaves clients fewer connections than memory does", &fields);
        }
    }
}

/// Raises the soft limit of open files to the hard one, as Go's runtime does, and answers it.
pub(crate) fn raise_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let now = if raised.is_ok() { limit.maximum } else { limit.current };
    now.unwrap_or(u64::MAX)
}

/// The system had no descriptor or no memory: nothing was done, and later there may be.
pub(crate) fn is_lacking(error: &io::Error) -> bool {
    let lacking = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM];
    lacking.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Tries again until the system has what it lacks.
pub(crate) struct Patience {
    pub(crate) waits: prometheus::IntCounter,
    said: log::Seldom,
}

impl Default for Patience {
    fn default() -> Patience {
        let text = "Times that opening a file had to wait for descriptors or memory.";
        let waits = prometheus::IntCounter::new("kvorum_open_file_waits_total", text).expect("a good name");
        Patience { waits, said: log::Seldom::default() }
    }
}

impl Patience {
    pub(crate) fn open<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if is_lacking(&error) => {
                    self.waits.inc();
                    if self.said.due(error.to_string()) {
                        log::error("a file waits to be opened", &[("error", json!(error.to_string()))]);
                    }
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_others_leave() {
        for limit in [64, 160, 256, 1024, 65_536, 1 << 30] {
            let Descriptors { kept, strangers, clients, .. } = Descriptors::of(limit);
            let all = OWN + kept as u64 + strangers as u64 + clients;
            assert!(limit < LEAST || all < limit, "{limit}: {all}");
        }
        assert_eq!(Descriptors::of(256).clients, 128);
        assert_eq!(Descriptors::of(1024).clients, 656);
        assert!(Descriptors::of(65_536).clients > 60_000);
    }

    #[test]
    fn a_file_is_waited_for() {
        let patience = Patience::default();
        let mut tries = 0;
        let opened = patience.open(|| {
            tries += 1;
            let lacking = rustix::io::Errno::MFILE.raw_os_error();
            if tries < 3 { Err(io::Error::from_raw_os_error(lacking)) } else { Ok(tries) }
        });
        assert_eq!((opened.expect("opens"), patience.waits.get()), (3, 2));
        let other = patience.open::<()>(|| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(other.expect_err("at once").kind(), io::ErrorKind::NotFound);
    }
}
