//! systemd's watchdog: `WATCHDOG=1` while the member is alive, nothing while it hangs, so that
//! systemd ends it and starts it anew.
//!
//! Alive is a member whose core thread turns and whose connections are served: each of the two
//! shows it by a counter. It is not asked whether writes are acknowledged: a member without a
//! leader, or on a disk that hangs, is not mended by another start. While the member recovers there
//! is nothing to hang, and the sign is given by itself: systemd waits for `READY=1` then, or the
//! process was begun anew in its place and has said that long ago.

use crate::log::{self, json};
use sd_notify::NotifyState;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Three looks in the time that systemd waits.
const LOOKS: u32 = 3;

/// Something of the member that must move, counted.
pub(crate) type Pulse = Arc<AtomicU64>;

/// What must move, by name. Empty until the member has recovered.
type Pulses = Arc<OnceLock<Vec<(&'static str, Pulse)>>>;

/// The watchdog; if systemd wants none, nothing.
pub(crate) struct Watchdog(Option<Watched>);

struct Watched {
    pulses: Pulses,
    every: Duration,
}

impl Watchdog {
    /// Gives signs from now on, on a thread of its own.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start() -> std::io::Result<Watchdog> {
        let within = sd_notify::watchdog_enabled().filter(|within| !within.is_zero());
        let Some(within) = within else { return Ok(Watchdog(None)) };
        let pulses = Pulses::default();
        let every = within / LOOKS;
        let watched = pulses.clone();
        std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&watched, every))?;
        Ok(Watchdog(Some(Watched { pulses, every })))
    }

    /// From now on the core thread must turn, and this runtime must run its tasks.
    pub(crate) fn follow(self, core: Pulse) {
        let Some(Watched { pulses, every }) = self.0 else { return };
        let connections = Pulse::default();
        let beat = connections.clone();
        let every = every / LOOKS;
        tokio::spawn(async move {
            loop {
                beat.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(every).await;
            }
        });
        let _ = pulses.set(vec![("core", core), ("connections", connections)]);
    }
}

fn watch(pulses: &Pulses, every: Duration) {
    let mut eyes = Eyes::default();
    let mut silent = false;
    loop {
        let still = eyes.still(pulses.get().map(Vec::as_slice).unwrap_or_default());
        match still {
            // A failure to tell systemd is systemd's to notice.
            None => drop(sd_notify::notify(&[NotifyState::Watchdog])),
            Some(name) if !silent => {
                log::warn("the member hangs: systemd is given no sign of life", &[("thread", json!(name))]);
            }
            Some(_) => {}
        }
        silent = still.is_some();
        std::thread::sleep(every);
    }
}

/// What was seen at the last look.
#[derive(Default)]
struct Eyes(Vec<u64>);

impl Eyes {
    /// The first one that has not moved since the last look.
    fn still(&mut self, pulses: &[(&'static str, Pulse)]) -> Option<&'static str> {
        let now: Vec<u64> = pulses.iter().map(|(_, pulse)| pulse.load(Ordering::Relaxed)).collect();
        let last = std::mem::replace(&mut self.0, now);
        let stood = |(at, _): &(usize, &(&str, Pulse))| last.get(*at) == self.0.get(*at);
        pulses.iter().enumerate().find(stood).map(|(_, (name, _))| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_move_is_named() {
        let (core, connections) = (Pulse::default(), Pulse::default());
        let pulses = [("core", core.clone()), ("connections", connections.clone())];
        let mut eyes = Eyes::default();
        assert_eq!(eyes.still(&[]), None, "it recovers");
        assert_eq!(eyes.still(&pulses), None, "the first look");
        assert_eq!(eyes.still(&pulses), Some("core"));
        core.fetch_add(1, Ordering::Relaxed);
        assert_eq!(eyes.still(&pulses), Some("connections"));
        connections.fetch_add(1, Ordering::Relaxed);
        core.fetch_add(1, Ordering::Relaxed);
        assert_eq!(eyes.still(&pulses), None);
    }
}
