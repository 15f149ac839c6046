//! `kvorum proxy`: the front at work before servers that say who they are.

mod live;

use live::{Ended, comes, free_port, run_to_end};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::servers::Guarded;

const PATIENCE: Duration = Duration::from_secs(10);

fn proxy(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    live::clean(&mut command);
    command.arg("proxy").args(args);
    command
}

fn ends(args: &[&str]) -> Ended {
    run_to_end(proxy(args))
}

/// A server that says its name to each connection, then what it hears.
struct Named {
    address: SocketAddr,
    open: Arc<AtomicBool>,
}

impl Named {
    fn at(name: &'static str, port: u16) -> Named {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(AtomicBool::new(true));
        let still = open.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if !still.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                std::thread::spawn(move || {
                    let _ = stream.write_all(format!("{name}\n").as_bytes());
                    let mut buffer = [0; 4_096];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        let _ = stream.write_all(&buffer[..read]);
                    }
                });
            }
        });
        Named { address, open }
    }

    fn new(name: &'static str) -> Named {
        Named::at(name, free_port())
    }

    /// It takes no connection any more; those that stand go on.
    fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
        // The listener notices when one comes.
        let _ = TcpStream::connect(self.address);
        comes("it to be gone", || TcpStream::connect(self.address).is_err());
    }
}

/// A front that runs.
struct Front {
    _folder: TempDir,
    child: Option<Guarded>,
    file: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    port: u16,
    page: u16,
}

/// What all files of these tests begin with.
fn file(front: &Front, rest: &str) -> String {
    format!(
        "global\n stats socket {} level admin\ndefaults\n option redispatch\n timeout connect 1s\n timeout queue 3s\n \
         default-server inter 100ms fall 2 rise 2\nfrontend in\n bind 127.0.0.1:{}\n default_backend out\n\
         listen page\n bind 127.0.0.1:{}\n mode http\n stats enable\n stats uri /\n stats admin if TRUE\n{rest}\n",
        front.socket.display(),
        front.port,
        front.page
    )
}

impl Front {
    fn start(rest: &str) -> Front {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (file_at, socket, log) = (at("front.cfg"), at("s.sock"), at("log"));
        let mut front =
            Front { child: None, file: file_at, socket, log, port: free_port(), page: free_port(), _folder: folder };
        front.write(rest);
        let log = std::fs::File::create(&front.log).expect("a log");
        let path = front.file.to_string_lossy().into_owned();
        let child: Child =
            proxy(&["start", &path, "--grace=2s"]).stdin(Stdio::null()).stderr(log).spawn().expect("starts");
        front.child = Some(Guarded::new(child, &front.log.with_extension("none")));
        comes("the front", || front.said().contains("ready to pass connections on"));
        front
    }

    fn write(&self, rest: &str) {
        std::fs::write(&self.file, file(self, rest)).expect("it is written");
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").server.id().to_string();
        let done = Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill is there");
        assert!(done.success());
    }

    fn reload(&self, rest: &str, says: &str) {
        let before = self.said().matches(says).count();
        self.write(rest);
        self.signal("HUP");
        comes(says, || self.said().matches(says).count() > before);
    }

    /// A connection, and the name of the server that it came to; empty: it was closed.
    fn connect(&self) -> (TcpStream, String) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is set");
        // Not a byte beyond the name.
        let (mut name, mut byte) = (String::new(), [0]);
        while let Ok(1) = (&stream).read(&mut byte)
            && byte != *b"\n"
        {
            name.push(char::from(byte[0]));
        }
        (stream, name)
    }

    fn names(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.connect().1).collect()
    }

    fn tell(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("a socket");
        stream.write_all(format!("{command}\n").as_bytes()).expect("it is told");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// A value of the statistics.
    fn stat(&self, row: &str, column: &str) -> String {
        let text = self.tell("show stat");
        let head: Vec<&str> = text.lines().next().expect("a head").trim_start_matches("# ").split(',').collect();
        let at = head.iter().position(|name| *name == column).expect("a column");
        let fits = |line: &&str| {
            let parts: Vec<&str> = line.split(',').collect();
            parts.len() > 2 && format!("{}/{}", parts[0], parts[1]) == row
        };
        let line = text.lines().find(fits).unwrap_or_else(|| panic!("no {row} in {text}"));
        line.split(',').nth(at).expect("a value").to_owned()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.page)).expect("a page");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("it is asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

/// It passes bytes both ways.
fn echoes(stream: &mut TcpStream) -> bool {
    let mut back = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut back).is_ok() && &back == b"hello"
}

