//! The ports of a member: which sockets it listens on, what is served there, and how they are
//! encrypted.

use crate::bootstrap::{Failed, failed};
use crate::log::{self, json};
use crate::options::Options;
use crate::peers::PeerPort;
use crate::sockets::{self, Listener, address};
use crate::tls::{Dialler, Handshakes, Made, Own, Port, Security, Wish, without_certificate};
use crate::transport::Door;
use disk::urls::Url;
use std::sync::Arc;

/// A socket for clients, and what is served on it.
pub(crate) struct Listening {
    /// `host:port`, or the path of a file.
    pub(crate) address: String,
    /// The first URL of this address, as written.
    pub(crate) url: String,
    /// Bound, and not yet served.
    pub(crate) listener: Listener,
    /// What is served.
    pub(crate) door: Door,
    /// How it is encrypted.
    pub(crate) security: Security,
}

/// All sockets, bound and not yet served.
pub(crate) struct Bound {
    /// For the other members.
    pub(crate) peer: Vec<PeerPort>,
    /// For clients: gRPC, JSON and pages.
    pub(crate) client: Vec<Listening>,
    /// For metrics and health.
    pub(crate) metrics: Vec<Listening>,
    /// How https peers are dialled.
    pub(crate) dialler: Option<Dialler>,
    /// Certificates that were made, to be kept when the directory is this member's.
    pub(crate) made: Vec<Arc<Made>>,
}

const REFUSED: &str = "discovery failed";

impl Bound {
    /// Binds all sockets, and reads all certificates.
    ///
    /// # Errors
    /// In etcd's words, where it has some.
    pub(crate) fn new(options: &Options) -> Result<Bound, Failed> {
        let mut made = Vec::new();
        let peers = finished(&options.peer_tls, "peer", options, &[&options.listen_peer], &mut made)?;
        let (peer, dialler) = peer_ports(options, &peers)?;
        let urls = [&options.listen_client[..], &options.listen_client_http];
        let clients = finished(&options.client_tls, "client", options, &urls, &mut made)?;
        let (client, metrics) = client_ports(options, &clients)?;
        Ok(Bound { peer, client, metrics, dialler, made })
    }

    /// Writes the certificates that were made into the data directory.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn keep_made(&self) -> Result<(), Failed> {
        let keep = |made: &Arc<Made>| {
            let error = |error: std::io::Error| format!("{}: {error}", made.cert_file().display());
            made.keep().map_err(error).map_err(failed("cannot keep a generated certificate"))
        };
        self.made.iter().try_for_each(keep)
    }
}

/// A wish with the certificate that this member makes for itself, if it was told to. `side` is the
/// folder's name, and etcd's word for the side.
fn finished(
    wish: &Wish,
    side: &str,
    options: &Options,
    urls: &[&[Url]],
    made: &mut Vec<Arc<Made>>,
) -> Result<Wish, Failed> {
    for name in &wish.suites.weak {
        log::warn("TLS cipher suite is not offered", &[("cipher-suite", json!(name))]);
    }
    if wish.auto && wish.has_own() {
        log::warn(&format!("ignoring {side} auto TLS since certs given"), &[]);
    }
    if !wish.auto || wish.has_own() {
        return Ok(wish.clone());
    }
    let folder = options.data_dir.join("fixtures").join(side);
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let refused =
        if side == "peer" { "failed to get peer self-signed certs" } else { "failed to get client self-signed certs" };
    let hosts: Vec<&Url> = urls.iter().flat_map(|urls| urls.iter()).collect();
    let own = Made::find_or_make(&folder, &hosts, wish.validity).map(Arc::new).map_err(failed(refused))?;
    made.push(own.clone());
    Ok(Wish { own: Own::Made(own), ..wish.clone() })
}

fn bind(url: &Url) -> Result<Listener, Failed> {
    sockets::bind(url).map_err(|error| failed("listener failed")(error.to_string()))
}

fn started(name: &str, port: Port) -> Result<Handshakes, Failed> {
    Handshakes::start(name, port).map_err(|error| failed("cannot start a thread")(error.to_string()))
}

fn announce(side: &str, wish: &Wish) {
    if wish.has_own() {
        let fields = [("tls-info", json!(wish.to_string())), ("cipher-suites", json!(wish.suites.named))];
        log::info(&format!("starting with {side} TLS"), &fields);
    }
}

