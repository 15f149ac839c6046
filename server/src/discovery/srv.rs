//! The initial cluster as SRV records name it: `_etcd-server-ssl._tcp` of a domain are members that
//! are reached by https, `_etcd-server._tcp` members that are reached by http.
//!
//! The record that leads to an address of this member's advertised peer URLs is this member. The
//! others have no names here: etcd numbers them, each member in its own way. They say their names
//! themselves when they have started.

use super::NotFound;
use crate::log::{self, json};
use crate::options::Options;
use disk::urls::{Url, texts};
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Resolver, TokioResolver};
use std::net::{IpAddr, SocketAddr};

/// Names the server to ask, `address:port`, instead of those that the system asks.
const RESOLVER: &str = "KVORUM_RESOLVER";

/// Which records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    /// `--discovery-srv`.
    pub(crate) domain: String,
    /// `--discovery-srv-name`: `_etcd-server-<name>._tcp`.
    pub(crate) name: String,
}

/// What the records say.
pub(super) struct Cluster {
    /// As `--initial-cluster`. Whoever is not this member has a number as its name.
    pub(super) cluster: Vec<(String, Url)>,
    /// This member's peer URLs: as the records write them if they lead where the flags lead.
    pub(super) advertised: Vec<Url>,
}

impl Records {
    pub(super) async fn find(&self, options: &Options) -> Result<Cluster, NotFound> {
        let asked = Asked::new()?;
        let suffix = if self.name.is_empty() { String::new() } else { format!("-{}", self.name) };
        let encrypted = self.service(&asked, "https", &format!("etcd-server-ssl{suffix}"), options).await;
        let plain = self.service(&asked, "http", &format!("etcd-server{suffix}"), options).await;
        let found = match (encrypted, plain) {
            (Err(encrypted), Err(plain)) => {
                let error = NotFound::Neither(Box::new(encrypted), Box::new(plain));
                log::warn("failed to resolve during SRV discovery", &[("error", json!(error.to_string()))]);
                return Err(error);
            }
            (Ok(encrypted), Ok(plain)) => [encrypted, plain].concat(),
            (Ok(one), Err(error)) | (Err(error), Ok(one)) => {
                log::warn("failed to resolve during SRV discovery", &[("error", json!(error.to_string()))]);
                one
            }
        };
        for Found { name, url, .. } in &found {
            let node = format!("{name}={url}");
            log::info("got bootstrap from DNS for etcd-server", &[("node", json!(node))]);
        }
        let ours: Vec<&Found> = found.iter().filter(|found| found.name == options.name).collect();
        if ours.is_empty() {
            return Err(NotFound::NotNamed(options.name.clone()));
        }
        let leads = |url: &Url| ours.iter().any(|found| found.ours.as_ref() == Some(url));
        let advertised = match options.advertise_peer.len() == ours.len() && options.advertise_peer.iter().all(leads) {
            true => ours.iter().map(|found| found.url.clone()).collect(),
            false => options.advertise_peer.clone(),
        };
        Ok(Cluster { cluster: found.into_iter().map(|found| (found.name, found.url)).collect(), advertised })
    }

    async fn service(
        &self,
        asked: &Asked,
        scheme: &str,
        service: &str,
        options: &Options,
    ) -> Result<Vec<Found>, NotFound> {
        let found = self.members(asked, scheme, service, options).await;
        let nodes = |found: &[Found]| found.iter().map(|one| format!("{}={}", one.name, one.url)).collect::<Vec<_>>();
        let mut fields = vec![
            ("service-scheme", json!(scheme)),
            ("service-name", json!(service)),
            ("server-name", json!(options.name)),
            ("discovery-srv", json!(self.domain)),
            ("advertise-peer-urls", json!(texts(&options.advertise_peer))),
            ("found-cluster", json!(found.as_deref().map(nodes).unwrap_or_default())),
        ];
        if let Err(error) = &found {
            fields.push(("error", json!(error.to_string())));
        }
        let message = match scheme {
            "https" => "get cluster for etcd-server-ssl SRV",
            _ => "get cluster for etcd-server SRV",
        };
        log::info(message, &fields);
        found
    }

