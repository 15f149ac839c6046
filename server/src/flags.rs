//! etcd's command line: the table of every flag, and the rules of Go's flag parser.
//!
//! `-x`, `--x`, `--x=v`, `--x v`; booleans take a value only after `=`; a repeated flag's
//! last value counts; `ETCD_*` variables stand behind flags, and one that a flag shadows is
//! fatal. What a value means is decided in [`crate::options`].

use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    /// Signed 64-bit; Go accepts 0x, 0o, 0b and underscores, and so do we.
    Int,
    Uint,
    /// Go's duration: `1h2m3.5s`.
    Duration,
    OneOf(&'static [&'static str]),
}

/// What a value other than the default does today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Works,
    /// Accepted, and one warning line names it.
    Ignored,
    /// Refused: to ignore it would be insecure or would surprise.
    Refused(&'static str),
}

#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    pub(crate) effect: Effect,
    pub(crate) about: &'static str,
}

const NO_DISCOVERY: Effect = Effect::Refused("v2 discovery is gone; use --discovery-endpoints and --discovery-token");
const NO_TRACING: Effect = Effect::Ignored;

const fn flag(name: &'static str, kind: Kind, default: &'static str, effect: Effect, about: &'static str) -> Flag {
    Flag { name, kind, default, effect, about }
}

use Effect::{Ignored, Refused, Works};
use Kind::{Bool, Int, OneOf, Text, Uint};

const DURATION: Kind = Kind::Duration;