fn peer_ports(options: &Options, wish: &Wish) -> Result<(Vec<PeerPort>, Option<Dialler>), Failed> {
    announce("peer", wish);
    let all = [&options.listen_peer[..], &options.advertise_peer].concat();
    let encrypts = all.iter().chain(options.initial_cluster.iter().map(|(_, url)| url)).any(Url::is_tls);
    if let Some(url) = without_certificate(wish, &options.listen_peer) {
        let text = format!("cannot listen on TLS for {}: KeyFile and CertFile are not presented", address(url));
        return Err(failed(REFUSED)(text));
    }
    for url in options.listen_peer.iter().filter(|url| !url.is_tls()) {
        let fields = [("peer-url", json!(url.text))];
        if wish.has_own() {
            log::warn("scheme is HTTP while key and cert files are present; ignoring key and cert files", &fields);
        }
        if wish.client_cert_auth {
            let text =
                "scheme is HTTP while --peer-client-cert-auth is enabled; ignoring client cert auth for this URL";
            log::warn(text, &fields);
        }
    }
    let mut handshakes = None;
    if options.listen_peer.iter().any(Url::is_tls) {
        handshakes = Some(started("tls-peers", Port::for_peers(wish).map_err(failed(REFUSED))?)?);
    }
    let dialler = match encrypts || wish.has_own() || wish.ca.is_some() {
        true => Some(Dialler::new(wish).map_err(failed(REFUSED))?),
        false => None,
    };
    let port =
        |url: &Url| Ok(PeerPort { listener: bind(url)?, handshakes: handshakes.clone().filter(|_| url.is_tls()) });
    Ok((options.listen_peer.iter().map(port).collect::<Result<_, _>>()?, dialler))
}

/// URLs with one address share a socket.
struct Shared<'a> {
    url: &'a Url,
    door: Door,
    plain: bool,
    encrypted: bool,
}

fn shared<'a>(urls: &'a [Url], door: Door, all: &mut Vec<Shared<'a>>) -> Result<(), Failed> {
    for url in urls {
        let known =
            all.iter_mut().find(|shared| address(shared.url) == address(url) && (url.is_unix() || url.port != 0));
        match known {
            Some(shared) if shared.door == door => {
                shared.encrypted |= url.is_tls();
                shared.plain |= !url.is_tls();
            }
            Some(_) => {
                let text = "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url";
                return Err(failed(REFUSED)(format!("{text} {url}")));
            }
            None => all.push(Shared { url, door, plain: !url.is_tls(), encrypted: url.is_tls() }),
        }
    }
    Ok(())
}

fn client_ports(options: &Options, wish: &Wish) -> Result<(Vec<Listening>, Vec<Listening>), Failed> {
    announce("client", wish);
    let refused = failed(REFUSED);
    let all = [&options.listen_client[..], &options.listen_client_http].concat();
    for url in all.iter().filter(|url| !url.is_tls()) {
        let fields = [("client-url", json!(url.text))];
        if wish.has_own() {
            let text = "scheme is http or unix while key and cert files are present; ignoring key and cert files";
            log::warn(text, &fields);
        }
        if wish.client_cert_auth {
            let text =
                "scheme is http or unix while --client-cert-auth is enabled; ignoring client cert auth for this URL";
            log::warn(text, &fields);
        }
    }
    if let Some(url) = without_certificate(wish, &all) {
        let text = "TLS key/cert (--cert-file, --key-file) must be provided for client url";
        return Err(refused(format!("{text} {url} with HTTPS scheme")));
    }
    if without_certificate(wish, &options.listen_metrics).is_some() {
        let text = "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url";
        return Err(refused(text.into()));
    }
    let encrypts = all.iter().chain(&options.listen_metrics).any(Url::is_tls);
    let handshakes = match encrypts {
        true => Some(started("tls-clients", Port::for_clients(wish).map_err(failed("listener failed"))?)?),
        false => None,
    };
    let listening = |Shared { url, door, plain, encrypted }: Shared| {
        let security = match (&handshakes, encrypted, plain) {
            (Some(handshakes), true, true) => Security::Both(handshakes.clone()),
            (Some(handshakes), true, false) => Security::Tls(handshakes.clone()),
            _ => Security::Plain,
        };
        Ok(Listening { address: address(url), url: url.text.clone(), listener: bind(url)?, door, security })
    };
    // With ports of its own for HTTP, the client URLs serve gRPC alone.
    let door = if options.listen_client_http.is_empty() { Door::All } else { Door::Grpc };
    let (mut clients, mut metrics) = (Vec::new(), Vec::new());
    shared(&options.listen_client_http, Door::Http, &mut clients)?;
    shared(&options.listen_client, door, &mut clients)?;
    shared(&options.listen_metrics, Door::Metrics, &mut metrics)?;
    let clients = clients.into_iter().map(listening).collect::<Result<_, _>>()?;
    Ok((clients, metrics.into_iter().map(listening).collect::<Result<_, _>>()?))
}
