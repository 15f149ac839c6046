//! `-w json`: what Go's `encoding/json` makes of the protocol's messages: names
//! of the proto files, numbers as numbers, bytes in base64, nothing that is
//! zero.

use std::cell::Cell;

use base64::{Engine, prelude::BASE64_STANDARD};
use client::wire::{
    etcdserverpb::ResponseHeader,
    mvccpb::{Event, KeyValue},
};

/// An object under construction. The plain methods write a field always; those
/// named `some_…` leave it out when it is zero, empty or absent.
#[derive(Clone, Debug, Default)]
pub struct Object {
    text: String,
}

impl Object {
    /// Without fields.
    pub fn new() -> Object {
        Object::default()
    }

    /// The object as text.
    pub fn finish(&self) -> String {
        format!("{{{}}}", self.text)
    }

    /// A field whose value is JSON already.
    pub fn raw(&mut self, name: &str, json: &str) -> &mut Object {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(&string(name));
        self.text.push(':');
        self.text.push_str(json);
        self
    }

    /// A field if there is something to write.
    pub fn some_raw(&mut self, name: &str, json: Option<String>) -> &mut Object {
        if let Some(json) = json {
            self.raw(name, &json);
        }
        self
    }

    /// A number.
    pub fn number(&mut self, name: &str, value: impl Into<i128>) -> &mut Object {
        self.raw(name, &value.into().to_string())
    }

    /// A number that is not 0.
    pub fn some_number(&mut self, name: &str, value: impl Into<i128>) -> &mut Object {
        let value = value.into();
        if value == 0 { self } else { self.number(name, value) }
    }

    /// An id that is not 0: a number, or with `--hex` a text.
    pub fn some_id(&mut self, name: &str, value: u64, hex: bool) -> &mut Object {
        match (value, hex) {
            (0, false) => self,
            (_, false) => self.number(name, value),
            (_, true) => self.text(name, &format!("{value:x}")),
        }
    }

    /// A text.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Object {
        self.raw(name, &string(value))
    }

    /// A text that is not empty.
    pub fn some_text(&mut self, name: &str, value: &str) -> &mut Object {
        if value.is_empty() { self } else { self.text(name, value) }
    }

    /// Texts, if there are any.
    pub fn some_texts(&mut self, name: &str, values: &[String]) -> &mut Object {
        self.some_array(name, values.iter().map(|v| string(v)).collect())
    }

    /// A truth value.
    pub fn switch(&mut self, name: &str, value: bool) -> &mut Object {
        self.raw(name, if value { "true" } else { "false" })
    }

    /// A truth value that is true.
    pub fn some_switch(&mut self, name: &str, value: bool) -> &mut Object {
        if value { self.switch(name, true) } else { self }
    }

    /// Bytes that are not empty.
    pub fn some_bytes(&mut self, name: &str, value: &[u8]) -> &mut Object {
        if value.is_empty() { self } else { self.raw(name, &bytes(value)) }
    }

    /// JSON values in a list, if there are any.
    pub fn some_array(&mut self, name: &str, values: Vec<String>) -> &mut Object {
        if values.is_empty() { self } else { self.raw(name, &array(&values)) }
    }

    /// `"header"`, if the response has one.
    pub fn header(&mut self, header: Option<&ResponseHeader>) -> &mut Object {
        self.some_raw("header", header.map(|h| header_json(h, false)))
    }

    /// `"header"` with ids as `--hex` wants them.
    pub fn header_hex(&mut self, header: Option<&ResponseHeader>, hex: bool) -> &mut Object {
        self.some_raw("header", header.map(|h| header_json(h, hex)))
    }

    /// The fields of a header, in the place of a header.
    pub fn flat_header(&mut self, header: Option<&ResponseHeader>) -> &mut Object {
        if let Some(header) = header {
            header_fields(self, header, false);
        }
        self
    }
}

/// A list of JSON values.
pub fn array(values: &[String]) -> String {
    format!("[{}]", values.join(","))
}

/// A header.
pub fn header_json(header: &ResponseHeader, hex: bool) -> String {
    let mut object = Object::new();
    header_fields(&mut object, header, hex);
    object.finish()
}

fn header_fields(object: &mut Object, header: &ResponseHeader, hex: bool) {
    object
        .some_id("cluster_id", header.cluster_id, hex)
        .some_id("member_id", header.member_id, hex)
        .some_number("revision", header.revision)
        .some_number("raft_term", header.raft_term);
}

/// A key.
pub fn key_value(kv: &KeyValue) -> String {
    Object::new()
        .some_bytes("key", &kv.key)
        .some_number("create_revision", kv.create_revision)
        .some_number("mod_revision", kv.mod_revision)
        .some_number("version", kv.version)
        .some_bytes("value", &kv.value)
        .some_number("lease", kv.lease)
        .finish()
}

/// An event.
pub fn event(event: &Event) -> String {
    Object::new()
        .some_number("type", event.r#type)
        .some_raw("kv", event.kv.as_ref().map(key_value))
        .some_raw("prev_kv", event.prev_kv.as_ref().map(key_value))
        .finish()
}

/// The only field of the object that stands for bytes while they are marked.
pub const MARK: &str = "!!binary";

thread_local! {
    static MARKED: Cell<bool> = const { Cell::new(false) };
}

/// What is rendered meanwhile tells bytes from texts: an object with the field
/// [`MARK`] stands for them. It is for forms that are made of this one.
pub fn marked<T>(render: impl FnOnce() -> T) -> T {
    MARKED.set(true);
    let rendered = render();
    MARKED.set(false);
    rendered
}

/// Bytes in base64.
pub fn bytes(value: &[u8]) -> String {
    if MARKED.get() {
        return format!("{{\"{MARK}\":\"{}\"}}", BASE64_STANDARD.encode(value));
    }
    format!("\"{}\"", BASE64_STANDARD.encode(value))
}

/// A text, with the escapes of Go's encoder, which keeps JSON safe in HTML.
pub fn string(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\x08' => text.push_str("\\b"),
            '\x0c' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", c as u32)),
            c if (c as u32) < 0x20 => text.push_str(&format!("\\u{:04x}", c as u32)),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
