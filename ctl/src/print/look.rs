//! How the forms for people look: colours, and what depends on the terminal.
//! Where nobody looks, and under the name of the stock tool, everything stays
//! as the stock tool writes it.

use std::io::IsTerminal;

use rustix::termios::tcgetwinsize;

use crate::exit::{BAD_FEATURE, Failure, Outcome};

/// What an answer may rely on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Under our own name: there are forms that the stock tool does not have.
    pub ours: bool,
    /// The width of the terminal, in characters, if somebody looks at one.
    pub columns: Option<usize>,
    /// In colours.
    pub color: bool,
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// As it should be.
    Good,
    /// Good to know.
    Note,
    /// To be seen to.
    Warn,
    /// Wrong.
    Bad,
    /// A heading.
    Head,
}

impl Paint {
    /// As ECMA-48 numbers it.
    fn code(self) -> &'static str {
        match self {
            Paint::Good => "32",
            Paint::Note => "36",
            Paint::Warn => "33",
            Paint::Bad => "1;31",
            Paint::Head => "1",
        }
    }
}

impl Look {
    /// How it is to look under our own name, `--color` being this.
    ///
    /// # Errors
    /// If the flag does not know the word.
    pub fn ours(color: &str) -> Outcome<Look> {
        let stdout = std::io::stdout();
        let width = || tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        let columns = stdout.is_terminal().then(|| width().unwrap_or(80));
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let unwanted = set("NO_COLOR").is_some() || set("TERM").is_some_and(|term| term == "dumb");
        let color = match color {
            "always" => true,
            "never" => false,
            "auto" => columns.is_some() && !unwanted,
            other => {
                let text = format!("--color takes auto, always or never, not {}", cobra::quote(other));
                return Err(Failure::new(BAD_FEATURE, text));
            }
        };
        Ok(Look { ours: true, columns, color })
    }

    /// Whether somebody looks at a terminal.
    pub fn is_seen(self) -> bool {
        self.columns.is_some()
    }

    /// The text with blanks before it; on a terminal, folded between its words.
    pub fn fold(self, text: &str, indent: usize) -> Vec<String> {
        let room = self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(20));
        let mut lines = vec![String::new()];
        // Two blanks may mean something.
        for word in text.split(' ') {
            let line = lines.last_mut().expect("there is one");
            let long = line.chars().count() + 1 + word.chars().count();
            if line.is_empty() {
                line.push_str(word);
            } else if long <= room {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines.iter().map(|line| format!("{}{}", " ".repeat(indent), line.trim_end())).collect()
    }

    /// The text in its colour, if there are colours.
    pub fn paint(self, paint: impl Into<Option<Paint>>, text: &str) -> String {
        match paint.into() {
            Some(paint) if self.color && !text.is_empty() => format!("\x1b[{}m{text}\x1b[0m", paint.code()),
            _ => text.to_owned(),
        }
    }
}

/// A text that comes from a server, for a terminal: it must not command it.
pub fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Seconds as people say them: the two largest units.
pub fn seconds(seconds: i64) -> String {
    let all = seconds.max(0);
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(size, _)| all >= *size).unwrap_or(3);
    let mut rest = all;
    let mut parts = Vec::new();
    for (size, unit) in &units[first..units.len().min(first + 2)] {
        let count = rest / size;
        rest %= size;
        if count > 0 || parts.is_empty() {
            parts.push(format!("{count} {unit}"));
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_come_only_when_there_are_any() {
        let plain = Look { ours: true, columns: Some(80), color: false };
        let coloured = Look { color: true, ..plain };
        assert_eq!(plain.paint(Paint::Bad, "x"), "x");
        assert_eq!(coloured.paint(Paint::Bad, "x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(coloured.paint(None, "x"), "x");
        assert_eq!(coloured.paint(Paint::Good, ""), "");
        assert_eq!(Look::ours("always").map(|look| look.color), Ok(true));
        assert_eq!(Look::ours("never").map(|look| look.color), Ok(false));
        assert!(Look::ours("blue").is_err());
    }

    #[test]
    fn text_is_folded_for_a_terminal() {
        let look = |columns| Look { columns, ..Look::default() };
        let text = "one two three four  [five]";
        assert_eq!(look(None).fold(text, 2), ["  one two three four  [five]"]);
        assert_eq!(look(Some(24)).fold(text, 2), ["  one two three four", "  [five]"]);
        assert_eq!(look(Some(3)).fold("", 2), ["  "]);
        assert_eq!(look(Some(3)).fold(&"x".repeat(30), 2), [format!("  {}", "x".repeat(30))]);
    }

    #[test]
    fn times_have_two_units() {
        for (given, said) in [
            (-5, "0 s"),
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 m"),
            (97, "1 m 37 s"),
            (3_600, "1 h"),
            (3_661, "1 h 1 m"),
            (90_000, "1 d 1 h"),
            (9_000_000_000, "104166 d 16 h"),
        ] {
            assert_eq!(seconds(given), said);
        }
    }
}
