//! The peer port.

use super::*;
use crate::live::{block_on, is_other};

/// Flags of a member whose peer port is encrypted.
fn peer_flags(spec: &Spec, pair: &Pair, ca: &Path) -> Vec<String> {
    let url = format!("https://127.0.0.1:{}", spec.peer_port);
    vec![
        format!("--listen-peer-urls={url}"),
        format!("--initial-advertise-peer-urls={url}"),
        flag("peer-cert-file", &pair.cert),
        flag("peer-key-file", &pair.key),
        flag("peer-trusted-ca-file", ca),
        "--peer-client-cert-auth".into(),
    ]
}

/// Three members; `change` adds to the flags of each.
fn three(place: &Place, change: impl Fn(usize, &mut Vec<String>)) -> Vec<Member> {
    let mut specs = Spec::cluster(place.dir.path(), 3, &["--heartbeat-interval=50", "--election-timeout=500"]);
    for (n, spec) in specs.iter_mut().enumerate() {
        spec.initial_cluster = spec.initial_cluster.replace("http://", "https://");
        let pair = place.ca.issue(&format!("peer{n}"), &["127.0.0.1"], &format!("peer{n}"), 10 + n as u64);
        let flags = peer_flags(spec, &pair, &place.file("ca.pem"));
        spec.extra.extend(flags);
        change(n, &mut spec.extra);
    }
    specs.into_iter().map(Member::spawn).collect()
}

/// A majority takes a write. etcd's fails if the leader has just died; this is said again there
/// alone.
fn goes_on<'a>(members: impl IntoIterator<Item = &'a Member>, value: &'static str) {
    let (client, until) = (live::client_of(members), Instant::now() + PATIENCE);
    block_on(async {
        while let Err(error) = client.put("k", value).await {
            assert!(is_other() && Instant::now() < until, "{error}");
        }
    });
}

#[test]
fn three_members_trust_one_authority() {
    let place = Place::new();
    let mut members = three(&place, |_, _| ());
    members.iter_mut().for_each(Member::ready);
    block_on(async {
        live::client_of(&members).put("k", "v").await.expect("puts");
        let port = members[0].spec.peer_port;
        let pair = Pair { cert: place.file("peer1.pem"), key: place.file("peer1.key") };
        let list = get(port, &place.file("ca.pem"), Some(&pair), "/members").await.expect("answers");
        assert!(list.starts_with("HTTP/1.1 200") && list.contains("\"peerURLs\":[\"https://127.0.0.1:"), "{list}");
        get(port, &place.file("ca.pem"), None, "/members").await.expect_err("shows no certificate");
        assert_eq!(plainly(port, b"GET /members HTTP/1.1\r\nHost: x\r\n\r\n").await, b"");
    });
    says(&mut members[0], "rejected connection on peer endpoint");
    says(&mut members[0], "tls: client didn't provide a certificate");
    says(&mut members[0], "tls: first record does not look like a TLS handshake");
    // A member that was away finds the others again.
    members[2].kill();
    goes_on(&members[..2], "w");
    members[2].respawn();
    members[2].ready();
    block_on(async {
        let read = live::client_of([&members[2]]).get("k").await.expect("reads").expect("is there");
        assert_eq!(read.value.as_ref(), b"w");
    });
}

/// etcd reads its CA file at the start alone.
#[test]
fn peers_change_their_authority_one_by_one() {
    if is_other() {
        return;
    }
    let place = Place::new();
    let ca = place.file("ca.pem");
    let mut members = three(&place, |_, _| ());
    members.iter_mut().for_each(Member::ready);
    let next = Authority::new(place.dir.path(), "next");
    std::fs::write(&ca, format!("{}{}", place.ca.pem(), next.pem())).expect("written");
    for n in 0..3 {
        next.issue(&format!("peer{n}"), &["127.0.0.1"], "new", 20 + n);
    }
    std::fs::write(&ca, next.pem()).expect("written");
    // Connections that stand go on; each member that is restarted shakes hands with the others
    // anew.
    block_on(async { live::client_of(&members).put("k", "1").await.expect("puts") });
    for n in 0..3 {
        members[n].kill();
        let others: Vec<&Member> =
            members.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, member)| member).collect();
        goes_on(others, "2");
        members[n].respawn();
        members[n].ready();
    }
}

/// Waits until one of them says it; none of them may serve.
fn not_founded(members: &mut [Member], words: &str) {
    let until = Instant::now() + PATIENCE;
    while !members.iter().any(|member| member.log().contains(words)) {
        assert!(Instant::now() < until, "nobody says {words:?}\n{}", members[0].log());
        std::thread::sleep(LOOK_EVERY);
    }
    for member in members {
        assert!(!member.log().contains("ready to serve client requests"));
    }
}

