//! Encrypted connections and sockets with a path, against a server of the
//! test's own.

mod fake;

use std::{path::PathBuf, sync::Arc, time::Duration};

use client::{Client, Error, Options, Tls};
use fake::{Fake, Reply};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tempfile::TempDir;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier},
};
use wire::etcdserverpb::{PutRequest, PutResponse};

/// One who vouches for others, and the files of all.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { folder, issuer }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate for these names, in files.
    fn issue(&self, file: &str, names: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.file(&format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    /// What a server needs; `clients`: it asks them for a certificate.
    fn acceptor(&self, file: &str, clients: bool) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.unwrap();
        let builder = if clients {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(self.file("ca.pem")).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_file(self.file(&format!("{file}.pem"))).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{file}.key"))).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    fn trusted(&self) -> Tls {
        Tls { ca: Some(self.file("ca.pem")), ..Tls::default() }
    }

    fn as_client(&self, file: &str) -> Tls {
        let (cert, key) = (self.file(&format!("{file}.pem")), self.file(&format!("{file}.key")));
        Tls { cert: Some(cert), key: Some(key), ..self.trusted() }
    }
}

/// Says with which scheme it was spoken to.
fn answers(call: fake::Call) -> Reply {
    let request: PutRequest = call.read();
    assert_eq!(request.value, call.scheme.as_bytes(), "the scheme");
    Reply::with(&PutResponse::default())
}

/// What must come does so within this time, even on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time enough to hear why not, of which all is used.
const HASTE: Duration = Duration::from_millis(1500);

async fn put(endpoint: &str, tls: Option<Tls>) -> Result<(), Error> {
    put_within(PATIENCE, endpoint, tls).await
}

async fn put_within(time: Duration, endpoint: &str, tls: Option<Tls>) -> Result<(), Error> {
    let request_timeout = Some(time);
    let scheme =
        if tls.is_some() || endpoint.starts_with("https") || endpoint.starts_with("unixs") { "https" } else { "http" };
    let options = Options { tls, request_timeout, ..Options::of([endpoint]) };
    Client::connect(options)?.put("a", scheme).await.map(drop)
}

/// The error must say this, and show as etcd's client shows it.
fn refused(result: Result<(), Error>, part: &str) {
    let error = result.expect_err(part);
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(part), "{error}");
    assert_eq!(error.etcd_text(), "context deadline exceeded");
    assert!(!error.maybe_done());
}

#[tokio::test]
async fn a_server_is_believed_if_its_certificate_fits() {
    let (ours, other) = (Authority::new(), Authority::new());
    ours.issue("server", &["127.0.0.1", "db.test"]);
    let server = Fake::on("127.0.0.1:0", Some(ours.acceptor("server", false)), answers).await;
    let bare = server.endpoint.clone();
    let https = format!("https://{bare}");
    // A scheme of its own, or one because there are certificates.
    put(&https, Some(ours.trusted())).await.unwrap();
    put(&bare, Some(ours.trusted())).await.unwrap();
    put(&https, Some(Tls { server_name: Some("db.test".to_owned()), ..ours.trusted() })).await.unwrap();
    put(&https, Some(Tls { insecure_skip_verify: true, ..other.trusted() })).await.unwrap();
    refused(put_within(HASTE, &https, Some(other.trusted())).await, "invalid peer certificate");
    refused(put_within(HASTE, &https, None).await, "UnknownIssuer");
    let elsewhere = Tls { server_name: Some("web.test".to_owned()), ..ours.trusted() };
    refused(put_within(HASTE, &https, Some(elsewhere)).await, "not valid for name");
}

