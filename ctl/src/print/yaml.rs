//! `-w yaml`: what `-w json` says, with bytes that are text shown as text. Only
//! `kvorum ctl` has it.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};

use super::json;
use crate::exit::{BAD_FEATURE, Failure, Outcome};

/// One document, with its mark at the beginning: answers that follow each other
/// are a stream of them.
///
/// # Errors
/// Those of the answer.
pub fn document(answer: impl FnOnce() -> Outcome<String>) -> Outcome<String> {
    let json = json::marked(answer)?;
    let failed = |reason: String| Failure::new(BAD_FEATURE, format!("the answer cannot be written as YAML: {reason}"));
    let node: Node = serde_json::from_str(&json).map_err(|e| failed(e.to_string()))?;
    // A value is never wrapped: it could be taken for two lines.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    let text = serde_saphyr::to_string_with_options(&node, options).map_err(|e| failed(e.to_string()))?;
    // A value at the end may have line ends of its own.
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("---\n{text}{end}"))
}

/// A JSON value whose fields keep their order.
#[derive(Debug, PartialEq)]
enum Node {
    Null,
    Switch(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Node>),
    Fields(Vec<(String, Node)>),
}

impl Node {
    /// Bytes that were marked as such, or the fields that they were.
    fn of_fields(mut fields: Vec<(String, Node)>) -> Node {
        match &mut fields[..] {
            [(name, Node::Text(text))] if name == json::MARK => match BASE64_STANDARD.decode(&text) {
                Ok(bytes) => Node::Bytes(bytes),
                Err(_) => Node::Fields(fields),
            },
            _ => Node::Fields(fields),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Node, D::Error> {
        from.deserialize_any(Read)
    }
}

struct Read;

impl<'de> Visitor<'de> for Read {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Switch(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Signed(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Unsigned(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(Node::of_fields(fields))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Null => to.serialize_unit(),
            Node::Switch(value) => to.serialize_bool(*value),
            Node::Signed(value) => to.serialize_i64(*value),
            Node::Unsigned(value) => to.serialize_u64(*value),
            Node::Float(value) => to.serialize_f64(*value),
            Node::Text(text) => to.serialize_str(text),
            Node::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => to.serialize_str(text),
                Err(_) => to.serialize_bytes(bytes),
            },
            Node::List(items) => {
                let mut list = to.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Node::Fields(fields) => {
                let mut map = to.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use client::wire::{
        etcdserverpb::ResponseHeader,
        mvccpb::{Event, KeyValue},
    };

    use super::*;

    fn written(json: impl FnOnce() -> String) -> String {
        document(|| Ok(json())).expect("it can be written")
    }

    fn value(value: &[u8]) -> String {
        let text = written(|| json::Object::new().some_bytes("value", value).finish());
        text.strip_prefix("---\n").and_then(|text| text.strip_suffix('\n')).expect("a document").to_owned()
    }

    #[test]
    fn bytes_are_text_if_they_can_be() {
        let cases: [(&[u8], &str); 13] = [
            (b"plain", "value: plain"),
            (b"\xff\x00", "value: !!binary /wA="),
            (b"true", "value: \"true\""),
            (b"12", "value: \"12\""),
            (b"~", "value: \"~\""),
            (b"a: b", "value: \"a: b\""),
            (b"- a", "value: \"- a\""),
            (b"one\ntwo\n", "value: |\n  one\n  two"),
            (b"a\x00\x1b[2J", "value: \"a\\0\\e[2J\""),
            ("é😀".as_bytes(), "value: é😀"),
            (b" x ", "value: \" x \""),
            (b"a\xc2\x85b", "value: \"a\\Nb\""),
            (b"a\n\n\n", "value: |+\n  a\n\n"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(value(bytes), expected, "{bytes:?}");
        }
        let long = "word ".repeat(60);
        assert_eq!(value(long.as_bytes()).lines().count(), 1);
    }

    #[test]
    fn fields_keep_their_order_and_numbers_their_digits() {
        let header = ResponseHeader { cluster_id: u64::MAX, member_id: 2, revision: 3, raft_term: 4 };
        let kv = KeyValue { key: "z".into(), value: (&b"\xff"[..]).into(), lease: i64::MIN, ..KeyValue::default() };
        let text = written(|| {
            json::Object::new()
                .header(Some(&header))
                .some_array("keys", vec![json::bytes(b"k"), json::bytes(b"\xfe")])
                .some_array("events", vec![json::event(&Event { kv: Some(kv), ..Event::default() })])
                .raw("none", "null")
                .raw("list", "[]")
                .finish()
        });
        let expected = "---
header:
  cluster_id: 18446744073709551615
  member_id: 2
  revision: 3
  raft_term: 4
keys:
- k
- !!binary /g==
events:
- kv:
    key: z
    value: !!binary /w==
    lease: -9223372036854775808
none: null
list: []
";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_itself_is_as_it_was() {
        let text = written(|| "[]".to_owned());
        assert_eq!(text, "---\n[]\n");
        assert_eq!(json::bytes(b"k"), "\"aw==\"");
    }
}
