//! A command, a row of the table of commands; and one run of it: its words, and how it ends.

use crate::hints::hint;
use std::time::Duration;

/// Why a command did not do what was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A wrong command line: the usage follows. Status 1.
    Usage(String),
    /// `Error: text`, and the status to exit with.
    Plain { status: i32, text: String },
}

impl Failure {
    pub fn new(text: impl Into<String>) -> Failure {
        Failure::Plain { status: 1, text: text.into() }
    }

    /// Wrong arguments, in the stock tool's count of kinds.
    pub fn bad_arguments(text: impl Into<String>) -> Failure {
        Failure::Plain { status: 128, text: text.into() }
    }
}

/// The name under which this is the stock tool and nothing more.
pub const STOCK: &str = "etcdutl";

/// One command: a row of the table.
pub type Command = cobra::Command<fn(&Call) -> Result<(), Failure>>;

/// Words that were understood.
pub type Parsed = cobra::Parsed<fn(&Call) -> Result<(), Failure>>;

/// A command line that was read. Reading a flag that the command does not have is a mistake of
/// ours and panics.
pub struct Call {
    parsed: Parsed,
    /// People's form, or plain stock lines (`etcdutl`, or not on a terminal).
    pub people: bool,
}

impl Call {
    /// The words that are no flags.
    pub fn args(&self) -> &[String] {
        &self.parsed.args
    }

    /// The program.
    pub fn root(&self) -> &'static Command {
        self.parsed.path[0]
    }

    pub fn text(&self, flag: &str) -> &str {
        self.parsed.values.last(self.parsed.flag(flag))
    }

    pub fn switch(&self, flag: &str) -> bool {
        self.parsed.values.switch(self.parsed.flag(flag))
    }

    pub fn int(&self, flag: &str) -> i64 {
        self.parsed.values.int(self.parsed.flag(flag))
    }

    pub fn uint(&self, flag: &str) -> u64 {
        self.parsed.values.uint(self.parsed.flag(flag))
    }

    pub fn duration(&self, flag: &str) -> Duration {
        self.parsed.values.duration(self.parsed.flag(flag))
    }
}

/// Runs what `args` say; the status to exit with. As the stock tool, errors in the command line
/// are said before what follows from them and again behind it. A word below a command that names
/// none is an error, but not to the stock tool, which shows its help.
pub fn main(root: &'static Command, args: &[String], terminal: bool) -> i32 {
    let misread = |text: &str, follows: &str| {
        eprintln!("Error: {text}\n{follows}\nError: {text}");
        1
    };
    let parsed = match cobra::parse(root, args) {
        Ok(parsed) => parsed,
        Err(wrong) if wrong.usage => return misread(&wrong.text, &cobra::help::usage(&wrong.path)),
        Err(wrong) => return misread(&wrong.text, &format!("Run '{} --help' for usage.", root.name)),
    };
    let path = parsed.path.clone();
    let people = terminal && root.name != STOCK;
    if let Some(word) = parsed.stray().filter(|_| root.name != STOCK) {
        let follows = format!("Run '{} --help' for usage.", cobra::path_words(&path));
        return misread(&cobra::unknown_command(&path, word), &follows);
    }
    let outcome = match parsed.runnable() {
        Ok(Some(run)) => run(&Call { parsed, people }),
        Ok(None) => {
            print!("{}", cobra::help::help(&path));
            Ok(())
        }
        Err(text) => Err(Failure::Usage(text)),
    };
    match outcome {
        Ok(()) => 0,
        Err(Failure::Plain { status, text }) => {
            eprintln!("Error: {text}");
            if let Some(hint) = hint(&text).filter(|_| people) {
                eprintln!("Hint: {hint}");
            }
            status
        }
        Err(Failure::Usage(text)) => misread(&text, &cobra::help::usage(&path)),
    }
}
