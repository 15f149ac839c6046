//! Wishes and files become configurations of rustls.

use super::reload::Reloading;
use super::wish::{Own, Wish};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tls::{Anyone, Fault, Named};

/// What a handshake of a caller needs.
pub struct Serving {
    /// The member's certificate, and whom it lets in.
    pub config: Arc<ServerConfig>,
    /// Serials of certificates that are refused.
    pub revoked: BTreeSet<Vec<u8>>,
}

/// What a listener needs. Cheap to clone.
#[derive(Clone)]
pub struct Port {
    serving: Arc<Reloading<Serving>>,
    /// What the log says when a caller is turned away.
    pub rejection: &'static str,
    /// Whether a caller's certificate must fit where it comes from.
    pub checks_origin: bool,
}

impl Port {
    /// For clients.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub fn for_clients(wish: &Wish) -> Result<Port, String> {
        let serving = Arc::new(serving("clients", wish)?);
        Ok(Port { serving, rejection: "rejected connection on client endpoint", checks_origin: false })
    }

    /// For peers.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub fn for_peers(wish: &Wish) -> Result<Port, String> {
        let serving = Arc::new(serving("peers", wish)?);
        Ok(Port { serving, rejection: "rejected connection on peer endpoint", checks_origin: !wish.skip_origin })
    }

    /// As the files are now; see `Reloading::now`.
    pub fn now(&self) -> Arc<Serving> {
        self.serving.now()
    }
}

/// What dialling a peer needs. Cheap to clone.
#[derive(Clone)]
pub struct Dialler(Arc<Reloading<Arc<ClientConfig>>>);

impl Dialler {
    /// # Errors
    /// What is wrong with the files.
    pub fn new(wish: &Wish) -> Result<Dialler, String> {
        let build = {
            let wish = wish.clone();
            move || client_config(&wish).map(Arc::new)
        };
        let files = own_as_client(wish).into_iter().flat_map(files_of).chain(wish.ca.clone()).collect();
        Reloading::new("dialled peers", files, build).map(|reloading| Dialler(Arc::new(reloading)))
    }

    /// As the files are now; see `Reloading::now`.
    pub fn now(&self) -> Arc<ClientConfig> {
        (*self.0.now()).clone()
    }
}

fn files_of(own: Own) -> Vec<PathBuf> {
    match own {
        Own::Files(cert, key) => vec![cert, key],
        Own::None | Own::Made(_) => Vec::new(),
    }
}

fn own_as_client(wish: &Wish) -> Option<Own> {
    match (&wish.own_as_client, &wish.own) {
        (_, Own::None) => None,
        (Some((cert, key)), _) => Some(Own::Files(cert.clone(), key.clone())),
        (None, own) => Some(own.clone()),
    }
}

fn serving(what: &'static str, wish: &Wish) -> Result<Reloading<Serving>, String> {
    let build = {
        let wish = wish.clone();
        move || {
            let revoked = wish.crl.as_deref().map(revoked).transpose()?.unwrap_or_default();
            Ok(Serving { config: Arc::new(server_config(&wish)?), revoked })
        }
    };
    let files = files_of(wish.own.clone()).into_iter().chain(wish.ca.clone()).chain(wish.crl.clone()).collect();
    Reloading::new(what, files, build)
}

/// The system's words as Go has them.
fn opened(file: &Path, error: &std::io::Error) -> String {
    format!("open {}: {}", file.display(), crate::listeners::reason(error))
}

fn said(file: &Path, fault: &Fault) -> String {
    match fault {
        Fault::Pem(rustls::pki_types::pem::Error::Io(error)) => opened(file, error),
        other => format!("{}: {other}", file.display()),
    }
}

