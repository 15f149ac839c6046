//! Scripts: `$ command` (`$~`: not compared with the stock tool), then `> ` lines of standard output, `! ` lines of standard error, and
//! `= status` unless it is 0. All commands of a file run in one folder with the fixtures.
//! UPDATE=1 writes down what came out.

use crate::fixtures;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub status: i32,
}

pub fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("the folder of cases").map(|entry| entry.expect("a case").path()).collect();
    files.sort();
    files
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
    if ["rm", "ls", "flip"].contains(&name.as_str()) {
        return file_work(dir, &name, &words);
    }
    let output = command.args(&words).current_dir(dir).output().expect("the program starts");
    let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes), dir);
    Outcome { stdout: text(&output.stdout), stderr: text(&output.stderr), status: output.status.code().unwrap_or(-1) }
}

/// `rm name`, `ls name` (sizes are left out), `flip file offset`.
fn file_work(dir: &Path, name: &str, words: &[String]) -> Outcome {
    let path = dir.join(&words[0]);
    let mut stdout = String::new();
    match name {
        "rm" if path.is_dir() => fs::remove_dir_all(&path).expect("removed"),
        "rm" => fs::remove_file(&path).expect("removed"),
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

/// A part of a script.
pub enum Step {
    Comment(String),
    Command { line: String, compared: bool, expected: Outcome },
}

pub fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        let command = line.strip_prefix("$ ").map(|rest| (rest, true));
        if let Some((rest, compared)) = command.or(line.strip_prefix("$~ ").map(|rest| (rest, false))) {
            let expected = Outcome { stdout: String::new(), stderr: String::new(), status: 0 };
            steps.push(Step::Command { line: rest.to_string(), compared, expected });
            continue;
        }
        let rest = format!("{}\n", line.get(2..).unwrap_or(""));
        match (steps.last_mut(), line.get(..1)) {
            (Some(Step::Command { expected, .. }), Some(">")) => expected.stdout.push_str(&rest),
            (Some(Step::Command { expected, .. }), Some("!")) => expected.stderr.push_str(&rest),
            (Some(Step::Command { expected, .. }), Some("=")) => {
                expected.status = rest.trim().parse().expect("a status");
            }
            (_, None) => {}
            _ => steps.push(Step::Comment(line.to_string())),
        }
    }
    steps
}

fn show(command: &str, compared: bool, outcome: &Outcome) -> String {
    let mut out = format!("${} {command}\n", if compared { "" } else { "~" });
    let lines = |mark: char, text: &str| -> String {
        let line = |line: &str| if line.is_empty() { format!("{mark}\n") } else { format!("{mark} {line}\n") };
        text.lines().map(line).collect()
    };
    out.push_str(&lines('>', &outcome.stdout));
    out.push_str(&lines('!', &outcome.stderr));
    if outcome.status != 0 {
        out.push_str(&format!("= {}\n", outcome.status));
    }
    out
}

/// Every script does what it says.
pub fn scripts() -> Result<(), String> {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = String::new();
    for case in cases() {
        let text = fs::read_to_string(&case).expect("a case");
        let dir = tempfile::tempdir().expect("a temporary folder");
        fixtures::write(dir.path());
        let mut after = String::new();
        for step in parse(&text) {
            let (line, compared, expected) = match step {
                Step::Command { line, compared, expected } => (line, compared, expected),
                Step::Comment(comment) => {
                    after.push_str(&format!("{comment}\n\n"));
                    continue;
                }
            };
            let outcome = run(dir.path(), &line, None);
            let (found, wanted) = (show(&line, compared, &outcome), show(&line, compared, &expected));
            if found != wanted {
                wrong.push_str(&format!("{}:\nexpected\n{wanted}got\n{found}\n", case.display()));
            }
            after.push_str(&format!("{found}\n"));
        }
        if update {
            fs::write(&case, after).expect("the case is written");
        }
    }
    if wrong.is_empty() || update { Ok(()) } else { Err(wrong) }
}