/// Every flag of etcd 3.5 to 3.8, in the order of the help text.
#[rustfmt::skip]
pub(crate) static FLAGS: &[Flag] = &[
    // Member
    flag("name", Text, "default", Works, "human-readable name of this member"),
    flag("data-dir", Text, "", Works, "path of the data directory (default ${name}.etcd)"),
    flag("wal-dir", Text, "", Refused("the log lives in the data directory"), "path of a directory for the log alone"),
    flag("snapshot-count", Uint, "10000", Ignored, "accepted; checkpoints are taken by log size, not by count"),
    flag("snapshot-catchup-entries", Uint, "5000", Ignored, "accepted; the log is kept by size, not by count"),
    flag("heartbeat-interval", Uint, "100", Works, "time (in milliseconds) of a heartbeat interval"),
    flag("election-timeout", Uint, "1000", Works, "time (in milliseconds) for an election to time out"),
    flag("initial-election-tick-advance", Bool, "true", Ignored, "accepted; a single member campaigns at once anyway"),
    flag("listen-peer-urls", Text, "http://localhost:2380", Works, "comma-separated list of URLs to listen on for peer traffic"),
    flag("listen-client-urls", Text, "http://localhost:2379", Works, "comma-separated list of URLs to listen on for client grpc traffic and http as long as --listen-client-http-urls is not specified"),
    flag("listen-client-http-urls", Text, "", Works, "comma-separated list of URLs to listen on for http client traffic"),
    flag("max-snapshots", Uint, "5", Ignored, "legacy"),
    flag("max-wals", Uint, "5", Ignored, "legacy; the log is cut by checkpoints"),
    flag("memory-mlock", Bool, "false", Ignored, "lock the process's memory"),
    flag("quota-backend-bytes", Int, "0", Works, "raise an alarm when the live data exceeds this many bytes (0 means 2GiB, negative means no quota)"),
    flag("backend-bbolt-freelist-type", OneOf(&["", "map", "array"]), "", Ignored, "legacy; there is no bbolt file"),
    flag("backend-batch-interval", DURATION, "0s", Ignored, "legacy; batches form behind the flush in flight"),
    flag("backend-batch-limit", Int, "0", Ignored, "legacy"),
    flag("memory-budget", Text, "0", Works, "memory from which the bounds of queues and buffers follow, in bytes or as 512MiB, 2G (0 means what the control group or the machine has)"),
    flag("max-txn-ops", Uint, "128", Works, "maximum number of operations permitted in a transaction"),
    flag("max-request-bytes", Uint, "1572864", Works, "maximum client request size in bytes the server will accept"),
    flag("max-concurrent-streams", Uint, "4294967295", Works, "maximum concurrent streams that each client can open at a time"),
    flag("grpc-keepalive-min-time", DURATION, "5s", Ignored, "minimum duration interval that a client should wait before pinging the server"),
    flag("grpc-keepalive-interval", DURATION, "2h0m0s", Works, "frequency of server-to-client pings to check if a connection is alive (0 to disable)"),
    flag("grpc-keepalive-timeout", DURATION, "20s", Works, "additional wait before closing a non-responsive connection (0 to disable)"),
    flag("socket-reuse-port", Bool, "false", Ignored, "set SO_REUSEPORT on listeners"),
    flag("socket-reuse-address", Bool, "false", Ignored, "accepted; SO_REUSEADDR is always set"),
    flag("raft-read-timeout", DURATION, "5s", Ignored, "read timeout of raft connections"),
    flag("raft-write-timeout", DURATION, "5s", Ignored, "write timeout of raft connections"),
    // Clustering
    flag("initial-advertise-peer-urls", Text, "http://localhost:2380", Works, "comma-separated list of this member's peer URLs to advertise to the rest of the cluster"),
    flag("initial-cluster", Text, "default=http://localhost:2380", Works, "initial cluster configuration for bootstrapping"),
    flag("initial-cluster-state", OneOf(&["new", "existing"]), "new", Works, "initial cluster state ('new' or 'existing')"),
    flag("initial-cluster-token", Text, "etcd-cluster", Works, "initial cluster token for the cluster during bootstrap"),
    flag("advertise-client-urls", Text, "http://localhost:2379", Works, "comma-separated list of this member's client URLs to advertise to the public"),
    flag("discovery-endpoints", Text, "", Works, "comma-separated endpoints of the cluster in which the founders register (v3 discovery)"),
    flag("discovery-token", Text, "", Works, "token under which the founders register, and token of the cluster they found"),
    flag("discovery-dial-timeout", DURATION, "2s", Works, "v3 discovery dial timeout"),
    flag("discovery-request-timeout", DURATION, "5s", Works, "v3 discovery request timeout"),
    flag("discovery-keepalive-time", DURATION, "2s", Works, "v3 discovery keepalive time"),
    flag("discovery-keepalive-timeout", DURATION, "6s", Works, "v3 discovery keepalive timeout"),
    flag("discovery-insecure-transport", Bool, "true", Works, "v3 discovery without TLS"),
    flag("discovery-insecure-skip-tls-verify", Bool, "false", Works, "v3 discovery without verification"),
    flag("discovery-cert", Text, "", Works, "v3 discovery certificate"),
    flag("discovery-key", Text, "", Works, "v3 discovery key"),
    flag("discovery-cacert", Text, "", Works, "v3 discovery CA"),
    flag("discovery-user", Text, "", Works, "v3 discovery user"),
    flag("discovery-password", Text, "", Works, "v3 discovery password"),
    flag("discovery-fallback", OneOf(&["exit", "proxy"]), "exit", Ignored, "legacy"),
    flag("discovery-srv", Text, "", Works, "DNS srv domain used to bootstrap the cluster"),
    flag("discovery-srv-name", Text, "", Works, "suffix to the dns srv name queried when bootstrapping"),
    flag("strict-reconfig-check", Bool, "true", Works, "reject reconfiguration requests that would cause quorum loss"),
    flag("pre-vote", Bool, "true", Ignored, "run an additional election phase before a vote; always on"),
    flag("auto-compaction-retention", Text, "0", Works, "auto compaction retention: hours or a duration (periodic), or revisions (revision); 0 means disable"),
    flag("auto-compaction-mode", OneOf(&["periodic", "revision"]), "periodic", Works, "interpret 'auto-compaction-retention' as one of: periodic|revision"),
    flag("scrub-interval", DURATION, "24h0m0s", Works, "read everything at rest and compare it with its checksums in about this time; 0 means never (kvorum only)"),
    flag("v2-deprecation", Text, "write-only", Ignored, "legacy"),
    // Security
    flag("cert-file", Text, "", Works, "path to the client server TLS cert file"),
    flag("key-file", Text, "", Works, "path to the client server TLS key file"),
    flag("client-cert-file", Text, "", Works, "path to an explicit client TLS cert file"),
    flag("client-key-file", Text, "", Works, "path to an explicit client TLS key file"),
    flag("trusted-ca-file", Text, "", Works, "path to the client server TLS trusted CA cert file"),
    flag("client-cert-auth", Bool, "false", Works, "enable client cert authentication"),
    flag("client-crl-file", Text, "", Works, "path to the client certificate revocation list file"),
    flag("client-cert-allowed-cn", Text, "", Works, "allowed CNs for client cert authentication (a flag of kvorum only; a key of etcd's file)"),
    flag("client-cert-allowed-hostname", Text, "", Works, "allowed SAN hostname for client cert authentication"),
    flag("auto-tls", Bool, "false", Works, "client TLS using generated certificates"),
    flag("peer-cert-file", Text, "", Works, "path to the peer server TLS cert file"),
    flag("peer-key-file", Text, "", Works, "path to the peer server TLS key file"),
    flag("peer-client-cert-file", Text, "", Works, "path to an explicit peer client TLS cert file"),
    flag("peer-client-key-file", Text, "", Works, "path to an explicit peer client TLS key file"),
    flag("peer-trusted-ca-file", Text, "", Works, "path to the peer server TLS trusted CA file"),
    flag("peer-client-cert-auth", Bool, "false", Works, "enable peer client cert authentication"),
    flag("peer-crl-file", Text, "", Works, "path to the peer certificate revocation list file"),
    flag("peer-cert-allowed-cn", Text, "", Works, "required CN for client certs connecting to the peer endpoint"),
    flag("peer-cert-allowed-hostname", Text, "", Works, "allowed SAN hostname for peer certs"),
    flag("peer-auto-tls", Bool, "false", Works, "peer TLS using self-generated certificates"),
    flag("peer-skip-client-san-verification", Bool, "false", Works, "skip verification of SAN in peer client certs"),
    flag("self-signed-cert-validity", Uint, "1", Works, "validity of generated certificates in years"),
    flag("cipher-suites", Text, "", Works, "comma-separated list of supported TLS cipher suites"),
    flag("tls-min-version", Text, "TLS1.2", Works, "minimum TLS version"),
    flag("tls-max-version", Text, "", Works, "maximum TLS version"),
    flag("cors", Text, "*", Works, "comma-separated whitelist of origins for CORS"),
    flag("host-whitelist", Text, "*", Works, "acceptable hostnames from HTTP client requests, if server is not secure"),
    // Auth
    flag("auth-token", Text, "simple", Works, "auth token type and its options: simple, or jwt,sign-method=…,pub-key=…,priv-key=…,ttl=…"),
    flag("bcrypt-cost", Uint, "10", Works, "cost of hashing auth passwords, 4 to 31"),
    flag("auth-token-ttl", Uint, "300", Works, "seconds that a simple token lives without use"),
    // Profiling, logging, tracing
    flag("enable-pprof", Bool, "false", Ignored, "runtime profiling over HTTP"),
    flag("metrics", OneOf(&["basic", "extensive"]), "basic", Works, "level of detail for exported metrics"),
    flag("listen-metrics-urls", Text, "", Works, "list of URLs to listen on for the /metrics and /health endpoints"),
    flag("logger", OneOf(&["zap"]), "zap", Works, "only zap"),
    flag("log-outputs", Text, "default", Works, "'stdout', 'stderr' or file paths, comma-separated"),
    flag("log-level", OneOf(&["debug", "info", "warn", "error", "panic", "fatal"]), "info", Works, "log level"),
    flag("log-format", OneOf(&["json", "console"]), "json", Works, "log format"),
    flag("enable-log-rotation", Bool, "false", Works, "begin the log file anew when it is full"),
    flag("log-rotation-config-json", Text, "{\"maxsize\": 100, \"maxage\": 0, \"maxbackups\": 0, \"localtime\": false, \"compress\": false}", Works, "when a log file is full, and what becomes of old ones: MiB, days, how many, names in local time, gzip"),
    flag("warning-unary-request-duration", DURATION, "300ms", Works, "warn about a unary request that takes longer"),
    flag("warning-apply-duration", DURATION, "100ms", Works, "warn about an apply that takes longer"),
    flag("enable-distributed-tracing", Bool, "false", NO_TRACING, "OpenTelemetry tracing"),
    flag("distributed-tracing-address", Text, "localhost:4317", NO_TRACING, "tracing collector"),
    flag("distributed-tracing-service-name", Text, "etcd", NO_TRACING, "tracing service name"),
    flag("distributed-tracing-instance-id", Text, "", NO_TRACING, "tracing instance id"),
    flag("distributed-tracing-sampling-rate", Int, "0", NO_TRACING, "samples per million"),
    // Features
    flag("enable-grpc-gateway", Bool, "true", Works, "enable the JSON gateway"),
    flag("corrupt-check-time", DURATION, "0s", Ignored, "digests are compared all the time"),
    flag("compact-hash-check-enabled", Bool, "false", Ignored, "digests are compared all the time"),
    flag("compact-hash-check-time", DURATION, "1m0s", Ignored, "digests are compared all the time"),
    flag("compaction-batch-limit", Int, "0", Ignored, "the sweep runs in slices of its own"),
    flag("compaction-sleep-interval", DURATION, "0s", Ignored, "the sweep runs in slices of its own"),
    flag("watch-progress-notify-interval", DURATION, "0s", Works, "duration of periodic watch progress notifications"),
    flag("downgrade-check-time", DURATION, "5s", Ignored, "time between two downgrade status checks"),
    flag("bootstrap-defrag-threshold-megabytes", Uint, "0", Ignored, "there is nothing to defragment"),
    flag("max-learners", Int, "1", Works, "maximum number of learners"),
    flag("feature-gates", Text, "", Works, "comma-separated gates, Name=true,Other=false"),
    flag("force-new-cluster", Bool, "false", Works, "go on alone with the data of this member: its cluster has lost its majority for good"),
    flag("unsafe-no-fsync", Bool, "false", Ignored, "flushes are never skipped"),
    flag("config-file", Text, "", Works, "path to the server configuration file; if given, other command line flags and environment variables are ignored"),
    flag("version", Bool, "false", Works, "print the version and exit"),
    // Removed in 3.7, still passed by older deployments
    flag("experimental-initial-corrupt-check", Bool, "false", Ignored, "digests are compared all the time"),
    flag("experimental-watch-progress-notify-interval", DURATION, "0s", Works, "old name of --watch-progress-notify-interval"),
    flag("experimental-warning-unary-request-duration", DURATION, "0s", Works, "old name of --warning-unary-request-duration"),
    flag("experimental-warning-apply-duration", DURATION, "100ms", Works, "old name of --warning-apply-duration"),
    flag("experimental-bootstrap-defrag-threshold-megabytes", Uint, "0", Ignored, "old name"),
    flag("experimental-compact-hash-check-enabled", Bool, "false", Ignored, "old name"),
    flag("experimental-compact-hash-check-time", DURATION, "1m0s", Ignored, "old name"),
    flag("experimental-compaction-batch-limit", Int, "0", Ignored, "old name"),
    flag("experimental-compaction-sleep-interval", DURATION, "0s", Ignored, "old name"),
    flag("experimental-corrupt-check-time", DURATION, "0s", Ignored, "old name"),
    flag("experimental-downgrade-check-time", DURATION, "5s", Ignored, "old name"),
    flag("experimental-enable-distributed-tracing", Bool, "false", Ignored, "old name"),
    flag("experimental-distributed-tracing-address", Text, "localhost:4317", Ignored, "old name"),
    flag("experimental-distributed-tracing-service-name", Text, "etcd", Ignored, "old name"),
    flag("experimental-distributed-tracing-instance-id", Text, "", Ignored, "old name"),
    flag("experimental-distributed-tracing-sampling-rate", Int, "0", Ignored, "old name"),
    flag("experimental-enable-lease-checkpoint", Bool, "false", Ignored, "leases are checkpointed by the log"),
    flag("experimental-enable-lease-checkpoint-persist", Bool, "false", Ignored, "leases are checkpointed by the log"),
    flag("experimental-memory-mlock", Bool, "false", Ignored, "old name"),
    flag("experimental-peer-skip-client-san-verification", Bool, "false", Works, "old name"),
    flag("experimental-snapshot-catchup-entries", Uint, "5000", Ignored, "old name"),
    flag("experimental-stop-grpc-service-on-defrag", Bool, "false", Ignored, "there is nothing to defragment"),
    flag("experimental-txn-mode-write-with-shared-buffer", Bool, "true", Ignored, "legacy"),
    flag("experimental-max-learners", Int, "1", Works, "old name of --max-learners"),
    flag("enable-v2", Bool, "false", Ignored, "legacy"),
    flag("experimental-enable-v2v3", Text, "", Ignored, "legacy"),
    flag("proxy", Text, "off", Refused("the v2 proxy is gone"), "legacy"),
    flag("proxy-failure-wait", Uint, "5000", Ignored, "legacy"),
    flag("proxy-refresh-interval", Uint, "30000", Ignored, "legacy"),
    flag("proxy-dial-timeout", Uint, "1000", Ignored, "legacy"),
    flag("proxy-write-timeout", Uint, "5000", Ignored, "legacy"),
    flag("proxy-read-timeout", Uint, "0", Ignored, "legacy"),
    flag("discovery", Text, "", NO_DISCOVERY, "legacy"),
    flag("discovery-proxy", Text, "", NO_DISCOVERY, "legacy"),
];

