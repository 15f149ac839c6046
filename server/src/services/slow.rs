//! Requests that took too long, as etcd tells them: `request stats` for every unary call
//! (`--warning-unary-request-duration`), `apply request took too long` for reads of keys
//! (`--warning-apply-duration`). Keys are told, values and everything of users never.

use crate::log;
use crate::metrics::op;
use crate::transport::call::Call;
use crate::transport::status::Status;
use node::tally::Tally;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};
use store::protobuf::{Fields, Value};
use wire::{Method, Rpc};

/// Lines a second; what is beyond them is counted.
const MOST: u32 = 100;
/// Bytes of a request that are told.
const LONGEST: usize = 4 << 10;

/// Lines told in this second, and left out since the last one that was told.
struct Pace {
    second: Option<Instant>,
    told: u32,
    left_out: u64,
}

static PACE: Mutex<Pace> = Mutex::new(Pace { second: None, told: 0, left_out: 0 });

/// How many were left out since; None: this one is, too.
fn may_tell(now: Instant) -> Option<u64> {
    let mut pace = PACE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if pace.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
        pace.second = Some(now);
        pace.told = 0;
    }
    if pace.told >= MOST {
        pace.left_out += 1;
        return None;
    }
    pace.told += 1;
    Some(std::mem::take(&mut pace.left_out))
}

/// A unary call has ended.
pub(crate) fn ended(call: &Call, method: &'static Method, result: &Result<(), Status>) {
    let took = call.worked();
    let (requests, index) = (&call.edge.metrics().requests, call.index());
    requests.ended(method.rpc, index, call.reads_only(), result.is_ok(), took);
    let settings = call.core().settings();
    if took > settings.warn_apply_after && method.rpc == Rpc::Range {
        call.edge.metrics().slow_apply.inc();
        tell_read(call, took, settings.warn_apply_after, result);
    }
    if took > settings.warn_unary_after {
        tell(call, method, took, result);
    }
}

fn tell_read(call: &Call, took: Duration, expected: Duration, result: &Result<(), Status>) {
    let Some(left_out) = may_tell(Instant::now()) else { return };
    let response = match result {
        Ok(()) => format!("range_response_count:{} size:{}", call.found(), call.reply.size()),
        Err(_) => String::new(),
    };
    let mut fields = vec![
        ("took", json!(go(took))),
        ("expected-duration", json!(go(expected))),
        ("prefix", json!("read-only range ")),
        ("request", json!(content(Rpc::Range, call.said()))),
        ("response", json!(response)),
    ];
    if let Err(status) = result {
        fields.push(("error", json!(status.message)));
    }
    left(&mut fields, left_out);
    log::warn("apply request took too long", &fields);
}

/// A turn of the core applied entries and took so long. Their bytes are gone: kinds are told, and
/// how long the oldest waited.
pub(crate) fn applied(tally: &Tally, took: Duration, expected: Duration, slow: &prometheus::IntCounter) {
    let waited = Duration::from_millis(tally.waited * node::TICK_MS);
    if took <= expected && waited <= expected {
        return;
    }
    slow.inc_by(tally.deeds.len() as u64);
    let Some(left_out) = may_tell(Instant::now()) else { return };
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for deed in &tally.deeds {
        *kinds.entry(op(deed.command)).or_default() += 1;
    }
    let request: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind}:{count}")).collect();
    let mut fields = vec![
        ("took", json!(go(took.max(waited)))),
        ("expected-duration", json!(go(expected))),
        ("prefix", json!("")),
        ("request", json!(request.join(" "))),
        ("response", json!("")),
        ("waited-after-commit", json!(go(waited))),
    ];
    left(&mut fields, left_out);
    log::warn("apply request took too long", &fields);
}

