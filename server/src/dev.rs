//! `kvorum dev`: a cluster on loopback with one command, for trying things out.
//!
//! Each member is a process of its own (the same binary), so that one can be killed by hand
//! to see what happens. Ports are remembered in the directory: the next start finds
//! everything again.

use disk::urls::Url;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const READY_LINE: &str = "ready to serve client requests";
/// Until the first start gives up.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A member that ignores SIGTERM for this long is killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Where free ports are sought when the wanted one is taken.
const OTHER_PORTS: std::ops::Range<u16> = 23790..24790;
const MOST_MEMBERS: u16 = 9;

/// A cluster on loopback: `kvorum dev`.
pub struct Dev {
    /// How many, 1 to 9.
    pub members: u16,
    /// One folder of it for each member.
    pub data_dir: PathBuf,
    /// Client port of the first member, if it is free.
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    client: u16,
    peer: u16,
}

struct Running {
    name: String,
    child: Child,
    ports: Ports,
    /// Said once when the process ended without being asked to.
    gone: bool,
}

/// Runs until Ctrl-C or SIGTERM. The error says what could not be done.
pub fn run(dev: &Dev) -> Result<(), String> {
    if dev.members == 0 || dev.members > MOST_MEMBERS {
        return Err(format!("--members must be 1 to {MOST_MEMBERS}"));
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dev.data_dir)
        .map_err(|error| format!("{}: {error}", dev.data_dir.display()))?;
    let ports = ports(dev)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|error| error.to_string())?;
    }
    let (ready, readiness) = mpsc::channel();
    let mut running = Vec::new();
    for n in 0..ports.len() {
        match spawn(dev, &ports, n, ready.clone()) {
            Ok(member) => running.push(member),
            Err(error) => {
                stop_all(&mut running);
                return Err(error);
            }
        }
    }
    println!("starting {} in {} …", count(ports.len()), dev.data_dir.display());
    let up = wait_ready(&mut running, &readiness, &stop);
    if let Ok(true) = up {
        introduce(dev, &running);
        watch(&mut running, &stop);
    }
    println!("stopping …");
    stop_all(&mut running);
    up.map(|_| println!("stopped; `kvorum dev` with the same directory continues where this ended"))
}

fn count(members: usize) -> String {
    if members == 1 { "1 member".into() } else { format!("{members} members") }
}

/// The remembered ports, or new ones that are free now.
fn ports(dev: &Dev) -> Result<Vec<Ports>, String> {
    let file = dev.data_dir.join("ports");
    let named = |error: io::Error| format!("{}: {error}", file.display());
    match fs::read_to_string(&file) {
        Ok(text) => {
            let ports = parse_ports(&text).ok_or_else(|| format!("{}: not a list of ports", file.display()))?;
            if ports.len() != usize::from(dev.members) {
                return Err(format!(
                    "{} holds a cluster of {}; start it with --members {} or choose another --data-dir",
                    dev.data_dir.display(),
                    count(ports.len()),
                    ports.len()
                ));
            }
            Ok(ports)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let ports = free_ports(dev.members, dev.port)?;
            let text: String = ports.iter().map(|p| format!("{} {}\n", p.client, p.peer)).collect();
            fs::write(&file, text).map_err(named)?;
            Ok(ports)
        }
        Err(error) => Err(named(error)),
    }
}

fn parse_ports(text: &str) -> Option<Vec<Ports>> {
    let ports: Option<Vec<Ports>> = text
        .lines()
        .map(|line| {
            let (client, peer) = line.split_once(' ')?;
            Some(Ports { client: client.parse().ok()?, peer: peer.parse().ok()? })
        })
        .collect();
    ports.filter(|ports| !ports.is_empty())
}

fn is_free(port: u16) -> bool {
    // A listener on every address would take the port from under us without an error.
    TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpStream::connect(("127.0.0.1", port)).is_err()
}

