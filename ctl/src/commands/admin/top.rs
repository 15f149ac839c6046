//! `top`: the members of a cluster on one screen, live. Only `kvorum ctl` has
//! it; it looks at real etcd as well.

mod gather;
mod view;

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use cobra::Flag;

use crate::{
    call::{Call, Command},
    commands::headings::PEOPLE,
    exit::{BAD_FEATURE, Failure, Outcome},
    screen::{self, FRAME},
};

/// The row of the table.
pub const TOP: Command = Command {
    name: "top",
    usage: "top [options]",
    group: PEOPLE,
    short: "Shows the members of the cluster, live",
    long: "Shows the members of the cluster, live: who leads, who lags, how much is written.
Keys: s sorts by the next column, r turns the order round, up and down choose a
member, Enter shows all there is of it, q ends.",
    flags: &[Flag::duration("interval", "1s", "how often the members are asked")],
    run: Some(run),
    ..Command::NONE
};

/// How long a member may take to answer, at least.
const PATIENCE: Duration = Duration::from_secs(1);

fn run(call: &Call) -> Outcome {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::new(BAD_FEATURE, "top needs a terminal; use `endpoint status` in scripts"));
    }
    let client = call.client()?;
    let interval = call.duration("interval").max(FRAME);
    // One that is down should not hold up the others for long.
    let limit = call.duration("command-timeout").min(interval.max(PATIENCE));
    screen::hold(call, async |terminal| {
        let mut top = view::Top::default();
        loop {
            let begin = Instant::now();
            let gathering = gather::round(&client, limit);
            tokio::pin!(gathering);
            let mut waiting = true;
            while waiting || begin.elapsed() < interval {
                terminal.draw(|frame| top.draw(frame))?;
                if !screen::keys(|key| top.key(key))? {
                    return Ok(());
                }
                tokio::select! {
                    round = &mut gathering, if waiting => {
                        top.take(round);
                        waiting = false;
                    }
                    () = tokio::time::sleep(FRAME) => {}
                }
            }
        }
    })
}
