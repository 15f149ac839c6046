//! Members as processes, for the tests that ask the real program.
//!
//! `KVORUM_TEST_BIN` names another program that takes etcd's flags, such as a real etcd:
//! the tests of the protocol then ask that one, which is how their expectations were found.

// Each test program uses its own part of this.
#![allow(dead_code)]

pub mod http;
pub mod ops;
pub mod peers;
pub mod watching;

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Error, Options, wire::Code};
use rustix::process::{Pid, Signal, kill_process};
pub use testkit::servers::PATIENCE;
use testkit::servers::{self, Guarded};

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The program under test, ready to be given etcd's flags.
pub fn program() -> Command {
    program_at(&std::env::var_os("KVORUM_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_kvorum").into(), PathBuf::from))
}

fn program_at(path: &Path) -> Command {
    let mut command = Command::new(path);
    if path.file_name().is_none_or(|name| name != "etcd") {
        command.arg("server");
    }
    clean(&mut command);
    command
}

/// Takes variables away that the program would take for flags.
pub fn clean(command: &mut Command) {
    for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("ETCD_")) {
        command.env_remove(key);
    }
}

/// Whether the tests ask another program than this one.
pub fn is_other() -> bool {
    std::env::var_os("KVORUM_TEST_BIN").is_some()
}

pub fn free_port() -> u16 {
    servers::free_port(20_000, 12_000)
}

/// How a member is started.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    pub client_port: u16,
    pub peer_port: u16,
    /// Empty: the flag is not given.
    pub initial_cluster: String,
    pub dir: PathBuf,
    pub extra: Vec<String>,
}

impl Spec {
    /// A cluster of one in `dir`.
    pub fn alone(dir: &Path, extra: &[&str]) -> Spec {
        Spec::cluster(dir, 1, extra).remove(0)
    }

    /// The members of a cluster, each in a directory of its own below `dir`.
    pub fn cluster(dir: &Path, members: usize, extra: &[&str]) -> Vec<Spec> {
        let peers: Vec<(String, u16)> = (1..=members).map(|n| (format!("m{n}"), free_port())).collect();
        let initial: Vec<String> = peers.iter().map(|(name, port)| format!("{name}=http://127.0.0.1:{port}")).collect();
        peers
            .into_iter()
            .map(|(name, peer_port)| Spec {
                client_port: free_port(),
                peer_port,
                initial_cluster: initial.join(","),
                dir: dir.join(&name),
                extra: extra.iter().map(ToString::to_string).collect(),
                name,
            })
            .collect()
    }

    /// Where the member's words go.
    pub fn log(&self) -> PathBuf {
        self.dir.with_extension("log")
    }

    /// Adds the flags of this member to a command.
    pub fn flags(&self, command: &mut Command) {
        let client = format!("http://127.0.0.1:{}", self.client_port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        command
            .args(["--name", &self.name])
            .arg("--data-dir")
            .arg(&self.dir)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster-token", "tests"]);
        if !self.initial_cluster.is_empty() {
            command.args(["--initial-cluster", &self.initial_cluster]);
        }
        // The last value of a flag counts.
        command.args(&self.extra);
    }

    /// Runs the member to its end, which must come by itself.
    pub fn run_to_end(&self) -> Ended {
        let mut command = program();
        self.flags(&mut command);
        run_to_end(command)
    }
}

/// How a program ended that was not meant to stay, and all that it said.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program that must end by itself.
pub fn run_to_end(mut command: Command) -> Ended {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let until = Instant::now() + PATIENCE;
    // What these programs say before they end fits into a pipe.
    while child.try_wait().expect("asks").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{command:?} does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let output = child.wait_with_output().expect("has ended");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A member that was started.
#[derive(Debug)]
pub struct Member {
    pub spec: Spec,
    process: Option<Guarded>,
}

impl Member {
    /// Starts the process; it may not serve yet.
    pub fn spawn(spec: Spec) -> Member {
        let mut member = Member { spec, process: None };
        member.respawn();
        member
    }

    /// Starts the process and waits until it serves.
    pub fn start(spec: Spec) -> Member {
        let mut member = Member::spawn(spec);
        member.ready();
        member
    }

    /// Starts the process from another path to the program.
    pub fn spawn_by(spec: Spec, program: &Path) -> Member {
        let mut member = Member { spec, process: None };
        member.spawn_command(program_at(program));
        member
    }

    /// Starts it again on what its last life left.
    pub fn respawn(&mut self) {
        self.spawn_command(program());
    }

    fn spawn_command(&mut self, mut command: Command) {
        assert!(self.process.is_none(), "{} runs already", self.spec.name);
        let log = File::options().create(true).append(true).open(self.spec.log()).expect("opens its log");
        self.spec.flags(&mut command);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = command.spawn().expect("starts");
        let around = self.spec.dir.parent().expect("lies in a temporary directory");
        self.process = Some(Guarded::new(child, around));
    }

    /// Waits until a linearisable read is answered.
    pub fn ready(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = http::post(self.spec.client_port, "/v3/kv/range", r#"{"key":"cmVhZHk="}"#);
            if answer.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            if let Some(status) = self.ended() {
                panic!("{} ended with {status}\n{}", self.spec.name, self.log());
            }
            assert!(Instant::now() < until, "{} does not serve\n{}", self.spec.name, self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// How it ended, if it did so by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.server.try_wait().expect("asks")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process.as_ref().expect("runs").server);
        kill_process(pid, signal).expect("signals");
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Sends a signal, waits for the end, and says how it ended and how long that took.
    pub fn stop(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let begin = Instant::now();
        self.signal(signal);
        loop {
            if let Some(status) = self.ended() {
                self.process = None;
                return (status, begin.elapsed());
            }
            assert!(begin.elapsed() < PATIENCE, "{} does not stop\n{}", self.spec.name, self.log());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Of the process that runs.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").server.id()
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.spec.client_port)
    }

    /// All that it has said in all its lives.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.spec.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("-- {} --\n{}", self.spec.name, self.log());
        }
        self.kill();
    }
}

/// The status that a shell shows: 128 and the signal's number for a process that died of one.
pub fn shell_code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

/// Runs a test that waits for the network; one that hangs fails in the end.
pub fn block_on<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(4 * PATIENCE, test).await.expect("the test takes too long") })
}

/// A client of one or more members.
pub fn client_of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Client {
    let endpoints = Options::of(members.into_iter().map(Member::endpoint));
    Client::connect(Options { request_timeout: Some(PATIENCE), ..endpoints }).expect("endpoints")
}

/// A cluster of one in a directory of its own.
#[derive(Debug)]
pub struct Alone {
    // Dropped in this order.
    pub member: Member,
    _dir: tempfile::TempDir,
}

impl Alone {
    pub fn new(extra: &[&str]) -> Alone {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let member = Member::start(Spec::alone(dir.path(), extra));
        Alone { member, _dir: dir }
    }

    pub fn client(&self) -> Client {
        client_of([&self.member])
    }

    pub fn port(&self) -> u16 {
        self.member.spec.client_port
    }
}

/// Panics unless `yes` comes true in time.
#[track_caller]
pub fn comes(what: &str, mut yes: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !yes() {
        assert!(Instant::now() < until, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Panics unless the server refused with this code and text.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(result: client::Result<T>, code: Code, message: &str) {
    let wanted = Error::Server { code, message: message.to_owned() };
    match result {
        Err(error) => assert_eq!(error, wanted),
        Ok(answer) => panic!("answered {answer:?}, not {wanted:?}"),
    }
}
