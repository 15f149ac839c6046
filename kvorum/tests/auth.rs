//! Users, roles and tokens, over the JSON gateway: a story, and the matrix of every RPC and every
//! identity.
//!
//! Both are golden files (`tests/auth/*.txt`). `KVORUM_TEST_BIN` plays them against another
//! program: a real etcd says the same, which is how the files were found. What differs on purpose
//! is named in `docs/compat.md`.

mod live;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine;
use client::wire::{self, Kind, Rpc};
use live::{Alone, PATIENCE, is_other};
use serde_json::Value;
use testkit::golden;

struct Session {
    server: Alone,
    tokens: BTreeMap<String, String>,
}

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A request is written with its keys as `<key>`, and they are sent as base64.
fn encoded(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, behind)) = rest.split_once('<') {
        let (key, behind) = behind.split_once('>').expect("a key ends");
        out += before;
        out += &base64(&key.replace("\\0", "\0"));
        rest = behind;
    }
    out + rest
}

/// What two programs say alike of the same: no header, no tokens, no ids that they choose.
fn shown(value: &Value) -> String {
    fn clean(value: &mut Value) {
        if let Value::Object(map) = value {
            for gone in ["header", "raft_term", "db_size"] {
                map.remove(gone);
            }
            if let Some(token) = map.get_mut("token") {
                *token = "TOKEN".into();
            }
            map.values_mut().for_each(clean);
        } else if let Value::Array(all) = value {
            all.iter_mut().for_each(clean);
        }
    }
    let mut value = value.clone();
    clean(&mut value);
    value.to_string()
}

/// The code of an answer, and its text or what it says. A refused watch is one, whatever the
/// transport says.
fn outcome(value: &Value) -> (u64, String) {
    let inner = value.get("error").filter(|error| error.is_object()).unwrap_or(value);
    if let (Some(code), Some(message)) = (inner.get("code").and_then(Value::as_u64), inner.get("message")) {
        return (code, message.as_str().unwrap_or_default().to_owned());
    }
    let result = value.get("result").unwrap_or(value);
    if let Some(reason) = result.get("cancel_reason").and_then(Value::as_str) {
        let name = reason.split("code = ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        let code = [("PermissionDenied", 7), ("InvalidArgument", 3), ("Unauthenticated", 16)];
        let code = code.iter().find(|(known, _)| *known == name).map_or(2, |(_, code)| *code);
        return (code, reason.to_owned());
    }
    (0, shown(result))
}

impl Session {
    fn new(extra: &[&str]) -> Session {
        Session { server: Alone::new(extra), tokens: BTreeMap::new() }
    }

    /// Of a stream, the first message counts.
    fn ask(&self, who: &str, route: &str, body: &str, stream: bool) -> (u64, String) {
        let port = self.server.port();
        let token = match who {
            "nobody" => String::new(),
            "bad" => "Authorization: aaaaaaaaaaaaaaaa.1\r\n".into(),
            name => format!("Authorization: {}\r\n", self.tokens[name]),
        };
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = format!(
            "POST {route} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).expect("sends");
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let read = socket.read(&mut piece).expect("reads");
            bytes.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&bytes);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                assert!(read > 0, "{route}: the connection ends: {text}");
                continue;
            };
            // A chunk is a line of JSON behind a line with its size.
            let first = body.lines().map(str::trim).find(|line| line.starts_with('{') && line.ends_with('}'));
            match first {
                Some(line) if stream || read == 0 => {
                    return outcome(&serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
                }
                // A stream that said nothing; an answer in one piece.
                _ if read == 0 => return (0, head.lines().next().unwrap_or_default().to_owned()),
                _ => {}
            }
        }
    }

    fn login(&mut self, name: &str, password: &str) -> (u64, String) {
        let body = format!(r#"{{"name":"{name}","password":"{password}"}}"#);
        let port = self.server.port();
        let answer = live::http::post(port, "/v3/auth/authenticate", &body).expect("an answer").json();
        if let Some(token) = answer.get("token").and_then(Value::as_str) {
            self.tokens.insert(name.to_owned(), token.to_owned());
        }
        outcome(&answer)
    }

    /// `login NAME PASSWORD`, or `WHO: ROUTE BODY`.
    fn line(&mut self, line: &str) -> String {
        if let Some(rest) = line.strip_prefix("login ") {
            let (name, password) = rest.split_once(' ').unwrap_or((rest, ""));
            let (code, text) = self.login(name, password);
            return format!("{code} {text}\n");
        }
        let (who, rest) = line.split_once(": ").expect("WHO: ROUTE BODY");
        let (route, body) = rest.split_once(' ').unwrap_or((rest, "{}"));
        let route = format!("/v3/{route}");
        let method = wire::method_by_json(&route).unwrap_or_else(|| panic!("no route {route}"));
        let (code, text) = self.ask(who, &route, &encoded(body), method.kind != Kind::Unary);
        format!("{code} {text}\n")
    }
}

#[test]
fn a_story_of_users() {
    golden::file(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/auth/story.txt"), |text| {
        let mut session = Session::new(&["--bcrypt-cost=4"]);
        golden::lines(text, |line| session.line(line))
    });
}

