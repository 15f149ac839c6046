//! The command line and the environment.

use std::net::TcpListener;
use std::process::Command;

use client::wire::Code;
use client::wire::etcdserverpb::request_op::Request;
use client::wire::etcdserverpb::{RequestOp, TxnRequest};

use crate::live::{
    self, Alone, Ended, Member, Spec, block_on, client_of, http, is_other, program, refused, run_to_end,
};

fn with(args: &[&str]) -> Ended {
    let mut command = program();
    // Nothing of these starts may leave a directory behind in the sources.
    command.current_dir(std::env::temp_dir()).args(args);
    run_to_end(command)
}

#[test]
fn what_is_not_a_flag_is_refused_with_status_2() {
    let table: [(&[&str], &str); 8] = [
        (&["--nope"], "flag provided but not defined: -nope"),
        (&["-nope=1"], "flag provided but not defined: -nope"),
        (&["--name"], "flag needs an argument: -name"),
        (&["--election-timeout=soon"], "invalid value \"soon\" for flag -election-timeout: parse error"),
        (&["--pre-vote=maybe"], "invalid boolean value \"maybe\" for -pre-vote"),
        (&["--listen-client-urls=nowhere"], "invalid value \"nowhere\" for flag -listen-client-urls"),
        (&["--listen-peer-urls=ftp://127.0.0.1:1"], "for flag -listen-peer-urls"),
        (&["--initial-cluster-state=old"], "invalid value \"old\" for flag -initial-cluster-state"),
    ];
    for (args, text) in table {
        let ended = with(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
}

const NO_DIRECTORY: &str = "listen unix /no/such/dir: bind: no such file or directory";

#[test]
fn what_does_not_fit_together_is_refused_with_status_1() {
    let client = "--listen-client-urls=http://127.0.0.1:1";
    let table: [(&[&str], &str); 7] = [
        (&["word"], "is not a valid flag"),
        (&[client], "--advertise-client-urls is required when --listen-client-urls is set explicitly"),
        (&["--election-timeout=100"], "should be at least as 5 times as --heartbeat-interval"),
        (&["--heartbeat-interval=0"], "--heartbeat-interval must be >0"),
        (&["--election-timeout=60000"], "is too long, and should be set less than 50000ms"),
        (&["--listen-peer-urls=http://example.com:1"], "expected IP in URL for binding"),
        (&["--listen-client-urls=unix:///no/such/dir", "--advertise-client-urls=unix:///x"], NO_DIRECTORY),
    ];
    for (args, text) in table {
        let ended = with(args);
        assert_eq!(ended.code, Some(1), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_file_that_cannot_be_read_refuses_the_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.yml");
    std::fs::write(&path, "name: m1\nelection-timeout: '1000'\n").expect("writes");
    let path = path.to_str().expect("UTF-8");
    let missing = format!("{path}.none");
    let table = [
        (path, "cannot unmarshal string into Go struct field configYAML.Config.election-timeout of type uint"),
        (&missing, "no such file or directory"),
    ];
    for (file, text) in table {
        let ended = with(&["--config-file", file]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("failed to verify flags") && ended.stderr.contains(text), "{}", ended.stderr);
    }
}

#[test]
fn a_file_counts_and_nothing_beside_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut spec = Spec::alone(dir.path(), &[]);
    let (client, peer) = (spec.client_port, spec.peer_port);
    let path = dir.path().join("m1.yml");
    let text = format!(
        "name: {}\ndata-dir: {}\nlisten-client-urls: http://127.0.0.1:{client}\n\
         advertise-client-urls: http://127.0.0.1:{client}\nlisten-peer-urls: http://127.0.0.1:{peer}\n\
         initial-advertise-peer-urls: http://127.0.0.1:{peer}\nmax-txn-ops: 1\nnobody-knows: this\n",
        spec.name,
        spec.dir.display(),
    );
    std::fs::write(&path, text).expect("writes");
    // What else is given is of another member.
    spec.extra.extend(["--config-file".into(), path.display().to_string(), "--name=other".into()]);
    let mut member = Member::spawn(spec);
    member.ready();
    block_on(async {
        let client = client_of([&member]);
        let members = client.member_list().await.expect("lists").members;
        assert_eq!(members[0].name, member.spec.name);
        let read = |key: &str| RequestOp { request: Some(Request::RequestRange(client::key(key.to_owned()).into())) };
        let two = TxnRequest { success: vec![read("a"), read("b")], ..TxnRequest::default() };
        refused(client.txn(two).await, Code::InvalidArgument, "etcdserver: too many operations in txn request");
    });
    let log = member.log();
    assert!(log.contains("loaded server configuration"), "{log}");
    assert!(is_other() || log.contains("nobody-knows"), "{log}");
}

/// etcd finds most of these only after it has made its data directory, and calls the failure
/// `listener failed`.
#[test]
fn certificates_that_are_missing_or_do_not_fit_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let pair = |name: &str| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
        std::fs::write(file(&format!("{name}.pem")), params.self_signed(&key).expect("signed").pem()).expect("written");
        std::fs::write(file(&format!("{name}.key")), key.serialize_pem()).expect("written");
    };
    pair("one");
    pair("two");
    let cert = |name: &str| format!("--cert-file={}", file(name));
    let key = |name: &str| format!("--key-file={}", file(name));
    let https = "https://127.0.0.1:1";
    let urls = [format!("--listen-client-urls={https}"), format!("--advertise-client-urls={https}")];
    let client = |extra: &[String]| [&urls[..], extra].concat();
    let peer = |extra: &[String]| [&[format!("--listen-peer-urls={https}")], extra].concat();
    let table = [
        (
            client(&[]),
            format!("TLS key/cert (--cert-file, --key-file) must be provided for client url {https} with HTTPS scheme"),
        ),
        (
            client(&[cert("one.pem")]),
            format!("KeyFile and CertFile must both be present[key: , cert: {}]", file("one.pem")),
        ),
        (client(&[cert("one.pem"), key("two.key")]), "tls: private key does not match public key".into()),
        (client(&[cert("no.pem"), key("one.key")]), format!("open {}: no such file or directory", file("no.pem"))),
        (
            client(&[cert("one.pem"), key("one.key"), format!("--trusted-ca-file={}", file("no.pem"))]),
            format!("open {}: no such file or directory", file("no.pem")),
        ),
        (
            vec![format!("--listen-metrics-urls={https}")],
            "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url".into(),
        ),
        (peer(&[]), "cannot listen on TLS for 127.0.0.1:1: KeyFile and CertFile are not presented".into()),
        (
            peer(&[format!("--peer-cert-file={}", file("one.pem")), format!("--peer-key-file={}", file("no.key"))]),
            format!("open {}: no such file or directory", file("no.key")),
        ),
        (
            vec!["--peer-auto-tls".into(), "--self-signed-cert-validity=0".into()],
            "selfSignedCertValidity is invalid,it should be greater than 0".into(),
        ),
    ];
    for (flags, text) in table {
        refused_before_the_directory(|spec| spec.extra.extend(flags), &text.replace('"', "\\\""));
    }
}

#[test]
fn the_version_is_the_first_line() {
    for args in [&["--version"][..], &["--name=x", "-version=true"]] {
        let ended = with(args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.stdout.lines().next(), Some("etcd Version: 3.7.3"));
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn help_is_no_failure() {
    for args in [&["--help"][..], &["-h"]] {
        let ended = with(args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!((ended.stdout + &ended.stderr).contains("--initial-cluster-token"));
    }
}

#[test]
fn a_variable_that_a_flag_shadows_is_fatal() {
    let mut command = program();
    command.env("ETCD_NAME", "there").args(["--name", "here"]);
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("conflicting environment variable is shadowed by corresponding command-line flag"));
    assert!(ended.stderr.contains("ETCD_NAME"), "{}", ended.stderr);
}

#[test]
fn variables_stand_for_flags_and_unknown_ones_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = program();
    command
        .env("ETCD_NAME", "fromenv")
        .env("ETCD_NO_SUCH_THING", "1")
        .env("ETCD_INITIAL_CLUSTER", "other=http://127.0.0.1:1")
        .arg("--data-dir")
        .arg(dir.path().join("m"));
    // The name from the environment is looked for in the cluster from the environment.
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("unrecognized environment variable"), "{}", ended.stderr);
    assert!(ended.stderr.contains("ETCD_NO_SUCH_THING"));
    assert!(ended.stderr.contains("fromenv"), "{}", ended.stderr);
}

/// A member that is refused by its cluster flags leaves no directory.
#[track_caller]
fn refused_before_the_directory(change: impl FnOnce(&mut Spec), text: &str) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut spec = Spec::alone(dir.path(), &[]);
    change(&mut spec);
    let ended = spec.run_to_end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(text), "{}", ended.stderr);
    if !is_other() {
        assert!(!spec.dir.exists(), "the directory was made");
    }
}