fn free_ports(members: u16, first: u16) -> Result<Vec<Ports>, String> {
    let mut taken = vec![first];
    let mut next = |wanted: Option<u16>| {
        if let Some(port) = wanted.filter(|port| is_free(*port)) {
            return Ok(port);
        }
        let port = OTHER_PORTS.clone().find(|port| !taken.contains(port) && is_free(*port));
        let port = port.ok_or("no free port on loopback")?;
        taken.push(port);
        Ok::<u16, String>(port)
    };
    (0..members)
        .map(|n| {
            let client = next((n == 0).then_some(first))?;
            Ok(Ports { client, peer: next(None)? })
        })
        .collect()
}

fn spawn(dev: &Dev, ports: &[Ports], n: usize, ready: mpsc::Sender<usize>) -> Result<Running, String> {
    let name = format!("m{}", n + 1);
    let cluster: Vec<String> =
        ports.iter().enumerate().map(|(n, p)| format!("m{}=http://127.0.0.1:{}", n + 1, p.peer)).collect();
    let client = format!("http://127.0.0.1:{}", ports[n].client);
    let peer = format!("http://127.0.0.1:{}", ports[n].peer);
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new(program);
    command.arg("server");
    for (flag, value) in [
        ("name", name.as_str()),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &cluster.join(",")),
        ("initial-cluster-token", "kvorum-dev"),
    ] {
        command.arg(format!("--{flag}={value}"));
    }
    command.arg("--data-dir").arg(dev.data_dir.join(&name));
    // ETCD_* variables are meant for single members; here they would meet our flags.
    for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("ETCD_")) {
        command.env_remove(key);
    }
    own_group(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let lines = child.stderr.take().ok_or("the member has no stderr")?;
    let log = log_file(&dev.data_dir, &name)?;
    std::thread::spawn(move || keep_log(lines, log, n, &ready));
    Ok(Running { name, child, ports: ports[n].clone(), gone: false })
}

/// Ctrl-C reaches this process alone, which then stops the members in order.
fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

