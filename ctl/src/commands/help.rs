//! `help`.

use super::{Command, UTILITY};
use crate::{call::Call, exit::Outcome};

/// The row of the table.
pub const HELP: Command = Command {
    name: "help",
    usage: "help [command]",
    group: UTILITY,
    short: "Explains any command",
    long: "Explains any command: write its name after `help`.",
    topics: true,
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    match cobra::topic(call.path[0], &call.args) {
        Err(path) if path.len() == 1 => {
            complain!("{}", cobra::help::unknown_topic(path[0], &call.args));
            Ok(())
        }
        // Words behind a command that has nothing below it say nothing.
        Ok(path) | Err(path) => crate::say(&cobra::help::help(&path)),
    }
}
