//! Finds where one JSON value ends and whether it is one.
//!
//! The gateway reads a body in two steps, and each has its own error texts.
//! This is the first: a reader that knows JSON's grammar but neither the
//! message nor UTF-8, and that stops after one value.

use std::borrow::Cow;
use std::fmt;

/// Objects and arrays may be nested this deep.
const MAX_DEPTH: usize = 10_000;

/// A byte that JSON's grammar does not allow where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unexpected {
    pub(super) byte: u8,
    /// Where it stands, or what it is instead of.
    pub(super) context: Cow<'static, str>,
}

/// The text names the byte as if it were a character of its own.
impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unexpected { byte, context } = self;
        let shown = match byte {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            _ => format!("'{}'", super::quote::go_chars(char::from(*byte).encode_utf8(&mut [0; 4]).as_bytes())),
        };
        write!(f, "invalid character {shown} {context}")
    }
}

/// What the bytes hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// A value from `start` up to `end`.
    Value { start: usize, end: usize },
    /// Nothing but white space.
    Empty,
    /// The beginning of a value.
    Partial,
}

/// Where in a value the reader is.
#[derive(Clone, Copy)]
enum State {
    Value,
    /// Just after `[`.
    ValueOrEnd,
    Name,
    /// Just after `{`.
    NameOrEnd,
    /// A name or a value is complete.
    After,
    Str,
    Escape,
    Hex(u8),
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    /// The word, and how many of its letters were read.
    Word(&'static str, usize),
}

/// What an open bracket waits for.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    ObjectName,
    ObjectValue,
    Array,
}

/// Reads the first value. `end` says that nothing follows these bytes.
///
/// A number at the very end is complete only then.
pub(super) fn scan(bytes: &[u8], end: bool) -> Result<Scan, Unexpected> {
    Scanner::default().read(bytes, end)
}

/// Where a reader is that gets its bytes piece by piece: it looks at each of them once.
pub(super) struct Scanner {
    state: State,
    open: Vec<Open>,
    /// Of the bytes, so many were read.
    read: usize,
    /// Where the value begins, once it has.
    start: Option<usize>,
}

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner { state: State::Value, open: Vec::new(), read: 0, start: None }
    }
}

impl Scanner {
    /// As [`scan`]; `bytes` begin with all that was given before. After a value or an error the
    /// scanner is done.
    pub(super) fn read(&mut self, bytes: &[u8], end: bool) -> Result<Scan, Unexpected> {
        let start = match self.start {
            Some(start) => start,
            None => {
                let Some(spaces) = bytes[self.read..].iter().position(|b| !is_space(*b)) else {
                    self.read = bytes.len();
                    return Ok(Scan::Empty);
                };
                self.read += spaces;
                *self.start.insert(self.read)
            }
        };
        for (at, byte) in bytes.iter().enumerate().skip(self.read) {
            // A scalar on its own is complete once something follows it.
            if self.complete_before(*byte) {
                return Ok(Scan::Value { start, end: at });
            }
            self.step(*byte)?;
            if self.bracket_complete(*byte) {
                return Ok(Scan::Value { start, end: at + 1 });
            }
        }
        self.read = bytes.len();
        if end && self.complete_before(b' ') {
            return Ok(Scan::Value { start, end: bytes.len() });
        }
        Ok(Scan::Partial)
    }

    /// The value outside all brackets ends before this byte.
    fn complete_before(&self, byte: u8) -> bool {
        self.open.is_empty()
            && match self.state {
                State::After => true,
                State::Zero => !matches!(byte, b'.' | b'e' | b'E'),
                State::Digits => !matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E'),
                State::Fraction => !matches!(byte, b'0'..=b'9' | b'e' | b'E'),
                State::ExponentDigits => !byte.is_ascii_digit(),
                _ => false,
            }
    }

    /// The byte just read closed the outermost bracket.
    fn bracket_complete(&self, byte: u8) -> bool {
        self.open.is_empty() && matches!(self.state, State::After) && matches!(byte, b'}' | b']')
    }

