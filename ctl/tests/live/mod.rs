//! Servers that the tests of this crate start, and the programs they run.

// Not every test uses everything.
#![allow(dead_code)]

pub mod certs;
pub mod person;

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

pub use testkit::servers::PATIENCE;
use testkit::servers::{self, Guarded};

/// Ids are made of this address: with the same one they are the same. Nobody
/// connects to it.
const ADVERTISED: &str = "http://127.0.0.1:1";

/// A server that is killed when it is no longer needed.
pub struct Server {
    process: Guarded,
    /// Where it serves clients.
    pub port: u16,
    address: String,
    dir: tempfile::TempDir,
}

fn free_port() -> u16 {
    servers::free_port(14_000, 6_000)
}

/// A cluster of one.
pub fn start(program: &Path, sub: Option<&str>) -> Server {
    start_at(program, sub, &[])
}

/// A cluster of one that listens in more places; `PORT` in them is its port.
pub fn start_at(program: &Path, sub: Option<&str>, more: &[&str]) -> Server {
    let (port, peer) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
    let own = format!("http://127.0.0.1:{port}");
    let more = more.iter().map(|url| url.replace("PORT", &port.to_string()));
    let client = [own].into_iter().chain(more).collect::<Vec<_>>().join(",");
    let mut server = spawn(program, sub, "m1", port, &[&client, &peer, ADVERTISED, &format!("m1={ADVERTISED}")]);
    server.wait(program);
    server
}

fn healthy(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
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
    let mut servers: Vec<Server> = ports
        .iter()
        .enumerate()
        .map(|(i, (port, peer))| {
            let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
            spawn(program, sub, &format!("m{i}"), *port, &[&client, &peer, &peer, &peers])
        })
        .collect();
    servers.iter_mut().for_each(|server| server.wait(program));
    servers
}

/// A cluster of one real etcd with the certificate `server` of this authority;
/// it wants one of its clients, too.
pub fn start_encrypted(etcd: &Path, authority: &certs::Authority) -> Server {
    let files = ["ca.pem", "server.pem", "server.key"].map(|name| authority.file(name));
    start_with_files(etcd, &files)
}

/// The same with these files: who vouches for clients, certificate, key.
pub fn start_with_files(etcd: &Path, files: &[PathBuf; 3]) -> Server {
    let (port, peer) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
    let client = format!("https://127.0.0.1:{port}");
    let mut command = Command::new(etcd);
    for (flag, file) in ["--trusted-ca-file", "--cert-file", "--key-file"].iter().zip(files) {
        command.arg(flag).arg(file);
    }
    command
        .args([
            "--client-cert-auth",
            "--name",
            "m1",
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("m1={peer}")]);
    launch(command, format!("127.0.0.1:{port}"), port)
}

/// A cluster of one real etcd that encrypts with a certificate of its own making
/// (`--auto-tls`).
pub fn start_auto_tls(etcd: &Path) -> Server {
    let (port, peer) = (free_port(), format!("http://127.0.0.1:{}", free_port()));
    let client = format!("https://127.0.0.1:{port}");
    let mut command = Command::new(etcd);
    command
        .args(["--auto-tls", "--name", "m1", "--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("m1={peer}")]);
    launch(command, format!("127.0.0.1:{port}"), port)
}

impl Server {
    /// A file of its data directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("data").join(name)
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.process.end();
    }

    fn wait(&mut self, program: &Path) {
        let deadline = Instant::now() + PATIENCE;
        while !healthy(&self.address) {
            assert!(Instant::now() < deadline, "{} does not serve\n{}", program.display(), self.log());
            if let Some(status) = self.process.server.try_wait().expect("it can be asked") {
                panic!("{} ended with {status}\n{}", program.display(), self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it takes connections.
    pub fn listens(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&self.address).is_err() {
            assert!(Instant::now() < deadline, "the server does not listen\n{}", self.log());
            if let Some(status) = self.process.server.try_wait().expect("it can be asked") {
                panic!("the server ended with {status}\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has said.
    fn log(&self) -> String {
        let bytes = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Client URL, peer URL to listen on, peer URL to be known by, the founders.
fn spawn(program: &Path, sub: Option<&str>, name: &str, port: u16, urls: &[&str; 4]) -> Server {
    let mut command = Command::new(program);
    command
        .args(sub)
        .args(["--name", name, "--listen-client-urls", urls[0]])
        .args(["--advertise-client-urls", urls[0].split(',').next().unwrap_or_default()])
        .args(["--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[2]])
        .args(["--initial-cluster", urls[3]]);
    launch(command, format!("127.0.0.1:{port}"), port)
}

/// Starts a server in a folder of its own.
fn launch(mut command: Command, address: String, port: u16) -> Server {
    let dir = tempfile::tempdir().expect("a folder");
    let log = std::fs::File::create(dir.path().join("log")).expect("a log");
    let child = command
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .expect("the server starts");
    Server { process: Guarded::new(child, dir.path()), port, address, dir }
}

/// Client and peer port of each member of a [`Cluster`].
const PORTS: (u16, u16) = (2379, 2380);

/// A cluster of real etcds, each on a loopback address of its own: they are the
/// same whenever it is started, and so are the ids of the founders.
pub struct Cluster {
    program: PathBuf,
    servers: BTreeMap<usize, Server>,
}

impl Cluster {
    /// Members 0 to 2.
    pub fn found(program: &Path) -> Cluster {
        let founders: Vec<String> = (0..3).map(|at| format!("m{at}=http://{}", Cluster::peer(at))).collect();
        let mut cluster = Cluster { program: program.to_owned(), servers: BTreeMap::new() };
        for at in 0..3 {
            cluster.launch(at, &founders.join(","), "new");
        }
        cluster.servers.values_mut().for_each(|server| server.wait(program));
        cluster
    }

    /// Where a member serves clients. No other process of these tests has these
    /// addresses.
    pub fn client(at: usize) -> String {
        let id = std::process::id();
        format!("127.{}.{}.{}:{}", 64 + (id >> 8) % 128, id % 256, 10 + at, PORTS.0)
    }

    /// Where a member serves other members.
    pub fn peer(at: usize) -> String {
        Cluster::client(at).replace(&PORTS.0.to_string(), &PORTS.1.to_string())
    }

    /// Starts a member that was added; `members`: all of them, as the program
    /// wants them.
    pub fn join(&mut self, at: usize, members: &str) {
        self.launch(at, members, "existing");
    }

    /// Kills a member as a crash would.
    pub fn kill(&mut self, at: usize) {
        self.servers.remove(&at).expect("it runs").kill();
    }

    fn launch(&mut self, at: usize, members: &str, state: &str) {
        let (client, peer) = (format!("http://{}", Cluster::client(at)), format!("http://{}", Cluster::peer(at)));
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &format!("m{at}"), "--initial-cluster", members, "--initial-cluster-state", state])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        self.servers.insert(at, launch(command, Cluster::client(at), PORTS.0));
    }
}
