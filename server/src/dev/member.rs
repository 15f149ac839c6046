//! One member: a process of its own (the same binary), so that it can be killed by hand to see what
//! happens. It ends when `kvorum dev` ends, however that ends (`crate::parent`).

use super::ports::Ports;
use super::trouble::Trouble;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

const READY_LINE: &str = "ready to serve client requests";
/// Longest part of a log line that is shown.
const SHOWN: usize = 300;

/// One process of a member.
pub(super) struct Process {
    child: Child,
    /// Writes the log; ends with the process, and has its last line then.
    log: Option<JoinHandle<String>>,
}

/// A member and what became of its processes.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) ports: Ports,
    pub(super) log: PathBuf,
    pub(super) process: Option<Process>,
    /// When it starts again.
    pub(super) again_at: Option<Instant>,
    /// When it ended by itself, lately.
    pub(super) ends: Vec<Instant>,
}

/// A process that has ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) last_line: String,
}

impl Member {
    /// It is not started yet. `n`: from 0.
    pub(super) fn new(dir: &Path, ports: &[Ports], n: usize) -> Member {
        let name = format!("m{}", n + 1);
        let log = dir.join(format!("{name}.log"));
        Member { name, ports: ports[n].clone(), log, process: None, again_at: None, ends: Vec::new() }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    pub(super) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.ports.client)
    }

    /// `ready` hears the name once it serves.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn start(&mut self, dir: &Path, all: &[Ports], ready: &mpsc::Sender<String>) -> Result<(), Trouble> {
        let cluster: Vec<String> =
            all.iter().enumerate().map(|(n, p)| format!("m{}=http://127.0.0.1:{}", n + 1, p.peer)).collect();
        let client = format!("http://{}", self.endpoint());
        let peer = format!("http://127.0.0.1:{}", self.ports.peer);
        let program = std::env::current_exe().map_err(Trouble::of(Path::new("this program")))?;
        let mut command = Command::new(program);
        command.arg("server");
        for (flag, value) in [
            ("name", self.name.as_str()),
            ("listen-client-urls", &client),
            ("advertise-client-urls", &client),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &cluster.join(",")),
            ("initial-cluster-token", "kvorum-dev"),
        ] {
            command.arg(format!("--{flag}={value}"));
        }
        command.arg("--data-dir").arg(dir.join(&self.name));
        // ETCD_* variables are meant for single members; here they would meet our flags.
        for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("ETCD_")) {
            command.env_remove(key);
        }
        command.env(crate::parent::VARIABLE, std::process::id().to_string());
        // Ctrl-C reaches `kvorum dev` alone, which then stops the members in order.
        command.process_group(0);
        let log = fs::File::options().create(true).append(true).mode(0o600).open(&self.log);
        let log = log.map_err(Trouble::of(&self.log))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Trouble::of(Path::new(&self.name)))?;
        let lines = child.stderr.take().expect("asked for");
        let (name, ready) = (self.name.clone(), ready.clone());
        let log = std::thread::spawn(move || keep_log(lines, log, &name, &ready));
        (self.process, self.again_at) = (Some(Process { child, log: Some(log) }), None);
        Ok(())
    }

    /// None: it runs, or is known to be down.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        let process = self.process.as_mut()?;
        let status = process.child.try_wait().ok()??;
        let last_line = process.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        self.process = None;
        Some(Ended { status, last_line })
    }

    /// SIGTERM.
    pub(super) fn end(&self) {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// SIGKILL, and waits for it.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// The last line, as it is shown.
fn keep_log(lines: impl Read, mut log: fs::File, member: &str, ready: &mpsc::Sender<String>) -> String {
    let mut last = String::new();
    for line in BufReader::new(lines).lines() {
        let Ok(line) = line else { break };
        let _ = writeln!(log, "{line}");
        if line.contains(READY_LINE) {
            let _ = ready.send(member.to_string());
        }
        last = line;
    }
    shown(&last)
}

/// What a log line says, without its time and place.
fn shown(line: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let field = |name: &str| json[name].as_str().filter(|text| !text.is_empty()).map(str::to_string);
    let text = match (field("msg"), field("error")) {
        (Some(message), Some(error)) => format!("{message}: {error}"),
        (Some(message), None) => message,
        _ => line.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_shown_without_its_frame() {
        assert_eq!(
            shown(r#"{"level":"fatal","ts":"x","msg":"discovery failed","error":"no name"}"#),
            "discovery failed: no name"
        );
        assert_eq!(shown(r#"{"level":"info","msg":"closed"}"#), "closed");
        assert_eq!(shown("thread panicked"), "thread panicked");
        assert_eq!(shown(&"ä".repeat(400)).chars().count(), SHOWN + 1);
    }
}