    /// In etcd's order: own addresses first, then the records.
    async fn members(
        &self,
        asked: &Asked,
        scheme: &str,
        service: &str,
        options: &Options,
    ) -> Result<Vec<Found>, NotFound> {
        let mut ours = Vec::new();
        for url in &options.advertise_peer {
            ours.push((asked.address(&url.host, url.port).await?, url));
        }
        let failed = |cause| NotFound::Service { service: service.to_string(), cause: Box::new(cause) };
        let (mut found, mut numbered, mut wrong) = (Vec::new(), 0, None);
        for (target, port) in asked.records(&format!("_{service}._tcp.{}", self.domain)).await.map_err(failed)? {
            let address = match asked.address(&target, port).await {
                Ok(address) => address,
                Err(error) => {
                    wrong = Some(error);
                    continue;
                }
            };
            let host = target.trim_end_matches('.');
            let url = Url::parse(&format!("{scheme}://{}", joined(host, port)))?;
            let same = ours.iter().find(|(ours, _)| *ours == address).map(|(_, ours)| *ours);
            match same {
                Some(ours) if ours.is_tls() != url.is_tls() => {
                    let (found, ours) = (url.text, ours.text.clone());
                    wrong = Some(NotFound::Scheme { found, service: service.to_string(), ours });
                }
                Some(ours) => found.push(Found { name: options.name.clone(), url, ours: Some(ours.clone()) }),
                None => {
                    found.push(Found { name: numbered.to_string(), url, ours: None });
                    numbered += 1;
                }
            }
        }
        match wrong {
            Some(error) if found.is_empty() => Err(failed(error)),
            _ => Ok(found),
        }
    }
}

fn joined(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A record.
#[derive(Clone)]
struct Found {
    name: String,
    url: Url,
    /// The peer URL of the flags that leads to the same place.
    ours: Option<Url>,
}

/// The name service.
struct Asked {
    resolver: TokioResolver,
    /// Whom is asked first, as errors say it.
    on: String,
}

impl Asked {
    fn new() -> Result<Asked, NotFound> {
        let wrong = |error: &dyn std::fmt::Display| NotFound::Resolver(error.to_string());
        let (config, opts) = match std::env::var(RESOLVER).ok().filter(|given| !given.is_empty()) {
            None => read_system_conf().map_err(|error| wrong(&error))?,
            Some(given) => {
                let address: SocketAddr =
                    given.parse().map_err(|_| NotFound::NoAddress { variable: RESOLVER, given })?;
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                server.connections.iter_mut().for_each(|connection| connection.port = address.port());
                (ResolverConfig::from_parts(None, Vec::new(), vec![server]), ResolverOpts::default())
            }
        };
        let first = config.name_servers().first();
        let port = first.and_then(|server| server.connections.first()).map_or(53, |connection| connection.port);
        let on = first.map_or(String::new(), |server| format!(" on {}", SocketAddr::new(server.ip, port)));
        let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = opts;
        Ok(Asked { resolver: builder.build().map_err(|error| wrong(&error))?, on })
    }

    fn failed(&self, name: &str, error: Option<hickory_resolver::net::NetError>) -> NotFound {
        let why = match error {
            Some(error) if !error.is_no_records_found() => error.to_string(),
            _ => "no such host".to_string(),
        };
        NotFound::Lookup { name: name.to_string(), on: self.on.clone(), why }
    }

    /// An address of a host; one of IPv4 if there is one, as Go takes it.
    async fn address(&self, host: &str, port: u16) -> Result<SocketAddr, NotFound> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(address.to_canonical(), port));
        }
        let found = self.resolver.lookup_ip(host).await.map_err(|error| self.failed(host, Some(error)))?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        let first = addresses.first().ok_or_else(|| self.failed(host, None))?;
        Ok(SocketAddr::new(*first, port))
    }

    /// The targets of SRV records, with the dot behind them, the preferred ones first.
    async fn records(&self, name: &str) -> Result<Vec<(String, u16)>, NotFound> {
        let full = format!("{}.", name.trim_end_matches('.'));
        let answer = self.resolver.lookup(full, RecordType::SRV).await;
        let answer = answer.map_err(|error| self.failed(name, Some(error)))?;
        let mut found: Vec<(u16, u16, String, u16)> = Vec::new();
        for record in answer.answers() {
            if let RData::SRV(srv) = &record.data {
                found.push((srv.priority, u16::MAX - srv.weight, srv.target.to_utf8(), srv.port));
            }
        }
        if found.is_empty() {
            return Err(self.failed(name, None));
        }
        found.sort();
        Ok(found.into_iter().map(|(_, _, target, port)| (target, port)).collect())
    }
}