fn left(fields: &mut Vec<(&'static str, log::Value)>, left_out: u64) {
    if left_out > 0 {
        fields.push(("lines-left-out", json!(left_out)));
    }
}

fn tell(call: &Call, method: &Method, took: Duration, result: &Result<(), Status>) {
    let Some(left_out) = may_tell(Instant::now()) else { return };
    let request = call.said();
    let known = matches!(method.rpc, Rpc::Range | Rpc::Put | Rpc::DeleteRange | Rpc::Txn);
    let (requests, responses) = match method.rpc {
        Rpc::Put => (1, 0),
        Rpc::Range | Rpc::DeleteRange => (0, call.found()),
        Rpc::Txn => (operations(request), 0),
        _ => (-1, -1),
    };
    let size = |bytes: u64| if known { i64::try_from(bytes).unwrap_or(i64::MAX) } else { -1 };
    let answered = if result.is_ok() { call.reply.size() } else { 0 };
    let begun = SystemTime::now().checked_sub(took).and_then(|at| jiff::Timestamp::try_from(at).ok());
    let remote = call.edge.remote().map_or("No remote client info.".into(), |remote| remote.to_string());
    let mut fields = vec![
        ("start time", json!(begun.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))),
        ("time spent", json!(go(took))),
        ("remote", json!(remote)),
        ("response type", json!(method.path)),
        ("request count", json!(requests)),
        ("request size", json!(size(request.len() as u64))),
        ("response count", json!(responses)),
        ("response size", json!(size(answered))),
        ("request content", json!(if known { content(method.rpc, request) } else { String::new() })),
    ];
    left(&mut fields, left_out);
    log::warn("request stats", &fields);
}

/// A duration as Go writes it.
pub(crate) fn go(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (whole, unit) = match nanos {
        0 => return "0s".into(),
        1..1_000 => return format!("{nanos}ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (mut before, rest) = (nanos / whole, nanos % whole);
    let digits = format!("{rest:0width$}", width = whole.ilog10() as usize);
    let behind = digits.trim_end_matches('0');
    let mut out = String::new();
    if unit == "s" {
        if before >= 3600 {
            out += &format!("{}h", before / 3600);
        }
        if before >= 60 {
            out += &format!("{}m", before / 60 % 60);
        }
        before %= 60;
    }
    match behind {
        "" => out + &format!("{before}{unit}"),
        behind => out + &format!("{before}.{behind}{unit}"),
    }
}

/// Operations of the longer branch of a transaction: which one was taken is not kept.
fn operations(request: &[u8]) -> i64 {
    let (mut success, mut failure) = (0, 0);
    let mut fields = Fields::new(request);
    while let Ok(Some(field)) = fields.next_field() {
        match field.0 {
            2 => success += 1,
            3 => failure += 1,
            _ => {}
        }
    }
    std::cmp::max(success, failure)
}

/// A request as etcd shows it: of values, their size.
fn content(rpc: Rpc, request: &[u8]) -> String {
    let mut out = String::new();
    let shape = match rpc {
        Rpc::Range => RANGE,
        Rpc::Put => PUT,
        Rpc::DeleteRange => DELETE,
        Rpc::Txn => TXN,
        _ => return out,
    };
    show(&mut out, shape, request, 0);
    if out.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(0);
        out.truncate(end);
        out += "…";
    }
    out.trim_end().to_owned()
}

/// How a field is shown.
#[derive(Clone, Copy)]
enum Show {
    Text,
    Number,
    Flag,
    /// By its length alone.
    Size,
    Message(fn() -> Shape),
}

type Shape = &'static [(u32, &'static str, Show)];

