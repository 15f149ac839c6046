//! The bytes of a message into JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::{decode::MAX_DEPTH, error::JsonError, scalar::push_base64};
use crate::methods::{ENUMS, FieldKind, FieldShape, MESSAGES, MessageShape};

/// How the JSON is spaced and escaped. etcd's gateway has two ways, and clients
/// have been seen to match parts of either.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Style {
    /// A whole body: a space after each comma.
    Body,
    /// Part of a stream: no spaces, and what HTML would take for a tag or a
    /// line end is escaped.
    Frame,
}

/// Appends the message as JSON.
pub(super) fn encode(out: &mut String, style: Style, bytes: &[u8], shape: &MessageShape) -> Result<(), JsonError> {
    // An answer wraps what a request nested into a few messages more.
    Encoder { out, style }.message(bytes, shape, MAX_DEPTH + 8)
}

/// Appends a string as JSON.
pub(super) fn push_string(out: &mut String, style: Style, text: &str) {
    out.push('"');
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..' ' => push_unicode(out, code),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if style == Style::Frame => push_unicode(out, code),
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn push_unicode(out: &mut String, code: u32) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\\u{code:04x}");
}

struct Encoder<'a> {
    out: &'a mut String,
    style: Style,
}

/// A value as it stands on the wire.
#[derive(Clone, Copy)]
enum Value<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
}

impl Encoder<'_> {
    fn message(&mut self, bytes: &[u8], shape: &MessageShape, depth: usize) -> Result<(), JsonError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(JsonError::proto("exceeded max recursion depth"));
        };
        let values = values(bytes, shape)?;
        self.out.push('{');
        let mut first = true;
        for field in shape.fields {
            let Some(found) = values.get(&field.number) else {
                continue;
            };
            if !field.repeated && field.oneof.is_none() && is_default(found, field.kind) {
                continue;
            }
            self.comma(&mut first);
            self.out.push('"');
            self.out.push_str(field.name);
            self.out.push_str("\":");
            if field.repeated {
                self.list(found, field, depth)?;
            } else {
                self.single(found, field, depth)?;
            }
        }
        self.out.push('}');
        Ok(())
    }

    fn comma(&mut self, first: &mut bool) {
        if !std::mem::replace(first, false) {
            self.out.push_str(if self.style == Style::Body { ", " } else { "," });
        }
    }

    fn list(&mut self, found: &[Value<'_>], field: &FieldShape, depth: usize) -> Result<(), JsonError> {
        self.out.push('[');
        let mut first = true;
        for value in found {
            self.comma(&mut first);
            self.value(*value, field, depth)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn single(&mut self, found: &[Value<'_>], field: &FieldShape, depth: usize) -> Result<(), JsonError> {
        // Given more than once, the last value counts; pieces of one message
        // are one message.
        match (field.kind, found) {
            (FieldKind::Message(at), [_, _, ..]) => {
                let pieces = found.iter().filter_map(|v| match v {
                    Value::Bytes(b) => Some(*b),
                    Value::Varint(_) => None,
                });
                self.message(&pieces.collect::<Vec<_>>().concat(), &MESSAGES[at], depth)
            }
            (_, [.., last]) => self.value(*last, field, depth),
            (_, []) => unreachable!("a field is listed because a value was found"),
        }
    }

    fn value(&mut self, value: Value<'_>, field: &FieldShape, depth: usize) -> Result<(), JsonError> {
        match (field.kind, value) {
            (FieldKind::Message(at), Value::Bytes(b)) => self.message(b, &MESSAGES[at], depth)?,
            (FieldKind::Bytes, Value::Bytes(b)) => {
                self.out.push('"');
                push_base64(self.out, b);
                self.out.push('"');
            }
            (FieldKind::String, Value::Bytes(b)) => match std::str::from_utf8(b) {
                Ok(text) => push_string(self.out, self.style, text),
                Err(_) => {
                    return Err(JsonError::proto(&format!("field {} contains invalid UTF-8", field.name)));
                }
            },
            (FieldKind::Bool, Value::Varint(n)) => self.out.push_str(if n == 0 { "false" } else { "true" }),
            (FieldKind::Int64, Value::Varint(n)) => self.display(format_args!("\"{}\"", n.cast_signed())),
            (FieldKind::Uint64, Value::Varint(n)) => self.display(format_args!("\"{n}\"")),
            (FieldKind::Uint32, Value::Varint(n)) => self.display(format_args!("{}", n & u64::from(u32::MAX))),
            (FieldKind::Enum(at), Value::Varint(n)) => {
                // An enum is 32 bits wide, whatever was sent.
                let n = (n & u64::from(u32::MAX)) as u32;
                match ENUMS[at].iter().find(|(_, number)| *number == n.cast_signed()) {
                    Some((name, _)) => self.display(format_args!("\"{name}\"")),
                    None => self.display(format_args!("{}", n.cast_signed())),
                }
            }
            _ => unreachable!("values were sorted by kind when they were read"),
        }
        Ok(())
    }

    fn display(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

fn is_default(found: &[Value<'_>], kind: FieldKind) -> bool {
    match (kind, found.last()) {
        (FieldKind::Message(_), _) => false,
        (_, Some(Value::Varint(n))) => *n == 0,
        (_, Some(Value::Bytes(b))) => b.is_empty(),
        (_, None) => true,
    }
}

/// The known fields of a message by number, each with its values in the order
/// in which they came.
fn values<'b>(mut bytes: &'b [u8], shape: &MessageShape) -> Result<BTreeMap<u32, Vec<Value<'b>>>, JsonError> {
    let mut values: BTreeMap<u32, Vec<Value<'b>>> = BTreeMap::new();
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).map_err(malformed)?;
        let Some(field) = shape.fields.iter().find(|f| f.number == number) else {
            skip_field(wire_type, number, &mut bytes, DecodeContext::default()).map_err(malformed)?;
            continue;
        };
        if let Some(oneof) = field.oneof {
            // The last member of a oneof takes the place of any other.
            for other in shape.fields.iter().filter(|f| f.oneof == Some(oneof) && f.number != number) {
                values.remove(&other.number);
            }
        }
        let found = values.entry(number).or_default();
        let is_varint = !matches!(field.kind, FieldKind::Bytes | FieldKind::String | FieldKind::Message(_));
        match wire_type {
            WireType::Varint if is_varint => found.push(Value::Varint(decode_varint(&mut bytes).map_err(malformed)?)),
            WireType::LengthDelimited => {
                let mut piece = delimited(&mut bytes)?;
                if !is_varint {
                    found.push(Value::Bytes(piece));
                }
                while is_varint && !piece.is_empty() {
                    found.push(Value::Varint(decode_varint(&mut piece).map_err(malformed)?));
                }
            }
            other => {
                return Err(JsonError::proto(&format!("field {} has wire type {other:?}", field.name)));
            }
        }
    }
    values.retain(|_, found| !found.is_empty());
    Ok(values)
}

fn delimited<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], JsonError> {
    let length = decode_varint(bytes).map_err(malformed)?;
    let split = usize::try_from(length).ok().and_then(|n| bytes.split_at_checked(n));
    let (piece, rest) = split.ok_or_else(|| JsonError::proto("unexpected EOF"))?;
    *bytes = rest;
    Ok(piece)
}

fn malformed(error: prost::DecodeError) -> JsonError {
    JsonError::proto(&error.to_string())
}
