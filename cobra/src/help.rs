//! Help and usage, in the sections and columns of the stock tools.

use crate::table::{Command, Flag, HELP, Kind, Pages, Path, last, path_words};

/// The whole help of a command.
pub fn help<R>(path: &Path<R>) -> String {
    if path[0].pages == Pages::Usage {
        return usage(path);
    }
    let command = last(path);
    let about = if command.long.is_empty() { command.short } else { command.long };
    let mut text = String::new();
    if !about.is_empty() {
        text += &format!("{}\n\n", about.trim_end());
    }
    text += &usage(path);
    let program = path[0].name;
    text +=
        &format!("Use \"{program} options\" for a list of global command-line options (applies to all commands).\n");
    text
}

/// How a command is used.
pub fn usage<R>(path: &Path<R>) -> String {
    page(path, &[&HELP])
}

/// What is said about words behind `help` that name no command of the program.
pub fn unknown_topic<R>(root: &'static Command<R>, words: &[String]) -> String {
    // cobra makes `--help` when a command runs, and none has run.
    format!("Unknown help topic [`{}`]\n{}", words.join("` `"), page(&[root], &[]).trim_end())
}

fn page<R>(path: &Path<R>, help: &[&'static Flag]) -> String {
    let command = last(path);
    let words = path_words(path);
    let mut text = "Usage:\n".to_owned();
    if command.run.is_some() {
        text += &format!("  {}\n", use_line(path));
    }
    if command.has_subs() {
        text += &format!("  {words} [command]\n");
    }
    if !command.examples.is_empty() {
        text += &format!("\nExamples:\n{}\n", command.examples.trim_end());
    }
    if command.has_subs() {
        text += &sub_list(path);
    }
    // etcdctl's program flags have a page of their own: `options`.
    let apart = path[0].pages != Pages::Usage;
    if path.len() > 1 || !apart {
        let own = command.flags.iter().chain(command.shared).chain(help.iter().copied());
        text += &format!("\nFlags:\n{}", flag_lines(own, command.name));
    }
    let parents = path[..path.len() - 1].iter().skip(usize::from(apart));
    let shared: Vec<&Flag> = parents.flat_map(|c| c.shared).collect();
    if !shared.is_empty() {
        text += &format!("\nGlobal Flags:\n{}", flag_lines(shared, command.name));
    }
    if command.has_subs() {
        text += &format!("\nUse \"{words} [command] --help\" for more information about a command.\n");
    }
    text
}

fn use_line<R>(path: &Path<R>) -> String {
    let command = last(path);
    let parents = path_words(&path[..path.len() - 1]);
    let flags = if command.usage.contains("[flags]") || command.bare_usage { "" } else { " [flags]" };
    format!("{parents} {}{flags}", command.usage)
}

/// The commands below one, in groups with a heading each; no heading where there are no groups.
pub(crate) fn groups<R>(path: &Path<R>) -> Vec<(&'static str, Vec<&'static Command<R>>)> {
    let headings = match path[0].pages {
        Pages::About(headings) => headings,
        Pages::Usage => &[],
    };
    let subs = last(path).shown_subs();
    let below = |heading: &'static str| {
        let subs: Vec<_> = subs.iter().copied().filter(|c| c.group == heading).collect();
        (!subs.is_empty()).then_some((heading, subs))
    };
    headings.iter().copied().chain([""]).filter_map(below).collect()
}

fn sub_list<R>(path: &Path<R>) -> String {
    let mut text = String::new();
    for (heading, subs) in groups(path) {
        text += &format!("\n{}\n", if heading.is_empty() { "Available Commands:" } else { heading });
        subs.iter().for_each(|c| text += &format!("  {:<11} {}\n", c.name, c.short));
    }
    text
}

/// Flags in columns, sorted by name.
fn flag_lines(flags: impl IntoIterator<Item = &'static Flag>, command: &str) -> String {
    let flags = sorted(flags);
    let heads: Vec<String> = flags.iter().map(|f| head(f)).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    let line = |(flag, head): (&&Flag, &String)| format!("{head:<width$}   {}\n", about(flag, command));
    flags.iter().zip(&heads).map(line).collect()
}

/// Those that are shown, sorted by name.
pub(crate) fn sorted(flags: impl IntoIterator<Item = &'static Flag>) -> Vec<&'static Flag> {
    let mut flags: Vec<_> = flags.into_iter().filter(|flag| !flag.hidden).collect();
    flags.sort_by_key(|flag| flag.name);
    flags
}

fn head(flag: &Flag) -> String {
    let letter = flag.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    format!("  {letter}--{}{}", flag.name, kind_of(flag))
}

/// What a flag takes, with a space before it.
pub(crate) fn kind_of(flag: &Flag) -> &'static str {
    match flag.kind {
        Kind::Bool => "",
        Kind::Text => " string",
        Kind::Int => " int",
        Kind::Uint => " uint",
        Kind::Duration => " duration",
        Kind::List => " strings",
    }
}

/// What a flag says, and its default in parentheses unless that says nothing.
pub(crate) fn about(flag: &Flag, command: &str) -> String {
    if flag.name == HELP.name {
        return format!("help for {command}");
    }
    let default = match flag.kind {
        Kind::Bool if flag.default == "false" => String::new(),
        Kind::Int | Kind::Uint if flag.default == "0" => String::new(),
        _ if flag.default.is_empty() => String::new(),
        Kind::Text => format!(" (default \"{}\")", flag.default),
        Kind::List => format!(" (default [{}])", flag.default),
        _ => format!(" (default {})", flag.default),
    };
    format!("{}{default}", flag.text)
}

/// The page of the flags that every command takes.
pub fn options<R>(root: &'static Command<R>) -> String {
    format!("The following options can be passed to any command:\n\n{}", flag_lines(root.shared, root.name))
}
