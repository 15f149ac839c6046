//! Manual pages, one for each command, made from the table: what the help
//! says, in the sections of `man`.

use std::{fs, io, path::Path as File};

use roff::{Inline, Roff, bold, italic, roman};

use crate::{
    help::{about, groups, kind_of, sorted},
    table::{Command, Flag, HELP, Kind, Path, last, path_words},
};

/// What the pages of a program say that its table does not.
#[derive(Clone, Copy, Debug)]
pub struct Manual {
    /// `kvorum` and its version.
    pub version: &'static str,
    /// Words of the table and what stands for them here: its texts may be those of the stock tool.
    pub names: &'static [(&'static str, &'static str)],
    /// The variable of a flag of the program, if it has one.
    pub variable: Option<fn(&Flag) -> String>,
    /// What the exit codes mean.
    pub codes: &'static [(&'static str, &'static str)],
    /// The page of the sister program.
    pub sister: &'static str,
}

/// Writes the page of a command, and of everything below it, into a folder, which is made; the
/// number of pages.
///
/// # Errors
/// What could not be written, and why.
pub fn write<R>(manual: &Manual, path: &Path<R>, folder: &File) -> Result<usize, (std::path::PathBuf, io::Error)> {
    fs::create_dir_all(folder).map_err(|error| (folder.to_owned(), error))?;
    let pages = pages(manual, path);
    for (name, text) in &pages {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|error| (file, error))?;
    }
    Ok(pages.len())
}

/// The page of a command, and of everything below it: names such as
/// `kvorum-ctl-lease-grant.1`, and the roff.
pub fn pages<R>(manual: &Manual, path: &Path<R>) -> Vec<(String, String)> {
    let mut all = vec![(format!("{}.1", title(path)), page(manual, path))];
    for sub in last(path).shown_subs() {
        all.extend(pages(manual, &below(path, sub)));
    }
    all
}

fn below<R>(path: &Path<R>, sub: &'static Command<R>) -> Vec<&'static Command<R>> {
    path.iter().copied().chain([sub]).collect()
}

/// The page of one command, in roff.
pub fn page<R>(manual: &Manual, path: &Path<R>) -> String {
    let command = last(path);
    let mut roff = Roff::new();
    // No date: the same version gives the same page.
    roff.control("TH", [&title(path).to_uppercase()[..], "1", " ", manual.version, "kvorum"]);
    section(&mut roff, "NAME");
    roff.text([roman(format!("{} - {}", title(path), command.short))]);
    synopsis(&mut roff, path);
    section(&mut roff, "DESCRIPTION");
    prose(&mut roff, manual, if command.long.is_empty() { command.short } else { command.long });
    commands(&mut roff, path);
    flags(&mut roff, "OPTIONS", command.flags.iter().chain(command.shared).chain([&HELP]), command.name);
    // Those of the program are on its own page.
    let parents: Vec<&Flag> = path.iter().skip(1).rev().skip(1).flat_map(|c| c.shared).collect();
    if !parents.is_empty() {
        flags(&mut roff, "OPTIONS OF ALL SUB-COMMANDS", parents, command.name);
    }
    if path.len() == 1 {
        program(&mut roff, manual, command);
    } else {
        prose(&mut roff, manual, &format!("The options of every command are in {}(1).", title(&path[..1])));
    }
    if !command.examples.is_empty() {
        section(&mut roff, "EXAMPLES");
        prose(&mut roff, manual, command.examples);
    }
    see_also(&mut roff, manual, path);
    roff.render()
}

/// The words of a command with dashes between them.
fn title<R>(path: &Path<R>) -> String {
    path_words(path).replace(' ', "-")
}

fn section(roff: &mut Roff, name: &str) {
    roff.control("SH", [name]);
}

fn synopsis<R>(roff: &mut Roff, path: &Path<R>) {
    section(roff, "SYNOPSIS");
    let command = last(path);
    let words = path_words(path);
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
fn commands<R>(roff: &mut Roff, path: &Path<R>) {
    if !last(path).has_subs() {
        return;
    }
    section(roff, "COMMANDS");
    for (heading, subs) in groups(path) {
        if !heading.is_empty() {
            roff.control("SS", [heading]);
        }
        for sub in subs {
            entry(roff, [bold(format!("{}(1)", title(&below(path, sub))))], sub.short);
        }
    }
}

fn entry(roff: &mut Roff, head: impl Into<Vec<Inline>>, text: &str) {
    roff.control("TP", []);
    roff.text(head).text([roman(text)]);
}

fn flags(roff: &mut Roff, heading: &str, flags: impl IntoIterator<Item = &'static Flag>, command: &str) {
    section(roff, heading);
    for flag in sorted(flags) {
        let letter = flag.short.map_or_else(String::new, |letter| format!("-{letter}, "));
        let mut head = vec![bold(format!("{letter}--{}", flag.name))];
        if flag.kind != Kind::Bool {
            head.push(italic(kind_of(flag)));
        }
        entry(roff, head, &about(flag, command));
    }
}

/// What only the page of the program has.
fn program<R>(roff: &mut Roff, manual: &Manual, command: &'static Command<R>) {
    if let Some(variable) = manual.variable {
        section(roff, "ENVIRONMENT");
        let text = "Every option of the program can come from the environment; the command line must not say it too.";
        prose(roff, manual, text);
        for flag in command.shared {
            entry(roff, [bold(variable(flag))], &format!("--{}", flag.name));
        }
    }
    section(roff, "EXIT STATUS");
    for (code, meaning) in manual.codes {
        entry(roff, [bold(*code)], meaning);
    }
}

fn see_also<R>(roff: &mut Roff, manual: &Manual, path: &Path<R>) {
    let mut pages: Vec<String> = (1..path.len()).map(|depth| format!("{}(1)", title(&path[..depth]))).collect();
    if pages.is_empty() {
        pages.push(format!("{}(1)", manual.sister));
    }
    section(roff, "SEE ALSO");
    roff.text([roman(pages.join(", "))]);
}

/// Paragraphs; lines that begin with spaces stay as they are.
fn prose(roff: &mut Roff, manual: &Manual, text: &str) {
    let text = manual.names.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
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
