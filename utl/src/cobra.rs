//! The command line in the shape of the stock tool: what its parser accepts, its help pages, its
//! error lines. Driven by a table of [`Command`]s, from which help and completion are made too.

use crate::hints::hint;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Text,
    Int,
    Uint,
    Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub short: Option<char>,
    pub kind: Kind,
    pub default: &'static str,
    pub required: bool,
    /// Accepted under both names, shown under `kvorum utl` alone.
    pub ours: bool,
    pub help: &'static str,
}

/// How many words a command takes.
#[derive(Clone, Copy, Debug)]
pub enum Words {
    /// It says itself what is wrong.
    Any,
    Exactly(usize),
}

/// Who sees a command in help pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Always,
    /// Known to both names, shown under `kvorum utl` alone.
    Ours,
    /// Unknown under `etcdutl`.
    OursAlone,
}

/// What carries a command out.
pub type Run = fn(&Call) -> Result<(), Failure>;

pub struct Command {
    pub name: &'static str,
    /// Behind the path in the usage line.
    pub usage: &'static str,
    pub short: &'static str,
    pub flags: &'static [Flag],
    pub words: Words,
    pub seen: Seen,
    /// None: only its children run.
    pub run: Option<Run>,
    pub children: &'static [Command],
}

/// Why a command did not do what was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A wrong command line: the usage follows. Status 1.
    Usage(String),
    /// `Error: text`, and the status to exit with.
    Plain { status: i32, text: String },
}

impl Failure {
    pub fn new(text: impl Into<String>) -> Failure {
        Failure::Plain { status: 1, text: text.into() }
    }

    /// Wrong arguments, in the stock tool's count of kinds.
    pub fn bad_arguments(text: impl Into<String>) -> Failure {
        Failure::Plain { status: 128, text: text.into() }
    }
}

/// A command line that was read.
pub struct Call {
    /// `etcdutl` or `kvorum utl`.
    pub program: String,
    pub root: &'static Command,
    pub words: Vec<String>,
    values: BTreeMap<&'static str, String>,
    /// Plain stock lines (`etcdutl`, or not on a terminal), or people's form.
    pub people: bool,
}

impl Call {
    pub fn text(&self, flag: &str) -> &str {
        self.values.get(flag).unwrap_or_else(|| panic!("flag {flag} is in the table"))
    }

    pub fn bool(&self, flag: &str) -> bool {
        go_bool(self.text(flag)).expect("checked when it was read")
    }

    pub fn int(&self, flag: &str) -> i64 {
        self.text(flag).parse().expect("checked when it was read")
    }

    pub fn uint(&self, flag: &str) -> u64 {
        self.text(flag).parse().expect("checked when it was read")
    }

    /// Milliseconds.
    pub fn duration(&self, flag: &str) -> u64 {
        go_duration(self.text(flag)).expect("checked when it was read")
    }
}

/// Flags of every command.
pub const GLOBAL: [Flag; 2] = [
    Flag {
        name: "timeout",
        short: None,
        kind: Kind::Duration,
        default: "10s",
        required: false,
        ours: false,
        help: "time to wait to obtain a file lock on db file, 0 to block indefinitely",
    },
    Flag {
        name: "write-out",
        short: Some('w'),
        kind: Kind::Text,
        default: "simple",
        required: false,
        ours: false,
        help: "set the output format (fields, json, protobuf, simple, table)",
    },
];

/// `--help`, which every command has.
pub const HELP: Flag =
    Flag { name: "help", short: Some('h'), kind: Kind::Bool, default: "false", required: false, ours: false, help: "" };

