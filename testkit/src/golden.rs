//! Golden scripts: files that hold commands and what comes of them. The test plays the commands
//! and compares. `REWRITE=1` writes what came into the files; read the diff before you keep it.
//! `ONLY=name` plays the scripts of that name alone.
//!
//! ```text
//! # A comment. It stays, and so does an empty line.
//! put a 1
//!   revision 2
//! get a
//!   a=1
//! ```
//!
//! A line that is neither empty nor indented is a command; the lines below it that are indented by
//! two blanks are its outcome.

use std::path::{Path, PathBuf};

const INDENT: &str = "  ";

/// True if outcomes are to be written into the files.
pub fn rewriting() -> bool {
    std::env::var_os("REWRITE").is_some()
}

/// Every `*.txt` of a folder, in the order of their names.
///
/// # Panics
/// If there is none.
pub fn files(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let folder = folder.as_ref();
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "txt")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are no scripts in {}", folder.display());
    paths
}

/// Plays every script of `folder`. `play` makes the whole text anew, mostly with [`lines`].
/// `ONLY=word` plays those with that word in their names.
///
/// # Panics
/// If a file tells another story, with the first place where it does.
pub fn folder(folder: impl AsRef<Path>, mut play: impl FnMut(&str) -> String) {
    let only = std::env::var("ONLY").ok();
    let wanted =
        |path: &PathBuf| only.as_ref().is_none_or(|only| path.file_stem().is_some_and(|name| name == &only[..]));
    for path in files(folder).into_iter().filter(wanted) {
        file(&path, &mut play);
    }
}

/// The same for one file.
///
/// # Panics
/// As [`folder`].
pub fn file(path: impl AsRef<Path>, play: impl FnOnce(&str) -> String) {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let played = play(&text);
    if rewriting() {
        std::fs::write(path, played).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    } else {
        assert!(played == text, "{}, {}\nREWRITE=1 rewrites it", path.display(), difference(&text, &played));
    }
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A comment or an empty line.
    Kept(String),
    /// `outcome`: its lines, without the indent.
    Command { line: String, outcome: Vec<String> },
}

/// The parts of a script, in order.
///
/// # Panics
/// If an outcome has no command above it.
pub fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix(INDENT), steps.last_mut()) {
            (Some(told), Some(Step::Command { outcome, .. })) => outcome.push(told.to_owned()),
            (Some(_), _) => panic!("{line:?} is the outcome of no command"),
            (None, _) if line.is_empty() || line.starts_with('#') => steps.push(Step::Kept(line.to_owned())),
            (None, _) => steps.push(Step::Command { line: line.to_owned(), outcome: Vec::new() }),
        }
    }
    steps
}

/// A script with the outcomes that `command` gives: as many lines as it has, or none. Empty lines
/// of an outcome are left out.
pub fn lines(text: &str, mut command: impl FnMut(&str) -> String) -> String {
    let mut played = String::new();
    for step in steps(text) {
        let (line, outcome) = match step {
            Step::Kept(line) => (line, String::new()),
            Step::Command { line, .. } => {
                let outcome = command(&line);
                (line, outcome)
            }
        };
        played.push_str(&line);
        played.push('\n');
        for told in outcome.lines().filter(|line| !line.is_empty()) {
            played.push_str(&format!("{INDENT}{told}\n"));
        }
    }
    played
}

/// The first line that differs, with its neighbours on both sides.
fn difference(expected: &str, played: &str) -> String {
    let first = expected.lines().zip(played.lines()).position(|(a, b)| a != b);
    let at = first.unwrap_or_else(|| expected.lines().count().min(played.lines().count()));
    let show = |text: &str| text.lines().skip(at.saturating_sub(4)).take(9).collect::<Vec<_>>().join("\n");
    format!("line {}\n--- expected\n{}\n--- came\n{}", at + 1, show(expected), show(played))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(line: &str) -> String {
        if line == "quiet" { String::new() } else { format!("{line}\n\n  {line}\n") }
    }

    #[test]
    fn outcomes_are_replaced_and_everything_else_stays() {
        let script = "# What\nsay\n  old\n  lines\n\nquiet\n  something\n# end\n";
        let played = lines(script, twice);
        assert_eq!(played, "# What\nsay\n  say\n    say\n\nquiet\n# end\n");
    }

    #[test]
    #[should_panic(expected = "is the outcome of no command")]
    fn an_outcome_belongs_to_a_command() {
        steps("# nobody said it\n  so\n");
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert!(difference("a\nb\nc", "a\nx\nc").starts_with("line 2\n"));
        assert!(difference("a\nb", "a\nb\nc").starts_with("line 3\n"));
    }
}
