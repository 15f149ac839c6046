//! `kvorum ctl`, and `etcdctl` when the binary has that name: the command line
//! of a running cluster.
//!
//! It is for people and for scripts. Under the name `etcdctl` it is the stock
//! tool, word for word: commands, flags, variables, output forms, error lines,
//! exit codes. Under `kvorum ctl` it has a few more commands for people.
//!
//! The crate `cobra` reads the words. A command is a row of a table ([`commands`]) and a function
//! of a [`call::Call`]; what it has to say is an [`print::Answer`] with one form for each
//! `--write-out`.
//!
//! It refuses: knowledge of the protocol beyond the crate `client`, state of
//! its own, and work on data directories (that is `utl`, which `recover` asks what is in one).

/// Writes a line to standard error. One that nobody reads any more is no reason
/// to fail: what matters is the exit code.
macro_rules! complain {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let mut line = $crate::raw::bytes(&format!($($words)*));
        line.push(b'\n');
        let _ = std::io::stderr().write_all(&line);
    }};
}

pub mod call;
pub mod commands;
pub mod connect;
pub mod env;
pub mod exit;
pub mod hints;
pub mod log;
pub mod print;
pub mod progress;
pub mod screen;
mod stdout;
pub mod terminal;

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

pub use call::STOCK;
pub use cobra::raw;
pub use commands::MANUAL;
use exit::{ERROR, Failure, Outcome};
pub use stdout::say;
pub(crate) use stdout::write;

/// Runs the program with the words after its name; the exit code is etcdctl's.
pub fn run(name: &str, args: &[OsString]) -> i32 {
    let args = &args.iter().map(|arg| raw::text(arg.as_bytes())).collect::<Vec<_>>()[..];
    let root = commands::root(name);
    if let Some(describe @ ("__complete" | "__completeNoDesc")) = args.first().map(String::as_str) {
        return ended(commands::complete(root, &args[1..], describe == "__complete"), &[root], false);
    }
    let hints = hints::wanted(root, args);
    let parsed = match cobra::parse(root, args) {
        Ok(parsed) => parsed,
        Err(misread) => {
            complain!("Error: {}", misread.text);
            if misread.usage {
                complain!("{}", cobra::help::usage(&misread.path));
            } else {
                complain!("Run '{} --help' for usage.", root.name);
            }
            hint(hints, || hints::of_misread(&misread));
            return ERROR;
        }
    };
    let path = parsed.path.clone();
    ended(perform(parsed, hints), &path, hints)
}

/// The commands of `kvorum ctl`, without what carries them out.
pub fn table() -> &'static cobra::Command<()> {
    commands::root("kvorum ctl").bare()
}

/// Says what went wrong; the exit code.
fn ended(outcome: Outcome, path: &[&'static call::Command], hints: bool) -> i32 {
    let Err(failure) = outcome else { return 0 };
    match &failure {
        Failure::Silent(_) | Failure::Told { .. } => {}
        Failure::Text { text, .. } => complain!("Error: {text}"),
        Failure::Usage(text) => complain!("Error: {text}\n{}", cobra::help::usage(path)),
    }
    hint(hints, || hints::of_failure(path[0].name, &failure));
    failure.code()
}

/// What to try next, on a line of its own.
fn hint(wanted: bool, find: impl FnOnce() -> Option<String>) {
    if let Some(text) = wanted.then(find).flatten() {
        complain!("hint: {text}");
    }
}

fn perform(parsed: call::Parsed, hints: bool) -> Outcome {
    let run = parsed.runnable().map_err(Failure::Usage)?;
    // The stock tool shows its help and is content.
    let stray = parsed.stray().filter(|_| parsed.path[0].name != STOCK).map(str::to_owned);
    let call = call::Call::new(parsed);
    if let Some(run) = run {
        return run(&call);
    }
    if let Some(word) = stray {
        complain!("Error: {}", cobra::unknown_command(&call.path, &word));
        complain!("Run '{} --help' for usage.", cobra::path_words(&call.path));
        hint(hints, || hints::of_unknown_command(&call.path, &word));
        return Err(Failure::Silent(ERROR));
    }
    say(&cobra::help::help(&call.path))
}
