//! `kvorum dev`.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::live::{self, PATIENCE, block_on, free_port, run_to_end};

fn dev(data_dir: &Path, port: u16, members: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    live::clean(&mut command);
    command.args(["dev", "--members", members, "--port", &port.to_string(), "--data-dir"]).arg(data_dir);
    command
}

/// A running `kvorum dev`; it is asked to stop in the end, so that it stops its members.
struct Dev {
    child: Child,
    said: std::path::PathBuf,
}

impl Dev {
    fn start(data_dir: &Path, port: u16) -> Dev {
        let said = data_dir.with_extension("said");
        let out = File::create(&said).expect("creates");
        let child = dev(data_dir, port, "1")
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a handle"))
            .stderr(out)
            .spawn();
        let mut dev = Dev { child: child.expect("starts"), said };
        dev.wait_for("m1 leads");
        dev
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).expect("reads")
    }

    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.said().contains(text) {
            assert!(self.child.try_wait().expect("asks").is_none(), "ended: {}", self.said());
            assert!(Instant::now() < until, "no {text:?} in {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn interrupt(&mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        let _ = kill_process(pid, Signal::INT);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("asks") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        panic!("does not stop: {}", self.said());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.interrupt();
        }
    }
}

#[test]
fn one_member_starts_serves_stops_and_goes_on() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("dev");
    let port = free_port();
    let mut first = Dev::start(&data, port);
    assert!(first.said().contains(&format!("http://127.0.0.1:{port}")), "{}", first.said());
    let client = |port: u16| Client::new([format!("127.0.0.1:{port}")]).expect("an endpoint");
    block_on(async { client(port).put("a", "x").await.expect("puts") });
    assert_eq!(first.interrupt(), Some(0), "{}", first.said());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "its member goes with it");

    // Another port is what was asked for; the data is the same.
    let other = free_port();
    let mut second = Dev::start(&data, other);
    block_on(async { assert_eq!(&client(other).get("a").await.expect("reads").expect("is there").value[..], b"x") });
    assert_eq!(second.interrupt(), Some(0), "{}", second.said());
    drop(first);

    let other_size = run_to_end(dev(&data, port, "3"));
    assert_eq!(other_size.code, Some(1));
    assert!(other_size.stderr.contains("holds a cluster of 1 member, not of 3"), "{other_size:?}");
}

#[test]
fn sizes_that_make_no_cluster_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (members, code) in [("0", 1), ("10", 1), ("x", 2)] {
        let ended = run_to_end(dev(&dir.path().join("dev"), free_port(), members));
        assert_eq!(ended.code, Some(code), "{members}: {ended:?}");
        assert!(!dir.path().join("dev").exists());
    }
}
