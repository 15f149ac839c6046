//! Quoting of arbitrary bytes in error texts, as Go's `%q` does it.

use std::fmt::Write as _;

/// The bytes with everything that does not print escaped, without the quotes.
pub(super) fn go_chars(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_char(&mut out, c);
        }
        for b in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    out
}

fn push_char(out: &mut String, c: char) {
    let short = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => "",
    };
    let code = u32::from(c);
    let _ = match c {
        _ if !short.is_empty() => out.write_str(short),
        ' '..='~' => out.write_char(c),
        _ if code < 0x80 => write!(out, "\\x{code:02x}"),
        // Spaces other than the plain one, controls and soft hyphens do not
        // print.
        _ if c.is_control() || c.is_whitespace() || c == '\u{ad}' || c == '\u{feff}' => {
            write!(out, "\\u{code:04x}")
        }
        _ => out.write_char(c),
    };
}
