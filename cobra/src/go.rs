//! Values as Go reads them, with its words for what is none, and texts as it quotes them.

use std::time::Duration;

/// A text in quotes, as Go writes it.
pub fn quote(text: &str) -> String {
    quote_bytes(&crate::raw::bytes(text))
}

fn go_error(function: &str, value: &str, reason: &str) -> String {
    format!("strconv.{function}: parsing {}: {reason}", quote(value))
}

/// A truth value in one of Go's spellings.
///
/// # Errors
/// Go's words.
pub fn parse_bool(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(go_error("ParseBool", value, "invalid syntax")),
    }
}

fn radix(digits: &str) -> (u32, &str) {
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    }
}

fn magnitude(digits: &str) -> Result<u64, &'static str> {
    let (radix, digits) = radix(digits);
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return Err("invalid syntax");
    }
    if digits.chars().any(|c| !c.is_digit(radix)) {
        return Err("invalid syntax");
    }
    u64::from_str_radix(digits, radix).map_err(|_| "value out of range")
}

/// A signed number, with a prefix of its base or none.
///
/// # Errors
/// Go's words.
pub fn parse_int(value: &str) -> Result<i64, String> {
    let (negative, digits) = match value.as_bytes().first() {
        Some(b'-') => (true, &value[1..]),
        Some(b'+') => (false, &value[1..]),
        _ => (false, value),
    };
    let bad = |reason| go_error("ParseInt", value, reason);
    let size = i128::from(magnitude(digits).map_err(bad)?);
    i64::try_from(if negative { -size } else { size }).map_err(|_| bad("value out of range"))
}

/// An unsigned number, with a prefix of its base or none.
///
/// # Errors
/// Go's words.
pub fn parse_uint(value: &str) -> Result<u64, String> {
    magnitude(value).map_err(|reason| go_error("ParseUint", value, reason))
}

/// Go counts 2^63 nanoseconds at most.
const MOST_SECONDS: f64 = 9_223_372_036.0;

/// A duration such as `1.5h` or `2m3s`.
///
/// # Errors
/// Go's words.
pub fn parse_duration(value: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", quote(value));
    let mut rest = value.strip_prefix(['+', '-']).unwrap_or(value);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().map_err(|_| invalid())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "" => return Err(format!("time: missing unit in duration {}", quote(value))),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            other => return Err(format!("time: unknown unit {} in duration {}", quote(other), quote(value))),
        };
        seconds += number * unit;
        rest = &rest[end..];
    }
    // Time that is less than none has run out, as it has for a context in Go.
    let seconds = if value.starts_with('-') { 0.0 } else { seconds };
    if seconds > MOST_SECONDS { Err(invalid()) } else { Duration::try_from_secs_f64(seconds).map_err(|_| invalid()) }
}

/// A duration as Go prints it: `1.5s`, `2m3s`, `812.4µs`.
pub fn duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = format!("{}s", decimal(nanos % 60_000_000_000, 1_000_000_000));
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

/// A quotient by a power of ten, without zeros at its end.
fn decimal(value: u128, unit: u128) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", value / unit, value % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A signed decimal number, as arguments are read.
///
/// # Errors
/// Go's words.
pub fn parse_decimal(value: &str) -> Result<i64, String> {
    value.parse::<i64>().map_err(|error| {
        let reason = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        go_error("ParseInt", value, reason)
    })
}

/// Bytes in quotes, as Go's `%q` writes them.
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\x07' => text.push_str("\\a"),
                '\x08' => text.push_str("\\b"),
                '\x0c' => text.push_str("\\f"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\x0b' => text.push_str("\\v"),
                c if (c as u32) < 0x20 || c as u32 == 0x7f => text.push_str(&format!("\\x{:02x}", c as u32)),
                ' ' => text.push(' '),
                c if is_print(c) => text.push(c),
                c if (c as u32) < 0x1_0000 => text.push_str(&format!("\\u{:04x}", c as u32)),
                c => text.push_str(&format!("\\U{:08x}", c as u32)),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    text
}

/// Whether Go prints the character as it is. What the standard library escapes
/// for debugging is what is not printable.
fn is_print(c: char) -> bool {
    matches!(c, '\'') || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_does() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (2_442_578, "2.442578ms"),
            (10_000_000, "10ms"),
            (1_290_722_651, "1.290722651s"),
            (60_000_000_000, "1m0s"),
            (3_723_500_000_000, "1h2m3.5s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn quotes_are_go_s() {
        let cases: [(&[u8], &str); 5] = [
            (b"foo", r#""foo""#),
            (b"b\x01\xff\"q<\xc3\xa9", r#""b\x01\xff\"q<é""#),
            (b"\n\t\\'\x7f", r#""\n\t\\'\x7f""#),
            ("\u{200b}\u{e000}".as_bytes(), r#""\u200b\ue000""#),
            (b"", r#""""#),
        ];
        for (bytes, quoted) in cases {
            assert_eq!(quote_bytes(bytes), quoted);
        }
    }

    #[test]
    fn durations_are_go_s() {
        let good = [("5s", 5000), ("1m30s", 90_000), ("1.5h", 5_400_000), ("300ms", 300), ("0", 0), ("-5s", 0)];
        for (text, millis) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        let bad = [
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("x", "time: invalid duration \"x\""),
            ("", "time: invalid duration \"\""),
            ("2562048h", "time: invalid duration \"2562048h\""),
        ];
        for (text, reason) in bad {
            assert_eq!(parse_duration(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn numbers_have_go_s_bounds_and_prefixes() {
        assert_eq!(parse_int("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_int("0b11"), Ok(3));
        assert_eq!(parse_int("017"), Ok(15));
        assert!(parse_int("9223372036854775808").unwrap_err().ends_with("value out of range"));
        assert!(parse_int("--5").is_err() && parse_int("").is_err() && parse_int("0x").is_err());
        assert!(parse_uint("-1").is_err());
    }
}
