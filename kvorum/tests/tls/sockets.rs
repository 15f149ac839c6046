//! The sockets of files: clients, metrics and peers, in the clear and encrypted.

use super::*;
use crate::live::{block_on, is_other};
use client::key;
use client::wire::etcdserverpb::WatchCreateRequest;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// One request of HTTP/1.1; all that is answered.
fn ask(path: &Path, head: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("connects");
    let rest = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(format!("{head} HTTP/1.1\r\n{rest}").as_bytes()).expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("reads");
    answer
}

fn over(endpoint: String, tls: Option<Tls>) -> Client {
    let options = Options { tls, request_timeout: Some(PATIENCE), ..Options::of([endpoint]) };
    Client::connect(options).expect("an endpoint")
}

/// Our own tool, and the stock one if it is there, each with this endpoint and a command.
fn tools(endpoint: &str, args: &[&str], output: &str) {
    let mut ours = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    ours.arg("ctl");
    for mut tool in [Some(ours), etcdctl()].into_iter().flatten() {
        live::clean(&mut tool);
        let said = tool.arg(format!("--endpoints={endpoint}")).args(args).output().expect("runs");
        assert_eq!(String::from_utf8_lossy(&said.stdout), output, "{tool:?}: {said:?}");
    }
}

#[test]
fn files_serve_clients_metrics_and_peers() {
    let place = Place::new();
    let [plain, secure, metrics] = ["c.sock", "localhost:1", "m.sock"].map(|name| place.file(name));
    let at = |scheme: &str, path: &Path| format!("{scheme}://{}", text(path));
    let server = place.ca.issue("server", &["localhost"], "server", 1);
    // It names another host: over a file nobody comes from anywhere.
    let alice = place.ca.issue("alice", &["elsewhere.example"], "alice", 2);
    let ca = place.file("ca.pem");
    // An earlier process ended without its last words.
    drop(UnixListener::bind(&plain).expect("binds"));

    let peers: Vec<String> =
        (1..=3).map(|n| format!("m{n}={}", at("unixs", &place.file(&format!("localhost:m{n}"))))).collect();
    let mut members = Vec::new();
    for (n, mut spec) in Spec::cluster(place.dir.path(), if is_other() { 1 } else { 3 }, &[]).into_iter().enumerate() {
        if n == 0 {
            let url = format!("http://127.0.0.1:{}", spec.client_port);
            let urls = format!("{url},{},{}", at("unix", &plain), at("unixs", &secure));
            spec.extra.push(format!("--listen-client-urls={urls}"));
            spec.extra.push(format!("--advertise-client-urls={}", at("unix", &plain)));
            spec.extra.extend([flag("cert-file", &server.cert), flag("key-file", &server.key)]);
            spec.extra.extend([flag("trusted-ca-file", &ca), "--client-cert-auth".into()]);
        }
        // etcd reads the host alone of these.
        if !is_other() {
            if n == 0 {
                spec.extra.push(format!("--listen-metrics-urls={}", at("unix", &metrics)));
            }
            let own = peers[n].split_once('=').expect("a name").1;
            spec.extra.push(format!("--listen-peer-urls={own}"));
            spec.extra.push(format!("--initial-advertise-peer-urls={own}"));
            spec.extra.push(format!("--initial-cluster={}", peers.join(",")));
            spec.extra.extend([flag("peer-cert-file", &server.cert), flag("peer-key-file", &server.key)]);
            spec.extra.extend([flag("peer-trusted-ca-file", &ca), "--peer-client-cert-auth".into()]);
        }
        members.push(Member::spawn(spec));
    }
    members.iter_mut().for_each(Member::ready);

    let first = &mut members[0];
    let fields = format!("{{\"traffic\":\"grpc+http\",\"address\":\"{}\"}}", text(&plain));
    let shown = fields.trim_matches(['{', '}']);
    says(first, shown);
    says(first, &shown.replace(&text(&plain), &text(&secure)));
    let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    let by_mask = place.file("by-mask");
    drop(UnixListener::bind(&by_mask).expect("binds"));
    assert_eq!((mode(&plain), mode(&secure)), (mode(&by_mask), mode(&by_mask)));
    block_on(async {
        over(at("unix", &plain), None).put("k", "v").await.expect("puts");
        let kv = over(at("unixs", &secure), Some(trusting(&ca, Some(&alice)))).get("k").await.expect("gets");
        assert_eq!(kv.expect("is there").value.as_ref(), b"v");
        let stranger = over(at("unixs", &secure), Some(trusting(&ca, None)));
        let turned_away = async {
            while !first.log().contains("tls: client didn't provide a certificate") {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            put = stranger.put("k", "x") => panic!("it shows no certificate: {put:?}"),
            () = turned_away => {}
        }
        over(at("unix", &plain), None).put("k", "w").await.expect("puts");
        let all = WatchCreateRequest { start_revision: 1, ..key("k").into() };
        let events = over(at("unix", &plain), None).watch(all).next().await.expect("an answer").events;
        assert_eq!(events.len(), 2);
    });
    tools(&at("unix", &plain), &["get", "k"], "k\nw\n");
    let listed = ask(&plain, "POST /v3/kv/range", r#"{"key":"aw=="}"#);
    assert!(listed.starts_with("HTTP/1.1 200") && listed.contains(r#""value":"dw==""#), "{listed}");
    // In the clear to what is encrypted: closed without a word.
    let mut stream = UnixStream::connect(&secure).expect("connects");
    stream.write_all(b"GET /health HTTP/1.1\r\n\r\n").expect("writes");
    assert!(!matches!(stream.read(&mut [0; 8]), Ok(1..)));
    if is_other() {
        return;
    }
    let page = ask(&metrics, "GET /metrics", "");
    assert!(page.contains("etcd_server_has_leader 1"), "{page}");
    assert!(ask(&metrics, "POST /v3/kv/range", "{}").starts_with("HTTP/1.1 404"));

    // Whoever has the place keeps it, and a file that is no socket stays.
    let mut second = Spec::alone(place.dir.path(), &[]);
    second.extra = vec![format!("--listen-client-urls={}", at("unix", &plain))];
    let ended = second.run_to_end();
    let text_of = format!("listen unix {}: bind: address already in use", text(&plain));
    assert!(ended.code == Some(1) && ended.stderr.contains(&text_of), "{ended:?}");
    let note = place.file("note");
    std::fs::write(&note, "kept").expect("writes");
    second.extra = vec![format!("--listen-client-urls={}", at("unix", &note))];
    let ended = second.run_to_end();
    assert!(ended.code == Some(1) && ended.stderr.contains("there is a file that is no socket"), "{ended:?}");
    assert_eq!(std::fs::read_to_string(&note).expect("reads"), "kept");

    // What is stopped leaves no file; what is killed leaves one that the next start removes.
    let (status, _) = members[0].stop(rustix::process::Signal::TERM);
    assert_eq!(live::shell_code(status), Some(143));
    let left = [&plain, &secure, &metrics, &place.file("localhost:m1")].map(|path| path.exists());
    assert_eq!(left, [false; 4]);
    members[0].respawn();
    members[0].ready();
    members[0].kill();
    assert!(plain.exists());
    members[0].respawn();
    members[0].ready();
    tools(&at("unix", &plain), &["get", "k", "--print-value-only"], "w\n");
}
