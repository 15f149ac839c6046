//! Reading the words of a command line as cobra and pflag read them: flags
//! anywhere, `--flag v`, `--flag=v`, `-w json`, `-wjson`, `--`, prefixes of
//! command names. Scripts depend on each of these, and on the error lines.

use std::time::Duration;

use crate::commands::Command;

/// What a flag holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Needs no value.
    Bool,
    /// Any text.
    Text,
    /// A signed 64-bit number, decimal or with a Go prefix.
    Int,
    /// An unsigned number.
    Uint,
    /// A Go duration such as `1m30s`.
    Duration,
    /// Texts separated by commas; may be given several times.
    List,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// One letter.
    pub short: Option<char>,
    /// What it holds.
    pub kind: Kind,
    /// As it would be typed.
    pub default: &'static str,
    /// One line for the help.
    pub text: &'static str,
}

impl Flag {
    const fn new(name: &'static str, kind: Kind, default: &'static str, text: &'static str) -> Flag {
        Flag { name, short: None, kind, default, text }
    }

    /// A switch that is off.
    pub const fn switch(name: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Bool, "false", text)
    }

    /// A switch that is on.
    pub const fn switch_on(name: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Bool, "true", text)
    }

    /// A text.
    pub const fn text(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Text, default, text)
    }

    /// A signed number.
    pub const fn int(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Int, default, text)
    }

    /// An unsigned number.
    pub const fn uint(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Uint, default, text)
    }

    /// A duration.
    pub const fn duration(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::Duration, default, text)
    }

    /// A list.
    pub const fn list(name: &'static str, default: &'static str, text: &'static str) -> Flag {
        Flag::new(name, Kind::List, default, text)
    }

    /// The same flag with a letter.
    pub const fn short(mut self, letter: char) -> Flag {
        self.short = Some(letter);
        self
    }

    fn shown(&self) -> String {
        self.short.map_or_else(|| format!("--{}", self.name), |letter| format!("-{letter}, --{}", self.name))
    }

    /// Whether the text is a value of this flag.
    ///
    /// # Errors
    /// Go's words for what is wrong with it.
    pub fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            Kind::Bool => parse_bool(value).map(drop),
            Kind::Int => parse_int(value).map(drop),
            Kind::Uint => parse_uint(value).map(drop),
            Kind::Duration => parse_duration(value).map(drop),
            Kind::Text | Kind::List => Ok(()),
        }
    }
}

/// `--help`, which every command has.
pub const HELP: Flag = Flag::switch("help", "").short('h');

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

    /// All the texts of a list.
    pub fn list(&self, flag: &Flag) -> Vec<String> {
        let mut given = self.given.iter().filter(|(n, _)| *n == flag.name).map(|(_, v)| v.as_str()).peekable();
        let values: Vec<&str> = if given.peek().is_some() { given.collect() } else { vec![flag.default] };
        values.iter().filter(|v| !v.is_empty()).flat_map(|v| v.split(',')).map(str::to_owned).collect()
    }
}

/// The words of a command line, understood.
#[derive(Debug)]
pub struct Parsed {
    /// From the program down to the command.
    pub path: Vec<&'static Command>,
    /// The flags that were given.
    pub values: Values,
    /// The words that are no flags.
    pub args: Vec<String>,
    /// How many of them stood before `--`, if it was there.
    pub before_dash: Option<usize>,
}

impl Parsed {
    /// The command.
    pub fn command(&self) -> &'static Command {
        self.path.last().expect("the path begins with the program")
    }
}

/// Words that could not be understood, and the command they were meant for.
#[derive(Debug)]
pub struct Misread {
    /// From the program down to the command.
    pub path: Vec<&'static Command>,
    /// What is wrong.
    pub text: String,
    /// Whether how the command is used should follow; otherwise a pointer to
    /// the help.
    pub usage: bool,
}