/// Runs what `args` say; the status to exit with.
pub fn main(program: &str, root: &'static Command, args: &[String], terminal: bool) -> i32 {
    let ours = program != "etcdutl";
    let (path, rest) = match find(root, args, ours) {
        Ok(found) => found,
        Err(error) => {
            let error = format!("unknown command {error}");
            eprintln!("Error: {error}\nRun '{program} --help' for usage.\nError: {error}");
            return 1;
        }
    };
    let page = Page { program, path: &path, ours };
    let command = page.command();
    let outcome = read(command, &rest).and_then(|read| {
        let run = command.run.filter(|_| read.values["help"] != "true");
        let Some(run) = run else {
            print!("{}", page.usage(true));
            return Ok(());
        };
        check(command, &read)?;
        let Read { words, values, .. } = read;
        run(&Call { program: program.to_string(), root, words, values, people: ours && terminal })
    });
    match outcome {
        Ok(()) => 0,
        Err(Failure::Plain { status, text }) => {
            eprintln!("Error: {text}");
            if let Some(hint) = hint(&text).filter(|_| ours && terminal) {
                eprintln!("Hint: {hint}");
            }
            status
        }
        Err(Failure::Usage(text)) => {
            let usage = page.usage(true);
            eprintln!("Error: {text}\n{usage}\nError: {text}");
            1
        }
    }
}

/// The page of `help`: of the root, or of the command that `words` name.
pub fn help(call: &Call) -> Result<(), Failure> {
    let ours = call.program != "etcdutl";
    let mut path = vec![call.root];
    for word in &call.words {
        match child(path[path.len() - 1], word, ours) {
            Some(next) => path.push(next),
            None if path.len() == 1 => {
                let page = Page { program: &call.program, path: &path, ours };
                eprint!("Unknown help topic [`{}`]\n{}", call.words.join("` `"), page.usage(false));
                return Ok(());
            }
            None => break,
        }
    }
    print!("{}", Page { program: &call.program, path: &path, ours }.usage(true));
    Ok(())
}

fn is_known(command: &Command, ours: bool) -> bool {
    ours || command.seen != Seen::OursAlone
}

/// By its name, or by a beginning of it that no other has.
fn child(parent: &'static Command, word: &str, ours: bool) -> Option<&'static Command> {
    let known = || parent.children.iter().filter(|child| is_known(child, ours));
    if let Some(exact) = known().find(|child| child.name == word) {
        return Some(exact);
    }
    let mut begun = known().filter(|child| !word.is_empty() && child.name.starts_with(word));
    begun.next().filter(|_| begun.next().is_none())
}

/// The command, from the root on, and the arguments without its words.
fn find(root: &'static Command, args: &[String], ours: bool) -> Result<(Vec<&'static Command>, Vec<String>), String> {
    let mut path = vec![root];
    let mut rest = Vec::new();
    let mut at = 0;
    while at < args.len() {
        let arg = &args[at];
        at += 1;
        let last = path[path.len() - 1];
        if arg == "--" {
            rest.push(arg.clone());
            break;
        }
        if arg.starts_with('-') && arg.len() > 1 {
            rest.push(arg.clone());
            if takes_next(last, arg) && at < args.len() {
                rest.push(args[at].clone());
                at += 1;
            }
            continue;
        }
        match child(last, arg, ours) {
            Some(next) => path.push(next),
            None if path.len() == 1 => return Err(unknown(root, arg, ours)),
            None => {
                rest.push(arg.clone());
                break;
            }
        }
    }
    rest.extend_from_slice(&args[at.min(args.len())..]);
    Ok((path, rest))
}

fn takes_next(command: &Command, arg: &str) -> bool {
    if arg.contains('=') {
        return false;
    }
    let flag = match arg.strip_prefix("--") {
        Some(name) => flags(command).find(|flag| flag.name == name),
        None if arg.len() == 2 => flags(command).find(|flag| flag.short == arg.chars().nth(1)),
        None => return false,
    };
    flag.is_none_or(|flag| flag.kind != Kind::Bool)
}

/// Who runs, and whom it was not mistaken for.
fn unknown(root: &Command, word: &str, ours: bool) -> String {
    let name = if ours { "kvorum utl" } else { root.name };
    let mut text = format!("{word:?} for {name:?}");
    let lower = word.to_lowercase();
    let near = |child: &&Command| {
        child.name != "help"
            && is_known(child, ours)
            && (ours || child.seen == Seen::Always)
            && (child.name.starts_with(&lower) || distance(&lower, child.name) <= 2)
    };
    let near: Vec<&str> = root.children.iter().filter(near).map(|child| child.name).collect();
    if !near.is_empty() {
        text.push_str("\n\nDid you mean this?\n");
        for name in near {
            writeln!(text, "\t{name}").expect("a string takes all");
        }
    }
    text
}

/// Letters to add, drop or change between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

fn flags(command: &Command) -> impl Iterator<Item = Flag> + use<'_> {
    command.flags.iter().copied().chain([HELP]).chain(GLOBAL)
}

