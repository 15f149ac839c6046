//! What the flags mean: checked, typed, with etcd's texts for what does not fit together.

use crate::budgets::{Limits, memory_of_this_process, parse_bytes};
use crate::discovery::{Discovery, Records, Service};
use crate::flags::{Effect, Given, Rejected, parse_duration};
use crate::log::{self, Format, Level};
use crate::settings::{Gate, Settings};
use crate::sockets;
use crate::tls::{self, Wish};
use crate::tokens::Tokens;
use disk::urls::{BadUrl, Url};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How the leader compacts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoCompaction {
    /// Keep what was current within this time.
    Periodic(Duration),
    /// Keep this many revisions.
    Revision(i64),
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) listen_peer: Vec<Url>,
    pub(crate) listen_client: Vec<Url>,
    /// Empty: HTTP/1.1 is served on the client URLs.
    pub(crate) listen_client_http: Vec<Url>,
    pub(crate) listen_metrics: Vec<Url>,
    pub(crate) advertise_peer: Vec<Url>,
    pub(crate) advertise_client: Vec<Url>,
    /// Where the initial cluster is found; None: `initial_cluster` says it.
    pub(crate) discovery: Option<Discovery>,
    /// (name, peer URL) as written; a name may repeat. With `discovery` it is empty until that was
    /// asked.
    pub(crate) initial_cluster: Vec<(String, Url)>,
    pub(crate) token: String,
    /// `--initial-cluster-state existing`.
    pub(crate) existing: bool,
    /// `--force-new-cluster`.
    pub(crate) alone: bool,
    pub(crate) auto_compaction: Option<AutoCompaction>,
    /// `--bootstrap-defrag-threshold-megabytes`: what is said of it at the start.
    pub(crate) defrag_threshold_mib: u64,
    pub(crate) log_level: Level,
    pub(crate) log_format: Format,
    pub(crate) log_outputs: Vec<String>,
    /// `--enable-log-rotation`.
    pub(crate) log_rotation: Option<log::Rules>,
    pub(crate) settings: Settings,
    /// What is asked of the ports for clients: gRPC, HTTP and metrics.
    pub(crate) client_tls: Wish,
    /// The same of the port for peers, and where peers are dialled.
    pub(crate) peer_tls: Wish,
    /// Flags given that have no effect: (name, value, what stands in their place).
    pub(crate) ignored: Vec<(String, String, String)>,
}

/// Name, stage, and whether etcd has it on.
const GATES: &[Gate] = &[
    gate("AllAlpha", "ALPHA", false),
    gate("AllBeta", "BETA", false),
    gate("StopGRPCServiceOnDefrag", "ALPHA", false),
    gate("TxnModeWriteWithSharedBuffer", "BETA", true),
    gate("InitialCorruptCheck", "ALPHA", false),
    gate("CompactHashCheck", "ALPHA", false),
    gate("LeaseCheckpoint", "ALPHA", false),
    gate("LeaseCheckpointPersist", "ALPHA", false),
    gate("SetMemberLocalAddr", "ALPHA", false),
    gate("FastLeaseKeepAlive", "BETA", true),
    gate("PriorityRequest", "ALPHA", false),
];

const fn gate(name: &'static str, stage: &'static str, on: bool) -> Gate {
    Gate { name, stage, on }
}

fn invalid<T>(text: impl Into<String>) -> Result<T, Rejected> {
    Err(Rejected::Invalid(text.into()))
}

/// The flags whose values are lists of URLs.
const URLS: &[&str] = &[
    "listen-peer-urls",
    "listen-client-urls",
    "listen-client-http-urls",
    "listen-metrics-urls",
    "initial-advertise-peer-urls",
    "advertise-client-urls",
];

fn read_urls(given: &Given, name: &str) -> Result<Vec<Url>, Rejected> {
    let text = given.text(name);
    Url::list(text).map_err(|why| Rejected::Usage(format!("invalid value {text:?} for flag -{name}: {why}")))
}

fn urls(given: &Given, name: &str) -> Result<Vec<Url>, Rejected> {
    read_urls(given, name)
}