/// Etcd's own certificates say that they are an authority's.
#[tokio::test]
async fn a_certificate_that_is_named_itself_is_believed_while_it_lasts() {
    let ours = Authority::new();
    let issue = |file: &str, last_year: i32| {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        std::fs::write(ours.file(&format!("{file}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(ours.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
        Tls { ca: Some(ours.file(&format!("{file}.pem"))), ..Tls::default() }
    };
    let (itself, other, old) = (issue("itself", 4000), issue("other", 4000), issue("old", 2020));
    let server = Fake::on("127.0.0.1:0", Some(ours.acceptor("itself", false)), answers).await;
    let https = format!("https://{}", server.endpoint);
    put(&https, Some(itself.clone())).await.unwrap();
    refused(put_within(HASTE, &https, Some(other)).await, "CaUsedAsEndEntity");
    let elsewhere = Tls { server_name: Some("web.test".to_owned()), ..itself };
    refused(put_within(HASTE, &https, Some(elsewhere)).await, "not valid for name");
    let server = Fake::on("127.0.0.1:0", Some(ours.acceptor("old", false)), answers).await;
    refused(put_within(HASTE, &format!("https://{}", server.endpoint), Some(old)).await, "expired");
}

#[tokio::test]
async fn a_client_shows_its_certificate_and_a_new_one_when_it_is_renewed() {
    let ours = Authority::new();
    ours.issue("server", &["127.0.0.1"]);
    ours.issue("client", &["ann"]);
    let server = Fake::on("127.0.0.1:0", Some(ours.acceptor("server", true)), answers).await;
    put(&server.endpoint, Some(ours.as_client("client"))).await.unwrap();
    refused(put_within(HASTE, &server.endpoint, Some(ours.trusted())).await, "CertificateRequired");
    // A certificate of somebody else, until the files are replaced.
    let other = Authority::new();
    other.issue("client", &["ann"]);
    let named = ours.as_client("later");
    for end in ["pem", "key"] {
        std::fs::copy(other.file(&format!("client.{end}")), ours.file(&format!("later.{end}"))).unwrap();
    }
    let options =
        Options { tls: Some(named), request_timeout: Some(PATIENCE), ..Options::of([server.endpoint.clone()]) };
    let client = Client::connect(options).unwrap();
    let hasty = client.with_request_timeout(Some(HASTE));
    refused(hasty.put("a", "https").await.map(drop), "alert");
    ours.issue("later", &["ann"]);
    client.put("a", "https").await.unwrap();
}

#[tokio::test]
async fn sockets_with_a_path_speak_with_and_without_encryption() {
    let ours = Authority::new();
    // As with etcd's client, the last part of the path is the name that a certificate has to have.
    ours.issue("server", &["secure.sock"]);
    let (plain, secure) = (ours.file("plain.sock"), ours.file("secure.sock"));
    let _plain = Fake::unix(&plain, None, answers);
    let _secure = Fake::unix(&secure, Some(ours.acceptor("server", false)), answers);
    put(&format!("unix://{}", plain.display()), None).await.unwrap();
    put(&format!("unix:{}", plain.display()), None).await.unwrap();
    put(&format!("unixs://{}", secure.display()), Some(ours.trusted())).await.unwrap();
    put(&format!("unix://{}", secure.display()), Some(ours.trusted())).await.unwrap();
    refused(put_within(HASTE, "unix:///nowhere/at.all", None).await, "No such file");
}

#[test]
fn files_of_no_use_are_named_at_once() {
    let ours = Authority::new();
    ours.issue("client", &["ann"]);
    ours.issue("other", &["bob"]);
    std::fs::write(ours.file("empty.pem"), "").unwrap();
    let client = |tls: Tls| Client::connect(Options { tls: Some(tls), ..Options::of(["a:1"]) }).map(drop);
    let fails = |tls: Tls, named: &str| {
        let error = client(tls).expect_err(named).to_string();
        assert!(error.contains(named), "{error}");
    };
    client(ours.as_client("client")).unwrap();
    fails(Tls { ca: Some(ours.file("none.pem")), ..Tls::default() }, "none.pem");
    fails(Tls { ca: Some(ours.file("empty.pem")), ..Tls::default() }, "there is no certificate in it");
    fails(Tls { key: None, ..ours.as_client("client") }, "only of use together");
    fails(Tls { key: Some(ours.file("empty.pem")), ..ours.as_client("client") }, "empty.pem");
    fails(Tls { key: Some(ours.file("other.key")), ..ours.as_client("client") }, "client.pem with");
    fails(Tls { server_name: Some("a b".to_owned()), ..ours.trusted() }, "server name");
}
