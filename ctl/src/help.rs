//! Help and usage, in the sections and columns of the stock tool.

use crate::{
    commands::Command,
    flags::{Flag, HELP, Kind},
};

/// The words that name a command, such as `etcdctl lease grant`.
pub fn path_words(path: &[&Command]) -> String {
    path.iter().map(|c| c.name).collect::<Vec<_>>().join(" ")
}

/// The whole help of a command.
pub fn help(path: &[&'static Command]) -> String {
    let command = path.last().expect("the path begins with the program");
    let about = if command.long.is_empty() { command.short } else { command.long };
    let mut text = String::new();
    if !about.is_empty() {
        text += &format!("{}\n\n", about.trim_end());
    }
    text += &usage(path);
    text += &options_hint(path[0].name);
    text
}

fn options_hint(program: &str) -> String {
    format!("Use \"{program} options\" for a list of global command-line options (applies to all commands).\n")
}

/// How a command is used.
pub fn usage(path: &[&'static Command]) -> String {
    let command = path.last().expect("the path begins with the program");
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
    // The program's own flags have a page of their own: `options`.
    if path.len() > 1 {
        let own: Vec<&Flag> = command.flags.iter().chain(command.shared).chain([&HELP]).collect();
        text += &format!("\nFlags:\n{}", flag_lines(&own, command.name));
        let shared: Vec<&Flag> = path[1..path.len() - 1].iter().flat_map(|c| c.shared).collect();
        if !shared.is_empty() {
            text += &format!("\nGlobal Flags:\n{}", flag_lines(&shared, command.name));
        }
    }
    if command.has_subs() {
        text += &format!("\nUse \"{words} [command] --help\" for more information about a command.\n");
    }
    text
}

fn use_line(path: &[&'static Command]) -> String {
    let command = path.last().expect("the path begins with the program");
    let parents = path_words(&path[..path.len() - 1]);
    let flags = if command.usage.contains("[flags]") || command.bare_usage { "" } else { " [flags]" };
    format!("{parents} {}{flags}", command.usage)
}

fn sub_list(path: &[&'static Command]) -> String {
    let command = path.last().expect("the path begins with the program");
    let mut subs: Vec<&Command> = command.all_subs().collect();
    subs.sort_by_key(|c| c.name);
    let line = |c: &&Command| format!("  {:<11} {}\n", c.name, c.short);
    let groups: Vec<&str> =
        crate::commands::GROUPS.iter().copied().filter(|g| subs.iter().any(|c| c.group == *g)).collect();
    if groups.is_empty() {
        return format!("\nAvailable Commands:\n{}", subs.iter().map(line).collect::<String>());
    }
    groups
        .iter()
        .map(|group| {
            let lines: String = subs.iter().filter(|c| c.group == *group).map(line).collect();
            format!("\n{group}\n{lines}")
        })
        .collect()
}

/// Flags in columns, sorted by name.
pub fn flag_lines(flags: &[&Flag], command: &str) -> String {
    let mut flags = flags.to_vec();
    flags.sort_by_key(|f| f.name);
    let heads: Vec<String> = flags.iter().map(|f| head(f)).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    let mut lines = String::new();
    for (flag, head) in flags.iter().zip(&heads) {
        let about = if flag.name == HELP.name { format!("help for {command}") } else { flag.text.to_owned() };
        lines += &format!("{head:<width$}   {about}{}\n", default_of(flag));
    }
    lines
}

fn head(flag: &Flag) -> String {
    let letter = flag.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    format!("  {letter}--{}{}", flag.name, kind_of(flag))
}

/// What a flag takes, with a space before it.
pub fn kind_of(flag: &Flag) -> &'static str {
    match flag.kind {
        Kind::Bool => "",
        Kind::Text => " string",
        Kind::Int => " int",
        Kind::Uint => " uint",
        Kind::Duration => " duration",
        Kind::List => " strings",
    }
}

/// The default of a flag in parentheses, with a space before them; nothing if
/// it says nothing.
pub fn default_of(flag: &Flag) -> String {
    match flag.kind {
        Kind::Bool if flag.default == "false" => String::new(),
        Kind::Int | Kind::Uint if flag.default == "0" => String::new(),
        _ if flag.default.is_empty() => String::new(),
        Kind::Text => format!(" (default \"{}\")", flag.default),
        Kind::List => format!(" (default [{}])", flag.default),
        _ => format!(" (default {})", flag.default),
    }
}

/// The page of the flags that every command takes.
pub fn options(root: &'static Command) -> String {
    let flags: Vec<&Flag> = root.shared.iter().collect();
    format!("The following options can be passed to any command:\n\n{}", flag_lines(&flags, root.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let parsed = crate::flags::parse(crate::commands::root(crate::STOCK), &words).expect("a command");
        help(&parsed.path)
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

    #[test]
    fn only_kvorum_ctl_has_what_the_stock_tool_has_not() {
        let stock: Vec<&str> = crate::commands::root(crate::STOCK).all_subs().map(|c| c.name).collect();
        let ours: Vec<&str> = crate::commands::root("kvorum ctl").all_subs().map(|c| c.name).collect();
        assert!(stock.iter().all(|name| ours.contains(name)));
        let mut once = ours.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), ours.len(), "a name is used twice");
    }
}