/// Older flags that etcd itself drops without a word. They take a value unless boolean.
static SILENT: &[&str] = &[
    "cluster-active-size",
    "cluster-remove-delay",
    "cluster-sync-interval",
    "config",
    "force",
    "max-result-buffer",
    "max-retry-attempts",
    "peer-heartbeat-interval",
    "peer-election-timeout",
    "retry-interval",
    "snapshot",
    "v",
    "vv",
    "test.coverprofile",
    "test.outputdir",
];

/// Variables of the same prefix that are not flags.
static ENV_OTHERS: &[&str] = &["ETCD_UNSUPPORTED_ARCH"];

/// Why the command line was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// Print to stderr with the usage, exit 2.
    Usage(String),
    /// `-h`: usage to stderr, flags to stdout, exit 0.
    Help,
    /// One fatal line, exit 1; the second is etcd's field for the variable.
    Shadowed(String),
    /// One warning line "failed to verify flags", exit 1.
    Invalid(String),
}

/// What was given, value checked by kind, and what to warn about.
#[derive(Debug, Default)]
pub(crate) struct Given {
    values: BTreeMap<&'static str, String>,
    /// (message, variable) of environment warnings.
    pub(crate) env_warnings: Vec<(String, String)>,
    /// The configuration file that all of it is from.
    pub(crate) file: Option<String>,
    /// Keys of that file that nobody knows.
    pub(crate) unknown_keys: Vec<String>,
}