fn revoked(file: &Path) -> Result<BTreeSet<Vec<u8>>, String> {
    let bytes = std::fs::read(file).map_err(|error| opened(file, &error))?;
    tls::revoked_serials(&bytes).map_err(|error| format!("{}: {error}", file.display()))
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pair(own: &Own) -> Result<Pair, String> {
    match own {
        Own::None => Err("KeyFile and CertFile are not presented".into()),
        Own::Made(made) => made.pair(),
        Own::Files(cert, key) => {
            let chain = tls::certificates(cert).map_err(|fault| said(cert, &fault))?;
            Ok((chain, tls::private_key(key).map_err(|fault| said(key, &fault))?))
        }
    }
}

/// Go's words for a key that is another certificate's.
fn no_pair(own: &Own, error: &Error) -> String {
    match (error, own) {
        (Error::InconsistentKeys(_), _) => "tls: private key does not match public key".into(),
        (error, Own::Files(cert, key)) => format!("{} with {}: {error}", cert.display(), key.display()),
        (error, _) => error.to_string(),
    }
}

fn provider(wish: &Wish) -> Arc<CryptoProvider> {
    let mut provider = tls::provider();
    if !wish.suites.chosen.is_empty() {
        provider.cipher_suites.clone_from(&wish.suites.chosen);
    }
    Arc::new(provider)
}

/// Those who may vouch for others, and their certificates.
fn trusted(wish: &Wish) -> Result<(Arc<RootCertStore>, Arc<Vec<CertificateDer<'static>>>), String> {
    let Some(file) = &wish.ca else {
        let roots = tls::system_roots().ok_or("no CA file was given, and the system names none that it trusts")?;
        return Ok((Arc::new(roots), Arc::default()));
    };
    let named = tls::certificates(file).map_err(|fault| said(file, &fault))?;
    let roots = tls::roots(&named).map_err(|fault| said(file, &fault))?;
    Ok((Arc::new(roots), Arc::new(named)))
}

fn server_config(wish: &Wish) -> Result<ServerConfig, String> {
    let provider = provider(wish);
    let (chain, key) = pair(&wish.own)?;
    let verifier: Arc<dyn ClientCertVerifier> = if wish.verifies() {
        let (roots, named) = trusted(wish)?;
        let webpki = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
        let webpki = webpki.map_err(|error| error.to_string())?;
        Arc::new(Callers { webpki, named, allowed: Allowed::of(wish) })
    } else {
        WebPkiClientVerifier::no_client_auth()
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&wish.versions)
        .map_err(|error| error.to_string())?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| no_pair(&wish.own, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A session that is resumed would not be verified again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(wish: &Wish) -> Result<ClientConfig, String> {
    let provider = provider(wish);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&wish.versions)
        .map_err(|error| error.to_string())?;
    let verifier: Arc<dyn ServerCertVerifier> = if matches!(wish.own, Own::Made(_)) {
        Arc::new(Anyone(provider))
    } else {
        let (roots, certificates) = trusted(wish)?;
        let webpki = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let webpki = webpki.map_err(|error| error.to_string())?;
        Arc::new(Dialled { named: Named { webpki, certificates }, allowed: Allowed::of(wish) })
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match own_as_client(wish) {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = pair(&own)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| no_pair(&own, &error))?
        }
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Names and hosts of which a certificate must have one; none of both: any certificate will do.
#[derive(Debug)]
struct Allowed {
    names: Vec<String>,
    hosts: Vec<String>,
}

impl Allowed {
    fn of(wish: &Wish) -> Allowed {
        Allowed { names: wish.allowed_names.clone(), hosts: wish.allowed_hosts.clone() }
    }

    /// Go's error for this ends the handshake with the alert `bad certificate`, and so does this one.
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let named = || tls::Facts::of(shown).is_ok_and(|facts| self.names.contains(&facts.common_name));
        let hosted = || self.hosts.iter().any(|host| tls::is_valid_for(shown, host));
        match (self.names.is_empty() && self.hosts.is_empty()) || named() || hosted() {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(CertificateError::NotValidForName)),
        }
    }
}

/// Verifies who calls.
#[derive(Debug)]
struct Callers {
    webpki: Arc<dyn ClientCertVerifier>,
    /// The certificates of the trusted: one that shows its own is taken, as Go does.
    named: Arc<Vec<CertificateDer<'static>>>,
    allowed: Allowed,
}

impl ClientCertVerifier for Callers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.webpki.verify_client_cert(shown, chain, now) {
            Err(error) if tls::of_authority(&error) && self.named.iter().any(|named| named == shown) => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.allowed.check(shown)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Verifies a peer that is dialled.
#[derive(Debug)]
struct Dialled {
    named: Named,
    allowed: Allowed,
}

impl ServerCertVerifier for Dialled {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.named.verify_server_cert(shown, chain, name, ocsp, now)?;
        self.allowed.check(shown)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.named.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.named.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.named.supported_verify_schemes()
    }
}
