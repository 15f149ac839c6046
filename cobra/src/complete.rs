//! `__complete`, which the shells' scripts ask: what can follow the words so far, from the table.
//! Answers have cobra's form, a candidate and its description on each line, then `:` and a number.

use std::borrow::Cow;

use crate::{
    parse::{Parsed, known, parse_lenient},
    table::{Command, Flag, Kind, last, topic},
};

/// Files may follow.
pub const DEFAULT: u8 = 0;
/// Nothing but what is listed can follow.
pub const NO_FILES: u8 = 4;
/// Besides, the word may go on.
pub const NO_SPACE: u8 = 2;

/// Words that can follow, and what is said about each.
pub type Candidates = Vec<(String, Cow<'static, str>)>;

/// What only the caller knows about a place: names that a store has. The flag whose value is
/// wanted, or none for the next word; the words before; the beginning. None: it knows nothing.
pub type Ask<'a, R> = &'a dyn Fn(Option<&'static Flag>, &Parsed<R>, &str) -> Option<(Candidates, u8)>;

/// The answer to a script, and what is said about its number. `words` are those before the cursor,
/// the last of them unfinished.
pub fn answer<R>(root: &'static Command<R>, words: &[String], describe: bool, ask: Ask<R>) -> (String, &'static str) {
    let (candidates, directive) = candidates(root, words, ask);
    let mut text = String::new();
    for (candidate, about) in candidates {
        text += &candidate;
        if describe && !about.is_empty() {
            text += &format!("\t{about}");
        }
        text.push('\n');
    }
    let name = match directive {
        DEFAULT => "ShellCompDirectiveDefault",
        NO_FILES => "ShellCompDirectiveNoFileComp",
        _ => "ShellCompDirectiveNoSpace, ShellCompDirectiveNoFileComp",
    };
    (format!("{text}:{directive}\n"), name)
}

/// What can follow, and what else may.
pub fn candidates<R>(root: &'static Command<R>, words: &[String], ask: Ask<R>) -> (Candidates, u8) {
    let nothing = |directive| (Vec::new(), directive);
    let Some((unfinished, before)) = words.split_last() else { return nothing(NO_FILES) };
    let Ok(parsed) = parse_lenient(root, before) else { return nothing(DEFAULT) };
    let known = known(&parsed.path);
    let value = |flag: &'static Flag, begun: &str| {
        ask(Some(flag), &parsed, begun).unwrap_or_else(|| match flag.choices {
            [] => nothing(DEFAULT),
            choices => fixed(choices, begun),
        })
    };
    if let Some(flag) = before.last().and_then(|word| awaits_value(word, &known)) {
        return value(flag, unfinished);
    }
    if unfinished.starts_with('-') && parsed.before_dash.is_none() {
        return match unfinished.split_once('=') {
            Some((name, begun)) => match known.iter().find(|f| name.strip_prefix("--") == Some(f.name)) {
                Some(flag) => value(flag, begun),
                None => nothing(DEFAULT),
            },
            None => (flags(&parsed, &known, unfinished), NO_FILES),
        };
    }
    let command = parsed.command();
    if command.has_subs() && parsed.args.is_empty() {
        return (subs(command, unfinished), NO_FILES);
    }
    if let Some(found) = ask(None, &parsed, unfinished) {
        return found;
    }
    if command.topics {
        let below = topic(parsed.path[0], &parsed.args).map(|path| subs(last(&path), unfinished));
        return (below.unwrap_or_default(), NO_FILES);
    }
    if parsed.args.is_empty() && !command.choices.is_empty() {
        fixed(command.choices, unfinished)
    } else {
        nothing(DEFAULT)
    }
}

/// Those of the words that begin like this, and nothing else.
pub fn fixed(words: &[&'static str], unfinished: &str) -> (Candidates, u8) {
    let fitting = words.iter().filter(|word| word.starts_with(unfinished));
    (fitting.map(|word| ((*word).to_owned(), "".into())).collect(), NO_FILES)
}

fn subs<R>(of: &Command<R>, unfinished: &str) -> Candidates {
    let fitting = of.shown_subs().into_iter().filter(|c| c.name.starts_with(unfinished));
    fitting.map(|c| (c.name.to_owned(), c.short.into())).collect()
}

/// Flags that can still be given.
fn flags<R>(parsed: &Parsed<R>, known: &[&'static Flag], unfinished: &str) -> Candidates {
    let fitting = known
        .iter()
        .copied()
        .filter(|flag| format!("--{}", flag.name).starts_with(unfinished))
        .filter(|flag| !parsed.values.changed(flag.name) || flag.kind == Kind::List);
    let fitting = crate::help::sorted(fitting);
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