struct Read {
    words: Vec<String>,
    /// Of every flag, defaults included.
    values: BTreeMap<&'static str, String>,
    given: BTreeSet<&'static str>,
}

fn read(command: &Command, args: &[String]) -> Result<Read, Failure> {
    let mut values: BTreeMap<&'static str, String> =
        flags(command).map(|flag| (flag.name, flag.default.to_string())).collect();
    let mut given = BTreeSet::new();
    let mut set = |flag: Flag, shown: String, value: &str| {
        if let Some(why) = refuse(flag.kind, value) {
            return Err(Failure::Usage(format!("invalid argument {value:?} for {shown:?} flag: {why}")));
        }
        let value = if flag.kind == Kind::Bool { go_bool(value).is_some_and(|b| b).to_string() } else { value.into() };
        values.insert(flag.name, value);
        given.insert(flag.name);
        Ok(())
    };
    let mut words = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            words.extend(args.cloned());
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let flag = flags(command).find(|flag| flag.name == name);
            let flag = flag.ok_or_else(|| Failure::Usage(format!("unknown flag: --{name}")))?;
            let value = match value {
                Some(value) => value,
                None if flag.kind == Kind::Bool => "true",
                None => args.next().ok_or_else(|| Failure::Usage(format!("flag needs an argument: --{name}")))?,
            };
            set(flag, shown(flag), value)?;
        } else if arg.starts_with('-') && arg.len() > 1 {
            let mut letters = &arg[1..];
            while let Some(letter) = letters.chars().next() {
                let flag = flags(command).find(|flag| flag.short == Some(letter));
                let flag =
                    flag.ok_or_else(|| Failure::Usage(format!("unknown shorthand flag: {letter:?} in {arg}")))?;
                letters = &letters[letter.len_utf8()..];
                let value = match (letters.strip_prefix('='), flag.kind) {
                    (Some(value), _) => value,
                    (None, Kind::Bool) => {
                        set(flag, shown(flag), "true")?;
                        continue;
                    }
                    (None, _) if !letters.is_empty() => letters,
                    (None, _) => {
                        let needs = || Failure::Usage(format!("flag needs an argument: {letter:?} in {arg}"));
                        args.next().ok_or_else(needs)?
                    }
                };
                set(flag, shown(flag), value)?;
                break;
            }
        } else {
            words.push(arg.clone());
        }
    }
    Ok(Read { words, values, given })
}

fn shown(flag: Flag) -> String {
    flag.short.map_or(format!("--{}", flag.name), |short| format!("-{short}, --{}", flag.name))
}

fn check(command: &Command, read: &Read) -> Result<(), Failure> {
    if let Words::Exactly(count) = command.words
        && read.words.len() != count
    {
        return Err(Failure::Usage(format!("accepts {count} arg(s), received {}", read.words.len())));
    }
    let missing = command.flags.iter().filter(|flag| flag.required && !read.given.contains(flag.name));
    let missing: Vec<String> = missing.map(|flag| format!("{:?}", flag.name)).collect();
    if !missing.is_empty() {
        return Err(Failure::Usage(format!("required flag(s) {} not set", missing.join(", "))));
    }
    Ok(())
}

/// In the words of the language the stock tool is written in.
fn refuse(kind: Kind, value: &str) -> Option<String> {
    let number = |function: &str, bad: Option<std::num::IntErrorKind>| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let what = match bad? {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Some(format!("strconv.{function}: parsing {value:?}: {what}"))
    };
    match kind {
        Kind::Text => None,
        Kind::Bool if go_bool(value).is_some() => None,
        Kind::Bool => Some(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")),
        Kind::Int => number("ParseInt", value.parse::<i64>().err().map(|error| *error.kind())),
        Kind::Uint => number("ParseUint", value.parse::<u64>().err().map(|error| *error.kind())),
        Kind::Duration if go_duration(value).is_some() => None,
        Kind::Duration => Some(format!("time: invalid duration {value:?}")),
    }
}

fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Milliseconds of `1h2m3.5s`; a plain 0 needs no unit.
fn go_duration(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut sum = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            "ns" => 1e-6,
            "us" | "µs" | "μs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 60e3,
            "h" => 3600e3,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * unit;
        rest = tail;
    }
    (sum < 1e15).then_some(sum as u64)
}

