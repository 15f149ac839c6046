//! `defrag`.

use std::time::Instant;

use super::{
    each::{ALL_MEMBERS, asked, reason, single},
    gofmt, memory,
};
use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{ERROR, Failure, Outcome},
};

/// The row of the table.
pub const DEFRAG: Command = Command {
    name: "defrag",
    usage: "defrag",
    group: CLUSTER,
    short: "Gives free space in the files of the given endpoints back to the system",
    flags: &[ALL_MEMBERS],
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let endpoints = asked(call)?;
    if endpoints.is_empty() {
        return Ok(());
    }
    let client = call.connect()?;
    let (mut failed, mut ours) = (None, false);
    for endpoint in endpoints {
        let begin = Instant::now();
        let one = single(&client, &endpoint);
        let done = call.timed(async { one?.defragment().await });
        let took = gofmt::duration(begin.elapsed());
        match done {
            Ok(_) => {
                crate::say(&format!("Finished defragmenting etcd member[{endpoint}]. took {took}\n"))?;
                ours |= call.is_ours() && memory::is_kvorum(call, &client, &endpoint);
            }
            Err(failure @ Failure::Text { code, .. }) if code != ERROR => return Err(failure),
            Err(failure) => {
                complain!("Failed to defragment etcd member[{endpoint}]. took {took}. ({})", reason(&failure));
                failed = Some(failure);
            }
        }
    }
    if ours {
        crate::say("kvorum gives space back by itself: on its members there was nothing to do.\n")?;
    }
    failed.map_or(Ok(()), |failure| Err(Failure::told(ERROR, failure)))
}
