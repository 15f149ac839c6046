//! What a front is told to do: the model that both forms of the file are read into.
//!
//! The words are HAProxy's. `docs/front.md` says what each of them means here.

use super::span::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Config {
    #[serde(default, skip_serializing_if = "Global::is_plain")]
    pub(crate) global: Global,
    /// Where clients come in.
    #[serde(default, rename = "frontend", skip_serializing_if = "Vec::is_empty")]
    pub(crate) frontends: Vec<Frontend>,
    /// Where they are sent on to.
    #[serde(default, rename = "backend", skip_serializing_if = "Vec::is_empty")]
    pub(crate) backends: Vec<Backend>,
}

/// What holds for the whole program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Global {
    /// Connections of clients at once, of all frontends. Absent: as many as the limit of
    /// descriptors carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) maxconn: Option<u32>,
    /// Sockets for `show stat`, `set server …` and their like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stats_socket: Vec<StatsSocket>,
}

impl Global {
    fn is_plain(&self) -> bool {
        *self == Global::default()
    }
}

/// A socket for commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct StatsSocket {
    /// A path; or `host:port`.
    pub(crate) address: String,
    /// What may be done over it.
    #[serde(default)]
    pub(crate) level: Level,
    /// Permissions of the path, octal. Absent: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
}

/// What may be done over a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// Look at what is not sensitive.
    User,
    /// Look.
    #[default]
    Operator,
    /// Change.
    Admin,
}

/// What passes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Bytes, TLS untouched.
    #[default]
    Tcp,
    /// The page with statistics, and nothing else.
    Http,
}

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Frontend {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) mode: Mode,
    pub(crate) bind: Vec<Bind>,
    /// Connections at once; more wait until one ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) maxconn: Option<u32>,
    /// New connections in a second; more wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_limit_sessions: Option<u32>,
    /// New connections in a second from one address; more are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_limit_source: Option<u32>,
    /// How long a client may say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_client: Option<Span>,
    /// How long a client of TLS may take to say which name it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inspect_delay: Option<Span>,
    /// By the name that a client of TLS asks for; the first that fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) use_backend: Vec<Route>,
    /// Where all others go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_backend: Option<String>,
    /// A page with statistics, where the mode is http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stats: Option<Stats>,
    /// Not opened until `enable frontend`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) disabled: bool,
}

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Bind {
    /// `host:port`; `*:port` or `:port` for all addresses.
    pub(crate) address: String,
    /// Each connection begins with the PROXY protocol, version 1 or 2.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) accept_proxy: bool,
}

/// A backend for names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Route {
    /// Names; `*.example.com` for all one step below.
    pub(crate) sni: Vec<String>,
    pub(crate) backend: String,
}

/// A page with statistics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Stats {
    #[serde(default = "root")]
    pub(crate) uri: String,
    /// The page loads itself again so often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh: Option<Span>,
    /// `user:password`, any of them. None: everybody may look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) auth: Vec<String>,
    /// Servers may be drained, stopped and enabled there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) admin: bool,
    /// The version is not shown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) hide_version: bool,
    /// Where the metrics are.
    #[serde(default = "metrics")]
    pub(crate) metrics: String,
}

fn root() -> String {
    "/".into()
}

fn metrics() -> String {
    "/metrics".into()
}

/// Where clients are sent on to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Backend {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) balance: Balance,
    /// With `source`: few clients move when a server comes or goes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) consistent: bool,
    /// How often a connection is tried again after the first time.
    #[serde(default = "three")]
    pub(crate) retries: u32,
    /// At which try another server is chosen: 1 at each, 2 at each second, -1 at the last one, 0
    /// never. With `roundrobin` and `random` at each, unless it is 0.
    #[serde(default = "at_each")]
    pub(crate) redispatch: i32,
    /// All backup servers share the work, not the first alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) allbackups: bool,
    #[serde(default)]
    pub(crate) timeout: Timeouts,
    /// How servers are asked whether they are well.
    #[serde(default)]
    pub(crate) check: Check,
    /// Sent on to in turn.
    #[serde(rename = "server", default)]
    pub(crate) servers: Vec<Server>,
}

fn three() -> u32 {
    3
}

fn at_each() -> i32 {
    1
}

/// How a server is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Balance {
    /// In turn, by weight.
    #[default]
    Roundrobin,
    /// The one with the fewest connections, by weight.
    Leastconn,
    /// By the address of the client.
    Source,
    /// The first that has room.
    First,
    /// The better of two that are drawn.
    Random,
    /// The member that leads, as the checks learn it; while nobody is known to, in turn.
    Leader,
    /// The one that answers checks the soonest.
    Nearest,
}

