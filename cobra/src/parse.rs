//! Reading the words of a command line as cobra and pflag read them: flags
//! anywhere, `--flag v`, `--flag=v`, `-w json`, `-wjson`, `--`, prefixes of
//! command names.

use std::time::Duration;

use crate::{
    go::{self, quote},
    table::{Command, Flag, HELP, Kind, Pages, Path, last, path_words},
};

const CHECKED: &str = "checked when it was read";

/// The values of the flags that were given, in the order in which they were.
#[derive(Clone, Debug, Default)]
pub struct Values {
    given: Vec<(&'static str, String)>,
}

impl Values {
    /// Whether the flag was given, on the command line or by the environment.
    pub fn changed(&self, name: &str) -> bool {
        self.given.iter().any(|(n, _)| *n == name)
    }

    /// Gives a flag a value. The caller has checked it.
    pub fn set(&mut self, flag: &Flag, value: String) {
        self.given.push((flag.name, value));
    }

    /// The last value given for a flag, or its default.
    pub fn last<'v>(&'v self, flag: &Flag) -> &'v str {
        self.given.iter().rev().find(|(n, _)| *n == flag.name).map_or(flag.default, |(_, v)| v)
    }

    /// A switch.
    pub fn switch(&self, flag: &Flag) -> bool {
        go::parse_bool(self.last(flag)).expect(CHECKED)
    }

    /// A signed number.
    pub fn int(&self, flag: &Flag) -> i64 {
        go::parse_int(self.last(flag)).expect(CHECKED)
    }

    /// An unsigned number.
    pub fn uint(&self, flag: &Flag) -> u64 {
        go::parse_uint(self.last(flag)).expect(CHECKED)
    }

    /// A duration; one that is less than none is none.
    pub fn duration(&self, flag: &Flag) -> Duration {
        go::parse_duration(self.last(flag)).expect(CHECKED)
    }

    /// All the texts of a list.
    pub fn list(&self, flag: &Flag) -> Vec<String> {
        let mut given = self.given.iter().filter(|(n, _)| *n == flag.name).map(|(_, v)| v.as_str()).peekable();
        let values: Vec<&str> = if given.peek().is_some() { given.collect() } else { vec![flag.default] };
        values.iter().filter(|v| !v.is_empty()).flat_map(|v| v.split(',')).map(str::to_owned).collect()
    }
}

/// The words of a command line, understood.
#[derive(Clone, Debug)]
pub struct Parsed<R: 'static> {
    /// From the program down to the command.
    pub path: Vec<&'static Command<R>>,
    /// The flags that were given.
    pub values: Values,
    /// The words that are no flags.
    pub args: Vec<String>,
    /// How many of them stood before `--`, if it was there.
    pub before_dash: Option<usize>,
}

impl<R> Parsed<R> {
    /// The command.
    pub fn command(&self) -> &'static Command<R> {
        last(&self.path)
    }

    /// A flag of the command.
    ///
    /// # Panics
    /// If it has none of this name: a mistake in the program.
    pub fn flag(&self, name: &str) -> &'static Flag {
        flag(&self.path, name)
    }

    /// The word that should have named a command below this one, and does not.
    pub fn stray(&self) -> Option<&str> {
        let command = self.command();
        let wrong = command.has_subs() && command.run.is_none() && !self.values.switch(&HELP);
        self.args.first().filter(|_| wrong).map(String::as_str)
    }

    /// What carries the command out; none if its help is wanted, or if only commands below it run.
    ///
    /// # Errors
    /// If the words are too many or too few, or a flag is missing.
    pub fn runnable(&self) -> Result<Option<R>, String>
    where
        R: Copy,
    {
        let Some(run) = self.command().run.filter(|_| !self.values.switch(&HELP)) else { return Ok(None) };
        if let Some(words) = self.command().words.filter(|words| *words != self.args.len()) {
            return Err(format!("accepts {words} arg(s), received {}", self.args.len()));
        }
        let required = known(&self.path).into_iter().filter(|flag| flag.required);
        let missing: Vec<String> =
            required.filter(|flag| !self.values.changed(flag.name)).map(|flag| quote(flag.name)).collect();
        if missing.is_empty() { Ok(Some(run)) } else { Err(format!("required flag(s) {} not set", missing.join(", "))) }
    }
}

/// Words that could not be understood, and the command they were meant for.
#[derive(Debug)]
pub struct Misread<R: 'static> {
    /// From the program down to the command.
    pub path: Vec<&'static Command<R>>,
    /// What is wrong.
    pub text: String,
    /// Whether how the command is used should follow; otherwise a pointer to
    /// the help.
    pub usage: bool,
}

