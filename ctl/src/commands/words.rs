//! Lines that are typed or piped in, taken apart: requests of a transaction and
//! of an interactive watch.

use crate::raw;

/// The words of a line: runs without white space, `"quoted with \n escapes"`,
/// `'quoted as it is'`. A quote that is not closed is passed over.
pub fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => match unquote(rest) {
                Some(found) => found,
                None => {
                    rest = rest[1..].trim_start();
                    continue;
                }
            },
            '\'' => match rest[1..].find('\'') {
                Some(end) => (rest[1..=end].to_owned(), &rest[end + 2..]),
                None => {
                    rest = rest[1..].trim_start();
                    continue;
                }
            },
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

/// A text in Go's double quotes at the start of a line, and what comes after
/// it. `None` if there is none.
pub fn unquote(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    loop {
        let next = rest.chars().next()?;
        rest = &rest[next.len_utf8()..];
        match next {
            '"' => return Some((raw::text(&bytes), rest)),
            '\n' => return None,
            '\\' => rest = escape(rest, &mut bytes)?,
            // Go takes only text between quotes as it is.
            other if raw::marked(other).is_some() => bytes.extend_from_slice("\u{fffd}".as_bytes()),
            other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// One escape, after its backslash.
fn escape<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let kind = text.chars().next()?;
    let rest = &text[kind.len_utf8()..];
    let plain = match kind {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        '"' => b'"',
        'x' => {
            bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
            return Some(&rest[2..]);
        }
        '0'..='7' => {
            bytes.push(u8::from_str_radix(text.get(..3)?, 8).ok()?);
            return Some(&text[3..]);
        }
        'u' | 'U' => {
            let digits = if kind == 'u' { 4 } else { 8 };
            let code = u32::from_str_radix(rest.get(..digits)?, 16).ok()?;
            bytes.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(&rest[digits..]);
        }
        _ => return None,
    };
    bytes.push(plain);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fall_into_words() {
        let cases: [(&str, &[&str]); 8] = [
            ("put a b", &["put", "a", "b"]),
            ("  put   \"a b\"\t'c d' ", &["put", "a b", "c d"]),
            (r#"put "a\nb" "\x41\101\u00e9""#, &["put", "a\nb", "AA\u{e9}"]),
            ("put k \"a", &["put", "k", "a"]),
            ("put k 'a", &["put", "k", "a"]),
            ("get \"\" --prefix", &["get", "", "--prefix"]),
            ("put k a\"b", &["put", "k", "a\"b"]),
            ("", &[]),
        ];
        for (line, words) in cases {
            assert_eq!(split(line), words, "{line}");
        }
    }
}
