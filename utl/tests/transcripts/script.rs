//! Scripts: `$ command` (`$~`: not compared with the stock tool). Its outcome is `> ` lines of
//! standard output, `! ` lines of standard error, and `= status` unless it is 0. All commands of a
//! file run in one folder with the fixtures.

use crate::fixtures;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::golden;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub status: i32,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

pub fn cases() -> Vec<PathBuf> {
    golden::files(folder())
}

/// Words as a shell would give them; quotes keep blanks.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for letter in line.chars() {
        match letter {
            '\'' => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            other => {
                word.push(other);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// Runs a line in `dir` with our program, or with the programs of `stock`.
pub fn run(dir: &Path, line: &str, stock: Option<&Path>) -> Outcome {
    let mut words = words(line);
    let name = match words.remove(0).as_str() {
        "kvorum" => format!("kvorum {}", words.remove(0)),
        name => name.to_string(),
    };
    let mut command = match stock {
        Some(folder) => Command::new(folder.join(&name)),
        None => {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env("UTL_NAME", &name);
            command
        }
    };
    if ["rm", "ls", "flip", "cp"].contains(&name.as_str()) {
        return file_work(dir, &name, &words);
    }
    let output = command.args(&words).current_dir(dir).output().expect("the program starts");
    let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes), dir);
    Outcome { stdout: text(&output.stdout), stderr: text(&output.stderr), status: output.status.code().unwrap_or(-1) }
}

/// `rm name`, `ls name` (sizes are left out), `flip file offset`, `cp file file`.
fn file_work(dir: &Path, name: &str, words: &[String]) -> Outcome {
    let path = dir.join(&words[0]);
    let mut stdout = String::new();
    match name {
        "rm" if path.is_dir() => fs::remove_dir_all(&path).expect("removed"),
        "rm" => fs::remove_file(&path).expect("removed"),
        "cp" => drop(fs::copy(&path, dir.join(&words[1])).expect("copied")),
        "flip" => {
            let mut bytes = fs::read(&path).expect("a file");
            bytes[words[1].parse::<usize>().expect("an offset")] ^= 0x40;
            fs::write(&path, bytes).expect("written");
        }
        _ => {
            let mut found = Vec::new();
            list(&path, &mut found);
            found.sort();
            for entry in found {
                stdout.push_str(&format!("{}\n", entry.strip_prefix(dir).expect("below it").display()));
            }
        }
    }
    Outcome { stdout, stderr: String::new(), status: 0 }
}

fn list(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.path().is_dir() {
            list(&entry.path(), found);
        }
    }
}

/// Without what changes from run to run: the folder, times, versions of the crate.
fn normal(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "DIR").replace(env!("CARGO_PKG_VERSION"), "OURS");
    let mut out = String::new();
    for line in text.lines() {
        let stamped = line.len() > 20 && line.as_bytes()[10] == b'T' && line.as_bytes()[19] == b'Z';
        let line = if stamped { format!("TIME{}", &line[20..]) } else { line.to_string() };
        let line = match line.split_once("\"took\": \"") {
            Some((before, after)) => format!("{before}\"took\": \"X{}", &after[after.find('"').unwrap_or(0)..]),
            None => line,
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// A command of a script and what it must do.
pub struct Step {
    /// Without its mark.
    pub line: String,
    /// The stock tool does the same.
    pub compared: bool,
    pub expected: Outcome,
}

pub fn parse(text: &str) -> Vec<Step> {
    let step = |step| match step {
        golden::Step::Command { line, outcome } => Some(read(&line, &outcome)),
        golden::Step::Kept(_) => None,
    };
    golden::steps(text).into_iter().filter_map(step).collect()
}

fn read(command: &str, outcome: &[String]) -> Step {
    let mut expected = Outcome { stdout: String::new(), stderr: String::new(), status: 0 };
    for told in outcome {
        let rest = format!("{}\n", told.get(2..).unwrap_or(""));
        match told.get(..1) {
            Some(">") => expected.stdout.push_str(&rest),
            Some("!") => expected.stderr.push_str(&rest),
            Some("=") => expected.status = rest.trim().parse().expect("a status"),
            _ => panic!("{told:?} is neither output nor a status"),
        }
    }
    let (mark, line) = command.split_once(' ').expect("a mark and a command");
    assert!(["$", "$~"].contains(&mark), "{command:?} is no command");
    Step { line: line.to_owned(), compared: mark == "$", expected }
}

fn show(outcome: &Outcome) -> String {
    let lines = |mark: char, text: &str| -> String {
        let line = |line: &str| if line.is_empty() { format!("{mark}\n") } else { format!("{mark} {line}\n") };
        text.lines().map(line).collect()
    };
    let mut out = lines('>', &outcome.stdout) + &lines('!', &outcome.stderr);
    if outcome.status != 0 {
        out.push_str(&format!("= {}\n", outcome.status));
    }
    out
}

/// Every script does what it says.
pub fn scripts() -> Result<(), String> {
    golden::folder(folder(), |text| {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fixtures::write(dir.path());
        golden::lines(text, |command| show(&run(dir.path(), &read(command, &[]).line, None)))
    });
    Ok(())
}
