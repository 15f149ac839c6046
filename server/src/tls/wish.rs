//! What the flags ask for.

use super::Made;
use super::ciphers::{self, Suites};
use crate::flags::{Given, Rejected};
use disk::urls::Url;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The certificate that this member shows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Own {
    /// None.
    #[default]
    None,
    /// Certificate and key.
    Files(PathBuf, PathBuf),
    /// Made by this member (`--auto-tls`).
    Made(Arc<Made>),
}

/// What the flags of one side, clients or peers, ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// What callers are shown.
    pub(crate) own: Own,
    /// What is shown where this member dials; None: the same.
    pub(crate) own_as_client: Option<(PathBuf, PathBuf)>,
    /// Who may vouch for callers and, among peers, for those that are dialled.
    pub(crate) ca: Option<PathBuf>,
    /// Every caller must show a certificate, whoever may vouch for it.
    pub(crate) client_cert_auth: bool,
    /// A list of revoked certificates.
    pub(crate) crl: Option<PathBuf>,
    /// A certificate must have one of these CNs.
    pub(crate) allowed_names: Vec<String>,
    /// A certificate must be valid for one of these hosts.
    pub(crate) allowed_hosts: Vec<String>,
    /// A caller's certificate need not fit where it comes from.
    pub(crate) skip_origin: bool,
    /// Make a certificate when none was given.
    pub(crate) auto: bool,
    /// Years.
    pub(crate) validity: u64,
    /// Those that are spoken, the newest first.
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    /// Those that are offered.
    pub(crate) suites: Suites,
}

impl Wish {
    /// Whether every caller must show a certificate.
    pub(crate) fn verifies(&self) -> bool {
        self.client_cert_auth || self.ca.is_some()
    }

    /// Whether there is a certificate to show.
    pub(crate) fn has_own(&self) -> bool {
        !matches!(self.own, Own::None)
    }
}

/// As etcd writes it into its log.
impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: Option<&PathBuf>| path.map_or_else(String::new, |path| path.display().to_string());
        let (cert, key) = match &self.own {
            Own::Files(cert, key) => (path(Some(cert)), path(Some(key))),
            Own::Made(made) => (path(Some(&made.cert_file())), path(Some(&made.key_file()))),
            Own::None => (String::new(), String::new()),
        };
        let (as_client, its_key) = self.own_as_client.as_ref().map_or((None, None), |(c, k)| (Some(c), Some(k)));
        write!(
            f,
            "cert = {cert}, key = {key}, client-cert={}, client-key={}, trusted-ca = {}, client-cert-auth = {}, \
             crl-file = {}",
            path(as_client),
            path(its_key),
            path(self.ca.as_ref()),
            self.client_cert_auth,
            path(self.crl.as_ref())
        )
    }
}

fn invalid<T>(text: impl Into<String>) -> Result<T, Rejected> {
    Err(Rejected::Invalid(text.into()))
}

fn file(given: &Given, name: &str) -> Option<PathBuf> {
    Some(given.text(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// As Go's flag of strings: nothing is trimmed.
fn list(given: &Given, name: &str) -> Vec<String> {
    let text = given.text(name);
    if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
}

/// The wishes of both sides: clients, peers.
///
/// # Errors
/// Flags that do not fit together, in etcd's words where it has some.
pub(crate) fn wishes(given: &Given) -> Result<(Wish, Wish), Rejected> {
    let names = list(given, "cipher-suites");
    let versions = versions(given, !names.is_empty())?;
    let suites = ciphers::suites(&names).map_err(Rejected::Invalid)?;
    let both = Wish { versions, suites, validity: given.uint("self-signed-cert-validity"), ..Wish::default() };
    let clients = Wish {
        allowed_names: list(given, "client-cert-allowed-cn"),
        allowed_hosts: list(given, "client-cert-allowed-hostname"),
        auto: given.bool("auto-tls"),
        ..side(given, &both, "", "client-crl-file")?
    };
    let old = "experimental-peer-skip-client-san-verification";
    let peers = Wish {
        allowed_names: list(given, "peer-cert-allowed-cn"),
        allowed_hosts: list(given, "peer-cert-allowed-hostname"),
        skip_origin: given.bool("peer-skip-client-san-verification") || given.bool(old),
        auto: given.bool("peer-auto-tls"),
        ..side(given, &both, "peer-", "peer-crl-file")?
    };
    if peers.auto && !peers.has_own() && peers.verifies() {
        return invalid(
            "--peer-auto-tls cannot be combined with --peer-client-cert-auth or --peer-trusted-ca-file: \
             no CA vouches for the certificates that members make for themselves",
        );
    }
    for side in [&clients, &peers] {
        if !side.allowed_names.is_empty() && !side.allowed_hosts.is_empty() {
            return invalid(format!(
                "AllowedCNs and AllowedHostnames are mutually exclusive (cns={}, hostnames={})",
                quoted(&side.allowed_names),
                quoted(&side.allowed_hosts)
            ));
        }
    }
    Ok((clients, peers))
}

/// As Go's `%q` writes a list.
pub(crate) fn quoted(names: &[String]) -> String {
    format!("[{}]", names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" "))
}

fn side(given: &Given, both: &Wish, prefix: &str, crl: &str) -> Result<Wish, Rejected> {
    let of = |name: &str| file(given, &format!("{prefix}{name}"));
    let shown = |path: &Option<PathBuf>| path.as_ref().map_or_else(String::new, |path| path.display().to_string());
    let own = match (of("cert-file"), of("key-file")) {
        (None, None) => Own::None,
        (Some(cert), Some(key)) => Own::Files(cert, key),
        (cert, key) => {
            let (cert, key) = (shown(&cert), shown(&key));
            return invalid(format!("KeyFile and CertFile must both be present[key: {key}, cert: {cert}]"));
        }
    };
    let own_as_client = match (of("client-cert-file"), of("client-key-file")) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        (cert, key) => {
            return invalid(format!(
                "ClientKeyFile and ClientCertFile must both be present or both absent: key: {}, cert: {}]",
                shown(&key),
                shown(&cert)
            ));
        }
    };
    Ok(Wish {
        own,
        own_as_client,
        ca: of("trusted-ca-file"),
        client_cert_auth: given.bool(&format!("{prefix}client-cert-auth")),
        crl: file(given, crl),
        ..both.clone()
    })
}

fn versions(given: &Given, has_suites: bool) -> Result<Vec<&'static SupportedProtocolVersion>, Rejected> {
    let read = |name: &str| match given.text(name) {
        "" => Ok(None),
        "TLS1.2" => Ok(Some(2)),
        "TLS1.3" => Ok(Some(3)),
        other => invalid(format!("unexpected TLS version {other:?} (must be one of: TLS1.2, TLS1.3)")),
    };
    let (least, most) = (read("tls-min-version")?, read("tls-max-version")?);
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        return invalid(format!("min version (TLS1.{least}) is greater than max version (TLS1.{most})"));
    }
    if least == Some(3) && has_suites {
        return invalid("cipher suites cannot be configured when only TLS1.3 is enabled");
    }
    let within = |minor: i32| minor >= least.unwrap_or(2) && minor <= most.unwrap_or(3);
    Ok([(3, &TLS13), (2, &TLS12)].into_iter().filter(|(minor, _)| within(*minor)).map(|(_, version)| version).collect())
}

/// The first URL of these that needs a certificate of which there is none.
pub(crate) fn without_certificate<'a>(wish: &Wish, urls: &'a [Url]) -> Option<&'a Url> {
    urls.iter().find(|url| url.is_tls() && !wish.has_own() && !wish.auto)
}
