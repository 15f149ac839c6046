//! Clusters of a real program, from the folder that `KVORUM_TEST_ETCD` names:
//! `etcd`, and where a test says so `etcdctl` and `etcdutl`.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use client::{Client, Options};
use tempfile::TempDir;
pub use testkit::servers::PATIENCE;
use testkit::servers::{self, Guarded};

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
    // Dropped in this order.
    members: Vec<Member>,
    folder: TempDir,
    /// Given to each member.
    more: Vec<String>,
    scheme: &'static str,
}

struct Member {
    client: u16,
    peer: u16,
    process: Option<Guarded>,
}

fn free_port() -> u16 {
    servers::free_port(10_000, 4_000)
}

impl Cluster {
    pub fn start(programs: &Path, count: usize, scheme: &'static str, more: &[String]) -> Cluster {
        let folder = TempDir::new().unwrap();
        let members = (0..count).map(|_| Member { client: free_port(), peer: free_port(), process: None }).collect();
        let mut cluster = Cluster { programs: programs.to_owned(), members, folder, more: more.to_vec(), scheme };
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
        self.members[at].process = Some(Guarded::new(child, self.folder.path()));
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
        self.members[at].process.take().expect("it runs").end();
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
                if member.process.is_none() {
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

/// What a program said, which must have gone well.
pub fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