#[test]
fn a_peer_comes_from_where_its_certificate_says() {
    let place = Place::new();
    let elsewhere = place.ca.issue("elsewhere", &["10.255.0.1"], "x", 30);
    let mut members = three(&place, |_, flags| {
        flags.push(flag("peer-client-cert-file", &elsewhere.cert));
        flags.push(flag("peer-client-key-file", &elsewhere.key));
    });
    not_founded(&mut members, "x509: certificate is valid for 10.255.0.1, not 127.0.0.1");
    drop(members);
    let place = Place::new();
    let elsewhere = place.ca.issue("elsewhere", &["10.255.0.1"], "x", 30);
    let mut members = three(&place, |_, flags| {
        flags.push(flag("peer-client-cert-file", &elsewhere.cert));
        flags.push(flag("peer-client-key-file", &elsewhere.key));
        flags.push("--peer-skip-client-san-verification".into());
    });
    members.iter_mut().for_each(Member::ready);
}

#[test]
fn a_peer_must_have_an_allowed_name() {
    let place = Place::new();
    let mut members = three(&place, |_, flags| flags.push("--peer-cert-allowed-cn=somebody,else".into()));
    not_founded(&mut members, "client certificate authentication failed");
    drop(members);
    let place = Place::new();
    let mut members = three(&place, |_, flags| flags.push("--peer-cert-allowed-cn=peer0,peer1,peer2".into()));
    members.iter_mut().for_each(Member::ready);
}

#[test]
fn a_revoked_peer_is_shut_out() {
    let place = Place::new();
    let crl = place.ca.revoke(&[99]);
    let mut members = three(&place, |_, flags| flags.push(flag("peer-crl-file", &crl)));
    members.iter_mut().for_each(Member::ready);
    place.ca.revoke(&[99, 12]);
    members[2].kill();
    members[2].respawn();
    says(&mut members[0], "transport: certificate serial 0c revoked");
    goes_on(&members[..2], "v");
}

/// etcd lets any certificate of the authority speak for any member.
#[test]
fn a_member_speaks_for_itself_alone() {
    if is_other() {
        return;
    }
    let place = Place::new();
    // It comes from 127.0.0.1 by its name, but no peer URL has this name.
    let other = place.ca.issue("other", &["localhost"], "x", 30);
    let mut members = three(&place, |n, flags| {
        if n == 2 {
            flags.push(flag("peer-client-cert-file", &other.cert));
            flags.push(flag("peer-client-key-file", &other.key));
        }
    });
    says(&mut members[0], "the certificate names no host of the peer URLs of member");
    block_on(async { live::client_of(&members[..2]).put("k", "v").await.expect("two are a majority") });
}

#[test]
fn peers_encrypt_without_files() {
    let place = Place::new();
    let mut specs = Spec::cluster(place.dir.path(), 3, &["--peer-auto-tls"]);
    for spec in &mut specs {
        spec.initial_cluster = spec.initial_cluster.replace("http://", "https://");
        let url = format!("https://127.0.0.1:{}", spec.peer_port);
        spec.extra.push(format!("--listen-peer-urls={url}"));
        spec.extra.push(format!("--initial-advertise-peer-urls={url}"));
    }
    let mut members: Vec<Member> = specs.into_iter().map(Member::spawn).collect();
    members.iter_mut().for_each(Member::ready);
    assert!(members[0].spec.dir.join("fixtures/peer/key.pem").exists());
}

/// The new member is a guest of those that do not know it yet: its certificate names its own host.
#[test]
fn a_member_joins_over_https() {
    let place = Place::new();
    let mut members = three(&place, |_, _| ());
    members.iter_mut().for_each(Member::ready);
    let mut spec = members[0].spec.clone();
    (spec.name, spec.dir) = ("m4".into(), place.dir.path().join("m4"));
    (spec.client_port, spec.peer_port) = (live::free_port(), live::free_port());
    let url = format!("https://127.0.0.1:{}", spec.peer_port);
    spec.initial_cluster += &format!(",m4={url}");
    let pair = place.ca.issue("peer4", &["127.0.0.1"], "peer4", 40);
    spec.extra = vec!["--heartbeat-interval=50".into(), "--election-timeout=500".into()];
    spec.extra.extend(peer_flags(&spec, &pair, &place.file("ca.pem")));
    spec.extra.push("--initial-cluster-state=existing".into());
    block_on(async {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = live::client_of(&members).member_add(vec![url.clone()], false).await {
            assert!(error.says("etcdserver: unhealthy cluster") && Instant::now() < until, "{error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let mut joined = Member::start(spec);
    goes_on(members.iter().chain([&joined]), "v");
    // Three of four, the new one among them.
    members[0].kill();
    goes_on(members[1..].iter().chain([&joined]), "w");
    joined.kill();
}
