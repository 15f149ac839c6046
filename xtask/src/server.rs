//! Servers as child processes: a real etcd or a kvorum, told apart by nothing
//! but the program, since both take the same flags.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use wire::{Rpc, etcdserverpb as pb};

use crate::raw::Raw;

/// How a member is started.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Program and its leading arguments.
    pub program: Program,
    pub name: String,
    /// The address where it listens.
    pub host: String,
    pub client_port: u16,
    pub peer_port: u16,
    /// Where the others find it: the peer port, or something that stands in between.
    pub advertised_port: u16,
    /// `name=url,…` of the whole cluster.
    pub initial_cluster: String,
    pub data_dir: PathBuf,
    /// Standard output and error of all lives of the member.
    pub log: PathBuf,
    pub extra: Vec<String>,
}

/// A program that understands etcd's flags.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    /// `server` for a kvorum that is not called `etcd`.
    pub first: Vec<String>,
    /// In a group of processes of its own: what is typed at the terminal does not reach it.
    pub own_group: bool,
}

impl Program {
    pub fn new(path: &Path) -> Result<Program> {
        if !path.is_file() {
            bail!("{}: no such program", path.display());
        }
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let first = match name.as_deref() {
            Some("etcd") => vec![],
            _ => vec!["server".to_owned()],
        };
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        Ok(Program { path, first, own_group: false })
    }
}

/// A member, running or killed.
#[derive(Debug)]
pub struct Server {
    pub spec: Spec,
    child: Option<Child>,
}

/// What tunes a Go program from outside.
const TUNING: [&str; 4] = ["GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG"];

impl Server {
    /// Starts the process; it may not serve yet.
    pub fn start(spec: Spec) -> Result<Server> {
        let mut server = Server::stopped(spec);
        server.restart()?;
        Ok(server)
    }

    /// A member that does not run yet.
    pub fn stopped(spec: Spec) -> Server {
        Server { spec, child: None }
    }

    /// Starts the process again on what its last life left.
    pub fn restart(&mut self) -> Result<()> {
        assert!(self.child.is_none(), "{} runs already", self.spec.name);
        let spec = &self.spec;
        let client = format!("http://{}:{}", spec.host, spec.client_port);
        let peer = format!("http://{}:{}", spec.host, spec.peer_port);
        let advertised = format!("http://{}:{}", spec.host, spec.advertised_port);
        let log = File::options().create(true).append(true).open(&spec.log)?;
        let mut command = Command::new(&spec.program.path);
        command
            .args(&spec.program.first)
            .args(["--name", &spec.name])
            .args(["--data-dir", &spec.data_dir.to_string_lossy()])
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &advertised])
            .args(["--initial-cluster", &spec.initial_cluster])
            .args(["--initial-cluster-token", "xtask"])
            .args(["--initial-cluster-state", "new"])
            .args(&spec.extra)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // Flags and limits are the same for all, whatever the shell has set.
        let foreign = |name: &str| name.starts_with("ETCD_") || TUNING.contains(&name);
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(foreign)).for_each(|(name, _)| {
            command.env_remove(name);
        });
        if spec.program.own_group {
            command.process_group(0);
        }
        let child = command.spawn().with_context(|| format!("starting {}", spec.program.path.display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub fn endpoint(&self) -> String {
        format!("{}:{}", self.spec.host, self.spec.client_port)
    }

    /// Of the process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It fails only for a process that has ended, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and waits until it is gone; after ten seconds it is killed.
    pub async fn terminate(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(10);
        self.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            if Instant::now() > deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.kill();
    }

    /// Stops the process where it is, as a machine that hangs does.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(pid) = pid {
            // It fails only for a process that has ended, which the next look at it finds.
            let _ = kill_process(pid, signal);
        }
    }

    /// How the process ended, if it did so by itself.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!("{} ended by itself: {status}", self.spec.name))
    }

    /// Waits until a linearisable read is answered.
    pub async fn ready(&mut self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        let read = pb::RangeRequest { key: "ready".into(), ..Default::default() };
        loop {
            if let Some(end) = self.ended() {
                bail!("{end}\n{}", self.log_tail());
            }
            let last = match Raw::connect(&self.endpoint()).await {
                Ok(raw) => match raw.call::<_, pb::RangeResponse>(Rpc::Range, &read).await {
                    Ok(_) => return Ok(()),
                    // Users are asked for: it has read far enough to say who may not.
                    Err(failure) if failure.text.ends_with("user name is empty") => return Ok(()),
                    Err(failure) => failure.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() > deadline {
                let tail = self.log_tail();
                bail!("{} does not serve after {within:?}: {last}\n{tail}", self.spec.name);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The last lines of the member's log.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.spec.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(15);
        format!("-- {} --\n{}", self.spec.log.display(), lines[from..].join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where members listen that need no network of their own.
pub const LOOPBACK: &str = "127.0.0.1";

/// Where a member listens, and where the others find it.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub client: u16,
    pub peer: u16,
    pub advertised: u16,
}

/// Free ports for so many members.
pub fn ports(members: usize) -> Result<Vec<Ports>> {
    let one = |_| {
        let (client, peer) = (free_port()?, free_port()?);
        Ok(Ports { client, peer, advertised: peer })
    };
    (0..members).map(one).collect()
}

/// The members of a new cluster in `dir`, started.
pub fn cluster(program: &Program, members: usize, dir: &Path, extra: &[String]) -> Result<Vec<Server>> {
    cluster_at(program, &ports(members)?, dir, extra)
}

/// The same with these ports.
pub fn cluster_at(program: &Program, ports: &[Ports], dir: &Path, extra: &[String]) -> Result<Vec<Server>> {
    let named = ports.iter().enumerate().map(|(at, ports)| (format!("m{at}"), *ports));
    let initial: Vec<String> =
        named.clone().map(|(name, ports)| format!("{name}=http://127.0.0.1:{}", ports.advertised)).collect();
    named
        .map(|(name, ports)| {
            Server::start(Spec {
                program: program.clone(),
                host: LOOPBACK.to_owned(),
                client_port: ports.client,
                peer_port: ports.peer,
                advertised_port: ports.advertised,
                initial_cluster: initial.join(","),
                data_dir: dir.join(&name),
                log: dir.join(format!("{name}.log")),
                extra: extra.to_vec(),
                name,
            })
        })
        .collect()
}

/// A loopback port that nobody listens on, below the range from which the
/// system takes the ports of outgoing connections: a member that restarts must
/// find it free.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const LOW: u16 = 20_000;
    const COUNT: u16 = 12_000;
    let start = (std::process::id().wrapping_mul(7919) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = LOW + (start + step) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 from {LOW} on")
}
