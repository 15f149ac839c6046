//! An initial cluster that the flags do not list: it is found by DNS (`--discovery-srv`), or the
//! founders register in another cluster (`--discovery-endpoints`).

mod service;
mod srv;

pub(crate) use service::Service;
pub(crate) use srv::Records;

use crate::bootstrap::{Failed, failed};
use crate::log::{self, json};
use crate::options::Options;
use disk::urls::BadUrl;
use std::path::PathBuf;

/// Where the initial cluster is found.
#[derive(Clone, Debug)]
pub(crate) enum Discovery {
    /// `--discovery-srv`.
    Records(Records),
    /// `--discovery-endpoints`.
    Service(Box<Service>),
}

/// Why no initial cluster was found. The texts are etcd's, and Go's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotFound {
    /// The name service has no answer; `on` names whom was asked.
    #[error("lookup {name}{on}: {why}")]
    Lookup { name: String, on: String, why: String },
    /// The system does not say whom to ask.
    #[error("the system's resolver configuration: {0}")]
    Resolver(String),
    /// `KVORUM_RESOLVER`.
    #[error("{variable}={given} is not address:port")]
    NoAddress { variable: &'static str, given: String },
    /// A record names this member, and not as it is started.
    #[error("bootstrap at {found} from DNS for {service} has scheme mismatch with expected peer {ours}")]
    Scheme { found: String, service: String, ours: String },
    #[error("error querying DNS SRV records for _{service} {cause}")]
    Service { service: String, cause: Box<NotFound> },
    /// Neither the encrypted nor the plain service has records.
    #[error("{0}\n{1}")]
    Neither(Box<NotFound>, Box<NotFound>),
    #[error("cannot find local etcd member {0:?} in SRV records")]
    NotNamed(String),
    #[error("failed to join discovery cluster ({0})")]
    Unjoined(#[from] Unjoined),
    #[error("discovery URL should not be set when joining existing initial cluster")]
    Existing,
    #[error(transparent)]
    BadUrl(#[from] BadUrl),
}

/// Why the discovery service is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unjoined {
    #[error("discovery: size key not found")]
    NoSize,
    #[error("discovery: size key is bad")]
    BadSize,
    #[error("discovery: cluster is full")]
    Full,
    #[error("open {}: {}", file.display(), crate::sockets::reason(error))]
    Unread { file: PathBuf, error: std::io::Error },
    /// It cannot be spoken to at all: files that are no certificates, most likely.
    #[error("{0}")]
    Client(client::Error),
}

/// Asks who the initial members are, and puts them where `--initial-cluster` would have put them.
/// `must`: there is no member in the data directory, whose files would say it.
///
/// # Errors
/// `must`, and nobody knows.
pub(crate) async fn fill(options: &mut Options, must: bool) -> Result<(), Failed> {
    let records = match options.discovery.clone() {
        None => return Ok(()),
        Some(Discovery::Service(service)) => return join(&service, options, must).await,
        Some(Discovery::Records(records)) => records,
    };
    let text = |error: NotFound| format!("error setting up initial cluster: {error}");
    match records.find(options).await {
        Ok(found) => {
            (options.initial_cluster, options.advertise_peer) = (found.cluster, found.advertised);
            Ok(())
        }
        Err(error) if must => Err(failed("discovery failed")(text(error))),
        Err(error) => {
            log::warn("failed to resolve during SRV discovery", &[("error", json!(error.to_string()))]);
            Ok(())
        }
    }
}

/// The same of the discovery service. Where the member may be one already it is not asked: it waits
/// for ever, and its token is good for one founding.
async fn join(service: &Service, options: &mut Options, must: bool) -> Result<(), Failed> {
    if !must {
        return Ok(());
    }
    let failed = failed("discovery failed");
    if options.existing {
        return Err(failed(NotFound::Existing));
    }
    match service.join(options).await {
        Ok(cluster) => {
            options.initial_cluster = cluster;
            Ok(())
        }
        Err(error) => {
            if matches!(error, NotFound::Unjoined(_)) {
                log::warn("do not reuse discovery token; generate a new one to bootstrap a cluster", &[]);
            }
            Err(failed(error))
        }
    }
}

/// What is said where the data directory holds a member.
pub(crate) fn passed_over(options: &Options) {
    if let Some(Discovery::Service(service)) = &options.discovery {
        let text = "discovery token is ignored since cluster already initialized; valid logs are found";
        log::warn(text, &[("discovery-token", json!(service.token))]);
    }
}
