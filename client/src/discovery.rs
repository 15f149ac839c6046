//! Endpoints from the name service.

use std::net::SocketAddr;

use hickory_resolver::{
    Resolver, TokioResolver,
    config::{NameServerConfig, ResolverConfig},
    net::runtime::TokioRuntimeProvider,
    proto::rr::{RData, RecordType},
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
        let resolver = self.resolver().map_err(|reason| Error::Discovery { reason })?;
        let encrypted = self.service(&resolver, "etcd-client-ssl", "https").await;
        let plain = self.service(&resolver, "etcd-client", "http").await;
        match (encrypted, plain) {
            (Err(encrypted), Err(plain)) => {
                Err(Error::Discovery { reason: format!("dns lookup errors: {encrypted} and {plain}") })
            }
            (encrypted, plain) => Ok([encrypted.unwrap_or_default(), plain.unwrap_or_default()].concat()),
        }
    }

    fn resolver(&self) -> std::result::Result<TokioResolver, String> {
        let builder = match self.resolver {
            None => Resolver::builder_tokio().map_err(|e| format!("the system's resolver configuration: {e}"))?,
            Some(address) => {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
                Resolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        builder.build().map_err(|e| e.to_string())
    }

    async fn service(
        &self,
        resolver: &TokioResolver,
        service: &str,
        scheme: &str,
    ) -> std::result::Result<Vec<String>, String> {
        let suffix = if self.service_name.is_empty() { String::new() } else { format!("-{}", self.service_name) };
        let service = format!("{service}{suffix}");
        let name = format!("_{service}._tcp.{}.", self.domain.trim_end_matches('.'));
        let failed = |reason: String| format!("error querying DNS SRV records for _{service} {reason}");
        let lookup = resolver.lookup(name, RecordType::SRV).await.map_err(|e| failed(e.to_string()))?;
        let mut found: Vec<(u16, u16, String)> = Vec::new();
        for record in lookup.answers() {
            if let RData::SRV(srv) = &record.data {
                let host = srv.target.to_utf8();
                let host = host.trim_end_matches('.');
                found.push((srv.priority, u16::MAX - srv.weight, format!("{scheme}://{host}:{}", srv.port)));
            }
        }
        if found.is_empty() {
            return Err(failed("no record".to_owned()));
        }
        found.sort();
        Ok(found.into_iter().map(|(_, _, endpoint)| endpoint).collect())
    }
}
