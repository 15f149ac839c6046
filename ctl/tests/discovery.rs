//! `--discovery-srv` against a name server of the test's own, which only our
//! tool can be told of, and real etcds with and without encryption. Needs
//! `KVORUM_TEST_ETCD`.

mod live;

use std::{
    net::{SocketAddr, UdpSocket},
    process::Command,
    time::{Duration, Instant},
};

use hickory_proto::{
    op::{Message, MessageType, OpCode, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::SRV},
};
use live::{PATIENCE, certs::Authority, ours, programs, start, start_encrypted};

/// Answers queries for these SRV records, name, port and target, for as long as
/// the test runs; what it does not have does not exist.
fn name_server(records: Vec<(String, u16, &'static str)>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let query = Message::from_vec(&buffer[..length]).expect("a query");
            let reply = answer(&query, &records).to_vec().expect("a message");
            let _ = socket.send_to(&reply, from);
        }
    });
    address
}

fn answer(query: &Message, records: &[(String, u16, &'static str)]) -> Message {
    let asked = query.queries[0].clone();
    let mut reply = Message::new(query.metadata.id, MessageType::Response, OpCode::Query);
    reply.add_query(asked.clone());
    for (name, port, target) in records {
        if asked.query_type() == RecordType::SRV && asked.name() == &Name::from_ascii(name).expect("a name") {
            let srv = SRV::new(1, 1, *port, Name::from_ascii(target).expect("a name"));
            reply.add_answer(Record::from_rdata(asked.name().clone(), 60, RData::SRV(srv)));
        }
    }
    if reply.answers.is_empty() {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    reply
}

/// What ends only because its time is over gets no more of it.
const BRIEFLY: [&str; 2] = ["--command-timeout", "2s"];

/// Exit code, standard output, standard error.
fn run(resolver: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(ours());
    command.args(words).env("KVORUM_RESOLVER", resolver);
    if !words.contains(&BRIEFLY[0]) {
        command.args([BRIEFLY[0], "60s"]);
    }
    let output = command.env_remove("ETCDCTL_ENDPOINTS").output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn says(answer: (Option<i32>, String, String), code: i32, out: &str, err: &str) {
    assert_eq!((answer.0, answer.1.as_str(), answer.2.as_str()), (Some(code), out, err));
}

#[test]
fn endpoints_come_from_the_name_service() {
    let Some(folder) = programs() else { return };
    let server = start(&folder.join("etcd"), None);
    let resolver = name_server(vec![
        ("_etcd-client._tcp.a.test.".to_owned(), server.port, "127.0.0.1."),
        ("_etcd-client-blue._tcp.a.test.".to_owned(), server.port, "localhost."),
    ]);
    let resolver = resolver.to_string();
    says(run(&resolver, &["put", "k", "v", "--discovery-srv", "a.test"]), 0, "OK\n", "");
    let blue = ["get", "k", "-d", "a.test.", "--discovery-srv-name", "blue"];
    says(run(&resolver, &blue), 0, "k\nv\n", "");
    let health = run(&resolver, &["endpoint", "health", "-d", "a.test"]);
    assert!(health.1.starts_with(&format!("http://127.0.0.1:{} is healthy", server.port)), "{health:?}");
    // Records without encryption are not wanted: what --endpoints says is left.
    let here = format!("127.0.0.1:{}", server.port);
    let strict = ["get", "k", "-d", "a.test", "--insecure-discovery=false", "--endpoints", &here];
    let ignored = format!("ignoring discovered insecure endpoint \"http://{here}\"\n");
    says(run(&resolver, &strict), 0, "k\nv\n", &ignored);
    // Nothing is found.
    let lookup = |service: &str| format!("lookup {service}._tcp.b.test on {resolver}: no such host");
    let none = format!("Error: dns lookup errors: {} and {}\n", lookup("_etcd-client-ssl-x"), lookup("_etcd-client-x"));
    says(run(&resolver, &["get", "k", "-d", "b.test", "--discovery-srv-name", "x"]), 1, "", &none);
    let wrong = "Error: KVORUM_RESOLVER=nobody is not address:port\n";
    says(run("nobody", &["get", "k", "-d", "a.test"]), 1, "", wrong);
}

#[test]
fn who_wants_encryption_wants_the_certificate_of_the_domain() {
    let Some(folder) = programs() else { return };
    let authority = Authority::new();
    authority.issue("server", &["a.test", "localhost", "127.0.0.1"]);
    authority.issue("client", &["ann"]);
    let server = start_encrypted(&folder.join("etcd"), &authority);
    let record = |domain: &str| (format!("_etcd-client-ssl._tcp.{domain}.test."), server.port, "localhost.");
    let resolver = name_server(vec![record("a"), record("other")]).to_string();
    let file = |name: &str| authority.file(name).to_string_lossy().into_owned();
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let with = |words: &[&str]| {
        let tls = ["--cacert", &ca, "--cert", &cert, "--key", &key];
        run(&resolver, &[words, &tls[..]].concat())
    };
    until_it_serves(|| with(&["put", "k", "v", "-d", "a.test", BRIEFLY[0], BRIEFLY[1]]).0 == Some(0));
    says(with(&["get", "k", "-d", "a.test", "--insecure-discovery=false"]), 0, "k\nv\n", "");
    // The certificate of the host is enough for who trusts the name service.
    says(with(&["get", "k", "-d", "other.test"]), 0, "k\nv\n", "");
    let refused = "Error: context deadline exceeded\n";
    let strict = ["get", "k", "-d", "other.test", "--insecure-discovery=false", BRIEFLY[0], BRIEFLY[1]];
    says(with(&strict), 1, "", refused);
    // Without a certificate of its own nobody is let in.
    let nobody = ["get", "k", "-d", "a.test", "--cacert", &ca, BRIEFLY[0], BRIEFLY[1]];
    says(run(&resolver, &nobody), 1, "", refused);
}

fn until_it_serves(mut serves: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !serves() {
        assert!(Instant::now() < deadline, "the server does not serve");
        std::thread::sleep(Duration::from_millis(50));
    }
}