/// What a flag takes, with a space before it.
pub fn kind_of(flag: &Flag) -> &'static str {
    match flag.kind {
        Kind::Bool => "",
        Kind::Text => " string",
        Kind::Int => " int",
        Kind::Uint => " uint",
        Kind::Duration => " duration",
    }
}

/// The default of a flag in parentheses, with a space before them; nothing if it says nothing.
pub fn default_of(flag: &Flag) -> String {
    match (flag.kind, flag.default) {
        (Kind::Bool, _) | (_, "" | "0") => String::new(),
        (Kind::Text, default) => format!(" (default {default:?})"),
        (_, default) => format!(" (default {default})"),
    }
}

/// A help page.
struct Page<'a> {
    program: &'a str,
    path: &'a [&'static Command],
    ours: bool,
}

impl Page<'_> {
    fn command(&self) -> &'static Command {
        self.path[self.path.len() - 1]
    }

    /// The words up to `depth` commands below the root.
    fn name(&self, depth: usize) -> String {
        let names = std::iter::once(self.program).chain(self.path[1..=depth].iter().map(|command| command.name));
        names.collect::<Vec<_>>().join(" ")
    }

    fn usage(&self, with_help: bool) -> String {
        let (command, depth) = (self.command(), self.path.len() - 1);
        let name = self.name(depth);
        let mut out = String::from("Usage:\n");
        if command.run.is_some() {
            out.push_str(&format!("  {} {}\n", self.name(depth.saturating_sub(1)), command.usage));
        }
        if !command.children.is_empty() {
            out.push_str(&format!("  {name} [command]\n\nAvailable Commands:\n"));
            let shown = |child: &&Command| self.ours || child.seen == Seen::Always;
            for child in command.children.iter().filter(shown) {
                writeln!(out, "  {:<11} {}", child.name, child.short).expect("a string takes all");
            }
        }
        let help = Flag { help: "help for ", ..HELP };
        let mut own: Vec<Flag> = command.flags.iter().filter(|flag| self.ours || !flag.ours).copied().collect();
        if with_help {
            own.push(help);
        }
        let root = self.path.len() == 1;
        if root {
            own.extend(GLOBAL);
        }
        own.sort_by_key(|flag| flag.name);
        let subject = if root { self.program } else { command.name };
        if !own.is_empty() {
            out.push_str("\nFlags:\n");
            out.push_str(&flag_lines(&own, subject));
        }
        if !root {
            out.push_str("\nGlobal Flags:\n");
            out.push_str(&flag_lines(&GLOBAL, subject));
        }
        if !command.children.is_empty() {
            writeln!(out, "\nUse \"{name} [command] --help\" for more information about a command.")
                .expect("a string takes all");
        }
        out
    }
}

fn flag_lines(flags: &[Flag], subject: &str) -> String {
    let left = |flag: &Flag| {
        let short = flag.short.map_or("    ".to_string(), |short| format!("-{short}, "));
        format!("  {short}--{}{}", flag.name, kind_of(flag))
    };
    let width = flags.iter().map(|flag| left(flag).len()).max().unwrap_or(0);
    let mut out = String::new();
    for flag in flags {
        let default = default_of(flag);
        let help = if flag.name == "help" { format!("help for {subject}") } else { flag.help.to_string() };
        writeln!(out, "{:<width$}   {help}{default}", left(flag)).expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let table = [
            ("10s", Some(10_000)),
            ("0", Some(0)),
            ("1h2m3.5s", Some(3_723_500)),
            ("150ms", Some(150)),
            ("x", None),
            ("", None),
            ("10", None),
            ("s", None),
        ];
        for (text, ms) in table {
            assert_eq!(go_duration(text), ms, "{text}");
        }
    }

    #[test]
    fn near_words_are_suggested() {
        assert_eq!(distance("hashvk", "hashkv"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("defrag", "defrag"), 0);
    }
}
