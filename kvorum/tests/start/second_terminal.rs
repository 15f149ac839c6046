//! `kvorum dev` as a newcomer meets it: in one terminal, from a second one, and when it dies.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const KVORUM: &str = env!("CARGO_BIN_EXE_kvorum");
const PATIENCE: Duration = Duration::from_secs(40);

struct Dev {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Dev {
    fn start(dir: &Path, words: &[&str]) -> Dev {
        let mut command = Command::new(KVORUM);
        command.arg("dev").args(words).arg("--data-dir").arg(dir);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let out = child.stdout.take().expect("asked for");
        let (told, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines();
            lines.map_while(Result::ok).for_each(|line| drop(told.send(line)));
        });
        Dev { child, lines }
    }

    /// The first line with this text.
    fn says(&self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return line;
            }
            heard.push(line);
        }
        panic!("nobody said {text:?}, only {heard:#?}");
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit code, output and errors of one more `kvorum dev`.
fn kvorum_dev(dir: &Path, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(KVORUM).arg("dev").args(words).arg("--data-dir").arg(dir).output().expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ends"), text(&output.stdout), text(&output.stderr))
}

fn number_behind(line: &str, word: &str) -> i32 {
    let rest = line.split(word).nth(1).unwrap_or_else(|| panic!("{word:?} in {line:?}"));
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

fn kill(pid: i32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("runs").success());
}

#[test]
fn a_cluster_is_started_looked_at_hurt_and_stopped() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let port = TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("bound").port().to_string();
    let serves = |port: &str| TcpStream::connect(format!("127.0.0.1:{port}")).is_ok();

    // A port that somebody has is said, and nothing else is taken instead.
    let held = TcpListener::bind(format!("127.0.0.1:{port}")).expect("binds");
    let (code, _, error) = kvorum_dev(dir.path(), &["--members", "1", "--port", &port]);
    assert_eq!(code, 1);
    assert!(error.contains(&format!("port {port} on 127.0.0.1, for clients of m1, is taken")), "{error}");
    drop(held);
    let (code, _, error) = kvorum_dev(dir.path(), &["status"]);
    assert!(code == 1 && error.contains("no cluster runs in"), "{error}");

    let dev = Dev::start(dir.path(), &["--members", "1", "--port", &port]);
    let first = number_behind(&dev.says("http://127.0.0.1:"), "process ");
    let hint = dev.says("kill -9");
    assert!(hint.contains(&format!("kill -9 {first} ")) && hint.contains("m1 starts again after 5 s"), "{hint}");
    dev.says("m1 leads");

    // A second terminal.
    let (code, table, _) = kvorum_dev(dir.path(), &["status"]);
    assert_eq!(code, 0, "{table}");
    let row = table.lines().find(|line| line.starts_with("m1 ")).expect("a row");
    assert!(row.contains(&format!("127.0.0.1:{port}")) && row.contains("leader"), "{table}");
    let (_, json, _) = kvorum_dev(dir.path(), &["status", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["leader"], "m1");
    let (code, _, error) = kvorum_dev(dir.path(), &[]);
    let own = dev.child.id();
    assert!(code == 1 && error.contains("already running in"), "{error}");
    assert!(error.contains(&format!("process {own}, endpoints 127.0.0.1:{port}")), "{error}");

    // What the hint says is true.
    kill(first);
    let ended = dev.says("m1 ended");
    let log = dir.path().canonicalize().expect("there").join("m1.log").display().to_string();
    assert!(ended.contains("signal: 9") && ended.contains(&log), "{ended}");
    let again = number_behind(&dev.says("m1 starts again: process"), "process ");
    dev.says("m1 serves again");
    assert_ne!(again, first);

    // However it dies, no member is left behind, and the next start finds everything.
    kill(i32::try_from(own).expect("a process"));
    let until = Instant::now() + PATIENCE;
    while serves(&port) {
        assert!(Instant::now() < until, "the member outlives the one that started it");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut dev = Dev::start(dir.path(), &[]);
    dev.says("m1 leads");
    let (code, text, error) = kvorum_dev(dir.path(), &["stop"]);
    assert!(code == 0 && text.contains("has stopped"), "{error}");
    assert!(dev.child.wait().expect("ends").success());
    assert!(!serves(&port));
}