fn servers(all: &[(&str, &Named, &str)]) -> String {
    let line = |(name, server, words): &(&str, &Named, &str)| format!(" server {name} {} {words}\n", server.address);
    format!("backend out\n{}", all.iter().map(line).collect::<String>())
}

#[test]
fn a_wrong_file_is_refused_with_its_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("h.cfg");
    std::fs::write(&path, "frontend a\n bind *:1 ssl crt x\n default_backend b\n").expect("it is written");
    let name = path.to_string_lossy().into_owned();
    for command in ["check", "convert", "start"] {
        let ended = ends(&[command, &name]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("h.cfg:2: `ssl` of a `bind` is not understood"), "{ended:?}");
    }
    assert_eq!(ends(&["check", "/no/such/file"]).code, Some(1));
    std::fs::write(&path, "frontend a\n bind *:1\n default_backend b\nbackend b\n log global\n server s 127.0.0.1:1\n")
        .expect("it is written");
    let ended = ends(&["check", &name]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("is good: 1 frontend, 1 backend, 1 server"), "{ended:?}");
    assert!(ended.stderr.contains("h.cfg:5: `log global` changes nothing here"), "{ended:?}");
    let schema = ends(&["schema"]).stdout;
    assert!(schema.contains("\"default-backend\""), "{schema}");
}

#[test]
fn servers_that_go_and_come_are_found_out() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let front = Front::start(&servers(&[("a", &a, "check"), ("b", &b, "check on-marked-down shutdown-sessions")]));
    assert_eq!(front.names(4), ["a", "b", "a", "b"]);
    let (mut kept, name) = front.connect();
    assert_eq!(name, "a");
    let (mut cut, name) = front.connect();
    assert_eq!(name, "b");
    assert!(echoes(&mut kept) && echoes(&mut cut));
    // Nobody sees that one is gone, before the checks do as well as after.
    b.close();
    assert_eq!(front.names(3), ["a", "a", "a"]);
    comes("b to be down", || front.stat("out/b", "status") == "DOWN");
    assert!(echoes(&mut kept), "who is at the other one stays");
    assert!(!echoes(&mut cut), "its own connections end with it, as the file says");
    assert!(front.said().contains("server is down"), "{}", front.said());
    let _b = Named::at("b", b.address.port());
    comes("b to be up", || front.stat("out/b", "status").starts_with("UP"));
    let mut names = front.names(4);
    names.sort();
    assert_eq!(names, ["a", "a", "b", "b"]);
    a.close();
    _b.close();
    comes("nobody to be there", || front.stat("out/BACKEND", "status") == "DOWN");
    assert_eq!(front.connect().1, "");
}

