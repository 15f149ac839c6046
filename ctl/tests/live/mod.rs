//! Servers that the tests of this crate start, and the programs they run.

// Not every test uses everything.
#![allow(dead_code)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Ids are made of this address: with the same one they are the same. Nobody
/// connects to it.
const ADVERTISED: &str = "http://127.0.0.1:1";

/// A server that is killed when it is no longer needed.
pub struct Server {
    child: Child,
    /// Where it serves clients.
    pub port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("loopback has room").port()
}

/// A cluster of one.
pub fn start(program: &Path, sub: Option<&str>) -> Server {
    let (port, peer) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
    let client = format!("http://127.0.0.1:{port}");
    let server = spawn(program, sub, "m1", port, &[&client, &peer, ADVERTISED, &format!("m1={ADVERTISED}")]);
    server.wait(program);
    server
}

fn healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    if stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_err() {
        return false;
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.contains("\"health\":\"true\"")
}

/// Our program under the stock tool's name, which cargo has built beside us.
pub fn ours() -> PathBuf {
    let me = std::env::current_exe().expect("this test is a file");
    let example = me.parent().and_then(Path::parent).expect("target/<profile>/deps").join("examples/etcdctl");
    assert!(example.exists(), "{} is not built", example.display());
    example
}

/// The folder of the real programs.
pub fn programs() -> Option<PathBuf> {
    std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from)
}

/// A cluster of three; its members in the order of their ports.
pub fn start_three(program: &Path, sub: Option<&str>) -> Vec<Server> {
    let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
    let peers: Vec<String> = ports.iter().enumerate().map(|(i, p)| format!("m{i}=http://127.0.0.1:{}", p.1)).collect();
    let peers = peers.join(",");
    let servers: Vec<Server> = ports
        .iter()
        .enumerate()
        .map(|(i, (port, peer))| {
            let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
            spawn(program, sub, &format!("m{i}"), *port, &[&client, &peer, &peer, &peers])
        })
        .collect();
    servers.iter().for_each(|server| server.wait(program));
    servers
}

impl Server {
    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn wait(&self, program: &Path) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !healthy(self.port) {
            assert!(Instant::now() < deadline, "{} does not serve", program.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Client URL, peer URL to listen on, peer URL to be known by, the founders.
fn spawn(program: &Path, sub: Option<&str>, name: &str, port: u16, urls: &[&str; 4]) -> Server {
    let dir = tempfile::tempdir().expect("a folder");
    let child = Command::new(program)
        .args(sub)
        .args(["--name", name, "--data-dir"])
        .arg(dir.path().join("data"))
        .args(["--listen-client-urls", urls[0], "--advertise-client-urls", urls[0]])
        .args(["--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[2]])
        .args(["--initial-cluster", urls[3]])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server starts");
    Server { child, port, _dir: dir }
}
