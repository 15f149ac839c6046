//! The interactive programs under a pseudo terminal, and the long-running ones
//! while the leader dies. Needs `KVORUM_TEST_ETCD`; with `KVORUM_TEST_SERVER`
//! the leader of our own server dies too.

mod live;

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use live::{PATIENCE, Server, ours, person::Person, programs, start, start_three};
use portable_pty::CommandBuilder;

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn open(port: u16, words: &[&str]) -> Person {
    open_with(&ours(), port, words)
}

fn open_with(program: &Path, port: u16, words: &[&str]) -> Person {
    let mut command = CommandBuilder::new(program);
    command.args(words);
    command.env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{port}"));
    Person::starts(command, 80)
}

fn ctl(endpoints: &str, words: &[&str]) -> Command {
    let mut command = Command::new(ours());
    command.env("ETCDCTL_ENDPOINTS", endpoints).args(words).stdin(Stdio::null());
    command
}

fn answer(endpoints: &str, words: &[&str]) -> String {
    let output = ctl(endpoints, words).output().expect("it ends");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_person_types_a_transaction_and_watches() {
    let Some(folder) = programs() else { return };
    let server = start(&folder.join("etcd"), None);
    let one = format!("127.0.0.1:{}", server.port);

    let mut txn = open(server.port, &["txn", "-i"]);
    txn.was_told("compares:\r\n");
    txn.types("version(\"k\") = \"0\"\r\r");
    txn.was_told("success requests (get, put, del):\r\n");
    txn.types("put k v\r\r");
    txn.was_told("failure requests (get, put, del):\r\n");
    txn.types("get k\r\r");
    txn.was_told("SUCCESS\r\n\r\nOK\r\n");
    assert_eq!(txn.ends(), 0);

    let mut watch = open(server.port, &["watch", "-i"]);
    watch.types("watch k --rev 2\r");
    watch.was_told("PUT\r\nk\r\nv\r\n");
    watch.types("progress\r");
    watch.was_told("progress notify: 2\r\n");
    watch.types("watch other -- echo ran\r");
    // Its place in the store is known once it is told of.
    watch.types("progress\r");
    watch.waits("the second watch", |watch| watch.said().matches("progress notify").count() >= 3);
    answer(&one, &["put", "other", "x"]);
    watch.was_told("PUT\r\nother\r\nx\r\nran\r\n");
    watch.types("\x04");
    watch.was_told("Error: error reading watch request line: EOF");
    assert_eq!(watch.ends(), 3);

    let mut lock = open(server.port, &["lock", "l", "--", "sh", "-c", "read line; echo got $line; exit 9"]);
    lock.types("words\r");
    lock.was_told("got words\r\n");
    lock.was_told("Error: exit status 9");
    assert_eq!(lock.ends(), 9);

    let mut held = open(server.port, &["lock", "l"]);
    held.was_told("l/");
    held.types("\x03");
    assert_eq!(held.ends(), 0);
    assert_eq!(answer(&one, &["get", "l", "--prefix"]), "", "the lock is free again");
}

/// What a person is asked, and what comes of it, without the log of the client.
fn asked(program: &Path, port: u16, words: &[&str], answers: &[&str]) -> (String, u32) {
    let mut terminal = open_with(program, port, words);
    let mut seen = 0;
    for answer in answers {
        // Somebody asks, and does not show what is typed.
        terminal.waits(&format!("a question of {words:?} before {answer:?}"), |terminal| {
            !terminal.echoes() && terminal.said()[seen..].ends_with(": ")
        });
        seen = terminal.said().len();
        terminal.types(answer);
    }
    let code = terminal.ends();
    let screen = terminal.said();
    let lines = screen.lines().filter(|line| !line.starts_with('{')).map(|line| {
        let line = testkit::masks::alone(line, &port.to_string(), "PORT");
        line.split(" took").next().unwrap_or_default().to_owned() + "\n"
    });
    (lines.collect(), code)
}

#[test]
fn passwords_are_asked_for_as_the_stock_tool_asks() {
    let Some(folder) = programs() else { return };
    let (one, other) = (start(&folder.join("etcd"), None), start(&folder.join("etcd"), None));
    let steps: &[(&str, &[&str])] = &[
        ("user add ann", &["pw\r", "pw\r"]),
        ("user add bob", &["pw\r", "other\r"]),
        ("user add bob", &["\r"]),
        ("user add bob", &["pw\r", "\r"]),
        ("user add bob", &["\x04"]),
        ("user add bob", &["pq\x7fw\r", "pw\r"]),
        ("user add cid", &["\x03"]),
        ("user add cid", &["pw\r", "\x03"]),
        ("user add ann", &["pw\r", "pw\r"]),
        ("user passwd ann", &["new\r", "new\r"]),
        ("user passwd ann", &["new\r", "x\r"]),
        ("user passwd nobody", &["new\r", "new\r"]),
        ("user add root", &["r\r", "r\r"]),
        ("auth enable", &[]),
        ("get a --user ann", &["new\r"]),
        ("get a --user root", &["r\r"]),
        ("get a --user root", &["wrong\r"]),
        ("get a --user root", &["\r"]),
        ("get a --user root", &["\x03"]),
        ("endpoint health --user root", &["r\r"]),
        ("endpoint health --cluster --user root", &["r\r", "r\r"]),
        ("endpoint hashkv --cluster --user root", &["r\r", "wrong\r"]),
        ("endpoint status --cluster --user root", &["wrong\r", "wrong\r"]),
        ("endpoint health --cluster --user root", &["wrong\r", "wrong\r"]),
        ("defrag --cluster --user root", &["r\r", "r\r"]),
        ("user add dan --user root", &["d\r", "d\r", "r\r"]),
        ("user passwd dan --user root", &["e\r", "e\r", "wrong\r"]),
        ("user add eve --user root", &["d\r", "e\r"]),
        ("user add fay:pw --user root", &["r\r"]),
        ("make-mirror 127.0.0.1:1 --dest-user root --user root --dial-timeout 300ms", &["r\r"]),
        ("lock a --user root -- true", &["r\r"]),
        ("check perf --user nobody", &["r\r"]),
    ];
    for (line, answers) in steps {
        let words: Vec<&str> = line.split(' ').collect();
        let expected = asked(&folder.join("etcdctl"), one.port, &words, answers);
        assert_eq!(asked(&ours(), other.port, &words, answers), expected, "{line} {answers:?}");
    }
}

/// Our program in the background, with what it has said so far.
struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(endpoints: &str, words: &[&str]) -> Running {
        let mut child = ctl(endpoints, words).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (said, out) = (Arc::clone(&lines), child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                said.lock().unwrap().push(line);
            }
        });
        Running { child, lines }
    }

    fn said(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn alive(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The place of the leader.
fn leader(servers: &[Server]) -> usize {
    let mut found = None;
    until("a leader", || {
        found = servers.iter().position(|server| leads(server.port));
        found.is_some()
    });
    found.expect("waited for")
}

fn leads(port: u16) -> bool {
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    if stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_err() {
        return false;
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.contains("etcd_server_is_leader 1")
}

/// Watch, keep-alive, lock, election, observation and mirror go on by
/// themselves when the leader, and first endpoint of all of them, is killed.
fn leader_dies(program: &Path, sub: Option<&str>, etcd: &Path) {
    let mut servers = start_three(program, sub);
    let destination = start(etcd, None);
    let there = format!("127.0.0.1:{}", destination.port);
    let first = leader(&servers);
    let mut order: Vec<u16> = servers.iter().map(|server| server.port).collect();
    order.swap(0, first);
    let all = order.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");

    let granted = answer(&all, &["lease", "grant", "8"]);
    let lease = granted.split(' ').nth(1).expect("an id").to_owned();
    let watch = Running::start(&all, &["watch", "w/", "--prefix", "--rev", "1"]);
    let mut keep = Running::start(&all, &["lease", "keep-alive", &lease]);
    let mut lock = Running::start(&all, &["lock", "l", "--ttl", "8"]);
    let mut elect = Running::start(&all, &["elect", "e", "me"]);
    let observe = Running::start(&all, &["elect", "-l", "e"]);
    let mut mirror = Running::start(&all, &["make-mirror", &there, "--prefix", "w/", "--dest-prefix", "m/"]);
    until("lock, election and observation", || {
        lock.said().len() == 2 && elect.said().len() == 2 && observe.said().len() == 2 && !keep.said().is_empty()
    });

    let write = |from: usize, to: usize| {
        for i in from..to {
            // A write whose outcome is unknown is written again: the same key
            // and value. The watch then has it twice, at two revisions.
            until("a write", || {
                ctl(&all, &["put", &format!("w/{i}"), &i.to_string()])
                    .stderr(Stdio::null())
                    .stdout(Stdio::null())
                    .status()
                    .is_ok_and(|status| status.success())
            });
        }
    };
    write(0, 10);
    servers[first].kill();
    write(10, 30);

    until("all events", || watch.said().iter().any(|line| line == "w/29"));
    let history = answer(&all, &["get", "w/", "--prefix", "-w", "fields"]);
    let versions: usize =
        history.lines().filter_map(|line| line.strip_prefix("\"Version\" : ")?.parse::<usize>().ok()).sum();
    until("the whole history", || watch.said().len() >= versions * 3);
    let keys: Vec<String> = watch.said().chunks(3).map(|event| event[1].clone()).collect();
    assert_eq!(keys.len(), versions, "nothing is missed and nothing comes twice");
    let mut once = keys.clone();
    once.dedup();
    assert_eq!(once, (0..30).map(|i| format!("w/{i}")).collect::<Vec<_>>());

    let renewed = keep.said().len();
    until("renewals on the new leader", || keep.said().len() >= renewed + 3);
    until("the mirror", || answer(&there, &["get", "m/", "--prefix", "--keys-only"]).matches("m/").count() == 30);
    assert!(keep.alive() && lock.alive() && elect.alive() && mirror.alive());
    assert_eq!(
        answer(&all, &["get", "l/", "--prefix", "--keys-only"]).lines().next(),
        lock.said().first().map(String::as_str)
    );
    assert_eq!(observe.said(), elect.said(), "who leads was told once");
}

#[test]
fn a_leader_of_etcd_dies() {
    let Some(folder) = programs() else { return };
    leader_dies(&folder.join("etcd"), None, &folder.join("etcd"));
}

#[test]
fn a_leader_of_ours_dies() {
    let Some(folder) = programs() else { return };
    let Some(server) = std::env::var_os("KVORUM_TEST_SERVER").map(PathBuf::from) else { return };
    leader_dies(&server, Some("server"), &folder.join("etcd"));
}

#[test]
fn people_see_bars_and_the_stock_tool_s_users_do_not() {
    let Some(folder) = programs() else { return };
    let (here, there) = (start(&folder.join("etcd"), None), start(&folder.join("etcd"), None));
    let one = format!("127.0.0.1:{}", here.port);
    for at in 0..20 {
        answer(&one, &["put", &format!("k{at}"), "v"]);
    }
    let people = ours().with_file_name("kvorum-ctl");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("a.db").to_string_lossy().into_owned();
    let save = ["snapshot", "save", &file];
    let mut seen = open_with(&people, here.port, &save);
    ["saving", "█", "Snapshot saved at"].iter().for_each(|text| seen.was_told(text));
    assert_eq!(seen.ends(), 0);
    assert!(!seen.said().contains("\"level\""));
    let mut plain = open_with(&ours(), here.port, &save);
    ["\"level\":\"info\"", "Snapshot saved at"].iter().for_each(|text| plain.was_told(text));
    assert_eq!(plain.ends(), 0);
    assert!(!plain.said().contains("saving"));
    let piped = Command::new(&people).args(save).args(["--endpoints", &one]).output().expect("it ends");
    let err = String::from_utf8_lossy(&piped.stderr);
    assert!(piped.status.success() && err.contains("\"level\":\"info\"") && !err.contains("saving"), "{err}");

    let other = format!("127.0.0.1:{}", there.port);
    let mut mirror = open_with(&people, here.port, &["make-mirror", &other]);
    mirror.was_told("20 keys written");
    answer(&one, &["put", "k20", "v"]);
    mirror.was_told("21 keys written");
    drop(mirror);
    assert_eq!(answer(&other, &["get", "k", "--prefix", "--print-value-only"]).lines().count(), 21);
}