    fn step(&mut self, byte: u8) -> Result<(), Unexpected> {
        self.state = match self.state {
            State::Value | State::ValueOrEnd | State::Name | State::NameOrEnd | State::After if is_space(byte) => {
                self.state
            }
            State::Value => self.begin_value(byte)?,
            State::ValueOrEnd if byte == b']' => self.close(),
            State::ValueOrEnd => self.begin_value(byte)?,
            State::NameOrEnd if byte == b'}' => self.close(),
            State::Name | State::NameOrEnd => match byte {
                b'"' => State::Str,
                _ => return Err(bad(byte, "looking for beginning of object key string")),
            },
            State::After => self.after(byte)?,
            State::Str => match byte {
                b'"' => State::After,
                b'\\' => State::Escape,
                0..0x20 => return Err(bad(byte, "in string literal")),
                _ => State::Str,
            },
            State::Escape => match byte {
                b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => State::Str,
                b'u' => State::Hex(4),
                _ => return Err(bad(byte, "in string escape code")),
            },
            State::Hex(_) if !byte.is_ascii_hexdigit() => {
                return Err(bad(byte, "in \\u hexadecimal character escape"));
            }
            State::Hex(1) => State::Str,
            State::Hex(left) => State::Hex(left - 1),
            State::Word(word, read) => match word.as_bytes()[read] {
                wanted if wanted != byte => {
                    return Err(bad(byte, format!("in literal {word} (expecting '{}')", char::from(wanted))));
                }
                _ if read + 1 == word.len() => State::After,
                _ => State::Word(word, read + 1),
            },
            _ => self.number(byte)?,
        };
        Ok(())
    }

    fn number(&mut self, byte: u8) -> Result<State, Unexpected> {
        Ok(match (self.state, byte) {
            (State::Minus, b'0') => State::Zero,
            (State::Minus, b'1'..=b'9') => State::Digits,
            (State::Minus, _) => return Err(bad(byte, "in numeric literal")),
            (State::Digits, b'0'..=b'9') => State::Digits,
            (State::Digits | State::Zero, b'.') => State::Point,
            (State::Digits | State::Zero | State::Fraction, b'e' | b'E') => State::Exponent,
            (State::Point | State::Fraction, b'0'..=b'9') => State::Fraction,
            (State::Point, _) => return Err(bad(byte, "after decimal point in numeric literal")),
            (State::Exponent, b'+' | b'-') => State::ExponentSign,
            (State::Exponent | State::ExponentSign | State::ExponentDigits, b'0'..=b'9') => State::ExponentDigits,
            (State::Exponent | State::ExponentSign, _) => {
                return Err(bad(byte, "in exponent of numeric literal"));
            }
            // The number is over: this byte belongs to what surrounds it.
            _ if is_space(byte) => State::After,
            _ => self.after(byte)?,
        })
    }

    fn begin_value(&mut self, byte: u8) -> Result<State, Unexpected> {
        Ok(match byte {
            b'{' => {
                self.push(Open::ObjectName, byte)?;
                State::NameOrEnd
            }
            b'[' => {
                self.push(Open::Array, byte)?;
                State::ValueOrEnd
            }
            b'"' => State::Str,
            b'-' => State::Minus,
            b'0' => State::Zero,
            b'1'..=b'9' => State::Digits,
            b't' => State::Word("true", 1),
            b'f' => State::Word("false", 1),
            b'n' => State::Word("null", 1),
            _ => return Err(bad(byte, "looking for beginning of value")),
        })
    }

    /// A byte after a complete name or value inside brackets.
    fn after(&mut self, byte: u8) -> Result<State, Unexpected> {
        let open = self.open.last_mut().expect("a value outside all brackets ends before the next byte");
        Ok(match (*open, byte) {
            (Open::ObjectName, b':') => {
                *open = Open::ObjectValue;
                State::Value
            }
            (Open::ObjectName, _) => return Err(bad(byte, "after object key")),
            (Open::ObjectValue, b',') => {
                *open = Open::ObjectName;
                State::Name
            }
            (Open::ObjectValue, b'}') | (Open::Array, b']') => self.close(),
            (Open::ObjectValue, _) => return Err(bad(byte, "after object key:value pair")),
            (Open::Array, b',') => State::Value,
            (Open::Array, _) => return Err(bad(byte, "after array element")),
        })
    }

    fn push(&mut self, open: Open, byte: u8) -> Result<(), Unexpected> {
        if self.open.len() == MAX_DEPTH {
            return Err(bad(byte, "exceeded max depth"));
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self) -> State {
        self.open.pop().expect("a bracket is open");
        State::After
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn bad(byte: u8, context: impl Into<Cow<'static, str>>) -> Unexpected {
    Unexpected { byte, context: context.into() }
}
