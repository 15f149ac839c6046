//! Encryption: files become a configuration of rustls.

use std::{path::Path, sync::Arc};

use ::tls::{Anyone, Named};
use rustls::{
    ClientConfig, RootCertStore,
    client::WebPkiServerVerifier,
    pki_types::{CertificateDer, ServerName},
};

use crate::{Error, Result, Tls};

/// What is needed for each handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    tls: Tls,
    roots: Arc<RootCertStore>,
    /// Those that were named as trusted.
    named: Arc<Vec<CertificateDer<'static>>>,
    server_name: Option<ServerName<'static>>,
}

impl Handshake {
    /// Reads all files once, so that a wrong one is told of at once.
    pub(crate) fn new(tls: &Tls) -> Result<Handshake> {
        let (roots, named) = match &tls.ca {
            _ if tls.insecure_skip_verify => (RootCertStore::empty(), Vec::new()),
            Some(file) => {
                let named = certificates(file)?;
                (::tls::roots(&named).map_err(|e| setup(file.display(), &e))?, named)
            }
            None => (system_roots(), Vec::new()),
        };
        let server_name = tls.server_name.as_deref().map(server_name).transpose()?;
        let handshake = Handshake { tls: tls.clone(), roots: Arc::new(roots), named: Arc::new(named), server_name };
        handshake.config()?;
        Ok(handshake)
    }

    /// A configuration with the certificate and the key that the files hold
    /// now: they are renewed under a running client.
    pub(crate) fn config(&self) -> Result<ClientConfig> {
        let provider = Arc::new(::tls::provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| setup("TLS", &e))?;
        let builder = if self.tls.insecure_skip_verify {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            let webpki = WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), provider);
            let webpki = webpki.build().map_err(|e| setup("trusted certificates", &e))?;
            let named = Named { webpki, certificates: Arc::clone(&self.named) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(named))
        };
        Ok(match (&self.tls.cert, &self.tls.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let secret = ::tls::private_key(key).map_err(|e| setup(key.display(), &e))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|e| setup(format!("{} with {}", cert.display(), key.display()), &e))?
            }
            _ => return Err(setup("TLS", &"a certificate and its key are only of use together")),
        })
    }

    /// The name that the certificate of this host has to have.
    pub(crate) fn name(&self, host: &str) -> Result<ServerName<'static>> {
        self.server_name.clone().map_or_else(|| server_name(host), Ok)
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|e| setup(format!("server name {host:?}"), &e))
}

fn system_roots() -> RootCertStore {
    ::tls::system_roots().unwrap_or_else(|| RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    ::tls::certificates(file).map_err(|e| setup(file.display(), &e))
}

fn setup(what: impl std::fmt::Display, reason: &dyn std::fmt::Display) -> Error {
    Error::Setup { what: what.to_string(), reason: reason.to_string() }
}
