//! `completion`: scripts for shells, and `__complete`, which they ask.
//!
//! The scripts know nothing but how to ask: what can follow is decided here,
//! from the table of commands and, for `kvorum ctl`, from the store. Answers
//! have cobra's form, a candidate and its description on each line, then `:`
//! and a number.

use cobra::complete;

use super::{headings::UTILITY, live};
use crate::{
    call::{Call, Command, Parsed},
    exit::{Failure, Outcome},
};

/// The row of the table.
pub const COMPLETION: Command = Command {
    name: "completion",
    usage: "completion [bash|zsh|fish|powershell]",
    bare_usage: true,
    group: UTILITY,
    short: "Writes a completion script for a shell",
    long: "Writes a script with which a shell completes commands and flags.

bash, for this session and for all:
  $ source <(etcdctl completion bash)
  $ etcdctl completion bash > /etc/bash_completion.d/etcdctl

zsh, with compinit loaded, for all sessions:
  $ etcdctl completion zsh > \"${fpath[1]}/_etcdctl\"

fish:
  $ etcdctl completion fish > ~/.config/fish/completions/etcdctl.fish

PowerShell, in the profile:
  PS> etcdctl completion powershell | Out-String | Invoke-Expression",
    words: Some(1),
    choices: cobra::SHELLS,
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let shell = &call.args[0];
    match cobra::script(shell, call.program()) {
        Some(script) => crate::say(&script),
        None => {
            let path = cobra::path_words(&call.path);
            Err(Failure::Usage(format!("invalid argument {} for \"{path}\"", cobra::quote(shell))))
        }
    }
}

/// Answers a script: the words so far, the last of them unfinished.
pub fn complete(root: &'static Command, words: &[String], describe: bool) -> Outcome {
    let (answer, directive) = complete::answer(root, words, describe, &ask);
    crate::say(&answer)?;
    complain!("Completion ended with directive: {directive}");
    Ok(())
}

/// Names that the store knows. The stock tool does not ask it.
fn ask(flag: Option<&'static cobra::Flag>, parsed: &Parsed, unfinished: &str) -> Option<(complete::Candidates, u8)> {
    if parsed.path[0].name == crate::STOCK {
        return None;
    }
    let names = match flag {
        Some(flag) => live::of_flag(flag),
        None if parsed.command().name == "grant-permission" && parsed.args.len() == 1 => {
            return Some(complete::fixed(&["read", "readwrite", "write"], unfinished));
        }
        None => live::of_word(parsed),
    }?;
    let found = live::candidates(parsed.clone(), names, unfinished);
    // Keys of a branch may go on.
    let goes_on = names == live::Names::Endpoints || found.iter().any(|(_, about)| about == live::BRANCH);
    Some((found, if goes_on { complete::NO_FILES | complete::NO_SPACE } else { complete::NO_FILES }))
}

#[cfg(test)]
mod tests {
    use cobra::complete::{DEFAULT, NO_FILES};

    use super::*;

    #[test]
    fn what_can_follow_comes_from_the_table() {
        let root = crate::commands::root(crate::STOCK);
        let ask = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (list, directive) = complete::candidates(root, &words, &ask);
            (list.into_iter().map(|(word, _)| word).collect::<Vec<_>>().join(" "), directive)
        };
        let cases = [
            ("lease ", "grant keep-alive list revoke timetolive", NO_FILES),
            ("le", "lease", NO_FILES),
            ("get --li", "--limit", NO_FILES),
            ("put a --p", "--password --prev-kv", NO_FILES),
            ("-w ", "fields json protobuf simple table", NO_FILES),
            ("get --write-out=j", "json", NO_FILES),
            ("completion ", "bash zsh fish powershell", NO_FILES),
            ("help lease g", "grant", NO_FILES),
            ("put key ", "", DEFAULT),
            ("get ", "", DEFAULT),
            ("--endpoints ", "", DEFAULT),
            ("role grant-permission r ", "", DEFAULT),
        ];
        for (line, expected, directive) in cases {
            assert_eq!(ask(line), (expected.to_owned(), directive), "{line}");
        }
    }
}
