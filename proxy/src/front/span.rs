//! Spans of time as HAProxy writes them: `500ms`, `5s`, `2m`; a bare number is milliseconds.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A span of time that a file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

/// Units, their length in microseconds, the longest first.
const UNITS: [(&str, u64); 6] =
    [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// What a span may look like, for messages.
pub(crate) const FORM: &str = "a number with us, ms, s, m, h or d behind it (alone: milliseconds)";

impl Span {
    pub(crate) const fn seconds(seconds: u64) -> Span {
        Span(Duration::from_secs(seconds))
    }

    /// None: the text is no span, or longer than HAProxy allows (24 days).
    pub(crate) fn parse(text: &str) -> Option<Span> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().ok()?;
        let unit = match &text[digits..] {
            "" => "ms",
            unit => unit,
        };
        let (_, micros) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let micros = number.checked_mul(*micros)?;
        (micros / 1_000 <= i32::MAX as u64).then_some(Span(Duration::from_micros(micros)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros() as u64;
        let (unit, length) =
            UNITS.iter().find(|(_, length)| micros >= *length && micros.is_multiple_of(*length)).unwrap_or(&UNITS[3]);
        write!(f, "{}{unit}", micros / length)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)?;
        Span::parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no span of time: {FORM}")))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]+(us|ms|s|m|h|d)?$",
            "description": "A span of time: a number with us, ms, s, m, h or d behind it; alone: milliseconds."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written_as_haproxy_does() {
        for (text, micros, written) in [
            ("5s", 5_000_000, "5s"),
            ("1500", 1_500_000, "1500ms"),
            ("120s", 120_000_000, "2m"),
            ("0", 0, "0s"),
            ("300us", 300, "300us"),
            ("24d", 2_073_600_000_000, "24d"),
        ] {
            let span = Span::parse(text).expect(text);
            assert_eq!((span.0.as_micros(), span.to_string().as_str()), (micros, written), "{text}");
        }
        for text in ["", "s", "5 s", "5sec", "-1", "1.5s", "25d", "99999999999999999999", "5S"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }
}
