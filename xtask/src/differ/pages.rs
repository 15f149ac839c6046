//! Calls on the JSON gateway and on the pages beside it.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::step::Step;
use crate::rng::Rng;

/// What the gateway is sent.
pub const JSON: &str = "application/json";

/// Bodies that are wrong, or odd and yet right, for any path of the store.
const ODD: [&str; 40] = [
    "",
    " ",
    "null",
    "[]",
    "[1]",
    "7",
    "\"key\"",
    "{",
    "{}",
    "{\"key\"",
    "{\"key\":",
    "{\"key\":}",
    "{\"key\":\"YQ==\",}",
    "{\"key\":\"YQ==\" \"value\":\"YQ==\"}",
    "{'key':'YQ=='}",
    "{\"key\":\"YQ==\"} trailing",
    "{\"key\":\"YQ==\"}{\"key\":\"Yg==\"}",
    "{\"key\":\"YQ\"}",
    "{\"key\":\"_-8\"}",
    "{\"key\":\"!!\"}",
    "{\"key\":\"YQ=\"}",
    "{\"key\":5}",
    "{\"key\":null}",
    "{\"key\":true}",
    "{\"key\":\"YQ==\",\"key\":\"Yg==\"}",
    "{\"key\":\"YQ==\",\"limit\":\"5\"}",
    "{\"key\":\"YQ==\",\"limit\":5}",
    "{\"key\":\"YQ==\",\"limit\":5.0}",
    "{\"key\":\"YQ==\",\"limit\":1.5}",
    "{\"key\":\"YQ==\",\"limit\":5e0}",
    "{\"key\":\"YQ==\",\"limit\":\"abc\"}",
    "{\"key\":\"YQ==\",\"lease\":99999999999999999999}",
    "{\"key\":\"YQ==\",\"nothing\":{\"a\":[1,2,{\"b\":null}]}}",
    "{\"key\":\"YQ==\",\"sort_order\":\"DESCEND\",\"sort_target\":\"KEY\",\"range_end\":\"AA==\"}",
    "{\"key\":\"YQ==\",\"sortOrder\":\"NOTHING\",\"rangeEnd\":\"AA==\"}",
    "{\"key\":\"YQ==\",\"sort_order\":7}",
    "{\"key\":\"YQ==\",\"sort_order\":\"2\"}",
    "{\"key\":\"YQ==\",\"keys_only\":\"true\"}",
    "{\"key\":\"YQ==\",\"prev_kv\":true,\"prevKv\":true}",
    "{\"compare\":[{\"key\":\"YQ==\",\"target\":\"VERSION\",\"version\":1,\"value\":\"YQ==\"}]}",
];

const PATHS: [&str; 5] = ["/v3/kv/range", "/v3/kv/put", "/v3/kv/deleterange", "/v3/kv/txn", "/v3beta/kv/range"];

/// A call of any sort.
pub fn page(rng: &mut Rng) -> Step {
    let call = |path, body: String| Step::Page { verb: "POST", path, kind: JSON, body };
    match rng.below(100) {
        0..30 => call(rng.pick(&PATHS), rng.pick(&ODD).to_owned()),
        30..40 => beside(rng),
        40..44 => {
            let kind = rng.pick(&["application/x-www-form-urlencoded", "text/plain", "application/grpc+json"]);
            Step::Page { verb: "POST", path: "/v3/kv/range", kind, body: range(rng) }
        }
        44..60 => call("/v3/kv/put", put(rng)),
        60..76 => call("/v3/kv/range", range(rng)),
        76..82 => call("/v3/kv/deleterange", format!("{{\"key\":\"{}\",\"prev_kv\":{}}}", key(rng), rng.percent(50))),
        82..90 => call("/v3/kv/txn", txn(rng)),
        90..93 => {
            let path = rng.pick(&["/v3/lease/timetolive", "/v3/kv/lease/timetolive"]);
            call(path, format!("{{\"ID\":\"{}\",\"keys\":true}}", rng.between(900, 905)))
        }
        93 => call("/v3/lease/keepalive", format!("{{\"ID\":{}}}", rng.between(1, 4))),
        94 => call("/v3/lease/revoke", "{\"ID\":\"4\"}".to_owned()),
        95 => call("/v3/maintenance/status", String::new()),
        96 => call("/v3/cluster/member/list", "{\"linearizable\":true}".to_owned()),
        97 => call("/v3/maintenance/alarm", "{\"action\":\"GET\"}".to_owned()),
        98 => call("/v3/maintenance/hashkv", "{\"revision\":@current}".to_owned()),
        _ => call(
            "/v3/kv/compaction",
            rng.pick(&["{\"revision\":\"0\"}", "{\"revision\":99999}", "{\"revision\":-1}"]).to_owned(),
        ),
    }
}