fn bind_urls(given: &Given, name: &str) -> Result<Vec<Url>, Rejected> {
    let urls = urls(given, name)?;
    match urls.iter().find(|url| !sockets::can_bind(url)) {
        Some(url) if url.is_unix() => {
            invalid(format!("expected a path in URL for binding, without any of %?#@ ({url})"))
        }
        Some(url) => invalid(format!("expected IP in URL for binding ({url})")),
        None => Ok(urls),
    }
}

/// Parses `--initial-cluster`. A name may repeat.
pub(crate) fn initial_cluster(text: &str) -> Result<Vec<(String, Url)>, BadUrl> {
    text.split(',')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, url) = part.split_once('=').unwrap_or((part, ""));
            Url::parse(url).map(|url| (name.to_string(), url))
        })
        .collect()
}

fn discovery(given: &Given) -> Result<Option<Discovery>, Rejected> {
    let (domain, token) = (given.text("discovery-srv"), given.text("discovery-token"));
    let endpoints = list(given.text("discovery-endpoints"));
    let ways = [given.is_set("initial-cluster"), !domain.is_empty(), !endpoints.is_empty()];
    if ways.iter().filter(|way| **way).count() > 1 {
        return invalid(
            "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \
             \"discovery-endpoints\" or \"discovery-srv\"",
        );
    }
    if token.is_empty() != endpoints.is_empty() {
        return invalid("both --discovery-token and --discovery-endpoints must be set");
    }
    if !endpoints.is_empty() {
        let client = discovery_client(given, endpoints);
        return Ok(Some(Discovery::Service(Box::new(Service { token: token.to_string(), client }))));
    }
    if domain.is_empty() {
        return Ok(None);
    }
    let (domain, name) = (domain.to_string(), given.text("discovery-srv-name").to_string());
    Ok(Some(Discovery::Records(Records { domain, name })))
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
}

/// How the discovery service is spoken to.
fn discovery_client(given: &Given, endpoints: Vec<String>) -> client::Options {
    let text = |name: &str| Some(given.text(name)).filter(|text| !text.is_empty());
    let tls = client::Tls {
        ca: text("discovery-cacert").map(PathBuf::from),
        cert: text("discovery-cert").map(PathBuf::from),
        key: text("discovery-key").map(PathBuf::from),
        insecure_skip_verify: given.bool("discovery-insecure-skip-tls-verify"),
        server_name: None,
    };
    let wanted = tls.ca.is_some() || tls.cert.is_some() || tls.key.is_some() || tls.insecure_skip_verify;
    let credentials = |name: &str| {
        let password = text("discovery-password")?.to_string();
        Some(client::Credentials { name: name.to_string(), password })
    };
    client::Options {
        any_endpoint: true,
        dial_timeout: given.duration("discovery-dial-timeout"),
        request_timeout: Some(given.duration("discovery-request-timeout")).filter(|limit| !limit.is_zero()),
        keepalive_time: given.duration("discovery-keepalive-time"),
        keepalive_timeout: given.duration("discovery-keepalive-timeout"),
        tls: (wanted || !given.bool("discovery-insecure-transport")).then_some(tls),
        user: text("discovery-user").and_then(credentials),
        ..client::Options::of(endpoints)
    }
}

fn auto_compaction(given: &Given) -> Result<Option<AutoCompaction>, Rejected> {
    let text = given.text("auto-compaction-retention");
    let number = text.parse::<i64>().ok();
    if number == Some(0) || text.is_empty() {
        return Ok(None);
    }
    if given.text("auto-compaction-mode") == "revision" {
        return match number {
            Some(keep) if keep > 0 => Ok(Some(AutoCompaction::Revision(keep))),
            _ => invalid(format!("error parsing auto-compaction-retention: {text:?} is not a number of revisions")),
        };
    }
    let nanos = match number {
        Some(hours) => hours.checked_mul(3_600_000_000_000),
        None => parse_duration(text),
    };
    match nanos {
        Some(nanos) if nanos > 0 => Ok(Some(AutoCompaction::Periodic(Duration::from_nanos(nanos as u64)))),
        Some(0) => Ok(None),
        _ => invalid(format!("error parsing auto-compaction-retention: time: invalid duration {text:?}")),
    }
}

