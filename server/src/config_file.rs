//! `--config-file`: etcd's YAML, read into the flags that it stands for.
//!
//! The facts are etcd 3.7.3's. Its file is turned into JSON first, so plain words such as `yes` are
//! booleans, numbers are no texts, durations are nanoseconds, keys may be written in any case, a
//! key without a value changes nothing, and the first document counts. With a file, every other
//! flag and variable is ignored. A key that nobody knows is ignored, too; here a line warns of it.

use crate::flags::{self, Given, Kind, Rejected};
use crate::sockets::reason;
use disk::urls::Url;
use serde_json::{Map, Number, Value};
use std::io;
use std::path::Path;

/// What a key's value is read into, with its name in Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text(&'static str),
    Texts,
    Bool,
    /// Name, least and most.
    Whole(&'static str, i128, i128),
}

/// Flags that have no key, or another one: see [`KEYS`].
const NO_KEY: &[&str] = &[
    "config-file",
    "version",
    "client-cert-allowed-cn",
    "client-cert-allowed-hostname",
    "client-crl-file",
    "peer-crl-file",
    "raft-read-timeout",
    "raft-write-timeout",
    "discovery",
    "discovery-proxy",
    "discovery-fallback",
    "enable-v2",
    "compact-hash-check-enabled",
];

/// Keys within a block that stand for a flag of another name.
const KEYS: &[(&str, &str, &str)] = &[
    ("client-transport-security", "cert-file", "cert-file"),
    ("client-transport-security", "key-file", "key-file"),
    ("client-transport-security", "client-cert-file", "client-cert-file"),
    ("client-transport-security", "client-key-file", "client-key-file"),
    ("client-transport-security", "client-cert-auth", "client-cert-auth"),
    ("client-transport-security", "trusted-ca-file", "trusted-ca-file"),
    ("client-transport-security", "auto-tls", "auto-tls"),
    ("client-transport-security", "allowed-cn", "client-cert-allowed-cn"),
    ("client-transport-security", "allowed-hostname", "client-cert-allowed-hostname"),
    ("peer-transport-security", "cert-file", "peer-cert-file"),
    ("peer-transport-security", "key-file", "peer-key-file"),
    ("peer-transport-security", "client-cert-file", "peer-client-cert-file"),
    ("peer-transport-security", "client-key-file", "peer-client-key-file"),
    ("peer-transport-security", "client-cert-auth", "peer-client-cert-auth"),
    ("peer-transport-security", "trusted-ca-file", "peer-trusted-ca-file"),
    ("peer-transport-security", "auto-tls", "peer-auto-tls"),
    ("peer-transport-security", "allowed-cn", "peer-cert-allowed-cn"),
    ("peer-transport-security", "allowed-hostname", "peer-cert-allowed-hostname"),
    ("peer-transport-security", "skip-client-san-verification", "peer-skip-client-san-verification"),
    ("socket-options", "reuse-port", "socket-reuse-port"),
    ("socket-options", "reuse-address", "socket-reuse-address"),
];

/// The blocks, and their names in Go: of what is in them, and of the block.
const BLOCKS: &[(&str, &str, &str, &str)] = &[
    ("client-transport-security", "configJSON", "securityConfig", "embed.securityConfig"),
    ("peer-transport-security", "configJSON", "securityConfig", "embed.securityConfig"),
    ("socket-options", "Config", "SocketOpts", "transport.SocketOpts"),
];

/// Keys at the top that are read apart from the others: the name of their struct says so in errors.
const APART: &[&str] = &[
    "listen-peer-urls",
    "listen-client-urls",
    "listen-client-http-urls",
    "initial-advertise-peer-urls",
    "advertise-client-urls",
    "cors",
    "host-whitelist",
    "feature-gates",
];

/// What the flags and variables say; or what the file says that one of them names.
///
/// # Errors
/// What the command line refuses, and what [`flags::parse`] and the file's reader do.
pub(crate) fn given(args: &[String], env: &[(String, String)]) -> Result<Given, Rejected> {
    let by_flags = flags::parse(args, &[])?;
    let by_env = || env.iter().find(|(name, value)| name == "ETCD_CONFIG_FILE" && !value.is_empty());
    let path = match by_flags.text("config-file") {
        "" => by_env().map_or("", |(_, path)| path),
        path => path,
    };
    if path.is_empty() || by_flags.bool("version") {
        return flags::parse(args, env);
    }
    from_text(path, &read(path)?)
}