const RANGE: Shape = &[
    (1, "key", Show::Text),
    (2, "range_end", Show::Text),
    (3, "limit", Show::Number),
    (4, "revision", Show::Number),
    (5, "sort_order", Show::Number),
    (6, "sort_target", Show::Number),
    (7, "serializable", Show::Flag),
    (8, "keys_only", Show::Flag),
    (9, "count_only", Show::Flag),
    (10, "min_mod_revision", Show::Number),
    (11, "max_mod_revision", Show::Number),
    (12, "min_create_revision", Show::Number),
    (13, "max_create_revision", Show::Number),
];
const PUT: Shape = &[
    (1, "key", Show::Text),
    (2, "value_size", Show::Size),
    (3, "lease", Show::Number),
    (4, "prev_kv", Show::Flag),
    (5, "ignore_value", Show::Flag),
    (6, "ignore_lease", Show::Flag),
];
const DELETE: Shape = &[(1, "key", Show::Text), (2, "range_end", Show::Text), (3, "prev_kv", Show::Flag)];
const OPERATION: Shape = &[
    (1, "request_range", Show::Message(|| RANGE)),
    (2, "request_put", Show::Message(|| PUT)),
    (3, "request_delete_range", Show::Message(|| DELETE)),
    (4, "request_txn", Show::Message(|| TXN)),
];
const COMPARE: Shape = &[
    (1, "result", Show::Number),
    (2, "target", Show::Number),
    (3, "key", Show::Text),
    (4, "version", Show::Number),
    (5, "create_revision", Show::Number),
    (6, "mod_revision", Show::Number),
    (7, "value_size", Show::Size),
    (8, "lease", Show::Number),
    (64, "range_end", Show::Text),
];
const TXN: Shape = &[
    (1, "compare", Show::Message(|| COMPARE)),
    (2, "success", Show::Message(|| OPERATION)),
    (3, "failure", Show::Message(|| OPERATION)),
];

fn show(out: &mut String, shape: Shape, message: &[u8], depth: usize) {
    let mut fields = Fields::new(message);
    while let Ok(Some((number, value))) = fields.next_field() {
        if out.len() > LONGEST {
            return;
        }
        let Some((_, name, how)) = shape.iter().find(|(known, ..)| *known == number) else { continue };
        // Writing to a text does not fail.
        let _ = match (how, value) {
            (Show::Text, Value::Bytes(bytes)) => write!(out, "{name}:\"{}\" ", bytes.escape_ascii()),
            (Show::Size, Value::Bytes(bytes)) => write!(out, "{name}:{} ", bytes.len()),
            (Show::Flag, value) => write!(out, "{name}:{} ", value.flag()),
            (Show::Message(_), Value::Bytes(_)) if depth > 8 => write!(out, "{name}:<…> "),
            (Show::Message(shape), Value::Bytes(bytes)) => {
                let _ = write!(out, "{name}:<");
                show(out, shape(), bytes, depth + 1);
                out.truncate(out.trim_end().len());
                write!(out, "> ")
            }
            (_, value) => write!(out, "{name}:{} ", value.int()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use wire::etcdserverpb::{PutRequest, RangeRequest, RequestOp, TxnRequest, request_op::Request};

    #[test]
    fn durations_are_go_s() {
        let table = [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (100_000_000, "100ms"),
            (123_456_789, "123.456789ms"),
            (1_000_000_000, "1s"),
            (61_500_000_000, "1m1.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ];
        for (nanos, text) in table {
            assert_eq!(go(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn requests_are_shown_without_values() {
        let range = RangeRequest { key: "a\0".into(), limit: 3, keys_only: true, ..Default::default() };
        assert_eq!(content(Rpc::Range, &range.encode_to_vec()), r#"key:"a\x00" limit:3 keys_only:true"#);
        let put = PutRequest { key: "k".into(), value: "secret".into(), lease: 7, ..Default::default() };
        assert_eq!(content(Rpc::Put, &put.encode_to_vec()), r#"key:"k" value_size:6 lease:7"#);
        let op = RequestOp { request: Some(Request::RequestPut(put.clone())) };
        let txn = TxnRequest { success: vec![op.clone(), op], ..Default::default() };
        let bytes = txn.encode_to_vec();
        let shown = r#"success:<request_put:<key:"k" value_size:6 lease:7>>"#;
        assert_eq!((content(Rpc::Txn, &bytes), operations(&bytes)), (format!("{shown} {shown}"), 2));
        let long = PutRequest { key: "é".repeat(100_000).into(), ..put };
        assert!(content(Rpc::Put, &long.encode_to_vec()).len() < LONGEST + 10);
        assert_eq!(content(Rpc::UserAdd, b"\x0a\x01k"), "");
    }
}