/// The gates as they were asked for. A gate that is named is as it was said, whatever `AllAlpha`
/// and `AllBeta` say.
fn gates(text: &str) -> Result<Vec<Gate>, Rejected> {
    let mut said = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((gate, value)) = part.split_once('=') else {
            return Err(Rejected::Usage(format!(
                "invalid value {text:?} for flag -feature-gates: missing bool value for {part}"
            )));
        };
        if !GATES.iter().any(|known| known.name == gate) {
            return Err(Rejected::Usage(format!(
                "invalid value {text:?} for flag -feature-gates: unrecognized feature gate: {gate}"
            )));
        }
        let on = match value.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            _ => {
                return Err(Rejected::Usage(format!(
                    "invalid value {text:?} for flag -feature-gates: invalid value of {gate}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"
                )));
            }
        };
        said.insert(gate, on);
    }
    let of_stage = |stage: &str| said.get(if stage == "ALPHA" { "AllAlpha" } else { "AllBeta" }).copied();
    let on = |known: &Gate| said.get(known.name).copied().or(of_stage(known.stage)).unwrap_or(known.on);
    Ok(GATES.iter().map(|known| Gate { on: on(known), ..*known }).collect())
}

fn check_times(heartbeat: u64, election: u64) -> Result<(), Rejected> {
    if heartbeat == 0 {
        return invalid("--heartbeat-interval must be >0 (set to 0ms)");
    }
    if election == 0 {
        return invalid("--election-timeout must be >0 (set to 0ms)");
    }
    if heartbeat.checked_mul(5).is_none_or(|least| least > election) {
        return invalid(format!(
            "--election-timeout[{election}ms] should be at least as 5 times as --heartbeat-interval[{heartbeat}ms]"
        ));
    }
    if election > 50_000 {
        return invalid(format!("--election-timeout[{election}ms] is too long, and should be set less than 50000ms"));
    }
    Ok(())
}

/// A flag whose old name may be given in its place.
fn renamed(given: &Given, name: &str, old: &str) -> Duration {
    if !given.is_set(name) && given.is_set(old) { given.duration(old) } else { given.duration(name) }
}

/// Zero means etcd's default.
fn or(value: Duration, default: Duration) -> Duration {
    if value.is_zero() { default } else { value }
}

/// What etcd takes instead of a cost that bcrypt does not have.
const BCRYPT_COST: u32 = 10;

fn bcrypt_cost(given: &Given) -> Option<u32> {
    u32::try_from(given.uint("bcrypt-cost")).ok().filter(|cost| (4..=31).contains(cost))
}

fn tokens(given: &Given) -> Result<Arc<Tokens>, Rejected> {
    match Tokens::new(given.text("auth-token")) {
        Ok(tokens) => Ok(Arc::new(tokens)),
        Err(why) => invalid(format!("--auth-token: {why}")),
    }
}

fn max_learners(given: &Given) -> usize {
    let name = if given.is_set("max-learners") { "max-learners" } else { "experimental-max-learners" };
    usize::try_from(given.int(name)).unwrap_or(0)
}