/// A request of each RPC that is harmless and well formed. None: it has no route of its own here.
fn sample(rpc: Rpc) -> Option<&'static str> {
    Some(match rpc {
        Rpc::Range | Rpc::RangeStream => r#"{"key":"<a>"}"#,
        Rpc::Put => r#"{"key":"<a>","value":"<1>"}"#,
        Rpc::DeleteRange => r#"{"key":"<none>"}"#,
        Rpc::Txn => r#"{"compare":[{"key":"<a>"}],"success":[{"requestPut":{"key":"<a>"}}]}"#,
        Rpc::Compact => r#"{"revision":"2"}"#,
        Rpc::Watch => r#"{"create_request":{"key":"<a>"}}"#,
        Rpc::LeaseGrant => r#"{"TTL":"600"}"#,
        Rpc::LeaseRevoke => r#"{"ID":"77"}"#,
        Rpc::LeaseKeepAlive => r#"{"ID":"78"}"#,
        Rpc::LeaseTimeToLive => r#"{"ID":"78","keys":true}"#,
        Rpc::LeaseLeases | Rpc::MemberList | Rpc::Status | Rpc::Defragment | Rpc::Hash | Rpc::HashKV => "{}",
        Rpc::MemberAdd => r#"{"peerURLs":["http://127.0.0.1:1"],"isLearner":true}"#,
        Rpc::MemberRemove | Rpc::MemberPromote => r#"{"ID":"1"}"#,
        Rpc::MemberUpdate => r#"{"ID":"1","peerURLs":["http://127.0.0.1:1"]}"#,
        Rpc::Alarm => r#"{"action":"DEACTIVATE"}"#,
        Rpc::Snapshot => "{}",
        Rpc::MoveLeader => r#"{"targetID":"1"}"#,
        Rpc::Downgrade => r#"{"action":"VALIDATE","version":"x"}"#,
        Rpc::AuthEnable | Rpc::AuthStatus | Rpc::UserList | Rpc::RoleList => "{}",
        // Last, since nobody is asked any more then.
        Rpc::AuthDisable => "{}",
        Rpc::Authenticate => r#"{"name":"stranger","password":"stranger"}"#,
        Rpc::UserAdd => r#"{"name":"new","password":"p"}"#,
        Rpc::UserGet => r#"{"name":"root"}"#,
        Rpc::UserDelete => r#"{"name":"new"}"#,
        Rpc::UserChangePassword => r#"{"name":"victim","password":"q"}"#,
        Rpc::UserGrantRole => r#"{"user":"victim","role":"reader"}"#,
        Rpc::UserRevokeRole => r#"{"name":"victim","role":"reader"}"#,
        Rpc::RoleAdd => r#"{"name":"new"}"#,
        Rpc::RoleGet => r#"{"role":"other"}"#,
        Rpc::RoleDelete => r#"{"role":"new"}"#,
        Rpc::RoleGrantPermission => r#"{"name":"other","perm":{"key":"<o>"}}"#,
        Rpc::RoleRevokePermission => r#"{"role":"other","key":"<o>"}"#,
        Rpc::HealthCheck | Rpc::HealthList | Rpc::HealthWatch => return None,
        Rpc::Campaign | Rpc::Leader | Rpc::Observe => r#"{"name":"<a>"}"#,
        Rpc::Proclaim | Rpc::Resign => r#"{"leader":{"name":"<a>","key":"<a>","rev":"1","lease":"1"}}"#,
        // A name of its own: the election's winner would be waited for.
        Rpc::Lock => r#"{"name":"<al>"}"#,
        Rpc::Unlock => r#"{"key":"<none>"}"#,
    })
}

/// What anybody may ask.
fn is_open(rpc: Rpc) -> bool {
    matches!(rpc, Rpc::Authenticate | Rpc::AuthStatus)
}

const WHO: [&str; 6] = ["nobody", "bad", "stranger", "reader", "writer", "root"];

