//! Beside the stock programs: skipped where KVORUM_TEST_ETCD is not set.

use crate::fixtures;
use crate::script::{Outcome, Step, cases, parse, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::servers::{self, Guarded, PATIENCE};

fn programs() -> Option<PathBuf> {
    let folder = std::env::var_os("KVORUM_TEST_ETCD").map(PathBuf::from);
    if folder.is_none() {
        println!("(KVORUM_TEST_ETCD is not set: skipped)");
    }
    folder
}

/// What scripts read: not the log, and not where in which source a line of it was written.
fn told(outcome: &Outcome) -> (String, String, i32) {
    let stderr: Vec<&str> = outcome.stderr.lines().filter(|line| !line.starts_with("TIME")).collect();
    (outcome.stdout.clone(), stderr.join("\n"), outcome.status)
}

/// Every command line of the scripts that is not marked otherwise, given to the stock tool.
pub fn stock() -> Result<(), String> {
    let Some(stock) = programs() else { return Ok(()) };
    let mut wrong = String::new();
    let mut count = 0;
    for case in cases() {
        for step in parse(&fs::read_to_string(&case).expect("a case")) {
            let Step { line, compared: true, expected } = step else { continue };
            // The stock tool changes what it reads and leaves what it fails at.
            let dir = tempfile::tempdir().expect("a temporary folder");
            fixtures::write(dir.path());
            let outcome = run(dir.path(), &line, Some(&stock));
            count += 1;
            if told(&outcome) != told(&expected) {
                wrong.push_str(&format!("{}: {line}\nstock {outcome:#?}\nours {expected:#?}\n", case.display()));
            }
        }
    }
    println!("({count} command lines)");
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn free_port() -> u16 {
    servers::free_port(6_000, 4_000)
}

/// A server that ends with its owner.
struct Server {
    process: Guarded,
    endpoint: String,
}

impl Server {
    /// A member on free ports of loopback, once it answers.
    fn start(program: &Path, first: Option<&str>, stock: &Path, dir: &Path, data: &str) -> Result<Server, String> {
        let (client, peer) = (free_port(), free_port());
        let endpoint = format!("127.0.0.1:{client}");
        let url = format!("http://{endpoint}");
        let mut command = Command::new(program);
        command.args(first).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(["--data-dir", data, "--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}")]);
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let mut server = Server { process: Guarded::new(child, dir), endpoint };
        let since = Instant::now();
        while server.ctl(stock, &["endpoint", "health", "--command-timeout=200ms"]).is_err() {
            if let Some(status) = server.process.server.try_wait().expect("it can be asked") {
                return Err(format!("{} on {data} ended with {status}", program.display()));
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("{} does not answer on {data}", program.display()));
            }
        }
        Ok(server)
    }

    fn ctl(&self, stock: &Path, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(stock.join("etcdctl"));
        let output = command.args(["--endpoints", &self.endpoint]).args(words).output().expect("etcdctl starts");
        let text = String::from_utf8_lossy(&output.stdout).replace(&self.endpoint, "ENDPOINT");
        if output.status.success() { Ok(text) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// A clean stop: what was acknowledged is in the file.
    fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.process.server);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
        self.process.server.wait().expect("it ends");
    }
}

/// Writes a history into a real etcd: overwritten, deleted and leased keys, transactions, a
/// compaction.
fn fill(etcd: &Server, stock: &Path) -> Result<(), String> {
    let lease = etcd.ctl(stock, &["lease", "grant", "6000"])?;
    let lease = lease.split(' ').nth(1).unwrap_or_default().to_string();
    for n in 0..60 {
        let (key, value) = (format!("/key/{}", n % 25), format!("value {n}"));
        match n % 7 {
            3 => etcd.ctl(stock, &["del", &key])?,
            5 => etcd.ctl(stock, &["put", &key, &value, "--lease", &lease])?,
            _ => etcd.ctl(stock, &["put", &key, &value])?,
        };
    }
    etcd.ctl(stock, &["del", "--prefix", "/key/1"])?;
    etcd.ctl(stock, &["compaction", "40"])?;
    etcd.ctl(stock, &["put", "/last", "one"]).map(drop)
}

