//! `help`.

use super::{Command, UTILITY};
use crate::{call::Call, exit::Outcome, help};

/// The row of the table.
pub const HELP: Command = Command {
    name: "help",
    usage: "help [command]",
    group: UTILITY,
    short: "Explains any command",
    long: "Explains any command: write its name after `help`.",
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let mut path = vec![call.path[0]];
    for word in &call.args {
        match path.last().expect("begins with the program").sub(word) {
            Some(sub) => path.push(sub),
            // Words behind a command that has nothing below it say nothing.
            None if path.len() > 1 => break,
            None => {
                let words: Vec<String> = call.args.iter().map(|word| format!("`{word}`")).collect();
                complain!("Unknown help topic [{}]\n{}", words.join(" "), help::usage(&path).trim_end());
                return Ok(());
            }
        }
    }
    crate::say(&help::help(&path))
}
