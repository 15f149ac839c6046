//! Manual pages, one for each command, made from the table: what the help
//! says, in the sections of `man`.

use roff::{Inline, Roff, bold, italic, roman};

use crate::{
    commands::Command,
    env,
    flags::{Flag, HELP, Kind},
    help,
};

/// What the exit codes mean, on the page of the program.
const CODES: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "the server refused, time ran out, or the words do not fit"),
    ("2", "no client could be made: no endpoints, no token"),
    ("3", "standard input of txn or watch -i cannot be understood"),
    ("4", "no such output form, or a value that a flag does not know"),
    ("5", "ended before it was done: a watch by the server, a snapshot"),
    ("6", "a file or pipe failed"),
    ("128", "the arguments do not fit the command; a certificate file cannot be opened"),
];

/// The page of a command, and of everything below it: names such as
/// `kvorum-ctl-lease-grant.1`, and the roff.
pub fn pages(path: &[&'static Command]) -> Vec<(String, String)> {
    let mut pages = vec![(format!("{}.1", title(path)), page(path))];
    for sub in sorted_subs(path) {
        pages.extend(pages_below(path, sub));
    }
    pages
}

fn pages_below(path: &[&'static Command], sub: &'static Command) -> Vec<(String, String)> {
    pages(&[path, &[sub]].concat())
}

/// The page of one command, in roff.
pub fn page(path: &[&'static Command]) -> String {
    let command = path.last().expect("the path begins with the program");
    let mut roff = Roff::new();
    let version = format!("kvorum {}", env!("CARGO_PKG_VERSION"));
    // No date: the same version gives the same page.
    roff.control("TH", [&title(path).to_uppercase()[..], "1", " ", &version, "kvorum"]);
    section(&mut roff, "NAME");
    roff.text([roman(format!("{} - {}", title(path), command.short))]);
    synopsis(&mut roff, path);
    section(&mut roff, "DESCRIPTION");
    prose(&mut roff, if command.long.is_empty() { command.short } else { command.long });
    commands(&mut roff, path);
    if path.len() > 1 {
        flags(&mut roff, "OPTIONS", command.flags.iter().chain(command.shared), command.name);
    }
    // Those of the program are on its own page.
    let parents = path.iter().skip(1).rev().skip(1).flat_map(|c| c.shared);
    flags(&mut roff, "OPTIONS OF ALL SUB-COMMANDS", parents, command.name);
    if path.len() == 1 {
        program(&mut roff, command);
    } else {
        prose(&mut roff, &format!("The options of every command are in {}(1).", title(&path[..1])));
    }
    if !command.examples.is_empty() {
        section(&mut roff, "EXAMPLES");
        prose(&mut roff, command.examples);
    }
    see_also(&mut roff, path);
    roff.render()
}

/// The words of a command with dashes between them.
pub fn title(path: &[&Command]) -> String {
    help::path_words(path).replace(' ', "-")
}

fn sorted_subs(path: &[&'static Command]) -> Vec<&'static Command> {
    let mut subs: Vec<_> = path.last().expect("the path begins with the program").all_subs().collect();
    subs.sort_by_key(|sub| sub.name);
    subs
}

fn section(roff: &mut Roff, name: &str) {
    roff.control("SH", [name]);
}

fn synopsis(roff: &mut Roff, path: &[&'static Command]) {
    section(roff, "SYNOPSIS");
    let command = path.last().expect("the path begins with the program");
    let words = help::path_words(path);
    if command.run.is_some() {
        let rest = command.usage.strip_prefix(command.name).unwrap_or_default();
        roff.text([bold(words.clone()), roman(rest)]);
    }
    if command.has_subs() {
        if command.run.is_some() {
            roff.control("br", []);
        }
        roff.text([bold(words), roman(" "), italic("command"), roman(" [options]")]);
    }
}

/// The commands below this one; those of the program under their headings.
fn commands(roff: &mut Roff, path: &[&'static Command]) {
    let subs = sorted_subs(path);
    if subs.is_empty() {
        return;
    }
    section(roff, "COMMANDS");
    let groups = crate::commands::GROUPS.iter().copied().chain([""]);
    for group in groups.filter(|group| subs.iter().any(|sub| sub.group == *group)) {
        if !group.is_empty() {
            roff.control("SS", [group]);
        }
        for sub in subs.iter().filter(|sub| sub.group == group) {
            entry(roff, [bold(format!("{}(1)", title(&[path, &[sub]].concat())))], sub.short);
        }
    }
}

fn entry(roff: &mut Roff, head: impl Into<Vec<Inline>>, text: &str) {
    roff.control("TP", []);
    roff.text(head).text([roman(text)]);
}

fn flags(roff: &mut Roff, heading: &str, flags: impl Iterator<Item = &'static Flag>, command: &str) {
    let mut flags: Vec<&Flag> = flags.collect();
    if flags.is_empty() && heading != "OPTIONS" {
        return;
    }
    if heading == "OPTIONS" {
        flags.push(&HELP);
    }
    flags.sort_by_key(|flag| flag.name);
    section(roff, heading);
    for flag in flags {
        let letter = flag.short.map_or_else(String::new, |letter| format!("-{letter}, "));
        let mut head = vec![bold(format!("{letter}--{}", flag.name))];
        if flag.kind != Kind::Bool {
            head.push(italic(help::kind_of(flag)));
        }
        let about = if flag.name == HELP.name { format!("help for {command}") } else { flag.text.to_owned() };
        entry(roff, head, &format!("{about}{}", help::default_of(flag)));
    }
}

/// What only the page of the program has.
fn program(roff: &mut Roff, command: &'static Command) {
    flags(roff, "OPTIONS", command.shared.iter(), command.name);
    section(roff, "ENVIRONMENT");
    prose(roff, "Every option of the program can come from the environment; the command line must not say it too.");
    for flag in command.shared {
        entry(roff, [bold(env::variable(flag))], &format!("--{}", flag.name));
    }
    section(roff, "EXIT STATUS");
    for (code, meaning) in CODES {
        entry(roff, [bold(*code)], meaning);
    }
}

fn see_also(roff: &mut Roff, path: &[&'static Command]) {
    let mut pages: Vec<String> = (1..path.len()).map(|depth| format!("{}(1)", title(&path[..depth]))).collect();
    if pages.is_empty() {
        pages.push("kvorum-utl(1)".to_owned());
    }
    section(roff, "SEE ALSO");
    roff.text([roman(pages.join(", "))]);
}

/// Paragraphs; lines that begin with spaces stay as they are.
fn prose(roff: &mut Roff, text: &str) {
    // The texts of the table are those of the stock tool, with its name.
    let names = [
        ("etcdctl ", "kvorum ctl "),
        ("completion.d/etcdctl", "completion.d/kvorum"),
        ("/_etcdctl", "/_kvorum"),
        ("/etcdctl.fish", "/kvorum.fish"),
    ];
    let text = names.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    for block in text.trim_end().split("\n\n") {
        roff.control("PP", []);
        let lines: Vec<&str> = block.lines().collect();
        for run in lines.chunk_by(|a, b| a.starts_with(' ') == b.starts_with(' ')) {
            if run[0].starts_with(' ') {
                literal(roff, run);
            } else {
                roff.text([roman(run.join("\n"))]);
            }
        }
    }
}

fn literal(roff: &mut Roff, lines: &[&str]) {
    roff.control("RS", ["4"]).control("nf", []);
    for line in lines {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []).control("RE", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let root = crate::commands::root("kvorum ctl");
        let pages = pages(&[root]);
        let names: Vec<&str> = pages.iter().map(|(name, _)| &name[..]).collect();
        for name in ["kvorum-ctl.1", "kvorum-ctl-get.1", "kvorum-ctl-lease-grant.1", "kvorum-ctl-browse.1"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        for (name, text) in &pages {
            for heading in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
                assert!(text.contains(heading), "{name} has no {heading}\n{text}");
            }
            let stock = if name.contains("completion") { "etcdctl" } else { "etcdctl " };
            assert!(!text.contains(stock), "{name} speaks of the stock tool");
        }
    }

    #[test]
    fn a_page() {
        let root = crate::commands::root("kvorum ctl");
        let lease = root.sub("lease").expect("a command");
        let text = page(&[root, lease, lease.sub("grant").expect("a command")]);
        let head = text.split_once(".SH NAME\n").expect("a name").1;
        let expected = "kvorum\\-ctl\\-lease\\-grant \\- Grants a lease of so many seconds\n.SH SYNOPSIS\n\
                        \\fBkvorum ctl lease grant\\fR <ttl>\n";
        assert!(head.starts_with(expected), "{head}");
        assert!(head.contains(".SH \"SEE ALSO\"\nkvorum\\-ctl(1), kvorum\\-ctl\\-lease(1)\n"), "{head}");
        let compaction = page(&[root, root.sub("compaction").expect("a command")]);
        let option = ".TP\n\\fB\\-\\-physical\\fR\nwait until the old revisions are removed for good\n";
        assert!(compaction.contains(option), "{compaction}");
        let whole = page(&[root]);
        assert!(whole.contains(".TP\n\\fBETCDCTL_WRITE_OUT\\fR\n\\-\\-write\\-out\n"), "{whole}");
        assert!(whole.contains("\\fB\\-w, \\-\\-write\\-out\\fR\\fI string\\fR\n"), "{whole}");
    }
}