impl Balance {
    /// As statistics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Balance::Roundrobin => "roundrobin",
            Balance::Leastconn => "leastconn",
            Balance::Source => "source",
            Balance::First => "first",
            Balance::Random => "random",
            Balance::Leader => "leader",
            Balance::Nearest => "nearest",
        }
    }
}

/// How long a backend waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Timeouts {
    /// Until a server takes a connection.
    pub(crate) connect: Span,
    /// How long a server may say nothing. Absent: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<Span>,
    /// For a place at a server. Absent: as `connect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<Span>,
    /// For the answer to a check, once connected. Absent: as the check's interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Span>,
    /// In place of those of both sides once a connection stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tunnel: Option<Span>,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { connect: Span::seconds(5), server: None, queue: None, check: None, tunnel: None }
    }
}

/// What a check asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "kind")]
pub(crate) enum Check {
    /// That the server takes a connection.
    #[default]
    Tcp,
    /// That the server begins to speak TLS.
    Tls,
    /// A path over HTTP.
    Http(HttpCheck),
}

/// A path over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct HttpCheck {
    pub(crate) method: String,
    pub(crate) uri: String,
    /// The header `host`. Absent: the server's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// What is right: codes and ranges of them, as `200` or `200-399`.
    pub(crate) expect: String,
}

impl Default for HttpCheck {
    fn default() -> HttpCheck {
        HttpCheck { method: "OPTIONS".into(), uri: "/".into(), host: None, expect: "200-399".into() }
    }
}

impl HttpCheck {
    /// The codes that are right, as ranges. None: the text says none.
    pub(crate) fn expected(&self) -> Option<Vec<(u16, u16)>> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (100 <= first && first <= last && last <= 599).then_some((first, last))
        };
        self.expect.split(',').map(range).collect()
    }
}

/// The PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SendProxy {
    #[default]
    No,
    V1,
    V2,
}

/// What a failed connection of a client does to its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnError {
    /// Checks come faster.
    Fastinter,
    /// It counts as a failed check.
    #[default]
    FailCheck,
    /// The next failed check ends it.
    SuddenDeath,
    /// It is down.
    MarkDown,
}

/// One that connections are sent on to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Server {
    pub(crate) name: String,
    /// `host:port`.
    pub(crate) address: String,
    /// 0 to 256; 0 takes nothing new.
    #[serde(default = "one")]
    pub(crate) weight: u32,
    /// Used when no other is up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) backup: bool,
    /// Asked whether it is well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) check: bool,
    /// Between two checks.
    #[serde(default = "two_seconds")]
    pub(crate) inter: Span,
    /// The same while it changes. Absent: as `inter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fastinter: Option<Span>,
    /// The same while it is down. Absent: as `inter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) downinter: Option<Span>,
    /// Good checks until it is up.
    #[serde(default = "two")]
    pub(crate) rise: u32,
    /// Bad checks until it is down.
    #[serde(default = "three")]
    pub(crate) fall: u32,
    /// The checks go there. Absent: to `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check_address: Option<String>,
    /// The checks speak TLS, whatever clients speak.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) check_ssl: bool,
    /// The name that checks ask for in TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check_sni: Option<String>,
    /// Whose certificates checks trust: authorities, PEM. Absent: everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<String>,
    /// Connections at once; more wait. Absent: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) maxconn: Option<u32>,
    /// How many may wait for it alone. Absent: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) maxqueue: Option<u32>,
    /// After it came up it gets more and more, over this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slowstart: Option<Span>,
    /// In maintenance until it is enabled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) disabled: bool,
    /// Connections begin with the PROXY protocol.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) send_proxy: SendProxy,
    /// When it is found down its connections end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) shutdown_sessions: bool,
    /// Connections of clients count as checks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) observe: bool,
    /// So many failed connections one after another, before `on-error` is done.
    #[serde(default = "ten")]
    pub(crate) error_limit: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) on_error: OnError,
}

impl Server {
    /// With HAProxy's defaults.
    pub(crate) fn new(name: &str, address: &str) -> Server {
        Server {
            name: name.into(),
            address: address.into(),
            weight: one(),
            backup: false,
            check: false,
            inter: two_seconds(),
            fastinter: None,
            downinter: None,
            rise: two(),
            fall: three(),
            check_address: None,
            check_ssl: false,
            check_sni: None,
            ca_file: None,
            maxconn: None,
            maxqueue: None,
            slowstart: None,
            disabled: false,
            send_proxy: SendProxy::No,
            shutdown_sessions: false,
            observe: false,
            error_limit: ten(),
            on_error: OnError::FailCheck,
        }
    }
}

fn one() -> u32 {
    1
}

fn two() -> u32 {
    2
}

fn ten() -> u32 {
    10
}

fn two_seconds() -> Span {
    Span::seconds(2)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
