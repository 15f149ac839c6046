//! `move-leader`.

use super::{answer::Said, each::single, whom::Whom};
use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{BAD_ARGS, Failure, Outcome},
};

/// The row of the stock tool's table.
pub const MOVE_LEADER: Command = Command {
    name: "move-leader",
    usage: "move-leader <transferee-member-id>",
    group: CLUSTER,
    short: "Makes another member the leader",
    run: Some(run),
    ..Command::NONE
};

/// The row of ours.
pub const OURS: Command = Command { usage: "move-leader <transferee-member-id or name>", ..MOVE_LEADER };

fn run(call: &Call) -> Outcome {
    let [target] = call.exactly("move-leader command needs 1 argument")?;
    let target = Whom::read(call, target, Failure::bad_args)?;
    let client = call.connect()?;
    let target = target.id(call, &client)?;
    let endpoints = client.options().endpoints.clone();
    // Only the leader does it.
    let found = call.timed(async {
        for endpoint in &endpoints {
            let one = single(&client, endpoint)?;
            let status = one.status().await?;
            let id = status.header.as_ref().map_or(0, |h| h.member_id);
            if id == status.leader {
                return Ok(Some((one, id)));
            }
        }
        Ok(None)
    })?;
    let Some((leader, id)) = found else {
        return Err(Failure::new(BAD_ARGS, format!("no leader endpoint given at [{}]", endpoints.join(" "))));
    };
    let response = call.timed(leader.move_leader(target))?;
    let line = format!("Leadership transferred from {id:x} to {target:x}").into_bytes();
    call.print(&Said { line, header: response.header.as_ref(), message: &response, fields: false })
}
