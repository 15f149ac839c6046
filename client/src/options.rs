//! What a client is told when it is made.

use std::{path::PathBuf, time::Duration};

/// A server closes connections that ask for a sign of life more often than
/// each five seconds; shorter wishes are raised to this.
const PING_FLOOR: Duration = Duration::from_secs(6);

/// Where the cluster is, how it is spoken to, and for how long.
#[derive(Clone)]
pub struct Options {
    /// `host:port`, or a URL with `http`, `https`, `unix` or `unixs`. Without a
    /// scheme the connection is encrypted exactly if [`Options::tls`] is given.
    pub endpoints: Vec<String>,
    /// Take any text for an endpoint, as etcd's own client does: path, query and
    /// user of a URL are passed over, and what is no address is an endpoint that
    /// is never reached. Without this such a text is refused, with a reason.
    pub any_endpoint: bool,
    /// For one connection to be made, with everything that belongs to it.
    pub dial_timeout: Duration,
    /// For a unary request, with everything that is done to get it answered.
    /// `None` waits for ever. Streams have no such limit after they are open.
    pub request_timeout: Option<Duration>,
    /// How often a connection with calls under way is asked for a sign of life.
    /// Less than six seconds counts as six: servers refuse more.
    pub keepalive_time: Duration,
    /// How long that sign may take before the connection counts as lost.
    pub keepalive_timeout: Duration,
    /// Bytes of the largest request that is sent.
    pub max_send_bytes: usize,
    /// Bytes of the largest response that is taken.
    pub max_recv_bytes: usize,
    /// Between one attempt and the next when no endpoint is of use.
    pub backoff: Duration,
    /// Which endpoint a request goes to while several are well.
    pub spread: Spread,
    /// Encryption; see [`Options::endpoints`] for when it is used.
    pub tls: Option<Tls>,
    /// Name and password. A token is got with them before the first request,
    /// and again whenever the server no longer takes the one there is.
    pub user: Option<Credentials>,
    /// A token made elsewhere, such as a JWT. It is sent as it is.
    pub token: Option<String>,
    /// Sent with every request. Names are lower-case.
    pub metadata: Vec<(String, String)>,
    /// Ask that watches, observations and keep-alives end when the member they
    /// are on has no leader, so that they move on to one that has.
    pub require_leader: bool,
}

impl Default for Options {
    /// One endpoint, `127.0.0.1:2379`, with nothing around it.
    fn default() -> Self {
        Options {
            endpoints: vec!["127.0.0.1:2379".to_owned()],
            any_endpoint: false,
            dial_timeout: Duration::from_secs(2),
            request_timeout: Some(Duration::from_secs(10)),
            keepalive_time: PING_FLOOR,
            keepalive_timeout: Duration::from_secs(3),
            max_send_bytes: usize::MAX,
            max_recv_bytes: usize::MAX,
            backoff: Duration::from_millis(50),
            spread: Spread::Stay,
            tls: None,
            user: None,
            token: None,
            metadata: Vec::new(),
            require_leader: true,
        }
    }
}

impl Options {
    /// The default options with other endpoints.
    pub fn of<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Options {
        Options { endpoints: endpoints.into_iter().map(Into::into).collect(), ..Options::default() }
    }

    pub(crate) fn ping_interval(&self) -> Duration {
        self.keepalive_time.max(PING_FLOOR)
    }
}

impl std::fmt::Debug for Options {
    /// Without the token and without metadata, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("endpoints", &self.endpoints)
            .field("dial_timeout", &self.dial_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("spread", &self.spread)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

/// Which endpoint a request goes to while several are well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All to one, until it fails: what a program reads of one member's own
    /// (serialisable reads) does not go back in time.
    #[default]
    Stay,
    /// Each to the next, as Go's client does it.
    RoundRobin,
}

/// A user's name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub name: String,
    /// The password, as it is typed.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Encryption of connections. Files are PEM; they are read when the client is
/// made, and certificate and key again for each new connection.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates of those who may vouch for a server. `None`: those that
    /// the system trusts.
    pub ca: Option<PathBuf>,
    /// The client's own certificate, with those that lead up to it.
    pub cert: Option<PathBuf>,
    /// The key of that certificate.
    pub key: Option<PathBuf>,
    /// Believe any certificate. Whoever sits on the way can read and change
    /// everything then.
    pub insecure_skip_verify: bool,
    /// The name that the server's certificate must have, instead of the
    /// endpoint's host.
    pub server_name: Option<String>,
}
