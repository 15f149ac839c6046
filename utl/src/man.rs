//! `man`: manual pages, one for each command, made from the table. As `etcdutl` there is none.

use crate::cobra::{Call, Command, Failure, Flag, GLOBAL, HELP, Kind, default_of, kind_of};
use crate::etcd::go_text;
use roff::{Roff, bold, italic, roman};
use std::{fs, path::Path};

const PROGRAM: &str = "kvorum utl";
const ABOUT: &str = "Works on snapshots and data directories without a server";

pub fn run(call: &Call) -> Result<(), Failure> {
    let mut path = vec![call.root];
    for word in &call.words {
        let found = path[path.len() - 1].children.iter().find(|child| child.name == word);
        let no_command = || Failure::bad_arguments(format!("{} has no command {word}", words(&path)));
        path.push(found.ok_or_else(no_command)?);
    }
    let folder = call.text("out");
    if folder.is_empty() {
        print!("{}", page(&path));
        return Ok(());
    }
    let cannot = |what: &Path, error: std::io::Error| {
        Failure::new(format!("cannot write {}: {}", what.display(), go_text(&error)))
    };
    fs::create_dir_all(folder).map_err(|error| cannot(Path::new(folder), error))?;
    let pages = pages(&path);
    for (name, text) in &pages {
        let file = Path::new(folder).join(name);
        fs::write(&file, text).map_err(|error| cannot(&file, error))?;
    }
    println!("{} pages in {folder}", pages.len());
    Ok(())
}

/// The page of a command and of all below it: file names, and the roff.
fn pages(path: &[&'static Command]) -> Vec<(String, String)> {
    let mut pages = vec![(format!("{}.1", title(path)), page(path))];
    for child in path[path.len() - 1].children {
        let below: Vec<&Command> = path.iter().copied().chain([child]).collect();
        pages.extend(self::pages(&below));
    }
    pages
}

/// The root's own name is the stock tool's.
fn words(path: &[&Command]) -> String {
    let names = std::iter::once(PROGRAM).chain(path[1..].iter().map(|command| command.name));
    names.collect::<Vec<_>>().join(" ")
}

fn title(path: &[&Command]) -> String {
    words(path).replace(' ', "-")
}

fn page(path: &[&'static Command]) -> String {
    let command = path[path.len() - 1];
    let short = if path.len() == 1 { ABOUT } else { command.short };
    let version = format!("kvorum {}", env!("CARGO_PKG_VERSION"));
    let mut roff = Roff::new();
    // No date: the same version gives the same page.
    roff.control("TH", [&title(path).to_uppercase()[..], "1", " ", &version, "kvorum"]);
    roff.control("SH", ["NAME"]).text([roman(format!("{} - {short}", title(path)))]);
    roff.control("SH", ["SYNOPSIS"]);
    if command.run.is_some() {
        let rest = command.usage.strip_prefix(command.name).unwrap_or_default();
        roff.text([bold(words(path)), roman(rest)]);
    } else {
        roff.text([bold(words(path)), roman(" "), italic("command"), roman(" [flags]")]);
    }
    roff.control("SH", ["DESCRIPTION"]).text([roman(format!("{short}."))]);
    if !command.children.is_empty() {
        roff.control("SH", ["COMMANDS"]);
        for child in command.children {
            let below: Vec<&Command> = path.iter().copied().chain([child]).collect();
            roff.control("TP", []).text([bold(format!("{}(1)", title(&below)))]).text([roman(child.short)]);
        }
    }
    let mut flags: Vec<Flag> = command.flags.iter().copied().chain(GLOBAL).chain([HELP]).collect();
    flags.sort_by_key(|flag| flag.name);
    roff.control("SH", ["OPTIONS"]);
    flags.iter().for_each(|flag| option(&mut roff, flag));
    roff.control("SH", ["SEE ALSO"]);
    let mut above: Vec<String> = (1..path.len()).map(|depth| format!("{}(1)", title(&path[..depth]))).collect();
    if above.is_empty() {
        above.push("kvorum-ctl(1)".to_string());
    }
    roff.text([roman(above.join(", "))]);
    roff.render()
}

fn option(roff: &mut Roff, flag: &Flag) {
    let short = flag.short.map_or(String::new(), |short| format!("-{short}, "));
    let mut head = vec![bold(format!("{short}--{}", flag.name))];
    if flag.kind != Kind::Bool {
        head.push(italic(kind_of(flag)));
    }
    let help = if flag.name == HELP.name { "shows how the command is used" } else { flag.help };
    roff.control("TP", []).text(head).text([roman(format!("{help}{}", default_of(flag)))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let pages = pages(&[&crate::commands::ROOT]);
        for name in ["kvorum-utl.1", "kvorum-utl-snapshot-restore.1", "kvorum-utl-verify.1"] {
            let (_, text) = pages.iter().find(|(page, _)| page == name).unwrap_or_else(|| panic!("no {name}"));
            for heading in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
                assert!(text.contains(heading), "{name} has no {heading}: {text}");
            }
        }
        let hashkv = &pages.iter().find(|(page, _)| page == "kvorum-utl-hashkv.1").expect("a page").1;
        let synopsis = ".SH SYNOPSIS\n\\fBkvorum utl hashkv\\fR <filename> [flags]\n";
        assert!(hashkv.contains(synopsis), "{hashkv}");
        assert!(hashkv.contains("\\fB\\-\\-rev\\fR\\fI int\\fR\nmaximum revision to hash"), "{hashkv}");
        assert!(pages.iter().all(|(_, text)| !text.contains("etcdutl\\-")), "a page under the stock name");
    }
}
