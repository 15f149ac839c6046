//! A value as lines for people: JSON indented, objects of Kubernetes by their
//! names, text as it is, anything else as a hexadecimal dump.

use super::kubernetes::{self, Object};
use crate::print;

/// More of a value is not shown.
const MOST: usize = 1 << 20;
/// Longer lines are cut into pieces, so that one can move within them.
const LINE: usize = 200;
/// Bytes on a line of a dump.
const DUMP: usize = 16;

/// A value, ready for the screen. No line has control characters in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// What it is taken for.
    pub what: String,
    /// The lines.
    pub lines: Vec<String>,
    /// Whether there is a dump among them, whose lines make no sense in pieces.
    pub dumped: bool,
}

impl Shown {
    fn text(what: &str, lines: Vec<String>) -> Shown {
        Shown { what: what.to_owned(), lines, dumped: false }
    }

    fn dump(what: impl Into<String>, lines: Vec<String>) -> Shown {
        Shown { what: what.into(), lines, dumped: true }
    }
}

/// A value as people want to see it; with `hex` always as a dump.
pub fn value(value: &[u8], hex: bool) -> Shown {
    let part = &value[..value.len().min(MOST)];
    let mut shown = if hex { Shown::dump("bytes", dump(part)) } else { recognise(value, part) };
    if part.len() < value.len() {
        shown.lines.push(format!("… the first {MOST} of {} bytes", value.len()));
    }
    shown
}

fn recognise(value: &[u8], part: &[u8]) -> Shown {
    if value.is_empty() {
        return Shown::text("empty", Vec::new());
    }
    if let Some(object) = kubernetes::object(value) {
        let what = format!("Kubernetes {}", clean(&object.kind));
        return Shown::dump(what, [describe(&object), dump(part)].concat());
    }
    if let Some(with) = kubernetes::encryption(value) {
        return Shown::dump(format!("encrypted by Kubernetes: {with}"), dump(part));
    }
    match std::str::from_utf8(part) {
        Ok(text) if indentable(value) => Shown::text("JSON", lines(&indent(text))),
        Ok(text) if is_text(text) => Shown::text("text", lines(text)),
        // The limit may lie in the middle of a character.
        Err(error) if part.len() < value.len() && part.len() - error.valid_up_to() < 4 => {
            recognise(value, &part[..error.valid_up_to()])
        }
        _ => Shown::dump("binary", dump(part)),
    }
}

fn describe(object: &Object) -> Vec<String> {
    let created = jiff::Timestamp::from_second(object.created).ok().filter(|_| object.created != 0);
    let labels = object.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    let rows = [
        ("kind", object.kind.clone()),
        ("apiVersion", object.api_version.clone()),
        ("namespace", object.namespace.clone()),
        ("name", object.name.clone()),
        ("uid", object.uid.clone()),
        ("created", created.map_or_else(String::new, |t| t.to_string())),
        ("labels", labels),
        ("object", format!("{} bytes of protobuf", object.size)),
    ];
    let rows = rows.iter().filter(|(_, text)| !text.is_empty());
    rows.flat_map(|(name, text)| lines(&format!("{name:<11} {}", clean(text)))).chain([String::new()]).collect()
}

/// Whether it is one JSON object or list: a number alone is text.
fn indentable(value: &[u8]) -> bool {
    let first = value.iter().find(|b| !b.is_ascii_whitespace());
    value.len() <= MOST
        && matches!(first, Some(b'{' | b'['))
        && serde_json::from_slice::<serde::de::IgnoredAny>(value).is_ok()
}

/// JSON on lines of its own. Names, numbers and their order stay as they were
/// written. The text must be JSON.
fn indent(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped, mut fresh) = (0_usize, false, false, false);
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    };
    for c in json.chars() {
        if quoted {
            text.push(c);
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        if c.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(c, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        // An empty pair stays together.
        if fresh != closes {
            line(&mut text, depth);
        }
        fresh = matches!(c, '{' | '[');
        depth += usize::from(fresh);
        quoted = c == '"';
        text.push(c);
        match c {
            ':' => text.push(' '),
            ',' => line(&mut text, depth),
            _ => {}
        }
    }
    text
}

fn is_text(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line: Vec<char> = clean(&line.replace('\t', "    ")).chars().collect();
        match line.is_empty() {
            true => lines.push(String::new()),
            false => lines.extend(line.chunks(LINE).map(|piece| piece.iter().collect::<String>())),
        }
    }
    lines
}

