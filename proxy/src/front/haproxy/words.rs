//! Words of a line: quotes, escapes, comments, variables.

use super::Fault;
use crate::front::span::{FORM, Span};
use std::ops::RangeInclusive;

/// A line that is not empty.
#[derive(Debug)]
pub(crate) struct Line {
    /// From 1 on.
    pub(crate) number: usize,
    pub(crate) words: Vec<String>,
}

impl Line {
    /// Empty where there is none.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    pub(crate) fn wanted(&self, at: usize, what: &str) -> Result<&str, Fault> {
        match self.word(at) {
            "" => Err(Fault::new(format!("`{}` wants {what}", self.words[..at.min(self.words.len())].join(" ")))),
            word => Ok(word),
        }
    }

    pub(crate) fn number_at(&self, at: usize, range: RangeInclusive<u32>) -> Result<u32, Fault> {
        let word = self.wanted(at, "a number")?;
        let within = |number: &u32| range.contains(number);
        word.parse().ok().filter(within).ok_or_else(|| {
            let (first, last) = (range.start(), range.end());
            Fault::new(format!("`{}` is a number from {first} to {last}, not `{word}`", self.words[at - 1]))
        })
    }

    pub(crate) fn span_at(&self, at: usize) -> Result<Span, Fault> {
        let word = self.wanted(at, "a span of time")?;
        let text = || Fault::new(format!("`{}` is a span of time, not `{word}`: {FORM}", self.words[at - 1]));
        Span::parse(word).ok_or_else(text)
    }
}

/// The words of a line.
pub(crate) fn split(line: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>, Fault> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => {
                let Some(next) = chars.next() else {
                    return Err(Fault::new("the line ends behind a backslash"));
                };
                let taken = match next {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                };
                word.get_or_insert_default().push(taken);
            }
            ('$', Some('"')) => {
                let name = variable(&mut chars);
                if name.is_empty() {
                    return Err(Fault::new("`$` in quotes wants the name of a variable"));
                }
                word.get_or_insert_default().push_str(&env(&name).unwrap_or_default());
            }
            ('#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Fault::new("a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// `NAME` or `{NAME}`.
fn variable(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let braced = chars.next_if_eq(&'{').is_some();
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
        name.push(c);
    }
    if braced {
        chars.next_if_eq(&'}');
    }
    name
}