/// Every flag that a command takes: its own, those its parents share with it,
/// and `--help`.
pub fn known<R>(path: &Path<R>) -> Vec<&'static Flag> {
    let own = path.last().map_or(&[][..], |c| c.flags);
    own.iter().chain(path.iter().flat_map(|c| c.shared.iter())).chain([&HELP]).collect()
}

/// One of them.
///
/// # Panics
/// If the command has none of this name: a mistake in the program.
pub fn flag<R>(path: &Path<R>, name: &str) -> &'static Flag {
    known(path).into_iter().find(|flag| flag.name == name).unwrap_or_else(|| panic!("no flag --{name}"))
}

/// Reads a command line.
///
/// # Errors
/// See [`Misread`].
pub fn parse<R>(root: &'static Command<R>, words: &[String]) -> Result<Parsed<R>, Misread<R>> {
    read(root, words, false)
}

/// Reads the beginning of a command line: the last flag may want a value yet.
///
/// # Errors
/// See [`Misread`].
pub fn parse_lenient<R>(root: &'static Command<R>, words: &[String]) -> Result<Parsed<R>, Misread<R>> {
    read(root, words, true)
}

fn read<R>(root: &'static Command<R>, words: &[String], lenient: bool) -> Result<Parsed<R>, Misread<R>> {
    let (path, mut rest) = find(root, words);
    if lenient && rest.last().is_some_and(|word| takes_next(word, &known(&path))) {
        rest.pop();
    }
    let misread = |text| Misread { path: path.clone(), text, usage: true };
    let mut parsed = Parsed { path: path.clone(), values: Values::default(), args: Vec::new(), before_dash: None };
    if path.len() == 1
        && root.has_subs()
        && let Some(word) = bare(&rest, &on_the_way(&path)).first()
    {
        let text = unknown_command(&path, word);
        return Err(Misread { path, text, usage: false });
    }
    let flags = known(&path);
    let mut rest = rest.into_iter().peekable();
    while let Some(word) = rest.next() {
        if word == "--" {
            parsed.before_dash = Some(parsed.args.len());
            parsed.args.extend(rest);
            break;
        } else if let Some(long) = word.strip_prefix("--") {
            let (flag, value) = long_flag(&word, long, &flags).map_err(misread)?;
            let value = match value {
                Some(value) => value,
                None if flag.kind == Kind::Bool => "true".to_owned(),
                None => rest.next().ok_or_else(|| misread(format!("flag needs an argument: --{}", flag.name)))?,
            };
            set(&mut parsed.values, flag, value).map_err(misread)?;
        } else if word.starts_with('-') && word != "-" {
            letters(&word, &flags, &mut rest, &mut parsed.values).map_err(misread)?;
        } else {
            parsed.args.push(word);
        }
    }
    Ok(parsed)
}

fn long_flag<'f>(word: &str, long: &str, flags: &[&'f Flag]) -> Result<(&'f Flag, Option<String>), String> {
    if long.starts_with(['-', '=']) {
        return Err(format!("bad flag syntax: {word}"));
    }
    let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v.to_owned())));
    match flags.iter().find(|f| f.name == name) {
        Some(flag) => Ok((flag, value)),
        None => Err(format!("unknown flag: --{name}")),
    }
}

/// One word of flags of one letter each, such as `-wjson` or `-il`.
fn letters(
    word: &str,
    flags: &[&'static Flag],
    rest: &mut impl Iterator<Item = String>,
    values: &mut Values,
) -> Result<(), String> {
    let mut letters = word[1..].chars();
    while let Some(letter) = letters.next() {
        let here: String = std::iter::once(letter).chain(letters.clone()).collect();
        let Some(flag) = flags.iter().find(|f| f.short == Some(letter)) else {
            return Err(format!("unknown shorthand flag: '{letter}' in -{here}"));
        };
        let tail = letters.as_str();
        if let Some(value) = tail.strip_prefix('=').filter(|value| !value.is_empty()) {
            return set(values, flag, value.to_owned());
        }
        if flag.kind == Kind::Bool {
            set(values, flag, "true".to_owned())?;
            continue;
        }
        let value = if tail.is_empty() { rest.next() } else { Some(tail.to_owned()) };
        let value = value.ok_or_else(|| format!("flag needs an argument: '{letter}' in -{here}"))?;
        return set(values, flag, value);
    }
    Ok(())
}

fn set(values: &mut Values, flag: &'static Flag, value: String) -> Result<(), String> {
    flag.check(&value)
        .map_err(|reason| format!("invalid argument {} for \"{}\" flag: {reason}", quote(&value), flag.shown()))?;
    values.set(flag, value);
    Ok(())
}

/// Follows the words down the tree of commands; gives back the words that name
/// none of them.
fn find<R>(root: &'static Command<R>, words: &[String]) -> (Vec<&'static Command<R>>, Vec<String>) {
    let mut path = vec![root];
    let mut words = words.to_vec();
    loop {
        let flags = on_the_way(&path);
        let Some(next) = bare(&words, &flags).first().copied().map(str::to_owned) else { break };
        let Some(sub) = last(&path).sub(&next) else { break };
        let at = position(&words, &flags, &next);
        words.remove(at);
        path.push(sub);
    }
    (path, words)
}

/// The flags that are known while the words are followed down the tree. cobra makes `--help` only
/// when a command runs, so before the name of a subcommand it is a flag that is not known; etcdctl
/// itself has it before that.
fn on_the_way<R>(path: &Path<R>) -> Vec<&'static Flag> {
    let early = path.len() == 1 && path[0].pages != Pages::Usage;
    known(path).into_iter().filter(|flag| early || flag.name != HELP.name).collect()
}

