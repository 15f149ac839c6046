//! `help`.

use super::headings::UTILITY;
use crate::{
    call::{Call, Command, STOCK},
    exit::{ERROR, Failure, Outcome},
};

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
        Err(path) if call.program() != STOCK => {
            Err(Failure::new(ERROR, cobra::unknown_command(&path, &call.args[path.len() - 1])))
        }
        Err(path) if path.len() == 1 => {
            complain!("{}", cobra::help::unknown_topic(path[0], &call.args));
            Ok(())
        }
        // Words behind a command that has nothing below it say nothing.
        Ok(path) | Err(path) => crate::say(&cobra::help::help(&path)),
    }
}

#[cfg(test)]
mod tests {
    fn page(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let parsed = cobra::parse(crate::commands::root(crate::STOCK), &words).expect("a command");
        cobra::help::help(&parsed.path)
    }

    #[test]
    fn a_command_s_page() {
        let expected = "\
Forgets what was superseded before a revision

Usage:
  etcdctl compaction [options] <revision> [flags]

Flags:
  -h, --help       help for compaction
      --physical   wait until the old revisions are removed for good
Use \"etcdctl options\" for a list of global command-line options (applies to all commands).
";
        assert_eq!(page(&["compaction"]), expected);
    }

    #[test]
    fn a_page_of_sub_commands() {
        let expected = "\
Leases; see the sub-commands in `lease --help`

Usage:
  etcdctl lease [command]

Available Commands:
  grant       Grants a lease of so many seconds
  keep-alive  Renews a lease again and again
  list        Shows all leases
  revoke      Ends a lease and deletes its keys
  timetolive  Shows what is left of a lease

Flags:
  -h, --help   help for lease

Use \"etcdctl lease [command] --help\" for more information about a command.
Use \"etcdctl options\" for a list of global command-line options (applies to all commands).
";
        assert_eq!(page(&["lease"]), expected);
    }
}
