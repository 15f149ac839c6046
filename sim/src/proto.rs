//! The few rules of the protobuf wire format that the simulator needs to write requests and to
//! read the committed log, written apart from the store's codec so that one checks the other.

/// One field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-width fields: nobody here uses them.
    Fixed,
}

fn varint(from: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = *from.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Splits a message into its fields, in order; None when it is cut short.
pub fn fields(message: &[u8]) -> Option<Vec<(u32, Value<'_>)>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < message.len() {
        let tag = varint(message, &mut at)?;
        let number = u32::try_from(tag >> 3).ok()?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(message, &mut at)?),
            1 => {
                at += 8;
                Value::Fixed
            }
            5 => {
                at += 4;
                Value::Fixed
            }
            2 => {
                let len = usize::try_from(varint(message, &mut at)?).ok()?;
                let end = at.checked_add(len)?;
                let bytes = message.get(at..end)?;
                at = end;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        all.push((number, value));
    }
    (at == message.len()).then_some(all)
}

/// Writes a message field by field; zero values are left out.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn int(&mut self, field: u32, value: i64) -> &mut Self {
        if value != 0 {
            self.raw(u64::from(field) << 3);
            self.raw(value as u64);
        }
        self
    }

    pub fn flag(&mut self, field: u32, value: bool) -> &mut Self {
        self.int(field, i64::from(value))
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        if !value.is_empty() {
            self.message(field, value);
        }
        self
    }

    /// A field that is present even when empty.
    pub fn message(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.raw(u64::from(field) << 3 | 2);
        self.raw(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut w = Writer::default();
        w.int(1, -1).int(2, 0).int(3, 300).bytes(4, b"ab").bytes(5, b"").message(6, b"");
        assert_eq!(
            fields(&w.0),
            Some(vec![
                (1, Value::Varint(u64::MAX)),
                (3, Value::Varint(300)),
                (4, Value::Bytes(b"ab")),
                (6, Value::Bytes(b""))
            ])
        );
        assert_eq!(fields(&w.0[..w.0.len() - 1]), None);
    }
}
