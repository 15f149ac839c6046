//! Requests written by hand and the few fields of answers that are looked at. Field numbers are
//! those of `wire/proto`; the tests hold both against the generated types.

/// Appends a varint.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field of bytes.
pub fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    varint(out, u64::from(number << 3 | 2));
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a number, which is left out if it is 0.
pub fn number(out: &mut Vec<u8>, field: u32, value: i64) {
    if value != 0 {
        varint(out, u64::from(field << 3));
        varint(out, value as u64);
    }
}

/// `PutRequest`.
pub fn put(out: &mut Vec<u8>, key: &[u8], value: &[u8], lease: i64) {
    bytes(out, 1, key);
    bytes(out, 2, value);
    number(out, 3, lease);
}

/// What is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    pub key: &'a [u8],
    pub end: &'a [u8],
    pub limit: i64,
    pub revision: i64,
    pub serializable: bool,
    pub keys_only: bool,
    pub count_only: bool,
}

/// `RangeRequest`.
pub fn range(out: &mut Vec<u8>, range: &Range<'_>) {
    bytes(out, 1, range.key);
    if !range.end.is_empty() {
        bytes(out, 2, range.end);
    }
    number(out, 3, range.limit);
    number(out, 4, range.revision);
    number(out, 7, i64::from(range.serializable));
    number(out, 8, i64::from(range.keys_only));
    number(out, 9, i64::from(range.count_only));
}

/// `TxnRequest`: if the key's mod revision is `mod_revision` then put, else get. What Kubernetes
/// sends for each update (and, with 0, for each creation).
pub fn swap(out: &mut Vec<u8>, key: &[u8], mod_revision: i64, value: &[u8], scratch: &mut Vec<u8>) {
    scratch.clear();
    // Compare { result = EQUAL (0), target = MOD (2), key, mod_revision }: zero must be written,
    // it is a member of a oneof.
    number(scratch, 2, 2);
    bytes(scratch, 3, key);
    varint(scratch, 6 << 3);
    varint(scratch, mod_revision as u64);
    bytes(out, 1, scratch);
    let mut body = Vec::with_capacity(key.len() + value.len() + 32);
    put(&mut body, key, value, 0);
    scratch.clear();
    bytes(scratch, 2, &body);
    bytes(out, 2, scratch);
    body.clear();
    range(&mut body, &Range { key, ..Range::default() });
    scratch.clear();
    bytes(scratch, 1, &body);
    bytes(out, 3, scratch);
}

/// `TxnRequest`: if the key's mod revision is `mod_revision` then delete, else get.
pub fn remove(out: &mut Vec<u8>, key: &[u8], mod_revision: i64) {
    let (mut part, mut body) = (Vec::new(), Vec::new());
    number(&mut part, 2, 2);
    bytes(&mut part, 3, key);
    varint(&mut part, 6 << 3);
    varint(&mut part, mod_revision as u64);
    bytes(out, 1, &part);
    part.clear();
    bytes(&mut body, 1, key);
    bytes(&mut part, 3, &body);
    bytes(out, 2, &part);
    body.clear();
    part.clear();
    range(&mut body, &Range { key, ..Range::default() });
    bytes(&mut part, 1, &body);
    bytes(out, 3, &part);
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed-size fields, which no message of etcd's has.
    Fixed,
}

/// The fields of a message, in the order in which they stand; ends at the first malformed one.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = take_varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => Value::Number(take_varint(&mut self.0)?),
            2 => {
                let len = usize::try_from(take_varint(&mut self.0)?).ok()?;
                let (value, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            1 => {
                self.0 = self.0.get(8..)?;
                Value::Fixed
            }
            5 => {
                self.0 = self.0.get(4..)?;
                Value::Fixed
            }
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (i, &byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *rest = &rest[i + 1..];
            return Some(value);
        }
    }
    None
}

/// The first field with this number, if it is a number; 0 as proto3 has it otherwise.
pub fn number_of(message: &[u8], field: u64) -> i64 {
    for (number, value) in Fields(message) {
        if let (true, Value::Number(value)) = (number == field, value) {
            return value as i64;
        }
    }
    0
}

/// The first field with this number, if it is of bytes.
pub fn bytes_of(message: &[u8], field: u64) -> Option<&[u8]> {
    Fields(message).find_map(|(number, value)| match value {
        Value::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    })
}

/// The revision in the header, which is field 1 of every answer (and 3 of the header).
pub fn revision(answer: &[u8]) -> i64 {
    bytes_of(answer, 1).map_or(0, |header| number_of(header, 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use wire::etcdserverpb as pb;

    #[test]
    fn requests_are_what_the_generated_types_read() {
        let mut out = Vec::new();
        put(&mut out, b"key", &[7; 300], 9);
        let expected = pb::PutRequest { key: "key".into(), value: vec![7; 300].into(), lease: 9, ..Default::default() };
        assert_eq!(pb::PutRequest::decode(out.as_slice()), Ok(expected));

        let mut out = Vec::new();
        range(
            &mut out,
            &Range {
                key: b"a",
                end: b"b",
                limit: 500,
                revision: 3,
                serializable: true,
                keys_only: true,
                count_only: true,
            },
        );
        let expected = pb::RangeRequest {
            key: "a".into(),
            range_end: "b".into(),
            limit: 500,
            revision: 3,
            serializable: true,
            keys_only: true,
            count_only: true,
            ..Default::default()
        };
        assert_eq!(pb::RangeRequest::decode(out.as_slice()), Ok(expected));
    }

    #[test]
    fn a_swap_is_the_transaction_kubernetes_sends() {
        use pb::{compare, request_op::Request};
        for mod_revision in [0, 77] {
            let mut out = Vec::new();
            swap(&mut out, b"k", mod_revision, b"v", &mut Vec::new());
            let txn = pb::TxnRequest::decode(out.as_slice()).expect("a message");
            let [compare] = txn.compare.as_slice() else { panic!("one compare") };
            assert_eq!(compare.target, compare::CompareTarget::Mod as i32);
            assert_eq!(compare.result, compare::CompareResult::Equal as i32);
            assert_eq!(compare.target_union, Some(compare::TargetUnion::ModRevision(mod_revision)));
            let put = pb::PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
            assert_eq!(txn.success[0].request, Some(Request::RequestPut(put)));
            let get = pb::RangeRequest { key: "k".into(), ..Default::default() };
            assert_eq!(txn.failure[0].request, Some(Request::RequestRange(get.clone())));

            let mut out = Vec::new();
            remove(&mut out, b"k", mod_revision);
            let txn = pb::TxnRequest::decode(out.as_slice()).expect("a message");
            let delete = pb::DeleteRangeRequest { key: "k".into(), ..Default::default() };
            assert_eq!(txn.success[0].request, Some(Request::RequestDeleteRange(delete)));
            assert_eq!(txn.failure[0].request, Some(Request::RequestRange(get)));
        }
    }

    #[test]
    fn answers_are_read_without_decoding() {
        let header = pb::ResponseHeader { cluster_id: u64::MAX, member_id: 5, revision: 1 << 40, raft_term: 3 };
        let answer = pb::TxnResponse { header: Some(header), succeeded: true, ..Default::default() };
        let bytes = answer.encode_to_vec();
        assert_eq!(revision(&bytes), 1 << 40);
        assert_eq!(number_of(&bytes, 2), 1);
        assert_eq!(revision(&bytes[..3]), 0, "cut short");
    }
}
