//! Locks and elections that the server waits for, over the JSON gateway: a story that a real etcd
//! told (`REWRITE=1 KVORUM_TEST_BIN=/path/to/etcd`), and what callers that go away leave behind.

mod live;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use live::{Alone, PATIENCE};
use serde_json::Value;
use testkit::golden;

/// Keys stand as `<key>` and are sent as base64.
fn encoded(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, behind)) = rest.split_once('<') {
        let (key, behind) = behind.split_once('>').expect("a key ends");
        out += before;
        out += &STANDARD.encode(key);
        rest = behind;
    }
    out + rest
}

/// The same back; ids that a member chose are not shown.
fn shown(mut value: Value) -> String {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for gone in ["cluster_id", "member_id", "raft_term"] {
                    map.remove(gone);
                }
                for name in ["key", "value", "name"] {
                    let Some(Value::String(text)) = map.get_mut(name) else { continue };
                    let plain = STANDARD.decode(&*text).expect("base64");
                    let plain = String::from_utf8(plain).expect("text");
                    *text = match plain.rsplit_once('/') {
                        Some((name, lease)) if lease.len() > 8 => format!("<{name}/LEASE>"),
                        _ => format!("<{plain}>"),
                    };
                }
                map.values_mut().for_each(clean);
            }
            Value::Array(all) => all.iter_mut().for_each(clean),
            _ => {}
        }
    }
    clean(&mut value);
    value.to_string()
}

fn send(port: u16, route: &str, body: &str, timeout: &str) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let length = body.len();
    let head = format!("POST /v3/{route} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{timeout}");
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).expect("sends");
    socket
}

/// Every object of an answer.
fn heard(mut socket: TcpStream) -> String {
    let mut text = String::new();
    let _ = socket.read_to_string(&mut text);
    let (_, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let objects = body.lines().map(str::trim).filter(|line| line.starts_with('{'));
    objects.map(|line| shown(serde_json::from_str(line).expect("JSON")) + "\n").collect()
}

#[derive(Default)]
struct Story {
    waiting: BTreeMap<String, JoinHandle<String>>,
}

impl Story {
    /// `ROUTE BODY` is asked. `brief …` has a deadline of half a second, `leave …` goes away after
    /// that. `NAME & …` goes on until `wait NAME`; `NAME % …` hears for a while and goes away.
    fn line(&mut self, port: u16, line: &str) -> String {
        if let Some(name) = line.strip_prefix("wait ") {
            return self.waiting.remove(name).expect("it was begun").join().expect("it was heard");
        }
        let (word, rest) = line.split_once(' ').expect("two words");
        let half = Duration::from_millis(500);
        match word {
            "brief" => {
                let (route, body) = rest.split_once(' ').expect("a route and a body");
                heard(send(port, route, &encoded(body), "Grpc-Timeout: 500m\r\n"))
            }
            "leave" => {
                let (route, body) = rest.split_once(' ').expect("a route and a body");
                let socket = send(port, route, &encoded(body), "");
                std::thread::sleep(half);
                drop(socket);
                // What it held is given back behind its back.
                std::thread::sleep(half);
                String::new()
            }
            _ if rest.starts_with("& ") => {
                let (route, body) = rest[2..].split_once(' ').expect("a route and a body");
                let socket = send(port, route, &encoded(body), "");
                self.waiting.insert(word.to_owned(), std::thread::spawn(move || heard(socket)));
                std::thread::sleep(half);
                String::new()
            }
            _ if rest.starts_with("% ") => {
                let (route, body) = rest[2..].split_once(' ').expect("a route and a body");
                let socket = send(port, route, &encoded(body), "");
                socket.set_read_timeout(Some(5 * half)).expect("a socket");
                self.waiting.insert(word.to_owned(), std::thread::spawn(move || heard(socket)));
                std::thread::sleep(half);
                String::new()
            }
            route => heard(send(port, route, &encoded(rest), "")),
        }
    }
}

#[test]
fn a_story_of_locks_and_elections() {
    golden::file(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recipes/story.txt"), |text| {
        let server = Alone::new(&[]);
        let mut story = Story::default();
        golden::lines(text, |line| story.line(server.port(), line))
    });
}

fn keys(port: u16, prefix: &str) -> u64 {
    let body = encoded(&format!(r#"{{"key":"<{prefix}/>","range_end":"<{prefix}0>","count_only":true}}"#));
    let answer = live::http::post(port, "/v3/kv/range", &body).expect("an answer").json();
    answer["count"].as_str().map_or(0, |count| count.parse().expect("a number"))
}

fn metric(port: u16, name: &str) -> f64 {
    let page = live::http::get(port, "/metrics").expect("a page").body;
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is shown")).parse().expect("a number")
}

/// Hundreds that wait and go away leave no key and no watch. (Of as many, etcd keeps some keys
/// until their leases end.)
#[test]
fn callers_that_go_away_leave_nothing() {
    if live::is_other() {
        return;
    }
    let server = Alone::new(&[]);
    let port = server.port();
    let held = heard(send(port, "lock/lock", &encoded(r#"{"name":"<n>"}"#), ""));
    assert!(held.contains("<n/LEASE>"), "{held}");
    let callers: Vec<TcpStream> =
        (0..200).map(|_| send(port, "lock/lock", &encoded(r#"{"name":"<n>"}"#), "")).collect();
    let until = Instant::now() + PATIENCE;
    while keys(port, "n") < 201 {
        assert!(Instant::now() < until, "all stand in line: {}", keys(port, "n"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let until = Instant::now() + PATIENCE;
    while metric(port, "etcd_debugging_mvcc_watcher_total") < 200.0 {
        assert!(Instant::now() < until, "all wait");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(callers);
    while keys(port, "n") > 1 {
        assert!(Instant::now() < until, "keys are taken back: {}", keys(port, "n"));
        std::thread::sleep(Duration::from_millis(20));
    }
    while metric(port, "etcd_debugging_mvcc_watcher_total") > 0.0 {
        assert!(Instant::now() < until, "watches end");
        std::thread::sleep(Duration::from_millis(20));
    }
}
