use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::{Rpc, etcdserverpb as pb, mvccpb};

/// Bodies and what etcd 3.7.3 makes of them. The left side was sent to it; the
/// right side is its error text, or the request it understood.
const BODIES: &str = include_str!("bodies.txt");

#[test]
fn bodies_are_read_as_etcd_reads_them() {
    let mut seen = String::new();
    for line in BODIES.lines() {
        let Some((path, body)) = line.split_once(' ').filter(|(path, _)| path.starts_with("/v3")) else {
            if !line.starts_with("  ") {
                seen.push_str(line);
                seen.push('\n');
            }
            continue;
        };
        let method = crate::method_by_json(path).expect("a known path");
        writeln!(seen, "{line}").unwrap();
        match json_to_request(method, &unescape(body)) {
            Ok(request) => writeln!(seen, "  = {}", shown(method, &request)).unwrap(),
            Err(error) => writeln!(seen, "  ! {}", error.0.replace('\u{a0}', "~")).unwrap(),
        }
    }
    for (at, (seen, wanted)) in seen.lines().zip(BODIES.lines()).enumerate() {
        assert_eq!(seen, wanted, "bodies.txt, line {}", at + 1);
    }
    assert_eq!(seen, BODIES);
}

/// `%ff` stands for one byte, so that bodies may hold anything.
fn unescape(body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_at(2);
        out.push(u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap());
        rest = tail;
    }
    out
}

/// The request as an answer would show it.
fn shown(method: &Method, request: &[u8]) -> String {
    let mut out = String::new();
    encode(&mut out, Style::Frame, request, request_shape(method)).expect("what was written can be read");
    out
}

fn header() -> pb::ResponseHeader {
    pb::ResponseHeader { cluster_id: 4700245047070760809, member_id: u64::MAX, revision: 3, raft_term: 2 }
}

#[test]
fn a_body_has_spaces_and_leaves_out_what_is_default() {
    let response = pb::RangeResponse {
        header: Some(header()),
        kvs: vec![
            mvccpb::KeyValue {
                key: Bytes::from_static(b"foo"),
                create_revision: 2,
                mod_revision: 3,
                version: 2,
                value: Bytes::from_static(b"\xff\xfe"),
                lease: -1,
            },
            mvccpb::KeyValue::default(),
        ],
        more: true,
        count: 2,
    };
    assert_eq!(
        response_to_json(Method::of(Rpc::Range), &response.encode_to_vec()).unwrap(),
        concat!(
            r#"{"header":{"cluster_id":"4700245047070760809", "member_id":"18446744073709551615", "#,
            r#""revision":"3", "raft_term":"2"}, "kvs":[{"key":"Zm9v", "create_revision":"2", "mod_revision":"3", "#,
            r#""version":"2", "value":"//4=", "lease":"-1"}, {}], "more":true, "count":"2"}"#
        )
    );
    assert_eq!(response_to_json(Method::of(Rpc::Range), b"").unwrap(), "{}");
}

