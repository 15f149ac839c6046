//! `completion`: scripts for shells, and `__complete`, which they ask.
//!
//! The scripts know nothing but how to ask: what can follow is decided here,
//! from the table of commands and, for `kvorum ctl`, from the store. Answers
//! have cobra's form, a candidate and its description on each line, then `:`
//! and a number.

mod live;
mod scripts;

use std::borrow::Cow;

use self::scripts::{BASH, FISH, POWERSHELL, ZSH};
use super::{Command, UTILITY};
use crate::{
    call::Call,
    exit::{Failure, Outcome},
    flags::{self, Flag, Kind},
};

/// Files may follow.
const DEFAULT: u8 = 0;
/// Nothing but what is listed can follow.
const NO_FILES: u8 = 4;
/// Besides, the word may go on.
const NO_SPACE: u8 = 2;

/// The programs behind `kvorum`, and those of them that answer `__complete`.
const PROGRAMS: &str = "bench ctl dev server utl version";
const ASKED: &str = "ctl utl";

/// The shells that there is a script for.
const SHELLS: &[&str] = &["bash", "zsh", "fish", "powershell"];
const PERMISSIONS: &[&str] = &["read", "readwrite", "write"];
const FORMATS: &[&str] = &["fields", "json", "protobuf", "simple", "table"];
const FORMATS_OURS: &[&str] = &["fields", "json", "protobuf", "simple", "table", "yaml"];

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
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let [shell] = call.args.as_slice() else {
        return Err(Failure::Usage(format!("accepts 1 arg(s), received {}", call.args.len())));
    };
    let script = match shell.as_str() {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        "powershell" => POWERSHELL,
        other => {
            let path = crate::help::path_words(&call.path);
            return Err(Failure::Usage(format!("invalid argument {} for \"{path}\"", flags::quote(other))));
        }
    };
    // `kvorum ctl` is two words: the shell completes for the first, whatever
    // program the second one chooses.
    let (binary, subs, words) = match call.program().split_once(' ') {
        Some((binary, _)) => (binary, ASKED, PROGRAMS),
        None => (call.program(), "", ""),
    };
    let script = script.replace("@BINARY@", binary).replace("@NAME@", &binary.replace('-', "_"));
    crate::say(&script.replace("@SUBS@", subs).replace("@WORDS@", words))
}

/// Answers a script: the words so far, the last of them unfinished.
pub fn complete(root: &'static Command, words: &[String], describe: bool) -> Outcome {
    let (candidates, directive) = candidates(root, words);
    let mut text = String::new();
    for (candidate, about) in candidates {
        text += &candidate;
        if describe && !about.is_empty() {
            text += &format!("\t{about}");
        }
        text.push('\n');
    }
    crate::say(&format!("{text}:{directive}\n"))?;
    let name = match directive {
        DEFAULT => "ShellCompDirectiveDefault",
        NO_FILES => "ShellCompDirectiveNoFileComp",
        _ => "ShellCompDirectiveNoSpace, ShellCompDirectiveNoFileComp",
    };
    complain!("Completion ended with directive: {name}");
    Ok(())
}