impl Given {
    /// Nothing yet, out of the file of that path.
    pub(crate) fn of_file(path: &str) -> Given {
        Given { file: Some(path.to_string()), ..Given::default() }
    }

    /// A value of the kind that [`kind_of`] names.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.values.insert(name, value);
    }

    /// Whether a flag, a variable or the file set it.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value, or the default of the table.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(value) => value,
            None => find(name).unwrap_or_else(|| panic!("flag {name} is in the table")).default,
        }
    }

    pub(crate) fn bool(&self, name: &str) -> bool {
        parse_bool(self.text(name)).unwrap_or(false)
    }

    pub(crate) fn int(&self, name: &str) -> i64 {
        parse_int(self.text(name)).unwrap_or(0)
    }

    pub(crate) fn uint(&self, name: &str) -> u64 {
        parse_uint(self.text(name)).unwrap_or(0)
    }

    pub(crate) fn duration(&self, name: &str) -> Duration {
        Duration::from_nanos(parse_duration(self.text(name)).unwrap_or(0).max(0) as u64)
    }

    /// Flags that were given a value other than the default: what to warn about or refuse.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&'static Flag, &str)> {
        self.values.iter().filter_map(|(name, value)| {
            let flag = find(name)?;
            (!same(flag, value)).then_some((flag, value.as_str()))
        })
    }
}