/// Wrong verbs, wrong paths, and the pages.
fn beside(rng: &mut Rng) -> Step {
    let (verb, path) = rng.pick(&[
        ("GET", "/v3/kv/put"),
        ("DELETE", "/v3/kv/range"),
        ("PUT", "/v3/kv/put"),
        ("POST", "/v3/nothing"),
        ("GET", "/v3/nothing"),
        ("POST", "/v3/kv/put/"),
        ("POST", "/v3alpha/kv/put"),
        ("GET", "/nothing"),
        ("GET", "/"),
        ("GET", "/version"),
        ("POST", "/version"),
        ("GET", "/health"),
        ("GET", "/health?serializable=true"),
        ("GET", "/health?exclude=NOSPACE"),
        ("POST", "/health"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/livez?verbose"),
        ("GET", "/readyz?verbose=true"),
    ]);
    Step::Page { verb, path, kind: JSON, body: String::new() }
}

fn key(rng: &mut Rng) -> String {
    STANDARD.encode(rng.pick(&[b"a".as_slice(), b"ab", b"b/1", b"\xff", b""]))
}

fn put(rng: &mut Rng) -> String {
    let lease = rng.pick(&["", ",\"lease\":\"1\"", ",\"lease\":2", ",\"lease\":\"12345\""]);
    let prev = rng.pick(&["", ",\"prev_kv\":true", ",\"prevKv\":true", ",\"ignore_lease\":true"]);
    let value = STANDARD.encode(format!("<&>\u{2028} {}", rng.below(9)));
    format!("{{\"key\":\"{}\",\"value\":\"{value}\"{lease}{prev}}}", key(rng))
}

fn range(rng: &mut Rng) -> String {
    let end = rng.pick(&["", ",\"range_end\":\"AA==\"", ",\"rangeEnd\":\"Yw==\""]);
    let more = rng.pick(&[
        "",
        ",\"limit\":\"1\"",
        ",\"keys_only\":true",
        ",\"countOnly\":true",
        ",\"revision\":\"@current\"",
        ",\"revision\":99999999",
        ",\"revision\":1",
        ",\"serializable\":true",
        ",\"sort_order\":\"DESCEND\",\"sort_target\":\"KEY\"",
        ",\"min_mod_revision\":\"3\"",
    ]);
    format!("{{\"key\":\"{}\"{end}{more}}}", key(rng))
}

fn txn(rng: &mut Rng) -> String {
    let key = key(rng);
    let compare = rng.pick(&[
        "",
        "\"compare\":[{\"key\":\"YQ==\",\"result\":\"EQUAL\",\"target\":\"VERSION\",\"version\":\"0\"}],",
        "\"compare\":[{\"key\":\"YQ==\",\"result\":\"GREATER\",\"target\":\"MOD\",\"mod_revision\":3}],",
        "\"compare\":[{\"key\":\"YQ==\",\"target\":\"VALUE\",\"value\":\"djE=\"}],",
    ]);
    let success = rng.pick(&[
        "{\"request_put\":{\"key\":\"KEY\",\"value\":\"dHhu\",\"prev_kv\":true}}",
        "{\"requestRange\":{\"key\":\"KEY\"}}",
        "{\"request_delete_range\":{\"key\":\"KEY\"}},{\"request_range\":{\"key\":\"AA==\",\"range_end\":\"AA==\",\"limit\":2}}",
        "{\"request_txn\":{\"success\":[{\"request_put\":{\"key\":\"KEY\"}}]}}",
        "{}",
        "{\"request_put\":{\"key\":\"KEY\"},\"request_range\":{\"key\":\"KEY\"}}",
    ]);
    let success = success.replace("KEY", &key);
    format!("{{{compare}\"success\":[{success}],\"failure\":[{{\"request_range\":{{\"key\":\"YQ==\"}}}}]}}")
}
