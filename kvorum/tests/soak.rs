//! `kvorum bench soak` against a member: seconds of it, and its end by Ctrl-C.

mod live;

use live::{Alone, PATIENCE, is_other};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn soak(alone: &Alone, time: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvorum"));
    command.args(["bench", "soak", "--json", "--quiet", "--warm-up", "0s", "--keys", "1200", "--rate", "400"]);
    command.args(["--for", time, "--endpoints", &alone.member.endpoint(), "--pid", &alone.member.pid().to_string()]);
    command.arg("--disk").arg(&alone.member.spec.dir).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert!(output.status.success(), "{}: {report}", output.status);
    report
}

#[test]
fn every_event_is_seen_and_every_lease_ends() {
    if is_other() {
        return;
    }
    let alone = Alone::new(&[]);
    let report = report(&soak(&alone, "5s").output().expect("runs"));
    let figure = |name: &str| report["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    assert!(figure("writes told to all watchers") > 300.0, "{report}");
    assert!(figure("leases ended") > 10.0 && figure("compactions") >= 1.0, "{report}");
    assert!(figure("disk MB at the end") > 0.0 && figure("anonymous MB at the end") > 0.0, "{report}");
    assert!(figure("us/op first tenth") >= 0.0 && figure("gap ms") > 0.0, "{report}");
    for kind in ["put", "swap", "get", "page", "renew", "grant", "leased put"] {
        assert!(report["soak"]["kinds"][kind]["count"].as_u64() > Some(10), "{kind}: {report}");
    }
    let points = report["soak"]["points"].as_array().expect("samples");
    assert!(points.len() > 20 && points.len() <= 202, "{} samples", points.len());
}

#[test]
fn an_interrupt_ends_it_with_what_it_has() {
    if is_other() {
        return;
    }
    let alone = Alone::new(&[]);
    let mut child = soak(&alone, "100s").spawn().expect("starts");
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    let until = Instant::now() + PATIENCE;
    let begun = || {
        let count = async { alone.client().range(client::prefix("/bench/swaps/")).await };
        live::block_on(count).expect("counts").count > 0
    };
    while !begun() {
        assert!(Instant::now() < until, "it does not begin");
        assert_eq!(child.try_wait().expect("a child"), None, "it ended at once");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(pid, Signal::INT).expect("a process");
    let report = report(&child.wait_with_output().expect("ends"));
    assert_eq!(report["soak"]["interrupted"], true);
    assert!(report["seconds"].as_f64() < Some(60.0) && report["operations"].as_u64() > Some(0), "{report}");
}
