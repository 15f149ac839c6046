//! Ctrl-C: a long run ends early and prints what it has; at the second one the program ends.

use crate::drive::Live;
use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From now on an interrupt or a termination ends the run that has these counters.
///
/// # Errors
/// If the signals cannot be waited for.
pub fn on_interrupt(live: &Arc<Live>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|e| Failure::of("waiting for Ctrl-C", e))?;
    let live = Arc::clone(live);
    std::thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if live.stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
                eprintln!("\nended early: the results so far follow");
            }
        });
    });
    Ok(())
}
