//! `gateway start`: connections that are passed on to members.

mod live;

use client::{Client, Options};
use live::{Ended, Member, PATIENCE, Spec, block_on, comes, is_other, run_to_end};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::servers::Guarded;

/// The program, at the words of its gateway.
fn gateway(args: &[&str]) -> Command {
    let path = std::env::var_os("KVORUM_TEST_BIN");
    let mut command = Command::new(path.unwrap_or_else(|| env!("CARGO_BIN_EXE_kvorum").into()));
    live::clean(&mut command);
    command.arg("gateway").args(args);
    command
}

fn refused(args: &[&str]) -> Ended {
    run_to_end(gateway(args))
}

#[test]
fn what_does_not_fit_is_said_as_etcd_says_it() {
    let itself = ["start", "--listen-addr=127.0.0.1:23790", "--endpoints=127.0.0.1:23790"];
    let table: [(&[&str], &str); 6] = [
        (&["start", "--endpoints=a"], "error parsing endpoint \"a\""),
        (&["start", "--endpoints="], "no endpoints found"),
        (&["start", "--listen-addr=nohost"], "failed to validate listen address: nohost"),
        (&["start", "--endpoints=nosuch.invalid:1"], "failed to resolve endpoint host: nosuch.invalid"),
        (&["start", "--nosuch"], "unknown flag: --nosuch"),
        (&itself, "should not resolve to the gateway listen addr (127.0.0.1:23790)"),
    ];
    for (args, text) in table {
        let ended = refused(args);
        assert_eq!(ended.code, Some(1), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(text), "{args:?}: {}", ended.stderr);
    }
    for args in [&["--help"][..], &[], &["start", "--help"]] {
        let ended = refused(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        assert!(ended.stdout.contains("gateway"), "{args:?}: {}", ended.stdout);
    }
}

/// A gateway on this port, whose words go to `log`.
fn start(log: &Path, port: u16, endpoints: &str) -> Guarded {
    let listen = format!("--listen-addr=127.0.0.1:{port}");
    let file = std::fs::File::create(log).expect("creates");
    let mut command = gateway(&["start", &listen, &format!("--endpoints={endpoints}")]);
    let child = command.stdin(Stdio::null()).stderr(file).spawn().expect("starts");
    Guarded::new(child, &log.with_extension("none"))
}

#[test]
fn connections_go_to_whoever_is_there() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (port, nobody) = (live::free_port(), live::free_port());
    let mut alone = Member::start(Spec::alone(dir.path(), &[]));
    let log = dir.path().join("gateway.log");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let _gateway = start(&log, port, &format!("127.0.0.1:{nobody},http://127.0.0.1:{}", alone.spec.client_port));
    comes("the gateway", || said().contains("ready to proxy client requests"));
    let through = || {
        let options = Options::of([format!("http://127.0.0.1:{port}")]);
        Client::connect(Options { request_timeout: Some(PATIENCE), ..options }).expect("an endpoint")
    };
    // More connections than members: the one that is not there has its turns, too.
    for n in 0..4 {
        block_on(async { through().put(format!("k{n}"), "x").await.expect("puts") });
    }
    assert_eq!(said().matches("deactivated endpoint").count(), 1, "{}", said());
    if is_other() {
        return;
    }
    // Nobody is there: the client is sent away. When the member is back, it is found at once, long
    // before the minute in which etcd's gateway would not ask it.
    alone.kill();
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("the gateway takes it");
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    assert_eq!(std::io::Read::read(&mut &stream, &mut [0; 1]).expect("is closed"), 0);
    alone.respawn();
    alone.ready();
    block_on(async { through().put("back", "x").await.expect("puts") });
    assert!(said().contains("\"activated\""), "{}", said());
}
