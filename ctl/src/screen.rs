//! The whole screen of a terminal, taken for one command and given back however
//! that ends: by a key, a failure, or a signal.

use std::{future::poll_fn, io, task::Poll, time::Duration};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    call::Call,
    exit::{Failure, Outcome},
};

/// How long a key or a signal may wait.
pub const FRAME: Duration = Duration::from_millis(50);

/// Takes the screen for as long as `work` goes on, which must wait for something
/// once in a [`FRAME`].
///
/// # Errors
/// If the terminal fails; silent, with the code that a shell gives to it, if a
/// signal ended it.
pub fn hold(call: &Call, work: impl AsyncFnOnce(&mut DefaultTerminal) -> io::Result<()>) -> Outcome {
    call.block_on(async {
        let failed = |error: io::Error| Failure::io(&error);
        // Before the screen is taken: a signal in between would leave it so.
        let mut signals = Signals::heard().map_err(failed)?;
        let mut terminal = ratatui::try_init().map_err(failed)?;
        let ended = tokio::select! {
            biased;
            code = signals.next() => Err(Failure::Silent(code)),
            ended = work(&mut terminal) => ended.map_err(failed),
        };
        ratatui::restore();
        match ended {
            // A terminal that has gone away fails first and says why a little later.
            Err(Failure::Text { .. }) => {
                tokio::time::timeout(FRAME, signals.next()).await.map_or(ended, |code| Err(Failure::Silent(code)))
            }
            ended => ended,
        }
    })
}

/// Those that end a program and can be heard.
struct Signals([(SignalKind, Signal); 4]);

impl Signals {
    fn heard() -> io::Result<Signals> {
        let heard = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        Ok(Signals([
            heard(SignalKind::hangup())?,
            heard(SignalKind::interrupt())?,
            heard(SignalKind::quit())?,
            heard(SignalKind::terminate())?,
        ]))
    }

    /// Waits for one; the exit code that goes with it.
    async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (kind, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(128 + kind.as_raw_value());
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Hands over the keys that were pressed; `false` once one of them, or Control-C,
/// ends the program.
///
/// # Errors
/// If the terminal fails.
pub fn keys(mut take: impl FnMut(KeyCode) -> bool) -> io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
            if interrupt || !take(key.code) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
