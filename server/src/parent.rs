//! A process that ends with the one that started it, however that one ends: a closed terminal, a
//! `kill -9`. For members that `kvorum dev` starts.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Names the process that started this one.
pub const VARIABLE: &str = "KVORUM_PARENT";

/// From now on the end of the parent is a SIGTERM here. False: it has ended already.
pub fn follow() -> bool {
    let named = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<i32>().ok());
    let Some(parent) = named else { return true };
    // Where the system has no such signal, the member outlives a parent that was killed.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    getppid().is_some_and(|now| now.as_raw_nonzero().get() == parent)
}
