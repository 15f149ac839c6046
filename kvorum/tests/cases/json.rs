//! The JSON gateway: what it reads, what it writes, how it refuses.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::live::http::{self, Answer};
use crate::shared;

fn b64(text: &str) -> String {
    STANDARD.encode(text)
}

fn post(path: &str, body: &str) -> Answer {
    http::post(shared().port(), path, body).expect("answers")
}

/// Posts what must be answered, and gives back the answer without its header.
#[track_caller]
fn good(path: &str, body: &str) -> Value {
    let answer = post(path, body);
    assert_eq!(answer.status, 200, "{body}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let mut json = answer.json();
    let header = json.as_object_mut().expect("an object").remove("header");
    assert!(header.is_some_and(|header| header["revision"].is_string()), "{answer:?}");
    json
}

/// Posts what must be refused with this code.
#[track_caller]
fn bad(path: &str, body: &str, status: u16, code: i64) -> String {
    let answer = post(path, body);
    assert_eq!(answer.status, status, "{body}: {answer:?}");
    let json = answer.json();
    assert_eq!(json["code"], code, "{body}: {answer:?}");
    let fields: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["code", "message"], "{answer:?}");
    json["message"].as_str().expect("a text").to_owned()
}

#[test]
fn a_put_and_a_range_by_curl() {
    let (key, value) = (b64("json/a"), b64("hello"));
    good("/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#));
    let found = good("/v3/kv/range", &format!(r#"{{"key":"{key}"}}"#));
    assert_eq!((&found["count"], &found["kvs"][0]["key"]), (&json!("1"), &json!(key)));
    assert_eq!(found["kvs"][0]["value"], value);
    for number in ["version", "create_revision", "mod_revision"] {
        assert!(found["kvs"][0][number].is_string(), "{number}: {found}");
    }
    assert!(found["kvs"][0].get("lease").is_none(), "zero is not written");
}

#[test]
fn what_is_zero_is_left_out() {
    assert_eq!(good("/v3/kv/range", &format!(r#"{{"key":"{}"}}"#, b64("json/none"))), json!({}));
    assert_eq!(good("/v3/kv/deleterange", &format!(r#"{{"key":"{}"}}"#, b64("json/none"))), json!({}));
    let compare = format!(r#"{{"key":"{}","target":"MOD","mod_revision":"99"}}"#, b64("json/none"));
    assert_eq!(good("/v3/kv/txn", &format!(r#"{{"compare":[{compare}]}}"#)), json!({}));
    assert_eq!(good("/v3/kv/txn", "{}"), json!({"succeeded": true}));
}

#[test]
fn numbers_come_as_text_or_number_and_go_as_text() {
    let key = b64("json/numbers/");
    let end = b64("json/numbers0");
    for name in ["1", "2", "3"] {
        good("/v3/kv/put", &format!(r#"{{"key":"{}","value":"eA=="}}"#, b64(&format!("json/numbers/{name}"))));
    }
    let limits = [r#""2""#, "2", "2.0", "2e0", "0.2e1", r#""2.0""#, "20e-1"];
    for limit in limits {
        for end_name in ["range_end", "rangeEnd"] {
            let body = format!(r#"{{"key":"{key}","{end_name}":"{end}","limit":{limit}}}"#);
            let found = good("/v3/kv/range", &body);
            assert_eq!((&found["count"], &found["more"]), (&json!("3"), &json!(true)), "{body}");
            assert_eq!(found["kvs"].as_array().map(Vec::len), Some(2));
        }
    }
    for limit in ["1.5", r#""1.5""#, r#""x""#, "true", "[]", "{}", "9223372036854775808", r#""""#, r#"" 2""#] {
        bad("/v3/kv/range", &format!(r#"{{"key":"{key}","limit":{limit}}}"#), 400, 3);
    }
    // Null is "not given".
    assert_eq!(good("/v3/kv/range", &format!(r#"{{"key":"{key}","range_end":"{end}","limit":null}}"#))["count"], "3");
}

#[test]
fn fields_that_nobody_knows_are_ignored() {
    let key = b64("json/unknown");
    let body = format!(r#"{{"key":"{key}","value":"eA==","nope":{{"deep":[1,"x",null]}},"Key":"!"}}"#);
    good("/v3/kv/put", &body);
    assert_eq!(good("/v3/kv/range", &format!(r#"{{"key":"{key}"}}"#))["count"], "1");
}

#[test]
fn bodies_that_are_none_are_refused() {
    let key = b64("json/bad");
    let bodies = [
        r#"{"key":"!!!!"}"#.to_owned(),
        r#"{"key":"a"}"#.to_owned(),
        r#"{"key":5}"#.to_owned(),
        r#"{"key":"YQ==""#.to_owned(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        r#""text""#.to_owned(),
        "5".to_owned(),
        "x".to_owned(),
        format!(r#"{{"key":"{key}","key":"{key}"}}"#),
        format!(r#"{{"key":"{key}","range_end":"YQ==","rangeEnd":"YQ=="}}"#),
        format!(r#"{{"key":"{key}","keys_only":"true"}}"#),
        format!(r#"{{"key":"{key}","keys_only":1}}"#),
        format!(r#"{{"key":"{key}",}}"#),
        format!(r#"{{'key':"{key}"}}"#),
    ];
    for body in bodies {
        bad("/v3/kv/range", &body, 400, 3);
    }
}

#[test]
fn bytes_are_read_in_every_alphabet_of_base64() {
    let port = shared().port();
    for (written, read) in [("_-8=", "/+8="), ("_-8", "/+8="), ("/+8", "/+8="), ("YQ", "YQ==")] {
        let put = http::post(port, "/v3/kv/put", &format!(r#"{{"key":"{written}","value":"eA=="}}"#)).expect("answers");
        assert_eq!(put.status, 200, "{written}: {put:?}");
        let found = good("/v3/kv/range", &format!(r#"{{"key":"{written}"}}"#));
        assert_eq!(found["kvs"][0]["key"], read, "{written}");
    }
}

#[test]
fn an_empty_body_is_an_empty_request() {
    for body in ["", "{}", " \n"] {
        for path in ["/v3/kv/put", "/v3/kv/range", "/v3/kv/deleterange"] {
            assert_eq!(bad(path, body, 400, 3), "etcdserver: key is not provided", "{path} {body:?}");
        }
    }
}

#[test]
fn text_after_the_object_is_not_read() {
    let key = b64("json/after");
    good("/v3/kv/put", &format!(r#"{{"key":"{key}","value":"eA=="}} and more"#));
    good("/v3/kv/put", &format!(r#"{{"key":"{key}","value":"eA=="}}{{"key":""}}"#));
}

#[test]
fn enums_by_name_and_by_number() {
    for name in ["1", "2"] {
        good("/v3/kv/put", &format!(r#"{{"key":"{}","value":"eA=="}}"#, b64(&format!("json/enums/{name}"))));
    }
    let range = |order: &str| {
        format!(r#"{{"key":"{}","range_end":"{}","sort_order":{order}}}"#, b64("json/enums/"), b64("json/enums0"))
    };
    let first = |order: &str| good("/v3/kv/range", &range(order))["kvs"][0]["key"].clone();
    let (one, two) = (json!(b64("json/enums/1")), json!(b64("json/enums/2")));
    for descending in [r#""DESCEND""#, "2", "2.0"] {
        assert_eq!(first(descending), two, "{descending}");
    }
    // A name that is none, also a number in quotes, is as if not given.
    for unknown in [r#""NOPE""#, r#""descend""#, r#""2""#, r#""""#, "null"] {
        assert_eq!(first(unknown), one, "{unknown}");
    }
    // A number that is none is the request's own business.
    assert_eq!(bad("/v3/kv/range", &range("9"), 400, 3), "etcdserver: invalid sort option");
    for none in ["true", "1.5", "[]", "{}"] {
        bad("/v3/kv/range", &range(none), 400, 3);
    }
}

#[test]
fn refusals_have_the_code_of_the_rpc_and_its_http_status() {
    let key = b64("json/refused");
    let table = [
        ("/v3/kv/range", format!(r#"{{"key":"{key}","revision":"99999999"}}"#), 400, 11, crate::FUTURE),
        ("/v3/lease/revoke", r#"{"ID":"77"}"#.into(), 404, 5, "etcdserver: requested lease not found"),
        ("/v3/kv/lease/revoke", r#"{"ID":77}"#.into(), 404, 5, "etcdserver: requested lease not found"),
        ("/v3/kv/compaction", r#"{"revision":99999999}"#.into(), 400, 11, crate::FUTURE),
        ("/v3/lease/grant", r#"{"TTL":"9000000001"}"#.into(), 400, 11, "etcdserver: too large lease TTL"),
        ("/v3/kv/put", format!(r#"{{"key":"{key}","lease":"5"}}"#), 404, 5, "etcdserver: requested lease not found"),
    ];
    for (path, body, status, code, text) in table {
        assert_eq!(bad(path, &body, status, code), text, "{path}");
    }
}

#[test]
fn a_transaction_in_json() {
    let key = b64("json/txn");
    let body = format!(
        r#"{{"compare":[{{"key":"{key}","target":"VERSION","result":"EQUAL","version":0}}],
            "success":[{{"requestPut":{{"key":"{key}","value":"eA=="}}}},{{"request_range":{{"key":"{key}"}}}}]}}"#
    );
    let done = good("/v3/kv/txn", &body);
    assert_eq!(done["succeeded"], true);
    assert!(done["responses"][0]["response_put"].is_object(), "{done}");
    assert_eq!(done["responses"][1]["response_range"]["count"], "1");
    let again = good("/v3/kv/txn", &body);
    assert_eq!(again, json!({}), "the comparison fails, and there is nothing else to do");
}

#[test]
fn other_methods_and_other_paths() {
    let port = shared().port();
    let ask = |method: &str, path: &str| http::send(port, method, path, &[], "").expect("answers");
    for method in ["GET", "DELETE", "PUT", "PATCH"] {
        for path in ["/v3/kv/range", "/v3/lease/grant"] {
            let answer = ask(method, path);
            assert_eq!(answer.status, 501, "{method} {path}: {answer:?}");
            assert_eq!(answer.json(), json!({"code": 12, "message": "Method Not Allowed"}));
        }
    }
    for path in ["/v3/kv/nope", "/v3/", "/v3/kv/range/", "/v3/kv"] {
        let answer = ask("POST", path);
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        assert_eq!(answer.json(), json!({"code": 5, "message": "Not Found"}), "{path}");
    }
    for path in ["/v3alpha/kv/range", "/v2/keys", "/nope"] {
        let answer = ask("POST", path);
        assert_eq!((answer.status, answer.body.trim_end()), (404, "404 page not found"), "{path}");
    }
}

#[test]
fn leases_and_status_in_json() {
    let granted = good("/v3/lease/grant", r#"{"TTL":"60","ID":"4711"}"#);
    assert_eq!(granted, json!({"ID": "4711", "TTL": "60"}));
    let left = good("/v3/lease/timetolive", r#"{"ID":4711,"keys":true}"#);
    assert_eq!((&left["ID"], &left["grantedTTL"]), (&json!("4711"), &json!("60")));
    let alive = post("/v3/lease/keepalive", r#"{"ID":4711}"#);
    assert_eq!((alive.status, &alive.json()["result"]["TTL"]), (200, &json!("60")));
    good("/v3/lease/revoke", r#"{"ID":4711}"#);
    let gone = post("/v3/lease/keepalive", r#"{"ID":4711}"#);
    assert_eq!(gone.status, 200);
    assert!(gone.json()["result"].get("TTL").is_none(), "{gone:?}");
    let status = good("/v3/maintenance/status", "{}");
    assert_eq!(status["version"], "3.7.3");
    for number in ["dbSize", "leader", "raftIndex", "raftTerm", "raftAppliedIndex", "dbSizeInUse"] {
        assert!(status[number].is_string(), "{number}: {status}");
    }
    let members = post("/v3/cluster/member/list", "{}").json();
    assert_eq!(members["members"][0]["name"], "m1");
    assert!(members["members"][0]["ID"].is_string() && members["header"].get("revision").is_none(), "{members}");
}