fn settings(given: &Given, seed: u64) -> Result<Settings, Rejected> {
    let list = |name: &str| given.text(name).split(',').map(|part| part.trim().to_string()).collect();
    let (heartbeat, election) = (given.uint("heartbeat-interval"), given.uint("election-timeout"));
    check_times(heartbeat, election)?;
    let progress = renamed(given, "watch-progress-notify-interval", "experimental-watch-progress-notify-interval");
    if !progress.is_zero() && progress < Duration::from_millis(100) {
        return invalid("--watch-progress-notify-interval must be at least 100ms");
    }
    let request = given.uint("max-request-bytes");
    let memory = match parse_bytes(given.text("memory-budget")) {
        Some(0) => memory_of_this_process(),
        Some(bytes) => bytes,
        None => {
            return invalid(format!(
                "--memory-budget={}: not a number of bytes, such as 512MiB or 2G",
                given.text("memory-budget")
            ));
        }
    };
    Ok(Settings {
        name: given.text("name").to_string(),
        max_request_bytes: given.uint("max-request-bytes"),
        max_txn_ops: usize::try_from(given.uint("max-txn-ops")).unwrap_or(usize::MAX),
        election: Duration::from_millis(election),
        heartbeat: Duration::from_millis(heartbeat),
        quota_bytes: given.int("quota-backend-bytes"),
        scrub_interval: given.duration("scrub-interval"),
        max_concurrent_streams: most_streams(given.uint("max-concurrent-streams")),
        keepalive_interval: given.duration("grpc-keepalive-interval"),
        keepalive_timeout: given.duration("grpc-keepalive-timeout"),
        watch_progress_interval: or(progress, Duration::from_secs(600)),
        gates: gates(given.text("feature-gates"))?,
        extensive_metrics: given.text("metrics") == "extensive",
        cors: list("cors"),
        host_whitelist: list("host-whitelist"),
        warn_unary_after: renamed(
            given,
            "warning-unary-request-duration",
            "experimental-warning-unary-request-duration",
        ),
        warn_apply_after: renamed(given, "warning-apply-duration", "experimental-warning-apply-duration"),
        client_cert_auth: given.bool("client-cert-auth"),
        gateway: given.bool("enable-grpc-gateway"),
        strict_reconfig: given.bool("strict-reconfig-check"),
        max_learners: max_learners(given),
        tokens: tokens(given)?,
        token_seconds: match given.uint("auth-token-ttl") {
            0 => 300,
            seconds => seconds,
        },
        bcrypt_cost: bcrypt_cost(given).unwrap_or(BCRYPT_COST),
        budgets: Limits::new(memory, request),
        seed,
        ..Settings::default()
    })
}

/// Reads the options out of what was given. `seed`: new for every start.
pub(crate) fn options(given: &Given, seed: u64) -> Result<Options, Rejected> {
    // A value that is no URL is a mistake of the command line, whatever else is wrong.
    for name in URLS {
        read_urls(given, name)?;
    }
    let mut ignored = Vec::new();
    for (flag, value) in given.changed() {
        match flag.effect {
            Effect::Works => {}
            Effect::Ignored => ignored.push((flag.name.into(), value.into(), flag.about.into())),
            Effect::Refused(why) => return invalid(format!("--{}={value}: {why}", flag.name)),
        }
    }
    if bcrypt_cost(given).is_none() {
        let instead = format!("there is no such cost; {BCRYPT_COST} is used");
        ignored.push(("bcrypt-cost".into(), given.text("bcrypt-cost").into(), instead));
    }
    let (client_tls, peer_tls) = tls::wishes(given)?;
    let name = given.text("name").to_string();
    let advertise_peer = urls(given, "initial-advertise-peer-urls")?;
    let discovery = discovery(given)?;
    let cluster = match given.is_set("initial-cluster") {
        _ if discovery.is_some() => Vec::new(),
        true => initial_cluster(given.text("initial-cluster"))
            .map_err(|why| Rejected::Invalid(format!("error setting up initial cluster: {why}")))?,
        false => advertise_peer.iter().map(|url| (name.clone(), url.clone())).collect(),
    };
    // A file may leave it out.
    if given.file.is_none() && given.is_set("listen-client-urls") && !given.is_set("advertise-client-urls") {
        return invalid("--advertise-client-urls is required when --listen-client-urls is set explicitly");
    }
    let (log_outputs, log_rotation) = log_outputs(given)?;
    let data_dir = match given.text("data-dir") {
        "" => format!("{name}.etcd"),
        dir => dir.to_string(),
    };
    Ok(Options {
        data_dir: PathBuf::from(data_dir),
        listen_peer: bind_urls(given, "listen-peer-urls")?,
        listen_client: bind_urls(given, "listen-client-urls")?,
        listen_client_http: bind_urls(given, "listen-client-http-urls")?,
        listen_metrics: bind_urls(given, "listen-metrics-urls")?,
        advertise_client: urls(given, "advertise-client-urls")?,
        advertise_peer,
        initial_cluster: cluster,
        token: match &discovery {
            Some(Discovery::Service(service)) => service.token.clone(),
            _ => given.text("initial-cluster-token").to_string(),
        },
        discovery,
        existing: given.text("initial-cluster-state") == "existing",
        alone: given.bool("force-new-cluster"),
        auto_compaction: auto_compaction(given)?,
        defrag_threshold_mib: given
            .uint("bootstrap-defrag-threshold-megabytes")
            .max(given.uint("experimental-bootstrap-defrag-threshold-megabytes")),
        log_level: Level::parse(given.text("log-level")).unwrap_or(Level::Info),
        log_format: if given.text("log-format") == "console" { Format::Console } else { Format::Json },
        log_outputs,
        log_rotation,
        settings: settings(given, seed)?,
        client_tls,
        peer_tls,
        ignored,
        name,
    })
}

