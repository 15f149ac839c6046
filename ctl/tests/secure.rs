//! Connections to real etcds that encrypt: with certificates of an authority,
//! and with those that etcd makes for itself, whose keys are on the curve P-521.
//! Both tools must say the same. Needs `KVORUM_TEST_ETCD`.

mod live;
mod transcript;

use std::path::Path;

use live::{Server, certs::Authority, ours, programs, start_auto_tls, start_encrypted, start_with_files};
use transcript::{Run, difference, parse};

/// Where they differ on these lines; names stand for files.
fn differences(folder: &Path, server: &Server, names: &[(&str, &Path)], lines: &str) -> Vec<String> {
    let run = |program: &Path| {
        let mut run = Run::on_port(program, server.port);
        run.kept.extend(names.iter().map(|(name, file)| ((*name).to_owned(), file.to_string_lossy().into_owned())));
        run
    };
    let (mut stock, mut own) = (run(&folder.join("etcdctl")), run(&ours()));
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut found = Vec::new();
    for case in lines.map(parse) {
        let expected = stock.say(&case);
        found.extend(difference(&case, &expected, &own.say(&case)));
    }
    found
}

#[test]
fn certificates_of_an_authority() {
    let Some(folder) = programs() else { return };
    let (authority, other) = (Authority::new(), Authority::new());
    authority.issue("server", &["127.0.0.1"]);
    authority.issue("client", &["ann"]);
    other.issue("client", &["ann"]);
    std::fs::write(authority.file("empty.pem"), "").expect("written");
    let mut server = start_encrypted(&folder.join("etcd"), &authority);
    server.listens();
    let found = differences(
        &folder,
        &server,
        &[
            ("$CA", &authority.file("ca.pem")),
            ("$CERT", &authority.file("client.pem")),
            ("$KEY", &authority.file("client.key")),
            ("$OTHERCA", &other.file("ca.pem")),
            ("$OTHERCERT", &other.file("client.pem")),
            ("$OTHERKEY", &other.file("client.key")),
        ],
        "* get a --cacert $CA --cert $CERT --key $KEY
         endpoint health --cacert $CA --cert $CERT --key $KEY
         endpoint health --cacert $CA --cert $CERT --key $KEY --cluster -w json
         get a --cacert $CA --cert $CERT --key $KEY --endpoints https://127.0.0.1:$PORT
         get a --cacert $CA --cert $CERT --key $KEY --endpoints http://127.0.0.1:$PORT --command-timeout 300ms
         get a --cacert $CA --cert $CERT --key $KEY --endpoints https://localhost:$PORT --command-timeout 300ms
         get a --cert $CERT --key $KEY --insecure-skip-tls-verify
         get a --cert $CERT --key $KEY --command-timeout 300ms
         get a --cacert $CA --command-timeout 300ms
         get a --cacert $OTHERCA --cert $CERT --key $KEY --command-timeout 300ms
         get a --cacert $CA --cert $OTHERCERT --key $OTHERKEY --command-timeout 300ms
         get a --insecure-skip-tls-verify --command-timeout 300ms
         get a --insecure-transport=false --command-timeout 300ms
         get a --command-timeout 300ms
         get a --user root:x --cacert $CA --dial-timeout 300ms
         get a --user root:x --cacert $CA --cert $CERT --key $KEY
         endpoint status --cacert $CA --command-timeout 300ms
         endpoint hashkv --cacert $OTHERCA --cert $CERT --key $KEY --command-timeout 300ms
         member list --cacert $OTHERCA --command-timeout 300ms",
    );
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

#[test]
fn certificates_of_etcd_s_own_making() {
    let Some(folder) = programs() else { return };
    let etcd = folder.join("etcd");
    let mut maker = start_auto_tls(&etcd);
    maker.listens();
    let (cert, key) = (maker.file("fixtures/client/cert.pem"), maker.file("fixtures/client/key.pem"));
    let other = Authority::new();
    let names: [(&str, &Path); 3] = [("$CERT", &cert), ("$KEY", &key), ("$OTHERCA", &other.file("ca.pem"))];
    let mut found = differences(
        &folder,
        &maker,
        &names,
        "* get a --cacert $CERT
         endpoint health --cacert $CERT
         get a --insecure-skip-tls-verify
         get a --cacert $CERT --endpoints https://localhost:$PORT --command-timeout 300ms
         get a --cacert $OTHERCA --command-timeout 300ms
         get a --insecure-transport=false --command-timeout 300ms",
    );
    // It is not made to be a client's: the server does not take it.
    let mut strict = start_with_files(&etcd, &[cert.clone(), cert.clone(), key.clone()]);
    strict.listens();
    found.extend(differences(
        &folder,
        &strict,
        &names,
        "get a --cacert $CERT --cert $CERT --key $KEY --command-timeout 500ms
         get a --cacert $CERT --command-timeout 300ms",
    ));
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}
