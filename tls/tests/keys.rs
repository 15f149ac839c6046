//! Certificates and keys as operators have them: each kind shakes hands. The files were made by
//! openssl for these tests alone, and are valid for a hundred years.

use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::path::PathBuf;
use std::sync::Arc;

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Shakes hands without a socket.
fn shake(mut client: ClientConnection, mut server: ServerConnection) -> Result<(), rustls::Error> {
    while client.is_handshaking() || server.is_handshaking() {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).expect("into memory");
        }
        let mut rest = &sent[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("from memory");
            server.process_new_packets()?;
        }
        let mut sent = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut sent).expect("into memory");
        }
        let mut rest = &sent[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("from memory");
            client.process_new_packets()?;
        }
    }
    Ok(())
}

#[test]
fn each_kind_of_key_shakes_hands() {
    // PKCS#1, SEC1 and PKCS#8.
    for (name, form) in [("rsa", "RSA PRIVATE KEY"), ("p521", "EC PRIVATE KEY"), ("ed25519", "PRIVATE KEY")] {
        let (cert, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        let text = std::fs::read_to_string(&key).expect("read");
        assert!(text.starts_with(&format!("-----BEGIN {form}-----")), "{name}");
        let chain = tls::certificates(&cert).expect("a certificate");
        let facts = tls::Facts::of(&chain[0]).expect("good");
        assert_eq!((facts.common_name.as_str(), facts.dns_names), (name, vec!["localhost".to_owned()]));
        for version in rustls::ALL_VERSIONS {
            let provider = Arc::new(tls::provider());
            let server = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_no_client_auth()
                .with_single_cert(chain.clone(), tls::private_key(&key).expect("a key"))
                .expect("a pair");
            let client = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_root_certificates(tls::roots(&chain).expect("roots"))
                .with_no_client_auth();
            let client = ClientConnection::new(Arc::new(client), "localhost".try_into().expect("a name"));
            let server = ServerConnection::new(Arc::new(server)).expect("a server");
            let shaken = shake(client.expect("a client"), server);
            assert!(shaken.is_ok(), "{name}, {version:?}: {shaken:?}");
        }
    }
}
