//! Encryption: files become a configuration of rustls.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::{Error, Result, Tls, named::Named, p521};

/// Where systems keep whom they trust.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

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
            Some(file) => (named_roots(file)?, certificates(file)?),
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
        let provider = Arc::new(p521::provider());
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
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| setup(key.display(), &e))?;
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

fn named_roots(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|e| setup(file.display(), &e))?;
    }
    Ok(roots)
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let named = std::env::var("SSL_CERT_FILE").ok();
    let found = named.iter().map(String::as_str).chain(SYSTEM).find_map(|file| certificates(Path::new(file)).ok());
    match found {
        // One that is not understood is no reason to trust nobody.
        Some(certificates) => {
            roots.add_parsable_certificates(certificates);
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    roots
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).and_then(|certificates| certificates.collect());
    match read {
        Ok(certificates) if certificates.is_empty() => Err(setup(file.display(), &"there is no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(setup(file.display(), &error)),
    }
}

fn setup(what: impl std::fmt::Display, reason: &dyn std::fmt::Display) -> Error {
    Error::Setup { what: what.to_string(), reason: reason.to_string() }
}

/// Believes that anyone is who they say; only that they hold the key of the
/// certificate they show is checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