/// What is wrong with a value of the file is no misuse of the command line.
pub(crate) fn in_its_words(given: &Given, why: Rejected) -> Rejected {
    match why {
        Rejected::Usage(text) if given.file.is_some() => {
            let short = text.split_once("for flag -").and_then(|(_, rest)| rest.split_once(": "));
            Rejected::Invalid(short.map_or(text.clone(), |(_, short)| short.to_string()))
        }
        other => other,
    }
}

fn read(path: &str) -> Result<String, Rejected> {
    let in_gos_words = |error: io::Error| {
        let call = if error.kind() == io::ErrorKind::IsADirectory { "read" } else { "open" };
        invalid(format!("{call} {path}: {}", reason(&error)))
    };
    let bytes = std::fs::read(Path::new(path)).map_err(in_gos_words)?;
    String::from_utf8(bytes).map_err(|_| not_yaml("control characters are not allowed"))
}

fn invalid(text: String) -> Rejected {
    Rejected::Invalid(text)
}

fn not_yaml(why: &str) -> Rejected {
    invalid(format!("error converting YAML to JSON: yaml: {why}"))
}

fn no_json(why: &str) -> Rejected {
    invalid(format!("error unmarshaling JSON: while decoding JSON: json: {why}"))
}

fn from_text(path: &str, text: &str) -> Result<Given, Rejected> {
    let mut given = Given::of_file(path);
    let top = match document(text)? {
        Value::Null => Map::new(),
        Value::Object(top) => top,
        other => {
            return Err(no_json(&format!("cannot unmarshal {} into Go value of type embed.configYAML", kind(&other))));
        }
    };
    for (key, value) in sorted(&top) {
        if let Some((block, of, inner, whole)) = BLOCKS.iter().find(|(block, ..)| block.eq_ignore_ascii_case(key)) {
            match value {
                Value::Null => {}
                Value::Object(keys) => read_block(&mut given, (block, of, inner), keys)?,
                other => return Err(wrong(other, &format!("configYAML.{of}.{block}"), whole)),
            }
            continue;
        }
        match flags::names().find(|name| name.eq_ignore_ascii_case(key) && has_key(name)) {
            Some(name) => {
                let of = if APART.contains(&name) { "configJSON" } else { "Config" };
                take(&mut given, name, value, &format!("configYAML.{of}.{name}"))?;
            }
            // A member that did not know of it would found a cluster alone.
            None if key.eq_ignore_ascii_case("discovery-config") => {
                let text = "discovery-config is not read from a file: give the flags of the v3 discovery instead";
                return Err(Rejected::Invalid(text.into()));
            }
            None => given.unknown_keys.push(key.clone()),
        }
    }
    check(&given)?;
    Ok(given)
}

/// The first document.
fn document(text: &str) -> Result<Value, Rejected> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    let all: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let whole = error.without_snippet().to_string();
        let line = error.location().map_or_else(String::new, |place| format!("line {}: ", place.line()));
        // The library's text ends with the place.
        let why = whole.rsplit_once(" at line ").map_or(&whole[..], |(why, _)| why);
        not_yaml(&format!("{line}{why}"))
    })?;
    Ok(all.into_iter().next().unwrap_or(Value::Null))
}

/// In the order in which etcd meets them.
fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut pairs: Vec<_> = map.iter().collect();
    pairs.sort_by_key(|(key, _)| *key);
    pairs
}

/// Whether a flag's name is also its key.
fn has_key(name: &str) -> bool {
    let elsewhere = KEYS.iter().any(|(.., flag)| *flag == name);
    let discovery = name.starts_with("discovery-") && !name.starts_with("discovery-srv");
    let gone = name.starts_with("experimental-") || name.starts_with("proxy");
    !(elsewhere || discovery || gone || NO_KEY.contains(&name))
}

fn read_block(given: &mut Given, names: (&str, &str, &str), keys: &Map<String, Value>) -> Result<(), Rejected> {
    let (block, of, inner) = names;
    for (key, value) in sorted(keys) {
        match KEYS.iter().find(|(at, name, _)| *at == block && name.eq_ignore_ascii_case(key)) {
            Some((_, name, flag)) => take(given, flag, value, &format!("{inner}.{of}.{block}.{name}"))?,
            None => given.unknown_keys.push(format!("{block}.{key}")),
        }
    }
    Ok(())
}

