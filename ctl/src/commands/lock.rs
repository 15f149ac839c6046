//! `lock`.

use client::{
    Client,
    concurrency::{Mutex, Session},
};
use cobra::Flag;
use tokio::signal::unix::{SignalKind, signal};

use super::{get::Got, headings::CONCURRENCY, run};
use crate::{
    call::{Call, Command},
    exit::{ERROR, Failure, Outcome},
    print::Printer,
    raw,
};

/// Seconds, if `--ttl` says nothing of use.
const DEFAULT_TTL: i64 = 60;

/// The row of the table.
pub const LOCK: Command = Command {
    name: "lock",
    usage: "lock <lockname> [exec-command arg1 arg2 ...]",
    group: CONCURRENCY,
    raw: true,
    short: "Takes a lock and holds it, or runs a command under it",
    flags: &[Flag::int("ttl", "10", "seconds after which the lock of a holder that is gone falls")],
    run: Some(run_lock),
    ..Command::NONE
};

fn run_lock(call: &Call) -> Outcome {
    let Some((name, program)) = call.args.split_first() else {
        return Err(Failure::bad_args("lock takes a lock name argument and an optional command to execute"));
    };
    let ttl = Some(call.int("ttl")).filter(|ttl| *ttl > 0).unwrap_or(DEFAULT_TTL);
    let client = call.connect()?.with_request_timeout(None);
    let form = call.printer()?;
    call.block_on(hold(&client, name, ttl, program, form))
}

async fn hold(client: &Client, name: &str, ttl: i64, program: &[String], form: Printer) -> Outcome {
    let mut stop = Stop::new()?;
    let session = Session::new(client, ttl).await?;
    let mutex = Mutex::new(&session, raw::bytes(name));
    let held = tokio::select! {
        held = mutex.lock() => held?,
        () = stop.wait() => {
            session.close().await?;
            return Err(Failure::new(ERROR, "context canceled"));
        }
    };
    if !program.is_empty() {
        let key = raw::text(held.key());
        let env = [("ETCD_LOCK_KEY", key), ("ETCD_LOCK_REV", held.revision().to_string())];
        let done = run::run(program, &env).await;
        let unlocked = held.unlock().await;
        let closed = session.close().await;
        done.map_err(|unwell| Failure::new(unwell.code(), unwell.to_string()))?;
        unlocked?;
        return Ok(closed?);
    }
    let response = client.range(client::key(held.key().clone())).await?;
    if response.kvs.is_empty() {
        return Err(Failure::new(ERROR, "lock lost on init"));
    }
    form.print(&Got { response: &response, value_only: false })?;
    tokio::select! {
        () = stop.wait() => {
            held.unlock().await?;
            Ok(session.close().await?)
        }
        () = session.lost() => Err(Failure::new(ERROR, "session expired")),
    }
}

/// The wish of the user, or of the system, that the program ends.
pub(super) struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    pub fn new() -> Outcome<Stop> {
        let listen = |kind| signal(kind).map_err(|e| Failure::io(&e));
        Ok(Stop { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
