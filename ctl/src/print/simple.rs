//! `-w simple`.

use client::wire::mvccpb::KeyValue;

use super::{Out, hex};

/// Key and value, a line each; the value alone, or an empty line in its place.
pub fn key_value(out: &mut Out, kv: &KeyValue, value_only: bool) {
    if !value_only {
        bytes(out, &kv.key);
    }
    bytes(out, &kv.value);
}

/// Bytes on a line, as they are or as hexadecimal numbers.
pub fn bytes(out: &mut Out, bytes: &[u8]) {
    if out.hex { out.line(hex(bytes)) } else { out.line(bytes) }
}
