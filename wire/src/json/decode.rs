//! A JSON value into the bytes of a message.
//!
//! The bytes come out as a careful client would send them: fields in the order
//! of their numbers, nothing that has its default value, numbers packed.

use std::collections::{BTreeMap, BTreeSet};

use prost::encoding::{WireType, encode_key, encode_varint};

use super::{
    error::JsonError,
    scalar,
    token::{Read, Reader, Token},
};
use crate::methods::{ENUMS, FieldKind, FieldShape, MESSAGES, MessageShape};

/// Messages may be nested this deep; only transactions in transactions nest
/// without bound.
pub(super) const MAX_DEPTH: usize = 200;

/// The bytes of the message that one well-formed JSON value describes.
pub(super) fn decode(json: &[u8], shape: &MessageShape) -> Result<Vec<u8>, JsonError> {
    let mut decoder = Decoder { reader: Reader::new(json) };
    decoder.message(shape, MAX_DEPTH)
}

struct Decoder<'a> {
    reader: Reader<'a>,
}

/// A value as it stands on the wire, without its key.
enum Value {
    Varint(u64),
    Bytes(Vec<u8>),
}

impl Value {
    fn is_default(&self) -> bool {
        match self {
            Value::Varint(n) => *n == 0,
            Value::Bytes(b) => b.is_empty(),
        }
    }

    fn write(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Value::Varint(n) => {
                encode_key(number, WireType::Varint, out);
                encode_varint(*n, out);
            }
            Value::Bytes(bytes) => {
                encode_key(number, WireType::LengthDelimited, out);
                encode_varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

impl Decoder<'_> {
    fn message(&mut self, shape: &MessageShape, depth: usize) -> Result<Vec<u8>, JsonError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(JsonError::proto("exceeded max recursion depth"));
        };
        let open = self.reader.read()?;
        if open.token != Token::ObjectOpen {
            return Err(self.reader.unexpected(&open));
        }
        let mut fields = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut oneofs = BTreeSet::new();
        loop {
            let name = self.reader.read()?;
            let Token::String(text) = &name.token else {
                assert_eq!(name.token, Token::ObjectClose, "an object holds names until it ends");
                return Ok(fields.into_values().flatten().collect());
            };
            let Some(field) = find(shape, text) else {
                self.reader.skip()?;
                continue;
            };
            if !seen.insert(field.number) {
                let text = format!("duplicate field {}", shown(&name));
                return Err(self.reader.error(name.at, &text));
            }
            if matches!(self.reader.peek(), Ok(Read { token: Token::Null, .. })) {
                self.reader.read()?;
                continue;
            }
            let mut out = Vec::new();
            if field.repeated {
                self.list(field, depth, &mut out)?;
            } else {
                if let Some(oneof) = field.oneof
                    && !oneofs.insert(oneof)
                {
                    let text = format!("error parsing {}, oneof {oneof} is already set", shown(&name));
                    return Err(self.reader.error(name.at, &text));
                }
                self.single(field, depth, &mut out)?;
            }
            fields.insert(field.number, out);
        }
    }

    fn single(&mut self, field: &FieldShape, depth: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
        if let FieldKind::Message(at) = field.kind {
            Value::Bytes(self.message(&MESSAGES[at], depth)?).write(field.number, out);
        } else if let Some(value) = self.scalar(field)?
            && (field.oneof.is_some() || !value.is_default())
        {
            value.write(field.number, out);
        }
        Ok(())
    }

    fn list(&mut self, field: &FieldShape, depth: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let open = self.reader.read()?;
        if open.token != Token::ArrayOpen {
            return Err(self.reader.unexpected(&open));
        }
        let mut packed = Vec::new();
        while self.reader.peek()?.token != Token::ArrayClose {
            if let FieldKind::Message(at) = field.kind {
                Value::Bytes(self.message(&MESSAGES[at], depth)?).write(field.number, out);
                continue;
            }
            match self.scalar(field)? {
                Some(Value::Varint(n)) => encode_varint(n, &mut packed),
                Some(bytes) => bytes.write(field.number, out),
                None => {}
            }
        }
        self.reader.read()?;
        if !packed.is_empty() {
            Value::Bytes(packed).write(field.number, out);
        }
        Ok(())
    }

    /// `None` is a name that the enum does not have: it is passed over like
    /// an unknown field.
    fn scalar(&mut self, field: &FieldShape) -> Result<Option<Value>, JsonError> {
        let read = self.reader.read()?;
        let (kind, value) = match field.kind {
            FieldKind::Bool => ("bool", flag(&read.token)),
            FieldKind::Bytes => ("bytes", bytes(&read.token)),
            FieldKind::String => ("string", string(&read.token)),
            FieldKind::Int64 => ("int64", digits(&read.token).and_then(signed)),
            FieldKind::Uint64 => ("uint64", digits(&read.token).and_then(unsigned)),
            FieldKind::Uint32 => ("uint32", digits(&read.token).and_then(unsigned32)),
            FieldKind::Enum(at) => {
                let names = ENUMS[at];
                if let Token::String(name) = &read.token
                    && !names.iter().any(|(known, _)| known == name)
                {
                    return Ok(None);
                }
                ("enum", enumerator(&read.token, names))
            }
            FieldKind::Message(_) => unreachable!("messages are read by `message`"),
        };
        match value {
            Some(value) => Ok(Some(value)),
            None => {
                let text = format!("invalid value for {kind} field {}: {}", field.json, shown(&read));
                Err(self.reader.error(read.at, &text))
            }
        }
    }
}

fn find(shape: &MessageShape, name: &str) -> Option<&'static FieldShape> {
    let by_json = shape.fields.iter().find(|f| f.json == name);
    by_json.or_else(|| shape.fields.iter().find(|f| f.name == name))
}

fn shown(read: &Read<'_>) -> String {
    String::from_utf8_lossy(read.raw).into_owned()
}

fn flag(token: &Token<'_>) -> Option<Value> {
    match token {
        Token::Bool(b) => Some(Value::Varint(u64::from(*b))),
        _ => None,
    }
}

fn bytes(token: &Token<'_>) -> Option<Value> {
    match token {
        Token::String(text) => scalar::base64(text).map(Value::Bytes),
        _ => None,
    }
}

fn string(token: &Token<'_>) -> Option<Value> {
    match token {
        Token::String(text) => Some(Value::Bytes(text.clone().into_bytes())),
        _ => None,
    }
}

/// A whole number, with or without quotes, as plain digits.
fn digits(token: &Token<'_>) -> Option<String> {
    match token {
        Token::Number(number) => scalar::whole(number),
        Token::String(text) => scalar::whole(scalar::quoted(text)?),
        _ => None,
    }
}

fn signed(digits: String) -> Option<Value> {
    let n: i64 = digits.parse().ok()?;
    Some(Value::Varint(n.cast_unsigned()))
}

fn unsigned(digits: String) -> Option<Value> {
    digits.parse().ok().map(Value::Varint)
}

fn unsigned32(digits: String) -> Option<Value> {
    let n: u32 = digits.parse().ok()?;
    Some(Value::Varint(u64::from(n)))
}

fn enumerator(token: &Token<'_>, names: &[(&str, i32)]) -> Option<Value> {
    let n: i32 = match token {
        Token::String(name) => names.iter().find(|(known, _)| known == name)?.1,
        Token::Number(number) => scalar::whole(number)?.parse().ok()?,
        _ => return None,
    };
    Some(Value::Varint(i64::from(n).cast_unsigned()))
}
