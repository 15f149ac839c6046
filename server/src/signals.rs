//! The signals that ask a member to stop, and its end by one of them.

use crate::log::{self, json};
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its creation on no such signal ends the process by itself; one that comes early waits here.
pub(crate) struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    /// Must be called on a runtime, and that runtime must hear of the signals.
    ///
    /// # Errors
    /// The system has no handler to give.
    pub(crate) fn listen() -> io::Result<Stops> {
        Ok(Stops { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The number of the next one; it stands in the log already.
    pub(crate) async fn next(&mut self) -> i32 {
        let number = tokio::select! {
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = self.interrupt.recv() => libc::SIGINT,
        };
        let name = if number == libc::SIGTERM { "terminated" } else { "interrupt" };
        log::info("received signal; shutting down", &[("signal", json!(name))]);
        number
    }
}

/// SIGUSR1: the log says everything from now on. SIGUSR2: what `--log-level` says.
pub(crate) async fn levels() {
    let (Ok(mut all), Ok(mut usual)) = (signal(SignalKind::user_defined1()), signal(SignalKind::user_defined2()))
    else {
        return log::warn("cannot listen for SIGUSR1 and SIGUSR2: the log level stays as it is", &[]);
    };
    loop {
        tokio::select! {
            _ = all.recv() => log::set_level(Some(log::Level::Debug)),
            _ = usual.recv() => log::set_level(None),
        }
    }
}

/// Ends by the signal itself, so that whoever started us sees it; the first process of a
/// container cannot, and exits with 0 as etcd does.
pub(crate) fn die_of(signal: i32) -> ! {
    crate::sockets::remove_files();
    if std::process::id() != 1 {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    std::process::exit(0)
}
