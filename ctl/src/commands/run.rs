//! Running a program of the user's own: after each event of a watch, under a
//! lock.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus};

use tokio::process::Command;

use crate::raw;

/// Runs a program to its end, with more in its environment. It shares standard
/// input, output and error with this one.
pub async fn run(words: &[String], env: &[(&str, String)]) -> Result<(), Unwell> {
    let (program, args) = words.split_first().expect("the caller has looked");
    let variables = env.iter().map(|(name, value)| (*name, raw::os(value)));
    let (program, args) = (program, args.iter().map(|arg| raw::os(arg)));
    match Command::new(raw::os(program)).args(args).envs(variables).status().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Unwell::Ended(status)),
        Err(error) => Err(Unwell::NotStarted(program.clone(), error)),
    }
}

/// How a program failed.
pub enum Unwell {
    /// By itself.
    Ended(ExitStatus),
    /// It could not be started.
    NotStarted(String, io::Error),
}

impl Unwell {
    /// The exit code that says the same.
    pub fn code(&self) -> i32 {
        match self {
            Unwell::Ended(status) => status.code().unwrap_or(255),
            Unwell::NotStarted(..) => crate::exit::ERROR,
        }
    }
}

impl std::fmt::Display for Unwell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unwell::Ended(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "exit status {code}"),
                (None, Some(signal)) => write!(f, "signal: {}", signal_name(signal)),
                (None, None) => write!(f, "{status}"),
            },
            Unwell::NotStarted(program, error) if !program.contains('/') && error.kind() == io::ErrorKind::NotFound => {
                write!(f, "exec: {}: executable file not found in $PATH", cobra::quote(program))
            }
            Unwell::NotStarted(program, error) => {
                write!(f, "fork/exec {program}: {}", crate::exit::system_words(error))
            }
        }
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        1 => "hangup".to_owned(),
        2 => "interrupt".to_owned(),
        3 => "quit".to_owned(),
        6 => "aborted".to_owned(),
        9 => "killed".to_owned(),
        11 => "segmentation fault".to_owned(),
        13 => "broken pipe".to_owned(),
        15 => "terminated".to_owned(),
        other => format!("signal {other}"),
    }
}