fn same(flag: &Flag, value: &str) -> bool {
    match flag.kind {
        Bool => parse_bool(value) == parse_bool(flag.default),
        Int => parse_int(value) == parse_int(flag.default),
        Uint => parse_uint(value) == parse_uint(flag.default),
        Kind::Duration => parse_duration(value) == parse_duration(flag.default),
        _ => value == flag.default,
    }
}

/// The name of every flag.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|flag| flag.name)
}

/// The kind of a flag's value.
///
/// # Panics
/// If there is no such flag.
pub(crate) fn kind_of(name: &str) -> Kind {
    find(name).unwrap_or_else(|| panic!("flag {name} is in the table")).kind
}

fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Parses arguments (without the program's name) and the environment.
pub(crate) fn parse(args: &[String], env: &[(String, String)]) -> Result<Given, Rejected> {
    let mut given = Given::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let Some(body) = arg.strip_prefix('-').filter(|body| !body.is_empty()) else {
            return Err(Rejected::Invalid(format!("{arg:?} is not a valid flag")));
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() {
            // "--" ends the flags.
            match rest.next() {
                None => break,
                Some(arg) => return Err(Rejected::Invalid(format!("{arg:?} is not a valid flag"))),
            }
        }
        if body.starts_with('-') || body.starts_with('=') {
            return Err(Rejected::Usage(format!("bad flag syntax: {arg}")));
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (body, None),
        };
        take_flag(name, value, &mut rest, &mut given)?;
    }
    take_env(env, &mut given)?;
    Ok(given)
}

fn take_flag(
    name: &str,
    value: Option<String>,
    rest: &mut std::slice::Iter<'_, String>,
    given: &mut Given,
) -> Result<(), Rejected> {
    let Some(flag) = find(name) else {
        if SILENT.contains(&name) {
            if value.is_none() && !matches!(name, "force" | "snapshot" | "v" | "vv") {
                rest.next();
            }
            return Ok(());
        }
        if name == "h" || name == "help" {
            return Err(Rejected::Help);
        }
        return Err(Rejected::Usage(format!("flag provided but not defined: -{name}")));
    };
    let value = match (flag.kind, value) {
        (_, Some(value)) => value,
        (Bool, None) => "true".to_string(),
        (_, None) => match rest.next() {
            Some(value) => value.clone(),
            None => return Err(Rejected::Usage(format!("flag needs an argument: -{name}"))),
        },
    };
    if let Err(why) = check(flag.kind, &value) {
        let what = if flag.kind == Bool { "boolean value" } else { "value" };
        let of = if flag.kind == Bool { "for" } else { "for flag" };
        return Err(Rejected::Usage(format!("invalid {what} {value:?} {of} -{name}: {why}")));
    }
    given.values.insert(flag.name, value);
    Ok(())
}

fn take_env(env: &[(String, String)], given: &mut Given) -> Result<(), Rejected> {
    for (variable, value) in env {
        let Some(rest) = variable.strip_prefix("ETCD_") else { continue };
        if variable == "ETCD_VERSION" {
            given.env_warnings.push(("unsetting environment variable".into(), format!("{variable}={value}")));
            continue;
        }
        let name = rest.to_ascii_lowercase().replace('_', "-");
        match find(&name) {
            Some(flag) if env_name(flag.name) == *variable => {
                if value.is_empty() {
                    continue;
                }
                if given.is_set(flag.name) {
                    return Err(Rejected::Shadowed(variable.clone()));
                }
                check(flag.kind, value)
                    .map_err(|why| Rejected::Invalid(format!("invalid value {value:?} for {variable}: {why}")))?;
                given.values.insert(flag.name, value.clone());
            }
            _ if ENV_OTHERS.contains(&variable.as_str()) => {}
            _ => given.env_warnings.push(("unrecognized environment variable".into(), format!("{variable}={value}"))),
        }
    }
    Ok(())
}

/// `ETCD_` and the name in capitals.
pub(crate) fn env_name(flag: &str) -> String {
    format!("ETCD_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

fn check(kind: Kind, value: &str) -> Result<(), &'static str> {
    let good = match kind {
        Text => true,
        Bool => parse_bool(value).is_some(),
        Int => return parse_int(value).map(drop),
        Uint => return parse_uint(value).map(drop),
        Kind::Duration => parse_duration(value).is_some(),
        OneOf(values) => return if values.contains(&value) { Ok(()) } else { Err("invalid value") },
    };
    if good { Ok(()) } else { Err("parse error") }
}

fn parse_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn parse_int(value: &str) -> Result<i64, &'static str> {
    let (negative, digits) = match value.as_bytes().first() {
        Some(b'-') => (true, &value[1..]),
        Some(b'+') => (false, &value[1..]),
        _ => (false, value),
    };
    let magnitude = i128::from(parse_uint(digits)?);
    let number = if negative { -magnitude } else { magnitude };
    i64::try_from(number).map_err(|_| "value out of range")
}

fn parse_uint(value: &str) -> Result<u64, &'static str> {
    let (radix, digits) = match value.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &value[2..]),
        [b'0', b'b' | b'B', ..] => (2, &value[2..]),
        [b'0', b'o' | b'O', ..] => (8, &value[2..]),
        [b'0', _, ..] => (8, &value[1..]),
        _ => (10, value),
    };
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err("parse error");
    }
    u64::from_str_radix(&digits, radix).map_err(|_| "value out of range")
}

