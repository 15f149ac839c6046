//! Questions to the person at the terminal.

use std::{
    fs::File,
    io::{BufRead, Read},
    os::fd::AsFd,
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::{
    exit::{Failure, Outcome},
    raw,
};

/// Ends the program where a password is asked for, as the stock tool ends.
const INTERRUPTED: i32 = 255;

/// Asks for a password on standard output and reads a line without showing it.
/// Without a terminal the line is simply read.
///
/// # Errors
/// If standard input or output fail; if whoever is asked interrupts.
pub fn password(prompt: &str) -> Outcome<String> {
    let stdin = std::io::stdin();
    let Ok(shown) = tcgetattr(&stdin) else {
        crate::say(prompt)?;
        let mut line = Vec::new();
        stdin.lock().read_until(b'\n', &mut line).map_err(|e| Failure::io(&e))?;
        crate::say("\n")?;
        return Ok(raw::text(&line).trim_end_matches(['\n', '\r']).to_owned());
    };
    // Keys come one by one, an interrupt too: the terminal must be put right
    // before the program ends. It is quiet before anybody is asked to type.
    let mut quiet = shown.clone();
    quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    set(&quiet)?;
    let typed = crate::say(prompt).and_then(|()| typed());
    set(&shown)?;
    let typed = typed?;
    crate::say("\n")?;
    Ok(typed)
}

fn set(modes: &Termios) -> Outcome {
    tcsetattr(std::io::stdin(), OptionalActions::Drain, modes).map_err(|e| Failure::io(&e.into()))
}

/// A line, with the keys that correct it.
#[expect(clippy::unbuffered_bytes, reason = "a key at a time is what is wanted")]
fn typed() -> Outcome<String> {
    // No more than the line is taken, byte by byte: what follows may be for somebody else.
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| Failure::io(&e))?;
    edited(File::from(input).bytes().map(|byte| byte.map_err(|e| Failure::io(&e))))
}

/// The line that these keys make.
fn edited(keys: impl Iterator<Item = Outcome<u8>>) -> Outcome<String> {
    let mut line = Vec::new();
    for key in keys {
        match key? {
            b'\n' | b'\r' => break,
            3 => return Err(Failure::Silent(INTERRUPTED)),
            // The end of the input; after other keys it has no effect but that
            // they are read.
            4 if line.is_empty() => break,
            4 => {}
            0x7f | 8 => {
                let mut letters = raw::text(&line);
                letters.pop();
                line = raw::bytes(&letters);
            }
            // Control-U: from the beginning.
            0x15 => line.clear(),
            byte => line.push(byte),
        }
    }
    Ok(raw::text(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_correct_a_password() {
        let line = |keys: &str| edited(keys.bytes().map(Ok));
        for (keys, wanted) in [
            ("pw\nrest", "pw"),
            ("p\u{e4}\u{7f}w\r", "pw"),
            ("\u{7f}pw\n", "pw"),
            ("nothing\u{15}pw\n", "pw"),
            (" p w \n", " p w "),
            ("\u{4}", ""),
            ("p\u{4}w\n", "pw"),
            ("", ""),
        ] {
            assert_eq!(line(keys), Ok(wanted.to_owned()), "{keys:?}");
        }
        assert_eq!(line("pw\u{3}"), Err(Failure::Silent(255)));
    }
}
