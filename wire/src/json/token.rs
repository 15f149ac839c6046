//! Reads the parts of a JSON value that [`mod@super::scan`] has found well formed.
//!
//! This is the second step of reading a body. The grammar is known to hold, so
//! what is left to refuse is what strings hold: bad UTF-8 and lone surrogates.

use super::{error::JsonError, quote::go_chars};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Null,
    Bool(bool),
    /// As written.
    Number(&'a str),
    /// With its escapes resolved.
    String(String),
    ObjectOpen,
    ObjectClose,
    ArrayOpen,
    ArrayClose,
}

/// A token with its place and its text, for errors.
#[derive(Clone, Debug)]
pub(super) struct Read<'a> {
    pub token: Token<'a>,
    pub at: usize,
    pub raw: &'a [u8],
}

pub(super) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// `all` is one well-formed JSON value.
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Reader { all, at: 0 }
    }

    /// The next token, which stays next.
    pub(crate) fn peek(&mut self) -> Result<Read<'a>, JsonError> {
        let before = self.at;
        let read = self.read();
        self.at = before;
        read
    }

    /// The next token. Commas and colons say nothing that their places do not,
    /// and are passed over.
    pub(crate) fn read(&mut self) -> Result<Read<'a>, JsonError> {
        while matches!(self.all[self.at], b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') {
            self.at += 1;
        }
        let at = self.at;
        let (token, length) = match self.all[at] {
            b'{' => (Token::ObjectOpen, 1),
            b'}' => (Token::ObjectClose, 1),
            b'[' => (Token::ArrayOpen, 1),
            b']' => (Token::ArrayClose, 1),
            b'n' => (Token::Null, 4),
            b't' => (Token::Bool(true), 4),
            b'f' => (Token::Bool(false), 5),
            b'"' => self.string(at)?,
            _ => self.number(at),
        };
        self.at += length;
        Ok(Read { token, at, raw: &self.all[at..self.at] })
    }

    /// Passes over one value, of any depth.
    pub(crate) fn skip(&mut self) -> Result<(), JsonError> {
        let mut depth = 0_usize;
        loop {
            match self.read()?.token {
                Token::ObjectOpen | Token::ArrayOpen => depth += 1,
                Token::ObjectClose | Token::ArrayClose => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn number(&self, at: usize) -> (Token<'a>, usize) {
        let rest = &self.all[at..];
        let length = rest
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        let text = std::str::from_utf8(&rest[..length]).expect("the bytes were just seen to be ASCII");
        (Token::Number(text), length)
    }

    fn string(&self, at: usize) -> Result<(Token<'a>, usize), JsonError> {
        let mut out = String::new();
        let mut from = at + 1;
        loop {
            let plain = self.all[from..]
                .iter()
                .position(|b| matches!(b, b'"' | b'\\'))
                .expect("the string was seen to be closed");
            match std::str::from_utf8(&self.all[from..from + plain]) {
                Ok(text) => out.push_str(text),
                Err(_) => return Err(self.syntax(at, "invalid UTF-8 in string")),
            }
            from += plain;
            if self.all[from] == b'"' {
                return Ok((Token::String(out), from + 1 - at));
            }
            from += self.escape(at, from, &mut out)?;
        }
    }

    /// Resolves the escape at `from` in the string at `at`; its length.
    fn escape(&self, at: usize, from: usize, out: &mut String) -> Result<usize, JsonError> {
        let simple = match self.all[from + 1] {
            b'u' => return self.unicode(at, from, out),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            other => char::from(other),
        };
        out.push(simple);
        Ok(2)
    }

    fn unicode(&self, at: usize, from: usize, out: &mut String) -> Result<usize, JsonError> {
        let unit = hex(&self.all[from + 2..from + 6]).expect("the digits were checked");
        if let Some(c) = char::from_u32(unit) {
            out.push(c);
            return Ok(6);
        }
        // One half of a pair: the other must follow at once.
        let Some(second) = self.all.get(from + 6..from + 12) else {
            return Err(JsonError::proto("unexpected EOF"));
        };
        let low = second.strip_prefix(b"\\u").and_then(hex);
        let pair = low.and_then(|low| {
            let units = [u16::try_from(unit).ok()?, u16::try_from(low).ok()?];
            char::decode_utf16(units).next()?.ok()
        });
        match pair {
            Some(c) => {
                out.push(c);
                Ok(12)
            }
            None => Err(self.syntax(at, &format!("invalid escape code \"{}\" in string", go_chars(second)))),
        }
    }

    /// An error in the grammar at a place.
    pub(crate) fn syntax(&self, at: usize, text: &str) -> JsonError {
        let (line, column) = self.position(at);
        JsonError::proto(&format!("syntax error (line {line}:{column}): {text}"))
    }

    /// An error in the meaning at a place.
    pub(crate) fn error(&self, at: usize, text: &str) -> JsonError {
        let (line, column) = self.position(at);
        JsonError::proto(&format!("(line {line}:{column}): {text}"))
    }

    pub(crate) fn unexpected(&self, read: &Read<'_>) -> JsonError {
        self.syntax(read.at, &format!("unexpected token {}", String::from_utf8_lossy(read.raw)))
    }

    /// Line and column, both from 1; a column is a character.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.all[..at];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let column = before[start..]
            .utf8_chunks()
            .map(|chunk| chunk.valid().chars().count() + chunk.invalid().len())
            .sum::<usize>();
        (line, column + 1)
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    // `from_str_radix` would take a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