const SETUP: &str = r#"nobody: auth/user/add {"name":"root","password":"root"}
nobody: auth/user/grant {"user":"root","role":"root"}
nobody: auth/user/add {"name":"stranger","password":"stranger"}
nobody: auth/user/add {"name":"reader","password":"reader"}
nobody: auth/user/add {"name":"writer","password":"writer"}
nobody: auth/user/add {"name":"victim","password":"victim"}
nobody: auth/role/add {"name":"reader"}
nobody: auth/role/add {"name":"writer"}
nobody: auth/role/add {"name":"other"}
nobody: auth/role/grant {"name":"reader","perm":{"key":"<a>","range_end":"<b>"}}
nobody: auth/role/grant {"name":"writer","perm":{"permType":"WRITE","key":"<a>","range_end":"<b>"}}
nobody: auth/user/grant {"user":"reader","role":"reader"}
nobody: auth/user/grant {"user":"writer","role":"writer"}
nobody: kv/put {"key":"<a>","value":"<1>"}
nobody: kv/put {"key":"<a>","value":"<2>"}
nobody: lease/grant {"TTL":"600","ID":"77"}
nobody: lease/grant {"TTL":"600","ID":"78"}
nobody: kv/put {"key":"<secret>","lease":"77"}
nobody: kv/put {"key":"<secret2>","lease":"78"}
nobody: auth/enable
login stranger stranger
login reader reader
login writer writer
login root root"#;

#[test]
fn every_rpc_and_every_identity() {
    let mut session = Session::new(&["--bcrypt-cost=4"]);
    for line in SETUP.lines() {
        let said = session.line(line);
        assert!(said.starts_with("0 "), "{line}: {said}");
    }
    let mut table = String::new();
    let mut cases = 0;
    let mut methods: Vec<_> = wire::METHODS.iter().filter(|method| !method.json.is_empty()).collect();
    methods.sort_by_key(|method| method.rpc == Rpc::AuthDisable);
    for method in methods {
        let rpc = method.rpc;
        let Some(body) = sample(rpc) else { continue };
        table += &format!("{rpc:?}\n");
        for who in WHO {
            let (code, text) = session.ask(who, method.json[0], &encoded(body), method.kind != Kind::Unary);
            let text = if code == 0 { "" } else { &text };
            table += format!("  {who}: {code} {text}").trim_end();
            table.push('\n');
            // Of a refused observer, etcd closes the stream without a word.
            let silent = is_other() && rpc == Rpc::Observe;
            assert!(
                silent || code != 0 || is_open(rpc) || !["nobody", "bad"].contains(&who),
                "{rpc:?} is open to {who}"
            );
            cases += 1;
            // Whose roles or password changed shows a new token, as nobody's revision may be old.
        }
    }
    println!("{cases} cases");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/auth/matrix.txt");
    golden::file(path, |_| table);
}

