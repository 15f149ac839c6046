//! The client port.

use super::*;
use crate::live::{block_on, http, is_other};
use rustls::version::{TLS12, TLS13};

#[test]
fn an_https_port_speaks_tls_and_nothing_else() {
    let place = Place::new();
    let mut member = place.encrypted(&[]);
    let (port, ca) = (member.spec.client_port, place.file("ca.pem"));
    says(&mut member, "serving client traffic securely");
    assert_eq!(times(&member, "serving client traffic insecurely"), 0);
    block_on(async {
        let ours = client(&member, trusting(&ca, None));
        ours.put("k", "v").await.expect("puts");
        assert_eq!(ours.get("k").await.expect("gets").expect("is there").value.as_ref(), b"v");
        let version = get(port, &ca, None, "/version").await.expect("answers");
        assert!(version.starts_with("HTTP/1.1 200") && version.contains("3.7.3"), "{version}");
        // Without a word of what it speaks inside, as curl --no-alpn.
        let plain = shake(port, &ca, None, rustls::ALL_VERSIONS, "").await.expect("shakes hands");
        assert_eq!(plain.get_ref().1.alpn_protocol(), None);
        let stranger = Authority::new(place.dir.path(), "stranger");
        let error = shake(port, &place.file("stranger.pem"), None, rustls::ALL_VERSIONS, "h2").await.err();
        assert!(error.expect("not trusted").to_string().contains("UnknownIssuer"));
        drop(stranger);
        assert_eq!(plainly(port, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await, b"");
        assert_eq!(plainly(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, b"");
    });
    says(&mut member, "rejected connection on client endpoint");
    says(&mut member, "tls: first record does not look like a TLS handshake");
    says(&mut member, "remote error: tls: unknown certificate authority");
}

#[test]
fn the_stock_etcdctl_speaks_with_it() {
    let place = Place::new();
    let member = place.encrypted(&[&flag("trusted-ca-file", place.file("ca.pem")), "--client-cert-auth"]);
    let alice = place.ca.issue("alice", &[], "alice", 2);
    let Some(mut command) = etcdctl() else { return };
    command.arg(format!("--endpoints=https://127.0.0.1:{}", member.spec.client_port));
    command.arg(flag("cacert", place.file("ca.pem"))).arg(flag("cert", &alice.cert)).arg(flag("key", &alice.key));
    let output = command.args(["put", "k", "v"]).output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "OK\n", "{output:?}");
}

#[test]
fn one_port_serves_http_and_https() {
    let place = Place::new();
    let server = place.ca.issue("server", &["127.0.0.1"], "server", 1);
    let mut spec = Spec::alone(place.dir.path(), &[]);
    let port = spec.client_port;
    spec.extra = client_flags(&spec, &server);
    let urls = format!("https://127.0.0.1:{port},http://127.0.0.1:{port}");
    spec.extra.push(format!("--listen-client-urls={urls}"));
    spec.extra.push(format!("--advertise-client-urls={urls}"));
    let mut member = Member::spawn(spec);
    serves(&mut member);
    says(&mut member, "serving client traffic securely");
    says(&mut member, "serving client traffic insecurely; this is strongly discouraged!");
    says(&mut member, "scheme is http or unix while key and cert files are present; ignoring key and cert files");
    block_on(async {
        client(&member, trusting(&place.file("ca.pem"), None)).put("k", "v").await.expect("encrypted");
        live::client_of([&member]).put("k", "w").await.expect("in the clear");
        let version = get(port, &place.file("ca.pem"), None, "/version").await.expect("answers");
        assert!(version.starts_with("HTTP/1.1 200"), "{version}");
    });
    assert_eq!(http::get(port, "/version").expect("answers").status, 200);
}

#[test]
fn a_trusted_ca_asks_every_client_for_a_certificate() {
    let place = Place::new();
    let ca = place.file("ca.pem");
    let mut member = place.encrypted(&[&flag("trusted-ca-file", &ca)]);
    let alice = place.ca.issue("alice", &[], "alice", 2);
    let stranger = Authority::new(place.dir.path(), "stranger").issue("mallory", &[], "mallory", 3);
    block_on(async {
        client(&member, trusting(&ca, Some(&alice))).put("k", "v").await.expect("is known");
        refused(&client(&member, trusting(&ca, None))).await;
        refused(&client(&member, trusting(&ca, Some(&stranger)))).await;
    });
    says(&mut member, "tls: client didn't provide a certificate");
    says(&mut member, "tls: failed to verify certificate: x509: certificate signed by unknown authority");
}

#[test]
fn a_certificate_must_name_an_allowed_host() {
    let place = Place::new();
    let ca = place.file("ca.pem");
    let extra = [&flag("trusted-ca-file", &ca)[..], "--client-cert-allowed-hostname=a.example,b.example"];
    let mut member = place.encrypted(&extra);
    let allowed = place.ca.issue("allowed", &["b.example"], "x", 2);
    let other = place.ca.issue("other", &["c.example"], "a.example", 3);
    block_on(async {
        client(&member, trusting(&ca, Some(&allowed))).put("k", "v").await.expect("is allowed");
        let told = get(member.spec.client_port, &ca, Some(&other), "/version").await.expect_err("is not");
        assert!(told.to_string().contains("BadCertificate"), "{told}");
    });
    says(&mut member, "client certificate authentication failed");
}

#[test]
fn a_revoked_client_is_refused_from_its_next_connection_on() {
    let place = Place::new();
    let ca = place.file("ca.pem");
    let crl = place.ca.revoke(&[99]);
    let mut member = place.encrypted(&[&flag("trusted-ca-file", &ca), &flag("client-crl-file", &crl)]);
    let (alice, bob) = (place.ca.issue("alice", &[], "alice", 0x2a), place.ca.issue("bob", &[], "bob", 0x2b));
    block_on(async {
        let stands = client(&member, trusting(&ca, Some(&alice)));
        stands.put("k", "1").await.expect("not revoked");
        place.ca.revoke(&[99, 0x2a]);
        refused(&client(&member, trusting(&ca, Some(&alice)))).await;
        client(&member, trusting(&ca, Some(&bob))).put("k", "2").await.expect("not revoked");
        stands.put("k", "3").await.expect("a connection that stands is not cut");
    });
    says(&mut member, "transport: certificate serial 2a revoked");
}

/// etcd reads its CA file at the start alone, and shows no certificate while the files are of no
/// use.
#[test]
fn certificates_change_under_a_running_client() {
    if is_other() {
        return;
    }
    let place = Place::new();
    let ca = place.file("ca.pem");
    let mut member = place.encrypted(&[&flag("trusted-ca-file", &ca)]);
    let port = member.spec.client_port;
    let alice = place.ca.issue("alice", &[], "alice", 2);
    // A second authority takes over: first trusted besides, then alone.
    let next = Authority::new(place.dir.path(), "next");
    let carol = next.issue("carol", &[], "carol", 3);
    let both = place.file("both.pem");
    std::fs::write(&both, format!("{}{}", place.ca.pem(), next.pem())).expect("written");
    block_on(async {
        let stands = client(&member, trusting(&both, Some(&alice)));
        stands.put("k", "1").await.expect("puts");
        refused(&client(&member, trusting(&both, Some(&carol)))).await;
        std::fs::copy(&both, &ca).expect("copied");
        client(&member, trusting(&both, Some(&carol))).put("k", "2").await.expect("trusted by now");
        let shown = async |own: &Pair| {
            let stream = shake(port, &both, Some(own), rustls::ALL_VERSIONS, "h2").await.expect("shakes hands");
            stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
        };
        let before = shown(&alice).await;
        next.issue("server", &["127.0.0.1"], "server", 4);
        let after = shown(&alice).await;
        assert_ne!(before, after, "the new certificate is shown");
        assert_eq!(after, tls::certificates(&place.file("server.pem")).expect("read")[0]);
        // Of no use: a certificate without its key, then garbage.
        for _ in 0..2 {
            std::fs::write(place.file("server.pem"), "garbage").expect("written");
            for _ in 0..3 {
                assert_eq!(shown(&alice).await, after, "the one from before stays");
            }
        }
        next.issue("server", &["127.0.0.1"], "server", 5);
        assert_ne!(shown(&carol).await, after);
        std::fs::write(&ca, next.pem()).expect("written");
        refused(&client(&member, trusting(&both, Some(&alice)))).await;
        stands.put("k", "3").await.expect("a connection that stands is not cut");
    });
    says(&mut member, "read the changed TLS files");
    assert_eq!(times(&member, "the changed TLS files are of no use"), 2, "once for each change");
}

#[test]
fn auto_tls_needs_no_files() {
    let place = Place::new();
    let mut spec = Spec::alone(place.dir.path(), &[]);
    let (port, dir) = (spec.client_port, spec.dir.clone());
    let url = format!("https://127.0.0.1:{port}");
    spec.extra =
        vec![format!("--listen-client-urls={url}"), format!("--advertise-client-urls={url}"), "--auto-tls".into()];
    let mut member = Member::spawn(spec);
    serves(&mut member);
    let made = std::fs::read(dir.join("fixtures/client/cert.pem")).expect("is there");
    block_on(async {
        let anyone = Tls { insecure_skip_verify: true, ..Tls::default() };
        client(&member, anyone).put("k", "v").await.expect("puts");
        let named = trusting(&dir.join("fixtures/client/cert.pem"), None);
        client(&member, named).put("k", "v").await.expect("the certificate vouches for itself");
    });
    member.kill();
    member.respawn();
    block_on(async {
        let named = trusting(&dir.join("fixtures/client/cert.pem"), None);
        client(&member, named).put("k", "v").await.expect("the same certificate");
    });
    assert_eq!(std::fs::read(dir.join("fixtures/client/cert.pem")).expect("is there"), made);
}

#[test]
fn versions_and_suites_are_those_of_the_flags() {
    let place = Place::new();
    let ca = place.file("ca.pem");
    let newest = place.encrypted(&["--tls-min-version=TLS1.3"]);
    let port = newest.spec.client_port;
    block_on(async {
        shake(port, &ca, None, &[&TLS13], "h2").await.expect("new enough");
        shake(port, &ca, None, &[&TLS12], "h2").await.expect_err("too old");
    });
    drop(newest);
    let place = Place::new();
    // Not the first choice of this client. Go wants it among them for HTTP/2.
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let oldest = place.encrypted(&["--tls-max-version=TLS1.2", &format!("--cipher-suites={suite}")]);
    let (port, ca) = (oldest.spec.client_port, place.file("ca.pem"));
    block_on(async {
        let stream = shake(port, &ca, None, rustls::ALL_VERSIONS, "h2").await.expect("shakes hands");
        let chosen = stream.get_ref().1.negotiated_cipher_suite().expect("a suite").suite();
        assert_eq!(chosen.as_str(), Some(suite));
        shake(port, &ca, None, &[&TLS13], "h2").await.expect_err("too new");
    });
}

#[test]
fn metrics_have_an_https_port_of_their_own() {
    let place = Place::new();
    let metrics = live::free_port();
    let member = place.encrypted(&[&format!("--listen-metrics-urls=https://127.0.0.1:{metrics}")]);
    block_on(async {
        let page = get(metrics, &place.file("ca.pem"), None, "/metrics").await.expect("answers");
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("etcd_server_has_leader"), "{page}");
    });
    drop(member);
}