#[test]
fn a_cluster_without_this_member_is_refused() {
    refused_before_the_directory(
        |spec| spec.name = "stranger".into(),
        "couldn't find local name \\\"stranger\\\" in the initial cluster configuration",
    );
}

#[test]
fn other_peer_urls_than_the_advertised_are_refused() {
    refused_before_the_directory(
        |spec| spec.initial_cluster = "m1=http://127.0.0.1:1".into(),
        "--initial-cluster has m1=http://127.0.0.1:1 but missing from --initial-advertise-peer-urls",
    );
}

#[test]
fn a_peer_url_of_two_members_is_refused() {
    refused_before_the_directory(
        |spec| spec.initial_cluster = format!("{0},m2=http://127.0.0.1:{1}", spec.initial_cluster, spec.peer_port),
        "has duplicate url",
    );
}

#[test]
fn a_peer_url_that_is_none_is_refused() {
    refused_before_the_directory(|spec| spec.initial_cluster += ",m2=nowhere", "error setting up initial cluster");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = holder.local_addr().expect("bound").port();
    refused_before_the_directory(
        |spec| spec.client_port = port,
        &format!("127.0.0.1:{port}: bind: address already in use"),
    );
}

#[cfg(unix)]
#[test]
fn a_link_named_etcd_is_the_server() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let link = dir.path().join("etcd");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kvorum"), &link).expect("links");
    let run = |args: &[&str]| {
        let mut command = Command::new(&link);
        live::clean(&mut command);
        command.args(args);
        run_to_end(command)
    };
    let version = run(&["--version"]);
    assert_eq!((version.code, version.stdout.lines().next()), (Some(0), Some("etcd Version: 3.7.3")));
    assert_eq!(run(&["--nope"]).code, Some(2));
    // A subcommand is a stray word to it.
    assert_eq!(run(&["server"]).code, Some(1));
    let spec = Spec::alone(dir.path(), &[]);
    let mut member = Member::spawn_by(spec, &link);
    member.ready();
    assert_eq!(http::get(member.spec.client_port, "/version").expect("answers").json()["etcdserver"], "3.7.3");
}