/// Without control characters, which a terminal would obey.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Offset, bytes, and those that are printable.
fn dump(bytes: &[u8]) -> Vec<String> {
    let line = |(at, row): (usize, &[u8])| {
        let mut text = format!("{:08x} ", at * DUMP);
        for column in 0..DUMP {
            let gap = if column == DUMP / 2 { " " } else { "" };
            let byte = row.get(column).map_or_else(|| "  ".to_owned(), |b| format!("{b:02x}"));
            text += &format!("{gap} {byte}");
        }
        let readable = row.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' });
        format!("{text}  {}", readable.collect::<String>())
    };
    bytes.chunks(DUMP).enumerate().map(line).collect()
}

/// A key, or a part of one, on one line: as it is if it can be printed and has
/// no doubt about it, otherwise in quotes with escapes.
pub fn name(bytes: &[u8]) -> String {
    let quoted = print::quote(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) if quoted.len() == text.len() + 2 && !text.is_empty() && text.trim() == text => text.to_owned(),
        _ => quoted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_value() {
        let show = |bytes: &[u8]| {
            let shown = value(bytes, false);
            (shown.what, shown.lines.join("\n"))
        };
        let cases: [(&[u8], &str, &str); 9] = [
            (b"", "empty", ""),
            (b"plain", "text", "plain"),
            (b"12", "text", "12"),
            (b"a\tb\nc\n", "text", "a    b\nc"),
            (b"{\"a\":1,}", "text", "{\"a\":1,}"),
            (
                br#" {"b":[1,2,{}],"a":"x,\"{y","n":12345678901234567890.0,"e":[]} "#,
                "JSON",
                "{\n  \"b\": [\n    1,\n    2,\n    {}\n  ],\n  \"a\": \"x,\\\"{y\",\n  \"n\": 12345678901234567890.0,\n  \"e\": []\n}",
            ),
            (
                b"\x00AZ\xff56789 bcdefgh",
                "binary",
                "00000000  00 41 5a ff 35 36 37 38  39 20 62 63 64 65 66 67  .AZ.56789 bcdefg\n\
                 00000010  68                                                h",
            ),
            (b"\x1b[31m", "binary", "00000000  1b 5b 33 31 6d                                    .[31m"),
            (
                b"k8s:enc:aescbc:v1:k:\x00",
                "encrypted by Kubernetes: aescbc v1 k",
                "00000000  6b 38 73 3a 65 6e 63 3a  61 65 73 63 62 63 3a 76  k8s:enc:aescbc:v\n\
                 00000010  31 3a 6b 3a 00                                    1:k:.",
            ),
        ];
        for (bytes, what, lines) in cases {
            assert_eq!(show(bytes), (what.to_owned(), lines.to_owned()));
        }
    }

    #[test]
    fn an_object_of_kubernetes() {
        let shown = value(&kubernetes::tests::pod(), false);
        assert_eq!(shown.what, "Kubernetes Pod");
        let head = "kind        Pod\napiVersion  v1\nnamespace   shop\nname        web-0\nuid         2b1f7c0e\n\
                    created     2023-11-14T22:13:20Z\nlabels      app=web\n";
        assert!(shown.lines.join("\n").starts_with(head), "{:#?}", shown.lines);
        assert!(shown.lines.iter().any(|line| line.starts_with("00000000  6b 38 73 00")));
    }

    #[test]
    fn large_and_nested_values_are_shown_in_part() {
        let large = "ä".repeat(MOST);
        let shown = value(large.as_bytes(), false);
        assert_eq!(shown.what, "text");
        assert_eq!(shown.lines.last().unwrap(), &format!("… the first {MOST} of {} bytes", 2 * MOST));
        assert!(shown.lines.iter().all(|line| line.chars().count() <= LINE));
        // Half a character at the limit.
        assert_eq!(value(format!("x{large}").as_bytes(), false).what, "text");
        assert_eq!(value("[".repeat(100_000).as_bytes(), false).what, "text");
        assert_eq!(value(&large.as_bytes()[..40], true).what, "bytes");
    }

    #[test]
    fn names_cannot_command_a_terminal() {
        let cases: [(&[u8], &str); 6] = [
            (b"pods/", "pods/"),
            ("käse".as_bytes(), "käse"),
            (b"", "\"\""),
            (b"a\x1b[2J", r#""a\x1b[2J""#),
            (b"\xff", r#""\xff""#),
            (b" a", "\" a\""),
        ];
        for (bytes, shown) in cases {
            assert_eq!(name(bytes), shown);
        }
    }
}
