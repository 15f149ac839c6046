//! An initial cluster that the flags do not list: it is found by DNS (`--discovery-srv`).

mod srv;

pub(crate) use srv::Records;

use crate::bootstrap::{Failed, failed};
use crate::log::{self, json};
use crate::options::Options;
use disk::urls::BadUrl;

/// Where the initial cluster is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// `--discovery-srv`.
    Records(Records),
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
    #[error(transparent)]
    BadUrl(#[from] BadUrl),
}

/// Asks who the initial members are, and puts them where `--initial-cluster` would have put them.
/// `must`: there is no member in the data directory, whose files would say it.
///
/// # Errors
/// `must`, and nobody knows.
pub(crate) async fn fill(options: &mut Options, must: bool) -> Result<(), Failed> {
    let Some(Discovery::Records(records)) = options.discovery.clone() else { return Ok(()) };
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