/// The type in Go of what a flag's key is read into.
fn type_of(name: &str) -> Type {
    match name {
        "cipher-suites"
        | "log-outputs"
        | "client-cert-allowed-cn"
        | "client-cert-allowed-hostname"
        | "peer-cert-allowed-cn"
        | "peer-cert-allowed-hostname" => return Type::Texts,
        "v2-deprecation" => return Type::Text("config.V2DeprecationEnum"),
        _ => {}
    }
    match flags::kind_of(name) {
        Kind::Text | Kind::OneOf(_) => Type::Text("string"),
        Kind::Bool => Type::Bool,
        Kind::Duration => Type::Whole("time.Duration", i64::MIN.into(), i64::MAX.into()),
        Kind::Int if name == "quota-backend-bytes" => Type::Whole("int64", i64::MIN.into(), i64::MAX.into()),
        Kind::Int => Type::Whole("int", i64::MIN.into(), i64::MAX.into()),
        Kind::Uint => match name {
            "snapshot-count" | "snapshot-catchup-entries" => Type::Whole("uint64", 0, u64::MAX.into()),
            "max-concurrent-streams" => Type::Whole("uint32", 0, u32::MAX.into()),
            _ => Type::Whole("uint", 0, u64::MAX.into()),
        },
    }
}

/// `field`: the value's place, as Go names it.
fn take(given: &mut Given, name: &'static str, value: &Value, field: &str) -> Result<(), Rejected> {
    let wanted = type_of(name);
    let text = match (wanted, value) {
        (_, Value::Null) => return Ok(()),
        (Type::Text(_), Value::String(text)) => text.clone(),
        (Type::Texts, Value::Array(parts)) => {
            let parts: Result<Vec<&str>, Rejected> = parts
                .iter()
                .map(|part| match part {
                    Value::Null => Ok(""),
                    Value::String(text) => Ok(&text[..]),
                    other => Err(wrong(other, field, "string")),
                })
                .collect();
            parts?.join(",")
        }
        (Type::Bool, Value::Bool(yes)) => yes.to_string(),
        (Type::Whole(of, least, most), Value::Number(number)) => {
            match whole(number).filter(|number| (least..=most).contains(number)) {
                Some(number) if of == "time.Duration" => format!("{number}ns"),
                Some(number) => number.to_string(),
                None => return Err(wrong_number(number, field, of)),
            }
        }
        (Type::Text(of) | Type::Whole(of, ..), other) => return Err(wrong(other, field, of)),
        (Type::Texts, other) => return Err(wrong(other, field, "[]string")),
        (Type::Bool, other) => return Err(wrong(other, field, "bool")),
    };
    given.set(name, text);
    Ok(())
}

fn whole(number: &Number) -> Option<i128> {
    let exact = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let by_float =
        || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e19).map(|float| float as i128);
    exact.or_else(by_float)
}

/// A value that a flag's own check would have refused; the rest is checked with the flags.
fn check(given: &Given) -> Result<(), Rejected> {
    for name in ["listen-metrics-urls"].iter().chain(APART) {
        if name.ends_with("-urls")
            && given.is_set(name)
            && let Err(why) = Url::list(given.text(name))
        {
            return Err(invalid(format!("unexpected error setting up {name}: {why}")));
        }
    }
    match given.text("auto-compaction-mode") {
        "periodic" | "revision" => {}
        "" => return Err(invalid("undefined auto-compaction-mode".into())),
        other => return Err(invalid(format!("unknown auto-compaction-mode {other:?}"))),
    }
    match given.text("initial-cluster-state") {
        "" | "new" | "existing" => {}
        other => return Err(invalid(format!("unexpected clusterState {other:?}"))),
    }
    match given.text("log-format") {
        "" | "json" | "console" => {}
        other => return Err(invalid(format!("unknown log format: {other}, supported values json, console"))),
    }
    match given.text("logger") {
        "zap" | "" => {}
        other => return Err(invalid(format!("unknown logger option {other:?}"))),
    }
    match crate::log::Level::parse(given.text("log-level")) {
        Some(_) => Ok(()),
        None => Err(invalid(format!("unrecognized level: {:?}", given.text("log-level")))),
    }
}

/// What JSON calls it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong(value: &Value, field: &str, wanted: &str) -> Rejected {
    no_json(&format!("cannot unmarshal {} into Go struct field {field} of type {wanted}", kind(value)))
}

