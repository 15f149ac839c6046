//! A front at work: sockets, tasks, the clock. All of it runs on one thread.

mod admin;
mod check;
mod http;
mod listen;
mod relay;
mod session;

use super::config::Config;
use super::file::{self, Refused};
use super::state::State;
use crate::log;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::signal::unix::{SignalKind, signal};

const CALLER: &str = "proxy/front";
/// Descriptors that are not for clients: listeners, checks, sockets for commands, the log.
const OWN_DESCRIPTORS: u64 = 64;

/// What all tasks share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) state: RefCell<State>,
    begin: Instant,
    pub(crate) started: SystemTime,
    file: PathBuf,
}

impl Front {
    /// Since the start.
    pub(crate) fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

/// A line of the log.
pub(crate) fn say(level: &str, message: &str, fields: &[(&str, Value)]) {
    log::line(level, CALLER, message, fields);
}

/// Serves until a signal ends it.
///
/// # Errors
/// An address cannot be opened.
pub(crate) async fn serve(config: Config, file: PathBuf, grace: Duration) -> Result<(), Refused> {
    let limit = crate::gateway::raise_limit();
    // A connection has a descriptor on each side.
    let most = (limit.saturating_sub(OWN_DESCRIPTORS) / 2).clamp(1, u64::from(u32::MAX)) as u32;
    if let Some(wanted) = config.global.maxconn.filter(|wanted| *wanted > most) {
        let fields = [("maxconn", Value::from(wanted)), ("allowed", Value::from(most))];
        say("warn", "the limit of descriptors allows fewer connections than `maxconn`", &fields);
    }
    let begin = Instant::now();
    let seed = RandomState::new().hash_one(SystemTime::now());
    let state = State::new(config.clone(), most, seed, Duration::ZERO);
    let front = Rc::new(Front { state: RefCell::new(state), begin, started: SystemTime::now(), file });
    let mut listeners = listen::Listeners::default();
    let mut sockets = admin::Sockets::default();
    let opened = listeners.open(&config).map_err(refused)?;
    let commands = sockets.open(&config).map_err(refused)?;
    listeners.use_these(opened, &front);
    sockets.use_these(commands, &config, &front);
    let mut checks = check::Checks::begin(&front);
    crate::gateway::ready(CALLER);
    say("info", "ready to pass connections on", &[("addresses", Value::from(listeners.addresses()))]);

    let problem = |error: std::io::Error| Refused(vec![format!("signals cannot be taken: {error}")]);
    let mut hangup = signal(SignalKind::hangup()).map_err(problem)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(problem)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(problem)?;
    let mut leave = signal(SignalKind::user_defined1()).map_err(problem)?;
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                if reload(&front, &mut listeners, &mut sockets) {
                    checks = check::Checks::begin(&front);
                }
            }
            _ = leave.recv() => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // Nothing new; what stands gets the time that was given.
    drop(listeners);
    drop(checks);
    let left = front.state.borrow().sessions.len();
    say(
        "info",
        "no new connection is taken",
        &[("connections", Value::from(left)), ("grace", Value::from(grace.as_secs()))],
    );
    let all_gone = async {
        while !front.state.borrow().sessions.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = all_gone => {}
        () = tokio::time::sleep(grace) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

fn refused(text: String) -> Refused {
    Refused(vec![text])
}

/// Takes the file again, whole or not at all. Whether it was taken.
fn reload(front: &Rc<Front>, listeners: &mut listen::Listeners, sockets: &mut admin::Sockets) -> bool {
    let taken = file::load(&front.file).and_then(|loaded| {
        let opened = listeners.open(&loaded.config).map_err(refused)?;
        let commands = sockets.open(&loaded.config).map_err(refused)?;
        Ok((loaded, opened, commands))
    });
    match taken {
        Err(wrong) => {
            for line in &wrong.0 {
                say("error", "the new file is refused; the one before stays", &[("reason", Value::from(&line[..]))]);
            }
            false
        }
        Ok((loaded, opened, commands)) => {
            front.state.borrow_mut().take(loaded.config.clone(), front.now());
            listeners.use_these(opened, front);
            sockets.use_these(commands, &loaded.config, front);
            say("info", "the new file is taken", &[("file", Value::from(front.file.display().to_string()))]);
            true
        }
    }
}
