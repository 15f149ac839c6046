//! Wishes and files become configurations of rustls.

use super::reload::Reloading;
use super::unfit::Unfit;
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
pub(crate) struct Serving {
    /// The member's certificate, and whom it lets in.
    pub(crate) config: Arc<ServerConfig>,
    /// Serials of certificates that are refused.
    pub(crate) revoked: BTreeSet<Vec<u8>>,
}

/// What a listener needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Port {
    serving: Arc<Reloading<Serving>>,
    /// What the log says when a caller is turned away.
    pub(crate) rejection: &'static str,
    /// Whether a caller's certificate must fit where it comes from.
    pub(crate) checks_origin: bool,
}

impl Port {
    /// For clients.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn for_clients(wish: &Wish) -> Result<Port, Unfit> {
        let serving = Arc::new(serving("clients", wish)?);
        Ok(Port { serving, rejection: "rejected connection on client endpoint", checks_origin: false })
    }

    /// For peers.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn for_peers(wish: &Wish) -> Result<Port, Unfit> {
        let serving = Arc::new(serving("peers", wish)?);
        Ok(Port { serving, rejection: "rejected connection on peer endpoint", checks_origin: !wish.skip_origin })
    }

    /// As the files are now; see `Reloading::now`.
    pub(crate) fn now(&self) -> Arc<Serving> {
        self.serving.now()
    }
}

/// What dialling a peer needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialler(Arc<Reloading<Arc<ClientConfig>>>);

impl Dialler {
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn new(wish: &Wish) -> Result<Dialler, Unfit> {
        let build = {
            let wish = wish.clone();
            move || client_config(&wish).map(Arc::new)
        };
        let files = own_as_client(wish).into_iter().flat_map(files_of).chain(wish.ca.clone()).collect();
        Reloading::new("dialled peers", files, build).map(|reloading| Dialler(Arc::new(reloading)))
    }

    /// As the files are now; see `Reloading::now`.
    pub(crate) fn now(&self) -> Arc<ClientConfig> {
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

fn serving(what: &'static str, wish: &Wish) -> Result<Reloading<Serving>, Unfit> {
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

fn unread(file: &Path, error: std::io::Error) -> Unfit {
    Unfit::Unread { file: file.to_path_buf(), error }
}

fn unfit(file: &Path) -> impl Fn(Fault) -> Unfit {
    move |fault| match fault {
        Fault::Pem(rustls::pki_types::pem::Error::Io(error)) => unread(file, error),
        other => Unfit::content(file, other),
    }
}

fn revoked(file: &Path) -> Result<BTreeSet<Vec<u8>>, Unfit> {
    let bytes = std::fs::read(file).map_err(|error| unread(file, error))?;
    tls::revoked_serials(&bytes).map_err(|error| Unfit::content(file, error))
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pair(own: &Own) -> Result<Pair, Unfit> {
    match own {
        Own::None => Err(Unfit::NoPair),
        Own::Made(made) => made.pair(),
        Own::Files(cert, key) => {
            let chain = tls::certificates(cert).map_err(unfit(cert))?;
            Ok((chain, tls::private_key(key).map_err(unfit(key))?))
        }
    }
}

fn no_pair(own: &Own, error: Error) -> Unfit {
    match (error, own) {
        (Error::InconsistentKeys(_), _) => Unfit::OtherKey,
        (error, Own::Files(cert, key)) => Unfit::Pair { cert: cert.clone(), key: key.clone(), error },
        (error, _) => Unfit::refused(error),
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
fn trusted(wish: &Wish) -> Result<(Arc<RootCertStore>, Arc<Vec<CertificateDer<'static>>>), Unfit> {
    let Some(file) = &wish.ca else {
        let roots = tls::system_roots().ok_or(Unfit::NoRoots)?;
        return Ok((Arc::new(roots), Arc::default()));
    };
    let named = tls::certificates(file).map_err(unfit(file))?;
    let roots = tls::roots(&named).map_err(unfit(file))?;
    Ok((Arc::new(roots), Arc::new(named)))
}

fn server_config(wish: &Wish) -> Result<ServerConfig, Unfit> {
    let provider = provider(wish);
    let (chain, key) = pair(&wish.own)?;
    let verifier: Arc<dyn ClientCertVerifier> = if wish.verifies() {
        let (roots, named) = trusted(wish)?;
        let webpki = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
        let webpki = webpki.map_err(Unfit::refused)?;
        Arc::new(Callers { webpki, named, allowed: Allowed::of(wish) })
    } else {
        WebPkiClientVerifier::no_client_auth()
    };
    let builder =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(&wish.versions).map_err(Unfit::refused)?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| no_pair(&wish.own, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A session that is resumed would not be verified again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(wish: &Wish) -> Result<ClientConfig, Unfit> {
    let provider = provider(wish);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&wish.versions)
        .map_err(Unfit::refused)?;
    let verifier: Arc<dyn ServerCertVerifier> = if matches!(wish.own, Own::Made(_)) {
        Arc::new(Anyone(provider))
    } else {
        let (roots, certificates) = trusted(wish)?;
        let webpki = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let webpki = webpki.map_err(Unfit::refused)?;
        Arc::new(Dialled { named: Named { webpki, certificates }, allowed: Allowed::of(wish) })
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match own_as_client(wish) {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = pair(&own)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| no_pair(&own, error))?
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

    /// Go's error for this ends the handshake with the alert `bad certificate`, and so does this
    /// one.
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
