//! Ways to name keys.

use bytes::Bytes;
use wire::etcdserverpb::{DeleteRangeRequest, RangeRequest, WatchCreateRequest};

/// One key or a range of keys, ready to become a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The key, or the first key of the range.
    pub key: Bytes,
    /// The first key after the range; empty for one key, one zero byte for no
    /// end.
    pub range_end: Bytes,
}

/// One key.
pub fn key(key: impl Into<Bytes>) -> KeyRange {
    KeyRange { key: key.into(), range_end: Bytes::new() }
}

/// This key and every key after it.
pub fn from_key(key: impl Into<Bytes>) -> KeyRange {
    // A range cannot start at the empty key, but no key is before this one.
    let key = Some(key.into()).filter(|k| !k.is_empty()).unwrap_or(Bytes::from_static(b"\0"));
    KeyRange { key, range_end: Bytes::from_static(b"\0") }
}

/// Every key that begins like this; with nothing given, every key.
///
/// ```
/// assert_eq!(&client::prefix("a/").range_end[..], b"a0");
/// assert_eq!(&client::prefix(&b"a\xff"[..]).range_end[..], b"b");
/// assert_eq!(client::prefix(""), client::from_key(""));
/// ```
pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
    let key: Bytes = prefix.into();
    // The first key after all of them: the last byte that can grow, grown.
    match key.iter().rposition(|b| *b < 0xff) {
        None => from_key(key),
        Some(at) => {
            let mut end = key[..=at].to_vec();
            end[at] += 1;
            KeyRange { key, range_end: end.into() }
        }
    }
}

impl From<KeyRange> for RangeRequest {
    fn from(KeyRange { key, range_end }: KeyRange) -> RangeRequest {
        RangeRequest { key, range_end, ..Default::default() }
    }
}

impl From<KeyRange> for DeleteRangeRequest {
    fn from(KeyRange { key, range_end }: KeyRange) -> DeleteRangeRequest {
        DeleteRangeRequest { key, range_end, ..Default::default() }
    }
}

impl From<KeyRange> for WatchCreateRequest {
    fn from(KeyRange { key, range_end }: KeyRange) -> WatchCreateRequest {
        WatchCreateRequest { key, range_end, ..Default::default() }
    }
}
