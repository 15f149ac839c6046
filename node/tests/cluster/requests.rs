//! What the commands of the scripts ask members for.

use bytes::Bytes;
use node::Request;
use store::command::{self, DeleteRangeRequest, PutRequest};
use store::{KeyRange, Query};

pub(super) fn key_range(key: &str, end: Option<&str>) -> KeyRange {
    let end = end.map(|end| Bytes::copy_from_slice(end.as_bytes()));
    KeyRange { key: Bytes::copy_from_slice(key.as_bytes()), end }
}

pub(super) fn range(key: &str, end: Option<&str>, revision: i64, linearizable: bool) -> Request {
    let query = Query { revision, ..Query::all(key_range(key, end)) };
    Request::Range { query, linearizable, stream: false, keep: u64::MAX }
}

/// `x*3` is xxx, as it is told.
pub(super) fn spelled(value: &str) -> String {
    match value.split_once('*').map(|(part, times)| (part, times.parse())) {
        Some((part, Ok(times))) => part.repeat(times),
        _ => value.to_string(),
    }
}

pub(super) fn propose_put(key: &str, value: &str, lease: i64) -> Request {
    let value = spelled(value);
    let mut request = Vec::new();
    let put = PutRequest { key: key.as_bytes(), value: value.as_bytes(), lease, ..PutRequest::default() };
    put.encode(&mut request);
    Request::Propose { body: command::encode_put(&request).expect("well-formed"), cost: command::put_cost(&put) }
}

/// The key gets the value that it has.
pub(super) fn propose_touch(key: &str) -> Request {
    let mut request = Vec::new();
    let put = PutRequest { key: key.as_bytes(), ignore_value: true, ..PutRequest::default() };
    put.encode(&mut request);
    Request::Propose { body: command::encode_put(&request).expect("well-formed"), cost: command::put_cost(&put) }
}

/// `end`: everything from `key` to before it; empty: `key` alone.
pub(super) fn propose_delete(key: &str, end: &str) -> Request {
    let mut request = Vec::new();
    let (key, range_end) = (key.as_bytes(), end.as_bytes());
    DeleteRangeRequest { key, range_end, ..DeleteRangeRequest::default() }.encode(&mut request);
    Request::Propose { body: command::encode_delete_range(&request).expect("well-formed"), cost: 0 }
}