/// Every flag that a command takes: its own, those its parents share with it,
/// and `--help`.
pub fn known(path: &[&'static Command]) -> Vec<&'static Flag> {
    let own = path.last().map_or(&[][..], |c| c.flags);
    own.iter().chain(path.iter().flat_map(|c| c.shared.iter())).chain([&HELP]).collect()
}

/// Reads a command line.
///
/// # Errors
/// See [`Misread`].
pub fn parse(root: &'static Command, words: &[String]) -> Result<Parsed, Misread> {
    read(root, words, false)
}

/// Reads the beginning of a command line: the last flag may want a value yet.
///
/// # Errors
/// See [`Misread`].
pub fn parse_lenient(root: &'static Command, words: &[String]) -> Result<Parsed, Misread> {
    read(root, words, true)
}

fn read(root: &'static Command, words: &[String], lenient: bool) -> Result<Parsed, Misread> {
    let (path, mut rest) = find(root, words);
    if lenient && rest.last().is_some_and(|word| takes_next(word, &known(&path))) {
        rest.pop();
    }
    let misread = |text| Misread { path: path.clone(), text, usage: true };
    let mut parsed = Parsed { path: path.clone(), values: Values::default(), args: Vec::new(), before_dash: None };
    if path.len() == 1
        && root.has_subs()
        && let Some(word) = bare(&rest, &known(&path)).first()
    {
        return Err(Misread { path, text: unknown_command(root, word), usage: false });
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
fn find(root: &'static Command, words: &[String]) -> (Vec<&'static Command>, Vec<String>) {
    let mut path = vec![root];
    let mut words = words.to_vec();
    loop {
        let here = *path.last().expect("begins with the program");
        let flags = known(&path);
        let Some(next) = bare(&words, &flags).first().copied().map(str::to_owned) else { break };
        let Some(sub) = here.sub(&next) else { break };
        let at = position(&words, &flags, &next);
        words.remove(at);
        path.push(sub);
    }
    (path, words)
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

fn unknown_command(root: &Command, word: &str) -> String {
    let mut text = format!("unknown command {} for \"{}\"", quote(word), root.name);
    let near: Vec<&str> = root.all_subs().map(|c| c.name).filter(|name| is_near(word, name)).collect();
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

/// A text in quotes, as Go writes it.
pub fn quote(text: &str) -> String {
    crate::print::quote(&crate::raw::bytes(text))
}

fn go_error(function: &str, value: &str, reason: &str) -> String {
    format!("strconv.{function}: parsing {}: {reason}", quote(value))
}

/// A truth value in one of Go's spellings.
///
/// # Errors
/// Go's words.
pub fn parse_bool(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(go_error("ParseBool", value, "invalid syntax")),
    }
}

fn radix(digits: &str) -> (u32, &str) {
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    }
}

fn magnitude(digits: &str) -> Result<u64, &'static str> {
    let (radix, digits) = radix(digits);
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return Err("invalid syntax");
    }
    if digits.chars().any(|c| !c.is_digit(radix)) {
        return Err("invalid syntax");
    }
    u64::from_str_radix(digits, radix).map_err(|_| "value out of range")
}

/// A signed number, with a prefix of its base or none.
///
/// # Errors
/// Go's words.
pub fn parse_int(value: &str) -> Result<i64, String> {
    let (negative, digits) = match value.as_bytes().first() {
        Some(b'-') => (true, &value[1..]),
        Some(b'+') => (false, &value[1..]),
        _ => (false, value),
    };
    let bad = |reason| go_error("ParseInt", value, reason);
    let size = i128::from(magnitude(digits).map_err(bad)?);
    i64::try_from(if negative { -size } else { size }).map_err(|_| bad("value out of range"))
}

/// An unsigned number, with a prefix of its base or none.
///
/// # Errors
/// Go's words.
pub fn parse_uint(value: &str) -> Result<u64, String> {
    magnitude(value).map_err(|reason| go_error("ParseUint", value, reason))
}

/// A duration such as `1.5h` or `2m3s`.
///
/// # Errors
/// Go's words.
pub fn parse_duration(value: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", quote(value));
    let mut rest = value.strip_prefix(['+', '-']).unwrap_or(value);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| invalid())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "" => return Err(format!("time: missing unit in duration {}", quote(value))),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            other => return Err(format!("time: unknown unit {} in duration {}", quote(other), quote(value))),
        };
        seconds += number * unit;
        rest = &rest[end..];
    }
    // Time that is less than none has run out, as it has for a context in Go.
    let seconds = if value.starts_with('-') { 0.0 } else { seconds };
    Duration::try_from_secs_f64(seconds).map_err(|_| invalid())
}

/// A signed decimal number, as arguments are read.
///
/// # Errors
/// Go's words.
pub fn parse_decimal(value: &str) -> Result<i64, String> {
    value.parse::<i64>().map_err(|error| {
        let reason = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        go_error("ParseInt", value, reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    /// `command | flags | arguments | how many before --`, or what is wrong.
    fn read(line: &str) -> String {
        match parse(crate::commands::root(crate::STOCK), &words(line)) {
            Ok(parsed) => {
                let given: Vec<String> = parsed.values.given.iter().map(|(n, v)| format!("{n}={v}")).collect();
                let dash = parsed.before_dash.map_or(String::new(), |n| format!(" | {n}"));
                format!(
                    "{} | {} | {}{dash}",
                    crate::help::path_words(&parsed.path[1..]),
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
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn durations_are_go_s() {
        let good = [("5s", 5000), ("1m30s", 90_000), ("1.5h", 5_400_000), ("300ms", 300), ("0", 0), ("-5s", 0)];
        for (text, millis) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        let bad = [
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("x", "time: invalid duration \"x\""),
            ("", "time: invalid duration \"\""),
        ];
        for (text, reason) in bad {
            assert_eq!(parse_duration(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn numbers_have_go_s_bounds_and_prefixes() {
        assert_eq!(parse_int("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_int("0b11"), Ok(3));
        assert_eq!(parse_int("017"), Ok(15));
        assert!(parse_int("9223372036854775808").unwrap_err().ends_with("value out of range"));
        assert!(parse_int("--5").is_err() && parse_int("").is_err() && parse_int("0x").is_err());
        assert!(parse_uint("-1").is_err());
    }
}
