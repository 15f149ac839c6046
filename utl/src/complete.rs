//! `__complete`, which the scripts of `kvorum ctl completion` ask: what can follow the words so far.
//! Answers have cobra's form, a candidate and its description on each line, then `:` and a number.

use crate::cobra::{Command, Flag, GLOBAL, HELP, Kind};

/// Files may follow.
const DEFAULT: u8 = 0;
/// Nothing but what is listed can follow.
const NO_FILES: u8 = 4;
const FORMATS: [&str; 5] = ["fields", "json", "protobuf", "simple", "table"];
const SHELLS: [&str; 4] = ["bash", "zsh", "fish", "powershell"];

/// Answers for `kvorum utl`: `words` are those before the cursor, the last of them unfinished.
pub fn answer(root: &'static Command, words: &[String], describe: bool) -> String {
    let (candidates, directive) = candidates(root, words);
    let mut text = String::new();
    for (candidate, about) in candidates {
        text.push_str(candidate.as_str());
        if describe && !about.is_empty() {
            text.push_str(&format!("\t{about}"));
        }
        text.push('\n');
    }
    format!("{text}:{directive}\n")
}

type Candidates = Vec<(String, &'static str)>;

fn candidates(root: &'static Command, words: &[String]) -> (Candidates, u8) {
    let Some((unfinished, before)) = words.split_last() else { return (Vec::new(), NO_FILES) };
    let mut here = root;
    let mut others = 0;
    let mut before = before.iter().peekable();
    while let Some(word) = before.next() {
        match awaits_value(here, word) {
            Some(flag) if before.peek().is_none() => return values(flag, unfinished),
            Some(_) => drop(before.next()),
            None if word.starts_with('-') => {}
            None => match here.children.iter().find(|child| child.name == word) {
                Some(child) if others == 0 => here = child,
                _ => others += 1,
            },
        }
    }
    if let Some((name, value)) = unfinished.strip_prefix("--").and_then(|flag| flag.split_once('=')) {
        let flag = flags(here).into_iter().find(|flag| flag.name == name);
        return flag.map_or((Vec::new(), DEFAULT), |flag| values(flag, value));
    }
    if unfinished.starts_with('-') {
        let fitting = flags(here).into_iter().map(|flag| (format!("--{}", flag.name), flag.help));
        return (fitting.filter(|(flag, _)| flag.starts_with(unfinished.as_str())).collect(), NO_FILES);
    }
    match here.name {
        "completion" if others == 0 => fixed(&SHELLS, unfinished),
        "help" | "man" if others == 0 => (commands(root, unfinished), NO_FILES),
        _ if !here.children.is_empty() && others == 0 => (commands(here, unfinished), NO_FILES),
        _ => (Vec::new(), DEFAULT),
    }
}

fn commands(parent: &'static Command, unfinished: &str) -> Candidates {
    let shown = parent.children.iter().filter(|child| child.name.starts_with(unfinished));
    shown.map(|child| (child.name.to_string(), child.short)).collect()
}

fn fixed(words: &[&str], unfinished: &str) -> (Candidates, u8) {
    let fitting = words.iter().filter(|word| word.starts_with(unfinished));
    (fitting.map(|word| (word.to_string(), "")).collect(), NO_FILES)
}

fn flags(command: &Command) -> Vec<Flag> {
    let mut flags: Vec<Flag> = command.flags.iter().copied().chain(GLOBAL).chain([HELP]).collect();
    flags.sort_by_key(|flag| flag.name);
    flags
}

/// The flag that the word after this one is the value of.
fn awaits_value(command: &Command, word: &str) -> Option<Flag> {
    let named = |flag: &Flag| match word.strip_prefix("--") {
        Some(name) => flag.name == name,
        None => word.len() == 2 && word.starts_with('-') && flag.short == word.chars().nth(1),
    };
    flags(command).into_iter().find(|flag| flag.kind != Kind::Bool && named(flag))
}

fn values(flag: Flag, unfinished: &str) -> (Candidates, u8) {
    match flag.name {
        "write-out" => fixed(&FORMATS, unfinished),
        _ => (Vec::new(), DEFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_follow_comes_from_the_table() {
        let ask = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            answer(&crate::commands::ROOT, &words, false).replace('\n', " ")
        };
        let cases = [
            ("ver", "verify version :4 "),
            ("snapshot ", "restore status :4 "),
            ("snapshot restore ", ":0 "),
            ("snapshot restore --data", "--data-dir :4 "),
            ("snapshot restore --data-dir ", ":0 "),
            ("--timeout 5s -w ta", "table :4 "),
            ("hashkv a.db --write-out=j", "json :4 "),
            ("completion z", "zsh :4 "),
            ("man snap", "snapshot :4 "),
            // A word that is no command leads nowhere.
            ("nothing ", ":0 "),
        ];
        for (line, expected) in cases {
            assert_eq!(ask(line), expected, "{line}");
        }
    }
}