/// Where words leave the tree: the commands that they name, and the bare words from the first one
/// that should name a command and does not. None if a command is named that takes words, or if no
/// word is left.
pub fn stray<R>(root: &'static Command<R>, words: &[String]) -> Option<(Vec<&'static Command<R>>, Vec<String>)> {
    let (path, rest) = find(root, words);
    let left: Vec<String> = bare(&rest, &known(&path)).into_iter().map(str::to_owned).collect();
    let names_none = last(&path).has_subs() || last(&path).words == Some(0);
    (names_none && !left.is_empty()).then_some((path, left))
}

/// Whether the word takes the one after it as its value. Before the command is
/// known, a flag that is not known is thought to.
fn takes_next(word: &str, flags: &[&Flag]) -> bool {
    if word.contains('=') || !word.starts_with('-') {
        return false;
    }
    let flag = match word.strip_prefix("--") {
        Some(name) => flags.iter().find(|f| f.name == name),
        None if word.chars().count() == 2 => flags.iter().find(|f| f.short == word.chars().nth(1)),
        None => return false,
    };
    flag.is_none_or(|f| f.kind != Kind::Bool)
}

/// The words that are neither flags nor their values, up to `--`.
fn bare<'w>(words: &'w [String], flags: &[&Flag]) -> Vec<&'w str> {
    let mut found = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--" => break,
            _ if takes_next(word, flags) => drop(words.next()),
            _ if !word.is_empty() && !word.starts_with('-') => found.push(word),
            _ => {}
        }
    }
    found
}

fn position(words: &[String], flags: &[&Flag], bare: &str) -> usize {
    let mut at = 0;
    while words[at] != bare || words[at].starts_with('-') {
        at += if takes_next(&words[at], flags) { 2 } else { 1 };
    }
    at
}

/// What is said about a word that names no command below the last of the path.
pub fn unknown_command<R>(path: &Path<R>, word: &str) -> String {
    let mut text = format!("unknown command {} for \"{}\"", quote(word), path_words(path));
    // cobra never suggests `help`.
    let names = last(path).all_subs().filter(|c| !c.hidden && c.name != "help").map(|c| c.name);
    let near: Vec<&str> = names.filter(|name| is_near(word, name)).collect();
    if !near.is_empty() {
        text += "\n\nDid you mean this?\n";
        for name in near {
            text += &format!("\t{name}\n");
        }
    }
    text
}

fn is_near(typed: &str, name: &str) -> bool {
    distance(typed, name) <= 2 || name.to_lowercase().starts_with(&typed.to_lowercase())
}

