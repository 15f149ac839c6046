//! The trace of a run: a rolling hash of every event, and on request the lines.

use std::fmt::Write as _;

/// Virtual time, microseconds since the start of the run.
pub type Time = u64;

/// Feeds on every event. Two runs of one seed must end with the same [`Trace::hash`].
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    /// Lines are written at once (`print`), kept (`keep`: the last ones) or not made at all.
    mode: Mode,
    lines: std::collections::VecDeque<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Hash,
    Keep(usize),
    Print,
}

impl Trace {
    pub fn new(mode: Mode) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, events: 0, mode, lines: Default::default() }
    }

    fn word(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// One event: when, whose (0 = nobody's), what kind, and two words that tell it from others.
    pub fn event(&mut self, at: Time, member: u64, kind: &'static str, a: u64, b: u64, text: impl FnOnce() -> String) {
        self.events += 1;
        self.word(at);
        self.word(member);
        self.word(kind.len() as u64 ^ u64::from(kind.as_bytes()[0]) << 8);
        self.word(a);
        self.word(b);
        if self.mode == Mode::Hash {
            return;
        }
        let mut line = String::new();
        let _ = write!(line, "{:>10.6} ", at as f64 / 1e6);
        match member {
            0 => line.push_str("     "),
            m => {
                let _ = write!(line, "m{m:<3} ");
            }
        }
        let _ = write!(line, "{kind:<9} {}", text());
        if line.len() > 600 {
            let mut cut = 600;
            while !line.is_char_boundary(cut) {
                cut -= 1;
            }
            line.truncate(cut);
            line.push('…');
        }
        self.line(line);
    }

    fn line(&mut self, line: String) {
        match self.mode {
            Mode::Hash => {}
            Mode::Print => {
                use std::io::Write as _;
                // A closed pipe ends the story, not the run.
                let _ = writeln!(std::io::stdout(), "{line}");
            }
            Mode::Keep(most) => {
                if self.lines.len() == most {
                    self.lines.pop_front();
                }
                self.lines.push_back(line);
            }
        }
    }

    /// True when lines are wanted.
    pub fn tells(&self) -> bool {
        self.mode != Mode::Hash
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter()
    }
}

/// A short hash of bytes for events.
pub fn fold(bytes: &[u8]) -> u64 {
    let mut h = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = (h.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    h
}

/// Bytes as people read them: printable ASCII, the rest escaped.
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