#[test]
fn an_operator_drains_and_enables() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let front = Front::start(&servers(&[("a", &a, "check"), ("b", &b, "")]));
    let (mut kept, _) = front.connect();
    assert_eq!(front.tell("set server out/a state drain"), "\n");
    assert_eq!(front.names(3), ["b", "b", "b"]);
    assert!(echoes(&mut kept));
    assert_eq!((front.stat("out/a", "status"), front.stat("out/b", "status")), ("DRAIN".into(), "no check".into()));
    assert_eq!(front.tell("shutdown sessions server out/a"), "\n");
    assert!(!echoes(&mut kept));
    front.tell("set server out/a state ready; set server out/b state maint");
    assert_eq!(front.names(2), ["a", "a"]);
    for (command, answer) in [
        ("set server out/x state drain", "No such server.\n\n"),
        ("set server x/a state drain", "No such backend.\n\n"),
        ("set server out/a state foo", "'set server <srv> state' expects 'ready', 'drain' and 'maint'.\n\n"),
        ("set weight out/a 300", "Absolute weight can only be between 0 and 256 inclusive.\n\n"),
        ("get weight out/a", "1 (initial 1)\n\n"),
    ] {
        assert_eq!(front.tell(command), answer, "{command}");
    }
    // The page does the same.
    let mut stream = TcpStream::connect(("127.0.0.1", front.page)).expect("a page");
    let form = "b=out&s=b&action=ready";
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nconnection: close\r\n", form.len());
    write!(stream, "{head}\r\n{form}").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("location: /;st=DONE"), "{answer}");
    assert_eq!(front.stat("out/b", "status"), "no check");
    let mut stream = TcpStream::connect(("127.0.0.1", front.page)).expect("a page");
    write!(stream, "{head}origin: http://evil\r\n\r\n{form}").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn a_new_file_is_taken_whole_or_not_at_all_and_cuts_nobody() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let front = Front::start(&servers(&[("a", &a, "")]));
    let (mut kept, _) = front.connect();
    front.reload("backend out\n server a nonsense\n", "the new file is refused");
    assert!(echoes(&mut kept));
    assert_eq!(front.names(2), ["a", "a"]);
    front.reload(&servers(&[("b", &b, "")]), "the new file is taken");
    assert_eq!(front.names(2), ["b", "b"]);
    assert!(echoes(&mut kept), "its server is not in the file any more, and it goes on");
    // A port that somebody else has refuses the whole file.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = format!("frontend two\n bind {}\n default_backend out\n", taken.local_addr().expect("an address"));
    front.reload(&format!("{}{other}", servers(&[("a", &a, "")])), "the new file is refused");
    assert_eq!(front.names(2), ["b", "b"]);
    // At the end those that stand get their time, and no longer.
    front.signal("TERM");
    comes("the end to begin", || front.said().contains("no new connection is taken"));
    comes("nobody to be let in", || TcpStream::connect(("127.0.0.1", front.port)).is_err());
    assert!(echoes(&mut kept));
    let begin = Instant::now();
    let mut rest = Vec::new();
    let _ = kept.read_to_end(&mut rest);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn who_finds_no_place_waits_for_one() {
    let a = Named::new("a");
    let front = Front::start(&servers(&[("a", &a, "maxconn 1")]));
    let (first, _) = front.connect();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| front.connect().1);
        comes("one to wait", || front.stat("out/BACKEND", "qcur") == "1");
        drop(first);
        waiting.join().expect("it ends")
    });
    assert_eq!(waiting, "a");
    assert_eq!(front.stat("out/BACKEND", "qmax"), "1");
    // Who waits longer than the file allows is sent away.
    let (_first, name) = front.connect();
    assert_eq!(name, "a");
    let begin = Instant::now();
    assert_eq!(front.connect().1, "");
    assert!(begin.elapsed() >= Duration::from_millis(2_900), "{:?}", begin.elapsed());
}

#[test]
fn servers_learn_who_asks_and_statistics_say_what_passed() {
    let a = Named::new("a");
    let front = Front::start(&servers(&[("a", &a, "send-proxy check")]));
    let (mut stream, _) = front.connect();
    let header =
        format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", stream.local_addr().expect("one").port(), front.port);
    let mut back = vec![0; header.len()];
    stream.read_exact(&mut back).expect("the header comes back");
    assert_eq!(String::from_utf8_lossy(&back), header);
    assert!(echoes(&mut stream));
    comes("the check", || front.stat("out/a", "check_status") == "L4OK");
    assert_eq!((front.stat("out/a", "bin"), front.stat("in/FRONTEND", "scur")), ("5".into(), "1".into()));
    let page = front.get("/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("Backend out") && page.contains("L4OK"), "{page}");
    assert!(front.get("/;csv").contains("\nout,a,0,0,1,1,,1,5,"), "{}", front.get("/;csv"));
    let metrics = front.get("/metrics");
    for line in [
        "haproxy_server_status{proxy=\"out\",server=\"a\",state=\"UP\"} 1",
        "haproxy_frontend_current_sessions{proxy=\"in\"} 1",
        "haproxy_backend_active_servers{proxy=\"out\"} 1",
        "haproxy_server_check_status{proxy=\"out\",server=\"a\",state=\"L4OK\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}