type Candidates = Vec<(String, Cow<'static, str>)>;

fn candidates(root: &'static Command, words: &[String]) -> (Candidates, u8) {
    let Some((unfinished, before)) = words.split_last() else { return (Vec::new(), NO_FILES) };
    let Ok(parsed) = flags::parse_lenient(root, before) else { return (Vec::new(), DEFAULT) };
    let known = flags::known(&parsed.path);
    if let Some(flag) = before.last().and_then(|word| awaits_value(word, &known)) {
        return values(flag, parsed, unfinished);
    }
    if unfinished.starts_with('-') && parsed.before_dash.is_none() {
        return match unfinished.split_once('=') {
            Some((name, value)) => match known.iter().find(|f| name.strip_prefix("--") == Some(f.name)) {
                Some(flag) => values(flag, parsed, value),
                None => (Vec::new(), DEFAULT),
            },
            None => (flag_candidates(&parsed, unfinished), NO_FILES),
        };
    }
    words_of(parsed, unfinished)
}

/// Names that the store knows. Keys of a branch may go on.
fn asked(parsed: flags::Parsed, names: live::Names, unfinished: &str) -> (Candidates, u8) {
    let found = live::candidates(parsed, names, unfinished);
    let goes_on = names == live::Names::Endpoints || found.iter().any(|(_, about)| about == live::BRANCH);
    (found, if goes_on { NO_FILES | NO_SPACE } else { NO_FILES })
}

/// Whether the store may be asked: the stock tool does not do it.
fn is_ours(parsed: &flags::Parsed) -> bool {
    parsed.path[0].name != crate::STOCK
}

fn words_of(parsed: flags::Parsed, unfinished: &str) -> (Candidates, u8) {
    let command = parsed.command();
    let fixed = |words: &[&'static str]| {
        let fitting = words.iter().filter(|word| word.starts_with(unfinished));
        (fitting.map(|word| ((*word).to_owned(), "".into())).collect(), NO_FILES)
    };
    let subs = |of: &Command| {
        let mut subs: Vec<&Command> = of.all_subs().filter(|c| c.name.starts_with(unfinished)).collect();
        subs.sort_by_key(|c| c.name);
        (subs.into_iter().map(|c| (c.name.to_owned(), c.short.into())).collect(), NO_FILES)
    };
    if command.has_subs() && parsed.args.is_empty() {
        return subs(command);
    }
    if is_ours(&parsed)
        && let Some(names) = live::of_word(&parsed)
    {
        return asked(parsed, names, unfinished);
    }
    match command.name {
        "completion" if parsed.args.is_empty() => fixed(SHELLS),
        "grant-permission" if parsed.args.len() == 1 && is_ours(&parsed) => fixed(PERMISSIONS),
        "help" => {
            let mut here = parsed.path[0];
            for word in &parsed.args {
                match here.sub(word) {
                    Some(sub) => here = sub,
                    None => return (Vec::new(), NO_FILES),
                }
            }
            subs(here)
        }
        _ => (Vec::new(), DEFAULT),
    }
}

fn flag_candidates(parsed: &flags::Parsed, unfinished: &str) -> Candidates {
    // The flags of the program itself only if they are asked for by name.
    let own = flags::known(&parsed.path);
    let mut fitting: Vec<&Flag> = own
        .into_iter()
        .filter(|flag| format!("--{}", flag.name).starts_with(unfinished))
        .filter(|flag| !parsed.values.changed(flag.name) || flag.kind == Kind::List)
        .collect();
    fitting.sort_by_key(|flag| flag.name);
    let mut list: Candidates = fitting.iter().map(|flag| (format!("--{}", flag.name), flag.text.into())).collect();
    if unfinished == "-" {
        list.extend(fitting.iter().filter_map(|flag| Some((format!("-{}", flag.short?), flag.text.into()))));
    }
    list
}

/// The flag that the word after this one will be the value of.
fn awaits_value<'f>(word: &str, known: &[&'f Flag]) -> Option<&'f Flag> {
    let flag = match word.strip_prefix("--") {
        Some(name) => known.iter().find(|f| f.name == name),
        None => word.strip_prefix('-').and_then(|letters| {
            let letter = letters.chars().last()?;
            known.iter().find(|f| f.short == Some(letter))
        }),
    };
    flag.copied().filter(|f| f.kind != Kind::Bool)
}

fn values(flag: &Flag, parsed: flags::Parsed, unfinished: &str) -> (Candidates, u8) {
    if is_ours(&parsed)
        && let Some(names) = live::of_flag(flag)
    {
        return asked(parsed, names, unfinished);
    }
    let words: &[&str] = match flag.name {
        "write-out" if is_ours(&parsed) => FORMATS_OURS,
        "write-out" => FORMATS,
        "color" if is_ours(&parsed) => &["always", "auto", "never"],
        "order" => &["ASCEND", "DESCEND"],
        "sort-by" => &["CREATE", "KEY", "MODIFY", "VALUE", "VERSION"],
        "consistency" => &["l", "s"],
        _ => return (Vec::new(), DEFAULT),
    };
    (words.iter().filter(|w| w.starts_with(unfinished)).map(|w| ((*w).to_owned(), "".into())).collect(), NO_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_follow_comes_from_the_table() {
        let root = crate::commands::root(crate::STOCK);
        let ask = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (list, directive) = candidates(root, &words);
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