fn wrong_number(number: &Number, field: &str, wanted: &str) -> Rejected {
    let shown = match whole(number) {
        Some(whole) => whole.to_string(),
        None => number.to_string().replace("e", "e+").replace("e+-", "e-").replace("e++", "e+"),
    };
    no_json(&format!("cannot unmarshal number {shown} into Go struct field {field} of type {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::options;

    fn of(text: &str) -> Result<Given, Rejected> {
        from_text("a.yml", text)
    }

    /// What a real etcd 3.7.3 said of the same files.
    #[test]
    fn what_is_wrong_is_said_in_etcds_words() {
        let of_type = |what: &str, field: &str, wanted: &str| {
            no_json(&format!("cannot unmarshal {what} into Go struct field {field} of type {wanted}"))
        };
        let value = |what: &str| no_json(&format!("cannot unmarshal {what} into Go value of type embed.configYAML"));
        let table = [
            ("name: [1]", of_type("array", "configYAML.Config.name", "string")),
            ("name: 5", of_type("number", "configYAML.Config.name", "string")),
            ("name: yes", of_type("bool", "configYAML.Config.name", "string")),
            ("data-dir: {a: b}", of_type("object", "configYAML.Config.data-dir", "string")),
            ("cors: 5", of_type("number", "configYAML.configJSON.cors", "string")),
            ("election-timeout: '1000'", of_type("string", "configYAML.Config.election-timeout", "uint")),
            ("election-timeout: -1", of_type("number -1", "configYAML.Config.election-timeout", "uint")),
            ("quota-backend-bytes: 1.5", of_type("number 1.5", "configYAML.Config.quota-backend-bytes", "int64")),
            (
                "max-request-bytes: 99999999999999999999999",
                of_type("number 1e+23", "configYAML.Config.max-request-bytes", "uint"),
            ),
            (
                "max-concurrent-streams: 4294967296",
                of_type("number 4294967296", "configYAML.Config.max-concurrent-streams", "uint32"),
            ),
            ("pre-vote: 'true'", of_type("string", "configYAML.Config.pre-vote", "bool")),
            ("pre-vote: 1", of_type("number", "configYAML.Config.pre-vote", "bool")),
            (
                "grpc-keepalive-interval: 10m",
                of_type("string", "configYAML.Config.grpc-keepalive-interval", "time.Duration"),
            ),
            ("auto-compaction-retention: 1", of_type("number", "configYAML.Config.auto-compaction-retention", "string")),
            ("log-outputs: stderr", of_type("string", "configYAML.Config.log-outputs", "[]string")),
            ("cipher-suites: TLS_X", of_type("string", "configYAML.Config.cipher-suites", "[]string")),
            ("v2-deprecation: 1", of_type("number", "configYAML.Config.v2-deprecation", "config.V2DeprecationEnum")),
            (
                "peer-transport-security: [3]",
                of_type("array", "configYAML.configJSON.peer-transport-security", "embed.securityConfig"),
            ),
            ("socket-options: 3", of_type("number", "configYAML.Config.socket-options", "transport.SocketOpts")),
            (
                "client-transport-security: {cert-file: [1]}",
                of_type("array", "securityConfig.configJSON.client-transport-security.cert-file", "string"),
            ),
            (
                "peer-transport-security: {allowed-cn: a}",
                of_type("string", "securityConfig.configJSON.peer-transport-security.allowed-cn", "[]string"),
            ),
            (
                "socket-options: {reuse-port: 1}",
                of_type("number", "SocketOpts.Config.socket-options.reuse-port", "bool"),
            ),
            // The keys come in their order, not the file's.
            ("name: 5\ncors: 5", of_type("number", "configYAML.configJSON.cors", "string")),
            ("x", value("string")),
            ("[a]", value("array")),
            ("name: x\n  bad: : y", not_yaml("line 2: mapping values are not allowed in this context")),
            ("auto-compaction-mode: bogus", invalid("unknown auto-compaction-mode \"bogus\"".into())),
            ("auto-compaction-mode: ''", invalid("undefined auto-compaction-mode".into())),
            ("initial-cluster-state: bogus", invalid("unexpected clusterState \"bogus\"".into())),
            ("log-format: bogus", invalid("unknown log format: bogus, supported values json, console".into())),
            ("logger: x", invalid("unknown logger option \"x\"".into())),
            ("log-level: bogus", invalid("unrecognized level: \"bogus\"".into())),
            (
                "listen-metrics-urls: bogus",
                invalid("unexpected error setting up listen-metrics-urls: URL scheme must be http, https, unix, or unixs: bogus".into()),
            ),
        ];
        for (text, why) in table {
            assert_eq!(of(text).expect_err(text), why, "{text}");
        }
    }

    #[test]
    fn what_options_refuse_is_said_without_the_flag() {
        let table = [
            ("feature-gates: Nope=true", "unrecognized feature gate: Nope"),
            ("listen-client-urls: http://nohost:1", "expected IP in URL for binding (http://nohost:1)"),
            (
                "election-timeout: 0x10",
                "--election-timeout[16ms] should be at least as 5 times as --heartbeat-interval[100ms]",
            ),
            ("tls-min-version: '1'", "unexpected TLS version \"1\" (must be one of: TLS1.2, TLS1.3)"),
        ];
        for (text, why) in table {
            let given = of(text).expect(text);
            let refused = options(&given, 7).map_err(|why| in_its_words(&given, why)).expect_err(text);
            assert_eq!(refused, Rejected::Invalid(why.into()), "{text}");
        }
    }

    #[test]
    fn a_block_that_nobody_reads_and_that_founds_another_cluster_is_refused() {
        let text = "discovery-config is not read from a file: give the flags of the v3 discovery instead";
        let refused = of("Discovery-Config: {discovery-token: x}").expect_err("refused");
        assert_eq!(refused, Rejected::Invalid(text.into()));
    }

    #[test]
    fn values_are_what_flags_would_be() {
        let text = "\
name: m1
Data-Dir: d
election-timeout: 1e3
heartbeat-interval: 100.0
grpc-keepalive-interval: 1000000000
pre-vote: on
log-outputs: [stderr, a.log]
quota-backend-bytes: -1
wal-dir:
listen-peer-urls: http://127.0.0.1:1,http://127.0.0.1:2
listen-client-urls: http://127.0.0.1:3
peer-transport-security: {client-cert-auth: yes, trusted-ca-file: ca, Allowed-CN: [a, b]}
client-transport-security:
socket-options: {reuse-port: true}
discovery-proxy: x
unknown: {a: 1}
client-transport-securities: 1
name: m2
---
name: m3
";
        let given = of(text).expect("good");
        for (name, value) in [
            ("name", "m2"),
            ("data-dir", "d"),
            ("election-timeout", "1000"),
            ("grpc-keepalive-interval", "1000000000ns"),
            ("pre-vote", "true"),
            ("log-outputs", "stderr,a.log"),
            ("quota-backend-bytes", "-1"),
            ("peer-client-cert-auth", "true"),
            ("peer-trusted-ca-file", "ca"),
            ("peer-cert-allowed-cn", "a,b"),
            ("socket-reuse-port", "true"),
        ] {
            assert_eq!(given.text(name), value, "{name}");
        }
        assert!(!given.is_set("wal-dir"));
        assert_eq!(given.unknown_keys, ["client-transport-securities", "discovery-proxy", "unknown"]);
        assert_eq!(given.duration("grpc-keepalive-interval"), std::time::Duration::from_secs(1));
        let options = options(&given, 7).expect("good");
        assert_eq!(options.listen_peer.len(), 2);
        assert_eq!(options.initial_cluster[0].0, "m2");
        for empty in ["", "~", "# nothing\n", "{}"] {
            assert_eq!(of(empty).expect("nothing is said").text("name"), "default");
        }
        assert_eq!(of("{\"name\": \"j\"}").expect("JSON is YAML").text("name"), "j");
    }

    #[test]
    fn with_a_file_nothing_else_counts() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("a.yml").display().to_string();
        std::fs::write(&path, "name: f\n").expect("writes");
        let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let env = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
        let of = given(&words(&format!("--name x --config-file {path}")), &env("ETCD_ELECTION_TIMEOUT", "bad"));
        let of = of.expect("the file");
        assert_eq!((of.text("name"), of.file.as_deref()), ("f", Some(&path[..])));
        let of = given(&words("--name x"), &env("ETCD_CONFIG_FILE", &path)).expect("the file");
        assert_eq!(of.text("name"), "f");
        // A flag that is none is refused all the same, and so is a file that is not there.
        let bad = given(&words(&format!("--config-file {path} --nope")), &[]).expect_err("no flag");
        assert!(matches!(bad, Rejected::Usage(_)), "{bad:?}");
        for (name, why) in [("none.yml", "open none.yml: no such file or directory"), (".", "read .: is a directory")] {
            let refused = given(&words(&format!("--config-file={name}")), &env("ETCD_CONFIG_FILE", &path));
            assert_eq!(refused.expect_err("no file"), Rejected::Invalid(why.into()));
        }
        assert_eq!(given(&words("--config-file= --name x"), &[]).expect("no file").text("name"), "x");
    }
}