fn log_file(dir: &Path, name: &str) -> Result<fs::File, String> {
    let path = dir.join(format!("{name}.log"));
    fs::File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn keep_log(lines: impl Read, mut log: fs::File, member: usize, ready: &mpsc::Sender<usize>) {
    for line in BufReader::new(lines).lines() {
        let Ok(line) = line else { return };
        let _ = writeln!(log, "{line}");
        if line.contains(READY_LINE) {
            let _ = ready.send(member);
        }
    }
}

/// True: all serve. False: a signal came first.
fn wait_ready(running: &mut [Running], ready: &mpsc::Receiver<usize>, stop: &AtomicBool) -> Result<bool, String> {
    let until = Instant::now() + READY_WITHIN;
    let mut waiting: Vec<bool> = running.iter().map(|_| true).collect();
    while waiting.contains(&true) {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if let Ok(member) = ready.recv_timeout(Duration::from_millis(50)) {
            waiting[member] = false;
        }
        for member in running.iter_mut() {
            if let Ok(Some(status)) = member.child.try_wait() {
                return Err(format!("{} ended with {status}; its log says why: {}.log", member.name, member.name));
            }
        }
        if Instant::now() > until {
            return Err(format!("not all members serve after {} s; their logs say why", READY_WITHIN.as_secs()));
        }
    }
    Ok(true)
}

fn introduce(dev: &Dev, running: &[Running]) {
    let first = running[0].ports.client;
    let endpoints: Vec<String> = running.iter().map(|m| format!("127.0.0.1:{}", m.ports.client)).collect();
    println!("\n{} on loopback serve etcd's protocol:\n", count(running.len()));
    for member in running {
        println!(
            "  {}  http://127.0.0.1:{}  process {}  log {}",
            member.name,
            member.ports.client,
            member.child.id(),
            dev.data_dir.join(format!("{}.log", member.name)).display()
        );
    }
    println!("\nTry:\n");
    println!("  etcdctl --endpoints={} put hello world", endpoints.join(","));
    println!("  curl -L http://127.0.0.1:{first}/v3/kv/range -X POST -d '{{\"key\": \"aGVsbG8=\"}}'");
    println!(
        "  kill -9 {}        # the others go on; start `kvorum dev` again to bring it back",
        running[0].child.id()
    );
    println!("\nCtrl-C stops all.\n");
}

/// Tells who leads, and each change, until the stop.
fn watch(running: &mut [Running], stop: &AtomicBool) {
    let mut said = None;
    while !stop.load(Ordering::Relaxed) {
        for member in running.iter_mut().filter(|member| !member.gone) {
            if let Ok(Some(status)) = member.child.try_wait() {
                member.gone = true;
                println!("{} ended ({status})", member.name);
            }
        }
        if running.iter().all(|member| member.gone) {
            println!("no member is left");
            return;
        }
        let leader = leader(running);
        if leader != said {
            match &leader {
                Some((name, term)) => println!("{name} leads (term {term})"),
                None => println!("no leader"),
            }
            said = leader;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Name and term of the leader, as the members say; the highest term wins.
fn leader(running: &[Running]) -> Option<(String, u64)> {
    let alive = running.iter().filter(|member| !member.gone);
    alive
        .filter_map(|member| {
            let status = status(member.ports.client)?;
            let number = |value: &serde_json::Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
            let (leader, term) = (number(&status["leader"])?, number(&status["raftTerm"])?);
            (leader != 0 && number(&status["header"]["member_id"])? == leader).then(|| (member.name.clone(), term))
        })
        .max_by_key(|(_, term)| *term)
}

/// `/v3/maintenance/status` of one member, over plain HTTP/1.1.
fn status(port: u16) -> Option<serde_json::Value> {
    const WITHIN: Duration = Duration::from_millis(300);
    let url = Url::parse(&format!("http://127.0.0.1:{port}")).ok()?;
    let address: SocketAddr = url.address().parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&address, WITHIN).ok()?;
    stream.set_read_timeout(Some(WITHIN)).ok()?;
    stream
        .write_all(
            format!(
                "POST /v3/maintenance/status HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
                 Content-Length: 2\r\nConnection: close\r\n\r\n{{}}",
                url.address()
            )
            .as_bytes(),
        )
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let json = &answer[answer.find('{')?..=answer.rfind('}')?];
    serde_json::from_str(json).ok()
}

fn stop_all(running: &mut [Running]) {
    for member in running.iter() {
        signal(member, rustix::process::Signal::TERM);
    }
    let until = Instant::now() + STOP_WITHIN;
    for member in running.iter_mut() {
        while matches!(member.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                println!("{} does not stop and is killed", member.name);
                let _ = member.child.kill();
                let _ = member.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn signal(member: &Running, signal: rustix::process::Signal) {
    if member.gone {
        return;
    }
    if let Some(pid) = i32::try_from(member.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_do_not_collide_and_are_remembered() {
        let holder = TcpListener::bind("127.0.0.1:0").expect("binds");
        let held = holder.local_addr().expect("bound").port();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let dev = Dev { members: 3, data_dir: dir.path().to_path_buf(), port: held };
        let first = ports(&dev).expect("finds ports");
        let mut all: Vec<u16> = first.iter().flat_map(|p| [p.client, p.peer]).collect();
        assert!(!all.contains(&held), "a held port is not taken");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        assert_eq!(ports(&dev).expect("remembers"), first);
        let other = Dev { members: 1, ..dev };
        assert!(ports(&other).expect_err("another size").contains("--members 3"));
    }

    #[test]
    fn a_damaged_list_of_ports_is_refused() {
        assert_eq!(parse_ports("1 2\n"), Some(vec![Ports { client: 1, peer: 2 }]));
        for text in ["", "1\n", "1 x\n", "70000 1\n"] {
            assert_eq!(parse_ports(text), None, "{text:?}");
        }
    }
}
