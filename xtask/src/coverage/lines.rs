//! From LLVM's list of lines to files and their functions.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Crates that are measured.
pub(super) const FLOORS: [&str; 5] = ["bolt", "consensus", "store", "disk", "node"];

/// Lines, and how many of them were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub lines: u64,
    pub reached: u64,
}

impl Count {
    pub fn and(self, more: Count) -> Count {
        Count { lines: self.lines + more.lines, reached: self.reached + more.reached }
    }

    pub fn missed(self) -> u64 {
        self.lines - self.reached
    }

    pub fn percent(self) -> f64 {
        100.0 * self.reached as f64 / self.lines.max(1) as f64
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// As the source names it, with its type in front: `Type::name`.
    pub name: String,
    pub count: Count,
}

/// A source file: its counted lines, by function, in the order of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// From the workspace.
    pub path: String,
    pub functions: Vec<Function>,
    /// Number and text of what is not reached.
    missed: Vec<(u64, String)>,
}

impl File {
    #[cfg(test)]
    pub fn new(path: &str, functions: Vec<Function>) -> File {
        File { path: path.into(), functions, missed: Vec::new() }
    }

    pub fn count(&self) -> Count {
        self.functions.iter().fold(Count::default(), |sum, function| sum.and(function.count))
    }

    pub fn print_missed(&self) {
        for (number, text) in &self.missed {
            println!("{}:{number}: {text}", self.path);
        }
    }
}

/// The files of the floors alone, by path.
///
/// # Errors
/// A source file is not there.
pub fn files(lcov: &str, root: &Path, floors: &[&str]) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for (path, lines) in lines(lcov, root, floors) {
        let source = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        files.push(file(path, &lines, &source));
    }
    Ok(files)
}

/// Whether the lines were reached. A line that stands in the binary more than once is reached if
/// one is.
fn lines(lcov: &str, root: &Path, floors: &[&str]) -> BTreeMap<String, BTreeMap<u64, bool>> {
    let mut all: BTreeMap<String, BTreeMap<u64, bool>> = BTreeMap::new();
    let mut file = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path)).display().to_string();
            let ours = floors.iter().any(|floor| path.starts_with(&format!("{floor}/src/")));
            file = ours.then_some(path);
        } else if let (Some(file), Some(count)) = (&file, line.strip_prefix("DA:")) {
            let mut numbers = count.split(',').map_while(|number| number.parse::<u64>().ok());
            if let (Some(number), Some(times)) = (numbers.next(), numbers.next()) {
                *all.entry(file.clone()).or_default().entry(number).or_default() |= times > 0;
            }
        }
    }
    all
}

fn file(path: String, lines: &BTreeMap<u64, bool>, source: &str) -> File {
    let names = names(source);
    let mut functions: Vec<Function> = Vec::new();
    let mut missed = Vec::new();
    for (&number, &reached) in lines {
        let at = number as usize - 1;
        let name = names.get(at).cloned().unwrap_or_default();
        let count = Count { lines: 1, reached: u64::from(reached) };
        match functions.iter_mut().find(|function| function.name == name) {
            Some(function) => function.count = function.count.and(count),
            None => functions.push(Function { name, count }),
        }
        if !reached {
            missed.push((number, source.lines().nth(at).unwrap_or_default().to_string()));
        }
    }
    File { path, functions, missed }
}

/// The function that each line belongs to; the source is as rustfmt leaves it, so that a closing
/// brace stands as far in as its head.
fn names(source: &str) -> Vec<String> {
    let (mut of, mut inside): (Option<(usize, String)>, Option<(usize, String)>) = (None, None);
    let mut all = Vec::new();
    for line in source.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if inside.is_none() {
            if let Some(name) = implements(text) {
                of = Some((depth, name));
            } else if let Some(name) = function(text) {
                let name = of.as_ref().map_or(name.to_string(), |(_, of)| format!("{of}::{name}"));
                inside = Some((depth, name));
            }
        }
        all.push(inside.as_ref().map_or(String::new(), |(_, name)| name.clone()));
        let closes = |open: &Option<(usize, String)>| {
            open.as_ref().is_some_and(|(at, _)| *at == depth && (text.starts_with('}') || ends_at_once(line)))
        };
        if closes(&inside) {
            inside = None;
        } else if inside.is_none() && closes(&of) {
            of = None;
        }
    }
    all
}

/// `impl A for B { }` and functions without a body.
fn ends_at_once(line: &str) -> bool {
    line.ends_with("{}") || line.ends_with(';')
}

/// The type that a block of `impl` or `trait` is about.
fn implements(text: &str) -> Option<String> {
    let text = text.strip_prefix("pub ").or(text.strip_prefix("pub(crate) ")).unwrap_or(text);
    let head = match text.strip_prefix("impl") {
        Some(rest) if rest.starts_with([' ', '<']) => rest,
        _ => text.strip_prefix("trait ")?,
    };
    let about = head.split_once(" for ").map_or(head, |(_, about)| about).trim_start();
    let about = if about.starts_with('<') { about.split_once("> ").map_or(about, |(_, about)| about) } else { about };
    let name = about.trim_start_matches("dyn ").split(['<', ' ', '{', ':']).next()?;
    Some(name.to_string())
}

fn function(text: &str) -> Option<&str> {
    let mut words = text.split(' ');
    let before = ["pub", "pub(crate)", "pub(super)", "const", "unsafe"];
    let word = words.find(|word| !before.contains(word))?;
    if word != "fn" {
        return None;
    }
    words.next()?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LCOV: &str = "SF:/w/node/src/a.rs\nDA:2,5\nDA:3,0\nend_of_record\nSF:/w/sim/src/b.rs\nDA:1,0\nend_of_record\n\
                        SF:/w/node/src/a.rs\nDA:3,1\nDA:4,0\nend_of_record\n";

    #[test]
    fn lines_are_counted_once_and_of_the_floors_alone() {
        let lines = lines(LCOV, Path::new("/w"), &["node"]);
        let right = BTreeMap::from([(2, true), (3, true), (4, false)]);
        assert_eq!(lines, BTreeMap::from([("node/src/a.rs".to_string(), right)]));
    }

    const SOURCE: &str = "\
impl<S: Source> Show for Thing<S> {
    pub(crate) fn one(&self) -> u8 {
        let f = || {
            1
        };
        f()
    }
    fn two() {}
}
trait Read {
    fn must(&self);
    fn may(&self) {
        fn inner() {}
    }
}
fn free(
    a: u8,
) {
}
";

    #[test]
    fn a_line_belongs_to_the_outer_function_of_its_type() {
        let names = names(SOURCE);
        let at = |number: usize| names[number - 1].as_str();
        assert_eq!((at(1), at(2), at(4), at(6), at(8)), ("", "Thing::one", "Thing::one", "Thing::one", "Thing::two"));
        assert_eq!((at(11), at(12), at(13), at(16), at(18)), ("Read::must", "Read::may", "Read::may", "free", "free"));
        let lines = BTreeMap::from([(2, true), (4, false), (6, true), (16, false)]);
        let file = file("node/src/a.rs".into(), &lines, SOURCE);
        let one = Function { name: "Thing::one".into(), count: Count { lines: 3, reached: 2 } };
        let free = Function { name: "free".into(), count: Count { lines: 1, reached: 0 } };
        assert_eq!((file.functions.as_slice(), file.count().missed()), ([one, free].as_slice(), 2));
    }
}