/// Callers that begin a handshake and say no more are gone after ten seconds, and stop nobody
/// meanwhile.
#[test]
fn half_handshakes_stop_nobody_and_end() {
    let place = Place::new();
    let member = place.encrypted(&[]);
    let (port, ca) = (member.spec.client_port, place.file("ca.pem"));
    block_on(async {
        let begun = Instant::now();
        // The head of a record of a handshake, and nothing in it.
        let half: Vec<_> = (0..100).map(|_| tokio::spawn(plainly(port, &[0x16, 3, 1, 1, 0]))).collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let honest = client(&member, trusting(&ca, None));
        let asked = Instant::now();
        honest.put("k", "v").await.expect("puts");
        assert!(asked.elapsed() < Duration::from_secs(3), "took {:?}", asked.elapsed());
        for half in half {
            assert_eq!(half.await.expect("ended"), b"");
        }
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(8) && took < Duration::from_secs(20), "ended after {took:?}");
        if !is_other() {
            let page = get(port, &ca, None, "/metrics").await.expect("answers");
            assert!(page.contains("\nkvorum_client_handshakes_failed_total 100\n"), "{page}");
        }
    });
}

/// As a static pod of kubeadm starts it.
#[test]
fn the_flags_of_kubeadm_start_a_member() {
    let place = Place::new();
    let spec = Spec::alone(place.dir.path(), &[]);
    let (client_port, peer_port, metrics) = (spec.client_port, spec.peer_port, live::free_port());
    let server = place.ca.issue("server", &["localhost", "127.0.0.1", "::1"], "node", 1);
    let peer = place.ca.issue("peer", &["localhost", "127.0.0.1", "::1"], "node", 2);
    let ca = place.file("ca.pem");
    let extra = [
        format!("--advertise-client-urls=https://127.0.0.1:{client_port}"),
        flag("cert-file", &server.cert),
        "--client-cert-auth=true".into(),
        "--feature-gates=InitialCorruptCheck=true".into(),
        "--watch-progress-notify-interval=5s".into(),
        format!("--initial-advertise-peer-urls=https://127.0.0.1:{peer_port}"),
        format!("--initial-cluster=m1=https://127.0.0.1:{peer_port}"),
        flag("key-file", &server.key),
        format!("--listen-client-urls=https://127.0.0.1:{client_port},https://[::1]:{client_port}"),
        format!("--listen-metrics-urls=http://127.0.0.1:{metrics}"),
        format!("--listen-peer-urls=https://127.0.0.1:{peer_port}"),
        flag("peer-cert-file", &peer.cert),
        "--peer-client-cert-auth=true".into(),
        flag("peer-key-file", &peer.key),
        flag("peer-trusted-ca-file", &ca),
        "--snapshot-count=10000".into(),
        flag("trusted-ca-file", &ca),
    ];
    let mut member = Member::spawn(Spec { extra: extra.to_vec(), ..spec });
    serves(&mut member);
    block_on(async {
        let admin = place.ca.issue("admin", &[], "kube-apiserver-etcd-client", 3);
        client(&member, trusting(&ca, Some(&admin))).put("k", "v").await.expect("puts");
    });
    for path in ["/livez", "/readyz", "/health?serializable=false", "/metrics"] {
        assert_eq!(http::get(metrics, path).expect("answers").status, 200, "{path}");
    }
}