/// The questions that both must answer alike.
const QUESTIONS: [&[&str]; 6] = [
    &["endpoint", "hashkv"],
    &["get", "/", "--prefix", "--print-value-only"],
    &["get", "/key/2", "--rev", "45"],
    &["get", "", "--from-key", "--keys-only"],
    &["lease", "list"],
    &["get", "/key/2", "--rev", "20"],
];

/// Snapshot and file of a real etcd, restored by both tools, plain and with a bumped revision; with
/// KVORUM_TEST_SERVER (the `kvorum` binary) both are served and asked the same.
pub fn migration() -> Result<(), String> {
    let Some(stock) = programs() else { return Ok(()) };
    let server = std::env::var_os("KVORUM_TEST_SERVER").map(PathBuf::from);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let etcd = Server::start(&stock.join("etcd"), None, &stock, dir.path(), "source")?;
    fill(&etcd, &stock)?;
    etcd.ctl(&stock, &["snapshot", "save", &dir.path().join("saved.db").display().to_string()])?;
    etcd.stop();
    let bump = "--bump-revision 1000000 --mark-compacted";
    for (number, (file, flags)) in
        [("saved.db", ""), ("saved.db", bump), ("source/member/snap/db", "--skip-hash-check")].into_iter().enumerate()
    {
        let (theirs, ours) = (format!("theirs-{number}"), format!("ours-{number}"));
        let copy = format!("copy-{number}.db");
        fs::copy(dir.path().join(file), dir.path().join(&copy)).expect("copied");
        let restore = |data: &str| format!("etcdutl snapshot restore {copy} --data-dir {data} {flags}");
        same(dir.path(), &format!("etcdutl snapshot status {copy} -w json"), &stock)?;
        for (line, stock) in [(restore(&theirs), Some(stock.as_path())), (restore(&ours), None)] {
            let done = run(dir.path(), &line, stock);
            if done.status != 0 {
                return Err(format!("{line}: {done:?}"));
            }
        }
        let hash = run(dir.path(), &format!("etcdutl hashkv {theirs}/member/snap/db"), Some(&stock));
        let found = run(dir.path(), &format!("etcdutl hashkv {ours}"), None);
        if hash.status != 0 || hash.stdout != found.stdout {
            return Err(format!("hashkv of {flags:?}: stock {hash:?}, ours {found:?}"));
        }
        let verified = run(dir.path(), &format!("kvorum utl verify {ours}"), None);
        if verified.status != 0 {
            return Err(format!("verify: {verified:?}"));
        }
        if let Some(server) = &server {
            served(server, &stock, dir.path(), &theirs, &ours)?;
        }
    }
    Ok(())
}

fn same(dir: &Path, line: &str, stock: &Path) -> Result<(), String> {
    let (theirs, ours) = (run(dir, line, Some(stock)), run(dir, line, None));
    if theirs == ours { Ok(()) } else { Err(format!("{line}: stock {theirs:?}, ours {ours:?}")) }
}

fn served(server: &Path, stock: &Path, dir: &Path, theirs: &str, ours: &str) -> Result<(), String> {
    let etcd = Server::start(&stock.join("etcd"), None, stock, dir, theirs)?;
    let kvorum = Server::start(server, Some("server"), stock, dir, ours)?;
    for step in ["as restored", "after a write", "after a compaction"] {
        match step {
            "after a write" => [&etcd, &kvorum].map(|to| to.ctl(stock, &["put", "/new", "value"])),
            "after a compaction" => {
                let status = kvorum.ctl(stock, &["get", "/new", "-w", "fields"])?;
                let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
                let revision = revision.unwrap_or_default().to_string();
                [&etcd, &kvorum].map(|to| to.ctl(stock, &["compaction", &revision]))
            }
            _ => [Ok(String::new()), Ok(String::new())],
        }
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
        for words in QUESTIONS {
            let error = |text: String| text.lines().last().unwrap_or_default().to_string();
            let [theirs, ours] = [&etcd, &kvorum].map(|to| to.ctl(stock, words).map_err(error));
            if theirs != ours {
                return Err(format!("{step}, {words:?}: etcd {theirs:?}, kvorum {ours:?}"));
            }
        }
    }
    Ok(())
}