/// A stream that fails before its first message has the status of its error, as a call has; one
/// that has begun has 200, whatever comes.
#[test]
fn a_refused_stream_shows_it_in_its_status() {
    let mut session = Session::new(&["--bcrypt-cost=4"]);
    for line in SETUP.lines() {
        let said = session.line(line);
        assert!(said.starts_with("0 "), "{line}: {said}");
    }
    let cases = [
        ("/v3/lease/keepalive", r#"{"ID":"78"}"#, "", 400, 3),
        ("/v3/lease/keepalive", r#"{"ID":"78"}"#, "aaaaaaaaaaaaaaaa.1", 401, 16),
        ("/v3/maintenance/snapshot", "{}", "reader", 403, 7),
    ];
    for (route, body, who, status, code) in cases {
        let token = session.tokens.get(who).map_or(who, String::as_str);
        let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &[("Authorization", token)] };
        let answer = live::http::send(session.server.port(), "POST", route, headers, body).expect("an answer");
        assert_eq!((answer.status, answer.json()["error"]["code"].as_u64()), (status, Some(code)), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
    }
    let token = session.tokens["root"].as_str();
    let headers: &[(&str, &str)] = &[("Authorization", token)];
    let renewed = live::http::send(session.server.port(), "POST", "/v3/lease/keepalive", headers, r#"{"ID":"78"}"#);
    let renewed = renewed.expect("an answer");
    assert_eq!((renewed.status, renewed.json()["result"]["TTL"].as_str()), (200, Some("600")), "{renewed:?}");
}

/// A token of the one is taken by the other, when both have the keys.
#[test]
fn signed_tokens_are_those_of_etcd() {
    let Some(folder) = std::env::var_os("KVORUM_TEST_ETCD").map(std::path::PathBuf::from) else {
        eprintln!("signed_tokens_are_those_of_etcd: KVORUM_TEST_ETCD is not set");
        return;
    };
    let key = |name: &str| format!("{}/../server/tests/keys/{name}.pem", env!("CARGO_MANIFEST_DIR"));
    let cases = [
        ("HS256", "ed"),
        ("RS256", "rsa-pkcs1"),
        ("PS384", "rsa"),
        ("ES256", "p256"),
        ("ES512", "p521"),
        ("EdDSA", "ed"),
    ];
    for (method, private) in cases {
        let token = format!("--auth-token=jwt,sign-method={method},priv-key={}", key(private));
        let flags = ["--bcrypt-cost=4", token.as_str()];
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut etcd = live::Member::spawn_by(live::Spec::alone(dir.path(), &flags), &folder.join("etcd"));
        etcd.ready();
        let mut ours = Session::new(&flags);
        let at = |port: u16, token: &str, route: &str, body: &str| {
            let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &[("Authorization", token)] };
            live::http::send(port, "POST", route, headers, body).expect("an answer")
        };
        let ports = [etcd.spec.client_port, ours.server.port()];
        let tokens = ports.map(|port| {
            for (route, body) in [
                ("/v3/auth/user/add", r#"{"name":"root","password":"r"}"#),
                ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
                ("/v3/auth/enable", "{}"),
            ] {
                assert_eq!(at(port, "", route, body).status, 200, "{route}");
            }
            let answer = at(port, "", "/v3/auth/authenticate", r#"{"name":"root","password":"r"}"#).json();
            answer["token"].as_str().expect("a token").to_owned()
        });
        for (port, token) in [(ports[0], &tokens[1]), (ports[1], &tokens[0])] {
            let answer = at(port, token, "/v3/kv/range", r#"{"key":"YQ=="}"#);
            assert_eq!(answer.status, 200, "{method} at {port}: {answer:?}");
        }
        // Users have changed since it was signed: keys are refused, and what an admin may is not.
        ours.tokens.insert("root".into(), tokens[0].clone());
        assert_eq!(ours.line(r#"root: auth/role/add {"name":"r"}"#), "0 {}\n");
        assert_eq!(ours.line(r#"root: kv/range {"key":"<a>"}"#), "3 etcdserver: revision of auth store is old\n");
        assert_eq!(ours.line("root: auth/user/list"), "0 {\"users\":[\"root\"]}\n");
    }
}

/// A simple token is good on every member as soon as its client has it, ends with its user on all
/// of them, and is gone on a member that starts anew.
#[test]
fn simple_tokens_are_good_on_every_member() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let flags = ["--bcrypt-cost=4", "--heartbeat-interval=50", "--election-timeout=500"];
    let specs = live::Spec::cluster(dir.path(), 3, &flags);
    let mut members: Vec<live::Member> = specs.into_iter().map(live::Member::spawn).collect();
    members.iter_mut().for_each(live::Member::ready);
    let ports: Vec<u16> = members.iter().map(|member| member.spec.client_port).collect();
    let post = |port: u16, token: &str, route: &str, body: &str| {
        let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &[("Authorization", token)] };
        live::http::send(port, "POST", route, headers, body).expect("an answer")
    };
    for (route, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"r"}"#),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("/v3/auth/user/add", r#"{"name":"ann","password":"a"}"#),
        ("/v3/auth/user/grant", r#"{"user":"ann","role":"root"}"#),
        ("/v3/auth/enable", "{}"),
    ] {
        assert_eq!(post(ports[0], "", route, body).status, 200, "{route}");
    }
    let login = |port: u16, name: &str, password: &str| {
        let body = format!(r#"{{"name":"{name}","password":"{password}"}}"#);
        post(port, "", "/v3/auth/authenticate", &body).json()["token"].as_str().expect("a token").to_owned()
    };
    // Members that lag behind the log-in wait for it.
    for round in 0..30 {
        let token = login(ports[round % 3], "ann", "a");
        for (port, route, body) in [
            (ports[(round + 1) % 3], "/v3/kv/put", r#"{"key":"YQ==","value":"YQ=="}"#),
            (ports[(round + 2) % 3], "/v3/kv/range", r#"{"key":"YQ=="}"#),
        ] {
            let answer = post(port, &token, route, body);
            assert_eq!(answer.status, 200, "round {round}, {route}: {answer:?}");
        }
    }
    let (root, ann) = (login(ports[0], "root", "r"), login(ports[0], "ann", "a"));
    let body = r#"{"name":"ann","password":"b"}"#;
    assert_eq!(post(ports[1], &root, "/v3/auth/user/changepw", body).status, 200);
    for port in &ports {
        // Behind a read that has seen the change.
        assert_eq!(post(*port, &root, "/v3/kv/range", r#"{"key":"YQ=="}"#).status, 200);
        let answer = post(*port, &ann, "/v3/kv/range", r#"{"key":"YQ=="}"#);
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (401, Some(16)), "{answer:?}");
        assert_eq!(answer.header("www-authenticate"), Some("etcdserver: invalid auth token"));
    }
    // Secrets stand nowhere.
    let files = |member: &live::Member| member.log();
    for text in members.iter().map(files).chain([live::http::get(ports[0], "/debug/vars").expect("vars").body]) {
        for secret in [&root, &ann] {
            assert!(!text.contains(secret.as_str()), "a token is told: {text}");
        }
    }
    if !is_other() {
        let last = &mut members[2];
        last.stop(rustix::process::Signal::TERM);
        last.respawn();
        let port = last.spec.client_port;
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            // It asks for users from its state, before anything else.
            let answer = live::http::send(port, "POST", "/v3/kv/range", &[("Authorization", &root)], "{}");
            match answer.map(|answer| answer.status) {
                Ok(400 | 401) => break,
                Ok(200) => panic!("a token outlives its member's start"),
                _ => assert!(std::time::Instant::now() < until, "the member does not come back"),
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let answer = post(port, &root, "/v3/kv/range", r#"{"key":"YQ=="}"#);
        assert_eq!(answer.status, 401, "{answer:?}");
        let again = login(port, "root", "r");
        assert_eq!(post(port, &again, "/v3/kv/range", r#"{"key":"YQ=="}"#).status, 200);
    }
}

/// What a person does, by the stock `etcdctl` over gRPC: exit codes, answers and errors are those
/// of a real etcd.
#[test]
fn the_stock_etcdctl_sees_no_difference() {
    let Some(folder) = std::env::var_os("KVORUM_TEST_ETCD").map(std::path::PathBuf::from) else {
        eprintln!("the_stock_etcdctl_sees_no_difference: KVORUM_TEST_ETCD is not set");
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut etcd = live::Member::spawn_by(live::Spec::alone(dir.path(), &["--bcrypt-cost=4"]), &folder.join("etcd"));
    etcd.ready();
    let ours = Alone::new(&["--bcrypt-cost=4"]);
    let commands = [
        "auth status",
        "user add root:r",
        "user add root:r",
        "user grant-role root root",
        "role add app",
        "role grant-permission app readwrite --prefix app/",
        "role grant-permission app read key",
        "role grant-permission app write b a",
        "user add ann:a",
        "user add cert --no-password",
        "user grant-role ann app",
        "auth enable",
        "put app/1 x",
        "get app/1",
        "--user ann:a put app/1 x",
        "--user ann:a get --prefix app/",
        "--user ann:a get --prefix a",
        "--user ann:a get --from-key app/",
        "--user ann:a put other x",
        "--user ann:wrong get app/1",
        "--user nobody:x get app/1",
        "--user cert:x get app/1",
        "--user ann:a del --prefix app/",
        "--user ann:a lease list",
        "--user ann:a role get app",
        "--user ann:a role get root",
        "--user ann:a user get ann",
        "--user ann:a user list",
        "--user ann:a compact 1",
        "--user ann:a alarm list",
        "--user ann:a defrag",
        "--user root:r user list",
        "--user root:r role list",
        "--user root:r role get app",
        "--user root:r user get ann --detail",
        "--user root:r role revoke-permission app key",
        "--user root:r role revoke-permission app key",
        "--user root:r user revoke-role ann app",
        "--user ann:a put app/1 x",
        "--user root:r user delete ann",
        "--user ann:a put app/1 x",
        "--user root:r role delete app",
        "--user root:r role delete root",
        "--user root:r user delete root",
        "--user root:r auth status",
        "--user root:r auth disable",
        "put app/1 x",
        "--user root:r get app/1",
    ];
    let run = |port: u16, command: &str| {
        let mut etcdctl = std::process::Command::new(folder.join("etcdctl"));
        live::clean(&mut etcdctl);
        etcdctl.arg(format!("--endpoints=http://127.0.0.1:{port}")).args(command.split(' '));
        let ended = live::run_to_end(etcdctl);
        let errors: Vec<String> =
            ended.stderr.lines().filter(|line| line.starts_with("Error")).map(str::to_owned).collect();
        (ended.code, ended.stdout, errors)
    };
    for command in commands {
        let (said, expected) = (run(ours.port(), command), run(etcd.spec.client_port, command));
        assert_eq!(said, expected, "etcdctl {command}");
    }
}
