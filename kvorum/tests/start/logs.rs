//! The log of a member: several outputs, a file that is rotated, a level that changes while it
//! runs.

use crate::live::{Alone, Member, Spec, block_on, client_of, comes, is_other};
use flate2::read::GzDecoder;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

#[test]
fn a_threshold_for_defragmentation_is_answered_in_etcds_words() {
    let alone = Alone::new(&["--bootstrap-defrag-threshold-megabytes=1"]);
    let log = alone.member.log();
    // etcd says it from its second start on.
    assert!(is_other() || log.contains(r#""msg":"Skipping defragmentation""#), "{log}");
}

/// Rotated files, compressed or not.
fn old_files(log: &str) -> Vec<PathBuf> {
    let log = PathBuf::from(log);
    let folder = fs::read_dir(log.parent().expect("it lies in a folder")).expect("reads");
    let paths = folder.map(|entry| entry.expect("reads").path()).filter(|path| *path != log);
    paths.filter(|path| path.to_string_lossy().contains("/own-20")).collect()
}

#[test]
fn lines_go_to_every_output_and_a_full_file_is_rotated() {
    if is_other() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let own = dir.path().join("own.log").to_str().expect("UTF-8").to_owned();
    let outputs = format!("--log-outputs=stdout,{own}");
    let rules = r#"--log-rotation-config-json={"maxsize": 1, "compress": true}"#;
    let slow = "--warning-unary-request-duration=1ns";
    let extra = ["--log-format=console", &outputs, "--enable-log-rotation", rules, slow];
    let member = Member::start(Spec::alone(dir.path(), &extra));
    block_on(async {
        let client = client_of([&member]);
        let key = "k".repeat(4000);
        // Lines about slow requests come a hundred a second at most.
        while old_files(&own).is_empty() {
            client.put(key.clone(), "x").await.expect("puts");
        }
    });
    let packed = || old_files(&own).into_iter().find(|path| path.extension().is_some_and(|ending| ending == "gz"));
    comes("the compressed file", || packed().is_some());
    let mut old = String::new();
    GzDecoder::new(File::open(packed().expect("is there")).expect("opens")).read_to_string(&mut old).expect("unpacks");
    let now = fs::read_to_string(&own).expect("readable");
    assert!((900 << 10..=1 << 20).contains(&old.len()), "{}", old.len());
    for line in old.lines().chain(now.lines()) {
        assert!(line.split('\t').count() >= 4, "time, level, caller, text: {line}");
    }
    assert!(old.contains("\tready to serve client requests"), "{old:.1000}");
    // Both outputs hold the same lines.
    comes("every line", || {
        let (file, shown) = (format!("{old}{}", fs::read_to_string(&own).expect("readable")), member.log());
        file.lines().count().abs_diff(shown.lines().count()) <= 1 && shown.contains("request stats")
    });
}

#[test]
fn the_level_changes_while_a_member_runs() {
    if is_other() {
        return;
    }
    let alone = Alone::new(&["--log-level=error"]);
    let log = || alone.member.log();
    assert!(!log().contains("\"level\":\"info\""), "{}", log());
    alone.member.signal(Signal::USR1);
    comes("the change", || log().contains(r#""msg":"changed the log level","from":"error","to":"debug""#));
    let before = log().lines().count();
    block_on(async {
        let revision = alone.client().put("a", "x").await.expect("puts").header.expect("a header").revision;
        alone.client().compact(revision).await.expect("compacts");
    });
    comes("a line of less weight", || log().contains("finished scheduled compaction"));
    assert!(log().lines().count() > before);
    alone.member.signal(Signal::USR2);
    comes("the change back", || log().contains(r#""msg":"changed the log level","from":"debug","to":"error""#));
}
