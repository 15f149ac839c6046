//! Clusters of a real program, from the folder that `KVORUM_TEST_ETCD` names:
//! `etcd`, and where a test says so `etcdctl` and `etcdutl`.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use client::{Client, Options};
use tempfile::TempDir;

/// No start or election takes longer, even on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the programs; without it a test has nothing to do.
pub fn programs(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("{test}: KVORUM_TEST_ETCD is not set");
    }
    folder
}

pub struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    members: Vec<Member>,
    /// Given to each member.
    more: Vec<String>,
    scheme: &'static str,
}

struct Member {
    client: u16,
    peer: u16,
    /// With its guard.
    child: Option<(Child, Child)>,
}

/// A port of loopback that nobody listens on, below those of outgoing connections: until the
/// member is there, and while it is down, no connection of another test may take it.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const LOW: u16 = 10000;
    const COUNT: u16 = 4_000;
    let first = u16::try_from(std::process::id().wrapping_mul(1583) % u32::from(COUNT)).unwrap();
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < COUNT, "no free port on 127.0.0.1 from {LOW} on");
        let port = LOW + (first + step) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A shell that ends a server and removes its folder when this program ends, whichever way that
/// is: its input is closed then. It is killed before the server is.
fn guard(server: &Child, folder: &Path) -> Child {
    let script = "trap '' INT; read _; kill -9 \"$1\"; sleep 0.1; rm -rf \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "guard"]).arg(server.id().to_string()).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("there is a shell")
}

/// Kills both, the guard first, and waits until they are gone.
fn end(guard: &mut Child, server: &mut Child) {
    for child in [guard, server] {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Cluster {
    pub fn start(programs: &Path, count: usize, scheme: &'static str, more: &[String]) -> Cluster {
        let folder = TempDir::new().unwrap();
        let members = (0..count).map(|_| Member { client: free_port(), peer: free_port(), child: None }).collect();
        let mut cluster = Cluster { programs: programs.to_owned(), folder, members, more: more.to_vec(), scheme };
        (0..count).for_each(|at| cluster.run(at));
        cluster
    }

    /// Starts a member, for the first time or again.
    pub fn run(&mut self, at: usize) {
        let all: Vec<String> =
            self.members.iter().enumerate().map(|(n, m)| format!("m{n}=http://127.0.0.1:{}", m.peer)).collect();
        let member = &self.members[at];
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let log = std::fs::File::options().create(true).append(true).open(self.file(&format!("m{at}.log"))).unwrap();
        let mut command = Command::new(self.programs.join("etcd"));
        command
            .args(["--name", &format!("m{at}"), "--data-dir"])
            .arg(self.file(&format!("m{at}")))
            .args(["--listen-client-urls", &self.endpoint(at), "--advertise-client-urls", &self.endpoint(at)])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--log-level", "warn"])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().expect("KVORUM_TEST_ETCD is a folder with etcd in it");
        let guard = guard(&child, self.folder.path());
        self.members[at].child = Some((child, guard));
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn endpoint(&self, at: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[at].client)
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|at| self.endpoint(at)).collect()
    }

    pub fn options(&self) -> Options {
        Options::of(self.endpoints())
    }

    pub fn kill(&mut self, at: usize) {
        let (mut child, mut guard) = self.members[at].child.take().expect("it runs");
        end(&mut guard, &mut child);
    }

    /// Waits until the whole cluster answers.
    pub async fn ready(&self, client: &Client) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let mut well = 0;
            for endpoint in self.endpoints() {
                let one = client.single(&endpoint).unwrap().with_request_timeout(Some(Duration::from_secs(2)));
                well += usize::from(one.status().await.is_ok_and(|status| status.leader != 0));
            }
            if well == self.members.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the cluster does not come up");
    }

    /// Which member leads.
    pub async fn leader(&self, client: &Client) -> usize {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            for (at, member) in self.members.iter().enumerate() {
                if member.child.is_none() {
                    continue;
                }
                let one = client.single(&self.endpoint(at)).unwrap().with_request_timeout(Some(Duration::from_secs(1)));
                if let Ok(status) = one.status().await
                    && status.leader != 0
                    && status.leader == status.header.unwrap_or_default().member_id
                {
                    return at;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nobody leads");
    }

    /// Runs a program of the folder on this cluster to its end.
    pub fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if program == "etcdctl" {
            command.arg(format!("--endpoints={}", self.endpoints().join(",")));
        }
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some((mut child, mut guard)) = member.child.take() {
                end(&mut guard, &mut child);
            }
        }
    }
}

/// What a program said, which must have gone well.
pub fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