/// Levenshtein's distance, without regard to case.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    const fn row(name: &'static str, flags: &'static [Flag], subs: &'static [&'static [Command<()>]]) -> Command<()> {
        Command { name, flags, subs, run: if subs.is_empty() { Some(()) } else { None }, ..Command::NONE }
    }

    static ROOT: Command<()> = Command {
        name: "etcdctl",
        shared: &[
            Flag::list("endpoints", "", ""),
            Flag::switch("hex", ""),
            Flag::text("write-out", "simple", "").short('w'),
        ],
        subs: &[&[
            row("elect", &[Flag::switch("listen", "").short('l')], &[]),
            row("get", &[Flag::int("limit", "0", ""), Flag::switch("prefix", "")], &[]),
            row("help", &[], &[]),
            row("lease", &[], &[&[row("list", &[], &[])]]),
            Command { hidden: true, ..row("lost", &[], &[]) },
            Command { words: Some(1), ..row("status", &[Flag::text("dir", "", "").required()], &[]) },
            row("version", &[], &[]),
            row("watch", &[], &[]),
        ]],
        ..Command::NONE
    };

    /// `command | flags | arguments | how many before --`, or what is wrong.
    fn read(line: &str) -> String {
        match parse(&ROOT, &words(line)) {
            Ok(parsed) => {
                if let Err(text) = parsed.runnable() {
                    return text;
                }
                let given: Vec<String> = parsed.values.given.iter().map(|(n, v)| format!("{n}={v}")).collect();
                let dash = parsed.before_dash.map_or(String::new(), |n| format!(" | {n}"));
                format!(
                    "{} | {} | {}{dash}",
                    crate::path_words(&parsed.path[1..]),
                    given.join(" "),
                    parsed.args.join(" ")
                )
            }
            Err(misread) => misread.text,
        }
    }

    #[test]
    fn command_lines_are_read_as_cobra_reads_them() {
        let cases = [
            ("get a", "get |  | a"),
            ("get a --limit 5 b", "get | limit=5 | a b"),
            ("get --limit=5 a", "get | limit=5 | a"),
            ("--endpoints x get a", "get | endpoints=x | a"),
            ("-w json get a", "get | write-out=json | a"),
            ("get a -wjson", "get | write-out=json | a"),
            ("get a -w=json", "get | write-out=json | a"),
            ("get a --hex=false", "get | hex=false | a"),
            ("get a --prefix b", "get | prefix=true | a b"),
            ("get -- -a --b", "get |  | -a --b | 0"),
            ("watch k -- echo -n", "watch |  | k echo -n | 1"),
            ("get -", "get |  | -"),
            ("le li", "lease list |  | "),
            ("lease --hex list", "lease list | hex=true | "),
            ("elect -l e", "elect | listen=true | e"),
            ("get --limit 0x10 a", "get | limit=0x10 | a"),
            ("get --foo", "unknown flag: --foo"),
            ("get -x", "unknown shorthand flag: 'x' in -x"),
            ("get --limit", "flag needs an argument: --limit"),
            ("get -w", "flag needs an argument: 'w' in -w"),
            ("get ---a", "bad flag syntax: ---a"),
            ("get --=a", "bad flag syntax: --=a"),
            (
                "get --limit 5x",
                "invalid argument \"5x\" for \"--limit\" flag: strconv.ParseInt: parsing \"5x\": invalid syntax",
            ),
            ("get --write-out", "flag needs an argument: --write-out"),
            (
                "get --prefix=x",
                "invalid argument \"x\" for \"--prefix\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
            ),
            ("versoin", "unknown command \"versoin\" for \"etcdctl\"\n\nDid you mean this?\n\tversion\n"),
            ("hepl", "unknown command \"hepl\" for \"etcdctl\""),
            ("losttt", "unknown command \"losttt\" for \"etcdctl\""),
            ("lost", "lost |  | "),
            ("status a", "required flag(s) \"dir\" not set"),
            ("status --dir d a b", "accepts 1 arg(s), received 2"),
            ("status --dir d a", "status | dir=d | a"),
            ("status --help", "status | help=true | "),
            // Before a name `--help` is not known yet, and what is not known takes the next word.
            ("-h lease", " | help=true | lease"),
            ("-h lease list", "unknown command \"list\" for \"etcdctl\""),
            ("lease -h list", "lease | help=true | list"),
            ("lease --help list", "lease | help=true | list"),
            ("lease --help=true list", "lease list | help=true | "),
            ("lease -h --hex list", "lease list | help=true hex=true | "),
            ("lease -hh list", "lease list | help=true help=true | "),
            ("lease list -h", "lease list | help=true | "),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn words_that_name_no_command_are_found() {
        let cases = [
            ("lost", None),
            ("get a b", None),
            ("lease", None),
            ("lease list", None),
            ("lease foo bar", Some("lease | foo bar")),
            ("--endpoints x foo --hex bar", Some(" | foo bar")),
            ("lease -w json foo", Some("lease | foo")),
        ];
        for (line, expected) in cases {
            let found = stray(&ROOT, &words(line));
            let shown = found.map(|(path, left)| format!("{} | {}", crate::path_words(&path[1..]), left.join(" ")));
            assert_eq!(shown.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn etcdctl_has_its_own_help_before_the_words_are_followed() {
        static CTL: Command<()> = Command { pages: Pages::About(&[]), ..ROOT };
        let cases = [("-h lease", "lease"), ("-h lease list", "lease"), ("-h -h lease list", "lease list")];
        for (line, expected) in cases {
            let parsed = parse(&CTL, &words(line)).expect(line);
            assert_eq!(crate::path_words(&parsed.path[1..]), expected, "{line}");
            assert!(parsed.values.switch(&HELP), "{line}");
        }
    }
}