fn log_outputs(given: &Given) -> Result<(Vec<String>, Option<log::Rules>), Rejected> {
    let outputs: Vec<String> = given.text("log-outputs").split(',').map(|part| part.trim().to_string()).collect();
    if outputs.len() > 1 && outputs.iter().any(|output| output == "default") {
        return invalid("multi logoutput for \"default\" is not supported yet");
    }
    if !given.bool("enable-log-rotation") {
        return Ok((outputs, None));
    }
    match log::Rules::new(given.text("log-rotation-config-json"), &outputs) {
        Ok(rules) => Ok((outputs, Some(rules))),
        Err(why) => invalid(why.to_string()),
    }
}

/// As grpc-go has it: zero is no bound.
fn most_streams(given: u64) -> u32 {
    match given {
        0 => u32::MAX,
        most => u32::try_from(most).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::parse;

    fn read(line: &str) -> Result<Options, Rejected> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        options(&parse(&args, &[]).expect("parses"), 7)
    }

    #[test]
    fn the_name_fills_the_defaults() {
        let options = read("--name m1").expect("good");
        assert_eq!(options.data_dir, PathBuf::from("m1.etcd"));
        assert_eq!(options.initial_cluster[0].0, "m1");
        assert_eq!(options.initial_cluster[0].1.text, "http://localhost:2380");
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let table = [
            (
                "--listen-client-urls http://127.0.0.1:1",
                "--advertise-client-urls is required when --listen-client-urls is set explicitly",
            ),
            (
                "--election-timeout=100",
                "--election-timeout[100ms] should be at least as 5 times as --heartbeat-interval[100ms]",
            ),
            (
                "--election-timeout=60000",
                "--election-timeout[60000ms] is too long, and should be set less than 50000ms",
            ),
            ("--listen-peer-urls http://example.com:1", "expected IP in URL for binding (http://example.com:1)"),
            ("--cert-file x", "KeyFile and CertFile must both be present[key: , cert: x]"),
            ("--peer-key-file x", "KeyFile and CertFile must both be present[key: x, cert: ]"),
            (
                "--client-key-file x",
                "ClientKeyFile and ClientCertFile must both be present or both absent: key: x, cert: ]",
            ),
            ("--cipher-suites TLS_NOPE", "unexpected TLS cipher suite \"TLS_NOPE\""),
            ("--tls-min-version TLS1.1", "unexpected TLS version \"TLS1.1\" (must be one of: TLS1.2, TLS1.3)"),
            (
                "--tls-min-version TLS1.3 --tls-max-version TLS1.2",
                "min version (TLS1.3) is greater than max version (TLS1.2)",
            ),
            (
                "--tls-min-version TLS1.3 --cipher-suites TLS_AES_128_GCM_SHA256",
                "cipher suites cannot be configured when only TLS1.3 is enabled",
            ),
            (
                "--peer-cert-allowed-cn a --peer-cert-allowed-hostname b,c",
                "AllowedCNs and AllowedHostnames are mutually exclusive (cns=[\"a\"], hostnames=[\"b\" \"c\"])",
            ),
            (
                "--peer-auto-tls --peer-client-cert-auth",
                "--peer-auto-tls cannot be combined with --peer-client-cert-auth or --peer-trusted-ca-file: no CA \
                 vouches for the certificates that members make for themselves",
            ),
            (
                "--enable-log-rotation",
                "--log-outputs requires a single file path when --log-rotate-config-json is defined",
            ),
            (
                "--enable-log-rotation --log-outputs /a,/b",
                "--log-outputs requires a single file path when --log-rotate-config-json is defined",
            ),
            ("--log-outputs default,/a", "multi logoutput for \"default\" is not supported yet"),
            ("--auth-token jwt,a=b", "--auth-token: auth: invalid auth options (invalid auth signature method)"),
            ("--discovery-token x", "both --discovery-token and --discovery-endpoints must be set"),
            ("--discovery-endpoints a:1", "both --discovery-token and --discovery-endpoints must be set"),
            (
                "--discovery-srv example.com --initial-cluster default=http://localhost:2380",
                "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \
                 \"discovery-endpoints\" or \"discovery-srv\"",
            ),
            ("--listen-peer-urls unixs://", "expected a path in URL for binding, without any of %?#@ (unixs://)"),
        ];
        for (line, text) in table {
            assert_eq!(read(line).expect_err(line), Rejected::Invalid(text.into()), "{line}");
        }
        let text =
            "invalid value \"x\" for flag -listen-client-urls: URL scheme must be http, https, unix, or unixs: x";
        assert_eq!(read("--listen-client-urls x").expect_err("no URL"), Rejected::Usage(text.into()));
        assert!(read("--cert-file= --client-cert-auth --auth-token simple").is_ok());
    }

    #[test]
    fn kubeadms_flags_are_taken() {
        let options = read(
            "--feature-gates=InitialCorruptCheck=true --watch-progress-notify-interval=5s --snapshot-count=10000 \
             --experimental-initial-corrupt-check=true",
        )
        .expect("good");
        assert_eq!(options.settings.watch_progress_interval, Duration::from_secs(5));
        assert_eq!(options.ignored.len(), 1);
        assert!(matches!(read("--feature-gates=Nope=true"), Err(Rejected::Usage(_))));
    }

    #[test]
    fn the_memory_budget_is_a_size() {
        assert_eq!(read("--memory-budget 512MiB").expect("good").settings.budgets.memory, 512 << 20);
        assert!(read("").expect("good").settings.budgets.memory >= 128 << 20);
        let refused = Rejected::Invalid("--memory-budget=much: not a number of bytes, such as 512MiB or 2G".into());
        assert_eq!(read("--memory-budget=much").expect_err("no size"), refused);
    }

    #[test]
    fn gates_are_as_they_were_named() {
        let on = |line: &str| {
            let gates = read(line).expect("good").settings.gates;
            gates.iter().filter(|gate| gate.on).map(|gate| gate.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(on(""), "TxnModeWriteWithSharedBuffer FastLeaseKeepAlive");
        assert_eq!(on("--feature-gates=AllBeta=false,FastLeaseKeepAlive=true"), "FastLeaseKeepAlive");
        assert_eq!(on("--feature-gates=AllBeta=false,LeaseCheckpoint=true"), "LeaseCheckpoint");
    }

    #[test]
    fn retention_is_hours_a_duration_or_revisions() {
        let hours = read("--auto-compaction-retention=2").expect("good").auto_compaction;
        assert_eq!(hours, Some(AutoCompaction::Periodic(Duration::from_secs(7200))));
        let minutes = read("--auto-compaction-retention=5m").expect("good").auto_compaction;
        assert_eq!(minutes, Some(AutoCompaction::Periodic(Duration::from_secs(300))));
        let revisions = read("--auto-compaction-mode=revision --auto-compaction-retention=1000").expect("good");
        assert_eq!(revisions.auto_compaction, Some(AutoCompaction::Revision(1000)));
        assert_eq!(read("--auto-compaction-retention=0").expect("good").auto_compaction, None);
    }
}
