//! `downgrade`.

use client::wire::etcdserverpb::{DowngradeResponse, downgrade_request::DowngradeAction};

use crate::{
    call::{Call, Command},
    commands::headings::CLUSTER,
    exit::{Failure, Outcome},
    print::{Answer, Out, json, protobuf},
};

/// The row of the table.
pub const DOWNGRADE: Command = Command {
    name: "downgrade",
    group: CLUSTER,
    short: "Prepares the cluster for an older version. See `downgrade --help`",
    long: "Prepares the cluster for an older version",
    subs: &[&[
        Command {
            name: "cancel",
            usage: "cancel",
            short: "Gives up the downgrade that is under way",
            run: Some(|call| ask(call, DowngradeAction::Cancel, "")),
            ..Command::NONE
        },
        Command {
            name: "enable",
            usage: "enable <TARGET_VERSION>",
            short: "Begins a downgrade of the cluster",
            run: Some(|call| ask(call, DowngradeAction::Enable, target(call)?)),
            ..Command::NONE
        },
        Command {
            name: "validate",
            usage: "validate <TARGET_VERSION>",
            short: "Shows whether the cluster could be downgraded",
            run: Some(|call| ask(call, DowngradeAction::Validate, target(call)?)),
            ..Command::NONE
        },
    ]],
    ..Command::NONE
};

fn target(call: &Call) -> Outcome<&str> {
    match &call.args[..] {
        [] => Err(Failure::bad_args("TARGET_VERSION not provided")),
        [version] => Ok(version),
        _ => Err(Failure::bad_args("too many arguments")),
    }
}

fn ask(call: &Call, action: DowngradeAction, version: &str) -> Outcome {
    let client = call.connect()?;
    let response = call.timed(client.downgrade(action, version))?;
    call.print(&Answered { action, response: &response })
}

struct Answered<'a> {
    action: DowngradeAction,
    response: &'a DowngradeResponse,
}

impl Answer for Answered<'_> {
    fn simple(&self, out: &mut Out) -> Outcome {
        let action = self.action.as_str_name().to_lowercase();
        out.line(format!("Downgrade {action} success, cluster version {}", self.response.version));
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new()
            .header(self.response.header.as_ref())
            .some_text("version", &self.response.version)
            .finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.response))
    }
}
