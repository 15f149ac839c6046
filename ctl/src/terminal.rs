//! Questions to the person at the terminal.

use std::io::BufRead;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::exit::{Failure, Outcome};

/// Asks for a password on standard output and reads a line without showing it.
/// Without a terminal the line is simply read.
///
/// # Errors
/// If standard input or output fail.
pub fn password(prompt: &str) -> Outcome<String> {
    crate::say(prompt)?;
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin).ok();
    if let Some(mut modes) = shown.clone() {
        modes.local_modes.remove(LocalModes::ECHO);
        let _ = tcsetattr(&stdin, OptionalActions::Flush, &modes);
    }
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    if let Some(modes) = shown {
        let _ = tcsetattr(&stdin, OptionalActions::Flush, &modes);
    }
    crate::say("\n")?;
    read.map_err(|e| Failure::io(&e))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
