//! Endpoints from the name service.

use std::net::SocketAddr;

use hickory_resolver::{
    Resolver, TokioResolver,
    config::{NameServerConfig, ResolverConfig, ResolverOpts},
    net::runtime::TokioRuntimeProvider,
    proto::rr::{RData, RecordType},
    system_conf::read_system_conf,
};

use crate::{Error, Result};

/// A domain whose SRV records name the endpoints of a cluster:
/// `_etcd-client-ssl._tcp` those with encryption, `_etcd-client._tcp` those
/// without.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Such as `example.com`.
    pub domain: String,
    /// Set when one domain has several clusters: `_etcd-client-<name>._tcp`.
    pub service_name: String,
    /// Whom to ask; `None` asks whom the system asks.
    pub resolver: Option<SocketAddr>,
}

impl Discovery {
    /// The endpoints, encrypted ones first, and in each group the preferred
    /// ones first.
    ///
    /// # Errors
    /// [`Error::Discovery`] if neither kind has a record.
    pub async fn endpoints(&self) -> Result<Vec<String>> {
        let (resolver, asked) = self.resolver().map_err(|reason| Error::Discovery { reason })?;
        let encrypted = self.service(&resolver, &asked, "etcd-client-ssl", "https").await;
        let plain = self.service(&resolver, &asked, "etcd-client", "http").await;
        match (encrypted, plain) {
            (Err(encrypted), Err(plain)) => {
                Err(Error::Discovery { reason: format!("dns lookup errors: {encrypted} and {plain}") })
            }
            (encrypted, plain) => Ok([encrypted.unwrap_or_default(), plain.unwrap_or_default()].concat()),
        }
    }

    /// Who is asked, and at which address first.
    fn resolver(&self) -> std::result::Result<(TokioResolver, String), String> {
        let (config, options) = match self.resolver {
            None => read_system_conf().map_err(|e| format!("the system's resolver configuration: {e}"))?,
            Some(address) => {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                (ResolverConfig::from_parts(None, Vec::new(), vec![server]), ResolverOpts::default())
            }
        };
        let first = config.name_servers().first();
        let port = first.and_then(|server| server.connections.first()).map_or(53, |connection| connection.port);
        let asked = first.map_or(String::new(), |server| format!(" on {}", SocketAddr::new(server.ip, port)));
        let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        Ok((builder.build().map_err(|e| e.to_string())?, asked))
    }

    /// On failure, what Go's resolver says.
    async fn service(
        &self,
        resolver: &TokioResolver,
        asked: &str,
        service: &str,
        scheme: &str,
    ) -> std::result::Result<Vec<String>, String> {
        let suffix = if self.service_name.is_empty() { String::new() } else { format!("-{}", self.service_name) };
        let name = format!("_{service}{suffix}._tcp.{}", self.domain);
        let failed = |reason: &str| format!("lookup {name}{asked}: {reason}");
        let none = "no such host";
        let answer = resolver.lookup(format!("{}.", name.trim_end_matches('.')), RecordType::SRV).await;
        let lookup = answer.map_err(|e| if e.is_no_records_found() { failed(none) } else { failed(&e.to_string()) })?;
        let mut found: Vec<(u16, u16, String)> = Vec::new();
        for record in lookup.answers() {
            if let RData::SRV(srv) = &record.data {
                let host = srv.target.to_utf8();
                let host = host.trim_end_matches('.');
                found.push((srv.priority, u16::MAX - srv.weight, format!("{scheme}://{host}:{}", srv.port)));
            }
        }
        if found.is_empty() {
            return Err(failed(none));
        }
        found.sort();
        Ok(found.into_iter().map(|(_, _, endpoint)| endpoint).collect())
    }
}