#[test]
fn a_frame_has_no_spaces_and_names_its_result() {
    let response = pb::WatchResponse {
        header: Some(pb::ResponseHeader { revision: 3, raft_term: 2, ..Default::default() }),
        watch_id: 1,
        canceled: true,
        cancel_reason: "<a> & \u{2028}b".to_owned(),
        events: vec![
            mvccpb::Event { r#type: 1, kv: Some(Default::default()), prev_kv: None },
            mvccpb::Event { r#type: 7, kv: None, prev_kv: None },
        ],
        ..Default::default()
    };
    assert_eq!(
        stream_frame(Method::of(Rpc::Watch), &response.encode_to_vec()).unwrap(),
        concat!(
            r#"{"result":{"header":{"revision":"3","raft_term":"2"},"watch_id":"1","canceled":true,"#,
            r#""cancel_reason":"\u003ca\u003e \u0026 \u2028b","events":[{"type":"DELETE","kv":{}},{"type":7}]}}"#,
            "\n"
        )
    );
}

#[test]
fn strings_escape_only_what_json_must() {
    let response = pb::AuthUserListResponse {
        header: None,
        users: vec!["<a>&\u{2028}é\u{7f}".to_owned(), "\u{1}\u{8}\t\n\u{c}\r\"\\/".to_owned(), String::new()],
    };
    assert_eq!(
        response_to_json(Method::of(Rpc::UserList), &response.encode_to_vec()).unwrap(),
        "{\"users\":[\"<a>&\u{2028}é\u{7f}\", \"\\u0001\\b\\t\\n\\f\\r\\\"\\\\/\", \"\"]}"
    );
}

#[test]
fn members_of_a_oneof_are_shown_even_when_default() {
    let compare = pb::Compare { target_union: Some(pb::compare::TargetUnion::Version(0)), ..Default::default() };
    let request = pb::TxnRequest { compare: vec![compare], ..Default::default() };
    assert_eq!(shown(Method::of(Rpc::Txn), &request.encode_to_vec()), r#"{"compare":[{"version":"0"}]}"#);
}

#[test]
fn repeated_fields_of_one_message_are_merged_and_the_last_scalar_counts() {
    let split = [
        pb::PutResponse { header: Some(pb::ResponseHeader { revision: 3, ..Default::default() }), prev_kv: None },
        pb::PutResponse {
            header: Some(pb::ResponseHeader { revision: 4, raft_term: 2, ..Default::default() }),
            prev_kv: None,
        },
    ];
    let bytes = split.map(|piece| piece.encode_to_vec()).concat();
    assert_eq!(
        response_to_json(Method::of(Rpc::Put), &bytes).unwrap(),
        r#"{"header":{"revision":"4", "raft_term":"2"}}"#
    );
}

#[test]
fn broken_responses_are_refused() {
    let put = Method::of(Rpc::Put);
    for broken in [&b"\x0a"[..], b"\x0a\x05\x18", b"\x08\x01", b"\x0a\x02\x18\xff", b"\xff"] {
        assert!(response_to_json(put, broken).is_err(), "{broken:?}");
    }
    // What is unknown is passed over.
    assert_eq!(response_to_json(put, b"\x78\x01\x0a\x02\x18\x07").unwrap(), r#"{"header":{"revision":"7"}}"#);
}

#[test]
fn error_bodies() {
    assert_eq!(
        error_body(Code::InvalidArgument, "etcdserver: key is not provided"),
        r#"{"code":3, "message":"etcdserver: key is not provided"}"#
    );
    assert_eq!(error_body(Code::Unimplemented, "Method Not Allowed"), r#"{"code":12, "message":"Method Not Allowed"}"#);
    assert_eq!(stream_error(Code::Unavailable, "a \"b\""), "{\"error\":{\"code\":14,\"message\":\"a \\\"b\\\"\"}}\n");
}

#[test]
fn a_stream_of_requests_is_read_as_it_arrives() {
    let method = Method::of(Rpc::LeaseKeepAlive);
    let body = br#" {"ID":"5"} {"ID":"}"}
    {"ID":7}x"#;
    // Byte by byte a request is found as soon as its bracket closes.
    let mut from = 0;
    let mut found = Vec::new();
    for to in 0..=body.len() {
        match next_request(method, &body[from..to], to == body.len()) {
            Ok(None) => {}
            Ok(Some((request, took))) => {
                from += took;
                assert_eq!(from, to);
                found.push(shown(method, &request));
            }
            Err(error) => {
                found.push(error.0.replace('\u{a0}', "~"));
                from = body.len().min(to);
            }
        }
    }
    assert_eq!(
        found,
        [
            r#"{"ID":"5"}"#,
            "proto:~(line 1:7): invalid value for int64 field ID: \"}\"",
            // In the original the stream ends at the first error.
            r#"{"ID":"7"}"#,
            "invalid character 'x' looking for beginning of value",
        ]
    );
    // A reader that goes on where it was finds the same.
    let body = br#" {"ID":"5"}{"ID":[1, {"a\"":-1.5e3}]} {"ID":"7"} 12 "#;
    let mut requests = Requests::default();
    let (mut from, mut ends) = (0, Vec::new());
    for to in 0..=body.len() {
        match requests.next(method, &body[from..to], to == body.len()) {
            Ok(None) => {}
            Ok(Some((_, took))) => {
                from += took;
                ends.push(from);
            }
            // The value is whole, and is no message: it was read to its end.
            Err(_) => {
                from = to;
                ends.push(to);
            }
        }
    }
    assert_eq!(ends, [11, 37, 48, 52]);
    assert_eq!(next_request(method, b" \n", true), Ok(None));
    assert_eq!(next_request(method, b"{", true), Err(JsonError("unexpected EOF".to_owned())));
    assert_eq!(next_request(method, b"{", false), Ok(None));
}

#[test]
fn depth_is_bounded_without_recursion() {
    let range = Method::of(Rpc::Range);
    let nested = |n: usize| format!("{{\"x\":{}{}}}", "[".repeat(n), "]".repeat(n));
    assert_eq!(json_to_request(range, nested(9_999).as_bytes()), Ok(Bytes::new()));
    assert_eq!(
        json_to_request(range, nested(10_000).as_bytes()),
        Err(JsonError("invalid character '[' exceeded max depth".to_owned()))
    );
    let txns = |n: usize| format!("{}{{}}{}", r#"{"success":[{"request_txn":"#.repeat(n), "}]}".repeat(n));
    assert!(json_to_request(Method::of(Rpc::Txn), txns(90).as_bytes()).is_ok());
    assert_eq!(
        json_to_request(Method::of(Rpc::Txn), txns(3_000).as_bytes()),
        Err(JsonError("proto:\u{a0}exceeded max recursion depth".to_owned()))
    );
}

fn bytes_strategy() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..5).prop_map(Bytes::from)
}

prop_compose! {
    fn compare_strategy()(result in -1..5_i32, target in 0..6_i32, key in bytes_strategy(), range_end in bytes_strategy(),
        union in prop::option::of(prop_oneof![
            any::<i64>().prop_map(pb::compare::TargetUnion::ModRevision),
            bytes_strategy().prop_map(pb::compare::TargetUnion::Value),
        ])) -> pb::Compare {
        pb::Compare { result, target, key, range_end, target_union: union }
    }
}

prop_compose! {
    fn range_strategy()(key in bytes_strategy(), range_end in bytes_strategy(), limit in any::<i64>(),
        sort_order in 0..4_i32, serializable in any::<bool>()) -> pb::RangeRequest {
        pb::RangeRequest { key, range_end, limit, sort_order, serializable, ..Default::default() }
    }
}

fn op_strategy() -> impl Strategy<Value = pb::RequestOp> {
    use pb::request_op::Request;
    let leaf = prop_oneof![
        Just(None),
        range_strategy().prop_map(|r| Some(Request::RequestRange(r))),
        (bytes_strategy(), any::<i64>()).prop_map(|(key, lease)| Some(Request::RequestPut(pb::PutRequest {
            key,
            lease,
            ..Default::default()
        }))),
    ]
    .prop_map(|request| pb::RequestOp { request });
    leaf.prop_recursive(3, 12, 3, |inner| {
        (prop::collection::vec(compare_strategy(), 0..3), prop::collection::vec(inner, 0..3)).prop_map(
            |(compare, success)| pb::RequestOp {
                request: Some(Request::RequestTxn(pb::TxnRequest { compare, success, failure: Vec::new() })),
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// What prost writes is shown as JSON from which the same message is read,
    /// and in bytes as prost would write them.
    #[test]
    fn messages_survive_json(ops in prop::collection::vec(op_strategy(), 0..4),
                             compare in prop::collection::vec(compare_strategy(), 0..4)) {
        let method = Method::of(Rpc::Txn);
        let request = pb::TxnRequest { compare, success: ops, failure: Vec::new() };
        let json = shown(method, &request.encode_to_vec());
        let read = json_to_request(method, json.as_bytes()).unwrap();
        prop_assert_eq!(&read[..], &request.encode_to_vec()[..]);
    }

    #[test]
    fn strings_survive_json(names in prop::collection::vec(".*", 0..4), filters in prop::collection::vec(0..3_i32, 0..5)) {
        let add = Method::of(Rpc::MemberAdd);
        let request = pb::MemberAddRequest { peer_urls: names, is_learner: true };
        let read = json_to_request(add, shown(add, &request.encode_to_vec()).as_bytes()).unwrap();
        prop_assert_eq!(&read[..], &request.encode_to_vec()[..]);

        let watch = Method::of(Rpc::Watch);
        let create = pb::WatchCreateRequest { filters, ..Default::default() };
        let request = pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
        let read = json_to_request(watch, shown(watch, &request.encode_to_vec()).as_bytes()).unwrap();
        prop_assert_eq!(&read[..], &request.encode_to_vec()[..]);
    }

    /// Nothing that arrives makes the reader fall over, and a body cut anywhere
    /// is found incomplete or broken, or is complete as it is.
    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..40)) {
        for method in [Rpc::Txn, Rpc::Watch, Rpc::Alarm].map(Method::of) {
            let _ = json_to_request(method, &body);
            let _ = response_to_json(method, &body);
            let _ = next_request(method, &body, false);
        }
    }

    #[test]
    fn almost_json_is_read_or_refused(body in r#"[\{\}\[\]:,"\\ u0-9a-f.eE+nultrs\-=_]{0,60}"#, cut in 0..60_usize) {
        let method = Method::of(Rpc::Put);
        for body in [body.clone(), format!("{{\"key\":\"{body}"), format!("{{\"lease\":{body}}}")] {
            let _ = json_to_request(method, body.as_bytes());
            let _ = json_to_request(method, &body.as_bytes()[..cut.min(body.len())]);
        }
    }
}