/// Go's `time.ParseDuration`, in nanoseconds. None: not a duration, or beyond 292 years.
pub(crate) fn parse_duration(value: &str) -> Option<i64> {
    let (negative, mut rest) = match value.as_bytes().first()? {
        b'-' => (true, &value[1..]),
        b'+' => (false, &value[1..]),
        _ => (false, value),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let kept = &fraction[..fraction.len().min(18)];
        let part: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
        total = total
            .checked_add(whole.checked_mul(scale)?)?
            .checked_add(part.checked_mul(scale)? / 10_i128.pow(kept.len() as u32))?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// The first lines of the help, for stderr.
pub(crate) fn usage() -> &'static str {
    "Usage:\n\n  kvorum server [flags]\n    Start a member with etcd's flags and ETCD_* variables.\n\n  \
     kvorum server --version\n    Show the version.\n\n  kvorum server -h | --help\n    Show this help.\n"
}

/// The flags that do something, for manual pages and completion.
pub(crate) fn about() -> Vec<crate::process::FlagAbout> {
    let shown = FLAGS.iter().filter(|flag| flag.effect == Works && !flag.about.starts_with("old name"));
    let about = |flag: &Flag| crate::process::FlagAbout {
        name: flag.name,
        switch: flag.kind == Bool,
        default: flag.default,
        choices: if let OneOf(choices) = flag.kind { choices } else { &[] },
        about: flag.about,
    };
    shown.map(about).collect()
}

/// The list of all flags, for stdout.
pub(crate) fn flag_list() -> String {
    let mut text = String::new();
    for flag in FLAGS {
        let default = match (flag.kind, flag.default) {
            (Text | OneOf(_), value) => format!("'{value}'"),
            (_, value) => format!("'{value}'"),
        };
        let note = match flag.effect {
            Works => String::new(),
            Ignored => " [accepted, no effect]".to_string(),
            Refused(why) => format!(" [refused: {why}]"),
        };
        text += &format!("  --{} {default}\n    {}.{note}\n", flag.name, flag.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn rejected(line: &str) -> Rejected {
        parse(&args(line), &[]).expect_err(line)
    }

    #[test]
    fn every_form_of_a_flag() {
        let table = [
            ("-name x", "name", "x"),
            ("--name x", "name", "x"),
            ("-name=x", "name", "x"),
            ("--name=x=y", "name", "x=y"),
            ("--name a --name=b", "name", "b"),
            ("--name=", "name", ""),
            ("--force-new-cluster", "force-new-cluster", "true"),
            ("--force-new-cluster=F", "force-new-cluster", "F"),
            ("--pre-vote=false --name x", "name", "x"),
            ("--snapshot-count 5 --snapshot-count=0x10", "snapshot-count", "0x10"),
            ("-v --name x", "name", "x"),
            ("--max-result-buffer 3 --name x", "name", "x"),
        ];
        for (line, name, value) in table {
            let given = parse(&args(line), &[]).unwrap_or_else(|error| panic!("{line}: {error:?}"));
            assert_eq!(given.text(name), value, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_as_go_says_it() {
        let table = [
            ("--nope", "flag provided but not defined: -nope"),
            ("--name", "flag needs an argument: -name"),
            ("--heartbeat-interval=abc", "invalid value \"abc\" for flag -heartbeat-interval: parse error"),
            ("--heartbeat-interval=-1", "invalid value \"-1\" for flag -heartbeat-interval: parse error"),
            (
                "--quota-backend-bytes=9223372036854775808",
                "invalid value \"9223372036854775808\" for flag -quota-backend-bytes: value out of range",
            ),
            ("--force-new-cluster=maybe", "invalid boolean value \"maybe\" for -force-new-cluster: parse error"),
            ("--initial-cluster-state=foo", "invalid value \"foo\" for flag -initial-cluster-state: invalid value"),
            ("---name", "bad flag syntax: ---name"),
        ];
        for (line, text) in table {
            assert_eq!(rejected(line), Rejected::Usage(text.into()), "{line}");
        }
        assert_eq!(rejected("--pre-vote false"), Rejected::Invalid("\"false\" is not a valid flag".into()));
        assert_eq!(rejected("-h"), Rejected::Help);
    }

    #[test]
    fn the_environment_stands_behind_flags() {
        let given = parse(&[], &env(&[("ETCD_NAME", "n"), ("ETCD_DATA_DIR", ""), ("OTHER", "x")])).expect("good");
        assert_eq!((given.text("name"), given.is_set("data-dir")), ("n", false));
        let given = parse(&[], &env(&[("ETCD_NOPE", "1"), ("ETCD_UNSUPPORTED_ARCH", "amd64")])).expect("good");
        assert_eq!(given.env_warnings, [("unrecognized environment variable".to_string(), "ETCD_NOPE=1".to_string())]);
        let shadowed = parse(&args("--name y"), &env(&[("ETCD_NAME", "x")])).expect_err("conflict");
        assert_eq!(shadowed, Rejected::Shadowed("ETCD_NAME".into()));
        let wrong = parse(&[], &env(&[("ETCD_HEARTBEAT_INTERVAL", "abc")])).expect_err("bad value");
        assert_eq!(wrong, Rejected::Invalid("invalid value \"abc\" for ETCD_HEARTBEAT_INTERVAL: parse error".into()));
    }

    #[test]
    fn durations_as_in_go() {
        let table = [
            ("0", Some(0)),
            ("10m", Some(600_000_000_000)),
            ("1h2m3.5s", Some(3_723_500_000_000)),
            ("-1.5ms", Some(-1_500_000)),
            (".5s", Some(500_000_000)),
            ("1µs", Some(1_000)),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("1d", None),
            ("1.2.3s", None),
            ("9999999999999999999h", None),
        ];
        for (text, nanos) in table {
            assert_eq!(parse_duration(text), nanos, "{text}");
        }
    }

    #[test]
    fn the_table_is_sound() {
        let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "each flag once");
        for flag in FLAGS {
            assert!(check(flag.kind, flag.default).is_ok(), "default of {}", flag.name);
        }
    }
}