/// What etcd's own tests wait for. (A real etcd writes the same lines.)
#[test]
fn slow_requests_and_deprecated_flags_are_told() {
    let slow = ["--warning-unary-request-duration=1us", "--warning-apply-duration=1us", "--bcrypt-cost=4"];
    let server = Alone::new(&[&slow[..], &["--max-snapshots=6", "--v2-deprecation=write-only"]].concat());
    let port = server.port();
    for (route, body) in [
        ("/v3/kv/put", r#"{"key":"a2V5","value":"c2VjcmV0"}"#),
        ("/v3/kv/range", r#"{"key":"a2V5","limit":3}"#),
        ("/v3/kv/txn", r#"{"success":[{"requestPut":{"key":"a2V5","value":"c2VjcmV0"}}]}"#),
        ("/v3/auth/user/add", r#"{"name":"u","password":"secret"}"#),
    ] {
        assert_eq!(http::post(port, route, body).expect("an answer").status, 200, "{route}");
    }
    let log = server.member.log();
    assert!(!log.contains("secret") && !log.contains("c2VjcmV0"), "{log}");
    let lines: Vec<serde_json::Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let with = |msg: &str, name: &str, value: serde_json::Value| {
        let found = lines.iter().find(|line| line["msg"] == msg && (name.is_empty() || line[name] == value));
        let line = found.unwrap_or_else(|| panic!("no line {msg} with {value}\n{log}"));
        assert_eq!(line["level"], "warn", "{line}");
        line.clone()
    };
    let put = with("request stats", "response type", "/etcdserverpb.KV/Put".into());
    assert_eq!(
        (&put["request count"], &put["request size"], &put["response count"]),
        (&1.into(), &13.into(), &0.into())
    );
    assert_eq!(put["request content"].as_str().unwrap().trim_end(), r#"key:"key" value_size:6"#);
    assert!(put["start time"].is_string() && put["time spent"].as_str().unwrap().ends_with('s'), "{put}");
    assert!(put["remote"].is_string() && put["response size"].as_u64().unwrap() > 0, "{put}");
    let range = with("request stats", "request content", r#"key:"key" limit:3"#.into());
    assert_eq!((&range["request count"], &range["response count"]), (&0.into(), &1.into()));
    let txn = with("request stats", "response type", "/etcdserverpb.KV/Txn".into());
    let shown = txn["request content"].as_str().unwrap();
    assert!(shown.starts_with(r#"success:<request_put:<key:"key" value_size:6"#), "{shown}");
    let user = with("request stats", "response type", "/etcdserverpb.Auth/UserAdd".into());
    assert_eq!((&user["request size"], &user["request content"]), (&(-1).into(), &"".into()));
    let read = with("apply request took too long", "prefix", "read-only range ".into());
    assert_eq!(read["expected-duration"], "1µs");
    assert!(read["response"].as_str().unwrap().starts_with("range_response_count:"), "{read}");
    with("--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8.", "", "".into());
    let text = "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is enforced, \
                ignoring user input.";
    with(text, "", "".into());
}
