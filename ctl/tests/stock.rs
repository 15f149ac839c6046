//! Transcripts: the same commands with the stock tool and with ours, each
//! against a real etcd of its own, must say the same on standard output, on
//! standard error as far as scripts read it, and with the exit code.
//!
//! The cases are in `cases/*.txt`, one command on a line:
//!
//! ```text
//! # a comment
//! put a b                      the words after the program's name, in shell quotes
//! txn < compare\n\nput a b\n\n\n      with standard input
//! ! lease list                 waits for our own server (the rest runs there too)
//! ~ put --help                 help: names, types and defaults only
//! @ETCDCTL_HEX=true get a      with a variable
//! $L = lease grant 60          word 2 of the output is $L from here on
//! = endpoint health            lines in any order (protobuf: field by field)
//! * member promote $L          again until it succeeds
//! put a \xff                   a byte
//! ```
//!
//! `KVORUM_TEST_ETCD` is the folder of the real programs; without it nothing is
//! run. `KVORUM_TEST_SERVER` is our own program: then the cases run against it
//! too, except for those that wait.

mod live;
mod transcript;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use live::{ours, programs, start, start_at};
use transcript::{Run, compare, files, skeleton};

#[test]
fn our_tool_says_what_the_stock_tool_says() {
    let Some(folder) = programs() else { return };
    let (etcd, etcdctl) = (folder.join("etcd"), folder.join("etcdctl"));
    let mut differences = Vec::new();
    for (file, cases) in files("cases") {
        let (one, other) = (start(&etcd, None), start(&etcd, None));
        let found = compare(&cases, Run::on_port(&etcdctl, one.port), Run::on_port(&ours(), other.port), false);
        differences.extend(found.into_iter().map(|text| format!("{file}: {text}")));
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn our_server_makes_no_difference() {
    let Some(folder) = programs() else { return };
    let Some(server) = std::env::var_os("KVORUM_TEST_SERVER").map(PathBuf::from) else { return };
    let mut differences = Vec::new();
    for (file, cases) in files("cases") {
        let (one, other) = (start(&folder.join("etcd"), None), start(&server, Some("server")));
        let stock = Run::on_port(&folder.join("etcdctl"), one.port);
        let found = compare(&cases, stock, Run::on_port(&ours(), other.port), true);
        differences.extend(found.into_iter().map(|text| format!("{file}: {text}")));
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// The files in `addresses` speak of one server that listens in three places.
#[test]
fn endpoints_are_read_as_the_stock_tool_reads_them() {
    let Some(folder) = programs() else { return };
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let mut differences = Vec::new();
    for (file, cases) in files("addresses") {
        let place = tempfile::tempdir().expect("a folder");
        let run = |program: &Path, name: &str| {
            let socket = format!("{}/{name}:1", place.path().display());
            let server = start_at(&folder.join("etcd"), None, &["http://[::1]:PORT", &format!("unix://{socket}")]);
            let mut run = Run::on_port(program, server.port);
            run.kept.insert("$SOCK".to_owned(), socket);
            (server, run)
        };
        let (_one, stock) = run(&folder.join("etcdctl"), "one");
        let (_other, own) = run(&ours(), "other");
        let found = compare(&cases, stock, own, false);
        differences.extend(found.into_iter().map(|text| format!("{file}: {text}")));
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// Every command of the stock tool, by its own completion, has a case with its
/// help in it, and the pages have the same shape.
#[test]
fn no_command_is_missing() {
    let Some(folder) = programs() else { return };
    let stock = folder.join("etcdctl");
    let mut paths = vec![Vec::new()];
    let mut missing = Vec::new();
    while let Some(path) = paths.pop() {
        let ask = |program: &Path, last: &str| {
            let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
            if last.is_empty() {
                words.insert(0, "__complete");
                words.push("");
            } else {
                words.push(last);
            }
            let output = Command::new(program).args(&words).output().expect("it ends");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (help, own_help) = (ask(&stock, "--help"), ask(&ours(), "--help"));
        if skeleton(&help) != skeleton(&own_help) {
            missing.push(format!("{path:?}\n{}---\n{}", skeleton(&help), skeleton(&own_help)));
        }
        let stop = matches!(path.first().map(String::as_str), Some("help" | "completion"));
        let below = ask(&stock, "");
        for line in below.lines().filter(|line| !stop && !line.starts_with(':') && line.contains('\t')) {
            let mut longer = path.clone();
            longer.push(line.split('\t').next().unwrap_or_default().to_owned());
            paths.push(longer);
        }
    }
    assert!(missing.is_empty(), "{} pages differ\n{}", missing.len(), missing.join("\n"));
}
